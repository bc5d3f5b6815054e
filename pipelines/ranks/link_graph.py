"""The link graph of a crawl on disk, built out of core from logs or from the links that a ledger remembers."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash

from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, known_format
from opicflow.connectors.files.opening import STDIN, InputRefused, expand, is_compressed
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.ledger import CrawlItems, Kind, Ledger, Outcome
from opicflow.pipelines.ranks.graph.builder import HOP, MOST_BUCKETS, NO_HOP, BuildPlan, GraphBuilder, LogPlace
from opicflow.pipelines.ranks.graph.store import NO_CATEGORY, StoredGraph
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import route_rows
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import MEDIA_CATEGORIES, Categories, Rules
from opicflow.schemas.arrays import Ids
from opicflow.schemas.columns import spans
from opicflow.schemas.pages import PageIds

_BYTES_BETWEEN_CHECKPOINTS = 256 << 20
_PAGES_OF_A_STATE_AT_ONCE = 1 << 17


@dataclass
class BuildProgress:
    """How far a build is: bytes of logs while they are read, then the steps after them."""

    events: int
    done_bytes: int
    total_bytes: int | None
    seconds: float
    step: str = ""
    """The step and its part, in words; empty while logs are read."""


def graph_of_logs(
    logs: Sequence[str],
    folder: Path,
    plan: BuildPlan,
    rules: Rules,
    progress: Callable[[BuildProgress], None],
    reading: Reading = ANY,
) -> tuple[StoredGraph, dict[str, int]]:
    """Build the graph of logs in a folder. Returns it, and the number of rejects by reason.

    A build that was interrupted continues from its last checkpoint.
    """
    rules = Rules(rules.urls, rules.links, Categories(True, rules.categories.patterns))
    files = [(file, known_format(file, reading)) for file in dict.fromkeys(expand(logs))]
    sources = [(file, format_) for file, format_ in files if format_ is not None]
    if not sources:
        raise InputRefused(
            f"{', '.join(file for file, _ in files)[:200]}: empty: there is nothing to build a graph from"
        )
    sizes = [estimate_size(file) for file, _ in sources]
    identity = json.dumps([[[file, size] for (file, _), size in zip(sources, sizes, strict=True)], rules.to_json()])
    identity += f" {reading}" if reading != ANY else ""
    known = sum(sizes) if all(sizes) else 0
    builder = GraphBuilder(folder, planned(plan, rules.categories.names, known, identity))
    reader = _LogReader(builder, sources, sizes, rules, progress, reading)
    if not builder.is_read:
        reader.read()
        if 0 < reader.events == reader.reasons.total():
            raise InputRefused(
                f"{', '.join(file for file, _ in sources)[:200]}: nothing could be read: every record "
                "was rejected (opicflow validate shows why)"
            )
    return builder.finish(reader.show_step), reader.reasons


def planned(plan: BuildPlan, categories: tuple[str, ...], size_bytes: int, identity: str) -> BuildPlan:
    """Return a plan for this input: buckets of a small part of the memory each; many buckets for an unknown size, 0."""
    wanted = 64 * size_bytes // plan.memory_bytes
    buckets = min(MOST_BUCKETS, max(16, 1 << max(wanted, 1).bit_length())) if size_bytes else 256
    digest = xxhash.xxh64_hexdigest(identity.encode())
    return replace(plan, buckets=buckets, categories=categories, identity=digest)


def estimate_size(file: str) -> int:
    """How large a file is; one that is compressed counts for what may be in it."""
    try:
        with open(file, "rb") as opened:
            return os.path.getsize(file) * (8 if is_compressed(opened.read(4)) else 1)
    except OSError:
        return 0


class _LogReader:
    """Reads logs into a builder, from its last checkpoint on."""

    def __init__(
        self,
        builder: GraphBuilder,
        sources: Sequence[tuple[str, Format]],
        sizes: Sequence[int],
        rules: Rules,
        progress: Callable[[BuildProgress], None],
        reading: Reading,
    ) -> None:
        self.builder, self.rules, self.progress, self.reading = builder, rules, progress, reading
        self.sources, self.sizes = sources, sizes
        nothing: LogPlace = {"file": 0, "at": 0, "events": 0, "reasons": {}}
        position = builder.position or nothing
        self.file, self.at, self.events = position["file"], position["at"], position["events"]
        self.reasons: Counter[str] = Counter(position["reasons"])
        self.begun = time.perf_counter()
        self.done = 0

    def read(self) -> None:
        """Read all that is left."""
        unsaved, seen = 0, Seen()
        total = sum(self.sizes) or None
        for number in range(self.file, len(self.sources)):
            name, format_ = self.sources[number]
            start = self.at if number == self.file else 0
            for batch in decode_range(FileRange(name, name, format_, start, reading=self.reading), self.rules):
                routed = route_rows(batch.decoded, batch.urls, name, self.rules, seen)
                self.events += routed.counts.get("events_read", 0)
                self.reasons.update(routed.reasons)
                self._add(routed.items, together=format_ is Format.EDGES)
                self.done += batch.size_bytes
                unsaved += batch.size_bytes
                if unsaved > _BYTES_BETWEEN_CHECKPOINTS and name != STDIN:  # which cannot be read from there again
                    unsaved = 0
                    self._checkpoint(number, batch.end)
                seconds = time.perf_counter() - self.begun
                self.progress(BuildProgress(self.events, self.done, total, seconds))

    def show_step(self, step: str, done: int, of: int) -> None:
        """Report a step of the build after the logs."""
        seconds = time.perf_counter() - self.begun
        self.progress(BuildProgress(self.events, self.done, None, seconds, f"{step} {done + 1:,} of {of:,}"))

    def _checkpoint(self, file: int, at: int) -> None:
        self.builder.checkpoint({"file": file, "at": at, "events": self.events, "reasons": dict(self.reasons)})

    def _add(self, items: CrawlItems, together: bool) -> None:
        if not len(items):
            return
        gives_links = (items.kind == Kind.VISIT) & ((items.links_known != 0) | (items.outcome == Outcome.GONE))
        hops = np.where(items.outcome == Outcome.REDIRECTED, HOP, NO_HOP) * (gives_links & (not together))
        self.builder.add_pages(items.page, items.category, items.url_starts, items.url_bytes, hops.astype(np.uint8))
        rows = np.flatnonzero(gives_links)
        links, starts = spans(items.link_starts, rows)
        self.builder.add_visits(
            items.page[rows], starts, items.link_pages[links], items.link_weights[links], together=together
        )
        if len(items.link_categories):
            known = np.flatnonzero(items.link_categories != NO_CATEGORY)
            no_urls = np.zeros(len(known) + 1, np.int64)
            self.builder.add_pages(
                items.link_pages[known], items.link_categories[known], no_urls, np.empty(0, np.uint8)
            )


def graph_of_ledger(ledger: Ledger, rules: Rules, folder: Path, plan: BuildPlan, identity: str) -> StoredGraph:
    """Build the graph of the links that a ledger remembers. `identity` distinguishes this ledger from others.

    Pages get the ids that they have in graphs of logs, whatever those of the ledger are.
    """
    names = rules.categories.names if rules.categories.count > 1 else MEDIA_CATEGORIES
    pages = ledger.estimate_all().pages
    builder = GraphBuilder(folder, planned(plan, names, 30 * len(pages), identity))
    ids = _DefaultIds(ledger, pages)
    for first in range(0, 0 if builder.is_read else len(pages), _PAGES_OF_A_STATE_AT_ONCE):
        some = pages[first : first + _PAGES_OF_A_STATE_AT_ONCE]
        categories = ledger.categories(some)
        if rules.categories.count == 1:
            categories = np.full(len(some), NO_CATEGORY, np.uint8)
        hops = np.where(ledger.hops(some), HOP, NO_HOP).astype(np.uint8)
        builder.add_pages(ids.of(some), categories, *ledger.urls(some), hops)
        starts, targets, weights = ledger.remembered(some)
        builder.add_visits(ids.of(some), starts, ids.of(targets), weights, together=True)
    return builder.finish()


class _DefaultIds:
    """The ids by the default rules of the pages of a ledger. A page whose URL is not known keeps its id."""

    def __init__(self, ledger: Ledger, pages: Ids) -> None:
        self._pages = np.sort(pages) if ledger.page_ids != PageIds() else np.empty(0, np.uint64)
        self._ids = self._pages.copy()
        for first in range(0, len(self._pages), _PAGES_OF_A_STATE_AT_ONCE):
            some = slice(first, first + _PAGES_OF_A_STATE_AT_ONCE)
            starts, text = ledger.urls(self._pages[some])
            has_url = np.diff(starts) > 0
            self._ids[some] = np.where(has_url, PageIds().of_text(text, starts), self._pages[some])

    def of(self, pages: Ids) -> Ids:
        if len(self._pages) == 0:
            return pages
        at = np.minimum(np.searchsorted(self._pages, pages), len(self._pages) - 1)
        found: Ids = np.where(self._pages[at] == pages, self._ids[at], pages)
        return found
