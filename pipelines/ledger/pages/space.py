"""The space of the long columns of a ledger: memory, or where a caller puts them, such as files that are mapped.

Where they are changes nothing else: the same log gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from opicflow.schemas.arrays import Array

_ROWS_AT_ONCE = 1 << 20


class LongColumn(Protocol):
    """A column that grows without being copied."""

    def resized(self, rows: int) -> Array:
        """Return the column with so many rows. It keeps those that it had; new ones may hold anything.

        Arrays that it returned before are not used any longer.
        """


Space = Callable[[Array], LongColumn]
"""Makes an empty column of the type and the inner shape of an array."""


class MemoryColumn:
    """A column in memory: realloc moves page tables on Linux, and copies nothing."""

    def __init__(self, rows: Array) -> None:
        """Begin with these rows, in an array that is used by nothing else."""
        self._rows = rows

    def resized(self, rows: int) -> Array:
        """Return the column with so many rows; new ones are zero."""
        self._rows.resize((rows, *self._rows.shape[1:]), refcheck=False)
        return self._rows


def in_memory(like: Array) -> LongColumn:
    """Make an empty column in memory, with rows like those of an array."""
    return MemoryColumn(like[:0].copy())


def moved(column: Array, space: Space) -> Array:
    """Return a copy of a column in another space."""
    copy = space(column).resized(len(column))
    copy_rows(column, copy)
    return copy


def copy_rows(column: Array, to: Array) -> None:
    """Copy all rows of a column, so many at a time."""
    for first in range(0, len(column), _ROWS_AT_ONCE):
        to[first : first + _ROWS_AT_ONCE] = column[first : first + _ROWS_AT_ONCE]
