"""nano-mooncake simulate in simulated time: its report, workloads and charts, and that equal flags give equal bytes."""

import json
import subprocess
import xml.etree.ElementTree

import pytest

POLICIES = ["lru", "fifo", "lfu", "lfu-len", "length-aware", "s3-fifo", "freq-admission", "cost-per-byte", "opt"]
WORKLOADS = ["scan", "zipf", "burst", "model-switch", "multi-turn"]


def simulate(bin_dir, *arguments):
    return subprocess.run([bin_dir / "nano-mooncake", "simulate", *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


def report(bin_dir, *arguments):
    done = simulate(bin_dir, *arguments, "--format", "json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def refused(bin_dir, *arguments):
    done = simulate(bin_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_without_flags_it_simulates_a_workload_and_says_under_which_assumptions(bin_dir):
    made = report(bin_dir)
    assert made["schema"] == "nano-mooncake/simulation/v1"
    assert (made["provenance"]["evidence_tier"], made["rules"]) == ("simulation", "timed")
    assert made["workload"]["options"]["workload"] == "zipf"
    for name in ("prefill_cost", "network_bytes_per_s", "fixed_lookup_cost_s", "queue_policy", "slo_ttft_ms", "fill"):
        assert name in made["assumptions"]
    [row] = made["rows"]
    assert row["samples"] == row["requests"] == 1000
    assert 0 < row["ttft_ms_p50"] <= row["ttft_ms_p95"] <= row["ttft_ms_p99"] <= row["ttft_ms_max"]
    assert set(row["queue_length"]) == {"interval_s", "network", "prefill", "decode", "disk"}
    lengths = {len(row["queue_length"][name]) for name in ("network", "prefill", "decode")}
    assert len(lengths) == 1 and 10 < lengths.pop() <= 120
    text = simulate(bin_dir).stdout
    assert text.startswith("Simulation, no measurement: ") and "Assumed:" in text


@pytest.mark.parametrize("workload", WORKLOADS)
def test_all_policies_see_the_same_arrivals_and_lose_nothing(bin_dir, workload):
    made = report(bin_dir, "--workload", workload, "--compare", "--capacity-blocks", "300", "--disk-capacity", "16GiB",
                  "--prefetch-deadline", "0.5", "--requests", "500", "--rate", "2")
    assert [row["policy"] for row in made["rows"]] == POLICIES
    assert len({(row["requests"], row["blocks"], row["input_tokens"]) for row in made["rows"]}) == 1
    for row in made["rows"]:
        assert row["inserted_blocks"] == row["evicted_blocks"] + row["resident_blocks"]
        assert row["inserted_bytes"] == row["evicted_bytes"] + row["resident_bytes"]
        assert row["hit_tokens_capped"] + row["computed_tokens"] == row["input_tokens"]
        assert row["bytes_moved"] == row["network_read_bytes"] + row["disk_read_bytes"] + row["disk_written_bytes"]
        assert row["requests_in_slo"] <= row["requests"]
        for station in row["stations"]:
            assert station["arrivals"] == station["departures"] + station["withdrawn"]
            assert 0 <= station["utilization"] <= 1


def test_equal_flags_give_equal_bytes_and_another_seed_does_not(bin_dir):
    flags = ["--workload", "burst", "--policy", "s3-fifo", "--capacity-blocks", "200", "--queue-policy", "sjf"]
    for form in ("table", "json", "csv", "markdown"):
        one, same = (simulate(bin_dir, *flags, "--format", form).stdout for _ in range(2))
        other = simulate(bin_dir, *flags, "--seed", "2", "--format", form).stdout
        assert one == same != other


def test_a_request_takes_what_its_stages_take(bin_dir, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("arrival_time,namespace,prefix_id,prefix_tokens,suffix_tokens,output_tokens\n"
                    "0,a,p,1024,100,11\n100,a,p,1024,100,11\n")
    [row] = report(bin_dir, "--trace", path, "--prefill-cost-model", "0.5+1e-3*n", "--kv-bytes-per-token", "1000",
                   "--fixed-lookup-cost", "0.25", "--network-bandwidth", "1000000", "--decode-token-s", "0.1")["rows"]
    assert (row["hit_blocks"], row["blocks"], row["hit_tokens"]) == (2, 6, 1024)
    assert row["ttft_ms_max"] == 250 + 500 + 1124
    assert row["ttft_ms_p50"] == 250 + 1024 + 500 + 100  # lookup, fetch, prefill
    assert row["e2e_ms_max"] == 250 + 500 + 1124 + 1124 + 1000
    assert row["makespan_s"] == pytest.approx(100 + 0.25 + 1.024 + 0.6 + 0.1 + 1)
    assert row["goodput_per_s"] == 2 / row["makespan_s"]
    assert row["network_read_bytes"] == 1_024_000 == row["bytes_moved"]


def test_goodput_counts_only_first_tokens_in_time(bin_dir):
    flags = ["--workload", "zipf", "--rate", "3", "--capacity-blocks", "100"]
    loose, tight = (report(bin_dir, *flags, "--slo-ttft-ms", ms)["rows"][0] for ms in (10_000_000, 2000))
    assert loose["requests_in_slo"] == 1000
    assert tight["requests_in_slo"] < 1000
    assert tight["goodput_per_s"] == tight["requests_in_slo"] / tight["makespan_s"]
    assert tight["ttft_ms_p99"] == loose["ttft_ms_p99"]


def test_half_the_gaps_are_twice_the_load(bin_dir):
    once, twice = (report(bin_dir, "--rate", "0.5", "--time-scale", scale)["rows"][0] for scale in (1, 0.5))
    assert twice["ttft_ms_mean"] > once["ttft_ms_mean"]
    assert twice["makespan_s"] < 0.6 * once["makespan_s"]


def test_service_models_come_from_reports_and_a_flag_wins(bin_dir, tmp_path):
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({
        "schema": "nano-mooncake/bench-engine/v1",
        "prefill": [{"batch": 1, "prompt_tokens": n, "prefill_tokens_per_s": 500.0} for n in (128, 1024)],
        "decode": [{"batch": 4, "decode_tokens_per_s": 100.0}],
    }))
    assumed = report(bin_dir, "--calibrate", path)["assumptions"]
    assert assumed["calibrated_from"] == [str(path)]
    assert assumed["prefill_cost"]["token_s"] == pytest.approx(0.002)
    assert (assumed["decode_token_s"], assumed["decode_slots"]) == (0.04, 4)
    assumed = report(bin_dir, "--calibrate", path, "--prefill-cost-model", "1e-5*n")["assumptions"]
    assert assumed["prefill_cost"] == {"fixed_s": 0, "token_s": 1e-5, "token_squared_s": 0}
    assert assumed["decode_slots"] == 4
    path.write_text('{"schema": "x"}')
    assert f"{path}: expected a report of bench-engine or store-bench" in refused(bin_dir, "--calibrate", path)


def test_it_is_calibrated_by_what_our_benches_write(bin_dir, tmp_path):
    path = tmp_path / "store.json"
    subprocess.run([bin_dir / "nano-mooncake", "store-bench", "--quick", "--seconds", "1", "--rounds", "1", "--format",
                    "json", "--output", path, "--quiet"], check=True, timeout=300)
    assumed = report(bin_dir, "--calibrate", path)["assumptions"]
    assert assumed["network_bytes_per_s"] not in (0, 12.5e9)
    assert 0 < assumed["fixed_lookup_cost_s"] < 0.1


def test_a_prefill_cost_may_come_from_a_file(bin_dir, tmp_path):
    path = tmp_path / "cost.json"
    path.write_text('{"fixed_s": 1, "token_s": 0.5, "token_squared_s": 0.25}')
    made = report(bin_dir, "--rules", "instant", "--prefill-cost-model", path)
    assert made["assumptions"]["prefill_cost"] == {"fixed_s": 1, "token_s": 0.5, "token_squared_s": 0.25}
    path.write_text('{"fixed_s": -1}')
    assert f"{path}: `fixed_s`: expected" in refused(bin_dir, "--prefill-cost-model", path)


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_charts_are_one_file_that_needs_no_other(bin_dir, tmp_path, ending):
    path = tmp_path / "deep" / f"chart.{ending}"
    trace = tmp_path / "a & b <c>.csv"
    trace.write_text("arrival_time,namespace,prefix_id,prefix_tokens,suffix_tokens\n0,a,p,1024,100\n")
    done = simulate(bin_dir, "--trace", trace, "--compare", "--capacity-blocks", "1,inf", "--chart", path)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    svg = text[text.index("<svg"):text.index("</svg>") + 6]
    drawing = xml.etree.ElementTree.fromstring(svg)
    words = "".join(drawing.itertext())
    assert "Simulation, no measurement" in text and "a &amp; b &lt;c&gt;.csv" in text
    for policy in POLICIES:
        assert f"{policy}, inf blocks" in words
    for outside in ("<script", "<link", "@import", "url(", "src="):
        assert outside not in text
    assert text.count("http") == (1 if ending == "svg" else 0)  # the namespace of SVG
    assert ("<pre>" in text) == (ending == "html")


@pytest.mark.parametrize("arguments, words", [
    (["--workload", "storm"], "--workload"),
    (["--rate", "0"], "--rate: 0: expected a number above 0"),
    (["--rules", "instant", "--queue-policy", "sjf"], "--queue-policy: there is no time under --rules instant"),
    (["--trace", "x", "--workload", "scan"], "--trace and --workload"),
    (["--trace", "x", "--seed", "2"], "--seed: it shapes a --workload"),
    (["--workload", "scan", "--sort"], "--sort: there is no --trace"),
    (["--chart", "x.png"], "--chart"),
    (["--network-bandwidth", "0"], "--network-bandwidth"),
    (["--calibrate", "/nowhere/r.json"], "/nowhere/r.json"),
])
def test_a_wrong_flag_is_one_clear_line(bin_dir, arguments, words):
    assert words in refused(bin_dir, *arguments)
