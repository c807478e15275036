"""nano-mooncake's drop-in for the Python package `mooncake`: a store for KV caches that all processes of a host share.

`mooncake.store` has the store's client, `mooncake.buffer_pool` reusable memory to read into.
"""

# Other distributions may put modules of their own below `mooncake`.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)

from ._store import version as __version__
from .buffer_pool import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool", "__version__"]
