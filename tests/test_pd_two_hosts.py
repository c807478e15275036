"""Prefill on one host, decode on another: KV goes over TCP between them, with a token."""

import json
import pathlib
import subprocess
import sys

import pytest
from ready_line import ReadyLine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
from two_hosts import PATIENCE_S, CannotBeMade, TwoHosts  # noqa: E402

TOKEN = {"NANO_MOONCAKE_TOKEN": "of both hosts"}
MEMORY = ("--dram-bytes", "32MiB")
ASK = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
from pd_cluster import complete_all, eventually, expect_nothing_held, metrics, prompt
url = sys.argv[1]
answers = complete_all(url, [prompt(number) for number in range(4)], max_tokens=int(sys.argv[3]))
if len(sys.argv) < 5:
    expect_nothing_held(url)
print(json.dumps({"bits": [a.bits if a.choice else a.error for a in answers], "metrics": metrics(url)}))
"""


@pytest.fixture(scope="module")
def hosts():
    try:
        made = TwoHosts()
    except CannotBeMade as error:
        pytest.skip(f"two hosts can't be made here: {error}")
    yield made.hosts
    made.end()


class Running:
    """A server of ours on a host."""

    def __init__(self, host, bin_dir, program, *flags, environment=None):
        self.process = host.start(pathlib.Path(bin_dir) / program, *flags, environment=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.ready = ReadyLine(self.process.stderr)
        self.address = self.ready.wait(PATIENCE_S, program)

    @property
    def log(self):
        return "".join(self.ready.lines)

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.log
        self.ready.close(PATIENCE_S)


def ask(host, url, max_tokens=24):
    said, _ = host.python(ASK, url, str(pathlib.Path(__file__).resolve().parent), str(max_tokens))
    return json.loads(said)


def start_decode(host, bin_dir, environment=TOKEN):
    return Running(host, bin_dir, "nano-mooncake", "worker", "--role", "decode", "--listen", f"{host.address}:0",
                   *MEMORY, environment=environment)


def start_front(host, bin_dir, worker, *flags, environment=TOKEN):
    return Running(host, bin_dir, "nano-mooncake-api", "--port", "0", "--mode", "pd-process", "--transfer", "tcp",
                   "--prefill", "1", "--decode", "0", "--worker-host", host.address, "--remote-workers",
                   f"decode@{worker.address}", *MEMORY, *flags, environment=environment)


def test_kv_goes_between_hosts_and_changes_no_bit(hosts, bin_dir):
    here, there = hosts
    alone = Running(here, bin_dir, "nano-mooncake-api", "--port", "0", *MEMORY)
    worker = start_decode(there, bin_dir)
    front = start_front(here, bin_dir, worker)
    answers = ask(here, front.address)
    assert answers["bits"] == ask(here, alone.address)["bits"]
    figures = answers["metrics"]
    assert figures["counters"]["transfer_bytes"] > 0
    assert [w["role"] for w in figures["workers"]] == ["prefill", "decode"]
    for server in (front, worker, alone):
        server.end()


def test_a_worker_outlives_its_front_and_serves_the_next(hosts, bin_dir):
    here, there = hosts
    worker = start_decode(there, bin_dir)
    front = start_front(here, bin_dir, worker)
    first = ask(here, front.address)["bits"]
    front.process.kill()  # its connections break
    front.process.wait(PATIENCE_S)
    front.ready.close(PATIENCE_S)
    second = start_front(here, bin_dir, worker)
    assert ask(here, second.address)["bits"] == first
    second.end()
    worker.end()


def test_a_wrong_token_reaches_no_worker(hosts, bin_dir):
    here, there = hosts
    worker = start_decode(there, bin_dir)
    front = here.start(pathlib.Path(bin_dir) / "nano-mooncake-api", "--port", "0", "--mode", "pd-process",
                       "--transfer", "tcp", "--decode", "0", "--worker-host", here.address, "--remote-workers",
                       f"decode@{worker.address}", *MEMORY, environment={"NANO_MOONCAKE_TOKEN": "another"},
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, said = front.communicate(timeout=PATIENCE_S)
    assert front.returncode == 2 and "token" in said and "decode-0" in said and "ready" not in said, said
    worker.end()


def test_beyond_this_host_a_worker_takes_a_token(hosts, bin_dir):
    done = subprocess.run([*hosts[1].enter, str(pathlib.Path(bin_dir) / "nano-mooncake"), "worker", "--listen",
                           f"{hosts[1].address}:0"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and "NANO_MOONCAKE_TOKEN" in done.stderr
