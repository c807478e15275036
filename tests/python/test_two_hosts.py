"""A store whose master and writer are on one host and whose reader is on another, with a token between them."""

import json
import re
import subprocess
import sys

import pytest
from conftest import HOST, MIB, REPOSITORY, TIMEOUT_S, run_python
from two_hosts import CannotBeMade, Master, TwoHosts

EXAMPLE = REPOSITORY / "examples" / "store_roundtrip.py"
TOKEN = {"NANO_MOONCAKE_TOKEN": "of both hosts"}
METADATA_PORT = 18080

SET_UP = f"""
import json, os, sys
from mooncake.store import MooncakeDistributedStore
from mooncake.buffer_pool import BufferPool

MIB = {MIB}
store = MooncakeDistributedStore()

def set_up(segment):
    return store.setup(os.environ.get("LOCAL_HOST", "127.0.0.1"), "P2PHANDSHAKE", segment, 16 * MIB, "tcp", "",
                       sys.argv[1])
"""

# What every call answers, in an order that makes leases and replacements show.
SESSION = (
    SET_UP
    + """
assert set_up(256 * MIB) == 0
value = os.urandom(MIB) * 64
codes = [
    store.put("large", value), store.put("large", b"other"), store.get_size("large"), store.get("large") == value,
    store.get_size("none"), store.get("none"), store.put("", b"x"), store.put("empty", b""),
    store.remove("large"), store.remove("large", True), store.is_exist("large"), store.remove("none"),
    store.put("fresh", b"v" * 4096), store.remove("fresh"),
    store.put_batch([f"b{i}" for i in range(32)], [b"%04d" % i * MIB for i in range(32)]),
    [len(v) and v[:4] for v in store.get_batch([f"b{i}" for i in range(0, 40, 9)])],
    store.batch_is_exist(["b1", "none"]), store.batch_remove(["b1", "b2", "none"], True),
    store.upsert("b3", b"new"), store.get("b3"), store.remove_by_regex("^b", True), store.remove_all(True),
    store.put("too large", bytes(257 * MIB)),
]
store.put("pooled", value)
pool = BufferPool(store)
with pool.buffer(len(value)) as lease:
    n = store.get_into("pooled", lease.ptr, lease.size)
    view = lease.buffer[:n]
    codes += [n, bytes(view) == value]
    del view
pool.close()
counters = store.counters()
store.close()
print(json.dumps({"codes": repr(codes), "counters": counters}))
"""
)


@pytest.fixture(scope="module")
def hosts():
    try:
        two = TwoHosts()
    except CannotBeMade as error:
        pytest.skip(f"no two hosts here: {error}")
    yield two.hosts
    two.end()


@pytest.fixture(scope="module")
def master(hosts, bin_dir):
    running = Master(hosts[0], bin_dir, "--enable_http_metadata_server=true",
                     f"--http_metadata_server_host={hosts[0].address}", f"--http_metadata_server_port={METADATA_PORT}",
                     environment=TOKEN)
    yield running
    assert running.end() == 0, "".join(running.log)


def test_what_is_written_on_one_host_is_read_on_the_other(hosts, master):
    def start(host, *arguments):
        environment = {**TOKEN, "MASTER_ADDR": master.address, "LOCAL_HOST": host.address,
                       "METADATA_URL": f"http://{hosts[0].address}:{METADATA_PORT}/metadata"}
        return host.start(sys.executable, EXAMPLE, *arguments, environment=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE)

    writer = start(hosts[0], "writer")
    key = writer.stdout.readline().strip().removeprefix("key=")
    written = writer.stdout.readline()
    assert re.fullmatch(r"bytes=1048576 sha256=[0-9a-f]{64}\n", written)
    reader = start(hosts[1], "reader", "--key", key)
    said, _ = reader.communicate(timeout=TIMEOUT_S)
    assert reader.returncode == 0
    assert said.splitlines(keepends=True)[0] == written
    assert f"bytes over TCP: {MIB}\n" in said
    writer.communicate("\n", timeout=TIMEOUT_S)
    assert writer.returncode == 0


def test_every_call_answers_as_on_the_masters_host(hosts, master, start_master):
    far = json.loads(hosts[1].python(SESSION, master.address, environment={**TOKEN, "LOCAL_HOST": hosts[1].address})[0])
    near = json.loads(run_python(SESSION, start_master().address, environment={"LOCAL_HOST": HOST}))
    assert far["codes"] == near["codes"]
    assert "-706" in far["codes"] and str(64 * MIB) in far["codes"]
    assert near["counters"]["tcp"]["bytes_received"] == near["counters"]["tcp"]["bytes_sent"] == 0
    there = far["counters"]
    assert there["shared_reads"] == there["shared_writes"] == there["unix"]["messages"] == 0
    assert there["tcp"]["bytes_received"] > 128 * MIB < there["tcp"]["bytes_sent"]


@pytest.mark.parametrize(
    "environment, advice",
    [({}, "set NANO_MOONCAKE_TOKEN"), ({"NANO_MOONCAKE_TOKEN": "another"}, "wrong token: NANO_MOONCAKE_TOKEN")],
)
def test_without_the_token_it_is_refused_and_told_what_to_do(hosts, master, environment, advice):
    code = SET_UP + "print(set_up(0), store.is_exist('k'))"
    said, complained = hosts[1].python(code, master.address, environment={**environment, "LOCAL_HOST": "10.83.0.2"})
    assert said == "-601 -600\n"
    assert advice in complained and master.address in complained


def test_a_master_that_listens_on_its_own_host_only_is_out_of_reach_soon(hosts, bin_dir):
    running = Master(hosts[0], bin_dir, listen="127.0.0.1")
    try:
        port = running.address.rsplit(":", 1)[1]
        code = SET_UP + "import time; b = time.monotonic(); print(set_up(0), time.monotonic() - b < 3)"
        said, complained = hosts[1].python(code, f"{hosts[0].address}:{port}")
        assert said == "-900 True\n"
        assert "does it listen beyond loopback" in complained
    finally:
        assert running.end() == 0
