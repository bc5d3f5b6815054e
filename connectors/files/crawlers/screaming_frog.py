"""Screaming Frog: the tables of pages (Internal, Response Codes, …), and of links (All Inlinks, All Outlinks)."""

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
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.json_events import time_ms_of

_COLUMNS = frozenset(("Address", "status_code", "status", "Indexability"))
"""The columns of every table of pages, as the reader of CSV gives their names."""
_NO_ANSWER = 0
_ROBOTS = "blocked by robots.txt"
_LINKS = ("Hyperlink", "AHREF", "Iframe", "HTTP Redirect")
"""The types of links along which importance flows: not those of images, scripts, style sheets or canonical pages."""


def _read(record: Record) -> CrawlEvent:
    url, code = url_at(record, "Address"), number_at(record, "status_code")
    if code is None:
        raise EventRefused(Reason.BAD_FIELD, "Status Code: there is none: it was not crawled")
    words, target = (text_at(record, "status") or "").lower(), text_at(record, "Redirect URL")
    status = None if code == _NO_ANSWER else http_status(code, "Status Code")
    return CrawlEvent(
        url,
        fetched_at_ms=time_at(record, "Crawl Timestamp"),
        status=status,
        failure=None if status else "robots" if words == _ROBOTS else "no-answer",
        canonical=text_at(record, "Canonical Link Element 1") if status and status < 300 else None,
        content_type=text_at(record, "content_type"),
        digest=text_at(record, "Hash"),
        last_modified_ms=time_ms_of(record.get("last_modified")),
        links=(Link(target),) if target and status and 300 <= status < 400 else None,
    )


def _link_of(record: Record) -> list[str]:
    """Return the page and the target of a link that counts; an empty list for any other."""
    if text_at(record, "Type") not in _LINKS or (text_at(record, "Follow") or "").lower() == "false":
        return []
    return [url_at(record, "Source"), url_at(record, "Destination")]


FORMAT = RecordFormat(
    name="screaming-frog",
    title="Screaming Frog's table of pages",
    lacks="it has no links, so importance flows along redirects alone: export All Outlinks, and read them with "
    "--input-format screaming-frog-links",
    signs=signs("Address Indexability", "Type Source Destination"),
    read=_read,
    link_of=_link_of,
    columns=_COLUMNS,
)
