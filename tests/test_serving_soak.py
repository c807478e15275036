"""Mixed load at twice what the server takes, with clients that leave and workers that are killed. NMC_SOAK=1 runs it
for half an hour and looks at memory; else it is a short form of the same."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import statistics
import threading
import time
import urllib.parse

import pytest

from pd_cluster import (PATIENCE_S, complete, descendants, eventually, expect_gone, expect_nothing_held, metrics,
                        prompt, shared_folder_of)

SOAK = os.environ.get("NMC_SOAK") == "1"
SECONDS, KILL_EVERY_S, SAMPLE_EVERY_S = (1800, 20, 5) if SOAK else (8, 2, 1)
WARM_UP_S = 600
GROWTH_BYTES_PER_10_MIN = 1 << 20
RUNNING, QUEUE = 4, 8
CLIENTS = 2 * (2 * RUNNING + QUEUE)  # of two decode workers
KINDS = [  # words of the prompt, tokens of the answer
    (8, 4), (40, 24), (40, 200), (160, 8), (400, 2),
]


def anonymous_bytes(pid):
    """What the process has for itself."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def shared_bytes(folder):
    total = 0
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


class Load:
    """Clients that ask one thing after another until it is over."""

    def __init__(self, url, expected):
        self.url, self.expected, self.over = url, expected, threading.Event()
        self.lock, self.counts, self.wrong = threading.Lock(), {}, []
        self.threads = [threading.Thread(target=self.ask, args=(random.Random(seed),)) for seed in range(CLIENTS)]

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def ask(self, rng):
        parts = urllib.parse.urlsplit(self.url)
        while not self.over.is_set():
            kind, number = rng.randrange(len(KINDS)), rng.randrange(6)
            words, tokens = KINDS[kind]
            leaves = rng.random() < 0.15
            body = {"model": "nano-mooncake", "prompt": prompt(number, words), "max_tokens": tokens, "temperature": 0,
                    "ignore_eos": True, "stream": rng.random() < 0.5}
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
            try:
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                if leaves and rng.random() < 0.5:
                    self.note("left")
                    continue
                answer = connection.getresponse()
                if leaves:
                    answer.read(rng.randrange(1, 400))
                    self.note("left")
                    continue
                self.judge(answer.status, answer.read(), body["stream"], (kind, number))
            except (TimeoutError, OSError, http.client.HTTPException) as error:
                self.wrong.append(repr(error))
            finally:
                connection.close()

    def judge(self, status, body, stream, key):
        if status == 200 and stream:
            events = [json.loads(line[6:]) for line in body.decode().splitlines()
                      if line.startswith("data: ") and line != "data: [DONE]"]
            if any("error" in event for event in events):
                return self.judge_error(503, events[-1])
            text = "".join(event["choices"][0]["text"] for event in events)
        elif status == 200:
            text = json.loads(body)["choices"][0]["text"]
        else:
            return self.judge_error(status, json.loads(body))
        self.note("answered")
        if text != self.expected[key]:
            self.wrong.append(f"{key}: {text!r}")

    def judge_error(self, status, body):
        message = body["error"]["message"]
        if status == 429 and "queue is full" in message:
            self.note("refused")
        elif status == 503 and "the second one that was lost" in message:
            self.note("lost twice")
        else:
            self.wrong.append(f"{status}: {message}")


@pytest.mark.parametrize("transfer", ["shm"] if SOAK else ["direct", "shm", "tcp"])
def test_twice_its_load_with_workers_that_die_leaks_nothing(start_server, transfer):
    server = start_server("--mode", "pd-process", "--prefill", 2, "--decode", 2, "--transfer", transfer,
                          "--max-running", RUNNING, "--max-queue", QUEUE, "--dram-bytes", "16MiB")
    expected = {(kind, number): complete(server.url, prompt(number, words), tokens).choice["text"]
                for kind, (words, tokens) in enumerate(KINDS) for number in range(6)}
    load, rng, samples = Load(server.url, expected), random.Random(7), []
    folder = shared_folder_of(server)
    for thread in load.threads:
        thread.start()
    begin = time.monotonic()
    killed, next_kill = 0, begin + KILL_EVERY_S
    while time.monotonic() - begin < SECONDS and not load.wrong:
        load.over.wait(SAMPLE_EVERY_S)
        now = time.monotonic()
        if now >= next_kill:
            workers = [worker["pid"] for worker in metrics(server.url)["workers"] if worker["pid"] > 0]
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed, next_kill = killed + 1, now + KILL_EVERY_S
        samples.append((now - begin, sum(map(anonymous_bytes, [server.pid, *descendants(server.pid)])) +
                        shared_bytes(folder)))
    load.over.set()
    for thread in load.threads:
        thread.join(PATIENCE_S)
    print(json.dumps({"seconds": round(time.monotonic() - begin), "killed": killed, **load.counts}))
    assert not load.wrong, load.wrong[:5]
    assert load.counts["answered"] > 0 and load.counts["refused"] > 0 and load.counts["left"] > 0
    assert killed >= SECONDS // KILL_EVERY_S - 2
    # The last one killed may be coming back.
    eventually(lambda: all(worker["state"] == "ready" for worker in metrics(server.url)["workers"]),
               lambda: json.dumps(metrics(server.url)["workers"]))
    expect_nothing_held(server.url)
    assert metrics(server.url)["counters"]["worker_failures"] == killed
    if SOAK:
        warm = [sample for sample in samples if sample[0] >= WARM_UP_S]
        third = len(warm) // 3
        first, last = warm[:third], warm[-third:]
        minutes = (statistics.median(s[0] for s in last) - statistics.median(s[0] for s in first)) / 60
        growth = statistics.median(s[1] for s in last) - statistics.median(s[1] for s in first)
        print(f"memory grew by {growth} bytes in {minutes:.1f} minutes")
        assert growth / minutes * 10 < GROWTH_BYTES_PER_10_MIN
    processes = [server.pid, *descendants(server.pid)]
    server.terminate()
    assert server.wait() == 0, "".join(server.log)
    expect_gone(processes)
