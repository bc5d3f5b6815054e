"""The stream: crawl events become importance while the crawl runs. The pipeline is `Stream`.

One job: routers write what each shard is to know into the shard's log, a partition of page-ledger; ledgers read
their logs, and write what they owe to others into the logs of those. What is written to a log may come twice; a ledger
drops what it had. So each half may crash, and be started from an older checkpoint, without the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam import typehints

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, partitions_of_topic, record_at, resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.sink import PublishMessages
from opicflow.connectors.kafka.source import Beat, CallPartitions, FollowedTopic, Pulses, Seldom, wall_seconds
from opicflow.connectors.kafka.topics import Finding, TopicSpec, findings, look_at, names, specs
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.results.topics import Destination, SendOutputs
from opicflow.pipelines.stream.routers import (
    LEAST_LOG_MB,
    KeepFollowedLedger,
    RouteEvents,
    RoutePolicies,
    RouterConfig,
    Tick,
)
from opicflow.pipelines.transforms.keep_ledger import Keeping, KeepStream
from opicflow.pipelines.transforms.replay_keeper import Output
from opicflow.pipelines.transforms.stream_keeper import LogHead, LogRefused, Origin, digest_of_value
from opicflow.schemas.columns import ColumnsRefused

_MOST_EVENTS = 4000
"""What a router reads at once. What it makes of them are few entries: these cost, not their visits."""
_MOST_ENTRIES = 16
"""What a ledger reads at once: an entry may hold the visits of thousands of events."""
_POLICY_SECONDS = 0.5
_CALL: Any = typehints.KV[int, float]


@dataclass(frozen=True)
class StreamConfig:
    """What a stream runs on. `ledger_topic` is page-ledger, or the logs of a set of ledgers that was made anew."""

    connection: Connection
    origin: Origin
    prefix: str = ""
    ledger_topic: str = "page-ledger"
    tick_seconds: float = 1.0
    run: str = "stream"
    pulse_ms: int = 250
    least_log_mb: float = LEAST_LOG_MB
    keeping: Keeping | None = None
    """Who keeps the ledgers, if it is not who should: benchmarks leave the work out."""


class Stream(beam.PTransform[Any, Any]):
    """From topics to topics, for ever."""

    def __init__(self, config: StreamConfig) -> None:
        """Where reading starts is settled now, for a job that does not go on from a savepoint."""
        super().__init__()
        self._config = config
        self._names = names(config.prefix)
        connection = config.connection
        self._events = FollowedTopic.of(connection, self._names.crawl_events, most_records=_MOST_EVENTS)
        self._policies = FollowedTopic.of(connection, self._names.policies, may_grow=False)
        self._logs = FollowedTopic.of(connection, config.ledger_topic, may_grow=False, most_records=_MOST_ENTRIES)

    def expand(self, pbegin: Any) -> Any:
        """One screen: three writers of the logs, and one reader."""
        config = self._config
        par_do: Any = beam.ParDo  # comes without types
        send = PublishMessages(config.connection, all_or_none=True)
        origin = config.origin
        rules = RouterConfig(
            config.connection,
            config.ledger_topic,
            self._names.rejects,
            origin.shards,
            origin.rules,
            origin.quiet_until,
        )

        pulses = pbegin | "Pulses" >> Pulses(config.pulse_ms)

        event_calls = pulses | "CallEvents" >> CallPartitions(self._events)
        entries = event_calls | "RouteEvents" >> par_do(RouteEvents(rules, self._events))
        sent_events = entries | "SendEntries" >> send

        seldom = pulses | "Seldom" >> par_do(Seldom(_POLICY_SECONDS))
        policy_calls = seldom | "CallPolicies" >> CallPartitions(self._policies)
        policies = policy_calls | "RoutePolicies" >> par_do(RoutePolicies(rules, self._policies))
        sent_policies = policies | "SendPolicies" >> send

        slower = pulses | "Slower" >> par_do(Seldom(config.tick_seconds / 5))
        clock_calls = slower | "CallClock" >> beam.Map(at_one_clock).with_output_types(_CALL)
        beats = clock_calls | "Beat" >> par_do(Beat(config.tick_seconds))
        ticks = beats | "Tick" >> par_do(Tick(config.ledger_topic, origin.shards))
        sent_ticks = ticks | "SendTicks" >> send

        log_calls = pulses | "CallLogs" >> CallPartitions(self._logs)
        keeping = config.keeping or KeepStream(LogIsTheSame(config.connection, config.ledger_topic))
        keep = KeepFollowedLedger(self._logs, keeping, config.run, config.least_log_mb)
        outputs = log_calls | "KeepLedger" >> par_do(keep).with_output_types(Output)
        to = Destination(config.connection, config.prefix)
        _ = outputs | "SendOutputs" >> par_do(SendOutputs(to, config.ledger_topic))
        return sent_events, sent_policies, sent_ticks


def at_one_clock(pulse: Any) -> tuple[int, float]:
    """A call to the one clock that there is."""
    return 0, wall_seconds()


@dataclass(frozen=True)
class LogIsTheSame:
    """Refuses a head whose log does not hold the last record that was applied."""

    connection: Connection
    topic: str

    def __call__(self, shard: int, head: LogHead) -> None:
        """Read that record again."""
        if head.last_offset < 0:
            return
        found = record_at(self.connection, self.topic, shard, head.last_offset)
        if found is None or digest_of_value(found) != head.last_digest:
            raise LogRefused(
                f"{self.topic}, partition {shard}: offset {head.last_offset} does not hold the record that the "
                "ledger was given there: the log was made anew, cut off or restored: rebuild from crawl-events"
            )


def check_topics(connection: Connection, prefix: str, ledger_topic: str, shards: int | None) -> list[Finding]:
    """What of the topics would lose data, or mix up time: a stream does not start before it is mended."""
    wanted = [
        replace(spec, name=ledger_topic) if spec.name == names(prefix).page_ledger else spec
        for spec in specs(prefix, shards)
    ]
    cluster = look_at(connection, [spec.name for spec in wanted])
    return [finding for spec in wanted for finding in findings(cluster.topics.get(spec.name), spec, cluster.brokers)]


def ledger_spec(prefix: str, topic: str, shards: int) -> TopicSpec:
    """How the topic of the logs of so many shards should be."""
    return next(replace(one, name=topic) for one in specs(prefix, shards) if one.name == names(prefix).page_ledger)


def origin_of(connection: Connection, topic: str) -> Origin | None:
    """What the logs of a topic began with; None if nothing was written yet."""
    found = [_first_entry(connection, topic, one) for one in resolve(connection, topic)]
    origins = [Origin.of(entry) for entry in found if entry is not None]
    if not origins:
        return None
    if any(origin != origins[0] for origin in origins):
        raise LogRefused(f"{topic}: its partitions began with different settings: make the topic anew")
    return origins[0]


def begin_logs(connection: Connection, topic: str, origin: Origin) -> Origin:
    """Make sure that every log of a topic begins with what its ledger counts by. Returns what is so from now on."""
    _, partitions = partitions_of_topic(connection, topic)
    if partitions != origin.shards:
        raise KafkaRefused(
            f"{topic}: it has {partitions} partitions, its ledgers {origin.shards} shards: give --shards {partitions}"
        )
    there = origin_of(connection, topic)
    with Publisher(connection) as publisher:
        for one in resolve(connection, topic):
            if one.start == one.end:
                publisher.send(topic, None, (there or origin).entry(), one.partition)
        publisher.flush()
    return there or origin


def _first_entry(connection: Connection, topic: str, log: PartitionRange) -> Any:
    if log.start == log.end:
        return None
    if log.start > 0:
        raise LogRefused(
            f"{topic}, partition {log.partition}: offsets 0 to {log.start - 1} were deleted, with what its ledger "
            "counts by: go on from a savepoint, or rebuild into a new topic"
        )
    value = record_at(connection, topic, log.partition, log.start)
    try:
        return decode_entry(value or b"").entry
    except ColumnsRefused as problem:
        raise LogRefused(
            f"{topic}, partition {log.partition}: its first record is no entry of a log ({problem}): name a new topic"
        ) from None
