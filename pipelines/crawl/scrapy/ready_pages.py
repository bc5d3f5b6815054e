"""Pages that are fetched next, as far as their hosts have room in Scrapy's downloader."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.core.downloader import Downloader
from scrapy.http import Response
from scrapy.resolver import dnscache

from opicflow.pipelines.crawl.scrapy.request_pages import RequestPages, host_of
from opicflow.schemas.json_events import retry_seconds_of

_LOGGER = logging.getLogger(__name__)

_NO_LIMIT = 1 << 30
_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 10.0, 900.0
"""Of a host that answers 429 or 503 and names no time. A crawl ends before a host has rested for longer."""
_AHEAD = 8
"""Pages of a host that wait here at most while its slot is full."""


class _Rest(NamedTuple):
    seconds: float
    until: float

    def is_now(self) -> bool:
        return time.monotonic() < self.until


class ReadyPages:
    """Pages in the order in which they were chosen. A page waits until its host has room.

    With a delay between fetches a host has room if no request waits in its slot: one that waits there takes one of
    CONCURRENT_REQUESTS from other hosts. Without a delay all hosts that have pages share CONCURRENT_REQUESTS evenly.
    """

    def __init__(
        self, downloader: Downloader, pages: RequestPages, waiting_hosts: Counter[str], urls: Iterable[str] = ()
    ) -> None:
        """Begin with pages, by their canonical URLs. `waiting_hosts`: how many pages each host has."""
        self._downloader, self._pages, self._waiting_hosts = downloader, pages, waiting_hosts
        self._hosts: dict[str, str] = {}
        """The hosts of the pages, which are in their order."""
        self._rests: dict[str, _Rest] = {}
        """Why a slot has no room: its host has answered that it is busy."""
        self._retries: list[Request] = []
        self.add(urls)

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def add(self, urls: Iterable[str]) -> None:
        """Add pages after all others."""
        self._hosts.update((url, host_of(url)) for url in urls)

    def take(self) -> str | None:
        """Take the first page whose host has room; None if there is none."""
        url = self.first_with_room(self._hosts.items())
        if url is not None:
            del self._hosts[url]
        return url

    @property
    def is_one_awaited(self) -> bool:
        """Whether a page waits, here or in the frontier, whose host does not rest for longer than a crawl waits."""
        retried = (urlsplit(request.url).netloc for request in self._retries)
        names = chain(self._hosts.values(), self._waiting_hosts, retried)
        return any(self._rest_seconds(self._slot_key(name)) <= _LONGEST_REST_SECONDS for name in names)

    def retry_later(self, request: Request) -> None:
        """Keep the request of a busy host until it has rested."""
        self._retries.append(request)

    def take_retry(self) -> Request | None:
        """Take a request whose host has rested."""
        for number, request in enumerate(self._retries):
            if not self.rests(request.url):
                return self._retries.pop(number)
        return None

    def take_answer(self, response: Response, request: Request) -> None:
        """Let a host rest that answers 429 or 503: for its Retry-After, or longer after each such answer in a row."""
        key = self._downloader.get_slot_key(request)
        if response.status not in (429, 503):
            self._rests.pop(key, None)
            return
        if not self._rest_seconds(key):
            before = self._rests.get(key)
            text = (response.headers.get("Retry-After") or b"").decode("latin-1")
            stated = retry_seconds_of(text, int(1000 * time.time())) or 0  # noqa: TID251 - a crawl happens now
            longer = _FIRST_REST_SECONDS if before is None else min(2 * before.seconds, _LONGEST_REST_SECONDS)
            self._rests[key] = rest = _Rest(stated or longer, time.monotonic() + (stated or longer))
            _LOGGER.info("opicflow: %s answers %d: it rests for %d seconds", key, response.status, rest.seconds)

    def rests(self, url: str) -> bool:
        """Whether the host of a URL is busy."""
        return self._rest_seconds(self._slot_key(urlsplit(url).netloc)) > 0

    def _rest_seconds(self, key: str) -> float:
        """Return how long the host of a slot rests in all; 0 if it does not, or has rested."""
        rest = self._rests.get(key)
        return rest.seconds if rest is not None and rest.is_now() else 0.0

    def first_with_room(self, pages: Iterable[tuple[str, str]]) -> str | None:
        """Return the first page whose host has room; None if there is none. Each page comes with its host."""
        entering, full = self._entering(), set[str]()
        for url, name in pages:
            if name not in full:
                if self._room(name, entering) > 0:
                    return url
                full.add(name)
        return None

    def usable(self) -> int:
        """Return how many pages may be fetched now."""
        if not self._hosts:
            return 0
        entering, ready = self._entering(), Counter(self._hosts.values())
        return sum(min(count, max(0, self._room(name, entering))) for name, count in ready.items())

    @property
    def is_a_host_free(self) -> bool:
        """Whether a page may be fetched now as soon as it is chosen: of a host that has pages, or one is due again."""
        entering = self._entering()
        return not self._waiting_hosts or any(self._room(name, entering) > 0 for name in self._waiting_hosts)

    def rooms(self, ahead: int) -> dict[str, int]:
        """Return how many pages may be chosen of each host that has some already.

        `ahead`: so many at most for the time after the fetches of now, so that the next one is there when a page has
        come.
        """
        entering, ready = self._entering(), Counter(self._hosts.values())
        fetched = self._pages.of_urls(request.url for request in self._downloader.active)
        names = {*ready, *map(host_of, fetched)}
        rooms = {name: self._room(name, entering) + min(ahead, self._ahead(name)) - ready[name] for name in names}
        return {name: max(0, room) for name, room in rooms.items()}

    def lacks_pages(self, rooms: Mapping[str, int], ahead: int) -> bool:
        """Whether a host has no page yet, or less than half as many as may wait for it. Each request takes time."""
        if not self._waiting_hosts.keys() <= rooms.keys():
            return True
        return any(2 * room > min(ahead, self._ahead(name)) for name, room in rooms.items())

    def _entering(self) -> Counter[str]:
        """Return how many requests Scrapy has taken that are in no slot yet, by their host names."""
        slots = (request for request in self._downloader.active if Downloader.DOWNLOAD_SLOT not in request.meta)
        return Counter(self._downloader.get_slot_key(request) for request in slots)

    def _room(self, name: str, entering: Counter[str]) -> int:
        key = self._slot_key(name)
        slot = self._downloader.slots.get(key)
        if self._rest_seconds(key):
            return -_AHEAD  # nor for the time after the fetches of now
        if slot is None:
            return 1 - entering[key]
        if slot.delay:
            return 1 - len(slot.queue) - entering[key]
        return min(slot.concurrency, self._fair_share()) - len(slot.active) - entering[key]

    def _fair_share(self) -> int:
        """Return the requests that each host gets at the same time, if all hosts get as many."""
        total = self._downloader.total_concurrency or _NO_LIMIT
        return max(1, total // max(1, len(self._waiting_hosts)))

    def _ahead(self, name: str) -> int:
        slot = self._downloader.slots.get(self._slot_key(name))
        return 1 if slot is None or slot.delay else min(self._fair_share(), _AHEAD)

    def _slot_key(self, name: str) -> str:
        """Return the name of the slot of a host, unless the project chooses another one by `download_slot`."""
        key = _hostname(name)
        return dnscache.get(key, key) if self._downloader.ip_concurrency else key


@lru_cache(1 << 14)
def _hostname(name: str) -> str:
    return urlsplit(f"//{name}").hostname or ""
