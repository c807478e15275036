"""The registry of runs as its users meet it."""

import json
import subprocess

import pytest

import evidence_reports as evidence


@pytest.fixture
def rebuild(bin_dir):
    def run(*flags):
        return subprocess.run([bin_dir / "nano-mooncake-rebuild-results", *map(str, flags)], capture_output=True,
                              text=True, timeout=60, check=False)

    return run


def runs(count):
    return [evidence.report(number, [evidence.case(ttft_ms=(1.5, 2.25))]) for number in range(count)]


def test_the_rebuilt_registry_is_the_original(rebuild, tmp_path):
    index = evidence.write_history(tmp_path, runs(4))
    original = index.read_text()
    index.unlink()
    done = rebuild("--reports", tmp_path / "reports", "--index", index)
    assert done.returncode == 0, done.stderr
    assert index.read_text() == original


def test_a_run_that_was_skipped_is_no_run(rebuild, tmp_path):
    index = evidence.write_history(tmp_path, runs(2))
    lines = index.read_text().splitlines(keepends=True)
    skipped = evidence.sealed(evidence.report(5, [], skipped="no checkpoint"), "report_digest")
    (tmp_path / "reports" / "skipped.json").write_text(json.dumps(skipped))
    assert rebuild("--reports", tmp_path / "reports", "--index", index).returncode == 0
    assert index.read_text() == "".join(lines)


def test_reports_that_fail_are_listed_and_left_out(rebuild, tmp_path):
    index = evidence.write_history(tmp_path, runs(3))
    reports = sorted((tmp_path / "reports").iterdir())
    lines = index.read_text().splitlines()
    reports[0].write_text(reports[0].read_text().replace('"ttft_ms": 1.5', '"ttft_ms": 1.4'))
    reports[1].write_text(reports[1].read_text()[:100])
    done = rebuild("--reports", tmp_path / "reports", "--index", index)
    assert done.returncode == 1
    assert f"{reports[0].name}: its content has the digest" in done.stderr
    assert reports[1].name in done.stderr
    assert index.read_text().splitlines() == lines[2:]


def test_a_folder_that_is_not_there_is_named_and_the_registry_stays(rebuild, tmp_path):
    index = evidence.write_history(tmp_path, runs(1))
    before = index.read_text()
    done = rebuild("--reports", tmp_path / "none", "--index", index)
    assert done.returncode == 2 and str(tmp_path / "none") in done.stderr and done.stderr.count("\n") == 1
    assert index.read_text() == before
