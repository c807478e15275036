"""The rules that every command keeps, and the life of `nano-mooncake api` as a process."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

COMMANDS = ["demo", "api", "config", "bench-engine", "slo", "simulate", "capacity", "route-sim"]
TIMEOUT_S = 120


def environment(**extra):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NANO_MOONCAKE_")}
    return {**clean, **extra}


def run(bin_dir, *arguments, env=None):
    return subprocess.run([bin_dir / "nano-mooncake", *map(str, arguments)], capture_output=True, text=True,
                          timeout=TIMEOUT_S, env=environment(**(env or {})))


def config(bin_dir, *arguments, env=None):
    done = run(bin_dir, "config", *arguments, "--format", "json", env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["settings"]


def refused(bin_dir, *arguments, env=None):
    """The one line of a command that refuses its arguments."""
    done = run(bin_dir, *arguments, env=env)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


class Api:
    """A running server; ends with the test."""

    def __init__(self, bin_dir, *arguments, env=None):
        self.process = subprocess.Popen(
            [bin_dir / "nano-mooncake-api", "--port", "0", "--dram-bytes", "32MiB", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**(env or {})))
        self.lines = []
        self.unread = queue.Queue()
        self.reader = threading.Thread(target=self.read_lines)
        self.reader.start()
        self.url = self.wait_for_line(r"ready (http://\S+)\n")[1]

    def read_lines(self):
        for line in self.process.stderr:
            self.unread.put(line)
        self.unread.put("")

    def wait_for_line(self, pattern):
        """Reads standard error until a line matches ("" stands for its end); every line read is kept."""
        while True:
            line = self.unread.get(timeout=TIMEOUT_S)
            if line:
                self.lines.append(line)
            if match := re.fullmatch(pattern, line):
                return match
            assert line, f"ended before a line like {pattern}: {self.lines}"

    def request(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        made = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(made, timeout=TIMEOUT_S)

    def json(self, path, body=None):
        with self.request(path, body) as response:
            return json.load(response)

    def finish(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        self.wait_for_line("")
        assert self.process.stdout.read() == ""
        return self.process.wait(TIMEOUT_S)

    def kill(self):
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def start_api(bin_dir):
    started = []

    def start(*arguments, env=None):
        started.append(Api(bin_dir, *arguments, env=env))
        return started[-1]

    yield start
    for server in started:
        server.kill()


# ---- Words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_states_purpose_flags_exit_codes_and_an_example(bin_dir, command):
    done = run(bin_dir, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for part in (f"nano-mooncake {command} - ", "Usage:", "Flags:", "Default:", "Exit codes:", "Example:"):
        assert part in done.stdout
    assert done.stdout == run(bin_dir, "help", command).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_version_is_the_same_from_every_command(bin_dir, command):
    version = run(bin_dir, "--version").stdout
    assert re.fullmatch(r"nano-mooncake \d+\.\d+\.\d+, commit \S+, \w+ build, \S+ instructions\n", version)
    assert run(bin_dir, command, "--version").stdout == version


@pytest.mark.parametrize("command", ["demo", "api"])
def test_a_link_is_its_command(bin_dir, command):
    link = subprocess.run([bin_dir / f"nano-mooncake-{command}", "--help"], capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    assert link.stdout == run(bin_dir, command, "--help").stdout


def test_help_of_the_program_lists_every_command(bin_dir):
    done = run(bin_dir, "--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\S", done.stdout, re.MULTILINE)


def test_without_a_command_the_list_goes_to_standard_error(bin_dir):
    done = run(bin_dir)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run(bin_dir, "--help").stdout


def test_an_unknown_command_names_the_nearest(bin_dir):
    assert "confg: unknown command, did you mean config?" in refused(bin_dir, "confg")
    assert "--help lists the commands" in refused(bin_dir, "teleport")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_flag_names_the_nearest(bin_dir, command):
    assert "--confg: unknown flag, did you mean --config?" in refused(bin_dir, command, "--confg", "x")
    assert 'unexpected "tiny"' in refused(bin_dir, command, "tiny")


def test_a_malformed_failpoint_is_refused(bin_dir):
    assert "NANO_MOONCAKE_FAILPOINTS" in refused(bin_dir, "config", env={"NANO_MOONCAKE_FAILPOINTS": "x=boom"})


# ---- Configuration ------------------------------------------------------------------------------------------------


def test_flags_win_over_environment_over_file_over_defaults(bin_dir, tmp_path):
    path = tmp_path / "conf.json"
    path.write_text('{"port": 1, "max_queue": 2, "max_running": 3, "dram_bytes": "5MiB"}')
    settings = config(bin_dir, "--config", path, "--port", "10",
                      env={"NANO_MOONCAKE_PORT": "20", "NANO_MOONCAKE_MAX_QUEUE": "30"})
    assert settings["port"] == {"value": 10, "origin": "flag", "from": "--port"}
    assert settings["max_queue"] == {"value": 30, "origin": "environment", "from": "NANO_MOONCAKE_MAX_QUEUE"}
    assert settings["max_running"] == {"value": 3, "origin": "file", "from": f"{path}: `max_running`"}
    assert settings["dram_bytes"]["value"] == 5 << 20
    assert settings["model"] == {"value": "tiny", "origin": "default", "from": None}
    assert settings["disk_dir"]["value"] is None


def test_one_file_serves_every_command(bin_dir, tmp_path):
    path = tmp_path / "conf.json"
    path.write_text('{"port": 1234, "reuse": "none", "dram_bytes": "32m"}')
    done = run(bin_dir, "demo", "--config", path, "--format", "json")
    assert json.loads(done.stdout)["runs"][1]["saved_tokens"] == 0


def test_secrets_are_not_shown(bin_dir):
    done = run(bin_dir, "config", env={"NANO_MOONCAKE_API_KEY": "sesame"})
    assert "sesame" not in done.stdout + done.stderr
    assert re.search(r"api_key +\(set\) +environment +NANO_MOONCAKE_API_KEY", done.stdout)


def test_an_unread_variable_is_named_with_the_nearest(bin_dir):
    done = run(bin_dir, "config", env={"NANO_MOONCAKE_POTR": "1"})
    assert done.returncode == 0
    assert "NANO_MOONCAKE_POTR is not a known setting, did you mean NANO_MOONCAKE_PORT?" in done.stderr


@pytest.mark.parametrize("text, message", [
    ('{"prt": 1}', "`prt` is not a known setting, did you mean port?"),
    ('{"port": "1"}', '`port`: "1": expected a whole number from 0 to 65535'),
    ('{"port": 1, "port": 2}', "duplicate"),
    ("[]", "expected an object"),
    ("{", "not valid JSON"),
    ('{"a":' + "[" * 5000, "nesting too deep"),
])
def test_a_wrong_file_is_named_with_the_fault(bin_dir, tmp_path, text, message):
    path = tmp_path / "conf.json"
    path.write_text(text)
    line = refused(bin_dir, "config", "--config", path)
    assert str(path) in line and message in line


def test_an_absent_file_is_named(bin_dir, tmp_path):
    assert "absent.json" in refused(bin_dir, "config", "--config", tmp_path / "absent.json")


@pytest.mark.parametrize("flag, value, message", [
    ("--port", "65536", "expected a whole number from 0 to 65535"),
    ("--port", "-1", "expected a whole number"),
    ("--dtype", "fp8", "expected one of bf16, f32"),
    ("--mode", "both", "expected one of monolithic, pd, pd-process"),
    ("--prefill", "-1", "expected a whole number from 0"),
    ("--decode", "257", "expected a whole number from 0"),
    ("--store", "somewhere", "expected embedded, unix:PATH or HOST:PORT"),
    ("--dram-bytes", "1GB", "expected bytes"),
    ("--dram-bytes", "1k", "expected bytes from 1 MiB"),
    ("--block-tokens", "0", "expected a whole number from 1"),
    ("--request-timeout-s", "nan", "expected seconds"),
    ("--threads", "99999999999999999999", "expected a whole number"),
    ("--host", "", "expected text that is not empty"),
])
@pytest.mark.parametrize("command", ["api", "config"])
def test_a_wrong_value_is_one_line_that_names_flag_value_and_expectation(bin_dir, command, flag, value, message):
    line = refused(bin_dir, command, flag, value)
    assert line.startswith(f"nano-mooncake {command}: {flag}: ")
    assert value in line and message in line


@pytest.mark.parametrize("flags, message", [
    (["--prefill", "2"], "--prefill: 2: several workers of a kind, or none, are processes: --mode pd-process"),
    (["--decode", "0"], "--decode: 0: several workers of a kind, or none, are processes: --mode pd-process"),
    (["--mode", "pd-process", "--decode", "0"], "--decode: 0, expected at least one worker to decode"),
])
def test_workers_that_a_mode_cannot_have_are_refused(bin_dir, flags, message):
    run = subprocess.run([bin_dir / "nano-mooncake", "api", *flags], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and message in run.stderr and run.stderr.count("\n") == 1


def test_a_trace_that_cannot_be_written_is_refused_at_once(bin_dir, tmp_path):
    run = subprocess.run([bin_dir / "nano-mooncake-api", "--port", "0", "--trace-out", tmp_path],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode in (2, 3)
    assert run.stderr.startswith(f"nano-mooncake api: --trace-out: open {tmp_path}: Is a directory")
    assert run.stderr.count("\n") == 1


def test_a_model_that_was_not_fetched_says_how_to_get_it(bin_dir, tmp_path):
    run = subprocess.run([bin_dir / "nano-mooncake", "demo", "--model", "smollm2"], capture_output=True, text=True,
                         timeout=60, env={**os.environ, "NANO_MOONCAKE_CACHE": str(tmp_path)})
    assert run.returncode != 0
    assert f"{tmp_path}/SmolLM2-135M-Instruct.Q4_1.gguf isn't there: `make model` fetches it" in run.stderr
    assert "not a known setting" not in run.stderr


# ---- The server as a process --------------------------------------------------------------------------------------


def test_api_says_ready_once_and_serves(start_api):
    server = start_api("--served-model-name", "my-model", "--mode", "pd")
    assert server.json("/v1/models")["data"][0]["id"] == "my-model"
    answer = server.json("/v1/completions", {"model": "my-model", "prompt": "hello", "max_tokens": 4})
    assert answer["usage"]["prompt_tokens"] == 5
    assert server.finish() == 0
    assert [line.startswith("ready ") for line in server.lines].count(True) == 1
    assert server.lines[0].startswith("nano-mooncake api: model tiny")


def test_quiet_says_ready_and_nothing_else(start_api):
    server = start_api("--quiet")
    assert server.finish(signal.SIGINT) == 0
    assert server.lines == [f"ready {server.url}\n"]


def open_stream(server, tokens):
    """A streaming answer whose first event has arrived."""
    response = server.request("/v1/completions", {"model": "nano-mooncake", "prompt": "hello", "max_tokens": tokens,
                                                  "stream": True, "ignore_eos": True, "temperature": 0})
    first = response.readline()
    assert first.startswith(b"data: ")
    return response


def test_sigterm_lets_a_running_stream_finish_and_refuses_new_requests(start_api):
    server = start_api("--drain-timeout-s", "60")
    stream = open_stream(server, tokens=4000)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line(".*draining.*\n")
    with pytest.raises(urllib.error.HTTPError) as refusal:
        open_stream(server, tokens=1)
    assert refusal.value.code == 503 and refusal.value.headers["Retry-After"]
    rest = stream.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    assert b'"finish_reason":"length"' in rest.replace(b" ", b"")
    assert server.wait() == 0


def test_drain_timeout_ends_what_is_still_running(start_api):
    server = start_api("--drain-timeout-s", "0")
    stream = open_stream(server, tokens=8000)
    assert server.finish() == 0
    assert b"length" not in stream.read()


def test_a_second_signal_stops_at_once(start_api):
    server = start_api("--drain-timeout-s", "3600")
    stream = open_stream(server, tokens=8000)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line(".*draining.*\n")
    assert server.finish() == 130
    stream.close()


def test_a_port_in_use_is_named_and_exit_3(bin_dir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(bin_dir, "api", "--port", port, "--dram-bytes", "32MiB")
    assert (done.returncode, done.stdout) == (3, "")
    assert "127.0.0.1" in done.stderr and str(port) in done.stderr and "in use" in done.stderr
    assert "ready" not in done.stderr


def test_an_address_of_another_host_is_refused(bin_dir):
    done = run(bin_dir, "api", "--host", "192.0.2.1", "--dram-bytes", "32MiB")
    assert done.returncode in (2, 3)
    assert "192.0.2.1" in done.stderr and "ready" not in done.stderr


def test_more_memory_than_there_is_is_refused(bin_dir):
    done = run(bin_dir, "api", "--port", "0", "--dram-bytes", "60TiB")
    assert (done.returncode, done.stdout) == (3, "")
    assert "ready" not in done.stderr


def test_beyond_loopback_without_a_key_is_warned_of(start_api):
    assert any("no --api-key is set" in line for line in start_api("--host", "0.0.0.0").lines)
    assert not any("api-key" in line for line in
                   start_api("--host", "0.0.0.0", env={"NANO_MOONCAKE_API_KEY": "k"}).lines)


def test_a_disk_folder_in_use_is_refused_and_its_owner_goes_on(bin_dir, start_api, tmp_path):
    owner = start_api("--disk-dir", tmp_path / "cache")
    done = run(bin_dir, "api", "--port", "0", "--dram-bytes", "32MiB", "--disk-dir", tmp_path / "cache")
    assert (done.returncode, done.stdout) == (3, "")
    assert str(tmp_path / "cache") in done.stderr and "in use" in done.stderr
    assert owner.json("/v1/models")["object"] == "list"
    assert owner.finish() == 0


def test_a_disk_folder_that_is_a_file_is_refused(bin_dir, tmp_path):
    path = tmp_path / "file"
    path.write_text("not ours")
    done = run(bin_dir, "api", "--port", "0", "--dram-bytes", "32MiB", "--disk-dir", path)
    assert done.returncode in (2, 3) and str(path) in done.stderr
    assert path.read_text() == "not ours"


def test_a_restarted_server_is_warm(start_api, tmp_path):
    body = {"model": "nano-mooncake", "prompt": "x" * 100, "max_tokens": 4, "temperature": 0}
    texts = []
    for cached in (0, 100):
        server = start_api("--disk-dir", tmp_path / "cache")
        answer = server.json("/v1/completions", body)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        texts.append(answer["choices"][0]["text"])
        assert server.finish() == 0
    assert texts[0] == texts[1]


# ---- Broken checkpoints -------------------------------------------------------------------------------------------


def header_only(length, header=b""):
    return length.to_bytes(8, "little") + header


BROKEN = {
    "empty folder": {},
    "no weights": {"config.json": b"{}"},
    "config is no JSON": {"config.json": b"{", "model.safetensors": header_only(2, b"{}")},
    "unknown architecture": {"config.json": b'{"model_type": "mamba"}', "model.safetensors": header_only(2, b"{}")},
    "header longer than the file": {"config.json": b'{"model_type": "llama"}',
                                    "model.safetensors": header_only(2**63)},
}


@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("command", ["api", "demo", "bench-engine"])
def test_a_broken_checkpoint_is_refused_before_anything_starts(bin_dir, tmp_path, command, files):
    folder = tmp_path / "broken-model"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    line = refused(bin_dir, command, "--model", folder)
    assert "broken-model" in line
