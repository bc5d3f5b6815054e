r"""Variable-length integers, as Avro and Kafka write them: 7 bits a byte, low bits first, signed ones as zigzag.

Zigzag maps 0, -1, 1, -2, 2 to 0, 1, 2, 3, 4: numbers near zero are short, whatever their sign. There are functions for
Python integers and lists of them, and kernels that other kernels call.

>>> encode_signed(-1), encode_signed(300)
(b'\x01', b'\xd8\x04')
>>> decode_signed(b"\xd8\x04", 0)
(300, 2)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opicflow.schemas.arrays import Bytes, Int, Word
from opicflow.schemas.hashing import byte_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

MOST_BYTES = 10
"""The longest number of 64 bits."""


def encode_signed(number: int) -> bytes:
    """Encode an integer of 64 bits."""
    return _encoded(number << 1 if number >= 0 else ~(number << 1))


def decode_signed(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and its end.

    Raises EOFError if the data end within the number, OverflowError if it has more than `MOST_BYTES`.
    """
    word, end = _decoded(data, at)
    return (word >> 1) ^ -(word & 1), end


def encode_numbers(numbers: Sequence[int]) -> bytes:
    """Encode at most 255 numbers from 0 to 2^64 - 1, behind a byte with their number. `OverflowError` for others."""
    if len(numbers) > 255 or not all(0 <= number < 1 << 64 for number in numbers):
        raise OverflowError("a number of more than 64 bits, or too many numbers")
    return b"".join((bytes((len(numbers),)), *map(_encoded, numbers)))


def decode_numbers(data: bytes, at: int) -> tuple[list[int], int]:
    """Return the list of numbers that begins at `at`, and its end.

    A list has one form: raises EOFError, LookupError or ValueError for other bytes.
    """
    numbers, begin = [], at + 1
    for _ in range(data[at]):
        number, end = _decoded(data, begin)
        if number >> 64 or (end - begin > 1 and data[end - 1] == 0):
            raise ValueError("a number has more bytes than it needs")
        numbers.append(number)
        begin = end
    return numbers, begin


def _encoded(left: int) -> bytes:
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def _decoded(data: bytes, at: int) -> tuple[int, int]:
    word = 0
    for shift in range(0, 7 * MOST_BYTES, 7):
        if at >= len(data):
            raise EOFError("the data end within a number")
        byte = data[at]
        at += 1
        word |= (byte & 127) << shift
        if byte < 128:
            return word, at
    raise OverflowError(f"a number of more than {MOST_BYTES} bytes")


@inlined_kernel
def put_unsigned(out: Bytes, at: Int, number: Int | Word) -> np.int64:
    """Write a number that is not negative, and return its end."""
    left = np.uint64(number)
    while left >= np.uint64(0x80):
        out[at] = np.uint8(left & np.uint64(0x7F)) | np.uint8(0x80)
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return np.int64(at + 1)


@inlined_kernel
def put_signed(out: Bytes, at: Int, number: Int) -> np.int64:
    """Write a number as zigzag, and return its end."""
    return put_unsigned(out, at, _zigzag(number))


@inlined_kernel
def put_bytes(out: Bytes, at: Int, data: Bytes, begin: Int, end: Int) -> np.int64:
    """Write `data[begin:end]`, and return its end. Unsigned indices let LLVM copy many bytes at once."""
    for i in range(end - begin):
        out[np.uint64(at + i)] = data[np.uint64(begin + i)]
    return np.int64(at + end - begin)


@lean_kernel
def signed_bytes(number: Int) -> np.int64:
    """Return the size of a number that `put_signed` writes."""
    left = _zigzag(number)
    size = np.int64(1)
    while left >= np.uint64(0x80):
        left >>= np.uint64(7)
        size += 1
    return size


@inlined_kernel
def read_unsigned(data: Bytes, at: Int, end: Int, most_bytes: Int) -> tuple[Word, np.int64]:
    """Return the number that begins at `at`, and its end.

    The end is `end + 1` if the number is cut off at `end`, or longer than `most_bytes`. Most numbers have one byte:
    the first is read apart from the loop.
    """
    cut_off = np.uint64(0), np.int64(end + 1)
    if at >= end:
        return cut_off
    word, shift = np.uint64(byte_at(data, at)), np.uint64(7)
    at += 1
    if word < np.uint64(0x80):
        return word, np.int64(at)
    word &= np.uint64(0x7F)
    while at < end and shift < np.uint64(7 * most_bytes):
        byte = np.uint64(byte_at(data, at))
        at += 1
        word |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return word, np.int64(at)
        shift += np.uint64(7)
    return cut_off


@inlined_kernel
def read_signed(data: Bytes, at: Int, end: Int) -> tuple[np.int64, np.int64]:
    """Return the zigzag number that begins at `at`, and its end; `end + 1` if it is cut off or too long."""
    word, at = read_unsigned(data, at, end, MOST_BYTES)
    return np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1)), at


@inlined_kernel
def _zigzag(number: Int) -> Word:
    return np.uint64(number << 1) ^ np.uint64(number >> 63)
