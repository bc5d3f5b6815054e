"""Records that a worker sends after another one has taken over: a reader keeps the newest record of each key."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.late_records import LateRecords
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import BY_KEY, records
from opicflow.connectors.kafka.result_follower import ResultFollower
from opicflow.connectors.kafka.topics import make, specs
from support.paths import TOP
from support.services import LocalKafka

Sent = tuple[int, str, str | None]
"""The time of a record, its key, and its value; None = a tombstone."""


def newest(records: Sequence[Sent]) -> dict[str, str]:
    """Return what a reader has that believes every record."""
    found: dict[str, str] = {}
    for _, key, value in records:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def read(arrived: Sequence[Sent], late: LateRecords) -> dict[str, str]:
    """Return what a reader has that leaves out late records."""
    return newest([one for one in arrived if not late.is_late("importance", one[1].encode(), one[0])])


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Sent], list[Sent]]:
    """Return the records of a log, and how they arrive from several workers: each sends a run of records, in order."""
    rows = draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.booleans()), min_size=1, max_size=20))
    log, time_ms = list[Sent](), 1_000
    for number, (later, key, is_gone) in enumerate(rows):
        time_ms += later if all(time_ms != at or key != other for at, other, _ in log[-3:]) else 1
        log.append((time_ms, key, None if is_gone else f"{key}{number}"))
    ends = sorted(draw(st.sets(st.integers(1, len(log)), max_size=3)) | {len(log)})
    runs, reached = list[list[Sent]](), 0
    for end in ends:  # a worker goes on at or before the position that was reached
        runs.append(log[draw(st.integers(0, reached)) : end])
        reached = end
    arrived: list[Sent] = []
    while any(runs):
        run = draw(st.sampled_from([run for run in runs if run]))
        arrived.append(run.pop(0))
    return log, arrived


@given(streams())
def test_a_reader_ends_with_the_newest_record_of_each_key_in_any_order_of_workers(
    drawn: tuple[list[Sent], list[Sent]],
) -> None:
    log, arrived = drawn
    assert read(arrived, LateRecords()) == newest(log)


def test_without_it_the_last_worker_wins() -> None:
    """The planted fault: the law above is not true of a reader that believes every record."""
    log: list[Sent] = [(1, "a", "a0"), (2, "a", None)]
    assert newest([*log, log[0]]) != newest(log) == read([*log, log[0]], LateRecords())


def test_a_repeated_record_is_not_late() -> None:
    late = LateRecords()
    assert [late.is_late("importance", b"a", time_ms) for time_ms in (5, 5, 4, 6, 5)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert not late.is_late("refresh-schedule", b"a", 4)


def test_memory_is_bounded_and_the_keys_that_were_seen_last_are_kept() -> None:
    late = LateRecords(most_keys=100)
    for number in range(1000):
        assert not late.is_late("importance", b"%d" % number, 10)
    assert len(late._recent) + len(late._before) <= 200
    assert all(late.is_late("importance", b"%d" % number, 9) for number in range(900, 1000))


# -- on a broker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def prefix(kafka: LocalKafka, topic_prefix: str) -> str:
    make(Connection(kafka.brokers), specs(topic_prefix, 1, 1, 1))
    return topic_prefix


@pytest.mark.parametrize(("stream", "name"), [("importance", "Importance-1"), ("site-importance", "SiteImportance-1")])
def test_readers_leave_out_what_a_worker_sends_after_another_took_over(
    kafka: LocalKafka, prefix: str, stream: str, name: str
) -> None:
    connection = Connection(kafka.brokers)
    value = (TOP / "tests" / "golden" / f"{name}.avro-single").read_bytes()
    with Publisher(connection) as publisher:
        for time_ms, sent in ((1000, value), (1001, value), (1000, value), (1002, None), (1001, value)):
            publisher.send(prefix + stream, b"a", sent, 0, time_ms)
    times = [one.time_ms for one in records(connection, stream, prefix=prefix)]
    assert times == [1000, 1001, 1002]
    follower = ResultFollower(connection, dict.fromkeys(BY_KEY), prefix)
    try:
        for _ in range(2):  # the second time after the whole topic is read again
            found: list[int] = []
            while follower.behind() or not found:
                found += [one.offset for name, some in follower.poll(500) for one in some if name == stream]
            assert found == [0, 1, 3]
            follower.read_again(stream)
    finally:
        follower.close()
