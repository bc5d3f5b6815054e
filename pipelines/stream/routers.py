"""The routers of a stream: crawl events and policies in, entries for the logs of the shards out.

The entries of a bundle are sent before the bundle ends. So the logs have all entries that the state of a router counts.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteRuntimeState, ReadModifyWriteStateSpec

from opicflow.connectors.files.whole_file import whole_file
from opicflow.connectors.flink.key_groups import number_of
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import Framer, decode_messages, describe_unread, writer_of
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.polls import Poll, WatchedTopic
from opicflow.connectors.kafka.record_reader import record_of
from opicflow.connectors.kafka.sink import NOTE, Message
from opicflow.connectors.kafka.source import PartitionReader
from opicflow.pipelines.stages.decoded_batch import route_rows, urls_of
from opicflow.pipelines.stages.keep_ledger import state_param
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.metrics import count
from opicflow.pipelines.stages.route import ANY_TIME, Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState, ToShard
from opicflow.pipelines.stream.published_rules import CONTROL, RulesNote, first_rules, rules_of
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.framing import Decoder, FramingRefused
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Policy, to_avro
from opicflow.schemas.urls import Canonicaliser

_SEEN_FOR_EVENTS = 1_000_000
"""After this many events all URLs are sent once more: a ledger may have removed a page and its URL meanwhile."""


@dataclass(frozen=True)
class RouterStates:
    """How far the sources of routers are, in files: for a runner whose state ends with its process.

    A lost file costs time alone: its source is routed again, and ledgers drop the entries that they have.
    """

    folder: Path

    def read(self, source: str) -> bytes | None:
        """Return the state of a source; None if there is none."""
        try:
            return self._path(source).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, note: Message) -> None:
        """Write the state of a source (the key of the note): all entries before it have arrived."""
        assert note.key is not None and note.value is not None
        with whole_file(self._path(note.key.decode())) as file:
            file.write(note.value)

    def _path(self, source: str) -> Path:
        return self.folder / f"{quote(source, safe='')}.source"


@dataclass(frozen=True)
class RouterConfig:
    """The settings of routers: where entries go, and how workers read the settings that the stream began with.

    These hold a key, and are no part of the job. At the offsets of `quiet_until` every shard is sent an entry.
    """

    connection: Connection
    ledger_topic: str
    rejects_topic: str
    origin: Callable[[], Origin]
    notes: Callable[[], Sequence[RulesNote]]
    """Reads the notes of the rules that were published."""
    run: str = ""
    """The run that has the connections of a process."""
    states: RouterStates | None = None
    """The place where routers keep their states as well; None: the state of the runner alone."""


class _Router(beam.DoFn, ABC):
    """Takes polls of the partitions of a topic; emits messages: entries for the logs of shards, and rejects."""

    STATE = state_param(ReadModifyWriteStateSpec("source", BytesCoder()))

    def __init__(self, config: RouterConfig, topic: WatchedTopic) -> None:
        """`topic` is routed."""
        self._config = config
        self._topic = topic
        self._name = topic.partitions[0].topic
        self._reader = PartitionReader(topic, config.run)
        self._rejects = Framer(config.connection, config.rejects_topic, "Reject")
        self._origin: Origin | None = None

    def _begun_with(self) -> Origin:
        """Return the settings that the stream began with. A worker reads them once.

        It is no property: Beam evaluates those of a DoFn while it makes the job.
        """
        if self._origin is None:
            self._origin = self._config.origin()
        return self._origin

    def process(
        self,
        element: Poll,
        stored: ReadModifyWriteRuntimeState = STATE,
    ) -> Iterator[Message]:
        """Read the partition for a limited time, and route its messages."""
        input_range = self._topic.partition(number_of(element[0]))

        def state() -> SourceState:
            source, states = input_range.source, self._config.states
            written = stored.read() or (states.read(source) if states else None)
            continues = self._begun_with().continues
            begin = 0 if continues is None else continues.sources.get(source, 0)
            start = max(input_range.start, begin)
            if written:
                return SourceState.from_bytes(written).of(source, start)
            first = SourceState.at(start, self._begun_with().shards, source, begin)
            return replace(first, rules=self._first_rules(replace(input_range, start=start)))

        for batch in self._reader.read(element, lambda: state().next):
            everywhere_at = self._begun_with().quiet_until.get(input_range.source, -1)
            sharder = Sharder(input_range.source, state(), self._begun_with().ranges, everywhere_at)
            yield from self._route(sharder, batch)
            state_bytes = sharder.state.to_bytes()
            stored.write(state_bytes)
            if self._config.states is not None:
                yield Message(NOTE, input_range.source.encode(), state_bytes)

    def teardown(self) -> None:
        """Close the connections to the cluster."""
        self._reader.close()

    def _first_rules(self, input_range: PartitionRange) -> str:
        """Return the rules that hold where a partition without a state begins; empty = those of the stream's start."""
        return ""

    @abstractmethod
    def _route(self, sharder: Sharder, batch: MessageBatch) -> Iterator[Message]:
        """Route a batch that begins at the offset of the sharder's state."""

    def _entries(self, sharded: Iterator[ToShard]) -> Iterator[Message]:
        for shard, entry in sharded:
            count("entries")
            yield Message(self._config.ledger_topic, None, entry, shard)

    def _reject(self, reject: Reject) -> Message:
        count("rejected_events")
        key = f"{reject.source}:{reject.offset}".encode()
        return Message(self._config.rejects_topic, key, self._rejects.encode(to_avro(reject)))


class RouteEvents(_Router):
    """The router of crawl events."""

    def setup(self) -> None:
        """Connect to the schema registry in the worker."""
        # Seen URLs are not sent again. They last as long as this object, which Beam discards when a bundle fails, so
        # that the URLs of that bundle are sent again. Each partition has its own: when they are routed again, a ledger
        # drops the URLs it has from one, and must not miss in another the URLs it has dropped.
        self._seen: dict[str, Seen] = {}
        self._seen_events: Counter[str] = Counter()
        self._canonicalisers: dict[Rules, Canonicaliser] = {}
        self._writers = writer_of(self._config.connection)
        self._first: dict[int, str] = {}

    def _first_rules(self, input_range: PartitionRange) -> str:
        number = input_range.partition
        if number not in self._first:
            begun = self._begun_with().rules
            rules = first_rules(self._config.notes(), input_range.topic_id, number, input_range.start, begun)
            self._first[number] = "" if rules == begun else json.dumps(rules.to_json())
        return self._first[number]

    def _route(self, sharder: Sharder, batch: MessageBatch) -> Iterator[Message]:
        """Route the events before a control record by the old rules, those after it by its rules."""
        for row in _control_rows(batch):
            offset = int(batch.offsets[row])
            yield from self._route_events(sharder, batch, row, offset)
            rules = rules_of(batch.value(row) or b"", self._rules(sharder), f"{self._name}, offset {offset}")
            sharder.state = replace(sharder.state, next=offset + 1, rules=json.dumps(rules.to_json()))
        yield from self._route_events(sharder, batch, len(batch), batch.end)

    def _route_events(self, sharder: Sharder, batch: MessageBatch, end_row: int, end: int) -> Iterator[Message]:
        """Route the events from the offset of the sharder's state up to a row, whose offset is `end`."""
        source = f"{self._name}/{sharder.source.rpartition('/')[2]}"
        rows = slice(int(np.searchsorted(batch.offsets, sharder.state.next)), end_row)
        events = replace(
            batch,
            offsets=batch.offsets[rows],
            times_ms=batch.times_ms[rows],
            begins=batch.begins[rows],
            ends=batch.ends[rows],
        )
        rules = self._rules(sharder)
        decoded = decode_messages(events, source, self._writers)
        canonicaliser = self._canonicalisers.setdefault(rules, Canonicaliser(rules.urls, rules.page_ids))
        if source not in self._seen or self._seen_events[source] > _SEEN_FOR_EVENTS:
            self._seen[source], self._seen_events[source] = Seen(), 0
        self._seen_events[source] += len(events)
        urls = urls_of(decoded, canonicaliser)
        # An event of any time is routed: it may be routed again at any time.
        items, rejects, counts, reasons = route_rows(decoded, urls, source, rules, self._seen[source], ANY_TIME)
        for name, number in counts.items():
            count(name if name == "events_read" else f"routed_{name}", number)
        yield from self._entries(sharder.crawl(items, end))
        count("rejected_events", reasons.total() - len(rejects))  # those that are not listed
        yield from map(self._reject, rejects)

    def _rules(self, sharder: Sharder) -> Rules:
        written = sharder.state.rules
        return (
            Rules.from_json(json.loads(written), self._begun_with().rules.page_ids)
            if written
            else self._begun_with().rules
        )


class RoutePolicies(_Router):
    """The router of policies, which sends every policy to every shard."""

    def setup(self) -> None:
        """Connect to the schema registry in the worker."""
        self._decoder = Decoder("Policy", writer_of(self._config.connection))

    def _route(self, sharder: Sharder, batch: MessageBatch) -> Iterator[Message]:
        source = f"{self._name}/{sharder.source.rpartition('/')[2]}"
        policies: list[tuple[int, Policy]] = []
        for row, offset in enumerate(batch.offsets.tolist()):
            value = batch.value(row)
            if value is not None and value.startswith(CONTROL):
                continue  # a note for the routers of events
            try:
                if value is None:
                    unread = batch.unread(row)
                    raise FramingRefused(describe_unread(unread) if unread else "it has no value")
                policy = record_of(value, self._decoder, Policy)
                assert isinstance(policy, Policy)
                policies.append((offset, policy))
            except (FramingRefused, PolicyRefused, ValueError, KeyError, TypeError) as problem:
                detail = " ".join(str(problem).split())[:200] or type(problem).__name__
                yield self._reject(Reject(Reason.CORRUPT, detail, source, offset, value or b""))
        count("policies", len(policies))
        yield from self._entries(sharder.policies(policies, batch.end))


def _control_rows(batch: MessageBatch) -> list[int]:
    """Return the rows of control records."""
    text = np.frombuffer(batch.text, np.uint8)
    rows = np.flatnonzero((batch.begins >= 0) & (batch.ends - batch.begins > len(CONTROL)))
    for index in (2, 10, 1, 0):  # one byte suffices for most events
        rows = rows[text[batch.begins[rows] + index] == CONTROL[index]]
    begins = batch.begins[rows].tolist()
    return [row for row, begin in zip(rows.tolist(), begins, strict=True) if batch.text.startswith(CONTROL, begin)]
