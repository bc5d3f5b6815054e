"""Crawl events from JSON lines to Avro of the published schema, without an object for each.

The kernel of `jsonl` finds the URLs and the numbers of a plain line; the kernel here adds the fields of which columns
keep less than an event has: the words of a failure, content types, digests, and the weights and rel attributes of
links. All other lines are encoded one by one, with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from opicflow.connectors.files.decoded import Item, RejectWriter
from opicflow.connectors.files.event_encoding import EncodedEvents, encode_items, merge
from opicflow.connectors.files.json_scan import scan_text
from opicflow.connectors.files.json_text import (
    DIGEST,
    FAILURE,
    LINK_NOFOLLOW,
    LINK_REL,
    LINK_WEIGHT,
    LINKS,
    NULL,
    OF_EVENTS,
    OF_LINKS,
    QUALITY,
    STATUS,
    TRUE,
    TYPE,
    code_of,
    digits,
    end_of_string,
    is_space,
    is_word,
    past_anything,
    past_space,
    tables_of,
)
from opicflow.connectors.files.jsonl import line_at, take_line
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.connectors.files.scan import Scan
from opicflow.schemas.arrays import Bytes, Hashes, Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.event_columns import FIRST_HOP, EventWriter
from opicflow.schemas.hashing import byte_at, hash_bytes
from opicflow.schemas.json_events import event_of
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.varint import put_bytes, put_signed

_QUOTE, _COMMA, _POINT, _COLON, _LIST, _BACKSLASH = b'",.:[\\'
_NOFOLLOW = np.frombuffer(b" nofollow", np.uint8)
_MOST_EXACT = 17
"""Numbers of so many bytes, including a point, are read as exactly as by a library."""
_MOST_BYTES = 128
"""More than an event has besides its texts and links: numbers, branches, and the lengths of texts."""
_MOST_LINK_BYTES = 32
"""The same of a link, with a weight and the word nofollow."""


def encode_jsonl(block: bytes, source: str, first_offset: int, prefix: bytes, reading: Reading = ANY) -> EncodedEvents:
    """Encode the events of whole lines, the first of which begins at `first_offset` of its source."""
    text = np.frombuffer(block, np.uint8)
    scan = scan_text(text, first_offset, reading)
    plain, left = _encode_plain(scan, text, first_offset, prefix, *tables_of(reading))
    checked, rejects = EventWriter(), RejectWriter(source)
    others: list[Item] = []
    for offset, begin, end in scan.odd():
        event = take_line(block[begin:end], offset, checked, rejects, "line", reading)
        if event is not None:
            others.append((offset, event))
    lines = ((offset, line_at(block, first_offset, offset)) for offset in left.tolist())
    others += [(offset, event_of(orjson.loads(line), reading.field_names)) for offset, line in lines]
    return merge(plain, encode_items(others, prefix), rejects.rejects)


def _encode_plain(
    scan: Scan, text: Bytes, first_offset: int, prefix: bytes, words: Hashes, codes: Bytes
) -> tuple[EncodedEvents, Ints]:
    """Return the events of plain lines, and the offsets of the lines that the kernel did not encode."""
    rows, urls = scan.counts[:2].tolist()
    starts, lengths, hashes = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.uint64)
    out = np.empty(rows * (len(prefix) + _MOST_BYTES) + len(text) + urls * _MOST_LINK_BYTES, np.uint8)
    encode_lines(text, first_offset, scan, words, codes, np.frombuffer(prefix, np.uint8), out, starts, lengths, hashes)
    is_done = lengths >= 0
    offsets, own = scan.offset[:rows], scan.url_starts[:rows][is_done]
    out.setflags(write=False)
    events = EncodedEvents(
        offset=offsets[is_done],
        time_ms=scan.time_ms[:rows][is_done],
        urls=Texts(text, scan.begins[own], scan.ends[own] - scan.begins[own]),
        hashes=hashes[is_done],
        values=Texts(out, starts[is_done], lengths[is_done]),
        rejects=[],
    )
    return events, offsets[~is_done]


@lean_kernel
def encode_lines(
    text: Any,
    first_offset: Any,
    scan: Scan,
    words: Any,
    codes: Any,
    prefix: Any,
    out: Any,
    starts: Any,
    lengths: Any,
    hashes: Any,
) -> None:
    """Write each event of a scan, after the prefix. One that is left to others has the length -1."""
    at = np.int64(0)
    for row in range(starts.shape[0]):
        url = scan.url_starts[row]
        hashes[row] = hash_bytes(text, scan.begins[url], scan.ends[url])
        starts[row] = at
        lengths[row] = -1
        body = put_bytes(out, at, prefix, 0, prefix.shape[0])
        end = _put_event(text, scan.offset[row] - first_offset, words, codes, scan, row, out, body)
        if end >= 0:
            lengths[row] = end - at
            at = end


@lean_kernel
def _put_event(text: Any, begin: Any, words: Any, codes: Any, scan: Scan, row: Any, out: Any, at: Any) -> Any:
    """Write the event whose line begins here, which is plain. Returns where it ends, -1 if it is left to others."""
    size = text.shape[0]
    first, last = scan.url_starts[row], scan.url_starts[row + 1]
    hops, links = first + FIRST_HOP, first + FIRST_HOP + scan.hops[row]
    failure, failure_end = np.int64(0), np.int64(-1)
    kind, kind_end = np.int64(0), np.int64(-1)
    digest, digest_end = np.int64(0), np.int64(-1)
    status, list_of_links = np.int64(-1), np.int64(-1)
    quality, quality_end = np.int64(0), np.int64(-1)
    here = past_space(text, begin, size) + 1
    while True:
        code, value = _next_value(text, here, size, OF_EVENTS, words, codes)
        c = byte_at(text, value)
        if code == LINKS and c == _LIST and last > links and not _is_in_object(text, scan.begins[last - 1]):
            here = past_space(text, scan.ends[last - 1] + 1, size) + 1
        else:
            here = past_anything(text, value, size)
            if here < 0:
                return np.int64(-1)
        if c == _QUOTE:
            if code == FAILURE:
                failure, failure_end = value + 1, here - 1
            elif code == TYPE:
                kind, kind_end = value + 1, here - 1
                for i in range(kind, kind_end):
                    if byte_at(text, i) == _BACKSLASH:
                        return np.int64(-1)
            elif code == DIGEST:
                digest, digest_end = value + 1, here - 1
        elif code == STATUS:
            status = digits(text, value, here)
        elif code == QUALITY and not is_word(text, value, size, NULL):
            quality, quality_end = value, here
            if here - value > _MOST_EXACT:
                return np.int64(-1)
        elif code == LINKS and c == _LIST:
            list_of_links = value
        here = past_space(text, here, size)
        if byte_at(text, here) != _COMMA:
            break
        here += 1
    out[at] = 2 if scan.announce[row] else 0
    at = _put_text(out, at + 1, text, scan.begins[first], scan.ends[first])
    at = _put_some_number(out, at, scan.time_ms[row], scan.time_ms[row] != 0)
    at = _put_some_number(out, at, status, status >= 0)
    at = _put_some_text(out, at, text, failure, failure_end, failure_end >= 0)
    if links > hops:
        at = put_signed(out, at, links - hops)
        for hop in range(hops, links):
            at = _put_text(out, at, text, scan.begins[hop], scan.ends[hop])
    out[at] = 0
    at = _put_some_text(out, at + 1, text, scan.begins[first + 1], scan.ends[first + 1], scan.begins[first + 1] >= 0)
    at = _put_some_text(out, at, text, kind, kind_end, kind_end > kind)
    at = _put_some_text(out, at, text, digest, digest_end, digest_end >= 0)
    at = _put_some_number(out, at, scan.modified_ms[row], scan.modified_ms[row] != 0)
    if list_of_links >= 0:
        out[at] = 2
        at += 1
        if last > links:
            at = put_signed(out, at, last - links)
            at = _put_links(text, list_of_links, words, codes, scan, links, last, out, at)
            if at < 0:
                return np.int64(-1)
    out[at] = 0  # the end of the links, or no links
    out[at + 1] = 0  # no plain line has a retry_after
    return _put_some_double(out, at + 2, text, quality, quality_end)


@lean_kernel
def _put_links(
    text: Any, here: Any, words: Any, codes: Any, scan: Scan, first: Any, last: Any, out: Any, at: Any
) -> Any:
    """Write the links of the list that begins here. Returns where they end, -1 if they are left to others."""
    size = text.shape[0]
    here += 1
    for link in range(first, last):
        at = _put_text(out, at, text, scan.begins[link], scan.ends[link])
        here = past_space(text, here, size)
        if byte_at(text, here) == _QUOTE:
            out[at] = 0
            out[at + 1] = 0
            at += 2
            here = scan.ends[link] + 1
        else:
            here, at = _put_weight_and_rel(text, here, words, codes, out, at)
            if here < 0:
                return np.int64(-1)
        here = past_space(text, here, size) + 1
    return at


@lean_kernel
def _put_weight_and_rel(text: Any, here: Any, words: Any, codes: Any, out: Any, at: Any) -> Any:
    """Write the fields of a link besides its URL. Returns where its object ends (or -1), and where the output ends."""
    size = text.shape[0]
    weight, weight_end = np.int64(0), np.int64(-1)
    rel, rel_end = np.int64(0), np.int64(0)
    nofollow = False
    here += 1
    while True:
        code, value = _next_value(text, here, size, OF_LINKS, words, codes)
        here = past_anything(text, value, size)
        if here < 0:
            return np.int64(-1), at
        if code == LINK_WEIGHT and not is_word(text, value, size, NULL):
            weight, weight_end = value, here
        elif code == LINK_REL and byte_at(text, value) == _QUOTE:
            rel, rel_end = value + 1, here - 1
        elif code == LINK_NOFOLLOW:
            nofollow = is_word(text, value, size, TRUE)
        here = past_space(text, here, size)
        if byte_at(text, here) != _COMMA:
            break
        here += 1
    at = _put_some_double(out, at, text, weight, weight_end)
    if nofollow:
        out[at] = 2
        at = put_signed(out, at + 1, rel_end - rel + _NOFOLLOW.shape[0])
        at = put_bytes(out, at, text, rel, rel_end)
        at = put_bytes(out, at, _NOFOLLOW, 0, _NOFOLLOW.shape[0])
    else:
        at = _put_some_text(out, at, text, rel, rel_end, rel_end > rel)
    return here + 1, at


@inlined_kernel
def _next_value(text: Any, here: Any, size: Any, salt: Any, words: Any, codes: Any) -> Any:
    """Return the code of the name that comes next in an object, and where its value begins."""
    name = past_space(text, here, size) + 1
    end = end_of_string(text, name, size)
    colon = past_space(text, end + 1, size)
    return code_of(text, name, end, salt, words, codes), past_space(text, colon + 1, size)


@inlined_kernel
def _is_in_object(text: Any, begin: Any) -> Any:
    """Whether the string that begins here is the value of a name, and no item of a list."""
    at = begin - 2
    while is_space(byte_at(text, at)):
        at -= 1
    return byte_at(text, at) == _COLON


@inlined_kernel
def _put_some_double(out: Any, at: Any, text: Any, begin: Any, end: Any) -> Any:
    """Write the number of a text, or null if it ends at -1."""
    if end < 0:
        out[at] = 0
        return at + 1
    out[at] = 2
    bits = np.float64(_number(text, begin, end)).view(np.uint64)
    for i in range(8):
        out[at + 1 + i] = np.uint8(bits >> np.uint64(8 * i))
    return at + 9


@inlined_kernel
def _number(text: Any, begin: Any, end: Any) -> Any:
    """Return the number that a short decimal is: the quotient of two whole numbers is as exact as the one parsed."""
    point = begin
    while point < end and byte_at(text, point) != _POINT:
        point += 1
    whole, scale = digits(text, begin, point), np.int64(1)
    for at in range(point + 1, end):
        whole = whole * 10 + np.int64(byte_at(text, at)) - 48
        scale *= 10
    return np.float64(whole) / np.float64(scale)


@inlined_kernel
def _put_text(out: Any, at: Any, text: Any, begin: Any, end: Any) -> Any:
    return put_bytes(out, put_signed(out, at, end - begin), text, begin, end)


@inlined_kernel
def _put_some_text(out: Any, at: Any, text: Any, begin: Any, end: Any, is_there: Any) -> Any:
    out[at] = 2 if is_there else 0
    return _put_text(out, at + 1, text, begin, end) if is_there else at + 1


@inlined_kernel
def _put_some_number(out: Any, at: Any, number: Any, is_there: Any) -> Any:
    out[at] = 2 if is_there else 0
    return put_signed(out, at + 1, number) if is_there else at + 1
