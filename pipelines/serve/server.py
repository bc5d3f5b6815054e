"""Serves the pages on a port, until it is interrupted."""

from __future__ import annotations

import socket

import uvicorn
from starlette.applications import Starlette

from opicflow.pipelines.serve.access import ServeRefused, is_this_machine
from opicflow.pipelines.serve.connections import BoundedProtocol
from opicflow.pipelines.serve.sources import LiveSource, PageSource
from opicflow.pipelines.serve.web_app import web_app

_MOST_WAITING = 256


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and port; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_MOST_WAITING)
    except (OSError, OverflowError) as problem:
        listening.close()
        why = getattr(problem, "strerror", None) or "no such address"
        raise ServeRefused(f"--host {host}, --port {port}: {why}: name another port or host") from None
    return listening


def serve(source: PageSource, listening: socket.socket, host: str, token: str | None) -> None:
    """Answer requests until the process is interrupted."""
    names = ["localhost", "127.0.0.1", "[::1]", host] if is_this_machine(host) else None
    try:
        _Server(settings_of(web_app(source, token, names)), source).run(sockets=[listening])
    finally:
        if isinstance(source, LiveSource):
            source.close()


def settings_of(app: Starlette) -> uvicorn.Config:
    """Return the settings of the server of an application."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        http=BoundedProtocol,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )


class _Server(uvicorn.Server):
    """A server that ends the connections of viewers who wait for news when it stops."""

    def __init__(self, config: uvicorn.Config, source: PageSource) -> None:
        super().__init__(config)
        self._source = source

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections."""
        if isinstance(self._source, LiveSource):
            self._source.watchers.end()
        await super().shutdown(sockets)
