"""Records of results as columns of a table: their rows have the names and values that Avro has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.ledger.plan.crawl_orders import BY, WHY
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY, KNOWN_FROM
from opicflow.schemas.arrays import Array

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], Any], type]
"""The name of a column of a table, its value in a row of a file, and its type."""


def milliseconds(value: Any) -> int:
    """A time in milliseconds; 0 for none."""
    return 0 if value is None else int(value)


def _or_never(seconds: float | None) -> float:
    return np.inf if seconds is None else seconds


def _plain(name: str, kind: type = np.float64) -> Column:
    return name, lambda row: row[name], kind


def _word(name: str, field: str, words: tuple[str, ...]) -> Column:
    return name, lambda row: words.index(row[field]), np.uint8


_ID: Column = ("pages", lambda row: int(row["page"], 16), np.uint64)
IMPORTANCE: tuple[Column, ...] = (
    _ID,
    *map(_plain, ("importance", "window_importance", "score", "trend_per_day")),
    _plain("visits", np.int64),
    ("last_visit_ms", lambda row: milliseconds(row["last_visit"]), np.int64),
    ("last_outcome", lambda row: Outcome[row["last_outcome"]], np.uint8),
    _plain("measured", np.uint8),
)
SCHEDULES: tuple[Column, ...] = (
    _ID,
    ("due_second", lambda row: milliseconds(row["due"]) // 1000, np.int64),
    ("interval_seconds", lambda row: _or_never(row["interval_seconds"]), np.float64),
    _word("decided_by", "decided_by", DECIDED_BY),
    *map(_plain, ("changes_per_day", "changes_error")),
    _word("known_from", "changes_known_from", KNOWN_FROM),
    ("category", lambda row: row["category"] or 0, np.uint8),
)
ORDERS: tuple[Column, ...] = (
    _ID,
    _word("why", "why", WHY),
    _word("by", "by", BY),
    _plain("priority"),
    ("not_before_second", lambda row: milliseconds(row["not_before"]) // 1000, np.int64),
    ("ordered_second", lambda row: milliseconds(row["ordered_at"]) // 1000, np.int64),
    ("expires_ms", lambda row: milliseconds(row["expires_at"]), np.int64),
)


def columns_of(rows: Sequence[Row], columns: Sequence[Column]) -> dict[str, Array]:
    """Return rows as columns."""
    return {name: np.array([value(row) for row in rows], kind) for name, value, kind in columns}
