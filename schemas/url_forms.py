"""The kernels of canonical URLs.

`recognise` finds the plain ones, which are canonical as they are, and hashes them where they are. `write_forms` writes
the canonical forms of others behind the text. Both are careful rather than clever: they leave every doubtful URL to the
library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Bytes, ColumnTuple, Hashes, Ids, Int, Ints, Word
from opicflow.schemas.hashing import HIGHS, ONES, byte_at, find_byte, past_character, put_byte, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch
from opicflow.schemas.pages import (
    HostMemo,
    IdRules,
    find_site_hash,
    id_of,
    is_remembered,
    memo_line,
    remembered_site,
)

LONGEST_URL = 8192

_Byte = Int | np.uint8

PAGE = 0
ASK = 1
"""Not decided yet: the library has to decide if no kernel does."""
NO_PAGE = 2
ABSENT = 3
"""The row has no URL."""

FOLD_WWW, FOLD_HTTPS, DROP_IN_QUERY, DROP_IN_PATH = 1, 2, 4, 8


def _table(allowed: str) -> Bytes:
    table = np.zeros(256, np.uint8)
    table[np.frombuffer(allowed.encode(), np.uint8)] = 1
    return table


_LETTERS_AND_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_PLAIN = _table(_LETTERS_AND_DIGITS + "-_~!$&()*+,;=:@|[]")
"""Bytes that mean nothing special, and stay as they are, in a path and in a query."""
_SLASH = 47
_HTTPS = np.uint64(int.from_bytes(b"https://", "little"))
_HTTP, _SEVEN_BYTES = np.uint64(int.from_bytes(b"http://", "little")), np.uint64((1 << 56) - 1)


_URLS_AHEAD = 16
"""The memo of so many hosts is on its way from memory while the first of these URLs is hashed."""


@ColumnTuple.register
class HostsAhead(NamedTuple):
    """The hosts of the next URLs, a row each, for kernels; begin -1 = the library has to decide."""

    begins: Ints
    ends: Ints
    lines: Ints
    """The lines of the memo."""

    @classmethod
    def empty(cls) -> HostsAhead:
        """Make room for them."""
        return cls(*(np.zeros(_URLS_AHEAD, np.int64) for _ in cls._fields))


@lean_kernel
def recognise(
    text: Bytes,
    begins: Ints,
    ends: Ints,
    rules: Int,
    id_rules: IdRules,
    memo: HostMemo,
    ahead: HostsAhead,
    states: Bytes,
    ids: Ids,
    sites: Hashes,
) -> None:
    """Hash every URL that is plainly canonical, its fragment cut off (`ends`); leave the others to the library."""
    for first in range(0, begins.shape[0], _URLS_AHEAD):
        last = min(first + _URLS_AHEAD, begins.shape[0])
        for i in range(first, last):
            _find_host(text, begins[i], ends[i], rules, memo, ahead, i - first)
        for i in range(first, last):
            host, host_end, line = ahead.begins[i - first], ahead.ends[i - first], ahead.lines[i - first]
            is_known = host >= 0 and is_remembered(memo, line, text, host, host_end)  # then it is a plain one
            end: Int = np.int64(-1)
            if is_known or (host >= 0 and _end_of_host(text, host, ends[i], rules) == host_end):
                end = _end_of_path(text, host_end, ends[i], rules)
            if end < 0:
                states[i], ids[i], sites[i] = ABSENT if begins[i] < 0 else ASK, 0, 0
                continue
            site = remembered_site(memo, line)
            if not is_known:
                site = find_site_hash(id_rules, memo, line, text, host, host_end)
            states[i], ends[i], sites[i] = PAGE, end, site
            ids[i] = id_of(id_rules, text, begins[i], end, site)


@inlined_kernel
def _find_host(text: Bytes, begin: Int, end: Int, rules: Int, memo: HostMemo, ahead: HostsAhead, row: Int) -> None:
    """Note where the host of a URL that may be plain begins and ends, and the line of the memo, which is requested."""
    ahead.begins[row] = -1
    host = _begin_of_host(text, begin, end, rules) if begin >= 0 else np.int64(-1)
    if host < 0:
        return
    host_end = find_byte(text, host, end, _SLASH)
    if host_end in (host, end):  # no host, or no path: the library adds one
        return
    line = memo_line(text, host, host_end)
    prefetch(memo.lines, line)
    ahead.begins[row], ahead.ends[row], ahead.lines[row] = host, host_end, line


@inlined_kernel
def _begin_of_host(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """Return where the host begins, behind http:// or https://; -1 for other schemes, and for a wrong length."""
    if end - begin > LONGEST_URL or end - begin < 10:
        return np.int64(-1)
    scheme = word_at(text, begin)
    if scheme == _HTTPS:
        return begin + 8
    return begin + 7 if scheme & _SEVEN_BYTES == _HTTP and not rules & FOLD_HTTPS else np.int64(-1)


@inlined_kernel
def _end_of_host(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """The beginning of the path; -1 for hosts with ports, of numbers, in Punycode, with empty labels."""
    label = begin
    at = begin
    while at < end:
        c = byte_at(text, at)
        if (97 <= c <= 122) or (48 <= c <= 57) or c == 45 or c == 95:  # a-z 0-9 - _
            if c == 45 and at == label + 3 and byte_at(text, at - 1) == 45:  # xn-- and its like
                return -1
            at += 1
        elif c == 46 or c == 47:  # . /
            if at == label:
                return -1
            if c == 47:
                if 48 <= byte_at(text, label) <= 57:  # may be a number: an IPv4 address
                    return -1
                return at
            if (rules & FOLD_WWW) and label == begin and at == begin + 3:
                return -1
            at += 1
            label = at
        else:
            return -1
    return -1


@inlined_kernel
def _has(word: Word, byte: Int) -> Word:
    """Return the high bit of every byte that is this one; all bytes of the word are ASCII."""
    return ~((word ^ (np.uint64(byte) * ONES)) + np.uint64(127) * ONES) & HIGHS


@inlined_kernel
def _ordinary(word: Word) -> Word:
    """Return the high bit of every byte that is a letter, a digit, or one of -./_; 0 if a byte is not ASCII."""
    if word & HIGHS:
        return np.uint64(0)
    lower = word | (np.uint64(32) * ONES)
    letters = (lower + np.uint64(128 - 97) * ONES) & ~(lower + np.uint64(127 - 122) * ONES)
    others = (word + np.uint64(128 - 45) * ONES) & ~(word + np.uint64(127 - 57) * ONES)
    return (letters | others | _has(word, 95)) & HIGHS


@inlined_kernel
def _end_of_path(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """Return the end of a URL whose path begins at `begin`; -1 if the library might change it."""
    at = begin + 1
    while at < end:
        if at + 8 <= end:  # most paths are nothing but such words
            word = word_at(text, at)
            behind = _has(word, 47) << np.uint64(8) | np.uint64(byte_at(text, at - 1) == 47) << np.uint64(7)
            if _ordinary(word) == HIGHS and not _has(word, 46) & behind:
                at += 8
                continue
        stop, is_path = min(at + 8, end), True
        while at < stop and is_path:
            c = byte_at(text, at)
            if _PLAIN[c]:
                if c == 59 and rules & DROP_IN_PATH:  # ;
                    return np.int64(-1)
            elif c == 46:  # . at the start of a segment may be a dot segment
                if byte_at(text, at - 1) == 47:
                    return np.int64(-1)
            elif c == 37:  # %2e is a dot too
                if at + 2 >= end or (
                    byte_at(text, at + 1) == 50 and (byte_at(text, at + 2) == 69 or byte_at(text, at + 2) == 101)
                ):
                    return np.int64(-1)
            elif c != 47:  # /
                is_path = False
            at += is_path
        if not is_path:
            break
    if at < end and byte_at(text, at) == 63:  # ?
        if rules & DROP_IN_QUERY:
            return np.int64(-1)
        at = _end_of_query(text, at + 1, end)
    if at < 0 or (at < end and byte_at(text, at) != 35):  # whatever a fragment holds is dropped
        return np.int64(-1)
    return at


@inlined_kernel
def _end_of_query(text: Bytes, begin: Int, end: Int) -> Int:
    """Return where the plain bytes of a query end; -1 if it is empty."""
    at = begin
    while at < end:
        if at + 8 <= end:
            word = word_at(text, at)
            is_ascii = not word & HIGHS
            if is_ascii and _ordinary(word) | _has(word, 61) | _has(word, 38) | _has(word, 37) == HIGHS:  # = & %
                at += 8
                continue
        c = byte_at(text, at)
        if not (_PLAIN[c] or c == 46 or c == 47 or c == 37 or c == 63):
            break
        at += 1
    return np.int64(-1) if at == begin else at


# -- URLs that are not canonical yet -----------------------------------------------------------------------------------

_ENCODED, _ENDS, _DOUBTFUL = 1, 2, 3
_SPECIAL_IN_QUERY = _table("\"'<>") * _ENCODED
_SPECIAL_IN_QUERY[:33] = _SPECIAL_IN_QUERY[127:] = _ENCODED
_SPECIAL_IN_PATH = np.maximum(_SPECIAL_IN_QUERY, _table("`{}") * _ENCODED)
_SPECIAL_IN_PATH[list(b"'/\\?^")] = 0, _ENDS, _ENDS, _ENDS, _DOUBTFUL
"""The treatment of bytes: 0 = copied. Whether ^ in a path is encoded depends on the version of the library."""
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_SESSION = np.frombuffer(b";jsessionid=", np.uint8)
_SPACE, _DASHES = np.uint64(32), np.uint64(35) * ONES
_HTTPS_BYTES, _WWW = np.frombuffer(b"https://", np.uint8), np.frombuffer(b"www.", np.uint8)
_ENCODED_DOT = np.frombuffer(b"%2e", np.uint8)
_QUESTION, _COLON, _BACKSLASH = 63, 58, 92
_SAFE_SCHEME, _OTHER_SCHEME = 2, 3
_NO_FORM, _NOT_SURE = -1, -2


@ColumnTuple.register
class DroppedNames(NamedTuple):
    """The parameters that rules drop, for kernels: names in lower case, one after the other."""

    text: Bytes
    starts: Ints
    are_prefixes: Bytes

    @classmethod
    def of(cls, exact: Iterable[str], prefixes: Iterable[str]) -> DroppedNames:
        """Take whole names, and beginnings of names."""
        flags = {**dict.fromkeys(sorted(exact), 0), **dict.fromkeys(sorted(prefixes), 1)}
        encoded = [name.encode("utf-8", "surrogatepass") for name in flags]
        starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.array([*b"".join(encoded)], np.uint8), starts, np.array([*flags.values()], np.uint8))


@lean_kernel
def write_forms(
    text: Bytes,
    begins: Ints,
    ends: Ints,
    base_of: Ints,
    rows: Ints,
    rules: Int,
    dropped: DroppedNames,
    hosts: HostMemo,
    states: Bytes,
    progress: Ints,
) -> None:
    """Write the canonical forms of these rows behind the text, and leave every doubtful row to the library.

    `progress` is the number of rows that are done, and the size of the text: it ends early if the room is used up.
    A row whose base is not decided yet waits for it. `hosts` are those of canonical URLs.
    """
    while progress[0] < rows.shape[0]:
        row, size = rows[progress[0]], progress[1]
        base = base_of[row]
        if base == row or states[base] != ASK:
            has_base = base != row and states[base] == PAGE
            room = min(ends[row] - begins[row], np.int64(LONGEST_URL)) * 4 + 32
            room += ends[base] - begins[base] if has_base else 0
            if size + room > text.shape[0]:
                return
            end, is_ascii, has_controls = _read_to_fragment(text, begins[row], ends[row])
            begin, to = begins[row], size
            form: Int = np.int64(_NO_FORM)
            if end - begin <= LONGEST_URL and (is_ascii or _is_utf8(text, begin, end)):
                while end > begin and byte_at(text, end - 1) <= 32:
                    end -= 1
                while end > begin and byte_at(text, begin) <= 32:
                    begin += 1
                if has_controls:
                    to = _copy_without_breaks(text, begin, end, size)
                    begin, end = size, to
                base_begin, base_end = (begins[base], ends[base]) if has_base else (np.int64(-1), np.int64(-1))
                form = _write_form(text, begin, end, base_begin, base_end, to, rules, dropped, hosts)
            if form >= 0:
                states[row], begins[row], ends[row], progress[1] = PAGE, to, form, form
            elif form == _NO_FORM:
                states[row], begins[row], ends[row] = NO_PAGE, 0, 0
        progress[0] += 1


@inlined_kernel
def _read_to_fragment(text: Bytes, begin: Int, end: Int) -> tuple[Int, bool, bool]:
    """Return where a URL ends or its fragment begins, and whether it is ASCII, and has bytes below the space."""
    at, high, low = begin, np.uint64(0), np.uint64(0)
    while at + 8 <= end:
        word = word_at(text, at)
        x = word ^ _DASHES
        if (x - ONES) & ~x & HIGHS:  # a # is among them
            break
        high |= word
        x = word & ~(np.uint64(31) * ONES)
        low |= (x - ONES) & ~x & HIGHS
        at += 8
    while at < end and byte_at(text, at) != 35:
        c = np.uint64(byte_at(text, at))
        high |= c
        low |= np.uint64(c < _SPACE)
        at += 1
    return at, high & HIGHS == 0, low != 0


@inlined_kernel
def _is_utf8(text: Bytes, at: Int, end: Int) -> bool:
    """Whether bytes are UTF-8 as Python has it: the shortest form, no surrogates, nothing beyond Unicode."""
    while 0 <= at < end:
        at = at + 1 if byte_at(text, at) < 128 else past_character(text, at, end)
    return bool(at == end)


@inlined_kernel
def _copy_without_breaks(text: Bytes, begin: Int, end: Int, to: Int) -> Int:
    """Copy bytes but for tabs and ends of lines; return where the copy ends."""
    for at in range(begin, end):
        c = byte_at(text, at)
        if c not in (9, 10, 13):
            to = put_byte(text, to, c)
    return to


@inlined_kernel
def _lower(byte: _Byte) -> Int:
    return np.int64(byte) + 32 if 65 <= byte <= 90 else np.int64(byte)


@inlined_kernel
def _is_in_lower_case(text: Bytes, at: Int, other: Bytes, other_at: Int, size: Int) -> bool:
    """Whether so many bytes of a text, in lower case, are those of another."""
    i = np.int64(0)
    while i < size and _lower(byte_at(text, at + i)) == byte_at(other, other_at + i):
        i += 1
    return bool(i == size)


@inlined_kernel
def _write_form(
    text: Bytes,
    at: Int,
    end: Int,
    base: Int,
    base_end: Int,
    form: Int,
    rules: Int,
    dropped: DroppedNames,
    hosts: HostMemo,
) -> Int:
    """Write the canonical form of a URL at `form` and return its end, or `_NO_FORM`, or `_NOT_SURE`.

    `base` is where the canonical URL of its page begins; -1 = none.
    """
    scheme, at = _read_scheme(text, at, end)
    if scheme == _OTHER_SCHEME or (scheme == 0 and base < 0):
        return np.int64(_NO_FORM)
    is_base_safe = bool(base >= 0 and byte_at(text, base + 4) == 115)  # https
    is_safe = scheme == _SAFE_SCHEME or (scheme == 0 and is_base_safe)
    rest = at
    while rest < end and (byte_at(text, rest) == _SLASH or byte_at(text, rest) == _BACKSLASH):
        rest += 1
    slashes = rest - at
    is_relative = base >= 0 and slashes < 2 and (scheme == 0 or is_safe == is_base_safe)
    if (rules or not is_relative) and base_end - base + 3 * (end - at) + 32 > LONGEST_URL:
        return np.int64(_NOT_SURE)  # the library compares the length of the form before it is folded
    has_path = True
    if is_relative:
        path = find_byte(text, base + 7 + is_base_safe, base_end, _SLASH)
        query = find_byte(text, path, base_end, _QUESTION)
        kept: Int = np.int64(path)
        if slashes == 0:
            has_path = bool(at < end and byte_at(text, at) != _QUESTION)
            kept = base_end if at == end else query
            if has_path:
                kept -= 1
                while byte_at(text, kept) != _SLASH:
                    kept -= 1
        to = form
        for i in range(base, kept):
            to = put_byte(text, to, byte_at(text, i))
        root = form + path - base
        at = rest
    else:
        at, to = _write_origin(text, rest, end, is_safe, rules, hosts, form)
        root = to
        at += at < end and byte_at(text, at) != _QUESTION
    if to >= 0 and has_path:
        at, to = _write_path(text, at, end, root, to, rules)
    if to >= 0 and at < end:
        to = _write_query(text, at + 1, end, to, rules, dropped)
    return to if to - form <= LONGEST_URL else np.int64(_NO_FORM)


@inlined_kernel
def _read_scheme(text: Bytes, begin: Int, end: Int) -> tuple[Int, Int]:
    """Return which scheme a URL has, 0 for none, and where the rest of the URL begins."""
    at = begin
    while at < end:
        c = byte_at(text, at)
        is_letter = 97 <= c | 32 <= 122
        if not is_letter and (at == begin or not (48 <= c <= 57 or c == 43 or c == 45 or c == 46)):  # + - .
            break
        at += 1
    if at == begin or at >= end or byte_at(text, at) != _COLON:
        return np.int64(0), begin
    size = at - begin
    if size < 4 or size > 5 or not _is_in_lower_case(text, begin, _HTTPS_BYTES, 0, size):
        return np.int64(_OTHER_SCHEME), at
    return np.int64(size - 3), at + 1


@inlined_kernel
def _write_origin(
    text: Bytes, at: Int, end: Int, is_safe: bool, rules: Int, hosts: HostMemo, to: Int
) -> tuple[Int, Int]:
    """Write scheme, host and port for the authority at `at`; return its end, and the end of the written text."""
    stop, host = at, at
    while stop < end:
        c = byte_at(text, stop)
        if c in (_SLASH, _BACKSLASH, _QUESTION):
            break
        stop += 1
        if c == 64:  # @: all before it is a user name and a password
            host = stop
    host_end = find_byte(text, host, stop, _COLON)
    port = np.int64(0)
    for i in range(host_end + 1, stop):
        digit = np.int64(byte_at(text, i)) - 48
        port = port * 10 + digit
        if digit < 0 or digit > 9 or port > 65535:
            return stop, np.int64(_NOT_SURE)
    has_port = host_end + 1 < stop and port != (443 if is_safe else 80)
    if rules & FOLD_HTTPS and not is_safe:
        is_safe, has_port = True, has_port and port != 443
    for i in range(8):
        if is_safe or i != 4:
            to = put_byte(text, to, _HTTPS_BYTES[i])
    name_begin = host
    if rules & FOLD_WWW:
        while _has_www(text, name_begin, host_end):
            name_begin += 4
    name = to
    for i in range(name_begin, host_end):
        to = put_byte(text, to, _lower(byte_at(text, i)))
    put_byte(text, to, _SLASH)
    is_plain = _end_of_host(text, name, to + 1, 0) == to
    if has_port:
        to = put_byte(text, to, _COLON)
        unit = np.int64(10_000)
        while unit > 1 and unit > port:
            unit //= 10
        while unit > 0:
            to = put_byte(text, to, 48 + port // unit % 10)
            unit //= 10
    if not is_plain and (name_begin > host or not is_remembered(hosts, memo_line(text, name, to), text, name, to)):
        return stop, np.int64(_NOT_SURE)
    return stop, to


@inlined_kernel
def _has_www(text: Bytes, begin: Int, end: Int) -> bool:
    """Whether a host begins with `www.` and has two labels behind it."""
    has_it = begin + 4 < end and _is_in_lower_case(text, begin, _WWW, 0, 4)
    return bool(has_it and find_byte(text, begin + 4, end, 46) < end)


@inlined_kernel
def _write_path(text: Bytes, at: Int, end: Int, root: Int, to: Int, rules: Int) -> tuple[Int, Int]:
    """Write the segments of a path, each behind a slash; return where the path ends, and the end of the written text.

    `root` is where the first segment of the whole path is written.
    """
    while True:
        segment = to
        to = put_byte(text, to, _SLASH)
        special = np.uint8(0)
        while at < end:
            c = byte_at(text, at)
            special = _SPECIAL_IN_PATH[c]
            if special > _ENCODED:
                break
            to = _write_byte(text, to, c, special)
            at += 1
        if at < end and special == _DOUBTFUL:
            return at, np.int64(_NOT_SURE)
        is_last = at == end or byte_at(text, at) == _QUESTION
        dots = _dots(text, segment + 1, to)
        if dots > 0:
            to = segment
            if dots == 2 and to > root:
                to -= 1
                while byte_at(text, to) != _SLASH:
                    to -= 1
            if is_last:
                to = put_byte(text, to, _SLASH)
        elif rules & DROP_IN_PATH:
            to = _end_without_session(text, segment + 1, to)
            if _dots(text, segment + 1, to) > 0:
                return at, np.int64(_NOT_SURE)
        if is_last:
            return at, to
        at += 1


@inlined_kernel
def _write_byte(text: Bytes, to: Int, byte: _Byte, is_encoded: _Byte) -> Int:
    if not is_encoded:
        return put_byte(text, to, byte)
    to = put_byte(text, to, 37)  # %
    to = put_byte(text, to, _HEX[byte >> 4])
    return put_byte(text, to, _HEX[byte & 15])


@inlined_kernel
def _dots(text: Bytes, begin: Int, end: Int) -> Int:
    """Return 1 or 2 for a segment of so many dots, some of which may be encoded; 0 for others."""
    if end - begin > 6:
        return np.int64(0)
    at, dots = begin, np.int64(0)
    while at < end:
        if byte_at(text, at) == 46:
            at += 1
        elif at + 2 < end and _is_in_lower_case(text, at, _ENCODED_DOT, 0, 3):
            at += 3
        else:
            return np.int64(0)
        dots += 1
    return dots if dots <= 2 else np.int64(0)


@inlined_kernel
def _end_without_session(text: Bytes, begin: Int, end: Int) -> Int:
    """Return the end of a segment without `;jsessionid=` and what follows it."""
    last = end - _SESSION.shape[0]
    at = find_byte(text, begin, end, 59)
    while at <= last:
        if _is_in_lower_case(text, at, _SESSION, 0, _SESSION.shape[0]):
            return at
        at = find_byte(text, at + 1, end, 59)
    return end


@inlined_kernel
def _write_query(text: Bytes, at: Int, end: Int, to: Int, rules: Int, dropped: DroppedNames) -> Int:
    """Write the query `text[at:end]` with its question mark, without dropped parameters; return its end."""
    begin = to
    to = put_byte(text, to, _QUESTION)
    if at == end:
        return to
    drops, has_parts = rules & DROP_IN_QUERY, False
    while True:
        before = to
        if has_parts:
            to = put_byte(text, to, 38)  # &
        part = to
        while at < end:
            c = byte_at(text, at)
            if c == 38 and drops:
                break
            to = _write_byte(text, to, c, _SPECIAL_IN_QUERY[c])
            at += 1
        if drops and _is_dropped(text, part, to, dropped):
            to = before
        else:
            has_parts = True
        if at == end:
            return to if to > begin + 1 else begin
        at += 1


@inlined_kernel
def _is_dropped(text: Bytes, begin: Int, end: Int, dropped: DroppedNames) -> bool:
    """Whether the rules drop a parameter."""
    size = find_byte(text, begin, end, 61) - begin  # =
    for i in range(dropped.are_prefixes.shape[0]):
        first = dropped.starts[i]
        length = dropped.starts[i + 1] - first
        if (size == length or (size > length and dropped.are_prefixes[i])) and _is_in_lower_case(
            text, begin, dropped.text, first, length
        ):
            return True
    return False
