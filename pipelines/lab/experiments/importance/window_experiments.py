"""Figures 4 to 6 of paper 002: history policies on a web that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED, PRINTED
from opicflow.pipelines.lab.experiments.importance.judging import (
    ABSTRACT,
    ALL_AND_TOP,
    CERTIFIED_PAGE,
    PAPER,
    about_equal,
    certificate_claim,
    judged_as_printed,
    proven,
)
from opicflow.pipelines.lab.experiments.importance.windows import (
    BY_IMPORTANCE,
    CERTIFIED_ALONE,
    RATES,
    RATES_OF_CYCLE,
    windows,
    windows_certified,
    windows_printed,
)
from opicflow.pipelines.lab.experiments.plots import Plot, curve_of
from opicflow.pipelines.lab.experiments.tables import (
    Cell,
    Row,
    Rows,
    distinct,
    each,
    lines_by,
    mean,
    means,
    short,
    where,
)
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for measure in (windows, windows_printed, windows_certified)
        for order, rates in (("greedy", RATES), ("cycle", RATES_OF_CYCLE))
        for task in grid(measure, pages=pages, seed=seed, order=order, rate=rates)
    ]


def _plots(name: str, title: str, policies: Sequence[str]) -> Callable[[Rows], list[Plot]]:
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


def _tables(policies: Sequence[str] | None, cell: Cell, title: str) -> Callable[[Rows], list[ResultTable]]:
    """Make a table for each order of visits: a line for each of these policies, or for all; a column for each rate."""

    def tables(rows: Rows) -> list[ResultTable]:
        made = []
        for order in distinct(rows, "order"):
            chosen = where(rows, order=order)
            rates = distinct(chosen, "rate")
            if policies is not None:
                chosen = [row for policy in policies for row in where(chosen, policy=policy)]
            lines = lines_by(chosen, ("policy",), each("rate", rates, cell))
            made.append(
                ResultTable(f"Read by {order}: {title}", ("history policy", *(f"{r:g} %" for r in rates)), lines)
            )
        return made

    return tables


_ERRORS = "mean relative error in per cent, all pages / most important tenth"


def _certificates(rows: Rows) -> list[ResultTable]:
    order = [(order, policy) for order in distinct(rows, "order") for policy in (CERTIFIED, CERTIFIED_ALONE)]
    chosen = [row for one, policy in order for row in where(rows, order=one, policy=policy)]
    lines = lines_by(chosen, ("order", "policy"), each("rate", RATES, proven))
    heads = ("order", "history policy", *(f"{rate:g} %" for rate in RATES))
    return [ResultTable("Certified: certificate / true distance after 10N, in per cent", heads, lines)]


_SUFFIX = f", {PRINTED}"
_FIG4 = (
    *(f"{policy}{_SUFFIX}" for policy in ("variable, 4", "variable, 8", "variable, 16", "interpolation, 4 months")),
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
    *(f"{policy}{_SUFFIX}" for policy in ("variable, 8", "fixed, 4 months", "fixed, 8 months")),
    *(f"{policy}{_SUFFIX}" for policy in ("improved fixed, 4 months", "interpolation, 4 months", "all", BY_IMPORTANCE)),
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


def _of(rows: Rows, policy: str, rate: float, measure: str = "everywhere") -> float:
    return mean(rows, measure, order="greedy", policy=policy, rate=rate)


def _rates(rows: Rows) -> list[float]:
    return sorted({float(row["rate"]) for row in rows})


def _compared(rows: Rows, policies: Sequence[str], rates: Sequence[float], measure: str = "everywhere") -> str:
    return "; ".join(
        f"at {rate:g} %: " + ", ".join(f"{policy} {short(_of(rows, policy, rate, measure))}" for policy in policies)
        for rate in rates
    )


def _as_printed(rows: Rows) -> list[Row]:
    """Return the rows of the printed policies, under the names that ours have."""
    policies = [(row, str(row["policy"])) for row in rows]
    return [row | {"policy": policy.removesuffix(_SUFFIX)} for row, policy in policies if policy.endswith(_SUFFIX)]


def _both(claims: Callable[[Rows], list[Claim]], rows: Rows) -> list[Claim]:
    return judged_as_printed(claims(_as_printed(rows)), claims(rows))


def of_fig4(rows: Rows) -> list[Claim]:
    """Return the claims of figure 4 and its text, and our own."""
    rates = _rates(rows)

    def of_cycle(policy: str, rate: float) -> float:
        return mean(rows, "everywhere", order="cycle", policy=policy, rate=rate)

    return [
        *_both(_papers_of_fig4, rows),
        Claim(
            "Certified is nearer than every window at every change rate.",
            CERTIFIED_PAGE,
            _compared(rows, (CERTIFIED, "variable, 4", "default"), rates)
            + " %; cycle "
            + "; ".join(
                f"at {rate:g} %: {short(of_cycle(CERTIFIED, rate))}, default {short(of_cycle('default', rate))}"
                for rate in rates
                if where(rows, order="cycle", rate=rate)
            )
            + " %",
            all(
                _of(rows, CERTIFIED, rate) < _of(rows, policy, rate)
                for rate in rates
                for policy in {str(row["policy"]) for row in rows if not str(row["policy"]).startswith(CERTIFIED)}
            ),
            CERTIFIED,
        ),
        certificate_claim(rows),
    ]


def _papers_of_fig4(rows: Rows) -> list[Claim]:
    rates = _rates(rows)
    fast = [rate for rate in rates if rate > 1]
    variables = ("variable, 4", "variable, 8", "variable, 16")
    large, ours = "variable, 16", "interpolation, 4 months"

    return [
        Claim(
            "Small windows come reasonably close to the fixpoint (8), too small ones err more (4).",
            PAPER,
            _compared(rows, variables, (0,)) + " %",
            _of(rows, "variable, 8", 0) < _of(rows, "variable, 4", 0),
        ),
        Claim(
            "A small window reacts better where the web changes more.",
            PAPER,
            _compared(rows, variables, fast) + " %",
            all(_of(rows, "variable, 4", rate) < _of(rows, large, rate) for rate in fast),
        ),
        Claim(
            "Interpolation performs almost as well as the window of 16 where little changes.",
            PAPER,
            _compared(rows, (ours, large), (0, 0.1))
            + " %; top tenth "
            + _compared(rows, (ours, large), (0, 0.1), "top")
            + " %",
            all(_of(rows, ours, rate) <= 1.5 * _of(rows, large, rate) for rate in (0, 0.1)),
        ),
        Claim(
            "It adapts better to more than 1 % of changes.",
            PAPER,
            _compared(rows, (ours, large), fast)
            + " %; top tenth "
            + _compared(rows, (ours, large), fast, "top")
            + " %",
            all(_of(rows, ours, rate) < _of(rows, large, rate) for rate in fast),
        ),
    ]


def of_fig5(rows: Rows) -> list[Claim]:
    """Return the claims of figure 5."""
    return _both(_papers_of_fig5, rows)


def _papers_of_fig5(rows: Rows) -> list[Claim]:
    paper = {
        "variable, 8": 8.0,
        "fixed, 8 months": 8.4,
        "improved fixed, 4 months": 6.1,
        "interpolation, 4 months": 1.0,
    }
    found = {policy: _of(rows, policy, 0.0, "measures") for policy in paper}
    return [
        Claim(
            "Measures a page: " + ", ".join(f"{policy}: {value:g}" for policy, value in paper.items()) + ".",
            "paper 002, figure 5",
            ", ".join(f"{policy}: {short(value)}" for policy, value in found.items()),
            all(about_equal(found[policy], value, 1.25) for policy, value in paper.items()),
        )
    ]


def of_fig6(rows: Rows) -> list[Claim]:
    """Return the claims of figure 6 and its text."""
    return _both(_papers_of_fig6, rows)


def _papers_of_fig6(rows: Rows) -> list[Claim]:
    rates = _rates(rows)
    slow, fast = [rate for rate in rates if rate <= 1], [rate for rate in rates if rate > 1]
    variable, fixed, improved, simple = (
        "variable, 8",
        "fixed, 8 months",
        "improved fixed, 4 months",
        "interpolation, 4 months",
    )

    def wins(one: str, other: str, among: Sequence[float], measure: str = "everywhere") -> bool:
        return all(_of(rows, one, rate, measure) < _of(rows, other, rate, measure) for rate in among)

    best = [
        rate
        for rate in rates
        if all(_of(rows, simple, rate) <= _of(rows, other, rate) for other in (variable, fixed, improved))
    ]
    return [
        Claim(
            "Variable Window performs better than Fixed Window.",
            PAPER,
            _compared(rows, (variable, fixed), (0, 1, 10)) + " %",
            wins(variable, fixed, rates),
        ),
        Claim(
            "Improved Fixed Window is significantly better than Fixed Window.",
            PAPER,
            _compared(rows, (improved, fixed), (0, 1, 10)) + " %",
            wins(improved, fixed, rates),
        ),
        Claim(
            "Interpolation outperforms the other variants and takes less.",
            PAPER,
            _compared(rows, (simple, variable, fixed, improved), (0, 1, 10))
            + " %; "
            + (f"it is the best at {', '.join(f'{rate:g}' for rate in best)} %" if best else "it is nowhere the best"),
            len(best) == len(rates),
        ),
        Claim(
            "Where the web changes very fast, Fixed Window adapts better than Variable Window.",
            ABSTRACT,
            _compared(rows, (fixed, variable), fast) + " %",
            wins(fixed, variable, fast[-1:]),
        ),
        Claim(
            "Different policies by importance are a better strategy.",
            ABSTRACT,
            _compared(rows, (BY_IMPORTANCE, "variable, 16", fixed), (0, 1, 10))
            + " %; top tenth "
            + _compared(rows, (BY_IMPORTANCE, "variable, 16", fixed), (0, 1, 10), "top")
            + " %",
            wins(BY_IMPORTANCE, "variable, 16", slow) and wins(BY_IMPORTANCE, fixed, slow),
        ),
    ]


WINDOWS = (
    Experiment(
        "fig4",
        "Figure 4: the size of the window",
        "While N pages are read, a share of the pages has its in-degree halved or doubled. The web is "
        "crawled ten times; errors are means over 6N to 10N. Plots are of Greedy. *Certified* is the history "
        "policy of that name, which remembers links, with the same visits; *by its own cash*: where greedy follows its "
        "waiting cash.",
        "windows",
        _tasks,
        lambda rows: [*_tables(_FIG4, ALL_AND_TOP, _ERRORS)(rows), *_certificates(rows)],
        of_fig4,
        plots=_plots("fig4", "Figure 4: windows of several sizes", _FIG4),
    ),
    Experiment(
        "fig5",
        "Figure 5: what policies keep",
        "Measures kept a page after those crawls. A month is the time of N visits. *Certified* keeps two totals a "
        "page, "
        "and the links.",
        "windows",
        _tasks,
        _tables(None, means("measures")[0], "measures a page"),
        of_fig5,
    ),
    Experiment(
        "fig6",
        "Figure 6: history policies",
        "The same crawls, other policies. *By importance* is fixed, 8 months for the tenth of the pages it finds "
        "most important, and variable, 16 for the others.",
        "windows",
        _tasks,
        _tables(_FIG6, ALL_AND_TOP, _ERRORS),
        of_fig6,
        plots=_plots("fig6", "Figure 6: history policies", _FIG6),
    ),
)
