"""Snapshots and packed columns with right checksums, and their altered copies with wrong content."""

from __future__ import annotations

import json
import pickle
import random
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import orjson
import xxhash

from opicflow.pipelines.ledger import (
    HISTORIES,
    CrawlEntry,
    EntryRefused,
    Gossip,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    RefreshConfig,
    SnapshotRefused,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import START, ItemWriter, ResidualSums
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.schemas.columns import pack, unpack
from support.hostile_values import altered, one_line

NAMES = ["interpolation", "certified", "variable"]


def crawl(first: int, rows: int) -> CrawlEntry:
    """Visits, announcements and sightings of some pages, with links among them."""
    draw, writer = random.Random(first), ItemWriter(LogPosition(first, 0))
    for row in range(first, first + rows):
        page = draw.randrange(1, 60) << 50
        url = b"https://example.org/%d" % page
        if row % 5 == 0:
            writer.announcement(page, url=url)
        else:
            links = [draw.randrange(1, 90) << 50 for _ in range(draw.randrange(6))]
            writer.visit(page, links, Outcome(1 + row % 3), 90_000_000 * row, url=url)
    return writer.entry(start=LogPosition(first, 0))


@cache
def sound(history: str) -> list[bytes]:
    """The snapshot of a ledger with remembered links, removed pages, and what discovery has learnt."""
    config = LedgerConfig(history=HISTORIES[history](), remember_links=True, refresh=RefreshConfig())
    ledger = Ledger(config)
    ledger.apply(TickEntry(86_400))
    ledger.apply(crawl(0, 150))
    ledger.apply(TickEntry(2 * 86_400))
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), drop=(3 << 50,), forget=(5 << 50,)))
    ledger.apply(crawl(150, 40))
    chunks = [chunk.data for chunk in ledger.snapshot()]
    Ledger.restore(chunks)
    return chunks


def opened(chunks: list[bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of a snapshot of few bytes, and the content of its columns."""
    payloads = [chunk[24:] for chunk in chunks]
    manifest = json.loads(payloads[0][:-17])
    columns, rest = {}, iter(payloads[1:])
    for name, (_, shape) in manifest["columns"].items():
        columns[name] = next(rest) if np.prod(shape, dtype=np.int64) else b""
    columns["urls"] = next(rest)
    return manifest, columns


def sealed(manifest: dict[str, Any], columns: dict[str, bytes]) -> list[bytes]:
    """The chunks of a snapshot with right checksums."""
    body = [
        snapshots._seal(1, number, memoryview(data))
        for number, data in enumerate(data for name, data in columns.items() if name != "urls" and data)
    ]
    urls = [snapshots._seal(2, 0, memoryview(columns["urls"]))] if columns["urls"] else []
    if isinstance(manifest, dict):
        for name, chunks in (("column_chunks", body), ("url_chunks", urls)):
            if name in manifest:
                manifest[name] = [snapshots._checksum_of(chunk) for chunk in chunks]
    text = json.dumps(manifest).encode()
    return [snapshots._seal(0, 0, memoryview(text + snapshots._digest(text) + b"\n")), *body, *urls]


def restored_or_refused(chunks: list[bytes]) -> bool:
    """Whether a snapshot is restored; if not, it is refused in one line."""
    try:
        ledger = Ledger.restore(chunks)
    except SnapshotRefused as problem:
        one_line(problem)
        return False
    with suppress(EntryRefused):  # marks may be others
        ledger.apply(crawl(190, 20))
    ledger._room.compact_urls()
    ledger.audit()
    return True


def snapshot_of_other_values(draw: random.Random) -> list[bytes]:
    """The chunks of a snapshot whose manifest is altered."""
    manifest, columns = opened(sound(draw.choice(NAMES)))
    if draw.random() < 0.7:
        manifest["state"] = altered(manifest["state"], draw)
    else:
        manifest = altered(manifest, draw)
    return sealed(manifest, columns)


HOSTILE_NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**48, 255]


def snapshot_of_other_numbers(draw: random.Random) -> list[bytes]:
    """The chunks of a snapshot with other numbers in its columns."""
    manifest, columns = opened(sound(draw.choice(NAMES)))
    for _ in range(draw.choice([1, 1, 2])):
        name = draw.choice([name for name, data in columns.items() if len(data) >= 8])
        data = bytearray(columns[name])
        size = draw.choice([1, 2, 4, 8])
        at = draw.randrange(len(data) // size) * size
        number = draw.choice(HOSTILE_NUMBERS)
        if draw.random() < 0.3:
            number = int.from_bytes(data[at : at + size], "little") + draw.choice([-1, 1])
        data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
        columns[name] = bytes(data)
    return sealed(manifest, columns)


def restored_or_refused_quietly(chunks: list[bytes]) -> bool:
    """Wrong numbers that no check can detect may be restored: then the ledger can be read and written."""
    try:
        ledger = Ledger.restore(chunks)
    except SnapshotRefused as problem:
        one_line(problem)
        return False
    ledger._room.compact_urls()
    Ledger.restore([chunk.data for chunk in ledger.snapshot()])
    return True


def repacked(head: Any, rest: bytes) -> bytes:
    """Packed columns with another head, and the right checksum."""
    text = json.dumps(head).encode()
    text += b" " * (-(14 + 4 + len(text)) % 8)
    body = len(text).to_bytes(4, "little") + text + rest
    return b"OPFC" + (1).to_bytes(2, "little") + xxhash.xxh64_intdigest(body).to_bytes(8, "little") + body


def head_of(data: bytes) -> tuple[Any, bytes]:
    size = int.from_bytes(data[14:18], "little")
    return orjson.loads(data[18 : 18 + size]), data[18 + size :]


@cache
def sound_columns() -> list[bytes]:
    """Packed columns, and an entry of packed values."""
    plain = pack("kind", {"a": [1, None]}, {"same": np.full(30, 7), "rows": np.arange(30), "real": np.ones(3) / 3})
    return [encode_entry(PolicyEntry("rules", LogPosition(1, 0), LogPosition(2, 0), 0.8, (16, 8))), plain]


def other_columns(draw: random.Random) -> bytes:
    """Packed columns with an altered head."""
    head, rest = head_of(draw.choice(sound_columns()))
    return repacked(altered(head, draw), rest[: draw.choice([len(rest), len(rest), draw.randrange(len(rest) + 1)])])


def read_columns(data: bytes) -> None:
    """Unpack columns, and the entry in them. Raises `ColumnsRefused` or `EntryUnknown`."""
    found = unpack(data)
    assert sum(column.nbytes for column in found.columns.values()) < 1 << 30
    decode_entry(data)


def sealed_entry(checked: bytes) -> bytes:
    """An entry with this version, kind and content, and the right checksum."""
    return b"OE" + xxhash.xxh64_intdigest(checked).to_bytes(8, "little") + checked


@cache
def sound_entries() -> list[bytes]:
    """Entries with and without rows, with amounts of both signs, and sums of shards."""
    pages = np.array([1, 5 << 48, (5 << 48) + 9, 1 << 63], np.uint64)
    sums = ResidualSums(9, 300, -5, 7, 2, (1, 0, 1 << 40), (0, 2, 3))
    gossip = Gossip(1 << 63, 5, 6, 7, 0.1, 8, sums, 99)
    empty = TransfersEntry(3, 7, 0, False, pages[:0], np.zeros(0, np.int64), 0, 0, 0, None)
    full = replace(empty, pages=pages, amounts=np.array([-70, 1 << 40, 0, 3]), last=True, gossip=gossip)
    links = ItemWriter().visit(5 << 48, [7, (5 << 48) + 1], time_ms=9).visit(6 << 48, [2, 3], quality=7)
    entries = [crawl(0, 20), links.entry(), ItemWriter().entry(), empty, full, replace(full, gossip=None), TickEntry(5)]
    return list(map(encode_entry, entries))


def other_entry(draw: random.Random) -> bytes:
    """An entry with some other bytes, and the right checksum."""
    data = bytearray(draw.choice(sound_entries())[10:])
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        at = min(draw.randrange(len(data)), draw.randrange(len(data)) if draw.random() < 0.5 else len(data))
        how = draw.randrange(5)
        if how == 0:
            del data[at : at + draw.randrange(3)]
        elif how == 1:
            data[at:at] = bytes([draw.choice([0, 1, 128, 255])])
        elif how == 2:
            data[at] = draw.choice([0, 1, 2, 8, 9, 128, 255])
        else:
            data[at] ^= 1 << draw.randrange(8)
        data = data or bytearray(b"\1")
    return sealed_entry(bytes(data))


# -- for `readers`


def check_entry(data: bytes, _: random.Random) -> tuple[int, int]:
    """It is refused in one line, or has these bytes alone."""
    try:
        decoded = decode_entry(data)
    except EntryUnknown as problem:
        one_line(problem)
        return 0, 1
    assert encode_entry(decoded) == data
    return 1, 0


def make_snapshot(draw: random.Random) -> bytes:
    """A snapshot with other values or numbers, as one input."""
    has_values = draw.random() < 0.5
    chunks = snapshot_of_other_values(draw) if has_values else snapshot_of_other_numbers(draw)
    return pickle.dumps((has_values, chunks))


def check_snapshot(data: bytes, _: random.Random) -> tuple[int, int]:
    """It is refused in one line, or its ledger can be used."""
    has_values, chunks = pickle.loads(data)
    is_read = (restored_or_refused if has_values else restored_or_refused_quietly)(chunks)
    return int(is_read), int(not is_read)


def check_columns(data: bytes, _: random.Random) -> tuple[int, int]:
    """They are unpacked, or refused."""
    try:
        read_columns(data)
    except EntryUnknown as problem:
        one_line(problem)
        return 0, 1
    return 1, 0
