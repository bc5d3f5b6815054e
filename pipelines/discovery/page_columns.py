"""`DiscoveryPages`: what the rule reads of the pages known, as columns in the order of their URLs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints


@dataclass(frozen=True, eq=False)
class DiscoveryPages:
    """Columns of all known pages, in the order of their URLs: the host reversed, then path and query.

    `page` is what a page is called by in later cycles, and what decides between equals. `host` and `domain` are numbers
    from 0 on, the same for the pages of a host and of a registrable domain; the pages of a host follow one another.
    `importance` is that of the graph seen, of unread pages too; without links to a page, it is the rule's floor.
    `explored` marks the pages that were read to explore, and the unread ones that a review chose to explore. `is_tried`
    marks unread pages that were visited and did not answer, or that may not be read: no review chooses them. `found_by`
    is the row of the page in which a page was found first, -1 for a seed and where that page is not known.
    """

    page: Ids
    host: Array
    domain: Array
    importance: Floats
    is_read: Bools
    explored: Bools
    is_tried: Bools
    found_by: Array

    @property
    def can_be_explored(self) -> Bools:
        """Whether a review may choose a page."""
        return ~(self.is_read | self.is_tried)

    def __len__(self) -> int:
        return len(self.page)

    def read_by_worth(self) -> Ints:
        """Return how many pages of each domain were read without having been ordered to explore."""
        domains = int(self.domain.max()) + 1 if len(self) else 0
        return np.bincount(self.domain[self.is_read & ~self.explored], minlength=domains).astype(np.int64, copy=False)
