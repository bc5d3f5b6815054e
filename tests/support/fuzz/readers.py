"""The rules for any input of each reader: refusals in one line only, and nothing lost."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.grade_reader import read_grades
from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.connectors.files.log_reader import FileRange, _of_lines, format_of, read
from opicflow.connectors.files.opening import Block, expand, open_bytes
from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.connectors.files.vertices import VertexFile, read_numbered_edges
from opicflow.connectors.kafka.client.fetches import PartitionColumns
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.connectors.kafka.record_reader import STREAMS, _arrived
from opicflow.pipelines.ledger import (
    HISTORIES,
    CrawlEntry,
    DomainLimits,
    Fate,
    Kind,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.replay.event_clock import answering
from opicflow.pipelines.stages.decoded_batch import RoutedRows, route_rows, urls_of
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas import published_schemas
from opicflow.schemas.crawl_events import CrawlEvent
from opicflow.schemas.framing import Decoder, encode_single_object, published_writer
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds
from opicflow.schemas.policy_json import PolicyRefused, policies_of
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import RECORDS, Policy
from opicflow.schemas.urls import Canonicaliser
from support import archives
from support.archives import gz
from support.canonical_urls import RULES, form_of, in_a_batch
from support.encoded import check_messages
from support.event_rows import json_without_the_kernel, rows_of
from support.fuzz import corpus, stored_inputs, written_folders
from support.fuzz.mutations import json_text, spoilt
from support.fuzz.worker import Counts, FuzzedReader
from support.hostile_values import altered, one_line
from support.logs import json_line
from support.paths import TOP
from support.same_bytes import bytes_of, restored


def _counts(decoded: Decoded) -> Counts:
    for reject in decoded.rejects:
        assert reject.detail and "\n" not in reject.detail, ascii(reject.detail)
    unlisted = sum((decoded.unlisted or {}).values())
    return Counts(len(decoded.events), len(decoded.rejects) + unlisted)


def _sum(counts: list[Counts]) -> Counts:
    return Counts(sum(one.accepted for one in counts), sum(one.rejected for one in counts))


def _file(data: bytes, ending: str = "") -> str:
    path = _folder() / f"input{ending}"
    path.write_bytes(data)
    return str(path)


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp())


# -- crawl logs


def _make_json_line(draw: random.Random) -> bytes:
    values = corpus.event_values(draw)
    how = draw.random()
    if how < 0.6:
        values = altered(values, draw)
    line = json_text(values, draw).encode("utf-8", "surrogatepass")
    if how > 0.4 and draw.random() < 0.6:
        line = spoilt(line, draw)
    if draw.random() < 0.01:
        line = b"[" * draw.choice([50, 70, 1100]) + line
    return line


def _make_json_lines(draw: random.Random) -> bytes:
    lines = [_make_json_line(draw) for _ in range(draw.choice([1, 1, 2, 4]))]
    return draw.choice([b"\n", b"\n", b"\r\n", b"\n\n"]).join(lines) + draw.choice([b"\n", b""])


def _check_json_lines(data: bytes, draw: random.Random) -> Counts:
    """The kernel and orjson agree on every line, which is an event or a reject."""
    batch = _of_lines(7, 7 + len(data), data, "f")
    decoded = batch.decode()
    check_messages(batch)
    rows, rejects = json_without_the_kernel(data, 7)
    assert rows_of(decoded.events) == rows
    assert [(reject.reason, reject.offset, reject.bytes) for reject in decoded.rejects] == rejects
    counts = _counts(decoded)
    assert sum(counts) == sum(bool(line.strip(b" \t\r")) for line in data.split(b"\n"))
    return counts


def _make_urls(draw: random.Random) -> bytes:
    urls = [corpus.url(draw).encode("utf-8", "surrogatepass") for _ in range(4)]
    return b"\n".join(spoilt(url, draw).replace(b"\n", b"") if draw.random() < 0.5 else url for url in urls)


def _check_urls(data: bytes, draw: random.Random) -> Counts:
    """A batch of URLs has the forms that the library has one by one."""
    rules = draw.choice(RULES)
    given = data.split(b"\n")
    bases = [draw.randrange(row + 1) for row in range(len(given))]
    expected: list[bytes | None] = []
    for row, url in enumerate(given):
        base = None if bases[row] == row else expected[bases[row]]
        expected.append(form_of(url, base, rules))
    assert in_a_batch(list(given), bases, rules) == expected
    accepted = sum(form is not None for form in expected)
    return Counts(accepted, len(given) - accepted)


def _check_log(name: str, format: Format) -> Counts:
    """Columns and items have the same events and rejects, in the order of the file; ranges have no holes."""
    found, end = [], 0
    for batch in read(FileRange("f", name, format)):
        assert batch.start == end < batch.end, (batch.start, end, batch.end)
        end = batch.end
        decoded = batch.decode()
        check_messages(batch)
        counts = _counts(decoded)
        offsets = decoded.events.offset
        assert (np.diff(offsets) > 0).all()
        items = list(batch.items())
        assert len(items) == sum(counts), (len(items), counts)
        assert all(one[0] <= two[0] for one, two in pairwise(items))
        # Text of Avro that is not UTF-8 is found when URLs are checked, so it may be an event in columns only.
        events = [offset for offset, item in items if isinstance(item, CrawlEvent)]
        assert events == offsets.tolist() if format is not Format.AVRO else set(events) <= set(offsets.tolist())
        urls_of(decoded, Canonicaliser(RULES[0]))
        found.append(counts)
    return _sum(found)


def _make_avro(draw: random.Random) -> bytes:
    written = corpus.event_schema(draw)
    codec = draw.choice(["null", "null", "deflate", "zstandard", "bzip2", "xz"])
    blocks = []
    for _ in range(draw.choice([1, 1, 2])):
        bodies = [corpus.event_body(draw) for _ in range(draw.choice([1, 2, 5]))]
        body = b"".join(bodies)
        if draw.random() < 0.5:
            body = spoilt(body, draw)
        records = draw.choice([len(bodies)] * 8 + [0, -1, len(bodies) + 1, 1 << 40])
        blocks.append(corpus.avro_block(records, corpus.CODECS[codec](body)))
    data = corpus.avro_head(written, codec) + b"".join(blocks)
    return spoilt(data, draw) if draw.random() < 0.4 else data


def _make_warc(draw: random.Random) -> bytes:
    data = b"".join(corpus.warc_record(draw) for _ in range(draw.choice([1, 2, 3])))
    if draw.random() < 0.7:
        data = spoilt(data, draw, [corpus.warc_record(draw)])
    return corpus.compressed(data, draw) if draw.random() < 0.2 else data


def _make_wat(draw: random.Random) -> bytes:
    data = b"".join(corpus.wat_record(draw) for _ in range(draw.choice([1, 2])))
    return spoilt(data, draw) if draw.random() < 0.5 else data


def _make_edges(draw: random.Random) -> bytes:
    data = corpus.edges(draw)
    return spoilt(data, draw) if draw.random() < 0.6 else data


def _checks_archive(kind: str, format: Format) -> Callable[[bytes, random.Random], Counts]:
    def check(data: bytes, draw: random.Random) -> Counts:
        whole = archives.read(data, kind)
        if draw.random() < 0.3:
            assert archives.read(data, kind, block_bytes=draw.choice([1, 7, 64])) == whole
        return _check_log(_file(data), format)

    return check


_CRAWLER_LOGS = {
    **dict.fromkeys(("nutch-crawldb.csv", "scrapy-items.csv", "screaming-frog-internal.csv"), Format.CSV),
    **dict.fromkeys(("crawlee-requests.json", "crawlee-python.json", "scrapy-items.json"), Format.JSON),
    **dict.fromkeys(("nutch-segment.txt", "nutch-crawldb.txt"), Format.NUTCH_SEGMENT),
    "arc-pages.arc": Format.ARC,
}
"""How records lie in the logs of other crawlers; all others are lines."""


@cache
def _crawler_logs() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((TOP / "examples" / "crawlers").iterdir())}


def _make_crawler_log(draw: random.Random) -> bytes:
    """Return the name of a log, a line break, and the log, which may be changed."""
    name = draw.choice(list(_crawler_logs()))
    data = _crawler_logs()[name]
    return name.encode() + b"\n" + (spoilt(data, draw) if draw.random() < 0.9 else data)


def _check_crawler_log(data: bytes, draw: random.Random) -> Counts:
    """Blocks of any size have the same items."""
    name, _, log = data.partition(b"\n")
    kind = _CRAWLER_LOGS.get(name.decode(), Format.JSONL)
    file = _file(log)
    counts = _check_log(file, kind)
    whole, usual = _items(file, kind), log_reader.BATCH_BYTES
    log_reader.BATCH_BYTES = draw.choice([16, 100, 1000])
    try:
        assert _items(file, kind) == whole
    finally:
        log_reader.BATCH_BYTES = usual
    return counts


def _make_compressed(draw: random.Random) -> bytes:
    inner = draw.choice([_make_json_lines, _make_edges, _make_avro, _make_warc])(draw) * draw.choice([1, 1, 20])
    return spoilt(corpus.compressed(inner, draw), draw)


def _check_compressed(data: bytes, draw: random.Random) -> Counts:
    """The content and the damage do not depend on the size of blocks; a reader of the detected format takes them."""

    def content(block_bytes: int) -> list[Any]:
        pieces: list[Any] = []
        for piece in archives.blocks(data, block_bytes=block_bytes):
            if isinstance(piece, Block) and pieces and isinstance(pieces[-1][1], bytes):
                assert pieces[-1][0] + len(pieces[-1][1]) == piece.offset
                pieces[-1][1] += piece.data
            else:
                pieces.append([piece.offset, piece.data if isinstance(piece, Block) else piece])
        return pieces

    whole, size = content(1 << 16), draw.choice([1, 100, 5000])
    length = sum(len(piece) for _, piece in whole if isinstance(piece, bytes))
    assert whole == content(max(size, length // 1000))  # thousands of blocks cost more than they show
    return _check_any_log(_file(data))


_LOGS = ["archive/a.warc", "archive/a.warc.gz", "archive/b.warc.gz"]
_LISTS = ["pages/pages.jsonl", "pages/extraPages.jsonl"]
_PACKINGS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def _make_wacz(draw: random.Random) -> bytes:
    """Return a WACZ file with archives, or with the lists of pages of a crawl, which may be changed."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # two members may have one name
        for name in draw.choices(draw.choice([_LOGS, _LISTS]), k=draw.choice([1, 1, 2])):
            if name in _LISTS:
                data = _crawler_logs()["browsertrix-pages.jsonl"]
                data = spoilt(data, draw) if draw.random() < 0.5 else data
            else:
                data = (gz if name.endswith(".gz") else bytes)(_make_warc(draw))
            archive.writestr(zipfile.ZipInfo(name), data, draw.choice(_PACKINGS))
    data = file.getvalue()
    if draw.random() < 0.3:
        return data
    end = data.rindex(b"PK\5\6")  # the directory is short, and names all that is read
    directory = int.from_bytes(data[end + 16 : end + 20], "little")
    return data[:directory] + spoilt(data[directory:], draw) if draw.random() < 0.5 else spoilt(data, draw)


def _check_wacz(data: bytes, draw: random.Random) -> Counts:
    """A member has the items of a file with the same bytes, also where reading continues within it."""
    Path(_file(b"", ".wacz")).unlink()  # so that this one is another file
    counts = []
    for name in expand([_file(data, ".wacz")]):
        counts.append(_check_any_log(name))
        kind = format_of(name)
        if kind is not None:
            with open_bytes(name) as member:
                items = _items(_file(member.read()), kind)
            first = draw.randrange(len(items) + 1)
            start = items[first][0] if first < len(items) else 0
            assert _items(name, kind, start) == (items[first:] if start else items)
    return _sum(counts)


def _check_any_log(name: str) -> Counts:
    found = format_of(name)
    return Counts() if found is None else _check_log(name, found)


def _items(name: str, format: Format, start: int = 0) -> list[Any]:
    return [item for batch in read(FileRange("f", name, format, start)) for item in batch.items()]


# -- messages


def _framed(draw: random.Random) -> bytes:
    mark = published_schemas.fingerprint("CrawlEvent").to_bytes(8, "little")
    if draw.random() < 0.05:
        mark = draw.randbytes(8)
    body = corpus.event_body(draw)
    if draw.random() < 0.6:
        body = spoilt(body, draw)
    return b"\xc3\x01" + mark + body


def _make_messages(draw: random.Random) -> bytes:
    values: list[bytes | None] = []
    for _ in range(draw.choice([1, 2, 5])):
        how = draw.random()
        if how < 0.65:
            values.append(_framed(draw))
        elif how < 0.95:
            values.append(_make_json_line(draw))
        else:
            values.append(draw.choice([None, b"", b"\n", b"\0", b"\xc3\x01", b"\0\0\0\0\x05abc", draw.randbytes(9)]))
    return pickle.dumps(values)


def _check_messages(data: bytes, draw: random.Random) -> Counts:
    """Each message is an event or a reject, the same in a batch and alone."""
    values = pickle.loads(data)

    def outcome(rows: list[tuple[int, int, bytes | None]]) -> tuple[list[Any], list[Any], Counts]:
        decoded = decode_messages(MessageBatch.of(rows[0][0], rows), "f", published_writer)
        rejects = [(reject.offset, reject.reason, reject.bytes) for reject in decoded.rejects]
        return rows_of(decoded.events), rejects, _counts(decoded)

    rows = [(3 + 2 * row, 5, value) for row, value in enumerate(values)]
    events, rejects, counts = outcome(rows)
    assert sum(counts) == len(values)
    alone = [outcome([row]) for row in rows]
    assert events == [event for one in alone for event in one[0]]
    assert rejects == [reject for one in alone for reject in one[1]]
    return counts


@cache
def _decoder(name: str) -> Decoder:
    return Decoder(name)


_NAMES = [*sorted(set(STREAMS.values()) - {"Reject"}), "Policy"]


def _make_record(draw: random.Random) -> bytes:
    name = draw.choice(_NAMES)
    if name == "Policy" and draw.random() < 0.4:
        return _make_policies(draw)
    values = _values_of(schema(name), draw, _named_types(schema(name)))
    with suppress(Exception):
        data = encode_single_object(name, values)
        return spoilt(data, draw) if draw.random() < 0.6 else data
    return b""


def _named_types(written: Any) -> dict[str, Any]:
    """Return all types of a schema that have a name."""
    found = {written["name"]: written} if isinstance(written, dict) and "symbols" in written else {}
    if isinstance(written, dict) and "fields" in written:
        found[written["name"]] = written
    for part in written.values() if isinstance(written, dict) else written if isinstance(written, list) else []:
        found |= _named_types(part)
    return found


def _values_of(written: Any, draw: random.Random, named: dict[str, Any]) -> Any:
    """Return any value of an Avro schema."""
    if isinstance(written, list):
        return _values_of(draw.choice(written), draw, named)
    kind = written["type"] if isinstance(written, dict) else written
    if kind == "record":
        return {field["name"]: _values_of(field["type"], draw, named) for field in written["fields"]}
    if kind == "array":
        return [_values_of(written["items"], draw, named) for _ in range(draw.randrange(3))]
    if kind == "map":
        return {str(number): _values_of(written["values"], draw, named) for number in range(draw.randrange(3))}
    if kind == "enum":
        return draw.choice(written["symbols"])
    if kind == "fixed":
        return draw.randbytes(written["size"])
    plain: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "boolean": lambda: draw.random() < 0.5,
        "int": lambda: draw.choice([0, 1, -1, 2**31 - 1]),
        "long": lambda: draw.choice(
            [0, 1, 1_577_934_245_000, 1_577_934_245_000, 1_577_934_245_000, draw.choice([-1, 2**62])]
        ),
        "float": lambda: draw.choice([0.5, float("nan")]),
        "double": lambda: draw.choice([0.5, 0.25, 1.0, 0.0, draw.choice([1e300, float("nan"), float("inf")])]),
        "string": lambda: draw.choice(["00000000000000ab", "00000000000000ab", "", "x", corpus.url(draw)]),
        "bytes": lambda: draw.randbytes(3),
    }
    return plain[kind]() if kind in plain else _values_of(named.get(kind, kind), draw, named)


class _Message(NamedTuple):
    key: bytes
    value: bytes
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    serialized_value_size: int = 0


def _check_record(data: bytes, draw: random.Random) -> Counts:
    """A message is a record, or broken for a reason in one line."""
    counts = []
    for name in _NAMES if draw.random() < 0.05 else [_name_in(data)]:
        arrived = _arrived(_Message(b"k", data), _decoder(name), RECORDS[name])
        assert (arrived.record is None) == bool(arrived.broken)
        assert "\n" not in arrived.broken
        counts.append(Counts(int(not arrived.broken), int(bool(arrived.broken))))
    return _sum(counts)


def _name_in(data: bytes) -> str:
    found = (
        published_schemas.with_fingerprint(int.from_bytes(data[2:10], "little")) if data[:2] == b"\xc3\x01" else None
    )
    return found.name if found and found.name in _NAMES else "Policy"


_PARTITION = TopicPartition("events", 3)
_HEADER_BYTES, _CRC_AT = 61, 17


def _make_batches(draw: random.Random) -> bytes:
    first, batches = 0, []
    for _ in range(draw.choice([1, 1, 2])):
        builder = DefaultRecordBatchBuilder(2, draw.choice([0, 0, 1, 3, 4]), False, -1, -1, -1, 1 << 20)
        rows = draw.choice([1, 3, 4, 9])
        for row in range(rows):
            key = draw.choice([None, b"", b"key"])
            value = draw.choice([None, b"", _make_json_line(draw)[:300]])
            builder.append(row, 1_577_934_245_000 + row, key, value, draw.choice([[], [("h", b"v"), ("n", None)]]))
        data = bytearray(builder.build())
        data[:8] = first.to_bytes(8, "big")
        first += rows
        if draw.random() < 0.8:
            data = bytearray(_spoilt_batch(bytes(data), draw))
        batches.append(bytes(data))
    data = b"".join(batches)
    return spoilt(data, draw) if draw.random() < 0.2 else data


def _spoilt_batch(data: bytes, draw: random.Random) -> bytes:
    """A batch whose records or header were changed, with the right length and checksum."""
    head, body = data[:_HEADER_BYTES], data[_HEADER_BYTES:]
    if draw.random() < 0.3:
        changed = bytearray(head)
        at, size = draw.choice([(21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4), (16, 1)])
        number = draw.choice([0, 1, -1, 2, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1])
        changed[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
        head = bytes(changed)
    else:
        body = spoilt(body, draw)
    length = _HEADER_BYTES + len(body) - 12
    whole = bytearray(head[:8] + struct.pack(">i", length) + head[12:] + body)
    whole[_CRC_AT : _CRC_AT + 4] = calc_crc32c(bytes(whole[_CRC_AT + 4 :])).to_bytes(4, "big")
    return bytes(whole)


def _check_batches(data: bytes, draw: random.Random) -> Counts:
    """Batches are unpacked, or corrupt; offsets ascend."""
    records = MemoryRecords(data)
    partition = PartitionColumns(0, _PARTITION, records)
    taken = 0
    try:
        while partition:
            found = partition.take(draw.choice([1, 3, 1000]))
            taken += len(found)
            for record in (one for part in found for one in part.records()):
                assert len(record.key or b"") == max(record.serialized_key_size, 0)
                assert len(record.value or b"") == max(record.serialized_value_size, 0)
    except KafkaError:
        return Counts(taken, 1)
    return Counts(taken, 0)


# -- tables and policies


def _make_policies(draw: random.Random) -> bytes:
    values = corpus.policy_values(draw)
    if draw.random() < 0.6:
        values = altered(values, draw)
    text = json_text(values, draw).encode("utf-8", "surrogatepass")
    return spoilt(text, draw) if draw.random() < 0.3 else text


def _check_policies(data: bytes, draw: random.Random) -> Counts:
    return Counts(len(policies_of(data.split(b"\n"), "f")))


def _spoils(make: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    def made(draw: random.Random) -> bytes:
        data = make(draw)
        if draw.random() < 0.7:
            data = spoilt(data, draw)
        return corpus.compressed(data, draw) if draw.random() < 0.05 else data

    return made


def _check_ranks(data: bytes, draw: random.Random) -> Counts:
    found = read_ranks(_file(data), "importance")
    assert found.rows >= len(found.pages) > 0 and (np.diff(found.pages.astype(np.float64)) >= 0).all()
    return Counts(found.rows)


def _check_grades(data: bytes, draw: random.Random) -> Counts:
    return Counts(len(read_grades(_file(data)).pages))


def _check_vertices(data: bytes, draw: random.Random) -> Counts:
    return Counts(sum(len(some.numbers) for some in VertexFile(_file(data)).read()))


def _check_numbered_edges(data: bytes, draw: random.Random) -> Counts:
    return Counts(sum(len(some.sources) for some in read_numbered_edges(_file(data))))


# -- decode, route, ledger


def _make_crawl(draw: random.Random) -> bytes:
    lines = []
    for _ in range(draw.choice([3, 8, 20])):
        values = corpus.event_values(draw)
        line = json.dumps(altered(values, draw) if draw.random() < 0.2 else values).encode()
        lines.append(spoilt(line, draw).replace(b"\n", b"") if draw.random() < 0.1 else line)
    return b"\n".join(lines) + b"\n"


def _check_crawl(data: bytes, draw: random.Random) -> Counts:
    """Every line is counted once, the ledger's books balance to the unit, and batches of any size give its bytes."""
    config = _config(draw.randrange(len(_CONFIGS)))
    lines = data.splitlines(keepends=True) if data.count(b"\r") == 0 else [data]
    whole = _applied([data], config)
    parts, begin = [], 0
    while begin < len(lines):
        end = min(len(lines), begin + draw.choice([1, 2, 5]))
        parts.append(b"".join(lines[begin:end]))
        begin = end
    cut = _applied(parts, config)
    assert whole[0] == cut[0], "other counts with other batches"
    assert whole[1] == cut[1], "another ledger with other batches"
    return Counts(whole[0]["visits"] + whole[0]["announcements"], whole[0]["rejects"])


_CONFIGS = [
    (name, remember, limited)
    for name in ("interpolation", "variable", "certified")
    for remember in (False, True)
    for limited in (False, True)
]


@cache
def _config(number: int) -> LedgerConfig:
    name, remember, limited = _CONFIGS[number]
    limits = DomainLimits(3, 2, 0.1 if name == "certified" else None) if limited else DomainLimits()
    return LedgerConfig(history=HISTORIES[name](), remember_links=remember or name == "certified", domains=limits)


_FIRST_SECOND = 18_262 * 86_400


def _routed(lines: bytes, at: int, rules: Rules, seen: Seen) -> tuple[RoutedRows, LogEntry]:
    """Route lines of JSON that begin at this offset. Returns the rows, and their entry of the log."""
    decoded = decode_jsonl(lines, "f", at)
    routed = route_rows(decoded, urls_of(decoded, Canonicaliser(rules.urls, rules.page_ids)), "f", rules, seen)
    entry = CrawlEntry("f", LogPosition(at, 0), LogPosition(at + len(lines), 0), routed.items)
    return routed, decode_entry(encode_entry(entry))


def _applied(parts: list[bytes], config: LedgerConfig) -> tuple[dict[str, int], list[bytes]]:
    rules, seen, ledger = Rules(), Seen(), Ledger(config)
    ledger.apply(TickEntry(_FIRST_SECOND))
    totals = dict.fromkeys(["events_read", "visits", "announcements", "rejects", "duplicates"], 0)
    at = 0
    for part in parts:
        routed, entry = _routed(part, at, rules, seen)
        applied = ledger.apply(entry)
        at += len(part)
        assert ledger.mark("f") == LogPosition(at, 0)
        answered, collided = answering(routed.items), applied.fates == Fate.COLLIDED
        duplicates = int((answered & (applied.fates == Fate.DUPLICATE)).sum())
        totals["events_read"] += routed.counts["events_read"]
        totals["visits"] += routed.counts.get("visits", 0) - duplicates - int((answered & collided).sum())
        announced = collided & (routed.items.kind == Kind.ANNOUNCEMENT)
        totals["announcements"] += routed.counts.get("announcements", 0) - int(announced.sum())
        totals["duplicates"] += duplicates
        totals["rejects"] += int((answered & collided).sum()) + int(announced.sum())
        totals["rejects"] += sum(routed.reasons.values())
    assert totals["events_read"] == sum(totals.values()) - totals["events_read"], totals
    ledger.audit()
    ledger.apply(TickEntry(_FIRST_SECOND + 91 * 3_600))
    balance = ledger.audit()
    assert balance.drift == 0, balance
    return totals, [chunk.data for chunk in ledger.snapshot()]


def _make_stated_crawl(draw: random.Random) -> bytes:
    """Return the hours of a crawl: how many pass, the lines of its log, and policies, a line each."""
    hours = []
    for _ in range(draw.choice([2, 3, 5])):
        lines = [json.dumps(corpus.policy_values(draw)).encode() for _ in range(draw.choice([0, 1, 2, 4]))]
        if draw.random() < 0.3:
            lines += _make_policies(draw).splitlines()
        log = b"".join(json_line(corpus.event(draw)) for _ in range(draw.choice([0, 2, 5])))
        hours.append((draw.choice([0, 1, 1, 5, 24, 40 * 24]), log, lines))
    return pickle.dumps(hours)


def _check_stated_crawl(data: bytes, draw: random.Random) -> Counts:
    """Policies hold or are refused in one line; a restart changes nothing; forgotten pages stay unknown."""
    rules, seen = Rules(), Seen()
    config = replace(_config(draw.randrange(len(_CONFIGS))), refresh=RefreshConfig(bandwidth_per_day=50.0))
    ledgers, hours = [Ledger(config)], pickle.loads(data)
    restart, refused, second, at = draw.randrange(2 * len(hours)), 0, _FIRST_SECOND, 0
    stated: list[Policy] = []
    for number, (passed, lines, given) in enumerate(hours):
        second += 3_600 * passed
        policies: list[Policy] = []
        for line in given:
            try:
                policies += policies_of([line], "f")
            except PolicyRefused as problem:
                one_line(problem)
                refused += 1
        if number == restart:
            ledgers.append(restored(ledgers[0]))
        entry = PolicyEntry("p", LogPosition(number, 0), LogPosition(number + 1, 0), policies=tuple(policies))
        crawled = [_routed(lines, at, rules, seen)[1]] if lines else []
        at += len(lines)
        for ledger in ledgers:
            *_, applied = map(ledger.apply, [TickEntry(second), *crawled, decode_entry(encode_entry(entry))])
            ledger.plan(10, 0.1)
        for _, why in applied.refused:
            one_line(PolicyRefused(why))
        refused += len(applied.refused)
        stated += (Counter(policies) - Counter(policy for policy, _ in applied.refused)).elements()
    assert restart >= len(hours) or bytes_of(ledgers[0]) == bytes_of(ledgers[1]), "another ledger after a restart"
    assert ledgers[0].audit().drift == 0
    known = ledgers[0].estimate(PageIds().of_all(corpus.PAGES)).known
    for policy in stated:
        if policy.forget and policy.expires_at_ms is None:
            gone = [_matches(policy, url) for url in corpus.PAGES]
            assert not known[gone].any(), policy
    return Counts(len(stated), refused)


def _matches(policy: Policy, url: str) -> bool:
    """Whether a URL is that of a policy, or one of its host or prefix."""
    prefix = policy.url_prefix or f"{url.partition('://')[0]}://{policy.host}/"
    return url == policy.url if policy.url is not None else url.startswith(prefix)


READERS: dict[str, FuzzedReader] = {
    "json-lines": FuzzedReader(_make_json_lines, _check_json_lines, 90),
    "urls": FuzzedReader(_make_urls, _check_urls, 90),
    "avro": FuzzedReader(_make_avro, lambda data, _: _check_log(_file(data), Format.AVRO), 200),
    "warc": FuzzedReader(_make_warc, _checks_archive("warc", Format.WARC), 25),
    "wat": FuzzedReader(_make_wat, _checks_archive("wat", Format.WAT), 20),
    "zip-members": FuzzedReader(_make_wacz, _check_wacz, 200),
    "crawler-logs": FuzzedReader(_make_crawler_log, _check_crawler_log, 25),
    "edges": FuzzedReader(_make_edges, _checks_archive("edges", Format.EDGES), 20),
    "compressed": FuzzedReader(_make_compressed, _check_compressed, 12),
    "messages": FuzzedReader(_make_messages, _check_messages, 35),
    "records": FuzzedReader(_make_record, _check_record, 15),
    "record-batches": FuzzedReader(_make_batches, _check_batches, 15),
    "policies": FuzzedReader(_make_policies, _check_policies, 20),
    "policies-over-time": FuzzedReader(_make_stated_crawl, _check_stated_crawl, 200),
    "results": FuzzedReader(written_folders.make_result, written_folders.check_result, 200),
    "ranks": FuzzedReader(_spoils(corpus.ranks), _check_ranks, 20),
    "grades": FuzzedReader(_spoils(corpus.grades), _check_grades, 20),
    "vertices": FuzzedReader(_spoils(corpus.vertices), _check_vertices, 200),
    "numbered-edges": FuzzedReader(_spoils(corpus.numbered_edges), _check_numbered_edges, 20),
    "ledger": FuzzedReader(_make_crawl, _check_crawl, 200),
    "snapshots": FuzzedReader(stored_inputs.make_snapshot, stored_inputs.check_snapshot, 200),
    "packed-columns": FuzzedReader(stored_inputs.other_columns, stored_inputs.check_columns, 50),
    "entries": FuzzedReader(stored_inputs.other_entry, stored_inputs.check_entry, 200),
    "states": FuzzedReader(written_folders.make_state, written_folders.check_state, 20),
    "graphs": FuzzedReader(written_folders.make_graph, written_folders.check_graph, 30),
}
"""Every reader by its name."""
