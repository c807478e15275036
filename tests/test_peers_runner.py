"""`make test-peers` itself: what it says of clients that pass, fail, die or aren't there. Clients are small scripts."""

import importlib.util
import itertools
import json
import pathlib
import sys

import pytest

PATH = pathlib.Path(__file__).parent / "peers" / "run_peers.py"
SPEC = importlib.util.spec_from_file_location("run_peers", PATH)
run_peers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run_peers)

INSTALLED = {"nano-mooncake": "1.2.3", "torch": "2", "lmcache": "0.5"}
NO_PEERS = {"nano-mooncake": "1.2.3"}


def report(passed, checks, failed=()):
    return {"client": "c", "checks": checks, "passed": passed, "ok": passed == checks,
            "details": {"failed": [{"name": name, "seen": 7} for name in failed]}}


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs clients given as the code of their scripts; the exit code and what was printed."""

    monkeypatch.setattr(run_peers.Environment, "lacks", lambda self, module: "")  # the clients themselves aren't here

    def run_all(**scripts):
        for name, code in scripts.items():
            (tmp_path / f"{name}.py").write_text(code)
        table = run_peers.Table()
        run_peers.run_clients(table, run_peers.Environment(pathlib.Path(sys.prefix)), INSTALLED, tmp_path)
        return table.close(), capsys.readouterr().out

    return run_all


def script(**fields):
    check = "import sys\nassert sys.argv[1:] == ['--improves', 'required']\n"
    return f"{check}print('noise')\nprint({json.dumps(json.dumps(fields))})"


def test_what_passes_is_a_row_and_what_is_missing_is_skipped_by_name(run):
    code, said = run(store_semantics=script(**report(3, 3)), sglang_hicache=script(**report(1, 1)))
    assert code == 0
    assert any(line.split()[:3] == ["store_semantics", "3/3", "ok"] and "1.2.3" in line for line in said.splitlines())
    assert "skipped: sglang_hicache (sglang not installed)" in said
    assert "skipped: lmcache_store (not in " in said
    assert said.splitlines()[-1].startswith("test-peers: 1 ran, 0 failed, ")


def test_what_fails_is_named_and_the_exit_code_says_so(run):
    code, said = run(store_semantics=script(**report(2, 3, ["the one"])), lmcache_store=script(**report(1, 1)))
    assert code == 1
    assert "the one: 7" in said and "test-peers: 2 ran, 1 failed" in said


def test_a_client_whose_own_needs_are_missing_is_skipped_and_ours_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "client_of_theirs.py").write_text("import no_such_module_of_theirs\n")
    (tmp_path / "client_of_ours.py").write_text("import mooncake_no_such_module\n")
    environment = run_peers.Environment(pathlib.Path(sys.prefix))
    assert environment.lacks("client_of_theirs") == "no_such_module_of_theirs"
    assert environment.lacks("client_of_ours") == environment.lacks("json") == environment.lacks("") == ""


@pytest.mark.parametrize("code", ["raise SystemExit('it broke')", "print('no report')", "import os; os.abort()"])
def test_a_client_that_dies_has_failed(run, code):
    exit_code, said = run(store_semantics=code)
    assert exit_code == 1 and "0/1" in said


def test_without_folders_everything_is_skipped_and_that_is_no_failure(capsys):
    table = run_peers.Table()
    environment = run_peers.Environment(pathlib.Path(sys.prefix))
    run_peers.run_clients(table, environment, NO_PEERS, None)
    run_peers.run_reference(table, environment, NO_PEERS, None, None)
    run_peers.run_own_tests(table, environment, NO_PEERS)
    run_peers.run_comparisons(table, environment, NO_PEERS)
    assert table.close() == 0
    said = capsys.readouterr().out
    names = (run_peers.CLIENTS, run_peers.LATER, run_peers.REFERENCE_TESTS, run_peers.OWN_TESTS, run_peers.COMPARISONS)
    for name in itertools.chain(*names):
        assert f"skipped: {name} (" in said
