"""What every reader gives: events as columns, and what it could not take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.event_columns import CrawlEvents

MOST_REJECTED_BYTES = 64 << 10
"""Of a reject that is longer, this much is kept: a broken file must not come back as rejects of its own size."""


class Decoded(NamedTuple):
    """The events of a part of a file, in order, and its rejects.

    `original` gives the bytes of the record at an offset, where a reader still has them. `where` tells what people know
    the record at an offset by, where that is another source and offset: a partition among others, read as one log.
    """

    events: CrawlEvents
    rejects: list[Reject]
    original: Callable[[int], bytes] | None = None
    where: Callable[[int], tuple[str, int]] | None = None


@dataclass
class RejectWriter:
    """Collects the rejects of one source."""

    source: str
    rejects: list[Reject] = field(default_factory=list)

    def add(self, reason: Reason, detail: str, offset: int, original: bytes) -> None:
        """Add one. The detail is for people, on one line."""
        if len(original) > MOST_REJECTED_BYTES:
            detail = f"{detail} (the first {MOST_REJECTED_BYTES} of {len(original)} bytes are kept)"
        self.rejects.append(Reject(reason, detail, self.source, offset, original[:MOST_REJECTED_BYTES]))
