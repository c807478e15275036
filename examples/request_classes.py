"""Four classes of requests to an OpenAI server, and how much of each prompt came from the cache, by the server's usage.

    python examples/request_classes.py --url http://127.0.0.1:8000 [--rounds 2]

shared-prefix: one long system text, then a different short question. long-document: one long text, then a different
question on it. distinct: nothing in common. namespaces: one text under two values of `cache_salt`, which must never hit
each other's KV. A round asks all of them once, so in the second everything is an exact repeat. A line a request: class,
round, prompt's tokens, those from the cache, and a digest of the answer, which is greedy: it has to be the same whether
or not anything was cached.
"""

import argparse
import hashlib
import json
import urllib.request

SYSTEM = "You are a careful assistant. Answer in one sentence, and say so when you don't know. " * 4
DOCUMENT = "Keys and values of a prompt are computed once, kept in blocks, and found by a chain of hashes. " * 12


def requests():
    """(class, prompt, cache_salt), in the order in which they are asked."""
    for question in ("What is a block?", "Who owns it?"):
        yield "shared-prefix", SYSTEM + question, None
    for question in ("What is kept?", "How is it found?"):
        yield "long-document", DOCUMENT + question, None
    for start in "ab":
        yield "distinct", start + " stands alone and has nothing in common with any other prompt here.", None
    for salt in ("tenant-1", "tenant-2"):
        yield "namespaces", DOCUMENT + "What is kept?", salt


def ask(url, prompt, salt):
    body = {"model": "nano-mooncake", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    if salt is not None:
        body["cache_salt"] = salt
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print("class,round,prompt_tokens,cached_tokens,answer")
    for number in range(1, arguments.rounds + 1):
        for name, prompt, salt in requests():
            answer = ask(arguments.url.rstrip("/"), prompt, salt)
            usage = answer["usage"]
            digest = hashlib.sha256(answer["choices"][0]["text"].encode()).hexdigest()[:12]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            print(f"{name},{number},{usage['prompt_tokens']},{cached},{digest}")


if __name__ == "__main__":
    main()
