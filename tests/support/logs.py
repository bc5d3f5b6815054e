"""Small crawl logs of synthetic webs in all formats, and helpers that replay them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np

from opicflow.pipelines.ledger import ItemWriter, Ledger, LedgerConfig, LogPosition, Outcome, TickEntry
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.pipelines.replay.runner import ReplayRequest, ReplayResult, replayed
from opicflow.pipelines.replay.segments import LOCAL
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.arrays import Floats
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.pages import PageIds, page_id
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import to_avro
from support.archives import record, response
from support.crawls import order_named

FIRST_MS = 1_700_000_000_000
"""The time at which crawls begin."""
_MS_PER_HOUR = 3_600_000


def url(number: int) -> str:
    """Return the canonical URL of a page of a web. Several pages share a host."""
    return f"https://site-{number % 23}.example/page/{number}"


@cache
def id_of(number: int) -> int:
    """Return the page id of a page of a web."""
    return page_id(url(number).encode())


@dataclass
class WebLog:
    """The events of a crawl of a web, and a ledger to which the same visits are applied directly."""

    graph: Graph
    config: LedgerConfig = field(default_factory=LedgerConfig)
    announced: bool = True
    seconds_between: float | None = 20.0
    events: list[CrawlEvent] = field(default_factory=list)
    visited: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Announce all pages if `announced`."""
        self._ledger = Ledger(self.config)
        self._later: list[Callable[[], None]] = []
        self._next = LogPosition(0, 0)
        if self.announced:
            self.events += [CrawlEvent(url(number), announce=True) for number in range(self.graph.pages)]
            self._later.append(self._announce)

    @property
    def ledger(self) -> Ledger:
        """The ledger. Visits since the last call are applied now: few tests read it."""
        later, self._later = self._later, []
        for apply in later:
            apply()
        return self._ledger

    def crawl(self, order: str, visits: int, seed: int = 0) -> WebLog:
        """Visit pages in the order of this name."""
        chosen = order_named(order, self.graph.pages, seed, max(1, self.graph.pages // 64))
        ids = np.array([id_of(number) for number in range(self.graph.pages)], np.uint64)
        while visits > 0:
            numbers = chosen.next(lambda: self.ledger.waiting_cash(ids))[:visits]
            self.visit(numbers.tolist())
            visits -= len(numbers)
        return self

    def visit(self, numbers: Sequence[int]) -> WebLog:
        """Visit these pages, one after the other."""
        for number in numbers:
            targets = self.targets(number)
            time_ms = 0
            if self.seconds_between is not None:
                time_ms = FIRST_MS + int(len(self.visited) * self.seconds_between * 1000)
            links = tuple(Link(url(target)) for target in targets)
            self.events.append(CrawlEvent(url(number), fetched_at_ms=time_ms or None, status=200, links=links))
            self.visited.append(number)
            self._later.append(partial(self._visit, number, targets, time_ms))
        return self

    def targets(self, number: int) -> list[int]:
        """Return the pages that a page links to."""
        return [int(t) for t in self.graph.targets[self.graph.starts[number] : self.graph.starts[number + 1]]]

    def _announce(self) -> None:
        writer = ItemWriter(self._next)
        for number in range(self.graph.pages):
            writer.announcement(id_of(number))
        self._apply(writer)

    def _visit(self, number: int, targets: list[int], time_ms: int) -> None:
        if time_ms:
            self._ledger.apply(TickEntry(time_ms // _MS_PER_HOUR * 3600))
        writer = ItemWriter(self._next)
        writer.visit(id_of(number), [id_of(target) for target in targets], Outcome.FETCHED, time_ms)
        for target in targets:
            writer.sighting(id_of(target))
        self._apply(writer)

    def _apply(self, writer: ItemWriter) -> None:
        self._ledger.apply(writer.entry(start=self._next))
        self._next = writer.next_position


def json_line(event: CrawlEvent, **more: Any) -> bytes:
    """Encode an event as a line of JSON, without unknown fields."""
    value: dict[str, Any] = {"kind": "announce"} if event.announce else {}
    value["url"] = event.url
    if event.fetched_at_ms is not None:
        value["fetched_at"] = event.fetched_at_ms
    for name in ("status", "failure", "canonical", "digest"):
        if getattr(event, name) is not None:
            value[name] = getattr(event, name)
    if event.redirects:
        value["redirects"] = list(event.redirects)
    if event.links is not None:
        value["links"] = [
            link.url
            if link.weight is None and link.rel is None
            else {k: v for k, v in link._asdict().items() if v is not None}
            for link in event.links
        ]
    return json.dumps({**value, **more}).encode() + b"\n"


def jsonl(events: Iterable[CrawlEvent]) -> bytes:
    """Encode events as JSON lines."""
    return b"".join(map(json_line, events))


def avro(events: Iterable[CrawlEvent], codec: str = "deflate") -> bytes:
    """Encode events as an Avro container file of the published schema."""
    out = io.BytesIO()
    fastavro.writer(
        out,
        schema("CrawlEvent"),
        map(to_avro, events),
        codec=codec,
        sync_interval=4000,
        sync_marker=b"0123456789abcdef",
    )
    return out.getvalue()


def warc(events: Iterable[CrawlEvent]) -> bytes:
    """Encode visits as WARC responses."""
    records = []
    for event in events:
        body = "".join(f'<a href="{link.url}">x</a>' for link in event.links or ()).encode()
        date = str(np.datetime64(event.fetched_at_ms or 0, "ms"))[:19] + "Z"
        records.append(record(response(b"<html><body>" + body + b"</body></html>"), url=event.url, WARC_Date=date))
    return b"".join(records)


def edges(events: Iterable[CrawlEvent]) -> bytes:
    """Encode visits as an edge list."""
    return "".join(f"{event.url}\t{link.url}\n" for event in events for link in event.links or ()).encode()


def run(
    logs: Sequence[Path | str], out: Path | None = None, prefers_certified: bool = False, **options: Any
) -> ReplayResult:
    """Replay logs in this process, by its threads unless a runner is named: Beam takes a quarter of a second more.

    Unless it `prefers_certified`, as users do, the history of a new ledger is interpolation, which needs less time.
    Page ids of a new ledger have the public key unless the option `page_ids` is given.
    """
    counting = options.get("counting", LedgerOptions())
    state = options.get("state")
    is_new = state is None or not (state / "state.json").exists()
    if is_new and not prefers_certified and counting.history is None:
        options["counting"] = replace(counting, history="interpolation")
    if is_new:
        options.setdefault("page_ids", PageIds())
    with replayed(ReplayRequest(tuple(map(str, logs)), out, **{"runner": LOCAL, **options}), _ignore) as result:
        return replace(result)


def _ignore(progress: Progress) -> None:
    pass


def records_of(path: Path) -> list[dict[str, Any]]:
    """Read a result in JSON lines: strict JSON, without NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_bytes().splitlines()]


def importance_of(path: Path, pages: int) -> Floats:
    """Return the importance of the pages of a web by number; 0 for missing ones."""
    values = {record["url"]: record["importance"] for record in records_of(path)}
    return np.array([values.get(url(number), 0.0) for number in range(pages)])


def adds_up(summary: dict[str, Any]) -> bool:
    """Whether every event read is accounted for."""
    total = sum(summary[name] for name in ("visits", "announcements", "rejects", "duplicates"))
    by_reason = sum(summary["rejects_by_reason"].values())
    return bool(total == summary["events_read"] and by_reason == summary["rejects"])


def state_files(state: Path) -> dict[str, bytes]:
    """Return the chunks of the ledger of a state."""
    (folder,) = state.glob("snapshot-*")
    return {chunk.name: chunk.read_bytes() for chunk in sorted(folder.iterdir())}


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary without the values that differ between equal runs."""
    rest = dict(summary)
    for name in ("seconds", "events_per_second"):
        with suppress(KeyError):
            del rest[name]
    return rest
