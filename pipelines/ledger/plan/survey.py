"""All pages of a ledger at one second, a row each: what a plan and its orders are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.discovery.trap_rule import TWIN, LimitedPages, TrapRule
from opicflow.pipelines.ledger.config import AUTO, LEAST_DISCOVERY, RefreshConfig
from opicflow.pipelines.ledger.entries import Outcome
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.announcements import IN_USE, find_rows
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.observations import BELIEVED, WAS_GONE
from opicflow.pipelines.ledger.pages.refresh_rows import field_of
from opicflow.pipelines.ledger.plan.unread_pages import Worth
from opicflow.pipelines.refresh.orders import back_off_seconds, gaps, next_checks
from opicflow.pipelines.refresh.policies import Directives, HostCaps, Policies, directives, host_caps
from opicflow.pipelines.refresh.rate_prior import learnt_rates
from opicflow.pipelines.refresh.rates import LEAST_RATE, ChangeRates, change_rates
from opicflow.pipelines.refresh.strategies import BY_RATES, Demand
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Ids, Ints
from opicflow.schemas.shards import Shard

DECIDED_BY = ("OTHER", "BUDGET", "PINNED", "FORBIDDEN", "DISCOVERY", "BACK_OFF", "GONE", "LIMIT", "REQUESTED")
KNOWN_FROM = ("OTHER", "DEFAULT", "INTERVALS", "LAST_MODIFIED", "POLICY")
"""The words of the published schemas, by the numbers that columns hold."""

BY_BUDGET, BY_PIN, FORBIDDEN, DISCOVERY, BACK_OFF, GONE, LIMIT = range(1, 8)
"""Numbers of words in `DECIDED_BY`."""
BY_POLICY = KNOWN_FROM.index("POLICY")
DAY = 86400.0
MOST_AHEAD_DAYS = 7
"""A visit so long after the last tick has a wrong time: whoever applies a log may send ticks once a day."""
_REQUESTED = DECIDED_BY.index("REQUESTED")
_MOST_WEIGHT = 1e12
_EVER = 1 << 40  # seconds
_WORTH_NOTHING = 0.1  # changes
_PRIOR = 4.0  # visits
_UNTRUE = 0.1  # the part of announcements that is taken for untrue before a site has shown it
HostsOf = Callable[[Array], Ids]
"""Returns a hash of the host of the page at each slot."""


@dataclass(frozen=True)
class Budget:
    """The fetches that this shard may plan: as configured, and as policies have changed it."""

    strategy: str
    per_day: float
    discovery_share: float | str
    """Of the bandwidth; or `AUTO`."""
    host_most: float
    """Fetches a day of a host without a limit of its own; inf = no limit."""
    host_per_hour: float = np.inf
    """The same an hour."""
    host_delay_seconds: float = 0.0
    """Seconds between two fetches of a host without a delay of its own; 0 = no limit."""
    shard: Shard = field(default_factory=Shard)
    domain_most: float = np.inf
    """Fetches a day of all hosts of a domain together; inf = no limit."""
    domain_discovery_share: float = 1.0
    """The part of the orders of discovery that one domain may get."""
    domain_refreshing: float = 2.0
    """How many times its share of importance one domain may get of refreshing."""

    @property
    def least_discovery(self) -> float:
        """The share of the bandwidth that unread pages have at least, while so many wait."""
        return LEAST_DISCOVERY if isinstance(self.discovery_share, str) else self.discovery_share

    @property
    def weighs_discovery(self) -> bool:
        """Whether unread pages get more than that while they are worth more than refreshing, which rates say."""
        return self.discovery_share == AUTO and self.bounds_refreshing

    @property
    def limits_domains(self) -> bool:
        """Whether domains have limits of their orders."""
        return bool(np.isfinite(self.domain_most)) or self.domain_discovery_share < 1.0

    @property
    def bounds_refreshing(self) -> bool:
        """Whether a domain gets more if its pages change more often, up to its bound."""
        return self.strategy in BY_RATES


class DomainGroups(NamedTuple):
    """The registrable domains of a survey."""

    of: Array
    """The number of the domain of every page; 0 = its URL is not known."""
    is_known: Bools
    """By domain: whether it is one. Pages whose URL is not known have none, and no limit."""
    parts: Floats
    """By domain: the part of its fetches that this shard has."""
    before: Floats
    """By domain: the sum of the parts of the shards before this one."""


class HostLimits(NamedTuple):
    """The hosts of a survey, and how many fetches each may get."""

    of: Array
    """The number of the host of every page."""
    per_day: Floats
    """By host: the fetches a day, of all shards together; inf = no limit of any kind."""
    parts: Floats
    """By host: the part of its fetches that this shard has."""
    before: Floats
    """By host: the sum of the parts of the shards before this one."""
    gaps: Ints
    """By host: the least seconds between two fetches in this shard; 0 = no limit."""

    @property
    def here(self) -> Floats:
        """By host: the fetches a day in this shard."""
        return self.per_day * self.parts


@dataclass(frozen=True)
class Survey:
    """Every page at a second, a row each in slot order."""

    second: int
    pages: Ids
    slots: Array
    """In four bytes each, as there may be very many pages."""
    category: Bytes
    """0 = none, or not known."""
    importance: Floats
    quality: Floats | None
    """The quality of each page; None where that of all pages is 1."""
    valued: Floats
    """Importance times the quality of the page: what orders and shares go by; 0 for a hop."""
    waiting: Ints
    """Cash that waits; empty where nothing is chosen by it."""
    factor: Floats
    """The importance factor of policies."""
    pages_everywhere: int
    changes_per_day: Floats
    changes_error: Floats
    known_from: Bytes
    decided_by: Bytes
    fetched: Ints
    """The second of the last visit, without those to a busy host; 0 = never, or not known."""
    ordered: Array
    """The second of an order that no visit has answered, as the column has it; 0 = none."""
    requested: Bools
    """Whether a policy requests it and it was not fetched since."""
    announced: Floats
    """The worth of an announcement since the fetch, in changes; 0 = none was made, or a worthless one."""
    unannounced_per_day: Floats
    """The changes a day that happen without an announcement, as far as the site has shown."""
    retried: Ints
    """The rows of pages that do not answer."""
    retry_after: Floats
    """The seconds to wait before a retry of each such page."""
    retry_due: Ints
    """The second at which each such page is due, if its last visit has a time."""
    wanted: Demand
    """The pages that share the bandwidth for refreshing, at `sharing`."""
    sharing: Ints
    has_url: Bools
    hosts: HostLimits | None
    """None where no host has a limit."""
    domains: DomainGroups | None
    """None where domains have neither limits nor bounds."""
    waits_until: Ints | None
    """The second until which the host of each page is busy; 0 = it is not. None where no host is."""
    worth: Worth | None
    """The worth of pages; None where it is not learnt."""
    limited: LimitedPages | None
    """Traps and twins, but for pages that a policy governs; None where there are none."""
    suspended: str
    """A message about pins that do not fit into the bandwidth; empty if all do."""

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def retry_seconds(self) -> Floats:
        """How long to wait before a retry of a page that does not answer; 0 for others."""
        seconds = np.zeros(len(self))
        seconds[self.retried] = self.retry_after
        return seconds

    def weights(self, rows: Ints | slice) -> Floats:
        """Score times the quality of the page and the importance factor of policies."""
        weights: Floats = self.valued[rows] * self.pages_everywhere * self.factor[rows]
        return weights

    def reasons(self) -> Bytes:
        """The reason for the time of the next fetch of each page, as a number of a word in `DECIDED_BY`."""
        return np.where(self.requested, _REQUESTED, self.decided_by).astype(np.uint8)


@dataclass(frozen=True)
class Terms:
    """The terms of a plan: the options of refreshing, the policies that hold, and the budget."""

    config: RefreshConfig
    policies: Policies
    budget: Budget

    @property
    def cycle_seconds(self) -> int:
        """The length of a cycle."""
        return int(self.config.cycle_hours * 3600)


@dataclass(frozen=True)
class PagesKnown:
    """All pages of a ledger at a second, a row each in slot order, as a survey reads them."""

    table: Table
    book: Book
    second: int
    pages: Ids
    slots: Array
    importance: Floats
    pages_everywhere: int
    waiting: Ints
    """The cash that waits on the pages; empty where nothing is chosen by it."""
    hosts_of: HostsOf
    domains_of: HostsOf
    """Returns a hash of the registrable domain of the page at each slot."""
    busy: tuple[Ids, Ints]
    """The hosts that ask to wait, by rising hash, and until which second each does."""
    worth: Worth | None = None
    quality: Floats | None = None
    """The quality of each page; None where that of all pages is 1."""
    limited: LimitedPages | None = None
    """Traps and twins; None where they are treated as other pages."""


def survey(known: PagesKnown, terms: Terms) -> Survey:
    """Survey the pages by the terms of a plan."""
    table, book, second, importance = known.table, known.book, known.second, known.importance
    config, policies, budget = terms.config, terms.policies, terms.budget
    pages, slots = known.pages, known.slots
    taken = at.taken_of(slots)

    def of_page(field: str) -> Array:
        column: Array = table.pages[field][taken]
        return column

    def of_refresh(field: str) -> Array:
        return field_of(table, field, taken)

    categories = (of_page("class_") >> 1).astype(np.uint8)
    stated = directives(policies, book.urls, table.url_start[taken], pages, categories)
    notes, failures, fetched = of_refresh("notes"), of_refresh("failures"), of_page("last_visit_ms") // 1000
    sent_away = np.flatnonzero(of_page("outcome") == Outcome.BUSY)
    fetched[sent_away] = field_of(table, "checked", slots[sent_away])
    fetched[fetched > second + MOST_AHEAD_DAYS * DAY] = 0  # by a wrong clock: the real time is unknown
    believed = (notes & at.MISTRUST) <= BELIEVED
    found = _change_rates(table, taken, believed, config, categories, budget.shard, pages)
    is_set = ~np.isnan(stated.changes_per_day)
    valued = importance if known.quality is None else importance * known.quality
    is_hop = of_page("seen") == at.HOP
    if is_hop.any():  # what leads there is refreshed where it ends: a hop is fetched at the longest interval
        valued = np.where(is_hop, 0.0, valued)
    limited = _not_governed(known.limited, stated)

    is_read = (of_page("class_") & 1) == 1
    is_gone = (notes & WAS_GONE) != 0
    if limited is not None:
        refreshed = np.where(limited.why == TWIN, 0.0, TrapRule.refreshed)
        refreshed[0] = 1.0
        valued = np.where(is_read, refreshed[limited.of] * valued, valued)
    decided_by = np.full(len(pages), BY_BUDGET, np.uint8)
    has_pin = is_read & ~is_gone & (stated.interval_seconds > 0.0)
    pinned, suspended = _affordable(np.flatnonzero(has_pin), stated, budget)
    decided_by[pinned] = BY_PIN
    decided_by[~is_read] = DISCOVERY
    decided_by[failures > 0] = BACK_OFF
    decided_by[is_gone] = GONE
    decided_by[(stated.forbidden != 0) | (stated.factor == 0)] = FORBIDDEN

    retries = _retries(table, slots, pages, decided_by, failures, fetched, config)

    changes = _set(found.rates, is_set, stated.changes_per_day)
    announced, unannounced = _announced(book, pages, changes, (notes & at.CHANGE_ANNOUNCED) != 0)
    sharing = np.flatnonzero((decided_by == BY_BUDGET) | (decided_by == BY_PIN))
    shortest = stated.shortest_seconds[sharing]
    shortest = np.where(shortest > 0, shortest, config.shortest_interval_seconds)
    shortest = np.maximum(shortest, config.cycle_hours * 3600)  # a page is ordered once a cycle at most
    longest_ = stated.longest_seconds[sharing]
    longest_ = np.where(longest_ > 0, longest_, config.longest_interval_days * DAY)
    longest_[is_hop[sharing] & (importance[sharing] == 0.0)] = np.inf  # nothing leads there
    pins = np.where(decided_by[sharing] == BY_PIN, stated.interval_seconds[sharing], 0.0)
    caps = host_caps(policies)
    names = known.hosts_of(slots) if caps or len(known.busy[0]) or _limits_all(budget) else None
    hosts = None if names is None else _limits_of_hosts(names, pages, caps, budget)
    domains = None
    if budget.limits_domains or budget.bounds_refreshing:
        domains = _group_by_domain(known, budget)
    groups, most = None, np.zeros(0)
    if domains is not None and np.isfinite(budget.domain_most):
        groups, most = domains.of, most_of_domains(domains, hosts, budget)
    elif hosts is not None:
        groups, most = hosts.of, hosts.here
    if groups is not None:
        with_unread = np.unique(groups[decided_by == DISCOVERY])
        with_unread = with_unread[np.isfinite(most[with_unread])]
        most[with_unread] *= 1 - budget.least_discovery  # the rest is for unread pages
    wanted = Demand(
        weights=np.minimum(valued[sharing] * known.pages_everywhere * stated.factor[sharing], _MOST_WEIGHT),
        changes_per_day=unannounced[sharing],
        pinned=np.where(pins > 0, DAY / np.where(pins > 0, pins, 1.0), 0.0) if pins.any() else None,
        least=DAY / np.maximum(longest_, shortest),
        most=DAY / shortest,
        host=None if groups is None else groups[sharing].astype(np.int64),
        host_most=None if groups is None else most,
    )
    return Survey(
        second=second,
        pages=pages,
        slots=slots,
        category=categories,
        importance=importance,
        quality=known.quality,
        valued=valued,
        waiting=known.waiting,
        factor=stated.factor,
        pages_everywhere=known.pages_everywhere,
        changes_per_day=changes,
        changes_error=_set(found.errors, is_set, 0.0),
        known_from=_set(found.known_from, is_set, np.uint8(BY_POLICY)),
        decided_by=decided_by,
        fetched=fetched,
        ordered=_without_memory_for_zeros(of_refresh("ordered")),
        requested=(stated.requested_second >= 0)
        & (fetched < np.maximum(stated.requested_second, 1))
        & (decided_by != FORBIDDEN),
        announced=announced,
        unannounced_per_day=unannounced,
        retried=retries.rows,
        retry_after=retries.after,
        retry_due=retries.due,
        wanted=wanted,
        sharing=sharing,
        has_url=table.url_start[taken] != 0,
        hosts=hosts,
        domains=domains,
        waits_until=None if names is None else _waits(names, known.busy),
        worth=known.worth,
        limited=limited,
        suspended=suspended,
    )


def _not_governed(limited: LimitedPages | None, stated: Directives) -> LimitedPages | None:
    """Return the limited pages without those that a policy governs: a rule for pages refuses the judgement."""
    if limited is None or not limited.of.any():
        return None
    return limited._replace(of=np.where(stated.number > 0, 0, limited.of)) if stated.number.any() else limited


class _Retries(NamedTuple):
    """Pages that do not answer: their rows, how many seconds each waits, and the second when it is due."""

    rows: Ints
    after: Floats
    due: Ints


def _retries(
    table: Table, slots: Array, pages: Ids, decided_by: Bytes, failures: Bytes, fetched: Ints, config: RefreshConfig
) -> _Retries:
    """Return when pages that fail, or are gone, are due.

    The checks of a gone page count from when it was found gone first: visits between them change nothing. A page that
    fails counts its visits, but not more than were due since it answered last.
    """
    found = list[_Retries]()
    for by, first, longest in (
        (BACK_OFF, config.retry_hours * 3600, config.longest_retry_days * DAY),
        (GONE, config.gone_days * DAY, config.longest_gone_days * DAY),
    ):
        rows = np.flatnonzero(decided_by == by)
        last, there = fetched[rows], field_of(table, "checked", slots[rows]).astype(np.int64)
        are_known = (last > 0) & (there > 0)
        since = np.where(are_known, last - there, 0 if by == GONE else _EVER)
        number, due_after = next_checks(pages[rows], since, first, longest)
        if by == BACK_OFF:
            number = np.minimum(number, failures[rows])
        after = back_off_seconds(pages[rows], number, first, longest)
        due = last + np.round(after).astype(np.int64)
        if by == GONE:
            due[are_known] = (there + due_after)[are_known]
        found.append(_Retries(rows, after, due))
    return _Retries(*map(np.concatenate, zip(*found, strict=True)))


def _without_memory_for_zeros(column: Array) -> Array:
    """The column, or one that takes no memory if it is 0 everywhere."""
    return column if column.any() else np.broadcast_to(column.dtype.type(0), len(column))


def _set(column: Array, is_set: Bools, values: Array | float | np.uint8) -> Array:
    """A column with these values where they are set: itself where none is."""
    return np.where(is_set, values, column) if is_set.any() else column


def _announced(book: Book, pages: Ids, changes: Floats, is_announced: Bools) -> tuple[Floats, Floats]:
    """Return the worth of an announcement since the fetch of each page, and its changes a day without one."""
    if not is_announced.any() and not book.announced.any():  # as in most crawls: no columns for nothing
        is_high = len(changes) == 0 or float(changes.min()) >= LEAST_RATE
        return np.broadcast_to(np.float64(0.0), len(pages)), changes if is_high else np.maximum(changes, LEAST_RATE)
    worth, recall = _worth_of_announcements(book, pages)
    unannounced = np.maximum(np.where(is_announced, 1.0, 1.0 - recall) * changes, LEAST_RATE)
    return np.where(is_announced, worth, 0.0), unannounced


def _worth_of_announcements(book: Book, pages: Ids) -> tuple[Floats, Floats]:
    """For each page: how many changes an announcement of its site is worth, and the part of changes that it announces.

    An announcement has brought a change with the probability 1 - q / p, if so many of the visits that follow find the
    page unchanged as q and p say: q is counted, and p expected by the change rates of the pages. Until a site has shown
    what its announcements are worth, they count for almost one change.
    """
    rows = np.empty(len(pages), np.int64)
    find_rows(book, pages, rows)
    changed, unchanged, expected, surprises = book.announced[:, :IN_USE].T.astype(np.float64)
    worth = np.maximum(1.0 - (unchanged + _PRIOR * _UNTRUE) / (expected + _PRIOR), 0.0)
    recall = np.where(worth > _WORTH_NOTHING, changed / (changed + surprises + _PRIOR), 0.0)
    return worth[rows], recall[rows]


def _change_rates(
    table: Table,
    taken: Ints | slice,
    believed: Bools,
    config: RefreshConfig,
    categories: Bytes,
    shard: Shard,
    pages: Ids,
) -> ChangeRates:
    """The change rates of the pages at the slots taken, from their refresh rows."""
    if config.rate_prior == "fixed" or config.estimator == "thesis":
        intervals, dated = (field_of(table, name, taken) for name in ("intervals", "dated"))
        return change_rates(intervals, dated, believed, config.estimator)
    sites = shard.page_ids.sites_of(pages)
    return learnt_rates(table.refresh, believed, config.estimator, categories, sites, table.refresh_row[taken])


def _affordable(pinned: Ints, stated: Directives, budget: Budget) -> tuple[Ints, str]:
    """Those of the pinned pages that fit into the bandwidth for refreshing, earlier policies first; and a message.

    The message is about the others.
    """
    numbers, of = np.unique(stated.number[pinned], return_inverse=True)
    takes = np.bincount(of, DAY / stated.interval_seconds[pinned], len(numbers))
    most = budget.per_day * (1 - budget.least_discovery)
    taken, too_many = 0.0, []
    for row, takes_per_day in enumerate(takes.tolist()):
        if taken + takes_per_day <= most * (1 + 1e-9):
            taken += takes_per_day
        else:
            too_many.append(row)
    if not too_many:
        return pinned, ""
    listed = ", ".join(f"{int(numbers[row])} ({takes[row]:.6g} a day)" for row in too_many[:5])
    why = f"pins beyond the {most:.6g} fetches a day for refreshing are not honoured: policies {listed}"
    return pinned[~np.isin(of, too_many)], why


def _limits_all(budget: Budget) -> bool:
    """Whether hosts without limits of their own have some."""
    return bool(np.isfinite(budget.host_most) or np.isfinite(budget.host_per_hour) or budget.host_delay_seconds > 0)


def _group_by_domain(known: PagesKnown, budget: Budget) -> DomainGroups:
    if known.worth is not None:
        of = known.worth.domain
    else:
        names, of = np.unique(known.domains_of(known.slots), return_inverse=True)
        of = (of + int(len(names) > 0 and names[0] != 0)).astype(np.int32)
    examples = np.zeros(int(of.max(initial=-1)) + 1, np.int64)
    examples[of] = np.arange(len(of))
    is_known = np.arange(len(examples)) > 0
    return DomainGroups(of, is_known, *budget.shard.parts_of_hosts(known.pages[examples]))


def most_of_domains(domains: DomainGroups, hosts: HostLimits | None, budget: Budget) -> Floats:
    """The fetches a day that each domain may have in this shard: no more than its hosts may have together."""
    most: Floats = np.where(domains.is_known, budget.domain_most * domains.parts, np.inf)
    if hosts is not None:
        _, first = np.unique(hosts.of, return_index=True)
        np.minimum(most, np.bincount(domains.of[first], hosts.here[hosts.of[first]], len(most)), out=most)
    return most


def _limits_of_hosts(hashes: Ids, pages: Ids, caps: dict[bytes, HostCaps], budget: Budget) -> HostLimits | None:
    if not caps and not _limits_all(budget):
        return None
    names, examples, of = np.unique(hashes, return_index=True, return_inverse=True)
    parts, before = budget.shard.parts_of_hosts(pages[examples])
    per_day, gap = _caps_of(names, caps, budget)
    return HostLimits(of.astype(np.int32), per_day, parts, before, np.ceil(gap / parts).astype(np.int64))


def _caps_of(names: Ids, caps: dict[bytes, HostCaps], budget: Budget) -> tuple[Floats, Ints]:
    """The fetches a day that each host may get from all shards, and the time between them; no limit if not known.

    `names` are hashes of hosts, sorted, each once.
    """
    defaults = (budget.host_most, budget.host_per_hour, budget.host_delay_seconds)
    per_day, per_hour, delay = (np.full(len(names), default) for default in defaults)
    if len(caps) and len(names):
        hashes = budget.shard.page_ids.host_hashes(caps)
        rows = np.minimum(np.searchsorted(names, hashes), len(names) - 1)
        here = names[rows] == hashes
        for column, given in zip((per_day, per_hour, delay), zip(*caps.values(), strict=True), strict=True):
            own = np.array(given, np.float64)  # NaN = none
            has_own = here & ~np.isnan(own)
            column[rows[has_own]] = own[has_own]
    gap = gaps(per_hour, delay)
    per_day = np.minimum(per_day, np.where(gap > 0, DAY / np.maximum(gap, 1), np.inf))
    is_known = names != 0
    return np.where(is_known, per_day, np.inf), np.where(is_known, gap, 0)


def _waits(names: Ids, busy: tuple[Ids, Ints]) -> Ints | None:
    hosts, until = busy
    if not len(hosts):
        return None
    rows = np.minimum(np.searchsorted(hosts, names), len(hosts) - 1)
    return np.where(hosts[rows] == names, until[rows], 0)
