"""An Avro file made to stop its reader costs no more than its size, and its undamaged blocks are read."""

from __future__ import annotations

import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from opicflow.connectors.files.avro_container import _MOST_PACKED_BYTES, MOST_BLOCK_BYTES, read_blocks, read_header
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.event_messages import messages_of_blocks
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import Block
from opicflow.connectors.kafka.client import FetchedRecords, message_batch
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.schemas.crawl_events import (
    MOST_EVENT_BYTES,
    MOST_LINKS,
    MOST_REDIRECTS,
    CrawlEvent,
    Link,
    Reason,
    Reject,
)
from opicflow.schemas.framing import Decoder, FramingRefused, encode_single_object, published_writer
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import to_avro
from opicflow.schemas.varint import encode_signed
from opicflow.schemas.writer_schema import (
    ALWAYS_ALLOWED_VALUES,
    MOST_SCHEMA_DEPTH,
    MOST_SCHEMA_VALUES,
    MOST_VALUES_PER_BYTE,
    SchemaRefused,
    WriterSchema,
)
from support.bounded import bounded

SYNC = b"0123456789abcdef"
URL = {"name": "url", "type": "string"}


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return encode_signed(len(data)) + data


def record_schema(*fields: Any, **others: Any) -> dict[str, Any]:
    return {"type": "record", "name": "CrawlEvent", "fields": [URL, *fields], **others}


def field(type_: Any, name: str = "x") -> dict[str, Any]:
    return {"name": name, "type": type_}


def head(written: Any, codec: str = "null") -> bytes:
    meta = {"avro.schema": json.dumps(written), "avro.codec": codec}
    return b"Obj\x01" + encode_signed(2) + b"".join(text(k) + text(v) for k, v in meta.items()) + b"\0" + SYNC


def block(records: int, data: bytes) -> bytes:
    return encode_signed(records) + encode_signed(len(data)) + data + SYNC


def file(written: Any, *records: bytes) -> bytes:
    return head(written) + block(len(records), b"".join(records))


def outcome(data: bytes, folder: Path, memory_bytes: int = 1 << 30) -> tuple[list[bytes], list[Reason]]:
    """The URLs and the reasons of a file, read with limits, as columns and one by one."""
    path = folder / "f.avro"
    path.write_bytes(data)

    def decoded() -> tuple[list[bytes], list[Reason]]:
        urls: list[bytes] = []
        reasons: list[Reason] = []
        for batch in read(FileRange("f", str(path), Format.AVRO)):
            found = batch.decode()
            events = found.events
            firsts = events.url_starts[:-1].tolist()
            urls += [events.text[events.begins[at] : events.ends[at]].tobytes() for at in firsts]
            reasons += [reject.reason for reject in found.rejects]
        return urls, reasons

    def one_by_one() -> tuple[list[bytes], list[Reason]]:
        items = [item for batch in read(FileRange("f", str(path), Format.AVRO)) for _, item in batch.items()]
        urls = [item.url.encode() for item in items if isinstance(item, CrawlEvent)]
        return urls, [item.reason for item in items if isinstance(item, Reject)]

    def encoded() -> tuple[list[bytes], list[Reason]]:
        batches = [batch.messages(b"") for batch in read(FileRange("f", str(path), Format.AVRO))]
        urls = [url for batch in batches for url in batch.urls]
        return urls, [reject.reason for batch in batches for reject in batch.rejects]

    read_without_a_limit()
    found = bounded(decoded, memory_bytes)
    assert bounded(one_by_one, memory_bytes) == found
    assert bounded(encoded, memory_bytes) == found
    return found


def read_without_a_limit() -> None:
    """Load the kernels into this process: the first call of one may compile it."""
    WriterSchema(record_schema()).walk(np.frombuffer(b"\x02a", np.uint8), 0, 2, 1)
    decode_messages(message_batch([], 0, 0), "f", lambda frame: None)
    data = file(schema("CrawlEvent"), encode_event(CrawlEvent("a")))
    container = read_header(data)
    blocks = list(read_blocks(container, [Block(container.size, data[container.size :])]))
    messages_of_blocks(container, blocks, "f", b"")


# -- schemas


def chain(length: int) -> list[dict[str, Any]]:
    """Fields whose types lie within one another by their names."""
    fields = [field({"type": "record", "name": "R0", "fields": [field("int")]}, "x0")]
    for number in range(1, length):
        inner = {"type": "record", "name": f"R{number}", "fields": [field(f"R{number - 1}")]}
        fields.append(field(inner, f"x{number}"))
    return fields


def nested_arrays(depth: int) -> Any:
    written: Any = "int"
    for _ in range(depth):
        written = {"type": "array", "items": written}
    return written


def doubled(times: int) -> list[dict[str, Any]]:
    """Fields with types of which each holds the one before twice: 2^times values of no byte."""
    fields = [field({"type": "record", "name": "R0", "fields": [field("null")]}, "x0")]
    for number in range(1, times + 1):
        two = [field(f"R{number - 1}"), field(f"R{number - 1}", "y")]
        fields.append(field({"type": "record", "name": f"R{number}", "fields": two}, f"x{number}"))
    return fields


ITSELF = {"type": "record", "name": "A", "fields": [field(["null", "A"])]}
REFUSED = {
    "holds itself": record_schema(field(ITSELF)),
    "holds itself without end": record_schema(field({"type": "record", "name": "A", "fields": [field("A")]})),
    "array of itself": record_schema(field({"type": "array", "items": "CrawlEvent"})),
    "array of nulls": record_schema(field({"type": "array", "items": "null"})),
    "array of nothing": record_schema(field({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})),
    "array of empty records": record_schema(
        field({"type": "array", "items": {"type": "record", "name": "E", "fields": [field("null")]}})
    ),
    "deep arrays": record_schema(field(nested_arrays(MOST_SCHEMA_DEPTH))),
    "deep JSON": record_schema(field(nested_arrays(400))),
    "deep by names": record_schema(*chain(MOST_SCHEMA_DEPTH)),
    "names that are no text": record_schema(
        field({"type": "record", "name": "R", "fields": [{"name": ["a"], "type": "int"}]}, "links")
    ),
    "copies": record_schema(*doubled(14)),
    "values": record_schema(
        field({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(MOST_SCHEMA_VALUES)]})
    ),
    "absurd size": record_schema(field({"type": "fixed", "name": "F", "size": 1 << 70})),
}


@pytest.mark.parametrize(
    "written",
    [
        record_schema(name="a\nb\x1b[31m"),
        record_schema(name="a" * 5000),
        record_schema(field({"type": "fixed", "name": "a\nb\x1b[31m", "size": -1})),
        record_schema(field({"type": "record", "name": "a\nb", "fields": [field("a\nb")]})),
    ],
)
def test_names_of_a_schema_are_shown_in_one_short_line(written: Any, tmp_path: Path) -> None:
    path = tmp_path / "f.avro"
    path.write_bytes(file(written))
    (batch,) = read(FileRange("f", str(path), Format.AVRO))
    (reject,) = batch.decode().rejects
    assert reject.reason is Reason.WRONG_SCHEMA
    assert reject.detail.isprintable() and len(reject.detail) < 400


@pytest.mark.parametrize("written", REFUSED.values(), ids=REFUSED)
def test_a_schema_beyond_a_bound_is_refused_before_anything_is_read(written: Any, tmp_path: Path) -> None:
    endless = text("a") + encode_signed(1 << 60) + b"\x02" * 1000
    assert outcome(file(written, endless), tmp_path) == ([], [Reason.WRONG_SCHEMA])
    with pytest.raises(SchemaRefused, match=r"\A.+\Z"):
        WriterSchema(written)
    with pytest.raises(FramingRefused, match="is no Avro schema"):
        Decoder("CrawlEvent", lambda frame: written).decode(b"\0\0\0\0\x01" + endless)


@pytest.mark.parametrize(
    "written",
    [
        record_schema(field(nested_arrays(MOST_SCHEMA_DEPTH - 2))),
        record_schema(*chain(MOST_SCHEMA_DEPTH - 2)),
        record_schema(*(field({"type": "fixed", "name": f"F{n}", "size": 1}, f"x{n}") for n in range(900))),
    ],
)
def test_a_schema_within_the_bounds_is_not_refused(written: Any) -> None:
    WriterSchema(written)


def test_a_schema_cannot_claim_to_be_judged(tmp_path: Path) -> None:
    hostile = record_schema(field("A"), __fastavro_parsed=True, __named_schemas={"A": ITSELF})
    assert outcome(file(hostile, text("a") + b"\x02" * 100_000), tmp_path) == ([], [Reason.WRONG_SCHEMA])


def test_records_of_many_values_and_few_bytes_are_refused(tmp_path: Path) -> None:
    assert outcome(file(record_schema(*doubled(10)), text("a"), text("b")), tmp_path) == ([], [Reason.CORRUPT])
    wide = record_schema(*(field("null", f"x{n}") for n in range(ALWAYS_ALLOWED_VALUES)))
    assert outcome(file(wide, text("a"), text("b")), tmp_path) == ([b"a", b"b"], [])
    items = record_schema(field("boolean"), *(field("null", f"x{n}") for n in range(MOST_VALUES_PER_BYTE)), name="I")
    many = record_schema(field({"type": "array", "items": {**items, "fields": items["fields"][1:]}}))
    assert outcome(file(many, text("a") + encode_signed(1000) + bytes(1001)), tmp_path)[1] == [Reason.CORRUPT]


# -- records


def with_links(count: int, links: bytes = b"\0") -> bytes:
    return text("a") + (encode_signed(count) + links * count if count else b"") + b"\0"


LINKS = record_schema(
    {"name": "links", "type": {"type": "array", "items": {"type": "record", "name": "Link", "fields": [URL]}}}
)


@pytest.mark.parametrize("count", [1 << 60, 1 << 62, -(1 << 63), -(1 << 62)])
def test_a_count_beyond_the_bytes_is_damage(count: int, tmp_path: Path) -> None:
    record = text("a") + encode_signed(count) + bytes(100)
    good = file(LINKS, with_links(2))
    assert outcome(good + block(1, record) + block(1, with_links(1)), tmp_path) == ([b"a", b"a"], [Reason.CORRUPT])


@pytest.mark.slow
def test_links_are_counted_before_they_are_built(tmp_path: Path) -> None:
    data = file(LINKS, with_links(MOST_LINKS), with_links(20_000_000), with_links(MOST_LINKS + 1), with_links(0))
    assert outcome(data, tmp_path, memory_bytes=400 << 20) == ([b"a", b"a"], [Reason.TOO_MANY_LINKS] * 2)


@pytest.mark.slow
def test_blocks_of_an_array_count_together(tmp_path: Path) -> None:
    half = encode_signed(MOST_LINKS // 2) + bytes(MOST_LINKS // 2)
    fitting, crowded = text("a") + half * 2 + b"\0", text("b") + half * 2 + b"\x02\0\0"
    assert outcome(file(LINKS, fitting, crowded, with_links(1)), tmp_path) == ([b"a", b"a"], [Reason.TOO_MANY_LINKS])


def test_redirects_are_counted_before_they_are_built(tmp_path: Path) -> None:
    written = record_schema({"name": "redirects", "type": {"type": "array", "items": "string"}})
    data = file(written, with_links(MOST_REDIRECTS), with_links(20_000_000), with_links(0))
    assert outcome(data, tmp_path, memory_bytes=400 << 20) == ([b"a", b"a"], [Reason.BAD_FIELD])


def plain(url: str, links: int = 0, redirects: int = 0, fetched_at_ms: int | None = None) -> bytes:
    event = CrawlEvent(url, links=(Link(""),) * links, redirects=("",) * redirects, fetched_at_ms=fetched_at_ms)
    return encode_event(event)


CROWD = plain("b", 1)[:-7] + encode_signed(9_000_000) + bytes(27_000_003)
"""An event with nine million links, each of three bytes."""


@pytest.mark.slow
def test_the_kernel_keeps_no_more_links_than_an_event_may_have(tmp_path: Path) -> None:
    data = file(schema("CrawlEvent"), plain("a"), CROWD, plain("c", MOST_LINKS), plain("d", 0, MOST_REDIRECTS + 1))
    assert outcome(data, tmp_path) == ([b"a", b"c"], [Reason.TOO_MANY_LINKS, Reason.BAD_FIELD])


@pytest.mark.slow
@pytest.mark.parametrize(
    "written",
    [
        pytest.param(schema("CrawlEvent"), id="published"),
        pytest.param(record_schema(), id="other", marks=pytest.mark.soak),
    ],
)
def test_an_event_of_forty_megabytes_is_too_large(written: Any, tmp_path: Path) -> None:
    as_record = (lambda url: plain(url)) if written is schema("CrawlEvent") else text
    long = "x" * (40 << 20)
    found = outcome(file(written, as_record("a"), as_record(long), as_record("b")), tmp_path)
    assert found == ([b"a", b"b"], [Reason.TOO_LARGE])
    fitting = "x" * (MOST_EVENT_BYTES - 100)
    assert outcome(file(written, as_record(fitting)), tmp_path) == ([fitting.encode()], [])


TIMES = (-(1 << 63), (1 << 63) - 1, -1)


@pytest.mark.parametrize("time_ms", TIMES)
def test_an_absurd_time_loses_no_other_record(time_ms: int, tmp_path: Path) -> None:
    records = (plain("x"), plain("a", fetched_at_ms=time_ms), plain("b"))
    assert outcome(file(schema("CrawlEvent"), *records), tmp_path) == ([b"x", b"b"], [Reason.BAD_TIME])
    for unit, factor in (("millis", 1), ("micros", 1000)):
        written = record_schema({"name": "fetched_at", "type": {"type": "long", "logicalType": f"timestamp-{unit}"}})
        good = encode_signed(1_600_000_000_000 * factor)
        urls, reasons = outcome(file(written, text("a") + encode_signed(time_ms), text("b") + good), tmp_path)
        assert urls == [b"b"] and reasons in ([Reason.BAD_TIME], [Reason.CORRUPT])


def test_no_absurd_number_loses_another_record(tmp_path: Path) -> None:
    least = encode_signed(-(1 << 63))
    tail = b"\0\0\0\0\0"  # redirects, canonical, content_type, digest, last_modified
    status = b"\0" + text("s") + b"\0" + b"\x02" + least + b"\0" + tail + b"\0\0\0"
    retry = b"\0" + text("r") + b"\0\0\0" + tail + b"\0" + b"\x02" + least + b"\0"
    kind = b"\x08" + text("k") + b"\0\0\0" + tail + b"\0\0\0"
    data = file(schema("CrawlEvent"), plain("a"), status, plain("b"), retry, plain("c"), kind, plain("d"))
    urls, reasons = outcome(data, tmp_path)
    assert urls == [b"a", b"b", b"r", b"c", b"d"] and reasons == [Reason.BAD_FIELD, Reason.CORRUPT]


def test_a_text_that_is_not_utf8_loses_no_other_record(tmp_path: Path) -> None:
    assert outcome(file(record_schema(), text("a"), text(b"\xff"), text("b")), tmp_path) == (
        [b"a", b"b"],
        [Reason.NOT_UTF8],
    )


def test_logical_types_convert_nothing(tmp_path: Path) -> None:
    """A decimal of a megabyte would take minutes to become a number."""
    url = {"name": "url", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}}
    hostile = {"type": "record", "name": "CrawlEvent", "fields": [url]}
    assert outcome(file(hostile, text("a"), text("1" * 5_000_000), text("b")), tmp_path)[0][::2] == [b"a", b"b"]


# -- blocks


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_block_unpacks_to_a_bounded_size(codec: str, tmp_path: Path) -> None:
    def packed(data: bytes) -> bytes:
        if codec == "zstandard":
            return zstandard.ZstdCompressor().compress(data)
        deflate = zlib.compressobj(wbits=-15)
        return deflate.compress(data) + deflate.flush()

    bomb = packed(bytes(10 * MOST_BLOCK_BYTES))
    data = head(record_schema(), codec) + block(1, bomb) + block(1, packed(text("a")))
    assert outcome(data, tmp_path, memory_bytes=4 * MOST_BLOCK_BYTES) == ([b"a"], [Reason.TOO_LARGE])


@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_block_that_is_lost_says_how_many_records_it_had(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "log.avro"
    path.write_bytes(head(record_schema(), codec) + block(17, b"\xff" * 50))
    (reject,) = [one for batch in read(FileRange("f", str(path), Format.AVRO)) for one in batch.decode().rejects]
    assert reject.detail.startswith("the block of 17 records cannot be unpacked: ")


def test_a_block_is_unpacked_in_so_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = head(record_schema(), "xz") + block(1, lzma.compress(text("a")))  # with a dictionary of 8 MiB
    assert outcome(data, tmp_path) == ([b"a"], [])
    monkeypatch.setattr("opicflow.connectors.files.avro_container._MOST_XZ_MEMORY_BYTES", 1 << 20)
    assert outcome(data, tmp_path) == ([], [Reason.CORRUPT])


@pytest.mark.parametrize("size", [_MOST_PACKED_BYTES + 1, -1])
def test_a_block_that_claims_too_many_packed_bytes_is_not_waited_for(size: int, tmp_path: Path) -> None:
    hostile = encode_signed(1) + encode_signed(size) + bytes(100)
    path = tmp_path / "log.avro"
    path.write_bytes(head(record_schema()) + hostile + block(1, text("a")))
    (reject,) = [one for batch in read(FileRange("f", str(path), Format.AVRO)) for one in batch.decode().rejects]
    assert reject.reason is Reason.CORRUPT and "its sizes are absurd" in reject.detail


# -- messages


def test_messages_of_another_schema_are_bounded_too() -> None:
    decoder = Decoder("CrawlEvent", lambda frame: LINKS)
    start = b"\0\0\0\0\x01"
    assert len(decoder.decode(start + with_links(3))["links"]) == 3
    with pytest.raises(FramingRefused) as refused:
        bounded_decode(decoder, start + with_links(20_000_000))
    assert refused.value.reason is Reason.TOO_MANY_LINKS
    with pytest.raises(FramingRefused, match="cut off or damaged"):
        decoder.decode(start + text("a") + encode_signed(1 << 60) + b"\0")


def bounded_decode(decoder: Decoder, message: bytes) -> None:
    def reason() -> Reason | None:
        try:
            decoder.decode(message)
        except FramingRefused as refused:
            return refused.reason
        return None

    raise FramingRefused("", bounded(reason, memory_bytes=200 << 20))


def test_a_message_with_too_many_links_is_a_reject_with_that_reason() -> None:
    start = encode_single_object("CrawlEvent", to_avro(CrawlEvent("a")))[:10]
    values = [
        start + plain("a", MOST_LINKS),
        start + CROWD,
        start + plain("b", 0, MOST_REDIRECTS + 1),
        start + plain("c"),
    ]
    records = [FetchedRecords.of(0, [(n, 0, None, value) for n, value in enumerate(values)])]
    read_without_a_limit()

    def decoded() -> tuple[list[int], list[Reason]]:
        found = decode_messages(message_batch(records, 0, 4), "s", published_writer)
        return found.events.offset.tolist(), [reject.reason for reject in found.rejects]

    assert bounded(decoded) == ([0, 3], [Reason.TOO_MANY_LINKS, Reason.BAD_FIELD])
