"""The quality of pages, as classifiers see it: a number from 0 to 1 by which plans multiply importance.

The last one holds, from an announcement or from a visit that is not late. Without any it is 1.
Cash and importance do not depend on it.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.entries import CrawlItems, Fate, Kind
from opicflow.schemas.arrays import Bytes, Floats, Ints
from opicflow.schemas.event_columns import BEST_QUALITY, quality_of

_BEST = 0  # a page without a step has the quality 1, whether an event gave it or not
_VALUES = np.array([1.0, *(quality_of(step) for step in range(1, BEST_QUALITY + 1))])
_ROOM = 1.25


class Qualities:
    """A step of quality at every slot. There are no steps as long as no page has a quality below 1."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._steps: Bytes = np.zeros(0, np.uint8)

    def note(self, items: CrawlItems, fates: Bytes, first: int, last: int) -> None:
        """Take the qualities in the rows [first, last), which were applied."""
        rows = first + np.flatnonzero(items.quality[first:last])
        if not len(rows):
            return
        rows = rows[(fates[rows] == Fate.TAKEN) & (items.kind[rows] != Kind.SIGHTING)]
        slots = self._reader.slots_of(items.page[rows])
        rows, slots = rows[slots >= 0], slots[slots >= 0]
        steps = np.where(items.quality[rows] == BEST_QUALITY, _BEST, items.quality[rows])
        if steps.any():
            self._make_room(int(slots.max()) + 1)
        has_step = slots < len(self._steps)
        self._steps[slots[has_step]] = steps[has_step]  # of several rows of a page the last one holds

    def leave(self, slots: Ints) -> None:
        """Pages at these slots are removed: other pages will have the slots."""
        self._steps[slots[slots < len(self._steps)]] = _BEST

    def of(self, slots: Ints) -> Floats | None:
        """The quality of the pages at these slots, 1 for a slot below 0; None if that of all pages is 1."""
        if not self._steps.any():
            return None
        steps = np.zeros(len(slots), np.uint8)
        has_step = (slots >= 0) & (slots < len(self._steps))
        steps[has_step] = self._steps[slots[has_step]]
        values: Floats = _VALUES[steps]
        return values

    def column(self, slots: int) -> Bytes:
        """The steps of the first slots, as a snapshot stores them; empty if the quality of all pages is 1."""
        if not self._steps.any():
            return np.zeros(0, np.uint8)
        column = np.zeros(slots, np.uint8)
        column[: len(self._steps)] = self._steps[:slots]
        return column

    def adopt(self, column: Bytes) -> None:
        """Take the steps of a snapshot."""
        self._steps = column

    def _make_room(self, slots: int) -> None:
        if slots > len(self._steps):
            steps = np.zeros(int(slots * _ROOM), np.uint8)
            steps[: len(self._steps)] = self._steps
            self._steps = steps
