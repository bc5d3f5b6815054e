"""The cost of each refresh strategy: writes the plots and tables of docs/results/refresh-strategies.md.

Run it with `python benchmarks/refresh_costs.py`. Everything has a seed: the same command writes the same bytes.

Three kinds of figures. *Computed* ones share a bandwidth among the pages of a large made-up web whose importance and
change rates are known. *Bounded* ones do so with news sites, with and without the bound of a domain. *Measured* ones
are of a simulation: an empty ledger crawls a small changing web for a year by its own orders, and the cost of its
copies is counted from the changes that really happened.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.lab.web.change_rates import log_normal_rates
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import (
    START,
    CrawlEntry,
    Kind,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.refresh.rate_prior import PRIORS
from opicflow.pipelines.refresh.strategies import (
    BY_RATES,
    STRATEGIES,
    Costs,
    Demand,
    costs,
    freshness_range,
    solve,
    solve_within_shares,
)
from opicflow.schemas.arrays import Bytes, Floats, Ids, Ints
from opicflow.schemas.pages import page_ids
from opicflow.schemas.records import Policy

SEED = 1
ALPHA = 0.95
DAMPING = 0.85

_DAY = 86_400
_START = 20_000 * _DAY  # a day in 2024


# -- a web that changes ------------------------------------------------------------------------------------------------

DIGEST, DATED, NOT_MODIFIED, ALWAYS_NOW, NEVER_CHANGES = range(5)
"""The answers of servers: the content alone; also a true date; 304 if unchanged; one of two kinds of false dates."""
_SERVERS = (0.5, 0.25, 0.1, 0.075, 0.075)
_FAILING, _FAILS = 0.1, 0.15  # a tenth of the pages fails at every seventh visit
_GONE = 0.02


@dataclass(frozen=True)
class ChangingWeb:
    """Pages with known importance that change at known times, as Poisson processes."""

    seed: int
    graph: Graph
    urls: list[bytes]
    ids: Ids
    weights: Floats
    """Exact PageRank; 0 for pages that will be gone. Sums to 1."""
    rates: Floats
    """Changes a day."""
    servers: Bytes
    fails: Floats
    """How likely a visit fails."""
    gone_second: Ints
    changes: Ints
    """The seconds of all changes, page by page in order; each page has one before the beginning."""
    starts: Ints
    """Where the changes of each page begin, and at last how many there are."""

    def latest(self, numbers: Ints, seconds: Ints) -> Ints:
        """Return the row in `changes` of the latest change of each page up to a second."""
        keys = self.changes - _START + (np.repeat(np.arange(len(self.ids)), np.diff(self.starts)) << 36) + (1 << 35)
        wanted = seconds - _START + (numbers << 36) + (1 << 35)
        indices: Ints = np.searchsorted(keys, wanted, side="right") - 1
        return indices


def changing_web(pages: int, seed: int, days: int) -> ChangingWeb:
    """A small power-law web whose pages change for so many days."""
    random = np.random.default_rng((seed, pages))
    graph = power_law_web(pages, seed, mean_links=min(8.0, pages / 4))
    urls = [b"https://site%d.example/page/%d" % (number % 40, number) for number in range(pages)]
    rates = log_normal_rates(random, pages)
    gone = np.full(pages, np.iinfo(np.int64).max)
    going = random.choice(pages, max(2, round(_GONE * pages)), replace=False)
    gone[going] = _START + (random.random(len(going)) * days * _DAY).astype(np.int64)
    gone[going[::2]] = 0  # half of the gone pages were never fetched
    pieces = []
    for rate in rates.tolist():
        number = random.poisson(rate * days)
        before = -random.exponential(1 / rate)
        pieces.append(np.concatenate(([before], np.sort(random.random(number) * days))))
    weights = pagerank(graph, DAMPING).values
    weights = np.where(gone == np.iinfo(np.int64).max, weights, 0.0)
    return ChangingWeb(
        seed=seed,
        graph=graph,
        urls=urls,
        ids=page_ids(urls),
        weights=weights / weights.sum(),
        rates=rates,
        servers=random.choice(len(_SERVERS), pages, p=_SERVERS).astype(np.uint8),
        fails=np.where(random.random(pages) < _FAILING, _FAILS, 0.0),
        gone_second=gone,
        changes=_START + (np.concatenate(pieces) * _DAY).astype(np.int64),
        starts=np.concatenate(([0], np.cumsum([len(piece) for piece in pieces]))),
    )


# -- a crawler that follows orders -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crawled:
    """A crawl by the orders of a ledger: all its visits in order, and the ledger at its end."""

    web: ChangingWeb
    ledger: Ledger
    days: int
    numbers: Ints
    seconds: Ints
    outcomes: Bytes
    planned_seconds: Floats
    """The interval that the plan gave the page when it was ordered; inf where it was found, or had failed."""
    lateness_seconds: Ints
    """How long after its due time it was fetched."""
    per_day: Ints
    """Fetches of each day."""
    orders_digest: str
    """Of the bytes of all orders."""


def crawl(
    web: ChangingWeb,
    strategy: str,
    bandwidth: float,
    days: int,
    longest_interval_days: float = 3650.0,
    rates_are_published: bool = False,
    rate_prior: str = "learnt",
) -> Crawled:
    """Crawl the web by the orders of a new ledger, a cycle a day, each at its time.

    All pages are announced first. Where rates are published the ledger has nothing to learn of change.
    """
    refresh = RefreshConfig(
        strategy=strategy,
        bandwidth_per_day=bandwidth,
        shortest_interval_seconds=float(_DAY),
        longest_interval_days=longest_interval_days,
        rate_prior=rate_prior,
    )
    ledger = Ledger(LedgerConfig(remember_links=True, refresh=refresh))
    entry = announcements(web.ids)
    ledger.apply(replace(entry, items=replace(entry.items, **_urls(web, np.arange(len(web.ids))))))
    offset = entry.end.offset
    if rates_are_published:
        stated = tuple(
            Policy(url=url.decode(), changes_per_day=rate)
            for url, rate in zip(web.urls, web.rates.tolist(), strict=True)
        )
        ledger.apply(PolicyEntry("people", START, LogPosition(1, 0), policies=stated))
    random = np.random.default_rng((web.seed, 2))
    order = np.argsort(web.ids)
    digest = hashlib.sha256()
    found: list[tuple[Ints, Ints, Bytes, Floats, Ints]] = []
    for day in range(days):
        ledger.apply(TickEntry(_START + day * _DAY))
        planned = ledger.plan(most_moved=len(web.ids), least_move=0.1)
        orders = planned.orders
        ids = planned.survey.pages[orders.rows]
        for column in (ids, orders.why, orders.priority, orders.not_before):
            digest.update(np.ascontiguousarray(column).tobytes())
        first = np.lexsort((ids, orders.not_before))
        ids, seconds, rows = ids[first], orders.not_before[first], orders.rows[first]
        numbers = order[np.searchsorted(web.ids[order], ids)]
        outcomes = _outcomes(web, numbers, seconds, random.random(len(numbers)))
        entry = _visits(web, numbers, seconds, outcomes, offset, ledger)
        ledger.apply(entry)
        offset = _sight_links(web, numbers, entry.end.offset, ledger)
        intervals = np.where(planned.survey.retry_seconds[rows] > 0, np.inf, planned.schedule.intervals[rows])
        found.append((numbers, seconds, outcomes, intervals, seconds - planned.schedule.due[rows]))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    per_day = np.array([len(numbers) for numbers, *_ in found])
    return Crawled(web, ledger, days, *columns, per_day, digest.hexdigest())


def _outcomes(web: ChangingWeb, numbers: Ints, seconds: Ints, chance: Floats) -> Bytes:
    outcomes = np.where(chance < web.fails[numbers], Outcome.FAILED, Outcome.FETCHED)
    return np.where(seconds >= web.gone_second[numbers], Outcome.GONE, outcomes).astype(np.uint8)


def _visits(web: ChangingWeb, numbers: Ints, seconds: Ints, outcomes: Bytes, offset: int, ledger: Ledger) -> CrawlEntry:
    """Return the servers' answers. Some answer "not modified" if the crawler has the current page."""
    latest = web.latest(numbers, seconds)
    changed, servers = web.changes[latest], web.servers[numbers]
    here = outcomes == Outcome.FETCHED
    last_visit = ledger.estimate(web.ids[numbers])
    seen = (last_visit.last_outcome == Outcome.FETCHED) | (last_visit.last_outcome == Outcome.UNCHANGED)
    unmoved = seen & (changed * 1000 <= last_visit.last_visit_ms)
    outcomes[here & (servers == NOT_MODIFIED) & unmoved] = Outcome.UNCHANGED
    content = (latest.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    dates = np.select(
        [servers == DATED, servers == ALWAYS_NOW, servers == NEVER_CHANGES],
        [changed, seconds, np.full(len(numbers), _START - 500 * _DAY)],
        0,
    )
    here = outcomes == Outcome.FETCHED
    entry = visits(web.graph, web.ids, numbers, offset, outcomes, seconds * 1000)
    items = replace(
        entry.items,
        digest=np.where(here, content, np.uint64(0)),
        modified_ms=np.where(here, dates * 1000, 0),
        **_urls(web, numbers),
    )
    return replace(entry, items=items)


def _sight_links(web: ChangingWeb, numbers: Ints, offset: int, ledger: Ledger) -> int:
    """Send the URLs of links: so the ledger learns the URLs of removed pages that came back with their cash."""
    unknown = np.flatnonzero(np.diff(ledger.urls(web.ids)[0]) == 0)
    linked = [web.graph.targets[web.graph.starts[page] : web.graph.starts[page + 1]] for page in numbers.tolist()]
    unknown = unknown[np.isin(unknown, np.concatenate([unknown[:0], *linked]))]
    entry = announcements(web.ids[unknown], Kind.SIGHTING, offset)
    ledger.apply(replace(entry, items=replace(entry.items, **_urls(web, unknown))))
    return entry.end.offset


def _urls(web: ChangingWeb, numbers: Ints) -> dict[str, npt.NDArray[np.int64] | Bytes]:
    texts = [web.urls[number] for number in numbers.tolist()]
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return {"url_starts": starts, "url_bytes": np.frombuffer(b"".join(texts), np.uint8).copy()}


# -- what its copies cost ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Means over time and, weighted by importance, over pages; from a day on when every page had been read."""

    obsolescence: float
    """(λt)^alpha of copies t old, by true rates."""
    missed: float
    """Changes that happened since the page was fetched."""
    freshness: float
    """The share of copies that are as the page is."""
    oldest_days: float
    """The age of the oldest copy there ever was."""
    fetches_per_day: float


def measure(crawled: Crawled, since_day: int) -> Measured:
    """Return the cost of a crawl's copies from this day to its end, from the true changes."""
    web = crawled.web
    pages = len(web.ids)
    begin, end = _START + since_day * _DAY, _START + crawled.days * _DAY
    came = np.isin(crawled.outcomes, (Outcome.FETCHED, Outcome.UNCHANGED))
    # As if every page was read at the beginning: that matters for those alone that were not read for a long time.
    numbers = np.concatenate((np.arange(pages), crawled.numbers[came]))
    seconds = np.concatenate((np.full(pages, _START), crawled.seconds[came]))
    order = np.lexsort((seconds, numbers))
    numbers, seconds = numbers[order], seconds[order]
    is_last = np.append(numbers[1:] != numbers[:-1], True)
    until = np.where(is_last, end, np.append(seconds[1:], end))
    kept = (until > begin) & (web.weights[numbers] > 0)
    numbers, seconds, until = numbers[kept], seconds[kept], until[kept]
    since = np.maximum(seconds, begin)
    weights, rates = web.weights[numbers], web.rates[numbers]

    power = ALPHA + 1
    grown = ((until - seconds) / _DAY) ** power - ((since - seconds) / _DAY) ** power
    obsolescence = weights * rates**ALPHA * grown / power
    at_fetch, at_since, at_until = (web.latest(numbers, when) for when in (seconds, since, until))
    sums = np.concatenate(([0.0], np.cumsum((web.changes - _START) / _DAY)))
    in_time = (at_until - at_since) * (until - _START) / _DAY - (sums[at_until + 1] - sums[at_since + 1])
    missed = weights * ((at_since - at_fetch) * (until - since) / _DAY + in_time)
    followed = np.append(web.changes, end)[at_fetch + 1]
    next_change = np.where(at_fetch + 1 < web.starts[numbers + 1], followed, end)
    fresh = weights * np.maximum(np.minimum(next_change, until) - since, 0) / _DAY
    days = (end - begin) / _DAY
    return Measured(
        float(obsolescence.sum()) / days,
        float(missed.sum()) / days,
        float(fresh.sum()) / days,
        float((until - seconds).max()) / _DAY,
        float(crawled.per_day[since_day:].mean()),
    )


def known_costs(web: ChangingWeb, strategy: str, bandwidth: float) -> Costs:
    """Return the cost of a strategy with true importance and true rates."""
    alive = web.weights > 0
    wanted = Demand(web.weights[alive], web.rates[alive], most=np.ones(int(alive.sum())))
    return costs(wanted, solve(strategy, wanted, bandwidth, ALPHA).frequencies, ALPHA)


# -- computed: cost against bandwidth ----------------------------------------------------------------------------------

PAGE = Path("docs/results/refresh-strategies.md")
PAGES = 100_000
LINKS = 10
DAYS_IN_TABLES = (100, 30, 10, 3)
_MOST_DAYS, _POINTS = 300, 25
LONGEST_DAYS = 365
LINES = {
    "thesis": "thesis",
    "freshness": "freshness",
    "harmonic": "harmonic",
    "importance": "importance, greedy",
    "uniform": "uniform",
}
"""The strategies whose frequencies differ, and their labels."""


@dataclass(frozen=True)
class LargeWeb:
    """Importance and change rates of many pages, both known."""

    weights: Floats
    rates: Floats

    def costs(self, strategy: str, days: float, longest_days: float = LONGEST_DAYS) -> Costs:
        """Return the cost of fetching each page once in so many days in the mean."""
        pages = len(self.weights)
        wanted = Demand(self.weights, self.rates, least=np.full(pages, 1 / longest_days), most=np.full(pages, 24.0))
        return costs(wanted, solve(strategy, wanted, pages / days, ALPHA).frequencies, ALPHA)


def large_web(pages: int) -> LargeWeb:
    """Exact PageRank of a power-law web; rates have nothing to do with it."""
    ranks = pagerank(power_law_web(pages, SEED, mean_links=min(LINKS, pages / 4)), DAMPING).values
    return LargeWeb(ranks, log_normal_rates(np.random.default_rng(SEED), pages))


def computed_tables(web: LargeWeb) -> Iterator[str]:
    """A table of every measure."""
    found = {(name, days): web.costs(name, days) for name in LINES for days in DAYS_IN_TABLES}
    never = {(name, days): web.costs(name, days, np.inf) for name in LINES for days in DAYS_IN_TABLES}
    pages = len(web.weights)
    head = ["fetches a day", *(f"{pages / days:,.0f}" for days in DAYS_IN_TABLES)]
    for title, cell in {
        "**Obsolescence**: the mean of `(λt)^0.95`, about how many changes a copy lags behind. Less is better.": (
            lambda key: _figure(found[key].obsolescence)
        ),
        "**Freshness**: the share of copies that are up to date, in per cent. More is better.": (
            lambda key: _figure(100 * found[key].freshness)
        ),
        "**Harmonic staleness**: the mean of `ln(1 + λ/f)`. Less is better.": (
            lambda key: _figure(found[key].harmonic_staleness)
        ),
        "**Pages that are never refreshed**, without a longest interval.": (
            lambda key: f"{never[key].never_refreshed:,}"
        ),
    }.items():
        yield f"{title}\n"
        rows = [[label, *(cell((name, days)) for days in DAYS_IN_TABLES)] for name, label in LINES.items()]
        yield from _table(head, rows)


def _figure(value: float) -> str:
    return f"{value:.3f}" if value < 0.0995 else f"{value:.2f}" if value < 9.95 else f"{value:.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "| --- |" + " ---: |" * (len(head) - 1)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


# -- plots -------------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 800, 480
_TOP, _BOTTOM = 66, 70
_STYLE = """\
  <style>
    .paper { fill: #ffffff } .ink { fill: #24292f } .faint { fill: #57606a } .grid { stroke: #d8dee4 }
    .thesis { --c: #0b5cad } .freshness { --c: #b35900 } .harmonic { --c: #1a7f37 } .importance { --c: #8250df }
    .uniform { --c: #6e7781 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d }
      .thesis { --c: #58a6ff } .freshness { --c: #f0883e } .harmonic { --c: #56d364 } .importance { --c: #d2a8ff }
      .uniform { --c: #b1bac4 }
    }
    text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
    .title { font-size: 16px; font-weight: 600 }
    polyline { fill: none; stroke: var(--c); stroke-width: 2.5; stroke-linejoin: round }
    .name { fill: var(--c); font-weight: 600 }
    .lead { stroke: var(--c); stroke-width: 1 }
  </style>"""


@dataclass(frozen=True)
class Plot:
    """Lines by strategy against bandwidth, whose axis is logarithmic. Every line bears its name at one of its ends."""

    title: str
    y_title: str
    ticks: tuple[tuple[float, str], ...]
    """Of the upright axis, from its lower to its upper end."""
    is_log: bool
    names_at_end: bool

    def svg(self, pages: int, days: Floats, lines: dict[str, Floats]) -> str:
        """The plot of lines, given for so many days between two fetches of a page in the mean."""
        left, right = (64, 180) if self.names_at_end else (230, 40)
        low, high = self._up(self.ticks[0][0]), self._up(self.ticks[-1][0])

        def across(each: float) -> float:
            share = np.log(days[0] / each) / np.log(days[0] / days[-1])
            return float(left + share * (_WIDTH - left - right))

        def upright(value: float) -> float:
            return float(_HEIGHT - _BOTTOM - (self._up(value) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM))

        edge = 64
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{self.title}">',
            _STYLE,
            f'  <rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
            f'  <text class="ink title" x="16" y="26">{self.title}</text>',
            f'  <text class="faint" x="16" y="44">{self.y_title}</text>',
        ]
        for value, label in self.ticks:
            y = upright(value)
            parts.append(f'  <line class="grid" x1="{edge}" x2="{_WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'  <text class="faint" x="{edge - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        for each in (300, 100, 30, 10, 3, 1):
            x = across(each)
            parts.append(f'  <line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
            for y, label in ((20, f"{pages / each:,.0f}"), (38, f"{each} day{'s' * (each > 1)}")):
                parts.append(
                    f'  <text class="{"ink" if y == 20 else "faint"}" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + y}" '
                    f'text-anchor="middle">{label}</text>'
                )
        parts.append(
            f'  <text class="faint" x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"fetches a day for {pages:,} pages, and how often that is once a page</text>"
        )
        for name, values in lines.items():
            points = " ".join(f"{across(d):.1f},{upright(v):.1f}" for d, v in zip(days.tolist(), values, strict=True))
            parts.append(f'  <polyline class="{name}" points="{points}"/>')
        end = -1 if self.names_at_end else 0
        wanted = {name: upright(float(values[end])) for name, values in lines.items()}
        x, way = (_WIDTH - right, 1) if self.names_at_end else (left, -1)
        for name, y in _apart(wanted, 17.0).items():
            parts.append(
                f'  <line class="{name} lead" x1="{x + 3 * way}" x2="{x + 14 * way}" '
                f'y1="{wanted[name]:.1f}" y2="{y:.1f}"/>'
            )
            anchor = "start" if self.names_at_end else "end"
            parts.append(
                f'  <text class="{name} name" x="{x + 18 * way}" y="{y + 4:.1f}" text-anchor="{anchor}">'
                f"{LINES[name]}</text>"
            )
        return "\n".join([*parts, "</svg>", ""])

    def _up(self, value: float) -> float:
        return float(np.log(value)) if self.is_log else value


def _apart(wanted: dict[str, float], least: float) -> dict[str, float]:
    """Return positions near the wanted ones, at least `least` apart."""
    names = sorted(wanted, key=lambda name: wanted[name])
    heights = [wanted[name] for name in names]
    for _ in range(200):
        for i, j in pairwise(range(len(heights))):
            lack = least - (heights[j] - heights[i])
            if lack > 0:
                heights[i] -= lack / 2
                heights[j] += lack / 2
    return dict(zip(names, heights, strict=True))


COST_PLOT = Plot(
    "What copies cost, by strategy",
    "obsolescence: about how many changes a copy lags behind, weighted by importance (less is better)",
    tuple((value, f"{value:g}") for value in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)),
    is_log=True,
    names_at_end=True,
)
FRESHNESS_PLOT = Plot(
    "How many copies are up to date, by strategy",
    "freshness: the share of copies that are up to date, weighted by importance (more is better)",
    tuple((value / 100, f"{value} %") for value in range(0, 101, 20)),
    is_log=False,
    names_at_end=False,
)


def plots(web: LargeWeb) -> tuple[str, str]:
    """Both plots as SVG."""
    days = np.geomspace(_MOST_DAYS, 1, _POINTS)
    found = {name: [web.costs(name, each) for each in days.tolist()] for name in LINES}
    obsolescence = {name: np.array([one.obsolescence for one in each]) for name, each in found.items()}
    freshness = {name: np.array([one.freshness for one in each]) for name, each in found.items()}
    pages = len(web.weights)
    return COST_PLOT.svg(pages, days, obsolescence), FRESHNESS_PLOT.svg(pages, days, freshness)


# -- measured: a simulation --------------------------------------------------------------------------------------------

SIMULATED_PAGES = 1_000
SEEDS = (1, 2, 3)
DAYS = 365
WARM_UP_DAYS = 120
SIMULATED_DAYS = (10, 20)
"""Days between two fetches of a page in the mean."""
PROMISED_AFTER = (2, 5, 20, 60)
"""Days of a crawl after which a plan is compared with the truth."""


def simulated_tables(pages: int) -> Iterator[str]:
    """Return the simulated cost of each strategy; then of thesis, by the data that servers send."""
    webs = [changing_web(pages, seed, DAYS) for seed in SEEDS]
    for each in SIMULATED_DAYS:
        bandwidth = pages / each
        rows = []
        for strategy in STRATEGIES:
            print(f"  simulating {strategy}, {bandwidth:g} fetches a day", file=sys.stderr)
            found = [measure(crawl(web, strategy, bandwidth, DAYS), WARM_UP_DAYS) for web in webs]
            known = [known_costs(web, strategy, bandwidth) for web in webs]
            rows.append(
                [
                    strategy,
                    _figure(_mean(found, "obsolescence")),
                    "-" if any(np.isinf(one.obsolescence) for one in known) else _figure(_mean(known, "obsolescence")),
                    _figure(_mean(found, "missed")),
                    f"{100 * _mean(found, 'freshness'):.1f}",
                    f"{100 * _mean(known, 'freshness'):.1f}",
                    f"{_mean(found, 'oldest_days'):.0f}",
                    f"{_mean(found, 'fetches_per_day'):.1f}",
                ]
            )
        yield f"{bandwidth:g} fetches a day:\n"
        yield from _table(
            [
                "strategy",
                "obsolescence",
                "if all were known",
                "changes missed",
                "fresh, %",
                "if all were known",
                "oldest copy, days",
                "fetches a day",
            ],
            rows,
        )
    bandwidth = pages / SIMULATED_DAYS[-1]
    rows = []
    for label, servers, how in (
        ("as above: servers of all kinds", None, {}),
        ("the same with a fixed prior of change rates", None, {"rate_prior": "fixed"}),
        ("digests alone", DIGEST, {}),
        ("digests alone, with a fixed prior", DIGEST, {"rate_prior": "fixed"}),
        ("true dates everywhere", DATED, {}),
        ("dates that never change everywhere", NEVER_CHANGES, {}),
        ("true rates from policies", None, {"rates_are_published": True}),
    ):
        print(f"  simulating thesis: {label}", file=sys.stderr)
        found = []
        for web in webs:
            if servers is not None:
                web = replace(web, servers=np.full(pages, servers, np.uint8))
            found.append(measure(crawl(web, "thesis", bandwidth, DAYS, **how), WARM_UP_DAYS))  # type: ignore[arg-type]
        rows.append(
            [
                label,
                _figure(_mean(found, "obsolescence")),
                _figure(_mean(found, "missed")),
                f"{100 * _mean(found, 'freshness'):.1f}",
            ]
        )
    yield f"`thesis` with {bandwidth:g} fetches a day, by the data that servers send:\n"
    yield from _table(["servers send", "obsolescence", "changes missed", "fresh, %"], rows)
    yield from promises(webs)


@dataclass(frozen=True)
class Promise:
    """The freshness of a plan, its range, and the freshness by the true change rates."""

    freshness: float
    low: float
    high: float
    true: float


def promised(crawled: Crawled) -> Promise:
    """Return what the plan at the end of a crawl promises for the pages that it refreshes."""
    web, planned = crawled.web, crawled.ledger.preview()
    survey, frequencies = planned.survey, planned.schedule.allocation.frequencies
    order = np.argsort(web.ids)
    numbers = order[np.searchsorted(web.ids[order], survey.pages[survey.sharing])]
    true = replace(survey.wanted, changes_per_day=web.rates[numbers])
    return Promise(
        costs(survey.wanted, frequencies, ALPHA).freshness,
        *freshness_range(survey.wanted, survey.changes_error[survey.sharing], frequencies),
        costs(true, frequencies, ALPHA).freshness,
    )


def promises(webs: Sequence[ChangingWeb]) -> Iterator[str]:
    """Return a table of the freshness that plans of a new crawl promise, and of that by the true rates."""
    rows = []
    for each in SIMULATED_DAYS:
        for days in PROMISED_AFTER:
            cells = []
            for prior in PRIORS:
                print(f"  promises: {each} days, after {days}, {prior}", file=sys.stderr)
                found = [promised(crawl(w, "thesis", len(w.ids) / each, days, rate_prior=prior)) for w in webs]
                mean = {name: 100 * _mean(found, name) for name in ("freshness", "low", "high", "true")}
                inside = sum(one.low <= one.true <= one.high for one in found)
                cells += [f"{mean['freshness']:.0f} ({mean['low']:.0f} to {mean['high']:.0f})", f"{mean['true']:.0f}"]
                cells.append(f"{inside} of {len(found)}")
            rows.append([f"{len(webs[0].ids) / each:g}", f"{days}", *cells])
    yield "The share of refreshed pages that `thesis` promises to have fresh, in %, and the share by true rates:\n"
    head = [name for prior in PRIORS for name in (f"{prior} prior: promise (range)", "by true rates", "within")]
    yield from _table(["fetches a day", "after days", *head], rows)


def _mean(found: Sequence[object], name: str) -> float:
    return float(np.mean([getattr(one, name) for one in found]))


# -- bounded: what honest news sites lose ------------------------------------------------------------------------------

NEWS_PAGES = 20_000
DOMAIN_PAGES = (1, 10, 100, 1_000)
NEWS_SHARES = (0.01, 0.1, 0.3)
"""The part of the domains that are news sites."""
NEWS_TIMES = 30.0
"""The pages of a news site change so many times as often as others."""
NEWS_DAYS = (3, 10, 30)
"""Days between two fetches of a page in the mean."""


def news_web(seed: int, domain_pages: int, news_share: float) -> tuple[Demand, Ints]:
    """Return pages of a power-law web, some domains of which are news sites, and the domain of each page."""
    random = np.random.default_rng((seed, domain_pages, round(1000 * news_share)))
    weights = np.minimum(random.pareto(1.1, NEWS_PAGES) + 0.01, NEWS_PAGES / 10)
    domain = np.arange(NEWS_PAGES) // domain_pages
    domains = int(domain[-1]) + 1
    is_news = np.zeros(domains, np.bool_)
    is_news[random.permutation(domains)[: max(1, round(news_share * domains))]] = True
    rates = np.minimum(log_normal_rates(random, NEWS_PAGES) * np.where(is_news[domain], NEWS_TIMES, 1.0), 24.0)
    least, most = np.full(NEWS_PAGES, 1 / LONGEST_DAYS), np.full(NEWS_PAGES, 24.0)
    return Demand(weights / weights.sum(), rates, least=least, most=most), domain


def bounded_table() -> Iterator[str]:
    """Return by how many points the default bound changes freshness, for each strategy that uses change rates."""
    rows = []
    for strategy in BY_RATES:
        for domain_pages in DOMAIN_PAGES:
            cells = []
            for each in NEWS_DAYS:
                gains = [_gain(strategy, *news_web(seed, domain_pages, s), each) for s in NEWS_SHARES for seed in SEEDS]
                cells.append(f"{min(gains):+.2f} to {max(gains):+.2f}")
            rows.append([strategy, f"{domain_pages:,}", *cells])
    yield from _table(
        ["strategy", "pages of a domain", *(f"a fetch in {each} days" for each in NEWS_DAYS)],
        rows,
    )


def _gain(strategy: str, pages: Demand, domain: Ints, days_between: float) -> float:
    """Return the points of freshness that the default bound of domains brings."""
    bandwidth = len(domain) / days_between
    free = solve(strategy, pages, bandwidth, ALPHA)
    bounded = solve_within_shares(strategy, pages, bandwidth, domain, RefreshConfig().domain_refreshing, ALPHA)
    before, after = (costs(pages, one.frequencies, ALPHA).freshness for one in (free, bounded))
    return 100 * (after - before)


# -- the page ----------------------------------------------------------------------------------------------------------


_PARTS = ("computed", "bounded", "measured")


def with_part(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the page with the part between its markers replaced."""
    begin, end = f"<!-- {name}: written by benchmarks/refresh_costs.py -->", f"<!-- {name}: end -->"
    part = "\n".join(lines).rstrip("\n")
    found, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{part}\n\n{end}", text, flags=re.S
    )
    if count != 1:
        raise SystemExit(f"refresh_costs: the page needs these two lines once, in this order: {begin} and {end}")
    return found


def main() -> None:
    """Compute, simulate, and write the plots and the tables."""
    parser = argparse.ArgumentParser(description="compute and simulate what each refresh strategy costs")
    parser.add_argument("--pages", type=int, default=PAGES, help="pages of the computed web (%(default)s)")
    parser.add_argument("--simulated", type=int, default=SIMULATED_PAGES, help="of the simulated one (%(default)s)")
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("docs/results/refresh-strategies.md"),
        help="the page to fill in (%(default)s)",
    )
    parser.add_argument("--only", choices=_PARTS, help="write this part alone")
    chosen = parser.parse_args()
    if min(chosen.pages, chosen.simulated) < 100:
        parser.exit(2, "refresh_costs: webs of so few pages show nothing: give 100 or more\n")
    if not chosen.page.is_file():
        parser.exit(2, f"refresh_costs: {chosen.page}: no such file: give a page with the markers\n")
    text = chosen.page.read_text(encoding="utf-8")
    if chosen.only in (None, "computed"):
        web = large_web(chosen.pages)
        text = with_part(text, "computed", list(computed_tables(web)))
        for name, svg in zip(("refresh-cost.svg", "refresh-freshness.svg"), plots(web), strict=True):
            (chosen.page.parent / name).write_text(svg, encoding="utf-8")
    if chosen.only in (None, "bounded"):
        text = with_part(text, "bounded", list(bounded_table()))
    if chosen.only in (None, "measured"):
        text = with_part(text, "measured", list(simulated_tables(chosen.simulated)))
    chosen.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
