"""Shapes of URLs: what stays of a URL if its numbers, dates and words like those of sessions may be any.

    https://example.org/calendar/2024-05/7?view=day     example.org/calendar/*?view=day
    https://example.org/events/2024/november/12         example.org/events/*
    https://example.org/item?id=123&s=9f86d081884c       example.org/item?id=*&s=*

And the parameters of URLs: the URL without one parameter. They are those of the query, `;name=value` in the path, and a
session between two slashes, named by the part before it: the name of `/s/9f86d081884c/page` is `s/`. All in one pass
over the bytes of a URL.
"""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Array, Bytes, Hashes, Int, Ints, Word, Words
from opicflow.schemas.hashing import byte_at, find_byte, find_number, hash_bytes, is_same, keyed_hash, turned
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

MOST_SHAPE_BYTES = 512
"""Of a longer shape its first bytes count."""
MOST_PARAMETERS = 8
"""Of a URL: those that follow are no parameters, but part of the last one's value."""
_LEAST_SESSION_LETTERS, _LEAST_SESSION_DIGITS = 8, 2
"""A word of so many letters and digits, as many digits as this, is a number, a hash or a session as a whole."""
_STAR, _SLASH, _PERCENT, _QUESTION, _AND, _EQUAL, _S, _SEMICOLON = 42, 47, 37, 63, 38, 61, 115, 59
_MONTHS = np.unique(
    np.array(
        [
            int.from_bytes(name[:8].encode(), "big")
            for names in (
                "jan feb mar apr may jun jul aug sep sept oct nov dec january february march april june july august",
                "september october november december januar februar maerz mai juni juli oktober dezember janvier",
                "fevrier mars avril juin juillet aout septembre octobre novembre decembre enero febrero marzo abril",
                "mayo junio julio agosto septiembre octubre noviembre diciembre",
            )
            for name in names.split()
        ],
        np.uint64,
    )
)
"""Names of months in English, German, French and Spanish: their first eight letters."""
_LONGEST_MONTH = 10
_MIX = np.uint64(0x9E3779B97F4A7C15)


def shape_of(url: str) -> str:
    """Return the shape of a canonical URL.

    >>> shape_of("https://example.org/2024/05/17/title-7?page=3&sort=up")
    'example.org/*/title-*?page=*&sort=up'
    """
    text, room = np.frombuffer(url.encode(), np.uint8), np.zeros(MOST_SHAPE_BYTES, np.uint8)
    size, _ = write_shape(text, 8 if url.startswith("https") else 7, len(text), room)
    return room[:size].tobytes().decode("utf-8", "replace")


@inlined_kernel
def _is_digit(c: np.uint8) -> bool:
    return bool(48 <= c <= 57)


@inlined_kernel
def _is_letter(c: np.uint8) -> bool:
    return bool(97 <= (c | 32) <= 122)


@inlined_kernel
def _read_word(text: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return where a word of letters and digits ends, and how many digits it has."""
    digits = np.int64(0)
    while at < end and (_is_digit(byte_at(text, at)) or _is_letter(byte_at(text, at))):
        digits += _is_digit(byte_at(text, at))
        at += 1
    return at, digits


@inlined_kernel
def _may_be_session(size: Int, digits: Int) -> bool:
    return bool(size >= _LEAST_SESSION_LETTERS and digits >= _LEAST_SESSION_DIGITS)


@inlined_kernel
def _joins(c: np.uint8) -> bool:
    """Whether a byte between two numbers makes them one: a date, a version, a path of numbers."""
    return bool(c == 45 or c == 46 or c == 47 or c == 95 or c == 58 or c == 44 or c == 126)


@inlined_kernel
def _put_star(room: Bytes, size: Int) -> Int:
    """Write a star for a number, unless it goes on one before. Returns the size."""
    if size > 0 and room[size - 1] == _STAR:
        return size
    if size > 1 and room[size - 2] == _STAR and _joins(room[size - 1]):
        return size - 1
    room[size] = _STAR
    return size + 1


@inlined_kernel
def _is_month(text: Bytes, begin: Int, end: Int) -> bool:
    """Whether a word of letters is the name of a month."""
    if not 3 <= end - begin <= _LONGEST_MONTH:
        return False
    letters = np.uint64(0)
    for i in range(begin, min(end, begin + 8)):
        letters = letters << np.uint64(8) | np.uint64(byte_at(text, i) | np.uint8(32))
    return bool(find_number(_MONTHS, letters) >= 0)


@inlined_kernel
def _is_part_of_date(text: Bytes, at: Int, word_end: Int, end: Int, room: Bytes, size: Int) -> bool:
    """Whether a word without digits is a month beside a number, or a month as a whole value of a parameter."""
    if size > 1 and room[size - 1] == _EQUAL:
        return bool(word_end == end or byte_at(text, word_end) == _AND) and _is_month(text, at, word_end)
    after = size > 1 and room[size - 2] == _STAR and _joins(room[size - 1])
    before = word_end + 1 < end and _joins(byte_at(text, word_end)) and _is_digit(byte_at(text, word_end + 1))
    return bool(after or before) and _is_month(text, at, word_end)


@lean_kernel
def write_shape(text: Bytes, begin: Int, end: Int, room: Bytes) -> tuple[Int, bool]:
    """Write the shape of a URL whose host begins at `begin`. Returns its size, and whether anything may be any."""
    size: Int = np.int64(0)
    at, has_star = begin, False
    host_end = find_byte(text, begin, end, _SLASH)
    while at < host_end and size < MOST_SHAPE_BYTES:
        room[size] = byte_at(text, at)
        size += 1
        at += 1
    if size == MOST_SHAPE_BYTES:
        return size, False
    at = host_end
    while at < end and size < MOST_SHAPE_BYTES:
        c = byte_at(text, at)
        if not (_is_digit(c) or _is_letter(c)):
            copied = 3 if c == _PERCENT else 1  # the digits of an escaped byte are no number
            while copied > 0 and at < end and size < MOST_SHAPE_BYTES:
                room[size] = byte_at(text, at)
                size += 1
                at += 1
                copied -= 1
            continue
        word_end, digits = _read_word(text, at, end)
        if _may_be_session(word_end - at, digits) or (
            digits == 0 and _is_part_of_date(text, at, word_end, end, room, size)
        ):
            size, has_star, at = _put_star(room, size), True, word_end
        while at < word_end and size < MOST_SHAPE_BYTES:
            if _is_digit(byte_at(text, at)):
                size, has_star = _put_star(room, size), True
                while at < word_end and _is_digit(byte_at(text, at)):
                    at += 1
            else:
                room[size] = byte_at(text, at)
                size += 1
                at += 1
        at = word_end
    return size, has_star


@inlined_kernel
def _bounds(urls: Bytes, start: Int) -> tuple[Int, Int, Int]:
    """Return where the URL at `start - 1` of an arena begins and ends, and where its host begins."""
    begin = start + 1
    end = begin + np.int64(urls[start - 1]) + (np.int64(urls[start]) << 8)
    is_https = begin + 4 < end and byte_at(urls, begin + 4) == _S
    return begin, end, min(begin + (8 if is_https else 7), end)


@inlined_kernel
def _parts(urls: Bytes, start: Int) -> tuple[Int, Int, Int, Int, Int]:
    """Return where the URL at `start - 1` of an arena begins and ends, and where its host, path and query begin."""
    begin, end, host = _bounds(urls, start)
    query = find_byte(urls, host, end, _QUESTION)
    return begin, end, host, find_byte(urls, host, query, _SLASH), query


@lean_kernel
def hash_shapes(urls: Bytes, url_start: Ints, key: Words, room: Bytes, out: Hashes) -> None:
    """Fill in a hash of the shape of each URL, at `url_start - 1` of an arena; 0 where there is none without a star."""
    for i in range(url_start.shape[0]):
        out[i] = 0
        if url_start[i] != 0:
            _, end, host_begin = _bounds(urls, url_start[i])
            size, has_star = write_shape(urls, host_begin, end, room)
            if has_star:
                out[i] = max(keyed_hash(key, room, 0, size), np.uint64(1))


@lean_kernel
def number_hashes(hashes: Hashes, table: Array, numbers: Array, firsts: Array) -> Int:
    """Number different hashes from 1 on, in the order in which they come; 0 stays 0. Returns how many there are.

    `table` has zeros, a power of two and at least twice the rows. `firsts` gets the first row of each number.
    """
    count, mask = np.int64(0), np.uint64(table.shape[0] - 1)
    for i in range(hashes.shape[0]):
        numbers[i] = 0
        if hashes[i] == 0:
            continue
        at = (hashes[i] * _MIX) >> np.uint64(20) & mask
        while table[at] != 0 and hashes[firsts[table[at]]] != hashes[i]:
            at = (at + np.uint64(1)) & mask
        if table[at] == 0:
            count += 1
            table[at] = count
            firsts[count] = i
        numbers[i] = table[at]
    return count


# -- parameters --------------------------------------------------------------------------------------------------------


@inlined_kernel
def _next_parameter(urls: Bytes, at: Int, query: Int, end: Int, number: Int) -> tuple[Int, Int]:
    """Return where the next parameter begins, with the sign before it, and where it ends; two ends if there is none.

    `number` is how many come before it.
    """
    while at < query:
        c = byte_at(urls, at)
        if c == _SEMICOLON:
            until = at + 1
            while until < query and byte_at(urls, until) != _SEMICOLON and byte_at(urls, until) != _SLASH:
                until += 1
            return at, end if number + 1 == MOST_PARAMETERS else until
        until = at + 1
        if c == _SLASH:
            until, digits = _read_word(urls, at + 1, query)
            size = until - at - 1
            is_whole = until < query and byte_at(urls, until) == _SLASH
            if is_whole and size > digits and _may_be_session(size, digits):
                return at, end if number + 1 == MOST_PARAMETERS else until
        at = until
    if at + 1 >= end:
        return end, end
    return at, end if number + 1 == MOST_PARAMETERS else find_byte(urls, at + 1, end, _AND)


@inlined_kernel
def _name_bounds(urls: Bytes, path: Int, begin: Int, until: Int) -> tuple[Int, Int]:
    """Return where the name of a parameter begins and ends. `path` is where the path of the URL begins."""
    sign, first = byte_at(urls, begin), begin
    if sign == _SLASH:
        while first > path and byte_at(urls, first - 1) != _SLASH:
            first -= 1
        return first, begin + 1
    return begin if sign == _SEMICOLON else begin + 1, find_byte(urls, begin, until, _EQUAL)


@inlined_kernel
def _named(key: Words, urls: Bytes, of_host: Word, path: Int, begin: Int, until: Int) -> Word:
    """Return a hash of a parameter of a host, by its name; it is not 0."""
    first, last = _name_bounds(urls, path, begin, until)
    return max((of_host ^ turned(keyed_hash(key, urls, first, last), 23)) * _MIX, np.uint64(1))


@lean_kernel
def count_parameters(urls: Bytes, url_start: Ints, counts: Ints) -> None:
    """Fill in how many parameters each URL has, `MOST_PARAMETERS` at most; 0 where there is no URL."""
    for i in range(url_start.shape[0]):
        counts[i] = 0
        if url_start[i] != 0:
            _, end, _, at, query = _parts(urls, url_start[i])
            while counts[i] < MOST_PARAMETERS:
                begin, at = _next_parameter(urls, at, query, end, counts[i])
                if begin == end:
                    break
                counts[i] += 1


@lean_kernel
def name_parameters(urls: Bytes, url_start: Int, begins: Ints, ends: Ints) -> None:
    """Fill in where the names of the parameters of a URL begin and end in the arena."""
    _, end, _, path, query = _parts(urls, url_start)
    at = path
    for number in range(begins.shape[0]):
        begin, at = _next_parameter(urls, at, query, end, number)
        begins[number], ends[number] = _name_bounds(urls, path, begin, at)


@lean_kernel
def hash_parameters(
    urls: Bytes, url_start: Ints, other_start: Ints, key: Words, room: Bytes, names: Hashes, bare: Hashes, kept: Array
) -> None:
    """Fill in the parameters of URLs, one URL after the other.

    `names`: a hash of host and name. `bare`: a hash of the URL without the parameter. `kept`: whether the URL at
    `other_start`, which is the same but for parameters, has it too: 1 yes, -1 no, 0 if there is no such URL.
    """
    row = np.int64(0)
    for i in range(url_start.shape[0]):
        if url_start[i] == 0:
            continue
        first, end, host, path, query = _parts(urls, url_start[i])
        of_host = keyed_hash(key, urls, host, path)
        at, number = path, np.int64(0)
        while number < MOST_PARAMETERS:
            begin, until = _next_parameter(urls, at, query, end, number)
            if begin == end:
                break
            names[row] = _named(key, urls, of_host, path, begin, until)
            size = np.int64(0)
            for j in range(first, end):
                if j < begin or j >= until:
                    room[size] = _QUESTION if j == until and begin == query else byte_at(urls, j)
                    size += 1
            bare[row] = hash_bytes(room, 0, size) ^ of_host
            if other_start[i] == 0:
                kept[row] = 0
            elif begin >= query:
                kept[row] = _is_kept(urls, first, query, begin + 1, until, other_start[i])
            else:
                kept[row] = _is_kept_in_path(urls, first, path, begin, until, end, other_start[i])
            at = until
            number += 1
            row += 1


@inlined_kernel
def _is_kept(urls: Bytes, begin: Int, query: Int, at: Int, until: Int, other_start: Int) -> Int:
    """Whether another URL of the same host and path has a parameter of the query too: 1 or -1; 0 if it is none."""
    other, end, _, _, other_query = _parts(urls, other_start)
    if other_query - other != query - begin or not is_same(urls, begin, urls, other, query - begin):
        return np.int64(0)
    name_end = find_byte(urls, at, until, _EQUAL)
    part = other_query + 1
    while part < end:
        ends = find_byte(urls, part, end, _AND)
        if find_byte(urls, part, ends, _EQUAL) - part == name_end - at and is_same(urls, at, urls, part, name_end - at):
            return np.int64(1)
        part = ends + 1
    return np.int64(-1)


@inlined_kernel
def _is_kept_in_path(urls: Bytes, first: Int, path: Int, begin: Int, until: Int, end: Int, other_start: Int) -> Int:
    """Whether another URL of the same host, with the same end, has a parameter of the path too: as `_is_kept`."""
    other, other_end, _ = _bounds(urls, other_start)
    rest, size = end - until, until - begin
    other_rest = other_end - rest
    if other_rest < other + (path - first) or not is_same(urls, first, urls, other, path - first):
        return np.int64(0)
    if not is_same(urls, until, urls, other_rest, rest):
        return np.int64(0)
    if other_rest - size >= other and is_same(urls, begin, urls, other_rest - size, size):
        return np.int64(1)
    is_without = other_rest - other == begin - first and is_same(urls, first, urls, other, begin - first)
    return np.int64(-1 if is_without or (rest > 1 and byte_at(urls, begin) == _SLASH) else 0)


@lean_kernel
def hash_without(
    urls: Bytes, url_start: Ints, key: Words, dropped: Hashes, room: Bytes, whole: Hashes, number: Array
) -> None:
    """Fill in a hash of each URL without the parameters whose hashes `dropped` has, sorted.

    `number` gets 1 + the row in `dropped` of the first one that the URL has; 0 if it has none.
    """
    for i in range(url_start.shape[0]):
        whole[i], number[i] = 0, 0
        if url_start[i] == 0:
            continue
        first, end, host, path, query = _parts(urls, url_start[i])
        of_host = keyed_hash(key, urls, host, path)
        size, at, parameter, in_query = np.int64(0), path, np.int64(0), np.int64(0)
        copied = first
        while True:
            begin, until = end, end
            if parameter < MOST_PARAMETERS:
                begin, until = _next_parameter(urls, at, query, end, parameter)
            for j in range(copied, min(begin, query)):
                room[size] = byte_at(urls, j)
                size += 1
            if begin == end:
                break
            row = find_number(dropped, _named(key, urls, of_host, path, begin, until))
            if row >= 0:
                number[i] = 1 + row if number[i] == 0 else number[i]
            else:
                for j in range(begin, until):
                    room[size] = byte_at(urls, j)
                    size += 1
                if begin >= query:  # the first one of the query is after a ?, others after a &
                    room[size - (until - begin)] = _AND if in_query else _QUESTION
                    in_query += 1
            at = copied = until
            parameter += 1
        whole[i] = hash_bytes(room, 0, size) ^ of_host
