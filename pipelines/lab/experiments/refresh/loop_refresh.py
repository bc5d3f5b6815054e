"""The closed loop of refreshing: its tasks, plots, tables, and its bounds.

At 5 % of the pages a day every strategy is to use all of its bandwidth, to have orders on every day and to leave no
page longer than the longest interval, and the strategies that use change rates are to come within a point of the
oracle. A bound that does not hold is a fault of the scheduler: it is not to be widened here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.refresh import closed_loop
from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import NUTCH
from opicflow.pipelines.lab.experiments.refresh.closed_loop import LONGEST_DAYS, SCHEDULERS, warm_up_days
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE, ROUND_ROBIN
from opicflow.pipelines.lab.experiments.refresh.living_web import (
    ALWAYS_NOW,
    DATED,
    NEVER_CHANGES,
    SERVER_SHARES,
    Shares,
)
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, lines_by, mean, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask
from opicflow.pipelines.refresh.strategies import STRATEGIES

PERCENT = 5.0
"""The bandwidth of the bounds: this percentage of the pages a day."""
FOR_FRESHNESS = ("thesis", "freshness", "harmonic")
"""The strategies that use change rates. The others are baselines, or have another purpose."""
MOST_BEHIND = 1.0
"""Points of weighted freshness."""
_ALL_USED = 99.95, 100.05
"""Per cent of the bandwidth, as it may be rounded to 100.0: parts of a fetch are carried over to the next day."""

_LOOP = "the closed loop"


def of_loop_refresh(rows: Rows) -> list[Claim]:
    """Return the claims of the closed loop. Those at 5 % a day need that bandwidth among the rows."""
    years = where(rows, day=0)
    at_bound = where(years, percent=PERCENT)
    claims = []
    if at_bound:
        used, gap = f"at {PERCENT:g} % of the pages a day", f"{LONGEST_DAYS} days"
        claims = [
            *(_near_oracle(at_bound, name) for name in FOR_FRESHNESS),
            _of_every_strategy(
                at_bound,
                f"Every strategy uses all of its bandwidth, {used}.",
                "used",
                "%",
                lambda share: _ALL_USED[0] <= share <= _ALL_USED[1],
            ),
            _of_every_strategy(
                at_bound, f"No strategy has a day without orders, {used}.", "idle_days", "", lambda days: days == 0
            ),
            _of_every_strategy(
                at_bound,
                f"No page is left longer than the longest interval, {gap} (whole days count), {used}.",
                "longest_gap_days",
                "days",
                lambda days: math.floor(days) <= LONGEST_DAYS,
            ),
        ]
    return [*claims, _never_idle(years), *(_fresher_than(years, other) for other in (ROUND_ROBIN, NUTCH))]


def _near_oracle(rows: Rows, strategy: str) -> Claim:
    oracle, own = (mean(rows, "fresh_weighted", scheduler=name) for name in (ORACLE, strategy))
    return Claim(
        f"Weighted freshness of `{strategy}` is within {MOST_BEHIND:g} point of the oracle's, at {PERCENT:g} % a day.",
        _LOOP,
        f"{own:.1f} %, the oracle {oracle:.1f} %",
        own >= oracle - MOST_BEHIND,
    )


def _of_every_strategy(rows: Rows, statement: str, name: str, unit: str, holds: Callable[[float], bool]) -> Claim:
    """A claim about each strategy of opicflow and each seed."""
    found = [row for row in rows if row["scheduler"] in STRATEGIES]
    measured = ", ".join(
        f"{strategy} {mean(found, name, scheduler=strategy):.1f}" for strategy in distinct(found, "scheduler")
    )
    return Claim(
        statement, _LOOP, f"{measured} {unit}".rstrip(), bool(found) and all(holds(float(row[name])) for row in found)
    )


def _never_idle(rows: Rows) -> Claim:
    """No strategy of opicflow has a day without orders, at any bandwidth."""
    found = [row for row in rows if row["scheduler"] in STRATEGIES]
    percents = distinct(found, "percent")
    idle = [row for row in found if float(row["idle_days"]) > 0]
    worst = "; ".join(
        f"{row['scheduler']} at {row['percent']:g} %: {row['idle_days']} days (seed {row['seed']})" for row in idle
    )
    bandwidths = ", ".join(f"{percent:g}" for percent in percents)
    return Claim(
        f"The loop runs at {bandwidths} % of the pages a day without a day without orders.",
        _LOOP,
        worst or f"none in {len(found)} runs",
        bool(found) and not idle,
    )


def _fresher_than(rows: Rows, other: str) -> Claim:
    """The strategies that use change rates are fresher than a scheduler, at every bandwidth."""
    behind, measured = [], []
    for percent in distinct(rows, "percent"):
        theirs = mean(rows, "fresh_weighted", scheduler=other, percent=percent)
        ours = {name: mean(rows, "fresh_weighted", scheduler=name, percent=percent) for name in FOR_FRESHNESS}
        behind += [name for name, share in ours.items() if not share > theirs]
        measured.append(f"at {percent:g} %: {min(ours.values()):.1f} % or more, {other} {theirs:.1f} %")
    names = ", ".join(f"`{name}`" for name in FOR_FRESHNESS)
    return Claim(
        f"{names} have a higher weighted freshness than {other}, at every bandwidth.",
        _LOOP,
        "; ".join(measured),
        not behind,
    )


PAGES, RUNS, DAYS = 1_000, 1, 365
PERCENTS = (2.0, 5.0, 10.0, 20.0, 50.0)

_COLUMNS = {
    "fresh_weighted": "fresh by importance, %",
    "fresh": "fresh, %",
    "age_weighted_days": "age of stale copies by importance, days",
    "age_days": "age of stale copies, days",
    "behind_weighted": "changes behind by importance",
    "caught": "changes caught, %",
    "longest_gap_days": "longest gap, days",
    "used": "bandwidth used, %",
    "idle_days": "days without orders",
}


def loop_refresh(days: int = DAYS, percents: Sequence[float] = PERCENTS) -> Experiment:
    """Return the experiment of the closed loop over so many days, at these percentages of the pages a day."""

    def tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
        return [
            MeasureTask.of(
                closed_loop.loop_refresh, pages=pages, seed=seed, scheduler=scheduler, percent=float(percent), days=days
            )
            for seed in seeds
            for percent in percents
            for scheduler in SCHEDULERS
        ]

    return Experiment(
        "loop-refresh",
        f"The closed loop: {days} days of refreshing",
        _about(),
        "loop-refresh",
        tasks,
        _tables(days),
        of_loop_refresh,
        plots=_plots,
        pages=PAGES,
        runs=RUNS,
    )


def _about() -> str:
    of, servers = Shares(), SERVER_SHARES
    false = _percent(servers[ALWAYS_NOW] + servers[NEVER_CHANGES])
    return (
        "Every day `opicflow replay` reads the log of the day before into its state, with `--now`, and a crawler "
        "fetches its orders from a made-up web, whose answers are the next log. Change rates are log-normal around "
        f"once in 14 days. {_percent(of.returning)} of the changes bring the content before the last again; "
        f"{_percent(of.born)} of the pages are born meanwhile, {_percent(of.dying)} go away; {false} of the servers "
        f"send false dates, {_percent(servers[DATED])} true ones; {_percent(of.weak)} of the pages fail on "
        f"{_percent(of.weak_failing)} of the days, the others on {_percent(of.failing)}. A first crawl has read each "
        "page once, on the day before. All schedulers get the same web, failures and bandwidth. *Round robin* fetches "
        "the page that was not tried for the longest time. *Nutch adaptive* is its AdaptiveFetchSchedule with its "
        "defaults; pages that are due compete by true importance. *StormCrawler adaptive* is its AdaptiveScheduler "
        "with its defaults. *LambdaCrawl* learns rates, and crawls at random moments at the rates that are best by "
        "true importance. The *oracle* has the true change rates and importance of the pages that the crawler has "
        "found, and the list of pages that exist, and fetches at the frequencies that maximise freshness. The longest "
        "interval is "
        f"{LONGEST_DAYS} days, of opicflow and the oracle."
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _caption(days: int) -> str:
    return (
        f"Means over days {warm_up_days(days) + 1} to {days}, of all pages that exist; days without orders are of "
        "the whole time. A copy is *fresh* while its content is that of the page: a page that returns to the content "
        "of its copy makes it fresh again. *By importance*: weighted by exact PageRank of the web on that day. *Age*: "
        "for how long stale copies have been stale. *Changes behind*: since the copy was fetched. A change is *caught* "
        "if the page is fetched before its next one. "
        "*Gap*: the longest time without a fetch, failed ones included, of a page that existed and was known."
    )


def _tables(days: int) -> Callable[[Rows], list[ResultTable]]:
    def tables(rows: Rows) -> list[ResultTable]:
        years, heads = where(rows, day=0), ("scheduler", *_COLUMNS.values())
        cells = [partial(_figure, name) for name in _COLUMNS]
        return [
            ResultTable(
                f"{percent:g} % of the pages a day",
                heads,
                lines_by(where(years, percent=percent), ("scheduler",), cells),
                "" if number else _caption(days),
            )
            for number, percent in enumerate(distinct(rows, "percent"))
        ]

    return tables


def _figure(name: str, rows: Rows) -> str:
    return f"{mean(rows, name):.1f}"


def _plots(rows: Rows) -> list[Plot]:
    percents = [float(percent) for percent in distinct(rows, "percent")]
    schedulers = [str(name) for name in distinct(rows, "scheduler")]
    shown = PERCENT if PERCENT in percents else percents[0]
    years, weeks = where(rows, day=0), [row for row in rows if row["day"] != 0 and row["percent"] == shown]
    bandwidth = "fetches a day, in % of all pages"
    made = [
        Plot(
            f"loop-refresh-{name}",
            title,
            bandwidth,
            y,
            [curve_of(where(years, scheduler=one), one, "percent", column) for one in schedulers],
            "x" if len(percents) > 1 else "",
            percents,
        )
        for name, title, y, column in (
            ("freshness", "Copies that are up to date", "fresh by importance, %", "fresh_weighted"),
            ("gap", "The page that was left longest", "days without a fetch", "longest_gap_days"),
        )
    ]
    for name, title, y, column in (
        ("weeks", f"Week by week, at {shown:g} % a day", "fresh by importance, %", "fresh_weighted"),
        ("orders", f"Orders of each week, at {shown:g} % a day", "bandwidth used, %", "used"),
    ):
        lines = [curve_of(where(weeks, scheduler=one), one, "day", column) for one in schedulers]
        made.append(Plot(f"loop-refresh-{name}", title, "day", y, lines))
    return made
