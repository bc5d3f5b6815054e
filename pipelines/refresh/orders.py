"""Orders of a cycle: back-off of retries, caps of hosts, and the choice of pages if not all can be ordered.

Everything is a pure function of columns, including page ids: the same pages wait the same jittered time in every run,
and hosts' allowances add up exactly over time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Floats, Ids, Ints
from opicflow.schemas.kernel import lean_kernel

NEVER = 65535
"""The packed interval of a page that is never fetched again."""

_STEPS_PER_OCTAVE = 2048
_JITTER = 0.25
_MOST_PER_DAY = 1e9  # for a host
_ROUNDING = 1e-6  # of a fetch


def packed_intervals(seconds: Floats) -> npt.NDArray[np.uint16]:
    """Pack intervals of 1 second to a century into two bytes, to 0.03 %. Infinite ones become `NEVER`."""
    with np.errstate(divide="ignore"):
        steps = np.round(np.log2(seconds) * _STEPS_PER_OCTAVE) + 1
    return np.where(np.isinf(seconds), NEVER, np.clip(steps, 1, NEVER - 1)).astype(np.uint16)


def unpacked_intervals(packed: npt.NDArray[np.uint16]) -> Floats:
    """Return intervals in seconds; 0 where there is none yet."""
    seconds = np.exp2((packed.astype(np.float64) - 1) / _STEPS_PER_OCTAVE)
    out: Floats = np.where(packed == 0, 0.0, np.where(packed == NEVER, np.inf, seconds))
    return out


def back_off_seconds(pages: Ids, failures: Ints, first_seconds: float, longest_seconds: float) -> Floats:
    """Return how long pages wait after so many failures in a row: twice as long after each, with jitter.

    The jitter, a quarter up or down, depends on the page id and the number of failures, so that pages that failed
    together are not retried together.
    """
    doubled = first_seconds * np.exp2(np.clip(failures - 1, 0, 40).astype(np.float64))
    x = (pages ^ (failures.astype(np.uint64) << np.uint64(56))) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    share = (x >> np.uint64(11)).astype(np.float64) / (1 << 53)
    seconds: Floats = np.minimum(doubled, longest_seconds) * (1 - _JITTER + 2 * _JITTER * share)
    return seconds


def allowances(per_day: Floats, since: int, until: int, parts: Floats, phases: Floats) -> Ints:
    """Return how many orders a shard may give each host between two seconds, of `per_day` for all shards together.

    `parts` is the part of a host's fetches that the shard has, `phases` the sum of the parts of the shards before it:
    so shards do not all order at the same time. Over time allowances add up exactly; over shards to less than one fetch
    for each shard that the host is divided among.
    """
    begin, end = (
        np.floor(np.floor(np.minimum(per_day, _MOST_PER_DAY) * (second / 86400)) * parts + phases + _ROUNDING)
        for second in (since, until)
    )
    allowed: Ints = (end - begin).astype(np.int64)
    return allowed


def chosen(
    pages: Ids, urgency: Floats, host: Ints | None, host_most: Ints, most: int, then_by: Floats | None = None
) -> Ints:
    """Return the rows of the `most` most urgent pages within the caps of their hosts, the most urgent first.

    Equally urgent pages are ordered by the values of `then_by`, highest first, and by page id. `host` holds the numbers
    of the rows' hosts, None = no host has a cap.
    """
    rows = np.arange(len(pages) if most > 0 else 0)
    if host is None and 0 < most < len(pages):  # the others need no order
        rows = np.flatnonzero(urgency >= np.partition(urgency, len(urgency) - most)[len(urgency) - most])
    keys = (pages[rows], -urgency[rows]) if then_by is None else (pages[rows], -then_by[rows], -urgency[rows])
    order = rows[np.lexsort(keys)]
    if host is not None and len(order):
        order = order[rank_within(host[order], len(host_most)) < host_most[host[order]]]
    return order[: max(most, 0)]


def rank_within(groups: Ints, count: int) -> Ints:
    """Return for every row how many earlier rows have the same group."""
    ranks = np.zeros(len(groups), np.int64)
    _rank(np.ascontiguousarray(groups), np.zeros(count, np.int64), ranks)
    return ranks


@lean_kernel
def _rank(groups: Any, seen: Any, ranks: Any) -> None:
    for i in range(groups.shape[0]):
        ranks[i] = seen[groups[i]]
        seen[groups[i]] += 1
