"""Crawl logs as batches: they cover the file without gaps, and reading can continue from the end of any batch."""

from __future__ import annotations

import codecs
import gzip
import io
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.grade_reader import read_grades
from opicflow.connectors.files.log_reader import Batch, FileRange, format_of, read, split
from opicflow.connectors.files.opening import Block, InputRefused, decompressed, expand, open_bytes
from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.lab.experiments.edge_lists import web_of_file
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, Reason, Reject
from support.archives import gz, page, zst
from support.thorough import crossed, examples

Item = tuple[int, str]
"""An offset, and the URL or the reason for a reject."""

in_a_folder = examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
contents = st.lists(
    st.sampled_from(
        [b'{"url":"a"}', b'{"url":"abcdefghij"}', b"", b" ", b"x", b'{"url":"\xc3\xa9"}', b'\r{"url":"a"}\r']
    )
    | st.integers(0, 40).map(lambda size: b'{"url":"' + b"u" * size + b'"}'),
    max_size=12,
).map(b"\n".join) | st.binary(max_size=20).filter(lambda data: data[:3] not in (b"\x1f\x8b\x08", b"\x28\xb5\x2f"))


def items_of(batch: Batch) -> list[Item]:
    events, rejects, *_ = batch.decode()
    urls = [
        events.text[events.begins[first] : events.ends[first]].tobytes().decode() for first in events.url_starts[:-1]
    ]
    found = [*zip(events.offset.tolist(), urls, strict=True), *((one.offset, one.reason.value) for one in rejects)]
    assert all(batch.start <= offset < batch.end for offset, _ in found), (batch, found)
    singly = [(offset, one.reason.value if isinstance(one, Reject) else one.url) for offset, one in batch.items()]
    assert singly == sorted(found), "decoded one at a time, items must be the same, and in order"
    assert [one for _, one in batch.items() if isinstance(one, Reject)] == sorted(rejects, key=lambda one: one.offset)
    return sorted(found)


def read_all(
    file: Path, kind: Format = Format.JSONL, start: int = 0, end: int | None = None, in_a_line: bool = False
) -> list[Item]:
    batches = list(read(FileRange("s", str(file), kind, start, end, in_a_line)))
    assert all(first.end == second.start for first, second in pairwise(batches))
    assert all(batch.start < batch.end for batch in batches)
    return [item for batch in batches for item in items_of(batch)]


def in_ranges(file: Path, cuts: list[int]) -> list[Item]:
    """Return the items of the ranges between the cuts. A line belongs to the range that it begins in."""
    ends = [*cuts, None]
    found = read_all(file, end=ends[0])
    for start, end in pairwise(ends):
        assert start is not None
        found += read_all(file, start=start - 1, end=end, in_a_line=True)
    return found


def lines(count: int) -> bytes:
    return b"".join(b'{"url":"http://a.b/%d"}\n' % number for number in range(count))


# -- lines


@in_a_folder
@given(contents, st.integers(1, 40))
def test_batches_of_any_size_cover_the_file_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: int
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(data)
    whole = read_all(file)
    with monkeypatch.context() as patched:
        patched.setattr(log_reader, "BATCH_BYTES", size)
        batches = list(read(FileRange("s", str(file), Format.JSONL)))
        assert [batch.end for batch in batches] == [*(batch.start for batch in batches[1:]), len(data)][: len(batches)]
        assert (batches[0].start if data else len(data)) == 0
        assert [item for batch in batches for item in items_of(batch)] == whole
        for batch in batches:
            later = [item for item in whole if item[0] >= batch.end]
            assert read_all(file, start=batch.end) == later


@in_a_folder
@given(contents, st.integers(1, 40), st.sets(st.integers(1, 200), min_size=1, max_size=6))
def test_ranges_return_every_line_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: int, cuts: set[int]
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(data)
    with monkeypatch.context() as patched:
        patched.setattr(log_reader, "BATCH_BYTES", size)
        assert in_ranges(file, sorted(cuts)) == read_all(file)


@pytest.mark.parametrize("size", [1, 5, 12, 24, 1000])
def test_every_range_returns_the_lines_that_begin_in_it(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", size)
    file = tmp_path / "f.jsonl"
    file.write_bytes(lines(3) + b"\n" + lines(1) + b'{"url":"the last"}')
    whole = read_all(file)
    for start in range(1, file.stat().st_size + 2):
        for end in (start + 1, start + 2, start + 23, start + 60, None):
            expected = [item for item in whole if start <= item[0] and (end is None or item[0] < end)]
            assert read_all(file, start=start - 1, end=end, in_a_line=True) == expected, (start, end)


def broken(members: list[bytes], which: int, seed: int = 0) -> bytes:
    """Return a gzip file with a member for each argument. One member has a changed byte."""
    chance = random.Random(seed)
    packed = [bytearray(gz(member)) for member in members]
    packed[which][chance.randrange(12, len(packed[which]) - 8)] ^= 1 << chance.randrange(8)
    return b"".join(packed)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "number"), crossed([7, 100, 10_000], range(6)))
def test_damage_is_a_reject_and_ends_a_line(
    size: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", size)
    file = tmp_path / "f.gz"
    file.write_bytes(broken([lines(9), lines(40), b"rest of a line\n" + lines(3)], 1, number))
    whole = read_all(file)
    assert [item for item in whole if "http" in item[1]][:9] == read_all_of(lines(9), tmp_path)
    assert [url for _, url in whole][-3:] == ["http://a.b/0", "http://a.b/1", "http://a.b/2"]
    (damage,) = [offset for offset, reason in whole if reason == Reason.CORRUPT.value]
    for batch in read(FileRange("s", str(file), Format.JSONL)):
        assert read_all(file, start=batch.end) == [item for item in whole if item[0] >= batch.end]
    for cut in range(damage - 30, damage + 30):
        assert in_ranges(file, [cut]) == whole
        assert in_ranges(file, [cut, cut + 1, cut + 20]) == whole


def read_all_of(data: bytes, folder: Path) -> list[Item]:
    (folder / "g.jsonl").write_bytes(data)
    return read_all(folder / "g.jsonl")


@pytest.mark.parametrize(("size", "after"), crossed([33 << 20, 37 << 20], [b"\n" + lines(2), b"\n", b""]))
def test_a_line_that_is_too_long_is_one_reject(after: bytes, size: int, tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(lines(2) + b"x" * size + after)
    begin, length = len(lines(2)), size + len(after[:1])
    (reject,) = [one for batch in read(FileRange("s", str(file), Format.JSONL)) for one in batch.decode().rejects]
    assert (reject.reason, reject.offset, reject.bytes) == (Reason.TOO_LARGE, begin, b"x" * MOST_REJECTED_BYTES)
    start, _, rest = reject.detail.partition(" (the first 65536 of ")
    assert start == "the line is longer than 32 MiB"
    assert rest in {f"{of} bytes are kept)" for of in (size, length)}  # with its line break, or without
    expected = [*read_all_of(lines(2), tmp_path), (begin, "too-large")]
    expected += [(offset + begin + length, url) for offset, url in read_all_of(after[1:], tmp_path)]
    assert read_all(file) == expected
    assert in_ranges(file, [begin + 1, begin + (5 << 20), begin + size]) == expected
    assert in_ranges(file, [begin]) == expected


def test_a_line_that_is_too_long_and_ends_in_damage_is_a_reject_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "f.gz"
    cut = gzip.compress(b"x" * (MOST_EVENT_BYTES + (8 << 20)), 1)
    file.write_bytes(gz(lines(1)) + cut[: len(cut) * 9 // 10] + gz(lines(1)))
    whole = read_all(file)
    assert [found for _, found in whole] == ["http://a.b/0", "too-large", "corrupt", "http://a.b/0"]
    assert read_all(file, start=whole[2][0]) == whole[2:]


# -- other formats


@pytest.mark.parametrize(
    "compress", [b"".join, lambda parts: gz(*parts), lambda parts: zst(*parts)], ids=["plain", "gzip", "zstd"]
)
@pytest.mark.parametrize("kind", [Format.WARC, Format.EDGES])
def test_reading_can_continue_from_the_end_of_any_batch(
    kind: Format, compress: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_BATCH_ITEMS", 7)
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 1000)
    parts = [page(number) if kind is Format.WARC else b"http://a/%d http://a/0\n" % number for number in range(60)]
    file = tmp_path / "f"
    file.write_bytes(compress(parts))  # type: ignore[operator]
    assert format_of(str(file)) is kind
    whole = read_all(file, kind)
    assert len(whole) == 60
    batches = list(read(FileRange("s", str(file), kind)))
    assert batches[0].start == 0 and batches[-1].end == sum(map(len, parts)) and len(batches) > 5
    for batch in batches:
        later = read_all(file, kind, start=batch.end)
        assert later == [item for item in whole if item[0] >= batch.end]
        assert read_all(file, kind, end=batch.end) + later == whole


@pytest.mark.parametrize("kind", list(Format))
def test_an_empty_file_has_nothing_to_read(kind: Format, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"")
    assert format_of(str(file)) is None
    batches = list(read(FileRange("s", str(file), kind)))
    assert batches == []


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (lines(1), Format.JSONL),
        (gz(lines(1)), Format.JSONL),
        (zst(lines(1)), Format.JSONL),
        (b"\n\n" + lines(1), Format.JSONL),
        (b"Obj\x01...", Format.AVRO),
        (page(1), Format.WARC),
        (b"http://a/ http://b/\n", Format.EDGES),
        (b"", None),
        (b"\n \n", None),
    ],
    ids=["json", "gzip", "zstd", "blank lines", "avro", "warc", "edges", "empty", "blank"],
)
def test_the_content_of_a_file_determines_its_format(data: bytes, kind: Format | None, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    assert format_of(str(tmp_path / "f")) is kind


def test_files_that_are_not_crawl_logs_are_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(b"\x89PNG\r\n\x1a\n some picture, and nothing else\n")
    with pytest.raises(
        InputRefused,
        match=r"f\.jsonl: not a crawl log: give JSON lines, CSV .*, an edge list, or the log",
    ):
        format_of(str(file))
    with pytest.raises(InputRefused, match="no such file"):
        format_of(str(tmp_path / "nothing"))
    with pytest.raises(InputRefused, match="no such file"):
        list(read(FileRange("s", str(tmp_path / "nothing"), Format.JSONL)))


@pytest.mark.parametrize("reading", [ANY, Reading("jsonl")])
@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ('{"url": "https://bücher.example/"}'.encode("utf-16"), "UTF-16"),
        (codecs.BOM_UTF16_BE + "url,status\n".encode("utf-16-be"), "UTF-16"),
        ('{"url": "https://a/"}'.encode("utf-16-le"), "UTF-16LE"),
        (gz("https://a/\thttps://b/\n".encode("utf-16-be")), "UTF-16BE"),
    ],
)
def test_utf_16_is_refused_with_the_command_that_converts_it(
    data: bytes, encoding: str, reading: Reading, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(data)
    advice = f"f: {encoding}, which is not read: convert it: iconv -f {encoding} -t UTF-8 OLD > NEW"
    with pytest.raises(InputRefused, match=advice):
        format_of(str(tmp_path / "f"), reading)
    for read_ in (lambda name: read_ranks(name, "importance"), read_grades, web_of_file):
        with pytest.raises(InputRefused, match=advice):
            read_(str(tmp_path / "f"))


@pytest.mark.parametrize("name", ["a\0b", "a\0*", "a\0*/**", "file://a\0b", "file:///a\0*"])
def test_a_name_with_a_nul_character_is_refused_in_one_line(name: str) -> None:
    for use in (lambda: expand([name]), lambda: open_bytes(name)):
        with pytest.raises(InputRefused, match=r"^'\S*a\\x00\S*': it contains a NUL character: correct the name$"):
            use()


# -- bytes


class Counted(io.BytesIO):
    """A file that counts the bytes that are read."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


class Pipe(Counted):
    """A file that cannot seek, and returns a few bytes at a time."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 999))


def test_a_plain_file_is_not_read_before_the_start() -> None:
    file = Counted(random.Random(0).randbytes(20 << 20).replace(b"\x1f\x8b", b"ab"))
    data = file.getvalue()
    blocks = list(decompressed(file, start=19 << 20, block_bytes=1 << 19))
    assert blocks == [Block(at, data[at : at + (1 << 19)]) for at in range(19 << 20, len(data), 1 << 19)]
    assert file.bytes_read <= 3 << 20


@given(st.binary(max_size=3000), st.integers(0, 3100), st.integers(1, 1200))
def test_seekable_files_and_pipes_give_the_same_blocks(data: bytes, start: int, size: int) -> None:
    for form in (b"x" + data, gz(data), zst(data)):
        sought, read_through = (
            list(decompressed(kind(form), start=start, block_bytes=size)) for kind in (Counted, Pipe)
        )
        assert sought == read_through
        content = form if form[:1] == b"x" else data
        assert sought == [Block(at, content[at : at + size]) for at in range(start, len(content), size)]


def test_reading_begins_at_the_position_of_an_open_file() -> None:
    file = io.BytesIO(b"abcdefgh")
    file.seek(2)
    assert list(decompressed(file, start=1, block_bytes=3)) == [Block(1, b"def"), Block(4, b"gh")]


@pytest.mark.parametrize("may_grow", [False, True])
def test_an_incomplete_last_line_is_left_for_later_only_if_the_file_may_grow(may_grow: bool, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    whole, begun = b'{"url":"https://a.example/"}\n', b'{"url":"https://b.ex'
    file.write_bytes(whole + begun)
    input_range = FileRange("log", str(file), Format.JSONL, may_grow=may_grow)
    batches = list(read(input_range))
    assert batches[-1].end == len(whole) + (0 if may_grow else len(begun))
    assert sum(len(batch.decode().rejects) for batch in batches) == (0 if may_grow else 1)
    file.write_bytes(whole + begun + b'ample/"}')  # complete, without a newline
    rest = list(read(replace(input_range, start=batches[-1].end)))
    assert sum(len(batch.decode().events) for batch in rest) == (1 if may_grow else 0)


def test_the_parts_of_a_range_give_the_events_of_the_range(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"".join(b'{"url":"https://a.example/%d"}\n' % (7**n) for n in range(60)))
    input_range = FileRange("log", str(file), Format.JSONL)
    offsets = [offset for batch in read(input_range) for offset in batch.decode().events.offset.tolist()]
    for range_bytes in (1, 10, 100, 1000, 10**6):
        at, found = 0, []
        for part in split(input_range, range_bytes):
            for batch in read(part):
                assert batch.start == at
                at = batch.end
                found += batch.decode().events.offset.tolist()
        assert found == offsets


def test_compressed_and_remote_files_are_not_split(tmp_path: Path) -> None:
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"url":"https://a.example/"}\n' * 100))
    for input_range in (
        FileRange("log", str(packed), Format.JSONL),
        FileRange("log", "s3://bucket/log.jsonl", Format.JSONL),
        FileRange("log", str(packed), Format.AVRO),
    ):
        assert split(input_range, 10) == [input_range]
