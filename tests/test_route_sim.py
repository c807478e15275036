"""`nano-mooncake route-sim`: conversations over nodes, and recorded requests through routers."""

import json
import subprocess
from pathlib import Path

import pytest

TRACES = Path(__file__).parent / "data" / "traces"


@pytest.fixture
def route_sim(bin_dir):
    def run(*flags):
        return subprocess.run([bin_dir / "nano-mooncake", "route-sim", *map(str, flags)], capture_output=True,
                              text=True, timeout=300, check=False)

    return run


def report_of(done):
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "nano-mooncake/route-sim/v1"
    assert report["provenance"]["evidence_tier"] == "simulation" and report["assumptions"]
    return report


def replay(route_sim, trace, *flags):
    done = route_sim("--trace", TRACES / f"{trace}_trace.jsonl.zst", "--nodes", 10, "--format", "json", *flags)
    return {row["router"]: row for row in report_of(done)["routers"]}


def test_conversations_never_move_at_32_a_node_and_rarely_at_8(route_sim):
    few = report_of(route_sim("--sigma", 1, "--format", "json"))["conversations"]
    assert [row["seed"] for row in few] == ["11", "12", "13", "14", "all"]
    assert sum(row["turns"] for row in few[:-1]) == few[-1]["turns"] == 720_000
    assert 0.0002 < few[-1]["extra_prefill_share"] < 0.004
    assert few[-1]["moved_share"] < 0.002
    many = report_of(route_sim("--sigma", 1, "--per-node", 32, "--format", "json"))["conversations"][-1]
    assert many["moves"] == 0 and many["extra_prefill_tokens"] == 0
    assert many["peak_load_by_mean"] < 1.6


def test_runs_are_the_same_to_the_byte(route_sim):
    flags = ("--overload-factor", 1.5, "--measured-turns", 30_000, "--seeds", "5,6", "--format", "json")
    assert route_sim(*flags).stdout == route_sim(*flags).stdout


# Prefix hits and imbalance of the same rules by an independent program: without a floor, nodes of 5859 blocks.
EXPECTED = {
    "conversation": {"one-pool": (0.3588, None), "round-robin": (0.1041, None), "least-load": (0.1036, None),
                     "prefix": (0.1355, 10.0), "least-tokens": (0.2330, None), "hash": (0.3580, 1.08),
                     "cliques": (0.3588, 1.04)},
    "synthetic": {"one-pool": (0.6396, None), "round-robin": (0.1676, None), "least-load": (0.1769, None),
                  "prefix": (0.6396, 1.05), "least-tokens": (0.5130, None), "hash": (0.6394, 1.10),
                  "cliques": (0.6382, 1.04)},
    "agentcode": {"one-pool": (0.9305, None), "round-robin": (0.4954, None), "least-load": (0.4907, None),
                  "prefix": (0.9305, 1.55), "least-tokens": (0.8641, None), "hash": (0.9285, 1.39),
                  "cliques": (0.9200, 1.50)},
}


@pytest.mark.parametrize("trace", EXPECTED)
def test_traces_through_routers_hit_as_an_independent_count_does(route_sim, trace):
    rows = replay(route_sim, trace, "--overload-floor", 0)
    for router, (hits, imbalance) in EXPECTED[trace].items():
        assert round(rows[router]["hit_share"], 4) == hits, router
        if imbalance is not None:
            assert round(rows[router]["imbalance"], 2) == imbalance, router
    assert rows["cliques"]["moves"] == {"conversation": 0, "synthetic": 7, "agentcode": 43}[trace]
    assert abs(rows["random"]["hit_share"] - rows["round-robin"]["hit_share"]) < 0.02


@pytest.mark.parametrize(("trace", "points"), [("conversation", 0.2), ("synthetic", 0.2), ("agentcode", 0.3)])
def test_cliques_hit_nearly_as_much_as_one_pool(route_sim, trace, points):
    rows = replay(route_sim, trace, "--routers", "one-pool,cliques")
    assert rows["one-pool"]["hit_share"] - rows["cliques"]["hit_share"] <= points / 100
    if trace != "agentcode":
        assert rows["cliques"]["imbalance"] <= 1.1


@pytest.mark.parametrize(("flags", "message"), [
    (["--routers", "cliques"], "expected together with --trace"),
    (["--trace", TRACES / "synthetic_trace.jsonl.zst", "--sigma", "1"], "expected without --trace"),
    (["--trace", TRACES / "synthetic_trace.jsonl.zst", "--routers", "best"], "expected all, or one or more of one-p"),
    (["--trace", "/nonexistent"], "/nonexistent"),
    (["--overload-factor", "1"], "overload factor"),
    (["--turns", "1"], "turns"),
])
def test_what_cannot_be_is_refused_by_name(route_sim, flags, message):
    done = route_sim(*flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_people_are_told_that_it_is_a_simulation(route_sim):
    done = route_sim("--measured-turns", 2000, "--warmup-turns", 0)
    assert done.returncode == 0
    assert "simulation" in done.stdout and "floor 0 tokens" in done.stdout
