"""Cuts: what a shard sends to the others, and when (docs/decisions/log-entries.md).

A *whole* cut goes to all other shards, with all that waits for them, their parts of the virtual account, and gossip.
There is one after a number of visits. At ticks it depends on `cut_seconds`. If that is 0, every tick makes a whole cut.
Otherwise a tick makes one after visits of a fiftieth of the pages; if much waits, under `certified`; or if the last one
is old enough, and the gossip has changed or the virtual account has a unit for every weighted page. Other ticks send a
message to single shards if it is worth its cost: with many amounts, or with any amounts after `cut_seconds`. A shard
that received cash also answers with its gossip, so that the sender learns how far it has come. Shards to which nothing
happens send nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opicflow.pipelines.ledger.cash.certified.residuals import Residuals
from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.cash.windows.dividends import declare_dividend
from opicflow.pipelines.ledger.config import Certified, LedgerConfig
from opicflow.pipelines.ledger.entries import Gossip, TransfersEntry, sum_transfers
from opicflow.pipelines.ledger.entry_checks import exact_sum
from opicflow.pipelines.ledger.ledger_state import Times, WholeCut
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.shards import Shard

ITEMS_PER_MESSAGE = 64
"""With fewer visits or amounts, messages would cost more than their content."""
_WHOLE_CUT_SECONDS = 30
_MOST_WAITING = 50
"""A cut comes at the latest after one visit of so many pages: the longer cash waits, the worse importance is."""
_WRAP = 1 << 64

_MOST_UNCERTAIN = 1000
"""Under `certified` no more than one part in so many of what pages earn waits: after a backlog residuals travel on."""

Sealed = list[tuple[int, TransfersEntry]]
"""Messages, each with the shard that it is for."""


class Cuts:
    """Seals messages to the other shards."""

    def __init__(
        self,
        config: LedgerConfig,
        room: Room,
        peers: Peers,
        times: Times,
        last_whole: WholeCut,
        residuals: Residuals,
    ) -> None:
        self._config = config
        self._room = room
        self._peers = peers
        self._times = times
        self.last_whole = last_whole
        self._residuals = residuals
        self._place: Shard = peers.shard
        self._is_certified = isinstance(config.history, Certified)

    @property
    def number(self) -> int:
        """The largest number of messages that one shard was sent: that of the next cut, if all are whole."""
        return max((peer.cut for peer in self._peers.by_shard.values()), default=0)

    def seal_at_tick(self) -> Sealed:
        """Seal the cuts that are due at a tick."""
        self._room.sum_outbox()
        if not self._config.cut_seconds or self._is_whole_due():
            return self.seal_whole()
        waiting = np.diff(self._edges(self._outbox()[0]))
        now, seconds = self._times.tick_second, self._config.cut_seconds
        due = []
        for other, peer in self._peers.by_shard.items():
            amounts = int(waiting[other])
            is_old = now - peer.second >= seconds
            if amounts >= ITEMS_PER_MESSAGE or (is_old and (amounts or peer.awaits_answer)):
                due.append(other)
        return self._seal(due, {}) if due else []

    def seal_whole(self) -> Sealed:
        """Seal all that waits for other shards, and share the virtual account among all shards."""
        counts = self._room.book.counts[0]
        counts.visits_since_cut = 0
        self._room.sum_outbox()
        own, virtual = int(counts.weighted_pages), int(counts.virtual)
        weighted = self._peers.weighted_pages(own)
        everywhere = own + sum(weighted.values())
        quotient, rest = divmod(max(virtual, 0), everywhere) if everywhere else (0, 0)
        parts = {
            other: quotient * weight + (rest * weight // everywhere if everywhere else 0)
            for other, weight in weighted.items()
        }
        sealed = self._seal(list(parts), parts)
        if not self._is_certified:
            given = sum(parts.values())
            counts.sent += given
            counts.virtual = declare_dividend(self._room.book, virtual - given)
        if self._config.cut_seconds:
            self.last_whole.second = self._times.tick_second
            self.last_whole.gossip = self._gossip()
        return sealed

    def _is_whole_due(self) -> bool:
        """Whether a message to all other shards is due, because the last one is old."""
        last = self.last_whole
        counts = self._room.book.counts[0]
        visits = int(counts.visits_since_cut)
        if last.gossip is None or (visits and visits * _MOST_WAITING >= int(counts.pages)):
            return True
        if self._is_certified:
            waiting = exact_sum(np.abs(self._outbox()[1]))
            if waiting and waiting * _MOST_UNCERTAIN >= int(self._room.book.sums[0].paid):
                return True
        if self._times.tick_second - last.second < _WHOLE_CUT_SECONDS:
            return False
        own = int(counts.weighted_pages)
        everywhere = own + sum(self._peers.weighted_pages(own).values())
        has_units = everywhere > 0 and int(counts.virtual) >= everywhere
        return has_units or replace(self._gossip(), second=last.gossip.second) != last.gossip

    def _seal(self, others: Sequence[int], parts: dict[int, int]) -> Sealed:
        """Seal what waits for some shards, with their parts of the virtual account. The outbox has been summed."""
        pages, amounts = self._outbox()
        edges = self._edges(pages).tolist()
        counts = self._room.book.counts[0]
        is_left = np.ones(len(pages), bool)
        taken: list[tuple[int, Ids, Ints]] = []
        for other in others:
            peer, here, part = self._peers.by_shard[other], slice(edges[other], edges[other + 1]), parts.get(other, 0)
            is_left[here] = False
            sums = sum_transfers(pages[here], amounts[here], part, peer.cut)
            peer.sent_total += sums.size + part
            peer.sent_digest = (peer.sent_digest + sums.digest) % _WRAP
            if self._is_certified:
                counts.sent += sums.size
            taken.append((other, pages[here].copy(), amounts[here].copy()))
        left = int(is_left.sum())
        pages[:left], amounts[:left] = pages[is_left], amounts[is_left]
        counts.outbox = left
        gossip = self._gossip()
        return [
            (other, self._message(other, of_pages, of_amounts, parts.get(other, 0), gossip))
            for other, of_pages, of_amounts in taken
        ]

    def _message(self, other: int, pages: Ids, amounts: Ints, part: int, gossip: Gossip) -> TransfersEntry:
        peer = self._peers.by_shard[other]
        cut, peer.cut = peer.cut, peer.cut + 1
        peer.second, peer.awaits_answer = self._times.tick_second, False
        return TransfersEntry(
            source_shard=self._place.number,
            cut=cut,
            first=0,
            last=True,
            pages=pages,
            amounts=amounts,
            virtual=part,
            sent_total=peer.sent_total,
            sent_digest=peer.sent_digest,
            gossip=gossip,
        )

    def _outbox(self) -> tuple[Ids, Ints]:
        """Return views of the outbox: its pages, sorted by id once it has been summed, and their amounts."""
        book = self._room.book
        size = int(book.counts[0].outbox)
        return book.outbox_pages[:size].view(np.uint64), book.outbox_amounts[:size]

    def _edges(self, pages: Ids) -> Ints:
        """Return where the pages of each shard begin, and the end."""
        return np.append(np.searchsorted(pages, np.array(self._place.ranges.first_ids, np.uint64)), len(pages))

    def _gossip(self) -> Gossip:
        book = self._room.book
        counts = book.counts[0]
        return Gossip(
            advance=int(book.clocks[0].own_advance),
            minted=int(counts.minted),
            pages=int(counts.pages),
            weighted_pages=int(counts.weighted_pages),
            rate_sum=self._times.sweep_rate_sum,
            shares=int(counts.shares),
            residuals=self._residuals.own() if self._is_certified else None,
            second=self._times.tick_second,
        )
