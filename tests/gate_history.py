"""A history that every gate passes, as reports, with what the gates' commands are told."""

import json
import subprocess

import evidence_reports as evidence

RUNS = 3
REQUESTS = 50


def fault(expected="right", fired=1, failpoint="handover.span=exit@1"):
    return {"failpoint": failpoint, "process": "prefill-0", "fired": fired, "expected": expected, "observed": True}


def good_case(mode="pd-global", fault_name="none"):
    times = [10.0 + i for i in range(REQUESTS)]
    if fault_name == "none":
        return evidence.case(mode=mode, ttft_ms=times)
    row = evidence.case(mode=mode, fault=fault_name, ttft_ms=times, fault_evidence=fault())
    if fault_name == "corrupt-entry":
        row["resources"].update(quarantined_entries=2, quarantined_expected=2)
    return row


def good_reports(runs=RUNS, **members):
    cases = [("monolithic", "none"), ("pd-split", "none"), ("pd-global", "none"), ("pd-global", "crash"),
             ("pd-global", "corrupt-entry")]
    return [evidence.report(number, [good_case(*case) for case in cases], **members)
            for number in range(1, runs + 1)]


def case_of(report, mode="pd-global", fault_name="none"):
    return next(row for row in report["cases"] if (row["mode"], row["fault"]) == (mode, fault_name))


def rule(metric, statistic, limit, mode="pd-global", **members):
    return {"id": f"{metric}-{statistic}", "metric": metric, "statistic": statistic, "selector": {"mode": mode},
            "direction": "at_most", "limit": limit, "min_samples": 1, **members}


def write_budget(path, *rules):
    """ttft_ms of a good history: p95 57, mean 34.5."""
    rules = rules or (rule("ttft_ms", "p95", 58), rule("ttft_ms", "mean", 40), rule("leaked_handles", "max", 0))
    path.write_text(json.dumps({"schema": "nano-mooncake/pressure-budgets/v1", "profiles": {"full": list(rules)}}))
    return path


class Commands:
    """Runs one and gives what it printed and its exit code."""

    def __init__(self, bin_dir):
        self.bin_dir = bin_dir

    def __call__(self, command, *flags, cwd=None):
        return subprocess.run([self.bin_dir / "nano-mooncake", command, *map(str, flags)], capture_output=True,
                              text=True, timeout=60, check=False, cwd=cwd)
