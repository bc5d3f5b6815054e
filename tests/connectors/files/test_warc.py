"""WARC files, WAT files and edge lists: damage becomes a reject, and reading continues after it."""

from __future__ import annotations

import gzip
import io
import random
import re
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.files.formats import Format, sniff
from opicflow.connectors.files.opening import Block, Damage, InputRefused, decompressed, expand
from opicflow.connectors.files.warc import read_warc
from opicflow.connectors.files.warc_records import Cursor
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, MOST_LINKS, CrawlEvent, Link, Reason, Reject
from opicflow.schemas.event_columns import FEED, HTML, OTHER_MEDIA, PDF, UNKNOWN_MEDIA, EventWriter
from support.archives import blocks, deflated, events, gz, metadata, page, read, record, response, zst
from support.thorough import crossed

compressors = pytest.mark.parametrize("compress", [gz, zst])
Compress = Callable[..., bytes]


def joined(data: bytes, **options: int) -> bytes:
    return b"".join(block.data for block in blocks(data, **options) if isinstance(block, Block))


def links(body: bytes, **fields: str) -> list[str] | None:
    (event,) = events(record(response(body, **fields), url="http://a.example/d/p"))
    return None if event.links is None else [link.url for link in event.links]


def reject(data: bytes, kind: str = "warc") -> Reject:
    (item,) = [item for _, item in read(data, kind) if isinstance(item, Reject)]
    return item


def pages(data: bytes) -> list[int]:
    return [int(item.url.rpartition("/")[2]) for _, item in read(data) if isinstance(item, CrawlEvent)]


# -- files


def test_files_are_in_the_order_given_and_those_of_a_pattern_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b.gz", "a.gz", "c[1]"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.gz").mkdir()
    assert expand([f"{tmp_path}/c[1]", "-", f"{tmp_path}/*.gz"]) == [
        f"{tmp_path}/c[1]",
        "-",
        f"{tmp_path}/a.gz",
        f"{tmp_path}/b.gz",
    ]


@pytest.mark.parametrize("name", ["none", "none*", ".", "nowhere://x"])
def test_a_missing_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"\A.*: .*\Z") as refused:
        expand([name if "://" in name else str(tmp_path / name)])
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="no such file"):
        list(decompressed(str(tmp_path / "none")))


# -- decompressing


@pytest.mark.parametrize("compress", [gz, zst, lambda *members: b"".join(members)], ids=["gzip", "zstd", "plain"])
@given(members=st.lists(st.binary(max_size=300)), start=st.integers(0, 500), block_bytes=st.integers(1, 64))
def test_compressed_bytes_are_read_from_any_offset(
    compress: Compress, members: list[bytes], start: int, block_bytes: int
) -> None:
    data = b"x" + b"".join(members)
    found = blocks(compress(b"x", *members), start, block_bytes)
    assert b"".join(block.data for block in found if isinstance(block, Block)) == data[start:]
    at = start
    for block in found:
        assert isinstance(block, Block) and block.offset == at and 0 < len(block.data) <= block_bytes
        at += len(block.data)


@compressors
def test_damage_in_a_member_loses_no_other_member(compress: Compress) -> None:
    rng = random.Random(1)
    members = [rng.randbytes(3000) for _ in range(3)]
    data = bytearray(compress(*members))
    at = len(compress(members[0])) + 1500
    data[at] ^= 0x10
    first, damage, last = blocks(bytes(data))
    assert isinstance(first, Block) and isinstance(damage, Damage) and isinstance(last, Block)
    assert first.data.startswith(members[0])
    assert damage[:2] == (len(first.data), len(compress(members[0]))) and damage.unsure_from == 3000
    assert last == (damage.offset + 1, members[2])


@compressors
def test_a_truncated_member_gives_its_first_bytes(compress: Compress) -> None:
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    *whole, damage = blocks(compress(text)[:-20000])
    assert isinstance(damage, Damage) and "cut off" in damage.detail
    kept = b"".join(block.data for block in whole if isinstance(block, Block))
    assert text.startswith(kept) and len(kept) > 200_000


def test_missing_bytes_in_a_member_lose_no_other_member() -> None:
    members = [b"%d" % number * 50 for number in range(20)]
    data = gz(*members)
    cut = len(gz(*members[:3])) + 12
    found = blocks(data[:cut] + data[cut + 5 :])
    assert isinstance(found[-1], Block) and found[-1].data.endswith(b"".join(members[4:]))


def test_zeros_after_a_gzip_member_are_padding() -> None:
    assert blocks(gz(b"x") + bytes(1000)) == [(0, b"x")]


def test_skippable_zstd_frames_are_skipped() -> None:
    assert joined(b"\x50\x2a\x4d\x18\x05\0\0\0abcde" + zst(b"x")) == b"x"


def test_a_plain_file_with_the_name_of_a_compressed_one_is_read_as_plain(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"{}\n")
    assert list(decompressed(str(tmp_path / "a.gz"))) == [(0, b"{}\n")]


def test_the_name_decides_if_the_first_bytes_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\0\x01\x02" + gz(b"x" * 100)[3:] + gz(b"y"))
    damage, last = decompressed(str(tmp_path / "a.gz"))
    assert isinstance(damage, Damage) and isinstance(last, Block) and last.data == b"y"


def zeros_in_gzip() -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()


def zeros_in_zstd() -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("make", [zeros_in_gzip, zeros_in_zstd])
def test_a_compression_bomb_needs_no_more_memory_than_another_file(make: Callable[[], bytes]) -> None:
    file = io.BytesIO(make())
    tracemalloc.start()
    size_bytes = sum(len(block.data) for block in decompressed(file) if isinstance(block, Block))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size_bytes == 256 << 20
    assert peak_bytes < 48 << 20


@pytest.mark.parametrize("false", [b"\x1f\x8b\x08", b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x4b", b"\x28\xb5\x2f\xfd\x24\x01"])
def test_thousands_of_false_member_headers_are_skipped_quickly(false: bytes) -> None:
    begun = time.process_time()
    found = blocks((zst(b"x") if false[:1] == b"\x28" else gz(b"x")) + false * 200_000)
    damages = [item for item in found if isinstance(item, Damage)]
    assert len(damages) < 10_000 and "4096 candidates after it are none: the rest" in damages[-1].detail
    assert time.process_time() - begun < 10


# -- formats


@pytest.mark.parametrize(
    ("first", "name", "expected"),
    [
        (b"Obj\x01\x04", "x", Format.AVRO),
        (b"\xef\xbb\xbf\n {}", "x", Format.JSONL),
        (page(1), "x", Format.WARC),
        (record(b"", "warcinfo") + metadata({}), "x", Format.WAT),
        (record(b"", "warcinfo"), "x.warc.wat.gz", Format.WAT),
        (b"# page\tlinks to\nhttp://a/\thttp://b/\n", "x", Format.EDGES),
        (b"http://a/,http://b/,2\nhttp://a/", "x", Format.EDGES),
        (b"source target\n1 2\n1 3\n", "x", Format.EDGES),
        (b"Dear reader,\nthis is prose.\n", "x.jsonl", None),
        (b"", "x.warc.gz", Format.WARC),
        (b"", "x", None),
    ],
)
def test_the_content_of_a_file_determines_its_format(first: bytes, name: str, expected: Format | None) -> None:
    assert sniff(first, name) is expected


# -- WARC


def test_a_response_is_a_visit() -> None:
    http = response(b"<a href=q rel=ugc>", Last_Modified="Thu, 02 Jan 2020 00:00:00 GMT")
    (event,) = events(record(http, url="<http://a.example/p>", WARC_Payload_Digest="sha1:X"))
    assert event == CrawlEvent(
        "http://a.example/p",
        fetched_at_ms=1577934245000,
        status=200,
        content_type="text/html",
        digest="sha1:X",
        last_modified_ms=1577923200000,
        links=(Link("http://a.example/q", None, "ugc"),),
    )


GET, POST = (record(method + b" / HTTP/1.1\r\n\r\n", "request") for method in (b"GET", b"POST"))
ANSWER = record(response(b"<p>"))


@pytest.mark.parametrize("is_request_first", [True, False])
def test_the_answer_to_a_post_is_no_page(is_request_first: bool) -> None:
    exchanges = [(POST, ANSWER), (GET, ANSWER), (POST, ANSWER), (GET, ANSWER)]
    parts = [pair if is_request_first else pair[::-1] for pair in exchanges]
    data = b"".join(part for pair in parts for part in pair)
    items = read(data)
    assert [isinstance(item, CrawlEvent) for _, item in items] == [False, True, False, True]
    assert [offset for offset, _ in items] == [sum(len(a + b) for a, b in parts[:n]) for n in range(4)]
    assert "by POST" in reject(POST + ANSWER).detail and reject(POST + ANSWER).bytes.startswith(b"POST /")
    for number, (offset, _) in enumerate(items):
        assert read(data, start=offset) == items[number:]


def test_a_request_of_another_page_and_one_without_an_answer_change_nothing() -> None:
    other = record(b"POST /b HTTP/1.1\r\n\r\n", "request", url="http://a.example/b")
    broken = record(b"\0", "request")
    assert events(other + ANSWER + other + page(1) + broken + ANSWER + broken) == events(ANSWER + page(1) + ANSWER)


# -- ARC


def arc(url: str, body: bytes, date: bytes = b"20200102030405") -> bytes:
    return b"%s 192.0.2.1 %s text/html %d\n%s\n" % (url.encode(), date, len(body), body)


VERSION_1 = arc("filedesc://f.arc", b"1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n")
ARCHIVE = VERSION_1 + b"".join(arc(f"http://a.example/{n}", response(b'<a href="/9">')) for n in range(3))


def test_records_of_http_in_an_arc_file_are_visits() -> None:
    assert sniff(ARCHIVE, "x") is Format.ARC
    found = events(ARCHIVE + arc("dns:a.example", b"192.0.2.1") + arc("metadata://a/", b"x"), "arc")
    assert [(one.url, one.fetched_at_ms, one.status) for one in found] == [
        (f"http://a.example/{n}", 1577934245000, 200) for n in range(3)
    ]
    assert found[0].links == (Link("http://a.example/9"),)


def test_a_damaged_record_of_an_arc_file_is_a_reject_and_reading_goes_on_at_the_next() -> None:
    items = [item for _, item in read(ARCHIVE.replace(b"/1 192.0.2.1", b"/1 !", 1), "arc")]
    assert [item.url if isinstance(item, CrawlEvent) else item.reason for item in items] == [
        "http://a.example/0",
        Reason.CORRUPT,
        "http://a.example/2",
    ]
    assert reject(ARCHIVE[:-20], "arc").reason is Reason.CORRUPT
    assert reject(VERSION_1 + arc("http://a.example/", b"no answer"), "arc").reason is Reason.NOT_AN_EVENT


def test_an_arc_file_in_blocks_of_any_size_gives_the_same_items_from_any_item_on() -> None:
    whole = read(ARCHIVE, "arc")
    assert [read(ARCHIVE, "arc", block_bytes=size) for size in (1, 7, 64)] == [whole] * 3
    for number, (offset, _) in enumerate(whole):
        assert read(ARCHIVE, "arc", start=offset) == whole[number:]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120), ("Thu, 02 Jan 2020 03:29:05 GMT", 1500), ("-1", None), ("never", None), ("9" * 99, 2_592_000)],
)
def test_a_host_may_ask_to_wait(value: str, seconds: int | None) -> None:
    (event,) = events(record(response(b"", status=429, Retry_After=value)))
    assert (event.status, event.retry_after) == (429, seconds)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (record(response(b"", Content_Type="application/pdf")), PDF),
        (record(response(b"", Content_Type="Application/RSS+xml; charset=utf-8")), FEED),
        (record(response(b"", Content_Type="")), UNKNOWN_MEDIA),
        (record(response(b"", Content_Type=""), WARC_Identified_Payload_Type="image/png"), OTHER_MEDIA),
        (record(b"<p>", "resource"), HTML),
        (record(b"", "revisit"), UNKNOWN_MEDIA),
    ],
)
def test_records_have_the_kind_of_their_content(data: bytes, kind: int) -> None:
    (event,) = events(data)
    writer = EventWriter()
    writer.add(0, event)
    assert writer.events().media.tolist() == [kind]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<a href=q><AREA HREF='../r'><iframe src=i></iframe><frame src=f>", ["d/q", "r", "d/i", "d/f"]),
        (b"<base href=/b/><base href=/c/><a href=q>", ["b/q"]),
        (b"<base href='javascript:x'><a href=q>", ["d/q"]),
        (b"<img src=i><script src=s></script><link rel=stylesheet href=c><a name=n>", []),
        (b"<!-- <a href=q> --><script>'<a href=q>'</script><title><a href=q></title>", []),
        (b"<template><a href=q></template><a href=r>", ["d/r"]),
        (b"<p title='<a href=q>'><p data-x=\"> <a href=q>\"><a href=r>", ["d/r"]),
        (b"<a href='?a=1&amp;b=2&copy=3&lt'>", ["d/p?a=1&b=2&copy=3%3C"]),
        (b"<a title=x>y href=q</a><a href>", ["d/p"]),
        (b"", []),
    ],
)
def test_links_are_read_from_tags_that_lead_to_pages(body: bytes, expected: list[str]) -> None:
    assert links(body) == [f"http://a.example/{path}" for path in expected]


def test_a_link_that_is_not_a_url_is_unchanged() -> None:
    assert links(b"<a href='http://[x'><a href='mailto:x'>") == ["http://[x", "mailto:x"]


def test_a_page_names_its_canonical_url() -> None:
    (event,) = events(record(response(b"<link rel='x Canonical' href=/c><a href=q>")))
    assert event.canonical == "http://a.example/c"


@pytest.mark.parametrize(
    ("body", "robots", "rels"),
    [
        (b"<meta name=ROBOTS content='noindex, NOFOLLOW'>", "x", ["nofollow", "ugc nofollow"]),
        (b"<meta name=robots content=none>", "x", ["nofollow", "ugc nofollow"]),
        (b"", "max-snippet:1, nofollow", ["nofollow", "ugc nofollow"]),
        (b"", "somebot: noindex, nofollow", [None, "ugc"]),
    ],
)
def test_robots_rules_make_all_links_nofollow(body: bytes, robots: str, rels: list[str | None]) -> None:
    (event,) = events(record(response(body + b"<a href=q><a href=r rel=ugc>", X_Robots_Tag=robots)))
    assert [link.rel for link in event.links or ()] == rels


@pytest.mark.parametrize(
    ("encode", "fields"),
    [
        (gzip.compress, {"Content_Encoding": "gzip"}),
        (zlib.compress, {"Content_Encoding": "deflate"}),
        (deflated, {"Content_Encoding": "deflate"}),
        (lambda body: body, {"Content_Encoding": "br", "Transfer_Encoding": "chunked"}),
        (
            lambda body: b"5;x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:]),
            {"Transfer_Encoding": "chunked"},
        ),
    ],
)
def test_the_encodings_of_http_are_decoded(encode: Callable[[bytes], bytes], fields: dict[str, str]) -> None:
    assert links(encode(b"<p><a href=/q>"), **fields) == ["http://a.example/q"]


def test_a_truncated_chunked_and_gzipped_payload_gives_its_first_links() -> None:
    body = gzip.compress(b"<a href=/q>" + random.Random(1).randbytes(5000))[:3000]
    body = b"%x\r\n%b\r\n" % (len(body) + 100, body)
    assert links(body, Content_Encoding="gzip", Transfer_Encoding="chunked") == ["http://a.example/q"]


@pytest.mark.parametrize(("field", "value"), [("Content_Type", "image/png"), ("Content_Encoding", "br")])
def test_unreadable_links_are_unknown(field: str, value: str) -> None:
    assert links(b"\x0b\x02\x80", **{field: value}) is None


@pytest.mark.parametrize(
    ("content_type", "head"),
    [
        ("text/html; charset=windows-1251", b""),
        ("text/html", b"<meta charset='windows-1251'>"),
        ("", b"<meta charset=cp1251>"),
    ],
)
def test_a_page_is_decoded_with_the_charset_it_names(content_type: str, head: bytes) -> None:
    assert links(head + "<a href='/я'>".encode("cp1251"), Content_Type=content_type) == ["http://a.example/%D1%8F"]


@pytest.mark.parametrize("charset", ["zip", "idna", "punycode", "unicode_escape", "none", "utf-7", "\0"])
def test_an_impossible_charset_is_ignored(charset: str) -> None:
    assert links(b"<a href=/q>", Content_Type=f"text/html; charset={charset}") == ["http://a.example/q"]


def test_a_redirect_links_to_its_location() -> None:
    (event,) = events(record(response(b"<a href=q>", 301, Location="/to")))
    assert (event.status, event.links) == (301, (Link("http://a.example/to"),))


def test_a_revisit_is_not_modified() -> None:
    (event,) = events(record(b"", "revisit", WARC_Payload_Digest="sha1:X"))
    assert (event.status, event.links, event.digest) == (304, None, "sha1:X")


def test_a_resource_of_html_is_a_visit() -> None:
    (event,) = events(record(b"<a href=q>", "resource"))
    assert (event.status, event.links) == (200, (Link("http://a.example/q"),))


@pytest.mark.parametrize("kind", ["request", "metadata", "warcinfo", "conversion", "continuation"])
def test_other_records_are_skipped(kind: str) -> None:
    assert read(record(b"x", kind) + record(b"x", "response", "dns:a", Content_Type="text/dns")) == []


@pytest.mark.parametrize("piece", [b"WARC/1.0\n", b"WARC/1.0\nno head\n", b"WARC/1.1\r\n\r\n", b"WARC/0.17\n\n\n"])
@pytest.mark.parametrize("block_bytes", [37, 1000, 1 << 20])
def test_pieces_that_are_too_short_for_a_visit_are_one_reject_and_take_little_work(
    piece: bytes, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each used to be a reject, for which 64 KiB were copied: four seconds a mebibyte."""
    work = {"search": 0, "take": 0}

    def search(cursor: Cursor, wanted: re.Pattern[bytes], begin: int, end: int) -> int | None:
        work["search"] += 1
        return searched(cursor, wanted, begin, end)

    def take(cursor: Cursor, begin: int, size_bytes: int) -> bytes:
        found = taken(cursor, begin, size_bytes)
        work["take"] += len(found)
        return found

    searched, taken = Cursor.search, Cursor.take
    monkeypatch.setattr(Cursor, "search", search)
    monkeypatch.setattr(Cursor, "take", take)
    data = 3_000 * piece + page(1) + 3_000 * piece + page(2)
    (begin, first), (_, one), (again, second), (_, two) = read(data, block_bytes=block_bytes)
    assert isinstance(one, CrawlEvent) and isinstance(two, CrawlEvent)
    assert (one.url, two.url) == ("http://a.example/1", "http://a.example/2")
    assert isinstance(first, Reject) and isinstance(second, Reject) and first.reason is second.reason is Reason.CORRUPT
    assert (begin, again) == (0, 3_000 * len(piece) + len(page(1)))
    assert first.bytes == (3_000 * piece)[:MOST_REJECTED_BYTES]
    assert work["search"] <= 2 * 6_000 + 100 and work["take"] <= 4 * MOST_REJECTED_BYTES


def test_a_record_above_the_limit_is_rejected_only_if_it_is_a_visit() -> None:
    large = bytes(MOST_EVENT_BYTES + 1)
    data = record(large, "conversion") + record(large, "resource") + page(1)
    (_, refused), (_, event) = read(data, block_bytes=8 << 20)
    assert isinstance(refused, Reject) and isinstance(event, CrawlEvent)
    assert refused.reason is Reason.TOO_LARGE and len(refused.bytes) == 64 << 10 and "first 65536 of" in refused.detail


def test_a_page_that_decompresses_to_more_than_the_limit_is_rejected() -> None:
    body = gzip.compress(bytes(MOST_EVENT_BYTES + 1), 1)
    assert reject(record(response(body, Content_Encoding="gzip"))).reason is Reason.TOO_LARGE


@pytest.mark.slow
def test_a_page_with_too_many_links_is_rejected() -> None:
    assert len(links(b"<a href=q>" * MOST_LINKS) or ()) == MOST_LINKS
    assert reject(record(response(b"<a href=q>" * (MOST_LINKS + 1)))).reason is Reason.TOO_MANY_LINKS


def test_a_long_base_does_not_multiply_the_size_of_a_page() -> None:
    assert (
        reject(record(response(b"<base href='/%b/'>" % (b"x" * 10_000) + b"<a href=q>" * 9_000))).reason
        is Reason.TOO_LARGE
    )


BROKEN = {
    "junk": b"junk\r\n\r\n",
    "zeros": bytes(500),
    "a length too large": page(7).replace(b"Length: ", b"Length: 1"),
    "a length far too large": page(7).replace(b"Length: ", b"Length: 999999999"),
    "a length too small": page(7, b"x" * 100).replace(b"Length: 1", b"Length: "),
    "no length": page(7).replace(b"Content-Length", b"Content-Width"),
    "a negative length": page(7).replace(b"Length: ", b"Length: -"),
    "a head without end": page(7).replace(b"\r\n\r\n", b"\r\n"),
    "no status": page(7).replace(b"HTTP/1.1", b"HTML/1.1"),
    "no URL": page(7).replace(b"Target-URI", b"Target-URL"),
    "no date": page(7).replace(b"2020-01-02T", b"2020-13-02T"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("compress", [gz, zst, lambda *members: b"".join(members)], ids=["gzip", "zstd", "plain"])
def test_a_broken_record_is_a_reject_with_its_bytes_and_the_next_is_read(compress: Compress, broken: bytes) -> None:
    data = compress(page(1), broken, page(2), page(3))
    assert pages(data) == [1, 2, 3]
    found = reject(data)
    assert found.offset == len(page(1)) and found.bytes.startswith(broken[:4]) and found.bytes in broken
    assert "\n" not in found.detail and found.source == "f"


@compressors
def test_a_record_cut_off_by_damage_is_one_reject_and_the_next_is_read(compress: Compress) -> None:
    members = [page(number, random.Random(number).randbytes(2000).hex().encode()) for number in range(3)]
    data = bytearray(compress(*members))
    data[len(compress(members[0])) + 1000] ^= 0xFF
    assert pages(bytes(data)) == [0, 2]
    assert (reject(bytes(data)).reason, reject(bytes(data)).offset) == (Reason.CORRUPT, len(members[0]))


@compressors
def test_only_the_record_with_a_wrong_checksum_is_a_reject(compress: Compress) -> None:
    data = bytearray(compress(page(1), page(2), page(3)))
    data[len(compress(page(1), page(2))) - (5 if compress is gz else 1)] ^= 0xFF
    assert pages(bytes(data)) == [1, 3]
    begin = len(compress(page(1)))
    header = bytearray(compress(page(1), page(2), page(3)))
    header[begin : begin + 4] = b"\xff" * 4
    assert pages(bytes(header)) == [1, 3] and reject(bytes(header)).offset == len(page(1))


@pytest.mark.parametrize(
    "hostile",
    [
        b"<a href='",
        b"<!--",
        b"<script>",
        b"<a ",
        b"<div>",
        b'<a x="',
        b"<p '",
        b"<",
        b"<!",
        b"</",
        b"<template>",
        b"&",
        b"<font><p>",
    ],
)
def test_the_time_for_a_page_is_linear_in_its_length(hostile: bytes) -> None:
    begun = time.process_time()
    assert len(read(record(response(hostile * (1_500_000 // len(hostile)))))) == 1
    assert time.process_time() - begun < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile", [b"WARC/1.0\r\n", b"WARC/1.0\r\nContent-Length: 30000000\r\n\r\n", b"\r\n", b"x\r\n\r\n"]
)
def test_the_time_for_a_file_is_linear_in_its_length(hostile: bytes) -> None:
    begun = time.process_time()
    read(hostile * (1_500_000 // len(hostile)))
    assert time.process_time() - begun < 10


TAGS = st.sampled_from(["a", "area", "b", "p", "div", "A", "img", "i"])
VALUES = st.sampled_from(
    ["'/x'", '"/y>z"', "/w", "'<a href=/no>'", '"it\'s"', "/v&amp;u", "'/&eacute'", "/a&copy=1", "''"]
)
ATTRIBUTES = st.sampled_from(["href", "HREF", "title", "data-x", "class"])
PARTS = st.one_of(
    st.builds(
        lambda tag, found: f"<{tag} {' '.join(f'{k}={v}' for k, v in found)}>",
        TAGS,
        st.lists(st.tuples(ATTRIBUTES, VALUES)),
    ),
    st.builds("</{}>".format, TAGS),
    st.sampled_from(
        [
            "text",
            "<!-- <a href=/no> -->",
            "<!-->",
            "<script>'<a href=/no>'</script>",
            "< a href=/no>",
            "<title>&</title>",
            "<br/>",
        ]
    ),
)


@given(st.lists(PARTS, max_size=12))
def test_links_are_those_that_a_browser_parses(parts: list[str]) -> None:
    text = f"<body>{''.join(parts)}"
    found = [node.attributes["href"] or "" for node in LexborHTMLParser(text).css("a[href],area[href]")]
    (expected,) = events(
        record(
            response(
                "".join(f'<a href="{url.replace("&", "&amp;").replace(chr(34), "&quot;")}">' for url in found).encode()
            )
        )
    )
    assert [
        link.url
        for link in events(record(response(text.encode(), Content_Type="text/html; charset=utf-8")))[0].links or ()
    ] == [link.url for link in expected.links or ()]


# -- WAT


def test_a_wat_record_is_a_visit() -> None:
    page_of_wat = {
        "Response-Message": {"Status": "200"},
        "Headers": {"content-TYPE": "text/html", "Last-Modified": "Thu, 02 Jan 2020 00:00:00 GMT"},
        "HTML-Metadata": {
            "Head": {
                "Base": "/b/",
                "Link": [{"path": "LINK@/href", "rel": "canonical", "url": "/c"}],
                "Metas": [{"name": "robots", "content": "nofollow"}],
            },
            "Links": [
                {"path": "A@/href", "url": "q", "rel": "ugc"},
                {"path": "IMG@/src", "url": "i"},
                {"path": "IFRAME@/src", "url": "f"},
            ],
        },
    }
    (event,) = events(
        metadata(page_of_wat, **{"WARC-Date": "2020-01-02T03:04:05Z", "WARC-Payload-Digest": "sha1:X"}), "wat"
    )
    assert event == CrawlEvent(
        "http://a.example/d/",
        fetched_at_ms=1577934245000,
        status=200,
        canonical="http://a.example/c",
        content_type="text/html",
        digest="sha1:X",
        last_modified_ms=1577923200000,
        links=(Link("http://a.example/b/q", None, "ugc nofollow"), Link("http://a.example/b/f", None, "nofollow")),
    )


def test_a_wat_record_without_html_has_unknown_links() -> None:
    (event,) = events(metadata({"Response-Message": {"Status": 200}, "Headers": {}}), "wat")
    assert event.links is None
    (event,) = events(metadata({"Response-Message": {"Status": "200"}, "HTML-Metadata": {}}), "wat")
    assert event.links == ()
    (event,) = events(metadata({"Response-Message": {"Status": "302"}, "Headers": {"location": "x"}}), "wat")
    assert event.links == (Link("http://a.example/d/x"),)


def test_wat_records_of_requests_are_skipped() -> None:
    assert read(metadata({}, **{"WARC-Type": "request"}), "wat") == []


@pytest.mark.parametrize("value", [[], None, 1, "x", {"Response-Message": []}, {"Response-Message": {"Status": "20"}}])
def test_malformed_wat_records_are_rejects(value: object) -> None:
    assert reject(metadata(value), "wat").reason is Reason.NOT_AN_EVENT
    assert reject(record(b"{", "metadata"), "wat").reason is Reason.NOT_JSON


# -- edge lists


def test_adjacent_lines_of_a_page_are_one_visit() -> None:
    data = b"\xef\xbb\xbf# edges\nhttp://a/ http://b/\nhttp://a/\thttp://c/\t2\r\n\n"
    data += b"http://a/ http://d/,e\nhttp://b/\nhttp://a 7\n"
    assert read(data, "edges", block_bytes=5) == [
        (
            11,
            CrawlEvent("http://a/", status=200, links=(Link("http://b/"), Link("http://c/", 2.0), Link("http://d/,e"))),
        ),
        (77, CrawlEvent("http://b/", status=200, links=())),
        (87, CrawlEvent("http://a", status=200, links=(Link("7"),))),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a b c", Reason.BAD_WEIGHT),
        (b"a b 1 2", Reason.NOT_AN_EVENT),
        (b'a "" 1', Reason.NOT_AN_EVENT),
        (b"a \xff", Reason.NOT_UTF8),
        (b"x" * (MOST_EVENT_BYTES + 1), Reason.TOO_LARGE),
    ],
)
def test_a_line_that_is_not_an_edge_is_a_reject(line: bytes, reason: Reason) -> None:
    found = read(b"a b\n" + line + b"\nc d\n", "edges", block_bytes=1 << 20)
    assert [getattr(item, "reason", None) for _, item in found] == [None, reason, None]


def test_a_page_with_too_many_edges_is_a_reject() -> None:
    assert reject(b"a b\n" * (MOST_LINKS + 1) + b"c d\n", "edges").reason is Reason.TOO_MANY_LINKS


def test_the_line_after_damage_is_lost() -> None:
    data = bytearray(gz(b"a b\nc d\ne", b" f\ng h\n", b"rn x\ni j\n"))
    data[len(gz(b"a b\nc d\ne")) + 12] ^= 0xFF
    found = read(bytes(data), "edges")
    assert [getattr(item, "url", None) for _, item in found] == ["a", "c", None, "i"]


# -- laws

KINDS = {
    "warc": [page(number, b"<p>" * (number * 7)) for number in range(12)],
    "wat": [metadata({"Response-Message": {"Status": "200"}, "HTML-Metadata": {"Links": []}}) for _ in range(8)],
    "edges": [b"http://a/%d http://b/%d\n" % (number // 3, number) for number in range(40)],
}


def damaged(rng: random.Random, data: bytes) -> bytes:
    harmed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(harmed) + 1)
        harm = rng.randrange(4)
        if harm == 0 and at < len(harmed):
            harmed[at] ^= 1 << rng.randrange(8)
        elif harm == 1:
            del harmed[at : at + rng.randrange(60)]
        elif harm == 2:
            harmed[at:at] = rng.choice(
                [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"WARC/1.0\r\n", b"\r\n\r\n", rng.randbytes(9)]
            )
        else:
            harmed[at : at + 30] = bytes(30)
    return bytes(harmed)


@pytest.mark.parametrize(("compress", "kind"), crossed([gz, zst, lambda *members: b"".join(members)], list(KINDS)))
def test_damage_raises_nothing_and_reading_continues_from_any_item(kind: str, compress: Compress, seed: int) -> None:
    rng = random.Random(seed)
    whole = compress(*KINDS[kind])
    for round_ in range(300):
        data = damaged(rng, whole)
        found = read(data, kind, block_bytes=rng.choice([1, 100, 1 << 16]) if round_ % 10 == 0 else 1 << 16)
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(item.offset == offset for offset, item in found if isinstance(item, Reject))
        if found and not (data[:1] != whole[:1] and compress in (gz, zst)):
            chosen = rng.randrange(len(found))
            assert read(data, kind, offsets[chosen]) == found[chosen:], (round_, chosen)


def test_a_reader_holds_one_record_in_memory_not_the_file() -> None:
    one = page(1, b" " * 90_000)

    class Endless(io.RawIOBase):
        left = 200

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return one * 10 if self.left >= 0 else b""

    tracemalloc.start()
    count = sum(1 for _ in read_warc(decompressed(Endless()), "f"))  # type: ignore[arg-type]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2_000 and peak_bytes < 64 << 20
