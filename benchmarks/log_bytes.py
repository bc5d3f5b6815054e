"""Group `log_bytes`: the bytes of page-ledger an event, and those of a stream in which nothing happens.

All shards are in this process, without a broker. The events are those of `stream_shards`: 30 links each, 8 of 10
within the host, ids by site. They come at a steady pace: routers send entries four times a second, the clock sends a
tick when it is due, and what shards send each other arrives within the second. Every record is a batch of its own,
compressed as publishers do it (LZ4): the most that the broker stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder

from benchmarks.harness import Figure, Scale, check, say
from benchmarks.placement import PlacedPages, WebOfSites
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import decode_messages, writer_of
from opicflow.pipelines.cli.stream_options import for_new_logs
from opicflow.pipelines.ledger import Certified, History, Interpolation, LedgerConfig
from opicflow.pipelines.stages.decoded_batch import route_rows, urls_of
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.outputs import TRANSFERS
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState
from opicflow.pipelines.stream.clock import WriteTicks
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.urls import Canonicaliser

_LINKS, _HOSTS = 30, 500
_START_SECOND = 1_700_000_000
_POLLS = 4
"""A second, of each router."""
_PARTITIONS = 3
_IDLE_SECONDS = 600


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 100_000
    events: int = 200_000
    shards: tuple[int, ...] = (1, 4, 16)
    per_second: tuple[int, ...] = (100, 1_000, 20_000)


TINY = Sizes(1_000, 4_000, (2,), (1_000,))
USUAL = Sizes(20_000, 80_000, (1, 16), (100, 20_000))


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield all figures of the group."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    web = WebOfSites.made_up(sizes.pages, _LINKS, _HOSTS)
    with TemporaryDirectory(prefix="opicflow-bench-") as folder:
        log = Path(folder) / "log.jsonl"
        web.write_log(log, sizes.events)
        lines = log.read_bytes().splitlines()
    histories: dict[str, History] = {"interpolation": Interpolation(), "certified": Certified()}
    for shards in sizes.shards:
        placed = PlacedPages.by_site(web, shards)
        for name, history in histories.items():
            for per_second in sizes.per_second:
                say(f"log_bytes: {shards} shards, {name}, {per_second} events a second")
                yield from _log_bytes(lines, placed, name, history, per_second)


def _log_bytes(
    lines: list[bytes], placed: PlacedPages, name: str, history: History, per_second: int
) -> Iterator[Figure]:
    shards, warm = placed.ranges.count, len(lines) // 2
    logs = _Logs(placed, for_new_logs(LedgerConfig(history=history)))
    logs.run(lines[:warm], 20_000)  # a first visit of every page: URLs are sent once
    logs.bytes.clear()
    count = min(len(lines) - warm, 60 * per_second)
    logs.run(lines[warm : warm + count], per_second)
    logs.wait(5)
    kinds = ", ".join(f"{kind} {size / count:,.0f}" for kind, size in logs.bytes.most_common())
    of = f"{shards}_shards_{name}_{per_second}"
    yield Figure(f"log_bytes.{of}", logs.bytes.total() / count, "bytes/event", f"{kinds}; {logs.records} records")
    logs.wait(300)
    logs.bytes.clear()
    logs.wait(_IDLE_SECONDS)
    kinds = ", ".join(f"{kind} {60 * size / _IDLE_SECONDS:,.0f}" for kind, size in logs.bytes.most_common())
    yield Figure(f"log_bytes.{of}_idle", 60 * logs.bytes.total() / _IDLE_SECONDS, "bytes/minute", kinds)
    logs.check_books()


@dataclass
class _Logs:
    """The logs of all shards, and the bytes of their records by kind."""

    placed: PlacedPages
    config: LedgerConfig
    bytes: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    second: int = _START_SECOND

    def __post_init__(self) -> None:
        rules, ranges = Rules(page_ids=self.placed.page_ids), self.placed.ranges
        self._rules = rules
        self._keepers = [LedgerKeeper(shard) for shard in range(ranges.count)]
        self._sources = [f"crawl-events/{number}" for number in range(_PARTITIONS)]
        self._sharders = [Sharder(one, SourceState.at(0, ranges.count), ranges) for one in self._sources]
        self._seen = [Seen() for _ in self._sources]
        self._waiting: list[tuple[int, bytes]] = []
        self._clock = WriteTicks("page-ledger", ranges.count)
        origin = Origin(self.config, ranges, rules)
        for shard in range(ranges.count):
            self._append(shard, origin.entry(), "origin")
        self._canonicaliser = Canonicaliser(rules.urls, rules.page_ids)

    def run(self, lines: list[bytes], per_second: int) -> None:
        """Route events at a steady pace."""
        each = max(per_second // _POLLS, 1)
        for poll, begin in enumerate(range(0, len(lines), each)):
            some = lines[begin : begin + each]
            for number in range(_PARTITIONS):
                self._route(number, some[number::_PARTITIONS])
            if poll % _POLLS == _POLLS - 1:
                self._tick()

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self._tick()

    def check_books(self) -> None:
        """Check that no cash is missing."""
        ledgers = [one.ledger for one in self._keepers if one.ledger is not None]
        check(all(ledger.audit().drift == 0 for ledger in ledgers), "the books of all shards balance")

    def _route(self, number: int, lines: list[bytes]) -> None:
        sharder, source = self._sharders[number], self._sources[number]
        batch = MessageBatch.of(
            sharder.state.next, [(sharder.state.next + row, 0, line) for row, line in enumerate(lines)]
        )
        decoded = decode_messages(batch, source, writer_of(Connection("nowhere:9092")))
        urls = urls_of(decoded, self._canonicaliser)
        items = route_rows(decoded, urls, source, self._rules, self._seen[number])[0]
        for shard, entry in sharder.crawl(items, batch.end):
            self._append(shard, entry, "crawl")

    def _tick(self) -> None:
        self.second += 1
        ends = [keeper.head.next for keeper in self._keepers]  # the ledgers have applied all records
        for tick in self._clock.process((0, (float(self.second), ends)), None):
            assert tick.partition is not None and tick.value is not None
            self._append(tick.partition, tick.value, "ticks")
        waiting, self._waiting = self._waiting, []
        for shard, data in waiting:
            self._append(shard, data, "transfers")

    def _append(self, shard: int, data: bytes, kind: str) -> None:
        self.bytes[kind] += _stored_bytes(data)
        self.records[kind] += 1
        keeper = self._keepers[shard]
        for output in keeper.take(MessageBatch.of(keeper.head.next, [(keeper.head.next, 1000 * self.second, data)])):
            if output.kind == TRANSFERS:
                self._waiting.append((output.to_shard, output.data))


def _stored_bytes(data: bytes) -> int:
    """Return the bytes of a batch with this record alone."""
    batch = MemoryRecordsBuilder(2, DefaultRecordBatchBuilder.CODEC_LZ4, 1 << 30)
    batch.append(timestamp=0, key=None, value=data)
    batch.close()
    return len(batch.buffer())
