"""How evenly pages and visits are spread over shards, and whether it is worth dividing them in another way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MOST_OVER_MEAN = 1.5
"""With more than this the busiest shard should be divided."""
_FEWEST_PAGES = 10_000
"""Below so many pages a shard, no shard is much work."""


class Load(NamedTuple):
    """The load of a shard: its pages, the visits that it has applied, and the bytes of its content."""

    shard: int
    pages: int
    visits: int
    bytes: int


class Busiest(NamedTuple):
    """The shard with the most of something, and how many times the mean of all shards it has."""

    shard: int
    over_mean: float


def busiest(values: Sequence[int]) -> Busiest:
    """Return the busiest shard by a value for each shard."""
    most = max(range(len(values)), key=lambda shard: values[shard])
    return Busiest(most, values[most] * len(values) / max(sum(values), 1))


def spread_in_words(loads: Sequence[Load]) -> str:
    """Return how evenly pages and visits are spread over all shards, in one line."""
    pages, visits = busiest([one.pages for one in loads]), busiest([one.visits for one in loads])
    return (
        f"shard {loads[pages.shard].shard} has the most pages, {pages.over_mean:.2f} times the mean; "
        f"shard {loads[visits.shard].shard} the most visits, {visits.over_mean:.2f} times"
    )


def advice(loads: Sequence[Load]) -> str:
    """Return what to do about shards that have too much; empty if nothing."""
    if len(loads) < 2 or sum(one.pages for one in loads) < _FEWEST_PAGES * len(loads):
        return ""
    shard, over_mean = busiest([one.pages for one in loads])
    if over_mean <= MOST_OVER_MEAN:
        return ""
    return (
        f"dividing is worth it: shard {loads[shard].shard} has {over_mean:.1f} times the mean of pages, and all shards "
        "wait for it: opicflow rebuild --like LOG chooses boundaries that are even"
    )


def table(loads: Iterable[Load]) -> list[str]:
    """Return a table of all shards, as lines."""
    head = f"{'shard':>7} {'pages':>12} {'visits':>12} {'MB':>8}"
    rows = (f"{one.shard:>7} {one.pages:>12,} {one.visits:>12,} {one.bytes / 1e6:>8,.1f}" for one in loads)
    return [head, *rows]
