"""Logits of random Llama-shaped checkpoints against Hugging Face transformers, where PEERS_ENV has it."""

import numpy as np
import pytest
from test_forward_parity import SHAPES, make_weights, ours, save

LOGITS = """
import sys
import numpy, torch, transformers
folder, output, *ids = sys.argv[1:]
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
with torch.no_grad():
    numpy.save(output, model(torch.tensor([[int(i) for i in ids]])).logits[0].numpy())
"""


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_transformers(tmp_path, reference_python, name, tied):
    shape = SHAPES[name]
    save(tmp_path, shape, make_weights(shape, 5, tied), tied)
    tokens = np.random.default_rng(6).integers(0, shape[-1], 75)
    reference_python(LOGITS, tmp_path, tmp_path / "logits.npy", *tokens, needs=("torch", "transformers"))
    want = np.load(tmp_path / "logits.npy")
    got = ours(tmp_path, "f32", 17, tokens, shape[-1])
    assert want.shape == got.shape
    assert np.abs(got - want).max() < 1e-4
