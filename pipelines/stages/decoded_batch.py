"""A batch of decoded events, and the way of its rows into an entry of the log. No Beam in here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from opicflow.connectors.files.decoded import Decoded, reject_of
from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, LogPosition
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.stages.route import ANY_TIME, Seen, route
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.crawl_events import MOST_LISTED, EventRefused, Reason, Reject
from opicflow.schemas.urls import Canonicaliser, CanonicalUrls

Partitions = tuple[tuple[int, int, str], ...]
"""How far each partition of a topic was read: its number, the next offset, and the digest of the last record."""


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


def encode_batch(batch: DecodedBatch, routed: RoutedRows, name: str = "") -> bytes:
    """Encode the rows of a batch as an entry of the log, with the note that a `ReplayKeeper` reads.

    `name` is that of the source for people.
    """
    note = {
        "name": name or batch.source,
        "portion": batch.segment,
        "part": batch.number,
        "last": batch.is_last,
        "ended": batch.ends_input,
        "files": batch.progress,
        "counts": {**routed.counts, "bytes_read": batch.size_bytes},
        "rejects": routed.reasons,
    }
    start, end = LogPosition(batch.start, 0), LogPosition(batch.end, 0)
    return encode_entry(CrawlEntry(batch.source or "nothing", start, end, routed.items), note)
