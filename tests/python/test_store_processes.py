"""Several processes on one master, several threads on one store, and the lives and deaths of both."""

import multiprocessing
import os
import signal
import threading

import pytest
from conftest import HOST, MIB, TIMEOUT_S, eventually, pattern, run_python

SPAWN = multiprocessing.get_context("spawn")


def serve(link, address, segment):
    """In a process of its own: a store that does what its parent asks, until the link closes."""
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    link.send(store.setup(HOST, "P2PHANDSHAKE", segment, 16 * MIB, "tcp", "", address))
    try:
        while True:
            name, arguments, keywords = link.recv()
            link.send(getattr(store, name)(*arguments, **keywords))
    except EOFError:
        store.close()


class Peer:
    """A store in another process; calls go through."""

    def __init__(self, address, segment):
        self._link, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, address, segment), daemon=True)
        self.process.start()
        theirs.close()
        assert self._answer() == 0

    def _answer(self):
        assert self._link.poll(TIMEOUT_S), "no answer"
        return self._link.recv()

    def __getattr__(self, name):
        def call(*arguments, **keywords):
            self._link.send((name, arguments, keywords))
            return self._answer()

        return call

    def end(self):
        self._link.close()
        self.process.join(TIMEOUT_S)
        return self.process.exitcode


@pytest.fixture
def start_peer(master):
    started = []

    def start(segment=64 * MIB, address=None):
        started.append(Peer(address or master.address, segment))
        return started[-1]

    yield start
    for peer in started:
        if peer.process.is_alive():
            assert peer.end() == 0


# ---- Processes -----------------------------------------------------------------------------------------------------


def test_what_one_process_puts_another_reads_without_a_message(start_peer, open_store, memory):
    owner, reader = start_peer(), open_store(segment=0)
    values = {f"key/{i}": pattern(300000, i) for i in range(10)}
    assert [owner.put(key, value) for key, value in values.items()] == [0] * 10
    before = reader.counters()
    assert reader.get_batch(list(values)) == list(values.values())
    targets = [memory.ptr + i * 300032 for i in range(10)]
    assert reader.batch_get_into(list(values), targets, [300032] * 10) == [300000] * 10
    assert all(memory.bytes(i * 300032, 300000) == pattern(300000, i) for i in range(10))
    after = reader.counters()
    assert after["tcp"] == {"messages": 0, "bytes_sent": 0, "bytes_received": 0}
    assert after["unix"] == before["unix"]
    assert after["shared_read_bytes"] - before["shared_read_bytes"] == 2 * 10 * 300000


def test_a_process_without_memory_puts_into_anothers(start_peer, open_store, memory):
    owner, writer = start_peer(), open_store(segment=0)
    memory.fill(pattern(MIB))
    assert writer.batch_put_from(["back/0", "back/1"], [memory.ptr, memory.ptr + 9], [MIB, 77]) == [0, 0]
    assert owner.get("back/0") == pattern(MIB)
    assert owner.get("back/1") == pattern(MIB)[9:86]
    assert owner.put("back/0", b"other") == 0
    assert writer.get("back/0") == pattern(MIB)


def test_without_any_memory_there_is_no_room(start_master, open_store):
    store = open_store(segment=0, address=start_master().address)
    assert store.put("key", b"v") == -200
    assert store.get("key") == b""


def test_objects_go_with_the_segment_of_a_store_that_closes(start_peer, open_store):
    owner, reader = start_peer(), open_store(segment=0)
    assert owner.put("gone", pattern(MIB)) == 0
    assert reader.is_exist("gone") == 1
    assert owner.end() == 0
    eventually(lambda: reader.is_exist("gone") == 0)
    assert reader.get("gone") == b""


def test_objects_go_with_an_owner_that_is_killed(start_peer, open_store):
    owner, reader = start_peer(), open_store(segment=0)
    assert owner.put("gone", pattern(MIB)) == 0
    handle = reader.get_buffer("gone")
    owner.process.kill()
    owner.process.join(TIMEOUT_S)
    eventually(lambda: reader.is_exist("gone") == 0)
    assert bytes(handle) == pattern(MIB)


def test_over_tcp_everything_works_and_nothing_is_shared(master, open_store):
    owner = open_store()
    owner.put("there", pattern(MIB, 1))
    code = """
import ctypes, sys
sys.path.insert(0, sys.argv[2])
from conftest import pattern, Memory
from mooncake.store import MooncakeDistributedStore
s = MooncakeDistributedStore()
assert s.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1]) == 0
value, memory = pattern(1 << 20, 1), Memory(4 << 20)
assert s.get("there") == value and s.is_exist("there") == 1 and s.get_size("there") == 1 << 20
assert s.get_into("there", memory.ptr, memory.size) == 1 << 20 and memory.bytes(0, 1 << 20) == value
assert bytes(s.get_buffer("there")) == value
assert s.get_into_ranges([memory.ptr], [["there"]], [[[0, 5]]], [[[7, 100]]], [[[5, 9]]]) == [[[5, 9]]]
assert memory.bytes(0, 14) == value[7:12] + value[100:109]
halves = [[memory.ptr, memory.ptr + (1 << 20)]] * 2, [[1 << 19] * 2] * 2
assert s.batch_get_into_multi_buffers(["there", "none"], *halves) == [1 << 20, -704]
assert s.put("back", value) == 0 and s.put_parts("parts", b"ab", b"cd") == 0 and s.upsert("parts", b"xyz") == 0
assert s.batch_is_exist(["back", "parts", "none"]) == [1, 1, 0]
assert s.remove("parts", force=True) == 0 and s.health_check() == 0
c = s.counters()
assert c["shared_reads"] == c["shared_writes"] == c["unix"]["messages"] == 0, c
assert c["tcp"]["bytes_received"] >= 4 << 20 and c["tcp"]["bytes_sent"] >= 1 << 20, c
s.close()
"""
    run_python(code, master.address, os.path.dirname(__file__), environment={"NANO_MOONCAKE_STORE_TRANSPORT": "tcp"})
    assert owner.get("back") == pattern(MIB, 1)


# ---- Threads -------------------------------------------------------------------------------------------------------


def in_threads(count, work):
    """Runs work(number) in threads, begun together; raises what any of them raised."""
    barrier, errors = threading.Barrier(count), []

    def run(number):
        try:
            barrier.wait(TIMEOUT_S)
            work(number)
        except BaseException as error:  # noqa: BLE001 - a failed assertion is one
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_many_threads_on_one_store_get_right_answers(store, memory):
    def work(number):
        at = memory.ptr + number * 400000
        for i in range(40):
            key, value = f"th/{number}/{i}", pattern(50000 + i, f"{number}/{i}")
            assert store.put(key, value) == 0
            assert store.get(key) == value
            assert store.get_into(key, at, 400000) == len(value)
            assert memory.bytes(number * 400000, len(value)) == value
            assert store.batch_is_exist([key, key + "?"]) == [1, 0]
            assert bytes(store.get_buffer(key)) == value

    in_threads(10, work)


def test_many_threads_putting_one_key_agree_on_a_whole_value(store):
    values = [pattern(100000, number) for number in range(8)]
    for i in range(20):
        codes = [None] * 8

        def work(number, key=f"same/{i}", codes=codes):
            codes[number] = store.put(key, values[number])

        in_threads(8, work)
        assert codes == [0] * 8
        assert store.get(f"same/{i}") in values


@pytest.fixture
def stoppable(start_master, open_store):
    """A master that a test may stop in its tracks, and a store of it."""
    master = start_master()
    yield master, open_store(address=master.address)
    master.signal(signal.SIGCONT)


def begin(call):
    """Runs it in a thread: (the thread, its answers)."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def sleeps(thread):
    """Whether the kernel says that the thread waits."""
    with open(f"/proc/self/task/{thread.native_id}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "S"


def test_a_call_that_waits_lets_other_threads_run_and_close_waits_for_it(stoppable):
    master, store = stoppable
    store.put("key", b"value")
    master.pause()
    value = pattern(MIB)
    putting, codes = begin(lambda: store.put("new", value))
    looks = iter([False] * 5 + [True])  # not only for Python's lock, which it gets between the looks
    eventually(lambda: sleeps(putting) and next(looks))
    assert store.get("key") == b"value"  # and what is in shared memory needs no master
    closing, closed = begin(store.close)
    eventually(lambda: store.get("key") == b"")  # closed for new calls
    assert putting.is_alive() and closing.is_alive()
    master.signal(signal.SIGCONT)
    putting.join(TIMEOUT_S)
    closing.join(TIMEOUT_S)
    assert (codes, closed) == ([0], [0])


def test_a_read_that_asks_the_disk_lets_other_threads_run(start_master, open_store, memory, tmp_path):
    master = start_master(f"--disk-dir={tmp_path}", "--disk-bytes=64MiB")
    store = open_store(address=master.address)
    assert store.put("key", b"value") == 0
    reads = {
        "get": (lambda: store.get("absent"), b""),
        "get_buffer": (lambda: store.get_buffer("absent"), None),
        "get_into": (lambda: store.get_into("absent", memory.ptr, 5), -704),
        "is_exist": (lambda: store.is_exist("absent"), 0),
        "get_size": (lambda: store.get_size("absent"), -704),
    }
    for name, (read, expected) in reads.items():
        master.pause()
        reading, answers = begin(read)
        looks = iter([False] * 5 + [True])
        eventually(lambda: sleeps(reading) and next(looks))
        assert reading.is_alive() and store.get("key") == b"value", name
        # Did the reader keep Python's lock, this came only when it had given up, without this answer.
        master.signal(signal.SIGCONT)
        reading.join(TIMEOUT_S)
        assert answers == [expected], name


def test_health_is_told_without_a_master(start_master, open_store):
    master = start_master()
    store = open_store(address=master.address)
    store.put("key", b"value")
    master.signal(signal.SIGKILL)
    master.wait()
    assert store.health_check() == 2
    assert store.put("new", b"v") < 0
    assert store.get("key") == b"value"
    master.start()
    eventually(lambda: store.health_check() == 0)
    eventually(lambda: store.put("new", b"v") == 0)
    assert store.get_batch(["key", "new"]) == [b"value", b"v"]


def test_close_takes_milliseconds(open_store):
    store = open_store()
    store.put("key", pattern(MIB))
    closing, closed = begin(store.close)
    closing.join(0.5)
    assert closed == [0]
