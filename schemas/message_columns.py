"""Messages of topics: those of a log as columns, which routers and ledgers take, and those of results one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Ints


@dataclass(frozen=True)
class MessageBatch:
    """Messages of one partition, in the order of their offsets. They cover the offsets [start, end).

    Offsets without a message are gaps, such as transaction markers. The value of message i is
    `text[begins[i]:ends[i]]`, followed by a newline or the end of the text. Begin -1 = the message has no value;
    -1 - n = the row represents n messages that were not read, because they are too large together.
    """

    start: int
    end: int
    offsets: Ints
    times_ms: Ints
    text: bytes
    begins: Ints
    ends: Ints

    @classmethod
    def of(cls, start: int, messages: Iterable[tuple[int, int, bytes | None]], end: int | None = None) -> MessageBatch:
        """Make a batch of messages (offset, time, value). It ends after the last one, unless `end` is given."""
        rows = list(messages)
        sizes = np.array([-1 if value is None else len(value) for _, _, value in rows], np.int64)
        last = rows[-1][0] + 1 if rows else start
        return cls(
            start,
            last if end is None else end,
            np.array([offset for offset, _, _ in rows], np.int64),
            np.array([time_ms for _, time_ms, _ in rows], np.int64),
            b"\n".join(value or b"" for _, _, value in rows),
            *value_spans(sizes),
        )

    def __len__(self) -> int:
        """The number of its messages."""
        return len(self.offsets)

    def value(self, row: int) -> bytes | None:
        """Return the value of a message, None if it has none."""
        begin = int(self.begins[row])
        return None if begin < 0 else self.text[begin : int(self.ends[row])]

    def unread(self, row: int) -> int:
        """Return how many messages that were not read a row represents; 0 for a message."""
        return max(-1 - int(self.begins[row]), 0)


def value_spans(sizes: Ints) -> tuple[Ints, Ints]:
    """Return the begins and ends of values joined by newlines. A size below 0 becomes the begin."""
    ends = np.cumsum(np.maximum(sizes, 0) + 1) - 1
    is_missing = sizes < 0
    return np.where(is_missing, sizes, ends - sizes), np.where(is_missing, -1, ends)


class ResultMessage(NamedTuple):
    """A message of a topic. `values` are those that Avro has; None for a tombstone, and if they cannot be read."""

    key: bytes
    values: Mapping[str, object] | None
    partition: int
    offset: int
    is_readable: bool = True
