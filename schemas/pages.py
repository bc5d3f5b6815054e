"""Pages and shards: a canonical URL's 64-bit page id, and which shard a page id belongs to.

A shard is a range of page ids, `shard = (id * shards) >> 64`, so doubling the number of shards splits each in
two and moves no page between others. URLs are taken as they come: making them canonical is not done here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash

from opicflow.schemas.arrays import Ids, Ints

MOST_SHARDS = 2**31 - 1

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def page_id(url: bytes | str) -> int:
    """The page id of a canonical URL: XXH64, seed 0, of its UTF-8 bytes."""
    return xxhash.xxh64_intdigest(url.encode() if isinstance(url, str) else url)


def page_ids(urls: Iterable[bytes | str]) -> Ids:
    """The page ids of canonical URLs, in their order."""
    return np.fromiter(map(page_id, urls), dtype=np.uint64)


def shard_of(ids: Ids, shards: int) -> Ints:
    """The shard of each page id: exactly `(id * shards) >> 64`, for 1 to `MOST_SHARDS` shards."""
    _check_shards(shards)
    if ids.dtype != np.uint64:
        raise TypeError(f"page ids are uint64, not {ids.dtype}")
    # id * shards does not fit into 64 bits: multiply the halves of the id and carry by hand, as on paper.
    carry = ((ids & _LOW_HALF) * np.uint64(shards)) >> _HALF
    product = (ids >> _HALF) * np.uint64(shards) + carry
    return (product >> _HALF).astype(np.int64)


def shard_bounds(shard: int, shards: int) -> tuple[int, int]:
    """The first and the last page id of a shard, both inside it."""
    _check_shards(shards)
    if not 0 <= shard < shards:
        raise ValueError(f"shard {shard} is not one of 0 to {shards - 1}")
    # The first id of shard s is the smallest one with id * shards >= s * 2**64: a division rounded up.
    first = -((-shard << 64) // shards)
    after = -((-(shard + 1) << 64) // shards)
    return first, after - 1


def _check_shards(shards: int) -> None:
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"a crawl has 1 to {MOST_SHARDS} shards, not {shards}")
