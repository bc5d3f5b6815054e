"""From one record to its event: ours, or that of the crawler whose signs it has."""

from __future__ import annotations

import orjson

from opicflow.connectors.files.crawlers import (
    apify,
    browsertrix,
    common_crawl,
    crawlee,
    heritrix,
    katana,
    nutch,
    screaming_frog,
    stormcrawler,
)
from opicflow.connectors.files.crawlers.line_spiders import GOSPIDER, HAKRAWLER
from opicflow.connectors.files.crawlers.record_format import Record, RecordFormat, json_problem
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Reason
from opicflow.schemas.json_events import event_of

FORMATS: dict[str, RecordFormat] = {
    one.name: one
    for one in (
        *(module.FORMAT for module in (heritrix, stormcrawler, nutch, browsertrix, crawlee, katana, common_crawl)),
        apify.FORMAT,
        screaming_frog.FORMAT,
        HAKRAWLER,
        GOSPIDER,
    )
}
NUTCH_LINKS = "nutch-links"
LINK_FORMATS = {f"{one.name}-links": one for one in FORMATS.values() if one.link_of is not None}
LINK_FORMATS[NUTCH_LINKS] = nutch.FORMAT
"""Formats of which users may read, instead of visits, the links by which URLs were found."""
MARKS = tuple(mark for one in FORMATS.values() for mark in one.marks)
"""Names of fields that distinguish records of other crawlers from ours. A record with one is examined closely."""
BOM = b"\xef\xbb\xbf"
"""The bytes that some programs write before UTF-8."""
_LINES = {one.name: one.line for one in FORMATS.values() if one.line is not None}


def format_of_record(record: Record) -> RecordFormat | None:
    """Return the format of another crawler that a record has; None if it has none of their signs."""
    return next((one for one in FORMATS.values() if one.recognises(record)), None)


def event_of_record(value: object, reading: Reading = ANY) -> CrawlEvent | None:
    """Return the event of a record; None if it is about no page. Raises `EventRefused`."""
    named = FORMATS.get(reading.format)
    if named is not None:
        if not isinstance(value, dict) or not named.recognises(value, is_named=True):
            raise EventRefused(Reason.NOT_AN_EVENT, _no_record_of(named))
        return named.read(value)
    if not reading.format and isinstance(value, dict):
        found = format_of_record(value)
        if found is not None:
            return found.read(value)
    return event_of(value, reading.field_names) if reading.fields else event_of(value)


def event_of_line(line: bytes, called: str, reading: Reading = ANY) -> CrawlEvent | None:
    """Return the event of a line, which is a JSON object, or one of another crawler's log; None if it is about no page.

    `called` is how people call it: a line, a message. Raises `EventRefused`.
    """
    if len(line) > MOST_EVENT_BYTES:
        raise EventRefused(Reason.TOO_LARGE, f"the {called} is longer than {MOST_EVENT_BYTES >> 20} MiB")
    return event_of_record(value_of_line(line, called, reading), reading)


def value_of_line(line: bytes, called: str, reading: Reading = ANY) -> object:
    """Return the value of a line of JSON, or the record of a line of another crawler. Raises `EventRefused`."""
    record = _record_of_text(line.removeprefix(BOM).strip(), reading)
    if record is not None:
        return record
    try:
        return _parsed(line, called)
    except EventRefused as refused:
        if reading.format not in FORMATS:
            raise
        raise EventRefused(refused.reason, f"{refused}: {_no_record_of(FORMATS[reading.format])}") from None


def _no_record_of(format_: RecordFormat) -> str:
    return f"it is no record of {format_.title} ({format_.name})"


def _parsed(line: bytes, called: str) -> object:
    try:
        return orjson.loads(line.removeprefix(BOM))
    except orjson.JSONDecodeError as problem:
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as bad:
            raise EventRefused(Reason.NOT_UTF8, f"byte {bad.start} of the {called} is no UTF-8") from None
        raise EventRefused(Reason.NOT_JSON, f"{json_problem(problem)} at byte {problem.pos}") from None


def _record_of_text(text: bytes, reading: Reading = ANY) -> Record | None:
    """Return the record of a line of another crawler that is no JSON object; None if the line is JSON, or unknown."""
    if text.startswith(b"{"):
        return None
    if reading.format in _LINES:
        return _record_of_line(text, reading.format)
    if reading.format:
        return None
    matches = ((one, one.pattern.fullmatch(text)) for one in _LINES.values())
    return next((one.record_of(found) for one, found in matches if found), None)


def _record_of_line(line: bytes, name: str) -> Record:
    """Return the record of a line of this format."""
    found = (_LINES[name].named or _LINES[name].pattern).fullmatch(line)
    if found is None:
        raise EventRefused(Reason.NOT_AN_EVENT, f"it is no line of {_LINES[name].log} ({name})")
    return _LINES[name].record_of(found)


def link_of_line(line: bytes, name: str) -> list[str]:
    """Return the page that a URL was found on, and the URL; an empty list where none is named. Raises `EventRefused`.

    `name` is one of `LINK_FORMATS`.
    """
    named = LINK_FORMATS[name]
    is_text = named.line is not None and not line.startswith(b"{")
    return link_of_record(_record_of_line(line, named.name) if is_text else _parsed(line, "line"), name)


def link_of_record(record: object, name: str) -> list[str]:
    """Return the link of a record as `link_of_line` does."""
    named = LINK_FORMATS[name]
    if not isinstance(record, dict) or not named.recognises(record) or named.link_of is None:
        raise EventRefused(Reason.NOT_AN_EVENT, f"it is no record of {named.title} ({name})")
    return named.link_of(record)


def is_text_of_a_crawler(line: bytes) -> bool:
    """Whether a line that is no JSON object is one of another crawler's log."""
    return any(one.pattern.fullmatch(line.strip()) for one in _LINES.values())
