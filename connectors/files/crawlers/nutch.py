"""Nutch: the crawldb as `readdb -dump -format json` or csv writes it.

The crawldb has one row for each page, with its last status. Its fetch time is that of the next fetch.
"""

from __future__ import annotations

import re
from calendar import timegm
from typing import NamedTuple

from opicflow.connectors.files.crawlers.record_format import Record, RecordFormat, number_at, signs, text_at, url_at
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.json_events import MONTHS


class _Meaning(NamedTuple):
    """The meaning of a status of the crawldb: an HTTP status, a failure, or an announcement if it has neither."""

    status: int | None = None
    failure: str | None = None


_UNFETCHED, _GONE = 1, 3
_MEANINGS: dict[int, _Meaning] = {
    _UNFETCHED: _Meaning(),
    2: _Meaning(200),
    _GONE: _Meaning(failure="gone"),
    4: _Meaning(302),
    5: _Meaning(301),
    6: _Meaning(304),
    7: _Meaning(200),  # a duplicate of another page
    8: _Meaning(),  # an orphan: no page links to it any more
    9: _Meaning(200),  # fetched, but not parsed
}
FAILURES_OF_PROTOCOL = {
    2: "failed",
    10: "protocol-not-found",
    11: "gone",
    14: "gone",
    15: "retry",
    16: "exception",
    17: "denied",
    18: "robots",
    19: "too-many-redirects",
    20: "not-fetched",
    23: "blocked",
}
"""Why a fetch did not succeed, by the code of the protocol's status (`_pst_`)."""
_PROTOCOL = re.compile(r"(\w+)\((\d+)\), lastModified=-?\d+(?:: (\S+))?.*", re.DOTALL)
_MOVED = (12, 13)

LINKDB_LINE = re.compile(rb"(?P<page>\S+)\tInlinks:\s*| fromUrl: (?P<found_on>\S+)(?: anchor:.*)?\r?")
"""A line of what `readlinkdb -dump` writes: a page, and below it those that link to it."""
_NAMES_IN_CSV = {
    "status_code": "statusCode",
    "fetch_time": "fetchTime",
    "Modified Time": "modifiedTime",
    "Retries since fetch": "retriesSinceFetch",
    "Retry interval seconds": "retryIntervalSeconds",
}
"""The names of columns, as the reader of CSV gives them."""
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d):(\d\d):(\d\d) (\S+) (\d{4})")
_MONTHS = {name: number for number, name in enumerate(MONTHS, 1)}
_ZONE_HOURS = {
    "UTC": 0, "GMT": 0, "Z": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MET": 1, "MEST": 2, "EET": 2, "EEST": 3,
    "MSK": 3, "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9,
}  # fmt: skip
"""Zones whose names mean one thing: CST, IST and BST do not."""
_OFFSET = re.compile(r"(?:GMT|UTC)([+-])(\d\d):(\d\d)")


def _read(record: Record) -> CrawlEvent:
    record = {_NAMES_IN_CSV.get(name, name): value for name, value in record.items()}
    url, code = url_at(record, "url"), number_at(record, "statusCode")
    if code not in _MEANINGS:
        raise EventRefused(Reason.BAD_FIELD, f"statusCode: {code} is no status of Nutch's crawldb")
    meaning = _MEANINGS[code]
    protocol, target = protocol_of(_protocol_status(record))
    failure = meaning.failure
    if code == _GONE:
        failure = FAILURES_OF_PROTOCOL.get(protocol, failure)
    elif code == _UNFETCHED and number_at(record, "retriesSinceFetch"):
        failure = FAILURES_OF_PROTOCOL.get(protocol, "retry")
    if meaning.status is None and failure is None:
        return CrawlEvent(url, announce=True)
    digest = text_at(record, "signature")
    return CrawlEvent(
        url,
        fetched_at_ms=_last_fetch_ms(record) if code != _UNFETCHED else None,
        status=None if failure else meaning.status,
        failure=failure,
        digest=None if digest == "null" else digest,
        last_modified_ms=_time_at(record, "modifiedTime") or None,
        links=(Link(target),) if target and meaning.status in (301, 302) else None,
    )


def _protocol_status(record: Record) -> object:
    """Return the protocol's status of the last fetch."""
    metadata = record.get("metadata", record.get("Metadata"))
    if isinstance(metadata, str):  # of CSV
        return next((one.removeprefix("_pst_:") for one in metadata.split("|||") if one.startswith("_pst_:")), None)
    return metadata.get("_pst_") if isinstance(metadata, dict) else None


def protocol_of(status: object) -> tuple[int, str | None]:
    """Return the code of a status of the protocol (0 = none), and the target of a redirect."""
    found = _PROTOCOL.fullmatch(status) if isinstance(status, str) else None
    if found is None or len(found[2]) > 8:
        return 0, None
    code = int(found[2])
    return code, found[3] if code in _MOVED else None


def _last_fetch_ms(record: Record) -> int | None:
    """Return the time of the last fetch: the next one, less the interval."""
    next_ms, interval = _time_at(record, "fetchTime"), record.get("retryIntervalSeconds")
    try:
        seconds = float(interval) if isinstance(interval, (int, float, str)) else -1.0
    except ValueError:
        seconds = -1.0
    if next_ms is None or not 0 <= seconds < 1e10:
        return None
    return next_ms - round(seconds * 1000)


def _time_at(record: Record, name: str) -> int | None:
    text = text_at(record, name)
    return None if text is None else java_time_ms(text, name)


def java_time_ms(text: str, name: str) -> int:
    """Return the time of a date as Java prints it, such as Mon May 04 06:00:00 UTC 2026."""
    found = _DATE.fullmatch(text)
    if found is None or found[1] not in _MONTHS:
        raise EventRefused(Reason.BAD_TIME, f"{name}: {text[:40]!r} is no date of Java")
    month, day, hour, minute, second, zone, year = found.groups()
    offset = _OFFSET.fullmatch(zone)
    if offset:
        east_minutes = (int(offset[2]) * 60 + int(offset[3])) * (-1 if offset[1] == "-" else 1)
    elif zone in _ZONE_HOURS:
        east_minutes = _ZONE_HOURS[zone] * 60
    else:
        raise EventRefused(Reason.BAD_TIME, f"{name}: the zone {zone[:20]!r} has several meanings: run Nutch in UTC")
    moment = timegm((int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second)))
    return (moment - east_minutes * 60) * 1000


FORMAT = RecordFormat(
    name="nutch",
    title="Nutch's crawldb",
    lacks="the crawldb has no links, so importance flows along redirects alone: dump the segments (nutch-segment)",
    signs=(*signs("url statusCode retryIntervalSeconds"), frozenset(("url", *_NAMES_IN_CSV))),
    marks=("retryIntervalSeconds",),
    read=_read,
)
