"""The objects that this process keeps for runs of pipelines: ledgers, readers, connections. No Beam in here.

A runner makes, copies and drops the objects of stages as it likes, and state is bytes. Objects that have to outlast
them are kept here, by the name of their run and by their class, until the run is closed
(docs/decisions/beam.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """An object that is kept for a run. A run has one of each class."""

    def close(self) -> None:
        """End it: its run has ended."""


K = TypeVar("K", bound=Closable)

_runs: dict[str, dict[Callable[..., Closable], Any]] = {}
_lock = Lock()


def kept(run: str, kind: Callable[..., K], *arguments: object) -> K:
    """Return the object of this class that is kept for a run; its first use makes it with these arguments."""
    with _lock:
        objects = _runs.setdefault(run, {})
        if kind not in objects:
            objects[kind] = kind(*arguments)
        found: K = objects[kind]
        return found


def find_kept(run: str, kind: Callable[..., K]) -> K | None:
    """Return the object of this class that is kept for a run; None if it was not made."""
    return _runs.get(run, {}).get(kind)


def close_run(run: str) -> None:
    """Close all that is kept for a run, the newest first."""
    with _lock:
        objects = list(_runs.pop(run, {}).values())
    with ExitStack() as stack:
        for one in objects:
            stack.callback(one.close)


@contextmanager
def closing_run(run: str) -> Iterator[None]:
    """Close a run at the end."""
    try:
        yield
    finally:
        close_run(run)
