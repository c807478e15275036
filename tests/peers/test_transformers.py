"""Logits of random checkpoints of every shape against Hugging Face transformers, where PEERS_ENV has it."""

import numpy as np
import pytest
from decoder_reference import SHAPES, make_weights, save
from test_forward_parity import ours, random_tokens

TOLERANCE = 1e-4  # of logits of unit variance, in f32

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
    shape = SHAPES[name].tie(tied)
    save(tmp_path, shape, make_weights(shape, 5))
    tokens = random_tokens(shape, 6)
    reference_python(LOGITS, tmp_path, tmp_path / "logits.npy", *tokens, needs=("torch", "transformers"))
    want = np.load(tmp_path / "logits.npy")
    got = ours(tmp_path, "f32", 17, tokens, shape.vocab)
    assert want.shape == got.shape
    assert np.abs(got - want).max() < TOLERANCE
    # What would be said next: equal wherever the reference itself is sure.
    first, second = np.sort(want, axis=1)[:, -1], np.sort(want, axis=1)[:, -2]
    sure = first - second > 10 * TOLERANCE
    assert sure.mean() >= 0.95
    assert (got.argmax(1) == want.argmax(1))[sure].all()
