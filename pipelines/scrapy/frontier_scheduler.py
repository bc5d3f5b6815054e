"""A scheduler for Scrapy whose pages wait in a frontier. All other requests wait in Scrapy's own queues."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import Scheduler

from opicflow.pipelines.frontier import Frontier
from opicflow.pipelines.frontier.frontier import LOG_NAME
from opicflow.pipelines.scrapy.stored_requests import StoredRequests
from opicflow.schemas.urls import NotAPage, canonical
from scrapy import Request, Spider

if TYPE_CHECKING:
    from opicflow.pipelines.scrapy.visit_sender import VisitSender

QUALITY_KEY = "opicflow_quality"
"""Of the meta of a request: the quality of its page, before or after it was fetched."""
_LOGGER = logging.getLogger(__name__)
_AT_ONCE = 16
_MOST_PASSED_OVER = 64
_IDLE_SECONDS = 5.0
_DAY = 86400.0


class FrontierScheduler(Scheduler):
    """Gives out the pages that a spider wants in the order of a frontier: unread ones, and those that are due again.

    A page is what a plain GET fetches. Requests with a body or another method, retries, redirects, and requests that
    cannot be stored are scheduled as Scrapy does it. A spider gets each page once, and again when it is due.
    """

    frontier: Frontier
    requests: StoredRequests

    def open(self, spider: Spider) -> Any:
        """Open the frontier of a spider."""
        assert self.crawler is not None
        folder = Path(self.crawler.settings["OPICFLOW_FOLDER"]) / spider.name
        self.frontier = Frontier.open(folder, _clock, delay_seconds=None, timeout_seconds=_DAY)
        self.requests = StoredRequests(folder / "requests", spider)
        self._ready: deque[str] = deque()
        self._out: set[str] = set()
        self._passed_over = self._to_pass_over = 0
        """How many choices are made without the frontier, which had no waiting page, and how many are left."""
        self._last_idle_query_at = 0.0
        self._counts: Counter[str] = Counter()
        """Counts that the statistics of the crawl do not have yet: counting there takes longer than finding a page."""
        self._sender = self._new_sender(folder / LOG_NAME)
        return super().open(spider)

    def close(self, reason: str) -> Any:
        """Save the frontier."""
        self._pass_on_counts()
        self.frontier.close()
        self.requests.close()
        if self._sender is not None:
            self._sender.close()
        return super().close(reason)

    def _new_sender(self, log: Path) -> VisitSender | None:
        """Begin to send visits to Kafka, if the settings name brokers."""
        assert self.crawler is not None
        settings = self.crawler.settings
        if not settings.get("OPICFLOW_BROKERS"):
            return None
        from opicflow.connectors.kafka.connection import Connection
        from opicflow.pipelines.scrapy.visit_sender import VisitSender

        connection = Connection(settings["OPICFLOW_BROKERS"], settings.get("OPICFLOW_PROPERTIES"))
        return VisitSender(log, connection, settings.get("OPICFLOW_PREFIX", ""), _clock)

    def has_pending_requests(self) -> bool:
        """Whether a page waits, or another request."""
        return bool(self._ready) or self.requests.waiting > 0 or super().has_pending_requests()

    def enqueue_request(self, request: Request) -> bool:
        """Store a request. False if the spider has made one for the same page before."""
        url = page_of(request)
        if url is None:
            return super().enqueue_request(request)
        is_first, hops = request.meta.get("is_start_request", False), request.meta.get("redirect_urls", ())
        is_known, is_new_hop = url in self.requests, bool(hops) and request.url not in hops
        if is_known and (is_first or is_new_hop or not (hops or request.dont_filter)):
            self.df.log(request, self.spider)
            return False
        if is_new_hop:
            self.requests.was_taken(url)
        if hops or "retry_times" in request.meta or (request.dont_filter and not is_first):
            return super().enqueue_request(request)
        try:
            self.requests.add(url, request)
        except ValueError:
            return super().enqueue_request(request)
        quality = quality_of(request)
        if is_first or quality is not None:
            self.frontier.announce([url], quality)
        self._counts["enqueued"] += 1
        return True

    def next_request(self) -> Request | None:
        """Return the next request: what Scrapy's own queues have, then the first page of the frontier."""
        request = super().next_request()
        if request is not None:
            return request
        if not self._ready and self._is_choice():
            given = self.frontier.next(_AT_ONCE, self.requests.pages)
            self._ready.extend(url for url in given if url not in self._out)
            is_known = bool(self._ready) or not self.requests.waiting
            self._passed_over = 0 if is_known else min(2 * self._passed_over + 1, _MOST_PASSED_OVER)
            self._to_pass_over = self._passed_over
        url = self._ready.popleft() if self._ready else self.requests.first()
        if url is None:
            return None
        self._counts["dequeued"] += 1
        if self._counts["dequeued"] >= _AT_ONCE:
            self._pass_on_counts()
        self._out.add(url)
        return self.requests.take(url)

    def landed(self, url: str) -> None:
        """Note that a page was fetched, or that this has failed."""
        self._out.discard(url)
        self.requests.was_read(url)

    def _pass_on_counts(self) -> None:
        for name, count in self._counts.items():
            if self.stats is not None:
                self.stats.inc_value(f"scheduler/{name}/opicflow", count)
                self.stats.inc_value(f"scheduler/{name}", count)
        self._counts.clear()

    def _is_choice(self) -> bool:
        """Whether the frontier has to choose which page is next. A plan takes time for all pages known."""
        if not self.requests.waiting:  # pages may be due again
            now = _clock()
            is_long_ago = now - self._last_idle_query_at >= _IDLE_SECONDS
            self._last_idle_query_at = now if is_long_ago else self._last_idle_query_at
            return is_long_ago
        if self.requests.waiting <= _AT_ONCE:  # all are fetched next
            return False
        self._to_pass_over -= 1
        return self._to_pass_over < 0


def _clock() -> float:
    return time.time()  # noqa: TID251 - a crawl happens now


def quality_of(request: Request) -> float | None:
    """Return the quality that a spider has set in the meta of a request; None if it has set none."""
    quality = request.meta.get(QUALITY_KEY)
    if quality is None or (isinstance(quality, float | int) and 0.0 <= quality <= 1.0):
        return quality
    _LOGGER.warning("opicflow: %s of %s is no number from 0 to 1: %r", QUALITY_KEY, request.url, quality)
    return None


def page_of(request: Request) -> str | None:
    """Return the canonical URL of the page that a request fetches; None if it is not for a page."""
    if request.method != "GET" or request.body:
        return None
    return canonical_page(request.url)


@lru_cache(1 << 16)
def canonical_page(url: str) -> str | None:
    """Return the canonical form of a URL; None if it is not one of a page. Most links of a crawl come many times."""
    try:
        return canonical(url).decode()
    except NotAPage:
        return None
