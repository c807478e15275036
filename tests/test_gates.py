"""Fault budget as its users meet it, and what all commands of gates and explanations have in common."""

import csv
import io
import json

import pytest

import evidence_reports as evidence
import gate_history as gates

COMMANDS = ["pressure-budget", "fault-budget", "acceptance-report", "acceptance-diagnostics", "evidence-summary",
            "pressure-diagnosis", "pressure-incident", "pressure-margin"]


@pytest.fixture
def nmc(bin_dir):
    return gates.Commands(bin_dir)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_states_purpose_flags_exit_codes_and_an_example(nmc, command):
    done = nmc(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for part in (f"nano-mooncake {command} - ", "Flags:", "Default:", "Exit codes:", "Example:"):
        assert part in done.stdout
    assert (nmc.bin_dir / f"nano-mooncake-{command}").is_symlink()


OF_AN_INDEX = [name for name in COMMANDS if name not in ("acceptance-diagnostics", "evidence-summary")]


@pytest.mark.parametrize("command", OF_AN_INDEX)
def test_an_index_that_is_not_there_is_named_in_one_line(nmc, tmp_path, command):
    flags = ["--index", tmp_path / "none.jsonl"]
    if command in ("pressure-budget", "acceptance-report", "pressure-incident", "pressure-margin"):
        flags += ["--budget", gates.write_budget(tmp_path / "b.json")]
    done = nmc(command, *flags)
    assert done.returncode == 2 and "none.jsonl" in done.stderr and done.stderr.count("\n") == 1


def verdicts(done):
    return {row["name"]: row["verdict"] for row in json.loads(done.stdout)["invariants"]}


def test_a_good_history_passes(nmc, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports())
    output = tmp_path / "fault_budget.json"
    done = nmc("fault-budget", "--index", index, "--output", output, "--format", "json")
    assert done.returncode == 0, done.stdout
    assert set(verdicts(done).values()) == {"pass"}
    assert json.loads(output.read_text()) == json.loads(done.stdout)


def set_resource(name, value):
    return lambda row: row["resources"].update({name: value})


def last_digit(row):
    digest = row["requests"][0]["tokens_digest"]
    row["requests"][0]["tokens_digest"] = digest[:-1] + ("1" if digest[-1] == "0" else "0")


@pytest.mark.parametrize("fault_name, change, invariant, verdict", [
    ("crash", set_resource("leaked_handles", 1), "no_leaked_handles", "fail"),
    ("none", set_resource("leaked_handles", 1), "no_leaked_handles", "fail"),
    ("crash", set_resource("residual_slots", 1), "no_residual_slots", "fail"),
    ("crash", set_resource("orphan_processes", 1), "no_orphan_processes", "fail"),
    ("crash", set_resource("orphan_shm", 1), "no_orphan_shm", "fail"),
    ("corrupt-entry", set_resource("quarantined_entries", 1), "corrupt_entries_quarantined", "fail"),
    ("crash", lambda row: row["requests"][1].update(endings=2), "answered_once", "fail"),
    ("crash", last_digit, "answered_rightly", "fail"),
    ("crash", lambda row: row["fault_evidence"].update(fired=0), "faults_observed", "insufficient_evidence"),
])
def test_one_field_flips_its_invariant_and_no_other(nmc, tmp_path, fault_name, change, invariant, verdict):
    reports = gates.good_reports()
    change(gates.case_of(reports[1], fault_name=fault_name))
    done = nmc("fault-budget", "--index", evidence.write_history(tmp_path, reports), "--format", "json")
    assert done.returncode == (1 if verdict == "fail" else 4)
    changed = {name: found for name, found in verdicts(done).items() if found != "pass"}
    assert changed == {invariant: verdict}
    [breach] = next(row for row in json.loads(done.stdout)["invariants"] if row["name"] == invariant)["breaches"]
    assert breach["run_id"] == reports[1]["run_id"] and breach["case"].endswith(fault_name)


def test_a_build_without_failpoints_is_insufficient_evidence(nmc, tmp_path):
    reports = gates.good_reports()
    for report in reports:
        report["provenance"]["build"]["failpoints"] = False
        row = gates.case_of(report, fault_name="crash")
        row.update(status="skipped", reason="this build has no failpoints", requests=[], resources={})
    done = nmc("fault-budget", "--index", evidence.write_history(tmp_path, reports))
    assert done.returncode == 4 and "skipped: this build has no failpoints" in done.stdout


def test_a_report_that_was_changed_is_told_of(nmc, tmp_path):
    reports = gates.good_reports()
    index = evidence.write_history(tmp_path, reports)
    changed = tmp_path / "reports" / f"{reports[0]['run_id']}.json"
    changed.write_text(changed.read_text().replace('"leaked_handles": 0', '"leaked_handles": 1', 1))
    done = nmc("fault-budget", "--index", index)
    assert f"run {reports[0]['run_id']} is left out" in done.stderr and "it was changed" in done.stderr


def test_rows_come_as_csv_and_markdown(nmc, tmp_path):
    index = evidence.write_history(tmp_path, gates.good_reports())
    rows = list(csv.DictReader(io.StringIO(nmc("fault-budget", "--index", index, "--format", "csv").stdout)))
    assert len(rows) == 8 and {row["verdict"] for row in rows} == {"pass"}
    assert nmc("fault-budget", "--index", index, "--format", "markdown").stdout.startswith("| invariant | verdict |")
