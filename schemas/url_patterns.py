"""URL patterns select pages. `*` matches any run of characters, every other character itself.

A pattern is matched against whole canonical URLs: `https://example.org/news/*`, `*.pdf`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Bytes, ColumnTuple, Int, Ints, Word, Words
from opicflow.schemas.errors import UserError
from opicflow.schemas.hashing import byte_at, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, trailing_zeros
from opicflow.schemas.url_forms import PAGE
from opicflow.schemas.urls import CanonicalUrls, NotAPage, canonical

MOST_PATTERNS = 64
MOST_PATTERN_BYTES = 512
MOST_STARS = 8
NO_PATTERN = 255


_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ORIGIN = re.compile(r"https?://[^/*]*/")


class PatternRefused(UserError, ValueError):
    """A pattern makes no sense. One line."""


def check_patterns(patterns: tuple[str, ...]) -> None:
    """Refuse patterns that are too many or too large, or that no page can match."""
    if len(patterns) > MOST_PATTERNS:
        raise PatternRefused(f"there are {len(patterns)} URL patterns: give at most {MOST_PATTERNS}")
    for number, pattern in enumerate(patterns):
        problem = "it is there twice" if pattern in patterns[:number] else _why_not(pattern)
        if problem:
            raise PatternRefused(f"the URL pattern {pattern[:60]!a}: {problem}")


def first_patterns(patterns: tuple[str, ...], urls: CanonicalUrls) -> Bytes:
    """The number of the first pattern that each page's URL matches; `NO_PATTERN` for the others.

    Empty if there are no patterns.
    """
    if not patterns:
        return np.zeros(0, np.uint8)
    found = np.full(len(urls.ids), NO_PATTERN, np.uint8)
    find_patterns(urls.text, urls.begins, urls.ends, urls.states, _taken_apart(patterns), found)
    return found


def _why_not(pattern: str) -> str:
    """Why a pattern is refused; empty if it is not."""
    if len(pattern) > MOST_PATTERN_BYTES:
        return f"it is longer than {MOST_PATTERN_BYTES} bytes"
    if pattern.count("*") > MOST_STARS:
        return f"it has more than {MOST_STARS} stars"
    if not pattern.startswith(("http://", "https://", "*")):
        return "no page matches it: begin it with http://, https:// or *"
    odd = re.search(r"[^!-~]|#", pattern)
    if odd:
        return f"no page matches it: canonical URLs have no {odd[0]!a}"
    if "*" in pattern:
        origin = _ORIGIN.match(pattern)
        fixed = origin[0] if origin else ""
    else:
        fixed = pattern
    if fixed:
        try:
            form = canonical(fixed).decode()
        except NotAPage as problem:
            return f"no page matches it: {problem}"
        if form != fixed:
            return f"no page matches it: canonical URLs say {form} for {fixed}"
    return ""


@ColumnTuple.register
class _Pieces(NamedTuple):
    """The pieces between the stars of patterns; pattern i has those from `starts[i]` up to `starts[i+1]`.

    `heads` are their first eight bytes, as one number, zeros behind; `masks` has their bits set.
    """

    starts: Ints
    least_bytes: Ints  # that a URL has which matches the pattern
    text: Bytes
    begins: Ints
    sizes: Ints
    heads: Words
    masks: Words


@lru_cache(maxsize=16)
def _taken_apart(patterns: tuple[str, ...]) -> _Pieces:
    pieces = [pattern.encode().split(b"*") for pattern in patterns]
    flat = [piece for of_pattern in pieces for piece in of_pattern]
    sizes = np.array([len(piece) for piece in flat], np.int64)
    return _Pieces(
        starts=np.cumsum([0, *map(len, pieces)], dtype=np.int64),
        least_bytes=np.array([sum(map(len, of_pattern)) for of_pattern in pieces], np.int64),
        text=np.frombuffer(b"".join(flat) or b"*", np.uint8),
        begins=np.cumsum(sizes) - sizes,
        sizes=sizes,
        heads=np.array([int.from_bytes(piece[:8], "little") for piece in flat], np.uint64),
        masks=np.array([(1 << 8 * min(len(piece), 8)) - 1 for piece in flat], np.uint64),
    )


@lean_kernel
def find_patterns(text: Bytes, begins: Ints, ends: Ints, states: Bytes, pieces: _Pieces, out: Bytes) -> None:
    """Write the number of the first pattern that matches, for every URL that is a page and matches one."""
    for i in range(begins.shape[0]):
        if states[i] == PAGE:
            for pattern in range(pieces.least_bytes.shape[0]):
                if _matches(text, begins[i], ends[i], pieces, pattern):
                    out[i] = pattern
                    break


@inlined_kernel
def _matches(text: Bytes, begin: Int, end: Int, pieces: _Pieces, pattern: Int) -> bool:
    """Whether a URL begins with the first piece and ends with the last, and has the others in between in their order.

    Each of the others is matched at its first occurrence: that leaves the most room for the next ones.
    """
    first, last = pieces.starts[pattern], pieces.starts[pattern + 1] - 1
    if pieces.least_bytes[pattern] > end - begin or not _is_at(text, begin, pieces, first):
        return False
    if first == last:
        return bool(end - begin == pieces.sizes[first])
    at = begin + pieces.sizes[first]
    end -= pieces.sizes[last]
    if not _is_at(text, end, pieces, last):
        return False
    for piece in range(first + 1, last):
        at = _found(text, at, end - pieces.sizes[piece], pieces, piece)
        if at < 0:
            return False
        at += pieces.sizes[piece]
    return True


@inlined_kernel
def _found(text: Bytes, at: Int, last: Int, pieces: _Pieces, piece: Int) -> Int:
    """Return the first occurrence of a piece from `at` to `last`; -1 if there is none."""
    first_byte = _ONES * (pieces.heads[piece] & np.uint64(255))
    second_byte = _ONES * (pieces.heads[piece] >> np.uint64(8) & np.uint64(255))
    while at <= last:
        if pieces.sizes[piece] > 1 and at + 8 <= text.shape[0]:
            word = word_at(text, at)
            other = (word ^ first_byte) | ((word >> np.uint64(8)) ^ second_byte)
            same = (other - _ONES) & ~other & _HIGHS
            if not same:
                at += 7
                continue
            at += np.int64(trailing_zeros(same)) >> 3  # the lowest bit marks the first occurrence of both bytes
        if at <= last and _is_at(text, at, pieces, piece):
            return at
        at += 1
    return np.int64(-1)


@inlined_kernel
def _is_at(text: Bytes, at: Int, pieces: _Pieces, piece: Int) -> bool:
    """Whether the text has a piece at `at`; it must have room for it."""
    if (_word(text, at) & pieces.masks[piece]) != pieces.heads[piece]:
        return False
    size = pieces.sizes[piece]
    done = 8
    while done < size:
        done = min(done, size - 8)
        if word_at(text, at + done) != word_at(pieces.text, pieces.begins[piece] + done):
            return False
        done += 8
    return True


@inlined_kernel
def _word(text: Bytes, at: Int) -> Word:
    """Eight bytes, zeros where the text has ended."""
    if at + 8 <= text.shape[0]:
        return word_at(text, at)
    word = np.uint64(0)
    for i in range(at, text.shape[0]):
        word |= np.uint64(byte_at(text, i)) << np.uint64(8 * (i - at))
    return word
