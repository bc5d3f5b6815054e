"""`Experiment`: its tasks, and the tables, plots and claims made from their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opicflow.pipelines.lab.experiments.communities.domains import EdgeList
from opicflow.pipelines.lab.experiments.plots import Plot
from opicflow.pipelines.lab.experiments.tables import Rows
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask


@dataclass(frozen=True)
class Claim:
    """A claim of a paper or of this project, its source, the measurement, and whether the claim holds by it."""

    statement: str
    source: str
    measured: str
    holds: bool

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "does not hold"


@dataclass(frozen=True)
class ResultTable:
    """A table of a report: a heading, and lines of markdown."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Experiment:
    """An experiment: its tasks, and functions that turn their rows into plots, tables and claims.

    `data` names the CSV file of its rows; experiments with the same tasks share it. `pages` and `runs` are defaults.
    `tasks_of_edges` returns its tasks for an edge list, none if the list has no suitable pages; it is None for an
    experiment on synthetic webs alone.
    """

    name: str
    title: str
    about: str
    data: str
    tasks: Callable[[int, Sequence[int]], list[MeasureTask]]
    plots: Callable[[Rows], list[Plot]]
    tables: Callable[[Rows], list[ResultTable]]
    claims: Callable[[Rows], list[Claim]]
    pages: int = 100_000
    runs: int = 2
    tasks_of_edges: Callable[[EdgeList, Sequence[int]], list[MeasureTask]] | None = None


def no_plots(rows: Rows) -> list[Plot]:
    """The plots of an experiment that has tables only."""
    return []
