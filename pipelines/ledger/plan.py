"""A plan: how the bandwidth is shared among the pages of a survey, and which of them are ordered in a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger.config import RefreshConfig
from opicflow.pipelines.ledger.survey import BY_BUDGET, BY_PIN, DAY, DISCOVERY, FORBIDDEN, Budget, Survey, caps_of
from opicflow.pipelines.refresh.orders import allowances, chosen
from opicflow.pipelines.refresh.policies import Policies, host_caps
from opicflow.pipelines.refresh.strategies import Allocation, Costs, costs, solve
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints

WHY = ("OTHER", "DISCOVERY", "REFRESH", "REQUESTED")
"""The words of the published schema, by the numbers that columns hold."""

_WHY_DISCOVERY, _WHY_REFRESH, _WHY_REQUESTED = range(1, 4)
_LONGEST_SECONDS = 1e12  # longer intervals count as never, and would not fit into 64 bits
_BEFORE_OTHERS = 1e12


@dataclass(frozen=True)
class Sharing:
    """How a refresh strategy shares the bandwidth: the intervals of pages, and the fetches a day of each kind."""

    plan: Allocation
    intervals: Floats
    """Seconds between two fetches of every page of the survey; inf = it is not fetched again."""
    due: Ints
    """The second of the next fetch of every page; -1 = there is none."""
    discovery_per_day: float
    refresh_per_day: float
    """Retries included."""


def share_bandwidth(survey: Survey, config: RefreshConfig, budget: Budget) -> Sharing:
    """Share the bandwidth. Discovery and retries take their parts first; the refresh strategy shares the rest."""
    cycle_days = config.cycle_hours / 24
    now = survey.second
    unread = float((can_be_ordered(survey, config) & (survey.decided_by == DISCOVERY)).sum())
    discovery = min(budget.discovery_share * budget.per_day, unread / cycle_days)
    refresh = budget.per_day - discovery
    retried = survey.fetched + survey.retry_seconds <= now + cycle_days * DAY
    retries = float((retried & (survey.retry_seconds > 0)).sum()) / cycle_days
    plan = solve(budget.strategy, survey.wanted, max(refresh - retries, 0.0), config.alpha)
    intervals = np.where(survey.retry_seconds > 0, survey.retry_seconds, np.inf)
    with np.errstate(divide="ignore"):
        intervals[survey.sharing] = DAY / plan.frequencies
    finite = np.where(np.isinf(intervals), 0.0, np.minimum(intervals, _LONGEST_SECONDS))
    # A page whose last fetch has no time gets one within its interval, always the same.
    passed = np.mod(now / np.maximum(finite, 1.0) + _phase(survey.pages), 1.0) * finite
    since = np.where(survey.fetched > 0, survey.fetched, now - passed.astype(np.int64))
    due = np.where(np.isinf(intervals), -1, since + np.round(finite).astype(np.int64))
    changed = survey.announced_change & np.isfinite(intervals) & (survey.retry_seconds == 0)
    due[(survey.decided_by == DISCOVERY) | survey.requested | changed] = now
    return Sharing(plan, intervals, due, discovery, refresh)


def cost_of(survey: Survey, shared: Sharing, alpha: float) -> Costs:
    """The cost of the frequencies by every measure, for each page of `survey.sharing` and in total."""
    return costs(survey.wanted, shared.plan.frequencies, alpha)


def can_be_ordered(survey: Survey, config: RefreshConfig) -> Bools:
    """Whether a page has a URL, may be fetched, and has no order that may still be answered."""
    outstanding = (survey.ordered > 0) & (survey.ordered + config.order_timeout_hours * 3600 > survey.second)
    free: Bools = survey.has_url & ~outstanding & (survey.decided_by != FORBIDDEN)
    return free


class Orders(NamedTuple):
    """The pages to fetch, as rows of a survey: grouped by reason, the most urgent of each first."""

    rows: Ints
    why: Bytes
    priority: Floats
    not_before: Ints
    refreshed: int
    discovered: int


def choose_orders(
    survey: Survey,
    shared: Sharing,
    config: RefreshConfig,
    policies: Policies,
    budget: Budget,
    refresh_most: int,
    discovery_most: int,
    passed: int,
) -> Orders:
    """The pages to fetch in the cycle that begins: requested, due (`refresh_most`) and unread (`discovery_most`).

    Requested pages count against `refresh_most`. A host with a limit gets the fetches of the `passed` seconds.
    """
    now, cycle = survey.second, int(config.cycle_hours * 3600)
    is_free = can_be_ordered(survey, config)
    requested = is_free & survey.requested
    age = np.maximum(now + cycle - survey.fetched, 1).astype(np.float64)
    is_refresh = is_free & ~requested & (survey.decided_by != DISCOVERY)
    due, urgency = shared.due, age / np.maximum(shared.intervals, 1.0)
    is_pinned = survey.decided_by == BY_PIN
    if budget.strategy == "greedy":
        due = _soonest(survey, due)
        urgency = survey.waiting.astype(np.float64)
    is_due = is_refresh & (due >= 0) & (due <= now + cycle)
    urgency = np.where(is_pinned, _BEFORE_OTHERS * (1 + urgency), urgency)  # pins come before other pages
    is_new = is_free & ~requested & (survey.decided_by == DISCOVERY)
    worth = survey.waiting.astype(np.float64) if config.discover_by == "cash" else survey.importance

    groups, most, is_capped = _groups(survey, policies, budget, passed, requested | is_due | is_new)
    taken: list[Ints] = []
    left = most
    limits = ((requested, survey.importance, len(survey)), (is_due, urgency, None), (is_new, worth, discovery_most))
    for mask, by, limit in limits:
        if limit is None:
            limit = refresh_most - len(taken[0])
        rows = np.flatnonzero(mask)
        rows = rows[chosen(survey.pages[rows], by[rows], None if groups is None else groups[rows], left, limit)]
        if groups is not None:
            left = left - np.bincount(groups[rows], minlength=len(left))
        taken.append(rows)
    rows = np.concatenate(taken)
    why = np.repeat(np.array([_WHY_REQUESTED, _WHY_REFRESH, _WHY_DISCOVERY], np.uint8), [len(t) for t in taken])
    staleness = survey.weights * (survey.changes_per_day * age / DAY) ** config.alpha
    waiting = survey.waiting.astype(np.float64)
    priority = np.where(why == _WHY_DISCOVERY, worth[rows], staleness[rows])
    if budget.strategy == "greedy":
        priority = np.where(why == _WHY_REFRESH, waiting[rows], priority)
    not_before = np.where(why == _WHY_REFRESH, np.maximum(due[rows], now), now)
    if groups is not None:
        at_capped = np.flatnonzero(is_capped[groups[rows]])
        not_before[at_capped] = _spread(not_before[at_capped], groups[rows[at_capped]], now, cycle)
    return Orders(rows, why, priority, not_before, len(taken[0]) + len(taken[1]), len(taken[2]))


def _soonest(survey: Survey, due: Ints) -> Ints:
    """The second from which the greedy strategy may fetch pages again: after their shortest interval.

    Pinned pages and retries keep their due time.
    """
    shortest = np.zeros(len(survey))
    if survey.wanted.most is not None:
        shortest[survey.sharing] = np.ceil(DAY / survey.wanted.most)
    waits = (survey.decided_by != BY_BUDGET) | (due == survey.second)  # due now: a change was announced
    soonest: Ints = np.where(waits, due, survey.fetched + shortest.astype(np.int64))
    return soonest


def _groups(
    survey: Survey, policies: Policies, budget: Budget, passed: int, candidates: Bools
) -> tuple[Ints | None, Ints, Bools]:
    """The number of every page's host, how many orders each host may get now, and which hosts have a limit.

    The numbers are None if no host has a limit.
    """
    if len(survey.hosts) == 0:
        return None, np.zeros(0, np.int64), np.zeros(0, np.bool_)
    rows = np.flatnonzero(candidates)
    names, examples, numbers = np.unique(survey.hosts[rows], return_index=True, return_inverse=True)
    groups = np.zeros(len(survey), np.int64)
    groups[rows] = numbers
    caps = caps_of(names, host_caps(policies), budget)
    is_capped = np.isfinite(caps)
    parts, before = budget.shard.parts_of_hosts(survey.pages[rows[examples]])
    allowed = allowances(caps, survey.second - passed, survey.second, parts, before)
    return groups, np.where(is_capped, allowed, len(survey)), is_capped


def _spread(not_before: Ints, of: Ints, now: int, cycle: int) -> Ints:
    """Space the orders of each host evenly over the cycle."""
    order = np.lexsort((np.arange(len(of)), not_before, of))
    counts = np.bincount(of)
    rank = np.zeros(len(of), np.int64)
    rank[order] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    step = cycle / np.maximum(counts, 1)
    spread: Ints = np.maximum(not_before, now + (rank * step[of]).astype(np.int64))
    return spread


def _phase(pages: Ids) -> Floats:
    """A number from 0 to 1 for every page, derived from its id."""
    mixed = pages * np.uint64(0x9E3779B97F4A7C15)
    phase: Floats = (mixed >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return phase
