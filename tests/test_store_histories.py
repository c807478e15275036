"""Random histories: eight processes put, replace, read, probe and remove at once, in a store that is too small for it
all, and one of them over TCP. Every read returns a value that was put under its key and not superseded before the read
began; keys that nobody may evict or remove are always found. The judge itself is shown what it has to find.

NMC_HISTORY_OPERATIONS and NMC_HISTORY_SEED choose the operations of each process, and which."""

import os
import pathlib

import pytest
from store_history import Operation, find_faults, read_log
from store_processes import MIB, SOAK, eventually, running_host

OPERATIONS = int(os.environ.get("NMC_HISTORY_OPERATIONS", 200_000 if SOAK else 6000))
SEED = int(os.environ.get("NMC_HISTORY_SEED", 1))
PROCESSES = 8
KEPT = ("pinned/",)
RANGES = (
    "range pinned/ 24 8000 pPuUgGvesE hard",   # never evicted, never removed
    "range churn/ 600 40000 pPuUgGveEsxr",     # more than there is room for, small ones mostly
    "range churn/ 600 40000 puggGve",
    "range hot/ 3 100000 puggveExr",           # all at a few large ones
)


@pytest.fixture
def host(bin_dir, tmp_path):
    with running_host(bin_dir, tmp_path, "--default_kv_lease_ttl=5") as running:
        yield running


def test_two_who_put_one_key_leave_one_of_their_values_and_a_reader_always_finds_one(host):
    """500 rounds of two replacing puts at once, one small and one that goes through shared memory."""
    owner = host.start_client("owner:1", 16 * MIB)
    writers = [host.start_client(f"writer-{i}:1") for i in range(2)]
    reader = host.start_client("reader:1")
    assert owner.say("put one 1 5000") == "0"
    there = {1}
    for round_number in range(500):
        new = [2 + 2 * round_number, 3 + 2 * round_number]
        for writer, number, size in zip(writers, new, (5000, 200_000)):
            writer.send(f"put one {number} {size} replace")
        for _ in range(3):
            code, number = reader.say("get one").split()
            assert code == "0" and int(number) in there | set(new)
        assert [writer.answer() for writer in writers] == ["0", "0"]
        code, number = reader.say("get one").split()
        assert code == "0" and int(number) in new
        there = {int(number)}
    host.end()


def read_history(paths):
    operations, wrong = [], []
    for path in paths:
        those, faults = read_log(path, path.name)
        operations += those
        wrong += faults
    return operations, wrong


def test_every_read_is_of_a_value_that_was_there(host):
    clients = [host.start_client(f"owner-{i}:1", 3 * MIB) for i in range(2)]
    clients += [host.start_client(f"client-{i}:1") for i in range(PROCESSES - 3)]
    clients.append(host.start_client("remote:1", 0, "--tcp", server=host.master.address))
    logs = []
    for number, client in enumerate(clients, SEED * PROCESSES):
        for line in RANGES:
            client.say(line)
        logs.append(pathlib.Path(host.logs / f"history-{number}"))
        client.say(f"work {number} {OPERATIONS} {logs[-1]}")
    done = [int(client.say("wait", timeout_s=3600)) for client in clients]
    assert done == [OPERATIONS] * PROCESSES
    operations, wrong = read_history(logs)
    assert not wrong, wrong[:10]
    faults = find_faults(operations, KEPT)
    assert not faults, "\n".join(faults[:20])
    # That it was the history it was meant to be.
    assert host.master.metric("master_evicted_key_count") > OPERATIONS / 50
    found = sum(op.outcome is not None and op.outcome >= 0 for op in operations)
    assert 0.3 * len(operations) < found < 0.97 * len(operations)
    assert all(op.outcome is not None for op in operations)
    shared_reads, _, over_tcp = map(int, clients[2].say("counters").split())
    assert shared_reads > 0 and over_tcp == 0
    shared_reads, over_unix, over_tcp = map(int, clients[-1].say("counters").split())
    assert shared_reads == over_unix == 0 and over_tcp > 0

    def is_tidy():
        metrics = host.master.metrics()
        return metrics["nano_mooncake_reservations"] == metrics["nano_mooncake_limbo_bytes"] == 0

    eventually(is_tidy, "nothing is reserved or pinned any more")
    host.end()


# ---- the judge -----------------------------------------------------------------------------------------------------


def put(begin, end, seed, outcome=0, kind="u"):
    return Operation("a", kind, "kept/0", begin, end, outcome, seed)


def get(begin, end, outcome):
    return Operation("b", "g", "kept/0", begin, end, outcome, max(outcome, 0))


def probe(begin, end, outcome):
    return Operation("b", "e", "kept/0", begin, end, outcome, 0)


def remove(begin, end, outcome=0):
    return Operation("c", "x", "kept/0", begin, end, outcome, 0)


UNANSWERED_PUT = Operation("a", "u", "kept/0", 1, seed=11)


@pytest.mark.parametrize("history, fault", [
    ([put(1, 2, 11), get(3, 4, 12)], "nobody wrote"),
    ([put(5, 6, 11), get(3, 4, 11)], "future"),
    ([put(1, 2, 11), put(3, 4, 12), get(5, 6, 11)], "superseded"),
    ([put(1, 2, 11), remove(3, 4), get(5, 6, 11)], "superseded"),
    ([put(1, 2, 11), put(3, 9, 12), get(5, 6, 12), get(7, 8, 11)], "superseded"),
    ([put(1, 2, 11), Operation("a", "u", "kept/0", 3, seed=12), get(5, 6, 12), get(7, 8, 11)], "superseded"),
    ([put(1, 2, 11), remove(3, 4), probe(5, 6, 0)], "found, though"),
    ([put(1, 2, 11, outcome=-200), get(3, 4, 11)], "refused"),
    ([put(1, 2, 11), get(3, 4, -704)], "false miss"),
    ([put(1, 2, 11), remove(3, 4), put(5, 6, 12), probe(7, 8, -704)], "false miss"),
    ([put(1, 2, 11, kind="p"), remove(3, 4, outcome=-706), get(5, 6, -704)], "false miss"),
])
def test_judge_finds(history, fault):
    assert [words for words in find_faults(history, ("kept/",)) if words.startswith((fault, "a")) and fault in words]


@pytest.mark.parametrize("history", [
    [put(1, 2, 11), get(3, 4, 11), probe(5, 6, 0)],
    [put(1, 2, 11), put(3, 6, 12), get(4, 5, 11), get(4, 5, 12)],                # at the same time: either
    [put(1, 2, 11), put(3, 4, 12, kind="p"), get(5, 6, 11)],                     # the first stays
    [put(1, 2, 11), put(3, 4, 12, outcome=-900), get(5, 6, 11), get(7, 8, 12)],  # it may have happened after all
    [UNANSWERED_PUT, put(3, 4, 12), get(5, 6, 11)],                              # ... even late
    [put(1, 2, 11), remove(3, 6), get(4, 5, -704)],
    [put(1, 2, 11), Operation("c", "x", "kept/0", 3), get(5, 6, -704)],          # a removal without an answer
    [put(1, 4, 11), get(2, 3, -704)],
    [put(1, 2, 11, outcome=-200), get(3, 4, -704)],
    [remove(1, 2, outcome=-704), put(3, 4, 11), get(5, 6, 11)],
])
def test_judge_lets_pass(history):
    assert find_faults(history, ("kept/",)) == []


def test_judge_excuses_what_may_be_missed():
    assert find_faults([put(1, 2, 11), get(3, 4, -704)], ("kept/",), lambda read: read.begin == 3) == []
    assert find_faults([put(1, 2, 11), get(3, 4, -704)], ("others/",)) == []
