"""nano-mooncake slo against real servers: one of ours, and one whose delays and failures are told beforehand."""

import json
import pathlib
import signal
import subprocess
import sys
import urllib.request

import numpy
import pytest
from ready_line import ReadyLine
from waiting import eventually

SERVER = pathlib.Path(__file__).with_name("slo_server.py")


class InjectedServer:
    """slo_server.py with that script."""

    def __init__(self, script):
        self.process = subprocess.Popen([sys.executable, SERVER, json.dumps(script)], stderr=subprocess.PIPE, text=True)
        self._ready = ReadyLine(self.process.stderr)
        self.url = self._ready.wait(60, "slo_server.py")

    def seen(self):
        with urllib.request.urlopen(self.url + "/seen", timeout=30) as answer:
            return json.load(answer)

    def end(self):
        self.process.kill()
        self.process.wait(60)
        self._ready.close(60)


@pytest.fixture
def inject():
    """Starts servers by their script; they end with the test."""
    started = []

    def start(**script):
        started.append(InjectedServer(script))
        return started[-1]

    yield start
    for server in started:
        server.end()


# A host that runs other things, too, now and then takes the sender's core away for milliseconds. Where that isn't what
# a test is about, it may.
LENIENT = ["--max-lateness-ms", "100"]


def slo(bin_dir, url, *flags, timeout=120):
    lenient = [] if "--max-lateness-ms" in flags else LENIENT
    command = [bin_dir / "nano-mooncake", "slo", "--url", url, "--quiet", *lenient, *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def report(bin_dir, url, *flags, code=0):
    done = slo(bin_dir, url, *flags, "--format", "json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_percentiles_hold_the_injected_delays_and_are_those_of_numpy(bin_dir, inject, tmp_path):
    server = inject(ttft_ms=[20, 120], itl_ms=[4, 12], seed=3)
    rows_file = tmp_path / "rows.jsonl"
    result = report(bin_dir, server.url, "--rate", 110, "--duration-s", 6, "--prompt-tokens", 16, "--output-tokens", 4,
                    "--seed", 5, "--requests", rows_file)
    run = result["runs"][0]
    assert run["ok"] == run["requests"] > 500 and run["valid"], run
    # How far a delay was from what was told, this host decides: as the server and the generator say themselves.
    late_ms = 3 + numpy.percentile(server.seen()["late_ms"], 99) + run["generator"]["lateness_p99_ms"]
    for name, low, high in (("ttft_ms", 20, 120), ("itl_ms", 4, 12)):
        for q in (50, 95, 99):
            truth, got = low + (high - low) * q / 100, run[name][f"p{q}"]
            assert got["low_ms"] <= got["ms"] <= got["high_ms"]
            early_ms = late_ms if name == "itl_ms" else 0  # the gap after one that was read late is short
            assert got["low_ms"] - late_ms <= truth <= got["high_ms"] + early_ms, (name, q, got, late_ms)
    rows = rows_of(rows_file)
    assert len(rows) == run["requests"] and [row["index"] for row in rows] == list(range(len(rows)))
    samples = {"ttft_ms": [row["ttft_ms"] for row in rows], "e2e_ms": [row["e2e_ms"] for row in rows],
               "itl_ms": [gap for row in rows for gap in row["itl_ms"]]}
    for name, values in samples.items():
        assert run[name]["samples"] == len(values)
        for q in (50, 95, 99):
            assert run[name][f"p{q}"]["ms"] == pytest.approx(numpy.percentile(values, q, method="inverted_cdf"))
    assert run["input_tokens"] == 16 * len(rows) and run["output_tokens"] == 4 * len(rows)
    assert run["itl_ms"]["samples"] == 3 * len(rows)


def test_a_stalled_server_does_not_hold_back_the_sender_and_shows_in_ttft(bin_dir, inject, tmp_path):
    rows_file = tmp_path / "rows.jsonl"
    # A sender that waits for the server is late in each attempt; a busy host makes it late in some.
    for _ in range(3):
        server = inject(ttft_ms=[5, 5], stall={"at": 50, "s": 1.5})
        done = slo(bin_dir, server.url, "--rate", 50, "--arrivals", "uniform", "--duration-s", 4, "--prompt-tokens", 16,
                   "--output-tokens", 2, "--requests", rows_file, "--max-lateness-ms", 2, "--format", "json")
        run = json.loads(done.stdout)["runs"][0]
        assert run["valid"] == (run["generator"]["lateness_p99_ms"] <= 2) == (done.returncode == 0)
        if run["valid"]:
            break
    assert run["valid"], run["generator"]
    assert run["generator"]["without_connection"] == 0
    assert run["requests"] == run["ok"] == 200
    assert 1480 < run["ttft_ms"]["max"] < 3000
    # All that were due while it stood still waited for the rest of that time: a generator that had waited would have
    # one such request instead of 75.
    slow = [row for row in rows_of(rows_file) if row["ttft_ms"] > 100]
    assert 65 <= len(slow) <= 85, len(slow)


def test_a_generator_that_fell_behind_makes_its_run_invalid(bin_dir, inject):
    server = inject(ttft_ms=[1, 1])
    command = [bin_dir / "nano-mooncake", "slo", "--url", server.url, "--rate", "100", "--duration-s", "3",
               "--output-tokens", "1", "--prompt-tokens", "8", "--format", "json", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: server.seen()["requests"] >= 20, "it sends")
        process.send_signal(signal.SIGSTOP)
        # Stopped for longer than any request may be late: the server sees nothing new for as many looks.
        seen = [server.seen()["requests"]]
        eventually(lambda: seen.append(server.seen()["requests"]) or len(seen) > 150 and len(set(seen[-100:])) == 1,
                   "nothing is sent any more")
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    run = json.loads(out)["runs"][0]
    assert process.returncode == 1
    assert not run["valid"] and "sent late" in run["invalid_because"][0], run["invalid_because"]
    assert run["generator"]["lateness_p99_ms"] > 100
    assert run["requests"] == run["ok"], "what was late was sent all the same"


def test_outcomes_are_counted_apart_with_their_reasons(bin_dir, inject):
    server = inject(outcomes=["ok", "429", "500", "broken", "hang", "503", "reported", "ok"])
    run = report(bin_dir, server.url, "--arrivals", "uniform", "--rate", 40, "--duration-s", 2, "--timeout-s", 1,
                 "--output-tokens", 3, "--slo-ttft-ms", 900)["runs"][0]
    assert (run["requests"], run["ok"], run["rejected"], run["timeout"], run["error"]) == (80, 20, 20, 10, 30)
    assert run["good"] == 20 and run["good_part"] == 0.25 and run["goodput_per_s"] == 10
    reasons = " ".join(each["reason"] for each in run["reasons"])
    for words in ("status 429", "status 500", "broke off after 1 chunks", "a worker died", "no answer within 1 s"):
        assert words in reasons, reasons
    assert run["e2e_ms"]["samples"] == 20, "times are of answers"


def test_percentiles_from_too_few_samples_are_withheld(bin_dir, inject):
    server = inject()
    flags = ["--rate", 100, "--arrivals", "uniform", "--duration-s", 10, "--max-requests", 120, "--output-tokens", 1]
    result = report(bin_dir, server.url, *flags)
    assert "not_available" in result["provenance"]["evidence_tier"], "such a server says nothing of itself"
    run = result["runs"][0]
    assert run["requests"] == 120
    assert run["offered_per_s"] == pytest.approx(100), "nothing is offered after the last one"
    assert run["ttft_ms"]["p95"]["ms"] > 0
    assert run["ttft_ms"]["p99"] == {"not_available": "needs 500 samples, has 120"}
    assert run["itl_ms"]["p50"] == {"not_available": "needs 10 samples, has 0"}


def test_the_knee_lies_where_the_server_can_no_more(bin_dir, inject):
    server = inject(ttft_ms=[20, 20], slots=1)  # 50 a second at most
    flags = ["--arrivals", "uniform", "--duration-s", 1.5, "--output-tokens", 1, "--prompt-tokens", 8, "--slo-ttft-ms",
             150]
    swept = report(bin_dir, server.url, "--rates", "120,10,25", *flags)
    assert [rate["rate_per_s"] for rate in swept["rates"]] == [10, 25, 120]
    assert (swept["knee"]["rate_per_s"], swept["knee"]["fails_at_per_s"]) == (25, 120)
    found = report(bin_dir, server.url, "--rate", 30, "--find-knee", *flags)["knee"]
    assert 25 <= found["rate_per_s"] <= 65, found
    assert found["rate_per_s"] < found["fails_at_per_s"] <= found["rate_per_s"] * 1.1 + 1e-9


def test_repeats_have_a_median_and_a_spread(bin_dir, inject):
    server = inject(ttft_ms=[2, 8])
    result = report(bin_dir, server.url, "--rate", 60, "--duration-s", 1, "--repeats", 3, "--output-tokens", 1)
    runs, rate = result["runs"], result["rates"][0]
    assert [run["repeat"] for run in runs] == [0, 1, 2] and len({run["seed"] for run in runs}) == 3
    values = sorted(run["ttft_ms"]["p50"]["ms"] for run in runs)
    assert rate["ttft_ms_p50"] == {"median": values[1], "min": values[0], "max": values[2]}
    assert "not_available" in rate["ttft_ms_p99"]


def test_a_trace_is_replayed_at_its_times_with_its_lengths(bin_dir, inject, tmp_path):
    trace, rows_file = tmp_path / "trace.jsonl", tmp_path / "rows.jsonl"
    lines = [{"timestamp": 1000 * i, "input_length": 10 + i, "output_length": 1 + i % 3, "hash_ids": [0]}
             for i in range(20)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    server = inject()
    result = report(bin_dir, server.url, "--workload", "trace", "--trace", trace, "--time-scale", 0.05, "--warmup-s",
                    0.5, "--requests", rows_file)
    rows = rows_of(rows_file)
    assert [row["planned_s"] for row in rows] == pytest.approx([0.05 * i for i in range(20)])
    assert [row["output_tokens"] for row in rows] == [1 + i % 3 for i in range(20)]
    assert sorted(server.seen()["prompts"]) == [[10 + i, ""] for i in range(20)]
    assert [row["warmup"] for row in rows] == [True] * 10 + [False] * 10
    assert result["runs"][0]["requests"] == 10


def test_a_closed_loop_keeps_its_number_under_way(bin_dir, inject, tmp_path):
    server, rows_file = inject(ttft_ms=[10, 10]), tmp_path / "rows.jsonl"
    run = report(bin_dir, server.url, "--concurrency", 4, "--duration-s", 1, "--output-tokens", 1, "--requests",
                 rows_file)["runs"][0]
    assert run["ok"] == run["requests"] > 20
    starts_and_ends = [(row["planned_s"], 1) for row in rows_of(rows_file)]
    # An end comes before what it lets begin, which is due at the same moment.
    starts_and_ends += [(row["planned_s"] + row["e2e_ms"] / 1e3 - 1e-6, -1) for row in rows_of(rows_file)]
    under_way, most = 0, 0
    for _, step in sorted(starts_and_ends):
        under_way += step
        most = max(most, under_way)
    assert most == 4


def test_interrupted_it_keeps_what_was_complete(bin_dir, inject, tmp_path):
    server, path, rows_file = inject(), tmp_path / "report.json", tmp_path / "rows.jsonl"
    command = [bin_dir / "nano-mooncake", "slo", "--url", server.url, "--rate", "100", "--duration-s", "1", "--repeats",
               "100", "--output-tokens", "1", "--format", "json", "--output", path, "--requests", rows_file, "--quiet",
               *LENIENT]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: server.seen()["requests"] >= 150, "the first run is over")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    result = json.loads(path.read_text())
    assert result["interrupted"] and not result["valid"]
    assert result["runs"][0]["valid"] and result["runs"][0]["ok"] == result["runs"][0]["requests"]
    assert {row["run"] for row in rows_of(rows_file)} == set(range(len(result["runs"])))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.json", "rows.jsonl"]


def test_of_our_server_tiers_tokens_and_its_process_are_reported(bin_dir, server):
    flags = ["--rate", 30, "--duration-s", 2, "--prompt-tokens", 128, "--output-tokens", 4]
    result = report(bin_dir, server.url, *flags, "--workload", "shared-prefix", "--shared-part", 0.75, "--pid",
                    f"api={server.pid}", "--tp", 1, "--kv-dtype", "bf16")
    run = result["runs"][0]
    assert run["ok"] == run["requests"] > 20 and run["valid"], run
    assert run["input_tokens"] == 128 * run["ok"] and run["output_tokens"] == 4 * run["ok"]
    # Everyone but those that came before the first one's blocks were there finds the 96 tokens in common.
    assert run["cached_tokens"] >= 96 * run["ok"] // 2
    assert run["server"]["counters"]["saved_tokens"] == run["cached_tokens"]
    assert run["server"]["counters"]["prompt_tokens"] == run["input_tokens"]
    assert run["server"]["tiers"]["dram"]["hits"] > 0 and run["server"]["latency_mean_ms"]["prefill_ms"] > 0
    process = run["processes"]["api"]
    assert process["cpu_user_s"] + process["cpu_system_s"] > 0 and process["rss_bytes"] > 1 << 20
    assert run["network"]["lo"]["sent_bytes"] > run["output_tokens"]
    assert result["server"]["tensor_parallel"] == "1" and result["server"]["kv_dtype"] == "bf16"
    assert "not_available" in result["server"]["pipeline_parallel"]
    assert all("not_available" in each for each in result["unmeasured"].values())


def test_namespaces_ask_the_same_and_share_nothing(bin_dir, server):
    flags = ["--rate", 40, "--arrivals", "uniform", "--duration-s", 1, "--prompt-tokens", 64, "--output-tokens", 1,
             "--workload", "namespaces"]
    apart = report(bin_dir, server.url, *flags, "--groups", 4, "--shared-part", 0, "--seed", 77)
    assert apart["runs"][0]["ok"] == 40 and apart["runs"][0]["cached_tokens"] == 0
    together = report(bin_dir, server.url, *flags, "--groups", 1, "--shared-part", 1, "--seed", 78)
    assert together["runs"][0]["cached_tokens"] > 0


@pytest.mark.parametrize("flags", [["--chat"], ["--no-stream"], ["--text-prompts", "--stop-at-eos"]])
def test_chats_whole_answers_and_texts_are_asked_for_too(bin_dir, server, flags):
    result = report(bin_dir, server.url, "--rate", 20, "--duration-s", 1, "--prompt-tokens", 16, *flags)
    run = result["runs"][0]
    assert run["ok"] == run["requests"] > 5, run["reasons"]
    assert run["input_tokens"] > 0 and run["output_tokens"] > 0
    assert run["ttft_ms"]["samples"] == (0 if flags == ["--no-stream"] else run["ok"])
    assert result["load"]["prompt_form"] == {"--chat": "chat", "--no-stream": "tokens"}.get(flags[0], "text")


def test_rows_come_as_table_csv_and_markdown(bin_dir, inject):
    server = inject()
    flags = ["--rates", "20,40", "--duration-s", 0.5, "--output-tokens", 1]
    csv = slo(bin_dir, server.url, *flags, "--format", "csv").stdout.splitlines()
    assert csv[0].startswith("rate_per_s,run,valid,requests,ok,error") and len(csv) == 3
    assert slo(bin_dir, server.url, *flags, "--format", "markdown").stdout.count("\n|") == 3
    text = slo(bin_dir, server.url, *flags).stdout
    assert "No knee up to 40 requests/s" in text and "too few samples" in text


@pytest.mark.parametrize("flags, words", [
    (["--rate", "0"], "--rate"),
    (["--rates", "1,x"], "--rates"),
    (["--rates", "1", "--rate", "2"], "--rate"),
    (["--prompt-tokens", "9-3"], "--prompt-tokens"),
    (["--token-ids", "7"], "--token-ids"),
    (["--pid", "api"], "--pid"),
    (["--pid", "api=999999999"], "api: no process 999999999"),
    (["--workload", "trace"], "--trace FILE"),
    (["--trace", "x"], "--workload trace"),
    (["--workload", "trace", "--trace", "/nowhere/x"], "/nowhere/x"),
    (["--concurrency", "2", "--rate", "1"], "--rate: has no meaning with --concurrency"),
    (["--arrivals", "trace"], "--workload trace"),
    (["--no-stream", "--slo-ttft-ms", "1"], "--no-stream"),
    (["--duration-s", "0"], "--duration-s"),
    (["--rate", "0.001", "--arrivals", "poisson", "--duration-s", "0.001"], "no request would be sent"),
])
def test_what_it_cannot_do_is_one_clear_line(bin_dir, inject, flags, words):
    done = slo(bin_dir, inject().url, *flags)
    assert done.returncode in (2, 3) and done.stdout == ""
    assert done.stderr.count("\n") == 1 and words in done.stderr, done.stderr


@pytest.mark.parametrize("url, words", [("127.0.0.1:1", "http[s]://HOST"), ("http://127.0.0.1:1", "can't connect")])
def test_a_server_that_is_not_there_is_one_clear_line(bin_dir, url, words):
    done = slo(bin_dir, url)
    assert done.returncode in (2, 3) and done.stderr.count("\n") == 1 and words in done.stderr, done.stderr
