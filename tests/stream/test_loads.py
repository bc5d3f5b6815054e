"""The load of each shard, as status and audit of a stream show it, and when other boundaries are worth a rebuild."""

from __future__ import annotations

import pytest

from opicflow.pipelines.stream.loads import Load, advice, busiest, spread_in_words, table


def loads(*pages: int) -> list[Load]:
    return [Load(shard, number, 10 * number, 100 * number) for shard, number in enumerate(pages)]


def test_the_busiest_shard_is_compared_with_the_mean() -> None:
    assert busiest([10, 30, 20]) == (1, 1.5)
    assert busiest([0, 0]) == (0, 0.0)
    assert busiest([7]) == (0, 1.0)


def test_the_spread_names_both_shards() -> None:
    some = [Load(0, 10, 5, 1), Load(1, 30, 1, 1)]
    assert spread_in_words(some) == (
        "shard 1 has the most pages, 1.50 times the mean; shard 0 the most visits, 1.67 times"
    )


@pytest.mark.parametrize(
    ("pages", "advised"),
    [
        ((100_000, 100_000), ""),
        ((150_000, 50_000), ""),
        ((160_000, 40_000), "dividing is worth it: shard 0 has 1.6 times the mean of pages"),
        ((400, 10), ""),
        ((900_000,), ""),
        ((), ""),
    ],
)
def test_dividing_is_advised_where_a_large_shard_has_much_more_than_the_mean(
    pages: tuple[int, ...], advised: str
) -> None:
    assert advice(loads(*pages)).startswith(advised) and bool(advice(loads(*pages))) == bool(advised)


def test_the_table_has_a_row_for_each_shard() -> None:
    assert table([Load(3, 1_000_000, 20, 7_400_000)]) == [
        "  shard        pages       visits       MB",
        "      3    1,000,000           20      7.4",
    ]
