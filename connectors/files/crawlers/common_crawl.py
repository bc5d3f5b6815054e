"""Common Crawl: rows of its two indexes, the columns (`fetch_status`) and the URL index (CDXJ, `mime-detected`)."""

from __future__ import annotations

import re

from opicflow.connectors.files.crawlers.record_format import (
    LineFormat,
    Record,
    RecordFormat,
    http_status,
    number_at,
    parsed_object,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason

_LINE = re.compile(rb"(\S+) (\d{14}) (\{.*\})[ \r]*")
_NAMES: dict[str, tuple[str, ...]] = {
    "time": ("fetch_time", "timestamp"),
    "status": ("fetch_status", "status"),
    "digest": ("content_digest", "digest"),
    "content_type": ("content_mime_detected", "mime-detected", "content_mime_type", "mime"),
    "redirect": ("fetch_redirect", "redirect"),
}
"""The names in both indexes; the first that is there counts."""
_REVISIT = "warc/revisit"


def _record_of(line: re.Match[bytes]) -> Record:
    """Return a line of a CDXJ index, a key, a time and an object, as an object that has the time, too."""
    return {"timestamp": line[2].decode(), "urlkey": "", **parsed_object(line[3])}


def _read(record: Record) -> CrawlEvent:
    named = {field: _first_of(names, record) for field, names in _NAMES.items()}
    revisit = text_at(named, "content_type") == _REVISIT
    code = 304 if revisit and named["status"] in (None, "", "-") else number_at(named, "status")
    if code is None:
        raise EventRefused(Reason.BAD_FIELD, "status: there is none")
    status, target = http_status(code, "status"), text_at(named, "redirect")
    return CrawlEvent(
        url_at(record, "url"),
        fetched_at_ms=time_at(named, "time"),
        status=status,
        content_type=None if revisit else text_at(named, "content_type"),
        digest=text_at(named, "digest"),
        links=(Link(target),) if target and target != "-" and 300 <= status < 400 and status != 304 else None,
    )


def _first_of(names: tuple[str, ...], record: Record) -> object:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


FORMAT = RecordFormat(
    name="common-crawl",
    title="an index of Common Crawl",
    lacks="an index has no links, so importance flows along redirects alone: replay the WAT files",
    signs=signs("url fetch_status", "url mime-detected", "url urlkey timestamp"),
    marks=("fetch_status", "mime-detected", "urlkey"),
    read=_read,
    line=LineFormat("an index of Common Crawl", _LINE, _record_of),
)
