"""From segments of crawl logs to entries for the ledger, and rejects. No Beam in here.

An input range becomes decoded batches, a batch becomes rows, and its rows become one entry. Batches are decoded on
several threads, ahead of their use, and leave in the order of the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Condition, Thread
from typing import Protocol

import numpy as np

from opicflow.connectors.files.decoded import Decoded
from opicflow.pipelines.stages.ahead import give_way
from opicflow.pipelines.stages.decoded_batch import (
    DecodedBatch,
    Partitions,
    RoutedBatch,
    SourceProgress,
    route_rows,
    urls_of,
)
from opicflow.pipelines.stages.outputs import REJECTS, ROUTED, Output
from opicflow.pipelines.stages.rejects import reject_line
from opicflow.pipelines.stages.route import ANY_TIME, Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.urls import Canonicaliser

_THREADS = min(4, os.cpu_count() or 1)
_MOST_AHEAD = 48
"""The most batches that are decoded ahead: while the ledger applies one segment, the next is read."""
_MOST_AHEAD_BYTES = 32 << 20
"""The most bytes that they may take: a batch of short links is thirty times as large when it is decoded."""
_REJECT_BYTES = 1 << 10


class UndecodedBatch(Protocol):
    """Records of a source at the positions [start, end), still to be decoded."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def decode(self) -> Callable[[], Decoded]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def reached(self) -> Partitions:
        """How far the partitions of a topic were read at its end."""


class InputRange(Protocol):
    """A part of a file or of a topic that is to be read, from a position on."""

    @property
    def source(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def stored_bytes(self) -> int | None: ...
    @property
    def partitions(self) -> Sequence[object]: ...
    @property
    def after_ms(self) -> int | None:
        """Only events after this time count, in a range that is read again. None: all count."""

    def read(self) -> Generator[UndecodedBatch, None, bool]:
        """Yield the batches. Returns whether an incomplete end waits for its rest."""

    def split(self, range_bytes: int) -> Sequence[InputRange]: ...
    def advanced_to(self, at: int, reached: Partitions) -> InputRange: ...


@dataclass(frozen=True)
class Segment:
    """A part of the input, between two checkpoints: ranges of files or topics, in order.

    It ends after `most_bytes`, and the next segment continues there. `ends_input`: the input ends with this segment,
    unless the segment ends earlier.
    """

    number: int
    input_ranges: tuple[InputRange, ...]
    most_bytes: int
    ends_input: bool


def decode_range(input_range: InputRange, rules: Rules) -> Iterator[DecodedBatch]:
    """Decode a whole range, outside a replay."""
    yield from decode_segment(Segment(0, (input_range,), 1 << 62, ends_input=True), rules)


def decode_segment(
    segment: Segment, rules: Rules, paused: PausedReader | None = None, latest_ms: int = ANY_TIME
) -> Iterator[DecodedBatch]:
    """Decode a segment: its batches in the order of the log, then the empty last one.

    `paused` has the reader of the segment before, and gets that of this one for the next. Events after `latest_ms` will
    be rejected: the progress of their source has the earliest one.
    """
    progress: dict[str, SourceProgress] = {}
    ahead: dict[str, int] = {}
    number, bytes_left, source, end = 0, segment.most_bytes, "", 0
    reader = _reader_of(segment, rules, paused) if segment.input_ranges else None
    try:
        while reader is not None and bytes_left > 0:
            item = reader.next()
            if item is None:
                break
            if isinstance(item, SourceProgress):
                source, end = item.source, item.at
                progress[source] = item
                continue
            source, end = item.source, item.end
            progress[source] = SourceProgress(source, end, False, item.partitions)
            times_ms = item.decoded.events.time_ms
            if (later := times_ms[times_ms > latest_ms]).size:
                ahead[source] = min(int(later.min()), ahead.get(source, ANY_TIME))
            yield item._replace(segment=segment.number, number=number)
            number += 1
            bytes_left -= item.size_bytes
    except BaseException:
        if reader is not None:
            reader.close()
        raise
    is_done = all(one.source in progress and progress[one.source].is_done for one in segment.input_ranges)
    if reader is not None:
        if is_done or paused is None:
            reader.close()
        else:
            paused.put(source, end, reader)
    nothing = Decoded(EventWriter().events(), [])
    yield DecodedBatch(
        source,
        end,
        end,
        0,
        nothing,
        urls_of(nothing, Canonicaliser(rules.urls, rules.page_ids)),
        segment=segment.number,
        number=number,
        is_last=True,
        ends_input=segment.ends_input and is_done,
        progress=tuple(one._replace(ahead_ms=ahead.get(one.source, 0)) for one in progress.values()),
    )


class _ReadAhead:
    """Reads and decodes on its own threads, some batches ahead of the consumer."""

    def __init__(self, input_ranges: tuple[InputRange, ...], rules: Rules) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "decode", initializer=give_way)
        self._queue: Queue[Future[DecodedBatch] | SourceProgress | BaseException | None] = Queue(_MOST_AHEAD)
        self._canonicaliser = Canonicaliser(rules.urls, rules.page_ids)
        self._room = _Room(2 * _THREADS, _MOST_AHEAD_BYTES)
        self._closed = False
        Thread(target=self._read, args=(input_ranges,), name="read", daemon=True).start()

    def next(self) -> DecodedBatch | SourceProgress | None:
        """Return the next batch, or the progress at the end of a source; None after the last source."""
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        if not isinstance(item, Future):
            return item
        batch = item.result()
        self._room.free(_bytes_of(batch))
        return batch

    def close(self) -> None:
        """Stop reading, and drop all batches."""
        self._closed = True
        self._room.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(Empty):
            while True:
                self._queue.get_nowait()

    def _read(self, input_ranges: tuple[InputRange, ...]) -> None:
        try:
            for input_range in input_ranges:
                end, partitions = input_range.start, Partitions()
                batches = _Batches(input_range)
                for batch in batches:
                    end, partitions = batch.end, batch.reached
                    self._room.wait()
                    if self._closed:
                        return
                    self._queue.put(self._pool.submit(self._decode, input_range, batch))
                self._queue.put(SourceProgress(input_range.source, end, True, partitions, batches.waits))
            self._queue.put(None)
        except BaseException as problem:  # the consumer raises it
            if not self._closed:
                self._queue.put(problem)

    def _decode(self, input_range: InputRange, batch: UndecodedBatch) -> DecodedBatch:
        size = 0
        try:
            decoded = _decode(input_range, batch, self._canonicaliser)
            size = _bytes_of(decoded)
            return decoded
        finally:
            self._room.fill(size)


class _Batches:
    """The batches of an input range; after them, `waits` says whether an incomplete end waits for its rest."""

    def __init__(self, input_range: InputRange) -> None:
        self._input_range = input_range
        self.waits = False

    def __iter__(self) -> Iterator[UndecodedBatch]:
        self.waits = bool((yield from self._input_range.read()))


class _Room:
    """The bytes of batches that were decoded and are not used yet. Waits while they are too many."""

    def __init__(self, most_undecoded: int, most_bytes: int) -> None:
        self._most_undecoded, self._most_bytes = most_undecoded, most_bytes
        self._undecoded = self._decoded = self._bytes = self._largest = 0
        self._is_closed = False
        self._changed = Condition()

    def wait(self) -> None:
        """Wait until one more batch may be decoded: if none is left, or all of the size of the largest so far fit."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._undecoded += 1

    def _has_room(self) -> bool:
        expected = self._bytes + (self._undecoded + 1) * self._largest
        fits = self._undecoded < self._most_undecoded and expected <= self._most_bytes
        return self._is_closed or self._undecoded + self._decoded == 0 or fits

    def fill(self, size: int) -> None:
        """Count a batch of so many bytes as decoded."""
        with self._changed:
            self._undecoded, self._decoded = self._undecoded - 1, self._decoded + 1
            self._bytes, self._largest = self._bytes + size, max(self._largest, size)
            self._changed.notify_all()

    def free(self, size: int) -> None:
        """Count a batch of so many bytes as used."""
        with self._changed:
            self._decoded, self._bytes = self._decoded - 1, self._bytes - size
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def _bytes_of(batch: DecodedBatch) -> int:
    """Return about how many bytes a decoded batch takes."""
    columns = (*vars(batch.decoded.events).values(), *vars(batch.urls).values())
    arrays = {id(column): column.nbytes for column in columns if isinstance(column, np.ndarray)}
    return sum(arrays.values()) + _REJECT_BYTES * len(batch.decoded.rejects)


class PausedReader:
    """The reader of a run at the border of two segments: the next one continues with the batches it has read ahead.

    The segments of a run have the same rules, and read a source in the same way.
    """

    def __init__(self) -> None:
        self._at: tuple[str, int] | None = None
        self._reader: _ReadAhead | None = None

    def put(self, source: str, position: int, reader: _ReadAhead) -> None:
        """Keep a reader that continues at this position of a source."""
        self.close()
        self._at, self._reader = (source, position), reader

    def take(self, source: str, position: int) -> _ReadAhead | None:
        """Return the reader if it continues there; otherwise it is closed."""
        found, self._reader = self._reader, None
        if found is None or self._at == (source, position):
            return found
        found.close()
        return None

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def read_ahead(segment: Segment, rules: Rules, paused: PausedReader) -> None:
    """Begin to read and decode a segment on other threads, before it is replayed in this process."""
    if segment.input_ranges:
        first = segment.input_ranges[0]
        paused.put(first.source, first.start, _reader_of(segment, rules, paused))


def _reader_of(segment: Segment, rules: Rules, paused: PausedReader | None) -> _ReadAhead:
    """Return a reader at the start of a segment."""
    first = segment.input_ranges[0]
    reader = None if paused is None else paused.take(first.source, first.start)
    return reader or _ReadAhead(segment.input_ranges, rules)


def _decode(input_range: InputRange, batch: UndecodedBatch, canonicaliser: Canonicaliser) -> DecodedBatch:
    decoded, start = batch.decode(), batch.start
    if input_range.after_ms is not None:
        decoded, start = decoded.later_than(input_range.after_ms), 0  # its source has nothing before this range
    urls = urls_of(decoded, canonicaliser)
    return DecodedBatch(input_range.source, start, batch.end, batch.size_bytes, decoded, urls, batch.reached)


def route_batch(
    batch: DecodedBatch, rules: Rules, seen: Seen, files: dict[str, str], latest_ms: int = ANY_TIME
) -> tuple[RoutedBatch, Output | None]:
    """Return the rows of a batch, and its rejects. `files` are the names of the sources."""
    routed = route_rows(batch.decoded, batch.urls, batch.source, rules, seen, latest_ms)
    if ahead := int((batch.decoded.events.time_ms > latest_ms).sum()):
        routed.counts["events_ahead"] = ahead
    rows = RoutedBatch.of(batch, routed, files.get(batch.source, batch.source))
    if not routed.rejects:
        return rows, None
    lines = b"".join(reject_line(reject, files.get(reject.source, reject.source)) for reject in routed.rejects)
    return rows, Output(REJECTS, lines, offset=rows.offset, number=ROUTED)
