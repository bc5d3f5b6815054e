"""Hosts that are busy: none of their pages is ordered before the time that they name.

After a visit that ends BUSY (429, or 503 with a Retry-After) the host of its page waits for the time that the answer
names. Without such a time, the host waits a quarter of an hour; twice as long after each answer in a row that comes
when the wait is over; a day at most. Answers during a wait were on their way: they do not double it. A later visit that
the host answers otherwise ends the wait, and the row. A redirect and a failure say nothing about it.

Hosts are known by hashes of their names. Their number stays small: a tick drops hosts whose last wait ended long ago,
and, if there are very many, the hosts whose wait ends first.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY
from opicflow.pipelines.ledger.entries import CrawlItems, Fate, Kind, Outcome
from opicflow.pipelines.ledger.ledger_state import HostWait
from opicflow.schemas.arrays import Bools, Bytes, Ids, Ints
from opicflow.schemas.crawl_events import LONGEST_RETRY_SECONDS
from opicflow.schemas.pages import SITE_BITS

FIRST_WAIT_SECONDS = 15 * 60
LONGEST_WAIT_SECONDS = SECONDS_PER_DAY
"""The longest wait of a host that names no time."""
KEPT_SECONDS = 2 * SECONDS_PER_DAY
"""Until so long after its wait, the next BUSY answer of a host is one more in a row."""
MOST_HOSTS = 1 << 16
"""The number of hosts that a tick keeps."""

_MOST_ANSWERS = 255
_BUSY, _VISIT, _TAKEN = int(Outcome.BUSY), int(Kind.VISIT), int(Fate.TAKEN)
_ENDS_A_WAIT = np.zeros(256, np.bool_)
_ENDS_A_WAIT[[Outcome.FETCHED, Outcome.ALIASED, Outcome.GONE, Outcome.UNCHANGED]] = True


class BusyHosts:
    """The waits of hosts, by the hashes of their names."""

    def __init__(self, waits: dict[int, HostWait], reader: Reader) -> None:
        self.waits = waits
        self._reader = reader
        self._sites: dict[int, int] = {}
        """The hash of the site of each host that waits, but for those of a snapshot."""

    def note(self, items: CrawlItems, fates: Bytes) -> None:
        """Note the visits among these rows, which were applied. Late ones and those without a time say nothing."""
        is_busy = (items.outcome == _BUSY) & (items.kind == _VISIT)
        if not self.waits and not is_busy.any():
            return
        says = (items.kind == _VISIT) & (fates == _TAKEN) & (items.time_ms > 0)
        rows = np.flatnonzero(says & (is_busy | _ENDS_A_WAIT[items.outcome]))
        sites = (items.page[rows] >> np.uint64(64 - SITE_BITS)).astype(np.int64)
        may_matter = self._have_waits(sites, is_busy[rows])
        rows, sites = rows[may_matter], sites[may_matter]
        hosts = self._reader.host_hashes(self._reader.slots_of(items.page[rows]))
        seconds = items.time_ms[rows] // 1000
        asked = np.where(items.modified_ms[rows] > 0, -(-items.modified_ms[rows] // 1000) - seconds, 0)
        columns = (hosts, sites, seconds, is_busy[rows], asked)
        for host, site, second, busy, wait in zip(*(one.tolist() for one in columns), strict=True):
            if busy and host:
                self.waits[host] = _next_wait(self.waits.get(host), second, wait)
                self._sites[host] = site
            elif host in self.waits and second > self.waits[host].since:
                self._drop(host)

    def _have_waits(self, sites: Ints, is_busy: Bools) -> Bools:
        """Return which pages are of sites with hosts that wait: only their hosts have to be looked up."""
        if len(self._sites) < len(self.waits):
            return np.ones(len(sites), np.bool_)
        has_waits = np.zeros(1 << SITE_BITS, np.bool_)
        has_waits[list(self._sites.values())] = True
        has_waits[sites[is_busy]] = True
        found: Bools = has_waits[sites]
        return found

    def _drop(self, host: int) -> None:
        del self.waits[host]
        self._sites.pop(host, None)

    def expire(self, second: int) -> None:
        """Drop the waits that ended long ago, and those that a wrong clock has put far into the future."""
        if not self.waits:
            return
        left = [
            (wait.until, host)
            for host, wait in self.waits.items()
            if wait.until + KEPT_SECONDS > second and wait.since <= second + SECONDS_PER_DAY
        ]
        if len(left) < len(self.waits) or len(left) > MOST_HOSTS:
            kept = {host for _, host in sorted(left)[-MOST_HOSTS:]}
            for host in self.waits.keys() - kept:
                self._drop(host)

    def waiting(self, second: int) -> tuple[Ids, Ints]:
        """The hosts that wait at a second, by rising hash, and until which second each does."""
        found = sorted((host, wait.until) for host, wait in self.waits.items() if wait.until > second)
        hosts, until = zip(*found, strict=True) if found else ((), ())
        return np.array(hosts, np.uint64), np.array(until, np.int64)


def _next_wait(before: HostWait | None, second: int, asked_seconds: int) -> HostWait:
    """Return the wait of a host after another BUSY answer; 0 seconds = the answer names no time."""
    answers = 1
    if before is not None:
        answers = before.answers if second < before.until else min(before.answers + 1, _MOST_ANSWERS)
    seconds = min(FIRST_WAIT_SECONDS << min(answers - 1, 16), LONGEST_WAIT_SECONDS)
    if asked_seconds > 0:
        seconds = min(asked_seconds, LONGEST_RETRY_SECONDS)
    if before is None:
        return HostWait(second, second + seconds, answers)
    return HostWait(max(second, before.since), max(second + seconds, before.until), answers)
