"""`nano-mooncake local-hf-benchmark`: the experiments on a checkpoint of this machine, and what is said without one."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from decoder_reference import SHAPES, make_weights, save
from test_gguf import WIDE
from test_sampling import save_tokenizer

import evidence_reports as evidence

VOCAB = 264
FAKE = """#!{python}
# In place of a Python that has transformers: a plain forward pass in numpy, the ids' logits as the script writes them.
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from dataclasses import replace
from decoder_reference import SHAPES, make_weights, reference
folder, output, *ids = sys.argv[3:]
shape = replace(SHAPES["gqa"], vocab={vocab}, **{wide!r})
logits = reference(shape, make_weights(shape, {seed}), np.array([int(i) for i in ids]))
logits.astype(np.float32).tofile(output)
print("numpy")
"""


@pytest.fixture
def benchmark(bin_dir, tmp_path):
    def run(*flags, code=0, environment=None):
        output = tmp_path / "report.json"
        done = subprocess.run([bin_dir / "nano-mooncake-local-hf-benchmark", "--output", output, "--index",
                               tmp_path / "index.jsonl", *map(str, flags)], capture_output=True, text=True, timeout=300,
                              check=False, env={**os.environ, "HF_HOME": str(tmp_path / "hf"), **(environment or {})})
        assert done.returncode == code, done.stderr
        return done, json.loads(output.read_text()) if output.exists() else None

    return run


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    shape = replace(SHAPES["gqa"], vocab=VOCAB, **WIDE)
    save(folder, shape, make_weights(shape, 1))
    save_tokenizer(folder, VOCAB)
    return folder


SMALL = ("--workload", "exact-repeat", "--mode", "pd-global", "--dram-bytes", "64MiB", "--dtype", "f32")


def python_with_logits(tmp_path, seed):
    program = tmp_path / f"python-{seed}"
    program.write_text(FAKE.format(python=sys.executable, tests=os.path.dirname(__file__), vocab=VOCAB, wide=WIDE,
                                   seed=seed))
    program.chmod(0o755)
    return program


def test_a_checkpoint_gives_evidence_of_its_own_tier_with_parity(benchmark, checkpoint, tmp_path):
    _, report = benchmark("--hf-model-path", checkpoint, *SMALL, "--python", python_with_logits(tmp_path, 1))
    assert report["provenance"]["evidence_tier"] == "local-checkpoint"
    assert report["provenance"]["model"]["name"] == "checkpoint"
    assert {row["status"] for row in report["cases"]} == {"done"}
    parity = {row["against"]: row for row in report["parity"]}
    assert parity["full-attention"]["status"] in ("equal", "within-tolerance")
    assert parity["transformers"]["status"] == "within-tolerance", parity["transformers"]
    assert parity["transformers"]["tokens"] == 55
    assert evidence.sealed(report, "report_digest") == report


def test_logits_of_another_model_are_different(benchmark, checkpoint, tmp_path):
    _, report = benchmark("--hf-model-path", checkpoint, *SMALL, "--python", python_with_logits(tmp_path, 2))
    assert [row["status"] for row in report["parity"]][1] == "different"


def test_without_transformers_the_report_says_so(benchmark, checkpoint):
    _, report = benchmark("--hf-model-path", checkpoint, *SMALL, "--python", "/nowhere/python3")
    row = report["parity"][1]
    assert (row["against"], row["status"]) == ("transformers", "not_available")
    assert "/nowhere/python3" in row["detail"]


def test_the_preset_is_found_where_hugging_faces_tools_keep_it(benchmark, checkpoint, tmp_path):
    snapshots = tmp_path / "hf" / "hub" / "models--TinyLlama--TinyLlama-1.1B-Chat-v1.0" / "snapshots"
    snapshots.mkdir(parents=True)
    checkpoint.rename(snapshots / "0123abc")
    _, report = benchmark("--preset", "tinyllama-cache", *SMALL, "--python", "/nowhere/python3")
    assert {row["status"] for row in report["cases"]} == {"done"}


def test_a_missing_checkpoint_is_an_error_unless_it_may_be(benchmark, tmp_path):
    done, report = benchmark("--preset", "tinyllama-cache", code=2)
    assert "no snapshot of TinyLlama" in done.stderr and done.stderr.count("\n") == 1 and report is None
    done, report = benchmark("--hf-model-path", tmp_path / "none", "--skip-if-missing")
    assert "skipped" in done.stdout and report is None
    done, report = benchmark("--preset", "tinyllama-cache", "--skip-if-missing", "--write-skipped")
    assert "no snapshot of TinyLlama" in report["skipped"] and report["cases"] == []
    assert evidence.sealed(report, "report_digest") == report
    assert not (tmp_path / "index.jsonl").exists()


def test_one_source_has_to_be_named(benchmark, tmp_path):
    for flags in ((), ("--preset", "tinyllama-cache", "--hf-model-path", tmp_path)):
        done, _ = benchmark(*flags, code=2)
        assert "--hf-model-path or --preset" in done.stderr
