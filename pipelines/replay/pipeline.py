"""The pipeline of a replay, on one screen: segments of crawl logs in, outputs out.

Its source reads logs, and its sink saves results in a work folder that all workers share. `AdaptiveOpic`
(pipelines/adaptive_opic.py) is the same for events of a pipeline of one's own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders.typecoders import registry
from apache_beam.pvalue import PCollection

from opicflow.connectors.runs import kept
from opicflow.pipelines.replay.replayed_log import SHARD, ReplayedLogFactory
from opicflow.pipelines.replay.segment_steps import ReplaySettings
from opicflow.pipelines.results.part_files import write_part
from opicflow.pipelines.stages.decode import PausedReader, Segment, decode_segment, route_batch
from opicflow.pipelines.stages.decoded_batch import DecodedBatch
from opicflow.pipelines.stages.keep_ledger import KeepLedger
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.outputs import Output
from opicflow.pipelines.stages.route import Seen

REJECTED = "rejects"


class Replay(beam.PTransform):
    """Turns segments of crawl logs into outputs, on any runner."""

    def __init__(self, settings: ReplaySettings, head: LogHead | None = None) -> None:
        """Continue the ledger that this process keeps for the run, which has this head.

        Without a head the ledger begins, and is also kept in the state of the runner.
        """
        super().__init__()
        self._settings = settings
        self._head = head

    def expand(self, segments: PCollection[Segment]) -> dict[str, PCollection[Output]]:
        """Decode segments, route their events, and keep the ledger."""
        given = self._settings
        batches = segments | "Decode" >> beam.ParDo(Decode(given)).with_output_types(DecodedBatch)
        routed = batches | "Route" >> beam.ParDo(Route(given)).with_outputs(REJECTED, main="entries")
        keyed = routed.entries | "KeyByPage" >> beam.Map(key_by_page)
        keyed.element_type = typehints.KV[int, bytes]  # or they would be pickled
        keep = KeepLedger(ReplayedLogFactory(given.config), given.run, self._head)
        kept = keyed | "KeepLedger" >> beam.ParDo(keep)
        # Not flattened: each is saved in the stage that makes it, so memory never holds everything.
        return {"rejects": routed[REJECTED], "kept": kept}


class DecodedBatchCoder(beam.coders.Coder):
    """Pickles batches, and knows their size without it: Beam asks for the size of every other batch to measure it."""

    def encode(self, value: DecodedBatch) -> bytes:
        """Return a batch as bytes, for a runner with stages apart."""
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> DecodedBatch:
        """Return the batch that was encoded by this run."""
        batch: DecodedBatch = pickle.loads(encoded)
        return batch

    def estimate_size(self, value: DecodedBatch) -> int:
        """Return the bytes that its records have in the log."""
        return value.size_bytes

    def is_deterministic(self) -> bool:
        """Batches are never keys."""
        return False


registry.register_coder(DecodedBatch, DecodedBatchCoder)


def key_by_page(batch: bytes) -> tuple[int, bytes]:
    """Return a batch with the shard that has its pages: a replay has one shard, of all page ids.

    A stream divides the rows of an entry by the hash of the URL of their page (stages/shard.py).
    """
    return SHARD, batch


class Decode(beam.DoFn):
    """Reads and decodes segments. Yields their batches."""

    def __init__(self, settings: ReplaySettings) -> None:
        self._settings = settings

    def process(self, element: Segment) -> Iterator[DecodedBatch]:
        """Decode one segment, where the one before it has ended."""
        given = self._settings
        yield from decode_segment(element, given.rules, kept(given.run, PausedReader), given.latest_ms)


class Route(beam.DoFn):
    """Routes decoded batches. Yields the rows of each as bytes, and rejects under a tag."""

    def __init__(self, settings: ReplaySettings) -> None:
        """Later events are rejected."""
        self._settings = settings
        self._seen: Seen | None = None  # the worker makes it: this object is pickled

    def start_bundle(self) -> None:
        """Forget all sent URLs: a repeated bundle must send its sightings again."""
        self._seen = Seen()

    def process(self, element: DecodedBatch) -> Iterator[bytes | beam.pvalue.TaggedOutput]:
        """Route one batch."""
        assert self._seen is not None
        given = self._settings
        batch, rejects = route_batch(element, given.rules, self._seen, given.files, given.latest_ms)
        yield batch.to_bytes()
        if rejects is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejects)


class SaveOutputs(beam.DoFn):
    """Saves outputs in the work folder, which all workers share."""

    def __init__(self, work: str, compressed: bool = False) -> None:
        self._work = work
        self._compressed = compressed

    def process(self, element: Output) -> None:
        """Save one output."""
        write_part(Path(self._work), element, self._compressed)
