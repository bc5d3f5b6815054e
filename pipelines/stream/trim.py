"""Deletes old records of the logs of a stream: those before its oldest snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import delete_before, resolve
from opicflow.pipelines.stages.log_settings import LogRefused
from opicflow.pipelines.stream.snapshot_reader import oldest_kept
from opicflow.pipelines.stream.snapshot_store import SnapshotDamaged, Snapshots, SnapshotStore, StoredSnapshot


class Trim(NamedTuple):
    """The part of a log that may be deleted."""

    shard: int
    first: int
    """The first offset of the log."""
    keep_from: int
    """The first offset that must stay: the last record that the oldest snapshot has."""
    end: int

    @property
    def deleted(self) -> int:
        """The number of offsets before it."""
        return max(self.keep_from - self.first, 0)


def find_trims(connection: Connection, topic: str, snapshots: Snapshots, reads: bool = True) -> list[Trim]:
    """Return what may be deleted of each log of a topic. Raises `LogRefused` for a shard without a snapshot.

    With `reads`, the snapshots that the logs will begin with are read whole, and their checksums compared; without,
    a whole log without a snapshot must stay.
    """
    trims = []
    for log in resolve(connection, topic):
        store = snapshots.of_logs(topic, log.topic_id)
        try:
            snapshot, head = oldest_kept(store, log.partition, log.start)
        except LogRefused:
            if reads or log.start:
                raise
            trims.append(Trim(log.partition, 0, 0, log.end))
            continue
        while reads and not _is_whole(store, log.partition, snapshot):
            snapshot, head = oldest_kept(store, log.partition, log.start)
        # The last record that a snapshot has stays: it proves that the snapshot was made from this log.
        trims.append(Trim(log.partition, log.start, max(head.last_offset, 0), log.end))
    return trims


def _is_whole(store: SnapshotStore, shard: int, snapshot: StoredSnapshot) -> bool:
    """Read a snapshot. False if the stream has removed it meanwhile. Raises `SnapshotDamaged`."""
    try:
        for _ in store.read(shard, snapshot):
            pass
    except SnapshotDamaged:
        if store.head(shard, snapshot) is None:
            return False
        raise
    return True


def trim(connection: Connection, topic: str, trims: Sequence[Trim]) -> None:
    """Delete the records."""
    delete_before(connection, topic, {one.shard: one.keep_from for one in trims if one.deleted})
