"""Objects past 2 and 4 GiB: sizes exact, every MiB in its place. It takes 12 GiB of memory, so `make soak` runs it."""

import os
import shutil

import pytest
from conftest import Memory

MIB, GIB = 1 << 20, 1 << 30

pytestmark = [
    pytest.mark.skipif(not os.environ.get("NMC_SOAK"), reason="12 GiB of memory: `make soak` runs it"),
    pytest.mark.skipif(shutil.disk_usage("/dev/shm").free < 6 * GIB, reason="/dev/shm has less than 6 GiB free"),
]


def marks(size, seed):
    """(where, what) in each MiB, and at the end."""
    for at in [*range(0, size - 8, MIB), size - 8]:
        yield at, (seed * 0x9E3779B97F4A7C15 + at).to_bytes(16, "little")[:8]


def mark(memory, seed):
    for at, what in marks(memory.size, seed):
        memory.fill(what, at)


def holds(memory, seed):
    return all(memory.bytes(at, 8) == what for at, what in marks(memory.size, seed))


@pytest.mark.parametrize("size", [2 * GIB - 1, 2 * GIB + 1, 4 * GIB + 1])
def test_an_object_past_two_and_four_gib_is_exact(open_store, size):
    writer, reader = open_store(segment=size + 64 * MIB), open_store(segment=0)
    source, target = Memory(size), Memory(size)
    mark(source, size)
    for store, memory in ((writer, source), (reader, target)):
        assert store.register_buffer(memory.ptr, size) == 0
    assert writer.put_from("large", source.ptr, size) == 0
    assert reader.get_size("large") == size
    assert reader.get_into("large", target.ptr, size - 1) < 0
    assert reader.get_into("large", target.ptr, size) == size
    assert holds(target, size)
    mark(target, 0)
    assert reader.batch_get_into(["large", "none"], [target.ptr, target.ptr], [size, size]) == [size, -704]
    assert holds(target, size)
