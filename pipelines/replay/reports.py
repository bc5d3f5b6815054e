"""The reports of the segments of a replay: from the stage that keeps the ledger to the run that waits for them.

Where that stage is in this process they are kept in its memory. Workers elsewhere share a folder with it, and save them
there as the other outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from opicflow.connectors.runs import find_kept, kept
from opicflow.pipelines.results.part_files import part_paths, read_part, write_part
from opicflow.pipelines.stages.decoded_batch import segment_at
from opicflow.pipelines.stages.outputs import REPORT, Output


class Reports:
    """The reports that arrived in this process, by segment."""

    def __init__(self) -> None:
        self._by_segment: dict[int, bytes] = {}

    def add(self, report: Output) -> None:
        """Keep a report."""
        self._by_segment[segment_at(report.offset)] = report.data

    def take(self, segment: int) -> bytes | None:
        """Return the report of a segment, and drop it."""
        return self._by_segment.pop(segment, None)

    def close(self) -> None:
        """Drop all reports."""
        self._by_segment.clear()


def report_of(run: str, work: Path, segment: int) -> dict[str, Any] | None:
    """Return the report of a segment; None if the segment has not ended."""
    report = kept(run, Reports).take(segment)
    if report is None:
        saved = part_paths(work, REPORT, segment)
        report = read_part(saved[-1]) if saved else None
    found: dict[str, Any] | None = None if report is None else orjson.loads(report)
    return found


def save_output(run: str, work: Path, output: Output, compressed: bool = False) -> None:
    """Save an output in the work folder; a report only where no run in this process waits for it."""
    reports = find_kept(run, Reports) if output.kind == REPORT else None
    if reports is None:
        write_part(work, output, compressed)
    else:
        reports.add(output)
