"""When topics are read: where they end, and polls of the partitions that have grown."""

from __future__ import annotations

import pickle
from itertools import pairwise
from threading import Event
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from kafka.admin import NewPartitions
from kafka.errors import KafkaConnectionError

from opicflow.connectors.flink.key_groups import SpreadKeys, number_of
from opicflow.connectors.kafka import partitions, polls
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import TopicEnds
from opicflow.connectors.kafka.polls import (
    NO_END,
    UNKNOWN_END,
    Ends,
    FindEnds,
    PollPartitions,
    PollTimer,
    SendPolls,
    WatchedTopic,
)
from opicflow.connectors.kafka.source import PartitionReader
from support.fake_topic import TOPIC, Cluster, Partition, Topics, filled, ranges_of, record, send


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the process, which is 1,000 seconds later on the clock of polls. It goes on by hand."""
    now = [0.0]
    monkeypatch.setattr(polls, "wall_seconds", lambda: 1000.0 + now[0])
    monkeypatch.setattr(polls.time, "monotonic", lambda: now[0])

    def wait(self: Event, seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(polls.Event, "wait", wait)
    return now


class Polls:
    """The stage that finds where a topic ends and polls its partitions: what it polls at each step of the clock."""

    def __init__(self, cluster: Cluster, clock: list[float], may_grow: bool = True) -> None:
        self.clock = clock
        self.find = FindEnds(TopicEnds(cluster, [TOPIC]))  # type: ignore[arg-type]
        self.send = SendPolls(WatchedTopic(tuple(ranges_of(cluster)), may_grow), SpreadKeys())

    def after(self, seconds: float) -> list[tuple[int, int]]:
        """The partitions that are polled after a time, and up to which end."""
        self.clock[0] += seconds
        found = [one for ends in self.find.process((0, 0)) for one in self.send.process(ends)]
        assert {at for _, (at, _) in found} <= {1000.0 + self.clock[0]}
        return [(number_of(key), end) for key, (_, end) in found]


def test_partitions_are_polled_when_they_have_grown_up_to_where_they_have_grown(clock: list[float]) -> None:
    cluster = filled([0.0] * 3, [0.0], [])
    of = Polls(cluster, clock)
    assert of.after(0.2) == [(0, 3), (1, 1), (2, 0)], "at first: what was read is not known"
    assert of.after(0.2) == []
    cluster.partitions[2].end = 7
    assert of.after(0.2) == [(2, 7)]
    assert of.after(0.2) == []
    cluster.partitions[0].end, cluster.partitions[1].end = 4, 2
    assert of.after(0.2) == [(0, 4), (1, 2)]


def times_of_all(of: Polls, seconds: int) -> list[float]:
    """The times at which all partitions are polled."""
    times = []
    for _ in range(5 * seconds):
        if len(of.after(0.2)) == len(of.find._ends._partitions[TOPIC]):
            times.append(round(of.clock[0], 1))
    return times


def test_all_are_polled_each_second_while_anything_is_written_and_for_as_long_again(clock: list[float]) -> None:
    cluster = filled([0.0] * 3, [0.0], [])
    of = Polls(cluster, clock)
    started = times_of_all(of, 120)
    assert all(0.8 < later - at < 1.3 for at, later in pairwise(started) if later < 60), (
        "what was read is not known yet"
    )
    assert all(3.9 < later - at < 4.3 for at, later in pairwise(started) if at > 61), "nothing happens"
    for _ in range(100):
        cluster.partitions[1].end += 1
        times_of_all(of, 1)
    wrote_until = clock[0]
    after = times_of_all(of, 150)
    assert all(later - at < 1.3 for at, later in pairwise(after) if later < wrote_until + 98)
    assert all(later - at > 3.9 for at, later in pairwise(after) if at > wrote_until + 102)


def test_ticks_of_quiet_logs_keep_nothing_busy(clock: list[float]) -> None:
    cluster = filled([], [])
    of = Polls(cluster, clock)
    times_of_all(of, 100)
    polled = []
    for _ in range(10):
        cluster.partitions[0].end += 1
        polled += times_of_all(of, 30)
    assert len(polled) < 80


def test_all_partitions_are_polled_while_it_is_not_known_where_they_end(clock: list[float]) -> None:
    cluster = filled([0.0] * 3, [0.0])
    of = Polls(cluster, clock)
    assert of.after(0.2) == [(0, 3), (1, 1)] and of.after(0.2) == []

    def away(**_: Any) -> Any:
        raise KafkaConnectionError

    of.find.teardown()  # it connects again
    back, cluster.consumer = cluster.consumer, away  # type: ignore[method-assign]
    unknown = [(0, UNKNOWN_END), (1, UNKNOWN_END)]
    assert of.after(0.2) == unknown and of.after(0.2) == unknown
    cluster.consumer = back  # type: ignore[method-assign]
    cluster.partitions[1].end = 5
    assert of.after(0.2) == [(1, 5)], "it came meanwhile"


def test_ends_are_found_at_even_intervals(clock: list[float]) -> None:
    of, times = Polls(filled([0.0]), clock), []
    for together in range(10):
        clock[0] = max(clock[0], 0.8 * together)
        for _ in range(4):
            times += [ends.at for ends in of.find.process((0, 0))]
    assert len(times) == 40
    assert all(0.15 < later - at < 0.33 for at, later in pairwise(times))


def test_elements_that_queued_up_for_long_are_dropped(clock: list[float]) -> None:
    of = Polls(filled([0.0]), clock)
    assert sum(len(list(of.find.process((0, 0)))) for _ in range(600)) == 9
    assert clock[0] < 2.0
    clock[0] += 0.2
    assert len(list(of.find.process((0, 0)))) == 1


def test_a_partition_that_was_added_is_polled(clock: list[float]) -> None:
    cluster = filled([0.0], [0.0])
    of = Polls(cluster, clock)
    assert of.after(0.2) == [(0, 1), (1, 1)]
    cluster.partitions[2] = Partition([record(2, 0), record(2, 1)], 0, 2)
    assert of.after(0.2) == [], "partitions are counted once a minute"
    assert (2, 2) in [one for _ in range(310) for one in of.after(0.2)]


def test_a_topic_that_must_not_grow_is_refused_by_name(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_COUNT_SECONDS", -1.0)
    cluster = filled([0.0])
    of = Polls(cluster, clock, may_grow=False)
    assert of.after(0.2) == [(0, 1)]
    cluster.partitions[1] = Partition([])
    with pytest.raises(KafkaRefused, match=r"^events: the topic grew from 1 to 2 partitions"):
        of.after(0.2)


def test_a_topic_that_was_replaced_by_a_smaller_one_is_polled() -> None:
    cluster = filled([0.0], [0.0])
    send_polls = SendPolls(WatchedTopic(tuple(ranges_of(cluster))), SpreadKeys())
    for ends, expected in (([1, 1], [0, 1]), ([1], []), ([0], [0]), ([0, 1], [1])):
        found = send_polls.process(Ends(1.0, {TOPIC: ends}, False))
        assert [number_of(key) for key, _ in found] == expected, ends


def test_the_timers_of_the_slots_do_not_go_off_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(polls.Event, "wait", lambda self, seconds: waits.append(seconds))
    for _ in range(20):
        once = polls._WaitOnce(800)
        assert [list(once.process(b"")) for _ in range(3)] == [[(0, 0)]] * 3
    first = waits[::3]
    assert len(set(first)) > 10 and min(first) >= 0 and max(first) <= 0.8
    assert sum(waits) == sum(first), "an element waits once"


# -- on a broker


def test_a_watched_topic_is_an_unbounded_source_and_can_be_pickled(topics: Topics) -> None:
    topic = topics.make("watched", 2)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    watched = WatchedTopic.of(topics.connection, topic)
    ends = pipeline | PollTimer(1) | beam.ParDo(FindEnds(TopicEnds(topics.connection, [topic])))
    assert not (ends | PollPartitions(watched)).is_bounded
    again = pickle.loads(pickle.dumps(PartitionReader(watched)))
    assert isinstance(again, PartitionReader) and [one.end for one in watched.partitions] == [NO_END] * 2


def test_the_ends_of_topics_follow_what_is_sent_and_partitions_that_are_added(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_COUNT_SECONDS", -1.0)
    names = [topics.make("first", 1), topics.make("second", 2)]
    ends = TopicEnds(topics.connection, names)
    assert ends() == {names[0]: [0], names[1]: [0, 0]}
    send(topics.connection, names[1], {1: [record(1, offset) for offset in range(7)]})
    assert ends() == {names[0]: [0], names[1]: [0, 7]}
    topics.admin.create_partitions({names[0]: NewPartitions(2)})
    topics.admin.wait_for_topics([names[0]])
    assert any(ends() == {names[0]: [0, 0], names[1]: [0, 7]} for _ in range(20))
    ends.close()
    assert ends() is not None, "it connects again"
    ends.close()


def test_where_a_topic_ends_is_not_known_without_it_and_without_a_cluster(topics: Topics) -> None:
    assert TopicEnds(topics.connection, ["there is none"])() is None
    assert TopicEnds(Connection("127.0.0.1:1"), ["events"])() is None
