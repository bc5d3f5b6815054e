"""The oracle is held against dense linear algebra, and its graph against dicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from support.stored_graphs import links_in_memory
from support.thorough import examples

property_test = examples(30, 500)

Links = list[tuple[int, int, int]]


@st.composite
def webs(draw, fewest_pages: int = 1) -> tuple[int, Links]:
    """A few pages and their links: with self links, duplicates, weights of 0, dangling and lonely pages."""
    pages = draw(st.integers(fewest_pages, 8))
    page = st.integers(0, pages - 1)
    weight = st.sampled_from([0, 1, 3, 1024, 1024, 1024, 40_000, 65_535])
    return pages, draw(st.lists(st.tuples(page, page, weight), max_size=24))


dampings = st.floats(0.0, 0.95)


def graph_of(web: tuple[int, Links]) -> Graph:
    pages, links = web
    return Graph.from_links(pages, *np.array(links, dtype=np.int64).reshape(-1, 3).T)


def link_weights(links: Links) -> dict[tuple[int, int], int]:
    """The ledger's rules for links, the slow and obvious way."""
    weights: dict[tuple[int, int], int] = {}
    for source, target, weight in links:
        if source != target and weight > 0:
            weights[source, target] = min(weights.get((source, target), 0) + weight, 65_535)
    return weights


def dense(web: tuple[int, Links]) -> tuple[np.ndarray, np.ndarray]:
    """M of eq. 2.2 with the columns of dangling pages 0, and which pages are dangling."""
    pages, links = web
    matrix = np.zeros((pages, pages))
    for (source, target), weight in link_weights(links).items():
        matrix[target, source] = weight
    sums = matrix.sum(axis=0)
    return matrix / np.where(sums == 0, 1, sums), sums == 0


def solved(web: tuple[int, Links], damping: float, paid: np.ndarray) -> np.ndarray:
    """The ledger's limit by a linear solve: a dangling page passes on what the virtual page pays."""
    matrix, ends = dense(web)
    matrix[:, ends] = paid[:, None]
    return np.linalg.solve(np.eye(len(paid)) - damping * matrix, (1 - damping) * paid)


def same(one: Graph, other: Graph) -> bool:
    return all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in (
            (one.starts, other.starts),
            (one.targets, other.targets),
            (one.weights, other.weights),
        )
    )


# The graph


@property_test
@given(webs())
def test_a_graph_holds_its_links_by_the_ledgers_rules(web) -> None:
    graph = graph_of(web)
    assert links_in_memory(graph) == link_weights(web[1])
    assert graph.links == len(link_weights(web[1]))  # no duplicates hidden by the dict
    assert graph.pages == web[0]


@property_test
@given(webs(), st.randoms())
def test_the_order_of_the_links_given_changes_nothing(web, random) -> None:
    pages, links = web
    shuffled = random.sample(links, len(links))
    assert same(graph_of((pages, links)), graph_of((pages, shuffled)))


@property_test
@given(webs())
def test_transposing_turns_every_link_around_and_twice_changes_nothing(web) -> None:
    graph = graph_of(web)
    turned = {(target, source): weight for (source, target), weight in links_in_memory(graph).items()}
    assert links_in_memory(graph.transposed()) == turned
    assert same(graph.transposed().transposed(), graph)


@property_test
@given(webs())
def test_degrees_and_weights_are_counted_from_the_links(web) -> None:
    graph = graph_of(web)
    out_degrees, in_degrees, out_weights = np.zeros((3, web[0]), dtype=np.int64)
    for (source, target), weight in link_weights(web[1]).items():
        out_degrees[source] += 1
        in_degrees[target] += 1
        out_weights[source] += weight
    assert graph.out_degrees.tolist() == out_degrees.tolist()
    assert graph.in_degrees.tolist() == in_degrees.tolist()
    assert graph.out_weights.tolist() == out_weights.tolist()


@property_test
@given(webs(), st.data())
def test_pages_under_the_mask_lose_their_links_and_no_others(web, data) -> None:
    pages, links = web
    mask = data.draw(st.lists(st.booleans(), min_size=pages, max_size=pages))
    expected = graph_of((pages, [link for link in links if not mask[link[0]]]))
    assert same(graph_of(web).without_links(np.array(mask)), expected)


@property_test
@given(webs(), st.data())
def test_masked_links_stay_and_no_others(web, data) -> None:
    graph = graph_of(web)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=graph.links, max_size=graph.links)), np.bool_)
    columns = (graph.sources, graph.targets, graph.weights)
    assert same(Graph.from_links(graph.pages, *columns), graph)
    assert same(graph.with_links(mask), Graph.from_links(graph.pages, *(column[mask] for column in columns)))


def test_links_without_weights_are_ordinary_and_duplicates_add_up_to_the_cap() -> None:
    graph = Graph.from_links(3, [0] * 70 + [1], [1] * 70 + [2])
    assert links_in_memory(graph) == {(0, 1): 65_535, (1, 2): 1024}


def test_a_graph_may_have_no_links_or_no_pages() -> None:
    assert Graph.from_links(3, [], []).links == 0
    assert Graph.from_links(3, [0], [0]).transposed().links == 0
    assert Graph.from_links(0, [], []).pages == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((-1, [], []), "pages must not be negative"),
        ((2, [0], [2]), "targets must be page numbers from 0 to 1"),
        ((2, [-1], [1]), "sources must be page numbers from 0 to 1"),
        ((2, [0.0], [1]), "sources must be a flat array of integers"),
        ((2, [[0]], [[1]]), "sources must be a flat array of integers"),
        ((2, [0, 1], [1]), "each source needs a target and a weight: 2, 1, 2"),
        ((2, [0], [1], [1, 2]), "each source needs a target and a weight: 1, 1, 2"),
        ((2, [0], [1], [-1]), "weights must be from 0 to 65535"),
        ((2, [0], [1], [65_536]), "weights must be from 0 to 65535"),
    ],
)
def test_links_that_make_no_sense_are_refused_in_one_line(arguments, complaint) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        Graph.from_links(*arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("starts", "targets", "weights", "complaint"),
    [
        ([0, 1, 2], [1], [1], "starts must ascend"),
        ([0, 1, 0, 1], [1], [1], "starts must ascend"),
        ([], [], [], "starts must ascend"),
        ([0, 1, 1], [2], [1], "targets must be page numbers"),
        ([0, 1, 1], [-1], [1], "targets must be page numbers"),
        ([0, 1, 1], [1], [0], "weights must be from 1"),
        ([0, 1, 1], [1], [65_536], "weights must be from 1"),
        ([0, 1, 1], [1], [1, 1], "three flat arrays"),
    ],
)
def test_arrays_that_would_lead_out_of_bounds_are_no_graph(starts, targets, weights, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        Graph(np.array(starts, np.int64), np.array(targets, np.int32), np.array(weights, np.int64))


def test_a_graph_of_other_number_types_is_refused() -> None:
    with pytest.raises(ValueError, match="starts and weights are int64"):
        Graph(np.zeros(2, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))


@pytest.mark.parametrize("mask", [np.array([1, 0]), np.array([True]), np.array([[True, False]])])
def test_a_mask_that_is_not_one_boolean_a_page_is_refused(mask) -> None:
    with pytest.raises(ValueError, match="the mask must hold 2 booleans"):
        Graph.from_links(2, [0], [1]).without_links(mask)


# The ranks


@property_test
@given(webs(), dampings, st.data())
def test_ranks_are_the_ledgers_limit_by_a_dense_solve(web, damping, data) -> None:
    paid = np.array(data.draw(st.lists(st.integers(0, 9), min_size=web[0], max_size=web[0])), dtype=float)
    assume(paid.any())
    ranks = pagerank(graph_of(web), damping, personalisation=paid)
    assert ranks.converged
    np.testing.assert_allclose(ranks.values, solved(web, damping, paid / paid.sum()), rtol=0, atol=1e-10)


@property_test
@given(webs(), dampings)
def test_ranks_satisfy_the_ledgers_limit_as_the_design_writes_it(web, damping) -> None:
    x = pagerank(graph_of(web), damping).values
    matrix, ends = dense(web)
    virtual = (1 - damping) * x[~ends].sum() + x[ends].sum()
    np.testing.assert_allclose(damping * matrix @ x + virtual / web[0], x, rtol=0, atol=1e-11)


@property_test
@given(webs(), dampings)
def test_normalised_ranks_are_the_dominant_eigenvector_of_the_thesis(web, damping) -> None:
    matrix, _ = dense(web)
    eigenvalues, vectors = np.linalg.eig(damping * matrix + (1 - damping) / web[0])
    vector = vectors[:, np.argmax(eigenvalues.real)].real
    ranks = pagerank(graph_of(web), damping, dangling="normalise")
    assert ranks.converged
    np.testing.assert_allclose(ranks.values, vector / vector.sum(), rtol=0, atol=1e-8)


@property_test
@given(webs(), dampings)
def test_normalised_ranks_are_teleport_ranks_at_a_higher_damping(web, damping) -> None:
    graph = graph_of(web)
    ranks = pagerank(graph, damping, dangling="normalise").values
    raised = damping / (1 - damping * ranks[graph.out_degrees == 0].sum())
    assert raised >= damping
    assume(raised < 0.99)
    np.testing.assert_allclose(pagerank(graph, raised).values, ranks, rtol=0, atol=1e-9)


@property_test
@given(webs(), dampings, st.sampled_from(["teleport", "normalise"]))
def test_ranks_sum_to_one(web, damping, dangling) -> None:
    assert abs(pagerank(graph_of(web), damping, dangling=dangling).values.sum() - 1) <= 1e-12


@property_test
@given(webs(), dampings, st.integers(0, 6))
def test_the_residual_is_that_of_the_ranks_returned_and_bounds_their_true_error(web, damping, steps) -> None:
    paid = np.full(web[0], 1 / web[0])
    lopsided = np.arange(1, web[0] + 1)
    ranks = pagerank(graph_of(web), damping, tolerance=1e-3, max_iterations=steps, start=lopsided)
    matrix, ends = dense(web)
    matrix[:, ends] = paid[:, None]
    stepped = damping * matrix @ ranks.values + (1 - damping) * paid
    assert ranks.residual == pytest.approx(np.abs(stepped - ranks.values).sum(), rel=0, abs=1e-14)
    error = np.abs(ranks.values - solved(web, damping, paid)).sum()
    assert error <= ranks.residual / (1 - damping) + 1e-12
    assert ranks.converged == (ranks.residual <= 1e-3)
    assert ranks.iterations <= steps


@property_test
@given(webs(), st.randoms())
def test_renumbering_the_pages_renumbers_their_ranks(web, random) -> None:
    pages, links = web
    number = random.sample(range(pages), pages)
    renumbered = pages, [(number[source], number[target], weight) for source, target, weight in links]
    values = pagerank(graph_of(web)).values
    np.testing.assert_allclose(pagerank(graph_of(renumbered)).values[number], values, rtol=0, atol=1e-11)


def test_the_slides_three_pages_have_40_40_and_20_per_cent() -> None:
    alice, bob, georges = range(3)
    graph = Graph.from_links(3, [alice, alice, bob, georges], [bob, georges, alice, bob])
    ranks = pagerank(graph, damping=1.0)
    assert ranks.converged
    np.testing.assert_allclose(ranks.values, [0.4, 0.4, 0.2], rtol=0, atol=1e-11)


@pytest.mark.parametrize("dangling", ["teleport", "normalise"])
def test_when_every_page_is_dangling_each_has_what_the_virtual_page_pays(dangling) -> None:
    graph = Graph.from_links(4, [], [])
    np.testing.assert_allclose(pagerank(graph, dangling=dangling).values, [0.25] * 4, rtol=1e-15)
    personal = pagerank(graph, personalisation=[0, 1, 0, 3], start=[1, 0, 0, 0], dangling=dangling)
    np.testing.assert_allclose(personal.values, [0, 0.25, 0, 0.75], rtol=1e-15)


def test_a_hub_that_every_page_links_to_has_the_rank_worked_out_by_hand() -> None:
    leaves = np.arange(1, 1001)
    graph = Graph.from_links(1001, leaves, np.zeros(1000, np.int64))
    hub, leaf = pagerank(graph).values[[0, 1]]
    # The virtual page receives 0.15 of all leaves and all of the hub, and pays each page the same.
    assert leaf == pytest.approx((150 * leaf + hub) / 1001, rel=1e-12)
    assert hub == pytest.approx(850 * leaf + leaf, rel=1e-12)


def test_parts_without_links_between_them_share_by_what_the_virtual_page_pays_them() -> None:
    two_loops = Graph.from_links(5, [0, 1, 2, 3, 4], [1, 0, 3, 4, 2])
    np.testing.assert_allclose(pagerank(two_loops).values, [0.2] * 5, rtol=1e-12)
    skewed = pagerank(two_loops, personalisation=[2, 2, 1, 1, 0]).values
    assert skewed[:2].sum() == pytest.approx(4 / 6, rel=1e-11)


def test_a_page_pays_along_its_links_by_their_weights() -> None:
    graph = Graph.from_links(3, [0, 0, 1, 2], [1, 2, 0, 0], [3 * 1024, 1024, 1024, 7])
    zero, one, two = pagerank(graph, damping=0.8).values
    assert one == pytest.approx(0.2 / 3 + 0.8 * zero * 3 / 4, rel=1e-11)
    assert two == pytest.approx(0.2 / 3 + 0.8 * zero / 4, rel=1e-11)


def test_a_page_of_the_heaviest_links_pays_each_alike() -> None:
    graph = Graph.from_links(4, [0, 0, 0], [1, 2, 3], [65_535] * 3)
    ranks = pagerank(graph).values
    assert ranks[1] == ranks[2] == ranks[3] == pytest.approx(ranks[0] * (1 + 0.85 / 3), rel=1e-12)


def test_a_page_that_was_never_read_is_dangling() -> None:
    graph = Graph.from_links(3, [0, 1, 2], [1, 2, 0])
    unread = np.array([False, False, True])
    expected = pagerank(Graph.from_links(3, [0, 1], [1, 2]))
    assert pagerank(graph.without_links(unread)).values.tobytes() == expected.values.tobytes()
    assert pagerank(graph).values[0] > expected.values[0]


def test_interest_is_the_rank_of_the_inverse_graph() -> None:
    xml = [0, 0, 1]
    graph = Graph.from_links(3, [0, 1, 0], [1, 2, 2])  # 0 points to 2 directly and indirectly, 1 directly
    interest = pagerank(graph.transposed(), personalisation=xml).values
    assert interest[0] > interest[1] > 0
    assert interest[2] > interest[0]


def test_dangling_choices_agree_exactly_where_no_page_is_dangling_and_differ_where_some_are() -> None:
    full = power_law_web(200, seed=5, mean_links=6)
    kept = np.abs(pagerank(full).values - pagerank(full, dangling="normalise").values).sum()
    assert kept < 1e-13

    # The figures that the module's docstring states.
    web = power_law_web(10_000, seed=0, dangling=0.2)
    teleported, normalised = pagerank(web).values, pagerank(web, dangling="normalise").values
    apart = np.abs(teleported - normalised)
    assert apart.sum() == pytest.approx(0.24, abs=0.005)
    assert (apart / teleported).mean() == pytest.approx(0.28, abs=0.005)
    assert 0.85 / (1 - 0.85 * normalised[web.out_degrees == 0].sum()) == pytest.approx(1.02, abs=0.005)


def test_a_start_at_the_ranks_takes_no_step_and_a_start_near_them_few() -> None:
    graph = power_law_web(500, seed=1, mean_links=5, dangling=0.1)
    cold = pagerank(graph)
    again = pagerank(graph, start=cold.values)
    assert (again.iterations, again.converged) == (0, True)
    nearly = pagerank(graph, start=cold.values + 1e-9 * np.arange(500))
    assert 0 < nearly.iterations < cold.iterations
    np.testing.assert_allclose(nearly.values, cold.values, rtol=0, atol=1e-11)


def test_units_of_start_and_personalisation_do_not_matter() -> None:
    graph = power_law_web(50, seed=1, mean_links=5)
    paid = np.arange(50)
    one = pagerank(graph, personalisation=paid, start=paid)
    huge = pagerank(graph, personalisation=paid * 1e306, start=paid * 3.0)
    np.testing.assert_allclose(one.values, huge.values, rtol=1e-12)


def test_ranks_that_did_not_converge_say_so() -> None:
    graph = power_law_web(500, seed=1, mean_links=5)
    ranks = pagerank(graph, max_iterations=3)
    assert (ranks.iterations, ranks.converged) == (3, False)
    assert ranks.residual > 1e-12


def test_two_pages_that_swing_for_ever_at_damping_one_are_reported() -> None:
    loop = Graph.from_links(2, [0, 1], [1, 0])
    ranks = pagerank(loop, damping=1.0, start=[1, 0], max_iterations=1001)
    assert (ranks.residual, ranks.converged) == (2.0, False)
    assert ranks.values.tolist() == [0.0, 1.0]


def test_damping_zero_is_what_the_virtual_page_pays() -> None:
    ranks = pagerank(Graph.from_links(3, [0], [1]), damping=0.0, personalisation=[1, 1, 2], start=[1, 0, 0])
    # A dangling page passes all its rank on by v, so after one step all rank is there.
    np.testing.assert_allclose(ranks.values, [0.25, 0.25, 0.5], rtol=1e-15)


def test_arguments_are_left_as_they_were_and_the_same_call_gives_the_same_bytes() -> None:
    graph = power_law_web(300, seed=2, mean_links=5, dangling=0.3)
    paid, start = np.linspace(1, 2, 300), np.linspace(2, 1, 300)
    one = pagerank(graph, personalisation=paid, start=start)
    assert paid.tolist() == np.linspace(1, 2, 300).tolist()
    assert start.tolist() == np.linspace(2, 1, 300).tolist()
    assert one.values.tobytes() == pagerank(graph, personalisation=paid, start=start).values.tobytes()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"damping": -0.1}, "damping must be from 0 to 1, not -0.1"),
        ({"damping": 1.1}, "damping must be from 0 to 1, not 1.1"),
        ({"damping": float("nan")}, "damping must be from 0 to 1, not nan"),
        ({"tolerance": -1e-9}, "tolerance must not be negative"),
        ({"tolerance": float("nan")}, "tolerance must not be negative"),
        ({"max_iterations": -1}, "max_iterations must not be negative"),
        ({"personalisation": [1, -1]}, "personalisation must hold finite numbers that are not negative"),
        ({"personalisation": [1, float("inf")]}, "personalisation must hold finite numbers"),
        ({"personalisation": [0, 0]}, "personalisation must not be 0 for every page"),
        ({"personalisation": [1, 1, 1]}, "personalisation must hold 2 numbers, one for each page"),
        ({"personalisation": 1.0}, "personalisation must hold 2 numbers, one for each page"),
        ({"start": [0, 0]}, "start must not be 0 for every page"),
        ({"start": [1]}, "start must hold 2 numbers, one for each page"),
        ({"dangling": "drop"}, 'dangling must be "teleport" or "normalise"'),
    ],
)
def test_arguments_that_make_no_sense_are_refused_in_one_line(arguments, complaint) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        pagerank(Graph.from_links(2, [0], [1]), **arguments)
    assert "\n" not in str(refusal.value)


def test_a_graph_without_pages_has_no_ranks() -> None:
    with pytest.raises(ValueError, match="without pages"):
        pagerank(Graph.from_links(0, [], []))


def test_rank_that_is_all_lost_cannot_be_normalised() -> None:
    with pytest.raises(ValueError, match="nothing is left to normalise"):
        pagerank(Graph.from_links(3, [0, 1], [1, 2]), damping=1.0, dangling="normalise")


@pytest.mark.parametrize("dangling", [0.0, 0.2])
def test_gauss_seidel_finds_the_same_in_fewer_iterations(dangling: float) -> None:
    web = power_law_web(5_000, 3, dangling=dangling)
    paid = np.random.default_rng(1).random(5_000)
    plain = pagerank(web, personalisation=paid, tolerance=1e-13)
    newer = pagerank(web, personalisation=paid, tolerance=1e-13, gauss_seidel=True)
    assert np.abs(plain.values - newer.values).sum() < 1e-12
    assert newer.converged and newer.residual <= 1e-13
    assert newer.iterations < 0.8 * plain.iterations


@property_test
@given(webs(), dampings)
def test_gauss_seidel_is_the_linear_solve_too(web, damping) -> None:
    paid = np.arange(1.0, web[0] + 1)
    ranks = pagerank(graph_of(web), damping, paid, gauss_seidel=True)
    np.testing.assert_allclose(ranks.values, solved(web, damping, paid / paid.sum()), atol=1e-11)


@pytest.mark.parametrize("options", [{"dangling": "normalise"}, {"damping": 1.0}])
def test_gauss_seidel_is_refused_where_it_proves_nothing(options) -> None:
    with pytest.raises(ValueError, match="gauss_seidel goes with"):
        pagerank(graph_of((2, [(0, 1, 1024)])), gauss_seidel=True, **options)
