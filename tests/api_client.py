"""How tests talk to a running nano-mooncake-api: plain HTTP, JSON and raw streams."""

import contextlib
import http.client
import json
import urllib.parse

import openai

MODEL = "nano-mooncake"


def client_of(server, **options):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120, **options)


def connect(server):
    address = urllib.parse.urlsplit(server.url)
    return http.client.HTTPConnection(address.hostname, address.port, timeout=120)


def request(server, method, path, body=None, headers=None):
    """Status, headers, body."""
    connection = connect(server)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return result


def get(server, path):
    """Status and JSON body."""
    status, _, body = request(server, "GET", path)
    return status, json.loads(body) if body else None


def post_raw(server, path, body, headers=None):
    """Status, headers, body."""
    return request(server, "POST", path, body, {"Content-Type": "application/json", **(headers or {})})


def post(server, path, fields):
    status, _, body = post_raw(server, path, json.dumps({"model": MODEL, **fields}).encode())
    return status, json.loads(body)


def metrics(server):
    status, document = get(server, "/v1/metrics")
    assert status == 200
    return document


def is_at_rest(server):
    """No request, no slot and no block is in use."""
    now = metrics(server)
    return (now["queue"]["queued"], now["queue"]["running"]) == (0, 0) and (
        now["pool"]["blocks_reserved"], now["pool"]["blocks_pinned"]) == (0, 0)


def events_of(answer):
    """The events of a streamed answer, each parsed as it comes; "[DONE]" as that string."""
    for line in answer:
        line = line.decode()  # raises on anything that isn't UTF-8
        if line.startswith("data: "):
            data = line[len("data: "):].strip()
            yield data if data == "[DONE]" else json.loads(data)


@contextlib.contextmanager
def raw_stream(server, path, fields):
    connection = connect(server)
    body = json.dumps({"model": MODEL, "stream": True, **fields})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    try:
        yield events_of(answer)
    finally:
        answer.close()
        connection.close()


def assert_serves(server):
    fields = {"prompt": "good", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    status, answer = post(server, "/v1/completions", fields)
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] == 2


def read_to_end(connection):
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            received += more
    return received
