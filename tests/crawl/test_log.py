"""Records of a log are there whole, and those of an inbox are taken once, in order, whenever either side is killed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.crawl.log import (
    ANNOUNCEMENT,
    INBOX_NAME,
    VISIT,
    AppendedFile,
    CrawlRecord,
    Inbox,
    InboxRefused,
    InboxWriter,
    records_of,
)

RECORDS = st.lists(
    st.builds(CrawlRecord, st.sampled_from([VISIT, ANNOUNCEMENT]), st.binary(max_size=50), st.binary(max_size=300)),
    max_size=20,
)


def files(folder: Path) -> list[Path]:
    return sorted((folder / INBOX_NAME).iterdir())


def heads(reader: Inbox) -> list[bytes]:
    return [record.head for record in reader.take()]


# -- a file of records -------------------------------------------------------------------------------------------------


@given(records=RECORDS, cut=st.integers(0, 400), changed=st.none() | st.integers(0, 6000))
def test_a_log_that_was_cut_off_or_damaged_has_all_records_before_that(
    tmp_path_factory: pytest.TempPathFactory, records: list[CrawlRecord], cut: int, changed: int | None
) -> None:
    file = AppendedFile(tmp_path_factory.mktemp("log") / "log")
    ends = [0]
    for record in records:
        file.append(record.packed())
        ends.append(file.end)
    whole = max(file.end - cut, 0)
    if changed is not None and changed < whole:
        content = bytearray(file.path.read_bytes())
        content[changed] ^= 1
        file.path.write_bytes(content)
        whole = changed
    file.cut(max(file.end - cut, 0))
    found = list(records_of(file.number, 0))
    kept = sum(end <= whole for end in ends[1:])
    assert [record for record, _ in found] == records[:kept] and [end for _, end in found] == ends[1 : kept + 1]
    file.close()


def test_what_finds_no_room_is_not_in_a_file_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = AppendedFile(tmp_path / "log"), os.write
    file.append(b"first")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", lambda number, data: write(number, data[:3]))
        file.append(b"second")
    file.append(b"third")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"firstthird"


def test_the_bytes_of_a_record_are_these() -> None:
    assert (
        CrawlRecord(VISIT, b"{}", b"body").packed()
        == bytes.fromhex("df5aa70509412a1f 76 02000000 04000000") + b"{}body"
    )


# -- the inbox ---------------------------------------------------------------------------------------------------------


@given(records=RECORDS, steps=st.lists(st.sampled_from(["append", "take", "new writer", "new reader"]), max_size=40))
def test_every_record_is_taken_once_and_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, records: list[CrawlRecord], steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("inbox")
    writer, reader = InboxWriter(folder, file_bytes=500), Inbox(folder)
    waiting, taken = list(records), []
    for step in [*steps, *["append"] * len(records), "take"]:
        if step == "append" and waiting:
            writer.append(waiting.pop(0))
        elif step == "take":
            taken += reader.take()
        elif step == "new writer":  # the old one was killed: its file stays
            writer = InboxWriter(folder, file_bytes=500)
        elif step == "new reader":
            reader.close()
            reader = Inbox(folder)
    assert taken == records and reader.damaged_bytes == 0
    assert len(files(folder)) == 1  # of the others everything is taken


def test_a_record_whose_reader_was_killed_is_taken_again(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    records = [CrawlRecord(VISIT, b"%d" % number) for number in range(3)]
    for record in records:
        writer.append(record)
    taking = Inbox(tmp_path).take()
    assert [next(taking), next(taking)] == records[:2]  # the second one is at work
    assert list(Inbox(tmp_path).take()) == records[1:]


@pytest.mark.parametrize("lost", [1, 9, 20])
def test_a_record_that_is_not_whole_is_counted_and_skipped_once_another_crawl_has_begun(
    tmp_path: Path, lost: int
) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(CrawlRecord(VISIT, b"whole"))
    [file] = files(tmp_path)
    half = CrawlRecord(VISIT, b"half of it", b"content")
    writer.append(half)
    os.truncate(file, file.stat().st_size - lost)
    reader = Inbox(tmp_path)
    assert heads(reader) == [b"whole"] and reader.damaged_bytes == 0  # it may be written just now
    InboxWriter(tmp_path).append(CrawlRecord(VISIT, b"next"))
    assert heads(reader) == [b"next"] and reader.damaged_bytes == len(half.packed()) - lost


@pytest.mark.parametrize(("content", "is_damaged"), [(b"", False), (b"\x08\0\0\0", False), (bytes(100), True)])
def test_a_file_that_is_cut_off_or_of_another_form_is_passed_over(
    tmp_path: Path, content: bytes, is_damaged: bool
) -> None:
    (tmp_path / INBOX_NAME).mkdir()
    (tmp_path / INBOX_NAME / "00000001").write_bytes(content)
    InboxWriter(tmp_path).append(CrawlRecord(VISIT, b"next"))
    reader = Inbox(tmp_path)
    assert heads(reader) == [b"next"] and (reader.damaged_bytes > 0) == is_damaged
    assert len(files(tmp_path)) == 1


def test_an_inbox_is_full_until_enough_is_taken(tmp_path: Path) -> None:
    writer, reader = InboxWriter(tmp_path, file_bytes=100, most_waiting_bytes=600), Inbox(tmp_path)
    for number in range(4):
        writer.append(CrawlRecord(VISIT, b"%d" % number, bytes(100)))
    assert not writer.is_full and writer.waiting_bytes == 4 * (8 + 17 + 101)
    writer.append(CrawlRecord(VISIT, b"4", bytes(100)))
    assert writer.is_full and InboxWriter(tmp_path, 100, 600).is_full  # also for the next crawl
    taking = reader.take()
    next(taking)
    assert writer.is_full
    assert len(list(taking)) == 4 and not writer.is_full


def test_a_writer_that_has_appended_nothing_leaves_no_file(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(CrawlRecord(VISIT, b"waits"))
    writer.close(all_are_taken=False)
    InboxWriter(tmp_path).close(all_are_taken=False)
    assert len(files(tmp_path)) == 1
    assert heads(Inbox(tmp_path)) == [b"waits"]


def test_a_writer_that_knows_that_all_is_taken_leaves_nothing(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(CrawlRecord(VISIT, b"{}"))
    list(Inbox(tmp_path).take())
    writer.close(all_are_taken=True)
    assert files(tmp_path) == []


def test_a_record_that_finds_no_room_leaves_the_inbox_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, write = InboxWriter(tmp_path, file_bytes=100), os.write
    writer.append(CrawlRecord(VISIT, b"first", bytes(100)))
    for most in (0, 20):  # no room for another file, and none for the record
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda number, data, most=most: write(number, data[:most]))
            for _ in range(2):
                with pytest.raises(InboxRefused, match=r"No space left on device.*make room"):
                    writer.append(CrawlRecord(VISIT, b"second", bytes(200)))
        writer.append(CrawlRecord(VISIT, b"after"))
    reader = Inbox(tmp_path)
    assert heads(reader) == [b"first", b"after", b"after"] and reader.damaged_bytes == 0


def test_a_mark_holds_where_the_next_record_begins(tmp_path: Path) -> None:
    writer = InboxWriter(tmp_path)
    writer.append(CrawlRecord(VISIT, b"{}"))
    [file] = files(tmp_path)
    assert file.name == "00000001" and struct.unpack("<Q", file.read_bytes()[:8]) == (8,)
    list(Inbox(tmp_path).take())
    assert struct.unpack("<Q", file.read_bytes()[:8]) == (file.stat().st_size,)
