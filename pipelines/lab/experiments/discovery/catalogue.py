"""The experiment on discovery: its tasks, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.discovery import claims
from opicflow.pipelines.lab.experiments.discovery.crawled_webs import HOSTILE, WEBS
from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_LEDGER
from opicflow.pipelines.lab.experiments.discovery.reading_orders import ORDERS
from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable
from opicflow.pipelines.lab.experiments.plots import Curve, Plot
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, markdown, mean, short, spread, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

PAGES, RUNS = 10_000, 10
COMMAND_WEBS = ("archive", "portal", "archive with traps")
SHOWN = (1, 5, 10, 20, 40, 60)
_LATE = (10, 20, 40)
_PLOTTED = ("breadth-first", "Nutch's OPIC", "RankMass", "fractional", "cash", "recomputed", "learnt")
_REFERENCE = ("learnt at first", "greedy by truth")


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for web in WEBS
        for task in (
            *(MeasureTask.of("discovery", pages=pages, seed=seed, web=web, order=order) for order in ORDERS),
            *(
                MeasureTask.of("discovery_by_ledger", pages=pages, seed=seed, web=web, order=order)
                for order in BY_LEDGER
            ),
        )
    ] + [MeasureTask.of("discovery_by_command", pages=pages, seed=seeds[0], web=web) for web in COMMAND_WEBS]


def _plots(rows: Rows) -> list[Plot]:
    made = []
    for web in distinct(rows, "web"):
        lines = []
        for order in (*_PLOTTED, *_REFERENCE):
            chosen = where(rows, web=web, order=order)
            xs = [float(mark) for mark in distinct(chosen, "mark")]
            ys = [mean(chosen, "read", mark=mark) for mark in distinct(chosen, "mark")]
            spreads = [spread(chosen, "read", mark=mark) for mark in distinct(chosen, "mark")]
            lines.append(Curve(order, xs, ys, spreads))
        name = "discovery-" + str(web).replace(" ", "-")
        title = f"Importance of the pages read, by order ({web})"
        made.append(Plot(name, title, "pages read, % of all", "of all importance, %", lines))
    return made


def _tables(rows: Rows) -> list[ResultTable]:
    made = []
    for web in distinct(rows, "web"):
        orders = distinct(where(rows, web=web), "order")
        lines = [(order, *_marks(where(rows, web=web, order=order), "read")) for order in orders]
        heads = ("order", *(f"{mark} %" for mark in SHOWN))
        title = f"{web}: importance of the pages read, in per cent of all, after so many per cent of the pages"
        made.append(ResultTable(title, markdown(heads, lines)))
    for measure, part in (("best", "hundredth"), ("top", "thousandth")):
        lines = [
            (web, order, *_marks(where(rows, web=web, order=order), measure))
            for web in distinct(rows, "web")
            for order in ("RankMass", "recomputed", "learnt", "greedy by truth")
        ]
        heads = ("web", "order", *(f"{mark} %" for mark in SHOWN))
        made.append(ResultTable(f"Of the most important {part} of the pages, per cent read", markdown(heads, lines)))
    lines = [
        (web, order, *_marks(where(rows, web=web, order=order), "hostile"))
        for web in HOSTILE
        for order in distinct(where(rows, web=web), "order")
    ]
    heads = ("web", "order", *(f"{mark} %" for mark in SHOWN))
    made.append(ResultTable("Hostile pages among those read, in per cent", markdown(heads, lines)))
    lines = [
        (web, *_both(where(rows, web=web, order="learnt at first")), *_both(where(rows, web=web, order="learnt")))
        for web in distinct(rows, "web")
    ]
    heads = ("web", *(f"{order}, {mark} %" for order in ("at first", "learnt") for mark in _LATE))
    title = "Learnt values: the share of orders that explore / the weight of siblings, in per cent"
    made.append(ResultTable(title, markdown(heads, lines)))
    return made


def _both(rows: Rows) -> list[str]:
    return [f"{mean(rows, 'share', mark=mark):.0f} / {mean(rows, 'siblings', mark=mark):.0f}" for mark in _LATE]


def _marks(rows: Rows, measure: str) -> list[str]:
    return [short(mean(rows, measure, mark=mark)) for mark in SHOWN]


DISCOVERY = Experiment(
    "discovery",
    "Which unread page first",
    "A crawl begins at ten random pages that link, finds the others by links, and reads each page once, a hundredth of "
    "the pages a round. *Recomputed* is the PageRank of the graph seen, every round; *by the ledger* the same by the "
    "orders of a certified ledger, event by event; *learnt* is the rule of opicflow, by such orders. *Siblings* and "
    "*learnt at first* are the rule that was tried first, without and with exploring. *RankMass* is the PageRank of "
    "the graph seen personalised to the seeds (Cho and Schonfeld 2007), *fractional* that of Alam, Ha and Lee (2012) "
    "with hosts, *Nutch's OPIC* hands out scores without a virtual page. *Greedy by truth* has the exact importance "
    "of the pages found. On webs with traps hostile pages have no importance.",
    "discovery",
    _tasks,
    _plots,
    _tables,
    claims.of_discovery,
    PAGES,
    RUNS,
)
