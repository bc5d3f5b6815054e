"""Crawl events from CSV with a first line that names the columns; columns are divided by commas, tabs, ; or |.

A value in double quotes may have the divider, quotes (each written twice) and line breaks in it. The reader takes the
blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file. A reader that starts at
such an offset, and gets the head of the file, too, yields that item and all after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import orjson

from opicflow.connectors.files.crawlers.dispatch import BOM, FORMATS, event_of_record
from opicflow.connectors.files.crawlers.record_format import Record
from opicflow.connectors.files.decoded import UNFINISHED, ReadItem, reject_of
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import Blocks
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Reason, Reject

DIVIDERS = (b",", b"\t", b";", b"|")
_QUOTE, _NEWLINE, _RETURN, _BLANK = b'"\n\r '
_QUOTED = re.compile(rb'"([^"]*(?:""[^"]*)*)"(?!")')
_LISTS = ("links", "redirects")
_BETWEEN_URLS = re.compile(r"[,;|\s]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_BETWEEN_PATHS = re.compile(r"[,;|\s]+")


class CsvHeader(NamedTuple):
    """The names of the columns, and what divides columns."""

    divider: bytes
    names: tuple[str, ...]


class _Row(NamedTuple):
    """A row: where it begins, its bytes, and its values, or the problem. The last one may have no line break."""

    offset: int
    original: bytes
    values: list[bytes] | EventRefused
    has_ended: bool


def header_of(line: bytes, reading: Reading = ANY) -> CsvHeader | None:
    """Return the header that a line is; None if it names no URL."""
    urls = set(reading.field_names["url"])
    found = []
    for divider in DIVIDERS:
        parsed = values_of(line.removeprefix(BOM).strip(b"\r\n"), divider)
        if isinstance(parsed, list):
            names = tuple(_known_name(name.decode("utf-8", "replace").strip(), reading) for name in parsed)
            found += [CsvHeader(divider, names)] if not urls.isdisjoint(names) else []
    return max(found, key=lambda header: len(header.names), default=None)


def has_other_known(header: CsvHeader, reading: Reading = ANY) -> bool:
    """Whether a header names something else that is known than a URL."""
    return not (known_names(reading) - set(reading.field_names["url"])).isdisjoint(header.names)


def values_of(line: bytes, divider: bytes) -> list[bytes] | None:
    """Return the values of a line without its line break; None if its quotes are wrong."""
    _, values = _parsed(line, 0, divider, has_ended=True) or (0, None)
    return values if isinstance(values, list) else None


@lru_cache(8)
def known_names(reading: Reading) -> frozenset[str]:
    """Return all names that our records, or those of other crawlers, may have."""
    ours = [name for names in reading.field_names.values() for name in names]
    return frozenset((*ours, *(name for one in FORMATS.values() for sign in one.signs for name in sign)))


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
    line, _ = first.next_line()
    header = header_of(line, reading)
    if header is None:
        if start == 0 and (line or first.damage):
            refused = EventRefused(Reason.WRONG_SCHEMA, "the first line names no column url: name one with --field")
            yield 0, reject_of(refused, source, 0, line)
        text.drain()
        return
    for row in _rows(text, header.divider):
        if row.offset < start:
            continue
        if may_grow and not row.has_ended:
            yield row.offset, UNFINISHED
            return
        item = _item_of(row, header, source, reading)
        if item is not None:
            yield row.offset, item


def records_of_rows(text: GrowingText, header: CsvHeader, reading: Reading = ANY) -> Iterator[Record]:
    """Yield the rows behind the header as records, those that can be read."""
    for row in _rows(text, header.divider):
        try:
            if isinstance(row.values, list) and row.values != [b""]:
                yield _record_of(row.values, header, reading)
        except EventRefused:
            continue


def _item_of(row: _Row, header: CsvHeader, source: str, reading: Reading) -> CrawlEvent | Reject | None:
    """Return the event or the reject of a row; None if it is blank, or about no page."""
    try:
        if isinstance(row.values, EventRefused):
            raise row.values
        if row.values == [b""]:
            return None
        return event_of_record(_record_of(row.values, header, reading), reading)
    except EventRefused as refused:
        return reject_of(refused, source, row.offset, row.original)


def _record_of(values: list[bytes], header: CsvHeader, reading: Reading) -> Record:
    if len(values) != len(header.names):
        raise EventRefused(
            Reason.NOT_AN_EVENT,
            f"the row has {len(values)} values, and there are {len(header.names)} columns: put values with "
            f"{header.divider.decode()!r} in double quotes",
        )
    record: Record = {}
    for name, value in zip(header.names, values, strict=True):
        try:
            text = value.decode().strip()
        except UnicodeDecodeError:
            raise EventRefused(Reason.NOT_UTF8, f"the value of {name[:40]} is not UTF-8") from None
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


def _rows(text: GrowingText, divider: bytes) -> Iterator[_Row]:
    """Yield the rows of a text. Damage ends a row, and the first line behind it is lost with it."""
    while True:
        parsed = _parsed(text.data, text.at, divider, text.has_ended)
        begin, offset = text.at, text.offset
        if parsed is None and len(text.data) - begin > MOST_EVENT_BYTES:
            line, has_ended = text.next_line()
            detail = f"the row is longer than {MOST_EVENT_BYTES >> 20} MiB, or a quote is never closed"
            yield _Row(offset, line, EventRefused(Reason.TOO_LARGE, detail), has_ended)
            continue
        if parsed is None:
            if text.grow():
                continue
            if text.damage is not None:
                refused = EventRefused(Reason.CORRUPT, text.damage.detail)
                offset = offset if len(text.data) > begin else text.damage.offset
                yield _Row(offset, text.data[begin:], refused, True)
                text.go_behind_damage()
            continue
        end_at, values = parsed
        if text.has_ended and end_at == begin:
            return
        original = text.data[begin:end_at]
        text.at = end_at
        yield _Row(offset, original, values, original.endswith(b"\n"))


def _parsed(data: bytes, begin: int, divider: bytes, has_ended: bool) -> tuple[int, list[bytes] | EventRefused] | None:
    """Return where the row ends that begins here, and its values; None if more bytes are needed to know."""
    newline = data.find(b"\n", begin)
    line_end = newline if newline >= 0 else len(data)
    if data.find(b'"', begin, line_end) < 0:
        if newline < 0 and not has_ended:
            return None
        return min(line_end + 1, len(data)), data[begin:line_end].removesuffix(b"\r").split(divider)
    values: list[bytes] = []
    at = begin
    while True:
        quote = at
        while quote < len(data) and data[quote] == _BLANK:
            quote += 1
        if quote < len(data) and data[quote] == _QUOTE:
            found = _QUOTED.match(data, quote)
            if found is None or (found.end() == len(data) and not has_ended):
                return _wrong_quotes(line_end, len(data)) if has_ended else None
            values.append(found[1].replace(b'""', b'"'))
            at = found.end()
        else:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            divided = data.find(divider, at, end)
            if divided < 0 and end == len(data) and not has_ended:
                return None
            at, value = (end, data[at:end].removesuffix(b"\r")) if divided < 0 else (divided, data[at:divided])
            values.append(value)
        if at == len(data):
            return at, values
        if data.startswith(divider, at):
            at += len(divider)
        elif data[at] == _NEWLINE:
            return at + 1, values
        elif data[at] == _RETURN and data[at + 1 : at + 2] == b"\n":
            return at + 2, values
        elif at + 1 == len(data) and not has_ended:
            return None
        else:
            return _wrong_quotes(line_end, len(data)) if newline >= 0 or has_ended else None


def _wrong_quotes(line_end: int, size: int) -> tuple[int, EventRefused]:
    """Return that a row ends with its first line, as its quotes are wrong."""
    detail = "the quotes of the row are wrong: a quote within a value in quotes is written twice"
    return min(line_end + 1, size), EventRefused(Reason.NOT_AN_EVENT, detail)
