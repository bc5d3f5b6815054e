"""Synthetic webs follow the law they state, and the orders visit as they say."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.visit_orders import CycleOrder, GreedyOrder, RandomOrder, VisitOrder
from opicflow.pipelines.lab.web.webs import page_ids, poisson_web, power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from support.thorough import examples

property_test = examples(30, 500)


def sources(graph: Graph) -> np.ndarray:
    return np.repeat(np.arange(graph.pages), graph.out_degrees)


def fingerprint(graph: Graph) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in (graph.starts, graph.targets, graph.weights))).hexdigest()


# Webs


@pytest.mark.parametrize(("mean_links", "exponent"), [(3, 2.1), (10, 2.1), (30, 2.1), (8, 2.5)])
def test_in_degrees_follow_the_given_power_law(mean_links, exponent) -> None:
    degrees = power_law_web(50_000, seed=7, mean_links=mean_links, exponent=exponent).in_degrees
    # Far below the number of pages, where the law ends, pages of at least n links fall as n^(1 - exponent).
    points = np.unique(np.geomspace(3 * mean_links, 1000, 20).astype(int))
    tail = [(degrees >= point).sum() for point in points]
    slope = np.polyfit(np.log(points - 0.5), np.log(tail), 1)[0]
    assert slope == pytest.approx(1 - exponent, abs=0.03)


def test_pages_of_each_in_degree_are_as_many_as_the_law_says_to_one_page() -> None:
    count = np.bincount(power_law_web(50_000, seed=7).in_degrees)
    least = int(np.flatnonzero(count)[0])
    above = np.arange(least + 1, least + 200)
    law = above**-2.1 * (count[least + 1 :].sum() / (np.arange(least + 1, 50_000) ** -2.1).sum())
    assert np.abs(count[above] - law).max() <= 1.01
    assert 0 < count[least] <= least**-2.1 * law[0] / (least + 1) ** -2.1 + 1


@pytest.mark.parametrize(("mean_links", "spread"), [(1.5, 0.35), (4, 0.15), (10, 0.08), (30, 0.02)])
def test_the_mean_number_of_links_is_the_given_one(mean_links, spread) -> None:
    means = [power_law_web(20_000, seed, mean_links).links / 20_000 for seed in range(20)]
    assert np.mean(means) == pytest.approx(mean_links, rel=0.03)
    assert max(abs(mean / mean_links - 1) for mean in means) < spread


@st.composite
def web_arguments(draw) -> dict[str, float]:
    pages = draw(st.integers(2, 40))
    dangling = draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]))
    linking = pages - round(dangling * pages)
    if linking == 1:
        dangling, linking = 0.0, pages
    mean = draw(st.floats(linking / pages, max(linking - 1, linking / pages)))
    return {
        "pages": pages,
        "seed": draw(st.integers(0, 2**70)),
        "mean_links": mean,
        "exponent": draw(st.floats(0.5, 4)),
        "dangling": dangling,
    }


@examples(60, 1000)
@given(web_arguments())
def test_no_page_links_to_itself_or_twice_and_each_links_unless_dangling(arguments) -> None:
    web = power_law_web(**arguments)
    assert web.pages == arguments["pages"]
    assert (sources(web) != web.targets).all()
    assert len(set(zip(sources(web).tolist(), web.targets.tolist(), strict=True))) == web.links
    assert (web.out_degrees == 0).sum() == round(arguments["dangling"] * web.pages)
    assert (web.weights == 1024).all()
    made_again = Graph.from_links(web.pages, sources(web), web.targets)
    assert fingerprint(made_again) == fingerprint(web)  # sorted, and as the ledger's rules have it


@pytest.mark.parametrize("pages", [2, 3, 17])
def test_the_fullest_web_links_every_page_to_every_other(pages) -> None:
    web = power_law_web(pages, seed=3, mean_links=pages - 1)
    assert web.links == pages * (pages - 1)


def test_out_degrees_are_one_and_about_a_poisson_number_more() -> None:
    degrees = power_law_web(20_000, seed=4, mean_links=4.7).out_degrees - 1
    share = np.bincount(degrees, minlength=20)[:8] / 20_000
    mean = degrees.mean()
    factorials = np.cumprod([1, 1, 2, 3, 4, 5, 6, 7])
    assert np.abs(share - np.exp(-mean) * mean ** np.arange(8) / factorials).max() < 0.02


def test_in_degree_and_out_degree_are_independent() -> None:
    web = power_law_web(20_000, seed=4)
    correlation = np.corrcoef(np.log(web.in_degrees), web.out_degrees)[0, 1]
    assert abs(correlation) < 0.03


def test_sources_of_a_page_are_spread_over_all_pages_that_link() -> None:
    web = power_law_web(20_000, seed=4, dangling=0.5).transposed()
    quarters = np.bincount(web.targets // 5_000, minlength=4)
    assert quarters / web.links == pytest.approx([0.25] * 4, abs=0.01)


def test_the_same_seed_gives_the_same_web_and_another_seed_another() -> None:
    web = fingerprint(power_law_web(300, seed=11, dangling=0.1))
    assert web == fingerprint(power_law_web(300, seed=11, dangling=0.1))
    assert web != fingerprint(power_law_web(300, seed=12, dangling=0.1))


def test_a_web_of_a_known_seed_is_what_it_always_was() -> None:
    # Published tables and golden files rest on these webs, over versions of Python and numpy.
    assert fingerprint(power_law_web(300, seed=11, dangling=0.1))[:16] == "40520f487bc884b3"


def poisson(mean: float, count: int) -> np.ndarray:
    return np.exp(-mean) * np.cumprod([1.0, *(mean / np.arange(1, count))])


@pytest.mark.parametrize("mean_links", [1, 4.5, 10, 40])
def test_pages_of_each_in_degree_are_as_many_as_poisson_says_to_one_page(mean_links) -> None:
    web = poisson_web(50_000, seed=7, mean_links=mean_links)
    count = np.bincount(web.in_degrees, minlength=120)[:120]
    assert np.abs(count - 50_000 * poisson(mean_links, 120)).max() <= 1.01
    assert web.links / 50_000 == pytest.approx(mean_links, abs=1e-3)


@examples(50, 500)
@given(web_arguments())
def test_a_poisson_web_keeps_the_promises_of_the_others(arguments) -> None:
    del arguments["exponent"]
    web = poisson_web(**arguments)
    assert (sources(web) != web.targets).all()
    assert (web.out_degrees == 0).sum() == round(arguments["dangling"] * web.pages)
    made_again = Graph.from_links(web.pages, sources(web), web.targets)
    assert fingerprint(made_again) == fingerprint(web)
    assert (made_again.weights == 1024).all()


def test_a_poisson_web_of_a_known_seed_is_what_it_always_was() -> None:
    web = fingerprint(poisson_web(300, seed=11, dangling=0.1))
    assert web == fingerprint(poisson_web(300, seed=11, dangling=0.1))
    assert web != fingerprint(poisson_web(300, seed=12, dangling=0.1))
    assert web[:16] == "8ee367402ec3eeba"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"pages": 1}, "a web needs from 2 to 2147483647 pages, not 1"),
        ({"pages": 2**31}, "a web needs from 2 to 2147483647 pages"),
        ({"mean_links": 0.9}, "mean_links must be from 1 to 19 where 20 of 20 pages link, not 0.9"),
        ({"mean_links": 20}, "mean_links must be from 1 to 19"),
        ({"mean_links": float("nan")}, "mean_links must be from 1 to 19"),
        ({"mean_links": 12, "dangling": 0.5}, "mean_links must be from 0.5 to 9 where 10 of 20 pages link"),
        ({"exponent": 0}, "exponent must be above 0 and at most 10, not 0"),
        ({"dangling": -0.1}, "dangling must be a share from 0 to 1, not -0.1"),
        ({"dangling": 1.1}, "dangling must be a share from 0 to 1, not 1.1"),
        ({"dangling": 0.95}, "dangling 0.95 leaves one of 20 pages that links"),
    ],
)
def test_webs_that_cannot_be_are_refused_in_one_line(arguments, complaint) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        power_law_web(**{"pages": 20, "seed": 0, "mean_links": 5, **arguments})
    assert "\n" not in str(refusal.value)
    if "exponent" not in arguments:
        with pytest.raises(ValueError, match=complaint):
            poisson_web(**{"pages": 20, "seed": 0, "mean_links": 5, **arguments})


def splitmix64(state: int, count: int) -> list[int]:
    """Steele, Lea and Flood's generator, with Python's integers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        numbers.append(mixed ^ (mixed >> 31))
    return numbers


@pytest.mark.parametrize("seed", [0, 1, 2**70])
def test_page_ids_are_splitmix64_of_the_seed(seed) -> None:
    ids = page_ids(1000, seed)
    assert ids.dtype == np.uint64
    assert ids.tolist() == splitmix64(int(np.random.PCG64(seed).random_raw()), 1000)


def test_page_ids_are_distinct_and_even_over_the_shards() -> None:
    ids = page_ids(100_000, seed=1)
    assert len(np.unique(ids)) == 100_000
    shards = np.bincount((ids >> np.uint64(60)).astype(int), minlength=16)
    assert np.abs(shards / 6250 - 1).max() < 0.06


def test_a_growing_web_keeps_its_page_ids_and_another_seed_shares_none() -> None:
    ids = page_ids(1000, seed=1)
    assert page_ids(10, seed=1).tolist() == ids[:10].tolist()
    assert not set(ids.tolist()) & set(page_ids(1000, seed=2).tolist())
    assert len(page_ids(0, seed=1)) == 0


# Orders


def not_asked() -> np.ndarray:
    raise AssertionError("this order must not look at the waiting cash")


def visits(order: VisitOrder, batches: int) -> list[int]:
    return np.concatenate([order.next(not_asked) for _ in range(batches)]).tolist()


@property_test
@given(st.integers(1, 30), st.integers(1, 70), st.integers(0, 99))
def test_a_cycle_visits_every_page_once_a_round_and_every_round_alike(pages, batch, seed) -> None:
    order = CycleOrder(pages, seed, batch)
    seen = visits(order, 4 * pages)
    assert len(seen) == 4 * pages * batch
    assert sorted(seen[:pages]) == list(range(pages))
    assert seen == (seen[:pages] * len(seen))[: len(seen)]


def test_a_cycle_is_shuffled_by_its_seed() -> None:
    one, again, other = (visits(CycleOrder(100, seed, 100), 1) for seed in (1, 1, 2))
    assert one == again != other
    assert one != sorted(one)


def test_a_random_order_visits_all_pages_alike_with_repetitions() -> None:
    seen = visits(RandomOrder(10, seed=1, batch=1000), 20)
    assert np.abs(np.bincount(seen, minlength=10) / 2000 - 1).max() < 0.1
    repeated = np.mean(np.array(seen[1:]) == np.array(seen[:-1]))
    assert repeated == pytest.approx(0.1, abs=0.01)


def test_a_random_order_is_made_by_its_seed_and_goes_on() -> None:
    one, again, other = (visits(RandomOrder(100, seed, 50), 2) for seed in (1, 1, 2))
    assert one == again != other
    assert one[:50] != one[50:]


cash_types = st.sampled_from([np.int64, np.uint64, np.float64])


@property_test
@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 50), cash_types)
def test_greedy_visits_the_richest_first_and_among_equals_the_lower_number(cash, batch, cash_type) -> None:
    expected = sorted(range(len(cash)), key=lambda page: (-cash[page], page))[:batch]
    chosen = GreedyOrder(batch).next(lambda: np.array(cash, dtype=cash_type))
    assert chosen.dtype == np.int64
    assert chosen.tolist() == expected


def test_greedy_reads_the_waiting_cash_again_for_every_batch() -> None:
    cash = np.array([5, 9, 7])
    order = GreedyOrder(batch=1)
    seen = []
    for _ in range(4):
        (page,) = order.next(lambda: cash)
        seen.append(int(page))
        cash[page] = 0
    assert seen == [1, 2, 0, 0]


def test_greedy_leaves_the_waiting_cash_as_it_was() -> None:
    cash = np.arange(1000)[::-1].copy()
    GreedyOrder(10).next(lambda: cash)
    assert cash.tolist() == list(range(999, -1, -1))


@pytest.mark.parametrize(("pages", "batch"), [(1, 1), (255, 1), (512, 2), (100_000, 390)])
def test_greedy_takes_a_256th_of_the_pages_at_a_time_by_default(pages, batch) -> None:
    assert len(GreedyOrder().next(lambda: np.arange(pages))) == batch


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: CycleOrder(0, 1, 1), "an order needs at least one page, not 0"),
        (lambda: RandomOrder(0, 1, 1), "an order needs at least one page, not 0"),
        (lambda: CycleOrder(1, 1, 0), "a batch must hold at least one page, not 0"),
        (lambda: RandomOrder(1, 1, 0), "a batch must hold at least one page, not 0"),
        (lambda: GreedyOrder(0), "a batch must hold at least one page, not 0"),
    ],
)
def test_orders_that_make_no_sense_are_refused(make, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()
