"""Gives out the pages of a plan in their order: of a host one at a time, and none before its time. Reads no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

_IN_FLIGHT = _ANY_NUMBER = float("inf")


class QueuedPage(NamedTuple):
    """A page of a plan. Pages with a lower rank are given out first."""

    rank: float
    page: int
    host: int
    """A hash of its host."""
    not_before: float
    """The second from which it may be given out."""


class HostQueues:
    """A queue of pages for each host, and when the host may be fetched from again."""

    def __init__(self, one_each: bool = True) -> None:
        """`one_each`: a host has one page in flight at most."""
        self._one_each = one_each
        self._queues: dict[int, list[tuple[float, int]]] = {}
        self._ready: list[tuple[float, int]] = []
        """The rank of the first page and the host, of hosts that are free; some are no longer so."""
        self._resting: list[tuple[float, int]] = []
        self._free_at: dict[int, float] = {}
        """The second from which a host is free, if it is not; infinite while one of its pages is in flight."""
        self._later: list[tuple[float, float, int, int]] = []
        self._rank = 0.0
        """The rank of the page that was given out last."""
        self._most = _ANY_NUMBER
        self._room: dict[int, float] = {}
        """How many more pages of a host may be given out before the next call of `limit`, where it is not `_most`."""
        self._full: set[int] = set()
        """Hosts that would be offered if they had room."""

    @property
    def has_limit(self) -> bool:
        """Whether a host gives out only some of its pages at a time."""
        return self._one_each or self._most < _ANY_NUMBER

    def limit(self, most: int, rooms: Mapping[int, int]) -> None:
        """Until the next call give out at most so many pages of each host, or as many as `rooms` has for it."""
        self._most, self._room = most, dict(rooms)
        full, self._full = self._full, set()
        for host in full:
            self._offer(host)

    def fill(self, pages: Iterable[QueuedPage], now: float) -> None:
        """Replace all pages. The state of hosts stays."""
        self._queues, self._later, self._rank = {}, [], 0.0
        for rank, page, host, not_before in pages:
            if not_before > now:
                self._later.append((not_before, rank, page, host))
            else:
                self._queues.setdefault(host, []).append((rank, page))
        heapify(self._later)
        for queue in self._queues.values():
            heapify(queue)
        self._free_at = {host: second for host, second in self._free_at.items() if second > now}
        self._resting = [(second, host) for host, second in self._free_at.items() if second < _IN_FLIGHT]
        heapify(self._resting)
        self._ready.clear()
        self._full.clear()
        for host in self._queues:
            self._offer(host)

    def take(self, now: float) -> tuple[int, int] | None:
        """Return the page to give out now, and its host, which is in flight from here on; None if there is none."""
        self._wake(now)
        while self._ready:
            rank, host = heappop(self._ready)
            queue = self._queues.get(host)
            if not queue or queue[0][0] != rank or host in self._free_at:
                continue  # the host was offered again with another page
            if not self._has_room(host):
                self._full.add(host)
                continue
            _, page = heappop(queue)
            if not queue:
                del self._queues[host]
            if self._one_each:
                self._free_at[host] = _IN_FLIGHT
            if (room := self._room.get(host, self._most)) < _ANY_NUMBER:
                self._room[host] = room - 1
            self._offer(host)
            self._rank = max(rank, self._rank)
            return page, host
        return None

    def rest(self, host: int, until: float) -> None:
        """Let a host rest until a second. Its page that was in flight no longer is."""
        if host in self._room:
            self._room[host] += 1
        if self._one_each:
            self._free_at.pop(host, None)
        self.pause(host, until)

    def pause(self, host: int, until: float) -> None:
        """Give out no page of a host before a second; of a host that has one page at a time, until it rests."""
        if host not in self._free_at or self._free_at[host] < until:
            self._free_at[host] = until
            heappush(self._resting, (until, host))

    def put_back(self, seconds: float) -> None:
        """Let all hosts be free, and pages be given out, so many seconds earlier: the clock was put back."""
        self._free_at = {host: second - seconds for host, second in self._free_at.items()}
        self._resting = [(second - seconds, host) for second, host in self._resting]
        self._later = [(second - seconds, rank, page, host) for second, rank, page, host in self._later]

    def later(self) -> dict[int, float]:
        """Return the pages whose time has not come, and the second from which each may be given out."""
        return {page: second for second, _, page, _ in self._later}

    def is_in_flight(self, host: int) -> bool:
        """Whether a page of a host was given out, and the host was not let rest since then."""
        return self._free_at.get(host) == _IN_FLIGHT

    @property
    def is_one_awaited(self) -> bool:
        """Whether a page waits only until its host has room, or until the one in flight has come."""
        return any(self._free_at.get(host, _IN_FLIGHT) == _IN_FLIGHT for host in self._queues)

    def next_second(self, now: float) -> float | None:
        """Return the second from which `take` may return a page if nothing happens; None if it never may."""
        self._wake(now)
        while self._resting and not self._is_awaited(*self._resting[0]):
            heappop(self._resting)
        if any(host in self._queues and host not in self._free_at for _, host in self._ready):
            return now
        found = [heap[0][0] for heap in (self._resting, self._later) if heap]
        return min(found) if found else None

    def _is_awaited(self, second: float, host: int) -> bool:
        return host in self._queues and self._free_at.get(host) == second

    def _wake(self, now: float) -> None:
        """Queue the pages whose time has come, and offer the hosts that have rested."""
        while self._later and self._later[0][0] <= now:
            _, rank, page, host = heappop(self._later)
            queue = self._queues.setdefault(host, [])
            heappush(queue, (min(rank, self._rank), page))  # it takes its turn now
            if (free_at := self._free_at.get(host, _IN_FLIGHT)) < _IN_FLIGHT:
                heappush(self._resting, (free_at, host))  # nothing waited for the end of its rest before
            self._offer(host)
        while self._resting and self._resting[0][0] <= now:
            second, host = heappop(self._resting)
            if self._free_at.get(host) == second:
                del self._free_at[host]
                self._offer(host)

    def _has_room(self, host: int) -> bool:
        return self._room.get(host, self._most) > 0

    def _offer(self, host: int) -> None:
        if host not in self._queues or host in self._free_at:
            return
        if not self._has_room(host):
            self._full.add(host)
        else:
            heappush(self._ready, (self._queues[host][0][0], host))
