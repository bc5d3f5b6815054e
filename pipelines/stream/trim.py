"""Deletes old records of the logs of a stream: those before its oldest snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import delete_before, resolve
from opicflow.pipelines.stream.keeper import LogHead
from opicflow.pipelines.stream.snapshot_reader import oldest_kept
from opicflow.pipelines.stream.snapshot_store import Snapshots


class Trim(NamedTuple):
    """What may be deleted of a log."""

    shard: int
    first: int
    """The first offset of the log."""
    keep_from: int
    """The first offset that must stay: the last record that the oldest snapshot has."""
    end: int

    @property
    def deleted(self) -> int:
        """How many offsets are before it."""
        return max(self.keep_from - self.first, 0)


def find_trims(connection: Connection, topic: str, snapshots: Snapshots, reads: bool = True) -> list[Trim]:
    """Return what may be deleted of each log of a topic. Raises `LogRefused` for a shard without a snapshot.

    With `reads`, the snapshots that the logs will begin with are read whole, and their checksums compared.
    """
    trims = []
    for log in resolve(connection, topic):
        store = snapshots.of_logs(topic, log.topic_id)
        snapshot, head = oldest_kept(store, log.partition, log.start)
        if reads:
            for _ in store.read(log.partition, snapshot):
                pass
        trims.append(Trim(log.partition, log.start, _keep_from(head), log.end))
    return trims


def _keep_from(head: LogHead) -> int:
    """Return the offset of the last record: it proves that the log is the one that the snapshot was made from."""
    return max(head.last_offset, 0)


def trim(connection: Connection, topic: str, trims: Sequence[Trim]) -> None:
    """Delete the records."""
    delete_before(connection, topic, {one.shard: one.keep_from for one in trims if one.deleted})
