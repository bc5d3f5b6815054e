"""What a ledger checks before it touches anything: an entry passes whole, or is refused and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.config import check_class_weights, check_damping, check_link_bonus
from opicflow.pipelines.ledger.entries import (
    ENTRY_VERSION,
    NO_CATEGORY,
    CrawlEntry,
    CrawlItems,
    Ids,
    Ints,
    Kind,
    Outcome,
    Place,
    PolicyEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.errors import ConfigRefused, EntryRefused

MOST_CASH = 1 << 62
"""No amount, and no total of a shard, goes above this: sums of two stay inside 64 bits."""
LONGEST_URL = 65535


def check_version(version: int) -> None:
    """Refuse an entry of another version of the rules."""
    if version != ENTRY_VERSION:
        raise EntryRefused(
            f"the entry has version {version!r}, this code knows version {ENTRY_VERSION}: update opicflow"
        )


def check_range(source: str, start: Place, end: Place, mark: Place) -> bool:
    """Whether [start, end) of a source holds anything above its mark; refuse it where it would leave a hole."""
    if not (start.offset >= 0 and start.within >= 0 and start <= end):
        raise EntryRefused(f"{source}: the range {_words(start)} to {_words(end)} is no range")
    if start > mark:
        raise EntryRefused(
            f"{source}: the entry begins at {_words(start)} but the ledger has it up to {_words(mark)} only: "
            "send what lies between first"
        )
    return end > mark


def check_crawl(entry: CrawlEntry, categories: int, first_id: int, last_id: int) -> None:
    """Refuse rows that are not well formed, or not of this shard."""
    items = entry.items
    problem = _crawl_problem(items, categories, first_id, last_id) or _place_problem(items, entry.start, entry.end)
    if problem:
        raise EntryRefused(f"{entry.source}, {_words(entry.start)} to {_words(entry.end)}: {problem}")


def check_policy(entry: PolicyEntry, categories: int) -> None:
    """Refuse rules that make no sense."""
    try:
        if entry.damping is not None:
            check_damping(entry.damping)
        if entry.class_weights is not None:
            check_class_weights(entry.class_weights, categories)
        if entry.link_bonus_per_1024 is not None:
            check_link_bonus(entry.link_bonus_per_1024, categories)
    except ConfigRefused as problem:
        raise EntryRefused(f"{entry.source}, {_words(entry.start)}: {problem}") from None
    if not all(0 <= page < 1 << 64 for page in (*entry.drop, *entry.forget)):
        raise EntryRefused(f"{entry.source}, {_words(entry.start)}: page ids are whole numbers of 64 bits")


def check_transfers(entry: TransfersEntry, first_id: int, last_id: int) -> None:
    """Refuse cash that is negative, enormous, unsorted, or not for this shard."""
    where = f"transfers of shard {entry.source_shard}, cut {entry.cut}"
    pages, amounts = entry.pages, entry.amounts
    problem = ""
    if pages.dtype != np.uint64 or amounts.dtype != np.int64 or pages.shape != amounts.shape or pages.ndim != 1:
        problem = "pages must be uint64 and amounts int64, one each"
    elif entry.last != (entry.gossip is not None) or (entry.virtual and not entry.last):
        problem = "the last message of a cut, and no other, carries the virtual part and the gossip"
    elif not 0 <= entry.virtual <= MOST_CASH or (len(amounts) and (amounts.min() < 0 or amounts.max() > MOST_CASH)):
        problem = "an amount is negative or enormous"
    elif exact_sum(amounts) + entry.virtual > MOST_CASH:
        problem = "the amounts together are enormous"
    elif len(pages) and (pages[0] < first_id or pages[-1] > last_id or np.any(pages[1:] <= pages[:-1])):
        problem = "pages must be of this shard, sorted by id, each once"
    elif entry.gossip is not None and not (
        0 <= entry.gossip.minted <= MOST_CASH
        and 0 <= entry.gossip.weighted_pages <= MOST_CASH
        and 0 <= entry.gossip.pages <= MOST_CASH
        and 0 <= entry.gossip.advance < 1 << 64
        and np.isfinite(entry.gossip.rate_sum)
    ):
        problem = "the gossip is out of bounds"
    if problem:
        raise EntryRefused(f"{where}: {problem}")


def exact_sum(amounts: Ints) -> int:
    """The sum of non-negative 64-bit amounts, however large."""
    return (int((amounts >> 32).sum()) << 32) + int((amounts & 0xFFFFFFFF).sum())


def _crawl_problem(items: CrawlItems, categories: int, first_id: int, last_id: int) -> str:
    rows = len(items)
    columns: list[tuple[npt.NDArray[Any], type]] = [
        (items.kind, np.uint8),
        (items.page, np.uint64),
        (items.time_ms, np.int64),
        (items.outcome, np.uint8),
        (items.category, np.uint8),
        (items.links_known, np.uint8),
    ]
    if any(column.dtype != dtype or column.shape != (rows,) for column, dtype in columns):
        return "the columns differ in length or type"
    links = len(items.link_pages)
    columns = [
        (items.link_pages, np.uint64),
        (items.link_weights, np.uint16),
        (items.link_categories, np.uint8),
    ]
    if any(column.dtype != dtype or column.shape != (links,) for column, dtype in columns):
        return "the columns of the links differ in length or type"
    if not _ragged(items.link_starts, rows, links):
        return "link_starts do not cut up the links"
    if not _ragged(items.url_starts, rows, len(items.url_bytes)) or items.url_bytes.dtype != np.uint8:
        return "url_starts do not cut up the URLs"
    if rows == 0:
        return ""
    if np.diff(items.url_starts).max() > LONGEST_URL:
        return f"a URL is longer than {LONGEST_URL} bytes"
    if items.kind.max() > max(Kind):
        return f"there is no kind {items.kind.max()}"
    visits = items.kind == Kind.VISIT
    outcomes = items.outcome[visits]
    if len(outcomes) and (outcomes.max() > max(Outcome) or outcomes.min() == Outcome.NONE):
        return "a visit has no known outcome"
    if np.any(np.diff(items.link_starts)[~visits | (items.links_known == 0)]):
        return "only visits whose links are known have links"
    for category in (items.category, items.link_categories):
        if np.any((category >= categories) & (category != NO_CATEGORY)):
            return f"a category is not below {categories}"
    if items.time_ms.min() < 0:
        return "a time lies before 1970"
    if _outside(items.page, first_id, last_id):
        return "a page is not of this shard"
    return ""


def _place_problem(items: CrawlItems, start: Place, end: Place) -> str:
    rows = len(items)
    offset, within = items.offset, items.within
    if offset.dtype != np.int64 or within.dtype != np.int64 or offset.shape != (rows,) or within.shape != (rows,):
        return "places must be int64, one a row"
    if rows == 0:
        return ""
    step, inner = np.diff(offset), np.diff(within)
    if np.any((step < 0) | ((step == 0) & (inner <= 0))):
        return "places must increase"
    first, last = Place(int(offset[0]), int(within[0])), Place(int(offset[-1]), int(within[-1]))
    if first < start or last >= end or within.min() < 0:
        return "a row lies outside the entry's range"
    return ""


def _ragged(starts: Ints, rows: int, total: int) -> bool:
    return bool(
        starts.dtype == np.int64
        and starts.shape == (rows + 1,)
        and starts[0] == 0
        and starts[-1] == total
        and (rows == 0 or np.diff(starts).min() >= 0)
    )


def _outside(pages: Ids, first_id: int, last_id: int) -> bool:
    return bool(pages.min() < first_id or pages.max() > last_id)


def _words(place: Place) -> str:
    return f"{place.offset}+{place.within}"
