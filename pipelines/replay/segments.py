"""Runs a replay as a row of segments: each is one bounded pipeline.

In one process the input is divided into segments, behind which a checkpoint may be written, and the ledger goes from
one to the next in this process (docs/decisions/segments.md). Other runners get the whole input in one pipeline. The
runner `local` drives the stages by threads, without Beam (docs/decisions/segments.md).
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opicflow.connectors.runs import closing_run, kept
from opicflow.pipelines.ledger.pages.space import in_memory
from opicflow.pipelines.replay.replayed_log import SHARD, ReplayConfig, ReplayedLog
from opicflow.pipelines.replay.reports import Report, report_of
from opicflow.pipelines.replay.segment_steps import ReplaySettings, apply_segment
from opicflow.pipelines.results.part_files import write_part
from opicflow.pipelines.stages.bundle_ends import bundles_end_sooner
from opicflow.pipelines.stages.decode import InputRange, PausedReader, Segment, read_ahead
from opicflow.pipelines.stages.decoded_batch import SourceProgress, segment_at
from opicflow.pipelines.stages.keepers import Keepers, LostLedger
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.route import ANY_TIME
from opicflow.pipelines.stages.rules import Rules

if TYPE_CHECKING:
    from apache_beam import PTransform
    from apache_beam.runners.runner import PipelineRunner

SEGMENT_BYTES = 512 << 20
DIRECT_RUNNER = "DirectRunner"
"""The runner with this name is Beam's in-process FnApi runner, and never the Prism that Beam would download."""
FLINK_RUNNER = "FlinkRunner"
LOCAL = "local"
"""No runner of Beam: threads of this process."""
IN_PROCESS = (DIRECT_RUNNER, LOCAL)
_UNLIMITED_BYTES = 1 << 62


class SegmentDone(NamedTuple):
    """The report of a segment, and the log with its ledger if it is in this process."""

    report: Report
    log: ReplayedLog | None


@dataclass
class SegmentRunner:
    """The input of a replay, and its settings."""

    input_ranges: list[InputRange]
    config: ReplayConfig
    rules: Rules
    work: Path
    runner: str = DIRECT_RUNNER
    beam_options: Sequence[str] = ()
    segment_bytes: int = SEGMENT_BYTES
    latest_ms: int = ANY_TIME
    run_name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(self, log: ReplayedLog | None) -> Generator[SegmentDone, None, None]:
        """Replay from the head of `log`, or from the start. Yields after each segment."""
        with closing_run(self.run_name):  # other runners may run here as well
            if self.runner not in IN_PROCESS:
                yield from self._run_at_once()
                return
            if log:
                kept(self.run_name, Keepers).put(SHARD, log)
            yield from self._run_one_by_one(log.head if log else LogHead())

    def _run_one_by_one(self, head: LogHead) -> Iterator[SegmentDone]:
        input_ranges: Sequence[InputRange] = self.input_ranges
        while True:
            segment = Segment(segment_at(head.next), tuple(input_ranges), self.segment_bytes, ends_input=True)
            self._run_here(segment, head)
            report = report_of(self.work, segment.number)
            log = kept(self.run_name, Keepers).peek(SHARD)
            if not isinstance(log, ReplayedLog) or report is None:
                raise LostLedger(f"the workers of {self.runner} are other processes: omit the beam-option that does so")
            head = log.head
            yield SegmentDone(report, log)
            if report.ended:
                return
            input_ranges = _remaining(input_ranges, report.files)

    def _run_here(self, segment: Segment, head: LogHead) -> None:
        """Run a segment in this process: by threads, or by Beam."""
        if self.runner == LOCAL:
            for output in apply_segment(self._settings, head, segment):
                write_part(self.work, output, self._compresses)
            return
        # requests asks for the same while Beam is loaded, but numba, which compiles meanwhile, may undo that.
        warnings.filterwarnings("ignore", "SOCKS support in urllib3")
        # While Beam is loaded, and the pipeline is made:
        read_ahead(segment, self.rules, kept(self.run_name, PausedReader))
        from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

        from opicflow.pipelines.replay.pipeline import Replay

        with bundles_end_sooner():
            self._run_pipeline([segment], Replay(self._settings, head), FnApiRunner())

    def _run_at_once(self) -> Iterator[SegmentDone]:
        from opicflow.pipelines.replay.pipeline import Replay

        ranges = [part for whole in self.input_ranges for part in whole.split(self.segment_bytes)]
        last = len(ranges) - 1
        segments = [
            Segment(number, (one,), _UNLIMITED_BYTES, ends_input=number == last) for number, one in enumerate(ranges)
        ] or [Segment(0, (), _UNLIMITED_BYTES, ends_input=True)]
        self._run_pipeline(segments, Replay(self._settings), *self._runner_and_workers())
        for segment in segments:
            report = report_of(self.work, segment.number)
            if report is None:  # later batches wait for one that never came
                raise LostLedger(
                    f"{self.runner} ended without the whole input (segment {segment.number} has no end): run again"
                )
            yield SegmentDone(report, None)

    @property
    def _settings(self) -> ReplaySettings:
        files = {one.source: readable(one.name) for one in self.input_ranges}
        return ReplaySettings(self.config, self.rules, files, self.run_name, self.latest_ms)

    @property
    def _compresses(self) -> bool:
        return self.config.space is not in_memory

    def _runner_and_workers(self) -> tuple[str, list[str]]:
        """Return the runner of Beam, and the options of its workers: Flink behind a job server takes portable jobs."""
        given = [option.partition("=")[0] for option in self.beam_options]
        if self.runner != FLINK_RUNNER or "--job_endpoint" not in given:
            return self.runner, []
        from opicflow.connectors.flink.worker_environment import worker_options

        return "PortableRunner", [] if "--environment_type" in given else worker_options()

    def _run_pipeline(
        self, segments: list[Segment], replay: PTransform, runner: str | PipelineRunner, workers: Sequence[str] = ()
    ) -> None:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        from opicflow.pipelines.replay.pipeline import SaveOutputs

        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions([*self.beam_options, *workers]))
        created = pipeline | "ListSegments" >> beam.Create(segments, reshuffle=self.runner != DIRECT_RUNNER)
        outputs = created | "Replay" >> replay
        for name, output in outputs.items():
            _ = output | f"Save {name}" >> beam.ParDo(SaveOutputs(str(self.work), self._compresses))
        pipeline.run().wait_until_finish()


def readable(name: str) -> str:
    """Return the name of a file as text: bytes of it that are no UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _remaining(input_ranges: Sequence[InputRange], progress: Sequence[SourceProgress]) -> list[InputRange]:
    """Return the ranges that are still to be read."""
    by_source = {one.source: one for one in progress}
    remaining: list[InputRange] = []
    for input_range in input_ranges:
        read = by_source.get(input_range.source)
        if read is None:
            remaining.append(input_range)
        elif not read.is_done:
            remaining.append(input_range.advanced_to(read.at, read.partitions))
    return remaining
