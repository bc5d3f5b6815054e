"""Crawl events from a JSON array of objects, or from objects that are written over several lines.

The reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file. A
reader that starts at such an offset yields that item and all after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from opicflow.connectors.files.crawlers.dispatch import event_of_line
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, UNFINISHED, ReadItem, reject_of
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import Blocks
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, EventRefused, Reason

_BETWEEN = re.compile(rb"(?:\xef\xbb\xbf|[\s,\[\]])*")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\[\]{]+")
_REST = "the rest of the file is not read: the beginning of the next object is unknown"


class RawValue(NamedTuple):
    """A value of a file: where it begins, its bytes, the problem if it cannot be read, and whether it breaks off."""

    offset: int
    original: bytes
    problem: EventRefused | None
    breaks_off: bool


def read_json_values(blocks: Blocks, source: str, reading: Reading = ANY, may_grow: bool = False) -> Iterator[ReadItem]:
    """Yield the events of the objects of an array, or of a row of objects.

    With `may_grow`, a last object that breaks off waits: it is `UNFINISHED`.
    """
    for value in raw_values(blocks):
        if may_grow and value.breaks_off:
            yield value.offset, UNFINISHED
            return
        try:
            if value.problem is not None:
                raise value.problem
            event = event_of_line(value.original, "object", reading)
        except EventRefused as refused:
            yield value.offset, reject_of(refused, source, value.offset, value.original)
            continue
        if event is not None:
            yield value.offset, event


def raw_values(blocks: Blocks) -> Iterator[RawValue]:
    """Yield the values of an array, or of a row of values. A problem is that of the rest of the file."""
    text = GrowingText(blocks)
    while True:
        found = _BETWEEN.match(text.data, text.at)
        text.at = found.end() if found else text.at
        if text.at == len(text.data):
            if text.grow():
                continue
            if text.damage is not None:
                refused = EventRefused(Reason.CORRUPT, f"{text.damage.detail}; {_REST}")
                yield RawValue(text.damage.offset, b"", refused, False)
                text.drain()
            return
        end, is_whole = _end_of_value(text)
        offset, value = text.offset, text.data[text.at : end]
        problem = None
        if text.damage is not None and not is_whole:
            problem = EventRefused(Reason.CORRUPT, f"{text.damage.detail}; {_REST}")
        elif not is_whole and len(value) > MOST_EVENT_BYTES:
            problem = EventRefused(Reason.TOO_LARGE, f"an object is longer than {MOST_EVENT_BYTES >> 20} MiB; {_REST}")
        if problem is not None:
            yield RawValue(offset, value[:MOST_REJECTED_BYTES], problem, False)
            text.drain()
            return
        text.at = end
        yield RawValue(offset, value, None, not is_whole)


def _end_of_value(text: GrowingText) -> tuple[int, bool]:
    """Return where the value ends that begins here, and whether it is whole: it may break off, or be too long."""
    depth, seen = 0, 0
    while True:
        begin = text.at
        if text.data[begin : begin + 1] not in (b"{", b'"'):
            found = _SCALAR.match(text.data, begin)
            end = found.end() if found else begin + 1
            if end < len(text.data) or not text.grow():
                return end, True
            continue
        for token in _TOKEN.finditer(text.data, begin + seen):
            mark = token[0]
            if mark == b'"':
                break
            depth += 1 if mark in (b"{", b"[") else -1 if mark in (b"}", b"]") else 0
            if depth == 0:
                return token.end(), True
            seen = token.end() - begin
        if len(text.data) - begin > MOST_EVENT_BYTES or not text.grow():
            return len(text.data), False
