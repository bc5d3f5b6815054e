"""Crawl events from Avro files: the kernel returns what fastavro returns; only damaged blocks are lost."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from dataclasses import fields, replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from opicflow.connectors.files import avro, log_reader
from opicflow.connectors.files.avro import decode_avro
from opicflow.connectors.files.avro_container import AvroBlock, Container, WrongSchema, read_blocks, read_header
from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.event_messages import messages_of_blocks
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import Block
from opicflow.schemas.crawl_events import MOST_LINKS, MOST_REDIRECTS, CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.event_columns import (
    FEED,
    HTML,
    OTHER_MEDIA,
    PDF,
    UNKNOWN_MEDIA,
    XML,
    CrawlEvents,
    EventWriter,
)
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import to_avro
from support.encoded import check_messages
from support.event_rows import events, rows_of
from support.thorough import examples, thorough

SYNC = b"0123456789abcdef"
CODECS = ["null", "deflate", "zstandard", "bzip2", "xz"]
Outcome = tuple[list[tuple[object, ...]], list[tuple[Reason, int]]]


def outcome(decoded: Iterable[Decoded]) -> Outcome:
    rows, rejects = [], []
    for part in decoded:
        rows += rows_of(part.events)
        rejects += [(reject.reason, reject.offset) for reject in part.rejects]
        assert all(reject.detail and "\n" not in reject.detail and reject.source == "f" for reject in part.rejects)
    return rows, rejects


def written(events: Iterable[CrawlEvent], codec: str = "null", a_block: int = 16_000, **options: Any) -> bytes:
    file = BytesIO()
    chosen = options.pop("schema", schema("CrawlEvent"))
    of_fastavro = "null" if codec == "zstandard" else codec  # fastavro needs another library for it
    fastavro.writer(file, chosen, map(to_avro, events), of_fastavro, a_block, sync_marker=SYNC, **options)
    return file.getvalue() if codec == of_fastavro else with_zstandard(file.getvalue())


def with_zstandard(data: bytes) -> bytes:
    size, blocks = read_header(data).size, blocks_of(data)
    head = data[:size].replace(b"\x08null", bytes([2 * len("zstandard")]) + b"zstandard")
    for number, block in enumerate(blocks):
        compressor = zstandard.ZstdCompressor(write_content_size=number % 2 == 0, write_checksum=number % 3 == 0)
        packed = compressor.compress(block.data)
        head += numbers(block.records, len(packed)) + packed + SYNC
    return head


def numbers(*values: int) -> bytes:
    stream = BytesIO()
    for value in values:
        fastavro.schemaless_writer(stream, "long", value)
    return stream.getvalue()


def blocks_of(data: bytes, start: int = 0, piece: int = 1000, container: Container | None = None) -> list[AvroBlock]:
    container = container or read_header(data)
    start = start or container.size
    pieces = [Block(at, data[at : at + piece]) for at in range(start, len(data), piece)]
    blocks = list(read_blocks(container, pieces))
    ends = [start, *(block.end for block in blocks)]
    assert [block.offset for block in blocks] == ends[:-1] and ends[-1] == len(data)
    return blocks


def with_the_kernel(data: bytes) -> Outcome:
    container = read_header(data)
    assert container.is_plain
    blocks = blocks_of(data)
    found = outcome([decode_avro(container, blocks, "f")])
    one_by_one = outcome(decode_avro(container, [block], "f") for block in blocks)
    assert found == one_by_one
    return found


def without_the_kernel(data: bytes) -> Outcome:
    container = replace(read_header(data), is_plain=False)
    return outcome([decode_avro(container, blocks_of(data), "f")])


def in_a_file(data: bytes, folder: Path, start: int = 0, end: int | None = None) -> Outcome:
    file = folder / "f.avro"
    file.write_bytes(data)
    batches = list(read(FileRange("f", str(file), Format.AVRO, start, end)))
    assert all(first.end == second.start for first, second in pairwise(batches))
    for batch in batches:
        check_messages(batch)
    return outcome(batch.decode() for batch in batches)


# -- the kernel and fastavro


@pytest.mark.slow
@examples(60, 500)
@given(st.lists(events, max_size=12), st.sampled_from(CODECS), st.sampled_from([1, 100, 16_000]))
@example([CrawlEvent("", redirects=("",) * MOST_REDIRECTS)] * 20, "null", 16_000)
@example([CrawlEvent("a", failure="", status=200)], "null", 1)
@example([CrawlEvent("a", fetched_at_ms=2**62), CrawlEvent("b")], "null", 100)
@example([CrawlEvent("a", links=(Link("b", 1e308), Link("c", float("nan"))))], "null", 100)
@example([CrawlEvent("a", announce=True, links=(Link("b"),))], "null", 100)
def test_the_kernel_returns_what_fastavro_returns(given: list[CrawlEvent], codec: str, a_block: int) -> None:
    data = written(given, codec, a_block)
    rows, rejects = with_the_kernel(data)
    assert (rows, rejects) == without_the_kernel(data)
    writer, refused = EventWriter(), []
    for number, event in enumerate(given):
        try:
            writer.add(number, event)
        except EventRefused as problem:
            refused.append(problem.reason)
    assert [row[1:] for row in rows] == [row[1:] for row in rows_of(writer.events())]
    assert [reason for reason, _ in rejects] == refused


@pytest.mark.slow
@examples(60, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, max_size=12), st.sampled_from([1, 100, 16_000]))
@example([CrawlEvent("a", links=(Link("b", 0.1, "ugc"),), retry_after=5, quality=0.3), CrawlEvent("é")], 100)
@example([CrawlEvent("a", status=2**31 - 1, failure="dns"), CrawlEvent("b", status=2**20, failure="dns")], 100)
def test_the_messages_of_records_are_decoded_to_their_events(
    tmp_path: Path, given: list[CrawlEvent], a_block: int
) -> None:
    in_a_file(written(given, a_block=a_block), tmp_path)


def test_ordinary_records_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every record could be encoded one by one, with the same result and ten times the time."""
    given = [replace(event, fetched_at_ms=1_700_000_000_000 + n, status=200) for n, event in enumerate(some(60))]
    data = written(given, a_block=1000)
    monkeypatch.setattr(avro, "read_record", None)
    found = messages_of_blocks(read_header(data), blocks_of(data), "f", b"pre")
    assert list(found.values) == [b"pre" + encode_event(event) for event in given]


@pytest.mark.parametrize(
    "odd",
    [
        b"\0" + b"\x02a" + b"\0" * 10,
        b"\x80\0" + b"\x02a" + b"\0" * 10,  # longer numbers than need be
        b"\0" + b"\x82\0a" + b"\0" * 10,
        b"\0" + b"\x02a" + b"\0\0\0" + b"\x02\x02x\x02\x02y\0" + b"\0" * 6,  # arrays in two parts
        b"\0" + b"\x02a" + b"\0\0\0" + b"\x01\x04\x02x\0" + b"\0" * 6,  # and with sizes
        b"\0" + b"\x02a" + b"\0" * 8 + b"\x02" + b"\x01\x08\x02x\0\0\0" + b"\0",
        b"\0" + b"\x02a" + b"\0" * 8 + b"\x02" + b"\x02\x02x\0\0\x02\x02y\0\0\0" + b"\0",
        b"\0" + b"\x02a" + b"\0" * 7 + b"\x02\x02" + b"\0\0",  # modified in 1970
        b"\0" + b"\x02a" + b"\0" * 9 + b"\x02\x01",  # a negative retry_after
        b"\0" + b"\x02a" + b"\0" * 9 + b"\x02" + b"\xff" * 9 + b"\x03",
        b"\0" + b"\x04\xc3\xa9" + b"\0" * 10,
        b"\0" + b"\x02\xff" + b"\0" * 10,
    ],
)
def test_a_record_in_another_form_is_a_message_of_its_event(odd: bytes, tmp_path: Path) -> None:
    data, plain = written([]), encode_event(CrawlEvent("b", links=(Link("c"),)))
    records = plain + odd + b"\0" + plain  # its quality is not reported
    in_a_file(data[: read_header(data).size] + numbers(3, len(records)) + records + SYNC, tmp_path)


def test_a_content_type_determines_the_kind_of_content() -> None:
    kinds = {
        None: UNKNOWN_MEDIA,
        "": UNKNOWN_MEDIA,
        " ; text/html": UNKNOWN_MEDIA,
        "text/html": HTML,
        " Text/HTML ; charset=utf-8": HTML,
        "application/xhtml+xml": HTML,
        "application/rss+xml": FEED,
        "application/feed+json": FEED,
        "application/pdf;": PDF,
        "image/svg+XML": XML,
        "text/xml": XML,
        "text/plain": OTHER_MEDIA,
        "text/html5": OTHER_MEDIA,
    }
    data = written([CrawlEvent("a", content_type=given) for given in kinds])
    for plain in (True, False):
        decoded = decode_avro(replace(read_header(data), is_plain=plain), blocks_of(data), "f")
        assert decoded.events.media.tolist() == list(kinds.values())


def test_columns_have_their_types() -> None:
    data = written([CrawlEvent("a", links=(Link("b"),))])
    found = decode_avro(read_header(data), blocks_of(data), "f").events
    for field in fields(CrawlEvents):
        assert getattr(found, field.name).dtype == getattr(EventWriter().events(), field.name).dtype, field.name


@pytest.mark.parametrize("extra", [0, 1])
def test_links_and_redirects_are_limited(extra: int) -> None:
    given = [
        CrawlEvent("a", links=(Link(""),) * (MOST_LINKS + extra)),
        CrawlEvent("b", redirects=("",) * (MOST_REDIRECTS + extra)),
        CrawlEvent("c"),
    ]
    rows, rejects = with_the_kernel(written(given))
    assert [row[-1][0][0] for row in rows] == ([b"c"] if extra else [b"a", b"b", b"c"])  # type: ignore[index]
    assert [reason for reason, _ in rejects] == ([Reason.TOO_MANY_LINKS, Reason.BAD_FIELD] if extra else [])


def some(count: int, seed: int = 0) -> list[CrawlEvent]:
    chance = random.Random(seed)
    return [
        CrawlEvent(
            f"http://a.example/{number}/{chance.getrandbits(64):x}",
            fetched_at_ms=1_577_934_245_000 + number,
            status=200,
            digest=f"{chance.getrandbits(64):016x}",
            links=tuple(Link(f"http://b.example/{chance.getrandbits(64):x}") for _ in range(chance.randrange(6))),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_files_with_every_codec_are_read(codec: str, tmp_path: Path) -> None:
    rows, rejects = in_a_file(written(some(700), codec), tmp_path)
    assert not rejects and [row[-1][0][0].decode() for row in rows] == [event.url for event in some(700)]  # type: ignore[index]
    assert [row[1:] for row in rows] == [row[1:] for row in with_the_kernel(written(some(700)))[0]]


def test_the_kernel_decodes_ordinary_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_take_record", None)
    assert len(with_the_kernel(written(some(100)))[0]) == 100


def test_arrays_may_be_in_blocks_with_sizes() -> None:
    of_links = b"\x01\x06\x02b\x00\x00" + b"\x02\x02c\x00\x00" + b"\x00"  # -1 item, 4 bytes; 1 item; the end
    data = b"\x00\x02a\x00\x00\x00" + b"\x01\x04\x02h\x00" + b"\x00\x00\x00\x00" + b"\x02" + of_links + b"\x00\x00"
    head = written([])
    block = bytes([2, 2 * len(data)]) + data + SYNC
    rows, rejects = with_the_kernel(head + block)
    assert not rejects and (rows, rejects) == without_the_kernel(head + block)
    assert [url for url, _, _ in rows[0][-1]] == [b"a", None, b"h", b"b", b"c"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("plain", [True, False])
def test_records_of_less_than_a_byte_are_rejected_and_counted(plain: bool) -> None:
    data = written([CrawlEvent("a")] * 4643 + [CrawlEvent("b")], "deflate", 65_000)
    container = replace(read_header(data), is_plain=plain)
    blocks = blocks_of(data)
    (rejected,) = [block for block in blocks if block.records >= block.end - block.offset]
    rows, rejects = outcome([decode_avro(container, blocks, "f")])
    size = rejected.end - rejected.offset
    assert (
        rejects == [(Reason.TOO_LARGE, rejected.offset + size - 1)] and len(rows) == 4644 - rejected.records + size - 1
    )
    assert rows[-1][-1][0][0] == b"b" and rows[-1][0] >= rejected.end  # type: ignore[index, operator]


# -- other schemas


def changed(**changes: Any) -> dict[str, Any]:
    """Return the published schema with changed fields; None removes one."""
    other = copy.deepcopy(schema("CrawlEvent"))
    kept = [field for field in other["fields"] if changes.get(field["name"], field) is not None]
    other["fields"] = [{**field, **changes.get(field["name"], {})} for field in kept]
    return other


FEW = {"type": "record", "name": "CrawlEvent", "fields": [{"name": "url", "type": "string"}]}


@pytest.mark.parametrize(
    ("writer", "plain"),
    [
        (changed(), True),
        ({**changed(), "doc": "other"}, True),
        (changed(fetched_at={"type": ["null", "long"]}), True),
        (changed(fetched_at={"type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}), False),
        (changed(digest=None, canonical=None), False),
        ({**changed(), "namespace": "other"}, False),
        ({**changed(), "fields": list(reversed(changed()["fields"]))}, False),
        ({**changed(), "fields": [{"name": "depth", "type": "int", "default": 3}, *changed()["fields"]]}, False),
        (changed(status={"type": ["int", "null"], "default": 0}), False),
    ],
    ids=[
        "the same",
        "a doc",
        "a plain time",
        "microseconds",
        "fewer",
        "a namespace",
        "reversed",
        "more",
        "a union turned",
    ],
)
def test_files_with_other_forms_of_the_schema_are_read(writer: dict[str, Any], plain: bool, tmp_path: Path) -> None:
    given = [replace(event, digest=None) for event in some(50)]
    file = BytesIO()
    scale = 1000 if "micros" in str(writer) else 1
    values = [{**to_avro(event), "fetched_at": event.fetched_at_ms and event.fetched_at_ms * scale} for event in given]
    fastavro.writer(file, writer, values, sync_interval=500)
    assert read_header(file.getvalue()).is_plain == plain
    rows, rejects = in_a_file(file.getvalue(), tmp_path)
    assert not rejects and [row[1:] for row in rows] == [row[1:] for row in with_the_kernel(written(given))[0]]


def test_a_url_alone_is_an_event(tmp_path: Path) -> None:
    file = BytesIO()
    fastavro.writer(file, FEW, [{"url": "a"}, {"url": "b"}])
    rows, rejects = in_a_file(file.getvalue(), tmp_path)
    assert not rejects and [row[-1] for row in rows] == [((b"a", 0, 0), (None, 0, 0)), ((b"b", 0, 0), (None, 0, 0))]


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        (changed(url=None), "its records have no field url"),
        (
            changed(links={"type": ["null", {"type": "array", "items": "string"}]}),
            r"links\[\] is string, not record opicflow.Link",
        ),
        (changed(url={"type": "int", "default": 0}), "url is int, not string"),
        ({"type": "string"}, "its records have no field url"),
        ({**changed(), "name": "Other"}, "it is record opicflow.Other, not record opicflow.CrawlEvent"),
    ],
    ids=["no url", "links are strings", "url is a number", "no record", "another name"],
)
def test_a_file_with_other_records_is_one_reject(writer: dict[str, Any], expected: str, tmp_path: Path) -> None:
    file = BytesIO()
    fastavro.writer(file, writer, [])
    data = file.getvalue() + b"x" * 70_000
    with pytest.raises(WrongSchema, match=expected):
        read_header(data)
    assert in_a_file(data, tmp_path) == ([], [(Reason.WRONG_SCHEMA, 0)])
    (batch,) = read(FileRange("f", str(tmp_path / "f.avro"), Format.AVRO))
    assert (batch.start, batch.end) == (0, len(data))
    assert in_a_file(data, tmp_path, start=len(data)) == ([], [])


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(WrongSchema, match="its codec 'nonesuch' is not one of null, deflate"):
        read_header(written([]).replace(b"\x08null", b"\x10nonesuch"))


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"Obj\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"{}" * 50])
def test_an_unreadable_header_is_reported(data: bytes) -> None:
    with pytest.raises(WrongSchema, match=r"^its head cannot be read \(.+\)$"):
        read_header(data)


# -- damage


@pytest.mark.thorough
@pytest.mark.parametrize("codec", CODECS)
def test_only_damaged_blocks_are_lost(codec: str, seed: int) -> None:
    chance = random.Random(seed)
    data = written(some(60), codec, 1000)
    container, whole = read_header(data), blocks_of(data)
    assert len(whole) > 5
    rows = {block.offset: rows_of(decode_avro(container, [block], "f").events) for block in whole}
    for _ in range(thorough(40, 400)):
        damaged = bytearray(data)
        first = chance.randrange(container.size, len(data))
        last = min(first + chance.choice([0, 0, 0, 1, 20]), len(data) - 1)
        for at in range(first, last + 1):
            damaged[at] ^= chance.randrange(1, 256)
        blocks = blocks_of(bytes(damaged), piece=chance.choice([7, 100, 1000, 10**6]), container=container)
        decoded = decode_avro(container, blocks, "f")
        found: dict[int, list[tuple[object, ...]]] = {}
        starts = np.array([block.offset for block in blocks])
        for row in rows_of(decoded.events):
            found.setdefault(int(starts[np.searchsorted(starts, row[0], "right") - 1]), []).append(row)
        for block in whole:
            if block.end <= first or block.offset > last:
                assert found.get(block.offset) == rows[block.offset], (first, last)
        slow = decode_avro(replace(container, is_plain=False), blocks, "f")
        assert (np.diff(slow.events.offset) > 0).all()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_truncated_file_gives_its_whole_blocks(codec: str) -> None:
    data = written(some(60), codec, 1000)
    container, whole = read_header(data), blocks_of(data)
    for end in range(container.size, len(data) + 1):
        blocks = blocks_of(data[:end], container=container)
        ends = [block.end for block in whole if block.end <= end]
        assert [block.end for block in blocks if not block.detail] == ends
        (damaged,) = [block for block in blocks if block.detail] or [None]
        assert (damaged is None) == (end in (container.size, *ends))
        assert damaged is None or damaged.damaged == data[damaged.offset : end]


def test_a_damaged_header_raises_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = written(some(5))
    size = read_header(data).size
    for _ in range(600):
        damaged = bytearray(data)
        damaged[chance.randrange(size)] ^= 1 << chance.randrange(8)
        outcome(batch.decode() for batch in read_damaged(bytes(damaged), tmp_path))


def read_damaged(data: bytes, folder: Path) -> list[Any]:
    (folder / "d.avro").write_bytes(data)
    return list(read(FileRange("f", str(folder / "d.avro"), Format.AVRO)))


@pytest.mark.slow
@pytest.mark.thorough
def test_damaged_records_raise_nothing(seed: int) -> None:
    chance = random.Random(seed)
    data = written(some(12, seed))
    container = read_header(data)
    (block,) = blocks_of(data)
    undamaged = [
        (row[0] + block.end - block.offset, *row[1:])  # type: ignore[operator]
        for row in rows_of(decode_avro(container, [block], "f").events)
    ]
    for _ in range(thorough(1000, 3000)):
        damaged = bytearray(block.data)
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(damaged))
            kind = chance.randrange(3)
            if kind == 0:
                damaged[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                damaged[at] = chance.choice([0, 1, 2, 3, 127, 128, 255])
            else:
                del damaged[at:]
                break_off = bytes(damaged)
                damaged = bytearray(break_off or b"\0")
        odd = block._replace(data=bytes(damaged), records=chance.choice([12, 12, 0, 1, 13, 1 << 30]))
        for plain in (True, False):
            arguments = (
                replace(container, is_plain=plain),
                [odd, block._replace(offset=block.end, end=2 * block.end)],
                "f",
            )
            decoded = decode_avro(*arguments)
            if plain:
                check_messages(log_reader._of_blocks(0, 2 * block.end, *arguments))
            assert len(decoded.events) >= 12
            assert rows_of(decoded.events)[-12:] == undamaged
            assert all(block.offset <= reject.offset < block.end for reject in decoded.rejects)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("records", [11, 13, 0])
def test_a_wrong_number_of_records_is_a_reject(records: int, plain: bool) -> None:
    data = written(some(12))
    (block,) = blocks_of(data)
    decoded = decode_avro(replace(read_header(data), is_plain=plain), [block._replace(records=records)], "f")
    assert len(decoded.events) == min(records, 12)
    assert [reject.reason for reject in decoded.rejects] == [Reason.CORRUPT]


@pytest.mark.slow
def test_a_size_that_spans_many_blocks_loses_one(tmp_path: Path) -> None:
    data = written(some(20_000), a_block=50_000)
    whole = blocks_of(data, piece=1 << 20)
    assert len(data) > 3 << 20
    before = whole[3]
    damaged = bytearray(data)
    right, wrong = (numbers(before.records, size) for size in (len(before.data), 2 << 20))
    damaged[before.offset : before.offset + len(right)] = wrong
    blocks = blocks_of(bytes(damaged), piece=1 << 20)
    assert [block.records for block in blocks if not block.detail] == [b.records for b in whole if b is not before]
    rows, rejects = in_a_file(bytes(damaged), tmp_path)
    assert len(rows) == 20_000 - before.records and rejects == [(Reason.CORRUPT, before.offset)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_reading_can_continue_at_any_block(codec: str, tmp_path: Path) -> None:
    data = bytearray(written(some(60), codec, 1000))
    blocks = blocks_of(bytes(data))
    data[blocks[4].offset + 30] ^= 255
    data[blocks[7].end - 1] ^= 255
    blocks = blocks_of(bytes(data))
    rows, rejects = in_a_file(bytes(data), tmp_path)
    assert len(rejects) >= 1
    for block in blocks:
        later = in_a_file(bytes(data), tmp_path, block.offset)
        assert later == ([row for row in rows if row[0] >= block.offset], [r for r in rejects if r[1] >= block.offset])  # type: ignore[operator]
        before = in_a_file(bytes(data), tmp_path, end=block.offset)
        assert (before[0] + later[0], before[1] + later[1]) == (rows, rejects)


def test_a_file_without_records_has_no_events(tmp_path: Path) -> None:
    assert in_a_file(written([]), tmp_path) == ([], [])
