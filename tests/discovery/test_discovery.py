"""The rule by which unread pages are ordered: worth, exploring, credits, limits."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.discovery import Discovery, DiscoveryPages, DiscoveryRule, page_worth
from opicflow.pipelines.discovery.discovery import next_share, page_credit
from opicflow.pipelines.discovery.limits import best, explorable
from opicflow.pipelines.discovery.worth import logarithms
from opicflow.schemas.arrays import Ids, Ints
from support.thorough import examples

RULE = DiscoveryRule()


def pages_of(rows: int, seed: int = 1, hosts: int = 5, read: float = 0.3) -> DiscoveryPages:
    """Some pages of some hosts, found by one another."""
    random = np.random.default_rng(seed)
    host = np.sort(random.integers(0, hosts, rows))
    is_read = random.random(rows) < read
    finders = np.flatnonzero(is_read)
    found_by = random.choice(finders, rows) if len(finders) else np.full(rows, -1)
    found_by[random.random(rows) < 0.1] = -1
    return DiscoveryPages(
        page=random.permutation(rows).astype(np.uint64),
        host=host,
        domain=host // 2,
        importance=0.15 + random.exponential(1.0, rows),
        is_read=is_read,
        explored=is_read & (random.random(rows) < 0.2),
        is_tried=np.zeros(rows, np.bool_),
        found_by=found_by.astype(np.int64),
    )


# Worth


def test_worth_moves_towards_the_mean_of_the_siblings_of_the_same_host() -> None:
    pages = replace(
        pages_of(6, hosts=1),
        host=np.array([0, 0, 0, 1, 1, 2]),
        importance=np.exp([1.0, 2.0, 6.0, 3.0, 5.0, 9.0]),
        is_read=np.array([True, False, False, False, False, False]),
    )
    worth = page_worth(pages, 0.5, RULE)
    assert worth.own == pytest.approx([1, 2, 6, 3, 5, 9])
    assert worth.siblings == pytest.approx([3, 1.5, -4.5, 2, -2, 0])
    assert worth.worth == pytest.approx([2.5, 2.75, 3.75, 4, 4, 9])
    assert worth.unread == pytest.approx([1, 0.5, 0.5, 1, 1, 1])
    assert worth.exploring == pytest.approx(worth.worth + RULE.bonus * worth.unread)


def test_siblings_are_the_nearest_on_either_side() -> None:
    pages = replace(pages_of(20, hosts=1), host=np.zeros(20, np.int64), importance=np.exp(np.arange(20.0)))
    near = page_worth(pages, 1.0, replace(RULE, reach=2))
    assert near.siblings[0] == pytest.approx(1.5) and near.siblings[10] == pytest.approx(0.0)
    assert page_worth(pages, 1.0, replace(RULE, reach=0)).siblings.tolist() == [0.0] * 20


@examples(30, 500)
@given(st.integers(0, 40), st.integers(0, 6), st.integers(1, 5), st.integers(0, 2**32))
def test_worth_is_what_its_definition_says_to_the_last_bit(rows: int, reach: int, hosts: int, seed: int) -> None:
    pages = pages_of(rows, seed, hosts, read=0.5)
    found = page_worth(pages, 0.5, replace(RULE, reach=reach))
    own, sums = found.own.tolist(), [0.0, *accumulate(found.own.tolist())]
    for row in range(rows):
        of_host = [other for other in range(rows) if pages.host[other] == pages.host[row]]
        near = [other for other in of_host if abs(other - row) <= reach]
        others, read = len(near) - 1, sum(bool(pages.is_read[other]) for other in of_host if other != row)
        mean = (sums[near[-1] + 1] - sums[near[0]] - own[row]) / max(others, 1)
        assert found.siblings[row] == (mean - own[row] if others else 0.0)
        assert found.unread[row] == 1.0 - read / max(len(of_host) - 1, 1)


# Choice


@examples(50, 500)
@given(st.integers(0, 60), st.integers(0, 20), st.integers(0, 5), st.integers(0, 2**32), st.sampled_from([3, 16, 99]))
def test_the_best_are_those_of_a_sort_of_all_by_value_and_id(
    rows: int, count: int, limit: int, seed: int, in_a_sample: int
) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 6, rows).astype(float)
    page, group = random.permutation(rows).astype(np.uint64), random.integers(0, 4, rows)
    left, expected = [limit] * 4, []
    for row in sorted(range(rows), key=lambda row: (-values[row], page[row])):
        if left[group[row]] and len(expected) < count:
            left[group[row]] -= 1
            expected.append(row)
    with mock.patch("opicflow.pipelines.discovery.limits.MOST_IN_A_SAMPLE", in_a_sample):
        assert best(values, page, group, np.full(4, limit), count).tolist() == expected


def test_a_domain_may_be_explored_by_its_entries_and_by_what_was_read_of_it() -> None:
    read = [True] * 4
    pages = DiscoveryPages(
        page=np.arange(9, dtype=np.uint64),
        host=np.array([0, 0, 0, 0, 1, 1, 2, 2, 3]),
        domain=np.array([0, 0, 0, 0, 1, 1, 2, 2, 3]),
        importance=np.ones(9),
        is_read=np.array([*read, True, False, False, False, False]),
        explored=np.array([False, False, False, True, True, False, True, False, False]),
        is_tried=np.zeros(9, np.bool_),
        # Domain 0 was read three times by worth and vouches for pages 4 and 6; domain 1 does not vouch yet for page 8.
        # Two pages of domain 0 have no known finder: they are one entry. Page 6 is unread: only chosen.
        found_by=np.array([-1, -1, 0, 0, 1, 4, 2, 2, 4]),
    )
    rule = replace(RULE, explored_per_entry=5, explored_per_read=2, reads_to_vouch=3)
    assert explorable(pages, rule).tolist() == [5 + 2 * 3 - 1, 5 - 1, 2 * 5, 0]


def test_a_farm_of_many_domains_is_not_explored_before_worth_has_followed() -> None:
    """Domain 1 was found by an honest one and explored once; it leads to a hundred domains, all unread."""
    honest, farm = 20, 100
    rows = honest + 1 + farm
    domain = np.concatenate((np.zeros(honest), [1], 2 + np.arange(farm))).astype(np.int64)
    pages = DiscoveryPages(
        page=np.arange(rows, dtype=np.uint64),
        host=domain,
        domain=domain,
        importance=np.concatenate((np.ones(honest), [1.0], np.full(farm, 2.0))),
        is_read=np.arange(rows) < honest // 2,
        explored=np.zeros(rows, np.bool_),
        is_tried=np.zeros(rows, np.bool_),
        found_by=np.concatenate((np.full(honest, -1), [0], np.full(farm, honest))).astype(np.int64),
    )
    pages.is_read[honest] = pages.explored[honest] = True
    discovery = Discovery()
    discovery.share = 0.7
    assert pages.domain[choose(discovery, pages, 100)].max(initial=0) < 2


# Exploring


def choose(discovery: Discovery, pages: DiscoveryPages, about: int) -> Ints:
    """Choose the rows to explore, when nothing was read since the last review, and mark them."""
    chosen = discovery.begin_review(pages, np.zeros(0, np.int64), lambda ids: np.zeros(len(ids), np.int64), about)
    pages.explored[~pages.is_read] = False
    pages.explored[chosen] = True
    return chosen


@examples(30, 500)
@given(st.integers(0, 80), st.integers(0, 40), st.integers(0, 2**32), st.sampled_from([0.05, 0.2, 0.7]))
def test_unread_pages_are_chosen_of_no_domain_more_than_its_share(
    rows: int, about: int, seed: int, share: float
) -> None:
    pages = pages_of(rows, seed)
    pages.is_tried[:5] = ~pages.is_read[:5]
    discovery, other = Discovery(), Discovery()
    discovery.share = other.share = share
    chosen = choose(discovery, pages, about)
    most = round(share * min(about, int(pages.can_be_explored.sum())))
    assert len(chosen) == len(set(chosen.tolist())) <= most
    assert not pages.is_read[chosen].any() and not pages.is_tried[chosen].any()
    assert np.bincount(pages.domain[chosen], minlength=1).max() <= max(1, int(RULE.explored_at_once * most))
    assert chosen.tolist() == choose(other, pages, about).tolist()


# Learning


def test_credit_is_importance_above_the_floor_of_a_page_and_of_those_found_through_it() -> None:
    pages = replace(
        pages_of(15, hosts=1),
        importance=np.concatenate(([1.15, 0.15], np.full(13, 0.25))),
        found_by=np.concatenate(([-1, -1], np.zeros(12), [1])).astype(np.int64),
    )
    assert page_credit(pages, np.array([1, 14]), RULE) == pytest.approx([0.0 + 0.1 + 0.15, 0.1])
    credit = page_credit(pages, np.arange(15), RULE)
    assert credit[0] == pytest.approx(1.0 + 12 * 0.1 + 10 * 0.15)  # floors of ten pages at most
    assert credit[1] == pytest.approx(0.0 + 0.1 + 0.15)
    assert credit[2] == pytest.approx(0.1)


def test_the_share_follows_the_ratio_of_credits_within_bounds() -> None:
    assert next_share(0.2, 1.0, 1.0, RULE) == pytest.approx(0.2)
    assert next_share(0.2, 2.0, 1.0, RULE) == pytest.approx(0.2 * 2**0.3)
    assert next_share(0.2, 1e9, 1.0, RULE) == pytest.approx(0.4)
    assert next_share(0.2, 1.0, 0.0, RULE) == pytest.approx(0.4)
    assert next_share(0.6, 1e9, 1.0, RULE) == 0.7
    assert next_share(0.06, 0.0, 1.0, RULE) == 0.05
    assert next_share(0.2, 0.0, 0.0, RULE) == 0.2


def rows_by(pages: DiscoveryPages) -> dict[int, int]:
    return {int(page): row for row, page in enumerate(pages.page)}


def test_pages_are_judged_some_reviews_after_they_were_read_if_they_are_known() -> None:
    pages = replace(pages_of(200, read=0.0), domain=np.arange(200))
    discovery = Discovery(replace(RULE, wait_reviews=2))
    rows = rows_by(pages)

    def rows_of(ids: Ids) -> Ints:
        return np.array([rows.get(int(page), -1) for page in ids], np.int64)

    before = discovery.share
    assert len(choose(discovery, pages, 50)) == 10
    read = np.flatnonzero((np.arange(200) % 4 == 0) | pages.explored)
    assert 5 < pages.explored[read].sum() <= 10
    pages.is_read[read] = True
    discovery.begin_review(pages, read, rows_of, 50)
    assert discovery.waiting[-1].page.tolist() == pages.page[read].tolist()
    pages.importance[pages.explored] = 100.0
    del rows[int(pages.page[read[0]])]
    nothing = np.zeros(0, np.int64)
    discovery.begin_review(pages, nothing, rows_of, 50)
    assert discovery.share == before and len(discovery.waiting) == 2
    discovery.begin_review(pages, nothing, rows_of, 50)
    assert discovery.share > before and len(discovery.waiting) == 2
    assert discovery.credit_explored > discovery.credit_others


def test_of_many_pages_read_in_a_review_some_are_kept() -> None:
    pages = pages_of(20_000, read=1.0)
    discovery = Discovery()
    discovery.begin_review(pages, np.arange(20_000), lambda ids: np.zeros(len(ids), np.int64), 10)
    assert discovery.waiting[-1].page.tolist() == pages.page[::5].tolist()


@pytest.mark.parametrize("follow", [0.0, 0.3])
def test_the_weight_of_siblings_is_learnt(follow: float) -> None:
    """Importance moves by `follow` of the way to that of the siblings until a page is judged."""
    random, discovery = np.random.default_rng(1), Discovery(replace(RULE, wait_reviews=1))
    nothing = np.zeros(0, np.int64)
    for _ in range(20):
        pages = replace(pages_of(1_000, hosts=20, read=0.0), importance=np.exp(random.normal(0, 1, 1_000)))
        rows = rows_by(pages)

        def rows_of(ids: Ids, rows: dict[int, int] = rows) -> Ints:
            return np.array([rows[int(page)] for page in ids], np.int64)

        read = random.choice(1_000, 200, replace=False)
        pages.is_read[read] = True
        discovery.waiting.clear()
        discovery.begin_review(pages, read, rows_of, 200)
        siblings = page_worth(pages, 0.0, RULE).siblings
        later = replace(pages, importance=pages.importance * np.exp(0.5 + follow * siblings))
        discovery.begin_review(later, nothing, rows_of, 200)
    assert discovery.siblings_weight == pytest.approx(follow, abs=0.05)  # doubt shrinks it


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"floor": 0.0}, "floor must be above 0, not 0.0"),
        ({"reach": -1}, "reach must not be negative, not -1"),
        ({"explored_at_once": 1.5}, "explored_at_once must be a share from 0 to 1, not 1.5"),
        ({"first_share": 0.9}, "must ascend from 0 to 1, not 0.05, 0.9, 0.7"),
    ],
)
def test_rules_that_cannot_be_are_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(RULE, **wrong)  # type: ignore[arg-type]


# The same on all processors


@settings(deadline=None)
@given(st.lists(st.floats(1e-300, 1e300), max_size=20))
def test_logarithms_are_those_of_the_language(values: list[float]) -> None:
    assert logarithms(np.array(values)).tolist() == [math.log(value) for value in values]


def test_what_is_learnt_is_a_plain_sum() -> None:
    """Each product is added after the other: a library of linear algebra adds in another order on another processor."""
    rng = np.random.default_rng(5)
    own, siblings = (rng.standard_normal(5_000).astype(np.float32) for _ in range(2))
    discovery = Discovery()
    discovery._learn_siblings(np.ones(5_000), own, siblings)
    products = (own.astype(np.float64) - math.log(discovery.rule.floor)) * siblings.astype(np.float64)
    assert discovery.seen[1, 2] == discovery.seen[2, 1] == np.cumsum(products)[-1]
    assert discovery.followed[2] == np.cumsum(siblings.astype(np.float64) * -own.astype(np.float64))[-1]


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 200), st.floats(0.0, 3.0))
def test_the_weight_of_siblings_is_that_of_a_ridge_regression(seed: int, rows: int, weight: float) -> None:
    rng = np.random.default_rng(seed)
    discovery = Discovery()
    own, siblings = (rng.standard_normal(rows).astype(np.float32) for _ in range(2))
    discovery._learn_siblings(np.exp(own + weight * siblings), own, siblings)
    doubt = np.diag([1e-3, discovery.rule.doubt, discovery.rule.doubt])
    _, by_own, by_siblings = np.linalg.solve(discovery.seen + doubt, discovery.followed)
    expected = np.clip(by_siblings / max(1.0 + by_own, 0.1), 0.0, 1.0)
    assert discovery.siblings_weight == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e15, 1e30])
def test_whatever_was_learnt_siblings_have_a_weight(size: float) -> None:
    discovery = Discovery()
    for followed in (-size, size):
        discovery.seen, discovery.followed = np.full((3, 3), size), np.array([size, 0.0, followed])
        assert 0.0 <= discovery.siblings_weight <= 1.0
