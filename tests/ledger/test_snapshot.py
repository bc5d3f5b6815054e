"""A snapshot restores the whole ledger, to the byte, or it is refused: nothing between the two."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    HISTORIES,
    NO_CATEGORY,
    START,
    Chunk,
    CrawlEntry,
    CrawlItems,
    Fixed,
    Gossip,
    ItemWriter,
    Ledger,
    LedgerBroken,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    RefreshConfig,
    SnapshotRefused,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.entries import Kind, transfer_digest
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.schemas.shards import ShardRanges
from support.thorough import examples

MOST_BYTES = 4 << 20
DAY = 86_400


# Ledgers with everything in them

COUNTS, RULES, MODES = (list(kind.names or ()) for kind in (at.COUNTS, at.RULES, at.MODES))


def page_of(shard: int, shards: int, number: int) -> int:
    """The `number`-th page that these tests use of a shard."""
    first, last = ShardRanges.equal(shards).bounds(shard)
    return first + 1 + number * ((last - first) // 1000)


def transfers(
    source: int, cut: int, pages: list[int], amounts: list[int], virtual: int, before: tuple[int, int]
) -> TransfersEntry:
    """The only message of a cut, of a shard that sent so much before."""
    ids, cash = np.array(pages, np.uint64), np.array(amounts, np.int64)
    return TransfersEntry(
        source_shard=source,
        cut=cut,
        first=0,
        last=True,
        pages=ids,
        amounts=cash,
        virtual=virtual,
        sent_total=before[0] + sum(amounts) + virtual,
        sent_digest=(before[1] + transfer_digest(ids, cash, virtual, cut)) % (1 << 64),
        gossip=Gossip(advance=(cut + 1) << 40, minted=50 << 24, pages=50, weighted_pages=800, rate_sum=40.5 + cut),
    )


def crawl(shard: int, shards: int, first: int, rows: int) -> CrawlEntry:
    """Return rows of every kind and outcome, with links of all weights within the shard and to other shards."""
    random = np.random.default_rng([shard, shards, first])
    writer = ItemWriter(LogPosition(first, 0))
    for row in range(first, first + rows):
        number = int(random.integers(0, 80))
        page = page_of(shard, shards, number)
        url = b"https://example.org/%d" % number if number % 3 else b""
        if row % 7 == 0:
            writer.sighting(page, int(random.integers(0, 2)), url)
        elif row % 11 == 0:
            writer.announcement(page, NO_CATEGORY, url)
        else:
            outcome = Outcome(int(random.choice([1, 1, 1, 1, 2, 3, 4, 5, 5, 6, 7])))
            links = [
                PageLink(
                    page_of(int(random.integers(0, shards)), shards, int(random.integers(0, 120))),
                    int(random.choice([1024, 1024, 1, 0, 65_535])),
                    int(random.choice([0, 1, NO_CATEGORY])),
                )
                for _ in range(int(random.integers(0, 9)))
            ]
            writer.visit(page, links if random.random() < 0.8 else None, outcome, 1000 * row, url=url)
    return writer.entry(start=LogPosition(first, 0))


POLICIES = [name for name in HISTORIES if name != "certified"]
"""The policies that pay cash back to the virtual page; `certified` has columns of its own (test_certified)."""

CONFIGS = {
    f"{name}-{shards}-{'links' if links else 'plain'}": (name, shards, links)
    for name, shards, links in [
        *((name, 1, True) for name in POLICIES),
        *((name, 4, False) for name in POLICIES),
        ("interpolation", 3, True),
        ("interpolation", 1, False),
    ]
}


def grown(config_name: str, theta_start: int = (1 << 64) - (1 << 38)) -> Ledger:
    """A ledger with forgotten pages, freed slots, remembered links, weights, days, peers and an outbox."""
    name, shards, links = CONFIGS[config_name]
    history = HISTORIES[name]()
    if hasattr(history, "window_days"):
        history = dataclasses.replace(history, window_days=2.5)
    config = LedgerConfig(
        history=history,
        class_weights=(32, 16, 1, 2),
        link_bonus_per_1024=(0, 512),
        remember_links=links,
        cut_visits_per_1000_pages=1000,
        refresh=RefreshConfig(strategy="thesis", discovery_by="cash"),
    )
    shard = shards // 2
    ledger = Ledger(config, shard, shards, theta_start)
    ledger.apply(TickEntry(5 * DAY))
    ledger.apply(crawl(shard, shards, 0, 200))
    for day in range(6, 12):
        ledger.apply(TickEntry(day * DAY + day))
        ledger.apply(crawl(shard, shards, 200 + 20 * (day - 6), 20))
    own = [page_of(shard, shards, number) for number in range(80)]
    if shards > 1:
        ledger.apply(transfers(0, 0, [own[3], own[70], own[71]], [5 << 20, 1, 9 << 24], 3 << 24, (0, 0)))
    drop, forget = tuple(own[10:16]), (own[20], own[22], 7)
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), 0.8, (16, 8, 4, 2), (256, 0), drop, forget))
    ledger.apply(crawl(shard, shards, 320, 12))
    assert ledger.audit().drift == 0
    return ledger


@cache
def kept(config_name: str) -> list[Chunk]:
    """The snapshot of such a ledger."""
    return grown(config_name).snapshot()


def data(chunks: Iterable[Chunk]) -> list[bytes]:
    return [chunk.data for chunk in chunks]


def later(ledger: Ledger, config_name: str) -> list[Any]:
    """The outputs of a ledger as its log continues."""
    _, shards, _ = CONFIGS[config_name]
    shard = shards // 2
    outputs: list[Any] = [ledger.apply(crawl(shard, shards, 332, 150)).births, ledger.apply(TickEntry(20 * DAY)).late]
    outputs.append(data(ledger.snapshot()))
    forget = tuple(page_of(shard, shards, number) for number in range(30, 60))
    ledger.apply(PolicyEntry("rules", LogPosition(1, 0), LogPosition(2, 0), drop=forget, forget=forget[::2]))
    outputs += [repr(ledger.apply(crawl(shard, shards, 482, 50)).sealed), ledger.balance(), data(ledger.snapshot())]
    outputs.append(repr(ledger.estimate_all()))
    return outputs


@contextmanager
def small_chunks() -> Iterator[None]:
    """Chunks of a thousand bytes, so that a small ledger has many."""
    before, snapshots.PAYLOAD_BYTES = snapshots.PAYLOAD_BYTES, 1000
    try:
        yield
    finally:
        snapshots.PAYLOAD_BYTES = before


@cache
def pieces(entries_more: int = 0) -> list[Chunk]:
    """The snapshot of a small ledger in many chunks, as it is or a little later."""
    ledger = grown("interpolation-3-links")
    for i in range(entries_more):
        ledger.apply(crawl(1, 3, 332 + i, 1))
    with small_chunks():
        return ledger.snapshot()


def refused(chunks: Iterable[Any], *words: str) -> str:
    with pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(chunks)
    return one_line(caught.value, *words)


def refused_pieces(chunks: Iterable[Any], *words: str) -> str:
    with small_chunks(), pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(chunks)
    return one_line(caught.value, *words)


def one_line(problem: Exception, *words: str) -> str:
    message = str(problem)
    assert "\n" not in message
    assert len(message) < 600
    for word in words:
        assert word in message
    return message


# Whole snapshots


@pytest.mark.parametrize("config_name", CONFIGS)
def test_a_ledger_that_was_restored_has_the_same_snapshot(config_name: str) -> None:
    chunks = kept(config_name)
    assert Ledger.restore(data(chunks)).snapshot() == chunks


@pytest.mark.parametrize("config_name", CONFIGS)
def test_a_ledger_that_was_restored_goes_on_as_the_first_one(config_name: str) -> None:
    first = grown(config_name)
    second = Ledger.restore(data(kept(config_name)))
    assert later(second, config_name) == later(first, config_name)
    assert second.audit().drift == 0


@pytest.mark.parametrize("config_name", ["interpolation-3-links", "variable-1-links"])
def test_a_snapshot_changes_nothing(config_name: str) -> None:
    looked_at = grown(config_name)
    first = looked_at.snapshot()
    assert looked_at.snapshot() == first
    assert later(looked_at, config_name) == later(grown(config_name), config_name)


def test_the_ledgers_of_these_tests_have_everything_in_them() -> None:
    counts = grown("interpolation-3-links")._room.book.counts
    for name in ("free", "outbox", "link_end", "link_stale", "url_end", "uncollected", "visits_since_cut"):
        assert counts[name] > 0, name
    ledger = grown("interpolation-1-links")
    assert len(ledger._times.days) > 1
    assert len(ledger._room.book.forgotten) == 3
    assert (ledger._room.table.link_count < 0).any()
    assert (ledger._room.table.link_count > 0).any()
    assert len(pieces()) >= 20


def test_an_empty_ledger_has_a_snapshot() -> None:
    config = LedgerConfig(class_weights=(16,) * 4, link_bonus_per_1024=(0, 0))
    for shards in (1, 2):
        chunks = Ledger(config, shards=shards).snapshot()
        again = Ledger.restore(data(chunks))
        assert again.snapshot() == chunks
        assert again.pages == 0
        again.apply(crawl(0, shards, 0, 30))
        assert again.audit().drift == 0


def test_a_ledger_that_settled_on_remembered_links_settles_the_same_once_restored() -> None:
    first, second = grown("all-1-links"), Ledger.restore(data(kept("all-1-links")))
    assert first.settle().importance.tolist() == second.settle().importance.tolist()


def test_the_length_of_chunks_is_no_part_of_the_ledger() -> None:
    with small_chunks():
        ledger = Ledger.restore(data(pieces()))
    assert ledger.snapshot() == kept("interpolation-3-links")


# Many pages


PAGES = 300_000
URL = "https://example.org/a/path/of/{:08d}"
URL_BYTES = len(URL.format(0))


def sightings(first: int, last: int) -> CrawlEntry:
    """Sightings of pages with URLs, made as columns."""
    rows = last - first
    numbers = np.arange(first, last)
    pages = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    urls = np.frombuffer("".join(URL.format(n) for n in numbers).encode(), np.uint8).copy()
    items = CrawlItems.filled(
        rows,
        kind=np.full(rows, Kind.SIGHTING, np.uint8),
        page=pages,
        offset=numbers.astype(np.int64),
        url_starts=np.arange(0, (rows + 1) * URL_BYTES, URL_BYTES, dtype=np.int64),
        url_bytes=urls,
    )
    return CrawlEntry("crawl", LogPosition(first, 0), LogPosition(last, 0), items)


def numbered(number: int) -> int:
    return (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)


@pytest.fixture(scope="module")
def large() -> tuple[Ledger, list[Chunk]]:
    """A ledger of many pages, and its snapshot."""
    ledger = Ledger()
    ledger.apply(sightings(0, PAGES))
    return ledger, ledger.snapshot()


def test_no_chunk_is_larger_than_4_mib_and_all_urls_but_the_last_fill_theirs(large) -> None:
    _, chunks = large
    kinds = [chunk.name.split("-")[0] for chunk in chunks]
    assert kinds == sorted(kinds, key=["manifest", "column", "urls"].index)
    assert kinds.count("column") > 4
    assert kinds.count("urls") > 2
    for this, following, chunk in zip(kinds, [*kinds[1:], ""], chunks, strict=True):
        assert len(chunk.data) <= MOST_BYTES
        assert (this, following) != ("urls", "urls") or len(chunk.data) == MOST_BYTES
    assert len({chunk.name for chunk in chunks}) == len(chunks)


def test_a_ledger_of_many_pages_comes_back(large) -> None:
    _, chunks = large
    again = Ledger.restore(data(chunks))
    assert again.snapshot() == chunks
    assert again.pages == PAGES
    for number in (0, 1, PAGES // 2, PAGES - 1):
        assert again.url(numbered(number)) == URL.format(number).encode()


def test_full_chunks_of_urls_stay_as_they_are_while_the_ledger_goes_on(large) -> None:
    _, chunks = large
    ledger = Ledger.restore(data(chunks))
    ledger.apply(sightings(PAGES, PAGES + 150_000))
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), drop=(numbered(5), numbered(6))))
    urls = {chunk.name: chunk.data for chunk in chunks if chunk.name.startswith("urls")}
    after = {chunk.name: chunk.data for chunk in ledger.snapshot()}
    full = [name for name, chunk in urls.items() if len(chunk) == MOST_BYTES]
    assert len(full) >= 2
    assert all(after[name] == urls[name] for name in full)
    assert len([name for name in after if name.startswith("urls")]) > len(urls)
    assert urls.keys() <= after.keys()


@pytest.mark.parametrize("kind", ["column", "urls"])
def test_full_chunks_in_another_order_or_of_another_ledger_are_refused(large, kind: str) -> None:
    _, chunks = large
    positions = [i for i, chunk in enumerate(chunks) if chunk.name.startswith(kind) and len(chunk.data) == MOST_BYTES]
    assert len(positions) >= 2
    swapped = data(chunks)
    swapped[positions[0]], swapped[positions[1]] = swapped[positions[1]], swapped[positions[0]]
    refused(swapped, f"{kind} chunk {chunks[positions[0]].name.split('-')[-1]} of the snapshot is expected")
    foreign = data(chunks)
    foreign[positions[1]] = seal(*HEADER.unpack_from(foreign[positions[1]])[2:4], payload(foreign[positions[1]])[::-1])
    refused(foreign, f"{kind} chunk {chunks[positions[1]].name.split('-')[-1]} of the snapshot is expected")


def test_after_a_forget_urls_have_new_names_and_none_is_the_forgotten_one(large) -> None:
    _, chunks = large
    number = PAGES // 2 + 77
    url, page = URL.format(number).encode(), numbered(number)
    assert sum(url in chunk.data for chunk in chunks) == 1
    ledger = Ledger.restore(data(chunks))
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), forget=(page,)))
    after = ledger.snapshot()
    assert not {c.name for c in chunks if c.name.startswith("urls")} & {c.name for c in after}
    assert b"".join(payload(c.data) for c in after).count(url) == 0
    assert ledger.url(page) is None
    assert ledger.url(numbered(number + 1)) == URL.format(number + 1).encode()
    again = Ledger.restore(data(after))
    again.apply(dataclasses.replace(sightings(number, number + 1), source="another", start=START))
    assert not again.estimate([page]).known.any()
    assert again.url(page) is None
    assert again.pages == PAGES - 1


def test_the_url_of_a_dropped_page_goes_with_the_next_forget() -> None:
    ledger = Ledger()
    ledger.apply(ItemWriter().sighting(1, url=b"http://one/").sighting(2, url=b"http://two/").entry())
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), drop=(1,)))
    assert any(b"http://one/" in chunk.data for chunk in ledger.snapshot())  # the arena only grows, until …
    ledger.apply(PolicyEntry("rules", LogPosition(1, 0), LogPosition(2, 0), forget=(99,)))
    assert not any(b"http://one/" in chunk.data for chunk in ledger.snapshot())
    assert ledger.url(2) == b"http://two/"


@pytest.mark.parametrize("config_name", ["interpolation-1-links", "variable-1-links", "all-4-plain"])
def test_of_a_forgotten_page_only_its_id_stays_and_only_where_others_name_it(config_name: str) -> None:
    _, shards, _ = CONFIGS[config_name]
    page = page_of(shards // 2, shards, 20)  # `grown` forgets it
    forgery = Forgery(data(kept(config_name)))
    holding = {
        name
        for name, column in forgery.columns.items()
        if column.dtype in (np.int64, np.uint64) and (column.view(np.uint64) == np.uint64(page)).any()
    }
    # It is on the list of forgotten pages, and pages may remember their links to it.
    assert "forgotten" in holding
    assert holding <= {"forgotten", "links"}
    assert b"example.org/20" not in forgery.urls
    freed = forgery.columns["free"]
    assert len(freed)
    assert not forgery.columns["hot"][freed].any()
    assert not forgery.columns["url_start"][freed].any()
    assert not forgery.columns["pages"]["flags"][freed].any()


# Damaged snapshots


def test_every_truncated_list_of_chunks_is_refused_pieces() -> None:
    chunks = data(pieces())
    for length in range(len(chunks)):
        message = refused_pieces(chunks[:length], "is missing: the snapshot is truncated")
        assert f"{pieces()[length].name.split('-')[0]} chunk" in message


def test_the_message_names_the_chunk() -> None:
    chunks = pieces()
    names = [chunk.name for chunk in chunks]
    for name, words in [
        ("column-3", "column chunk 3 of the snapshot"),
        ("manifest-0", "manifest chunk 0 of the snapshot"),
        (names[-1], f"urls chunk {names[-1].split('-')[-1]} of the snapshot"),
    ]:
        position = names.index(name)
        damaged = data(chunks)
        damaged[position] = damaged[position][:-1]
        refused_pieces(damaged, words, "truncated or altered")


@given(st.data())
def test_a_chunk_cut_at_any_byte_is_refused_pieces(draw: st.DataObject) -> None:
    chunks = data(pieces())
    position = draw.draw(st.integers(0, len(chunks) - 1))
    chunks[position] = chunks[position][: draw.draw(st.integers(0, len(chunks[position]) - 1))]
    refused_pieces(chunks, "chunk")


@given(st.data())
def test_a_chunk_with_any_byte_altered_is_refused_pieces(draw: st.DataObject) -> None:
    chunks = data(pieces())
    position = draw.draw(st.integers(0, len(chunks) - 1))
    altered = bytearray(chunks[position])
    altered[draw.draw(st.integers(0, len(altered) - 1))] ^= draw.draw(st.integers(1, 255))
    chunks[position] = bytes(altered)
    refused_pieces(chunks, "chunk")


def test_every_byte_of_a_header_counts() -> None:
    for position in (0, len(pieces()) // 2, len(pieces()) - 1):
        for byte in range(24):
            chunks = data(pieces())
            altered = bytearray(chunks[position])
            altered[byte] ^= 1
            refused_pieces([*chunks[:position], bytes(altered), *chunks[position + 1 :]], "chunk")


@given(st.data())
def test_any_two_chunks_swapped_are_refused_pieces(draw: st.DataObject) -> None:
    chunks = data(pieces())
    positions = st.integers(0, len(chunks) - 1)
    one, other = draw.draw(st.lists(positions, min_size=2, max_size=2, unique=True))
    chunks[one], chunks[other] = chunks[other], chunks[one]
    refused_pieces(chunks, "chunk")


def test_any_chunk_left_out_doubled_or_added_is_refused_pieces() -> None:
    chunks = data(pieces())
    for position, chunk in enumerate(chunks):
        refused_pieces([*chunks[:position], *chunks[position + 1 :]])
        refused_pieces([*chunks[:position], chunk, *chunks[position:]])
        refused_pieces([*chunks, chunk], "goes on after its last chunk")


@pytest.mark.parametrize("more", [1, 5])
def test_a_chunk_of_another_snapshot_of_the_same_ledger_is_refused_pieces(more: int) -> None:
    ours, theirs = pieces(), {chunk.name: chunk.data for chunk in pieces(more)}
    mixed = 0
    for position, (name, chunk) in enumerate(ours):
        other = theirs.get(name, chunk)
        if other != chunk:
            mixed += 1
            refused_pieces([*data(ours[:position]), other, *data(ours[position + 1 :])])
            theirs_but_one = [chunk if name == ours[position].name else c for name, c in pieces(more)]
            refused_pieces([c if isinstance(c, bytes) else c[1] for c in theirs_but_one])
    assert mixed > 10


def test_chunks_of_a_manifest_belong_together() -> None:
    """Two manifests that are the same but for a digit in their first and in their last chunk."""
    manifests = []
    for visits, damping in ((12, 0.81), (34, 0.82)):
        ledger = Ledger(LedgerConfig(damping=damping))
        for source in range(60):
            writer = ItemWriter().visit(1, [2], time_ms=1 + source)
            ledger.apply(writer.entry(f"crawl-{source:02d}"))
        ledger.apply(CrawlEntry("crawl-59", LogPosition(1, 0), LogPosition(visits, 0), ItemWriter().items()))
        with small_chunks():
            chunks = ledger.snapshot()
        manifests.append([chunk for chunk in chunks if chunk.name.startswith("manifest")])
        body = [chunk.data for chunk in chunks if not chunk.name.startswith("manifest")]
    first, second = map(data, manifests)
    assert len(first) == len(second) > 2
    assert first[0] != second[0]
    with small_chunks():
        Ledger.restore([*second, *body])
    for k in range(1, len(first)):
        if first[:k] != second[:k] and first[k:] != second[k:]:
            refused_pieces([*first[:k], *second[k:], *body], "mixed up")


@pytest.mark.parametrize(
    "garbage",
    [
        [],
        [b""],
        [b"OPLS"],
        [b"x" * 5000],
        [b"\x00" * 24],
        ["text"],
        [None],
        [5],
        [[]],
        b"bytes",
        "text",
        pytest.param((c for c in ()), id="no chunks from a generator"),
    ],
    ids=repr,
)
def test_garbage_is_refused(garbage: Any) -> None:
    refused(garbage, "manifest chunk 0")


def test_chunks_may_come_from_anything_that_yields_them() -> None:
    chunks = data(kept("all-4-plain"))
    assert Ledger.restore(iter(chunks)).pages == Ledger.restore(tuple(chunks)).pages


@pytest.mark.parametrize("version", [0, 2, 65_535])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    for position in (0, 5, len(pieces()) - 1):
        chunks = data(pieces())
        _, _, kind, number, _ = HEADER.unpack_from(chunks[position])
        chunks[position] = seal(kind, number, payload(chunks[position]), version)
        refused_pieces(chunks, f"has version {version}", "this code reads 1")


# Snapshots with right checksums that make no ledger. Kernels check no bounds: no count may exceed its column.


HEADER = struct.Struct("<4sHHII")


def seal(kind: int, number: int, payload: bytes, version: int = 1) -> bytes:
    """A chunk, by a second implementation of the format."""
    header = HEADER.pack(b"OPLS", version, kind, number, len(payload))
    return header + struct.pack("<Q", xxhash.xxh64_intdigest(header + payload)) + payload


def payload(chunk: bytes) -> bytes:
    return chunk[HEADER.size + 8 :]


def digest_of(manifest: bytes) -> bytes:
    return xxhash.xxh64_hexdigest(manifest).encode()


class Forgery:
    """A snapshot taken apart, to be altered and sealed again."""

    def __init__(self, chunks: list[bytes]) -> None:
        parts: dict[int, bytes] = {0: b"", 1: b"", 2: b""}
        for chunk in chunks:
            parts[HEADER.unpack_from(chunk)[2]] += payload(chunk)
        text, brace, self.end = parts[0].rpartition(b"}")
        self.manifest: Any = json.loads(text + brace)
        self.urls = parts[2]
        self.columns: dict[str, np.ndarray] = {}
        begin = 0
        for name, (words, shape) in self.manifest["columns"].items():
            dtype = {"page-row-1": at.PAGE_ROW, "refresh-row-1": at.REFRESH_ROW}.get(words) or np.dtype(words)
            size = math.prod(shape) * dtype.itemsize
            raw = np.frombuffer(parts[1][begin : begin + size], np.uint8).copy()
            self.columns[name] = raw.view(dtype).reshape(shape)  # a copy of rows would leave out what pads them
            begin += size
        assert begin == len(parts[1])
        self.follows = True

    @property
    def state(self) -> Any:
        return self.manifest["state"]

    @property
    def counts(self) -> np.ndarray:
        return self.columns["counts"]

    def chunks(self) -> list[bytes]:
        assert max(len(self.urls), *(column.nbytes for column in self.columns.values())) < MOST_BYTES // 2
        body = [column.tobytes() for column in self.columns.values() if column.nbytes]
        columns = [seal(1, i, column) for i, column in enumerate(body)]
        urls = [seal(2, 0, self.urls)] if self.urls else []
        if self.follows:  # shapes and checksums are made to fit
            words = {name: words for name, (words, _) in self.manifest["columns"].items()}
            self.manifest["columns"] = {
                name: [words.get(name, c.dtype.str), list(c.shape)] for name, c in self.columns.items()
            }
            self.manifest["url_bytes"] = len(self.urls)
            for name, sealed in (("column_chunks", columns), ("url_chunks", urls)):
                self.manifest[name] = [struct.unpack_from("<Q", chunk, HEADER.size)[0] for chunk in sealed]
        text = json.dumps(self.manifest, separators=(",", ":")).encode()
        return [seal(0, 0, text + (digest_of(text) if len(self.end) > 1 else b"") + b"\n"), *columns, *urls]


def forgery(config_name: str = "interpolation-3-links") -> Forgery:
    return Forgery(data(kept(config_name)))


@pytest.mark.parametrize("config_name", CONFIGS)
def test_a_forgery_that_alters_nothing_is_the_snapshot_itself(config_name: str) -> None:
    assert forgery(config_name).chunks() == data(kept(config_name))


def put(column: str, position: Any, value: Any) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns[column][position] = value

    return alter


def add(column: str, position: Any, value: Any) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns[column][position] += value

    return alter


def row(field: str, value: Any, slot: int = 0) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns["pages"][field][slot] = value

    return alter


def refresh(field: str, value: Any, slot: int = 0) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns["refresh"][field][slot] = value

    return alter


def say(*path: Any, value: Any) -> Callable[[Forgery], None]:
    """Alter the manifest at a path; `...` removes the value."""

    def alter(forged: Forgery) -> None:
        forged.follows = path[:1] == ("state",)
        inner = forged.manifest
        for key in path[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value

    return alter


def cut(column: str) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns[column] = forged.columns[column][:-1]

    return alter


def lengthen(column: str) -> Callable[[Forgery], None]:
    def alter(forged: Forgery) -> None:
        forged.columns[column] = np.concatenate((forged.columns[column], forged.columns[column][:1]))

    return alter


def same_page_twice(forged: Forgery) -> None:
    live = np.flatnonzero(forged.columns["pages"]["flags"])
    forged.columns["hot"][live[0], 0] = forged.columns["hot"][live[1], 0]


def url_beyond_the_end(forged: Forgery) -> None:
    forged.columns["url_start"][np.flatnonzero(forged.columns["url_start"])[0]] = len(forged.urls) - 1


def longer_url(forged: Forgery) -> None:
    last = int(forged.columns["url_start"].max()) - 1
    forged.urls = forged.urls[: last + 1] + b"\xff" + forged.urls[last + 2 :]


def no_urls(forged: Forgery) -> None:
    forged.urls = b""


def free_slot_twice(forged: Forgery) -> None:
    forged.columns["free"][0] = forged.columns["free"][1]


def links_beyond_the_end(forged: Forgery) -> None:
    linked = np.flatnonzero(forged.columns["link_count"] > 0)[0]
    forged.columns["link_start"][linked] = forged.counts[COUNTS.index("link_end")]


def more_links_than_there_are(forged: Forgery) -> None:
    forged.columns["link_count"][np.flatnonzero(forged.columns["link_count"])[0]] = 1 << 30


def forgotten_but_there(forged: Forgery) -> None:
    live = np.flatnonzero(forged.columns["pages"]["flags"])
    forged.columns["forgotten"] = np.sort(forged.columns["hot"][live[:3], 0])


def negative_due(forged: Forgery) -> None:
    live = np.flatnonzero(forged.columns["pages"]["flags"])[:2]
    rows = forged.columns["pages"][live]
    more = int(forged.columns["dividends"][rows["class_"][0]] - rows["seen"][0]) + 1
    forged.columns["pages"]["seen"][live] += [more, -more]  # in sum as before


def no_transfer_but_spent(forged: Forgery) -> None:
    """The next transfer would join an opening balance that is settled."""
    spent = (forged.columns["pages"]["flags"] & at.SPENT) != 0
    forged.columns["hot"][np.flatnonzero(spent & (forged.columns["hot"][:, 1] == 0))[0], 1] = ~0


ALTERATIONS: dict[str, Callable[[Forgery], None]] = {
    **{f"count {i} enormous": put("counts", i, 1 << 50) for i in (0, 1, 2, 3, 16, 22, 24, 25, 26)},
    **{f"count {i} one more": add("counts", i, 1) for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 22, 24, 25, 26, 27)},
    **{f"count {i} one less": add("counts", i, -1) for i in (0, 1, 2, 3, 4, 5, 7, 8, 13, 15, 22, 24, 25, 26, 27)},
    **{
        f"count {i} negative": put("counts", i, -1)
        for i in range(len(COUNTS))
        if COUNTS[i] not in ("virtual", "virtual_income", "first_reads")
    },
    **{f"mode {i} another": add("modes", i, 1) for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)},
    **{f"mode {i} negative": put("modes", i, -7) for i in range(len(MODES)) if MODES[i] not in ("first_id", "last_id")},
    "no shard is like us": put("modes", MODES.index("like_us"), 0),
    "fewer links at most than a page has": put("modes", MODES.index("longest"), 1),
    **{
        f"count {i} near its end": put("counts", i, (1 << 63) - 1) for i in (17, 18, 19, 20, 21, 23, 30, 31, 32, 33, 34)
    },
    "broken": put("counts", COUNTS.index("broken"), 1),
    "damping beyond 1": put("modes", MODES.index("damping_q20"), 1 << 21),
    "damping is no number": put("rules", RULES.index("damping"), math.nan),
    "window is no number": put("rules", RULES.index("window"), math.nan),
    "window is 0": put("rules", RULES.index("window"), 0.0),
    "no fewest gaps": put("rules", RULES.index("min_gaps"), -1.0),
    "newcomers": put("rules", RULES.index("newcomers"), 0.0),
    "first reads beyond all pages": put("counts", COUNTS.index("first_reads"), -(1 << 55)),
    "nothing minted anywhere": put("counts", COUNTS.index("minted_everywhere"), 0),
    "class weights negative": put("class_weights", 0, -1),
    "class weights 0": put("class_weights", slice(None), 0),
    "link bonus enormous": put("link_bonus", 0, 1 << 40),
    "class pages moved": add("class_pages", slice(0, 2), [1, -1]),
    "class pages enormous": put("class_pages", 0, 1 << 62),
    "dividends lower": put("dividends", slice(None), -(1 << 40)),
    "forgotten unsorted": put("forgotten", slice(None), [3, 2, 1]),
    "forgotten twice": put("forgotten", slice(None), [3, 3, 3]),
    "forgotten but there": forgotten_but_there,
    "class beyond the classes": row("class_", 200),
    "class beyond the classes by one": row("class_", 4),
    "more measures than are kept": row("measures", 17),
    "unknown flags": row("flags", 17),
    "flags without life": row("flags", 2),
    "unknown outcome": row("outcome", 9),
    "opening balance enormous": row("opening", 1 << 62, slice(None)),
    "dividends seen that never were": row("seen", 1 << 62),
    "dividends seen by another": negative_due,
    "no transfer yet, but spent": no_transfer_but_spent,
    "cash from nowhere": add("hot", (0, 1), 1),
    "cash that wraps around": put("hot", (slice(0, 8), 1), 1 << 61),
    "a page of another shard": put("hot", (0, 0), 5),
    "a page twice": same_page_twice,
    "a page in a free slot": lambda f: f.columns["hot"].__setitem__((f.columns["free"][0], 0), 99),
    "free slot beyond the rows": put("free", 0, 1 << 40),
    "free slot negative": put("free", 0, -5),
    "free slot taken": put("free", 0, 0),
    "free slot twice": free_slot_twice,
    "URL beyond the arena": put("url_start", 0, 1 << 40),
    "URL before the arena": put("url_start", 0, -1),
    "URL at the end of the arena": url_beyond_the_end,
    "URL longer than the arena": longer_url,
    "no URLs": no_urls,
    "links beyond the arena": put("link_start", 0, 1 << 40),
    "links before the arena": put("link_start", 0, -9),
    "links at the end of the arena": links_beyond_the_end,
    "more links than there are": more_links_than_there_are,
    "links of the other kind": put("link_count", 0, -(1 << 31)),
    "rate is no number": put("spans", (0, 0), math.nan),
    "span is endless": put("spans", (0, 1), math.inf),
    "nothing in the outbox": put("outbox_amounts", 0, 0),
    "less than nothing in the outbox": put("outbox_amounts", 0, -5),
    **{f"{name} one shorter": cut(name) for name in ("hot", "pages", "spans", "url_start", "link_start", "link_count")},
    **{f"{name} one longer": lengthen(name) for name in ("hot", "pages", "free", "links", "outbox_pages", "modes")},
    **{f"{name} shorter": cut(name) for name in ("counts", "clocks", "rules", "modes", "dividends", "free", "links")},
    **{f"{name} shorter too": cut(name) for name in ("outbox_pages", "outbox_amounts", "class_pages", "link_bonus")},
    **{
        f"{name} missing": lambda f, name=name: f.columns.pop(name)
        for name in ("counts", "clocks", "modes", "hot", "pages", "spans", "url_start", "link_start", "forgotten")
    },
    "another column": lambda f: f.columns.update(totals=np.zeros(3, np.int64)),
    "columns in another order": lambda f: f.columns.update(hot=f.columns.pop("hot")),
}

SAYINGS: dict[str, Callable[[Forgery], None]] = {
    **{f"no {key}": say(key, value=...) for key in ("state", "columns", "column_chunks", "url_bytes", "url_chunks")},
    **{
        f"{key} is {value!r}": say(key, value=value)
        for key in ("state", "columns", "column_chunks", "url_bytes", "url_chunks")
        for value in (None, 7, "x", [None], {"x": 1})
    },
    **{f"url_bytes is {value!r}": say("url_bytes", value=value) for value in (-1, 0, 1, 1.5, True, 1 << 22, 1 << 50)},
    "a checksum too many": lambda f: (f.chunks(), say("column_chunks", value=[*f.manifest["column_chunks"], 1])(f)),
    "something else": say("more", value=1),
    **{
        f"no {key} in the state": say("state", key, value=...)
        for key in ("config", "shard", "shards", "cut", "marks", "peers", "times", "url_generation")
    },
    **{
        f"{key} in the state is {value!r}": say("state", key, value=value)
        for key in ("config", "shard", "shards", "cut", "marks", "peers", "times", "url_generation")
        for value in (None, -1, 1.5, True, "x", [7], [[]], {}, 1 << 70)
    },
    "a run without lengths": refresh("run", 3),
    "a run after an interval without a change": lambda forged: [
        refresh(field, value)(forged) for field, value in (("run", 3), ("run_length", 300), ("intervals", 0x9020))
    ],
    "a run of lengths that are none": refresh("run_length", 128 << 8),
    "earlier contents beyond three": refresh("earlier", 1 << 30),
    "something else in the state": say("state", "more", value=1),
    **{
        f"{name} has shape {shape!r}": say("columns", name, 1, value=shape)
        for name in ("counts", "hot")
        for shape in ([-1], [-1, 2], [1 << 70], [1 << 62, 1 << 62], [], [0], [1.5], ["x"], None, 7, [3, 3, 3], [True])
    },
    **{
        f"{name} is of type {words!r}": say("columns", name, 0, value=words)
        for name in ("counts", "hot", "clocks")
        for words in ("|O", ">i8", "<f8", "<u8", "|S8", "page-row-1", "x", "", None, 7, [], "<i8,<i8", "|V8", "<M8[s]")
        if (name, words) not in (("clocks", "<u8"),)
    },
    "a column is no pair": say("columns", "hot", value=["<i8"]),
    "a column is nothing": say("columns", "hot", value=None),
    "another history": say("state", "config", "history", value={"policy": "all"}),
    "a history of measures": say("state", "config", "history", value={"policy": "variable", "measures": 16}),
    "another damping": say("state", "config", "damping", value=7),
    "no remembered links": say("state", "config", "remember_links", value=False),
    "more categories": say("state", "config", "link_bonus_per_1024", value=[0] * 3),
    "more frequent cuts": say("state", "config", "cut_visits_per_1000_pages", value=1),
    "another shard": say("state", "shard", value=0),
    "more shards": say("state", "shards", value=4),
    "a shard alone": say("state", "shards", value=1),
    **{
        f"mark is {value!r}": say("state", "marks", 0, value=value)
        for value in (
            *(None, [], ["crawl"], ["crawl", -1, 0, 0, 0], ["crawl", 0, 0, 0], ["crawl", 1.5, 0, 0, 0]),
            *([5, 0, 0, 0, 0], ["crawl", 0, 0, "x", 0], ["crawl", 0, 0, 0, None], ["zzz", 0, 0, 0, 0]),
        )
    },
    "a mark twice": lambda f: f.state["marks"].append(f.state["marks"][0]),
    **{
        f"peer is {value!r}": say("state", "peers", 0, value=value)
        for value in (
            *(None, [], [0], [1, 0, 0, None], [0, -1, 0, None], [0, 0, 0, []], [0, 0, 0, [1]], [0, 0, 0, 5]),
            *([0, 0, 0, [-1, 1, 1, 1, 1.0]], [0, 0, 0, [1, 1, 1, 1, "x"]], [0, 0, 0, [1, 1 << 63, 1, 1, 1.0]]),
            *([0, 0, 0, [1, 1, 1, 1, -1.0]], [0, 0, 0, [1, 1, 1, 1, math.nan]], [0, 0, 0, [1.5, 1, 1, 1, 1.0]]),
        )
    },
    "a peer is missing": lambda f: f.state["peers"].pop(),
    **{
        f"{key} is {value!r}": say("state", "times", key, value=value)
        for key in ("tick_second", "sweep_second", "sweep_rate_sum", "days", "policies_changed")
        for value in (
            None,
            -2,
            "x",
            [[]],
            [[1]],
            [[-1, 1]],
            [[1, 2, 3]],
            [["x", 1]],
            [[1, 1 << 64]],
            {"x": 1},
            math.nan,
        )
    },
    "days backwards": lambda f: f.state["times"]["days"].reverse(),
    "a time is missing": say("state", "times", "days", value=...),
    "another time": say("state", "times", "more", value=1),
}


@pytest.mark.parametrize("alter", [pytest.param(alter, id=name) for name, alter in ALTERATIONS.items()])
def test_columns_that_do_not_fit_are_refused(alter: Callable[[Forgery], None]) -> None:
    forged = forgery()
    alter(forged)
    refused(forged.chunks(), "snapshot")


@pytest.mark.parametrize("alter", [pytest.param(alter, id=name) for name, alter in SAYINGS.items()])
def test_a_manifest_that_makes_no_sense_is_refused(alter: Callable[[Forgery], None]) -> None:
    forged = forgery()
    alter(forged)
    refused(forged.chunks(), "snapshot")


@pytest.mark.parametrize("manifest", [None, 7, "x", [], {}, [1, 2], {"state": {}}, True], ids=repr)
def test_a_manifest_that_is_none_is_refused(manifest: Any) -> None:
    forged = forgery()
    forged.manifest, forged.follows = manifest, False
    refused(forged.chunks(), "snapshot")


@pytest.mark.parametrize(
    "text", [b"{", b"\xff\xfe", b"", b"[" * 100_000, b"9" * 10_000, b'{"a":1'], ids=lambda t: repr(t[:6])
)
def test_a_manifest_that_is_no_json_is_refused(text: bytes) -> None:
    refused([seal(0, 0, text + digest_of(text) + b"\n")], "manifest")
    refused([seal(0, 0, text + b"\n")], "manifest")


def test_each_policy_refuses_the_columns_of_another() -> None:
    names = [f"{name}-1-links" for name in POLICIES]
    for one in names:
        for other in names:
            if one != other:
                forged = forgery(one)
                forged.state["config"] = forgery(other).state["config"]
                refused(forged.chunks(), "snapshot")


@pytest.mark.parametrize("longest", [-1, 1, 1 << 40, -(1 << 63)])
def test_a_ledger_that_remembers_no_links_remembers_none_for_any_page(longest: int) -> None:
    """Room is made for them at every visit: for ever, if there is never enough."""
    for name in ("absorbing-4-plain", "interpolation-1-plain"):
        forged = forgery(name)
        forged.columns["modes"][MODES.index("longest")] = longest
        refused(forged.chunks(), "snapshot")


def test_measures_beyond_those_a_page_keeps_are_refused() -> None:
    for name, most in (("variable-1-links", 8), ("fixed-1-links", 16), ("interpolation-1-links", 0)):
        forged = forgery(name)
        forged.columns["pages"]["measures"][0] = most + 1
        refused(forged.chunks(), "snapshot")


@pytest.mark.slow
@examples(80, 2000)
@given(st.sampled_from(["interpolation-3-links", "fixed-1-links", "absorbing-4-plain"]), st.data())
def test_any_number_altered_is_refused_or_makes_a_ledger_that_balances(config_name: str, draw: st.DataObject) -> None:
    forged = forgery(config_name)
    name = draw.draw(st.sampled_from(sorted(name for name, column in forged.columns.items() if column.size)))
    column = forged.columns[name].reshape(-1)
    if column.dtype.names:
        column = column[draw.draw(st.sampled_from(column.dtype.names))]
    position = draw.draw(st.integers(0, len(column) - 1), label="position")
    bits = np.dtype(f"u{column.dtype.itemsize}")
    most = (1 << (8 * bits.itemsize)) - 1
    numbers = st.sampled_from([0, 1, 2, most, most >> 1, (most >> 1) + 1, most >> 24]) | st.integers(0, most)
    raw = column[position : position + 1].copy()
    raw.view(bits)[0] = draw.draw(numbers, label="value")
    column[position] = raw[0]
    try:
        ledger = Ledger.restore(forged.chunks())
    except SnapshotRefused as problem:
        assert "\n" not in str(problem)
        return
    assert ledger.audit().drift == 0
    try:
        with np.errstate(all="ignore"):
            later(ledger, config_name)
        assert ledger.audit().drift == 0
    except LedgerBroken as problem:  # a clock just below its end
        assert "overflow" in str(problem)


def test_a_window_policy_without_days_keeps_its_window() -> None:
    forged = Forgery(data(Ledger(LedgerConfig(history=Fixed(4.0))).snapshot()))
    forged.columns["rules"][RULES.index("window")] = 5.0
    refused(forged.chunks(), "snapshot")
