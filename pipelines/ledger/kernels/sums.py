"""Sums and digests of transfers between shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_U64: Any = np.uint64
_STEP, _FIRST, _SECOND = _U64(0x9E3779B97F4A7C15), _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)


@lean_kernel
def sum_columns(pages: Any, amounts: Any, virtual: Any, cut: Any) -> Any:
    """The digest of transfers, the high and low halves of their sum, the largest, and whether page ids rise."""
    salt = _mix(cut + _U64(1))
    digest = _mix(_mix(salt) + virtual) if virtual else _U64(0)
    high = low = most = _U64(0)
    is_rising = True
    for row in range(pages.shape[0]):
        amount = amounts[row]
        digest += _mix(_mix(pages[row] ^ salt) + amount)
        high += amount >> _U64(32)
        low += amount & _U64(0xFFFFFFFF)
        most = max(most, amount)
        if row > 0 and pages[row] <= pages[row - 1]:
            is_rising = False
    return digest, high, low, most, is_rising


@inlined_kernel
def _mix(value: Any) -> Any:
    """SplitMix64's finaliser: every bit of the input reaches every bit of the output."""
    x = value + _STEP
    x = (x ^ (x >> _U64(30))) * _FIRST
    x = (x ^ (x >> _U64(27))) * _SECOND
    return x ^ (x >> _U64(31))
