"""The result of every reader: events as columns, and rejects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

import numpy as np

from opicflow.schemas.crawl_events import MOST_LISTED, CrawlEvent, EventRefused, Reason, Reject
from opicflow.schemas.event_columns import CrawlEvents

MOST_REJECTED_BYTES = 64 << 10
"""Longer rejects are truncated: the rejects of a broken file must not be as large as the file."""

_SHORT_BYTES = 16
_MOST_SHORT = 4096

Item = tuple[int, CrawlEvent | Reject]
"""An offset in the source, and the event or the reject there."""


class Unfinished:
    """The end of a file in the middle of a record, which may still be written."""


UNFINISHED = Unfinished()
ReadItem = tuple[int, CrawlEvent | Reject | Unfinished]
"""The items of a file that may grow: an `Item`, or `Unfinished` where its last record begins, which waits."""


class Decoded(NamedTuple):
    """The events of a batch, in order, and its rejects.

    `original` returns the bytes of the record at an offset, if the reader still has them. `where` returns the source
    and offset under which people find a record, if they differ: partitions that are read as one log. `unlisted` counts
    the rejects of each reason that are not in `rejects`: there are too many.
    """

    events: CrawlEvents
    rejects: list[Reject]
    original: Callable[[int], bytes] | None = None
    where: Callable[[int], tuple[str, int]] | None = None
    unlisted: Counter[Reason] | None = None

    def later_than(self, time_ms: int) -> Decoded:
        """Return the events after a time, without the rejects."""
        rows = np.flatnonzero(self.events.time_ms > time_ms)
        return self._replace(events=self.events.take(rows), rejects=[], unlisted=None)


@dataclass
class RejectWriter:
    """Collects the rejects of a batch of one source: the first ones of each reason, and the number of the others."""

    source: str
    rejects: list[Reject] = field(default_factory=list)
    unlisted: Counter[Reason] = field(default_factory=Counter)
    _listed: Counter[Reason] = field(default_factory=Counter)
    _of_short: dict[bytes, Reason] = field(default_factory=dict)
    """The reasons of short records that were rejected: a file may have nothing else, a million in two megabytes."""

    def repeats(self, record: bytes) -> bool:
        """Whether this record was rejected before, and need not be read again: it is counted."""
        reason = self._of_short.get(record)
        if reason is None or self._listed[reason] < MOST_LISTED:
            return False
        self.unlisted[reason] += 1
        return True

    def remember(self, record: bytes, reason: Reason) -> None:
        """Remember the reason of a record, if it is short, for `repeats`."""
        if len(record) <= _SHORT_BYTES and len(self._of_short) < _MOST_SHORT:
            self._of_short[record] = reason

    def add(self, reason: Reason, detail: str, offset: int, original: bytes) -> None:
        """Add a reject. `detail` is one line for people."""
        if self._is_listed(reason):
            self.rejects.append(_with_first_bytes(reason, detail, self.source, offset, original, len(original)))

    def take(self, reject: Reject) -> None:
        """Add a reject that was made elsewhere."""
        if self._is_listed(reject.reason):
            self.rejects.append(reject)

    def _is_listed(self, reason: Reason) -> bool:
        if self._listed[reason] >= MOST_LISTED:
            self.unlisted[reason] += 1
            return False
        self._listed[reason] += 1
        return True


def most_first(counts: dict[str, int]) -> dict[str, int]:
    """Return counts from highest to lowest, equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def with_rejects(events: Iterator[Item], decoded: Decoded) -> Iterator[Item]:
    """Yield events and the rejects of their batch in the order of their offsets."""
    rejects: list[Item] = [(reject.offset, reject) for reject in decoded.rejects]
    return merge(events, rejects, key=lambda item: item[0]) if rejects else events


def reject_of(
    refused: EventRefused, source: str, offset: int, original: bytes, size_bytes: int | None = None
) -> Reject:
    """Return the reject for a refused record of `size_bytes` bytes, of which `original` are at hand."""
    size_bytes = len(original) if size_bytes is None else size_bytes
    return _with_first_bytes(refused.reason, " ".join(str(refused).split()), source, offset, original, size_bytes)


def _with_first_bytes(
    reason: Reason, detail: str, source: str, offset: int, original: bytes, size_bytes: int
) -> Reject:
    """Return a reject with the first bytes of a record of `size_bytes`; its detail says so if there are more."""
    if size_bytes > MOST_REJECTED_BYTES:
        detail = f"{detail} (the first {MOST_REJECTED_BYTES} of {size_bytes} bytes are kept)"
    return Reject(reason, detail, source, offset, original[:MOST_REJECTED_BYTES])
