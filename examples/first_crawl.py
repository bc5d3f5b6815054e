"""A small crawl, simulated: what the ledger says of its pages while it runs, beside their exact PageRank.

Run it with `make demo`. The crawler knows forty front pages at first and finds all others by their links; it always
fetches next what has the most cash waiting. The ledger sees one visit after the other and never stores a link.
"""

from __future__ import annotations

import time

import numpy as np

from opicflow.pipelines.graph.pagerank import pagerank
from opicflow.pipelines.ledger import UNITS_PER_PAGE, Ledger
from opicflow.pipelines.web.crawl import introductions, visits
from opicflow.pipelines.web.orders import GreedyOrder
from opicflow.pipelines.web.webs import power_law_web
from opicflow.schemas.pages import page_ids

PAGES, HOSTS, CRAWLS, SEED = 5_000, 40, 10, 7


def main() -> None:
    """Simulate, and print what a crawler would want to know."""
    web = power_law_web(PAGES, SEED, mean_links=10)
    urls = [f"https://host{n % HOSTS}.example/{f'page{n // HOSTS}' if n >= HOSTS else ''}" for n in range(PAGES)]
    ids = page_ids(urls)
    exact = pagerank(web).values
    print(f"A web of {PAGES:,} pages on {HOSTS} hosts with {web.links:,} links; the crawler knows {HOSTS} of them.")
    print("The first run compiles for about 20 seconds.\n", flush=True)

    ledger = Ledger()
    ledger.apply(introductions(ids[:HOSTS]))
    order = GreedyOrder(batch=HOSTS // 2)
    offset, done, begun = HOSTS, 0, time.perf_counter()
    print("  visits  pages known  pages read  mean error: all pages  top tenth")
    for crawl in (0.2, 0.5, *range(1, CRAWLS + 1)):
        while done < crawl * PAGES:
            entry = visits(web, ids, order.next(lambda: ledger.waiting_cash(ids)), offset)
            ledger.apply(entry)
            offset, done = entry.end.offset, done + len(entry.items)
        now = ledger.estimate(ids)
        error = np.abs(now.importance - exact) / exact * 100
        top_tenth = np.argsort(-exact)[: PAGES // 10]
        read = int((now.visits > 0).sum())
        print(f"{done:8,} {ledger.pages:12,} {read:11,} {error.mean():20.1f} % {error[top_tenth].mean():8.1f} %")
    seconds = time.perf_counter() - begun

    top = ledger.top(10)
    rank_of = dict(zip(ids.tolist(), exact.tolist(), strict=True))
    url_of = dict(zip(ids.tolist(), urls, strict=True))
    print("\n  importance   PageRank      off  visits  page")
    for page, importance, count in zip(top.pages.tolist(), top.importance, top.visits, strict=True):
        off = importance / rank_of[page] - 1
        print(f"  {importance:10.6f} {rank_of[page]:10.6f} {off:+8.1%} {count:7}  {url_of[page]}")

    balance = ledger.audit()
    print(f"\n{ledger.visits:,} visits, {ledger.transfers:,} transfers in {seconds:.1f} s, choosing included.")
    print(
        f"Cash minted {balance.minted:,} = {PAGES:,} pages x {UNITS_PER_PAGE:,}; on pages {balance.cash:,}, "
        f"uncollected {balance.uncollected:,}, virtual {balance.virtual:,}; missing {balance.drift}."
    )


if __name__ == "__main__":
    main()
