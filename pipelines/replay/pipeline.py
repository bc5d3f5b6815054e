"""The pipeline of a replay, on one screen: segments of a crawl log in, parts of results out.

On a runner of many machines it has a stage for each step. The runner of one process would keep all that one stage gives
to the next in memory, as bytes, and begin no stage before the one before it has ended: there a segment goes through all
steps in one stage, whose threads work side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam import typehints

from opicflow.pipelines.replay.keeper import ReplayHead, ReplayKeeperFactory
from opicflow.pipelines.replay.segment_steps import ReplaySettings, apply_segment
from opicflow.pipelines.results.part_files import write_part
from opicflow.pipelines.transforms.decode import Segment, decode_segment, route_batch
from opicflow.pipelines.transforms.decoded_batch import DecodedBatch
from opicflow.pipelines.transforms.keep_ledger import KeepLedger
from opicflow.pipelines.transforms.parts import Part
from opicflow.pipelines.transforms.route import ANY_TIME, Seen
from opicflow.pipelines.transforms.rules import Rules

REJECTS = "rejects"


class Replay(beam.PTransform):
    """Turns segments of crawl logs into parts of results: on any runner, in one stage for each step."""

    def __init__(self, settings: ReplaySettings, durable: bool = True) -> None:
        """`durable`: the ledger is also kept in the state of the runner."""
        super().__init__()
        self._settings = settings
        self._durable = durable

    def expand(self, segments: Any) -> Any:
        """Decode segments, route their events, and keep the ledger."""
        given = self._settings
        route = beam.ParDo(Route(given.rules, given.files, given.latest_ms))
        routed = (
            segments
            | "Decode" >> beam.ParDo(Decode(given.rules))
            | "Route" >> route.with_outputs(REJECTS, main="entries")
        )
        routed.entries.element_type = typehints.KV[int, bytes]  # or they would be pickled
        keep = KeepLedger(ReplayKeeperFactory(given.config), given.run, self._durable)
        kept = routed.entries | "KeepLedger" >> beam.ParDo(keep)
        # Not flattened: each is saved in the stage that makes it, so memory never holds everything.
        return {"rejects": routed[REJECTS], "kept": kept}


class ReplayHere(beam.PTransform):
    """Turns a segment of crawl logs into parts of results: in this process, in one stage."""

    def __init__(self, settings: ReplaySettings, head: ReplayHead) -> None:
        """Continue the ledger that this process keeps for the run, which has this head."""
        super().__init__()
        self._settings = settings
        self._head = head

    def expand(self, segments: Any) -> Any:
        """Decode, route and apply, side by side."""
        return {"parts": segments | "ApplySegment" >> beam.ParDo(ApplySegment(self._settings, self._head))}


class ApplySegment(beam.DoFn):
    """Decodes, routes and applies a segment. Yields the outputs of the keeper, and rejects."""

    def __init__(self, settings: ReplaySettings, head: ReplayHead) -> None:
        self._settings = settings
        self._head = head

    def process(self, element: Segment) -> Iterator[Part]:
        """Replay a segment."""
        yield from apply_segment(self._settings, self._head, element)


class SavePart(beam.DoFn):
    """Writes parts to the work folder, which all workers share."""

    def __init__(self, work: str, compressed: bool = False) -> None:
        self._work = work
        self._compressed = compressed

    def process(self, element: Any) -> None:
        """Write one `Part`."""
        write_part(Path(self._work), Part(*element), self._compressed)


class Decode(beam.DoFn):
    """Reads and decodes segments. Yields their batches."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def process(self, element: Segment) -> Iterator[DecodedBatch]:
        """Decode one segment."""
        yield from decode_segment(element, self._rules)


class Route(beam.DoFn):
    """Routes decoded batches. Yields encoded entries, keyed by shard, and rejects under a tag."""

    def __init__(self, rules: Rules, files: dict[str, str], latest_ms: int = ANY_TIME) -> None:
        """Weigh links by these rules; `files` are the names of the sources for rejects. Later events are rejected."""
        self._rules = rules
        self._files = files
        self._latest_ms = latest_ms
        self._seen: Seen | None = None  # the worker makes it: this object is pickled

    def start_bundle(self) -> None:
        """Forget all sent URLs: a repeated bundle must send its sightings again."""
        self._seen = Seen()

    def process(self, element: DecodedBatch) -> Iterator[Any]:
        """Route one batch."""
        assert self._seen is not None
        entry, rejects = route_batch(element, self._rules, self._seen, self._files, self._latest_ms)
        yield 0, entry
        if rejects is not None:
            yield beam.pvalue.TaggedOutput(REJECTS, rejects)
