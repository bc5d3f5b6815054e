"""Keepers: ledgers with their heads, and those that this process keeps for a run. No Beam in here.

A head is how far the log of a ledger was applied, and a hash of that log. The process keeps the keepers of a run,
because a ledger is far too large to be read from state for each batch (docs/decisions/beam.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain as concatenated
from typing import Any, Protocol

from opicflow.pipelines.stages.log_head import LogHead, StoredSizes
from opicflow.pipelines.stages.outputs import Output
from opicflow.schemas.errors import UserError


class LostLedger(UserError):
    """A ledger is lost, or its log has no end: it was kept in memory only, or its state was damaged."""


class Keeper(Protocol):
    """A ledger and its head."""

    @property
    def sizes(self) -> StoredSizes:
        """The sizes of its snapshot and journal, which are counted here by whoever writes them."""

    @property
    def head(self) -> LogHead:
        """How far the log was applied. Two keepers of a log with equal heads are equal."""

    def take(self, batch: Any) -> Iterator[Output]:
        """Apply a batch. Yields outputs."""

    def chunks(self) -> Iterable[bytes]:
        """Return a snapshot of everything, in chunks."""


class KeeperFactory(Protocol):
    """Makes keepers of one kind."""

    def new(self, shard: int) -> Keeper:
        """Return a keeper before its first batch."""

    def restore(self, shard: int, chunks: Iterable[bytes]) -> Keeper:
        """Return the keeper that wrote these chunks."""


class Keepers:
    """The keepers of a run in this process, by shard."""

    def __init__(self) -> None:
        self._keepers: dict[int, Keeper] = {}

    def put(self, shard: int, keeper: Keeper) -> None:
        """Add a keeper, or replace the one of this shard."""
        self._keepers[shard] = keeper

    def take(self, shard: int) -> Keeper | None:
        """Remove a keeper and return it. An error then leaves no half-applied keeper behind."""
        return self._keepers.pop(shard, None)

    def peek(self, shard: int) -> Keeper | None:
        """Return a keeper whatever its head is, without removing it."""
        return self._keepers.get(shard)

    def close(self) -> None:
        """Drop all keepers."""
        self._keepers.clear()


def rebuild(
    factory: KeeperFactory, shard: int, snapshot: Iterable[bytes], batches_since: Callable[[Keeper], Iterable[Any]]
) -> Keeper:
    """Restore a keeper from its snapshot and apply the batches since then. Their outputs have left already."""
    sizes: list[int] = []
    chunks = _measured(snapshot, sizes)
    first = next(chunks, None)
    keeper = factory.new(shard) if first is None else factory.restore(shard, concatenated((first,), chunks))
    keeper.sizes.snapshot_bytes = sum(sizes)
    for batch in batches_since(keeper):
        for _ in keeper.take(batch):
            pass
    return keeper


def _measured(chunks: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for chunk in chunks:
        sizes.append(len(chunk))
        yield chunk
