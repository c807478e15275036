"""Gets and puts that are spread over several calls: batch_get_session_* and batch_put_session_*."""

import pytest
from conftest import HOST, MIB, pattern
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

INVALID, NOT_FOUND, EXISTS, NO_ROOM, HAS_LEASE = -600, -704, -705, -200, -706


@pytest.fixture(params=["shared memory", "tcp"])
def store(request, open_store, monkeypatch):
    """A store with a segment and nothing in it; on both of the ways that bytes can go."""
    if request.param == "tcp":
        monkeypatch.setenv("NANO_MOONCAKE_STORE_TRANSPORT", "tcp")
    opened = open_store()
    opened.remove_all(force=True)
    return opened


# ---- Puts ----------------------------------------------------------------------------------------------------------


def test_a_put_session_shows_its_object_when_it_ends(store, memory):
    data = pattern(8192)
    memory.fill(data)
    keys, p = ["a", "b"], memory.ptr
    assert store.batch_put_session_start(keys, [8192, 100]) == [0, 0]
    places = [[p + 4096, p], [p]], [[4096, 1000], [60]], [[4096, 0], [40]]
    wrote = store.batch_put_from_multi_buffer_ranges(keys, *places)
    assert wrote == [5096, 60]
    assert store.batch_is_exist(keys) == [0, 0]
    assert store.batch_put_from_multi_buffer_ranges(["a"], [[p + 1000]], [[3096]], [[1000]]) == [3096]
    assert store.batch_put_session_end(keys) == [0, 0]
    assert store.get("a") == data
    assert store.get("b") == bytes(40) + data[:60]  # what nobody wrote is 0
    assert store.batch_put_session_end(keys) == [INVALID, INVALID]


def test_a_revoked_put_session_leaves_nothing(store, memory):
    assert store.batch_put_session_start(["a"], [16]) == [0]
    assert store.batch_put_session_revoke(["a", "none"]) == [0, INVALID]
    assert store.batch_put_from_multi_buffer_ranges(["a"], [[memory.ptr]], [[16]], [[0]]) == [INVALID]
    assert store.batch_put_session_end(["a"]) == [INVALID]
    assert store.is_exist("a") == 0
    assert store.batch_put_session_start(["a"], [16]) == [0]
    assert store.batch_put_session_revoke(["a"]) == [0]


def test_a_put_session_needs_a_free_key_and_bytes(store):
    store.put("taken", b"v")
    starts = store.batch_put_session_start(["taken", "new", "new", "", "empty"], [1, 1, 1, 1, 0])
    assert starts == [EXISTS, 0, INVALID, INVALID, INVALID]
    assert store.batch_put_session_revoke(["new"]) == [0]


def test_who_put_first_keeps_the_key(store, memory):
    memory.fill(b"session")
    assert store.batch_put_session_start(["a"], [7]) == [0]
    store.batch_put_from_multi_buffer_ranges(["a"], [[memory.ptr]], [[7]], [[0]])
    assert store.put("a", b"put") == 0
    assert store.batch_put_session_end(["a"]) == [0]
    assert store.get("a") == b"put"


@pytest.mark.parametrize("offset, size", [(16, 1), (0, 17), (15, 2), ((1 << 64) - 1, 2)])
def test_ranges_beyond_the_end_are_refused_whole(store, memory, offset, size):
    memory.fill(b"1" * 16)
    assert store.batch_put_session_start(["a"], [16]) == [0]
    p = memory.ptr
    assert store.batch_put_from_multi_buffer_ranges(["a"], [[p, p]], [[4, size]], [[0, offset]]) == [INVALID]
    assert store.batch_put_session_end(["a"]) == [0]
    assert store.get("a") == bytes(16)
    memory.fill(b"2" * 64)
    assert store.batch_get_session_start(["a"]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[p, p]], [[4, size]], [[0, offset]]) == [INVALID]
    assert memory.bytes(0, 64) == b"2" * 64


def test_what_is_no_memory_spoils_its_key_only(store, memory):
    memory.fill(b"1" * 16)
    keys, p = ["a", "b"], memory.ptr
    assert store.batch_put_session_start(keys, [16, 16]) == [0, 0]
    assert store.batch_put_from_multi_buffer_ranges(keys, [[0], [p]], [[16], [16]], [[0], [0]]) == [INVALID, 16]
    assert store.batch_put_session_end(keys) == [0, 0]
    assert store.batch_get_session_start(keys) == [0, 0]
    assert store.batch_get_into_multi_buffer_ranges(keys, [[p, p], [p]], [[16], [16]], [[0], [0]]) == [INVALID, 16]


def test_a_session_whose_object_finds_no_room_stays_open(store):
    assert store.batch_put_session_start(["large"], [65 * MIB]) == [0]
    assert store.batch_put_session_end(["large"]) == [NO_ROOM]
    assert store.batch_put_session_revoke(["large"]) == [0]


def test_a_put_session_keeps_its_config(store, memory):
    config = ReplicateConfig()
    config.group_ids = ["g", "h"]
    assert store.batch_put_session_start(["a"], [1], config) == [INVALID]
    assert store.batch_put_session_start(["a", "b"], [1, 1], config) == [0, 0]
    config = ReplicateConfig()
    config.nof_replica_num = 1
    assert store.batch_put_session_start(["c"], [1], config) == [-1012]


# ---- Gets ----------------------------------------------------------------------------------------------------------


def test_a_get_session_reads_ranges_layer_by_layer(store, memory):
    data = pattern(8192)
    store.put_batch(["a", "b"], [data, data[:100]])
    keys, p = ["a", "none", "b"], memory.ptr
    assert store.batch_get_session_start(keys) == [0, NOT_FOUND, 0]
    got = store.batch_get_into_multi_buffer_ranges(
        keys, [[p, p + 5000], [p], [p + 10000]], [[100, 4096], [1], [60]], [[0, 4096], [0], [40]]
    )
    assert got == [4196, INVALID, 60]
    assert memory.bytes(0, 100) == data[:100]
    assert memory.bytes(5000, 4096) == data[4096:]
    assert memory.bytes(10000, 60) == data[40:100]
    assert store.batch_get_session_end(keys) == 0
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[p]], [[1]], [[0]]) == [INVALID]


def test_an_open_get_session_outlives_its_object(store, memory):
    data = pattern(MIB)
    store.put("a", data)
    assert store.batch_get_session_start(["a"]) == [0]
    assert store.remove("a", force=True) == 0
    for i in range(128):  # twice the segment
        assert store.put(f"other/{i}", bytes(MIB)) == 0
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[memory.ptr]], [[MIB]], [[0]]) == [MIB]
    assert memory.bytes(0, MIB) == data


def test_a_second_start_sees_the_newer_object(store, memory):
    store.put("a", b"old")
    assert store.batch_get_session_start(["a"]) == [0]
    store.upsert("a", b"new")
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[memory.ptr]], [[3]], [[0]]) == [3]
    assert memory.bytes(0, 3) == b"old"
    assert store.batch_get_session_start(["a"]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[memory.ptr]], [[3]], [[0]]) == [3]
    assert memory.bytes(0, 3) == b"new"


def test_sessions_end_with_close(master, memory):
    store = MooncakeDistributedStore()
    for _ in range(2):
        assert store.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
        store.put("a", b"1" * 16)
        ranges = [[memory.ptr]], [[16]], [[0]]
        assert store.batch_get_into_multi_buffer_ranges(["a"], *ranges) == [INVALID]
        assert store.batch_put_from_multi_buffer_ranges(["b"], *ranges) == [INVALID]
        assert store.batch_get_session_start(["a"]) == [0]
        assert store.batch_put_session_start(["b"], [16]) == [0]
        assert store.close() == 0
