"""The refresh rows of pages: in memory only of pages that were visited or ordered, in a snapshot one for every slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from opicflow.pipelines.ledger.pages.layout import REFRESH_ROW, Book, Table
from opicflow.pipelines.ledger.pages.space import Space
from opicflow.schemas.arrays import Array, Ints

_SLOTS_AT_ONCE = 1 << 16
_WORDS = REFRESH_ROW.itemsize // 8


def rows_of(table: Table, slots: Ints | slice) -> Any:
    """A copy of the refresh rows of the pages at some slots, with their intervals; else zero for pages without one."""
    rows = table.refresh[table.refresh_row[slots]]
    rows["interval"] = table.interval[slots]
    return rows


def field_of(table: Table, name: str, slots: Ints | slice) -> Array:
    """A copy of one field of the refresh rows of the pages at some slots."""
    field: Array = table.refresh[name][table.refresh_row[slots]]
    return field


def are_apart(table: Table, book: Book) -> bool:
    """Whether no two slots have the same row of their own, all rows are counted, and the common one is all zero."""
    own = table.refresh_row[table.refresh_row != 0]
    is_taken = np.zeros(len(table.refresh), np.bool_)
    is_taken[own] = True
    return is_taken.sum() == len(own) == book.store[0].refresh_rows and not table.refresh[:1].view(np.uint64).any()


def stored_rows(table: Table, slots: int) -> Iterator[Array]:
    """Yield the rows of the first slots as a snapshot stores them, some at a time."""
    for first in range(0, slots, _SLOTS_AT_ONCE):
        yield rows_of(table, slice(first, min(first + _SLOTS_AT_ONCE, slots)))


def take_stored(stored: Array, space: Space) -> dict[str, Array]:
    """Return the columns in memory of the rows in a snapshot, without rows that are all zero. Changes `stored`."""
    interval = space(np.empty(0, np.uint16)).resized(len(stored))
    interval[:] = stored["interval"]
    stored["interval"] = 0
    row_of, rows = space(np.empty(0, np.int32)).resized(len(stored)), 0
    blocks = [slice(first, first + _SLOTS_AT_ONCE) for first in range(0, len(stored), _SLOTS_AT_ONCE)]
    for block in blocks:
        is_used = stored[block].view(np.uint64).reshape(-1, _WORDS).any(axis=1)
        row_of[block] = np.where(is_used, rows + np.cumsum(is_used), 0)
        rows += int(is_used.sum())
    refresh = space(np.empty(0, REFRESH_ROW)).resized(1 + rows)
    refresh[:1], rows = np.zeros(1, REFRESH_ROW), 1
    for block in blocks:
        used = stored[block][row_of[block] != 0]
        refresh[rows : rows + len(used)] = used
        rows += len(used)
    return {"refresh_row": row_of, "interval": interval, "refresh": refresh}
