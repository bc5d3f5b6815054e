"""Builds a graph on disk, within the memory given, however large the web is.

Incoming links and pages are written to buckets by the page id of their source. Then, step by step:

    resolve   for each page, the links of its last visit with known links, by the ledger's rules; to buckets by target
    number    the sorted ids of a bucket: a page's number is its rank among all ids. Its URL follows
    sort      the links of a bucket by the numbers of their sources
    write     a slice: the links of its buckets merged, in blocks

Page ids are hashes, and mixed here, so buckets have equal sizes, and a bucket of ids is a range of page numbers. After
every step a small file records the progress and the lengths of all files: an interrupted build continues with its
current step. The graph does not depend on the number of buckets, on how the input was divided, or on interruptions.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from opicflow.pipelines.ranks.graph.csr import MOST_LINK_WEIGHT, ORDINARY_LINK_WEIGHT, LinkWeights
from opicflow.pipelines.ranks.graph.slices import MOST_PAGES, encode, key_of
from opicflow.pipelines.ranks.graph.store import (
    MANIFEST,
    NO_CATEGORY,
    GraphRefused,
    Manifest,
    StoredGraph,
    mixed,
    new_file,
    ranges_of,
    write_manifest,
    write_whole,
)
from opicflow.schemas.arrays import Array, Bytes, Ids, Int, Ints, Words
from opicflow.schemas.kernel import kernel, lean_kernel

FEWEST_MEMORY_BYTES = 1 << 20
MOST_BUCKETS = 1024
NO_HOP, HOP = 1, 2
"""Whether the links of a page are those of a redirect."""
_MOST_SLICES = 99_999
_LINKS_OF_A_BLOCK = 1 << 16
_LEAST_SOURCES = 1 << 10
_FEW = 24

_PROGRESS = "progress.json"
_GROWING = ("pages.ids", "pages.out", "pages.in", "pages.categories", "pages.hops", "pages.urls", "pages.ends")

Progress = Callable[[str, int, int], None]
"""Called with a step: its name, how many of its kind are done, and how many there are."""


G = TypeVar("G", bound=np.generic)


class LogPlace(TypedDict):
    """Where the reader of logs continues: the number of the file, the position in it, and what it has counted."""

    file: int
    at: int
    events: int
    reasons: dict[str, int]


class _BuildState(TypedDict):
    """The progress of a build."""

    identity: list[object]
    position: LogPlace | None
    read: bool
    steps: int
    visits: int
    lengths: dict[str, int]
    counts: dict[str, int]
    bucket_pages: list[int]
    bucket_links: list[int]


@dataclass(frozen=True)
class BuildPlan:
    """How a graph is built. `identity` names the input: an interrupted build continues only with the same one.

    `slice_pages`: the pages of a slice; None = as many as `memory_bytes` hold for `ranks_at_once` ranks. `both_ways`:
    every link counts once in each direction, whatever its weight.
    """

    memory_bytes: int = 512 << 20
    buckets: int = 64
    slice_pages: int | None = None
    ranks_at_once: int = 2
    both_ways: bool = False
    categories: tuple[str, ...] = ()
    identity: str = ""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.memory_bytes < FEWEST_MEMORY_BYTES:
            raise GraphRefused(f"memory is {self.memory_bytes:,} bytes: give at least 1MB")
        if not (2 <= self.buckets <= MOST_BUCKETS and self.buckets & (self.buckets - 1) == 0):
            raise GraphRefused(f"buckets: {self.buckets} is not a power of two from 2 to {MOST_BUCKETS}")
        if self.ranks_at_once < 1 or (self.slice_pages is not None and self.slice_pages < 1):
            raise GraphRefused("ranks at once, and pages of a slice: give at least 1")

    @property
    def pages_of_a_slice(self) -> int:
        """The pages whose ranks take half of the memory; the other half is for links."""
        return max(1, self.memory_bytes // (2 * 8 * self.ranks_at_once))


class GraphBuilder:
    """Builds a graph in a folder. After an interruption `position` is where the reader continues."""

    def __init__(self, path: Path, plan: BuildPlan) -> None:
        """Start a build, or continue an interrupted one."""
        self.path, self.plan = path, plan
        self._work = path / "work"
        self._links: list[Words] = []
        self._pages: list[tuple[Ids, Bytes, Bytes, Ints, Bytes]] = []
        self._waiting = 0
        if (path / MANIFEST).exists():
            shutil.rmtree(self._work, ignore_errors=True)  # of a build that was killed at its end
            raise GraphRefused(f"{path}: there is a graph already: name another folder, or remove this one")
        if path.exists() and not self._work.is_dir() and any(path.iterdir()):
            raise GraphRefused(f"{path}: not empty, and not a graph: name another folder")
        self._work.mkdir(parents=True, exist_ok=True)
        self._state = self._read_progress()
        self._lengths = dict(self._state["lengths"])

    @property
    def position(self) -> LogPlace | None:
        """The position given to the last checkpoint, None at the start."""
        return self._state["position"]

    @property
    def is_read(self) -> bool:
        """Whether all input was added before the build was interrupted."""
        return self._state["steps"] > 0 or self._state["read"]

    def add_visits(
        self, pages: Ids, link_starts: Ints, link_pages: Ids, link_weights: LinkWeights, together: bool
    ) -> None:
        """Add visits with known links, in the order of the log: of each page the last visit counts.

        `together`: the visits hold parts of the links of their pages, and are older than all others: lines of edge
        lists.
        """
        pages, link_pages = mixed(pages), mixed(link_pages)
        counts = np.diff(link_starts)
        first = self._state["visits"]
        visits = np.zeros(len(pages), np.int64) if together else np.arange(first, first + len(pages))
        if not together:
            self._state["visits"] = first + len(pages)
        rows = np.empty((len(pages) + len(link_pages), 3), np.uint64)
        # A row without a target marks its page as read: as a link to itself, which is dropped later.
        rows[: len(pages), 0] = rows[: len(pages), 2] = pages
        rows[: len(pages), 1] = visits.astype(np.uint64) << np.uint64(16)
        of = np.repeat(np.arange(len(pages)), counts)
        rows[len(pages) :, 0] = pages[of]
        rows[len(pages) :, 1] = (visits[of].astype(np.uint64) << np.uint64(16)) | link_weights.astype(np.uint64)
        rows[len(pages) :, 2] = link_pages
        self._links.append(rows)
        self._wait(rows.nbytes)

    def add_pages(
        self, pages: Ids, categories: Bytes, url_starts: Ints, url_bytes: Bytes, hops: Bytes | None = None
    ) -> None:
        """Add pages, with their categories (255 = unknown) and URLs (empty = unknown).

        `hops`: 2 = its links are those of a redirect, 1 = they are not, 0 or None = unknown. The last known one counts.
        """
        stated = np.zeros(len(pages), np.uint8) if hops is None else hops
        self._pages.append((mixed(pages), categories, stated, np.diff(url_starts), url_bytes))
        self._wait(10 * len(pages) + len(url_bytes))

    def checkpoint(self, position: LogPlace) -> None:
        """Make everything added so far durable, together with the `position` to continue from."""
        self._flush()
        self._state["position"] = position
        self._save()

    def finish(self, progress: Progress = lambda step, done, of: None) -> StoredGraph:
        """Build the graph from all input."""
        if not self.is_read:
            self._flush()
            self._state["read"] = True
            self._save()
        for number, (name, index, count, do) in enumerate(self._steps()):  # the number of slices is known after sorting
            if number < self._state["steps"]:
                continue
            progress(name, index, count)
            spent = do(index)
            for one in spent:
                self._lengths.pop(one, None)
            self._state["steps"] = number + 1
            self._save()
            for one in spent:
                (self._work / one).unlink(missing_ok=True)
        self._write_manifest()
        shutil.rmtree(self._work)
        return StoredGraph(self.path)

    # -- input in memory, and files

    def _wait(self, size: int) -> None:
        self._waiting += size
        if self._waiting > self.plan.memory_bytes // 8:
            self._flush()

    def _flush(self) -> None:
        """Write the input in memory to its buckets."""
        links, pages = self._links, self._pages
        self._links, self._pages, self._waiting = [], [], 0
        if links:
            self._scatter("links", np.concatenate(links), 0)
        if pages:
            ids = np.concatenate([one[0] for one in pages])
            categories, stated = (np.concatenate([one[column] for one in pages]) for column in (1, 2))
            lengths = np.concatenate([one[3] for one in pages])
            text = np.concatenate([one[4] for one in pages])
            order, starts = self._by_bucket(ids)
            begins = np.cumsum(lengths) - lengths
            rows = np.empty((len(ids), 2), np.uint64)
            rows[:, 0] = ids
            notes = categories.astype(np.uint64) | (stated.astype(np.uint64) << np.uint64(8))
            rows[:, 1] = (notes << np.uint64(32)) | lengths.astype(np.uint64)
            rows, begins, lengths = rows[order], begins[order], lengths[order]
            moved = np.empty(len(text), np.uint8)
            ends = np.cumsum(lengths)
            _move(text, begins, ends, moved)
            for bucket in np.flatnonzero(np.diff(starts)).tolist():
                first, end = int(starts[bucket]), int(starts[bucket + 1])
                self._append(f"names-{bucket}", rows[first:end])
                text_first = int(ends[first] - lengths[first])
                self._append(f"text-{bucket}", moved[text_first : int(ends[end - 1])])

    def _scatter(self, name: str, rows: Words, column: int) -> None:
        """Append rows to buckets by the id in a column, keeping their order."""
        order, starts = self._by_bucket(rows[:, column])
        rows = rows[order]
        for bucket in np.flatnonzero(np.diff(starts)).tolist():
            self._append(f"{name}-{bucket}", rows[starts[bucket] : starts[bucket + 1]])

    def _by_bucket(self, ids: Ids) -> tuple[Ints, Ints]:
        shift = 65 - self.plan.buckets.bit_length()
        buckets = (ids >> np.uint64(shift)).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")
        starts = np.zeros(self.plan.buckets + 1, np.int64)
        np.cumsum(np.bincount(buckets, minlength=self.plan.buckets), out=starts[1:])
        return order, starts

    def _append(self, name: str, column: Array) -> None:
        """Append to a file. It is not kept open: there may be thousands of files."""
        path = (self.path if name in _GROWING else self._work) / name
        with open(path, "ab") if name in self._lengths else new_file(path) as file:
            file.write(np.ascontiguousarray(column).data)
        self._lengths[name] = self._lengths.get(name, 0) + column.nbytes

    def _read(self, name: str, dtype: type[G]) -> npt.NDArray[G]:
        """Read a file; empty if it was never written."""
        return np.fromfile(self._work / name, dtype) if self._lengths.get(name) else np.empty(0, dtype)

    def _rows(self, name: str, columns: int) -> Words:
        """Read all rows of a bucket."""
        return self._read(name, np.uint64).reshape(-1, columns)

    def _read_progress(self) -> _BuildState:
        plan = self.plan
        identity: list[object] = [plan.identity, plan.memory_bytes, plan.buckets, plan.slice_pages]
        identity += [plan.ranks_at_once, plan.both_ways, list(plan.categories)]
        try:
            state: _BuildState = json.loads((self._work / _PROGRESS).read_bytes())
        except (FileNotFoundError, ValueError):
            shutil.rmtree(self._work)
            self._work.mkdir()
            for name in _GROWING:
                (self.path / name).unlink(missing_ok=True)
            return {
                "identity": identity,
                "position": None,
                "read": False,
                "steps": 0,
                "visits": 1,
                "lengths": {},
                "counts": {},
                "bucket_pages": [],
                "bucket_links": [],
            }
        if state["identity"] != identity:
            raise GraphRefused(
                f"{self.path}: a build of other input, or with other options, was interrupted there: remove the "
                "folder, or name another one"
            )
        for folder in (self.path, self._work):
            for file in folder.iterdir():
                if file.is_file() and file.name not in (_PROGRESS, *state["lengths"]) and file.name[:6] != "slice-":
                    file.unlink()
        for name, length in state["lengths"].items():
            path = (self.path if name in _GROWING else self._work) / name
            if not path.exists() or path.stat().st_size < length:
                raise GraphRefused(f"{path}: lost since the build was interrupted: remove {self.path}, and build again")
            os.truncate(path, length)
        return state

    def _save(self) -> None:
        self._state["lengths"] = self._lengths
        write_whole(self._work / _PROGRESS, json.dumps(self._state).encode())

    def _count(self, **counts: int) -> None:
        known = self._state["counts"]
        self._state["counts"] = {**known, **{name: known.get(name, 0) + count for name, count in counts.items()}}

    # -- steps

    def _steps(self) -> Iterator[tuple[str, int, int, Callable[[int], list[str]]]]:
        buckets = self.plan.buckets
        steps = (
            ("merging links, part", self._resolve),
            ("numbering pages, part", self._number),
            ("sorting links, part", self._sort),
        )
        for words, do in steps:
            for bucket in range(buckets):
                yield words, bucket, buckets, do
        slices = -(-self._pages_known // self._slice_pages)
        if slices > _MOST_SLICES:
            raise GraphRefused(f"{slices:,} slices are too many: give it more memory")
        for slice_ in range(slices):
            yield "writing links, part", slice_, slices, self._write_slice

    @property
    def _pages_known(self) -> int:
        return sum(self._state["bucket_pages"])

    @property
    def _slice_pages(self) -> int:
        """The pages of every slice but perhaps the last, such that slices have about equal sizes."""
        pages = max(self._pages_known, 1)
        slices = -(-pages // self.plan.pages_of_a_slice)
        return self.plan.slice_pages or -(-pages // slices)

    @property
    def _block_sources(self) -> int:
        links = max(int(sum(self._state["bucket_links"])), 1)
        slices = -(-self._pages_known // self._slice_pages)
        wanted = _LINKS_OF_A_BLOCK * slices * self._pages_known // links
        largest_power = 1 << (max(wanted, 1).bit_length() - 1)
        return max(1, min(self._slice_pages, max(_LEAST_SOURCES, largest_power)))

    def _resolve(self, bucket: int) -> list[str]:
        rows = self._rows(f"links-{bucket}", 3)
        order = np.argsort(rows[:, 0], kind="stable")
        links = np.empty((len(rows), 3), np.uint64)
        sources, sums = np.empty(len(rows), np.uint64), np.empty(len(rows), np.int64)
        counts = np.zeros(5, np.int64)
        _resolve_links(rows, order, links, sources, sums, counts)
        kept, pages, to_themselves, merged, dangling = counts.tolist()
        links = links[:kept]
        self._count(read=pages, to_themselves=to_themselves, merged=merged, dangling=dangling)
        self._append(f"read-{bucket}", np.stack((sources[:pages], sums[:pages].view(np.uint64)), 1))
        if self.plan.both_ways:
            links[:, 2] = ORDINARY_LINK_WEIGHT
            links = np.concatenate((links, links[:, [1, 0, 2]]))
        self._scatter("into", links, 1)
        return [f"links-{bucket}"]

    def _number(self, bucket: int) -> list[str]:
        into, read, names = (
            self._rows(f"{name}-{bucket}", columns) for name, columns in (("into", 3), ("read", 2), ("names", 2))
        )
        ids = np.unique(np.concatenate((into[:, 1], read[:, 0], names[:, 0])))
        if self._pages_known + len(ids) > MOST_PAGES:
            raise GraphRefused(f"more than {MOST_PAGES:,} pages: divide the crawl")
        out = np.zeros(len(ids), np.int64)
        out[np.searchsorted(ids, read[:, 0])] = read[:, 1].view(np.int64)
        rows = np.searchsorted(ids, names[:, 0])
        given = (names[:, 1] >> np.uint64(32)).astype(np.uint8)
        categories = np.full(len(ids), NO_CATEGORY, np.uint8)
        known = given != NO_CATEGORY
        categories[rows[known]] = given[known]  # the last one counts
        stated = (names[:, 1] >> np.uint64(40)).astype(np.uint8)
        hops = np.zeros(len(ids), np.uint8)
        known = stated != 0
        hops[rows[known]] = stated[known] == HOP
        text = self._read(f"text-{bucket}", np.uint8)
        lengths = (names[:, 1] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        with_url = np.flatnonzero(lengths)[::-1]  # equal ids have equal URLs
        url_begins, url_lengths = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        url_begins[rows[with_url]], url_lengths[rows[with_url]] = begins[with_url], lengths[with_url]
        ends = np.cumsum(url_lengths)
        urls = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        _move(text, url_begins, ends, urls)
        before = self._lengths.get("pages.urls", 0)
        for name, column in (
            ("pages.ids", ids),
            ("pages.out", out),
            ("pages.categories", categories),
            ("pages.hops", hops),
            ("pages.urls", urls),
            ("pages.ends", ends + before),
        ):
            self._append(name, column)
        self._state["bucket_pages"] = [*self._state["bucket_pages"], len(ids)]
        return [f"{name}-{bucket}" for name in ("read", "names", "text")]

    def _sort(self, bucket: int) -> list[str]:
        into = self._rows(f"into-{bucket}", 3)
        pages = self._pages_known
        all_ids = np.memmap(self.path / "pages.ids", np.uint64, mode="r") if pages else np.empty(0, np.uint64)
        base = sum(self._state["bucket_pages"][:bucket])
        own = np.asarray(all_ids[base : base + self._state["bucket_pages"][bucket]])
        into = into[np.argsort(into[:, 0], kind="stable")]
        keys = key_of(np.searchsorted(all_ids, into[:, 0]), base + np.searchsorted(own, into[:, 1]))
        weights = into[:, 2].astype(np.uint16)
        if (weights == ORDINARY_LINK_WEIGHT).all():
            keys = np.unique(keys) if self.plan.both_ways else np.sort(keys)
            weights = np.empty(0, np.uint16)
        else:
            order = np.argsort(keys)
            keys, weights = keys[order], weights[order]
        targets = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64) - base
        given = weights if len(weights) else np.broadcast_to(np.uint16(ORDINARY_LINK_WEIGHT), len(keys))
        sums = np.bincount(targets, given, len(own)).astype(np.int64)  # below 2^53: exact
        self._append("pages.in", sums)
        self._append(f"keys-{bucket}", keys)
        self._append(f"weights-{bucket}", weights)
        self._state["bucket_links"] = [*self._state["bucket_links"], len(keys)]
        return [f"into-{bucket}"]

    def _write_slice(self, slice_: int) -> list[str]:
        first, end = slice_ * self._slice_pages, min((slice_ + 1) * self._slice_pages, self._pages_known)
        ends = np.cumsum(self._state["bucket_pages"])
        begins = ends - self._state["bucket_pages"]
        buckets = np.flatnonzero((ends > first) & (begins < end) & (ends > begins)).tolist()
        merged = [_SortedLinks(self._work, bucket) for bucket in buckets]
        ranges = ranges_of(self._pages_known, self._slice_pages, self._block_sources)
        links = sum(len(one.keys) for one in merged)
        at_once = max(1, len(ranges) * self.plan.memory_bytes // (64 * max(links, 1)))
        index, position = [], 0
        with new_file(self.path / f"slice-{slice_:05}.links") as file:
            for number in range(0, len(ranges) - 1, at_once):
                bounds = ranges[number : number + at_once + 1]
                keys, weights = _merge(merged, int(bounds[0]), int(bounds[-1]), first, end)
                cuts = np.searchsorted(keys, bounds.astype(np.uint64) << np.uint64(32))
                for i in range(len(bounds) - 1):
                    part = slice(int(cuts[i]), int(cuts[i + 1]))
                    block = encode(keys[part], weights[part], int(bounds[i]), first).tobytes()
                    file.write(block)
                    digest = xxhash.xxh64_intdigest(block)
                    index.append((position, len(block), part.stop - part.start, digest - (digest >> 63 << 64)))
                    position += len(block)
        with new_file(self.path / f"slice-{slice_:05}.blocks") as file:
            file.write(np.array(index, "<i8").tobytes())
        return []

    def _write_manifest(self) -> None:
        pages, links = self._pages_known, sum(self._state["bucket_links"])
        if pages == 0:
            raise GraphRefused("the input has no pages: there is no graph to build")
        if self.plan.both_ways:  # every page has as many outgoing links as incoming
            shutil.copyfile(self.path / "pages.in", self.path / "pages.out")
        slices = -(-pages // self._slice_pages)
        names = [*_GROWING, *(f"slice-{n:05}.{kind}" for n in range(slices) for kind in ("links", "blocks"))]
        counts = self._state["counts"]
        values: Manifest = {
            "pages": pages,
            "links": links,
            "slice_pages": self._slice_pages,
            "block_sources": self._block_sources,
            "both_ways": self.plan.both_ways,
            "categories": list(self.plan.categories),
            "read": counts.get("read", 0),
            "dangling": counts.get("dangling", 0),
            "to_themselves": counts.get("to_themselves", 0),
            "merged": counts.get("merged", 0),
            "files": {name: _size_and_digest(self.path / name) for name in names},
        }
        write_whole(self.path / MANIFEST, write_manifest(values))


class _SortedLinks:
    """The sorted links of a bucket."""

    def __init__(self, work: Path, bucket: int) -> None:
        self.keys = _mapped(work / f"keys-{bucket}", np.uint64)
        self.weights = _mapped(work / f"weights-{bucket}", np.uint16)


def _merge(
    merged: list[_SortedLinks], first_source: int, end_source: int, first: int, end: int
) -> tuple[Words, LinkWeights]:
    """Merge the links of a range of sources to the pages first … end-1; weights only if one is not ordinary."""
    keys, weights, weighted = [], [], False
    for one in merged:
        low, high = np.searchsorted(one.keys, np.array([first_source, end_source], np.uint64) << np.uint64(32)).tolist()
        some = np.asarray(one.keys[low:high])
        given = np.asarray(one.weights[low:high]) if len(one.weights) else np.full(len(some), ORDINARY_LINK_WEIGHT)
        targets = some & np.uint64(0xFFFFFFFF)
        inside = (targets >= np.uint64(first)) & (targets < np.uint64(end))
        keys.append(some[inside])
        weights.append(given[inside].astype(np.uint16))
        weighted |= len(one.weights) > 0
    together = np.concatenate(keys) if keys else np.empty(0, np.uint64)
    if not weighted:
        return np.sort(together), np.empty(0, np.uint16)
    order = np.argsort(together)
    return together[order], np.concatenate(weights)[order]


@kernel
def _resolve_links(rows: Words, order: Ints, links: Words, sources: Words, sums: Ints, counts: Ints) -> None:
    """Resolve the links of each source's last visit: sorted by target, without links to itself, equal ones added up.

    Counts: links kept, pages, links to themselves, links merged, pages without links.
    """
    n = order.shape[0]
    kept, pages = np.int64(0), np.int64(0)
    begin = np.int64(0)
    while begin < n:
        source = rows[order[begin], 0]
        end = begin
        last = np.uint64(0)
        while end < n and rows[order[end], 0] == source:
            last = max(last, rows[order[end], 1] >> np.uint64(16))
            end += 1
        first = kept
        for i in range(begin, end):
            row = order[i]
            weight = rows[row, 1] & np.uint64(0xFFFF)
            if rows[row, 1] >> np.uint64(16) != last or weight == np.uint64(0):
                continue
            if rows[row, 2] == source:
                counts[2] += 1
                continue
            links[kept, 0] = source
            links[kept, 1] = rows[row, 2]
            links[kept, 2] = weight
            kept += 1
        _sort_by_target(links, first, kept)
        total = np.int64(0)
        at = first
        for i in range(first, kept):
            if at > first and links[at - 1, 1] == links[i, 1]:
                links[at - 1, 2] = min(links[at - 1, 2] + links[i, 2], np.uint64(MOST_LINK_WEIGHT))
                counts[3] += 1
            else:
                links[at, 0] = source
                links[at, 1] = links[i, 1]
                links[at, 2] = links[i, 2]
                at += 1
        kept = at
        for i in range(first, kept):
            total += np.int64(links[i, 2])
        sources[pages] = source
        sums[pages] = total
        counts[4] += total == 0
        pages += 1
        begin = end
    counts[0], counts[1] = kept, pages


@kernel
def _sort_by_target(links: Words, first: Int, end: Int) -> None:
    if end - first > _FEW:
        order = np.argsort(links[first:end, 1].copy())
        links[first:end] = links[first:end][order]
        return
    for i in range(first + 1, end):
        target, weight = links[i, 1], links[i, 2]
        at = i
        while at > first and links[at - 1, 1] > target:
            links[at, 1] = links[at - 1, 1]
            links[at, 2] = links[at - 1, 2]
            at -= 1
        links[at, 1] = target
        links[at, 2] = weight


@lean_kernel
def _move(text: Bytes, begins: Ints, ends: Ints, out: Bytes) -> None:
    """Gather pieces of a text: piece i begins at `begins[i]`, and ends at `ends[i]` of the output."""
    first = np.int64(0)
    for i in range(ends.shape[0]):
        shift = begins[i] - first
        for at in range(first, ends[i]):
            out[at] = text[at + shift]
        first = ends[i]


def _mapped(path: Path, dtype: type[G]) -> npt.NDArray[G]:
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)


def _size_and_digest(path: Path) -> tuple[int, str]:
    digest, size = xxhash.xxh64(), 0
    with open(path, "rb") as file:
        while data := file.read(16 << 20):
            digest.update(data)
            size += len(data)
        os.fsync(file.fileno())
    return size, digest.hexdigest()
