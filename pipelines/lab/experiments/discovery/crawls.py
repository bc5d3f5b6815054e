"""Measures of discovery: how much importance a crawl has read, round by round."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.lab.experiments.discovery.reading_orders import (
    OMNISCIENT,
    ORDERS,
    DiscoveryOrder,
    LearntAtFirst,
    Omniscient,
)
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.webs import page_ids

ROUNDS = 100
MARKS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60)
"""Crawls are measured after these percentages of the pages."""


def discovery(pages: int, seed: int, web: str, order: str, until: int = MARKS[-1]) -> list[Row]:
    """Measure a crawl that begins at ten pages and reads a hundredth of the pages a round, each page once.

    After each of `MARKS` up to one, in per cent: `read` is the share of all importance that the pages read have; `best`
    and `top` the share of the most important hundredth and thousandth of the pages that are not hostile that was read;
    `known` the share of all pages that is known; `hostile` the share of hostile pages among those read; `share` that of
    the orders which explore; `siblings` the weight of siblings, in per cent.
    """
    crawled = crawled_web(web, pages, seed)
    every = crawled.pages.graph.pages
    ranked = np.argsort(-crawled.exact, kind="stable")
    classes: dict[str, type[DiscoveryOrder]] = {**ORDERS, OMNISCIENT: Omniscient}
    chosen = classes[order](crawled, page_ids(every, seed))
    a_round = max(1, every // ROUNDS)
    rows: list[Row] = []
    for percentage in MARKS[: MARKS.index(until) + 1]:
        wanted = max(1, percentage * every // 100)
        while (missing := wanted - int(chosen.seen.is_read.sum())) > 0:
            orders = chosen.next(min(a_round, missing))
            if len(orders) == 0:
                break
            chosen.read(orders)
        read = chosen.seen.is_read
        row: Row = {"seed": seed, "web": web, "order": order, "mark": percentage}
        row |= {"read": float(crawled.exact[read].sum()) * 100.0}
        for name, part in (("best", 100), ("top", 1000)):
            row[name] = float(read[ranked[: max(1, pages // part)]].mean()) * 100.0
        row |= {"known": chosen.seen.known / every * 100.0}
        row |= {"hostile": float(crawled.pages.is_hostile[read].mean()) * 100.0}
        rows.append(row | _learnt(chosen))
    return rows


def _learnt(order: DiscoveryOrder) -> Row:
    """Return what an order has learnt, in per cent."""
    share = weight = 0.0
    if isinstance(order, LearntAtFirst):
        share, weight = order.share, 1.0 - order.OWN
    return {"share": share * 100.0, "siblings": weight * 100.0}
