"""What `MooncakeDistributedStore.setup` is given, in either of its two forms, and what the client needs of it."""

from __future__ import annotations

import operator
import os
import re
import socket
from typing import Any, NoReturn
from urllib.parse import urlsplit

INVALID_PARAMS, RPC_FAIL, NOT_SUPPORTED = -600, -900, -1012

DEFAULT_MASTER = "127.0.0.1:50051"
DEFAULT_MASTER_PORT = 50051
DEFAULT_SIZE = 16 << 20
METADATA_TIMEOUT_S = 2.0
METADATA_PORTS = {"http": 80, "https": 443, "etcd": 2379, "redis": 6379}
# All that Mooncake's transports are called. Each means the same here: shared memory on one host, else TCP.
PROTOCOLS = frozenset(
    "tcp rdma efa nvmeof nvlink nvlink_intra musa hip barex cxl ascend ubshmem ub sunrise_link maca".split()
)
# Other spellings that callers use, and ours.
ALIASES = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


class Refused(Exception):
    """Set-up can't succeed: the code to answer, and why."""

    def __init__(self, code: int, reason: str):
        super().__init__(reason)
        self.code = code


def invalid(reason: str) -> NoReturn:
    raise Refused(INVALID_PARAMS, reason)


def parse(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The client's options. Raises Refused, and TypeError for arguments that fit neither form."""
    if (len(args) == 1 and not kwargs and isinstance(args[0], dict)) or (not args and list(kwargs) == ["config"]):
        return setup(**from_dict(args[0] if args else kwargs["config"]))
    for alias, name in ALIASES.items():
        if alias in kwargs:
            if name in kwargs or len(args) > (6 if name == "master_server_addr" else 5):
                raise TypeError(f"setup() got both {name} and {alias}, which mean the same")
            kwargs[name] = kwargs.pop(alias)
    return setup(*args, **kwargs)


def from_dict(config: dict[Any, Any]) -> dict[str, Any]:
    """The dict's values as setup() takes them: all are judged by their str, None counts as absent."""
    if not isinstance(config, dict):
        raise TypeError(f"setup(config): expected a dict, got {type(config).__name__}")
    given = {str(key): str(value) for key, value in config.items() if value is not None}
    for alias, name in ALIASES.items():
        given.setdefault(name, given.get(alias, ""))
    return {
        "local_hostname": given.get("local_hostname", ""),
        "metadata_server": given.get("metadata_server", ""),
        "global_segment_size": size_of(given, "global_segment_size"),
        "local_buffer_size": size_of(given, "local_buffer_size"),
        "protocol": given.get("protocol", "tcp"),
        "rdma_devices": given["rdma_devices"],
        "master_server_addr": given["master_server_addr"] or DEFAULT_MASTER,
        "tenant_id": given.get("tenant_id", "default"),
    }


def size_of(given: dict[str, str], name: str) -> int:
    if name not in given:
        return DEFAULT_SIZE
    found = SIZE.fullmatch(given[name])
    if found is None:
        invalid(f'{name} "{given[name]}": expected a size such as 67108864, "64MB" or "4 GB"')
    number, unit = found[1], found[2].lower()
    scale = 1024 ** " kmgt".index(unit) if unit else 1
    return int(float(number) * scale) if "." in number else int(number) * scale


def setup(
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
) -> dict[str, Any]:
    """The positional form, under the name that its TypeErrors carry."""
    texts = {
        "local_hostname": local_hostname,
        "metadata_server": metadata_server,
        "protocol": protocol,
        "rdma_devices": rdma_devices,
        "master_server_addr": master_server_addr,
        "tenant_id": tenant_id,
    }
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"setup(): {name}: expected a str, got {type(value).__name__}")
    sizes = {"global_segment_size": global_segment_size, "local_buffer_size": local_buffer_size}
    for name, size in sizes.items():
        if not 0 <= operator.index(size) < 1 << 63:
            invalid(f"{name} is {size}; expected 0 or more bytes")
    for name in ("local_hostname", "metadata_server"):
        if not texts[name].strip():
            invalid(f"{name} is missing")
    if protocol.lower() not in PROTOCOLS:
        invalid(f'protocol "{protocol}": expected tcp, rdma or another that Mooncake knows')
    if tenant_id not in ("", "default"):
        raise Refused(NOT_SUPPORTED, f'tenant_id "{tenant_id}": this store keeps no tenants apart')
    server = master_address(master_server_addr)
    token = find_token()
    check_metadata_server(metadata_server)
    return {
        "server": server,
        "hostname": local_hostname,
        "segment_bytes": operator.index(global_segment_size),
        "token": token,
        "tls_ca": os.environ.get("NANO_MOONCAKE_TLS_CA", ""),
        "takes_values": operator.index(local_buffer_size) > 0,
        "shared_memory": os.environ.get("NANO_MOONCAKE_STORE_TRANSPORT", "").lower() != "tcp",
    }


def master_address(text: str) -> str:
    """ "HOST:PORT" or "unix:PATH" of what may lack its port."""
    text = text.strip()
    if text.startswith("unix:"):
        return text
    if "://" in text or "," in text or not text:
        invalid(f'master_server_addr "{text}": expected one host:port')
    host, port = split_port(text, DEFAULT_MASTER_PORT)
    if not 0 < port < 65536:
        invalid(f'master_server_addr "{text}": expected a port from 1 to 65535')
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_port(text: str, default: int) -> tuple[str, int]:
    """Host and port of "host", "host:port", "[v6]", "[v6]:port" or a bare IPv6 address. A port that is none is -1."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, ""
    if not port:
        return host, default
    return host, int(port) if port.isascii() and port.isdigit() else -1


def check_metadata_server(text: str) -> None:
    """Nothing of ours is kept there, but a caller who names one is told, as ever, when nobody answers."""
    if text.strip().upper() == "P2PHANDSHAKE":
        return
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "etcd", text.strip()
    if scheme.lower() not in METADATA_PORTS:
        invalid(f'metadata_server "{text}": expected P2PHANDSHAKE or an address of http, https, etcd or redis')
    hosts = rest.split(",") if scheme.lower() == "etcd" else [urlsplit("//" + rest).netloc.rpartition("@")[2]]
    for host in hosts:
        try:
            address = split_port(host.strip().rstrip("/"), METADATA_PORTS[scheme.lower()])
            socket.create_connection(address, timeout=METADATA_TIMEOUT_S).close()
            return
        except (OSError, OverflowError) as error:
            reason = error
    raise Refused(RPC_FAIL, f"metadata_server {text}: {reason}; start it, or say P2PHANDSHAKE, which needs none")


def find_token() -> str:
    token = os.environ.get("NANO_MOONCAKE_TOKEN", "")
    path = os.environ.get("NANO_MOONCAKE_TOKEN_FILE", "")
    if token or not path:
        return token
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        invalid(f"NANO_MOONCAKE_TOKEN_FILE: {error}")
