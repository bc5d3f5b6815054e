"""A made-up web on this machine for crawls by Scrapy: it counts the fetches, and records their order."""

from __future__ import annotations

import fcntl
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from time import monotonic

from opicflow.pipelines.ranks.graph.csr import Graph


class ScrapyWeb:
    """The pages of a graph at /page/N. A page links to others, to a mail address in the middle, and to odd pages."""

    def __init__(self, graph: Graph, answer_seconds: float = 0.0) -> None:
        self.graph, self.answer_seconds = graph, answer_seconds
        self.fetched: list[str] = []
        self.seconds: list[float] = []
        """When each was fetched, by a clock that only runs forward."""
        self.busy_number, self.busy_seconds = 0, 0
        """The fetch of this number is answered by 429, with a Retry-After of so many seconds."""
        self.not_modified: list[str] = []
        """The pages of which a crawler had the content, by its etag."""
        self.slow_seconds = 0.0
        """How long every seventh page takes, from page 3 on."""
        self.root = ""

    def body(self, path: str) -> bytes:
        """Return a page."""
        number = int(path.rpartition("/")[2])
        links = self.graph.targets[self.graph.starts[number] : self.graph.starts[number + 1]].tolist()
        anchors = [f'<a href="/page/{link}">{link}</a>' for link in links]
        anchors.insert(
            len(anchors) // 2, '<a href="mailto:a@b.example">mail</a> <a rel="nofollow" href="/odd/1">odd</a>'
        )
        if number % 10 == 0:
            anchors.append(f'<a href="/moved/{number + 1}">moved</a> <a href="/gone">gone</a> <a href="/broken">b</a>')
            anchors.append('<a href="/private/1">private</a>')
        return f"<html><body><h1>Page {number}</h1>{' '.join(anchors)}{'<p>text</p>' * 200}</body></html>".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: ScrapyWeb

    def do_GET(self) -> None:
        path = self.path
        self.web.fetched.append(path)
        self.web.seconds.append(monotonic())
        if self.web.answer_seconds:
            Event().wait(self.web.answer_seconds)
        if len(self.web.fetched) == self.web.busy_number:
            self._answer(429, b"", "text/html", ("Retry-After", str(self.web.busy_seconds)))
        elif path == "/robots.txt":
            self._answer(200, b"User-agent: *\nDisallow: /private/\n", "text/plain")
        elif path.startswith("/moved/"):
            self._answer(301, b"", "text/html", ("Location", "/page/" + path.rpartition("/")[2]))
        elif path == "/gone":
            self._answer(404, b"gone")
        elif path == "/broken":
            self._answer(500, b"broken")
        elif path.startswith("/page/"):
            self._answer_page(path)
        else:
            self._answer(200, b"<html>odd</html>")

    def _answer_page(self, path: str) -> None:
        if self.web.slow_seconds and int(path.rpartition("/")[2]) % 7 == 3:
            Event().wait(self.web.slow_seconds)
        body = self.web.body(path)
        etag = f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            self.web.not_modified.append(path)
            self._answer(304, b"", "text/html", ("ETag", etag))
        else:
            self._answer(200, body, "text/html; charset=utf-8", ("ETag", etag))

    def _answer(
        self, status: int, body: bytes, kind: str = "text/html; charset=utf-8", *headers: tuple[str, str]
    ) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def answered_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port. Yields the address."""
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def served(graph: Graph, answer_seconds: float = 0.0) -> Iterator[ScrapyWeb]:
    """Serve a web on a free port."""
    web = ScrapyWeb(graph, answer_seconds)
    with answered_by(type("Handler", (_Handler,), {"web": web})) as web.root:
        yield web


def is_free(folder: Path) -> bool:
    """Whether no process has the frontier of a folder."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
