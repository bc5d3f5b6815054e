"""A year of a changing web, crawled by the orders of a ledger that starts without knowledge: the strategies compared.

The simulation is that of benchmarks/refresh_costs.py, which writes docs/results/refresh-strategies.md. Pages change as
Poisson processes; servers send digests, dates, false dates or "not modified"; visits fail and pages disappear. The cost
of the copies is counted from the changes that happened, with the true rates and importance.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.refresh.strategies import STRATEGIES
from support.paths import TOP

PAGES, BANDWIDTH, DAYS = 400, 40.0, 365
WARM_UP = 120
"""Days after which every page was read and rates are known somewhat."""
ALL = sorted(STRATEGIES)
QUICK = ("freshness", "harmonic", "thesis")
"""The years of these strategies are in the default run, those of the others among the slow tests."""
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in ALL]
NEVER_EARLY = [name for name in NAMES if name.values != ("greedy",)]  # which goes by cash alone


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("refresh_costs", TOP / "benchmarks" / "refresh_costs.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


costs = _script()


@cache
def web(seed: int, pages: int = PAGES, days: int = DAYS) -> Any:
    return costs.changing_web(pages, seed, days)


@cache
def year(seed: int, strategy: str, **how: Any) -> Any:
    """Return a year of crawling by a strategy. All tests share the result."""
    crawled = costs.crawl(web(seed), strategy, BANDWIDTH, DAYS, **how)
    crawled.ledger.audit()
    return crawled


@cache
def measured(seed: int, strategy: str, **how: Any) -> Any:
    found = costs.measure(year(seed, strategy, **how), WARM_UP)
    print(strategy, how, found)
    return found


def came(crawled: Any) -> Any:
    return np.isin(crawled.outcomes, (Outcome.FETCHED, Outcome.UNCHANGED))


# -- what strategies are worth -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("other", ["uniform", "importance", "greedy"])
def test_thesis_has_much_less_obsolescence_at_the_same_bandwidth(seed: int, other: str) -> None:
    """By three tenths at least, measured by the age of copies as by the changes that they missed."""
    thesis, theirs = measured(seed, "thesis"), measured(seed, other)
    assert thesis.obsolescence < 0.7 * theirs.obsolescence
    assert thesis.missed < 0.7 * theirs.missed


@pytest.mark.slow
@pytest.mark.parametrize("other", ["freshness", "harmonic"])
def test_thesis_has_the_least_obsolescence_of_all_where_change_rates_are_known(seed: int, other: str) -> None:
    thesis, theirs = (measured(seed, name, rates_are_published=True) for name in ("thesis", other))
    assert thesis.obsolescence < 0.9 * theirs.obsolescence


@pytest.mark.slow
def test_thesis_costs_what_was_computed_where_change_rates_are_known(seed: int) -> None:
    """Importance is still to be learnt, pages fail, and a cycle is a day: that costs less than a fifth."""
    least = costs.known_costs(web(seed), "thesis", BANDWIDTH).obsolescence
    assert least < 1.02 * measured(seed, "thesis", rates_are_published=True).obsolescence < 1.2 * least


@pytest.mark.slow
@pytest.mark.parametrize(("other", "less"), [("thesis", 0.0), ("uniform", 0.0), ("importance", 0.01), ("greedy", 0.01)])
def test_freshness_has_the_freshest_copies(seed: int, other: str, less: float) -> None:
    """Two that do without estimates of rates are as good within a point: which is better depends on the web."""
    assert measured(seed, "freshness").freshness > measured(seed, other).freshness - less


@pytest.mark.slow
def test_only_where_change_rates_are_known_freshness_beats_harmonic(seed: int) -> None:
    """Its gain over harmonic is smaller than the cost of estimates: pages that it gives up are not fetched again."""
    fresh, harmonic = (measured(seed, name, rates_are_published=True).freshness for name in ("freshness", "harmonic"))
    assert fresh > harmonic + 0.005
    assert abs(measured(seed, "freshness").freshness - measured(seed, "harmonic").freshness) < 0.02


@pytest.mark.slow
def test_harmonic_never_starves_a_page_and_freshness_does(seed: int) -> None:
    alive = web(seed).weights > 0
    reads = {}
    for name in ("harmonic", "freshness"):
        crawled = year(seed, name)
        late = came(crawled) & (crawled.seconds >= crawled.seconds[0] + 60 * 86400)
        reads[name] = np.bincount(crawled.numbers[late], minlength=PAGES)[alive]
    assert reads["harmonic"].min() >= 1
    assert measured(seed, "harmonic").oldest_days < 270
    assert (reads["freshness"] == 0).mean() > 0.02


@pytest.mark.slow
def test_no_copy_is_much_older_than_the_longest_interval(seed: int) -> None:
    """A page that fails is late by its retries, and one that is ordered late by some of its interval."""
    assert measured(seed, "thesis", longest_interval_days=60.0).oldest_days < 60 * 1.3


# -- learnt change rates -----------------------------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("strategy", NAMES)
def test_change_rates_come_close_to_the_true_ones(seed: int, strategy: str) -> None:
    """A byte for each of eight intervals: half of all pages are known to a factor of 1.8 or better."""
    crawled, the_web = year(seed, strategy), web(seed)
    known = crawled.ledger.preview().survey
    row = {page: number for number, page in enumerate(the_web.ids.tolist())}
    numbers = np.array([row[page] for page in known.pages.tolist()])
    reads = np.bincount(crawled.numbers[came(crawled)], minlength=PAGES)[numbers]
    off = np.log(known.changes_per_day / the_web.rates[numbers])
    often = reads >= 9
    # Where a page changed in each of eight intervals, only dates show how often: rates without dates are too low.
    dated_only = often & (the_web.servers[numbers] == costs.DATED)
    seen = often & (the_web.rates[numbers] * DAYS < 2 * reads)
    for pages in (often, dated_only, seen):
        assert pages.sum() > 40
        assert np.median(np.abs(off[pages])) < 0.59
    for pages in (dated_only, seen):
        assert abs(np.median(off[pages])) < 0.35


@pytest.mark.parametrize("strategy", NAMES)
def test_importance_comes_close_to_pagerank(seed: int, strategy: str) -> None:
    known = year(seed, strategy).ledger.estimate(web(seed).ids)
    alive = web(seed).weights > 0
    off = np.log(known.importance[alive] / web(seed).weights[alive])
    assert np.median(np.abs(off)) < 0.15


# -- orders ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", NAMES)
def test_fetches_stay_within_the_bandwidth_and_use_it(seed: int, strategy: str) -> None:
    """On no day more than one above it: parts of a fetch, of discovery and of refreshing, are carried over."""
    per_day = year(seed, strategy).per_day
    assert per_day.max() <= BANDWIDTH + 1
    days = np.arange(1, DAYS + 1)
    assert (np.cumsum(per_day) <= BANDWIDTH * days + 1).all()
    assert per_day[WARM_UP:].mean() > 0.95 * BANDWIDTH


@pytest.mark.parametrize("strategy", NEVER_EARLY)
def test_pages_are_fetched_when_they_are_due(seed: int, strategy: str) -> None:
    """Hardly later, measured by the interval that was planned; and earlier only on days when too few are due.

    Then pages are ordered of which half of the interval has passed at the end of the cycle. A page that `freshness`
    gave up and takes up again, because its rate or the prior moved, is late at once.
    """
    crawled = year(seed, strategy)
    refreshed = np.isfinite(crawled.planned_seconds)
    planned, lateness = crawled.planned_seconds[refreshed], crawled.lateness_seconds[refreshed]
    late = lateness / planned
    assert ((lateness + 86_400) / planned >= -0.5).mean() > 0.999
    assert np.quantile(late, 0.1) >= -0.15
    assert np.median(late) < 0.05
    assert np.quantile(late, 0.9) < 0.15
    assert np.quantile(late, 0.99) < (1.0 if strategy == "freshness" else 0.4)


def test_the_intervals_of_a_page_are_alike(seed: int) -> None:
    """Its rate is known and it does not fail: only changes of importance remain."""
    crawled, the_web = year(seed, "thesis", rates_are_published=True), web(seed)
    late = came(crawled) & (crawled.seconds >= crawled.seconds[0] + WARM_UP * 86400)
    order = np.lexsort((crawled.seconds[late], crawled.numbers[late]))
    numbers, seconds = crawled.numbers[late][order], crawled.seconds[late][order]
    spreads = []
    for page in np.flatnonzero((the_web.weights > 0) & (the_web.fails == 0)):
        intervals = np.diff(seconds[numbers == page])
        if len(intervals) >= 5:
            spreads.append(intervals.std() / intervals.mean())
    assert len(spreads) > PAGES / 4
    assert np.median(spreads) < 0.1
    assert np.quantile(spreads, 0.9) < 0.25


@pytest.mark.slow
def test_gone_pages_are_requested_rarely(seed: int) -> None:
    """Links to them bring them back after they were dropped; still they get no more than the others do."""
    crawled, the_web = year(seed, "uniform"), web(seed)
    gone = np.flatnonzero(the_web.gone_second == 0)
    visits = np.bincount(crawled.numbers, minlength=PAGES)
    assert 1 <= visits[gone].min() <= visits[gone].max() <= 18 < np.median(visits)


@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=[pytest.mark.soak] * (name != "thesis")) for name in ALL]
)
def test_the_same_seed_gives_the_same_bytes_of_orders(seed: int, strategy: str) -> None:
    first, again, other = (
        costs.crawl(web(number, 120, 60), strategy, 12.5, 60).orders_digest for number in (seed, seed, seed + 1)
    )
    assert first == again
    assert other != first


@pytest.mark.soak
def test_two_years_of_a_larger_web(seed: int) -> None:
    large = web(seed, 3_000, 730)
    found = {}
    for name in NAMES:
        crawled = costs.crawl(large, name, 300.0, 730)
        crawled.ledger.audit()
        found[name] = costs.measure(crawled, 365)
        print(name, found[name])
        assert found[name].fetches_per_day <= 300.0
    for name in ("uniform", "importance", "greedy"):
        assert found["thesis"].obsolescence < 0.7 * found[name].obsolescence
        assert found["freshness"].freshness > found[name].freshness
    assert found["thesis"].obsolescence < found["harmonic"].obsolescence < found["freshness"].obsolescence
    assert found["harmonic"].oldest_days < 400
