"""Measures of discovery: how much importance a crawl has read, round by round."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import CrawledWeb, crawled_web
from opicflow.pipelines.lab.experiments.discovery.reading_orders import (
    OMNISCIENT,
    ORDERS,
    DiscoveryOrder,
    Omniscient,
)
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.schemas.arrays import Ints

ROUNDS = 100
MARKS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60)
"""Crawls are measured after these percentages of the pages."""
FIRST_DAY = 20_000


class ReadingOrders(Protocol):
    """Gives the unread pages to read next, day by day, and receives the pages read."""

    def order(self, day: int, most: int) -> Ints:
        """Return the pages that are ordered at the beginning of a day, the first ones first; `most` may be read."""

    def read(self, day: int, pages: Ints) -> None:
        """These pages were read on this day."""

    def learnt(self) -> tuple[float, float]:
        """Return the share of orders that explore, and the weight of siblings."""


def discovery(pages: int, seed: int, web: str, order: str, until: int = MARKS[-1]) -> list[Row]:
    """Measure a crawl that begins at ten pages and reads a hundredth of the pages a round, each page once.

    After each of `MARKS` up to one, in per cent: `read` is the share of all importance that the pages read have; `best`
    and `top` the share of the most important hundredth and thousandth of the pages that are not hostile that was read;
    `known` the share of all pages that is known; `hostile` the share of hostile pages among those read; `share` that of
    the orders which explore; `siblings` the weight of siblings, in per cent.
    """
    crawled = crawled_web(web, pages, seed)
    classes: dict[str, type[DiscoveryOrder]] = {**ORDERS, OMNISCIENT: Omniscient}
    chosen = classes[order](crawled, page_ids(crawled.pages.graph.pages, seed))
    return measure_reading(crawled, chosen, {"seed": seed, "web": web, "order": order}, until)


def measure_reading(crawled: CrawledWeb, orders: ReadingOrders, named: Row, until: int = MARKS[-1]) -> list[Row]:
    """Read a web by these orders, and measure it after each of `MARKS` up to one. Columns are those of `discovery`."""
    every = crawled.pages.graph.pages
    ranked = np.argsort(-crawled.exact, kind="stable")
    honest = int((~crawled.pages.is_hostile).sum())
    read, day = np.zeros(every, np.bool_), FIRST_DAY
    rows: list[Row] = []
    for mark in MARKS[: MARKS.index(until) + 1]:
        wanted = max(1, mark * every // 100)
        while (missing := wanted - int(read.sum())) > 0:
            day += 1
            numbers = orders.order(day, min(a_day(crawled), missing))
            numbers = numbers[~read[numbers]][:missing]
            if len(numbers) == 0:
                break
            read[numbers] = True
            orders.read(day, numbers)
        row: Row = {**named, "mark": mark, "read": float(crawled.exact[read].sum()) * 100.0}
        for name, part in (("best", 100), ("top", 1000)):
            row[name] = float(read[ranked[: max(1, honest // part)]].mean()) * 100.0
        known = orders.seen.known / every * 100.0 if isinstance(orders, DiscoveryOrder) else float("nan")
        row |= {"known": known, "hostile": float(crawled.pages.is_hostile[read].mean()) * 100.0}
        share, siblings = orders.learnt()
        rows.append(row | {"share": share * 100.0, "siblings": siblings * 100.0})
    return rows


def a_day(crawled: CrawledWeb) -> int:
    """Return the pages that are read a day."""
    return max(1, crawled.pages.graph.pages // ROUNDS)
