"""Crawl events from Kafka's messages: a batch decodes to the same events as its messages one by one, in any framing."""

from __future__ import annotations

import copy
import io
import json
import random
from itertools import count
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded
from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.connectors.kafka import messages as module
from opicflow.connectors.kafka.client import FetchedRecords, message_batch
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.framing import (
    Decoder,
    Frame,
    FrameKind,
    FramingRefused,
    confluent_prefix,
    encode_behind,
    encode_single_object,
    published_writer,
)
from opicflow.schemas.json_events import event_of
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.published_schemas import Schema, schema
from opicflow.schemas.records import from_avro, to_avro
from support.event_rows import events, rows_of
from support.logs import json_line
from support.paths import TOP
from support.thorough import examples

PUBLISHED, NEWER, INCOMPATIBLE, NO_SCHEMA = 7, 8, 9, 10
"""The ids in the registry that the tests use."""
Outcome = tuple[list[tuple[object, ...]], list[tuple[Reason, int, bytes]]]


def changed(**more: Any) -> Schema:
    other = copy.deepcopy(schema("CrawlEvent"))
    other["fields"] += [{"name": name, **field} for name, field in more.items()]
    return other


def with_number_as_url() -> Schema:
    other = copy.deepcopy(schema("CrawlEvent"))
    next(field for field in other["fields"] if field["name"] == "url")["type"] = "long"
    return other


NEWER_SCHEMA = changed(depth={"type": "int", "default": 0}, found_by={"type": ["null", "string"], "default": None})
REGISTRY: dict[int, Any] = {
    PUBLISHED: schema("CrawlEvent"),
    NEWER: NEWER_SCHEMA,
    INCOMPATIBLE: with_number_as_url(),
    NO_SCHEMA: {"type": "nonsense"},
}


def writer_of(frame: Frame) -> Schema | None:
    return REGISTRY.get(frame.number) if frame.kind is FrameKind.CONFLUENT else published_writer(frame)


def newer(event: CrawlEvent) -> bytes:
    """Return a message of a newer writer, whose schema has more fields."""
    out = io.BytesIO()
    values = {**to_avro(event), "depth": 3, "found_by": "a"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(NEWER_SCHEMA), values)
    return b"\0" + NEWER.to_bytes(4, "big") + out.getvalue()


def confluent(event: CrawlEvent) -> bytes:
    return encode_behind(confluent_prefix(PUBLISHED), "CrawlEvent", to_avro(event))


def single(event: CrawlEvent) -> bytes:
    return encode_single_object("CrawlEvent", to_avro(event))


def pretty(event: CrawlEvent) -> bytes:
    return json.dumps(json.loads(json_line(event)), indent=1).encode()


FRAMINGS = [single, confluent, newer, pretty, json_line, lambda event: json_line(event)[:-1]]


def batch_of(values: list[bytes | None], first: int = 100, step: int = 3) -> MessageBatch:
    """Return messages with gaps between their offsets, as compaction leaves them."""
    rows = (
        (offset, 1_600_000_000_000 + offset, None, value)
        for offset, value in zip(count(first, step), values, strict=False)
    )
    return message_batch([FetchedRecords.of(0, rows)], first, first + step * len(values))


def outcome(decoded: Decoded) -> Outcome:
    assert all(r.detail and "\n" not in r.detail and r.source == "s" for r in decoded.rejects)
    offsets = [reject.offset for reject in decoded.rejects]
    assert offsets == sorted(offsets)
    return rows_of(decoded.events), [(r.reason, r.offset, r.bytes) for r in decoded.rejects]


def at_once(values: list[bytes | None]) -> Outcome:
    return outcome(decode_messages(batch_of(values), "s", writer_of))


def one_by_one(values: list[bytes | None]) -> Outcome:
    """Return the outcome of decoding each message alone, by plain code."""
    others, rejects = EventWriter(), []
    for number, value in enumerate(values):
        offset = 100 + 3 * number
        try:
            others.add(offset, read_plainly(value))
        except EventRefused as problem:
            rejects.append((problem.reason, offset, (value or b"")[:MOST_REJECTED_BYTES]))
    return rows_of(others.events()), rejects


def read_plainly(value: bytes | None) -> CrawlEvent:
    if value is None or not value.strip():
        raise EventRefused(Reason.NOT_AN_EVENT, "nothing")
    if value[:2] == b"\xc3\x01" or value[:1] == b"\0":
        return read_framed(value)
    try:
        return event_of(orjson.loads(value.removeprefix(b"\xef\xbb\xbf")))
    except orjson.JSONDecodeError:
        try:
            value.decode()
        except UnicodeDecodeError:
            raise EventRefused(Reason.NOT_UTF8, "bytes") from None
        raise EventRefused(Reason.NOT_JSON, "text") from None


def read_framed(value: bytes) -> CrawlEvent:
    try:
        return from_avro(CrawlEvent, Decoder("CrawlEvent", writer_of).decode(value))
    except FramingRefused as problem:
        unknown = "not known here" in str(problem) or "cannot be read as" in str(problem) or "no Avro" in str(problem)
        raise EventRefused(Reason.WRONG_SCHEMA if unknown else Reason.CORRUPT, "frame") from None


def url_of(number: int) -> str:
    return f"http://a.example/{number}"


def some(count: int, seed: int = 0) -> list[CrawlEvent]:
    chance = random.Random(seed)
    return [
        CrawlEvent(
            url_of(number) + chance.choice(["", "/\u00e9", "?q=%22"]),
            fetched_at_ms=1_577_934_245_000 + number,
            status=200,
            digest=f"{chance.getrandbits(64):016x}",
            links=tuple(Link(f"http://b.example/{chance.getrandbits(64):x}") for _ in range(chance.randrange(6))),
        )
        for number in range(count)
    ]


# -- batches

jsonable = events.filter(lambda event: all(link.weight == link.weight for link in event.links or ()))
framed = st.one_of(
    *(events.map(framing) for framing in (single, confluent, newer)),
    *(jsonable.map(framing) for framing in (pretty, json_line)),
)
odd_values: st.SearchStrategy[bytes | None] = st.sampled_from(
    [None, b"", b" \n", b"{", b"\0", b"\0\0\0\0\x07", b"\xc3\x01", b"\xc3", b"\xc3\xa9", b"\xff{}", b"[]", b"null"]
)


@examples(30, 500)
@given(st.lists(framed | odd_values, max_size=10))
@example([None])
@example([])
@example([single(CrawlEvent("a")), b'{"url":"b"}', confluent(CrawlEvent("c"))])
@example([b'\xef\xbb\xbf{"url":"b"}', b'{"url":"c"}\r\n', b'\n{"url":"d"}'])
@example([b"\0" + n.to_bytes(4, "big") + b"\0\2a\0" for n in (PUBLISHED, NEWER, INCOMPATIBLE, NO_SCHEMA, 99)])
@example([b'{"url":"a"', b"}", b'{"url":"b",', b'"status":200}', b'{"url":"c', b'"}'])
def test_a_batch_decodes_as_its_messages_one_by_one(values: list[bytes | None]) -> None:
    assert at_once(values) == one_by_one(values)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_batch_decodes_messages_damaged_at_any_byte_as_one_by_one(framing: Any, seed: int) -> None:
    chance = random.Random(seed)
    event = CrawlEvent(
        "http://a/\u00e9",
        fetched_at_ms=1_577_934_245_000,
        status=200,
        redirects=("http://r",),
        content_type="text/html",
        digest="d",
        links=(Link("http://b", 2.0, "nofollow"), Link("c")),
    )
    whole = framing(event)
    damaged: list[bytes | None] = [whole, whole + b"\0", whole + whole, whole + b" ", whole + b"x"]
    for at in range(len(whole)):
        damaged.append(whole[:at])
        for byte in (0, 0x80, 0xFF, whole[at] ^ 1 << chance.randrange(8), chance.randrange(256)):
            damaged.append(whole[:at] + bytes([byte]) + whole[at + 1 :])
        damaged.append(whole[:at] + whole[at + 1 :])
        damaged.append(whole[:at] + bytes([chance.randrange(256)]) + whole[at:])
    chance.shuffle(damaged)
    assert at_once(damaged) == one_by_one(damaged)


def test_thousands_of_messages_of_all_framings_keep_their_order(seed: int) -> None:
    chance = random.Random(seed)
    given_events = some(3000, seed)
    values: list[bytes | None] = [chance.choice(FRAMINGS)(event) for event in given_events]
    rows, rejects = at_once(values)
    assert not rejects
    assert [row[0] for row in rows] == [100 + 3 * number for number in range(3000)]
    assert [row[-1][0][0] for row in rows] == [event.url.encode() for event in given_events]  # type: ignore[index]
    assert (rows, rejects) == one_by_one(values)


@pytest.mark.parametrize("framing", [single, confluent, json_line])
def test_ordinary_messages_are_decoded_by_the_kernels(framing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode_alone(*_: Any) -> None:
        raise AssertionError("it was decoded alone")

    monkeypatch.setattr(module, "_take", decode_alone)
    values: list[bytes | None] = [framing(CrawlEvent(url_of(n), status=200, links=(Link("b"),))) for n in range(20)]
    rows, rejects = at_once(values)
    assert len(rows) == 20 and not rejects


# -- rejects


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (None, Reason.NOT_AN_EVENT, "no value"),
        (b"", Reason.NOT_AN_EVENT, "empty"),
        (b" \n", Reason.NOT_AN_EVENT, "empty"),
        (b"{", Reason.NOT_JSON, "byte 1"),
        (b'{"url":"\xff"}', Reason.NOT_UTF8, "byte 8 of the message"),
        (b"{}", Reason.NOT_AN_EVENT, "no url"),
        (b'{"url":"a","status":{}}', Reason.BAD_FIELD, "status"),
        (b"\0\0\0\0", Reason.CORRUPT, "first 5 bytes"),
        (b"\0\0\0\0\x63\0", Reason.WRONG_SCHEMA, "schema id 99"),
        (b"\0\0\0\0\x09\0\2\0\0\0\0\0\0\0\0\0", Reason.WRONG_SCHEMA, "url"),
        (b"\0\0\0\0\x0a\0", Reason.WRONG_SCHEMA, "no Avro schema"),
        (b"\xc3\x01" + bytes(8) + b"\0", Reason.WRONG_SCHEMA, "fingerprint 0000000000000000"),
        (single(CrawlEvent("a"))[:-1], Reason.CORRUPT, "breaks off"),
        (single(CrawlEvent("a")) + b"\0", Reason.CORRUPT, "ends at byte"),
        (single(CrawlEvent("a", links=(Link("b", -1.0),))), Reason.BAD_WEIGHT, "weight"),
    ],
)
def test_an_undecodable_message_is_a_reject_with_its_reason(value: bytes | None, reason: Reason, message: str) -> None:
    decoded = decode_messages(batch_of([b'{"url":"a"}', value, b'{"url":"b"}']), "s", writer_of)
    assert len(decoded.events) == 2
    (reject,) = decoded.rejects
    assert (reject.reason, reject.offset, reject.bytes, reject.source) == (reason, 103, value or b"", "s")
    assert message in reject.detail, reject.detail


@pytest.mark.parametrize("begin", [b"{", b"\0\0\0\0\x07", single(CrawlEvent("a"))[:10]])
def test_a_message_that_is_too_large_is_rejected_undecoded_and_shortened(begin: bytes) -> None:
    value = begin + b" " * MOST_EVENT_BYTES
    decoded = decode_messages(batch_of([value]), "s", writer_of)
    (reject,) = decoded.rejects
    assert reject.reason is Reason.TOO_LARGE and reject.bytes == value[:MOST_REJECTED_BYTES]
    assert str(len(value)) in reject.detail


@pytest.mark.parametrize(
    "log", ["heritrix-feed.jsonl", "heritrix-crawl.log", "stormcrawler-status.jsonl", "katana.jsonl"]
)
def test_records_of_other_crawlers_are_recognised_one_by_one(log: str) -> None:
    """A message holds one record; a lookup of a host is no event and no reject."""
    lines = (TOP / "examples" / "crawlers" / log).read_bytes().splitlines()
    rows, rejects = at_once([*lines, b'{"url":"https://a/","status":"FETCHED AND MORE"}'])
    expected, offset = decode_jsonl(b"\n".join(lines), "s", 0), 100 + 3 * len(lines)
    assert [row[1:] for row in rows] == [row[1:] for row in rows_of(expected.events)] and len(rows) > 8
    assert [(reason, at) for reason, at, _ in rejects] == [(Reason.BAD_FIELD, offset)]


def test_the_original_of_an_event_is_the_bytes_of_its_message() -> None:
    values: list[bytes | None] = [json_line(CrawlEvent("a"))[:-1], None, single(CrawlEvent("b")), b" " * 100_000]
    original = decode_messages(batch_of(values), "s", writer_of).original
    assert original is not None
    assert [original(100 + 3 * n) for n in range(4)] == [values[0], b"", values[2], b" " * MOST_REJECTED_BYTES]


def test_a_schema_that_is_published_later_is_found() -> None:
    known: dict[int, Schema] = {}
    values: list[bytes | None] = [confluent(CrawlEvent("a"))]

    def later(frame: Frame) -> Schema | None:
        return known.get(frame.number)

    before = decode_messages(batch_of(values), "s", later)
    known[PUBLISHED] = schema("CrawlEvent")
    after = decode_messages(batch_of(values), "s", later)
    assert [reject.reason for reject in before.rejects] == [Reason.WRONG_SCHEMA]
    assert (len(after.events), after.rejects) == (1, [])


def test_a_registry_that_does_not_answer_is_not_the_fault_of_the_message() -> None:
    def broken(frame: Frame) -> Schema | None:
        raise ConnectionError("no registry")

    for value in (confluent(CrawlEvent("a")), newer(CrawlEvent("a"))):
        with pytest.raises(ConnectionError):
            decode_messages(batch_of([value]), "s", broken)


def test_columns_have_the_records_of_the_consumer() -> None:
    values: list[bytes | None] = [b"a", None, b"", b"bc"]
    columns = batch_of(values, first=5, step=2)
    assert [columns.value(row) for row in range(len(columns))] == values
    assert columns.offsets.tolist() == [5, 7, 9, 11]
    assert columns.times_ms.tolist() == [1_600_000_000_000 + offset for offset in (5, 7, 9, 11)]
    assert columns.text == b"a\n\n\nbc"
