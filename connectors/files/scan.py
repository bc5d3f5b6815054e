"""Columns for kernels that read events, with room for all events that a text may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Bytes, ColumnTuple, Hashes, Ints
from opicflow.schemas.event_columns import OF_URLS, CrawlEvents


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
        sizes = _sizes(rows, urls)
        names = [one.name for one in fields(CrawlEvents) if one.name != "text"]
        return CrawlEvents(**{name: getattr(self, name)[: sizes.get(name, rows)] for name in names}, text=text)

    def odd(self) -> Iterator[tuple[int, int, int]]:
        """The records that were left to others: offset, begin, end."""
        left = slice(0, int(self.counts[2]))
        columns = (self.odd_offsets, self.odd_begins, self.odd_ends)
        return zip(*(column[left].tolist() for column in columns), strict=True)


_TYPES: dict[str, type[np.generic]] = {
    "announce": np.uint8,
    "status": np.int16,
    "digest": np.uint64,
    "media": np.uint8,
    "links_known": np.uint8,
    "weights": np.uint16,
    "nofollow": np.uint8,
    "quality": np.int16,
}
"""The types of columns that are not int64."""


def new_scan(rows: int, urls: int) -> Scan:
    """Make room for a number of records, and of URLs of all records together."""
    sizes = {**_sizes(rows, urls), "counts": 4}
    columns = {name: np.empty(sizes.get(name, rows), _TYPES.get(name, np.int64)) for name in Scan._fields}
    columns["url_starts"][:] = columns["counts"][:] = 0
    return Scan(**columns)


def _sizes(rows: int, urls: int) -> dict[str, int]:
    """Return the lengths of the columns that do not have a value for each row."""
    return {"url_starts": rows + 1, **dict.fromkeys(OF_URLS, urls)}
