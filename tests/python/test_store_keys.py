"""Who has a key: codes of removal, later puts, and puts of one key at the same time."""

import re
import threading
import time
import urllib.request

import pytest
from conftest import HOST, MIB, TIMEOUT_S, eventually, pattern

NOT_FOUND, HAS_LEASE = -704, -706
LONG_LEASE_MS = 3000


@pytest.fixture(scope="module")
def master(start_master):
    return start_master(lease_ms=LONG_LEASE_MS)


def used_bytes(master):
    """What the master has given out, by its own account."""
    with urllib.request.urlopen(f"http://{HOST}:{master.metrics_port}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    return int(float(re.search(r"^master_allocated_bytes(?:\{.*\})? (\S+)$", text, re.MULTILINE)[1]))


def at_once(call):
    """Its answer, which must not have waited for a lease."""
    began = time.monotonic()
    answer = call()
    assert time.monotonic() - began < LONG_LEASE_MS / 2 / 1000
    return answer


def test_removal_of_what_was_read_is_refused_at_once_and_forced_at_once(store):
    assert store.put("key", b"value") == 0
    assert store.get("key") == b"value"
    assert at_once(lambda: store.remove("key")) == HAS_LEASE
    assert at_once(lambda: store.remove("key", force=True)) == 0
    assert store.remove("key") == NOT_FOUND
    assert store.remove("never") == NOT_FOUND
    assert store.remove("never", force=True) == NOT_FOUND
    assert store.put("key", b"again") == 0
    assert store.is_exist("key") == 1
    assert at_once(lambda: store.remove("key")) == HAS_LEASE
    assert store.get("key") == b"again"


def test_a_lease_ends_on_time(start_master, open_store):
    """Who waits for the time that the master was told can remove then, at the first try."""
    store = open_store(address=start_master(lease_ms=200).address)
    for i in range(20):
        assert store.put("key", bytes([i])) == 0
        assert store.get("key") == bytes([i])
        assert store.put("key", b"later") == 0
        over = time.monotonic() + 0.2
        while (left := over - time.monotonic()) > 0:
            threading.Event().wait(left)
        assert store.remove("key") == 0


def test_the_first_put_of_a_key_stays(store, memory):
    memory.fill(b"third")
    assert store.put("key", b"first") == 0
    assert store.put("key", b"second, and longer") == 0
    assert store.put_from("key", memory.ptr, 5) == 0
    assert store.put_batch(["key", "new"], [b"fourth", b"n"]) == 0
    assert store.batch_put_from(["key"], [memory.ptr], [5]) == [0]
    assert store.get_batch(["key", "new"]) == [b"first", b"n"]
    assert store.get_size("key") == 5


def test_a_key_twice_in_one_batch_has_the_first_value(store, memory):
    memory.fill(b"onetwo")
    assert store.put_batch(["a", "a", "b", "a"], [b"one", b"two", b"b", b"three"]) == 0
    assert store.batch_put_from(["c", "c"], [memory.ptr, memory.ptr + 3], [3, 3]) == [0, 0]
    assert store.get_batch(["a", "b", "c"]) == [b"one", b"b", b"one"]
    assert store.remove_all(force=True) == 3


@pytest.mark.parametrize("size", [300, 100_000], ids=["in a message", "in shared memory"])
def test_puts_of_one_key_at_once_leave_one_whole_value(master, store, size):
    """And no room is lost to the copies that came late."""
    threads, rounds = 8, 200
    values = [pattern(size, number) for number in range(threads)]
    empty = used_bytes(master)
    assert store.put("one", values[0]) == 0
    one = used_bytes(master) - empty
    assert one >= size
    barrier, answers = threading.Barrier(threads), [[] for _ in range(threads)]

    def work(number):
        for i in range(rounds):
            barrier.wait(TIMEOUT_S)
            answers[number].append(store.put(f"same/{i}", values[number]))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(TIMEOUT_S)
    assert answers == [[0] * rounds] * threads
    keys = [f"same/{i}" for i in range(rounds)]
    assert all(value in values for value in store.get_batch(keys))
    assert rounds * size < 64 * MIB  # so that nothing was evicted
    eventually(lambda: used_bytes(master) - empty == (1 + rounds) * one)
