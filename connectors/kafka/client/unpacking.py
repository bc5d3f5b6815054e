"""Decompresses record batches up to a bound. kafka-python has none, and a batch may hold a thousand times its bytes."""

from __future__ import annotations

import io
import struct
import zlib

from kafka import codec
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from opicflow.schemas.framing import MOST_MESSAGE_BYTES

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL_HEAD_BYTES = 16


class UnpacksTooLarge(Exception):
    """A batch has more bytes than it may have, decompressed."""


def unpacked_records(batch: DefaultRecordBatch) -> bytes:
    """Return the bytes of the records of a batch. Raises `UnpacksTooLarge`."""
    packed = bytes(memoryview(batch._buffer)[batch._pos :])
    if batch.compression_type == batch.CODEC_NONE:
        return packed
    batch._assert_has_codec(batch.compression_type)
    try:
        return decompress(packed, batch.compression_type)
    except UnpacksTooLarge:
        raise
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
