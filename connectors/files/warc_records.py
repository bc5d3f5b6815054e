"""Splits WARC and ARC files into records, and continues after damage at the next record.

FastWARC is not used: it stops at the first byte between two records that belongs to neither, trusts a wrong length, and
returns a truncated record as a whole one.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, reject_of
from opicflow.connectors.files.opening import Block, Blocks, Damage
from opicflow.schemas.crawl_events import (
    MOST_EVENT_BYTES,
    EventRefused,
    Reason,
    Reject,
)

T = TypeVar("T")

Fields = dict[str, str]
"""The fields of a head, by their names in lower case."""

MOST_HEAD_BYTES = 64 << 10
_SHORT_HEAD_BYTES = 4 << 10
_BEGIN = re.compile(rb"WARC/[01]\.\d{1,2}\r?\n")
_SURE_BEGIN = re.compile(rb"\n\r?\nWARC/[01]\.\d{1,2}\r?\n[A-Za-z-]+:")
_END = re.compile(rb"\r?\n\r?\nWARC/[01]\.\d{1,2}\r?\n[A-Za-z-]+:")
_NO_TYPES = ("no-type", "unknown", "-")
_LEAST_VISIT_BYTES = 64
"""A record with a type, a URL and a length is longer. Shorter pieces behind a broken record belong to it."""
_MOST_END_BYTES = 64
MOST_SEARCHED_BYTES = 4 << 30
"""A longer record is believed to have a wrong length if another one seems to begin in it."""
_MOST_ENDS = 8 << 20


class ArchiveForm(NamedTuple):
    """The form of records: patterns of where one begins, and surely begins.

    `most_begin_bytes`: a begin has fewer. `follows`: whether these bytes may follow a record.
    """

    begin: re.Pattern[bytes]
    sure_begin: re.Pattern[bytes]
    most_begin_bytes: int
    follows: Callable[[bytes], bool]


def _may_follow_warc(after: bytes) -> bool:
    return after.startswith(b"\r\n\r\n") or b"WARC/".startswith(after.lstrip(b"\r\n")[:5])


def _may_follow_arc(after: bytes) -> bool:
    return after[:1] in b"\r\n"


_WARC = ArchiveForm(_BEGIN, _SURE_BEGIN, 16, _may_follow_warc)
_ARC_HEAD = re.compile(
    rb"^(?P<uri>[A-Za-z][A-Za-z0-9+.-]{0,30}:\S{1,8192}) [0-9A-Fa-f.:]{2,45} (?P<date>\d{14}) "
    rb"(?P<type>[^ \n]{1,256}) (?P<length>\d{1,18})\r?\n",
    re.MULTILINE,
)
ARC = ArchiveForm(_ARC_HEAD, _ARC_HEAD, 9000, _may_follow_arc)
"""ARC of version 1: the head of a record is a line with its URL, address, date, type and length."""


class Cursor:
    """A position in the decompressed bytes, `at`, with the bytes loaded after it.

    Bytes are loaded up to the next damage, or up to the end of the file; `pass_damage` continues after damage.
    """

    def __init__(self, blocks: Blocks, form: ArchiveForm = _WARC) -> None:
        self.form = form
        self._blocks = iter(blocks)
        self._next = next(self._blocks, None)
        self._bytes = bytearray()
        self._first = self.at = self._next.offset if self._next else 0
        self._sure_begin = (0, -1)

    @property
    def loaded_to(self) -> int:
        return self._first + len(self._bytes)

    @property
    def damage(self) -> Damage | None:
        """The damage that follows the bytes loaded so far, if any."""
        return self._next if isinstance(self._next, Damage) else None

    def has(self, size_bytes: int) -> bool:
        """Load this many bytes from `at` on. False if damage or the end of the file comes before."""
        while self.loaded_to < self.at + size_bytes:
            if not isinstance(self._next, Block):
                return False
            del self._bytes[: self.at - self._first]
            self._first = self.at
            self._bytes += self._next.data
            self._next = next(self._blocks, None)
        return True

    def take(self, begin: int, size_bytes: int) -> bytes:
        return bytes(self._bytes[begin - self._first : begin - self._first + size_bytes])

    def find(self, wanted: bytes, begin: int, end: int) -> int | None:
        """Find bytes among those loaded."""
        found = self._bytes.find(wanted, begin - self._first, end - self._first)
        return self._first + found if found >= 0 else None

    def search(self, wanted: re.Pattern[bytes], begin: int, end: int) -> int | None:
        """Find a pattern in the bytes loaded."""
        found = wanted.search(self._bytes, begin - self._first, end - self._first)
        return self._first + found.start() if found else None

    def next_sure_begin(self, begin: int) -> int | None:
        """Find the next surely beginning record, at most `MOST_EVENT_BYTES` behind `begin`.

        It is kept: many heads before it with absurd lengths would otherwise take quadratic time.
        """
        searched_from, found = self._sure_begin
        if not searched_from <= begin <= found:
            searched_from, found = begin, self.search(self.form.sure_begin, begin, begin + MOST_EVENT_BYTES) or -1
            self._sure_begin = searched_from, found
        return found if 0 <= found < begin + MOST_EVENT_BYTES else None

    def skip(self, size_bytes: int) -> bool:
        """Advance by any number of bytes. False if damage or the end of the file comes before."""
        to = self.at + size_bytes
        while self.at < to and self.has(1):
            self.at = min(to, self.loaded_to)
        return self.at == to

    def pass_damage(self) -> None:
        """Continue after the damage."""
        assert self.damage
        self._first = self.at = self.damage.offset + 1
        self._bytes.clear()
        self._next = next(self._blocks, None)


class EndFinder:
    """Finds out whether a record ends at a position far ahead, from a second reading of the file, at most once.

    A page that is longer than an event may hold what looks like a record. So its length is believed if a record begins
    where it ends, or the file ends there.
    """

    def __init__(self, read_from: Callable[[int], Blocks]) -> None:
        """`read_from` reads the file once more, from an offset on."""
        self._read_from = read_from
        self._blocks: Iterator[Block | Damage] | None = None
        self._ends = array("q")
        self._read_to = 0
        self._tail = b""

    def is_end(self, at: int, end: int) -> bool:
        """Whether a record that begins at `at` ends at `end`."""
        if end - at > MOST_SEARCHED_BYTES:
            return False
        if self._blocks is None:
            self._blocks, self._read_to = iter(self._read_from(at)), at
        while self._read_to < end + _MOST_END_BYTES and len(self._ends) < _MOST_ENDS:
            block = next(self._blocks, None)
            if block is None:
                behind = self._tail[len(self._tail) - (self._read_to - end) :] if end <= self._read_to else None
                if behind is not None and len(behind) == self._read_to - end and not behind.strip(b"\r\n"):
                    return True
                break
            self._take(block)
        found = bisect_left(self._ends, end)
        return found < len(self._ends) and self._ends[found] == end

    def _take(self, block: Block | Damage) -> None:
        if isinstance(block, Damage):
            self._tail, self._read_to = b"", block.offset + 1
            return
        text = self._tail + block.data
        first = block.offset - len(self._tail)
        for found in _END.finditer(text):
            if not self._ends or first + found.start() > self._ends[-1]:
                self._ends.append(first + found.start())
        self._tail, self._read_to = text[-_MOST_END_BYTES:], block.offset + len(block.data)


def read_records(
    blocks: Blocks,
    source: str,
    is_wanted: Callable[[Fields], bool],
    visit_of: Callable[[Fields, bytes], T | None],
    read_from: Callable[[int], Blocks] | None = None,
    form: ArchiveForm = _WARC,
) -> Iterator[tuple[int, T | Reject]]:
    """Yield what `visit_of` makes of each record that is wanted, and a reject for each one that is broken or refused.

    `visit_of` returns None for a record that is no visit. `read_from` reads the file once more, where that is possible:
    without it a record that is longer than an event ends where the next one seems to begin.
    """
    cursor = Cursor(blocks, form)
    ends = EndFinder(read_from) if read_from else None
    while True:
        while cursor.has(1) and cursor.take(cursor.at, 1) in b"\r\n":
            cursor.at += 1
        offset = cursor.at
        if not cursor.has(1):
            if cursor.damage is None:
                return
            yield offset, reject_of(EventRefused(Reason.CORRUPT, cursor.damage.detail), source, offset, b"")
            cursor.pass_damage()
            continue
        head_bytes, fields = _read_head(cursor)
        if not fields:
            yield _skip_broken(
                cursor, source, "these bytes are not part of a record" if not head_bytes else "a head breaks off", 1
            )
            continue
        length = fields.get("content-length", "")
        if not re.fullmatch(r"[0-9]{1,18}", length):
            yield _skip_broken(cursor, source, "the record has no Content-Length that is a number", head_bytes)
            continue
        size_bytes = head_bytes + int(length)
        problem = _length_problem(cursor, head_bytes, size_bytes, ends)
        if problem:
            yield _skip_broken(cursor, source, problem, head_bytes)
            continue
        wanted = is_wanted(fields)
        if size_bytes - head_bytes > MOST_EVENT_BYTES:
            original = cursor.take(offset, MOST_REJECTED_BYTES)
            refused = EventRefused(Reason.TOO_LARGE, f"the record is longer than {MOST_EVENT_BYTES} bytes")
            if not cursor.skip(size_bytes):
                wanted = True
                refused = EventRefused(Reason.CORRUPT, "the record is cut off")
            if wanted:
                yield offset, reject_of(refused, source, offset, original, size_bytes)
            continue
        if wanted:
            item = _event_of(visit_of, fields, cursor.take(offset + head_bytes, int(length)))
            if isinstance(item, EventRefused):
                yield (
                    offset,
                    reject_of(item, source, offset, cursor.take(offset, MOST_REJECTED_BYTES)[:size_bytes], size_bytes),
                )
            elif item is not None:
                yield offset, item
        cursor.at = offset + size_bytes


def _event_of(visit_of: Callable[[Fields, bytes], T | None], fields: Fields, body: bytes) -> T | EventRefused | None:
    try:
        return visit_of(fields, body)
    except EventRefused as refused:
        return refused


def _read_head(cursor: Cursor) -> tuple[int, Fields]:
    """Return the length of the head at the cursor, and its fields; (0, {}) if no head begins here."""
    form = cursor.form
    cursor.has(MOST_HEAD_BYTES)
    if cursor.search(form.begin, cursor.at, cursor.at + form.most_begin_bytes) != cursor.at:
        return 0, {}
    if form is ARC:
        return _read_arc_head(cursor)
    end = _end_of_head(cursor, cursor.at + _SHORT_HEAD_BYTES)
    if end is None:
        # The search ends at the next record: otherwise many heads without an end would take quadratic time.
        after = cursor.search(_BEGIN, cursor.at + 1, cursor.at + MOST_HEAD_BYTES)
        end = _end_of_head(cursor, after or cursor.at + MOST_HEAD_BYTES)
    if end is None or cursor.search(_BEGIN, cursor.at + 1, end):
        return 1, {}
    head = cursor.take(cursor.at, end - cursor.at)
    return len(head), read_fields(head) or {"": ""}


def _read_arc_head(cursor: Cursor) -> tuple[int, Fields]:
    """Return the length of the head of an ARC record, and its fields under the names that WARC has for them."""
    head = _ARC_HEAD.match(cursor.take(cursor.at, cursor.form.most_begin_bytes))
    assert head is not None
    given = {name: value.decode("utf-8", "replace") for name, value in head.groupdict().items()}
    names = {"uri": "warc-target-uri", "date": "warc-date", "length": "content-length"}
    fields = {field: given[name] for name, field in names.items()}
    known_type = {} if given["type"] in _NO_TYPES else {"warc-identified-payload-type": given["type"]}
    return head.end(), {"warc-type": "response", **fields, **known_type}


def _end_of_head(cursor: Cursor, to: int) -> int | None:
    found = [(cursor.find(line, cursor.at, to), len(line)) for line in (b"\n\r\n", b"\n\n")]
    return min((at + size for at, size in found if at is not None), default=None)


def read_fields(head: bytes) -> Fields:
    """Return the fields below the first line of a head. Of several with one name, the first counts."""
    fields: dict[str, list[str]] = {}
    name = ""
    for line in head.decode("utf-8", "replace").split("\n")[1:]:
        if line[:1] in (" ", "\t") and name:
            fields[name].append(line.strip())
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if colon and name not in fields:
            fields[name] = [value.strip()]
        else:
            name = ""
    return {name: " ".join(lines) for name, lines in fields.items()}


def _length_problem(cursor: Cursor, head_bytes: int, size_bytes: int, ends: EndFinder | None) -> str | None:
    """Return why the record cannot end at its Content-Length; None if it can."""
    if size_bytes - head_bytes > MOST_EVENT_BYTES:
        cursor.has(head_bytes + MOST_EVENT_BYTES)
        other = cursor.next_sure_begin(cursor.at + head_bytes)
        if other is None or (ends is not None and ends.is_end(cursor.at, cursor.at + size_bytes)):
            return None
        return "the Content-Length of the record reaches beyond the next one"
    if not cursor.has(size_bytes):
        return "the record is cut off"
    cursor.has(size_bytes + 9)
    after = cursor.take(cursor.at + size_bytes, 9)
    if (
        cursor.damage
        and len(after) < 9
        and not after.strip(b"\r\n")
        and cursor.damage.unsure_from < cursor.at + size_bytes
    ):
        return "the checksum of the record is wrong"
    if cursor.form.follows(after):
        return None
    return "the record does not end at its Content-Length"


def _pass_short_pieces(cursor: Cursor) -> None:
    """Advance from the beginning of a record to that of the first one that has room for a visit.

    Otherwise every line `WARC/1.0` of many would be a reject, which costs a thousand times as much as its bytes.
    """
    size_bytes = _LEAST_VISIT_BYTES + cursor.form.most_begin_bytes
    while True:
        cursor.has(size_bytes)
        following = cursor.search(cursor.form.begin, cursor.at + 1, cursor.at + size_bytes)
        if following is None or following - cursor.at >= _LEAST_VISIT_BYTES:
            return
        cursor.at = following


def _skip_broken(cursor: Cursor, source: str, detail: str, good_bytes: int) -> tuple[int, Reject]:
    """Advance to the next record, at least `good_bytes` further, and return the reject for the bytes in between."""
    offset = cursor.at
    cursor.has(MOST_REJECTED_BYTES)
    original = cursor.take(offset, MOST_REJECTED_BYTES)
    cursor.at += good_bytes
    begin, most_begin_bytes = cursor.form.begin, cursor.form.most_begin_bytes
    while True:
        found = cursor.search(begin, cursor.at, cursor.loaded_to)
        if found is not None:
            cursor.at = found
            _pass_short_pieces(cursor)
            break
        cursor.at = max(cursor.at, cursor.loaded_to - most_begin_bytes)
        if not cursor.has(most_begin_bytes + 1):
            cursor.at = cursor.loaded_to
            break
    size_bytes = cursor.at - offset
    if cursor.damage and not cursor.has(1):
        detail = f"{detail}; {cursor.damage.detail}"
        cursor.pass_damage()
    return offset, reject_of(EventRefused(Reason.CORRUPT, detail), source, offset, original[:size_bytes], size_bytes)
