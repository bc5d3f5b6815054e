"""The middlewares that report to the scheduler: fetches, also those that fail, and which callbacks have begun."""

from __future__ import annotations

import hashlib
from typing import Literal

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response

from opicflow.pipelines.crawl.recorder.protocol import VisitEvent
from opicflow.pipelines.crawl.scrapy.frontier_scheduler import scheduler_of
from opicflow.pipelines.crawl.scrapy.request_pages import quality_of

_ROBOTS = "Forbidden by robots.txt"
_Header = Literal["content_type", "last_modified", "retry_after"]
_HEADERS: tuple[tuple[_Header, bytes], ...] = (
    ("content_type", b"Content-Type"),
    ("last_modified", b"Last-Modified"),
    ("retry_after", b"Retry-After"),
)
_ROBOTS_TAG = b"X-Robots-Tag"


class VisitRecorder:
    """A downloader middleware. It changes no request and no response."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> VisitRecorder:
        """Make one that records the responses that reach the spider, and the redirects that end before one."""
        recorder = cls(crawler)
        crawler.signals.connect(recorder.record_response, signals.response_received)
        crawler.signals.connect(recorder.record_dropped, signals.request_dropped)
        return recorder

    def record_response(self, response: Response, request: Request) -> None:
        """Record a response, with the redirects that led to it."""
        if "cached" in response.flags and "download_latency" not in request.meta:  # from HTTPCACHE alone
            self._land(response, request)
        elif request.method == "GET" and not request.meta.get("dont_obey_robotstxt"):
            event, body = visit_of(response, request)
            self._record(event, request, is_done=False, body=body)

    def record_dropped(self, request: Request) -> None:
        """Record the redirects to a page that is not fetched now, because it was fetched before."""
        hops = request.meta.get("redirect_urls", [])
        for number, hop in enumerate(hops):
            target = [*hops, request.url][number + 1]
            status = request.meta["redirect_reasons"][number]
            event: VisitEvent = {"url": hop, "status": status if isinstance(status, int) else 302, "links": [target]}
            self._record(event, request, is_done=True)

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Record a failure that no other middleware has mended."""
        if isinstance(exception, IgnoreRequest) and str(exception) != _ROBOTS:
            return  # the project leaves this page out
        failure = "robots" if isinstance(exception, IgnoreRequest) else type(exception).__name__
        if request.method == "GET" and not request.body:
            redirects = request.meta.get("redirect_urls", [])
            event: VisitEvent = {"url": request.url, "failure": failure, "redirects": redirects}
            self._record(event, request, is_done=failure == "robots")

    def _land(self, response: Response, request: Request) -> None:
        scheduler = scheduler_of(self._crawler)
        if scheduler is not None:
            scheduler.land((response.url, *request.meta.get("redirect_urls", ())))

    def _record(self, event: VisitEvent, request: Request, is_done: bool, body: bytes = b"") -> None:
        scheduler = scheduler_of(self._crawler)
        if scheduler is not None:
            urls = (event["url"], *event.get("redirects", ()), *request.meta.get("redirect_urls", ()))
            scheduler.record(event, urls, is_done, body)


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


def visit_of(response: Response, request: Request) -> tuple[VisitEvent, bytes]:
    """Return the event of a response, and the content of an HTML page, from which the recorder gets its links."""
    event: VisitEvent = {"url": response.url, "status": response.status}
    if redirects := request.meta.get("redirect_urls"):
        event["redirects"] = redirects
    headers = response.headers
    present = headers.keys()  # to ask for a header that is missing takes Scrapy longer than all others of these lines
    for field, name in _HEADERS:
        if name in present and (value := headers[name]):
            event[field] = value.decode("latin-1")
    if (quality := quality_of(request)) is not None:
        event["quality"] = quality
    if response.status != 200:
        return event, b""
    if isinstance(response, HtmlResponse) and response.body:
        if _ROBOTS_TAG in present and (value := headers[_ROBOTS_TAG]):
            event["robots_tag"] = value.decode("latin-1")
        return event, response.body
    event["digest"] = hashlib.sha1(response.body, usedforsecurity=False).hexdigest()
    event["links"] = []
    return event, b""
