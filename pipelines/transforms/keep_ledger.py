"""KeepLedger: the stage that holds a shard's ledger in keyed state, around the `Keeper`.

A bounded replay keeps its table in memory only and hands it from one pipeline to the next by its head; a table that is
gone is an error. With `durable` the state is whole: a snapshot, and a journal of the batches since. In both cases the
table itself lies in a cache of the process under the hash of all batches that made it, and counts only if that hash is
the head's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from opicflow.pipelines.ledger import Ledger
from opicflow.pipelines.transforms.keeping import Head, Keeper, KeeperConfig, Output

_LEAST_JOURNAL_BYTES = 4 << 20


class LostTable(Exception):
    """A table that was kept in memory only is gone. Run again."""


class Tables:
    """The keepers of this process, each under its run and shard, and usable only at the head it stands at."""

    def __init__(self) -> None:
        """There are none."""
        self._keepers: dict[tuple[str, int], Keeper] = {}
        self._lock = Lock()

    def put(self, run: str, shard: int, keeper: Keeper) -> None:
        """Keep it until it is taken or let go."""
        with self._lock:
            self._keepers[run, shard] = keeper

    def take(self, run: str, shard: int, chain: str) -> Keeper | None:
        """The keeper, if it stands at this place. It is out of the cache then: an error leaves no dirty one behind."""
        with self._lock:
            keeper = self._keepers.pop((run, shard), None)
        return keeper if keeper is not None and keeper.head.chain == chain else None

    def look(self, run: str, shard: int) -> Keeper | None:
        """The keeper, wherever it stands; it stays."""
        return self._keepers.get((run, shard))

    def let_go(self, run: str) -> None:
        """Forget everything of a run."""
        with self._lock:
            for key in [key for key in self._keepers if key[0] == run]:
                del self._keepers[key]


TABLES = Tables()


class KeepLedger(beam.DoFn):
    """Batches in, keyed by shard; outputs out."""

    HEAD = ReadModifyWriteStateSpec("head", BytesCoder())
    SNAPSHOT = BagStateSpec("snapshot", BytesCoder())
    JOURNAL = BagStateSpec("journal", BytesCoder())

    def __init__(self, config: KeeperConfig, run: str, resume: Head | None = None, durable: bool = False) -> None:
        """`run` tells this replay's tables from others'; `resume` is where the table in the cache stands."""
        self._config = config
        self._run = run
        self._resume = resume or Head()
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
        stored = head_state.read()
        head = Head.from_bytes(stored) if stored else self._resume
        keeper = TABLES.take(self._run, shard, head.chain)
        if keeper is None:
            keeper = self._rebuilt(head, snapshot.read, journal.read)
        if self._durable:
            journal.add(data)
        yield from keeper.take(data)
        head_state.write(keeper.head.to_bytes())
        if self._durable:
            self._shorten(keeper, snapshot, journal, len(data))
        TABLES.put(self._run, shard, keeper)

    def _rebuilt(self, head: Head, snapshot: Any, journal: Any) -> Keeper:
        """The keeper at this head, made from state alone."""
        if head.chain == "":
            return Keeper(self._config, Ledger(self._config.ledger), Head())
        if not self._durable:
            raise LostTable(
                "the ledger of this replay was kept in memory only and is gone (a worker was started anew): run again"
            )
        keeper = rebuild(self._config, snapshot(), journal())
        if keeper.head.chain != head.chain:
            raise LostTable("snapshot and journal do not lead to the head: the state was damaged; start from the log")
        return keeper

    def _shorten(self, keeper: Keeper, snapshot: Any, journal: Any, added_bytes: int) -> None:
        """Write a new snapshot once the journal outgrows half of the old one."""
        keeper.journal_bytes += added_bytes
        if keeper.journal_bytes <= max(keeper.snapshot_bytes // 2, _LEAST_JOURNAL_BYTES):
            return
        snapshot.clear()
        journal.clear()
        keeper.snapshot_bytes, keeper.journal_bytes = 0, 0
        for chunk in to_chunks(keeper):
            snapshot.add(chunk)
            keeper.snapshot_bytes += len(chunk)


def to_chunks(keeper: Keeper) -> list[bytes]:
    """A keeper as chunks of bytes: its head and notes, batches that wait, and the ledger's snapshot."""
    return [keeper.notes(), *(chunk.data for chunk in keeper.ledger.snapshot())]


def rebuild(config: KeeperConfig, snapshot: Iterable[bytes], journal: Iterable[bytes]) -> Keeper:
    """The keeper that `to_chunks` wrote, with the batches of the journal applied; what they put out is dropped."""
    chunks = iter(snapshot)
    notes = next(chunks, None)
    if notes is None:
        keeper = Keeper(config, Ledger(config.ledger), Head())
    else:
        keeper = Keeper.from_notes(config, Ledger.restore(chunks), notes)
    for data in journal:
        for _ in keeper.take(data):
            pass
        keeper.journal_bytes += len(data)
    return keeper
