"""Change rates of made-up pages: log-normal, from a page in ten years to 24 changes a day."""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Floats

MEDIAN_PER_DAY = 1 / 14
DECADES = 3.0
"""Within so many powers of ten lie the rates of 95 % of the pages."""
SLOWEST_PER_DAY, FASTEST_PER_DAY = 1 / 3650, 24.0

_SIGMA = DECADES * np.log(10) / (2 * 1.96)


def log_normal_rates(random: np.random.Generator, pages: int) -> Floats:
    """Return the changes a day of so many pages, around once in 14 days, within the slowest and the fastest rate."""
    rates: Floats = MEDIAN_PER_DAY * np.exp(_SIGMA * random.standard_normal(pages))
    return np.clip(rates, SLOWEST_PER_DAY, FASTEST_PER_DAY)
