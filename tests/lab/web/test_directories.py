"""Webs of directories: their shape, their URLs, what can be reached, and the traps that can be put into them."""

from __future__ import annotations

import hashlib
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from opicflow.pipelines.lab.web.directories import (
    ARCHIVE,
    HOMES,
    PORTAL,
    SHOP,
    DirectoryStyle,
    DirectoryWeb,
    directory_web,
    hostile_web,
    url_key,
    without_hostile_pages,
)
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.urls import canonical

STYLES = {"archive": ARCHIVE, "portal": PORTAL, "shop": SHOP, "homes": HOMES}


def sources(graph: Graph) -> np.ndarray:
    return np.repeat(np.arange(graph.pages), graph.out_degrees)


def reached(graph: Graph, start: int) -> int:
    matrix = csr_matrix((np.ones(graph.links), graph.targets, graph.starts), shape=(graph.pages, graph.pages))
    return len(breadth_first_order(matrix, start, return_predecessors=False))


def fingerprint(web: DirectoryWeb) -> str:
    columns = (web.graph.starts, web.graph.targets, web.site, web.domain, web.directory)
    return hashlib.sha256(b"".join(column.tobytes() for column in columns) + b"\n".join(web.urls)).hexdigest()


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("pages", [20, 57, 3_000])
def test_every_page_can_be_reached_from_the_front_page_of_every_site_that_is_not_weak(
    style: DirectoryStyle, pages: int
) -> None:
    for seed in range(3):
        web = directory_web(pages, seed, style)
        sites = int(web.site.max()) + 1
        strong = max(1, sites - round(style.weak * sites))
        fronts = np.flatnonzero(web.is_front & (web.site < strong))
        assert web.graph.pages == pages and web.is_front.sum() == sites
        for front in fronts[:: max(1, len(fronts) // 5)].tolist():
            assert reached(web.graph, front) == pages, (seed, front)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_pages_are_in_the_order_of_their_urls_and_hosts_are_whole(style: DirectoryStyle) -> None:
    web = directory_web(3_000, 1, style)
    keys = [url_key(url) for url in web.urls]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert all(canonical(url.decode()) == url for url in web.urls[::50])
    assert (np.diff(web.site) != 0).sum() == web.site.max()  # every site is one run of pages
    hosts = [url.split(b"/")[2] for url in web.urls]
    assert all((hosts[i] == hosts[i + 1]) == (web.site[i] == web.site[i + 1]) for i in range(len(hosts) - 1))
    assert len(np.unique(web.domain)) < web.site.max() + 1  # some sites share a domain


def test_urls_are_ordered_by_their_host_in_reverse() -> None:
    urls = [b"https://b.example/", b"https://w1.a.example/x", b"https://a.example/d/1.html", b"https://a.example/d/"]
    assert sorted(urls, key=url_key) == [urls[1], urls[3], urls[2], urls[0]]


def test_sizes_of_sites_and_directories_are_very_unequal() -> None:
    web = directory_web(20_000, 1, PORTAL)
    sizes = np.sort(np.bincount(web.site))[::-1]
    assert sizes[0] > 0.2 * 20_000 and sizes[0] > 20 * sizes[len(sizes) // 2]
    directories = np.bincount(directory_web(20_000, 1, ARCHIVE).directory)
    assert np.quantile(directories, 0.95) > 5 * np.quantile(directories, 0.2)


def test_a_weak_site_has_one_link_from_other_sites() -> None:
    style = DirectoryStyle(weak=0.5)
    web = directory_web(5_000, 2, style)
    sites = int(web.site.max()) + 1
    strong = sites - round(0.5 * sites)
    ends = sources(web.graph), web.graph.targets
    other = web.site[ends[0]] != web.site[ends[1]]
    into = np.bincount(web.site[ends[1][other]], minlength=sites)
    assert (into[strong:] == 1).all()
    assert np.median(into[:strong]) > 5


def test_few_pages_have_most_links_from_other_sites() -> None:
    web = directory_web(20_000, 1, ARCHIVE)
    other = web.site[sources(web.graph)] != web.site[web.graph.targets]
    into = np.sort(np.bincount(web.graph.targets[other], minlength=20_000))[::-1]
    assert into[:200].sum() > 0.4 * into.sum()


def test_the_same_seed_gives_the_same_web_and_another_seed_another_one() -> None:
    one, again, other = (fingerprint(directory_web(2_000, seed, SHOP)) for seed in (1, 1, 2))
    assert one == again != other
    assert fingerprint(directory_web(500, 1))[:16] == "baffbb7e211eff96"


def test_a_web_of_a_hundred_thousand_pages_takes_seconds() -> None:
    began = time.perf_counter()
    web = directory_web(100_000, 1, ARCHIVE)
    assert time.perf_counter() - began < 20
    assert 5 < web.graph.links / 100_000 < 12


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"weak": 1.5}, "weak must be a share from 0 to 1, not 1.5"),
        ({"listed": 1}, "listed must be at least 2, not 1"),
        ({"links": -1.0}, "links must not be negative, not -1.0"),
    ],
)
def test_styles_that_cannot_be_are_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DirectoryStyle(**wrong)  # type: ignore[arg-type]


def test_a_web_needs_some_pages() -> None:
    with pytest.raises(ValueError, match="from 20 to"):
        directory_web(19, 1)


# Hostile webs


def test_traps_and_farms_are_reached_by_invitations_and_nothing_leads_out() -> None:
    web = directory_web(3_000, 1, ARCHIVE)
    hostile = hostile_web(web, 1, trap=0.5, farm=0.2, invitations=20)
    assert hostile.is_hostile.sum() == 1_500 + 600
    ends = sources(hostile.graph), hostile.graph.targets
    out = hostile.is_hostile[ends[0]] & ~hostile.is_hostile[ends[1]]
    into = ~hostile.is_hostile[ends[0]] & hostile.is_hostile[ends[1]]
    assert out.sum() == 0 and into.sum() == 40
    assert reached(hostile.graph, int(np.flatnonzero(hostile.is_front & (hostile.site == 0))[0])) == 5_100
    kept = without_hostile_pages(hostile)
    assert kept.links == web.graph.links
    assert kept.in_degrees[hostile.is_hostile].sum() == 0
    keys = [url_key(url) for url in hostile.urls]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert all(canonical(url.decode()) == url for url in hostile.urls[::50])
