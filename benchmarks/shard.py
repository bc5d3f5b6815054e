"""Group `shard`: one shard of a stream in this process, from its log to its ledger, its snapshot, and its division."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness import Figure, Scale, check, say, versus
from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.cli.stream_options import default_origin
from opicflow.pipelines.ledger import ItemWriter, LogPosition, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.ledger.shards.reshard import even_ranges, reshard
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState
from opicflow.pipelines.stream.ledgers import LEAST_LOG_MB
from opicflow.pipelines.stream.sent import SentHeads
from opicflow.pipelines.stream.snapshot_store import Snapshots, pack_chunks
from opicflow.pipelines.stream.snapshot_writer import SnapshotWriter
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.shards import ShardRanges


def measure(scale: Scale) -> Iterator[Figure]:
    """Measure events per second, and bytes of state per event, of shards of several sizes; snapshots and resharding."""
    sizes = scale.pick((2_000, 4_000), (100_000, 1_000_000), (100_000, 1_000_000, 10_000_000))
    _ledger(2_000)  # compiles the kernels
    first: tuple[float, float] | None = None
    for pages in sizes:
        say(f"shard: a shard of {pages:,} pages")
        keeper, per_second, state_bytes = _ledger(pages)
        first = first or (per_second, state_bytes)
        yield versus(
            f"shard.events_of_{pages}", per_second, "events/s", first[0], "one shard, log to ledger; first size"
        )
        yield Figure(
            f"shard.state_bytes_{pages}",
            state_bytes,
            "bytes/event",
            "snapshots, on the average of a long run",
            first[1],
            state_bytes / first[1],
        )
        say(f"shard: its snapshot of {pages:,} pages, beside the work")
        yield from _snapshot(keeper, pages)
        say(f"shard: its {pages:,} pages in three shards")
        yield _reshard(keeper, pages)


def _reshard(keeper: LedgerKeeper, pages: int) -> Figure:
    """Measure how long a ledger takes to become three, with their snapshots; the first figure is its own snapshot."""
    assert keeper.ledger is not None
    with tempfile.TemporaryFile() as file:
        begun = time.perf_counter()
        pack_chunks(keeper.chunks(), file)
        one = time.perf_counter() - begun
    begun, own, most = time.perf_counter(), _own_bytes(), 0
    made = 0
    for ledger in reshard([keeper.ledger], even_ranges([keeper.ledger], 3)):
        with tempfile.TemporaryFile() as file:
            pack_chunks((chunk.data for chunk in ledger.snapshot_chunks()), file)
        most, made = max(most, _own_bytes() - own), made + ledger.pages
    whole = time.perf_counter() - begun
    check(made == keeper.ledger.pages, "every page is in one shard")
    how = f"{pages:,} pages to three shards and their snapshots; {most / 1e6:,.0f} MB more meanwhile"
    return Figure(f"shard.reshard_{pages}", whole, "seconds", how, one, whole / one)


def _snapshot(keeper: LedgerKeeper, pages: int) -> Iterator[Figure]:
    """Measure how long a shard waits for its snapshot, against writing it while the shard waits; and the memory."""
    random = np.random.default_rng(2)
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder, tempfile.TemporaryFile() as file:
        begun = time.perf_counter()
        pack_chunks(keeper.chunks(), file)
        in_place = time.perf_counter() - begun
        store = Snapshots(StorageFolder.of(folder)).of_logs("page-ledger", "id")
        sent = SentHeads()
        sent.note(0, 1 << 40)
        writer = SnapshotWriter(store, sent)
        most_shared, own = 0, _own_bytes()
        alone = [_timed(keeper, _visits(random, pages, 200 * batch)) for batch in range(20)]
        beside: list[float] = []
        begun = time.perf_counter()
        writer.begin(keeper)
        pause = time.perf_counter() - begun
        while writer.is_writing or not beside:
            beside.append(_timed(keeper, _visits(random, pages, 200 * (20 + len(beside)))))
            most_shared = max(most_shared, _own_bytes() - own)
        whole = time.perf_counter() - begun
        written = writer.take_written(0)
        check(written is not None and not written.problem, "the snapshot was written")
        how = (
            f"{pages:,} pages; the shard waits {1000 * pause:.0f} ms, its longest batch of 200 visits meanwhile takes "
            f"{1000 * max(beside):.0f} ms (alone {1000 * max(alone):.0f}); {whole:.1f} s until it is stored, "
            f"{most_shared / 1e6:,.0f} MB more meanwhile"
        )
        yield Figure(f"shard.snapshot_pause_{pages}", pause, "seconds", how, in_place, pause / in_place)


def _timed(keeper: LedgerKeeper, entries: list[bytes]) -> float:
    begun = time.perf_counter()
    _feed(keeper, entries)
    return time.perf_counter() - begun


def _visits(random: np.random.Generator, pages: int, first: int) -> list[bytes]:
    """Return an entry of 200 visits of a source of its own."""
    writer = ItemWriter(LogPosition(first, 0))
    for event in range(200):
        links = [_id(page) for page in random.integers(0, pages, 30).tolist()]
        writer.visit(_id(int(random.integers(pages))), links, time_ms=first + event + 1)
    return [encode_entry(writer.entry("later", LogPosition(first, 0)))]


def _own_bytes() -> int:
    """Return the memory that this process and its copies do not share with a file, each page once."""
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text(encoding="ascii").split()
    found = 0
    for pid in ("self", *children):
        with suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            found += int(rollup.partition("Pss_Anon:")[2].split()[0]) << 10
    return found


def _ledger(pages: int) -> tuple[LedgerKeeper, float, float]:
    """Return a shard, its events per second and bytes of state per event, for entries of 200 visits of 30 links.

    As many events again come before those that are measured: an index that has grown moves meanwhile.
    """
    keeper, random = LedgerKeeper(0), np.random.default_rng(1)
    sharder = Sharder("events", SourceState.at(0, 1), ShardRanges())
    _feed(keeper, [replace(default_origin(1), rules=Rules()).entry()])
    for begin in range(0, pages, 20_000):
        writer = ItemWriter(LogPosition(sharder.state.next, 0))
        for page in range(begin, min(begin + 20_000, pages)):
            writer.sighting(_id(page), url=b"https://example.org/%d" % page)
        _feed(keeper, [entry for _, entry in sharder.crawl(writer.items(), sharder.state.next + 20_000)])
    _feed(keeper, [encode_entry(TickEntry(0))])  # the first plan surveys all pages, as one plan per cycle does
    warm, log = list[bytes](), list[bytes]()
    events = 40_000 if pages > 10_000 else 400
    for begin in range(0, 2 * events, 200):
        writer = ItemWriter(LogPosition(sharder.state.next, 0))
        for event in range(begin, begin + 200):
            links = [_id(page) for page in random.integers(0, pages, 30).tolist()]
            writer.visit(_id(int(random.integers(pages))), links, time_ms=event + 1)
        entries = [entry for _, entry in sharder.crawl(writer.items(), sharder.state.next + 200)]
        (warm if begin < events else log).extend(entries)
    _feed(keeper, warm)
    begun = time.process_time()
    log_bytes = _feed(keeper, log)
    per_second = events / (time.process_time() - begun)
    ledger = keeper.ledger
    check(
        ledger is not None and ledger.visits == 2 * events and ledger.audit().drift == 0,
        "all events are counted and no cash is missing",
    )
    snapshot = sum(map(len, keeper.chunks()))
    return keeper, per_second, log_bytes / events * snapshot / max(2 * snapshot, LEAST_LOG_MB * (1 << 20))


def _feed(keeper: LedgerKeeper, entries: list[bytes]) -> int:
    """Apply entries. Returns their bytes."""
    log_bytes = 0
    for entry in entries:
        batch = MessageBatch.of(keeper.head.next, [(keeper.head.next, 1_000_000 + keeper.head.next, entry)])
        for _ in keeper.take(batch):
            pass
        log_bytes += len(batch.text)
    return log_bytes


def _id(page: int) -> int:
    return (page * 0x9E3779B97F4A7C15 + 1) % (1 << 64)
