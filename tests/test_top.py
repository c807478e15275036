"""`nano-mooncake top`: a frame without a terminal, a live screen in one, a server and a store."""

import csv
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import urllib.request

import pytest

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def server(start_program):
    return start_program("nano-mooncake-api", "--mode", "pd", "--transfer", "shm", "--dram-bytes", "16MiB")


def complete(server, prompt="abc " * 20):
    body = json.dumps({"prompt": prompt, "max_tokens": 8, "ignore_eos": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def top(bin_dir, *flags, environment=None):
    return subprocess.run([bin_dir / "nano-mooncake", "top", *map(str, flags)], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})


class Terminal:
    """A command in a terminal of its own: what it draws, keys, size, end."""

    def __init__(self, command, rows=40, columns=120, environment=None):
        self._ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.theirs)
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(list(map(str, command)), stdin=self.theirs, stdout=self.theirs,
                                        stderr=self.theirs, env={**inherited, **(environment or {})},
                                        start_new_session=True)
        self.output = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self._ours, keys.encode())

    def read(self, seconds=0.2):
        """Takes in what was drawn since, waiting at most so long for any."""
        while select.select([self._ours], [], [], seconds)[0]:
            self.output += os.read(self._ours, 1 << 16).decode(errors="replace")
            seconds = 0

    def frame(self):
        """The last whole frame, as lines without escapes."""
        self.read()
        frames = self.output.split("\x1b[H")[1:]
        whole = [frame for frame in frames if "\x1b[J" in frame]
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", whole[-1]) if whole else ""
        return [line.rstrip("\r") for line in text.split("\n")]

    def wait_for(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            frame = self.frame()
            if condition(frame):
                return frame
        raise AssertionError(f"{what}: not within {seconds} s; drawn was\n{self.output[-3000:]}")

    def wait_for_text(self, text):
        return self.wait_for(lambda frame: text in "\n".join(frame), text)

    def end(self):
        """Its exit code, once it has given the terminal back as it was."""
        code = self.process.wait(60)
        self.read()
        assert self.output.rstrip().endswith(LEAVE), "back on the screen that was there"
        assert termios.tcgetattr(self.theirs) == self.before
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def start_top(bin_dir):
    started = []

    def start(*flags, **options):
        started.append(Terminal([bin_dir / "nano-mooncake", "top", *flags], **options))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


# Without a terminal


def test_once_prints_a_frame_without_escapes(bin_dir, server):
    complete(server)
    run = top(bin_dir, "--url", server.url, "--once")
    assert (run.returncode, run.stderr) == (0, "")
    for shown in ["mode pd", "0 running of 64", "block pool", "prefill-0", "decode-0", "last hand-overs"]:
        assert shown in run.stdout
    assert "\x1b" not in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 120


def test_once_gives_the_figures_in_every_format(bin_dir, server, tmp_path):
    document = json.loads(top(bin_dir, "--url", server.url, "--once", "--format", "json").stdout)
    assert document["schema"] == "nano-mooncake/top/v1" and document["kind"] == "server"
    assert document["figures"]["queue"]["max_running"] == 64
    path = tmp_path / "new" / "top.csv"
    assert top(bin_dir, "--url", server.url, "--once", "--format", "csv", "--output", path).returncode == 0
    rows = dict(list(csv.reader(path.open()))[1:])
    assert rows["workers.1.name"] == "decode-0" and rows["pool.blocks_total"] == "1024"
    assert "| queue.max_running | 64 |" in top(bin_dir, "--url", server.url, "--once", "--format", "markdown").stdout


def test_a_store_is_shown_too(bin_dir, start_program):
    master = start_program("mooncake_master", "--rpc_port=0", "--metrics_port=0")
    address = next(re.search(r"metrics at (http://[\d.]+:\d+)", line) for line in master.log if "metrics at" in line)[1]
    run = top(bin_dir, "--url", address, "--once")
    assert run.returncode == 0 and "evicted objects" in run.stdout and "0 B of 0 B" in run.stdout
    document = json.loads(top(bin_dir, "--url", address, "--once", "--format", "json").stdout)
    assert document["kind"] == "store" and document["figures"]["keys"] == 0


def test_a_server_with_a_key_wants_it(bin_dir, start_program):
    guarded = start_program("nano-mooncake-api", "--dram-bytes", "16MiB",
                            environment={"NANO_MOONCAKE_API_KEY": "moon"})
    without = top(bin_dir, "--url", guarded.url, "--once")
    assert without.returncode == 2 and "--api-key" in without.stderr and guarded.url in without.stderr
    assert top(bin_dir, "--url", guarded.url, "--once", "--api-key", "moon").returncode == 0
    assert top(bin_dir, "--url", guarded.url, "--once",
               environment={"NANO_MOONCAKE_API_KEY": "moon"}).returncode == 0


@pytest.mark.parametrize("flags, code, said", [
    (["--url", "ftp://x"], 2, "--url: url \"ftp://x\": it doesn't begin with http://, expected http://HOST"),
    (["--url", "http://127.0.0.1:1", "--once"], 3, "http://127.0.0.1:1/v1/metrics: can't connect"),
    (["--format", "json"], 2, "--format: expected --once"),
    (["--interval-s", "-1"], 2, "--interval-s"),
])
def test_what_cannot_be_done_is_one_line(bin_dir, flags, code, said):
    run = top(bin_dir, *flags)
    assert run.returncode == code and said in run.stderr and run.stderr.count("\n") == 1


def test_another_program_there_is_told(bin_dir, start_program):
    other = start_program("mooncake_http_metadata_server")
    run = top(bin_dir, "--url", other.url, "--once")
    assert run.returncode == 2 and "expected a nano-mooncake server or" in run.stderr


def test_without_a_terminal_it_says_what_helps(bin_dir, server):
    run = top(bin_dir, "--url", server.url)
    assert run.returncode == 2 and "--once" in run.stderr and run.stdout == ""


# In one


def test_it_follows_the_server_until_q(start_top, server):
    terminal = start_top("--url", server.url, "--interval-s", "0.1")
    received = int(re.search(r"received (\d+)", "\n".join(terminal.wait_for_text("received")))[1])
    assert terminal.output.startswith(ENTER)
    assert not termios.tcgetattr(terminal.theirs)[3] & (termios.ICANON | termios.ECHO)
    for i in range(3):
        complete(server, f"{i} " * 30)
    terminal.wait_for_text(f"received {received + 3}")
    terminal.wait_for(lambda frame: re.search("output tokens.*[▁▂▃▄▅▆▇█]{5}", "\n".join(frame)), "a history")
    assert "\x1b[38;5;" in terminal.output
    terminal.press("xq")
    assert terminal.end() == 0


def test_it_fits_the_terminal_also_when_that_changes(start_top, server):
    for i in range(3):
        complete(server, f"{i} " * 40)
    terminal = start_top("--url", server.url, "--interval-s", "3600", rows=50, columns=160)
    assert any(len(line) > 60 for line in terminal.wait_for_text("last hand-overs"))
    terminal.resize(12, 40)
    # Long before the next reading.
    frame = terminal.wait_for(lambda lines: 5 < len(lines) <= 12, "a frame of 12 rows")
    assert all(len(line) <= 40 for line in frame)
    terminal.press("q")
    assert terminal.end() == 0


def test_no_color_is_honoured(start_top, server):
    terminal = start_top("--url", server.url, environment={"NO_COLOR": "1"})
    terminal.wait_for_text("block pool")
    assert not re.search(r"\x1b\[[0-9;]*m", terminal.output)
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_terminal_back(start_top, server, number):
    terminal = start_top("--url", server.url)
    terminal.wait_for_text("block pool")
    terminal.process.send_signal(number)
    assert terminal.end() == 130


def test_it_stays_when_the_server_goes(start_top, start_program):
    passing = start_program("nano-mooncake-api", "--dram-bytes", "16MiB")
    terminal = start_top("--url", passing.url, "--interval-s", "0.1", columns=200)
    terminal.wait_for_text("block pool")
    passing.kill()
    frame = "\n".join(terminal.wait_for_text("trying on"))
    assert "can't connect" in frame and "block pool" in frame, "the last reading is still there"
    terminal.press("q")
    assert terminal.end() == 0
