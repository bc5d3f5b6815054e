"""Keys that Flink spreads evenly over its slots.

Flink hashes the bytes of a key to one of 128 groups, and gives each slot a range of groups. Few keys, such as the
shards of a stream, are spread unevenly by that: of 16 shards on 8 slots, some slot has four. So the keys are chosen:
the number of a shard, with other high bits, so that it falls into the group that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

KEY_GROUPS = 128
"""Flink's `max_parallelism`: the groups into which it divides keys, and so the most slots of a stage."""
_NUMBER_BITS = 20
_GROUP_BITS = KEY_GROUPS.bit_length() - 1
_WORD = (1 << 32) - 1


@dataclass(frozen=True)
class SpreadKeys:
    """The keys of the numbers from 0 on. With `count` there are so many, and each slot gets equally many."""

    count: int | None = None

    def __call__(self, number: int) -> int:
        """Return the key of a number."""
        return _key_in_group(number, self.group(number))

    def group(self, number: int) -> int:
        """Return the group of a number: the middle of its part; numbers without end halve the gaps between others."""
        if self.count is None or not number < self.count <= KEY_GROUPS:
            return sum((number >> bit & 1) << (_GROUP_BITS - 1 - bit) for bit in range(_GROUP_BITS))
        return (2 * number + 1) * KEY_GROUPS // (2 * self.count)


def number_of(key: int) -> int:
    """Return the number that a key was made of."""
    return key & ((1 << _NUMBER_BITS) - 1)


def key_group(key: int) -> int:
    """Return the group of a key, as Flink 1.19 with Beam's runner 2.62 computes it."""
    code = 1
    for byte in reversed(list(_varint(key))):  # java.nio.ByteBuffer.hashCode
        code = (31 * code + (byte - 256 if byte > 127 else byte)) & _WORD
    code = _rotated(code * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD  # org.apache.flink.util.MathUtils.murmurHash
    code = ((_rotated(code, 13) * 5 + 0xE6546B64) & _WORD) ^ 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _WORD
    code = (code ^ code >> 13) * 0xC2B2AE35 & _WORD
    code ^= code >> 16
    return (code if code < 1 << 31 else (1 << 32) - code) % (1 << 31) % KEY_GROUPS


@cache
def _key_in_group(number: int, group: int) -> int:
    key = number
    while key_group(key) != group:
        key += 1 << _NUMBER_BITS
    return key


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _WORD


def _varint(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value
