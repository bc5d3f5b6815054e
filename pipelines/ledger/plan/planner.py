"""Plans the fetches of a ledger's pages, and writes what plans leave behind: shares, intervals, who was ordered."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, TRAPS, LedgerConfig, RefreshConfig
from opicflow.pipelines.ledger.ledger_state import Credits, Times
from opicflow.pipelines.ledger.pages import observations
from opicflow.pipelines.ledger.pages.layout import taken_of
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.plan.busy_hosts import BusyHosts
from opicflow.pipelines.ledger.plan.crawl_orders import Most, Orders, choose_orders
from opicflow.pipelines.ledger.plan.policies_in_force import PoliciesInForce
from opicflow.pipelines.ledger.plan.qualities import Qualities
from opicflow.pipelines.ledger.plan.removal import FOR_EVER
from opicflow.pipelines.ledger.plan.schedule import Schedule, can_be_ordered, schedule_pages
from opicflow.pipelines.ledger.plan.survey import BY_POLICY, DISCOVERY, Budget, PagesKnown, Survey, Terms, survey
from opicflow.pipelines.ledger.plan.trap_search import FoundTraps, TrapFigures, figures_of, find_traps
from opicflow.pipelines.ledger.plan.unread_pages import UnreadPages
from opicflow.pipelines.refresh.orders import packed_intervals, unpacked_intervals
from opicflow.pipelines.refresh.policies import check, default_host_caps
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints, Words, highest
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Policy

_ROUNDING = 1e-6  # of a fetch
_POLICY_SECONDS, _POLICY_PAGES = 60, 1_000_000
"""Policies have an effect a minute after the plan before; two minutes after it from a million pages on, and so on."""
_LEAST_BY_POLICY, _PART_BY_POLICY = 10_000, 10
"""A plan after new policies may publish as many schedules that moved, or a tenth of all, whatever the budget is."""
_MOST_U32 = (1 << 32) - 1

LEAST_PACE = 100.0
"""Fetches a day of a crawl without a bandwidth that has made fewer so far."""
_FIRST_PACE = 8640.0
"""The same on the first day, where the first cycles are short: somebody waits for orders. One in ten seconds."""


@dataclass(frozen=True)
class Plan:
    """A plan: a survey of all pages, the schedule made from it, the orders, and the schedules to publish."""

    survey: Survey
    schedule: Schedule
    orders: Orders
    publish: Array
    """Rows of the survey whose schedule is to be published."""


def _whole(per_day: float, since: int, until: int) -> int:
    """The fetches between two seconds in whole numbers, which add up over any number of cycles."""
    before, after = (int(per_day * second / SECONDS_PER_DAY + _ROUNDING) for second in (since, until))
    return after - before


class Planner:
    """Plans cycles. Only `plan` changes the ledger; `preview` does not."""

    def __init__(
        self,
        config: LedgerConfig,
        room: Room,
        reader: Reader,
        peers: Peers,
        policies: PoliciesInForce,
        times: Times,
        credits: Credits,
        busy: BusyHosts,
        unread: UnreadPages,
        qualities: Qualities,
    ) -> None:
        self._config = config
        self._room = room
        self._reader = reader
        self._peers = peers
        self._policies = policies
        self._times = times
        self._credits = credits
        self._busy = busy
        self._unread = unread
        self._qualities = qualities

    def change_options(self, refresh: RefreshConfig) -> None:
        """Plan by other options from here on."""
        self._config = replace(self._config, refresh=refresh)

    # -- bandwidth -------------------------------------------------------------------------------------------------

    def budget(self) -> Budget:
        """The fetches that this shard may plan now. Without a bandwidth: as many as its crawl has made a day.

        A young crawl may plan `LEAST_PACE` a day, more on its first day if its first cycles are short.
        """
        refresh, stated = self._config.refresh, self._policies.budget
        per_day = self._bandwidth()
        counts = self._room.book.counts[0]
        part = self._peers.part_of_bandwidth(int(counts.shares), int(counts.pages))
        if per_day is None:
            days = (self._times.tick_second - self._times.first_tick_second) / SECONDS_PER_DAY
            is_older = self._age(self._times.tick_second) >= SECONDS_PER_DAY
            least = LEAST_PACE if is_older or refresh.first_cycle_minutes is None else _FIRST_PACE
            per_day = max(int(counts.visits) / max(days, 1.0), least * part)
        else:
            per_day *= part
        caps = default_host_caps(self._policies.stated)
        host_most = caps.per_day or refresh.host_fetches_per_day
        return Budget(
            strategy=stated.get("refresh_policy", refresh.strategy),
            per_day=per_day,
            discovery_share=stated.get("discovery_share", refresh.discovery_share),
            host_most=np.inf if host_most is None else host_most,
            host_per_hour=caps.per_hour or refresh.host_fetches_per_hour or np.inf,
            host_delay_seconds=caps.delay_seconds or refresh.crawl_delay_seconds or 0.0,
            shard=self._peers.shard,
            domain_most=np.inf if refresh.domain_fetches_per_day is None else refresh.domain_fetches_per_day,
            domain_discovery_share=refresh.domain_discovery_share or 1.0,
            domain_refreshing=refresh.domain_refreshing,
        )

    def refresh_per_day(self) -> float | None:
        """The fetches a day that pins may take; None where no bandwidth is given."""
        if self._bandwidth() is None:
            return None
        budget = self.budget()
        return budget.per_day * (1 - budget.least_discovery)

    def _bandwidth(self) -> float | None:
        """Fetches a day of all shards together, if configured or stated by a policy."""
        per_second = self._policies.budget.get("fetches_per_second")
        return self._config.refresh.bandwidth_per_day if per_second is None else per_second * SECONDS_PER_DAY

    # -- cycles ----------------------------------------------------------------------------------------------------

    def is_due(self, second: int) -> bool:
        """Whether the last cycle is over. New policies end it: it lasts for a minute, or longer with many pages."""
        planned = self._times.planned_second
        seconds = self._cycle_seconds(planned)
        if self._times.policies_changed:
            seconds = min(_POLICY_SECONDS * (1 + int(self._room.book.counts[0].pages) // _POLICY_PAGES), seconds)
        return planned < 0 or second - planned >= seconds

    def _cycle_seconds(self, second: int) -> int:
        """The length of a cycle that begins at a second."""
        refresh = self._config.refresh
        longest = int(refresh.cycle_hours * 3600)
        if refresh.first_cycle_minutes is None:
            return longest
        return min(max(int(refresh.first_cycle_minutes * 60), self._age(second)), longest)

    def _age(self, second: int) -> int:
        """The seconds since the first plan; 0 before."""
        first = self._times.first_planned_second
        return max(second - first, 0) if first >= 0 else 0

    # -- plans -----------------------------------------------------------------------------------------------------

    def preview(
        self,
        refresh: RefreshConfig | None,
        budget: Budget | None,
        coming: Iterable[Policy],
        importance: Floats | None,
        second: int = 0,
        least: int = 0,
        among: Ids | None = None,
        limits_traps: bool = True,
    ) -> Plan:
        """The plan for the cycle that begins now, with other options, budget, policies or importance where given.

        It begins at `second` if that is later than the ledger's time, and orders no pages but those `among`: `least`
        unread ones, and as many that are due in the cycle, if there are, whatever the bandwidth is.
        `limits_traps`: whether traps and twins get few orders, as in `plan`.
        """
        stated = self._policies.stated
        for policy in coming:
            with suppress(PolicyRefused):
                check(policy, self._config.categories)
                stated = stated.add(policy, FOR_EVER)
        terms = Terms(refresh or self._config.refresh, stated, budget or self.budget())
        surveyed = self._survey(terms, importance, second)
        if not limits_traps:
            surveyed = replace(surveyed, limited=None)
        if among is not None:
            surveyed = replace(surveyed, has_url=surveyed.has_url & self._are_among(surveyed.slots, among))
        schedule, cycle = schedule_pages(surveyed, terms), terms.cycle_seconds
        begin, until = surveyed.second, surveyed.second + cycle
        both, discovery = (
            _whole(per_day, begin, until) for per_day in (terms.budget.per_day, schedule.discovery_per_day)
        )
        most = Most(both, discovery, begin - cycle, begin)
        if least:
            is_free, is_unread = can_be_ordered(surveyed, terms.config), surveyed.decided_by == DISCOVERY
            is_due = (schedule.due >= 0) & (schedule.due < until) & ~is_unread
            unread, due = (min(int((is_free & which).sum()), least) for which in (is_unread, is_due))
            if surveyed.limited is not None:
                unread = min(surveyed.limited.count_in_cycle(is_free & is_unread, due + least, surveyed.second), least)
            refreshed, discovery = max(most.all - most.discovery, due), max(most.discovery, unread)
            most = most._replace(all=refreshed + discovery, discovery=discovery)
        orders = choose_orders(surveyed, schedule, terms, most, self._reader.host_hashes)
        publish = np.flatnonzero(surveyed.has_url).astype(np.int32)  # there may be very many pages
        return Plan(surveyed, schedule, orders, publish)

    def _are_among(self, slots: Array, pages: Ids) -> Bools:
        """Whether the page of each slot is among the pages given."""
        chosen, found = np.zeros(int(slots.max(initial=-1)) + 1, np.bool_), self._reader.slots_of(pages)
        chosen[found[found >= 0]] = True
        are_among: Bools = chosen[slots]
        return are_among

    def plan(self, most_moved: int, least_move: float) -> Plan:
        """The plan for the cycle that begins now. Its shares, its orders and published intervals are kept.

        It may order what the time since the end of the last cycle's fetches to the end of this cycle allows: as a rule
        one cycle, and none twice where cycles grow.
        """
        config, times, stated = self._config.refresh, self._times, self._policies.stated
        surveyed = self._survey(Terms(config, stated, self.budget()))
        self._set_shares(surveyed)
        budget, cycle = self.budget(), self._cycle_seconds(surveyed.second)
        passed = cycle
        if times.planned_second >= 0:
            last_end = times.planned_second + self._cycle_seconds(times.planned_second)
            passed = min(max(surveyed.second + cycle - last_end, 0), cycle)
        until = surveyed.second + cycle - int(config.cycle_hours * 3600)  # limits of hosts are counted one cycle behind
        terms = Terms(replace(config, cycle_hours=cycle / 3600), stated, budget)
        schedule = schedule_pages(surveyed, terms)
        credits, days = self._credits, passed / SECONDS_PER_DAY
        discovery = credits.discovery + schedule.discovery_per_day * days
        both = credits.refresh + credits.discovery + budget.per_day * days
        most = Most(max(int(both), 0), int(discovery), until - passed, until)
        orders = choose_orders(surveyed, schedule, terms, most, self._reader.host_hashes)
        overdrawn = min(both - len(orders.rows), 0.0)  # by requested pages
        credits.discovery = discovery % 1.0
        credits.refresh = (overdrawn or both % 1.0) - credits.discovery  # parts of a fetch are for the next cycle
        if times.policies_changed:
            most_moved = max(most_moved, _LEAST_BY_POLICY, len(surveyed) // _PART_BY_POLICY)
            times.policies_changed = False
        publish = self._to_publish(surveyed, schedule, most_moved, least_move)
        rows = self._room.give_refresh_rows(surveyed.slots[orders.rows])
        table = self._room.table
        table.refresh["ordered"][rows] = min(max(surveyed.second, 1), _MOST_U32)
        table.interval[surveyed.slots[publish]] = packed_intervals(schedule.intervals[publish])
        times.planned_second = surveyed.second
        if config.first_cycle_minutes is not None and times.first_planned_second < 0:
            times.first_planned_second = surveyed.second
        return Plan(surveyed, schedule, orders, publish)

    def _survey(self, terms: Terms, importance: Floats | None = None, least_second: int = 0) -> Survey:
        room, reader, tick_second = self._room, self._reader, self._times.tick_second
        ids, slots = reader.live()
        if importance is None:
            importance = self._importance(slots)
        latest = int(room.table.pages["last_visit_ms"][taken_of(slots)].max()) // 1000 if len(slots) else 0
        if tick_second >= 0:  # a visit far in the future was timed by a wrong clock
            latest = min(latest, tick_second + SECONDS_PER_DAY)
        second = max(tick_second, latest, least_second)
        limits = terms.config.traps == TRAPS[0]
        by_cash = terms.budget.strategy == "greedy" or terms.config.discovery_by == "cash"
        learns = terms.config.discovery_by == "learnt"
        waiting = reader.waiting(slots if by_cash else slots[:0])
        worth = self._unread.worth(importance, slots) if learns else None
        limited = self._find_traps(slots, importance, terms.budget.least_discovery).limited if limits else None
        quality = self._qualities.of(slots)
        slots = slots.astype(np.int32)  # there may be very many pages
        known = PagesKnown(
            table=room.table,
            book=room.book,
            second=second,
            pages=ids,
            slots=slots,
            importance=importance,
            pages_everywhere=reader.pages_everywhere(),
            waiting=waiting,
            hosts_of=reader.host_hashes,
            domains_of=reader.domain_hashes,
            busy=self._busy.waiting(second),
            worth=worth,
            quality=quality,
            limited=limited,
        )
        return survey(known, terms)

    def traps(self, importance: Floats | None = None) -> list[TrapFigures]:
        """Return the traps and twins, those that were fetched most first, by the importance of all pages."""
        _, slots = self._reader.live()
        importance = self._importance(slots) if importance is None else importance
        found = self._find_traps(slots, importance, self.budget().least_discovery)
        return figures_of(found, self._room, self._key, slots, importance)

    def _find_traps(self, slots: Ints, importance: Floats, discovery_share: float) -> FoundTraps:
        return find_traps(self._room, self._key, slots, importance, discovery_share)

    @property
    def _key(self) -> Words:
        return self._peers.shard.page_ids.rules.key

    def _importance(self, slots: Ints) -> Floats:
        """Return the importance of the pages at these slots, which are all."""
        rates, own = self._reader.rates()
        rate_sum = self._reader.rate_sum_everywhere(own)
        importance: Floats = rates[slots] if len(slots) < len(rates) else rates
        importance *= 1.0 / rate_sum if rate_sum > 0 else 0.0
        return importance

    def _set_shares(self, surveyed: Survey) -> None:
        """Recompute the share of every page: importance and policies have changed since the last plan."""
        rows = surveyed.sharing
        alpha = self._config.refresh.alpha
        shares = np.zeros(len(surveyed))
        wanted = surveyed.wanted
        shares[rows] = (wanted.weights * wanted.changes_per_day**alpha) ** (1 / (alpha + 1))
        if wanted.pinned is not None:
            shares[rows[wanted.pinned > 0]] = 0.0
        rate_set = np.zeros(len(surveyed), np.bool_)
        rate_set[rows] = surveyed.known_from[rows] == BY_POLICY
        self._room.give_refresh_rows(surveyed.slots[(shares > 0) | rate_set])
        observations.set_all_shares(self._room.table, self._room.book, surveyed.slots, shares, rate_set)

    def _to_publish(self, surveyed: Survey, schedule: Schedule, most_moved: int, least_move: float) -> Ints:
        """Rows visited since the last plan, and at most `most_moved` whose interval moved by more than `least_move`."""
        published = unpacked_intervals(self._room.table.interval[surveyed.slots])
        intervals = unpacked_intervals(packed_intervals(schedule.intervals))  # rounded as published ones are
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.abs(np.log(intervals / published))
        moved = np.where(np.isnan(moved), 0.0, moved)  # both are infinite
        last_visit = self._room.table.pages["last_visit_ms"][surveyed.slots] // 1000
        visited = surveyed.has_url & (last_visit >= max(self._times.planned_second, 1))
        movers = np.flatnonzero(surveyed.has_url & ~visited & (moved > np.log1p(least_move)))
        best = movers[highest(moved[movers], surveyed.pages[movers], most_moved)]
        publish: Ints = np.sort(np.concatenate((np.flatnonzero(visited), best)))
        return publish
