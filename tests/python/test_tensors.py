"""Tensors as objects: their header and, where PyTorch is installed, the calls that take and give them."""

import ctypes
import itertools
import types

import pytest
from conftest import MIB
from mooncake._tensor_format import HEADER_BYTES, Axis, Layout, parse
from mooncake.store import ParallelAxis, ReadTarget, ReplicateConfig, TensorParallelism

INVALID, NOT_SUPPORTED = -600, -1012

PIECE = Layout("bfloat16", (4, 6), (4, 2), (Axis("dp", 1, 2), Axis("tp", 0, 3, 1)))


# ---- The header ----------------------------------------------------------------------------------------------------


def whole(dtype, *shape, axes=()):
    return Layout(dtype, shape, shape, axes)


@pytest.mark.parametrize(
    "layout", [PIECE, whole("float32"), whole("uint8", 3, 0, 2), whole("int64", 1, 1, 1, 1, 1, 1, 1, 1)]
)
def test_a_header_says_what_was_packed(layout):
    header = layout.pack()
    assert len(header) == HEADER_BYTES == 304
    assert parse(header, layout.object_bytes) == layout
    assert parse(header + bytes(100), layout.object_bytes + 100) == layout


def test_an_element_count_of_one_has_no_dimension():
    assert whole("float32").object_bytes == HEADER_BYTES + 4


@pytest.mark.parametrize(
    "layout", [whole("complex64", 1), whole("int8", *[1] * 9), whole("int8", 1, axes=PIECE.axes[:1] * 5)]
)
def test_what_a_header_cannot_say_is_an_error(layout):
    with pytest.raises(ValueError):
        layout.pack()


def test_a_short_object_is_no_tensor():
    header = PIECE.pack()
    assert parse(header, PIECE.object_bytes - 1) is None
    assert all(parse(header[:size], PIECE.object_bytes) is None for size in range(HEADER_BYTES))
    assert parse(header, HEADER_BYTES - 1) is None


def test_a_damaged_header_is_never_followed():
    """Whatever one changed byte says, no tensor comes of it that is larger than its object."""
    good = PIECE.pack()
    for at, value in itertools.product(range(HEADER_BYTES), (0, 1, 0x7F, 0x80, 0xFF)):
        damaged = good[:at] + bytes([value]) + good[at + 1 :]
        layout = parse(damaged, PIECE.object_bytes)
        assert layout is None or (layout.offset >= HEADER_BYTES and layout.object_bytes <= PIECE.object_bytes)
        assert layout is None or all(0 <= axis.rank < axis.pieces for axis in layout.axes)


# ---- The calls -----------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def parallelism(**axes):
    """tp=(rank, size, split_dim); the others are (rank, size)."""
    return TensorParallelism([ParallelAxis(kind, values[0], values[1], *values[2:]) for kind, values in axes.items()])


def writer(rank, size, split_dim):
    return types.SimpleNamespace(rank=rank, size=size, split_dim=split_dim)


@pytest.fixture
def tensor(torch):
    return torch.arange(48, dtype=torch.float32).reshape(4, 12)


def test_what_is_no_tensor_is_refused(store):
    store.put("raw", b"x" * 1000)
    assert store.put_tensor("k", b"bytes") == store.upsert_tensor("k", None) == INVALID
    assert store.batch_put_tensor(["k"], []) == [INVALID]
    assert (store.get_tensor("raw"), store.get_tensor("none")) == (None, None)
    assert store.is_exist("k") == 0


def test_a_buffer_without_a_header_is_refused(store, memory):
    store.put("raw", b"x" * 1000)
    for size in (0, HEADER_BYTES - 1, HEADER_BYTES, MIB):
        assert store.put_tensor_from("k", memory.ptr, size) == INVALID
    assert store.put_tensor_from("k", 0, MIB) == INVALID
    assert store.get_tensor_into("raw", memory.ptr, MIB) is None
    assert store.get_tensor_into("none", memory.ptr, MIB) is None
    assert store.is_exist("k") == 0


@pytest.mark.parametrize("name", ["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "float16",
                                  "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4), (0, 4)])
def test_every_type_and_shape_comes_back(store, torch, name, shape):
    made = torch.ones(shape).to(getattr(torch, name))
    assert store.put_tensor("k", made) == 0
    got = store.get_tensor("k")
    assert (got.dtype, got.shape) == (made.dtype, made.shape)
    assert torch.equal(got.to(torch.float64), made.to(torch.float64))
    assert store.get_size("k") == HEADER_BYTES + made.numel() * made.element_size()


def test_views_are_stored_as_they_look(store, torch, tensor):
    for made in (tensor.t(), tensor[:, ::2], tensor[1:3]):
        assert store.upsert_tensor("k", made) == 0
        assert torch.equal(store.get_tensor("k"), made)


def test_put_keeps_and_upsert_replaces(store, torch, tensor):
    assert store.put_tensor("k", tensor) == store.put_tensor("k", tensor + 1) == 0
    assert torch.equal(store.get_tensor("k"), tensor)
    assert store.upsert_tensor("k", tensor[:2]) == 0
    assert torch.equal(store.get_tensor("k"), tensor[:2])
    config = ReplicateConfig()
    config.group_ids = ["g", "h"]
    assert store.batch_upsert_pub_tensor(["k", "l"], [tensor, tensor + 1], config) == [0, 0]
    first, second = store.batch_get_tensor(["k", "l"])
    assert torch.equal(first, tensor) and torch.equal(second, tensor + 1)
    config = ReplicateConfig()
    config.nof_replica_num = 1
    assert store.pub_tensor("m", tensor, config) == NOT_SUPPORTED


def test_a_tensor_in_a_buffer_can_be_changed_and_put_back(store, torch, tensor, memory):
    store.put_tensor("k", tensor)
    there = store.get_tensor_into("k", memory.ptr, memory.size)
    assert torch.equal(there, tensor) and there.data_ptr() == memory.ptr + HEADER_BYTES
    there.add_(1)
    assert store.upsert_tensor_from("k", memory.ptr, memory.size) == 0
    assert store.put_tensor_from("l", memory.ptr, HEADER_BYTES + 4 * 48) == 0
    assert torch.equal(store.get_tensor("k"), tensor + 1) and torch.equal(store.get_tensor("l"), tensor + 1)
    assert store.get_size("k") == HEADER_BYTES + 4 * 48
    assert store.put_tensor_from("m", memory.ptr, HEADER_BYTES + 4 * 48 - 1) == INVALID
    assert store.get_tensor_into("k", memory.ptr, HEADER_BYTES) is None


def test_pieces_of_one_axis_are_given_as_such(store, torch, tensor):
    for rank in range(3):
        assert store.put_tensor_with_parallelism("k", tensor.chunk(3, 1)[rank], parallelism(tp=(rank, 3, 1))) == 0
        assert store.is_exist(f"k_tp_{rank}") == 1
    for rank in range(3):
        got = store.get_tensor_with_parallelism("k", ReadTarget("shard", parallelism(tp=(rank, 3, 1))))
        assert torch.equal(got, tensor.chunk(3, 1)[rank])
    assert torch.equal(store.get_tensor_with_parallelism("k", ReadTarget("full")), tensor)


def test_a_piece_that_is_missing_is_a_miss(store, tensor):
    assert store.put_tensor_with_parallelism("k", tensor.chunk(3, 1)[0], parallelism(tp=(0, 3, 1))) == 0
    assert store.get_tensor_with_parallelism("k", ReadTarget("shard", parallelism(tp=(1, 3, 1)))) is None
    assert store.get_tensor_with_parallelism("k", ReadTarget("full")) is None
    assert store.get_tensor_with_parallelism("k") is None


def test_with_more_axes_the_piece_is_cut_and_their_order_is_no_matter(store, torch, tensor):
    for rank in range(2):
        assert store.put_tensor_with_parallelism("k", tensor, parallelism(dp=(1, 2), tp=(rank, 2, 0))) == 0
    got = store.get_tensor_with_parallelism("k", ReadTarget("shard", parallelism(tp=(1, 2, 0), dp=(1, 2))))
    assert torch.equal(got, tensor.chunk(2, 0)[1])
    joined = store.get_tensor_with_parallelism("k", ReadTarget("full", parallelism(dp=(1, 2), tp=(0, 2, 0))))
    assert torch.equal(joined, tensor)
    assert store.get_tensor_with_parallelism("k", ReadTarget("shard", parallelism(dp=(0, 2), tp=(0, 2, 0)))) is None


def test_pieces_can_be_read_in_another_partition(store, torch, tensor):
    for rank in range(4):
        assert store.put_tensor_with_parallelism("k", tensor, writer_partition=writer(rank, 4, 0)) == 0
    for rank in range(3):
        got = store.get_tensor_with_parallelism("k", ReadTarget("shard", parallelism(tp=(rank, 3, 1))))
        assert torch.equal(got, tensor.chunk(3, 1)[rank])
    assert torch.equal(store.get_tensor_with_parallelism("k", ReadTarget("full")), tensor)
    # Pieces of two partitions are no whole.
    assert store.upsert_tensor_with_parallelism("k", tensor, writer_partition=writer(1, 2, 0)) == 0
    assert store.get_tensor_with_parallelism("k", ReadTarget("full")) is None


def test_a_piece_in_a_buffer_is_cut_of_it(store, torch, tensor, memory):
    store.put_tensor("k", tensor)
    store.get_tensor_into("k", memory.ptr, memory.size)
    keys, partitions = ["l"] * 3, [writer(rank, 3, 1) for rank in range(3)]
    answers = store.batch_upsert_tensor_with_parallelism_from(
        keys, [memory.ptr] * 3, [memory.size] * 3, writer_partitions=partitions
    )
    assert answers == [0, 0, 0]
    assert torch.equal(store.get_tensor_with_parallelism("l", ReadTarget("full")), tensor)


@pytest.mark.parametrize(
    "axes, partition",
    [
        ({"tp": (0, 5, 1), "dp": (0, 2)}, None),  # 12 is no multiple of 5
        ({"tp": (0, 2, 2), "dp": (0, 2)}, None),  # there is no third dimension
        ({"tp": (2, 2, 0)}, None),
        ({"tp": (0, 2)}, None),
        ({"dp": (0, 2, 0)}, None),
        ({"ep": (0, 2)}, None),
        ({"xp": (0, 2)}, None),
        ({}, (0, 5, 1)),
        ({}, (3, 3, 1)),
        ({"tp": (0, 2, 0)}, (0, 2, 0)),
    ],
)
def test_a_cut_that_cannot_be_is_refused(store, tensor, axes, partition):
    axes, partition = parallelism(**axes) if axes else None, partition and writer(*partition)
    assert store.put_tensor_with_parallelism("k", tensor, axes, writer_partition=partition) == INVALID
    assert store.remove_all(force=True) == 0


def test_a_get_lets_go_of_the_object(store, torch, tensor):
    """It copies: what it pinned meanwhile is free to go."""
    assert store.put_tensor("k", tensor) == 0
    got = store.get_tensor("k")
    assert store.remove("k", force=True) == 0
    assert [store.put(str(i), ctypes.create_string_buffer(MIB)) for i in range(128)] == [0] * 128
    assert torch.equal(got, tensor)
