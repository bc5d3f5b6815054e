"""Logarithms that are the same on all processors: those of numpy differ in their last bit where there is AVX-512."""

from __future__ import annotations

import math

import numpy as np

from opicflow.schemas.arrays import Array, Floats
from opicflow.schemas.kernel import lean_kernel


def logarithms(values: Floats) -> Floats:
    """Return the natural logarithm of each value; all are above 0."""
    found = np.empty(len(values))
    fill_in_logarithms(np.ascontiguousarray(values, np.float64), found)
    return found


@lean_kernel
def fill_in_logarithms(values: Array, found: Array) -> None:
    """Fill in the logarithms of one column into another."""
    for row in range(values.shape[0]):
        found[row] = math.log(values[row])
