"""Ends of processes and of stores: whatever is open, closed or used wrongly, the process ends by itself with exit code
0, says nothing, and others go on."""

import os
import pathlib

import pytest
from conftest import HOST, MIB, finish_python, free_port
from mooncake.store import MooncakeDistributedStore

SETUP = """
import gc, os, sys, threading
from mooncake.store import MooncakeDistributedStore
from mooncake.buffer_pool import BufferPool
def opened(segment=16 << 20):
    s = MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", segment, 16 << 20, "tcp", "", sys.argv[1]) == 0
    return s
"""


def runs_in_silence(code, *arguments):
    done = finish_python(SETUP + code, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Threads that ask for the interpreter lock while the interpreter goes down.
DAEMONS = """
s, going = opened(), threading.Event()
assert s.put("k", bytes(8 << 20)) == 0
def read():
    while True:
        s.get("k")
        going.set()
for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
going.wait()
"""
ENDS = {
    "open": "kept = opened(); kept.put('k', b'v')",
    "handle": "kept = opened(); kept.put('k', b'v'); handle = kept.get_buffer('k'); view = memoryview(handle)",
    "in a cycle": "class Cycle: pass\nc = Cycle(); c.me = c; c.store = opened(); del c",
    "collected": "class Cycle: pass\nc = Cycle(); c.me = c; c.store = opened(); del c; gc.collect()",
    "pool": "s = opened(); pool = BufferPool(s); lease = pool.acquire(4096); view = lease.buffer",
    "atexit": "import atexit; s = opened(); atexit.register(s.close)",
    "thread": "s = opened(); t = threading.Thread(target=lambda: s.put('k', b'v')); t.start()",
    "sessions": """
s = opened()
s.put("k", b"v")
assert s.batch_get_session_start(["k"]) == s.batch_put_session_start(["l"], [9]) == [0]
""",
    "closed twice": "s = opened(); s.put('k', b'v'); assert s.close() == 0 and s.close() == 0",
    "never set up": "s = MooncakeDistributedStore(); assert s.close() == 0",
    "used after close": "s = opened(); s.close(); assert (s.get('k'), s.put('k', b'v')) == (b'', -600)",
    "handle alone": """
s = opened()
s.put("k", b"v")
h = s.get_buffer("k")
del s
gc.collect()
assert bytes(h) == b"v"
""",
    "daemons": DAEMONS,
    "sys.exit beside a get": DAEMONS + "sys.exit(0)",
    "os._exit beside a get": DAEMONS + "os._exit(0)",
    "SystemExit with a handle": "s = opened(); s.put('k', b'v'); h = s.get_buffer('k'); raise SystemExit",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_process_may_end_with_anything_open(master, code):
    runs_in_silence(code, master.address)


def test_a_handle_outlives_its_store_and_the_flood_after_it(master):
    runs_in_silence(
        """
s, other = opened(), opened()
value = os.urandom(1 << 20)
assert s.put("k", value) == 0
handle = s.get_buffer("k")
del s
gc.collect()
assert [other.put(str(i), bytes(1 << 20)) for i in range(64)] == [0] * 64
assert bytes(handle) == value
""",
        master.address,
    )


def test_a_failing_setup_costs_one_line_and_nothing_else():
    code = """
for _ in range(3):
    s = MooncakeDistributedStore()
    assert s.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == -900
    assert (s.get("k"), s.put("k", b"v"), s.health_check()) == (b"", -600, 1)
"""
    address = f"{HOST}:{free_port()}"
    done = finish_python(SETUP + code, address)
    assert done.stdout == "" and done.stderr.count("\n") == 3
    assert all(address in line for line in done.stderr.splitlines())


COUNTS = """
def counts():
    with open("/proc/self/maps") as maps:
        shared = sum("/dev/shm/" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), shared
def cycle():
    s = opened()
    assert s.put("k", b"v" * 100000) == 0 and s.get("k") == b"v" * 100000
    handle = s.get_buffer("k")
    s.batch_get_session_start(["k"])
    assert s.close() == 0
    assert bytes(handle) == b"v" * 100000
for _ in range(3):
    cycle()
gc.collect()
before = counts()
for _ in range(100):
    cycle()
gc.collect()
assert counts() == before, (before, counts())
"""


def files_of(master):
    """The shared files of a master: index, pin tables, segments."""
    names = set()
    for line in pathlib.Path(f"/proc/{master.process.pid}/maps").read_text().splitlines():
        if "/dev/shm/" in line:
            names.add(os.path.dirname(line[line.index("/dev/shm/") :]))
    assert len(names) == 1, names
    return sorted(path.name for path in pathlib.Path(*names).rglob("*"))


def test_a_hundred_stores_leave_no_file_thread_or_mapping(master):
    before = files_of(master)
    runs_in_silence(COUNTS, master.address)
    assert files_of(master) == before


# ---- Forks ---------------------------------------------------------------------------------------------------------

FORK = """
s = opened()
assert s.put("key", b"value") == 0
handle = s.get_buffer("key")
assert s.batch_get_session_start(["key"]) == [0]
pid = os.fork()
if pid == 0:
    ok = s.get("key") == b"" and s.is_exist("key") == -600 and s.put("new", b"v") == -600 and s.health_check() == 1
    ok = ok and s.batch_is_exist(["a", "b"]) == [-600, -600] and s.get_buffer("key") is None
    ok = ok and bytes(handle) == b"value" and s.batch_get_session_end(["key"]) == -600
    del handle
    gc.collect()
    own = MooncakeDistributedStore()
    arguments = "127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1]
    ok = ok and own.setup(*arguments) == 0 and own.get("key") == b"value"
    ok = ok and s.setup(*arguments) == 0 and s.get("key") == b"value"
    ok = ok and s.close() == 0 and own.close() == 0
    sys.exit(0 if ok else 7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert s.get("key") == b"value" and s.put("new", b"v") == 0 and s.health_check() == 0
assert s.remove("key", force=True) == 0 and [s.put(str(i), bytes(1 << 20)) for i in range(50)] == [0] * 50
assert bytes(handle) == b"value"
assert s.close() == 0
"""


def test_a_forked_child_has_no_store_until_it_sets_up_its_own(master):
    runs_in_silence(FORK, master.address)


# The child ends in each of the ways that run what is left of a process, or none of it; `s` stays its parent's.
FORK_ENDS = {
    "returns": "sys.exit(0)",
    "closes": "assert s.close() == 0; sys.exit(0)",
    "drops": "del s; gc.collect(); sys.exit(0)",
    "exits at once": "os._exit(0)",
}


@pytest.mark.parametrize("ending", FORK_ENDS.values(), ids=FORK_ENDS)
def test_a_forked_child_takes_nothing_of_its_parents_with_it(master, ending):
    other = MooncakeDistributedStore()
    assert other.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", master.address) == 0
    code = f"""
s = opened()
assert s.put("parents", b"v" * (1 << 20)) == 0
where = s.get_replica_desc("parents")[0].get_memory_descriptor().buffer_descriptor.transport_endpoint
pid = os.fork()
if pid == 0:
    {ending}
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
probe = opened(0)  # a client of the master's own view
assert probe.get("parents") == b"v" * (1 << 20)
assert probe.get_replica_desc("parents")[0].get_memory_descriptor().buffer_descriptor.transport_endpoint == where
assert s.put("after", b"w" * (1 << 20)) == 0 and probe.get("after") == b"w" * (1 << 20)
assert s.close() == 0 and probe.close() == 0
"""
    before = files_of(master)
    runs_in_silence(code, master.address)
    assert files_of(master) == before
    assert other.close() == 0
