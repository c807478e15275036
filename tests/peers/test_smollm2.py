"""SmolLM2-135M-Instruct as `make model` fetched it, against other programs on the same file: what a text is worth
against Hugging Face transformers, and what is said against llama.cpp's server."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

BIN = pathlib.Path(os.environ.get("NMC_BIN_DIR", "build/release/bin"))
TEXT = pathlib.Path(__file__).read_text()[:400] + """
The quick brown fox jumps over the lazy dog. Water boils at 100 degrees Celsius at sea level; on a mountain it boils
earlier, since the pressure is lower. Das Wasser kocht auf dem Berg früher. 水在山上更早沸腾。🙂 """
PROMPTS = ["Gravity is", "The capital of France is", "def fibonacci(n):", "Once upon a time, in a small village,",
           "The three primary colours are"]
OUTPUT = 32
# llama.cpp rounds activations to 8 bits for its quantised products, which moves a logprob by 0.04 in the median and by
# up to 0.5; a choice between ids that are closer than that is a draw.
MEDIAN_CHANGE, LARGEST_CHANGE = 0.08, 0.6
MARGIN = 0.5

LIKELIHOOD = """
import os, sys
import numpy, torch, transformers
path, output, *ids = sys.argv[1:]
ids = torch.tensor([[int(i) for i in ids]])
folder, name = os.path.split(path)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32,
                                                          attn_implementation="eager")
with torch.no_grad():
    logprobs = model(ids).logits[0].log_softmax(-1)
numpy.save(output, logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy())
"""
IDS = """
import json, os, sys
import transformers
folder, name = os.path.split(sys.argv[1])
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
print(json.dumps(tokenizer(sys.argv[2])["input_ids"]))
"""
GREEDY = """
import json, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.warmup = sys.argv[1], 512, 1, False
server = xllamacpp.Server(params)
answers = []
for prompt in sys.argv[3:]:
    answer = server.handle_completions({"prompt": prompt, "max_tokens": int(sys.argv[2]), "temperature": 0,
                                        "logprobs": 2, "cache_prompt": False, "ignore_eos": True})
    content = answer["choices"][0]["logprobs"]["content"]
    answers.append([[t["id"], [[o["id"], o["logprob"]] for o in t["top_logprobs"]]] for t in content])
print("ANSWERS", json.dumps(answers))
"""


@pytest.fixture(scope="module")
def model_file():
    cache = os.environ.get("NANO_MOONCAKE_CACHE") or (
        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nano-mooncake")
    path = pathlib.Path(cache) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.skip(f"{path} isn't there: make model")
    return path


def likelihood(*flags):
    run = subprocess.run([str(BIN / "nano-mooncake"), "likelihood", "--model", "smollm2", "--quiet", "--format", "json",
                          *map(str, flags)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_it_speaks_sentences(model_file):
    run = subprocess.run([str(BIN / "nano-mooncake"), "demo", "--model", "smollm2", "--quiet", "--format", "json",
                          "--prompt", "What is the capital of France?"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert [entry["text"] for entry in json.loads(run.stdout)["runs"]] == ["The capital of France is Paris."] * 2


def test_a_text_is_worth_what_transformers_says(tmp_path, model_file, reference_python):
    ours = likelihood("--text", TEXT, "--dtype", "f32")
    ids = ours["token_ids"]
    needs = ("torch", "transformers", "gguf")
    assert ids == json.loads(reference_python(IDS, model_file, TEXT, needs=needs).splitlines()[-1])
    reference_python(LIKELIHOOD, model_file, tmp_path / "logprobs.npy", *ids, needs=needs)
    want = np.load(tmp_path / "logprobs.npy")
    assert len(want) == len(ours["logprobs"]) > 150
    assert np.abs(np.array(ours["logprobs"]) - want).max() < 1e-3
    assert abs(ours["runs"][0]["log_likelihood_per_token"] - want.mean()) < 1e-4


def test_what_is_said_is_what_llama_cpp_says(model_file, reference_python):
    lines = reference_python(GREEDY, model_file, OUTPUT, *PROMPTS, needs=("xllamacpp",)).splitlines()
    answers = json.loads(next(line for line in lines if line.startswith("ANSWERS ")).partition(" ")[2])
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = [token for token, _ in answer]
        assert len(ids) == OUTPUT
        # Theirs, forced on us, so that each token is compared after the same ones: which would we have said?
        command = [str(BIN / "nmc_logits_tool"), str(model_file), "f32", "0"]
        given = likelihood("--text", prompt, "--dtype", "f32")["token_ids"]
        run = subprocess.run([*command, *map(str, given + ids)], capture_output=True, timeout=300)
        assert run.returncode == 0, run.stderr.decode()
        logits = np.frombuffer(run.stdout, np.float32).reshape(len(given) + OUTPUT, -1)[len(given) - 1:-1]
        logprobs = logits - logits.max(1, keepdims=True)
        logprobs = logprobs - np.log(np.exp(logprobs).sum(1, keepdims=True))
        change = [abs(logprobs[step, token] - told) for step, (_, top) in enumerate(answer) for token, told in top]
        assert np.median(change) < MEDIAN_CHANGE and max(change) < LARGEST_CHANGE, prompt
        for step, token in enumerate(ids):
            said = int(logits[step].argmax())
            if said != token:
                (first, best), (second, next_best) = answer[step][1][:2]
                assert {first, second} == {said, token} and best - next_best < MARGIN, (prompt, step, answer[step])
                assert logits[step, said] - logits[step, token] < MARGIN, (prompt, step, said, token)
