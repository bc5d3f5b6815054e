"""A middleware that reports to a frontier the quality that a spider has found from the content of pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy.crawler import Crawler
from scrapy.http import Response

from opicflow.pipelines.scrapy.frontier_scheduler import QUALITY_KEY, FrontierScheduler, canonical_page, quality_of


class QualityMiddleware:
    """A spider middleware. It changes nothing that a spider returns."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> QualityMiddleware:
        """Make one for a crawl."""
        return cls(crawler)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on what a callback returns, then announce the page if the callback has set its quality."""
        before = response.meta.get(QUALITY_KEY)
        async for each in result:
            yield each
        if response.request is None or response.meta.get(QUALITY_KEY) == before:
            return
        quality, page, engine = quality_of(response.request), canonical_page(response.url), self._crawler.engine
        scheduler = None if engine is None else engine.scheduler
        if quality is not None and page is not None and isinstance(scheduler, FrontierScheduler):
            scheduler.announce(page, quality)
