"""A topic as one log: its order depends on the data only, and a read can continue at any batch."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from kafka import TopicPartition

from opicflow.connectors.kafka import topic_log
from opicflow.connectors.kafka.topic_log import TopicBatch, TopicRange, digest_of, read_topic, topic_range
from support.fake_topic import (
    TOPIC,
    Cluster,
    Consumer,
    Partition,
    Record,
    advanced_to,
    all_steps,
    filled,
    in_order,
    log_of,
    ranges_of,
    record,
    records_of,
    step_of,
)
from support.thorough import examples

LATEST = (1 << 63) - 1

sizes = st.fixed_dictionaries(
    {
        "BATCH_RECORDS": st.sampled_from([1, 2, 3, 5, 8, 50]),
        "BATCH_BYTES": st.sampled_from([1, 100, 300, 1 << 20]),
        "_READY_RECORDS": st.sampled_from([1, 2, 4, 9]),
        "_BUFFERED_RECORDS": st.sampled_from([1, 12, 1000]),
        "_BUFFERED_BYTES": st.sampled_from([1, 500, 1 << 20]),
    }
)

quick = examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Make partitions of any times, with gaps before, between and after their records."""
    moments = st.sampled_from(draw(st.sampled_from([[0, 1], [-1, 0, 5, 5, 7, 9], [-1, 3, LATEST - 1, LATEST]])))
    partitions = {}
    for number in range(draw(st.integers(1, 4))):
        times = draw(st.lists(moments, max_size=14))
        first = at = draw(st.integers(0, 3))
        records = []
        for time_ms in sorted(times) if draw(st.booleans()) else times:
            at += draw(st.sampled_from([0, 0, 0, 1, 4]))
            made = record(number, at, 0, draw(st.sampled_from([0, 0, 0, 30, 200])))
            records.append(made._replace(timestamp=time_ms))
            at += 1
        partitions[number] = Partition(records, first, at + draw(st.integers(0, 2)))
    return Cluster(partitions)


def set_sizes(monkeypatch: pytest.MonkeyPatch, chosen: dict[str, int]) -> None:
    for name, value in chosen.items():
        monkeypatch.setattr(topic_log, name, value)


@quick
@given(clusters(), sizes, st.integers(0, 1000))
@example(Cluster({0: Partition([])}), {}, 0)
@example(Cluster({0: Partition([], 3, 9), 1: Partition([record(1, 2, 0)], 2, 4)}), {}, 0)
def test_the_order_does_not_depend_on_fetches_and_batch_sizes(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, chosen: dict[str, int], seed: int
) -> None:
    set_sizes(monkeypatch, chosen)
    log = log_of(replace(cluster, seed=seed))
    assert records_of(all_steps(log)) == in_order(log, cluster)


@quick
@given(clusters(), sizes, st.integers(0, 1000))
def test_batches_are_contiguous_and_complete_and_within_their_limits(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, chosen: dict[str, int], seed: int
) -> None:
    set_sizes(monkeypatch, chosen)
    log = replace(log_of(replace(cluster, seed=seed)), start=100)
    steps = all_steps(log)
    assert all(before.end == after.start for before, after in pairwise(steps))
    assert [steps[0].start, steps[-1].end] == [100, 100 + log.records] if steps else log.records == 0
    assert all(step.records for step in steps[:-1])
    values = {
        (f"{TOPIC}/{number}", r.offset): len(r.value or b"")
        for number, partition in cluster.partitions.items()
        for r in partition.records
    }
    at = {one.partition: one.start for one in log.partitions}
    for step in steps:
        positions = [position for position, _, _ in step.records]
        assert positions == sorted(set(positions))
        assert all(step.start <= position < step.end for position in positions)
        assert step.size_bytes == sum(values[where, offset] for _, where, offset in step.records)
        assert len(positions) <= topic_log.BATCH_RECORDS
        assert step.size_bytes <= topic_log.BATCH_BYTES or len(positions) == 1
        after = {one.partition: one.at for one in step.reached}
        assert list(after) == sorted(at)
        assert sum(after.values()) - sum(at.values()) == step.end - step.start > 0
        at = after
    assert at == {one.partition: one.end for one in log.partitions}


@quick
@given(clusters(), sizes, sizes, st.integers(0, 1000), st.data())
def test_reading_continues_after_any_batch_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
    cluster: Cluster,
    chosen: dict[str, int],
    others: dict[str, int],
    seed: int,
    data: st.DataObject,
) -> None:
    set_sizes(monkeypatch, chosen)
    log = log_of(cluster)
    steps = all_steps(log)
    done = steps[: data.draw(st.integers(0, len(steps)))]
    again = log_of(replace(cluster, seed=seed))
    if done:
        again = advanced_to(again, done[-1])
    set_sizes(monkeypatch, others)
    rest = all_steps(again)
    assert records_of(done + rest) == in_order(log, cluster)
    if steps:
        last = (done + rest)[-1]
        assert (last.end, last.reached) == (log.records, steps[-1].reached)


@quick
@given(st.lists(st.integers(0, 3), max_size=60), sizes)
def test_a_log_with_increasing_times_is_restored_from_any_partitions(
    monkeypatch: pytest.MonkeyPatch, where: list[int], chosen: dict[str, int]
) -> None:
    set_sizes(monkeypatch, chosen)
    cluster = filled([], [], [], [])
    sent = []
    for time_ms, number in enumerate(where):
        partition = cluster.partitions[number]
        partition.records.append(record(number, partition.end)._replace(timestamp=time_ms))
        sent.append((time_ms, f"{TOPIC}/{number}", partition.end))
        partition.end += 1
    assert records_of(all_steps(log_of(cluster))) == sent


def times(*of_one: list[int]) -> Cluster:
    """Return partitions of records with these times."""
    cluster = filled(*([0.0] * len(one) for one in of_one))
    for partition, ours in zip(cluster.partitions.values(), of_one, strict=True):
        partition.records = [r._replace(timestamp=t) for r, t in zip(partition.records, ours, strict=True)]
    return cluster


def test_a_late_record_follows_the_one_before_it() -> None:
    steps = all_steps(log_of(times([5, 1, 2, 6], [4, 5, 6])))
    order = [(where[-1], offset) for _, where, offset in records_of(steps)]
    assert order == [("1", 0), ("0", 0), ("0", 1), ("0", 2), ("1", 1), ("0", 3), ("1", 2)]


def test_partitions_are_merged_record_by_record_in_whole_batches() -> None:
    (step,) = all_steps(log_of(times([0, 2, 4, 6], [1, 3, 5, 7])))
    assert [where[-1] for _, where, _ in step.records] == list("01010101")


def test_a_single_partition_gives_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_log, "BATCH_RECORDS", 8)
    monkeypatch.setattr(topic_log, "_READY_RECORDS", 8)
    steps = all_steps(log_of(filled([0.0] * 10)))
    assert [step.offsets for step in steps] == [list(range(8)), [8, 9]]


def test_a_batch_may_be_as_large_as_the_limit_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled([0.0] * 5)
    size = len(cluster.partitions[0].records[0].value or b"")
    for limit, most in ((2 * size, 2), (2 * size - 1, 1)):
        monkeypatch.setattr(topic_log, "BATCH_BYTES", limit)
        assert max(len(step.records) for step in all_steps(log_of(cluster))) == most


def test_an_empty_topic_has_no_batches() -> None:
    assert all_steps(log_of(filled([], []))) == []


def test_records_after_the_end_are_not_read() -> None:
    (step,) = all_steps(log_of(filled([0, 0, 0, 0]), start=1, end=3))
    assert (step.start, step.end, step.offsets) == (0, 2, [1, 2])


def test_progress_of_a_partition_has_the_digest_of_its_last_record() -> None:
    cluster = times([1, 3], [], [2])
    (step,) = all_steps(log_of(cluster))
    digests = [digest_of(cluster.partitions[number].records[-1]) for number in (0, 2)]
    assert step.reached == ((0, 2, digests[0]), (1, 0, ""), (2, 1, digests[1]))


def test_partitions_without_progress_start_where_they_did() -> None:
    log = log_of(times([1, 2], [3, 4]))
    left = log.advanced_to(7, (topic_log.PartitionProgress(0, 1, "d"),))
    assert (left.start, left.records) == (7, 3)
    assert [(one.start, one.last_digest) for one in left.partitions] == [(1, "d"), (0, "")]


def test_the_order_of_the_ranges_does_not_matter() -> None:
    input_ranges = ranges_of(times([1, 1], [1, 1], [0, 1]))
    assert all_steps(topic_range(input_ranges[::-1])) == all_steps(topic_range(input_ranges))


def test_the_source_of_a_topic_is_its_id() -> None:
    assert log_of(times([1], [2])).source == "kafka/id-1"


def test_a_damaged_message_is_rejected_with_its_position_in_the_topic() -> None:
    cluster = times([0, 2, 4], [1, 3, 5])
    damaged = cluster.partitions[1].records
    damaged[1] = damaged[1]._replace(value=b"{broken")
    damaged[2] = damaged[2]._replace(value=None)
    cluster.partitions[0].records.pop(1)  # compacted: its position has no record
    (batch,) = read_topic(log_of(cluster))
    decoded = batch.decode()
    assert decoded.where is not None and decoded.original is not None
    assert decoded.events.offset.tolist() == [0, 1, 4]
    assert [(r.source, r.offset, r.bytes) for r in decoded.rejects] == [
        ("kafka/id-1", 2, b"{broken"),
        ("kafka/id-1", 5, b""),
    ]
    assert [decoded.where(position) for position in (0, 1, 2, 4, 5)] == [
        ("events/0", 0),
        ("events/1", 0),
        ("events/1", 1),
        ("events/0", 2),
        ("events/1", 2),
    ]
    assert decoded.original(4) == cluster.partitions[0].records[-1].value


# -- memory


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, {"BATCH_RECORDS": 5, "_READY_RECORDS": 4})


def partitions_of(batch: TopicBatch) -> set[str]:
    return {where for _, where, _ in step_of(batch).records}


def test_memory_does_not_grow_when_one_partition_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    cluster = times([9] * 3000, list(range(8)) * 50 + [10])
    found = read_topic(log_of(cluster))
    taken = 0
    for batch in found:
        taken += batch.end - batch.start
        assert cluster.held - taken <= 2 * (4 + 100)  # and the records of one fetch
        if f"{TOPIC}/0" in partitions_of(batch):
            break
    assert taken >= 400
    found.close()  # type: ignore[attr-defined]
    assert cluster.closed == 3  # a consumer for each partition, and one for the topic


def test_waiting_for_a_slow_partition_does_not_use_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    cluster = times([0] * 500, [1] * 50)
    whole = records_of(all_steps(log_of(cluster)))
    cluster.held, held = 0, []

    class Slow(Consumer):
        def fetched(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
            if self.assigned[0].partition == 1 and self.polls < 100:
                self.polls += 1
                held.append(self.cluster.held)
                return {}
            return super().fetched(timeout_ms)

    cluster.consumer = lambda **_: Slow(cluster)  # type: ignore[method-assign]
    assert records_of(all_steps(log_of(cluster))) == whole
    assert len(held) == 100 and max(held) <= 4 + 100


@pytest.mark.parametrize("chosen", [{"_BUFFERED_RECORDS": 30}, {"_BUFFERED_BYTES": 30 * 40}])
def test_with_many_partitions_fewer_records_of_each_are_kept(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, int]
) -> None:
    set_sizes(monkeypatch, chosen)
    cluster = filled(*([0.0] * 40 for _ in range(10)))

    class Single(Consumer):
        def fetched(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
            found = {one: self.cluster.partitions[one.partition].records[self.at[one] :][:1] for one in self.assigned}
            self.at = {one: at + len(found[one]) for one, at in self.at.items()}
            self.cluster.held += 1
            return found

    cluster.consumer = lambda **_: Single(cluster)  # type: ignore[method-assign]
    found = read_topic(log_of(cluster))
    next(found)
    assert 20 <= cluster.held <= 50
    found.close()  # type: ignore[attr-defined]


def consumer_settings(partitions: int) -> dict[str, Any]:
    """Return the settings of the consumers."""
    cluster, settings = filled(*([0.0] for _ in range(partitions))), dict[str, Any]()

    def consumer(**more: Any) -> Consumer:
        settings.update(more)
        return Consumer(cluster)

    cluster.consumer = consumer  # type: ignore[method-assign]
    assert all_steps(log_of(cluster))
    return settings


def test_with_many_partitions_less_of_each_is_fetched_at_once() -> None:
    assert [consumer_settings(many)["max_partition_fetch_bytes"] >> 10 for many in (1, 8, 16, 300)] == [
        2048,
        2048,
        1024,
        128,
    ]


def test_a_range_counts_its_offsets() -> None:
    assert TopicRange("s", tuple(ranges_of(filled([0, 0], [], [0])))).records == 3
