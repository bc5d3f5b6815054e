"""A page made to stop a reader of WARC or WAT files costs what its bytes cost, and the next records are read."""

from __future__ import annotations

import encodings
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from opicflow.connectors.files import warc_records
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.html_links import (
    _MOST_SNIFFED_BYTES,
    MOST_JOINED_BYTES,
    MOST_JOINED_LINK_BYTES,
    decode_html,
)
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import Block, decompressed
from opicflow.connectors.files.warc import (
    _MOST_DATE_BYTES,
    ALWAYS_DECOMPRESSED_BYTES,
    MOST_CODINGS,
    MOST_EXPANSION,
    MOST_HEAD_BYTES,
    MOST_JSON_MARKS,
)
from opicflow.connectors.files.warc_records import EndFinder, read_fields
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, MOST_LINKS, CrawlEvent, Link, Reason, Reject
from opicflow.schemas.event_columns import CrawlEvents
from support import archives
from support.archives import metadata, page, record, response
from support.bounded import bounded

NEXT = "http://a.example/2"


def outcome(hostile: bytes, kind: str = "warc") -> tuple[CrawlEvent | None, Reason | None]:
    """The event or the reason of one record, read with limits; asserts that the record after it is read."""
    after = (
        page(2) if kind == "warc" else metadata({"Response-Message": {"Status": "404"}}, **{"WARC-Target-URI": NEXT})
    )
    first, second = bounded(lambda: [item for _, item in archives.read(hostile + after, kind, block_bytes=2 << 20)])
    assert isinstance(second, CrawlEvent) and second.url == NEXT
    return (first, None) if isinstance(first, CrawlEvent) else (None, first.reason)


def links(body: bytes, **fields: str) -> list[str]:
    event, reason = outcome(record(response(body, **fields)))
    assert reason is None and event is not None
    return [link.url for link in event.links or ()]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("&#" + "9" * 5000, "%EF%BF%BD"),
        ("&#" + "9" * 5000 + ";", "%EF%BF%BD"),
        ("&#x" + "f" * 5000 + ";", "%EF%BF%BD"),
        ("&#" + "0" * 5000 + "98;", "b"),
        ("&#x" + "0" * 5000 + "62;", "b"),
        ("&#1114112;", "%EF%BF%BD"),
        ("&#0;", "%EF%BF%BD"),
        ("&#98ff;", "bff;"),
        ("&#xg", "&#xg"),
    ],
)
def test_a_character_reference_may_have_any_number_of_digits(reference: str, expected: str) -> None:
    assert links(b'<a href="/%b">' % reference.encode()) == [f"http://a.example/{expected}"]


@pytest.mark.parametrize(
    "hostile",
    [b"<a " + b" " * 4_000_000, b"<a x" + b" " * 4_000_000, b"<a x=" + b"\n" * 4_000_000, b"<a " + b"/" * 4_000_000],
    ids=["blanks", "after a name", "after =", "slashes"],
)
def test_a_tag_of_megabytes_of_blanks_takes_linear_time(hostile: bytes) -> None:
    assert links(b"<a href=q>" + hostile) == ["http://a.example/q"]
    assert links(hostile + b"href=z><a href=q>")[-1] == "http://a.example/q"


@pytest.mark.parametrize("charset", ["charset" + " " * 60_000, "charset=" + " " * 60_000, "charset=" * 8_000])
def test_a_charset_is_looked_for_in_linear_time(charset: str) -> None:
    assert links(b"<a href=q>", Content_Type=f"text/html; {charset};") == ["http://a.example/q"]
    many = b"".join(record(response(b"", Content_Type=f"text/html; {charset[:1000]};")) for _ in range(2_000))
    assert bounded(lambda: len(archives.read(many))) == 2_000


def test_a_charset_is_looked_for_at_the_beginning_alone() -> None:
    text, meta = "я".encode("cp1251"), b"<meta charset=cp1251>"
    for before, is_found in ((_MOST_SNIFFED_BYTES - len(meta), True), (_MOST_SNIFFED_BYTES, False)):
        assert ("я" in decode_html(b" " * before + meta + text, None)) is is_found
        assert ("я" in decode_html(text, "text/html;" + " " * (before - 10) + "charset=cp1251")) is is_found


def test_python_keeps_no_names_of_unknown_charsets() -> None:
    kept = len(encodings._cache)  # type: ignore[attr-defined]
    for number in range(1000):
        decode_html(b"", f"text/html; charset=latin{number}x")
    assert len(encodings._cache) <= kept + 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_long_base_is_not_joined_to_every_link() -> None:
    for link in (b"<a href=q>", b"<a href=/q>"):
        for size in (MOST_JOINED_LINK_BYTES - 100, 4 << 20):
            base = b"<base href='/%b/'>" % (b"x" * size)
            assert outcome(record(response(base + link * 99_999))) == (None, Reason.TOO_LARGE)
    base_bytes = MOST_JOINED_LINK_BYTES // 2
    base = b"<base href='/%b/'>" % (b"x" * base_bytes)
    fitting = MOST_JOINED_BYTES // base_bytes - 100
    assert links(base + b"<a href=/q>" * fitting) == ["http://a.example/q"] * fitting


def test_a_long_link_is_unchanged() -> None:
    long = "x" * (MOST_JOINED_LINK_BYTES + 1)
    assert links(b"<a href='%b'><a href='%b'>" % (long.encode(), long[:-1].encode())) == [
        long,
        "http://a.example/" + long[:-1],
    ]


def test_a_fragment_does_not_make_a_link_too_long_for_its_base() -> None:
    long = b"#" + b"x" * MOST_JOINED_LINK_BYTES
    page = b"<base href='/other/'><a href='q%b'><a href='%b'><a href='p%b'>" % (long, long, long[1:] + long)
    assert links(page) == ["http://a.example/other/q", "http://a.example/other/", "p" + (long[1:] + long).decode()]


def test_a_page_may_expand_only_so_much() -> None:
    most_bytes = 3 * ALWAYS_DECOMPRESSED_BYTES
    packed = gzip.compress(bytes(most_bytes), mtime=0)
    assert MOST_EXPANSION * len(packed) < ALWAYS_DECOMPRESSED_BYTES
    assert outcome(record(response(packed, Content_Encoding="gzip"))) == (None, Reason.TOO_LARGE)
    small = gzip.compress(b"<a href=q>" + bytes(ALWAYS_DECOMPRESSED_BYTES - 10), mtime=0)
    assert links(small, Content_Encoding="gzip") == ["http://a.example/q"]


def test_a_page_has_few_content_encodings() -> None:
    body = b"<a href=q>"
    for _ in range(MOST_CODINGS):
        body = gzip.compress(body, mtime=0)
    fitting = ", ".join(["identity", "gzip"] * MOST_CODINGS)
    assert links(body, Content_Encoding=fitting) == ["http://a.example/q"]
    assert outcome(record(response(body, Content_Encoding=fitting + ",gzip"))) == (None, Reason.BAD_FIELD)


def test_a_record_has_a_short_head() -> None:
    def with_head(head_bytes: int) -> bytes:
        plain = record(response(b""), X="")
        rest = head_bytes - plain.index(b"\r\n\r\n") - 4 - len("X: \r\n")
        return record(response(b""), X="x" * rest)

    assert with_head(MOST_HEAD_BYTES).index(b"\r\n\r\n") == MOST_HEAD_BYTES - 4
    assert outcome(with_head(MOST_HEAD_BYTES))[1] is None
    assert outcome(with_head(MOST_HEAD_BYTES + 1)) == (None, Reason.CORRUPT)


def test_fields_of_a_response_are_read_from_a_short_head() -> None:
    for filler_bytes, expected in ((MOST_HEAD_BYTES // 2, True), (MOST_HEAD_BYTES, False)):
        event, _ = outcome(record(response(b"", X="x" * filler_bytes, Retry_After="77")))
        assert event is not None and (event.retry_after == 77) is expected


def test_a_record_that_may_hold_others_has_only_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(1000) + b"\r\n\r\n" + page(2)
    ends = EndFinder(lambda at: iter([Block(at, data[at:])]))
    assert ends.is_end(0, 1000)
    monkeypatch.setattr(warc_records, "MOST_SEARCHED_BYTES", 999)
    assert not ends.is_end(0, 1000) and ends.is_end(1, 1000)


def test_a_field_of_many_lines_is_joined_once() -> None:
    assert read_fields(b"\na: 1\n 2\n\t3\nb: 4") == {"a": "1 2 3", "b": "4"}


@pytest.mark.slow
def test_many_heads_with_absurd_lengths_search_the_next_record_once() -> None:
    hostile = b"WARC/1.0\nContent-Length: 99999999999\n\nx" * 20_000 + bytes(20 << 20) + b"\r\n\r\n"
    found = bounded(lambda: [item for _, item in archives.read(hostile + page(2), block_bytes=2 << 20)])
    assert [item.url for item in found if isinstance(item, CrawlEvent)] == [NEXT]
    assert {item.reason for item in found if not isinstance(item, CrawlEvent)} == {Reason.CORRUPT}


@pytest.mark.parametrize("date", ["1" * 5000, "Mon, 01 Jan 2020 " + "1:" * 30_000, "(" * 60_000])
def test_an_absurd_date_is_ignored(date: str) -> None:
    event, _ = outcome(record(response(b"", Last_Modified=date, Retry_After=date)))
    assert event is not None and event.last_modified_ms is None


def test_a_date_is_short() -> None:
    date = "Mon, 06 Jan 2020 00:00:00 GMT"
    for blanks, is_read in ((_MOST_DATE_BYTES - len(date), True), (_MOST_DATE_BYTES - len(date) + 1, False)):
        given = date.replace(", ", ", " + " " * blanks)
        event, _ = outcome(record(response(b"", Last_Modified=given)))
        assert event is not None and (event.last_modified_ms is not None) is is_read


NESTED = "deep"
"""The name for lists nested so deep that orjson still reads them, and Python's `str` does not."""


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"Response-Message": {"Status": NESTED}}, Reason.NOT_AN_EVENT),
        ({"Response-Message": NESTED}, Reason.NOT_AN_EVENT),
        ({"Response-Message": {"Status": 200}, "Headers": NESTED}, None),
        ({"Response-Message": {"Status": 200}, "HTML-Metadata": {"Head": {"Metas": [{"name": NESTED}]}}}, None),
        (
            {
                "Response-Message": {"Status": 200},
                "HTML-Metadata": {"Head": {"Metas": [{"name": "robots", "content": NESTED}]}},
            },
            None,
        ),
        (
            {"Response-Message": {"Status": 200}, "HTML-Metadata": {"Head": {"Link": [{"rel": NESTED, "url": "x"}]}}},
            None,
        ),
        ({"Response-Message": {"Status": 200}, "HTML-Metadata": {"Links": [{"path": NESTED, "url": NESTED}]}}, None),
    ],
)
def test_metadata_may_be_nested(given: object, reason: Reason | None) -> None:
    deep = b"[" * 1010 + b"]" * 1010
    body = metadata(given).partition(b"\r\n\r\n")[2].strip().replace(b'"deep"', deep)
    assert len(body) > 2020 and outcome(record(body, "metadata"), "wat")[1] is reason


def test_metadata_nested_deeper_than_the_parser_follows_are_no_json() -> None:
    for depth in (1000, 100_000):
        assert outcome(record(b"[" * depth + b"]" * depth, "metadata"), "wat")[1] in (
            Reason.NOT_JSON,
            Reason.NOT_AN_EVENT,
        )
    for depth, reason in ((1024, Reason.NOT_AN_EVENT), (1025, Reason.NOT_JSON)):
        assert outcome(record(b"[" * depth + b"]" * depth, "metadata"), "wat")[1] is reason


def test_metadata_have_only_so_many_values() -> None:
    crowd = b"[" + b"[]," * (MOST_JSON_MARKS // 2) + b"[]]"
    assert outcome(record(crowd, "metadata"), "wat") == (None, Reason.TOO_LARGE)


def test_links_of_metadata_are_counted_before_they_are_kept() -> None:
    given = {"Response-Message": {"Status": 200}, "HTML-Metadata": {"Links": [{"path": "A@/href", "url": "q"}]}}
    event, _ = outcome(metadata(given), "wat")
    assert event is not None and event.links == (Link("http://a.example/d/q"),)
    link = json.dumps({"path": "A@/href", "url": "q"})
    body = json.dumps(
        {
            "Envelope": {
                "WARC-Header-Metadata": {"WARC-Type": "response", "WARC-Target-URI": "http://a.example/"},
                "Payload-Metadata": {"HTTP-Response-Metadata": {**given, "HTML-Metadata": {"Links": 0}}},
            }
        }
    )
    body = body.replace('"Links": 0', f'"Links": [{",".join([link] * (MOST_LINKS + 1))}]')
    assert outcome(record(body.encode(), "metadata"), "wat") == (None, Reason.TOO_MANY_LINKS)


@pytest.mark.parametrize("size", [1 << 20, 3 << 20, 9 << 20])
def test_members_that_expand_far_are_read_once_each(size: int) -> None:
    data = archives.gz(*[page(number, b" " * size) for number in range(3)], page(3))
    found = bounded(lambda: [item for _, item in archives.read(data, block_bytes=2 << 20)])
    assert [item.url for item in found if isinstance(item, CrawlEvent)] == [f"http://a.example/{n}" for n in range(4)]
    assert bounded(lambda: len(archives.blocks(data, block_bytes=1 << 30))) == 1


@pytest.mark.slow
def test_waiting_records_are_bounded_by_bytes(tmp_path: Path) -> None:
    file = tmp_path / "f.warc.gz"
    file.write_bytes(gzip.compress(record(response(b"<a href=//%b>" % (b"x" * (8 << 20)))), 1, mtime=0) * 60)

    def rows() -> list[int]:
        return [len(batch.decode().events.offset) for batch in read(FileRange("f", str(file), Format.WARC))]

    counts = bounded(rows, memory_bytes=400 << 20)
    assert sum(counts) == 60 and max(counts) <= 3


LARGE = MOST_EVENT_BYTES + (1 << 20)


def read_file(path: Path, data: bytes) -> list[str | Reject]:
    path.write_bytes(data)
    decoded = [batch.decode() for batch in read(FileRange("f", str(path), Format.WARC))]
    urls = [url for one in decoded for url in urls_in(one.events)]
    return [*urls, *(reject for one in decoded for reject in one.rejects)]


def urls_in(events: CrawlEvents) -> list[str]:
    firsts = events.url_starts[:-1]
    return [
        events.text[begin:end].tobytes().decode()
        for begin, end in zip(events.begins[firsts], events.ends[firsts], strict=True)
    ]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("compress", "last"),
    [
        (bytes, False),
        (gzip.compress, True),
        pytest.param(bytes, True, marks=pytest.mark.soak),
        pytest.param(gzip.compress, False, marks=pytest.mark.soak),
    ],
)
def test_a_page_that_is_too_large_cannot_hold_records(
    last: bool, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    forged = b"\r\n\r\n" + page(666) + bytes(LARGE) + b"\r\n\r\n" + page(667)
    parts = [page(1), record(response(forged)), record(response(forged))] + [page(2)] * (not last)
    found = read_file(tmp_path / "a.warc", b"".join(map(compress, parts)))
    urls, rejects = [one for one in found if isinstance(one, str)], [one for one in found if not isinstance(one, str)]
    assert urls == ["http://a.example/1"] + ["http://a.example/2"] * (not last)
    assert [reject.reason for reject in rejects] == [Reason.TOO_LARGE] * 2


@pytest.mark.parametrize("wrong", [LARGE, 3 << 30, 10**17])
def test_a_wrong_length_loses_no_other_record(wrong: int, tmp_path: Path) -> None:
    broken = page(3).replace(b"Content-Length: ", b"Content-Length: %d\r\nX: " % wrong)
    found = read_file(tmp_path / "a.warc", page(1) + broken + page(4) + record(response(bytes(2 * LARGE))) + page(5))
    assert [one for one in found if isinstance(one, str)] == [f"http://a.example/{page}" for page in (1, 4, 5)]
    reasons = [one.reason for one in found if not isinstance(one, str)]
    assert reasons == [Reason.CORRUPT, Reason.TOO_LARGE]


@pytest.mark.slow
def test_many_wrong_lengths_read_the_file_once_more(tmp_path: Path) -> None:
    one = b"WARC/1.0\r\nContent-Length: 99999999\r\n\r\nx\r\n\r\n"
    path = tmp_path / "a.warc"
    path.write_bytes(one * 30_000 + bytes(20 << 20) + b"\r\n\r\n" + page(2))
    count = bounded(lambda: sum(len(batch.decode().events) for batch in read(FileRange("f", str(path), Format.WARC))))
    assert count == 1


@pytest.mark.slow
def test_gzip_members_of_one_byte_cost_as_the_bytes_of_others(tmp_path: Path) -> None:
    members = gzip.compress(b"", mtime=0) * 200_000
    path = tmp_path / "a.gz"
    path.write_bytes(members + gzip.compress(b"last"))
    assert bounded(lambda: [bytes(block.data) for block in decompressed(str(path))], 1 << 28) == [b"last"]
