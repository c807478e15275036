"""Tokenizers trained on the spot, strings to try them with, and our tokenizer as a filter."""

import json
import random
import subprocess

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

STRINGS = 2500
VOCAB_SIZE = 1500  # of what is trained
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


def generated_strings(seed, added=(), count=STRINGS):
    rng = random.Random(seed)
    parts = [WORDS, EMOJI, MARKS, SPACES, CONTROLS, CONTRACTIONS, PUNCTUATION, EDGES,
             [str(n) for n in range(0, 99999, 777)]]
    parts += [list(added)] if added else []
    strings = ["", " ", "  ", "\n", "'", "a", " a", "a ", "😀", "\u0301", "<s>", "<s><s>", " <s> ",
               "x" * 3000, " " * 3000, "ab" * 2000, "1" * 500, "<s" * 100]
    while len(strings) < count:
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


def train(pre_tokenizer, alphabet=True, specials=SPECIALS, normalizer=None, decoder=None, limit_alphabet=10_000,
          **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=specials, show_progress=False, limit_alphabet=limit_alphabet,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet else []))
    return tokenizer


def byte_level(prefix=False, **options):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, **options)


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
