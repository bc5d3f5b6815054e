"""HTTP servers for tests, on free ports of this machine: a function answers every request."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class HttpRequest(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: Message
    body: bytes


class HttpAnswer(NamedTuple):
    """An answer, with headers beside its length."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def answering(
    answer: Callable[[HttpRequest], HttpAnswer], certificate: Path | None = None, keeps_alive: bool = False
) -> Iterator[str]:
    """Serve; with a certificate by TLS. Yields the address. `keeps_alive`: a connection has many requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps_alive else "HTTP/1.0"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(HttpRequest(self.command, self.path, self.headers, body))
            self.send_response(found.status)
            for name, value in (("Content-Type", found.kind), ("Content-Length", str(len(found.body))), *found.headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_POST = do_PUT = do_PATCH = respond

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
