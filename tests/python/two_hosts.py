"""Two hosts on one machine: network namespaces joined by a virtual cable, each with a /dev/shm of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

PATIENCE_S = 60


class CannotBeMade(Exception):
    """Not root, or a container that may not do this."""


def ip(*words):
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=PATIENCE_S)
    except FileNotFoundError as error:
        raise CannotBeMade(f"there is no `ip`: {error}") from error
    if done.returncode != 0:
        raise CannotBeMade(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Host:
    """One of the two; what still runs there is killed at the end."""

    def __init__(self, name, address):
        self.name, self.address, self.running = name, address, []
        # A process of the host sees its network and an empty /dev/shm: no file or socket leads to the other host.
        self.enter = ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c",
                      'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]

    def start(self, *command, environment=None, **pipes):
        process = subprocess.Popen([*self.enter, *map(str, command)], text=True,
                                   env={**os.environ, **(environment or {})}, **pipes)
        self.running.append(process)
        return process

    def python(self, code, *arguments, environment=None):
        """Runs it there to its end: (standard output, standard error). Fails when it crashes, hangs or raises."""
        process = self.start(sys.executable, "-X", "faulthandler", "-c", code, *arguments, environment=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, complained = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, complained
        return said, complained

    def end(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)


class TwoHosts:
    def __init__(self):
        number = os.getpid() % 10000
        self.names, self.hosts = [f"nmc-{number}-a", f"nmc-{number}-b"], []
        cables = [f"nmc{number}a", f"nmc{number}b"]
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
            for name, cable, address in zip(self.names, cables, ("10.83.0.1", "10.83.0.2"), strict=True):
                ip("link", "set", cable, "netns", name)
                ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
                ip("-n", name, "link", "set", cable, "up")
                ip("-n", name, "link", "set", "lo", "up")
                self.hosts.append(Host(name, address))
            for host in self.hosts:
                if host.start("true", stderr=subprocess.DEVNULL).wait(PATIENCE_S) != 0:
                    raise CannotBeMade("a process can't have a /dev/shm of its own")
        except CannotBeMade:
            self.end()
            raise

    def end(self):
        for host in self.hosts:
            host.end()
        for name in self.names:  # the cable goes with them
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=PATIENCE_S)


class Master:
    """mooncake_master on a host, by default at an address that the other one reaches."""

    def __init__(self, host, bin_dir, *flags, listen=None, environment=None):
        self.host = host
        self.process = host.start(
            pathlib.Path(bin_dir) / "mooncake_master", "--rpc_port=0", "--metrics_port=0",
            f"--rpc_address={listen or host.address}", *flags, environment=environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        self.log, ready = [], threading.Event()

        def read():
            for line in self.process.stderr:
                self.log.append(line)
                if line.startswith("ready "):
                    ready.set()
            ready.set()  # it ended: there is nothing more to wait for

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        assert ready.wait(PATIENCE_S) and self.process.poll() is None, "".join(self.log)
        self.address = next(line.split()[1] for line in self.log if line.startswith("ready "))

    def end(self):
        """In order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.process.stderr.close()
        return code
