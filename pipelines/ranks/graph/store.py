"""Reads a graph on disk: its pages, and its links in vertical slices (thesis, 2.3.2).

    graph.json        the manifest: sizes, and a digest of every other file
    pages.ids         page ids, mixed (`mixed`) and ascending: page i of the graph has the i-th id
    pages.out/.in     the summed weights of each page's links, and of the links to it
    pages.categories  the category of each page, 255 if unknown
    pages.hops        1 for each page whose links are those of a redirect
    pages.urls        the URLs of all pages, one after the other; pages.ends: where each one ends
    slice-*.links     the links to the pages of a slice, in blocks (slices.py) by ranges of sources
    slice-*.blocks    for each block: its position, size, number of links, and digest

A slice is a range of pages, so a range of mixed page ids. While the links of a slice are read, its pages must
fit in memory. Ranges of sources end where slices end, so all sources of a block are in one slice too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypedDict, TypeVar, cast

import numpy as np
import numpy.typing as npt
import xxhash

from opicflow.pipelines.ranks.graph.slices import BlockLinks, DecodeBuffers, decode
from opicflow.schemas.arrays import Bytes, Ids, Ints
from opicflow.schemas.errors import UserError

FORMAT, VERSION = "opicflow graph", 1
MANIFEST = "graph.json"
NO_CATEGORY = 255

_COLUMNS = {
    "pages.ids": "<u8",
    "pages.out": "<i8",
    "pages.in": "<i8",
    "pages.categories": "|u1",
    "pages.hops": "|u1",
    "pages.ends": "<i8",
}
_FILE = re.compile(r"pages\.(ids|out|in|categories|hops|ends|urls)|slice-\d{5,9}\.(links|blocks)")
_SIZES = {"pages": 1, "links": 0, "slice_pages": 1, "block_sources": 1}
_COUNTS = ("read", "dangling", "to_themselves", "merged")
_MOST = (1 << 62) - 1
_WORDS_OF_A_BLOCK = 4
_MULTIPLIER = 0x9E3779B97F4A7C15
_BYTES_AT_ONCE = 16 << 20
_PAGES_AT_ONCE = 1 << 16


G = TypeVar("G", bound=np.generic)


class Manifest(TypedDict):
    """The content of `graph.json`, without what says that it is one. `files` are their sizes and digests."""

    pages: int
    links: int
    slice_pages: int
    block_sources: int
    both_ways: bool
    categories: list[str]
    read: int
    dangling: int
    to_themselves: int
    merged: int
    files: dict[str, tuple[int, str]]


class GraphRefused(UserError, ValueError):
    """A graph cannot be read or built."""


def mixed(ids: Ids) -> Ids:
    """Return page ids such that those of one site are as far apart as others; `unmixed` is the inverse.

    Page ids of a site begin alike. Buckets and slices are ranges, and should be of one size whatever the sites.
    """
    return ids * np.uint64(_MULTIPLIER)


def unmixed(ids: Ids) -> Ids:
    """Return the page ids that `mixed` was given."""
    return ids * np.uint64(pow(_MULTIPLIER, -1, 1 << 64))


class LinkBlock(NamedTuple):
    """Links from the pages `first` up to `end` to the pages of a slice."""

    first: int
    end: int
    links: BlockLinks


class StoredGraph:
    """A graph in a folder. Every file is checked against its digest when it is first read."""

    def __init__(self, path: Path) -> None:
        """Open a graph; refuse one with missing or damaged files."""
        self.path = path
        self.manifest = _manifest(path)
        self.pages, self.links = self.manifest["pages"], self.manifest["links"]
        self.slice_pages, self.block_sources = self.manifest["slice_pages"], self.manifest["block_sources"]
        self.categories = tuple(self.manifest["categories"])
        self._files = {name: (size, digest) for name, (size, digest) in self.manifest["files"].items()}
        for name, (size, _) in self._files.items():
            self._check_size(name, size)
        self.slices = -(-self.pages // self.slice_pages)
        self.ranges = ranges_of(self.pages, self.slice_pages, self.block_sources)
        self._buffers: dict[int, DecodeBuffers] = {}
        self._held: dict[tuple[int, int], BlockLinks] = {}
        self._checked: set[tuple[int, int]] = set()
        self._blocks: dict[int, Ints] = {}
        self._bytes_left = 0

    def hold(self, most_bytes: int) -> None:
        """Keep decoded links in memory for later scans, at most so many bytes."""
        self._bytes_left = most_bytes
        self._held.clear()

    def ids(self, first: int = 0, end: int | None = None) -> Ids:
        """Return the page ids of a range of pages; without an end, of all that follow."""
        return unmixed(np.asarray(self._mixed_ids[first:end]))

    def numbers_of(self, ids: Ids) -> Ints:
        """Return the number of the page with each id, -1 where there is none."""
        if self.pages == 0:
            return np.full(len(ids), -1, np.int64)
        wanted = mixed(ids)
        at = np.minimum(np.searchsorted(self._mixed_ids, wanted), self.pages - 1)
        return np.where(np.asarray(self._mixed_ids)[at] == wanted, at, -1)

    @cached_property
    def _mixed_ids(self) -> Ids:
        return self._column("pages.ids", np.uint64)

    @cached_property
    def out_weights(self) -> Ints:
        """The summed weights of each page's links; 0 for a dangling page."""
        return self._column("pages.out", np.int64)

    @cached_property
    def in_weights(self) -> Ints:
        """The summed weights of the links to each page."""
        return self._column("pages.in", np.int64)

    @cached_property
    def page_categories(self) -> Bytes:
        """The category of every page."""
        return self._column("pages.categories", np.uint8)

    @cached_property
    def hops(self) -> Bytes:
        """1 for each page whose links are those of a redirect: it has no part of the teleport."""
        return self._column("pages.hops", np.uint8)

    @cached_property
    def url_ends(self) -> Ints:
        """The end of each page's URL in `url_bytes`."""
        return self._column("pages.ends", np.int64)

    @cached_property
    def url_bytes(self) -> Bytes:
        """The URLs of all pages, one after the other; empty for a page without a known URL."""
        return self._mapped("pages.urls", np.uint8)

    def bounds(self, slice_: int) -> tuple[int, int]:
        """Return the first page of a slice, and the one after its last."""
        return slice_ * self.slice_pages, min((slice_ + 1) * self.slice_pages, self.pages)

    def blocks(self, slice_: int, ranges: tuple[int, int] | None = None) -> Iterator[LinkBlock]:
        """Return the links to a slice in blocks, in the order of their sources: of all ranges, or of some.

        The next block overwrites the arrays of a block.
        """
        index = self._index(slice_)
        mapped: Bytes | None = None
        for number in range(*(ranges or (0, len(self.ranges) - 1))):
            links = int(index[number, 2])
            if links == 0:
                continue
            first, end = int(self.ranges[number]), int(self.ranges[number + 1])
            held = self._held.get((slice_, number))
            if held is None:
                if mapped is None:
                    mapped = self._mapped(_links_of(slice_), np.uint8, check=False)
                held = self._decoded(slice_, number, mapped, index)
            yield LinkBlock(first, end, held)

    def check(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Read every byte; raise `GraphRefused` for any damage. `progress` is called with the bytes of each read."""
        for name, (size, digest) in self._files.items():
            if self._digest(name, progress) != digest:
                raise self._damaged(name)
            self._check_size(name, size)
        for slice_ in range(self.slices):
            for block in self.blocks(slice_):
                del block

    @property
    def bytes(self) -> int:
        """The size of the graph on disk."""
        return sum(size for size, _ in self._files.values())

    @property
    def bytes_of_links(self) -> int:
        """The size of the links on disk, with their index."""
        return sum(size for name, (size, _) in self._files.items() if name.startswith("slice-"))

    def _decoded(self, slice_: int, number: int, mapped: Bytes, index: Ints) -> BlockLinks:
        at, size, count, digest = (int(word) for word in index[number])
        block = mapped[at : at + size]
        if (slice_, number) not in self._checked and xxhash.xxh64_intdigest(block.data) != digest & (2**64 - 1):
            raise self._damaged(_links_of(slice_))
        buffers = self._buffers.get(slice_)
        if buffers is None:
            most = int(index[:, 2].max())
            self._buffers = {slice_: (buffers := DecodeBuffers.of(most, int(np.diff(self.ranges).max())))}
        links = decode(block, count, buffers)
        first, end = self.bounds(slice_)
        sources = int(self.ranges[number + 1] - self.ranges[number])
        if links is None or links.sources[-1] >= sources or int(links.targets.max()) >= end - first:
            raise self._damaged(_links_of(slice_))
        self._checked.add((slice_, number))
        needed = sum(column.nbytes for column in links)
        if needed <= self._bytes_left:
            self._bytes_left -= needed
            links = BlockLinks(links.sources.copy(), links.starts.copy(), links.targets.copy(), links.weights)
            self._held[slice_, number] = links
        return links

    def _index(self, slice_: int) -> Ints:
        found = self._blocks.get(slice_)
        if found is None:
            found = np.asarray(self._mapped(_blocks_of(slice_), np.int64))
            found = found.reshape(-1, _WORDS_OF_A_BLOCK)
            size = self._files[_links_of(slice_)][0]
            ends = found[:, 0] + found[:, 1]
            if len(found) != len(self.ranges) - 1 or (found[:, :3] < 0).any() or bool((ends > size).any()):
                raise self._damaged(_blocks_of(slice_))
            self._blocks[slice_] = found
        return found

    def _column(self, name: str, dtype: type[G]) -> npt.NDArray[G]:
        column = self._mapped(name, dtype)
        if len(column) != self.pages:
            raise self._damaged(name)
        return column

    def _mapped(self, name: str, dtype: type[G], check: bool = True) -> npt.NDArray[G]:
        if name not in self._files:
            raise self._damaged(MANIFEST)
        if check and self._digest(name) != self._files[name][1]:
            raise self._damaged(name)
        if self._files[name][0] == 0:
            return np.empty(0, dtype)
        self._check_size(name, self._files[name][0])
        return np.memmap(self.path / name, dtype, mode="r")

    def _digest(self, name: str, progress: Callable[[int], None] = lambda done: None) -> str:
        digest = xxhash.xxh64()
        try:
            with open(self.path / name, "rb") as file:
                while data := file.read(_BYTES_AT_ONCE):
                    digest.update(data)
                    progress(len(data))
        except FileNotFoundError:
            raise self._damaged(name) from None
        return digest.hexdigest()

    def _check_size(self, name: str, size: int) -> None:
        try:
            there = (self.path / name).stat().st_size
        except FileNotFoundError:
            there = -1
        if there != size:
            raise self._damaged(name)

    def _damaged(self, name: str) -> GraphRefused:
        return GraphRefused(f"{self.path / name}: missing or damaged: build the graph again")


def pieces(pages: int) -> Iterator[tuple[int, int]]:
    """Return ranges of pages that are summed on their own: sums of sums lose fewer digits."""
    return ((first, min(first + _PAGES_AT_ONCE, pages)) for first in range(0, pages, _PAGES_AT_ONCE))


def ranges_of(pages: int, slice_pages: int, block_sources: int) -> Ints:
    """Return the starts of the ranges of sources, `block_sources` each or up to a slice's end, and the last end."""
    first = np.arange(0, pages, slice_pages, dtype=np.int64)
    steps = np.arange(0, min(slice_pages, pages), block_sources, dtype=np.int64)
    begins = (first[:, None] + steps[None, :]).ravel()
    return np.append(begins[begins < pages], pages)


def new_file(path: Path) -> BinaryIO:
    """Open a new file: a link that others have put at its path is removed, and never followed."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file, atomically."""
    partial = path.with_name(f".{path.name}.partial")
    with new_file(partial) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_manifest(values: Manifest) -> bytes:
    """Return the content of `graph.json`."""
    body = {"format": FORMAT, "version": VERSION, "digest": _digest_of(values), **values}
    return json.dumps(body, indent=1).encode()


def _manifest_problem(manifest: Manifest) -> str:
    """The first problem of a manifest with a right digest; empty if there is none."""
    for name, least in _SIZES.items():
        if not _is_size(manifest.get(name), least):
            return f"{name} is no number of this graph"
    for name in _COUNTS:
        if not _is_size(manifest.get(name, 0), 0):
            return f"{name} is no number of this graph"
    categories, files = manifest.get("categories"), cast(object, manifest.get("files"))
    if type(categories) is not list or not all(type(name) is str for name in categories):
        return "its categories are no names"
    if not isinstance(files, dict):
        return "its files are none"
    for name, words in files.items():
        if _FILE.fullmatch(name) is None:
            return f"{name[:40]!r} is no file of a graph"
        if not (type(words) is list and len(words) == 2 and _is_size(words[0], 0) and type(words[1]) is str):
            return f"{name} has no size and digest"
    pages, slices = manifest["pages"], -(-manifest["pages"] // manifest["slice_pages"])
    if any(name not in files or files[name][0] != pages * np.dtype(kind).itemsize for name, kind in _COLUMNS.items()):
        return "its columns are not as long as it has pages"
    if "pages.urls" not in files or 2 * slices != sum(name.startswith("slice-") for name in files):
        return "its files are not those of its slices"
    if any(_links_of(slice_) not in files or _blocks_of(slice_) not in files for slice_ in range(slices)):
        return "its files are not those of its slices"
    return ""


def _is_size(value: object, least: int) -> bool:
    """Whether a value of a manifest is a whole number in bounds."""
    return type(value) is int and least <= value <= _MOST


def _links_of(slice_: int) -> str:
    return f"slice-{slice_:05}.links"


def _blocks_of(slice_: int) -> str:
    return f"slice-{slice_:05}.blocks"


def _digest_of(values: Mapping[str, object]) -> str:
    return xxhash.xxh64_hexdigest(json.dumps(values, sort_keys=True).encode())


def _manifest(path: Path) -> Manifest:
    try:
        stored = json.loads((path / MANIFEST).read_bytes())
        kind, version, digest = stored.pop("format"), stored.pop("version"), stored.pop("digest")
    except (FileNotFoundError, NotADirectoryError):
        raise GraphRefused(f"{path}: no graph there: build one with opicflow graph build LOG --out web.graph") from None
    except (ValueError, AttributeError, KeyError, RecursionError):
        raise GraphRefused(f"{path / MANIFEST}: missing or damaged: build the graph again") from None
    if kind != FORMAT or version != VERSION:
        raise GraphRefused(
            f"{path}: its graph has version {str(version)[:20]!r}, this version reads {VERSION}: build it again"
        )
    if digest != _digest_of(stored):
        raise GraphRefused(f"{path / MANIFEST}: missing or damaged: build the graph again")
    if (problem := _manifest_problem(stored)) != "":
        raise GraphRefused(f"{path / MANIFEST}: missing or damaged ({problem}): build the graph again")
    return cast(Manifest, dict.fromkeys(_COUNTS, 0) | stored)
