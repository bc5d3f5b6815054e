"""KeepLedger: the stage that holds a shard's ledger in keyed state, around the `Keeper`.

A bounded replay keeps its table in memory only and hands it from one pipeline to the next by its head; a table that is
gone is an error. With `durable` the state is whole: a snapshot, and a journal of the batches since. A stream's journal
is its log (docs/decisions/log-as-journal.md). In all cases the table itself lies in a cache of the process, and counts
only where it stands at the head, which has the hash of all that was applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain as one_after_the_other
from threading import Lock
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from opicflow.pipelines.ledger import Ledger
from opicflow.pipelines.transforms.metrics import count, stands_at
from opicflow.pipelines.transforms.replay_keeper import Head, Keeper, KeeperConfig, Output
from opicflow.pipelines.transforms.stream_keeper import LogBatch, LogHead, LogKeeper
from opicflow.schemas.errors import UserError

AnyKeeper = Keeper | LogKeeper
AnyHead = Head | LogHead
AnyBatch = bytes | LogBatch

_LEAST_JOURNAL_BYTES = 4 << 20


class LostTable(UserError):
    """A table that was kept in memory only is gone. Run again."""


class Tables:
    """The keepers of this process, each under its run and shard, and usable only at the head it stands at."""

    def __init__(self) -> None:
        """There are none."""
        self._keepers: dict[tuple[str, int], AnyKeeper] = {}
        self._lock = Lock()

    def put(self, run: str, shard: int, keeper: AnyKeeper) -> None:
        """Keep it until it is taken or let go."""
        with self._lock:
            self._keepers[run, shard] = keeper

    def take(self, run: str, shard: int, head: AnyHead) -> AnyKeeper | None:
        """The keeper, if it stands at this head. It is out of the cache then: an error leaves no dirty one behind."""
        with self._lock:
            keeper = self._keepers.pop((run, shard), None)
        return keeper if keeper is not None and keeper.head == head else None

    def look(self, run: str, shard: int) -> AnyKeeper | None:
        """The keeper, wherever it stands; it stays."""
        return self._keepers.get((run, shard))

    def forget(self, run: str) -> None:
        """Forget everything of a run."""
        with self._lock:
            for key in [key for key in self._keepers if key[0] == run]:
                del self._keepers[key]


TABLES = Tables()


class Keeping(Protocol):
    """What kind of keeper there is, and how it is made."""

    def fresh(self, shard: int) -> AnyKeeper:
        """A keeper that was given nothing yet."""

    def restored(self, shard: int, chunks: Iterable[bytes]) -> AnyKeeper:
        """The keeper that wrote these chunks."""

    def head(self, stored: bytes | None) -> AnyHead:
        """A head as it is stored; of None, where it begins."""

    def check(self, shard: int, head: AnyHead) -> None:
        """Refuse to make a keeper anew whose log is not the one that it was made from."""

    def recovered(self, keeper: AnyKeeper) -> None:
        """Count a keeper that was made anew."""

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """Count what happened. `was_told`: the keeper has just told how it stands."""


class Journal(Protocol):
    """The batches since a keeper's last snapshot, wherever they are kept."""

    def add(self, keeper: AnyKeeper, batch: AnyBatch) -> None:
        """The keeper will now be given a batch."""

    def is_long(self, keeper: AnyKeeper) -> bool:
        """Whether it is time for a new snapshot."""

    def clear(self, keeper: AnyKeeper) -> None:
        """There is a new snapshot."""

    def since(self, keeper: AnyKeeper, head: AnyHead) -> Iterable[AnyBatch]:
        """The batches that a keeper, as its snapshot was, was given since, up to a head."""


class JournalInState:
    """Batches in a bag. A new snapshot comes when they outgrow half of the old one."""

    def __init__(self, bag: Any) -> None:
        """Beam's state of a key."""
        self._bag = bag

    def add(self, keeper: AnyKeeper, batch: AnyBatch) -> None:
        """Put it into the bag."""
        assert isinstance(batch, bytes)
        self._bag.add(batch)
        keeper.journal_bytes += len(batch)

    def is_long(self, keeper: AnyKeeper) -> bool:
        """What is written is then three times the batches at most, and what is read half a snapshot more."""
        return keeper.journal_bytes > max(keeper.snapshot_bytes // 2, _LEAST_JOURNAL_BYTES)

    def clear(self, keeper: AnyKeeper) -> None:
        """Empty the bag."""
        self._bag.clear()
        keeper.journal_bytes = 0

    def since(self, keeper: AnyKeeper, head: AnyHead) -> Iterable[AnyBatch]:
        """All that is in the bag."""
        for batch in self._bag.read():
            keeper.journal_bytes += len(batch)
            yield batch


class KeepLedger(beam.DoFn):
    """Batches in, keyed by shard; outputs out."""

    HEAD = ReadModifyWriteStateSpec("head", BytesCoder())
    SNAPSHOT = BagStateSpec("snapshot", BytesCoder())
    JOURNAL = BagStateSpec("journal", BytesCoder())

    def __init__(self, keeping: Keeping, run: str, durable: bool = False) -> None:
        """`run` tells the tables of this run from others'."""
        self._keeping = keeping
        self._run = run
        self._durable = durable

    def process(
        self,
        element: tuple[int, bytes],
        head_state: Any = beam.DoFn.StateParam(HEAD),  # noqa: B008  (how Beam is told)
        snapshot: Any = beam.DoFn.StateParam(SNAPSHOT),  # noqa: B008  (how Beam is told)
        journal: Any = beam.DoFn.StateParam(JOURNAL),  # noqa: B008  (how Beam is told)
    ) -> Iterator[Output]:
        """Apply one batch."""
        shard, data = element
        yield from self.keep(shard, data, head_state, snapshot, JournalInState(journal) if self._durable else None)

    def keep(
        self, shard: int, batch: AnyBatch, head_state: Any, snapshot: Any, journal: Journal | None
    ) -> Iterator[Output]:
        """Apply one batch to a shard's ledger."""
        stored = head_state.read()
        head = self._keeping.head(stored)
        keeper = TABLES.take(self._run, shard, head)
        if keeper is None:
            keeper = self._rebuilt(shard, stored, head, snapshot, journal)
        if journal is not None:
            journal.add(keeper, batch)
        was_told = False
        for output in keeper.take(batch):  # type: ignore[arg-type]
            was_told |= output.name == "audit"
            yield output
        head_state.write(keeper.head.to_bytes())
        if journal is not None and journal.is_long(keeper):
            self._write_down(keeper, snapshot)
            journal.clear(keeper)
        self._keeping.tell(keeper, was_told)
        TABLES.put(self._run, shard, keeper)

    def _rebuilt(
        self, shard: int, stored: bytes | None, head: AnyHead, snapshot: Any, journal: Journal | None
    ) -> AnyKeeper:
        """The keeper at this head, made from state alone."""
        if stored is None and head.chain == "":
            return self._keeping.fresh(shard)
        if journal is None:
            raise LostTable(
                "the ledger of this replay was kept in memory only and is gone (a worker was started anew): run again"
            )
        self._keeping.check(shard, head)
        keeper = rebuild(self._keeping, shard, snapshot.read(), lambda keeper: journal.since(keeper, head))
        if keeper.head != head:
            raise LostTable(
                f"shard {shard}: its snapshot, and what it was given since, do not lead to the head: the state was "
                "damaged; start from the log, or from an older savepoint"
            )
        self._keeping.recovered(keeper)
        return keeper

    def _write_down(self, keeper: AnyKeeper, snapshot: Any) -> None:
        snapshot.clear()
        count("snapshots")
        keeper.snapshot_bytes = 0
        for chunk in keeper.chunks():
            snapshot.add(chunk)
            keeper.snapshot_bytes += len(chunk)


def rebuild(
    keeping: Keeping,
    shard: int,
    snapshot: Iterable[bytes],
    since: Callable[[AnyKeeper], Iterable[AnyBatch]],
) -> AnyKeeper:
    """The keeper that wrote a snapshot, with the batches since applied; what they put out is dropped."""
    sizes: list[int] = []
    chunks = _measured(snapshot, sizes)
    first = next(chunks, None)
    keeper = keeping.fresh(shard) if first is None else keeping.restored(shard, one_after_the_other((first,), chunks))
    keeper.snapshot_bytes = sum(sizes)
    for batch in since(keeper):
        for _ in keeper.take(batch):  # type: ignore[arg-type]
            pass
    return keeper


def _measured(chunks: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for chunk in chunks:
        sizes.append(len(chunk))
        yield chunk


@dataclass(frozen=True)
class KeepReplay:
    """The keeper of a replay. `resume` is where the one in the cache stands."""

    config: KeeperConfig
    resume: Head = field(default_factory=Head)

    def fresh(self, shard: int) -> Keeper:
        """A keeper that was given nothing yet."""
        return Keeper(self.config, Ledger(self.config.ledger), Head())

    def restored(self, shard: int, chunks: Iterable[bytes]) -> Keeper:
        """The keeper that wrote these chunks."""
        parts = iter(chunks)
        notes = next(parts)
        return Keeper.from_notes(self.config, Ledger.restore(parts), notes)

    def head(self, stored: bytes | None) -> Head:
        """A head as it is stored; of None, where it begins."""
        return Head.from_bytes(stored) if stored else self.resume

    def check(self, shard: int, head: AnyHead) -> None:
        """Its log is its input, and read once."""

    def recovered(self, keeper: AnyKeeper) -> None:
        """Nobody asks."""

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """It tells all in its reports."""


class KeepStream:
    """The keepers of a stream. It counts what they do."""

    def __init__(self, check: Callable[[int, LogHead], None] | None = None) -> None:
        """`check` refuses a head whose log is no longer the one that it is the head of."""
        self._check = check

    def fresh(self, shard: int) -> LogKeeper:
        """A keeper that was given nothing yet."""
        return LogKeeper(shard)

    def restored(self, shard: int, chunks: Iterable[bytes]) -> LogKeeper:
        """The keeper that wrote these chunks."""
        return LogKeeper.from_chunks(shard, chunks)

    def head(self, stored: bytes | None) -> LogHead:
        """A head as it is stored; of None, where it begins."""
        return LogHead.from_bytes(stored) if stored else LogHead()

    def check(self, shard: int, head: AnyHead) -> None:
        """Refuse to make a keeper anew whose log is not the one that it was made from."""
        assert isinstance(head, LogHead)
        if self._check is not None:
            self._check(shard, head)

    def recovered(self, keeper: AnyKeeper) -> None:
        """Count it. What it was given since its snapshot was counted when it was applied first."""
        assert isinstance(keeper, LogKeeper)
        count("ledgers_recovered")
        keeper.counts.clear()

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """Count what happened since the last time."""
        assert isinstance(keeper, LogKeeper)
        for name, number in keeper.counts.items():
            count(name, number)
        keeper.counts.clear()
        if was_told:
            for name, value in keeper.gauges().items():
                stands_at(f"{name}_shard_{keeper.shard}", value)
