"""How a tensor is cut over ranks, as callers describe it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ParallelAxis:
    """One axis of parallelism: which of how many pieces, along which dimension."""

    kind: str = ""
    rank: int = 0
    size: int = 1
    split_dim: int | None = None
    expert_id: int | None = None
    stage_id: int | None = None


@dataclass
class TensorParallelism:
    """All axes along which a tensor is cut."""

    axes: list[ParallelAxis] = field(default_factory=list)


@dataclass
class ReadTarget:
    """The piece of a tensor that a reader wants: as stored, or cut along other axes."""

    mode: str = "as_stored"
    parallelism: TensorParallelism | None = None
