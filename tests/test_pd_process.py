"""Prefill and decode as processes: the same bits in every ratio and hand-over, faults survived, nothing left behind."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import urllib.parse

import pytest

from pd_cluster import (PATIENCE_S, complete, complete_all, descendants, eventually, expect_gone, expect_nothing_held,
                        fired, metrics, prompt)

MEMORY = ("--dram-bytes", "32MiB", "--tail-bytes", "1MiB")
PROMPTS = [prompt(number) for number in range(4)]


@pytest.fixture(scope="module")
def alone(start_program):
    """What one process says to the prompts."""
    server = start_program("nano-mooncake-api", *MEMORY)
    return complete_all(server.url, PROMPTS)


@pytest.fixture
def start_cluster(start_server, tmp_path):
    """Starts a server of --mode pd-process; at the end it stops in order and leaves nothing."""
    started = []

    def start(*flags, failpoints="", prefill=1, decode=1, memory=MEMORY, environment=None):
        log = tmp_path / f"failpoints-{len(started)}"
        server = start_server("--mode", "pd-process", "--prefill", prefill, "--decode", decode, *memory, *flags,
                              environment={"NANO_MOONCAKE_FAILPOINTS": failpoints,
                                           "NANO_MOONCAKE_FAILPOINTS_LOG": str(log), **(environment or {})})
        server.failpoints = log
        started.append(server)
        return server

    yield start
    for server in started:
        processes = [server.pid, *descendants(server.pid)]
        if server.process.poll() is None:
            server.terminate()
            assert server.wait() == 0, "".join(server.log)
        expect_gone(processes)


def pid_of(server, name):
    return next(worker["pid"] for worker in metrics(server.url)["workers"] if worker["name"] == name)


# ---- the same bits ----


@pytest.mark.parametrize("transfer", ["direct", "shm", "tcp"])
@pytest.mark.parametrize("ratio", [(1, 1), (2, 1), (1, 2), (2, 2)], ids=lambda ratio: "{}p{}d".format(*ratio))
def test_every_ratio_and_hand_over_gives_the_bits_of_one_process(start_cluster, alone, ratio, transfer):
    server = start_cluster("--transfer", transfer, prefill=ratio[0], decode=ratio[1])
    for _ in range(2):  # computed, then from the cache
        answers = complete_all(server.url, PROMPTS)
        assert [answer.bits for answer in answers] == [answer.bits for answer in alone]
    assert all(answer.body["usage"]["prompt_tokens_details"]["cached_tokens"] ==
               answer.body["usage"]["prompt_tokens"] for answer in answers)
    figures = metrics(server.url)
    assert (figures["mode"], figures["transfer"]) == ("pd-process", transfer)
    assert (figures["counters"]["transfer_bytes"] > 0) == (transfer != "direct")
    roles = [worker["role"] for worker in figures["workers"]]
    assert (roles.count("prefill"), roles.count("decode")) == ratio
    assert len({worker["pid"] for worker in figures["workers"]} | {server.pid}) == sum(ratio) + 1
    expect_nothing_held(server.url)


@pytest.mark.parametrize("reuse", ["none", "local"])
@pytest.mark.parametrize("transfer", ["direct", "shm", "tcp"])
def test_reuse_changes_no_bit(start_cluster, alone, reuse, transfer):
    server = start_cluster("--transfer", transfer, "--reuse", reuse)
    for _ in range(2):
        assert [answer.bits for answer in complete_all(server.url, PROMPTS)] == [answer.bits for answer in alone]
    expect_nothing_held(server.url)
    if reuse == "none":
        eventually(lambda: metrics(server.url)["pool"]["blocks_cached"] == 0,
                   lambda: json.dumps(metrics(server.url)["pool"]))


@pytest.mark.parametrize("router", ["round-robin", "least-load", "prefix", "prefix+load"])
def test_each_router_serves(start_cluster, alone, router):
    server = start_cluster("--router", router, prefill=2, decode=2)
    assert [answer.bits for answer in complete_all(server.url, PROMPTS)] == [answer.bits for answer in alone]


# ---- faults: each names the process it hits, and its counter there is read ----

KILLED = [  # failpoint, by hand-over
    ("prefill", "before", {"*": "handover.begin=exit"}),
    ("prefill", "during", {"direct": "handover.send=exit", "shm": "handover.span=exit@1",
                           "tcp": "handover.span=exit@1"}),
    ("prefill", "after", {"*": "handover.sent=exit"}),
    ("decode", "before", {"*": "worker.assign=exit"}),
    ("decode", "during", {"*": "handover.receive=exit"}),
    ("decode", "after", {"*": "worker.step=exit@5"}),
    ("master", "before", {"*": "store.reserve=exit@16"}),
    ("master", "during", {"*": "store.commit=exit@2"}),
    ("master", "after", {"*": "store.commit=exit@12"}),
]
STOPPED = [
    ("prefill", "stopped", {"*": "worker.step=stop"}),
    ("decode", "stopped", {"*": "worker.step=stop@3"}),
    ("master", "stopped", {"*": "store.commit=stop@3"}),
]
FULL = [
    ("prefill", "full", {"direct": "store.full=error*3", "shm": "handover.allocate=error",
                         "tcp": "handover.allocate=error"}),
    ("decode", "full", {"*": "store.full=error*3"}),
    ("master", "full", {"*": "store.reserve=error*8"}),
]
# The disk is the master's, whoever asks for it.
DISK = [
    ("master", "disk-write", {"*": "disk.append=error*0"}),
    ("master", "disk-read", {"*": "disk.read=error*0"}),
]


def cells():
    """One hand-over with every fault, the other two with each kind of process and each kind of fault once at least."""
    made = []
    everything = KILLED + STOPPED + FULL + DISK
    chosen = [(cell, "shm") for cell in everything]
    for i, cell in enumerate(everything):
        chosen.append((cell, ("direct", "tcp")[i % 2]))
    for (process, fault, points), transfer in chosen:
        point = points.get(transfer) or points.get("*")
        made.append(pytest.param(process, point, transfer, fault, id=f"{transfer}-{process}-{fault}"))
    return made


@pytest.mark.parametrize("process,point,transfer,fault", cells())
def test_where_a_spare_worker_lives_a_fault_costs_nothing_but_time(start_cluster, alone, tmp_path, process, point,
                                                                  transfer, fault):
    name = process if process == "master" else f"{process}-0"
    disk = ("--disk-dir", tmp_path / "disk") if fault.startswith("disk") else ()
    memory = ("--dram-bytes", "4MiB", "--tail-bytes", "0") if fault == "disk-read" else MEMORY
    server = start_cluster("--transfer", transfer, "--router", "round-robin", "--worker-timeout-s", "1", *disk,
                           prefill=2, decode=2, memory=memory, failpoints=f"{name}:{point}")
    before = {} if process == "master" else {worker["name"]: worker["pid"] for worker in metrics(server.url)["workers"]}
    answers = complete_all(server.url, PROMPTS)
    if fault == "disk-read":  # asked for where the memory has it no more
        complete_all(server.url, [prompt(number, words=400) for number in range(100, 106)], max_tokens=1)
        answers = complete_all(server.url, PROMPTS)
    assert [answer.bits for answer in answers] == [answer.bits for answer in alone]
    assert all(answer.status == 200 for answer in answers)
    point_name = point.split("=")[0]
    hits = [hit for hit in fired(server.failpoints) if hit[2] == point_name]
    assert hits and all(hit[0] == name for hit in hits), fired(server.failpoints)
    if before and hits:
        assert {hit[1] for hit in hits} == {before[name]}
    if fault in ("before", "during", "after", "stopped") and process != "master":
        eventually(lambda: metrics(server.url)["counters"]["worker_failures"] >= 1, "the loss isn't counted")
        eventually(lambda: all(worker["state"] == "ready" for worker in metrics(server.url)["workers"]),
                   lambda: json.dumps(metrics(server.url)["workers"]))
        restarted = next(worker for worker in metrics(server.url)["workers"] if worker["name"] == name)
        assert restarted["pid"] != before[name] and restarted["restarts"] == 1
    assert [answer.bits for answer in complete_all(server.url, PROMPTS)] == [answer.bits for answer in alone]
    expect_nothing_held(server.url)


@pytest.mark.parametrize("process,point", [("prefill", "handover.begin=exit"), ("prefill", "handover.sent=exit"),
                                           ("decode", "worker.step=exit@5"), ("decode", "worker.step=stop@5")])
def test_recovery_fail_is_a_typed_error_within_the_deadline(start_cluster, alone, process, point):
    server = start_cluster("--recovery", "fail", "--worker-timeout-s", "1", failpoints=f"{process}-0:{point}")
    answer = complete(server.url, PROMPTS[0])
    if point == "handover.sent=exit":  # its work was done: the decode worker computes again what it can't take
        assert answer.status == 503 or answer.bits == alone[0].bits
    else:
        assert answer.status == 503
    if answer.error:
        assert f"{process}-0" in answer.error["message"] and answer.error["type"] == "ServiceUnavailableError"
    assert [hit[0] for hit in fired(server.failpoints)] == [f"{process}-0"]
    eventually(lambda: all(worker["state"] == "ready" for worker in metrics(server.url)["workers"]),
               "it doesn't come back")
    assert complete(server.url, PROMPTS[1]).bits == alone[1].bits
    expect_nothing_held(server.url)


@pytest.mark.parametrize("point", ["prefill-0:handover.span=exit", "decode-0:worker.step=exit@3"])
def test_without_a_spare_worker_a_request_waits_for_the_restart(start_cluster, alone, point):
    server = start_cluster("--transfer", "tcp", failpoints=point)
    assert [answer.bits for answer in complete_all(server.url, PROMPTS)] == [answer.bits for answer in alone]
    assert [hit[0] for hit in fired(server.failpoints)] == [point.split(":")[0]]
    expect_nothing_held(server.url)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("point", ["prefill-0:worker.assign=error", "decode-0:worker.assign=error",
                                   "prefill-0:worker.assign=exit", "decode-0:worker.assign=exit",
                                   "decode-0:worker.step=exit@5"])
def test_a_leg_that_fails_is_one_clear_error_and_the_other_is_free_again(start_cluster, alone, point, stream):
    server = start_cluster("--recovery", "fail", "--transfer", "tcp", failpoints=point)
    if stream:
        asked = Stream(server.url, PROMPTS[0], 24)
        events = list(asked)
        assert asked.answer.status == 200 and json.loads(events[-1])["error"]["code"] == 503
    else:
        answer = complete(server.url, PROMPTS[0])
        assert answer.status == 503 and answer.error["code"] == 503
    expect_nothing_held(server.url)
    eventually(lambda: all(worker["state"] == "ready" for worker in metrics(server.url)["workers"]),
               "it doesn't return")
    assert complete(server.url, PROMPTS[0]).bits == alone[0].bits
    expect_nothing_held(server.url)


def test_retry_other_fails_at_once_where_there_is_no_other(start_cluster):
    server = start_cluster("--recovery", "retry-other", failpoints="decode-0:worker.step=exit@5")
    answer = complete(server.url, PROMPTS[0])
    assert answer.status == 503 and "there is no other" in answer.error["message"]
    expect_nothing_held(server.url)


# ---- streams ----


class Stream:
    """A streamed completion, read event by event."""

    def __init__(self, url, text, max_tokens, **fields):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
        body = {"model": "nano-mooncake", "prompt": text, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                "ignore_eos": True, **fields}
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()

    def __iter__(self):
        for line in self.answer:
            if line.startswith(b"data: "):
                yield line[6:].strip().decode()


def text_of(events):
    return "".join(json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]")


def test_a_stream_that_moves_says_every_token_once(start_cluster, start_server):
    """Its decode worker is killed in its middle, by whoever likes."""
    whole = complete(start_server(*MEMORY).url, PROMPTS[0], max_tokens=4000)
    server = start_cluster("--transfer", "shm", decode=2, prefill=1)
    events = []
    for event in Stream(server.url, PROMPTS[0], 4000):
        events.append(event)
        if len(events) == 5:
            busy = []
            eventually(lambda: busy.extend(w["pid"] for w in metrics(server.url)["workers"]
                                           if w["role"] == "decode" and w["running"] > 0) or busy, "nobody decodes")
            os.kill(busy[0], signal.SIGKILL)
    assert events[-1] == "[DONE]"
    assert len(events) == 4001, "an event a token, and the end"
    assert text_of(events) == whole.choice["text"]
    assert metrics(server.url)["counters"]["worker_failures"] == 1
    expect_nothing_held(server.url)


def test_a_front_that_is_killed_takes_everything_with_it(start_cluster):
    server = start_cluster(prefill=2, decode=2)
    stream = iter(Stream(server.url, PROMPTS[0], 4000))
    next(stream)
    processes = [server.pid, *descendants(server.pid)]
    assert len(processes) == 7, "the front, a keeper, a master, four workers"
    server.kill()
    with pytest.raises((http.client.IncompleteRead, ConnectionError, StopIteration)):
        while True:
            assert next(stream) != "[DONE]"
    expect_gone(processes)


def test_a_keeper_that_is_killed_is_followed_by_another(start_cluster, alone):
    """Its children die with it. What they had goes on where they come back, and what they computed is still there."""
    server = start_cluster()
    assert complete(server.url, PROMPTS[0]).choice["text"] == alone[0].choice["text"]
    stream = iter(Stream(server.url, PROMPTS[1], 4000))
    events = [next(stream)]
    before = descendants(server.pid)
    [keeper] = [pid for pid in before if "keeper" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(keeper, signal.SIGKILL)
    events += list(stream)
    assert events[-1] == "[DONE]"
    assert len(events) == 4001
    again = complete(server.url, PROMPTS[0])
    assert again.choice["text"] == alone[0].choice["text"]
    assert again.body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    after = descendants(server.pid)
    assert len(after) == 4, "a keeper, a master, two workers"
    assert not set(before) & set(after)
    eventually(lambda: all(worker["state"] == "ready" for worker in metrics(server.url)["workers"]), "all are back")
    expect_nothing_held(server.url)


def test_a_front_that_is_killed_takes_workers_that_stand_still(start_cluster):
    server = start_cluster()
    processes = [server.pid, *descendants(server.pid)]
    os.kill(pid_of(server, "decode-0"), signal.SIGSTOP)
    server.kill()
    expect_gone(processes)


# ---- leases ----


@pytest.mark.parametrize("transfer", ["direct", "shm"])
def test_a_taker_that_is_late_for_the_lease_computes_again(start_cluster, alone, transfer):
    """It stands still before it takes its KV until the producer has given that up, and others have used the memory."""
    point = "handover.receive" if transfer == "direct" else "handover.import"
    server = start_cluster("--transfer", transfer, "--reuse", "none", "--handover-lease-s", "1",
                           "--worker-timeout-s", "60", failpoints=f"decode-0:{point}=stop")
    decode = pid_of(server, "decode-0")
    late = []
    asker = threading.Thread(target=lambda: late.append(complete(server.url, PROMPTS[0])))
    asker.start()
    eventually(lambda: fired(server.failpoints), "it was never handed over")
    eventually(lambda: any("nobody took it in time" in line for line in server.log), lambda: "".join(server.log))
    os.kill(decode, signal.SIGCONT)
    asker.join(PATIENCE_S)
    assert late[0].bits == alone[0].bits
    expect_nothing_held(server.url)
    eventually(lambda: metrics(server.url)["pool"]["blocks_cached"] == 0, "blocks of the hand-over are left")


# ---- limits of what can be started ----


@pytest.mark.parametrize("flags,said", [
    (("--store", "127.0.0.1:50051"), "--store"),
    (("--prefill", "0"), "--prefill"),
    (("--remote-workers", "decode@10.0.0.7:9000"), "--transfer tcp"),
    (("--remote-workers", "10.0.0.7:9000"), "prefill@HOST:PORT"),
    (("--recovery", "perhaps"), "--recovery"),
    (("--router", "best"), "--router"),
])
def test_what_cannot_be_started_is_named(bin_dir, flags, said):
    process = subprocess.Popen([str(bin_dir / "nano-mooncake-api"), "--port", "0", "--mode", "pd-process", *flags],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, errors
    assert said in errors.splitlines()[-1]
    expect_gone([process.pid])


def test_modes_without_processes_have_one_worker_of_a_kind(bin_dir):
    done = subprocess.run([str(bin_dir / "nano-mooncake-api"), "--port", "0", "--mode", "pd", "--prefill", "2"],
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and "--mode pd-process" in done.stderr
