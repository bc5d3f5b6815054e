"""The driver `local`: the stages of a replay in this process, by threads, without Beam.

The decoding of a segment, the routing and the ledger run side by side (docs/decisions/local-runner.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from opicflow.connectors.runs import kept
from opicflow.pipelines.ledger.encoding import DecodedEntry, decode_entry
from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeper, ReplayKeeperFactory
from opicflow.pipelines.stages.ahead import run_ahead
from opicflow.pipelines.stages.decode import PausedReader, Segment, decode_segment, route_batch
from opicflow.pipelines.stages.keepers import Keepers, LostLedger
from opicflow.pipelines.stages.parts import Part
from opicflow.pipelines.stages.route import ANY_TIME, Seen
from opicflow.pipelines.stages.rules import Rules

SHARD = 0
"""A replay has one ledger."""
_MOST_ROUTED = 4
"""Batches that wait for the ledger."""


class ReplaySettings(NamedTuple):
    """The settings of the steps of a replay. `files` are the names of the sources; later events are rejected."""

    config: KeeperConfig
    rules: Rules
    files: dict[str, str]
    run: str
    latest_ms: int = ANY_TIME


def apply_segment(settings: ReplaySettings, head: ReplayHead, segment: Segment) -> Iterator[Part]:
    """Replay a segment: events are decoded on several threads, routed on one, and applied on this one.

    The ledger of the run is the one that this process keeps, with this head. Yields its outputs, and rejects.
    """
    keepers = kept(settings.run, Keepers)
    keeper = keepers.take(SHARD)
    if keeper is None or keeper.head != head:
        if head.chain:
            raise LostLedger("the ledger of this replay is no longer in the memory of its process: run again")
        keeper = ReplayKeeperFactory(settings.config).new(SHARD)
    assert isinstance(keeper, ReplayKeeper)
    for data, decoded, rejects in run_ahead(_routed(settings, segment), _MOST_ROUTED):
        if rejects is not None:
            yield rejects
        yield from keeper.take(data, decoded)
    keepers.put(SHARD, keeper)


def _routed(
    settings: ReplaySettings, segment: Segment
) -> Generator[tuple[bytes, DecodedEntry, Part | None], None, None]:
    """Yield batches as they are stored and as they are read from that, so that the ledger's thread need not read."""
    seen = Seen()
    for batch in decode_segment(segment, settings.rules, kept(settings.run, PausedReader), settings.latest_ms):
        data, rejects = route_batch(batch, settings.rules, seen, settings.files, settings.latest_ms)
        yield data, decode_entry(data), rejects
