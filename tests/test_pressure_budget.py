"""Pressure budgets as their users meet them: judged, calibrated, explained."""

import json
import math
import pathlib

import pytest

import evidence_reports as evidence
import gate_history as gates

REPOSITORY_BUDGET = "docs/pressure_budgets.json"


@pytest.fixture
def nmc(bin_dir):
    return gates.Commands(bin_dir)


@pytest.fixture
def budget(tmp_path):
    return gates.write_budget(tmp_path / "budget.json")


def slowed(reports, milliseconds, phase="queue_ms"):
    """pd-global takes that much longer in the newest run."""
    for request in gates.case_of(reports[-1])["requests"]:
        for metric in (phase, "ttft_ms", "e2e_ms"):
            request["metrics"][metric] = request["metrics"].get(metric, 0.0) + float(milliseconds)
    return reports


def test_a_good_history_passes_and_the_verdict_goes_to_the_file_as_json(nmc, budget, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports())
    output = tmp_path / "new" / "verdict.json"
    done = nmc("pressure-budget", "--index", index, "--budget", budget, "--profile", "full", "--output", output)
    assert done.returncode == 0, done.stderr
    assert "ttft_ms-p95" in done.stdout
    verdict = json.loads(output.read_text())
    assert (verdict["schema"], verdict["verdict"]) == ("nano-mooncake/pressure-budget/v1", "pass")
    assert [row["verdict"] for row in verdict["rules"]] == ["pass"] * 3
    assert verdict["rules"][0]["value"] == 57 and verdict["rules"][0]["samples"] == 150


def test_percentiles_are_the_nearest_ranks_of_the_pooled_requests(nmc, tmp_path):
    reports = gates.good_reports()
    for shift, report in enumerate(reports):
        for i, request in enumerate(gates.case_of(report)["requests"]):
            request["metrics"]["ttft_ms"] = float((i * 37 + shift * 11) % 101) + 0.25
    pooled = sorted(request["metrics"]["ttft_ms"] for report in reports
                    for request in gates.case_of(report)["requests"])
    rules = [gates.rule("ttft_ms", name, 1e6) for name in ("p50", "p95")]
    done = nmc("pressure-budget", "--index", evidence.write_history(tmp_path, reports), "--budget",
               gates.write_budget(tmp_path / "b.json", *rules), "--format", "json")
    values = [row["value"] for row in json.loads(done.stdout)["rules"]]
    assert values == [pooled[math.ceil(len(pooled) * part) - 1] for part in (0.5, 0.95)]


@pytest.mark.parametrize("limit, code, verdict", [(57, 0, "pass"), (56.9, 1, "fail")])
def test_the_exit_code_is_the_verdict(nmc, tmp_path, limit, code, verdict):
    index = evidence.write_history(tmp_path, gates.good_reports())
    budget = gates.write_budget(tmp_path / "b.json", gates.rule("ttft_ms", "p95", limit))
    done = nmc("pressure-budget", "--index", index, "--budget", budget, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (code, verdict)


def test_too_few_samples_are_insufficient_evidence(nmc, budget, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports(runs=1))
    done = nmc("pressure-budget", "--index", index, "--budget", budget, "--format", "json")
    assert done.returncode == 4
    rows = {row["id"]: row for row in json.loads(done.stdout)["rules"]}
    assert rows["ttft_ms-p95"]["reason"] == "50 samples are too few for a p95"
    assert rows["ttft_ms-mean"]["verdict"] == "pass"


def test_an_index_without_a_run_that_can_be_judged_is_insufficient_evidence(nmc, budget, tmp_path):
    index = evidence.write_history(tmp_path, [evidence.report(1, [], skipped="no checkpoint")])
    for command in (("pressure-budget", "--budget", budget), ("fault-budget",),
                    ("acceptance-report", "--budget", budget)):
        done = nmc(*command, "--index", index)
        assert done.returncode == 4, done.stderr
        assert "insufficient_evidence" in done.stderr and "nano-mooncake experiments" in done.stderr


def test_calibration_round_trip(nmc, budget, tmp_path):
    index = evidence.write_history(tmp_path, slowed(gates.good_reports(), 10))
    judge = ("pressure-budget", "--index", index, "--profile", "full", "--require-calibrated", "--format", "json")
    before = nmc(*judge, "--budget", budget, cwd=tmp_path)
    assert before.returncode == 4
    command = json.loads(before.stdout)["command"].split()
    assert command[:2] == ["nano-mooncake", "pressure-budget"]
    # A run alone has too few requests for its p95, and that is said; nothing is written.
    few = nmc(*command[1:], cwd=tmp_path)
    assert few.returncode == 4 and "rule ttft_ms-p95: 0 runs" in few.stderr
    assert "nano-mooncake experiments" in few.stderr
    assert not (tmp_path / "results").exists()

    gates.write_budget(budget, gates.rule("ttft_ms", "mean", 5000), gates.rule("leaked_handles", "max", 0))
    assert nmc(*command[1:], cwd=tmp_path).returncode == 0
    calibrated = tmp_path / "results/calibrated_pressure_budgets.json"
    document = json.loads(calibrated.read_text())
    time, count = document["profiles"]["full"]
    assert time["calibrated"]["limit"] == 44.5 * 1.25  # of the slowest run
    assert [run["value"] for run in time["calibrated"]["runs"]] == [34.5, 34.5, 44.5]
    assert count["calibrated"] is None
    after = nmc(*judge, "--budget", calibrated)
    assert after.returncode == 0, after.stdout
    assert "3 of the 3 runs judged" in json.loads(after.stdout)["caveats"][0]

    index = evidence.write_history(tmp_path / "later", slowed(gates.good_reports(runs=1), 60))
    later = nmc("pressure-budget", "--index", index, "--budget", calibrated, "--require-calibrated", "--format", "json")
    assert later.returncode == 1
    assert json.loads(later.stdout)["rules"][0]["reason"] == "94.5, expected at most 55.625"


def test_calibration_with_one_run_too_few_writes_nothing(nmc, tmp_path):
    budget = gates.write_budget(tmp_path / "b.json", gates.rule("ttft_ms", "mean", 5000))
    index = evidence.write_history(tmp_path, gates.good_reports(runs=2))
    flags = ("pressure-budget", "--calibrate", "--index", index, "--budget", budget, "--output", tmp_path / "c.json")
    assert nmc(*flags, "--min-runs", 3).returncode == 4
    assert not (tmp_path / "c.json").exists()
    assert nmc(*flags, "--min-runs", 2, "--margin", "0.5").returncode == 0
    assert json.loads((tmp_path / "c.json").read_text())["profiles"]["full"][0]["calibrated"]["limit"] == 51.75


@pytest.mark.parametrize("damage, named", [
    ('{"schema": "nano-mooncake/slo/v1"}', "`schema`: expected"),
    ("{", "budget.json"),
    ('{"schema": "nano-mooncake/pressure-budgets/v1", "profiles": {"full": [{"id": 3}]}}', "`profiles.full[0].id`"),
])
def test_a_budget_that_is_none_is_named_in_one_line(nmc, tmp_path, budget, damage, named):
    budget.write_text(damage)
    index = evidence.write_history(tmp_path, gates.good_reports(runs=1))
    done = nmc("pressure-budget", "--index", index, "--budget", budget)
    assert done.returncode == 2 and named in done.stderr and done.stderr.count("\n") == 1
    assert str(budget) in done.stderr


def test_the_budget_of_the_project_is_read_and_has_both_profiles(nmc, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports())
    budget = pathlib.Path(__file__).resolve().parent.parent / REPOSITORY_BUDGET
    for profile in ("smoke", "full"):
        done = nmc("pressure-budget", "--index", index, "--budget", budget, "--profile", profile, "--format", "json")
        rules = {row["id"]: row for row in json.loads(done.stdout)["rules"]}
        assert rules["no-leaked-handles"]["verdict"] == "pass"
        assert rules["overload-rejects"]["verdict"] == "insufficient_evidence"  # these runs have no overload
        assert done.returncode == 1  # and their caches saved nothing
        assert rules["high-reuse-computed-part"]["verdict"] == "fail"
    wrong = nmc("pressure-budget", "--index", index, "--budget", budget, "--profile", "ful")
    assert wrong.returncode == 2 and "expected one of the budget's: full, smoke" in wrong.stderr


# ---- Explanations -------------------------------------------------------------------------------------------------


def test_diagnosis_names_request_and_stage(nmc, tmp_path):
    reports = gates.good_reports()
    slow = gates.case_of(reports[-1])["requests"][7]["metrics"]
    slow["transport_ms"], slow["e2e_ms"] = 40.0, slow["e2e_ms"] + 40.0
    done = nmc("pressure-diagnosis", "--index", evidence.write_history(tmp_path, reports), "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["regressions"]
    assert [(row["request"], row["phase"], row["share"]) for row in rows] == [("r7", "transport_ms", 1.0)]


@pytest.mark.parametrize("members", [{"machine": "another"}, {"model": "another"}, {"tier": "local-checkpoint"}])
def test_diagnosis_compares_only_what_can_be_compared(nmc, tmp_path, members):
    reports = gates.good_reports(runs=2)
    other = evidence.report(9, [gates.good_case()], **members)
    index = evidence.write_history(tmp_path, [*reports, other])
    done = nmc("pressure-diagnosis", "--index", index)
    assert done.returncode == 4 and "insufficient_evidence" in done.stderr and done.stdout == ""
    named = nmc("pressure-diagnosis", "--index", index, "--baseline", reports[0]["run_id"])
    assert named.returncode == 2 and "differs" in named.stderr


def test_diagnosis_of_a_named_run(nmc, tmp_path):
    reports = gates.good_reports()
    index = evidence.write_history(tmp_path, reports)
    done = nmc("pressure-diagnosis", "--index", index, "--run", reports[2]["run_id"], "--format", "json")
    assert json.loads(done.stdout)["baseline"] == [reports[0]["run_id"], reports[1]["run_id"]]
    # Before the second there is one run with one repeat: no noise, no finding.
    done = nmc("pressure-diagnosis", "--index", index, "--run", reports[1]["run_id"])
    assert done.returncode == 4 and "measured twice" in done.stderr
    unknown = nmc("pressure-diagnosis", "--index", index, "--run", "none")
    assert unknown.returncode == 2 and "none" in unknown.stderr


def test_incident_attributes_what_failed_and_changes_no_verdict(nmc, tmp_path):
    reports = gates.good_reports()
    for report in reports[:-1]:
        report["provenance"]["build"]["source_digest"] = evidence.digest_of("older")
    slowed(reports, 100)
    index = evidence.write_history(tmp_path, reports)
    budget = gates.write_budget(tmp_path / "b.json", gates.rule("ttft_ms", "mean", 40),
                                gates.rule("leaked_handles", "max", 0))
    flags = ("--index", index, "--budget", budget, "--profile", "full", "--format", "json")
    before = nmc("pressure-budget", *flags)
    done = nmc("pressure-incident", *flags)
    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    assert explained["verdict"] == "fail" == json.loads(before.stdout)["verdict"]
    [incident] = explained["incidents"]
    assert (incident["id"], incident["phase"]) == ("ttft_ms-mean", "queue_ms")
    assert "without that growth" in incident["evidence"] and incident["ruled_out"]
    assert incident["baseline_runs"] == [report["run_id"] for report in reports[:-1]]
    assert nmc("pressure-budget", *flags).stdout == before.stdout


def test_margin_lists_rules_near_their_limit(nmc, budget, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports())
    flags = ("pressure-margin", "--index", index, "--budget", budget, "--profile", "full", "--format", "json")
    near = json.loads(nmc(*flags, "--near", "0.1").stdout)["rules"]
    assert [row["id"] for row in near] == ["ttft_ms-p95"]
    assert near[0]["margin"] == pytest.approx(1 / 58, abs=1e-6)
    assert [row["id"] for row in json.loads(nmc(*flags, "--near", "0.2").stdout)["rules"]] == [
        "ttft_ms-p95", "ttft_ms-mean"]
