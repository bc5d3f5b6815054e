"""A fake of Flink's REST interface over real HTTP: the responses are in a dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.http_server import HttpAnswer, HttpRequest, answering


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

    def answer(request: HttpRequest) -> HttpAnswer:
        body = json.loads(request.body) if request.body else None
        return HttpAnswer(*fake.answer(f"{request.method} {request.path}", body))

    with answering(answer) as address:
        fake.master = address.removeprefix("http://")
        yield fake
