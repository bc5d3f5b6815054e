"""Waiting for what happens elsewhere, with a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

PATIENCE_SECONDS = 420.0
"""Other programs may use the machine too. If a worker is killed before it has opened its data channel, Beam waits three
minutes for it before Flink restarts the job."""


@dataclass(frozen=True)
class Pending:
    """Why a condition does not hold yet."""

    why: str


def wait_for(what: str, done: Callable[[], Any], limit_seconds: float = PATIENCE_SECONDS) -> Any:
    """Call `done` until it returns something true, and return that. Raises `AssertionError` with the last result."""
    give_up_at = monotonic() + limit_seconds
    while True:
        last = done()
        if last and not isinstance(last, Pending):
            return last
        if monotonic() > give_up_at:
            raise AssertionError(f"{what}: not in {limit_seconds:.0f} s; last: {last}")
        threading.Event().wait(0.1)
