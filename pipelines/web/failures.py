"""What goes wrong in a real crawl: pages that are never read, hosts that forbid it, servers that fail now and then."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.entries import Ints, Outcome

Mask = npt.NDArray[np.bool_]


class VisitFailures:
    """How visits of the pages of a web end, from a seed.

    `blocked` is the share of pages that answer every visit with a refusal, to one page; which ones is random. Of the
    visits of all others the share `failing` fails, each by its own luck.
    """

    def __init__(self, pages: int, seed: int, blocked: float = 0.0, failing: float = 0.0) -> None:
        for name, share in (("blocked", blocked), ("failing", failing)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share}")
        self._random = np.random.Generator(np.random.PCG64(seed))
        self.blocked: Mask = share_of(pages, blocked, self._random)
        self._failing = failing

    def outcomes(self, numbers: Ints) -> npt.NDArray[np.uint8]:
        """How visits of these pages end, in this order: one `Outcome` a visit."""
        found = np.full(len(numbers), Outcome.FETCHED, np.uint8)
        if self._failing > 0.0:
            found[self._random.random(len(numbers)) < self._failing] = Outcome.FAILED
        found[self.blocked[numbers]] = Outcome.BLOCKED
        return found


class UnchangedVisits:
    """Of the answers to visits of a page after its first this share is "not modified", each by its own luck."""

    def __init__(self, pages: int, share: float, random: np.random.Generator) -> None:
        self._visited = np.zeros(pages, np.bool_)
        self._share, self._random = share, random

    def among(self, numbers: Ints) -> Mask:
        """Which of these visits, in this order, find that nothing has changed."""
        again = np.ones(len(numbers), np.bool_)
        again[np.unique(numbers, return_index=True)[1]] = False
        again |= self._visited[numbers]
        self._visited[numbers] = True
        return again & (self._random.random(len(numbers)) < self._share)


def share_of(pages: int, share: float, random: np.random.Generator) -> Mask:
    """A random share of the pages, to one page."""
    mask = np.zeros(pages, np.bool_)
    mask[random.permutation(pages)[: round(share * pages)]] = True
    return mask
