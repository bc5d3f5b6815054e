"""The requests for pages that a spider has made, in a file: which pages it wants, and how they are answered."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from scrapy.utils.request import request_from_dict

from opicflow.pipelines.recorder.stored_pages import CHOSEN, HEAD, WANTED, stored_pages
from opicflow.schemas.errors import UserError
from scrapy import Request, Spider

_SIZE_BITS = 32
_MOST_AT_HAND = 4096
"""Requests that are kept as they are until they are taken. The others are read from the file."""
_OFTEN_SET = ("url", "callback", "errback", "headers", "meta")
_OTHERS = tuple(name for name in Request.attributes if name not in _OFTEN_SET)
_values_of = attrgetter(*_OTHERS)
_PLAIN = _values_of(Request("data:,"))


class RequestsInUse(UserError):
    """Another crawl uses the file."""


class StoredRequests:
    """Requests by canonical URL. What is written survives the end of the process, also a kill -9."""

    def __init__(self, path: Path, spider: Spider) -> None:
        """Open a file, or make one. A last record that is not whole is cut off. Raises `RequestsInUse`."""
        self._spider = spider
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise RequestsInUse(
                f"{path.parent}: in use by another crawl: wait for it, or name another folder in OPICFLOW_FOLDER"
            ) from None
        self._at: dict[str, int] = {}
        """The beginning of the request of each page, and its bytes: one number, for the memory."""
        self._at_hand: dict[str, Request] = {}
        self._waiting: dict[str, None] = {}
        """The pages that were not taken, in the order in which they were added."""
        self.unfinished: dict[str, None] = {}
        """Pages that an earlier crawl had chosen, and that was ended before their callbacks were over."""
        self._redirected: set[str] = set()
        self._names: dict[tuple[object, object], tuple[Any, Any]] = {}
        """The names of the methods of the spider that are callbacks and errbacks, by their functions."""
        self._added: dict[str, Request] = {}
        """Requests that have no record yet. Records are made together, and written together: each takes less time."""
        self._unwritten: dict[str, Request] = {}
        """Those of the records that are not written."""
        self._records: list[bytes] = []
        """The records of these requests."""
        self._notes: list[bytes] = []
        """The other records that are not written. They follow those of the requests."""
        self._written = 0
        """Up to where the file is written."""
        for kind, url, start, end in stored_pages(self._file, 0):
            self._written = end
            if kind == WANTED:
                self._at[url] = start << _SIZE_BITS | (end - start)
                self._waiting[url] = None
            elif kind == CHOSEN:
                self.unfinished[url] = None
            else:
                self._waiting.pop(url, None)
                self.unfinished.pop(url, None)
                if url not in self._at:
                    self._redirected.add(url)
        self.unfinished = {url: None for url in self.unfinished if url in self._waiting}
        os.ftruncate(self._file, self._written)
        self._end = self._written
        """Up to where it is after the records of the requests are written."""

    def __contains__(self, url: str) -> bool:
        return url in self._at or url in self._added or url in self._redirected

    @property
    def waiting(self) -> int:
        """The number of pages that were not given out."""
        return len(self._waiting)

    def add(self, url: str, request: Request) -> None:
        """Add the request for a page."""
        self._added[url] = request
        self._waiting[url] = None

    def make_records(self) -> list[Request]:
        """Make the records of what was added. Returns requests that cannot be stored: their pages do not wait here."""
        refused = []
        for url, request in self._added.items():
            try:
                data = pickle.dumps(self._dict_of(request), protocol=4)
            except (AttributeError, TypeError, ValueError, pickle.PicklingError):
                del self._waiting[url]
                refused.append(request)
                continue
            record = _record(WANTED, url, data)
            self._records.append(record)
            self._end += len(record)
            self._at[url] = (self._end - len(data)) << _SIZE_BITS | len(data)
            at_hand = self._at_hand if len(self._at_hand) < _MOST_AT_HAND else self._unwritten
            at_hand[url] = request
        self._added.clear()
        return refused

    def __len__(self) -> int:
        return len(self._at)

    def take(self, url: str) -> Request:
        """Return the request for a page, which no longer waits in this process. Its record was made.

        Raises ValueError if the spider has no method of the name that its callback has.
        """
        self._waiting.pop(url, None)
        if (request := self._at_hand.pop(url, None) or self._unwritten.get(url)) is not None:
            return request
        at, size = divmod(self._at[url], 1 << _SIZE_BITS)
        return request_from_dict(pickle.loads(os.pread(self._file, size, at)), spider=self._spider)

    def first(self, most: int) -> list[str]:
        """Return the pages that have waited longest."""
        return list(islice(self._waiting, most))

    def was_taken(self, url: str) -> None:
        """Note that a page is fetched without a request of the spider: another one has led to it."""
        self._redirected.add(url)

    def note(self, kind: bytes, urls: Iterable[str]) -> None:
        """Note that pages are fetched next (`CHOSEN`), or that the next crawl need not fetch them (`READ`)."""
        self._notes += [_record(kind, url) for url in urls if url in self]

    @property
    def unwritten(self) -> int:
        """The number of requests and notes that are not written."""
        return len(self._added) + len(self._records) + len(self._notes)

    def write(self) -> None:
        """Write all records. Raises OSError if the disk is full: then they wait."""
        records = b"".join(self._records + self._notes)
        if not records:
            return
        if os.write(self._file, records) < len(records):
            os.ftruncate(self._file, self._written)
            raise OSError(28, "No space left on device")
        self._written += len(records)
        self._end = self._written
        self._records.clear()
        self._notes.clear()
        self._unwritten.clear()

    def close(self) -> None:
        """Close the file. What was not written is lost."""
        os.close(self._file)

    def _dict_of(self, request: Request) -> dict[str, Any]:
        """Return what makes a request again: what Scrapy writes, without the values that a plain request has."""
        if type(request) is not Request:
            return request.to_dict(spider=self._spider)
        key = _function_of(request.callback), _function_of(request.errback)
        if key not in self._names:  # Scrapy looks through all methods of the spider
            whole = request.to_dict(spider=self._spider)
            self._names[key] = whole["callback"], whole["errback"]
        callback, errback = self._names[key]
        kept: dict[str, Any] = {"url": request.url}
        if callback is not None:
            kept["callback"] = callback
        if errback is not None:
            kept["errback"] = errback
        if request.headers:
            kept["headers"] = dict(request.headers)
        if request.meta:
            kept["meta"] = request.meta
        values = _values_of(request)
        if values != _PLAIN:
            others = zip(_OTHERS, values, _PLAIN, strict=True)
            kept |= {name: value for name, value, plain in others if value != plain}
        return kept


def _record(kind: bytes, url: str, data: bytes = b"") -> bytes:
    name = url.encode()
    return HEAD.pack(kind, len(name), len(data)) + name + data


def _function_of(method: object) -> object:
    return getattr(method, "__func__", method)
