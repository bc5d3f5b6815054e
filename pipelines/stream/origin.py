"""The topics of a stream before it starts: whether they lose data, and the origin that every log begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, partitions_of_topic, record_at, resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.topics import Finding, TopicSpec, findings, names, read_cluster, specs
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.ledger.entries import LogEntry
from opicflow.pipelines.stages.log_settings import LogRefused, Origin, Placement
from opicflow.pipelines.stream.snapshot_reader import origin_of_shard
from opicflow.pipelines.stream.snapshot_store import Snapshots
from opicflow.schemas.columns import ColumnsRefused


def check_topics(
    connection: Connection,
    prefix: str,
    ledger_topic: str,
    shards: int | None,
    has_snapshots: bool = False,
    hosted: bool = False,
) -> list[Finding]:
    """Return the settings of topics that would lose data or falsify times: a stream does not start with any."""
    wanted = specs(prefix, shards, has_snapshots=has_snapshots, hosted=hosted, ledger=ledger_topic)
    cluster = read_cluster(connection, [spec.name for spec in wanted])
    return [finding for spec in wanted for finding in findings(cluster.topics.get(spec.name), spec, cluster.brokers)]


def ledger_spec(prefix: str, topic: str, shards: int, hosted: bool = False) -> TopicSpec:
    """Return the specification of a topic with the logs of so many shards."""
    return next(
        replace(one, name=topic)
        for one in specs(prefix, shards, hosted=hosted)
        if one.name == names(prefix).page_ledger
    )


def origin_of(connection: Connection, topic: str, snapshots: Snapshots | None = None) -> Origin | None:
    """Return the origin of the logs of a topic; None if no log has one.

    That of a log whose beginning was deleted is in its snapshots.
    """
    found = [_beginning(connection, topic, one, snapshots).origin for one in resolve(connection, topic)]
    origins = [origin for origin in found if origin is not None]
    if not origins:
        return None
    if any(origin != origins[0] for origin in origins):
        raise LogRefused(f"{topic}: its partitions begin with different settings: delete the topic and create it again")
    return origins[0]


def first_origin(
    connection: Connection, topic: str, logs: Sequence[PartitionRange], snapshots: Snapshots | None = None
) -> Origin:
    """Return the origin in the first log that has one. The others are not read: all have the same origin."""
    for log in logs:
        origin = _beginning(connection, topic, log, snapshots).origin
        if origin is not None:
            return origin
    raise _without_origin(topic)


def origin_at_start(log: PartitionRange) -> Origin | None:
    """Return the origin that a log begins with; None if it has none. Its beginning was not deleted."""
    return _beginning(log.connection, log.topic, log).origin


def _without_origin(topic: str) -> LogRefused:
    return LogRefused(f"{topic}: its logs have no settings: start the stream with opicflow stream")


@dataclass(frozen=True)
class StoredOrigin:
    """Reads the origin of a topic's logs where it is called, so that its key is not part of a job."""

    connection: Connection
    topic: str
    snapshots: Snapshots | None = None

    def __call__(self) -> Origin:
        """Read the origin."""
        origin = origin_of(self.connection, self.topic, self.snapshots)
        if origin is None:
            raise _without_origin(self.topic)
        return origin


def placement_of(connection: Connection, topic: str) -> Placement | None:
    """Return the placement that the logs of a topic, which are whole, were reserved for; None for logs without one."""
    found = [_beginning(connection, topic, one).placement for one in resolve(connection, topic)]
    if any(placement != found[0] for placement in found):
        raise LogRefused(f"{topic}: its partitions have different boundaries: delete the topic and create it again")
    return found[0] if found else None


def reserve_logs(connection: Connection, topic: str, placement: Placement) -> None:
    """Write a placement into every log of a topic, whose logs are all empty."""
    logs = resolve(connection, topic)
    if len(logs) != placement.ranges.count:
        raise KafkaRefused(f"{topic}: it has {len(logs)} partitions, not {placement.ranges.count}: give --shards")
    if any(log.end for log in logs):
        raise KafkaRefused(f"{topic}: its logs are not empty: boundaries are chosen before a stream begins")
    with Publisher(connection) as publisher:
        for log in logs:
            publisher.send(topic, None, placement.entry(), log.partition)
        publisher.flush()


def begin_logs(connection: Connection, topic: str, origin: Origin, snapshots: Snapshots | None = None) -> Origin:
    """Write the origin into every log of a topic without one. Returns the origin of the logs: an older one stays.

    Logs that were reserved for a placement keep it.
    """
    _, partitions = partitions_of_topic(connection, topic)
    if partitions != origin.shards:
        raise KafkaRefused(
            f"{topic}: it has {partitions} partitions, its ledgers {origin.shards} shards: give --shards {partitions}"
        )
    existing = origin_of(connection, topic, snapshots)
    if existing is None:
        reserved = placement_of(connection, topic)
        if reserved is not None:
            rules = replace(origin.rules, page_ids=reserved.page_ids)
            origin = replace(origin, rules=rules, ranges=reserved.ranges)
    with Publisher(connection) as publisher:
        for log in resolve(connection, topic):
            if _beginning(connection, topic, log, snapshots).origin is None:
                publisher.send(topic, None, (existing or origin).entry(), log.partition)
        publisher.flush()
    return existing or origin


class _Beginning(NamedTuple):
    placement: Placement | None
    origin: Origin | None


def _beginning(
    connection: Connection, topic: str, log: PartitionRange, snapshots: Snapshots | None = None
) -> _Beginning:
    """Read the first entries of a log: a placement, if it was reserved for one, and the origin."""
    if log.start > 0:
        if snapshots is None:
            raise LogRefused(
                f"{topic}, partition {log.partition}: offsets 0 to {log.start - 1} were deleted, with the settings of "
                "its ledger: name the folder of its snapshots with --snapshots, or rebuild into a new topic"
            )
        store = snapshots.of_logs(topic, log.topic_id)
        return _Beginning(None, origin_of_shard(store, log.partition, log.start))
    first = _entry_at(connection, topic, log, 0)
    placement = None if first is None else Placement.of(first)
    if placement is not None:
        first = _entry_at(connection, topic, log, 1)
    return _Beginning(placement, None if first is None else Origin.of(first))


def _entry_at(connection: Connection, topic: str, log: PartitionRange, offset: int) -> LogEntry | None:
    """Return an entry of a log; None at its end."""
    if offset >= log.end:
        return None
    value = record_at(connection, topic, log.partition, offset)
    try:
        return decode_entry(value or b"")
    except ColumnsRefused as problem:
        raise LogRefused(
            f"{topic}, partition {log.partition}: its first record is not a log entry ({problem}): name a new topic"
        ) from None
