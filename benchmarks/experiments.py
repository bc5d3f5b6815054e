"""Repeats the experiments, and writes what they measure into their pages in docs/results.

Run it with `make experiments`, or `python -m benchmarks.experiments --only communities` for the minutes of one page.
Everything has a seed: the same command writes the same figures. A page explains its figures before and after the part
that is measured: check these words whenever the figures change.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from opicflow.pipelines.cli.main import main as opicflow
from opicflow.pipelines.lab.experiments.catalogue import EXPERIMENTS

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGES = {
    "discovery": ["discovery"],
    "manipulation": ["manipulation"],
    "sites": ["sites"],
    "worth": ["loop"],
    "communities": ["table1", "table2", "influence", "community"],
}
"""The experiments of each page; all others are in experiments.md."""
PAGES["experiments"] = [name for name in EXPERIMENTS if not any(name in names for names in PAGES.values())]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Run the experiments, or continue them, and write the pages."""
    parser = argparse.ArgumentParser(description="make the papers' experiments again, into docs/results")
    parser.add_argument("--out", type=Path, default=Path("build/experiments"), help="folder for measured rows")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    parser.add_argument("--only", choices=PAGES, help="only one of the pages")
    parser.add_argument("more", nargs="*", help="options for `opicflow experiment`")
    chosen = parser.parse_args()
    for page in [chosen.only] if chosen.only else PAGES:
        out = chosen.out / page
        if code := opicflow(["experiment", *PAGES[page], "--out", str(out), *chosen.more]):
            sys.exit(code)
        path = chosen.docs / f"{page}.md"
        path.write_text(with_report(path.read_text(encoding="utf-8"), out, chosen.docs / page), encoding="utf-8")


def with_report(page: str, out: Path, plots: Path) -> str:
    """Return a page with the report of an experiment as its measured part; copy the plots to their folder."""
    report = (out / "report.md").read_text(encoding="utf-8").partition("\n\n")[2]  # without its heading
    for plot in sorted((out / "plots").glob("*.svg")):
        plots.mkdir(exist_ok=True)
        shutil.copyfile(plot, plots / plot.name)
    report = report.replace("](plots/", f"]({plots.name}/")
    for name in sorted({path.name for path in (out / "data").iterdir()}):
        report = report.replace(f"Data: [{name}](data/{name}).\n", "")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{report.strip()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    main()
