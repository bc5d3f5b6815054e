"""The pages with the highest values, in an order that depends on values and page ids alone."""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Floats, Ids, Ints


def highest(values: Floats, pages: Ids, count: int) -> Ints:
    """Return the rows of the `count` highest values, the highest first; equal values by page id."""
    count = min(count, len(values))
    if count <= 0:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    rows = np.flatnonzero(values >= least)
    best: Ints = rows[np.lexsort((pages[rows], -values[rows]))][:count]
    return best
