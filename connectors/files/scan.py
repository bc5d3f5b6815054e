"""Columns for kernels that read events, with room for all events that a text may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Bytes, ColumnTuple, Hashes, Ints
from opicflow.schemas.event_columns import CrawlEvents


@ColumnTuple.register
class Scan(NamedTuple):
    """The columns of `CrawlEvents`, and the records that a kernel left to others: offset, begin and end of each.

    `counts`: rows, URLs, records left to others, and whether the room for URLs was too small.
    """

    offset: Ints
    announce: Bytes
    time_ms: Ints
    modified_ms: Ints
    status: npt.NDArray[np.int16]
    digest: Hashes
    media: Bytes
    links_known: Bytes
    hops: Ints
    url_starts: Ints
    begins: Ints
    ends: Ints
    weights: npt.NDArray[np.uint16]
    nofollow: Bytes
    retry_seconds: Ints
    quality: npt.NDArray[np.int16]
    odd_offsets: Ints
    odd_begins: Ints
    odd_ends: Ints
    counts: Ints

    def events(self, text: Bytes) -> CrawlEvents:
        """The events that were read."""
        rows, urls = self.counts[:2].tolist()
        return CrawlEvents(
            offset=self.offset[:rows],
            announce=self.announce[:rows],
            time_ms=self.time_ms[:rows],
            modified_ms=self.modified_ms[:rows],
            status=self.status[:rows],
            digest=self.digest[:rows],
            media=self.media[:rows],
            links_known=self.links_known[:rows],
            hops=self.hops[:rows],
            url_starts=self.url_starts[: rows + 1],
            begins=self.begins[:urls],
            ends=self.ends[:urls],
            weights=self.weights[:urls],
            nofollow=self.nofollow[:urls],
            retry_seconds=self.retry_seconds[:rows],
            quality=self.quality[:rows],
            text=text,
        )

    def odd(self) -> Iterator[tuple[int, int, int]]:
        """The records that were left to others: offset, begin, end."""
        left = slice(0, int(self.counts[2]))
        columns = (self.odd_offsets, self.odd_begins, self.odd_ends)
        return zip(*(column[left].tolist() for column in columns), strict=True)


def new_scan(rows: int, urls: int) -> Scan:
    """Make room for a number of records, and of URLs of all records together."""
    return Scan(
        offset=np.empty(rows, np.int64),
        announce=np.empty(rows, np.uint8),
        time_ms=np.empty(rows, np.int64),
        modified_ms=np.empty(rows, np.int64),
        status=np.empty(rows, np.int16),
        digest=np.empty(rows, np.uint64),
        media=np.empty(rows, np.uint8),
        links_known=np.empty(rows, np.uint8),
        hops=np.empty(rows, np.int64),
        url_starts=np.zeros(rows + 1, np.int64),
        begins=np.empty(urls, np.int64),
        ends=np.empty(urls, np.int64),
        weights=np.empty(urls, np.uint16),
        nofollow=np.empty(urls, np.uint8),
        retry_seconds=np.empty(rows, np.int64),
        quality=np.empty(rows, np.int16),
        odd_offsets=np.empty(rows, np.int64),
        odd_begins=np.empty(rows, np.int64),
        odd_ends=np.empty(rows, np.int64),
        counts=np.zeros(4, np.int64),
    )
