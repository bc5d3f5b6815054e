"""Threads that work ahead of another one: they give way to it, and are some items ahead of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import suppress
from queue import Empty, Queue
from threading import Event, Thread, get_native_id
from typing import TypeVar

T = TypeVar("T")
_STEPS_BEHIND = 5


def give_way() -> None:
    """Let the processor prefer the other threads of this process to this one, until it ends.

    For threads that are ahead of the one that everything waits for. On Linux only: elsewhere threads have no priority
    of their own.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # not allowed: it works without
            thread = get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _STEPS_BEHIND)


def run_ahead(items: Generator[T, None, None], most: int) -> Generator[T, None, None]:
    """Yield the items, and raise an exception where `items` raises it. At most `most` wait to be taken.

    Closing this generator closes `items` in their thread, once the item that is being made is there.
    """
    waiting: Queue[tuple[T] | BaseException | None] = Queue(most)
    is_closed = Event()

    def produce() -> None:
        give_way()
        last: BaseException | None = None
        try:
            for item in items:
                waiting.put((item,))
                if is_closed.is_set():
                    break
        except BaseException as problem:  # the consumer raises it
            last = problem
        finally:
            items.close()
        if not is_closed.is_set():
            waiting.put(last)

    Thread(target=produce, name="ahead", daemon=True).start()
    try:
        while (found := waiting.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found[0]
    finally:
        is_closed.set()
        with suppress(Empty):  # the thread may wait for room
            while True:
                waiting.get_nowait()
