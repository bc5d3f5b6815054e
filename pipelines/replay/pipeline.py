"""The pipeline of a replay, on one screen: segments of a crawl log in, parts of results out.

On a runner of many machines it has a stage for each step. The runner of one process would keep all that one stage gives
to the next in memory, as bytes, and begin no stage before the one before it has ended: there a segment goes through all
steps in one stage, whose threads work side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints

from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeperFactory
from opicflow.pipelines.results.part_files import write_part
from opicflow.pipelines.transforms.ahead import run_ahead
from opicflow.pipelines.transforms.decode import REJECTS, Decode, Route, Segment, decode_segment, route_batch
from opicflow.pipelines.transforms.keep_ledger import KEEPERS, KeepLedger, LostLedger
from opicflow.pipelines.transforms.parts import Part
from opicflow.pipelines.transforms.route import ANY_TIME, Seen
from opicflow.pipelines.transforms.rules import Rules

SHARD = 0
"""A replay has one ledger."""
_MOST_ROUTED = 4
"""Batches that wait for the ledger."""


class ReplaySettings(NamedTuple):
    """What the steps of a replay need to know. `files` are the names of the sources; later events are rejected."""

    config: KeeperConfig
    rules: Rules
    files: dict[str, str]
    run: str
    latest_ms: int = ANY_TIME


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
        """Continue the ledger of the run in the cache of this process, which has this head."""
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
        """Replay a segment: events are decoded on several threads, routed on one, and applied on this one."""
        given = self._settings
        keeper = KEEPERS.take(given.run, SHARD)
        if keeper is None or keeper.head != self._head:
            if self._head.chain:
                raise LostLedger("the ledger of this replay is no longer in the memory of its process: run again")
            keeper = ReplayKeeperFactory(given.config).new(SHARD)
        for entry, rejects in run_ahead(self._routed(element), _MOST_ROUTED):
            if rejects is not None:
                yield rejects
            yield from keeper.take(entry)
        KEEPERS.put(given.run, SHARD, keeper)

    def _routed(self, segment: Segment) -> Any:
        given, seen = self._settings, Seen()
        for batch in decode_segment(segment, given.rules):
            yield route_batch(batch, given.rules, seen, given.files, given.latest_ms)


class SavePart(beam.DoFn):
    """Writes parts to the work folder, which all workers share."""

    def __init__(self, work: str, compressed: bool = False) -> None:
        self._work = work
        self._compressed = compressed

    def process(self, element: Any) -> None:
        """Write one `Part`."""
        write_part(Path(self._work), Part(*element), self._compressed)
