"""The files of results are written while the parts behind them are made, and get their names together."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay import result_files as module
from opicflow.pipelines.replay.result_files import FileKinds, result_files, results_folder, work_folder
from opicflow.pipelines.replay.state import FolderInUse, StateFolder
from opicflow.pipelines.results.part_files import ArrivingParts, Stopped, arriving_parts, write_part
from opicflow.pipelines.stages.outputs import (
    FINAL_IMPORTANCE,
    FINAL_ORDERS,
    FINAL_SCHEDULE,
    MOMENTS,
    REJECTS,
    TOMBSTONES,
    Output,
)
from support.commands import CommandResult, command
from support.logs import WebLog, jsonl

KINDS = FileKinds("jsonl", 1, sites=False, publications=False)


def test_one_replay_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    with (
        results_folder(tmp_path / "out"),
        pytest.raises(FolderInUse, match="out: another replay writes its results there: wait for it, or name another"),
        results_folder(tmp_path / "out"),
    ):
        pass
    with results_folder(tmp_path / "out"):
        pass


def test_what_killed_replays_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    others = [".orders.csv.12.partial", ".importance.jsonl", "importance.parquet", ".importance.txt.12.partial"]
    left = [".importance.jsonl.12.partial", ".crawl-orders-00002-of-00003.avro.7.partial", ".summary.json.12.partial"]
    for name in (*others, *left):
        (tmp_path / name).write_bytes(b"x")
    work = work_folder(tmp_path)
    (work.__enter__() / "part").write_bytes(b"x")  # and is killed
    with results_folder(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_work_folder_among_temporary_files_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "opicflow-replay-killed").mkdir()
    with work_folder(None) as work:
        assert work.parent == tmp_path and list(tmp_path.iterdir()) == [work]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_replay_has_left_in_its_state_is_removed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in (".state.json.12.partial", "work/.importance-000001.12.partial", "work/rejects-000000-empty"):
        (tmp_path / name).write_bytes(b"x")
    with StateFolder.locked(tmp_path, create=True):
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["lock", "rejects-000000-empty", "work"]


@pytest.mark.parametrize("failing", ["importance", "refresh-schedule", "crawl-orders"])
def test_where_a_file_cannot_be_written_none_gets_its_name(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.written_result

    @contextmanager
    def write_unless_full(folder: Path, name: str, *arguments: Any) -> Iterator[list[Path]]:
        with write(folder, name, *arguments) as paths:
            if name == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            yield paths

    monkeypatch.setattr(module, "written_result", write_unless_full)
    with pytest.raises(OSError, match="No space left") as raised, result_files(tmp_path, tmp_path, KINDS) as files:
        files.finish()
    assert raised.value.filename == str(tmp_path / f"{failing}.jsonl")
    assert list(tmp_path.iterdir()) == []


class FullDisk:
    """A disk that is full when the data of the `last`-th file in a folder reach it."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch, last: int) -> None:
        self._folder, self._last, self._sync = folder, last, os.fsync
        self.files: list[str] = []
        patched.setattr(os, "fsync", self._write)

    def _write(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.parent == self._folder:
            self.files.append(path.name)
            if len(self.files) == self._last:
                raise OSError(errno.ENOSPC, "No space left on device")
        self._sync(handle)


@pytest.mark.parametrize(
    "options", [("--publications",), ("--format", "parquet", "--parts", "2")], ids=["publications", "parts"]
)
def test_a_disk_that_is_full_at_any_file_leaves_all_results_of_the_run_before(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay(log: str) -> CommandResult:
        given = ("--out", out, "--report", out / "report.html", "--state", tmp_path / f"{log}.state", *options)
        return command("replay", tmp_path / log, "--quiet", *given)

    def results() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in out.iterdir()}

    out = tmp_path / "out"
    out.mkdir()
    for log, pages in (("old", 40), ("new", 50)):
        events = WebLog(power_law_web(pages, 3), announced=False).crawl("random", 200).events
        (tmp_path / log).write_bytes(jsonl(events) + b"nonsense\n")
    assert replay("old").code == 0
    before = results()
    last = 0
    while True:
        last += 1
        with monkeypatch.context() as patched:
            disk = FullDisk(out, patched, last)
            done = replay("new")
        if len(disk.files) < last:
            break
        assert (done.code, done.out) == (2, "") and done.err.count("\n") == 1, done
        assert f"{out}/" in done.err and "No space left on device" in done.err
        assert results() == before, f"the disk was full at {disk.files[-1]}"
    assert done.code == 0, done
    after = results()
    assert after.keys() == before.keys() and len(after) <= last - 1
    assert all(before[name] != after[name] for name in before if name.startswith(("importance", "report", "summary")))


def test_a_folder_in_the_place_of_a_file_leaves_all_results_of_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrivingParts, "read", lambda self, *kinds: iter(()))
    (tmp_path / "importance.jsonl").write_bytes(b"old")
    (tmp_path / "rejects.jsonl").mkdir()
    with pytest.raises(IsADirectoryError) as raised, result_files(tmp_path, tmp_path, KINDS) as files:
        files.finish()
    assert raised.value.filename == str(tmp_path / "rejects.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["importance.jsonl", "rejects.jsonl"]
    assert (tmp_path / "importance.jsonl").read_bytes() == b"old"


def test_files_are_returned_in_their_order_and_have_no_names_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrivingParts, "read", lambda self, *kinds: iter(()))
    kinds = FileKinds("jsonl", 1, sites=True, publications=True)
    with result_files(tmp_path, tmp_path, kinds) as files:
        for _ in range(1000):
            if len(list(tmp_path.glob(".importance*.partial"))):
                break
            Event().wait(0.01)
        assert not (tmp_path / "importance.jsonl").exists()
        written = files.finish()
    assert [path.name for path in written] == [
        "importance.jsonl",
        "refresh-schedule.jsonl",
        "crawl-orders.jsonl",
        "site-importance.jsonl",
        "publications.jsonl",
        "refresh-publications.jsonl",
        "page-changes.jsonl",
        "rejects.jsonl",
        "tombstones.jsonl",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_results_of_an_earlier_run_in_another_format_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrivingParts, "read", lambda self, *kinds: iter(()))
    others = ["importance.txt", "my-importance.jsonl", "site-importance.jsonl", "publications.jsonl"]
    old = ["importance.jsonl", "crawl-orders-00001-of-00002.avro", "rejects.jsonl", "refresh-schedule.parquet"]
    for name in (*others, *old):
        (tmp_path / name).write_bytes(b"old")
    with result_files(tmp_path, tmp_path, FileKinds("parquet", 1, sites=False, publications=False)) as files:
        assert len(list(tmp_path.glob("[!.]*"))) == len(others) + len(old)
        written = files.finish()
    assert {path.name for path in tmp_path.iterdir()} == {*others, *(path.name for path in written)}
    assert (tmp_path / "refresh-schedule.parquet").read_bytes() != b"old"


def test_the_thread_that_finishes_writes_what_the_other_one_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, by = module.written_result, dict[str, str]()
    has_begun, others_are_written = Event(), Event()

    @contextmanager
    def write_the_first_one_last(folder: Path, name: str, *arguments: Any) -> Iterator[list[Path]]:
        by[name] = current_thread().name
        if name == "importance":
            has_begun.set()
            assert others_are_written.wait(30)
        with write(folder, name, *arguments) as paths:
            if len(by) == 3:
                others_are_written.set()
            yield paths

    monkeypatch.setattr(module, "written_result", write_the_first_one_last)
    monkeypatch.setattr(ArrivingParts, "read", lambda self, *kinds: iter(()))
    with result_files(tmp_path, tmp_path, KINDS) as files:
        assert has_begun.wait(30)
        written = files.finish()
    assert by.pop("importance").startswith("write")
    assert set(by.values()) == {current_thread().name}
    assert all(path.exists() for path in written)


def test_a_replay_that_fails_leaves_the_files_of_the_last_one(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    (out / "importance.jsonl").write_bytes(b"of the last run")
    with pytest.raises(ZeroDivisionError), result_files(out, work, KINDS):
        raise ZeroDivisionError
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"importance.jsonl": b"of the last run"}


def test_a_thread_that_waits_for_an_import_for_ever_does_not_hold_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, ended = Event(), list[bool]()
    monkeypatch.setattr(module, "load_arrow", lambda format_: ended.append(is_over.wait(30)))
    monkeypatch.setattr(module, "_LONGEST_END_SECONDS", 0.1)
    with result_files(tmp_path, tmp_path, KINDS._replace(many_rows=True)):
        pass
    assert not ended
    is_over.set()


def test_parts_are_read_as_they_arrive_and_no_earlier(tmp_path: Path) -> None:
    def final(kind: str, number: int) -> Output:
        return Output(kind, f"{kind} {number}".encode(), offset=7, number=number)

    write_part(tmp_path, final(FINAL_IMPORTANCE, 0))  # of a run that was killed: it arrives again
    with arriving_parts(tmp_path) as arriving:
        assert not arriving.has(REJECTS)
        write_part(tmp_path, Output(REJECTS, b"reject"))
        write_part(tmp_path, Output(MOMENTS, b"{}"))
        assert not arriving.has(REJECTS), "more may come until the first final part"
        assert not arriving.has(FINAL_IMPORTANCE)

        write_part(tmp_path, final(FINAL_IMPORTANCE, 0))
        assert list(arriving.read(REJECTS)) == [b"reject"]
        importance = arriving.read(FINAL_IMPORTANCE)
        assert next(importance) == b"final-importance 0"
        assert not arriving.has(FINAL_IMPORTANCE, 1)
        write_part(tmp_path, final(FINAL_IMPORTANCE, 1))
        assert next(importance) == b"final-importance 1"

        write_part(tmp_path, Output(MOMENTS, b"{}", offset=1))
        assert not arriving.has(FINAL_IMPORTANCE, 2)
        write_part(tmp_path, final(FINAL_SCHEDULE, 0))
        assert list(importance) == [], "another final kind ends it"
        assert not arriving.has(FINAL_ORDERS)
        arriving.complete()
        assert list(arriving.read(FINAL_SCHEDULE, FINAL_ORDERS)) == [b"final-schedule 0"]


def test_a_bundle_that_is_repeated_ends_no_result_early(tmp_path: Path) -> None:
    with arriving_parts(tmp_path) as arriving:
        write_part(tmp_path, Output(FINAL_IMPORTANCE, b"pages", number=2))
        write_part(tmp_path, Output(FINAL_SCHEDULE, b"first", number=3))
        schedule = arriving.read(FINAL_SCHEDULE)
        assert next(schedule) == b"first"
        write_part(tmp_path, Output(FINAL_IMPORTANCE, b"pages", number=2))
        assert not arriving.has(FINAL_SCHEDULE, 1), "the bundle failed in the schedule, and comes again"
        write_part(tmp_path, Output(FINAL_SCHEDULE, b"first", number=3))
        write_part(tmp_path, Output(FINAL_SCHEDULE, b"second", number=4))
        arriving.complete()
        assert list(schedule) == [b"second"]


def test_all_parts_are_there_when_they_were_saved_elsewhere(tmp_path: Path) -> None:
    for number in range(12):
        write_part(tmp_path, Output(FINAL_SCHEDULE, b"%d" % number, number=number))
    write_part(tmp_path, Output(TOMBSTONES, b"gone"))
    with arriving_parts(tmp_path) as arriving:
        arriving.complete()
        found = list(arriving.read(TOMBSTONES, FINAL_SCHEDULE))
        assert found == [b"gone", *(b"%d" % number for number in range(12))]


def test_readers_are_stopped_at_the_end(tmp_path: Path) -> None:
    with arriving_parts(tmp_path) as arriving:
        parts = arriving.read(FINAL_IMPORTANCE)
    with pytest.raises(Stopped):
        next(parts)
    write_part(tmp_path, Output(FINAL_IMPORTANCE, b"no reader waits"))
