"""The topics of a stream before it starts: whether they lose data, and the origin that every log begins with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, partitions_of_topic, record_at, resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.topics import Finding, TopicSpec, findings, names, read_cluster, specs
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.stream.keeper import LogRefused, Origin
from opicflow.schemas.columns import ColumnsRefused


def check_topics(connection: Connection, prefix: str, ledger_topic: str, shards: int | None) -> list[Finding]:
    """Return the settings of topics that would lose data or falsify times: a stream does not start with any."""
    wanted = [
        replace(spec, name=ledger_topic) if spec.name == names(prefix).page_ledger else spec
        for spec in specs(prefix, shards)
    ]
    cluster = read_cluster(connection, [spec.name for spec in wanted])
    return [finding for spec in wanted for finding in findings(cluster.topics.get(spec.name), spec, cluster.brokers)]


def ledger_spec(prefix: str, topic: str, shards: int) -> TopicSpec:
    """Return the specification of a topic with the logs of so many shards."""
    return next(replace(one, name=topic) for one in specs(prefix, shards) if one.name == names(prefix).page_ledger)


def origin_of(connection: Connection, topic: str) -> Origin | None:
    """Return the origin of the logs of a topic; None if all logs are empty."""
    found = [_first_entry(connection, topic, one) for one in resolve(connection, topic)]
    origins = [Origin.of(entry) for entry in found if entry is not None]
    if not origins:
        return None
    if any(origin != origins[0] for origin in origins):
        raise LogRefused(f"{topic}: its partitions begin with different settings: delete the topic and create it again")
    return origins[0]


def begin_logs(connection: Connection, topic: str, origin: Origin) -> Origin:
    """Write the origin into every empty log of a topic. Returns the origin of the logs, which may be an older one."""
    _, partitions = partitions_of_topic(connection, topic)
    if partitions != origin.shards:
        raise KafkaRefused(
            f"{topic}: it has {partitions} partitions, its ledgers {origin.shards} shards: give --shards {partitions}"
        )
    existing = origin_of(connection, topic)
    with Publisher(connection) as publisher:
        for log in resolve(connection, topic):
            if log.start == log.end:
                publisher.send(topic, None, (existing or origin).entry(), log.partition)
        publisher.flush()
    return existing or origin


def _first_entry(connection: Connection, topic: str, log: PartitionRange) -> Any:
    if log.start == log.end:
        return None
    if log.start > 0:
        raise LogRefused(
            f"{topic}, partition {log.partition}: offsets 0 to {log.start - 1} were deleted, with the settings of its "
            "ledger: continue from a savepoint, or rebuild into a new topic"
        )
    value = record_at(connection, topic, log.partition, log.start)
    try:
        return decode_entry(value or b"").entry
    except ColumnsRefused as problem:
        raise LogRefused(
            f"{topic}, partition {log.partition}: its first record is not a log entry ({problem}): name a new topic"
        ) from None
