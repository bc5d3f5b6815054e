"""Reads crawl events from WARC and ARC files, and from Common Crawl's WAT files.

Each reader takes the blocks of `opening.decompressed` and yields (offset, event or reject) in the order of the file.
Offsets are those of the decompressed file and increase. A reader that starts at such an offset yields that item and all
after it. A broken record is a reject, and reading continues at the next record.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import orjson

from opicflow.connectors.files.crawlers.record_format import refuse_other_methods
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Item, reject_of
from opicflow.connectors.files.html_links import (
    LinkResolver,
    decode_html,
    is_nofollow_rule,
    links_of_html,
    resolved_links,
)
from opicflow.connectors.files.opening import Blocks
from opicflow.connectors.files.warc_records import ARC, MOST_HEAD_BYTES, Fields, read_fields, read_records
from opicflow.schemas.crawl_events import (
    EARLIEST_MS,
    LATEST_MS,
    MOST_EVENT_BYTES,
    MOST_LINKS,
    CrawlEvent,
    EventRefused,
    Link,
    Reason,
    Reject,
)
from opicflow.schemas.json_events import retry_seconds_of, time_ms_of

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


ReadFrom = Callable[[int], Blocks]


def read_warc(blocks: Blocks, source: str, read_from: ReadFrom | None = None) -> Iterator[Item]:
    """Yield the visits of a WARC file: its `response`, `revisit` and HTML `resource` records.

    The answer to a request that is no GET is a reject. `read_from` reads the file once more, from an offset on.
    """
    return _without_posts(read_records(blocks, source, _is_half, _half_of, read_from), source)


def read_arc(blocks: Blocks, source: str) -> Iterator[Item]:
    """Yield the visits of an ARC file of version 1: its records of HTTP."""
    return read_records(blocks, source, _is_of_web, _visit_of_record, form=ARC)


def read_wat(blocks: Blocks, source: str, read_from: ReadFrom | None = None) -> Iterator[Item]:
    """Yield the visits of a WAT file of Common Crawl: its metadata records of responses."""
    return read_records(blocks, source, _is_json_metadata, _visit_of_metadata, read_from)


MOST_CODINGS = 4
"""A response with more content encodings is refused: each may take as long as a page of the greatest length."""
MOST_EXPANSION = 100
"""A page may be this many times longer when decompressed; and `ALWAYS_DECOMPRESSED_BYTES` in any case."""
ALWAYS_DECOMPRESSED_BYTES = 1 << 20
MOST_JSON_MARKS = 4 << 20
"""The brackets, braces and commas of the metadata of a record: about as many values, each far longer in memory."""
_MOST_DATE_BYTES = 128

_REQUEST = "request"
_METHOD = re.compile(rb"([A-Za-z]{1,20}) ")
_HTML = ("text/html", "application/xhtml+xml")
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)[^\n]*(?:\n|$)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]{0,256}\r?\n")


class _Half(NamedTuple):
    """A half of an exchange: a visit, or a request, with its first bytes."""

    uri: str
    visit: CrawlEvent | None
    request: bytes = b""


def _is_half(fields: Fields) -> bool:
    return fields.get("warc-type", "").lower() == _REQUEST or _is_visit(fields)


def _half_of(fields: Fields, body: bytes) -> _Half:
    uri = fields.get("warc-target-uri", "")
    if fields["warc-type"].lower() == _REQUEST:
        return _Half(uri, None, body[:MOST_REJECTED_BYTES])
    return _Half(uri, _visit_of_record(fields, body))


def _exchange(offset: int, half: _Half, request: bytes, source: str) -> Item:
    """Return the visit of an exchange; a reject if the request is known, and no GET."""
    method = _METHOD.match(request)
    try:
        refuse_other_methods(method[1].decode() if method else "GET")
    except EventRefused as refused:
        return offset, reject_of(refused, source, offset, request)
    assert half.visit is not None
    return offset, half.visit


def _are_one(one: _Half, other: _Half) -> bool:
    return one.uri == other.uri and (one.visit is None) != (other.visit is None)


def _without_posts(halves: Iterator[tuple[int, _Half | Reject]], source: str) -> Iterator[Item]:
    """Yield visits, and a reject for one whose request, of the same URL just before or behind it, is no GET.

    An exchange has the offset of its first half, so that a reader which starts there has both.
    """
    held: tuple[int, _Half] | None = None
    for offset, half in halves:
        other, held = held, None
        if isinstance(half, _Half) and other is not None and _are_one(other[1], half):
            visit = half if other[1].visit is None else other[1]
            yield _exchange(other[0], visit, other[1].request or half.request, source)
            continue
        if other is not None and other[1].visit is not None:
            yield _exchange(*other, b"", source)
        if isinstance(half, Reject):
            yield offset, half
        else:
            held = offset, half
    if held is not None and held[1].visit is not None:
        yield _exchange(*held, b"", source)


def _is_of_web(fields: Fields) -> bool:
    return fields.get("warc-target-uri", "").lower().startswith(("http:", "https:"))


def _is_visit(fields: Fields) -> bool:
    kind = fields.get("warc-type", "").lower()
    if fields.get("warc-target-uri", "").lstrip("<").startswith("dns:"):
        return False
    content = fields.get("content-type", "application/http").lower()
    if kind == "resource":
        return content.startswith(_HTML)
    return kind == "revisit" or (kind == "response" and content.startswith("application/http"))


def _visit_of_record(fields: Fields, body: bytes) -> CrawlEvent:
    url, fetched_at_ms = _page_and_time(fields)
    digest = fields.get("warc-payload-digest")
    kind = fields["warc-type"].lower()
    if kind == "revisit":
        return CrawlEvent(url, fetched_at_ms=fetched_at_ms, status=304, digest=digest)
    status, http = 200, {"content-type": fields.get("content-type", "")}
    if kind == "response":
        status, http, body = _split_response(body)
    content_type = http.get("content-type") or fields.get("warc-identified-payload-type")
    links: tuple[Link, ...] | None = None
    canonical = None
    if 300 <= status < 400:
        links = _location(url, http)
    elif status < 300 and (content_type or "text/html").lower().lstrip().startswith(_HTML):
        payload = _payload(body, http)
        if payload is not None and (content_type or payload.lstrip()[:1] == b"<"):
            links, canonical = links_of_html(decode_html(payload, content_type), url, http.get("x-robots-tag", ""))
    return CrawlEvent(
        url,
        fetched_at_ms=fetched_at_ms,
        status=status,
        canonical=canonical,
        content_type=content_type,
        digest=digest,
        last_modified_ms=_http_time_ms(http.get("last-modified")),
        links=links,
        retry_after=retry_seconds_of(http.get("retry-after"), fetched_at_ms),
    )


def _page_and_time(fields: Fields) -> tuple[str, int | None]:
    url = fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">").strip()
    if not url:
        raise EventRefused(Reason.NOT_AN_EVENT, "the record has no WARC-Target-URI")
    date = fields.get("warc-date")
    time_ms = time_ms_of(date)
    if date and time_ms is None:
        raise EventRefused(Reason.BAD_TIME, f"the WARC-Date {date[:40]!r} is not a time")
    return url, time_ms


def _http_time_ms(date: str | None) -> int | None:
    """Return the time of an HTTP date; None if it is malformed or outside the years of the web."""
    if not date or len(date) > _MOST_DATE_BYTES:
        return None
    try:
        found = parsedate_to_datetime(date)
        found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        time_ms = (found - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return time_ms if EARLIEST_MS <= time_ms <= LATEST_MS else None


def _split_response(response: bytes) -> tuple[int, Fields, bytes]:
    found = _STATUS.match(response)
    if not found:
        raise EventRefused(Reason.NOT_AN_EVENT, "the response does not begin with an HTTP status line")
    ends = [response.find(line, found.end() - 1) + len(line) for line in (b"\n\r\n", b"\n\n") if line in response]
    end = min(ends, default=len(response))
    return int(found[1]), read_fields(response[: min(end, MOST_HEAD_BYTES)]), response[end:]


def _location(url: str, http: Fields) -> tuple[Link, ...] | None:
    location = http.get("location")
    return (Link(LinkResolver(url).absolute(location)),) if location else None


def _payload(body: bytes, http: Fields) -> bytes | None:
    """Return the body without its transfer and content encodings; None if an encoding is unknown or does not fit.

    Many archives keep the header fields but store the decoded body: a body that is not encoded stays unchanged.
    """
    if "chunked" in http.get("transfer-encoding", "").lower():
        body = _dechunk(body)
    codings = [coding.strip() for coding in http.get("content-encoding", "").lower().split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if len(codings) > MOST_CODINGS:
        raise EventRefused(Reason.BAD_FIELD, f"the page has more than {MOST_CODINGS} content encodings")
    for coding in reversed(codings):
        decoded: bytes | None = body
        if coding in ("gzip", "x-gzip") and body.startswith(b"\x1f\x8b"):
            decoded = _inflate(body, 31)
        elif coding == "deflate" and body.lstrip()[:1] != b"<":
            decoded = _inflate(body, 15) or _inflate(
                body, -15
            )  # with zlib's header, as the standard requires, and without
        elif coding not in ("gzip", "x-gzip", "deflate") and body.lstrip()[:1] != b"<":
            decoded = None
        if decoded is None:
            return None
        body = decoded
    return body


def _dechunk(body: bytes) -> bytes:
    chunks = []
    at = 0
    while found := _CHUNK.match(body, at):
        size_bytes = int(found[1], 16)
        if not size_bytes:
            break
        chunks.append(body[found.end() : found.end() + size_bytes])
        at = found.end() + size_bytes
        at += 2 if body.startswith(b"\r\n", at) else body.startswith(b"\n", at)
    return b"".join(chunks) if at or found else body


def _inflate(body: bytes, wbits: int) -> bytes | None:
    most_bytes = min(max(ALWAYS_DECOMPRESSED_BYTES, MOST_EXPANSION * len(body)), MOST_EVENT_BYTES)
    try:
        decoded = zlib.decompressobj(wbits).decompress(body, most_bytes + 1)
    except zlib.error:
        return None
    if len(decoded) > most_bytes:
        detail = f"the page has {len(body)} bytes, and more than {most_bytes} when decompressed"
        raise EventRefused(Reason.TOO_LARGE, detail)
    return decoded


_LINK_PATHS = ("A@/href", "AREA@/href", "FRAME@/src", "IFRAME@/src")


def _is_json_metadata(fields: Fields) -> bool:
    content = fields.get("content-type", "").lower()
    return fields.get("warc-type", "").lower() == "metadata" and content.startswith("application/json")


def _visit_of_metadata(_fields_of_wat: Fields, body: bytes) -> CrawlEvent | None:
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_JSON_MARKS:
        raise EventRefused(Reason.TOO_LARGE, f"the metadata have more than {MOST_JSON_MARKS} values")
    try:
        envelope = _object_at(orjson.loads(body), "Envelope")
    except orjson.JSONDecodeError as error:
        raise EventRefused(Reason.NOT_JSON, f"the metadata are not JSON: {error}") from None
    given = {key.lower(): value for key, value in _object_at(envelope, "WARC-Header-Metadata").items()}
    head = {key: value for key, value in given.items() if isinstance(value, str)}
    if not head:
        raise EventRefused(Reason.NOT_AN_EVENT, "the metadata have no Envelope with WARC-Header-Metadata")
    if head.get("warc-type") != "response":
        return None
    url, fetched_at_ms = _page_and_time(head)
    response = _object_at(envelope, "Payload-Metadata", "HTTP-Response-Metadata")
    status = _text(_object_at(response, "Response-Message").get("Status"))
    if not re.fullmatch(r"[0-9]{3}", status):
        raise EventRefused(Reason.NOT_AN_EVENT, "the metadata have no HTTP status")
    http = {key.lower(): value for key, value in _object_at(response, "Headers").items() if isinstance(value, str)}
    links: tuple[Link, ...] | None = None
    canonical = None
    if status[0] == "3":
        links = _location(url, http)
    elif status[0] == "2" and isinstance(response.get("HTML-Metadata"), dict):
        links, canonical = _links_of_metadata(_object_at(response, "HTML-Metadata"), url, http.get("x-robots-tag", ""))
    return CrawlEvent(
        url,
        fetched_at_ms=fetched_at_ms,
        status=int(status),
        canonical=canonical,
        content_type=http.get("content-type"),
        digest=head.get("warc-payload-digest"),
        last_modified_ms=_http_time_ms(http.get("last-modified")),
        links=links,
        retry_after=retry_seconds_of(http.get("retry-after"), fetched_at_ms),
    )


def _links_of_metadata(page: dict[str, object], url: str, robots: str) -> tuple[tuple[Link, ...], str | None]:
    head = _object_at(page, "Head")
    nofollow = is_nofollow_rule(robots)
    for meta in _dicts(head.get("Metas")):
        if _text(meta.get("name")).strip().lower() == "robots":
            nofollow |= is_nofollow_rule(_text(meta.get("content")))
    found: list[tuple[str, str | None]] = []
    for link in _dicts(page.get("Links")):
        address, rel = link.get("url"), link.get("rel")
        if link.get("path") in _LINK_PATHS and isinstance(address, str):
            found.append((address, rel if isinstance(rel, str) else None))
            if len(found) > MOST_LINKS:
                break
    base = head.get("Base")
    canonicals = (
        href
        for link in _dicts(head.get("Link"))
        if "canonical" in _text(link.get("rel")).lower().split() and isinstance(href := link.get("url"), str)
    )
    return resolved_links(found, url, base if isinstance(base, str) else "", next(canonicals, ""), nofollow)


def _text(value: object) -> str:
    """Return a text or a number as text; of other values nothing: they may be nested deeper than `str` can follow."""
    return str(value) if isinstance(value, (str, int)) else ""


def _object_at(value: object, *path: str) -> dict[str, object]:
    """Return the object at this path of a JSON value; an empty one if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
