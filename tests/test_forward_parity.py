"""The paged forward pass against a plain full-attention one in numpy, on random checkpoints of every shape, over
prompts long enough that windows and rescaled rotary frequencies matter."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from decoder_reference import SHAPES, make_weights, reference, save, save_adapter

BIN = Path(os.environ.get("NMC_BIN_DIR", "build/release/bin"))
TOKENS = 300


def ours(folder, dtype, chunk, tokens, vocab):
    run = subprocess.run([str(BIN / "nmc_logits_tool"), str(folder), dtype, str(chunk), *map(str, tokens)],
                         capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    return np.frombuffer(run.stdout, np.float32).reshape(len(tokens), vocab)


def random_tokens(shape, seed, count=TOKENS):
    return np.random.default_rng(seed).integers(0, shape.vocab, count)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("tied", [False, True])
def test_f32_logits_equal_the_reference(tmp_path, name, tied):
    shape = SHAPES[name].tie(tied)
    weights = make_weights(shape, 1)
    save(tmp_path, shape, weights)
    tokens = random_tokens(shape, 2)
    want = reference(shape, weights, tokens)
    assert 0.3 < want.std() < 3, "the tolerance is stated for logits of about unit variance"
    for chunk in (0, 17):
        got = ours(tmp_path, "f32", chunk, tokens, shape.vocab)
        assert np.abs(got - want).max() < 1e-4


@pytest.mark.parametrize("store", ["F16", "F32"])
def test_checkpoints_of_other_types_give_the_reference_too(tmp_path, store):
    shape = SHAPES["gqa"]
    weights = make_weights(shape, 1)
    if store == "F16":
        weights = {n: v.astype(np.float16).astype(np.float32) for n, v in weights.items()}
    save(tmp_path, shape, weights, store)
    tokens = random_tokens(shape, 2, 75)
    want = reference(shape, weights, tokens)
    for chunk in (0, 1, 17):
        assert np.abs(ours(tmp_path, "f32", chunk, tokens, shape.vocab) - want).max() < 1e-4


@pytest.mark.parametrize("name", ["gqa", "qwen2", "qwen3"])
def test_an_adapter_beside_its_base_is_the_sum_of_both(tmp_path, name):
    shape = SHAPES[name]
    weights = make_weights(shape, 1)
    save(tmp_path, shape, weights)
    deltas = save_adapter(tmp_path / "adapter", weights, shape.layers, 7)
    tokens = random_tokens(shape, 2)
    want = reference(shape, weights, tokens, deltas)
    assert np.abs(want - reference(shape, weights, tokens)).max() > 0.1, "else the adapter does nothing"
    for chunk in (0, 17):
        got = ours(f"{tmp_path}+{tmp_path}/adapter", "f32", chunk, tokens, shape.vocab)
        assert np.abs(got - want).max() < 1e-4 * max(1, want.std())


@pytest.mark.parametrize("name, without", [
    ("llama3", {"rope": {}}), ("linear_rope", {"rope": {}}), ("mistral", {"windows": ()}),
    ("qwen2_window", {"windows": (64, 64, 64)}), ("qwen2", {"theta": 10000.0}), ("qwen3", {"qk_norm": False})])
def test_what_tells_a_shape_apart_moves_the_logits(name, without):
    """Else the parity of that shape would show nothing."""
    shape = SHAPES[name]
    weights = make_weights(shape, 1)
    tokens = random_tokens(shape, 2)
    assert np.abs(reference(shape, weights, tokens) - reference(replace(shape, **without), weights, tokens)).max() > 0.1


@pytest.mark.parametrize("name", ["gqa", "mistral", "qwen2", "qwen3"])
def test_bf16_logits_stay_within_the_rounding_of_the_cache(tmp_path, name):
    """Weights are bf16 values already, so only K and V are rounded (relative 2^-9 each), once a layer."""
    shape = SHAPES[name]
    weights = make_weights(shape, 3)
    save(tmp_path, shape, weights)
    tokens = random_tokens(shape, 4)
    want = reference(shape, weights, tokens)
    got = ours(tmp_path, "bf16", 0, tokens, shape.vocab)
    error = np.abs(got - want)
    assert error.max() > 1e-5, "rounding the cache must be visible, or this ran in f32"
    # 3 layers, two rounded operands, amplification through the residual stream of a small factor.
    assert error.max() < 3 * 2 * 2**-9 * 8
