"""The pages that a crawler chooses among, such as those that its spider wants: they grow, and take eight bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import numpy as np

from opicflow.schemas.arrays import Ids

_URLS_AT_ONCE = 1 << 16


class GrowingPages:
    """Pages to choose among for `Frontier.next`. Others may be added at any time, none is removed."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        """Begin with these, by their canonical URLs."""
        self._ids = array("Q")
        self._new = list(urls)

    def add(self, url: str) -> None:
        """Add a page by its canonical URL."""
        self._new.append(url)

    def ids(self, of_all: Callable[[list[str]], Ids]) -> Ids:
        """Return the ids of all pages. `of_all` returns those of canonical URLs."""
        for start in range(0, len(self._new), _URLS_AT_ONCE):
            self._ids.frombytes(of_all(self._new[start : start + _URLS_AT_ONCE]).tobytes())
        self._new = []
        return np.array(self._ids, np.uint64)
