"""Decode and Route: from portions of crawl logs to batches for the ledgers, and rejects.

Batches are decoded on some threads, ahead of the one that is wanted, and leave in their order: the log's.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import orjson

from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.files.log_reader import Batch, FileRange, read
from opicflow.connectors.kafka.topic_log import Batch as TopicBatch
from opicflow.connectors.kafka.topic_log import PartitionProgress, TopicRange, read_topic
from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, LogPosition
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.transforms.route import Rules, Seen, route
from opicflow.schemas.crawl_events import Reject
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.urls import Canonicaliser, CanonicalUrls

REJECTS = "rejects"
_THREADS = min(4, os.cpu_count() or 1)
_MOST_AHEAD = 48
"""Batches that are read and decoded before they are wanted: the ledger of one segment works while the next is read."""


InputRange = FileRange | TopicRange
AnyBatch = Batch | TopicBatch


def name_of(input_range: InputRange) -> str:
    """What people know a source by."""
    return input_range.file if isinstance(input_range, FileRange) else input_range.topic


class ReadTo(NamedTuple):
    """How far a source was read, and whether to its end; of a topic also how far each of its partitions was."""

    source: str
    at: int
    done: bool
    reached: tuple[PartitionProgress, ...] = ()


@dataclass(frozen=True)
class Portion:
    """A part of the input: stretches of files or topics, in order. After `most_bytes` it ends; the next one goes on.

    `closes` tells that the input ends with it, if it is not cut short.
    """

    number: int
    input_ranges: tuple[InputRange, ...]
    most_bytes: int
    closes: bool


class Part(NamedTuple):
    """A batch of a portion, decoded. The last one has no events; `files` then says how far every source was read."""

    portion: int
    number: int
    source: str
    start: int
    end: int
    size_bytes: int
    decoded: Decoded
    urls: CanonicalUrls | None
    last: bool = False
    ended: bool = False
    files: tuple[ReadTo, ...] = ()


def parts_of(portion: Portion, rules: Rules) -> Iterator[Part]:
    """Decode a portion. Sources are named in the last part with how far they were read, and whether to their end."""
    read_to: dict[str, ReadTo] = {}
    number, left, source, end = 0, portion.most_bytes, "", 0
    ahead = _resumed(portion, rules) if portion.input_ranges else None
    try:
        while ahead is not None and left > 0:
            step = ahead.next()
            if step is None:
                break
            source, end = step.source, step.end
            read_to[source] = ReadTo(source, end, step.decoded is None, step.reached)
            if step.decoded is not None:
                yield Part(portion.number, number, source, step.start, end, step.size_bytes, step.decoded, step.urls)
                number += 1
                left -= step.size_bytes
    except BaseException:
        if ahead is not None:
            ahead.close()
        raise
    unread = [s for s in portion.input_ranges if s.source not in read_to or not read_to[s.source].done]
    if ahead is not None:
        if unread:
            _paused[source, end, rules] = ahead
        else:
            ahead.close()
    yield Part(
        portion.number,
        number,
        source,
        end,
        end,
        0,
        Decoded(EventWriter().events(), []),
        None,
        last=True,
        ended=portion.closes and not unread,
        files=tuple(read_to.values()),
    )


class _Step(NamedTuple):
    """A batch, decoded; or the end of a source, without."""

    source: str
    start: int
    end: int
    size_bytes: int
    reached: tuple[PartitionProgress, ...]
    decoded: Decoded | None
    urls: CanonicalUrls | None


class _Waiting(NamedTuple):
    """A batch that is being decoded; or the end of a source, without."""

    source: str
    start: int
    end: int
    size_bytes: int
    reached: tuple[PartitionProgress, ...]
    decoded: Future[tuple[Decoded, CanonicalUrls]] | None


class _Ahead:
    """Reads and decodes on threads of its own, some batches ahead of the one that is wanted."""

    def __init__(self, input_ranges: tuple[InputRange, ...], rules: Rules) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "decode")
        self._waiting: Queue[_Waiting | BaseException | None] = Queue(_MOST_AHEAD)
        self._canonicaliser = Canonicaliser(rules.urls)
        self._closed = False
        Thread(target=self._read, args=(input_ranges,), name="read", daemon=True).start()

    def next(self) -> _Step | None:
        """What comes next; None after the last file."""
        item = self._waiting.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return None
        return _Step(*item[:5], *(item.decoded.result() if item.decoded else (None, None)))

    def close(self) -> None:
        """Stop reading. What was read ahead is lost."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()

    def _read(self, input_ranges: tuple[InputRange, ...]) -> None:
        try:
            for input_range in input_ranges:
                end, reached = input_range.start, tuple[PartitionProgress, ...]()
                batches: Iterator[AnyBatch] = (
                    read(input_range) if isinstance(input_range, FileRange) else read_topic(input_range)
                )
                for batch in batches:
                    end, size_bytes = batch.end, batch.end - batch.start
                    if isinstance(batch, TopicBatch):
                        size_bytes, reached = batch.size_bytes, batch.reached
                    decoded = self._pool.submit(_decode, batch, self._canonicaliser)
                    self._waiting.put(_Waiting(input_range.source, batch.start, end, size_bytes, reached, decoded))
                    if self._closed:
                        return
                self._waiting.put(_Waiting(input_range.source, end, end, 0, reached, None))
            self._waiting.put(None)
        except BaseException as problem:  # told where it is read
            if not self._closed:
                self._waiting.put(problem)


_paused: dict[tuple[str, int, Rules], _Ahead] = {}
"""Readers that a portion has left at a place: in this process the next portion goes on there."""


def _resumed(portion: Portion, rules: Rules) -> _Ahead:
    """A reader at the beginning of a portion."""
    first = portion.input_ranges[0]
    ahead = _paused.pop((first.source, first.start, rules), None)
    close_readers()
    return ahead or _Ahead(portion.input_ranges, rules)


def close_readers() -> None:
    """Stop all reading ahead."""
    while _paused:
        _paused.popitem()[1].close()


def _decode(batch: AnyBatch, canonicaliser: Canonicaliser) -> tuple[Decoded, CanonicalUrls]:
    decoded = batch.decode()
    return decoded, urls_of(decoded, canonicaliser)


def urls_of(decoded: Decoded, canonicaliser: Canonicaliser) -> CanonicalUrls:
    """The URLs of decoded events, canonical: those of links against the URL of their page."""
    events = decoded.events
    own = np.repeat(events.url_starts[:-1], np.diff(events.url_starts))
    return canonicaliser.canonicalise(events.text, events.begins, events.ends, own)


class RoutedPart(NamedTuple):
    """The batch that a part makes for the ledger, its rejects in the order of the log, and what was counted."""

    batch: bytes
    rejects: list[Reject]
    counts: dict[str, int]


class RoutedRows(NamedTuple):
    """The rows of decoded events, their rejects in the order of the log, and what was counted."""

    items: CrawlItems
    rejects: list[Reject]
    counts: dict[str, int]


def route_rows(decoded: Decoded, urls: CanonicalUrls | None, source: str, rules: Rules, seen: Seen) -> RoutedRows:
    """Route decoded events. `urls` are theirs; None = there are no events."""
    events, rejects = decoded.events, list(decoded.rejects)
    urls = urls or Canonicaliser().canonicalise(events.text, events.begins, events.ends, events.begins)
    routed = route(events, urls, rules, seen)
    for row, reason, detail in routed.rejected:
        first, offset = int(events.url_starts[row]), int(events.offset[row])
        if decoded.original is not None:
            original = decoded.original(offset)
        else:
            original = events.text[int(events.begins[first]) : int(events.ends[first])].tobytes()
        rejects.append(Reject(reason, detail, source, offset, original))
    rejects.sort(key=lambda reject: reject.offset)
    if decoded.where is not None:
        known_as = map(decoded.where, [reject.offset for reject in rejects])
        rejects = [
            replace(reject, source=source, offset=offset)
            for reject, (source, offset) in zip(rejects, known_as, strict=True)
        ]
    counts = {name: count for name, count in routed.counts.items() if count}
    counts["events_read"] = len(events) + len(decoded.rejects)
    return RoutedRows(routed.items, rejects, counts)


def route_part(part: Part, rules: Rules, seen: Seen) -> RoutedPart:
    """Route a part."""
    items, rejects, counts = route_rows(part.decoded, part.urls, part.source, rules, seen)
    counts["bytes_read"] = part.size_bytes
    note = {
        "portion": part.portion,
        "part": part.number,
        "last": part.last,
        "ended": part.ended,
        "files": part.files,
        "counts": counts,
        "rejects": Counter(reject.reason.value for reject in rejects),
    }
    entry = CrawlEntry(part.source or "nothing", LogPosition(part.start, 0), LogPosition(part.end, 0), items)
    return RoutedPart(encode_entry(entry, note), rejects, counts)


def reject_line(reject: Reject, file: str) -> bytes:
    """A reject as a line of JSON. Its bytes are text where they are UTF-8, else base64."""
    record: dict[str, Any] = {
        "reason": reject.reason.value,
        "detail": reject.detail,
        "source": file,
        "offset": reject.offset,
    }
    try:
        record["bytes"] = reject.bytes.decode("utf-8")
    except UnicodeDecodeError:
        record["bytes_base64"] = base64.b64encode(reject.bytes).decode("ascii")
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


class Decode(beam.DoFn):
    """Portions in, their parts out."""

    def __init__(self, rules: Rules) -> None:
        """URLs are made canonical by these rules."""
        self._rules = rules

    def process(self, element: Portion) -> Iterator[Part]:
        """Decode one portion."""
        yield from parts_of(element, self._rules)


class Route(beam.DoFn):
    """Parts in; batches out, keyed by shard, and rejects under a tag."""

    def __init__(self, rules: Rules, files: dict[str, str]) -> None:
        """Links weigh what these rules say; `files` tells the name of every source."""
        self._rules = rules
        self._files = files
        self._seen: Seen | None = None  # made where it is used: this object travels

    def start_bundle(self) -> None:
        """A bundle that is done again must send its sightings again."""
        self._seen = Seen()

    def process(self, element: Part) -> Iterator[Any]:
        """Route one part."""
        assert self._seen is not None
        batch, rejects, _ = route_part(element, self._rules, self._seen)
        yield 0, batch
        if rejects:
            lines = b"".join(reject_line(reject, self._files.get(reject.source, reject.source)) for reject in rejects)
            yield beam.pvalue.TaggedOutput(REJECTS, (f"rejects-{element.portion:06}-{element.number:06}", lines))
