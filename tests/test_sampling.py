"""How tokens are drawn, and adapters beside their base, as the real `openai` package meets them."""

import json
import math
import subprocess

import openai
import pytest
from decoder_reference import SHAPES, make_weights, save, save_adapter
from tokenizers import pre_tokenizers

MODEL = "nano-mooncake"


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture
def client(server):
    with client_of(server) as made:
        yield made


def complete(client, prompt="once upon a time", **options):
    extra = {name: options.pop(name) for name in list(options)
             if name in ("top_k", "min_p", "repetition_penalty", "stop_token_ids", "min_tokens", "ignore_eos")}
    options = {"model": MODEL, "max_tokens": 24, "temperature": 0, **options}
    return client.completions.create(prompt=prompt, extra_body=extra, **options)


def test_n_answers_share_one_prompt_and_the_first_is_what_it_is_alone(client):
    alone = complete(client, temperature=1, seed=7).choices[0].text
    answer = complete(client, temperature=1, seed=7, n=4)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == alone
    assert len({c.text for c in answer.choices}) > 1
    assert answer.usage.prompt_tokens == len("once upon a time")
    assert answer.usage.completion_tokens == 4 * 24
    again = complete(client, temperature=1, seed=7, n=4)
    assert [c.text for c in again.choices] == [c.text for c in answer.choices]


def test_n_answers_stream_as_they_are_whole(client):
    whole = complete(client, temperature=1, seed=3, n=3)
    texts = ["", "", ""]
    for chunk in complete(client, temperature=1, seed=3, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in whole.choices]


def test_logit_bias_forces_and_bans(client):
    forced = complete(client, logit_bias={str(ord("q")): 100}, max_tokens=5)
    assert forced.choices[0].text == "qqqqq"
    free = complete(client).choices[0].text
    banned = complete(client, logit_bias={str(byte): -100 for byte in set(free.encode())}).choices[0].text
    assert not set(free) & set(banned)


def test_penalties_make_an_answer_repeat_itself_less(client):
    def distinct(**options):
        return len(set(complete(client, max_tokens=60, **options).choices[0].text))

    plain = distinct()
    assert distinct(frequency_penalty=2) > plain
    assert distinct(presence_penalty=2) >= plain
    assert distinct(repetition_penalty=2) >= plain


def test_min_p_of_one_is_greedy(client):
    assert complete(client, temperature=1, seed=1, min_p=1.0).choices[0].text == complete(client).choices[0].text


def test_stop_tokens_end_an_answer_and_min_tokens_hold_them_off(client):
    free = complete(client).choices[0].text
    stop = ord(free[6])
    ended = complete(client, stop_token_ids=[stop]).choices[0]
    assert ended.text == free[:free.index(free[6])]
    assert (ended.finish_reason, ended.model_extra["stop_reason"]) == ("stop", stop)
    held = complete(client, stop_token_ids=[stop], min_tokens=12)
    assert held.usage.completion_tokens > 12 or chr(stop) not in held.choices[0].text


def test_logprobs_are_those_of_the_answers_own_tokens(client):
    logprobs = complete(client, logprobs=3, max_tokens=8).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 8
    for token, own, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert own == max(top.values()), "greedy takes the likeliest"
        assert top[token] == own and len(top) == 3
        assert sum(math.exp(value) for value in top.values()) <= 1.0001

    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=6,
                                          temperature=0, logprobs=True, top_logprobs=20)
    content = chat.choices[0].logprobs.content
    assert len(content) == 6
    assert "".join(bytes(t.bytes).decode("utf8", "replace") for t in content) == chat.choices[0].message.content
    assert all(len(t.top_logprobs) == 20 and t.top_logprobs[0].logprob == t.logprob for t in content)

    streamed = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=6,
                                              temperature=0, logprobs=True, top_logprobs=20, stream=True)
    entries = [t for chunk in streamed if chunk.choices and chunk.choices[0].logprobs
               for t in chunk.choices[0].logprobs.content]
    assert entries == content


# Adapters


def saved_model(folder):
    shape = SHAPES["gqa"]
    weights = make_weights(shape, 1)
    folder.mkdir()
    save(folder, shape, weights)
    save_tokenizer(folder, shape.vocab)
    for seed in (1, 2):
        save_adapter(folder.parent / f"adapter-{seed}", weights, shape.layers, seed)
    return shape


def save_tokenizer(folder, vocab):
    """Bytes, each a token of its own."""


    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {character: i for i, character in enumerate(alphabet[:vocab])}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                            "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": ids,
                  "merges": []}}))


def test_adapters_are_models_of_their_own_that_share_no_cache(start_server, tmp_path):
    folder = tmp_path / "model"
    saved_model(folder)
    modules = ",".join(f"lora-{seed}={tmp_path}/adapter-{seed}" for seed in (1, 2))
    prompt = list(range(40))

    def ask(server, model):
        with client_of(server) as client:
            answer = client.completions.create(model=model, prompt=prompt, max_tokens=12, temperature=0)
            return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens, answer.model

    without = start_server("--model", folder, "--reuse", "none", "--lora-modules", modules)
    names = ["nano-mooncake", "lora-1", "lora-2"]
    want = {name: ask(without, name)[0] for name in names}
    assert len(set(want.values())) == 3, "adapters that change nothing would prove nothing"

    server = start_server("--model", folder, "--lora-modules", modules)
    with client_of(server) as client:
        listed = list(client.models.list())
        assert [m.id for m in listed] == names
        assert [m.model_extra["parent"] for m in listed] == [None, "nano-mooncake", "nano-mooncake"]
    for name in names:
        assert ask(server, name) == (want[name], 0, name), "nobody else's blocks"
    for name in names:
        assert ask(server, name) == (want[name], len(prompt), name), "its own"


@pytest.mark.parametrize("modules, expected", [
    ("lora", "NAME=DIR"), ("=x", "NAME=DIR"), ("a=", "NAME=DIR"),
    ("a={0}/adapter-1,a={0}/adapter-2", "the name a is taken"),
    ("nano-mooncake={0}/adapter-1", "the name nano-mooncake is taken"), ("a={0}/nothing", "adapter_config.json")])
def test_adapters_that_cant_be_served_are_refused_at_start(bin_dir, tmp_path, modules, expected):
    saved_model(tmp_path / "model")
    run = subprocess.run([str(bin_dir / "nano-mooncake-api"), "--port", "0", "--model", str(tmp_path / "model"),
                          "--lora-modules", modules.format(tmp_path)], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "--lora-modules" in run.stderr or "adapter" in run.stderr
    assert expected in run.stderr
