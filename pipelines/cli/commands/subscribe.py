"""`opicflow subscribe`: the records in the topics of results, as a table or as lines of JSON."""

from __future__ import annotations

import argparse
import heapq
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from opicflow.pipelines.cli.options import add_kafka_options, connection_of, moment, whole
from opicflow.pipelines.cli.text import date_or_never, printable
from opicflow.pipelines.replay.state_reader import canonical_url

if TYPE_CHECKING:
    from opicflow.connectors.kafka.record_reader import Arrived
    from opicflow.schemas.records import Importance

EXAMPLES = """examples:
  opicflow subscribe importance --brokers localhost:9092 --follow          the top pages, live
  opicflow subscribe importance --brokers localhost:9092 --url https://example.org/
  opicflow subscribe crawl-orders --brokers localhost:9092 --follow | my-fetcher
"""
PRINTS_AS_IT_GOES = True

_SECONDS_BETWEEN_TABLES = 1.0
_CLEAR = "\x1b[H\x1b[J"
_BY_PAGE = ("importance", "refresh-schedule")
"""Streams of which the newest record of a page counts, in the partition of its page id."""


class _Table(NamedTuple):
    """How a stream is shown: a head, a line for a record, and which records come first (the highest)."""

    head: str
    line: Callable[[Any], str]
    rank: Callable[[Any], Any] | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("stream", choices=list(_TABLES), metavar="TOPIC", help=f"one of {', '.join(_TABLES)}")
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
    from opicflow.connectors.kafka.publisher import partition_of
    from opicflow.connectors.kafka.record_reader import batches
    from opicflow.connectors.kafka.topics import partition_count

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
        raise KafkaRefused("--top with --follow is a table that changes: give --format table, or omit one of them")
    connection = connection_of(options)
    partition, url = None, ""
    if options.url is not None:
        url = canonical_url(options.url)
        partition = partition_of(url, partition_count(connection, options.prefix + stream))
    view = _view(options, as_table, url)
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
    return 0


class _Lines:
    """Records as they come: lines of JSON, or of a table."""

    def __init__(self, options: argparse.Namespace, as_table: bool) -> None:
        self._table = _TABLES[options.stream] if as_table else None
        self._key = "site" if options.stream == "site-importance" else "url"
        self._min_score = options.min_score
        self._head = self._table.head if self._table else ""

    def take(self, arrived: Iterable[Arrived]) -> None:
        for one in arrived:
            if one.broken:
                _report_broken(one)
            elif one.record is None:
                self._say(one, f"(no longer known) {printable((one.key or b'').decode('utf-8', 'replace'))}")
            elif self._min_score is None or one.record.score >= self._min_score:
                self._say(one, self._table.line(one.record) if self._table else "")
        sys.stdout.flush()

    def end(self) -> None:
        pass

    def _say(self, one: Arrived, row: str) -> None:
        if self._table is None:
            sys.stdout.write(json_line(one, self._key))
            return
        if self._head:
            print(self._head)
            self._head = ""
        print(row)


class _Newest:
    """The newest record of each key. It prints the highest, once at the end or repeatedly."""

    def __init__(self, options: argparse.Namespace, as_table: bool) -> None:
        self._table = _TABLES[options.stream]
        self._as_table = as_table
        self._top = options.top
        self._min_score = options.min_score
        self._newest: dict[bytes, Any] = {}
        self._is_live = options.follow
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
        if self._is_live and self._changed and begun - self._shown_at >= _SECONDS_BETWEEN_TABLES:
            self._show(clear=sys.stdout.isatty())
            self._changed = False
            now = time.monotonic()
            self._shown_at = now + 9 * (now - begun)  # a tenth of the time goes into the table at most

    def end(self) -> None:
        self._show(clear=False)

    def _show(self, clear: bool) -> None:
        assert self._table.rank is not None
        rank = self._table.rank
        size = shutil.get_terminal_size()
        most = min(self._top, max(size.lines - 3, 1)) if clear else self._top
        best = heapq.nlargest(most, self._newest.values(), key=lambda one: rank(one.record))
        if not self._as_table:
            sys.stdout.writelines(map(json_line, best))
            return
        lines = [self._table.head, *(self._table.line(one.record) for one in best)]
        if clear:
            lines = [line[: size.columns] for line in lines]
        text = "\n".join(lines) + "\n"
        sys.stdout.write((_CLEAR if clear else "") + text)
        sys.stdout.flush()


def _view(options: argparse.Namespace, as_table: bool, url: str) -> Any:
    table = _TABLES[options.stream]
    if options.top is None and as_table and table.rank is not None and not url:
        options.top = 20
    if options.top is not None and table.rank is not None:
        return _Newest(options, as_table)
    return _Lines(options, as_table)


def _report_broken(one: Arrived) -> None:
    where = f"partition {one.partition}, offset {one.offset}"
    print(f"opicflow: {where}: {printable(one.broken)}", file=sys.stderr)


def json_line(one: Arrived, key: str = "url") -> str:
    """Return a record as a line of JSON, as a replay writes it to a file; a tombstone as its `key` and `gone`."""
    import orjson

    from opicflow.pipelines.transforms.rejects import reject_line
    from opicflow.schemas.crawl_events import Reject
    from opicflow.schemas.records import to_avro

    if one.record is None:
        return orjson.dumps({key: (one.key or b"").decode("utf-8", "replace"), "gone": True}).decode() + "\n"
    if isinstance(one.record, Reject):
        return reject_line(one.record, one.record.source).decode()
    return orjson.dumps(to_avro(one.record), option=orjson.OPT_APPEND_NEWLINE).decode()


def _importance(page: Importance) -> str:
    mark = "" if page.measured else "  (history not measured yet)"
    return (
        f"  {page.importance:10.6f} {page.score:10.2f} {page.trend_per_day:+9.1e} {page.visits:7}  "
        f"{printable(page.url)}{mark}"
    )


_TABLES = {
    "importance": _Table("  importance      score   a day  visits  page", _importance, lambda page: page.score),
    "site-importance": _Table(
        "  importance      score     pages      read  site",
        lambda site: (
            f"  {site.importance:10.6f} {site.mean_score:10.2f} {site.pages:9,} {site.read:9,}  {printable(site.site)}"
            + (f"  (shard {site.shard}, one of {site.shards})" if site.shards > 1 else "")
        ),
        lambda site: site.importance,
    ),
    "refresh-schedule": _Table(
        "  due                   interval   decided by  page",
        lambda page: (
            f"  {date_or_never(page.due_ms):20}  "
            f"{'never' if page.interval_seconds is None else f'{page.interval_seconds / 3600:.1f} h':>9}  "
            f"{page.decided_by:10}  {printable(page.url)}"
        ),
        lambda page: -(page.due_ms if page.due_ms is not None else 1 << 62),
    ),
    "crawl-orders": _Table(
        "  why        not before            priority  page",
        lambda order: (
            f"  {order.why:9}  {date_or_never(order.not_before_ms):20}  {order.priority:8.3g}  {printable(order.url)}"
        ),
    ),
    "rejects": _Table(
        "  reason          where",
        lambda reject: (
            f"  {reject.reason.value:14}  {printable(reject.source)}, {reject.offset}: {printable(reject.detail)}\n"
            f"      {printable(reject.bytes[:120].decode('utf-8', 'backslashreplace'))}"
        ),
    ),
    "audit": _Table(
        "  time                  shard       pages      visits    clock   drift",
        lambda books: (
            f"  {date_or_never(1000 * books.second or None):20}  {books.shard:4}/{books.shards:<4} {books.pages:10,} "
            f"{books.visits:11,} {books.clock:8.2f}  {_drift(books):6}"
        ),
    ),
}


def _drift(books: Any) -> int:
    """Return the cash that is missing from the accounts; 0 = balanced."""
    held = books.cash + books.uncollected + books.virtual + books.absorbed + books.sent - books.received
    return int(books.minted - held)
