"""The paged forward pass against a plain full-attention one written here in numpy (float64), on random checkpoints."""

import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

BIN = Path(os.environ.get("NMC_BIN_DIR", "build/release/bin"))

SHAPES = {
    # hidden, layers, heads, kv_heads, head_dim, intermediate, vocab
    "mha": (64, 3, 4, 4, 16, 128, 97),
    "gqa": (96, 3, 6, 2, 32, 160, 263),
    "mqa": (80, 2, 5, 1, 20, 112, 300),
}


def bf16(x):
    """Rounds to bfloat16 values, ties to even, and back to float32."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return (((u + 0x7FFF + ((u >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def make_weights(shape, seed, tied):
    hidden, layers, heads, kv_heads, dim, inter, vocab = shape
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return bf16(rng.standard_normal((rows, columns)) / np.sqrt(columns))

    embedding = rng.standard_normal((vocab, hidden)) * (1 / np.sqrt(hidden) if tied else 1)
    weights = {"model.embed_tokens.weight": bf16(embedding)}
    for i in range(layers):
        p = f"model.layers.{i}."
        weights[p + "input_layernorm.weight"] = bf16(rng.uniform(0.5, 1.5, hidden))
        weights[p + "post_attention_layernorm.weight"] = bf16(rng.uniform(0.5, 1.5, hidden))
        weights[p + "self_attn.q_proj.weight"] = matrix(heads * dim, hidden)
        weights[p + "self_attn.k_proj.weight"] = matrix(kv_heads * dim, hidden)
        weights[p + "self_attn.v_proj.weight"] = matrix(kv_heads * dim, hidden)
        weights[p + "self_attn.o_proj.weight"] = matrix(hidden, heads * dim)
        weights[p + "mlp.gate_proj.weight"] = matrix(inter, hidden)
        weights[p + "mlp.up_proj.weight"] = matrix(inter, hidden)
        weights[p + "mlp.down_proj.weight"] = matrix(hidden, inter)
    weights["model.norm.weight"] = bf16(rng.uniform(0.9, 1.1, hidden))
    if not tied:
        weights["lm_head.weight"] = matrix(vocab, hidden)
    return weights


def save(folder, shape, weights, tied, store="BF16"):
    hidden, layers, heads, kv_heads, dim, inter, vocab = shape
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim, intermediate_size=inter,
                  vocab_size=vocab, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0,
                  hidden_act="silu", tie_word_embeddings=tied, torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    header, payload, at = {}, [], 0
    for name, value in weights.items():
        if store == "F32":
            data = np.ascontiguousarray(value, np.float32).tobytes()
        elif store == "F16":
            data = value.astype(np.float16).tobytes()
        else:
            data = (np.ascontiguousarray(value, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = dict(dtype=store, shape=list(value.shape), data_offsets=[at, at + len(data)])
        payload.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(payload))


def reference(shape, weights, tied, tokens):
    """All positions at once, full attention, float64."""
    hidden, layers, heads, kv_heads, dim, inter, vocab = shape
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    n = len(tokens)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    angle = np.arange(n)[:, None] * (1.0 / 10000.0 ** (np.arange(0, dim, 2) / dim))[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

    def rotate(x):  # [n, heads, dim]
        a, b = x[..., : dim // 2], x[..., dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][tokens]
    hidden_mask = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(layers):
        p = f"model.layers.{i}."
        y = norm(x, w[p + "input_layernorm.weight"])
        q = rotate((y @ w[p + "self_attn.q_proj.weight"].T).reshape(n, heads, dim))
        k = rotate((y @ w[p + "self_attn.k_proj.weight"].T).reshape(n, kv_heads, dim))
        v = (y @ w[p + "self_attn.v_proj.weight"].T).reshape(n, kv_heads, dim)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim) + hidden_mask
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", s, v).reshape(n, heads * dim) @ w[p + "self_attn.o_proj.weight"].T
        y = norm(x, w[p + "post_attention_layernorm.weight"])
        gate = y @ w[p + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight"] if tied else w["lm_head.weight"]
    return norm(x, w["model.norm.weight"]) @ head.T


def ours(folder, dtype, chunk, tokens, vocab):
    run = subprocess.run([str(BIN / "nmc_logits_tool"), str(folder), dtype, str(chunk), *map(str, tokens)],
                         capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    return np.frombuffer(run.stdout, np.float32).reshape(len(tokens), vocab)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("store", ["BF16", "F16", "F32"])
def test_f32_logits_equal_the_reference(tmp_path, name, tied, store):
    shape = SHAPES[name]
    weights = make_weights(shape, 1, tied)
    if store == "F16":
        weights = {n: v.astype(np.float16).astype(np.float32) for n, v in weights.items()}
    save(tmp_path, shape, weights, tied, store)
    tokens = np.random.default_rng(2).integers(0, shape[-1], 75)
    want = reference(shape, weights, tied, tokens)
    assert 0.3 < want.std() < 3, "the tolerance is stated for logits of about unit variance"
    for chunk in (0, 1, 17):
        got = ours(tmp_path, "f32", chunk, tokens, shape[-1])
        assert np.abs(got - want).max() < 1e-4


def test_bf16_logits_stay_within_the_rounding_of_the_cache(tmp_path):
    """Weights are bf16 values already, so only K and V are rounded (relative 2^-9 each), once a layer."""
    shape = SHAPES["gqa"]
    weights = make_weights(shape, 3, False)
    save(tmp_path, shape, weights, False)
    tokens = np.random.default_rng(4).integers(0, shape[-1], 60)
    want = reference(shape, weights, False, tokens)
    got = ours(tmp_path, "bf16", 0, tokens, shape[-1])
    error = np.abs(got - want)
    assert error.max() > 1e-5, "rounding the cache must be visible, or this ran in f32"
    # 3 layers, two rounded operands, amplification through the residual stream of a small factor.
    assert error.max() < 3 * 2 * 2**-9 * 8
