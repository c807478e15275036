"""Tensors of PyTorch as objects of the store, whole or cut into pieces.

A piece's key is that of the tensor and a suffix: "_tp_<rank>" along the one axis "tp", else "@" and all axes with their
ranks, or "@writer_<rank>" of a writer's partition. PyTorch, and what moves bytes for it, is imported with the first
tensor that comes in or goes out, since most processes have none.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, Sequence

from . import _store
from ._parallelism import ReadTarget, TensorParallelism
from ._store import ReplicateConfig
from ._tensor_format import HEADER_BYTES, KINDS, Axis, Layout, parse

INVALID_PARAMS = -600
Config = ReplicateConfig | None
ORDER = ("dp", "pp", "ep", "tp")  # of the axes in a key, however a caller orders them


class NoRoute(ValueError):
    """Where a piece goes can't be told."""


class Route:
    """Where a tensor, or the piece of it that is wanted, lies."""

    def __init__(self, suffix: str = "", axes: Sequence[Axis] = (), cuts: bool = False):
        self.suffix = suffix
        self.axes = tuple(axes)
        self.cuts = cuts  # the caller gives the whole tensor, and this piece of it is stored

    @property
    def split(self) -> Axis | None:
        """The axis along which the tensor is cut."""
        return next((axis for axis in self.axes if axis.dimension >= 0), None)

    def of_rank(self, rank: int) -> str:
        """The suffix of another piece."""
        split = self.split
        assert split is not None
        return self.suffix[: len(self.suffix) - len(str(split.rank))] + str(rank)  # it comes last in each suffix


def route_of(parallelism: TensorParallelism | None, partition: Any = None) -> Route:
    """NoRoute when the caller's description doesn't hold together. `partition` has a rank, a size and a split_dim."""
    if parallelism is not None and partition is not None:
        raise NoRoute("expected either a parallelism or a writer's partition")
    if partition is not None:
        axis = checked(Axis("tp", partition.rank, partition.size, partition.split_dim))
        return Route(f"@writer_{axis.rank}", [axis], True)
    if parallelism is None or not parallelism.axes:
        return Route()
    given = sorted(parallelism.axes, key=lambda axis: ORDER.index(axis.kind) if axis.kind in ORDER else -1)
    axes = [axis_of(axis) for axis in given]
    if len({axis.kind for axis in axes}) != len(axes):
        raise NoRoute("expected each kind of axis once")
    if [axis.kind for axis in axes] == ["tp"]:
        return Route(f"_tp_{axes[0].rank}", axes)
    names = ",".join(f"{axis.kind}{identity_of(axis)}_{axis.rank}" for axis in given)
    return Route(f"@{names}", axes, axes[-1].kind == "tp")


def axis_of(axis: Any) -> Axis:
    if axis.kind not in KINDS:
        raise NoRoute(f'axis of kind "{axis.kind}": expected {", ".join(KINDS)}')
    if (axis.split_dim is not None) != (axis.kind == "tp"):
        raise NoRoute("split_dim belongs to an axis of kind tp, and to no other")
    if axis.kind == "ep" and axis.expert_id is None:
        raise NoRoute("an axis of kind ep wants an expert_id")
    return checked(Axis(axis.kind, axis.rank, axis.size, -1 if axis.split_dim is None else axis.split_dim))


def checked(axis: Axis) -> Axis:
    if not 0 <= axis.rank < axis.pieces or axis.dimension < (0 if axis.kind == "tp" else -1):
        raise NoRoute(f"piece {axis.rank} of {axis.pieces} along dimension {axis.dimension}")
    return axis


def identity_of(axis: Any) -> str:
    """Experts and stages are other tensors, not other pieces."""
    identity = axis.expert_id if axis.kind == "ep" else axis.stage_id if axis.kind == "pp" else None
    return "" if identity is None else f"{identity}"


# ---- Memory --------------------------------------------------------------------------------------------------------


def torch() -> Any:
    import torch as module

    return module


def is_tensor(value: object) -> bool:
    module = sys.modules.get("torch")  # who has a tensor has imported it
    return module is not None and isinstance(value, module.Tensor)


def memory_at(address: int, size: int) -> Any:
    """Exports the bytes at an address as a writable buffer, which doesn't own them."""
    import ctypes

    return (ctypes.c_char * size).from_address(address)


def layout_of(tensor: Any, whole: Any = None, axes: Sequence[Axis] = ()) -> Layout:
    shape = tuple(tensor.shape)
    return Layout(str(tensor.dtype).partition(".")[2], shape if whole is None else tuple(whole), shape, tuple(axes))


def tensor_at(address: int, layout: Layout) -> Any:
    """A tensor of the elements at an address, which stay where they are."""
    dtype = getattr(torch(), layout.dtype)
    if layout.elements_bytes == 0:
        return torch().empty(layout.shape, dtype=dtype)
    return torch().frombuffer(memory_at(address, layout.elements_bytes), dtype=dtype).reshape(layout.shape)


def piece_of(tensor: Any, axis: Axis) -> Any:
    """NoRoute unless all pieces are equal."""
    if axis.dimension >= tensor.dim() or tensor.shape[axis.dimension] % axis.pieces != 0:
        shape = tuple(tensor.shape)
        raise NoRoute(f"shape {shape} can't be cut into {axis.pieces} equal pieces along {axis.dimension}")
    return tensor.chunk(axis.pieces, axis.dimension)[axis.rank]


class TensorCalls(_store.Store):
    """The calls of MooncakeDistributedStore that take or give tensors.

    Puts answer 0 or a code: -600 for what is no tensor or can't be cut as asked, else those of `put`. Gets answer a
    tensor, or None for a miss and for what is no tensor.
    """

    __slots__ = ()

    # ---- Putting ----

    def put_tensor(self, key: str, tensor: Any) -> int:
        """Stores a tensor. A key that has a value keeps it; that is 0 too."""
        return self._put(key, tensor, None, False)

    def upsert_tensor(self, key: str, tensor: Any) -> int:
        """Stores a tensor. A key that has a value gets this one instead."""
        return self._put(key, tensor, None, True)

    def pub_tensor(self, key: str, tensor: Any, config: Config = None) -> int:
        """put_tensor, kept as `config` says."""
        return self._put(key, tensor, config, False)

    def upsert_pub_tensor(self, key: str, tensor: Any, config: Config = None) -> int:
        """upsert_tensor, kept as `config` says."""
        return self._put(key, tensor, config, True)

    def batch_put_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> list[int]:
        """put_tensor for each key; an answer each."""
        return self._put_each(keys, tensors_list, None, False)

    def batch_upsert_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> list[int]:
        """upsert_tensor for each key; an answer each."""
        return self._put_each(keys, tensors_list, None, True)

    def batch_pub_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any], config: Config = None) -> list[int]:
        """pub_tensor for each key; an answer each."""
        return self._put_each(keys, tensors_list, config, False)

    def batch_upsert_pub_tensor(
        self, keys: Sequence[str], tensors_list: Sequence[Any], config: Config = None
    ) -> list[int]:
        """upsert_pub_tensor for each key; an answer each."""
        return self._put_each(keys, tensors_list, config, True)

    def put_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: TensorParallelism | None = None,
        config: Config = None,
        writer_partition: Any = None,
    ) -> int:
        """Stores a piece of a tensor under its axes.

        Along the one axis "tp" `tensor` is the piece; with more axes, or a `writer_partition` (rank, size, split_dim),
        it is the whole, of which that piece is cut.
        """
        return self._put(key, tensor, config, False, parallelism, writer_partition)

    def upsert_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: TensorParallelism | None = None,
        config: Config = None,
        writer_partition: Any = None,
    ) -> int:
        """put_tensor_with_parallelism, in place of what is there."""
        return self._put(key, tensor, config, True, parallelism, writer_partition)

    def batch_put_tensor_with_parallelism(
        self,
        keys: Sequence[str],
        tensors_list: Sequence[Any],
        parallelisms: Sequence[TensorParallelism | None] | None = None,
        config: Config = None,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """put_tensor_with_parallelism for each key; an answer each."""
        return self._put_each(keys, tensors_list, config, False, parallelisms, writer_partitions)

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: Sequence[str],
        tensors_list: Sequence[Any],
        parallelisms: Sequence[TensorParallelism | None] | None = None,
        config: Config = None,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """upsert_tensor_with_parallelism for each key; an answer each."""
        return self._put_each(keys, tensors_list, config, True, parallelisms, writer_partitions)

    def _put(
        self, key: str, tensor: Any, config: Config, replace: bool, parallelism: Any = None, partition: Any = None
    ) -> int:
        try:
            if not is_tensor(tensor):
                raise ValueError(f"expected a tensor, got {type(tensor).__name__}")
            route = route_of(parallelism, partition)
            whole = tensor.shape
            if route.cuts and route.split is not None:
                tensor = piece_of(tensor, route.split)
            kept = tensor.detach().cpu().contiguous()
            parts = [layout_of(kept, whole, route.axes).pack()]
        except (ValueError, AttributeError, TypeError) as error:
            _store.log_error(f'mooncake: tensor "{key}": {error}')
            return INVALID_PARAMS
        if kept.numel() != 0:
            parts.append(memory_at(kept.data_ptr(), kept.numel() * kept.element_size()))
        store = self.upsert_parts if replace else self.put_parts
        return store(key + route.suffix, *parts, config=config)

    def _put_each(
        self,
        keys: Sequence[str],
        tensors: Sequence[Any],
        config: Config,
        replace: bool,
        parallelisms: Sequence[Any] | None = None,
        partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        given = together(keys, tensors, parallelisms, partitions)
        if given is None:
            return [INVALID_PARAMS] * len(keys)
        configs = config_of_each(config, len(keys))
        return [self._put(key, tensor, kept, replace, parallelism, partition)
                for (key, tensor, parallelism, partition), kept in zip(given, configs)]

    # ---- Putting what lies in a buffer, header and all ----

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """Stores the tensor that get_tensor_into wrote to an address."""
        return self._put_from(key, buffer_ptr, size, None, False)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """put_tensor_from, in place of what is there."""
        return self._put_from(key, buffer_ptr, size, None, True)

    def batch_put_tensor_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """put_tensor_from for each key; an answer each."""
        return self._put_each_from(keys, buffer_ptrs, sizes, None, False)

    def batch_upsert_tensor_from(
        self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """upsert_tensor_from for each key; an answer each."""
        return self._put_each_from(keys, buffer_ptrs, sizes, None, True)

    def put_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: TensorParallelism | None = None,
        config: Config = None,
        writer_partition: Any = None,
    ) -> int:
        """put_tensor_with_parallelism of the tensor that get_tensor_into wrote to an address."""
        return self._put_from(key, buffer_ptr, size, config, False, parallelism, writer_partition)

    def upsert_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: TensorParallelism | None = None,
        config: Config = None,
        writer_partition: Any = None,
    ) -> int:
        """put_tensor_with_parallelism_from, in place of what is there."""
        return self._put_from(key, buffer_ptr, size, config, True, parallelism, writer_partition)

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Sequence[TensorParallelism | None] | None = None,
        config: Config = None,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """put_tensor_with_parallelism_from for each key; an answer each."""
        return self._put_each_from(keys, buffer_ptrs, sizes, config, False, parallelisms, writer_partitions)

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: Sequence[str],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Sequence[TensorParallelism | None] | None = None,
        config: Config = None,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """upsert_tensor_with_parallelism_from for each key; an answer each."""
        return self._put_each_from(keys, buffer_ptrs, sizes, config, True, parallelisms, writer_partitions)

    def _put_from(
        self,
        key: str,
        address: int,
        size: int,
        config: Config,
        replace: bool,
        parallelism: Any = None,
        partition: Any = None,
    ) -> int:
        layout = parse(bytes(memory_at(address, HEADER_BYTES)), size) if address and size >= HEADER_BYTES else None
        if layout is None:
            return INVALID_PARAMS
        if parallelism is None and partition is None:
            put = self.upsert_from if replace else self.put_from
            return put(key, address, layout.object_bytes, config)
        return self._put(key, tensor_at(address + layout.offset, layout), config, replace, parallelism, partition)

    def _put_each_from(
        self,
        keys: Sequence[str],
        addresses: Sequence[int],
        sizes: Sequence[int],
        config: Config,
        replace: bool,
        parallelisms: Sequence[Any] | None = None,
        partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        given = together(keys, addresses, parallelisms, partitions)
        if given is None or len(sizes) != len(keys):
            return [INVALID_PARAMS] * len(keys)
        configs = config_of_each(config, len(keys))
        return [self._put_from(key, address, size, kept, replace, parallelism, partition)
                for (key, address, parallelism, partition), size, kept in zip(given, sizes, configs)]

    # ---- Getting ----

    def get_tensor(self, key: str) -> Any:
        """A copy of the tensor."""
        found = self._find(key)
        return None if found is None else copy_of(*found)

    def batch_get_tensor(self, keys: Sequence[str]) -> list[Any]:
        """get_tensor for each key; an answer each."""
        return [self.get_tensor(key) for key in keys]

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> Any:
        """Copies the object, header and all, to an address; a tensor of the elements there, which the caller keeps."""
        count = self.get_into(key, buffer_ptr, size)
        layout = parse(bytes(memory_at(buffer_ptr, HEADER_BYTES)), count) if count >= HEADER_BYTES else None
        return None if layout is None else tensor_at(buffer_ptr + layout.offset, layout)

    def batch_get_tensor_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[Any]:
        """get_tensor_into for each key; an answer each."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [None] * len(keys)
        return [self.get_tensor_into(*each) for each in zip(keys, buffer_ptrs, sizes)]

    def get_tensor_with_parallelism(self, key: str, target: ReadTarget | None = None) -> Any:
        """The tensor as stored (also without a target), the piece that `target.parallelism` names (mode "shard"), or
        the whole, joined from its pieces (mode "full")."""
        try:
            return self._get_target(key, target or ReadTarget())
        except (ValueError, AttributeError, TypeError) as error:
            _store.log_error(f'mooncake: tensor "{key}": {error}')
            return None

    def batch_get_tensor_with_parallelism(
        self, keys: Sequence[str], targets: Sequence[ReadTarget | None] | None = None
    ) -> list[Any]:
        """get_tensor_with_parallelism for each key; an answer each."""
        if targets is None:
            targets = [None] * len(keys)
        if len(targets) != len(keys):
            return [None] * len(keys)
        return [self.get_tensor_with_parallelism(key, target) for key, target in zip(keys, targets)]

    def _find(self, key: str) -> tuple[Any, Layout] | None:
        """A handle on the object, and its layout."""
        handle = self.get_buffer(key)
        layout = None if handle is None else parse(memoryview(handle)[:HEADER_BYTES], len(handle))
        return None if layout is None else (handle, layout)

    def _get_target(self, key: str, target: ReadTarget) -> Any:
        if target.mode == "as_stored":
            return self.get_tensor(key)
        if target.mode not in ("shard", "full"):
            raise ValueError(f'mode "{target.mode}": expected as_stored, shard or full')
        route = route_of(target.parallelism)
        if target.mode == "full":
            return self._join_any(key, route)
        if not route.axes:
            raise NoRoute("mode shard wants a parallelism")
        found, split = self._find(key + route.suffix), route.split
        if found is not None and split == split_of(found[1]):
            return copy_of(*found)
        whole = None if split is None else self._join_any(key, route)
        return None if whole is None else whole.chunk(split.pieces, split.dimension)[split.rank].contiguous()

    def _join_any(self, key: str, route: Route) -> Any:
        """The whole tensor, from wherever it lies in one piece or in all of its pieces."""
        if (found := self._find(key)) is not None:
            return copy_of(*found)
        first = Axis("tp", 0, 1, 0)
        for pieces in (route, Route("@writer_0", [first]), Route("_tp_0", [first])):
            if pieces.split is not None and (joined := self._join(key, pieces)) is not None:
                return joined
        return None

    def _join(self, key: str, route: Route) -> Any:
        first = self._find(key + route.of_rank(0))
        split = None if first is None else split_of(first[1])
        if first is None or split is None:
            return None
        parts = [copy_of(*first)]
        for rank in range(1, split.pieces):
            found = self._find(key + route.of_rank(rank))
            if found is None or split_of(found[1]) != Axis("tp", rank, split.pieces, split.dimension):
                return None
            parts.append(copy_of(*found))
        return torch().cat(parts, dim=split.dimension)


def copy_of(handle: Any, layout: Layout) -> Any:
    import ctypes

    tensor = torch().empty(layout.shape, dtype=getattr(torch(), layout.dtype))
    ctypes.memmove(tensor.data_ptr(), handle.ptr() + layout.offset, layout.elements_bytes)
    return tensor


def split_of(layout: Layout) -> Axis | None:
    return next((axis for axis in layout.axes if axis.dimension >= 0), None)


def together(keys: Sequence[str], *lists: Sequence[Any] | None) -> Iterator[tuple[Any, ...]] | None:
    """The items of all lists by key, None where a list is; None when a list has another length."""
    if any(given is not None and len(given) != len(keys) for given in lists):
        return None
    return zip(keys, *([None] * len(keys) if given is None else given for given in lists))


def config_of_each(config: Config, count: int) -> list[Config]:
    """A config for many keys, as one for each: its groups are by key."""
    if config is None or config.group_ids is None or len(config.group_ids) != count:
        return [config] * count
    each = []
    for group in config.group_ids:
        own = ReplicateConfig()
        for name in CONFIG_FIELDS:
            setattr(own, name, getattr(config, name))
        own.group_ids = [group]
        each.append(own)
    return each


CONFIG_FIELDS = [name for name in dir(ReplicateConfig) if not name.startswith("_") and name != "group_ids"]
