"""The closed loop beside other crawlers: its tasks, tables, plots, and claims with the rules that judge them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opicflow.pipelines.lab.experiments.discovery.crawls import discovery
from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_COMMAND, BY_COMMANDS, discovery_by_command
from opicflow.pipelines.lab.experiments.discovery.reading_orders import OMNISCIENT
from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import NUTCH, STORMCRAWLER
from opicflow.pipelines.lab.experiments.refresh.closed_loop import loop_refresh, warm_up_days
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE, ROUND_ROBIN
from opicflow.pipelines.lab.experiments.refresh.lambda_crawl import LAMBDA_CRAWL
from opicflow.pipelines.lab.experiments.refresh.living_web import LIVING
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, each, lines_by, mean, means, pair, short, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

MARKS = (1, 5, 10, 20, 40)
OTHER_ORDERS = ("breadth-first", "random", "in-degree", "Nutch's OPIC", "recomputed")
OTHER_SCHEDULERS = (ROUND_ROBIN, NUTCH, STORMCRAWLER, LAMBDA_CRAWL)
DEFAULT, FOR_AGE = "harmonic", "thesis"
OWN_STRATEGIES = (DEFAULT, FOR_AGE, "freshness")
NEAR_ORACLE = 3.0
"""Points of weighted freshness."""
_SOURCE = "the closed loop"
_LATE = [mark for mark in MARKS if mark >= 5]


def of_loop(rows: Rows) -> list[Claim]:
    """Return the claims about reading and refreshing."""
    read, years = [row for row in rows if "order" in row], where(rows, day=0)
    return [
        _reads_most(read, "read", "of all importance"),
        _reads_most(read, "best", "of the most important hundredth of the pages"),
        _below_omniscient(read),
        _beats_schedulers(
            years,
            f"`{DEFAULT}`, the default, has more copies up to date by importance than other schedulers, on every web.",
            DEFAULT,
            "fresh_weighted",
            1.0,
        ),
        _beats_schedulers(
            years,
            f"Copies of `{FOR_AGE}` lag behind less by importance than those of other schedulers, on every web.",
            FOR_AGE,
            "behind_weighted",
            -1.0,
        ),
        _near_oracle(years),
        _keeps_bandwidth(years),
    ]


def _of(rows: Rows, column: str, web: object, scheduler: str) -> float:
    return mean(rows, column, web=str(web), scheduler=scheduler)


def _reads_most(rows: Rows, column: str, what: str) -> Claim:
    """The default order reads the most, from a mark on."""
    least: list[tuple[float, str]] = []
    for web in distinct(rows, "web"):
        leads = [
            (_read(rows, column, web, BY_COMMAND, mark) - _read(rows, column, web, other, mark), other, mark)
            for mark in _LATE
            for other in OTHER_ORDERS
        ]
        lead, other, mark = min(leads)
        least.append((lead, f"{web} {lead:+.1f} after {mark} % ({other})"))
    return Claim(
        f"By default a crawl has read more {what} than by any order of others, from {_LATE[0]} % of the pages on.",
        _SOURCE,
        "points ahead of the nearest: " + "; ".join(text for _, text in least),
        min(lead for lead, _ in least) >= 0,
    )


def _read(rows: Rows, column: str, web: object, order: str, mark: int) -> float:
    return mean(rows, column, web=str(web), order=order, mark=mark)


def _below_omniscient(rows: Rows) -> Claim:
    behind = [
        _read(rows, column, web, OMNISCIENT, mark) - _read(rows, column, web, str(order), mark)
        for column in ("read", "best")
        for web in distinct(rows, "web")
        for order in distinct(rows, "order")
        for mark in MARKS
    ]
    return Claim(
        "No order has read more than the omniscient one, at any mark.",
        _SOURCE,
        f"at least {min(behind):.1f} points behind, in {len(behind)} comparisons",
        min(behind) >= -1e-9,
    )


def _beats_schedulers(rows: Rows, statement: str, own: str, column: str, sign: float) -> Claim:
    """A strategy has the best figure; `sign` is 1 if a large one is good, else -1."""
    measured, leads = [], []
    for web in distinct(rows, "web"):
        value = _of(rows, column, web, own)
        others = {name: sign * _of(rows, column, web, name) for name in OTHER_SCHEDULERS}
        best = max(others, key=others.__getitem__)
        leads.append(sign * value - others[best])
        measured.append(f"{web} {short(value)}, {best} {short(sign * others[best])}")
    return Claim(statement, _SOURCE, "; ".join(measured), min(leads) >= 0)


def _near_oracle(rows: Rows) -> Claim:
    found = {web: _of(rows, "fresh_weighted", web, DEFAULT) for web in distinct(rows, "web")}
    behind = {web: _of(rows, "fresh_weighted", web, ORACLE) - own for web, own in found.items()}
    return Claim(
        f"`{DEFAULT}`, which must learn everything, is within {NEAR_ORACLE:g} points of an oracle.",
        _SOURCE,
        "; ".join(f"{web} {found[web]:.1f} %, {away:.1f} points behind" for web, away in behind.items()),
        max(behind.values()) <= NEAR_ORACLE,
    )


def _keeps_bandwidth(rows: Rows) -> Claim:
    most = max(float(row["used"]) for row in rows)
    return Claim("No scheduler fetches more than its bandwidth.", _SOURCE, f"at most {most:.2f} %", most <= 100.05)


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
        _tables(days),
        of_loop,
        plots=_plots,
        pages=PAGES,
        runs=RUNS,
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
        MeasureTask.of(loop_refresh, pages=living, seed=seed, scheduler=scheduler, percent=PERCENT, days=days, web=web)
        for web in LIVING
        for scheduler in SCHEDULERS
    ]


def _reading_tasks(pages: int, seed: int) -> list[MeasureTask]:
    return [
        MeasureTask.of(
            discovery_by_command if order in BY_COMMANDS else discovery,
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
        importance = "importance read / of the most important hundredth read, in per cent, after so many per cent"
        marks = each("mark", MARKS, pair("read", "best"))
        over = f"means over days {warm_up_days(days) + 1} to {days}, {PERCENT:g} % of the pages a day"
        made = [
            ResultTable(
                f"{web}: {importance}",
                ("order", *(f"{mark} %" for mark in MARKS)),
                lines_by(where(read, web=web), ("order",), marks),
            )
            for web in distinct(read, "web")
        ]
        return made + [
            ResultTable(
                f"{web}: {over}",
                ("scheduler", *_OF_YEAR.values()),
                lines_by(where(years, web=web), ("scheduler",), means(*_OF_YEAR)),
            )
            for web in distinct(years, "web")
        ]

    return tables


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
