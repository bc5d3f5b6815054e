"""Spam mass: which part of a page's importance does not come from pages that are known to be good.

Gyöngyi, Berkhin, Garcia-Molina and Pedersen, Link spam detection based on mass estimation, VLDB 2006.
"""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Floats

GOOD_SHARE = 0.85
"""The share of all pages that is assumed to be good, and that the list of good pages represents."""


def spam_mass(importance: Floats, trust: Floats, good_share: float = GOOD_SHARE) -> Floats:
    """Return 1 - good_share * trust / importance for every page; both ranks sum to 1.

    1: nothing of the importance comes from good pages. It is below 0 near pages of the list: they stand for many.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        mass: Floats = 1.0 - good_share * trust / importance
    return np.where(importance > 0.0, mass, 0.0)
