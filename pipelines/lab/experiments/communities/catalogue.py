"""The experiments of paper 004: which there are, their tasks, tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.communities import claims
from opicflow.pipelines.lab.experiments.communities.accuracy import (
    AT_FIRST,
    CANDIDATES,
    HALF_WAY,
    NORM_STEPS,
    OUTLINKS,
    PF,
    RANDOM,
    SC,
)
from opicflow.pipelines.lab.experiments.communities.claims import (
    SCORES,
    correlations,
    of_seeds,
    share_of_gain,
    ultimate,
    usual,
)
from opicflow.pipelines.lab.experiments.communities.domains import EDGES, SITES, TOPICS, USUAL, WEBS, EdgeList
from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable
from opicflow.pipelines.lab.experiments.plots import Curve, Plot
from opicflow.pipelines.lab.experiments.tables import Rows, Value, distinct, markdown, mean, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

PAGES, RUNS = 300_000, 5
_FIGURE_1 = ("subtopic 1", "site 3")
"""The domains of figure 1: one as the paper's, and a site of a middling size."""
_OTHERWISE = "site 3"
"""The domain that is looked at in webs that are otherwise."""

_MEASURES = {"l1": "L1", "linf": "L∞", "l2": "L2", "kendall": "Kendall's tau"}
_TABLE_1 = {
    SC: (0.0384, 0.00154, 0.9257),
    PF: (0.0470, 0.00272, 0.8946),
    OUTLINKS: (0.0419, 0.00196, 0.9053),
    RANDOM: (0.0407, 0.00204, 0.9086),
}
"""The paper's: L1, L∞, Kendall's tau, means over five sites."""
_TABLE_2 = {
    SC: (0.1253, 0.8671, 0.0496, 0.9158, 0.0622, 0.8848, 0.04318, 0.9604),
    PF: (0.1446, 0.8518, 0.0554, 0.9028, 0.0799, 0.8669, 0.0450, 0.9559),
    OUTLINKS: (0.1470, 0.8642, 0.0602, 0.9144, 0.0763, 0.8844, 0.04282, 0.9591),
    RANDOM: (0.2055, 0.8271, 0.1197, 0.8843, 0.1127, 0.8372, 0.0631, 0.9350),
}
"""The paper's: L1 and Kendall's tau for politics, conservatism, liberalism and socialism."""


def _tasks(domains: Sequence[str]) -> Callable[[int, Sequence[int]], list[MeasureTask]]:
    def tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
        return [
            MeasureTask.of("communities", pages=pages, seed=seed, domain=domain, web=USUAL)
            for seed in seeds
            for domain in domains
        ]

    return tasks


def _tasks_of_edges(domains: Sequence[str]) -> Callable[[EdgeList, Sequence[int]], list[MeasureTask]]:
    def tasks(edges: EdgeList, seeds: Sequence[int]) -> list[MeasureTask]:
        return [
            MeasureTask.of("communities", seed=seed, domain=domain, **_web_of(edges))
            for seed in seeds
            for domain in domains
            if domain in edges.domains
        ]

    return tasks


def _tasks_of_figure2(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    others = [web for web in WEBS if web != USUAL]
    return [
        *_tasks((*SITES, *TOPICS))(pages, seeds),
        *(MeasureTask.of("communities", pages=pages, seed=s, domain=_OTHERWISE, web=w) for s in seeds for w in others),
    ]


def _tasks_of_figure1(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("influences", pages=pages, seed=seed, domain=domain, moment=moment, web=USUAL)
        for seed in seeds
        for domain in _FIGURE_1
        for moment in (AT_FIRST, HALF_WAY)
    ]


def _tasks_of_figure1_of_edges(edges: EdgeList, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        MeasureTask.of("influences", seed=seed, domain=domain, moment=moment, **_web_of(edges))
        for seed in seeds
        for domain in edges.domains
        for moment in (AT_FIRST, HALF_WAY)
        if domain in (SITES[0], _FIGURE_1[0])
    ]


def _web_of(edges: EdgeList) -> dict[str, Value]:
    return {"pages": edges.pages, "web": EDGES, "edges": edges.path, "digest": edges.digest}


# -- tables 1 and 2 ----------------------------------------------------------------------------------------------------


def fine(value: float) -> str:
    """A number with three digits."""
    return "-" if np.isnan(value) else f"{value:.3g}"


def _figure(rows: Rows, name: str) -> str:
    """The mean over domains and seeds, and how far seeds lie apart."""
    middle, half = of_seeds(rows, name)
    if name == "kendall":
        return f"{middle:.3f} ± {half:.3f}"
    return f"{fine(middle)} ± {fine(half)}"


def _finals(rows: Rows) -> list[ResultTable]:
    """The paper's table, and every domain alone."""
    last = ultimate(rows)
    lines = [(s, *(_figure(where(last, strategy=s), name) for name in _MEASURES)) for s in distinct(rows, "strategy")]
    heads = ("strategy", *_MEASURES.values())
    made = [
        ResultTable(
            "After the last round: mean over domains and seeds ± half of what seeds differ", markdown(heads, lines)
        )
    ]
    strategies = [str(name) for name in distinct(rows, "strategy")]
    for name in ("l1", "kendall"):
        lines = []
        for domain in distinct(rows, "domain"):
            chosen = where(last, domain=domain)
            size = f"{mean(chosen, 'n'):,.0f}"
            before = mean(where(rows, domain=domain, round=0), name)
            after = {strategy: mean(chosen, name, strategy=strategy) for strategy in strategies}
            best = (max if name == "kendall" else min)(after.values())
            cells = (f"**{value:.3f}**" if value == best else f"{value:.3f}" for value in after.values())
            lines.append((domain, size, f"{before:.3f}", *cells))
        title = f"{_MEASURES[name]} of every domain, mean over seeds: before, and after the last round"
        made.append(ResultTable(title, markdown(("domain", "pages", "before", *strategies), lines)))
    return made


def _table1(rows: Rows) -> list[ResultTable]:
    lines = [(name, *(f"{value:g}" for value in row)) for name, row in _TABLE_1.items()]
    paper = markdown(("strategy", "L1", "L∞", "Kendall's tau"), lines)
    return [*_finals(rows), ResultTable("The paper's table 1", paper)]


def _table2(rows: Rows) -> list[ResultTable]:
    lines = []
    for name, row in _TABLE_2.items():
        pairs = zip(row[::2], row[1::2], strict=True)
        lines.append((name, *(f"{distance:g} / {tau:g}" for distance, tau in pairs)))
    heads = ("strategy", "all politics", "conservatism", "liberalism", "socialism")
    return [*_finals(rows), ResultTable("The paper's table 2: L1 / Kendall's tau", markdown(heads, lines))]


# -- figure 2 ----------------------------------------------------------------------------------------------------------


def _curves(rows: Rows) -> list[Curve]:
    """L1 over rounds, a line a strategy: the mean over domains and seeds, and how far seeds lie apart."""
    lines = []
    for strategy in distinct(rows, "strategy"):
        chosen = where(rows, strategy=strategy)
        rounds = [number for number in distinct(chosen, "round")]
        points = [of_seeds(where(chosen, round=number), "l1") for number in rounds]
        middles, halves = [one for one, _ in points], [half for _, half in points]
        lines.append(Curve(str(strategy), [float(number) for number in rounds], middles, halves))
    return lines


def _figure2(all_rows: Rows) -> list[Plot]:
    rows = usual(all_rows)
    there = distinct(rows, "domain")
    shown: list[tuple[str, str, Sequence[str]]] = [
        ("largest-site", "Figure 2 (a): the largest of the sites", SITES[:1]),
        ("sites", "Figure 2 (b): all sites", SITES),
        ("topic", "Figure 2 (c): a topic", TOPICS[:1]),
        ("subtopics", "Figure 2, for table 2: subtopics", TOPICS[1:]),
    ]
    return [
        Plot(
            f"community-{name}",
            title,
            "round",
            "L1 from the true ranks",
            _curves([row for row in rows if row["domain"] in domains]),
        )
        for name, title, domains in shown
        if any(domain in there for domain in domains)
    ]


def _figure2_tables(all_rows: Rows) -> list[ResultTable]:
    rows = usual(all_rows)
    kinds = distinct(rows, "kind")
    made = []
    rounds = (0, 2, 5, 10, 15, 20, 25, 30, 40, 50)
    for kind in kinds:
        chosen = where(rows, kind=kind)
        shown = [number for number in rounds if where(chosen, round=number)]
        lines = [
            (strategy, *(fine(mean(chosen, "l1", strategy=strategy, round=number)) for number in shown))
            for strategy in distinct(chosen, "strategy")
        ]
        made.append(
            ResultTable(
                f"L1 after so many rounds, mean over every {kind} and seed",
                markdown(("strategy", *map(str, shown)), lines),
            )
        )
    lines = []
    for strategy in distinct(rows, "strategy"):
        chosen = where(rows, strategy=strategy)
        best, domain = claims.best_factor(chosen)
        last = ultimate(chosen)
        shares = [fine(100.0 * mean(last, name, kind=kind)) for kind in kinds for name in ("covered", "akin")]
        lines.append((strategy, f"{fine(best)} ({domain})", *shares))
    words = ("impact covered, %", "of its topic in the last round, %")
    heads = ("strategy", "best: L1 before over after", *(f"{kind}: {word}" for kind in kinds for word in words))
    made.append(ResultTable("Gain, and pages read for it", markdown(heads, lines)))
    if len(webs := distinct(all_rows, "web")) > 1:
        made.append(_otherwise(where(all_rows, domain=_OTHERWISE), webs))
    return made


def _otherwise(rows: Rows, webs: Sequence[Value]) -> ResultTable:
    """One domain in webs of several kinds: L1 early and late."""
    lines = []
    for web in webs:
        chosen = where(rows, web=web)
        rounds = distinct(chosen, "round")
        early, late = rounds[len(rounds) // 5], rounds[-1]
        cells = (
            " / ".join(fine(mean(chosen, "l1", strategy=strategy, round=number)) for number in (early, late))
            for strategy in distinct(chosen, "strategy")
        )
        lines.append((web, fine(mean(chosen, "l1", round=0)), *cells))
    title = f"Webs that are otherwise, {_OTHERWISE}: L1 before, and after a fifth / all of the rounds"
    return ResultTable(title, markdown(("web", "before", *map(str, distinct(rows, "strategy"))), lines))


# -- figure 1 ----------------------------------------------------------------------------------------------------------


def _figure1(rows: Rows) -> list[Plot]:
    chosen = where(rows, seed=rows[0]["seed"], moment=AT_FIRST)
    made = []
    for name, title, x in (
        ("influence", "Figure 1 (a): influence, as SC-Select estimates it", "influence"),
        ("linkers", "Figure 1 (b): outlink count", "pages of the domain that link to it"),
    ):
        lines = []
        for domain in distinct(chosen, "domain"):
            shown = where(chosen, domain=domain)[::2]
            xs, ys = ([float(row[column]) for row in shown] for column in (name, "gain"))
            lines.append(Curve(str(domain), xs, ys, loose=True))
        low, high = (end(x for line in lines for x in line.xs) for end in (min, max))
        ticks = [d * 10.0**e for e in range(-12, 7) for d in (1, 3) if low <= d * 10.0**e <= high]
        made.append(Plot(f"influence-{name}", title, x, "how much nearer the estimate comes, L1", lines, "x", ticks))
    return made


def _influence_tables(rows: Rows) -> list[ResultTable]:
    cases = [(domain, moment) for domain in distinct(rows, "domain") for moment in (AT_FIRST, HALF_WAY)]
    heads = ("score", *(f"{domain}, {moment}" for domain, moment in cases))
    parts = [where(rows, domain=domain, moment=moment) for domain, moment in cases]
    made = []
    for against, title in (
        ("gain", "Correlation with what reading the page gains: Pearson / Spearman"),
        ("moved", "Correlation with how far the page really moves the ranks of the domain: Pearson / Spearman"),
    ):
        lines = [
            (
                words,
                *(" / ".join(f"{r:.2f} ± {half:.2f}" for r, half in correlations(one, name, against)) for one in parts),
            )
            for name, words in SCORES.items()
            if name != against
        ]
        made.append(ResultTable(title, markdown(heads, lines)))
    lines = [
        (words, *(f"{share:.0f} ± {half:.0f}" for share, half in (share_of_gain(one, name) for one in parts)))
        for name, words in SCORES.items()
    ]
    title = "What the tenth of the candidates with the highest score gains, in per cent of the best tenth there is"
    made.append(ResultTable(title, markdown(heads, lines)))
    lines = [("gain something", *(f"{100 * np.mean([float(row['gain']) > 0 for row in one]):.0f}" for one in parts))]
    made.append(ResultTable("Candidates whose reading brings the estimate nearer, %", markdown(heads, lines)))
    return made


_FLOWS = (
    "Every strategy reads 2n pages around a site of n pages in 50 rounds, n pages around a topic in 25. *SC-Select, "
    f"table* reads norms from a table of {NORM_STEPS}, as the paper's algorithm does. *Ledger's importance* takes the "
    "pages that are most important in a ledger, which receives every page read."
)

COMMUNITIES = (
    Experiment(
        "table1",
        "Paper 004, table 1: sites",
        "Five hosts of the paper's shares of the web are local domains; the ranks of their pages in the whole web are "
        f"estimated. {_FLOWS}",
        "community-sites",
        _tasks(SITES),
        lambda rows: [],
        _table1,
        claims.of_table1,
        PAGES,
        RUNS,
        _tasks_of_edges(SITES),
    ),
    Experiment(
        "table2",
        "Paper 004, table 2: topics",
        "The web is a crawl six links deep from the front pages of a topic. *Topic* are the pages within two links of "
        "all front pages, a *subtopic* are those within three links of ten front pages.",
        "community-topics",
        _tasks(TOPICS),
        lambda rows: [],
        _table2,
        claims.of_table2,
        PAGES,
        RUNS,
        _tasks_of_edges(TOPICS),
    ),
    Experiment(
        "influence",
        "Paper 004, figure 1: influence and the objective",
        f"{CANDIDATES} random pages of the frontier: the scores of selections, and the effect of reading each page "
        "alone. *Gain* is how much nearer the estimate then comes to the true ranks. *At first*: before other pages "
        "are read, as in the paper; *half way*: after half of the rounds of SC-Select. "
        "Plots are of the first seed, at first, of half of the candidates.",
        "influence",
        _tasks_of_figure1,
        _figure1,
        _influence_tables,
        claims.of_influence,
        PAGES,
        RUNS,
        _tasks_of_figure1_of_edges,
    ),
    Experiment(
        "community",
        "Paper 004, figure 2: rounds",
        "The domains of tables 1 and 2, round by round. *Impact covered*: of a walker's steps that lead into the "
        "domain from without, the share that starts at pages that were read. *Of its topic*: of the pages read.",
        "community",
        _tasks_of_figure2,
        _figure2,
        _figure2_tables,
        claims.of_community,
        PAGES,
        RUNS,
        _tasks_of_edges((*SITES, *TOPICS)),
    ),
)
