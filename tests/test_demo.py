"""nano-mooncake demo as a user runs it: one process a run."""

import csv
import io
import json
import os
import subprocess

import pytest

TIMEOUT_S = 120


def run(bin_dir, *arguments, env=None, program="nano-mooncake-demo"):
    return subprocess.run([bin_dir / program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, "NANO_MOONCAKE_DRAM_BYTES": "32MiB", **(env or {})})


def demo(bin_dir, *arguments, **kwargs):
    done = run(bin_dir, *arguments, "--format", "json", **kwargs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_prints_the_text_and_both_runs_without_any_flag(bin_dir):
    done = run(bin_dir)
    assert done.returncode == 0, done.stderr
    report = demo(bin_dir)
    assert report["runs"][0]["text"] in done.stdout
    for word in ("first", "second", "ttft_ms", "computed_tokens", "saved_tokens", "cache_source", "transport_ms"):
        assert word in done.stdout
    assert done.stderr.startswith("nano-mooncake demo: model tiny")


def test_json_has_the_documented_members_in_order(bin_dir):
    report = demo(bin_dir)
    assert list(report) == ["schema", "provenance", "model", "mode", "transfer", "runs"]
    assert report["schema"] == "nano-mooncake/demo/v1"
    assert (report["model"], report["mode"], report["transfer"]) == ("tiny", "pd", "shm")
    for one in report["runs"]:
        assert list(one) == ["text", "prompt_tokens", "computed_tokens", "saved_tokens", "cache_source", "ttft_ms",
                             "total_ms"]
        assert 0 < one["ttft_ms"] <= one["total_ms"]


@pytest.mark.parametrize("mode", ["monolithic", "pd", "pd-process"])
def test_second_run_computes_nothing_and_says_the_same(bin_dir, mode):
    first, second = demo(bin_dir, "--mode", mode)["runs"]
    assert (first["computed_tokens"], first["saved_tokens"]) == (first["prompt_tokens"], 0)
    assert (second["computed_tokens"], second["saved_tokens"]) == (0, second["prompt_tokens"])
    assert (first["cache_source"], second["cache_source"]) == ("none", "dram")
    assert first["text"] == second["text"] != ""


@pytest.mark.parametrize("transfer, carrier", [("direct", "memory"), ("shm", "shm"), ("tcp", "tcp")])
def test_every_hand_over_says_the_same_and_tells_what_it_moved(bin_dir, transfer, carrier):
    rows = list(csv.DictReader(io.StringIO(run(bin_dir, "--transfer", transfer, "--format", "csv").stdout)))
    for row in rows:
        assert row["carrier"] == carrier
        assert (int(row["transfer_bytes"]) > 0) == (transfer != "direct")
        assert (float(row["encode_ms"]) > 0) == (transfer != "direct")
    texts = [one["text"] for one in demo(bin_dir, "--transfer", transfer)["runs"]]
    assert texts == [one["text"] for one in demo(bin_dir, "--mode", "monolithic")["runs"]]


@pytest.mark.parametrize("prompt", ["x", "Grüße, 世界 \U0001f30d", "a" * 500])
def test_takes_any_text_as_prompt(bin_dir, prompt):
    first, second = demo(bin_dir, "--prompt", prompt, "--max-new-tokens", 3)["runs"]
    assert first["prompt_tokens"] > len(prompt.encode())  # one token a byte, and those of the turn
    assert second["computed_tokens"] == 0


def test_without_reuse_both_runs_compute_everything(bin_dir):
    first, second = demo(bin_dir, env={"NANO_MOONCAKE_REUSE": "none"})["runs"]
    assert second["computed_tokens"] == first["computed_tokens"] == first["prompt_tokens"]
    assert second["cache_source"] == "none"
    assert first["text"] == second["text"]


def test_without_tails_the_last_block_is_computed_again(bin_dir):
    first, second = demo(bin_dir, env={"NANO_MOONCAKE_TAIL_BYTES": "0"})["runs"]
    assert second["computed_tokens"] == first["prompt_tokens"] % 16 or 16
    assert first["text"] == second["text"]


@pytest.mark.parametrize("mode", ["monolithic", "pd"])
def test_next_process_hits_from_disk_though_the_first_was_killed(bin_dir, tmp_path, mode):
    disk = tmp_path / "cache"
    cold = demo(bin_dir, "--mode", mode)["runs"][0]
    failpoint = {"NANO_MOONCAKE_FAILPOINTS": "demo.between_runs=exit"}
    killed = run(bin_dir, "--mode", mode, "--disk-dir", disk, env=failpoint)
    assert (killed.returncode, killed.stdout) == (137, "")
    first, second = demo(bin_dir, "--mode", mode, "--disk-dir", disk)["runs"]
    assert (first["computed_tokens"], first["cache_source"]) == (0, "disk")
    assert (second["computed_tokens"], second["cache_source"]) == (0, "dram")
    assert first["text"] == second["text"] == cold["text"]


def test_a_disk_folder_of_another_version_is_refused_and_left_alone(bin_dir, tmp_path):
    disk = tmp_path / "cache"
    demo(bin_dir, "--disk-dir", disk)
    mark = disk / "FORMAT"
    mark.write_bytes(mark.read_bytes().replace(b"version 1", b"version 9"))
    before = {path.name: path.read_bytes() for path in disk.iterdir() if path.name != "LOCK"}
    done = run(bin_dir, "--disk-dir", disk, "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert str(disk) in done.stderr and "version 9, expected 1" in done.stderr
    assert before == {path.name: path.read_bytes() for path in disk.iterdir() if path.name != "LOCK"}


def test_rows_come_as_csv_and_markdown(bin_dir):
    done = run(bin_dir, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["run"] for row in rows] == ["first", "second"]
    assert rows[1]["computed_tokens"] == "0"
    lines = run(bin_dir, "--format", "markdown").stdout.splitlines()
    assert len(lines) == 4 and all(line.startswith("| ") for line in lines)


def test_output_goes_to_a_file_whole_with_its_folders(bin_dir, tmp_path):
    path = tmp_path / "a" / "b" / "report.json"
    done = run(bin_dir, "--format", "json", "--output", path, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(path.read_text())["schema"] == "nano-mooncake/demo/v1"
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


def test_a_full_output_device_is_an_error(bin_dir):
    with open("/dev/full", "w") as full:
        done = subprocess.run([bin_dir / "nano-mooncake-demo"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=TIMEOUT_S)
    assert done.returncode == 3
    assert "standard output" in done.stderr


def test_a_prompt_beyond_the_context_names_both_sizes(bin_dir):
    done = run(bin_dir, "--prompt", "x" * 9000, "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "9004" in done.stderr and "8192" in done.stderr


@pytest.mark.parametrize("arguments, message", [
    (["--prompt", ""], '--prompt: "": expected text that is not empty'),
    (["--prompt="], "--prompt: \"\": expected text that is not empty"),
    (["--max-new-tokens", "0"], '--max-new-tokens: "0": expected a whole number from 1'),
    (["--mode", "threads"], '--mode: "threads": expected one of monolithic, pd, pd-process'),
    (["--model", "/nowhere/at/all"], "/nowhere/at/all"),
    (["--promt", "x"], "--promt: unknown flag, did you mean --prompt?"),
    (["--dram-bytes", "1g"], "--dram-bytes: not a flag of this command, NANO_MOONCAKE_DRAM_BYTES sets it"),
])
def test_wrong_use_is_one_line_and_exit_2(bin_dir, arguments, message):
    done = run(bin_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_prompt_that_is_no_utf8_is_refused(bin_dir):
    done = subprocess.run([os.fsencode(bin_dir / "nano-mooncake-demo"), b"--prompt", b"a\xff"], capture_output=True,
                          timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert b"--prompt: expected valid UTF-8" in done.stderr


def test_the_same_command_by_both_names(bin_dir):
    by_link = demo(bin_dir)
    by_name = json.loads(run(bin_dir, "demo", "--format", "json", program="nano-mooncake").stdout)
    assert [one["text"] for one in by_link["runs"]] == [one["text"] for one in by_name["runs"]]
