"""Measures of manipulation: the share of refreshing that pages get which change at every fetch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opicflow.pipelines.lab.experiments.manipulation.schemes import ANNOUNCEMENTS, manipulated_web
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.change_rates import log_normal_rates
from opicflow.pipelines.lab.web.crawl import visits
from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, RefreshConfig, TickEntry
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.pages import PageIds

HONEST, FAKED, UNBOUNDED = "changes as others", "changes at every fetch", "the same with domain-refreshing=1e12"
WAYS = (HONEST, FAKED, UNBOUNDED)
DAYS_BETWEEN = 10
"""Days between two fetches of a page in the mean."""
CRAWLED_DAYS, MEASURED_DAYS = 160, 120
_FIRST_DAY, _DAY = 20_000, 86_400


def manipulation_refreshing(pages: int, seed: int, size: int, strategy: str, way: str) -> list[Row]:
    """Measure the share of the orders of a crawl that a domain with `size` pages gets, in one of `WAYS`, in per cent.

    A sitemap names the pages of the domain; no page links to them, but to its first one. All pages are read on the
    first day, then by the orders of a ledger. Honest pages change around once in 14 days.

    `importance` is the share of importance of the domain, `refreshed` its share of the orders of the last 120 days.
    """
    web = manipulated_web(pages, seed, ANNOUNCEMENTS, size)
    ids = PageIds().of_all(web.urls)
    numbers_by_id = np.argsort(ids)
    random = np.random.Generator(np.random.PCG64([seed, 7]))
    rates, versions = log_normal_rates(random, len(ids)), np.ones(len(ids), np.int64)
    config = RefreshConfig(bandwidth_per_day=pages / DAYS_BETWEEN, discovery_share=0.0, strategy=strategy)
    if way == UNBOUNDED:
        config = replace(config, domain_refreshing=1e12)
    ledger, end = Ledger(LedgerConfig(history=Certified(), refresh=config)), 0

    def read(numbers: Ints, seconds: Ints) -> None:
        nonlocal end
        if way != HONEST:
            versions[numbers[web.is_own[numbers]]] += 1
        texts = [web.urls[number] for number in numbers.tolist()]
        starts = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
        entry = visits(web.after, ids, numbers, end, None, 1000 * seconds)
        digests: Ids = versions[numbers].astype(np.uint64)
        text = np.frombuffer(b"".join(texts), np.uint8)
        items = replace(entry.items, digest=digests, url_starts=starts, url_bytes=text)
        ledger.apply(replace(entry, items=items))
        end = entry.end.offset

    read(np.arange(len(ids)), _FIRST_DAY * _DAY + np.arange(len(ids)) * _DAY // len(ids))
    ordered = own = 0
    for day in range(1, CRAWLED_DAYS + 1):
        versions += random.random(len(ids)) < -np.expm1(-rates)
        ledger.apply(TickEntry((_FIRST_DAY + day) * _DAY))
        plan = ledger.plan(0, 9.0)
        first = np.argsort(plan.orders.not_before, kind="stable")
        fetched = plan.survey.pages[plan.orders.rows[first]]
        numbers = numbers_by_id[np.searchsorted(ids[numbers_by_id], fetched)]
        if day > CRAWLED_DAYS - MEASURED_DAYS:
            ordered += len(numbers)
            own += int(web.is_own[numbers].sum())
        read(numbers, plan.orders.not_before[first])
    importance = ledger.estimate(ids).importance
    row: Row = {"seed": seed, "scheme": "faked changes", "size": size, "strategy": strategy, "way": way}
    row |= {
        "importance": float(importance[web.is_own].sum() / importance.sum()) * 100.0,
        "refreshed": own / max(ordered, 1) * 100.0,
    }
    return [row]
