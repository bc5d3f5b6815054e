"""The requests for pages that a spider has made, in a file: which pages it wants, and how they are answered."""

from __future__ import annotations

import fcntl
import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from operator import attrgetter
from pathlib import Path

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from opicflow.pipelines.crawl.log import CHOSEN, READ, WANTED, AppendedFile, CrawlRecord, records_of
from opicflow.pipelines.crawl.scrapy.request_pages import host_of
from opicflow.schemas.errors import UserError

_LOGGER = logging.getLogger(__name__)
_SIZE_BITS = 32
_MOST_AT_HAND = 4096
"""Requests that are kept as they are until they are taken. The others are read from the file."""
_values_of = attrgetter(*Request.attributes)
_PLAIN = _values_of(Request("data:,"))


class RequestsInUse(UserError):
    """Another crawl uses the file."""


class StoredRequests:
    """Requests by canonical URL. A written record survives the end of the process, also a kill -9."""

    def __init__(self, path: Path, spider: Spider) -> None:
        """Open a file, or make one. An end that is no record is cut off. Raises `RequestsInUse`."""
        self._spider = spider
        self._file = AppendedFile(path)
        try:
            fcntl.flock(self._file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise RequestsInUse(
                f"{path.parent}: in use by another crawl: wait for it, or name another folder in OPICFLOW_FOLDER"
            ) from None
        self._at: dict[str, int] = {}
        """The beginning of the request of each page, and its bytes: one number, for the memory."""
        self._at_hand: dict[str, Request] = {}
        self._waiting: dict[str, None] = {}
        """The pages that were not taken, in the order in which they were added; those that come last are at the end."""
        self.waiting_hosts: Counter[str] = Counter()
        """The number of waiting pages of each host."""
        self.unfinished: dict[str, None] = {}
        """Pages that an earlier crawl had chosen, and that was ended before their callbacks were over."""
        self._redirected: set[str] = set()
        self._names: dict[tuple[object, object], tuple[str | None, str | None]] = {}
        """The names of the methods of the spider that are callbacks and errbacks, by their functions."""
        self._unwritten: list[bytes] = []
        """Records that are not written, in their order: written together, each takes less time."""
        self._not_in_file: dict[str, Request] = {}
        """The requests of these records."""
        self._end = 0
        """Up to where the file is when they are written."""
        for record, end in records_of(self._file.number, 0):
            self._read(record, end)
        self.unfinished = {url: None for url in self.unfinished if url in self._waiting}
        if cut := self._file.end - self._end:
            _LOGGER.warning("opicflow: the last %d bytes of %s are no record, and are cut off", cut, path)
            self._file.cut(self._end)

    def _read(self, record: CrawlRecord, end: int) -> None:
        self._end, url = end, record.head.decode()
        if record.kind == WANTED:
            self._at[url] = self._place_of(record)
            self._wait(url)
        elif record.kind == CHOSEN:
            self.unfinished[url] = None
        elif record.kind == READ:
            self._wait_no_more(url)
            self.unfinished.pop(url, None)
            if url not in self._at:
                self._redirected.add(url)

    def __contains__(self, url: str) -> bool:
        return url in self._at or url in self._redirected

    def __len__(self) -> int:
        return len(self._at)

    @property
    def waiting(self) -> int:
        """The number of pages that were not given out."""
        return len(self._waiting)

    @property
    def unwritten(self) -> int:
        """The number of records that are not written."""
        return len(self._unwritten)

    def add(self, url: str, request: Request) -> bool:
        """Add the request for a page. False if it cannot be stored: then the page does not wait here."""
        try:
            data = pickle.dumps(self._dict_of(request), protocol=4)
        except (AttributeError, TypeError, ValueError, pickle.PicklingError):
            return False
        record = CrawlRecord(WANTED, url.encode(), data)
        self._append(record)
        self._at[url] = self._place_of(record)
        self._wait(url)
        self._not_in_file[url] = request
        if len(self._at_hand) < _MOST_AT_HAND:
            self._at_hand[url] = request
        return True

    def take(self, url: str) -> Request:
        """Return the request for a page, which no longer waits in this process.

        Raises ValueError if the spider has no method of the name that its callback has.
        """
        self._wait_no_more(url)
        if (request := self._at_hand.pop(url, None) or self._not_in_file.get(url)) is not None:
            return request
        at, size = divmod(self._at[url], 1 << _SIZE_BITS)
        return request_from_dict(pickle.loads(os.pread(self._file.number, size, at)), spider=self._spider)

    def first(self, most: int) -> list[str]:
        """Return the pages that have waited longest, before those that come last."""
        return list(islice(self._waiting, most))

    def put_last(self, urls: Iterable[str]) -> None:
        """Let pages that wait come after all others that wait now."""
        for url in urls:
            if url in self._waiting:
                del self._waiting[url]
                self._waiting[url] = None

    def was_taken(self, url: str) -> None:
        """Note that a page is fetched without a request of the spider: another one has led to it."""
        self._redirected.add(url)

    def note(self, kind: bytes, urls: Iterable[str]) -> None:
        """Note that pages are fetched next (`CHOSEN`), or that the next crawl need not fetch them (`READ`)."""
        for url in urls:
            if url in self:
                self._append(CrawlRecord(kind, url.encode()))

    def write(self) -> None:
        """Write all records. Raises OSError if the disk is full: then they wait."""
        if self._unwritten:
            self._file.append(b"".join(self._unwritten))
            self._unwritten.clear()
            self._not_in_file.clear()

    def close(self) -> None:
        """Close the file. Unwritten records are lost."""
        self._file.close()

    def _wait(self, url: str) -> None:
        if url not in self._waiting:
            self._waiting[url] = None
            self.waiting_hosts[host_of(url)] += 1

    def _wait_no_more(self, url: str) -> None:
        if url in self._waiting:
            del self._waiting[url]
            name = host_of(url)
            self.waiting_hosts[name] -= 1
            if not self.waiting_hosts[name]:
                del self.waiting_hosts[name]

    def _append(self, record: CrawlRecord) -> None:
        data = record.packed()
        self._unwritten.append(data)
        self._end += len(data)

    def _place_of(self, record: CrawlRecord) -> int:
        """Return where the request of the last record is, and its bytes."""
        return (self._end - len(record.body)) << _SIZE_BITS | len(record.body)

    def _dict_of(self, request: Request) -> dict[str, object]:
        """Return what makes a request again: what Scrapy writes, without the values that a plain request has."""
        if type(request) is not Request:
            return request.to_dict(spider=self._spider)
        key = _function_of(request.callback), _function_of(request.errback)
        if key not in self._names:  # Scrapy looks through all methods of the spider
            whole = request.to_dict(spider=self._spider)
            self._names[key] = whole["callback"], whole["errback"]
        values = zip(Request.attributes, _values_of(request), _PLAIN, strict=True)
        kept: dict[str, object] = {name: value for name, value, plain in values if value != plain}
        kept["callback"], kept["errback"] = self._names[key]
        if request.headers:
            kept["headers"] = dict(request.headers)
        return kept


def _function_of(method: Callable[..., object] | str | None) -> object:
    return getattr(method, "__func__", method)
