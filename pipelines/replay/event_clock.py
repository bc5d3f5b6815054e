"""The clock of a replay: what it adds to the log between the rows of crawl events. No Beam in here.

Time passes with the events: a tick comes before each new hour of their time, and policies when the crawl reaches their
times. The rows between are divided where a sample or a publication is due. So the log does not depend on the batches in
which events arrive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, Kind, LogPosition
from opicflow.pipelines.ledger.entry_rows import find_hours
from opicflow.schemas.arrays import Bools, Ints, for_kernel
from opicflow.schemas.policy_json import policy_to_json
from opicflow.schemas.records import Policy

_VISIT = int(Kind.VISIT)
_SECONDS_PER_HOUR = 3600
_MANY = 1 << 62


Entry = TypeVar("Entry", bound=CrawlEntry)


class Slice(NamedTuple):
    """Rows [first, last) of a batch, after a tick unless its second is None."""

    tick_second: int | None
    first: int
    last: int


def ticks_in(items: CrawlItems, tick_second: int) -> tuple[tuple[int, int], ...]:
    """Return the rows at which an hour of event time begins, and the second of the tick before each of them.

    Time never goes back.
    """
    rows, hour = np.empty((2, len(items)), np.int64)
    before = max(tick_second // _SECONDS_PER_HOUR, 0)
    found = int(find_hours(for_kernel(items.kind), for_kernel(items.time_ms), before, rows, hour))
    return tuple(zip(rows[:found].tolist(), (hour[:found] * _SECONDS_PER_HOUR).tolist(), strict=True))


def hours(items: CrawlItems, tick_second: int) -> Iterator[Slice]:
    """Yield the rows of each hour of event time, after the tick at its beginning."""
    second, first = None, 0
    for row, next_second in ticks_in(items, tick_second):
        if second is not None or first < row:
            yield Slice(second, first, row)
        second, first = next_second, row
    yield Slice(second, first, len(items))


def rows_of(entry: Entry, first: int, last: int) -> Entry:
    """Return the rows [first, last) of an entry as one of their own; it begins where the rows before end."""
    items = entry.items
    start = entry.start if first == 0 else _position_of(items, first)
    end = entry.end if last == len(items) else _position_of(items, last)
    return replace(entry, start=start, end=end, items=items.rows(first, last))


def row_after_visits(items: CrawlItems, first: int, last: int, visits: int | None) -> int:
    """Return the row at which an event begins, after at least so many visits; `last` if there are fewer."""
    if visits is None or visits > last - first:
        return last
    made: Ints = np.cumsum(items.kind[first:last] == _VISIT)
    if len(made) == 0 or made[-1] < visits:
        return last
    row = first + int(np.searchsorted(made, visits)) + 1
    while row < last and items.offset[row] == items.offset[row - 1]:
        row += 1
    return row


def _position_of(items: CrawlItems, row: int) -> LogPosition:
    return LogPosition(int(items.offset[row]), int(items.within[row]))


def answering(items: CrawlItems) -> Bools:
    """Return which rows are the visit of the page that answered: the last visit of its event."""
    visits: Bools = items.kind == _VISIT
    goes_on = np.zeros(len(items), np.bool_)
    goes_on[:-1] = visits[1:] & (items.offset[1:] == items.offset[:-1])
    return visits & ~goes_on


def policy_time_ms(policy: Policy) -> int:
    """Return the time of the crawl from which a policy holds."""
    if policy.published_at_ms is not None:
        return policy.published_at_ms
    return _MANY if policy.fetch_now else 0


def policies_chain(policies: Iterable[Policy], chain: str = "") -> str:
    """Return the hash of a chain of policies. `chain` is the hash of the policies before."""
    for policy in policies:
        link = chain + json.dumps(policy_to_json(policy), sort_keys=True)
        chain = hashlib.blake2b(link.encode(), digest_size=16).hexdigest()
    return chain
