"""Reads the dumps of Nutch as text, with a record of several lines for each page.

`readseg -dump` writes those of a segment, with links, `readdb -dump` those of the crawldb.

The reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file. A
reader that starts at such an offset yields that item and all after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from opicflow.connectors.files.crawlers.nutch import FAILURES_OF_PROTOCOL, FORMAT, java_time_ms, protocol_of
from opicflow.connectors.files.crawlers.record_format import Record
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Item, reject_of
from opicflow.connectors.files.edges import lines_of
from opicflow.connectors.files.opening import Blocks
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, MOST_LINKS, CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.json_events import time_ms_of

RECORD = b"Recno:: "
_UNSAFE = (b"Content::", b"ParseText::")
"""Parts that have what strangers wrote, without any mark of where it ends."""
_LINK = re.compile(rb"  outlink: toUrl: (\S+)(?: anchor:.*)?", re.DOTALL)
_VALUE = re.compile(rb"(Status|Fetch time|Modified time|Retries since fetch|Retry interval|Signature): (.*)")
_NAMED = re.compile(rb"(?:Metadata:)?\s+(_pst_|Content-Type|Last-Modified)(?: ?= ?|: )(.*)")
_CRAWLDB = re.compile(rb"(\S+)\tVersion: \d+")
_STATUS = re.compile(r"(-?\d{1,3}) \(.*\)")
_PARSED = "success("

_FETCHED: dict[int, tuple[int | None, str | None]] = {
    33: (200, None),
    34: (None, "retry"),
    35: (302, None),
    36: (301, None),
    37: (None, "gone"),
    38: (304, None),
}
"""Statuses of fetches: the HTTP status, or the failure."""
_SIGNATURE = 65
_WAITING = (1, 2, 66)
"""Statuses of pages that a segment was to fetch, or that were injected."""
_OF_LINKS = (67, 68, 69)
_OTHER_DB = range(3, 10)


class _Part(NamedTuple):
    """A part of a record: its name, and its values by their names."""

    name: bytes
    values: dict[str, str]


class _SegmentRecord:
    """The lines of a page."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.original = bytearray()
        self.problem: EventRefused | None = None
        self.is_unsafe = False
        self._size_bytes = 0
        self._url = ""
        self._is_of_crawldb = False
        self._parts: list[_Part] = []
        self._links: list[Link] | None = None

    def add(self, line: bytes, problem: EventRefused | None) -> None:
        """Add a line."""
        self.problem = self.problem or problem
        self._size_bytes += len(line) + 1
        if len(self.original) < MOST_REJECTED_BYTES:
            self.original += line + b"\n"
        if self._size_bytes > MOST_EVENT_BYTES:
            self.problem = self.problem or EventRefused(
                Reason.TOO_LARGE, f"the record is longer than {MOST_EVENT_BYTES >> 20} MiB"
            )
            return
        try:
            self._add(line)
        except UnicodeDecodeError:
            self.problem = self.problem or EventRefused(Reason.NOT_UTF8, "the record is not UTF-8")

    def _add(self, line: bytes) -> None:
        if line.startswith(b"URL:: ") and not self._url:
            self._url = line[6:].decode().strip()
        elif not self._url and (found := _CRAWLDB.fullmatch(line)):
            self._url, self._is_of_crawldb = found[1].decode(), True
            self._parts.append(_Part(b"CrawlDatum::", {}))
        elif line in _UNSAFE:
            self.is_unsafe = True
        elif line.endswith(b"::") and b" " not in line:
            self._parts.append(_Part(line, {}))
        elif line.startswith(b"Outlinks: "):
            self._links = self._links or []
        elif self._links is not None and len(self._links) <= MOST_LINKS and (found := _LINK.fullmatch(line)):
            self._links.append(Link(found[1].decode()))
        elif self._parts and (found := _VALUE.fullmatch(line) or _NAMED.fullmatch(line)):
            self._parts[-1].values.setdefault(found[1].decode(), found[2].decode().strip())

    def event(self) -> CrawlEvent | None:
        """Return the event; None for a record that has only links to a page."""
        if self.problem is not None:
            raise self.problem
        if not self._url:
            raise EventRefused(Reason.NOT_AN_EVENT, "the record has no URL")
        data = [part.values for part in self._parts if part.name == b"CrawlDatum::"]
        if self._is_of_crawldb:
            return FORMAT.read(_record_of(self._url, data[0]))
        codes = [_status_of(values) for values in data]
        fetches = [(values, code) for values, code in zip(data, codes, strict=True) if code in _FETCHED]
        if not fetches:
            return CrawlEvent(self._url, announce=True) if any(code in _WAITING for code in codes) else None
        values, code = fetches[-1]
        protocol, target = protocol_of(values.get("_pst_"))
        status, failure = _FETCHED[code]
        parsed = next((part.values for part in self._parts if part.name == b"ParseData::"), {})
        links = self._links if parsed.get("Status", "").startswith(_PARSED) else None
        signatures = [one.get("Signature") for one, code in zip(data, codes, strict=True) if code == _SIGNATURE]
        fetched_at, modified = values.get("Fetch time"), parsed.get("Last-Modified")
        if status in (301, 302):
            links = [Link(target)] if target else None
        return CrawlEvent(
            self._url,
            fetched_at_ms=java_time_ms(fetched_at, "Fetch time") if fetched_at else None,
            status=status,
            failure=FAILURES_OF_PROTOCOL.get(protocol, failure) if failure else None,
            content_type=parsed.get("Content-Type") or values.get("Content-Type"),
            digest=signatures[0] if signatures else None,
            last_modified_ms=time_ms_of(modified),
            links=None if links is None else tuple(links),
        )


def _record_of(url: str, values: dict[str, str]) -> Record:
    """Return a page of the crawldb as its dump in JSON has it."""
    status = _STATUS.fullmatch(values.get("Status", ""))
    return {
        "url": url,
        "statusCode": status[1] if status else None,
        "fetchTime": values.get("Fetch time"),
        "modifiedTime": values.get("Modified time"),
        "retriesSinceFetch": values.get("Retries since fetch"),
        "retryIntervalSeconds": values.get("Retry interval", "").partition(" ")[0],
        "signature": values.get("Signature"),
        "metadata": {"_pst_": values.get("_pst_")},
    }


def _status_of(values: dict[str, str]) -> int:
    found = _STATUS.fullmatch(values.get("Status", ""))
    code = int(found[1]) if found else None
    if code not in _FETCHED and code not in (*_WAITING, *_OF_LINKS, *_OTHER_DB, _SIGNATURE):
        raise EventRefused(Reason.BAD_FIELD, f"Status: {values.get('Status', '')[:40]!r} is no status of Nutch")
    assert code is not None
    return code


def read_nutch_segment(blocks: Blocks, source: str) -> Iterator[Item]:
    """Yield the visits of a dump, and announcements of pages that were not fetched.

    A dump with the contents of pages is one reject from the first content on: a page may contain text that looks like
    records.
    """
    record: _SegmentRecord | None = None
    is_after_blank, lines = True, lines_of(blocks)
    for offset, ended_line, problem in lines:
        line = ended_line.removesuffix(b"\r")
        if is_after_blank and (line.startswith(RECORD) or _CRAWLDB.fullmatch(line)):
            if record is not None:
                yield from _items_of(record, source)
            record = _SegmentRecord(offset)
        if record is not None:
            record.add(line, problem)
            if record.is_unsafe:
                break
        elif line or problem:
            refused = problem or EventRefused(Reason.NOT_AN_EVENT, "the line is before the first record")
            yield offset, reject_of(refused, source, offset, line)
        is_after_blank = not line
    if record is None:
        return
    if record.is_unsafe:
        detail = "the dump has contents of pages: it is not read from here on: dump with -nocontent -noparsetext"
        refused = EventRefused(Reason.WRONG_SCHEMA, detail)
        yield record.offset, reject_of(refused, source, record.offset, bytes(record.original))
        for _ in lines:
            pass
        return
    yield from _items_of(record, source)


def _items_of(record: _SegmentRecord, source: str) -> Iterator[Item]:
    try:
        event = record.event()
    except EventRefused as refused:
        yield record.offset, reject_of(refused, source, record.offset, bytes(record.original))
        return
    if event is not None:
        yield record.offset, event
