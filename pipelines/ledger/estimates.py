"""What a ledger says about pages: importance and what it rests on, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.entries import Bytes, Ids, Ints
from opicflow.pipelines.ledger.layout import Array

Floats = npt.NDArray[np.float64]


class EstimateColumns(NamedTuple):
    """The columns of `Estimates` as kernels see them."""

    importance: Array
    score: Array
    rate: Array
    trend_per_day: Array
    error_factor: Array
    cash: Array
    waiting: Array
    visits: Array
    last_visit_ms: Array
    last_outcome: Array
    measured: Array


@dataclass(frozen=True)
class Estimates:
    """One row a page asked for. A page the ledger does not know has `known` False and zeros.

    `importance` is the page's rate over the sum of all rates: over all pages of the web it sums to 1. `score` is
    importance times pages (1.0 = an average page). `trend_per_day` is the change of importance a day, smoothed over the
    configured days and 0 for newcomers. `error_factor` is the paper's 1/G over the turns this rate rests on: an
    upper bound for how far the page is from balance with those that link to it, not an error bar.
    """

    pages: Ids
    known: npt.NDArray[np.bool_]
    importance: Floats
    score: Floats
    rate: Floats
    trend_per_day: Floats
    error_factor: Floats
    cash: Ints
    waiting: Ints
    visits: Ints
    last_visit_ms: Ints
    last_outcome: Bytes
    measured: npt.NDArray[np.bool_]
    """Whether the page has spent: until then its history is the default one."""

    def columns(self) -> EstimateColumns:
        """The columns that a kernel fills."""
        return EstimateColumns(
            self.importance,
            self.score,
            self.rate,
            self.trend_per_day,
            self.error_factor,
            self.cash,
            self.waiting,
            self.visits,
            self.last_visit_ms,
            self.last_outcome,
            self.measured,
        )


def richest(pages: Ids, rates: Floats, k: int) -> Ints:
    """The rows of the `k` highest rates, highest first; equal rates by page id."""
    k = min(k, len(rates))
    if k <= 0:
        return np.zeros(0, np.int64)
    least = np.partition(rates, len(rates) - k)[len(rates) - k]
    rows = np.flatnonzero(rates >= least)
    best: Ints = rows[np.lexsort((pages[rows], -rates[rows]))][:k]
    return best
