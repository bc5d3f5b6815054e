"""Ranges of page ids, checked against Python's integers of any size."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import MOST_SHARDS, RangesRefused, Shard, ShardRanges

LAST_ID = 2**64 - 1
SITE = 1 << 48

ids = st.integers(0, LAST_ID) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, LAST_ID])
shard_counts = st.integers(1, 64) | st.integers(1, MOST_SHARDS) | st.just(MOST_SHARDS)


@st.composite
def ranges(draw: st.DrawFn) -> ShardRanges:
    """Make ranges of any width."""
    firsts = draw(st.lists(st.integers(1, LAST_ID), max_size=20, unique=True))
    return ShardRanges((0, *sorted(firsts)))


@given(st.lists(ids), shard_counts)
def test_with_equal_ranges_a_shard_is_the_high_half_of_the_product(pages: list[int], shards: int) -> None:
    found = ShardRanges.equal(shards).of(np.array(pages, np.uint64))
    assert found.dtype == np.int64
    assert found.tolist() == [(page * shards) >> 64 for page in pages]


@given(ranges(), st.lists(ids))
def test_every_page_id_is_within_the_bounds_of_its_shard(divided: ShardRanges, pages: list[int]) -> None:
    for page, shard in zip(pages, divided.of(np.array(pages, np.uint64)).tolist(), strict=True):
        first, last = divided.bounds(shard)
        assert first <= page <= last


@given(ranges())
def test_ranges_cover_all_page_ids_once(divided: ShardRanges) -> None:
    bounds = [divided.bounds(shard) for shard in range(divided.count)]
    assert bounds[0][0] == 0 and bounds[-1][1] == LAST_ID
    assert all(after[0] == before[1] + 1 for before, after in pairwise(bounds))
    edges = np.array([page for pair in bounds for page in pair], np.uint64)
    assert divided.of(edges).tolist() == [shard for shard in range(divided.count) for _ in range(2)]


@given(ranges())
def test_ranges_are_read_back(divided: ShardRanges) -> None:
    assert ShardRanges.from_json(json.loads(json.dumps(divided.to_json()))) == divided


@given(st.integers(1, 64), st.data())
def test_doubling_equal_shards_divides_each_in_two(shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    doubled = ShardRanges.equal(2 * shards)
    assert ShardRanges.equal(shards).bounds(shard) == (doubled.bounds(2 * shard)[0], doubled.bounds(2 * shard + 1)[1])
    assert ShardRanges.equal(shards).is_equal and doubled.is_equal


@pytest.mark.parametrize(
    ("firsts", "message"),
    [
        ((), "there are 0 shards"),
        ((1, 5), "must begin at 0"),
        ((0, 5, 5), "shard 2 begins at 5, not behind shard 1"),
        ((0, 9, 5), "shard 2 begins at 5, not behind shard 1 at 9"),
        ((0, -1), "whole numbers of 64 bits"),
        ((0, 1 << 64), "whole numbers of 64 bits"),
        ((0, 1.5), "whole numbers of 64 bits"),
        ((0, True), "whole numbers of 64 bits"),
        ((0, "5"), "whole numbers of 64 bits"),
        (tuple(range(MOST_SHARDS + 1)), f"1 to {MOST_SHARDS}"),
    ],
)
def test_boundaries_that_overlap_or_do_not_cover_are_refused_in_one_line(firsts: tuple[int, ...], message: str) -> None:
    with pytest.raises(RangesRefused, match=message) as refused:
        ShardRanges(firsts)
    assert "\n" not in str(refused.value)


def test_an_invalid_list_of_boundaries_is_refused() -> None:
    with pytest.raises(RangesRefused, match="no list"):
        ShardRanges.from_json({"0": 1})


@pytest.mark.parametrize("shards", [0, -1, MOST_SHARDS + 1])
def test_impossible_numbers_of_shards_are_refused(shards: int) -> None:
    with pytest.raises(RangesRefused, match="give 1 to"):
        ShardRanges.equal(shards)


@pytest.mark.parametrize("shard", [-1, 4])
def test_a_shard_that_is_not_there_has_no_bounds(shard: int) -> None:
    with pytest.raises(ValueError, match="is not one of 0 to 3"):
        ShardRanges.equal(4).bounds(shard)


def test_ids_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="uint64, not int64"):
        ShardRanges.equal(4).of(np.zeros(1, np.int64))


# -- even ranges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 4, 16])
@pytest.mark.parametrize("sites", [[40_000], [10] * 4_000, [20_000, 10_000, *[5] * 2_000], [3000] * 10])
def test_even_ranges_hold_about_as_many_pages_each(sites: list[int], shards: int) -> None:
    own = PageIds()
    urls = [f"http://site{site}.com/{page}" for site, pages in enumerate(sites) for page in range(pages)]
    pages = own.of_all(urls)
    divided = ShardRanges.even(pages, shards)
    sizes = np.bincount(divided.of(pages), minlength=divided.count)
    assert divided.count == shards
    assert sizes.max() / sizes.mean() <= 1.1


def test_even_ranges_leave_sites_whole_where_they_are_small() -> None:
    pages = PageIds().of_all([f"http://site{n % 5_000}.com/{n}" for n in range(100_000)])
    divided = ShardRanges.even(pages, 16)
    assert all(first % SITE == 0 for first in divided.firsts)


def test_even_ranges_may_be_even_by_weight() -> None:
    pages = PageIds().of_all([f"http://site{n}.com/" for n in range(20_000)])
    weights = np.where(pages < np.uint64(1 << 62), 10, 1)
    divided = ShardRanges.even(pages, 8, weights)
    sums = np.bincount(divided.of(pages), weights, divided.count)
    assert sums.max() / sums.mean() <= 1.1


@pytest.mark.parametrize("pages", [0, 1, 7])
def test_with_too_few_pages_ranges_are_equal(pages: int) -> None:
    assert ShardRanges.even(np.arange(pages, dtype=np.uint64), 4) == ShardRanges.equal(4)


@given(st.lists(ids, max_size=200), st.integers(1, 20))
def test_even_ranges_are_ranges(pages: list[int], shards: int) -> None:
    assert ShardRanges.even(np.array(pages, np.uint64), shards).count == shards


# -- parts of sites ------------------------------------------------------------------------------------------------


@given(ranges(), st.lists(ids, max_size=20))
def test_the_parts_of_a_site_in_all_shards_are_the_whole(divided: ShardRanges, pages: list[int]) -> None:
    given_ids = np.array(pages, np.uint64)
    total = np.zeros(len(pages))
    for shard in range(divided.count):
        first, last = divided.bounds(shard)
        touches = (given_ids >> np.uint64(48) >= np.uint64(first // SITE)) & (
            given_ids >> np.uint64(48) <= np.uint64(last // SITE)
        )
        parts, before = divided.part_of_site(shard, given_ids)
        assert np.allclose(before[touches], total[touches])
        total[touches] += parts[touches]
    assert np.allclose(total, 1)


def test_a_site_within_a_shard_is_whole_and_one_that_is_divided_is_not() -> None:
    divided = ShardRanges((0, 5 * SITE + SITE // 4))
    pages = np.array([4 * SITE, 5 * SITE, 6 * SITE], np.uint64)
    first, second = Shard(0, divided), Shard(1, divided)
    assert first.parts_of_hosts(pages)[0].tolist() == [1, 0.25, 1]
    assert second.parts_of_hosts(pages)[0].tolist() == [1, 0.75, 1]
    assert second.parts_of_hosts(pages)[1].tolist() == [0, 0.25, 0]
