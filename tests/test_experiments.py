"""`nano-mooncake experiments` as its users run it: real processes, real faults, reports that can be trusted."""

import collections
import json
import os
import signal
import subprocess

import pytest

import evidence_reports as evidence
from pd_cluster import descendants, eventually, expect_gone

COUNTS = ("prompt_tokens", "computed_tokens", "saved_tokens", "output_tokens", "hit_blocks")


@pytest.fixture
def experiments(bin_dir, tmp_path):
    """Runs it with its files in a folder of the test; (the process, its report or None)."""

    def run(*flags, name="report.json", code=0, environment=None):
        output = tmp_path / name
        done = subprocess.run([bin_dir / "nano-mooncake-experiments", "--output", output, "--index",
                               tmp_path / "index.jsonl", *map(str, flags)], capture_output=True, text=True, timeout=300,
                              check=False, env={**os.environ, **(environment or {})})
        assert done.returncode == code, done.stderr
        return done, json.loads(output.read_text()) if output.exists() else None

    return run


def cases(report):
    return {tuple(row[key] for key in ("workload", "mode", "transfer", "ratio", "lifecycle", "fault", "repeat")): row
            for row in report["cases"]}


def deterministic(report):
    """All of it that the seed decides."""
    return {key: (row["status"], row["workload_digest"], row["resources"], row["fault_evidence"],
                  [(q["id"], q["outcome"], q["endings"], q["tokens_digest"], q["cache_source"],
                    [q["metrics"].get(count) for count in COUNTS]) for q in row["requests"]])
            for key, row in cases(report).items()}


@pytest.fixture(scope="module")
def smoke(bin_dir, tmp_path_factory):
    """The smoke suite, twice with one seed and once with another."""
    folder = tmp_path_factory.mktemp("smoke")
    reports = []
    for number, seed in enumerate((1, 1, 2)):
        output = folder / f"{number}.json"
        command = [bin_dir / "nano-mooncake-experiments", "--suite", "smoke", "--repeats", "2", "--seed", str(seed),
                   "--output", output, "--index", folder / "index.jsonl", "--quiet"]
        subprocess.run(command, check=True, timeout=300)
        reports.append(json.loads(output.read_text()))
    return folder, reports


def test_one_seed_gives_the_same_tokens_counters_and_fault_outcomes(smoke):
    _, (first, second, other) = smoke
    assert deterministic(first) == deterministic(second)
    assert first["run_id"] != second["run_id"]
    digests = [{row["workload_digest"] for row in report["cases"]} for report in (first, other)]
    assert not digests[0] & digests[1]


def test_every_mode_gives_the_same_answers(smoke):
    answers = collections.defaultdict(set)
    for row in smoke[1][0]["cases"]:
        for request in row["requests"]:
            if request["outcome"] == "finished":
                answers[row["workload_digest"], request["id"]].add(request["tokens_digest"])
    assert len(answers) == 12
    assert all(len(digests) == 1 for digests in answers.values())


def test_the_report_is_sealed_and_in_the_registry(smoke):
    folder, reports = smoke
    lines = (folder / "index.jsonl").read_text().splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == [report["run_id"] for report in reports]
    for number, report in enumerate(reports):
        assert evidence.sealed(report, "report_digest") == report, "the digest is the one that docs/formats.md defines"
        assert evidence.record_of(report, f"{number}.json") == json.loads(lines[number])


def test_a_report_says_where_its_figures_come_from(smoke):
    provenance = smoke[1][0]["provenance"]
    assert provenance["evidence_tier"] == "random-weight-mechanism"
    assert len(provenance["build"]["source_digest"]) == 64
    assert provenance["build"]["failpoints"] is True
    assert provenance["machine"]["cpus"] == len(os.sched_getaffinity(0))
    assert provenance["model"]["parameters"] > 0


def test_a_global_cache_saves_what_the_workload_shares(smoke):
    by_case = cases(smoke[1][0])
    saved = {mode: sum(request["metrics"]["saved_tokens"] for request in row["requests"])
             for (workload, mode, _, ratio, lifecycle, fault, repeat), row in by_case.items()
             if (workload, lifecycle, fault, repeat) == ("high-reuse", "cold", "none", 0) and ratio in ("1", "1p1d")}
    assert saved == {"monolithic": 0, "pd-split": 0, "pd-global": 6 * 512}


def test_summaries_have_sample_counts(smoke):
    for row in smoke[1][0]["cases"]:
        finished = [request for request in row["requests"] if request["outcome"] == "finished"]
        assert row["summary"]["ttft_ms"]["samples"] == len(finished)
        assert row["summary"]["ttft_ms"]["p99"] == "not_available", "eight samples tell no p99"


def test_every_fault_hits_the_process_it_is_meant_for_and_leaves_nothing(experiments):
    faults = ("prefill-crash", "transfer-crash", "decode-crash", "worker-stall", "timeout", "cancellation",
              "shm-cleanup", "corrupt-entry", "slow-transfer")
    flags = [word for name in faults for word in ("--fault", name)]
    _, report = experiments("--repeats", 1, "--max-new-tokens", 2, *flags)
    rows = {row["fault"]: row for row in report["cases"] if row["fault"] != "none"}
    assert set(rows) == set(faults)
    alone = {(row["workload"], row["lifecycle"], row["ratio"]): row
             for row in report["cases"] if row["fault"] == "none"}
    for name, row in rows.items():
        found = row["fault_evidence"]
        assert row["status"] == "done", row["reason"]
        assert found["observed"], name
        assert (found["fired"] > 0) == bool(found["failpoint"]), name
        assert all(request["endings"] == 1 for request in row["requests"])
        expected = alone[row["workload"], row["lifecycle"], row["ratio"]]["requests"]
        if found["expected"] == "right":
            assert [q["tokens_digest"] for q in row["requests"]] == [q["tokens_digest"] for q in expected], name
        assert row["resources"]["orphan_processes"] == row["resources"]["orphan_shm"] == 0, name
        if name != "shm-cleanup":
            assert row["resources"]["leaked_handles"] == row["resources"]["residual_slots"] == 0, name
    assert {q["outcome"] for q in rows["timeout"]["requests"]} == {"deadline"}
    assert [q["outcome"] for q in rows["cancellation"]["requests"]] == ["cancelled"] + 7 * ["finished"]
    assert rows["corrupt-entry"]["resources"]["quarantined_entries"] == 2
    assert all(rows[name]["resources"]["worker_failures"] == 1 for name in ("prefill-crash", "transfer-crash",
                                                                            "decode-crash", "worker-stall"))
    slow = [request["metrics"]["e2e_ms"] for request in rows["slow-transfer"]["requests"]]
    assert min(slow) > 400


def test_faults_of_the_surroundings_stay_outside(experiments):
    _, report = experiments("--workload", "high-reuse", "--mode", "pd-global", "--repeats", 1,
                            environment={"NANO_MOONCAKE_FAILPOINTS": "decode-0:worker.step=exit"})
    assert report["cases"][0]["resources"]["worker_failures"] == 0


def test_interrupted_it_keeps_complete_cases_and_ends_all_it_started(bin_dir, tmp_path):
    output = tmp_path / "report.json"
    command = [bin_dir / "nano-mooncake-experiments", "--workload", "high-reuse,long-decode", "--fault",
               "slow-transfer", "--mode", "pd-global", "--repeats", "50", "--output", output, "--index",
               tmp_path / "index.jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen = set()

    def in_a_later_case():
        seen.update(descendants(process.pid))
        return len(seen) > 12

    eventually(in_a_later_case, lambda: f"{len(seen)} processes")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    expect_gone(seen)
    report = json.loads(output.read_text())
    assert 1 <= len(report["cases"]) < 200
    assert all(row["status"] == "done" for row in report["cases"])
    assert len((tmp_path / "index.jsonl").read_text().splitlines()) == 1


def test_a_case_that_cannot_be_run_says_why_and_the_others_count(experiments, tmp_path):
    workloads = tmp_path / "workloads.json"
    one = {"about": "", "requests": 2, "groups": 1, "prefix_tokens": 0, "suffix_tokens": 16, "output_tokens": 2,
           "concurrency": 1}
    workloads.write_text(json.dumps({"schema": "nano-mooncake/workloads/v1", "workloads": {
        "fits": one, "too-long": {**one, "suffix_tokens": 900_000}}}))
    done, report = experiments("--workloads", workloads, "--workload", "fits", "--workload", "too-long", "--mode",
                               "monolithic", "--repeats", 1, code=3)
    assert "too-long/monolithic/none/1/cold/none (repeat 0)" in done.stderr
    rows = {row["workload"]: row for row in report["cases"]}
    assert rows["fits"]["status"] == "done" and len(rows["fits"]["requests"]) == 2


def test_a_case_that_takes_too_long_is_given_up(experiments):
    _, report = experiments("--workload", "high-reuse", "--mode", "pd-global", "--fault", "slow-transfer",
                            "--repeats", 1, "--case-timeout-s", 1, code=3)
    row = next(row for row in report["cases"] if row["fault"] == "slow-transfer")
    assert (row["status"], row["reason"]) == ("failed", "it took longer than 1 s")
    assert row["resources"]["orphan_processes"] == 0


@pytest.mark.parametrize("flags,words", [
    (("--workload", "nothing"), '--workload: "nothing": expected one of high-reuse'),
    (("--mode", "pd"), "--mode: \"pd\": expected one or more of monolithic, pd-split, pd-global"),
    (("--fault", "flood"), '--fault: "flood": expected one of'),
    (("--ratio", "2p"), '--ratio: "2p": expected'),
    (("--workloads", "/nowhere/w.json"), "/nowhere/w.json"),
    (("--repeats", "0"), "--repeats"),
])
def test_what_cannot_be_run_is_refused_before_anything_is_written(experiments, flags, words):
    done, report = experiments(*flags, code=2)
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert report is None
