"""The store's client, with the names and answers of Mooncake's `mooncake.store`.

    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", "127.0.0.1:50051") == 0
    assert store.put("key", b"value") == 0
    assert store.get("key") == b"value"

On the master's host bytes go through shared memory, whatever `protocol` says; from other hosts they go over TCP.
Numbers below 0 are codes: -200 no room, -600 wrong arguments or not set up, -704 no such object, -706 used lately,
-900 the master can't be reached; README has more.
"""

from __future__ import annotations

from typing import Any, overload

from . import _setup, _store, _tensors
from ._parallelism import ParallelAxis, ReadTarget, TensorParallelism
from ._store import (  # members of the enums too, as Mooncake has them
    ACTIVATION,
    COMPLETE,
    FAILED,
    GENERAL,
    GRADIENT,
    INITIALIZED,
    KVCACHE,
    METADATA,
    OPTIMIZER_STATE,
    PROCESSING,
    REMOVED,
    SAMPLE,
    TENSOR,
    UNDEFINED,
    UNKNOWN,
    WEIGHT,
    BufferHandle,
    BufferLeaseView,
    Descriptor,
    MemoryDescriptor,
    MooncakeHostMemAllocator,
    ObjectDataType,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    bind_to_numa_node,
)
from .buffer_pool import BufferLease, BufferPool, RegisteredBufferLease, RegisteredBufferPool

RegisteredBufferLeaseView = BufferLeaseView


class MooncakeDistributedStore(_tensors.TensorCalls):
    """A client of the store. Thread-safe; calls give up the interpreter lock unless they are over in microseconds.

    Before `setup` and after `close` each call answers -600, or finds nothing. A forked child has to set up its own.
    """

    __slots__ = ()

    @overload
    def setup(
        self,
        local_hostname: str,
        metadata_server: str,
        global_segment_size: int,
        local_buffer_size: int,
        protocol: str,
        rdma_devices: str,
        master_server_addr: str,
        engine: object = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
    ) -> int: ...

    @overload
    def setup(self, config: dict[str, Any]) -> int: ...

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """Connects to the master and brings it a segment of `global_segment_size` bytes; with 0 it only uses others'.

        Returns 0, also when it is set up already; or a code, with the reason in one line on standard error.

        `master_server_addr` (or `master_server_address`) is "host:port", "host" with the default port 50051, or
        "unix:PATH". `protocol` "tcp" means: no RDMA; on the master's host it is shared memory all the same.
        `metadata_server` is "P2PHANDSHAKE" or the URL of a server that has to answer; nothing is kept there.
        With a `local_buffer_size` of 0 it takes no values: `put` and the like answer -600, those that take addresses
        work. Of any other size, `rdma_devices` (or `device_name`) and `engine` nothing is needed.

        A dict has the same names as keys, and values of any type that have a str; sizes may be "512MB" or "4 GB". Only
        `local_hostname` and `metadata_server` are required, and keys it doesn't know are ignored.

        A server beyond this host may want a token: the environment's NANO_MOONCAKE_TOKEN, or the content of the file
        NANO_MOONCAKE_TOKEN_FILE. One that speaks TLS takes NANO_MOONCAKE_TLS_CA, the file of the authority that signed
        its certificate. NANO_MOONCAKE_STORE_TRANSPORT=tcp does without shared memory, for measurements.
        """
        try:
            options = _setup.parse(*args, **kwargs)
        except _setup.Refused as refused:
            _store.log_error(f"mooncake: setup: {refused}")
            return refused.code
        return self._connect(**options)


__all__ = [
    "ACTIVATION",
    "COMPLETE",
    "FAILED",
    "GENERAL",
    "GRADIENT",
    "INITIALIZED",
    "KVCACHE",
    "METADATA",
    "OPTIMIZER_STATE",
    "PROCESSING",
    "REMOVED",
    "SAMPLE",
    "TENSOR",
    "UNDEFINED",
    "UNKNOWN",
    "WEIGHT",
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "MemoryDescriptor",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TensorParallelism",
    "bind_to_numa_node",
]
