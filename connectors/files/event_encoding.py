"""Crawl events as Avro of the published schema `CrawlEvent`, one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from opicflow.connectors.files.decoded import Item
from opicflow.schemas.arrays import Hashes, Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, LONGEST_RETRY_SECONDS, CrawlEvent, Link, Reject
from opicflow.schemas.hashing import hash_texts
from opicflow.schemas.varint import encode_signed


@dataclass(frozen=True)
class EncodedEvents:
    """The events of a batch as Avro of the latest `CrawlEvent`, in the order of their offsets, and its rejects.

    `time_ms` is 0 where it is not known. `hashes` are XXH64 of the URLs.
    """

    offset: Ints
    time_ms: Ints
    urls: Texts
    hashes: Hashes
    values: Texts
    rejects: list[Reject]

    def __len__(self) -> int:
        """The number of events."""
        return len(self.offset)

    @property
    def last_offset(self) -> int:
        """The last offset of an event or a reject; 0 if there is none."""
        return max(int(self.offset[-1]) if len(self) else 0, self.rejects[-1].offset if self.rejects else 0)

    def parts(self, most: int | None) -> Iterator[EncodedEvents]:
        """Yield parts of at most so many events (None = all), each with the rejects before the next part."""
        if most is None or len(self) <= most:
            yield self
            return
        given = 0
        for begin in range(0, len(self), most):
            rows, next_row, before = slice(begin, begin + most), begin + most, given
            while given < len(self.rejects) and (
                next_row >= len(self) or self.rejects[given].offset < self.offset[next_row]
            ):
                given += 1
            yield EncodedEvents(
                self.offset[rows],
                self.time_ms[rows],
                self.urls[rows],
                self.hashes[rows],
                self.values[rows],
                self.rejects[before:given],
            )


def merge(first: EncodedEvents, second: EncodedEvents, rejects: list[Reject]) -> EncodedEvents:
    """Return the events of both in the order of their offsets, with these rejects."""
    if len(second) == 0:
        return replace(first, rejects=rejects)
    offsets = np.concatenate((first.offset, second.offset))
    order = np.argsort(offsets, kind="stable")
    return EncodedEvents(
        offset=offsets[order],
        time_ms=np.concatenate((first.time_ms, second.time_ms))[order],
        urls=_joined(first.urls, second.urls, order),
        hashes=np.concatenate((first.hashes, second.hashes))[order],
        values=_joined(first.values, second.values, order),
        rejects=rejects,
    )


def _joined(first: Texts, second: Texts, order: Ints) -> Texts:
    """Return the texts of both in an order."""
    used = int((first.starts + first.lengths).max(initial=0))
    starts = np.concatenate((first.starts, second.starts + used))
    lengths = np.concatenate((first.lengths, second.lengths))
    return Texts(np.concatenate((first.text[:used], second.text)), starts[order], lengths[order])


def encode_items(items: Iterable[Item], prefix: bytes) -> EncodedEvents:
    """Encode events one by one, each after `prefix`; the rejects between them stay as they are."""
    offsets, times_ms, urls, values = [], [], [], []
    rejects = []
    for offset, item in items:
        if isinstance(item, Reject):
            rejects.append(item)
            continue
        offsets.append(offset)
        times_ms.append(item.fetched_at_ms or 0)
        urls.append(item.url.encode())
        values.append(prefix + encode_event(item))
    return EncodedEvents(
        offset=np.array(offsets, np.int64),
        time_ms=np.array(times_ms, np.int64),
        urls=Texts.of(urls),
        hashes=hash_texts(urls),
        values=Texts.of(values),
        rejects=rejects,
    )


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
