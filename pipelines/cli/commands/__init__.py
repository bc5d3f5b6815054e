"""The commands of `opicflow`: their groups, and the modules of those that run it.

A module has `EXAMPLES`, `add_options(parser)` and `run(options)`, which returns the exit code. It prints its results at
its end, unless it has `PRINTS_AS_IT_GOES = True`. What takes long to import is imported within functions. Modules are
found by the name of their group's package: the core imports neither ranks nor the laboratory.
"""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """Commands for one purpose, with a summary each; `package` has their modules."""

    title: str
    example: str
    package: str
    commands: dict[str, str]


GROUPS = (
    Group(
        "run",
        "opicflow replay 'logs/*.jsonl.gz' --out results --report report.html",
        "opicflow.pipelines.cli.commands",
        {
            "replay": "compute the importance of all pages of a crawl log",
            "validate": "show which events of a log would be rejected, and what would improve the results",
            "topics": "create the topics, and check them for settings that would lose data",
            "publish": "send crawl events, policies or rules to topics",
            "stream": "compute importance and schedules while the crawl runs, in one process or on Flink",
            "rebuild": "rebuild all ledgers from crawl-events, with any number of shards",
            "audit": "check that the accounts of all shards balance, to the unit",
            "top": "show the most important pages or sites of a state, or the sites of a file of ranks",
            "show": "show the importance, cash and schedule of one page",
            "serve": "show a state or a stream in a browser: important pages, accuracy, next fetches",
            "traps": "show pages that bring only more of themselves, or what others have",
            "schedule": "plan when the pages of a state are fetched again, with these or other options",
            "export": "write importance, a schedule or orders in the format of a crawler, an index or a database",
            "push": "send orders or a schedule into the frontier of a running crawler",
            "subscribe": "show the results in topics, as they arrive",
            "config": "show the settings, and where each comes from",
        },
    ),
    Group(
        "rank",
        "opicflow rank 'logs/*.jsonl.gz' --out ranks.csv",
        "opicflow.pipelines.ranks.commands",
        {
            "graph": "build the link graph of a crawl on disk, or describe one",
            "rank": "compute PageRank and related ranks of a whole graph, of pages or sites, out of core",
            "compare": "measure how much the ranks of two files differ, or agree with grades",
            "community": "compute the global ranks of some hosts by reading a few more pages",
        },
    ),
    Group(
        "study",
        "opicflow simulate --out crawl.avro --ranks exact.csv",
        "opicflow.pipelines.lab.commands",
        {
            "simulate": "write the log of a crawl of a synthetic web",
            "experiment": "repeat the experiments of the papers, and others",
        },
    ),
)
