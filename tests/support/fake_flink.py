"""A fake of Flink's REST interface over real HTTP: the responses are in a dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Responses:
    """Responses in order; the last one is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def next(self) -> Any:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class FakeFlink:
    """Responds to `"GET /overview"` with the value of that key in `answers`.

    A value is JSON, bytes, or (status, value).
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, Any]] = []
        self.master = ""

    def answer(self, request: str, body: Any) -> tuple[int, bytes]:
        self.requests.append((request, body))
        found = self.answers.get(request, (404, {"errors": [f"Not found: {request.partition(' ')[2]}"]}))
        if isinstance(found, Responses):
            found = found.next()
        status, content = found if isinstance(found, tuple) else (200, found)
        return status, content if isinstance(content, bytes) else json.dumps(content).encode()


@contextmanager
def fake_flink() -> Iterator[FakeFlink]:
    """Run a fake cluster at a free port."""
    fake = FakeFlink()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = fake.answer(f"{self.command} {self.path}", json.loads(body) if body else None)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, format: str, *arguments: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        fake.master = f"127.0.0.1:{server.server_port}"
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
