"""Every call of the store on one set-up client: what it does and what it answers."""

import ctypes
import re
import urllib.request

import pytest
from conftest import HOST, LEASE_MS, MIB, Memory, eventually, pattern
from mooncake.store import ObjectDataType, ReplicaStatus, ReplicateConfig, SoftPinAction

NO_HANDLE, INVALID_KEY, INVALID, NOT_FOUND, HAS_LEASE, NOT_SUPPORTED = -200, -400, -600, -704, -706, -1012


def is_list_of_int(answer):
    return type(answer) is list and all(type(item) is int for item in answer)


# ---- Values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 4096, 65536, 65537, MIB + 3, 16 * MIB])
def test_get_gives_what_was_put(store, size):
    value = pattern(size)
    assert store.put("key", value) == 0
    assert store.get("key") == value
    assert store.get_size("key") == size
    assert store.is_exist("key") == 1


def test_a_missing_key_is_told_by_every_call(store, memory):
    assert store.get("none") == b""
    assert store.get_batch(["none"]) == [b""]
    assert store.get_buffer("none") is None
    assert store.batch_get_buffer(["none"]) == [None]
    assert store.get_into("none", memory.ptr, 10) == NOT_FOUND
    assert store.is_exist("none") == 0
    assert store.get_size("none") == NOT_FOUND
    assert store.remove("none") == NOT_FOUND
    assert store.get_replica_desc("none") == []


def test_a_taken_key_keeps_its_value(store):
    assert store.put("key", b"first") == 0
    assert store.put("key", b"other") == 0
    assert store.put("key", b"of another size") == 0
    assert store.get("key") == b"first"


def test_batches_mix_hits_and_misses(store):
    assert store.put_batch(["a", "b"], [b"1", b"22"]) == 0
    assert store.get_batch(["a", "none", "b"]) == [b"1", b"", b"22"]
    assert store.batch_is_exist(["a", "none", "b"]) == [1, 0, 1]
    assert [None if handle is None else bytes(handle) for handle in store.batch_get_buffer(["none", "b"])] == [
        None,
        b"22",
    ]


def test_batches_of_nothing_answer_nothing(store):
    assert store.batch_is_exist([]) == []
    assert store.get_batch([]) == []
    assert store.put_batch([], []) == 0
    assert store.batch_put_from([], [], []) == []
    assert store.batch_get_into([], [], []) == []
    assert store.batch_remove([]) == []
    assert store.get_into_ranges([], [], [], [], []) == []


def test_put_batch_answers_with_the_first_code(store):
    assert store.put_batch(["a", "", "b"], [b"1", b"2", b"3"]) == INVALID
    assert store.get_batch(["a", "b"]) == [b"1", b"3"]


def test_put_parts_joins(store):
    assert store.put_parts("key", b"head", memoryview(pattern(70000)), bytearray(b"tail")) == 0
    assert store.get("key") == b"head" + pattern(70000) + b"tail"
    assert store.put_parts("none") == INVALID
    assert store.put_parts("none", b"", b"") == INVALID
    assert store.put_parts("configured", b"a", b"b", config=ReplicateConfig()) == 0


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        (ctypes.c_uint16 * 2)(0x6261, 0x6463),
        memoryview(b"xabcdx")[1:5],
    ],
    ids=["bytearray", "memoryview", "ctypes", "slice"],
)
def test_any_contiguous_buffer_is_a_value(store, value):
    assert store.put("key", value) == 0
    assert store.get("key") == b"abcd"


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_either_order_are_values(store, order):
    numpy = pytest.importorskip("numpy")
    array = numpy.asarray(numpy.arange(12, dtype=numpy.float32).reshape(3, 4), order=order)
    assert store.put("key", array) == 0
    assert store.get("key") == array.tobytes(order="A")


def test_scattered_buffers_are_refused(store):
    with pytest.raises(BufferError):
        store.put("key", memoryview(b"abcd")[::2])
    assert store.is_exist("key") == 0


@pytest.mark.parametrize("size", [0, 1, 100])
def test_parts_are_copied_at_the_call(store, size):
    value = bytearray(pattern(size + 1))
    assert store.put("key", value) == 0
    value[:] = bytes(len(value))
    assert store.get("key") == pattern(size + 1)


# ---- Replacing -----------------------------------------------------------------------------------------------------


def test_upsert_replaces_with_any_size(store):
    for value in (b"first", b"other", b"longer than before", b"s", pattern(MIB)):
        assert store.upsert("key", value) == 0
        assert store.get("key") == value
        assert store.get_size("key") == len(value)


def test_every_upsert_replaces(store, memory):
    memory.fill(b"abcdefgh")
    store.put_batch(["a", "b"], [b"old", b"old"])
    assert store.upsert_parts("a", b"one", b"two") == 0
    assert store.get("a") == b"onetwo"
    assert store.upsert_batch(["a", "b", "c"], [b"1", b"2", b"3"]) == 0
    assert store.get_batch(["a", "b", "c"]) == [b"1", b"2", b"3"]
    assert store.upsert_from("a", memory.ptr, 3) == 0
    assert store.get("a") == b"abc"
    answer = store.batch_upsert_from(["a", "d"], [memory.ptr + 4, memory.ptr], [4, 8])
    assert answer == [0, 0] and is_list_of_int(answer)
    assert store.get_batch(["a", "d"]) == [b"efgh", b"abcdefgh"]


def test_a_handle_keeps_the_value_that_was_replaced(store):
    store.put("key", b"before")
    handle = store.get_buffer("key")
    assert store.upsert("key", b"after!") == 0
    assert (bytes(handle), store.get("key")) == (b"before", b"after!")


# ---- Addresses -----------------------------------------------------------------------------------------------------


def test_put_from_and_get_into_copy_at_addresses(store, memory):
    memory.fill(pattern(5000))
    assert store.put_from("key", memory.ptr, 5000) == 0
    assert store.put_from("key", memory.ptr + 1, 5000) == 0
    target = Memory(16384)
    target.fill(b"\xee" * 16384)
    assert store.get_into("key", target.ptr, 5000) == 5000
    assert target.bytes(0, 5000) == pattern(5000)
    assert store.get_into("key", target.ptr + 8192, 8192) == 5000
    assert target.bytes(8192, 8192) == pattern(5000) + b"\xee" * 3192


def test_too_small_a_buffer_is_refused_and_untouched(store):
    store.put("key", pattern(5000))
    target = Memory(8192)
    assert store.get_into("key", target.ptr, 4999) == INVALID
    assert target.bytes(0, 8192) == bytes(8192)


def test_batches_at_addresses_answer_each(store, memory):
    memory.fill(pattern(MIB))
    answer = store.batch_put_from(["a", "b", "c"], [memory.ptr, memory.ptr + 5000, memory.ptr + 9000], [5000, 4000, 1])
    assert answer == [0, 0, 0] and is_list_of_int(answer)
    assert store.batch_put_from(["a", "d"], (memory.ptr, memory.ptr), (10, 10)) == [0, 0]
    target = Memory(65536)
    answer = store.batch_get_into(
        ["a", "none", "c", "b"],
        [target.ptr, target.ptr + 8192, target.ptr + 16384, target.ptr + 20000],
        [5000, 4096, 4096, 3999],
    )
    assert answer == [5000, NOT_FOUND, 1, INVALID] and is_list_of_int(answer)
    assert target.bytes(0, 5000) == pattern(MIB)[:5000]
    assert target.bytes(16384, 1) == pattern(MIB)[9000:9001]


def test_many_pieces_make_one_object(store, memory):
    data = pattern(MIB)
    memory.fill(data)
    pieces = [[memory.ptr, memory.ptr + 4096, memory.ptr + 64], [memory.ptr + 777], [memory.ptr]]
    sizes = [[100, 4096, 1], [333], [0]]
    assert store.batch_put_from_multi_buffers(["m1", "m2", "m3"], pieces, sizes, ReplicateConfig()) == [0, 0, INVALID]
    want = data[:100] + data[4096:8192] + data[64:65]
    assert store.get_batch(["m1", "m2"]) == [want, data[777:1110]]
    target = Memory(65536)
    into = [[target.ptr, target.ptr + 1000, target.ptr + 10000], [target.ptr + 20000, target.ptr + 30000], [target.ptr]]
    answer = store.batch_get_into_multi_buffers(["m1", "m2", "none"], into, [[100, 4096, 1], [300, 100], [1]])
    assert answer == [4197, 333, NOT_FOUND] and is_list_of_int(answer)
    assert target.bytes(0, 100) + target.bytes(1000, 4096) + target.bytes(10000, 1) == want
    assert target.bytes(20000, 300) + target.bytes(30000, 33) == data[777:1110]
    assert store.batch_get_into_multi_buffers(["m1"], [[target.ptr]], [[4196]], False) == [INVALID]


def test_ranges_of_objects_go_to_places_in_buffers(store, memory):
    store.put_batch(["a", "b"], [pattern(100000, 1), pattern(1000, 2)])
    target = Memory(65536)
    answer = store.get_into_ranges(
        [memory.ptr, target.ptr],
        [["a", "none", "b"], ["b"]],
        [[[0, 100], [0], [200]], [[5]]],
        [[[5, 70000], [0], [999]], [[0]]],
        [[[50, 60], [10], [2]], [[1000]]],
    )
    assert answer == [[[50, 60], [NOT_FOUND], [INVALID]], [[1000]]]
    assert memory.bytes(0, 50) + memory.bytes(100, 60) == pattern(100000, 1)[5:55] + pattern(100000, 1)[70000:70060]
    assert target.bytes(5, 1000) == pattern(1000, 2)


def test_ranges_stay_within_a_registered_buffer(store, memory):
    store.put("a", b"1" * 16)
    p = memory.ptr
    assert store.register_buffer(p, 32) == 0
    answer = store.get_into_ranges([p, p + 8], [["a"], ["a"]], [[[0, 29, 28]], [[21, 20]]], [[[0] * 3], [[0] * 2]],
                                   [[[4, 4, 4]], [[4, 4]]])
    assert answer == [[[4, INVALID, 4]], [[INVALID, 4]]]
    assert memory.bytes(32, 8) == bytes(8)
    assert store.unregister_buffer(p) == 0
    assert store.get_into_ranges([p], [["a"]], [[[29]]], [[[0]]], [[[4]]]) == [[[4]]]


def test_ranges_whose_lists_differ_are_refused_as_many_as_asked(store, memory):
    store.put_batch(["a", "b"], [b"1" * 16, b"2" * 16])
    answer = store.get_into_ranges([memory.ptr], [["a", "b"]], [[[0], []]], [[[0, 1], []]], [[[], []]])
    assert answer == [[[INVALID, INVALID], []]]


def test_numpy_integers_are_addresses_and_sizes(store, memory):
    numpy = pytest.importorskip("numpy")
    memory.fill(b"abc")
    addresses = numpy.array([memory.ptr, memory.ptr + 1], dtype=numpy.uint64)
    assert store.batch_put_from(["a", "b"], addresses, numpy.array([3, 2])) == [0, 0]
    assert store.put_from("c", addresses[1], numpy.int64(1)) == 0
    assert store.get_batch(["a", "b", "c"]) == [b"abc", b"bc", b"b"]


def test_registration_is_a_book(store, memory):
    assert store.register_buffer(memory.ptr, memory.size) == 0
    assert store.register_buffer(memory.ptr, memory.size) == INVALID
    assert store.unregister_buffer(memory.ptr) == 0
    assert store.unregister_buffer(memory.ptr) == INVALID
    assert store.register_buffer(0, 0) == INVALID
    assert store.register_buffer(memory.ptr, 0) == INVALID


# ---- Handles -------------------------------------------------------------------------------------------------------


def test_a_handle_shows_the_bytes_where_they_lie(store):
    store.put("key", pattern(MIB))
    handle = store.get_buffer("key")
    view = memoryview(handle)
    assert (len(handle), handle.size(), len(view), view.itemsize, view.contiguous) == (MIB, MIB, MIB, 1, True)
    assert view.readonly
    assert view == pattern(MIB)
    assert ctypes.string_at(handle.ptr(), MIB) == pattern(MIB)


def test_a_handle_cannot_be_written_through(store):
    store.put("key", b"value")
    with pytest.raises(TypeError):
        memoryview(store.get_buffer("key"))[0] = 0
    with pytest.raises((BufferError, TypeError)):
        ctypes.c_char.from_buffer(store.get_buffer("key"))


def test_views_of_a_handle_outlive_it_and_its_object(store):
    store.put("key", pattern(MIB))
    view = memoryview(store.get_buffer("key"))[10:20]
    assert store.remove("key", force=True) == 0
    assert store.put("other", pattern(48 * MIB, "over")) == 0
    assert bytes(view) == pattern(MIB)[10:20]


def test_frombuffer_of_numpy_reads_a_handle(store):
    numpy = pytest.importorskip("numpy")
    store.put("key", numpy.arange(1000, dtype=numpy.int32))
    array = numpy.frombuffer(store.get_buffer("key"), dtype=numpy.int32, offset=400)
    assert array.tolist() == list(range(100, 1000))


# ---- Keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["a\0b", "a\nb", "größe-鍵", "🔑", " ", "k" * 1024, "k" * 4096],
    ids=["NUL", "newline", "UTF-8", "astral", "space", "1 KiB", "4 KiB"],
)
def test_any_text_is_a_key(store, key):
    assert store.put(key, key.encode()) == 0
    assert store.get(key) == key.encode()
    assert store.batch_is_exist([key, key + "?"])[0] == 1
    assert store.remove(key, force=True) == 0


def test_bytes_are_keys_too(store):
    assert store.put(b"\xff\x00raw", b"1") == 0
    assert store.get(b"\xff\x00raw") == b"1"
    assert store.put("größe", b"2") == 0
    assert store.get_batch(["größe".encode(), b"\xff\x00raw"]) == [b"2", b"1"]


@pytest.mark.parametrize(
    "key, code",
    [("", INVALID), ("k" * 4097, INVALID_KEY), ("k" * 65536, INVALID_KEY), (b"\xff" * 65536, INVALID_KEY)],
    ids=["empty", "4 KiB + 1", "64 KiB", "64 KiB, not UTF-8"],
)
def test_a_key_that_is_none_is_refused_by_every_call(store, memory, key, code):
    p = memory.ptr
    assert (store.put(key, b"v"), store.upsert(key, b"v"), store.put_from(key, p, 1)) == (code, code, code)
    assert store.batch_put_from(["good", key], [p, p], [1, 1]) == [0, code]
    assert store.batch_put_session_start([key], [1]) == [code]
    assert (store.get(key), store.get_buffer(key)) == (b"", None)
    assert store.batch_is_exist(["good", key]) == [1, code]
    assert (store.is_exist(key), store.get_size(key), store.get_into(key, p, 10)) == (code, code, code)
    assert store.batch_get_session_start([key]) == [code]
    assert (store.remove(key), store.batch_remove([key])) == (code, [code])


# ---- Removal -------------------------------------------------------------------------------------------------------


def test_remove_waits_for_the_lease_unless_forced(store):
    for read in (store.get, store.is_exist, store.get_buffer, lambda key: store.batch_is_exist([key])):
        store.put("key", b"value")
        read("key")
        assert store.remove("key") == HAS_LEASE
        assert store.get("key") == b"value"
        assert store.remove("key", force=True) == 0
        assert store.is_exist("key") == 0


def test_remove_works_once_the_lease_is_over(store):
    store.put("key", b"value")
    store.get("key")
    assert store.remove("key") == HAS_LEASE
    answers = []
    eventually(lambda: answers.append(store.remove("key")) or answers[-1] == 0, timeout_s=10 + LEASE_MS / 1000)
    assert set(answers) <= {HAS_LEASE, 0}


def test_what_nobody_read_can_be_removed_and_put_anew(store):
    store.put("key", b"first")
    assert store.remove("key") == 0
    assert store.put("key", b"second") == 0
    assert store.get("key") == b"second"


def test_batch_remove_answers_each(store):
    store.put_batch(["a", "b"], [b"x", b"y"])
    store.get("b")
    answer = store.batch_remove(["a", "none", "b"])
    assert answer == [0, NOT_FOUND, HAS_LEASE] and is_list_of_int(answer)
    assert store.batch_remove(["b"], True) == [0]


def test_remove_by_regex_counts(store):
    store.put_batch([f"rx/{i:02d}" for i in range(20)], [b"v"] * 20)
    assert store.remove_by_regex("^rx/0") == 10
    assert store.remove_by_regex("^rx/0") == 0
    assert store.remove_by_regex("x/1[0-4]$") == 5
    assert store.remove_by_regex("rx/[") == INVALID
    assert sum(store.batch_is_exist([f"rx/{i:02d}" for i in range(20)])) == 5
    assert store.remove_by_regex("rx", force=True) == 5


def test_remove_all_leaves_what_is_leased_unless_forced(store):
    store.put_batch(["a", "b", "c"], [b"x", b"y", b"z"])
    store.get("a")
    assert store.remove_all() == 2
    assert store.remove_all() == 0
    assert store.remove_all(force=True) == 1
    assert store.remove_all(force=True) == 0


# ---- Room ----------------------------------------------------------------------------------------------------------


def test_what_no_segment_holds_is_refused_before_anything_goes(store):
    store.put("other", b"stays")
    assert store.put("big", Memory(65 * MIB).map) == NO_HANDLE
    assert store.put_from("big", 1 << 32, 1 << 40) == NO_HANDLE
    assert store.batch_is_exist(["big", "other"]) == [0, 1]


@pytest.mark.parametrize("size", [1 << 31, (1 << 32) + 1])
def test_sizes_beyond_32_bits_are_refused_without_a_touch(store, size):
    """A size cut to 32 bits somewhere would be 1 here, or less than 0. Nothing is mapped where the bytes are."""
    store.put("other", b"stays")
    nowhere, one = 1 << 40, Memory(1)
    assert store.put_from("big", nowhere, size) == NO_HANDLE
    assert store.upsert_from("other", nowhere, size) == NO_HANDLE
    assert store.batch_put_from(["big", "small"], [nowhere, one.ptr], [size, 1]) == [NO_HANDLE, 0]
    assert store.batch_put_from_multi_buffers(["big"], [[nowhere, nowhere]], [[size, 1]]) == [NO_HANDLE]
    assert store.batch_is_exist(["big", "other", "small"]) == [0, 1, 1]
    assert store.get("other") == b"stays"


def test_a_full_store_evicts_and_never_fails(store):
    values = [pattern(MIB, i) for i in range(8)]
    assert [store.put(f"full/{i}", values[i % 8]) for i in range(200)] == [0] * 200
    present = [i for i in range(200) if store.is_exist(f"full/{i}") == 1]
    assert len(present) >= 32 and 199 in present
    assert all(store.get(f"full/{i}") == values[i % 8] for i in present)


# ---- How an object is kept -----------------------------------------------------------------------------------------


def test_config_has_its_defaults():
    config = ReplicateConfig()
    assert (config.replica_num, config.nof_replica_num, config.dfs_replica_num) == (1, 0, 0)
    assert (config.preferred_segment, config.preferred_segments, config.preferred_nof_segments) == ("", [], [])
    assert (config.soft_pin_action, config.soft_pin_ttl_ms) == (SoftPinAction.PRESERVE, None)
    assert (config.with_hard_pin, config.prefer_alloc_in_same_node) == (False, False)
    assert (config.data_type, config.group_ids) == (ObjectDataType.UNKNOWN, None)


def test_config_takes_and_shows_its_fields():
    config = ReplicateConfig()
    config.replica_num = 3
    config.preferred_segments = ["a:1", "b:2"]
    config.preferred_segment = "c:3"
    config.group_ids = ["g"]
    config.soft_pin_action = SoftPinAction.ENABLE
    config.soft_pin_ttl_ms = 5000
    config.with_hard_pin = True
    config.data_type = ObjectDataType.TENSOR
    text = str(config)
    for part in (
        "replica_num: 3",
        "[a:1, b:2]",
        "c:3",
        "group_ids: [g]",
        "ENABLE",
        "5000",
        "with_hard_pin: true",
        "TENSOR",
    ):
        assert part in text
    config.soft_pin_ttl_ms = config.group_ids = None
    assert (config.soft_pin_ttl_ms, config.group_ids) == (None, None)
    with pytest.raises(TypeError):
        config.replica_num = "3"


def test_config_goes_with_every_put(store, memory):
    config = ReplicateConfig()
    config.replica_num = 3  # there is one segment: best effort
    config.preferred_segment = store.get_hostname()
    config.group_ids = ["g"]
    config.data_type = ObjectDataType.KVCACHE
    config.soft_pin_action = SoftPinAction.ENABLE
    memory.fill(b"abc")
    assert store.put("a", b"1", config) == 0
    assert store.put("b", b"1", config=config) == 0
    assert store.put_from("c", memory.ptr, 3, config) == 0
    assert store.put_batch(["d"], [b"1"], config) == 0
    assert store.batch_put_from(["e"], [memory.ptr], [3], config) == [0]
    assert store.batch_put_from_multi_buffers(["f"], [[memory.ptr]], [[3]], config) == [0]
    assert store.put("g", b"1", None) == 0
    assert store.batch_is_exist(list("abcdefg")) == [1] * 7


def soft_pinned(master):
    with urllib.request.urlopen(f"http://{HOST}:{master.metrics_port}/metrics") as answer:
        return int(re.search(rb"^master_soft_pin_key_count (\d+)", answer.read(), re.M).group(1))


@pytest.mark.parametrize("size", [100, 200_000], ids=["in a message", "through shared memory"])
def test_an_upsert_keeps_begins_or_ends_a_soft_pin_as_its_config_says(master, store, size):
    def config(action, ttl_ms=None):
        made = ReplicateConfig()
        made.soft_pin_action, made.soft_pin_ttl_ms = action, ttl_ms
        return made

    value = pattern(size)
    assert store.put("k", value, config(SoftPinAction.ENABLE)) == 0
    assert soft_pinned(master) == 1
    assert store.upsert("k", value) == 0
    assert store.upsert("k", value, config(SoftPinAction.PRESERVE)) == 0
    assert soft_pinned(master) == 1
    assert store.upsert("k", value, config(SoftPinAction.DISABLE)) == 0
    assert soft_pinned(master) == 0
    assert store.upsert("k", value) == 0
    assert soft_pinned(master) == 0
    assert store.upsert("k", value, config(SoftPinAction.ENABLE, 3_600_000)) == 0
    assert soft_pinned(master) == 1
    assert store.upsert("k", value, config(SoftPinAction.ENABLE, 0)) == 0  # an object like any other
    assert soft_pinned(master) == 0
    for too_long in (86_400_001, 2**64 - 1):
        assert store.upsert("k", value, config(SoftPinAction.ENABLE, too_long)) == INVALID
        assert store.put("another", value, config(SoftPinAction.ENABLE, too_long)) == INVALID
    assert store.upsert("k", value, config(SoftPinAction.ENABLE, 1)) == 0
    eventually(lambda: soft_pinned(master) == 0)
    assert store.get("k") == value
    assert store.is_exist("another") == 0


def test_config_that_cannot_be_kept_is_refused(store):
    config = ReplicateConfig()
    config.replica_num = 0
    assert store.put("key", b"v", config) == INVALID
    config.replica_num, config.nof_replica_num = 1, 1
    assert store.put("key", b"v", config) == NOT_SUPPORTED
    assert store.batch_put_from(["key"], [1], [1], config) == [NOT_SUPPORTED]
    assert store.is_exist("key") == 0


def test_a_hard_pin_outlives_a_flood(store):
    config = ReplicateConfig()
    config.with_hard_pin = True
    assert store.put("pinned", pattern(MIB, "pinned"), config) == 0
    for i in range(100):
        assert store.put(f"flood/{i}", pattern(MIB)) == 0
    assert store.get("pinned") == pattern(MIB, "pinned")
    assert store.remove("pinned", force=True) == 0


def test_descriptors_say_where_an_object_lies(store):
    store.put_batch(["a", "b"], [b"123", b"4567"])
    (replica,) = store.get_replica_desc("a")
    assert replica.is_memory_replica() and not replica.is_disk_replica() and not replica.is_local_disk_replica()
    assert replica.status == ReplicaStatus.COMPLETE
    place = replica.get_memory_descriptor().buffer_descriptor
    assert (place.size, place.transport_endpoint) == (3, store.get_hostname())
    by_key = store.batch_get_replica_desc(["a", "none", "b"])
    assert {
        key: [r.get_memory_descriptor().buffer_descriptor.size for r in found] for key, found in by_key.items()
    } == {"a": [3], "b": [4]}


def test_replicas_lie_on_different_segments(open_store):
    first, second = open_store(), open_store()
    config = ReplicateConfig()
    config.replica_num = 2
    assert first.put("twice", pattern(MIB), config) == 0
    where = {r.get_memory_descriptor().buffer_descriptor.transport_endpoint for r in first.get_replica_desc("twice")}
    assert where == {first.get_hostname(), second.get_hostname()}
    config = ReplicateConfig()
    config.preferred_segment = second.get_hostname()
    assert first.put("there", b"v", config) == 0
    (replica,) = first.get_replica_desc("there")
    assert replica.get_memory_descriptor().buffer_descriptor.transport_endpoint == second.get_hostname()


# ---- The client ----------------------------------------------------------------------------------------------------


def test_a_store_knows_its_name_and_health(store):
    name, _, port = store.get_hostname().rpartition(":")
    assert name == HOST and port.isdigit()
    assert store.health_check() == 0


def test_reads_on_one_host_are_no_message(store, memory):
    store.put("key", pattern(MIB))
    before = store.counters()
    assert store.get("key") == pattern(MIB)
    assert store.get_into("key", memory.ptr, MIB) == MIB
    assert store.batch_is_exist(["key", "none"]) == [1, 0]
    after = store.counters()
    assert after["shared_read_bytes"] - before["shared_read_bytes"] == 2 * MIB
    assert (after["unix"], after["tcp"]) == (before["unix"], before["tcp"])
    assert after["tcp"]["bytes_received"] == 0
