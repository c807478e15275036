#!/usr/bin/env python3
"""How fast text becomes tokens, beside the Python package `tokenizers`, each on one thread.

  NMC_BIN_DIR=build/release/bin .venv/bin/python bench/tokenizer_speed.py [--bytes N] [--rounds N]

Trains one tokenizer of each family on the spot, checks that both give the same ids for a text of N bytes (prose in
several scripts, code, numbers), then encodes it with ours and theirs in turn and prints the medians. Theirs is the
faster of encode() and encode_batch_fast(), its cache warm from the first round on; ours keeps nothing from one text to
the next.
The exit code is 1 when ours is slower for any family.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))

import tokenizer_corpus  # noqa: E402
from test_tokenizer_families import FAMILIES  # noqa: E402
from tokenizer_corpus import EMOJI, WORDS, save  # noqa: E402


def text_of(size):
    """Words that come as often as in language: the few often, the many seldom."""
    rng = random.Random(3)
    syllables = ["ka", "lo", "mi", "ten", "ra", "si", "un", "der", "ing", "est", "pre", "con", "th", "er", "an",
                 "é", "на"]
    made = ["".join(rng.choice(syllables) for _ in range(rng.randrange(1, 5))) for _ in range(20_000)]
    words = WORDS + EMOJI[:2] + made
    weights = [1 / (rank + 3) for rank in range(len(words))]
    text = []
    length = 0
    while length < size:
        for word in rng.choices(words, weights, k=1000):
            word += rng.choice([" ", " ", " ", " ", " ", " ", ", ", ". ", "\n", ".\n\n", " = 1234;\n    "])
            length += len(word.encode())
            text.append(word)
    return "".join(text)


class Ours:
    def __init__(self, folder):
        tool = pathlib.Path(os.environ.get("NMC_BIN_DIR", "build/release/bin")) / "nmc_tokenize_tool"
        self.process = subprocess.Popen([tool, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def seconds_of(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name, text, rounds):
    tokenizer = FAMILIES[name]()
    with tempfile.TemporaryDirectory() as folder:
        save(tokenizer, pathlib.Path(folder))
        ours = Ours(folder)
        theirs = tokenizer.encode(text, add_special_tokens=False).ids
        if ours.ask(encode=text) != theirs:
            sys.exit(f"{name}: the ids differ")
        times = {"ours": [], "encode": [], "encode_batch_fast": []}
        for _ in range(rounds):
            times["ours"].append(ours.ask(encode_seconds=text))
            times["encode"].append(seconds_of(lambda: tokenizer.encode(text, add_special_tokens=False)))
            times["encode_batch_fast"].append(
                seconds_of(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False)))
        ours.close()
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    best = min(medians["encode"], medians["encode_batch_fast"])
    ratio = best / medians["ours"]
    size = len(text.encode())
    shown = [f"{who} {seconds * 1e3:7.1f} ms {size / seconds / 1e6:6.1f} MB/s"
             for who, seconds in (("ours", medians["ours"]), ("theirs", best))]
    print(f"{name:8} {len(theirs):8} tokens   {'   '.join(shown)}   {ratio:5.1f} times as fast", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    text = text_of(options.bytes)
    # Trained on the text's kind, so that a word is one or two tokens, as in real vocabularies.
    tokenizer_corpus.VOCAB_SIZE = 16_000
    tokenizer_corpus.corpus = lambda: text_of(2 * options.bytes).splitlines()
    ratios = [compare(name, text, options.rounds) for name in FAMILIES]
    return 1 if min(ratios) < 1 else 0


if __name__ == "__main__":
    sys.exit(main())
