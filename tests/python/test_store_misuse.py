"""Calls that can't work: before setup, after close, with arguments that don't fit together or are none at all."""

import ctypes
import json

import pytest
from conftest import HOST, MIB, pattern, run_python
from mooncake.store import MooncakeDistributedStore, MooncakeHostMemAllocator

INVALID, NOT_FOUND = -600, -704

# Each call, and what it answers when there is nothing to work on.
ANSWERS = {
    "s.put('k', b'v')": INVALID,
    "s.put_parts('k', b'a', b'b')": INVALID,
    "s.put_batch(['k'], [b'v'])": INVALID,
    "s.put_from('k', P, 16)": INVALID,
    "s.batch_put_from(['k', 'l'], [P, P], [16, 16])": [INVALID, INVALID],
    "s.batch_put_from_multi_buffers(['k', 'l'], [[P], [P]], [[16], [16]])": [INVALID, INVALID],
    "s.upsert('k', b'v')": INVALID,
    "s.upsert_parts('k', b'a', b'b')": INVALID,
    "s.upsert_batch(['k'], [b'v'])": INVALID,
    "s.upsert_from('k', P, 16)": INVALID,
    "s.batch_upsert_from(['k', 'l'], [P, P], [16, 16])": [INVALID, INVALID],
    "s.get('k').hex()": "",
    "[v.hex() for v in s.get_batch(['k', 'l'])]": ["", ""],
    "s.get_buffer('k')": None,
    "s.batch_get_buffer(['k', 'l'])": [None, None],
    "s.get_into('k', P, 16)": INVALID,
    "s.batch_get_into(['k', 'l'], [P, P], [16, 16])": [INVALID, INVALID],
    "s.batch_get_into_multi_buffers(['k', 'l'], [[P], [P]], [[16], [16]])": [INVALID, INVALID],
    "s.get_into_ranges([P], [['k', 'l']], [[[0, 4], [8]]], [[[0, 0], [0]]], [[[4, 4], [4]]])": [
        [[INVALID] * 2, [INVALID]]
    ],
    "s.batch_get_session_start(['k', 'l'])": [INVALID, INVALID],
    "s.batch_get_into_multi_buffer_ranges(['k', 'l'], [[P], [P]], [[4], [4]], [[0], [0]])": [INVALID, INVALID],
    "s.batch_get_session_end(['k', 'l'])": INVALID,
    "s.batch_put_session_start(['k', 'l'], [16, 16])": [INVALID, INVALID],
    "s.batch_put_from_multi_buffer_ranges(['k', 'l'], [[P], [P]], [[4], [4]], [[0], [0]])": [INVALID, INVALID],
    "s.batch_put_session_end(['k', 'l'])": [INVALID, INVALID],
    "s.batch_put_session_revoke(['k', 'l'])": [INVALID, INVALID],
    "s.put_tensor('k', None)": INVALID,
    "s.upsert_tensor('k', None)": INVALID,
    "s.pub_tensor('k', None)": INVALID,
    "s.upsert_pub_tensor('k', None)": INVALID,
    "s.put_tensor_with_parallelism('k', None)": INVALID,
    "s.upsert_tensor_with_parallelism('k', None)": INVALID,
    "s.batch_put_tensor(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.batch_upsert_tensor(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.batch_pub_tensor(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.batch_upsert_pub_tensor(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.batch_put_tensor_with_parallelism(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.batch_upsert_tensor_with_parallelism(['k', 'l'], [None, None])": [INVALID, INVALID],
    "s.put_tensor_from('k', T, 1000)": INVALID,
    "s.upsert_tensor_from('k', T, 1000)": INVALID,
    "s.put_tensor_with_parallelism_from('k', T, 1000)": INVALID,
    "s.upsert_tensor_with_parallelism_from('k', T, 1000)": INVALID,
    "s.batch_put_tensor_from(['k', 'l'], [T, T], [1000, 1000])": [INVALID, INVALID],
    "s.batch_upsert_tensor_from(['k', 'l'], [T, T], [1000, 1000])": [INVALID, INVALID],
    "s.batch_put_tensor_with_parallelism_from(['k', 'l'], [T, T], [1000, 1000])": [INVALID, INVALID],
    "s.batch_upsert_tensor_with_parallelism_from(['k', 'l'], [T, T], [1000, 1000])": [INVALID, INVALID],
    "s.get_tensor('k')": None,
    "s.batch_get_tensor(['k', 'l'])": [None, None],
    "s.get_tensor_into('k', P, 1000)": None,
    "s.batch_get_tensor_into(['k', 'l'], [P, P], [1000, 1000])": [None, None],
    "s.get_tensor_with_parallelism('k')": None,
    "s.batch_get_tensor_with_parallelism(['k', 'l'])": [None, None],
    "s.is_exist('k')": INVALID,
    "s.batch_is_exist(['k', 'l'])": [INVALID, INVALID],
    "s.get_size('k')": INVALID,
    "s.remove('k')": INVALID,
    "s.batch_remove(['k', 'l'])": [INVALID, INVALID],
    "s.remove_by_regex('k')": INVALID,
    "s.remove_all()": INVALID,
    "s.register_buffer(P, 4096)": INVALID,
    "s.unregister_buffer(P)": INVALID,
    "s.get_replica_desc('k')": [],
    "s.batch_get_replica_desc(['k'])": {},
    "s.get_hostname()": "",
    "s.counters()['shared_reads']": 0,
    "s.health_check()": 1,
    "s.close()": 0,
}

CALL_ALL = """
import ctypes, json, sys
from mooncake.store import MooncakeDistributedStore
buffer = ctypes.create_string_buffer(4096)
s, P = MooncakeDistributedStore(), ctypes.addressof(buffer)
from mooncake._tensor_format import Layout
header = ctypes.create_string_buffer(Layout("int8", (1,), (1,)).pack(), 1000)
T = ctypes.addressof(header)
if len(sys.argv) > 2:
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[2]) == 0
    assert s.put("k", b"0123456789abcdef") == 0 and s.register_buffer(P, 4096) == 0
    assert s.close() == 0
print(json.dumps({call: eval(call) for call in json.loads(sys.argv[1])}))
"""


def test_before_setup_each_call_says_so():
    assert json.loads(run_python(CALL_ALL, json.dumps(list(ANSWERS)))) == ANSWERS


def test_after_close_each_call_says_so(master):
    assert json.loads(run_python(CALL_ALL, json.dumps(list(ANSWERS)), master.address)) == ANSWERS


def test_every_public_call_is_in_the_table():
    calls = {name for name in dir(MooncakeDistributedStore) if not name.startswith("_")} - {"setup"}
    assert calls == {call.partition("s.")[2].partition("(")[0] for call in ANSWERS}


@pytest.mark.parametrize(
    "call, wants",
    [
        (lambda s, p: s.batch_get_into(["a", "b"], [p], [16, 16]), [INVALID, INVALID]),
        (lambda s, p: s.batch_get_into(["a"], [p, p], [16]), [INVALID]),
        (lambda s, p: s.batch_get_into(["a", "b"], [p, p], []), [INVALID, INVALID]),
        (lambda s, p: s.batch_put_from(["x", "y"], [p, p], [16]), [INVALID, INVALID]),
        (lambda s, p: s.batch_upsert_from(["x"], [], []), [INVALID]),
        (lambda s, p: s.batch_put_from_multi_buffers(["x", "y"], [[p]], [[16]]), [INVALID, INVALID]),
        (lambda s, p: s.batch_get_into_multi_buffers(["a", "b"], [[p], [p]], [[16]]), [INVALID, INVALID]),
        (lambda s, p: s.batch_put_session_start(["x", "y"], [16]), [INVALID, INVALID]),
        (lambda s, p: s.batch_get_into_multi_buffer_ranges(["a", "b"], [[p]], [[16]], [[0]]), [INVALID, INVALID]),
        (lambda s, p: s.batch_put_from_multi_buffer_ranges(["x", "y"], [[p], [p]], [[16], [16]], [[0]]), [INVALID] * 2),
        (lambda s, p: s.put_batch(["x", "y"], [b"v"]), INVALID),
        (lambda s, p: s.get_into_ranges([p], [["a"], ["b"]], [[[0]]], [[[0]]], [[[1]]]), [[[INVALID]]]),
        (lambda s, p: s.get_into_ranges([p], [["a"]], [[[0]]], [[[0, 1]]], [[[1, 1]]]), [[[INVALID, INVALID]]]),
        (lambda s, p: s.get_into_ranges([p], [["a", "b"]], [[[0]]], [[[0]]], [[[1]]]), [[[INVALID]]]),
    ],
)
def test_lists_that_do_not_match_are_refused_whole(store, memory, call, wants):
    store.put_batch(["a", "b"], [b"1" * 16, b"2" * 16])
    assert call(store, memory.ptr) == wants
    assert store.batch_is_exist(["x", "y"]) == [0, 0]
    assert memory.bytes(0, 64) == bytes(64)


def test_lists_of_pieces_that_do_not_match_spoil_their_key_only(store, memory):
    store.put_batch(["a", "b"], [b"1" * 16, b"2" * 16])
    p = memory.ptr
    assert store.batch_get_into_multi_buffers(["a", "b"], [[p, p], [p + 100]], [[16], [16]]) == [INVALID, 16]
    assert memory.bytes(0, 116) == bytes(100) + b"2" * 16
    assert store.batch_put_from_multi_buffers(["x", "y"], [[p + 100], [p]], [[16], [16, 16]]) == [0, INVALID]
    assert store.batch_is_exist(["x", "y"]) == [1, 0]


@pytest.mark.parametrize("address", [0, (1 << 64) - 8, 1 << 60], ids=["null", "end of addresses", "no address"])
def test_what_can_be_no_memory_is_refused(store, memory, address):
    store.put("a", b"1" * 16)
    assert store.put_from("x", address, 16) == INVALID
    assert store.upsert_from("a", address, 16) == INVALID
    assert store.get_into("a", address, 16) == INVALID
    assert store.batch_put_from(["x", "y"], [address, memory.ptr], [16, 16]) == [INVALID, 0]
    assert store.batch_get_into(["a", "a"], [address, memory.ptr], [16, 16]) == [INVALID, 16]
    assert store.batch_get_into_multi_buffers(["a"], [[memory.ptr, address]], [[8, 8]]) == [INVALID]
    assert store.get_into_ranges([address], [["a"]], [[[0]]], [[[0]]], [[[16]]]) == [[[INVALID]]]
    assert store.register_buffer(address, 16) == INVALID
    assert (store.is_exist("x"), store.get("a")) == (0, b"1" * 16)


def test_offsets_that_overflow_are_refused(store, memory):
    store.put("a", b"1" * 16)
    huge = (1 << 64) - 1
    answer = store.get_into_ranges([memory.ptr], [["a"]], [[[huge, 0, 0]]], [[[0, huge, 8]]], [[[1, 1, 9]]])
    assert answer == [[[INVALID, INVALID, INVALID]]]
    assert memory.bytes(0, 16) == bytes(16)


def test_an_empty_value_is_refused_and_leaves_no_key(store, memory):
    assert store.put("e", b"") == INVALID
    assert store.upsert("e", b"") == INVALID
    assert store.put_from("e", memory.ptr, 0) == INVALID
    assert store.put_batch(["e"], [b""]) == INVALID
    assert store.is_exist("e") == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.put("k", "text"),
        lambda s: s.put("k", 7),
        lambda s: s.put("k", None),
        lambda s: s.put(7, b"v"),
        lambda s: s.put(None, b"v"),
        lambda s: s.put("\ud800", b"v"),
        lambda s: s.put("k", b"v", "config"),
        lambda s: s.put("k", b"v", colour="red"),
        lambda s: s.put("k"),
        lambda s: s.put_parts("k", b"a", "b"),
        lambda s: s.put_batch(["k"], ["text"]),
        lambda s: s.put_batch(["k"], b"v"),
        lambda s: s.get_into("k", "address", 1),
        lambda s: s.get_into("k", 1.5, 1),
        lambda s: s.get_into("k", -1, 1),
        lambda s: s.put_from("k", 1, -1),
        lambda s: s.put_from("k", 1 << 64, 1),
        lambda s: s.batch_get_into(["k"], [-1], [1]),
        lambda s: s.batch_get_into(["k"], [1 << 64], [1]),
        lambda s: s.batch_get_into(["k"], ["1"], [1]),
        lambda s: s.batch_get_into(["k"], 1, [1]),
        lambda s: s.batch_is_exist("keys"),
        lambda s: s.batch_is_exist(b"keys"),
        lambda s: s.batch_is_exist([1]),
        lambda s: s.batch_is_exist(["\ud800"]),
        lambda s: s.batch_is_exist({"k": 1}),
        lambda s: s.batch_is_exist(None),
        lambda s: s.batch_put_from_multi_buffers(["k"], [1], [[1]]),
        lambda s: s.get_into_ranges([1], [["k"]], [[[0]]], [[["0"]]], [[[1]]]),
        lambda s: s.remove_by_regex(7),
    ],
)
def test_wrong_types_are_type_errors(store, call):
    with pytest.raises(TypeError):
        call(store)
    assert store.health_check() == 0


def test_a_list_that_changes_during_the_call_harms_nothing(store, memory):
    """An item that becomes an int by code of its own may do anything to the list it is in."""
    store.put("a", b"1" * 16)
    sizes = [16] * 100

    class Clears:
        def __index__(self):
            sizes.clear()
            return 16

    sizes[3] = Clears()
    assert store.batch_get_into(["a"] * 100, [memory.ptr] * 100, sizes) == [INVALID] * 100


def test_a_key_list_of_another_kind_of_sequence_works(store):
    store.put("a", b"1")
    assert store.batch_is_exist(("a", "b")) == [1, 0]


def test_store_can_be_closed_and_set_up_again(master):
    store = MooncakeDistributedStore()
    for _ in range(3):
        assert store.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
        assert store.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
        assert store.put("key", b"value") == 0
        assert store.get("key") == b"value"
        assert store.close() == 0
        assert store.close() == 0
        assert store.get("key") == b""


def test_handles_outlive_close_and_the_store(master):
    store = MooncakeDistributedStore()
    assert store.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    store.put_batch(["a", "b"], [pattern(MIB, 1), pattern(100, 2)])
    handles = store.batch_get_buffer(["a", "b"])
    view = memoryview(handles[0])
    assert store.close() == 0
    assert store.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    assert store.put("c", pattern(8 * MIB)) == 0
    assert store.close() == 0
    del store
    assert view == pattern(MIB, 1)
    assert bytes(handles[1]) == pattern(100, 2)


def test_host_memory_is_given_and_taken_back():
    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(MIB)
    assert address % 4096 == 0 and address > 0
    view = (ctypes.c_char * MIB).from_address(address)
    assert view.raw == bytes(MIB)
    view.raw = pattern(MIB)
    assert view.raw == pattern(MIB)
    assert allocator.free(address) == 0
    assert allocator.free(address) == INVALID
    assert allocator.alloc(0) == 0
    assert allocator.alloc(1 << 60) == 0


def test_registered_memory_is_forgotten_at_close(master, memory):
    store = MooncakeDistributedStore()
    for _ in range(2):
        assert store.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", master.address) == 0
        assert store.register_buffer(memory.ptr, memory.size) == 0
        assert store.close() == 0
