"""The report of experiments: one page of markdown beside its plots and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment
from opicflow.pipelines.lab.experiments.tables import Row, markdown, to_csv


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
            lines += [f"**{table.title}**", "", *table.lines, ""]
        judged = [(claim.statement, claim.source, claim.measured, claim.verdict) for claim in claims[one.name]]
        lines += [*markdown(("claim", "source", "measured", "result"), judged), ""]
        lines += [f"Data: [{one.data}.csv](data/{one.data}.csv).", ""]
    return "\n".join(lines)


def summary(chosen: Sequence[Experiment], claims: Mapping[str, Sequence[Claim]]) -> list[str]:
    """Return the claims of the chosen experiments, and their results, as lines for a terminal."""
    lines = []
    for one in chosen:
        lines.append(one.title)
        for claim in claims[one.name]:
            lines += [f"  {claim.verdict:13} {claim.statement}", f"{'':16}{claim.measured}"]
    return lines
