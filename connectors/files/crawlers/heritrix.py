"""Heritrix 3: the lines of its crawl.log, and the same as JSON objects in its feed to Kafka.

A line has a time, the status, the size, the URL, the path of hops from the seed, the page it was found on (via), the
content type, the thread, the begin and the duration of the fetch, the digest, the seed, and annotations.
"""

from __future__ import annotations

import re

from opicflow.connectors.files.crawlers.record_format import (
    LineFormat,
    Record,
    RecordFormat,
    decoded_texts,
    http_status,
    number_at,
    signs,
    text_at,
    time_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason
from opicflow.schemas.json_events import time_ms_of

_LINE = re.compile(
    rb"(?P<timestamp>\d{17}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) +(?P<status_code>-?\d{1,5}) +(?P<size>-|\d+) +"
    rb"(?P<url>\S+) +(?P<hop_path>\S+) +(?P<via>\S+)(?: +(?P<mimetype>\S+)(?: +#\d+)?"
    rb"(?: +(?P<start_time_plus_duration>-|\d{14,17}\+-?\d+)(?: +(?P<content_digest>\S+)(?: .*)?)?)?)? *\r?"
)
_NOTHING = "-"
_NO_TYPES = ("unknown", "no-type")
_OTHER_LOOKUPS = ("dns:", "whois:")
_PREREQUISITE = "P"
_UNTRIED = 0
_NEGATIVE_STATUSES = frozenset(
    [
        *range(-8, 0),
        -50,
        -60,
        -61,
        -62,
        -63,
        -404,
        -3000,
        *range(-4002, -3999),
        *range(-5004, -4999),
        -6000,
        -7000,
        -9998,
    ]
)
"""Heritrix's own statuses of fetches that did not succeed."""
_REDIRECT = "R"


def _record_of(line: re.Match[bytes]) -> Record:
    """Return a line of a crawl.log as the object that the feed to Kafka has for it."""
    record = decoded_texts(line.groupdict())
    return {name: "" if value == _NOTHING and name != "url" else value for name, value in record.items()}


def _read(record: Record) -> CrawlEvent | None:
    url = url_at(record, "url")
    if _is_no_page(record, url):
        return None
    status = number_at(record, "status_code")
    if status is None:
        raise EventRefused(Reason.BAD_FIELD, "status_code: there is none")
    if status != _UNTRIED and status not in _NEGATIVE_STATUSES:
        http_status(status, "status_code")
    via, hops = text_at(record, "via"), text_at(record, "hop_path") or ""
    return CrawlEvent(
        url,
        announce=status == _UNTRIED,
        fetched_at_ms=None if status == _UNTRIED else _fetched_at_ms(record),
        status=status if status != _UNTRIED else None,
        redirects=(via,) if via and hops.endswith(_REDIRECT) and status != _UNTRIED else (),
        content_type=None if record.get("mimetype") in _NO_TYPES else text_at(record, "mimetype"),
        digest=text_at(record, "content_digest"),
    )


def _is_no_page(record: Record, url: str) -> bool:
    """Whether this is what Heritrix needs before it fetches pages of a host: an address, or robots.txt, also moved."""
    hops = text_at(record, "hop_path") or ""
    return url.startswith(_OTHER_LOOKUPS) or hops.rstrip(_REDIRECT).endswith(_PREREQUISITE)


def _fetched_at_ms(record: Record) -> int | None:
    """Return when the fetch began; when the line was written if that is not known."""
    begun = (text_at(record, "start_time_plus_duration") or "").partition("+")[0]
    begun_ms = time_ms_of(begun) if begun else None
    return time_at(record, "timestamp") if begun_ms is None else begun_ms


def _link_of(record: Record) -> list[str]:
    """Return the page that a URL was found on, and the URL; an empty list for a seed or no page."""
    via, url = text_at(record, "via"), url_at(record, "url")
    return [] if via is None or _is_no_page(record, url) else [via, url]


FORMAT = RecordFormat(
    name="heritrix",
    title="Heritrix",
    lacks="crawl.log has no links, so importance flows along redirects alone: replay the WARC files, or read the pages "
    "that URLs were found on (--input-format heritrix-links)",
    signs=signs("url status_code hop_path"),
    marks=("hop_path",),
    read=_read,
    line=LineFormat("a Heritrix crawl.log", _LINE, _record_of),
    link_of=_link_of,
)
