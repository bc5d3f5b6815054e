"""Whether importance has settled: whether it rests on cash that arrived in time.

Under a window, importance is what pages earned in the last turns of the clock. Visits that are applied long before the
transfers of other shards arrive spend too little cash, so importance is wrong until the window has passed them by. That
happens when a stream begins with a backlog. With every cut a shard sends the second of its last tick, the time up to
which it has read the logs. Visits that this shard has applied since that second are ahead of the transfers.
"""

from __future__ import annotations

from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.cash.windows.window import turns
from opicflow.pipelines.ledger.config import LedgerConfig
from opicflow.pipelines.ledger.ledger_state import Times
from opicflow.pipelines.ledger.pages.room import Room

_MOST_VISITS_AHEAD = 0.1  # of each page: with more, importance converges several times more slowly
_TURNS_WITHOUT_WINDOW = 8.0
_PAGES_PER_READING, _MOST_READINGS = 256, 512


class Settling:
    """Notes visits that are ahead of the transfers of other shards. For history policies other than `certified`."""

    def __init__(self, config: LedgerConfig, room: Room, peers: Peers, times: Times) -> None:
        self._config = config
        self._room = room
        self._peers = peers
        self._times = times

    def note_tick(self, second: int) -> None:
        """Note how many visits were applied by this second, as long as transfers of that time can arrive."""
        counts, readings = self._room.book.counts[0], self._times.visits_by
        step = max(int(counts.pages) // _PAGES_PER_READING, 1)
        if not readings or int(counts.visits) - readings[-1][1] >= step:
            readings.append((second, int(counts.visits)))
        oldest = self._peers.oldest_second()
        while len(readings) > 1 and readings[1][0] <= oldest:
            readings.pop(0)
        if len(readings) > _MOST_READINGS:
            del readings[1::2]

    def note_visits(self) -> None:
        """Note the turn clock if visits are ahead of transfers."""
        book, oldest = self._room.book, self._peers.oldest_second()
        by_then = [visits for second, visits in self._times.visits_by if second <= oldest]
        ahead = int(book.counts[0].visits) - (by_then[-1] if by_then else 0)
        if ahead > _MOST_VISITS_AHEAD * int(book.counts[0].pages):
            self._times.ahead_theta = int(book.clocks[0].theta)

    def is_settled(self) -> bool:
        """Whether the clock has made all turns of the window since visits were last ahead of transfers."""
        clocks, since = self._room.book.clocks[0], self._times.ahead_theta
        has_window = hasattr(self._config.history, "window_turns")
        window = float(self._room.book.rules[0].window) if has_window else _TURNS_WITHOUT_WINDOW
        return turns(int(clocks.theta) - (int(clocks.theta_start) if since is None else since)) >= window
