"""nano-mooncake store-bench at a size that runs in seconds: the shape of its report and what it leaves behind, not its
figures."""

import json
import os
import pathlib
import signal
import subprocess
import threading

import pytest
from store_processes import Host, eventually

MATRIX = ["--sizes", "4KiB,256KiB", "--concurrency", "1,3", "--rounds", "2", "--batch", "4"]
SMALL = [*MATRIX, "--seconds", "1"]


def bench(bin_dir, *arguments):
    return subprocess.run([bin_dir / "nano-mooncake", "store-bench", *map(str, arguments)], capture_output=True,
                          text=True, timeout=300)


def report(bin_dir, *arguments):
    done = bench(bin_dir, *arguments, "--format", "json", "--quiet")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def child_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def shared_folders(pid):
    """Folders of shared files that a process has open and that are to end with it."""
    found = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            folder = pathlib.Path(os.readlink(link)).parent
        except FileNotFoundError:
            continue
        if folder.name.startswith("once-"):
            found.add(folder)
    return found


def test_each_case_has_its_row_and_its_references_in_the_same_run(bin_dir):
    rows = report(bin_dir, *SMALL)["rows"]
    cases = {(row["op"], row["carrier"], row["bytes"], row["threads"]) for row in rows}
    assert len(cases) == len(rows)
    both, sizes, threads = ("shm", "tcp"), (4096, 256 << 10), (1, 3)
    payload = [("memcpy", "memory"), ("raw-socket", "tcp"),
               *((op, c) for op in ("put", "get", "get_into", "batch_get_into", "batch_put") for c in both)]
    wanted = {(op, c, size, t) for op, c in payload for size in sizes for t in threads}
    wanted |= {(op, c, 4096, t) for op in ("exists", "remove") for c in both for t in threads}
    assert cases == wanted
    for row in rows:
        assert row["samples"] >= 2 * row["threads"] or row["op"] == "remove"
        assert 0 < row["p50_us"] <= row["p95_us"] <= row["p99_us"]
        assert 0 < row["service_p50_us"] <= row["service_p99_us"] and 0 <= row["wait_p50_us"] <= row["wait_p99_us"]
        assert 0 <= row["core_wait"] <= 1
        assert row["batch"] == (4 if row["op"].startswith("batch") else 1)
        assert row["regime"] in ("fixed-cost", "between", "saturated")


def test_bytes_asked_for_and_bytes_moved_are_apart(bin_dir):
    for row in report(bin_dir, *SMALL)["rows"]:
        logical, physical, case = row["logical_bytes"], row["physical_bytes"], (row["op"], row["carrier"])
        if row["op"] in ("exists", "remove"):
            assert (logical, row["payload_gb_s"], row["regime"]) == (0, 0, "fixed-cost"), row
            continue
        assert logical == row["samples"] * row["bytes"] * row["batch"], row
        if case == ("get", "shm"):
            assert physical == 0, "a view in place moves nothing"
        elif case in (("get_into", "shm"), ("batch_get_into", "shm"), ("memcpy", "memory")):
            assert physical == logical, row
        else:  # headers of messages, and what a put over shared memory asks the master
            assert logical <= physical < 1.5 * logical + 1000 * row["samples"], row


def test_measures_a_running_master_and_leaves_it_as_it_was(bin_dir, tmp_path):
    host = Host(bin_dir, tmp_path)
    try:
        master = host.start_master()
        rows = report(bin_dir, *SMALL, "--store", host.server, "--carrier", "shm")["rows"]
        assert {row["carrier"] for row in rows} == {"memory", "shm"}
        eventually(lambda: not master.segments(), "the benchmark's segment is gone")
        assert master.metric("master_key_count") == 0
        host.end()
    finally:
        host.clean_up()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_it_leaves_no_process_no_file_and_no_report(bin_dir, tmp_path, number):
    path = tmp_path / "report.json"
    command = [bin_dir / "nano-mooncake", "store-bench", *MATRIX, "--seconds", "600", "--output", path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert "round 1 of 2" in process.stderr.readline()
        master = child_of(child_of(process.pid))  # between them is who ends it when the benchmark is killed
        folders = shared_folders(master)
        assert folders
        process.send_signal(number)
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        assert process.wait(60) == (-number if number == signal.SIGKILL else 130)
        reader.join(60)
        process.stderr.close()
        eventually(lambda: not pathlib.Path(f"/proc/{master}").exists(), "its master has ended")
        assert not any(folder.exists() for folder in folders), folders
        assert not path.exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("flags, words", [
    (["--sizes", "4KiB,x"], "--sizes: \"x\""),
    (["--sizes", "2GiB"], "--sizes: \"2GiB\""),
    (["--sizes", ""], "--sizes"),
    (["--concurrency", "0"], "--concurrency"),
    (["--carrier", "rdma"], "--carrier"),
    (["--store", "unix:/nowhere/socket"], "/nowhere/socket"),
])
def test_what_it_cannot_do_is_one_clear_line(bin_dir, flags, words):
    done = bench(bin_dir, *flags, "--quiet")
    assert done.returncode in (2, 3) and done.stdout == ""
    assert done.stderr.count("\n") == 1 and words in done.stderr, done.stderr
