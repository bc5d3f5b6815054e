"""The pages that a crawl has read, with their links and URLs, in memory: from logs or from the state of a replay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, known_format
from opicflow.connectors.files.opening import InputRefused, expand
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.ledger import CrawlItems, Kind, Ledger, Outcome
from opicflow.pipelines.ranks.graph.community import FetchedPages
from opicflow.pipelines.ranks.graph.hosts import weights_of_hosts
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import route_rows
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints
from opicflow.schemas.columns import spans

Progress = Callable[[int, float], None]

_UNREAD = (Outcome.GONE, Outcome.FAILED, Outcome.BLOCKED, Outcome.BUSY)


@dataclass(frozen=True, eq=False)
class Urls:
    """The URLs of pages, by ascending page id; empty, or the page not there, where only the id is known."""

    pages: Ids
    starts: Ints
    text: Bytes

    @classmethod
    def of(cls, pages: Ids, starts: Ints, text: Bytes) -> Urls:
        """Rows in any order: of each page the longest one counts, as it comes with a URL or without."""
        order = np.lexsort((-np.diff(starts), pages))
        rows = order[np.flatnonzero(np.diff(pages[order], prepend=pages[order][:1] + np.uint64(1)))]
        bytes_, begins = spans(starts, rows)
        return cls(pages[rows], begins, text[bytes_])

    def texts(self, pages: Ids) -> list[str]:
        """The URL of each page; empty where none is known."""
        starts = np.append(self.starts, self.starts[-1])  # a page that is not there has the empty row behind the last
        at = np.searchsorted(self.pages, pages)
        known = np.append(self.pages, np.uint64(0))[at] == pages
        bytes_, cuts = spans(starts, np.where(known & (at < len(self.pages)), at, len(self.pages)))
        text, ends = self.text[bytes_].tobytes().decode("utf-8"), cuts.tolist()
        return [text[begin:end] for begin, end in pairwise(ends)]

    def of_hosts(self, hosts: Sequence[bytes]) -> Ids:
        """The pages of some hosts, by ascending id."""
        if not hosts:
            return np.empty(0, np.uint64)
        found: Ids = self.pages[weights_of_hosts(self.text, self.starts[1:], dict.fromkeys(hosts, 1.0)) > 0.0]
        return found


@dataclass(frozen=True, eq=False)
class Crawled:
    """Pages that were read, by ascending page id, pages that failed and were never read, and what all are called.

    `newest_ms` is the time of the newest visit, 0 if no visit has a time. `importance` is a ledger's, in the
    order of `urls`.
    """

    fetched: FetchedPages
    urls: Urls
    newest_ms: int
    rejects: int = 0
    importance: Floats | None = None


def crawled_in_logs(logs: Sequence[str], rules: Rules, progress: Progress, reading: Reading = ANY) -> Crawled:
    """Read logs. The links of a page are those of its last visit with known links, as in the graph of a crawl."""
    files = [(file, known_format(file, reading)) for file in dict.fromkeys(expand(logs))]
    if not any(format_ for _, format_ in files):
        raise InputRefused(f"{', '.join(file for file, _ in files)[:200]}: empty: there is nothing to read")
    reader = _Reader()
    begun, seen = time.perf_counter(), Seen()
    for file, format_ in files:
        if format_ is None:
            continue
        for batch in decode_range(FileRange(file, file, format_, reading=reading), rules):
            routed = route_rows(batch.decoded, batch.urls, file, rules, seen)
            reader.events += routed.counts.get("events_read", 0)
            reader.rejects += routed.reasons.total()
            reader.add(routed.items, together=format_ is Format.EDGES)
            progress(reader.events, time.perf_counter() - begun)
    if not reader.pages:
        raise InputRefused(f"{', '.join(logs)[:200]}: no crawl event in it (opicflow validate shows why)")
    return reader.crawled()


def crawled_in_ledger(ledger: Ledger) -> Crawled:
    """Read the pages of a ledger that remembers links."""
    known = ledger.estimate_all()
    order = np.argsort(known.pages)
    pages, outcomes, visits = known.pages[order], known.last_outcome[order], known.visits[order]
    starts, link_pages, link_weights = ledger.remembered(pages)
    failed = np.isin(outcomes, _UNREAD) & (np.diff(starts) == 0)
    rows = np.flatnonzero((visits > 0) & ~failed)
    links, link_starts = spans(starts, rows)
    fetched = FetchedPages(
        pages[rows], link_starts, link_pages[links], link_weights[links].astype(np.int64), pages[failed & (visits > 0)]
    )
    url_starts, text = ledger.urls(pages)
    newest = int(known.last_visit_ms.max(initial=0))
    importance = ledger.settle().importance if ledger.is_certified else known.importance
    return Crawled(fetched, Urls(pages, url_starts, text), newest, importance=importance[order])


@dataclass
class _Reader:
    """Gathers links and URLs from the rows of a log."""

    events: int = 0
    rejects: int = 0
    newest_ms: int = 0
    visits: int = 0
    pages: list[Ids] = field(default_factory=list)
    numbers: list[Ints] = field(default_factory=list)
    gone: list[Bools] = field(default_factory=list)
    counts: list[Ints] = field(default_factory=list)
    link_pages: list[Ids] = field(default_factory=list)
    link_weights: list[Ints] = field(default_factory=list)
    failed: list[Ids] = field(default_factory=list)
    url_pages: list[Ids] = field(default_factory=list)
    url_lengths: list[Ints] = field(default_factory=list)
    url_bytes: list[Bytes] = field(default_factory=list)

    def add(self, items: CrawlItems, together: bool) -> None:
        """Add rows; `together`: they all belong to one visit of each page, older than any other."""
        if not len(items):
            return
        visits = items.kind == Kind.VISIT
        has_links = visits & ((items.links_known != 0) | (items.outcome == Outcome.GONE))
        rows = np.flatnonzero(has_links)
        links, starts = spans(items.link_starts, rows)
        first = self.visits + 1
        self.visits += 0 if together else len(rows)
        self.pages.append(items.page[rows])
        self.numbers.append(np.zeros(len(rows), np.int64) if together else np.arange(first, first + len(rows)))
        self.gone.append(items.outcome[rows] == Outcome.GONE)
        self.counts.append(np.diff(starts))
        self.link_pages.append(items.link_pages[links])
        self.link_weights.append(items.link_weights[links].astype(np.int64))
        self.failed.append(items.page[visits & ~has_links & np.isin(items.outcome, _UNREAD)])
        has_url = np.flatnonzero(np.diff(items.url_starts))
        bytes_, url_starts = spans(items.url_starts, has_url)
        self.url_pages.append(items.page[has_url])
        self.url_lengths.append(np.diff(url_starts))
        self.url_bytes.append(items.url_bytes[bytes_])
        self.newest_ms = max(self.newest_ms, int(items.time_ms.max()))

    def crawled(self) -> Crawled:
        """Return everything: the last visit of each page, or all rows of its only visit."""
        pages, numbers = np.concatenate(self.pages), np.concatenate(self.numbers)
        gone, counts = np.concatenate(self.gone), np.concatenate(self.counts)
        order = np.lexsort((numbers, pages))
        last = np.append(pages[order][1:] != pages[order][:-1], np.ones(len(order[:1]), np.bool_))
        lasts = np.repeat(numbers[order][last], np.diff(np.flatnonzero(last), prepend=-1))
        rows = order[(numbers[order] == lasts) & ~gone[order]]
        links, starts = spans(_starts(counts), rows)
        firsts = np.flatnonzero(np.diff(pages[rows], prepend=pages[rows][:1] + np.uint64(1)))
        read = pages[rows][firsts]
        fetched = FetchedPages(
            read,
            np.append(starts[:-1][firsts], starts[-1]),
            np.concatenate(self.link_pages)[links],
            np.concatenate(self.link_weights)[links],
            np.setdiff1d(np.concatenate((pages[gone], *self.failed)), read),
        )
        urls = Urls.of(
            np.concatenate(self.url_pages), _starts(np.concatenate(self.url_lengths)), np.concatenate(self.url_bytes)
        )
        return Crawled(fetched, urls, self.newest_ms, self.rejects)


def _starts(lengths: Ints) -> Ints:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
