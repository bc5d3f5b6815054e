"""Crawl events from CSV with a first line that names the columns; columns are divided by commas, tabs, ; or |.

The reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file. A
reader that starts at such an offset, and gets the head of the file, too, yields that item and all after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import orjson

from opicflow.connectors.files.crawlers.dispatch import FORMATS, event_of_record
from opicflow.connectors.files.crawlers.record_format import Record
from opicflow.connectors.files.csv_rows import HEAD_BYTES, Row, first_rows, rows_of
from opicflow.connectors.files.decoded import UNFINISHED, ReadItem, reject_of
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import Blocks
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason, Reject

DIVIDERS = (",", "\t", ";", "|")
_LISTS = ("links", "redirects")
_BETWEEN_URLS = re.compile(r"[,;|\s]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_BETWEEN_PATHS = re.compile(r"[,;|\s]+")


class CsvHeader(NamedTuple):
    """The names of the columns, and what divides columns."""

    divider: str
    names: tuple[str, ...]


def header_of(head: bytes, reading: Reading = ANY) -> CsvHeader | None:
    """Return the header with which a file begins; None if it names no URL, and is of no crawler."""
    urls, crawlers = set(reading.field_names["url"]), [one.columns for one in FORMATS.values() if one.columns]
    found = []
    for divider in DIVIDERS:
        for row in first_rows(head, divider, 1):
            names = tuple(_known_name(name, reading) for name in row)
            is_known = not urls.isdisjoint(names) or any(columns <= {*names} for columns in crawlers)
            found += [CsvHeader(divider, names)] if is_known else []
    return max(found, key=lambda header: len(header.names), default=None)


def has_other_known(header: CsvHeader, reading: Reading = ANY) -> bool:
    """Whether a header names something else that is known than a URL."""
    return not (known_names(reading) - set(reading.field_names["url"])).isdisjoint(header.names)


@lru_cache(8)
def known_names(reading: Reading) -> frozenset[str]:
    """Return all names that our records, or those of other crawlers, may have."""
    ours = [name for names in reading.field_names.values() for name in names]
    signs = [sign for one in FORMATS.values() for sign in (*one.signs, one.columns)]
    return frozenset((*ours, *(name for sign in signs if not sign.isdisjoint(("url", "Address")) for name in sign)))


def _known_name(name: str, reading: Reading) -> str:
    """Return the name of a column as we know it: also in capital letters, and with blanks between words."""
    plain, known = name.lower().replace(" ", "_"), known_names(reading)
    return plain if name not in known and plain in known else name


def read_csv(
    blocks: Blocks,
    source: str,
    read_from: Callable[[int], Blocks] | None,
    start: int,
    reading: Reading = ANY,
    may_grow: bool = False,
) -> Iterator[ReadItem]:
    """Yield the events of rows, from `start` on.

    `read_from` reads the file once more, from an offset on; without it, `blocks` begin with the file, not at `start`.
    With `may_grow`, a last row without a line break waits: it is `UNFINISHED`.
    """
    text = GrowingText(blocks)
    first = text if start == 0 or read_from is None else GrowingText(read_from(0))
    head = first.head(HEAD_BYTES)
    header = header_of(head, reading)
    if header is None:
        if start == 0 and (head or first.damage):
            refused = EventRefused(Reason.WRONG_SCHEMA, "the first line names no column url: name one with --field")
            yield 0, reject_of(refused, source, 0, text.next_line()[0])
        text.drain()
        return
    rows = rows_of(text, header.divider)
    if first is text:
        next(rows, None)  # the header
    for row in rows:
        if row.offset < start:
            continue
        if may_grow and not row.has_ended:
            yield row.offset, UNFINISHED
            return
        item = _item_of(row, header, source, reading)
        if item is not None:
            yield row.offset, item


def records_in(text: GrowingText, reading: Reading = ANY) -> Iterator[Record]:
    """Yield the rows of a file as records, those that can be read; none if the first one is no header."""
    header = header_of(text.head(HEAD_BYTES), reading)
    rows = rows_of(text, header.divider) if header else iter(())
    next(rows, None)
    for row in rows:
        try:
            if header and not isinstance(row.values, EventRefused):
                yield _record_of(row.values, header, reading)
        except EventRefused:
            continue


def _item_of(row: Row, header: CsvHeader, source: str, reading: Reading) -> CrawlEvent | Reject | None:
    """Return the event or the reject of a row; None if it is about no page."""
    try:
        if isinstance(row.values, EventRefused):
            raise row.values
        return event_of_record(_record_of(row.values, header, reading), reading)
    except EventRefused as refused:
        return reject_of(refused, source, row.offset, row.original)


def _record_of(values: list[str], header: CsvHeader, reading: Reading) -> Record:
    if len(values) != len(header.names):
        raise EventRefused(
            Reason.NOT_AN_EVENT,
            f"the row has {len(values)} values, and there are {len(header.names)} columns: put values with "
            f"{header.divider!r} in double quotes",
        )
    record: Record = {}
    for name, value in zip(header.names, values, strict=True):
        text = value.strip()
        if text and name not in record:
            record[name] = text
    for field in _LISTS:
        for name in reading.field_names[field]:
            if name in record:
                record[name] = _list_of(str(record[name]), field)
    return record


def _list_of(text: str, field: str) -> object:
    """Return the URLs that a value lists: as JSON, or with , ; | or blanks between them.

    A URL may have these in it, so full URLs end only where the next full one begins.
    """
    if text.startswith("["):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            problem = f"{field}: a list that is neither JSON nor URLs with commas between: write JSON instead of CSV"
            raise EventRefused(Reason.BAD_FIELD, problem) from None
    is_full = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text)
    return (_BETWEEN_URLS if is_full else _BETWEEN_PATHS).split(text)
