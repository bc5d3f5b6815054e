"""Failures of a crawl: pages that are never read, hosts that forbid fetching, servers that fail now and then."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.entries import Outcome
from opicflow.schemas.arrays import Bools, Bytes, Ints


class VisitFailures:
    """Outcomes of visits, from a seed.

    `blocked` is the share of pages that refuse every visit, exact to one page; these pages are random. Visits of other
    pages fail independently with probability `failing`.
    """

    def __init__(self, pages: int, seed: int, blocked: float = 0.0, failing: float = 0.0) -> None:
        for name, share in (("blocked", blocked), ("failing", failing)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share}")
        self._random = np.random.Generator(np.random.PCG64(seed))
        self.blocked: Bools = share_of(pages, blocked, self._random)
        self._failing = failing

    def outcomes(self, numbers: Ints) -> Bytes:
        """Return the `Outcome` of each visit, in this order."""
        found = np.full(len(numbers), Outcome.FETCHED, np.uint8)
        if self._failing > 0.0:
            found[self._random.random(len(numbers)) < self._failing] = Outcome.FAILED
        found[self.blocked[numbers]] = Outcome.BLOCKED
        return found


class UnchangedVisits:
    """Answers "not modified": each visit of a page after its first gets one with probability `share`."""

    def __init__(self, pages: int, share: float, random: np.random.Generator) -> None:
        self._visited = np.zeros(pages, np.bool_)
        self._share, self._random = share, random

    def among(self, numbers: Ints) -> Bools:
        """Return which visits, in this order, are answered "not modified"."""
        again = np.ones(len(numbers), np.bool_)
        again[np.unique(numbers, return_index=True)[1]] = False
        again |= self._visited[numbers]
        self._visited[numbers] = True
        return again & (self._random.random(len(numbers)) < self._share)


def share_of(pages: int, share: float, random: np.random.Generator) -> Bools:
    """Return a random share of the pages, exact to one page."""
    mask = np.zeros(pages, np.bool_)
    mask[random.permutation(pages)[: round(share * pages)]] = True
    return mask
