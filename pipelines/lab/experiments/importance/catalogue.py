"""Experiments on importance: the tasks of each, its tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable, no_plots
from opicflow.pipelines.lab.experiments.importance import claims
from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED, OFF_LINE, ORDERS, WEBS
from opicflow.pipelines.lab.experiments.importance.extensions import (
    DAYS_OF_TRENDS,
    HISTORIES,
    ROUNDS_OF_MOVED,
    UNREADABLE,
)
from opicflow.pipelines.lab.experiments.importance.windows import BY_IMPORTANCE, CERTIFIED_ALONE, RATES, RATES_OF_CYCLE
from opicflow.pipelines.lab.experiments.plots import Curve, Plot, curve_of
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, markdown, mean, short, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

# -- figures 2 and 3 ---------------------------------------------------------------------------------------------------


def _convergence_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for web in WEBS
        for task in (
            *(
                MeasureTask.of(measure, pages=pages, seed=seed, web=web, order=order)
                for measure in ("convergence", "convergence_certified")
                for order in ORDERS
            ),
            MeasureTask.of("off_line", pages=pages, seed=seed, web=web),
        )
    ]


def _lines_of_orders(rows: Rows, measure: str, web: str = "power-law") -> list[Curve]:
    lines = [
        curve_of(where(rows, web=web, order=order, importance=read_by), order, "crawls", measure)
        for order in (*ORDERS, OFF_LINE)
        for read_by in [OFF_LINE if order == OFF_LINE else "history"]
    ]
    return lines + [
        curve_of(where(rows, web=web, order=order, importance=CERTIFIED), f"{order}, {CERTIFIED}", "crawls", measure)
        for order in ("random", "cycle", "greedy")
    ]


def _convergence_plot(name: str, title: str, measure: str) -> Callable[[Rows], list[Plot]]:
    def plots(rows: Rows) -> list[Plot]:
        lines = _lines_of_orders(rows, measure)
        return [Plot(name, title, "pages read, in N", "mean relative error, %", lines, "y", range(1, 11))]

    return plots


def _convergence_tables(measure: str) -> Callable[[Rows], list[ResultTable]]:
    def tables(rows: Rows) -> list[ResultTable]:
        crawls = (1, 2, 3, 5, 7, 10)
        made = []
        for web in distinct(rows, "web"):
            lines = []
            for order in (*ORDERS, OFF_LINE):
                for read_by in distinct(where(rows, order=order), "importance"):
                    chosen = where(rows, web=web, order=order, importance=read_by)
                    lines.append((order, read_by, *(short(mean(chosen, measure, crawls=k)) for k in crawls)))
            heads = ("order", "importance by", *(f"{k}N" for k in crawls))
            made.append(ResultTable(f"On the {web} web: mean relative error in per cent", markdown(heads, lines)))
        return made

    return tables


def _more_of_convergence(rows: Rows) -> list[ResultTable]:
    lines = []
    for web in distinct(rows, "web"):
        for order in (*ORDERS, OFF_LINE):
            for read_by in (OFF_LINE,) if order == OFF_LINE else ("history", CERTIFIED):
                chosen = where(rows, web=web, order=order, importance=read_by, crawls=10)
                names = ("everywhere", "weighted", "spread", "over_twice", "disorder", "imbalance")
                lines.append((web, order, read_by, *(short(mean(chosen, name)) for name in names)))
    heads = (
        "web",
        "order",
        "importance by",
        "mean error %",
        "weighted %",
        "deviation %",
        "over twice the mean %",
        "disorder %",
        "imbalance",
    )
    orders = []
    for web in distinct(rows, "web"):
        for order in ORDERS:
            chosen = where(rows, web=web, order=order, importance="history")
            cash = [short(mean(chosen, "cash_at_visit", crawls=k)) for k in (1, 2, 5, 10)]
            orders.append((web, order, *cash, short(mean(chosen, "turns", crawls=10))))
    heads_of_cash = ("web", "order", "1N", "2N", "5N", "10N", "G after 10N, in turns")
    early = []
    for order in ORDERS:
        for read_by in ("history", CERTIFIED):
            chosen = where(rows, web="power-law", order=order, importance=read_by)
            known = [
                f"{short(mean(chosen, 'unread', crawls=k))} / {short(mean(chosen, 'as_seen', crawls=k))}"
                for k in (1, 2, 3, 5)
            ]
            early.append((order, read_by, *known, short(mean(chosen, "visits_of_best", crawls=10))))
    heads_of_early = ("order", "importance by", "1N", "2N", "3N", "5N", "visits of the most important hundredth, %")
    proven = []
    for web in distinct(rows, "web"):
        for order in ORDERS:
            chosen = where(rows, web=web, order=order, importance=CERTIFIED)
            proven.append((web, order, *(_certified(where(chosen, crawls=k)) for k in (1, 2, 3, 5, 10))))
    heads_of_proven = ("web", "order", "1N", "2N", "3N", "5N", "10N")
    return [
        ResultTable("Certified: certificate / true distance, in per cent", markdown(heads_of_proven, proven)),
        ResultTable("Other measures of the error, after 10N", markdown(heads, lines)),
        ResultTable("Mean cash of a page when it is read, in 1/N of all cash", markdown(heads_of_cash, orders)),
        ResultTable(
            "Pages not read yet, in per cent / the error against the web as it was seen until then (power-law)",
            markdown(heads_of_early, early),
        ),
    ]


# -- figures 4, 5 and 6 ------------------------------------------------------------------------------------------------


def _windows_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of(measure, pages=pages, seed=seed, order=order, rate=rate)
        for seed in seeds
        for measure in ("windows", "windows_certified")
        for order, rates in (("greedy", RATES), ("cycle", RATES_OF_CYCLE))
        for rate in rates
    ]


def _windows_plot(name: str, title: str, policies: Sequence[str]) -> Callable[[Rows], list[Plot]]:
    def plots(rows: Rows) -> list[Plot]:
        x = "pages whose in-degree is halved or doubled while N are read, %"
        made = []
        for measure, more in (("everywhere", ""), ("top", ", most important tenth")):
            lines = [
                curve_of(where(rows, order="greedy", policy=policy), policy, "rate", measure) for policy in policies
            ]
            suffix = "-top" if more else ""
            made.append(Plot(f"{name}{suffix}", f"{title}{more}", x, "mean relative error, %", lines, "xy", RATES))
        return made

    return plots


def _windows_tables(policies: Sequence[str]) -> Callable[[Rows], list[ResultTable]]:
    def tables(rows: Rows) -> list[ResultTable]:
        made = []
        for order in distinct(rows, "order"):
            rates = distinct(where(rows, order=order), "rate")
            here = [p for p in policies if where(rows, order=order, policy=p)]
            lines = [(p, *(_both(where(rows, order=order, policy=p, rate=rate)) for rate in rates)) for p in here]
            title = f"Read by {order}: mean relative error in per cent, all pages / most important tenth"
            made.append(ResultTable(title, markdown(("history policy", *(f"{rate:g} %" for rate in rates)), lines)))
        return made

    return tables


def _certificates_of_windows(rows: Rows) -> list[ResultTable]:
    lines = []
    for order in distinct(rows, "order"):
        for policy in (CERTIFIED, CERTIFIED_ALONE):
            chosen = where(rows, order=order, policy=policy)
            if chosen:
                found = (_certified(where(chosen, rate=rate)) for rate in RATES)
                lines.append((order, policy, *found))
    heads = ("order", "history policy", *(f"{rate:g} %" for rate in RATES))
    return [ResultTable("Certified: certificate / true distance after 10N, in per cent", markdown(heads, lines))]


def _certified(rows: Rows) -> str:
    """The certificate, and the distance from the exact ranks of the graph seen that it bounds."""
    certificate, distance = mean(rows, "certificate"), mean(rows, "distance")
    return "-" if np.isnan(certificate) else f"{short(certificate)} / {short(distance)}"


def _both(rows: Rows) -> str:
    return f"{short(mean(rows, 'everywhere'))} / {short(mean(rows, 'top'))}"


def _measures_table(rows: Rows) -> list[ResultTable]:
    made = []
    for order in distinct(rows, "order"):
        chosen = where(rows, order=order)
        rates = distinct(chosen, "rate")
        policies = distinct(chosen, "policy")
        lines = [(p, *(short(mean(chosen, "measures", policy=p, rate=rate)) for rate in rates)) for p in policies]
        heads = ("history policy", *(f"{rate:g} %" for rate in rates))
        made.append(ResultTable(f"Read by {order}: measures a page", markdown(heads, lines)))
    return made


_FIG4 = (
    "variable, 4",
    "variable, 8",
    "variable, 16",
    "interpolation, 4 months",
    "default",
    "all",
    CERTIFIED,
    CERTIFIED_ALONE,
)
_FIG6 = (
    "variable, 8",
    "fixed, 8 months",
    "improved fixed, 4 months",
    "interpolation, 4 months",
    "default, 4 months",
    "default",
    "all",
    BY_IMPORTANCE,
    CERTIFIED,
)


# -- beyond the papers -------------------------------------------------------------------------------------------------


def _growing_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("growing", pages=pages, seed=seed, history=history, newcomers=newcomers)
        for seed in seeds
        for history in HISTORIES
        for newcomers in ((False,) if history in ("all", CERTIFIED, CERTIFIED_ALONE) else (True, False))
    ]


def _growing_tables(rows: Rows) -> list[ResultTable]:
    times = distinct(rows, "crawls")
    lines = [
        (
            history,
            "-" if str(history).startswith(CERTIFIED) else "yes" if newcomers else "no",
            *(f"{short(mean(chosen, 'known', crawls=t))} / {short(mean(chosen, 'unread', crawls=t))}" for t in times),
            *(_certified(where(chosen, crawls=t)) for t in times),
        )
        for history in distinct(rows, "history")
        for newcomers in distinct(where(rows, history=history), "newcomers")
        for chosen in [where(rows, history=history, newcomers=newcomers)]
    ]
    moments = [f"{float(t):g}N" for t in times]
    heads = ("history", "newcomers' history", *moments, *(f"certificate / distance, {moment}" for moment in moments))
    return [
        ResultTable(
            "Mean relative error against the whole web of that moment, in per cent, all pages known / those not read "
            "yet; of the graph seen: the certificate / the true distance, in per cent",
            markdown(heads, lines),
        )
    ]


def _moved_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("moved", pages=pages, seed=seed, order=order, history=history)
        for seed in seeds
        for order in ("cycle", "greedy")
        for history in ("default", CERTIFIED)
    ]


def _moved_tables(rows: Rows) -> list[ResultTable]:
    lines, proven = [], []
    for order in distinct(rows, "order"):
        for history in distinct(rows, "history"):
            chosen = where(rows, order=order, history=history)
            lines.append((order, history, *(_both(where(chosen, rounds=rounds)) for rounds in ROUNDS_OF_MOVED)))
        chosen = where(rows, order=order, history=CERTIFIED)
        proven.append((order, *(_certified(where(chosen, rounds=rounds)) for rounds in ROUNDS_OF_MOVED)))
    times = [f"{rounds:g}N" for rounds in ROUNDS_OF_MOVED]
    return [
        ResultTable(
            "Mean relative error in per cent, all pages / most important tenth, so many visits after the move",
            markdown(("order", "history", *times), lines),
        ),
        ResultTable("Certified: certificate / true distance, in per cent", markdown(("order", *times), proven)),
    ]


def _trouble_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    cases = ((0.0, 0.0), (0.0, 0.8), (UNREADABLE, 0.0), (UNREADABLE, 0.8))
    return [
        MeasureTask.of(
            "trouble",
            pages=pages,
            seed=seed,
            order=order,
            unreadable=unreadable,
            unchanged=unchanged,
            history=history,
            remember=remember,
        )
        for seed in seeds
        for order in ("greedy", "cycle", "random")
        for unreadable, unchanged in cases
        for history, remember in (("default", False), ("default", True), (CERTIFIED, True))
    ]


def _trouble_tables(rows: Rows) -> list[ResultTable]:
    crawls = distinct(rows, "crawls")
    lines = []
    for unreadable in distinct(rows, "unreadable"):
        for unchanged in distinct(rows, "unchanged"):
            for order in distinct(rows, "order"):
                for history, remember in (("default", 0), ("default", 1), (CERTIFIED, 1)):
                    chosen = where(rows, unreadable=unreadable, unchanged=unchanged, order=order)
                    chosen = where(chosen, history=history, remember=remember)
                    errors = (_both(where(chosen, crawls=k)) for k in crawls)
                    last = where(chosen, crawls=20)
                    whole = f"{short(mean(last, 'whole'))} / {short(mean(last, 'whole_top'))}" if unreadable else "-"
                    what = (_per_cent(unreadable), _per_cent(unchanged), order, history, "yes" if remember else "no")
                    lines.append((*what, *errors, whole, _certified(last), short(mean(last, "idle_cash"))))
    heads = ("never read", "not modified", "order", "history", "links remembered", *(f"{k}N" for k in crawls))
    after = ("20N, against the whole web", "certificate / distance after 20N, %", "cash idle after 20N, %")
    title = "Mean relative error against the graph seen, in per cent, all pages / most important tenth"
    return [ResultTable(title, markdown((*heads, *after), lines))]


def _per_cent(share: object) -> str:
    return f"{float(str(share)) * 100:g} %"


def _stated_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("stated", pages=pages, seed=seed, order=order, history=history)
        for seed in seeds
        for order in ("greedy", "cycle")
        for history in ("default", CERTIFIED)
    ]


def _stated_tables(rows: Rows) -> list[ResultTable]:
    names = ("error", "error_factor", "factor_rank", "within_factor", "certificate", "trend_rank", "trend_sign", "seen")
    lines = [
        (order, history, day, *(short(mean(rows, name, order=order, history=history, day=day)) for name in names))
        for order in distinct(rows, "order")
        for history in distinct(rows, "history")
        for day in distinct(rows, "day")
    ]
    heads = ("order", "history", "day", "error %", "error factor %", "rank correlation of both")
    more = ("off by no more than it %", "certificate %")
    trend = ("trend: rank correlation", "right sign %", "of the move, a day")
    return [ResultTable("The web changes on day 10", markdown((*heads, *more, *trend), lines))]


def _trends_tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("trends", pages=pages, seed=seed, web=web, order=order)
        for seed in seeds
        for web in ("changing", "growing")
        for order in ("cycle", "greedy", "random")
    ]


def _trends_tables(rows: Rows) -> list[ResultTable]:
    made = []
    for web in distinct(rows, "web"):
        lines = []
        for order in distinct(rows, "order"):
            chosen = where(rows, web=web, order=order)
            still = (short(mean(chosen, "steepest", day=day)) for day in (2, 3, 5))
            lines.append((order, *still, *(_rose(where(chosen, day=day)) for day in (8, 12, 16, 20))))
        heads = ("order", *(f"steepness, day {day}" for day in (2, 3, 5)))
        days = (f"day {day}" for day in (8, 12, 16, DAYS_OF_TRENDS))
        title = f"On the {web} web: steepness while nothing changes; precision (of all pages that rose) / recall, in %"
        made.append(ResultTable(title, markdown((*heads, *days), lines)))
    return made


def _rose(rows: Rows) -> str:
    return f"{short(mean(rows, 'precision'))} ({short(mean(rows, 'rose'))}) / {short(mean(rows, 'recall'))}"


IMPORTANCE = (
    Experiment(
        "fig2",
        "Figure 2: convergence, all pages",
        "A web that does not change and is known in advance is read in some order. Off-line, every iteration of "
        "PageRank counts as N pages. *Certified* greedy and Xyleme follow the waiting cash of the certified ledger. "
        "The "
        "true distance is the sum of all differences from the exact ranks of the graph seen; the certificate bounds "
        "it.",
        "convergence",
        _convergence_tasks,
        _convergence_plot("fig2", "Figure 2: error over all pages", "everywhere"),
        lambda rows: [*_convergence_tables("everywhere")(rows), *_more_of_convergence(rows)],
        claims.of_fig2,
    ),
    Experiment(
        "fig3",
        "Figure 3: convergence, important pages",
        "The same crawls; errors of the most important tenth of the pages.",
        "convergence",
        _convergence_tasks,
        _convergence_plot("fig3", "Figure 3: error over the most important tenth", "top"),
        _convergence_tables("top"),
        claims.of_fig3,
    ),
    Experiment(
        "fig4",
        "Figure 4: the size of the window",
        "While N pages are read, a share of the pages has its in-degree halved or doubled. The web is "
        "crawled ten times; errors are means over 6N to 10N. Plots are of Greedy. *Certified* is the history "
        "policy of that name, which remembers links, with the same visits; *by its own cash*: where greedy follows its "
        "waiting cash.",
        "windows",
        _windows_tasks,
        _windows_plot("fig4", "Figure 4: windows of several sizes", _FIG4),
        lambda rows: [*_windows_tables(_FIG4)(rows), *_certificates_of_windows(rows)],
        claims.of_fig4,
    ),
    Experiment(
        "fig5",
        "Figure 5: what policies keep",
        "Measures kept a page after those crawls. A month is the time of N visits. *Certified* keeps two totals a "
        "page, "
        "and the links.",
        "windows",
        _windows_tasks,
        no_plots,
        _measures_table,
        claims.of_fig5,
    ),
    Experiment(
        "fig6",
        "Figure 6: history policies",
        "The same crawls, other policies. *By importance* is fixed, 8 months for the tenth of the pages it finds "
        "most important, and variable, 16 for the others.",
        "windows",
        _windows_tasks,
        _windows_plot("fig6", "Figure 6: history policies", _FIG6),
        _windows_tables(_FIG6),
        claims.of_fig6,
    ),
    Experiment(
        "growing",
        "A web that grows",
        "It grows from half of its pages to all pages while 5N visits are made, read greedily in batches. "
        "*Certified* "
        "has the visits of the default; *by its own cash*: greedy follows its waiting cash.",
        "growing",
        _growing_tasks,
        no_plots,
        _growing_tables,
        claims.of_growing,
    ),
    Experiment(
        "moved",
        "Links that move",
        "Every page is announced. After 3N visits a tenth of all links move, each to the target of a random link of "
        "the "
        "web, and the pages are read again.",
        "moved",
        _moved_tasks,
        no_plots,
        _moved_tables,
        claims.of_moved,
    ),
    Experiment(
        "trouble",
        "Pages that cannot be read, and answers without links",
        'A share of the pages is never requested and 5 % refuse; a share of later answers is "not modified". '
        "*Links remembered*: the ledger keeps the last links of each page, and the round pays along them. In the graph "
        "seen pages that were never read have no links; in the whole web, which no crawl can know, they have.",
        "trouble",
        _trouble_tasks,
        no_plots,
        _trouble_tables,
        claims.of_trouble,
    ),
    Experiment(
        "stated",
        "How good the published trend and error factor are",
        "N visits a day; on day 10 the in-degrees of 5 % of the pages are halved or doubled.",
        "stated",
        _stated_tasks,
        no_plots,
        _stated_tables,
        claims.of_stated,
    ),
    Experiment(
        "trends",
        "Which pages rise",
        "N visits a day. Nothing changes for five days; then, every day, the in-degrees of 1 % of the pages are halved "
        "or doubled, or the web grows by a fiftieth of its first pages. The trends of *certified* with a window of "
        "three days are compared with those of "
        "the exact ranks of the web at the end of each day. Precision: of the highest hundredth of the published "
        "trends, the share whose page really rose. Recall: of the hundredth that really rose most, the share that is "
        "in the highest hundredth of the published trends. Steepness: the mean size of the trends of the most "
        "important "
        "hundredth, in per cent of their importance a day.",
        "trends",
        _trends_tasks,
        no_plots,
        _trends_tables,
        claims.of_trends,
    ),
)
"""In the order in which they are run and reported."""
