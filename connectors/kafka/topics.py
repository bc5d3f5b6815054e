"""The topics of opicflow: their settings, their creation, and the check of existing topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES
from opicflow.schemas.errors import in_one_line

SHARDS = 8
RESULT_PARTITIONS = 8
EVENT_PARTITIONS = 6
MOST_REPLICAS = 3

_FOR_EVER = -1
_ALL_TIMES = (1 << 63) - 1
_DAY_MS = 24 * 3600 * 1000
_LEAST_LOG_MS = 2 * _DAY_MS
"""Snapshots are six hours old, or older while the storage is away."""
_BROKERS_BYTES = (1 << 20) + 12  # the default of brokers

_WHOLE_EVENT_BYTES = MOST_EVENT_BYTES + (1 << 20)
"""The largest event with its key, headers and framing, or a reject that contains one and its source."""
_HOSTED_EVENT_BYTES, _HOSTED_BYTES = 7 << 20, 8 << 20
"""The same in hosted clusters, which take records of 8 MiB at most: a reject must hold any event."""
_OF_HOSTED = ("cleanup.policy", "max.message.bytes", "message.timestamp.type", "retention.ms", "retention.bytes")
"""The settings that hosted clusters let their users choose."""


_FORBIDS_SETTINGS = (errors.PolicyViolationError.errno, errors.InvalidConfigurationError.errno)


class Names(NamedTuple):
    """The names of the topics."""

    crawl_events: str = "crawl-events"
    page_ledger: str = "page-ledger"
    importance: str = "importance"
    site_importance: str = "site-importance"
    refresh_schedule: str = "refresh-schedule"
    crawl_orders: str = "crawl-orders"
    page_changes: str = "page-changes"
    policies: str = "policies"
    rejects: str = "rejects"
    audit: str = "audit"


def names(prefix: str = "") -> Names:
    """Return the names of the topics, each with a prefix."""
    return Names(*(prefix + name for name in Names()))


def with_prefix(prefix: str, topic: str) -> str:
    """Return the name of a topic that is given with or without the prefix."""
    return topic if topic.startswith(prefix) else prefix + topic


@dataclass(frozen=True)
class TopicSpec:
    """How a topic should be. `as_many`: it must have exactly this number of partitions."""

    name: str
    partitions: int
    policy: str
    times: str
    retention_ms: int = _FOR_EVER
    least_retention_ms: int | None = None
    """How long the records of a log that may be trimmed must stay. None: for `retention_ms`."""
    most_bytes: int = _BROKERS_BYTES
    as_many: bool = False
    hosted: bool = False
    """In a cluster whose operator chooses all settings but `_OF_HOSTED`."""

    @property
    def kept_for_ever(self) -> bool:
        """Whether records stay until the topic is deleted."""
        return self.policy == "delete" and self.retention_ms == _FOR_EVER and self.least_retention_ms is None

    def settings(self, replication: int) -> dict[str, str]:
        """Return the settings for a new topic. They do not depend on the defaults of brokers."""
        settings: dict[str, str | int] = {
            "cleanup.policy": self.policy,
            "compression.type": "producer",
            "max.message.bytes": self.most_bytes,
            "message.timestamp.type": self.times,
            "min.insync.replicas": 2 if replication >= MOST_REPLICAS else 1,
            "unclean.leader.election.enable": "false",
        }
        if self.policy == "compact":
            settings["max.compaction.lag.ms"] = _DAY_MS
            settings["delete.retention.ms"] = 7 * _DAY_MS
        else:
            settings["retention.ms"] = self.retention_ms
            settings["retention.bytes"] = _FOR_EVER
        if self.times == "CreateTime":
            settings["message.timestamp.after.max.ms"] = _ALL_TIMES
            settings["message.timestamp.before.max.ms"] = _ALL_TIMES
        if self.hosted:
            settings = {name: settings[name] for name in _OF_HOSTED if name in settings}
        return {name: str(value) for name, value in settings.items()}


def specs(
    prefix: str = "",
    shards: int | None = None,
    result_partitions: int = RESULT_PARTITIONS,
    event_partitions: int = EVENT_PARTITIONS,
    has_snapshots: bool = False,
    hosted: bool = False,
    ledger: str | None = None,
) -> tuple[TopicSpec, ...]:
    """Return all topics. With `shards`, page-ledger must have exactly this number of partitions.

    `ledger`: the topic of the logs that takes the place of page-ledger.

    `has_snapshots`: there are snapshots of ledgers in storage, and old records of page-ledger may be deleted.
    `hosted`: only what hosted clusters let their users choose.
    """
    name = names(prefix)
    events = _HOSTED_EVENT_BYTES if hosted else _WHOLE_EVENT_BYTES
    rejects = _HOSTED_BYTES if hosted else _WHOLE_EVENT_BYTES
    found = (
        TopicSpec(name.crawl_events, event_partitions, "delete", "CreateTime", most_bytes=events),
        TopicSpec(
            ledger or name.page_ledger,
            shards or SHARDS,
            "delete",
            "LogAppendTime",
            most_bytes=8 << 20,
            as_many=shards is not None,
            least_retention_ms=_LEAST_LOG_MS if has_snapshots else None,
        ),
        TopicSpec(name.importance, result_partitions, "compact", "CreateTime"),
        TopicSpec(name.site_importance, result_partitions, "compact", "CreateTime"),
        TopicSpec(name.refresh_schedule, result_partitions, "compact", "CreateTime"),
        TopicSpec(name.crawl_orders, result_partitions, "delete", "LogAppendTime", retention_ms=7 * _DAY_MS),
        TopicSpec(name.page_changes, result_partitions, "delete", "LogAppendTime", retention_ms=7 * _DAY_MS),
        TopicSpec(name.policies, 1, "delete", "CreateTime", as_many=True),
        TopicSpec(name.rejects, 3, "delete", "LogAppendTime", retention_ms=365 * _DAY_MS, most_bytes=rejects),
        TopicSpec(name.audit, 1, "delete", "LogAppendTime", retention_ms=365 * _DAY_MS),
    )
    return tuple(replace(spec, hosted=hosted) for spec in found)


@dataclass(frozen=True)
class Described:
    """An existing topic. `replication` is that of the partition with the fewest replicas."""

    topic_id: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """A property of a topic that loses data or prevents its use. `advice` is a command, or what to do."""

    topic: str
    setting: str
    value: str
    should: str
    why: str
    advice: str

    def __str__(self) -> str:
        """Format the finding as one line."""
        should = f", should be {self.should}" if self.should else ""
        return f"{self.topic}: {self.setting} is {self.value}{should}: {self.why}: {self.advice}"


# -- findings ----------------------------------------------------------------------------------------------------------


def findings(described: Described | None, spec: TopicSpec, brokers: int) -> list[Finding]:
    """Compare a topic (None = missing) with its specification, on a cluster of so many brokers. Stricter is fine."""
    if described is None:
        return [
            Finding(
                spec.name,
                "topic",
                "missing",
                "",
                "nothing can be written or read",
                "create it: opicflow topics create, with the same --prefix and --ledger",
            )
        ]
    wrong = [*_of_layout(described, spec, brokers), *_of_cleaning(described, spec), *_of_records(described, spec)]
    return [
        Finding(spec.name, one.setting, one.value, one.should, one.why, one.advice or _alter(spec.name, one))
        for one in wrong
    ]


class _Wrong(NamedTuple):
    setting: str
    value: str
    should: str
    why: str
    advice: str = ""


def _alter(topic: str, wrong: _Wrong) -> str:
    return (
        f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {wrong.setting}={wrong.should}"
    )


def _of_layout(topic: Described, spec: TopicSpec, brokers: int) -> Iterator[_Wrong]:
    if spec.as_many and topic.partitions != spec.partitions:
        yield _Wrong(
            "partitions",
            str(topic.partitions),
            str(spec.partitions),
            "records are assigned by their number and order",
            "their number cannot be changed later: delete the topic if it is empty, or use another --prefix",
        )
    replicas = min(MOST_REPLICAS, brokers)
    in_step = _number(topic, "min.insync.replicas", 1)
    if topic.replication == 1 and replicas == MOST_REPLICAS:
        yield _Wrong(
            "replication",
            "1",
            str(replicas),
            "the records of a broker are lost with its disk",
            "kafka-reassign-partitions with more replicas",
        )
    elif topic.replication > 1 and in_step < 2 and replicas == MOST_REPLICAS:
        yield _Wrong(
            "min.insync.replicas", str(in_step), "2", "records that one broker alone acknowledged are lost with it"
        )
    if in_step > topic.replication:
        yield _Wrong(
            "min.insync.replicas", str(in_step), str(max(1, topic.replication - 1)), "nothing can ever be written"
        )
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield _Wrong(
            "unclean.leader.election.enable",
            "true",
            "false",
            "a replica that lags may become leader, and the records it lacks are lost",
        )


def _of_cleaning(topic: Described, spec: TopicSpec) -> Iterator[_Wrong]:
    policy = topic.settings.get("cleanup.policy", "delete")
    policies = {one.strip() for one in policy.split(",")}
    limits = [
        (name, topic.settings[name])
        for name in ("retention.ms", "retention.bytes")
        if _number(topic, name, _FOR_EVER) != _FOR_EVER
    ]
    if spec.policy == "compact":
        if "compact" not in policies or ("delete" in policies and limits):
            why = "the newest record of a page is lost when it is old"
            yield _Wrong("cleanup.policy", policy, "compact", why)
        elif not spec.hosted and _number(topic, "delete.retention.ms", 0) < 7 * _DAY_MS:
            yield _Wrong(
                "delete.retention.ms",
                topic.settings.get("delete.retention.ms", "unknown"),
                str(7 * _DAY_MS),
                "a consumer that was away for longer misses that a page was removed",
            )
        if not spec.hosted and "compact" in policies and _number(topic, "max.compaction.lag.ms", _ALL_TIMES) > _DAY_MS:
            yield _Wrong(
                "max.compaction.lag.ms",
                topic.settings.get("max.compaction.lag.ms", "unknown"),
                str(_DAY_MS),
                "a page that was removed may stay readable without limit",
            )
        return
    if "compact" in policies:
        why = "older records of the same key are lost, and records without a key are refused"
        yield _Wrong("cleanup.policy", policy, "delete", why)
    if spec.kept_for_ever and ("delete" in policies or not policies):
        for name, value in limits:
            why = "older records are deleted, and nothing can be computed from them again"
            if name == "retention.ms" and spec.times == "CreateTime":
                why = "records have the times of their events, so an old log is deleted as soon as it is published"
            yield _Wrong(name, value, str(_FOR_EVER), why)
    if spec.least_retention_ms is not None and ("delete" in policies or not policies):
        for name, value in limits:
            if name != "retention.ms" or int(value) < spec.least_retention_ms:
                should = str(_FOR_EVER if name != "retention.ms" else spec.least_retention_ms)
                why = "records that no snapshot has yet may be deleted: delete old ones with opicflow stream trim"
                yield _Wrong(name, value, should, why)


def _of_records(topic: Described, spec: TopicSpec) -> Iterator[_Wrong]:
    for name in ("max.message.bytes", "segment.bytes"):
        if _number(topic, name, spec.most_bytes) < spec.most_bytes:
            yield _Wrong(name, topic.settings[name], str(spec.most_bytes), "the largest records are refused")
    times = topic.settings.get("message.timestamp.type", "CreateTime")
    if times != spec.times:
        why = (
            "records lose the times of their events"
            if spec.times == "CreateTime"
            else "retention and ticks follow the clocks of producers"
        )
        yield _Wrong("message.timestamp.type", times, spec.times, why)
    elif times == "CreateTime":
        for name, which in (("after", "in the future"), ("before", "long past")):
            setting = f"message.timestamp.{name}.max.ms"
            is_its_own = (
                spec.hosted and name == "after"
            )  # its operator may refuse the future, and whoever sends it sees that
            if not is_its_own and _number(topic, setting, _ALL_TIMES) < _ALL_TIMES:
                why = f"records with times {which} are refused"
                yield _Wrong(setting, topic.settings[setting], str(_ALL_TIMES), why)


def _number(topic: Described, name: str, missing: int) -> int:
    """Return a setting as a number. Old brokers do not have new settings."""
    value = topic.settings.get(name, "")
    return int(value) if value.lstrip("-").isdecimal() else missing


# -- on a cluster ------------------------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    """The number of brokers of a cluster, and the requested topics that exist."""

    brokers: int
    topics: Mapping[str, Described]


def read_cluster(connection: Connection, wanted: Sequence[str]) -> Cluster:
    """Read the topics with these names."""
    with connection.admin() as admin, connection.doing("reading topics"):
        return _read_cluster(connection, admin, wanted)


class Made(NamedTuple):
    """The names of the topics that were created, and the cluster after that."""

    new: frozenset[str]
    cluster: Cluster


def make(connection: Connection, wanted: Sequence[TopicSpec], replication: int | None = None) -> Made:
    """Create the topics that are missing; existing topics are not changed."""
    with connection.admin() as admin, connection.doing("creating topics"):
        names_ = [spec.name for spec in wanted]
        before = _read_cluster(connection, admin, names_)
        missing = [spec for spec in wanted if spec.name not in before.topics]
        replicas = replication or min(MOST_REPLICAS, before.brokers)
        if replicas > before.brokers:
            raise KafkaRefused(
                f"--replication {replicas}: the brokers of the cluster are {before.brokers}: give a smaller number"
            )
        if not missing:
            return Made(frozenset(), before)
        answer = admin.create_topics(
            {
                spec.name: {
                    "num_partitions": spec.partitions,
                    "replication_factor": replicas,
                    "configs": spec.settings(replicas),
                }
                for spec in missing
            },
            raise_errors=False,
        )
        new = []
        for topic in answer["topics"]:
            if topic["error_code"] == 0:
                new.append(topic["name"])
            elif topic["error_code"] != errors.TopicAlreadyExistsError.errno:  # another client created it meanwhile
                problem = errors.for_code(topic["error_code"])(topic.get("error_message") or "")
                if topic["error_code"] in _FORBIDS_SETTINGS and not missing[0].hosted:
                    raise KafkaRefused(
                        f"{connection.brokers}: creating {topic['name']}: the cluster forbids one of its settings "
                        f"({in_one_line(problem)}): in a hosted cluster give --hosted"
                    )
                raise connection.refused(problem, f"creating {topic['name']}")
        admin.wait_for_topics([spec.name for spec in missing])
        return Made(frozenset(new), _read_cluster(connection, admin, names_))


def _read_cluster(connection: Connection, admin: KafkaAdminClient, wanted: Sequence[str]) -> Cluster:
    there = _metadata(connection, admin, wanted)
    settings: Mapping[str, Mapping[str, Any]] = {}
    if there:
        requested = [ConfigResource(ConfigResourceType.TOPIC, name) for name in there]
        settings = admin.describe_configs(requested, config_filter="all").get("topic", {})
    unreadable = [name for name in there if not settings.get(name)]  # kafka-python drops the error of the broker
    for name in _metadata(connection, admin, unreadable) if unreadable else ():
        raise KafkaRefused(f"{connection.brokers}: {name}: its settings cannot be read: allow DescribeConfigs on it")
    topics = {
        name: Described(
            str(metadata["topic_id"]),
            len(metadata["partitions"]),
            min(len(partition["replica_nodes"]) for partition in metadata["partitions"]),
            {setting: str(one["value"]) for setting, one in settings[name].items() if one["value"] is not None},
        )
        for name, metadata in there.items()
        if name not in unreadable  # deleted meanwhile
    }
    return Cluster(len(admin.describe_cluster()["brokers"]), topics)


def _metadata(connection: Connection, admin: KafkaAdminClient, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of the topics that exist."""
    found = {}
    for metadata in admin.describe_topics(list(wanted)):
        problem = errors.for_code(metadata["error_code"])
        if problem is errors.NoError:
            found[metadata["name"]] = metadata
        elif problem is not errors.UnknownTopicOrPartitionError:
            raise connection.refused(problem(), metadata["name"])
    return {name: found[name] for name in wanted if name in found}
