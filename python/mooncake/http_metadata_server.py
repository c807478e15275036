"""The transfer engine's metadata over HTTP, inside a Python process.

    server = KVBootstrapServer(port=8080)
    server.run()                       # nodes take http://127.0.0.1:8080/metadata as their metadata server
    ...
    server.close()

Answers are those of the program `mooncake_http_metadata_server`, which is the one to run as a process of its own
(`python -m mooncake.http_metadata_server` becomes it). Like that program it listens on loopback unless told otherwise,
because whoever reaches it can change every entry.
"""

from __future__ import annotations

import enum
import http.server
import threading
import urllib.parse
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NoReturn, Protocol

from .cli import run

KEYS_MAX = 1 << 17
BODY_BYTES_MAX = 8 << 20  # of one key
TOTAL_BYTES_MAX = 256 << 20  # keys and bodies together
IDLE_TIMEOUT_S = 60.0  # of a client's connection
EXCLUSIVE = "rpc_meta"  # keys with this in them say where a server is reached: another must not take one over unnoticed
VERBS = ("GET", "PUT", "DELETE")
JSON = "application/json"  # of texts too, as clients know it
PLAIN = "text/plain"


class KVPoll(enum.Enum):
    """How a server, or a transfer, is getting on."""

    Failed = 0
    Bootstrapping = 1
    WaitingForInput = 2
    Transferring = 3
    Success = 4


class MetadataRequest(Protocol):
    """What a request has to have: `query` maps parameters to their decoded values."""

    method: str
    query: dict[str, str]

    async def read(self) -> bytes: ...


@dataclass(frozen=True)
class MetadataAnswer:
    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.body.decode()


def answer(status: int, text: str) -> MetadataAnswer:
    return MetadataAnswer(status, text.encode())


class KVBootstrapServer:
    """Keeps what nodes publish about themselves. Everything is in memory and ends with the object.

    Thread-safe. `store` is the table, key to body: read it as you like, but change it by requests.
    """

    def __init__(self, port: int, host: str = "127.0.0.1"):
        """Listens nowhere yet. Port 0: a free one, which `port` names once it runs."""
        self.port, self.host = port, host
        self.store: dict[str, bytes] = {}
        self.thread: threading.Thread | None = None
        self._bytes = 0
        self._lock = threading.Lock()
        self._http: http.server.ThreadingHTTPServer | None = None

    def run(self) -> threading.Thread:
        """Serves from a thread of its own, and returns when it listens. OSError where it can't."""
        if self._http is not None:
            raise RuntimeError(f"the metadata server of port {self.port} runs already")
        self._http = _Http((self.host, self.port), self)
        self.port = self._http.server_address[1]
        self.thread = threading.Thread(target=self._http.serve_forever, name="metadata-server", daemon=True)
        self.thread.start()
        return self.thread

    def poll(self) -> KVPoll:
        """Success while it serves, else Failed."""
        return KVPoll.Success if self.thread is not None and self.thread.is_alive() else KVPoll.Failed

    def close(self) -> None:
        """Stops serving; `store` stays. Harmless before `run` and a second time."""
        server, self._http = self._http, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        if self.thread is not None:
            self.thread.join()

    def handle(self, method: str, key: str, body: bytes) -> MetadataAnswer:
        """The answer to a request for /metadata, whatever server it came by. `body` is that of a PUT."""
        if method not in VERBS:
            allowed = ", ".join(VERBS)
            text = f"/metadata takes {allowed} only"
            return MetadataAnswer(HTTPStatus.METHOD_NOT_ALLOWED, text.encode(), PLAIN, {"Allow": allowed})
        key = key.strip()
        if not key:
            return answer(HTTPStatus.BAD_REQUEST, "metadata key is required")
        if method == "GET":
            return self._get(key)
        return self._put(key, body) if method == "PUT" else self._delete(key)

    async def _handle_metadata(self, request: MetadataRequest) -> MetadataAnswer:
        """handle() of a request of an asynchronous server."""
        body = await request.read() if request.method == "PUT" else b""
        return self.handle(request.method, request.query.get("key", ""), bytes(body))

    def _get(self, key: str) -> MetadataAnswer:
        with self._lock:
            body = self.store.get(key)
        return answer(HTTPStatus.NOT_FOUND, "metadata not found") if body is None else MetadataAnswer(200, body)

    def _put(self, key: str, body: bytes) -> MetadataAnswer:
        if len(body) > BODY_BYTES_MAX:
            return too_large(len(body))
        with self._lock:
            old = self.store.get(key)
            if old is not None and EXCLUSIVE in key:
                if old == body:
                    return answer(HTTPStatus.OK, "metadata unchanged")
                return answer(HTTPStatus.BAD_REQUEST, "Duplicate rpc_meta key not allowed")
            if old is None and len(self.store) >= KEYS_MAX:
                return full(f"{len(self.store)} keys, delete some first")
            total = self._bytes + len(body) + (size_of(key) if old is None else -len(old))
            if total > TOTAL_BYTES_MAX:
                return full(f"{total} bytes would be more than {TOTAL_BYTES_MAX}, delete some keys first")
            self.store[key], self._bytes = body, total
        return answer(HTTPStatus.OK, "metadata updated")

    def _delete(self, key: str) -> MetadataAnswer:
        with self._lock:
            body = self.store.pop(key, None)
            if body is None:
                return answer(HTTPStatus.NOT_FOUND, "metadata not found")
            self._bytes -= size_of(key) + len(body)
        return answer(HTTPStatus.OK, "metadata deleted")


def size_of(key: str) -> int:
    return len(key.encode("utf-8", "surrogateescape"))


def too_large(size: int) -> MetadataAnswer:
    return answer(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"metadata body of {size} bytes is larger than {BODY_BYTES_MAX}"
    )


def full(reason: str) -> MetadataAnswer:
    return answer(HTTPStatus.INSUFFICIENT_STORAGE, f"metadata is full: {reason}")


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that keeps its connection must not hold up close()

    def __init__(self, address: tuple[str, int], metadata: KVBootstrapServer):
        self.metadata = metadata
        super().__init__(address, _Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Connection(http.server.BaseHTTPRequestHandler):
    """One client's requests, one after another."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "nano-mooncake", ""
    timeout = IDLE_TIMEOUT_S
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news either."""

    def handle_any(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if (size := self.body_bytes()) is None:
            self.close_connection = True  # where the next request begins can't be known
            self.respond(answer(HTTPStatus.LENGTH_REQUIRED, "metadata body: expected a Content-Length"))
        elif size > BODY_BYTES_MAX:
            self.close_connection = True
            self.respond(too_large(size))
        else:
            body = self.rfile.read(size)
            if url.path == "/metadata":
                given = urllib.parse.parse_qs(url.query, keep_blank_values=True, errors="surrogateescape").get("key")
                self.respond(self.server.metadata.handle(self.command, given[0] if given else "", body))
            elif url.path == "/health":
                self.respond(MetadataAnswer(HTTPStatus.OK, b"OK", PLAIN))
            else:
                text = b"there is nothing here but /metadata?key=KEY and /health"
                self.respond(MetadataAnswer(HTTPStatus.NOT_FOUND, text, PLAIN))

    def body_bytes(self) -> int | None:
        """How many bytes of body follow; None when that isn't told as a number."""
        if "Transfer-Encoding" in self.headers:
            return None
        length = self.headers.get("Content-Length", "0").strip()
        return int(length) if length.isascii() and length.isdigit() else None

    def respond(self, reply: MetadataAnswer) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = do_PATCH = handle_any


def main() -> NoReturn:
    """`python -m mooncake.http_metadata_server` is `mooncake_http_metadata_server`."""
    run("mooncake_http_metadata_server")


__all__ = ["KVBootstrapServer", "KVPoll", "MetadataAnswer", "MetadataRequest", "main"]

if __name__ == "__main__":
    main()
