"""How a stream is read and shown, from topics in memory. From those of a real broker: test_live_stream.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.pipelines.serve import stream_source
from opicflow.pipelines.serve.stream_index import STREAMS
from opicflow.pipelines.serve.stream_source import StreamSource
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.records import to_avro
from serve.test_stream_index import NOON_MS, books, due, page, url
from support.memory_kafka import MemoryCluster, MemoryConnection
from support.waiting import wait_for


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    monkeypatch.setattr(stream_source, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(stream_source, "_SHOW_SECONDS", 0.0)
    monkeypatch.setattr(stream_source, "_QUIET_SHOW_SECONDS", 0.05)
    monkeypatch.setattr(stream_source, "_RETRY_SECONDS", 0.01)
    made = MemoryCluster(0, NOON_MS)
    for name in STREAMS:
        made.make(name, 1)
    return made


@pytest.fixture
def source(cluster: MemoryCluster) -> Iterator[StreamSource]:
    with closing(opened(cluster)) as one:
        yield one


def opened(cluster: MemoryCluster, keep: int = 100) -> StreamSource:
    connection = MemoryConnection(brokers="b:9092", cluster=cluster)
    return StreamSource(connection, "", keep, lambda: NOON_MS + 5_000, since_ms={})


def publish(cluster: MemoryCluster, topic: str, *records: Any) -> None:
    """Append records, and tombstones of the URLs that are given as bytes."""
    for one in records:
        key = one if isinstance(one, bytes) else getattr(one, "url", "key").encode()
        value = None if isinstance(one, bytes) else encode_single_object(type(one).__name__, to_avro(one))
        cluster.topics[topic].append(0, cluster.now_ms, value, key)


def first(source: StreamSource) -> list[str]:
    table = source.view().table
    return [table.url(row) for row in range(min(3, len(table)))]


def test_what_is_there_and_what_arrives_is_shown(cluster: MemoryCluster, source: StreamSource) -> None:
    assert source.view().light.state == "look" and not len(source.view().table)
    publish(cluster, "importance", *(page(n, 1 / (2 + n)) for n in range(50)))
    publish(cluster, "refresh-schedule", due(3, NOON_MS - 1))
    publish(cluster, "audit", books())
    wait_for("all is read", lambda: len(source.view().table) == 50 and source.view().light.state == "right", 20)
    assert first(source) == [url(0), url(1), url(2)] and source.view().overdue == 1
    publish(cluster, "importance", url(0).encode(), page(9, 0.9))
    wait_for("news are shown", lambda: first(source) == [url(9), url(1), url(2)], 20)
    wait_for("all is read", lambda: source.view().live.unread == 0, 20)


def test_brokers_that_go_away_are_reported_with_their_time_and_are_read_on(
    cluster: MemoryCluster, source: StreamSource
) -> None:
    publish(cluster, "importance", page(1, 0.5))
    wait_for("it is read", lambda: first(source) == [url(1)], 20)
    cluster.answers = False
    live: Any = wait_for("the broker is missed", lambda: source.view().live.problem and source.view().live, 20)
    publish(cluster, "importance", page(2, 0.9))  # before, a poll that has begun could still read it
    assert live.problem_ms == NOON_MS + 5_000 and first(source) == [url(1)]
    assert source.view().light.state == "look" and source.view().light.checks[0].name == "Brokers"
    cluster.answers = True
    wait_for("it is read on", lambda: first(source) == [url(2), url(1)] and not source.view().live.problem, 20)


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    cluster: MemoryCluster, source: StreamSource, is_longer: bool
) -> None:
    publish(cluster, "importance", *(page(n, 0.5) for n in range(10)))
    wait_for("it is read", lambda: len(source.view().table) == 10, 20)
    cluster.answers = not is_longer  # a longer topic is noticed only after its broker was away
    if is_longer:
        wait_for("the broker is missed", lambda: source.view().live.problem, 20)
    cluster.make("importance", 1)
    count = 20 if is_longer else 2
    publish(cluster, "importance", *(page(50 + n, 0.5 / (1 + n)) for n in range(count)))
    cluster.answers = True
    wait_for("it is read again", lambda: len(source.view().table) == count and url(50) in first(source), 20)
    assert first(source)[:2] == [url(50), url(51)]


def test_few_pages_are_kept_and_all_are_read_again_when_few_are_among_the_first(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "_READ_AGAIN_SECONDS", 0.0)
    publish(cluster, "importance", *(page(n, 1 / (2 + n)) for n in range(100)))
    with closing(opened(cluster, keep=20)) as source:
        wait_for("all is read", lambda: source.view().live.read_part == 1, 20)
        assert len(source.view().table) <= 25 and first(source)[0] == url(0)
        fallen = [page(n, 1e-6) for n in range(25)]
        log = cluster.topics["importance"].partitions[0].records
        publish(cluster, "importance", *fallen)
        log[:25] = [one._replace(value=None, key=b"none") for one in log[:25]]  # compacted
        wait_for("the next ones are found", lambda: first(source) == [url(25), url(26), url(27)], 20)


def test_a_page_that_is_not_kept_is_looked_for(cluster: MemoryCluster) -> None:
    publish(cluster, "importance", *(page(n, 1 / (2 + n)) for n in range(100)))
    with closing(opened(cluster, keep=20)) as source:
        wait_for("all is read", lambda: source.view().live.read_part == 1, 20)
        assert f"opicflow subscribe importance --brokers b:9092 --url {url(99)}" in source.look_for(url(99))
        assert "--url 'https://a.example/?a&b;c$(d)'" in source.look_for("https://a.example/?a&b;c$(d)")
        wait_for("it is looked for", lambda: not source._looked_for, 20)
        publish(cluster, "importance", page(99, 1e-9))
        wait_for("it is kept", lambda: source.view().table.row_of_url(url(99)) is not None, 20)


def test_topics_that_are_missing_are_named_and_without_importance_there_is_nothing_to_show(
    cluster: MemoryCluster,
) -> None:
    del cluster.topics["audit"], cluster.topics["rejects"]
    with closing(opened(cluster)) as source:
        assert "There is no topic rejects, audit." in source.view().live.kept  # type: ignore[union-attr]
    del cluster.topics["importance"]
    with pytest.raises(KafkaRefused, match="there is no topic importance: create it"):
        opened(cluster)


def test_a_message_that_cannot_be_read_is_counted(cluster: MemoryCluster, source: StreamSource) -> None:
    publish(cluster, "importance", page(1, 0.5))
    cluster.topics["importance"].append(0, NOON_MS, b"\xc3\x01 no", url(2).encode())
    wait_for("it is counted", lambda: "1 messages could not be read" in source.view().live.kept, 20)
    assert first(source) == [url(1)]
