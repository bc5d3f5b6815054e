"""Snapshots of ledgers in storage: a finished one is whole, an unfinished one is never used, and no ledger waits."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.runs import close_run, closing_run, kept
from opicflow.connectors.storage.folder import StorageFolder, StorageRefused
from opicflow.pipelines.ledger import LedgerConfig, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.stages.keepers import Keeper, Keepers, LostLedger
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, LedgerKeeperFactory, request_fingerprint
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.log_settings import LogRefused, Origin
from opicflow.pipelines.stages.outputs import APPLIED
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stream import ledgers, snapshot_reader, snapshot_store, snapshot_writer, trim
from opicflow.pipelines.stream.ledgers import KeepLogLedger
from opicflow.pipelines.stream.sent import SentHeads, applied, note_sent
from opicflow.pipelines.stream.snapshot_reader import origin_of_shard, restore_newest
from opicflow.pipelines.stream.snapshot_store import (
    PackedSnapshot,
    SnapshotDamaged,
    Snapshots,
    SnapshotStore,
    StoredSnapshot,
    pack_chunks,
)
from opicflow.pipelines.stream.snapshot_writer import SnapshotWriter, writer_of
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds
from opicflow.schemas.public_suffixes import PublicSuffixes
from opicflow.schemas.shards import ShardRanges
from support.stages import UNUSED, FakeReader, batch, watched
from support.stream_state import Bag, Value
from support.waiting import wait_for

HEAD = LogHead(12, "c0ffee" * 5 + "00", 11, "abcd")
HOUR_MS = 3_600_000
ORIGIN = Origin(
    LedgerConfig(), ShardRanges(), Rules(page_ids=PageIds(suffixes=PublicSuffixes("none", b"com")))
)  # short: it holds no long list


def store_in(folder: Path, **options: float) -> SnapshotStore:
    return Snapshots(StorageFolder.of(str(folder)), **options).of_logs("page-ledger", "id-1")  # type: ignore[arg-type]


def write(store: SnapshotStore, chunks: list[bytes], head: LogHead = HEAD, log_ms: int = 0, shard: int = 3) -> str:
    file = io.BytesIO()
    store.write(shard, head, log_ms, pack_chunks(chunks, file), file, "9.9")
    return StoredSnapshot.of(head, log_ms).name


# -- the store


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 300))
def test_what_was_written_is_read_however_it_is_cut_into_parts(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], part_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("snapshots")
    store = store_in(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_store, "PART_BYTES", part_bytes)
        name = write(store, chunks)
    (snapshot,) = store.newest_first(3)
    assert snapshot.name == name and store.head(3, snapshot) == HEAD
    assert list(store.read(3, snapshot)) == chunks
    assert store.newest_first(2) == []
    assert len(list(folder.glob("**/part-*"))) >= sum(map(len, chunks)) // (part_bytes + 220)


def test_the_same_ledger_makes_the_same_bytes(tmp_path: Path) -> None:
    for folder in "ab":
        write(store_in(tmp_path / folder), [b"x" * 100, b"y"])
    files = [[path.read_bytes() for path in sorted((tmp_path / name).rglob("*")) if path.is_file()] for name in "ab"]
    assert files[0] == files[1] and len(files[0]) == 2


def test_a_snapshot_that_was_not_finished_is_never_used(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    name = write(store, [b"one", b"two"])
    manifest = next(tmp_path.glob(f"**/{name}/manifest.json"))
    whole = manifest.read_bytes()
    for size in (*range(0, len(whole), 7), len(whole) - 1):
        manifest.write_bytes(whole[:size])
        (snapshot,) = store.newest_first(3)
        assert store.head(3, snapshot) is None
        with pytest.raises(SnapshotDamaged, match="not finished"):
            list(store.read(3, snapshot))
    manifest.unlink()
    assert store.head(3, snapshot) is None


@pytest.mark.parametrize("failing", ["part-00001", "manifest.json"])
def test_nothing_is_left_of_a_snapshot_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    store = store_in(tmp_path)
    before = write(store, [b"one"])
    write_file = StorageFolder.write

    def fill(self: StorageFolder, name: str, data: bytes) -> None:
        write_file(self, name, data[: len(data) // 2] if name.endswith(failing) else data)
        if name.endswith(failing):
            raise StorageRefused("no space left")

    monkeypatch.setattr(StorageFolder, "write", fill)
    monkeypatch.setattr(snapshot_store, "PART_BYTES", 1)
    with pytest.raises(StorageRefused, match="no space left"):
        write(store, [b"one", b"two"], replace(HEAD, next=99))
    assert [one.name for one in store.newest_first(3)] == [before]


def test_a_file_that_was_changed_is_refused_by_its_name(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    name = write(store, [b"one", b"two"])
    (snapshot,) = store.newest_first(3)
    folder = next(tmp_path.glob(f"**/{name}"))
    for file in ("part-00000", "manifest.json"):
        whole = (folder / file).read_bytes()
        at = whole.index(b'"chain": "') + 12 if file == "manifest.json" else len(whole) // 2
        for changed in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole + b" ", whole[:-1], None):
            if file == "manifest.json" and changed != whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]:
                continue  # not finished, or the same values
            if changed is None:
                (folder / file).unlink()
            else:
                (folder / file).write_bytes(changed)
            with pytest.raises(SnapshotDamaged, match=rf"00003/{name}/{file}: the file is (damaged|missing)"):
                list(store.read(3, snapshot))
        (folder / file).write_bytes(whole)
    assert list(store.read(3, snapshot)) == [b"one", b"two"]


def test_snapshots_of_an_older_topic_of_the_same_name_are_not_used(tmp_path: Path) -> None:
    write(store_in(tmp_path), [b"one"])
    again = replace(store_in(tmp_path), topic_id="id-2")
    assert [again.head(3, snapshot) for snapshot in again.newest_first(3)] == [None]


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=8), st.integers(1, 4), st.sampled_from([0, 24]))
def test_the_newest_snapshots_stay_and_those_of_the_last_hours(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, bool]], keep: int, keep_hours: int
) -> None:
    folder = tmp_path_factory.mktemp("snapshots")
    store = store_in(folder, keep=keep, keep_hours=keep_hours)
    hour, finished, unfinished = 0, [], []
    for number, (hours, is_finished) in enumerate(made):
        hour += hours
        name = write(store, [b"x"], LogHead(number), hour * HOUR_MS)
        (finished if is_finished else unfinished).append((hour, name))
        if not is_finished:
            next(folder.glob(f"**/{name}/manifest.json")).unlink()
    store.remove_old(3)
    left = {one.name for one in store.newest_first(3)}
    if not finished:
        assert left == {name for _, name in unfinished}
        return
    newest = finished[-1][0]
    stay = {name for _, name in finished[-keep:]} | {name for at, name in finished if newest - at <= keep_hours}
    assert left == stay | {name for at, name in unfinished if at > newest}


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_snapshot_that_is_removed_while_it_is_read_for_trimming_is_not_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """The stream removes old snapshots at any time: then the next one is the oldest. A part alone is never removed."""
    store = store_in(tmp_path)
    write(store, [b"old"], replace(HEAD, next=10, last_offset=9))
    write(store, [b"new"], replace(HEAD, next=20, last_offset=19), log_ms=1)
    log = PartitionRange("kafka/id/3", UNUSED, store.topic, store.topic_id, 3, 0, 30)
    read, reads = StorageFolder.read, Counter[str]()

    def removes(self: StorageFolder, name: str, most: int) -> bytes:
        reads[name.rpartition("/")[2]] += 1
        if name.endswith("part-00000") and reads["part-00000"] == 1:
            if is_removed:
                store.where.folder.remove(name.rpartition("/")[0])
            else:
                store.where.folder.remove_file(name)
        return read(self, name, most)

    monkeypatch.setattr(StorageFolder, "read", removes)
    monkeypatch.setattr(trim, "resolve", lambda connection, topic: (log,))
    if is_removed:
        assert [one.keep_from for one in trim.find_trims(UNUSED, store.topic, store.where)] == [19]
    else:
        with pytest.raises(SnapshotDamaged, match=r"part-00000: the file is missing"):
            trim.find_trims(UNUSED, store.topic, store.where)


def test_of_a_log_without_a_snapshot_nothing_is_deleted_and_all_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_in(tmp_path)
    log = PartitionRange("kafka/id/3", UNUSED, store.topic, store.topic_id, 3, 0, 9)
    monkeypatch.setattr(trim, "resolve", lambda connection, topic: [log])
    with pytest.raises(LogRefused, match=r"partition 3: .* has no snapshot of its ledger: name the folder of its snap"):
        trim.find_trims(UNUSED, store.topic, store.where)
    found = trim.find_trims(UNUSED, store.topic, store.where, reads=False)
    assert found == [trim.Trim(3, 0, 0, 9)]


# -- the writer


def keeper_at(records: int, log: list[bytes]) -> LedgerKeeper:
    keeper = LedgerKeeper(0)
    for _ in keeper.take(MessageBatch.of(0, [(offset, 1000 * offset, log[offset]) for offset in range(records)])):
        pass
    keeper.sizes.journal_bytes, keeper.journal_to_ms = 100, 1000 * records
    return keeper


def arrived(next_offset: int) -> SentHeads:
    """Return the heads of a run whose shard 0 has sent so much."""
    sent = SentHeads()
    sent.note(0, next_offset)
    return sent


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def log_of(records: int) -> list[bytes]:
    ticks = [encode_entry(TickEntry(0)) for _ in range(records - 1)]
    return [ORIGIN.entry(), *ticks]


def test_a_ledger_goes_on_while_its_snapshot_is_written(tmp_path: Path) -> None:
    log = log_of(50)
    keeper = keeper_at(20, log)
    as_it_was = list(keeper.chunks())
    sent = SentHeads()
    writer = SnapshotWriter(store_in(tmp_path), sent)
    assert writer.begin(keeper)
    for _ in keeper.take(MessageBatch.of(20, [(offset, 1000 * offset, log[offset]) for offset in range(20, 50)])):
        pass
    assert writer.take_written(0) is None, "its outputs have not arrived"
    sent.note(0, 20)
    writer.wait()
    written = writer.take_written(0)
    assert written is not None and not written.problem and written.bytes == sum(map(len, as_it_was))
    (snapshot,) = store_in(tmp_path).newest_first(0)
    assert list(store_in(tmp_path).read(0, snapshot)) == as_it_was != list(keeper.chunks())


def test_a_snapshot_whose_outputs_do_not_arrive_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_writer, "_SENT_SECONDS", 0.1)
    keeper = keeper_at(5, log_of(5))
    writer = SnapshotWriter(store_in(tmp_path), arrived(4))
    assert writer.begin(keeper)
    writer.wait()
    written = writer.take_written(0)
    assert written is not None and written.problem == "the outputs of the ledger did not arrive"
    assert not list(tmp_path.glob("**/manifest.json"))


def test_after_failures_no_snapshot_is_tried_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    clock = [0.0]
    writer = SnapshotWriter(store_in(tmp_path / "file"), arrived(5), seconds=lambda: clock[0])
    keeper = keeper_at(5, log_of(5))
    tried = []
    for second in range(0, 4000, 10):
        clock[0] = float(second)
        if writer.begin(keeper):
            tried.append(second)
            writer.wait()
            written = writer.take_written(0)
            assert written is not None and written.problem
    assert tried[:5] == [0, 30, 90, 210, 450] and max(b - a for a, b in pairwise(tried)) == 600


def test_one_snapshot_of_a_process_is_written_at_a_time(tmp_path: Path) -> None:
    log = log_of(5)
    sent = SentHeads()
    one, other = SnapshotWriter(store_in(tmp_path), sent), SnapshotWriter(store_in(tmp_path), arrived(5))
    assert one.begin(keeper_at(5, log))
    assert not one.begin(keeper_at(5, log)) and not other.begin(keeper_at(5, log))
    sent.note(0, 5)
    one.wait()
    assert other.begin(keeper_at(5, log))
    other.wait()


def test_a_copy_that_fails_is_a_failed_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(chunks: object, into: object) -> PackedSnapshot:
        raise MemoryError

    monkeypatch.setattr(snapshot_writer, "pack_chunks", broken)
    writer = SnapshotWriter(store_in(tmp_path), SentHeads())
    assert writer.begin(keeper_at(5, log_of(5)))
    writer.wait()
    written = writer.take_written(0)
    assert written is not None and "the process that copies the ledger ended" in written.problem


def test_a_copy_that_stands_still_is_ended_and_the_next_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, fork = list[int](), os.fork
    monkeypatch.setattr(os, "fork", lambda: copies.append(fork()) or copies[-1])
    clock, hangs, problems = itertools.count(step=snapshot_writer._MOST_STILL_SECONDS / 3), True, list[str]()
    writer = SnapshotWriter(store_in(tmp_path), arrived(5), seconds=lambda: float(next(clock)) if hangs else 1e9)
    for hangs in (True, False):
        with monkeypatch.context() as patch:
            if hangs:
                patch.setattr(snapshot_writer, "pack_chunks", lambda chunks, into: signal.pause())
            assert writer.begin(keeper_at(5, log_of(5)))
        writer.wait()
        written = writer.take_written(0)
        assert written is not None
        problems.append(written.problem)
    assert "wrote nothing for" in problems[0] and not problems[1]
    wait_for("both copies have ended", lambda: not any(map(is_alive, copies)))


def test_a_copy_that_writes_on_is_waited_for_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(20))

    def status(copy: int, options: int) -> tuple[int, int]:
        is_last = next(calls) == 19
        index = json.dumps(PackedSnapshot([], 7)).encode()
        file.write(index + len(index).to_bytes(8, "big") if is_last else b"a chunk")
        file.flush()
        return (copy if is_last else 0), 0

    monkeypatch.setattr(os, "waitpid", status)
    monkeypatch.setattr(snapshot_writer, "_CHECK_SECONDS", 0.0)
    clock = itertools.count(step=snapshot_writer._MOST_STILL_SECONDS)
    with tempfile.TemporaryFile() as file:
        assert snapshot_writer._packed_by(1 << 40, file, lambda: float(next(clock))) == PackedSnapshot([], 7)


# -- restoring


def in_batches(log: list[bytes], keeper: LedgerKeeper, head: LogHead) -> Iterator[MessageBatch]:
    first = keeper.head.next
    yield MessageBatch.of(first, [(offset, 1000 * offset, log[offset]) for offset in range(first, head.next)])


@pytest.mark.parametrize("damaged", [(), (30,), (30, 20), (30, 20, 10)])
def test_a_damaged_snapshot_is_passed_over_and_more_of_the_log_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ...]
) -> None:
    counted: Counter[str] = Counter()
    monkeypatch.setattr(snapshot_reader, "count", lambda name: counted.update([name]))
    store, log = store_in(tmp_path), log_of(50)
    for records in (10, 20, 30):
        keeper = keeper_at(records, log)
        name = write(store, list(keeper.chunks()), keeper.head, 1000 * records, shard=0)
        if records in damaged:
            part = next(tmp_path.glob(f"**/{name}/part-00000"))
            part.write_bytes(part.read_bytes()[:-1])
    begun: list[int] = []

    def since(keeper: LedgerKeeper, head: LogHead) -> Iterator[MessageBatch]:
        begun.append(keeper.head.next)
        return in_batches(log, keeper, head)

    whole = keeper_at(45, log)
    found = restore_newest(store, LedgerKeeperFactory(), 0, whole.head, lambda shard, head: None, since)
    left = [records for records in (30, 20, 10) if records not in damaged]
    assert begun == left[:1] and counted["snapshots_damaged"] == len(damaged)
    if not left:
        assert found is None
    else:
        assert found is not None and list(found.chunks()) == list(whole.chunks())
        assert found.snapshot_ms == 1000 * left[0]


@pytest.mark.parametrize("damaged", [(), (10,), (10, 20), (10, 20, 30)])
def test_the_settings_of_a_trimmed_log_come_from_any_whole_snapshot(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    store, log = store_in(tmp_path), log_of(50)
    for records in (10, 20, 30):
        keeper = keeper_at(records, log)
        name = write(store, list(keeper.chunks()), keeper.head, shard=0)
        if records in damaged:
            next(tmp_path.glob(f"**/{name}/part-00000")).write_bytes(b"")
    if len(damaged) < 3:
        assert origin_of_shard(store, 0, 5) == ORIGIN
    else:
        with pytest.raises(SnapshotDamaged):
            origin_of_shard(store, 0, 5)
    with pytest.raises(LogRefused, match="no snapshot of its ledger behind them"):
        origin_of_shard(store, 0, 31)


def test_a_snapshot_of_another_log_is_passed_over(tmp_path: Path) -> None:
    store, log = store_in(tmp_path), log_of(50)
    other = [log[0], request_fingerprint(), *log[2:]]
    for records, of in ((10, log), (20, other)):
        keeper = keeper_at(records, of)
        write(store, list(keeper.chunks()), keeper.head, 0, shard=0)
    whole = keeper_at(30, log)
    found = restore_newest(
        store, LedgerKeeperFactory(), 0, whole.head, lambda shard, head: None, lambda *at: in_batches(log, *at)
    )
    assert found is not None and found.head == whole.head and found.snapshot_ms == 0


def test_a_ledger_may_continue_ahead_of_its_state_but_not_with_another_log(tmp_path: Path) -> None:
    store, log = store_in(tmp_path), log_of(50)
    for records in (20, 30):
        keeper = keeper_at(records, log)
        write(store, list(keeper.chunks()), keeper.head, 0, shard=0)
    checked = []

    def check(shard: int, head: LogHead) -> None:
        checked.append(head.next)

    early = keeper_at(5, log)
    found = restore_newest(store, LedgerKeeperFactory(), 0, early.head, check)
    assert found is not None and found.head == keeper_at(20, log).head and checked == [20], "the nearest"
    found = restore_newest(store, LedgerKeeperFactory(), 0, LogHead(), check)
    assert found is not None and found.head.next == 30, "without any state the newest"


# -- the stage


MANY = 40
"""Records: so much log that snapshots are due."""


class Stored:
    """A ledger whose log is a list of values, one per second, with its state and its snapshots."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, run: str) -> None:
        self.log = log_of(60 * MANY)
        self.run = run
        self.folder = folder
        self.head, self.snapshot = Value(), Bag()
        self.read_again: list[tuple[int, int]] = []
        self.counted: Counter[str] = Counter()
        self.gauges: dict[str, int] = {}
        self.first = 0
        patch.setattr(ledgers, "read_range", self._again)
        patch.setattr(ledgers, "count", lambda name, number=1: self.counted.update({name: number}))
        patch.setattr(ledgers, "set_gauge", self.gauges.__setitem__)
        patch.setattr(snapshot_writer, "_FIRST_PAUSE_SECONDS", 0.0)
        patch.setattr(snapshot_writer, "_SENT_SECONDS", 5.0)

    @property
    def store(self) -> SnapshotStore:
        return store_in(self.folder)

    def batch(self, start: int, end: int) -> MessageBatch:
        return batch(start, self.log[start:end], second=1)

    def apply(self, start: int, end: int, arrives: bool = True) -> list[str]:
        """Apply so many times `MANY` records in a bundle, whose outputs arrive or not, and wait for a snapshot."""
        topic = replace(
            watched(), partitions=(replace(watched().partitions[0], topic="page-ledger", start=self.first),)
        )
        stage = KeepLogLedger(topic, LedgerKeeperFactory(), self.run, 50 / (1 << 20), store=self.store)
        reader = FakeReader(self.batch(start * MANY, end * MANY))
        stage._reader = reader  # type: ignore[assignment]
        outputs = list(stage.process((0, 0.0), self.head, self.snapshot))
        for output in outputs:
            if output.kind == APPLIED and arrives:
                note_sent(output.data)
        writer_of(self.store, self.run).wait()
        return [output.kind for output in outputs if output.kind != APPLIED]

    def keeper(self) -> Keeper | None:
        return kept(self.run, Keepers).peek(0)

    def lose_process(self) -> None:
        close_run(self.run)

    def at(self) -> int:
        return LogHead.from_bytes(self.head.value).next // MANY

    def snapshots(self) -> list[int]:
        return [one.next // MANY for one in self.store.newest_first(0) if self.store.head(0, one)]

    def _again(self, input_range: PartitionRange) -> Iterator[MessageBatch]:
        self.read_again.append((input_range.start // MANY, input_range.end // MANY))
        return iter([self.batch(input_range.start, input_range.end)])


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stored]:
    one = Stored(monkeypatch, tmp_path, tmp_path.name)
    yield one
    one.lose_process()


def fingerprint(stored: Stored) -> list[bytes]:
    keeper = stored.keeper()
    assert keeper is not None
    return list(keeper.chunks())


def test_the_state_of_a_stage_is_only_its_head(stored: Stored) -> None:
    for at in range(0, 60, 5):
        stored.apply(at, at + 5)
        assert not stored.snapshot.values and len(stored.head.value or b"") < 1000
    assert stored.snapshots() and stored.counted["snapshots"] >= 1


def test_a_lost_ledger_is_restored_from_storage(stored: Stored) -> None:
    for at in range(0, 40, 5):
        stored.apply(at, at + 5)
    newest, before = stored.snapshots()[0], fingerprint(stored)
    assert newest > 10
    stored.lose_process()
    stored.apply(40, 41)
    assert stored.read_again == [(newest, 40)] or newest == 40
    assert keeper_at(41 * MANY, stored.log).head == LogHead.from_bytes(stored.head.value)
    assert before != fingerprint(stored) == list(stored.keeper().chunks())  # type: ignore[union-attr]


def test_the_stream_goes_on_while_storage_is_away(stored: Stored) -> None:
    stored.folder = stored.folder / "file"
    stored.folder.write_text("no folder")
    for at in range(0, 20, 5):
        stored.apply(at, at + 5)
    assert stored.counted["snapshot_failures"] >= 1 and not stored.counted["snapshots"]
    stored.folder.unlink()
    for at in range(20, 40, 5):
        stored.apply(at, at + 5)
    assert stored.counted["snapshots"] >= 1 and stored.gauges["snapshot_age_seconds_shard_0"] >= 0


def test_a_ledger_in_the_process_that_is_ahead_of_the_state_is_used_if_its_outputs_have_arrived(
    stored: Stored,
) -> None:
    stored.apply(0, 5)
    checkpoint = stored.head.value
    stored.apply(5, 9)
    ahead = stored.keeper()
    stored.head.value = checkpoint  # the job restarted from its last checkpoint
    stored.apply(5, 12)
    assert stored.keeper() is ahead and not stored.read_again
    assert stored.at() == 12 and ahead is not None and ahead.head == keeper_at(12 * MANY, stored.log).head
    checkpoint = stored.head.value
    stored.apply(12, 15, arrives=False)
    stored.head.value = checkpoint
    stored.apply(12, 15)
    assert stored.keeper() is not ahead, "its outputs were lost"
    assert stored.counted["ledgers_recovered"] == 1


def test_a_ledger_in_the_process_that_is_behind_the_state_is_not_used(stored: Stored) -> None:
    stored.apply(0, 5)
    old = stored.keeper()
    stored.head.value = keeper_at(9 * MANY, stored.log).head.to_bytes()  # another process went on
    stored.apply(9, 12)
    assert stored.keeper() is not old and stored.at() == 12


@pytest.mark.parametrize("arrived", [True, False])
def test_without_state_a_ledger_of_the_process_is_used_only_if_its_outputs_have_arrived(
    stored: Stored, arrived: bool
) -> None:
    stored.apply(0, 5, arrives=arrived)
    old = stored.keeper()
    stored.head = Value()
    stored.apply(5 if arrived else 0, 9)
    assert (stored.keeper() is old) == arrived
    assert LogHead.from_bytes(stored.head.value) == keeper_at(9 * MANY, stored.log).head


def test_without_state_a_ledger_begins_at_its_newest_snapshot_also_if_the_log_before_was_deleted(
    stored: Stored,
) -> None:
    for at in range(0, 40, 5):
        stored.apply(at, at + 5)
    newest = stored.snapshots()[0]
    stored.lose_process()
    stored.head, stored.first = Value(), newest
    stored.apply(newest, 45)
    assert LogHead.from_bytes(stored.head.value) == keeper_at(45 * MANY, stored.log).head
    assert not stored.read_again


def test_a_state_before_the_beginning_of_its_log_goes_on_from_the_newest_snapshot(stored: Stored) -> None:
    """An old savepoint, and the log was trimmed since."""
    old = b""
    for at in range(0, 40, 5):
        stored.apply(at, at + 5)
        old = old or stored.head.value or b""
    newest = stored.snapshots()[0]
    stored.lose_process()
    stored.head, stored.first = Value(old), newest * MANY
    stored.apply(newest, 45)
    assert LogHead.from_bytes(stored.head.value) == keeper_at(45 * MANY, stored.log).head


def test_a_snapshot_in_state_of_an_older_version_is_used_and_then_removed(stored: Stored) -> None:
    keeper = keeper_at(10 * MANY, stored.log)
    stored.head.value = keeper.head.to_bytes()
    stored.snapshot = Bag(keeper.chunks())
    stored.apply(10, 15)
    assert stored.read_again == [(10, 10)], "nothing"
    for at in range(15, 40, 5):
        stored.apply(at, at + 5)
    assert not stored.snapshot.values and stored.snapshots()


def test_a_log_that_leads_to_another_head_is_refused(stored: Stored) -> None:
    at = 0
    while not stored.snapshots() or stored.snapshots()[0] == at:  # then a part of the log is read again
        stored.apply(at, at + 5)
        at += 5
    stored.lose_process()
    stored.log[3] = request_fingerprint()
    stored.log[at * MANY - 1] = request_fingerprint()
    with pytest.raises(LostLedger):
        stored.apply(at, at + 5)


def test_the_outputs_of_a_ledger_are_noted_when_they_have_arrived() -> None:
    with closing_run("a run"):
        note_sent(applied("a run", 3, 7))
        sent = kept("a run", SentHeads)
        assert sent.cover(3, 7) and not sent.cover(3, 8) and not sent.cover(4, 1)
        assert not kept("another run", SentHeads).cover(3, 7)
        note_sent(applied("a run", 3, 5))
        assert sent.cover(3, 7), "an older bundle of another thread"
        assert json.loads(applied("a run", 3, 7)) == ["a run", 3, 7]
        assert not sent.wait(3, 8, 0.01)
    assert sent.wait(3, 7, 60) and not sent.wait(3, 8, 60), "nothing more arrives when the run has ended"
    close_run("another run")
