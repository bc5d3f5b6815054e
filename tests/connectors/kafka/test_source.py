"""Topics as the source of a stream: the batches of a partition touch, and continue where a worker was interrupted."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from kafka import TopicPartition
from kafka.admin import NewPartitions
from kafka.errors import KafkaConnectionError

from opicflow.connectors.flink.key_groups import SpreadKeys, number_of
from opicflow.connectors.kafka import source as module
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.source import (
    NO_END,
    PartitionReader,
    PollPartitions,
    PollTimer,
    RateLimit,
    SendPolls,
    WatchedTopic,
    read_range,
)
from opicflow.schemas.framing import published_writer
from opicflow.schemas.message_columns import MessageBatch
from support.fake_topic import HOUR_MS, Cluster, Consumer, Partition, Record, Topics, filled, ranges_of, record, send


@pytest.fixture(autouse=True)
def short_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A read returns a few records, and no consumer outlives a test."""
    monkeypatch.setattr(module, "_MOST_RECORDS", 5)
    monkeypatch.setattr(module, "_IDLE_PAUSE_SECONDS", 0.0)
    yield
    module._CONSUMERS.close()


def offsets_of(batches: Iterable[MessageBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.offsets.tolist()]


class Reading:
    """A partition of a watched topic, and the offset that the state of its stage would hold."""

    def __init__(self, input_range: PartitionRange, added: int | None = None) -> None:
        self.partition = input_range.partition if added is None else added
        self.next = input_range.start if added is None else 0
        self.reader = PartitionReader(WatchedTopic((input_range,)))

    def poll(self, sent_at: float = 1e12) -> list[MessageBatch]:
        """Read once; by default the poll is newer than every read before."""
        found = list(self.reader.read((self.partition, sent_at), lambda: self.next))
        self.next = found[-1].end if found else self.next
        return found

    def poll_until(self, offset: int, limit: int = 1000) -> list[MessageBatch]:
        found: list[MessageBatch] = []
        for _ in range(limit):
            if self.next >= offset:
                break
            found += self.poll()
        return found


def endless(cluster: Cluster, start: int = 0) -> PartitionRange:
    return replace(ranges_of(cluster)[0], start=start, end=NO_END)


# -- in memory


def test_a_range_is_read_in_batches_that_touch() -> None:
    cluster = filled([0.0] * 400)
    cluster.partitions[0].end = 403  # transaction markers follow the last record
    (input_range,) = ranges_of(cluster)
    batches = list(read_range(input_range))
    assert offsets_of(batches) == list(range(400)) and len(batches) > 3
    assert (batches[0].start, batches[-1].end) == (0, 403)
    assert all(first.end == second.start for first, second in pairwise(batches))
    assert all(batch.start <= min(o) and max(o) < batch.end for batch in batches if len(o := batch.offsets))


@pytest.mark.parametrize("start", [0, 1, 17, 39, 40])
def test_a_range_is_read_from_any_offset(start: int) -> None:
    (input_range,) = ranges_of(filled([0.0] * 40))
    assert offsets_of(read_range(replace(input_range, start=start))) == list(range(start, 40))


def test_an_endless_partition_continues_exactly_where_it_paused() -> None:
    cluster = filled([0.0] * 20)
    reading = Reading(endless(cluster, 3))
    found: list[MessageBatch] = []
    for turn in range(40):
        found += reading.poll()
        if turn == 20:  # more records arrive while it waits
            cluster.partitions[0] = Partition([record(0, offset) for offset in range(30)], 0, 30)
        if turn in (5, 30):  # another worker continues
            other = Reading(endless(cluster, 3))
            other.next = reading.next
            reading = other
    assert offsets_of(found) == list(range(3, 30))
    assert reading.next == 30
    assert all(first.end == second.start for first, second in pairwise(found))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that were read; no record is found."""
    read_at: list[int] = []

    def read(
        input_range: PartitionRange, at: int, batch_records: int
    ) -> Generator[MessageBatch, None, tuple[int, bool]]:
        read_at.append(at)
        yield from ()
        return at, False

    monkeypatch.setattr(module, "_read_until_deadline", read)
    return read_at


def test_a_poll_older_than_the_last_read_is_ignored(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module, "wall_seconds", lambda: 1000.0 + clock[0])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    reading = Reading(endless(filled([0.0]), 1))
    for sent_at, count in ((999.0, 1), (999.5, 1), (1000.0, 1), (1000.5, 2)):
        reading.poll(sent_at)
        assert len(reads) == count, sent_at
    for _ in range(1000):  # however old: they would delay newer ones
        reading.poll(900.0)
    assert len(reads) == 2
    clock[0] += 3.0
    reading.poll(900.0)
    assert len(reads) == 3, "otherwise a clock that was set back would stop reading"


def test_while_there_is_more_a_poll_that_was_sent_during_a_read_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reads = [0.0], []
    monkeypatch.setattr(module, "wall_seconds", lambda: 1000.0 + clock[0])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def read(_range: PartitionRange, at: int, _records: int) -> Generator[MessageBatch, None, tuple[int, bool]]:
        reads.append(clock[0])
        clock[0] += 0.2
        yield from ()
        return at + 1, True

    monkeypatch.setattr(module, "_read_until_deadline", read)
    reading = Reading(endless(filled([0.0]), 1))
    for sent_at, count in ((1000.0, 1), (999.9, 1), (1000.0, 1), (1000.1, 2), (1000.15, 2), (1000.2, 2), (1000.3, 3)):
        reading.poll(sent_at)
        assert len(reads) == count, sent_at


def test_a_partition_at_its_end_is_not_read_for_a_while(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "_IDLE_PAUSE_SECONDS", 3.0)
    monkeypatch.setattr(module, "_MOST_PAUSE_SECONDS", 7.0)
    reading, read_at = Reading(endless(filled([0.0]), 1)), []
    for second in range(27):
        clock[0] = float(second)
        before = len(reads)
        reading.poll()
        read_at += [second] * (len(reads) - before)
    assert read_at == [0, 3, 9, 16, 23], "longer each time, up to a limit"


def test_a_partition_in_which_something_was_found_is_read_by_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read_at, found_at = [0.0], [], (0.0, 10.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "_IDLE_PAUSE_SECONDS", 3.0)
    monkeypatch.setattr(module, "_MOST_PAUSE_SECONDS", 7.0)

    def read(
        input_range: PartitionRange, at: int, batch_records: int
    ) -> Generator[MessageBatch, None, tuple[int, bool]]:
        read_at.append(clock[0])
        yield from ()
        return at + (clock[0] in found_at), False

    monkeypatch.setattr(module, "_read_until_deadline", read)
    reading = Reading(endless(filled([0.0]), 1))
    for second in range(20):
        clock[0] = float(second)
        reading.poll()
    assert read_at == [0, 1, 4, 10, 11, 14], "the pauses are short again after a record"


def test_a_partition_with_more_records_is_read_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_PAUSE_SECONDS", 1e9)
    reading = Reading(endless(filled([0.0] * 40)))
    assert offsets_of(batch for _ in range(20) for batch in reading.poll()) == list(range(40))


def test_records_that_come_one_by_one_are_one_batch_up_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 100)
    monkeypatch.setattr(Consumer, "fetched", one_by_one)
    topic = WatchedTopic((endless(filled([0.0] * 40)),), most_records=16)
    found = list(PartitionReader(topic).read((0, 1e12), lambda: 0))
    assert [len(batch.offsets) for batch in found] == [16, 16, 8] and offsets_of(found) == list(range(40))


def one_by_one(consumer: Consumer, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
    """What a consumer finds that gets one record at a time."""
    [one] = consumer.assigned
    records = [
        record for record in consumer.cluster.partitions[one.partition].records if record.offset == consumer.at[one]
    ]
    consumer.at[one] += len(records)
    return {one: records} if records else {}


def test_a_consumer_is_kept_from_read_to_read_until_the_reader_is_closed() -> None:
    cluster = filled([0.0] * 400)
    made = []
    consumer = cluster.column_consumer

    def counted(**settings: Any) -> Any:
        made.append(consumer(**settings))
        return made[-1]

    cluster.column_consumer = counted  # type: ignore[method-assign]
    reading = Reading(endless(cluster))
    assert len(reading.poll_until(400)) > 3 and len(made) == 1
    before = cluster.closed
    reading.reader.close()
    assert cluster.closed == before + 1
    reading.poll()
    assert len(made) == 2


def test_a_consumer_that_is_not_used_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNUSED_SECONDS", -1.0)
    first, second = filled([0.0]), filled([0.0])
    Reading(endless(first)).poll()
    before = first.closed
    Reading(endless(second)).poll()
    assert first.closed == before + 1


def test_a_failed_read_closes_its_consumer_and_is_repeated() -> None:
    cluster = filled([0.0] * 60)
    reading = Reading(endless(cluster))
    found = reading.poll_until(1)
    assert 0 < reading.next < 60
    cluster.problems[0] = KeyError("a bug")
    before = cluster.closed
    with pytest.raises(KeyError):
        reading.poll()
    assert cluster.closed == before + 1
    assert offsets_of([*found, *reading.poll_until(60)]) == list(range(60))


def test_a_failed_read_of_a_range_closes_its_consumer() -> None:
    cluster = filled([0.0] * 60)
    cluster.problems[3] = KeyError("a bug")
    batches = read_range(ranges_of(cluster)[0])
    with pytest.raises(KeyError):
        list(batches)
    assert cluster.closed == 2, "the client that checked the topic, and the consumer"


@pytest.mark.parametrize(("start", "message"), [(0, "offsets 0 to 3 were deleted"), (11, "the log ends at offset 10")])
def test_offsets_outside_the_log_are_refused(start: int, message: str) -> None:
    cluster = filled([0.0] * 10)
    cluster.partitions[0].first = 4
    with pytest.raises(KafkaRefused, match=message):
        Reading(endless(cluster, start)).poll()


def test_a_topic_that_is_replaced_while_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", -1.0)
    cluster = filled([0.0] * 10)
    reading = Reading(endless(cluster))
    reading.poll()
    cluster.topic_id = "id-2"
    with pytest.raises(KafkaRefused, match="deleted and created again"):
        reading.poll()


def test_a_cluster_that_does_not_answer_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", -1.0)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 1e9)
    cluster = filled([0.0] * 10)
    reading = Reading(endless(cluster, 10))
    assert reading.poll() == []

    def away(**_: Any) -> Any:
        raise KafkaConnectionError

    cluster.admin = away  # type: ignore[method-assign]
    assert reading.poll() == []
    monkeypatch.setattr(module, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(KafkaRefused, match=r"no answer from b:9092 .* partition 0 at offset 10"):
        reading.poll()


# -- new partitions


def polls_of(partitions: Iterable[PartitionRange], may_grow: bool = True, refresh_seconds: float = -1.0) -> SendPolls:
    return SendPolls(WatchedTopic(tuple(partitions), may_grow, refresh_seconds), SpreadKeys())


def polled(polls: SendPolls) -> list[int]:
    """The partitions that are polled, all at the same time."""
    found = list(polls.process(None))
    assert len({at for _, at in found}) == 1
    return [number_of(key) for key, _ in found]


def test_an_added_partition_is_polled_and_read_from_its_beginning() -> None:
    cluster = filled([0.0], [0.0])
    polls = polls_of(ranges_of(cluster))
    assert polled(polls) == [0, 1]
    cluster.partitions[2] = Partition([record(2, 0), record(2, 1)], 0, 2)
    assert polled(polls) == [0, 1, 2]
    assert offsets_of(Reading(endless(cluster, 1), added=2).poll_until(2)) == [0, 1]


def test_partitions_are_not_counted_again_before_the_refresh_interval_is_over() -> None:
    cluster = filled([0.0])
    polls = polls_of(ranges_of(cluster), refresh_seconds=3600.0)
    assert polled(polls) == [0]
    cluster.partitions[1] = Partition([])
    assert polled(polls) == [0]


def test_a_topic_that_must_not_grow_is_refused_by_name() -> None:
    cluster = filled([0.0])
    polls = polls_of([endless(cluster)], may_grow=False)
    assert polled(polls) == [0]
    cluster.partitions[1] = Partition([])
    with pytest.raises(KafkaRefused, match=r"^events: the topic grew from 1 to 2 partitions"):
        polled(polls)


def test_partitions_are_counted_again_after_a_cluster_was_unavailable() -> None:
    cluster = filled([0.0])
    polls = polls_of([endless(cluster)])

    def away(**_: Any) -> Any:
        raise KafkaConnectionError

    back, cluster.admin = cluster.admin, away  # type: ignore[method-assign]
    cluster.partitions[1] = Partition([])
    assert polled(polls) == [0]
    cluster.admin = back  # type: ignore[method-assign]
    assert polled(polls) == [0, 1]


def test_a_rate_limit_passes_one_element_per_interval() -> None:
    limit = RateLimit(1e9)
    assert [list(limit.process(number)) for number in range(3)] == [[0], [], []]
    unlimited = RateLimit(0.0)
    assert [list(unlimited.process(number)) for number in range(3)] == [[0], [1], [2]]


# -- on a broker


def urls_of(batches: Iterable[MessageBatch]) -> list[str]:
    found = []
    for batch in batches:
        events = decode_messages(batch, "s", published_writer).events
        firsts = events.url_starts[:-1]
        found += [events.text[events.begins[first] : events.ends[first]].tobytes().decode() for first in firsts]
    return found


def test_ranges_hold_every_record_once(topics: Topics) -> None:
    topic = topics.make("read", 3)
    send(topics.connection, topic, {p: [record(p, o, o) for o in range(n)] for p, n in enumerate((300, 60, 0))})

    def check(ranges: list[PartitionRange], expected: dict[int, range]) -> None:
        for input_range in ranges:
            batches = list(read_range(input_range))
            offsets = expected[input_range.partition]
            assert offsets_of(batches) == list(offsets)
            assert urls_of(batches) == [f"http://a/{input_range.partition}/{offset}" for offset in offsets]
            assert all(first.end == second.start for first, second in pairwise(batches))

    check(resolve(topics.connection, topic), {0: range(300), 1: range(60), 2: range(0)})
    from_middle = resolve(topics.connection, topic, starts={0: 123, 1: 60})
    check(from_middle, {0: range(123, 300), 1: range(60, 60), 2: range(0)})
    by_time = resolve(topics.connection, topic, since_ms=20 * HOUR_MS, until_ms=50 * HOUR_MS)
    check(by_time, {0: range(20, 50), 1: range(20, 50), 2: range(0)})


def test_a_watched_topic_is_an_unbounded_source_and_can_be_pickled(topics: Topics) -> None:
    topic = topics.make("watched", 2)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    watched = WatchedTopic.of(topics.connection, topic)
    assert not (pipeline | PollTimer(20) | PollPartitions(watched)).is_bounded
    again = pickle.loads(pickle.dumps(PartitionReader(watched)))
    assert isinstance(again, PartitionReader) and [one.end for one in watched.partitions] == [NO_END] * 2


def test_a_reader_returns_records_that_are_sent_while_it_waits(topics: Topics) -> None:
    topic = topics.make("live", 1)
    (input_range,) = resolve(topics.connection, topic)
    reading = Reading(replace(input_range, end=NO_END))
    found: list[MessageBatch] = []
    for first in (0, 10):
        send(topics.connection, topic, {0: [record(0, offset) for offset in range(first, first + 10)]})
        found += reading.poll_until(first + 10)
    assert offsets_of(found) == list(range(20))
    polls = polls_of([input_range])
    topics.admin.create_partitions({topic: NewPartitions(2)})
    topics.admin.wait_for_topics([topic])
    assert any(polled(polls) == [0, 1] for _ in range(20))
    more = Reading(input_range, added=1)
    send(topics.connection, topic, {1: [record(1, 0)]})
    (batch,) = more.poll_until(1)
    assert (more.partition, batch.start, batch.end) == (1, 0, 1)
