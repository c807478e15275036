"""Fixtures of the package's tests: the package as the build laid it out, and masters on free ports."""

import ctypes
import mmap
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading

import pytest

HOST = "127.0.0.1"
MIB = 1 << 20
LEASE_MS = 1000
TIMEOUT_S = 60

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGE_PATH = pathlib.Path(os.environ.get("NMC_BUILD_DIR", REPOSITORY / "build" / "release")) / "python"

# Before any test imports it, and for the processes that tests start.
sys.path.insert(0, str(PACKAGE_PATH))
os.environ["PYTHONPATH"] = str(PACKAGE_PATH)


@pytest.fixture(scope="session", autouse=True)
def package_dir():
    path = PACKAGE_PATH / "mooncake"
    assert any(path.glob("_store.*.so")), f"{path} has no extension; build first (make build after scripts/setup)"
    return path


def free_port():
    """Below the ephemeral range, so that no outgoing connection takes it before its server does."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as taken:
            try:
                taken.bind((HOST, port))
            except OSError:
                continue
        return port


class Master:
    """A running mooncake_master, ready when it says so."""

    def __init__(self, program, *flags, lease_ms=LEASE_MS):
        self.port, self.metrics_port = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        self.command = [
            str(program),
            f"--rpc_port={self.port}",
            f"--metrics_port={self.metrics_port}",
            f"--default_kv_lease_ttl={lease_ms}",
            *flags,
        ]
        self.start()

    def start(self):
        self.log, ready = [], threading.Event()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def read():
            for line in self.process.stdout:
                self.log.append(line)
                if line.startswith("ready"):
                    ready.set()
            ready.set()  # it ended: there is nothing more to wait for

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        assert ready.wait(TIMEOUT_S) and self.process.poll() is None, "".join(self.log)

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        """Until SIGCONT. The signal alone would let it answer for a moment more."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def wait(self):
        code = self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()
        return code

    def stop(self):
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self.wait()


@pytest.fixture(scope="session")
def start_master(bin_dir):
    """Starts a mooncake_master with more flags; what still runs at the end is stopped, and must stop in order."""
    started = []

    def start(*flags, **more):
        started.append(Master(bin_dir / "mooncake_master", *flags, **more))
        return started[-1]

    yield start
    ends = [running.stop() for running in started if running.process.returncode is None]
    assert all(code == 0 for code in ends), ends


@pytest.fixture(scope="module")
def master(start_master):
    """One for a file's tests."""
    return start_master()


@pytest.fixture
def open_store(master):
    """Sets up a store at the file's master; closes it after the test."""
    from mooncake.store import MooncakeDistributedStore

    opened = []

    def open_one(segment=64 * MIB, address=None, **more):
        store = MooncakeDistributedStore()
        opened.append(store)
        assert store.setup(HOST, "P2PHANDSHAKE", segment, 16 * MIB, "tcp", "", address or master.address, **more) == 0
        return store

    yield open_one
    for store in opened:
        assert store.close() == 0


@pytest.fixture
def store(open_store):
    """A store with a segment, and nothing in it."""
    opened = open_store()
    opened.remove_all(force=True)
    return opened


class Memory:
    """Memory with an address, as engines hand it over."""

    def __init__(self, size):
        self.map, self.size = mmap.mmap(-1, size), size
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def fill(self, data, at=0):
        self.map[at : at + len(data)] = data

    def bytes(self, at, size):
        return self.map[at : at + size]


@pytest.fixture
def memory():
    return Memory(4 * MIB)


def pattern(size, seed=0):
    """Bytes that differ from place to place and from seed to seed."""
    return random.Random(f"{seed}/{size}").randbytes(size)


def eventually(check, timeout_s=20):
    """The first true value of check(); fails when none came."""
    deadline, pause = threading.Event(), threading.Event()
    timer = threading.Timer(timeout_s, deadline.set)
    timer.start()
    try:
        while not (value := check()):
            assert not deadline.is_set(), f"not within {timeout_s} s"
            pause.wait(0.01)
        return value
    finally:
        timer.cancel()


def finish_python(code, *arguments, environment=None):
    """Runs code in a Python of its own. Fails when it crashes, hangs or raises."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done


def run_python(code, *arguments, environment=None):
    """Its standard output."""
    return finish_python(code, *arguments, environment=environment).stdout
