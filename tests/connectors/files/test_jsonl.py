"""Crawl events from JSON lines: for any line, the kernel returns what orjson and `event_of` return."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opicflow.connectors.files import decoded as decoded_files
from opicflow.connectors.files import json_scan, json_text, jsonl
from opicflow.connectors.files.crawlers.dispatch import event_of_line
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.event_messages import messages_of_lines
from opicflow.connectors.files.json_scan import scan_text
from opicflow.connectors.files.json_text import with_fewer_escapes
from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.connectors.files.log_reader import _of_lines
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import (
    LONGEST_RETRY_SECONDS,
    MOST_EVENT_BYTES,
    MOST_LINKS,
    MOST_LISTED,
    MOST_REDIRECTS,
    CrawlEvent,
    EventRefused,
    Link,
    Reason,
)
from opicflow.schemas.event_columns import (
    BLOCKED,
    BUSY,
    FAILED,
    FEED,
    GONE,
    HTML,
    MEDIA_TYPES,
    OTHER_MEDIA,
    PDF,
    UNKNOWN_MEDIA,
    UNKNOWN_STATUS,
    XML,
    CrawlEvents,
    EventWriter,
    is_nofollow,
    merge,
    quantised,
)
from opicflow.schemas.json_events import ANNOUNCED_BY, FIELD_NAMES, LINK_FIELD_NAMES, VISIT_WORDS, time_ms_of
from support.encoded import PREFIX, check_messages
from support.event_rows import Row, json_without_the_kernel, rows_of
from support.paths import TOP
from support.thorough import examples


def outcome(decoded: Decoded) -> tuple[list[Row], list[tuple[Reason, int, bytes]]]:
    for reject in decoded.rejects:
        assert reject.source == "f" and "\n" not in reject.detail and reject.detail
    return rows_of(decoded.events), [(reject.reason, reject.offset, reject.bytes) for reject in decoded.rejects]


def check(block: bytes, first_offset: int = 0) -> None:
    decoded = decode_jsonl(block, "f", first_offset)
    assert outcome(decoded) == json_without_the_kernel(block, first_offset)
    empty = EventWriter().events()
    for field in fields(CrawlEvents):
        assert getattr(decoded.events, field.name).dtype == getattr(empty, field.name).dtype, field.name


def one(line: str | bytes) -> Row:
    rows, rejects = outcome(decode_jsonl(line.encode() if isinstance(line, str) else line, "f", 0))
    assert not rejects, rejects
    return rows[0]


def reason(line: str | bytes) -> Reason:
    block = line.encode() if isinstance(line, str) else line
    check(block)
    (reject,) = decode_jsonl(block, "f", 0).rejects
    return reject.reason


# -- the kernel and the library


def test_the_kernel_reads_nothing_after_its_text() -> None:
    """The text may be a part of a longer one, whose next bytes would make an event of a line that breaks off."""
    line = b'{"url":"http://a.b/","links":["http://c.d/",{"url":"http://e.f/","nofollow":true}]}\n'
    for size in range(1, len(line) - 1):
        text = np.frombuffer(line, np.uint8)[:size]
        scan = json_scan._new_scan(text)
        json_scan.scan_lines(text, 0, json_text.WORDS, json_text.CODES, scan)
        assert scan.counts[:3].tolist() == [0, 0, 1], size


NUMBERS = """
0 -0 00 1 -1 1.0 1. .5 1e5 1E-2 -5003 404 404.0 200 99 100 999 1000 32767 -32768 -32769 1e400 1e308 2e306 63.999 64 65
0.5 0.001 0.0005 0.1234 1.25 1577934245 1577934245.5 1577934245123 631151999 631152000 4102444799 4102444800 99999999999
100000000000 9007199254740993 123456789012345678 1234567890123456789 18446744073709551615 18446744073709551616
true false null
"""
numbers = st.sampled_from(NUMBERS.split()) | st.integers(-(2**70), 2**70).map(str)
times = st.builds(
    "{}{}{}{}{}{}".format,
    st.dates().map(str)
    | st.sampled_from(["2020-02-29", "2021-02-29", "2000-02-29", "1900-02-29", "2100-01-01", "2024-04-31"])
    | st.sampled_from(
        [
            "0000-01-01",
            "1989-12-31",
            "1990-01-01",
            "2099-12-31",
            "2020-13-01",
            "2020-1-1",
            "+020-01-01",
            "\uff11\uff19\uff19\uff19-01-01",
        ]
    ),
    st.sampled_from(["T", " ", "t", "", "  "]),
    st.times().map(lambda time: f"{time:%H:%M:%S}")
    | st.sampled_from(["", "03:04", "23:59:60", "23:59:61", "24:00:00", "0:0:0"]),
    st.sampled_from(["", ".1", ".12", ".123", ".1239", ".123456789", ".1234567890", ",5", "."]),
    st.sampled_from(["", "Z", "z", " Z", "+01:00", "-0930", "+1", "UTC", " UTC", "+99:99", "ZZ"]),
    st.sampled_from(["", "", "", " "]),
).map(json.dumps) | st.sampled_from(
    [
        "20200102030405",
        "20200102030405123",
        "Thu, 02 Jan 2020 03:04:05 GMT",
        "Thu, 02 Foo 2020 03:04:05 GMT",
        "1577934245",
        "1577934245.25",
        "-1",
        " 1577934245 ",
        "yesterday",
        "",
        "١٥٧٧٩٣٤٢٤٥",
    ]
).map(json.dumps)
words = st.sampled_from(
    [
        *ANNOUNCED_BY,
        *VISIT_WORDS,
        "VISIT",
        "Seed",
        "404",
        " 200 ",
        "404.0",
        "404.5",
        "-9998",
        "1e3",
        "robots",
        "robots_txt",
        "ROBOTS",
        "not-found",
        "gone",
        "timeout",
        "dns",
        "",
        " ",
        "nofollow",
        "NoFollow ugc",
        "x\tSPONSORED",
        "nofollowx",
        "followno nofollow",
        "http://a.b/",
        "https://a.b/c?d#e",
        "/relative",
        "é",
        "\u212a",
        "😀",
        'a"b',
        "a\\b",
        "a\nb",
        "\x7f",
        "nofollow\x0bugc",
        "text/html",
        "a" * 7,
        "a" * 8,
        "a" * 9,
        "a" * 40,
        "0123456789abcdef",
    ]
)


def as_json(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(
        [json.dumps(text), json.dumps(text, ensure_ascii=False), f'"{text}"', '"\\u0061' + json.dumps(text)[1:]]
    )


texts = st.one_of(words, st.text(max_size=12)).flatmap(as_json) | st.sampled_from(
    ['"\\ud800"', '"\\udc00x"', '"\\x"', '"']
)
spaces = st.sampled_from(["", "", "", "", " ", "\t", "\r", "  "])


def mostly(usual: st.SearchStrategy[str], odd: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Draw usual values mostly: an object with many odd values is always rejected, which tests little."""
    return st.integers(0, 15).flatmap(lambda number: odd if number == 7 else usual)


@st.composite
def objects(draw: st.DrawFn, names: dict[str, tuple[str, ...]], values: dict[str, st.SearchStrategy[str]]) -> str:
    others = [field for field in names if field != "url"]
    some = draw(st.lists(st.sampled_from(others), min_size=draw(st.sampled_from([3, 2, 0])), unique=True))
    if draw(st.integers(0, 15)) != 7:
        some.insert(draw(st.integers(0, len(some))), "url")
    if draw(st.integers(0, 15)) == 7:
        some.append(draw(st.sampled_from(list(names))))
    members = [(json.dumps(draw(st.sampled_from(names[field]))), draw(values[field])) for field in some]
    if draw(st.integers(0, 3)) == 2:
        name = st.sampled_from(["depth", "Url", "", "uurl", "linksx", "title", "\u00fcrl"]).flatmap(as_json)
        members.insert(draw(st.integers(0, len(members))), (draw(name), draw(mostly(texts | numbers, anything))))
    space = draw(st.sampled_from([st.just(""), st.just(" "), spaces]))
    parts = [draw(space) + name + draw(space) + ":" + draw(space) + value + draw(space) for name, value in members]
    return "{" + draw(spaces) + ",".join(parts) + "}"


def lists_of(items: st.SearchStrategy[str], most: int = 5) -> st.SearchStrategy[str]:
    return st.tuples(spaces, st.lists(items, max_size=most)).map(
        lambda both: "[" + both[0] + f"{both[0]},".join(both[1]) + "]"
    )


anything = (
    numbers | texts | st.sampled_from(["[]", "{}", '{"a":[1,{"b":null}]}', "[[1],{}]", "[", "{", "", "nul", "truex"])
)
plain_urls = st.sampled_from(['"http://a.b/"', '"https://a.b/c?d"', '"/x"', '"x"', '""', '"12345678"', '"1234567"'])
plain_times = st.builds(
    '"{}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}"'.format,
    st.integers(1989, 2100),
    st.integers(1, 12),
    st.integers(1, 31),
    st.sampled_from("T "),
    *[st.integers(0, most) for most in (23, 59, 60)],
    st.sampled_from(["", ".1", ".12", ".123", ".12345", ".123456789"]),
    st.sampled_from(["", "Z"]),
) | st.integers(631_152_000, 4_102_444_800).map(str)
plain_numbers = st.integers(0, 66).map(str) | st.integers(0, 66_000).map(lambda thousandths: str(thousandths / 1000))
content_types = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", " ", "\t ", "\x0f", "\n"]),
    st.sampled_from(
        [*MEDIA_TYPES, "image/svg+xml", "TEXT/HTML", "text/plain", "text/htm", "text\x0fhtml", "a+XML", "+xm"]
    ),
    st.sampled_from(["", "", "", " ", "x", "é", "\\"]),
    st.sampled_from(["", "", ";charset=utf-8", ' ; charset="é"', ";", "; +xml", ";\\"]),
)
words_of_rel = words.map(json.dumps) | st.just("null")
link_values = {
    "url": mostly(plain_urls, texts | anything),
    "weight": mostly(plain_numbers, numbers | anything),
    "rel": mostly(words_of_rel, texts | lists_of(texts, 3) | anything),
    "nofollow": mostly(st.sampled_from(["true", "false", "null", "1"]), anything),
}
link_objects = objects(LINK_FIELD_NAMES, link_values)
plain_links = st.builds('{{"url":{},"weight":{},"rel":{}}}'.format, plain_urls, plain_numbers, words_of_rel)
field_values = {
    "kind": mostly(st.sampled_from([*ANNOUNCED_BY, *VISIT_WORDS]).map(json.dumps), words.flatmap(as_json) | anything),
    "url": mostly(plain_urls, texts | anything),
    "fetched_at": mostly(plain_times, times | numbers | anything),
    "status": mostly(st.integers(99, 1000).map(str) | words.map(json.dumps), numbers | texts | anything),
    "failure": mostly(words.map(json.dumps) | st.just("null"), texts | anything),
    "redirects": mostly(lists_of(plain_urls), lists_of(texts) | lists_of(plain_links, 2) | anything),
    "canonical": mostly(plain_urls | st.just("null"), texts | anything),
    "content_type": mostly(
        content_types.map(json.dumps) | content_types.map(lambda text: json.dumps(text, ensure_ascii=False)),
        content_types.flatmap(as_json)
        | content_types.map(lambda text: json.dumps(text).replace("/", "\\/"))
        | anything,
    ),
    "digest": mostly(words.map(json.dumps), texts | numbers | anything),
    "last_modified": mostly(plain_times, times | numbers | anything),
    "links": mostly(
        lists_of(plain_urls) | lists_of(plain_links) | lists_of(link_objects) | lists_of(link_objects | plain_urls),
        lists_of(anything | plain_urls, 2) | anything,
    ),
    "retry_after": mostly(st.sampled_from(["null", '""', "120", '"120"']), numbers | times | texts | anything),
    "quality": mostly(
        st.floats(0, 1).map(json.dumps) | st.integers(0, 508).map(lambda step: json.dumps(step / 508)),
        st.sampled_from(
            ["0", "1", "null", '""', "1.0", "1.5", "0.25", "-0.0", "1e-3", '"0.5"', '".5"', '"high"', "true"]
        )
        | numbers
        | anything,
    ),
}
lines = st.tuples(spaces, mostly(objects(FIELD_NAMES, field_values), anything), spaces).map("".join)
encoded_lines = lines.map(lambda line: line.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@examples(150, 500)
@given(encoded_lines)
@example(b'{"url":"a","redirects":[{"url":"b"}]}')
@example(b'{"url":"a","status":"404.0"}')
@example(b'{"url":"a","quality":0.24999999999999997}')
@example(b'{"url":"a","quality":1.0000000000000000000000001}')
@example(b'{"url":"a","links":[{"url":"b","weight":2e306}]}')
@example(b'{"url":"a","failure":false,"status":200}')
@example(b'{"links":[{"url":"b"}],"redirects":["c"],"url":"a"}')
@example(b'{"kind":"seed","url":"a","links":["b"]}')
@example(b'{"url":"a","links":[{')
@example(b'{"url":"a","links":["b","c",')
@example(b"{")
@example(b'{"')
@example(b'{"url"')
@example(b'{"url":')
@example(b'{"url":"a"')
def test_the_kernel_and_the_library_agree(line: bytes) -> None:
    check(line)


@pytest.mark.slow
@examples(150, 500)
@given(st.lists(encoded_lines, min_size=1, max_size=4).map(b"\n".join), st.sampled_from([0, 3, 2**40]))
@example(b'{"url":"a","links":[{"rel":"x","url":"b","nofollow":true},{"weight":0.1,"url":"c"},"d", "e" ]}\n', 0)
@example(b'{"url":"a","status":"gone","content_type":"","redirects":["b"],"links":["c"]}\r\n\n{"url":"b"}', 3)
@example(b'\xef\xbb\xbf{"url":"\\u00e9"}\n{"url":"b","content_type":"text/html;a"}', 0)
@example(b'{"url":"a","x":' + b"[" * 60 + b"]" * 60 + b"}", 0)
def test_lines_are_messages_as_they_are(block: bytes, first_offset: int) -> None:
    found = check_messages(_of_lines(first_offset, first_offset + len(block), block, "f"))
    for offset, value in zip(found.offset.tolist(), found.values, strict=True):
        assert value == block[offset - first_offset :].partition(b"\n")[0]


@pytest.mark.parametrize(
    ("prefix", "reading"),
    [(b"\0\0\0\0\7", ANY), (PREFIX, Reading(fields=(("url", "page"),))), (PREFIX, Reading("jsonl"))],
)
def test_lines_become_avro_for_a_registry_and_if_users_say_how_they_are_read(prefix: bytes, reading: Reading) -> None:
    block = b'{"url":"a","page":"a","hop_path":"L","status":404}\n{broken\n'
    found = messages_of_lines(block, "f", 0, prefix, reading)
    assert list(found.values) == [prefix + encode_event(CrawlEvent("a", status=404))]
    assert [(reject.reason, reject.offset) for reject in found.rejects] == [(Reason.NOT_JSON, 51)]


OURS = json.dumps(
    {
        "kind": "visit",
        "url": "https://a.b/c",
        "fetched_at": "2020-02-29T03:04:05.678Z",
        "status": 200,
        "failure": None,
        "redirects": ["https://a.b/d", "http://a.b/"],
        "canonical": "https://a.b/e",
        "content_type": "text/html",
        "digest": "0123456789abcdef",
        "last_modified": 1577934245,
        "links": [
            {"url": "https://c.d/", "weight": 2.5, "rel": "ugc x"},
            {"url": "/f", "weight": None, "rel": None},
            "/g",
        ],
    },
    separators=(",", ":"),
)
SCRAPY = json.dumps(
    {
        "response_url": "https://a.b/c",
        "response_status": 404,
        "fetch_time": 1577934245.0 // 1,
        "depth": 3,
        "title": "A page",
        "redirect_urls": [],
        "outlinks": ["https://c.d/", "https://e.f/"],
    }
).replace("1577934245.0", "1577934245")
NUTCH = json.dumps(
    {
        "url": "https://a.b/c",
        "fetchTime": 1577934245123,
        "signature": "d41d8cd98f00b204e9800998ecf8427e",
        "score": 0.5,
        "modifiedTime": None,
        "outlinks": [{"toUrl": "https://c.d/", "anchor": "click here"}, {"toUrl": "https://e.f/", "anchor": ""}],
    }
)
HERITRIX = json.dumps(
    {
        "timestamp": "2020-01-02T03:04:05.678Z",
        "status_code": 200,
        "size": 1234,
        "uri": "http://a.b/robots.txt",
        "hop_path": "LLP",
        "via": "http://a.b/",
        "mimetype": "text/plain",
        "thread": "#001",
        "sha1": "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
        "content_digest": None,
        "host": "a.b",
    }
).replace(', "content_digest": null', "")
SHAPES = [
    OURS,
    SCRAPY,
    NUTCH,
    HERITRIX,
    '{"kind":"seed","url":"http://a.b/"}',
    '{"url":"http://a.b/","failure":"robots"}',
    '{"title":"\\u00e9 \\"\\ud83d\\ude00\\" 日本","url":"http://a.b/\u00e9","fetched_at":"2026-05-01T10:00:00.123456+02:00"}',
    '{"kind":"VISIT","url":"http://a.b/","fetched_at":1767225600.1234567,"meta":{"a":[1,{"b":null}],"c":{}},"x":[]}',
    '{"url":"http://a.b/","links":[{"href":"http://a.b/c","text":"\u00fc\\n","data":{"k":[[]]}}]}',
    '{"url":"http://a.b/","fetched_at":"Thu, 29 Feb 2024 03:04:05 GMT","last_modified":"2024-02-29"}',
    '{"url":"http:\\/\\/a.b\\/","links":["\\/c"],"title":"\\\\\\/ \\\\/","text":"\\/\\"\\/"}',
    '{"url":"http://\\u00fc.b/\\u4e2D\\ud83d\\uDE00","links":["\\u00e9"],"title":"\\\\u00fc\\u0000\\u000a\\u007f"}',
    '{"url":"http://a.b/","links":["/c",{"url":"/d","weight":2},"/e"],"redirects":["http://a.b/f","/g"],"canonical":"/h"}',
    '{"url":"http://a.b/","links":[null,"/c",{"text":"none","weight":2,"rel":"ugc"},null,"/d"],"redirects":["/e"]}',
    '{"url":"http://a.b/\\"c\\"","links":["/\\"d\\""]}',
    '{"url":"http://a.b/","status":500,"failure":" Robots_TXT ","retry_after":"120"}',
]

SHAPE_NAMES = [
    "ours",
    "scrapy",
    "nutch",
    "heritrix",
    "seed",
    "failure",
    "title",
    "meta",
    "text",
    "dates",
    "slashes",
    "letters",
    "links before redirects",
    "links without a url",
    "quotes",
    "failure and wait",
]


@examples(60, 1000)
@given(st.sampled_from(SHAPES), st.data())
def test_the_kernel_and_the_library_agree_on_damaged_lines(line: str, data: st.DataObject) -> None:
    damaged = bytearray(line.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        more = data.draw(
            st.sampled_from(
                [b"", b"\xff", b"\xc3\xa9", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"0", b"-"]
            )
        )
        damaged[at : at + data.draw(st.integers(0, 2))] = more
    check(bytes(damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]))


@pytest.mark.parametrize("line", [b"{", b"{}", b"[]", b"x", b"\xff"])
def test_very_many_equal_short_lines_are_read_as_often_as_they_are_listed(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 16 MiB may have eight million such lines: to read each would take a minute."""
    reads = []
    monkeypatch.setattr(jsonl, "event_of_line", lambda *given: reads.append(1) or event_of_line(*given))
    event = b'{"url": "https://a.example/"}\n'
    block = 20 * (event + 1_000 * (line + b"\n"))
    found = decode_jsonl(block, "log", 7)
    assert len(reads) == len(found.rejects) == MOST_LISTED
    monkeypatch.setattr(decoded_files, "_MOST_SHORT", 0)
    each = decode_jsonl(block, "log", 7)
    assert len(reads) == MOST_LISTED + 20_000
    assert (found.rejects, found.unlisted) == (each.rejects, each.unlisted) and len(found.events) == 20


LINES_BY_FIELD = {
    "url": b'{"url":"https://a.b/%b","links":[]}',
    "only a url": b'{"url":"%b","links":[]}',
    "canonical": b'{"url":"https://a.b/","canonical":"%bhttps://a.b/c","links":[]}',
    "links": b'{"url":"https://a.b/","links":["/x%by","%b",{"url":"%b/z","text":"%b","rel":"%b"}]}',
    "rel": b'{"url":"https://a.b/","links":[{"url":"/z","rel":["me","%b"]},{"url":"/y","rel":[" UGC%b"]}]}',
    "redirects": b'{"redirects":["https://a.b/%b"],"url":"https://a.b/","links":[]}',
    "digest": b'{"url":"https://a.b/","digest":"ab%bc","links":[]}',
    "failure": b'{"url":"https://a.b/","failure":"time%bout"}',
    "type": b'{"url":"https://a.b/","content_type":"text/%bhtml; charset=%b","links":[]}',
    "title": b'{"url":"https://a.b/","title":"a%bb","x":{"k%b":["%b"]},"links":[]}',
    "key": b'{"url":"https://a.b/","sta%btus":200,"links":[]}',
    "modified": b'{"url":"https://a.b/","last_modified":"long ago%b","links":[]}',
    "retry": b'{"url":"https://a.b/","status":429,"retry_after":"%b"}',
}
OF_MARKS = [b"", rb"\n", rb"\t\r", rb"\\", rb"\""]
ESCAPES = [*OF_MARKS, rb"\/", rb"\u00e9", rb"\u0009", rb"\b", b"\xff", b"\xfc", b"\xc3\xa9", b"\t"]


@pytest.mark.parametrize("field", LINES_BY_FIELD)
def test_the_kernel_and_the_library_agree_on_escapes_in_every_field(field: str) -> None:
    line = LINES_BY_FIELD[field]
    for escape in ESCAPES:
        check(line.replace(b"%b", escape))
        check(b"\n".join([line.replace(b"%b", escape), rb'{"url":"http:\/\/a.b\/"}', line.replace(b"%b", b"\xfd")]))


@pytest.mark.parametrize("field", ["url", "canonical", "redirects", "title", "modified"])
def test_the_kernel_reads_escapes_of_white_space_backslashes_and_quotes_itself(field: str) -> None:
    for escape in OF_MARKS[: 1 if field == "modified" else None]:
        text, _ = with_fewer_escapes(LINES_BY_FIELD[field].replace(b"%b", escape) + b"\n")
        assert list(scan_text(text, 0).odd()) == []


@pytest.mark.parametrize("first", [b"\0", b"\xc3\xa9"])
def test_a_line_of_another_crawler_that_begins_like_a_frame_is_no_message_as_it_is(first: bytes) -> None:
    line = b'xample,tern)/ 20260504060100 {"url": "https://tern.example/old", "status": "200"}\n'
    block = b'{"url":"https://a.example/"}\n' + first + line
    found = messages_of_lines(block, "f", 0, b"\xc3\x01" + 8 * b"x")
    assert len(found) == 2 and all(value.startswith(b"\xc3\x01xxxxxxxx") for value in found.values)
    assert messages_of_lines(block[:29], "f", 0, b"\xc3\x01").values[0] == block[:28]


@pytest.mark.parametrize(
    "value", ["3600", "0", "-1", "1e9", "12.5", "99999999999999999999", "null", "true", '"120"', '"soon"', '""', "[1]"]
)
def test_the_kernel_and_the_library_agree_on_how_long_a_host_is_to_be_left_alone(value: str) -> None:
    for time in ("", '"fetched_at":1577934245,'):
        check(b'{"url":"https://a.b/",%b"status":503,"retry_after":%b}' % (time.encode(), value.encode()))


def test_the_kernel_and_the_library_agree_on_thousands_of_damaged_lines(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded_files, "MOST_LISTED", 10_000)
    chance = random.Random(seed)
    block = []
    for _ in range(6000):
        line = bytearray(chance.choice(SHAPES).encode())
        for _ in range(chance.randint(1, 3)):
            if not line:
                break
            at = chance.randrange(len(line))
            kind = chance.randrange(4)
            if kind == 0:
                line[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                del line[at]
            elif kind == 2:
                line.insert(at, chance.choice(b'"\\ntr{}[],: 019.-eE\xc3\xfc\xff'))
            else:
                other = chance.choice(SHAPES).encode()
                line[at:] = other[chance.randrange(len(other)) :]
        block.append(bytes(line))
    check(b"\n".join(block))
    for line in block[:300]:  # with no bytes after it
        check(line)


def test_the_kernel_and_the_library_agree_on_thousands_of_ordinary_lines(seed: int) -> None:
    chance = random.Random(seed)

    def maybe(value: object) -> object:
        odd: list[object] = [None, "", 0, True, 1.5, "x", [], {}, "\u00e9", -1]
        return value if chance.random() < 0.95 else chance.choice(odd)

    def url() -> str:
        return f"http{chance.choice(['', 's'])}://{'x' * chance.randrange(12)}.example/" + "p" * chance.randrange(20)

    def link() -> object:
        weight = chance.choice([1, 0, 63, 64, 0.5, 0.125, 2.75, 0.001, 33.333, None, chance.random()])
        rel = chance.choice(["nofollow", "a ugc", "SPONSORED", "noopener", "", "nofollow ", None])
        others = [
            ("weight", maybe(weight)),
            ("rel", maybe(rel)),
            ("nofollow", chance.random() < 0.5),
            ("anchor", chance.choice(["a b", "é", {"a": []}])),
        ]
        chosen = [(chance.choice(LINK_FIELD_NAMES["url"]), maybe(url())), *chance.sample(others, chance.randrange(3))]
        return url() if chance.random() < 0.5 else dict(chance.sample(chosen, len(chosen)))

    def time() -> object:
        text = f"{chance.randint(1988, 2101)}-{chance.randint(1, 12):02}-{chance.randint(1, 31):02}"
        text += f"{chance.choice('T ')}{chance.randint(0, 24):02}:{chance.randint(0, 59):02}:{chance.randint(0, 60):02}"
        text += chance.choice(["", ".1", ".05", ".1239", ".123456"]) + chance.choice(["", "Z", "Z", "+01:00"])
        second = chance.randint(6 * 10**8, 4_200_000_000)
        exact = round(second + chance.random(), chance.randint(1, 7))
        return chance.choice([text, text, second, exact, exact * 1000, chance.randint(0, 5 * 10**12)])

    def anything(depth: int = 0) -> object:
        kind = chance.randrange(8 if depth < 4 else 5)
        if kind >= 5:
            values = [anything(depth + 1) for _ in range(chance.randrange(4))]
            return values if kind == 5 else {f"{chance.choice('aé')}{n}": value for n, value in enumerate(values)}
        text = "".join(chance.choice('ab"\\/é日😀\n\x7f\x01') for _ in range(chance.randrange(9)))
        return [text, chance.randint(-9, 10 ** chance.randint(1, 17)), chance.random(), None, True][kind]

    block = []
    for _ in range(5000):
        values = {
            "kind": chance.choice([*VISIT_WORDS, "seed"]),
            "fetched_at": time(),
            "status": chance.choice([200, 404, 99, 1000, "200", "robots", "dns"]),
            "failure": chance.choice([None, "robots", "gone", "timeout", "not-found"]),
            "redirects": [url() for _ in range(chance.randrange(4))],
            "canonical": url(),
            "content_type": chance.choice(
                [*MEDIA_TYPES, "TEXT/HTML; x", "image/png", ";", 'a/b; c="d"', "image/svg+xml"]
            ),
            "digest": f"{chance.getrandbits(64):x}",
            "last_modified": time(),
            "links": [link() for _ in range(chance.randrange(5))],
            "title": anything(),
            "meta": anything(),
        }
        chosen = chance.sample(sorted(values), chance.randrange(8))
        if "links" in chosen and chance.random() < 0.8:
            chosen.append(chosen.pop(chosen.index("links")))
        members = [(chance.choice(FIELD_NAMES.get(field, (field,))), maybe(values[field])) for field in chosen]
        members.insert(chance.randint(0, len(members)), ("url", maybe(url())))
        marks = chance.choice([(",", ":"), (", ", ": "), (" ,", "\t:\r")])
        block.append(json.dumps(dict(members), separators=marks, ensure_ascii=chance.random() < 0.5).encode())
    check(b"\n".join(block))
    assert decode_jsonl(b"\n".join(block), "f", 0).events.links > 2000


@pytest.mark.slow
@examples(80, 200)
@given(
    st.lists(encoded_lines | st.sampled_from([b"", b" \t", b"\r", b"\xef\xbb\xbf"]), max_size=8),
    st.integers(0, 2**40),
    st.data(),
)
def test_a_block_may_be_cut_at_any_line(given: list[bytes], first_offset: int, data: st.DataObject) -> None:
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n", b" \n"])) for _ in given]
    whole = [line.replace(b"\n", b"") + end for line, end in zip(given, ends, strict=True)]
    if whole and data.draw(st.booleans()):
        whole[-1] = whole[-1][:-1]
    check(b"".join(whole), first_offset)
    cut = data.draw(st.integers(0, len(whole)))
    halves = b"".join(whole[:cut]), b"".join(whole[cut:])
    parts = [outcome(decode_jsonl(halves[0], "f", 5)), outcome(decode_jsonl(halves[1], "f", 5 + len(halves[0])))]
    both = outcome(decode_jsonl(b"".join(whole), "f", 5))
    assert both == (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])


@given(st.lists(encoded_lines, min_size=1, max_size=6), st.data())
def test_selecting_and_merging_rows_loses_nothing(given: list[bytes], data: st.DataObject) -> None:
    events = decode_jsonl(b"\n".join(line.replace(b"\n", b"") for line in given), "f", 0).events
    rows = sorted(data.draw(st.sets(st.integers(0, len(events) - 1)))) if len(events) else []
    others = sorted(set(range(len(events))) - set(rows))
    first, second = (events.take(np.array(which, np.int64)) for which in (rows, others))
    assert rows_of(first) == [rows_of(events)[row] for row in rows]
    assert rows_of(merge(first, second)) == rows_of(events) == rows_of(merge(second, first))
    assert events.links == sum(len(row[-1]) - 2 - row[-2] for row in rows_of(events))  # type: ignore[arg-type, operator]


# -- kinds of content

MEDIA = [
    ("text/html", HTML),
    ("Text/HTML; charset=UTF-8", HTML),
    ("\t text/html \t;", HTML),
    ('text/html; charset="utf-8"', HTML),
    ("application/xhtml+xml", HTML),
    ("application/rss+xml", FEED),
    ("application/atom+xml;type=entry", FEED),
    ("application/feed+json", FEED),
    ("APPLICATION/RDF+XML", FEED),
    ("application/pdf", PDF),
    ("text/xml", XML),
    ("application/xml", XML),
    ("image/svg+xml", XML),
    ("application/vnd.x+XML ; a=b", XML),
    ("+xml", XML),
    ("text/plain", OTHER_MEDIA),
    ("text/html5", OTHER_MEDIA),
    ("xtext/html", OTHER_MEDIA),
    ("text/htm", OTHER_MEDIA),
    ("text/plain; text/html", OTHER_MEDIA),
    ("image/xml+svg", OTHER_MEDIA),
    ("application/json;+xml", OTHER_MEDIA),
    ("image/svgxml", OTHER_MEDIA),
    ("text\x0fhtml", OTHER_MEDIA),
    ("image/svg\x0bxml", OTHER_MEDIA),
    ("html", OTHER_MEDIA),
    ("téxt/html", OTHER_MEDIA),
    ("", UNKNOWN_MEDIA),
    (" \t", UNKNOWN_MEDIA),
    ("; charset=utf-8", UNKNOWN_MEDIA),
]


def media(line: str) -> list[int]:
    decoded = decode_jsonl(line.encode(), "f", 0)
    assert not decoded.rejects
    return decoded.events.media.tolist()


@pytest.mark.parametrize(("content_type", "kind"), MEDIA)
def test_a_content_type_determines_the_kind_of_content(content_type: str, kind: int) -> None:
    writer = EventWriter()
    writer.add(0, CrawlEvent("http://a.b/", content_type=content_type))
    assert writer.events().media.tolist() == [kind]
    escaped = "".join(f"\\u{ord(c):04x}" for c in content_type)
    for name in FIELD_NAMES["content_type"]:
        assert media(json.dumps({"url": "http://a.b/", name: content_type}, ensure_ascii=False)) == [kind]
        assert media(f'{{"{name}":"{escaped}","url":"http://a.b/"}}') == [kind]


def test_the_kernel_finds_the_kind_of_content_with_any_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "event_of_line", None)
    for content_type, kind in MEDIA:
        if min(content_type.partition(";")[0], default=" ") >= " ":  # no escape in the name
            assert media(json.dumps({"url": "a", "mimetype": content_type}, ensure_ascii=False)) == [kind]
    assert media('{"url":"a","contentType":null}\n{"url":"a"}\n{"url":"a","mime_type":"text/html"}') == [0, 0, HTML]


def test_kinds_of_content_are_documented() -> None:
    text = (TOP / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    rows = re.search(r"\| kind of content .*\n\|.*\n((?:\|.*\n)+)", text)
    assert rows
    table = [[cell.strip() for cell in row.split("|")[1:3]] for row in rows[1].splitlines()]
    names = {"html": HTML, "feed": FEED, "pdf": PDF, "xml": XML, "other": OTHER_MEDIA, "unknown": UNKNOWN_MEDIA}
    assert [kind for kind, _ in table] == list(names)
    types = {name: names[kind] for kind, cell in table for name in re.findall("`([^`]+)`", cell)}
    assert types == MEDIA_TYPES


@pytest.mark.parametrize("value", ["null", '""', "1.5", "[]", "{}", "false"])
def test_without_a_content_type_the_kind_is_unknown(value: str) -> None:
    assert media(f'{{"url":"a","content_type":{value}}}') == [OTHER_MEDIA if value == "false" else UNKNOWN_MEDIA]


# -- the kernel is used


ORDINARY = {line: name for line, name in zip(SHAPES, SHAPE_NAMES, strict=True) if name != "heritrix"}
"""Records of other crawlers are read without the kernel."""


@pytest.mark.parametrize("line", ORDINARY, ids=ORDINARY.values())
def test_the_kernel_reads_ordinary_lines(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> CrawlEvent:
        raise AssertionError(given)

    block = f"{line}\n{line}\r\n {line} ".encode()
    check(block)
    monkeypatch.setattr(jsonl, "event_of_line", never)
    assert len(decode_jsonl(block, "f", 0).events) == 3


# -- lines


@pytest.mark.parametrize("broken", ["null", "{}", "3", "[]", "true", '{"url":null}', '{"url":7,"weight":2}'])
def test_a_broken_link_is_kept_as_one_that_leads_nowhere(broken: str) -> None:
    line = '{"url":"a","links":["b",' + broken + ',{"url":"c"}]}'
    check(line.encode())
    assert one(line)[-1][2:] == ((b"b", 1024, 0), (None, 1024, 0), (b"c", 1024, 0))
    assert decode_jsonl(line.encode(), "f", 0).events.broken_links == 1


def test_blank_lines_are_skipped_and_offsets_are_those_of_lines() -> None:
    decoded = decode_jsonl(b'\n \r\n{"url":"a"}\n\n\t{"url":"b"}', "f", 100)
    assert decoded.events.offset.tolist() == [104, 117] and not decoded.rejects
    assert len(decode_jsonl(b"", "f", 0).events) == 0


def test_a_byte_order_mark_is_skipped() -> None:
    assert one(b'\xef\xbb\xbf{"url":"a"}')[-1] == ((b"a", 0, 0), (None, 0, 0))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"url":"\xff"}', Reason.NOT_UTF8),
        (b"\xff", Reason.NOT_UTF8),
        ('{"url":"\\ud800"}', Reason.NOT_JSON),
        (b'{"url":"\xed\xa0\x80"}', Reason.NOT_UTF8),
        ('{"url":"a"', Reason.NOT_JSON),
        ('{"url":"a"}}', Reason.NOT_JSON),
        ('{"url":"a"}{"url":"b"}', Reason.NOT_JSON),
        ('{"url":"a",}', Reason.NOT_JSON),
        ('{"url":"a","status":1e400}', Reason.NOT_JSON),
        ("[" * 2000, Reason.NOT_JSON),
        ('["a"]', Reason.NOT_AN_EVENT),
        ("null", Reason.NOT_AN_EVENT),
        ("{}", Reason.NOT_AN_EVENT),
        ('{"url":null}', Reason.NOT_AN_EVENT),
        ('{"url":1}', Reason.BAD_FIELD),
        ('{"url":"a","kind":"other"}', Reason.BAD_FIELD),
        ('{"url":"a","kind":' + "[" * 1000 + "]" * 1000 + "}", Reason.BAD_FIELD),
        ('{"url":"a","status":1000}', Reason.BAD_FIELD),
        ('{"url":"a","status":"404.5"}', Reason.BAD_FIELD),
        ('{"url":"a","status":true}', Reason.BAD_FIELD),
        ('{"url":"a","redirects":"b"}', Reason.BAD_FIELD),
        ('{"url":"a","redirects":[{"url":"b"}]}', Reason.BAD_FIELD),
        ('{"url":"a","links":{"url":"b"}}', Reason.BAD_FIELD),
        ('{"url":"a","status":"FETCHED AND MORE"}', Reason.BAD_FIELD),
        ('{"url":"a","status":"ok"}', Reason.BAD_FIELD),
        ('{"url":"a","links":[{"url":"b","weight":-1}]}', Reason.BAD_WEIGHT),
        ('{"url":"a","links":[{"url":"b","weight":"1"}]}', Reason.BAD_WEIGHT),
        ('{"url":"a","fetched_at":"now"}', Reason.BAD_TIME),
        ('{"url":"a","fetched_at":1}', Reason.BAD_TIME),
        ('{"url":"a","fetched_at":"2021-02-29"}', Reason.BAD_TIME),
        ('{"url":"a","fetched_at":' + "[" * 1000 + "]" * 1000 + "}", Reason.BAD_TIME),
        ('{"url":"a","redirects":[' + ",".join(['"b"'] * (MOST_REDIRECTS + 1)) + "]}", Reason.BAD_FIELD),
        ('{"url":"a","links":[' + ",".join(['"b"'] * (MOST_LINKS + 1)) + "]}", Reason.TOO_MANY_LINKS),
    ],
    ids=str,
)
def test_lines_that_are_not_events_are_rejected(line: str | bytes, why: Reason) -> None:
    if len(line) < MOST_REJECTED_BYTES:
        assert reason(line) == why
    else:
        (reject,) = decode_jsonl(line.encode() if isinstance(line, str) else line, "f", 7).rejects
        assert (reject.reason, reject.offset, len(reject.bytes)) == (why, 7, MOST_REJECTED_BYTES)


def test_the_years_of_a_visit_are_limited() -> None:
    for time in ("1990-01-01T00:00:00Z", "2099-12-31T23:59:59Z"):
        assert one(f'{{"url":"a","fetched_at":"{time}"}}')
    for time in ("1989-12-31T23:59:59Z", "2100-01-01T00:00:00Z"):
        assert reason(f'{{"url":"a","fetched_at":"{time}"}}') is Reason.BAD_TIME


def test_links_and_redirects_are_limited() -> None:
    many = ",".join(['"b"'] * MOST_LINKS)
    hops = ",".join(['"c"'] * MOST_REDIRECTS)
    row = one('{"url":"a","redirects":[' + hops + '],"links":[' + many + "]}")
    assert row[-2] == MOST_REDIRECTS and len(row[-1]) == 2 + MOST_REDIRECTS + MOST_LINKS  # type: ignore[arg-type]


def test_the_length_of_a_line_is_limited() -> None:
    head, tail = b'{"url":"a","filler":"', b'"}'
    fits = head + b"x" * (MOST_EVENT_BYTES - len(head) - len(tail)) + tail
    decoded = decode_jsonl(b" \n" + fits + b"\n" + fits.replace(b"x", b"xx", 1) + b'\n{"url":"b"}', "f", 0)
    assert decoded.events.offset.tolist() == [2, 4 + 2 * len(fits) + 1 - 1 + 1]
    (reject,) = decoded.rejects
    assert reject.reason is Reason.TOO_LARGE and len(reject.bytes) == MOST_REJECTED_BYTES


# -- what fields mean


@pytest.mark.parametrize(
    ("json_fields", "status"),
    [
        ('"status":200', 200),
        ('"status":"404"', 404),
        ('"status":"404.0"', 404),
        ('"status":404.0', 404),
        ('"status":0', FAILED),
        ('"status":-9998', BLOCKED),
        ('"status":-2', FAILED),
        ('"status":null', UNKNOWN_STATUS),
        ('"x":0', UNKNOWN_STATUS),
        ('"status":"robots"', BLOCKED),
        ('"status":"timeout"', FAILED),
        ('"failure":"ROBOTS_TXT","status":200', BLOCKED),
        ('"status":200,"failure":"robots-txt"', BLOCKED),
        ('"failure":"gone"', GONE),
        ('"failure":"dns"', FAILED),
        ('"error":{"type":"x"}', FAILED),
        ('"error":false,"status":200', 200),
        ('"error":"","status":200', 200),
    ],
)
def test_status_and_failure_determine_the_status_column(json_fields: str, status: int) -> None:
    check(b'{"url":"a",' + json_fields.encode() + b"}")
    assert one('{"url":"a",' + json_fields + "}")[4] == status


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        ("2020-01-02T03:04:05Z", 1577934245000),
        ("2020-01-02 03:04:05.6789", 1577934245678),
        ("2020-01-02T03:04:05,5 UTC", 1577934245500),
        ("2020-01-02T04:34:05+01:30", 1577934245000),
        ("2020-01-01T20:04:05-0700", 1577934245000),
        ("2020-01-02T03:04", 1577934240000),
        ("2020-01-02", 1577923200000),
        ("2016-12-31T23:59:60Z", 1483228799000),
        ("20200102030405", 1577934245000),
        ("20200102030405678", 1577934245678),
        ("Thu, 02 Jan 2020 03:04:05 GMT", 1577934245000),
        (1577934245, 1577934245000),
        (1577934245678, 1577934245678),
        (1577934245.678, 1577934245678),
        ("1577934245", 1577934245000),
        ("1577934245.5", 1577934245500),
        ("2021-02-29", None),
        ("2020-01-02T25:00:00", None),
        ("2020-01-02T23:59:61", None),
        ("2020-01-02T03:04:05+1", None),
        (True, None),
        ({}, None),
        (1e300, None),
    ],
)
def test_times_in_all_formats(value: object, time_ms: int | None) -> None:
    assert time_ms_of(value) == time_ms
    check(orjson.dumps({"url": "a", "fetched_at": value}))


@pytest.mark.parametrize("value", ["never", "0000-00-00", 1, -1, 2**63, {}, [], True, "4000-01-01T00:00:00Z"])
def test_an_event_with_a_bad_last_modified_is_kept(value: object) -> None:
    line = orjson.dumps({"url": "a", "last_modified": value})
    check(line)
    assert one(line)[3] == 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (120, 120),
        ("120", 120),
        (" 120 ", 120),
        (0.2, 1),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
        ("2026-01-01T00:02:00Z", 120),
        ("Thu, 01 Jan 2099 00:00:00 GMT", LONGEST_RETRY_SECONDS),
        ("Thu, 01 Jan 2015 00:00:00 GMT", 0),
        (1e99, LONGEST_RETRY_SECONDS),
        (2**63, LONGEST_RETRY_SECONDS),
        ("9" * 5000, LONGEST_RETRY_SECONDS),
        ("1e99", 0),
        (-1, 0),
        ("-1", 0),
        (0, 0),
        ("", 0),
        ("soon", 0),
        (True, 0),
        ([120], 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_how_long_a_host_asks_to_wait_is_bounded(value: object, seconds: int) -> None:
    line = orjson.dumps({"url": "a", "fetched_at": "2026-01-01T00:00:00Z", "status": 429, "retry-after": value})
    check(line)
    assert one(line)[8] == seconds
    if isinstance(value, str) and "GMT" in value:
        assert one(orjson.dumps({"url": "a", "retry_after": value}))[8] == 0, "a date needs the time of the fetch"


@pytest.mark.parametrize("word", ["too-many-requests", "TOO_MANY_REQUESTS", "rate-limited", "rate-limit", "throttled"])
def test_failures_may_mean_that_the_host_is_busy(word: str) -> None:
    line = orjson.dumps({"url": "a", "failure": word})
    check(line)
    assert one(line)[4] == BUSY


@pytest.mark.parametrize(
    ("link", "weight", "nofollow"),
    [
        ('"b"', 1024, 0),
        ('{"href":"b"}', 1024, 0),
        ('{"toUrl":"b","weight":0}', 0, 0),
        ('{"url":"b","weight":0.5,"rel":"UGC"}', 512, 1),
        ('{"url":"b","weight":0.0005}', 1, 0),
        ('{"url":"b","weight":64}', 65535, 0),
        ('{"url":"b","weight":1e308}', 65535, 0),
        ('{"url":"b","weight":18446744073709551616}', 65535, 0),
        ('{"url":"b","rel":["noopener","nofollow"]}', 1024, 1),
        ('{"url":"b","rel":"noopener nofollower"}', 1024, 0),
        ('{"url":"b","nofollow":true}', 1024, 1),
        ('{"url":"b","nofollow":"true"}', 1024, 0),
    ],
)
def test_links_in_all_formats(link: str, weight: int, nofollow: int) -> None:
    check(b'{"url":"a","links":[' + link.encode() + b"]}")
    assert one('{"url":"a","links":[' + link + "]}")[-1][2] == (b"b", weight, nofollow)  # type: ignore[index]


@given(st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 2**80))
def test_weights_are_in_units_of_1024_up_to_the_heaviest(weight: float) -> None:
    assert quantised(weight) == min(round(min(weight, 1e9) * 1024), 65535)


@pytest.mark.parametrize("weight", [-1.0, -0.001, float("nan"), float("inf")])
def test_invalid_weights_are_refused(weight: float) -> None:
    with pytest.raises(EventRefused, match="give a finite number from 0"):
        quantised(weight)


@given(
    st.lists(st.sampled_from(["nofollow", "NOFOLLOW", "ugc", "Sponsored", "no", "nofollowx", "", "\u212a"])),
    st.sampled_from(" \t\n,\x00\u00a0"),
)
def test_rel_is_words(words: list[str], space: str) -> None:
    rel = space.join(words)
    expected = bool({"nofollow", "ugc", "sponsored"} & set(rel.lower().split(space))) if space in " \t\n\x00" else None
    assert expected is None or is_nofollow(Link("b", rel=rel)) == expected
    check(orjson.dumps({"url": "a", "links": [{"url": "b", "rel": rel}]}))
