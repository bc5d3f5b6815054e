"""The highest of a column of values, in an order that depends on values and page ids alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def highest(values: npt.NDArray[np.float64], pages: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.int64]:
    """Return the rows of the `count` highest values, the highest first; equal values by page id."""
    count = min(count, len(values))
    if count <= 0:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    rows = np.flatnonzero(values >= least)
    best: npt.NDArray[np.int64] = rows[np.lexsort((pages[rows], -values[rows]))][:count]
    return best
