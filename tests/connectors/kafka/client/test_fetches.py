"""Fetched batches decode to the same records as with kafka-python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from opicflow.connectors.kafka.client import FetchedRecords, Record, fetches, message_batch
from opicflow.connectors.kafka.client.fetches import PartitionColumns
from opicflow.connectors.kafka.client.unpacking import UnpacksTooLarge, _snappy_bytes, decompress
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.connectors.kafka.record_reader import _arrived
from opicflow.schemas.crawl_events import Reason
from opicflow.schemas.framing import MOST_MESSAGE_BYTES, Decoder, published_writer
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.records import Importance
from support.bounded import bounded
from support.services import LocalKafka
from support.thorough import crossed

PARTITION = TopicPartition("events", 3)
NONE, GZIP, LZ4, ZSTD = 0, 1, 3, 4

parts = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 10**13), parts, parts, headers), min_size=1, max_size=12)


def batch_of(rows: Sequence[Any], codec: int = NONE, first: int = 0) -> bytes:
    """Return a batch of records: (offsets skipped before it, time, key, value, headers)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    offset = 0
    for left_out, time_ms, key, value, headers in rows:
        offset += left_out
        builder.append(offset, time_ms, key, value, headers)
        offset += 1
    data = bytearray(builder.build())
    data[:8] = first.to_bytes(8, "big")
    return bytes(data)


def fetched(kind: Any, data: bytes, start: int = 0, slices: int = 1000) -> Iterator[tuple[int, Any]]:
    """Yield the next offset of a fetch and what it returns, `slices` records at a time."""
    partition = kind(start, PARTITION, MemoryRecords(data))
    while partition:
        taken = partition.take(slices)
        yield partition.next_fetch_offset, taken


def parts_of(data: bytes, start: int = 0, checks: bool = True) -> list[FetchedRecords]:
    """Return the records of a fetch in the parts in which they come."""
    return list(PartitionColumns(start, PARTITION, MemoryRecords(data), check_crcs=checks).take(1 << 20))


def plain(record: Any) -> tuple[Any, ...]:
    values = {name: getattr(record, name) for name in Record._fields}
    return tuple({**values, "timestamp": -1 if record.timestamp is None else record.timestamp}.values())


def both(data: bytes, start: int = 0, slices: int = 1000) -> list[list[tuple[int, list[tuple[Any, ...]]]]]:
    theirs = fetched(Fetcher.PartitionRecords, data, start, slices)
    ours = fetched(PartitionColumns, data, start, slices)
    return [
        [(to, [plain(record) for record in records]) for to, records in theirs],
        [(to, [plain(record) for part in parts for record in part.records()]) for to, parts in ours],
    ]


@given(batches=st.lists(rows, min_size=1, max_size=4), codec=st.sampled_from([NONE, GZIP, LZ4, ZSTD]), data=st.data())
def test_records_equal_those_of_the_client(batches: list[Any], codec: int, data: st.DataObject) -> None:
    firsts = [0]
    for batch in batches:
        firsts.append(firsts[-1] + sum(1 + row[0] for row in batch))
    whole = b"".join(batch_of(batch, codec, first) for batch, first in zip(batches, firsts, strict=False))
    start = data.draw(st.integers(0, firsts[-1] - 1))
    theirs, ours = both(whole, start, data.draw(st.integers(1, 30)))
    assert ours == theirs
    assert any(records for _, records in ours)


@given(batches=st.lists(st.lists(parts, max_size=6), min_size=1, max_size=4), data=st.data())
def test_messages_are_values_in_any_order(batches: list[Any], data: st.DataObject) -> None:
    count = sum(map(len, batches))
    values = [value for batch in batches for value in batch]
    records = [(offset, 100 + offset, b"key", value) for offset, value in enumerate(values)]
    bounds = [0, *accumulate(map(len, batches))]
    fetched_parts = [FetchedRecords.of(0, records[begin:end]) for begin, end in pairwise(bounds)]
    order = data.draw(st.permutations(range(count)))
    places = np.array(order, np.int64)
    in_order = sorted(range(count), key=order.__getitem__)
    expected = MessageBatch.of(0, [(row, 100 + row, values[row]) for row in in_order], count)
    for name, wanted in vars(expected).items():
        found = getattr(message_batch(fetched_parts, 0, count, places), name)
        assert np.array_equal(found, wanted) if isinstance(wanted, np.ndarray) else found == wanted, name


@given(rows=st.lists(st.tuples(st.just(0), st.just(5), parts, parts, headers), min_size=4, max_size=9), data=st.data())
def test_a_batch_with_wrong_fields_is_corrupt_and_gives_no_wrong_record(rows: Any, data: st.DataObject) -> None:
    good = batch_of(rows)
    at = data.draw(st.integers(61, len(good) - 1))  # after its header
    bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    with pytest.raises(CorruptRecordError, match="crc"):
        parts_of(bad)
    try:
        found = parts_of(bad, checks=False)
    except CorruptRecordError:
        return
    assert sum(map(len, found)) == len(rows)


def test_a_count_that_is_too_low_is_corrupt() -> None:
    good = batch_of([(0, 5, b"k", b"v", [])] * 6)
    bad = good[:57] + (5).to_bytes(4, "big") + good[61:]
    with pytest.raises(CorruptRecordError, match="does not hold the 5 records"):
        parts_of(bad, checks=False)


BOUNDS = """
import numpy as np
from opicflow.connectors.kafka.client.fetches import _scan
from opicflow.schemas.varint import encode_signed as number

MOST = (1 << 63) - 1
huge = [MOST, MOST - 70, 1 << 62, 1 << 40, -MOST - 1, -(1 << 62), -2, 5]
sound = [0, 0, 0, -1, 3, 0]  # attributes, time, offset, key, value, headers

def scanned(parts, length=None):
    body = b"".join([parts[0].to_bytes(1, "little"), *map(number, parts[1:5]), b"abc", *map(number, parts[5:])])
    data = number(len(body) if length is None else length) + body
    return _scan(np.frombuffer(data, np.uint8), 0, 0, 0, np.empty((6, 1), np.int64)), len(data)

found, size = scanned(sound)
assert found == size
for at in (3, 4, 5):
    for value in huge:
        end, size = scanned([*sound[:at], value, *sound[at + 1 :]])
        assert end in (-1, size), (at, value, end)
for length in huge:
    end, size = scanned(sound, length)
    assert end == -1, (length, end)
print("in bounds")
"""


def test_hostile_lengths_are_refused_without_a_read_beyond_the_batch(tmp_path: Path) -> None:
    """A process of its own, with numba's checks of bounds and a cache of its own: it may crash."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout == "in bounds\n"


def test_a_count_of_records_takes_no_memory_before_it_is_checked() -> None:
    good = batch_of([(0, 5, b"k", b"v", [])] * 6)
    bad = good[:57] + (2**31 - 1).to_bytes(4, "big") + good[61:]
    with pytest.raises(CorruptRecordError, match="too short for its 2147483647 records"):
        parts_of(bad, checks=False)


def test_the_time_of_the_broker_counts_if_the_topic_is_set_so() -> None:
    data = bytearray(batch_of([(0, time_ms, b"k", b"v", []) for time_ms in (5, 9, 7, 1)]))
    data[22] |= 8  # LogAppendTime, among the attributes
    (part,) = parts_of(bytes(data), checks=False)
    assert [record.timestamp for record in part.records()] == [9, 9, 9, 9]


def test_aborted_and_open_transactions_are_not_read(kafka: LocalKafka, topic_prefix: str) -> None:
    connection = Connection(kafka.brokers)
    topic = f"{topic_prefix}transactions"
    with connection.admin() as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    producer = connection.producer(transactional_id=topic)
    producer.init_transactions()
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        for row in range(10):
            producer.send(topic, b"%d" % row, key=b"%d" % number, partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()
    partition = TopicPartition(topic, 0)
    with connection.consumer(isolation_level="read_committed", auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end, found = consumer.end_offsets([partition])[partition], []
        while consumer.position(partition) < end:
            found += [record for part in consumer.poll(1000).get(partition, []) for record in part.records()]
    assert [record.key for record in found] == [b"0"] * 10 + [b"2"] * 10
    assert all(after.offset > before.offset for before, after in pairwise(found))
    assert {type(record) for record in found} == {Record}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [17, 29, 48, 60])
def test_a_batch_that_is_shorter_than_its_head_is_corrupt(size: int, magic: int) -> None:
    data = bytearray(batch_of([(0, 5, None, b"x", [])]))[:size]
    data[8:12], data[16] = (size - 12).to_bytes(4, "big"), magic
    whole = batch_of([(0, 5, None, b"before", [])])
    with pytest.raises(CorruptRecordError):
        for _ in fetched(PartitionColumns, whole + bytes(data)):
            pass


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("length", [-65_536, -220, -1, 5, 1 << 30])
def test_a_batch_of_an_impossible_length_is_corrupt_or_not_read(length: int, magic: int) -> None:
    data = bytearray(batch_of([(0, 5, None, b"x" * 200, [])]))
    data[8:12], data[16] = length.to_bytes(4, "big", signed=True), magic
    try:
        assert parts_of(bytes(data)) == []
    except CorruptRecordError as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize("magic", [0, 1, 3, 127])
@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_a_batch_of_another_format_is_corrupt(codec: int, magic: int) -> None:
    data = bytearray(batch_of([(0, 5, None, b"x" * 200, [])], codec))
    data[16] = magic
    data[70:74] = bytes(4)
    data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptRecordError, match=f"has format {magic}, which is not read"):
        parts_of(bytes(data))


@pytest.mark.parametrize(("codec", "count"), crossed([GZIP, LZ4, ZSTD], [1, 20]))
def test_a_batch_that_unpacks_to_too_much_is_one_record_and_the_others_follow(codec: int, count: int) -> None:
    before, after = [(0, 5, None, b"before", [])], [(0, 7, None, b"after", [])]
    bomb = [(0, 6, None, bytes(MOST_MESSAGE_BYTES // count + 1), [])] * count
    data = batch_of(before, codec) + batch_of(bomb, codec, 1) + batch_of(after, codec, 1 + count)
    assert len(data) < 1 << 20
    found = bounded(lambda: parts_of(data), 400 << 20)
    first, marked, last = (part.record(0) for part in found)
    assert (first.offset, first.value, last.offset, last.value) == (0, b"before", 1 + count, b"after")
    assert marked.offset == count
    decoded = decode_messages(message_batch(found[1:2], count, count + 1), "events/3", published_writer)
    (reject,) = decoded.rejects
    assert (reject.reason, reject.offset) == (Reason.TOO_LARGE, count)
    assert f"a compressed batch of {count} or more records ends here" in reject.detail


def test_a_batch_of_very_many_records_is_unpacked_in_parts() -> None:
    rows = [(0, 5, None, b"", [])] * 200_000
    data = batch_of(rows, GZIP)
    assert len(data) < 1 << 20
    partition, most, offsets = PartitionColumns(0, PARTITION, MemoryRecords(data)), 0, list[int]()
    while partition:
        offsets += [offset for part in partition.take(1000) for offset in part.offsets.tolist()]
        most = max(most, len(partition._ready or ()))
    assert offsets == list(range(200_000)) and most <= 1 << 16


@given(rows=rows, start=st.integers(0, 5), slices=st.integers(1, 5), codec=st.sampled_from([NONE, GZIP]))
def test_parts_of_a_batch_are_its_records(rows: list[Any], start: int, slices: int, codec: int) -> None:
    data = batch_of(rows, codec)
    theirs, whole = both(data, start, slices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetches, "_MOST_RECORDS", 2)
        assert both(data, start, slices)[1] == whole == theirs


def test_a_corrupt_part_of_a_batch_is_found_before_its_first_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "_MOST_RECORDS", 2)
    good = batch_of([(0, 5, None, b"value", [])] * 9)
    bad = good[:-1] + b"\x7f"  # of headers
    with pytest.raises(CorruptRecordError, match="does not hold the 9 records"):
        PartitionColumns(0, PARTITION, MemoryRecords(bad), check_crcs=False).take(1)


def test_no_value_of_a_message_passes_for_a_batch_that_was_not_read() -> None:
    values = [b"opicflow: too-large: x", None, b""]
    read = FetchedRecords.of(3, [(offset, 5, None, value) for offset, value in enumerate(values)])
    unread = FetchedRecords.unread(3, 3, 5, 7)
    decoded = decode_messages(message_batch([read, unread], 0, 4), "events/3", published_writer)
    reasons = [(reject.offset, reject.reason) for reject in decoded.rejects]
    assert [offset for offset, reason in reasons if reason is Reason.TOO_LARGE] == [3]
    assert len(reasons) == 4


def test_a_result_that_was_not_read_is_broken_and_no_withdrawal() -> None:
    unread = Record(3, 9, 5, None, None, -1, -1 - 7)
    arrived = _arrived(unread, Decoder("Importance", published_writer), Importance)
    assert arrived.record is None and "7 or more records ends here" in arrived.broken


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_batch_up_to_the_bound_is_unpacked(codec: int) -> None:
    packed = batch_of([(0, 6, None, bytes(1000), [])] * 5, codec)
    size = len(decompress(packed[61:], codec, 1 << 20))
    assert len(decompress(packed[61:], codec, size)) == size
    with pytest.raises(UnpacksTooLarge):
        decompress(packed[61:], codec, size - 1)


def test_the_heads_of_snappy_blocks_say_how_large_they_become() -> None:
    assert _snappy_bytes(b"\xff\xff\xff\xff\x07rest") == (1 << 31) - 1
    head = bytes([0x82]) + b"SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    assert _snappy_bytes(head + (b"\0\0\0\4\x80\x80\x80\x20") * 3) == 3 * (64 << 20)
