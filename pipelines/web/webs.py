"""Webs made from a seed: the same seed gives the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.graph.csr import ORDINARY_LINK_WEIGHT, Graph
from opicflow.schemas.kernel import kernel

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def power_law_web(
    pages: int, seed: int, mean_links: float = 10.0, exponent: float = 2.1, dangling: float = 0.0
) -> Graph:
    """A web whose in-degrees follow a power law (paper 002, section 4.2). All links are ordinary ones.

    What holds:

    - `P(I = n)` is proportional to `n ** -exponent` for every in-degree n above a smallest one, up to all
      pages that could link. At the smallest in-degree there are fewer pages than the law says (or, if it is
      0, as many as needed), so that `mean_links` links a page are what the law gives in the mean. Left alone,
      the law from 1 on would give 4.8 links a page for 100,000 pages, and more the larger the web.
    - In-degrees are taken at evenly spaced points of the law with one random offset, not drawn one by one: of
      any in-degree there are as many pages as the law says, to one page. So webs of different seeds differ in
      who is linked by whom, hardly in shape. What differs is how far the few most linked pages go, and with
      them the number of links: by 4 % for 100,000 pages and 10 links, by a third where 1.5 links are asked.
    - A page's sources are distinct, never itself, and otherwise uniform. A page that links has at least one
      link, so its out-degree is 1 and about a Poisson number more. In-degree and out-degree are independent.
    - `dangling` is the share of pages without links, to one page; which ones is random.

    The most linked page of so heavy a law is linked by a good part of all pages (for 100,000 pages and 10
    links, by a third to two thirds): that is the law, not the construction.

    Refuses what cannot be with a ValueError of one line: fewer than 2 pages that link (unless none does),
    fewer links than pages that need one, or more than there are pairs of pages.
    """
    if not 2 <= pages < 2**31:
        raise ValueError(f"a web needs from 2 to {2**31 - 1} pages, not {pages}")
    if not 0.0 <= dangling <= 1.0:
        raise ValueError(f"dangling must be a share from 0 to 1, not {dangling}")
    if not 0.0 < exponent <= 10.0:
        raise ValueError(f"exponent must be above 0 and at most 10, not {exponent}")
    linking = pages - round(dangling * pages)
    if linking == 0:
        return Graph(np.zeros(pages + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    if linking == 1:
        raise ValueError(f"dangling {dangling} leaves one of {pages} pages that links: it needs another one")
    if not linking / pages <= mean_links <= linking - 1:
        raise ValueError(
            f"mean_links must be from {linking / pages:g} to {linking - 1} "
            f"where {linking} of {pages} pages link, not {mean_links}"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    degrees = _power_law(pages, linking - 1, mean_links, exponent, random.random())
    # The sum may fall short of the law's mean. In-degrees ascend, so the first ones, all 0, make up for it.
    degrees[: max(0, linking - int(degrees.sum()))] = 1
    degrees = random.permutation(degrees)
    linkers = random.permutation(np.arange(pages, dtype=np.int32))[:linking]

    # Every page that links gets one place among all links for sure; `linkers` is in random order already.
    starts = np.concatenate(([0], np.cumsum(degrees)))
    sure = np.sort(random.choice(int(starts[-1]), linking, replace=False, shuffle=False))
    ends = np.searchsorted(starts, sure, side="right") - 1
    firsts = linkers.copy()
    # A link to oneself changes places with a link to another page. There is one, for no page is linked by as
    # many pages as link. One link to oneself is to be expected in a web of any size, so this loop is short.
    for place in np.flatnonzero(firsts == ends):
        if firsts[place] == ends[place]:
            other = int(np.argmax(ends != ends[place]))
            firsts[place], firsts[other] = firsts[other], firsts[place]
    sources = _choose_sources(starts, linkers, sure, firsts, np.uint64(random.bit_generator.random_raw()))
    return Graph(starts, sources, np.full(len(sources), ORDINARY_LINK_WEIGHT, np.int64)).transposed()


def page_ids(pages: int, seed: int) -> UInt64s:
    """Page ids for pages 0 … n-1: distinct for sure, and spread over all 64 bits like the hashes of URLs.

    The ids of a smaller web are the first of a larger one of the same seed, so a web can grow.
    """
    key = np.uint64(np.random.PCG64(seed).random_raw())
    return _mixed(key, pages)


def _power_law(pages: int, most: int, mean: float, exponent: float, offset: float) -> Int64s:
    """In-degrees from 0 to `most`, ascending: the points (i + offset) / pages of `power_law_web`'s law."""
    degrees = np.arange(most + 1, dtype=np.float64)
    law = np.zeros(most + 1)
    law[1:] = degrees[1:] ** -exponent
    # The law from n on has the mass from_on[n] and the mean moments[n] / from_on[n], which rises with n.
    from_on = np.cumsum(law[::-1])[::-1]
    moments = np.cumsum((law * degrees)[::-1])[::-1]
    least = int(np.searchsorted(moments[1:] / from_on[1:], mean, side="right"))
    if least == 0:
        law[0] = moments[1] / mean - from_on[1]
    elif least < most:
        law[least] = max(0.0, moments[least + 1] - mean * from_on[least + 1]) / (mean - least)
    law[:least] = 0.0
    cumulated = np.cumsum(law)
    up_to = np.ceil(cumulated * (pages / cumulated[-1]) - offset).clip(0, pages).astype(np.int64)
    up_to[-1] = pages  # whatever rounding says
    return np.repeat(np.arange(most + 1, dtype=np.int64), np.diff(up_to, prepend=0))


@kernel
def _mix(state: Any) -> Any:
    """The output function of splitmix64: a bijection of 64 bits."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def _mixed(key: Any, count: int) -> UInt64s:
    """The first numbers of splitmix64 from a state on."""
    numbers = np.empty(count, np.uint64)
    for place in range(count):
        key += _GOLDEN
        numbers[place] = _mix(key)
    return numbers


@kernel
def _choose_sources(starts: Int64s, linkers: Int32s, sure: Int64s, firsts: Int32s, state: Any) -> Int32s:
    """A source for every link, grouped by target: `firsts` at the ascending places `sure`, elsewhere uniform ones.

    The sources of a target are distinct and not the target itself. The caller sees to it that there are
    enough, and that `firsts` holds to it.
    """
    pages = starts.shape[0] - 1
    count = np.uint64(linkers.shape[0])
    sources = np.empty(starts[pages], np.int32)
    chosen_for = np.full(pages, -1, np.int32)
    begin = 0
    for target in range(pages):
        chosen_for[target] = target
        end = begin
        while end < sure.shape[0] and sure[end] < starts[target + 1]:
            chosen_for[firsts[end]] = target
            end += 1
        for place in range(starts[target], starts[target + 1]):
            if begin < end and sure[begin] == place:
                sources[place] = firsts[begin]
                begin += 1
                continue
            while True:
                state += _GOLDEN
                source = linkers[((_mix(state) >> _HALF) * count) >> _HALF]
                if chosen_for[source] != target:
                    break
            chosen_for[source] = target
            sources[place] = source
    return sources
