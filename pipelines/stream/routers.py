"""The stages of a stream between its topics: the routers of crawl events and policies, and the clock.

What a router makes of a source is sent before its bundle is done, so its state never runs ahead of what has arrived.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import apache_beam as beam
import numpy as np
import orjson
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.framing import Framer, writer_of
from opicflow.connectors.kafka.messages import Messages, decode_messages
from opicflow.connectors.kafka.records import record_of
from opicflow.connectors.kafka.sink import Message
from opicflow.connectors.kafka.source import FollowedTopic, Follower, MessageBatch, read_stretch
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.transforms.decode import route_rows, urls_of
from opicflow.pipelines.transforms.keep_ledger import AnyBatch, AnyHead, AnyKeeper, Keeping, KeepLedger
from opicflow.pipelines.transforms.metrics import count
from opicflow.pipelines.transforms.replay_keeper import Output
from opicflow.pipelines.transforms.route import Rules, Seen
from opicflow.pipelines.transforms.shard import Sharder, SourceState
from opicflow.pipelines.transforms.stream_keeper import LogBatch, LogHead, LogKeeper
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.framing import Decoder, FramingRefused
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Policy, to_avro
from opicflow.schemas.urls import Canonicaliser

CONTROL = b'{"opicflow-control":'
"""What a record of crawl-events begins with that is no event, but rules for those that follow it."""

LEAST_LOG_MB = 16.0
"""MiB. Of so much log a ledger is made again in about half a second."""
OLDEST_SNAPSHOT_MS = 6 * 3_600_000
"""A log must be kept for so long before the oldest savepoint."""
_SEEN_FOR_EVENTS = 1_000_000
"""After so many events all URLs are sent once more: a ledger may have let a page go and learnt it again without one."""


class ControlUnknown(Exception):
    """A record of crawl-events says something that this code does not know."""


@dataclass(frozen=True)
class RouterConfig:
    """What routers share: where entries go, how many shards there are, and the rules that the stream began with.

    `everywhere_at` are offsets of sources at which every shard is told that they have come there.
    """

    connection: Connection
    ledger_topic: str
    rejects_topic: str
    shards: int
    rules: Rules = field(default_factory=Rules)
    everywhere_at: dict[str, int] = field(default_factory=dict)


def batch_of(element: MessageBatch) -> LogBatch:
    """A batch of messages as one of a log."""
    messages = element.messages
    return LogBatch(
        element.start,
        element.end,
        messages.offsets,
        messages.times_ms,
        messages.begins,
        messages.ends,
        np.frombuffer(messages.text, np.uint8),
    )


class JournalInLog:
    """The records of a log since the last snapshot: they are there already, and are read again."""

    def __init__(self, read: Callable[[int, int], Iterable[LogBatch]], least_mb: float = LEAST_LOG_MB) -> None:
        """`read` reads the log from one offset up to another. Of less than `least_mb` there is no snapshot."""
        self._read = read
        self._least_bytes = int(least_mb * (1 << 20))

    def add(self, keeper: AnyKeeper, batch: AnyBatch) -> None:
        """It is in the log. How long that gets is counted."""
        assert isinstance(keeper, LogKeeper) and isinstance(batch, LogBatch)
        keeper.journal_bytes += len(batch.text)
        if len(batch.times_ms):
            if keeper.journal_from_ms is None:
                keeper.journal_from_ms = int(batch.times_ms[0])
            keeper.journal_to_ms = int(batch.times_ms[-1])

    def is_long(self, keeper: AnyKeeper) -> bool:
        """A snapshot comes when the log since is twice as long as the old one, and is never older than some hours."""
        assert isinstance(keeper, LogKeeper)
        outgrown = keeper.journal_bytes > max(2 * keeper.snapshot_bytes, self._least_bytes)
        begun_ms = keeper.journal_from_ms
        return outgrown or (begun_ms is not None and keeper.journal_to_ms - begun_ms > OLDEST_SNAPSHOT_MS)

    def clear(self, keeper: AnyKeeper) -> None:
        """The log stays: others read it too. It counts from here on."""
        assert isinstance(keeper, LogKeeper)
        keeper.journal_bytes, keeper.journal_from_ms = 0, None

    def since(self, keeper: AnyKeeper, head: AnyHead) -> Iterator[AnyBatch]:
        """The log from where a keeper stands up to a head."""
        assert isinstance(keeper, LogKeeper) and isinstance(head, LogHead)
        for batch in self._read(keeper.head.next, head.next):
            self.add(keeper, batch)
            yield batch


class KeepFollowedLedger(KeepLedger):
    """`KeepLedger` that reads its log itself, from where its state says it stands: calls in, outputs out."""

    def __init__(self, topic: FollowedTopic, keeping: Keeping, run: str, least_log_mb: float = LEAST_LOG_MB) -> None:
        """`topic` are the logs; a snapshot comes for `least_log_mb` of one at least."""
        super().__init__(keeping, run, durable=True)
        self._least_log_mb = least_log_mb
        self._topic = topic
        self._follower = Follower(topic)

    def process(  # type: ignore[override]
        self,
        element: tuple[int, Any],
        head_state: Any = beam.DoFn.StateParam(KeepLedger.HEAD),  # noqa: B008  (how Beam is told)
        snapshot: Any = beam.DoFn.StateParam(KeepLedger.SNAPSHOT),  # noqa: B008  (how Beam is told)
    ) -> Iterator[Output]:
        """Read on for a while, and apply what there is."""
        log = self._topic.partition(element[0])

        def start() -> int:
            stored = head_state.read()
            return LogHead.from_bytes(stored).next if stored else log.start

        def read(start: int, end: int) -> Iterator[LogBatch]:
            return map(batch_of, read_stretch(replace(log, start=start, end=end)))

        for batch in self._follower.read(element, start):
            yield from self.keep(
                batch.partition, batch_of(batch), head_state, snapshot, JournalInLog(read, self._least_log_mb)
            )

    def teardown(self) -> None:
        """Let go of the cluster."""
        self._follower.close()


class _Router(beam.DoFn, ABC):
    """Calls to the partitions of a topic in; messages out: entries for the shards' logs, and rejects."""

    STATE = ReadModifyWriteStateSpec("source", BytesCoder())

    def __init__(self, config: RouterConfig, topic: FollowedTopic) -> None:
        """`topic` is the one that is routed."""
        self._config = config
        self._topic = topic
        self._name = topic.partitions[0].topic
        self._follower = Follower(topic)
        self._rejects = Framer(config.connection, config.rejects_topic, "Reject")

    def process(
        self,
        element: tuple[int, float],
        stored: Any = beam.DoFn.StateParam(STATE),  # noqa: B008  (how Beam is told)
    ) -> Iterator[Message]:
        """Read on for a while, and route what there is."""
        input_range = self._topic.partition(element[0])

        def state() -> SourceState:
            written = stored.read()
            return (
                SourceState.from_bytes(written) if written else SourceState.at(input_range.start, self._config.shards)
            )

        for batch in self._follower.read(element, lambda: state().next):
            sharder = Sharder(input_range.source, state(), self._config.everywhere_at.get(input_range.source, -1))
            yield from self._route(sharder, batch_of(batch))
            stored.write(sharder.state.to_bytes())

    def teardown(self) -> None:
        """Let go of the cluster."""
        self._follower.close()

    @abstractmethod
    def _route(self, sharder: Sharder, batch: LogBatch) -> Iterator[Message]:
        """Messages of a batch that begins where the sharder stands."""

    def _entries(self, sharded: Iterator[Any]) -> Iterator[Message]:
        for shard, entry in sharded:
            count("entries")
            yield Message(self._config.ledger_topic, None, entry, shard)

    def _reject(self, reject: Reject) -> Message:
        count("rejected_events")
        key = f"{reject.source}:{reject.offset}".encode()
        return Message(self._config.rejects_topic, key, self._rejects.encode(to_avro(reject)))


class RouteEvents(_Router):
    """The router of crawl events."""

    _seen: Seen | None = None
    _seen_events = 0

    def setup(self) -> None:
        """What is remembered of URLs ends with this object, and that with the first bundle that fails."""
        self._canonicalisers: dict[Rules, Canonicaliser] = {}
        self._writers = writer_of(self._config.connection)

    def _route(self, sharder: Sharder, batch: LogBatch) -> Iterator[Message]:
        """Events up to a control record by the rules before it, those behind it by its own."""
        controls = _controls(batch)
        end = batch.end
        for row in [*controls, -1]:
            last = len(batch.offsets) if row < 0 else row
            until = end if row < 0 else int(batch.offsets[row])
            yield from self._route_events(sharder, batch, last, until)
            if row >= 0:
                begin, stop = int(batch.begins[row]), int(batch.ends[row])
                rules = rules_of(
                    batch.text[begin:stop].tobytes(), self._rules(sharder), f"{self._name}, offset {until}"
                )
                sharder.state = replace(sharder.state, next=until + 1, rules=json.dumps(rules.to_json()))

    def _route_events(self, sharder: Sharder, batch: LogBatch, last: int, until: int) -> Iterator[Message]:
        source = f"{self._name}/{sharder.source.rpartition('/')[2]}"
        first = int(np.searchsorted(batch.offsets, sharder.state.next))
        rows = slice(first, last)
        messages = Messages(
            batch.offsets[rows], batch.times_ms[rows], batch.text.tobytes(), batch.begins[rows], batch.ends[rows]
        )
        rules = self._rules(sharder)
        decoded = decode_messages(messages, source, self._writers)
        canonicaliser = self._canonicalisers.setdefault(rules, Canonicaliser(rules.urls))
        if self._seen is None or self._seen_events > _SEEN_FOR_EVENTS:
            self._seen, self._seen_events = Seen(), 0
        self._seen_events += len(messages)
        urls = urls_of(decoded, canonicaliser)
        items, rejects, counts = route_rows(decoded, urls, source, rules, self._seen)
        for name, number in counts.items():
            count(name if name == "events_read" else f"routed_{name}", number)
        yield from self._entries(sharder.crawl(items, until))
        yield from map(self._reject, rejects)

    def _rules(self, sharder: Sharder) -> Rules:
        written = sharder.state.rules
        return Rules.from_json(json.loads(written)) if written else self._config.rules


class RoutePolicies(_Router):
    """The router of publications. Every shard is sent all of them."""

    def setup(self) -> None:
        """Writers of messages are asked for where this runs."""
        self._decoder = Decoder("Policy", writer_of(self._config.connection))

    def _route(self, sharder: Sharder, batch: LogBatch) -> Iterator[Message]:
        source = f"{self._name}/{sharder.source.rpartition('/')[2]}"
        policies: list[tuple[int, Policy]] = []
        for offset, begin, end in zip(batch.offsets.tolist(), batch.begins.tolist(), batch.ends.tolist(), strict=True):
            value = batch.text[max(begin, 0) : max(end, 0)].tobytes()
            try:
                if begin < 0:
                    raise FramingRefused("it has no value")
                policy = record_of(value, self._decoder, Policy)
                assert isinstance(policy, Policy)
                policies.append((offset, policy))
            except (FramingRefused, PolicyRefused, ValueError, KeyError, TypeError) as problem:
                detail = " ".join(str(problem).split())[:200] or type(problem).__name__
                yield self._reject(Reject(Reason.CORRUPT, detail, source, offset, value))
        count("policies", len(policies))
        yield from self._entries(sharder.policies(policies, batch.end))


class Tick(beam.DoFn):
    """Beats of the clock in; a tick for the log of every shard out. Its time is the broker's, when it is written."""

    def __init__(self, ledger_topic: str, shards: int) -> None:
        """The logs are the partitions of the topic."""
        self._topic = ledger_topic
        self._shards = shards

    def process(self, element: Any) -> Iterator[Message]:
        """Tick once."""
        entry = encode_entry(TickEntry(0))
        count("ticks")
        return (Message(self._topic, None, entry, shard) for shard in range(self._shards))


def rules_of(control: bytes, before: Rules, where: str) -> Rules:
    """The rules that a control record says; `ControlUnknown` for what this code does not know."""
    unknown = f"{where}: a control record that this opicflow cannot follow"
    try:
        said = orjson.loads(control)["opicflow-control"]
        if sorted(said) != ["rules", "version"] or said["version"] != 1:
            raise ControlUnknown(f"{unknown} ({', '.join(sorted(said))[:100]}): update opicflow")
        rules = Rules.from_json(said["rules"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as problem:
        raise ControlUnknown(f"{unknown} ({type(problem).__name__}: {str(problem)[:100]}): update opicflow") from None
    if rules.categories != before.categories:
        raise ControlUnknown(f"{unknown}: it has other categories, and what ledgers count by is never changed: rebuild")
    return rules


def control_record(rules: Rules) -> bytes:
    """The record that, sent to every partition of crawl-events, makes these rules hold for what follows."""
    return CONTROL + orjson.dumps({"version": 1, "rules": rules.to_json()}) + b"}"


def _controls(batch: LogBatch) -> list[int]:
    """The rows of control records."""
    rows = np.flatnonzero((batch.begins >= 0) & (batch.ends - batch.begins > len(CONTROL)))
    for place in (2, 10, 1, 0):  # most events are told apart by one byte
        rows = rows[batch.text[batch.begins[rows] + place] == CONTROL[place]]
    begins = batch.begins[rows].tolist()
    return [
        row
        for row, begin in zip(rows.tolist(), begins, strict=True)
        if batch.text[begin : begin + len(CONTROL)].tobytes() == CONTROL
    ]
