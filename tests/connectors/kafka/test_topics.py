"""The topics: their creation, and the findings of `opicflow topics check`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import partitions_of_topic
from opicflow.connectors.kafka.properties import RegistryAccess
from opicflow.connectors.kafka.registry import SchemaRegistry
from opicflow.connectors.kafka.topics import (
    Described,
    Names,
    TopicSpec,
    findings,
    make,
    names,
    read_cluster,
    specs,
)
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES
from support.commands import command, output_of, refusal
from support.services import LocalKafka

DAY_MS = 24 * 3600 * 1000
SPECS = {spec.name: spec for spec in specs(shards=8)}


def described(spec: TopicSpec, replication: int = 3, **over: str) -> Described:
    """Return a topic as specified, except for some settings."""
    settings = {**spec.settings(replication), **{name.replace("_", "."): value for name, value in over.items()}}
    return Described("id", spec.partitions, replication, settings)


def named(found: Described | None, spec: TopicSpec, brokers: int = 3) -> list[str]:
    return [finding.setting for finding in findings(found, spec, brokers)]


# -- specifications ----------------------------------------------------------------------------------------------------


def test_names_begin_with_the_prefix() -> None:
    assert names("p-").crawl_events == "p-crawl-events"
    assert [spec.name for spec in specs("p-")] == list(names("p-"))
    assert list(SPECS) == list(Names())


@given(st.sampled_from(list(SPECS)), st.integers(1, 9))
def test_a_topic_as_specified_has_no_findings(name: str, brokers: int) -> None:
    spec = SPECS[name]
    assert named(described(spec, min(3, brokers)), spec, brokers) == []


def test_limits_of_topics_allow_every_record_of_opicflow() -> None:
    assert SPECS["crawl-events"].most_bytes > MOST_EVENT_BYTES
    assert SPECS["rejects"].most_bytes > max(MOST_EVENT_BYTES, MOST_REJECTED_BYTES)


# -- settings that lose data -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crawl-events", "page-ledger", "policies"])
@pytest.mark.parametrize("limit", ["retention_ms", "retention_bytes"])
def test_topics_that_are_kept_for_ever_have_no_limit(name: str, limit: str) -> None:
    found = findings(described(SPECS[name], **{limit: "604800000"}), SPECS[name], 3)
    assert [(one.setting, one.value, one.should) for one in found] == [(limit.replace("_", "."), "604800000", "-1")]


@pytest.mark.parametrize(
    ("limit", "value", "is_allowed"),
    [
        ("retention_ms", 2 * DAY_MS, True),
        ("retention_ms", 2 * DAY_MS - 1, False),
        ("retention_bytes", 1 << 40, False),
    ],
)
def test_with_snapshots_old_records_of_the_logs_may_be_deleted(limit: str, value: int, is_allowed: bool) -> None:
    spec = next(one for one in specs(shards=8, has_snapshots=True) if one.name == "page-ledger")
    assert spec.settings(3) == SPECS["page-ledger"].settings(3)
    found = findings(described(SPECS["page-ledger"], **{limit: str(value)}), spec, 3)
    assert [one.setting for one in found] == ([] if is_allowed else [limit.replace("_", ".")])


def test_the_finding_of_finite_retention_explains_that_old_logs_are_deleted_at_once() -> None:
    (found,) = findings(described(SPECS["crawl-events"], retention_ms=str(365 * DAY_MS)), SPECS["crawl-events"], 3)
    assert "an old log is deleted as soon as it is published" in found.why
    assert found.advice.endswith("--entity-name crawl-events --add-config retention.ms=-1")


@pytest.mark.parametrize(
    ("name", "over", "setting"),
    [
        ("importance", {"cleanup_policy": "delete"}, "cleanup.policy"),
        ("importance", {"cleanup_policy": "compact,delete", "retention_ms": "1000"}, "cleanup.policy"),
        ("importance", {"delete_retention_ms": str(DAY_MS)}, "delete.retention.ms"),
        ("refresh-schedule", {"max_compaction_lag_ms": str((1 << 63) - 1)}, "max.compaction.lag.ms"),
        ("refresh-schedule", {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type"),
        ("policies", {"cleanup_policy": "compact"}, "cleanup.policy"),
        ("policies", {"cleanup_policy": "compact,delete"}, "cleanup.policy"),
        ("crawl-events", {"cleanup_policy": "compact"}, "cleanup.policy"),
        ("crawl-events", {"message_timestamp_type": "LogAppendTime"}, "message.timestamp.type"),
        ("crawl-events", {"message_timestamp_after_max_ms": "3600000"}, "message.timestamp.after.max.ms"),
        ("crawl-events", {"message_timestamp_before_max_ms": "3600000"}, "message.timestamp.before.max.ms"),
        ("crawl-events", {"max_message_bytes": "1048588"}, "max.message.bytes"),
        ("crawl-events", {"segment_bytes": "1048588"}, "segment.bytes"),
        ("page-ledger", {"message_timestamp_type": "CreateTime"}, "message.timestamp.type"),
        ("page-ledger", {"max_message_bytes": "1048588"}, "max.message.bytes"),
        ("rejects", {"max_message_bytes": "1048588"}, "max.message.bytes"),
        ("rejects", {"message_timestamp_type": "CreateTime"}, "message.timestamp.type"),
        ("audit", {"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable"),
        ("audit", {"min_insync_replicas": "1"}, "min.insync.replicas"),
        ("audit", {"min_insync_replicas": "4"}, "min.insync.replicas"),
    ],
)
def test_a_setting_that_would_lose_data_is_named(name: str, over: Mapping[str, str], setting: str) -> None:
    (found,) = findings(described(SPECS[name], **over), SPECS[name], 3)
    assert (found.topic, found.setting, found.value) == (name, setting, over[setting.replace(".", "_")])
    assert found.should not in ("", found.value)
    assert str(found).startswith(f"{name}: {setting} is {found.value}, should be {found.should}: ")
    assert "\n" not in str(found)


@given(st.sampled_from(list(SPECS)), st.data())
def test_a_setting_as_advised_is_no_longer_a_finding(name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    settings = {
        setting: data.draw(st.sampled_from([value, *others]))
        for setting, value in spec.settings(3).items()
        for others in [
            {
                "cleanup.policy": ["delete", "compact", "compact,delete"],
                "message.timestamp.type": ["CreateTime", "LogAppendTime"],
                "unclean.leader.election.enable": ["true"],
                "compression.type": ["zstd"],
            }.get(setting, ["0", "1", "5", str(1 << 40), str((1 << 63) - 1)])
        ]
    }
    for _ in range(3):  # a corrected setting may reveal another finding
        for found in findings(Described("id", spec.partitions, 3, settings), spec, 3):
            settings[found.setting] = found.should
    assert named(Described("id", spec.partitions, 3, settings), spec) == []


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("importance", {"cleanup_policy": "compact,delete", "retention_ms": "-1", "retention_bytes": "-1"}),
        ("importance", {"delete_retention_ms": str(30 * DAY_MS), "max_compaction_lag_ms": "1000"}),
        ("crawl-events", {"max_message_bytes": str(1 << 28), "min_insync_replicas": "3"}),
        ("crawl-events", {"compression_type": "zstd"}),
        ("crawl-orders", {"retention_ms": "3600000"}),
        ("rejects", {"retention_bytes": str(1 << 40)}),
    ],
)
def test_stricter_or_optional_settings_are_no_findings(name: str, over: Mapping[str, str]) -> None:
    assert named(described(SPECS[name], **over), SPECS[name]) == []


def test_replicas_are_required_if_there_are_enough_brokers() -> None:
    spec = SPECS["crawl-events"]
    alone = described(spec, 1)
    assert named(alone, spec, 1) == named(alone, spec, 2) == []
    assert named(alone, spec, 3) == ["replication"]
    assert named(described(spec, 2, min_insync_replicas="1"), spec, 3) == ["min.insync.replicas"]
    assert named(described(spec, 2, min_insync_replicas="2"), spec, 3) == []
    assert named(described(spec, 1, min_insync_replicas="2"), spec, 1) == ["min.insync.replicas"]


def test_a_missing_topic_or_another_number_of_partitions_is_a_finding() -> None:
    assert named(None, SPECS["audit"]) == ["topic"]
    for name in ("policies", "page-ledger"):
        other = Described("id", 5, 3, SPECS[name].settings(3))
        assert named(other, SPECS[name]) == ["partitions"]
    any_partitions = next(spec for spec in specs() if spec.name == "page-ledger")
    assert named(Described("id", 5, 3, any_partitions.settings(3)), any_partitions) == []


# -- on the broker -----------------------------------------------------------------------------------------------------


def until(condition: Callable[[], bool]) -> None:
    """Wait until a broker has the changes of its controller."""
    pause = Event()
    for _ in range(200):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("the broker never came to know")


def test_topics_are_created_once_and_have_no_findings(kafka: LocalKafka, topic_prefix: str) -> None:
    cluster = ["--brokers", f"kafka://{kafka.brokers}", "--prefix", topic_prefix]
    code, out, err = command("topics", "check", *cluster)
    assert code == 2
    assert out.count("is missing") == len(out.splitlines()) == len(Names())
    assert len(err.splitlines()) == 1
    created = output_of("topics", "create", *cluster, "--shards", 3, "--event-partitions", 2)
    assert created.count("created") == len(Names())
    ledger, events = names(topic_prefix).page_ledger, names(topic_prefix).crawl_events
    connection = Connection(kafka.brokers)
    first = partitions_of_topic(connection, ledger)
    assert (first[1], partitions_of_topic(connection, events)[1]) == (3, 2)
    registering = ("--registry", kafka.registry)
    existed = output_of("topics", "create", *cluster, *registering)
    assert existed.count("existed") == len(Names())
    assert existed.endswith("\nthe schemas of 9 topics are in the registry\n")
    subjects = SchemaRegistry(RegistryAccess(kafka.registry)).subjects()
    assert {f"{name}-value" for name in names(topic_prefix) if name != ledger} <= set(subjects)
    assert partitions_of_topic(connection, ledger) == first
    assert output_of("topics", "check", *cluster) == "all 10 topics are as they should be\n"
    code, out, _ = command("topics", "check", *cluster, "--shards", 4, "--json")
    assert code == 2
    (found,) = json.loads(out)["findings"]
    assert (found["topic"], found["setting"], found["value"], found["should"]) == (ledger, "partitions", "3", "4")
    other = ("--ledger", f"{topic_prefix}page-ledger-6")
    for one in (other, ("--ledger", "page-ledger-6")):
        assert f"{topic_prefix}page-ledger-6: topic is missing" in command("topics", "check", *cluster, *one).out
    assert output_of("topics", "create", *cluster, *other, "--shards", 6).count("created") == 1
    assert output_of("topics", "check", *cluster, *other, "--shards", 6) == "all 10 topics are as they should be\n"
    with connection.admin() as admin:
        admin.delete_topics([ledger])
    (spec,) = (spec for spec in specs(topic_prefix) if spec.name == ledger)
    until(lambda: not read_cluster(connection, [ledger]).topics)
    made = make(connection, [spec])
    assert made.new == {ledger}
    assert partitions_of_topic(connection, ledger)[0] != first[0]


def test_each_changed_setting_of_a_topic_is_a_finding(kafka: LocalKafka, topic_prefix: str) -> None:
    connection = Connection(kafka.brokers)
    wanted = specs(topic_prefix)
    name = names(topic_prefix)
    make(connection, wanted)
    planted = {
        name.crawl_events: {"retention.ms": "604800000", "message.timestamp.after.max.ms": "3600000"},
        name.page_ledger: {"unclean.leader.election.enable": "true", "max.message.bytes": "1000000"},
        name.importance: {"cleanup.policy": "delete"},
        name.refresh_schedule: {"delete.retention.ms": "1000", "message.timestamp.type": "LogAppendTime"},
        name.policies: {"cleanup.policy": "compact", "min.insync.replicas": "2"},
    }
    with connection.admin() as admin:
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, settings) for topic, settings in planted.items()]
        )

    def found() -> set[tuple[str, str, str]]:
        cluster = read_cluster(connection, [spec.name for spec in wanted])
        all_ = [findings(cluster.topics[spec.name], spec, cluster.brokers) for spec in wanted]
        return {(one.topic, one.setting, one.value) for one in chain(*all_)}

    expected = {(topic, *setting) for topic, settings in planted.items() for setting in settings.items()}
    until(lambda: len(found()) >= len(expected))
    assert found() == expected


OF_HOSTED = {"cleanup.policy", "max.message.bytes", "message.timestamp.type", "retention.ms", "retention.bytes"}
"""Settings of ours that users may choose on Amazon MSK Serverless and Confluent Cloud, by their documentation."""


def test_a_hosted_cluster_gets_the_settings_that_it_allows_and_no_others(
    kafka: LocalKafka, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KafkaAdminClient.create_topics

    def strict(admin: KafkaAdminClient, wanted: dict[str, Any], **more: Any) -> Any:
        """Do what a policy of the cluster does."""
        for name, one in wanted.items():
            others = sorted(set(one["configs"]) - OF_HOSTED)
            if others or int(one["configs"]["max.message.bytes"]) > 8 << 20:
                problem = f"Config property {others[:1]} cannot be set"
                return {"topics": [{"name": name, "error_code": 44, "error_message": problem}]}
        return create(admin, wanted, **more)

    monkeypatch.setattr(KafkaAdminClient, "create_topics", strict)
    cluster = ["--brokers", kafka.brokers, "--prefix", topic_prefix]
    assert "in a hosted cluster give --hosted" in refusal("topics", "create", *cluster)
    assert output_of("topics", "create", *cluster, "--hosted").count("created") == len(Names())
    assert output_of("topics", "check", *cluster, "--hosted") == "all 10 topics are as they should be\n"
    code, out, _ = command("topics", "check", *cluster)
    assert code == 2 and "crawl-events: max.message.bytes is 7340032, should be 34603008" in out


@pytest.mark.parametrize("spec", specs(hosted=True), ids=lambda spec: spec.name)
def test_in_a_hosted_cluster_what_loses_data_is_still_a_finding(spec: TopicSpec) -> None:
    assert set(spec.settings(3)) <= OF_HOSTED and named(described(spec, min_insync_replicas="2"), spec) == []
    if spec.kept_for_ever:
        assert named(described(spec, min_insync_replicas="2", retention_ms=str(DAY_MS)), spec) == ["retention.ms"]
    other = "LogAppendTime" if spec.times == "CreateTime" else "CreateTime"
    assert "message.timestamp.type" in named(described(spec, message_timestamp_type=other), spec)


def test_in_a_hosted_cluster_a_reject_can_hold_any_event() -> None:
    found = {spec.name: spec.most_bytes for spec in specs(hosted=True)}
    assert found["rejects"] >= found["crawl-events"] + (1 << 20) and max(found.values()) <= 8 << 20


def test_a_topic_that_cannot_be_created_is_refused(kafka: LocalKafka, topic_prefix: str) -> None:
    connection = Connection(kafka.brokers)
    with pytest.raises(KafkaRefused, match="--replication 2: the brokers of the cluster are 1"):
        make(connection, specs(topic_prefix), replication=2)
    with pytest.raises(KafkaRefused, match="not a valid topic name"):
        make(connection, specs("no good "))
    with pytest.raises(KafkaRefused, match=r"there is no topic .*opicflow topics create"):
        partitions_of_topic(connection, f"{topic_prefix}none")
    assert refusal("topics", "check").startswith("opicflow: no brokers: ")
