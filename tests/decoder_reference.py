"""Random checkpoints of every shape that we read, and a plain full-attention forward pass over them in numpy
(float64), written from what the layers are defined to do. Nothing here looks at the code under test."""

import json
import struct
from dataclasses import dataclass, field, replace

import numpy as np

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 128}


@dataclass(frozen=True)
class Shape:
    """The members of a config.json that matter, under its names; what a family implies is filled in by FAMILIES."""
    model_type: str = "llama"
    hidden: int = 96
    layers: int = 3
    heads: int = 6
    kv_heads: int = 2
    dim: int = 32
    inter: int = 160
    vocab: int = 263
    tied: bool = False
    theta: float = 10000.0
    rope: dict = field(default_factory=dict)  # rope_scaling
    windows: tuple = ()  # by layer; 0 or (): everything before
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    extra: dict = field(default_factory=dict)  # further members of config.json

    def tie(self, tied):
        return replace(self, tied=tied)


SHAPES = {
    "mha": Shape(hidden=64, heads=4, kv_heads=4, dim=16, inter=128, vocab=97),
    "gqa": Shape(),
    "mqa": Shape(hidden=80, layers=2, heads=5, kv_heads=1, dim=20, inter=112, vocab=300),
    "llama3": Shape(dim=64, heads=3, kv_heads=1, theta=500000.0, rope=LLAMA3_ROPE),
    "linear_rope": Shape(rope={"type": "linear", "factor": 4.0}),
    "llama_biases": Shape(qkv_bias=True, out_bias=True, mlp_bias=True,
                          extra={"attention_bias": True, "mlp_bias": True}),
    "mistral": Shape("mistral", windows=(64, 64, 64), extra={"sliding_window": 64}),
    "mistral_no_window": Shape("mistral", extra={"sliding_window": None}),
    "qwen2": Shape("qwen2", qkv_bias=True, theta=1e6, extra={"use_sliding_window": False, "sliding_window": 64}),
    "qwen2_window": Shape("qwen2", qkv_bias=True, windows=(0, 64, 64),
                          extra={"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}),
    "qwen3": Shape("qwen3", dim=40, heads=4, qk_norm=True, theta=1e6, extra={"sliding_window": None}),
    "qwen3_mixed": Shape("qwen3", qk_norm=True, windows=(64, 0, 64),
                         extra={"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0,
                                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                 "qwen3": "Qwen3ForCausalLM"}


def bf16(x):
    """Rounds to bfloat16 values, ties to even, and back to float32."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return (((u + 0x7FFF + ((u >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def make_weights(shape, seed):
    rng = np.random.default_rng(seed)
    weights = {}

    def projection(name, rows, columns, bias):
        weights[name + ".weight"] = bf16(rng.standard_normal((rows, columns)) / np.sqrt(columns))
        if bias:
            weights[name + ".bias"] = bf16(rng.standard_normal(rows) * 0.3)

    def norm(name, size, low=0.5, high=1.5):
        weights[name + ".weight"] = bf16(rng.uniform(low, high, size))

    q, kv = shape.heads * shape.dim, shape.kv_heads * shape.dim
    scale = 1 / np.sqrt(shape.hidden) if shape.tied else 1
    weights["model.embed_tokens.weight"] = bf16(rng.standard_normal((shape.vocab, shape.hidden)) * scale)
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", shape.hidden)
        norm(p + "post_attention_layernorm", shape.hidden)
        projection(p + "self_attn.q_proj", q, shape.hidden, shape.qkv_bias)
        projection(p + "self_attn.k_proj", kv, shape.hidden, shape.qkv_bias)
        projection(p + "self_attn.v_proj", kv, shape.hidden, shape.qkv_bias)
        projection(p + "self_attn.o_proj", shape.hidden, q, shape.out_bias)
        if shape.qk_norm:
            norm(p + "self_attn.q_norm", shape.dim)
            norm(p + "self_attn.k_norm", shape.dim)
        projection(p + "mlp.gate_proj", shape.inter, shape.hidden, shape.mlp_bias)
        projection(p + "mlp.up_proj", shape.inter, shape.hidden, shape.mlp_bias)
        projection(p + "mlp.down_proj", shape.hidden, shape.inter, shape.mlp_bias)
    norm("model.norm", shape.hidden, 0.9, 1.1)
    if not shape.tied:
        projection("lm_head", shape.vocab, shape.hidden, False)
    return weights


def config_json(shape):
    config = dict(architectures=[ARCHITECTURES[shape.model_type]], model_type=shape.model_type,
                  hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
                  num_key_value_heads=shape.kv_heads, head_dim=shape.dim, intermediate_size=shape.inter,
                  vocab_size=shape.vocab, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=shape.theta,
                  hidden_act="silu", tie_word_embeddings=shape.tied, torch_dtype="bfloat16")
    if shape.rope:
        config["rope_scaling"] = shape.rope
    return config | shape.extra


def tensor_bytes(value, store):
    if store == "F32":
        return np.ascontiguousarray(value, np.float32).tobytes()
    if store == "F16":
        return value.astype(np.float16).tobytes()
    return (np.ascontiguousarray(value, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write_safetensors(path, weights, store="BF16"):
    header, payload, at = {}, [], 0
    for name, value in weights.items():
        data = tensor_bytes(value, store)
        header[name] = dict(dtype=store, shape=list(value.shape), data_offsets=[at, at + len(data)])
        payload.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(payload))


def save(folder, shape, weights, store="BF16"):
    (folder / "config.json").write_text(json.dumps(config_json(shape)))
    write_safetensors(folder / "model.safetensors", weights, store)


TARGETS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
           "mlp.up_proj", "mlp.down_proj")


def save_adapter(folder, weights, layers, seed, rank=5, alpha=8.0, targets=TARGETS):
    """A random adapter in PEFT's layout, in f32; what it adds to each projection, for reference()."""
    rng = np.random.default_rng(seed)
    tensors, deltas = {}, {}
    for i in range(layers):
        for target in targets:
            name = f"model.layers.{i}.{target}"
            rows, columns = weights[name + ".weight"].shape
            down = (rng.standard_normal((rank, columns)) / np.sqrt(columns)).astype(np.float32)
            up = (rng.standard_normal((rows, rank)) / np.sqrt(rank) / 2).astype(np.float32)
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = up
            deltas[name] = alpha / rank * up.astype(np.float64) @ down
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(dict(
        peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, bias="none",
        target_modules=sorted({t.split(".")[1] for t in targets}))))
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")
    return deltas


def frequencies(shape):
    """Radians per position of each pair of dimensions."""
    plain = 1.0 / shape.theta ** (np.arange(0, shape.dim, 2) / shape.dim)
    if not shape.rope:
        return plain
    if shape.rope.get("type") == "linear":
        return plain / shape.rope["factor"]
    turns = shape.rope["original_max_position_embeddings"] * plain / (2 * np.pi)
    low, high = shape.rope["low_freq_factor"], shape.rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * plain + (1 - kept) * plain / shape.rope["factor"]


def reference(shape, weights, tokens, adapter=None):
    """Logits of all positions at once, full attention, float64. `adapter` maps a projection's name to what is added to
    its weight."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    for name, delta in (adapter or {}).items():
        w[name + ".weight"] = w[name + ".weight"] + delta
    n, dim, heads, kv_heads = len(tokens), shape.dim, shape.heads, shape.kv_heads

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"]

    def project(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)

    angle = np.arange(n)[:, None] * frequencies(shape)[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

    def rotate(x):  # [n, heads, dim]
        a, b = x[..., : dim // 2], x[..., dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    back = np.arange(n)[:, None] - np.arange(n)[None, :]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        window = shape.windows[i] if shape.windows else 0
        unseen = (back < 0) | (back >= window) if window else back < 0
        y = norm(x, p + "input_layernorm")
        q = project(y, p + "self_attn.q_proj").reshape(n, heads, dim)
        k = project(y, p + "self_attn.k_proj").reshape(n, kv_heads, dim)
        v = project(y, p + "self_attn.v_proj").reshape(n, kv_heads, dim)
        if shape.qk_norm:
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (rotate(k), v))
        s = np.einsum("qhd,khd->hqk", rotate(q), k) / np.sqrt(dim) + np.where(unseen, -np.inf, 0.0)
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        x = x + project(np.einsum("hqk,khd->qhd", s, v).reshape(n, heads * dim), p + "self_attn.o_proj")
        y = norm(x, p + "post_attention_layernorm")
        gate = project(y, p + "mlp.gate_proj")
        x = x + project(gate / (1 + np.exp(-gate)) * project(y, p + "mlp.up_proj"), p + "mlp.down_proj")
    head = w["model.embed_tokens.weight"] if shape.tied else w["lm_head.weight"]
    return norm(x, "model.norm") @ head.T
