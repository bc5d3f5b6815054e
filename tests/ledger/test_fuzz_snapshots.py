"""Snapshots and packed columns with right checksums and wrong content: they are refused in one line, whatever it is."""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import orjson
import pytest
import xxhash

from opicflow.pipelines.ledger import (
    HISTORIES,
    CrawlEntry,
    EntryRefused,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    RefreshConfig,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger import snapshot as snapshots
from opicflow.pipelines.ledger.encoding import EntryUnknown, decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import START, ItemWriter
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
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


def restored_or_refused(chunks: list[bytes]) -> None:
    try:
        ledger = Ledger.restore(chunks)
    except SnapshotRefused as problem:
        one_line(problem)
        return
    with suppress(EntryRefused):  # marks may be others
        ledger.apply(crawl(190, 20))
    ledger._room.compact_urls()
    ledger.audit()


def fuzz_states(draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        manifest, columns = opened(sound(draw.choice(NAMES)))
        if draw.random() < 0.7:
            manifest["state"] = altered(manifest["state"], draw)
        else:
            manifest = altered(manifest, draw)
        restored_or_refused(sealed(manifest, columns))


HOSTILE_NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**48, 255]


def fuzz_columns_of_snapshots(draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
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
        restored_or_refused_quietly(sealed(manifest, columns))


def restored_or_refused_quietly(chunks: list[bytes]) -> None:
    """Numbers that no check can tell from others may be restored: then the ledger can be read and written."""
    try:
        ledger = Ledger.restore(chunks)
    except SnapshotRefused as problem:
        one_line(problem)
        return
    ledger._room.compact_urls()
    Ledger.restore([chunk.data for chunk in ledger.snapshot()])


def repacked(head: Any, rest: bytes) -> bytes:
    """Packed columns with another head, and the right checksum."""
    text = json.dumps(head).encode()
    text += b" " * (-(14 + 4 + len(text)) % 8)
    body = len(text).to_bytes(4, "little") + text + rest
    return b"OPFC" + (1).to_bytes(2, "little") + xxhash.xxh64_intdigest(body).to_bytes(8, "little") + body


def head_of(data: bytes) -> tuple[Any, bytes]:
    size = int.from_bytes(data[14:18], "little")
    return orjson.loads(data[18 : 18 + size]), data[18 + size :]


def fuzz_columns(draw: random.Random, rounds: int) -> None:
    plain = pack("kind", {"a": [1, None]}, {"same": np.full(30, 7), "rows": np.arange(30), "real": np.ones(3) / 3})
    entries = [encode_entry(crawl(0, 20)), encode_entry(TickEntry(5)), plain]
    for _ in range(rounds):
        head, rest = head_of(draw.choice(entries))
        data = repacked(altered(head, draw), rest[: draw.choice([len(rest), len(rest), draw.randrange(len(rest) + 1)])])
        try:
            found = unpack(data)
            assert sum(column.nbytes for column in found.columns.values()) < 1 << 30
            decode_entry(data)
        except (ColumnsRefused, EntryUnknown) as problem:
            one_line(problem)


FUZZED = {"states": fuzz_states, "columns-of-snapshots": fuzz_columns_of_snapshots, "packed-columns": fuzz_columns}


@pytest.mark.parametrize("part", FUZZED)
def test_altered_content_is_refused_in_one_line(part: str) -> None:
    FUZZED[part](random.Random(7), 300)


@pytest.mark.soak
@pytest.mark.parametrize("part", FUZZED)
def test_fuzz_altered_content(part: str, seed: int) -> None:
    FUZZED[part](random.Random(seed), 60_000)


def test_pages_that_share_a_url_are_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    starts = np.frombuffer(columns["url_start"], np.int64).copy()
    known = np.flatnonzero(starts)
    starts[known] = starts[known[0]]
    with pytest.raises(SnapshotRefused, match="two pages share a part of the arena"):
        Ledger.restore(sealed(manifest, {**columns, "url_start": starts.tobytes()}))


def test_urls_that_overlap_are_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    starts, urls = np.frombuffer(columns["url_start"], np.int64).copy(), bytearray(columns["urls"])
    first = int(starts[starts != 0].min())
    urls[first - 1] += 2  # its URL ends within the next one
    with pytest.raises(SnapshotRefused, match="two pages share a part of the arena"):
        Ledger.restore(sealed(manifest, {**columns, "urls": bytes(urls)}))


@pytest.mark.parametrize("shards", [0, -1, 1 << 20, 1 << 70, 1e300, "1", None, True])
def test_an_impossible_number_of_shards_is_refused(shards: Any) -> None:
    manifest, columns = opened(sound("interpolation"))
    manifest["state"]["shards"] = shards
    with pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(sealed(manifest, columns))
    one_line(caught.value)


def test_a_column_of_more_rows_than_memory_is_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    manifest = copy.deepcopy(manifest)
    manifest["columns"]["hot"][1][0] = 1 << 49
    with pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(sealed(manifest, columns))
    one_line(caught.value)


def test_one_value_does_not_become_gigabytes() -> None:
    head, rest = head_of(pack("x", {}, {"c": np.full(30, 7)}))
    head["columns"][0][3] = 1 << 40
    with pytest.raises(ColumnsRefused, match="another type or length"):
        unpack(repacked(head, rest))


@pytest.mark.parametrize("kind", ["|O", "<U8", "|V8", "<M8[s]", "i8,i8", "<f16", ">i8", "x", "", 8, None, ["a"]])
def test_columns_of_other_types_are_refused(kind: Any) -> None:
    head, rest = head_of(pack("x", {}, {"c": np.arange(30)}))
    for at in (1, 2):
        changed = copy.deepcopy(head)
        changed["columns"][0][at] = kind
        with pytest.raises(ColumnsRefused):
            unpack(repacked(changed, rest))
