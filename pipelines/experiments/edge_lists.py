"""Edge lists of users, as webs."""

from __future__ import annotations

from collections.abc import Iterator

from opicflow.connectors.files.line_blocks import pieces_of
from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.web.webs import NamedWeb, web_of_edges

_LONGEST_LINE_BYTES = 1 << 20


def web_of_file(path: str) -> NamedWeb:
    """Read the web of an edge list, plain or compressed. Raises `InputRefused` for anything else."""
    try:
        return web_of_edges(_lines(path))
    except InputRefused:
        raise
    except ValueError as problem:
        raise InputRefused(f"{path}: {problem}") from None


def _lines(path: str) -> Iterator[str]:
    """The lines of a file, decompressed."""
    rest, lines_read = b"", 0
    for piece in pieces_of(path):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            raise InputRefused(f"{path}: a line of more than {_LONGEST_LINE_BYTES} bytes: no edge list")
        for line in lines:
            lines_read += 1
            yield _decoded(line, lines_read, path)
    yield _decoded(rest, lines_read + 1, path)


def _decoded(line: bytes, number: int, path: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputRefused(f"{path}: line {number} is not UTF-8: no edge list") from None
