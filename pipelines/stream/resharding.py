"""Another number of shards for a stream that is stopped: new logs, which begin with snapshots of new ledgers.

1. Every ledger is restored from its newest snapshot, and its log is applied to the end. Its publications on the way are
   sent again: a consumer sees them as after any restart.
2. The shards exchange transfers under way, and their pages go into the ledgers of the new shards.
3. The new topic is made, and each log gets its first entry: the settings, with the fingerprints of all new ledgers.
4. The snapshots of the new ledgers are written.

Nothing of the old logs changes: until the stream runs on the new ones, it can go on with the old ones. The same logs
give the same new ledgers, so an interrupted run is repeated and goes on; it refuses logs that have another beginning.
Where a stream has begun on the new logs, nothing is left to do.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import IO, NamedTuple

import xxhash

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, find_topic, resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import batches
from opicflow.connectors.kafka.source import read_range
from opicflow.connectors.kafka.topics import make
from opicflow.connectors.runs import closing_run
from opicflow.pipelines.ledger import EntryRefused, Ledger, TransfersEntry
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.ledger.shards.reshard import ReshardRefused, even_ranges, exchange, reshard, source_offsets
from opicflow.pipelines.results.topic_writer import Destination, SendOutputs
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_head import LogHead, digest_of_value
from opicflow.pipelines.stages.log_settings import Continuation, LogRefused, Origin
from opicflow.pipelines.stages.outputs import TRANSFERS, Output
from opicflow.pipelines.stream.origin import ledger_spec, origin_of
from opicflow.pipelines.stream.rebuilt import rebuild
from opicflow.pipelines.stream.snapshot_reader import newest_keeper
from opicflow.pipelines.stream.snapshot_store import PackedSnapshot, Snapshots, SnapshotStore, pack_chunks
from opicflow.schemas.records import Audit

_STOP_AGAIN = "start the stream on its old logs, stop it with opicflow stream stop, and try again"


class ReshardProgress(NamedTuple):
    """The progress: the current step, the current shard, and the number of shards."""

    step: str
    shard: int
    shards: int


@dataclass(frozen=True)
class NewLogs:
    """The new logs, and what their ledgers hold."""

    topic: str
    origin: Origin
    pages: tuple[int, ...]
    minted: int


@dataclass(frozen=True)
class Resharding:
    """From which logs to which. The stream is stopped."""

    connection: Connection
    prefix: str
    topic: str
    to_topic: str
    shards: int
    snapshots: Snapshots
    replication: int | None = None
    is_hosted: bool = False
    """Whether the cluster forbids some settings of topics."""

    def has_begun(self) -> bool:
        """Whether a stream has run on the new logs, and none on the old ones since then.

        It may have been started by a command that was killed before it could say so.
        """
        if find_topic(self.connection, self.to_topic) is None:
            return False
        old, new = (resolve(self.connection, topic) for topic in (self.topic, self.to_topic))
        if all(log.end <= 1 for log in new) or _newest_ms(new) <= _newest_ms(old):
            return False
        origin = origin_of(self.connection, self.to_topic, self.snapshots)
        continues = origin.continues if origin else None
        return continues is not None and (continues.topic, continues.topic_id) == (self.topic, old[0].topic_id)

    def run(self, on_progress: Callable[[ReshardProgress], None] = lambda progress: None) -> NewLogs:
        """Make the new logs. Raises `LogRefused`, `KafkaRefused` or `StorageRefused`."""
        self.check()
        with closing_run(self._run):
            old = self._old_keepers(on_progress)
        origins = [keeper.origin for keeper in old]
        origin = origins[0]
        if origin is None or any(other != origin for other in origins):
            raise LogRefused(f"{self.topic}: its logs do not begin with the same settings: start the stream there")
        if any(keeper.is_quiet for keeper in old):
            raise LogRefused(f"{self.topic}: its ledgers are being rebuilt: wait until they publish")
        ledgers = [keeper.ledger for keeper in old if keeper.ledger is not None]
        exchange(ledgers)
        ranges = even_ranges(ledgers, self.shards)
        with ExitStack() as files:
            try:
                packed, sources = [], {}
                for ledger in reshard(ledgers, ranges):
                    packed.append(_packed(ledger, files.enter_context(tempfile.TemporaryFile())))
                    sources = source_offsets(ledger)
                    on_progress(ReshardProgress("new ledgers", ledger.shard + 1, self.shards))
            except ReshardRefused as problem:
                raise LogRefused(f"{self.topic}: {problem}: {_STOP_AGAIN}") from None
            continues = Continuation(
                self.topic,
                resolve(self.connection, self.topic)[0].topic_id,
                tuple(one.fingerprint for one in packed),
                sources,
            )
            origin = replace(origin, ranges=ranges, continues=continues)
            self._write(origin, packed, old, on_progress)
        return NewLogs(self.to_topic, origin, tuple(one.pages for one in packed), sum(one.minted for one in ledgers))

    @property
    def _run(self) -> str:
        return f"{self.topic} to {self.to_topic}"

    def check(self, is_running: bool = False) -> None:
        """Refuse what cannot be resharded, so that a stream that runs need not be stopped for it.

        Raises `KafkaRefused`, or `StorageRefused` for a folder of snapshots that this process cannot write to.

        A number of shards that other ledgers had is refused as long as topics have their records: audits mix them.
        """
        old = resolve(self.connection, self.topic)
        if len(old) == self.shards:
            raise KafkaRefused(f"{self.topic}: it has {self.shards} shards already: give another number")
        self._check_target(is_running)
        self.snapshots.folder.check_writable()
        for batch in batches(self.connection, "audit", prefix=self.prefix):
            for one in batch:
                if isinstance(one.record, Audit) and one.record.shards == self.shards:
                    raise KafkaRefused(
                        f"{self.prefix}audit has records of other ledgers of {self.shards} shards, and would mix them "
                        "with the new ones: give another number, or wait until they are deleted"
                    )
        if others := ran_since(self.connection, self.prefix, self.topic):
            raise KafkaRefused(
                f"{self.topic}: a stream of {others} shards has run since these logs ended: name its logs with "
                "--ledger, or start the stream on these first"
            )

    def _check_target(self, is_running: bool) -> None:
        if find_topic(self.connection, self.to_topic) is None:
            return
        logs = resolve(self.connection, self.to_topic)
        if len(logs) != self.shards:
            raise KafkaRefused(f"{self.to_topic}: it has {len(logs)} partitions, not {self.shards}: name a new topic")
        if is_running and any(log.end for log in logs):
            raise KafkaRefused(
                f"{self.to_topic}: it has records, perhaps of a reshard that was interrupted, after which the stream "
                "went on: name another topic with --to-ledger"
            )

    def _old_keepers(self, on_progress: Callable[[ReshardProgress], None]) -> list[LedgerKeeper]:
        """Return the keepers at the ends of their logs, with all that the others have sealed for them."""
        logs = resolve(self.connection, self.topic)
        keepers, sealed = [], []
        for log in logs:
            store = self.snapshots.of_logs(log.topic, log.topic_id)
            outputs = SendOutputs(Destination(self.connection, self.prefix), self.topic, run=self._run)
            outputs.start_bundle()

            def take(output: Output, outputs: SendOutputs = outputs) -> None:
                if output.kind == TRANSFERS:
                    sealed.append((output.to_shard, output.data))
                else:
                    outputs.process(output)

            keepers.append(rebuild(log, take, snapshots=self.snapshots, keeper=newest_keeper(store, log)))
            outputs.finish_bundle()
            if keepers[-1].ledger is None:
                raise LogRefused(f"{self.topic}, partition {log.partition}: it has no ledger: start the stream there")
            on_progress(ReshardProgress("old ledgers", len(keepers), len(logs)))
        for shard, data in sealed:
            ledger, entry = keepers[shard].ledger, decode_entry(data)
            assert ledger is not None and isinstance(entry, TransfersEntry)
            try:
                ledger.apply(entry)  # what its log has already is skipped
            except EntryRefused as problem:
                raise LogRefused(f"{self.topic}, partition {shard}: {problem}: {_STOP_AGAIN}") from None
        return keepers

    def _write(
        self,
        origin: Origin,
        packed: list[_Packed],
        old: list[LedgerKeeper],
        on_progress: Callable[[ReshardProgress], None],
    ) -> None:
        """Make the topic if it is missing, and write the first entries and snapshots that it lacks."""
        make(self.connection, [ledger_spec(self.prefix, self.to_topic, self.shards, self.is_hosted)], self.replication)
        logs = resolve(self.connection, self.to_topic)
        with Publisher(self.connection) as publisher:
            for log in logs:
                if log.end == 0:
                    publisher.deliver(self.to_topic, [origin.entry()], log.partition)
        for log, one in zip(resolve(self.connection, self.to_topic), packed, strict=True):
            head, time_ms = _first_head(log, origin.entry())
            keeper = LedgerKeeper.continuing(log.partition, one.visits, origin.entry(), head, old)
            store = self.snapshots.of_logs(log.topic, log.topic_id)
            _store(store, keeper, time_ms, one)
            on_progress(ReshardProgress("snapshots", log.partition + 1, self.shards))


def ran_since(connection: Connection, prefix: str, topic: str) -> int:
    """Return how many shards another stream had that has run since the logs in a topic ended; 0 if there was none."""
    logs = resolve(connection, topic)
    for batch in batches(connection, "audit", prefix=prefix, since_ms=_newest_ms(logs) + 1):
        for one in batch:
            if isinstance(one.record, Audit) and one.record.shards != len(logs):
                return one.record.shards
    return 0


def _newest_ms(logs: list[PartitionRange]) -> int:
    """Return the time of the newest record of all logs; 0 without records."""
    last = (replace(log, start=log.end - 1) for log in logs if log.end > log.start)
    return max((int(batch.times_ms[-1]) for log in last for batch in read_range(log)), default=0)


class _Packed(NamedTuple):
    """A new ledger, compressed in a file without a name."""

    snapshot: PackedSnapshot
    file: IO[bytes]
    fingerprint: str
    pages: int
    visits: int


def _packed(ledger: Ledger, file: IO[bytes]) -> _Packed:
    digest = xxhash.xxh64()

    def chunks() -> Iterator[bytes]:
        for chunk in ledger.snapshot_chunks():
            digest.update(chunk.data)
            yield chunk.data

    return _Packed(pack_chunks(chunks(), file), file, digest.hexdigest(), ledger.pages, ledger.visits)


def _store(store: SnapshotStore, keeper: LedgerKeeper, time_ms: int, ledger: _Packed) -> None:
    """Write the first snapshot of a log: its head, and the ledger that was packed before."""
    with tempfile.TemporaryFile() as file:
        first = pack_chunks([keeper.first_chunk()], file)
        ledger.file.seek(0)
        shutil.copyfileobj(ledger.file, file)
        parts = [*first.parts, *ledger.snapshot.parts]
        whole = PackedSnapshot(parts, first.chunk_bytes + ledger.snapshot.chunk_bytes)
        store.write(keeper.shard, keeper.head, time_ms, whole, file, version("opicflow"))


def _first_head(log: PartitionRange, entry: bytes) -> tuple[LogHead, int]:
    """Return the head behind the first entry of a new log, and the time of that entry."""
    for batch in read_range(replace(log, end=min(log.end, 1))):
        if batch.value(0) == entry and log.start == 0:
            time_ms = int(batch.times_ms[0])
            return LogHead().behind(0, time_ms, digest_of_value(entry)), time_ms
    raise KafkaRefused(
        f"{log.topic}, partition {log.partition}: it begins with another entry: name a new topic with --to-ledger"
    )
