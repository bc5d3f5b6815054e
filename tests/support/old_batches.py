"""Record batches in the formats of Kafka before 0.11."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32

Row = tuple[int, bytes | None, bytes | None]


def old_batch(rows: Sequence[Row], magic: int, codec: int, first: int = 0) -> bytes:
    """Return a batch of records (time, key, value) from the offset `first` on; codec 0 = not compressed."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for offset, (time_ms, key, value) in enumerate(rows, 0 if magic and codec else first):
        builder.append(offset, time_ms, key, value)
    data = bytearray(builder.build())
    if codec:  # a broker gives it the offset of its last record
        data[:8] = (first + len(rows) - 1).to_bytes(8, "big")
    return bytes(data)


def with_old_checksum(data: bytes) -> bytes:
    """Return a batch of one record, or a compressed one, with the right length and checksum."""
    length = (len(data) - 12).to_bytes(4, "big", signed=True)
    return data[:8] + length + calc_crc32(data[16:]).to_bytes(4, "big") + data[16:]
