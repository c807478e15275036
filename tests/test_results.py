"""`nano-mooncake results` and `decision-gap`: what may be compared, what is decided, and what is missing."""

import copy
import csv
import io
import json
import re
import subprocess

import numpy as np
import pytest

import evidence_reports as evidence

VIEWS = ("compare", "trend", "pressure", "frontier", "decision", "faults")
REPEATS, RUNS = 3, 2
HIT = {"failpoint": "worker.step=exit", "process": "decode-0", "fired": 1, "expected": "right", "observed": True}


@pytest.fixture
def results(bin_dir):
    def run(index, *flags, code=0, command="results"):
        done = subprocess.run([bin_dir / f"nano-mooncake-{command}", "--index", index, *map(str, flags)],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        return done

    return run


def run_of(number, **members):
    """One run of three modes: the cache halves the time, splitting costs a fifth; starts differ by a few percent."""
    cases = []
    for repeat in range(REPEATS):
        luck = 1 + 0.01 * ((number * REPEATS + repeat) % 3)
        times = [10.0 + i for i in range(4)]
        for mode, factor in (("monolithic", 1.0), ("pd-split", 1.2 * luck), ("pd-global", 0.5 * luck)):
            cases.append(evidence.case(mode=mode, repeat=repeat, ttft_ms=[factor * time for time in times]))
    return evidence.report(number, cases, **members)


def history(count=RUNS):
    return [run_of(number) for number in range(count)]


def view(results, folder, reports, name, *flags):
    index = evidence.write_history(folder, reports)
    return json.loads(results(index, "--view", name, "--format", "json", *flags).stdout)


def verdicts(results, folder, reports):
    found = {}
    for name in ("decision", "frontier"):
        for row in view(results, folder, reports, name)["rows"]:
            found[row["question"], row["transfer"]] = row["verdict"]
    return found


def test_pairs_of_enough_starts_decide(results, tmp_path):
    assert verdicts(results, tmp_path, history()) == {("cache", "shm"): "win", ("pd-split", "shm"): "loss",
                                                      ("frontier", "shm"): "win"}
    rows = view(results, tmp_path, history(), "decision")["rows"]
    assert [row["runs"] for row in rows] == 2 * [[report["run_id"] for report in history()]], "each cites its runs"
    assert rows[0]["starts"] == 6 and rows[0]["pairs"] == 24
    assert rows[0]["effect"] == pytest.approx(0.5 / 1.2, abs=0.001)
    assert rows[0]["low"] <= rows[0]["effect"] <= rows[0]["high"]


def case_of(report, mode, repeat=0):
    return next(row for row in report["cases"] if (row["mode"], row["repeat"]) == (mode, repeat))


def drop_control_request(reports):
    del case_of(reports[0], "pd-split")["requests"][1]


def other_answer(reports):
    request = case_of(reports[1], "pd-global", 2)["requests"][3]
    request["tokens_digest"] = ("0" if request["tokens_digest"][0] != "0" else "1") + request["tokens_digest"][1:]


def one_start_fewer(reports):
    row = case_of(reports[1], "pd-global", 2)
    row.update(status="failed", reason="it ended without a word", requests=[])


def slower(reports):
    for report in reports:
        for repeat in range(REPEATS):
            for request in case_of(report, "pd-global", repeat)["requests"]:
                request["metrics"]["e2e_ms"] *= 2.2


def other_machine(reports):
    reports[0]["provenance"]["machine"]["fingerprint"] = evidence.digest_of("another")


def other_workload(reports):
    case_of(reports[0], "monolithic", 1)["workload_digest"] = evidence.digest_of("another")


MISSING, WIN, LOSS, NEUTRAL = "insufficient_evidence", "win", "loss", "neutral"


@pytest.mark.parametrize("change,cache,split,frontier", [
    (drop_control_request, MISSING, MISSING, WIN),
    (other_answer, MISSING, LOSS, MISSING),
    (one_start_fewer, MISSING, LOSS, MISSING),
    (slower, NEUTRAL, LOSS, LOSS),
    (other_machine, MISSING, MISSING, MISSING),
    (other_workload, WIN, MISSING, MISSING),
], ids=lambda value: getattr(value, "__name__", str(value)))
def test_one_change_flips_the_verdict_it_should_and_no_other(results, tmp_path, change, cache, split, frontier):
    reports = history()
    if change is slower:  # to where the split ones are, which is neither better nor worse
        for report in reports:
            for row in report["cases"]:
                if row["mode"] == "pd-global":
                    for request, other in zip(row["requests"], case_of(report, "pd-split", row["repeat"])["requests"]):
                        request["metrics"]["e2e_ms"] = other["metrics"]["e2e_ms"] / 2.2
    change(reports)
    assert verdicts(results, tmp_path, reports) == {("cache", "shm"): cache, ("pd-split", "shm"): split,
                                                    ("frontier", "shm"): frontier}


@pytest.mark.parametrize("member,change", [
    ("machine", lambda p: p["machine"].update(fingerprint=evidence.digest_of("another"))),
    ("model", lambda p: p["model"].update(digest=evidence.digest_of("another"))),
    ("evidence tier", lambda p: p.update(evidence_tier="local-checkpoint")),
    ("source", lambda p: p["build"].update(source_digest=evidence.digest_of("another"))),
    ("build type", lambda p: p["build"].update(build_type="Debug")),
])
def test_runs_of_another_kind_stand_apart_with_the_reason(results, tmp_path, member, change):
    reports = history(3)
    change(reports[1]["provenance"])
    shown = view(results, tmp_path, reports, "compare")
    assert shown["runs"] == [reports[0]["run_id"], reports[2]["run_id"]]
    [apart] = shown["apart"]
    assert reports[1]["run_id"] in apart["what"] and apart["why"].startswith(member)
    assert {row["starts"] for row in shown["rows"]} == {2 * REPEATS}


def test_cases_of_another_workload_stand_apart(results, tmp_path):
    reports = history()
    other_workload(reports)
    [apart] = view(results, tmp_path, reports, "compare")["apart"]
    assert "monolithic" in apart["what"] and apart["why"].startswith("workload")


def test_a_trend_crosses_builds_and_marks_them(results, tmp_path):
    reports = history(3)
    reports[2]["provenance"]["build"]["source_digest"] = evidence.digest_of("another")
    for row in reports[2]["cases"]:
        for request in row["requests"]:
            request["metrics"]["e2e_ms"] *= 1.5
    rows = [row for row in view(results, tmp_path, reports, "trend")["rows"] if row["mode"] == "monolithic"]
    assert [row["build_changed"] for row in rows] == ["", "", "yes"]
    assert rows[0]["e2e_change_percent"] == "not_available"
    assert [row["e2e_change_percent"] for row in rows[1:]] == [0.0, 50.0]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "html"])
def test_the_order_of_records_makes_no_difference(results, tmp_path, name, form):
    index = evidence.write_history(tmp_path, history())
    shown = results(index, "--view", name, "--format", form).stdout
    lines = index.read_text().splitlines(keepends=True)
    index.write_text("".join(reversed(lines)))
    assert results(index, "--view", name, "--format", form).stdout == shown


@pytest.mark.parametrize("name", VIEWS)
def test_all_formats_tell_the_same_rows(results, tmp_path, name):
    reports = history()
    for report in reports:
        report["cases"].append(evidence.case(mode="pd-global", fault="decode-crash", fault_evidence=HIT))
        report["cases"].append(evidence.case(workload="pressure", mode="pd-split", ratio="2p1d"))
    index = evidence.write_history(tmp_path, reports)
    document = json.loads(results(index, "--view", name, "--format", "json").stdout)
    assert document["schema"] == "nano-mooncake/results-view/v1" and document["view"] == name and document["rows"]
    rows = list(csv.DictReader(io.StringIO(results(index, "--view", name, "--format", "csv").stdout)))
    assert len(rows) == len(document["rows"])
    for shown, row in zip(rows, document["rows"]):
        assert shown.keys() <= row.keys()
        assert shown["workload"] == row["workload"]
    lines = results(index, "--view", name, "--format", "markdown").stdout.splitlines()
    assert len(lines) == 2 + len(rows) and all(line.startswith("|") for line in lines)
    output = tmp_path / "views" / "shown.csv"
    results(index, "--view", name, "--format", "csv", "--output", output)
    assert output.read_text() == results(index, "--view", name, "--format", "csv").stdout


def test_percentiles_are_those_of_numpy(results, tmp_path):
    random = np.random.default_rng(7)
    for count in (10, 11, 100, 517):
        times = np.round(random.lognormal(2, 1, count), 6)
        index = evidence.write_history(tmp_path / str(count), [evidence.report(0, [evidence.case(ttft_ms=times)])])
        [row] = json.loads(results(index, "--format", "json").stdout)["rows"]
        assert row["ttft_ms_samples"] == count
        for percent, needed in ((50, 10), (95, 100), (99, 500)):
            expected = np.percentile(times, percent, method="inverted_cdf")
            assert row[f"ttft_ms_p{percent}"] == (expected if count >= needed else "not_available")


def test_what_a_reader_has_to_know_is_said(results, tmp_path):
    reports = history()
    reports[1]["provenance"]["build"].update(dirty=True, failpoints=False)
    caveats = " ".join(view(results, tmp_path, reports, "compare")["caveats"])
    for words in ("changes that no commit has", "without failpoints", "random weights"):
        assert words in caveats


def test_reports_that_cannot_be_used_are_listed(results, tmp_path):
    index = evidence.write_history(tmp_path, history(3))
    gone, changed, _ = sorted((tmp_path / "reports").iterdir())
    gone.unlink()
    changed.write_text(changed.read_text().replace('"suite": "custom"', '"suite": "full"'))
    done = results(index, "--format", "json")
    assert len(json.loads(done.stdout)["left_out"]) == 2 and done.stderr.count("is left out") == 2


def test_a_fault_that_was_not_observed_is_no_pass(results, tmp_path):
    report = evidence.report(0, [
        evidence.case(mode="pd-global"), evidence.case(mode="pd-global", fault="decode-crash", fault_evidence=HIT),
        evidence.case(mode="pd-global", fault="prefill-crash", fault_evidence={**HIT, "fired": 0, "observed": False}),
        evidence.case(mode="pd-global", fault="worker-stall", fault_evidence=HIT, status="skipped", requests=[],
                      reason="this build has no failpoints")])
    rows = view(results, tmp_path, [report], "faults")["rows"]
    assert {row["fault"]: row["verdict"] for row in rows} == {
        "decode-crash": "pass", "prefill-crash": MISSING, "worker-stall": MISSING}
    assert (rows[0]["failpoint"], rows[0]["process"], rows[0]["fired"]) == ("worker.step=exit", "decode-0", 1)


def test_a_gap_names_the_command_that_closes_it(results, tmp_path, bin_dir):
    """Each kind of gap, and the command is one that `experiments` takes."""
    reports = history(1)
    gaps = json.loads(results(evidence.write_history(tmp_path / "few", reports), "--format", "json",
                              command="decision-gap", code=4).stdout)["gaps"]
    assert {gap["missing"] for gap in gaps} == {"3 more starts of the system"}
    assert all(re.search(r"--repeats 3 --seed 1 --max-new-tokens 8 ", gap["command"]) for gap in gaps)
    reports = history()
    for report in reports:
        report["cases"] = [row for row in report["cases"] if row["mode"] != "pd-split"]
    [gap] = json.loads(results(evidence.write_history(tmp_path / "control", reports), "--format", "json",
                               command="decision-gap", code=4).stdout)["gaps"]
    assert gap["question"] == "cache" and "a control" in gap["missing"] and "--mode pd-split" in gap["command"]
    reports = history()
    other_answer(reports)
    gaps = json.loads(results(evidence.write_history(tmp_path / "answers", reports), "--format", "json",
                              command="decision-gap", code=4).stdout)["gaps"]
    assert all(gap["command"] is None and "equal answers" in gap["missing"] for gap in gaps)
    reports = history()
    for number, report in enumerate(reports):
        for repeat in range(REPEATS):
            for request in case_of(report, "pd-global", repeat)["requests"]:
                request["metrics"]["e2e_ms"] *= (0.5, 1, 4)[(repeat + number) % 3]
    gaps = json.loads(results(evidence.write_history(tmp_path / "spread", reports), "--format", "json",
                              command="decision-gap", code=4).stdout)["gaps"]
    assert {gap["question"] for gap in gaps} == {"cache", "frontier"}
    assert all("narrower interval" in gap["missing"] for gap in gaps)
    assert results(evidence.write_history(tmp_path / "none", history()), command="decision-gap").returncode == 0


@pytest.mark.parametrize("command", ["results", "decision-gap", "fault-budget"])
def test_a_registry_that_is_not_there_is_named(results, tmp_path, command):
    done = results(tmp_path / "none.jsonl", command=command, code=2)
    assert "none.jsonl" in done.stderr and done.stderr.count("\n") == 1


def test_a_damaged_registry_is_named_by_its_line(results, tmp_path):
    index = evidence.write_history(tmp_path, history())
    lines = index.read_text().splitlines()
    record = json.loads(lines[1])
    index.write_text(lines[0] + "\n" + json.dumps({**record, "suite": "full"}) + "\n")
    done = results(index, code=2)
    assert "index.jsonl:2" in done.stderr


def test_a_line_that_was_never_finished_is_passed_over(results, tmp_path):
    index = evidence.write_history(tmp_path, history())
    shown = results(index, "--format", "json").stdout
    index.write_text(index.read_text() + index.read_text()[:50])
    done = results(index, "--format", "json")
    assert done.stdout == shown and "never finished" in done.stderr


def test_a_run_can_be_chosen(results, tmp_path):
    reports = history(3)
    reports[2]["provenance"]["machine"]["fingerprint"] = evidence.digest_of("another")
    shown = view(results, tmp_path, copy.deepcopy(reports), "compare", "--run", reports[1]["run_id"])
    assert shown["runs"] == [reports[0]["run_id"], reports[1]["run_id"]]
    index = evidence.write_history(tmp_path, reports)
    assert "no run nothing" in results(index, "--run", "nothing", code=2).stderr
