"""setup in both of its forms: what it takes, what it refuses with which code, and what it says on standard error."""

import json
import socket

import pytest
from conftest import HOST, MIB, finish_python, free_port
from mooncake import _setup
from mooncake.store import MooncakeDistributedStore

INVALID, EXISTS, RPC_FAIL, RPC_TIMEOUT, NOT_SUPPORTED = -600, -705, -900, -901, -1012


@pytest.fixture
def unset():
    store = MooncakeDistributedStore()
    yield store
    assert store.close() == 0


@pytest.fixture
def config(master):
    return {
        "local_hostname": HOST,
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": str(16 * MIB),
        "local_buffer_size": str(16 * MIB),
        "protocol": "tcp",
        "rdma_devices": "",
        "master_server_addr": master.address,
    }


def works(store):
    return store.put("key", b"value") == 0 and store.get("key") == b"value"


# ---- Forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [(), (None,), (object(), False, "", "default"), (None, False, "", "default", False, 9300)]
)
def test_seven_to_thirteen_values_by_position(unset, master, more):
    assert unset.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address, *more) == 0
    assert works(unset)


@pytest.mark.parametrize("device", ["rdma_devices", "device_name"])
@pytest.mark.parametrize("server", ["master_server_addr", "master_server_address"])
def test_names_have_two_spellings(unset, master, config, device, server):
    del config["rdma_devices"], config["master_server_addr"]
    sizes = {"global_segment_size": 16 * MIB, "local_buffer_size": 16 * MIB}
    named = {**config, **sizes, device: "", server: master.address}
    assert unset.setup(**named) == 0
    assert works(unset)
    other = MooncakeDistributedStore()
    assert other.setup({**config, device: "", server: master.address}) == 0
    assert works(other) and other.close() == 0


def test_a_dict_may_hold_anything_that_has_a_str(unset, config):
    config.update(
        global_segment_size=16 * MIB, local_buffer_size=None, some_future_key=[1, 2], enable_ssd_offload=False
    )
    assert unset.setup(config=config) == 0
    assert works(unset)


@pytest.mark.parametrize(
    "text, wants",
    [
        ("16777216", 0),
        ("16MB", 0),
        ("16 mb", 0),
        ("16m", 0),
        ("0.015625 GB", 0),
        (" 16MiB ", 0),
        ("0", 0),
        (16 * MIB, 0),
        ("50%", INVALID),
        ("much", INVALID),
        ("", INVALID),
        ("-1", INVALID),
        ("1e9", INVALID),
        ("16 XB", INVALID),
    ],
)
def test_sizes_of_a_dict_have_units(unset, config, text, wants):
    assert unset.setup({**config, "global_segment_size": text}) == wants


@pytest.mark.parametrize("name", ["local_hostname", "metadata_server"])
@pytest.mark.parametrize("value", [None, "", " "])
def test_host_and_metadata_are_required(unset, config, name, value):
    assert unset.setup({**config, name: value}) == INVALID
    del config[name]
    assert unset.setup(config) == INVALID
    assert unset.put("key", b"v") == INVALID


@pytest.mark.parametrize(
    "arguments, named, part",
    [
        ((), {"no_such_option": 1}, "no_such_option"),
        ((), {"rdma_device": ""}, "rdma_device"),
        ((), {"device_name": "", "rdma_devices": ""}, "device_name"),
        ((), {"local_hostname": 7}, "local_hostname"),
        ((), {"global_segment_size": "16MB"}, "str"),
        ((), {"global_segment_size": 1.5}, "float"),
        ((), {"tenant_id": None}, "tenant_id"),
        (("a", "b"), {}, "missing"),
        (("a",) * 14, {}, "14"),
        ((["a"],), {}, "missing"),
        (({}, 1), {}, "missing"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_fits_neither_form_is_a_type_error_that_names_it(unset, master, arguments, named, part):
    if not arguments:
        named = {
            "local_hostname": HOST,
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": 0,
            "local_buffer_size": 0,
            "protocol": "tcp",
            "master_server_addr": master.address,
            **({} if "device_name" in named or "rdma_device" in named else {"rdma_devices": ""}),
            **named,
        }
    with pytest.raises(TypeError) as raised:
        unset.setup(*arguments, **named)
    assert part in str(raised.value)
    assert unset.health_check() == 1


# ---- Values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol, wants", [("tcp", 0), ("rdma", 0), ("RDMA", 0), ("bogus", INVALID), ("", INVALID)])
def test_protocols_of_the_reference_are_taken(unset, master, protocol, wants):
    assert unset.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, protocol, "mlx5_0", master.address) == wants
    assert works(unset) == (wants == 0)


@pytest.mark.parametrize("tenant, wants", [("default", 0), ("", 0), ("other", NOT_SUPPORTED)])
def test_tenants_are_refused_rather_than_mixed(unset, master, tenant, wants):
    assert unset.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", master.address, tenant_id=tenant) == wants


@pytest.mark.parametrize("size", [-1, 1 << 63])
def test_sizes_beyond_reason_are_refused(unset, master, size):
    assert unset.setup(HOST, "P2PHANDSHAKE", size, 16 * MIB, "tcp", "", master.address) == INVALID
    assert unset.setup(HOST, "P2PHANDSHAKE", 0, size, "tcp", "", master.address) == INVALID


def test_more_memory_than_the_machine_has_is_an_error_at_setup(unset, master):
    assert unset.setup(HOST, "P2PHANDSHAKE", 1 << 50, 16 << 20, "tcp", "", master.address) < 0
    assert unset.health_check() == 1


@pytest.mark.parametrize(
    "address", ["a,b", "etcd://127.0.0.1:2379", "", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:port"]
)
def test_an_address_that_is_none_is_refused(unset, address):
    assert unset.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", address) == INVALID


@pytest.mark.parametrize(
    "text, address",
    [
        ("host:1", "host:1"),
        ("host", "host:50051"),
        ("10.0.0.1", "10.0.0.1:50051"),
        ("[::1]:7", "[::1]:7"),
        ("::1", "[::1]:50051"),
        ("[fe80::1%eth0]", "[fe80::1%eth0]:50051"),
        (" host:1 ", "host:1"),
        ("unix:/run/a:b", "unix:/run/a:b"),
    ],
)
def test_an_address_without_a_port_has_the_default(text, address):
    assert _setup.master_address(text) == address


def test_a_name_with_a_port_is_kept(unset, master):
    assert unset.setup(f"{HOST}:17813", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    assert unset.get_hostname() == f"{HOST}:17813"


def test_a_name_without_a_port_gets_one_that_callers_know(unset, master):
    others = [MooncakeDistributedStore() for _ in range(3)]
    names = set()
    for store in (unset, *others):
        assert store.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
        host, _, port = store.get_hostname().partition(":")
        assert host == "localhost" and 12300 <= int(port) <= 14300
        names.add(port)
    assert len(names) == 4
    assert [store.close() for store in others] == [0, 0, 0]


def test_a_name_that_is_taken_is_passed_over(unset, master):
    """Names come from a small range; a client that says nothing of its port must not fail by another's."""
    probe = MooncakeDistributedStore()
    assert probe.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    port = int(probe.get_hostname().partition(":")[2])
    squatters = [MooncakeDistributedStore() for _ in range(6)]
    for offset, store in enumerate(squatters, 1):
        name = f"localhost:{12300 + (port - 12300 + offset) % 2000}"
        assert store.setup(name, "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    assert unset.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    assert unset.get_hostname() not in {store.get_hostname() for store in (probe, *squatters)}
    taken = MooncakeDistributedStore()
    assert taken.setup(unset.get_hostname(), "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master.address) == EXISTS
    assert [store.close() for store in (probe, *squatters)] == [0] * 7


def test_without_a_local_buffer_values_are_not_taken(unset, master, memory, capfd):
    """As callers know it of Mooncake's: who set no memory apart for values can't mean to put any."""
    assert unset.setup(HOST, "P2PHANDSHAKE", 16 * MIB, 0, "tcp", "", master.address) == 0
    memory.fill(b"value")
    for put in (unset.put, unset.upsert, unset.put_parts, unset.upsert_parts):
        assert put("key", b"value") == INVALID
    assert unset.put_batch(["key"], [b"value"]) == unset.upsert_batch(["key"], [b"value"]) == INVALID
    assert unset.is_exist("key") == 0
    assert unset.put_from("key", memory.ptr, 5) == 0
    assert unset.get("key") == b"value" and unset.get_into("key", memory.ptr + 8, 5) == 5
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "local_buffer_size" in said


# ---- Who does not answer -------------------------------------------------------------------------------------------

ATTEMPT = """
import json, sys, time
from mooncake.store import MooncakeDistributedStore
s, began = MooncakeDistributedStore(), time.monotonic()
code = s.setup(*json.loads(sys.argv[1]))
print(json.dumps([code, time.monotonic() - began]))
sys.stderr.flush()
"""


def attempt(*arguments):
    """(code, seconds, standard error) of a setup in a process of its own."""
    done = finish_python(ATTEMPT, json.dumps(arguments))
    return *json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("address", [f"{HOST}:PORT", "unix:/nowhere/store.sock"])
def test_a_master_that_is_down_is_told_in_time(address):
    address = address.replace("PORT", str(free_port()))
    code, seconds, said = attempt(HOST, "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", address)
    assert code == RPC_FAIL and seconds < 2
    assert said.count("\n") == 1 and f"can't connect to {address}: " in said
    assert "is the server running there" in said


def test_a_host_that_nobody_has_is_no_missing_object():
    code, _, said = attempt(HOST, "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", "nobody.invalid:1")
    assert code in (RPC_FAIL, RPC_TIMEOUT)  # a resolver may find out, or take too long to
    assert said.count("\n") == 1 and "nobody.invalid:1" in said


def test_a_stranger_on_the_port_is_told_in_time():
    with socket.socket() as stranger:
        stranger.bind((HOST, 0))
        stranger.listen()
        address = f"{HOST}:{stranger.getsockname()[1]}"
        code, seconds, said = attempt(HOST, "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", address)
    assert code == RPC_TIMEOUT and 1.9 < seconds < 4
    assert said.count("\n") == 1 and address in said and "is it a nano-mooncake server?" in said


def test_a_metadata_server_that_is_down_is_told(master):
    url = f"http://{HOST}:{free_port()}/metadata"
    code, seconds, said = attempt(HOST, url, 0, 16 << 20, "tcp", "", master.address)
    assert code == RPC_FAIL and seconds < 5
    assert url in said and "P2PHANDSHAKE" in said


@pytest.mark.parametrize(
    "form", ["http://{}/metadata", "etcd://{}", "redis://user:secret@{}", "{}", "etcd://127.0.0.1:1,{}"]
)
def test_a_metadata_server_that_answers_is_enough(unset, master, form):
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        metadata = form.format(f"{HOST}:{server.getsockname()[1]}")
        assert unset.setup(HOST, metadata, 16 * MIB, 16 * MIB, "tcp", "", master.address) == 0
    assert works(unset)


@pytest.mark.parametrize("metadata", ["ftp://127.0.0.1/x", "http://", "http://127.0.0.1:port/"])
def test_a_metadata_address_that_is_none_is_refused(unset, master, metadata):
    assert unset.setup(HOST, metadata, 0, 16 << 20, "tcp", "", master.address) < 0


# ---- Tokens --------------------------------------------------------------------------------------------------------


def test_a_token_comes_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.delenv("NANO_MOONCAKE_TOKEN", raising=False)
    monkeypatch.delenv("NANO_MOONCAKE_TOKEN_FILE", raising=False)
    assert _setup.find_token() == ""
    file = tmp_path / "token"
    file.write_text("from the file\n")
    monkeypatch.setenv("NANO_MOONCAKE_TOKEN_FILE", str(file))
    assert _setup.find_token() == "from the file"
    monkeypatch.setenv("NANO_MOONCAKE_TOKEN", "from the environment")
    assert _setup.find_token() == "from the environment"


def test_a_token_file_that_is_missing_is_told(unset, master, monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("NANO_MOONCAKE_TOKEN_FILE", str(tmp_path / "none"))
    assert unset.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", master.address) == INVALID
    assert "NANO_MOONCAKE_TOKEN_FILE" in capfd.readouterr().err


def test_reasons_are_one_line_on_standard_error(unset, master, capfd):
    assert unset.setup(HOST, "P2PHANDSHAKE", 0, 16 * MIB, "bogus", "", master.address) == INVALID
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "mooncake: setup: " in said and "bogus" in said


def test_success_says_nothing(master):
    code = """
import sys
from mooncake.store import MooncakeDistributedStore
s = MooncakeDistributedStore()
assert s.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
s.put("key", b"value"); s.get("key"); s.close()
"""

    done = finish_python(code, master.address)
    assert (done.stdout, done.stderr) == ("", "")
