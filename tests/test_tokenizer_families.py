"""Our tokenizer against the Python package `tokenizers` on one trained tokenizer of each family that real checkpoints
come with, and on each kind of step on its own."""

import json
import os
import pathlib
import random
import subprocess
import sys
import unicodedata

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_corpus import SPECIALS, ask, byte_level, first_difference, generated_strings, save, train

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
STRINGS = 10_000

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def by_pattern(*steps, **options):
    return train(pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)]), **options)


def llama2_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def spaced(pre_tokenizer, normalizer, decoder, byte_fallback=True, trained_with=pre_tokenizers.Metaspace()):
    """Characters and a token a byte, as converters of SentencePiece models write them. No token goes across spaces,
    unless it is trained otherwise."""
    specials = SPECIALS[:3] + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    tokenizer = train(trained_with, alphabet=False, specials=specials, decoder=decoder, byte_fallback=byte_fallback,
                      unk_token="<unk>", fuse_unk=True, limit_alphabet=200)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizer
    # Byte tokens are ordinary tokens that no text spells.
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(file))


def llama2(**options):
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return spaced(None, normalizer, llama2_decoder(), **options)


def metaspace(scheme, cuts=True):
    step = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cuts)
    return spaced(step, None, decoders.Metaspace(prepend_scheme=scheme))


def mistral():
    return spaced(pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, llama2_decoder())


FAMILIES = {
    "gpt2": lambda: train(byte_level()),
    "llama3": lambda: by_pattern(split(LLAMA3), ignore_merges=True),
    "qwen2": lambda: by_pattern(split(QWEN2), normalizer=normalizers.NFC()),
    "llama2": llama2,
    "smollm": lambda: train(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()])),
}
# Fewer strings each: steps that the families above have in other forms.
OTHERS = {
    "cl100k_removed_inverted": lambda: by_pattern(split(CL100K, "removed", True)),
    "gpt4o": lambda: by_pattern(split(GPT4O)),
    "deepseek3": lambda: by_pattern(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3)),
    "gpt2_as_split": lambda: by_pattern(split(GPT2)),
    "merged_with_previous": lambda: by_pattern(split(r"\s", "merged_with_previous")),
    "merged_with_next": lambda: by_pattern(split(r"\s", "merged_with_next")),
    "contiguous": lambda: by_pattern(split(r"\s", "contiguous")),
    "removed": lambda: by_pattern(split(r"\s+", "removed")),
    "inverted": lambda: by_pattern(split(r"\w+", "merged_with_next", True)),
    "odd_pattern": lambda: by_pattern(split(r"(?i:[a-m]+?)$|^\W|\p{Lu}{2,}|[^\s\w'-]{1,2}+|\S(?=\d)|(?>\d+)[^\d]")),
    "tiktoken_style": lambda: by_pattern(split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
        r"\s+(?!\S)|\s")),
    "metaspace_always": lambda: metaspace("always"),
    "metaspace_first": lambda: metaspace("first"),
    "metaspace_never": lambda: metaspace("never"),
    "metaspace_whole": lambda: metaspace("always", False),
    "mistral": mistral,
    "tokens_across_spaces": lambda: llama2(trained_with=pre_tokenizers.Metaspace(split=False)),
    "no_byte_tokens": lambda: spaced(pre_tokenizers.Metaspace(), None, decoders.Metaspace(), byte_fallback=False),
    "nfd": lambda: train(byte_level(), normalizer=normalizers.NFD()),
    "nfkc_lowercase": lambda: train(byte_level(), normalizer=normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase()])),
    "nfkd_strip": lambda: train(byte_level(), normalizer=normalizers.Sequence(
        [normalizers.NFKD(), normalizers.Strip(True, False)])),
    "replace_regex": lambda: train(byte_level(), normalizer=normalizers.Sequence(
        [normalizers.Replace(Regex(" {2,}"), "▁"), normalizers.Strip(False, True)])),
}


def check_ids_and_text(tokenizer, bin_dir, folder, strings):
    save(tokenizer, folder)
    requests = [{"encode": text} for text in strings]
    theirs = [encoding.ids for encoding in tokenizer.encode_batch(strings, add_special_tokens=False)]
    for skip in (True, False):
        requests += [{"pieces": ids, "skip_special": skip} for ids in theirs]
    answers = ask(bin_dir, folder, requests)
    count = len(strings)
    assert first_difference(strings, answers[:count], theirs) is None
    for at, skip in ((count, True), (2 * count, False)):
        joined = ["".join(pieces) for pieces in answers[at:at + count]]
        assert first_difference(theirs, joined, tokenizer.decode_batch(theirs, skip_special_tokens=skip)) is None
    some = theirs[::10]
    texts = ask(bin_dir, folder, [{"decode": ids} for ids in some])
    assert first_difference(some, texts, tokenizer.decode_batch(some)) is None


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_equals_the_package(kind, bin_dir, tmp_path):
    strings = generated_strings(kind, SPECIALS, count=STRINGS)
    check_ids_and_text(FAMILIES[kind](), bin_dir, tmp_path, strings)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_step_equals_the_package(kind, bin_dir, tmp_path):
    check_ids_and_text(OTHERS[kind](), bin_dir, tmp_path, generated_strings(kind, SPECIALS, count=1000))


@pytest.mark.parametrize(
    "kind", ["llama2", "metaspace_always", "metaspace_first", "metaspace_never", "mistral", "gpt2"])
def test_any_ids_decode_as_the_package_does(kind, bin_dir, tmp_path):
    """Random ids make every kind of broken row of bytes, and control tokens in all places."""
    tokenizer = {**FAMILIES, **OTHERS}[kind]()
    save(tokenizer, tmp_path)
    rng = random.Random(kind)
    size = tokenizer.get_vocab_size()
    byte_ids = list(range(3, 259))
    good = [list("é世😀\n".encode()), list("ab".encode())]
    sequences = []
    for _ in range(4000):
        ids = []
        for _ in range(rng.randrange(10)):
            kind_of_id = rng.random()
            if kind_of_id < 0.3:
                ids += [byte_ids[byte] for byte in rng.choice(good)]
            elif kind_of_id < 0.6:
                ids.append(rng.choice(byte_ids))
            else:
                ids.append(rng.choice([rng.randrange(size), rng.randrange(size), rng.randrange(3), size + 5]))
        sequences.append(ids)
    for skip in (True, False):
        expected = tokenizer.decode_batch(sequences, skip_special_tokens=skip)
        whole = ask(bin_dir, tmp_path, [{"decode": ids, "skip_special": skip} for ids in sequences])
        assert first_difference(sequences, whole, expected) is None
        pieces = ask(bin_dir, tmp_path, [{"pieces": ids, "skip_special": skip} for ids in sequences])
        assert first_difference(sequences, ["".join(parts) for parts in pieces], expected) is None


def test_normalized_added_tokens_equal_the_package(bin_dir, tmp_path):
    tokenizer = train(byte_level(), normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]))
    tokenizer.add_tokens([AddedToken("<TOOL>"), AddedToken("Été", lstrip=True),
                          AddedToken("<Exact>", normalized=False),
                          AddedToken("wordlike", single_word=True)])
    added = ["<TOOL>", "<tool>", "Été", "été", "ÉTE\u0301", "<Exact>", "<exact>", "WordLike", "E\u0301te\u0301"]
    check_ids_and_text(tokenizer, bin_dir, tmp_path, generated_strings("normalized", added, count=2000))


@pytest.mark.parametrize("kind", ["llama2", "metaspace_first", "mistral"])
def test_added_tokens_beside_marks_equal_the_package(kind, bin_dir, tmp_path):
    tokenizer = {**FAMILIES, **OTHERS}[kind]()
    tokenizer.add_tokens([
        AddedToken("<tool>"), AddedToken("<exact>", normalized=False), AddedToken("wordlike", single_word=True),
        AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("été", rstrip=True),
        AddedToken("<pad>", rstrip=True, special=True, normalized=False), AddedToken("▁▁▁", normalized=False)])
    added = ["<tool>", " <tool>", "<exact>", "wordlike", " wordlike ", "<mask>", " <mask> ", "été", "<pad>", "▁▁▁",
             "</s>"]
    check_ids_and_text(tokenizer, bin_dir, tmp_path, generated_strings(kind + " added", added, count=2000))


@pytest.mark.parametrize("kind", ["llama2", "metaspace_first", "qwen2"])
def test_cut_into_parts_a_text_has_the_ids_of_the_whole(kind, bin_dir, tmp_path):
    """Where no cut goes through a control token, whichever parts may spell one."""
    tokenizer = {**FAMILIES, **OTHERS}[kind]()
    save(tokenizer, tmp_path)
    rng = random.Random(kind)
    requests, wholes = [], []
    for text in generated_strings(kind + " parts", count=2000):
        plain = text.replace("<", "(")
        cuts = sorted(rng.randrange(len(plain) + 1) for _ in range(rng.randrange(4)))
        parts = [plain[a:b] for a, b in zip([0, *cuts], [*cuts, len(plain)])]
        parts = [[part, rng.random() < 0.5] for part in parts]
        for _ in range(rng.randrange(3)):
            parts.insert(rng.randrange(len(parts) + 1), [rng.choice(["<s>", "</s>", " <s>\n"]), True])
        requests.append({"parts": parts})
        wholes.append("".join(part for part, _ in parts))
    theirs = [encoding.ids for encoding in tokenizer.encode_batch(wholes, add_special_tokens=False)]
    assert first_difference(requests, ask(bin_dir, tmp_path, requests), theirs) is None


def test_text_is_tokenized_at_least_as_fast_as_by_the_package(bin_dir):
    done = subprocess.run([sys.executable, REPOSITORY / "bench" / "tokenizer_speed.py", "--bytes", "200000", "--rounds",
                           "3"], env={**os.environ, "NMC_BIN_DIR": str(bin_dir)}, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("times as fast") == len(FAMILIES)


def test_every_character_normalizes_as_the_package_does(bin_dir, tmp_path):
    """Each code point alone, after a letter with a mark, and in its parts; what was assigned long after the package's
    tables were made too."""
    letters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    strings = [c for c in letters if unicodedata.combining(c) or unicodedata.decomposition(c) or c.lower() != c]
    strings += ["".join(chr(int(part, 16)) for part in unicodedata.decomposition(c).split() if part[0] != "<")
                for c in strings if unicodedata.decomposition(c)]
    strings += letters[::37] + letters[0x800:0x900] + letters[0x1c80:0x1c90] + letters[0xa7c0:0xa800]
    strings += letters[0x10500 - 0x800:0x10fff - 0x800] + letters[0x16000 - 0x800:0x16fff - 0x800]
    for form in (normalizers.NFC(), normalizers.NFKD(), normalizers.NFKC(), normalizers.Lowercase()):
        tokenizer = train(byte_level(use_regex=False), normalizer=form, specials=[])
        save(tokenizer, tmp_path)
        (tmp_path / "tokenizer_config.json").unlink()
        lines = ["".join(f"{c}|o\u0302{c}\u0323|" for c in strings[at:at + 64]) for at in range(0, len(strings), 64)]
        ours = ask(bin_dir, tmp_path, [{"encode": line} for line in lines])
        assert first_difference(lines, ours, [encoding.ids for encoding in tokenizer.encode_batch(lines)]) is None


@pytest.mark.parametrize(
    "name", [r"\w", r"\s", r"\d", r"\p{L}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Z}", r"\p{C}"])
def test_every_character_is_in_the_sets_the_package_puts_it_in(name, bin_dir, tmp_path):
    tokenizer = by_pattern(split(name + "+"), specials=[])
    save(tokenizer, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    # Two tokens whose merge with a byte tells whether a character was cut off from the byte before it.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inside, outside = {r"\w": "a%", r"\s": "Ċa", r"\d": "1a", r"\p{L}": "a1", r"\p{M}": None, r"\p{P}": "%a",
                       r"\p{S}": "+a", r"\p{Lu}": "Aa", r"\p{Z}": "Ġa", r"\p{C}": "Āa"}[name] or ("", "a")
    merges = [[left, right] for left in {inside, outside} - {""} for right in alphabet]
    vocab = {text: i for i, text in enumerate(alphabet + ["".join(merge) for merge in merges])}
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    file["model"].update(vocab=vocab, merges=merges)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    package = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    before = {"Ċ": "\n", "Ġ": " ", "Ā": "\0", "": "a"}.get(inside, inside)
    # Where a category begins or ends, and some in between; all code points were compared when the tables were made.
    category = [unicodedata.category(chr(c)) for c in range(0x110000)] + [""]
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000
             and (category[c] != category[c - 1] or category[c] != category[c + 1] or c % 97 == 0 or c < 0x100)]
    pairs = [f"{before}{chr(c)}{outside}{chr(c)}" for c in codes]
    strings = ["".join(pairs[at:at + 64]) for at in range(0, len(pairs), 64)]
    ours = ask(bin_dir, tmp_path, [{"encode": text} for text in strings])
    assert first_difference(strings, ours, [e.ids for e in package.encode_batch(strings)]) is None
