"""No figure goes about without its origin: every report says what kind of evidence it is, and of which source, machine,
model and workload."""

import json
import re
import subprocess

import pytest
from api_client import metrics

MEASURED, SIMULATED = "random-weight-mechanism", "simulation"
# Command, its flags, flags that ask for something else, what it is evidence of.
REPORTS = {
    "demo": ({"--max-new-tokens": 2}, {"--prompt": "another"}, MEASURED),
    "likelihood": ({"--text": "one two"}, {"--text": "one three"}, MEASURED),
    "bench-engine": ({"--batch": 1, "--context-tokens": 16, "--decode-steps": 2, "--prompt-tokens": 16,
                      "--ttft-prompt-tokens": 32, "--repeats": 1}, {"--decode-steps": 3}, MEASURED),
    "store-bench": ({"--sizes": 4096, "--concurrency": 1, "--carrier": "shm", "--rounds": 1, "--seconds": 1},
                    {"--sizes": 8192}, MEASURED),
    "capacity": ({}, {"--seq-len": 64}, SIMULATED),
    "simulate": ({"--requests": 50}, {"--seed": 2}, SIMULATED),
    "route-sim": ({"--measured-turns": 1000, "--warmup-turns": 100, "--seeds": 1}, {"--seeds": 2}, SIMULATED),
}
MODEL = {"demo", "likelihood", "bench-engine"}


def provenance(bin_dir, command, flags):
    words = [str(word) for flag in flags.items() for word in flag]
    done = subprocess.run([bin_dir / "nano-mooncake", command, "--format", "json", *words], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["provenance"]


def is_digest(text):
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def assert_complete(build, machine, model):
    assert build["version"] and build["commit"] and build["compiler"] and build["libraries"]
    assert is_digest(build["source_digest"]) and isinstance(build["dirty"], bool)
    if machine is not None:
        assert is_digest(machine["fingerprint"]) and machine["cpu"] and machine["kernel"] and machine["cpus"] > 0
    if model is not None:
        assert is_digest(model["digest"]) and model["name"] == "tiny" and model["parameters"] > 0


@pytest.mark.parametrize("command", REPORTS)
def test_a_report_says_where_its_figures_come_from(bin_dir, command):
    flags, others, tier = REPORTS[command]
    origin = provenance(bin_dir, command, flags)
    assert origin["evidence_tier"] == tier
    assert (origin["model"] is not None) == (command in MODEL)
    assert (origin["machine"] is not None) == (tier == MEASURED)
    assert_complete(origin["build"], origin["machine"], origin["model"])
    # The same question has the same digest, another one another.
    assert is_digest(origin["workload_digest"]) and provenance(bin_dir, command, flags) == origin
    other = provenance(bin_dir, command, {**flags, **others})
    assert other.pop("workload_digest") != origin.pop("workload_digest") and other == origin


def test_a_report_on_a_server_says_what_the_server_is(bin_dir, start_server):
    server = start_server()
    own = metrics(server)["provenance"]
    assert own["evidence_tier"] == MEASURED
    assert_complete(own["build"], own["machine"], own["model"])
    load = {"--url": server.url, "--rates": 20, "--duration-s": 0.5, "--warmup-s": 0, "--prompt-tokens": 16,
            "--output-tokens": 2, "--max-lateness-ms": 10000}
    origin = provenance(bin_dir, "slo", load)
    assert (origin["evidence_tier"], origin["model"]) == (own["evidence_tier"], own["model"])
    assert (origin["server_build"], origin["server_machine"]) == (own["build"], own["machine"])
    assert_complete(origin["build"], origin["machine"], None)
    other = provenance(bin_dir, "slo", {**load, "--seed": 9})
    assert is_digest(origin["workload_digest"]) and other["workload_digest"] != origin["workload_digest"]


def test_one_trace_is_one_workload_whatever_file_it_comes_from(bin_dir, tmp_path):
    lines = [{"timestamp": 1000 * i, "input_length": 700, "output_length": 3, "hash_ids": [7, i]} for i in range(4)]
    digests = []
    for name, requests in (("a.jsonl", lines), ("b.jsonl", lines), ("c.jsonl", lines[:3])):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in requests))
        for command in ("simulate", "route-sim"):
            digests.append(provenance(bin_dir, command, {"--trace": tmp_path / name})["workload_digest"])
    assert len(set(digests[:4])) == 1 and len(set(digests[4:])) == 1 and digests[0] != digests[4]
