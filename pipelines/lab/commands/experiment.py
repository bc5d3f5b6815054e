"""`opicflow experiment`: the experiments of the papers, repeated on this machine, with tables, plots and findings."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_quiet
from opicflow.pipelines.cli.progress import ProgressDisplay
from opicflow.pipelines.cli.text import print_lines
from opicflow.pipelines.cli.values import natural, whole
from opicflow.schemas.errors import interrupted_after

if TYPE_CHECKING:  # they need matplotlib
    from opicflow.pipelines.lab.experiments.experiment import Experiment, Scale
    from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

EXAMPLES = """examples:
  opicflow experiment fig2 --out build/experiments --pages 10000 --runs 1     a quick run
  opicflow experiment all --out build/experiments       everything; stopped, the same command continues
  opicflow experiment loop-refresh --out build/loop --bandwidths 5 --days 120        a shorter year
  opicflow experiment table1 community --out build/mine --edges links.tsv.gz           communities of your own web

Measurements are kept in DIR/parts: the same pages and seeds are not measured twice. Experiments use the parameters of
the papers. To try others (the measures of a window, alpha, how change rates are estimated), use opicflow simulate and
replay: docs/guides/simulate.md has a table.
"""
LEAST_PAGES = 1_000
LEAST_DAYS, MOST_DAYS = 14, 3_650
LEAST_PERCENT, MOST_PERCENT = 0.1, 100.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "name",
        nargs="+",
        choices=[
            *(
                "all",
                "fig2",
                "fig3",
                "fig4",
                "fig5",
                "fig6",
                "growing",
                "moved",
                "trouble",
                "stated",
                "trends",
                "updates",
            ),
            *("discovery", "manipulation", "sites", "loop", "loop-refresh"),
            *("table1", "table2", "influence", "community"),
        ],
        help="a figure of the paper, or growing webs, links that move, pages that cannot be read, what estimates "
        "state, trends, updates of ranks; which unread page first: discovery; what link farms and traps gain: "
        "manipulation; ranks of sites: sites; the closed loop beside other crawlers: loop; a year of refreshing in it; "
        "of communities: sites, topics, the influence of one page, round by round",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the report, plots and data")
    parser.add_argument(
        "--pages",
        type=whole,
        metavar="N",
        help="of each web (100000; updates, discovery, manipulation and sites 10000, loop 20000, loop-refresh 1000, "
        "communities 300000)",
    )
    parser.add_argument(
        "--runs",
        type=whole,
        metavar="R",
        help="seeds to take means of (2; discovery 10, manipulation 3, sites 5, the loops 1, communities 5)",
    )
    parser.add_argument("--edges", metavar="FILE", help="of communities: the web of this edge list instead")
    parser.add_argument("--days", type=whole, metavar="D", help="of the loops: how long (365)")
    parser.add_argument(
        "--bandwidths", metavar="P,P,…", help="of loop-refresh: fetches a day, in per cent of the pages (2,5,10,20,50)"
    )
    parser.add_argument("--seed", type=natural, default=1, metavar="S", help="the first seed (%(default)s)")
    parser.add_argument("--processes", type=whole, metavar="N", help="at once (as many as there are cores)")
    add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Run the experiments, and write their report."""
    from opicflow.connectors.files.whole_file import write_atomically

    try:
        from opicflow.pipelines.lab.experiments import catalogue
    except ModuleNotFoundError as problem:
        if problem.name != "matplotlib":
            raise
        raise InputRefused("plots are drawn by matplotlib, which is missing: pip install 'opicflow[lab]'") from None
    from opicflow.pipelines.lab.experiments.experiment import summary, write_report
    from opicflow.pipelines.lab.experiments.task_runner import run as run_tasks

    if options.pages is not None and options.pages < LEAST_PAGES:
        raise InputRefused(f"--pages {options.pages}: too few pages for a meaningful error: give {LEAST_PAGES} or more")
    known = dict(catalogue.EXPERIMENTS)
    if options.days is not None or options.bandwidths is not None:
        known |= _loops_of(options)
    chosen = list(known.values()) if "all" in options.name else [known[name] for name in dict.fromkeys(options.name)]
    scales = {one.name: _scale(options, one) for one in chosen}
    if options.edges is None:
        tasks = {one.name: one.tasks(scales[one.name].pages, scales[one.name].seeds) for one in chosen}
    else:
        tasks = _tasks_of_edges(options, chosen, scales)
    all_tasks = list(dict.fromkeys(task for some in tasks.values() for task in some))
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    display = _TaskDisplay(len(all_tasks), options.quiet)
    try:
        with interrupted_after(lambda: f"{out}: what was measured is in it: run the same command again for the rest"):
            found = run_tasks(all_tasks, out / "parts", options.processes or os.cpu_count() or 1, display.show_next)
    finally:
        display.close()
    rows = {one.name: [row for task in tasks[one.name] for row in found[task]] for one in chosen}
    claims = {one.name: one.claims(rows[one.name]) for one in chosen}
    text = write_report(chosen, rows, claims, out, scales)
    write_atomically(out / "report.md", text.encode())
    print_lines(*summary(chosen, claims))
    print_lines("", f"report, plots and data: {out / 'report.md'}")
    return 0


class _TaskDisplay(ProgressDisplay):
    """Shows how many tasks are done."""

    def __init__(self, total: int, quiet: bool) -> None:
        super().__init__(quiet)
        self._done, self._total, self._began = 0, total, time.monotonic()

    def show_next(self, task: object) -> None:
        """One more task is done."""
        self._done += 1
        seconds, share = time.monotonic() - self._began, self._done / self._total
        if self._done == self._total:  # the end is always shown
            self._shown_at = float("-inf")
        self.show_words(f"{self._done} of {self._total} tasks", seconds, share, seconds * (1 / share - 1))


def _loops_of(options: argparse.Namespace) -> dict[str, Experiment]:
    """The experiments of closed loops with other days or bandwidths. Raises `InputRefused` for other experiments."""
    from opicflow.pipelines.lab.experiments.loop.loop_experiment import loop
    from opicflow.pipelines.lab.experiments.refresh.loop_refresh import DAYS, PERCENTS, loop_refresh

    if options.bandwidths is not None and not {"all", "loop-refresh"} & set(options.name):
        raise InputRefused("--bandwidths: it is for loop-refresh alone: omit it, or name loop-refresh")
    if not {"all", "loop", "loop-refresh"} & set(options.name):
        raise InputRefused("--days: it is for loop and loop-refresh: omit it, or add loop or loop-refresh")
    if options.days is not None and not LEAST_DAYS <= options.days <= MOST_DAYS:
        raise InputRefused(f"--days {options.days}: give {LEAST_DAYS} to {MOST_DAYS}")
    days = options.days or DAYS
    percents = PERCENTS if options.bandwidths is None else _percents(options.bandwidths)
    return {"loop": loop(days), "loop-refresh": loop_refresh(days, percents)}


def _percents(text: str) -> list[float]:
    """The bandwidths that a text names, each once, the smallest first."""
    try:
        percents = sorted({float(word) for word in text.split(",")})
    except ValueError:
        percents = []
    if not percents or not all(LEAST_PERCENT <= percent <= MOST_PERCENT for percent in percents):
        raise InputRefused(
            f"--bandwidths {text[:80]}: give percentages from {LEAST_PERCENT:g} to {MOST_PERCENT:g}, with commas "
            "between them, such as 5,20"
        )
    return percents


def _scale(options: argparse.Namespace, one: Experiment) -> Scale:
    """How large the webs of an experiment are, and the seeds."""
    from opicflow.pipelines.lab.experiments.experiment import Scale

    runs = options.runs or one.runs
    return Scale(options.pages or one.pages, range(options.seed, options.seed + runs), options.edges)


def _tasks_of_edges(
    options: argparse.Namespace, chosen: Sequence[Experiment], scales: dict[str, Scale]
) -> dict[str, list[MeasureTask]]:
    """Return each experiment's tasks on an edge list. Raises `InputRefused` if one has none."""
    from opicflow.pipelines.lab.experiments.catalogue import EXPERIMENTS
    from opicflow.pipelines.lab.experiments.communities.domains import FEWEST_PAGES, LARGEST_SHARE, survey_edge_list

    able = [name for name, one in EXPERIMENTS.items() if one.tasks_of_edges]
    if options.pages is not None:
        raise InputRefused("--pages: an edge list has a number of pages: omit this or --edges")
    for one in chosen:
        if one.tasks_of_edges is None:
            raise InputRefused(f"--edges: {one.name} makes webs of its own; an edge list is for {', '.join(able)}")
    edges = survey_edge_list(options.edges)
    tasks = {}
    for one in chosen:
        scale = scales[one.name]
        tasks[one.name] = one.tasks_of_edges(edges, scale.seeds) if one.tasks_of_edges else []
        scales[one.name] = scale._replace(pages=edges.pages)
        if not tasks[one.name]:
            raise InputRefused(
                f"{options.edges}: nothing in it for {one.name}: no host (names are to be URLs), or nothing that links "
                f"lead to, has from {FEWEST_PAGES} pages to one in {LARGEST_SHARE} of all {edges.pages}"
            )
    return tasks
