"""Ledgers of a stream, rebuilt in this process: each log is applied from its start to the end it has now.

A running stream is not disturbed. It writes on behind the end, which is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.source import read_range
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import LogRefused, Origin
from opicflow.pipelines.stages.outputs import Output
from opicflow.pipelines.stream.origin import first_origin, origin_at_start
from opicflow.pipelines.stream.snapshot_reader import keeper_of, oldest_kept
from opicflow.pipelines.stream.snapshot_store import Snapshots


class RebuildProgress(NamedTuple):
    """How much of a log was applied."""

    shard: int
    offset: int
    end: int
    pages: int


@dataclass(frozen=True)
class Logs:
    """The logs of all shards of a stream up to one moment, and the settings that they begin with."""

    topic: str
    by_shard: Sequence[PartitionRange]
    origin: Origin
    snapshots: Snapshots | None = None

    @classmethod
    def of(cls, connection: Connection, topic: str, snapshots: Snapshots | None = None) -> Logs:
        """Find the logs of a topic and their present ends. Raises `KafkaRefused` or `LogRefused`."""
        logs = resolve(connection, topic)
        whole = [log for log in logs if log.start == 0 or snapshots is not None]
        if not whole:
            raise _begins_late(logs[0])
        origin = first_origin(connection, topic, whole, snapshots)
        if len(logs) != origin.shards:
            raise LogRefused(
                f"{topic}: it has {len(logs)} partitions, its ledgers {origin.shards} shards: "
                "name the topic of the logs with --ledger"
            )
        return cls(topic, logs, origin, snapshots)

    def shard_of(self, page: int) -> int:
        """Return the shard that has a page."""
        return int(self.origin.ranges.of(np.array([page], np.uint64))[0])

    def rebuild(
        self, shard: int, on_progress: Callable[[RebuildProgress], None] = lambda progress: None
    ) -> LedgerKeeper:
        """Return the keeper of a shard, with its ledger. It takes the memory of the shard. Raises `LogRefused`."""
        keeper = rebuild(self.by_shard[shard], on_progress=on_progress, snapshots=self.snapshots)
        if keeper.origin != self.origin:
            raise LogRefused(
                f"{self.topic}, partition {shard}: it does not begin with the settings of the other partitions: "
                "start the stream, which writes them, or name the topic of the logs with --ledger"
            )
        return keeper


def rebuild(
    log: PartitionRange,
    on_output: Callable[[Output], None] = lambda output: None,
    on_progress: Callable[[RebuildProgress], None] = lambda progress: None,
    snapshots: Snapshots | None = None,
    keeper: LedgerKeeper | None = None,
) -> LedgerKeeper:
    """Apply a log from its start, or from a `keeper` on, to the end of the range, and return its keeper.

    `on_output` receives what the ledger would send. The keeper has no ledger if the log has no settings. A log whose
    beginning was deleted, or that continues others, is applied from its oldest snapshot on. Raises `LogRefused` if
    there is none.
    """
    keeper = _first_keeper(log, snapshots) if keeper is None else keeper
    for batch in read_range(replace(log, start=max(log.start, keeper.head.next))):
        for output in keeper.take(batch):
            on_output(output)
        pages = keeper.ledger.pages if keeper.ledger else 0
        on_progress(RebuildProgress(log.partition, batch.end, log.end, pages))
    return keeper


def _first_keeper(log: PartitionRange, snapshots: Snapshots | None) -> LedgerKeeper:
    """Return the keeper with which a log is applied first."""
    origin = origin_at_start(log) if log.start == 0 else None
    continues = None if origin is None else origin.continues
    if log.start == 0 and continues is None:
        return LedgerKeeper(log.partition)
    if snapshots is None:
        raise _begins_late(log)
    store = snapshots.of_logs(log.topic, log.topic_id)
    snapshot, _ = oldest_kept(store, log.partition, max(log.start, 1))
    keeper = keeper_of(store, log.partition, snapshot)
    if snapshot.next == 1 and continues and keeper.fingerprint() != continues.fingerprints[log.partition]:
        raise LogRefused(
            f"{log.topic}, partition {log.partition}: its first snapshot is not the ledger that the log begins with: "
            "make the logs again with opicflow stream reshard, in a new topic"
        )
    return keeper


def _begins_late(log: PartitionRange) -> LogRefused:
    return LogRefused(
        f"{log.topic}, partition {log.partition}: "
        + (f"offsets 0 to {log.start - 1} were deleted" if log.start else "it continues the logs of other shards")
        + ", so its ledger begins with a snapshot: name the folder of its snapshots with --snapshots, or replay "
        "crawl-events (opicflow replay --from) instead, if they are still there"
    )
