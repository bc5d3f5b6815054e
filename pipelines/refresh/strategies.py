"""Refresh strategies: how a bandwidth is shared among pages, as the frequency of each in fetches per day.

With w the weight of a page, λ its changes per day, f its fetches per day and B the bandwidth:

- `thesis`: f = B/S (w λ^alpha)^(1 / (alpha + 1)), S the sum of (w λ^alpha)^(1 / (alpha + 1)) (eq. 3.7 and 3.8).
  Minimises
  Σ w (λ/f)^alpha / (alpha + 1): how far copies lag behind.
- `freshness`: w/λ (1 - (1 + λ/f) exp(-λ/f)) is equal for all pages (Cho and Garcia-Molina). Maximises
  Σ w f/λ (1 - exp(-λ/f)): the copies that are up to date. Pages that change too fast get f = 0.
- `harmonic`: w λ / (f (f + λ)) is equal for all pages (Kolobov et al. 2019, for pages whose changes are seen at fetches
  only). Minimises Σ w ln((f + λ) / f): much like `freshness`, but every page is fetched.
- `importance`: f is proportional to w, as in Xyleme's crawl.
- `greedy`: f is proportional to w as well. Orders then go to the pages with the most waiting cash; cash arrives in
  proportion to importance, so these are the frequencies that result.
- `uniform`: f is equal for all pages.

Each is f = F(multiplier), and F grows with the multiplier: B/S for the thesis; for `freshness` and `harmonic`, 1 over
the gain of one more fetch a day. Pinned pages are served first. All other pages share one multiplier, and are clipped
to their least and most frequencies. A host that would exceed its cap shares the cap, with a multiplier of its own. This
meets the conditions of Karush, Kuhn and Tucker, so it is the optimum within all bounds. Every F grows with the
multiplier, clipped or not, and so does the sum: a search for one number solves the problem. A domain that would get too
many times its share of all weights has a multiplier of its own, too (`solve_within_shares`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Bools, ColumnTuple, Floats, Int, Ints
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

# Numbers in kernels, for which Python has no types.

THESIS = 0
FRESHNESS = 1
HARMONIC = 2
IMPORTANCE = 3
GREEDY = 4
UNIFORM = 5

STRATEGIES: dict[str, int] = {
    "thesis": THESIS,
    "freshness": FRESHNESS,
    "harmonic": HARMONIC,
    "importance": IMPORTANCE,
    "greedy": GREEDY,
    "uniform": UNIFORM,
}

BY_RATES = ("thesis", "freshness", "harmonic")
"""The strategies that give more to a page that changes more often."""

SHARE_UNITS = 1 << 24
"""Units of a quantised share."""

_LIGHTEST = 1e-30  # a smaller weight counts as 0
_LARGEST = 1e30  # bound of weights, rates and the bandwidth, so that no product overflows
_ROUNDING = 1e-12  # relative: sums that differ by less are equal
_SUMS_DIFFER = 1e-9  # the same, for sums of many pages in another order
_SAMPLE = 1 << 15  # pages from which the search for a multiplier starts
_MOST_ERROR = 30.0  # of a logarithm: e^30 is beyond all rates
_BLOCK = 1 << 10  # pages in one partial sum
_NEAR = 0.7  # of its bound: a domain that has so much may be above it once others get less


@dataclass(frozen=True, eq=False)
class Demand:
    """The pages that share a bandwidth, as columns.

    A pinned page gets its pin, whatever its bounds. A page of weight 0 gets its least frequency with every strategy.
    """

    weights: Floats
    """Importance times factors, in any unit."""
    changes_per_day: Floats
    pinned: Floats | None = None
    """Fetches per day; 0 = free. None: no page is pinned."""
    least: Floats | None = None
    """The least frequency of each page, from its longest interval. None: 0 for all."""
    most: Floats | None = None
    """The largest frequency of each page, from its shortest interval; may be inf. None: inf for all."""
    host: Ints | None = None
    """The number of the host of each page. None: hosts have no caps."""
    host_most: Floats | None = None
    """By host: its fetches per day, pins included; inf = no cap."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """The frequencies that a strategy gives.

    A page that changes until the next plan gets the frequency at `multiplier`, within its bounds; a page of host h gets
    that at `host_multipliers[h]`, which is lower if the host's cap limits it (None if no host has a cap). The
    multiplier is 0 if the least frequencies exceed the bandwidth, and inf if every page has its largest frequency.

    `feasible`: all frequencies are within their bounds, and their sum is the bandwidth. Otherwise `why` names in one
    line the bounds that were given up. The sum never exceeds the bandwidth, nor the sum of a host its cap.

    With `freshness`, the multipliers of all frequencies below λ/37 are equal to the last bit: such a page gets a
    frequency between those at the multiplier and at the next smaller float.
    """

    frequencies: Floats
    multiplier: float
    feasible: bool
    why: str
    host_multipliers: Floats | None = None
    at_bound: Bools | None = None
    """Whether the domain of each page has all that its bound allows; None: no domain has."""


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of frequencies, by the measures of all strategies."""

    staleness_cost: Floats
    """For each page: w (λ/f)^alpha / (alpha + 1), the thesis' cost, as a mean over time; inf if it is never fetched."""
    obsolescence: float
    """The sum of `staleness_cost`, which `thesis` minimises."""
    freshness: float
    """The weighted share of copies that are up to date, which `freshness` maximises; 0 if all weights are 0."""
    harmonic_staleness: float
    """Σ w ln((f + λ)/f), which `harmonic` minimises."""
    never_refreshed: int
    """The number of pages with frequency 0."""


@ColumnTuple.register
class _Columns(NamedTuple):
    """The columns of pages for kernels. A fixed frequency has least == most; pinned pages have 0 for both."""

    sizes: Floats
    rates: Floats
    least: Floats
    most: Floats
    host: Ints  # empty: hosts have no caps
    room: Floats  # by host: its cap less its pins


@ColumnTuple.register
class _Scratch(NamedTuple):
    """Sums by host: of frequencies, of unclipped frequencies, and of unclipped frequencies times their elasticity."""

    sums: Floats
    free: Floats
    slopes: Floats


# -- for the ledger --------------------------------------------------------------------------------------------------


@inlined_kernel
def share(weight: float, rate: float, alpha: float) -> float:
    """Return the thesis' (w λ^alpha)^(1 / (alpha + 1)): the summand of a page in S."""
    return (weight * rate**alpha) ** (1.0 / (alpha + 1.0))


@inlined_kernel
def quantised_share(share: float) -> Int:
    """Return a share in whole units, so that shards can add shares exactly in any order."""
    return np.int64(share * SHARE_UNITS + 0.5)


@inlined_kernel
def _size(strategy: Int, weight: float, rate: float, alpha: float) -> float:
    """Return the size that the strategy uses besides the rate; 0 for a page that gets its least frequency."""
    if weight < _LIGHTEST:
        return 0.0
    if strategy == THESIS:
        return share(weight, rate, alpha)
    if strategy == UNIFORM:
        return 1.0
    return weight


@inlined_kernel
def _response(strategy: Int, multiplier: float, size: float, rate: float) -> tuple[float, float]:
    """Return the frequency at a multiplier, and its elasticity: its growth in % if the multiplier grows by 1 %."""
    if size == 0.0 or multiplier == 0.0:
        return 0.0, 0.0
    if multiplier == np.inf:
        return np.inf, 0.0
    if strategy == FRESHNESS:
        return _freshest(multiplier, size, rate)
    if strategy == HARMONIC:
        ratio = size * multiplier / rate
        root = np.sqrt(1.0 + 4.0 * ratio)
        return 2.0 * size * multiplier / (1.0 + root), 0.5 + 0.5 / root
    return multiplier * size, 1.0


@inlined_kernel
def _freshest(multiplier: float, weight: float, rate: float) -> tuple[float, float]:
    """Return the f with w/λ (1 - (1 + u) exp(-u)) = 1/multiplier, where u = λ/f; 0 if there is none.

    Equivalent: u - ln(1+u) = -ln(1-gain), with gain = λ / (w multiplier).
    """
    gain = rate / (weight * multiplier)
    if gain >= 1.0:
        return 0.0, 0.0
    target = -np.log1p(-gain)
    if target < 2.0:
        # The first terms of the inverse as a series in p, p²/2 = target: exact for small p.
        p = np.sqrt(2.0 * target)
        tail = 1.0 / 4320.0 + p * (1.0 / 17010.0 + p * (-139.0 / 5443200.0 + p * (1.0 / 204120.0)))
        u = p * (1.0 + p * (1.0 / 3.0 + p * (1.0 / 36.0 + p * (-1.0 / 270.0 + p * tail))))
        if p > 0.1:
            u = _halley(u, target)
    else:
        first, log = 1.0 + target, np.log1p(target)
        u = target + log * (1.0 + (1.0 + 0.5 * (log - 2.0) / first) / first)
        u = _halley(_halley(u, target), target)
    return rate / u, gain * (1.0 + u) / (u * u * (1.0 - gain))


@inlined_kernel
def _halley(u: float, target: float) -> float:
    """Return the next step of Halley's method for u - ln(1+u) = target."""
    off = u - np.log1p(u) - target
    return u - 2.0 * off * u * (1.0 + u) / (2.0 * u * u - off)


# -- solving ---------------------------------------------------------------------------------------------------------


def solve(strategy: str, pages: Demand, bandwidth: float, alpha: float = 0.95) -> Allocation:
    """Share a bandwidth among pages by a strategy of this name; frequencies sum to the bandwidth if that is feasible.

    Only `thesis` uses `alpha`. Raises ValueError, with a message of one line, for arguments out of range.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    if not 0.0 <= bandwidth <= _LARGEST:
        raise ValueError(f"bandwidth must be from 0 to {_LARGEST:g} fetches per day, not {bandwidth}")
    _check_alpha(alpha)
    _check(pages)
    code, number = STRATEGIES[strategy], len(pages.weights)
    capped = pages.host is not None and pages.host_most is not None and bool(np.isfinite(pages.host_most).any())
    caps = pages.host_most if capped and pages.host_most is not None else np.zeros(0)
    host = pages.host if capped and pages.host is not None else np.zeros(0, np.int64)
    why: list[str] = []

    # Pinned pages are served first, within the caps and the bandwidth.
    pinned = np.zeros(number) if pages.pinned is None else pages.pinned
    room = caps
    if pages.pinned is not None:
        if capped:
            pins = np.bincount(host, pinned, len(caps))
            over = pins > caps * (1.0 + _ROUNDING)
            if over.any():
                pinned = pinned * np.where(over, caps / np.where(over, pins, 1.0), 1.0)[host]
                why.append(f"hosts whose pins exceed their caps: {over.sum()}; those pins are scaled down")
            room = np.where(over, 0.0, np.maximum(caps - pins, 0.0))
        requested = float(pinned.sum())
        if requested > bandwidth * (1.0 + _ROUNDING):
            pinned = pinned * (bandwidth / requested)
            why.append(
                f"pins take {_shown(requested)} a day of a bandwidth of {_shown(bandwidth)}: all are scaled down alike"
            )
    rest = bandwidth - float(pinned.sum())
    if rest <= bandwidth * _ROUNDING:
        rest = 0.0

    columns = _Columns(
        np.empty(number),
        pages.changes_per_day,
        np.zeros(number) if pages.least is None else pages.least.copy(),
        np.full(number, np.inf) if pages.most is None else pages.most.copy(),
        host,
        room,
    )
    _prepare(code, alpha, pages.weights, pinned, columns)
    least, most = columns.least, columns.most
    if capped:
        wanted = np.bincount(host, least, len(caps))
        over = wanted > room * (1.0 + _ROUNDING)
        if over.any():
            least *= np.where(over, room / np.where(over, wanted, 1.0), 1.0)[host]
            np.copyto(most, least, where=over[host])
            why.append(
                f"hosts whose longest intervals need more than their caps: {over.sum()}; those intervals are lengthened"
            )

    # One multiplier for all pages that are not clipped.
    scratch = _Scratch(*(np.zeros(len(caps)) for _ in range(3)))
    needed = float(least.sum())
    low = high = blend = 0.0
    if needed > rest * (1.0 + _ROUNDING):
        least *= rest / needed
        np.copyto(most, least)
        why.append(f"the longest intervals need {_shown(needed)} a day of {_shown(rest)}: all are lengthened alike")
    elif needed < rest * (1.0 - _ROUNDING):
        reach = _totals(code, np.inf, columns, 0, number, 1, scratch)[0]
        if reach < rest * (1.0 - _ROUNDING):
            low, high, blend = np.inf, np.inf, 0.0
            why.append(f"bandwidth left over: {_shown(rest - reach)} a day, because no page may have more")
        else:
            low, high, blend = _search(code, columns, rest, needed, scratch)
    lows, highs, blends = (np.full(max(1, len(caps)), value) for value in (low, high, blend))
    if capped:
        _search_hosts(code, columns, scratch, lows, highs, blends)
    frequencies = np.empty(number)
    _fill(code, columns, pinned, lows, highs, blends, frequencies)
    return Allocation(frequencies, high, not why, "; ".join(why), highs if capped else None)


def solve_within_shares(
    strategy: str, pages: Demand, bandwidth: float, domain: Ints, times: float, alpha: float = 0.95
) -> Allocation:
    """Share a bandwidth as `solve` does, and give no domain more than `times` its share of all weights.

    `domain` is the number of the domain of each page. Pins, and the weights of pinned pages, do not count. A domain may
    always have the least frequencies of its pages. If other pages cannot use the rest, all bounds are doubled, until
    the bandwidth is used.

    The frequencies of a domain at its bound are those at a multiplier of its own. They do not depend on other domains,
    so they are computed first, as the most that its pages may have: one more solution then meets all bounds.
    """
    allocation = solve(strategy, pages, bandwidth, alpha)
    if not 0.0 < allocation.multiplier < np.inf:  # pages get their least or their largest frequencies
        return allocation
    rows = np.arange(len(domain)) if pages.pinned is None else np.flatnonzero(pages.pinned == 0.0)
    of, least = domain[rows], np.zeros(len(domain)) if pages.least is None else pages.least
    number = int(domain.max(initial=-1)) + 1
    weights, needed = (np.bincount(of, column[rows], number) for column in (pages.weights, least))
    total = float(weights.sum())
    shared = float(allocation.frequencies[rows].sum())
    start, near, is_bounded = allocation.multiplier, _NEAR, np.zeros(number, np.bool_)
    weights = np.maximum(weights, float(weights.sum()) / len(rows))  # of an average page
    while True:
        most = np.maximum(weights * (times * shared / total), needed)
        gets = np.bincount(of, allocation.frequencies[rows], number)
        if allocation.multiplier == np.inf:
            times *= 2.0
        elif (gets > most * (1.0 + _SUMS_DIFFER)).any():
            is_bounded |= gets >= near * most
            near = 0.0
        elif is_bounded.any():
            return replace(allocation, at_bound=(is_bounded & (gets >= most * (1.0 - _SUMS_DIFFER)))[domain])
        else:
            return allocation
        bounded = rows[is_bounded[of]]
        tops = np.full(len(domain), np.inf) if pages.most is None else pages.most.copy()
        tops[bounded] = _at_bounds(STRATEGIES[strategy], alpha, pages, bounded, domain, most, start)
        allocation = solve(strategy, replace(pages, most=tops), bandwidth, alpha)


def _at_bounds(code: int, alpha: float, pages: Demand, rows: Ints, domain: Ints, most: Floats, start: float) -> Floats:
    """Return the frequencies of the pages at these rows where each of their domains gets what it may have at most."""
    order = np.argsort(domain[rows], kind="stable")
    sorted_rows = rows[order]
    domains, of, counts = np.unique(domain[sorted_rows], return_inverse=True, return_counts=True)
    own = _Columns(
        np.empty(len(rows)),
        pages.changes_per_day[sorted_rows],
        np.zeros(len(rows)) if pages.least is None else pages.least[sorted_rows],
        np.full(len(rows), np.inf) if pages.most is None else pages.most[sorted_rows],
        np.zeros(0, np.int64),
        np.zeros(0),
    )
    no_pins = np.zeros(len(rows))
    _prepare(code, alpha, pages.weights[sorted_rows], no_pins, own)
    reach = np.bincount(of, own.most, len(domains))
    np.copyto(own.least, own.most, where=(reach <= most[domains])[of])  # no multiplier gives more
    gets = np.minimum(most[domains], reach)
    lows, highs, blends = np.zeros((3, len(domains)))
    scratch = _Scratch(*(np.zeros(0) for _ in range(3)))
    _search_each(code, own, np.arange(len(domains)), np.cumsum(counts), gets, start, scratch, lows, highs, blends)
    found, frequencies = np.empty(len(rows)), np.empty(len(rows))
    _fill(code, own._replace(host=of.astype(np.int64)), no_pins, lows, highs, blends, found)
    frequencies[order] = found
    return frequencies


def _shown(fetches: float) -> str:
    """Return a number of fetches as people write it: 0.25, 48,205, 12,000,000."""
    return f"{fetches:,.0f}" if fetches >= 1000 else f"{fetches:.6g}"


def costs(pages: Demand, frequencies: Floats, alpha: float = 0.95) -> Costs:
    """Return the cost of fetching pages at these frequencies, by every measure."""
    _check_alpha(alpha)
    _check(pages)
    _check_column("frequencies", frequencies, len(pages.weights), 0.0, np.inf)
    staleness_cost = np.empty(len(frequencies))
    total, fresh, weight, harmonic, never = _measure(
        pages.weights, pages.changes_per_day, frequencies, alpha, staleness_cost
    )
    return Costs(staleness_cost, total, fresh / weight if weight > 0.0 else 0.0, harmonic, int(never))


def freshness_range(pages: Demand, errors: Floats, frequencies: Floats) -> tuple[float, float]:
    """Return the freshness at the given frequencies if all pages change faster, and slower, than estimated.

    By a standard error, of the logarithm of their rates: errors of many pages cancel out, unless all have one cause,
    such as a default rate that is wrong for this crawl. That is the case that counts.
    """
    _check(pages)
    number = len(pages.weights)
    _check_column("errors", errors, number, 0.0, _LARGEST)
    _check_column("frequencies", frequencies, number, 0.0, np.inf)
    off = np.exp(np.minimum(errors, _MOST_ERROR))
    rates = pages.changes_per_day
    return _freshness(pages.weights, rates * off, frequencies), _freshness(pages.weights, rates / off, frequencies)


def _freshness(weights: Floats, rates: Floats, frequencies: Floats) -> float:
    weight = float(weights.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = rates / frequencies
        fresh = np.where(changes > 0.0, -np.expm1(-changes) / changes, 1.0)
    return float((weights * fresh).sum()) / weight if weight > 0.0 else 0.0


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha <= 100.0:
        raise ValueError(f"alpha must be above 0 and at most 100, not {alpha}")


def _check(pages: Demand) -> None:
    number = len(pages.weights)
    _check_column("weights", pages.weights, number, 0.0, _LARGEST)
    _check_column("changes_per_day", pages.changes_per_day, number, 1.0 / _LARGEST, _LARGEST)
    if pages.pinned is not None:
        _check_column("pinned", pages.pinned, number, 0.0, _LARGEST)
    if pages.least is not None:
        _check_column("least", pages.least, number, 0.0, _LARGEST)
    if pages.most is not None:
        _check_column("most", pages.most, number, 0.0, np.inf)
        if pages.least is not None and bool((pages.least > pages.most).any()):
            raise ValueError("least must not be above most")
    if (pages.host is None) != (pages.host_most is None):
        raise ValueError("host and host_most must be given together")
    if pages.host is not None and pages.host_most is not None:
        _check_column("host_most", pages.host_most, len(pages.host_most), 0.0, np.inf)
        if pages.host.shape != (number,) or pages.host.dtype != np.int64:
            raise ValueError(f"host must be a column of {number} int64")
        if number and not 0 <= pages.host.min() <= pages.host.max() < len(pages.host_most):
            raise ValueError(f"host must be numbers below {len(pages.host_most)}, the length of host_most")


def _check_column(name: str, column: Floats, number: int, least: float, most: float) -> None:
    if column.shape != (number,) or column.dtype != np.float64:
        raise ValueError(f"{name} must be a column of {number} float64")
    if number and not (column.min() >= least and column.max() <= most):  # false for NaN
        raise ValueError(f"{name} must be from {least:g} to {most:g}")


def _search(code: int, columns: _Columns, rest: float, needed: float, scratch: _Scratch) -> tuple[float, float, float]:
    """Find the multiplier at which all pages get the rest; a sample of the pages gives a first guess."""
    number = len(columns.sizes)
    start, stride = 1.0, 1 + number // _SAMPLE
    if stride > 1:
        sample = columns._replace(room=columns.room / stride)
        low, high, _ = _root(code, sample, 0, number, stride, rest / stride, 0.0, start, scratch)
        if 0.0 < low <= high < np.inf:
            if low < high:  # neighbours: they may be right for all pages too
                at_low = _totals(code, low, columns, 0, number, 1, scratch)[0]
                at_high = _totals(code, high, columns, 0, number, 1, scratch)[0]
                if at_low <= rest < at_high:
                    return low, high, (rest - at_low) / (at_high - at_low)
            start = high
    found: tuple[float, float, float] = _root(code, columns, 0, number, 1, rest, needed, start, scratch)
    return found


def _search_hosts(code: int, columns: _Columns, scratch: _Scratch, lows: Floats, highs: Floats, blends: Floats) -> None:
    """Give each host that would exceed its cap a multiplier of its own."""
    number, room = len(columns.sizes), columns.room
    low, high, blend = float(lows[0]), float(highs[0]), float(blends[0])
    _totals(code, low, columns, 0, number, 1, scratch)
    at_low = np.minimum(scratch.sums, room)
    if low < high:
        _totals(code, high, columns, 0, number, 1, scratch)
    over = scratch.sums > room
    if not over.any():
        return
    gets = at_low + blend * (np.minimum(scratch.sums, room) - at_low)
    rows = np.flatnonzero(over[columns.host])
    rows = rows[np.argsort(columns.host[rows], kind="stable")]
    hosts = np.flatnonzero(over)
    ends = np.searchsorted(columns.host[rows], hosts, side="right")
    sizes, rates, least, most = (column[rows] for column in columns[:4])
    own = _Columns(sizes, rates, least, most, np.zeros(0, np.int64), np.zeros(0))
    _search_each(code, own, hosts, ends, gets, high, scratch, lows, highs, blends)


# -- kernels ---------------------------------------------------------------------------------------------------------


@lean_kernel
def _prepare(strategy: Int, alpha: float, weights: Floats, pinned: Floats, columns: _Columns) -> None:
    """Fill in the sizes; fix frequencies that no multiplier changes: pinned pages at 0, pages of weight 0 at least."""
    for i in range(weights.shape[0]):
        size = _size(strategy, weights[i], columns.rates[i], alpha)
        columns.sizes[i] = size
        if pinned[i] > 0.0:
            columns.least[i] = 0.0
            columns.most[i] = 0.0
        elif size == 0.0:
            columns.most[i] = columns.least[i]


@inlined_kernel
def _clipped(columns: _Columns, row: Int, frequency: float) -> float:
    return min(max(frequency, columns.least[row]), columns.most[row])


@lean_kernel
def _totals(
    strategy: Int, multiplier: float, columns: _Columns, first: Int, last: Int, stride: Int, scratch: _Scratch
) -> tuple[float, float, float]:
    """Return sums of frequencies at a multiplier: all, unclipped ones, and unclipped ones times their elasticity."""
    total, free, slope = 0.0, 0.0, 0.0
    by_host = columns.host.shape[0] > 0
    if by_host:
        scratch.sums[:] = 0.0
        scratch.free[:] = 0.0
        scratch.slopes[:] = 0.0
    for begin in range(first, last, stride * _BLOCK):  # partial sums, so that rounding errors do not add up
        block, free_block, slope_block = 0.0, 0.0, 0.0
        for row in range(begin, min(begin + stride * _BLOCK, last), stride):
            least, most = columns.least[row], columns.most[row]
            frequency, moves = least, 0.0
            if least < most:
                wanted, elasticity = _response(strategy, multiplier, columns.sizes[row], columns.rates[row])
                if wanted >= most:
                    frequency = most
                elif wanted > least:
                    frequency = wanted
                    moves = wanted * elasticity
            if by_host:
                host = columns.host[row]
                scratch.sums[host] += frequency
                if moves > 0.0:
                    scratch.free[host] += frequency
                    scratch.slopes[host] += moves
            else:
                block += frequency
                if moves > 0.0:
                    free_block += frequency
                    slope_block += moves
        total += block
        free += free_block
        slope += slope_block
    for host in range(scratch.sums.shape[0] if by_host else 0):
        if scratch.sums[host] < columns.room[host]:
            total += scratch.sums[host]
            free += scratch.free[host]
            slope += scratch.slopes[host]
        else:
            total += columns.room[host]
    return total, free, slope


@lean_kernel
def _root(
    strategy: Int,
    columns: _Columns,
    first: Int,
    last: Int,
    stride: Int,
    rest: float,
    needed: float,
    start: float,
    scratch: _Scratch,
) -> tuple[float, float, float]:
    """Return two neighbouring multipliers between which these pages get the rest, and the blend between the two.

    Newton's method on logarithms: exact in one step where frequencies are proportional to sizes. A step outside the
    bracket is replaced by bisection, and so is every fourth step, because Newton's method may creep.
    """
    low, high = 0.0, np.inf
    at_low, at_high = needed, np.inf
    multiplier, leap = start, 16.0
    for step in range(500):
        total, free, slope = _totals(strategy, multiplier, columns, first, last, stride, scratch)
        if abs(total - rest) <= _ROUNDING * rest:
            return multiplier, multiplier, 0.0
        if total < rest:
            low, at_low = multiplier, total
        else:
            high, at_high = multiplier, total
        proposed = np.nan
        if slope > 0.0 and rest > total - free:
            proposed = multiplier * np.exp(np.log((rest - total + free) / free) * free / slope)
        if low == 0.0 or high == np.inf:
            if not low < proposed < high:
                proposed = multiplier * leap if high == np.inf else multiplier / leap
                leap = min(leap * leap, 1e30)
        elif step % 4 == 3 or not low < proposed < high:
            proposed = 0.5 * (low + high) if high < 2.0 * low else np.sqrt(low) * np.sqrt(high)
        if not low < proposed < high:
            break
        multiplier = proposed
    if not at_high < np.inf:
        return low, low, 0.0
    return low, high, max((rest - at_low) / (at_high - at_low), 0.0)


@lean_kernel
def _search_each(
    strategy: Int,
    columns: _Columns,
    hosts: Ints,
    ends: Ints,
    gets: Floats,
    start: float,
    scratch: _Scratch,
    lows: Floats,
    highs: Floats,
    blends: Floats,
) -> None:
    """Find for each host, whose pages are adjacent, the multiplier at which it gets its room."""
    first = 0
    for i in range(hosts.shape[0]):
        host, last = hosts[i], ends[i]
        needed = 0.0
        for row in range(first, last):
            needed += columns.least[row]
        if needed >= gets[host] * (1.0 - _ROUNDING):
            lows[host] = highs[host] = blends[host] = 0.0
        else:
            begin = start if start < np.inf else 1.0
            lows[host], highs[host], blends[host] = _root(
                strategy, columns, first, last, 1, gets[host], needed, begin, scratch
            )
        first = last


@lean_kernel
def _fill(
    strategy: Int,
    columns: _Columns,
    pinned: Floats,
    lows: Floats,
    highs: Floats,
    blends: Floats,
    frequencies: Floats,
) -> None:
    by_host = columns.host.shape[0] > 0
    for i in range(frequencies.shape[0]):
        if pinned[i] > 0.0:
            frequencies[i] = pinned[i]
            continue
        if columns.least[i] == columns.most[i]:
            frequencies[i] = columns.least[i]
            continue
        group = columns.host[i] if by_host else 0
        size, rate = columns.sizes[i], columns.rates[i]
        frequency, _ = _response(strategy, lows[group], size, rate)
        frequency = _clipped(columns, i, frequency)
        if blends[group] > 0.0:
            upper, _ = _response(strategy, highs[group], size, rate)
            frequency += blends[group] * (_clipped(columns, i, upper) - frequency)
        frequencies[i] = frequency


@lean_kernel
def _measure(
    weights: Floats, rates: Floats, frequencies: Floats, alpha: float, staleness_cost: Floats
) -> tuple[float, float, float, float, Int]:
    """Fill in the cost of each page; return sums: of costs, fresh weight, weight, harmonic staleness, pages at 0."""
    total, fresh, weight, harmonic, never = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(weights.shape[0]):
        staleness_cost[i] = 0.0
        weight += weights[i]
        if frequencies[i] == 0.0:
            never += 1
        if weights[i] == 0.0:
            continue
        changes = rates[i] / frequencies[i]  # between two fetches
        staleness_cost[i] = weights[i] * changes**alpha / (alpha + 1.0)
        total += staleness_cost[i]
        harmonic += weights[i] * np.log1p(changes)
        if changes < np.inf:
            fresh += weights[i] * (-np.expm1(-changes) / changes if changes > 0.0 else 1.0)
    return total, fresh, weight, harmonic, never
