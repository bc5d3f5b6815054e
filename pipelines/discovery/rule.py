"""`DiscoveryRule`: the constants of the rule by which unread pages are ordered."""

from __future__ import annotations

from dataclasses import dataclass


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
