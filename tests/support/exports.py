"""Reads what `opicflow export` writes, as the systems read it that it is for."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable


def injected(line: str) -> tuple[str, dict[str, str]] | None:
    """Return a line as Nutch's injector reads it: KeyValueTextInputFormat, then InjectMapper.processMetaData."""
    url, _, metadata = line.partition("\t")
    url = url.strip()
    if not url or url.startswith("#"):
        return None
    return url, dict(split.split("=", 1) for split in metadata.strip().split("\t") if "=" in split)


def commands_in(data: bytes) -> list[list[bytes]]:
    """The commands of a stream in the protocol of Redis."""
    commands, at = [], 0

    def number(kind: bytes) -> int:
        nonlocal at
        end = data.index(b"\r\n", at)
        assert data[at : at + 1] == kind
        found, at = int(data[at + 1 : end]), end + 2
        return found

    while at < len(data):
        words = []
        for _ in range(number(b"*")):
            length = number(b"$")
            words.append(data[at : at + length])
            at += length
            assert data[at : at + 2] == b"\r\n"
            at += 2
        commands.append(words)
    return commands


def copied_rows(script: str) -> list[list[str | None]]:
    """The rows between COPY and its end, in the text format that PostgreSQL documents."""
    body = script[script.index("FROM stdin;\n") + len("FROM stdin;\n") : script.index("\n\\.\n") + 1]
    letters = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

    def value(text: str) -> str | None:
        if text == "\\N":
            return None
        return re.sub(r"\\(.)", lambda found: letters.get(found[1], found[1]), text)

    return [[value(text) for text in line.split("\t")] for line in body.split("\n")[:-1]]


def _tables(data: bytes) -> list[str]:
    return [row["url"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))]


def _requests(data: bytes) -> list[str]:
    return [json.loads(words[3])["url"] for words in commands_in(data)]


_READERS: dict[str, Callable[[bytes], list[str]]] = {
    "csv": _tables,
    "jsonl": lambda data: [json.loads(line)["url"] for line in data.splitlines()],
    "nutch": lambda data: [found[0] for line in data.decode().split("\n") if (found := injected(line))],
    "heritrix": lambda data: [re.sub(r"^F\+ | \d+$", "", line) for line in data.decode().splitlines()],
    "stormcrawler": lambda data: [json.loads(line)["update"]["_id"] for line in data.splitlines()[::2]],
    "scrapy-redis": _requests,
    "opensearch": lambda data: [json.loads(line)["update"]["_id"] for line in data.splitlines()[::2]],
    "postgres": lambda data: [row[0] or "" for row in copied_rows(data.decode())],
    "redis": lambda data: [words[3].decode() for words in commands_in(data)],
}


def pages_in(target: str, data: bytes) -> list[str]:
    """Return the pages of an export, as its format names them: see `named`."""
    return _READERS[target](data)


def named(target: str, url: str) -> str:
    """Return the name of a page in an export: its URL, or for an index the id of its document."""
    return hashlib.sha256(url.encode()).hexdigest() if target in ("stormcrawler", "opensearch") else url
