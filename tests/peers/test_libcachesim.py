"""Hits of the simulator against libCacheSim, where PEERS_ENV has it and their models agree: requests of one block."""

import json
import random
import subprocess

import pytest

REPLAY = """
import sys
import libcachesim
name, csv, capacity, touches = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
fields = libcachesim.ReaderInitParam(has_header=True, has_header_set=True, delimiter=",", obj_id_is_num=True,
                                     obj_id_is_num_set=True)
fields.time_field, fields.obj_id_field, fields.obj_size_field = 1, 2, 3
reader = libcachesim.TraceReader(csv, libcachesim.TraceType.CSV_TRACE, fields)
miss_ratio, _ = getattr(libcachesim, name)(cache_size=capacity).process_trace(reader)
print(touches - round(miss_ratio * touches))
"""
# S3-FIFO there makes room before it takes a newcomer in, here after, which moves some evictions between its queues.
CASES = [("lru", "LRU", 0), ("fifo", "FIFO", 0), ("s3-fifo", "S3FIFO", 0.01)]


@pytest.mark.parametrize("policy, name, tolerance", CASES)
@pytest.mark.parametrize("seed, universe, capacity", [(1, 1000, 100), (2, 300, 50), (3, 5000, 1000)])
def test_hits_are_those_of_libcachesim(bin_dir, tmp_path, reference_python, policy, name, tolerance, seed, universe,
                                       capacity):
    rng = random.Random(seed)
    touches = [1 + int(universe * rng.random() ** 3) for _ in range(30_000)]
    csv, trace = tmp_path / "touches.csv", tmp_path / "touches.jsonl"
    csv.write_text("time,object,size\n" + "".join(f"{i},{key},1\n" for i, key in enumerate(touches)))
    trace.write_text("".join(json.dumps({"timestamp": i, "input_length": 512, "hash_ids": [key]}) + "\n"
                             for i, key in enumerate(touches)))
    theirs = int(reference_python(REPLAY, name, csv, capacity, len(touches), needs=("libcachesim",)))
    done = subprocess.run([bin_dir / "nano-mooncake", "simulate", "--trace", trace, "--rules", "instant", "--policy",
                           policy, "--capacity-blocks", str(capacity), "--format", "json"], capture_output=True,
                          text=True, check=True, timeout=120)
    [row] = json.loads(done.stdout)["rows"]
    assert row["hit_blocks"] == pytest.approx(theirs, rel=tolerance, abs=0)
