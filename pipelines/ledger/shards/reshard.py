"""The pages of all shards in ledgers of other shards: with the same cash, history and importance.

First the shards exchange the amounts that are under way between them (`exchange`). Then a page takes along everything
that it has. The accounts of a shard are counted from its pages where that is possible; the rest is divided in
proportion. Sums over all shards stay the same, to the unit (docs/decisions/reshard.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entry_checks import SHARD_SOURCE
from opicflow.pipelines.ledger.errors import LedgerBroken, LedgerError
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.shards.new_shard import NewShard
from opicflow.pipelines.ledger.shards.whole_web import WholeWeb, divided, weights_or_first
from opicflow.schemas.shards import ShardRanges


class ReshardRefused(LedgerError):
    """The ledgers are not those of all shards of one web, or do not have the same rules."""


def exchange(ledgers: Sequence[Ledger]) -> None:
    """Let the shards have all that others have for them. They have applied all that was sealed before."""
    for other, entry in list(chain.from_iterable(one.seal() for one in ledgers)):
        ledgers[other].apply(entry)


def reshard(ledgers: Sequence[Ledger], ranges: ShardRanges) -> Iterator[Ledger]:
    """Yield the ledgers of other shards, one after the other; between the old ones nothing is under way.

    The old ledgers stay as they are. Raises `ReshardRefused`.
    """
    _check(ledgers)
    whole = WholeWeb(ledgers, ranges)
    shards = [NewShard(whole, number) for number in range(ranges.count)]
    _divide_cash(whole, shards)
    gossips = [shard.gossip() for shard in shards]
    sent = received = 0
    for shard in shards:
        ledger = shard.ledger(gossips)
        sums = ledger.parts().book.sums[0]
        sent, received = sent + int(sums.sent), received + int(sums.received)
        yield ledger
    if sent != received:
        raise LedgerBroken(f"links between the new shards carry {sent} units, and {received} arrived")


def even_ranges(ledgers: Sequence[Ledger], shards: int) -> ShardRanges:
    """Return the ranges of so many shards that have about equally many of the pages of all ledgers."""
    ids = []
    for one in ledgers:
        _, table, book, _ = one.parts()
        end = int(book.counts[0].slots)
        ids.append(table.hot[:end, 0][table.pages["flags"][:end] != 0].view(np.uint64))
    return ShardRanges.even(np.concatenate(ids), shards)


def source_offsets(ledger: Ledger) -> dict[str, int]:
    """Return the offset from which each source has to be read for a ledger that `reshard` made."""
    marks = ledger.parts().state.marks
    return {source: mark.position.offset for source, mark in marks.items() if not source.startswith(SHARD_SOURCE)}


def _check(ledgers: Sequence[Ledger]) -> None:
    if not ledgers or [one.shard for one in ledgers] != list(range(ledgers[0].shards)):
        raise ReshardRefused("the ledgers are not those of all shards, in their order")
    for one in ledgers[1:]:
        if _rules_of(one) != _rules_of(ledgers[0]):
            raise ReshardRefused(f"shard {one.shard} has other rules or policies than shard 0")
        if int(one.parts().book.clocks[0].theta) != int(ledgers[0].parts().book.clocks[0].theta):
            raise ReshardRefused(f"shard {one.shard} has another clock than shard 0: exchange pending amounts first")


def _rules_of(ledger: Ledger) -> tuple[Any, ...]:
    state, _, book, _ = ledger.parts()
    numbers = [book.modes[0].damping_q20, book.clocks[0].theta_start, *book.class_weights, *book.link_bonus]
    return (
        ledger.config,
        ledger.ranges,
        ledger.page_ids,
        state.policies.count,
        state.budget,
        [int(one) for one in numbers],
    )


def _divide_cash(whole: WholeWeb, shards: Sequence[NewShard]) -> None:
    """Divide the minted units and the virtual account, and count the surplus of a shard as sent to others.

    Cash has moved between pages since it was minted. Between the new shards it has moved as transfers do, before
    their first cut.
    """
    pages = [shard.pages for shard in shards]
    removed = whole.minted // UNITS_PER_PAGE - sum(pages)
    births = [of + rest for of, rest in zip(pages, divided(removed, weights_or_first(pages)), strict=True)]
    virtual = sum(int(one.book.counts[0].virtual) for one in whole.old)
    parts = divided(virtual, weights_or_first(births))
    for shard, of, part in zip(shards, births, parts, strict=True):
        shard.births, shard.virtual = of, part
    if whole.is_certified:  # what links carry is counted from the links
        return
    missing = [shard.held + shard.virtual - UNITS_PER_PAGE * shard.births for shard in shards]
    givers = [shard for shard in shards if missing[shard.number] < 0]
    for shard in shards:
        while missing[shard.number] > 0:
            giver = givers[-1]
            amount = min(missing[shard.number], -missing[giver.number])
            giver.sent_to[shard.number] = shard.received_from[giver.number] = amount
            missing[shard.number] -= amount
            missing[giver.number] += amount
            if missing[giver.number] == 0:
                givers.pop()
