"""Keys that Flink spreads evenly over its slots.

Flink hashes the bytes of a key to one of 128 groups, and gives each slot a range of groups. Few keys, such as the
shards of a stream, are spread unevenly by that: of 16 shards on 8 slots, some slot has four. So the keys are chosen:
the number of a shard, with other high bits, so that it falls into the group that is wanted. Beam's runners hash keys
in two ways, the older ones up to 2.62, newer ones from 2.70 on; a key falls into the same group by both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

KEY_GROUPS = 128
"""Flink's `max_parallelism`: the groups into which it divides keys, and so the most slots of a stage."""
_NUMBER_BITS = 20
_GROUP_BITS = KEY_GROUPS.bit_length() - 1
_KEY_BYTES = 8
_CANDIDATES = 1 << 14
"""The keys of a number that are tried at once. One in 128 * 128 falls into the group that is wanted."""
Words = npt.NDArray[np.uint64]


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


def key_groups(keys: Words) -> tuple[Words, Words]:
    """Return the groups of keys below 2^56 by the runners of Beam up to 2.62, and by those from 2.70 on."""
    length, text = _varints(keys)
    return _group_of(_hash_of_buffer(length, text)), _group_of(_hash_of_flink_key(length, text))


@cache
def _key_in_group(number: int, group: int) -> int:
    first = 0
    while True:
        keys = np.uint64(number) + (np.arange(first, first + _CANDIDATES, dtype=np.uint64) << np.uint64(_NUMBER_BITS))
        for hash_of in (_hash_of_buffer, _hash_of_flink_key):
            keys = keys[_group_of(hash_of(*_varints(keys))) == group]
        if len(keys):
            return int(keys[0])
        first += _CANDIDATES


def _varints(keys: Words) -> tuple[Words, Words]:
    """Return how many bytes Beam's VarIntCoder makes of each key, and these bytes, the first one lowest."""
    length, text = np.ones_like(keys), np.zeros_like(keys)
    for place in range(_KEY_BYTES):
        rest = keys >> np.uint64(7 * (place + 1))
        byte = (keys >> np.uint64(7 * place) & np.uint64(127)) | np.where(rest > 0, np.uint64(128), np.uint64(0))
        text |= byte << np.uint64(8 * place)
        length += rest > 0
    return length, text


def _hash_of_buffer(length: Words, text: Words) -> Words:
    """Compute `java.nio.ByteBuffer.hashCode`, in its low 32 bits."""
    code = np.ones_like(text)
    for place in reversed(range(_KEY_BYTES)):
        byte = text >> np.uint64(8 * place) & np.uint64(255)
        signed = byte - ((byte >> np.uint64(7)) << np.uint64(8))  # modulo 2^64
        code = np.where(place < length, np.uint64(31) * code + signed, code)
    return code


def _hash_of_flink_key(length: Words, text: Words) -> Words:
    """Compute `FlinkKey.hashCode` of Beam's runner, in its low 32 bits: murmur3_128 of at most eight bytes."""
    mixed = _rotated(text * np.uint64(0x87C37B91114253D5), 31, 64) * np.uint64(0x4CF5AD432745937F)
    low, high = (mixed ^ length) + length, (mixed ^ length) + length + length
    return _scattered(low) + _scattered(high)


def _scattered(code: Words) -> Words:
    code = (code ^ code >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
    code = (code ^ code >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return code ^ code >> np.uint64(33)


def _group_of(code: Words) -> Words:
    """Compute `KeyGroupRangeAssignment.computeKeyGroupForKeyHash`: `MathUtils.murmurHash` of the low 32 bits."""
    word = np.uint64((1 << 32) - 1)
    code = _rotated((code & word) * np.uint64(0xCC9E2D51) & word, 15, 32) * np.uint64(0x1B873593) & word
    code = (_rotated(code, 13, 32) * np.uint64(5) + np.uint64(0xE6546B64) & word) ^ np.uint64(4)
    code = (code ^ code >> np.uint64(16)) * np.uint64(0x85EBCA6B) & word
    code = (code ^ code >> np.uint64(13)) * np.uint64(0xC2B2AE35) & word
    code ^= code >> np.uint64(16)
    size = np.where(code >> np.uint64(31), np.uint64(1 << 32) - code, code)
    return size % np.uint64(1 << 31) % np.uint64(KEY_GROUPS)


def _rotated(code: Words, by: int, bits: int) -> Words:
    return (code << np.uint64(by) | code >> np.uint64(bits - by)) & np.uint64((1 << bits) - 1)
