"""Orders and schedules for a URL Frontier: which dates its pages get, and which are left as they are.

A frontier gives crawlers the pages of a queue by date, the oldest first, and keeps for some time which ones it gave. To
change a page makes it forget that: the page would be given to a second crawler. Only a page whose date has come can be
under way, and only if its queue has pages under way. Such a page is left alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from opicflow.connectors.urlfrontier.frontier_client import FrontierClient, KnownPage, PageToSend
from opicflow.connectors.urlfrontier.frontier_messages import FrontierRefused
from opicflow.pipelines.results.exports.result_rows import Rows
from opicflow.pipelines.results.queue_keys import QUEUE_KEYS, queue_key

_PAGES_AT_ONCE = 1024
_MOST_HELD = 100_000
_MOST_COMPARED = 64
_CLOCKS_APART_SECONDS = 5
"""How far the clock of the frontier may be ahead of this one."""
_DEFAULT_CRAWL = "DEFAULT"


class WantedDate(NamedTuple):
    """From when a page is to be fetched, in seconds since 1970; 0: not again."""

    url: str
    date: int


class _HeldDate(NamedTuple):
    """A date that waits, and the second since which it does."""

    page: WantedDate
    since: float


class Decision(Enum):
    """The ways to treat a page."""

    SEND = "send"
    UNCHANGED = "unchanged"
    ASK_QUEUE = "ask whether its queue has pages under way"


def decide(known: KnownPage | None, date: int, now_second: int) -> Decision:
    """Return how to treat a page that is to have this date, given the frontier's record."""
    if known is None:
        return Decision.SEND
    if known.date == date:
        return Decision.UNCHANGED
    may_be_under_way = known.date <= now_second + _CLOCKS_APART_SECONDS  # 0 as well: some services never forget it
    return Decision.ASK_QUEUE if may_be_under_way else Decision.SEND


def wanted_dates(rows: Rows, now_second: int, position: int = 0) -> Iterator[WantedDate]:
    """Yield the dates of the pages of a schedule, or of orders, of which so many came before.

    Orders that may be fetched at once get the first seconds of 1970, in their sequence: they come before what waits.
    """
    for some in rows:
        for row in some:
            if rows.kind == "schedule":
                yield WantedDate(row.url, 0 if row.due is None else max(1, row.due // 1000))
            else:
                position += 1
                begins = row.fetch_ms // 1000
                yield WantedDate(row.url, position if begins <= now_second else begins)


@dataclass(frozen=True)
class FrontierPush:
    """Sends dates to a frontier. `clock` gives the time in seconds; `pause` waits some, as `waited` counts them.

    Counts: `sent` (of which `new` pages), `unchanged`, `under way`, and `refused`, which the service does not take.
    """

    client: FrontierClient
    key: str
    clock: Callable[[], float]
    pause: Callable[[float], object]
    waited: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    _held: dict[str, _HeldDate] = field(default_factory=dict)

    def push(self, wanted: Iterable[WantedDate], wait_seconds: float) -> Counter[str]:
        """Send all dates. Pages that may be under way are tried again for so long.

        It may be repeated: pages that have their date already stay unchanged.
        """
        self._check_crawl()
        held: list[WantedDate] = []
        parts = iter(wanted)
        is_first = True
        while some := list(islice(parts, _PAGES_AT_ONCE)):
            if is_first:
                self._check_keys(some)
                is_first = False
            held += self._push_some(some)
            if len(held) > _MOST_HELD:
                self.counts["under way"] += len(held) - _MOST_HELD
                del held[_MOST_HELD:]
        end = self.waited() + wait_seconds
        while held and self.waited() < end:
            self.pause(0.2)
            held = [page for at in range(0, len(held), _PAGES_AT_ONCE) for page in self._tried_again(held, at)]
        self.counts["under way"] += len(held)
        return self.counts

    def take(self, some: Sequence[WantedDate], wait_seconds: float) -> bool:
        """Send dates that have arrived, and those of before that wait. Returns whether none waits.

        A page that may be under way waits for so long, and is tried again at every call; a later date replaces it.
        """
        now = self.waited()
        some = list({page.url: page for page in some}.values())
        for page in some:
            self._held.pop(page.url, None)
        waiting = [one.page for one in self._held.values()]
        still = [page for at in range(0, len(waiting), _PAGES_AT_ONCE) for page in self._tried_again(waiting, at)]
        since = {page.url: self._held[page.url].since for page in still}
        for at in range(0, len(some), _PAGES_AT_ONCE):
            still += self._push_some(some[at : at + _PAGES_AT_ONCE])
        held = [_HeldDate(page, since.get(page.url, now)) for page in still]
        kept = [one for one in held if now - one.since < wait_seconds][:_MOST_HELD]
        self.counts["under way"] += len(held) - len(kept)
        self._held.clear()
        self._held.update((one.page.url, one) for one in kept)
        return not kept

    def check(self, some: Sequence[WantedDate]) -> None:
        """Refuse a crawl that the frontier does not have, and queues by the other key, before these dates are sent."""
        self._check_crawl()
        self._check_keys(some)

    def _push_some(self, some: Sequence[WantedDate]) -> list[WantedDate]:
        """Send what can be sent now. Returns the pages that may be under way."""
        latest = {page.url: page for page in some}  # the service carries out the items of a stream in any order
        key_of = queue_key(self.key)
        pages = [(url, key_of(url)) for url in latest]
        known = self.client.known(pages)
        to_send: list[PageToSend] = []
        to_ask: dict[str, list[PageToSend]] = {}
        now = int(self.clock())
        for (url, key), before in zip(pages, known, strict=True):
            page = PageToSend(url, key, latest[url].date, {} if before is None else before.metadata)
            decision = decide(before, page.date, now)
            if decision is Decision.SEND:
                to_send.append(page)
            elif decision is Decision.ASK_QUEUE:
                to_ask.setdefault(key, []).append(page)
            else:
                self.counts["unchanged"] += 1
            self.counts["new"] += before is None
        self._send(to_send)
        queues = self.client.queues(list(to_ask))
        is_free = {key: queue.inProcess == 0 for key, queue in zip(to_ask, queues, strict=True)}
        self._send([page for key, waiting in to_ask.items() if is_free[key] for page in waiting])
        return [latest[page.url] for key, waiting in to_ask.items() if not is_free[key] for page in waiting]

    def _tried_again(self, held: Sequence[WantedDate], at: int) -> list[WantedDate]:
        """Send the held pages whose queues have none under way any more. Returns the others."""
        some = held[at : at + _PAGES_AT_ONCE]
        key_of = queue_key(self.key)
        keys = list(dict.fromkeys(key_of(page.url) for page in some))
        is_free = {key: queue.inProcess == 0 for key, queue in zip(keys, self.client.queues(keys), strict=True)}
        still = self._push_some([page for page in some if is_free[key_of(page.url)]])
        return [*still, *(page for page in some if not is_free[key_of(page.url)])]

    def _send(self, pages: list[PageToSend]) -> None:
        refused = len(self.client.send(pages))
        self.counts["sent"] += len(pages) - refused
        self.counts["refused"] += refused

    def _check_crawl(self) -> None:
        """Refuse a crawl that is not there, unless the frontier is empty: a wrong name would begin another one."""
        crawl = self.client.crawl.strip() or _DEFAULT_CRAWL
        there = self.client.crawls()
        if there and crawl not in there:
            listed = ", ".join(there[:5])
            raise FrontierRefused(f"{self.client}: no crawl {crawl}: it has {listed}: give the crawler's with --crawl")

    def _check_keys(self, some: Sequence[WantedDate]) -> None:
        """Refuse keys that the frontier does not have where it has the other kind: pages would be in two queues."""
        other = next(kind for kind in QUEUE_KEYS if kind != self.key)
        ours, others = queue_key(self.key), queue_key(other)
        differing = {ours(page.url): others(page.url) for page in some if ours(page.url) != others(page.url)}
        pairs = dict(islice(differing.items(), _MOST_COMPARED))
        if any(queue.numberOfQueues for queue in self.client.queues(list(pairs))):
            return
        for key, queue in zip(pairs.values(), self.client.queues(list(pairs.values())), strict=True):
            if queue.numberOfQueues:
                raise FrontierRefused(
                    f"{self.client}: it has a queue {key}, and none by {self.key}: give --key {other}"
                )
