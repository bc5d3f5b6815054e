"""Snapshots: a ledger as a row of checked chunks, and back.

    manifest …   JSON: state that is not columns, the shape of every column, the checksum of every chunk that follows
    columns …    the columns that the configuration uses, one after the other
    URLs …       the URL arena, cut every 4 MiB: since it only grows, full chunks never change until a URL is forgotten

Each chunk is a header (magic, version, kind, number, length, XXH64 of all of it but the checksum) and its payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xxhash

from opicflow.pipelines.ledger import layout as at
from opicflow.pipelines.ledger.errors import SnapshotRefused
from opicflow.pipelines.ledger.layout import Array, Book, Table

SNAPSHOT_VERSION = 1
CHUNK_BYTES = 4 << 20
_HEADER = struct.Struct("<4sHHII")
_CHECKSUM = struct.Struct("<Q")
_MAGIC = b"OPLS"
_MANIFEST, _COLUMN, _URLS = 0, 1, 2
_KINDS = ("manifest", "column", "urls")
PAYLOAD_BYTES = CHUNK_BYTES - _HEADER.size - _CHECKSUM.size

BOOK_COLUMNS = (
    "counts",
    "clocks",
    "rules",
    "modes",
    "dividends",
    "class_pages",
    "class_weights",
    "link_bonus",
    "forgotten",
)


class Chunk(NamedTuple):
    """A piece of a snapshot. A full chunk of URLs has the same name and bytes in every later snapshot."""

    name: str
    data: bytes


def write(state: dict[str, Any], table: Table, book: Book, used: tuple[str, ...], url_generation: int) -> list[Chunk]:
    """The chunks of a ledger: its state that is not columns, and its columns."""
    columns = dict(_columns(table, book, used))
    pieces = [piece for column in columns.values() for piece in _pieces(_bytes_of(column))]
    body = [_seal(_COLUMN, i, piece) for i, piece in enumerate(pieces)]
    url_pieces = _pieces(_bytes_of(book.urls[: int(book.counts[at.URL_END])]))
    urls = [_seal(_URLS, i, piece) for i, piece in enumerate(url_pieces)]
    manifest = json.dumps(
        {
            "state": state,
            "columns": {name: [_dtype_words(c.dtype), list(c.shape)] for name, c in columns.items()},
            "column_chunks": [_checksum_of(chunk) for chunk in body],
            "url_bytes": int(book.counts[at.URL_END]),
            "url_chunks": [_checksum_of(chunk) for chunk in urls],
        },
        separators=(",", ":"),
    ).encode()
    heads = [_seal(_MANIFEST, i, piece) for i, piece in enumerate(_pieces(memoryview(manifest + b"\n")))]
    return [
        *(Chunk(f"manifest-{i}", data) for i, data in enumerate(heads)),
        *(Chunk(f"column-{i}", data) for i, data in enumerate(body)),
        *(Chunk(f"urls-{url_generation}-{i}", data) for i, data in enumerate(urls)),
    ]


def read(chunks: Iterable[bytes]) -> tuple[dict[str, Any], dict[str, Array], Array]:
    """State, columns and URL arena of a snapshot; `SnapshotRefused` for anything but the chunks as written."""
    source = iter(chunks)
    text = b""
    number = 0
    while not text.endswith(b"\n"):
        text += bytes(_open(source, _MANIFEST, number))
        number += 1
    try:
        manifest = json.loads(text)
        state, url_bytes = manifest["state"], manifest["url_bytes"]
        shapes = {name: (_dtype_of(words), tuple(shape)) for name, (words, shape) in manifest["columns"].items()}
        checksums, url_checksums = iter(manifest["column_chunks"]), iter(manifest["url_chunks"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SnapshotRefused(f"the snapshot's manifest cannot be read: {problem}") from None
    number = 0
    columns = {}
    for name, (dtype, shape) in shapes.items():
        columns[name] = np.empty(shape, dtype)
        number = _fill(columns[name], source, _COLUMN, number, checksums)
    urls = np.empty(url_bytes, np.uint8)
    _fill(urls, source, _URLS, 0, url_checksums)
    if next(source, None) is not None:
        raise SnapshotRefused("the snapshot goes on after its last chunk: two snapshots were mixed up")
    return state, columns, urls


def _fill(column: Array, source: Iterator[bytes], kind: int, number: int, checksums: Iterator[int]) -> int:
    """Fill a column from the next chunks. Returns the number of the chunk after them."""
    room = _bytes_of(column)
    for begin in range(0, len(room), PAYLOAD_BYTES):
        payload = _open(source, kind, number, next(checksums, -1))
        if len(payload) != len(room[begin : begin + PAYLOAD_BYTES]):
            raise SnapshotRefused(f"{_KINDS[kind]} chunk {number} of the snapshot does not fit its column")
        room[begin : begin + PAYLOAD_BYTES] = payload
        number += 1
    return number


def _bytes_of(column: Array) -> memoryview:
    """A column's memory. Columns are contiguous."""
    return column.reshape(-1).view(np.uint8).data


def _columns(table: Table, book: Book, used: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    for name in BOOK_COLUMNS:
        yield name, getattr(book, name)
    yield "outbox_pages", book.outbox_pages[: int(book.counts[at.OUTBOX])]
    yield "outbox_amounts", book.outbox_amounts[: int(book.counts[at.OUTBOX])]
    yield "links", book.links[: int(book.counts[at.LINK_END])]
    yield "free", table.free[: int(book.counts[at.FREE])]
    for name in used:
        yield name, getattr(table, name)[: int(book.counts[at.SLOTS])]


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[begin : begin + PAYLOAD_BYTES] for begin in range(0, len(data), PAYLOAD_BYTES))


def _seal(kind: int, number: int, payload: memoryview) -> bytes:
    header = _HEADER.pack(_MAGIC, SNAPSHOT_VERSION, kind, number, len(payload))
    digest = xxhash.xxh64(header)
    digest.update(payload)
    return b"".join((header, _CHECKSUM.pack(digest.intdigest()), payload))


def _checksum_of(chunk: bytes) -> int:
    return int(_CHECKSUM.unpack_from(chunk, _HEADER.size)[0])


def _open(source: Iterator[bytes], kind: int, number: int, checksum: int | None = None) -> memoryview:
    """The payload of the next chunk, which must be this one."""
    where = f"{_KINDS[kind]} chunk {number} of the snapshot"
    chunk = next(source, None)
    if chunk is None:
        raise SnapshotRefused(f"{where} is missing: the snapshot is truncated, take an older one")
    if len(chunk) < _HEADER.size + _CHECKSUM.size or not chunk.startswith(_MAGIC):
        raise SnapshotRefused(f"{where} is not a chunk of a ledger's snapshot")
    _, version, its_kind, its_number, length = _HEADER.unpack_from(chunk)
    if version != SNAPSHOT_VERSION:
        raise SnapshotRefused(f"{where} has version {version}, this code knows {SNAPSHOT_VERSION}: update opicflow")
    payload = memoryview(chunk)[_HEADER.size + _CHECKSUM.size :]
    digest = xxhash.xxh64(chunk[: _HEADER.size])
    digest.update(payload)
    if len(payload) != length or digest.intdigest() != _checksum_of(chunk):
        raise SnapshotRefused(f"{where} is truncated or altered: its checksum does not fit, take an older snapshot")
    if (its_kind, its_number) != (kind, number) or checksum not in (None, _checksum_of(chunk)):
        its_name = _KINDS[its_kind] if its_kind < len(_KINDS) else str(its_kind)
        raise SnapshotRefused(
            f"{where} is wanted, but {its_name} chunk {its_number} (of this or another snapshot) comes: "
            "the chunks are out of order or mixed up"
        )
    return payload


def _dtype_words(dtype: np.dtype[Any]) -> str:
    return "page-row-1" if dtype == at.PAGE_ROW else dtype.str


def _dtype_of(words: str) -> np.dtype[Any]:
    return at.PAGE_ROW if words == "page-row-1" else np.dtype(words)
