"""`Experiment`: its tasks, the tables, plots and claims made from their rows, and the report of all that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.pipelines.lab.experiments.communities.domains import EdgeList
from opicflow.pipelines.lab.experiments.plots import Plot
from opicflow.pipelines.lab.experiments.tables import Row, Rows, markdown, to_csv
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask


class Claim(NamedTuple):
    """A claim of a paper or of this project, its source, the measurement, and whether the claim holds by it.

    `algorithm` is the one that is judged. `ours` is what this project's own policies do, if that is another one.
    """

    statement: str
    source: str
    measured: str
    holds: bool
    algorithm: str = "ours"
    ours: str = ""

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "does not hold"


class ResultTable(NamedTuple):
    """A table of a report: its title, the heads of its columns, its lines, and an explanation of the columns."""

    title: str
    heads: Sequence[str]
    lines: Iterable[Sequence[object]]
    explanation: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment: its tasks, and functions that turn their rows into tables, claims and plots.

    `data` names the CSV file of its rows; experiments with the same tasks share it. `pages` and `runs` are defaults.
    `tasks_of_edges` returns its tasks for an edge list, none if the list has no suitable pages; it is None for an
    experiment on synthetic webs alone.
    """

    name: str
    title: str
    about: str
    data: str
    tasks: Callable[[int, Sequence[int]], list[MeasureTask]]
    tables: Callable[[Rows], list[ResultTable]]
    claims: Callable[[Rows], list[Claim]]
    plots: Callable[[Rows], list[Plot]] = lambda rows: []
    pages: int = 100_000
    runs: int = 2
    tasks_of_edges: Callable[[EdgeList, Sequence[int]], list[MeasureTask]] | None = None


class Scale(NamedTuple):
    """The size of an experiment's webs, its seeds, and the edge list that replaces synthetic webs, if any."""

    pages: int
    seeds: Sequence[int]
    edges: str | None = None

    def __str__(self) -> str:
        seeds = self.seeds
        runs = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}; figures are their means"
        webs = (
            f"The web of {Path(self.edges).name}, {self.pages:,} pages"
            if self.edges
            else f"Webs of {self.pages:,} pages"
        )
        return f"{webs}; {runs}."


def write_report(
    chosen: Sequence[Experiment],
    rows: Mapping[str, Sequence[Row]],
    claims: Mapping[str, Sequence[Claim]],
    out: Path,
    scales: Mapping[str, Scale],
) -> str:
    """Write data and plots of the chosen experiments below `out`; return the text of their report."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    of_all = {str(scales[one.name]) for one in chosen}
    common = f"{of_all.pop()} " if len(of_all) == 1 else ""
    lines = ["# Experiments", "", f"{common}Errors are relative to exact PageRank.", ""]
    for one in chosen:
        found = rows[one.name]
        write_atomically(out / "data" / f"{one.data}.csv", to_csv(found).encode())
        lines += [f"## {one.title}", "", one.about if common else f"{scales[one.name]} {one.about}", ""]
        for plot in one.plots(found):
            plot.write(out / "plots")
            lines += [f"![{plot.title}](plots/{plot.name}.svg)", ""]
        for table in one.tables(found):
            explanation = [table.explanation, ""] if table.explanation else []
            lines += [f"**{table.title}**", "", *explanation, *markdown(table.heads, table.lines), ""]
        lines += [*markdown(*_judged(claims[one.name])), ""]
        lines += [f"Data: [{one.data}.csv](data/{one.data}.csv).", ""]
    return "\n".join(lines)


def _judged(claims: Sequence[Claim]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the heads and lines of a table of claims; it names algorithms where there are several."""
    if not any(claim.ours for claim in claims):
        heads = ("claim", "source", "measured", "result")
        return heads, [(claim.statement, claim.source, claim.measured, claim.verdict) for claim in claims]
    all_heads = ("claim", "source", "algorithm", "measured", "result", "this project's own policies")
    return all_heads, [
        (claim.statement, claim.source, claim.algorithm, claim.measured, claim.verdict, claim.ours) for claim in claims
    ]


def summary(chosen: Sequence[Experiment], claims: Mapping[str, Sequence[Claim]]) -> list[str]:
    """Return the claims of the chosen experiments, and their results, as lines for a terminal."""
    lines = []
    for one in chosen:
        lines.append(one.title)
        for claim in claims[one.name]:
            lines += [f"  {claim.verdict:13} {claim.statement}", f"{'':16}{claim.measured}"]
    return lines
