"""The three orders of the papers in which a crawl visits pages (paper 002, section 4.2): cycle, random, greedy.

An order never ends. It hands out page numbers in batches, so that a ledger can take them in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Waiting = Callable[[], npt.NDArray[Any]]
"""Tells the waiting cash of every page, by page number, as it is now. Called only by orders that need it."""


class Order(Protocol):
    def next(self, waiting: Waiting) -> Int64s:
        """The pages to visit next, in this order."""


class CycleOrder:
    """Every page once in a shuffled order, and again in the same order. Batches run on across rounds."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._pages = np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(pages, dtype=np.int64))
        self._steps = np.arange(batch, dtype=np.int64)
        self._at = 0

    def next(self, waiting: Waiting) -> Int64s:
        places = (self._steps + self._at) % len(self._pages)
        self._at = (self._at + len(places)) % len(self._pages)
        return self._pages[places]


class RandomOrder:
    """Every page with the same probability at every visit, whatever was visited before."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._pages, self._batch = pages, batch

    def next(self, waiting: Waiting) -> Int64s:
        return self._random.integers(0, self._pages, self._batch, dtype=np.int64)


class GreedyOrder:
    """The pages with the most waiting cash, the richest first; among equals the lower page number.

    Cash that the pages of a batch pay each other is seen by the next batch only, so the smaller the batch,
    the closer to the papers' Greedy, which is a batch of 1. Without a size a batch is a 256th of the pages,
    at least one page.
    """

    def __init__(self, batch: int | None = None) -> None:
        if batch is not None:
            _check(1, batch)
        self._batch = batch

    def next(self, waiting: Waiting) -> Int64s:
        cash = waiting()
        batch = min(self._batch or max(1, len(cash) // 256), len(cash))
        if batch == 0:
            return np.empty(0, np.int64)
        # argpartition alone would take any of the pages that tie for the last place.
        last = np.partition(cash, len(cash) - batch)[len(cash) - batch]
        richer = np.flatnonzero(cash > last)
        tied = np.flatnonzero(cash == last)[: batch - len(richer)]
        pages = np.concatenate((np.sort(richer)[::-1], tied[::-1]))
        return pages[np.argsort(cash[pages], kind="stable")][::-1].astype(np.int64, copy=False)


def _check(pages: int, batch: int) -> None:
    if pages < 1:
        raise ValueError(f"an order needs at least one page, not {pages}")
    if batch < 1:
        raise ValueError(f"a batch must hold at least one page, not {batch}")
