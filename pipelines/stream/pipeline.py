"""The stream: crawl events become importance while the crawl runs. The pipeline is `Stream`.

One Beam job. Routers write entries into the log of each shard, a partition of page-ledger. Ledgers read their logs, and
write transfers into the logs of other shards. Records of a log may come twice; a ledger drops duplicates. So routers
and ledgers may crash, and be restarted from different checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import TopicEnds
from opicflow.connectors.kafka.polls import (
    FindEnds,
    PollPartitions,
    PollTimer,
    WatchedTopic,
)
from opicflow.connectors.kafka.rounds import RoundTimer
from opicflow.connectors.kafka.sink import PublishMessages
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.results.topic_writer import Destination, SendOutputs
from opicflow.pipelines.stages.keepers import KeeperFactory
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeperFactory
from opicflow.pipelines.stages.outputs import Output
from opicflow.pipelines.stream.clock import CLOCK_HINT, PollClock, WriteTicks
from opicflow.pipelines.stream.ledgers import LEAST_LOG_MB, KeepLogLedger
from opicflow.pipelines.stream.origin import StoredOrigin
from opicflow.pipelines.stream.published_rules import StoredNotes
from opicflow.pipelines.stream.routers import RouteEvents, RoutePolicies, RouterConfig, RouterStates
from opicflow.pipelines.stream.sent import note_sent
from opicflow.pipelines.stream.snapshot_reader import LogCheck
from opicflow.pipelines.stream.snapshot_store import Snapshots

_MOST_EVENTS = 4000
"""A router's batch. It becomes a few entries, and the cost is per entry, not per visit."""
_MOST_ENTRIES = 16
"""A ledger's batch: an entry may hold the visits of thousands of events."""


@dataclass(frozen=True)
class StreamConfig:
    """The settings of a stream. `ledger_topic` is page-ledger, or the logs of rebuilt ledgers.

    The settings of the ledgers are in their logs, and read there: the key of page ids is no part of the job.
    """

    connection: Connection
    shards: int
    prefix: str = ""
    ledger_topic: str = "page-ledger"
    tick_seconds: float = 1.0
    run: str = "stream"
    slots: int = 1
    """The number of Flink's slots for the job."""
    least_log_mb: float = LEAST_LOG_MB
    snapshots: Snapshots | None = None
    """The storage for snapshots of ledgers; None = Flink's state."""
    most_rounds: int | None = None
    """On Beam's in-process runner: after so many rounds the pipeline ends. None = Flink, without end."""
    states: RouterStates | None = None
    """The place where routers keep their states if the runner keeps none."""
    factory: KeeperFactory = field(default_factory=LedgerKeeperFactory)
    """Makes the keepers of the ledgers; benchmarks replace it by one that only counts."""


class Stream(beam.PTransform[Any, Any]):
    """From topics to topics, without end.

    Flink finds the state of a stage by the label of the stage before it: a changed label loses the state of running
    jobs (docs/decisions/flink.md).
    """

    def __init__(self, config: StreamConfig) -> None:
        """Read where the topics begin, for a job that does not continue from a savepoint."""
        super().__init__()
        self._config = config
        self._names = names(config.prefix)
        connection = config.connection
        self._events = WatchedTopic.of(connection, self._names.crawl_events, most_records=_MOST_EVENTS)
        self._policies = WatchedTopic.of(connection, self._names.policies, may_grow=False)
        self._logs = WatchedTopic.of(connection, config.ledger_topic, may_grow=False, most_records=_MOST_ENTRIES)

    @property
    def run(self) -> str:
        """The run of what its processes keep. Ledgers of an older topic of the same name are others."""
        return f"{self._config.run} {self._logs.partitions[0].topic_id}"

    def expand(self, pbegin: Any) -> Any:
        """Add three stages that write the logs, and one that reads them."""
        config = self._config
        par_do: Any = beam.ParDo  # Beam does not type it
        log, run, states = self._logs.partitions[0], self.run, config.states
        send = PublishMessages(config.connection, all_or_none=True, run=run, on_noted=states.write if states else None)
        stored = StoredOrigin(config.connection, config.ledger_topic, config.snapshots)
        notes = StoredNotes(config.connection, self._names.policies)
        routing = RouterConfig(config.connection, config.ledger_topic, self._names.rejects, stored, notes, run, states)
        topics = [topic.name for topic in (self._events, self._policies, self._logs)]
        rounds = config.most_rounds
        timer = pbegin | "StartPolls" >> (PollTimer(config.slots) if rounds is None else RoundTimer(run, rounds))
        ends = timer | "FindEnds" >> par_do(FindEnds(TopicEnds(config.connection, topics)))

        event_polls = ends | "PollEvents" >> PollPartitions(self._events)
        entries = event_polls | "RouteEvents" >> par_do(RouteEvents(routing, self._events))
        sent_entries = entries | "SendEntries" >> send

        policy_polls = ends | "PollPolicies" >> PollPartitions(self._policies)
        policies = policy_polls | "RoutePolicies" >> par_do(RoutePolicies(routing, self._policies))
        sent_policies = policies | "SendPolicies" >> send

        poll_clock = par_do(PollClock(config.ledger_topic, config.tick_seconds)).with_output_types(CLOCK_HINT)
        clock_polls = ends | "PollClock" >> poll_clock
        ticks = clock_polls | "WriteTicks" >> par_do(WriteTicks(config.ledger_topic, config.shards))
        sent_ticks = ticks | "SendTicks" >> send

        log_polls = ends | "PollLogs" >> PollPartitions(self._logs)
        check = LogCheck(config.connection, config.ledger_topic)
        store = None if config.snapshots is None else config.snapshots.of_logs(log.topic, log.topic_id)
        keep = KeepLogLedger(self._logs, config.factory, run, config.least_log_mb, check, store)
        outputs = log_polls | "KeepLedger" >> par_do(keep).with_output_types(Output)
        to = Destination(config.connection, config.prefix)
        _ = outputs | "SendOutputs" >> par_do(SendOutputs(to, config.ledger_topic, note_sent, run))
        return sent_entries, sent_policies, sent_ticks
