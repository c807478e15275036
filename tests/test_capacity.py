"""`nano-mooncake capacity`: the sizes of KV caches, as its users ask for them."""

import csv
import io
import json
import subprocess

import pytest


@pytest.fixture
def capacity(bin_dir):
    def run(*flags):
        done = subprocess.run([bin_dir / "nano-mooncake", "capacity", *map(str, flags)], capture_output=True, text=True,
                              timeout=60, check=False)
        return done

    return run


def rows_of(done):
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "nano-mooncake/capacity/v1"
    return report["rows"]


def test_without_flags_it_is_the_worked_example(capacity):
    rows = rows_of(capacity("--format", "json"))
    asked = rows[0]
    assert [asked[name] for name in ("kib_per_token", "gib_per_request", "mib_per_request_per_rank", "gib_per_batch",
                                     "mib_per_chunk", "network_lower_bound_ms")] == [128, 1, 128, 64, 32, 50]
    assert asked["allocated_tokens"] == 8192
    assert [row["attention"] for row in rows] == ["gqa", "mha", "mqa", "mla"]


def test_pages_and_tokens_stand_apart(capacity):
    asked = rows_of(capacity("--seq-len", 8193, "--format", "json"))[0]
    assert asked["allocated_tokens"] == 8208
    assert asked["gib_per_request"] == 8208 / 8192
    assert asked["effective_gib_per_request"] == 8193 / 8192


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_a_one_byte_cache_has_lines_for_its_metadata(capacity, dtype):
    asked = rows_of(capacity("--kv-dtype", dtype, "--format", "json"))[0]
    assert asked["kib_per_token"] == 64
    assert asked["metadata_kib_per_token"] == 1
    assert "metadata KiB/token" in capacity("--kv-dtype", dtype).stdout
    assert "metadata" not in capacity().stdout


def test_a_models_own_configuration_is_read(capacity, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "hidden_size": 7168, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}))
    rows = rows_of(capacity("--model", tmp_path, "--format", "json"))
    assert rows[0]["attention"] == "mla"
    assert rows[0]["token_bytes"] == 70272
    assert "keeps all of it" in rows[0]["notes"][0]
    assert rows_of(capacity("--model", tmp_path / "config.json", "--format", "json")) == rows


def test_heads_that_do_not_divide_are_said(capacity):
    done = capacity("--kv-heads", 4, "--tp", 8)
    assert "4 KV heads don't divide over 8 ranks" in done.stdout


def test_tables_say_the_same_in_every_format(capacity):
    rows = rows_of(capacity("--format", "json"))
    table = list(csv.DictReader(io.StringIO(capacity("--format", "csv").stdout)))
    assert [float(row["KiB/token"]) for row in table] == [row["kib_per_token"] for row in rows]
    assert capacity("--format", "markdown").stdout.count("\n|") >= 4


@pytest.mark.parametrize(("flags", "message"), [
    (["--kv-heads", 0], "--kv-heads"),
    (["--heads", 30, "--kv-heads", 8], "--kv-heads: 8: expected a divisor of the 30 query heads"),
    (["--attention", "mqa", "--kv-heads", 2], "expected 1, since the attention is mqa"),
    (["--bandwidth-gib-s", 0], "expected a number above 0"),
    (["--model", "/nonexistent"], "/nonexistent"),
    (["--model", "/nonexistent", "--layers", 3], "expected without --model"),
])
def test_what_cannot_be_is_refused_by_name(capacity, flags, message):
    done = capacity(*flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_a_broken_configuration_is_named(capacity, tmp_path):
    path = tmp_path / "config.json"
    cases = {"{": str(path), "[]": "expected an object", '{"num_hidden_layers": 2}': "num_attention_heads"}
    for text, message in cases.items():
        path.write_text(text)
        done = capacity("--model", path)
        assert done.returncode == 2 and message in done.stderr, done.stderr
