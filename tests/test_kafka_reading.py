"""Partitions of a topic as batches: the order is that of the data, however it is fetched, and can be gone on with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.errors import CorruptRecordError, KafkaConnectionError, KafkaError, LogTruncationError, OffsetOutOfRangeError

from opicflow.connectors.kafka import reading
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.reading import Batch, PartitionStretch, digest_of, read_partitions, resolve
from services import LocalKafka

HOUR_MS = 3_600_000
TOPIC, TOPIC_ID = "events", "id-1"


class Record(NamedTuple):
    """As much of a consumer's record as is looked at."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def serialized_key_size(self) -> int:
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


@dataclass
class Partition:
    """What lies in a partition: its records, from its first offset up to its end."""

    records: list[Record]
    first: int = 0
    end: int = 0


@dataclass(eq=False)
class Cluster:
    """Stands for a connection, and for the cluster behind it. Fetches are cut by chance."""

    partitions: dict[int, Partition]
    seed: int = 0
    topic_id: str | None = TOPIC_ID
    brokers: str = "b:9092"
    problems: dict[int, BaseException] = field(default_factory=dict)
    """What polls raise, by their number; a poll raises it once."""
    silent_from: int = 1 << 30
    closed: int = 0
    held: int = 0
    """How many records a consumer handed out."""

    def registry_access(self) -> None:
        return None

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaError as problem:
            raise KafkaRefused(f"{self.brokers}: {what}: {problem}") from None

    def consumer(self, **more: Any) -> Consumer:
        assert more["auto_offset_reset"] == "none" and more["isolation_level"] == "read_committed"
        return Consumer(self)

    def admin(self) -> Admin:
        return Admin(self)


@dataclass
class Admin:
    cluster: Cluster

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        if self.cluster.topic_id is None:
            return [{"error_code": 3, "topic_id": None, "partitions": []}]
        partitions = [{}] * len(self.cluster.partitions)
        return [{"error_code": 0, "topic_id": self.cluster.topic_id, "partitions": partitions}]

    def close(self) -> None:
        self.cluster.closed += 1


class Consumer:
    """Gives what a consumer of kafka-python may give: any slices, in any order, positions behind what it gave."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.chance = random.Random(cluster.seed)
        self.at: dict[TopicPartition, int] = {}
        self.held_back: set[TopicPartition] = set()
        self.polls = 0

    def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.cluster.partitions[place.partition].first for place in places}

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.cluster.partitions[place.partition].end for place in places}

    def assign(self, places: list[TopicPartition]) -> None:
        self.places = list(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at[place] = offset

    def position(self, place: TopicPartition, timeout_ms: int) -> int:
        return self.at[place]

    def paused(self) -> set[TopicPartition]:
        return set(self.held_back)

    def pause(self, place: TopicPartition) -> None:
        self.held_back.add(place)

    def resume(self, place: TopicPartition) -> None:
        self.held_back.discard(place)

    def poll(self, timeout_ms: int, max_records: int | None) -> dict[TopicPartition, list[Record]]:
        self.polls += 1
        for number in [number for number in self.cluster.problems if number <= self.polls]:
            raise self.cluster.problems.pop(number)
        if self.polls >= self.cluster.silent_from:
            return {}
        found: dict[TopicPartition, list[Record]] = {}
        room = max_records or self.chance.choice([1, 2, 5, 100])
        for place in self.chance.sample(self.places, len(self.places)):
            partition = self.cluster.partitions[place.partition]
            if place in self.held_back or room == 0 or self.chance.random() < 0.2:
                continue
            some = [r for r in partition.records if r.offset >= self.at[place]][: self.chance.randint(1, room)]
            room -= len(some)
            if some:
                found[place] = some
                self.at[place] = some[-1].offset + 1
                self.cluster.held += len(some)
            if not some or (some[-1] is partition.records[-1] and self.chance.random() < 0.5):
                self.at[place] = max(self.at[place], partition.end)
        return found

    def close(self) -> None:
        self.cluster.closed += 1


def record(partition: int, offset: int, hour: float = 0, size: int = 0) -> Record:
    value = json.dumps({"url": f"http://a/{partition}/{offset}", "x": "x" * size}).encode()
    return Record(offset, int(hour * HOUR_MS), b"k", value)


def filled(*hours: list[float]) -> Cluster:
    """Partitions with one record for each hour given."""
    return Cluster(
        {
            number: Partition([record(number, offset, hour) for offset, hour in enumerate(of_one)], 0, len(of_one))
            for number, of_one in enumerate(hours)
        }
    )


def stretches_of(cluster: Cluster, **changes: Any) -> list[PartitionStretch]:
    return [
        replace(
            PartitionStretch(f"s{number}", cluster, TOPIC, TOPIC_ID, number, partition.first, partition.end),  # type: ignore[arg-type]
            **changes,
        )
        for number, partition in cluster.partitions.items()
    ]


class Step(NamedTuple):
    """What one step of reading said. Offsets are None at the end of a source."""

    source: str
    start: int
    end: int
    offsets: tuple[int, ...] | None
    size_bytes: int = 0
    digest: str = ""


def steps_of(found: Iterator[tuple[str, Batch | None]]) -> list[Step]:
    return [
        Step(source, batch.start, batch.end, tuple(batch.decode().events.offset.tolist()), *batch[3:])
        if batch
        else Step(source, 0, 0, None)
        for source, batch in found
    ]


def all_steps(stretches: list[PartitionStretch]) -> list[Step]:
    return steps_of(read_partitions(stretches))


def resumed_after(stretches: list[PartitionStretch], steps: list[Step]) -> list[PartitionStretch]:
    """What is still to be read after some steps, as a state keeps it."""
    left = {stretch.source: stretch for stretch in stretches}
    for step in steps:
        if step.offsets is None:
            del left[step.source]
        else:
            left[step.source] = replace(left[step.source], start=step.end, last_digest=step.digest)
    return list(left.values())


# -- the order

hours_of = st.lists(st.sampled_from([0, 0, 0.25, 0.5, 1, 1, 1.5, 2, 5]), max_size=14)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Partitions with holes: before, between and behind their records."""
    partitions = {}
    for number in range(draw(st.integers(1, 4))):
        hours = draw(hours_of)
        first = at = draw(st.integers(0, 3))
        records = []
        for hour in sorted(hours) if draw(st.booleans()) else hours:
            at += draw(st.sampled_from([0, 0, 0, 1, 4]))
            records.append(record(number, at, hour, draw(st.sampled_from([0, 0, 0, 30, 200]))))
            at += 1
        partitions[number] = Partition(records, first, at + draw(st.integers(0, 2)))
    return Cluster(partitions)


def in_order(cluster: Cluster) -> list[tuple[str, list[int]]]:
    """The rule of docs/decisions/kafka-order.md, on what lies in the partitions."""
    left = {number: list(partition.records) for number, partition in cluster.partitions.items() if partition.records}
    found = []
    while left:
        heads = {number: (r[0].timestamp // HOUR_MS, r[0].timestamp, number) for number, r in left.items()}
        number = min(heads, key=lambda one: heads[one])
        others = [head[0] for one, head in heads.items() if one != number]
        taken: list[Record] = []
        most = reading.BATCH_RECORDS if others else reading.ALONE_RECORDS
        for one in left[number]:
            size = sum(len(r.value or b"") for r in [*taken, one])
            if taken and (len(taken) == most or size > reading.BATCH_BYTES):
                break
            if others and one.timestamp // HOUR_MS > min(others):
                break
            taken.append(one)
        found.append((f"s{number}", [r.offset for r in taken]))
        left[number] = left[number][len(taken) :]
        left = {one: records for one, records in left.items() if records}
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few records."""
    monkeypatch.setattr(reading, "BATCH_RECORDS", 3)
    monkeypatch.setattr(reading, "ALONE_RECORDS", 5)
    monkeypatch.setattr(reading, "BATCH_BYTES", 200)


quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@quick
@given(clusters(), st.integers(0, 1000))
@example(Cluster({0: Partition([])}), 0)
@example(Cluster({0: Partition([], 3, 9), 1: Partition([record(1, 2, 0)], 2, 4)}), 0)
def test_the_order_is_that_of_the_data_however_it_is_fetched(small: None, cluster: Cluster, seed: int) -> None:
    steps = all_steps(stretches_of(cluster))
    assert [(step.source, list(step.offsets)) for step in steps if step.offsets] == in_order(cluster)
    assert all_steps(stretches_of(replace(cluster, seed=seed))) == steps


@quick
@given(clusters(), st.integers(0, 1000))
def test_the_batches_of_a_source_touch_and_cover_its_stretch(small: None, cluster: Cluster, seed: int) -> None:
    steps = all_steps(stretches_of(replace(cluster, seed=seed)))
    for stretch in stretches_of(cluster):
        *own, last = [step for step in steps if step.source == stretch.source]
        assert last.offsets is None
        assert all(first.end == second.start for first, second in pairwise(own))
        assert [own[0].start, own[-1].end] == [stretch.start, stretch.end] if own else stretch.start == stretch.end
        assert all(step.start < step.end for step in own)
        assert all(step.start <= offset < step.end for step in own for offset in step.offsets or ())


@quick
@given(clusters(), st.integers(0, 1000), st.data())
def test_reading_goes_on_from_any_batch_in_the_same_order(
    small: None, cluster: Cluster, seed: int, data: st.DataObject
) -> None:
    stretches = stretches_of(cluster)
    steps = all_steps(stretches)
    cut = data.draw(st.integers(0, len(steps)))
    left = resumed_after(stretches, steps[:cut])
    again = [replace(stretch, connection=replace(cluster, seed=seed)) for stretch in left]
    assert all_steps(again) == steps[cut:]


def test_a_partition_alone_gives_batches_of_their_full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ALONE_RECORDS", 8)
    steps = all_steps(stretches_of(filled([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])))
    assert [step.offsets for step in steps] == [tuple(range(8)), (8, 9), None]


def test_no_partition_is_further_than_an_hour_before_the_others() -> None:
    steps = all_steps(stretches_of(filled([0, 0.5, 1, 2], [0, 1, 1.5], [1])))
    assert [(step.source, step.offsets) for step in steps] == [
        ("s0", (0, 1)),
        ("s1", (0, 1, 2)),
        ("s1", None),
        ("s0", (2,)),
        ("s2", (0,)),
        ("s2", None),
        ("s0", (3,)),
        ("s0", None),
    ]


def test_nothing_is_read_of_nothing() -> None:
    assert all_steps([]) == []
    assert all_steps(stretches_of(filled([], []))) == [Step("s0", 0, 0, None), Step("s1", 0, 0, None)]


def test_what_lies_behind_the_end_is_not_read() -> None:
    cluster = filled([0, 0, 0, 0])
    steps = all_steps([replace(stretches_of(cluster)[0], start=1, end=3)])
    assert [step[:4] for step in steps] == [("s0", 1, 3, (1, 2)), ("s0", 0, 0, None)]


def test_the_memory_does_not_grow_with_what_one_partition_is_ahead(small: None) -> None:
    cluster = filled([5.0] * 3000, [hour / 100 for hour in range(400)])
    found = read_partitions(stretches_of(cluster))
    for source, _ in found:
        if source == "s0":
            break
    most = 2 * max(reading.ALONE_RECORDS, reading.BATCH_RECORDS) + 100  # and what one fetch brings
    assert cluster.held <= 400 + most
    found.close()  # type: ignore[attr-defined]
    assert cluster.closed == 2


# -- what is refused


def refused(stretches: list[PartitionStretch], **more: Any) -> str:
    with pytest.raises(KafkaRefused) as caught:
        steps_of(read_partitions(stretches, **more))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_offsets_that_were_deleted_before_reading_are_refused() -> None:
    cluster = filled([0, 0], [0] * 9)
    stretches = stretches_of(cluster)
    cluster.partitions[1].first = 4
    stretches[1] = replace(stretches[1], start=1)
    assert refused(stretches).startswith("events, partition 1: offsets 1 to 3 were deleted before they were read")


def test_a_log_that_ends_before_where_reading_should_go_on_is_refused() -> None:
    (stretch,) = stretches_of(filled([0, 0]))
    said = refused([replace(stretch, start=5, end=5)])
    assert said.startswith("events, partition 0: the log ends at offset 2, and reading would go on at 5")


def test_an_end_that_is_not_there_is_refused() -> None:
    (stretch,) = stretches_of(filled([0, 0]))
    assert "ends at offset 2, before offset 3" in refused([replace(stretch, end=3)])


def test_another_topic_of_the_same_name_is_refused() -> None:
    cluster = filled([0])
    cluster.topic_id = "id-2"
    said = refused(stretches_of(cluster))
    assert "made anew (its id was id-1 and is id-2)" in said


def test_a_topic_that_is_gone_is_refused() -> None:
    cluster = filled([0])
    cluster.topic_id = None
    assert "was deleted" in refused(stretches_of(cluster))


def test_a_topic_that_is_made_anew_while_it_is_read_is_noticed_at_the_end() -> None:
    cluster = filled([0, 0])
    found = read_partitions(stretches_of(cluster))
    next(found)
    cluster.topic_id = "id-2"
    with pytest.raises(KafkaRefused, match="made anew"):
        steps_of(found)


def test_another_record_before_the_start_is_refused() -> None:
    cluster = filled([0, 0, 0])
    (stretch,) = stretches_of(cluster)
    digest = digest_of(cluster.partitions[0].records[1])
    for start, end in ((2, 3), (2, 2)):
        after = replace(stretch, start=start, end=end, last_digest=digest)
        assert all_steps([after])[-1] == Step("s0", 0, 0, None)
        said = refused([replace(after, last_digest="0" * 16)])
        assert said.startswith("events, partition 0: the record at offset 1 is not the one that was read before")


@pytest.mark.parametrize("first", [0, 2])
def test_a_record_before_the_start_that_is_gone_says_nothing(first: int) -> None:
    """Compaction or retention took it."""
    cluster = filled([0, 0, 0])
    del cluster.partitions[0].records[:2]
    cluster.partitions[0].first = first
    (stretch,) = stretches_of(cluster)
    steps = all_steps([replace(stretch, start=2, last_digest="0" * 16)])
    assert [step.offsets for step in steps] == [(2,), None]


def test_records_differ_by_offset_key_and_value() -> None:
    texts = [None, b"", b"1", b"11"]
    digests = {digest_of(Record(offset, 0, key, value)) for offset in (0, 1, 11) for key in texts for value in texts}
    assert len(digests) == 3 * 4 * 4


def test_offsets_that_vanish_while_reading_are_refused() -> None:
    cluster = filled([0] * 50)
    place = TopicPartition(TOPIC, 0)
    cluster.problems[3] = OffsetOutOfRangeError({place: 10})
    found = read_partitions(stretches_of(cluster))

    class Shrinking(Consumer):
        def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {place: 45 if self.polls else 0}

    cluster.consumer = lambda **_: Shrinking(cluster)  # type: ignore[method-assign]
    with pytest.raises(KafkaRefused, match=r"partition 0: offsets \d+ to 44 were deleted"):
        steps_of(found)


def test_a_log_that_is_cut_off_while_reading_is_refused() -> None:
    cluster = filled([0] * 50)
    cluster.problems[2] = LogTruncationError({TopicPartition(TOPIC, 0): None})
    assert "the log changed while it was read" in refused(stretches_of(cluster))


def test_a_damaged_record_is_refused_with_its_place() -> None:
    cluster = filled([0] * 50)
    cluster.problems[2] = CorruptRecordError("Record batch for partition 0 at offset 7 failed crc check")
    said = refused(stretches_of(cluster))
    assert "damaged" in said and "at offset 7" in said


def test_connections_may_break_and_come_back() -> None:
    cluster = filled([0] * 50, [1] * 50)
    whole = all_steps(stretches_of(cluster))
    again = replace(cluster, problems={number: KafkaConnectionError() for number in (1, 2, 4)})
    assert all_steps(stretches_of(again)) == whole and not again.problems


def test_a_cluster_that_gives_nothing_is_refused_when_patience_ends() -> None:
    cluster = filled([0] * 50)
    cluster.silent_from = 2
    said = refused(stretches_of(cluster), patience_seconds=0.01)
    assert said.startswith("no answer from b:9092 for 0 s while reading events, partition 0 at offset ")


# -- on a broker


@pytest.fixture
def topics(kafka: LocalKafka, topic_prefix: str) -> Iterator[Topics]:
    """Topics of this test, which are deleted after it."""
    with closing(Connection(kafka.brokers).admin()) as admin:
        made = Topics(Connection(kafka.brokers), admin, topic_prefix)
        yield made
        made.delete(*made.names)


@dataclass
class Topics:
    connection: Connection
    admin: Any
    prefix: str
    names: list[str] = field(default_factory=list)

    def make(self, name: str, partitions: int = 1) -> str:
        topic = self.prefix + name
        settings_of = {"retention.ms": "-1"}
        self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings_of)])
        self.admin.wait_for_topics([topic])
        self.names.append(topic)
        return topic

    def delete(self, *names: str) -> None:
        for name in names:
            self.names.remove(name)
            self.admin.delete_topics([name])


def send(connection: Connection, topic: str, records: dict[int, list[Record]]) -> None:
    with closing(connection.producer()) as producer:
        send_with(producer, topic, records)


def send_with(producer: Any, topic: str, records: dict[int, list[Record]]) -> None:
    sent = [
        producer.send(topic, r.value, r.key, partition=number, timestamp_ms=r.timestamp)
        for number, of_one in records.items()
        for r in of_one
    ]
    for one in sent:
        one.get(30)


def test_partitions_of_unequal_size_give_what_was_sent_however_it_is_fetched(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_RECORDS", 100)
    topic = topics.make("skew", 3)
    chance = random.Random(1)
    records = {
        number: [record(number, offset, offset / size * 30, chance.randrange(2000)) for offset in range(size)]
        for number, size in enumerate((1500, 150, 15))
    }
    send(topics.connection, topic, records)
    stretches = resolve(topics.connection, topic)
    assert [(s.start, s.end, s.topic) for s in stretches] == [(0, 1500, topic), (0, 150, topic), (0, 15, topic)]
    assert [s.source for s in stretches] == [f"kafka/{s.topic_id}/{number}" for number, s in enumerate(stretches)]
    steps = all_steps(stretches)
    same = Cluster({number: Partition(of_one, 0, len(of_one)) for number, of_one in records.items()})
    given = {stretch.source: f"s{stretch.partition}" for stretch in stretches}
    assert [(given[s.source], list(s.offsets)) for s in steps if s.offsets] == in_order(same)
    for name, value in {"_POLL_RECORDS": 7, "_FETCH_BYTES": 3000}.items():
        monkeypatch.setattr(reading, name, value)
        assert all_steps(stretches) == steps
    cut = len(steps) // 2
    assert all_steps(resumed_after(stretches, steps[:cut])) == steps[cut:]


def test_transactions_that_were_aborted_are_not_read_and_open_ones_not_waited_for(topics: Topics) -> None:
    topic = topics.make("transactions")
    with closing(topics.connection.producer(transactional_id=topic)) as producer:
        producer.init_transactions()
        for is_good in (True, False, True, False):
            producer.begin_transaction()
            send_with(producer, topic, {0: [record(0, 0), record(0, 1)]})
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        stretches = resolve(topics.connection, topic)
        producer.begin_transaction()
        send_with(producer, topic, {0: [record(0, 0)]})
        assert resolve(topics.connection, topic) == stretches
        producer.abort_transaction()
    (stretch,) = stretches
    first, rest, end = all_steps(stretches)
    assert first.offsets == (0, 1, 6, 7) and (stretch.start, stretch.end) == (0, 12)
    assert rest[:4] == (stretch.source, 8, 12, ()) and rest.digest == first.digest and end.offsets is None
    assert all_steps(resumed_after(stretches, [first])) == [rest, end]
    assert all_steps([replace(stretch, start=12, last_digest=rest.digest)]) == [end]


def test_a_log_whose_beginning_was_deleted_is_refused(topics: Topics) -> None:
    topic = topics.make("short")
    send(topics.connection, topic, {0: [record(0, offset) for offset in range(20)]})
    (stretch,) = resolve(topics.connection, topic)
    topics.admin.delete_records({TopicPartition(topic, 0): 8})
    assert "partition 0: offsets 0 to 7 were deleted" in refused([stretch])
    assert resolve(topics.connection, topic) == [replace(stretch, start=8)]


def test_records_that_are_deleted_while_they_are_read_are_refused(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ALONE_RECORDS": 5, "BATCH_BYTES": 1000, "_FETCH_BYTES": 1000, "_POLL_RECORDS": 5}.items():
        monkeypatch.setattr(reading, name, value)
    topic = topics.make("shrinks")
    with closing(topics.connection.producer()) as producer:
        for first in range(0, 200, 10):  # a batch each, so that a fetch brings few of them
            send_with(producer, topic, {0: [record(0, offset, 0, 300) for offset in range(first, first + 10)]})
    found = read_partitions(resolve(topics.connection, topic))
    next(found)
    topics.admin.delete_records({TopicPartition(topic, 0): 199})
    with pytest.raises(KafkaRefused, match=r"offsets \d+ to 198 were deleted before they were read"):
        steps_of(found)


def test_a_topic_that_was_made_anew_is_refused(topics: Topics) -> None:
    topic = topics.make("anew")
    send(topics.connection, topic, {0: [record(0, 0)]})
    (stretch,) = resolve(topics.connection, topic)
    topics.delete(topic)
    assert "the topic was deleted" in refused([stretch])
    topics.make("anew")
    send(topics.connection, topic, {0: [record(0, 0)]})
    assert "deleted and made anew" in refused([stretch])


def test_stretches_lie_between_times_or_begin_at_offsets(topics: Topics) -> None:
    topic = topics.make("times", 2)
    send(topics.connection, topic, {0: [record(0, offset, 10 + offset) for offset in range(10)]})

    def ranges(**chosen: Any) -> list[tuple[int, int]]:
        return [(s.start, s.end) for s in resolve(topics.connection, topic, **chosen)]

    assert ranges() == [(0, 10), (0, 0)]
    assert ranges(since_ms=13 * HOUR_MS, until_ms=16 * HOUR_MS) == [(3, 6), (0, 0)]
    assert ranges(since_ms=13 * HOUR_MS + 1, until_ms=99 * HOUR_MS) == [(4, 10), (0, 0)]
    assert ranges(since_ms=99 * HOUR_MS) == [(10, 10), (0, 0)]
    assert ranges(until_ms=-1) == [(0, 0), (0, 0)]
    assert ranges(starts={0: 7}) == [(7, 10), (0, 0)]
    assert ranges(starts={0: 7}, until_ms=13 * HOUR_MS) == [(7, 7), (0, 0)]
    with pytest.raises(KafkaRefused, match="has 2 partitions, and no partition 2"):
        ranges(starts={2: 0})


def test_a_topic_that_is_not_there_is_refused_by_name(topics: Topics) -> None:
    with pytest.raises(KafkaRefused, match="there is no topic nowhere: make it with opicflow topics create"):
        resolve(topics.connection, "nowhere")


def test_reading_goes_on_when_a_broker_that_was_killed_is_back(
    lone_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ALONE_RECORDS": 50, "BATCH_BYTES": 20_000, "_FETCH_BYTES": 20_000}.items():
        monkeypatch.setattr(reading, name, value)
    connection = Connection(lone_kafka.brokers)
    with closing(connection.admin()) as admin:
        admin.create_topics([NewTopic("lone", 2, 1, topic_configs={"retention.ms": "-1", "flush.messages": "1"})])
        admin.wait_for_topics(["lone"])
    with closing(connection.producer()) as producer:
        for first in range(0, 2000, 100):
            records = [record(0, offset, 0, 300) for offset in range(first, first + 100)]
            send_with(producer, "lone", {0: records, 1: records[:20]})
    stretches = resolve(connection, "lone")
    whole = all_steps(stretches)
    found = read_partitions(stretches, patience_seconds=60)
    some = [next(found) for _ in range(3)]
    lone_kafka.kill()
    lone_kafka.restart()
    assert steps_of(iter(some)) + steps_of(found) == whole
