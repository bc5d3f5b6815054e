"""Measures of ranks of sites, against sums written another way."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.lab.experiments.sites.site_measures import READ, _site_graph, site_growth, site_ledger
from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT


@pytest.mark.parametrize(("by_pages", "internal"), [(False, False), (True, False), (False, True)])
def test_a_graph_of_sites_has_the_links_of_all_pages_added_up(by_pages: bool, internal: bool) -> None:
    made = crawled_web("archive", 600, 3).pages
    graph, site = made.graph, made.site.astype(np.int64)
    sites = int(site.max()) + 1
    links: Counter[tuple[int, int]] = Counter()
    for page in range(graph.pages):
        targets = [int(site[target]) for target in graph.targets[graph.starts[page] : graph.starts[page + 1]]]
        for target in set(targets) if by_pages else targets:
            if internal or target != site[page]:
                links[int(site[page]), target] += 1
    found = _site_graph(graph, site, sites, by_pages, internal)
    for source in range(sites):
        row = slice(found.starts[source], found.starts[source + 1])
        weights = dict(zip(found.targets[row].tolist(), found.weights[row].tolist(), strict=True))
        expected = {target: number for (origin, target), number in links.items() if origin == source}
        assert weights.keys() == expected.keys()
        most = max(expected.values(), default=1)
        scale = max(weights.values(), default=ORDINARY_LINK_WEIGHT) / most
        for target, number in expected.items():
            assert weights[target] == pytest.approx(scale * number, abs=1.0)


def test_pages_of_its_own_raise_the_sum_of_a_site_alone() -> None:
    gains = {row["kind"]: float(row["gain"]) for row in site_growth(1_000, 2, "shop", 10)}
    assert gains["sum"] > 2 and gains["number of pages"] > 4
    assert gains["links"] == gains["pages"] == pytest.approx(1.0)


def test_a_certified_ledger_of_sites_ends_with_the_ranks_of_the_graph_of_sites() -> None:
    rows = site_ledger(1_000, 2, "archive", "certified")
    assert [row["percent"] for row in rows] == list(READ)
    assert float(rows[-1]["distance"]) < 0.05 < float(rows[0]["distance"])
