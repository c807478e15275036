"""GGUF files written by the Python package `gguf`, of each type that we read and each shape, give the logits of the
same weights in numpy; what can't be served is refused by name."""

import json
import subprocess
from dataclasses import replace

import gguf
import numpy as np
import pytest
from decoder_reference import SHAPES, frequencies, make_weights, reference
from test_forward_parity import BIN, ours, random_tokens
from tokenizers import pre_tokenizers

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
# Rows are whole blocks of 32.
WIDE = {"hidden": 96, "inter": 160}


def gguf_name(name):
    special = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "lm_head.weight": "output.weight"}
    if name in special:
        return special[name]
    _, _, layer, rest = name.split(".", 3)
    inner, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[inner]}.{kind}"


def paired(value, heads):
    """Rows of a head from halves to pairs, as llama.cpp keeps those of Llama's queries and keys."""
    rows = value.shape[0]
    return value.reshape(heads, 2, rows // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def write(path, shape, weights, kind, change=None):
    """Returns the weights as they can be read back."""
    arch = {"mistral": "llama"}.get(shape.model_type, shape.model_type)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(shape.layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inter)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.dim)
    writer.add_value_length(shape.dim)
    writer.add_rope_dimension_count(shape.dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.rope.get("type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(shape.rope["factor"])
    elif shape.rope:  # Llama 3's is worked out when a file is made
        plain = frequencies(replace(shape, rope={}))
        writer.add_tensor("rope_freqs.weight", (plain / frequencies(shape)).astype(np.float32))
    if shape.windows:
        writer.add_sliding_window(shape.windows[0])
    if change:
        change(writer)
    seen = {}
    for name, value in weights.items():
        vector = value.ndim == 1
        qtype = gguf.GGMLQuantizationType.F32 if vector else kind
        data = gguf.quants.quantize(value.astype(np.float32), qtype)
        seen[name] = gguf.quants.dequantize(data, qtype).reshape(value.shape)
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            data = paired(data, shape.heads if ".q_proj." in name else shape.kv_heads)
        writer.add_tensor(gguf_name(name), data, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_each_type_gives_the_logits_of_its_weights(tmp_path, kind):
    shape = replace(SHAPES["gqa"], **WIDE)
    path = tmp_path / "model.gguf"
    weights = write(path, shape, make_weights(shape, 1), gguf.GGMLQuantizationType[kind])
    tokens = random_tokens(shape, 2, 100)
    want = reference(shape, weights, tokens)
    got = ours(path, "f32", 17, tokens, shape.vocab)
    assert np.abs(got - want).max() < 1e-4 * max(1, want.std())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["llama3", "linear_rope", "mistral", "qwen2", "qwen3"])
def test_each_shape_gives_the_logits_of_its_weights(tmp_path, name, tied):
    shape = replace(SHAPES[name], tied=tied, **WIDE)
    path = tmp_path / "model.gguf"
    weights = write(path, shape, make_weights(shape, 1), gguf.GGMLQuantizationType.Q8_0)
    tokens = random_tokens(shape, 2)
    want = reference(shape, weights, tokens)
    got = ours(path, "f32", 0, tokens, shape.vocab)
    assert np.abs(got - want).max() < 1e-4 * max(1, want.std())


TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


def with_tokenizer(template=TEMPLATE, kind="gpt2", **changes):
    """Bytes, a merge and three control tokens, as `gpt2` or as SentencePiece has them."""
    def change(writer):
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        byte_tokens = alphabet if kind == "gpt2" else [f"<0x{i:02X}>" for i in range(256)]
        tokens = [*byte_tokens, "he", "<s>", "<|user|>", "<|assistant|>"]
        types = [1 if kind == "gpt2" else 6] * 256 + [1, 3, 3, 3]
        fields = {"model": kind, "tokens": tokens, "types": types, "merges": ["h e"], "pre": "gpt-2", **changes}
        writer.add_tokenizer_model(fields["model"])
        writer.add_token_list(fields["tokens"])
        writer.add_token_types(fields["types"])
        writer.add_bos_token_id(257)
        writer.add_add_bos_token(True)
        if kind == "gpt2":
            writer.add_tokenizer_pre(fields["pre"])
            writer.add_token_merges(fields["merges"])
        else:
            writer.add_token_scores([0.0] * len(tokens))
        if template:
            writer.add_chat_template(template)
    return change


def demo(path, *flags):
    return subprocess.run([str(BIN / "nano-mooncake"), "demo", "--model", str(path), "--prompt", "hello", "--quiet",
                           "--format", "json", "--max-new-tokens", "4", *flags], capture_output=True, text=True,
                          timeout=60)


@pytest.mark.parametrize("kind, tokens", [("gpt2", 1 + 1 + 4 + 1), ("llama", 1 + 1 + 5 + 1)])
def test_tokenizer_and_template_come_from_the_metadata(tmp_path, kind, tokens):
    """A start token, the user's, "he" joined where there are merges, the assistant's."""
    shape = replace(SHAPES["gqa"], vocab=264, **WIDE)
    path = tmp_path / "model.gguf"
    change = with_tokenizer(kind=kind)

    def whole(writer):
        change(writer)
        writer.add_add_space_prefix(False)

    write(path, shape, make_weights(shape, 1), gguf.GGMLQuantizationType.Q8_0, whole)
    run = demo(path)
    assert run.returncode == 0, run.stderr
    first, second = json.loads(run.stdout)["runs"]
    assert first["prompt_tokens"] == tokens
    assert second["saved_tokens"] == tokens and second["text"] == first["text"]


@pytest.mark.parametrize("changes, expected", [
    ({"model": "bert"}, '`tokenizer.ggml.model`: expected "gpt2" or "llama"'),
    ({"tokens": [f"t{i}" for i in range(300)], "types": [1] * 300, "merges": ["t1 0"]}, '"0" is no token'),
    ({"types": [1]}, "token types: expected as many as tokens, 260, got 1"),
    ({"merges": ["h"]}, "merges"), ({"pre": "nobody-knows"}, "nobody-knows")])
def test_a_tokenizer_that_cant_be_used_is_refused_by_name(tmp_path, changes, expected):
    shape = replace(SHAPES["gqa"], vocab=264, **WIDE)
    path = tmp_path / "model.gguf"
    write(path, shape, make_weights(shape, 1), gguf.GGMLQuantizationType.Q8_0, with_tokenizer(**changes))
    run = demo(path)
    assert run.returncode != 0
    assert str(path) in run.stderr and expected in run.stderr


def refusal(path):
    run = subprocess.run([str(BIN / "nmc_logits_tool"), str(path), "f32", "0", "1"], capture_output=True, timeout=60)
    assert run.returncode == 2
    return run.stderr.decode()


def test_what_cant_be_served_is_refused_by_name(tmp_path):
    shape = replace(SHAPES["gqa"], **WIDE)
    weights = make_weights(shape, 1)
    path = tmp_path / "model.gguf"
    f32 = gguf.GGMLQuantizationType.F32

    write(path, shape, {n: v for n, v in weights.items() if n != "model.layers.1.mlp.up_proj.weight"}, f32)
    assert "blk.1.ffn_up.weight is missing" in refusal(path)
    write(path, shape, weights | {"model.layers.0.mlp.up_proj.weight": np.zeros((shape.inter, 32))}, f32)
    assert "blk.0.ffn_up.weight: the metadata makes its shape [160, 96]" in refusal(path)
    write(path, shape, weights, f32, lambda w: w.add_tensor("blk.0.extra.weight", np.zeros(4, np.float32)))
    assert '"blk.0.extra.weight" has no place' in refusal(path)
    write(path, replace(shape, model_type="mamba"), weights, f32)
    assert "general.architecture" in refusal(path) and "mamba" in refusal(path)
    write(path, replace(shape, kv_heads=4), weights, f32)
    assert "attention.head_count_kv" in refusal(path)
    write(path, shape, weights, f32, lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN))
    assert "llama.rope.scaling.type" in refusal(path) and "yarn" in refusal(path)

    write(path, shape, weights, gguf.GGMLQuantizationType.Q8_0)
    whole = path.read_bytes()
    for size in (0, 3, 4, 20, 200, 2000, len(whole) - 40):
        path.write_bytes(whole[:size])
        assert str(path) in refusal(path)
    path.write_bytes(b"GGUF" + (4).to_bytes(4, "little") + bytes(64))
    assert "expected GGUF version 2 or 3" in refusal(path)
