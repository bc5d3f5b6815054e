"""Results as files: one set of columns in all formats, the same bytes every time, in parts, within bounded memory."""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.files.avro_writer import AvroWriter
from opicflow.connectors.files.divided_files import found_paths
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.pipelines.results import files
from opicflow.pipelines.results.arrow_columns import text_array
from opicflow.pipelines.results.arrow_lines import many_lines
from opicflow.pipelines.results.files import json_lines, stream_result, written_result
from opicflow.pipelines.results.record_columns import RESULTS, hosts_of
from opicflow.schemas.columns import Columns, NumberedWords, Texts, WithNulls, pack, plain_rows
from opicflow.schemas.published_schemas import schema

FORMATS = ["jsonl", "avro", "parquet"]
IMPORTANCE = RESULTS["importance"]
MOMENT = {
    "pages": 70_000,
    "clock": 2.5,
    "event_time_ms": 1_771_000_000_000,
    "shard": 0,
    "cut": 0,
    "certificate": 1e-5,
    "settled": True,
}


def packed(first: int, rows: int) -> bytes:
    """Return importance; every third page has a URL with quotes or other letters, every fifth was never visited."""
    number = np.arange(first, first + rows)
    names = [["plain", 'a "quoted" \\ one', "b\u00fccher"][i % 3] + f"-{i}" for i in number.tolist()]
    urls = Texts.of([f"https://site-{i % 7}.example/{name}".encode() for i, name in zip(number, names, strict=True)])
    columns = {
        "pages": number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "importance": 1 / (number + 10.0),
        "window_importance": 1 / (number + 11.0),
        "score": 70_000 / (number + 10.0),
        "trend_per_day": np.where(number % 2, -1e-300, 0.0),
        "cash": (number << 40) - (1 << 50),
        "waiting": number,
        "rate": np.sqrt(number + 1.0),
        "error_factor": np.zeros(rows),
        "visits": number % 5,
        "last_visit_ms": np.where(number % 5, 1_770_000_000_000 + number, 0),
        "last_outcome": (number % 9).astype(np.int8),
        "measured": (number % 2).astype(np.uint8),
        "url_lengths": urls.lengths,
        "url_bytes": urls.text,
    }
    return pack("importance", MOMENT, columns)


def parts_of(rows: int, at_once: int) -> Callable[[], Iterator[bytes]]:
    return lambda: (packed(first, min(at_once, rows - first)) for first in range(0, rows, at_once))


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file as plain values."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    if path.suffix == ".parquet":
        return [_plain(record) for record in pq.read_table(path).to_pylist()]
    with open(path, "rb") as file:
        return [_plain(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


def _plain(record: Any) -> dict[str, Any]:
    return {
        name: round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value
        for name, value in record.items()
    }


def written(folder: Path, format_: str, rows: int, at_once: int = 1000, parts: int = 1) -> list[Path]:
    folder.mkdir(exist_ok=True)
    with written_result(folder, "importance", format_, IMPORTANCE, parts_of(rows, at_once), parts) as paths:
        return paths


# -- columns


def test_all_formats_have_the_same_records_with_quotes_and_other_letters(tmp_path: Path) -> None:
    expected = [row for part in parts_of(500, 100)() for row in plain_rows(IMPORTANCE.columns_of(part))]
    assert any('"' in row["url"] for row in expected) and any("\u00fc" in row["url"] for row in expected)
    assert {row["last_visit"] is None for row in expected} == {True, False}
    for format_ in FORMATS:
        (path,) = written(tmp_path, format_, 500, 100)
        found = read(path)
        assert found == expected, format_
        assert {tuple(row) for row in found} == {tuple(field["name"] for field in schema("Importance")["fields"])}


def test_parquet_has_timestamps_statistics_and_dictionaries_of_words(tmp_path: Path) -> None:
    (path,) = written(tmp_path, "parquet", 500)
    file = pq.ParquetFile(path)
    types = {field.name: field.type for field in file.schema_arrow}
    assert types["last_visit"] == types["event_time"] == pa.timestamp("ms", tz="UTC")
    assert types["url"] == types["page"] == types["last_outcome"] == pa.string()
    columns = [file.metadata.row_group(0).column(number) for number in range(len(types))]
    assert all(column.statistics.has_min_max or column.statistics.null_count == 500 for column in columns)
    with_dictionary = [column.path_in_schema for column in columns if column.has_dictionary_page]
    assert with_dictionary == ["last_outcome"]


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.lists(st.tuples(TEXT, TEXT, st.floats(allow_nan=False, allow_infinity=False)), max_size=30), st.data())
def test_a_line_of_json_is_its_row(rows: list[tuple[str, str, float]], data: st.DataObject) -> None:
    count = len(rows)
    some = st.lists(st.booleans(), min_size=count, max_size=count)
    columns: Columns = {
        "texts": Texts.of([text.encode() for text, _, _ in rows]),
        "listed": [text for _, text, _ in rows],
        "words": NumberedWords(np.array(data.draw(some), np.int8), ['"', "b\\"]),
        "numbers": np.array([number for *_, number in rows]),
        "whole": WithNulls(np.arange(count) - 7, np.array(data.draw(some), np.bool_)),
        "truth": WithNulls(np.array(data.draw(some), np.bool_), np.array(data.draw(some), np.bool_)),
        "same": WithNulls.same(data.draw(st.sampled_from([None, 0.5])), count, np.float64),
        "none": [None] * count,
    }
    lines = many_lines(columns) if count else b""
    assert json_lines(columns) == lines, "few rows are written without Arrow"
    assert lines.count(b"\n") == count
    found = [json.loads(line) for line in lines.split(b"\n")[:-1]]
    assert found == list(plain_rows(columns))
    assert all(list(row) == list(columns) for row in found)


@given(st.lists(st.tuples(st.binary(max_size=4).map(bytes.hex), st.booleans())), st.randoms())
def test_texts_with_gaps_and_in_any_order_are_those_of_arrow(texts: list[tuple[str, bool]], draw: Any) -> None:
    whole = Texts.of([text.encode() for text, _ in texts])
    kept = [row for row, (_, is_kept) in enumerate(texts) if is_kept]
    shuffled = draw.sample(kept, len(kept))
    for rows in (list(range(len(texts))), kept, shuffled):
        some = Texts(whole.text, whole.starts[np.array(rows, int)], whole.lengths[np.array(rows, int)])
        assert text_array(some).to_pylist() == [text.decode() for text in some] == [texts[row][0] for row in rows]


def test_hosts_are_those_of_the_urls_of_some_rows() -> None:
    urls = [b"https://a.example/", b"http://b.example:8080/c//d/", b"https://c.example/?q=/"]
    texts = Texts.of(urls)
    rows = np.array([2, 0, 1])
    some = Texts(texts.text, texts.starts[rows], texts.lengths[rows])
    assert list(hosts_of(some)) == [b"c.example", b"a.example", b"b.example:8080"]
    assert list(hosts_of(Texts.of([]))) == []


@given(st.lists(st.integers(0, 70), max_size=4), st.integers(100, 5000))
def test_avro_blocks_hold_every_row_in_its_order(sizes: list[int], block_bytes: int) -> None:
    file = io.BytesIO()
    first, expected = 0, []
    with pytest.MonkeyPatch.context() as patch, AvroWriter(file, schema("Importance")) as writer:
        patch.setattr("opicflow.connectors.files.avro_writer._BLOCK_BYTES", block_bytes)
        for rows in sizes:
            columns = IMPORTANCE.columns_of(packed(first, rows))
            writer.write(columns)
            expected += list(plain_rows(columns))
            first += rows
    file.seek(0)
    assert [_plain(record) for record in fastavro.reader(file)] == expected  # type: ignore[arg-type]


# -- the same bytes, in groups and parts of any size


@pytest.mark.parametrize("format_", FORMATS)
def test_two_runs_write_the_same_bytes_and_a_stream_has_them_too(format_: str, tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, format_, 3000, parts=3) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    (whole,) = written(tmp_path / "a", format_, 3000)
    pipe = io.BytesIO()
    stream_result(pipe, format_, IMPORTANCE, parts_of(3000, 1000)())
    assert pipe.getvalue() == whole.read_bytes()


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_bytes_depend_on_the_rows_and_not_on_how_they_arrive(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 700)
    (one,), (other,) = (written(tmp_path / f"{size}", format_, 3000, size) for size in (3000, 111))
    assert one.read_bytes() == other.read_bytes()
    if format_ == "parquet":
        groups = pq.ParquetFile(one).metadata
        assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [700, 700, 700, 700, 200]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("rows", "parts"), [(1000, 2), (1000, 3), (1001, 7), (3, 5), (0, 2)])
def test_parts_follow_one_another_and_are_of_one_size(format_: str, rows: int, parts: int, tmp_path: Path) -> None:
    paths = written(tmp_path / "parts", format_, rows, 300, parts)
    assert [path.name for path in paths] == [
        f"importance-{number:05}-of-{parts:05}.{format_}" for number in range(1, parts + 1)
    ]
    records = list(map(read, paths))
    (whole,) = written(tmp_path / "whole", format_, rows, 300)
    assert [record for part in records for record in part] == read(whole)
    assert max(map(len, records)) - min(map(len, records)) <= 1


@pytest.mark.parametrize("format_", FORMATS)
def test_a_result_without_rows_is_a_file_with_the_columns(format_: str, tmp_path: Path) -> None:
    for at_once in (1, 10):  # no part at all, then one without rows
        packed_parts = parts_of(0, at_once) if at_once == 1 else lambda: iter([packed(0, 0)])
        with written_result(tmp_path, "importance", format_, IMPORTANCE, packed_parts) as (path,):
            pass
        assert read(path) == []
        if format_ == "parquet":
            assert pq.read_schema(path).names == [field["name"] for field in schema("Importance")["fields"]]


class BrokenPipe(io.BytesIO):
    """Takes some writes, then none."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def write(self, data: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError
        return len(data)


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_written_after_an_error(format_: str) -> None:
    for most in (0, 1, 3):
        pipe = BrokenPipe(most)
        with pytest.raises(BrokenPipeError):
            stream_result(pipe, format_, IMPORTANCE, parts_of(5000, 1000)())
        gc.collect()
        assert pipe.left == -1


# -- other files in the folder


def test_no_other_division_is_left_and_other_files_are(tmp_path: Path) -> None:
    other = ["importance.avro", "site-importance-00001-of-00009.jsonl", "importance-00001-of-00009.jsonl.gz"]
    for name in other:
        (tmp_path / name).write_bytes(b"")
    for parts in (4, 2, 1, 3, 3, 1):
        paths = written(tmp_path, "jsonl", 100, parts=parts)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*other, *(path.name for path in paths)])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_run_that_fails_leaves_the_earlier_files(parts: int, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in written(tmp_path, "jsonl", 100, parts=2)}

    scans: list[int] = []

    def failing() -> Iterator[bytes]:
        scans.append(1)
        yield packed(0, 90)
        if len(scans) == (2 if parts > 1 else 1):  # the first of two scans counts the rows
            raise ZeroDivisionError
        yield packed(90, 10)

    with (
        pytest.raises(ZeroDivisionError),
        written_result(tmp_path, "importance", "jsonl", IMPORTANCE, failing, parts),
    ):
        pass
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_parts_are_found_and_those_without_the_others_are_refused(tmp_path: Path) -> None:
    assert found_paths(tmp_path, "importance", "jsonl") == []
    paths = written(tmp_path, "jsonl", 100, parts=3)
    assert found_paths(tmp_path, "importance", "jsonl") == paths
    paths[1].unlink()
    with pytest.raises(InputRefused, match=r"importance-00002-of-00003\.jsonl is missing, one of 3 parts"):
        found_paths(tmp_path, "importance", "jsonl")
    (tmp_path / "importance.jsonl").write_bytes(b"")
    with pytest.raises(InputRefused, match="are of different divisions"):
        found_paths(tmp_path, "importance", "jsonl")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("rows", [2, 1000])
def test_ranks_of_a_folder_with_parts_are_those_of_the_whole_file(format_: str, rows: int, tmp_path: Path) -> None:
    (whole,) = written(tmp_path / "whole", format_, rows)
    written(tmp_path / "parts", format_, rows, parts=3)  # of two rows, one part has none
    expected, found = (read_ranks(str(name), "importance") for name in (whole, tmp_path / "parts"))
    assert found.pages.tolist() == expected.pages.tolist() and found.values.tolist() == expected.values.tolist()
    assert found.rows == rows and found.urls(found.pages.tolist()) == expected.urls(found.pages.tolist())


# -- memory

MOST_BYTES_OF_STREAMS = """
import os, sys
from pathlib import Path
from opicflow.pipelines.results.files import stream_result
from opicflow.pipelines.results.record_columns import RESULTS

part = Path(sys.argv[1]).read_bytes()
for parts in (4, 16):
    with open(os.devnull, "wb") as file:
        stream_result(file, sys.argv[2], RESULTS["importance"], [part] * parts)
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print(1024 * int(line.split()[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_a_million_rows_take_no_more_memory_than_a_quarter_million(format_: str, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(packed(0, 1 << 16))
    printed = subprocess.check_output([sys.executable, "-c", MOST_BYTES_OF_STREAMS, part, format_])
    few, many = map(int, printed.split())
    assert many - few < 64 << 20, f"{many - few:,} bytes more"
