"""A middleware that tells the scheduler when the callback of a page begins."""

from __future__ import annotations

from scrapy.crawler import Crawler
from scrapy.http import Response

from opicflow.pipelines.crawl.scrapy.frontier_scheduler import scheduler_of


class CallbackMiddleware:
    """A spider middleware, the nearest to the engine. It changes nothing, and does not see what a spider returns."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CallbackMiddleware:
        """Make one for a crawl."""
        return cls(crawler)

    def process_spider_input(self, response: Response) -> None:
        """Note that the callback of a page begins. One whose crawl is killed before it is over is not done."""
        request, scheduler = response.request, scheduler_of(self._crawler)
        if scheduler is not None and request is not None and request.method == "GET":  # others fetch no page
            scheduler.callback_begins(response, request)
