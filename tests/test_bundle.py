"""Evidence bundles as those who export them and strangers who check them meet them."""

import json
import os
import random
import resource
import shutil
import subprocess
import zipfile

import pytest

import evidence_bundles as bundles
import evidence_reports as evidence
from evidence_bundles import Entry

BUDGET = {"schema": "nano-mooncake/pressure-budgets/v1", "profiles": {"smoke": [
    {"id": "no-leaks", "metric": "leaked_handles", "statistic": "max", "selector": {}, "direction": "at_most",
     "limit": 0, "min_samples": 1}]}}
WORKLOADS = {"schema": "nano-mooncake/workloads/v1", "workloads": {"high-reuse": {
    "about": "Two prefixes.", "requests": 4, "groups": 2, "prefix_tokens": 32, "suffix_tokens": 8, "output_tokens": 2,
    "concurrency": 1}}}
MIB = 1 << 20


def run(program, *arguments, **options):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          **options)


class History:
    """Runs, and all that a bundle is made of beside them."""

    def __init__(self, folder, bin_dir):
        self.folder, self.program = folder, bin_dir / "nano-mooncake-export-bundle"
        self.index = evidence.write_history(
            folder, [evidence.report(number, [evidence.case(ttft_ms=(1.5, 2.25))]) for number in range(3)])
        for name, document in (("budget.json", BUDGET), ("workloads.json", WORKLOADS), ("verdict.json", {"a": 1})):
            (folder / name).write_text(json.dumps(document))

    def reports(self):
        return sorted((self.folder / "reports").iterdir())

    def export(self, folder, *flags, profile="smoke"):
        return run(self.program, "--index", self.index, "--output-dir", folder, "--pressure-profile", profile,
                   "--budget", self.folder / "budget.json", "--workloads", self.folder / "workloads.json", "--include",
                   self.folder / "verdict.json", *flags)


@pytest.fixture
def history(bin_dir, tmp_path):
    return History(tmp_path / "history", bin_dir)


@pytest.fixture
def bundle(history, tmp_path):
    """A good one, as a folder; bundle.zip lies beside it."""
    done = history.export(tmp_path / "bundle", "--zip", tmp_path / "bundle.zip")
    assert done.returncode == 0, done.stderr
    return tmp_path / "bundle"


@pytest.fixture
def verify(bin_dir):
    """The findings, as "KIND PATH"; the exit code has to agree."""

    def check(path, **options):
        done = run(bin_dir / "nano-mooncake-verify-bundle", path, "--format", "json", **options)
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        report = json.loads(done.stdout)
        assert report["schema"] == "nano-mooncake/bundle-verification/v1"
        found = [f"{finding['kind']} {finding['path']}" for finding in report["findings"]]
        assert all(finding["detail"] for finding in report["findings"])
        assert (report["verdict"], done.returncode) == (("rejected", 1) if found else ("verified", 0))
        return found

    return check


@pytest.fixture
def verify_entries(verify, tmp_path):
    def check(entries, change=lambda data: data, **options):
        path = tmp_path / "made.zip"
        path.write_bytes(change(bundles.archive(entries)))
        return verify(path, **options)

    return check


@pytest.fixture
def good(bundle):
    return bundles.entries_of(bundles.files_of(bundle))


def test_a_bundle_is_verified_as_folder_and_as_archive(bundle, verify):
    assert verify(bundle) == [] and verify(bundle.with_suffix(".zip")) == []


def test_verifying_needs_only_the_program(bin_dir, bundle, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    elsewhere = tmp_path / "program"
    shutil.copy(bin_dir / "nano-mooncake", elsewhere)
    done = run(elsewhere, "verify-bundle", bundle.with_suffix(".zip"), cwd="/", env={})
    assert done.returncode == 0 and "verified, 8 files of 3 runs" in done.stdout, done.stderr
    elsewhere.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_two_exports_are_the_same_bytes(history, bundle, bin_dir, tmp_path):
    other = History(tmp_path / "on" / "another" / "machine", bin_dir)
    assert other.export(tmp_path / "again/", "--zip", tmp_path / "again.zip").returncode == 0
    assert bundles.files_of(tmp_path / "again") == bundles.files_of(bundle)
    assert (tmp_path / "again.zip").read_bytes() == bundle.with_suffix(".zip").read_bytes()


def test_archive_and_manifest_are_those_of_the_documentation(bundle):
    files = bundles.files_of(bundle)
    assert sorted(files)[:3] == ["index.jsonl", "manifest.json", "pressure_budgets.json"]
    assert files["manifest.json"] == bundles.manifest_of(files)
    assert bundles.archive(bundles.entries_of(files)) == bundle.with_suffix(".zip").read_bytes()
    for line in files["index.jsonl"].decode().splitlines():
        record = json.loads(line)
        assert record == evidence.record_of(json.loads(files[record["path"]]), record["path"])


def test_other_tools_unpack_what_was_verified(bundle, verify, tmp_path):
    with zipfile.ZipFile(bundle.with_suffix(".zip")) as opened:
        assert opened.testzip() is None
        opened.extractall(tmp_path / "unpacked")
    assert verify(tmp_path / "unpacked") == []
    assert bundles.files_of(tmp_path / "unpacked") == bundles.files_of(bundle)


DAMAGES = {
    "twice": (lambda good: [*good, Entry("index.jsonl", b"other")], "duplicate-name index.jsonl"),
    "file and folder": (lambda good: [*good, Entry("index.jsonl/")], "duplicate-name index.jsonl/"),
    "case": (lambda good: [*good, Entry("Index.jsonl")], "duplicate-name Index.jsonl"),
    "normal form": (lambda good: [*good, Entry("verdicts/\u00e9"), Entry("verdicts/e\u0301")],
                    "duplicate-name verdicts/e\u0301"),
    "parent": (lambda good: [*good, Entry("../x")], "path-escape ../x"),
    "parent within": (lambda good: [*good, Entry("verdicts/../../x")], "path-escape verdicts/../../x"),
    "absolute": (lambda good: [*good, Entry("/etc/x")], "path-escape /etc/x"),
    "backslash": (lambda good: [*good, Entry("..\\x")], "path-escape ..\\\\x"),
    "no UTF-8": (lambda good: [*good, Entry(b"\xff")], "malformed \\ufffd"),
    "link": (lambda good: [*good, Entry("verdicts/link", b"/etc/passwd", bundles.LINK_MODE)], "link verdicts/link"),
    "added": (lambda good: [*good, Entry("verdicts/more.json", b"{}")], "extra verdicts/more.json"),
    "removed": (lambda good: good[1:], "missing index.jsonl"),
    "no manifest": (lambda good: [entry for entry in good if entry.name != b"manifest.json"], "missing manifest.json"),
    "compressed": (lambda good: [Entry(entry.name, entry.content, deflated=True) for entry in good],
                   "malformed manifest.json"),
    "local size": (lambda good: [Entry(good[0].name, good[0].content, local={"size": 1}), *good[1:]],
                   "inconsistent index.jsonl"),
    "local name": (lambda good: [Entry(good[0].name, good[0].content, local={"name": b"other.jsonl"}), *good[1:]],
                   "inconsistent index.jsonl"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_of_an_archive_is_named(damage, good, verify_entries):
    assert verify_entries(good) == []
    change, expected = DAMAGES[damage]
    assert expected in verify_entries(change(good))


def test_cuts_and_additions_are_named(good, verify_entries):
    assert verify_entries(good, lambda data: data[:len(data) * 9 // 10]) == ["truncated "]
    assert verify_entries(good, lambda data: data + b"more") == ["malformed "]
    assert verify_entries(good, lambda data: b"#!/bin/sh\n" + data) == ["malformed "]
    assert verify_entries(good, lambda data: b"") == ["truncated "]


@pytest.mark.parametrize("text", ["{}", "[]", "", "{\"schema\": \"nano-mooncake/bundle/v1\", \"files\": []}"])
def test_an_empty_manifest_is_not_nothing_to_check(text, bundle, verify):
    (bundle / "manifest.json").write_text(text)
    assert verify(bundle) == ["malformed manifest.json"]


def test_a_manifest_does_not_list_itself(bundle, verify):
    files = bundles.files_of(bundle)
    document = json.loads(files["manifest.json"])
    listed = [*document["files"], {"path": "manifest.json", "bytes": 1, "sha256": evidence.digest_of("x")}]
    (bundle / "manifest.json").write_bytes(bundles.manifest_of(files, members={"files": listed}))
    assert "malformed manifest.json" in verify(bundle)


def test_each_damage_of_a_folder_is_named(bundle, verify):
    victim = next((bundle / "reports").iterdir())
    name = f"reports/{victim.name}"
    content = victim.read_bytes()
    victim.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    assert verify(bundle) == [f"modified {name}"]
    victim.unlink()
    assert verify(bundle) == [f"missing {name}"]
    os.mkfifo(victim)
    assert verify(bundle) == [f"malformed {name}"]
    victim.unlink()
    (bundle.parent / "kept").write_bytes(content)
    victim.symlink_to(bundle.parent / "kept")
    assert verify(bundle) == [f"link {name}"]
    victim.unlink()
    victim.write_bytes(content)
    (bundle / "more").write_text("x")
    assert verify(bundle) == ["extra more"]


def test_a_report_of_another_run_is_stale(bundle, verify):
    victim = next((bundle / "reports").iterdir())
    victim.write_text(json.dumps(evidence.sealed(evidence.report(9, []), "report_digest")))
    assert verify(bundle) == [f"stale reports/{victim.name}"]


def test_the_registry_is_held_to_order_reports_and_its_own_digests(bundle, verify):
    files = bundles.files_of(bundle)
    lines = files["index.jsonl"].splitlines(keepends=True)

    def judged(new_lines, resealed=False):
        changed = {**files, "index.jsonl": b"".join(new_lines)}
        (bundle / "index.jsonl").write_bytes(changed["index.jsonl"])
        (bundle / "manifest.json").write_bytes(bundles.manifest_of(changed) if resealed else files["manifest.json"])
        return verify(bundle)

    assert judged(lines, resealed=True) == []
    assert judged([lines[1], lines[0], lines[2]]) == ["reordered index.jsonl"]
    assert judged(lines[:2]) == ["stale index.jsonl"]
    assert judged([*lines[:2], lines[2][:-1]]) == ["truncated index.jsonl"]
    record = json.loads(lines[0])
    better = json.dumps(evidence.sealed({**record, "cases_done": 7}, "record_digest"), separators=(",", ":")) + "\n"
    assert judged([better.encode(), *lines[1:]], resealed=True) == ["inconsistent index.jsonl"]
    forged = lines[0].replace(b'"cases_done":1', b'"cases_done":2')
    assert judged([forged, *lines[1:]], resealed=True) == ["inconsistent index.jsonl"]
    assert judged([forged, *lines[1:]]) == ["modified index.jsonl"]


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (400 * MIB, 400 * MIB))


def test_a_bomb_is_refused_without_being_unpacked(good, verify_entries, verify, bundle):
    assert verify_entries(good, preexec_fn=limited) == []  # the limit leaves room for the program itself
    packed = bundles.deflate(bytes(MIB) for _ in range(1024))
    assert len(packed) < 2 * MIB
    zeros = Entry("verdicts/zeros", packed=packed, fields={"size": 1024 * MIB})
    assert "bomb verdicts/zeros" in verify_entries([*good, zeros], preexec_fn=limited)
    # Declared small, so that it would only show while it is unpacked.
    zeros = Entry("verdicts/zeros", packed=packed, fields={"size": 100})
    assert "malformed verdicts/zeros" in verify_entries([*good, zeros], preexec_fn=limited)
    with open(bundle / "workload_bundles.json", "wb") as sparse:
        sparse.truncate(1024 * MIB)
    assert verify(bundle, preexec_fn=limited) == ["bomb workload_bundles.json"]


def test_a_file_that_asks_for_much_memory_gets_little(bundle, verify, tmp_path):
    files = bundles.files_of(bundle)
    name = next(path for path in files if path.startswith("reports/"))
    files[name] = b"[" + b"[]," * (20 * MIB) + b"[]]"
    files["manifest.json"] = bundles.manifest_of(files)
    (tmp_path / "made.zip").write_bytes(bundles.archive(bundles.entries_of(files)))
    assert verify(tmp_path / "made.zip", preexec_fn=limited) == [f"bomb {name}"]


def test_no_changed_byte_of_an_archive_passes(bundle, verify, tmp_path):
    data = bundle.with_suffix(".zip").read_bytes()
    chance = random.Random(20261201)
    for _ in range(200):
        at, flip = chance.randrange(len(data)), chance.randrange(1, 256)
        (tmp_path / "changed.zip").write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1:])
        assert verify(tmp_path / "changed.zip"), (at, flip)


def test_the_result_is_written_where_it_is_asked_for(bin_dir, bundle, tmp_path):
    output = tmp_path / "results" / "verification.json"
    (bundle / "more").write_text("x")
    done = run(bin_dir / "nano-mooncake-verify-bundle", bundle, "--format", "json", "--output", output)
    assert done.returncode == 1
    assert json.loads(output.read_text())["findings"] == [
        {"kind": "extra", "path": "more", "detail": "the manifest doesn't list it"}]
    table = run(bin_dir / "nano-mooncake-verify-bundle", bundle)
    assert "extra" in table.stdout and table.stdout.endswith("rejected, 9 files of 3 runs\n")


@pytest.mark.parametrize("path", ["none", "/dev/null"])
def test_what_can_not_be_read_is_named(path, bin_dir, tmp_path):
    done = run(bin_dir / "nano-mooncake-verify-bundle", path, cwd=tmp_path)
    assert done.returncode == 2 and path in done.stderr and done.stderr.count("\n") == 1


def test_a_run_without_its_report_is_not_exported(history, tmp_path):
    reports = history.reports()
    for damage in (lambda: reports[1].write_text(reports[1].read_text().replace("1.5", "1.4")), reports[1].unlink):
        damage()
        done = history.export(tmp_path / "bundle")
        assert done.returncode == 2 and reports[1].name in done.stderr and done.stderr.count("\n") == 1
        assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("name", ["budget.json", "workloads.json", "verdict.json"])
def test_an_input_that_is_not_there_is_named(name, history, tmp_path):
    (history.folder / name).unlink()
    done = history.export(tmp_path / "bundle")
    assert done.returncode == 2 and name in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [history.folder]


def test_a_profile_that_the_budget_lacks_is_named(history, tmp_path):
    done = history.export(tmp_path / "bundle", profile="full")
    assert done.returncode == 2 and "full" in done.stderr


def test_exporting_again_replaces_a_bundle_and_nothing_else(history, bundle, verify):
    assert history.export(f"{bundle}/").returncode == 0
    assert verify(bundle) == []
    (bundle / "notes.txt").write_text("mine")
    done = history.export(bundle)
    assert done.returncode == 2 and "notes.txt" in done.stderr
    assert (bundle / "notes.txt").read_text() == "mine"
    done = history.export(history.folder)
    assert done.returncode == 2 and str(history.folder) in done.stderr and history.index.is_file()


def test_an_archive_in_the_folder_that_it_is_of_is_refused(history, tmp_path):
    done = history.export(tmp_path / "new", "--zip", tmp_path / "new" / "bundle.zip")
    assert done.returncode == 2 and "--zip" in done.stderr and not (tmp_path / "new").exists()


def test_verdicts_of_one_name_are_refused(history, tmp_path):
    (tmp_path / "verdict.json").write_text("")
    done = history.export(tmp_path / "new", "--include", tmp_path / "verdict.json")
    assert done.returncode == 2 and "verdict.json" in done.stderr
