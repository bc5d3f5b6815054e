"""The link graph of a numbered edge list on disk, such as Common Crawl's graphs of hosts and domains."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from opicflow.connectors.files.opening import STDIN, InputRefused, expand
from opicflow.connectors.files.vertices import NumberedEdges, VertexFile, Vertices, read_numbered_edges
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.csr import MOST_LINK_WEIGHT, ORDINARY_LINK_WEIGHT
from opicflow.pipelines.ranks.graph.store import NO_CATEGORY, StoredGraph
from opicflow.pipelines.ranks.link_graph import BuildProgress, estimate_size, planned
from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.url_forms import PAGE
from opicflow.schemas.urls import Canonicaliser


def graph_of_numbered_edges(
    edges: Sequence[str],
    vertices: VertexFile,
    folder: Path,
    plan: BuildPlan,
    rules: Rules,
    progress: Callable[[BuildProgress], None],
) -> StoredGraph:
    """Build the graph of numbered edges between the vertices of a file, whose names become URLs of pages.

    An interrupted build reads all files again, unless they were read whole.
    """
    if rules.links != LinkWeights() or rules.categories.patterns:
        raise InputRefused("--vertices: weights of links, and --category, are for crawl logs: omit them")
    files = list(dict.fromkeys(expand(edges)))
    if STDIN in (*files, vertices.name):
        raise InputRefused("--vertices: numbered edges are read from files: write them to one, and name it")
    sizes = [estimate_size(file) for file in files]
    names = [vertices.name, os.path.getsize(vertices.name), list(zip(files, sizes, strict=True))]
    identity = json.dumps([names, rules.to_json()])
    builder = GraphBuilder(folder, planned(plan, Categories(True).names, sum(sizes), identity))
    reader = _NumberedReader(builder, vertices, rules, sum(sizes) + estimate_size(vertices.name), progress)
    if not builder.is_read:
        reader.read_vertices()
        for file in files:
            reader.read_edges(file)
    return builder.finish(reader.show_step)


class _NumberedReader:
    """Reads vertices and edges into a builder. A vertex takes 16 bytes of memory."""

    def __init__(
        self,
        builder: GraphBuilder,
        vertices: VertexFile,
        rules: Rules,
        total_bytes: int,
        progress: Callable[[BuildProgress], None],
    ) -> None:
        self._builder, self._vertices, self._progress = builder, vertices, progress
        self._canonicaliser = Canonicaliser(rules.urls)
        self._numbers: Ints = np.empty(0, np.int64)
        self._ids: Ids = np.empty(0, np.uint64)
        self._is_dense = False
        self._rows = self._done_bytes = 0
        self._total_bytes = total_bytes
        self._begun = time.perf_counter()

    def read_vertices(self) -> None:
        """Read all vertices: they are pages, with links or without."""
        numbers, ids = [self._numbers], [self._ids]
        for some in self._vertices.read():
            numbers.append(some.numbers)
            ids.append(self._add_pages(some))
            self._show(len(some.numbers), len(some.rows.text))
        self._numbers, self._ids = np.concatenate(numbers), np.concatenate(ids)
        self._is_dense = bool((self._numbers == np.arange(len(self._numbers))).all())
        if not self._is_dense:
            order = np.argsort(self._numbers, kind="stable")
            self._numbers, self._ids = self._numbers[order], self._ids[order]
            twice = np.flatnonzero(self._numbers[1:] == self._numbers[:-1])
            if len(twice):
                number = int(self._numbers[twice[0]])
                at = self._vertices.line_of_second(number)
                raise InputRefused(f"{self._vertices.name}, line {at}: vertex {number} is there twice: remove one line")

    def read_edges(self, file: str) -> None:
        """Read the edges of a file. Several lines of a vertex add up, in any order and any number of files."""
        for edges in read_numbered_edges(file):
            sources, targets = self._ids_of(file, edges, edges.sources), self._ids_of(file, edges, edges.targets)
            weights = np.full(len(sources), ORDINARY_LINK_WEIGHT, np.uint16)
            if len(edges.weights):
                steps = np.rint(edges.weights * ORDINARY_LINK_WEIGHT)
                weights = np.minimum(steps, MOST_LINK_WEIGHT).astype(np.uint16)
            begins = np.flatnonzero(np.append(True, sources[1:] != sources[:-1]))
            starts = np.append(begins, len(sources))
            self._builder.add_visits(sources[begins], starts, targets, weights, together=True)
            self._show(len(sources), len(edges.rows.text))

    def show_step(self, step: str, done: int, of: int) -> None:
        """Report a step of the build after the files."""
        words = f"{step} {done + 1:,} of {of:,}"
        self._progress(BuildProgress(self._rows, self._done_bytes, None, time.perf_counter() - self._begun, words))

    def _add_pages(self, some: Vertices) -> Ids:
        rows = np.arange(len(some.numbers))
        urls = self._canonicaliser.canonicalise(some.text, some.starts[:-1].copy(), some.starts[1:].copy(), rows)
        wrong = np.flatnonzero(urls.states != PAGE)
        if len(wrong):
            at, row = some.rows.line_of(int(wrong[0])), int(wrong[0])
            url = some.text[some.starts[row] : some.starts[row + 1]].tobytes().decode("utf-8", "replace")
            raise InputRefused(f"{self._vertices.name}, line {at}: {url[:100]!r} is no URL of a page: correct the name")
        lengths = urls.ends - urls.begins
        starts = np.append(0, np.cumsum(lengths))
        text = urls.text[np.arange(starts[-1]) + np.repeat(urls.begins - starts[:-1], lengths)]
        self._builder.add_pages(urls.ids, np.full(len(rows), NO_CATEGORY, np.uint8), starts, text)
        return urls.ids

    def _ids_of(self, file: str, edges: NumberedEdges, numbers: Ints) -> Ids:
        known, count = self._numbers, len(self._numbers)
        inside = np.minimum(np.maximum(numbers, 0), count - 1)
        at = inside if self._is_dense else np.minimum(np.searchsorted(known, numbers), count - 1)
        wrong = np.flatnonzero(known[at] != numbers)
        if len(wrong):
            line, number = edges.rows.line_of(int(wrong[0])), int(numbers[wrong[0]])
            raise InputRefused(
                f"{file}, line {line}: vertex {number} is not in {self._vertices.name}: add it, or remove the line"
            )
        return self._ids[at]

    def _show(self, rows: int, size_bytes: int) -> None:
        self._rows += rows
        self._done_bytes += size_bytes
        seconds = time.perf_counter() - self._begun
        self._progress(BuildProgress(self._rows, self._done_bytes, self._total_bytes, seconds))
