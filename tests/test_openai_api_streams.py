"""Streams as the `openai` package reads them: usage where it was asked for, clients that leave one another alone."""

import contextlib
import json

import openai
import pytest
from api_client import MODEL, assert_serves, client_of, connect, is_at_rest, metrics, post, raw_stream
from waiting import eventually

FIELDS = {"prompt": "usage of a stream", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def client(server):
    with client_of(server) as made:
        yield made


def test_usage_of_a_stream_is_that_of_the_whole_answer(server, client):
    request = {"model": MODEL, "prompt": FIELDS["prompt"], "max_tokens": 6, "temperature": 0, "n": 2,
               "extra_body": {"ignore_eos": True}}
    client.completions.create(**request)  # warm: what is cached is then the same for both
    whole = client.completions.create(**request).usage
    chunks = list(client.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks[:-1])
    assert {chunk.choices[0].index for chunk in chunks[:-1]} == {0, 1}
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole
    assert whole.prompt_tokens_details.cached_tokens == whole.prompt_tokens == len(FIELDS["prompt"])
    assert whole.completion_tokens == 12


def test_without_the_option_every_chunk_has_a_choice(client):
    for options in ({}, {"stream_options": {"include_usage": False}}):
        chunks = list(client.completions.create(model=MODEL, prompt="plain", max_tokens=4, n=2, stream=True,
                                                extra_body={"ignore_eos": True}, **options))
        assert len(chunks) == 8
        assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_a_client_that_stops_early_is_not_told_more(server, client):
    before = metrics(server)["requests"]
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "stop early"}], stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(3), stream):
        assert chunk.usage is None and len(chunk.choices) == 1
    stream.close()
    eventually(lambda: is_at_rest(server), "at rest")
    after = metrics(server)["requests"]
    assert (after["cancelled"], after["finished"]) == (before["cancelled"] + 1, before["finished"])


def test_options_of_a_stream_without_one_are_refused(client):
    for create, prompt in ((client.completions.create, {"prompt": "a"}),
                           (client.chat.completions.create, {"messages": [{"role": "user", "content": "a"}]})):
        with pytest.raises(openai.BadRequestError, match="stream_options") as refused:
            create(model=MODEL, max_tokens=1, stream_options={"include_usage": True}, **prompt)
        assert refused.value.param == "stream_options"


def test_a_cancel_as_one_ends_and_the_next_begins_is_the_next_ones_own(start_server):
    server = start_server("--max-running", "1")
    solo = post(server, "/v1/completions", FIELDS)[1]["choices"][0]["text"]
    left = 0
    for seen_before_leaving in [1, 3, 5, 6, 7] * 4:
        with raw_stream(server, "/v1/completions", FIELDS) as events, contextlib.closing(connect(server)) as leaving:
            texts = [next(events)["choices"][0]["text"]]
            leaving.request("POST", "/v1/completions", json.dumps({"model": MODEL, "prompt": "next", "max_tokens": 9}),
                            {"Content-Type": "application/json"})
            while len(texts) < seen_before_leaving:
                event = next(events)
                texts.append(event if event == "[DONE]" else event["choices"][0]["text"])
            leaving.close()
            left += 1
            texts += [event if event == "[DONE]" else event["choices"][0]["text"] for event in events]
        assert texts[-1] == "[DONE]"
        assert "".join(texts[:-1]) == solo
        assert_serves(server)
    eventually(lambda: is_at_rest(server), "at rest")
    counted = metrics(server)["requests"]
    assert counted["failed"] == 0
    assert counted["finished"] + counted["cancelled"] == counted["received"] == 1 + 3 * left
    assert counted["cancelled"] <= left
