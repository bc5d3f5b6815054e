"""AdaptiveOpic, on one screen: crawl events become importance, a refresh schedule and crawl orders, on any runner.

    published = pipeline | beam.io.ReadFromText("crawl.jsonl") | AdaptiveOpic()
    published.importance | beam.Map(print)

`opicflow replay` runs these stages on crawl logs, with DirectRunner or another runner (replay/segments.py).
`opicflow stream` runs them on Flink, or in one process: it reads crawl events from a Kafka topic, and writes each
result to a topic (stream/pipeline.py). `opicflow subscribe importance` reads such a topic (cli/commands/subscribe.py).
"""

from __future__ import annotations

import os
import uuid
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.transforms.window import GlobalWindows

from opicflow.pipelines.ledger import Certified, ConfigRefused, LedgerConfig
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
    them count for importance, not for change rates. Results leave at the end of the events; with `publications` also
    while they come.

    The window of a page's history is a part of the ledger: `LedgerConfig(history=Interpolation())`, or the week of
    `window_importance` under `Certified()`. Beam's windows have no effect.
    """

    def __init__(
        self,
        ledger: LedgerConfig | None = None,
        rules: Rules | None = None,
        publications: bool = False,
        latest_ms: int = ANY_TIME,
    ) -> None:
        """`ledger`: how cash and history are counted. `rules`: which URLs are pages.

        The default history, `Certified()`, gives exact ranks with a bound of their error; `Interpolation()` is the
        paper's. A key of page ids in the rules becomes a part of the job, which the runner may show. Events after
        `latest_ms` (milliseconds since 1970) are rejected.
        """
        super().__init__()
        ledger, rules = ledger or LedgerConfig(history=Certified()), rules or Rules()
        if rules.categories.count != ledger.categories:
            raise ConfigRefused("the rules have other categories of pages than the ledger: give both the same number")
        config = ReplayConfig(
            ledger,
            publications=publications,
            page_ids=rules.page_ids,
            has_offsets=False,
            multiplier=int.from_bytes(os.urandom(8), "little"),
        )
        self._settings = ReplaySettings(config, rules, {}, f"events {uuid.uuid4().hex}", latest_ms)

    def expand(self, events: Any) -> Publications:
        """Decode, route and key events by page, keep the ledger, publish."""
        given = self._settings
        batches = (
            events | "Unwindowed" >> beam.WindowInto(GlobalWindows()) | "Decode" >> beam.ParDo(DecodeEvents(given))
        )
        routed = batches | "Route" >> beam.ParDo(Route(given)).with_outputs(REJECTED, main="entries")
        # One shard has all pages here. A stream has several: the hash of a page's URL decides (stages/shard.py).
        keyed = routed.entries | "KeyByPage" >> beam.Map(key_by_page)
        keyed.element_type = typehints.KV[int, bytes]
        # Stateful: a visit moves its page's cash to the pages that it links to, and updates the page's history.
        keep = KeepEvents(ReplayedLogFactory(given.config), given.run)
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
