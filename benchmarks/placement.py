"""Group `placement`: shards that keep sites together, compared with shards by the hash of the URL alone.

The same visits of the same pages go to two sets of shards. "By URL": page ids are hashes of the URL, and ranges are
equal. "By site": the first bits of a page id are a hash of the site, and ranges hold equally many pages. Most links of
a page stay on its host, so by site few payments leave a shard. The history policy is `certified`, and every cut
arrives at each of the other shards a few cuts later. All ledgers are in this process, without a broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.pipelines.lab.web.crawl import START_SECOND, announcements, visits
from opicflow.pipelines.lab.web.webs import HostedWeb, hosted_web
from opicflow.pipelines.ledger import Certified, CrawlEntry, Ledger, LedgerConfig, LogEntry, TickEntry, TransfersEntry
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Floats, Ids, Ints
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges

SEED = 1
LINKS = 10
SHARDS = 16
MOST_LATE = 4
"""A cut arrives 1 to so many cuts after it was sent."""
CRAWL_ROUNDS = 3
BACKLOG_ROUNDS = 2
TICKS_AFTER_BACKLOG = 40


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 100_000
    cuts_per_round: int = 100
    ids: int = 1_000_000
    rounds: int = 10


TINY = Sizes(1_000, 8, 1_000, 2)


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield all figures of the group."""
    sizes = scale.pick(TINY, Sizes())
    web = WebOfSites.made_up(sizes.pages, LINKS)
    placed = {"url": PlacedPages.by_url(web), "site": PlacedPages.by_site(web)}
    say("placement: a crawl")
    yield from crawl(web, placed, sizes)
    say("placement: a backlog")
    yield from backlog(web, placed, sizes)
    yield from sizes_of_shards(placed["site"])
    say("placement: the shards of page ids")
    yield from find_shard(sizes)


# -- a web, and the shards of its pages --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WebOfSites:
    """A made-up web in which every host is a site, with the URLs of its pages."""

    web: HostedWeb
    urls: list[str]

    @classmethod
    def made_up(cls, pages: int, links: int, hosts: int | None = None) -> WebOfSites:
        """Make a web in which 8 of 10 links stay on their host. The sizes of hosts follow a power law."""
        web = hosted_web(pages, SEED, hosts, links)
        return cls(
            web,
            [
                f"https://h{host}.com/section{number % 7}/page-{number}.html" if number else f"https://h{host}.com/"
                for host, number in zip(web.host.tolist(), web.number.tolist(), strict=True)
            ],
        )

    @property
    def links_within(self) -> float:
        """The share of links that stay on their host."""
        sources = np.repeat(self.web.host, self.web.graph.out_degrees)
        return float(np.mean(sources == self.web.host[self.web.graph.targets]))

    def random_round(self, number: int) -> Ints:
        """Return all pages in an order of their own for each number."""
        return np.random.default_rng([SEED, number]).permutation(len(self.urls))

    def write_log(self, path: Path, events: int) -> None:
        """Write a log of visits, as JSON lines. Every round visits all pages in a random order."""
        graph = self.web.graph
        quoted = [f'"{url}"' for url in self.urls]
        targets, starts = graph.targets.tolist(), graph.starts.tolist()
        rounds = -(-events // len(self.urls))
        visited = np.concatenate([self.random_round(number) for number in range(rounds)])[:events].tolist()
        with open(path, "w", encoding="ascii") as file:
            for number, page in enumerate(visited):
                links = ",".join([quoted[target] for target in targets[starts[page] : starts[page + 1]]])
                file.write(
                    f'{{"url":{quoted[page]},"fetched_at":{1000 * START_SECOND + 997 * number},"status":200,'
                    f'"content_type":"text/html","digest":"{number * 2654435761 % 2**32:08x}","links":[{links}]}}\n'
                )


@dataclass(frozen=True, eq=False)
class PlacedPages:
    """The ids of a web's pages, and the ranges of the shards that they are in."""

    page_ids: PageIds
    ids: Ids
    ranges: ShardRanges

    @classmethod
    def by_site(cls, web: WebOfSites, shards: int = SHARDS) -> PlacedPages:
        """Assign pages to shards by their page ids, which keep sites together: ranges are even."""
        ids = PageIds().of_all(web.urls)
        check(len(np.unique(ids)) == len(ids), "page ids are different")
        return cls(PageIds(), ids, ShardRanges.even(ids, shards))

    @classmethod
    def by_url(cls, web: WebOfSites, shards: int = SHARDS) -> PlacedPages:
        """Assign pages to shards by a hash of the URL instead: ranges are equal. No entry may have a URL."""
        ids = np.array([xxhash.xxh64_intdigest(url.encode()) for url in web.urls], np.uint64)
        check(len(np.unique(ids)) == len(ids), "hashes are different")
        return cls(PageIds(), ids, ShardRanges.equal(shards))


class LateShards:
    """The ledgers of all shards. A cut arrives at each other shard 1 to `most_late` ticks later, in order."""

    def __init__(self, placed: PlacedPages, config: LedgerConfig, most_late: int) -> None:
        count = placed.ranges.count
        self.ledgers = [Ledger(config, shard, placed.ranges, page_ids=placed.page_ids) for shard in range(count)]
        self.items = 0
        """The amounts for pages of other shards in all cuts so far."""
        self._placed = placed
        self._owners = placed.ranges.of(placed.ids)
        self._most_late = most_late
        self._random = np.random.default_rng(SEED)
        self._now = 0
        self._due = np.zeros((count, count), np.int64)
        self._under_way: defaultdict[int, list[tuple[int, TransfersEntry]]] = defaultdict(list)

    def apply(self, entry: CrawlEntry) -> None:
        """Apply the rows of an entry to the shards of their pages."""
        owners = self._placed.ranges.of(entry.items.page)
        for shard in range(len(self.ledgers)):
            items = entry.items.take(np.flatnonzero(owners == shard))
            self._apply(shard, CrawlEntry(entry.source, entry.start, entry.end, items))

    def tick(self) -> None:
        """Apply the cuts that are due, then let all shards make another one."""
        self._now += 1
        self._receive(self._under_way.pop(self._now, []))
        for shard in range(len(self.ledgers)):
            self._apply(shard, TickEntry(self._now))

    def receive_all(self) -> None:
        """Apply all cuts that are under way."""
        for now in sorted(self._under_way):
            self._receive(self._under_way.pop(now))

    def importance(self) -> Floats:
        """Return the importance of all pages, as the shard of each page estimates it."""
        values = np.zeros(len(self._placed.ids))
        for shard, ledger in enumerate(self.ledgers):
            own = self._owners == shard
            values[own] = ledger.estimate(self._placed.ids[own]).importance
        return values

    def certificate(self) -> float:
        """Return the largest certificate of a shard."""
        return max(ledger.certificate() or 0.0 for ledger in self.ledgers)

    def bytes_per_link(self, out_degrees: Ints) -> float:
        """Return the memory of all remembered links, divided by their number."""
        links = np.bincount(self._owners, out_degrees, len(self.ledgers))
        taken = [ledger.link_bytes() for ledger in self.ledgers]
        return float((links * taken).sum() / links.sum())

    def check_books(self, ranks: Floats) -> None:
        """Check that no cash is missing and that the certificate holds. No cut may be under way."""
        check(all(ledger.audit().drift == 0 for ledger in self.ledgers), "the books of all shards balance")
        distance = float(np.abs(self.importance() - ranks).sum())
        check(distance <= self.certificate(), f"no certificate is below the true distance of {distance:.1e}")

    def _apply(self, shard: int, entry: LogEntry) -> None:
        sealed = self.ledgers[shard].apply(entry).sealed
        if sealed:
            late = self._random.integers(1, self._most_late + 1, len(self.ledgers))
            self._due[shard] = np.maximum(self._due[shard], self._now + late)
        for other, transfers in sealed:
            self.items += len(transfers.pages)
            self._under_way[int(self._due[shard, other])].append((other, transfers))

    def _receive(self, arrived: list[tuple[int, TransfersEntry]]) -> None:
        for other, transfers in arrived:
            self.ledgers[other].apply(transfers)


# -- what leaves shards, and how it delays importance ------------------------------------------------------------------


def crawl(web: WebOfSites, placed: dict[str, PlacedPages], sizes: Sizes) -> Iterator[Figure]:
    """Count what leaves shards while every page is visited several times, and measure the memory of links."""
    items, link_bytes = {}, {}
    ranks = pagerank(web.web.graph).values
    for name, pages in placed.items():
        shards = LateShards(pages, LedgerConfig(history=Certified()), MOST_LATE)
        for entry in entries(web, pages.ids, CRAWL_ROUNDS, sizes.cuts_per_round):
            shards.apply(entry)
            shards.tick()
        items[name] = shards.items / (CRAWL_ROUNDS * len(web.urls))
        link_bytes[name] = shards.bytes_per_link(web.web.graph.out_degrees)
        shards.receive_all()
        shards.check_books(ranks)
    of = (
        f"{len(web.urls):,} pages, {LINKS} links each, {web.links_within:.0%} within the host, {SHARDS} shards, "
        f"{CRAWL_ROUNDS} visits a page, {sizes.cuts_per_round} cuts a visit of every page, 1 to {MOST_LATE} cuts late"
    )
    yield versus(
        "placement.items_a_visit_url_over_site",
        items["url"],
        "items/visit",
        items["site"],
        f"amounts that leave shards, by URL; baseline by site; {of}; bound: at least 3",
    )
    yield versus(
        "placement.link_bytes_url_over_site",
        link_bytes["url"],
        "bytes/link",
        link_bytes["site"],
        "remembered links, room to grow included, by URL; baseline by site",
    )


def backlog(web: WebOfSites, placed: dict[str, PlacedPages], sizes: Sizes) -> Iterator[Figure]:
    """Measure the error of importance some ticks after a backlog: its visits were applied before any cut arrived."""
    errors = {}
    ranks = pagerank(web.web.graph).values
    for name, pages in placed.items():
        shards = LateShards(pages, LedgerConfig(history=Certified()), MOST_LATE)
        for entry in entries(web, pages.ids, BACKLOG_ROUNDS, sizes.cuts_per_round):
            shards.apply(entry)
        for _ in range(TICKS_AFTER_BACKLOG):
            shards.tick()
        errors[name] = float(np.mean(np.abs(shards.importance() - ranks) / ranks))
        shards.receive_all()
        shards.check_books(ranks)
    yield versus(
        "placement.error_after_backlog_url_over_site",
        100 * errors["url"],
        "%",
        100 * errors["site"],
        f"mean error of importance, {TICKS_AFTER_BACKLOG} ticks after a backlog of {BACKLOG_ROUNDS} visits a page, "
        f"cuts 1 to {MOST_LATE} ticks late, by URL; baseline by site; bound: at least 20",
    )


def entries(web: WebOfSites, ids: Ids, rounds: int, parts: int) -> Iterator[CrawlEntry]:
    """Yield the announcement of all pages, then rounds of visits in random order, each in so many parts."""
    yield announcements(ids)
    start = len(ids)
    for number in range(rounds):
        for pages in np.array_split(web.random_round(number), parts):
            yield visits(web.web.graph, ids, pages, start)
            start += len(pages)


# -- shards and ids ----------------------------------------------------------------------------------------------------


def sizes_of_shards(by_site: PlacedPages) -> Iterator[Figure]:
    """Compare the pages of the busiest shard with the mean."""

    def busiest(ranges: ShardRanges) -> float:
        pages = np.bincount(ranges.of(by_site.ids), minlength=ranges.count)
        return float(pages.max() / pages.mean())

    of = f"pages of the busiest of {SHARDS} shards over the mean, ids by site"
    yield Figure("placement.busiest_over_mean", busiest(by_site.ranges), "x", f"{of}, even ranges; bound: at most 1.1")
    equal = busiest(ShardRanges.equal(by_site.ranges.count))
    yield Figure("placement.busiest_over_mean_equal", equal, "x", f"{of}, equal ranges")


def find_shard(sizes: Sizes) -> Iterator[Figure]:
    """Find the shards of page ids by boundaries, and by the formula for equal ranges."""
    ids = np.random.default_rng(SEED).integers(0, 1 << 64, sizes.ids, np.uint64)
    ranges = ShardRanges.equal(SHARDS)
    check(np.array_equal(ranges.of(ids), shards_by_formula(ids, SHARDS)), "boundaries and formula give the same shards")

    def by(find: Callable[[], Ints]) -> Callable[[int], float]:
        def work(number: int) -> float:
            return len(find())

        return work

    value, baseline = race(sizes.rounds, by(lambda: ranges.of(ids)), by(lambda: shards_by_formula(ids, SHARDS)))
    how = f"shards of {sizes.ids:,} ids by {SHARDS} boundaries; (id * {SHARDS}) >> 64 in numpy; bound: at least 0.98"
    yield versus("placement.find_shard", value, "ids/s", baseline, how)


def shards_by_formula(ids: Ids, shards: int) -> Ints:
    """Return `(id * shards) >> 64` for each id. The product does not fit into 64 bits, so halves are multiplied."""
    half, low_half = np.uint64(32), np.uint64(2**32 - 1)
    carry = ((ids & low_half) * np.uint64(shards)) >> half
    return (((ids >> half) * np.uint64(shards) + carry) >> half).astype(np.int64)
