"""Orders in which unread pages can be read: those of the literature, and those of this project."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import CrawledWeb
from opicflow.pipelines.lab.web.seen import SeenGraph
from opicflow.schemas.arrays import Floats, Ids, Ints

DAMPING = 0.85
_OTHER_HOST = 2.0


class DiscoveryOrder(ABC):
    """An order of unread pages: `values` are highest for the best pages; it follows the pages read."""

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        self.web, self.ids, self.graph = web, ids, web.pages.graph
        self.seen = SeenGraph(self.graph, web.seeds, DAMPING, self._given())

    def order(self, day: int, most: int) -> Ints:
        """Return the pages to read next, at most so many; equals in the order of their ids."""
        unread = np.flatnonzero(self.seen.is_known & ~self.seen.is_read)
        return unread[np.lexsort((self.ids[unread], -self.values()[unread]))][:most]

    def read(self, day: int, pages: Ints) -> None:
        """Read these pages."""
        self.seen.read(pages)

    def learnt(self) -> tuple[float, float]:
        """Return the share of orders that explore, and the weight of siblings: most orders learn nothing."""
        return 0.0, 0.0

    @abstractmethod
    def values(self) -> Floats:
        """Return what every page is worth; of unread pages the best come first."""

    def _given(self) -> Ints | None:
        return None


class BreadthFirst(DiscoveryOrder):
    """The page that was found first is read first."""

    def values(self) -> Floats:
        return -self.seen.found_at.astype(np.float64)


class AnyOrder(DiscoveryOrder):
    """Any page that is known, in an order that a seed determines."""

    def values(self) -> Floats:
        return np.zeros(self.graph.pages)  # equals are in the order of their ids, which are random


class InDegree(DiscoveryOrder):
    """The page that most read pages link to is read first."""

    def values(self) -> Floats:
        return self.seen.linkers.astype(np.float64)


class Recomputed(DiscoveryOrder):
    """The PageRank of the graph seen, every round."""

    def values(self) -> Floats:
        return self.seen.importance


class RankMass(Recomputed):
    """RankMass (Cho and Schonfeld 2007): the PageRank of the graph seen personalised to the seeds, a lower bound."""

    def _given(self) -> Ints:
        return self.web.seeds


class GreedyByTruth(DiscoveryOrder):
    """The exact importance, which no crawl has: the best order that plans one step ahead."""

    def values(self) -> Floats:
        return self.web.exact


class Omniscient(GreedyByTruth):
    """The most important pages of the whole web, found or not: no order can have read more."""

    def order(self, day: int, most: int) -> Ints:
        unread = np.flatnonzero(~self.seen.is_read)
        return unread[np.argsort(-self.values()[unread], kind="stable")][:most]


class _PayingOrder(DiscoveryOrder):
    """Orders by amounts of pages. A page that is read pays its amount to the pages that it links to."""

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        super().__init__(web, ids)
        self.amounts = np.zeros(self.graph.pages)
        self.amounts[web.seeds] = 1.0

    def values(self) -> Floats:
        return self.amounts

    def read(self, day: int, pages: Ints) -> None:
        for page in pages.tolist():
            targets = self.graph.targets[self.graph.starts[page] : self.graph.starts[page + 1]].astype(np.int64)
            self.pay(page, targets)
        self.end_of_round()
        self.seen.read(pages)

    @abstractmethod
    def pay(self, page: int, targets: Ints) -> None:
        """Pay for a page that is about to be read."""

    def end_of_round(self) -> None:
        """Do the work that is due once a round, after the payments."""


class NutchOpic(_PayingOrder):
    """OPICScoringFilter of Apache Nutch 1.23-SNAPSHOT (commit 7906941) with its defaults.

    A seed has the score 1, another page 0. The score that a page has when a round begins is divided among its links,
    which all weigh the same, and kept. What links bring is added at the end of the round. There is no virtual page.
    """

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        super().__init__(web, ids)
        self._brought = np.zeros(self.graph.pages)

    def pay(self, page: int, targets: Ints) -> None:
        if len(targets):
            self._brought[targets] += self.amounts[page] / len(targets)

    def end_of_round(self) -> None:
        self.amounts += self._brought
        self._brought[:] = 0.0


class Cash(_PayingOrder):
    """OPIC's cash: a page that is read pays all its cash, the share 1 - d to the virtual page, which pays all.

    Every page that is found brings a unit of cash. The virtual page pays known pages once a round.
    """

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        super().__init__(web, ids)
        self.virtual = 0.0
        self.is_found = self.seen.is_known.copy()

    def pay(self, page: int, targets: Ints) -> None:
        cash, self.amounts[page] = self.amounts[page], 0.0
        self.amounts[targets[~self.is_found[targets]]] += 1.0
        self.is_found[targets] = True
        if len(targets):
            self.amounts[targets] += DAMPING * cash / len(targets)
        self.virtual += (1.0 - DAMPING if len(targets) else 1.0) * cash

    def end_of_round(self) -> None:
        self.amounts[self.is_found] += self.virtual / int(self.is_found.sum())
        self.virtual = 0.0


class FractionalPageRank(_PayingOrder):
    """Fractional PageRank with hosts (Alam, Ha and Lee 2012), as we read it, without the titles of pages.

    Every page begins with 1 - d. A page that is read hands out d times its amount, once; the shares of pages read
    before are lost. A link to another host counts twice.
    """

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        super().__init__(web, ids)
        self.amounts[:] = 1.0 - DAMPING

    def pay(self, page: int, targets: Ints) -> None:
        site = self.web.pages.site
        weights = np.where(site[targets] == site[page], 1.0, _OTHER_HOST)
        self.amounts[targets] += DAMPING * self.amounts[page] * weights / weights.sum()


class Siblings(DiscoveryOrder):
    """The rule that was tried first, without exploring: 0.7 of the own log importance, 0.3 of that of the neighbours.

    Neighbours are the five nearest known URLs on either side, of any host.
    """

    OWN, REACH = 0.7, 5

    def values(self) -> Floats:
        numbers = np.flatnonzero(self.seen.is_known)
        values = np.full(self.graph.pages, -np.inf)
        values[numbers] = self.smoothed(numbers)
        return values

    def smoothed(self, numbers: Ints) -> Floats:
        """Return the worth of known pages, which ascend."""
        own = np.log(self.seen.importance[numbers])
        return self.OWN * own + (1.0 - self.OWN) * means_beside(own, self.REACH)


class LearntAtFirst(Siblings):
    """The rule that was tried first: siblings, and a learnt share of the orders that explores (issue 30)."""

    NEAR, BONUS, FLOOR, FLOORS, WAIT = 50, 2.0, 1.0 - DAMPING, 10, 4

    def __init__(self, web: CrawledWeb, ids: Ids) -> None:
        super().__init__(web, ids)
        self.share = 0.2
        self._ordered: list[tuple[Ints, Ints]] = []

    def learnt(self) -> tuple[float, float]:
        return self.share, 1.0 - self.OWN

    def order(self, day: int, most: int) -> Ints:
        if len(self._ordered) > self.WAIT:
            self._learn(*self._ordered.pop(0))
        numbers = np.flatnonzero(self.seen.is_known)
        worth = self.smoothed(numbers)
        near = means_beside(self.seen.is_read[numbers].astype(np.float64), self.NEAR)
        is_left = ~self.seen.is_read[numbers]
        by = worth + self.BONUS * (1.0 - near)
        chosen: list[Ints] = []
        exploring = round(self.share * most)
        for values, wanted in ((by, exploring), (worth, most - exploring)):
            left = np.flatnonzero(is_left)
            best = left[np.lexsort((self.ids[numbers[left]], -values[left]))][:wanted]
            is_left[best] = False
            chosen.append(numbers[best])
        self._ordered.append((chosen[0], chosen[1]))
        return np.concatenate((chosen[1], chosen[0]))

    def _learn(self, explored: Ints, others: Ints) -> None:
        if len(explored) == 0 or len(others) == 0:
            return
        above = np.maximum(self.seen.importance - self.FLOOR, 0.0)
        found = np.flatnonzero(self.seen.found_by >= 0)
        finder = self.seen.found_by[found]
        pages = self.graph.pages
        floors = self.FLOOR * np.minimum(np.bincount(finder, minlength=pages), self.FLOORS)
        credit = above + np.bincount(finder, weights=above[found], minlength=pages) + floors
        step = float((credit[explored].mean() / credit[others].mean()) ** 0.3)
        self.share = float(np.clip(self.share * np.clip(step, 0.5, 2.0), 0.05, 0.7))


def means_beside(values: Floats, reach: int) -> Floats:
    """Return the mean of the values of up to `reach` rows on either side of each; its own value if it is alone."""
    rows = np.arange(len(values))
    low, high = np.maximum(rows - reach, 0), np.minimum(rows + reach + 1, len(values))
    sums = np.concatenate(([0.0], np.cumsum(values)))
    others = high - low - 1
    means: Floats = np.where(others > 0, (sums[high] - sums[low] - values) / np.maximum(others, 1), values)
    return means


ORDERS: dict[str, type[DiscoveryOrder]] = {
    "random": AnyOrder,
    "breadth-first": BreadthFirst,
    "in-degree": InDegree,
    "Nutch's OPIC": NutchOpic,
    "RankMass": RankMass,
    "fractional": FractionalPageRank,
    "cash": Cash,
    "recomputed": Recomputed,
    "siblings": Siblings,
    "learnt at first": LearntAtFirst,
    "greedy by truth": GreedyByTruth,
}
OMNISCIENT = "omniscient"
