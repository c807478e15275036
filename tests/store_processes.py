"""Processes of the store's tests: a master that can be restarted in its folder, clients driven by lines, and how to
stop, continue and end each by its pid."""

import contextlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request

from ready_line import ReadyLine
from waiting import eventually

TIMEOUT_S = 60
MIB = 1 << 20
# Set by `make soak`: the long forms.
SOAK = bool(os.environ.get("NMC_SOAK"))


class Process:
    """Lines of its output as they come; signals by pid."""

    def __init__(self, command, environment=None, **pipes):
        self.process = subprocess.Popen(list(map(str, command)), text=True, env={**os.environ, **(environment or {})},
                                        **pipes)

    @property
    def pid(self):
        return self.process.pid

    def is_alive(self):
        return self.process.poll() is None

    def state(self):
        """R, S, T (stopped), Z, ... as /proc has it."""
        return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def has_stopped(self):
        return self.is_alive() and self.state() == "T"

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        eventually(lambda: self.state() in "TZ", f"process {self.pid} stands still")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """kill -9, whatever it does; returns when it is gone."""
        if self.is_alive():
            self.process.kill()
        self.process.wait(TIMEOUT_S)

    def anonymous_bytes(self):
        """Its own memory, what it shares with others left out."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", text).group(1)) * 1024


class Master(Process):
    """mooncake_master in a folder, ready to serve."""

    def __init__(self, bin_dir, folder, *flags, failpoints="", prefix=()):
        command = [*prefix, bin_dir / "mooncake_master", "--rpc_port=0", "--metrics_port=0", f"--store_dir={folder}"]
        super().__init__([*command, *flags], {"NANO_MOONCAKE_FAILPOINTS": failpoints}, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE)
        self.ready = ReadyLine(self.process.stderr)
        self.log = self.ready.lines
        self.address = self.ready.wait(TIMEOUT_S, "the master")
        self.url = re.search(r"metrics at (\S+)/metrics", "".join(self.log)).group(1)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
            return answer.read().decode()

    def metrics(self):
        return {name: float(value) for name, value in re.findall(r"^([a-z_]+) (\S+)$", self.get("/metrics"), re.M)}

    def metric(self, name):
        return self.metrics()[name]

    def segments(self):
        """{name: state}"""
        found = json.loads(self.get("/get_segments_detail"))["segments"]
        return {segment["segment_name"]: segment["status"] for segment in found}

    def end(self):
        """In order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        self.ready.close(TIMEOUT_S)
        return code


class Client(Process):
    """nmc_store_tool: a line in, a line out. Its errors are kept in a file, for the message of a failure."""

    def __init__(self, bin_dir, server, name, segment=0, *flags, errors, prefix=()):
        self.name, self.errors = name, errors
        command = [*prefix, bin_dir / "nmc_store_tool", "--server", server, "--hostname", name]
        with open(errors, "a") as stderr:
            super().__init__([*command, "--segment-bytes", segment, *flags], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=stderr)
        self.lines = queue.Queue()

        def read():
            for line in self.process.stdout:
                self.lines.put(line.rstrip("\n"))
            self.lines.put(None)

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()

    def answer(self, timeout_s=TIMEOUT_S):
        """The next line, or None when it has ended."""
        return self.lines.get(timeout=timeout_s)

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def say(self, line, timeout_s=TIMEOUT_S):
        self.send(line)
        answer = self.answer(timeout_s)
        assert answer is not None, f"{self.name} ended at `{line}`: {self.errors.read_text()[-2000:]}"
        return answer

    def end(self):
        """In order; its exit code."""
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()
        return code


class Host:
    """A folder with its master and clients. Whatever still runs at the end is killed."""

    def __init__(self, bin_dir, logs, *master_flags):
        self.bin_dir, self.logs, self.master_flags = bin_dir, logs, master_flags
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="nmc-test-", dir="/dev/shm"))
        self.folder = self.root / "store"
        self.master, self.started = None, []
        self.prefix = ()  # words before those of each process

    @property
    def server(self):
        return f"unix:{self.folder}/socket"

    def start_master(self, failpoints=""):
        self.master = Master(self.bin_dir, self.folder, *self.master_flags, failpoints=failpoints,
                             prefix=self.prefix)
        self.started.append(self.master)
        return self.master

    def try_client(self, name, segment=0, *flags, server=None):
        """A client that has joined, or None when it couldn't."""
        client = Client(self.bin_dir, server or self.server, name, segment, *flags,
                        errors=self.logs / f"{name.replace(':', '-')}.stderr", prefix=self.prefix)
        self.started.append(client)
        if client.answer() == "ready":
            return client
        client.kill()
        return None

    def start_client(self, name, segment=0, *flags, server=None):
        client = self.try_client(name, segment, *flags, server=server)
        assert client is not None, f"{name} can't join: {self.started[-1].errors.read_text()[-2000:]}"
        return client

    def master_log(self):
        """What the last masters said."""
        lines = [line for process in self.started if isinstance(process, Master) for line in process.log]
        return "".join(lines[-60:])

    def file_names(self):
        """Of the store's folder: their kinds, sorted."""
        return sorted(path.name.split(".")[0] for path in self.folder.iterdir())

    def end(self):
        """All in order, clients first. Nothing of them may stay."""
        alive = [process for process in self.started if process.is_alive() and process is not self.master]
        codes = [process.end() for process in (*alive, self.master)]
        assert not any(codes), codes
        assert not self.folder.exists(), list(self.folder.iterdir())

    def clean_up(self):
        for process in self.started:
            process.kill()
        shutil.rmtree(self.root, ignore_errors=True)


@contextlib.contextmanager
def running_host(bin_dir, logs, *master_flags):
    """A Host whose master runs; nothing of it stays, however the test ends."""
    host = Host(bin_dir, logs, *master_flags)
    try:
        host.start_master()
        yield host
    finally:
        host.clean_up()
