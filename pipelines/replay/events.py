"""The stages of `AdaptiveOpic` that a replay of files has not: events of any pipeline in, records out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import orjson
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagRuntimeState,
    ReadModifyWriteRuntimeState,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.connectors.runs import close_run
from opicflow.pipelines.ledger import CrawlEntry, CrawlItems, LogPosition
from opicflow.pipelines.replay.segment_steps import ReplaySettings
from opicflow.pipelines.results.record_columns import RESULTS, reject_columns
from opicflow.pipelines.stages.decoded_batch import DecodedBatch, RoutedBatch, urls_of
from opicflow.pipelines.stages.keep_ledger import JournalInState, KeepLedger
from opicflow.pipelines.stages.outputs import REJECTS, Output
from opicflow.schemas.columns import plain_rows
from opicflow.schemas.errors import UserError
from opicflow.schemas.urls import Canonicaliser

_SOURCE = "events"
_BATCH_BYTES = 1 << 20


class NoEvent(UserError, TypeError):
    """An element of a PCollection cannot be a crawl event."""


class DecodeEvents(beam.DoFn):
    """Decodes crawl events, some at once. Yields decoded batches; those that are decoded already pass."""

    def __init__(self, settings: ReplaySettings) -> None:
        self._rules = settings.rules
        self._lines: list[bytes] = []
        self._bytes = 0
        self._canonicaliser: Canonicaliser | None = None

    def setup(self) -> None:
        """Prepare the rules of URLs: they are not pickled."""
        self._canonicaliser = Canonicaliser(self._rules.urls, self._rules.page_ids)

    def start_bundle(self) -> None:
        """Forget the lines of a bundle that failed."""
        self._lines, self._bytes = [], 0

    def process(self, element: object) -> Iterator[DecodedBatch]:
        """Take an event. Yields a batch when there are enough."""
        if isinstance(element, DecodedBatch):
            yield from self._waiting()
            yield element._replace(is_last=False, ends_input=False)
            return
        line = _line_of(element)
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= _BATCH_BYTES:
            yield from self._waiting()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yield the rest."""
        window = GlobalWindow()
        yield from (WindowedValue(batch, window.start, (window,)) for batch in self._waiting())

    def _waiting(self) -> Iterator[DecodedBatch]:
        """Yield the lines that wait as a batch, if there are some."""
        if not self._lines:
            return
        assert self._canonicaliser is not None
        block = b"".join(self._lines)
        self.start_bundle()
        decoded = decode_jsonl(block, _SOURCE, 0)
        yield DecodedBatch(_SOURCE, 0, len(block), len(block), decoded, urls_of(decoded, self._canonicaliser))


def _line_of(event: object) -> bytes:
    """Return an event as a line of JSON."""
    if isinstance(event, dict):
        return orjson.dumps(event, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)
    if isinstance(event, str):
        event = event.encode("utf-8", "surrogatepass")
    if not isinstance(event, bytes):
        raise NoEvent(f"a crawl event is a line of JSON, a dict or a decoded batch, not {type(event).__name__}")
    return event.rstrip(b"\r\n") + b"\n"


class KeepEvents(KeepLedger):
    """Keeps the ledger of events that have no place in a log: they are applied as they arrive."""

    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[int, bytes],
        head_state: ReadModifyWriteRuntimeState = KeepLedger.HEAD,
        snapshot: BagRuntimeState = KeepLedger.SNAPSHOT,
        journal: BagRuntimeState = KeepLedger.JOURNAL,
        end: Any = beam.DoFn.TimerParam(END),  # noqa: B008  (Beam's way to declare timers)
    ) -> Iterator[Output]:
        """Apply the entry of a batch."""
        end.set(GlobalWindow().max_timestamp())
        shard, batch = element
        yield from self.keep(shard, batch, head_state, snapshot, JournalInState(journal))

    @on_timer(END)
    def finish(
        self,
        shard: Any = beam.DoFn.KeyParam,
        head_state: ReadModifyWriteRuntimeState = KeepLedger.HEAD,
        snapshot: BagRuntimeState = KeepLedger.SNAPSHOT,
        journal: BagRuntimeState = KeepLedger.JOURNAL,
    ) -> Iterator[Output]:
        """Publish the results: there are no more events."""
        nothing = CrawlEntry(_SOURCE, LogPosition(0, 0), LogPosition(0, 0), CrawlItems.filled(0))
        end = RoutedBatch(0, 1, nothing, _SOURCE, {}, {}, ends_segment=True, ends_input=True)
        yield from self.keep(shard, end.to_bytes(), head_state, snapshot, JournalInState(journal))

    def teardown(self) -> None:
        """Drop the ledger from this process: where it goes on, it is made again from state."""
        close_run(self._run)


class PublishRecords(beam.DoFn):
    """Yields the records of outputs of some kinds as dicts, with the fields of the published schemas."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def process(self, element: Output) -> Iterator[dict[str, Any]]:
        """Yield the records of one output, if it is of these kinds."""
        if element.kind in self._kinds:
            columns_of = reject_columns if element.kind == REJECTS else RESULTS[element.kind].columns_of
            yield from plain_rows(columns_of(element.data))
