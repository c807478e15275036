"""How a tensor lies in an object: a header of fixed size, then its elements, packed in row-major order.

    u32 magic "NOOM"   u16 version 1   u16 header's bytes, 304   i32 dtype   i32 dimensions   u32 0: whole, 1: a piece
    u32 0   u64 offset of the elements   u64 their bytes
    8 x i64 shape of the whole tensor   8 x i64 shape of this piece   (-1 beyond the dimensions)
    u32 axes   u32 0   4 x (i32 kind, i32 position, i32 rank, i32 pieces, i32 dimension or -1, i32 0, i64 0)

All little-endian. It is Mooncake's layout, since callers lay out buffers by its size. What is read is checked: a header
comes from whoever put the object.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

MAGIC, VERSION = 0x4D4F4F4E, 1
DIMENSIONS_MAX, AXES_MAX = 8, 4
HEADER = struct.Struct("<IHHiiIIQQ")
SHAPES = struct.Struct(f"<{2 * DIMENSIONS_MAX}qII")
AXIS = struct.Struct("<6iq")
HEADER_BYTES = HEADER.size + SHAPES.size + AXES_MAX * AXIS.size

# By number: name in torch, bytes of an element.
DTYPES = (
    ("float32", 4),
    ("float64", 8),
    ("int8", 1),
    ("uint8", 1),
    ("int16", 2),
    ("uint16", 2),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("bool", 1),
    ("float16", 2),
    ("bfloat16", 2),
    ("float8_e4m3fn", 1),
    ("float8_e5m2", 1),
)
NUMBERS = {name: number for number, (name, _) in enumerate(DTYPES)}
KINDS = ("dp", "tp", "ep", "pp")


@dataclass(frozen=True)
class Axis:
    """Which of how many pieces a tensor is along one axis of parallelism; `dimension` is the one that is cut, or -1."""

    kind: str
    rank: int
    pieces: int
    dimension: int = -1


@dataclass(frozen=True)
class Layout:
    """What a header says."""

    dtype: str
    whole: tuple[int, ...]
    shape: tuple[int, ...]
    axes: tuple[Axis, ...] = ()
    offset: int = HEADER_BYTES  # of the elements, in the object

    @property
    def elements_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[NUMBERS[self.dtype]][1]

    @property
    def object_bytes(self) -> int:
        return self.offset + self.elements_bytes

    def pack(self) -> bytes:
        """The header. ValueError for a tensor that it can't describe."""
        if self.dtype not in NUMBERS:
            raise ValueError(f"elements of {self.dtype} can't be stored")
        if len(self.whole) > DIMENSIONS_MAX or len(self.axes) > AXES_MAX:
            raise ValueError(f"expected at most {DIMENSIONS_MAX} dimensions and {AXES_MAX} axes of parallelism")
        dimensions = len(self.whole)
        fill = (-1,) * (DIMENSIONS_MAX - dimensions)
        packed = [
            HEADER.pack(MAGIC, VERSION, HEADER_BYTES, NUMBERS[self.dtype], dimensions, bool(self.axes), 0, self.offset,
                        self.elements_bytes),
            SHAPES.pack(*self.whole, *fill, *self.shape, *fill, len(self.axes), 0),
        ]
        for position, axis in enumerate(self.axes):
            packed.append(AXIS.pack(KINDS.index(axis.kind), position, axis.rank, axis.pieces, axis.dimension, 0, 0))
        return b"".join(packed).ljust(HEADER_BYTES, b"\0")


def parse(header: bytes | memoryview, object_bytes: int) -> Layout | None:
    """The layout of an object of so many bytes that begins with `header`; None when it is no tensor."""
    if len(header) < HEADER_BYTES or object_bytes < HEADER_BYTES:
        return None
    magic, version, size, number, dimensions, _, _, offset, elements = HEADER.unpack_from(header)
    known = (magic, version, size) == (MAGIC, VERSION, HEADER_BYTES) and 0 <= number < len(DTYPES)
    if not known or not 0 <= dimensions <= DIMENSIONS_MAX:
        return None
    *shapes, count, _ = SHAPES.unpack_from(header, HEADER.size)
    whole = tuple(shapes[:dimensions])
    shape = tuple(shapes[DIMENSIONS_MAX : DIMENSIONS_MAX + dimensions])
    if count > AXES_MAX or min((*whole, *shape), default=0) < 0:
        return None
    axes = []
    for position in range(count):
        fields = AXIS.unpack_from(header, HEADER.size + SHAPES.size + position * AXIS.size)
        kind, _, rank, pieces, dimension = fields[:5]
        if not (0 <= kind < len(KINDS) and 0 <= rank < pieces and -1 <= dimension < dimensions):
            return None
        axes.append(Axis(KINDS[kind], rank, pieces, dimension))
    layout = Layout(DTYPES[number][0], whole, shape, tuple(axes), offset)
    fits = offset >= HEADER_BYTES and elements == layout.elements_bytes and layout.object_bytes <= object_bytes
    return layout if fits else None
