"""The experiment on ranks of sites: its tasks, tables and claims."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.sites.site_measures import (
    BY_LINKS,
    GROWN,
    HISTORIES,
    KINDS,
    PAGES,
    READ,
    SUM,
    site_growth,
    site_ledger,
    site_ranks,
)
from opicflow.pipelines.lab.experiments.tables import Rows, each, lines_by, mean, pair, short, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid

WEBS = ("hosted", "archive", "portal", "shop", "homes")
CLOSE = 0.1
_RULE = "docs/results/sites.md"


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    return [
        task
        for seed in seeds
        for web in WEBS
        for task in (
            *grid(site_ranks, pages=pages, seed=seed, web=web),
            *grid(site_growth, pages=pages, seed=seed, web=web, times=GROWN),
            *grid(site_ledger, pages=pages, seed=seed, web=web, history=HISTORIES),
        )
    ]


def _tables(rows: Rows) -> list[ResultTable]:
    made = []
    for web in WEBS:
        chosen = where(rows, web=web)
        lines = [
            (
                one,
                *(
                    f"{mean(chosen, 'tau', one=one, other=other):.2f} / {mean(chosen, 'top', one=one, other=other):.0f}"
                    if where(chosen, one=one, other=other)
                    else ""
                    for other in KINDS[1:]
                ),
            )
            for one in KINDS[:-1]
        ]
        sites = mean(chosen, "sites", one=SUM)
        title = f"{web}, {sites:.0f} hosts: Kendall's tau / of the best twenty in common, in per cent"
        made.append(ResultTable(title, ("", *KINDS[1:]), lines))
    lines = [
        (web, *(short(mean(rows, "gain", web=web, times=times, kind=kind)) for times in GROWN for kind in KINDS[:-1]))
        for web in WEBS
    ]
    heads = ("web", *(f"{times} times, {kind}" for times in GROWN for kind in KINDS[:-1]))
    title = "A host of average size adds so many times its pages: its share of all, over that before"
    made.append(ResultTable(title, heads, lines))
    of_ledgers = [row for web in WEBS for history in HISTORIES for row in where(rows, web=web, history=history)]
    heads = ("web", "history policy", *(f"{percent} %" for percent in READ))
    title = (
        "A ledger of hosts, after so many visits in per cent of the pages: L1 distance from the exact ranks of the "
        "graph of hosts as seen / of the whole graph of hosts, in per cent"
    )
    cells = each("percent", READ, pair("seen", "distance"))
    made.append(ResultTable(title, heads, lines_by(of_ledgers, ("web", "history"), cells)))
    return made


def _claims(rows: Rows) -> list[Claim]:
    ends = {
        web: [float(row["distance"]) for row in where(rows, web=web, history="certified", percent=READ[-1])]
        for web in WEBS
    }
    worst = {web: max(values) for web, values in ends.items()}
    gains = {
        (web, kind): max(mean(rows, "gain", web=web, kind=kind, times=times) for times in GROWN)
        for web in WEBS
        for kind in (SUM, BY_LINKS)
    }
    most_by_links = max(gains[web, BY_LINKS] for web in WEBS)
    least_by_sum = min(gains[web, SUM] for web in WEBS)
    alike = {web: mean(rows, "tau", web=web, one=SUM, other=PAGES) for web in WEBS}
    apart = {web: mean(rows, "tau", web=web, one=BY_LINKS, other=PAGES) for web in WEBS}
    return [
        Claim(
            "Once every page was read twice, a certified ledger of hosts has the exact ranks of the graph of hosts, "
            f"which `rank --by host` computes: to {CLOSE} per cent in all.",
            _RULE,
            "; ".join(f"{web} {short(value)} %" for web, value in worst.items()),
            max(worst.values()) <= CLOSE,
        ),
        Claim(
            "Pages of its own raise the sum of a host, and not its rank by links between hosts.",
            _RULE,
            f"sum at least {short(least_by_sum)} times, by links at most {short(most_by_links)} times",
            least_by_sum > 1.2 and most_by_links < 1.05,
        ),
        Claim(
            "The sum follows the number of pages more than the rank by links between hosts does.",
            _RULE,
            "; ".join(f"{web} tau {alike[web]:.2f} and {apart[web]:.2f}" for web in WEBS),
            all(alike[web] > apart[web] for web in WEBS),
        ),
    ]


SITES = Experiment(
    "sites",
    "Ranks of sites",
    "*Sum* is the importance of all pages of a host, as in `site-importance` and `opicflow top --by host`. *Links* is "
    "the PageRank of the graph of hosts, as in `opicflow rank --by host`: a link weighs as much as there are links "
    "between pages; *pages* is the same by the number of linking pages, *links, internal kept* has links within hosts "
    "too. A ledger of hosts takes each visit of a page for a visit of its host, whose links are those of its pages as "
    "last seen.",
    "sites",
    _tasks,
    _tables,
    _claims,
    pages=10_000,
    runs=5,
)
