"""A server of --mode pd-process as its users see it, and what a test can ask of it and its processes."""

import json
import os
import pathlib
import re
import threading
import urllib.error
import urllib.request

from waiting import eventually

PATIENCE_S = 30


def prompt(number, words=40):
    """Texts that share nothing but their language."""
    return " ".join(f"{number}.{i * i % 97}" for i in range(words))


class Answer:
    """What came of one request: `tokens` with their logprobs, bit for bit, or the error object."""

    def __init__(self, status, body):
        self.status, self.body = status, body
        self.error = body.get("error")
        self.choice = None if self.error else body["choices"][0]

    @property
    def bits(self):
        assert self.choice is not None, self.body
        logprobs = self.choice["logprobs"]
        return self.choice["text"], logprobs["token_logprobs"], logprobs["top_logprobs"], self.choice["finish_reason"]


def complete(url, text, max_tokens=24, **fields):
    """POST /v1/completions, greedy, with logprobs."""
    body = {"model": "nano-mooncake", "prompt": text, "max_tokens": max_tokens, "temperature": 0, "logprobs": 3,
            "ignore_eos": True, **fields}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return Answer(answer.status, json.load(answer))
    except urllib.error.HTTPError as error:
        return Answer(error.code, json.load(error))


def complete_all(url, texts, **fields):
    """At once, each on a connection of its own."""
    answers = [None] * len(texts)

    def ask(i):
        answers[i] = complete(url, texts[i], **fields)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return answers


def metrics(url):
    with urllib.request.urlopen(f"{url}/v1/metrics", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def fired(log):
    """(process, pid, failpoint, count) of each line of NANO_MOONCAKE_FAILPOINTS_LOG."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(process, int(pid), name, int(count)) for process, pid, name, count in lines]


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid):
    found, frontier = [], [pid]
    while frontier:
        parent = frontier.pop()
        for task in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(child) for child in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += children
            frontier += children
    return found


FOLDERS = pathlib.Path(f"/dev/shm/nano-mooncake-{os.geteuid()}")


def shared_folder_of(server):
    """The folder of the master that a server has to itself."""
    maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
    names = set(re.findall(re.escape(str(FOLDERS)) + "/once-[0-9]+-[0-9a-f]+", maps))
    assert len(names) == 1, maps
    return pathlib.Path(names.pop())


def expect_nothing_held(url):
    """No block, handle or slot is held for a request that is over."""

    def nothing():
        now = metrics(url)
        counters, pool = now["counters"], now["pool"]
        return (counters["leaked_handles"] == 0 and counters["residual_slots"] == 0 and pool["blocks_pinned"] == 0
                and now["queue"]["queued"] == 0 and now["queue"]["running"] == 0)

    eventually(nothing, lambda: json.dumps(metrics(url), indent=1))


def folders_of(processes):
    """Folders of shared memory that they made for themselves; no other process's have their names."""
    return sorted(folder.name for pid in processes for folder in FOLDERS.glob(f"once-{pid}-*"))


def expect_gone(processes):
    """Nothing is left of a server, itself among `processes`: no process, no shared memory."""
    eventually(lambda: not any(map(is_alive, processes)), lambda: f"{[p for p in processes if is_alive(p)]} live")
    eventually(lambda: not folders_of(processes), lambda: f"{folders_of(processes)} are left")
