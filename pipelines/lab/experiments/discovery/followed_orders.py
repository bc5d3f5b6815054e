"""Crawls that follow the orders of opicflow, a cycle a day: those of a ledger, and those of the installed command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import CrawledWeb, crawled_web
from opicflow.pipelines.lab.experiments.discovery.crawls import MARKS, a_day, measure_reading
from opicflow.pipelines.lab.experiments.installed_command import DailyReplays
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.crawl import announcements, links_of, visits
from opicflow.pipelines.ledger import Certified, CrawlEntry, Ledger, LedgerConfig, RefreshConfig, TickEntry
from opicflow.pipelines.ledger.entries import Kind
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Ints
from opicflow.schemas.pages import PageIds

RECOMPUTED, LEARNT, BY_COMMAND = "recomputed, by the ledger", "learnt", "learnt, by the command"
BY_LEDGER = {RECOMPUTED: "importance", LEARNT: "learnt"}
"""Orders of a ledger, and its setting discovery-by."""
BY_COMMANDS: dict[str, tuple[str, ...]] = {
    "cash, by the command": ("--history", "interpolation", "--set", "discovery-by=cash"),
    "estimate, by the command": ("--history", "interpolation", "--set", "discovery-by=importance"),
    "certified, by the command": ("--set", "discovery-by=importance"),
    BY_COMMAND: (),
}
"""Orders of the command, and their options; the last ones are the defaults."""
_DAY, _DISCOVERY = 86_400, 1


def discovery_by_ledger(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """Measure a crawl by the orders of a certified ledger. `order` is a name in `BY_LEDGER`.

    Columns are those of `discovery`.
    """
    crawled = crawled_web(web, pages, seed)
    config = discovering(a_day(crawled), BY_LEDGER[order])
    orders = LedgerOrders(crawled.pages.graph, crawled.pages.urls, crawled.seeds, config)
    return measure_reading(crawled, orders, {"seed": seed, "web": web, "order": order})


def discovery_by_command(pages: int, seed: int, web: str, order: str = BY_COMMAND, until: int = MARKS[-1]) -> list[Row]:
    """Measure a crawl by the orders that `opicflow replay` writes, a run of the command a day on the log of that day.

    `order` is a name in `BY_COMMANDS`. Columns are those of `discovery`.
    """
    crawled = crawled_web(web, pages, seed)
    with TemporaryDirectory() as folder:
        orders = ReplayOrders(crawled, Path(folder), BY_COMMANDS[order])
        return measure_reading(crawled, orders, {"seed": seed, "web": web, "order": order}, until)


def discovering(a_day: int, discovery_by: str) -> LedgerConfig:
    """Return the configuration of a certified ledger whose orders are all for unread pages, so many a day."""
    refresh = RefreshConfig(bandwidth_per_day=float(a_day), discovery_share=1.0, discovery_by=discovery_by)
    return LedgerConfig(history=Certified(), remember_links=True, refresh=refresh)


class LedgerOrders:
    """The orders of a ledger. `graph` has the links that pages have when they are read; it may be replaced."""

    def __init__(self, graph: Graph, urls: Sequence[bytes], seeds: Ints, config: LedgerConfig) -> None:
        self.graph, self._urls = graph, urls
        self._ids = PageIds().of_all(self._urls)
        self._numbers = np.argsort(self._ids)
        self._ledger = Ledger(config)
        self._end = 0
        self.announce(seeds)

    def order(self, day: int, most: int | None = None) -> Ints:
        """Return the unread pages that are ordered at the beginning of a day, the first ones first: all that are."""
        numbers, is_unread = self.cycle(day)
        return numbers[is_unread]

    def cycle(self, day: int) -> tuple[Ints, Bools]:
        """Return all pages that are ordered at the beginning of a day, and those that were chosen as unread."""
        self._ledger.apply(TickEntry(day * _DAY))
        plan = self._ledger.plan(0, 9.0)
        ordered = plan.survey.pages[plan.orders.rows]
        return self._numbers[np.searchsorted(self._ids[self._numbers], ordered)], plan.orders.why == _DISCOVERY

    def announce(self, pages: Ints, modified_ms: int = 0) -> None:
        """Announce these pages, as a sitemap does, with the times of changes if it has them."""
        modified = np.full(len(pages), modified_ms, np.int64)
        self._apply(announcements(self._ids[pages], start=self._end), pages, modified_ms=modified)

    def read(self, day: int, pages: Ints, outcomes: Bytes | None = None, **columns: Array) -> None:
        """Apply the visits of a day (all fetched, if no outcomes are given), and the URLs that their links name.

        `columns` are columns of the visits, such as digests.
        """
        times = day * _DAY * 1000 + np.arange(len(pages))
        self._apply(visits(self.graph, self._ids, pages, self._end, outcomes, times), pages, **columns)
        found = np.unique(links_of(self.graph, pages)).astype(np.int64)
        self._apply(announcements(self._ids[found], Kind.SIGHTING, self._end), found)

    def importance(self) -> Floats:
        """Return the importance of every page; 0 where it is not known."""
        found: Floats = self._ledger.estimate(self._ids).importance
        return found

    def learnt(self) -> tuple[float, float]:
        """Return the share of orders that explore, and the weight of siblings."""
        learnt = self._ledger.discovery
        return learnt.share, learnt.siblings_weight

    def _apply(self, entry: CrawlEntry, pages: Ints, **columns: Array) -> None:
        """Apply an entry with the URLs of its pages, and these columns."""
        texts = [self._urls[number] for number in pages.tolist()]
        starts = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
        joined = np.frombuffer(b"".join(texts), np.uint8)
        items = replace(entry.items, url_starts=starts, url_bytes=joined, **columns)
        self._ledger.apply(replace(entry, items=items))
        self._end = entry.end.offset


class ReplayOrders:
    """The orders that `opicflow replay LOG --state … --out … --now …` writes, with these options."""

    def __init__(self, crawled: CrawledWeb, folder: Path, options: Sequence[str] = ()) -> None:
        self._graph = crawled.pages.graph
        self._urls = [url.decode() for url in crawled.pages.urls]
        self._numbers = {url: number for number, url in enumerate(self._urls)}
        how = ("--bandwidth", str(a_day(crawled)), "--set", "discovery-share=1", *options)
        self._replays = DailyReplays(folder, how)
        self._events: list[dict[str, object]] = [
            {"kind": "announce", "url": self._urls[number]} for number in crawled.seeds.tolist()
        ]

    def order(self, day: int, most: int | None = None) -> Ints:
        """Replay the log of the day before, and return the unread pages that are ordered, the first ones first."""
        orders = self._replays.orders([orjson.dumps(event) for event in self._events], 1000 * _DAY * day)
        return np.array([self._numbers[order["url"]] for order in orders if order["why"] == "DISCOVERY"], np.int64)

    def read(self, day: int, pages: Ints) -> None:
        """Keep the events of the next log."""
        starts, targets = self._graph.starts, self._graph.targets
        self._events = [
            {
                "url": self._urls[page],
                "fetched_at": 1000 * (_DAY * day + second),
                "status": 200,
                "links": [self._urls[target] for target in targets[starts[page] : starts[page + 1]].tolist()],
            }
            for second, page in enumerate(pages.tolist())
        ]

    def learnt(self) -> tuple[float, float]:
        """Return the share of orders that explore, and the weight of siblings."""
        plan = orjson.loads((self._replays.out / "summary.json").read_bytes())["plan"]
        learnt = plan.get("discovery", {"exploring_share": 0.0, "siblings_weight": 0.0})
        return learnt["exploring_share"], learnt["siblings_weight"]
