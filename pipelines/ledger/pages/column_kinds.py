"""How a column of a ledger is declared, in the annotation of its field of `Table` or `Book` (layout.py).

What is allocated, what grows with pages, what a snapshot stores and which lengths it must have are derived from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.config import HISTORIES, MOST_MEASURES, Fixed, ImprovedFixed, LedgerConfig, Variable
from opicflow.schemas.pages import SITE_BITS


def measures_kept(config: LedgerConfig) -> tuple[int, int]:
    """The most measures that a page keeps, and the fewest that the window leaves it."""
    history = config.history
    if isinstance(history, Variable):
        return history.measures, 0
    if isinstance(history, ImprovedFixed):
        return MOST_MEASURES, history.min_measures
    return (MOST_MEASURES, 0) if isinstance(history, Fixed) else (0, 0)


def measure_width(config: LedgerConfig) -> int:
    """The values in a row of a column of measures."""
    return max(measures_kept(config)[0], 1)


def always(_: LedgerConfig) -> bool:
    """Every ledger needs the column."""
    return True


def under(*names: str) -> Callable[[LedgerConfig], bool]:
    """Only the history policies with these names need the column."""
    histories = tuple(HISTORIES[name] for name in names)
    return lambda config: isinstance(config.history, histories)


class ColumnKind(NamedTuple):
    """A column: its type, its rows, and which configurations need it, in memory or in a snapshot."""

    kind: npt.DTypeLike
    rows: str = ""
    """The count of the rows in use, or a key of `fixed_rows`; empty where the number of rows has a rule of its own."""
    width: int | Callable[[LedgerConfig], int] = 0
    """The values in a row; 0 for one value without a second dimension."""
    is_needed: Callable[[LedgerConfig], bool] = always
    is_stored: bool = True

    def empty(self, config: LedgerConfig, fixed: dict[str, int]) -> npt.NDArray[np.generic]:
        """Return the column of a new ledger: zeros, without a row unless its number of rows is fixed."""
        width = self.width if isinstance(self.width, int) else self.width(config)
        return np.zeros((fixed.get(self.rows, 0), *([width] if width else [])), self.kind)


def fixed_rows(config: LedgerConfig, ids: tuple[int, int]) -> dict[str, int]:
    """Return the numbers of rows that never change: ledgers keep one row for each class, category or site."""
    sites = (ids[1] >> (64 - SITE_BITS)) - (ids[0] >> (64 - SITE_BITS)) + 1
    return {
        "one": 1,
        "classes": 2 * config.categories,
        "categories": config.categories,
        "sites": sites,
        "limited sites": sites if config.domains.limit_anything else 0,
    }
