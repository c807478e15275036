"""The ground itself: setup has nothing to do the second time, make knows its words, and the checks can fail."""

import json
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG = "clang++-16"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, **options)


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not a Debian system")
def test_setup_says_nothing_when_there_is_nothing_to_do():
    again = run("scripts/setup")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not a Debian system")
def test_setup_clears_no_environment_through_a_link(tmp_path):
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", checkout / "scripts")
    (checkout / "requirements-dev.lock").write_text("")
    other.mkdir()
    (other / "kept").write_text("")
    (checkout / ".venv").symlink_to(other)
    refused = subprocess.run([checkout / "scripts" / "setup"], capture_output=True, text=True, timeout=120,
                             stdin=subprocess.DEVNULL)
    assert refused.returncode == 1 and str(other) in refused.stderr
    assert (other / "kept").exists()


def test_setup_refuses_what_it_doesnt_know():
    wrong = run("scripts/setup", "--devel")
    assert wrong.returncode == 1 and "--devel" in wrong.stderr and "--dev" in wrong.stderr


def test_lock_file_has_every_requirement_in_its_version():
    def pins(name):
        lines = (ROOT / name).read_text().splitlines()
        return {line.lower() for line in lines if line and not line.startswith("#")}

    assert pins("requirements-dev.txt") <= pins("requirements-dev.lock")
    assert all("==" in pin for pin in pins("requirements-dev.lock"))


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/lint", "scripts/fuzz", ".ci/run"])
def test_shell_scripts_parse_and_are_strict(script):
    assert run("bash", "-n", script).returncode == 0
    assert "set -euo pipefail" in (ROOT / script).read_text()


WORDS = ["demo", "wheel", "test", "bench", "lint", "clean", "soak", "test-peers", "fuzz", "asan", "tsan"]


@pytest.mark.parametrize("word", WORDS)
def test_make_knows_and_explains_the_word(word):
    assert run("make", "--dry-run", word).returncode == 0
    assert f"\n{word} " in "\n" + run("make", "help").stdout


@pytest.mark.parametrize("preset", ["debug", "release", "asan-ubsan", "tsan", "clang", "fuzz"])
def test_presets_are_there(preset):
    assert f'"{preset}"' in run("cmake", "--list-presets").stdout


BREACH = """
#include "base/mutex.h"
struct Counter {
  nmc::Mutex mutex;
  int value NMC_GUARDED_BY(mutex) = 0;
  %s
};
"""


@pytest.mark.skipif(shutil.which(CLANG) is None, reason=f"no {CLANG}; scripts/setup --dev installs it")
@pytest.mark.parametrize("line, code", [
    ("void add() { nmc::MutexLock lock(mutex); ++value; }", 0),
    ("void add() { ++value; }", 1),
])
def test_clang_check_finds_a_value_used_without_its_lock(tmp_path, line, code):
    source = tmp_path / "a.cc"
    source.write_text(BREACH % line)
    command = f"ccache {CLANG} -std=gnu++20 -I{ROOT}/src -Wthread-safety -Werror -MD -MT a.o -MF a.d -o a.o -c {source}"
    (tmp_path / "compile_commands.json").write_text(
        json.dumps([{"directory": str(tmp_path), "command": command, "file": str(source)}]))
    check = run("scripts/clang-check", tmp_path)
    assert check.returncode == code
    assert ("requires holding mutex" in check.stderr) == (code == 1)
    assert not (tmp_path / "a.o").exists()


def test_clang_check_of_nothing_fails(tmp_path):
    (tmp_path / "compile_commands.json").write_text("[]")
    assert run("scripts/clang-check", tmp_path).returncode == 1
