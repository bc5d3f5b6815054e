"""Apify: items of data sets with what its crawlers add, `crawl` (Website Content Crawler) or `#debug` (Web Scraper)."""

from __future__ import annotations

from opicflow.connectors.files.crawlers.record_format import (
    Record,
    RecordFormat,
    http_status,
    number_at,
    object_at,
    refuse_other_methods,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason

_PARTS = {"crawl": "httpStatusCode", "#debug": "statusCode"}
"""The parts that report the fetch, and their names of its status. In CSV a name is PART/NAME."""
_TIME, _CANONICAL = "loadedTime", "canonicalUrl"


def _part(record: Record, name: str) -> Record:
    """Return an object of an item, also of a row of CSV."""
    of_csv = {key.removeprefix(f"{name}/"): value for key, value in record.items() if key.startswith(f"{name}/")}
    return object_at(record, name) or of_csv


def _fits(record: Record) -> bool:
    return any(status in _part(record, name) for name, status in _PARTS.items())


def _read(record: Record) -> CrawlEvent:
    name, status = next((name, status) for name, status in _PARTS.items() if status in _part(record, name))
    fetch, url = _part(record, name), text_at(record, "url")
    refuse_other_methods(text_at(fetch, "method") or "GET")
    requested = url or url_at(fetch, "url")
    answered, code = text_at(fetch, "loadedUrl") or requested, number_at(fetch, status)
    if code is None and record.get("#error") is not True:
        raise EventRefused(Reason.BAD_FIELD, f"{name}.{status}: there is none")
    return CrawlEvent(
        answered,
        fetched_at_ms=time_at(fetch, _TIME),
        status=None if code is None else http_status(code, f"{name}.{status}"),
        failure="error" if code is None else None,
        redirects=(requested,) if answered != requested else (),
        canonical=text_at(_part(record, "metadata"), _CANONICAL),
    )


FORMAT = RecordFormat(
    name="apify",
    title="Apify's items",
    lacks="items have no links, so importance flows along redirects alone",
    signs=signs("#debug", "url crawl", "url #debug", "url crawl/httpStatusCode", "url #debug/statusCode"),
    marks=("crawl", "#debug"),
    read=_read,
    fits=_fits,
)
