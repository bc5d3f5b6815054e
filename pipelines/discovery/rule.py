"""`DiscoveryRule`: the constants by which unread pages are ordered; `DiscoveryPages`: the columns that it reads."""

from __future__ import annotations

from dataclasses import dataclass

from opicflow.schemas.arrays import Array, Bools, Floats, Ids


@dataclass(frozen=True)
class DiscoveryRule:
    """The constants of the rule; docs/results/discovery.md has the other values that were tried.

    - `floor`: the importance of a page without links to it, in the units of the column of importance.
    - `reach`: so many known pages on either side, of the same host, are the siblings of a page.
    - `bonus`: what exploring adds to the worth of a page, a logarithm, where no other page of its host was read.
    - `first_share`, `least_share`, `most_share`: the share of orders that explore, at first and at any time.
    - `wait_reviews`: pages that were read are judged so many reviews later.
    - `step`, `most_step`: the share is multiplied by (credit of explored pages / credit of others) ** `step`, and at
      most by `most_step`, or divided by it.
    - `floors_found`: of a page's credit, at most so many floors for the pages found through it.
    - `explored_at_once`: the share of a review's pages to explore that one domain may have; `ordered_at_once`: the
      share of a cycle's other orders, unless fewer pages are left.
    - `explored_per_entry`, `explored_per_read`: how often a domain may be explored for each entry, that is a page which
      was found first in another domain that vouches; and for each of its pages that was read by worth.
    - `reads_to_vouch`: a domain vouches for others once so many of its own pages were read by worth.
    - `forget`: the part of the evidence on siblings that is forgotten at every review; `doubt`: siblings are trusted as
      if so many more pages had been read whose siblings were no sign of their worth.
    """

    floor: float = 0.15
    reach: int = 5
    bonus: float = 2.0
    first_share: float = 0.2
    least_share: float = 0.05
    most_share: float = 0.7
    wait_reviews: int = 4
    step: float = 0.3
    most_step: float = 2.0
    floors_found: int = 10
    explored_at_once: float = 0.1
    ordered_at_once: float = 0.2
    explored_per_entry: float = 5.0
    explored_per_read: float = 2.0
    reads_to_vouch: int = 8
    forget: float = 0.1
    doubt: float = 50.0

    def __post_init__(self) -> None:
        """Refuse what cannot be, in one line."""
        for name in ("floor", "bonus", "step", "most_step", "explored_per_entry", "explored_per_read", "doubt"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("reach", "wait_reviews", "floors_found", "reads_to_vouch"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        for name in ("explored_at_once", "ordered_at_once", "forget"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}")
        if not 0.0 <= self.least_share <= self.first_share <= self.most_share <= 1.0:
            raise ValueError(
                "least_share, first_share and most_share must ascend from 0 to 1, not "
                f"{self.least_share}, {self.first_share}, {self.most_share}"
            )


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
