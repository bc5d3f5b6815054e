"""Figures 2 and 3 of paper 002: how fast importance comes near the exact one, by the order of visits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.importance.convergence import (
    CERTIFIED,
    OFF_LINE,
    ORDERS,
    PRINTED,
    PRINTED_FREQUENCY,
    WEBS,
    convergence,
    convergence_certified,
    convergence_printed,
    off_line,
)
from opicflow.pipelines.lab.experiments.importance.judging import (
    ABSTRACT,
    CERTIFIED_PAGE,
    PAPER,
    about_equal,
    certificate_claim,
    judged_as_printed,
    proven,
)
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.tables import (
    Row,
    Rows,
    distinct,
    each,
    lines_by,
    mean,
    means,
    pair,
    short,
    where,
)
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for web in WEBS
        for task in (
            *grid(convergence, pages=pages, seed=seed, web=web, order=ORDERS),
            *grid(convergence_printed, pages=pages, seed=seed, web=web, order=ORDERS),
            *grid(convergence_certified, pages=pages, seed=seed, web=web, order=ORDERS),
            *grid(off_line, pages=pages, seed=seed, web=web),
        )
    ]


def _plots(name: str, title: str, measure: str) -> Callable[[Rows], list[Plot]]:
    shown = [(order, order, "history") for order in ORDERS] + [(OFF_LINE, OFF_LINE, OFF_LINE)]
    shown += [(f"{order}, {by}", order, by) for by in (CERTIFIED, PRINTED) for order in ("random", "cycle", "greedy")]

    def plots(rows: Rows) -> list[Plot]:
        of_web = where(rows, web="power-law")
        lines = [
            curve_of(where(of_web, order=order, importance=read_by), words, "crawls", measure)
            for words, order, read_by in shown
        ]
        return [Plot(name, title, "pages read, in N", "mean relative error, %", lines, "y", range(1, 11))]

    return plots


def _tables(measure: str) -> Callable[[Rows], list[ResultTable]]:
    crawls = (1, 2, 3, 5, 7, 10)
    heads = ("order", "importance by", *(f"{k}N" for k in crawls))

    def tables(rows: Rows) -> list[ResultTable]:
        made = []
        for web in distinct(rows, "web"):
            title = f"On the {web} web: mean relative error in per cent"
            lines = lines_by(
                _in_order(where(rows, web=web)), ("order", "importance"), each("crawls", crawls, *means(measure))
            )
            made.append(ResultTable(title, heads, lines))
        return made

    return tables


def _in_order(rows: Rows) -> list[Row]:
    """Return rows by web, then by order of visits, then by what importance is read from."""
    names = {name: number for number, name in enumerate((*ORDERS, OFF_LINE))}
    webs, by = distinct(rows, "web"), distinct(rows, "importance")
    return sorted(rows, key=lambda row: (webs.index(row["web"]), names[str(row["order"])], by.index(row["importance"])))


def _more_tables(all_rows: Rows) -> list[ResultTable]:
    rows = [row for row in _in_order(all_rows) if row["importance"] in ("history", PRINTED, CERTIFIED, OFF_LINE)]
    certified = where(rows, importance=CERTIFIED)
    with_cash = [row for row in rows if row["importance"] in ("history", PRINTED)]
    named = ("web", "order", "importance by")
    errors = ("everywhere", "weighted", "spread", "over_twice", "disorder", "imbalance")
    of_errors = ("mean error %", "weighted %", "deviation %", "over twice the mean %", "disorder %", "imbalance")
    of_cash = [*each("crawls", (1, 2, 5, 10), *means("cash_at_visit")), *each("crawls", (10,), *means("turns"))]
    early = [row for row in where(rows, web="power-law") if row["importance"] != OFF_LINE]
    of_early = [
        *each("crawls", (1, 2, 3, 5), pair("unread", "as_seen")),
        *each("crawls", (10,), *means("visits_of_best")),
    ]
    return [
        ResultTable(
            "Certified: certificate / true distance, in per cent",
            ("web", "order", "1N", "2N", "3N", "5N", "10N"),
            lines_by(certified, ("web", "order"), each("crawls", (1, 2, 3, 5, 10), proven)),
        ),
        ResultTable(
            "Other measures of the error, after 10N",
            (*named, *of_errors),
            lines_by(where(rows, crawls=10), ("web", "order", "importance"), means(*errors)),
        ),
        ResultTable(
            "Mean cash of a page when it is read, in 1/N of all cash",
            (*named, "1N", "2N", "5N", "10N", "G after 10N, in turns"),
            lines_by(with_cash, ("web", "order", "importance"), of_cash),
        ),
        ResultTable(
            "Pages not read yet, in per cent / the error against the web as it was seen until then (power-law)",
            (*named[1:], "1N", "2N", "3N", "5N", "visits of the most important hundredth, %"),
            lines_by(early, ("order", "importance"), of_early),
        ),
    ]


def _at(
    rows: Rows, order: str, crawls: int, measure: str = "everywhere", by: str = "", web: str = "power-law"
) -> float:
    by = by or (OFF_LINE if order == OFF_LINE else "history")
    return mean(rows, measure, web=web, order=order, importance=by, crawls=crawls)


def _seen_by(rows: Rows, by: str) -> list[Row]:
    """Return the rows of one way to read importance as those of `history`, with the off-line ones."""
    frequency = PRINTED_FREQUENCY if by == PRINTED else "frequency"
    names = {by: "history", frequency: "frequency", OFF_LINE: OFF_LINE}
    return [row | {"importance": names[str(row["importance"])]} for row in rows if row["importance"] in names]


def _per_order(rows: Rows, crawls: int, measure: str, orders: Sequence[str]) -> str:
    return ", ".join(f"{order} {short(_at(rows, order, crawls, measure))}" for order in orders)


def of_fig2(rows: Rows) -> list[Claim]:
    """Return the claims of figure 2 and its text, and our own."""
    papers = judged_as_printed(_papers_of_fig2(_seen_by(rows, PRINTED)), _papers_of_fig2(_seen_by(rows, "history")))

    def certified(order: str, crawls: int) -> float:
        return _at(rows, order, crawls, by=CERTIFIED)

    return [
        *papers,
        Claim(
            "Certified: the mean error is at most 0.2 % after 2N and 0.01 % after 3N under Cycle, 0.02 % after 3N "
            "under Greedy in batches.",
            CERTIFIED_PAGE,
            f"Cycle {certified('cycle', 2):.4f} % after 2N, {certified('cycle', 3):.4f} % after 3N; Greedy in batches "
            f"{certified('greedy-batches', 3):.4f} % after 3N",
            certified("cycle", 2) <= 0.2 and max(certified("cycle", 3), certified("greedy-batches", 3) / 2) <= 0.01,
            CERTIFIED,
        ),
        Claim(
            "Certified: under exact Greedy it is at most 0.02 % after 3N, too.",
            CERTIFIED_PAGE,
            f"{certified('greedy', 3):.4f} %",
            certified("greedy", 3) <= 0.02,
            CERTIFIED,
        ),
        certificate_claim(rows),
    ]


def _papers_of_fig2(rows: Rows) -> list[Claim]:
    greedy, cycle, random, off = (
        {k: _at(rows, name, k) for k in range(1, 11)} for name in ("greedy", "cycle", "random", OFF_LINE)
    )
    measures = ("everywhere", "weighted", "spread", "disorder")
    by_measure = {
        measure: tuple(sorted(("random", "cycle", "greedy"), key=lambda order: _at(rows, order, 10, measure)))
        for measure in measures
    }
    over = {order: _at(rows, order, 10, "over_twice") for order in ("random", "cycle", "greedy")}
    spreads = {order: _at(rows, order, 10, "spread") / _at(rows, order, 10) for order in over}
    cash = {order: _cash(rows, order, "power-law") for order in ("greedy", "cycle", "random")}
    cash_poisson = {order: _cash(rows, order, "poisson") for order in cash}
    products = {
        order: [_at(rows, order, k, "imbalance") * _at(rows, order, k, "turns") for k in (2, 5, 10)] for order in ORDERS
    }
    frequency = _at(rows, "greedy", 10, by="frequency"), _at(rows, "greedy", 10, "top", by="frequency")

    same_shape = {
        web: tuple(sorted(("random", "cycle", "greedy"), key=lambda order: _at(rows, order, 10, web=web)))
        for web in ("power-law", "poisson")
    }
    return [
        Claim(
            "The error is about the same for Greedy and Cycle.",
            PAPER,
            f"after 5N {short(greedy[5])} and {short(cycle[5])} %, "
            f"after 10N {short(greedy[10])} and {short(cycle[10])} %",
            all(about_equal(greedy[k], cycle[k]) for k in (5, 10)),
        ),
        Claim(
            "Random performs significantly worse.",
            PAPER,
            f"after 10N {short(random[10])} %, Cycle {short(cycle[10])} %, Greedy {short(greedy[10])} %",
            random[10] > 1.3 * max(cycle[10], greedy[10]),
        ),
        Claim(
            "The off-line algorithm converges almost like Cycle and Greedy.",
            PAPER,
            f"off-line after 5N {short(off[5])} %, after 10N {short(off[10])} %",
            all(about_equal(off[k], other[k], 2) for k in (5, 10) for other in (cycle, greedy)),
        ),
        Claim(
            "The off-line algorithm eventually converges faster, and OPIC has a reasonable estimate very early.",
            ABSTRACT,
            f"after N Greedy {short(greedy[1])} %, off-line {short(off[1])} %; after 2N {short(greedy[2])} and "
            f"{short(off[2])} %; after 10N {short(greedy[10])} and {short(off[10])} %",
            greedy[1] < off[1] and off[10] < greedy[10],
        ),
        Claim(
            "Less than one per cent of error when Greedy has read each page about five times.",
            ABSTRACT,
            f"{short(greedy[5])} % after 5N, {short(greedy[10])} % after 10N",
            greedy[5] < 1.0,
        ),
        Claim(
            "Random is roughly twice slower than Greedy.",
            ABSTRACT,
            f"Random after 10N {short(random[10])} %; Greedy was there after {_reached(greedy, random[10])}N",
            2 / 1.4 <= 10 / _reached(greedy, random[10]) <= 2 * 1.4,
        ),
        Claim(
            "Almost no page has an error of more than twice the mean; the variance is roughly the same for all orders.",
            PAPER,
            "over twice the mean: "
            + ", ".join(f"{order} {short(over[order])} %" for order in over)
            + "; deviation over mean: "
            + ", ".join(f"{order} {short(spreads[order])}" for order in spreads),
            max(over.values()) < 5 and about_equal(min(spreads.values()), max(spreads.values())),
        ),
        Claim(
            "Other measures of the error, that of ordering pages among them, make no difference.",
            PAPER,
            "from best to worst: " + "; ".join(f"{name}: {', '.join(order)}" for name, order in by_measure.items()),
            len(set(by_measure.values())) == 1,
        ),
        Claim(
            "Results on a Poisson web are similar.",
            PAPER,
            "; ".join(
                f"{web}: " + ", ".join(f"{order} {short(_at(rows, order, 10, web=web))} %" for order in orders)
                for web, orders in same_shape.items()
            ),
            same_shape["power-law"] == same_shape["poisson"],
        ),
        Claim(
            "Under Greedy a page has 2/N of the cash when it is read, under Random 1/N.",
            "paper 002, 3.2",
            "in the third to tenth N visits, times 1/N: "
            + "; ".join(
                f"{web} web: " + ", ".join(f"{order} {short(value)}" for order, value in found.items())
                for web, found in (("power-law", cash), ("poisson", cash_poisson))
            ),
            all(about_equal(found["greedy"], 2, 1.15) for found in (cash, cash_poisson))
            and about_equal(cash["random"], 1, 1.15),
        ),
        Claim(
            "|L'X - X| < 1/G: the error factor.",
            "paper 002, 3.1",
            "|L'X - X| times G, after 2N, 5N, 10N: "
            + "; ".join(f"{order} {', '.join(map(short, found))}" for order, found in products.items()),
            all(value < 1 for found in products.values() for value in found),
        ),
        Claim(
            "Under Greedy the frequency of visits alone gives the importance.",
            "abstract 000, 2",
            f"after 10N it errs by {short(frequency[0])} % over all pages, {short(frequency[1])} % over the top tenth; "
            f"history by {short(greedy[10])} and {short(_at(rows, 'greedy', 10, 'top'))} %",
            frequency[1] < 10,
        ),
    ]


def _cash(rows: Rows, order: str, web: str) -> float:
    """The mean cash at a visit once every page may have been read: of the third to tenth N visits."""
    chosen = where(rows, web=web, order=order, importance="history")
    return mean([row for row in chosen if int(row["crawls"]) >= 3], "cash_at_visit")


def _reached(errors: dict[int, float], error: float) -> int:
    return next((crawls for crawls, found in errors.items() if found <= error), max(errors))


def _papers_of_fig3(rows: Rows) -> list[Claim]:
    others = ("random", "cycle", OFF_LINE)
    best = all(_at(rows, "greedy", k, "top") < _at(rows, order, k, "top") for k in range(1, 11) for order in others)
    behind = [k for k in range(1, 11) if _at(rows, "greedy", k, "top") > _at(rows, OFF_LINE, k, "top")]
    xyleme = {order: _at(rows, order, 10, "top") for order in ("xyleme", "greedy")}

    return [
        Claim(
            "On the top tenth Greedy converges faster than the others, the off-line algorithm among them.",
            PAPER,
            f"after N: {_per_order(rows, 1, 'top', ('greedy', *others))} %; after 5N: "
            f"{_per_order(rows, 5, 'top', ('greedy', *others))} %; after 10N: "
            f"{_per_order(rows, 10, 'top', ('greedy', *others))} %"
            + (f"; off-line is better after {', '.join(map(str, behind))} N" if behind else ""),
            best,
        ),
        Claim(
            "Reading pages as often as they are important (Xyleme) is very close to Greedy.",
            "slides 001, 30",
            f"after 10N: {_per_order(rows, 10, 'top', tuple(xyleme))} % over the top tenth, "
            f"{_per_order(rows, 10, 'everywhere', tuple(xyleme))} % over all pages",
            about_equal(xyleme["xyleme"], xyleme["greedy"], 2),
        ),
    ]


def of_fig3(rows: Rows) -> list[Claim]:
    """Return the claims of figure 3 and its text, and our own."""
    papers = judged_as_printed(_papers_of_fig3(_seen_by(rows, PRINTED)), _papers_of_fig3(_seen_by(rows, "history")))

    def best_of_others(crawls: int) -> float:
        return min(_at(rows, order, crawls, "top") for order in (*ORDERS, OFF_LINE))

    return [
        *papers,
        Claim(
            "Certified is nearer on the top tenth than the history of any order, and than off-line, from 2N on.",
            CERTIFIED_PAGE,
            "after 2N: "
            + ", ".join(f"{order} {short(_at(rows, order, 2, 'top', CERTIFIED))}" for order in ("greedy", "cycle"))
            + f" %; the best of the others {short(best_of_others(2))} %; after 5N "
            + ", ".join(f"{order} {short(_at(rows, order, 5, 'top', CERTIFIED))}" for order in ("greedy", "cycle"))
            + f" %; the best of the others {short(best_of_others(5))} %",
            all(
                _at(rows, order, k, "top", CERTIFIED) < best_of_others(k)
                for k in (2, 3, 5, 10)
                for order in ("greedy", "cycle")
            ),
            CERTIFIED,
        ),
    ]


CONVERGENCE = (
    Experiment(
        "fig2",
        "Figure 2: convergence, all pages",
        "A web that does not change and is known in advance is read in some order. Off-line, every iteration of "
        "PageRank counts as N pages. *As printed* is the algorithm of paper 002, by which its claims are judged; "
        "*history* and *default* are ours. *Certified* greedy and Xyleme follow the waiting cash of the certified "
        "ledger. The true distance is the sum of all differences from the exact ranks of the graph seen; the "
        "certificate bounds it.",
        "convergence",
        _tasks,
        lambda rows: [*_tables("everywhere")(rows), *_more_tables(rows)],
        of_fig2,
        plots=_plots("fig2", "Figure 2: error over all pages", "everywhere"),
    ),
    Experiment(
        "fig3",
        "Figure 3: convergence, important pages",
        "The same crawls; errors of the most important tenth of the pages.",
        "convergence",
        _tasks,
        _tables("top"),
        of_fig3,
        plots=_plots("fig3", "Figure 3: error over the most important tenth", "top"),
    ),
)
