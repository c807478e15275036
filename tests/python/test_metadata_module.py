"""mooncake.http_metadata_server: the metadata service inside a Python process, and the program behind its name."""

import asyncio
import http.client
import subprocess
import sys

import pytest
from conftest import HOST, TIMEOUT_S
from mooncake import http_metadata_server
from mooncake.http_metadata_server import KVBootstrapServer, KVPoll

RPC_KEY = "mooncake/rpc_meta/host:1"


@pytest.fixture
def server():
    running = KVBootstrapServer(port=0)
    running.run()
    yield running
    running.close()
    assert running.poll() is KVPoll.Failed


def ask(server, method, target, body=None, headers=()):
    connection = http.client.HTTPConnection(HOST, server.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Type")
    finally:
        connection.close()


def test_nodes_publish_and_look_up(server):
    assert server.poll() is KVPoll.Success
    body = bytes(range(256))
    assert ask(server, "GET", "/metadata?key=a") == (404, b"metadata not found", "application/json")
    assert ask(server, "PUT", "/metadata?key=a", body) == (200, b"metadata updated", "application/json")
    assert ask(server, "GET", "/metadata?key=%20a%20") == (200, body, "application/json")
    assert server.store == {"a": body}
    assert ask(server, "DELETE", "/metadata?key=a")[:2] == (200, b"metadata deleted")
    assert ask(server, "DELETE", "/metadata?key=a")[:2] == (404, b"metadata not found")
    assert ask(server, "GET", "/health")[:2] == (200, b"OK")
    assert ask(server, "GET", "/elsewhere")[0] == 404


def test_an_rpc_entry_may_be_announced_again_but_not_changed(server):
    target = f"/metadata?key={RPC_KEY}"
    assert ask(server, "PUT", target, b"X")[:2] == (200, b"metadata updated")
    assert ask(server, "PUT", target, b"X")[:2] == (200, b"metadata unchanged")
    assert ask(server, "PUT", target, b"Y")[:2] == (400, b"Duplicate rpc_meta key not allowed")
    assert ask(server, "GET", target)[1] == b"X"


@pytest.mark.parametrize("target", ["/metadata", "/metadata?key=", "/metadata?key=%20", "/metadata?other=a"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_absent_or_blank_key_is_refused(server, method, target):
    assert ask(server, method, target)[:2] == (400, b"metadata key is required")


def test_other_methods_are_told_the_right_ones(server):
    assert ask(server, "POST", "/metadata?key=a", b"x")[0] == 405
    assert ask(server, "GET", "/metadata?key=a")[0] == 404


def test_memory_is_bounded(server, monkeypatch):
    monkeypatch.setattr(http_metadata_server, "BODY_BYTES_MAX", 100)
    monkeypatch.setattr(http_metadata_server, "TOTAL_BYTES_MAX", 150)
    monkeypatch.setattr(http_metadata_server, "KEYS_MAX", 2)
    assert ask(server, "PUT", "/metadata?key=a", b"x" * 101)[0] == 413
    assert ask(server, "PUT", "/metadata?key=a", b"x" * 100)[0] == 200
    assert ask(server, "PUT", "/metadata?key=b", b"x" * 50)[0] == 507
    assert ask(server, "PUT", "/metadata?key=a", b"x" * 50)[0] == 200
    assert ask(server, "PUT", "/metadata?key=b", b"x" * 50)[0] == 200
    assert ask(server, "PUT", "/metadata?key=c", b"x")[0] == 507
    assert ask(server, "DELETE", "/metadata?key=a")[0] == 200
    assert ask(server, "PUT", "/metadata?key=c", b"x")[0] == 200


def test_a_body_without_a_length_is_refused(server):
    status, body, _ = ask(server, "PUT", "/metadata?key=a", iter([b"x"]), {"Transfer-Encoding": "chunked"}.items())
    assert status == 411 and b"Content-Length" in body
    assert server.store == {}


def test_an_asynchronous_server_can_answer_by_it():
    class Request:
        method, query = "PUT", {"key": "a"}

        async def read(self):
            return b"value"

    server = KVBootstrapServer(port=0)
    answer = asyncio.run(server._handle_metadata(Request()))
    assert (answer.status, answer.text, server.store) == (200, "metadata updated", {"a": b"value"})


def test_life_is_simple():
    server = KVBootstrapServer(port=0)
    server.close()
    assert server.poll() is KVPoll.Failed
    server.run()
    with pytest.raises(RuntimeError, match=str(server.port)):
        server.run()
    taken = KVBootstrapServer(server.port)
    with pytest.raises(OSError):
        taken.run()
    server.store["kept"] = b"1"
    server.close()
    server.close()
    server.run()
    assert ask(server, "GET", "/metadata?key=kept")[1] == b"1"
    server.close()


def test_the_module_runs_the_program():
    command = [sys.executable, "-m", "mooncake.http_metadata_server", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and "GET, PUT and DELETE /metadata?key=KEY" in done.stdout.replace("\n", " ")
