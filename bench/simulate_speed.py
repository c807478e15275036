#!/usr/bin/env python3
"""Block touches a second of `nano-mooncake simulate` under LRU, beside libCacheSim, and how its cost grows.

  NMC_BIN_DIR=build/release/bin PYTHON bench/simulate_speed.py [--rounds N] [--requests-max N]

PYTHON has the package `libcachesim`. Ours decompresses, parses, replays and writes its report, as a process from start
to end. Theirs is `process_trace` alone, in a process that has imported it, over a CSV with a line a touch: neither
decompression nor JSON. Both take turns; the misses have to be the same. libCacheSim counts each block by itself, so its
misses are compared with what ours took in.

Then traces of 10,000, 100,000 and 1,000,000 requests (the conversation trace again and again, later and with other ids)
are replayed. The exit code is 1 where ours is less than 3 times as fast, where ten times the requests cost more than 13
times the time, or where the largest needs 1 GiB or more.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT / "tests" / "data" / "traces" / "conversation_trace.jsonl.zst"
CAPACITY_BLOCKS = 10_000
PROGRAM = pathlib.Path(os.environ.get("NMC_BIN_DIR", "build/release/bin")) / "nano-mooncake"


def ours(trace):
    """(seconds, peak bytes, row) of one run."""
    command = [PROGRAM, "simulate", "--trace", trace, "--rules", "instant", "--policy", "lru", "--capacity-blocks",
               str(CAPACITY_BLOCKS), "--format", "json", "--quiet"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process.stdout as out:
        text = out.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return seconds, usage.ru_maxrss * 1024, json.loads(text)["rows"][0]


def theirs(csv):
    """(seconds, misses) of one run."""
    import libcachesim

    params = libcachesim.ReaderInitParam(has_header=True, has_header_set=True, delimiter=",", obj_id_is_num=True,
                                         obj_id_is_num_set=True)
    params.time_field, params.obj_id_field, params.obj_size_field = 1, 2, 3
    reader = libcachesim.TraceReader(str(csv), libcachesim.TraceType.CSV_TRACE, params)
    cache = libcachesim.LRU(cache_size=CAPACITY_BLOCKS)
    begin = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    return time.perf_counter() - begin, miss_ratio


def compare(folder, lines, rounds):
    touches = [key for line in lines for key in json.loads(line)["hash_ids"]]
    csv = folder / "touches.csv"
    with csv.open("w") as out:
        out.write("time,object,size\n")
        out.writelines(f"{i},{key},1\n" for i, key in enumerate(touches))
    ours_s, theirs_s = [], []
    for _ in range(rounds):
        seconds, _, row = ours(TRACE)
        ours_s.append(seconds)
        seconds, miss_ratio = theirs(csv)
        theirs_s.append(seconds)
        assert row["blocks"] == len(touches)
        assert round(miss_ratio * len(touches)) == row["inserted_blocks"], "the same misses"
    rates = [len(touches) / statistics.median(s) / 1e6 for s in (ours_s, theirs_s)]
    ratio = statistics.median(b / a for a, b in zip(ours_s, theirs_s))
    print(f"{len(touches)} touches, {row['inserted_blocks']} misses in both: ours {rates[0]:.2f} M/s, process_trace "
          f"{rates[1]:.2f} M/s, ratio {ratio:.1f} (median of {rounds} rounds)")
    return ratio


def tiled(path, lines, requests):
    """The first `requests` of the trace repeated, each time later and with ids of its own."""
    step_ms = json.loads(lines[-1])["timestamp"] + 1
    ids = max(max(json.loads(line)["hash_ids"]) for line in lines) + 1
    with path.open("w") as out:
        for i in range(requests):
            request, turn = json.loads(lines[i % len(lines)]), i // len(lines)
            request["timestamp"] += turn * step_ms
            request["hash_ids"] = [key + turn * ids for key in request["hash_ids"]]
            out.write(json.dumps(request) + "\n")


def growth(folder, lines, requests_max):
    faults, before, requests = 0, None, 10_000
    while requests <= requests_max:
        path = folder / "tiled.jsonl"
        tiled(path, lines, requests)
        seconds, peak, row = min((ours(path) for _ in range(3)), key=lambda run: run[0])
        print(f"{requests} requests, {row['blocks']} touches: {seconds:.2f} s, "
              f"{row['blocks'] / seconds / 1e6:.2f} M/s, peak {peak / 2**20:.0f} MiB")
        faults += before is not None and seconds > 13 * before
        faults += peak >= 2**30
        before, requests = seconds, requests * 10
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests-max", type=int, default=1_000_000)
    options = parser.parse_args()
    text = subprocess.run(["zstd", "-dcq", TRACE], check=True, capture_output=True, text=True).stdout
    lines = text.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        ratio = compare(pathlib.Path(folder), lines, options.rounds)
        faults = growth(pathlib.Path(folder), lines, options.requests_max)
    sys.exit(1 if ratio < 3 or faults else 0)


if __name__ == "__main__":
    main()
