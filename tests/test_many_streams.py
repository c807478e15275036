"""Many open streams: what one costs, that the rest of the server stays quick, and how they end."""

import concurrent.futures
import contextlib
import json
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest
from api_client import MODEL, assert_serves, client_of, get, is_at_rest, metrics, post, read_to_end, request
from waiting import eventually

sys.path.insert(0, str(pathlib.Path(__file__).parent / "python"))
from two_hosts import CannotBeMade, TwoHosts, ip  # noqa: E402

STREAMS = 2000
BYTES_A_STREAM = 50_000
LONG = {"max_tokens": 8000, "ignore_eos": True}


class Streams:
    """Open streams by plain sockets, so that thousands cost the test little. Closed at the end."""

    def __init__(self, server):
        address = urllib.parse.urlsplit(server.url)
        self.address, self.sockets = (address.hostname, address.port), []

    def open(self, count, fields):
        """Each is known to be accepted by its head."""
        opened = []
        for _ in range(count):
            body = json.dumps({"model": MODEL, "stream": True, "prompt": f"stream {len(self.sockets)}", **fields})
            connection = socket.create_connection(self.address, timeout=120)
            self.sockets.append(connection)
            opened.append(connection)
            connection.sendall(f"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
                               f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        for connection in opened:
            head = b""
            while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows is the stream's
                more = connection.recv(1)
                assert more, head
                head += more
            assert head.startswith(b"HTTP/1.1 200 "), head
        return opened

    def close(self):
        for connection in self.sockets:
            connection.close()


@pytest.fixture
def streams_of():
    with contextlib.ExitStack() as stack:
        def made(server):
            streams = Streams(server)
            stack.callback(streams.close)
            return streams
        yield made


def resident_bytes(server):
    """Without the block pool, which is shared memory, reserved from the start and touched as it is used."""
    for line in pathlib.Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # USER_HZ


def quick(server, paths, rounds=50):
    """Half of the answers come within 100 ms, and none takes seconds, however busy this machine is."""
    times = []
    for _ in range(rounds):
        for path in paths:
            begin = time.monotonic()
            assert request(server, "GET", path)[0] == 200
            times.append(time.monotonic() - begin)
    assert statistics.median(times) < 0.1, sorted(times)[-5:]
    assert max(times) < 5, sorted(times)[-5:]


@pytest.mark.parametrize("flags, state", [(("--max-running", "1"), "queued"), (("--max-running", "4096"), "running")])
def test_a_stream_costs_less_than_50_kb(start_server, streams_of, flags, state):
    server = start_server("--max-queue", "4096", *flags)
    streams = streams_of(server)
    streams.open(50, LONG)  # what the first ones need is there for all
    before = resident_bytes(server)
    streams.open(STREAMS, LONG)
    eventually(lambda: metrics(server)["queue"][state] >= STREAMS, state)
    growth = resident_bytes(server) - before
    assert growth < STREAMS * BYTES_A_STREAM, growth / STREAMS
    streams.close()
    eventually(lambda: is_at_rest(server), "at rest afterwards")
    assert_serves(server)


@pytest.mark.parametrize("count", [64, 512])
def test_streams_behind_one_slot_leave_the_server_quick(start_server, streams_of, count):
    server = start_server("--max-running", "1", "--max-queue", "600")
    streams = streams_of(server)
    streams.open(count, LONG)
    quick(server, ["/health", "/metrics", "/healthz", "/load"])
    assert metrics(server)["queue"]["queued"] > count / 2
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        received = metrics(server)["requests"]["received"]
        short = pool.submit(post, server, "/v1/completions", {"prompt": "short", "max_tokens": 2})
        eventually(lambda: metrics(server)["requests"]["received"] > received, "the short one waits its turn")
        streams.close()
        assert short.result(120)[0] == 200
    eventually(lambda: is_at_rest(server), "at rest afterwards")
    # Nothing spins for those that left: what follows is a measurement's length, not a wait for something to happen.
    before = cpu_seconds(server)
    threading.Event().wait(1)
    assert cpu_seconds(server) - before < 0.3
    assert_serves(server)


HOLD_STREAMS = """
import json, socket, sys
held = []
for i in range(int(sys.argv[3])):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
    body = json.dumps({"prompt": f"hold {i}", "max_tokens": 8000, "ignore_eos": True, "stream": True})
    connection.sendall(f"POST /v1/completions HTTP/1.1\\r\\nContent-Type: application/json\\r\\n"
                       f"Content-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
    assert b"200 OK" in connection.recv(4096)
    held.append(connection)
print("held", flush=True)
sys.stdin.read()
"""
LAST_REQUESTS = """
import json, sys, time, urllib.request
until = time.monotonic() + 60
while True:
    with urllib.request.urlopen(sys.argv[1] + "/v1/metrics", timeout=10) as answer:
        now = json.load(answer)
    if now["queue"]["queued"] + now["queue"]["running"] == 0 or time.monotonic() > until:
        break
print(now["requests"]["cancelled"], now["requests"]["finished"])
"""


class ClosedBy:
    def __init__(self, close):
        self.close = close


def test_clients_whose_network_is_cut_are_dropped(bin_dir):
    try:
        hosts = TwoHosts()
    except CannotBeMade as error:
        pytest.skip(str(error))
    with contextlib.closing(ClosedBy(hosts.end)):
        here, there = hosts.hosts
        server = here.start(bin_dir / "nano-mooncake-api", "--host", here.address, "--port", "8000",
                            "--max-running", "1", "--heartbeat-s", "1", "--write-timeout-s", "2",
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not (line := server.stderr.readline()).startswith("ready "):
            assert line, "the server ended"
        clients = there.start(sys.executable, "-c", HOLD_STREAMS, here.address, "8000", "32", stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
        assert clients.stdout.readline() == "held\n"
        cable = f"nmc{there.name.split('-')[1]}b"
        ip("-n", there.name, "link", "set", cable, "down")  # not a word more from them, no FIN, no reset
        said, _ = here.python(LAST_REQUESTS, f"http://{here.address}:8000")
        cancelled, finished = map(int, said.split())
        assert cancelled + finished == 32
        assert cancelled > 16  # those that waited; undetected, all would have been computed one after another
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        server.stderr.close()


def test_sigterm_ends_streams_with_a_word_once_their_time_is_over(start_server, streams_of):
    server = start_server("--max-running", "2", "--drain-timeout-s", "1")
    opened = streams_of(server).open(40, LONG)
    server.terminate()
    words = [read_to_end(connection) for connection in opened]
    refused = [b'"error"' in word and b'"code":503' in word and b"[DONE]" not in word for word in words]
    assert all(over or b"data: [DONE]" in word for over, word in zip(refused, words, strict=True))
    assert sum(refused) > 20  # they had a second
    assert server.wait() == 0


def test_a_second_sigterm_does_not_wait_for_streams(start_server, streams_of):
    server = start_server("--max-running", "2", "--drain-timeout-s", "600")
    opened = streams_of(server).open(100, LONG)
    server.terminate()
    eventually(lambda: get(server, "/healthz")[0] == 503, "draining")
    server.terminate()
    assert server.wait(30) == 130
    assert b"[DONE]" not in read_to_end(opened[-1])


def test_streams_of_the_openai_package_end_as_they_would_alone(start_server, streams_of):
    server = start_server("--max-running", "8", "--max-queue", "600")
    streams_of(server).open(256, {"max_tokens": 40, "ignore_eos": True})
    with client_of(server) as client:
        def text():
            stream = client.completions.create(model=MODEL, prompt="among many", max_tokens=20, temperature=0,
                                               stream=True, extra_body={"ignore_eos": True})
            return "".join(chunk.choices[0].text for chunk in stream)

        crowded = text()
        eventually(lambda: is_at_rest(server), "at rest")
        assert crowded == text()
