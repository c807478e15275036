"""A full store whose objects are all asked for again and again: the leases that this renews keep nothing from being
evicted, so puts go on; what somebody holds stays as it is. NMC_SOAK makes it a minute."""

import collections
import os
import random
import re
import threading
import time
import urllib.request

from conftest import MIB, pattern

SECONDS = 60 if os.environ.get("NMC_SOAK") else 6
PUT_EVERY_S, PROBE_EVERY_S, READ_EVERY_S = 0.1, 1, 0.05
HELD_AT_ONCE = 20
FIRST_KEYS = [f"key/{i}" for i in range(64)]


def value_of(key):
    return pattern(MIB, key)


class Beats:
    """Calls on threads of their own, at a fixed rate, until a time; one that fails ends them all."""

    def __init__(self, seconds):
        self.end, self.over, self.failures, self.threads = time.monotonic() + seconds, threading.Event(), [], []

    def call(self, every_s, act):
        def run():
            beat = time.monotonic()
            while beat < self.end and not self.over.is_set():
                try:
                    act()
                except BaseException as failure:
                    self.failures.append(failure)
                    self.over.set()
                beat += every_s
                self.over.wait(max(0, min(beat, self.end) - time.monotonic()))

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def wait(self):
        for thread in self.threads:
            thread.join()
        for failure in self.failures:
            raise failure


def metrics_of(master):
    with urllib.request.urlopen(f"http://127.0.0.1:{master.metrics_port}/metrics") as answer:
        return {name: float(value) for name, value in re.findall(r"^([a-z_]+) (\S+)$", answer.read().decode(), re.M)}


def test_probes_of_all_keys_let_puts_and_held_objects_be(start_master, open_store):
    master = start_master("--eviction_high_watermark_ratio=0.8", lease_ms=5000)
    owner = open_store(segment=64 * MIB, address=master.address)
    keys = list(FIRST_KEYS)
    assert [owner.put(key, value_of(key)) for key in keys] == [0] * len(keys)
    before = metrics_of(master)

    # Those that are asked for first would be the first to go.
    held_throughout = {key: owner.get_buffer(key) for key in keys[:3]}
    held, rng = collections.deque(), random.Random(1)
    counted = collections.Counter()

    def probe():
        answers = owner.batch_is_exist(list(keys))
        assert set(answers) <= {0, 1} and 50 < sum(answers) <= 64
        counted["probes"] += 1

    def put():
        key = f"new/{len(keys)}"
        assert owner.put(key, value_of(key)) == 0
        keys.append(key)
        counted["puts"] += 1

    def let_go():
        key, handle = held.popleft()
        assert bytes(handle) == value_of(key), f"{key} changed in the hand of its reader"

    def read():
        key = rng.choice(keys)
        handle = owner.get_buffer(key)
        counted["misses" if handle is None else "hits"] += 1
        if handle is not None:
            held.append((key, handle))
        if len(held) > HELD_AT_ONCE:
            let_go()

    beats = Beats(SECONDS)
    beats.call(PROBE_EVERY_S, probe)
    beats.call(PUT_EVERY_S, put)
    beats.call(READ_EVERY_S, read)
    beats.wait()
    while held:
        let_go()
    for key, handle in held_throughout.items():
        assert owner.is_exist(key) == 1 and bytes(handle) == value_of(key)

    assert counted["probes"] >= SECONDS - 1 and counted["puts"] >= 5 * SECONDS and counted["hits"] > 0, counted
    after = metrics_of(master)
    grew = {name: value - before[name] for name, value in after.items()}
    assert grew["master_put_start_alloc_failures_total"] == 0
    # Searches, what they found, and what they passed over since somebody held it: three numbers.
    assert grew["master_evicted_key_count"] == counted["puts"]
    assert grew["master_attempted_evictions_total"] == grew["master_successful_evictions_total"] >= counted["puts"]
    assert grew["nano_mooncake_evict_skipped_pinned_total"] >= len(held_throughout)
