"""docs/experiments.md is run as it stands, an experiment at a time.

The convention: each section `## Experiment` is one bash, its blocks ```sh in order, in one folder for the whole page,
with `examples` linked there and the programs, the package and this Python on the paths. A block that fails ends its
section. A block ```text behind one holds the lines that it prints, in order; `...` within a line is any text, on a line
of its own any lines. Ports are replaced by free ones. What a section started in the background and didn't end is ended
behind it. What "Comes later" names must not be there yet, so that the page is mended when it is.
"""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "experiments.md").read_text()
PORTS = ("8000", "8080", "9003", "50051")
SECONDS_MAX = 120
MARK = "@@ block "


def sections():
    """(letter, text) of each experiment."""
    parts = re.split(r"^## Experiment ([A-G]): .*\n", PAGE, flags=re.MULTILINE)
    return [(letter, re.split(r"^## ", text, flags=re.MULTILINE)[0]) for letter, text in zip(parts[1::2], parts[2::2])]


def blocks(text):
    """(commands, the lines expected or None) in their order."""
    found = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL)
    return [(commands, expected or None) for commands, expected in found]


def free_ports(count):
    """Below the ephemeral range, so that no outgoing connection takes one before its server does."""
    sockets = []
    while len(sockets) < count:
        opened = socket.socket()
        try:
            opened.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 32000)))
            sockets.append(opened)
        except OSError:
            opened.close()
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def as_pattern(expected):
    lines = []
    for line in expected.splitlines():
        lines.append(r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiments")
    (path / "examples").symlink_to(REPOSITORY / "examples")
    return path


@pytest.fixture(scope="module")
def environment(bin_dir, build_dir, folder):
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NANO_MOONCAKE_", "MC_"))}
    return {**clean, "PATH": f"{programs}:{bin_dir}:{os.environ['PATH']}", "PYTHONPATH": str(build_dir / "python"),
            "LC_ALL": "C.UTF-8"}


def run_section(text, folder, environment):
    """What each block printed; those that were begun only, and how it ended."""
    script = "set -euo pipefail\n" + "".join(f"echo '{MARK}'\n{commands}\n" for commands, _ in blocks(text))
    for name, port in zip(PORTS, free_ports(len(PORTS))):
        script = re.sub(rf"\b{name}\b", str(port), script)
    # A session of its own: whatever the section leaves running ends with it.
    with open(folder / "said", "w+b") as said, open(folder / "complained", "w+b") as complained:
        running = subprocess.Popen(["bash", "-c", script], stdout=said, stderr=complained, stdin=subprocess.DEVNULL,
                                   cwd=folder, env=environment, start_new_session=True)
        try:
            code = running.wait(SECONDS_MAX)
        finally:
            try:
                os.killpg(running.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
            if running.poll() is None:
                running.kill()
                running.wait()
        said.seek(0)
        complained.seek(0)
        outputs = said.read().decode().replace("\r\n", "\n").split(MARK + "\n")[1:]  # CSV has both
        return outputs, code, complained.read().decode()


@pytest.mark.parametrize("letter", [letter for letter, _ in sections()])
def test_experiment(letter, folder, environment, build_dir):
    text = dict(sections())[letter]
    if "mooncake.store" in text and not any((build_dir / "python" / "mooncake").glob("_store.*.so")):
        pytest.skip("this build has no Python package")
    if "curl" in text and shutil.which("curl") is None:
        pytest.skip("curl isn't installed")
    outputs, code, complained = run_section(text, folder, environment)
    commands = blocks(text)
    where = f"block {len(outputs)} of experiment {letter}"
    assert code == 0, f"{where} ended with {code}: {complained}\nafter {outputs[-1:]}"
    assert len(outputs) == len(commands)
    for output, (block, expected) in zip(outputs, commands):
        if expected is not None:
            assert re.fullmatch(as_pattern(expected), output), f"{block}\nprinted\n{output}\nexpected\n{expected}"


def test_it_has_all_seven_and_each_is_complete():
    assert "".join(letter for letter, _ in sections()) == "ABCDEFG"
    for letter, text in sections():
        assert "**Aim.**" in text and "**Questions.**" in text, letter
        assert any(expected for _, expected in blocks(text)), letter
        assert text.count("```sh\n") == len(blocks(text)), letter


def test_the_record_asks_for_what_a_result_needs():
    [record] = re.findall(r"^```markdown\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for field in ("Hypothesis", "one variable", "Configuration", "Evidence",
                  "| injected | expected | observed | remedy |"):
        assert field in record


def test_what_comes_later_is_not_there_yet(bin_dir):
    later = re.findall(r"^> \*\*Comes later:\*\* `([\w-]+)`", PAGE, re.MULTILINE)
    assert len(later) == PAGE.count("Comes later")
    known = subprocess.run([bin_dir / "nano-mooncake", "--help"], capture_output=True, text=True, check=True,
                           timeout=60).stdout
    for program in later:
        assert not (bin_dir / program).exists(), f"{program} is there: write its step"
        assert f"  {program.removeprefix('nano-mooncake-')} " not in known, f"{program} is there: write its step"


def test_a_wrong_expectation_is_found():
    assert re.fullmatch(as_pattern("a=...\n...\nend\n"), "a=1\nb\nc\nend\n")
    assert not re.fullmatch(as_pattern("a=...\nend\n"), "a=1\nb\nend\n")
    assert not re.fullmatch(as_pattern("128,1\n"), "128,2\n")
