"""The router of a stream: what each shard's log is sent of a source. A pure function of the source and the rules.

Entries of a source to a log touch: each begins where the one before it to the same log ended, and what lies between
went to other shards. So the state of a source is where the last entry to every shard ended, and how many visits that
was sent. A batch that comes again makes entries that the ledgers have, and drop.
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
from opicflow.schemas.pages import shard_of
from opicflow.schemas.records import Policy

MOST_ENTRY_BYTES = 4 << 20
"""An entry that would be longer is split, at places within an event if need be."""
MOST_OFFSETS_BEHIND = 20_000
"""A shard that was sent nothing for so many offsets is sent an empty entry, so that it knows how far the source is."""

_ROW_BYTES = 64
_LINK_BYTES = 11


class ToShard(NamedTuple):
    """An entry, as bytes, for the log of a shard."""

    shard: int
    entry: bytes


@dataclass(frozen=True)
class SourceState:
    """How far a source was routed, and what of it each shard was sent: up to which place, and how many visits.

    `rules` are those that hold where it stands, as JSON; empty = those the stream was started with.
    """

    next: int
    sent_to: Ints
    visits: Ints
    rules: str = ""

    @classmethod
    def at(cls, offset: int, shards: int) -> SourceState:
        """A source that is read from this offset on: what lies before it is no hole, so first entries begin at 0."""
        return cls(offset, np.zeros(shards, np.int64), np.zeros(shards, np.int64))

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        values = {"next": self.next, "rules": self.rules}
        return pack("source", values, {"sent_to": self.sent_to, "visits": self.visits})

    @classmethod
    def from_bytes(cls, data: bytes) -> SourceState:
        """The state that `to_bytes` wrote."""
        _, values, columns = unpack(data)
        return cls(values["next"], columns["sent_to"], columns["visits"], values["rules"])


@dataclass
class Sharder:
    """Makes entries of what a source holds, one stretch after the other. `state` is where it stands."""

    source: str
    state: SourceState
    everywhere_at: int = -1
    """An offset at which every shard is sent an entry, so that all know that the source has come there."""
    most_entry_bytes: int = MOST_ENTRY_BYTES
    _sent_to: Ints = field(init=False)
    _visits: Ints = field(init=False)

    def crawl(self, items: CrawlItems, end: int) -> Iterator[ToShard]:
        """The entries of the rows up to (not including) offset `end`, which follow those routed before."""
        shards = len(self.state.visits)
        self._copy()
        owners = shard_of(items.page, shards)
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
        self._move(end)

    def policies(self, policies: Iterable[tuple[int, Policy]], end: int) -> Iterator[ToShard]:
        """The entries of policies and their offsets: each of them to every shard, and alone.

        So a batch that comes again in other pieces is made of the same entries.
        """
        self._copy()
        for offset, policy in policies:
            if offset >= self.everywhere_at:
                yield from self._come_to(self.everywhere_at)
            yield from self._come_to(offset + 1, policy)
        if end >= self.everywhere_at:
            yield from self._come_to(self.everywhere_at)
        self._move(end)

    def _come_to(self, offset: int, *policies: Policy) -> Iterator[ToShard]:
        """An entry for every shard that ends at this offset, unless there is one."""
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
            yield ToShard(shard, encode_entry(CrawlEntry(self.source, start, to, rows, int(self._visits[shard]))))
            start = to
        self._sent_to[shard] = end

    def _copy(self) -> None:
        self._sent_to, self._visits = self.state.sent_to.copy(), self.state.visits.copy()

    def _move(self, end: int) -> None:
        self.state = replace(self.state, next=end, sent_to=self._sent_to, visits=self._visits)


def _pieces(items: CrawlItems, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows in pieces of about so many bytes, and never less than a row."""
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
