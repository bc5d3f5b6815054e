"""Viewers who wait for the next view."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Watchers:
    """Viewers who wait for the next view, in the event loop of a server."""

    def __init__(self) -> None:
        self.has_ended = False
        self._lock = threading.Lock()
        self._views = 0
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    async def wait(self, seen: int, seconds: float) -> int:
        """Wait until there were more views than `seen`, for so many seconds at most; returns how many there were."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if self._views > seen or self.has_ended:
                return self._views
            self._waiting[future] = loop
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(future, seconds)
        with self._lock:
            self._waiting.pop(future, None)
            return self._views

    def notify(self) -> None:
        """Wake all who wait: there is another view."""
        with self._lock:
            self._views += 1
        self._wake()

    def end(self) -> None:
        """Wake all who wait: there will be no other view."""
        with self._lock:
            self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
