"""A topic as the source of a pipeline: what it gives touches, and goes on exactly where a runner interrupts it."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.testing.util import assert_that
from apache_beam.utils.timestamp import Timestamp
from kafka.admin import NewPartitions
from kafka.errors import KafkaConnectionError

from opicflow.connectors.kafka import source as module
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.source import (
    NO_END,
    Beat,
    CallPartitions,
    Calls,
    FollowedTopic,
    Follower,
    MessageBatch,
    Offsets,
    OffsetTracker,
    Pulses,
    ReadPartitions,
    ReadTopic,
    Seldom,
)
from opicflow.schemas.framing import published_writer
from support.fake_topic import HOUR_MS, Cluster, Partition, Topics, filled, ranges_of, record, send, topics

__all__ = ["topics"]  # a fixture


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stretch is read some records at a time, and no consumer outlives a test."""
    monkeypatch.setattr(module, "_MOST_RECORDS", 5)
    monkeypatch.setattr(module, "_REST_SECONDS", 0.0)
    yield
    module._CONSUMERS.close()


class Turn:
    """One call of process(), as a runner makes it."""

    def __init__(self, input_range: PartitionRange, offsets: OffsetRange, watermark: Timestamp | None = None) -> None:
        self.offsets = offsets
        self.tracker = ThreadsafeRestrictionTracker(OffsetTracker(offsets))
        self.watermark = ManualWatermarkEstimator(watermark)
        self.found = ReadPartitions().process(input_range, self.watermark, RestrictionTrackerView(self.tracker))

    def finish(self) -> tuple[list[Any], OffsetRange | None]:
        """All that it gives, and what is left to be done."""
        given = list(self.found)
        deferred = self.tracker.deferred_status()
        self.tracker.check_done()
        return given, deferred[0] if deferred else None


def whole(input_range: PartitionRange) -> OffsetRange:
    return Offsets().initial_restriction(input_range)


def offsets_of(batches: list[MessageBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.messages.offsets.tolist()]


def read_all(input_range: PartitionRange, left: OffsetRange | None = None) -> list[MessageBatch]:
    """A stretch, or what is left of it, in as many turns as it takes."""
    left, found = left or whole(input_range), []
    while left is not None:
        given, left = Turn(input_range, left).finish()
        found += [one.value for one in given]
    return found


class Following:
    """A partition that is followed: every call is a new one."""

    def __init__(self, input_range: PartitionRange, added: int | None = None) -> None:
        self.partition = input_range.partition if added is None else added
        self.next = input_range.start if added is None else 0
        self.follower = Follower(FollowedTopic((input_range,)))

    def call(self, called_at: float = 1e12) -> list[MessageBatch]:
        found = list(self.follower.read((self.partition, called_at), lambda: self.next))
        self.next = found[-1].end if found else self.next
        return found


def endless(cluster: Cluster, start: int = 0) -> PartitionRange:
    return replace(ranges_of(cluster)[0], start=start, end=NO_END)


# -- by hand


def test_a_stretch_is_read_in_turns_whose_batches_touch() -> None:
    cluster = filled([0.0] * 400)
    cluster.partitions[0].end = 403  # behind the last record lie marks of transactions
    (input_range,) = ranges_of(cluster)
    batches = read_all(input_range)
    assert offsets_of(batches) == list(range(400)) and len(batches) > 3
    assert all(first.end == second.start for first, second in pairwise(batches))
    assert all(batch.start <= min(o) and max(o) < batch.end for batch in batches for o in [batch.messages.offsets])
    assert {(batch.topic, batch.topic_id, batch.partition) for batch in batches} == {("events", "id-1", 0)}


@pytest.mark.parametrize("start", [0, 1, 17, 39, 40])
def test_a_stretch_is_read_from_any_offset(start: int) -> None:
    (input_range,) = ranges_of(filled([0.0] * 40))
    assert offsets_of(read_all(input_range, OffsetRange(start, 40))) == list(range(start, 40))


def test_what_never_ends_goes_on_exactly_where_it_paused() -> None:
    cluster = filled([0.0] * 20)
    following = Following(endless(cluster, 3))
    found: list[MessageBatch] = []
    for turn in range(40):
        found += following.call()
        if turn == 20:  # more comes while it waits
            cluster.partitions[0] = Partition([record(0, offset) for offset in range(30)], 0, 30)
        if turn in (5, 30):  # another worker goes on
            again = Following(endless(cluster, 3))
            again.next = following.next
            following = again
    assert offsets_of(found) == list(range(3, 30))
    assert following.next == 30
    assert all(first.end == second.start for first, second in pairwise(found))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that were looked at; nothing is there."""
    looked: list[int] = []

    def look(input_range: PartitionRange, at: int, at_once: int) -> Generator[MessageBatch, None, bool]:
        looked.append(at)
        yield from ()
        return False

    monkeypatch.setattr(module, "_read_for_a_while", look)
    return looked


def test_calls_that_are_older_than_the_last_look_are_passed_over(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "wall_seconds", lambda: 1000.0 + clock[0])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    following = Following(endless(filled([0.0]), 1))
    for called_at, looked in ((999.0, 1), (999.5, 1), (1000.0, 1), (1000.5, 2)):
        following.call(called_at)
        assert len(looks) == looked, called_at
    for _ in range(1000):  # however old: they would keep newer ones waiting
        following.call(900.0)
    assert len(looks) == 2
    clock[0] += 3.0
    following.call(900.0)
    assert len(looks) == 3, "a clock that was set back would be passed over for ever"


def test_where_nothing_is_left_it_rests(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "_REST_SECONDS", 5.0)
    following, looked_at = Following(endless(filled([0.0]), 1)), []
    for second in range(20):
        clock[0] = float(second)
        before = len(looks)
        following.call()
        looked_at += [second] * (len(looks) - before)
    assert looked_at == [0, 5, 10, 15]


def test_where_more_is_left_it_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_SECONDS", 1e9)
    following = Following(endless(filled([0.0] * 40)))
    assert offsets_of([batch for _ in range(20) for batch in following.call()]) == list(range(40))


def test_a_runner_that_takes_the_rest_away_gets_all_that_was_not_given() -> None:
    (input_range,) = ranges_of(filled([0.0] * 40))
    turn = Turn(input_range, whole(input_range))
    first = next(turn.found).value
    done, left = turn.tracker.try_split(0)
    assert (done.stop, left.start, left.stop) == (first.end, first.end, 40)
    assert turn.finish() == ([], None)
    assert offsets_of([first, *read_all(input_range, left)]) == list(range(40))


def test_nothing_is_split_between_two_claims() -> None:
    tracker = OffsetTracker(OffsetRange(0, 100))
    assert tracker.try_claim(9)
    assert [tracker.try_split(share) for share in (0.1, 0.5, 1)] == [None] * 3
    assert tracker.try_split(0) == (OffsetRange(0, 10), OffsetRange(10, 100))


def test_the_watermark_is_the_latest_time_and_never_goes_back() -> None:
    cluster = filled([1.0, 3.0, 2.0, 5.0, 4.0, -1.0, 6.0, 0.0])
    (input_range,) = ranges_of(cluster)
    left: OffsetRange | None = whole(input_range)
    watermark, times = None, []
    while left is not None:
        turn = Turn(input_range, left, watermark)
        given, left = turn.finish()
        watermark = turn.watermark.current_watermark()
        times += [one.timestamp for one in given]
    assert times == sorted(times)
    assert watermark == times[-1] == Timestamp(micros=6 * HOUR_MS * 1000)


def test_a_consumer_is_kept_from_turn_to_turn_and_let_go_of_in_the_end() -> None:
    cluster = filled([0.0] * 400)
    made = []
    consumer = cluster.consumer

    def counted(**settings: Any) -> Any:
        made.append(consumer(**settings))
        return made[-1]

    cluster.consumer = counted  # type: ignore[method-assign]
    (input_range,) = ranges_of(cluster)
    assert len(read_all(input_range)) > 3 and len(made) == 1
    before = cluster.closed
    ReadPartitions().teardown()
    assert cluster.closed == before + 1
    read_all(input_range)
    assert len(made) == 2


def test_a_consumer_that_nobody_wants_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", -1.0)
    first, second = filled([0.0]), filled([0.0])
    read_all(ranges_of(first)[0])
    before = first.closed
    read_all(ranges_of(second)[0])
    assert first.closed == before + 1


def test_what_cannot_be_read_fails_the_bundle_and_its_consumer() -> None:
    cluster = filled([0.0] * 60)
    (input_range,) = ranges_of(cluster)
    given, left = Turn(input_range, whole(input_range)).finish()
    assert given and left is not None
    cluster.problems[0] = KeyError("a bug")
    before = cluster.closed
    with pytest.raises(KeyError):
        Turn(input_range, left).finish()
    assert cluster.closed == before + 1
    assert offsets_of(read_all(input_range, left)) == list(range(left.start, 60))


@pytest.mark.parametrize(("start", "says"), [(0, "offsets 0 to 3 were deleted"), (11, "the log ends at offset 10")])
def test_offsets_that_are_not_there_are_refused(start: int, says: str) -> None:
    cluster = filled([0.0] * 10)
    cluster.partitions[0].first = 4
    with pytest.raises(KafkaRefused, match=says):
        Following(endless(cluster, start)).call()


def test_a_topic_that_is_made_anew_while_it_is_followed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", -1.0)
    cluster = filled([0.0] * 10)
    following = Following(endless(cluster))
    following.call()
    cluster.topic_id = "id-2"
    with pytest.raises(KafkaRefused, match="made anew"):
        following.call()


def test_a_cluster_that_does_not_answer_is_refused_when_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", -1.0)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 1e9)
    cluster = filled([0.0] * 10)
    following = Following(endless(cluster, 10))
    assert following.call() == []

    def away(**_: Any) -> Any:
        raise KafkaConnectionError

    cluster.admin = away  # type: ignore[method-assign]
    assert following.call() == []
    monkeypatch.setattr(module, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(KafkaRefused, match=r"no answer from b:9092 .* partition 0 at offset 10"):
        following.call()


# -- new partitions


def calls_of(partitions: Iterable[PartitionRange], may_grow: bool = True, look_again_seconds: float = -1.0) -> Calls:
    return Calls(FollowedTopic(tuple(partitions), may_grow, look_again_seconds))


def called(calls: Calls) -> list[int]:
    """The partitions that a pulse calls, all of them at once."""
    found = list(calls.process(None))
    assert len({at for _, at in found}) == 1
    return [partition for partition, _ in found]


def test_partitions_that_are_added_are_called_and_read_from_their_beginning() -> None:
    cluster = filled([0.0], [0.0])
    calls = calls_of(ranges_of(cluster))
    assert called(calls) == [0, 1]
    cluster.partitions[2] = Partition([record(2, 0), record(2, 1)], 0, 2)
    assert called(calls) == [0, 1, 2]
    following = Following(endless(cluster, 1), added=2)
    found = [batch for _ in range(50) for batch in following.call()]
    assert {batch.partition for batch in found} == {2} and offsets_of(found) == [0, 1]


def test_a_topic_is_not_looked_at_again_before_it_is_time() -> None:
    cluster = filled([0.0])
    calls = calls_of(ranges_of(cluster), look_again_seconds=3600.0)
    assert called(calls) == [0]
    cluster.partitions[1] = Partition([])
    assert called(calls) == [0]


def test_a_topic_that_may_not_grow_is_refused_by_name() -> None:
    cluster = filled([0.0])
    calls = calls_of([endless(cluster)], may_grow=False)
    assert called(calls) == [0]
    cluster.partitions[1] = Partition([])
    with pytest.raises(KafkaRefused, match=r"^events: the topic grew from 1 to 2 partitions"):
        called(calls)


def test_a_cluster_that_is_away_is_asked_again_for_new_partitions() -> None:
    cluster = filled([0.0])
    calls = calls_of([endless(cluster)])

    def away(**_: Any) -> Any:
        raise KafkaConnectionError

    back, cluster.admin = cluster.admin, away  # type: ignore[method-assign]
    cluster.partitions[1] = Partition([])
    assert called(calls) == [0]
    cluster.admin = back  # type: ignore[method-assign]
    assert called(calls) == [0, 1]


def test_the_clock_beats_when_it_is_time_and_makes_up_for_nothing() -> None:
    beat = Beat(1.0)
    beats = [at for at in (0.0, 0.2, 0.9, 1.0, 1.1, 60.0, 60.5, 61.0, 3.0, 3.5) if list(beat.process((0, at), None))]
    assert beats == [0.0, 1.0, 60.0, 61.0, 3.0]


def test_pulses_pass_seldom() -> None:
    seldom = Seldom(1e9)
    assert [list(seldom.process(number)) for number in range(3)] == [[0], [], []]
    always = Seldom(0.0)
    assert [list(always.process(number)) for number in range(3)] == [[0], [1], [2]]


# -- on a broker


def rows_of(batch: MessageBatch) -> list[tuple[int, int, int, list[int], list[str]]]:
    events = decode_messages(batch.messages, "s", published_writer).events
    urls = [
        events.text[events.begins[first] : events.ends[first]].tobytes().decode() for first in events.url_starts[:-1]
    ]
    return [(batch.partition, batch.start, batch.end, batch.messages.offsets.tolist(), urls)]


def in_a_pipeline(read: ReadTopic, sizes: dict[int, range]) -> None:
    """Run it, and check that every partition gave these offsets, each once, in batches that touch."""

    def check(rows: list[tuple[int, int, int, list[int], list[str]]]) -> None:
        for partition, expected in sizes.items():
            own = sorted(row for row in rows if row[0] == partition)
            assert [o for row in own for o in row[3]] == list(expected), (partition, own)
            assert [u for row in own for u in row[4]] == [f"http://a/{partition}/{o}" for o in expected]
            assert all(first[2] == second[1] for first, second in pairwise(own))
        assert {row[0] for row in rows} == {partition for partition, expected in sizes.items() if expected}

    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    assert_that(pipeline | read | beam.FlatMap(rows_of), check)
    pipeline.run().wait_until_finish()


def test_a_pipeline_reads_every_record_once_and_from_the_middle(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 40)
    topic = topics.make("read", 3)
    send(topics.connection, topic, {p: [record(p, o, o) for o in range(n)] for p, n in enumerate((300, 60, 0))})
    in_a_pipeline(ReadTopic(topics.connection, topic), {0: range(300), 1: range(60), 2: range(0)})
    starts = {0: 123, 1: 60}
    in_a_pipeline(
        ReadTopic(topics.connection, topic, starts=starts), {0: range(123, 300), 1: range(60, 60), 2: range(0)}
    )
    times = {"since_ms": 20 * HOUR_MS, "until_ms": 50 * HOUR_MS}
    in_a_pipeline(ReadTopic(topics.connection, topic, **times), {0: range(20, 50), 1: range(20, 50), 2: range(0)})


def test_a_followed_topic_is_an_unbounded_source_that_holds_no_more_than_addresses(topics: Topics) -> None:
    topic = topics.make("follow", 2)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    followed = FollowedTopic.of(topics.connection, topic)
    assert not (pipeline | Pulses(20) | CallPartitions(followed)).is_bounded
    again = pickle.loads(pickle.dumps(Follower(followed)))
    assert isinstance(again, Follower) and [one.end for one in followed.partitions] == [NO_END] * 2


def test_a_followed_partition_gives_what_is_sent_while_it_is_followed(topics: Topics) -> None:
    topic = topics.make("live", 1)
    (input_range,) = resolve(topics.connection, topic)
    following = Following(replace(input_range, end=NO_END))
    found: list[MessageBatch] = []
    for first in (0, 10):
        send(topics.connection, topic, {0: [record(0, offset) for offset in range(first, first + 10)]})
        for _ in range(1000):
            if following.next == first + 10:
                break
            found += following.call()
    assert offsets_of(found) == list(range(20))
    calls = calls_of([input_range])
    topics.admin.create_partitions({topic: NewPartitions(2)})
    topics.admin.wait_for_topics([topic])
    assert any(called(calls) == [0, 1] for _ in range(20))
    more = Following(input_range, added=1)
    send(topics.connection, topic, {1: [record(1, 0)]})
    for _ in range(1000):
        given = more.call()
        if given:
            break
    assert [(batch.partition, batch.start, batch.end) for batch in given] == [(1, 0, 1)]
