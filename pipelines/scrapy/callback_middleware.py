"""A middleware that tells the scheduler when the callback of a page is over, and what quality it has found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy.crawler import Crawler
from scrapy.http import Response

from opicflow.pipelines.scrapy.frontier_scheduler import QUALITY_KEY, canonical_page, quality_of, scheduler_of


class CallbackMiddleware:
    """A spider middleware, the nearest to the engine. It changes nothing that a spider returns."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CallbackMiddleware:
        """Make one for a crawl."""
        return cls(crawler)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on what a callback returns; then the page is done. One whose crawl is killed before is not."""
        before = response.meta.get(QUALITY_KEY)
        try:
            async for each in result:
                yield each
        except Exception:
            self._end(response)
            raise
        self._end(response)
        if response.request is not None and response.meta.get(QUALITY_KEY) != before:
            quality, page, scheduler = (
                quality_of(response.request),
                canonical_page(response.url),
                scheduler_of(self._crawler),
            )
            if quality is not None and page is not None and scheduler is not None:
                scheduler.announce(page, quality)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """Note that a callback is over also if it has failed: Scrapy does not call it again."""
        self._end(response)

    def _end(self, response: Response) -> None:
        request, scheduler = response.request, scheduler_of(self._crawler)
        if scheduler is not None and request is not None and request.method == "GET":  # others fetch no page
            scheduler.callback_ended(response.status, (response.url, *response.meta.get("redirect_urls", ())))
