"""Lines of JSON between a crawler and its recorder."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Any

import orjson

_RECEIVED_BYTES = 1 << 16


class LineSocket:
    """Lines of JSON through a socket. Several threads may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._lock, self._rest = connected, threading.Lock(), b""
        self._arrivals = select.poll()  # `select` has a limit of 1,024 open files, which a crawl may exceed
        self._arrivals.register(connected, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. If the other end is closed, it is lost."""
        with self._lock, suppress(OSError):
            self._socket.sendall(orjson.dumps(message) + b"\n")

    def receive(self, timeout_seconds: float | None) -> list[dict[str, Any]]:
        """Return the messages that have come, once there are some; none if time is over first.

        Raises EOFError if the other end is closed.
        """
        while self._arrivals.poll(None if timeout_seconds is None else 1000 * timeout_seconds):
            try:
                data = self._socket.recv(_RECEIVED_BYTES)
            except OSError:
                data = b""
            if not data:
                raise EOFError
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [orjson.loads(line) for line in lines]
        return []

    def close(self) -> None:
        self._socket.close()
