"""Topics as the source of a stream: the batches of a partition touch, and continue where a worker was interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError

from opicflow.connectors.kafka import source as module
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.polls import NO_END, UNKNOWN_END, WatchedTopic
from opicflow.connectors.kafka.source import PartitionReader, read_range
from opicflow.connectors.runs import close_run, closing_run
from opicflow.schemas.framing import published_writer
from opicflow.schemas.message_columns import MessageBatch
from support.fake_topic import HOUR_MS, Cluster, Consumer, Partition, Record, Topics, filled, ranges_of, record, send


@pytest.fixture(autouse=True)
def short_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A read returns a few records, and no consumer outlives a test."""
    monkeypatch.setattr(module, "_MOST_RECORDS", 5)
    yield
    close_run("")


def offsets_of(batches: Iterable[MessageBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.offsets.tolist()]


class Reading:
    """A partition of a watched topic, and the offset that the state of its stage would hold."""

    def __init__(self, input_range: PartitionRange, added: int | None = None) -> None:
        self.partition = input_range.partition if added is None else added
        self.next = input_range.start if added is None else 0
        self.reader = PartitionReader(WatchedTopic((input_range,)))

    def poll(self, sent_at: float = 1e12, end: int = UNKNOWN_END) -> list[MessageBatch]:
        """Read once; by default the poll is newer than every read before, and requests all there is."""
        found = list(self.reader.read((self.partition, (sent_at, end)), lambda: self.next))
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
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the process, which is 1,000 seconds later on the clock of polls. It goes on by hand."""
    now = [0.0]
    monkeypatch.setattr(module, "wall_seconds", lambda: 1000.0 + now[0])
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> list[float]:
    """The times of the reads, which take 0.2 s and find nothing."""
    read_at: list[float] = []

    def read(_consumers: object, _range: PartitionRange, _at: int, _end: int, _records: int) -> Iterator[MessageBatch]:
        read_at.append(clock[0])
        clock[0] += 0.2
        return iter(())

    monkeypatch.setattr(module, "_read_until_deadline", read)
    return read_at


def test_a_poll_from_before_the_last_read_is_ignored_and_one_sent_meanwhile_is_not(
    reads: list[float], clock: list[float]
) -> None:
    reading = Reading(endless(filled([0.0]), 1))
    for sent_at, count in ((1000.0, 1), (999.9, 1), (1000.0, 1), (1000.1, 2), (1000.15, 2), (1000.2, 2), (1000.3, 3)):
        reading.poll(sent_at)
        assert len(reads) == count, sent_at
    for _ in range(1000):  # however old: they would delay newer ones
        reading.poll(900.0)
    assert len(reads) == 3
    clock[0] += 3.0
    reading.poll(900.0)
    assert len(reads) == 4, "otherwise a clock that was set back would stop reading"


def test_a_poll_that_requests_what_was_read_already_reads_nothing(reads: list[float], clock: list[float]) -> None:
    reading = Reading(endless(filled([0.0] * 9), 5))
    for sent_at, end, count in (
        (1001.0, 6, 1),
        (1002.0, 4, 1),
        (1002.0, 5, 1),
        (1002.0, 6, 2),
        (1003.0, UNKNOWN_END, 3),
    ):
        reading.poll(sent_at, end)
        assert len(reads) == count, end
    clock[0] += 31.0
    reading.poll(1040.0, 5)
    assert len(reads) == 4, "the topic may have been replaced by a smaller one"


def test_a_poll_without_effect_does_not_make_later_ones_old(reads: list[float]) -> None:
    reading = Reading(endless(filled([0.0] * 9), 5))
    reading.poll(1000.0, 9)
    reading.poll(1000.7, 5)
    reading.poll(1000.6, 9)
    assert len(reads) == 2


def test_a_read_ends_when_it_has_what_its_poll_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 100)
    monkeypatch.setattr(Consumer, "fetched", one_by_one)
    reading = Reading(endless(filled([0.0] * 40)))
    assert offsets_of(reading.poll(end=7)) == list(range(7)), "records that come all the time would never let it end"
    assert offsets_of(reading.poll()) == list(range(7, 40))


def test_a_read_waits_for_what_its_poll_requests_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    cluster, waits = filled([0.0] * 3), list[int]()

    def late(consumer: Consumer, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        waits.append(timeout_ms)
        clock[0] += timeout_ms / 1000
        if len(waits) == 3:
            cluster.partitions[0] = Partition([record(0, offset) for offset in range(5)], 0, 5)
        found: dict[TopicPartition, list[Record]] = {}
        for _ in range(3):
            found = found or one_by_one(consumer, timeout_ms)
        return found

    monkeypatch.setattr(Consumer, "fetched", late)
    reading = Reading(endless(cluster, 3))
    assert offsets_of(reading.poll(end=5)) == [3, 4] and waits == [50] * 4
    del waits[:]
    assert reading.poll(sent_at=1e13, end=9) == [] and 200 <= sum(waits) <= 250, "a fifth of a second"
    del waits[:]
    assert reading.poll(sent_at=1e14) == [] and waits == [5]


def test_a_read_of_a_partition_that_has_more_ends_after_a_second(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 100)

    def slow(consumer: Consumer, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        clock[0] += 0.3
        return one_by_one(consumer, timeout_ms)

    monkeypatch.setattr(Consumer, "fetched", slow)
    reading = Reading(endless(filled([0.0] * 40)))
    assert offsets_of(reading.poll(end=40)) == [0, 1, 2, 3]
    assert offsets_of(reading.poll(1000.9, 40)) == [4, 5, 6, 7], "a poll that was sent meanwhile goes on"


def test_records_that_come_one_by_one_are_one_batch_up_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 100)
    monkeypatch.setattr(Consumer, "fetched", one_by_one)
    topic = WatchedTopic((endless(filled([0.0] * 40)),), most_records=16)
    found = list(PartitionReader(topic).read((0, (1e12, UNKNOWN_END)), lambda: 0))
    assert [len(batch.offsets) for batch in found] == [16, 16, 8] and offsets_of(found) == list(range(40))


def one_by_one(consumer: Consumer, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
    """Return the records of a consumer that gets one record at a time."""
    [one] = consumer.assigned
    records = [
        record for record in consumer.cluster.partitions[one.partition].records if record.offset == consumer.at[one]
    ]
    consumer.at[one] += len(records)
    return {one: records} if records else {}


def test_a_consumer_is_kept_from_read_to_read_until_the_reader_is_closed() -> None:
    cluster = filled([0.0] * 400)
    made = []
    consumer = cluster.consumer

    def counted(**settings: Any) -> Any:
        made.append(consumer(**settings))
        return made[-1]

    cluster.consumer = counted  # type: ignore[method-assign]
    reading = Reading(endless(cluster))
    assert len(reading.poll_until(400)) > 3 and len(made) == 1
    before = cluster.closed
    reading.reader.close()
    assert cluster.closed == before + 1
    reading.poll()
    assert len(made) == 2


def test_gauges_have_up_to_where_a_topic_was_read_and_when_it_was_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    gauges: dict[str, int] = {}

    class Metrics:
        @staticmethod
        def gauge(namespace: str, name: str) -> SimpleNamespace:
            return SimpleNamespace(set=lambda value: gauges.update({name: value}))

    now = [100.5]
    monkeypatch.setattr(module, "_metrics", Metrics)
    monkeypatch.setattr(module, "wall_seconds", lambda: now[0])
    reading = Reading(endless(filled([0.0] * 10)))
    reading.poll_until(10)
    assert gauges == {"lag_events_0": 0, "read_to_id-1_0": 10, "read_second_id-1_0": 100}
    for sent_at in (101.0, 1.0):  # it has nothing to read; the poll is outdated
        now[0] += 7.0
        assert reading.poll(sent_at, end=10) == []
        assert gauges["read_second_id-1_0"] == int(now[0]) and gauges["read_to_id-1_0"] == 10


def test_a_reader_that_is_closed_leaves_the_consumers_of_others_open() -> None:
    cluster, other = filled([0.0]), filled([0.0])
    here, there = Reading(endless(cluster)), Reading(endless(other))
    for one in (here, there):
        one.poll()
    before = cluster.closed, other.closed
    here.reader.close()
    assert (cluster.closed, other.closed) == (before[0] + 1, before[1])


def test_the_consumers_of_a_run_are_closed_with_it_and_with_no_other() -> None:
    cluster = filled([0.0])
    topic = WatchedTopic((endless(cluster),))
    with closing_run("one"), closing_run("other"):
        for run in ("one", "other"):
            list(PartitionReader(topic, run).read((0, (1e12, UNKNOWN_END)), lambda: 0))
        before = cluster.closed
        close_run("one")
        assert cluster.closed == before + 1
    assert cluster.closed == before + 2


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
    with pytest.raises(KafkaRefused, match=r"deleted and created again .* end the stream with opicflow stream cancel"):
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


def test_a_partition_that_was_added_is_read_from_its_beginning() -> None:
    cluster = filled([0.0], [0.0])
    cluster.partitions[2] = Partition([record(2, 0), record(2, 1)], 0, 2)
    assert offsets_of(Reading(endless(cluster, 1), added=2).poll_until(2)) == [0, 1]


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


def test_a_reader_returns_records_that_are_sent_while_it_waits(topics: Topics) -> None:
    topic = topics.make("live", 1)
    (input_range,) = resolve(topics.connection, topic)
    reading = Reading(replace(input_range, end=NO_END))
    found: list[MessageBatch] = []
    for first in (0, 10):
        send(topics.connection, topic, {0: [record(0, offset) for offset in range(first, first + 10)]})
        found += reading.poll_until(first + 10)
    assert offsets_of(found) == list(range(20))
