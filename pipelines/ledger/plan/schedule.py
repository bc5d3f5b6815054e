"""The schedule of a plan: how the bandwidth is shared among the pages of a survey, and when each page is due."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.discovery.limits import best
from opicflow.pipelines.ledger.config import RefreshConfig
from opicflow.pipelines.ledger.plan.survey import BY_BUDGET, DAY, DISCOVERY, FORBIDDEN, LIMIT, Survey, Terms
from opicflow.pipelines.refresh.strategies import Allocation, Costs, costs, solve, solve_within_shares
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Ids, Ints

_MOST_RETRIES = 0.25  # of the bandwidth for refreshing
_MOST_HURRIED = 0.5  # of the rest
_PAGES_AT_ONCE = 1 << 16  # there may be very many pages
_LONGEST_SECONDS = 1e12  # longer intervals count as never, and would not fit into 64 bits


@dataclass(frozen=True)
class Schedule:
    """How a refresh strategy shares the bandwidth: the intervals of pages, and the fetches a day of each kind."""

    allocation: Allocation
    intervals: Floats
    """Seconds between two fetches of every page of the survey; inf = it is not fetched again."""
    due: Ints
    """The second of the next fetch of every page; -1 = there is none."""
    reasons: Bytes
    """The reason of the decision, as a number of a word in `DECIDED_BY`."""
    discovery_per_day: float
    refresh_per_day: float
    """Retries included."""


def schedule_pages(survey: Survey, terms: Terms) -> Schedule:
    """Share the bandwidth. Discovery and retries take their parts first; the refresh strategy shares the rest.

    What discovery cannot use is for refreshing, and the reverse.
    """
    config, budget = terms.config, terms.budget
    cycle_days = config.cycle_hours / 24
    now = survey.second
    most_discovered = _most_discovered(survey, terms)
    discovery = min(budget.least_discovery * budget.per_day, most_discovered)
    if budget.weighs_discovery and discovery < most_discovered:
        discovery = min(max(discovery, _worth_discovering(survey, terms)), most_discovered)
    retries = float((survey.retry_due <= now + cycle_days * DAY).sum()) / cycle_days
    rest = budget.per_day - discovery
    rest -= min(retries, _MOST_RETRIES * rest)
    allocation = _allocate(survey, terms, rest)
    hurried = _hurried(survey, allocation, now + cycle_days * DAY) / cycle_days
    if hurried:
        allocation = _allocate(survey, terms, rest - min(hurried, _MOST_HURRIED * rest))
    unused = max(rest - hurried - float(allocation.frequencies.sum()), 0.0)
    discovery += min(unused, most_discovered - discovery)
    intervals = np.full(len(survey), np.inf)
    intervals[survey.retried] = survey.retry_after
    with np.errstate(divide="ignore"):
        intervals[survey.sharing] = DAY / allocation.frequencies
    due = _due_times(survey, intervals)
    rows = survey.sharing[_hastened(survey, allocation)]
    rows = rows[survey.decided_by[rows] == BY_BUDGET]
    finite = _finite(intervals[rows])
    waits = _waits_after_announcement(survey.announced[rows], survey.unannounced_per_day[rows], finite)
    since = last_fetches(survey, intervals, rows)
    due[rows] = np.minimum(due[rows], np.maximum(since + waits.astype(np.int64), now))
    due[(survey.decided_by == DISCOVERY) | survey.requested] = now
    reasons = survey.reasons()
    if survey.waits_until is not None:
        is_busy = (due >= 0) & (due < survey.waits_until)
        due, reasons = np.where(is_busy, survey.waits_until, due), np.where(is_busy, np.uint8(LIMIT), reasons)
    return Schedule(allocation, intervals, due, reasons, discovery, budget.per_day - discovery)


def _allocate(survey: Survey, terms: Terms, bandwidth: float) -> Allocation:
    """Share a bandwidth among the pages of a survey, within the bounds of their domains."""
    strategy, alpha = terms.budget.strategy, terms.config.alpha
    if survey.domains is None or not terms.budget.bounds_refreshing:
        return solve(strategy, survey.wanted, bandwidth, alpha)
    of = survey.domains.of[survey.sharing]
    return solve_within_shares(strategy, survey.wanted, bandwidth, of, terms.budget.domain_refreshing, alpha)


def last_fetches(survey: Survey, intervals: Floats, rows: Ints | slice) -> Ints:
    """The second of the last fetch of the pages at these rows, made up where it is not known."""
    finite, fetched = _finite(intervals[rows]), survey.fetched[rows]
    # A page whose last fetch has no time gets one within its interval, always the same.
    passed = np.mod(survey.second / np.maximum(finite, 1.0) + _phase(survey.pages[rows]), 1.0) * finite
    return np.where(fetched > 0, fetched, survey.second - passed.astype(np.int64))


def _due_times(survey: Survey, intervals: Floats) -> Ints:
    """The second of the next fetch of every page; -1 = there is none."""
    due = np.empty(len(survey), np.int64)
    for first in range(0, len(survey), _PAGES_AT_ONCE):
        rows = slice(first, first + _PAGES_AT_ONCE)
        next_ = last_fetches(survey, intervals, rows) + np.round(_finite(intervals[rows])).astype(np.int64)
        due[rows] = np.where(np.isinf(intervals[rows]), -1, next_)
    has_time = survey.fetched[survey.retried] > 0
    due[survey.retried[has_time]] = survey.retry_due[has_time]
    return due


def _finite(intervals: Floats) -> Floats:
    return np.where(np.isinf(intervals), 0.0, np.minimum(intervals, _LONGEST_SECONDS))


def _hurried(survey: Survey, allocation: Allocation, until: float) -> int:
    """The number of pages due until a second because a change was announced, which would not be due otherwise."""
    rows = _hastened(survey, allocation)
    pages = survey.sharing[rows]
    seconds = DAY / allocation.frequencies[rows]
    waits = _waits_after_announcement(survey.announced[pages], survey.unannounced_per_day[pages], seconds)
    fetched = survey.fetched[pages]
    return int(((fetched + waits <= until) & (fetched + seconds > until)).sum())


def _hastened(survey: Survey, allocation: Allocation) -> Ints:
    """The pages, as rows of those that share the bandwidth, that are due sooner because a change was announced.

    A domain at its bound has all that it may have, whatever it announces.
    """
    rows = np.flatnonzero(survey.announced[survey.sharing] > 0)
    rows = rows[allocation.frequencies[rows] > 0]
    return rows if allocation.at_bound is None else rows[~allocation.at_bound[rows]]


def _waits_after_announcement(announced: Floats, changes_per_day: Floats, seconds: Floats) -> Floats:
    """The seconds from a fetch to the next one of pages whose change was announced; `seconds` are their intervals.

    A page is due when what a fetch would mend, summed up since the last one, has the same worth as for other pages:
    with λ changes a day after t days λ t²/2, and after an announcement of n changes λ t²/2 + n t. So a page that
    changes rarely is due soon, and one that changes all the time is due hardly sooner than without announcement.
    """
    early = announced / changes_per_day * DAY
    waits: Floats = seconds * seconds / (early + np.hypot(early, np.maximum(seconds, 1.0)))
    return waits


def _most_discovered(survey: Survey, terms: Terms) -> float:
    """The number of unread pages that could be fetched a day, within the limits of hosts and domains."""
    config, budget = terms.config, terms.budget
    unread = can_be_ordered(survey, config) & (survey.decided_by == DISCOVERY)
    cycle_days = config.cycle_hours / 24
    most = float(unread.sum()) / cycle_days
    if survey.hosts is not None:
        here = survey.hosts.here
        by_host = np.bincount(survey.hosts.of[unread], minlength=len(here))
        most = float(np.minimum(by_host / cycle_days, here).sum())
    if survey.limited is not None:
        most = min(most, survey.limited.count_a_day(unread, cycle_days, budget.per_day))
    if survey.domains is not None and budget.limits_domains:
        of_all = budget.domain_discovery_share * budget.least_discovery * budget.per_day
        here = np.minimum(budget.domain_most * survey.domains.parts, max(of_all, 1 / cycle_days))
        by_domain = np.bincount(survey.domains.of[unread], minlength=len(here)) / cycle_days
        most = min(most, float(np.where(survey.domains.is_known, np.minimum(by_domain, here), by_domain).sum()))
    return most


def _worth_discovering(survey: Survey, terms: Terms) -> float:
    """The unread pages a day that are among the fetches worth most, of as many as pins and longest intervals leave.

    With w the weight of a page, λ its changes a day and t the days since it was fetched, a fetch is worth
    w/λ (1 - (1 + u) exp(-u)), u = λt: what the freshness of all pages gains over time if it happens now and not later.
    An unread page is worth w/λ. So pages of both kinds have one measure.
    """
    wanted, cycle_days = survey.wanted, terms.config.cycle_hours / 24
    reserved = np.zeros(len(survey.sharing)) if wanted.least is None else wanted.least
    if wanted.pinned is not None:
        reserved = np.where(wanted.pinned > 0, wanted.pinned, reserved)
    most = int((terms.budget.per_day - float(reserved.sum())) * cycle_days)
    is_free = can_be_ordered(survey, terms.config)
    is_read = is_free & (survey.decided_by == BY_BUDGET)
    is_unread = is_free & (survey.decided_by == DISCOVERY)
    if survey.limited is not None:
        is_unread &= survey.limited.of == 0
    gains = _gains(survey, is_unread, survey.second + terms.cycle_seconds)
    if survey.hosts is not None:
        here = np.minimum(survey.hosts.here * cycle_days, len(survey)).astype(np.int64)
        firsts = best(gains, survey.pages, survey.hosts.of, here, max(most, 0), is_unread)
        is_unread[:] = False
        is_unread[firsts] = True
    gains[~(is_read | is_unread)] = 0.0
    if not 0 < most < len(gains):
        return float(is_unread.sum() if most > 0 else 0) / cycle_days
    least = np.partition(gains, len(gains) - most)[len(gains) - most]
    above, equal = gains > least, gains == least
    left = most - int(above.sum()) - int((equal & is_read).sum())
    return (int((above & is_unread).sum()) + min(max(left, 0), int((equal & is_unread).sum()))) / cycle_days


def _gains(survey: Survey, is_unread: Bools, until: int) -> Array:
    """The worth of a fetch of each page until a second. Single precision: there may be very many pages.

    Unread pages change at the rate of their sites, but not more slowly than half of the others: a rate that is a guess
    must not make them worth more. exp(u) counts as 1 + u + u²/2, which is the same on all processors.
    """
    typical = float(np.median(survey.unannounced_per_day[survey.sharing])) if len(survey.sharing) else 0.0
    gains = np.empty(len(survey), np.float32)
    for first in range(0, len(survey), _PAGES_AT_ONCE):
        rows = slice(first, first + _PAGES_AT_ONCE)
        rates, fetched, unread = survey.unannounced_per_day[rows], survey.fetched[rows], is_unread[rows]
        changes = np.where(fetched > 0, rates * np.maximum(until - fetched, 0) / DAY, 1.0)  # or at an unknown time
        stale = changes * changes / 2
        part = np.where(unread, 1.0, stale / (1.0 + changes + stale))
        gains[rows] = survey.weights(rows) / np.where(unread, np.maximum(rates, typical), rates) * part
    return gains


def cost_of(survey: Survey, schedule: Schedule, alpha: float) -> Costs:
    """The cost of the frequencies by every measure, for each page of `survey.sharing` and in total."""
    return costs(survey.wanted, schedule.allocation.frequencies, alpha)


def can_be_ordered(survey: Survey, config: RefreshConfig) -> Bools:
    """Whether a page has a URL, may be fetched in this cycle, and has no order that may still be answered."""
    ordered = np.flatnonzero(survey.ordered)
    since = survey.second - survey.ordered[ordered].astype(np.int64)
    free: Bools = survey.has_url & (survey.decided_by != FORBIDDEN)
    free[ordered[since < config.order_timeout_hours * 3600]] = False
    if survey.waits_until is not None:
        free &= survey.waits_until <= survey.second + config.cycle_hours * 3600
    return free


def _phase(pages: Ids) -> Floats:
    """A number from 0 to 1 for every page, derived from its id."""
    mixed = pages * np.uint64(0x9E3779B97F4A7C15)
    phase: Floats = (mixed >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return phase
