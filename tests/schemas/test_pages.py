"""Page ids and shards, checked against Python's integers of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.pages import MOST_SHARDS, page_id, page_ids, shard_bounds, shard_of

LAST_ID = 2**64 - 1

ids = st.integers(0, LAST_ID) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, LAST_ID])
shard_counts = st.integers(1, 64) | st.integers(1, MOST_SHARDS) | st.just(MOST_SHARDS)


def shard_of_one(page: int, shards: int) -> int:
    return int(shard_of(np.array([page], dtype=np.uint64), shards)[0])


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
    ],
)
def test_a_page_id_is_xxh64_with_seed_0(url: str, page: int) -> None:
    assert page_id(url) == page


def test_a_url_has_one_page_id_as_text_and_as_bytes() -> None:
    url = "https://example.org/größe"
    assert page_id(url) == page_id(url.encode())


def test_page_ids_are_in_the_order_of_the_urls() -> None:
    urls = ["https://example.org/", b"https://example.org/a", "https://example.org/"]
    found = page_ids(urls)
    assert found.dtype == np.uint64
    assert found.tolist() == [page_id(url) for url in urls]
    assert page_ids([]).shape == (0,)


@given(st.lists(ids), shard_counts)
def test_a_shard_is_the_high_half_of_the_product(pages: list[int], shards: int) -> None:
    found = shard_of(np.array(pages, dtype=np.uint64), shards)
    assert found.dtype == np.int64
    assert found.tolist() == [(page * shards) >> 64 for page in pages]


@given(ids, shard_counts)
def test_every_page_id_is_within_the_bounds_of_its_shard(page: int, shards: int) -> None:
    first, last = shard_bounds(shard_of_one(page, shards), shards)
    assert first <= page <= last


@given(st.data(), shard_counts)
def test_shards_have_no_gaps_and_no_overlaps(data: st.DataObject, shards: int) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    first, last = shard_bounds(shard, shards)
    assert first == (0 if shard == 0 else shard_bounds(shard - 1, shards)[1] + 1)
    assert last == (LAST_ID if shard == shards - 1 else shard_bounds(shard + 1, shards)[0] - 1)
    assert [shard_of_one(page, shards) for page in (first, last)] == [shard, shard]


@given(st.data(), st.integers(1, MOST_SHARDS // 2))
def test_doubling_the_shards_splits_each_in_two(data: st.DataObject, shards: int) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    lower, upper = shard_bounds(2 * shard, 2 * shards), shard_bounds(2 * shard + 1, 2 * shards)
    assert lower[1] + 1 == upper[0]
    assert shard_bounds(shard, shards) == (lower[0], upper[1])


@pytest.mark.parametrize("shards", [0, -1, MOST_SHARDS + 1])
def test_an_invalid_number_of_shards_is_refused(shards: int) -> None:
    with pytest.raises(ValueError, match=f"not {shards}$"):
        shard_of(np.zeros(1, dtype=np.uint64), shards)
    with pytest.raises(ValueError, match=f"not {shards}$"):
        shard_bounds(0, shards)


@pytest.mark.parametrize("shard", [-1, 4])
def test_a_missing_shard_is_refused(shard: int) -> None:
    with pytest.raises(ValueError, match=f"^shard {shard} is not one of 0 to 3$"):
        shard_bounds(shard, 4)


def test_page_ids_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="uint64, not int64"):
        shard_of(np.zeros(1, dtype=np.int64), 4)
