"""Connections of `opicflow serve`: slow clients and busy moments keep neither other viewers nor health checks out."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from opicflow.pipelines.serve.access import is_this_machine
from opicflow.pipelines.serve.http_answers import json_answer

REQUEST_SECONDS = 10.0
"""A request, with its body, that is not complete so long after its first byte ends its connection."""
MOST_REQUESTS = 200
"""The most requests that are answered at once."""
MOST_CONNECTIONS = 1_000
MOST_OF_ADDRESS = 100
"""The most connections of one other machine."""


class BoundedProtocol(H11Protocol):
    """A connection that ends if its request does not arrive in time, or if there are too many."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(cast(asyncio.Transport, transport))
        address = self._address
        of_address = [one for one in self.connections if isinstance(one, BoundedProtocol) and one._address == address]
        is_crowd = len(of_address) > MOST_OF_ADDRESS and not is_this_machine(address)
        if is_crowd or len(self.connections) > MOST_CONNECTIONS:
            self.transport.abort()
        self._watch()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, problem: Exception | None) -> None:
        """Stop waiting."""
        self._stop_watching()
        super().connection_lost(problem)

    def _watch(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # the request is complete
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


_UNLIMITED = ("/healthz", "/login")
"""Health checks are always answered; a token that is still arriving takes no work."""


class RequestLimit:
    """Answers a limited number of requests at once; others get 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope.get("path") in _UNLIMITED:
            await app(scope, receive, send)
            return
        if self._requests >= MOST_REQUESTS:
            app = json_answer({"error": "too many requests at once: try again"}, HTTPStatus.SERVICE_UNAVAILABLE)
        self._requests += 1
        try:
            await app(scope, receive, send)
        finally:
            self._requests -= 1
