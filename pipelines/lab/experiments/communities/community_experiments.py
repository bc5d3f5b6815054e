"""The experiments of paper 004: their tasks, tables, plots, claims, and the rules that decide whether these hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.communities.accuracy import (
    AT_FIRST,
    CANDIDATES,
    HALF_WAY,
    IMPORTANCE,
    NORM_STEPS,
    OUTLINKS,
    PF,
    RANDOM,
    SC,
    SC_TABLE,
    communities,
    influences,
)
from opicflow.pipelines.lab.experiments.communities.domains import EDGES, SITE, SITES, TOPICS, USUAL, WEBS, EdgeList
from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.measures import correlation, linear_correlation
from opicflow.pipelines.lab.experiments.plots import Curve, Plot
from opicflow.pipelines.lab.experiments.tables import Row, Rows, Value, distinct, mean, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid

PAPERS = (SC, PF, OUTLINKS, RANDOM)
"""The paper's strategies: the others are ours."""
SCORES = {
    "influence": "influence, estimated (SC-Select)",
    "by_table": "influence, norms by table",
    "flow": "flow (PF-Select)",
    "linkers": "outlink count",
    "moved": "influence, by the true links of the page",
}

_COMPETITIVE = 1.1
"""A distance at most so many times another counts as equally good."""
_AS_GOOD_TAU = 0.01
_STRONG, _MUCH_WEAKER = 0.7, 0.2
_EARLY = 5


def usual(rows: Rows) -> list[Row]:
    """Return the rows of the usual web, or of an edge list."""
    return [row for row in rows if row["web"] in (USUAL, EDGES)]


def ultimate(rows: Rows) -> list[Row]:
    """Return the last row of every run."""
    return list({(row["seed"], row["web"], row["domain"], row["strategy"]): row for row in rows}.values())


def of_seeds(rows: Rows, name: str) -> tuple[float, float]:
    """Return the mean of a column, and half of the range of its means by seed."""
    return _middle([mean(rows, name, seed=seed) for seed in distinct(rows, "seed")])


def best_factor(rows: Rows) -> tuple[float, str]:
    """Return the largest factor by which a domain's L1 fell, as a mean over seeds, and the domain."""
    last = ultimate(rows)
    factors = {
        str(domain): mean(rows, "l1", domain=domain, round=0) / max(mean(last, "l1", domain=domain), 1e-300)
        for domain in distinct(rows, "domain")
    }
    best = max(factors, key=lambda domain: factors[domain])
    return factors[best], best


def correlations(rows: Rows, name: str, against: str) -> list[tuple[float, float]]:
    """Return Pearson's and Spearman's correlation of two columns: the mean over seeds, and half of their range."""
    return [
        _middle([measure(_column(some, name), _column(some, against)) for some in _by_seed(rows)])
        for measure in (linear_correlation, correlation)
    ]


def share_of_gain(rows: Rows, name: str) -> tuple[float, float]:
    """Return the gain of the tenth with the highest scores, in per cent of the best tenth's; and half of its range."""
    shares = []
    for some in _by_seed(rows):
        gain, score = _column(some, "gain"), _column(some, name)
        count = max(1, len(gain) // 10)
        chosen = np.argsort(-score, kind="stable")[:count]
        shares.append(100.0 * float(gain[chosen].sum() / max(np.sort(gain)[-count:].sum(), 1e-300)))
    return _middle(shares)


def of_table1(rows: Rows) -> list[Claim]:
    """Return the claims about sites."""
    last = ultimate(rows)
    ahead = _best_by_measure(last)
    ends = {strategy: mean(last, "l1", strategy=strategy) for strategy in PAPERS}
    return [
        Claim(
            "Stochastic complementation clearly outperforms the other methods in all metrics.",
            "paper 004, table 1",
            _of_measures(last),
            all(best == SC for best in ahead.values()),
        ),
        _competitive(last, "In all tests it outperforms the other methods, or is competitive with them."),
        Claim(
            "In the end Random is competitive with outlink count and flow, or better.",
            "paper 004, 6.2",
            "L1 " + _listed(ends),
            ends[RANDOM] <= _COMPETITIVE * max(ends[OUTLINKS], ends[PF]),
        ),
    ]


def of_table2(rows: Rows) -> list[Claim]:
    """Return the claims about topics."""
    last = ultimate(rows)
    worst = {
        str(domain): max(PAPERS, key=lambda strategy: mean(last, "l1", domain=domain, strategy=strategy))
        for domain in distinct(rows, "domain")
    }
    tau = {
        str(domain): {strategy: mean(last, "kendall", domain=domain, strategy=strategy) for strategy in PAPERS}
        for domain in distinct(rows, "domain")
    }
    return [
        _competitive(last, "Stochastic complementation has the smallest L1, or one as small, for every topic."),
        Claim(
            "It orders the pages of every topic best, by Kendall's tau.",
            "paper 004, table 2",
            "; ".join(f"{domain}: {_listed(found)}" for domain, found in tau.items()),
            all(found[SC] >= max(found.values()) - _AS_GOOD_TAU for found in tau.values()),
        ),
        Claim(
            "Random is the worst for every topic.",
            "paper 004, table 2",
            "the worst: " + ", ".join(f"{domain} {strategy}" for domain, strategy in worst.items()),
            all(strategy == RANDOM for strategy in worst.values()),
        ),
    ]


def of_influence(rows: Rows) -> list[Claim]:
    """Return the claims of figure 1, for the moment before other pages are read."""
    first = where(rows, moment=AT_FIRST)
    found = {
        str(domain): {name: correlations(where(first, domain=domain), name, "gain") for name in SCORES}
        for domain in distinct(first, "domain")
    }

    def correlation_of(name: str) -> str:
        return "; ".join(
            f"{domain}: Pearson {one[name][0][0]:.2f}, Spearman {one[name][1][0]:.2f}" for domain, one in found.items()
        )

    return [
        Claim(
            "The influence of a page correlates strongly with the objective.",
            "paper 004, figure 1",
            f"with what reading the page gains: {correlation_of('influence')}",
            all(one["influence"][0][0] >= _STRONG for one in found.values()),
        ),
        Claim(
            "Outlink count correlates with it much more weakly.",
            "paper 004, figure 1",
            correlation_of("linkers"),
            all(one["linkers"][0][0] <= one["influence"][0][0] - _MUCH_WEAKER for one in found.values()),
        ),
        Claim(
            "Influence by the true links, which are unknown before, correlates strongly with the objective.",
            "formula (7)",
            correlation_of("moved"),
            all(one["moved"][0][0] >= _STRONG for one in found.values()),
        ),
    ]


def of_community(all_rows: Rows) -> list[Claim]:
    """Return the claims of figure 2 and its text, and some of this project."""
    rows = usual(all_rows)
    last = ultimate(rows)
    factor, domain = best_factor(where(rows, strategy=SC))
    sites = where(rows, kind=SITE)
    early = {strategy: mean(sites, "l1", strategy=strategy, round=_EARLY) for strategy in PAPERS}
    ends = {strategy: mean(last, "l1", strategy=strategy) for strategy in (SC, SC_TABLE, PF, OUTLINKS, IMPORTANCE)}
    claims = [
        Claim(
            "By n or 2n pages more the estimate gets up to ten times better.",
            "paper 004, 8",
            f"SC-Select: at the best {factor:.1f} times ({domain})",
            factor >= 10.0,
        ),
        Claim(
            "The table of norms is as good as exact ones.",
            "paper 004, algorithm 3",
            "L1 after the last round, all domains: " + _listed({name: ends[name] for name in (SC, SC_TABLE)}),
            ends[SC_TABLE] <= 1.05 * ends[SC],
        ),
        Claim(
            "A live ledger's importance selects as well as SC-Select.",
            "ours",
            "L1 after the last round, all domains: " + _listed(ends),
            ends[IMPORTANCE] <= _COMPETITIVE * ends[SC],
        ),
    ]
    if sites:
        claims.insert(
            1,
            Claim(
                "In the first rounds the three strategies that use links all outperform Random on sites.",
                "paper 004, 6.2",
                f"L1 after {_EARLY} rounds: " + _listed(early),
                early[RANDOM] > max(early[strategy] for strategy in (SC, PF, OUTLINKS)),
            ),
        )
    return claims


def _competitive(last: Rows, statement: str) -> Claim:
    """SC-Select's L1 on every domain is at most so many times the best one's."""
    behind = {}
    for domain in distinct(last, "domain"):
        ends = {strategy: mean(last, "l1", domain=domain, strategy=strategy) for strategy in PAPERS}
        best = min(ends, key=lambda strategy: ends[strategy])
        behind[str(domain)] = (best, ends[SC] / ends[best] if ends[best] else 1.0)
    measured = ", ".join(
        f"{domain} the best" if best == SC else f"{domain} {factor:.2f} times {best}'s"
        for domain, (best, factor) in behind.items()
    )
    holds = all(factor <= _COMPETITIVE for _, factor in behind.values())
    return Claim(statement, "paper 004, 6.2", f"its L1, mean over seeds: {measured}", holds)


def _best_by_measure(last: Rows) -> dict[str, str]:
    """Who is ahead in each measure, mean over domains and seeds."""
    means = {name: {one: mean(last, name, strategy=one) for one in PAPERS} for name in ("l1", "linf", "kendall")}
    return {
        name: (max if name == "kendall" else min)(PAPERS, key=lambda one, found=found: found[one])  # type: ignore[misc]
        for name, found in means.items()
    }


def _of_measures(last: Rows) -> str:
    words = {"l1": "L1", "linf": "L∞", "kendall": "Kendall's tau"}
    return "; ".join(
        f"{word} " + _listed({one: mean(last, name, strategy=one) for one in PAPERS}) for name, word in words.items()
    )


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def _by_seed(rows: Rows) -> list[list[Row]]:
    return [where(rows, seed=seed) for seed in distinct(rows, "seed")]


def _column(rows: Rows, name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _middle(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), (max(values) - min(values)) / 2


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
    return lambda pages, seeds: grid(communities, pages=pages, seed=seeds, domain=domains, web=USUAL)


def _tasks_of_edges(domains: Sequence[str]) -> Callable[[EdgeList, Sequence[int]], list[MeasureTask]]:
    def tasks(edges: EdgeList, seeds: Sequence[int]) -> list[MeasureTask]:
        there = [domain for domain in domains if domain in edges.domains]
        return grid(communities, seed=seeds, domain=there, **_web_of(edges))

    return tasks


def _tasks_of_figure2(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    others = [web for web in WEBS if web != USUAL]
    otherwise = grid(communities, pages=pages, seed=seeds, domain=_OTHERWISE, web=others)
    return [*_tasks((*SITES, *TOPICS))(pages, seeds), *otherwise]


def _tasks_of_figure1(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    moments = (AT_FIRST, HALF_WAY)
    return grid(influences, pages=pages, seed=seeds, domain=_FIGURE_1, moment=moments, web=USUAL)


def _tasks_of_figure1_of_edges(edges: EdgeList, seeds: Sequence[int]) -> list[MeasureTask]:
    there = [domain for domain in edges.domains if domain in (SITES[0], _FIGURE_1[0])]
    return grid(influences, seed=seeds, domain=there, moment=(AT_FIRST, HALF_WAY), **_web_of(edges))


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
    made = [ResultTable("After the last round: mean over domains and seeds ± half of what seeds differ", heads, lines)]
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
        made.append(ResultTable(title, ("domain", "pages", "before", *strategies), lines))
    return made


def _table1(rows: Rows) -> list[ResultTable]:
    lines = [(name, *(f"{value:g}" for value in row)) for name, row in _TABLE_1.items()]
    return [*_finals(rows), ResultTable("The paper's table 1", ("strategy", "L1", "L∞", "Kendall's tau"), lines)]


def _table2(rows: Rows) -> list[ResultTable]:
    lines = []
    for name, row in _TABLE_2.items():
        pairs = zip(row[::2], row[1::2], strict=True)
        lines.append((name, *(f"{distance:g} / {tau:g}" for distance, tau in pairs)))
    heads = ("strategy", "all politics", "conservatism", "liberalism", "socialism")
    return [*_finals(rows), ResultTable("The paper's table 2: L1 / Kendall's tau", heads, lines)]


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
                ("strategy", *map(str, shown)),
                lines,
            )
        )
    lines = []
    for strategy in distinct(rows, "strategy"):
        chosen = where(rows, strategy=strategy)
        best, domain = best_factor(chosen)
        last = ultimate(chosen)
        shares = [fine(100.0 * mean(last, name, kind=kind)) for kind in kinds for name in ("covered", "akin")]
        lines.append((strategy, f"{fine(best)} ({domain})", *shares))
    words = ("impact covered, %", "of its topic in the last round, %")
    heads = ("strategy", "best: L1 before over after", *(f"{kind}: {word}" for kind in kinds for word in words))
    made.append(ResultTable("Gain, and pages read for it", heads, lines))
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
    return ResultTable(title, ("web", "before", *map(str, distinct(rows, "strategy"))), lines)


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
        made.append(ResultTable(title, heads, lines))
    lines = [
        (words, *(f"{share:.0f} ± {half:.0f}" for share, half in (share_of_gain(one, name) for one in parts)))
        for name, words in SCORES.items()
    ]
    title = "What the tenth of the candidates with the highest score gains, in per cent of the best tenth there is"
    made.append(ResultTable(title, heads, lines))
    lines = [("gain something", *(f"{100 * np.mean([float(row['gain']) > 0 for row in one]):.0f}" for one in parts))]
    made.append(ResultTable("Candidates whose reading brings the estimate nearer, %", heads, lines))
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
        _table1,
        of_table1,
        pages=PAGES,
        runs=RUNS,
        tasks_of_edges=_tasks_of_edges(SITES),
    ),
    Experiment(
        "table2",
        "Paper 004, table 2: topics",
        "The web is a crawl six links deep from the front pages of a topic. *Topic* are the pages within two links of "
        "all front pages, a *subtopic* are those within three links of ten front pages.",
        "community-topics",
        _tasks(TOPICS),
        _table2,
        of_table2,
        pages=PAGES,
        runs=RUNS,
        tasks_of_edges=_tasks_of_edges(TOPICS),
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
        _influence_tables,
        of_influence,
        plots=_figure1,
        pages=PAGES,
        runs=RUNS,
        tasks_of_edges=_tasks_of_figure1_of_edges,
    ),
    Experiment(
        "community",
        "Paper 004, figure 2: rounds",
        "The domains of tables 1 and 2, round by round. *Impact covered*: of a walker's steps that lead into the "
        "domain from without, the share that starts at pages that were read. *Of its topic*: of the pages read.",
        "community",
        _tasks_of_figure2,
        _figure2_tables,
        of_community,
        plots=_figure2,
        pages=PAGES,
        runs=RUNS,
        tasks_of_edges=_tasks_of_edges((*SITES, *TOPICS)),
    ),
)
