"""Sums and digests of transfers between shards."""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Ids, Word, Words
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_U64 = np.uint64
_STEP, _FIRST, _SECOND = _U64(0x9E3779B97F4A7C15), _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)


@lean_kernel
def sum_columns(pages: Ids, amounts: Words, virtual: Word, cut: Word) -> tuple[Word, Word, Word, Word, bool, bool]:
    """The digest of transfers; of their sizes the high and low halves of the sum, and the largest.

    Also whether an amount is negative, and whether page ids rise. Amounts are passed as unsigned, with the same bits.
    """
    salt = _mix(cut + _U64(1))
    digest = _mix(_mix(salt) + virtual) if virtual else _U64(0)
    high = low = most = _U64(0)
    has_negative, is_rising = False, True
    for row in range(pages.shape[0]):
        amount = amounts[row]
        digest += _mix(_mix(pages[row] ^ salt) + amount)
        size = amount
        if amount >> _U64(63) != _U64(0):
            has_negative = True
            size = ~amount + _U64(1)
        high += size >> _U64(32)
        low += size & _U64(0xFFFFFFFF)
        most = max(most, size)
        if row > 0 and pages[row] <= pages[row - 1]:
            is_rising = False
    return digest, high, low, most, has_negative, is_rising


@inlined_kernel
def _mix(value: Word) -> Word:
    """SplitMix64's finaliser: every bit of the input reaches every bit of the output."""
    x = value + _STEP
    x = (x ^ (x >> _U64(30))) * _FIRST
    x = (x ^ (x >> _U64(27))) * _SECOND
    return x ^ (x >> _U64(31))
