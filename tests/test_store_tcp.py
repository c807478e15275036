"""A client of another host, played over TCP, and a master that stands still while its bytes are on the way."""

import pathlib
import selectors
import signal
import socket
import threading
import time

import pytest
from store_processes import MIB, TIMEOUT_S, Host, eventually

PROGRESS_MS = 500


class Relay:
    """Between a master and its clients: passes bytes on, counts those that come back, and calls once at a count."""

    def __init__(self, target):
        self.target, self.back, self.limit, self.at_limit = target, 0, None, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.selector, self.others = selectors.DefaultSelector(), {}
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wake, self.waker = socket.socketpair()
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.wake:
                    return
                if key.fileobj is self.listener:
                    self.join(self.listener.accept()[0])
                elif key.fileobj in self.others:
                    self.pass_on(key.fileobj)

    def join(self, client):
        server = socket.create_connection(self.target)
        self.others.update({client: (server, False), server: (client, True)})
        for end in (client, server):
            self.selector.register(end, selectors.EVENT_READ)

    def pass_on(self, end):
        other, back = self.others[end]
        try:
            data = end.recv(64 << 10)
            if data:
                self.back += len(data) if back else 0
                if self.limit is not None and self.back >= self.limit:
                    self.limit = None
                    self.at_limit()
                other.sendall(data)
                return
        except OSError:
            pass
        for gone in (end, other):
            self.selector.unregister(gone)
            del self.others[gone]
            gone.close()

    def end(self):
        self.waker.send(b"x")
        self.thread.join(TIMEOUT_S)
        for one in (*self.others, self.listener, self.wake, self.waker):
            one.close()


@pytest.fixture
def host(bin_dir, tmp_path):
    made = Host(bin_dir, tmp_path)
    made.start_master()
    yield made
    made.clean_up()


@pytest.fixture
def relay(host):
    address, port = host.master.address.rsplit(":", 1)
    made = Relay((address, int(port)))
    yield made
    made.end()


def test_a_master_that_stops_within_a_value_costs_the_progress_deadline_and_is_found_again(host, relay):
    owner = host.start_client("owner:1", 128 * MIB)
    assert owner.say(f"put large 7 {64 * MIB}") == "0"
    client = host.start_client("far:1", 0, "--tcp", "--progress-ms", PROGRESS_MS, server=relay.address)
    assert client.say("get large") == "0 7"
    relay.back, relay.at_limit = 0, lambda: host.master.process.send_signal(signal.SIGSTOP)
    relay.limit = MIB
    began = time.monotonic()
    assert client.say("get large") == "-901"
    elapsed_ms = (time.monotonic() - began) * 1000
    assert MIB <= relay.back < 64 * MIB, "the master stopped within the value"
    assert PROGRESS_MS <= elapsed_ms < PROGRESS_MS * 10
    host.master.go_on()
    assert client.say("get large") == "0 7"
    assert (client.end(), owner.end()) == (0, 0)


def test_a_client_that_stops_within_a_value_holds_nobody_up(host):
    owner = host.start_client("owner:1", 256 * MIB)
    assert owner.say(f"put large 7 {64 * MIB}") == "0"
    stuck = host.start_client("stuck:1", 0, "--tcp", server=host.master.address)
    other = host.start_client("other:1", 0, "--tcp", server=host.master.address)
    assert stuck.say("get large") == "0 7"
    stuck.send("get large")
    stuck.stop()
    for seed in range(20):
        assert other.say(f"put k{seed} {seed} {MIB}") == "0"
        assert other.say(f"get k{seed}") == f"0 {seed}"
    stuck.go_on()
    assert stuck.answer() == "0 7"


def test_objects_put_and_read_over_tcp_are_the_same_for_all(host):
    owner = host.start_client("owner:1", 128 * MIB)
    far = host.start_client("far:1", 0, "--tcp", server=host.master.address)
    for seed, size in enumerate((1, 4096, 65537, 2 * MIB, 2 * MIB + 1, 33 * MIB)):
        assert far.say(f"put k{seed} {seed} {size}") == "0"
        assert owner.say(f"get k{seed}") == far.say(f"get k{seed}") == f"0 {seed}"
        assert far.say(f"remove k{seed}") == owner.say(f"remove k{seed}") == "-706"
        assert far.say(f"remove k{seed} force") == "0"
        assert owner.say(f"get k{seed}") == far.say(f"get k{seed}") == "-704"


def test_a_client_is_told_soon_that_its_master_is_gone(host):
    host.start_client("owner:1", 16 * MIB)
    far = host.start_client("far:1", 0, "--tcp", server=host.master.address)
    host.master.kill()
    began = time.monotonic()
    assert far.say("get key") == "-900"
    assert time.monotonic() - began < 5
    assert host.try_client("late:1", 0, "--tcp", server=host.master.address) is None
    assert eventually(lambda: "is the server running" in pathlib.Path(host.started[-1].errors).read_text(),
                      "it says why")
