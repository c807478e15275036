"""README says only what works: its commands are run as they stand there, but for the port and folders of our own."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

README = (pathlib.Path(__file__).resolve().parent.parent / "README.md").read_text()
SERVED = "http://127.0.0.1:8000"
SECONDS_MAX = 60


def code_blocks():
    """Indented blocks, without their indentation."""
    blocks = re.findall(r"(?:^    .*\n)+", README, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]


def blocks_with(word):
    found = [block for block in code_blocks() if word in block]
    assert found, f"README has no block with {word}"
    return found


@pytest.fixture(scope="module")
def url(server):
    return server.url.rstrip("/")


def shell(script, **environment):
    run = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
                         timeout=SECONDS_MAX, env={**os.environ, **environment})
    assert run.returncode == 0, run.stderr
    return run.stdout


def curl(block, url):
    if shutil.which("curl") is None:
        pytest.skip("curl isn't installed")
    assert SERVED in block
    return shell(block.replace("curl ", "curl -sS --fail-with-body ").replace(SERVED, url))


def test_health_and_metrics(url):
    [block] = blocks_with("/healthz")
    for line in block.splitlines():
        assert isinstance(json.loads(curl(line, url)), dict)


def test_a_master_and_its_metrics(start_program):
    [line] = [line for block in blocks_with("mooncake_master --") for line in block.splitlines()]
    program, *flags = line.split()
    flags = [flag.replace("50051", "0") for flag in flags]
    server = start_program(program, *flags, "--metrics_port=0", "--http_metadata_server_port=0")
    [admin] = re.findall(r"metrics at (\S+)/metrics", "".join(server.log))
    [block] = blocks_with(":9003/metrics/summary")
    for line in block.splitlines():
        assert "master" in curl(line.replace("http://127.0.0.1:9003", SERVED), admin)


def test_chat_completion(url):
    [block] = [block for block in blocks_with("chat/completions") if '"stream"' not in block and "curl" in block]
    answer = json.loads(curl(block, url))
    assert answer["model"] == "nano-mooncake"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert 1 <= answer["usage"]["completion_tokens"] <= 8


def test_streamed_chat_completion(url):
    [block] = [block for block in blocks_with("chat/completions") if '"stream": true' in block]
    events = [line.removeprefix("data: ") for line in curl(block, url).splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def test_official_client(url):
    [block] = blocks_with("from openai import OpenAI")
    code = block.replace(SERVED, url)
    first, second = (
        int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                           timeout=SECONDS_MAX).stdout)
        for _ in range(2)
    )
    assert first == 0 and second > 0


def test_demo_variants(bin_dir, tmp_path):
    [block] = blocks_with("nano-mooncake-demo --mode ")
    lines = [line for line in block.splitlines() if "/path/to" not in line]
    assert lines
    for line in lines:
        assert shell(line.replace("/tmp/", f"{tmp_path}/").replace("build/release/bin", str(bin_dir)))


def test_every_command_in_the_table_has_help(bin_dir):
    commands = re.findall(r"^\| `(nano-mooncake[^`]*)` \|", README, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        assert "--help" in shell(f"{bin_dir}/{command} --help")


def test_files_it_points_to_exist():
    root = pathlib.Path(__file__).resolve().parent.parent
    for document in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} points to {target}"


def test_architecture_has_a_line_for_every_folder_of_the_source():
    root = pathlib.Path(__file__).resolve().parent.parent
    text = (root / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"^\| `src/(\w+)` \|", text, re.MULTILINE))
    present = {path.relative_to(root / "src").parts[0] for path in (root / "src").glob("*/**/*.h")}
    assert named == present


def test_each_credibility_rule_names_a_test_that_is_there():
    tests = pathlib.Path(__file__).resolve().parent
    rules = (tests.parent / "docs" / "credibility.md").read_text()
    named = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", rules)
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}" in (tests / file).read_text(), f"{file}::{test}"


def test_both_readmes_have_the_same_commands_of_evidence():
    chinese = (pathlib.Path(__file__).resolve().parent.parent / "README.zh-CN.md").read_text()
    for program in ("experiments", "results", "pressure-budget", "fault-budget", "acceptance-run", "export-bundle",
                    "verify-bundle", "local-hf-benchmark"):
        blocks = [block for block in code_blocks() if f"nano-mooncake-{program}" in block]
        assert blocks and f"    nano-mooncake-{program}" in chinese, program
