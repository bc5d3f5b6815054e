"""A batch of decoded events, and the way of its rows into an entry of the log. No Beam in here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import orjson
import xxhash

from opicflow.connectors.files.decoded import Decoded, reject_of
from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, LogPosition
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import ITEM_COLUMNS
from opicflow.pipelines.stages.route import ANY_TIME, Seen, route
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.crawl_events import MOST_LISTED, EventRefused, Reason, Reject
from opicflow.schemas.plain_values import read_plain
from opicflow.schemas.urls import Canonicaliser, CanonicalUrls

Partitions = tuple[tuple[int, int, str], ...]
"""How far each partition of a topic was read: its number, the next offset, and the digest of the last record."""
_BITS_OF_A_SEGMENT = 32
_BITS_OF_A_BATCH = 32
"""The positions of a batch: no event is as many bytes long."""
_EVENTS = "events"
"""The source of batches that get their offsets when they arrive."""


class SourceProgress(NamedTuple):
    """How far a source was read, and whether to its end; of a topic also how far each of its partitions was read.

    `waits`: at the end of a file an incomplete line or block waits for its rest. `ahead_ms`: the earliest time of the
    events that were rejected because they are ahead of the clock; 0 = there are none.
    """

    source: str
    at: int
    is_done: bool
    partitions: Partitions = ()
    waits: bool = False
    ahead_ms: int = 0


class DecodedBatch(NamedTuple):
    """A batch of events, decoded, with the URLs in canonical form.

    A segment ends with a batch without events, which has the progress of all sources that the segment read.
    """

    source: str
    start: int
    end: int
    size_bytes: int
    decoded: Decoded
    urls: CanonicalUrls
    partitions: Partitions = ()
    segment: int = 0
    number: int = 0
    is_last: bool = False
    ends_input: bool = False
    progress: tuple[SourceProgress, ...] = ()


def urls_of(decoded: Decoded, canonicaliser: Canonicaliser) -> CanonicalUrls:
    """Return the URLs of decoded events in canonical form; links are resolved against the URL of their page."""
    events = decoded.events
    own = np.repeat(events.url_starts[:-1], np.diff(events.url_starts))
    return canonicaliser.canonicalise(events.text, events.begins, events.ends, own)


class RoutedRows(NamedTuple):
    """The rows of decoded events, their rejects in the order of the log, and counts.

    `reasons` counts all rejects by reason, those too that are not in `rejects` because there are too many of a reason.
    """

    items: CrawlItems
    rejects: list[Reject]
    counts: dict[str, int]
    reasons: Counter[str]


def route_rows(
    decoded: Decoded, urls: CanonicalUrls, source: str, rules: Rules, seen: Seen, latest_ms: int = ANY_TIME
) -> RoutedRows:
    """Route decoded events. `urls` are their URLs in canonical form. Events after `latest_ms` are rejected."""
    events, rejects = decoded.events, list(decoded.rejects)
    unlisted = Counter(decoded.unlisted or {})
    routed = route(events, urls, rules, seen, latest_ms)
    number = len(rejects) + unlisted.total()
    listed: Counter[Reason] = Counter()
    for row, reason, detail in routed.rejected:
        listed[reason] += 1
        if listed[reason] > MOST_LISTED:
            unlisted[reason] += 1
            continue
        first, offset = int(events.url_starts[row]), int(events.offset[row])
        if decoded.original is not None:
            original = decoded.original(offset)
        else:
            original = events.text[int(events.begins[first]) : int(events.ends[first])].tobytes()
        rejects.append(reject_of(EventRefused(reason, detail), source, offset, original))
    reasons = Counter(reject.reason.value for reject in rejects)
    for reason, more in sorted(unlisted.items()):
        reasons[reason.value] += more
        last = max(reject.offset for reject in rejects if reject.reason is reason)
        rejects.append(Reject(reason, f"{more:,} more events like it after this one are not listed", source, last, b""))
    rejects.sort(key=lambda reject: reject.offset)
    if decoded.where is not None:
        known_as = map(decoded.where, [reject.offset for reject in rejects])
        rejects = [
            replace(reject, source=source, offset=offset)
            for reject, (source, offset) in zip(rejects, known_as, strict=True)
        ]
    counts = {name: count for name, count in routed.counts.items() if count}
    counts["events_read"] = len(events) + number
    return RoutedRows(routed.items, rejects, counts, reasons)


class RoutedBatch(NamedTuple):
    """A batch of the log of a replay: an entry, and what the report of its segment contains about it.

    It has the offsets [offset, end) of that log. `name` is that of its source for people.
    """

    offset: int
    end: int
    entry: CrawlEntry
    name: str
    counts: dict[str, int]
    reasons: dict[str, int]
    progress: tuple[SourceProgress, ...] = ()
    ends_segment: bool = False
    ends_input: bool = False

    @classmethod
    def of(cls, batch: DecodedBatch, routed: RoutedRows, name: str = "") -> RoutedBatch:
        """Return the routed rows of a batch."""
        start, end = LogPosition(batch.start, 0), LogPosition(batch.end, 0)
        offset = first_offset(batch.segment) + batch.number
        return cls(
            offset,
            first_offset(batch.segment + 1) if batch.is_last else offset + 1,
            CrawlEntry(batch.source or "nothing", start, end, routed.items),
            name or batch.source,
            {**routed.counts, "bytes_read": batch.size_bytes},
            routed.reasons,
            batch.progress,
            batch.is_last,
            batch.ends_input,
        )

    def at_offset(self, offset: int) -> RoutedBatch:
        """Return the batch at an offset of the log. All such batches have one source, and are one after the other."""
        entry, begin, end = self.entry, *(LogPosition(at << _BITS_OF_A_BATCH, 0) for at in (offset, offset + 1))
        items = replace(entry.items, offset=entry.items.offset - entry.start.offset + begin.offset)
        return self._replace(offset=offset, end=offset + 1, entry=CrawlEntry(_EVENTS, begin, end, items))

    def digest(self) -> str:
        """Return a hash of the batch."""
        entry = self.entry
        digest = xxhash.xxh3_64(self._values())
        digest.update(orjson.dumps((entry.source, entry.start, entry.end), default=tuple))
        for column in ITEM_COLUMNS:
            digest.update(np.ascontiguousarray(getattr(entry.items, column.name)).data)
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Encode the batch, to go from one worker to another."""
        return b"\n".join((self._values(), encode_entry(self.entry)))

    def _values(self) -> bytes:
        """Encode everything but the entry."""
        return orjson.dumps((self.offset, self.end, *self[3:]), default=tuple)

    @classmethod
    def from_bytes(cls, data: bytes) -> RoutedBatch:
        """Decode a batch."""
        at = data.index(b"\n")
        offset, end, name, counts, reasons, progress, *ends = orjson.loads(data[:at])
        entry = decode_entry(data[at + 1 :])
        assert isinstance(entry, CrawlEntry)
        return cls(offset, end, entry, name, counts, reasons, read_plain(tuple[SourceProgress, ...], progress), *ends)


def first_offset(segment: int) -> int:
    """Return the offset in the log of a replay at which a segment begins: no segment has more batches."""
    return segment << _BITS_OF_A_SEGMENT


def segment_at(offset: int) -> int:
    """Return the segment of an offset in the log of a replay."""
    return offset >> _BITS_OF_A_SEGMENT
