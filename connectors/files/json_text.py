"""JSON as text, within kernels: codes of the names that events have, and where a value ends.

Kernels get bytes that need not be JSON. If they cannot read a value with certainty, they return -1, and orjson reads
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from opicflow.connectors.files.crawlers.dispatch import FORMATS, MARKS
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.arrays import Bytes, Hashes, Int, Ints, Word
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES
from opicflow.schemas.hashing import (
    HIGHS,
    ONES,
    byte_at,
    find_byte,
    hash_bytes,
    hash_text,
    past_character,
    put_byte,
    word_at,
)
from opicflow.schemas.json_events import ANNOUNCED_BY, FIELD_NAMES, LINK_FIELD_NAMES, VISIT_WORDS
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, trailing_zeros

KIND, URL, TIME, STATUS, FAILURE, REDIRECTS, CANONICAL, TYPE, DIGEST, MODIFIED, LINKS, RETRY, QUALITY = range(1, 14)
LINK_URL, LINK_WEIGHT, LINK_REL, LINK_NOFOLLOW = range(14, 18)
ANNOUNCES, _VISITS = 18, 19
MARK = 20
"""A name that records of other crawlers have: the line is left to others."""
_SLOTS = 256


def _word_table(field_names: Mapping[str, tuple[str, ...]], marks: tuple[str, ...]) -> tuple[Hashes, Bytes]:
    """An open-addressing table from the hash of a name to its code. Names of links and of events never mix."""
    coded = [(0, name, code) for code, names in enumerate(field_names.values(), KIND) for name in names]
    known = {name for _, name, _ in coded}
    coded += [(0, name, MARK) for name in marks if name not in known]
    coded += [
        (_LINK_SALT, name, code) for code, names in enumerate(LINK_FIELD_NAMES.values(), LINK_URL) for name in names
    ]
    for word in (*ANNOUNCED_BY, *VISIT_WORDS):
        code = ANNOUNCES if word in ANNOUNCED_BY else _VISITS
        coded += [(_KIND_SALT, form, code) for form in (word, word.upper())]
    words, codes = np.zeros(_SLOTS, np.uint64), np.zeros(_SLOTS, np.uint8)
    for salt, name, code in coded:
        digest = hash_text(name) ^ salt
        slot = digest % _SLOTS
        while codes[slot]:
            slot = (slot + 1) % _SLOTS
        words[slot], codes[slot] = digest, code
    return words, codes


_LINK_SALT, _KIND_SALT = 0x5555555555555555, 0x3333333333333333
OF_EVENTS, OF_LINKS, OF_KINDS = np.uint64(0), np.uint64(_LINK_SALT), np.uint64(_KIND_SALT)
WORDS, CODES = _word_table(FIELD_NAMES, MARKS)


@lru_cache(8)
def tables_of(reading: Reading) -> tuple[Hashes, Bytes]:
    """Return the words and codes by which the kernel reads a log. Without any, it leaves all lines to others."""
    if reading == ANY:
        return WORDS, CODES
    if reading.format in FORMATS:
        return np.zeros(_SLOTS, np.uint64), np.zeros(_SLOTS, np.uint8)
    return _word_table(reading.field_names, () if reading.format else MARKS)


_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)

NULL, TRUE, _FALSE = np.uint32(0x6C6C756E), np.uint32(0x65757274), np.uint32(0x736C6166)


@inlined_kernel
def is_space(c: np.uint8) -> bool:
    return bool(c == 32 or c == 9 or c == 13)


@inlined_kernel
def end_of_string(text: Bytes, at: Int, end: Int) -> Int:
    """Return the end of the string that continues at `at`; -1 unless it is plain ASCII."""
    while at + 8 <= end:
        x = word_at(text, at)
        q = x ^ _QUOTES
        b = x ^ _BACKSLASHES
        odd = (((q - ONES) & ~q) | ((b - ONES) & ~b) | ((x - _SPACES) & ~x) | x) & HIGHS
        if odd:  # its lowest bit is that of the first byte that is not plain
            at += np.int64(trailing_zeros(odd)) >> 3
            return at if byte_at(text, at) == 34 else -1
        at += 8
    while at < end:
        c = byte_at(text, at)
        if c == 34:
            return at
        if c == 92 or c < 32 or c >= 128:
            return -1
        at += 1
    return -1


@inlined_kernel
def byte_or_0(text: Bytes, at: Int, end: Int) -> np.uint8:
    """Return the byte here; 0, which no JSON has, if the text has ended: its last line may break off anywhere."""
    return byte_at(text, at) if at < end else np.uint8(0)


@inlined_kernel
def past_space(text: Bytes, at: Int, end: Int) -> Int:
    while at < end and is_space(byte_at(text, at)):
        at += 1
    return at


@inlined_kernel
def code_of(text: Bytes, begin: Int, end: Int, salt: Word, words: Hashes, codes: Bytes) -> Int:
    """The code of a word, 0 if it has none."""
    digest = hash_bytes(text, begin, end) ^ salt
    slot = np.int64(digest & np.uint64(_SLOTS - 1))
    while codes[slot] != 0:
        if words[slot] == digest:
            return np.int64(codes[slot])
        slot = (slot + 1) & (_SLOTS - 1)
    return np.int64(0)


@inlined_kernel
def is_word(text: Bytes, at: Int, end: Int, word: np.uint32) -> bool:
    """Whether the four letters of null, true or fals stand here."""
    if at + 4 > end:
        return False
    letters = (
        np.uint32(byte_at(text, at))
        | np.uint32(byte_at(text, at + 1)) << np.uint32(8)
        | np.uint32(byte_at(text, at + 2)) << np.uint32(16)
        | np.uint32(byte_at(text, at + 3)) << np.uint32(24)
    )
    return bool(letters == word)


@inlined_kernel
def _past_number(text: Bytes, at: Int, end: Int) -> Int:
    """The end of a JSON number; -1 if it is none."""
    if at < end and byte_at(text, at) == 45:
        at += 1
    if at >= end or not 48 <= byte_at(text, at) <= 57:
        return -1
    if byte_at(text, at) == 48:
        at += 1
    else:
        while at < end and 48 <= byte_at(text, at) <= 57:
            at += 1
    if at < end and byte_at(text, at) == 46:
        at += 1
        if at >= end or not 48 <= byte_at(text, at) <= 57:
            return -1
        while at < end and 48 <= byte_at(text, at) <= 57:
            at += 1
    if at < end and (byte_at(text, at) == 101 or byte_at(text, at) == 69):
        return -1  # exponents may overflow: left to orjson
    return at


@inlined_kernel
def _hex_4(text: Bytes, at: Int, end: Int) -> Int:
    """The number that four hexadecimal digits say; -1 if they are none."""
    if at + 4 > end:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(at, at + 4):
        c = np.int64(byte_at(text, i))
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= (c | 32) <= 102:
            digit = (c | 32) - 87
        else:
            return np.int64(-1)
        number = number * 16 + digit
    return number


@inlined_kernel
def _past_escape(text: Bytes, at: Int, end: Int) -> Int:
    """The end of the escape that begins with the backslash at `at`; -1 if it is none, or half of a pair."""
    c = byte_at(text, at + 1)
    if c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116:
        return at + 2
    if c != 117:
        return np.int64(-1)
    unit = _hex_4(text, at + 2, end)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return np.int64(-1)
    if not 0xD800 <= unit <= 0xDBFF:
        return at + 6
    if at + 12 > end or byte_at(text, at + 6) != 92 or byte_at(text, at + 7) != 117:
        return np.int64(-1)
    return at + 12 if 0xDC00 <= _hex_4(text, at + 8, end) <= 0xDFFF else np.int64(-1)


FIRST_MARK = 0xFB
_MARKED = b'\\\r\n\t"'
r"""The characters of the escapes \\, \r, \n, \t and \". Their marks are bytes that no UTF-8 has: URLs may have them."""
_OF_MARKS = np.frombuffer(_MARKED, np.uint8)
_NO_UTF_8 = 0xFA
NO_ESCAPES, MARKS_ONLY, ANY_ESCAPES = 0, 1, 2
"""The escapes that `past_string` accepts."""


def with_fewer_escapes(block: bytes) -> tuple[Bytes, Bytes | None]:
    r"""Return lines with / for \/ and letters for \u00f6, which mean the same in JSON, and with marks.

    Blanks at the end of a line keep the others where they are. Other escapes of ASCII stay, and lines too long for an
    event. The second array is the same memory, where `put_back` may write; None if this is the block itself.
    """
    text = np.frombuffer(block, np.uint8)
    if block.find(b"\\") < 0:
        return without_marks(text), None
    out = np.empty(len(text), np.uint8)
    copy_lines(text, out)
    read_only = out.view()
    read_only.flags.writeable = False  # as bytes are: kernels are compiled for one type
    return read_only, out


def without_marks(text: Bytes) -> Bytes:
    """Return a text in which no byte is a mark: those that are as marks are other bytes that no UTF-8 has."""
    if len(text) == 0 or text.max() < FIRST_MARK:
        return text
    changed = np.minimum(text, np.uint8(_NO_UTF_8))
    changed.flags.writeable = False
    return changed


@lean_kernel
def put_back(text: Bytes, begins: Ints, ends: Ints, urls: Int) -> None:
    """Write the characters of marks into URLs."""
    for url in range(urls):
        for at in range(begins[url], ends[url]):
            if text[at] >= FIRST_MARK:
                text[at] = _OF_MARKS[text[at] - FIRST_MARK]


@lean_kernel
def copy_lines(text: Bytes, out: Bytes) -> None:
    """Copy lines with fewer escapes."""
    size = text.shape[0]
    begin: Int = np.int64(0)
    while begin < size:
        end = find_byte(text, begin, size, 10)
        is_event = end - begin <= MOST_EVENT_BYTES
        at, to = begin, begin
        while at < end:
            c = np.int64(byte_at(text, at))
            if c != 92 or at + 1 >= end or not is_event:
                to = put_byte(out, to, _NO_UTF_8 if c >= FIRST_MARK else c)
                at += 1
                continue
            following = np.int64(byte_at(text, at + 1))
            letter, past = _escaped_letter(text, at, end) if following == 117 else (np.int64(0), at)
            if letter > 0:
                to, at = _put_letter(out, to, letter), past
                continue
            if following == 92:
                to = put_byte(out, to, FIRST_MARK)
            elif following == 114:  # r
                to = put_byte(out, to, FIRST_MARK + 1)
            elif following == 110:  # n
                to = put_byte(out, to, FIRST_MARK + 2)
            elif following == 116:  # t
                to = put_byte(out, to, FIRST_MARK + 3)
            elif following == 34:
                to = put_byte(out, to, FIRST_MARK + 4)
            else:
                if following != 47:
                    to = put_byte(out, to, c)
                to = put_byte(out, to, following)
            at += 2
        while to < end:
            to = put_byte(out, to, 32)
        if end < size:
            put_byte(out, end, 10)
        begin = end + 1


@inlined_kernel
def _put_letter(out: Bytes, at: Int, letter: Int) -> Int:
    """Write a letter that is not ASCII as UTF-8; return the next offset."""
    if letter < 0x800:
        at = put_byte(out, at, 0xC0 | letter >> 6)
    else:
        if letter < 0x10000:
            at = put_byte(out, at, 0xE0 | letter >> 12)
        else:
            at = put_byte(out, at, 0xF0 | letter >> 18)
            at = put_byte(out, at, 0x80 | (letter >> 12 & 63))
        at = put_byte(out, at, 0x80 | (letter >> 6 & 63))
    return put_byte(out, at, 0x80 | (letter & 63))


@inlined_kernel
def _escaped_letter(text: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return the letter of an escape with u, which is not ASCII, and its end; 0 if there is none."""
    past = _past_escape(text, at, end)
    letter: Int = _hex_4(text, at + 2, end)
    if past < 0 or letter < 0x80:
        return np.int64(0), at
    if past == at + 12:
        letter = 0x10000 + ((letter - 0xD800) << 10) + _hex_4(text, at + 8, end) - 0xDC00
    return letter, past


@lean_kernel
def past_string(text: Bytes, at: Int, end: Int, escapes: Int) -> Int:
    """The end of the string that goes on at `at`, its quote included; -1 if it is none or has a forbidden escape."""
    while at < end:
        plain = end_of_string(text, at, end)
        if plain >= 0:
            return plain + 1
        while at < end:
            c = byte_at(text, at)
            if c == 34:
                return at + 1
            if c < 32:
                return np.int64(-1)
            if c == 92:
                if escapes < ANY_ESCAPES or at + 1 >= end:
                    return np.int64(-1)
                at = _past_escape(text, at, end)
            elif c >= FIRST_MARK and escapes >= MARKS_ONLY:
                at += 1
            elif c >= 128:
                at = past_character(text, at, end)
            else:
                at += 1
            if at < 0:
                return np.int64(-1)
    return np.int64(-1)


@lean_kernel
def past_value(text: Bytes, at: Int, end: Int) -> Int:
    """The end of a string, number or word; -1 for anything else, which orjson has to check."""
    if at >= end:
        return np.int64(-1)
    if byte_at(text, at) == 34:
        return past_string(text, at + 1, end, ANY_ESCAPES)
    if is_word(text, at, end, NULL) or is_word(text, at, end, TRUE):
        return at + 4
    if is_word(text, at, end, _FALSE) and at + 5 <= end and byte_at(text, at + 4) == 101:
        return at + 5
    begin = at
    at = _past_number(text, at, end)
    return at if at - begin <= 18 else np.int64(-1)


_DEEPEST = 60


@lean_kernel
def past_anything(text: Bytes, at: Int, end: Int) -> Int:
    """The end of any value, lists and objects in each other included; -1 if orjson has to check."""
    depth = 0
    objects = np.uint64(0)  # a bit a level: whether it is an object
    while True:
        c = byte_or_0(text, at, end)
        opened = c == 123 or c == 91
        if opened:
            if depth >= _DEEPEST:
                return np.int64(-1)
            depth += 1
            objects = (objects << np.uint64(1)) | np.uint64(c == 123)
            at = past_space(text, at + 1, end)
        else:
            at = past_value(text, at, end)
            if at < 0:
                return np.int64(-1)
        while depth > 0:
            is_object = (objects & np.uint64(1)) != np.uint64(0)
            at = past_space(text, at, end)
            c = byte_or_0(text, at, end)
            if c == (125 if is_object else 93):
                at += 1
                depth -= 1
                objects >>= np.uint64(1)
                opened = False
                continue
            if not opened:
                if c != 44:
                    return np.int64(-1)
                at = past_space(text, at + 1, end)
            opened = False
            if is_object:
                if at >= end or byte_at(text, at) != 34:
                    return np.int64(-1)
                at = past_string(text, at + 1, end, ANY_ESCAPES)
                if at < 0:
                    return np.int64(-1)
                at = past_space(text, at, end)
                if at >= end or byte_at(text, at) != 58:
                    return np.int64(-1)
                at = past_space(text, at + 1, end)
            break
        if depth == 0:
            return at


@inlined_kernel
def digits(text: Bytes, begin: Int, end: Int) -> Int:
    """Return the number in `text[begin:end]`; -1 if it has other characters than digits, or more than 16."""
    if end - begin > 16 or end <= begin:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(begin, end):
        if not 48 <= byte_at(text, i) <= 57:
            return np.int64(-1)
        number = number * 10 + np.int64(byte_at(text, i)) - 48
    return number
