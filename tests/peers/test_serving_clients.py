"""The `openai` client and load generators that people point at vLLM, pointed at our server: each has to complete 200
requests without an error, against one process and against several."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ready_line import ReadyLine  # noqa: E402

BIN = pathlib.Path(os.environ.get("NMC_BIN_DIR", "build/release/bin"))
REQUESTS, AT_ONCE, PROMPT, OUTPUT = 200, 16, 64, 16
TIMEOUT_S = 600

VLLM = """
import argparse, sys
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""


@pytest.fixture(scope="module", params=[(), ("--mode", "pd-process", "--prefill", "2", "--decode", "2")],
                ids=["monolithic", "pd-process"])
def url(request):
    checkpoint = request.config.getoption("--checkpoint")
    if not checkpoint:
        pytest.skip("no checkpoint with a tokenizer; make test-peers CHECKPOINT=DIR")
    process = subprocess.Popen([BIN / "nano-mooncake-api", "--port", "0", "--model", checkpoint, *request.param],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ready = ReadyLine(process.stderr)
    yield ready.wait(TIMEOUT_S)
    process.terminate()
    assert process.wait(60) == 0, "".join(ready.lines)
    ready.close(60)


@pytest.fixture
def run(request, tmp_path):
    """Runs a module or code of the environment to its end."""
    python = pathlib.Path(request.config.getoption("--peers-env")) / "bin" / "python"

    def run(*arguments):
        done = subprocess.run([python, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S,
                              cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    return run


@pytest.fixture
def checkpoint(request):
    return request.config.getoption("--checkpoint")


def test_openai_client(url):
    """Half of them streamed, some to each endpoint."""
    def ask(number):
        text = f"Request {number}: tell me something about caches."
        options = {"model": "nano-mooncake", "max_tokens": OUTPUT, "extra_body": {"ignore_eos": True}}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S) as client:
            if number % 4 == 0:
                return client.completions.create(prompt=text, **options).usage.completion_tokens
            messages = [{"role": "user", "content": text}]
            if number % 4 == 1:
                return client.chat.completions.create(messages=messages, **options).usage.completion_tokens
            streamed = {**options, "stream": True, "stream_options": {"include_usage": True}}
            chunks = list(client.completions.create(prompt=text, **streamed) if number % 4 == 2
                          else client.chat.completions.create(messages=messages, **streamed))
            return chunks[-1].usage.completion_tokens

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(ask, range(REQUESTS))) == [OUTPUT] * REQUESTS


def test_sglang_bench_serving(url, run, checkpoint, tmp_path):
    report = tmp_path / "sglang.jsonl"
    run("-m", "sglang.bench_serving", "--backend", "vllm", "--base-url", url, "--model", checkpoint,
        "--served-model-name", "nano-mooncake", "--dataset-name", "random-ids", "--random-input-len", PROMPT,
        "--random-output-len", OUTPUT, "--random-range-ratio", 1, "--num-prompts", REQUESTS, "--max-concurrency",
        AT_ONCE, "--output-file", report)
    result = json.loads(report.read_text().splitlines()[-1])
    assert result["completed"] == REQUESTS
    assert result["total_output_tokens"] == REQUESTS * OUTPUT


def test_vllm_bench_serve(url, run, checkpoint, tmp_path):
    run("-c", VLLM, "--backend", "openai", "--base-url", url, "--model", "nano-mooncake", "--tokenizer", checkpoint,
        "--dataset-name", "random", "--random-input-len", PROMPT, "--random-output-len", OUTPUT, "--num-prompts",
        REQUESTS, "--max-concurrency", AT_ONCE, "--ignore-eos", "--save-result", "--result-dir", tmp_path,
        "--result-filename", "vllm.json")
    result = json.loads((tmp_path / "vllm.json").read_text())
    assert (result["completed"], result.get("failed", 0)) == (REQUESTS, 0)
    assert result["total_output_tokens"] == REQUESTS * OUTPUT


def test_guidellm(url, run, checkpoint, tmp_path):
    report = tmp_path / "guidellm.json"
    run("-m", "guidellm", "run", "--backend", f"kind=openai_http,target={url},model=nano-mooncake", "--profile",
        "kind=concurrent,streams=8", "--constraint", f"kind=max_requests,count={REQUESTS}", "--tokenizer",
        f"kind=huggingface_auto,model={checkpoint}", "--data",
        f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}", "--output", f"kind=json,path={report}",
        "--disable-console-interactive")
    totals = json.loads(report.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0)
