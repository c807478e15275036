"""The server as clients of the OpenAI API meet it: the real binary, the real `openai` package, and raw bytes where that
package is too polite."""

import concurrent.futures
import contextlib
import json
import subprocess
import threading
import urllib.parse

import openai
import pytest
from api_client import (MODEL, assert_serves, client_of, connect, get, is_at_rest, metrics, post, post_raw, raw_stream)
from waiting import eventually


@pytest.fixture
def client(server):
    with client_of(server) as made:
        yield made


# Answers


def test_chat(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Explain KV-cache-aware scheduling."}], max_tokens=8)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert isinstance(answer.choices[0].message.content, str)
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert 1 <= answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_completions_in_all_forms_of_prompts(client):
    def create(prompt):
        return client.completions.create(model=MODEL, prompt=prompt, max_tokens=6, temperature=0,
                                         extra_body={"ignore_eos": True})

    text = create("abc")
    assert text.usage.prompt_tokens == 3
    assert text.usage.completion_tokens == 6
    assert text.choices[0].finish_reason == "length"
    several = create(["abc", "xyz"])
    assert [choice.index for choice in several.choices] == [0, 1]
    assert several.choices[0].text == text.choices[0].text
    assert several.usage.completion_tokens == 12
    assert create([97, 98, 99]).choices[0].text == text.choices[0].text
    assert [choice.text for choice in create([[97, 98, 99], [120, 121, 122]]).choices] == [
        choice.text for choice in several.choices]


def test_stream_equals_the_whole_answer(client):
    request = {"model": MODEL, "messages": [{"role": "user", "content": "stream me"}], "max_tokens": 40, "seed": 7,
               "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**request)
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert len(chunks) == 1 + 40 + 1  # role, one for each token, usage
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 40
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    # The prompt was computed by the first of the two.
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens


def test_usage_chunk_comes_only_on_request(server):
    for options, usage_chunks in ((None, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)):
        with raw_stream(server, "/v1/completions",
                        {"prompt": "usage", "max_tokens": 3, "ignore_eos": True, "stream_options": options}) as events:
            events = list(events)
        assert events[-1] == "[DONE]"
        chunks = events[:-1]
        assert [len(chunk["choices"]) for chunk in chunks] == [1] * 3 + [0] * usage_chunks
        for chunk in chunks[:3]:
            assert chunk.get("usage") is None


def test_seed_decides_the_answer(client):
    def text(**options):
        return client.completions.create(model=MODEL, prompt="seeds", max_tokens=30, temperature=1.5,
                                         extra_body={"ignore_eos": True}, **options).choices[0].text

    assert text(seed=1) == text(seed=1)
    assert text(seed=1) != text(seed=2)
    assert text(seed=-(2**63)) == text(seed=-(2**63))
    assert text() != text()


def test_stop_string_ends_the_answer(client):
    request = {"model": MODEL, "prompt": "stop here", "max_tokens": 60, "temperature": 0,
               "extra_body": {"ignore_eos": True}}
    full = client.completions.create(**request).choices[0].text
    stop = full[20:23]
    expected = full[:full.index(stop)]
    answer = client.completions.create(**request, stop=stop)
    assert answer.choices[0].text == expected
    assert answer.choices[0].finish_reason == "stop"
    pieces = client.completions.create(**request, stop=["\0never", stop], stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == expected


def test_cached_tokens_are_what_was_not_computed(server, client):
    prompt = "cached " * 20  # 140 tokens: 8 full blocks of 16 and a part of one

    def create(text):
        before = metrics(server)["counters"]["computed_tokens"]
        answer = client.completions.create(model=MODEL, prompt=text, max_tokens=4, temperature=0,
                                           extra_body={"ignore_eos": True})
        computed = metrics(server)["counters"]["computed_tokens"] - before
        cached = answer.usage.prompt_tokens_details.cached_tokens
        assert cached == answer.usage.prompt_tokens - computed
        return cached, answer.choices[0].text

    cold, cold_text = create(prompt)
    exact, exact_text = create(prompt)
    longer, _ = create(prompt + "and more")
    assert (cold, exact, longer) == (0, 140, 128)
    assert exact_text == cold_text
    salted = client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, extra_body={"cache_salt": "other"})
    assert salted.usage.prompt_tokens_details.cached_tokens == 0  # another tenant's KV is not shared


def test_models_health_and_unknown_paths(server, client):
    listed = client.models.list().data
    assert [model.id for model in listed] == [MODEL]
    status, health = get(server, "/healthz")
    assert (status, health["status"]) == (200, "ok")
    assert get(server, "/health") == (200, None)
    status, error = get(server, "/v1/nothing")
    assert status == 404 and error["error"]["type"] == "NotFoundError"
    status, error = get(server, "/v1/completions")
    assert status == 405 and error["error"]["type"] == "MethodNotAllowedError"
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        client.completions.create(model="gpt-x", prompt="a")


def test_metrics_have_their_fixed_names(server):
    document = metrics(server)
    assert document["schema"] == "nano-mooncake/metrics/v1"
    assert set(document) >= {"mode", "reuse", "transfer", "queue", "requests", "pool", "tiers", "latency", "workers",
                             "counters"}
    assert set(document["pool"]) >= {"blocks_total", "blocks_free", "blocks_pinned", "blocks_cached"}
    assert document["pool"]["blocks_total"] > 0
    assert set(document["workers"][0]) >= {"name", "role", "pid", "state", "restarts", "queued", "running",
                                           "utilization"}
    assert document["counters"]["leaked_handles"] == 0


# Bad input


BAD_FIELDS = [
    ("max_tokens", [0, -1, 1.5, "5", True, False, [], {}]),
    ("temperature", [-1, 1e308, "1", True]),
    ("top_p", [0, -1, 1.5, "1"]),
    ("top_k", [-2, 0.5, "1"]),
    ("n", [0, -1, 1.5, 257, "1"]),
    ("seed", [1.5, "1", 2**63]),
    ("stop", ["", [""], 1, [1]]),
    ("stream", [1, "true"]),
    ("stream_options", [{"include_usage": True}, 1]),
    ("cache_salt", [1, "x" * 1025]),
    ("logprobs", [21, "yes"]),
    ("stop_token_ids", [5, [-1], [10**6]]),
    ("min_tokens", [-1, "1"]),
    ("min_p", [-0.1, 1.1]),
    ("tools", [[{"type": "function"}]]),
    ("response_format", [{"type": "json_object"}]),
    ("logit_bias", [{"5": 101}, {"x": 1}, {str(10**6): 1}, []]),
    ("frequency_penalty", [2.5]),
    ("presence_penalty", ["1"]),
    ("repetition_penalty", [0]),
]
BAD_CASES = [
    *[("/v1/completions", name, {"prompt": "a", name: value}) for name, values in BAD_FIELDS for value in values
      if name != "tools"],
    *[("/v1/chat/completions", name, {"messages": [{"role": "user", "content": "a"}], name: value})
      for name, values in BAD_FIELDS for value in values],
    ("/v1/chat/completions", "max_completion_tokens",
     {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 0}),
    *[("/v1/completions", "prompt", fields) for fields in (
        {}, {"prompt": []}, {"prompt": ""}, {"prompt": 5}, {"prompt": [[]]}, {"prompt": [1, "a"]}, {"prompt": [-1]},
        {"prompt": [1000000]}, {"prompt": "a" * 9000})],
    *[("/v1/chat/completions", "messages", fields) for fields in (
        {}, {"messages": []}, {"messages": "hi"}, {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user"}]}, {"messages": [{"role": "robot", "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "a" * 9000}]})],
]


@pytest.mark.parametrize("path, param, fields", BAD_CASES,
                         ids=[f"{path.split('/')[2]}-{json.dumps(fields)[:60]}" for path, _, fields in BAD_CASES])
def test_bad_parameters_are_refused_by_name(server, path, param, fields):
    status, answer = post(server, path, fields)
    assert status == 400, answer
    assert answer["error"]["param"] == param
    assert param in answer["error"]["message"]
    assert answer["error"]["type"] == "BadRequestError"
    assert_serves(server)


def test_null_and_huge_max_tokens_mean_default_and_what_fits(server):
    cases = [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": 10**9}, 92), ({"max_tokens": 2**63}, 92)]
    for fields, tokens in cases:
        status, answer = post(server, "/v1/completions",
                              {"prompt": [97] * 8100, "ignore_eos": True, "temperature": 0, **fields})
        assert status == 200, answer
        assert answer["usage"]["completion_tokens"] == tokens


def test_too_long_a_prompt_names_both_lengths(client):
    with pytest.raises(openai.BadRequestError, match="9000 tokens.*8192"):
        client.completions.create(model=MODEL, prompt="a" * 9000)


@pytest.mark.parametrize("body", [
    b"", b"hello", b"{", b"[]", b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "\xff"}', b'{"prompt": "\xc3("}',
    b'{"prompt": "a"} x', b"\x00" * 100])
def test_what_is_not_json_is_refused_in_valid_utf8(server, body):
    status, _, answer = post_raw(server, "/v1/completions", body)
    assert status == 400
    assert json.loads(answer.decode())["error"]["type"] == "BadRequestError"
    assert_serves(server)


def test_wrong_content_type_is_refused(server):
    status, _, answer = post_raw(server, "/v1/completions", b'{"prompt": "a"}', {"Content-Type": "text/plain"})
    assert status == 400 and b"application/json" in answer


def test_lone_surrogate_escape_is_a_replacement_character(server):
    status, _, answer = post_raw(server, "/v1/completions", rb'{"prompt": "a\ud83d", "max_tokens": 1}')
    assert status == 200
    assert json.loads(answer)["usage"]["prompt_tokens"] == 4  # "a" and the three bytes of U+FFFD


def test_hostile_bodies_leave_a_running_stream_alone(server):
    fields = {"prompt": "steady", "max_tokens": 2000, "temperature": 0, "ignore_eos": True}
    with raw_stream(server, "/v1/completions", fields) as events:
        first = next(events)
        peak_before = server.memory_peak_bytes()
        for levels in (100, 1_000, 3_000, 10_000, 1_000_000):
            for opening, closing in (("[", "]"), ('{"a":', "}")):
                for field in ("x", "tools", "messages", "metadata"):
                    body = f'{{"prompt":"a","{field}":{opening * levels}0{closing * levels}}}'
                    if len(body) > 8 << 20:
                        continue
                    status, _, answer = post_raw(server, "/v1/completions", body.encode())
                    assert status == 400 and b"nesting too deep" in answer
        assert refused_upload(server, declared=1 << 30, sent=10) == 413
        assert refused_upload(server, declared=200 << 20, sent=200 << 20) == 413
        assert server.memory_peak_bytes() - peak_before < 100 << 20
        events = [first, *events]
    assert events[-1] == "[DONE]"
    assert len(events) == 2001
    assert_serves(server)


def refused_upload(server, declared, sent):
    """Status of a body of `sent` zero bytes under a header that declares `declared`."""
    connection = connect(server)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(declared))
    connection.endheaders()
    piece = b"\0" * min(sent, 1 << 20)
    try:
        for _ in range(sent // len(piece)):
            connection.send(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has answered and doesn't listen any more
    status = connection.getresponse().status
    connection.close()
    return status


# Many at once, and clients that go away


def test_closed_stream_gives_everything_back(server):
    eventually(lambda: is_at_rest(server), "at rest before")
    before = metrics(server)["requests"]
    with client_of(server) as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "go on for ever"}], stream=True,
            extra_body={"ignore_eos": True})  # to the end of the context
        for _, _ in zip(range(5), stream):
            pass
        assert metrics(server)["queue"]["running"] == 1
        stream.close()
    eventually(lambda: is_at_rest(server), "at rest after the client left")
    after = metrics(server)["requests"]
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["finished"] == before["finished"]
    assert_serves(server)


def test_client_that_leaves_while_it_waits_is_cancelled_too(server):
    before = metrics(server)["requests"]["cancelled"]
    connection = connect(server)
    body = json.dumps({"model": MODEL, "prompt": "whole answer", "max_tokens": 8000, "ignore_eos": True})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    eventually(lambda: metrics(server)["queue"]["running"] == 1, "running")
    connection.close()
    eventually(lambda: metrics(server)["requests"]["cancelled"] == before + 1 and is_at_rest(server), "cancelled")


def test_64_streams_at_once_equal_their_solo_runs(server):
    def fields(index):
        return {"prompt": f"stream number {index}", "max_tokens": 32, "seed": index, "ignore_eos": True}

    def streamed(index):
        with raw_stream(server, "/v1/completions", fields(index)) as events:
            events = list(events)
        assert events[-1] == "[DONE]"
        assert len(events) == 33
        return "".join(event["choices"][0]["text"] for event in events[:-1])

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        running = [pool.submit(streamed, index) for index in range(64)]
        while not all(future.done() for future in running):
            assert get(server, "/healthz")[0] == 200
        texts = [future.result() for future in running]
    solo = [post(server, "/v1/completions", fields(index))[1]["choices"][0]["text"] for index in range(64)]
    assert texts == solo
    eventually(lambda: is_at_rest(server), "at rest afterwards")


def test_one_clients_cancel_does_not_stop_another(start_server):
    server = start_server("--max-running", "1", "--max-queue", "8")
    fields = {"prompt": "the one that stays", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    status, solo = post(server, "/v1/completions", fields)
    assert status == 200

    texts = []
    started = threading.Event()

    def stay():
        with raw_stream(server, "/v1/completions", fields) as events:
            for event in events:
                started.set()
                texts.append(event if event == "[DONE]" else event["choices"][0]["text"])

    staying = threading.Thread(target=stay)
    staying.start()
    assert started.wait(60)
    left = 0
    while left < 20:
        connection = connect(server)
        leaving = {"model": MODEL, "prompt": f"the one that leaves {left}", "max_tokens": 50, "stream": left % 2 == 0}
        connection.request("POST", "/v1/completions", json.dumps(leaving), {"Content-Type": "application/json"})
        if left % 4 == 0:
            eventually(lambda: metrics(server)["queue"]["queued"] > 0 or not staying.is_alive(), "queued")
        connection.close()
        left += 1
    staying.join(120)
    assert texts[-1] == "[DONE]"
    assert len(texts) == 401
    assert "".join(texts[:-1]) == solo["choices"][0]["text"]
    eventually(lambda: is_at_rest(server), "at rest afterwards")
    counted = metrics(server)["requests"]
    assert counted["finished"] >= 2 and counted["cancelled"] <= 20 and counted["failed"] == 0
    assert_serves(server)


def test_full_queue_is_429_with_retry_after(start_server):
    server = start_server("--max-running", "1", "--max-queue", "1")
    fields = {"prompt": "occupy", "max_tokens": 8000, "ignore_eos": True}
    with raw_stream(server, "/v1/completions", fields) as running:
        next(running)
        with raw_stream(server, "/v1/completions", fields):
            eventually(lambda: metrics(server)["queue"]["queued"] == 1, "queued")
            status, headers, body = post_raw(server, "/v1/completions", b'{"prompt": "one too many"}')
            assert status == 429
            assert int(headers["Retry-After"]) >= 1
            assert json.loads(body)["error"]["type"] == "RateLimitError"
            with client_of(server) as client, pytest.raises(openai.RateLimitError):
                client.completions.create(model=MODEL, prompt="one too many")
    eventually(lambda: is_at_rest(server), "at rest afterwards")
    assert metrics(server)["requests"]["rejected"] == 2
    assert_serves(server)


def test_idle_streams_leave_room_for_health_checks(start_server):
    server = start_server("--max-running", "1", "--max-queue", "600")
    fields = {"prompt": "queue up", "max_tokens": 8000, "ignore_eos": True}
    with contextlib.ExitStack() as streams:
        next(streams.enter_context(raw_stream(server, "/v1/completions", fields)))
        for _ in range(200):
            streams.enter_context(raw_stream(server, "/v1/completions", fields))
        for _ in range(20):
            assert get(server, "/healthz")[0] == 200
            assert metrics(server)["queue"]["queued"] >= 190
    eventually(lambda: is_at_rest(server), "at rest afterwards")
    assert_serves(server)


# Start and stop


def test_deadline_is_504(start_server):
    server = start_server("--request-timeout-s", "0.2")
    status, answer = post(server, "/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
    assert status == 504
    assert answer["error"]["type"] == "GatewayTimeoutError"
    eventually(lambda: is_at_rest(server), "at rest afterwards")


def test_api_key_is_asked_for(start_server):
    server = start_server(environment={"NANO_MOONCAKE_API_KEY": "sesame"})
    with client_of(server) as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sesame") as client:
        assert client.models.list().data[0].id == MODEL
    assert get(server, "/healthz")[0] == 200


def test_sigterm_lets_running_answers_finish(start_server):
    server = start_server()
    fields = {"prompt": "last words", "max_tokens": 1500, "ignore_eos": True}
    with raw_stream(server, "/v1/completions", fields) as events:
        next(events)
        server.terminate()
        eventually(lambda: get(server, "/healthz")[0] == 503, "draining")
        assert post(server, "/v1/completions", {"prompt": "late"})[0] == 503
        events = list(events)
    assert events[-1] == "[DONE]"
    assert len(events) == 1500
    assert server.wait() == 0


def test_port_in_use_is_named(server, bin_dir):
    port = urllib.parse.urlsplit(server.url).port
    command = [bin_dir / "nano-mooncake-api", "--port", str(port)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode not in (0, 1)
    assert str(port) in second.stderr
    assert "ready" not in second.stderr
