"""Up to which record of its log each ledger of this process has sent its outputs, and they have arrived.

The stages that keep ledgers and that send outputs are one after the other in a process, in bundles: a ledger reports
its position behind the outputs of each batch, and when the bundle ends all outputs have arrived.
"""

from __future__ import annotations

import json
from threading import Condition

from opicflow.pipelines.stream.log_head import LogHead


class SentHeads:
    """The heads of ledgers, by run and shard, whose outputs have arrived."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, int], int] = {}
        self._changed = Condition()

    def note(self, run: str, shard: int, next_offset: int) -> None:
        """Note that all outputs before this offset have arrived."""
        with self._changed:
            self._heads[run, shard] = max(next_offset, self._heads.get((run, shard), 0))
            self._changed.notify_all()

    def cover(self, run: str, shard: int, next_offset: int) -> bool:
        """Whether all outputs before this offset have arrived."""
        return self._heads.get((run, shard), -1) >= next_offset

    def wait(self, run: str, shard: int, next_offset: int, seconds: float) -> bool:
        """Wait until they have. Returns whether they have in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.cover(run, shard, next_offset), seconds)


SENT = SentHeads()


def may_go_on(run: str, shard: int, kept: LogHead, stored: LogHead) -> bool:
    """Whether a ledger of this process may go on where the state of its stage has another head.

    It may if it is ahead of the state, and all that it has sent has arrived: nothing has to be sent again.
    """
    return kept.next > stored.next and SENT.cover(run, shard, kept.next)


def applied(run: str, shard: int, next_offset: int) -> bytes:
    """Return the report of a ledger behind the outputs of a batch."""
    return json.dumps([run, shard, next_offset]).encode()


def note_sent(report: bytes) -> None:
    """Note the report of a ledger, when its outputs have arrived."""
    SENT.note(*json.loads(report))
