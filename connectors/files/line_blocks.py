"""Reads files of lines in blocks of whole lines, plain, gzip or zstd, with the numbers of the lines."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, islice
from typing import NamedTuple

import orjson

from opicflow.connectors.files.crawlers.dispatch import BOM
from opicflow.connectors.files.opening import Damage, InputRefused, decompressed, refuse_utf_16

_BLOCK_BYTES = 1 << 20
MOST_LINE_BYTES = 32 << 20


def pieces_of(name: str) -> Generator[bytes, None, None]:
    """Yield the bytes of a file, decompressed, without the mark of UTF-8; refuse a damaged one, and UTF-16."""
    for piece in decompressed(name, block_bytes=_BLOCK_BYTES):
        if isinstance(piece, Damage):
            raise InputRefused(f"{name}: {piece.detail}: write it again")
        if piece.offset == 0:
            refuse_utf_16(name, piece.data)
        yield piece.data.removeprefix(BOM) if piece.offset == 0 else piece.data


class LineBlock(NamedTuple):
    """Whole lines, the first of which has this number."""

    number: int
    text: bytes

    def line_of(self, row: int) -> int:
        """The number of the line that holds this row; empty lines hold none."""
        numbers = (number for number, line in enumerate(self.text.split(b"\n"), self.number) if line.strip())
        return next(islice(numbers, row, None), self.number)


def whole_lines(name: str, pieces: Iterator[bytes]) -> Iterator[LineBlock]:
    """Yield the whole lines of pieces of a file, some at a time."""
    number = 1
    held: list[bytes] = []
    held_bytes = 0
    for piece in chain(pieces, (b"",)):
        end = piece.rfind(b"\n") + 1
        if end or not piece:
            text = b"".join((*held, piece[:end]))
            held, held_bytes = [], 0
            if text:
                yield LineBlock(number, text)
            number += text.count(b"\n")
        held.append(piece[end:])
        held_bytes += len(piece) - end
        if held_bytes > MOST_LINE_BYTES:
            raise InputRefused(f"{name}, line {number}: longer than {MOST_LINE_BYTES:,} bytes: name another file")


def json_objects(name: str, lines: LineBlock) -> list[dict[str, object]]:
    """Return the objects of lines, read as one array; if that fails, line by line, to find the wrong one."""
    try:
        rows: list[dict[str, object]] = orjson.loads(b"[" + lines.text.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        if len(rows) == lines.text.count(b"\n") + (not lines.text.endswith(b"\n")) and set(map(type, rows)) == {dict}:
            return rows
    except orjson.JSONDecodeError:
        pass
    rows = []
    for number, line in enumerate(lines.text.split(b"\n"), lines.number):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as problem:
            raise InputRefused(f"{name}, line {number}: no JSON ({problem}): write an object a line") from None
        if not isinstance(row, dict):
            raise InputRefused(f"{name}, line {number}: no JSON object: write an object a line")
        rows.append(row)
    return rows
