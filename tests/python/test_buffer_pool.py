"""The pool of buffers: leases, their views, limits, waiting, and the order in which pool, store and leases may end."""

import gc
import threading

import mooncake
import pytest
from conftest import MIB, TIMEOUT_S, pattern, run_python
from mooncake import buffer_pool
from mooncake import store as store_module
from mooncake.buffer_pool import BufferPool, PoolExhausted, PoolTimeout

KIB = 1 << 10


@pytest.fixture
def pool(store):
    pool = BufferPool(store, max_bytes=16 * MIB)
    yield pool
    pool.close()


def test_it_is_one_class_under_all_its_names():
    assert mooncake.BufferPool is mooncake.RegisteredBufferPool is buffer_pool.RegisteredBufferPool
    assert mooncake.BufferPool is store_module.BufferPool is store_module.RegisteredBufferPool is BufferPool
    assert store_module.BufferLease is store_module.RegisteredBufferLease is buffer_pool.BufferLease
    assert store_module.BufferLeaseView is store_module.RegisteredBufferLeaseView


def test_objects_are_read_into_a_lease(store):
    """The example of the package's documents, with its order of release."""
    payload = bytes(range(256)) * 4096
    store.put("key", payload)
    pool = BufferPool(store)
    try:
        with pool.buffer(1024 * 1024) as lease:
            n = store.get_into("key", lease.ptr, lease.size)
            assert n == 1024 * 1024
            view = lease.buffer[:n]
            try:
                assert bytes(view) == payload
            finally:
                del view
    finally:
        pool.close()


def test_objects_are_put_from_a_lease(store, pool):
    with pool.buffer(5) as lease:
        lease.buffer[:] = b"hello"
        assert store.put_from("key", lease.ptr, lease.size) == 0
    assert store.get("key") == b"hello"


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 131073, 16 * MIB])
def test_a_lease_has_the_size_that_was_asked_for(pool, size):
    with pool.buffer(size) as lease:
        assert (lease.size, len(lease.buffer)) == (size, size)
        assert lease.ptr > 0 and not lease.buffer.readonly
        lease.buffer[:] = pattern(size)
        assert lease.buffer == pattern(size)


@pytest.mark.parametrize("alignment", [1, 64, 4096, 1 << 16, 8 * MIB])
def test_leases_are_aligned(store, alignment):
    with BufferPool(store, alignment=alignment) as pool:
        leases = [pool.acquire(100) for _ in range(3)]
        assert all(lease.ptr % alignment == 0 for lease in leases)
        for lease in leases:
            lease.buffer[:] = pattern(100)
            lease.release()


def test_memory_is_registered_once_and_used_again(store, pool):
    with pool.buffer(100000) as lease:
        first = lease.ptr
    assert store.register_buffer(first, 10) == -600
    with pool.buffer(70000) as lease:
        assert lease.ptr == first
    pool.close()
    assert store.register_buffer(first, 10) == 0


def test_leases_never_share_memory(pool):
    leases = [pool.acquire(64 * KIB) for _ in range(64)]
    for number, lease in enumerate(leases):
        lease.buffer[:] = bytes([number]) * (64 * KIB)
    assert all(lease.buffer == bytes([number]) * (64 * KIB) for number, lease in enumerate(leases))
    for lease in leases:
        lease.release()


# ---- Release -------------------------------------------------------------------------------------------------------


def test_a_released_lease_can_not_be_used(pool):
    lease = pool.acquire(4096)
    lease.release()
    lease.release()
    for use in (lambda: lease.ptr, lambda: lease.size, lambda: lease.buffer):
        with pytest.raises(ValueError):
            use()


def test_a_lease_with_living_views_stays(pool):
    lease = pool.acquire(4096)
    view = lease.buffer[10:20]
    with pytest.raises(BufferError):
        lease.release()
    view[:] = b"0123456789"
    assert bytes(lease.buffer[10:20]) == b"0123456789"
    with pytest.raises(RuntimeError):
        pool.close()
    del view
    lease.release()


def test_numpy_arrays_of_a_lease_are_views(pool):
    numpy = pytest.importorskip("numpy")
    lease = pool.acquire(4096)
    array = numpy.frombuffer(lease.buffer, dtype=numpy.uint8)[5:]
    with pytest.raises(BufferError):
        lease.release()
    array[:] = 7
    del array
    lease.release()


def test_the_end_of_a_with_block_tells_of_living_views(pool):
    with pytest.raises(BufferError):
        with pool.buffer(4096) as lease:
            view = lease.buffer
    del view
    lease.release()


def test_an_error_in_a_with_block_is_the_error_that_is_seen(pool):
    with pytest.raises(KeyError):
        with pool.buffer(4096) as lease:
            view = lease.buffer
            raise KeyError("the reason")
    with pytest.raises(RuntimeError):
        pool.close()  # the view still holds the memory
    del view
    pool.close()


def test_a_lease_that_is_dropped_goes_back_with_its_last_view(store):
    pool = BufferPool(store, max_bytes=64 * KIB)
    lease = pool.acquire(1000)
    view = memoryview(lease.buffer)[:3]
    view[:] = b"abc"
    del lease
    gc.collect()
    with pytest.raises(PoolExhausted):
        pool.acquire(1000, block=False)
    assert bytes(view) == b"abc"
    view.release()
    again = pool.acquire(1000, block=False)
    again.release()
    pool.close()


def test_a_lease_that_is_dropped_without_views_goes_back_at_once(store):
    pool = BufferPool(store, max_bytes=64 * KIB)
    for _ in range(10):
        pool.acquire(1000, block=False)
    pool.close()


# ---- Limits --------------------------------------------------------------------------------------------------------


def test_an_exhausted_pool_refuses_or_waits_as_asked(pool):
    leases = [pool.acquire(MIB) for _ in range(16)]
    with pytest.raises(PoolExhausted):
        pool.acquire(1, block=False)
    with pytest.raises(PoolTimeout) as raised:
        pool.acquire(MIB, timeout=0.05)
    assert isinstance(raised.value, (TimeoutError, RuntimeError))
    for lease in leases:
        lease.release()


def test_a_waiter_gets_what_another_thread_releases(pool):
    leases = [pool.acquire(MIB) for _ in range(16)]
    waiting, got = threading.Event(), []

    def wait():
        waiting.set()
        got.append(pool.acquire(MIB, timeout=TIMEOUT_S))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiting.wait(TIMEOUT_S)
    leases.pop().release()
    waiter.join(TIMEOUT_S)
    assert len(got) == 1
    for lease in leases + got:
        lease.release()


def test_closing_is_refused_while_leases_are_out_and_ends_waiting(pool):
    lease = pool.acquire(MIB)
    with pytest.raises(RuntimeError):
        pool.close()
    lease.release()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError):
        pool.acquire(1)
    with pytest.raises(RuntimeError):
        pool.prewarm(1, 1)


def test_the_pools_own_settings_rule_waiting(store):
    with BufferPool(store, max_bytes=64 * KIB, block_on_exhaustion=False) as pool, pool.buffer(1):
        with pytest.raises(PoolExhausted):
            pool.acquire(1)
        with pytest.raises(PoolTimeout):
            pool.acquire(1, block=True, timeout=0.01)
    with BufferPool(store, max_bytes=64 * KIB, default_timeout=0.01) as pool, pool.buffer(1):
        with pytest.raises(PoolTimeout):
            pool.acquire(1)


def test_idle_memory_of_one_size_makes_room_for_another(pool):
    small = [pool.acquire(64 * KIB) for _ in range(256)]
    with pytest.raises(PoolExhausted):
        pool.acquire(16 * MIB, block=False)
    for lease in small:
        lease.release()
    for size in (16 * MIB, 8 * MIB, 1, MIB):
        pool.acquire(size, block=False).release()


def test_regions_are_limited(store):
    with BufferPool(store, max_regions=2) as pool:
        first, second = pool.acquire(1), pool.acquire(MIB)
        with pytest.raises(PoolExhausted):
            pool.acquire(1, block=False)
        first.release()
        pool.acquire(2 * MIB, block=False).release()
        second.release()


def test_leases_beyond_the_largest_class_are_not_kept(store):
    with BufferPool(store, max_size_class=MIB) as pool:
        lease = pool.acquire(MIB + 1)
        address = lease.ptr
        lease.release()
        assert store.register_buffer(address, 1) == 0  # it went back to the system
        with pytest.raises(ValueError):
            pool.prewarm(MIB + 1, 1)


def test_prewarmed_leases_are_ready(store):
    with BufferPool(store, max_bytes=4 * MIB, prewarm_size=MIB, prewarm_count=3) as pool:
        assert "3145728 bytes in 3 regions" in repr(pool)
        pool.prewarm(MIB, 2)  # are ready already
        pool.prewarm(MIB, 4)
        with pytest.raises(PoolExhausted):
            pool.prewarm(MIB, 5)
        leases = [pool.acquire(MIB, block=False) for _ in range(4)]
        for lease in leases:
            lease.release()


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"alignment": 0}, ValueError),
        ({"alignment": 3}, ValueError),
        ({"alignment": -4096}, ValueError),
        ({"max_bytes": -1}, ValueError),
        ({"max_bytes": "16MB"}, TypeError),
        ({"min_size_class": 1.5}, TypeError),
        ({"max_regions": -1}, ValueError),
        ({"max_bytes": MIB, "prewarm_size": MIB, "prewarm_count": 2}, PoolExhausted),
    ],
)
def test_settings_that_are_none_are_refused(store, arguments, error):
    with pytest.raises(error):
        BufferPool(store, **arguments)


@pytest.mark.parametrize(
    "size, error",
    [
        (-1, ValueError),
        (16 * MIB + 1, ValueError),
        (1 << 63, ValueError),
        (1 << 64, ValueError),
        ("1", TypeError),
        (1.0, TypeError),
    ],
)
def test_sizes_that_no_pool_can_have_are_refused(pool, size, error):
    with pytest.raises(error):
        pool.acquire(size)


# ---- Threads and ends ----------------------------------------------------------------------------------------------


def test_threads_share_a_pool(store):
    pool = BufferPool(store, max_bytes=256 * KIB)
    errors = []

    def work(number):
        try:
            for i in range(200):
                with pool.buffer(1000 + i, timeout=TIMEOUT_S) as lease:
                    mark = bytes([number]) * lease.size
                    lease.buffer[:] = mark
                    assert lease.buffer == mark
        except BaseException as error:  # noqa: BLE001 - a failed assertion is one
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not errors and not any(thread.is_alive() for thread in threads)
    pool.close()


OPEN = """
import gc, sys
from mooncake.store import MooncakeDistributedStore
from mooncake.buffer_pool import BufferPool
s = MooncakeDistributedStore()
assert s.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
p = BufferPool(s, max_bytes=8 << 20)
l = p.acquire(4096)
"""


@pytest.mark.parametrize(
    "order",
    [
        "l.release(); p.close(); s.close()",
        "l.release(); s.close(); p.close()",
        "s.close(); l.release(); p.close()",
        "del l; p.close(); s.close()",
        "del p; l.release(); s.close()",
        "del s; l.release(); p.close()",
        "del s, p; gc.collect(); l.release()",
        "v = memoryview(l.buffer); v[:3] = b'abc'; s.close(); del l, p, s; gc.collect(); assert bytes(v[:3]) == b'abc'",
        "v = l.buffer; del l; s.close(); del p, s; v.release()",
        "v = l.buffer",
        "pass",
    ],
    ids=lambda order: order[:40],
)
def test_pool_store_and_leases_may_end_in_any_order(master, order):
    assert run_python(OPEN + order, master.address) == ""


def test_a_store_that_is_not_set_up_gives_no_leases():
    from mooncake.store import MooncakeDistributedStore

    pool = BufferPool(MooncakeDistributedStore())
    with pytest.raises(RuntimeError, match="-600"):
        pool.acquire(4096)
    pool.close()
