"""The events of a batch as messages for the topic crawl-events.

Lines of JSON and records of the published Avro schema are copied as they are: readers of the topic decode them like
readers of files. All other events are encoded one by one as Avro of the published schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from opicflow.connectors.files.avro import decode_avro, raw_records
from opicflow.connectors.files.avro_container import AvroBlock, Container
from opicflow.connectors.files.decoded import Decoded, Item
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.jsonl import decode_jsonl, items_of_lines
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.arrays import Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.crawl_events import Reject
from opicflow.schemas.framing import FrameKind, frame_kind

_NEWLINE = 10
_FIRST_OF_FRAMES = (0x00, 0xC3)


@dataclass(frozen=True)
class EventMessages:
    """The events of a batch as messages, in the order of their offsets, and its rejects.

    `time_ms` is 0 where the time of the event is not known.
    """

    offset: Ints
    time_ms: Ints
    urls: Sequence[bytes]
    values: Sequence[bytes]
    rejects: list[Reject]

    def __len__(self) -> int:
        """The number of events."""
        return len(self.offset)

    @property
    def last_offset(self) -> int:
        """The last offset of an event or a reject; 0 if there is none."""
        return max(int(self.offset[-1]) if len(self) else 0, self.rejects[-1].offset if self.rejects else 0)

    def parts(self, most: int | None) -> Iterator[EventMessages]:
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
            yield EventMessages(
                self.offset[rows], self.time_ms[rows], self.urls[rows], self.values[rows], self.rejects[before:given]
            )


def messages_of_lines(
    block: bytes, source: str, first_offset: int, prefix: bytes, reading: Reading = ANY
) -> EventMessages:
    """Return the events of whole lines, the first of which begins at `first_offset`: the lines as they are.

    `prefix` is the frame of messages in Avro. Lines are encoded one by one if a schema registry has to have the schema
    of every message, if users say how lines are read, as readers of the topic do not know that, and if a line of
    another crawler begins like a frame.
    """
    if reading != ANY or frame_kind(prefix) is FrameKind.CONFLUENT:
        return encode_items(items_of_lines(block, source, first_offset, reading), prefix)
    decoded = decode_jsonl(block, source, first_offset)
    text = np.frombuffer(block, np.uint8)
    begins = decoded.events.offset - first_offset
    if np.isin(text[begins], _FIRST_OF_FRAMES).any():
        return encode_items(items_of_lines(block, source, first_offset, reading), prefix)
    ends = np.append(np.flatnonzero(text == _NEWLINE), len(text))
    return _messages(decoded, Texts(text, begins, ends[np.searchsorted(ends, begins)] - begins))


def messages_of_blocks(container: Container, blocks: Sequence[AvroBlock], source: str, prefix: bytes) -> EventMessages:
    """Return the events of blocks whose records have the layout of the published schema: the records as they are."""
    decoded = decode_avro(container, blocks, source, ascii_only=True)  # other texts are checked one by one
    records = raw_records(container, blocks, decoded.events.offset)
    return _messages(decoded, Texts.of([prefix + record for _, record in records]))


def encode_items(items: Iterable[Item], prefix: bytes) -> EventMessages:
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
    return EventMessages(np.array(offsets, np.int64), np.array(times_ms, np.int64), urls, values, rejects)


def _messages(decoded: Decoded, values: Texts) -> EventMessages:
    """Return decoded events as messages with these values."""
    events = decoded.events
    own = events.url_starts[:-1]
    begins = events.begins[own]
    urls = Texts(events.text, begins, events.ends[own] - begins)
    return EventMessages(events.offset, events.time_ms, urls, values, decoded.rejects)
