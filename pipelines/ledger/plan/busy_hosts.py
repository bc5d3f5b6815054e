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

from opicflow.pipelines.ledger.config import SECONDS_PER_DAY
from opicflow.pipelines.ledger.entries import Fate, KernelItems, Kind, Outcome
from opicflow.pipelines.ledger.ledger_state import HostWait
from opicflow.pipelines.ledger.pages.index import find
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.pages.url_arena import host_of
from opicflow.schemas.arrays import Bools, Ids, Int, Ints, Words
from opicflow.schemas.crawl_events import LONGEST_RETRY_SECONDS
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.pages import SITE_BITS
from opicflow.schemas.shards import Shard

FIRST_WAIT_SECONDS = 15 * 60
LONGEST_WAIT_SECONDS = SECONDS_PER_DAY
"""The longest wait of a host that names no time."""
KEPT_SECONDS = 2 * SECONDS_PER_DAY
"""Until so long after its wait, the next BUSY answer of a host is one more in a row."""
MOST_HOSTS = 1 << 16
"""The number of hosts that a tick keeps."""

_MOST_ANSWERS = 255
_BUSY, _VISIT, _TAKEN = int(Outcome.BUSY), int(Kind.VISIT), int(Fate.TAKEN)
_FETCHED, _ALIASED = int(Outcome.FETCHED), int(Outcome.ALIASED)
_GONE, _UNCHANGED = int(Outcome.GONE), int(Outcome.UNCHANGED)
_SITE = np.uint64(64 - SITE_BITS)
_LAST_BITS = np.uint64((1 << SITE_BITS) - 1)


class BusyHosts:
    """The waits of hosts, by the hashes of their names."""

    def __init__(self, waits: dict[int, HostWait], room: Room, shard: Shard) -> None:
        self.waits = waits
        self._room = room
        self._shard = shard
        self._sites: dict[int, int] = {}
        """The hash of the site of each host that waits, but for those of a snapshot."""
        self._site_waits = np.full(1 << SITE_BITS, bool(waits))
        """Whether hosts of a site may wait: the hosts of others need not be looked up."""
        self._host_waits = np.full(1 << SITE_BITS, bool(waits))
        """Whether hosts may wait whose hashes end in the same bits."""
        self._has_dropped = False
        """Whether waits were dropped since hosts and sites were marked."""
        self._second = self._next_second = -1
        """The last tick, and until when no wait that is there now can be dropped."""

    def note(self, items: KernelItems, first: int, last: int) -> None:
        """Note the visits among the rows [first, last), which were applied.

        Late ones and those without a time say nothing.
        """
        table, book, key = self._room.table, self._room.book, self._shard.page_ids.rules.key
        marks = self._site_waits, self._host_waits
        rows, hosts = np.empty(last - first, np.int64), np.empty(last - first, np.uint64)
        found = int(find_answers(table, book, key, items, first, last, *marks, rows, hosts))
        if not found:
            return
        rows, hosts = rows[:found], hosts[:found]
        seconds, modified = items.time_ms[rows] // 1000, items.modified_ms[rows]
        asked = np.where(modified > 0, -(-modified // 1000) - seconds, 0)
        sites = items.page[rows].view(np.uint64) >> _SITE
        columns = (hosts, sites, seconds, items.outcome[rows] == _BUSY, asked)
        for host, site, second, busy, wait in zip(*(one.tolist() for one in columns), strict=True):
            if busy:
                self.waits[host] = noted = _next_wait(self.waits.get(host), second, wait)
                self._sites[host] = site
                is_ahead = noted.since > self._second + SECONDS_PER_DAY
                self._next_second = -1 if is_ahead else min(self._next_second, noted.until + KEPT_SECONDS)
            elif host in self.waits and second > self.waits[host].since:
                self._drop(host)

    def _drop(self, host: int) -> None:
        del self.waits[host]
        self._sites.pop(host, None)
        self._has_dropped = True

    def expire(self, second: int) -> None:
        """Drop the waits that ended long ago, and those that a wrong clock has put far into the future."""
        self._second = second
        if second >= self._next_second or len(self.waits) > MOST_HOSTS:
            left = [
                (wait.until, host)
                for host, wait in self.waits.items()
                if wait.until + KEPT_SECONDS > second and wait.since <= second + SECONDS_PER_DAY
            ]
            kept = sorted(left)[-MOST_HOSTS:]
            for host in self.waits.keys() - {host for _, host in kept}:
                self._drop(host)
            self._next_second = kept[0][0] + KEPT_SECONDS if kept else second + KEPT_SECONDS
        if self._has_dropped:
            self._mark()

    def _mark(self) -> None:
        """Mark the hosts that wait, and their sites if all are known."""
        self._has_dropped = False
        self._host_waits[:] = False
        self._host_waits[np.fromiter(self.waits, np.uint64, len(self.waits)) & _LAST_BITS] = True
        if len(self._sites) == len(self.waits):
            self._site_waits[:] = False
            self._site_waits[list(self._sites.values())] = True

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


@lean_kernel
def find_answers(
    table: Table,
    book: Book,
    key: Words,
    items: KernelItems,
    first: Int,
    last: Int,
    site_waits: Bools,
    host_waits: Bools,
    rows: Ints,
    hosts: Ids,
) -> Int:
    """Find the visits that may begin or end a wait, and their hosts; mark busy hosts. Returns how many were found."""
    found: Int = np.int64(0)
    for row in range(first, last):
        if items.kind[row] != _VISIT or items.fates[row] != _TAKEN or items.time_ms[row] <= 0:
            continue
        outcome, site = items.outcome[row], np.uint64(items.page[row]) >> _SITE
        is_busy = outcome == _BUSY
        if not is_busy and (not site_waits[site] or outcome not in (_FETCHED, _ALIASED, _GONE, _UNCHANGED)):
            continue
        host = host_of(table, book, key, find(table.id_index, table.id_index_old, table.hot, items.page[row]))
        if is_busy:
            site_waits[site] = host_waits[host & _LAST_BITS] = True
        if host != 0 and host_waits[host & _LAST_BITS]:
            rows[found], hosts[found] = row, host
            found += 1
    return found
