"""Divides the rows of a source among the logs of all shards, as entries. A pure function of the source and the rules.

The entries of a source in a log are contiguous: each begins where the previous one in that log ended; the rows between
belong to other shards. So the state of a source has, for every shard, the end of its last entry and its visits so far.
A repeated batch gives entries that the ledgers have already, and drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, Kind, LogPosition, PolicyEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.schemas.arrays import Ints
from opicflow.schemas.columns import pack, unpack
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges

MOST_ENTRY_BYTES = 4 << 20
"""A longer entry is split, within an event if necessary."""
MOST_OFFSETS_BEHIND = 20_000
"""After so many offsets without an entry a shard is sent an empty one, which advances its mark of the source."""

_ROW_BYTES = 64
_LINK_BYTES = 11


class ToShard(NamedTuple):
    """An entry, as bytes, for the log of a shard."""

    shard: int
    entry: bytes


@dataclass(frozen=True)
class SourceState:
    """How far a source was routed: the next offset, and for each shard the end of its last entry and its visits.

    `rules` are the rules at that offset, as JSON; empty = those of the start of the stream. `source` is its name, which
    has the id of its topic. Visits are counted from the offset `counted_from` on.
    """

    next: int
    sent_to: Ints
    visits: Ints
    rules: str = ""
    source: str = ""
    counted_from: int = 0

    @classmethod
    def at(cls, offset: int, shards: int, source: str = "", begin: int = 0) -> SourceState:
        """Begin at an offset. The first entries begin at `begin`: offsets that are skipped are not missing."""
        sent_to, visits = np.full(shards, begin, np.int64), np.zeros(shards, np.int64)
        return cls(offset, sent_to, visits, source=source, counted_from=offset)

    def of(self, source: str, start: int) -> SourceState:
        """Return the state of a source that this one may belong to; another source begins at `start`, by its rules.

        A topic that was deleted and created again is another source: offsets of the old one mean nothing in it.
        """
        if self.source in ("", source):
            return replace(self, source=source)
        return replace(SourceState.at(start, len(self.sent_to), source), rules=self.rules)

    def to_bytes(self) -> bytes:
        """Encode the state."""
        values = {name: getattr(self, name) for name in ("next", "rules", "source", "counted_from")}
        return pack("source", values, {"sent_to": self.sent_to, "visits": self.visits})

    @classmethod
    def from_bytes(cls, data: bytes) -> SourceState:
        """Decode a state."""
        _, values, columns = unpack(data)
        return cls(sent_to=columns["sent_to"], visits=columns["visits"], **values)


@dataclass
class Sharder:
    """Divides the consecutive batches of a source into entries. `state` is the state behind the last batch."""

    source: str
    state: SourceState
    ranges: ShardRanges
    everywhere_at: int = -1
    """Every shard is sent an entry that ends at this offset, so that its mark reaches it; -1 = none."""
    most_entry_bytes: int = MOST_ENTRY_BYTES
    _sent_to: Ints = field(init=False)
    _visits: Ints = field(init=False)

    def crawl(self, items: CrawlItems, end: int) -> Iterator[ToShard]:
        """Yield the entries of the next rows, up to (not including) offset `end`."""
        shards = self.ranges.count
        self._begin()
        owners = self.ranges.of(items.page)
        order = np.argsort(owners, kind="stable")
        items = items.take(order)
        firsts = np.searchsorted(owners[order], np.arange(shards + 1)).tolist()
        late = end - self._sent_to >= MOST_OFFSETS_BEHIND
        if self.everywhere_at <= end:
            late |= self._sent_to < self.everywhere_at
        for shard in range(shards):
            first, last = firsts[shard], firsts[shard + 1]
            if first < last or late[shard]:
                yield from self._entries(shard, items.rows(first, last), end)
        self._commit(end)

    def policies(self, policies: Iterable[tuple[int, Policy]], end: int) -> Iterator[ToShard]:
        """Yield the entries of policies, given with their offsets: every shard is sent each policy in its own entry.

        So the entries are the same for any division into batches.
        """
        self._begin()
        for offset, policy in policies:
            if offset >= self.everywhere_at:
                yield from self._advance_all(self.everywhere_at)
            yield from self._advance_all(offset + 1, policy)
        if end >= self.everywhere_at:
            yield from self._advance_all(self.everywhere_at)
        self._commit(end)

    def _advance_all(self, offset: int, *policies: Policy) -> Iterator[ToShard]:
        """Yield an entry for every shard that ends at this offset, unless they are that far already."""
        start = int(self._sent_to[0])
        if offset > start:
            entry = encode_entry(
                PolicyEntry(self.source, LogPosition(start, 0), LogPosition(offset, 0), policies=policies)
            )
            yield from (ToShard(shard, entry) for shard in range(len(self._sent_to)))
            self._sent_to[:] = offset

    def _entries(self, shard: int, items: CrawlItems, end: int) -> Iterator[ToShard]:
        start = LogPosition(int(self._sent_to[shard]), 0)
        for first, last in _pieces(items, self.most_entry_bytes):
            rows = items.rows(first, last)
            self._visits[shard] += int((rows.kind == Kind.VISIT).sum())
            to = (
                LogPosition(end, 0)
                if last == len(items)
                else LogPosition(int(items.offset[last]), int(items.within[last]))
            )
            counts = int(self._visits[shard]), self.state.counted_from
            yield ToShard(shard, encode_entry(CrawlEntry(self.source, start, to, rows, *counts)))
            start = to
        self._sent_to[shard] = end

    def _begin(self) -> None:
        self._sent_to, self._visits = self.state.sent_to.copy(), self.state.visits.copy()

    def _commit(self, end: int) -> None:
        self.state = replace(self.state, next=end, sent_to=self._sent_to, visits=self._visits)


def _pieces(items: CrawlItems, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of pieces of about so many bytes, each of at least one row."""
    rows = np.arange(len(items) + 1)
    size = rows * _ROW_BYTES + items.link_starts * _LINK_BYTES + items.url_starts
    first = 0
    while True:
        last = max(int(np.searchsorted(size, size[first] + most_bytes, side="right")) - 1, first + 1)
        last = min(last, len(items))
        yield first, last
        first = last
        if first >= len(items):
            return
