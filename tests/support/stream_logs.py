"""The logs of a stream without Flink: events are routed, and shards exchange transfers. A fake cluster has the logs."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import decode_messages, writer_of
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.cli import streams
from opicflow.pipelines.ledger import CrawlItems, LedgerConfig, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.replay.event_clock import hours
from opicflow.pipelines.stages.decoded_batch import route_rows, urls_of
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.outputs import TRANSFERS
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.urls import Canonicaliser
from support.fake_topic import Cluster, Partition, Record
from support.guides import LOG

_SOURCE = "crawl-events/0"
_HOUR = 3600


@dataclass
class Log:
    """The log of a shard: its records (offset, time, value)."""

    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0

    def append(self, time_ms: int, value: bytes) -> None:
        """Append a record."""
        self.records.append((self.end, time_ms, value))
        self.end += 1

    def batch(self, start: int, end: int) -> MessageBatch:
        """Return the records between two offsets."""
        return MessageBatch.of(start, self.records[start:end], end)


class StreamLogs:
    """The logs of the shards of a stream that has read some events. The time is that of the events, in hours."""

    def __init__(self, config: LedgerConfig, ranges: ShardRanges, rules: Rules | None = None) -> None:
        """Begin the logs with these settings."""
        self.origin = Origin(config, ranges, rules or Rules())
        self.logs = [Log() for _ in range(ranges.count)]
        self.keepers = [LedgerKeeper(shard) for shard in range(ranges.count)]
        self.second = -1
        for log in self.logs:
            log.append(0, self.origin.entry())
        self._sharder = Sharder(_SOURCE, SourceState.at(0, ranges.count), ranges)
        self._seen = Seen()

    def read(self, lines: Iterable[bytes]) -> StreamLogs:
        """Route events, with a tick at the beginning of each hour of the crawl, and exchange transfers after it."""
        batch = MessageBatch.of(0, [(offset, 0, line) for offset, line in enumerate(lines)])
        rules = self.origin.rules
        decoded = decode_messages(batch, _SOURCE, writer_of(Connection("nowhere:9092")))
        urls = urls_of(decoded, Canonicaliser(rules.urls, rules.page_ids))
        items = route_rows(decoded, urls, _SOURCE, rules, self._seen)[0]
        for piece in hours(items, self.second):
            if piece.tick_second is not None:
                self.tick(piece.tick_second)
            rows = items.rows(piece.first, piece.last)
            self._route(rows, int(items.offset[piece.last]) if piece.last < len(items) else batch.end)
        return self

    def _route(self, items: CrawlItems, end: int) -> None:
        for shard, entry in self._sharder.crawl(items, end):
            self.logs[shard].append(1000 * max(self.second, 0), entry)

    def tick(self, second: int) -> None:
        """Write a tick into every log, and the transfers that follow from it into those of other shards."""
        self.second = second
        for log in self.logs:
            log.append(1000 * second, encode_entry(TickEntry(0)))
        self.exchange()

    def exchange(self) -> None:
        """Apply all logs to their ends. A transfer never causes another one."""
        for _ in range(2):
            for keeper, log in zip(self.keepers, self.logs, strict=True):
                for output in keeper.take(log.batch(keeper.head.next, log.end)):
                    if output.kind == TRANSFERS:
                        self.logs[output.to_shard].append(1000 * max(self.second, 0), output.data)

    def rest(self, ticks: int, seconds: int = _HOUR) -> StreamLogs:
        """Let time pass, until what shards owe each other has arrived."""
        for _ in range(ticks):
            self.tick(self.second + seconds)
        return self

    def cluster(self) -> LogCluster:
        """Return a cluster that has the logs."""
        partitions = {
            shard: Partition([Record(*record[:2], None, record[2], shard) for record in log.records], 0, log.end)
            for shard, log in enumerate(self.logs)
        }
        return LogCluster(partitions)

    def send(self, brokers: str, prefix: str) -> Connection:
        """Write the logs to a real cluster, into a new topic."""
        connection = Connection(brokers)
        make(connection, specs(prefix, len(self.logs)))
        with Publisher(connection) as publisher:
            for shard, log in enumerate(self.logs):
                for _, _, value in log.records:
                    publisher.send(f"{prefix}page-ledger", None, value, shard)
        return connection


class LogCluster(Cluster):
    """A fake cluster for commands: it replaces a connection."""

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Let commands that read a stream use this cluster."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "connection_of", lambda options: self)
            yield


def example_logs(config: LedgerConfig, shards: int, events: int | None = None) -> StreamLogs:
    """Return the logs of the example crawl, or of its first events. Shards have equally many pages."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines()[:events]
    alone = StreamLogs(config, ShardRanges()).read(lines)
    if shards == 1:
        return alone
    ledger = alone.keepers[0].ledger
    assert ledger is not None
    return StreamLogs(config, ShardRanges.even(ledger.ranked(), shards)).read(lines)


def delete_until(cluster: Cluster, offset: int, partition: int = 0) -> None:
    """Delete the records of a partition before an offset, as retention does."""
    one = cluster.partitions[partition]
    cluster.partitions[partition] = replace(
        one, records=[record for record in one.records if record.offset >= offset], first=offset
    )
