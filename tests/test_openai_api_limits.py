"""Limits and access of the server's connections as flags set them, on the real binary."""

import contextlib
import json
import socket
import urllib.parse

import pytest
from api_client import MODEL, assert_serves, connect, get, metrics, post, post_raw, raw_stream, read_to_end, request
from waiting import eventually

LONG = {"prompt": "go on", "max_tokens": 8000, "ignore_eos": True}


def raw_connection(server, receive_buffer=None):
    address = urllib.parse.urlsplit(server.url)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect((address.hostname, address.port))
    return connection


def send_stream_request(connection, fields):
    body = json.dumps({"model": MODEL, "stream": True, **fields}).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)


def test_one_connection_too_many_is_503_with_retry_after(start_server):
    server = start_server("--max-connections", "2")
    with raw_stream(server, "/v1/completions", LONG) as first, raw_stream(server, "/v1/completions", LONG) as second:
        next(first), next(second)
        status, headers, body = request(server, "GET", "/healthz")
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        assert "all 2 connections are taken" in json.loads(body)["error"]["message"]
    eventually(lambda: request(server, "GET", "/healthz")[0] == 200, "room for another")
    assert_serves(server)


def test_large_bodies_and_headers_are_refused_at_their_limits(start_server):
    server = start_server("--max-body-bytes", "2KiB", "--max-header-bytes", "1KiB")

    def body_of(size):
        body = json.dumps({"prompt": "", "max_tokens": 1}).encode()
        return body.replace(b'""', b'"' + b"a" * (size - len(body)) + b'"')

    assert post_raw(server, "/v1/completions", body_of(2048))[0] == 200
    status, _, body = post_raw(server, "/v1/completions", body_of(2049))
    assert status == 413 and "2048 bytes" in json.loads(body)["error"]["message"]
    status, _, body = post_raw(server, "/v1/completions", body_of(100), {"X-Long": "x" * 1024})
    assert status == 431 and "1024 bytes" in json.loads(body)["error"]["message"]
    assert_serves(server)


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(start_server):
    server = start_server("--idle-timeout-s", "1", "--heartbeat-s", "1", "--max-running", "1")
    connection = connect(server)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    with contextlib.ExitStack() as ahead, raw_connection(server) as waiting:
        for _ in range(30):  # more than a second of work
            ahead.enter_context(raw_stream(server, "/v1/completions", LONG))
        send_stream_request(waiting, LONG)
        assert connection.sock.recv(1) == b""  # its second is over
        received = b""
        while b": keep-alive\n\n" not in received:
            more = waiting.recv(4096)
            assert more, received
            received += more
        assert b"data:" not in received
    connection.close()


def test_a_slow_reader_is_cut_off_and_no_other_is_slowed(start_server):
    server = start_server("--max-unsent-bytes", "64KiB")
    fields = {"prompt": "much to read", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
    solo = post(server, "/v1/completions", fields)[1]["choices"][0]["text"]
    with raw_connection(server, receive_buffer=4096) as slow:
        send_stream_request(slow, {**fields, "max_tokens": 8000, "logprobs": 20})
        with raw_stream(server, "/v1/completions", fields) as events:
            events = list(events)
        assert events[-1] == "[DONE]"
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == solo
        eventually(lambda: metrics(server)["requests"]["cancelled"] == 1, "the slow reader is cut off")
        assert b"[DONE]" not in read_to_end(slow)  # nobody takes it for the whole


def test_a_reader_within_the_limit_may_take_its_time(start_server):
    server = start_server("--max-unsent-bytes", "64MiB")
    fields = {"prompt": "much to read", "max_tokens": 2000, "temperature": 0, "ignore_eos": True, "logprobs": 20}
    with raw_connection(server, receive_buffer=4096) as slow:
        send_stream_request(slow, fields)
        with raw_stream(server, "/v1/completions", fields) as events:
            assert list(events)[-1] == "[DONE]"
        eventually(lambda: metrics(server)["requests"]["finished"] == 2, "both are computed")
        received = b""
        while b"[DONE]" not in received[-64:]:
            more = slow.recv(65536)
            assert more, received[-64:]
            received += more
    assert received.count(b"data: ") == 2001


def ended(server):
    requests = metrics(server)["requests"]
    return requests["finished"] + requests["cancelled"]


def has_kernel_state(server, connection):
    """Whether the kernel still keeps the server's end of a connection, and with it what was not read."""
    ends = f":{urllib.parse.urlsplit(server.url).port:04X}", f":{connection.getsockname()[1]:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(local.endswith(ends[0]) and remote.endswith(ends[1])
                   for _, local, remote, *_ in (row.split() for row in table))


def test_a_client_that_reads_nothing_is_cut_off_in_time(start_server):
    server = start_server("--max-unsent-bytes", "1GiB", "--write-timeout-s", "1")

    with raw_connection(server, receive_buffer=4096) as still:
        send_stream_request(still, {**LONG, "logprobs": 20})
        # Ended first: a request that the server hasn't met yet holds nothing, either.
        eventually(lambda: ended(server) == 1, "computed or given up")
        eventually(lambda: not has_kernel_state(server, still), "cut off")
        assert b"[DONE]" not in read_to_end(still)


def test_a_request_that_waits_too_long_may_come_again(start_server):
    server = start_server("--max-running", "1", "--queue-timeout-s", "0.05")
    with raw_stream(server, "/v1/completions", LONG) as running:
        next(running)
        status, headers, body = post_raw(server, "/v1/completions", b'{"prompt": "in a hurry"}')
        assert status == 503, body
        assert int(headers["Retry-After"]) >= 1
        assert "queue" in json.loads(body)["error"]["message"]
        with raw_stream(server, "/v1/completions", {"prompt": "in a hurry"}) as waiting:
            event = next(waiting)
            assert event["error"]["code"] == 503
            assert list(waiting) == []
    assert_serves(server)


def test_the_key_may_come_from_a_file(start_server, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    server = start_server("--api-key-file", tmp_path / "key")
    assert get(server, "/v1/models")[0] == 401
    assert request(server, "GET", "/v1/models", headers={"Authorization": "Bearer sesame"})[0] == 200


def test_pages_of_named_origins_may_read_answers(start_server):
    server = start_server("--cors-origin", "https://a.example,http://localhost:3000")
    for origin, allowed in (("https://a.example", True), ("http://localhost:3000", True), ("https://b.example", False)):
        _, headers, _ = request(server, "GET", "/v1/models", headers={"Origin": origin})
        assert headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)
        asks = {"Origin": origin, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type"}
        status, headers, body = request(server, "OPTIONS", "/v1/chat/completions", headers=asks)
        assert (status == 200 and body == b"") == allowed
        assert ("Access-Control-Allow-Headers" in headers) == allowed


@pytest.mark.parametrize("page", ["https://a.example", "*"])
def test_without_the_flag_no_page_may(server, page):
    assert "Access-Control-Allow-Origin" not in request(server, "GET", "/v1/models", headers={"Origin": page})[1]
