"""Edge lists of users, as webs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opicflow.connectors.files.csv_rows import HEAD_BYTES
from opicflow.connectors.files.edges import edge_form, edge_rows
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import InputRefused, decompressed, refuse_utf_16
from opicflow.pipelines.lab.web.webs import NamedWeb, web_of_edges
from opicflow.schemas.crawl_events import EventRefused


def web_of_file(path: str) -> NamedWeb:
    """Read the web of an edge list, plain or compressed. Raises `InputRefused` for anything else."""
    try:
        return web_of_edges(_edges(path))
    except InputRefused:
        raise
    except ValueError as problem:
        raise InputRefused(f"{path}: {problem}") from None


def _edges(path: str) -> Iterator[tuple[int, list[Any]]]:
    """The edges of a file, with the numbers of their lines."""
    text = GrowingText(decompressed(path))
    head = text.head(HEAD_BYTES)
    refuse_utf_16(path, head)
    for row in edge_rows(text, edge_form(head)):
        if isinstance(row.edge, EventRefused):
            raise InputRefused(f"{path}, line {row.line}: {row.edge}: no edge list")
        yield row.line, row.edge
