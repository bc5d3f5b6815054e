"""The callbacks of a spider that have begun, and those that are over."""

from __future__ import annotations

from typing import NamedTuple

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from opicflow.pipelines.crawl.scrapy.request_pages import QUALITY_KEY, RequestPages, quality_of

_TOO_MANY_REQUESTS, _SERVER_FAILURE = 429, 500


class Callback(NamedTuple):
    """A callback that has begun."""

    request: Request
    is_followed: bool
    """Whether Scrapy shows when the callback of this request is over. If not, it is over when the crawl is."""
    url: str
    is_done: bool
    """Whether its pages are done then. A server's failure may pass."""
    quality_before: float | None
    """That of the page before: the callback may set another one."""
    pages: RequestPages

    @property
    def done_pages(self) -> list[str]:
        """The pages that the next crawl need not fetch, now that it is over."""
        return self.pages.of_urls((self.url, *self.request.meta.get("redirect_urls", ()))) if self.is_done else []

    @property
    def new_quality(self) -> tuple[str, float] | None:
        """The page and its quality, if the callback has set one."""
        if self.request.meta.get(QUALITY_KEY) == self.quality_before:
            return None
        page, quality = self.pages.of_url(self.url), quality_of(self.request)
        return None if page is None or quality is None else (page, quality)


class Callbacks:
    """The callbacks of a crawl that are not over yet."""

    def __init__(self, crawler: Crawler, pages: RequestPages) -> None:
        self._crawler, self._pages = crawler, pages
        self._begun: list[Callback] = []

    def begin(self, response: Response, request: Request) -> None:
        """Note that a page is with its callback."""
        is_done = response.status < _SERVER_FAILURE and response.status != _TOO_MANY_REQUESTS
        is_followed, quality = request in self._at_work(), request.meta.get(QUALITY_KEY)
        self._begun.append(Callback(request, is_followed, response.url, is_done, quality, self._pages))

    def take_over(self, are_all_over: bool) -> list[Callback]:
        """Return those that are over, and forget them."""
        at_work = self._at_work()
        over: list[Callback] = []
        rest: list[Callback] = []
        for callback in self._begun:
            is_over = are_all_over or (callback.is_followed and callback.request not in at_work)
            (over if is_over else rest).append(callback)
        self._begun = rest
        return over

    def _at_work(self) -> set[Request]:
        """Return the requests whose answers Scrapy works on: callbacks, and what becomes of their output."""
        engine = self._crawler.engine
        return set() if engine is None or engine.scraper.slot is None else engine.scraper.slot.active
