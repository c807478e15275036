"""The names of Mooncake's transfer engine, for callers that import them beside the store's.

This version moves bytes through the store only: it has no transfers from one process's memory to another's. So
`initialize` refuses, with the reason on standard error, and callers fall back or stop there, before anything is lost.
"""

from __future__ import annotations

import enum

from . import _store

NOT_IMPLEMENTED = -303


class TransferOpcode(enum.IntEnum):
    """Which way a transfer goes, seen from who asks for it."""

    Read = 0
    Write = 1


class TransferEngine:
    """Refuses to be initialized; see the module."""

    __slots__ = ()

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Always -303: not implemented."""
        _store.log_error(
            f'mooncake: TransferEngine.initialize("{local_hostname}"): this version of nano-mooncake has no transfer '
            "engine; share bytes through mooncake.store, or install Mooncake's own package"
        )
        return NOT_IMPLEMENTED

    def get_rpc_port(self) -> int:
        """0: it listens nowhere."""
        return 0


__all__ = ["TransferEngine", "TransferOpcode"]
