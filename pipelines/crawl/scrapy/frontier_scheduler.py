"""A scheduler for Scrapy whose pages wait in a frontier. All other requests wait in Scrapy's own queues."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.asyncio import sleep
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from opicflow.pipelines.crawl.log import (
    ANNOUNCEMENT,
    CHOSEN,
    READ,
    REQUESTS_NAME,
    VISIT,
    CrawlRecord,
    InboxRefused,
    InboxWriter,
)
from opicflow.pipelines.crawl.recorder.protocol import VisitEvent
from opicflow.pipelines.crawl.scrapy import garbage
from opicflow.pipelines.crawl.scrapy.addon_settings import FOLDER, recorder_config, url_rules
from opicflow.pipelines.crawl.scrapy.callbacks import Callbacks
from opicflow.pipelines.crawl.scrapy.ready_pages import ReadyPages
from opicflow.pipelines.crawl.scrapy.recorder_process import RecorderProcess, RecorderRefused
from opicflow.pipelines.crawl.scrapy.request_pages import RequestPages, host_of, quality_of
from opicflow.pipelines.crawl.scrapy.stored_requests import StoredRequests
from opicflow.schemas.errors import UserError, in_one_line, printable

_LOGGER = logging.getLogger(__name__)
_AT_ONCE = 16
_PAGES_AN_ORDER, _PAGES_AN_AHEAD = 64, 32
"""So many pages were read for each page that is chosen at once, and for each that waits while its host has no room."""
_MOST_LOOKED_AT = 256
_MOST_PASSED_OVER = 64
_IDLE_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
"""Between two looks at the recorder, while nothing is fetched."""
_WRITE_SECONDS = 0.1
"""Requests and notes are written at this interval, if nothing needs them before."""
_MOST_UNWRITTEN = 256


class FolderRefused(UserError):
    """The folder of a crawl cannot be used."""


class FrontierScheduler(Scheduler):
    """Gives out the pages that a spider wants in the order of a frontier: unread ones, and those that are due again.

    A page is what a plain GET fetches. Requests with a body or another method, retries, redirects, and requests that
    cannot be stored are scheduled as Scrapy does it. A spider gets each page once, and again when it is due. A page
    whose callback was not over when a crawl was killed, and one that could not be fetched, is for the next crawl.

    The order of records in the log is that of log.py. Each visit is written at once, all else for many pages together,
    which takes less time.
    """

    requests: StoredRequests
    pages: RequestPages
    _is_open = False

    def open(self, spider: Spider) -> Deferred[None]:
        """Start the recorder of a spider, and wait until its frontier is open."""
        return deferred_from_coro(self._open_when_ready(spider))

    async def _open_when_ready(self, spider: Spider) -> None:
        """Wait without holding up other spiders of the process, or an interrupt."""
        try:
            self._open_folder(spider)
            await self._wait_for_recorder()
        except UserError as problem:
            self._refuse(problem)
            return
        self._begin()
        if (opened := super().open(spider)) is not None:
            await maybe_deferred_to_future(opened)

    def _open_folder(self, spider: Spider) -> None:
        assert self.crawler is not None
        config = recorder_config(self.crawler.settings, spider.name)
        folder, self.pages = Path(config.folder), RequestPages(url_rules(config.settings))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.requests = StoredRequests(folder / REQUESTS_NAME, spider)
            self._inbox = InboxWriter(folder)
        except OSError as problem:
            why = f"{problem.filename or folder}: {problem.strerror}"
            raise FolderRefused(f"{why}: name a folder that can be written to in {FOLDER}") from None
        _LOGGER.info("opicflow: the crawl is recorded in %s", folder)
        self._recorder = RecorderProcess(config, self._count)

    async def _wait_for_recorder(self) -> None:
        try:
            while not self._recorder.is_ready():
                await sleep(_PAUSE_SECONDS)
        except RecorderRefused:
            self._inbox.close(all_are_taken=False)
            self.requests.close()
            raise

    def _refuse(self, problem: UserError) -> None:
        """End the crawl before its first request, in a line and without tracebacks. Scrapy's exit code is 1 then."""
        assert self.crawler is not None
        _LOGGER.error("opicflow: the crawl cannot begin: %s", problem)
        self.crawler.signals.connect(self._end_at_once, signals.spider_opened)
        self.crawler.signals.connect(self._forget_spider, signals.spider_closed)

    def _end_at_once(self) -> None:
        """Close the spider when all components are open: what Scrapy has opened, it can close."""
        raise CloseSpider("opicflow_cannot_begin")

    def _forget_spider(self) -> None:
        """A crawl that ends without a spider has failed, for Scrapy."""
        assert self.crawler is not None
        self.crawler.spider = None

    def _begin(self) -> None:
        assert self.crawler is not None and self.crawler.engine is not None
        downloader, hosts = self.crawler.engine.downloader, self.requests.waiting_hosts
        self._ready = ReadyPages(downloader, self.pages, hosts, self.requests.unfinished)
        """Pages that the frontier has chosen; first those that were under way when an earlier crawl was killed."""
        self._out: set[str] = set(self._ready)
        """These, and those that are being fetched."""
        self._landed_since: set[str] = set()
        """Those that were fetched since the last request for pages, which may choose them once more."""
        self._own_choice: set[str] = set()
        """Those that are being fetched and that the frontier does not know of."""
        self._passed_over = self._to_pass_over = 0
        """The choices made without the frontier, which had no waiting page, and those that are left."""
        self._has_no_page = False
        """Whether the last answer of the frontier had no waiting page."""
        self._last_idle_query_at = -math.inf
        self._has_due_pages = False
        """Whether the last answer had pages, and no page waits to be read: more may be due again."""
        self.crawler.signals.connect(self._ready.take_answer, signals.response_downloaded)
        self._callbacks = Callbacks(self.crawler, self.pages)
        self._announced: dict[str, float | None] = {}
        """Pages that are to be announced, and their quality."""
        self._write_at = -math.inf
        self._has_given_some = self._is_stopping = self._is_behind = False
        self._unusable: set[str] = set()
        """Why requests of earlier crawls cannot be made: each reason is logged once."""
        self._counts: Counter[str] = Counter()
        """Counts that the statistics of the crawl do not have yet: counting there takes longer than finding a page."""
        self._is_open = True
        self._leaves_out_garbage = garbage.leave_out()

    def close(self, reason: str) -> Deferred[None] | None:
        """Wait until the recorder has taken everything, and has saved the frontier."""
        if not self._is_open:
            return None
        if self._leaves_out_garbage:
            garbage.search_again()
        self._end_callbacks(are_all_over=True)
        self._write()
        self._pass_on_counts()
        if len(self.requests) and not (self._has_given_some or self._unusable):
            _LOGGER.info(
                "opicflow: this crawl has fetched no page: all that the spider wants were read before (%s), and none "
                "of them is due",
                f"{len(self.requests):,}",
            )
        return deferred_from_coro(self._close_when_saved(reason))

    async def _close_when_saved(self, reason: str) -> None:
        """Wait without holding up other spiders of the process, or an interrupt."""
        self._recorder.begin_to_end()
        while (has_saved := self._recorder.has_saved()) is None:
            await sleep(_PAUSE_SECONDS)
        self._inbox.close(all_are_taken=has_saved)
        self.requests.close()
        if (closed := super().close(reason)) is not None:
            await maybe_deferred_to_future(closed)

    def has_pending_requests(self) -> bool:
        """Whether a page waits, or another request."""
        return self._ready.is_one_awaited or super().has_pending_requests()

    def enqueue_request(self, request: Request) -> bool:
        """Store a request. False if the spider has made one for the same page before."""
        url = self.pages.of_request(request)
        if url is None:
            return super().enqueue_request(request)
        meta = request.meta
        is_first, hops = meta.get("is_start_request", False), meta.get("redirect_urls", ())
        is_known, is_new_hop = url in self.requests, bool(hops) and request.url not in hops
        if is_known and (is_first or is_new_hop or not (hops or request.dont_filter)):
            self.df.log(request, self.spider)
            return False
        if is_new_hop:
            self.requests.was_taken(url)
        if "retry_times" in meta and self._ready.rests(request.url):
            self._ready.retry_later(request)
            return True
        is_followed_up = hops or "retry_times" in meta or (request.dont_filter and not is_first)
        if is_followed_up or not self.requests.add(url, request):
            return super().enqueue_request(request)
        quality = quality_of(request)
        if is_first or quality is not None:
            self._announce(url, quality)
        if self.requests.unwritten >= _MOST_UNWRITTEN:
            self._write()
        self._counts["enqueued"] += 1
        return True

    def next_request(self) -> Request | None:
        """Return the next request: retries, what Scrapy's own queues have, then the first page of the frontier."""
        if (self._inbox.is_full or self._is_behind) and not self._is_caught_up():
            self._write_what_is_over()
            return None
        request = self._ready.take_retry() or super().next_request()
        if request is not None:
            return request
        if time.monotonic() >= self._write_at:
            self._write_what_is_over()
        self._choose()
        while (url := self._ready.take() or self._oldest()) is not None:
            try:
                request = self.requests.take(url)
            except Exception as problem:  # such as of a class that the project no longer has
                self._pass_over(in_one_line(problem))
                continue
            self._has_given_some = True
            self._counts["dequeued"] += 1
            if self._counts["dequeued"] >= _AT_ONCE:
                self._pass_on_counts()
            return request
        return None

    def _oldest(self) -> str | None:
        """Take the page that has waited longest of a host with room: the frontier does not know it, or is late.

        Traps and twins, as far as it has found them, come after the pages that waited then.
        """
        oldest = (url for url in self.requests.first(_MOST_LOOKED_AT) if url not in self._out)
        url = self._ready.first_with_room((url, host_of(url)) for url in oldest)
        if url is None:
            return None
        if self._has_no_page:  # although a host has room
            self._to_pass_over = self._passed_over = min(2 * self._passed_over + 1, _MOST_PASSED_OVER)
            self._has_no_page = False
        self._make_ready([url])
        self._own_choice.add(url)
        return self._ready.take()

    def _write_what_is_over(self) -> None:
        self._write_at = time.monotonic() + _WRITE_SECONDS
        self._end_callbacks(are_all_over=False)
        self._write()

    def _is_caught_up(self) -> bool:
        """Whether the recorder has taken so much of a full inbox that the crawl may go on. Scrapy calls in 5 s."""
        self._recorder.progress()  # one that was ended is started again
        was_behind, self._is_behind = self._is_behind, self._inbox.is_full
        if self._is_behind and self._recorder.is_given_up:
            self._stop_crawl("no recorder takes the visits that wait: the next crawl records them")
        elif self._is_behind and not was_behind:
            megabytes = self._inbox.waiting_bytes >> 20
            _LOGGER.warning("opicflow: the crawl waits: its recorder is behind by %d MB", megabytes)
        elif was_behind and not self._is_behind:
            _LOGGER.info("opicflow: the crawl goes on")
        return not self._is_behind

    def _pass_over(self, why: str) -> None:
        """Leave a request of an earlier crawl to one that can make it."""
        self._count("opicflow/requests_without_callback", 1)
        if why not in self._unusable:
            self._unusable.add(why)
            _LOGGER.error("opicflow: requests of an earlier crawl wait for a spider that can make them: %s", why)

    def _choose(self) -> None:
        """Let the recorder choose pages: it does so while those that it has chosen before are fetched."""
        usable = self._ready.usable()
        if not self._recorder.is_asked:
            self._ask(usable)
        if not self._recorder.is_asked:
            return
        given = self._recorder.answer(waits=not usable and self._ready.is_a_host_free)
        if given is None:
            return
        self.requests.put_last(self._recorder.take_later())
        chosen = [url for url in given if url not in self._out and url not in self._landed_since]
        self._make_ready(chosen)
        self._has_no_page = not chosen and self.requests.waiting > 0
        self._has_due_pages = bool(given) and not self.requests.waiting
        if not self._has_no_page:
            self._passed_over = 0

    def _ask(self, usable: int) -> None:
        """Ask the recorder for pages, if the hosts that have some wait for more and it has a choice."""
        at_once, is_idle = self._at_once(), not self.requests.waiting
        if usable >= at_once or (is_idle and not self._is_due_query()):
            return
        ahead = self._read_pages() // _PAGES_AN_AHEAD // max(1, len(self.requests.waiting_hosts))
        rooms = self._ready.rooms(ahead)
        if is_idle and rooms and not any(rooms.values()):
            self._last_idle_query_at = -math.inf  # as soon as a host has room
            return
        if not (is_idle or (self._ready.lacks_pages(rooms, ahead) and self._is_choice())):
            return
        self._landed_since.clear()
        self._write()  # the recorder reads which pages wait
        self._recorder.ask(at_once, [*self._own_choice], 1 + min(ahead, 1), rooms)
        self._own_choice.clear()

    def _at_once(self) -> int:
        """Return how many pages to choose at once: few in the first pages of a crawl, as each changes the order."""
        return min(max(1, self._read_pages() // _PAGES_AN_ORDER), _AT_ONCE)

    def _read_pages(self) -> int:
        return len(self.requests) - self.requests.waiting

    def _make_ready(self, urls: list[str]) -> None:
        """Fetch pages next, and note so: if the crawl is killed, the next one fetches them first."""
        if not urls:
            return
        self.requests.note(CHOSEN, urls)
        self._write()
        self._ready.add(urls)
        self._out.update(urls)

    def _announce(self, url: str, quality: float | None) -> None:
        """Let a page be reported that is not known from a link, or how good a page is."""
        if quality is not None or url not in self._announced:
            self._announced[url] = quality

    def record(self, event: VisitEvent, urls: Sequence[str], is_done: bool, body: bytes = b"") -> None:
        """Report a visit that is over now, or that has failed, with the content of an HTML page.

        `urls` are those of its page, and of pages that have led to it. `is_done`: no callback gets them, now or later.
        """
        event["fetched_at"] = int(1000 * _clock())
        if not self._report(VISIT, event, event["url"], body):
            return
        pages = self.land(urls)
        if is_done:
            self.requests.note(READ, pages)

    def land(self, urls: Sequence[str]) -> list[str]:
        """Note that these URLs are no longer being fetched. Returns their pages."""
        pages = self.pages.of_urls(urls)
        self._out.difference_update(pages)
        self._own_choice.difference_update(pages)
        if self._has_due_pages:  # there may be more, now that the host has room
            self._last_idle_query_at = -math.inf
        if self._recorder.is_asked:
            self._landed_since.update(pages)
        return pages

    def _report(self, kind: bytes, event: object, what: str, body: bytes = b"") -> bool:
        try:
            self._inbox.append(CrawlRecord(kind, orjson.dumps(event), body))
        except (InboxRefused, TypeError) as problem:
            _LOGGER.warning("opicflow: the report of %s is not recorded: %s", printable(what), printable(str(problem)))
            self._count("opicflow/reports_refused", 1)
            if isinstance(problem, InboxRefused):
                self._stop_crawl(str(problem))
            return False
        return True

    def callback_begins(self, response: Response, request: Request) -> None:
        """Note that a page is with its callback, and is done when that is over."""
        self._callbacks.begin(response, request)

    def _end_callbacks(self, are_all_over: bool) -> None:
        """Note which pages are done."""
        for callback in self._callbacks.take_over(are_all_over):
            self.requests.note(READ, callback.done_pages)
            if (found := callback.new_quality) is not None:
                self._announce(*found)

    def _write(self) -> None:
        """Write announcements, requests, and notes."""
        if self._announced:
            self._report(ANNOUNCEMENT, self._announced, "announced pages")
            self._announced.clear()
        try:
            self.requests.write()
        except OSError as problem:
            self._stop_crawl(f"which pages are wanted, and were fetched, cannot be written down ({problem.strerror})")

    def _stop_crawl(self, why: str) -> None:
        """End the crawl in good order: pages that it fetches from now on would be lost."""
        engine = None if self.crawler is None else self.crawler.engine
        if not self._is_stopping and engine is not None:
            self._is_stopping = True
            _LOGGER.error("opicflow: the crawl ends: %s", why)
            deferred_from_coro(engine.close_spider_async(reason="opicflow_cannot_write"))

    def _pass_on_counts(self) -> None:
        for name, count in self._counts.items():
            self._count(f"scheduler/{name}/opicflow", count)
            self._count(f"scheduler/{name}", count)
        self._counts.clear()

    def _count(self, name: str, count: int) -> None:
        if self.stats is not None:
            self.stats.inc_value(name, count)

    def _is_due_query(self) -> bool:
        """Whether it is time to ask for pages that are due again, as none waits to be read."""
        now = time.monotonic()
        if now - self._last_idle_query_at < _IDLE_SECONDS:
            return False
        self._last_idle_query_at = now
        return True

    def _is_choice(self) -> bool:
        """Whether the frontier has to choose which waiting page is next. A plan takes time for all pages known."""
        if self.requests.waiting - len(self._ready) <= self._at_once():  # all are fetched next
            return False
        self._to_pass_over -= 1
        return self._to_pass_over < 0


def scheduler_of(crawler: Crawler) -> FrontierScheduler | None:
    """Return the scheduler of a crawl that runs; None if the project has chosen another one."""
    scheduler = None if crawler.engine is None else crawler.engine.scheduler
    return scheduler if isinstance(scheduler, FrontierScheduler) else None


def _clock() -> float:
    return time.time()  # noqa: TID251 - a crawl happens now
