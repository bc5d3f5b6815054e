"""The closed loop beside other crawlers: its tasks, tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_COMMANDS
from opicflow.pipelines.lab.experiments.discovery.reading_orders import OMNISCIENT
from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable
from opicflow.pipelines.lab.experiments.loop.claims import (
    MARKS,
    OTHER_ORDERS,
    OTHER_SCHEDULERS,
    OWN_STRATEGIES,
    of_loop,
)
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.refresh.closed_loop import warm_up_days
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE
from opicflow.pipelines.lab.experiments.refresh.living_web import LIVING
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, markdown, mean, short, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

PAGES, RUNS, DAYS, PERCENT = 20_000, 3, 365, 5.0
READ_WEBS = ("hosted", "archive", "portal", "archive with traps")
GREEDY = "greedy by truth"
ORDERS = (*OTHER_ORDERS, *BY_COMMANDS, GREEDY, OMNISCIENT)
SCHEDULERS = (*OTHER_SCHEDULERS, *OWN_STRATEGIES, ORACLE)
_LIVING_PART, _FEWEST_LIVING = 20, 200
_MONTH_DAYS = 28
_OF_YEAR = {
    "fresh_weighted": "fresh by importance, %",
    "fresh": "fresh, %",
    "behind_weighted": "obsolescence by importance",
    "behind": "obsolescence",
    "age_weighted_days": "age of stale copies by importance, days",
    "used": "bandwidth used, %",
}


def loop(days: int = DAYS) -> Experiment:
    """Return the experiment; living webs are crawled for so many days."""

    def tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
        return [task for seed in seeds for task in (*_living_tasks(pages, seed, days), *_reading_tasks(pages, seed))]

    return Experiment(
        "loop",
        "The closed loop beside other crawlers",
        _ABOUT,
        "loop",
        tasks,
        _plots,
        _tables(days),
        of_loop,
        PAGES,
        RUNS,
    )


_ABOUT = (
    "*Reading.* A crawl begins at ten random pages that link, finds the others by links, and reads each page once, a "
    "hundredth of the pages a day. *By the command*: every day `opicflow replay` reads the log of the day before into "
    "its state, and the crawler reads the ordered pages. *Recomputed* is the PageRank of the graph seen, every day. "
    "*Greedy by truth* takes the truly most important of the pages that were found, *omniscient* of all pages. "
    f"*Refreshing.* A living web has a twentieth of the pages; a crawler fetches {PERCENT:g} % of its pages a day, "
    "by the orders of the command for a refresh strategy, or by another scheduler. All get the same web, failures and "
    "bandwidth."
)


def _living_tasks(pages: int, seed: int, days: int) -> list[MeasureTask]:
    living = max(_FEWEST_LIVING, pages // _LIVING_PART)
    return [
        MeasureTask.of(
            "loop_refresh", pages=living, seed=seed, scheduler=scheduler, percent=PERCENT, days=days, web=web
        )
        for web in LIVING
        for scheduler in SCHEDULERS
    ]


def _reading_tasks(pages: int, seed: int) -> list[MeasureTask]:
    return [
        MeasureTask.of(
            "discovery_by_command" if order in BY_COMMANDS else "discovery",
            pages=pages,
            seed=seed,
            web=web,
            order=order,
            until=MARKS[-1],
        )
        for web in READ_WEBS
        for order in ORDERS
    ]


def _tables(days: int) -> Callable[[Rows], list[ResultTable]]:
    def tables(rows: Rows) -> list[ResultTable]:
        read, years = [row for row in rows if "order" in row], where(rows, day=0)
        made = []
        for web in distinct(read, "web"):
            lines = [
                (order, *(_read(where(read, web=web, order=order, mark=mark)) for mark in MARKS))
                for order in distinct(read, "order")
            ]
            title = (
                f"{web}: importance read / of the most important hundredth read, in per cent, after so many per cent"
            )
            made.append(ResultTable(title, markdown(("order", *(f"{mark} %" for mark in MARKS)), lines)))
        for web in distinct(years, "web"):
            lines = [
                (name, *(short(mean(years, column, web=web, scheduler=name)) for column in _OF_YEAR))
                for name in distinct(years, "scheduler")
            ]
            title = f"{web}: means over days {warm_up_days(days) + 1} to {days}, {PERCENT:g} % of the pages a day"
            made.append(ResultTable(title, markdown(("scheduler", *_OF_YEAR.values()), lines)))
        return made

    return tables


def _read(rows: Rows) -> str:
    return f"{short(mean(rows, 'read'))} / {short(mean(rows, 'best'))}"


def _plots(rows: Rows) -> list[Plot]:
    made = []
    read = [row for row in rows if "order" in row]
    for web in distinct(read, "web"):
        lines = [
            curve_of(where(read, web=web, order=order), order, "mark", "read") for order in ORDERS if order != GREEDY
        ]
        title = f"Importance of the pages read ({web})"
        made.append(Plot(_name("reading", web), title, "pages read, % of all", "of all importance, %", lines))
    weeks = [row for row in rows if "scheduler" in row and row["day"] != 0]
    months: Rows = [row | {"month": int(row["day"]) // _MONTH_DAYS * _MONTH_DAYS} for row in weeks]
    for web in distinct(months, "web"):
        of_web = where(months, web=web)
        lines = [curve_of(where(of_web, scheduler=name), name, "month", "fresh_weighted") for name in SCHEDULERS]
        title = f"Copies that are up to date, means of {_MONTH_DAYS} days from each on ({web})"
        made.append(Plot(_name("refreshing", web), title, "day", "fresh by importance, %", lines))
    return made


def _name(part: str, web: object) -> str:
    return f"loop-{part}-" + str(web).replace(" ", "-")


LOOP = loop()
