"""Our tokenizer against the Python package `tokenizers`: the same ids and the same text for generated strings, on small
tokenizers trained here with every construct that we read."""

import json
import random
import subprocess

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

STRINGS = 2500
SPECIALS = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

WORDS = """
the of and to in is that it was for on with as his they be at one have this from or had by word but what some
we can out other were all there when up use your how said an each she which do their time if will way about
many then them write would like so these her long make thing see him two has look more day could go come did
number sound no most people don't it's we're I've they'll he'd I'm o'clock 'twas rock'n'roll naïve café Straße
Füße ĳsselmeer مرحبا العالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก 你好世界 今日は世界 안녕하세요 Привет мир Γειά σου Κόσμε
𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ½ ² ⅷ ٣ ७ ① 123 45678 3.14159 1,000,000 return self.value for(int i=0;i<n;++i) {"key": [1, 2]}
https://example.com/a?b=c#d user@example.com
""".split()

EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "☺", "🧑‍🚀", "\U0001fae8"]
MARKS = ["\u0301", "\u0308", "\u20dd", "\u0e31", "\u093f", "\u200d", "\u200c", "\ufe0f", "\u202e", "\ufeff"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085",
          "\u180e", "\u200b", " \n", "\n ", "\u00a0 ", " " * 17]
CONTROLS = ["\x00", "\x01", "\x07", "\x1b", "\x1c", "\x1f", "\x7f", "\x80", "\x9f", "\ue000", "\U0010ffff", "\ufffd"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "’s", "''s", " 's", "'", "' s", "'r", "'lls"]
PUNCTUATION = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "<", "<s", "s>", "<|", "|>", "«", "„", "。", "—"]
# Code points that newer versions of Unicode assigned, or that sit at the edge of a range.
EDGES = ["\u0378", "\u1c89", "\ua7cb", "\U000116d0", "\U00010d40", "\U00031350", "\U0002ee5d", "\u09f4",
         "\u2160", "\u3007", "\uff11", "\U0001d7d8", "\u00aa", "\u02b0", "\u2071", "\ud7a3", "\ufdd0"]


def any_character(rng):
    while True:
        code = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def generated_strings(seed, added=()):
    rng = random.Random(seed)
    parts = [WORDS, EMOJI, MARKS, SPACES, CONTROLS, CONTRACTIONS, PUNCTUATION, EDGES,
             [str(n) for n in range(0, 99999, 777)]]
    parts += [list(added)] if added else []
    strings = ["", " ", "  ", "\n", "'", "a", " a", "a ", "😀", "\u0301", "<s>", "<s><s>", " <s> ",
               "x" * 3000, " " * 3000, "ab" * 2000, "1" * 500, "<s" * 100]
    while len(strings) < STRINGS:
        pieces = []
        for _ in range(rng.randrange(1, 25)):
            pieces.append(any_character(rng) if rng.random() < 0.15 else rng.choice(rng.choice(parts)))
            if rng.random() < 0.4:
                pieces.append(" ")
        strings.append("".join(pieces))
    return strings


def corpus():
    rng = random.Random(1)
    for _ in range(3000):
        yield "".join(rng.choice([" ", " ", " ", "\n", ", "]) + rng.choice(WORDS + EMOJI) for _ in range(20))


def train(pre_tokenizer, alphabet=True, specials=SPECIALS, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=specials, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet else []))
    return tokenizer


def byte_level(prefix=False, **options):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, **options)


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


def save(tokenizer, folder, change=lambda file: None):
    file = json.loads(tokenizer.to_str())
    change(file)
    (folder / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))


def ask(bin_dir, folder, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([bin_dir / "nmc_tokenize_tool", folder], input=lines, capture_output=True, encoding="utf-8",
                          timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(requests)
    return answers


def first_difference(strings, ours, theirs):
    return next(((text, a, b) for text, a, b in zip(strings, ours, theirs) if a != b), None)


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
