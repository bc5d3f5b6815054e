"""`opicflow subscribe`: the records in the topics of results, as a table or as lines of JSON."""

from __future__ import annotations

import argparse
import heapq
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opicflow.pipelines.cli.live_table import Column, LiveTable, head_of, line_of
from opicflow.pipelines.cli.options import add_kafka_options, connection_of, moment
from opicflow.pipelines.cli.text import date_or_never, print_lines, safe_json
from opicflow.pipelines.cli.values import whole
from opicflow.schemas.errors import printable
from opicflow.schemas.urls import named_page

if TYPE_CHECKING:
    from opicflow.connectors.kafka.record_reader import Arrived
    from opicflow.schemas.records import Importance

EXAMPLES = """examples:
  opicflow subscribe importance --brokers localhost:9092 --follow          the top pages, live
  opicflow subscribe importance --brokers localhost:9092 --url https://example.org/
  opicflow subscribe crawl-orders --brokers localhost:9092 --follow | my-fetcher
  opicflow subscribe changes --brokers localhost:9092 --follow             pages with a policy --notify
"""
PRINTS_AS_IT_GOES = True

_SECONDS_BETWEEN_TABLES = 1.0
_BY_PAGE = ("importance", "refresh-schedule", "page-changes")
"""Streams whose records of a page are in the partition of its URL."""
_SHORT_NAMES = {"changes": "page-changes"}


class _Table(NamedTuple):
    """How a stream is shown: its columns, the cells of a record, and which records come first (the highest)."""

    columns: tuple[Column, ...]
    cells: Callable[[Any], Sequence[str]]
    rank: Callable[[Any], Any] | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "stream",
        type=lambda word: _SHORT_NAMES.get(word, word),
        choices=list(_TABLES),
        metavar="TOPIC",
        help=f"one of {', '.join(_TABLES)}, or changes for short",
    )
    parser.add_argument("--url", metavar="URL", help="records of this page only")
    parser.add_argument("--min-score", type=float, metavar="S", help="only pages from this score (1 = average)")
    parser.add_argument("--top", type=whole, metavar="N", help="the first N pages by their newest records")
    parser.add_argument("--since", metavar="TIME", help="records published from this time on")
    parser.add_argument("--new", action="store_true", help="only records published from now on; with --follow")
    parser.add_argument("--follow", action="store_true", help="continue with records as they arrive")
    parser.add_argument("--format", choices=["table", "jsonl"], help="table on a terminal, else JSON lines")
    add_kafka_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the records of a stream: those in the topic and, with --follow, those that arrive."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.partitions import partitions_of_topic
    from opicflow.connectors.kafka.publisher import partition_of
    from opicflow.connectors.kafka.record_reader import batches

    stream = options.stream
    if options.min_score is not None and stream != "importance":
        raise KafkaRefused(f"--min-score goes with importance: {stream} has no scores")
    if options.min_score is not None and math.isnan(options.min_score):
        raise KafkaRefused("--min-score nan: give a number; 1 is an average page")
    if options.new and not options.follow:
        raise KafkaRefused("--new shows records published from now on: give --follow too, or --since TIME instead")
    if options.new and options.since is not None:
        raise KafkaRefused("--new and --since both set the start: omit one")
    if options.url is not None and stream not in _BY_PAGE:
        raise KafkaRefused(f"--url goes with {' and '.join(_BY_PAGE)}: {stream} has no record per page")
    as_table = options.format == "table" if options.format else sys.stdout.isatty()
    if options.top is not None and _TABLES[stream].rank is None:
        ranked = " and ".join(name for name, table in _TABLES.items() if table.rank is not None)
        raise KafkaRefused(f"--top goes with {ranked}: {stream} is in order of arrival only")
    if options.top is not None and options.follow and not as_table:
        raise KafkaRefused("--top with --follow is a table that changes: give --format table, or omit one")
    connection = connection_of(options)
    partition, url = None, ""
    if options.url is not None:
        url = named_page(options.url)
        partition = partition_of(url, partitions_of_topic(connection, options.prefix + stream)[1])
    view = _view(options, as_table, url)
    try:
        for batch in batches(
            connection,
            stream,
            prefix=options.prefix,
            follow=options.follow,
            since_ms=moment("--since", options.since),
            only_new=options.new,
            partition=partition,
        ):
            view.take(one for one in batch if not url or one.key == url.encode())
        view.end()
    finally:
        view.close()
    return 0


class _Lines:
    """Records as they come: lines of JSON, or of a table."""

    def __init__(self, options: argparse.Namespace, as_table: bool) -> None:
        self._table = _TABLES[options.stream] if as_table else None
        self._key = "site" if options.stream == "site-importance" else "url"
        self._min_score = options.min_score
        self._head = head_of(self._table.columns) if self._table else ""

    def take(self, arrived: Iterable[Arrived]) -> None:
        for one in arrived:
            if one.broken:
                _report_broken(one)
            elif one.record is None:
                self._say(one, f"(no longer known) {(one.key or b'').decode('utf-8', 'replace')}")
            elif self._min_score is None or one.record.score >= self._min_score:
                table = self._table
                self._say(one, line_of(table.columns, table.cells(one.record)) if table else "")
        sys.stdout.flush()

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _say(self, one: Arrived, row: str) -> None:
        if self._table is None:
            sys.stdout.write(safe_json(json_line(one, self._key)))
            return
        if self._head:
            print_lines(self._head)
            self._head = ""
        print_lines(*row.split("\n"))


class _Newest:
    """The newest record of each key. It prints the highest, once at the end or repeatedly."""

    def __init__(self, options: argparse.Namespace, as_table: bool) -> None:
        self._table = _TABLES[options.stream]
        self._as_table = as_table
        self._top = options.top
        self._min_score = options.min_score
        self._newest: dict[bytes, Any] = {}
        self._live = LiveTable(self._table.columns) if options.follow and sys.stdout.isatty() else None
        self._is_followed = options.follow
        self._shown_at = 0.0
        self._changed = True

    def take(self, arrived: Iterable[Arrived]) -> None:
        for one in arrived:
            if one.broken:
                _report_broken(one)
                continue
            self._changed = True
            key = one.key or b""
            if one.record is None or (self._min_score is not None and one.record.score < self._min_score):
                self._newest.pop(key, None)
            else:
                self._newest[key] = one
        begun = time.monotonic()
        if self._is_followed and self._changed and begun - self._shown_at >= _SECONDS_BETWEEN_TABLES:
            self._show()
            self._changed = False
            now = time.monotonic()
            self._shown_at = now + 9 * (now - begun)  # a tenth of the time goes into the table at most

    def end(self) -> None:
        if self._changed:
            self._show()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    def _show(self) -> None:
        assert self._table.rank is not None
        rank = self._table.rank
        most = self._top if self._live is None else min(self._top, self._live.most_rows)
        best = heapq.nlargest(most, self._newest.values(), key=lambda one: rank(one.record))
        if not self._as_table:
            sys.stdout.writelines(map(safe_json, map(json_line, best)))
            return
        rows = [self._table.cells(one.record) for one in best]
        if self._live is not None:
            self._live.show(rows)
            return
        columns = self._table.columns
        print_lines(head_of(columns), *(line_of(columns, row) for row in rows), flush=True)


def _view(options: argparse.Namespace, as_table: bool, url: str) -> Any:
    table = _TABLES[options.stream]
    if options.top is None and as_table and table.rank is not None and not url:
        options.top = 20
    if options.top is not None and table.rank is not None:
        return _Newest(options, as_table)
    return _Lines(options, as_table)


def _report_broken(one: Arrived) -> None:
    where = f"partition {one.partition}, offset {one.offset}"
    print_lines(f"opicflow: {where}: {one.broken}", file=sys.stderr)


def json_line(one: Arrived, key: str = "url") -> str:
    """Return a record as a line of JSON, as a replay writes it to a file; a tombstone as its `key` and `gone`."""
    import orjson

    from opicflow.pipelines.stages.rejects import reject_line
    from opicflow.schemas.crawl_events import Reject
    from opicflow.schemas.records import to_avro

    if one.record is None:
        return orjson.dumps({key: (one.key or b"").decode("utf-8", "replace"), "gone": True}).decode() + "\n"
    if isinstance(one.record, Reject):
        return reject_line(one.record, one.record.source).decode()
    return orjson.dumps(to_avro(one.record), option=orjson.OPT_APPEND_NEWLINE).decode()


def _mark(page: Importance) -> str:
    return "" if page.measured else "  (history not measured yet)"


_TABLES = {
    "importance": _Table(
        (Column("importance", 11), Column("score", 10), Column("a day", 9), Column("visits", 7), Column("page")),
        lambda page: (
            f"{page.importance:.6f}",
            f"{page.score:.2f}",
            f"{page.trend_per_day:+.1e}",
            f"{page.visits}",
            f"{printable(page.url)}{_mark(page)}",
        ),
        lambda page: page.score,
    ),
    "site-importance": _Table(
        (Column("importance", 11), Column("score", 10), Column("pages", 9), Column("read", 9), Column("site")),
        lambda site: (
            f"{site.importance:.6f}",
            f"{site.mean_score:.2f}",
            f"{site.pages:,}",
            f"{site.read:,}",
            printable(site.site) + (f"  (shard {site.shard}, one of {site.shards})" if site.shards > 1 else ""),
        ),
        lambda site: site.importance,
    ),
    "refresh-schedule": _Table(
        (Column("due", -20), Column("interval", 10), Column("decided by", -10), Column("page")),
        lambda page: (
            date_or_never(page.due_ms),
            "never" if page.interval_seconds is None else f"{page.interval_seconds / 3600:.1f} h",
            page.decided_by,
            printable(page.url),
        ),
        lambda page: -(page.due_ms if page.due_ms is not None else 1 << 62),
    ),
    "crawl-orders": _Table(
        (Column("why", -9), Column("not before", -20), Column("priority", 9), Column("page")),
        lambda order: (
            order.why,
            date_or_never(order.not_before_ms),
            f"{order.priority:.3g}",
            printable(order.url),
        ),
    ),
    "page-changes": _Table(
        (Column("time", -20), Column("changes", 7), Column("score", 10), Column("subscribers", -16), Column("page")),
        lambda change: (
            date_or_never(change.time_ms),
            f"{change.changes:,}",
            f"{change.score:.2f}",
            printable(change.subscribers),
            printable(change.url),
        ),
    ),
    "rejects": _Table(
        (Column("reason", -14), Column("where")),
        lambda reject: (
            reject.reason.value,
            f"{printable(reject.source)}, {reject.offset}: {printable(reject.detail)}\n"
            f"      {printable(reject.bytes[:120].decode('utf-8', 'backslashreplace'))}",
        ),
    ),
    "audit": _Table(
        (Column("time", -20), Column("shard", -9), *map(Column, ("pages", "visits", "clock", "drift"), (10, 11, 8, 7))),
        lambda books: (
            date_or_never(1000 * books.second or None),
            f"{books.shard:4}/{books.shards}",
            f"{books.pages:,}",
            f"{books.visits:,}",
            f"{books.clock:.2f}",
            f"{_drift(books)}",
        ),
    ),
}


def _drift(books: Any) -> int:
    """Return the cash that is missing from the accounts; 0 = balanced."""
    held = books.cash + books.uncollected + books.virtual + books.absorbed + books.sent - books.received
    return int(books.minted - held)
