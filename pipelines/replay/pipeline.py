"""The pipeline of a replay, on one screen: segments of a crawl log in, parts of results out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam import typehints

from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeperFactory
from opicflow.pipelines.results.part_files import write_part
from opicflow.pipelines.transforms.decode import REJECTS, Decode, Route
from opicflow.pipelines.transforms.keep_ledger import KeepLedger
from opicflow.pipelines.transforms.parts import Part
from opicflow.pipelines.transforms.route import ANY_TIME
from opicflow.pipelines.transforms.rules import Rules


class Replay(beam.PTransform):
    """Turns segments of crawl logs into rejects, publications, reports and final results."""

    def __init__(
        self,
        config: KeeperConfig,
        rules: Rules,
        files: dict[str, str],
        run: str,
        resume: ReplayHead | None,
        durable: bool,
        latest_ms: int = ANY_TIME,
    ) -> None:
        """Continue the ledger of `run` in this process at `resume`. `files` are the names of the sources.

        Events after `latest_ms` are rejected.
        """
        super().__init__()
        self._config = config
        self._rules = rules
        self._files = files
        self._run = run
        self._resume = resume
        self._durable = durable
        self._latest_ms = latest_ms

    def expand(self, segments: Any) -> Any:
        """Decode segments, route their events, and keep the ledger."""
        routed = (
            segments
            | "Decode" >> beam.ParDo(Decode(self._rules))
            | "Route"
            >> beam.ParDo(Route(self._rules, self._files, self._latest_ms)).with_outputs(REJECTS, main="entries")
        )
        routed.entries.element_type = typehints.KV[int, bytes]  # or they would be pickled
        keep = KeepLedger(ReplayKeeperFactory(self._config, self._resume or ReplayHead()), self._run, self._durable)
        kept = routed.entries | "KeepLedger" >> beam.ParDo(keep)
        # Not flattened: each is saved in the stage that makes it, so memory never holds everything.
        return {"rejects": routed[REJECTS], "kept": kept}


class SavePart(beam.DoFn):
    """Writes parts to the work folder, which all workers share."""

    def __init__(self, work: str) -> None:
        self._work = work

    def process(self, element: Any) -> None:
        """Write one `Part`."""
        write_part(Path(self._work), Part(*element))
