"""The pace of publications: of movers, and of changes to which somebody subscribed. No ledger in here.

A *mover* is a page whose newest record is no longer true: its importance or its score has moved. All pages are compared
with their newest records every ten seconds. While there are visits, an *allowance* limits the movers: it grows with
visits and with time, and is never more than all pages. At rest nothing limits them but the number at a tick, so a
minute later every newest record is true (docs/decisions/log-entries.md).

A change is published at once, unless the page had such a record less than a minute before: then it waits, together with
those that come meanwhile, until a later change or a tick a minute after that record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from opicflow.schemas.plain_values import Natural

TRUE_WITHIN = 0.01
"""A record whose importance and score are off by no more than this share is true."""
_LONG_TICK_SECONDS = 15
"""A quiet log has a tick in thirty seconds, which counts as three: the second one begins the rest."""
TICKS_TO_REST = 5
"""A shard is at rest after so many ticks without a visit. Not seconds: the first tick after an outage is late."""
COMPARE_SECONDS = 10
"""Between two comparisons of all pages. A backlog moves most pages every second."""
MOVERS_A_SECOND = 2_000
"""The most movers in a second. A ledger that publishes most of its pages at once delays all that comes after."""
LEAST_SHARE = 32
"""At least one in so many pages, even if that is more: so that large ledgers end within a minute, too."""
_REFILL_SECONDS = 3_600
"""In this time the allowance grows by all pages."""
LEAST_MS_BETWEEN_CHANGES = 60_000
"""Between two records of changes of a page, by the times of visits and of ticks."""


@dataclass
class MoverPace:
    """A pure function of the ticks of a log and of the numbers of visits and pages at each."""

    tick_second: int = -1
    visits: Natural = 0
    """The number of visits at the last tick."""
    ticks_without_visits: Natural = 0
    elapsed: Natural = 1
    """The seconds between the last two ticks."""
    allowance: float = 0.0
    compared_second: int = -1
    is_going_on: bool = False
    """Whether the last comparison left movers because there were too many for a tick: the next tick goes on."""
    off: Natural = 0
    """The number of pages whose newest record was not true after the last comparison."""

    def tick(self, second: int, visits: int, pages: int, records_per_visit: float) -> None:
        """Note a tick, by which so many visits were applied in all."""
        self.elapsed = max(second - self.tick_second, 1) if self.tick_second >= 0 else 1
        refill = pages * self.elapsed / _REFILL_SECONDS if self.tick_second >= 0 else 0.0
        new = visits - self.visits
        ticks = 1 + min(self.elapsed // _LONG_TICK_SECONDS, TICKS_TO_REST // 2)
        self.ticks_without_visits = 0 if new else self.ticks_without_visits + ticks
        self.allowance = min(self.allowance + records_per_visit * new + refill, float(pages))
        self.tick_second, self.visits = second, visits

    @property
    def is_at_rest(self) -> bool:
        """Whether there were no visits for some ticks."""
        return self.ticks_without_visits >= TICKS_TO_REST

    @property
    def is_due(self) -> bool:
        """Whether pages are to be compared with their newest records at this tick."""
        return self.is_going_on or self.tick_second - self.compared_second >= COMPARE_SECONDS

    def most(self, pages: int) -> int:
        """Return how many movers may be published at this tick."""
        at_once = self._at_once(pages)
        return at_once if self.is_at_rest else min(at_once, int(self.allowance))

    def note(self, published: int, off: int, pages: int) -> None:
        """Note how many movers were published at this tick, and how many newest records are still not true."""
        self.allowance = max(self.allowance - published, 0.0)
        self.is_going_on = published == self._at_once(pages)
        self.compared_second, self.off = self.tick_second, off

    def publish_all(self, pages: int) -> None:
        """Let all pages be published again, as fast as at rest: none has a record any more."""
        self.allowance, self.is_going_on, self.off = float(pages), True, pages

    def _at_once(self, pages: int) -> int:
        return max(MOVERS_A_SECOND, pages // LEAST_SHARE) * self.elapsed


class DueChange(NamedTuple):
    """A change of a page, or several as one: the digests before the first and after the last, and the last's time."""

    page: int
    time_ms: int
    digest_before: int
    digest: int
    changes: int = 1


class _LastChange(NamedTuple):
    """When the next record of a page may be published, and the changes that wait for that; 0 = none."""

    next_ms: Natural
    changes: Natural = 0
    time_ms: Natural = 0
    digest_before: Natural = 0
    digest: Natural = 0


@dataclass
class ChangePace:
    """A pure function of the changes and ticks of a log. It keeps the pages that had a record in the last minute."""

    last: dict[str, _LastChange] = field(default_factory=dict)
    """By the digits of the page id."""

    def take(self, changes: Iterable[DueChange]) -> list[DueChange]:
        """Note changes in the order of the log. Returns those that are due, each with the ones that waited for it."""
        due = []
        for change in changes:
            key = f"{change.page:016x}"
            last = self.last.get(key, _LastChange(0))
            before = last.digest_before if last.changes else change.digest_before
            if change.time_ms < last.next_ms:
                self.last[key] = _LastChange(last.next_ms, last.changes + 1, change.time_ms, before, change.digest)
            else:
                self.last[key] = _LastChange(change.time_ms + LEAST_MS_BETWEEN_CHANGES)
                due.append(change._replace(digest_before=before, changes=last.changes + 1))
        return due

    def tick(self, second: int) -> list[DueChange]:
        """Return the changes that have waited for long enough at a tick, by page id."""
        due = []
        for key, last in sorted(self.last.items()):
            if last.next_ms > 1000 * second:
                continue
            if last.changes:
                due.append(DueChange(int(key, 16), last.time_ms, last.digest_before, last.digest, last.changes))
                self.last[key] = _LastChange(1000 * second + LEAST_MS_BETWEEN_CHANGES)
            else:
                del self.last[key]
        return due
