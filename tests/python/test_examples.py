"""The examples run as their first lines say."""

import os
import re
import subprocess
import sys

from conftest import HOST, REPOSITORY, TIMEOUT_S, free_port

EXAMPLE = REPOSITORY / "examples" / "store_roundtrip.py"


def start(*arguments, environment):
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_what_the_writer_puts_the_reader_gets_and_not_over_tcp(start_master):
    metadata_port = free_port()
    master = start_master("--enable_http_metadata_server=true", f"--http_metadata_server_port={metadata_port}")
    environment = {"MASTER_ADDR": master.address, "METADATA_URL": f"http://{HOST}:{metadata_port}/metadata"}
    with start("writer", environment=environment) as writer:
        key = writer.stdout.readline().strip().removeprefix("key=")
        written = writer.stdout.readline()
        assert key.startswith("study/") and re.fullmatch(r"bytes=1048576 sha256=[0-9a-f]{64}\n", written)
        with start("reader", "--key", key, environment=environment) as reader:
            said, _ = reader.communicate(timeout=TIMEOUT_S)
        assert reader.returncode == 0
        assert said.splitlines(keepends=True)[0] == written
        assert "bytes over TCP: 0\n" in said
        writer.communicate("\n", timeout=TIMEOUT_S)
    assert writer.returncode == 0


def test_a_reader_without_a_key_is_told_so():
    with start("reader", environment={}) as reader:
        assert reader.wait(TIMEOUT_S) == 2
