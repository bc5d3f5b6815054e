"""Indexes of archives: lines of CDX and CDXJ, and rows of Common Crawl's columns (`fetch_status`)."""

from __future__ import annotations

import re

from opicflow.connectors.files.crawlers.record_format import (
    LineFormat,
    Record,
    RecordFormat,
    decoded_texts,
    http_status,
    number_at,
    parsed_object,
    refuse_other_methods,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason

_LINE = re.compile(
    rb"(?P<urlkey>\S+) (?P<timestamp>\d{14}) (?:(?P<packed>\{.*\})|(?P<url>[A-Za-z][\w.+-]*:\S+) (?P<mime>\S+)"
    rb" (?P<status>\d{3}|-) (?P<digest>\S+)(?: (?P<redirect>\S+)(?: \S+ \S+)? \d+ \S+| \d+))[ \r]*"
    rb"|(?P<CDX>CDX N b a m s k (?:r (?:M S )?V g|S))[ \r]*"
)
"""CDXJ; CDX with 9 or 11 columns, or the 7 that servers answer; the first line of a file, which names the columns."""
_LEGEND = "CDX"
_NOTHING = (None, "", "-")
_NAMES: dict[str, tuple[str, ...]] = {
    "time": ("fetch_time", "timestamp"),
    "status": ("fetch_status", "status"),
    "digest": ("content_digest", "digest"),
    "content_type": ("content_mime_detected", "mime-detected", "content_mime_type", "mime"),
    "redirect": ("fetch_redirect", "redirect"),
}
"""The names in both indexes; the first that is there counts."""
_REVISIT = "warc/revisit"
_WEB = ("http://", "https://")
_POSTED = "__wb_method="
"""Indexes have the method of a request, and its body, in the key of its URL."""


def _record_of(line: re.Match[bytes]) -> Record:
    """Return a line as an object. That of a line of CDXJ has the time, too."""
    parts = line.groupdict()
    packed = parts.pop("packed")
    return {**decoded_texts(parts), **(parsed_object(packed) if packed else {})}


def _read(record: Record) -> CrawlEvent | None:
    if _LEGEND in record:
        return None
    posted = (text_at(record, "urlkey") or "").partition(_POSTED)[2].partition("&")[0]
    named = {field: _first_of(names, record) for field, names in _NAMES.items()}
    revisit = text_at(named, "content_type") == _REVISIT
    if named["status"] is None and not url_at(record, "url").lower().startswith(_WEB):
        return None  # a lookup of a host, or a report of the crawler itself
    refuse_other_methods((text_at(record, "method") or posted or "GET").upper())
    code = 304 if revisit and named["status"] is None else number_at(named, "status")
    if code is None:
        raise EventRefused(Reason.BAD_FIELD, "status: there is none")
    status, target = http_status(code, "status"), text_at(named, "redirect")
    return CrawlEvent(
        url_at(record, "url"),
        fetched_at_ms=time_at(named, "time"),
        status=status,
        content_type=None if revisit else text_at(named, "content_type"),
        digest=text_at(named, "digest"),
        links=(Link(target),) if target and 300 <= status < 400 and status != 304 else None,
    )


def _first_of(names: tuple[str, ...], record: Record) -> object:
    return next((record[name] for name in names if record.get(name) not in _NOTHING), None)


FORMAT = RecordFormat(
    name="common-crawl",
    title="an index of an archive (CDX, Common Crawl)",
    lacks="an index has no links, so importance flows along redirects alone: replay the WAT files",
    signs=signs("url fetch_status", "url mime-detected", "url urlkey timestamp", _LEGEND),
    marks=("fetch_status", "mime-detected", "urlkey"),
    read=_read,
    line=LineFormat("an index of an archive", _LINE, _record_of),
)
