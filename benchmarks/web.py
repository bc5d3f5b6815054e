"""Group `web`: how fast webs are made and crawled without a network."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.pipelines.lab.web.crawl import WebCrawl
from opicflow.pipelines.lab.web.visit_orders import CycleOrder, ExactGreedyOrder, GreedyOrder, LoggedOrder, VisitOrder
from opicflow.pipelines.lab.web.webs import hosted_web, page_ids, poisson_web, power_law_web
from opicflow.pipelines.ledger import Ledger
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Ints

SEED = 1


def measure(scale: Scale) -> Iterator[Figure]:
    """Webs, crawls by each order against a ledger of the same visits, and Greedy against the naive one."""
    pages = scale.pick(2_000, 200_000)
    for name, make in (("power_law", power_law_web), ("poisson", poisson_web)):
        make(1_000, SEED)
        begun = time.process_time()
        web = make(pages, SEED)
        seconds = time.process_time() - begun
        check(abs(web.links / pages - 10) < 1.5, f"the {name} web has 10 links a page, not {web.links / pages:.1f}")
        yield Figure(f"web.{name}", pages / seconds, "pages/s", "a web of 10 links a page, from a seed")
    hosted_web(1_000, SEED)
    begun = time.process_time()
    hosted_web(pages, SEED)
    yield Figure("web.hosts", pages / (time.process_time() - begun), "pages/s", "the same with hosts")

    web = power_law_web(pages, SEED)
    for name in ("cycle", "greedy"):
        say(f"web: {name}")
        visited = _crawled(web, _order(name, web), 2 * pages)

        def by_order(number: int, name: str = name) -> float:
            return float(len(_crawled(web, _order(name, web), 2 * pages)))

        def as_logged(number: int, visited: Ints = visited) -> float:
            return float(len(_crawled(web, LoggedOrder(visited, max(1, pages // 100)), 2 * pages)))

        ours, logged = race(scale.pick(1, 3), by_order, as_logged)
        yield versus(
            f"web.{name}_visits", ours, "visits/s", logged, "2N visits of a ledger; the same visits, known before"
        )

    say("web: the naive Greedy")
    few = scale.pick(200, 1_000)
    small = power_law_web(few, SEED)
    naive = _crawled(small, GreedyOrder(1), few)
    check(
        np.array_equal(naive, _crawled(small, ExactGreedyOrder(small), few)), "both Greedy crawls make the same visits"
    )
    ours, queried = race(
        1,
        lambda number: float(len(_crawled(small, ExactGreedyOrder(small), few))),
        lambda number: float(len(_crawled(small, GreedyOrder(1), few))),
    )
    yield versus(
        "web.exact_greedy_vs_asking", ours, "visits/s", queried, f"{few} pages; a ledger queried before every visit"
    )


def _order(name: str, web: Graph) -> VisitOrder:
    return ExactGreedyOrder(web) if name == "greedy" else CycleOrder(web.pages, SEED, max(1, web.pages // 100))


def _crawled(web: Graph, order: VisitOrder, visits: int) -> Ints:
    ids = page_ids(web.pages, SEED)
    crawl = WebCrawl([Ledger()], ids, order)
    crawl.announce(ids)
    return crawl.run(web, visits)
