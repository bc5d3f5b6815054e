"""What is appended to an inbox is taken once, in its order, whenever either side is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.recorder.inbox import ANNOUNCEMENT, INBOX_NAME, VISIT, Inbox, InboxRefused, InboxWriter, Report

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
    return sorted((folder / INBOX_NAME).iterdir())


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


def test_a_report_that_was_not_appended_whole_is_not_taken(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"whole"))
    writer.append(Report(VISIT, b"cut off", b"", b"content"))
    [file] = files(tmp_path)
    os.truncate(file, file.stat().st_size - 1)
    after = InboxWriter(tmp_path)
    after.append(Report(ANNOUNCEMENT, b"of the next crawl"))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"whole", b"of the next crawl"]
    assert len(files(tmp_path)) == 1 and reader.damaged_bytes == 0


def test_what_is_damaged_is_counted_and_passed_over(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"whole"))
    with files(tmp_path)[0].open("ab") as file:
        file.write(bytes(100))
    after = InboxWriter(tmp_path)
    after.append(Report(VISIT, b"next"))
    reader = Inbox(tmp_path)
    assert [report.event for report in reader.take()] == [b"whole", b"next"] and reader.damaged_bytes == 100


def test_a_report_that_finds_no_room_leaves_the_inbox_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"first"))
    with monkeypatch.context() as patch:
        whole = os.writev
        patch.setattr(os, "writev", lambda file, parts: whole(file, (*parts[:2], b"")))
        with pytest.raises(InboxRefused, match="make room"):
            writer.append(Report(VISIT, b"second", b"", b"content"))
    writer.append(Report(VISIT, b"third"))
    assert [report.event for report in Inbox(tmp_path).take()] == [b"first", b"third"]


def test_the_bytes_of_an_inbox_are_these(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"{}", b"r", b"body"))
    [file] = files(tmp_path)
    assert file.name == "00000001"
    assert file.read_bytes() == bytes.fromhex("0800000000000000 76 02000000 01000000 04000000") + b"{}rbody"


def test_a_writer_that_knows_that_all_is_taken_leaves_nothing(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(Report(VISIT, b"{}"))
    list(Inbox(tmp_path).take())
    writer.close(all_are_taken=True)
    assert files(tmp_path) == []
