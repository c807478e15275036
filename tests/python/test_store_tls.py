"""A master that speaks TLS, and clients with and without the authority that signed its certificate."""

import json
import os
import subprocess

import pytest
from conftest import HOST, MIB, TIMEOUT_S, Master, finish_python

CODE = f"""
import json, os, sys
from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
began = store.setup("{HOST}", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", sys.argv[1])
value = os.urandom({MIB}) * 9
said = [began, store.put("key", value), store.get("key") == value, store.is_exist("none")]
print(json.dumps({{"said": said, "counters": store.counters() if began == 0 else None}}))
store.close()
"""


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=TIMEOUT_S)


def make_certificate(folder, name, subject, *more):
    """NAME.pem and NAME.key."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={subject}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", *more)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An authority, a server's certificate that it signed, and another authority."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        make_certificate(folder, name, name, "-addext", "basicConstraints=critical,CA:TRUE")
    make_certificate(folder, "server", "server", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                     "-addext", f"subjectAltName=IP:{HOST}", "-addext", "basicConstraints=CA:FALSE")
    return folder


@pytest.fixture(scope="module")
def tls_master(bin_dir, files):
    os.environ["NANO_MOONCAKE_TOKEN"] = "inside"
    try:
        running = Master(bin_dir / "mooncake_master", f"--tls-cert={files}/server.pem", f"--tls_key={files}/server.key")
    finally:
        del os.environ["NANO_MOONCAKE_TOKEN"]
    yield running
    assert running.stop() == 0


def run(master, **environment):
    done = finish_python(CODE, master.address, environment={"NANO_MOONCAKE_TOKEN": "inside", **environment})
    return json.loads(done.stdout), done.stderr


def test_all_goes_through_it(tls_master, files):
    told, _ = run(tls_master, NANO_MOONCAKE_TLS_CA=f"{files}/ca.pem", NANO_MOONCAKE_STORE_TRANSPORT="tcp")
    assert told["said"] == [0, 0, True, 0]
    assert told["counters"]["tcp"]["bytes_received"] == told["counters"]["tcp"]["bytes_sent"] == 9 * MIB


def test_on_the_masters_host_it_leads_to_shared_memory(tls_master, files):
    told, _ = run(tls_master, NANO_MOONCAKE_TLS_CA=f"{files}/ca.pem")
    assert told["said"] == [0, 0, True, 0]
    assert told["counters"]["tcp"]["bytes_received"] == 0 < told["counters"]["shared_read_bytes"]


@pytest.mark.parametrize(
    "environment, code, reason",
    [
        ({}, -601, "wants TLS: set NANO_MOONCAKE_TLS_CA"),
        ({"NANO_MOONCAKE_TLS_CA": "other.pem"}, -601, "certificate doesn't pass"),
        ({"NANO_MOONCAKE_TLS_CA": "none.pem"}, -600, "none.pem"),
        ({"NANO_MOONCAKE_TLS_CA": "ca.key"}, -600, "ca.key has no certificate"),
        ({"NANO_MOONCAKE_TLS_CA": "ca.pem", "NANO_MOONCAKE_TOKEN": "else"}, -601, "wrong token"),
    ],
)
def test_who_cannot_be_served_is_told_why(tls_master, files, environment, code, reason):
    if "NANO_MOONCAKE_TLS_CA" in environment:
        environment = {**environment, "NANO_MOONCAKE_TLS_CA": f"{files}/{environment['NANO_MOONCAKE_TLS_CA']}"}
    told, complained = run(tls_master, **environment)
    assert told["said"][0] == code
    assert reason in complained, complained


def test_a_master_without_it_is_found_out(start_master, files):
    told, complained = run(start_master(), NANO_MOONCAKE_TLS_CA=f"{files}/ca.pem")
    assert told["said"][0] == -900
    assert "doesn't speak it" in complained and "--tls-cert" in complained


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--tls-cert={}/server.pem"], "takes --tls-key, too"),
        (["--tls-key={}/server.key"], "takes --tls-cert, too"),
        (["--tls-cert={}/none", "--tls-key={}/server.key"], "none"),
        (["--tls-cert={}/server.pem", "--tls-key={}/ca.key"], "ca.key isn't that of the certificate"),
        (["--tls-cert={}/server.key", "--tls-key={}/server.key"], "server.key is no certificate"),
    ],
)
def test_a_master_that_cannot_use_its_files_says_so_and_leaves_nothing(bin_dir, tmp_path, files, flags, message):
    store = tmp_path / "store"
    done = subprocess.run(
        [bin_dir / "mooncake_master", "--rpc_port=0", "--metrics_port=0", f"--store_dir={store}",
         *[flag.format(files) for flag in flags]], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not store.exists()
