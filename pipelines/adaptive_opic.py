"""AdaptiveOpic, on one screen: crawl events become importance, a refresh schedule and crawl orders, on any runner.

    events = pipeline | beam.io.ReadFromText("crawl.jsonl") | AdaptiveOpic()
    events.importance | beam.Map(print)

`opicflow replay` has the same stages behind a source of its own (replay/pipeline.py), and `opicflow stream` between
topics, with a log of entries for each shard (stream/pipeline.py).
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.transforms.window import GlobalWindows

from opicflow.pipelines.ledger import Certified, LedgerConfig
from opicflow.pipelines.replay.events import DecodeEvents, KeepEvents, PublishRecords
from opicflow.pipelines.replay.pipeline import REJECTED, Route, key_by_page
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLogFactory
from opicflow.pipelines.replay.segment_steps import ReplaySettings
from opicflow.pipelines.stages import outputs
from opicflow.pipelines.stages.route import ANY_TIME
from opicflow.pipelines.stages.rules import Rules


class Publications(NamedTuple):
    """What leaves: PCollections of dicts, with the fields of the published schemas (docs/reference/formats.md)."""

    importance: Any
    refresh_schedule: Any
    crawl_orders: Any
    rejects: Any


class AdaptiveOpic(beam.PTransform[Any, Any]):
    """Turns a PCollection of crawl events into those of importance, refresh schedule, crawl orders and rejects.

    An event is a line of JSON (bytes or text), a dict with its fields, as `ReadFromAvro` yields them, or a decoded
    batch. Events are applied in the order in which the runner brings them; those of an earlier time than events before
    them count for importance, not for rates of change. Results leave when all events are there; with `publications`
    also while they come.
    """

    def __init__(
        self,
        ledger: LedgerConfig | None = None,
        rules: Rules | None = None,
        publications: bool = False,
        latest_ms: int = ANY_TIME,
    ) -> None:
        """`ledger`: how cash and history are counted, certified by default. `rules`: which URLs are pages.

        Events after `latest_ms` (milliseconds since 1970) are rejected.
        """
        super().__init__()
        config = ReplayConfig(ledger or LedgerConfig(history=Certified()), publications=publications, is_placed=False)
        self._settings = ReplaySettings(config, rules or Rules(), {}, f"events {uuid.uuid4().hex}", latest_ms)

    def expand(self, events: Any) -> Publications:
        """Decode, route and key events by page, keep the ledger, publish."""
        given = self._settings
        batches = (
            events | "Unwindowed" >> beam.WindowInto(GlobalWindows()) | "Decode" >> beam.ParDo(DecodeEvents(given))
        )
        routed = batches | "Route" >> beam.ParDo(Route(given)).with_outputs(REJECTED, main="entries")
        keyed = routed.entries | "KeyByPage" >> beam.Map(key_by_page)
        keyed.element_type = typehints.KV[int, bytes]
        keep = KeepEvents(ReplayedLogFactory(given.config), given.run, durable=True)
        kept = keyed | "KeepLedger" >> beam.ParDo(keep)
        rejected = (routed[REJECTED], kept) | "AllRejects" >> beam.Flatten()
        return Publications(
            importance=kept | "PublishImportance" >> _publish(outputs.IMPORTANCE, outputs.FINAL_IMPORTANCE),
            refresh_schedule=kept | "PublishSchedule" >> _publish(outputs.SCHEDULE, outputs.FINAL_SCHEDULE),
            crawl_orders=kept | "PublishOrders" >> _publish(outputs.ORDERS, outputs.FINAL_ORDERS),
            rejects=rejected | "PublishRejects" >> _publish(outputs.REJECTS),
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings of the ledger in the runner's pages."""
        return {name: str(value) for name, value in self._settings.config.ledger.to_json().items()}


def _publish(*kinds: str) -> Any:
    return beam.ParDo(PublishRecords(*kinds)).with_output_types(dict[str, Any])
