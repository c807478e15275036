"""--trace-out: what each request of a server spent its time on, as Perfetto and chrome://tracing read it."""

import json
import time
import urllib.request

import pytest

KNOWN = {"queue", "lookup", "restore", "prefill", "export", "encode", "transport", "unpack", "import", "decode"}


def complete(server, prompt, tokens=6):
    """The engine's id of the request, and the microseconds of the machine's clock between which it was."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    before = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    with urllib.request.urlopen(request, timeout=60) as answer:
        identity = json.load(answer)["id"].split("-", 1)[1]  # without its kind, "cmpl"
    return identity, before, time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6


def stages_of(events, identity):
    """(process, stage, start, end) of one request, in order of start."""
    processes = {event["pid"]: event["args"]["name"].split(" (pid")[0] for event in events
                 if event["ph"] == "M" and event["name"] == "process_name"}
    return sorted(((processes[event["pid"]], event["name"], event["ts"], event["ts"] + event["dur"])
                   for event in events if event["ph"] == "X" and event["args"]["request"].startswith(identity)),
                  key=lambda stage: stage[2])


def check_shape(events):
    """What every reader of the format expects, and no two requests at once on a track."""
    tracks = {}
    for event in events:
        assert event["ph"] in "XMi" and isinstance(event["pid"], int) and event["name"]
        if event["ph"] != "X":
            continue
        assert event["name"] in KNOWN and event["ts"] > 0 and event["dur"] >= 0
        tracks.setdefault((event["pid"], event["tid"]), {}).setdefault(event["args"]["request"], []).append(event)
    for requests in tracks.values():
        times = sorted((min(e["ts"] for e in spans), max(e["ts"] + e["dur"] for e in spans))
                       for spans in requests.values())
        # To the microsecond's third digit.
        assert all(before[1] <= after[0] + 0.002 for before, after in zip(times, times[1:]))
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == set(tracks)


@pytest.mark.parametrize("flags, expected", [
    ([], ["front/queue", "worker-0/lookup", "worker-0/prefill", "worker-0/decode"]),
    (["--mode", "pd", "--transfer", "shm"],
     ["front/queue", "prefill-0/lookup", "prefill-0/prefill", "prefill-0/export", "prefill-0/encode",
      "prefill-0/transport", "decode-0/transport", "decode-0/unpack", "decode-0/import", "decode-0/decode"]),
])
def test_every_request_is_there_stage_by_stage(start_server, tmp_path, flags, expected):
    path = tmp_path / "new" / "trace.json"
    server = start_server("--dram-bytes", "16MiB", "--trace-out", path, *flags)
    done = [complete(server, f"request {i} " * 10) for i in range(6)]
    again = complete(server, "request 0 " * 10)
    server.terminate()
    assert server.wait() == 0
    events = json.loads(path.read_text())
    check_shape(events)
    for identity, before, after in done:
        stages = stages_of(events, identity)
        assert sorted(f"{process}/{stage}" for process, stage, _, _ in stages if stage != "restore") == sorted(expected)
        assert all(before <= start <= end <= after for _, _, start, end in stages)
        # In order: each begins no earlier than the one before it, and decoding lasts to the end.
        at = {f"{process}/{stage}": start for process, stage, start, _ in stages}
        assert [at[name] for name in expected[:3]] == sorted(at[name] for name in expected[:3])
        assert max(stages, key=lambda stage: stage[3])[1] == "decode"
    assert "prefill" not in {stage for _, stage, _, _ in stages_of(events, again[0])}, "the cache knew it all"
    assert events[-1]["args"]["dropped"] == 0
    assert events[-1]["args"]["spans"] == sum(event["ph"] == "X" for event in events)


@pytest.mark.parametrize("transfer", ["direct", "shm"])
def test_workers_that_are_processes_are_told_apart(start_server, tmp_path, transfer):
    path = tmp_path / "trace.json"
    server = start_server("--mode", "pd-process", "--prefill", "2", "--decode", "1", "--transfer", transfer,
                          "--dram-bytes", "16MiB", "--trace-out", path)
    done = [complete(server, f"request {i} " * 10) for i in range(6)]
    with urllib.request.urlopen(server.url + "/v1/metrics", timeout=60) as answer:
        document = json.load(answer)
    server.terminate()
    assert server.wait() == 0
    events = json.loads(path.read_text())
    check_shape(events)
    pids = {worker["name"]: worker["pid"] for worker in document["workers"]}
    groups = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert f"decode-0 (pid {pids['decode-0']})" in groups and f"front (pid {server.pid})" in groups
    for identity, before, after in done:
        stages = stages_of(events, identity)
        assert all(before <= start <= end <= after for _, _, start, end in stages)
        names = [f"{process}/{stage}" for process, stage, _, _ in stages]
        prefill = next(process for process, stage, _, _ in stages if stage == "prefill")
        assert names[0] == "front/queue" and names[-1] == "decode-0/decode" and prefill.startswith("prefill-")
        assert f"{prefill} hand-over/export" in names and "decode-0 hand-over/import" in names
    assert len(document["handovers"]) == 6
    last = document["handovers"][0]
    assert done[-1][0] in last["request"] and last["from"] in pids and last["to"] == "decode-0"
    assert last["transfer"] == transfer and last["bytes"] > 0 and last["ms"] > 0


def test_what_a_killed_server_wrote_can_be_read(start_server, tmp_path):
    path = tmp_path / "trace.json"
    server = start_server("--dram-bytes", "16MiB", "--trace-out", path)
    identity = complete(server, "abc" * 20)[0]
    deadline = time.monotonic() + 60
    while '"decode"' not in path.read_text():
        assert time.monotonic() < deadline, "the request was not written"
    server.kill()
    text = path.read_text()
    assert not text.rstrip().endswith("]"), "it was killed before its end"
    events = json.loads(text + "]")  # what readers of the format put there themselves
    check_shape(events)
    assert {stage for _, stage, _, _ in stages_of(events, identity)} >= {"queue", "prefill", "decode"}
