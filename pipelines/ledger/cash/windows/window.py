"""The turns of the clock in a window, and whether importance has settled: rests on cash that arrived in time.

Under a window, importance is what pages earned in the last turns of the clock. Visits that are applied long before the
transfers of other shards arrive spend too little cash, so importance is wrong until the window has passed them by. That
happens when a stream begins with a backlog. With every cut a shard sends the second of its last tick, the time up to
which it has read the logs. Visits that this shard has applied since that second are ahead of the transfers.
"""

from __future__ import annotations

from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, LedgerConfig
from opicflow.pipelines.ledger.ledger_state import Times
from opicflow.pipelines.ledger.pages.room import Room

_WRAP = 1 << 64
_FEWEST_TURNS_AT_FIRST = 4.0
_SHORTEST_TURNS = 2.0**-20
_MOST_VISITS_AHEAD = 0.1  # of each page: with more, importance converges several times more slowly
_TURNS_WITHOUT_WINDOW = 8.0
_PAGES_PER_READING, _MOST_READINGS = 256, 512


def window_turns(days: list[tuple[int, int]], window_days: float, second: int, theta: int, theta_start: int) -> float:
    """The turns that the clock made in the last `window_days` before `second`.

    `days` pairs seconds with readings of the clock, one a day. The list is brought up to date: the reading of a new
    day is appended, those that no window needs any more are removed.
    """
    if not days or second // SECONDS_PER_DAY > days[-1][0] // SECONDS_PER_DAY:
        days.append((second, theta))
    begins = second - window_days * SECONDS_PER_DAY
    while len(days) > 1 and days[1][0] <= begins:
        days.pop(0)
    if begins < days[0][0]:
        window = max(turns(theta - theta_start), _FEWEST_TURNS_AT_FIRST)
    else:
        (second_0, theta_0), (second_1, theta_1) = days[0], days[1] if len(days) > 1 else (second, theta)
        share = (begins - second_0) / (second_1 - second_0) if second_1 > second_0 else 0.0
        window = turns(theta - theta_0) - share * turns(theta_1 - theta_0)
    return max(window, _SHORTEST_TURNS)


def turns(units: int) -> float:
    """A difference of two readings of the clock (2^-40 turn, modulo 2^64) in turns."""
    return (units % _WRAP) / (1 << 40)


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
