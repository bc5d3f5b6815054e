"""Estimates of pages: importance and the figures behind it, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints, columns_of, per_row, tuple_of


@dataclass(frozen=True)
class Estimates:
    """One row for each requested page. For an unknown page `known` is False and the other columns are zero.

    `importance` is the page's rate over the sum of all rates: over all pages of the web it sums to 1. `score` is
    importance times pages (1.0 = an average page). `window_importance` is the mean of importance over the days of the
    window under `certified`, and importance itself under the other histories; `trend_per_day` is the difference of both
    over these days. `error_factor` is the paper's 1/G over the turns this rate rests on: an
    upper bound for how far the page is from balance with those that link to it, not an error bar.
    """

    pages: Ids
    known: Bools
    importance: Floats = field(metadata=per_row(np.float64))
    score: Floats = field(metadata=per_row(np.float64))
    window_importance: Floats = field(metadata=per_row(np.float64))
    rate: Floats = field(metadata=per_row(np.float64))
    trend_per_day: Floats = field(metadata=per_row(np.float64))
    error_factor: Floats = field(metadata=per_row(np.float64))
    cash: Ints = field(metadata=per_row(np.int64))
    waiting: Ints = field(metadata=per_row(np.int64))
    visits: Ints = field(metadata=per_row(np.int64))
    last_visit_ms: Ints = field(metadata=per_row(np.int64))
    last_outcome: Bytes = field(metadata=per_row(np.uint8))
    measured: Bools = field(metadata=per_row(np.bool_))
    """Whether the page has spent: until then its history is the default one."""

    @classmethod
    def zeros(cls, pages: Ids, known: Bools) -> Estimates:
        """Estimates with zeros, for a kernel to fill."""
        return cls(pages, known, **{column.name: np.zeros(len(pages), column.dtype) for column in ESTIMATE_COLUMNS})

    def kernel_columns(self) -> Any:
        """The columns that a kernel fills, as `KernelEstimates`."""
        return KernelEstimates(*(getattr(self, column.name) for column in ESTIMATE_COLUMNS))


ESTIMATE_COLUMNS = columns_of(Estimates)
KernelEstimates = tuple_of("KernelEstimates", (column.name for column in ESTIMATE_COLUMNS), __name__)
