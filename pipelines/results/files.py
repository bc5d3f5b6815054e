"""What a replay leaves behind: importance, publications and rejects as files in the format asked for."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.ledger import Outcome, RemovalReason
from opicflow.pipelines.ledger.plan import WHY
from opicflow.pipelines.ledger.survey import DECIDED_BY, KNOWN_FROM
from opicflow.schemas.arrays import Array
from opicflow.schemas.columns import Packed, Texts, unpack
from opicflow.schemas.published_schemas import schema

_OUTCOMES = [outcome.name for outcome in Outcome]
_SYNC_MARKER = b"opicflow-results"
"""The same results are the same bytes: a marker drawn by chance would be another one every time."""

_ARROW = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}


@dataclass(frozen=True)
class Pages:
    """Packed estimates as columns of plain values, a row a page."""

    texts: Texts
    columns: dict[str, Array]
    moment: dict[str, Any]

    @cached_property
    def urls(self) -> list[str]:
        """The URLs of all pages: canonical ones are ASCII."""
        return [url.decode("ascii") for url in self.texts]


def pages_of(part: bytes) -> Pages:
    """The pages of a part that was published."""
    packed: Packed = unpack(part)
    columns = dict(packed.columns)
    lengths, text = columns.pop("url_lengths"), columns.pop("url_bytes")
    return Pages(Texts.joined(text, lengths), columns, packed.values)


def write_importance(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write published pages as `Importance` records. Returns how many."""
    if format_ == "jsonl":
        return _write_lines(path, map(importance_lines, map(pages_of, parts)))
    return _write(path, format_, "Importance", map(importance_columns, map(pages_of, parts)))


def write_rejects(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write rejects, which come as lines of JSON. Returns how many."""
    if format_ == "jsonl":
        return _write_lines(path, parts)
    return _write(path, format_, "Reject", map(reject_columns, parts))


def write_schedules(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write when pages are to be fetched again as `RefreshSchedule` records. Returns how many."""
    return write_records(path, format_, "RefreshSchedule", map(schedule_columns, map(pages_of, parts)))


def write_orders(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write `CrawlOrder` records. Returns how many."""
    return write_records(path, format_, "CrawlOrder", map(order_columns, map(pages_of, parts)))


def write_tombstones(path: Path, parts: Iterable[bytes]) -> int:
    """Write which pages are no longer there, as lines of JSON, without URLs: some are forgotten. Returns how many."""
    return _write_lines(path, map(json_lines, map(_tombstone_columns, map(pages_of, parts))))


def _tombstone_columns(pages: Pages) -> dict[str, list[Any]]:
    rows = len(pages.urls)
    return {
        "page": _page_words(pages.columns["pages"]),
        "why": [RemovalReason(why).name for why in pages.columns["why"].tolist()],
        "event_time": [1000 * pages.moment["second"] or None] * rows,
    }


def schedule_columns(pages: Pages) -> dict[str, list[Any]]:
    """The values of `RefreshSchedule` records, by field."""
    c, rows = pages.columns, len(pages.urls)
    second = pages.moment["second"]
    never = np.isinf(c["interval_seconds"])
    return {
        "url": pages.urls,
        "page": _page_words(c["pages"]),
        "due": _times(np.where(never | (second == 0), 0, c["due_second"])),
        "interval_seconds": [
            None if none else seconds
            for none, seconds in zip(never.tolist(), c["interval_seconds"].tolist(), strict=True)
        ],
        "decided_by": [DECIDED_BY[number] for number in c["decided_by"].tolist()],
        "changes_per_day": c["changes_per_day"].tolist(),
        "changes_known_from": [KNOWN_FROM[number] for number in c["known_from"].tolist()],
        "importance": c["importance"].tolist(),
        "category": [number or None for number in c["category"].tolist()],
        "last_visit": _times(c["last_visit_second"]),
        "event_time": [1000 * second or None] * rows,
        "shard": [pages.moment["shard"]] * rows,
        "changes_error": c["changes_error"].tolist(),
        "staleness_cost": c["staleness_cost"].tolist(),
        "host": _hosts(pages.urls),
    }


def order_columns(pages: Pages) -> dict[str, list[Any]]:
    """The values of `CrawlOrder` records, by field."""
    c, rows = pages.columns, len(pages.urls)
    second = pages.moment["second"]
    return {
        "url": pages.urls,
        "page": _page_words(c["pages"]),
        "ordered_at": [1000 * second] * rows,
        "why": [WHY[number] for number in c["why"].tolist()],
        "priority": c["priority"].tolist(),
        "due": _times(np.where(second == 0, 0, np.maximum(c["due_second"], 0))),
        "expires_at": [1000 * pages.moment["expires_second"]] * rows,
        "importance": c["importance"].tolist(),
        "waiting_cash": c["waiting"].tolist(),
        "category": [number or None for number in c["category"].tolist()],
        "last_visit": _times(c["last_visit_second"]),
        "shard": [pages.moment["shard"]] * rows,
        "not_before": _times(np.where(second == 0, 0, c["not_before_second"])),
        "host": _hosts(pages.urls),
    }


def _page_words(pages: Array) -> list[str]:
    return [f"{page:016x}" for page in pages.tolist()]


def _times(seconds: Any) -> list[int | None]:
    """Milliseconds since 1970; None for 0."""
    return [1000 * second or None for second in seconds.tolist()]


def _hosts(urls: list[str]) -> list[str]:
    return [url.split("/", 3)[2] for url in urls]


def importance_lines(pages: Pages) -> bytes:
    """Pages as lines of JSON, the fields in the order of the schema."""
    c, moment = pages.columns, pages.moment
    event_time = moment["event_time_ms"] or "null"
    tail = (
        f',"pages":{moment["pages"]},"clock":{moment["clock"]!r},"event_time":{event_time},'
        f'"shard":{moment["shard"]},"cut":{moment["cut"]}}}\n'
    )
    line = (
        '{"url":"%s","page":"%016x","importance":%s,"score":%s,"trend_per_day":%s,"cash":%s,"waiting_cash":%s,'
        '"history":%s,"error_factor":%s,"visits":%s,"last_visit":%s,"last_outcome":"%s","measured":%s' + tail
    )
    urls = pages.urls
    if any("\\" in url for url in urls):  # the one character of canonical URLs that JSON escapes
        urls = [url.replace("\\", "\\\\") for url in urls]
    numbers = ("importance", "score", "trend_per_day", "cash", "waiting", "rate", "error_factor", "visits")
    rows = zip(
        urls,
        c["pages"].tolist(),
        *(_numbers(c[name]) for name in numbers),
        [time_ms or "null" for time_ms in c["last_visit_ms"].tolist()],
        [_OUTCOMES[outcome] for outcome in c["last_outcome"].tolist()],
        ["true" if measured else "false" for measured in c["measured"].tolist()],
        strict=True,
    )
    return "".join(map(line.__mod__, rows)).encode("ascii")


def _numbers(column: Array) -> list[str]:
    """Numbers as JSON says them. orjson writes a whole column in the time that Python takes for some of it."""
    text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY).decode("ascii")
    return text[1:-1].split(",") if len(column) else []


def importance_columns(pages: Pages) -> dict[str, Any]:
    """The values of `Importance` records, by field: whole columns where they can be, as there are so many of these."""
    c, rows = pages.columns, len(pages.texts)
    words = np.frombuffer(c["pages"].astype(">u8").tobytes().hex().encode("ascii"), np.uint8)
    return {
        "url": pages.texts,
        "page": Texts.joined(words, np.full(rows, 16)),
        "importance": c["importance"],
        "score": c["score"],
        "trend_per_day": c["trend_per_day"],
        "cash": c["cash"],
        "waiting_cash": c["waiting"],
        "history": c["rate"],
        "error_factor": c["error_factor"],
        "visits": c["visits"],
        "last_visit": [time_ms or None for time_ms in c["last_visit_ms"].tolist()],
        "last_outcome": [_OUTCOMES[outcome] for outcome in c["last_outcome"].tolist()],
        "measured": c["measured"] != 0,
        "pages": np.full(rows, pages.moment["pages"]),
        "clock": np.full(rows, float(pages.moment["clock"])),
        "event_time": [pages.moment["event_time_ms"] or None] * rows,
        "shard": np.full(rows, pages.moment["shard"]),
        "cut": np.full(rows, pages.moment["cut"]),
    }


def _listed(values: Any) -> Any:
    """A column as a list of plain values."""
    if isinstance(values, Texts):
        return [text.decode("ascii") for text in values]
    return values.tolist() if isinstance(values, np.ndarray) else values


def reject_columns(lines: bytes) -> dict[str, list[Any]]:
    """The values of `Reject` records, by field, from lines of JSON."""
    records = [orjson.loads(line) for line in lines.splitlines()]
    original = [
        record["bytes"].encode() if "bytes" in record else base64.b64decode(record["bytes_base64"])
        for record in records
    ]
    named = {name: [record[name] for record in records] for name in ("reason", "detail", "source", "offset")}
    return {**named, "bytes": original}


def write_records(path: Path, format_: str, name: str, parts: Iterator[dict[str, list[Any]]]) -> int:
    """Write columns as records of a published schema, in the format asked for."""
    if format_ != "jsonl":
        return _write(path, format_, name, parts)
    return _write_lines(path, map(json_lines, parts))


def json_lines(columns: dict[str, list[Any]]) -> bytes:
    """Columns of texts, or of numbers and nothing, as lines of JSON, a row each: columns are said as wholes."""
    texts = []
    line = []
    for name, values in columns.items():
        is_text = bool(values) and isinstance(values[0], str)
        line.append(f'"{name}":"%s"' if is_text else f'"{name}":%s')
        if not is_text:
            texts.append(orjson.dumps(values).decode("ascii")[1:-1].split(",") if values else [])
        elif {'"', "\\"} & set("".join(values)):
            texts.append([orjson.dumps(value).decode("utf-8")[1:-1] for value in values])
        else:
            texts.append(values)
    template = "{" + ",".join(line) + "}\n"
    return "".join(map(template.__mod__, zip(*texts, strict=True))).encode("utf-8")


def _write_lines(path: Path, parts: Iterable[bytes]) -> int:
    lines = 0
    with whole_file(path) as file:
        for part in parts:
            file.write(part)
            lines += part.count(b"\n")
    return lines


def _write(path: Path, format_: str, name: str, parts: Iterator[dict[str, list[Any]]]) -> int:
    """Write columns as records of a published schema, as Avro or Parquet."""
    rows = 0
    with whole_file(path) as file:
        if format_ == "avro":

            def records() -> Iterator[dict[str, Any]]:
                nonlocal rows
                for columns in parts:
                    for values in zip(*map(_listed, columns.values()), strict=True):
                        rows += 1
                        yield dict(zip(columns, values, strict=True))

            fastavro.writer(file, schema(name), records(), codec="deflate", sync_marker=_SYNC_MARKER)
            return rows
        layout = pa.schema([(field["name"], _arrow_type(field["type"])) for field in schema(name)["fields"]])
        empty: list[dict[str, list[Any]]] = [{field.name: [] for field in layout}]
        with pq.ParquetWriter(file, layout, compression="zstd") as writer:
            for columns in chain(parts, empty):
                table = pa.table({field: _listed(values) for field, values in columns.items()}, schema=layout)
                if table.num_rows:
                    writer.write_table(table)
                rows += table.num_rows
    return rows


def _arrow_type(avro_type: Any) -> Any:
    if isinstance(avro_type, list):  # null, or something
        return _arrow_type(avro_type[1])
    if isinstance(avro_type, dict):
        if avro_type.get("logicalType") == "timestamp-millis":
            return pa.timestamp("ms", tz="UTC")
        return pa.string() if avro_type["type"] == "enum" else _arrow_type(avro_type["type"])
    return _ARROW[avro_type]
