"""Decompresses record batches up to a bound. kafka-python has none, and a batch may hold a thousand times its bytes."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from kafka import codec
from kafka.errors import CorruptRecordError

from opicflow.schemas.framing import MOST_MESSAGE_BYTES

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL_HEAD_BYTES = 16
_OFFSET_BYTES = 8
MOST_OLD_RECORDS = 100_000
"""In a compressed batch of a format before 0.11. kafka-python takes hundreds of bytes of memory for each."""


class UnpacksTooLarge(Exception):
    """A batch has more bytes or records than it may have, decompressed: `records` records or more."""

    def __init__(self, records: int = 1) -> None:
        super().__init__(records)
        self.records = records


def unpacked_records(batch: Any) -> bytes:
    """Return the bytes of the records of a batch of the present format. Raises `UnpacksTooLarge`."""
    packed = bytes(memoryview(batch._buffer)[batch._pos :])
    if batch.compression_type == batch.CODEC_NONE:
        return packed
    batch._assert_has_codec(batch.compression_type)
    return _unpacked(batch, packed, batch.records_count)


def unpack_old(batch: Any) -> None:
    """Decompress a batch of a format before 0.11, in it. Raises `UnpacksTooLarge`."""
    if batch._decompressed or batch.compression_type == batch.CODEC_NONE:
        return
    batch._assert_has_codec(batch.compression_type)
    head = batch.KEY_OFFSET_V1 if batch.magic else batch.KEY_OFFSET_V0
    try:
        _, packed = batch._read_key_value(head)
    except struct.error:
        packed = None
    if packed is None:
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} has no value to decompress")
    if batch.magic == 0 and batch.compression_type == batch.CODEC_LZ4:
        packed = _with_lz4_checksum(packed)
    unpacked = _unpacked(batch, packed, 1)
    least_bytes = batch.RECORD_OVERHEAD_V1 if batch.magic else batch.RECORD_OVERHEAD_V0
    at = records = 0
    while at < len(unpacked):
        size = int.from_bytes(unpacked[at + _OFFSET_BYTES : at + batch.LOG_OVERHEAD], "big", signed=True)
        at, records = at + batch.LOG_OVERHEAD + size, records + 1
        if size < least_bytes or at > len(unpacked):  # a negative size would lead back
            raise CorruptRecordError(f"the batch at offset {batch.base_offset} has a record of a wrong length")
        if records > MOST_OLD_RECORDS:
            raise UnpacksTooLarge(records)
    if records == 0:
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} is empty when decompressed")
    batch._buffer, batch._decompressed = memoryview(unpacked), True


def _unpacked(batch: Any, packed: bytes, records: int) -> bytes:
    try:
        return decompress(packed, batch.compression_type)
    except UnpacksTooLarge:
        raise UnpacksTooLarge(max(records, 1)) from None
    except Exception as problem:  # each codec has its own errors
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} cannot be decompressed ({problem})"
        ) from None


def decompress(packed: bytes, kind: int, most_bytes: int = MOST_MESSAGE_BYTES) -> bytes:
    """Decompress the bytes of a batch; `kind` is the codec's number in Kafka. Raises `UnpacksTooLarge`."""
    if kind == _GZIP:
        unpacked = _gunzip(packed, most_bytes + 1)
    elif kind == _LZ4 and codec.lz4 is not None:
        unpacked = codec.lz4.LZ4FrameDecompressor().decompress(packed, most_bytes + 1)
    elif kind == _ZSTD:
        with codec.zstd.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as reader:
            unpacked = reader.read(most_bytes + 1)
    elif kind == _SNAPPY and _snappy_bytes(packed) <= most_bytes:
        unpacked = codec.snappy_decode(packed)
    else:
        raise UnpacksTooLarge
    if len(unpacked) > most_bytes:
        raise UnpacksTooLarge
    return bytes(unpacked)


def _with_lz4_checksum(packed: bytes) -> bytes:
    """Return a frame of LZ4 with the right checksum of its head: Kafka before 0.10 computed it over other bytes."""
    end = 14 if packed[4:5] and packed[4] & 8 else 6  # bit 3: the head has the size of the content
    if codec.xxhash is None or len(packed) <= end:
        return packed
    checksum: bytes = codec.xxhash.xxh32(packed[4:end]).digest()[-2:-1]
    return packed[:end] + checksum + packed[end + 1 :]


def _gunzip(packed: bytes, most_bytes: int) -> bytes:
    found = bytearray()
    while packed and len(found) < most_bytes:
        decoder = zlib.decompressobj(31)
        found += decoder.decompress(packed, most_bytes - len(found))
        if not decoder.eof and len(found) < most_bytes:
            raise ValueError("it is cut off")
        packed = decoder.unused_data.lstrip(b"\0")
    return bytes(found)


def _snappy_bytes(packed: bytes) -> int:
    """Return how many bytes come out, as the heads of the blocks say: a block with others cannot be decompressed."""
    if not codec._detect_xerial_stream(packed):
        return _snappy_block_bytes(packed, 0)
    at, total = _XERIAL_HEAD_BYTES, 0
    while at < len(packed):
        (size,) = struct.unpack_from("!i", packed, at)
        if size < 1:
            raise ValueError("a block has no bytes")
        total += _snappy_block_bytes(packed, at + 4)
        at += 4 + size
    return total


def _snappy_block_bytes(packed: bytes, at: int) -> int:
    size = shift = 0
    while shift <= 28:
        size |= (packed[at] & 0x7F) << shift
        if packed[at] < 0x80:
            return size
        at, shift = at + 1, shift + 7
    raise ValueError("a block has no length")
