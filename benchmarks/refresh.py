"""Refreshing: plans by every strategy, and change rates from words.

The web is made up: importance follows a power law of exponent 2.1, pages change from ten times a day to once in three
years, and the bandwidth fetches each once in 30 days in the mean; no page more often than every hour or less often
than once a year.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, touch_memory, versus
from opicflow.pipelines.ledger import (
    NO_CATEGORY,
    CrawlEntry,
    CrawlItems,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.refresh.rates import LEAST_RATE, LEAST_SECONDS, MOST_CODE, MOST_RATE, MOST_SECONDS, change_rates
from opicflow.pipelines.refresh.strategies import STRATEGIES, Demand, solve
from opicflow.schemas.arrays import Bools, Floats, Words
from opicflow.schemas.pages import page_id

SEED = 1
ALPHA = 0.95
DAY_S = 86_400
DAYS = 30  # between two fetches of a page, in the mean
PAGES_PER_HOST = 50
STEPS = 60  # of bisection for a multiplier, to 1e-16
RATE_STEPS = 40  # of bisection for a rate, to 1e-11


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 10_000_000
    fewer_pages: int = 1_000_000
    pages_in_numpy: int = 100_000
    pages_in_python: int = 10_000
    rounds: int = 5
    heavy_rounds: int = 2


TINY = Sizes(40_000, 2_000, 1_000, 200, 2, 1)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, Sizes())
    say("refresh: in the ledger")
    yield from in_the_ledger(sizes)
    say("refresh: change rates")
    yield from rates(sizes)
    say("refresh: against a plain loop")
    yield from against_plain_loop(sizes)
    for pages in (sizes.fewer_pages, sizes.pages):
        say(f"refresh: plans for {pages:,} pages")
        touch_memory(100 * pages)
        yield from plans(pages, sizes)
    say("refresh: plans with host caps")
    yield from plans_with_caps(sizes)


def in_the_ledger(sizes: Sizes) -> Iterator[Figure]:
    """The cost of refreshing for a page in the ledger, and of a whole plan: survey, strategy, orders."""
    pages = sizes.fewer_pages
    ledger = Ledger(LedgerConfig(refresh=RefreshConfig(bandwidth_per_day=pages / DAYS)))
    random = np.random.default_rng(SEED)
    for day in range(4):
        ledger.apply(TickEntry((20_000 + day) * DAY_S))
        ledger.apply(_visits(pages, day, random.integers(0, 2, pages).astype(np.uint64)))
    of = f"{pages:,} pages, visited {day + 1} times"
    table = ledger._room.table
    yield Figure(
        "refresh.bytes_per_page",
        (table.refresh.nbytes + table.refresh_row.nbytes + table.interval.nbytes) / ledger.pages,
        "bytes",
        f"{of}; a page that was neither visited nor ordered takes 6",
    )
    planned = ledger.preview()
    wanted, bandwidth = planned.survey.wanted, planned.schedule.refresh_per_day
    check(abs(planned.schedule.allocation.frequencies.sum() / bandwidth - 1) < 1e-9, "the plan uses the bandwidth")
    check(len(planned.orders.rows) <= -(-pages // DAYS), "there are no more orders than fetches")

    def plan(number: int) -> int:
        return len(ledger.preview().survey)

    def share(number: int) -> int:
        return len(solve("thesis", wanted, bandwidth, ALPHA).frequencies)

    whole, alone = race(sizes.heavy_rounds, plan, share)
    how = f"{of}; thesis, from the ledger's columns to orders, against sharing the bandwidth alone"
    yield versus("refresh.ledger_plan", whole, "pages/s", alone, how)


def _visits(pages: int, day: int, version: Words) -> CrawlEntry:
    """Every page visited once, one after the other over a day; `version` decides its content."""
    numbers = np.arange(pages)
    text = b"".join(
        b"https://host-%06d.example/page/%08d" % (n % (pages // PAGES_PER_HOST + 1), n) for n in range(pages)
    )
    length = len(text) // pages
    urls = np.frombuffer(text, np.uint8)
    ids = np.array([page_id(text[n * length : (n + 1) * length]) for n in range(pages)], np.uint64)
    nothing = np.zeros(pages, np.uint8)
    items = CrawlItems(
        kind=nothing,
        page=ids,
        time_ms=((20_000 + day) * DAY_S + numbers * DAY_S // pages) * 1000 + 1,
        outcome=np.full(pages, Outcome.FETCHED, np.uint8),
        digest=numbers.astype(np.uint64) * np.uint64(2) + version + np.uint64(1),
        modified_ms=np.zeros(pages, np.int64),
        category=np.full(pages, NO_CATEGORY, np.uint8),
        offset=numbers + day * pages,
        within=np.zeros(pages, np.int64),
        links_known=nothing + np.uint8(1),
        link_starts=np.zeros(pages + 1, np.int64),
        link_pages=np.zeros(0, np.uint64),
        link_weights=np.zeros(0, np.uint16),
        link_categories=np.zeros(0, np.uint8),
        quality=nothing,
        url_starts=np.arange(pages + 1) * length,
        url_bytes=urls,
    )
    return CrawlEntry("crawl", LogPosition(day * pages, 0), LogPosition((day + 1) * pages, 0), items)


def made_up(pages: int) -> Demand:
    """Pages with weights that sum to 1."""
    random = np.random.default_rng(SEED)
    weights = random.pareto(1.1, pages) + 0.01
    rates = 10.0 ** random.uniform(-3, 1, pages)
    return Demand(weights / weights.sum(), rates, least=np.full(pages, 1 / 365), most=np.full(pages, 24.0))


# Plans


def bare_freshness(multiplier: float, weights: Floats, rates: Floats) -> Floats:
    """The result of a strategy without bounds, by Newton's method from a first guess, for all pages at once."""
    target = -np.log1p(-np.minimum(rates / (weights * multiplier), 1 - 1e-16))
    wait = np.sqrt(2 * target) + target  # λ/f; never too small, so that Newton's method comes down to it
    for _ in range(6):
        wait -= (wait - np.log1p(wait) - target) * (1 + wait) / wait
    return np.where(rates < weights * multiplier, rates / wait, 0.0)


def bare_harmonic(multiplier: float, weights: Floats, rates: Floats) -> Floats:
    """The root of a quadratic equation."""
    return 2 * weights * multiplier / (1 + np.sqrt(1 + 4 * weights * multiplier / rates))


def bare_importance(multiplier: float, weights: Floats, rates: Floats) -> Floats:
    """In proportion."""
    return multiplier * weights


def bare_uniform(multiplier: float, weights: Floats, rates: Floats) -> Floats:
    """The same for all."""
    return np.full(len(weights), multiplier)


BARE: dict[str, Callable[[float, Floats, Floats], Floats]] = {
    "thesis": bare_importance,  # of its shares
    "freshness": bare_freshness,
    "harmonic": bare_harmonic,
    "importance": bare_importance,
    "greedy": bare_importance,
    "uniform": bare_uniform,
}


def numpy_plan(strategy: str, pages: Demand, bandwidth: float) -> Floats:
    """The obvious plan with numpy: bisection for the multiplier, frequencies cut off at their bounds."""
    low, high = 1e-6, 1e12
    weights, rates = pages.weights, pages.changes_per_day
    if strategy == "thesis":
        weights = (weights * rates**ALPHA) ** (1 / (ALPHA + 1))
    frequencies = np.zeros(0)
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        frequencies = np.clip(BARE[strategy](middle, weights, rates), pages.least, pages.most)
        if frequencies.sum() > bandwidth:
            high = middle
        else:
            low = middle
    return frequencies


def plans(pages: int, sizes: Sizes) -> Iterator[Figure]:
    """A plan by each strategy, with bounds, against numpy on fewer pages."""
    fewer, more = made_up(sizes.pages_in_numpy), made_up(pages)
    rounds = sizes.heavy_rounds if pages == sizes.pages else sizes.rounds
    for strategy in STRATEGIES:
        check_plan(strategy, fewer, numpy_plan(strategy, fewer, sizes.pages_in_numpy / DAYS))
        plan = solve(strategy, more, pages / DAYS)
        check(plan.feasible and abs(plan.frequencies.sum() * DAYS / pages - 1) < 1e-9, "plans use all bandwidth")

        def ours(_: int, strategy: str = strategy) -> float:
            return len(solve(strategy, more, pages / DAYS).frequencies)

        def with_numpy(_: int, strategy: str = strategy) -> float:
            return len(numpy_plan(strategy, fewer, sizes.pages_in_numpy / DAYS))

        value, baseline = race(rounds, ours, with_numpy)
        name = f"refresh.{strategy}_plan" + ("" if pages == sizes.pages else f"_at_{_short(pages)}_pages")
        how = f"{pages:,} pages with bounds, against {STEPS} steps of bisection with numpy on {sizes.pages_in_numpy:,}"
        yield versus(name, value, "pages/s", baseline, how)


def check_plan(strategy: str, pages: Demand, expected: Floats) -> None:
    """Our plan has these frequencies."""
    plan = solve(strategy, pages, len(pages.weights) / DAYS)
    check(np.allclose(plan.frequencies, expected, rtol=1e-6, atol=0), f"{strategy}: the plan is plain bisection's")


def plans_with_caps(sizes: Sizes) -> Iterator[Figure]:
    """The same for hosts of many sizes, a third of which get less than they would, against the plan without caps."""
    pages = sizes.fewer_pages
    free = made_up(pages)
    hosts = pages // PAGES_PER_HOST
    host = (hosts * np.random.default_rng(SEED).random(pages) ** 2).astype(np.int64)
    for strategy in ("thesis", "freshness"):
        without = np.bincount(host, solve(strategy, free, pages / DAYS).frequencies, hosts)
        needed = np.bincount(host, free.least, hosts)
        caps = needed + np.where(np.arange(hosts) % 3 == 0, 0.8, 1.5) * (without - needed)
        capped = replace(free, host=host, host_most=caps)
        plan = solve(strategy, capped, pages / DAYS)
        by_host = np.bincount(host, plan.frequencies, hosts)
        check(plan.feasible and bool((by_host <= caps * (1 + 1e-9)).all()), "no host gets more than it may")
        check(abs(by_host.sum() * DAYS / pages - 1) < 1e-9, "plans use all bandwidth")

        def with_caps(_: int, strategy: str = strategy, capped: Demand = capped) -> float:
            return len(solve(strategy, capped, pages / DAYS).frequencies)

        def without_caps(_: int, strategy: str = strategy) -> float:
            return len(solve(strategy, free, pages / DAYS).frequencies)

        value, baseline = race(sizes.rounds, with_caps, without_caps)
        how = f"{pages:,} pages of {hosts:,} hosts, a third capped, against the plan without caps"
        yield versus(f"refresh.{strategy}_plan_with_host_caps", value, "pages/s", baseline, how)


def plain_loop(weights: list[float], rates: list[float], bandwidth: float) -> list[float]:
    """The reference algorithm of Kolobov et al.: bisection for the multiplier, with a loop over all pages."""
    low = 0.0
    high = (sum(math.sqrt(weight * rate) for weight, rate in zip(weights, rates, strict=True)) / bandwidth) ** 2
    frequencies: list[float] = []
    for _ in range(100):
        gain = (low + high) / 2
        frequencies = [
            (-rate + math.sqrt(rate * rate + 4 * weight * rate / gain)) / 2
            for weight, rate in zip(weights, rates, strict=True)
        ]
        total = sum(frequencies)
        if abs(total - bandwidth) < 1e-9 * bandwidth:
            break
        low, high = (gain, high) if total > bandwidth else (low, gain)
    return frequencies


def against_plain_loop(sizes: Sizes) -> Iterator[Figure]:
    """The harmonic strategy without bounds, a page for a page."""
    free, few = (replace(made_up(pages), least=None, most=None) for pages in (sizes.fewer_pages, sizes.pages_in_python))
    columns = few.weights.tolist(), few.changes_per_day.tolist(), sizes.pages_in_python / DAYS
    plan = solve("harmonic", few, columns[2])
    check(np.allclose(plan.frequencies, plain_loop(*columns), rtol=1e-6, atol=0), "our plan is that of the plain loop")

    def ours(_: int) -> float:
        return len(solve("harmonic", free, sizes.fewer_pages / DAYS).frequencies)

    def plain(_: int) -> float:
        return len(plain_loop(*columns))

    value, baseline = race(sizes.heavy_rounds, ours, plain)
    how = f"{sizes.fewer_pages:,} pages, against bisection in a Python loop over {sizes.pages_in_python:,}, to 1e-9"
    yield versus("refresh.harmonic_plan_vs_plain_loop", value, "pages/s", baseline, how)


# Change rates


def numpy_rates(days: Floats, changed: Bools) -> Floats:
    """The likeliest rates by bisection with numpy, with half an interval with and half a one without change added."""
    mean = days.mean(axis=1)
    unchanged = np.where(changed, 0.0, days).sum(axis=1) + 0.5 * mean
    low, high = np.full(len(days), LEAST_RATE), np.full(len(days), MOST_RATE)
    with np.errstate(over="ignore"):  # of exp, where a rate is far too high
        for _ in range(RATE_STEPS):
            middle = np.sqrt(low * high)
            pull = np.where(changed, days / np.expm1(days * middle[:, None]), 0.0).sum(axis=1)
            too_low = pull + 0.5 * mean / np.expm1(mean * middle) > unchanged
            low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.sqrt(low * high)


def rates(sizes: Sizes) -> Iterator[Figure]:
    """Change rates from full words of intervals, without dates, against bisection with numpy on fewer pages."""
    random = np.random.default_rng(SEED)
    codes = random.integers(60, 110, (sizes.fewer_pages, 8)).astype(np.uint8)  # hours to years
    changed = random.random(codes.shape) < random.random((sizes.fewer_pages, 1))
    words = (codes | np.where(changed, 128, 0).astype(np.uint8)).view(np.uint64).ravel()
    days = LEAST_SECONDS / DAY_S * (MOST_SECONDS / LEAST_SECONDS) ** ((codes - 1.0) / (MOST_CODE - 1))
    no_dates, unused = np.zeros(len(words), np.uint64), np.zeros(len(words), np.bool_)
    fewer = slice(sizes.pages_in_numpy)
    expected = numpy_rates(days[fewer], changed[fewer])
    ours = change_rates(words[fewer], no_dates[fewer], unused[fewer]).rates
    check(np.allclose(ours, expected, rtol=1e-6, atol=0), "rates are those of plain bisection")

    def by_words(_: int) -> float:
        return len(change_rates(words, no_dates, unused).rates)

    def with_numpy(_: int) -> float:
        return len(numpy_rates(days[fewer], changed[fewer]))

    value, baseline = race(sizes.rounds, by_words, with_numpy)
    how = f"{len(words):,} pages, 8 intervals each, against {RATE_STEPS} steps of bisection with numpy"
    yield versus("refresh.rates_per_second", value, "pages/s", baseline, how)


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if number % size == 0:
            return f"{number // size}{letter}"
    return str(number)
