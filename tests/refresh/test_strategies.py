"""Plans are the best within all bounds: by a generic solver, by perturbation, and by the laws they obey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numba
import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from opicflow.pipelines.refresh.strategies import (
    BY_RATES,
    SHARE_UNITS,
    STRATEGIES,
    Allocation,
    Demand,
    _response,
    _size,
    costs,
    freshness_range,
    quantised_share,
    share,
    solve,
    solve_within_shares,
)

ALPHA = 0.95


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


@numba.njit(error_model="numpy")
def frequencies_at(strategy, multipliers, weights, rates, alpha):  # type: ignore[no-untyped-def]
    out = np.empty(len(weights))
    for i in range(len(weights)):
        out[i], _ = _response(strategy, multipliers[i], _size(strategy, weights[i], rates[i], alpha), rates[i])
    return out


@numba.njit(error_model="numpy")
def shares_of(weights, rates, alpha):  # type: ignore[no-untyped-def]
    out = np.empty(len(weights))
    units = 0
    for i in range(len(weights)):
        out[i] = share(weights[i], rates[i], alpha)
        units += quantised_share(out[i])
    return out, units


# The quantity that each strategy minimises, page by page.
AIMS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "thesis": lambda w, r, f: w * (r / f) ** ALPHA / (ALPHA + 1),
    "freshness": lambda w, r, f: w * f / r * np.expm1(-r / f),
    "harmonic": lambda w, r, f: w * np.log1p(r / f),
    "importance": lambda w, r, f: -w * np.log(f),
    "greedy": lambda w, r, f: -w * np.log(f),
    "uniform": lambda w, r, f: -np.log(f),
}
SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "thesis": lambda w, r, f: -ALPHA / (ALPHA + 1) * w * (r / f) ** ALPHA / f,
    "freshness": lambda w, r, f: -w / r * (1 - (1 + r / f) * np.exp(-r / f)),
    "harmonic": lambda w, r, f: -w * r / (f * (f + r)),
    "importance": lambda w, r, f: -w / f,
    "greedy": lambda w, r, f: -w / f,
    "uniform": lambda w, r, f: -1 / f,
}


def web(seed: int, pages: int, hosts: int = 0, pins: bool = False, bounds: bool = True) -> Demand:
    """Return pages of popular and lonely hosts, some pinned, with bounds and caps that bind for some."""
    random = np.random.default_rng(seed)
    weights = random.pareto(1.5, pages) + 0.05
    wanted = Demand(weights, 10.0 ** random.uniform(-2, 1.5, pages))
    if bounds:
        least = np.where(random.random(pages) < 0.5, 0.0, random.uniform(0.0, 0.2, pages))
        wanted = replace(wanted, least=least, most=least + 10.0 ** random.uniform(-1, 1, pages))
    if pins:
        wanted = replace(wanted, pinned=np.where(random.random(pages) < 0.2, random.uniform(0.1, 1.0, pages), 0.0))
    if hosts:
        host = (hosts * random.random(pages) ** 1.5).astype(np.int64)
        caps = np.bincount(host, minlength=hosts) * random.uniform(0.2, 1.5, hosts)
        wanted = replace(wanted, host=host, host_most=np.where(random.random(hosts) < 0.3, np.inf, caps))
    return wanted


def bounds_of(pages: Demand) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest frequency of each page, if all is feasible."""
    number = len(pages.weights)
    least = np.zeros(number) if pages.least is None else pages.least
    most = np.full(number, np.inf) if pages.most is None else pages.most
    most = np.where(pages.weights == 0.0, least, most)
    if pages.pinned is not None:
        least = np.where(pages.pinned > 0.0, pages.pinned, least)
        most = np.where(pages.pinned > 0.0, pages.pinned, most)
    return least, most


def caps_of(pages: Demand) -> tuple[np.ndarray, np.ndarray]:
    """The host of each page and the caps of all hosts: one without cap if there are none."""
    if pages.host is None or pages.host_most is None:
        return np.zeros(len(pages.weights), np.int64), column(np.inf)
    return pages.host, pages.host_most


def is_feasible(pages: Demand, bandwidth: float) -> bool:
    least, most = bounds_of(pages)
    host, caps = caps_of(pages)
    lowest, highest = (np.bincount(host, bound, len(caps)) for bound in (least, most))
    return bool((lowest <= caps).all() and lowest.sum() <= bandwidth <= np.minimum(highest, caps).sum())


def cost_of(strategy: str, pages: Demand, plan: Allocation) -> float:
    with np.errstate(divide="ignore"):
        return float(AIMS[strategy](pages.weights, pages.changes_per_day, plan.frequencies).sum())


# -- the optimum ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [0, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed_of_web", range(4))
def test_a_generic_solver_finds_the_same(strategy: str, seed_of_web: int, hosts: int) -> None:
    pages = web(seed_of_web, 8, hosts, pins=seed_of_web % 2 == 1, bounds=seed_of_web != 0)
    least, most = bounds_of(pages)
    host, caps = caps_of(pages)
    lowest, highest = (np.bincount(host, bound, len(caps)) for bound in (least, most))
    caps = np.maximum(caps, 1.2 * lowest)
    if hosts:
        pages = replace(pages, host_most=caps)
    reach = float(np.minimum(np.minimum(highest, caps), 10.0).sum())
    bandwidth = float(lowest.sum() + 0.4 * (reach - lowest.sum()))
    plan = solve(strategy, pages, bandwidth, ALPHA)
    assert plan.feasible and plan.why == ""

    limited = np.flatnonzero(np.isfinite(caps))
    by_host = (host == limited[:, None]).astype(np.float64)
    constraints = [scipy.optimize.LinearConstraint(np.ones((1, 8)), bandwidth, bandwidth)]
    if len(limited):
        constraints.append(scipy.optimize.LinearConstraint(by_host, -np.inf, caps[limited]))
    tiny = 1e-6
    w, r = pages.weights, pages.changes_per_day
    found = scipy.optimize.minimize(
        lambda f: AIMS[strategy](w, r, np.maximum(f, tiny)).sum(),
        np.clip(np.full(8, bandwidth / 8), np.maximum(least, tiny), most),
        jac=lambda f: SLOPES[strategy](w, r, np.maximum(f, tiny)),
        method="SLSQP",
        bounds=list(zip(np.maximum(least, tiny), most, strict=True)),
        constraints=constraints,
        options={"maxiter": 2_000, "ftol": 1e-10},
    )
    assert found.success, found.message
    np.testing.assert_allclose(plan.frequencies, found.x, rtol=2e-3, atol=2e-3 * bandwidth / 8)
    assert cost_of(strategy, pages, plan) <= found.fun + 1e-7 * abs(found.fun)


@pytest.mark.parametrize("hosts", [0, 300])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_moving_bandwidth_between_pages_never_pays(strategy: str, hosts: int, seed: int) -> None:
    number = 40_000  # more than the sample from which the search starts
    pages = web(seed, number, hosts, pins=True)
    plan = solve(strategy, pages, number / 4, ALPHA)
    least, most = bounds_of(pages)
    host, caps = caps_of(pages)
    spare = caps - np.bincount(host, plan.frequencies, len(caps))
    random = np.random.default_rng(seed)
    giver = random.integers(0, number, 200_000)
    taker = random.integers(0, number, 200_000)
    inside = random.random(len(taker)) < 0.5
    order = np.argsort(host, kind="stable")
    place = np.searchsorted(host[order], host[giver])
    taker[inside] = order[place + random.integers(0, np.bincount(host)[host[giver]])][inside]  # of the same host
    f = plan.frequencies
    most_moved = np.minimum(f[giver] - least[giver], most[taker] - f[taker])
    most_moved = np.where(host[giver] == host[taker], most_moved, np.minimum(most_moved, spare[host[taker]]))
    moved = np.minimum(most_moved, f[giver]) * random.choice([1e-4, 0.01, 0.3, 0.999], len(giver))
    tried = (moved > 1e-9) & (giver != taker)
    assert tried.sum() > 20_000
    giver, taker, moved = giver[tried], taker[tried], moved[tried]

    def aim(page: np.ndarray, more: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return AIMS[strategy](pages.weights[page], pages.changes_per_day[page], f[page] + more)

    before, after = (aim(giver, -now) + aim(taker, now) for now in (0.0 * moved, moved))
    assert (after >= before - 1e-13 * (np.abs(aim(giver, 0 * moved)) + np.abs(aim(taker, 0 * moved)))).all()
    assert (after > before).mean() > 0.9  # and mostly costs


def test_freshness_is_the_optimum_that_cho_and_garcia_molina_published() -> None:
    """Five pages that change once to five times a day, five fetches a day; the fastest gets none."""
    plan = solve("freshness", Demand(np.ones(5), np.arange(1.0, 6.0)), 5.0)
    np.testing.assert_allclose(plan.frequencies, [1.15, 1.36, 1.35, 1.14, 0.0], atol=0.005)


def test_freshness_solves_its_equation_to_the_last_digits() -> None:
    """It is u - ln(1+u) = -ln(1-gain), for u = λ/f from a thousandth to 30, held by numbers of more digits."""
    gains = np.concatenate([10.0 ** np.linspace(-6, -0.01, 500), 1 - 10.0 ** np.linspace(-1, -12, 500)])
    multipliers = 1 / gains
    found = frequencies_at(STRATEGIES["freshness"], multipliers, np.ones(1000), np.ones(1000), ALPHA)
    u = 1 / found.astype(np.longdouble)
    expected = -np.log1p(-1 / multipliers.astype(np.longdouble))
    well_known = gains < 0.999  # above, one more bit of the multiplier is more than this
    np.testing.assert_allclose((u - np.log1p(u))[well_known], expected[well_known], rtol=2e-13)
    np.testing.assert_allclose(u - np.log1p(u), expected, rtol=1e-4)
    tiny = frequencies_at(STRATEGIES["freshness"], column(1e20), np.ones(1), np.ones(1), ALPHA)
    np.testing.assert_allclose(tiny, np.sqrt(1e20 / 2), rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 0.95, 2.0])
def test_thesis_is_its_equation(alpha: float) -> None:
    pages = web(0, 1_000, bounds=False)
    shares = (pages.weights * pages.changes_per_day**alpha) ** (1 / (alpha + 1))
    plan = solve("thesis", pages, 250.0, alpha)
    np.testing.assert_allclose(plan.frequencies, 250.0 / shares.sum() * shares, rtol=1e-12)
    assert plan.multiplier == pytest.approx(250.0 / shares.sum(), rel=1e-12)


def test_the_simple_policies_are_proportional() -> None:
    pages = web(0, 1_000, bounds=False)
    for strategy in ("importance", "greedy"):
        plan = solve(strategy, pages, 250.0)
        np.testing.assert_allclose(plan.frequencies, 250.0 * pages.weights / pages.weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(solve("uniform", pages, 250.0).frequencies, 0.25, rtol=1e-12)


def test_each_strategy_is_best_by_its_own_measure_and_only_freshness_gives_pages_up() -> None:
    pages = web(0, 5_000, bounds=False)
    measured = {strategy: costs(pages, solve(strategy, pages, 2_000.0).frequencies) for strategy in STRATEGIES}
    assert min(measured, key=lambda strategy: measured[strategy].obsolescence) == "thesis"
    assert max(measured, key=lambda strategy: measured[strategy].freshness) == "freshness"
    assert min(measured, key=lambda strategy: measured[strategy].harmonic_staleness) == "harmonic"
    assert {strategy for strategy in STRATEGIES if measured[strategy].never_refreshed} == {"freshness"}


# -- laws ----------------------------------------------------------------------------------------------------------

weights = st.sampled_from([0.0, 1e-12, 1.0]) | st.floats(1e-12, 1.0)
rates = st.sampled_from([1e-5, 1.0, 1e3]) | st.floats(1e-5, 1e3)
bandwidths = st.sampled_from([1e-6, 1.0, 1e9]) | st.floats(1e-3, 1e4)
strategies = st.sampled_from(sorted(STRATEGIES))


@st.composite
def wanted(draw: st.DrawFn, most_pages: int = 8) -> Demand:
    """Any pages, with any bounds, pins and caps."""
    number = draw(st.integers(1, most_pages))

    def columns(values: st.SearchStrategy[float]) -> np.ndarray:
        return column(*draw(st.lists(values, min_size=number, max_size=number)))

    pages = Demand(columns(weights), columns(rates))
    if draw(st.booleans()):
        pages = replace(pages, least=columns(st.sampled_from([0.0, 0.0, 1e-3, 0.5])))
    if draw(st.booleans()):
        least = 0.0 if pages.least is None else pages.least
        pages = replace(pages, most=least + columns(st.sampled_from([np.inf, 0.0, 0.01, 2.0, 1e6])))
    if draw(st.booleans()):
        pages = replace(pages, pinned=columns(st.sampled_from([0.0, 0.0, 0.0, 1e-4, 1.0])))
    if draw(st.booleans()):
        hosts = draw(st.integers(1, 3))
        host = draw(st.lists(st.integers(0, hosts - 1), min_size=number, max_size=number))
        caps = draw(st.lists(st.sampled_from([np.inf, 0.1, 1.0, 100.0]), min_size=hosts, max_size=hosts))
        pages = replace(pages, host=np.array(host), host_most=column(*caps))
    return pages


@given(strategies, wanted(), bandwidths)
def test_the_sum_is_the_bandwidth_and_bounds_pins_and_caps_are_kept_whenever_that_is_feasible(
    strategy: str, pages: Demand, bandwidth: float
) -> None:
    plan = solve(strategy, pages, bandwidth)
    f = plan.frequencies
    least, most = bounds_of(pages)
    host, caps = caps_of(pages)
    by_host = np.bincount(host, f, len(caps))
    assert plan.feasible == (plan.why == "")
    assert "\n" not in plan.why
    assert (f >= 0).all() and (f <= most * (1 + 1e-12)).all()
    assert (by_host <= caps * (1 + 1e-9)).all()
    assert f.sum() <= bandwidth * (1 + 1e-9)
    edge = is_feasible(pages, bandwidth * (1 - 1e-9)) != is_feasible(pages, bandwidth * (1 + 1e-9))
    assert edge or plan.feasible == is_feasible(pages, bandwidth)
    if plan.feasible:
        assert abs(f.sum() - bandwidth) <= 1e-9 * bandwidth
        assert (f >= least * (1 - 1e-12)).all()


@given(strategies, wanted(), bandwidths)
def test_frequencies_follow_from_the_multiplier(strategy: str, pages: Demand, bandwidth: float) -> None:
    plan = solve(strategy, pages, bandwidth)
    assume(plan.feasible)
    least, most = bounds_of(pages)
    host, _ = caps_of(pages)
    assert (plan.host_multipliers is None) == (pages.host_most is None or bool(np.isinf(pages.host_most).all()))
    if plan.host_multipliers is None:
        multipliers = np.full(len(least), plan.multiplier)
    else:
        assert (plan.host_multipliers <= plan.multiplier * (1 + 1e-9)).all()
        multipliers = plan.host_multipliers[host]
    at = [
        np.clip(frequencies_at(STRATEGIES[strategy], m, pages.weights, pages.changes_per_day, ALPHA), least, most)
        for m in (multipliers * (1 - 1e-15), multipliers * (1 + 1e-15))
    ]
    assert (at[0] * (1 - 1e-9) <= plan.frequencies).all()
    assert (plan.frequencies <= at[1] * (1 + 1e-9)).all()


@given(strategies, wanted(), bandwidths, st.integers(0, 7), st.floats(1.01, 1e3))
def test_more_weight_never_lowers_a_frequency(
    strategy: str, pages: Demand, bandwidth: float, place: int, factor: float
) -> None:
    page = place % len(pages.weights)
    heavier = pages.weights.copy()
    heavier[page] *= factor
    before = solve(strategy, pages, bandwidth)
    after = solve(strategy, replace(pages, weights=heavier), bandwidth)
    assert after.frequencies[page] >= before.frequencies[page] * (1 - 1e-9)


@given(strategies, wanted(), bandwidths, st.floats(1e-3, 1e3))
def test_the_unit_of_weights_does_not_matter(strategy: str, pages: Demand, bandwidth: float, factor: float) -> None:
    assert_same(strategy, pages, solve(strategy, pages, bandwidth), rescaled(strategy, pages, bandwidth, factor))


def rescaled(strategy: str, pages: Demand, bandwidth: float, factor: float) -> Allocation:
    return solve(strategy, replace(pages, weights=pages.weights * factor), bandwidth)


@given(strategies, wanted(), bandwidths, st.randoms(use_true_random=False))
def test_the_order_of_pages_does_not_matter(strategy: str, pages: Demand, bandwidth: float, random: object) -> None:
    order = np.arange(len(pages.weights))
    random.shuffle(order)  # type: ignore[attr-defined]
    turned = {
        name: getattr(pages, name)[order]
        for name in ("weights", "changes_per_day", "pinned", "least", "most", "host")
        if getattr(pages, name) is not None
    }
    plan = solve(strategy, replace(pages, **turned), bandwidth)
    back = np.empty(len(order))
    back[order] = plan.frequencies
    assert_same(strategy, pages, solve(strategy, pages, bandwidth), replace(plan, frequencies=back))


def assert_same(strategy: str, pages: Demand, one: Allocation, other: Allocation) -> None:
    """The same plan, as far as there is only one: pages whose w/λ are next to each other may trade under freshness."""
    assert one.feasible == other.feasible
    if strategy == "freshness":
        fresh = [costs(pages, plan.frequencies).freshness for plan in (one, other)]
        assert fresh[0] == pytest.approx(fresh[1], rel=1e-9)
    else:
        np.testing.assert_allclose(one.frequencies, other.frequencies, rtol=1e-9)


@given(strategies, weights, rates, bandwidths, st.integers(1, 50))
def test_pages_that_are_alike_get_the_same(
    strategy: str, weight: float, rate: float, bandwidth: float, number: int
) -> None:
    assume(weight > 0)
    plan = solve(strategy, Demand(np.full(number, weight), np.full(number, rate)), bandwidth)
    assert plan.feasible
    assert len(set(plan.frequencies)) == 1
    np.testing.assert_allclose(plan.frequencies, bandwidth / number, rtol=1e-9)


@given(strategies, wanted(), bandwidths)
def test_the_same_pages_get_the_same_to_the_bit(strategy: str, pages: Demand, bandwidth: float) -> None:
    one, other = solve(strategy, pages, bandwidth), solve(strategy, pages, bandwidth)
    assert one.frequencies.tobytes() == other.frequencies.tobytes()
    assert (one.multiplier, one.feasible, one.why) == (other.multiplier, other.feasible, other.why)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("bandwidth", [1e-9, 1.0, 1e4, 1e12])
def test_extremes_are_shared_to_the_last_fetch(strategy: str, bandwidth: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    number = 50_000
    pages = Demand(10.0 ** random.uniform(-12, 0, number), 10.0 ** random.uniform(-5, 3, number))
    plan = solve(strategy, pages, bandwidth)
    assert plan.feasible
    assert plan.frequencies.sum() == pytest.approx(bandwidth, rel=1e-9)
    assert strategy == "freshness" or plan.frequencies.min() > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_million_fetches_among_pages_that_are_all_alike(strategy: str) -> None:
    """Where freshness gives pages up or not by the last bit of a multiplier."""
    for bandwidth in (1e-3, 1e3, 1e6):
        plan = solve(strategy, Demand(np.full(100_000, 0.3), np.full(100_000, 7.0)), bandwidth)
        np.testing.assert_allclose(plan.frequencies, bandwidth / 100_000, rtol=1e-9)


def test_a_host_that_is_over_its_cap_only_because_another_was_is_capped_too() -> None:
    pages = Demand(
        column(100.0, 10.0, 1.0), np.ones(3), host=np.arange(3, dtype=np.int64), host_most=column(1.0, 5.0, np.inf)
    )
    assert solve("importance", replace(pages, host_most=np.full(3, np.inf)), 20.0).frequencies[1] < 5.0
    np.testing.assert_allclose(solve("importance", pages, 20.0).frequencies, [1.0, 5.0, 14.0])


def test_a_cap_binds_between_two_multipliers_that_are_next_to_each_other() -> None:
    """Equal pages get so little bandwidth that freshness gives up all pages, or none."""
    alike = Demand(np.ones(20), np.ones(20), host=np.arange(20) // 10, host_most=column(0.1, np.inf))
    for bandwidth in (0.01, 0.2, 0.3):
        plan = solve("freshness", alike, bandwidth)
        assert plan.feasible
        assert plan.frequencies.sum() == pytest.approx(bandwidth, rel=1e-9)
        assert plan.frequencies[:10].sum() <= 0.1 * (1 + 1e-9)
        assert len(set(plan.frequencies[:10])) == len(set(plan.frequencies[10:])) == 1


# -- infeasible bounds ---------------------------------------------------------------------------------------------


def three(**columns: object) -> Demand:
    return replace(Demand(column(1.0, 2.0, 3.0), np.ones(3)), **columns)  # type: ignore[arg-type]


HOSTS = {"host": np.array([0, 0, 1]), "host_most": column(1.0, np.inf)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("pages", "bandwidth", "expected", "why"),
    [
        (three(pinned=column(3.0, 9.0, 0.0)), 4.0, [1.0, 3.0, 0.0], "pins take 12 a day of a bandwidth of 4"),
        (three(least=column(2.0, 4.0, 0.0)), 3.0, [1.0, 2.0, 0.0], "the longest intervals need 6 a day of 3"),
        (three(least=column(2.0, 6.0, 0.0), pinned=column(0.0, 0.0, 2.0)), 6.0, [1.0, 3.0, 2.0], "need 8 a day of 4"),
        (three(most=column(1.0, 2.0, 3.0)), 7.0, [1.0, 2.0, 3.0], "left over: 1 a day"),
        (three(pinned=np.ones(3)), 4.0, [1.0, 1.0, 1.0], "left over: 1 a day"),
        (three(pinned=np.ones(3)), 3.25, [1.0, 1.0, 1.0], "left over: 0.25 a day"),
        (three(most=np.ones(3)), 12_000_003.0, [1.0, 1.0, 1.0], "left over: 12,000,000 a day"),
        (replace(three(), weights=np.zeros(3)), 4.0, [0.0, 0.0, 0.0], "left over: 4 a day"),
        (three(pinned=column(1.0, 3.0, 0.0), **HOSTS), 6.0, [0.25, 0.75, 5.0], "pins exceed their caps: 1"),
        (three(least=column(1.0, 3.0, 0.0), **HOSTS), 6.0, [0.25, 0.75, 5.0], "more than their caps: 1"),
        (
            three(most=np.full(3, 2.0), pinned=column(1, 0, 0), **HOSTS),
            6.0,
            [1.0, 0.0, 2.0],
            "left over: 3 a day",
        ),
    ],
)
def test_infeasible_bounds_are_scaled_down_or_left_over_with_a_reason(
    strategy: str, pages: Demand, bandwidth: float, expected: list[float], why: str
) -> None:
    plan = solve(strategy, pages, bandwidth)
    np.testing.assert_allclose(plan.frequencies, expected, atol=1e-12)
    assert not plan.feasible
    assert why in plan.why
    assert plan.multiplier in (0.0, np.inf) or "caps" in plan.why


def test_nothing_at_all_is_feasible() -> None:
    for strategy in STRATEGIES:
        assert solve(strategy, three(), 0.0).feasible
        assert solve(strategy, Demand(column(), column()), 0.0).feasible
        np.testing.assert_array_equal(solve(strategy, three(), 0.0).frequencies, 0.0)
        assert not solve(strategy, Demand(column(), column()), 1.0).feasible


def test_a_page_of_no_weight_gets_its_least_under_every_strategy() -> None:
    for strategy in STRATEGIES:
        pages = three(least=column(0.5, 0.0, 0.0))
        plan = solve(strategy, replace(pages, weights=column(0.0, 0.0, 1.0)), 3.0)
        np.testing.assert_allclose(plan.frequencies, [0.5, 0.0, 2.5])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            {"strategy": "best"},
            "strategy must be one of thesis, freshness, harmonic, importance, greedy, uniform, not 'best'",
        ),
        ({"bandwidth": -1.0}, "bandwidth must be"),
        ({"bandwidth": np.nan}, "bandwidth must be"),
        ({"bandwidth": np.inf}, "bandwidth must be"),
        ({"alpha": 0.0}, "alpha must be"),
        ({"alpha": np.nan}, "alpha must be"),
        ({"pages": three(weights=column(1.0, -1.0, 1.0))}, "weights must be from 0"),
        ({"pages": three(weights=column(1.0, np.nan, 1.0))}, "weights must be from 0"),
        ({"pages": three(changes_per_day=column(1.0, 0.0, 1.0))}, "changes_per_day must be from"),
        ({"pages": three(changes_per_day=column(1.0, 1.0))}, "changes_per_day must be a column of 3 float64"),
        ({"pages": three(weights=np.ones(3, np.float32))}, "weights must be a column of 3 float64"),
        ({"pages": three(pinned=column(0.0, 0.0, np.inf))}, "pinned must be from 0"),
        ({"pages": three(least=column(0.0, 0.0, np.inf))}, "least must be from 0"),
        ({"pages": three(most=column(0.0, 0.0, -1.0))}, "most must be from 0"),
        ({"pages": three(least=np.ones(3), most=column(1.0, 1.0, 0.5))}, "least must not be above most"),
        ({"pages": three(host=np.zeros(3, np.int64))}, "must be given together"),
        ({"pages": three(host=np.zeros(3), host_most=np.ones(1))}, "host must be a column of 3 int64"),
        ({"pages": three(host=np.array([0, 1, 2]), host_most=np.ones(2))}, "host must be numbers below 2"),
        ({"pages": three(host=np.array([0, -1, 1]), host_most=np.ones(2))}, "host must be numbers below 2"),
        ({"pages": three(host=np.zeros(3, np.int64), host_most=column(np.nan))}, "host_most must be from 0"),
    ],
)
def test_wrong_options_are_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        solve(**({"strategy": "thesis", "pages": three(), "bandwidth": 1.0} | arguments))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


# -- costs and shares ----------------------------------------------------------------------------------------------


def test_costs_are_the_means_over_time_that_they_claim_to_be() -> None:
    pages = Demand(column(1.0, 0.5, 2.0), column(0.1, 3.0, 40.0))
    frequencies = column(0.5, 1.0, 7.0)
    measured = costs(pages, frequencies, ALPHA)
    moments = (np.arange(200_000) + 0.5) / 200_000 / frequencies[:, None]
    changes = pages.changes_per_day[:, None] * moments
    late = (pages.weights[:, None] * changes**ALPHA).mean(axis=1)
    np.testing.assert_allclose(measured.staleness_cost, late, rtol=1e-6)
    assert measured.obsolescence == pytest.approx(measured.staleness_cost.sum(), rel=1e-12)
    fresh = np.exp(-changes).mean(axis=1)
    assert measured.freshness == pytest.approx(float((pages.weights * fresh).sum() / pages.weights.sum()), rel=1e-6)
    harmonic = pages.weights * np.log((frequencies + pages.changes_per_day) / frequencies)
    assert measured.harmonic_staleness == pytest.approx(harmonic.sum(), rel=1e-12)
    assert measured.never_refreshed == 0


def test_a_page_that_is_never_fetched_costs_without_end_unless_it_has_no_weight() -> None:
    measured = costs(three(weights=column(0.0, 1.0, 1.0)), column(0.0, 0.0, np.inf))
    assert measured.staleness_cost.tolist() == [0.0, np.inf, 0.0]
    assert (measured.obsolescence, measured.harmonic_staleness) == (np.inf, np.inf)
    assert (measured.freshness, measured.never_refreshed) == (0.5, 2)
    assert costs(three(weights=np.zeros(3)), np.zeros(3)).freshness == 0.0


def test_the_range_of_freshness_is_that_of_faster_and_slower_changes() -> None:
    pages, frequencies = three(), np.array([1.0, 2.0, 0.0])
    errors = np.array([0.5, 1.0, 9.99])
    low, high = freshness_range(pages, errors, frequencies)
    for found, sign in ((low, 1), (high, -1)):
        rates = pages.changes_per_day * np.exp(sign * errors)
        expected = costs(replace(pages, changes_per_day=rates), frequencies).freshness
        assert found == pytest.approx(expected, rel=1e-12)
    plain = costs(pages, frequencies).freshness
    assert low < plain < high
    assert freshness_range(pages, np.zeros(3), frequencies) == pytest.approx((plain, plain))
    assert freshness_range(pages, errors, np.array([np.inf, np.inf, 0.0])) == pytest.approx((0.5, 0.5))
    assert freshness_range(three(weights=np.zeros(3)), errors, frequencies) == (0.0, 0.0)
    with pytest.raises(ValueError, match="errors"):
        freshness_range(pages, np.array([0.5, np.nan, 1.0]), frequencies)
    with pytest.raises(ValueError, match="frequencies must be from 0"):
        costs(three(), column(0.0, -1.0, 0.0))


def test_quantised_shares_add_up_to_the_exact_sum_in_any_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.pareto(1.1, 100_000) * 1e-5  # shares of thousandths, of which half a unit is much
    changes = 10.0 ** random.uniform(-4, 2, 100_000)
    exact, units = shares_of(scores, changes, ALPHA)
    np.testing.assert_allclose(exact, (scores * changes**ALPHA) ** (1 / (1 + ALPHA)), rtol=1e-14)
    assert units / SHARE_UNITS == pytest.approx(float(exact.sum()), rel=1e-6)
    order = random.permutation(100_000)
    assert shares_of(scores[order], changes[order], ALPHA)[1] == units


# -- bounds of domains ---------------------------------------------------------------------------------------------


def most_of_domains(pages: Demand, plan: Allocation, domain: np.ndarray, times: float) -> np.ndarray:
    """Return what each domain may have: by its share of weights, or that of an average page, or its least."""
    free = np.ones(len(domain)) if pages.pinned is None else (pages.pinned == 0.0).astype(np.float64)
    least, _ = bounds_of(pages)
    held, needed, gets = (np.bincount(domain, column * free) for column in (pages.weights, least, plan.frequencies))
    total = held.sum()
    return np.maximum(times * gets.sum() * np.maximum(held, total / free.sum()) / total, needed)


@pytest.mark.parametrize("strategy", BY_RATES)
@pytest.mark.parametrize("seed_of_web", range(6))
def test_a_generic_solver_finds_the_same_within_bounds_of_domains(strategy: str, seed_of_web: int) -> None:
    pages = replace(web(seed_of_web, 9, bounds=seed_of_web % 2 == 1), most=None)  # so others can use the rest
    domain = np.arange(9) % 3
    pages = replace(pages, changes_per_day=pages.changes_per_day * np.where(domain == 0, 100.0, 1.0))
    least, most = bounds_of(pages)
    lowest, highest = float(least.sum()), float(np.minimum(most, 10.0).sum())
    bandwidth, times = lowest + 0.4 * (highest - lowest), 1.1
    free, plan = (solve(strategy, pages, bandwidth), solve_within_shares(strategy, pages, bandwidth, domain, times))
    caps = most_of_domains(pages, plan, domain, times)
    tiny = 1e-6
    w, r = pages.weights, pages.changes_per_day
    by_domain = (domain == np.arange(3)[:, None]).astype(np.float64)
    found = scipy.optimize.minimize(
        lambda f: AIMS[strategy](w, r, np.maximum(f, tiny)).sum(),
        np.maximum(np.minimum(free.frequencies * 0.5 + 0.5 * bandwidth / 9, most), np.maximum(least, tiny)),
        jac=lambda f: SLOPES[strategy](w, r, np.maximum(f, tiny)),
        method="SLSQP",
        bounds=list(zip(np.maximum(least, tiny), most, strict=True)),
        constraints=[
            scipy.optimize.LinearConstraint(np.ones((1, 9)), bandwidth, bandwidth),
            scipy.optimize.LinearConstraint(by_domain, -np.inf, caps),
        ],
        options={"maxiter": 2_000, "ftol": 1e-10},
    )
    assert found.success, found.message
    np.testing.assert_allclose(plan.frequencies, found.x, rtol=3e-3, atol=3e-3 * bandwidth / 9)
    assert cost_of(strategy, pages, plan) <= found.fun + 1e-7 * abs(found.fun)


@pytest.mark.parametrize("strategy", BY_RATES)
@pytest.mark.parametrize("hosts", [0, 300])
def test_a_domain_gets_no_more_than_its_bound_and_others_what_the_strategy_says(
    strategy: str, hosts: int, seed: int
) -> None:
    number = 40_000
    pages = web(seed, number, hosts, pins=True)
    random = np.random.default_rng(seed)
    domain = random.integers(0, 500, number)
    pages = replace(pages, changes_per_day=np.where(domain < 25, 1e3, pages.changes_per_day))
    free, plan = solve(strategy, pages, number / 4), solve_within_shares(strategy, pages, number / 4, domain, 1.2)
    caps = most_of_domains(pages, plan, domain, 1.2)
    counted = pages.pinned == 0.0
    before, gets = (np.bincount(domain, one.frequencies * counted) for one in (free, plan))
    assert (before > caps * (1 + 1e-9)).sum() >= 20
    assert (gets <= caps * (1 + 1e-8)).all()
    assert plan.frequencies.sum() == pytest.approx(number / 4, rel=1e-9)
    assert plan.multiplier > free.multiplier
    if pages.host is not None and pages.host_most is not None:
        assert (np.bincount(pages.host, plan.frequencies, 300) <= pages.host_most * (1 + 1e-9)).all()
        return
    others = counted & (gets < caps * (1 - 1e-8))[domain]
    least, most = bounds_of(pages)
    at_one = np.full(number, plan.multiplier)
    free_of_bounds = frequencies_at(STRATEGIES[strategy], at_one, pages.weights, pages.changes_per_day, ALPHA)
    np.testing.assert_allclose(
        plan.frequencies[others], np.clip(free_of_bounds, least, most)[others], rtol=1e-6, atol=1e-12
    )


@given(st.sampled_from(BY_RATES), wanted(), bandwidths, st.integers(1, 3), st.sampled_from([1.0, 1.5, 2.0, 1e9]))
def test_bounds_of_domains_waste_no_bandwidth_and_break_no_other_bound(
    strategy: str, pages: Demand, bandwidth: float, domains: int, times: float
) -> None:
    domain = np.arange(len(pages.weights)) % domains
    free, plan = solve(strategy, pages, bandwidth), solve_within_shares(strategy, pages, bandwidth, domain, times)
    assert plan.frequencies.sum() == pytest.approx(free.frequencies.sum(), rel=1e-8)
    assert (plan.feasible, plan.why) == (free.feasible, free.why)
    least, most = bounds_of(pages)
    host, caps = caps_of(pages)
    assert (np.bincount(host, plan.frequencies, len(caps)) <= caps * (1 + 1e-9)).all()
    assert (plan.frequencies <= most * (1 + 1e-12)).all()
    if plan.feasible:
        assert (plan.frequencies >= least * (1 - 1e-9)).all()
    if domains == 1 or times == 1e9:
        np.testing.assert_array_equal(plan.frequencies, free.frequencies)


@pytest.mark.parametrize("seed_of_web", [102, *range(8)])
def test_a_domain_whose_pages_cannot_use_its_bound_gets_all_that_they_can(seed_of_web: int) -> None:
    """No multiplier gives them more; the first of these webs has such a domain beside some that are bounded."""
    random = np.random.default_rng(seed_of_web)
    weights_of_pages, rates = random.lognormal(0.0, 0.8, 30), random.lognormal(-1.0, 1.5, 30)
    pages = Demand(weights_of_pages, rates, least=np.full(30, 1 / 3650), most=np.ones(30))
    plan = solve_within_shares("harmonic", pages, 14.0, np.arange(30), 2.0)
    assert plan.feasible and plan.frequencies.sum() == pytest.approx(14.0, rel=1e-9)
    caps = np.maximum(weights_of_pages, weights_of_pages.mean()) * (2.0 * 14.0 / weights_of_pages.sum())
    assert (plan.frequencies <= np.minimum(caps, 1.0) * (1 + 1e-8)).all()


def test_what_others_cannot_use_goes_to_the_domain_that_wants_it() -> None:
    """Two pages that may be fetched twice a day hold nearly all weight; a domain of ten pages wants the rest."""
    weights_of_pages = column(1.0, 1.0, *[0.01] * 10)
    most = column(2.0, 2.0, *[100.0] * 10)
    pages = Demand(weights_of_pages, np.full(12, 10.0), most=most)
    domain = np.array([0, 1, *[2] * 10])
    plan = solve_within_shares("harmonic", pages, 104.0, domain, 2.0)
    assert plan.feasible
    np.testing.assert_allclose(plan.frequencies, [2.0, 2.0, *[10.0] * 10], rtol=1e-9)


def test_a_domain_may_have_what_an_average_page_may_and_the_least_of_its_pages() -> None:
    pages = Demand(column(1e-6, *[1.0] * 99), column(1e3, *[0.01] * 99))
    domain = np.array([0, *range(1, 100)])
    alone = solve_within_shares("thesis", pages, 100.0, domain, 1.0)
    assert 0.0 < alone.frequencies[0] <= 1.0 + 1e-9
    slow = Demand(np.array([*[1e-9] * 50, *[1.0] * 50]), np.array([*[1e3] * 50, *[0.01] * 50]), least=np.full(100, 0.1))
    bounded = solve_within_shares("thesis", slow, 100.0, np.array([*[0] * 50, *range(1, 51)]), 2.0)
    np.testing.assert_allclose(bounded.frequencies[:50], 0.1, rtol=1e-9)
