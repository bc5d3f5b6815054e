"""`opicflow experiment`: the papers' experiments, made again on this machine, with tables, plots, and what they say."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tqdm import tqdm

from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.writing import write_atomically

LEAST_PAGES = 1_000


def experiment(options: argparse.Namespace) -> int:
    """Run the experiments asked for."""
    try:
        from opicflow.pipelines.experiments import experiments
    except ModuleNotFoundError as problem:
        if problem.name != "matplotlib":
            raise
        raise InputRefused(
            "plots are drawn by matplotlib, which is missing: pip install 'opicflow[experiments]'"
        ) from None
    from opicflow.pipelines.experiments.report import summary, written
    from opicflow.pipelines.experiments.running import run

    if options.pages < LEAST_PAGES:
        raise InputRefused(f"--pages {options.pages}: errors of so few pages say nothing; give {LEAST_PAGES} or more")
    known = experiments.EXPERIMENTS
    chosen = list(known.values()) if options.name == "all" else [known[options.name]]
    seeds = range(options.seed, options.seed + options.runs)
    tasks = {one.name: one.tasks(options.pages, seeds) for one in chosen}
    all_tasks = list(dict.fromkeys(task for some in tasks.values() for task in some))
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(all_tasks), unit="task", disable=options.quiet, file=sys.stderr, dynamic_ncols=True) as bar:
        bar.set_description("measuring")
        found = run(all_tasks, out / "parts", options.processes or os.cpu_count() or 1, lambda task: bar.update())
    rows = {one.name: [row for task in tasks[one.name] for row in found[task]] for one in chosen}
    findings = {one.name: one.findings(rows[one.name]) for one in chosen}
    text = written(chosen, rows, findings, out, options.pages, list(seeds))
    write_atomically(out / "report.md", text.encode())
    print("\n".join(summary(chosen, findings)))
    print(f"\nreport, plots and data: {out / 'report.md'}")
    return 0
