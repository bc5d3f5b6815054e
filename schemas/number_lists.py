r"""Short lists of whole numbers as bytes: how many there are, the bytes that each takes, and these bytes.

    count (1 byte), a half-byte for each number with its size (the first one is the upper half), the numbers

Numbers have 0 to 8 bytes, little endian, and no byte too many: one list has one form.

>>> encode_numbers([0, 5, 300])
b'\x03\x01 \x05,\x01'
>>> decode_numbers(b"\x03\x01 \x05,\x01...", 0)
([0, 5, 300], 6)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

_MOST_BYTES = 8
_HALVES = {upper << 4 | lower: (upper, lower) for upper in range(_MOST_BYTES + 1) for lower in range(_MOST_BYTES + 1)}


def encode_numbers(numbers: Sequence[int]) -> bytes:
    """The bytes of at most 255 numbers from 0 to 2^64 - 1; `OverflowError` for others."""
    sizes = [(number.bit_length() + 7) >> 3 for number in numbers]
    if len(sizes) > 255 or max(sizes, default=0) > _MOST_BYTES:
        raise OverflowError("a number of more than 8 bytes, or too many numbers")
    halves = bytes.fromhex(bytes(sizes).hex()[1::2] + "0" * (len(sizes) & 1))
    parts = [number.to_bytes(size, "little") for number, size in zip(numbers, sizes, strict=True)]
    return b"".join((bytes((len(sizes),)), halves, *parts))


def decode_numbers(data: bytes, at: int) -> tuple[list[int], int]:
    """The numbers that begin at `at`, and their end. `LookupError` or `ValueError` for other bytes."""
    count = data[at]
    end = at + 1 + ((count + 1) >> 1)
    if end > len(data):
        raise ValueError("a list of numbers is cut off")
    sizes = [size for half in data[at + 1 : end] for size in _HALVES[half]]
    if count & 1 and sizes.pop() != 0:
        raise ValueError("a list of numbers has a size too many")
    ends = list(accumulate(sizes, initial=end))
    numbers = [int.from_bytes(data[ends[i] : ends[i + 1]], "little") for i in range(count)]
    if ends[-1] > len(data) or [(number.bit_length() + 7) >> 3 for number in numbers] != sizes:
        raise ValueError("a number has fewer bytes than its stored length")
    return numbers, ends[-1]
