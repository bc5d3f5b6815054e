"""Valid inputs of every reader, made from a random source: what mutations begin with."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import random
import zlib
from functools import cache
from typing import Any

import fastavro
import zstandard

from opicflow.connectors.files.event_encoding import encode_event
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import to_avro
from opicflow.schemas.varint import encode_signed
from support.archives import deflated, gz, metadata, record, response, zst
from support.canonical_urls import PLAIN
from support.hostile_values import altered
from support.logs import json_line

HOSTS = [
    *("a.example", "www.a.example", "b.example", "A.EXAMPLE", "a.example.", "a..example", "localhost", "1.2.3.4"),
    *("0x7f.1", "999.1.1.1", "[::1]", "[::g]", "xn--bcher-kva.example", "xn--a", "b\u00fccher.example", "a_b.example"),
    *(
        "a" * 64 + ".example",
        ("a" * 60 + ".") * 5 + "b",
        "user:secret@a.example",
        "a%41.example",
        "-a.example",
        "",
        "co.uk",
    ),
]
SCHEMES = [
    "http://",
    "https://",
    "HTTP://",
    "http:",
    "https:/",
    "//",
    "ftp://",
    "mailto:",
    "javascript:",
    "",
    " http://",
]
PORTS = ["", "", "", ":80", ":443", ":8080", ":0", ":99999", ":", ":x"]
PARTS = [
    *(
        "/",
        "/a",
        "/a/b",
        "/.",
        "/..",
        "/%2e%2E/",
        "//",
        "/a b",
        "/K\u00f6ln",
        "/%zz",
        "/%4",
        "/~",
        "\\x",
        "/;jsessionid=A1",
    ),
    *(
        "?",
        "?a=1",
        "&b=2",
        "&utm_source=x",
        "?PHPSESSID=9",
        "#a",
        "#a?b",
        "/%C3%A9",
        "/\U0001f600",
        "'",
        "|",
        "^",
        "\t",
        "%00",
    ),
    "/" + "long" * 200,
]
PAGES = [f"{scheme}://host{n % 4}.example/page/{n // 4}" for scheme in ("http", "https") for n in range(48)]
_MS = 1_577_934_245_000


def url(draw: random.Random) -> str:
    """Return a URL, often of a page, of few hosts and pages, so that pages are repeated."""
    if draw.random() < 0.6:
        return draw.choice(PAGES)
    if draw.random() < 0.3:
        return draw.choice(PLAIN)
    parts = "".join(draw.choices(PARTS, k=draw.randrange(4)))
    return draw.choice(SCHEMES) + draw.choice(HOSTS) + draw.choice(PORTS) + parts


def event(draw: random.Random) -> CrawlEvent:
    """Return a crawl event: a visit with its links, a redirect, a failure, or an announcement."""
    time_ms = _MS + draw.randrange(90) * 3_600_000
    if draw.random() < 0.15:
        return CrawlEvent(url(draw), announce=True, last_modified_ms=draw.choice([None, time_ms]))
    links = [
        Link(
            url(draw),
            draw.choice([None, None, None, 0.5, 2.0, 0.0]),
            draw.choice([None, None, "nofollow", "noopener", "UGC sponsored"]),
        )
        for _ in range(draw.choice([0, 1, 2, 3, 8]))
    ]
    return CrawlEvent(
        url(draw),
        fetched_at_ms=draw.choice([time_ms, time_ms, None]),
        status=draw.choice([None, 200, 200, 200, 304, 301, 404, 410, 403, 429, 500, 503]),
        failure=draw.choice([None, None, None, "timeout", "robots", "dns"]),
        redirects=tuple(url(draw) for _ in range(draw.choice([0, 0, 0, 1, 3]))),
        canonical=draw.choice([None, None, url(draw)]),
        content_type=draw.choice([None, "text/html", "text/html; charset=utf-8", "application/pdf", "x"]),
        digest=draw.choice([None, "sha1:ABCDEF", "x" * 70]),
        last_modified_ms=draw.choice([None, time_ms - 86_400_000]),
        links=draw.choice([tuple(links), tuple(links), None]),
        retry_after=draw.choice([None, None, 5, 86_400]),
        quality=draw.choice([None, None, 0.0, 0.25, 1.0, 2.0]),
    )


def event_values(draw: random.Random) -> Any:
    """Return an event as JSON values."""
    return json.loads(json_line(event(draw)))


# -- Avro


def text(value: str | bytes) -> bytes:
    """Return a string or bytes of Avro."""
    data = value.encode() if isinstance(value, str) else value
    return encode_signed(len(data)) + data


SYNC = b"0123456789abcdef"


def avro_head(written: Any, codec: str = "null") -> bytes:
    """Return the head of a container file."""
    meta = {"avro.schema": json.dumps(written), "avro.codec": codec}
    return (
        b"Obj\x01" + encode_signed(2) + b"".join(text(key) + text(value) for key, value in meta.items()) + b"\0" + SYNC
    )


def avro_block(records: int, data: bytes) -> bytes:
    """Return a block of a container file."""
    return encode_signed(records) + encode_signed(len(data)) + data + SYNC


CODECS = {
    "null": lambda data: data,
    "deflate": deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": lambda data: zstandard.ZstdCompressor().compress(data),
}


def event_schema(draw: random.Random) -> Any:
    """Return a writer's schema of crawl events: the published one, or one that is altered."""
    written = json.loads(json.dumps(schema("CrawlEvent")))
    return altered(written, draw) if draw.random() < 0.25 else written


@cache
def _parsed() -> Any:
    return fastavro.parse_schema(schema("CrawlEvent"))


def event_body(draw: random.Random) -> bytes:
    """Return an event in Avro, without a frame, as opicflow or as fastavro writes it."""
    if draw.random() < 0.5:
        return encode_event(event(draw))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed(), to_avro(event(draw)))
    return out.getvalue()


# -- archives


_TAGS = ["a", "A", "area", "link", "a\n"]
_ATTRIBUTES = ["href", "HREF", "rel=nofollow href"]


def page(draw: random.Random) -> bytes:
    """Return the HTML of a page with links in many forms."""
    quote = draw.choice(['"', "'", ""])
    links = "".join(
        f"<{draw.choice(_TAGS)} {draw.choice(_ATTRIBUTES)}={quote}{url(draw)}{quote}>x</a>"
        for _ in range(draw.randrange(5))
    )
    head = draw.choice(
        [
            "",
            f'<base href="{url(draw)}">',
            '<meta name="robots" content="nofollow">',
            f'<link rel="canonical" href="{url(draw)}">',
            '<meta charset="latin-1">',
            "<!-- <a href=/no> -->",
            "<script>'<a href=/no>'</script>",
        ]
    )
    return f"<html><head>{head}</head><body>{links}&amp;&#98;&#x63;</body></html>".encode()


def warc_record(draw: random.Random) -> bytes:
    """Return a record of a WARC file."""
    kind = draw.choice(["response", "response", "response", "resource", "warcinfo", "request", "revisit", "conversion"])
    body = page(draw)
    if kind in ("response", "revisit"):
        coding = draw.choice(["", "", "", "gzip", "deflate", "gzip, deflate", "br"])
        if "gzip" in coding:
            body = gz(body)
        if "deflate" in coding:
            body = draw.choice([deflated, zlib.compress])(body)
        fields = {"Content_Encoding": coding} if coding else {}
        if draw.random() < 0.2:
            fields["Transfer_Encoding"] = "chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        if draw.random() < 0.2:
            fields["Location"] = url(draw)
        body = response(body, draw.choice([200, 200, 301, 404, 503]), **fields)
    return record(body, kind, url(draw), WARC_Date=draw.choice(["2020-01-02T03:04:05Z", "2020", "x"]))


def wat_values(draw: random.Random) -> Any:
    """Return the metadata of a page in a WAT file."""
    links = [
        {
            "path": draw.choice(["A@/href", "IMG@/src", "LINK@/href"]),
            "url": url(draw),
            "rel": draw.choice(["", "nofollow"]),
        }
        for _ in range(draw.randrange(4))
    ]
    head = {
        "Base": url(draw),
        "Metas": [{"name": "robots", "content": "nofollow"}],
        "Link": [{"rel": "canonical", "url": url(draw)}],
    }
    html = {"Links": links, "Head": {name: value for name, value in head.items() if draw.random() < 0.3}}
    return {
        "Response-Message": {"Status": draw.choice(["200", 200, "404", "301"])},
        "Headers": {
            "Content-Type": "text/html",
            "Location": url(draw),
            "Last-Modified": "Thu, 02 Jan 2020 03:04:05 GMT",
        },
        "HTML-Metadata": html,
    }


def wat_record(draw: random.Random) -> bytes:
    """Return a record of a WAT file, whose values may be altered."""
    values = wat_values(draw)
    if draw.random() < 0.5:
        values = altered(values, draw)
    return metadata(values, **{"WARC-Target-URI": url(draw)})


def compressed(data: bytes, draw: random.Random) -> bytes:
    """Return a gzip or zstd file with one or more members."""
    at = draw.randrange(len(data) + 1)
    parts = draw.choice([[data], [data[:at], data[at:]], [b"", data], [data, b""]])
    return draw.choice([gz, zst])(*parts)


# -- tables


def edges(draw: random.Random) -> bytes:
    """Return an edge list."""
    separator = draw.choice(["\t", " ", ","])
    rows = draw.choice([[], [], [separator.join(["source", "target"])]])
    for _ in range(draw.randrange(1, 8)):
        weight = draw.choice([[], [], ["2"], ["0.5"], ["1e999"], ["-1"], ["x"]])
        quote = draw.choice(["", "", '"'])
        names = [f"{quote}{name}{quote}" for name in (url(draw), *draw.choice([[url(draw)], [url(draw)], []]))]
        rows.append(separator.join([*names, *weight]))
    return draw.choice(["\n", "\r\n", "\n\n"]).join(rows).encode() + draw.choice([b"\n", b""])


def numbered_edges(draw: random.Random) -> bytes:
    """Return an edge list by the numbers of vertices."""
    rows = [[draw.randrange(20), draw.randrange(20), *([0.5] if draw.random() < 0.1 else [])] for _ in range(6)]
    return b"".join("\t".join(map(str, row)).encode() + b"\n" for row in rows)


def vertices(draw: random.Random) -> bytes:
    """Return a file of vertices."""
    names = ["com.example.www", "org.example", "example.org", "www.example.com", "http://a.example/x", "1.2.3.4"]
    return b"".join(f"{row}\t{draw.choice(names)}\n".encode() for row in range(draw.randrange(1, 8)))


def ranks(draw: random.Random) -> bytes:
    """Return a file of ranks: JSON lines, CSV, the list of Common Crawl, or that of Tranco."""
    rows = [(url(draw), draw.choice([0.25, 0.5, 0, 1e-9, 7])) for _ in range(draw.randrange(1, 7))]
    form = draw.randrange(4)
    if form == 0:
        return b"".join(json.dumps({"url": page, "importance": rank}).encode() + b"\n" for page, rank in rows)
    if form == 1:
        quote = draw.choice(['"', ""])
        return "".join(["url,importance\n", *(f"{quote}{page}{quote},{rank}\n" for page, rank in rows)]).encode()
    if form == 2:
        head = "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev\t#n_hosts\n"
        return (
            head + "".join(f"{n}\t{rank}\t{n}\t{rank}\tcom.example.h{n}\t1\n" for n, (_, rank) in enumerate(rows, 1))
        ).encode()
    return "".join(f"{n},host{n}.example\n" for n in range(1, len(rows) + 1)).encode()


def grades(draw: random.Random) -> bytes:
    """Return a file of grades."""
    head, ends = draw.choice([("", [""]), ("url,grade\n", [""]), ("site,grade,grader\n", [",Ana", ",Ben"])])
    rows = (f"{url(draw)},{draw.randrange(5)}{draw.choice(ends)}\n" for _ in range(draw.randrange(1, 6)))
    return (head + "".join(rows)).encode()


def policy_values(draw: random.Random) -> Any:
    """Return a policy as JSON values."""
    subject = draw.choice(
        [
            {"url": draw.choice(PAGES)},
            {"url": url(draw)},
            {"host": draw.choice(["a.example", "host1.example", "host2.example"])},
            {
                "url_prefix": draw.choice(
                    ["https://a.example/x/", "https://host3.example/page/1", "http://host0.example/"]
                )
            },
            {"category": draw.randrange(2)},
        ]
    )
    of_pages = [
        {},
        {"refresh_forbidden": True},
        {"refresh_interval_seconds": draw.choice([60.0, 3600, 1e6])},
        {"changes_per_day": draw.choice([0.01, 5.0]), "importance_factor": draw.choice([0, 2.5, 1e6])},
        {"shortest_interval_seconds": 3600, "longest_interval_seconds": 7e5},
        {"fetch_now": True},
        {"notify": True, "publisher": draw.choice(["desk", "", "\u202e\x1b[2J"])},
        {"drop": True},
        {"forget": True},
    ]
    of_hosts = {"host_fetches_per_day": 10, "host_fetches_per_hour": 2, "crawl_delay_seconds": draw.choice([1.5, 600])}
    of_the_crawl = [
        {"damping": draw.choice([0.85, 1, 0])},
        {"class_weights": draw.choice([[16, 16], [1, 65536]])},
        {"link_bonus_per_1024": [draw.choice([0, 512])]},
        {"fetches_per_second": draw.choice([0.001, 3.0]), "discovery_share": draw.choice([0, 0.5, 1])},
        {"refresh_policy": draw.choice(["thesis", "harmonic", "freshness"])},
        of_hosts,
    ]
    if draw.random() < 0.25:
        return draw.choice(of_the_crawl)
    of_one_host = draw.choice([{}, {}, of_hosts]) if "host" in subject else {}
    expiry = {"expires_at": _MS + draw.randrange(90) * 3_600_000} if draw.random() < 0.3 else {}
    return {**subject, **draw.choice(of_pages), **of_one_host, **expiry}
