"""Crawl events from JSON lines: kernels read the plain lines, orjson all others; both say the same.

An odd line goes to orjson and `event_of_line` by itself: it costs only itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from opicflow.connectors.files.crawlers.dispatch import event_of_line
from opicflow.connectors.files.decoded import Decoded, Item, RejectWriter, with_rejects
from opicflow.connectors.files.json_scan import scan_text
from opicflow.connectors.files.json_text import put_back, with_fewer_escapes
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import EventRefused
from opicflow.schemas.event_columns import EventWriter, merge

_BLANKS = b" \t\r"


def decode_jsonl(block: bytes, source: str, first_offset: int, reading: Reading = ANY) -> Decoded:
    """The events of whole lines, the first of which begins at `first_offset` of its source."""
    text, own = with_fewer_escapes(block)
    scan = scan_text(text, first_offset, reading)
    if own is not None:
        put_back(own, scan.begins, scan.ends, int(scan.counts[1]))
    plain = scan.events(text)
    others, rejects = EventWriter(), RejectWriter(source)
    for offset, _, _ in scan.odd():
        line = line_at(block, first_offset, offset).rstrip(_BLANKS)
        take_line(line, offset, others, rejects, "line", reading)
    events, original = merge(plain, others.events()), partial(line_at, block, first_offset)
    return Decoded(events, rejects.rejects, original, unlisted=rejects.unlisted)


def items_of_lines(block: bytes, source: str, first_offset: int, reading: Reading = ANY) -> Iterator[Item]:
    """Yield the events of whole lines one by one, and the rejects."""
    decoded = decode_jsonl(block, source, first_offset, reading)

    def events() -> Iterator[Item]:
        for offset in decoded.events.offset.tolist():
            event = event_of_line(line_at(block, first_offset, offset), "line", reading)
            if event is not None:
                yield offset, event

    return with_rejects(events(), decoded)


def take_line(
    value: bytes, offset: int, others: EventWriter, rejects: RejectWriter, called: str, reading: Reading = ANY
) -> None:
    """Read a line without the kernel. It may be rejected, or about no page.

    `called` is how people call it: a line, a message.
    """
    if rejects.repeats(value):
        return
    try:
        event = event_of_line(value, called, reading)
        if event is not None:
            others.add(offset, event)
    except EventRefused as problem:
        rejects.add(problem.reason, str(problem), offset, value)
        rejects.remember(value, problem.reason)


def line_at(block: bytes, first_offset: int, offset: int) -> bytes:
    """The line that begins at an offset."""
    begin = offset - first_offset
    end = block.find(b"\n", begin)
    return block[begin : len(block) if end < 0 else end]
