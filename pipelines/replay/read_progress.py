"""How far the reading of a log is, for people who wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """How far a replay is. `done` and `total` are in `unit`; None: not known."""

    events: int
    pages: int | None
    done: int
    total: int | None
    unit: str
    seconds: float
