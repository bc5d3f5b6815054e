"""A made-up web on this machine for crawls by Scrapy: it counts the fetches, and records their order."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

from opicflow.pipelines.ranks.graph.csr import Graph
from support.http_server import HttpAnswer, HttpRequest, answering


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

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a fetch."""
        path = request.path
        self.fetched.append(path)
        self.seconds.append(monotonic())
        if self.answer_seconds:
            Event().wait(self.answer_seconds)
        if len(self.fetched) == self.busy_number:
            return HttpAnswer(429, b"", "text/html", (("Retry-After", str(self.busy_seconds)),))
        if path == "/robots.txt":
            return HttpAnswer(200, b"User-agent: *\nDisallow: /private/\n", "text/plain")
        if path.startswith("/moved/"):
            return HttpAnswer(301, b"", "text/html", (("Location", "/page/" + path.rpartition("/")[2]),))
        if path.startswith("/page/"):
            return self._answer_page(path, request.headers.get("If-None-Match"))
        status, body = {"/gone": (404, b"gone"), "/broken": (500, b"broken")}.get(path, (200, b"<html>odd</html>"))
        return HttpAnswer(status, body, "text/html; charset=utf-8")

    def _answer_page(self, path: str, known: str | None) -> HttpAnswer:
        if self.slow_seconds and int(path.rpartition("/")[2]) % 7 == 3:
            Event().wait(self.slow_seconds)
        body = self.body(path)
        etag = f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest()}"'
        if known == etag:
            self.not_modified.append(path)
            return HttpAnswer(304, b"", "text/html", (("ETag", etag),))
        return HttpAnswer(200, body, "text/html; charset=utf-8", (("ETag", etag),))


@contextmanager
def served(graph: Graph, answer_seconds: float = 0.0) -> Iterator[ScrapyWeb]:
    """Serve a web on a free port."""
    web = ScrapyWeb(graph, answer_seconds)
    with answering(web.answer, keeps_alive=True) as web.root:
        yield web


def is_free(folder: Path) -> bool:
    """Whether no process has the frontier of a folder."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
