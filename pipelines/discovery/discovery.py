"""`Discovery` chooses the unread pages to explore and learns from the pages that were read, review by review."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from opicflow.pipelines.discovery.limits import best, explorable
from opicflow.pipelines.discovery.rule import DiscoveryPages, DiscoveryRule
from opicflow.pipelines.discovery.worth import PageWorth, logarithms, page_worth
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints

_EVIDENCE = 3
_LITTLE = 1e-3
_LEAST_KEPT, _PAGES_A_KEPT_ONE = 1 << 12, 32
"""A review keeps so many pages, or one for each 32 that are known, whichever is more."""


@dataclass(frozen=True, eq=False)
class PagesRead:
    """The columns that are kept, until they are judged, of pages read between two reviews; a row for each page."""

    page: Ids
    explored: Bools
    own: Array
    """Single precision, as they are stored."""
    siblings: Array


@dataclass(eq=False)
class Discovery:
    """Chooses the pages to explore, and learns from those that were read: how much to explore, and what siblings say.

    Its state is `share`, the share of orders that explore, the evidence on siblings (a matrix of 3 by 3 and a vector),
    and the pages that were read before the last `wait_reviews` reviews. Columns alone decide: the same ones give the
    same pages.
    """

    rule: DiscoveryRule = field(default_factory=DiscoveryRule)
    share: float = field(init=False)
    waiting: list[PagesRead] = field(default_factory=list)
    seen: Floats = field(default_factory=lambda: np.zeros((_EVIDENCE, _EVIDENCE)))
    followed: Floats = field(default_factory=lambda: np.zeros(_EVIDENCE))
    credit_explored: float = float("nan")
    credit_others: float = float("nan")

    def __post_init__(self) -> None:
        """Begin with the share of the rule."""
        self.share = self.rule.first_share

    @property
    def siblings_weight(self) -> float:
        """How far a page's importance moves towards that of its siblings until it is judged, by those read so far.

        A ridge regression of how much the logarithms of importance rose, on the logarithm itself and on the siblings'.
        """
        ones, own, siblings, _, own_own, own_siblings, _, _, siblings_siblings = map(float, self.seen.ravel())
        rose, rose_own, rose_siblings = map(float, self.followed)
        # The equations are solved by hand: what LAPACK finds differs in its last bits between processors.
        own_mean, siblings_mean = own / (ones + _LITTLE), siblings / (ones + _LITTLE)
        one = max(own_own - own * own_mean, 0.0) + self.rule.doubt
        both = own_siblings - own * siblings_mean
        other = max(siblings_siblings - siblings * siblings_mean, 0.0) + self.rule.doubt
        rose_one, rose_other = rose_own - rose * own_mean, rose_siblings - rose * siblings_mean
        determinant = one * other - both * both
        if determinant <= 0.0:  # rounding: the numbers are far too large for the doubt to count
            return 0.0
        by_own = (other * rose_one - both * rose_other) / determinant
        by_siblings = (one * rose_other - both * rose_one) / determinant
        return min(max(by_siblings / max(1.0 + by_own, 0.1), 0.0), 1.0)

    def begin_review(self, pages: DiscoveryPages, read: Ints, rows_of: Callable[[Ids], Ints], about: int) -> Ints:
        """Learn from the pages read `wait_reviews` ago, and return the rows that may be explored until the next review.

        `read` are the rows that were read since the last review, `about` is how many will be read until the next one.
        `rows_of` returns the rows of pages by their ids, -1 for pages no longer known.
        """
        rule = self.rule
        if len(self.waiting) >= rule.wait_reviews:
            self._judge(pages, self.waiting.pop(0), rows_of)
        worth = page_worth(pages, self.siblings_weight, rule)
        self._keep(pages, worth, read)
        unread = np.flatnonzero(pages.can_be_explored)
        exploring = worth.exploring_of(unread)
        del worth  # there may be very many pages
        most = round(self.share * min(about, len(unread)))
        limits = np.minimum(explorable(pages, rule), max(1, int(rule.explored_at_once * most)))
        is_open = limits[pages.domain[unread]] > 0
        unread, exploring = unread[is_open], exploring[is_open]
        return unread[best(exploring, pages.page[unread], pages.domain[unread], limits, most)]

    def _keep(self, pages: DiscoveryPages, worth: PageWorth, read: Ints) -> None:
        """Keep pages that were read, or a sample if they are too many, until they are judged."""
        most = max(_LEAST_KEPT, len(pages) // _PAGES_A_KEPT_ONE)
        kept = read[:: max(1, -(-len(read) // most))]
        own, siblings = worth.own[kept].astype(np.float32), worth.siblings[kept].astype(np.float32)
        self.waiting.append(PagesRead(pages.page[kept], pages.explored[kept], own, siblings))

    def _judge(self, pages: DiscoveryPages, judged: PagesRead, rows_of: Callable[[Ids], Ints]) -> None:
        """Learn from the present importance of pages that were read before."""
        rows = rows_of(judged.page)
        kept = rows >= 0
        rows, explored = rows[kept], judged.explored[kept]
        self._learn_siblings(pages.importance[rows], judged.own[kept], judged.siblings[kept])
        if explored.any() and not explored.all():
            credit = page_credit(pages, rows, self.rule)
            self.credit_explored = float(credit[explored].mean())
            self.credit_others = float(credit[~explored].mean())
            self.share = next_share(self.share, self.credit_explored, self.credit_others, self.rule)

    def _learn_siblings(self, importance: Floats, own: Array, siblings: Array) -> None:
        if len(own) == 0:
            return
        own, siblings = own.astype(np.float64), siblings.astype(np.float64)
        rose = logarithms(np.maximum(importance, self.rule.floor * 1e-3)) - own
        evidence = np.column_stack((np.ones(len(own)), own - math.log(self.rule.floor), siblings))
        # Plain sums: those of BLAS differ in their last bits between processors.
        squares = (evidence[:, :, None] * evidence[:, None, :]).sum(axis=0)
        self.seen = (1.0 - self.rule.forget) * self.seen + squares
        self.followed = (1.0 - self.rule.forget) * self.followed + (evidence * rose[:, None]).sum(axis=0)


def page_credit(pages: DiscoveryPages, rows: Ints, rule: DiscoveryRule) -> Floats:
    """Return what reading each of the pages at these rows, all different, has brought.

    Its importance above the floor, the same of the pages first found through it, and the floor for at most
    `floors_found` such pages, because a page may have any number of links.
    """
    number_of = np.full(len(pages) + 1, -1, np.int32)  # the last one is that of pages whose finder is not known
    number_of[rows] = np.arange(len(rows))
    finder = number_of[pages.found_by]
    found = np.flatnonzero(finder >= 0)
    finder = finder[found]
    brought = np.bincount(finder, weights=_above(pages.importance[found], rule), minlength=len(rows))
    floors = rule.floor * np.minimum(np.bincount(finder, minlength=len(rows)), rule.floors_found)
    credit: Floats = _above(pages.importance[rows], rule) + brought + floors
    return credit


def _above(importance: Floats, rule: DiscoveryRule) -> Floats:
    above: Floats = np.maximum(importance - rule.floor, 0.0)
    return above


def next_share(share: float, explored: float, others: float, rule: DiscoveryRule) -> float:
    """Return the share of orders that explore from now on, by the mean credit of explored pages and of the others."""
    if explored <= 0.0 and others <= 0.0:
        return share
    ratio = (explored / others) ** rule.step if others > 0.0 else rule.most_step
    step = min(max(ratio, 1.0 / rule.most_step), rule.most_step)
    return min(max(share * step, rule.least_share), rule.most_share)
