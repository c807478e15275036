"""A full folder of shared memory: the answer is an error that names what was wanted and what is free, at set-up, never
a bus error later. The folder is a tmpfs of 16 MiB in a mount namespace that the test makes, so it needs root."""

import re
import subprocess
import tempfile

import pytest
from store_processes import MIB, Host

CAN_MOUNT = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", tempfile.gettempdir()],
                           capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not CAN_MOUNT, reason="needs a mount namespace of its own")


class SmallHost(Host):
    """Master and clients see 16 MiB at the root folder, nobody else does."""

    def start_master(self, failpoints=""):
        mount = f"mount -t tmpfs -o size=16m,mode=700 none {self.root} && exec \"$@\""
        self.prefix = ["unshare", "-m", "sh", "-c", mount, "sh"]
        master = super().start_master(failpoints)
        self.prefix = ["nsenter", "-m", "-t", str(master.pid)]
        return master

    def run(self, *command):
        return subprocess.run([*self.prefix, *command], capture_output=True, text=True, timeout=60, check=True).stdout

    def shared_files(self):
        return sorted(self.run("ls", self.folder).split())

    def free_bytes(self):
        return int(self.run("stat", "-f", "-c", "%a %S", self.root).split()[0]) * 4096


@pytest.fixture
def host(bin_dir, tmp_path):
    running = SmallHost(bin_dir, tmp_path)
    try:
        running.start_master()
        yield running
    finally:
        running.clean_up()


def refused(host, name, bytes_wanted):
    """The sentence; it has the sizes."""
    files, free = host.shared_files(), host.free_bytes()
    assert host.try_client(name, bytes_wanted) is None
    said = (host.logs / f"{name.replace(':', '-')}.stderr").read_text()
    sizes = re.search(r"(\d+) bytes wanted, (\d+) free", said)
    assert sizes and int(sizes[1]) >= bytes_wanted, said
    # What the table of pins of the client who asked takes is free again by now.
    assert free - 2 * MIB <= int(sizes[2]) <= free, said
    assert host.shared_files() == files and host.free_bytes() == free
    return said


def test_a_segment_larger_than_the_folder_is_refused_and_leaves_nothing(host):
    refused(host, "large:1", 64 * MIB)
    assert host.start_client("fits:1", 8 * MIB).say("put a 1 4000000") == "0"


def test_a_segment_beside_another_that_took_the_room_is_refused(host):
    first = host.start_client("first:1", 12 * MIB)
    assert first.say("put a 1 4000000") == "0"
    refused(host, "second:1", 8 * MIB)
    # The first has all of its own: every byte of it can be written.
    assert first.say(f"fill b/ 0 48 {MIB} 1").split()[0] == "0"
    reader = host.start_client("reader:1")
    assert reader.say("get b/47").startswith("0 ")
    assert all(process.process.poll() in (None, 0, 1, 2, 3) for process in host.started), "none died of a signal"


def test_room_that_a_client_gave_back_is_the_next_ones(host):
    """At once: the master lets go of a segment's memory some time later, but not later than somebody needs it."""
    for turn in range(6):
        client = host.start_client(f"turn-{turn}:1", 9 * MIB)
        assert client.say(f"fill t{turn}/ 0 20 {MIB // 2} 1").split()[0] == "0"
        assert client.end() == 0


def test_a_parked_segment_makes_room_for_who_brings_another(host):
    """The owner died, and nobody takes its segment over: then its memory goes to who needs it."""
    first = host.start_client("first:1", 12 * MIB)
    first.kill()
    assert host.start_client("second:1", 10 * MIB).say(f"fill b/ 0 40 {MIB} 1").split()[0] == "0"
    assert host.master.segments() == {"second:1": "MOUNTED"}


def test_a_wish_that_a_parked_segment_cannot_meet_leaves_it_there(host):
    first = host.start_client("first:1", 12 * MIB)
    assert first.say("put a 1 4000000") == "0"
    first.kill()
    assert host.try_client("large:1", 1 << 46) is None
    assert host.start_client("next:1", 12 * MIB).say("get a") == "0 1"
