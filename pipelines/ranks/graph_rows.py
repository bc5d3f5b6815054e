"""Rows of the pages of a stored graph: with their URLs, for files and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np

from opicflow.connectors.files.rank_writer import RankRows
from opicflow.pipelines.ranks.graph.store import StoredGraph
from opicflow.schemas.arrays import Floats

_ROWS_AT_ONCE = 1 << 16


class TopPage(TypedDict):
    """A page with a high rank; its URL is empty if the graph has only the id."""

    url: str
    page: str
    rank: float


def urls_of(stored: StoredGraph, first: int, end: int) -> list[str]:
    """Return the URLs of a range of pages; empty where the graph has only the id."""
    ends = np.asarray(stored.url_ends[first:end])
    begin = int(stored.url_ends[first - 1]) if first else 0
    text = stored.url_bytes[begin : int(ends[-1])].tobytes().decode("utf-8") if len(ends) else ""
    cuts = (ends - begin).tolist()
    return [text[begin:end] for begin, end in zip([0, *cuts[:-1]], cuts, strict=True)]


def value_rows(stored: StoredGraph, columns: Sequence[Floats]) -> Iterator[RankRows]:
    """Yield the rows of a file of values by page: a column each."""
    for first in range(0, stored.pages, _ROWS_AT_ONCE):
        end = min(first + _ROWS_AT_ONCE, stored.pages)
        values = [np.ascontiguousarray(column[first:end]) for column in columns]
        yield RankRows(urls_of(stored, first, end), stored.ids(first, end), values)


def top_pages(stored: StoredGraph, values: Floats, count: int) -> list[TopPage]:
    """Return the pages with the highest ranks."""
    best = np.empty(0, np.int64)
    for first in range(0, stored.pages, _ROWS_AT_ONCE):  # never a copy of the whole vector
        some = np.append(best, np.arange(first, min(first + _ROWS_AT_ONCE, stored.pages)))
        best = some[np.lexsort((some, -values[some]))][:count]
    return [
        {
            "url": urls_of(stored, page, page + 1)[0],
            "page": f"{int(stored.ids(page, page + 1)[0]):016x}",
            "rank": float(values[page]),
        }
        for page in best.tolist()
    ]
