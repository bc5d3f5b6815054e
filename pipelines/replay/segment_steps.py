"""The driver `local`: the stages of a replay in this process, by threads, without Beam.

The decoding of a segment, the routing and the ledger run side by side (docs/decisions/segments.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from opicflow.connectors.runs import kept
from opicflow.pipelines.replay.replayed_log import SHARD, ReplayConfig, ReplayedLog, ReplayedLogFactory
from opicflow.pipelines.stages.ahead import run_ahead
from opicflow.pipelines.stages.decode import PausedReader, Segment, decode_segment, route_batch
from opicflow.pipelines.stages.decoded_batch import RoutedBatch
from opicflow.pipelines.stages.keepers import Keepers, LostLedger
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.outputs import Output
from opicflow.pipelines.stages.route import ANY_TIME, Seen
from opicflow.pipelines.stages.rules import Rules

_MOST_ROUTED = 4
"""Batches that wait for the ledger."""


class ReplaySettings(NamedTuple):
    """The settings of the steps of a replay. `files` are the names of the sources; later events are rejected."""

    config: ReplayConfig
    rules: Rules
    files: dict[str, str]
    run: str
    latest_ms: int = ANY_TIME


def apply_segment(settings: ReplaySettings, head: LogHead, segment: Segment) -> Iterator[Output]:
    """Replay a segment: events are decoded on several threads, routed on one, and applied on this one.

    The ledger of the run is the one that this process keeps, with this head. Yields its outputs, and rejects.
    """
    keepers = kept(settings.run, Keepers)
    log = keepers.take(SHARD)
    if log is None or log.head != head:
        if head.chain:
            raise LostLedger("the ledger of this replay is no longer in the memory of its process: run again")
        log = ReplayedLogFactory(settings.config).new(SHARD)
    assert isinstance(log, ReplayedLog)
    for batch, rejects in run_ahead(_routed(settings, segment), _MOST_ROUTED):
        if rejects is not None:
            yield rejects
        yield from log.take(batch)
    keepers.put(SHARD, log)


def _routed(settings: ReplaySettings, segment: Segment) -> Generator[tuple[RoutedBatch, Output | None], None, None]:
    seen = Seen()
    for batch in decode_segment(segment, settings.rules, kept(settings.run, PausedReader), settings.latest_ms):
        yield route_batch(batch, settings.rules, seen, settings.files, settings.latest_ms)
