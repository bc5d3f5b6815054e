"""Webs of hosts follow their rules, and webs of edge lists have the links of the list."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.files.edges import read_edges
from opicflow.connectors.files.opening import Block
from opicflow.pipelines.lab.web.webs import HostedWeb, NamedWeb, hosted_web, web_of_edges
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.crawl_events import CrawlEvent
from support.thorough import examples

PAGES = 60_000


def sources(graph: Graph) -> np.ndarray:
    return np.repeat(np.arange(graph.pages), graph.out_degrees)


def stays(web: HostedWeb) -> np.ndarray:
    """Which links are internal."""
    return web.host[sources(web.graph)] == web.host[web.graph.targets]


def same_topic(web: HostedWeb) -> np.ndarray:
    """Which external links lead to a page of the same topic."""
    external = ~stays(web)
    return web.topic[sources(web.graph)[external]] == web.topic[web.graph.targets[external]]


def fingerprint(web: HostedWeb) -> str:
    columns = (web.graph.starts, web.graph.targets, web.host, web.number)
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


@pytest.fixture(scope="module")
def large() -> HostedWeb:
    return hosted_web(PAGES, seed=5)


# Hosts


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, float]:
    pages = draw(st.integers(2, 40))
    dangling = draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]))
    linking = pages - round(dangling * pages)
    least = linking / pages
    return {
        "pages": pages,
        "seed": draw(st.integers(0, 2**70)),
        "hosts": draw(st.integers(2, pages)),
        "mean_links": draw(st.floats(least, max((pages - 1) * least, least))),
        "internal": draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])),
        "dangling": dangling,
        "topics": draw(st.integers(1, 2)),
        "topical": draw(st.sampled_from([0.0, 0.5, 1.0])),
    }


@examples(60, 1000)
@given(arguments())
def test_links_are_distinct_and_each_page_has_one_unless_dangling(arguments: dict[str, float]) -> None:
    web = hosted_web(**arguments)
    graph = web.graph
    assert graph.pages == len(web.host) == len(web.number) == arguments["pages"]
    assert (graph.out_degrees == 0).sum() == round(arguments["dangling"] * graph.pages)
    made_again = Graph.from_links(graph.pages, sources(graph), graph.targets)
    assert made_again.targets.tolist() == graph.targets.tolist()  # sorted, distinct, none to itself
    assert (made_again.weights == 1024).all()
    assert np.bincount(web.host, minlength=arguments["hosts"]).min() >= 1
    assert len(np.unique(web.host)) == arguments["hosts"]


@pytest.mark.parametrize("pages", [2, 3, 17])
def test_the_fullest_web_links_every_page_to_every_other(pages: int) -> None:
    for internal in (0.0, 0.5, 1.0):
        web = hosted_web(pages, 1, hosts=2, mean_links=pages - 1, internal=internal, dangling=0.0)
        assert (web.graph.out_degrees >= (pages - 1) // 2).all()
        assert web.graph.out_degrees.max() == pages - 1


def test_pages_of_a_host_follow_one_another_from_its_front_page_on(large: HostedWeb) -> None:
    assert (np.diff(large.host) >= 0).all()
    fronts = np.flatnonzero(large.number == 0)
    assert large.host[fronts].tolist() == list(range(PAGES // 50))
    assert (np.diff(large.number)[np.diff(large.host) == 0] == 1).all()


def test_sizes_of_hosts_follow_the_power_law(large: HostedWeb) -> None:
    sizes = np.bincount(large.host)
    ranked = np.sort(sizes)[::-1]
    law = np.arange(1, len(sizes) + 1) ** (-1 / 1.1)
    assert np.abs(ranked - 1 - (PAGES - len(sizes)) * law / law.sum()).max() <= 1.01
    assert sizes.tolist() != ranked.tolist()  # dealt out


@pytest.mark.parametrize("internal", [0.5, 0.8, 0.95])
def test_the_share_of_internal_links_is_the_given_one_where_hosts_are_large(internal: float) -> None:
    web = hosted_web(20_000, 3, hosts=40, internal=internal)
    assert stays(web).mean() == pytest.approx(internal, abs=0.01)
    assert web.graph.links / 20_000 == pytest.approx(10, abs=0.01)


def test_all_or_none_of_the_links_can_be_internal() -> None:
    assert not stays(hosted_web(2_000, 3, hosts=40, internal=0.0)).any()
    assert stays(hosted_web(2_000, 3, hosts=4, internal=1.0)).all()
    alone = hosted_web(100, 3, hosts=100, internal=1.0)  # a page a host: nowhere to stay
    assert not stays(alone).any() and alone.graph.links == pytest.approx(1000, abs=10)


def test_most_pages_link_to_their_front_page_and_the_rest_of_the_host_is_alike(large: HostedWeb) -> None:
    graph, inside = large.graph, stays(large)
    host = int(np.argmax(np.bincount(large.host)))
    within = inside & (large.host[graph.targets] == host)
    links = np.bincount(large.number[graph.targets[within]])
    pages = np.flatnonzero((large.host == host) & (graph.out_degrees > 0))
    assert links[0] / len(pages) > 0.8  # 1 - 0.75 ** 9 of the pages with nine internal links
    others = links[1:]
    assert others.var() == pytest.approx(others.mean(), rel=0.15)  # as of uniform targets
    halves = others[: len(others) // 2].sum(), others[-(len(others) // 2) :].sum()
    assert halves[0] / halves[1] == pytest.approx(1, abs=0.05)


def test_external_links_to_a_page_follow_a_power_law_wherever_it_is(large: HostedWeb) -> None:
    graph = large.graph
    outside = graph.targets[~stays(large)]
    links = np.bincount(outside, minlength=PAGES)
    few = np.minimum(links, 50)
    points = np.unique(np.geomspace(10, 200, 12).astype(int))
    tail = [(links >= point).sum() for point in points]
    slope = np.polyfit(np.log(points - 0.5), np.log(tail), 1)[0]
    assert slope == pytest.approx(-(1 + 1 / (len(outside) / PAGES)), abs=0.2)
    assert np.corrcoef(np.arange(PAGES), few)[0, 1] == pytest.approx(0, abs=0.03)
    assert few[large.number == 0].mean() == pytest.approx(few.mean(), rel=0.15)


def test_out_degrees_are_one_and_a_poisson_number_more(large: HostedWeb) -> None:
    degrees = large.graph.out_degrees
    more = degrees[degrees > 0] - 1
    mean = 10 / 0.9 - 1
    law = np.exp(-mean) * np.cumprod([1.0, *(mean / np.arange(1, 30))])
    assert np.abs(np.bincount(more, minlength=30)[:30] - len(more) * law).max() <= 1.01


# Topics


@pytest.mark.parametrize("topical", [0.0, 0.5, 0.9])
def test_the_share_of_external_links_within_a_topic_is_the_given_one_plus_chance(topical: float) -> None:
    web = hosted_web(PAGES, 3, hosts=6_000, topics=10, topical=topical)
    of_topics = np.bincount(web.topic) / PAGES
    by_chance = (of_topics**2).sum()
    assert same_topic(web).mean() == pytest.approx(topical + (1 - topical) * by_chance, abs=0.02)
    assert stays(web).mean() == pytest.approx(stays(hosted_web(PAGES, 3, hosts=6_000)).mean(), abs=0.01)


def test_all_external_links_can_stay_in_their_topic_while_it_has_pages() -> None:
    web = hosted_web(PAGES, 3, hosts=6_000, topics=5, topical=1.0)
    assert same_topic(web).mean() > 0.999  # the first to link may not know any page of theirs
    alone = hosted_web(1_000, 3, hosts=20, topics=20, topical=1.0, internal=0.5)  # a topic a host
    assert not same_topic(alone).any()


def test_a_host_has_one_topic_and_every_topic_as_many_hosts() -> None:
    web = hosted_web(5_000, 3, hosts=103, topics=10)
    hosts = np.flatnonzero(web.number == 0)
    assert (web.topic == web.topic[hosts][web.host]).all()
    assert sorted(np.bincount(web.topic[hosts]).tolist()) == [10] * 7 + [11] * 3
    assert web.topic[hosts].tolist() != sorted(web.topic[hosts].tolist())  # dealt out


def test_links_within_a_topic_prefer_pages_that_many_link_to_as_they_do_without_topics() -> None:
    slopes = []
    for topics in (1, 5):
        web = hosted_web(PAGES, 5, hosts=PAGES, mean_links=2, topics=topics, topical=0.9)
        links = web.graph.in_degrees
        points = np.unique(np.geomspace(10, 200, 12).astype(int))
        slopes.append(np.polyfit(np.log(points), np.log([(links >= point).sum() for point in points]), 1)[0])
    assert slopes[1] == pytest.approx(slopes[0], abs=0.1)
    assert -1.7 < slopes[0] < -1.2


def test_topics_change_external_links_and_nothing_else() -> None:
    plain, topical = hosted_web(2_000, 11), hosted_web(2_000, 11, topics=8, topical=0.9)
    assert not plain.topic.any()
    for column in ("host", "number"):
        assert (getattr(plain, column) == getattr(topical, column)).all()
    assert (plain.graph.starts == topical.graph.starts).all()
    one = hosted_web(2_000, 11, topics=1, topical=0.9)  # one topic is none
    assert fingerprint(one) == fingerprint(plain) != fingerprint(topical)
    assert fingerprint(topical) == fingerprint(hosted_web(2_000, 11, topics=8, topical=0.9))


def test_the_same_seed_gives_the_same_web_as_ever_and_another_seed_another() -> None:
    web = fingerprint(hosted_web(300, 11))
    assert web == fingerprint(hosted_web(300, 11))
    assert web != fingerprint(hosted_web(300, 12))
    assert web[:16] == "e5384d6c95568c1f"


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"pages": 1}, "a web needs from 2 to 2147483647 pages, not 1"),
        ({"hosts": 1}, "hosts must be from 2 to 20, the number of pages, not 1"),
        ({"hosts": 21}, "hosts must be from 2 to 20"),
        ({"internal": 1.5}, "internal must be a share from 0 to 1, not 1.5"),
        ({"topics": 0}, "topics must be from 1 to 2, the number of hosts, not 0"),
        ({"topics": 6, "hosts": 5}, "topics must be from 1 to 5"),
        ({"topical": -0.1}, "topical must be a share from 0 to 1, not -0.1"),
        ({"topical": float("nan")}, "topical must be a share from 0 to 1"),
        ({"dangling": -1}, "dangling must be a share from 0 to 1, not -1"),
        ({"mean_links": 0.5}, "mean_links must be from 0.9 to 17.1 where 18 of 20 pages link, not 0.5"),
        ({"mean_links": float("nan")}, "mean_links must be from"),
        ({"pages": 2**30, "hosts": 2}, "more than 2\\*\\*32 links"),
    ],
)
def test_hosts_that_cannot_be_are_refused_in_one_line(given_: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        hosted_web(**{"pages": 20, "seed": 0, "mean_links": 5, **given_})
    assert "\n" not in str(refusal.value)


# Edge lists


def links_of(web: NamedWeb) -> list[tuple[str, str, int]]:
    pairs = zip(sources(web.graph).tolist(), web.graph.targets.tolist(), web.graph.weights.tolist(), strict=True)
    return [(web.names[source], web.names[target], weight) for source, target, weight in pairs]


def test_names_are_any_words_in_the_order_in_which_they_come() -> None:
    edges = [["b", "a"], ["a", "c c"], ["a", "b"], ["d"], ["d", "d"], ["https://x.example/", "7"]]
    web = web_of_edges(enumerate(edges))
    assert web.names == ("b", "a", "c c", "d", "https://x.example/", "7")
    assert links_of(web) == [
        ("b", "a", 1024),
        ("a", "b", 1024),
        ("a", "c c", 1024),
        ("https://x.example/", "7", 1024),
    ]


def test_links_are_those_of_the_ledger() -> None:
    edges = [["a", "b", 2.0], ["a", "b"], ["a", "c", 0.0], ["a", "d", 0.5], ["c", "d", 63.9]]
    assert links_of(web_of_edges(enumerate(edges))) == [("a", "b", 3072), ("a", "d", 512), ("c", "d", 65434)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_an_edge_list_means_the_same_as_to_a_replay(edges: list[tuple[int, int]]) -> None:
    rows = [[f"https://x.example/{source}", f"https://x.example/{target}"] for source, target in edges]
    replayed = read_edges([Block(0, "\n".join(map(" ".join, rows)).encode())], "edges")
    visits: Iterable[CrawlEvent] = [item for _, item in replayed if isinstance(item, CrawlEvent)]
    links_of_log = {(event.url, link.url) for event in visits for link in event.links or ()}
    links = {(a, b) for a, b, _ in links_of(web_of_edges(enumerate(rows)))}
    assert links == {(a, b) for a, b in links_of_log if a != b}


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        ([], "there is no page in it"),
        ([["a", "b", float("nan")]], "line 1: the weight nan is not a number from 0 to 64"),
        ([["a", "b", -1.0]], "line 1: the weight -1"),
        ([["a", "b", float("inf")]], "line 1: the weight inf"),
        ([["a", "b" * 8193]], "line 1 has a name of more than 8192 characters"),
        ([["a", "b"], ["b", "c"], ["c", "d"]], "line 3: there are more than 2 links"),
    ],
)
def test_an_invalid_edge_list_gives_one_line_of_error(edges: list[list[Any]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        web_of_edges(enumerate(edges, 1), most_edges=2)
    assert "\n" not in str(refusal.value)
