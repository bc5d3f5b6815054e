"""A page is fetched when its host has room, and requests of a host that is busy wait until it has rested."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.core.downloader import Downloader, Slot
from scrapy.http import Response

from opicflow.pipelines.crawl.scrapy import ready_pages as module
from opicflow.pipelines.crawl.scrapy.ready_pages import ReadyPages
from opicflow.pipelines.crawl.scrapy.request_pages import RequestPages


class StandInDownloader:
    """Stands in for Scrapy's: its slots, and the requests that it has taken."""

    ip_concurrency = 0

    def __init__(self, total: int) -> None:
        self.total_concurrency = total
        self.slots: dict[str, Slot] = {}
        self.active: set[Request] = set()

    def get_slot_key(self, request: Request) -> str:
        return str(request.meta.get(Downloader.DOWNLOAD_SLOT) or request.url.split("/")[2])

    def fetch(self, url: str, delay: float = 0.0) -> Request:
        """Take a request as Scrapy does, as far as the slot of its host."""
        request = Request(url)
        key = request.meta[Downloader.DOWNLOAD_SLOT] = self.get_slot_key(request)
        slot = self.slots.setdefault(key, Slot(8, delay, 0.0))
        slot.active.add(request)
        self.active.add(request)
        if delay and len(slot.active) > 1:
            slot.queue.append((request, None))  # type: ignore[arg-type]
        return request

    def end(self, request: Request) -> None:
        """Give the answer to a request."""
        slot = self.slots[request.meta[Downloader.DOWNLOAD_SLOT]]
        slot.active.discard(request)
        slot.queue.clear()
        self.active.discard(request)


def urls(host: str, count: int) -> list[str]:
    return [f"http://{host}.example/{number}" for number in range(count)]


def ready(downloader: StandInDownloader, *lists: list[str]) -> ReadyPages:
    pages = [url for urls in lists for url in urls]
    hosts = Counter(url.split("/")[2] for url in pages)
    return ReadyPages(downloader, RequestPages(), hosts, pages)  # type: ignore[arg-type]


def taken(pages: ReadyPages, downloader: StandInDownloader, delay: float) -> list[str]:
    found = []
    while (url := pages.take()) is not None:
        found.append(url)
        downloader.fetch(url, delay)
    return found


def test_with_a_delay_one_request_of_a_host_waits_and_no_more() -> None:
    downloader = StandInDownloader(16)
    pages = ready(downloader, urls("a", 5), urls("b", 5))
    found = taken(pages, downloader, delay=1.0)
    assert found == ["http://a.example/0", "http://a.example/1", "http://b.example/0", "http://b.example/1"]
    assert pages.usable() == 0 and pages.rooms(0) == {"a.example": 0, "b.example": 0}
    for request in [*downloader.active]:
        downloader.end(request)
    assert pages.usable() == 2 and pages.take() == "http://a.example/2"


def test_without_a_delay_hosts_share_all_requests_that_may_be_sent_at_once() -> None:
    downloader = StandInDownloader(16)
    pages = ready(downloader, urls("a", 20), urls("b", 3), urls("c", 20), urls("d", 20))
    found = Counter(url.split("/")[2][0] for url in taken(pages, downloader, delay=0.0))
    assert found == {"a": 4, "b": 3, "c": 4, "d": 4}
    alone = StandInDownloader(16)
    assert len(taken(ready(alone, urls("a", 20)), alone, delay=0.0)) == 8, "as many as Scrapy sends to one host"


def test_a_request_that_scrapy_has_taken_and_that_is_in_no_slot_yet_takes_room() -> None:
    downloader = StandInDownloader(16)
    pages = ready(downloader, urls("a", 3))
    downloader.active.add(Request("http://a.example/robots.txt"))
    assert pages.take() is None and pages.usable() == 0


def test_pages_are_requested_for_a_host_that_has_less_than_half_of_those_that_may_wait_for_it() -> None:
    downloader = StandInDownloader(16)
    pages = ready(downloader, urls("a", 12))
    assert len(taken(pages, downloader, delay=0.0)) == 8 and not pages.is_a_host_free
    fetched = [*downloader.active]
    assert [len(pages), pages.rooms(8), pages.lacks_pages(pages.rooms(8), 8)] == [4, {"a.example": 4}, False]
    downloader.end(fetched[0])
    assert pages.is_a_host_free and pages.lacks_pages(pages.rooms(8), 8)
    pages.add(urls("a", 16)[12:])
    assert not pages.lacks_pages(pages.rooms(8), 8)
    assert not pages.lacks_pages({"a.example": 0}, 0) and pages.lacks_pages({"a.example": 1}, 0)
    others = ready(downloader, urls("a", 12), urls("b", 1))
    assert others.lacks_pages({"a.example": 0}, 8), "b has none yet"


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_host_rests_as_long_as_it_says_and_longer_with_each_answer_that_says_nothing(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(second=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.second, time=lambda: clock.second))
    downloader = StandInDownloader(16)
    pages = ready(downloader, urls("a", 3), urls("b", 1))

    def answer(status: int, headers: dict[str, Any]) -> None:
        request = downloader.fetch("http://a.example/9")
        pages.take_answer(Response(request.url, status, headers), request)
        downloader.end(request)

    answer(status, {"Retry-After": "30"})
    assert pages.take() == "http://b.example/0" and pages.take() is None
    again = Request("http://a.example/9")
    assert pages.rests(again.url)
    pages.retry_later(again)
    clock.second += 29
    assert pages.take_retry() is None and pages.is_one_awaited
    clock.second += 1
    assert pages.take_retry() is again and pages.take_retry() is None and pages.take() == "http://a.example/0"
    for seconds in (60, 120):
        answer(status, {})
        clock.second += seconds - 1
        assert pages.rests("http://a.example/")
        clock.second += 1
        assert not pages.rests("http://a.example/")
    answer(200, {})
    answer(status, {})
    clock.second += 10
    assert not pages.rests("http://a.example/"), "it begins from the first wait"
    answer(status, {"Retry-After": "3600"})
    assert pages.is_one_awaited, "the other host has a page"
    pages._waiting_hosts.pop("b.example")
    pages.add(["http://b.example/again"])
    assert pages.is_one_awaited and pages.take() == "http://b.example/again"
    assert not pages.is_one_awaited, "no crawl stays open for an hour"
