"""The acceptance report, and what explains it, as their users meet them."""

import json
import shutil

import pytest

import evidence_reports as evidence
import gate_history as gates

GATES = ["provenance", "determinism", "pressure", "fault", "decision", "parity"]


@pytest.fixture
def nmc(bin_dir):
    return gates.Commands(bin_dir)


@pytest.fixture
def report_on(nmc, tmp_path):
    def report(reports, *flags, rules=()):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        index = evidence.write_history(folder, reports)
        budget = gates.write_budget(folder / "pressure_budgets.json", *rules)
        return nmc("acceptance-report", "--index", index, "--budget", budget, "--output", folder / "acceptance.json",
                   "--calibrated-budget", tmp_path / "calibrated.json", *flags)

    report.folder = tmp_path / "run"
    report.verdict = lambda: json.loads((report.folder / "acceptance.json").read_text())
    return report


def test_a_good_history_is_accepted(report_on):
    done = report_on(gates.good_reports())
    assert done.returncode == 0, done.stdout
    verdict = report_on.verdict()
    assert (verdict["schema"], verdict["verdict"]) == ("nano-mooncake/acceptance/v1", "accepted")
    assert [gate["gate"] for gate in verdict["gates"]] == GATES
    assert [gate["verdict"] for gate in verdict["gates"]] == ["pass"] * 5 + ["not_applicable"]


def test_the_order_of_records_changes_nothing(report_on, nmc, tmp_path):
    report_on(gates.good_reports())
    before = (report_on.folder / "acceptance.json").read_bytes()
    index = report_on.folder / "index.jsonl"
    index.write_text("".join(reversed(index.read_text().splitlines(keepends=True))))
    done = nmc("acceptance-report", "--index", index, "--budget", report_on.folder / "pressure_budgets.json",
               "--output", report_on.folder / "again.json")
    assert done.returncode == 0 and (report_on.folder / "again.json").read_bytes() == before


def build(**members):
    return lambda reports: [report["provenance"]["build"].update(members) for report in reports]


def last_digit(reports):
    request = gates.case_of(reports[1])["requests"][0]
    request["tokens_digest"] = request["tokens_digest"][:-1] + ("1" if request["tokens_digest"][-1] == "0" else "0")


def another_counter(reports):
    gates.case_of(reports[1])["requests"][0]["metrics"]["saved_tokens"] = 16


def regressed(reports):
    for report in reports:
        for request in gates.case_of(report)["requests"][45:]:
            request["metrics"]["ttft_ms"] += 10


def without(mode):
    return lambda reports: reports[1].update(cases=[row for row in reports[1]["cases"] if row["mode"] != mode])


def in_crash(**members):
    return lambda reports: gates.case_of(reports[1], fault_name="crash").update(members)


@pytest.mark.parametrize("change, gate, verdict", [
    (lambda reports: reports[0]["provenance"]["machine"].update(fingerprint=evidence.digest_of("another")),
     "provenance", "insufficient_evidence"),
    (build(dirty=True), "provenance", "insufficient_evidence"),
    (build(build_type="Debug"), "provenance", "insufficient_evidence"),
    (build(source_digest="unknown"), "provenance", "insufficient_evidence"),
    (last_digit, "determinism", "fail"),
    (another_counter, "determinism", "fail"),
    (regressed, "pressure", "fail"),
    (in_crash(resources={**evidence.NO_TROUBLE, "leaked_handles": 1}), "fault", "fail"),
    (in_crash(status="skipped", reason="no failpoints"), "fault", "insufficient_evidence"),
    (in_crash(fault_evidence=gates.fault(fired=0)), "fault", "insufficient_evidence"),
    (without("pd-split"), "decision", "insufficient_evidence"),
    (without("monolithic"), "decision", "insufficient_evidence"),
    (lambda reports: reports[0].update(parity=[{"against": "full-attention", "status": "different", "detail": "token 3",
                                                "tokens": 8, "logit_difference_max": 0.5}]), "parity", "fail"),
], ids=["another-machine", "dirty", "debug", "unknown-source", "another-answer", "another-counter", "regressed-p95",
        "leaked-handle", "skipped-fault", "never-fired", "no-split-control", "no-monolithic-control", "other-logits"])
def test_one_change_flips_its_gate_and_no_other(report_on, change, gate, verdict):
    reports = gates.good_reports()
    change(reports)
    done = report_on(reports)
    assert done.returncode == (1 if verdict == "fail" else 4), done.stdout
    found = report_on.verdict()
    assert found["verdict"] == ("blocked" if verdict == "fail" else "insufficient_evidence")
    changed = {row["gate"]: row["verdict"] for row in found["gates"]
               if row["verdict"] not in ("pass", "not_applicable")}
    assert changed == {gate: verdict}
    assert all(row["findings"] for row in found["gates"] if row["gate"] == gate)


def test_a_report_that_was_changed_is_missed(report_on, nmc):
    report_on(gates.good_reports())
    changed = next((report_on.folder / "reports").iterdir())
    changed.write_text(changed.read_text().replace('"ttft_ms": 10.0', '"ttft_ms": 9.0', 1))
    done = nmc("acceptance-report", "--index", report_on.folder / "index.jsonl", "--budget",
               report_on.folder / "pressure_budgets.json", "--format", "json")
    assert done.returncode == 4
    [provenance] = [row for row in json.loads(done.stdout)["gates"] if row["verdict"] == "insufficient_evidence"]
    assert provenance["gate"] == "provenance" and "it was changed" in provenance["findings"][0]


def test_calibrated_history_that_is_required_is_named_and_then_judged_by(report_on, nmc, tmp_path):
    rules = [gates.rule("ttft_ms", "mean", 5000)]
    strict = "--require-calibrated-pressure-history"
    reports = gates.good_reports()
    done = report_on(reports, strict, rules=rules)
    assert done.returncode == 4
    command = report_on.verdict()["command"]
    assert command in done.stdout and "--calibrate" in command
    made = nmc(*command.split()[1:], cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "results/calibrated_pressure_budgets.json").rename(tmp_path / "calibrated.json")
    assert report_on(reports, strict, rules=rules).returncode == 0
    for report in reports:
        for request in gates.case_of(report)["requests"]:
            request["metrics"]["ttft_ms"] += 20.0
    assert report_on(reports, strict, rules=rules).returncode == 1
    assert report_on(reports, rules=rules).returncode == 0  # by the general limit


def test_a_calibrated_budget_edited_by_hand_relaxes_nothing(report_on, nmc, tmp_path):
    rules = [gates.rule("ttft_ms", "mean", 5000), gates.rule("leaked_handles", "max", 0)]
    budget = gates.write_budget(tmp_path / "b.json", *rules)
    reports = gates.good_reports()
    gates.case_of(reports[0])["resources"]["leaked_handles"] = 1
    index = evidence.write_history(tmp_path / "history", reports)
    assert nmc("pressure-budget", "--calibrate", "--index", index, "--budget", budget, "--output",
               tmp_path / "calibrated.json").returncode == 0
    document = json.loads((tmp_path / "calibrated.json").read_text())
    document["profiles"]["full"][1]["limit"] = 100
    (tmp_path / "calibrated.json").write_text(json.dumps(document))
    report_on(reports, "--require-calibrated-pressure-history", rules=rules)
    found = {row["id"]: row["verdict"] for row in report_on.verdict()["pressure"]["rules"]}
    assert found == {"ttft_ms-mean": "pass", "leaked_handles-max": "fail"}


# ---- Explanations -------------------------------------------------------------------------------------------------


def test_diagnostics_explain_each_gate_that_did_not_pass_and_leave_the_verdict_alone(report_on, nmc):
    reports = gates.good_reports()
    regressed(reports)
    gates.case_of(reports[1], fault_name="crash")["resources"]["orphan_shm"] = 1
    assert report_on(reports).returncode == 1
    before = (report_on.folder / "acceptance.json").read_bytes()
    done = nmc("acceptance-diagnostics", "--run-dir", report_on.folder)
    assert done.returncode == 0, done.stderr
    assert (report_on.folder / "acceptance.json").read_bytes() == before
    first = (report_on.folder / "diagnostics.json").read_bytes()
    diagnostics = json.loads(first)
    assert (diagnostics["schema"], diagnostics["verdict"]) == ("nano-mooncake/acceptance-diagnostics/v1", "blocked")
    assert [row["gate"] for row in diagnostics["gates"]] == ["pressure", "fault"]
    assert all(row["findings"] and row["next"].startswith("nano-mooncake ") for row in diagnostics["gates"])
    assert [row["id"] for row in diagnostics["incidents"]] == ["ttft_ms-p95"]
    (report_on.folder / "diagnostics.json").unlink()
    nmc("acceptance-diagnostics", "--run-dir", report_on.folder)
    assert (report_on.folder / "diagnostics.json").read_bytes() == first


def test_diagnostics_read_the_verdict_and_never_judge_it_again(report_on, nmc):
    report_on(gates.good_reports())
    path = report_on.folder / "acceptance.json"
    document = json.loads(path.read_text())
    document["verdict"] = "blocked"
    path.write_text(json.dumps(document))
    assert nmc("acceptance-diagnostics", "--run-dir", report_on.folder).returncode == 0
    assert json.loads((report_on.folder / "diagnostics.json").read_text())["verdict"] == "blocked"


@pytest.mark.parametrize("missing", ["acceptance.json", "index.jsonl", "pressure_budgets.json"])
def test_diagnostics_name_the_file_that_is_missing(report_on, nmc, missing):
    report_on(gates.good_reports())
    (report_on.folder / missing).unlink()
    done = nmc("acceptance-diagnostics", "--run-dir", report_on.folder)
    assert done.returncode == 2 and missing in done.stderr and done.stderr.count("\n") == 1


def test_the_summary_is_a_line_a_gate(report_on, nmc, tmp_path):
    report_on(gates.good_reports())
    done = nmc("evidence-summary", "--run-dir", report_on.folder, "--format", "markdown")
    assert done.returncode == 0
    assert done.stdout.startswith("**accepted**: 3 runs, profile full\n")
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[4:]] == GATES
    output = tmp_path / "summary.md"
    nmc("evidence-summary", "--run-dir", report_on.folder, "--format", "markdown", "--output", output)
    assert output.read_text() == done.stdout
    (report_on.folder / "verification.json").write_text('{"verdict": "rejected"}')
    assert "bundle rejected" in nmc("evidence-summary", "--run-dir", report_on.folder, "--format", "markdown").stdout


def test_the_summary_finds_the_verdict_in_a_bundle(report_on, nmc, tmp_path):
    reports = gates.good_reports()
    regressed(reports)
    report_on(reports)
    (tmp_path / "bundle" / "verdicts").mkdir(parents=True)
    shutil.copy(report_on.folder / "acceptance.json", tmp_path / "bundle" / "verdicts")
    done = nmc("evidence-summary", "--bundle", tmp_path / "bundle", "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "blocked"


def test_text_of_a_report_cannot_break_the_summary(report_on, nmc):
    reports = gates.good_reports()
    in_crash(status="failed", reason="a | b\n| parity | pass | ok |\n<img src=x> [x](http://x)")(reports)
    report_on(reports)
    lines = nmc("evidence-summary", "--run-dir", report_on.folder, "--format", "markdown").stdout.splitlines()
    assert len(lines) == 4 + len(GATES)
    fault = next(line for line in lines if line.startswith("| fault |"))
    assert "\\<img" in fault and "\\[x\\]" in fault and "a \\| b" in fault


def test_the_summary_wants_one_folder(nmc, tmp_path):
    for flags in ((), ("--bundle", tmp_path, "--run-dir", tmp_path)):
        done = nmc("evidence-summary", *flags)
        assert done.returncode == 2 and "expected one of them" in done.stderr
