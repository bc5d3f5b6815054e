"""Restores ledgers from the snapshots in storage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import PartitionRange, RecordsDeleted, record_at
from opicflow.pipelines.ledger import SnapshotRefused
from opicflow.pipelines.stages.keepers import KeeperFactory, rebuild
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_head import LogHead, digest_of_value
from opicflow.pipelines.stages.log_settings import LogRefused, Origin
from opicflow.pipelines.stages.metrics import count
from opicflow.pipelines.stream.snapshot_store import SnapshotDamaged, SnapshotStore, StoredSnapshot
from opicflow.schemas.message_columns import MessageBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogCheck:
    """Refuses a head if its log does not have the last record that the ledger applied."""

    connection: Connection
    topic: str

    def __call__(self, shard: int, head: LogHead) -> None:
        """Read that record and compare its digest."""
        if head.last_offset < 0:
            return
        found = record_at(self.connection, self.topic, shard, head.last_offset)
        if found is None or digest_of_value(found) != head.last_digest:
            raise LogRefused(
                f"{self.topic}, partition {shard}: offset {head.last_offset} does not have the record that the "
                "ledger applied there: the log was replaced, cut off or restored: rebuild from crawl-events"
            )


def newest_keeper(store: SnapshotStore, log: PartitionRange) -> LedgerKeeper | None:
    """Return the keeper of the newest snapshot from which a log goes on; None if there is none."""
    check = LogCheck(log.connection, log.topic)
    for snapshot in store.newest_first(log.partition):
        try:
            head = store.head(log.partition, snapshot)
            if head is not None and log.start <= head.next <= log.end:
                check(log.partition, head)
                return keeper_of(store, log.partition, snapshot)
        except (SnapshotDamaged, LogRefused, RecordsDeleted) as problem:
            _log.warning("shard %d, %s: %s: another snapshot is tried", log.partition, snapshot.name, problem)
    return None


def restore_newest(
    store: SnapshotStore,
    factory: KeeperFactory,
    shard: int,
    head: LogHead,
    check: Callable[[int, LogHead], None],
    since: Callable[[Any, LogHead], Iterable[MessageBatch]] = lambda keeper, head: (),
) -> LedgerKeeper | None:
    """Return the ledger at a head, from the newest snapshot before it and the log since then.

    If there is no snapshot before it, the ledger of the oldest one after it: all that it had sent has arrived. None if
    there is none at all. A snapshot that is damaged, or does not lead to the head, is passed over. `check` refuses a
    snapshot whose last record is not in the log.
    """
    found = store.newest_first(shard)
    before = [one for one in found if one.next <= head.next]
    after = [one for one in reversed(found) if one.next > head.next]
    if not head.next:  # nothing was kept: the newest is the best
        after.reverse()
    for snapshot in before + after:
        try:
            keeper = _restore(store, factory, shard, snapshot, head, check, since)
        except RecordsDeleted:  # the log since then is not there any more
            continue
        except (SnapshotDamaged, SnapshotRefused) as problem:
            count("snapshots_damaged")
            _log.warning("shard %d, %s: %s: another snapshot is tried", shard, snapshot.name, problem)
            continue
        if keeper is not None:
            keeper.snapshot_ms = snapshot.log_ms
            return keeper
    return None


def oldest_kept(store: SnapshotStore, shard: int, first: int) -> tuple[StoredSnapshot, LogHead]:
    """Return the oldest finished snapshot from which a log that begins at `first` goes on. Raises `LogRefused`."""
    for found in _kept(store, shard, first):
        return found
    raise _without_snapshot(store, shard, first)


def _without_snapshot(store: SnapshotStore, shard: int, first: int) -> LogRefused:
    if not first:
        return LogRefused(
            f"{store.topic}, partition {shard}: {store.where.folder.shown} has no snapshot of its ledger: name the "
            "folder of its snapshots, or wait for the first one, after 16 MiB of the log (snapshot-mb) or six hours"
        )
    return LogRefused(
        f"{store.topic}, partition {shard}: offsets 0 to {first - 1} were deleted, and {store.where.folder.shown} has "
        "no snapshot of its ledger behind them: name the folder of its snapshots, or rebuild into a new topic"
    )


def _kept(store: SnapshotStore, shard: int, first: int) -> Iterator[tuple[StoredSnapshot, LogHead]]:
    """Yield the finished snapshots from which a log that begins at `first` goes on, the oldest first."""
    for snapshot in reversed(store.newest_first(shard)):
        head = store.head(shard, snapshot) if snapshot.next >= first else None
        if head is not None:
            yield snapshot, head


def keeper_of(store: SnapshotStore, shard: int, snapshot: StoredSnapshot) -> LedgerKeeper:
    """Return the keeper of a snapshot. Raises `SnapshotDamaged`."""
    try:
        return LedgerKeeper.from_chunks(shard, store.read(shard, snapshot))
    except SnapshotRefused as problem:
        raise SnapshotDamaged(f"{store.topic}, partition {shard}, {snapshot.name}: {problem}") from None


def origin_of_shard(store: SnapshotStore, shard: int, first: int) -> Origin | None:
    """Return the settings of a ledger whose log begins at `first`, from its oldest snapshot that is not damaged.

    Raises `LogRefused` if there is no snapshot, and `SnapshotDamaged` if all are damaged.
    """
    problem: SnapshotDamaged | None = None
    for snapshot, _ in _kept(store, shard, first):
        try:
            return LedgerKeeper.origin_in(next(store.read(shard, snapshot)))
        except SnapshotDamaged as damaged:
            problem = damaged
            _log.warning("shard %d, %s: %s: another snapshot is tried", shard, snapshot.name, problem)
    raise problem or _without_snapshot(store, shard, first)


def _restore(
    store: SnapshotStore,
    factory: KeeperFactory,
    shard: int,
    snapshot: StoredSnapshot,
    head: LogHead,
    check: Callable[[int, LogHead], None],
    since: Callable[[Any, LogHead], Iterable[MessageBatch]],
) -> LedgerKeeper | None:
    stored = store.head(shard, snapshot)
    if stored is None:
        return None
    is_before = stored.next <= head.next
    if not is_before:
        check(shard, stored)
    keeper = rebuild(
        factory, shard, store.read(shard, snapshot), lambda keeper: since(keeper, head) if is_before else ()
    )
    assert isinstance(keeper, LedgerKeeper)
    return keeper if keeper.head == (head if is_before else stored) else None
