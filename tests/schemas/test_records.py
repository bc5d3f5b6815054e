"""Published schemas, their records, and the two framings. Every published version remains readable, byte for byte.

After publishing a new version, run this file by hand: it writes the golden messages that are missing, and prints the
lines for PUBLISHED. It never overwrites a golden message.

    .venv/bin/python tests/schemas/test_records.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas import published_schemas
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason, Reject
from opicflow.schemas.framing import (
    MOST_MESSAGE_BYTES,
    Decoder,
    Frame,
    FrameKind,
    FramingRefused,
    confluent_prefix,
    encode_behind,
    encode_single_object,
    frame_kind,
    published_writer,
)
from opicflow.schemas.pages import PageIds
from opicflow.schemas.published_schemas import SchemaUnknown, breaks
from opicflow.schemas.records import (
    RECORDS,
    Audit,
    CrawlOrder,
    Hex64,
    Importance,
    PageChange,
    PairTotal,
    Policy,
    Record,
    RefreshSchedule,
    SiteImportance,
    from_avro,
    to_avro,
)
from support.paths import TOP

GOLDEN = TOP / "tests" / "golden"
FILES = Path(published_schemas.__file__).parent / "published"

PUBLISHED = {
    ("Audit", 1): (0xD8C2F097A447A06D, "23f9d1172e8d067015102fb8f8d2f8b001687b2008d29f213066c6f3f7f018ea"),
    ("CrawlEvent", 1): (0x0D98DF9BEB173A81, "7aafe2201f1de991730d5c1099465a3ec437860ec86a39ef9af654de9631bbfe"),
    ("CrawlOrder", 1): (0xAD172C557AB8464D, "d436159efaf55dc4ce6b842d258a7662607638e83d1a0506d3f32683ef6d6a02"),
    ("Importance", 1): (0xCFFDEBC9FF8EA973, "dd52ed4fddb56ffab456340c16f6a6f0dfdf37194aa587c919b0290215844a22"),
    ("PageChange", 1): (0x7982D59FFF306F5F, "727f5b9f70e89b0ad7c931c156e342c52a8c52105b1f6017aa24ce0a6fa507dc"),
    ("Policy", 1): (0x2931F60A0FA1D319, "7d981a6033cf742a056d546222f93748edd76223f2a80b1f071205cc056d3b99"),
    ("RefreshSchedule", 1): (0xE3C9F4EE4B097F82, "c17e9622247ccea9d28b30a040815be9f30acde7b8d743e956be1c6341164dc8"),
    ("Reject", 1): (0x32F7E082D46DB616, "e6f9a386b255657181c1ed25fe0d090a8dc6b3f082f8d0c6041823f66cf2ebec"),
    ("SiteImportance", 1): (0xB1DA91E6EB2CCB27, "13d63afb5e617d8cfd4fc7c96c40f8e7dd771eb5aef4134a9db70c6c80a60757"),
}
"""The fingerprint of every published version, and the SHA-256 of all of it but its descriptions.

Lines are added, never changed. A description that is wrong is corrected: readers and fingerprints have none.
"""

TIME_MS = 1_038_355_200_123

EXAMPLES: dict[str, Record] = {
    "CrawlEvent": CrawlEvent(
        url="https://example.org/größe",
        fetched_at_ms=TIME_MS,
        status=200,
        redirects=("http://example.org/größe", "https://example.org/x"),
        canonical="https://example.org/g",
        content_type="text/html",
        digest="sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
        last_modified_ms=-1,
        links=(Link("https://example.org/", 0.5, "nofollow"), Link("https://example.net/")),
        retry_after=120,
        quality=0.25,
    ),
    "Importance": Importance(
        url="https://example.org/",
        page=0x00E28576_D7A3817B,
        importance=0.125,
        score=2.5,
        trend_per_day=-0.0625,
        cash=1 << 24,
        waiting_cash=(1 << 62) - 1,
        history=0.75,
        error_factor=0.125,
        visits=3,
        last_visit_ms=TIME_MS,
        last_outcome="UNCHANGED",
        measured=True,
        pages=20,
        clock=8.5,
        event_time_ms=TIME_MS + 1,
        shard=2,
        cut=77,
        certificate=0.03125,
        settled=False,
        window_importance=0.3125,
    ),
    "SiteImportance": SiteImportance(
        site="example.org",
        by="DOMAIN",
        importance=0.125,
        mean_score=2.5,
        pages=20,
        read=7,
        changes_per_day=0.75,
        trend_per_day=-0.0625,
        event_time_ms=TIME_MS + 1,
        shard=2,
        shards=1,
        certificate=0.03125,
        settled=True,
    ),
    "RefreshSchedule": RefreshSchedule(
        url="https://example.org/",
        page=1,
        due_ms=TIME_MS,
        interval_seconds=86400.5,
        decided_by="PINNED",
        changes_per_day=0.25,
        changes_known_from="LAST_MODIFIED",
        importance=0.125,
        category=4,
        last_visit_ms=TIME_MS - 86_400_500,
        event_time_ms=TIME_MS - 2,
        shard=2,
        changes_error=0.5,
        staleness_cost=0.0625,
        host="example.org",
    ),
    "CrawlOrder": CrawlOrder(
        url="https://example.org/",
        page=(1 << 64) - 1,
        ordered_at_ms=TIME_MS,
        why="DISCOVERY",
        priority=17.5,
        due_ms=None,
        expires_at_ms=TIME_MS + 3_600_000,
        importance=0.125,
        waiting_cash=5,
        category=None,
        last_visit_ms=None,
        shard=0,
        not_before_ms=TIME_MS + 1,
        host="example.org:8080",
        by="exploring",
    ),
    "Policy": Policy(
        published_at_ms=TIME_MS,
        publisher="the news desk",
        category=1,
        changes_per_day=24.0,
        refresh_interval_seconds=600.0,
        refresh_forbidden=True,
        importance_factor=2.0,
        fetch_now=True,
        damping=0.85,
        class_weights=(16, 16, 64, 32),
        link_bonus_per_1024=(),
        host="example.org:8080",
        url_prefix="https://example.org/news/",
        expires_at_ms=TIME_MS + 86_400_000,
        shortest_interval_seconds=60.0,
        longest_interval_seconds=86400.5,
        host_fetches_per_day=1000.0,
        host_fetches_per_hour=90.0,
        crawl_delay_seconds=2.5,
        refresh_policy="thesis",
        notify=True,
    ),
    "PageChange": PageChange(
        url="https://example.org/",
        page=(1 << 64) - 1,
        time_ms=TIME_MS,
        digest_before="",
        digest="0123abcd",
        changes=2,
        importance=0.125,
        score=2.5,
        subscribers="al, the news desk",
        shard=2,
        host="example.org",
    ),
    "Reject": Reject(Reason.NOT_JSON, "this is no JSON: correct it", "crawl.jsonl", 1 << 40, b"\x00\xff{"),
    "Audit": Audit(
        shard=1,
        shards=3,
        second=1_038_355_200,
        clock=8.5,
        pages=7,
        visits=9,
        minted=100,
        cash=60,
        uncollected=5,
        virtual=-1,
        absorbed=0,
        sent=50,
        received=14,
        sent_to=(PairTotal(0, 76, 30, 0xFFFFFFFFFFFFFFFF), PairTotal(2, 76, 20, 1)),
        received_from=(PairTotal(2, 75, 14, 0),),
        fingerprint="00000000deadbeef",
        certificate=0.0001,
        settled=True,
        bytes=1 << 33,
    ),
}

VERSIONS = [(name, version) for name in published_schemas.names() for version in published_schemas.versions(name)]


def golden_file(name: str, version: int) -> Path:
    return GOLDEN / f"{name}-{version}.avro-single"


def pins(name: str, version: int) -> tuple[int, str]:
    bare = json.dumps(without_descriptions(json.loads((FILES / f"{name}-{version}.avsc").read_bytes())))
    return published_schemas.fingerprint(name, version), hashlib.sha256(bare.encode()).hexdigest()


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(without_descriptions, schema))
    if isinstance(schema, dict):
        return {name: without_descriptions(value) for name, value in schema.items() if name != "doc"}
    return schema


def write_golden() -> None:
    """Write missing golden messages: see the top of this file."""
    GOLDEN.mkdir(exist_ok=True)
    for name in published_schemas.names():
        version = published_schemas.versions(name)[-1]
        number, digest = pins(name, version)
        print(f'    ("{name}", {version}): (0x{number:016X}, "{digest}"),')
        if not golden_file(name, version).exists():
            golden_file(name, version).write_bytes(encode_single_object(name, to_avro(EXAMPLES[name])))


def with_field(schema: published_schemas.Schema, **field: Any) -> published_schemas.Schema:
    return schema | {"fields": [*schema["fields"], field]}


def without_field(schema: published_schemas.Schema, name: str) -> published_schemas.Schema:
    return schema | {"fields": [field for field in schema["fields"] if field["name"] != name]}


def with_type(schema: published_schemas.Schema, name: str, type_: Any) -> published_schemas.Schema:
    return schema | {
        "fields": [field | {"type": type_} if field["name"] == name else field for field in schema["fields"]]
    }


def documented(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every record, enum and field of a schema with its path."""
    if isinstance(schema, list):
        for branch in schema:
            yield from documented(branch, path)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum"):
            yield f"{path}: {schema['name']}", schema
        for field in schema.get("fields", []):
            yield f"{path}.{field['name']}", field
            yield from documented(field["type"], f"{path}.{field['name']}")
        yield from documented(schema.get("items"), path)


def rabin(canonical: bytes) -> int:
    """Return CRC-64-AVRO, bit by bit as in the Avro specification."""
    crc = empty = 0xC15D213AA4D7A795
    for byte in canonical:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (empty if crc & 1 else 0)
    return crc


def test_no_published_schema_was_changed_and_every_one_is_pinned() -> None:
    assert {(name, version): pins(name, version) for name, version in VERSIONS} == PUBLISHED


def test_every_schema_describes_page_ids_as_they_are_made() -> None:
    """No description may promise a hash that anybody can compute."""
    described = {
        field["doc"]
        for name, version in VERSIONS
        for field in published_schemas.schema(name, version)["fields"]
        if field["name"] == "page"
    }
    (sentences,) = described
    url = "https://example.org/"
    one, two = PageIds.with_secret(b"one").of(url), PageIds.with_secret(b"two").of(url)
    assert one != two
    assert "a hash of the page's site" in sentences and "made with a key" in sentences and "XXH" not in sentences


def test_a_fingerprint_is_the_rabin_checksum_of_the_parsing_canonical_form() -> None:
    assert rabin(b'"null"') == 0x63DD24E7CC258F8A, "the specification's example"
    for name, version in VERSIONS:
        canonical = fastavro.schema.to_parsing_canonical_form(published_schemas.schema(name, version))
        assert published_schemas.fingerprint(name, version) == rabin(canonical.encode())


def test_every_published_version_is_found_by_its_fingerprint() -> None:
    assert {published_schemas.with_fingerprint(published_schemas.fingerprint(*one)) for one in VERSIONS} == set(
        VERSIONS
    )
    assert published_schemas.with_fingerprint(0) is None


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_every_record_enum_and_field_is_documented_and_in_the_namespace(name: str, version: int) -> None:
    schema = published_schemas.schema(name, version)
    assert (schema["name"], schema["namespace"]) == (name, "opicflow")
    for path, element in documented(schema, name):
        assert element.get("doc", "").endswith("."), path


@pytest.mark.parametrize("name", published_schemas.names())
def test_fields_with_defaults_may_be_omitted(name: str) -> None:
    optional = {
        field["name"]: field["default"] for field in published_schemas.schema(name)["fields"] if "default" in field
    }
    given = {at: value for at, value in to_avro(EXAMPLES[name]).items() if at not in optional}
    assert Decoder(name).decode(encode_single_object(name, given)) == given | optional


@pytest.mark.parametrize("name", published_schemas.names())
def test_every_version_can_be_read_as_every_other(name: str) -> None:
    schemas = [published_schemas.schema(name, version) for version in published_schemas.versions(name)]
    assert [line for writer in schemas for reader in schemas for line in breaks(writer, reader)] == []


def test_a_reader_reads_a_newer_reason_as_the_default() -> None:
    old = published_schemas.schema("RefreshSchedule")
    kind = next(field["type"] for field in old["fields"] if field["name"] == "decided_by")
    new = with_type(old, "decided_by", kind | {"symbols": [*kind["symbols"], "WHIM"]})
    written = BytesIO()
    fastavro.schemaless_writer(written, new, to_avro(EXAMPLES["RefreshSchedule"]) | {"decided_by": "WHIM"})
    for reader, decided_by in ((old, "OTHER"), (new, "WHIM")):
        read = fastavro.schemaless_reader(BytesIO(written.getvalue()), new, reader)
        assert read["decided_by"] == decided_by


def test_the_default_version_is_the_latest() -> None:
    for name in published_schemas.names():
        latest = published_schemas.versions(name)[-1]
        assert published_schemas.schema(name) == published_schemas.schema(name, latest)
        assert published_schemas.fingerprint(name) == published_schemas.fingerprint(name, latest)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (
            lambda: published_schemas.versions("Imprtance"),
            "there is no published schema 'Imprtance': name one of Audit, Crawl",
        ),
        (lambda: published_schemas.schema("Page"), "there is no published schema 'Page'"),
        (lambda: published_schemas.schema("Audit", 99), "there is no version 99 of Audit: name one of 1"),
        (lambda: published_schemas.fingerprint("Audit", 0), "there is no version 0 of Audit"),
    ],
)
def test_an_unpublished_schema_is_refused_in_one_line(ask: Any, expected: str) -> None:
    with pytest.raises(SchemaUnknown) as refused:
        ask()
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_fields_of_a_crawl_event_keep_the_order_that_binary_decoders_need() -> None:
    event = published_schemas.schema("CrawlEvent", 1)
    link = LINKS[1]["items"]
    assert [field["name"] for field in event["fields"]] == [
        *("kind", "url", "fetched_at", "status", "failure", "redirects", "canonical", "content_type"),
        *("digest", "last_modified", "links", "retry_after", "quality"),
    ]
    assert [field["name"] for field in link["fields"]] == ["url", "weight", "rel"]


def test_adding_a_field_with_a_default_breaks_no_reader_in_either_direction() -> None:
    for name, example in EXAMPLES.items():
        old = published_schemas.schema(name)
        new = with_field(old, name="added", type=["null", "string"], default=None)
        assert breaks(old, new) == breaks(new, old) == []
        values = to_avro(example)
        with_old, with_new = BytesIO(), BytesIO()
        fastavro.schemaless_writer(with_old, old, values)
        fastavro.schemaless_writer(with_new, new, values | {"added": "x"})
        assert fastavro.schemaless_reader(BytesIO(with_old.getvalue()), old, new)["added"] is None
        by_old_reader = fastavro.schemaless_reader(BytesIO(with_new.getvalue()), new, old)
        assert from_avro(RECORDS[name], by_old_reader) == example

        newer_frame = Frame(FrameKind.CONFLUENT, 7)
        message = b"\x00\x00\x00\x00\x07" + with_new.getvalue()
        assert Decoder(name, {newer_frame: new}.get).decode(message) == values


ORDER = published_schemas.schema("CrawlOrder", 1)
EVENT = published_schemas.schema("CrawlEvent", 1)
WHY = next(field["type"] for field in ORDER["fields"] if field["name"] == "why")
KIND, LINKS = (next(field["type"] for field in EVENT["fields"] if field["name"] == name) for name in ("kind", "links"))


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (ORDER, with_field(ORDER, name="added", type="int"), ["added is missing and has no default"]),
        (without_field(ORDER, "priority"), ORDER, ["priority is missing and has no default"]),
        (without_field(EVENT, "status"), EVENT, []),
        (with_type(ORDER, "shard", "long"), ORDER, ["shard is long, not int"]),
        (ORDER, with_type(ORDER, "shard", "long"), []),
        (ORDER, with_type(ORDER, "shard", ["null", "int"]), []),
        (with_type(ORDER, "shard", ["null", "int"]), ORDER, ["shard is null, not int"]),
        (
            with_type(EVENT, "status", ["null", "int", "string"]),
            EVENT,
            ["status may be string, which no branch can be"],
        ),
        (ORDER | {"name": "Order"}, ORDER, ["it is record opicflow.Order, not record opicflow.CrawlOrder"]),
        (ORDER | {"namespace": "elsewhere"}, ORDER, []),
        (with_type(ORDER, "why", WHY | {"symbols": ["OTHER", "WHIM"]}), ORDER, []),
        (
            with_type(EVENT, "kind", KIND | {"symbols": ["VISIT", "ANNOUNCE", "GUESS"]}),
            EVENT,
            ["kind may be GUESS, which is not known and has no default"],
        ),
        (
            with_type(EVENT, "links", ["null", {"type": "array", "items": without_field(LINKS[1]["items"], "url")}]),
            EVENT,
            ["links[].url is missing and has no default"],
        ),
    ],
)
def test_a_change_that_breaks_readers_is_named(writer: Any, reader: Any, expected: list[str]) -> None:
    assert breaks(writer, reader) == expected
    assert breaks(writer, writer) == breaks(reader, reader) == []


def test_recursive_records_are_compared_completely() -> None:
    fields_of_node = [{"name": "next", "type": ["null", "Node"]}, {"name": "size", "type": "long"}]
    node: published_schemas.Schema = {"type": "record", "name": "Node", "fields": fields_of_node}
    assert breaks(node, node) == []
    assert breaks(node, with_type(node, "size", "int")) == ["size is long, not int"]


@pytest.mark.parametrize("name", published_schemas.names())
def test_a_record_matches_its_schema_field_by_field(name: str) -> None:
    assert set(RECORDS) == set(published_schemas.names())
    matches(RECORDS[name], published_schemas.schema(name))


def matches(record: Any, schema: published_schemas.Schema) -> None:
    """Assert that a dataclass or named tuple has the fields of a schema, with the same types and optional fields."""
    hints = get_type_hints(record, include_extras=True)
    by_name = {("kind" if at == "announce" else at.removesuffix("_ms")): at for at in hints}
    assert sorted(by_name) == sorted(field["name"] for field in schema["fields"])
    for field in schema["fields"]:
        attribute, type_ = by_name[field["name"]], field["type"]
        hint = hints[attribute]
        if isinstance(type_, list):
            assert type_[0] == "null" and len(type_) == 2 and field["default"] is None, attribute
            type_ = type_[1]
            hint, none = get_args(hint)
            assert none is type(None), attribute
        assert attribute.endswith("_ms") == (isinstance(type_, dict) and "logicalType" in type_), attribute
        kind = type_["type"] if isinstance(type_, dict) else type_
        if kind == "array":
            item, rest = get_args(hint)
            assert rest is ..., attribute
            if isinstance(type_["items"], dict):
                matches(item, type_["items"])
            else:
                assert item in ({"string": str, "int": int}.get(type_["items"]), PairTotal), attribute
        elif get_origin(hint) is Literal:
            assert list(get_args(hint)) == type_["symbols"], attribute
        elif attribute == "announce":
            assert hint is bool and type_["symbols"] == ["VISIT", "ANNOUNCE"]
        elif kind == "string":
            is_number = "hexadecimal" in field["doc"] and field.get("default") != ""  # an empty text is not a number
            assert hint is Hex64 if is_number else hint in (str, Reason), attribute
        else:
            assert hint is {"int": int, "long": int, "double": float, "boolean": bool, "bytes": bytes}[kind], attribute


@pytest.mark.parametrize("name", published_schemas.names())
def test_the_defaults_of_a_record_are_those_of_its_schema(name: str) -> None:
    assert name == type(EXAMPLES[name]).__name__
    optional = {
        field["name"]: field["default"] for field in published_schemas.schema(name)["fields"] if "default" in field
    }
    # A field without a default in the record has none in the schema, or one that only older writers need.
    left_out = {field.name for field in fields(RECORDS[name]) if field.default is not MISSING}
    given = {at: value for at, value in vars(EXAMPLES[name]).items() if at not in left_out}
    smallest = to_avro(RECORDS[name](**given))
    for attribute in left_out:
        avro_name = "kind" if attribute == "announce" else attribute.removesuffix("_ms")
        assert smallest[avro_name] == optional[avro_name], attribute


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_golden_messages_of_every_published_version_are_still_read(name: str, version: int) -> None:
    read = Decoder(name).decode(golden_file(name, version).read_bytes())
    had = {field["name"] for field in published_schemas.schema(name, version)["fields"]}
    added = {
        field["name"]: field["default"]
        for field in published_schemas.schema(name)["fields"]
        if field["name"] not in had
    }
    assert to_avro(from_avro(RECORDS[name], read)) == to_avro(EXAMPLES[name]) | added


@pytest.mark.parametrize("name", published_schemas.names())
def test_the_code_writes_the_golden_message_of_the_latest_version(name: str) -> None:
    golden = golden_file(name, published_schemas.versions(name)[-1]).read_bytes()
    assert encode_single_object(name, to_avro(EXAMPLES[name])) == golden


def test_golden_messages_belong_to_published_versions() -> None:
    assert sorted(GOLDEN.glob("*.avro-single")) == sorted(golden_file(*one) for one in VERSIONS)


def test_unknown_links_and_no_links_are_distinguished() -> None:
    decoder = Decoder("CrawlEvent")
    for links in (None, ()):
        event = CrawlEvent(url="https://example.org/", links=links)
        read = from_avro(CrawlEvent, decoder.decode(encode_single_object("CrawlEvent", to_avro(event))))
        assert read == event and read.links == links


def test_an_announcement_is_read_as_an_announcement() -> None:
    event = CrawlEvent(url="https://example.org/", announce=True)
    assert to_avro(event)["kind"] == "ANNOUNCE"
    assert from_avro(CrawlEvent, to_avro(event)) == event


def test_times_may_be_milliseconds_or_datetimes() -> None:
    values = to_avro(EXAMPLES["CrawlEvent"])
    assert values["fetched_at"] == TIME_MS
    moment = datetime(2002, 11, 27, 0, 0, 0, 123_000, tzinfo=timezone.utc)
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)
    read = from_avro(CrawlEvent, values | {"fetched_at": moment, "last_modified": before_1970})
    assert read == EXAMPLES["CrawlEvent"]
    with pytest.raises(TypeError):
        from_avro(CrawlEvent, values | {"fetched_at": moment.replace(tzinfo=None)})


def test_records_are_read_from_avro_files_of_other_writers() -> None:
    file = BytesIO()
    for name, example in EXAMPLES.items():
        file.seek(0)
        fastavro.writer(file, published_schemas.schema(name), [to_avro(example)])
        file.truncate()
        file.seek(0)
        assert [
            from_avro(RECORDS[name], values) for values in fastavro.reader(file, published_schemas.schema(name))
        ] == [example]


def values_of(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a schema allows and a record can contain."""
    if isinstance(schema, list):
        return st.one_of([values_of(branch, named) for branch in schema])
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: field_values(field, named) for field in schema["fields"]})
    if kind == "array":
        return st.lists(values_of(schema["items"], named), max_size=4)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "double": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        "bytes": st.binary(max_size=20),
    }[kind]


def field_values(field: dict[str, Any], named: dict[str, Any]) -> st.SearchStrategy[Any]:
    if field["name"] == "reason":
        return st.sampled_from([reason.value for reason in Reason])
    if "hexadecimal" in field["doc"]:
        return st.integers(0, 2**64 - 1).map("{:016x}".format)
    return values_of(field["type"], named)


named_values = st.sampled_from(published_schemas.names()).flatmap(
    lambda name: st.tuples(st.just(name), values_of(published_schemas.schema(name), {}))
)
schema_ids = st.integers(0, 2**32 - 1)


@given(named_values)
def test_records_convert_to_values_and_back(named: tuple[str, dict[str, Any]]) -> None:
    name, values = named
    record = from_avro(RECORDS[name], values)
    assert to_avro(record) == values
    assert type(record) is RECORDS[name]


@given(named_values, schema_ids)
def test_framed_messages_are_read_back(named: tuple[str, dict[str, Any]], schema_id: int) -> None:
    name, values = named
    single, confluent = encode_single_object(name, values), encode_behind(confluent_prefix(schema_id), name, values)
    assert (frame_kind(single), frame_kind(confluent)) == (FrameKind.SINGLE_OBJECT, FrameKind.CONFLUENT)
    assert single[:10] == b"\xc3\x01" + published_schemas.fingerprint(name).to_bytes(8, "little")
    assert confluent[:5] == b"\x00" + schema_id.to_bytes(4, "big")
    assert single[10:] == confluent[5:]
    assert Decoder(name).decode(single) == values
    assert (
        Decoder(name, {Frame(FrameKind.CONFLUENT, schema_id): published_schemas.schema(name)}.get).decode(confluent)
        == values
    )


def any_writer_of(name: str) -> Any:
    """Return a lookup that has every Confluent id, so that malformed bodies are decoded."""
    return lambda frame: (
        published_writer(frame) or (published_schemas.schema(name) if frame.kind is FrameKind.CONFLUENT else None)
    )


def refused(decoder: Decoder, message: bytes) -> str | None:
    """Return the text of the refusal, or None if the message was read; any other error fails the test."""
    try:
        decoder.decode(message)
    except FramingRefused as refusal:
        assert 0 < len(str(refusal)) < 400 and "\n" not in str(refusal)
        return str(refusal)
    return None


@given(
    st.sampled_from(published_schemas.names()), st.sampled_from(["", "single", "confluent"]), st.binary(max_size=200)
)
def test_any_bytes_are_read_or_refused(name: str, frame: str, body: bytes) -> None:
    fingerprint = published_schemas.fingerprint(name).to_bytes(8, "little")
    start = {"": b"", "single": b"\xc3\x01" + fingerprint, "confluent": b"\x00\x00\x00\x00\x01"}[frame]
    refused(Decoder(name, any_writer_of(name)), start + body)


@given(named_values, st.data())
def test_a_message_with_a_changed_byte_is_read_or_refused(
    named: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    message = bytearray(encode_single_object(*named))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    refused(Decoder(named[0], any_writer_of(named[0])), bytes(message))


@given(named_values, st.data(), st.booleans())
def test_a_message_that_is_too_short_or_too_long_is_refused(
    named: tuple[str, dict[str, Any]], data: st.DataObject, single: bool
) -> None:
    name, values = named
    message = encode_single_object(name, values) if single else encode_behind(confluent_prefix(1), name, values)
    decoder = Decoder(name, any_writer_of(name))
    assert refused(decoder, message[: data.draw(st.integers(0, len(message) - 1))])
    assert refused(decoder, message + data.draw(st.binary(min_size=1, max_size=9)))


EVENT_MESSAGE = encode_single_object("CrawlEvent", to_avro(EXAMPLES["CrawlEvent"]))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", "this CrawlEvent begins with nothing: frame it as"),
        (b'{"url": "https://example.org/"}', "this CrawlEvent begins with 7b 22: frame it as"),
        (b"\xc3\x01\x00", "this CrawlEvent breaks off within its first 10 bytes"),
        (b"\x00\x00", "this CrawlEvent breaks off within its first 5 bytes"),
        (b"\xc3\x01" + bytes(8), "was written with fingerprint 0000000000000000, which is not known here: publish"),
        (
            b"\x00\x00\x00\x00\x09\x00",
            "was written with schema id 9, which is not known here: name its schema registry with --registry",
        ),
        (EVENT_MESSAGE[:-1], "breaks off or is damaged near byte"),
        (EVENT_MESSAGE + b"\x00", "ends at byte"),
        (encode_single_object("Reject", to_avro(EXAMPLES["Reject"])), "not record opicflow.CrawlEvent): write with"),
    ],
)
def test_a_refusal_names_the_problem_the_position_and_the_remedy(message: bytes, expected: str) -> None:
    message_text = refused(Decoder("CrawlEvent"), message)
    assert message_text and expected in message_text
    assert message_text == refused(Decoder("CrawlEvent"), message), "the same in every replay"


def test_a_message_above_the_limit_is_neither_written_nor_read() -> None:
    reject = to_avro(EXAMPLES["Reject"]) | {"bytes": bytes(MOST_MESSAGE_BYTES)}
    with pytest.raises(FramingRefused, match="send at most 67108864"):
        encode_single_object("Reject", reject)
    with pytest.raises(FramingRefused, match="send at most 67108864"):
        Decoder("Reject").decode(EVENT_MESSAGE[:10].ljust(MOST_MESSAGE_BYTES + 1, b"\x00"))


@pytest.mark.parametrize("schema", [{}, {"type": "record"}, {"type": "nothing"}, "nothing", [], 7])
def test_an_invalid_writer_schema_is_refused(schema: Any) -> None:
    assert refused(Decoder("Reject", lambda _: schema), b"\x00\x00\x00\x00\x01\x00")


def test_a_schema_registry_is_called_once_for_each_id_and_its_errors_are_raised() -> None:
    requested = []

    def writer_of(frame: Frame) -> published_schemas.Schema:
        requested.append(frame.number)
        if frame.number == 3:
            raise ConnectionError("the registry does not answer")
        return published_schemas.schema("Reject")

    decoder = Decoder("Reject", writer_of)
    for schema_id in (1, 2, 1, 2):
        decoder.decode(encode_behind(confluent_prefix(schema_id), "Reject", to_avro(EXAMPLES["Reject"])))
    assert requested == [1, 2]
    with pytest.raises(ConnectionError):
        decoder.decode(b"\x00\x00\x00\x00\x03")


def test_times_beyond_the_calendar_are_read() -> None:
    event = CrawlEvent(url="https://example.org/", fetched_at_ms=2**63 - 1, last_modified_ms=-(2**63))
    assert (
        from_avro(CrawlEvent, Decoder("CrawlEvent").decode(encode_single_object("CrawlEvent", to_avro(event)))) == event
    )


if __name__ == "__main__":
    write_golden()
