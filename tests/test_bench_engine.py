"""nano-mooncake bench-engine at a size that runs in seconds: the shape of its report, not its figures."""

import json
import os
import signal
import subprocess

import pytest

SMALL = ["--batch", "1,3", "--prompt-tokens", "20,70", "--context-tokens", "30", "--decode-steps", "3",
         "--ttft-prompt-tokens", "200", "--repeats", "2", "--threads", "1"]


def bench(bin_dir, *arguments):
    return subprocess.run([bin_dir / "nano-mooncake", "bench-engine", *arguments], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "NANO_MOONCAKE_MAX_BATCH_TOKENS": "32"})


def test_json_tells_rates_and_the_machine_they_were_measured_on(bin_dir):
    done = bench(bin_dir, *SMALL, "--format", "json", "--quiet")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "nano-mooncake/bench-engine/v1"
    assert report["memory_gb_s"] > 0 and report["matmul_gflops"] > 0
    assert [row["batch"] for row in report["decode"]] == [1, 3]
    assert [row["prompt_tokens"] for row in report["prefill"]] == [20, 70]
    for rate, rows in (("decode_tokens_per_s", report["decode"]), ("prefill_tokens_per_s", report["prefill"])):
        for row in rows:
            assert 0 < row[rate + "_min"] <= row[rate] <= row[rate + "_max"]
            assert row["memory_fraction"] > 0 and row["matmul_fraction"] > 0
            assert row["kernel"]


def test_time_to_first_token_is_of_real_hits(bin_dir):
    report = json.loads(bench(bin_dir, *SMALL, "--format", "json", "--quiet").stdout)
    cases = {row["case"]: row for row in report["ttft"]}
    assert list(cases) == ["cold", "shared-prefix", "exact-hit"]
    assert [row["computed_tokens"] for row in cases.values()] == [200, 200 - 176, 0]
    assert [row["cache_source"] for row in cases.values()] == ["none", "dram", "dram"]


def test_table_has_a_row_for_each_measure_and_the_kernels_name(bin_dir):
    done = bench(bin_dir, *SMALL)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert rows[-7:] == ["decode", "decode", "prefill", "prefill", "ttft", "ttft", "ttft"]
    assert "GB/s" in done.stdout and "bf16" in done.stdout


def test_warns_when_the_build_is_no_release_build(bin_dir):
    program = bin_dir / "nano-mooncake"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout
    done = bench(bin_dir, *SMALL, "--quiet")
    assert ("build: its figures say nothing" in done.stderr) == (" Release build" not in version)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_exits_130_and_leaves_no_file(bin_dir, tmp_path, number):
    path = tmp_path / "report.json"
    process = subprocess.Popen([bin_dir / "nano-mooncake", "bench-engine", "--repeats", "1000", "--output", path],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "machine" in process.stderr.readline()  # it has begun, and 1000 repeats take minutes
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_sizes_beyond_the_context_exit_2(bin_dir):
    done = bench(bin_dir, "--prompt-tokens", "9000", "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "9000" in done.stderr and "8192" in done.stderr
