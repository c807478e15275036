"""The HTTP metadata server as nodes of a transfer engine meet it: the real process, over HTTP."""

import concurrent.futures
import http.client
import signal
import socket
import subprocess
import threading
import urllib.parse

import pytest

PROGRAM = "mooncake_http_metadata_server"
RPC_KEY = "mooncake/rpc_meta/host:1"
RAM_KEY = "mooncake/ram/host:1"
VERBS = ("GET", "PUT", "DELETE")
TIMEOUT_S = 60


class Client:
    """The verbs of a node; an answer is (status, body)."""

    def __init__(self, url):
        self.address = urllib.parse.urlsplit(url)

    def connect(self):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=TIMEOUT_S)

    def request(self, method, target, body=None):
        """Status, body and headers."""
        connection = self.connect()
        try:
            connection.request(method, target, body)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def ask(self, method, key, body=None):
        """`key` is escaped as curl_easy_escape does it, with which existing clients build their URLs."""
        status, answer, _ = self.request(method, f"/metadata?key={urllib.parse.quote(key, safe='')}", body)
        return status, answer

    def get(self, key):
        return self.ask("GET", key)

    def put(self, key, body):
        return self.ask("PUT", key, body)

    def delete(self, key):
        return self.ask("DELETE", key)


@pytest.fixture(scope="module")
def shared(start_program):
    server = start_program(PROGRAM)
    yield Client(server.url)
    server.terminate()
    assert server.wait() == 0, "".join(server.log)


@pytest.fixture
def metadata(shared):
    """The file's one server, without what an earlier test left under the usual keys."""
    for key in (RPC_KEY, RAM_KEY):
        shared.delete(key)
    return shared


def run(bin_dir, *arguments, program=PROGRAM):
    return subprocess.run([bin_dir / program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S)


# ---- Entries ------------------------------------------------------------------------------------------------------


def test_an_rpc_entry_may_be_announced_again_but_not_changed(metadata):
    assert metadata.put(RPC_KEY, b"X") == (200, b"metadata updated")
    assert metadata.put(RPC_KEY, b"X") == (200, b"metadata unchanged")
    assert metadata.put(RPC_KEY, b"Y") == (400, b"Duplicate rpc_meta key not allowed")
    assert metadata.get(RPC_KEY) == (200, b"X")


def test_a_deleted_rpc_entry_takes_another_body(metadata):
    metadata.put(RPC_KEY, b"X")
    assert metadata.delete(RPC_KEY) == (200, b"metadata deleted")
    assert metadata.put(RPC_KEY, b"Y") == (200, b"metadata updated")
    assert metadata.get(RPC_KEY) == (200, b"Y")


def test_other_entries_are_replaced(metadata):
    assert metadata.put(RAM_KEY, b"X") == (200, b"metadata updated")
    assert metadata.put(RAM_KEY, b"Y") == (200, b"metadata updated")
    assert metadata.get(RAM_KEY) == (200, b"Y")


def test_what_is_not_there_is_not_found(metadata):
    assert metadata.get(RAM_KEY) == (404, b"metadata not found")
    assert metadata.delete(RAM_KEY) == (404, b"metadata not found")


@pytest.mark.parametrize("body", [b"", b'{"name": "a",\n "addr": 18446744073709551615}', bytes(range(256)) * 17,
                                  b"%41+%zz", b"z" * (2 << 20)], ids=["empty", "json", "binary", "escapes", "2 MiB"])
def test_get_returns_the_body_byte_for_byte(metadata, body):
    assert metadata.put(RAM_KEY, body)[0] == 200
    assert metadata.get(RAM_KEY) == (200, body)


# ---- Keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("query", ["", "?", "?key", "?key=", "?key=%20%20", "?key=+", "?kex=a"])
def test_an_absent_or_blank_key_is_refused(metadata, verb, query):
    status, body, _ = metadata.request(verb, f"/metadata{query}", b"body" if verb == "PUT" else None)
    assert (status, body) == (400, b"metadata key is required")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("key", ["%", "a%2", "a%g1"])
def test_a_malformed_escape_is_refused(metadata, verb, key):
    status, body, _ = metadata.request(verb, f"/metadata?key={key}", b"body" if verb == "PUT" else None)
    assert status == 400 and b"two hexadecimal digits" in body


@pytest.mark.parametrize("key", ["mooncake/ram/узел/节点/🔑", "a+b", "50%41", "a&key=b#c?d", "k" * 4096, "鍵" * 1365,
                                 "two words", "a\0b", "[fe80::1%eth0]:12345"],
                         ids=["utf-8", "plus", "percent", "delimiters", "4 KiB", "4 KiB of utf-8", "space", "nul",
                              "ipv6"])
def test_any_text_is_a_key(metadata, key):
    assert metadata.get(key) == (404, b"metadata not found")
    assert metadata.put(key, key.encode()) == (200, b"metadata updated")
    assert metadata.get(key) == (200, key.encode())
    assert metadata.delete(key) == (200, b"metadata deleted")
    assert metadata.get(key) == (404, b"metadata not found")


@pytest.mark.parametrize("one, other, equal", [
    ("mooncake%2Fram%2Fhost%3A1", "mooncake/ram/host:1", True),
    ("mooncake%2fram%2fhost%3a1", "mooncake%2Fram%2Fhost%3A1", True),
    ("a+b", "a%20b", True),
    ("a+b", "a%2Bb", False),
    ("%2541", "A", False),
    ("%2541", "%41", False),
    ("%252F", "/", False),
    ("%20a%20", "a", True),
    ("a", "A", False),
], ids=lambda value: str(value))
def test_keys_are_decoded_once(metadata, one, other, equal):
    assert metadata.request("PUT", f"/metadata?key={one}", b"value")[0] == 200
    status, body, _ = metadata.request("GET", f"/metadata?key={other}")
    assert (status, body) == ((200, b"value") if equal else (404, b"metadata not found"))
    assert metadata.request("DELETE", f"/metadata?key={one}")[0] == 200


def test_a_key_longer_than_a_request_may_be_is_refused(metadata):
    status, body = metadata.put("k" * (64 << 10), b"value")
    assert status == 431 and b"65536" in body


# ---- Several at once ----------------------------------------------------------------------------------------------


def put_at_once(metadata, key, bodies):
    """The answers, in the order of `bodies`; every writer has its connection before any sends."""
    barrier = threading.Barrier(len(bodies))

    def write(body):
        connection = metadata.connect()
        connection.connect()
        barrier.wait(TIMEOUT_S)
        connection.request("PUT", f"/metadata?key={urllib.parse.quote(key, safe='')}", body)
        answer = connection.getresponse()
        result = answer.status, answer.read()
        connection.close()
        return result

    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(write, bodies))


def test_of_two_writers_at_once_one_gets_the_rpc_entry(metadata):
    bodies = [b"x" * 1000, b"y" * 70_000]
    for _ in range(30):
        answers = put_at_once(metadata, RPC_KEY, bodies)
        assert sorted(answers) == [(200, b"metadata updated"), (400, b"Duplicate rpc_meta key not allowed")]
        winner = answers.index((200, b"metadata updated"))
        assert metadata.get(RPC_KEY) == (200, bodies[winner])
        metadata.delete(RPC_KEY)


def test_of_two_writers_at_once_one_body_stays_whole(metadata):
    bodies = [b"x" * 1000, b"y" * 70_000]
    for _ in range(30):
        assert put_at_once(metadata, RAM_KEY, bodies) == [(200, b"metadata updated")] * 2
        status, body = metadata.get(RAM_KEY)
        assert status == 200 and body in bodies


# ---- Everything else of HTTP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "HEAD"])
def test_other_methods_are_refused_with_those_allowed(metadata, method):
    status, _, headers = metadata.request(method, "/metadata?key=a")
    assert (status, headers["Allow"]) == (405, "GET, PUT, DELETE")


def test_health_says_ok(metadata):
    assert metadata.request("GET", "/health")[:2] == (200, b"OK")
    assert metadata.request("HEAD", "/health")[:2] == (200, b"")


@pytest.mark.parametrize("path", ["/", "/metadata/", "/metadata/a", "/metrics", "/healthz"])
def test_other_paths_are_not_there(metadata, path):
    assert metadata.request("GET", path)[0] == 404


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(metadata):
    connection = metadata.connect()
    connection.putrequest("PUT", "/metadata?key=a")
    connection.putheader("Content-Length", str((8 << 20) + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413 and str(8 << 20).encode() in answer.read()
    connection.close()
    assert metadata.get("a") == (404, b"metadata not found")


def test_one_connection_carries_many_requests(metadata):
    connection = metadata.connect()
    for number in range(20):
        connection.request("PUT", f"/metadata?key={RAM_KEY}", b"%d" % number)
        assert connection.getresponse().read() == b"metadata updated"
        connection.request("GET", f"/metadata?key={RAM_KEY}")
        assert connection.getresponse().read() == b"%d" % number
    connection.close()


# ---- The process --------------------------------------------------------------------------------------------------


def test_it_is_the_command_under_another_name(bin_dir):
    for flag in ("--help", "--version"):
        link, command = run(bin_dir, flag), run(bin_dir, "http-metadata-server", flag, program="nano-mooncake")
        assert (link.returncode, link.stdout) == (0, command.stdout)
    assert "http-metadata-server" in run(bin_dir, "--help", program="nano-mooncake").stdout


def test_help_tells_flags_defaults_and_who_reaches_it(bin_dir):
    text = " ".join(run(bin_dir, "--help").stdout.split())
    for part in ("--host ADDRESS", "Default: 127.0.0.1.", "0.0.0.0", "--port N", "Default: 8080.", "Exit codes:",
                 "Example:"):
        assert part in text


def test_it_listens_on_loopback_and_says_where(start_program):
    server = start_program(PROGRAM)
    assert server.url.startswith("http://127.0.0.1:") and not server.url.endswith(":0")
    assert any(f"{server.url}/metadata" in line for line in server.log)


def test_flags_take_both_spellings(start_program):
    server = start_program(PROGRAM, "--host=127.0.0.2", "--log_level", "INFO", "--quiet")
    assert server.url.startswith("http://127.0.0.2:")
    assert server.log == [f"ready {server.url}\n"]


def test_the_address_of_the_api_server_is_not_this_ones(start_program):
    server = start_program(PROGRAM, environment={"NANO_MOONCAKE_HOST": "0.0.0.0", "NANO_MOONCAKE_PORT": "1"})
    assert server.url.startswith("http://127.0.0.1:")
    assert not any("NANO_MOONCAKE" in line for line in server.log)


def test_beyond_loopback_it_warns(start_program):
    assert any("whoever reaches 0.0.0.0" in line for line in start_program(PROGRAM, "--host", "0.0.0.0").log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_though_a_connection_is_open(start_program, number):
    server = start_program(PROGRAM)
    connection = Client(server.url).connect()
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b"OK"
    server.process.send_signal(number)
    assert server.wait() == 0
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        Client(server.url).get("a")


def test_a_restart_starts_empty(start_program):
    server = start_program(PROGRAM)
    assert Client(server.url).put("a", b"1") == (200, b"metadata updated")
    server.terminate()
    assert server.wait() == 0
    assert Client(start_program(PROGRAM).url).get("a") == (404, b"metadata not found")


def test_a_port_in_use_is_one_line_and_exit_3(bin_dir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(bin_dir, "--port", port)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert str(port) in done.stderr and "in use" in done.stderr


@pytest.mark.parametrize("flags, message", [
    (("--port", "65536"), "--port: \"65536\": expected a whole number from 0 to 65535"),
    (("--port", "http"), "expected a whole number"),
    (("--prot", "1"), "--prot: unknown flag, did you mean --port?"),
    (("--host", "not a host"), "can't listen on host"),
    (("--log-level", "LOUD"), "expected one of"),
])
def test_a_wrong_flag_is_one_line_and_exit_2(bin_dir, flags, message):
    done = run(bin_dir, *flags)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
