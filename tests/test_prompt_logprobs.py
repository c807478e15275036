"""What the model makes of a prompt's own tokens, as the real `openai` package meets it, in one process and several."""

import pytest
from api_client import client_of

MODEL = "nano-mooncake"
MODES = {
    "monolithic": [],
    "pd": ["--mode", "pd"],
    "pd-process": ["--mode", "pd-process", "--transfer", "tcp"],
}


@pytest.fixture(scope="module", params=MODES)
def client(request, start_program):
    server = start_program("nano-mooncake-api", *MODES[request.param])
    with client_of(server) as made:
        yield made
    server.terminate()
    assert server.wait() == 0, "".join(server.log)


def complete(client, prompt, **options):
    extra = {name: options.pop(name) for name in list(options) if name in ("prompt_logprobs", "return_token_ids")}
    return client.completions.create(
        model=MODEL, prompt=prompt, temperature=0, extra_body={"ignore_eos": True, **extra}, **options)


def test_an_answer_fed_back_as_a_prompt_is_worth_the_same(client):
    prompt = list(b"Once upon a time, in a land of caches")
    answer = complete(client, prompt, max_tokens=60, logprobs=2, return_token_ids=True).choices[0]
    said = answer.logprobs
    told = complete(client, prompt + answer.token_ids, max_tokens=1, logprobs=2, echo=True).choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(prompt) + 61
    assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
    assert told.token_logprobs[len(prompt):-1] == said.token_logprobs  # to the bit
    assert told.top_logprobs[len(prompt):-1] == said.top_logprobs
    assert told.tokens[len(prompt):-1] == said.tokens
    assert "".join(told.tokens[:len(prompt)]) == bytes(prompt).decode()
    assert told.text_offset[0] == 0 and told.text_offset[len(prompt)] == len(prompt)


def test_prompt_logprobs_are_the_echos(client):
    prompt = "The quick brown fox jumps over the lazy dog"
    echoed = complete(client, prompt, max_tokens=1, logprobs=3, echo=True).choices[0].logprobs
    choice = complete(client, prompt, max_tokens=1, prompt_logprobs=3).choices[0]
    told = choice.prompt_logprobs
    assert choice.logprobs is None
    assert len(told) == len(prompt) and told[0] is None
    for position in range(1, len(prompt)):
        own = told[position][str(ord(prompt[position]))]
        assert own["logprob"] == echoed.token_logprobs[position]
        assert own["decoded_token"] == prompt[position]
        likelier = [entry for entry in told[position].values() if entry["logprob"] > own["logprob"]]
        assert own["rank"] == len(likelier) + 1 or own["rank"] > 3 == len(likelier)
        assert sorted(entry["rank"] for entry in likelier) == list(range(1, len(likelier) + 1))


def test_a_chat_tells_them_beside_its_choices(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=2, extra_body={"prompt_logprobs": 0})
    assert len(answer.prompt_logprobs) == answer.usage.prompt_tokens
    assert all(len(entry) == 1 for entry in answer.prompt_logprobs[1:])


def test_the_whole_prompt_is_computed_for_them_and_is_there_for_others(client):
    prompt = "a prompt of its own for this test, and long enough for some blocks: " * 4
    first = complete(client, prompt, max_tokens=1, prompt_logprobs=0)
    again = complete(client, prompt, max_tokens=1, prompt_logprobs=0)
    assert again.usage.prompt_tokens_details.cached_tokens == 0
    assert again.choices[0].prompt_logprobs == first.choices[0].prompt_logprobs
    plain = complete(client, prompt, max_tokens=1)
    assert plain.usage.prompt_tokens_details.cached_tokens == len(prompt)


def test_a_stream_tells_the_echos_with_its_first_token(client):
    prompt = "streamed"
    whole = complete(client, prompt, max_tokens=3, logprobs=1, echo=True).choices[0]
    chunks = [chunk.choices[0] for chunk in complete(client, prompt, max_tokens=3, logprobs=1, echo=True, stream=True)
              if chunk.choices]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [entry for chunk in chunks if chunk.logprobs for entry in getattr(chunk.logprobs, name)]
        assert joined == getattr(whole.logprobs, name), name
