"""Random logs and configurations for property tests: small webs with every kind of event.

A log is a list of steps: rows of one crawl source, rules and ticks. `entries_of` cuts it into entries anywhere,
for any shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    NO_CATEGORY,
    START,
    Absorbing,
    All,
    CrawlEntry,
    Fixed,
    History,
    ImprovedFixed,
    Interpolation,
    ItemWriter,
    Kind,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PaperInterpolation,
    PolicyEntry,
    TickEntry,
    Variable,
)

PAYING = (Outcome.FETCHED, Outcome.REDIRECTED, Outcome.ALIASED, Outcome.UNCHANGED)
NOT_PAYING = (Outcome.GONE, Outcome.FAILED, Outcome.BLOCKED)


class Row(NamedTuple):
    """A visit, sighting or announcement, and its position in the source of all crawl rows."""

    position: LogPosition
    kind: Kind
    page: int
    links: list[PageLink] | None = None
    outcome: Outcome = Outcome.NONE
    time_ms: int = 0
    category: int = NO_CATEGORY
    url: bytes = b""


class Rules(NamedTuple):
    """A policy entry, without its position."""

    damping: float | None = None
    class_weights: tuple[int, ...] | None = None
    link_bonus_per_1024: tuple[int, ...] | None = None
    drop: tuple[int, ...] = ()
    forget: tuple[int, ...] = ()


class Tick(NamedTuple):
    """A tick."""

    second: int


Step = Row | Rules | Tick
Log = Sequence[Step]
Entries = list[CrawlEntry | PolicyEntry | TickEntry]


# -- configurations ------------------------------------------------------------------------------------------------

windows_turns = st.sampled_from([0.25, 1.0, 2.5, 8.0, 20.0])
windows_days = st.sampled_from([None, None, 0.5, 3.0])
HISTORIES: dict[str, st.SearchStrategy[History]] = {
    "all": st.just(All()),
    "absorbing": st.just(Absorbing()),
    "fixed": st.builds(Fixed, windows_turns, windows_days),
    "improved-fixed": st.builds(ImprovedFixed, windows_turns, windows_days, st.integers(1, 16)),
    "variable": st.builds(Variable, st.integers(1, 16)),
    "paper-interpolation": st.builds(PaperInterpolation, windows_turns, windows_days),
    "interpolation": st.builds(Interpolation, windows_turns, windows_days, st.sampled_from([1.0, 2.0, 3.5])),
}
dampings = st.sampled_from([0.0, 0.5, 0.85, 1.0])


def class_weights(categories: int) -> st.SearchStrategy[tuple[int, ...]]:
    weights = st.sampled_from([16, 16, 0, 1, 48, 65536])
    return st.tuples(*[weights] * (2 * categories)).filter(any)


def link_bonuses(categories: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.sampled_from([0, 0, 1, 100, 1024])] * categories)


@st.composite
def configs(draw: st.DrawFn, policy: str | None = None) -> LedgerConfig:
    """Draw every setting of a ledger, with this history policy or any."""
    categories = draw(st.integers(1, 3))
    ordinary = (16, 16) * categories
    return LedgerConfig(
        history=draw(HISTORIES[policy or draw(st.sampled_from(sorted(HISTORIES)))]),
        damping=draw(st.sampled_from([0.85, 0.85, 0.0, 0.5, 1.0])),
        class_weights=draw(st.just(ordinary) | class_weights(categories)),
        link_bonus_per_1024=draw(st.just((0,) * categories) | link_bonuses(categories)),
        remember_links=draw(st.booleans()),
        newcomer_history=draw(st.sampled_from([True, True, False])),
        cut_visits_per_1000_pages=draw(st.sampled_from([10, 1, 100, 300, 1000])),
        cut_seconds=draw(st.sampled_from([0, 0, 1, 5, 60])),
        remembered_visits=draw(st.sampled_from([1 << 20, 1 << 20, 3, 2, 1, 0])),
    )


# -- logs ----------------------------------------------------------------------------------------------------------


@st.composite
def webs(draw: st.DrawFn, most: int = 12, least: int = 1) -> list[int]:
    """Draw page ids over all 64 bits, so that each of several shards gets some."""
    ids = st.builds(lambda high, low: high << 60 | low, st.integers(0, 15), st.integers(0, 3))
    edges = st.sampled_from([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
    return draw(st.lists(ids | ids | edges, min_size=least, max_size=most, unique=True))


def links_between(web: list[int], categories: int) -> st.SearchStrategy[list[PageLink]]:
    """Draw links of a page: of any weight, repeated, to itself."""
    weight = st.sampled_from([1024, 1024, 1024, 0, 1, 3000, 65535])
    category = st.sampled_from([NO_CATEGORY, NO_CATEGORY, *range(categories)])
    return st.lists(st.builds(PageLink, st.sampled_from(web), weight, category), max_size=5)


def url_of(page: int) -> bytes:
    """Return a URL that occurs in no other bytes."""
    return b"https://example.org/%016x" % page


@st.composite
def logs(
    draw: st.DrawFn,
    categories: int = 1,
    most_steps: int = 40,
    most_pages: int = 12,
) -> list[Step]:
    """Draw visits with every outcome, births of every kind, changes of rules, removed pages, and ticks."""
    web = draw(webs(most_pages))
    page = st.sampled_from(web)
    links = links_between(web, categories)
    times = st.sampled_from([0, 0, 1, 2, 3, 4, 5, 1000])
    category = st.sampled_from([NO_CATEGORY, NO_CATEGORY, *range(categories)])
    outcomes = st.sampled_from([*PAYING, Outcome.FETCHED, Outcome.FETCHED, Outcome.UNCHANGED, *NOT_PAYING])
    some_pages = st.lists(page, max_size=2).map(tuple)
    kinds = st.sampled_from(["visit"] * 14 + ["sighting", "announcement", "rules", "tick"])
    steps: list[Step] = []
    position, second, late = START, draw(st.integers(0, 1 << 31)), 0
    length = draw(st.integers(1, most_steps))  # drawn by itself: lists are short as a rule
    for kind in draw(st.lists(kinds, min_size=length, max_size=length)):
        if kind == "tick":
            second += draw(st.sampled_from([1, 3600, 30_000, 86_400, 200_000, 0, -1]))
            steps.append(Tick(max(second, 0)))
        elif kind == "rules":
            steps.append(
                Rules(
                    draw(st.none() | dampings),
                    draw(st.none() | class_weights(categories)),
                    draw(st.none() | link_bonuses(categories)),
                    draw(some_pages),
                    draw(st.just(()) | some_pages),
                )
            )
        else:
            of = draw(page)
            row = Row(position, Kind.SIGHTING, of, category=draw(category), url=draw(st.booleans()) * url_of(of))
            if kind == "announcement":
                row = row._replace(kind=Kind.ANNOUNCEMENT)
            elif kind == "visit":
                time_ms = draw(times)
                late += 1
                row = row._replace(
                    kind=Kind.VISIT,
                    links=draw(st.none() | links | links | links),
                    outcome=draw(outcomes),
                    # Small times repeat and go backwards; the others go on.
                    time_ms=late * time_ms if time_ms == 1000 else time_ms,
                )
            steps.append(row)
            same_event = draw(st.booleans())
            position = (
                LogPosition(position.offset, position.within + 1) if same_event else LogPosition(position.offset + 1, 0)
            )
    return steps


# -- entries -------------------------------------------------------------------------------------------------------


def in_one(row: int) -> bool:
    """Encode a log as as few entries as possible."""
    return False


def one_by_one(row: int) -> bool:
    """Encode a log as one entry per row."""
    return True


def written(rows: Iterable[Row]) -> ItemWriter:
    """Return rows as columns, each at its position."""
    writer = ItemWriter()
    for row in rows:
        writer.next_position = row.position
        if row.kind == Kind.VISIT:
            writer.visit(row.page, row.links, row.outcome, row.time_ms, row.category, row.url)
        elif row.kind == Kind.SIGHTING:
            writer.sighting(row.page, row.category, row.url)
        else:
            writer.announcement(row.page, row.category, row.url)
    return writer


def entries_of(
    steps: Log, begins: Callable[[int], bool] = in_one, here: Callable[[int], bool] = lambda page: True
) -> Entries:
    """Encode a log as contiguous entries: row i begins a new one if `begins(i)`, or if rules or a tick come before it.

    `here` selects the pages of this shard; rules and ticks are for all.
    """
    entries: Entries = []
    rows: list[Row] = []
    start, count, visits, rules = START, 0, 0, 0
    end = START

    def close(at: LogPosition) -> None:
        nonlocal start, rows, visits
        if rows or at > start:
            visits += sum(row.kind == Kind.VISIT for row in rows)
            entries.append(CrawlEntry("crawl", start, at, written(rows).items(), visits))
        start, rows = at, []

    for step in steps:
        if isinstance(step, Row):
            if rows and begins(count):
                close(step.position)
            count += 1
            end = LogPosition(step.position.offset, step.position.within + 1)
            if here(step.page):
                rows.append(step)
            continue
        close(end)
        if isinstance(step, Tick):
            entries.append(TickEntry(step.second))
        else:
            entries.append(PolicyEntry("policies", LogPosition(rules, 0), LogPosition(rules + 1, 0), *step))
            rules += 1
    close(end)
    return entries
