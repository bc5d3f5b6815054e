"""The simplest and the best scheduler that opicflow's strategies are compared with: round robin, and the oracle."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler, DayOrders
from opicflow.pipelines.lab.experiments.refresh.living_web import DAY, ServerAnswers
from opicflow.schemas.arrays import Bools, Floats, Ints

UNKNOWN, MODIFIED, UNMODIFIED = range(3)
ROUND_ROBIN, ORACLE = "round robin", "oracle"


class RoundRobin:
    """Fetches the page that was not tried for the longest time. Pages that were found gone are dropped."""

    def __init__(self, crawler: Crawler, bandwidth: float) -> None:
        self._crawler = crawler
        self._allowance = Allowance(bandwidth)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Learn nothing: the crawler has the list of pages, and when each was tried."""

    def order(self, day: int) -> DayOrders:
        crawler = self._crawler
        candidates = crawler.known & ~crawler.is_gone
        return most_urgent(-crawler.tried.astype(np.float64), candidates, day, self._allowance.next())


class Oracle:
    """Has the true change rate and importance of every page that the crawler has found, and whether it still exists.

    Every day it orders the pages of which a fetch gains most freshness in the long run, within the same limits as
    opicflow: each page once a cycle at most, and once in the longest interval. Pages never read come before all others.

    Of a page with importance w and change rate r, read t ago, that gain is w / r * (1 - exp(-rt) * (1 + rt)). Where it
    is the same for all pages whenever they are fetched, no other rates of the same sum keep more copies fresh.
    """

    def __init__(self, crawler: Crawler, bandwidth: float, longest_days: float) -> None:
        self._crawler, self._longest_days = crawler, longest_days
        self._allowance = Allowance(bandwidth)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Learn nothing: it has all true values."""

    def order(self, day: int) -> DayOrders:
        crawler, web = self._crawler, self._crawler.web
        days = (day * DAY - crawler.came) / DAY
        changes = web.rates * days
        gain = web.importance[day] / web.rates * (1 - np.exp(-changes) * (1 + changes))
        gain[days >= self._longest_days] = np.inf
        there = crawler.known & web.alive(day * DAY)
        return most_urgent(gain, there, day, self._allowance.next())


class SeenContents:
    """The newest content of each page that a crawler has seen, by which it sees whether the page was modified."""

    def __init__(self, pages: int) -> None:
        self._contents: Ints = np.full(pages, -1)

    def take(self, numbers: Ints, contents: Ints) -> Ints:
        """Keep what answers brought, -1 for "not modified". Returns the state of each page."""
        before = self._contents[numbers]
        is_same = (contents < 0) | (contents == before)
        self._contents[numbers] = np.where(contents < 0, before, contents)
        states: Ints = np.where(is_same, UNMODIFIED, np.where(before < 0, UNKNOWN, MODIFIED))
        return states

    def forget(self, numbers: Ints) -> None:
        """Forget the contents of pages: the next content counts as their first."""
        self._contents[numbers] = -1


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


def most_urgent(urgency: Floats, candidates: Bools, day: int, most: int) -> DayOrders:
    """Order the most urgent candidates, at once; of two that are equal, the one with the lower number."""
    rows = np.flatnonzero(candidates)
    best = rows[np.argsort(-urgency[rows], kind="stable")[:most]]
    return DayOrders(best, np.full(len(best), day * DAY))
