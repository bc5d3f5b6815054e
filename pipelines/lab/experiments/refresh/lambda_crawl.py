"""LambdaCrawl with learnt rates (Kolobov, Peres, Lu and Horvitz, NeurIPS 2019): changes are seen by fetches alone.

The optimum is that of the paper's algorithm 1; the estimate of change rates, its bounds and its smoothing are those of
the authors' code (microsoft/Optimal-Freshness-Crawl-Scheduling, LambdaCrawlExps.py, commit 62bde09).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.refresh.competitors import UNMODIFIED, Allowance, SeenContents, most_urgent
from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler, DayOrders
from opicflow.pipelines.lab.experiments.refresh.living_web import DAY, NEVER, ServerAnswers
from opicflow.pipelines.refresh.strategies import Demand, solve
from opicflow.schemas.arrays import Floats, Ints

LAMBDA_CRAWL = "LambdaCrawl"
SMOOTHING_DAYS = 0.5
"""An imaginary interval with a change and one without, so long each, are added to the visits of a page."""
SLOWEST_PER_DAY, FASTEST_PER_DAY = 0.0005, 7.0
_PRECISION = 1e-4
_LARGEST = 700.0  # of an exponent
UNSEEN_PER_DAY = math.log(2.0) / SMOOTHING_DAYS
"""The rate of a page of which nothing was seen."""


class LambdaCrawl:
    """Learns change rates every day, and crawls at the rates that minimise the harmonic staleness by true importance.

    Crawls come at random moments, at these rates: the pages of a day are those whose moments come first. Pages that
    were found gone are dropped.
    """

    def __init__(self, crawler: Crawler, bandwidth: float) -> None:
        pages = crawler.web.pages
        self._crawler, self._bandwidth = crawler, bandwidth
        self._allowance = Allowance(bandwidth)
        self._random = np.random.default_rng((pages, crawler.web.days))
        self.rates: Floats = np.full(pages, UNSEEN_PER_DAY)
        self._changed_days: list[list[float]] = [[] for _ in range(pages)]
        self._unchanged_days: Floats = np.zeros(pages)
        self._contents = SeenContents(pages)
        self._came: Ints = np.full(pages, -NEVER)

    def receive(self, answers: ServerAnswers, announced: Ints) -> None:
        came = answers.came
        numbers, seconds = answers.numbers[came], answers.seconds[came]
        since = self._came[numbers]
        is_again = since > -NEVER
        is_same = self._contents.take(numbers, answers.contents[came]) == UNMODIFIED
        days = (seconds - since) / DAY
        self._unchanged_days[numbers[is_again & is_same]] += days[is_again & is_same]
        is_changed = is_again & ~is_same
        for number, length in zip(numbers[is_changed].tolist(), days[is_changed].tolist(), strict=True):
            self._changed_days[number].append(length)
        self._came[numbers] = seconds
        learnt = numbers[is_again]
        changed = [self._changed_days[number] for number in learnt.tolist()]
        self.rates[learnt] = learnt_rates(changed, self._unchanged_days[learnt])

    def order(self, day: int) -> DayOrders:
        crawler = self._crawler
        candidates = np.flatnonzero(crawler.known & ~crawler.is_gone)
        wanted = Demand(crawler.web.importance[day, candidates], self.rates[candidates])
        frequencies = solve("harmonic", wanted, self._bandwidth).frequencies
        moments = np.full(crawler.web.pages, np.inf)
        moments[candidates] = self._random.exponential(size=len(candidates)) / np.maximum(frequencies, 1e-12)
        return most_urgent(-moments, np.isfinite(moments), day, self._allowance.next())


def learnt_rates(changed_days: Sequence[Sequence[float]], unchanged_days: Floats) -> Floats:
    """Return the rates that make the observed changes most likely, in changes a day.

    `changed_days`: of each page the lengths of intervals in which it changed; `unchanged_days`: the sum of the others.
    """
    lengths = np.array([days for of in changed_days for days in (SMOOTHING_DAYS, *of)])
    page = np.repeat(np.arange(len(changed_days)), [1 + len(of) for of in changed_days])
    low = np.full(len(changed_days), SLOWEST_PER_DAY)
    high = np.full(len(changed_days), FASTEST_PER_DAY)
    for _ in range(math.ceil(math.log2((FASTEST_PER_DAY - SLOWEST_PER_DAY) / _PRECISION))):
        middle = (low + high) / 2
        by_change = np.bincount(page, lengths / np.expm1(np.minimum(middle[page] * lengths, _LARGEST)), len(middle))
        is_faster = by_change > unchanged_days + SMOOTHING_DAYS
        low, high = np.where(is_faster, middle, low), np.where(is_faster, high, middle)
    rates: Floats = (low + high) / 2
    return rates
