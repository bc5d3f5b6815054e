"""Checks of entries. An entry passes as a whole, or is refused and changes nothing.

Kernels check no bounds. So types are checked as strictly as values: a log may be damaged, and code may be wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opicflow.pipelines.ledger import entry_rows
from opicflow.pipelines.ledger.config import (
    MOST_CASH,
    check_certified_rules,
    check_class_weights,
    check_damping,
    check_link_bonus,
    is_whole,
    shown,
)
from opicflow.pipelines.ledger.entries import (
    ITEM_COLUMNS,
    CheckedEntry,
    CrawlEntry,
    CrawlItems,
    Gossip,
    Kind,
    LogEntry,
    LogPosition,
    Outcome,
    PolicyEntry,
    ResidualSums,
    TickEntry,
    TransfersEntry,
    TransferSums,
    sum_transfers,
)
from opicflow.pipelines.ledger.entry_columns import ItemColumns
from opicflow.pipelines.ledger.errors import ConfigRefused, EntryRefused
from opicflow.schemas.arrays import Array, Ints, for_kernel
from opicflow.schemas.records import Policy

MOST_LINKS = 1 << 20
LONGEST_URL = 65535
SHARD_SOURCE = "shard/"
"""The mark of another shard has this name, followed by its number."""

_MOST = (1 << 63) - 1
_MOST_SECONDS = 1 << 40
_LAST_KIND, _LAST_OUTCOME = int(max(Kind)), int(max(Outcome))
_FIRSTS = {column.starts: column.name for column in reversed(ITEM_COLUMNS) if not column.is_starts}
"""The first column of each length, by the starts of its values."""
_PLAIN = tuple(
    (column.name, np.dtype(column.dtype), _FIRSTS[column.starts]) for column in ITEM_COLUMNS if not column.is_starts
)
_STARTS = tuple((column.name, _FIRSTS[column.name]) for column in ITEM_COLUMNS if column.is_starts)
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def check_kind(entry: LogEntry) -> None:
    """Refuse anything but an entry."""
    if type(entry) not in (CrawlEntry, CheckedEntry, PolicyEntry, TickEntry, TransfersEntry):
        raise EntryRefused(f"{shown(entry)} is no entry of a shard log")


def check_source(entry: CrawlEntry | PolicyEntry) -> None:
    """Refuse a source without a name of its own, or a range that is none."""
    source = entry.source
    if type(source) is not str or not source or not source.isprintable() or source.startswith(SHARD_SOURCE):
        raise EntryRefused(f"the source is {shown(source)}: give a name on one line that does not begin with shard/")
    for one in (entry.start, entry.end):
        if not (type(one) is LogPosition and is_whole(one.offset, 0, _MOST) and is_whole(one.within, 0, _MOST)):
            raise EntryRefused(f"{source}: {shown(one)} is no position: give two whole numbers, from 0")


def check_range(source: str, start: LogPosition, end: LogPosition, mark: LogPosition) -> bool:
    """Whether [start, end) of a source holds anything above its mark; refuse it where it would leave a hole."""
    if start > end:
        raise EntryRefused(f"{source}: {_words(start)} to {_words(end)} is no range: the end comes first")
    if start > mark:
        raise EntryRefused(
            f"{source}: the entry begins at {_words(start)} but the ledger has it up to {_words(mark)} only: "
            "send the entries between them first"
        )
    return end > mark


def check_crawl(entry: CrawlEntry, categories: int, first_id: int, last_id: int) -> None:
    """Refuse rows that are not well formed, or not of this shard."""
    items = entry.items
    if type(items) is not CrawlItems:
        problem = f"its items are {shown(items)}: give CrawlItems"
    elif entry.visits_total is not None and not is_whole(entry.visits_total, 0, _MOST):
        problem = f"visits_total is {shown(entry.visits_total)}: give a whole number, or None"
    elif not is_whole(entry.counted_from, 0, _MOST):
        problem = f"counted_from is {shown(entry.counted_from)}: give a whole number"
    else:
        problem = (
            _column_problem(items)
            or _value_problem(items, categories, first_id, last_id)
            or _range_problem(items, entry.start, entry.end)
        )
    if problem:
        raise EntryRefused(f"{entry.source}, {_words(entry.start)} to {_words(entry.end)}: {problem}")


def check_policy(entry: PolicyEntry, categories: int, is_certified: bool) -> None:
    """Refuse rules that make no sense."""
    try:
        if entry.damping is not None:
            check_damping(entry.damping)
        if entry.class_weights is not None:
            check_class_weights(entry.class_weights, categories)
        if entry.link_bonus_per_1024 is not None:
            check_link_bonus(entry.link_bonus_per_1024, categories)
        if is_certified:
            check_certified_rules(entry.damping, entry.link_bonus_per_1024)
        for name, pages in (("drop", entry.drop), ("forget", entry.forget)):
            if type(pages) is not tuple or not all(is_whole(page, 0, (1 << 64) - 1) for page in pages):
                raise ConfigRefused(f"{name} is {shown(pages)}: give a tuple of page ids, whole numbers of 64 bits")
        if type(entry.policies) is not tuple or not all(type(policy) is Policy for policy in entry.policies):
            raise ConfigRefused(f"policies is {shown(entry.policies)}: give a tuple of Policy records")
    except ConfigRefused as problem:
        raise EntryRefused(f"{entry.source}, {_words(entry.start)}: {problem}") from None


def check_tick(entry: TickEntry) -> None:
    """Refuse a tick whose second is not a whole number of a sensible size."""
    if not is_whole(entry.second, 0, _MOST_SECONDS - 1):
        raise EntryRefused(f"a tick has the second {shown(entry.second)}: give whole seconds since 1970")


def check_transfers(
    entry: TransfersEntry, shard: int, shards: int, ids: tuple[int, int], is_certified: bool
) -> TransferSums:
    """Refuse cash that is enormous, unsorted, or not for this shard; and negative, but under `certified`.

    Returns its sums.
    """
    if not is_whole(entry.source_shard, 0, shards - 1) or entry.source_shard == shard:
        raise EntryRefused(f"transfers of shard {shown(entry.source_shard)}: this is shard {shard} of {shards}")
    problem = _transfers_problem(entry, shards, is_certified)
    if not problem:
        sums = sum_transfers(entry.pages, entry.amounts, entry.virtual, entry.cut)
        problem = _sums_problem(entry, sums, ids, is_certified)
    if problem:
        raise EntryRefused(f"transfers of shard {entry.source_shard}, cut {shown(entry.cut)}: {problem}")
    return sums


def exact_sum(amounts: Ints) -> int:
    """The sum of non-negative 64-bit amounts, however large."""
    return (int((amounts >> 32).sum()) << 32) + int((amounts & 0xFFFFFFFF).sum()) if len(amounts) else 0


def _transfers_problem(entry: TransfersEntry, shards: int, is_certified: bool) -> str:
    pages, amounts = entry.pages, entry.amounts
    if not (is_whole(entry.sent_total, 0, _MOST) and is_whole(entry.sent_digest, 0, (1 << 64) - 1)):
        return "sent_total and sent_digest must be whole numbers, from 0"
    if not (is_whole(entry.cut, 0, _MOST - 1) and is_whole(entry.first, 0, _MOST >> 1) and type(entry.last) is bool):
        return "cut and first must be whole numbers from 0, and last True or False"
    if not (_is_column(pages, _UINT64) and _is_column(amounts, _INT64) and len(pages) == len(amounts)):
        return "pages must be a column of uint64 and amounts one of int64, as long"
    if entry.last != (entry.gossip is not None) or (not entry.last and entry.virtual != 0):
        return "the last message of a cut, and no other, carries the virtual part and the gossip"
    if not is_whole(entry.virtual, 0, MOST_CASH):
        return "the virtual part is negative or enormous, or no number"
    if is_certified and entry.virtual != 0:
        return "there is a virtual part, which the history policy certified does not have"
    if entry.gossip is not None and not is_gossip(entry.gossip, shards, is_certified):
        return "the gossip is out of bounds, or of another history policy"
    return ""


def _sums_problem(entry: TransfersEntry, sums: TransferSums, ids: tuple[int, int], is_certified: bool) -> str:
    pages, (first_id, last_id) = entry.pages, ids
    if sums.most > MOST_CASH or (sums.has_negative and not is_certified):
        return "an amount is negative or enormous"
    if sums.size + entry.virtual > MOST_CASH:
        return "the amounts together are enormous"
    if len(pages) and not (sums.is_rising and first_id <= int(pages[0]) and int(pages[-1]) <= last_id):
        return "pages must be of this shard, sorted by id, each once"
    return ""


def is_gossip(gossip: Gossip, shards: int, is_certified: bool) -> bool:
    """Whether one of so many shards can have sent this."""
    return (
        type(gossip) is Gossip
        and is_whole(gossip.advance, 0, (1 << 64) - 1)
        and all(is_whole(value, 0, MOST_CASH) for value in (gossip.minted, gossip.pages, gossip.weighted_pages))
        and is_whole(gossip.shares, 0, MOST_CASH)
        and is_whole(gossip.second, -1, MOST_CASH)
        and isinstance(gossip.rate_sum, float)
        and 0.0 <= gossip.rate_sum < float("inf")
        and (_are_residual_sums(gossip.residuals, shards) if is_certified else gossip.residuals is None)
    )


def _are_residual_sums(sums: ResidualSums | None, shards: int) -> bool:
    if type(sums) is not ResidualSums:
        return False
    flows = (sums.sent, sums.received)
    return (
        all(is_whole(value, 0, MOST_CASH) for value in (sums.bases, sums.paid, sums.residual_size, sums.links))
        and is_whole(sums.residual, -sums.residual_size, sums.residual_size)
        and all(type(flow) is tuple and len(flow) == shards for flow in flows)
        and all(is_whole(value, 0, MOST_CASH) for flow in flows for value in flow)
    )


def _column_problem(items: CrawlItems) -> str:
    for name, dtype, first in _PLAIN:
        values = getattr(items, name)
        if not _is_column(values, dtype) or len(values) != len(getattr(items, first)):
            return f"{name} is no column of {dtype}" + (f" as long as {first}" if name != first else "")
    for name, first in _STARTS:
        starts = getattr(items, name)
        if not (
            _is_column(starts, _INT64)
            and len(starts) == len(items) + 1
            and starts[0] == 0
            and starts[-1] == len(getattr(items, first))
            and (starts[1:] >= starts[:-1]).all()
        ):
            return f"{name} does not cut up its column into {len(items)} rows"
    return ""


def _value_problem(items: CrawlItems, categories: int, first_id: int, last_id: int) -> str:
    rows = ItemColumns(*(for_kernel(getattr(items, name)) for name in ItemColumns._fields))
    limits = (LONGEST_URL, MOST_LINKS, _LAST_KIND, _LAST_OUTCOME, categories)
    found = int(entry_rows.find_problems(rows, *limits, np.uint64(first_id), np.uint64(last_id)))
    if not found:
        return ""
    return {
        entry_rows.URL_TOO_LONG: f"a URL is longer than {LONGEST_URL} bytes",
        entry_rows.TOO_MANY_LINKS: f"a page has more than {MOST_LINKS} links",
        entry_rows.UNKNOWN_KIND: f"there is no kind {items.kind.max()}",
        entry_rows.UNKNOWN_OUTCOME: "a visit has no known outcome",
        entry_rows.LINKS_OF_OTHERS: "only visits whose links are known have links",
        entry_rows.UNKNOWN_CATEGORY: f"a category is not below {categories}",
        entry_rows.TIME_TOO_EARLY: "a time is before 1970",
        entry_rows.OTHER_SHARD: "a page is not of this shard",
        entry_rows.NOT_RISING: "positions must increase",
    }[(found & -found).bit_length() - 1]


def _range_problem(items: CrawlItems, start: LogPosition, end: LogPosition) -> str:
    if len(items) == 0:
        return ""
    offset, within = items.offset, items.within
    first, last = LogPosition(int(offset[0]), int(within[0])), LogPosition(int(offset[-1]), int(within[-1]))
    return "a row is outside the entry's range" if first < start or last >= end else ""


def _is_column(column: Array, dtype: np.dtype[Any]) -> bool:
    return type(column) is np.ndarray and column.dtype == dtype and column.ndim == 1


def _words(position: LogPosition) -> str:
    return f"{position.offset}+{position.within}"
