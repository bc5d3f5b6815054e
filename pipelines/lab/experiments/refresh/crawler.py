"""A crawler that follows orders, and keeps the data for the measures of a year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.living_web import DAY, FIRST_CRAWL_DAYS, NEVER, LivingWeb, ServerAnswers
from opicflow.schemas.arrays import Bools, Ints


class DayOrders(NamedTuple):
    """Pages to fetch within a day, the most urgent first, and the second until which to wait for each."""

    numbers: Ints
    not_before: Ints


class Scheduler(Protocol):
    """A source of orders: a refresh strategy of opicflow, or a competitor."""

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        """Learn what the last fetches brought, and which pages a sitemap has announced since."""

    def order(self, day: int) -> DayOrders:
        """Return the orders of the day that begins."""


@dataclass(frozen=True, eq=False)
class CrawlHistory:
    """All fetches of a year in order, the first crawl before it included, and the orders of each day."""

    web: LivingWeb
    fetches: ServerAnswers
    known_since: Ints
    """When the crawler learnt of each page, by a link or an announcement; `NEVER`: never."""
    orders: Ints
    """By day."""


class Crawler:
    """The data of a crawler about a web: its pages, and when it last tried and last got each page."""

    def __init__(self, web: LivingWeb) -> None:
        self.web = web
        self.known_since: Ints = np.full(web.pages, NEVER)
        self.tried: Ints = np.full(web.pages, -NEVER)
        self.came: Ints = np.full(web.pages, -NEVER)
        self.is_gone: Bools = np.zeros(web.pages, np.bool_)
        """The last answer was that the page does not exist."""
        self._fetched: list[ServerAnswers] = []
        self._orders: list[int] = []

    @property
    def known(self) -> Bools:
        known: Bools = self.known_since < NEVER
        return known

    def crawl_first(self) -> ServerAnswers:
        """Fetch every page that exists at first, once, evenly over the days before the year."""
        random = np.random.default_rng((self.web.pages, FIRST_CRAWL_DAYS))
        there = random.permutation(np.flatnonzero(self.web.alive(-1)))
        seconds = -FIRST_CRAWL_DAYS * DAY + np.arange(len(there)) * (FIRST_CRAWL_DAYS * DAY) // max(1, len(there))
        self.known_since[there] = seconds
        return self._fetch(there, seconds)

    def follow(self, orders: DayOrders, day: int, bandwidth: float) -> ServerAnswers:
        """Fetch the orders of a day at the pace of the bandwidth, each page as soon as it may be."""
        self._orders.append(len(orders.numbers))
        first = np.argsort(orders.not_before, kind="stable")
        seconds = paced(orders.not_before[first], day * DAY, bandwidth)
        return self._fetch(orders.numbers[first], seconds)

    def announce(self, day: int) -> Ints:
        """Learn of the pages that a sitemap announces on this day, and return them."""
        born = self.web.born
        new = np.flatnonzero(self.web.announced & (born >= day * DAY) & (born < (day + 1) * DAY))
        self.known_since[new] = np.minimum(self.known_since[new], born[new])
        return new

    def history(self) -> CrawlHistory:
        fetches = ServerAnswers(*(np.concatenate(column) for column in zip(*map(_columns, self._fetched), strict=True)))
        return CrawlHistory(self.web, fetches, self.known_since.copy(), np.array(self._orders, np.int64))

    def _fetch(self, numbers: Ints, seconds: Ints) -> ServerAnswers:
        answers = self.web.answer(numbers, seconds, self.came[numbers])
        self._fetched.append(answers)
        self.tried[numbers] = seconds
        self.came[numbers[answers.came]] = seconds[answers.came]
        self.is_gone[numbers] = (answers.statuses == 404) | (answers.statuses == 410)
        for row in np.flatnonzero(answers.statuses == 200).tolist():
            linked = self.web.links(int(numbers[row]), int(answers.contents[row]))
            self.known_since[linked] = np.minimum(self.known_since[linked], seconds[row])
        return answers


def paced(not_before: Ints, begin: int, bandwidth: float) -> Ints:
    """Return the seconds of fetches that may not be earlier than these (which ascend), spaced by the bandwidth.

    Fetches that would come after the end of the day come in its last second.
    """
    gap = DAY / max(bandwidth, len(not_before), 1)
    steps = np.arange(len(not_before)) * gap
    soonest = np.maximum.accumulate(np.maximum(not_before, begin) - steps) + steps
    seconds: Ints = np.minimum(soonest.astype(np.int64), begin + DAY - 1)
    return seconds


def _columns(answers: ServerAnswers) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return answers.numbers, answers.seconds, answers.statuses, answers.contents, answers.modified
