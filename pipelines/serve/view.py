"""A view: everything that the pages show at one moment, with the table of all pages and the answer that comes first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.ledger.plan.crawl_orders import BY, WHY
from opicflow.pipelines.replay.moments import Moments, PageMoment
from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.books import MOST_REJECTED, Check, Light, light_of, proven_ranks
from opicflow.pipelines.serve.page_policies import policies_of_page
from opicflow.pipelines.serve.page_table import NEVER, RISING, Filter, PageTable
from opicflow.pipelines.stages.publish import PlanFigures
from opicflow.schemas.arrays import Bools, Floats, Ints
from opicflow.schemas.dates import time_ms
from opicflow.schemas.records import Policy

TOP = 10
HISTORY_PAGES = 50
"""Samples of a crawl have the importance of so many pages, the most important ones."""
_BARS = 24
_MOST_MOVERS = 1000
_MOST_HOSTS = 8
_FLOWING = ("FETCHED", "REDIRECTED", "ALIASED")
"""Last outcomes of pages that pass on their cash at their next visit."""
_LEAST_IDLE = 0.00005
_LEAST_MOVED = 0.01
"""A page whose importance has changed by a smaller part of itself is in no list of changes."""
_LEAST_KEY = 1e-300
DAY_MS = 86_400_000
SPANS = (("an hour", 3_600), ("a day", 86_400), ("a week", 604_800))


class RejectExample(NamedTuple):
    """A record that could not be used: why, where it was, and its first bytes as text."""

    reason: str
    detail: str
    where: str
    excerpt: str


class Moment(NamedTuple):
    """The crawl at a time (0 = not known). `top` has the importance of some pages by id: the first ones."""

    time_ms: int
    visits: int
    pages: int
    pages_read: int | None
    idle_share: float | None
    top: dict[int, float]


class Share(NamedTuple):
    """A part of the orders, with its name, how many they are, and the address of its details."""

    name: str
    orders: int
    part: float
    leads_to: str = ""


class Ages(NamedTuple):
    """How long some things have waited: how many there are, since when the first does (in ms), and how many longer."""

    total: int
    since_ms: int | None = None
    seconds: int = 0
    """How long the first one has waited."""
    longer: tuple[tuple[str, int], ...] = ()
    """The number that has waited for more than each of `SPANS`."""


class Bin(NamedTuple):
    """Pages from one score, or time, to another."""

    low: float
    high: float
    pages: int


class Series(NamedTuple):
    """A line of a chart: its name, and its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Live:
    """The state of a stream, and how many of its records are kept here. Times are of the clock, in ms."""

    at_ms: int
    """The time of this view."""
    unread: int = 0
    """The number of records that were published, and are not read here yet."""
    read_part: float = 1.0
    """The part that was read of the records that were in the topics at the start."""
    kept: str = ""
    """Which records are kept, in sentences."""
    problem: str = ""
    """Why no new records arrive; empty if they do."""
    problem_ms: int = 0
    """The time since when none arrive."""


class VisitedPages(NamedTuple):
    """Pages whose last visit was in a time, not counting those of the shorter times before it in the list."""

    when: str
    pages: int
    failed: int
    busy: int
    blocked: int


class Changes(NamedTuple):
    """The differences between two times: how many pages, and the first ones with their importance before."""

    since_ms: int
    until_ms: int
    counts: dict[str, int]
    """By list: risen, fallen, new, gone."""
    pages: dict[str, list[dict[str, object]]]


@dataclass(frozen=True)
class View:
    """Everything that is shown of one moment. `counts` has those of events, None where they are not known."""

    title: str
    source: str
    version: str
    table: PageTable
    counts: dict[str, int | None] = field(default_factory=dict)
    plan: PlanFigures = field(default_factory=PlanFigures)
    known_read: int | None = None
    """The number of pages that were read, by the ledger."""
    certificate: float | None = None
    drift: int | None = None
    refused_policies: int = 0
    history: Sequence[Moment] = ()
    idle: dict[str, float] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    examples: Sequence[RejectExample] = ()
    notes: Sequence[str] = ()
    options: Sequence[tuple[str, str]] = ()
    categories: Sequence[str] | None = None
    """The names of the categories of pages, at the index of their numbers; None: they are not known."""
    known_pages: int | None = None
    """The number of pages of the crawl, where the table has only the most important."""
    checks: Sequence[Check] | None = None
    """The checks of the books, where others than those of a replay are known."""
    live: Live | None = None
    """The state of the stream, if this is one."""
    policies: Sequence[Policy] | None = None
    """The policies in force, in the order in which they were stated; None: they are not known."""
    moments: Moments | None = None
    """The importance of all pages over the crawl, of a state."""

    @property
    def pages(self) -> int:
        """The number of known pages."""
        return len(self.table) if self.known_pages is None else max(self.known_pages, len(self.table))

    @property
    def time_ms(self) -> int:
        """The last time in the log; 0 if it has none."""
        return time_ms(self.table.second or int(self.table.moment.get("event_time_ms") or 0) // 1000)

    def category_name(self, number: int) -> str:
        """The name of a category; its number where names are not known."""
        names = self.categories or ()
        return names[number] if number < len(names) else str(number)

    def prepared(self) -> View:
        """Compute now what several viewers would otherwise compute at the same time; returns itself."""
        _ = self.table.hosts, self.table.domains, self.table.growth, self.light, self.overdue
        _ = (
            self.overdue_ages,
            self.order_ages,
            self.scores,
            self.due,
            self.outcomes,
            self.orders_by_reason,
            self.orders_by_host,
            self.movers("rising"),
        )
        if self.live is None:  # the table of a stream is replaced within seconds: few need indices
            self.table.make_indices()
        return self

    # -- counts -------------------------------------------------------------------------------------------------------

    @property
    def knows_read(self) -> bool:
        """Whether `pages_read` and `waiting` are of the whole crawl, not of the pages that are kept."""
        return self.known_read is not None or self.pages == len(self.table)

    @cached_property
    def pages_read(self) -> int:
        """The number of pages that were read; where that is not known, of those that were visited."""
        return len(self.table) - self.waiting if self.known_read is None else self.known_read

    @cached_property
    def waiting(self) -> int:
        """The number of pages that were never visited."""
        if self.known_pages is not None and self.known_read is not None:
            return max(self.pages - self.known_read, 0)
        return int(np.count_nonzero(self.table.columns["visits"] == 0))

    @cached_property
    def overdue(self) -> int:
        """The number of pages that should have been fetched before the time of the plan."""
        return int(np.count_nonzero(self.table.overdue)) if len(self.table) else 0

    @cached_property
    def overdue_ages(self) -> Ages:
        """For how long pages are overdue."""
        table = self.table
        return _ages(table.columns["due_second"][table.overdue], table.second) if len(table) else Ages(0)

    @cached_property
    def order_ages(self) -> Ages:
        """How long orders wait: by the clock for a stream, by the last time in the log otherwise."""
        made = self.table.orders.get("ordered_second", np.zeros(0, np.int64))
        return _ages(made, self.live.at_ms // 1000 if self.live is not None else self.table.second)

    @cached_property
    def default_histories(self) -> int:
        """The number of pages that rest on the default history of a new page."""
        return int(len(self.table) - np.count_nonzero(self.table.columns["measured"])) if len(self.table) else 0

    def importance_of_first(self, count: int) -> float:
        """The importance of the first pages together."""
        return float(self.table.columns["importance"][:count].sum()) if len(self.table) else 0.0

    @property
    def lost_events(self) -> int | None:
        """The number of events that were read and are in no count; None where the counts are not known."""
        parts = [self.counts.get(name) for name in ("visits", "announcements", "rejects", "duplicates")]
        read = self.counts.get("events_read")
        known = [part for part in parts if part is not None]
        return None if read is None or len(known) < len(parts) else read - sum(known)

    @property
    def rejected_part(self) -> float:
        """The part of all events that could not be used."""
        read, rejects = self.counts.get("events_read"), self.counts.get("rejects")
        return rejects / read if read and rejects else 0.0

    # -- the answer ---------------------------------------------------------------------------------------------------

    @cached_property
    def light(self) -> Light:
        """Whether the figures can be trusted, and why."""
        checks = _checks_of(self) if self.checks is None else self.checks
        return light_of(checks, len(self.table) > 0, self.is_stopped)

    @property
    def is_stopped(self) -> bool:
        """Whether this is a stream that has pages, and counts nothing any more. Without brokers that is not known."""
        failing = {check.name for check in self.checks or () if check.is_right is False}
        return len(self.table) > 0 and bool(failing & {"Workers", "Clock"}) and "Brokers" not in failing

    # -- charts and tables --------------------------------------------------------------------------------------------

    @cached_property
    def orders_by_reason(self) -> list[Share]:
        """How the next cycle uses the bandwidth: by why a page is ordered."""
        orders = self.table.orders
        if "why" not in orders:
            return []
        by = orders["by"].tolist() if "by" in orders else [0] * len(orders["why"])
        counted = Counter(
            wording.WHY[WHY[why]] + {"exploring": ", to explore"}.get(BY[how], "")
            for why, how in zip(orders["why"].tolist(), by, strict=True)
        )
        total = max(sum(counted.values()), 1)
        return [Share(name, count, count / total) for name, count in counted.most_common()]

    @cached_property
    def orders_by_host(self) -> list[Share]:
        """How the next cycle uses the bandwidth: by host, the one with most orders first."""
        total = max(len(self.table.order_rows), 1)
        hosts = [one for one in self.table.hosts if one.ordered]
        first = nsmallest(_MOST_HOSTS, hosts, key=lambda one: (-one.ordered, one.name))
        shares = [Share(one.name, one.ordered, one.ordered / total, f"/host/{one.name}") for one in first]
        rest = sum(one.ordered for one in hosts) - sum(one.ordered for one in first)
        elsewhere = len(self.table.order_rows) - sum(one.ordered for one in hosts)
        other_hosts = len(hosts) - len(first)
        others = [
            (f"{other_hosts:,} other host{'s' if other_hosts != 1 else ''}", rest),
            ("of pages that are not kept here", elsewhere),
        ]
        return shares + [Share(name, orders, orders / total) for name, orders in others if orders]

    @cached_property
    def fresh_by_schedules(self) -> float | None:
        """The part of importance on read pages that is fresh, by intervals and change rates; None: it is not known."""
        if not self.table.has_schedules:
            return None
        columns = self.table.columns
        rows = np.flatnonzero((columns["visits"] > 0) & (columns["decided_by"] > 0))
        interval, importance = columns["interval_seconds"][rows].astype(np.float64), columns["importance"][rows]
        is_fetched = np.isfinite(interval) & (interval > 0)  # again
        changes = columns["changes_per_day"][rows] * np.where(is_fetched, interval, 0.0) / 86_400
        fresh = is_fetched * np.where(changes > 1e-9, -np.expm1(-changes) / np.maximum(changes, 1e-9), 1.0)
        known = float(importance.sum())
        return float((importance * fresh).sum()) / known if known > 0 else None

    @cached_property
    def scores(self) -> list[Bin]:
        """The number of pages by score, on a log scale."""
        scores = self.table.columns["score"]
        positive = scores[scores > 0]
        if not len(positive):
            return []
        low, high = np.log10(positive.min()), np.log10(positive.max())
        edges = 10 ** np.linspace(low - 1e-9, max(high, low + 0.1) + 1e-9, _BARS + 1)
        counts, _ = np.histogram(positive, edges)
        rows = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        return [Bin(low, high, pages) for low, high, pages in rows]

    @cached_property
    def due(self) -> list[tuple[str, int]]:
        """The number of pages by when they are due, seen from the time of the plan."""
        return self._due_of(np.ones(len(self.table), np.bool_))

    def due_of(self, by: str, name: str) -> list[tuple[str, int]]:
        """The same for the pages of a host or domain."""
        return self._due_of(self.table.is_of_site(by, name))

    def _due_of(self, are_counted: Bools) -> list[tuple[str, int]]:
        if not self.table.has_schedules or not self.table.second:
            return []
        due, day = self.table.columns["due_second"], 86400.0
        is_read = self.table.columns["visits"] > 0
        scheduled = are_counted & is_read & (self.table.columns["decided_by"] > 0)
        ahead = (due - self.table.second)[scheduled & (due > 0)]
        edges = [("overdue", -math.inf, 0.0), ("within a day", 0.0, day), ("2 to 3 days", day, 3 * day)]
        edges += [("4 to 7 days", 3 * day, 7 * day), ("8 to 30 days", 7 * day, 30 * day)]
        edges += [("later", 30 * day, math.inf)]
        counts = [(name, int(((ahead >= low) & (ahead < high)).sum())) for name, low, high in edges]
        never = int((scheduled & (due == NEVER)).sum())
        unread = int((are_counted & ~is_read).sum())
        return [*counts, ("not again", never), ("waiting to be read", unread)]

    @cached_property
    def outcomes(self) -> list[tuple[str, int]]:
        """How the last visits of all pages ended."""
        return _named_outcomes(np.bincount(self.table.columns["last_outcome"].astype(np.int64)))

    def outcomes_of(self, by: str, name: str) -> list[tuple[str, int]]:
        """How the last visits of the pages of a host or domain ended."""
        outcomes = self.table.columns["last_outcome"][self.table.is_of_site(by, name)]
        return _named_outcomes(np.bincount(outcomes.astype(np.int64)))

    def visits_of(self, by: str, name: str) -> list[VisitedPages]:
        """When the pages of a host or domain were last visited, and how many visits found no answer."""
        of_site = self.table.is_of_site(by, name)
        visited = self.table.columns["last_visit_ms"][of_site]
        outcomes = self.table.columns["last_outcome"][of_site]
        end = max(self.time_ms, int(visited.max(initial=0)))
        rows, later = list[VisitedPages](), end + 1
        for span, seconds in (*((f"the last {span.split()[1]}", seconds) for span, seconds in SPANS), ("before", 0)):
            begin = max(end - 1000 * seconds, 1) if seconds else 1
            some = outcomes[(visited >= begin) & (visited < later)]
            counts = [int(np.count_nonzero(some == one)) for one in (Outcome.FAILED, Outcome.BUSY, Outcome.BLOCKED)]
            rows.append(VisitedPages(span, len(some), *counts))
            later = begin
        return rows if len(visited) and visited.any() else []

    def policies_of(self, row: int) -> list[dict[str, object]] | None:
        """The policies that are about the page at a row, the latest first; None: they are not known."""
        if self.policies is None:
            return None
        table = self.table
        return policies_of_page(self.policies, table.url(row), table.host(row), int(table.columns["category"][row]))

    def sampled(self, page: int) -> list[tuple[int, float]]:
        """The importance of a page in the samples of the crawl: (time in ms, or visits where times are not known)."""
        return [(self.at(one), one.top[page]) for one in self.history if page in one.top]

    def history_of(self, page: int) -> list[tuple[int, float]]:
        """The importance of a page over the crawl, in samples and at the moments that are kept of all pages."""
        kept = self.moments.of_page(page) if self.moments is not None else []
        return sorted({**{self.at(one): one.importance for one in kept}, **dict(self.sampled(page))}.items())

    def at(self, one: Moment | PageMoment) -> int:
        """The position of a moment on the axis of the crawl: its time, or its visits."""
        return one.time_ms if self.has_times else one.visits

    @cached_property
    def has_times(self) -> bool:
        """Whether every moment has a time, so that the axis can be one of time."""
        times = [one.time_ms for one in self.history]
        return all(map(wording.iso, times)) and len(set(times)) > 1

    @property
    def period(self) -> str:
        """From when to when the crawl ran, as far as is known."""
        days = [at[:10] for one in self.history if (at := wording.iso(one.time_ms))]
        ends = sorted({*days[:1], *days[-1:], wording.iso(self.time_ms)[:10]} - {""})
        return "" if not ends else ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"

    def movers(self, which: str, count: int = 6) -> list[dict[str, object]]:
        """The pages that rise or fall fastest among the first thousand: far down every change is large."""
        wanted = Filter(rising=which == "rising", falling=which == "falling")
        growth = self.table.growth[:_MOST_MOVERS] * (1 if wanted.rising else -1)
        rows = np.argsort(-growth, kind="stable")[:count]
        return [self.table.record(int(row)) for row in rows if growth[row] > RISING]

    @property
    def compared_times(self) -> list[int]:
        """The times that can be compared, the last one that of this view; at most one if nothing is kept."""
        kept = [] if self.moments is None else self.moments.times
        return [*sorted({time for time in kept if 0 < time < self.time_ms}), self.time_ms]

    def changes(self, since_ms: int, until_ms: int, count: int) -> Changes:
        """Compare two of the times. A page is new if it was not known before, gone if its server answered so since."""
        columns = self.table.columns
        before = self._importance_at(since_ms)
        after = self._importance_at(until_ms)
        visited = columns["last_visit_ms"]
        are_gone = (columns["last_outcome"] == Outcome.GONE) & (visited > since_ms) & (visited <= until_ms)
        was_known, is_known = ~np.isnan(before), ~np.isnan(after)
        moved = np.where(was_known & is_known & ~are_gone, after - before, 0.0)
        limit = _LEAST_MOVED * before
        keys = {
            "risen": np.where(moved > limit, moved, 0.0),
            "fallen": np.where(moved < -limit, -moved, 0.0),
            "new": np.where(is_known & ~was_known, np.maximum(after, _LEAST_KEY), 0.0),
            "gone": np.where(are_gone & was_known, np.maximum(before, _LEAST_KEY), 0.0),
        }
        pages: dict[str, list[dict[str, object]]] = {}
        for name, key in keys.items():
            listed = np.flatnonzero(key)  # few of very many pages
            shown = listed[np.argsort(-key[listed], kind="stable")][:count].tolist()
            pages[name] = [self._compared(row, float(before[row]), float(after[row])) for row in shown]
        return Changes(since_ms, until_ms, {name: int(np.count_nonzero(key)) for name, key in keys.items()}, pages)

    def _importance_at(self, time_ms: int) -> Floats:
        if time_ms == self.time_ms or self.moments is None:
            return self.table.columns["importance"].astype(np.float64)
        return self.moments.importance_at(time_ms, self.table.ids)

    def _compared(self, row: int, before: float, after: float) -> dict[str, object]:
        known = {"before": before, "after": after}
        return self.table.record(row) | {name: None if math.isnan(one) else one for name, one in known.items()}

    @cached_property
    def top_series(self) -> list[Series]:
        """The importance of the first pages over the crawl, a line each."""
        rows = range(min(TOP, len(self.table)))
        series = [Series(self.table.url(row), self.sampled(int(self.table.ids[row]))) for row in rows]
        return series if len(self.history) > 1 and any(len(one.points) > 1 for one in series) else []

    @cached_property
    def discovery_series(self) -> list[Series]:
        """Pages known and pages read over the crawl."""
        if len(self.history) < 2:
            return []
        known = Series("known", [(self.at(one), one.pages) for one in self.history])
        read = Series("read", [(self.at(one), one.pages_read) for one in self.history if one.pages_read is not None])
        return [known, read] if read.points else [known]

    def idle_rows(self) -> list[tuple[str, float]]:
        """By last outcome, the part of all cash that waits on pages that do not pass it on."""
        held = ((name, part) for name, part in self.idle.items() if name not in _FLOWING and part >= _LEAST_IDLE)
        return sorted(held, key=lambda one: -one[1])


def _checks_of(view: View) -> Iterator[Check]:
    """Yield the checks of a state or of results."""
    yield _cash(view.drift)
    yield _events(view.lost_events, view.counts.get("events_read"))
    if view.rejected_part:
        detail = f"{wording.percent(view.rejected_part)} of the events could not be used"
        yield Check("Rejects", view.rejected_part < MOST_REJECTED, detail)
    if view.refused_policies:
        yield Check("Policies", False, f"{view.refused_policies:,} were refused")
    yield _estimated_ranks(view) if view.certificate is None else proven_ranks(view.certificate)
    if view.plan.get("why"):
        yield Check("Plan", bool(view.plan.get("feasible")), str(view.plan["why"]))


def _cash(drift: int | None) -> Check:
    if drift is None:
        return Check("Cash", None, "these files do not say whether cash is missing")
    if drift:
        return Check("Cash", False, f"{drift:,} units are missing: this is a bug, please report it")
    return Check("Cash", True, "not one unit of cash is missing")


def _events(lost: int | None, read: int | None) -> Check:
    if lost is None or read is None:
        return Check("Events", None, "how many were read is not known")
    if lost:
        return Check("Events", False, f"{lost:,} of {read:,} are in no count")
    return Check("Events", True, f"all {read:,} that were read are accounted for")


def _estimated_ranks(view: View) -> Check:
    detail = "estimated, without a proof"
    if view.default_histories:
        part = view.default_histories / max(len(view.table), 1)
        detail += f"; {wording.percent(part)} of the pages were visited too rarely to be measured"
    return Check("Ranks", None, detail)


def _named_outcomes(counts: Ints) -> list[tuple[str, int]]:
    named = [(Outcome(i).name, count) for i, count in enumerate(counts.tolist()) if count]
    return sorted(named, key=lambda one: -one[1])


def _ages(seconds: Ints, now: int) -> Ages:
    known = seconds[seconds > 0]
    if not len(known):
        return Ages(len(seconds))
    first = int(known.min())
    longer = tuple((name, int(np.count_nonzero(known < now - span))) for name, span in SPANS)
    return Ages(len(seconds), time_ms(first), max(now - first, 0), longer)
