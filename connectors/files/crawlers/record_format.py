"""A format of another crawler: the signs of its records, and how one becomes an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason
from opicflow.schemas.json_events import FIELD_NAMES, kind_of, time_ms_of

_NAMES_OF_URLS = frozenset(FIELD_NAMES["url"])
Record = dict[str, object]
"""A record as its crawler wrote it: a JSON object, or a row of CSV by the names of the columns."""


class LineFormat(NamedTuple):
    """Lines of a log that are no JSON: what people call the log, the pattern of a whole line, and its record.

    `named` is the pattern where users name the format, if more lines are read then.
    """

    log: str
    pattern: re.Pattern[bytes]
    record_of: Callable[[re.Match[bytes]], Record]
    named: re.Pattern[bytes] | None = None


def _fits_always(record: Record) -> bool:
    return True


@dataclass(frozen=True)
class RecordFormat:
    """A format. A record belongs to it if it has all names of one of the `signs`, and `fits`.

    `read` returns the event of a record, None if it is about no page; it raises `EventRefused`. `marks` are the names
    that distinguish a record from one of ours that also has a URL; a sign without `url` is that of records which name
    no URL as ours do. Where users name the format, `weak_signs` are enough: records of other formats may have them,
    too. `lacks` names the data that its logs do not have, in the words of `opicflow validate`. `line`: its records may
    also be lines of text. `link_of` returns the page that the URL of a record was found on, and the URL; an empty list
    where none is named. `columns`: CSV with these is read, though no column is called as our URLs are.
    """

    name: str
    title: str
    lacks: str
    signs: tuple[frozenset[str], ...]
    read: Callable[[Record], CrawlEvent | None]
    marks: tuple[str, ...] = ()
    fits: Callable[[Record], bool] = _fits_always
    weak_signs: tuple[frozenset[str], ...] = ()
    line: LineFormat | None = None
    link_of: Callable[[Record], list[str]] | None = None
    columns: frozenset[str] = frozenset()

    def recognises(self, record: Record, is_named: bool = False) -> bool:
        """Whether a record is one of this format; `is_named`: users say so."""
        found = (*self.signs, *self.weak_signs) if is_named else self.signs
        has_sign = any(
            sign <= record.keys() and (is_named or "url" in sign or _NAMES_OF_URLS.isdisjoint(record)) for sign in found
        )
        return has_sign and self.fits(record)


def signs(*names: str) -> tuple[frozenset[str], ...]:
    """Return signs, each given by its names with blanks between."""
    return tuple(frozenset(one.split()) for one in names)


def decoded_texts(parts: Mapping[str, bytes | None]) -> Record:
    """Return the parts of a line that are there, as texts."""
    try:
        return {name: part.decode() for name, part in parts.items() if part is not None}
    except UnicodeDecodeError:
        raise EventRefused(Reason.NOT_UTF8, "the line is not UTF-8") from None


def parsed_object(text: bytes | str, called: str = "") -> Record:
    """Return a JSON object within a record, an empty one for another value; `called` is its name in messages."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise EventRefused(Reason.NOT_JSON, f"{called}{json_problem(problem)}") from None
    return found if isinstance(found, dict) else {}


def object_at(record: Record, name: str) -> Record:
    """Return an object of a record; an empty one if there is none."""
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def json_problem(problem: orjson.JSONDecodeError) -> str:
    """Return the error in JSON, without the position."""
    return problem.msg.partition(": line")[0]


def text_at(record: Record, name: str) -> str | None:
    """Return a text of a record; None for a null, an empty one, or none."""
    value = record.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise EventRefused(Reason.BAD_FIELD, f"{name}: {kind_of(value)} is no text")
    return value


def url_at(record: Record, name: str) -> str:
    """Return the URL of a record; refuse a record without one."""
    url = text_at(record, name)
    if url is None:
        raise EventRefused(Reason.NOT_AN_EVENT, f"it has no {name}")
    return url


def number_at(record: Record, name: str) -> int | None:
    """Return a whole number of a record, which may be a text; None for a null, an empty text, or none."""
    value = record.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise EventRefused(Reason.BAD_FIELD, f"{name}: {_shown(value)} is no whole number")
    return value


def time_at(record: Record, name: str) -> int | None:
    """Return a time of a record in milliseconds; None for a null, an empty text, or none."""
    value = record.get(name)
    if value is None or value == "":
        return None
    time_ms = time_ms_of(value)
    if time_ms is None:
        raise EventRefused(Reason.BAD_TIME, f"{name}: {_shown(value)} is no time")
    return time_ms


def _shown(value: object) -> str:
    return f"the text {value[:40]!r}" if isinstance(value, str) else kind_of(value)


def refuse_other_methods(method: str) -> None:
    """Refuse a request that is no GET: its answer is no page that others can fetch."""
    if method != "GET":
        raise EventRefused(Reason.BAD_FIELD, f"method: a request by {method[:20]} is no fetch of a page")


def http_status(status: int, name: str) -> int:
    """Return an HTTP status; refuse any other number."""
    if not 100 <= status < 1000:
        raise EventRefused(Reason.BAD_FIELD, f"{name}: {str(status)[:20]} is no HTTP status")
    return status
