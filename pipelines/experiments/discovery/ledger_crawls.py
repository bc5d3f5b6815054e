"""A crawl that follows the orders of a ledger: what the product does, event by event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opicflow.pipelines.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.experiments.discovery.crawls import MARKS, ROUNDS
from opicflow.pipelines.experiments.tables import Row
from opicflow.pipelines.ledger import Certified, CrawlEntry, Ledger, LedgerConfig, RefreshConfig, TickEntry
from opicflow.pipelines.ledger.entries import Kind
from opicflow.pipelines.web.crawl import announcements, links_of, visits
from opicflow.schemas.arrays import Ints
from opicflow.schemas.pages import PageIds

RECOMPUTED, LEARNT = "recomputed, by the ledger", "learnt"
BY_LEDGER = {RECOMPUTED: "importance", LEARNT: "learnt"}
"""Orders of a ledger, and what it discovers by."""
_DAY, _FIRST_DAY, _DISCOVERY = 86_400, 20_000, 1


def discovery_by_ledger(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """Measure a crawl by the orders of a certified ledger, a cycle a day. `order` is a name in `BY_LEDGER`.

    Columns are those of `discovery`.
    """
    crawled = crawled_web(web, pages, seed)
    graph, urls = crawled.pages.graph, crawled.pages.urls
    ids = PageIds().of_all(urls)
    numbers_by_id = np.argsort(ids)
    a_round = max(1, graph.pages // ROUNDS)
    refresh = RefreshConfig(bandwidth_per_day=float(a_round), discovery_share=1.0, discover_by=BY_LEDGER[order])
    ledger = Ledger(LedgerConfig(history=Certified(), remember_links=True, refresh=refresh))

    def with_urls(entry: CrawlEntry, numbers: Ints) -> CrawlEntry:
        texts = [urls[number] for number in numbers.tolist()]
        starts = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
        joined = np.frombuffer(b"".join(texts), np.uint8)
        return replace(entry, items=replace(entry.items, url_starts=starts, url_bytes=joined))

    entry = with_urls(announcements(ids[crawled.seeds]), crawled.seeds)
    ledger.apply(entry)
    read, day = np.zeros(graph.pages, np.bool_), _FIRST_DAY
    ranked = np.argsort(-crawled.exact, kind="stable")
    rows: list[Row] = []
    for mark in MARKS:
        wanted = max(1, mark * graph.pages // 100)
        while (missing := wanted - int(read.sum())) > 0:
            day += 1
            ledger.apply(TickEntry(day * _DAY))
            plan = ledger.plan(0, 9.0)
            ordered = plan.survey.pages[plan.orders.rows[plan.orders.why == _DISCOVERY]]
            numbers = numbers_by_id[np.searchsorted(ids[numbers_by_id], ordered)]
            numbers = numbers[~read[numbers]][:missing]
            if len(numbers) == 0:
                break
            read[numbers] = True
            times = day * _DAY * 1000 + np.arange(len(numbers))
            entry = with_urls(visits(graph, ids, numbers, entry.end.offset, time_ms=times), numbers)
            ledger.apply(entry)
            found = np.unique(links_of(graph, numbers)).astype(np.int64)
            entry = with_urls(announcements(ids[found], Kind.SIGHTING, entry.end.offset), found)
            ledger.apply(entry)
        row: Row = {"seed": seed, "web": web, "order": order, "mark": mark}
        row |= {"read": float(crawled.exact[read].sum()) * 100.0}
        for name, part in (("best", 100), ("top", 1000)):
            row[name] = float(read[ranked[: max(1, graph.pages // part)]].mean()) * 100.0
        row |= {"known": float("nan"), "hostile": float(crawled.pages.is_hostile[read].mean()) * 100.0}
        rows.append(row | _learnt(ledger))
    return rows


def _learnt(ledger: Ledger) -> Row:
    """Return what a ledger has learnt, in per cent."""
    learnt = ledger.discovery
    return {"share": learnt.share * 100.0, "siblings": learnt.siblings_weight * 100.0}
