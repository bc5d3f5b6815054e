"""Server-sent events: a browser that follows a stream is told when there is something new to show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from opicflow.pipelines.serve.sources import LiveSource, PageSource

_MOST_VIEWERS = 150
"""The most browsers that get news; the pages of others do not change by themselves."""
_KEEP_ALIVE_SECONDS = 15.0
"""Without news a comment is sent after so long: it shows whether the browser is still connected."""


class News:
    """The news of a source."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._viewers = 0

    async def answer(self, request: Request) -> Response:
        """Server-sent events: `news` whenever there is something new to show."""
        if not isinstance(self._source, LiveSource):
            raise HTTPException(HTTPStatus.NOT_FOUND, "this source does not change by itself: it has no news")
        if self._viewers >= _MOST_VIEWERS:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{_MOST_VIEWERS} browsers follow it already: load the page again to see changes",
            )
        return StreamingResponse(self._events(self._source), media_type="text/event-stream")

    async def _events(self, source: LiveSource) -> AsyncIterator[str]:
        self._viewers += 1
        try:
            seen = await source.watchers.wait(-1, 0)
            yield "retry: 3000\n\n"
            while not source.watchers.has_ended:
                views = await source.watchers.wait(seen, _KEEP_ALIVE_SECONDS)
                if views > seen:
                    yield f"event: news\ndata: {views}\n\n"
                elif not source.watchers.has_ended:
                    yield ":\n\n"
                seen = views
        finally:
            self._viewers -= 1
