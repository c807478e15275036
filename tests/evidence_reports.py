"""Reports of experiments and registries of them as tests write them: made and sealed here, not by the program under
test, so that the formats in docs/formats.md are held from both sides."""

import copy
import hashlib
import json
import pathlib

NO_TROUBLE = {"leaked_handles": 0, "residual_slots": 0, "quarantined_entries": 0, "worker_failures": 0,
              "orphan_processes": 0, "orphan_shm": 0}


def canonical(value):
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return f"{value:.6f}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def digest_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(document, member):
    """With its digest made right."""
    rest = {key: value for key, value in document.items() if key != member}
    return {**rest, member: digest_of(canonical(rest))}


def request(name, ttft_ms, e2e_ms=None, **metrics):
    e2e_ms = 2 * ttft_ms if e2e_ms is None else e2e_ms
    figures = {"ttft_ms": float(ttft_ms), "e2e_ms": float(e2e_ms), "prefill_ms": float(ttft_ms), "queue_ms": 0.0,
               "prompt_tokens": 64, "computed_tokens": 64, "saved_tokens": 0, "output_tokens": 8, **metrics}
    return {"id": name, "outcome": "finished", "error": "", "endings": 1, "tokens_digest": digest_of(f"tokens {name}"),
            "cache_source": "none", "transfer_carrier": "none", "metrics": figures}


def case(workload="high-reuse", mode="monolithic", transfer=None, ratio=None, lifecycle="cold", fault="none", repeat=0,
         ttft_ms=(10.0,), **members):
    """One case; `ttft_ms` for each request, which are called r0, r1, ..."""
    alone = mode == "monolithic"
    return {"workload": workload, "mode": mode, "transfer": transfer or ("none" if alone else "shm"),
            "ratio": ratio or ("1" if alone else "1p1d"), "lifecycle": lifecycle, "fault": fault, "repeat": repeat,
            "status": "done", "reason": "", "workload_digest": digest_of(f"workload {workload}"),
            "resources": dict(NO_TROUBLE), "workers": [], "fault_evidence": None, "summary": {},
            "requests": [request(f"r{i}", value) for i, value in enumerate(ttft_ms)], **members}


def report(number, cases, machine="machine", tier="random-weight-mechanism", model="model", source="source", **members):
    """Run `number`, the later the higher; not sealed yet, so that a test can change it."""
    return {"schema": "nano-mooncake/experiments/v1", "run_id": f"20261201T0900{number:02}000Z-{number:08x}",
            "started_at": f"2026-12-01T09:00:{number:02}.000Z", "ended_at": f"2026-12-01T09:30:{number:02}.000Z",
            "suite": "custom", "skipped": "", "config": {"seed": 1, "repeats": 1, "max_new_tokens": 8},
            "provenance": {
                "evidence_tier": tier,
                "build": {"version": "0.1.0", "commit": "0123abc", "dirty": False, "source_digest": digest_of(source),
                          "build_type": "Release", "compiler": "GNU 12.2.0", "failpoints": True, "libraries": {}},
                "machine": {"fingerprint": digest_of(machine), "cpu": machine, "cpus": 2, "memory_bytes": 24 << 30,
                            "kernel": "6.1.0", "instruction_level": "AVX3"},
                "model": {"name": "tiny", "digest": digest_of(model), "dtype": "bf16", "parameters": 1000}},
            "parity": [], "cases": cases, **members}


def record_of(sealed_report, path):
    provenance = sealed_report["provenance"]
    return sealed({
        "schema": "nano-mooncake/registry-record/v1", "run_id": sealed_report["run_id"], "path": str(path),
        "report_digest": sealed_report["report_digest"], "started_at": sealed_report["started_at"],
        "ended_at": sealed_report["ended_at"], "suite": sealed_report["suite"],
        "evidence_tier": provenance["evidence_tier"], "source_digest": provenance["build"]["source_digest"],
        "build_type": provenance["build"]["build_type"], "dirty": provenance["build"]["dirty"],
        "model_digest": provenance["model"]["digest"], "machine": provenance["machine"]["fingerprint"],
        "cases": len(sealed_report["cases"]),
        "cases_done": sum(row["status"] == "done" for row in sealed_report["cases"])}, "record_digest")


def write_history(folder, reports):
    """reports/*.json and index.jsonl below `folder`; the registry's path."""
    folder = pathlib.Path(folder)
    (folder / "reports").mkdir(parents=True, exist_ok=True)
    lines = []
    for document in reports:
        document = sealed(copy.deepcopy(document), "report_digest")
        path = pathlib.Path("reports") / f"{document['run_id']}.json"
        (folder / path).write_text(json.dumps(document, ensure_ascii=False))
        lines.append(json.dumps(record_of(document, path), ensure_ascii=False, separators=(",", ":")) + "\n")
    index = folder / "index.jsonl"
    index.write_text("".join(lines))
    return index
