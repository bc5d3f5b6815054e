"""The replay: a crawl log on disk becomes importance. The pipeline is `Replay`; `run` is a row of segments of it.

The in-process runner keeps everything between two stages in memory. So the input is cut into segments; each is one
bounded pipeline, and the ledger goes from one to the next by its head. Whatever comes out is a part with a name in the
work folder: names are in the order of the log, on any runner.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from opicflow.connectors.files.log_reader import split
from opicflow.connectors.files.whole_file import write_atomically
from opicflow.connectors.kafka.topic_log import PartitionProgress, TopicRange
from opicflow.pipelines.replay.keeper import KeeperConfig, KeepReplay, ReplayHead, ReplayKeeper
from opicflow.pipelines.transforms.decode import (
    REJECTS,
    Decode,
    InputRange,
    Route,
    Segment,
    SourceProgress,
    close_readers,
    name_of,
)
from opicflow.pipelines.transforms.keep_ledger import KEEPERS, KeepLedger
from opicflow.pipelines.transforms.route import Rules

_FINAL = ("importance-", "schedule-", "orders-")
SEGMENT_BYTES = 256 << 20
IN_PROCESS = "DirectRunner"
"""The runner by this name is Beam's in-process FnApi runner, and never the Prism that Beam would download."""


class Replay(beam.PTransform):
    """Segments of crawl logs in; rejects, publications, reports and the final importance out, as named parts."""

    def __init__(
        self,
        config: KeeperConfig,
        rules: Rules,
        files: dict[str, str],
        run: str,
        resume: ReplayHead | None,
        durable: bool,
    ) -> None:
        """`files` tells the name of every source; `resume` is where the ledger in this process stands."""
        super().__init__()
        self._config = config
        self._rules = rules
        self._files = files
        self._run = run
        self._resume = resume
        self._durable = durable

    def expand(self, segments: Any) -> Any:
        """One screen: what happens to a crawl log."""
        routed = (
            segments
            | "Decode" >> beam.ParDo(Decode(self._rules))
            | "Route" >> beam.ParDo(Route(self._rules, self._files)).with_outputs(REJECTS, main="batches")
        )
        routed.batches.element_type = typehints.KV[int, bytes]  # or they would be pickled
        keep = KeepLedger(KeepReplay(self._config, self._resume or ReplayHead()), self._run, self._durable)
        kept = routed.batches | "KeepLedger" >> beam.ParDo(keep)
        # Not flattened: each is saved in the stage that makes it, and never all of it in memory.
        return {"rejects": routed[REJECTS], "kept": kept}


class SavePart(beam.DoFn):
    """Writes a part to the work folder, whole or not at all: written again, it is the same."""

    def __init__(self, folder: str) -> None:
        """The folder is there, and seen by all workers."""
        self._folder = folder

    def process(self, element: tuple[str, bytes]) -> None:
        """Write one part."""
        name, data = element
        write_atomically(Path(self._folder) / name, data)


@dataclass
class Plan:
    """What is to be replayed and how."""

    input_ranges: list[InputRange]
    config: KeeperConfig
    rules: Rules
    work: Path
    runner: str = IN_PROCESS
    beam_options: Sequence[str] = ()
    segment_bytes: int = SEGMENT_BYTES
    run: str = field(default_factory=lambda: uuid.uuid4().hex)


def run(plan: Plan, keeper: ReplayKeeper | None, after: Callable[[dict[str, Any], ReplayKeeper | None], None]) -> None:
    """Replay from where `keeper` stands. `after` is told the report of every segment, and its keeper if it is here."""
    head = keeper.head if keeper else None
    if keeper:
        KEEPERS.put(plan.run, 0, keeper)
    try:
        if plan.runner != IN_PROCESS:
            _run_whole(plan, after)
            return
        left = plan.input_ranges
        while True:
            number = head.segment if head else 0
            segment = Segment(number, tuple(left), plan.segment_bytes, ends_input=True)
            _run_pipeline(plan, [segment], head, FnApiRunner())
            report = json.loads((plan.work / f"report-{number:06}.json").read_bytes())
            kept = KEEPERS.peek(plan.run, 0)
            assert isinstance(kept, ReplayKeeper)
            keeper = kept
            head = keeper.head
            after(report, keeper)
            if report["ended"]:
                return
            left = _left(left, read_tos(report))
    finally:
        close_readers()
        KEEPERS.remove_run(plan.run)


def _run_whole(plan: Plan, after: Callable[[dict[str, Any], ReplayKeeper | None], None]) -> None:
    """The whole input as one segment, on a runner that is not this process."""
    ranges: list[InputRange] = []
    for input_range in plan.input_ranges:
        ranges += [input_range] if isinstance(input_range, TopicRange) else split(input_range, plan.segment_bytes)
    segments = [
        Segment(number, (part,), 1 << 62, ends_input=number == len(ranges) - 1) for number, part in enumerate(ranges)
    ] or [Segment(0, (), 1 << 62, ends_input=True)]
    _run_pipeline(plan, segments, None, plan.runner)
    for segment in segments:
        after(json.loads((plan.work / f"report-{segment.number:06}.json").read_bytes()), None)


def _run_pipeline(plan: Plan, segments: list[Segment], head: ReplayHead | None, runner: Any) -> None:
    files = {input_range.source: name_of(input_range) for input_range in plan.input_ranges}
    durable = plan.runner != IN_PROCESS
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(plan.beam_options)))
    created = pipeline | "ListSegments" >> beam.Create(segments, reshuffle=durable)
    outputs = created | "Replay" >> Replay(plan.config, plan.rules, files, plan.run, head, durable)
    for name, output in outputs.items():
        _ = output | f"Publish {name}" >> beam.ParDo(SavePart(str(plan.work)))
    pipeline.run().wait_until_finish()


def read_tos(report: dict[str, Any]) -> list[SourceProgress]:
    """How far the sources were read, as the report of a segment tells."""
    return [
        SourceProgress(source, at, done, tuple(PartitionProgress(*one) for one in reached))
        for source, at, done, reached in report["files"]
    ]


def _left(input_ranges: Sequence[InputRange], read: Sequence[SourceProgress]) -> list[InputRange]:
    """What is still to be read, as far as the last segment came."""
    read_to = {one.source: one for one in read}
    left: list[InputRange] = []
    for input_range in input_ranges:
        to = read_to.get(input_range.source)
        if to is None:
            left.append(input_range)
        elif not to.is_done:
            left.append(
                input_range.advanced_to(to.at, to.partitions)
                if isinstance(input_range, TopicRange)
                else replace(input_range, start=to.at)
            )
    return left


def remove_parts(work: Path, from_segment: int = 0) -> None:
    """Remove the parts of the segments from this one on, and everything final: they are about to be made again."""
    for path in work.glob("*-*"):
        number = path.name.split("-")[1].removesuffix(".json")
        if path.name.startswith(_FINAL) or (number.isdigit() and int(number) >= from_segment):
            with suppress(FileNotFoundError):
                path.unlink()
