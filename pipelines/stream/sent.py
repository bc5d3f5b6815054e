"""Up to which record of its log each ledger of a run in this process has sent its outputs, and they have arrived.

The stages that keep ledgers and that send outputs are one after the other in a process, in bundles: a ledger reports
its position behind the outputs of each batch, and when the bundle ends all outputs have arrived.
"""

from __future__ import annotations

import json
from threading import Condition

from opicflow.connectors.runs import kept
from opicflow.pipelines.stages.log_head import LogHead


class SentHeads:
    """The heads of the ledgers of a run, by shard, whose outputs have arrived."""

    def __init__(self) -> None:
        self._heads: dict[int, int] = {}
        self._changed = Condition()
        self._is_closed = False

    def note(self, shard: int, next_offset: int) -> None:
        """Note that all outputs before this offset have arrived."""
        with self._changed:
            self._heads[shard] = max(next_offset, self._heads.get(shard, 0))
            self._changed.notify_all()

    def cover(self, shard: int, next_offset: int) -> bool:
        """Whether all outputs before this offset have arrived."""
        return self._heads.get(shard, -1) >= next_offset

    def wait(self, shard: int, next_offset: int, seconds: float) -> bool:
        """Wait until they have. Returns whether they have in this time, and before the run has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.cover(shard, next_offset), seconds)
            return self.cover(shard, next_offset)

    def close(self) -> None:
        """End all waiting: nothing more arrives."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def may_go_on(run: str, shard: int, here: LogHead, stored: LogHead) -> bool:
    """Whether a ledger of this process may go on where the state of its stage has another head.

    It may if it is ahead of the state, and all that it has sent has arrived: nothing has to be sent again.
    """
    return here.next > stored.next and kept(run, SentHeads).cover(shard, here.next)


def applied(run: str, shard: int, next_offset: int) -> bytes:
    """Return the report of a ledger behind the outputs of a batch."""
    return json.dumps([run, shard, next_offset]).encode()


def note_sent(report: bytes) -> None:
    """Note the report of a ledger, when its outputs have arrived."""
    run, shard, next_offset = json.loads(report)
    kept(run, SentHeads).note(shard, next_offset)
