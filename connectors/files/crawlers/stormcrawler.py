"""StormCrawler: the documents of its status index, also as a dump of OpenSearch or Elasticsearch has them."""

from __future__ import annotations

from opicflow.connectors.files.crawlers.record_format import (
    Record,
    RecordFormat,
    http_status,
    number_at,
    object_at,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason

_STATUSES: dict[str, tuple[int | None, range, str | None]] = {
    "FETCHED": (200, range(200, 400), None),
    "REDIRECTION": (302, range(300, 400), None),
    "FETCH_ERROR": (None, range(400, 1000), "fetch-error"),
    "ERROR": (None, range(400, 1000), "error"),
}
"""For each status: its HTTP status without a code in the metadata, the codes that it may have, the failure without."""
_DISCOVERED = "DISCOVERED"
_FAILURES_OF_CAUSES = {"robots.txt": "robots", "crawl_delay": "robots"}
_DOCUMENT = "_source"


def _fits(record: Record) -> bool:
    document = record.get(_DOCUMENT, record)
    if not isinstance(document, dict) or "url" not in document or not isinstance(document.get("status"), str):
        return False
    return document["status"] in (_DISCOVERED, *_STATUSES) or "nextFetchDate" in document


def _read(record: Record) -> CrawlEvent:
    record = object_at(record, _DOCUMENT) or record
    url, word, metadata = url_at(record, "url"), text_at(record, "status"), _metadata_of(record)
    if word == _DISCOVERED:
        return CrawlEvent(url, announce=True, fetched_at_ms=time_at(metadata, "discoveryDate"))
    if word not in _STATUSES:
        raise EventRefused(Reason.BAD_FIELD, f"status: {(word or '')[:40]!r} is no status of StormCrawler")
    status, codes, failure = _STATUSES[word]
    code = number_at(metadata, "fetch.statusCode")
    if code is not None and (failure is None or http_status(code, "fetch.statusCode") in codes):
        if code not in codes:
            raise EventRefused(Reason.BAD_FIELD, f"status: {word} with the code {code} contradicts itself")
        status, failure = code, None
    target = text_at(metadata, "_redirTo")
    return CrawlEvent(
        url,
        fetched_at_ms=time_at(metadata, "lastProcessedDate"),
        status=status,
        failure=_FAILURES_OF_CAUSES.get(text_at(metadata, "error.cause") or "", failure) if failure else None,
        content_type=text_at(metadata, "parse.Content-Type") or text_at(metadata, "content-type"),
        digest=text_at(metadata, "signature"),
        links=(Link(target),) if target and word == "REDIRECTION" else None,
    )


def _metadata_of(record: Record) -> Record:
    """Return the first value of each name of the metadata; in an index a point in a name is %2E."""
    found = object_at(record, "metadata")
    firsts = {name: value[0] if isinstance(value, list) and value else value for name, value in found.items()}
    return {name.replace("%2E", "."): None if value == [] else value for name, value in firsts.items()}


FORMAT = RecordFormat(
    name="stormcrawler",
    title="StormCrawler",
    lacks="the status index has no links, so importance flows along redirects alone",
    signs=signs("url status", _DOCUMENT),
    marks=("nextFetchDate",),
    read=_read,
    fits=_fits,
)
