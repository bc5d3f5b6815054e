"""Detects the format of a file: by its first bytes, and by its name where these fit several formats."""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import Enum

import orjson

from opicflow.connectors.files.crawlers.dispatch import FORMATS, LINK_FORMATS, is_text_of_a_crawler
from opicflow.connectors.files.csv_events import DIVIDERS, has_other_known, header_of
from opicflow.connectors.files.csv_rows import first_rows
from opicflow.connectors.files.edges import edge_form
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.errors import printable


class Format(Enum):
    """The formats of a crawl log: how records lie in it. JSON lines may also be the lines of another crawler's log."""

    JSONL = "JSON lines"
    JSON = "JSON"
    CSV = "CSV"
    NUTCH_SEGMENT = "Nutch segment"
    AVRO = "Avro"
    ARC = "ARC"
    WARC = "WARC"
    WAT = "WAT"
    EDGES = "edge list"


_BY_NAME = [
    (".wat", Format.WAT),
    (".warc", Format.WARC),
    (".arc", Format.ARC),
    (".jsonl", Format.JSONL),
    (".ndjson", Format.JSONL),
    (".json", Format.JSONL),
    (".avro", Format.AVRO),
    (".edges", Format.EDGES),
    (".tsv", Format.EDGES),
    (".csv", Format.EDGES),
]
_METADATA = re.compile(rb"^WARC-Type:[ \t]*metadata[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_JSON = re.compile(rb"^Content-Type:[ \t]*application/json", re.IGNORECASE | re.MULTILINE)
_HEAD = re.compile(rb"WARC/\d\.\d+\r?\n(?:[^\r\n]+\r?\n)*")
_WEB_URL = re.compile(r"https?://\S+$", re.IGNORECASE)
_LONGEST_NAME = 80
_NUTCH_DUMP = re.compile(rb"Recno:: \d+\r?\nURL:: |\S+\tVersion: \d+\r?\nStatus: ")
_ARC = re.compile(rb"filedesc:[^\n]*\n1 ")
_NOT_READ: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"filedesc:"), "ARC of another version than 1: convert it to WARC, such as with warcio recompress"),
    (
        re.compile(rb"\S+\tInlinks:"),
        "a dump of Nutch's linkdb, which has links alone: read it with opicflow graph build --input-format nutch-links",
    ),
    (
        re.compile(rb'"?Type"?,"?Source"?,"?Destination"?,'),
        "links of Screaming Frog: read them with opicflow graph build --input-format screaming-frog-links",
    ),
    (
        re.compile(rb'"?Address"?,[^\n]*Indexability'),
        "a table of Screaming Frog without Status Code, Status and Indexability: export the tab Internal, All",
    ),
    (
        re.compile(rb"CDX( [A-Za-z])+\s"),
        "CDX with other columns than N b a m s k r V g or N b a m s k r M S V g: write the index again with these",
    ),
    (
        re.compile(rb"https?://\S+[ \t\r]*(?:\n|\Z)", re.IGNORECASE),
        "a list of URLs, without the fetches: --input-format hakrawler announces them",
    ),
)
"""Other files that are recognised, by their first bytes: what they are, and what to do."""
_ZIP = b"PK\x03\x04"

_NAMED: dict[str, Format | None] = {
    "jsonl": Format.JSONL,
    "json": Format.JSON,
    "csv": Format.CSV,
    "scrapy": None,
    "nutch-segment": Format.NUTCH_SEGMENT,
    "avro": Format.AVRO,
    "arc": Format.ARC,
    "warc": Format.WARC,
    "wat": Format.WAT,
    "edges": Format.EDGES,
    **dict.fromkeys(LINK_FORMATS, Format.EDGES),
    **dict.fromkeys(FORMATS),
}
INPUT_FORMATS = tuple(_NAMED)
"""The names that users may give a format. Those of crawlers say what a record is; how records lie is found out."""


def check_name(name: str) -> str:
    """Return the name of a format, "" for none; refuse one that is not known."""
    if name and name not in _NAMED:
        nearest = get_close_matches(name, INPUT_FORMATS, 1)
        hint = f"did you mean {nearest[0]}? Else" if nearest else "give"
        raise InputRefused(f"--input-format {name[:40]}: not known: {hint} one of {', '.join(INPUT_FORMATS)}")
    return name


def named_format(reading: Reading, first: bytes, name: str) -> Format:
    """Return the format of a file that users have named."""
    given = _NAMED[reading.format]
    if given is not None:
        return given
    found = sniff(first, name, reading)
    ways = (Format.JSON, Format.CSV, *([Format.NUTCH_SEGMENT] if reading.format == "nutch" else []))
    return found if found in ways else Format.JSONL


def sniff(first: bytes, name: str, reading: Reading = ANY) -> Format | None:
    """Return the format of a file, by its first decompressed bytes and its name; None = an unknown one."""
    if first.startswith(_ZIP):
        raise InputRefused(
            f"{name}: a ZIP file: it is read from a path of this machine alone: unpack it, and name its logs"
        )
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if first.startswith(b"Obj\x01"):
        return Format.AVRO
    if text.startswith(b"WARC/"):
        of_json = any(_METADATA.search(head) and _JSON.search(head) for head in _HEAD.findall(text))
        return Format.WAT if of_json or _by_name(name) is Format.WAT else Format.WARC
    line = text.partition(b"\n")[0]
    if is_text_of_a_crawler(line):
        return Format.JSONL
    if text.startswith((b"{", b"[")):
        return _json_format(text)
    if _ARC.match(text):
        return Format.ARC
    if _NUTCH_DUMP.match(text):
        return Format.NUTCH_SEGMENT
    header, is_edges = header_of(text, reading), edge_form(text).fits
    if header is not None and (has_other_known(header, reading) or not is_edges):
        return Format.CSV
    for pattern, what in () if is_edges or reading.format else _NOT_READ:
        if pattern.match(text):
            raise InputRefused(f"{name}: {what}")
    column = _unnamed_url(text)
    if column is not None:
        if header is not None:
            return Format.CSV
        raise InputRefused(
            f"{name}: the first line names columns, and it is not known which one is the URL: say so, such as "
            f"--field 'url={column}'"
        )
    if is_edges:
        return Format.EDGES
    return None if text else _by_name(name)


def _unnamed_url(text: bytes) -> str | None:
    """Return the column that has URLs, of CSV whose first line names columns; None if it is no such CSV.

    Two columns with URLs are those of an edge list.
    """
    for divider in DIVIDERS:
        rows = first_rows(text, divider, 2)
        names, row = rows if len(rows) == 2 else ([], [])
        if len(names) != len(row) or any("://" in name for name in names) or text.startswith(b"#"):
            continue
        urls = [name for name, value in zip(names, row, strict=True) if _WEB_URL.match(value)]
        if len(urls) == 1 and (len(names) > 1 or not any(one in names[0] for one in (*DIVIDERS, " "))):
            return printable(urls[0][:_LONGEST_NAME])
    return None


def _json_format(text: bytes) -> Format:
    """Return whether objects are lines, or lie in an array, or are written over several lines."""
    line = text.partition(b"\n")[0].strip()
    if text.startswith(b"["):
        return Format.JSON
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return Format.JSON if line.endswith((b"{", b"[", b",")) else Format.JSONL
    return Format.JSONL


def _by_name(name: str) -> Format | None:
    parts = re.sub(r"\.(gz|zst)$", "", name.lower())
    return next((kind for ending, kind in _BY_NAME if parts.endswith(ending)), None)
