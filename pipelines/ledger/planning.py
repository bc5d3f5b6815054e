"""When pages are fetched again: a plan for a cycle, made of the ledger's columns, and the orders that follow from it.

`survey` gathers what is known of all pages at a moment; `shared` has a policy share the bandwidth among those that are
to be refreshed; `orders` chooses who is fetched in the cycle. All of it is read from columns. What is remembered of a
plan (shares, published intervals, who was ordered) is for the ledger to write down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger import layout as at
from opicflow.pipelines.ledger.config import RefreshConfig
from opicflow.pipelines.ledger.entries import Bytes, Ids, Ints
from opicflow.pipelines.ledger.estimates import Floats
from opicflow.pipelines.ledger.kernels import urls
from opicflow.pipelines.ledger.kernels.observations import BELIEVED, WAS_GONE
from opicflow.pipelines.ledger.layout import Book, Table
from opicflow.pipelines.refresh.orders import allowances, back_off_seconds, chosen
from opicflow.pipelines.refresh.policies import Directives, Policies, directives, host_caps
from opicflow.pipelines.refresh.rates import change_rates
from opicflow.pipelines.refresh.strategies import Allocation, Costs, Demand, costs, solve
from opicflow.schemas.pages import page_id

DECIDED_BY = ("OTHER", "BUDGET", "PINNED", "FORBIDDEN", "DISCOVERY", "BACK_OFF", "GONE", "LIMIT", "REQUESTED")
KNOWN_FROM = ("OTHER", "DEFAULT", "INTERVALS", "LAST_MODIFIED", "POLICY")
WHY = ("OTHER", "DISCOVERY", "REFRESH", "REQUESTED")
"""The words of the published schemas, by the numbers that columns hold."""

_BUDGET, _PINNED, _FORBIDDEN, _DISCOVERY, _BACK_OFF, _GONE = range(1, 7)
_REQUESTED = DECIDED_BY.index("REQUESTED")
BY_POLICY = KNOWN_FROM.index("POLICY")
_WHY_DISCOVERY, _WHY_REFRESH, _WHY_REQUESTED = range(1, 4)
_DAY = 86400.0
_LONGEST = 1e12  # seconds: whatever is longer is never, and would not fit into 64 bits
_FIRST = 1e12


@dataclass(frozen=True)
class Budget:
    """What there is to share: of the configuration, as policies have changed it, and of this shard."""

    strategy: str
    per_day: float
    discovery_share: float
    host_most: float
    """Fetches a day of a host of which nothing else was said; inf = no cap."""
    shard: int = 0
    shards: int = 1


@dataclass(frozen=True)
class Survey:
    """What is known of every page at a second, a row each in slot order."""

    second: int
    pages: Ids
    slots: Ints
    category: Bytes
    """Its number; 0 = none, or not known."""
    importance: Floats
    waiting: Ints
    weights: Floats
    """Score times the factor that was published."""
    changes_per_day: Floats
    changes_error: Floats
    known_from: Bytes
    decided_by: Bytes
    fetched: Ints
    """The second of the last visit, whatever became of it; 0 = never, or not known."""
    ordered: Ints
    requested: npt.NDArray[np.bool_]
    """Whether people ask for it now and it was not fetched since."""
    told: npt.NDArray[np.bool_]
    """Whether somebody announced that it has changed since it was fetched."""
    retry_seconds: Floats
    """How long pages that do not answer are left alone; 0 for others."""
    wanted: Demand
    """The pages that share the bandwidth for refreshing, at `sharing`."""
    sharing: Ints
    known: npt.NDArray[np.bool_]
    """Whether its URL is known."""
    hosts: Ids
    """A hash of the host of every page, 0 = not known; of no length where no host has a cap."""

    suspended: str
    """Which pins are not honoured, as they do not fit into the bandwidth; empty: all are."""

    def __len__(self) -> int:
        """How many pages there are."""
        return len(self.pages)

    def reasons(self) -> Bytes:
        """What decides when each page is fetched next, as places in `DECIDED_BY`."""
        return np.where(self.requested, _REQUESTED, self.decided_by).astype(np.uint8)


def survey(
    table: Table,
    book: Book,
    config: RefreshConfig,
    policies: Policies,
    budget: Budget,
    live: tuple[Ids, Ints],
    rates: Floats,
    per_rate: float,
    pages_everywhere: int,
    waiting: Ints,
    second: int,
) -> Survey:
    """What is known of the pages `live` (ids and slots). Importance is a page's rate times `per_rate`."""
    pages, slots = live

    def of_page(field: str) -> Any:
        return table.pages[field][slots]

    def of_refresh(field: str) -> Any:
        return table.refresh[field][slots]

    categories = (of_page("class_") >> 1).astype(np.uint8)
    said = directives(policies, book.urls, table.url_start[slots], pages, categories)
    notes, failures, fetched = of_refresh("notes"), of_refresh("failures"), of_page("last_visit_ms") // 1000
    believed = (notes & at.LIES) <= BELIEVED
    found = change_rates(of_refresh("intervals"), of_refresh("dated"), believed, config.estimator)
    is_set = ~np.isnan(said.changes_per_day)
    importance = rates[slots] * per_rate
    weights = importance * pages_everywhere * said.factor

    is_read = (of_page("class_") & 1) == 1
    is_gone = (notes & WAS_GONE) != 0
    decided_by = np.full(len(pages), _BUDGET, np.uint8)
    pins, suspended = _affordable(np.where(is_read & ~is_gone, said.interval_seconds, 0.0), said, budget)
    decided_by[pins > 0] = _PINNED
    decided_by[~is_read] = _DISCOVERY
    decided_by[failures > 0] = _BACK_OFF
    decided_by[is_gone] = _GONE
    decided_by[(said.forbidden != 0) | (said.factor == 0)] = _FORBIDDEN

    retry = np.zeros(len(pages))
    for by, first, longest in (
        (_BACK_OFF, config.retry_hours * 3600, config.longest_retry_days * _DAY),
        (_GONE, config.gone_days * _DAY, np.inf),
    ):
        these = np.flatnonzero(decided_by == by)
        retry[these] = back_off_seconds(pages[these], failures[these].astype(np.int64), first, longest)

    changes = np.where(is_set, said.changes_per_day, found.rates)
    sharing = np.flatnonzero((decided_by == _BUDGET) | (decided_by == _PINNED))
    shortest = np.where(said.shortest_seconds > 0, said.shortest_seconds, config.shortest_interval_seconds)[sharing]
    shortest = np.maximum(shortest, config.cycle_hours * 3600)  # once a cycle is as often as a page is ordered
    longest_ = np.where(said.longest_seconds > 0, said.longest_seconds, config.longest_interval_days * _DAY)[sharing]
    pins = pins[sharing]
    caps = host_caps(policies)
    hosts, host_numbers, host_most = np.zeros(0, np.uint64), None, None
    if caps or np.isfinite(budget.host_most):
        hosts = np.zeros(len(pages), np.uint64)
        urls.hash_hosts(table, book, slots, hosts)
        names, host_numbers = np.unique(hosts[sharing], return_inverse=True)
        host_numbers = host_numbers.astype(np.int64)
        host_most = _caps_of(names, caps, budget) / budget.shards
    wanted = Demand(
        weights=np.minimum(weights[sharing], 1e12),
        changes_per_day=changes[sharing],
        pinned=np.where(pins > 0, _DAY / np.where(pins > 0, pins, 1.0), 0.0) if pins.any() else None,
        least=_DAY / np.maximum(longest_, shortest),
        most=_DAY / shortest,
        host=host_numbers,
        host_most=host_most,
    )
    return Survey(
        second=second,
        pages=pages,
        slots=slots,
        category=categories,
        importance=importance,
        waiting=waiting[slots],
        weights=weights,
        changes_per_day=changes,
        changes_error=np.where(is_set, 0.0, found.errors),
        known_from=np.where(is_set, BY_POLICY, found.known_from).astype(np.uint8),
        decided_by=decided_by,
        fetched=fetched,
        ordered=of_refresh("ordered").astype(np.int64),
        requested=(said.requested_second >= 0)
        & (fetched < np.maximum(said.requested_second, 1))
        & (decided_by != _FORBIDDEN),
        told=(notes & at.TOLD) != 0,
        retry_seconds=retry,
        wanted=wanted,
        sharing=sharing,
        known=table.url_start[slots] != 0,
        hosts=hosts,
        suspended=suspended,
    )


def _affordable(intervals: Floats, said: Directives, budget: Budget) -> tuple[Floats, str]:
    """The pins that fit into the bandwidth for refreshing, first come first served; and of the others, in words."""
    pinned = np.flatnonzero(intervals > 0)
    numbers, of = np.unique(said.number[pinned], return_inverse=True)
    takes = np.bincount(of, _DAY / intervals[pinned], len(numbers))
    most = budget.per_day * (1 - budget.discovery_share)
    taken, too_many = 0.0, []
    for place, takes_per_day in enumerate(takes.tolist()):
        if taken + takes_per_day <= most * (1 + 1e-9):
            taken += takes_per_day
        else:
            too_many.append(place)
    if not too_many:
        return intervals, ""
    intervals = intervals.copy()
    intervals[pinned[np.isin(of, too_many)]] = 0.0
    listed = ", ".join(f"{int(numbers[place])} ({takes[place]:.6g} a day)" for place in too_many[:5])
    return intervals, f"pins beyond the {most:.6g} fetches a day for refreshing are not honoured: policies {listed}"


@dataclass(frozen=True)
class Shared:
    """How a policy shares a bandwidth: what each page gets, and what is left for whom."""

    plan: Allocation
    intervals: Floats
    """Seconds between two fetches of every page of the survey; inf = it is not to be fetched again."""
    due: Ints
    """The second when every page is to be fetched again; -1 = not at all."""
    discovery_per_day: float
    refresh_per_day: float
    """With retries."""


def shared(survey: Survey, config: RefreshConfig, budget: Budget) -> Shared:
    """Have the policy share the bandwidth: discovery takes its part while there are unread pages, retries come off."""
    cycle_days = config.cycle_hours / 24
    now = survey.second
    unread = float((can_be_ordered(survey, config) & (survey.decided_by == _DISCOVERY)).sum())
    discovery = min(budget.discovery_share * budget.per_day, unread / cycle_days)
    refresh = budget.per_day - discovery
    retried = survey.fetched + survey.retry_seconds <= now + cycle_days * _DAY
    retries = float((retried & (survey.retry_seconds > 0)).sum()) / cycle_days
    plan = solve(budget.strategy, survey.wanted, max(refresh - retries, 0.0), config.alpha)
    intervals = np.where(survey.retry_seconds > 0, survey.retry_seconds, np.inf)
    with np.errstate(divide="ignore"):
        intervals[survey.sharing] = _DAY / plan.frequencies
    finite = np.where(np.isinf(intervals), 0.0, np.minimum(intervals, _LONGEST))
    # Of a page that was read at a time that nobody knows, the time may be any within its interval: always the same.
    passed = np.mod(now / np.maximum(finite, 1.0) + _phase(survey.pages), 1.0) * finite
    since = np.where(survey.fetched > 0, survey.fetched, now - passed.astype(np.int64))
    due = np.where(np.isinf(intervals), -1, since + np.round(finite).astype(np.int64))
    told = survey.told & np.isfinite(intervals) & (survey.retry_seconds == 0)
    due[(survey.decided_by == _DISCOVERY) | survey.requested | told] = now
    return Shared(plan, intervals, due, discovery, refresh)


def cost_of(survey: Survey, shared: Shared, alpha: float) -> Costs:
    """What the frequencies cost by every measure, per page of `survey.sharing` and in all."""
    return costs(survey.wanted, shared.plan.frequencies, alpha)


def can_be_ordered(survey: Survey, config: RefreshConfig) -> npt.NDArray[np.bool_]:
    """Which pages have a URL, may be fetched, and were not ordered so lately that the answer may still come."""
    outstanding = (survey.ordered > 0) & (survey.ordered + config.order_timeout_hours * 3600 > survey.second)
    free: npt.NDArray[np.bool_] = survey.known & ~outstanding & (survey.decided_by != _FORBIDDEN)
    return free


class Orders(NamedTuple):
    """Who is to be fetched: rows of a survey, the most urgent first of each reason."""

    rows: Ints
    why: Bytes
    priority: Floats
    not_before: Ints
    refreshed: int
    discovered: int


def orders(
    survey: Survey,
    shared: Shared,
    config: RefreshConfig,
    policies: Policies,
    budget: Budget,
    refresh_most: int,
    discovery_most: int,
    passed: int,
) -> Orders:
    """Who is fetched in the cycle that begins: so many of those that are due, and so many that were never read.

    Hosts with a cap get what it allows for the seconds that have passed.
    """
    now, cycle = survey.second, int(config.cycle_hours * 3600)
    is_free = can_be_ordered(survey, config)
    requested = is_free & survey.requested
    age = np.maximum(now + cycle - survey.fetched, 1).astype(np.float64)
    is_refresh = is_free & ~requested & (survey.decided_by != _DISCOVERY)
    due, urgency = shared.due, age / np.maximum(shared.intervals, 1.0)
    is_pinned = survey.decided_by == _PINNED
    if budget.strategy == "greedy":
        due = _soonest(survey, due)
        urgency = survey.waiting.astype(np.float64)
    is_due = is_refresh & (due >= 0) & (due <= now + cycle)
    urgency = np.where(is_pinned, _FIRST * (1 + urgency), urgency)  # their part comes off the top
    is_new = is_free & ~requested & (survey.decided_by == _DISCOVERY)
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
    staleness = survey.weights * (survey.changes_per_day * age / _DAY) ** config.alpha
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
    """When pages may be fetched again that wait for nothing but their shortest interval; pins and retries wait."""
    shortest = np.zeros(len(survey))
    if survey.wanted.most is not None:
        shortest[survey.sharing] = np.ceil(_DAY / survey.wanted.most)
    waits = (survey.decided_by != _BUDGET) | (due == survey.second)  # due now: somebody said that it has changed
    soonest: Ints = np.where(waits, due, survey.fetched + shortest.astype(np.int64))
    return soonest


def _groups(
    survey: Survey, policies: Policies, budget: Budget, passed: int, candidates: npt.NDArray[np.bool_]
) -> tuple[Ints | None, Ints, npt.NDArray[np.bool_]]:
    """The number of every page's host, how many orders each host may get now, and which hosts have a cap.

    No numbers (None) if no host has any.
    """
    if len(survey.hosts) == 0:
        return None, np.zeros(0, np.int64), np.zeros(0, np.bool_)
    rows = np.flatnonzero(candidates)
    names, numbers = np.unique(survey.hosts[rows], return_inverse=True)
    groups = np.zeros(len(survey), np.int64)
    groups[rows] = numbers
    caps = _caps_of(names, host_caps(policies), budget)
    is_capped = np.isfinite(caps)
    allowed = allowances(caps, survey.second - passed, survey.second, budget.shard, budget.shards)
    return groups, np.where(is_capped, allowed, len(survey)), is_capped


def _caps_of(names: Ids, caps: dict[bytes, float], budget: Budget) -> Floats:
    """How many fetches a day each of these hosts may get, from all shards together; one that is not known may all.

    The hashes of the hosts are sorted, and each is there once.
    """
    most = np.where(names == 0, np.inf, budget.host_most)
    if len(caps) and len(names):
        hashes = np.array([page_id(host) for host in caps], np.uint64)
        places = np.minimum(np.searchsorted(names, hashes), len(names) - 1)
        here = names[places] == hashes
        most[places[here]] = np.array(list(caps.values()))[here]
    return most


def _spread(not_before: Ints, of: Ints, now: int, cycle: int) -> Ints:
    """Orders of a host with a cap do not begin all at once, but one after the other over the cycle."""
    order = np.lexsort((np.arange(len(of)), not_before, of))
    counts = np.bincount(of)
    rank = np.zeros(len(of), np.int64)
    rank[order] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    step = cycle / np.maximum(counts, 1)
    spread: Ints = np.maximum(not_before, now + (rank * step[of]).astype(np.int64))
    return spread


def _phase(pages: Ids) -> Floats:
    """A number from 0 to 1 for every page, always the same."""
    mixed = pages * np.uint64(0x9E3779B97F4A7C15)
    phase: Floats = (mixed >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return phase
