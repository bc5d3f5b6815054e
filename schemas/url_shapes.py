"""Shapes of URLs: what stays of a URL if its numbers, dates and words like those of sessions may be any.

    https://example.org/calendar/2024-05/7?view=day     example.org/calendar/*?view=day
    https://example.org/item?id=123&s=9f86d081884c       example.org/item?id=*&s=*

And the query parameters of URLs: the URL without one parameter. All in one pass over the bytes of a URL.
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
_STAR, _SLASH, _PERCENT, _QUESTION, _AND, _EQUAL, _S = 42, 47, 37, 63, 38, 61, 115
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
        word_end, digits = at, np.int64(0)
        while word_end < end and (_is_digit(byte_at(text, word_end)) or _is_letter(byte_at(text, word_end))):
            digits += _is_digit(byte_at(text, word_end))
            word_end += 1
        if word_end - at >= _LEAST_SESSION_LETTERS and digits >= _LEAST_SESSION_DIGITS:
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
def _named(key: Words, urls: Bytes, of_host: Word, begin: Int, end: Int) -> Word:
    """Return a hash of a parameter of a host, by its name; it is not 0."""
    name = keyed_hash(key, urls, begin, find_byte(urls, begin, end, _EQUAL))
    return max((of_host ^ turned(name, 23)) * _MIX, np.uint64(1))


@inlined_kernel
def _parameter_end(urls: Bytes, at: Int, end: Int, number: Int) -> Int:
    return find_byte(urls, at, end, _AND) if number + 1 < MOST_PARAMETERS else end


@lean_kernel
def count_parameters(urls: Bytes, url_start: Ints, counts: Ints) -> None:
    """Fill in how many parameters each URL has, `MOST_PARAMETERS` at most; 0 where there is no URL."""
    for i in range(url_start.shape[0]):
        counts[i] = 0
        if url_start[i] != 0:
            _, end, at = _bounds(urls, url_start[i])
            at = find_byte(urls, at, end, _QUESTION) + 1
            while at < end:
                at = _parameter_end(urls, at, end, counts[i]) + 1
                counts[i] += 1


@lean_kernel
def hash_parameters(
    urls: Bytes, url_start: Ints, other_start: Ints, key: Words, room: Bytes, names: Hashes, bare: Hashes, kept: Array
) -> None:
    """Fill in the parameters of URLs, one URL after the other.

    `names`: a hash of host and name. `bare`: a hash of the URL without the parameter. `kept`: whether the URL at
    `other_start`, of the same host and path, has it too: 1 yes, -1 no, 0 if there is no such URL.
    """
    row = np.int64(0)
    for i in range(url_start.shape[0]):
        if url_start[i] == 0:
            continue
        begin, end, host_begin = _bounds(urls, url_start[i])
        of_host = keyed_hash(key, urls, host_begin, find_byte(urls, host_begin, end, _SLASH))
        query = find_byte(urls, host_begin, end, _QUESTION)
        at, number = query + 1, np.int64(0)
        while at < end:
            until = _parameter_end(urls, at, end, number)
            names[row] = _named(key, urls, of_host, at, until)
            size = np.int64(0)
            for j in range(begin, end):
                if (j < at or j > until) and size < room.shape[0]:
                    room[size] = byte_at(urls, j)
                    size += 1
            if until == end:  # it was the last one: the ? or & before it goes too
                size -= 1
            bare[row] = hash_bytes(room, 0, size) ^ of_host
            kept[row] = _is_kept(urls, begin, query, at, until, other_start[i])
            at = until + 1
            number += 1
            row += 1


@inlined_kernel
def _is_kept(urls: Bytes, begin: Int, query: Int, at: Int, until: Int, other_start: Int) -> Int:
    """Whether another URL of the same host and path has a parameter too: 1 or -1; 0 if there is no such URL."""
    if other_start == 0:
        return np.int64(0)
    other, end, host_begin = _bounds(urls, other_start)
    other_query = find_byte(urls, host_begin, end, _QUESTION)
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
        begin, end, host_begin = _bounds(urls, url_start[i])
        of_host = keyed_hash(key, urls, host_begin, find_byte(urls, host_begin, end, _SLASH))
        query = find_byte(urls, host_begin, end, _QUESTION)
        size = np.int64(0)
        for j in range(begin, min(query + 1, end)):
            room[size] = byte_at(urls, j)
            size += 1
        at, parameter = query + 1, np.int64(0)
        while at < end:
            until = _parameter_end(urls, at, end, parameter)
            name = _named(key, urls, of_host, at, until)
            row = find_number(dropped, name)
            if row >= 0:
                number[i] = 1 + row if number[i] == 0 else number[i]
            else:
                for j in range(at, min(until + 1, end)):
                    room[size] = byte_at(urls, j)
                    size += 1
                if until == end:
                    room[size] = _AND
                    size += 1
            at = until + 1
            parameter += 1
        if query < end:  # a ? or & at the end goes
            size -= 1
        whole[i] = hash_bytes(room, 0, size) ^ of_host
