"""What an experiment is: its tasks, and what is made of what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opicflow.pipelines.experiments.domains import EdgeList
from opicflow.pipelines.experiments.findings import Finding
from opicflow.pipelines.experiments.plots import Plot
from opicflow.pipelines.experiments.runner import Task
from opicflow.pipelines.experiments.tables import Row

Rows = Sequence[Row]


@dataclass(frozen=True)
class Table:
    """A table for people: a heading, and lines of markdown."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Experiment:
    """An experiment: what it is, whose tasks it needs, and what is made of the rows that they find.

    `data` names the CSV file that holds its rows; experiments with the same tasks share it. `pages` and `runs` are what
    it takes unless told otherwise. `tasks_of_edges` are its tasks on an edge list, none where that has nothing for it;
    without it the experiment is about made-up webs alone.
    """

    name: str
    title: str
    about: str
    data: str
    tasks: Callable[[int, Sequence[int]], list[Task]]
    plots: Callable[[Rows], list[Plot]]
    tables: Callable[[Rows], list[Table]]
    findings: Callable[[Rows], list[Finding]]
    pages: int = 100_000
    runs: int = 2
    tasks_of_edges: Callable[[EdgeList, Sequence[int]], list[Task]] | None = None


def no_plots(rows: Rows) -> list[Plot]:
    """Of an experiment that is all tables."""
    return []
