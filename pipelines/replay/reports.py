"""The report of a segment of a replay: from the stage that keeps the ledger to the run that waits for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opicflow.pipelines.results.part_files import part_paths, read_part
from opicflow.pipelines.stages.decoded_batch import SourceProgress
from opicflow.pipelines.stages.outputs import REPORT, Output
from opicflow.pipelines.stages.publish import PlanFigures
from opicflow.schemas.plain_values import Natural, read_plain

RefusedPolicy = tuple[dict[str, object], str]
"""A policy as plain values, and why it was refused."""


@dataclass
class Sample:
    """How a crawl went up to a moment. `top` are the most important pages, and the importance of each."""

    time_ms: Natural
    visits: Natural
    pages: Natural
    pages_read: Natural
    idle_share: float
    top: list[tuple[int, float]]


@dataclass
class Counts:
    """What happened in a segment. The counts of all segments of a run are kept."""

    tally: dict[str, int] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    """The number of rejects for each reason."""
    samples: list[Sample] = field(default_factory=list)
    refused_policies: list[RefusedPolicy] = field(default_factory=list)

    def add(self, name: str, count: int) -> None:
        """Add to a count of the tally."""
        self.tally[name] = self.tally.get(name, 0) + count

    def add_reject(self, reason: str, count: int) -> None:
        """Add rejects for a reason."""
        self.rejects[reason] = self.rejects.get(reason, 0) + count


@dataclass
class Report:
    """What happened in a segment, and how the ledger is at its end. Of the latter the last report of a run counts."""

    counts: Counts
    ended: bool
    """Whether the input ended with the segment: then there is a plan, and an audit."""
    files: list[SourceProgress]
    pages: Natural
    pages_read: Natural
    transfers: Natural
    turns: float
    drift: int
    idle: dict[str, float]
    """For each last outcome of pages, the share of the cash on such pages."""
    audit: dict[str, Any] = field(default_factory=dict)
    """At the end, the accounts of the ledger as an `Audit` record has them."""
    plan: PlanFigures = field(default_factory=PlanFigures)
    """At the end, the plan in numbers."""
    refused_to_come: list[RefusedPolicy] = field(default_factory=list)
    """The policies that will be refused when their time comes."""
    certificate: float | None = None
    not_learnt: int | None = None
    """Links, sightings and announcements of pages beyond the limits of domains, where there are limits."""

    def output(self) -> Output:
        """Return the report as an output of the replay."""
        return Output(REPORT, json.dumps(asdict(self), separators=(",", ":")).encode())


def report_of(work: Path, segment: int) -> Report | None:
    """Return the report of a segment that was saved in the work folder; None if the segment has not ended."""
    saved = part_paths(work, REPORT, segment)
    return read_plain(Report, json.loads(read_part(saved[-1]))) if saved else None
