"""The stage of a stream that keeps the ledgers: it reads the log of its shard, which is also its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from apache_beam.transforms.userstate import BagRuntimeState, ReadModifyWriteRuntimeState

from opicflow.connectors.flink.key_groups import number_of
from opicflow.connectors.kafka.partitions import RecordsDeleted, resolve
from opicflow.connectors.kafka.polls import Poll, WatchedTopic
from opicflow.connectors.kafka.source import PartitionReader, read_range
from opicflow.connectors.runs import kept
from opicflow.pipelines.stages.keep_ledger import Journal, KeepLedger
from opicflow.pipelines.stages.keepers import Keeper, KeeperFactory, Keepers
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.log_settings import LogRefused
from opicflow.pipelines.stages.metrics import count, set_gauge
from opicflow.pipelines.stages.outputs import APPLIED, Output
from opicflow.pipelines.stream.sent import SentHeads, applied, may_go_on
from opicflow.pipelines.stream.snapshot_reader import restore_newest
from opicflow.pipelines.stream.snapshot_store import SnapshotStore
from opicflow.pipelines.stream.snapshot_writer import Written, writer_of
from opicflow.schemas.message_columns import MessageBatch

LEAST_LOG_MB = 16.0
"""MiB. A ledger applies this much log again in about half a second."""
OLDEST_SNAPSHOT_MS = 6 * 3_600_000
"""The log must be kept for this time before the oldest savepoint."""


class JournalInLog:
    """The journal of a ledger: the records of its log since the last snapshot, which are read again."""

    def __init__(self, read: Callable[[int, int], Iterable[MessageBatch]], least_mb: float = LEAST_LOG_MB) -> None:
        """`read` reads the log from one offset up to another. There is no snapshot for less than `least_mb` of log."""
        self._read = read
        self._least_bytes = int(least_mb * (1 << 20))

    def add(self, keeper: LedgerKeeper, batch: MessageBatch) -> None:
        """Count the bytes and times of a batch, which is in the log already."""
        keeper.sizes.journal_bytes += len(batch.text)
        if len(batch.times_ms):
            if keeper.journal_from_ms is None:
                keeper.journal_from_ms = int(batch.times_ms[0])
            keeper.journal_to_ms = int(batch.times_ms[-1])

    def is_long(self, keeper: LedgerKeeper) -> bool:
        """Whether the log since the last snapshot is twice as long as that, or some hours old."""
        outgrown = keeper.sizes.journal_bytes > max(2 * keeper.sizes.snapshot_bytes, self._least_bytes)
        begun_ms = keeper.journal_from_ms
        return outgrown or (begun_ms is not None and keeper.journal_to_ms - begun_ms > OLDEST_SNAPSHOT_MS)

    def begin_at(self, keeper: LedgerKeeper, written: Written) -> None:
        """Count from a snapshot that was written while the ledger went on."""
        keeper.sizes.journal_bytes = max(keeper.sizes.journal_bytes - written.journal_bytes, 0)
        keeper.journal_from_ms = written.log_ms
        keeper.sizes.snapshot_bytes, keeper.snapshot_ms = written.bytes, written.log_ms

    def clear(self, keeper: LedgerKeeper) -> None:
        """Count from zero. The log itself stays: others read it too."""
        keeper.sizes.journal_bytes, keeper.journal_from_ms = 0, None

    def since(self, keeper: LedgerKeeper, head: LogHead) -> Iterator[MessageBatch]:
        """Yield the log from the head of the keeper up to another head."""
        for batch in self._read(keeper.head.next, head.next):
            self.add(keeper, batch)
            yield batch


class KeepLogLedger(KeepLedger):
    """`KeepLedger` that reads its log itself, from the offset in its state: polls in, outputs out."""

    def __init__(
        self,
        topic: WatchedTopic,
        factory: KeeperFactory,
        run: str,
        least_log_mb: float = LEAST_LOG_MB,
        check: Callable[[int, LogHead], None] = lambda shard, head: None,
        store: SnapshotStore | None = None,
    ) -> None:
        """The partitions of `topic` are the logs. A snapshot is written for `least_log_mb` of log at the earliest.

        `check` refuses a head whose log was replaced, before a ledger is rebuilt from that log. Snapshots go to
        `store`; without one into the state of this stage.
        """
        super().__init__(factory, run)
        self._check = check
        self._store = store
        self._least_log_mb = least_log_mb
        self._topic = topic
        self._reader = PartitionReader(topic, run)

    def process(  # type: ignore[override]
        self,
        element: Poll,
        head_state: ReadModifyWriteRuntimeState = KeepLedger.HEAD,
        snapshot: BagRuntimeState = KeepLedger.SNAPSHOT,
    ) -> Iterator[Output]:
        """Read the log for a limited time and apply its records."""
        shard = number_of(element[0])
        try:
            yield from self._read(element, shard, head_state, snapshot)
        except RecordsDeleted:
            if self._store is None or not self._has_moved(shard):
                raise

    def _has_moved(self, shard: int) -> bool:
        """Whether a log begins later than before: then it is next read from a snapshot on."""
        known = self._topic.partition(shard)
        now = {one.partition: one.start for one in resolve(known.connection, known.topic)}
        moved = tuple(replace(one, start=now[one.partition]) for one in self._topic.partitions)
        self._topic = replace(self._topic, partitions=moved)
        return now[shard] > known.start

    def _read(
        self, element: Poll, shard: int, head_state: ReadModifyWriteRuntimeState, snapshot: BagRuntimeState
    ) -> Iterator[Output]:
        log = self._topic.partition(shard)

        def start() -> int:
            stored = head_state.read()
            at = LogHead.from_bytes(stored).next if stored else -1
            return at if at >= log.start else self._begin(shard, log.start)  # the log after an old state was deleted

        def read(start: int, end: int) -> Iterator[MessageBatch]:
            return read_range(replace(log, start=start, end=end))

        journal = JournalInLog(read, self._least_log_mb)
        for batch in self._reader.read(element, start):
            keeper = yield from self.keep(shard, batch, head_state, snapshot, journal)
            assert isinstance(keeper, LedgerKeeper)
            if self._store is not None:
                self._note_snapshot(self._store, keeper, snapshot, journal)
            record_metrics(keeper)
            yield Output(APPLIED, applied(self._run, shard, keeper.head.next), shard)

    def is_usable(self, keeper: Keeper, head: LogHead) -> bool:
        """Whether a keeper has the head in state, or is further and all its outputs have arrived."""
        assert isinstance(keeper, LedgerKeeper) and isinstance(head, LogHead)
        if keeper.head == head:
            return True
        if not may_go_on(self._run, keeper.shard, keeper.head, head):
            return False
        try:
            self._check(keeper.shard, keeper.head)
        except LogRefused:  # of a log that was there before
            return False
        return True

    def write_snapshot(self, keeper: Keeper, snapshot: BagRuntimeState, journal: Journal) -> None:
        """Begin to write a snapshot beside the work; without a store, write one into state."""
        if self._store is None:
            super().write_snapshot(keeper, snapshot, journal)
        else:
            assert isinstance(keeper, LedgerKeeper)
            writer_of(self._store, self._run).begin(keeper)

    def _note_snapshot(
        self, store: SnapshotStore, keeper: LedgerKeeper, snapshot: BagRuntimeState, journal: JournalInLog
    ) -> None:
        """Note a snapshot that was written since the last batch, or that none could be; and how old the newest is."""
        written = writer_of(store, self._run).take_written(keeper.shard)
        if written is not None and written.problem:
            count("snapshot_failures")
        elif written is not None:
            count("snapshots")
            journal.begin_at(keeper, written)
            snapshot.clear()  # one from before there was a store
        since_ms = keeper.journal_from_ms if keeper.snapshot_ms is None else keeper.snapshot_ms
        if since_ms is not None:
            age_ms = max(keeper.journal_to_ms - since_ms, 0)
            set_gauge(f"snapshot_age_seconds_shard_{keeper.shard}", age_ms // 1000)

    def _begin(self, shard: int, first: int) -> int:
        """Return the offset at which a ledger without state begins: behind the newest snapshot, or the first one."""
        keepers = kept(self._run, Keepers)
        keeper = keepers.peek(shard)
        if keeper is not None and not self.is_usable(keeper, LogHead()):
            keeper = None
        if keeper is None and self._store is not None:
            keeper = restore_newest(self._store, self._factory, shard, LogHead(), self._check)
            if keeper is not None:
                count("ledgers_recovered")
                kept(self._run, SentHeads).note(shard, keeper.head.next)
                keepers.put(shard, keeper)
        return first if keeper is None else max(first, keeper.head.next)

    def recover(self, shard: int, head: LogHead, snapshot: BagRuntimeState, journal: Journal | None) -> LedgerKeeper:
        """Rebuild the keeper with this head, or a keeper that is further, and count it."""
        keeper: Keeper | None = None
        if self._store is not None and journal is not None:
            keeper = restore_newest(self._store, self._factory, shard, head, self._check, journal.since)
        if keeper is None:
            self._check(shard, head)
            keeper = super().recover(shard, head, snapshot, journal)
        assert isinstance(keeper, LedgerKeeper)
        count("ledgers_recovered")
        keeper.counts.clear()  # they were counted when the log was first applied
        keeper.has_audited = False
        return keeper

    def teardown(self) -> None:
        """Close the connections to the cluster."""
        self._reader.close()


def record_metrics(keeper: Keeper) -> None:
    """Record what a ledger did since the last call, and its gauges after an audit."""
    assert isinstance(keeper, LedgerKeeper)
    for name, number in keeper.counts.items():
        count(name, number)
    keeper.counts.clear()
    if keeper.has_audited:
        keeper.has_audited = False
        for name, value in keeper.gauges().items():
            set_gauge(f"{name}_shard_{keeper.shard}", value)
