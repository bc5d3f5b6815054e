"""The schedulers that opicflow's strategies are compared with: round robin, Nutch's adaptive schedule, the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.experiments.refresh.crawler import Crawler, DayOrders
from opicflow.pipelines.experiments.refresh.living_web import DAY, NEVER, ServerAnswers
from opicflow.pipelines.refresh.strategies import Demand, solve
from opicflow.schemas.arrays import Bools, Floats, Ints

UNKNOWN, MODIFIED, UNMODIFIED = range(3)
ROUND_ROBIN, NUTCH, ORACLE = "round robin", "Nutch adaptive", "oracle"


class RoundRobin:
    """Fetches the page that was not tried for the longest time. Pages that were found gone are dropped."""

    def __init__(self, crawler: Crawler, bandwidth: float) -> None:
        self._crawler = crawler
        self._allowance = Allowance(bandwidth)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Learn nothing: the crawler knows which pages there are, and when each was tried."""

    def order(self, day: int) -> DayOrders:
        crawler = self._crawler
        return _first(-crawler.tried.astype(np.float64), crawler.known & ~crawler.is_gone, day, self._allowance.next())


class Oracle:
    """Knows the true change rate and importance of every page that the crawler knows, and whether it still exists.

    Every day it computes the frequencies that maximise freshness, within the same limits as opicflow: each page once a
    cycle at most, and once in the longest interval. It orders the pages whose copies are oldest in terms of their
    intervals, and pages that were never read before all others.
    """

    def __init__(self, crawler: Crawler, bandwidth: float, longest_days: float) -> None:
        self._crawler, self._bandwidth, self._longest_days = crawler, bandwidth, longest_days
        self._allowance = Allowance(bandwidth)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Learn nothing: it knows everything."""

    def order(self, day: int) -> DayOrders:
        crawler, web = self._crawler, self._crawler.web
        there = np.flatnonzero(crawler.known & web.alive(day * DAY))
        wanted = Demand(
            web.importance[day, there],
            web.rates[there],
            least=np.full(len(there), 1 / self._longest_days),
            most=np.ones(len(there)),
        )
        frequencies = np.zeros(web.pages)
        frequencies[there] = solve("freshness", wanted, self._bandwidth).frequencies
        lateness = (day * DAY - crawler.came) * frequencies
        candidates = np.zeros(web.pages, np.bool_)
        candidates[there] = True
        return _first(lateness, candidates, day, self._allowance.next())


@dataclass(frozen=True)
class AdaptiveSettings:
    """Nutch's settings `db.fetch.schedule.adaptive.*` and `db.fetch.interval.default`, with its defaults."""

    inc_rate: float = 0.4
    dec_rate: float = 0.2
    min_seconds: float = 60.0
    max_seconds: float = 365.0 * DAY
    sync_delta: bool = True
    sync_delta_rate: float = 0.3
    default_seconds: float = 30.0 * DAY
    retry_seconds: float = float(DAY)
    """After a fetch that failed."""
    gone_growth: float = 1.5
    """How much longer the interval of a page becomes that was found gone."""


class NutchAdaptive:
    """The rule of Apache Nutch's AdaptiveFetchSchedule, by its documentation.

    A page that was modified since its last fetch gets an interval shorter by `dec_rate`, one that was not gets one
    longer by `inc_rate`. With `sync_delta`, an interval shorter than the time since the page was last modified becomes
    that time, and the next fetch comes earlier by `sync_delta_rate` of it, to meet the next change. Intervals stay
    within their bounds. The time of a modification is that of `Last-Modified`, or of the fetch that saw it. (The shift
    is at most that share of the bounded interval here: otherwise pages that were not modified for long would be fetched
    again at once, NUTCH-1564.) A fetch that fails is repeated after a day; the interval of a page that is gone grows.

    Every day the pages that are due compete by score, here their true importance.
    """

    def __init__(self, crawler: Crawler, bandwidth: float, settings: AdaptiveSettings | None = None) -> None:
        pages = crawler.web.pages
        self._crawler, self._settings = crawler, settings or AdaptiveSettings()
        self._allowance = Allowance(bandwidth)
        self.intervals: Floats = np.full(pages, self._settings.default_seconds)
        self.due: Ints = np.full(pages, -NEVER)
        self._modified: Ints = np.full(pages, -NEVER)
        self._contents: Ints = np.full(pages, -1)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        settings, numbers = self._settings, answers.numbers
        is_gone = (answers.statuses == 404) | (answers.statuses == 410)
        self.intervals[numbers[is_gone]] = np.minimum(
            self.intervals[numbers[is_gone]] * settings.gone_growth, settings.max_seconds
        )
        self.due[numbers] = answers.seconds + np.where(is_gone, self.intervals[numbers], settings.retry_seconds).astype(
            np.int64
        )
        came = answers.came
        numbers, seconds = numbers[came], answers.seconds[came]
        contents, modified = answers.contents[came], answers.modified[came]
        before = self._contents[numbers]
        is_new = (contents >= 0) & (contents != before)
        states = np.where(before < 0, UNKNOWN, np.where(is_new, MODIFIED, UNMODIFIED))
        dated = np.where(modified < NEVER, modified, seconds)
        self._modified[numbers] = np.where(is_new, dated, self._modified[numbers])
        self._contents[numbers] = np.where(is_new, contents, before)
        self.intervals[numbers], self.due[numbers] = rescheduled(
            self.intervals[numbers], seconds, self._modified[numbers], states, settings
        )

    def order(self, day: int) -> DayOrders:
        score = self._crawler.web.importance[day]
        return _first(score, self._crawler.known & (self.due <= day * DAY), day, self._allowance.next())


def rescheduled(
    intervals: Floats, seconds: Ints, modified: Ints, states: Ints, settings: AdaptiveSettings
) -> tuple[Floats, Ints]:
    """Return the new interval of each page that was fetched at this second, and when to fetch it next.

    `modified`: when it was last modified. `states`: `MODIFIED`, `UNMODIFIED`, or `UNKNOWN` at its first fetch.
    """
    factors = np.array([1.0, 1.0 - settings.dec_rate, 1.0 + settings.inc_rate])
    grown = intervals * factors[states]
    since = np.zeros(len(grown))
    if settings.sync_delta:
        since = np.maximum(seconds - modified, 0).astype(np.float64)
        grown = np.maximum(grown, since)
    bounded = np.clip(grown, settings.min_seconds, settings.max_seconds)
    shift = settings.sync_delta_rate * np.minimum(since, bounded)
    return bounded, seconds + np.round(bounded - shift).astype(np.int64)


class Allowance:
    """The fetches of a day in whole numbers; parts of a fetch are carried over."""

    def __init__(self, per_day: float) -> None:
        self._per_day, self._carried = per_day, 0.0

    def next(self) -> int:
        """Return the fetches of the next day."""
        self._carried += self._per_day
        whole = int(self._carried + 1e-9)
        self._carried -= whole
        return whole


def _first(urgency: Floats, candidates: Bools, day: int, most: int) -> DayOrders:
    """Order the most urgent candidates, at once; of two that are equal, the one with the lower number."""
    rows = np.flatnonzero(candidates)
    best = rows[np.argsort(-urgency[rows], kind="stable")[:most]]
    return DayOrders(best, np.full(len(best), day * DAY))
