"""Crawl events as JSON objects: the names that a field may have, and the forms that its values may have.

Besides its own name every field may have those of Scrapy items, Heritrix logs and Nutch dumps. If an object has several
names of one field, the first in the list counts. Names in no list are ignored.
"""

from __future__ import annotations

import math
import re
from calendar import timegm
from datetime import datetime

from opicflow.schemas.crawl_events import (
    BROKEN_LINK,
    LONGEST_RETRY_SECONDS,
    CrawlEvent,
    EventRefused,
    Link,
    Reason,
)
from opicflow.schemas.event_columns import is_known_failure

FIELD_NAMES: dict[str, tuple[str, ...]] = {
    "kind": ("kind", "event"),
    "url": ("url", "uri", "response_url"),
    "fetched_at": ("fetched_at", "fetch_time", "fetchTime", "crawled_at", "timestamp", "fetch_date", "ts"),
    "status": ("status", "status_code", "statusCode", "http_status", "httpStatusCode", "response_status"),
    "failure": ("failure", "error", "failure_class"),
    "redirects": ("redirects", "redirect_urls", "redirect_chain"),
    "canonical": ("canonical", "canonical_url", "canonicalUrl"),
    "content_type": ("content_type", "contentType", "mime_type", "mimetype", "mimeType", "mime"),
    "digest": ("digest", "content_digest", "signature", "sha1", "checksum"),
    "last_modified": ("last_modified", "lastmod", "lastModified", "modifiedTime"),
    "links": ("links", "outlinks", "out_links", "outLinks"),
    "retry_after": ("retry_after", "retryAfter", "retry-after"),
    "quality": ("quality",),
}
LINK_FIELD_NAMES: dict[str, tuple[str, ...]] = {
    "url": ("url", "href", "toUrl", "uri"),
    "weight": ("weight",),
    "rel": ("rel",),
    "nofollow": ("nofollow",),
}
ANNOUNCED_BY = ("announce", "announcement", "seed", "sitemap", "push")
VISIT_WORDS = ("visit", "fetch", "crawl")
LEAST_MILLISECONDS = 100_000_000_000
"""An epoch from here on is in milliseconds; below, in seconds (which lasts until the year 5138)."""

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
    r"(?: ?(?:([Zz])|(?:UTC)|([+-])(\d\d):?(\d\d)))?)?"
)
_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def event_of(value: object, field_names: dict[str, tuple[str, ...]] = FIELD_NAMES) -> CrawlEvent:
    """Return the event of a JSON value; raises `EventRefused` if it is none. `field_names` are those of each field."""
    if not isinstance(value, dict):
        raise EventRefused(Reason.NOT_AN_EVENT, f"it is {kind_of(value)}, not an object with a url")
    found = {name: _first(value, names) for name, names in field_names.items()}
    url = found["url"]
    if url is None:
        raise EventRefused(Reason.NOT_AN_EVENT, "it has no url")
    status, failure = found["status"], found["failure"]
    if isinstance(status, str):  # "404", or a failure
        status, failure = (float(status), failure) if _is_number(status) else (None, failure or _failing_word(status))
    if isinstance(status, float) and status.is_integer():
        status = int(status)
    if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
        raise EventRefused(Reason.BAD_FIELD, f"status: {kind_of(status)} is no HTTP status")
    if failure is not None and not isinstance(failure, str):
        failure = "error" if failure else None  # a crawler's own object; false and empty ones say that all went well
    fetched_at_ms = _time_ms(found["fetched_at"], "fetched_at")
    return CrawlEvent(
        url=_text(url, "url"),
        announce=_is_announcement(found["kind"]),
        fetched_at_ms=fetched_at_ms,
        status=status,
        failure=failure or None,
        redirects=tuple(_text(hop, "redirects") for hop in _list(found["redirects"], "redirects")),
        canonical=_text(found["canonical"], "canonical") if found["canonical"] else None,
        content_type=_optional_text(found["content_type"]),
        digest=_optional_text(found["digest"]),
        last_modified_ms=_time_or_nothing(found["last_modified"]),
        links=None if found["links"] is None else tuple(_link(link) for link in _list(found["links"], "links")),
        retry_after=retry_seconds_of(found["retry_after"], fetched_at_ms),
        quality=_quality(found["quality"]),
    )


def time_ms_of(value: object) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time, an HTTP date, 14 or 17 digits, or an epoch; None if it is no time.

    A time without a zone is taken for UTC. Fractions below a millisecond are cut off.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) >= LEAST_MILLISECONDS else value * 1000
    if isinstance(value, float):
        if not abs(value) < 1e16:
            return None
        # A double has less than half a microsecond to spare: 0.123 s must not become 122 ms.
        return int(value) if abs(value) >= LEAST_MILLISECONDS else math.floor(value * 1000 + 0.0005)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if match := _ISO.fullmatch(text):
        year, month, day, hour, minute, second, fraction, _, sign, east_h, east_m = match.groups()
        east = (int(east_h) * 3600 + int(east_m) * 60) * (-1 if sign == "-" else 1) if sign else 0
        return _moment((year, month, day, hour, minute, second), int(((fraction or "") + "000")[:3]), east)
    if match := _HTTP_DATE.fullmatch(text):
        day, word, year, hour, minute, second = match.groups()
        month = str(MONTHS.index(word) + 1) if word in MONTHS else "0"
        return _moment((year, month, day, hour, minute, second), 0, 0)
    if match := _DIGITS.fullmatch(text):
        return _moment(match.groups()[:6], int(match[7] or 0), 0)
    if _is_number(text):
        return time_ms_of(float(text) if "." in text else int(text))
    return None


def retry_seconds_of(value: object, fetched_at_ms: int | None) -> int | None:
    """The seconds of a Retry-After, which may be a number or a date; at most 30 days.

    None if it is neither, names no time after the fetch, or is a date and the time of the fetch is not known.
    """
    if isinstance(value, str) and (digits := re.fullmatch(r"\s*([0-9]+)\s*", value)):
        value = int(digits[1]) if len(digits[1]) < 19 else math.inf
    if isinstance(value, str):
        until_ms = time_ms_of(value)
        if until_ms is None or fetched_at_ms is None:
            return None
        value = -((fetched_at_ms - until_ms) // 1000)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return None
    return math.ceil(min(value, LONGEST_RETRY_SECONDS))


def _moment(parts: tuple[str | None, ...], milliseconds: int, east_seconds: int) -> int | None:
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59))  # a leap second counts as the one before
    except ValueError:
        return None
    if second > 60:
        return None
    return (timegm(moment.timetuple()) - east_seconds) * 1000 + milliseconds


def _first(value: dict[str, object], names: tuple[str, ...]) -> object:
    for name in names:
        if value.get(name) is not None:
            return value[name]
    return None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*-?\d{1,15}(\.\d{1,9})?\s*", text) is not None and text.isascii()


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise EventRefused(Reason.BAD_FIELD, f"{name}: {kind_of(value)} is no URL")
    return value


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else str(value) if isinstance(value, int) else None


def _quality(value: object) -> float | None:
    """Return NaN for a value that is no number: it is dropped and counted, and the event is good without it."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, str):
        return float(value) if _is_decimal(value) else math.nan if value.strip() else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    return math.nan


def _is_decimal(text: str) -> bool:
    return text.isascii() and re.fullmatch(r"\s*[0-9]*\.?[0-9]+([eE]-?[0-9]{1,3})?\s*", text) is not None


def _list(value: object, name: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise EventRefused(Reason.BAD_FIELD, f"{name}: {kind_of(value)} is no list")
    return value


def _link(value: object) -> Link:
    if isinstance(value, str):
        return Link(value)
    if not isinstance(value, dict):
        return BROKEN_LINK
    url, weight, rel, nofollow = (_first(value, names) for names in LINK_FIELD_NAMES.values())
    if not isinstance(url, str):
        return BROKEN_LINK
    if weight is not None and (not isinstance(weight, (int, float)) or isinstance(weight, bool)):
        raise EventRefused(Reason.BAD_WEIGHT, f"a link's weight is {kind_of(weight)}: give a finite number from 0")
    if isinstance(rel, list):
        rel = " ".join(word for word in rel if isinstance(word, str))
    words = rel if isinstance(rel, str) else ""
    return Link(url, weight, f"{words} nofollow" if nofollow is True else words or None)


def _failing_word(status: str) -> str:
    """Return a status that is a word and names a failure; any other word is refused: it may be a success."""
    if not status or is_known_failure(status):
        return status
    raise EventRefused(
        Reason.BAD_FIELD,
        f"status: the word {status[:40]!r} is neither an HTTP status nor a known failure: give a number, or `failure`",
    )


def _is_announcement(kind: object) -> bool:
    if kind is None:
        return False
    word = kind.lower() if isinstance(kind, str) else ""
    if word in ANNOUNCED_BY:
        return True
    if word in VISIT_WORDS:
        return False
    raise EventRefused(Reason.BAD_FIELD, f"kind: give visit or announce, not {_shown(kind)}")


def _time_ms(value: object, name: str) -> int | None:
    if value is None:
        return None
    time_ms = time_ms_of(value)
    if time_ms is None:
        raise EventRefused(Reason.BAD_TIME, f"{name}: {_shown(value)} is neither ISO 8601 nor an epoch")
    return time_ms


def _time_or_nothing(value: object) -> int | None:
    """Return None for a value that is no time: servers often send such, and the event is good without it."""
    return time_ms_of(value)


def _shown(value: object) -> str:
    """A value in a few words. Lists and objects may be too deep to print."""
    of_one_line = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return f"{kind_of(value)} {str(value)[:40]!r}" if of_one_line else kind_of(value)


def kind_of(value: object) -> str:
    """Return what a JSON value is, in words."""
    return {type(None): "null", bool: "a truth value", int: "a number", float: "a number", str: "a text"}.get(
        type(value), "a list" if isinstance(value, list) else "an object"
    )
