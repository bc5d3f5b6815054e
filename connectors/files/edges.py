"""Reads edge lists: a line for each link, or CSV.

The reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file.
Offsets are those of the decompressed file and increase. A reader that starts at such an offset, and gets the head of
the file, too, yields that item and all after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from opicflow.connectors.files.crawlers.dispatch import (
    BOM,
    LINK_FORMATS,
    NUTCH_LINKS,
    link_of_line,
    link_of_record,
)
from opicflow.connectors.files.crawlers.nutch import LINKDB_LINE
from opicflow.connectors.files.crawlers.record_format import decoded_texts
from opicflow.connectors.files.csv_rows import HEAD_BYTES, first_rows, rows_of
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Item, reject_of
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import Blocks
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

_COMMENT = "#"
_MOST_ROWS = 50
_PAGE = re.compile(r"[^\s,]+://\S+|\d+|[\w-]+(?:\.[\w-]+)+(?:[:/]\S*)?", re.ASCII)
_TWO_URLS = re.compile(r"\S[\s,]+[A-Za-z][A-Za-z0-9+.-]*://")


class EdgeForm(NamedTuple):
    """The divider of an edge list, whether its first row names columns, and whether all other rows are edges."""

    divider: str
    has_names: bool
    fits: bool


def edge_form(head: bytes) -> EdgeForm:
    """Return the form of the edge list that begins with these bytes: the divider by which most rows are edges."""
    rows = {divider: first_rows(head, divider, _MOST_ROWS, _COMMENT) for divider in ("\t", ",", " ")}
    counts = {divider: sum(_may_be_edge(row, divider) for row in some) for divider, some in rows.items()}
    divider = max(counts, key=counts.__getitem__) if any(counts.values()) else " "
    first, others = rows[divider][:1], rows[divider][1:]
    has_names = bool(others) and not any(map(_PAGE.fullmatch, first[0])) and all(map(_is_edge, others))
    edges = others if has_names else rows[divider]
    return EdgeForm(divider, has_names, all(map(_is_edge, edges)) and any(len(row) > 1 for row in edges))


def _may_be_edge(row: list[str], divider: str) -> bool:
    """Whether a row may be a link between pages of any names; only with tabs they may have blanks."""
    return len(row) in (2, 3) and all(row) and (divider == "\t" or not any(" " in name for name in row[:2]))


def _is_edge(row: list[str]) -> bool:
    """Whether a row begins with URLs, hosts or numbers. If URLs have commas, there may be too many columns."""
    is_short = len(row) <= 3 or all("://" in name for name in row[:2])
    return is_short and all(map(_PAGE.fullmatch, row[:2]))


Edge = list[Any] | EventRefused
"""[page], [page, target] or [page, target, weight]; or why a row is none."""


class EdgeRow(NamedTuple):
    """A row: where it begins, its bytes, and its edge."""

    offset: int
    original: bytes
    edge: Edge
    line: int = 0


def edge_rows(text: GrowingText, form: EdgeForm) -> Iterator[EdgeRow]:
    """Yield the rows of an edge list, without the one that names the columns if the text begins with the file."""
    is_first = text.head(1) != b"" and text.offset == 0
    for row in rows_of(text, form.divider, _COMMENT.encode()):
        if not (is_first and form.has_names):
            edge: Edge
            try:
                edge = row.values if isinstance(row.values, EventRefused) else _edge_of(row.values, form.divider)
            except EventRefused as refused:
                edge = refused
            if edge:
                yield EdgeRow(row.offset, row.original, edge, row.line)
        is_first = False


def read_edges(
    blocks: Blocks,
    source: str,
    reading: Reading = ANY,
    read_from: Callable[[int], Blocks] | None = None,
    start: int = 0,
) -> Iterator[Item]:
    """Yield the visits of an edge list with rows `page target [weight]`. Adjacent rows of one page are one visit.

    They may also be the lines of another crawler, which name the page that a URL was found on.

    A row may hold a page only: a page without links, if it has no other row. URLs are not changed here. A rejected row
    ends the visit. `read_from` reads the file once more, from an offset on; without it, `blocks` begin with the file,
    not at `start`.
    """
    page_lines: _PageLines | None = None
    for offset, original, edge, _ in _rows_of(blocks, reading, read_from, start):
        if offset < start:
            continue
        if isinstance(edge, EventRefused) or (page_lines and page_lines.page != edge[0]):
            if page_lines:
                yield page_lines.offset, page_lines.item(source)
            page_lines = None
        if isinstance(edge, EventRefused):
            yield offset, reject_of(edge, source, offset, original)
            continue
        page_lines = page_lines or _PageLines(offset, edge[0])
        page_lines.add(original, edge)
    if page_lines:
        yield page_lines.offset, page_lines.item(source)


def _rows_of(
    blocks: Blocks, reading: Reading, read_from: Callable[[int], Blocks] | None, start: int
) -> Iterator[EdgeRow]:
    named = LINK_FORMATS.get(reading.format)
    if reading.format == NUTCH_LINKS:
        return _linkdb_rows(blocks, start, read_from)
    if named is not None and not named.columns:
        return _crawler_rows(blocks, reading.format)
    text = GrowingText(blocks)
    first = text if start == 0 or read_from is None else GrowingText(read_from(0))
    if named is None:
        return edge_rows(text, edge_form(first.head(HEAD_BYTES)))
    names = next(iter(first_rows(first.head(HEAD_BYTES), ",", 1)), [])
    return _table_rows(text, names, reading.format)


def _table_rows(text: GrowingText, names: list[str], crawler: str) -> Iterator[EdgeRow]:
    """Yield the links of a table, whose first row has these names of columns."""
    is_first = text.head(1) != b"" and text.offset == 0
    for row in rows_of(text, ","):
        edge: Edge = []
        try:
            if isinstance(row.values, EventRefused):
                raise row.values
            if len(row.values) != len(names):
                detail = f"the row has {len(row.values)} values, and there are {len(names)} columns"
                raise EventRefused(Reason.NOT_AN_EVENT, detail)
            if not is_first:
                edge = link_of_record(dict(zip(names, row.values, strict=True)), crawler)
        except EventRefused as refused:
            edge = refused
        is_first = False
        if edge:
            yield EdgeRow(row.offset, row.original, edge, row.line)


def _linkdb_rows(blocks: Blocks, start: int, read_from: Callable[[int], Blocks] | None) -> Iterator[EdgeRow]:
    """Yield the links of a dump of Nutch's linkdb: a page, and below it the pages that link to it."""
    page: object = None
    for offset, line, problem in lines_of(read_from(0)) if start and read_from else ():
        if offset >= start:
            break
        found = LINKDB_LINE.fullmatch(line)
        head = found["page"] if found else None
        page = None if problem else head.decode("utf-8", "replace") if head else page
    for offset, line, problem in lines_of(blocks):
        try:
            found = LINKDB_LINE.fullmatch(line)
            parts = decoded_texts(found.groupdict()) if found else {}
            page = None if problem else parts.get("page", page)
            if problem or (line.strip() and (page is None or not found)):
                raise problem or EventRefused(Reason.NOT_AN_EVENT, f"it is no line of Nutch's linkdb ({NUTCH_LINKS})")
        except EventRefused as refused:
            yield EdgeRow(offset, line, refused)
            continue
        if "found_on" in parts:
            yield EdgeRow(offset, line, [parts["found_on"], page])


def _crawler_rows(blocks: Blocks, crawler: str) -> Iterator[EdgeRow]:
    for offset, line, problem in lines_of(blocks):
        edge: Edge
        try:
            edge = problem or link_of_line(line.strip(), crawler) if line.strip() or problem else []
        except EventRefused as refused:
            edge = refused
        if edge and not line.lstrip().startswith(b"#"):
            yield EdgeRow(offset, line, edge)


class _PageLines:
    """The adjacent lines of one page."""

    def __init__(self, offset: int, page: str) -> None:
        self.offset = offset
        self.page = page
        self._links: list[Link] = []
        self._size_bytes = 0
        self._original = bytearray()

    def add(self, original: bytes, edge: list[Any]) -> None:
        self._size_bytes += len(original)
        if len(self._original) < MOST_REJECTED_BYTES:
            self._original += original
        if len(edge) > 1 and len(self._links) <= MOST_LINKS and self._size_bytes <= MOST_EVENT_BYTES:
            self._links.append(Link(*edge[1:]))

    def item(self, source: str) -> CrawlEvent | Reject:
        refused = None
        if len(self._links) > MOST_LINKS:
            refused = EventRefused(Reason.TOO_MANY_LINKS, f"the page has more than {MOST_LINKS} links")
        elif self._size_bytes > MOST_EVENT_BYTES:
            refused = EventRefused(Reason.TOO_LARGE, f"the lines of the page are longer than {MOST_EVENT_BYTES} bytes")
        if refused:
            return reject_of(refused, source, self.offset, bytes(self._original), self._size_bytes)
        return CrawlEvent(self.page, status=200, links=tuple(self._links))


def _edge_of(values: list[str], divider: str) -> list[Any]:
    """Return the edge of a row; an empty list if it is blank."""
    row: list[Any] = [value.strip() for value in values]
    while divider == " " and row and not row[-1]:  # a blank at the end of a line
        del row[-1]
    if not any(row):
        return []
    if len(row) > 3:
        advice = ": put values with ',' in double quotes" if divider == "," else ""
        detail = f"the line has {len(row)} columns, not a page, a target and a weight{advice}"
        raise EventRefused(Reason.NOT_AN_EVENT, detail)
    if not all(row):
        raise EventRefused(Reason.NOT_AN_EVENT, "the line has an empty column")
    if len(row) == 1 and _TWO_URLS.search(row[0]):
        raise EventRefused(
            Reason.NOT_AN_EVENT, f"two URLs are in one column: divide them by {divider!r}, as other lines"
        )
    if len(row) == 3:
        try:
            row[2] = float(row[2])
        except ValueError:
            raise EventRefused(Reason.BAD_WEIGHT, f"the weight {row[2][:40]!r} is not a number") from None
    return row


def lines_of(blocks: Blocks) -> Iterator[tuple[int, bytes, EventRefused | None]]:
    """Yield (offset, line without its newline, problem): lines that are damaged or too long have a problem."""
    text = GrowingText(blocks)
    if text.head(len(BOM)) == BOM and text.offset == 0:
        text.at += len(BOM)
    while True:
        offset = text.offset
        ended, has_ended = text.next_line(MOST_EVENT_BYTES + 2)
        line = ended.removesuffix(b"\n")
        if not has_ended and text.damage is not None:
            yield offset if line else text.damage.offset, line, EventRefused(Reason.CORRUPT, text.damage.detail)
            text.go_behind_damage()
        elif not ended:
            return
        elif len(line) > MOST_EVENT_BYTES:
            detail = f"the line is longer than {MOST_EVENT_BYTES} bytes"
            yield offset, line[:MOST_EVENT_BYTES], EventRefused(Reason.TOO_LARGE, detail)
        else:
            yield offset, line, None
