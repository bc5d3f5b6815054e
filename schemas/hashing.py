"""Bytes of texts within kernels, and their hashes: XXH64, and SipHash-1-3, which has a key.

Anyone can find two texts with the same XXH64. Finding two with the same SipHash is impossible without the key: page ids
are made with it (docs/decisions/page-ids.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash

from opicflow.schemas.arrays import Array, Bytes, Hashes, Int, Word, Words
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, trailing_zeros

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_START_1 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % (1 << 64))
_START_4 = np.uint64((1 << 64) - 0x9E3779B185EBCA87)

ONES, HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
"""The lowest and the highest bit of every byte of a word."""

_SIP_1 = np.uint64(0x736F6D6570736575)
_SIP_2 = np.uint64(0x646F72616E646F6D)
_SIP_3 = np.uint64(0x6C7967656E657261)
_SIP_4 = np.uint64(0x7465646279746573)
_SIP_END = np.uint64(0xFF)


def hash_text(text: bytes | str) -> int:
    """XXH64, seed 0, of the UTF-8 bytes of a text."""
    return xxhash.xxh64_intdigest(text.encode() if isinstance(text, str) else text)


def hash_texts(texts: Iterable[bytes | str]) -> Hashes:
    """XXH64, seed 0, of each text."""
    return np.fromiter(map(hash_text, texts), dtype=np.uint64)


@inlined_kernel
def turned(value: Word, bits: Int) -> Word:
    """Return a uint64 whose highest bits have become its lowest."""
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined_kernel
def byte_at(text: Bytes, at: Int) -> np.uint8:
    """Return one byte. An unsigned index cannot count from the end: that saves a comparison a byte."""
    return np.uint8(text[np.uint64(at)])


@inlined_kernel
def copy_bytes(text: Bytes, first: Int, to: Bytes, at: Int, size: Int) -> None:
    """Copy so many bytes of a text, from `first` on, to another one. LLVM copies many at once."""
    for i in range(at, at + size):
        to[np.uint64(i)] = byte_at(text, i + first - at)


@inlined_kernel
def word_at(text: Bytes, at: Int) -> Word:
    """Return eight bytes, little endian. LLVM makes one load, because unsigned indices cannot count from the end."""
    i = np.uint64(at)
    return (
        np.uint64(text[i])
        | np.uint64(text[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(text[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(text[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(text[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(text[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(text[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(text[i + np.uint64(7)]) << np.uint64(56)
    )


@inlined_kernel
def put_byte(text: Bytes, at: Int, byte: Int | np.uint8) -> Int:
    """Write a byte; return the next offset."""
    text[np.uint64(at)] = np.uint8(byte)
    return at + 1


@inlined_kernel
def past_character(text: Bytes, at: Int, end: Int) -> Int:
    """Return the end of a character that is not ASCII; -1 if it is no UTF-8."""
    c = byte_at(text, at)
    least, most = 0x80, 0xBF
    if 0xC2 <= c <= 0xDF:
        more = 1
    elif 0xE0 <= c <= 0xEF:
        more = 2
        if c == 0xE0:
            least = 0xA0
        elif c == 0xED:
            most = 0x9F
    elif 0xF0 <= c <= 0xF4:
        more = 3
        if c == 0xF0:
            least = 0x90
        elif c == 0xF4:
            most = 0x8F
    else:
        return np.int64(-1)
    if at + more >= end or not least <= byte_at(text, at + 1) <= most:
        return np.int64(-1)
    for i in range(at + 2, at + more + 1):
        if not 0x80 <= byte_at(text, i) <= 0xBF:
            return np.int64(-1)
    return at + more + 1


@inlined_kernel
def is_same(text: Bytes, at: Int, other: Bytes, other_at: Int, size: Int) -> bool:
    """Whether so many bytes of two texts are equal. The bounds are believed."""
    i = np.int64(0)
    while i + 8 <= size:
        if word_at(text, at + i) != word_at(other, other_at + i):
            return False
        i += 8
    while i < size:
        if byte_at(text, at + i) != byte_at(other, other_at + i):
            return False
        i += 1
    return True


@inlined_kernel
def find_byte(text: Bytes, at: Int, end: Int, byte: Int) -> Int:
    """Return where this byte comes next, from `at` on; `end` if it does not."""
    while at + 8 <= end:
        x = word_at(text, at) ^ (np.uint64(byte) * ONES)
        found = (x - ONES) & ~x & HIGHS
        if found:  # its lowest bit is that of the first one
            return at + (np.int64(trailing_zeros(found)) >> 3)
        at += 8
    while at < end and byte_at(text, at) != byte:
        at += 1
    return at


@inlined_kernel
def find_number(numbers: Array, number: Int | Word) -> Int:
    """Return the index of a number among sorted ones, such as hashes; -1 if it is not there."""
    low, high = np.int64(0), np.int64(numbers.shape[0])
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < numbers.shape[0] and numbers[low] == number else np.int64(-1)


@inlined_kernel
def _stirred(state: Word, word: Word) -> Word:
    return turned(state + word * _P2, 31) * _P1


@inlined_kernel
def _merged(digest: Word, state: Word) -> Word:
    return (digest ^ _stirred(np.uint64(0), state)) * _P1 + _P4


@lean_kernel
def hash_bytes(text: Bytes, begin: Int, end: Int) -> Word:
    """XXH64, seed 0, of `text[begin:end]`, as uint64. The bounds are believed."""
    at = begin
    if end - begin >= 32:
        a, b, c, d = _START_1, _P2, np.uint64(0), _START_4
        while at + 32 <= end:
            a = _stirred(a, word_at(text, at))
            b = _stirred(b, word_at(text, at + 8))
            c = _stirred(c, word_at(text, at + 16))
            d = _stirred(d, word_at(text, at + 24))
            at += 32
        digest = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18)
        digest = _merged(_merged(_merged(_merged(digest, a), b), c), d)
    else:
        digest = _P5
    digest += np.uint64(end - begin)
    while at + 8 <= end:
        digest = turned(digest ^ _stirred(np.uint64(0), word_at(text, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        half = (
            np.uint64(byte_at(text, at))
            | np.uint64(byte_at(text, at + 1)) << np.uint64(8)
            | np.uint64(byte_at(text, at + 2)) << np.uint64(16)
            | np.uint64(byte_at(text, at + 3)) << np.uint64(24)
        )
        digest = turned(digest ^ (half * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        digest = turned(digest ^ (np.uint64(byte_at(text, at)) * _P5), 11) * _P1
        at += 1
    digest = (digest ^ (digest >> np.uint64(33))) * _P2
    digest = (digest ^ (digest >> np.uint64(29))) * _P3
    return digest ^ (digest >> np.uint64(32))


@inlined_kernel
def _sip_round(a: Word, b: Word, c: Word, d: Word) -> tuple[Word, Word, Word, Word]:
    a += b
    c += d
    b = turned(b, 13) ^ a
    d = turned(d, 16) ^ c
    a = turned(a, 32)
    c += b
    a += d
    b = turned(b, 17) ^ c
    d = turned(d, 21) ^ a
    return a, b, turned(c, 32), d


@inlined_kernel
def last_bytes(text: Bytes, begin: Int, at: Int, end: Int) -> Word:
    """Return the bytes from `at` to `end`, fewer than eight, as a number; none before `begin` is read."""
    if at == end:
        return np.uint64(0)
    if end - begin >= 8:
        return word_at(text, end - 8) >> np.uint64(8 * (8 - (end - at)))
    word = np.uint64(0)
    for i in range(end - at):
        word |= np.uint64(byte_at(text, at + i)) << np.uint64(8 * i)
    return word


@lean_kernel
def keyed_hash(key: Words, text: Bytes, begin: Int, end: Int) -> Word:
    """SipHash-1-3 of `text[begin:end]` with a key of two 64-bit words, as uint64. The bounds are believed."""
    a, b, c, d = key[0] ^ _SIP_1, key[1] ^ _SIP_2, key[0] ^ _SIP_3, key[1] ^ _SIP_4
    at = begin
    while at + 8 <= end:
        word = word_at(text, at)
        a, b, c, d = _sip_round(a, b, c, d ^ word)
        a ^= word
        at += 8
    word = (np.uint64(end - begin) << np.uint64(56)) | last_bytes(text, begin, at, end)
    a, b, c, d = _sip_round(a, b, c, d ^ word)
    a, b, c, d = _sip_round(a ^ word, b, c ^ _SIP_END, d)
    a, b, c, d = _sip_round(a, b, c, d)
    a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d
