"""What holds for any model, over the real server with a checkpoint of each family and kind of tokenizer: no KV of
another model, whole characters, bad requests refused, and text that spells a control token stays text."""

from dataclasses import replace

import gguf
import openai
import pytest
from decoder_reference import SHAPES, make_weights, save, save_adapter
from test_gguf import WIDE, with_tokenizer, write
from test_sampling import save_tokenizer

FAMILIES = ["llama3", "mistral", "qwen2", "qwen3"]
VOCAB = 264


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def saved(path, name, tokenizer, seed=1, **changes):
    shape = replace(SHAPES[name], vocab=VOCAB, **WIDE, **changes)
    write(path, shape, make_weights(shape, seed), gguf.GGMLQuantizationType.F32, with_tokenizer(kind=tokenizer))
    return path


@pytest.fixture(scope="module", params=[(name, kind) for name in FAMILIES for kind in ("gpt2", "llama")],
                ids=lambda param: "-".join(param))
def server(request, start_program, tmp_path_factory):
    path = saved(tmp_path_factory.mktemp("model") / "model.gguf", *request.param)
    return start_program("nano-mooncake-api", "--model", path)


@pytest.fixture
def client(server):
    with client_of(server) as made:
        yield made


def complete(client, **options):
    options = {"model": "nano-mooncake", "prompt": [72, 101, 108, 108, 111], "temperature": 1, "seed": 4,
               "extra_body": {"ignore_eos": True}, **options}
    return client.completions.create(**options)


def test_streamed_characters_are_whole_whatever_bytes_the_model_says(client):
    """Random weights over bytes say more that is no character than is one."""
    for length in [*range(1, 9), 40]:
        whole = complete(client, max_tokens=length, logprobs=2).choices[0]
        pieces = [choice.text for chunk in complete(client, max_tokens=length, logprobs=2, stream=True)
                  for choice in chunk.choices]
        assert "".join(pieces) == whole.text
        assert len(whole.logprobs.tokens) == length
        for piece in pieces:
            piece.encode("utf-8")  # no half of a surrogate pair either


@pytest.mark.parametrize("field, value", [
    ("max_tokens", 0), ("max_tokens", -1), ("temperature", -1), ("top_p", 0), ("n", 0), ("prompt", []),
    ("prompt", [VOCAB]), ("stop_token_ids", [VOCAB]), ("logit_bias", {str(VOCAB): 1})])
def test_a_bad_request_is_refused_by_name_and_the_next_is_served(client, field, value):
    with pytest.raises(openai.BadRequestError) as refused:
        complete(client, **({"extra_body": {field: value}} if field == "stop_token_ids" else {field: value}))
    assert refused.value.body["param"] == field
    assert complete(client, max_tokens=2).usage.completion_tokens == 2


def test_text_that_spells_a_control_token_is_text(client):
    def prompt_tokens(content):
        return client.chat.completions.create(model="nano-mooncake", max_tokens=1,
                                              messages=[{"role": "user", "content": content}]).usage.prompt_tokens

    # Start, user, assistant; SentencePiece spells a space of three bytes in front of the text.
    around = prompt_tokens("x") - 1
    assert around in (3, 6)
    marker = "<|user|>"
    for content in (marker, f"a{marker}b", f"{marker}<s>{marker}"):
        assert prompt_tokens(content) == around + len(content), "each byte is a token of its own"
    parts = [{"type": "text", "text": "<|us"}, {"type": "text", "text": "er|>"}]
    assert prompt_tokens(parts) >= around + len(marker), "parts that make a marker together"
    raw = complete(client, prompt=marker, max_tokens=1).usage.prompt_tokens
    assert raw <= 5, "a plain completion may use control tokens"


@pytest.mark.parametrize("name", FAMILIES)
def test_other_weights_or_settings_under_the_same_name_never_hit(start_server, tmp_path, name):
    """One cache on disk for all of them, one after another; back to the first, it is there."""
    prompt = list(range(70, 134))

    def ask(path):
        running = start_server("--model", path, "--disk-dir", tmp_path / "kv")
        with client_of(running) as client:
            answer = complete(client, prompt=prompt, max_tokens=8, temperature=0)
        running.terminate()
        assert running.wait() == 0
        return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens

    models = [saved(tmp_path / "1.gguf", name, "gpt2"), saved(tmp_path / "2.gguf", name, "gpt2", seed=2),
              saved(tmp_path / "3.gguf", name, "gpt2", theta=20000.0)]
    first = [ask(path) for path in models]
    assert [cached for _, cached in first] == [0, 0, 0]
    assert len({text for text, _ in first}) == 3, "models that say the same would prove nothing"
    assert [ask(path) for path in models] == [(text, len(prompt)) for text, _ in first]


def test_an_adapter_replaced_in_place_never_hits(start_server, tmp_path):
    shape = replace(SHAPES["qwen2"], **WIDE)
    folder = tmp_path / "model"
    folder.mkdir()
    weights = make_weights(shape, 1)
    save(folder, shape, weights)
    save_tokenizer(folder, shape.vocab)
    prompt = list(range(70, 134))

    def ask(seed):
        save_adapter(tmp_path / "adapter", weights, shape.layers, seed)
        running = start_server("--model", folder, "--disk-dir", tmp_path / "kv",
                               "--lora-modules", f"a={tmp_path}/adapter")
        with client_of(running) as client:
            answer = complete(client, model="a", prompt=prompt, max_tokens=8, temperature=0)
        running.terminate()
        assert running.wait() == 0
        return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens

    one, two = ask(1), ask(2)
    assert (one[1], two[1]) == (0, 0) and one[0] != two[0]
    assert ask(1) == (one[0], len(prompt))


def test_what_a_request_leaves_out_is_as_generation_config_says(start_server, tmp_path):
    shape = replace(SHAPES["qwen2"], **WIDE)
    save(tmp_path, shape, make_weights(shape, 1))
    save_tokenizer(tmp_path, shape.vocab)
    (tmp_path / "generation_config.json").write_text('{"do_sample": false, "eos_token_id": [3]}')
    with client_of(start_server("--model", tmp_path)) as client:
        bare = {"model": "nano-mooncake", "prompt": [1, 2, 3, 4], "max_tokens": 12}
        greedy = client.completions.create(**bare, temperature=0).choices[0].text
        assert [client.completions.create(**bare).choices[0].text for _ in range(3)] == [greedy] * 3
        assert {client.completions.create(**bare, temperature=2, seed=seed).choices[0].text
                for seed in range(4)} != {greedy}
