"""`nano-mooncake likelihood` against the numpy forward pass, and the same value by every path of the engine."""

import json
import subprocess

import numpy as np
import pytest
from decoder_reference import SHAPES, make_weights, reference, save
from test_sampling import save_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, and over it once more."


def likelihood(bin_dir, *flags, code=0):
    run = subprocess.run([str(bin_dir / "nano-mooncake"), "likelihood", "--quiet", "--format", "json",
                          *map(str, flags)], capture_output=True, text=True, timeout=120)
    assert run.returncode == code, run.stderr
    return json.loads(run.stdout) if code == 0 else run.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    shape = SHAPES["gqa"]
    folder = tmp_path_factory.mktemp("model")
    weights = make_weights(shape, 1)
    save(folder, shape, weights)
    save_tokenizer(folder, shape.vocab)
    return folder, shape, weights


def test_each_token_is_worth_what_the_reference_says(bin_dir, model):
    folder, shape, weights = model
    report = likelihood(bin_dir, "--model", folder, "--text", TEXT, "--dtype", "f32")
    ids = report["token_ids"]
    assert len(ids) == len(TEXT)
    logits = reference(shape, weights, np.array(ids))
    log_softmax = logits - logits.max(1, keepdims=True)
    log_softmax -= np.log(np.exp(log_softmax).sum(1, keepdims=True))
    want = [log_softmax[i, ids[i + 1]] for i in range(len(ids) - 1)]
    assert np.abs(np.array(report["logprobs"]) - want).max() < 1e-4
    assert report["runs"][0]["log_likelihood"] == pytest.approx(sum(want), abs=1e-3)
    assert report["runs"][0]["perplexity"] == pytest.approx(np.exp(-np.mean(want)), rel=1e-4)


@pytest.mark.parametrize("flags", [
    ("--reuse", "none"), ("--reuse", "global"), ("--mode", "pd", "--transfer", "direct"),
    ("--mode", "pd", "--transfer", "shm"), ("--mode", "pd", "--transfer", "tcp"), ("--block-tokens", "8")])
def test_no_path_changes_what_a_token_is_worth(bin_dir, model, flags):
    plain = likelihood(bin_dir, "--model", model[0], "--text", TEXT, "--given-tokens", 33, "--reuse", "none")
    report = likelihood(bin_dir, "--model", model[0], "--text", TEXT, "--given-tokens", 33, "--runs", 2, *flags)
    assert report["logprobs"] == plain["logprobs"]
    assert [run["largest_change"] for run in report["runs"]] == [0, 0]
    assert report["runs"][1]["saved_tokens"] == (0 if "none" in flags else 33)


def test_a_smaller_dtype_changes_it_a_little(bin_dir, model):
    both = [np.array(likelihood(bin_dir, "--model", model[0], "--text", TEXT, "--dtype", dtype)["logprobs"])
            for dtype in ("f32", "bf16")]
    assert 0 < np.abs(both[0] - both[1]).max() < 0.1


def test_text_comes_from_a_file_too(bin_dir, model, tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT)
    assert likelihood(bin_dir, "--model", model[0], "--text-file", path)["logprobs"] == likelihood(
        bin_dir, "--model", model[0], "--text", TEXT)["logprobs"]


@pytest.mark.parametrize("flags, expected", [
    ((), "either --text TEXT or --text-file FILE"), (("--text", "a", "--text-file", "b"), "either --text"),
    (("--text", "ab", "--given-tokens", "2"), "more than the 2"), (("--text", ""), "not empty"),
    (("--text-file", "/nonexistent/file"), "/nonexistent/file")])
def test_wrong_input_is_named(bin_dir, model, flags, expected):
    run = subprocess.run([str(bin_dir / "nano-mooncake"), "likelihood", "--model", str(model[0]), *flags],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert expected in run.stderr
