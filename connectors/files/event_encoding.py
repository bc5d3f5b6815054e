"""Crawl events as Avro of the published schema `CrawlEvent`, one by one."""

from __future__ import annotations

import struct

from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, LONGEST_RETRY_SECONDS, CrawlEvent, Link
from opicflow.schemas.varint import encode_signed

_NULL, _SOME, _END = b"\x00", b"\x02", b"\x00"
_DOUBLE = struct.Struct("<d")
_INT_BITS = 31


def encode_event(event: CrawlEvent) -> bytes:
    """Encode an event with the latest schema `CrawlEvent`, without a frame.

    fastavro takes ten times as long, mostly for the links. Values that Avro cannot hold and that no reader uses, such
    as a status outside 32 bits, are left out.
    """
    status, modified_ms = event.status, event.last_modified_ms
    if status is not None and not -(1 << _INT_BITS) <= status < 1 << _INT_BITS:
        status = None
    if modified_ms is not None and not EARLIEST_MS <= modified_ms < LATEST_MS:
        modified_ms = None
    retry_seconds = event.retry_after
    if retry_seconds is not None and not 0 < retry_seconds <= LONGEST_RETRY_SECONDS:
        retry_seconds = None if retry_seconds <= 0 else LONGEST_RETRY_SECONDS
    return b"".join(
        [
            _SOME if event.announce else _NULL,  # the second kind, and the first
            _text(event.url),
            _some_number(event.fetched_at_ms),
            _some_number(status),
            _some_text(event.failure),
            *_array([_text(hop) for hop in event.redirects]),
            _some_text(event.canonical),
            _some_text(event.content_type),
            _some_text(event.digest),
            _some_number(modified_ms),
            *([_NULL] if event.links is None else [_SOME, *_array([_link(link) for link in event.links])]),
            _some_number(retry_seconds),
            _NULL if event.quality is None else _SOME + _DOUBLE.pack(event.quality),
        ]
    )


_LENGTHS = [encode_signed(length) for length in range(4096)]


def _text(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    return (_LENGTHS[size] if size < len(_LENGTHS) else encode_signed(size)) + data


def _link(link: Link) -> bytes:
    url, weight, rel = link
    if weight is None and rel is None:
        return _text(url) + _NULL + _NULL
    return _text(url) + (_NULL if weight is None else _SOME + _DOUBLE.pack(weight)) + _some_text(rel)


def _array(items: list[bytes]) -> list[bytes]:
    return [encode_signed(len(items)), *items, _END] if items else [_END]


def _some_text(text: str | None) -> bytes:
    return _NULL if text is None else _SOME + _text(text)


def _some_number(number: int | None) -> bytes:
    return _NULL if number is None else _SOME + encode_signed(number)
