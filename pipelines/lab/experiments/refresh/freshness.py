"""The value of a crawl's copies over a year, counted from the changes that really happened.

A copy is *fresh* while its content is the content of the page. A page that returns to the content of a copy makes the
copy fresh again. A page without a copy is not fresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.crawler import CrawlHistory
from opicflow.pipelines.lab.experiments.refresh.living_web import DAY, NEVER, LivingWeb, keys_of
from opicflow.schemas.arrays import Bools, Floats, Ints

_PAGES_AT_ONCE = 2_000


@dataclass(frozen=True)
class YearMeasured:
    """Means over all pages that exist, and over time from the end of the warm-up on.

    *Weighted*: by exact PageRank of the web when the day began.
    """

    fresh_weighted: float
    """The share of copies that are fresh."""
    fresh: float
    age_weighted_days: float
    """For how long stale copies have been stale, their mean."""
    age_days: float
    behind_weighted: float
    """By how many changes copies lag behind, the mean: their obsolescence."""
    behind: float
    caught: float
    """The share of changes whose content was fetched before the next change."""
    longest_gap_days: float
    """The longest time without a fetch of a page that existed and was known. An attempt that failed is a fetch."""
    used: float
    """Orders, as a share of the bandwidth."""
    idle_days: int
    """Days without an order, in the whole year."""


class Pieces(NamedTuple):
    """Times in which nothing happens to a page or its copy and no day ends, as columns."""

    numbers: Ints
    begin: Ints
    end: Ints
    is_fresh: Bools
    is_stale: Bools
    stale_since: Ints
    """Since when a page is stale, if it is."""
    behind: Ints
    """The changes since the copy was fetched; without a copy all changes, the birth included."""


def measure(history: CrawlHistory, bandwidth: float, warm_up_days: int) -> YearMeasured:
    """Measure a year from this day on."""
    lengths, fresh, stale, ages, behind = (
        sum(columns)
        for columns in zip(*(_weighed(history.web, part) for part in parts_of(history, warm_up_days)), strict=True)
    )
    orders = history.orders[warm_up_days:]
    return YearMeasured(
        fresh_weighted=_ratio(fresh[1], lengths[1]),
        fresh=_ratio(fresh[0], lengths[0]),
        age_weighted_days=_ratio(ages[1], stale[1]),
        age_days=_ratio(ages[0], stale[0]),
        behind_weighted=_ratio(behind[1], lengths[1]),
        behind=_ratio(behind[0], lengths[0]),
        caught=share_caught(history, warm_up_days),
        longest_gap_days=longest_gap(history, warm_up_days) / DAY,
        used=_ratio(float(orders.sum()), bandwidth * len(orders)),
        idle_days=int((history.orders == 0).sum()),
    )


def _weighed(web: LivingWeb, pieces: Pieces) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return sums over pieces, each without weights and by importance.

    They are days, fresh days, stale days, ages over time, and changes behind over time.
    """
    days = (pieces.end - pieces.begin) / DAY
    since = (pieces.begin - pieces.stale_since) / DAY
    ages = np.where(pieces.is_stale, ((since + days) ** 2 - since**2) / 2, 0.0)
    weights = np.stack((np.ones(len(days)), web.importance[pieces.begin // DAY, pieces.numbers]))
    fresh, stale, behind = (days * column for column in (pieces.is_fresh, pieces.is_stale, pieces.behind))
    return weights @ days, weights @ fresh, weights @ stale, weights @ ages, weights @ behind


def fresh_by_day(history: CrawlHistory) -> Floats:
    """Return the weighted share of copies that were fresh, a day each."""
    web = history.web
    all_of_day, fresh_of_day = np.zeros(web.days), np.zeros(web.days)
    for pieces in parts_of(history, 0):
        days = pieces.begin // DAY
        weights = web.importance[days, pieces.numbers] * (pieces.end - pieces.begin)
        all_of_day += np.bincount(days, weights, web.days)
        fresh_of_day += np.bincount(days, weights * pieces.is_fresh, web.days)
    return fresh_of_day / all_of_day


def parts_of(history: CrawlHistory, since_day: int) -> Iterator[Pieces]:
    """Yield the pieces of some pages after the other, from this day on: all at once may not fit into memory."""
    for first in range(0, history.web.pages, _PAGES_AT_ONCE):
        yield pieces_of(history, since_day, first, min(first + _PAGES_AT_ONCE, history.web.pages))


def pieces_of(history: CrawlHistory, since_day: int, first: int, last: int) -> Pieces:
    """Divide each page's time at its changes, at the fetches that brought a copy, and at the ends of days."""
    web, fetches = history.web, history.fetches
    pages = np.arange(first, last)
    rows = slice(web.starts[first], web.starts[last])
    came = fetches.came & (fetches.numbers >= first) & (fetches.numbers < last)
    fetched, at = fetches.numbers[came], fetches.seconds[came]
    changed = np.repeat(pages, np.diff(web.starts[first : last + 1]))
    days = np.tile(np.arange(web.days) * DAY, len(pages))
    numbers = np.concatenate((changed, fetched, np.repeat(pages, web.days)))
    seconds = np.concatenate((web.changes[rows], at, days))
    kinds = np.repeat(np.arange(3), (len(changed), len(fetched), len(days)))
    as_before = np.full(len(numbers), -1)
    change, copied = as_before.copy(), as_before
    change[kinds == 0] = np.arange(rows.start, rows.stop)
    copied[kinds == 1] = web.latest(fetched, at)
    order = np.lexsort((kinds, seconds, numbers))  # a fetch in the second of a change sees the new content
    numbers, seconds = numbers[order], seconds[order]
    is_first = np.append(True, numbers[1:] != numbers[:-1])
    begins = np.maximum.accumulate(np.where(is_first, np.arange(len(numbers)), 0))
    change, copied = _carried(change[order], begins), _carried(copied[order], begins)
    behind = change - np.where(copied >= 0, copied, web.starts[numbers] - 1)
    is_fresh = (copied >= 0) & (web.contents[copied] == web.contents[change])
    is_stale = (copied >= 0) & ~is_fresh
    turns_stale = is_stale & (is_first | ~np.append(False, is_stale[:-1]))
    stale_since = seconds[np.maximum.accumulate(np.where(turns_stale, np.arange(len(numbers)), 0))]
    year = web.days * DAY
    end = np.where(np.append(is_first[1:], True), year, np.append(seconds[1:], year))
    begin = np.maximum(np.maximum(seconds, web.born[numbers]), since_day * DAY)
    end = np.minimum(np.minimum(end, web.died[numbers]), year)
    kept = end > begin
    return Pieces(
        numbers[kept], begin[kept], end[kept], is_fresh[kept], is_stale[kept], stale_since[kept], behind[kept]
    )


def share_caught(history: CrawlHistory, warm_up_days: int) -> float:
    """Return the share of changes, from this day on, whose content was fetched before the next change."""
    web, fetches = history.web, history.fetches
    numbers = np.repeat(np.arange(web.pages), np.diff(web.starts))
    followed = np.append(web.changes[1:], NEVER)
    followed[web.starts[1:] - 1] = NEVER
    counted = (web.changes >= warm_up_days * DAY) & (web.changes < web.days * DAY) & (web.changes < web.died[numbers])
    came = np.sort(keys_of(fetches.numbers[fetches.came], fetches.seconds[fetches.came]))
    before = np.searchsorted(came, keys_of(numbers[counted], web.changes[counted]))
    until = np.searchsorted(came, keys_of(numbers[counted], followed[counted]))
    return _ratio(float((until > before).sum()), float(counted.sum()))


def longest_gap(history: CrawlHistory, warm_up_days: int) -> float:
    """Return the most seconds without a fetch of a page that existed and was known.

    Gaps count that end on this day or later. The first gap of a page begins when it becomes known.
    """
    web, fetches = history.web, history.fetches
    known = np.flatnonzero(history.known_since < NEVER)
    ends = np.minimum(web.died, web.days * DAY)
    numbers = np.concatenate((known, fetches.numbers, known))
    seconds = np.concatenate((history.known_since[known], fetches.seconds, ends[known]))
    order = np.lexsort((seconds, numbers))
    numbers, seconds = numbers[order], seconds[order]
    same = (numbers[1:] == numbers[:-1]) & (seconds[1:] <= ends[numbers[1:]]) & (seconds[1:] >= warm_up_days * DAY)
    gaps = (seconds[1:] - seconds[:-1])[same]
    return float(gaps.max()) if len(gaps) else 0.0


def _carried(values: Ints, begins: Ints) -> Ints:
    """Return the latest value of each page that is not -1, up to each row; `begins`: the first row of its page."""
    rows = np.maximum.accumulate(np.where(values >= 0, np.arange(len(values)), 0))
    carried: Ints = np.where(rows >= begins, values[np.maximum(rows, begins)], -1)
    return carried


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
