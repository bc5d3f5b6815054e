"""Browsertrix: the lists of pages of a crawl, pages.jsonl and extraPages.jsonl."""

from __future__ import annotations

from opicflow.connectors.files.crawlers.record_format import (
    Record,
    RecordFormat,
    http_status,
    number_at,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason

_HEADER = "json-pages-"
_NOT_LOADED, _MOST_LOADED = 0, 4


def _fits(record: Record) -> bool:
    return "url" in record if "loadState" in record or "ts" in record else _is_header(record)


def _is_header(record: Record) -> bool:
    name = record.get("format")
    return isinstance(name, str) and name.startswith(_HEADER)


def _read(record: Record) -> CrawlEvent | None:
    if _is_header(record) and "url" not in record:
        return None
    state, status = number_at(record, "loadState"), number_at(record, "status")
    if state is not None and not _NOT_LOADED <= state <= _MOST_LOADED:
        raise EventRefused(Reason.BAD_FIELD, f"loadState: {str(state)[:20]} is no state of Browsertrix")
    failed = not status and state == _NOT_LOADED
    return CrawlEvent(
        url_at(record, "url"),
        fetched_at_ms=time_at(record, "ts"),
        status=http_status(status, "status") if status else None,
        failure="not-loaded" if failed else None,
        content_type=text_at(record, "mime"),
    )


FORMAT = RecordFormat(
    name="browsertrix",
    title="Browsertrix's pages.jsonl",
    lacks="lists of pages have no links, so no importance flows: replay the WACZ file, or its WARC files",
    signs=signs("url loadState", "format id"),
    marks=("loadState",),
    read=_read,
    fits=_fits,
    weak_signs=signs("url ts"),
)
