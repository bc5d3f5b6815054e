"""Reads edge lists: a line for each link.

The reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file.
Offsets are those of the decompressed file and increase. A reader that starts at such an offset yields that item and all
after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opicflow.connectors.files.crawlers.dispatch import LINKS_OF_LINES
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Item, reject_of
from opicflow.connectors.files.formats import columns
from opicflow.connectors.files.opening import Blocks, Damage
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import (
    MOST_EVENT_BYTES,
    MOST_LINKS,
    CrawlEvent,
    EventRefused,
    Link,
    Reason,
    Reject,
)


def read_edges(blocks: Blocks, source: str, reading: Reading = ANY) -> Iterator[Item]:
    """Yield the visits of an edge list with lines `page target [weight]`. Adjacent lines of one page are one visit.

    The lines may also be those of another crawler, which name the page that a URL was found on.

    A line may hold a page only: a page without links, if it has no other line. URLs are not changed here. A rejected
    line ends the visit.
    """
    page_lines: _PageLines | None = None
    for offset, line, problem in lines_of(blocks):
        try:
            row = _columns_of(line, problem, reading)
        except EventRefused as refused:
            if page_lines:
                yield page_lines.offset, page_lines.item(source)
            page_lines = None
            yield offset, reject_of(refused, source, offset, line)
            continue
        if row and page_lines and page_lines.page != row[0]:
            yield page_lines.offset, page_lines.item(source)
            page_lines = None
        if row:
            page_lines = page_lines or _PageLines(offset, row[0])
            page_lines.add(line, row)
    if page_lines:
        yield page_lines.offset, page_lines.item(source)


class _PageLines:
    """The adjacent lines of one page."""

    def __init__(self, offset: int, page: str) -> None:
        self.offset = offset
        self.page = page
        self._links: list[Link] = []
        self._size_bytes = 0
        self._original = bytearray()

    def add(self, line: bytes, row: list[Any]) -> None:
        self._size_bytes += len(line) + 1
        if len(self._original) < MOST_REJECTED_BYTES:
            self._original += line + b"\n"
        if len(row) > 1 and len(self._links) <= MOST_LINKS and self._size_bytes <= MOST_EVENT_BYTES:
            self._links.append(Link(*row[1:]))

    def item(self, source: str) -> CrawlEvent | Reject:
        refused = None
        if len(self._links) > MOST_LINKS:
            refused = EventRefused(Reason.TOO_MANY_LINKS, f"the page has more than {MOST_LINKS} links")
        elif self._size_bytes > MOST_EVENT_BYTES:
            refused = EventRefused(Reason.TOO_LARGE, f"the lines of the page are longer than {MOST_EVENT_BYTES} bytes")
        if refused:
            return reject_of(refused, source, self.offset, bytes(self._original), self._size_bytes)
        return CrawlEvent(self.page, status=200, links=tuple(self._links))


def _columns_of(line: bytes, problem: EventRefused | None, reading: Reading) -> list[Any]:
    """Return [page], [page, target] or [page, target, weight]; an empty list for a comment or an empty line."""
    if problem:
        raise problem
    if not line.strip() or line.lstrip().startswith(b"#"):
        return []
    if reading.format in LINKS_OF_LINES:
        return list(LINKS_OF_LINES[reading.format](line.strip()))
    try:
        row: list[Any] = [token.decode() for token in columns(line.strip(b"\r"))]
    except UnicodeDecodeError:
        raise EventRefused(Reason.NOT_UTF8, "the line is not UTF-8") from None
    if len(row) > 3:
        raise EventRefused(Reason.NOT_AN_EVENT, f"the line has {len(row)} columns, not a page, a target and a weight")
    if not all(row):
        raise EventRefused(Reason.NOT_AN_EVENT, "the line has an empty column")
    if len(row) == 3:
        try:
            row[2] = float(row[2])
        except ValueError:
            raise EventRefused(Reason.BAD_WEIGHT, f"the weight {row[2][:40]!r} is not a number") from None
    return row


def lines_of(blocks: Blocks) -> Iterator[tuple[int, bytes, EventRefused | None]]:
    """Yield (offset, line without its newline, problem): lines that are damaged or too long have a problem."""
    rest = bytearray()
    offset = rest_bytes = 0
    damage: EventRefused | None = None

    def line_of(end: bytes) -> tuple[int, bytes, EventRefused | None]:
        problem = damage
        if rest_bytes + len(end) > MOST_EVENT_BYTES:
            problem = EventRefused(Reason.TOO_LARGE, f"the line is longer than {MOST_EVENT_BYTES} bytes")
        return offset, bytes(rest + end[:MOST_EVENT_BYTES]), problem

    for block in blocks:
        if isinstance(block, Damage):
            # The first line after damage may have lost its beginning, so it is rejected with the damage.
            offset = offset if rest_bytes or damage else block.offset
            damage = damage or EventRefused(Reason.CORRUPT, block.detail)
            continue
        if not rest_bytes and not damage:
            offset = block.offset
        data = block.data.removeprefix(b"\xef\xbb\xbf") if block.offset == 0 else block.data
        *ended, after = data.split(b"\n")
        at = block.offset + len(block.data) - len(data)
        for line in ended:
            yield line_of(line) if rest_bytes or damage else (offset, line, None)
            at += len(line) + 1
            rest.clear()
            rest_bytes, damage, offset = 0, None, at
        if len(rest) < MOST_EVENT_BYTES:
            rest += after
        rest_bytes += len(after)
    if rest_bytes or damage:
        yield line_of(b"")
