"""Records appended to an inbox are taken once, in their order, whenever either side is killed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.recorder.inbox import ANNOUNCEMENT, INBOX_NAME, VISIT, Inbox, InboxRefused, InboxWriter, Report
from support.same_bytes import Killed

REPORTS = st.lists(
    st.builds(
        Report,
        st.sampled_from([VISIT, ANNOUNCEMENT]),
        st.binary(max_size=50),
        st.binary(max_size=5),
        st.binary(max_size=300),
    ),
    max_size=20,
)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / INBOX_NAME).iterdir() if path.name.isdecimal())


def appended(file: Path) -> int:
    """Up to where records are appended."""
    return int(struct.unpack("=QQ", file.read_bytes()[:16])[1])


@given(reports=REPORTS, steps=st.lists(st.sampled_from(["append", "take", "new writer", "new reader"]), max_size=40))
def test_every_report_is_taken_once_and_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, reports: list[Report], steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("inbox")
    writer, reader = InboxWriter(folder, file_bytes=500), Inbox(folder)
    waiting, taken = list(reports), []
    for step in [*steps, *["append"] * len(reports), "take"]:
        if step == "append" and waiting:
            writer.append(waiting.pop(0))
        elif step == "take":
            taken += reader.take()
        elif step == "new writer":  # the old one was killed: its file stays
            writer = InboxWriter(folder, file_bytes=500)
        elif step == "new reader":
            reader.close()
            reader = Inbox(folder)
    assert taken == reports and reader.damaged_bytes == 0
    assert len(files(folder)) == 1  # of the others everything is taken


def test_a_report_whose_reader_was_killed_is_taken_again(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    reports = [Report(VISIT, b"%d" % number) for number in range(3)]
    for report in reports:
        writer.append(report)
    taking = Inbox(tmp_path).take()
    assert [next(taking), next(taking)] == reports[:2]  # the second one is at work
    assert list(Inbox(tmp_path).take()) == reports[1:]


def test_a_report_whose_writer_was_killed_before_it_was_appended_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Marks:
        def __setitem__(self, mark: int, value: int) -> None:
            raise Killed

    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"whole"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(writer, "_marks", Marks())
        writer.append(Report(VISIT, b"not whole"))
    after = InboxWriter(tmp_path)
    after.append(Report(ANNOUNCEMENT, b"of the next crawl"))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"whole", b"of the next crawl"]
    assert len(files(tmp_path)) == 1 and reader.damaged_bytes == 0


def test_records_damaged_by_the_end_of_the_machine_are_counted_and_skipped(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"whole"))
    [file] = files(tmp_path)
    whole = appended(file)
    writer.append(Report(VISIT, b"half of it", b"", b"content"))
    damaged = appended(file) - whole
    os.truncate(file, appended(file) - 1)
    after = InboxWriter(tmp_path)
    after.append(Report(VISIT, b"next"))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"whole", b"next"]
    assert reader.damaged_bytes == damaged - 1


@pytest.mark.parametrize(
    "content", ["", "0800000000000000", "0800000000000000 76020000000100000004000000 7b7d72626f6479"]
)
def test_a_file_that_is_cut_off_or_of_another_form_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / INBOX_NAME).mkdir()
    (tmp_path / INBOX_NAME / "00000001").write_bytes(bytes.fromhex(content))
    InboxWriter(tmp_path).append(Report(VISIT, b"next"))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"next"]
    assert (reader.damaged_bytes > 0) == (len(content) > 30)


def test_the_rest_of_a_file_that_is_overwritten_is_not_taken_again(tmp_path: Path) -> None:
    writer, reader = InboxWriter(tmp_path, file_bytes=200), Inbox(tmp_path)
    for number in range(4):
        writer.append(Report(VISIT, b"%d" % number, b"", bytes(100)))
        assert [report.event for report in reader.take()] == [b"%d" % number]
    InboxWriter(tmp_path)  # begins another file: that of the third record
    *_, file = files(tmp_path)
    assert b"2" in file.read_bytes() and appended(file) == 16
    with file.open("r+b") as head:
        head.write(struct.pack("=QQ", 16, 140))  # the system has written the head alone
    after = Inbox(tmp_path)
    assert list(after.take()) == [] and after.damaged_bytes == 140 - 16


def test_files_that_are_written_over_are_few(tmp_path: Path) -> None:
    writer, reader = InboxWriter(tmp_path, file_bytes=200), Inbox(tmp_path)
    for number in range(20):
        writer.append(Report(VISIT, b"%d" % number, b"", bytes(100)))
    assert len(files(tmp_path)) == 20
    assert [report.event for report in reader.take()] == [b"%d" % number for number in range(20)]
    assert len(list((tmp_path / INBOX_NAME).iterdir())) == 5
    for number in range(20):
        writer.append(Report(VISIT, b"%d" % number, b"", bytes(100)))
        assert [report.event for report in reader.take()] == [b"%d" % number]
        assert len(list((tmp_path / INBOX_NAME).iterdir())) == 5


def test_an_inbox_is_full_until_enough_is_taken(tmp_path: Path) -> None:
    writer, reader = InboxWriter(tmp_path, file_bytes=200, most_waiting_bytes=1000), Inbox(tmp_path)
    for number in range(4):
        writer.append(Report(VISIT, b"%d" % number, b"", bytes(100)))
    assert not writer.is_full and writer.waiting_bytes == 800
    writer.append(Report(VISIT, b"4", b"", bytes(100)))
    assert writer.is_full and InboxWriter(tmp_path, 200, 1000).is_full  # also for the next crawl
    writer = InboxWriter(tmp_path, 200, 1000)
    taking = reader.take()
    for _ in range(3):
        next(taking)
    assert writer.is_full
    assert len(list(taking)) == 2 and not writer.is_full


def test_a_writer_that_has_appended_nothing_leaves_no_file(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"waits"))
    writer.close(all_are_taken=False)
    InboxWriter(tmp_path).close(all_are_taken=False)
    assert len(files(tmp_path)) == 1
    assert [report.event for report in Inbox(tmp_path).take()] == [b"waits"]


def test_a_very_large_file_is_not_kept(tmp_path: Path) -> None:
    writer, reader = InboxWriter(tmp_path), Inbox(tmp_path)
    writer.append(Report(VISIT, b"", b"", bytes(17 << 20)))
    writer.append(Report(VISIT, b"next"))
    assert len(list(reader.take())) == 2
    assert sorted(path.name for path in (tmp_path / INBOX_NAME).iterdir()) == ["00000001.taken", "00000003"]


def test_a_report_that_finds_no_room_leaves_the_inbox_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: int, data: bytes, at: int) -> int:
        if at > 100:
            raise OSError(28, "No space left on device")
        return whole(file, data[:50], at)

    writer, whole = InboxWriter(tmp_path, file_bytes=100), os.pwrite
    writer.append(Report(VISIT, b"first"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        for _ in range(2):
            with pytest.raises(InboxRefused, match=r"No space left on device.*make room"):
                writer.append(Report(VISIT, b"second", b"", bytes(200)))
    writer.append(Report(VISIT, b"third"))
    writer.append(Report(VISIT, b"fourth", b"", bytes(200)))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"first", b"third", b"fourth"]
    assert reader.damaged_bytes == 0


def test_the_bytes_of_an_inbox_are_these(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path, file_bytes=50)
    writer.append(Report(VISIT, b"{}", b"r", b"body"))
    [file] = files(tmp_path)
    assert file.name == "00000001"
    head = bytes.fromhex("1000000000000000 2800000000000000 76 01000000 02000000 01000000 04000000")
    assert file.read_bytes() == head + b"{}rbody" + bytes(10)


def test_a_writer_that_knows_that_all_is_taken_leaves_nothing(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"{}"))
    list(Inbox(tmp_path).take())
    writer.close(all_are_taken=True)
    assert list((tmp_path / INBOX_NAME).iterdir()) == []
