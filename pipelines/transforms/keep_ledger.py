"""KeepLedger: the stage that holds a shard's ledger in keyed state, around the `Keeper`.

A bounded replay keeps its table in memory only and hands it from one pipeline to the next by its head; a table that is
gone is an error. With `durable` the state is whole: a snapshot, and a journal of the batches since. In both cases the
table itself lies in a cache of the process under the hash of all batches that made it, and counts only if that hash is
the head's.
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
from opicflow.pipelines.transforms.keeping import Head, Keeper, KeeperConfig, Output
from opicflow.pipelines.transforms.log_keeping import LogHead, LogKeeper
from opicflow.pipelines.transforms.metrics import count, stands_at

AnyKeeper = Keeper | LogKeeper

_LEAST_JOURNAL_BYTES = 4 << 20


class LostTable(Exception):
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

    def take(self, run: str, shard: int, chain: str) -> AnyKeeper | None:
        """The keeper, if it stands at this place. It is out of the cache then: an error leaves no dirty one behind."""
        with self._lock:
            keeper = self._keepers.pop((run, shard), None)
        return keeper if keeper is not None and keeper.head.chain == chain else None

    def look(self, run: str, shard: int) -> AnyKeeper | None:
        """The keeper, wherever it stands; it stays."""
        return self._keepers.get((run, shard))

    def let_go(self, run: str) -> None:
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

    def chain(self, head: bytes | None) -> str:
        """The chain hash of a head as bytes; of none, where it begins."""

    def check(self, keeper: AnyKeeper) -> None:
        """Refuse a keeper, made anew from state, whose log is not the one it was made from."""

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """Count what happened. `was_told`: the keeper has just told how it stands."""


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
        chain = self._keeping.chain(head_state.read())
        keeper = TABLES.take(self._run, shard, chain)
        if keeper is None:
            keeper = self._rebuilt(shard, chain, snapshot.read, journal.read)
        if self._durable:
            journal.add(data)
        was_told = False
        for output in keeper.take(data):
            was_told |= output.name == "audit"
            yield output
        head_state.write(keeper.head.to_bytes())
        if self._durable:
            self._shorten(keeper, snapshot, journal, len(data))
        self._keeping.tell(keeper, was_told)
        TABLES.put(self._run, shard, keeper)

    def _rebuilt(self, shard: int, chain: str, snapshot: Any, journal: Any) -> AnyKeeper:
        """The keeper at this head, made from state alone."""
        if chain == "":
            return self._keeping.fresh(shard)
        if not self._durable:
            raise LostTable(
                "the ledger of this replay was kept in memory only and is gone (a worker was started anew): run again"
            )
        keeper = rebuild(self._keeping, shard, snapshot(), journal())
        if keeper.head.chain != chain:
            raise LostTable(
                f"shard {shard}: snapshot and journal do not lead to the head: the state was damaged; start from the "
                "log, or from an older savepoint"
            )
        self._keeping.check(keeper)
        return keeper

    def _shorten(self, keeper: AnyKeeper, snapshot: Any, journal: Any, added_bytes: int) -> None:
        """Write a new snapshot once the journal outgrows half of the old one."""
        keeper.journal_bytes += added_bytes
        if keeper.journal_bytes <= max(keeper.snapshot_bytes // 2, _LEAST_JOURNAL_BYTES):
            return
        snapshot.clear()
        journal.clear()
        keeper.snapshot_bytes, keeper.journal_bytes = 0, 0
        for chunk in keeper.chunks():
            snapshot.add(chunk)
            keeper.snapshot_bytes += len(chunk)


def rebuild(keeping: Keeping, shard: int, snapshot: Iterable[bytes], journal: Iterable[bytes]) -> AnyKeeper:
    """The keeper that wrote a snapshot, with the batches of the journal applied; what they put out is dropped."""
    sizes: list[int] = []
    chunks = _measured(snapshot, sizes)
    first = next(chunks, None)
    keeper = keeping.fresh(shard) if first is None else keeping.restored(shard, one_after_the_other((first,), chunks))
    for data in journal:
        for _ in keeper.take(data):
            pass
        keeper.journal_bytes += len(data)
    keeper.snapshot_bytes = sum(sizes)
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

    def chain(self, head: bytes | None) -> str:
        """The chain hash of a head as bytes; of none, where it begins."""
        return (Head.from_bytes(head) if head else self.resume).chain

    def check(self, keeper: AnyKeeper) -> None:
        """Its log is its input, and read once."""

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """It tells all in its reports."""


class KeepStream:
    """The keepers of a stream. It counts what they do."""

    def __init__(self, check: Callable[[LogKeeper], None] | None = None) -> None:
        """`check` refuses a keeper whose log is no longer the one it was made from."""
        self._check = check

    def fresh(self, shard: int) -> LogKeeper:
        """A keeper that was given nothing yet."""
        return LogKeeper(shard)

    def restored(self, shard: int, chunks: Iterable[bytes]) -> LogKeeper:
        """The keeper that wrote these chunks."""
        return LogKeeper.from_chunks(shard, chunks)

    def chain(self, head: bytes | None) -> str:
        """The chain hash of a head as bytes; of none, where it begins."""
        return LogHead.from_bytes(head).chain if head else ""

    def check(self, keeper: AnyKeeper) -> None:
        """Refuse a keeper whose log is not the one it was made from."""
        assert isinstance(keeper, LogKeeper)
        count("ledgers_recovered")
        keeper.counts.clear()  # what its journal did was counted when it was done
        if self._check is not None:
            self._check(keeper)

    def tell(self, keeper: AnyKeeper, was_told: bool) -> None:
        """Count what happened since the last time."""
        assert isinstance(keeper, LogKeeper)
        for name, number in keeper.counts.items():
            count(name, number)
        keeper.counts.clear()
        if was_told:
            for name, value in keeper.gauges().items():
                stands_at(f"{name}_shard_{keeper.shard}", value)
