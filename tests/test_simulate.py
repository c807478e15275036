"""nano-mooncake simulate --rules instant: hits of published traces to the exact integer, counts worked out by hand, and
an independent count in Python on random traces."""

import collections
import json
import pathlib
import random
import subprocess

import pytest

TRACES = pathlib.Path(__file__).resolve().parent / "data" / "traces"
GOLDEN = json.loads((TRACES / "golden_hits.json").read_text())["traces"]
POLICIES = ["lru", "fifo", "lfu", "lfu-len", "length-aware", "s3-fifo", "freq-admission", "cost-per-byte", "opt"]
BLOCK_TOKENS = 512


def simulate(bin_dir, *arguments):
    return subprocess.run([bin_dir / "nano-mooncake", "simulate", *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


def report(bin_dir, *arguments):
    done = simulate(bin_dir, *arguments, "--rules", "instant", "--format", "json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def rows_by_case(made):
    return {(row["policy"], str(row["capacity_blocks"])): row for row in made["rows"]}


def write_trace(path, requests):
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def request_of(timestamp, input_length, hash_ids):
    return {"timestamp": timestamp, "input_length": input_length, "output_length": 1, "hash_ids": hash_ids}


# ---- Published traces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_hits_of_the_public_traces_are_exact(bin_dir, name):
    golden = GOLDEN[name]
    made = report(bin_dir, "--trace", TRACES / f"{name}_trace.jsonl.zst", "--compare", "--capacity-blocks",
                  ",".join(golden["capacities"]))
    for field in ("requests", "blocks", "unique_blocks", "input_tokens"):
        assert made["workload"][field] == golden[field]
    rows = rows_by_case(made)
    assert len(rows) == len(POLICIES) * len(golden["capacities"])
    compared = 0
    for capacity, policies in golden["capacities"].items():
        for policy, counts in policies.items():
            row = rows[policy, capacity]
            assert {field: row[field] for field in counts} == counts, (policy, capacity)
            compared += 1
    assert compared >= 25
    for policy in POLICIES:
        assert rows[policy, "inf"]["hit_blocks"] == golden["capacities"]["inf"]["lru"]["hit_blocks"]
        assert rows[policy, "inf"]["evicted_blocks"] == 0


@pytest.mark.parametrize("name", GOLDEN)
def test_more_room_never_costs_lru_a_hit(bin_dir, name):
    capacities = [0, 1, 10, 100, 1000, 5000, 10_000, 20_000, 40_000, 80_000, 160_000]
    made = report(bin_dir, "--trace", TRACES / f"{name}_trace.jsonl.zst", "--capacity-blocks",
                  ",".join(map(str, capacities)) + ",inf")
    hits = [row["hit_blocks"] for row in made["rows"]]
    assert hits == sorted(hits) and hits[0] == 0 < hits[-1]


# ---- Worked out by hand ---------------------------------------------------------------------------------------------

A = request_of(0, 1024, [1, 2])
B = request_of(10, 1100, [1, 2, 3])  # its last block is partial
C = request_of(10, 1536, [1, 4, 4])  # one id twice; arrives together with B
D = request_of(20, 1024, [5, 2])
E = request_of(15, 600, [1, 2])      # out of order in the file
F = request_of(30, 1100, [1, 2, 3])
BLOCKS, INPUT_TOKENS = 15, 6384


@pytest.mark.parametrize("capacity, hit_blocks, any_hit_blocks, hit_tokens, hit_tokens_capped", [
    ("inf", 8, 9, 3236, 3234),
    ("0", 0, 0, 0, 0),
    ("1", 0, 3, 0, 0),
    ("3", 6, 7, 3072, 3072),
])
def test_counts_are_those_worked_out_by_hand(bin_dir, tmp_path, capacity, hit_blocks, any_hit_blocks, hit_tokens,
                                             hit_tokens_capped):
    path = write_trace(tmp_path / "hand.jsonl", [A, B, C, D, E, F])
    made = report(bin_dir, "--trace", path, "--sort", "--capacity-blocks", capacity)
    [row] = made["rows"]
    assert (row["requests"], row["blocks"], row["input_tokens"]) == (6, BLOCKS, INPUT_TOKENS)
    assert (row["hit_blocks"], row["any_hit_blocks"]) == (hit_blocks, any_hit_blocks)
    assert (row["hit_tokens"], row["hit_tokens_capped"]) == (hit_tokens, hit_tokens_capped)
    assert row["block_hit_rate"] == hit_blocks / BLOCKS
    assert row["token_hit_rate"] == hit_tokens / INPUT_TOKENS


def test_the_definition_is_named_in_every_form_of_the_output(bin_dir, tmp_path):
    path = write_trace(tmp_path / "hand.jsonl", [A, B, C, E, D, F])
    made = report(bin_dir, "--trace", path)
    assert made["schema"] == "nano-mooncake/simulation/v1" and made["provenance"]["evidence_tier"] == "simulation"
    assert made["definition"]["token_hit_rate"] == "hit_tokens / input_tokens"
    assert "min(hits x block_tokens, input_tokens)" in made["definition"]["hit_tokens"]
    text = simulate(bin_dir, "--trace", path, "--rules", "instant").stdout
    assert text.startswith("Simulation, no measurement: ") and "with only cached ones before it" in text
    for words in ("hit_blocks", "blocks", "hit_tokens", "input_tokens"):
        assert words in text


def test_what_arrives_at_once_counts_in_the_order_of_the_file(bin_dir, tmp_path):
    one = write_trace(tmp_path / "one.jsonl", [A, B, C, E, D, F])
    other = write_trace(tmp_path / "other.jsonl", [A, C, B, E, D, F])
    rows = [rows_by_case(report(bin_dir, "--trace", path, "--capacity-blocks", "3,inf")) for path in (one, other)]
    assert [r["lru", "inf"]["hit_blocks"] for r in rows] == [8, 8]
    assert [r["lru", "3"]["hit_blocks"] for r in rows] == [6, 7]
    assert [r["lru", "3"]["hit_tokens"] for r in rows] == [3072, 3160]


def test_runs_are_byte_identical(bin_dir, tmp_path):
    path = write_trace(tmp_path / "hand.jsonl", [A, B, C, E, D, F])
    for form in ("table", "json", "csv", "markdown"):
        first, second = (simulate(bin_dir, "--trace", path, "--rules", "instant", "--compare", "--capacity-blocks",
                                  "0,1,3,inf", "--format", form).stdout for _ in range(2))
        assert first == second != ""


# ---- An independent count -------------------------------------------------------------------------------------------


def victim_of(policy, cache, future):
    """`cache`: key -> dict of uses, used, came, position. Smallest goes."""
    order = {
        "lru": lambda k, v: v["used"],
        "fifo": lambda k, v: v["came"],
        "lfu": lambda k, v: (v["uses"], v["used"]),
        "lfu-len": lambda k, v: (v["uses"], -v["position"], v["used"]),
        "length-aware": lambda k, v: (-v["position"], v["used"]),
        "opt": lambda k, v: (-next((i for i, one in enumerate(future) if one == k), len(future)), v["used"]),
    }[policy]
    return min(cache, key=lambda key: order(key, cache[key]))


def counted(policy, requests, capacity):
    cache, now = {}, 0
    touches = [key for request in requests for key in request["hash_ids"]]
    counts = collections.Counter()
    for request in requests:
        ids, tokens = request["hash_ids"], request["input_length"]
        hits = next((i for i, key in enumerate(ids) if key not in cache), len(ids))
        counts["hit_blocks"] += hits
        counts["any_hit_blocks"] += sum(key in cache for key in ids)
        counts["hit_tokens"] += min(hits * BLOCK_TOKENS, tokens)
        counts["hit_tokens_capped"] += min(hits * BLOCK_TOKENS, tokens - 1)
        for position, key in enumerate(ids):
            now += 1
            known = cache.setdefault(key, {"uses": 0, "came": now})
            known.update(used=now, position=position, uses=known["uses"] + 1)
            if len(cache) > capacity:
                del cache[victim_of(policy, cache, touches[now:])]
    return counts


@pytest.mark.parametrize("seed", range(4))
def test_an_independent_count_agrees_on_random_traces(bin_dir, tmp_path, seed):
    rng = random.Random(seed)
    requests = []
    for i in range(120):
        ids = [rng.randrange(rng.randrange(1, 50)) for _ in range(rng.randrange(1, 9))]
        requests.append(request_of(i // 3, BLOCK_TOKENS * len(ids) - rng.randrange(BLOCK_TOKENS), ids))
    path = write_trace(tmp_path / "random.jsonl", requests)
    capacities = [1, 2, 5, 12, 30]
    rows = rows_by_case(report(bin_dir, "--trace", path, "--compare", "--capacity-blocks",
                               ",".join(map(str, capacities))))
    for policy in ("lru", "fifo", "lfu", "lfu-len", "length-aware", "opt"):
        for capacity in capacities:
            expected = counted(policy, requests, capacity)
            row = rows[policy, str(capacity)]
            assert {field: row[field] for field in expected} == expected, (policy, capacity)


# ---- Input that is wrong --------------------------------------------------------------------------------------------


def refused(bin_dir, *arguments):
    done = simulate(bin_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_request_out_of_order_is_refused_with_both_lines(bin_dir, tmp_path):
    path = write_trace(tmp_path / "hand.jsonl", [A, B, C, D, E, F])
    assert f"{path}:5: `timestamp`: this request arrives 5.000 ms before that of line 4" in refused(
        bin_dir, "--trace", path)


@pytest.mark.parametrize("line, words", [
    ('{"timestamp": 1, "input_length": 513, "hash_ids": [1]}', "`hash_ids`: 1 ids for 513 tokens, expected 2"),
    ('{"timestamp": 1, "input_length": 0, "hash_ids": []}', "`input_length`: expected a whole number from 1"),
    ('{"timestamp": 1, "input_length": 5', "expected a JSON object"),
    ("[]", "expected a JSON object"),
])
def test_a_wrong_line_is_named(bin_dir, tmp_path, line, words):
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(A) + "\n" + line + "\n")
    assert f"{path}:2: " in refused(bin_dir, "--trace", path)
    assert words in refused(bin_dir, "--trace", path)


@pytest.mark.parametrize("arguments, words", [
    (["--policy", "mru"], '--policy: "mru": expected one or more of lru, '),
    (["--capacity-blocks", "1,x"], '--capacity-blocks: "x"'),
    (["--capacity-blocks", "-1"], '--capacity-blocks: "-1"'),
    (["--capacity-blocks", "1", "--cache-capacity", "1GiB"], "expected one of them"),
    (["--chunk-size", "0"], "--chunk-size"),
    (["--prefill-cost-model", "fast"], '--prefill-cost-model: "fast": expected seconds as a+b*n+c*n^2'),
    (["--kv-bytes-per-token", "0"], "--kv-bytes-per-token"),
    (["--trace", "/nowhere/x.jsonl"], "/nowhere/x.jsonl"),
])
def test_a_wrong_flag_is_one_clear_line(bin_dir, tmp_path, arguments, words):
    path = write_trace(tmp_path / "hand.jsonl", [A])
    if "--trace" not in arguments:
        arguments = ["--trace", path, *arguments]
    assert words in refused(bin_dir, *arguments)
