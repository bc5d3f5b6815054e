"""The log of a simulated crawl of a synthetic web. The same seed and scenario give the same bytes."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import orjson

from opicflow.connectors.files.avro_writer import AvroWriter
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_writer import write_table
from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.lab.experiments.edge_lists import web_of_file
from opicflow.pipelines.lab.web.contents import Contents
from opicflow.pipelines.lab.web.crawl import DiscoveredPages, announcements, links_of, visits
from opicflow.pipelines.lab.web.failures import VisitFailures, share_of
from opicflow.pipelines.lab.web.visit_orders import (
    AsFoundOrder,
    CycleOrder,
    GreedyOrder,
    RandomOrder,
    VisitOrder,
    XylemeOrder,
    set_page_count,
)
from opicflow.pipelines.lab.web.webs import hosted_web, poisson_web, power_law_web
from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, Outcome
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, CrawlEvent, Link
from opicflow.schemas.pages import page_ids
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.urls import NotAPage, canonical

FOLLOWED: dict[str, LedgerConfig] = {"interpolation": LedgerConfig(), "certified": LedgerConfig(history=Certified())}
"""The ledgers whose cash a strategy can follow, by history policy."""
STRATEGIES = ("random", "cycle", "greedy", "xyleme", "breadth-first")
_BY_CASH = ("greedy", "xyleme")
WEBS = ("power-law", "poisson", "hosts")

START_MS = 1_767_225_600_000  # 2026
MS_PER_DAY = 86_400_000
_DAYS_PER_ROUND, _MOST_DAYS = 7, 365
_SERVERS = 23
_SHARE_FOUND = 8
_BATCH = 1 << 10

_RECORDS_AT_ONCE = 1 << 10
_LEVEL = 3


@dataclass(frozen=True, eq=False)
class Site:
    """A web as a crawler meets it: links, the URL of every page, the number of its server, where a crawl may begin."""

    graph: Graph
    urls: list[str]
    server: npt.NDArray[np.int32]
    entrances: Ints


def site_named(web: str, pages: int, seed: int, links: float, dangling: float) -> Site:
    """A web of one of `WEBS`, made from a seed."""
    if web == "hosts":
        hosted = hosted_web(pages, seed, mean_links=links, dangling=dangling)
        urls = [
            f"https://host-{host}.example/{f'page/{number}' if number else ''}"
            for host, number in zip(hosted.host.tolist(), hosted.number.tolist(), strict=True)
        ]
        return Site(hosted.graph, urls, hosted.host, np.flatnonzero(hosted.number == 0))
    make = power_law_web if web == "power-law" else poisson_web
    graph = make(pages, seed, links, dangling=dangling)
    server = np.arange(pages, dtype=np.int32) % _SERVERS
    urls = [f"https://site-{number % _SERVERS}.example/page/{number}" for number in range(pages)]
    return Site(graph, urls, server, np.arange(pages))


def site_of_edges(path: str) -> Site:
    """The web of an edge list. Names that are no URLs become pages of one host."""
    web = web_of_file(path)
    names: dict[str, str] = {}
    for name in web.names:
        url = _url_of(name, path)
        if url in names:
            raise InputRefused(f"{path}: {names[url][:60]!r} and {name[:60]!r} are one page, {url[:80]}: name it once")
        names[url] = name
    numbers: dict[str, int] = {}
    server = np.array([numbers.setdefault(url.split("/", 3)[2], len(numbers)) for url in names], np.int32)
    return Site(web.graph, list(names), server, np.arange(web.graph.pages))


def _url_of(name: str, path: str) -> str:
    try:
        return canonical(name).decode()
    except NotAPage:
        try:
            return canonical(f"https://edges.example/{quote(name, safe='')}").decode()
        except NotAPage as problem:
            raise InputRefused(f"{path}: {name[:60]!r} makes no page: {problem}") from None


# -- the crawl ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """The settings of a simulated crawl and of its web. Shares are from 0 to 1.

    `seeds` = how many pages are announced, all others being found by links; None = all pages are announced.
    `history` = the history policy of the ledger whose cash the strategies greedy and xyleme follow.
    `not_modified` = the share of servers that answer so, without links, where a page did not change since it was read.
    """

    visits: int
    strategy: str = "random"
    seeds: int | None = None
    blocked: float = 0.0
    failing: float = 0.0
    never_read: float = 0.0
    not_modified: float = 0.0
    first_ms: int = START_MS
    visits_per_day: float = 1000.0
    seed: int = 0
    history: str = "interpolation"

    def __post_init__(self) -> None:
        """Refuse what cannot be, in one line."""
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        if self.history not in FOLLOWED:
            raise ValueError(f"history must be one of {', '.join(FOLLOWED)}, not {self.history!r}")
        if self.history != "interpolation" and self.strategy not in _BY_CASH:
            raise ValueError(f"history is for strategies that follow cash: {', '.join(_BY_CASH)}")
        if self.strategy == "cycle" and self.seeds is not None:
            raise ValueError("strategy cycle goes round pages that are all known: with seeds take breadth-first")
        for name in ("never_read", "not_modified"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}")
        if not 0.0 < self.visits_per_day <= MS_PER_DAY:
            raise ValueError(f"visits_per_day must be above 0 and at most {MS_PER_DAY}, not {self.visits_per_day:g}")
        if not EARLIEST_MS <= self.first_ms <= self.last_ms < LATEST_MS:
            raise ValueError("the crawl must lie in the years 1990 to 2099: begin at another time, or crawl faster")

    @property
    def last_ms(self) -> float:
        """When the crawl is over."""
        return self.first_ms + self.visits * (MS_PER_DAY / self.visits_per_day)


class SimulatedCrawl:
    """A crawl of a site, event by event: first the announcements, then visits at even intervals.

    `found` are the pages announced or linked by pages that were read, in the order in which they were found;
    `outcomes` how visits ended; `unreadable` the pages that refuse to be read, or are never visited.
    """

    def __init__(self, site: Site, scenario: Scenario) -> None:
        pages = site.graph.pages
        if scenario.seeds is not None and not 1 <= scenario.seeds <= pages:
            raise ValueError(f"seeds must be from 1 to {pages}, the number of pages, not {scenario.seeds}")
        chances = np.random.SeedSequence(scenario.seed).generate_state(4, np.uint64).tolist()
        self._site, self.scenario = site, scenario
        self._links = list(map(Link, site.urls))
        self._failures = VisitFailures(pages, chances[0], scenario.blocked, scenario.failing)
        self._contents = Contents(pages, chances[1])
        random = np.random.Generator(np.random.PCG64(chances[2]))
        self._never_read = share_of(pages, scenario.never_read, random)
        self._polite = share_of(int(site.server.max()) + 1, scenario.not_modified, random)[site.server]
        self.unreadable: Bools = self._failures.blocked | self._never_read
        self._found = DiscoveredPages(pages, self._first_pages(random))
        self._choice = self.found[~self._never_read[self.found]]
        if len(self._choice) == 0:
            raise ValueError(f"never_read {scenario.never_read:g} leaves no page to visit")
        self._order = self._new_order(chances[3])
        self._ids: Ids = page_ids(site.urls) if scenario.strategy in _BY_CASH else np.empty(0, np.uint64)
        self._ledger = Ledger(FOLLOWED[scenario.history])
        self.outcomes: Counter[Outcome] = Counter()
        self.visited = self.written = 0

    @property
    def found(self) -> Ints:
        """The pages known, first found first."""
        return self._found.numbers

    def events(self) -> Iterator[CrawlEvent]:
        """All events, once."""
        graph, scenario, by_cash = self._site.graph, self.scenario, len(self._ids) > 0
        announced = self.found
        if by_cash:
            self._ledger.apply(announcements(self._ids[announced]))
        for number in announced.tolist():
            self.written += 1
            yield CrawlEvent(self._site.urls[number], announce=True)
        while self.visited < scenario.visits:
            numbers = self._next_pages()[: scenario.visits - self.visited]
            steps = np.arange(self.visited, self.visited + len(numbers))
            times_ms = scenario.first_ms + (steps * (MS_PER_DAY / scenario.visits_per_day)).astype(np.int64)
            outcomes = self._failures.outcomes(numbers)
            read = np.flatnonzero(outcomes == Outcome.FETCHED)
            looks = self._contents.visit(numbers[read], times_ms[read])
            outcomes[read[~looks.changed & self._polite[numbers[read]]]] = Outcome.UNCHANGED
            if by_cash:
                offset = len(announced) + self.visited
                self._ledger.apply(visits(graph, self._ids, numbers, offset, outcomes, times_ms))
            self._discover(numbers[outcomes == Outcome.FETCHED])
            digests, modified = np.zeros(len(numbers), np.uint64), np.zeros(len(numbers), np.int64)
            digests[read], modified[read] = looks.digest, looks.last_modified_ms
            self.outcomes.update(map(Outcome, outcomes.tolist()))
            rows = (numbers, times_ms, outcomes, digests, modified)
            for row in zip(*(column.tolist() for column in rows), strict=True):
                self.visited += 1
                self.written += 1
                yield self._event(*row)

    def _first_pages(self, random: np.random.Generator) -> Ints:
        """The pages that are announced: all, or some with links that can be read, entrances first."""
        site, seeds = self._site, self.scenario.seeds
        if seeds is None:
            return np.arange(site.graph.pages)
        usable = random.permutation(np.flatnonzero(~self.unreadable & (site.graph.out_degrees > 0)))
        if seeds > len(usable):
            raise ValueError(f"seeds must be at most {len(usable)}, the pages that a crawl of this web can begin at")
        entrance = np.isin(usable, site.entrances)
        return np.concatenate((usable[entrance], usable[~entrance]))[:seeds]

    def _new_order(self, seed: int) -> VisitOrder:
        known, pages = len(self._choice), self._site.graph.pages
        if self.scenario.strategy == "greedy":
            return GreedyOrder()
        if self.scenario.strategy == "xyleme":
            return XylemeOrder(pages, self._importance, max(4, pages // 256))
        if self.scenario.strategy == "cycle":
            return CycleOrder(known, seed, _BATCH)
        return RandomOrder(known, seed, _BATCH) if self.scenario.strategy == "random" else AsFoundOrder(known, _BATCH)

    def _importance(self) -> Floats:
        return self._ledger.estimate(self._ids[self._choice]).importance

    def _next_pages(self) -> Ints:
        rows = self._order.next(lambda: self._ledger.waiting_cash(self._ids[self._choice]))
        if isinstance(self._order, RandomOrder) and self.scenario.seeds is not None:
            rows = rows[: max(1, len(self._choice) // _SHARE_FOUND)]  # pages found are to be chosen soon
        return self._choice[rows]

    def _discover(self, read: Ints) -> None:
        """Find the pages that these ones link to."""
        graph = self._site.graph
        if len(self.found) < graph.pages:
            new = self._found.add(links_of(graph, read))
            self._choice = np.concatenate((self._choice, new[~self._never_read[new]]))
            set_page_count(self._order, len(self._choice))

    def _event(self, number: int, time_ms: int, outcome: int, digest: int, modified_ms: int) -> CrawlEvent:
        url, graph = self._site.urls[number], self._site.graph
        if outcome == Outcome.FETCHED:
            targets = graph.targets[graph.starts[number] : graph.starts[number + 1]].tolist()
            return CrawlEvent(
                url,
                fetched_at_ms=time_ms,
                status=200,
                digest=f"{digest:016x}",
                last_modified_ms=modified_ms if modified_ms >= EARLIEST_MS else None,
                links=tuple([self._links[target] for target in targets]),
            )
        if outcome == Outcome.UNCHANGED:
            return CrawlEvent(url, fetched_at_ms=time_ms, status=304)
        if outcome == Outcome.BLOCKED:
            return CrawlEvent(url, fetched_at_ms=time_ms, failure="robots")
        if self.visited % 3 == 0:
            return CrawlEvent(url, fetched_at_ms=time_ms, failure="timeout")
        return CrawlEvent(url, fetched_at_ms=time_ms, status=503 if self.visited % 3 == 1 else 500)


def usual_rate(visits: int, pages: int) -> float:
    """Return the visits a day that reach every page once a week; more if the crawl would last over a year."""
    return min(max(pages / _DAYS_PER_ROUND, visits / _MOST_DAYS), MS_PER_DAY)


# -- output ------------------------------------------------------------------------------------------------------------


def write_log(path: Path, events: Iterable[CrawlEvent]) -> None:
    """Write a crawl log, in the format that its name ends in: whole, or not at all."""
    encode = encode_event if path.name.endswith(".avro") else _line
    records = map(encode, events)
    batches = iter(lambda: list(islice(records, _RECORDS_AT_ONCE)), [])
    with whole_file(path) as file:
        if path.name.endswith(".avro"):
            with AvroWriter(file, schema("CrawlEvent")) as writer:
                for some in batches:
                    writer.write_encoded(Texts.of(some))
            return
        packed = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) if path.name.endswith(".gz") else nullcontext(file)
        with packed as out:
            for some in batches:
                out.write(b"".join(some))


def _line(event: CrawlEvent) -> bytes:
    values = {
        "kind": "announce" if event.announce else None,
        "url": event.url,
        "fetched_at": event.fetched_at_ms,
        "status": event.status,
        "failure": event.failure,
        "digest": event.digest,
        "last_modified": event.last_modified_ms,
        "links": None if event.links is None else [link.url for link in event.links],
    }
    return orjson.dumps({name: value for name, value in values.items() if value is not None}) + b"\n"


def write_exact_ranks(path: Path, site: Site, unreadable: Bools) -> None:
    """Write the exact importance of all pages, the most important first. Pages that cannot be read have no links."""
    ranks = pagerank(site.graph.without_links(unreadable)).values
    order = np.argsort(-ranks, kind="stable")
    write_table(path, [{"url": [site.urls[page] for page in order.tolist()], "importance": ranks[order]}])
