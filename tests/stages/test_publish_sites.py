"""The importance of sites: sums over the pages of a ledger, which every shard publishes for its own pages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig
from opicflow.pipelines.results.record_columns import pages_of, ranked_sites, site_columns
from opicflow.pipelines.stages.publish import everything
from opicflow.pipelines.stages.publish_sites import pack_sites, sites_of_removed
from opicflow.schemas.columns import plain_rows
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.sites import SiteKind
from tests.support.written_crawls import DAY, T0, Crawl


def on_hosts(page: int) -> str:
    """Return the URL of a page on one of seven hosts of four domains, with an IP address and a port among them."""
    host = ("example.org", "www.example.org", "b.co.uk", "a.b.co.uk", "shop.example:8080", "shop.example", "10.0.0.1")
    return f"https://{host[page % 7]}/{page}"


def crawled(pages: int = 150, config: LedgerConfig | None = None) -> Crawl:
    crawl = Crawl(config or LedgerConfig(), name=on_hosts)
    crawl.tick(T0)
    crawl.see(range(pages))
    for day in range(12):
        for page in range(0, pages, 2):
            crawl.visit(
                page,
                T0 + day * DAY + page,
                links=[(page * 7 + k + day // 6) % pages for k in range(4)],
                digest=day * page,
            )
        crawl.tick(T0 + (day + 1) * DAY)
    return crawl


def sites_of(ledger: Ledger, by: SiteKind, removed: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    columns = site_columns(pages_of(pack_sites(ledger, ledger.preview(), by, removed)))
    return {row["site"]: row for row in plain_rows(columns)}


@pytest.mark.parametrize("by", ["host", "domain"])
def test_sites_are_the_sums_over_their_pages_and_all_sites_together_are_everything(by: SiteKind) -> None:
    crawl = crawled()
    ledger, sites = crawl.ledger, sites_of(crawl.ledger, by)
    expected = ranked_sites(map(pages_of, everything(ledger, None)), by)  # which adds up pages one by one
    assert list(sites) == [one.site for one in expected]
    for one in expected:
        found = sites[one.site]
        assert (found["pages"], found["read"]) == (one.pages, one.read)
        assert found["importance"] == pytest.approx(one.importance, rel=1e-12)
        assert found["mean_score"] == pytest.approx(one.importance * ledger.pages / one.pages)
        assert (found["by"], found["shards"]) == (by.upper(), 1)
    assert sum(one["importance"] for one in sites.values()) == pytest.approx(1.0)
    assert len(sites) == (7 if by == "host" else 4)


def test_sites_of_equal_importance_are_in_the_order_of_their_first_pages() -> None:
    crawl = Crawl(LedgerConfig(history=Certified()), name=lambda page: f"https://{(7 * page) % 40:02}.example/")
    crawl.tick(T0)
    crawl.see(range(40))
    columns = site_columns(pages_of(pack_sites(crawl.ledger, crawl.ledger.preview(), "host")))
    assert len(set(columns["importance"].tolist())) == 1
    assert [row["site"] for row in plain_rows(columns)] == [f"{(7 * page) % 40:02}.example" for page in range(40)]


def test_changes_and_trends_are_sums_over_the_pages() -> None:
    ledger = crawled(config=LedgerConfig(history=Certified())).ledger
    plan = ledger.preview()
    estimates = ledger.estimate(plan.survey.pages)
    changes: dict[str, float] = defaultdict(float)
    trends: dict[str, float] = defaultdict(float)
    for row, page in enumerate(plan.survey.pages.tolist()):
        host = (ledger.url(page) or b"").decode().split("/")[2]
        trends[host] += float(estimates.trend_per_day[row])
        changes[host] += float(plan.survey.changes_per_day[row]) * bool(estimates.visits[row])
    sites = sites_of(ledger, "host")
    assert {name: one["changes_per_day"] for name, one in sites.items()} == pytest.approx(changes)
    assert {name: one["trend_per_day"] for name, one in sites.items()} == pytest.approx(trends)
    assert any(changes.values()) and any(trends.values())


def test_a_site_that_lost_all_its_pages_follows_without_any() -> None:
    crawl = crawled()
    ledger = crawl.ledger
    lost = [page for page in range(150) if "b.co.uk" in on_hosts(page)]
    ledger._removal.drop(np.array([crawl.id(page) for page in lost], np.uint64))
    part = pages_of(pack_sites(ledger, ledger.preview(), "domain", ("b.co.uk", "example.org")))
    assert part.texts[-1] == b"b.co.uk" and part.columns["pages"][-1] == 0
    assert part.columns["pages"].tolist().count(0) == 1
    assert "b.co.uk" not in site_columns(part)["site"]


def test_the_sites_of_removed_pages_are_those_of_their_urls() -> None:
    crawl = Crawl(replace(LedgerConfig(), max_pages=40), name=on_hosts)
    crawl.tick(T0)
    crawl.see(range(150))
    applied = crawl.tick(T0 + 3600)
    assert sum(len(pages) for _, pages in applied.removed) >= 110
    assert sites_of_removed(applied, "domain") == {"example.org", "b.co.uk", "shop.example", "10.0.0.1"}


@pytest.mark.parametrize("shards", [1, 3, 16])
def test_a_site_is_in_one_shard_unless_a_boundary_divides_it(shards: int) -> None:
    ids, ranges = PageIds(), ShardRanges.equal(shards)
    urls = [f"https://host{page % 40}.example/{page}" for page in range(4_000)]
    pages = ids.of_all(urls)
    divided = int(pages[7])  # a boundary among the pages of one site
    if shards == 3:
        ranges = ShardRanges((0, *sorted((divided, ranges.firsts[2]))))
    first, last = ids.site_range(pages)
    counts = ranges.of(last) - ranges.of(first) + 1
    found = defaultdict(set)
    for url, shard in zip(urls, ranges.of(pages).tolist(), strict=True):
        found[url.split("/")[2]].add(shard)
    for url, count in zip(urls, counts.tolist(), strict=True):
        assert len(found[url.split("/")[2]]) <= count <= 2
    assert ((counts > 1).sum() > 0) == (shards == 3)
