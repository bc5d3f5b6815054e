"""The experiments on refreshing: their tasks, plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.refresh.claims import PERCENT, of_loop_refresh
from opicflow.pipelines.lab.experiments.refresh.closed_loop import LONGEST_DAYS, SCHEDULERS, warm_up_days
from opicflow.pipelines.lab.experiments.refresh.living_web import (
    ALWAYS_NOW,
    DATED,
    NEVER_CHANGES,
    SERVER_SHARES,
    Shares,
)
from opicflow.pipelines.lab.experiments.tables import Rows, Value, distinct, markdown, mean, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

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
                "loop_refresh", pages=pages, seed=seed, scheduler=scheduler, percent=float(percent), days=days
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
        _plots,
        _tables(days),
        of_loop_refresh,
        PAGES,
        RUNS,
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
        made: list[ResultTable] = []
        heads = ("scheduler", *_COLUMNS.values())
        for percent in distinct(rows, "percent"):
            years = where(rows, day=0, percent=percent)
            lines = [
                (scheduler, *(_figure(years, name, scheduler) for name in _COLUMNS))
                for scheduler in distinct(years, "scheduler")
            ]
            caption = [] if made else [_caption(days), ""]
            title = f"{percent:g} % of the pages a day"
            made.append(ResultTable(title, [*caption, *markdown(heads, lines)]))
        return made

    return tables


def _figure(rows: Rows, name: str, scheduler: Value) -> str:
    return f"{mean(rows, name, scheduler=scheduler):.1f}"


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


REFRESH = (loop_refresh(),)
