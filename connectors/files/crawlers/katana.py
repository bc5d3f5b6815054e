"""Katana: the lines that `katana -jsonl` writes."""

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
from opicflow.schemas.crawl_events import CrawlEvent, Link


def _fits(record: Record) -> bool:
    return "endpoint" in object_at(record, "request")


def _read(record: Record) -> CrawlEvent:
    request, response = object_at(record, "request"), object_at(record, "response")
    url, error, method = url_at(request, "endpoint"), text_at(record, "error"), text_at(request, "method") or "GET"
    refuse_other_methods(method)
    code = number_at(response, "status_code") or None
    if code is None and error is None:
        return CrawlEvent(url, announce=True)
    headers = _headers_of(response)
    status = None if error or code is None else http_status(code, "status_code")
    target = headers.get("location")
    return CrawlEvent(
        url,
        fetched_at_ms=time_at(record, "timestamp"),
        status=status,
        failure="error" if error else None,
        content_type=headers.get("content-type"),
        links=(Link(target),) if target and status and 300 <= status < 400 else None,
    )


def _headers_of(response: Record) -> dict[str, str]:
    """Return the header fields by their small names, with - between words: some versions write _."""
    found = object_at(response, "headers")
    return {name.lower().replace("_", "-"): value for name, value in found.items() if isinstance(value, str)}


def _link_of(record: Record) -> list[str]:
    """Return the page that an endpoint was found on, and the endpoint; an empty list where no page is named."""
    request = object_at(record, "request")
    source, url = text_at(request, "source"), url_at(request, "endpoint")
    return [source, url] if source else []


FORMAT = RecordFormat(
    name="katana",
    title="Katana",
    lacks="a line has no links of its page: --input-format katana-links reads the pages that URLs were found on",
    signs=signs("request"),
    read=_read,
    fits=_fits,
    link_of=_link_of,
)
