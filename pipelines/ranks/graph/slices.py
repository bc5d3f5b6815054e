"""The format of the links of a slice: blocks of links, each of one range of sources, in the order of sources.

A block holds the links of its sources into the slice. For each source that has such links: the distance from the
previous source (at first from the start of the range), the number of links, and the distances between their targets (at
first from the first page of the slice, then less one, because targets ascend), as integers of 7 bits a byte, low bits
first. If not all links are ordinary, their weights follow, 2 bytes each.

Distances are short where slices and blocks are small: measured in docs/guides/ranks.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT, Int32s, LinkWeights
from opicflow.schemas.arrays import Bytes, Int, Ints, Words
from opicflow.schemas.kernel import kernel, lean_kernel
from opicflow.schemas.varint import put_unsigned, read_unsigned

MOST_PAGES = 2**31 - 1
"""A link then fits into 64 bits, and a page number of a block into 32."""

_MOST_BYTES_A_NUMBER = 5


class BlockLinks(NamedTuple):
    """The links of a block: row r is page `sources[r]` of its range, with `targets[starts[r]:starts[r + 1]]`.

    Targets are pages of the slice. `weights` is empty if all links are ordinary.
    """

    sources: Int32s
    starts: Int32s
    targets: Int32s
    weights: LinkWeights


class DecodeBuffers(NamedTuple):
    """Buffers for decoding blocks of at most so many links and sources: each block overwrites the previous one."""

    sources: Int32s
    starts: Int32s
    targets: Int32s

    @classmethod
    def of(cls, links: int, sources: int) -> DecodeBuffers:
        rows = min(links, sources)
        return cls(np.empty(rows, np.int32), np.empty(rows + 1, np.int32), np.empty(links, np.int32))


def key_of(sources: Ints, targets: Ints) -> Words:
    """Return links as integers that sort by source, then by target."""
    keys: Words = (sources.astype(np.uint64) << np.uint64(32)) | targets.astype(np.uint64)
    return keys


def encode(keys: Words, weights: LinkWeights, first_source: int, first_target: int) -> Bytes:
    """Encode a block of links, which ascend without duplicates. `weights` is empty if all links are ordinary."""
    out = np.empty(len(keys) * 3 * _MOST_BYTES_A_NUMBER, np.uint8)
    size = int(_encode(keys, first_source, first_target, out))
    if len(weights) == 0 or bool((weights == ORDINARY_LINK_WEIGHT).all()):
        return out[:size]
    return np.concatenate((out[:size], weights.astype("<u2").view(np.uint8)))


def decode(block: Bytes, links: int, buffers: DecodeBuffers) -> BlockLinks | None:
    """Decode a block of so many links into `buffers`; None if it is damaged."""
    rows, size = _decode(block, links, buffers.sources, buffers.starts, buffers.targets)
    if size < 0:
        return None
    rest = block[size:]
    if len(rest) not in (0, 2 * links):
        return None
    weights = np.frombuffer(rest.tobytes(), "<u2").astype(np.uint16, copy=False)
    return BlockLinks(buffers.sources[:rows], buffers.starts[: rows + 1], buffers.targets[:links], weights)


@kernel
def _encode(keys: Words, first_source: Int, first_target: Int, out: Bytes) -> Int:
    at, link, count = np.int64(0), 0, keys.shape[0]
    before = np.int64(first_source)
    while link < count:
        source = np.int64(keys[link] >> np.uint64(32))
        end = link + 1
        while end < count and np.int64(keys[end] >> np.uint64(32)) == source:
            end += 1
        at = put_unsigned(out, at, source - before)
        at = put_unsigned(out, at, np.int64(end - link))
        before = source
        last = np.int64(first_target)
        for i in range(link, end):
            target = np.int64(keys[i] & np.uint64(0xFFFFFFFF))
            at = put_unsigned(out, at, target - last)
            last = target + 1
        link = end
    return at


@lean_kernel
def _decode(block: Bytes, links: Int, sources: Int32s, starts: Int32s, targets: Int32s) -> tuple[Int, Int]:
    """Return the number of rows, and where the integers end; -1 for a damaged block."""
    size = block.shape[0]
    at, link, row = np.int64(0), np.int64(0), np.int64(0)
    before = np.int64(0)
    wrong = (np.int64(0), np.int64(-1))
    while link < links:
        if row == sources.shape[0]:
            return wrong
        step, at = read_unsigned(block, at, size, _MOST_BYTES_A_NUMBER)
        number, at = read_unsigned(block, at, size, _MOST_BYTES_A_NUMBER)
        count = np.int64(number)
        if at > size or count < 1 or count > links - link:
            return wrong
        before += np.int64(step)
        if before > 0x7FFFFFFF:
            return wrong
        sources[row] = before
        starts[row] = link
        last = np.int64(-1)
        for _ in range(count):
            distance, at = read_unsigned(block, at, size, _MOST_BYTES_A_NUMBER)
            last += np.int64(distance) + 1
            if last > 0x7FFFFFFF:
                return wrong
            targets[link] = last
            link += 1
        if at > size:
            return wrong
        row += 1
    starts[row] = link
    return row, at
