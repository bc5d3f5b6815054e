"""The rule by which traps and twins are judged, as a function of columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.discovery.trap_rule import (
    MORE,
    SAME,
    TWIN,
    LimitedPages,
    ParameterPages,
    ShapePages,
    TrapRule,
    judge_parameters,
    judge_shapes,
    share_orders,
    twins_of,
)

RULE = TrapRule()
MEAN = 1.0


def one_shape(read: int, unread: int, **columns: object) -> ShapePages:
    """Pages of one shape that nothing speaks for: a trap, unless `columns` say otherwise."""
    number = read + unread
    pages = ShapePages(
        shape=np.ones(number, np.int32),
        importance=np.full(number, 0.2),
        is_read=np.arange(number) < read,
        by_others=np.zeros(number, np.bool_),
        is_alias=np.zeros(number, np.bool_),
        digest=1 + np.arange(number, dtype=np.uint32),
        leads=np.zeros(number, np.int32),
    )
    return pages._replace(**columns)  # type: ignore[arg-type]


def why(pages: ShapePages) -> int:
    return int(judge_shapes(pages, 1, MEAN, RULE).why[1])


def test_pages_that_only_lead_to_more_of_themselves_are_a_trap() -> None:
    assert why(one_shape(50, 100)) == MORE


def part(number: int, share: float) -> np.ndarray:
    return np.arange(number) < share * number


@pytest.mark.parametrize(
    "pages",
    [
        one_shape(9, 500),
        one_shape(50, 0),
        one_shape(50, 100, by_others=part(150, 0.2)),
        one_shape(50, 100, leads=np.where(np.arange(150) < 25, 1, 0)),
        one_shape(50, 100, importance=np.full(150, 0.6)),
    ],
    ids=["few were read", "all were read", "others link to some", "they lead elsewhere", "they are worth much"],
)
def test_what_speaks_for_pages_makes_them_no_trap(pages: ShapePages) -> None:
    assert why(pages) == 0


def test_pages_with_one_content_or_canonical_url_are_a_trap_whatever_links_to_them() -> None:
    by_others = np.ones(50, np.bool_)
    assert why(one_shape(50, 0, by_others=by_others, digest=np.full(50, 7, np.uint32))) == SAME
    assert why(one_shape(50, 0, by_others=by_others, is_alias=by_others)) == SAME
    assert why(one_shape(50, 0, by_others=by_others)) == 0
    assert why(one_shape(50, 0, by_others=by_others, digest=np.zeros(50, np.uint32))) == 0


@given(st.integers(10, 60), st.integers(1, 60), st.data())
def test_whatever_speaks_for_pages_never_makes_them_a_trap(read: int, unread: int, data: st.DataObject) -> None:
    """A law: more links from others, more pages found, and more importance only ever end a judgement."""
    number = read + unread
    flags = st.lists(st.booleans(), min_size=number, max_size=number).map(np.array)
    pages = one_shape(read, unread, by_others=data.draw(flags), leads=data.draw(flags).astype(np.int32))
    better = pages._replace(
        by_others=pages.by_others | data.draw(flags),
        leads=pages.leads + data.draw(flags),
        importance=pages.importance * data.draw(st.floats(1, 10)),
    )
    if why(pages) == 0:
        assert why(better) == 0


@given(st.permutations(range(60)))
def test_the_order_of_pages_does_not_matter(order: list[int]) -> None:
    pages = one_shape(
        20, 40, shape=np.repeat([1, 2, 3], 20).astype(np.int32), digest=np.arange(60, dtype=np.uint32) % 7
    )
    mixed = ShapePages(*(column[order] for column in pages))
    assert judge_shapes(pages, 3, MEAN, RULE).why.tolist() == judge_shapes(mixed, 3, MEAN, RULE).why.tolist()


# -- shares ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 0.2), min_size=1, max_size=40),
    st.integers(0, 40),
    st.floats(0, 1),
)
def test_every_group_gets_some_and_a_trap_its_share_of_importance(
    importance: list[float], twins: int, discovery: float
) -> None:
    worth = np.array([*importance, *[0.0] * twins])
    kinds = np.repeat([MORE, TWIN], [len(importance), twins]).astype(np.uint8)
    share = share_orders(worth, kinds, discovery, RULE)
    assert (share > 0).all()
    assert (share[: len(importance)] >= RULE.fair * discovery * worth[: len(importance)]).all()
    assert share[len(importance) :].sum() <= RULE.twins * (1 + 1e-9)
    assert share.sum() <= RULE.fair * discovery * worth.sum() + RULE.all + RULE.twins + 1e-9


@given(st.floats(1e-5, 0.05), st.floats(0, 0.999), st.integers(1, 5000), st.sampled_from([3600, 86_400]))
def test_over_cycles_a_group_gets_its_share_and_never_nothing_for_ever(
    share: float, phase: float, orders: int, cycle: int
) -> None:
    """A law: however small its share of a cycle is, a group gets about this share over many cycles."""
    pages = LimitedPages(np.zeros(1, np.int32), np.array([0, MORE]), np.array([0.0, share]), np.array([0.0, phase]))
    cycles = int(min(20 / min(share * orders, 1.0), 100_000))
    got = [int(pages.left(orders, 1_700_000_000 // cycle * cycle + number * cycle)[1]) for number in range(cycles)]
    assert abs(sum(got) - cycles * share * orders) <= 3 + 0.2 * cycles * share * orders
    assert sum(got) > 0


# -- parameters --------------------------------------------------------------------------------------------------------


def parameter(
    kept: list[int] | None = None, digest: list[int] | None = None, bare: list[int] | None = None
) -> ParameterPages:
    number = len(kept or digest or [])
    return ParameterPages(
        name=np.full(number, 5, np.uint64),
        bare=np.array(bare or range(100, 100 + number), np.uint64),
        kept=np.array(kept or [0] * number, np.int8),
        digest=np.array(digest or [0] * number, np.uint32),
    )


NO_HASHES, NO_DIGESTS = np.zeros(0, np.uint64), np.zeros(0, np.uint32)


def judged(pages: ParameterPages, whole: list[int] | None = None, digest: list[int] | None = None) -> list[int]:
    found = judge_parameters(pages, np.array(whole or [], np.uint64), np.array(digest or [], np.uint32), RULE)
    return found.name.tolist()


def test_a_parameter_that_canonical_urls_omit_means_nothing() -> None:
    assert judged(parameter(kept=[-1] * 10)) == [5]
    assert judged(parameter(kept=[-1] * 9)) == []
    assert judged(parameter(kept=[-1] * 10 + [1] * 2)) == []


def test_a_parameter_with_equal_contents_means_nothing() -> None:
    assert judged(parameter(digest=[3] * 11, bare=[9] * 11)) == [5]
    assert judged(parameter(digest=list(range(1, 12)), bare=[9] * 11)) == []
    pages = list(range(100, 110))
    assert judged(parameter(digest=[3] * 10), whole=pages, digest=[3] * 10) == [5]
    assert judged(parameter(digest=[3] * 10), whole=pages, digest=[4] * 10) == []
    assert judged(parameter(digest=[3] * 10)) == []  # each of another page: nothing is compared


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.booleans()), max_size=30))
def test_one_page_of_each_group_is_no_twin(rows: list[tuple[int, int, bool]]) -> None:
    whole, number, is_read = (np.array([row[i] for row in rows]) for i in range(3))
    twins = twins_of(whole.astype(np.uint64), number.astype(np.int32), is_read.astype(np.bool_))
    for group in set(whole.tolist()):
        here = whole == group
        assert (here & ~twins).any()
        assert not (twins & here & (number == 0)).any()
        if (here & (number == 0)).any():
            assert twins[here & (number > 0)].all()
        elif (here & is_read.astype(np.bool_)).any():
            assert (here & is_read.astype(np.bool_) & ~twins).sum() == 1


def test_a_rule_is_replaced_as_a_whole() -> None:
    strict = replace(RULE, least_read=1000)
    assert judge_shapes(one_shape(50, 100), 1, MEAN, strict).why[1] == 0
