"""Orders of a cycle: back-off of retries, caps of hosts, the choice if not all can be ordered, and the times of orders.

Everything is a pure function of columns, including page ids: the same pages wait the same jittered time in every run,
and hosts' allowances add up exactly over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Int, Ints
from opicflow.schemas.kernel import lean_kernel

NEVER = 65535
"""The packed interval of a page that is never fetched again."""

PER_HOUR_BOUNDS = (1.0, 3600.0)
DELAY_BOUNDS = (1.0, 3600.0)
"""Fetches of a host in an hour, and the seconds between two: a cycle, at least an hour, may have one of every host."""

_TIMED_SECONDS = 60.0  # between two pages of a host that have a time, where nothing limits it
_STEPS_PER_OCTAVE = 2048
_JITTER = 0.25
_MOST_PER_DAY = 1e9  # for a host
_ROUNDING = 1e-6  # of a fetch
_RELATIVE_ROUNDING = 1e-15


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


class NextChecks(NamedTuple):
    """The next check of pages that do not answer, a row each."""

    number: Ints
    """1 for the first check. All that follow a wait of the longest length have the same number."""
    due_after: Ints
    """The seconds from the beginning to when it is due."""


def next_checks(pages: Ids, since: Ints, first_seconds: float, longest_seconds: float) -> NextChecks:
    """Return the first check of each page that is due more than `since` seconds after the beginning.

    Between two checks is the wait of `back_off_seconds`. How often a page was visited between them does not matter.
    """

    def waits(rows: Ints | slice, number: Ints) -> Ints:
        seconds = back_off_seconds(pages[rows], number, first_seconds, longest_seconds)
        return np.round(seconds).astype(np.int64)

    number = np.ones(len(pages), np.int64)
    wait = waits(slice(None), number)
    due = wait.copy()
    while len(passed := np.flatnonzero((due <= since) & (first_seconds * 2.0 ** (number - 1) < longest_seconds))):
        number[passed] += 1
        wait[passed] = waits(passed, number[passed])
        due[passed] += wait[passed]
    due += np.maximum((since - due) // wait + 1, 0) * wait
    return NextChecks(number, due)


def allowances(per_day: Floats, since: int, until: int, parts: Floats, phases: Floats) -> Ints:
    """Return how many orders a shard may give each host between two seconds, of `per_day` for all shards together.

    `parts` is the part of a host's fetches that the shard has, `phases` the sum of the parts of the shards before it:
    so shards do not all order at the same time. Over time allowances add up exactly; over shards to less than one fetch
    for each shard that the host is divided among.
    """
    begin, end = (
        _floor(np.floor(np.minimum(per_day, _MOST_PER_DAY) * (second / 86400)) * parts + phases)
        for second in (since, until)
    )
    allowed: Ints = (end - begin).astype(np.int64)
    return allowed


def gaps(per_hour: Floats, delay_seconds: Floats) -> Ints:
    """Return the whole seconds that two fetches of each host are apart at least; 0 = nothing limits it.

    `per_hour` is infinite, and `delay_seconds` 0, for hosts without such a limit. With these distances no hour has more
    than `per_hour` fetches.
    """
    found: Ints = np.maximum(np.ceil(3600.0 / np.floor(per_hour)), np.ceil(delay_seconds)).astype(np.int64)
    return found


class OrderTimes(NamedTuple):
    """The times that the orders of a cycle may have, a row each."""

    earliest: Ints
    """The second from which the page may be fetched."""
    is_timed: Bools
    """Whether it is meant to be fetched then; others at any time from then on."""
    is_exact: Bools
    """Whether it is meant to be fetched exactly then."""
    host: Ints
    """The number of its host."""


def spread(times: OrderTimes, gap: Ints, now: int, cycle: int) -> Ints:
    """Return when to fetch each page in the cycle that begins now: no host gets a burst, no page is before its time.

    Timed pages of a host follow one another after a minute, or sooner if the cycle would end before the last one. The
    other pages of the host are spaced evenly over the rest of the cycle. Two fetches of a host are always at least its
    `gap` seconds apart. -1: the page does not fit into the cycle. The last fetch of a host is its `gap` before the end,
    so that the next cycle can begin with a fetch of the same host. Equally early pages of a host keep their order.
    """
    earliest, is_timed, is_exact, host = times
    seconds = np.full(len(earliest), -1, np.int64)
    order = np.lexsort((np.arange(len(earliest)), earliest, ~is_timed, host))
    _spread(order, earliest - now, is_timed, is_exact, np.ascontiguousarray(host), gap, cycle, seconds)
    return np.where(seconds >= 0, now + seconds, -1)


@lean_kernel
def _spread(
    order: Ints, earliest: Ints, is_timed: Bools, is_exact: Bools, host: Ints, gap: Ints, cycle: Int, seconds: Ints
) -> None:
    first = 0
    while first < order.shape[0]:
        least = np.float64(gap[host[order[first]]])
        latest = np.float64(cycle) - least
        rest, end = first, first
        while end < order.shape[0] and host[order[end]] == host[order[first]]:
            rest += is_timed[order[end]]
            end += 1
        last = -1.0  # when the page before is fetched
        for i in range(first, rest):
            row = order[i]
            at: float = np.float64(earliest[row])
            if last >= 0.0 and (least > 0.0 or not is_exact[row]):
                step: float = least
                if not is_exact[row]:
                    step = max(step, min(_TIMED_SECONDS, (cycle - last) / np.float64(rest - i + 1)))
                at = max(at, last + step)
            if least == 0.0 or at <= latest:
                seconds[row] = np.int64(at)
                last = max(last, at)
        last = -1.0
        near = first  # the first timed page that may be too near
        for i in range(rest, end):
            row = order[i]
            at = np.float64(earliest[row])
            if last >= 0.0:
                step = max((cycle - last) / np.float64(end - i + 1), least)
                at = max(at, last + step)
            while least > 0.0 and near < rest and (seconds[order[near]] < 0 or at > seconds[order[near]] - least):
                if seconds[order[near]] >= 0:
                    at = max(at, seconds[order[near]] + least)
                near += 1
            if least > 0.0 and at > latest:
                break  # nor do later ones fit
            seconds[row] = np.int64(at)
            last = at
        first = end


def _floor(fetches: Floats) -> Floats:
    """Round down, but keep a whole number that is too small only by rounding errors."""
    whole: Floats = np.floor(fetches + _ROUNDING + fetches * _RELATIVE_ROUNDING)
    return whole


class Limit(NamedTuple):
    """A limit of groups of pages, such as hosts."""

    of: Array
    """The number of the group of each row."""
    left: Ints
    """By group: how many rows it may have."""


def chosen(pages: Ids, urgency: Floats, limits: Sequence[Limit], most: int, then_by: Floats | None = None) -> Ints:
    """Return the rows of the `most` most urgent pages within all limits, the most urgent first.

    Equally urgent pages are ordered by the values of `then_by`, highest first, and by page id.
    """
    keys = (pages, -urgency) if then_by is None else (pages, -then_by, -urgency)
    order = np.lexsort(keys)
    if limits and len(order):
        first_groups = np.cumsum([0, *(len(limit.left) for limit in limits)])[:-1]
        groups = np.stack([limit.of + first for limit, first in zip(limits, first_groups, strict=True)], axis=1)
        fits = np.zeros(len(order), np.bool_)
        _fit(np.ascontiguousarray(groups[order]), np.concatenate([limit.left for limit in limits]), fits)
        order = order[fits]
    return order[: max(most, 0)]


def most_urgent(urgency: Floats, most: int, then_by: Floats | None = None) -> Ints:
    """Return the rows among which the `most` most urgent ones are, without an order; more than those only if equal.

    Equally urgent rows are compared by `then_by`.
    """
    if not 0 < most < len(urgency):
        return np.arange(len(urgency) if most > 0 else 0)
    least = np.partition(urgency, len(urgency) - most)[len(urgency) - most]
    if then_by is None:
        return np.flatnonzero(urgency >= least)
    above, equal = np.flatnonzero(urgency > least), np.flatnonzero(urgency == least)
    equal = equal[most_urgent(then_by[equal], most - len(above))]
    return np.concatenate((above, equal))


@lean_kernel
def _fit(groups: Ints, left: Ints, fits: Bools) -> None:
    """Take rows one after the other, while all of their groups have something left."""
    for i in range(groups.shape[0]):
        fits[i] = True
        for j in range(groups.shape[1]):
            fits[i] &= left[groups[i, j]] > 0
        for j in range(groups.shape[1]):
            left[groups[i, j]] -= np.int64(fits[i])


def rank_within(groups: Ints, count: int) -> Ints:
    """Return for every row how many earlier rows have the same group."""
    ranks = np.zeros(len(groups), np.int64)
    _rank(np.ascontiguousarray(groups), np.zeros(count, np.int64), ranks)
    return ranks


@lean_kernel
def _rank(groups: Ints, seen: Ints, ranks: Ints) -> None:
    for i in range(groups.shape[0]):
        ranks[i] = seen[groups[i]]
        seen[groups[i]] += 1
