"""Our tokenizer against the Python package `tokenizers`: the same ids and the same text for generated strings, on small
byte-level tokenizers trained here with every option of theirs that we read. test_tokenizer_families.py has the rest."""

import json
import random

import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from tokenizer_corpus import SPECIALS, STRINGS, ask, byte_level, first_difference, generated_strings, save, train


def with_added_tokens():
    tokenizer = train(byte_level())
    tokenizer.add_tokens([
        AddedToken("<|tool|>", special=False, normalized=False), AddedToken("<|tool|>x", special=False),
        AddedToken("wordlike", single_word=True), AddedToken("<mask>", lstrip=True, special=True),
        AddedToken("<pad>", rstrip=True, special=True), AddedToken("<both>", lstrip=True, rstrip=True),
        AddedToken("   ", normalized=True), AddedToken("été", normalized=False), AddedToken("s>", normalized=True)])
    return tokenizer


def with_template():
    tokenizer = train(byte_level())
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])])
    return tokenizer


ADDED = ["<|tool|>", "<|tool|>x", "wordlike", "<mask>", "<pad>", "<both>", "été", "s>"]
TOKENIZERS = {
    "plain": lambda: train(byte_level()),
    "prefix_space": lambda: train(byte_level(prefix=True)),
    "no_pattern": lambda: train(byte_level(use_regex=False)),
    "individual_digits": lambda: train(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()])),
    "digit_runs_prefix_space": lambda: train(pre_tokenizers.Sequence([pre_tokenizers.Digits(False), byte_level(True)])),
    "ignore_merges": lambda: train(byte_level(), ignore_merges=True),
    "unknown": lambda: train(byte_level(), alphabet=False, unk_token="<unk>"),
    "fused_unknown": lambda: train(byte_level(), alphabet=False, unk_token="<unk>", fuse_unk=True),
    "partial_alphabet": lambda: train(byte_level(), alphabet=False),
    "added_tokens": with_added_tokens,
    "template": with_template,
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ids_and_text_equal_the_package(kind, bin_dir, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    save(tokenizer, tmp_path)
    strings = generated_strings(kind, ADDED if kind == "added_tokens" else SPECIALS)
    ours = ask(bin_dir, tmp_path, [{"encode": text} for text in strings])
    theirs = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
    assert first_difference(strings, ours, theirs) is None

    for skip in (True, False):
        texts = ask(bin_dir, tmp_path, [{"decode": ids, "skip_special": skip} for ids in theirs])
        expected = [tokenizer.decode(ids, skip_special_tokens=skip) for ids in theirs]
        assert first_difference(strings, texts, expected) is None
        pieces = ask(bin_dir, tmp_path, [{"pieces": ids, "skip_special": skip} for ids in theirs])
        assert first_difference(strings, ["".join(parts) for parts in pieces], expected) is None


@pytest.mark.parametrize("kind", ["plain", "added_tokens", "ignore_merges"])
def test_text_never_becomes_a_control_token_unless_asked(kind, bin_dir, tmp_path):
    tokenizer = TOKENIZERS[kind]()
    save(tokenizer, tmp_path)
    strings = generated_strings("control", SPECIALS + ADDED)
    ours = ask(bin_dir, tmp_path, [{"encode": text, "parse_special": False} for text in strings])
    tokenizer.encode_special_tokens = True
    theirs = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
    assert first_difference(strings, ours, theirs) is None
    special = {token["id"] for token in json.loads(tokenizer.to_str())["added_tokens"] if token["special"]}
    assert not special & {i for ids in ours for i in ids}


def test_start_token_follows_the_template(bin_dir, tmp_path):
    tokenizer = with_template()
    save(tokenizer, tmp_path)
    assert ask(bin_dir, tmp_path, [{"encode": "hi there", "add_bos": True}]) == [tokenizer.encode("hi there").ids]
    # tokenizer_config.json has the last word, as in the tokenizer classes that read add_bos_token.
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "add_bos_token": False}))
    assert ask(bin_dir, tmp_path, [{"encode": "hi there", "add_bos": True}]) == [tokenizer.encode("hi there").ids[1:]]


def test_merges_in_either_form_are_the_same(bin_dir, tmp_path):
    tokenizer = train(byte_level())
    strings = generated_strings("merges")[:300]
    answers = []
    for form in (list, " ".join):
        def change(file):
            file["model"]["merges"] = [form(m.split(" ") if isinstance(m, str) else m) for m in file["model"]["merges"]]
        save(tokenizer, tmp_path, change)
        answers.append(ask(bin_dir, tmp_path, [{"encode": text} for text in strings]))
    assert answers[0] == answers[1] == [tokenizer.encode(text).ids for text in strings]


def test_any_ids_decode_like_python(bin_dir, tmp_path):
    """Ids in random order make every kind of broken UTF-8."""
    tokenizer = train(byte_level())
    save(tokenizer, tmp_path)
    rng = random.Random(3)
    byte_ids = [tokenizer.token_to_id(c) for c in sorted(pre_tokenizers.ByteLevel.alphabet())]
    sequences = [[rng.choice(byte_ids) if rng.random() < 0.8 else rng.randrange(1500) for _ in range(rng.randrange(12))]
                 for _ in range(STRINGS)]
    texts = ask(bin_dir, tmp_path, [{"decode": ids} for ids in sequences])
    assert first_difference(sequences, texts, [tokenizer.decode(ids) for ids in sequences]) is None
    for pieces, text in zip(ask(bin_dir, tmp_path, [{"pieces": ids} for ids in sequences]), texts):
        assert "".join(pieces) == text


def test_every_character_has_the_class_the_package_gives_it(bin_dir, tmp_path):
    """A letter joins the letter before it, a digit the digit, a sign the sign."""
    tokenizer = train(byte_level(), specials=[])
    save(tokenizer, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    # A merge of "a", "1" and "!" with each byte: whether it happens shows in the ids whether the two were in one piece.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [[left, right] for left in "a1!" for right in alphabet]
    vocab = {text: i for i, text in enumerate(alphabet + ["".join(merge) for merge in merges])}
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    file["model"].update(vocab=vocab, merges=merges)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    package = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    strings = ["".join(f"a{chr(c)}1{chr(c)}!{chr(c)}  " for c in codes[at:at + 64]) for at in range(0, len(codes), 64)]
    ours = ask(bin_dir, tmp_path, [{"encode": text} for text in strings])
    assert first_difference(strings, ours, [package.encode(text).ids for text in strings]) is None
