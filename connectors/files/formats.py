"""Detects the format of a file: by its first bytes, and by its name where these fit several formats."""

from __future__ import annotations

import re
from enum import Enum


class Format(Enum):
    """The formats of a crawl log."""

    JSONL = "JSON lines"
    AVRO = "Avro"
    WARC = "WARC"
    WAT = "WAT"
    EDGES = "edge list"


_BY_NAME = [
    (".wat", Format.WAT),
    (".warc", Format.WARC),
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
_TOKEN = re.compile(rb"[^\s,]+://\S+|\d+|[\w-]+(?:\.[\w-]+)+(?:[:/]\S*)?")
_MOST_LINES = 50


def sniff(first: bytes, name: str) -> Format | None:
    """Return the format of a file, by its first decompressed bytes and its name; None = an unknown one."""
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if first.startswith(b"Obj\x01"):
        return Format.AVRO
    if text.startswith(b"WARC/"):
        of_json = any(_METADATA.search(head) and _JSON.search(head) for head in _HEAD.findall(text))
        return Format.WAT if of_json or _by_name(name) is Format.WAT else Format.WARC
    if text.startswith(b"{"):
        return Format.JSONL
    if _is_edges(first, text):
        return Format.EDGES
    return None if text else _by_name(name)


def columns(line: bytes) -> list[bytes]:
    """The columns of a line of an edge list. A comma separates only where nothing else does: URLs have commas."""
    if b"\t" in line:
        found = line.split(b"\t")
    elif len(line.split()) > 1:
        *others, last = line.split()
        found = [*(token.removesuffix(b",") for token in others), last]
    else:
        found = re.split(rb',(?="?[A-Za-z][A-Za-z0-9+.-]*://|"?[+-]?[0-9.][0-9.eE+-]*"?\s*$)', line)
        if len(found) == 1 and b"://" not in line:
            found = line.split(b",")
    return [token.strip().removeprefix(b'"').removesuffix(b'"') for token in found]


def _is_edges(first: bytes, text: bytes) -> bool:
    lines = text.splitlines()
    if len(lines) > 1 and not first.endswith(b"\n"):
        del lines[-1]  # may be cut
    rows = [columns(line) for line in lines[:_MOST_LINES] if line.strip() and not line.lstrip().startswith(b"#")]
    if len(rows) > 1 and not _is_edge(rows[0]):
        del rows[0]  # the names of the columns
    return all(map(_is_edge, rows)) and any(len(row) > 1 for row in rows)


def _is_edge(row: list[bytes]) -> bool:
    return len(row) <= 3 and all(_TOKEN.fullmatch(token) for token in row[:2])


def _by_name(name: str) -> Format | None:
    parts = re.sub(r"\.(gz|zst)$", "", name.lower())
    return next((kind for ending, kind in _BY_NAME if parts.endswith(ending)), None)
