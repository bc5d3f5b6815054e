"""The orders of a cycle: which pages of a survey are ordered, within the bandwidth and the limits of hosts and domains.

Pages are taken in passes, until the cycle has as many as it may order:

1. requested pages, the most important first;
2. pages that are due in the cycle, as many as refreshing may have: pins, then those that are very late, then the ones
   whose old copies cost most;
3. unread pages, as many as discovery may have: first those to explore, of which there are as many as was learnt to pay,
   then those that are worth most;
4. if that was not enough: the other pages that are due; pages of which at least half of the interval has passed; the
   other unread pages; any page that may be fetched again, the nearest to its due time first; and at last the unread
   pages of traps, and twins, beyond the few that a cycle may have.

So a cycle orders as many pages as it may, or all that limits allow. The orders of a host are spread over the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.discovery.limits import best
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.plan.schedule import Schedule, can_be_ordered, last_fetches
from opicflow.pipelines.ledger.plan.survey import (
    BY_BUDGET,
    BY_PIN,
    DAY,
    DISCOVERY,
    Budget,
    HostLimits,
    HostsOf,
    Survey,
    Terms,
)
from opicflow.pipelines.ledger.plan.unread_pages import Worth
from opicflow.pipelines.refresh.orders import Limit, OrderTimes, allowances, chosen, most_urgent, spread
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Ints, highest

WHY = ("OTHER", "DISCOVERY", "REFRESH", "REQUESTED")
"""The words of the published schema, by the numbers that columns hold."""
BY = ("", "worth", "exploring")
"""The names of the reasons for which unread pages are chosen; empty for other pages, and without learnt discovery."""

EXPLORING = BY.index("exploring")
_DISCOVERY, _REFRESH, _REQUESTED = range(1, 4)
_PINNED = 1e6  # what a pin adds to the priority of a page, in average pages: pins come before others
_VERY_LATE = 2.0  # intervals since the last fetch
_PAGES_AT_ONCE = 1 << 16
_SOON = 0.5  # intervals since the last fetch
_MANY = 1 << 62


class Orders(NamedTuple):
    """The pages to fetch, as rows of a survey: grouped by reason, the highest priority of each first."""

    rows: Ints
    why: Bytes
    by: Bytes
    """Which of `BY` unread pages were chosen by."""
    priority: Floats
    not_before: Ints
    refreshed: int
    """Requested pages included."""
    discovered: int


class Most(NamedTuple):
    """The most pages that a cycle may order: in all, and for discovery, before the rest is divided.

    A host or a domain with a limit gets the fetches of the time from second `since` to `until`.
    """

    all: int
    discovery: int
    since: int
    until: int


def choose_orders(
    survey: Survey,
    schedule: Schedule,
    terms: Terms,
    most: Most,
    hosts_of: HostsOf,
) -> Orders:
    """Choose the pages to fetch in the cycle that begins.

    `hosts_of` returns a hash of the host of the page at each slot.
    """
    now, cycle = survey.second, terms.cycle_seconds
    is_free = can_be_ordered(survey, terms.config)
    requested = is_free & survey.requested
    is_new = is_free & ~requested & (survey.decided_by == DISCOVERY)
    is_refresh = is_free & ~requested & ~is_new & (schedule.due >= 0)
    columns = _Columns(survey, schedule, terms, now + cycle)
    is_due, is_early, is_soon = columns.times(is_refresh)
    priority = columns.priority()
    del is_free, is_refresh  # there may be very many pages

    choice = _Choice(survey, terms.budget, most, cycle, is_new)
    choice.take(_REQUESTED, requested, priority, _MANY)
    refresh_most = most.all - most.discovery - choice.count
    choice.take(_REFRESH, is_due, columns.tier, refresh_most, priority, keeps_discovery=True)
    is_exploring = np.zeros(len(survey), np.bool_)
    if survey.worth is not None:
        to_explore, values = _to_explore(survey, survey.worth, is_new, most.discovery)
        is_exploring[to_explore], priority[to_explore] = True, values
        choice.take(_DISCOVERY, is_exploring, priority, most.discovery)
        is_first = _within_domains(survey, survey.worth, is_new & ~is_exploring, priority, most.discovery)
        choice.take(_DISCOVERY, is_first, priority, most.discovery - choice.discovered)
    choice.take(_DISCOVERY, is_new, priority, most.discovery - choice.discovered)
    for why, which, by in (
        (_REFRESH, is_due, columns.tier),
        (_REFRESH, is_soon, columns.nearness),
        (_DISCOVERY, is_new, priority),
        (_REFRESH, is_early, columns.nearness),
    ):
        choice.take(why, which, by, most.all - choice.count, priority)
    choice.end_limits_of_traps()
    choice.take(_DISCOVERY, is_new, priority, most.all - choice.count, priority)
    rows, reasons = choice.rows(priority)
    free = np.full(len(rows), now) if survey.waits_until is None else np.maximum(survey.waits_until[rows], now)
    from_due = np.where(is_early[rows], columns.begins(rows), columns.due(rows))
    earliest = np.where(reasons == _REFRESH, np.maximum(from_due, free), free)
    if survey.hosts is not None:
        of, gap = survey.hosts.of[rows].astype(np.int64), survey.hosts.gaps
    else:
        names, of = np.unique(hosts_of(survey.slots[rows]), return_inverse=True)
        gap = np.zeros(len(names), np.int64)
    is_exact = (survey.decided_by[rows] == BY_PIN) & (reasons == _REFRESH)
    is_timed = (earliest > free) | (reasons == _REQUESTED) | is_exact
    not_before = spread(OrderTimes(earliest, is_timed, is_exact, of), gap, now, cycle)
    fits = not_before >= 0
    rows, reasons, not_before = rows[fits], reasons[fits], not_before[fits]
    discovered = int((reasons == _DISCOVERY).sum())
    chosen_by = np.zeros(len(rows), np.uint8)
    if survey.worth is not None:
        chosen_by = np.where(is_exploring[rows], EXPLORING, BY.index("worth")).astype(np.uint8)
        chosen_by[reasons != _DISCOVERY] = 0
    return Orders(rows, reasons, chosen_by, priority[rows], not_before, len(rows) - discovered, discovered)


def _to_explore(survey: Survey, worth: Worth, is_new: Bools, most: int) -> tuple[Ints, Floats]:
    """Return the unread pages to explore, and the worth of exploring them, in units of importance.

    Of the marked ones the most worth, as large a part of `most` as was learnt.
    """
    marked = np.flatnonzero(is_new & worth.marked)
    values = survey.valued[marked] * survey.factor[marked] * np.exp(worth.exploring(marked))
    best_first = highest(values, survey.pages[marked], round(worth.share * most))
    return marked[best_first], values[best_first]


def _within_domains(survey: Survey, worth: Worth, is_new: Bools, priority: Floats, most: int) -> Bools:
    """The `most` unread pages with the highest priority, and of one domain no more than its share."""
    limits = np.full(int(worth.domain.max(initial=-1)) + 1, max(1, int(worth.at_once * most)))
    is_first = np.zeros(len(survey), np.bool_)
    is_first[best(priority, survey.pages, worth.domain, limits, most, is_new)] = True
    return is_first


class _Columns:
    """The columns that a choice reads, for any rows of a survey: few, as there may be very many pages."""

    def __init__(self, survey: Survey, schedule: Schedule, terms: Terms, until: int) -> None:
        self._survey, self._schedule, self._config = survey, schedule, terms.config
        self._is_greedy = terms.budget.strategy == "greedy"
        self._until = until

    def times(self, is_refresh: Bools) -> tuple[Bools, Bools, Bools]:
        """Return which pages are due in the cycle, which others may be fetched in it, and which of the others soon."""
        is_due, is_early, is_soon = (np.zeros(len(self._survey), np.bool_) for _ in range(3))
        for rows in _parts(np.flatnonzero(is_refresh)):
            begins, nearness = self.begins(rows), self.nearness(rows)
            due = begins if self._is_greedy else self.due(rows)
            is_due[rows] = due <= self._until
            has_time = self._survey.fetched[rows] > 0  # without one it may have been fetched yesterday
            is_early[rows] = ~is_due[rows] & has_time & (begins <= self._until)
            is_soon[rows] = is_early[rows] & (nearness >= _SOON)
        return is_due, is_early, is_soon

    def begins(self, rows: Ints) -> Ints:
        """The second from which each page may be fetched again.

        For pages that share the bandwidth the shortest interval after the last fetch, or now if a change was announced.
        Others wait until they are due.
        """
        survey, schedule = self._survey, self._schedule
        earliest = schedule.due[rows]
        sharing = np.flatnonzero(survey.decided_by[rows] == BY_BUDGET)
        of = rows[sharing]
        shortest = np.zeros(len(of), np.int64)
        if survey.wanted.most is not None:
            shortest = np.ceil(DAY / survey.wanted.most[np.searchsorted(survey.sharing, of)]).astype(np.int64)
        earliest[sharing] = np.minimum(earliest[sharing], self._since(of) + shortest)
        return earliest if survey.waits_until is None else np.maximum(earliest, survey.waits_until[rows])

    def due(self, rows: Ints) -> Ints:
        """The second at which each page is due: for `greedy` as soon as it may be fetched again."""
        return self.begins(rows) if self._is_greedy else self._schedule.due[rows]

    def nearness(self, rows: Ints) -> Floats:
        """The part of its interval that has passed for each page at the end of the cycle."""
        nearness: Floats = self._age(rows) / np.maximum(self._schedule.intervals[rows], 1.0)
        return nearness

    def tier(self, rows: Ints) -> Array:
        """2 for pages that are pinned, 1 for those that are very late, 0 for others.

        A page is very late if twice the interval, or the longest interval that is allowed, has passed since the last
        fetch. Where the bandwidth is too small for the longest interval, the interval that it allows counts. Only pages
        that share the bandwidth can be: pages that fail wait.
        """
        survey = self._survey
        tier = np.zeros(len(rows), np.float32)
        for first in range(0, len(rows), _PAGES_AT_ONCE):
            some = rows[first : first + _PAGES_AT_ONCE]
            decided_by = survey.decided_by[some]
            tier[first : first + len(some)] = 2.0 * (decided_by == BY_PIN)
            sharing = np.flatnonzero(decided_by == BY_BUDGET)
            of = some[sharing]
            longest = np.full(len(of), np.inf)
            if survey.wanted.least is not None:
                with np.errstate(divide="ignore"):
                    longest = DAY / survey.wanted.least[np.searchsorted(survey.sharing, of)]
            interval = (
                np.full(len(of), np.inf) if self._is_greedy else self._schedule.intervals[of]
            )  # greedy means none
            allowed = np.where(np.isfinite(interval), np.maximum(interval, longest), longest)
            tier[first + sharing] = self._age(of) >= np.minimum(_VERY_LATE * interval, allowed)
        return tier

    def priority(self) -> Floats:
        """Return the cost of an old copy of each page at the end of the cycle; of unread pages, their worth."""
        survey = self._survey
        priority = np.empty(len(survey))
        for first in range(0, len(survey), _PAGES_AT_ONCE):
            rows = slice(first, first + _PAGES_AT_ONCE)
            decided_by, is_requested = survey.decided_by[rows], survey.requested[rows]
            here = self._cost_of_age(rows)
            here[decided_by == BY_PIN] += _PINNED * (UNITS_PER_PAGE if self._is_greedy else 1.0)
            np.copyto(here, self._worth(rows), where=decided_by == DISCOVERY)
            np.copyto(here, survey.valued[rows], where=is_requested)
            priority[rows] = here
        return priority

    def _cost_of_age(self, rows: slice) -> Floats:
        survey = self._survey
        if self._is_greedy:
            waiting: Floats = survey.waiting[rows].astype(np.float64)
            return waiting
        changes = survey.unannounced_per_day[rows] * self._age(rows) / DAY + survey.announced[rows]
        cost: Floats = changes**self._config.alpha * survey.weights(rows)
        return cost

    def _worth(self, rows: slice) -> Floats:
        survey = self._survey
        if self._config.discovery_by == "cash":
            return survey.waiting[rows].astype(np.float64)
        if self._config.discovery_by == "found":
            return 1.0 / (1.0 + survey.slots[rows].astype(np.float64))
        worth: Floats = survey.valued[rows] * survey.factor[rows]
        if survey.worth is not None:
            worth *= np.exp(survey.worth.rise(rows))
        return worth

    def _age(self, rows: Ints | slice) -> Floats:
        """Seconds since the last fetch of each page at the end of the cycle."""
        age: Floats = np.maximum(self._until - self._since(rows), 1).astype(np.float64)
        return age

    def _since(self, rows: Ints | slice) -> Ints:
        return last_fetches(self._survey, self._schedule.intervals, rows)


def _parts(rows: Ints) -> Iterator[Ints]:
    return (rows[first : first + _PAGES_AT_ONCE] for first in range(0, len(rows), _PAGES_AT_ONCE))


@dataclass
class _GroupLimit:
    """The most pages that each host, or each domain, may yet have in this cycle."""

    of: Array
    left: Ints
    kept: Ints
    """By group: the number of fetches for unread pages."""
    of_discovery: bool = False
    """Whether it limits the orders of discovery alone."""


class _Choice:
    """Takes pages, pass by pass, within the limits of hosts and domains."""

    def __init__(self, survey: Survey, budget: Budget, most: Most, cycle: int, is_new: Bools) -> None:
        self.count = self.discovered = 0
        self._pages = survey.pages
        self._why = np.zeros(len(survey), np.uint8)
        self._limits: list[_GroupLimit] = []
        self._of_traps: _GroupLimit | None = None
        hosts, domains, limited = survey.hosts, survey.domains, survey.limited
        if limited is not None:
            left = limited.left(most.all, survey.second)
            self._of_traps = _GroupLimit(limited.of, left, np.zeros_like(left), of_discovery=True)
            self._limits.append(self._of_traps)
        if domains is not None and budget.limits_domains:
            if np.isfinite(budget.domain_most):
                per_day = np.where(domains.is_known, budget.domain_most, np.inf)
                no_gaps = np.zeros(len(per_day), np.int64)
                hosts_alike = HostLimits(domains.of, per_day, domains.parts, domains.before, no_gaps)
                self._add_limit(hosts_alike, budget, most, cycle, is_new)
            of_all = max(most.discovery, budget.least_discovery * most.all)  # unread pages may be too few for it
            share = max(int(budget.domain_discovery_share * of_all), 1)
            left = np.where(domains.is_known, share, _MANY)
            self._limits.append(_GroupLimit(domains.of, left, np.zeros_like(left), of_discovery=True))
        if hosts is not None:
            self._add_limit(hosts, budget, most, cycle, is_new)

    def end_limits_of_traps(self) -> None:
        """Traps and twins are as other unread pages from here on."""
        self._limits = [limit for limit in self._limits if limit is not self._of_traps]

    def _add_limit(self, groups: HostLimits, budget: Budget, most: Most, cycle: int, is_new: Bools) -> None:
        kept = _allowed(groups, budget.least_discovery, most, cycle)
        kept = np.minimum(kept, np.bincount(groups.of[is_new], minlength=len(kept)))
        self._limits.append(_GroupLimit(groups.of, _allowed(groups, 1.0, most, cycle), kept))

    def take(
        self,
        why: int,
        which: Bools,
        by: Array | Callable[[Ints], Array],
        most: int,
        then_by: Floats | None = None,
        keeps_discovery: bool = False,
    ) -> None:
        """Take the `most` highest of the pages that were not taken yet, equal ones by the second value.

        `by` is a column of the survey, or what returns it for some rows.
        `keeps_discovery`: hosts and domains with a limit keep their share for unread pages.
        """
        rows = np.flatnonzero(which & (self._why == 0)) if most > 0 else np.zeros(0, np.int64)
        if not len(rows):
            return
        in_force = [limit for limit in self._limits if why == _DISCOVERY or not limit.of_discovery]
        limits = [
            Limit(limit.of[rows], limit.left - limit.kept if keeps_discovery else limit.left) for limit in in_force
        ]
        values = by(rows) if callable(by) else by[rows]
        if not limits:  # the others need no order
            kept = most_urgent(values, most, None if then_by is None else then_by[rows])
            rows, values = rows[kept], values[kept]
        then = None if then_by is None else then_by[rows]
        rows = rows[chosen(self._pages[rows], values, limits, most, then)]
        self._why[rows] = why
        self.count += len(rows)
        self.discovered += len(rows) if why == _DISCOVERY else 0
        for limit in in_force:
            limit.left = limit.left - np.bincount(limit.of[rows], minlength=len(limit.left))

    def rows(self, priority: Floats) -> tuple[Ints, Bytes]:
        """The rows that were taken, and why: requested, then to refresh, then to discover, by priority, then by row."""
        rows = np.flatnonzero(self._why)
        rows = rows[np.lexsort((-priority[rows], -self._why[rows].astype(np.int64)))]
        return rows, self._why[rows]


def _allowed(hosts: HostLimits, share: float, most: Most, cycle: int) -> Ints:
    """The fetches that each host may have for the time that counts, of this share of its limit, and in a cycle."""
    has_limit = np.isfinite(hosts.per_day)
    per_day = np.where(has_limit, hosts.per_day, 0.0) * share
    fit = np.where(hosts.gaps > 0, np.maximum(cycle // np.maximum(hosts.gaps, 1), 1), _MANY)
    return np.where(
        has_limit, np.minimum(allowances(per_day, most.since, most.until, hosts.parts, hosts.before), fit), _MANY
    )
