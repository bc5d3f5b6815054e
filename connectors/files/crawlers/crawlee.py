"""Crawlee: the requests of its queues, as it stores them (`request_queues/default/*.json`), in JavaScript or Python.

The storage of Python has other names, and a file about the queue itself beside those of the requests.
"""

from __future__ import annotations

from opicflow.connectors.files.crawlers.record_format import (
    Record,
    RecordFormat,
    number_at,
    object_at,
    parsed_object,
    refuse_other_methods,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason

_PACKED = "json"
_DONE, _ERRORS, _SKIPPED = 4, (5, 6), 7
_OF_PYTHON = {
    "handled_at": "handledAt",
    "loaded_url": "loadedUrl",
    "retry_count": "retryCount",
    "user_data": "userData",
}
_OF_A_QUEUE = signs("had_multiple_clients total_request_count", "hadMultipleClients totalRequestCount")


def _read(record: Record) -> CrawlEvent | None:
    if "url" not in record and any(sign <= record.keys() for sign in _OF_A_QUEUE):
        return None
    packed = record.get(_PACKED)
    if isinstance(packed, str) and packed:
        record = {**record, **parsed_object(packed, "json: ")}
    record = {_OF_PYTHON.get(name, name): value for name, value in record.items()}
    refuse_other_methods(text_at(record, "method") or "GET")
    url, handled_ms, state = url_at(record, "url"), time_at(record, "handledAt"), _state_of(record)
    if handled_ms is None or state == _SKIPPED:
        return CrawlEvent(url, announce=True)
    if state not in (None, _DONE, *_ERRORS):
        raise EventRefused(Reason.BAD_FIELD, f"state: a request that was handled has the state {str(state)[:20]}")
    errors, retries = record.get("errorMessages"), number_at(record, "retryCount") or 0
    gave_up = state is None and isinstance(errors, list) and len(errors) > retries
    answered = text_at(record, "loadedUrl") or url
    return CrawlEvent(
        answered,
        fetched_at_ms=handled_ms,
        failure="error" if gave_up or state in _ERRORS else None,
        redirects=(url,) if answered != url else (),
    )


def _state_of(record: Record) -> int | None:
    """Return the state that Crawlee keeps among the data of the user."""
    return number_at(object_at(object_at(record, "userData"), "__crawlee"), "state")


FORMAT = RecordFormat(
    name="crawlee",
    title="Crawlee's requests",
    lacks="requests have no links and no status, so importance flows along redirects alone",
    signs=(
        *signs("url uniqueKey handledAt", "url uniqueKey json", "url uniqueKey method retryCount"),
        *signs("url unique_key handled_at", "url unique_key method retry_count"),
        *_OF_A_QUEUE,
    ),
    marks=("uniqueKey", "unique_key"),
    read=_read,
)
