"""KeepLedger: the stage that keeps the ledger of a shard in keyed state.

A keeper of the process is used only if its head equals the head in state. Otherwise it is rebuilt from a snapshot and a
journal of the batches since. A replay in one process has no journal: if its ledger is lost, it is an error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import (
    BagRuntimeState,
    BagStateSpec,
    ReadModifyWriteRuntimeState,
    ReadModifyWriteStateSpec,
    StateSpec,
)

from opicflow.connectors.runs import kept
from opicflow.pipelines.stages.keepers import Keeper, KeeperFactory, Keepers, LostLedger, rebuild
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.metrics import count
from opicflow.pipelines.stages.outputs import Output

_LEAST_JOURNAL_BYTES = 4 << 20


def state_param(spec: StateSpec) -> Any:
    """Declare a parameter that Beam fills with state: it finds the declaration as the default."""
    return beam.DoFn.StateParam(spec)


class Journal(Protocol):
    """The batches since the last snapshot of a keeper."""

    def add(self, keeper: Any, batch: Any) -> None:
        """Add a batch before the keeper applies it."""

    def is_long(self, keeper: Any) -> bool:
        """Whether it is time for a new snapshot."""

    def clear(self, keeper: Any) -> None:
        """Remove all batches, as there is a new snapshot."""

    def since(self, keeper: Any, head: Any) -> Iterable[Any]:
        """Return the batches between the snapshot of a keeper and a head."""


class JournalInState:
    """A journal in a bag of Beam's state."""

    def __init__(self, bag: BagRuntimeState) -> None:
        self._bag = bag

    def add(self, keeper: Keeper, batch: bytes) -> None:
        """Add a batch before the keeper applies it."""
        self._bag.add(batch)
        keeper.sizes.journal_bytes += len(batch)

    def is_long(self, keeper: Keeper) -> bool:
        """Whether the journal is larger than half of the snapshot.

        So at most three times the bytes of the batches are written, and half a snapshot more is read.
        """
        return keeper.sizes.journal_bytes > max(keeper.sizes.snapshot_bytes // 2, _LEAST_JOURNAL_BYTES)

    def clear(self, keeper: Keeper) -> None:
        """Remove all batches, as there is a new snapshot."""
        self._bag.clear()
        keeper.sizes.journal_bytes = 0

    def since(self, keeper: Keeper, head: LogHead) -> Iterable[bytes]:
        """Yield all batches: state has none behind the head."""
        for batch in self._bag.read():
            keeper.sizes.journal_bytes += len(batch)
            yield batch


class KeepLedger(beam.DoFn):
    """Applies batches, keyed by shard, to ledgers. Yields the outputs of the keepers."""

    HEAD = state_param(ReadModifyWriteStateSpec("head", BytesCoder()))
    SNAPSHOT = state_param(BagStateSpec("snapshot", BytesCoder()))
    JOURNAL = state_param(BagStateSpec("journal", BytesCoder()))

    def __init__(self, factory: KeeperFactory, run: str, first: LogHead | None = None) -> None:
        """Keep ledgers in this process for `run`, with snapshots and a journal in state.

        `first`: this process keeps the ledger, and has it with that head already if an earlier pipeline of the run has
        left it. Then neither snapshots nor a journal are written.
        """
        self._factory = factory
        self._run = run
        self._first = first

    def process(
        self,
        element: tuple[int, bytes],
        head_state: ReadModifyWriteRuntimeState = HEAD,
        snapshot: BagRuntimeState = SNAPSHOT,
        journal: BagRuntimeState = JOURNAL,
    ) -> Iterator[Output]:
        """Apply one batch."""
        shard, data = element
        yield from self.keep(
            shard, data, head_state, snapshot, JournalInState(journal) if self._first is None else None
        )

    def keep(
        self,
        shard: int,
        batch: Any,
        head_state: ReadModifyWriteRuntimeState,
        snapshot: BagRuntimeState,
        journal: Journal | None,
    ) -> Generator[Output, None, Keeper]:
        """Apply one batch to the ledger of a shard. Yields its outputs and returns its keeper."""
        stored = head_state.read()
        head = LogHead.from_bytes(stored) if stored or self._first is None else self._first
        keepers = kept(self._run, Keepers)
        keeper = keepers.take(shard)
        if keeper is None or not self.is_usable(keeper, head):
            if stored is None and head.chain == "":
                keeper = self._factory.new(shard)
            else:
                keeper = self.recover(shard, head, snapshot, journal)
        if journal is not None:
            journal.add(keeper, batch)
        yield from keeper.take(batch)
        head_state.write(keeper.head.to_bytes())
        if journal is not None and journal.is_long(keeper):
            self.write_snapshot(keeper, snapshot, journal)
        keepers.put(shard, keeper)
        return keeper

    def is_usable(self, keeper: Keeper, head: LogHead) -> bool:
        """Whether a keeper of the process can go on from the head in state."""
        return bool(keeper.head == head)

    def write_snapshot(self, keeper: Keeper, snapshot: BagRuntimeState, journal: Journal) -> None:
        """Write a snapshot into state, and begin a new journal."""
        snapshot.clear()
        count("snapshots")
        keeper.sizes.snapshot_bytes = 0
        for chunk in keeper.chunks():
            snapshot.add(chunk)
            keeper.sizes.snapshot_bytes += len(chunk)
        journal.clear(keeper)

    def recover(self, shard: int, head: LogHead, snapshot: BagRuntimeState, journal: Journal | None) -> Keeper:
        """Rebuild the keeper with this head from state. Raises `LostLedger` if state does not lead to the head."""
        if journal is None:
            raise LostLedger(
                "the ledger of this replay was kept in memory only and is lost (a worker was restarted): run again"
            )
        keeper = rebuild(self._factory, shard, snapshot.read(), lambda keeper: journal.since(keeper, head))
        if keeper.head != head:
            raise LostLedger(
                f"shard {shard}: its snapshot and the batches since then do not lead to the head: the state was "
                "damaged; start from the log, or from an older savepoint"
            )
        return keeper
