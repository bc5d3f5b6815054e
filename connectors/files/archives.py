"""Reads archives of a crawl: WARC, Common Crawl's WAT, and edge lists.

Each reader takes what `opening.decompressed` gives and yields (place, event or reject) in the order of the file. A
place is an offset in the decompressed file, strictly increasing: a reader that begins at a place gives that item and
all after it. What is broken is a reject, and reading goes on at the next record or line.

The frame of a WARC record is read here because FastWARC stops at the first byte between two records that belongs to
none, takes a wrong length at its word and gives a record that is cut off as a whole one. Links are found by scanning
tags because a parser that builds a tree (lexbor) takes 105 s for a page of 1 MB that never closes a <div>.
"""

from __future__ import annotations

import codecs
import html
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from html.entities import html5
from typing import Any

import ada_url
import orjson

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.files.formats import columns
from opicflow.connectors.files.opening import Block, Damage
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

Blocks = Iterable[Block | Damage]
Item = tuple[int, CrawlEvent | Reject]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def read_warc(blocks: Blocks, source: str) -> Iterator[Item]:
    """The visits in a WARC file: its `response`, `revisit` and HTML `resource` records. Others are passed over."""
    return _read_records(blocks, source, _is_visit, _visit_of_record)


def read_wat(blocks: Blocks, source: str) -> Iterator[Item]:
    """The visits in a WAT file, as Common Crawl makes them: its metadata records of responses."""
    return _read_records(blocks, source, _is_json_metadata, _visit_of_metadata)


def read_edges(blocks: Blocks, source: str) -> Iterator[Item]:
    """The pages of an edge list, `page target [weight]` a line; lines of one page that follow one another are a visit.

    A line with a page alone is a page; if it has no other line, a page without links. Tokens stay as they are. A line
    that is rejected ends the visit.
    """
    run: _Run | None = None
    for place, line, trouble in _lines(blocks):
        try:
            row = _row(line, trouble)
        except EventRefused as refused:
            if run:
                yield run.place, run.item(source)
            run = None
            yield place, _reject(refused, source, place, line)
            continue
        if row and run and run.page != row[0]:
            yield run.place, run.item(source)
            run = None
        if row:
            run = run or _Run(place, row[0])
            run.add(line, row)
    if run:
        yield run.place, run.item(source)


# -- edge lists --------------------------------------------------------------------------------------------------------


class _Run:
    """The lines of one visit."""

    def __init__(self, place: int, page: str) -> None:
        self.place = place
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
            return _reject(refused, source, self.place, bytes(self._original), self._size_bytes)
        return CrawlEvent(self.page, status=200, links=tuple(self._links))


def _row(line: bytes, trouble: EventRefused | None) -> list[Any]:
    """[page], [page, target] or [page, target, weight]; nothing for a comment or an empty line."""
    if trouble:
        raise trouble
    if not line.strip() or line.lstrip().startswith(b"#"):
        return []
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


def _lines(blocks: Blocks) -> Iterator[tuple[int, bytes, EventRefused | None]]:
    """The lines without their ends, and what is wrong with them where they are no lines."""
    rest = bytearray()
    place = rest_bytes = 0
    torn: EventRefused | None = None

    def line_of(end: bytes) -> tuple[int, bytes, EventRefused | None]:
        trouble = torn
        if rest_bytes + len(end) > MOST_EVENT_BYTES:
            trouble = EventRefused(Reason.TOO_LARGE, f"the line is longer than {MOST_EVENT_BYTES} bytes")
        return place, bytes(rest + end[:MOST_EVENT_BYTES]), trouble

    for block in blocks:
        if isinstance(block, Damage):
            # The first line after damage may have lost its beginning, so it goes with the damage.
            place = place if rest_bytes or torn else block.offset
            torn = torn or EventRefused(Reason.CORRUPT, block.detail)
            continue
        if not rest_bytes and not torn:
            place = block.offset
        data = block.data.removeprefix(b"\xef\xbb\xbf") if block.offset == 0 else block.data
        *ended, after = data.split(b"\n")
        at = block.offset + len(block.data) - len(data)
        for line in ended:
            yield line_of(line) if rest_bytes or torn else (place, line, None)
            at += len(line) + 1
            rest.clear()
            rest_bytes, torn, place = 0, None, at
        if len(rest) < MOST_EVENT_BYTES:
            rest += after
        rest_bytes += len(after)
    if rest_bytes or torn:
        yield line_of(b"")


# -- records -----------------------------------------------------------------------------------------------------------

_MOST_HEAD_BYTES = 64 << 10
_SHORT_HEAD_BYTES = 4 << 10
_BEGIN = re.compile(rb"WARC/[01]\.\d{1,2}\r?\n")
_SURE_BEGIN = re.compile(rb"\n\r?\nWARC/[01]\.\d{1,2}\r?\n[A-Za-z-]+:")
_MOST_BEGIN_BYTES = 16


class _Reel:
    """The decompressed bytes from `at` on, a stretch at a time: a stretch ends at damage or at the end of the file."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = iter(blocks)
        self._next = next(self._blocks, None)
        self._bytes = bytearray()
        self._first = self.at = self._next.offset if self._next else 0

    @property
    def loaded_to(self) -> int:
        return self._first + len(self._bytes)

    @property
    def damage(self) -> Damage | None:
        """What ends this stretch, once all of it is loaded; None = the end of the file."""
        return self._next if isinstance(self._next, Damage) else None

    def has(self, size_bytes: int) -> bool:
        """Load so many bytes from here on; whether this stretch has them."""
        while self.loaded_to < self.at + size_bytes:
            if not isinstance(self._next, Block):
                return False
            del self._bytes[: self.at - self._first]
            self._first = self.at
            self._bytes += self._next.data
            self._next = next(self._blocks, None)
        return True

    def take(self, begin: int, size_bytes: int) -> bytes:
        """Loaded bytes."""
        return bytes(self._bytes[begin - self._first : begin - self._first + size_bytes])

    def find(self, wanted: bytes, begin: int, end: int) -> int | None:
        """Where the bytes stand among those loaded."""
        found = self._bytes.find(wanted, begin - self._first, end - self._first)
        return self._first + found if found >= 0 else None

    def search(self, wanted: re.Pattern[bytes], begin: int, end: int) -> int | None:
        """Where the pattern matches among the bytes loaded."""
        found = wanted.search(self._bytes, begin - self._first, end - self._first)
        return self._first + found.start() if found else None

    def skip(self, size_bytes: int) -> bool:
        """Go so far ahead, however far that is; whether this stretch reaches there."""
        to = self.at + size_bytes
        while self.at < to and self.has(1):
            self.at = min(to, self.loaded_to)
        return self.at == to

    def pass_damage(self) -> None:
        """Go on to the next stretch."""
        assert self.damage
        self._first = self.at = self.damage.offset + 1
        self._bytes.clear()
        self._next = next(self._blocks, None)


Fields = dict[str, str]


def _read_records(
    blocks: Blocks,
    source: str,
    is_wanted: Callable[[Fields], bool],
    visit_of: Callable[[Fields, bytes], CrawlEvent | None],
) -> Iterator[Item]:
    reel = _Reel(blocks)
    while True:
        while reel.has(1) and reel.take(reel.at, 1) in b"\r\n":
            reel.at += 1
        place = reel.at
        if not reel.has(1):
            if reel.damage is None:
                return
            yield place, _reject(EventRefused(Reason.CORRUPT, reel.damage.detail), source, place, b"")
            reel.pass_damage()
            continue
        head_bytes, fields = _head(reel)
        if not fields:
            yield _broken(reel, source, "these bytes belong to no record" if not head_bytes else "a head breaks off", 1)
            continue
        length = fields.get("content-length", "")
        if not re.fullmatch(r"[0-9]{1,18}", length):
            yield _broken(reel, source, "the record has no Content-Length that is a number", head_bytes)
            continue
        size_bytes = head_bytes + int(length)
        trouble = _trouble(reel, head_bytes, size_bytes)
        if trouble:
            yield _broken(reel, source, trouble, head_bytes)
            continue
        wanted = is_wanted(fields)
        if size_bytes - head_bytes > MOST_EVENT_BYTES:
            original = reel.take(place, MOST_REJECTED_BYTES)
            refused = EventRefused(Reason.TOO_LARGE, f"the record is longer than {MOST_EVENT_BYTES} bytes")
            if not reel.skip(size_bytes):
                wanted = True
                refused = EventRefused(Reason.CORRUPT, "the record is cut off")
            if wanted:
                yield place, _reject(refused, source, place, original, size_bytes)
            continue
        if wanted:
            item = _judged(visit_of, fields, reel.take(place + head_bytes, int(length)))
            if isinstance(item, EventRefused):
                yield (
                    place,
                    _reject(item, source, place, reel.take(place, MOST_REJECTED_BYTES)[:size_bytes], size_bytes),
                )
            elif item:
                yield place, item
        reel.at = place + size_bytes


def _judged(
    visit_of: Callable[[Fields, bytes], CrawlEvent | None], fields: Fields, body: bytes
) -> CrawlEvent | EventRefused | None:
    try:
        return visit_of(fields, body)
    except EventRefused as refused:
        return refused


def _head(reel: _Reel) -> tuple[int, Fields]:
    """The length of the head that begins here, and its fields; none if there is no head."""
    reel.has(_MOST_HEAD_BYTES)
    if reel.search(_BEGIN, reel.at, reel.at + _MOST_BEGIN_BYTES) != reel.at:
        return 0, {}
    end = _empty_line(reel, reel.at + _SHORT_HEAD_BYTES)
    if end is None:
        # Looked for no further than the next record, so that many heads without end take no longer than one.
        after = reel.search(_BEGIN, reel.at + 1, reel.at + _MOST_HEAD_BYTES)
        end = _empty_line(reel, after or reel.at + _MOST_HEAD_BYTES)
    if end is None or reel.search(_BEGIN, reel.at + 1, end):
        return 1, {}
    head = reel.take(reel.at, end - reel.at)
    return len(head), _fields(head) or {"": ""}


def _empty_line(reel: _Reel, to: int) -> int | None:
    found = [(reel.find(line, reel.at, to), len(line)) for line in (b"\n\r\n", b"\n\n")]
    return min((at + size for at, size in found if at is not None), default=None)


def _fields(head: bytes) -> Fields:
    """The fields below the first line of a head, by their names in small letters; of several, the first."""
    fields: Fields = {}
    name = ""
    for line in head.decode("utf-8", "replace").split("\n")[1:]:
        if line[:1] in (" ", "\t") and name:
            fields[name] = f"{fields[name]} {line.strip()}"
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if colon and name not in fields:
            fields[name] = value.strip()
        else:
            name = ""
    return fields


def _trouble(reel: _Reel, head_bytes: int, size_bytes: int) -> str | None:
    """Why the record cannot end where its length says."""
    if size_bytes - head_bytes > MOST_EVENT_BYTES:
        reel.has(head_bytes + MOST_EVENT_BYTES)
        other = reel.search(_SURE_BEGIN, reel.at + head_bytes, reel.at + head_bytes + MOST_EVENT_BYTES)
        return "the Content-Length of the record reaches beyond the next one" if other else None
    if not reel.has(size_bytes):
        return "the record is cut off"
    reel.has(size_bytes + 9)
    after = reel.take(reel.at + size_bytes, 9)
    more = after.lstrip(b"\r\n")
    if reel.damage and len(after) < 9 and not more and reel.damage.unsure_from < reel.at + size_bytes:
        return "the checksum of the record is wrong"
    if after.startswith(b"\r\n\r\n") or b"WARC/".startswith(more[:5]):
        return None
    return "the record does not end where its Content-Length says"


def _broken(reel: _Reel, source: str, detail: str, good_bytes: int) -> Item:
    """The reject for what begins here; the reel goes on to the next record that begins after `good_bytes` of it."""
    place = reel.at
    reel.has(MOST_REJECTED_BYTES)
    original = reel.take(place, MOST_REJECTED_BYTES)
    reel.at += good_bytes
    while True:
        found = reel.search(_BEGIN, reel.at, reel.loaded_to)
        if found is not None:
            reel.at = found
            break
        reel.at = max(reel.at, reel.loaded_to - _MOST_BEGIN_BYTES)
        if not reel.has(_MOST_BEGIN_BYTES + 1):
            reel.at = reel.loaded_to
            break
    size_bytes = reel.at - place
    if reel.damage and not reel.has(1):
        detail = f"{detail}; {reel.damage.detail}"
        reel.pass_damage()
    return place, _reject(EventRefused(Reason.CORRUPT, detail), source, place, original[:size_bytes], size_bytes)


def _reject(refused: EventRefused, source: str, place: int, original: bytes, size_bytes: int | None = None) -> Reject:
    size_bytes = len(original) if size_bytes is None else size_bytes
    detail = " ".join(str(refused).split())
    if size_bytes > MOST_REJECTED_BYTES:
        detail = f"{detail} (the first {MOST_REJECTED_BYTES} of {size_bytes} bytes are kept)"
    return Reject(refused.reason, detail, source, place, original[:MOST_REJECTED_BYTES])


# -- WARC --------------------------------------------------------------------------------------------------------------

_HTML = ("text/html", "application/xhtml+xml")
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)[^\n]*(?:\n|$)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]{0,256}\r?\n")
_W3C_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T ]?(\d\d):?(\d\d):?(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:?00)?")


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
        status, http, body = _http(body)
    content_type = http.get("content-type") or fields.get("warc-identified-payload-type")
    links: tuple[Link, ...] | None = None
    canonical = None
    if 300 <= status < 400:
        links = _location(url, http)
    elif status < 300 and (content_type or "text/html").lower().lstrip().startswith(_HTML):
        payload = _payload(body, http)
        if payload is not None and (content_type or payload.lstrip()[:1] == b"<"):
            links, canonical = _links_of_html(_text(payload, content_type), url, http.get("x-robots-tag", ""))
    return CrawlEvent(
        url,
        fetched_at_ms=fetched_at_ms,
        status=status,
        canonical=canonical,
        content_type=content_type,
        digest=digest,
        last_modified_ms=_http_time_ms(http.get("last-modified")),
        links=links,
    )


def _page_and_time(fields: Fields) -> tuple[str, int | None]:
    url = fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">").strip()
    if not url:
        raise EventRefused(Reason.NOT_AN_EVENT, "the record has no WARC-Target-URI")
    date = fields.get("warc-date")
    return url, _w3c_time_ms(date) if date else None


def _w3c_time_ms(date: str) -> int:
    found = _W3C_DATE.fullmatch(date)
    try:
        if not found:
            raise ValueError
        *parts, fraction = found.groups(default="")
        seconds = (datetime(*map(int, parts), tzinfo=timezone.utc) - _EPOCH) // timedelta(seconds=1)  # type: ignore
        return seconds * 1000 + int(fraction.ljust(3, "0")[:3])
    except ValueError:
        raise EventRefused(Reason.BAD_TIME, f"the WARC-Date {date[:40]!r} is not a time") from None


def _http_time_ms(date: str | None) -> int | None:
    """Servers say anything: what cannot be the time of a page is not known."""
    try:
        found = parsedate_to_datetime(date or "")
        found = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        time_ms = (found - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return time_ms if EARLIEST_MS <= time_ms <= LATEST_MS else None


def _http(response: bytes) -> tuple[int, Fields, bytes]:
    found = _STATUS.match(response)
    if not found:
        raise EventRefused(Reason.NOT_AN_EVENT, "the response does not begin with an HTTP status line")
    ends = [response.find(line, found.end() - 1) + len(line) for line in (b"\n\r\n", b"\n\n") if line in response]
    end = min(ends, default=len(response))
    return int(found[1]), _fields(response[: min(end, _MOST_HEAD_BYTES)]), response[end:]


def _location(url: str, http: Fields) -> tuple[Link, ...] | None:
    location = http.get("location")
    return (Link(_Resolver(url).absolute(location)),) if location else None


def _payload(body: bytes, http: Fields) -> bytes | None:
    """The body without its transfer and content encodings; None if they are not known here or do not fit.

    Many archives keep the fields and store the body decoded, so a body that does not look encoded is taken as it is.
    """
    if "chunked" in http.get("transfer-encoding", "").lower():
        body = _dechunked(body)
    for coding in reversed(http.get("content-encoding", "").lower().split(",")):
        coding = coding.strip()
        decoded: bytes | None = body
        if coding in ("gzip", "x-gzip") and body.startswith(b"\x1f\x8b"):
            decoded = _inflated(body, 31)
        elif coding == "deflate" and body.lstrip()[:1] != b"<":
            decoded = _inflated(body, 15) or _inflated(body, -15)  # with zlib's head as it should be, and without
        elif coding not in ("", "identity", "gzip", "x-gzip", "deflate") and body.lstrip()[:1] != b"<":
            decoded = None
        if decoded is None:
            return None
        body = decoded
    return body


def _dechunked(body: bytes) -> bytes:
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


def _inflated(body: bytes, wbits: int) -> bytes | None:
    try:
        decoded = zlib.decompressobj(wbits).decompress(body, MOST_EVENT_BYTES + 1)
    except zlib.error:
        return None
    if len(decoded) > MOST_EVENT_BYTES:
        raise EventRefused(Reason.TOO_LARGE, f"the page is longer than {MOST_EVENT_BYTES} bytes when decompressed")
    return decoded


# -- HTML --------------------------------------------------------------------------------------------------------------

_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_CODECS = ("utf-8", "utf-16", "iso8859", "cp", "koi8", "gb", "big5", "euc", "shift_jis", "mac-", "tis-620")
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}

_SPACE = "\t\n\f\r "
_RAW = "iframe|noembed|noframes|script|style|textarea|title|xmp"
_SCAN = re.compile(
    rf"""<(?: (!--) | ([!?])
      | (/?template|a|area|base|frame|link|meta|plaintext|{_RAW})(?=[{_SPACE}/>])
      | [a-z][^<>"']*(?:"[^"<>]*"[^<>"']*|'[^'<>]*'[^<>"']*)*(?=<|"[^"<>]*[<>]|'[^'<>]*[<>])  # with < or > in a value
      )""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME = re.compile(rf"</?[^{_SPACE}/>]*")
_ATTRIBUTE = re.compile(
    rf"""[{_SPACE}/]*(?:(>)|([^{_SPACE}/>][^{_SPACE}/>=]*)"""
    rf"""(?:[{_SPACE}]*=[{_SPACE}]*(?:"([^"]*)"|'([^']*)'|([^{_SPACE}>]*)))?)"""
)
_READ = frozenset(("href", "src", "rel", "name", "content"))
_END_OF_RAW = {name: re.compile(rf"</{name}(?=[{_SPACE}/>])", re.IGNORECASE) for name in _RAW.split("|")}
_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]+;?|([a-zA-Z][a-zA-Z0-9]*)(;?)(=?))")
_ROBOTS_WITH_COLON = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


def _text(payload: bytes, content_type: str | None) -> str:
    declared = _CHARSET.search(content_type or "") or _CHARSET.search(payload[:1024].decode("latin-1"))
    try:
        codec = codecs.lookup(declared[1]).name if declared else "utf-8"
    except (LookupError, ValueError):
        codec = "utf-8"
    if payload.startswith(b"\xef\xbb\xbf") or not codec.startswith(_CODECS):
        codec = "utf-8"
    return payload.decode(_WIDER.get(codec, codec), "replace")


def _elements(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The tags that matter here, in order, with their attributes, as an HTML tokenizer sees them, in linear time."""
    at = templates = 0
    while found := _SCAN.search(text, at):
        at = found.end()
        comment, bogus, name = found.groups()
        if comment:
            # `<!-->` and `<!--->` are whole comments.
            closing = re.compile(r"(?<=<!--)-?>|--!?>").search(text, at)
            if not closing:
                return
            at = closing.end()
            continue
        if bogus:
            at = text.find(">", at) + 1
            if not at:
                return
            continue
        if not name:
            tag = _NAME.match(text, found.start())
            at = tag.end() if tag else at
        name = (name or "").lower()
        at, attributes = _attributes(text, at, bool(name))
        if at < 0 or name == "plaintext":
            return
        if name in ("template", "/template"):
            templates = max(templates + (1 if name == "template" else -1), 0)
        elif name and not templates:
            yield name, attributes
        if name in _END_OF_RAW:
            closing = _END_OF_RAW[name].search(text, at)
            if not closing:
                return
            at = closing.end()


def _attributes(text: str, at: int, kept: bool) -> tuple[int, dict[str, str]]:
    """Where the tag ends, -1 if it does not; and its attributes."""
    attributes: dict[str, str] = {}
    for found in _ATTRIBUTE.finditer(text, at):
        end, name, double, single, bare = found.groups()
        if end:
            return found.end(), attributes
        if bare and bare[0] in "\"'":
            return -1, {}  # the quotation never ends
        if kept and (name := name.lower()) in _READ and name not in attributes:
            value = double or single or bare or ""
            attributes[name] = _REFERENCE.sub(_character, value) if "&" in value else value
    return -1, {}


def _character(found: re.Match[str]) -> str:
    """A character reference in an attribute: `&copy=1` and `&copyright` are no ©, `&copy` is."""
    name, semicolon, equals = found[1], found[2], found[3]
    if not name:
        return html.unescape(found[0])
    if equals:
        return found[0]
    return html5.get(name + semicolon, found[0])


class _Resolver:
    """Makes the links of a page absolute. What cannot be stays as it is: the next layer counts it."""

    def __init__(self, url: str, base: str = "") -> None:
        self._base = url
        self._base = self.absolute(base) if base else url
        if not self._base.startswith(("http:", "https:")):
            self._base = url
        self._size_bytes = 0

    def absolute(self, link: str) -> str:
        link = link.strip("\0\t\n\f\r ")
        if link.startswith(("https://", "http://")):
            return link
        try:
            return ada_url.join_url(self._base, link)
        except ValueError:
            return link

    def link(self, link: str, rel: str | None) -> Link:
        found = self.absolute(link)
        self._size_bytes += len(found)
        if self._size_bytes > MOST_EVENT_BYTES:  # a long base would make it many times as long as the page
            raise EventRefused(Reason.TOO_LARGE, f"the links of the page are longer than {MOST_EVENT_BYTES} bytes")
        return Link(found, None, rel)


def _links_of_html(text: str, url: str, robots: str) -> tuple[tuple[Link, ...], str | None]:
    """The links of a page, and the URL it says is its canonical one."""
    found: list[tuple[str, str | None]] = []
    base = canonical = ""
    nofollow = _says_nofollow(robots)
    for name, attributes in _elements(text):
        address = attributes.get("src" if name in ("frame", "iframe") else "href")
        rel = attributes.get("rel")
        if name == "meta":
            if attributes.get("name", "").strip().lower() == "robots":
                nofollow |= _says_nofollow(attributes.get("content", ""))
        elif address is None:
            continue
        elif name == "base":
            base = base or address
        elif name == "link":
            if "canonical" in (rel or "").lower().split():
                canonical = canonical or address
        elif name in ("a", "area", "frame", "iframe"):
            found.append((address, rel if name in ("a", "area") else None))
            if len(found) > MOST_LINKS:
                break
    return _links(found, url, base, canonical, nofollow)


def _links(
    found: list[tuple[str, str | None]], url: str, base: str, canonical: str, nofollow: bool
) -> tuple[tuple[Link, ...], str | None]:
    if len(found) > MOST_LINKS:
        raise EventRefused(Reason.TOO_MANY_LINKS, f"the page has more than {MOST_LINKS} links")
    resolver = _Resolver(url, base)
    links = (resolver.link(address, _with_nofollow(rel) if nofollow else rel) for address, rel in found)
    return tuple(links), resolver.absolute(canonical) if canonical else None


def _with_nofollow(rel: str | None) -> str:
    return rel if rel and "nofollow" in rel.lower().split() else f"{rel or ''} nofollow".strip()


def _says_nofollow(robots: str) -> bool:
    agent, colon, _ = robots.partition(":")
    if colon and "," not in agent and agent.strip().lower() not in _ROBOTS_WITH_COLON:
        return False  # said to one crawler
    return not {"nofollow", "none"}.isdisjoint(word.strip().lower() for word in robots.split(","))


# -- WAT ---------------------------------------------------------------------------------------------------------------

_LINK_PATHS = ("A@/href", "AREA@/href", "FRAME@/src", "IFRAME@/src")


def _is_json_metadata(fields: Fields) -> bool:
    content = fields.get("content-type", "").lower()
    return fields.get("warc-type", "").lower() == "metadata" and content.startswith("application/json")


def _visit_of_metadata(_fields_of_wat: Fields, body: bytes) -> CrawlEvent | None:
    try:
        envelope = _part(orjson.loads(body), "Envelope")
    except orjson.JSONDecodeError as error:
        raise EventRefused(Reason.NOT_JSON, f"the metadata are not JSON: {error}") from None
    head = {key.lower(): value for key, value in _part(envelope, "WARC-Header-Metadata").items()}
    head = {key: value for key, value in head.items() if isinstance(value, str)}
    if not head:
        raise EventRefused(Reason.NOT_AN_EVENT, "the metadata have no Envelope with WARC-Header-Metadata")
    if head.get("warc-type") != "response":
        return None
    url, fetched_at_ms = _page_and_time(head)
    response = _part(envelope, "Payload-Metadata", "HTTP-Response-Metadata")
    status = str(_part(response, "Response-Message").get("Status", ""))
    if not re.fullmatch(r"[0-9]{3}", status):
        raise EventRefused(Reason.NOT_AN_EVENT, "the metadata have no HTTP status")
    http = {key.lower(): value for key, value in _part(response, "Headers").items() if isinstance(value, str)}
    links: tuple[Link, ...] | None = None
    canonical = None
    if status[0] == "3":
        links = _location(url, http)
    elif status[0] == "2" and isinstance(response.get("HTML-Metadata"), dict):
        links, canonical = _links_of_metadata(response["HTML-Metadata"], url, http.get("x-robots-tag", ""))
    return CrawlEvent(
        url,
        fetched_at_ms=fetched_at_ms,
        status=int(status),
        canonical=canonical,
        content_type=http.get("content-type"),
        digest=head.get("warc-payload-digest"),
        last_modified_ms=_http_time_ms(http.get("last-modified")),
        links=links,
    )


def _links_of_metadata(page: dict[str, Any], url: str, robots: str) -> tuple[tuple[Link, ...], str | None]:
    head = _part(page, "Head")
    nofollow = _says_nofollow(robots)
    for meta in _dicts(head.get("Metas")):
        if str(meta.get("name", "")).strip().lower() == "robots":
            nofollow |= _says_nofollow(str(meta.get("content", "")))
    found: list[tuple[str, str | None]] = []
    for link in _dicts(page.get("Links")):
        address, rel = link.get("url"), link.get("rel")
        if link.get("path") in _LINK_PATHS and isinstance(address, str):
            found.append((address, rel if isinstance(rel, str) else None))
    base = head.get("Base")
    canonicals = (
        link["url"]
        for link in _dicts(head.get("Link"))
        if "canonical" in str(link.get("rel")).lower().split() and isinstance(link.get("url"), str)
    )
    return _links(found, url, base if isinstance(base, str) else "", next(canonicals, ""), nofollow)


def _part(value: Any, *path: str) -> dict[str, Any]:
    """What lies there in JSON; an empty one if nothing does."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
