"""Fixtures shared by the Python tests."""

import os
import pathlib
import signal
import subprocess

import pytest
from ready_line import ReadyLine

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build_dir():
    """The build folder under test: ctest names it, by hand it is preset release's."""
    path = pathlib.Path(os.environ.get("NMC_BUILD_DIR", REPOSITORY / "build" / "release"))
    assert path.is_dir(), f"{path} isn't there; build first (make build) or set NMC_BUILD_DIR"
    return path


@pytest.fixture(scope="session")
def bin_dir():
    """The folder of the built programs, from NMC_BIN_DIR or preset release."""
    path = pathlib.Path(os.environ.get("NMC_BIN_DIR", REPOSITORY / "build" / "release" / "bin"))
    assert path.is_dir(), f"{path} isn't there; build first (make build) or set NMC_BIN_DIR"
    return path


class ServerProcess:
    """A running server of ours: started on a free port, known to serve by its `ready URL` line, stopped by its pid."""

    def __init__(self, program, *flags, environment=None):
        command = [str(program), "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self._ready = ReadyLine(self.process.stderr)
        self.log = self._ready.lines
        try:
            self.url = self._ready.wait(120, " ".join(command))
        except AssertionError:
            self.kill()
            raise

    @property
    def pid(self):
        return self.process.pid

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout=60):
        """Its exit code."""
        code = self.process.wait(timeout)
        self._ready.close(timeout)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def memory_peak_bytes(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")


@pytest.fixture(scope="module")
def start_program(bin_dir):
    """Starts the server of that name with the given flags; what still runs after the file's tests is killed."""
    started = []

    def start(program, *flags, environment=None):
        started.append(ServerProcess(bin_dir / program, *flags, environment=environment))
        return started[-1]

    yield start
    for running in started:
        running.kill()


@pytest.fixture
def start_server(bin_dir):
    """Starts nano-mooncake-api with the given flags; what still runs at the end of the test is killed."""
    started = []

    def start(*flags, environment=None):
        server = ServerProcess(bin_dir / "nano-mooncake-api", *flags, environment=environment)
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="module")
def server(bin_dir):
    """One nano-mooncake-api with its defaults for a file's tests. At the end it must stop in order when asked to."""
    running = ServerProcess(bin_dir / "nano-mooncake-api")
    yield running
    if running.process.poll() is None:
        running.terminate()
    assert running.wait() == 0, "".join(running.log)
