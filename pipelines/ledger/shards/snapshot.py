"""Snapshots: a ledger as a sequence of chunks with checksums.

    manifest …   JSON and its own digest: state that is not columns, column shapes, the checksum of every chunk
    columns …    the columns that the configuration uses, one after the other
    URLs …       the URL arena, cut every 4 MiB: since it only grows, full chunks never change until a URL is forgotten

Each chunk is a header (magic, version, kind, number, length, XXH64 of all but the checksum) and its payload.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xxhash

from opicflow.pipelines.ledger.config import LedgerConfig, is_whole, shown
from opicflow.pipelines.ledger.errors import LedgerError, SnapshotRefused
from opicflow.pipelines.ledger.ledger_state import Reviews, judged_columns
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import links
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.refresh_rows import stored_rows
from opicflow.pipelines.ledger.pages.room import new_book, new_table, recent_visits
from opicflow.pipelines.ledger.pages.space import LongColumn, Space, in_memory
from opicflow.schemas.arrays import Array, Ints

SNAPSHOT_VERSION = 1
CHUNK_BYTES = 4 << 20
_HEADER = struct.Struct("<4sHHII")
_CHECKSUM = struct.Struct("<Q")
HEAD_BYTES = _HEADER.size + _CHECKSUM.size
"""The number of bytes at the beginning of a chunk: its kind, and a checksum of the whole."""
_MAGIC = b"OPLS"
_MANIFEST, _COLUMN, _URLS = 0, 1, 2
_KINDS = ("manifest", "column", "urls")
_DIGEST_BYTES = 16
_NO_WORDS = np.zeros(0, np.int64)
_WORD = np.dtype(np.int64)
_SLOTS_AT_ONCE = 1 << 16
_ROWS = {at.PAGE_ROW: "page-row-1", at.REFRESH_ROW: "refresh-row-1"}
_ANY = -1  # the checksum of a chunk that is not known
WRONG_VALUES = (ArithmeticError, AttributeError, LedgerError, LookupError, MemoryError, TypeError, ValueError)
"""The errors that values of a wrong type or size cause where they are used: a snapshot may contain anything."""
PAYLOAD_BYTES = CHUNK_BYTES - HEAD_BYTES

ANNOUNCED_COLUMNS = ("announced_sites", "announced_counts")
"""The worth of announcements."""
JUDGED_COLUMNS = tuple(judged_columns(Reviews()))
"""The pages by which discovery learns; there only where it does, as is the order of URLs."""
QUALITY_COLUMN = "quality"
"""The steps of the qualities of pages; empty without qualities below 1."""
NO_QUALITIES = np.zeros(0, np.uint8)
RECENT_COLUMNS = ("recent_visits", "recent_visits_before")


class Chunk(NamedTuple):
    """A piece of a snapshot. A full chunk of URLs has the same name and bytes in every later snapshot."""

    name: str
    data: bytes


class _Source(NamedTuple):
    """A column as it is stored: its type and shape, and its rows, which are made when they are needed."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    rows: Callable[[], Iterable[Array]]


def write(
    state: dict[str, Any],
    config: LedgerConfig,
    table: Table,
    book: Book,
    judged: dict[str, Array],
    quality: Array,
) -> Iterator[Chunk]:
    """Yield the chunks of a ledger: its state that is not columns, and its columns.

    The manifest comes first and has the checksums of all others, so these are made twice: a snapshot never is in memory
    as a whole. The ledger must stay as it is until the last chunk is made.
    """
    columns = _sources(config, table, book, judged, quality)
    urls = book.urls[: int(book.counts[0].url_end)]
    url_source = {"urls": _Source(urls.dtype, urls.shape, lambda: (urls,))}
    manifest = json.dumps(
        {
            "state": state,
            "columns": {name: [_dtype_words(one.kind), list(one.shape)] for name, one in columns.items()},
            "column_chunks": [_digest_of(_header(_COLUMN, i, piece), piece) for i, piece in _numbered(columns)],
            "url_bytes": len(urls),
            "url_chunks": [_digest_of(_header(_URLS, i, piece), piece) for i, piece in _numbered(url_source)],
        },
        separators=(",", ":"),
    ).encode()
    text = manifest + _digest(manifest) + b"\n"
    for i, piece in enumerate(_pieces((memoryview(text),))):
        yield Chunk(f"manifest-{i}", _seal(_MANIFEST, i, piece))
    for i, piece in _numbered(columns):
        yield Chunk(f"column-{i}", _seal(_COLUMN, i, piece))
    for i, piece in _numbered(url_source):
        yield Chunk(f"urls-{state['url_generation']}-{i}", _seal(_URLS, i, piece))


def _numbered(columns: dict[str, _Source]) -> Iterator[tuple[int, memoryview]]:
    return enumerate(piece for one in columns.values() for piece in _pieces(map(_bytes_of, one.rows())))


class SnapshotContent(NamedTuple):
    """The content of a snapshot."""

    state: dict[str, Any]
    config: LedgerConfig
    columns: dict[str, Array]
    """All but the URLs. Those of pages, and links, are in the space that `read` was given."""
    urls: LongColumn
    url_bytes: int


def read(chunks: Iterable[bytes], space: Space = in_memory) -> SnapshotContent:
    """The content of a snapshot; `SnapshotRefused` for anything but the chunks as written."""
    source = iter(chunks)
    manifest = _read_manifest(source)
    try:
        state = manifest["state"]
        config = LedgerConfig.from_json(state["config"])
        book = new_book(config)
        empty = columns_of(config, new_table(config), book, judged_columns(Reviews()), NO_QUALITIES)
        shapes = {name: _shape(words, empty[name]) for name, words in manifest["columns"].items()}
        checksums, url_checksums = list(manifest["column_chunks"]), list(manifest["url_chunks"])
        url_bytes = manifest["url_bytes"]
    except WRONG_VALUES as problem:
        raise _no_ledger(f"its manifest cannot be read: {shown(problem)}") from None
    if list(shapes) != list(empty) or len(manifest) != 5 or not is_whole(url_bytes, 0, 1 << 50):
        raise _no_ledger("its columns are not those of its configuration")
    room = {name: math.prod(shape) * empty[name].itemsize for name, shape in shapes.items()}
    needed = sum(_chunks_for(size) for size in room.values())
    if (needed, _chunks_for(url_bytes)) != (len(checksums), len(url_checksums)):
        raise _no_ledger("its columns do not have the chunks that they need")
    number, columns = 0, {}
    of_pages = {"links", *stored_columns(config)}
    for name, shape in shapes.items():
        its_space = space if name in of_pages else in_memory
        columns[name] = _room_for(its_space(np.empty((0, *shape[1:]), empty[name].dtype)), shape[0])
        number = _fill(columns[name], source, _COLUMN, number, checksums)
    urls = space(np.empty(0, np.uint8))
    _fill(_room_for(urls, url_bytes), source, _URLS, 0, url_checksums)
    if next(source, None) is not None:
        raise SnapshotRefused("the snapshot goes on after its last chunk: two snapshots were mixed up")
    return SnapshotContent(state, config, columns, urls, url_bytes)


def _room_for(column: LongColumn, rows: int) -> Array:
    try:
        return column.resized(rows)
    except (MemoryError, ValueError):
        raise _no_ledger("a column is larger than the memory") from None


def refuse(problem: str) -> None:
    """Refuse a snapshot whose chunks are as they were written, but make no ledger."""
    if problem:
        raise _no_ledger(problem)


def _no_ledger(problem: str) -> SnapshotRefused:
    return SnapshotRefused(f"the snapshot makes no ledger: {problem}: take an older one")


def _read_manifest(source: Iterator[bytes]) -> dict[str, Any]:
    text = b""
    number = 0
    while not text.endswith(b"\n"):
        text += bytes(_open(source, _MANIFEST, number))
        number += 1
    manifest, digest = text[: -_DIGEST_BYTES - 1], text[-_DIGEST_BYTES - 1 : -1]
    if _digest(manifest) != digest:
        raise SnapshotRefused(
            "the manifest of the snapshot is of two: its chunks were mixed up, take an older snapshot"
        )
    try:
        parsed = json.loads(manifest)
    except (ValueError, RecursionError) as problem:
        raise _no_ledger(f"its manifest cannot be read: {shown(problem)}") from None
    if type(parsed) is not dict:
        raise _no_ledger("its manifest is none")
    return parsed


def _shape(words: Any, empty: Array) -> tuple[int, ...]:
    """The shape of a column in a manifest, where it has the type and the inner shape of the empty one."""
    kind, shape = words
    if (
        kind != _dtype_words(empty.dtype)
        or type(shape) is not list
        or not all(is_whole(size, 0, 1 << 50) for size in shape)
        or shape[1:] != list(empty.shape[1:])
        or len(shape) != empty.ndim
    ):
        raise ValueError(f"a column is {shown(words)}")
    return tuple(shape)


def _chunks_for(size: int) -> int:
    return -(-size // PAYLOAD_BYTES)


def _digest(manifest: bytes) -> bytes:
    """Binds the chunks of a manifest together."""
    return xxhash.xxh64_hexdigest(manifest).encode()


def _fill(column: Array, source: Iterator[bytes], kind: int, number: int, checksums: list[int]) -> int:
    """Fill a column from the next chunks. Returns the number of the chunk after them."""
    room = _bytes_of(column)
    for begin in range(0, len(room), PAYLOAD_BYTES):
        payload = _open(source, kind, number, checksums[number])
        if len(payload) != len(room[begin : begin + PAYLOAD_BYTES]):
            raise SnapshotRefused(f"{_KINDS[kind]} chunk {number} of the snapshot does not fit its column")
        room[begin : begin + PAYLOAD_BYTES] = payload
        number += 1
    return number


def _bytes_of(column: Array) -> memoryview:
    """A column's memory. Columns are contiguous."""
    return column.reshape(-1).view(np.uint8).data


def stored_columns(config: LedgerConfig) -> tuple[str, ...]:
    """The columns of pages in a snapshot: the refresh rows of all slots, and the others as they are in memory."""
    of_pages = {name: column for name, column in at.OF_TABLE.items() if name != "free"}
    return tuple(name for name, column in of_pages.items() if column.is_stored and column.is_needed(config))


def columns_of(
    config: LedgerConfig, table: Table, book: Book, judged: dict[str, Array], quality: Array
) -> dict[str, Array]:
    """Everything that is a ledger's state and a column, but the URLs, in the order of a snapshot."""
    counts, memory = book.counts[0], {**table._asdict(), **book._asdict()}
    memory |= {name: at.flat(memory[name]) for name in at.ACCOUNTS}
    other_forms: dict[str, Callable[[], dict[str, Array]]] = {
        "sums": lambda: _certified_columns(book),
        "links": lambda: {"links": _NO_WORDS},
        "recent": lambda: dict(zip(RECENT_COLUMNS, recent_visits(book), strict=True)),
        "url_order": lambda: {"url_order": book.url_order, **judged},
        "announced": lambda: _announced_columns(book),
    }
    columns: dict[str, Array] = {}
    for name, column in at.COLUMNS.items():
        if column.is_stored and column.is_needed(config):
            in_use = slice(int(counts[column.rows]) if name in at.COUNTED else None)
            columns |= other_forms[name]() if name in other_forms else {name: memory[name][in_use]}
    return {**columns, QUALITY_COLUMN: quality}


def _announced_columns(book: Book) -> dict[str, Array]:
    """The rows of sites that had an announcement."""
    sites = np.flatnonzero(book.announced.any(axis=1))
    return dict(zip(ANNOUNCED_COLUMNS, (sites.astype(np.int32), book.announced[sites]), strict=True))


def _sources(
    config: LedgerConfig, table: Table, book: Book, judged: dict[str, Array], quality: Array
) -> dict[str, _Source]:
    """All columns as they are stored: remembered links in the order of their slots, as page ids, and refresh rows."""
    slots, words = int(book.counts[0].slots), 0
    if config.remember_links:
        words = sum(block.words for block in _link_blocks(table, book))
    counts = book.counts.copy()
    counts[0].link_end, counts[0].link_stale = words, 0
    arrays = columns_of(config, table, book._replace(counts=counts), judged, quality)
    sources = {name: _Source(column.dtype, column.shape, partial(_alone, column)) for name, column in arrays.items()}
    sources["refresh"] = _Source(table.refresh.dtype, (slots,), partial(stored_rows, table, slots))
    if config.remember_links:
        sources["links"] = _Source(_WORD, (words,), lambda: _stored_links(table, book))
        sources["link_start"] = _Source(_WORD, (slots,), lambda: (block.starts for block in _link_blocks(table, book)))
    return sources


def _alone(column: Array) -> tuple[Array]:
    return (column,)


class _LinkBlock(NamedTuple):
    """Slots from `first` to `last`: where the links of earlier slots end, where each slot's start, and their words."""

    first: int
    last: int
    end: int
    starts: Array
    words: int


def _link_blocks(table: Table, book: Book) -> Iterator[_LinkBlock]:
    """Yield blocks of slots until all had their turn."""
    slots, end = int(book.counts[0].slots), 0
    for first in range(0, slots, _SLOTS_AT_ONCE):
        last = min(first + _SLOTS_AT_ONCE, slots)
        starts = np.zeros(last - first, np.int64)
        words = int(links.store_links(table, book, first, last, end, starts, _NO_WORDS))
        yield _LinkBlock(first, last, end, starts, words)
        end += words


def _stored_links(table: Table, book: Book) -> Iterator[Array]:
    """Yield the stored links of all slots, a block at a time."""
    for block in _link_blocks(table, book):
        stored = np.zeros(block.words, np.int64)
        if block.words:
            links.store_links(table, book, block.first, block.last, block.end, block.starts, stored)
        yield stored


def links_of(table: Table, book: Book, slots: Ints) -> tuple[Array, Array]:
    """Remembered links of some slots, which rise, as a snapshot stores them: where those of each start, and all."""
    sizes = at.link_words(table.link_count[slots])
    ends = np.cumsum(sizes)
    stored = np.zeros(int(ends[-1]) if len(ends) else 0, np.int64)
    done = 0
    for block in _link_blocks(table, book):
        here = slice(*np.searchsorted(slots, (block.first, block.last)).tolist())
        words = int(sizes[here].sum())
        if words:
            of_block = np.zeros(block.words, np.int64)
            links.store_links(table, book, block.first, block.last, block.end, block.starts, of_block)
            begins = block.starts[slots[here] - block.first] - block.end
            links.copy_spans(of_block, begins, sizes[here], stored, done)
        done += words
    return np.where(sizes > 0, ends - sizes, 0), stored


def _certified_columns(book: Book) -> dict[str, Array]:
    """The sums, and what links carry to absent pages, sorted by page. That of the page id 0 is one of the sums."""
    carried = np.flatnonzero(book.absent_amounts[: int(book.store[0].absent)])
    rows = carried[book.absent_ids[carried] != 0]
    rows = rows[np.argsort(book.absent_ids[rows])]
    sums = book.sums.copy()
    sums[0].lost_rows = len(rows)
    sums[0].lost_to_zero = book.absent_amounts[carried].sum() - book.absent_amounts[rows].sum()
    return {"sums": at.flat(sums), "lost_ids": book.absent_ids[rows], "lost_amounts": book.absent_amounts[rows]}


def _pieces(parts: Iterable[memoryview]) -> Iterator[memoryview]:
    """Divide the bytes of all parts together into payloads; only bytes beyond the end of a part are copied."""
    rest = b""
    for data in parts:
        begin = 0
        if rest:
            begin = min(PAYLOAD_BYTES - len(rest), len(data))
            rest += data[:begin]
            if len(rest) == PAYLOAD_BYTES:
                yield memoryview(rest)
                rest = b""
        while len(data) - begin >= PAYLOAD_BYTES:
            yield data[begin : begin + PAYLOAD_BYTES]
            begin += PAYLOAD_BYTES
        rest += data[begin:]
    if rest:
        yield memoryview(rest)


def _header(kind: int, number: int, payload: memoryview) -> bytes:
    return _HEADER.pack(_MAGIC, SNAPSHOT_VERSION, kind, number, len(payload))


def _digest_of(header: bytes, payload: memoryview) -> int:
    digest = xxhash.xxh64(header)
    digest.update(payload)
    return digest.intdigest()


def _seal(kind: int, number: int, payload: memoryview) -> bytes:
    header = _header(kind, number, payload)
    return b"".join((header, _CHECKSUM.pack(_digest_of(header, payload)), payload))


def _checksum_of(chunk: bytes) -> int:
    return int(_CHECKSUM.unpack_from(chunk, _HEADER.size)[0])


def _open(source: Iterator[bytes], kind: int, number: int, checksum: int = _ANY) -> memoryview:
    """The payload of the next chunk, which must be this one."""
    where = f"{_KINDS[kind]} chunk {number} of the snapshot"
    chunk = next(source, None)
    if chunk is None:
        raise SnapshotRefused(f"{where} is missing: the snapshot is truncated, take an older one")
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise SnapshotRefused(f"{where} is {shown(chunk)}: give the bytes of its chunks")
    chunk = bytes(chunk)
    if len(chunk) < HEAD_BYTES or not chunk.startswith(_MAGIC):
        raise SnapshotRefused(f"{where} is not a chunk of a ledger's snapshot")
    _, version, its_kind, its_number, length = _HEADER.unpack_from(chunk)
    if version != SNAPSHOT_VERSION:
        raise SnapshotRefused(f"{where} has version {version}, this code reads {SNAPSHOT_VERSION}: update opicflow")
    payload = memoryview(chunk)[HEAD_BYTES:]
    if len(payload) != length or _digest_of(chunk[: _HEADER.size], payload) != _checksum_of(chunk):
        raise SnapshotRefused(f"{where} is truncated or altered: its checksum does not fit, take an older snapshot")
    if (its_kind, its_number) != (kind, number) or checksum not in (_ANY, _checksum_of(chunk)):
        its_name = _KINDS[its_kind] if its_kind < len(_KINDS) else str(its_kind)
        raise SnapshotRefused(
            f"{where} is expected, but {its_name} chunk {its_number} (of this or another snapshot) follows: "
            "the chunks are out of order or mixed up"
        )
    return payload


def _dtype_words(dtype: np.dtype[Any]) -> str:
    return _ROWS.get(dtype, dtype.str)
