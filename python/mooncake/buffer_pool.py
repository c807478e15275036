"""Memory to read into and write from, lent in leases and used again.

    pool = BufferPool(store)
    with pool.buffer(1 << 20) as lease:
        size = store.get_into("key", lease.ptr, lease.size)
        view = lease.buffer[:size]      # no copy; it has to go before the lease does
        ...
        del view
    pool.close()                        # before store.close()

Memory is registered with the store once, when the pool first gets it from the system, and its pages stay mapped, so a
lease costs neither. One pool serves any number of threads.
"""

from __future__ import annotations

import contextlib
import mmap
import operator
import threading
import time
from types import TracebackType
from typing import Any, Callable

from ._store import BufferLeaseView

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which mmap has no name for
PAGE_BYTES = mmap.PAGESIZE
SIZE_MAX = 1 << 47  # the address space of a process


class PoolExhausted(RuntimeError):
    """All that the pool may hold is lent."""


class PoolTimeout(PoolExhausted, TimeoutError):
    """And nothing came back in time."""


class _Region:
    """One piece of memory of the pool, lent as a whole."""

    __slots__ = ("capacity", "memory", "offset", "ptr")

    def __init__(self, capacity: int, alignment: int):
        self.capacity = capacity
        self.memory = mmap.mmap(-1, capacity + (alignment if alignment > PAGE_BYTES else 0))
        start = BufferLeaseView(self.memory, 0, 0).ptr
        self.offset = -start % alignment
        self.ptr = start + self.offset
        if capacity >= 2 << 20:
            with contextlib.suppress(OSError):
                self.memory.madvise(mmap.MADV_HUGEPAGE)

    def populate(self) -> None:
        first = self.offset - self.offset % PAGE_BYTES
        length = self.capacity + self.offset - first
        try:
            self.memory.madvise(POPULATE_WRITE, first, length)
        except OSError:  # a kernel before 5.14
            for at in range(self.offset, self.offset + self.capacity, PAGE_BYTES):
                self.memory[at] = 0


class BufferLease:
    """Memory that is the holder's until `release()`, or the end of its `with` block.

    Releasing it while views of its buffer are alive is a BufferError, and it stays leased. A lease that is dropped
    without release goes back with the last of its views.
    """

    __slots__ = ("_give_back", "_region", "_view")

    def __init__(self, region: _Region, size: int, give_back: Callable[[_Region], None]):
        self._region: _Region | None = region
        self._view = BufferLeaseView(region.memory, region.offset, size)
        self._give_back = give_back

    @property
    def ptr(self) -> int:
        """Address of the first byte."""
        return self._held().ptr

    @property
    def size(self) -> int:
        """Number of bytes, as they were asked for."""
        return self._held().size

    @property
    def buffer(self) -> memoryview:
        """The bytes, writable. Slices of it are views as well."""
        return self._held().buffer

    def release(self) -> None:
        """Gives the memory back to the pool. A second time it does nothing."""
        if self._region is None:
            return
        if self._view.exports != 0:
            raise BufferError("the lease's buffer is still in use: drop all views of it before the lease")
        self._return()

    def __enter__(self) -> BufferLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abandon()  # its views may live in the frames of the traceback; the error matters more
        else:
            self.release()

    def __del__(self) -> None:
        if getattr(self, "_give_back", None) is not None:  # else __init__ failed
            self._abandon()

    def _held(self) -> BufferLeaseView:
        if self._region is None:
            raise ValueError("the lease has been released")
        return self._view

    def _return(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            self._give_back(region)

    def _abandon(self) -> None:
        """Releases, now or as soon as the last view is gone."""
        if self._region is None or self._view.exports == 0:
            self._return()
            return
        region, self._region = self._region, None
        give_back = self._give_back
        self._view.on_idle(lambda: give_back(region))

    def __repr__(self) -> str:
        if self._region is None:
            return "<BufferLease, released>"
        return f"<BufferLease of {self.size} bytes at {self.ptr:#x}>"


class BufferPool:
    """Lends memory in leases of power-of-two capacity, from `min_size_class` up.

    max_bytes            most that it holds, lent or not; 0: no limit
    max_size_class       a larger lease gets memory of its own, which goes back to the system with it
    alignment            of each lease's address, a power of two
    block_on_exhaustion  whether acquire waits for a lease to come back, unless it says itself
    default_timeout      how long it then waits, in seconds; None: for ever
    max_regions          most pieces of memory, each good for one lease at a time
    prewarm_size, prewarm_count   leases to have ready, with their pages mapped, from the start
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 64 << 10,
        max_size_class: int | None = None,
        alignment: int = 8 << 20,
        block_on_exhaustion: bool = True,
        default_timeout: float | None = None,
        max_regions: int | None = None,
        prewarm_size: int | None = None,
        prewarm_count: int = 0,
    ):
        self._closed = True  # until it is whole
        self._store = store
        self._max_bytes = _whole("max_bytes", max_bytes)
        self._min_class = max(PAGE_BYTES, _power_of_two(_whole("min_size_class", min_size_class)))
        self._max_class = SIZE_MAX if max_size_class is None else _whole("max_size_class", max_size_class)
        self._alignment = _whole("alignment", alignment)
        if self._alignment == 0 or self._alignment & (self._alignment - 1):
            raise ValueError(f"alignment: expected a power of two, got {alignment}")
        self._block = bool(block_on_exhaustion)
        self._timeout = default_timeout
        self._max_regions = None if max_regions is None else _whole("max_regions", max_regions)
        # Reentrant: a lease may be dropped by the collector, at any point of this class's own work.
        self._changed = threading.Condition(threading.RLock())
        self._idle: dict[int, list[_Region]] = {}  # by capacity; the last one released is lent first
        self._bytes = 0
        self._regions = 0
        self._lent = 0
        self._closed = False
        if prewarm_size is not None and prewarm_count:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """A lease of `size` bytes, whose content is undefined.

        When all that the pool may hold is lent, it waits for `timeout` seconds, or not at all with `block=False`, and
        raises PoolExhausted; PoolTimeout, a TimeoutError too, after a wait. More than the pool may ever hold is a
        ValueError.
        """
        size = _whole("size", size)
        capacity = self._capacity_for(size)
        timeout = self._timeout if timeout is None else timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                region = self._take(capacity)
                if region is not None:
                    self._lent += 1
                    return BufferLease(region, size, self._give_back)
                if not (self._block if block is None else block):
                    raise PoolExhausted(f"{size} bytes wanted; {self._lent} leases are out of {self._bytes} bytes")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise PoolTimeout(f"no lease of {size} bytes came back within {timeout} s")
                self._changed.wait(left)

    def buffer(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """The same as acquire, by the name that reads well in a `with`."""
        return self.acquire(size, block, timeout)

    def prewarm(self, size: int, count: int) -> None:
        """Sees to it that `count` leases of that size are ready, pages mapped. PoolExhausted if they can't all be."""
        capacity = self._capacity_for(_whole("size", size))
        if capacity > self._max_class:
            raise ValueError(f"prewarm: {size} bytes are more than max_size_class, of which none are kept")
        ready: list[_Region] = []
        try:
            for _ in range(_whole("count", count)):
                with self._changed:
                    region = self._take(capacity)
                    if region is None:
                        raise PoolExhausted(
                            f"prewarm: {len(ready)} leases of {size} bytes are all that the pool may hold"
                        )
                    self._lent += 1
                ready.append(region)
                region.populate()
        finally:
            for region in ready:
                self._give_back(region)

    def close(self) -> None:
        """Gives all memory back to the system; RuntimeError while leases are out. A second time it does nothing."""
        with self._changed:
            if self._closed:
                return
            if self._lent:
                raise RuntimeError(f"{self._lent} leases are still out: release them before the pool is closed")
            self._closed = True
            self._drop_idle(self._bytes)
            self._changed.notify_all()

    def __enter__(self) -> BufferPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._drop_idle(self._bytes)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._lent} lent, {self._bytes} bytes in {self._regions} regions"
        return f"<BufferPool, {state}>"

    def _capacity_for(self, size: int) -> int:
        capacity = max(self._min_class, _power_of_two(size))
        if capacity > self._max_class:
            capacity = -(-max(size, 1) // PAGE_BYTES) * PAGE_BYTES
        limit = min(self._max_bytes or SIZE_MAX, SIZE_MAX)
        if capacity > limit:
            raise ValueError(f"size: a lease of {size} bytes needs {capacity}, more than the pool's {limit}")
        return capacity

    def _take(self, capacity: int) -> _Region | None:
        """A region to lend, or None when the pool is exhausted."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        idle = self._idle.get(capacity)
        return idle.pop() if idle else self._get(capacity)

    def _get(self, capacity: int) -> _Region | None:
        """A new region, if need be in place of idle ones of other capacities. None: too much is lent."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        over = self._bytes + capacity - self._max_bytes if self._max_bytes else 0
        crowded = self._max_regions is not None and self._regions >= self._max_regions
        if over > 0 or crowded:
            if self._bytes - self._idle_bytes() + capacity > (self._max_bytes or SIZE_MAX):
                return None
            self._drop_idle(max(over, 1))
            if self._max_regions is not None and self._regions >= self._max_regions:
                return None
        region = _Region(capacity, self._alignment)
        code = self._store.register_buffer(region.ptr, capacity)
        if code != 0:
            raise RuntimeError(f"the store refused the pool's memory with {code}: is it set up?")
        self._bytes += capacity
        self._regions += 1
        return region

    def _idle_bytes(self) -> int:
        return sum(capacity * len(idle) for capacity, idle in self._idle.items())

    def _give_back(self, region: _Region) -> None:
        with self._changed:
            self._lent -= 1
            self._idle.setdefault(region.capacity, []).append(region)
            if self._closed or region.capacity > self._max_class:
                self._drop(region.capacity)
            self._changed.notify_all()

    def _drop_idle(self, at_least: int) -> None:
        """Gives idle regions back to the system, the largest first, until so many bytes are free or none is left."""
        aim = self._bytes - at_least
        for capacity in sorted(self._idle, reverse=True):
            while self._idle[capacity] and self._bytes > aim:
                self._drop(capacity)

    def _drop(self, capacity: int) -> None:
        region = self._idle[capacity].pop()
        self._bytes -= capacity
        self._regions -= 1
        self._store.unregister_buffer(region.ptr)  # refused by a store that was closed first, which is as good


RegisteredBufferLease = BufferLease
RegisteredBufferPool = BufferPool

__all__ = [
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "PoolExhausted",
    "PoolTimeout",
    "RegisteredBufferLease",
    "RegisteredBufferPool",
]


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if number < 0:
        raise ValueError(f"{name}: expected 0 or more, got {number}")
    return number


def _power_of_two(number: int) -> int:
    """The smallest one that is not less."""
    return 1 << max(number - 1, 0).bit_length()
