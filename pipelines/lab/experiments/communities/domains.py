"""Local domains of synthetic webs and edge lists: sites, and pages around a topic."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.lab.experiments.edge_lists import web_of_file
from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.web.crawl import DiscoveredPages, links_of
from opicflow.pipelines.lab.web.webs import HostedWeb, hosted_web
from opicflow.pipelines.ranks.graph.community import RecordedWeb
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Floats, Ints
from opicflow.schemas.urls import NotAPage, canonical


class WebKind(NamedTuple):
    """Parameters that differ between synthetic webs: pages of a topic (None: one topic), share of dangling pages."""

    pages_a_topic: int | None
    dangling: float


USUAL, EDGES = "usual", "edge list"
WEBS = {
    USUAL: WebKind(6_000, 0.3),
    "topics of 3,000": WebKind(3_000, 0.3),
    "topics of 24,000": WebKind(24_000, 0.3),
    "no topics": WebKind(None, 0.3),
    "no dangling pages": WebKind(6_000, 0.0),
    "6 of 10 dangling": WebKind(6_000, 0.6),
}

SITE, TOPIC = "site", "topic"
SITES = tuple(f"site {number}" for number in range(1, 6))
TOPICS = ("topic", "subtopic 1", "subtopic 2", "subtopic 3")

FEWEST_PAGES = 20
LARGEST_SHARE = 10
"""A domain has at most 1 / so many of the pages of its web."""
LEAST_PAGES_OF_EDGES = FEWEST_PAGES * LARGEST_SHARE

_SITE_SHARES = np.geomspace(59_895 / 4.7e6, 10_626 / 4.7e6, len(SITES))
"""The shares of the web of the paper's largest and smallest computer science sites, and three between them."""
_MEAN_LINKS, _INTERNAL, _TOPICAL = 5.0, 0.8, 0.9
_CRAWL_LINKS = 6
_SEEDS_OF_EDGES = 100
_SEEDS_OF_A_SUBTOPIC = 10


@dataclass(frozen=True, eq=False)
class Domain:
    """The pages of a domain, ascending. Reading takes `rounds` rounds, and `times` as many pages as the domain has."""

    kind: str
    pages: Ints
    rounds: int
    times: int


@dataclass(frozen=True, eq=False)
class SurveyedWeb:
    """A web with its exact ranks, its local domains by name, and the topics of its pages if they are known."""

    graph: Graph
    exact: Floats
    recorded: RecordedWeb
    domains: dict[str, Domain]
    topic: npt.NDArray[np.int32] | None = None


@dataclass(frozen=True)
class EdgeList:
    """An edge list on disk: its path, a digest of its web, and the domains in it."""

    path: str
    digest: str
    pages: int
    domains: tuple[str, ...]


def generate_web(pages: int, seed: int, web: str = USUAL) -> HostedWeb:
    """Generate a web of hosts with topics, 5 links a page, as in the paper's crawls (4.9 and 3.9).

    4 of 5 links stay on their host, and 9 of 10 of the others within their topic.
    """
    kind = WEBS[web]
    topics = max(2, pages // kind.pages_a_topic) if kind.pages_a_topic else 1
    return hosted_web(pages, seed, None, _MEAN_LINKS, _INTERNAL, kind.dangling, topics, _TOPICAL)


def survey_web(domain: str, pages: int, seed: int, web: str = USUAL, edges: str = "") -> SurveyedWeb:
    """Return the web of this domain, synthetic or of an edge list, with exact ranks. The latest one is cached."""
    if web == EDGES:
        return _of_edges(edges)
    return _around_a_topic(pages, seed, web) if domain in TOPICS else _whole(pages, seed, web)


def survey_edge_list(path: str) -> EdgeList:
    """Find the domains in an edge list. Raises `InputRefused` if it is too small."""
    web = _of_edges(path)
    digest = hashlib.blake2b(digest_size=8)
    for column in (web.graph.starts, web.graph.targets, web.graph.weights):
        digest.update(column.tobytes())
    for domain in web.domains.values():
        digest.update(domain.pages.tobytes())
    return EdgeList(path, digest.hexdigest(), web.graph.pages, tuple(web.domains))


@lru_cache(maxsize=1)
def _whole(pages: int, seed: int, kind: str) -> SurveyedWeb:
    """Return a synthetic web and five of its hosts, with the paper's shares of all pages."""
    web = generate_web(pages, seed, kind)
    sizes = np.bincount(web.host)
    hosts: list[int] = []
    for wanted in np.maximum(_SITE_SHARES * pages, FEWEST_PAGES):
        by_fit = np.lexsort((np.arange(len(sizes)), np.abs(sizes - wanted), sizes > pages // LARGEST_SHARE))
        hosts.append(next(host for host in by_fit.tolist() if host not in hosts))
    sites = {name: _site(web.host, host) for name, host in zip(SITES, hosts, strict=True)}
    return _survey(web.graph, sites, web.topic)


@lru_cache(maxsize=1)
def _around_a_topic(pages: int, seed: int, kind: str) -> SurveyedWeb:
    """Return a crawl six links deep from the front pages of a topic's hosts, as in a directory, and its domains.

    The paper uses a crawl as its web: the pages found last were not read, and have no links.
    """
    web = generate_web(pages, seed, kind)
    of_topics = np.bincount(web.topic)
    topic = np.argsort(of_topics, kind="stable")[len(of_topics) // 2]  # one of the usual size
    fronts = np.flatnonzero((web.number == 0) & (web.topic == topic) & (web.graph.out_degrees > 0))
    seeds = np.random.Generator(np.random.PCG64([seed, 4])).permutation(fronts)
    read = around(web.graph, seeds, _CRAWL_LINKS - 1, pages)
    unread = np.ones(pages, np.bool_)
    unread[read] = False
    found = around(web.graph, seeds, _CRAWL_LINKS, pages)
    seen = web.graph.without_links(unread)
    numbers = np.zeros(pages, np.int64)
    numbers[found] = np.arange(len(found))
    crawl = Graph.from_links(len(found), numbers[seen.sources], numbers[seen.targets], seen.weights)
    return _survey(crawl, _topics(crawl, numbers[seeds]), web.topic[found])


@lru_cache(maxsize=1)
def _of_edges(path: str) -> SurveyedWeb:
    """Return the web of an edge list: its largest hosts, and the pages around the most linked pages."""
    web = web_of_file(path)
    graph = web.graph
    if graph.pages < LEAST_PAGES_OF_EDGES:
        raise InputRefused(
            f"{path}: {graph.pages} pages are too few: a domain has {FEWEST_PAGES} or more, and is a tenth of its web "
            f"at most: give {LEAST_PAGES_OF_EDGES} or more"
        )
    numbers: dict[str, int] = {"": 0}
    host = np.array([numbers.setdefault(name, len(numbers)) for name in map(_host_of, web.names)], np.int64)
    sources = np.repeat(host, graph.out_degrees)
    outward = np.bincount(sources[sources != host[graph.targets]], minlength=len(numbers))
    sizes = np.bincount(host, minlength=len(numbers))
    fits = (sizes >= FEWEST_PAGES) & (sizes <= graph.pages // LARGEST_SHARE) & (outward > 0)
    fits[0] = False  # pages without a host are none
    largest = np.lexsort((np.arange(len(sizes)), -sizes))
    sites = {name: _site(host, number) for name, number in zip(SITES, largest[fits[largest]].tolist(), strict=False)}
    linked = np.lexsort((np.arange(graph.pages), -graph.in_degrees, graph.out_degrees == 0))
    seeds = linked[: min(_SEEDS_OF_EDGES, int(np.count_nonzero(graph.out_degrees)))]
    topics = {name: one for name, one in _topics(graph, seeds).items() if len(one.pages) >= FEWEST_PAGES}
    return _survey(graph, sites | topics)


def _host_of(name: str) -> str:
    try:
        return canonical(name).decode().split("/", 3)[2]
    except NotAPage:
        return ""


def _site(host: npt.NDArray[np.int32] | Ints, number: int) -> Domain:
    return Domain(SITE, np.flatnonzero(host == number), 50, 2)


def _topics(graph: Graph, seeds: Ints) -> dict[str, Domain]:
    """Return the pages within two links of all seeds, and within three links of disjoint groups of some seeds."""
    most = graph.pages // LARGEST_SHARE
    dealt = (seeds[number :: len(TOPICS) - 1][:_SEEDS_OF_A_SUBTOPIC] for number in range(len(TOPICS) - 1))
    domains = (around(graph, seeds, 2, most), *(around(graph, some, 3, most) for some in dealt))
    return {name: Domain(TOPIC, pages, 25, 1) for name, pages in zip(TOPICS, domains, strict=True)}


def _survey(graph: Graph, domains: dict[str, Domain], topic: npt.NDArray[np.int32] | None = None) -> SurveyedWeb:
    return SurveyedWeb(graph, exact_importance(graph), RecordedWeb.of_graph(graph), domains, topic)


def around(graph: Graph, seeds: Ints, links: int, most: int) -> Ints:
    """The pages within so many links of the seeds, ascending; of more than `most` the nearest ones, found first."""
    found = DiscoveredPages(graph.pages, np.empty(0, np.int64))
    new = found.add(seeds)
    for _ in range(links):
        if len(found.numbers) < most:
            new = found.add(links_of(graph, new))
    return np.sort(found.numbers[:most])
