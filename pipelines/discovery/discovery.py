"""`Discovery`: orders of unread pages cycle by cycle, and what is learnt from those that were read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from opicflow.pipelines.discovery.limits import best, best_filled, explorable
from opicflow.pipelines.discovery.page_columns import DiscoveryPages
from opicflow.pipelines.discovery.rule import DiscoveryRule
from opicflow.pipelines.discovery.worth import PageWorth, page_worth
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints

_EVIDENCE = 3


@dataclass(frozen=True, eq=False)
class DiscoveryOrders:
    """The rows to read: first those by worth, best first, then those that explore."""

    rows: Ints
    explored: Bools


@dataclass(frozen=True, eq=False)
class OrderedCycle:
    """What is kept of a cycle's orders until they are judged, a row for each page."""

    page: Ids
    explored: Bools
    own: Floats
    siblings: Floats


@dataclass(eq=False)
class Discovery:
    """Orders unread pages, and learns from those that were read: how much to explore, and what siblings say.

    Its state is `share`, the share of orders that explore, the evidence on siblings (a matrix of 3 by 3 and a vector),
    and the orders of the last `wait_cycles` cycles. It is decided by columns alone: the same columns give the same
    orders. In a cycle call `learn`, then `order`.
    """

    rule: DiscoveryRule = field(default_factory=DiscoveryRule)
    share: float = field(init=False)
    waiting: list[OrderedCycle] = field(default_factory=list)
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
        doubt = np.diag([1e-3, self.rule.doubt, self.rule.doubt])
        solved = np.linalg.solve(self.seen + doubt, self.followed)
        return float(np.clip(solved[2] / max(1.0 + solved[1], 0.1), 0.0, 1.0))

    def order(self, pages: DiscoveryPages, count: int) -> DiscoveryOrders:
        """Return the orders of a cycle, at most `count`, and keep what is needed to judge them later."""
        rule, worth = self.rule, page_worth(pages, self.siblings_weight, self.rule)
        unread = np.flatnonzero(~pages.is_read & ~pages.explored)
        exploring = round(self.share * min(count, len(unread)))
        limits = np.minimum(explorable(pages, rule), max(1, int(rule.explored_at_once * exploring)))
        allowed = unread[limits[pages.domain[unread]] > 0]
        chosen = allowed[best(worth.exploring[allowed], pages.page[allowed], pages.domain[allowed], limits, exploring)]
        is_left = ~pages.is_read
        is_left[chosen] = False
        left = np.flatnonzero(is_left)
        rest = count - len(chosen)
        at_once = max(1, int(rule.ordered_at_once * count))
        by_worth = left[best_filled(worth.worth[left], pages.page[left], pages.domain[left], at_once, rest)]
        rows = np.concatenate((by_worth, chosen))
        orders = DiscoveryOrders(rows, np.arange(len(rows)) >= len(by_worth))
        self._keep(pages, worth, orders)
        return orders

    def learn(self, pages: DiscoveryPages, rows_of: Callable[[Ids], Ints]) -> None:
        """Judge the orders of `wait_cycles` ago by what they have become; call it once a cycle, before `order`.

        `rows_of` returns the rows of pages by their ids, -1 for pages no longer known. Pages not read do not count.
        """
        if len(self.waiting) < self.rule.wait_cycles:
            return
        judged = self.waiting.pop(0)
        rows = rows_of(judged.page)
        kept = rows >= 0
        kept[kept] = pages.is_read[rows[kept]]
        rows, explored = rows[kept], judged.explored[kept]
        self._learn_siblings(pages.importance[rows], judged.own[kept], judged.siblings[kept])
        if explored.any() and not explored.all():
            credit = page_credit(pages, self.rule)[rows]
            self.credit_explored = float(credit[explored].mean())
            self.credit_others = float(credit[~explored].mean())
            self.share = next_share(self.share, self.credit_explored, self.credit_others, self.rule)

    def _learn_siblings(self, importance: Floats, own: Floats, siblings: Floats) -> None:
        if len(own) == 0:
            return
        rose = np.log(np.maximum(importance, self.rule.floor * 1e-3)) - own
        evidence = np.column_stack((np.ones(len(own)), own - np.log(self.rule.floor), siblings))
        self.seen = (1.0 - self.rule.forget) * self.seen + evidence.T @ evidence
        self.followed = (1.0 - self.rule.forget) * self.followed + evidence.T @ rose

    def _keep(self, pages: DiscoveryPages, worth: PageWorth, orders: DiscoveryOrders) -> None:
        rows = orders.rows
        self.waiting.append(OrderedCycle(pages.page[rows], orders.explored, worth.own[rows], worth.siblings[rows]))


def page_credit(pages: DiscoveryPages, rule: DiscoveryRule) -> Floats:
    """Return what reading each page has brought.

    Its importance above the floor, the same of the pages first found through it, and the floor for up to `floors_found`
    of those: no more, because a page may have any number of links.
    """
    above = np.maximum(pages.importance - rule.floor, 0.0)
    found = pages.found_by >= 0
    finder = pages.found_by[found]
    brought = np.bincount(finder, weights=above[found], minlength=len(pages))
    floors = rule.floor * np.minimum(np.bincount(finder, minlength=len(pages)), rule.floors_found)
    credit: Floats = above + brought + floors
    return credit


def next_share(share: float, explored: float, others: float, rule: DiscoveryRule) -> float:
    """Return the share of orders that explore from now on, by the mean credit of explored pages and of the others."""
    if explored <= 0.0 and others <= 0.0:
        return share
    ratio = (explored / others) ** rule.step if others > 0.0 else rule.most_step
    step = min(max(ratio, 1.0 / rule.most_step), rule.most_step)
    return min(max(share * step, rule.least_share), rule.most_share)
