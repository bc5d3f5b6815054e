"""Policies that share a bandwidth among pages: how often each is fetched, in fetches per day.

With w the weight of a page, λ its changes per day, f its fetches per day and B the bandwidth:

- `thesis`: f = B/S (w λ^alpha)^(1 / (alpha + 1)), S the sum of these shares (eq. 3.7 and 3.8). Makes
  Σ w (λ/f)^alpha / (alpha + 1) least: how far copies lag behind.
- `freshness`: w/λ (1 - (1 + λ/f) exp(-λ/f)) is the same for all (Cho and Garcia-Molina). Makes
  Σ w f/λ (1 - exp(-λ/f)) most: the copies that are up to date. It gives up pages that change too fast: f = 0.
- `harmonic`: w λ / (f (f + λ)) is the same for all (Kolobov et al. 2019, for pages whose changes are seen at fetches
  only). Makes Σ w ln((f + λ) / f) least: much like `freshness`, but no page is given up.
- `importance`: f is proportional to w, as in Xyleme's crawl.
- `greedy`: f is proportional to w as well. Orders then go to the pages with the most waiting cash; as cash comes in by
  importance, this is what that comes to in frequencies.
- `uniform`: f is the same for all.

Each is f = F(multiplier), and F grows with the multiplier: B/S of the thesis, and under `freshness` and `harmonic` one
over what a further fetch a day gains. Pins come off the top. All other pages have one multiplier, and are cut off at
their least and most frequencies; a host that would get more than its cap shares the cap, with a multiplier of its own.
That meets the conditions of Karush, Kuhn and Tucker, so it is the optimum within all bounds. And as every F grows,
cut off or not, so does the sum: one number is to be found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.schemas.kernel import inlined_kernel, lean_kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# What kernels compute with, for which Python has no types.
Float = Any
Int = Any

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

SHARE_UNITS = 1 << 24
"""Units of a quantised share."""

_LIGHTEST = 1e-30  # a weight below it counts as 0
_LARGEST = 1e30  # of weights, rates and the bandwidth: no product of them overflows
_ROUNDING = 1e-12  # relative: sums that differ by less are the same
_SAMPLE = 1 << 15  # pages from which the search for a multiplier starts
_BLOCK = 1 << 10  # pages summed up on their own


@dataclass(frozen=True, eq=False)
class Demand:
    """The pages that share a bandwidth, as columns.

    A pinned page gets its pin, whatever its bounds. A page of weight 0 gets its least frequency under every strategy.
    """

    weights: Floats
    """Importance times factors, in any unit."""
    changes_per_day: Floats
    pinned: Floats | None = None
    """Fetches per day; 0 = free. None: no page is pinned."""
    least: Floats | None = None
    """The least frequency, from the longest interval. None: 0 for all."""
    most: Floats | None = None
    """The most, from the shortest interval; may be inf. None: inf for all."""
    host: Ints | None = None
    """The number of the host of each page. None: hosts have no caps."""
    host_most: Floats | None = None
    """By host: its fetches per day, pins included; inf = no cap."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """The frequencies that a strategy gives.

    `multiplier` says what a page that changes gets until the next plan: `frequency_at` of it, between its bounds; of
    a page of host h, with `host_multipliers[h]`, which is less where the host's cap is what binds (None if no host
    has a cap). It is 0 if not even the least frequencies fit, and inf if every page has its most.

    `feasible` says that the frequencies are within all bounds and their sum is the bandwidth; else `why` says in one
    line what was given up. The sum never exceeds the bandwidth, nor a host its cap.

    Under `freshness`, the multipliers of all frequencies below λ/37 are the same to the last bit: what a page gets
    there is between `frequency_at` of the multiplier and of the float below.
    """

    frequencies: Floats
    multiplier: float
    feasible: bool
    why: str
    host_multipliers: Floats | None = None


@dataclass(frozen=True, eq=False)
class Costs:
    """What frequencies cost, by the measures of all strategies."""

    staleness_cost: Floats
    """Of each page: w (λ/f)^alpha / (alpha + 1), the mean over time of the thesis' cost; inf if it is never fetched."""
    obsolescence: float
    """Their sum, which the strategy `thesis` makes least."""
    freshness: float
    """The share of copies that are up to date, weighted: `freshness` makes it most. 0 if there is no weight."""
    harmonic_staleness: float
    """Σ w ln((f + λ)/f), which `harmonic` makes least."""
    never_refreshed: int
    """How many pages have frequency 0."""


class _Columns(NamedTuple):
    """The pages as kernels see them. What is fixed has least == most; pinned pages have 0 for both."""

    sizes: Floats
    rates: Floats
    least: Floats
    most: Floats
    host: Ints  # of no length: hosts have no caps
    room: Floats  # by host: its cap without its pins


class _Scratch(NamedTuple):
    """Sums by host: of frequencies, of those between their bounds, and of these times their elasticity."""

    sums: Floats
    free: Floats
    slopes: Floats


# -- for the ledger --------------------------------------------------------------------------------------------------


@inlined_kernel
def share(weight: Float, rate: Float, alpha: Float) -> Float:
    """The thesis' (w λ^alpha)^(1 / (alpha + 1)): what a page adds to S."""
    return (weight * rate**alpha) ** (1.0 / (alpha + 1.0))


@inlined_kernel
def quantised_share(share: Float) -> Int:
    """A share in whole units, so that shards can add them up exactly in any order."""
    return np.int64(share * SHARE_UNITS + 0.5)


@inlined_kernel
def frequency_at(strategy: Int, multiplier: Float, weight: Float, rate: Float, alpha: Float) -> Float:
    """Return the frequency a strategy (a code of `STRATEGIES`) gives a page at a multiplier, bounds not applied yet."""
    frequency, _ = _response(strategy, multiplier, _size(strategy, weight, rate, alpha), rate)
    return frequency


@inlined_kernel
def _size(strategy: Int, weight: Float, rate: Float, alpha: Float) -> Float:
    """What the strategy goes by beside the rate; 0 for a page that gets its least."""
    if weight < _LIGHTEST:
        return 0.0
    if strategy == THESIS:
        return share(weight, rate, alpha)
    if strategy == UNIFORM:
        return 1.0
    return weight


@inlined_kernel
def _response(strategy: Int, multiplier: Float, size: Float, rate: Float) -> tuple[Float, Float]:
    """The frequency at a multiplier and its elasticity: by how many percent it grows if the multiplier does by one."""
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
def _freshest(multiplier: Float, weight: Float, rate: Float) -> tuple[Float, Float]:
    """The f with w/λ (1 - (1 + u) exp(-u)) = 1/multiplier, where u = λ/f; 0 if no f gains that much.

    In other words u - ln(1+u) = -ln(1-gain), with gain = λ / (w multiplier).
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
def _halley(u: Float, target: Float) -> Float:
    """A step of Halley's method towards u - ln(1+u) = target."""
    off = u - np.log1p(u) - target
    return u - 2.0 * off * u * (1.0 + u) / (2.0 * u * u - off)


# -- plans -----------------------------------------------------------------------------------------------------------


def solve(strategy: str, pages: Demand, bandwidth: float, alpha: float = 0.95) -> Allocation:
    """The frequencies that a strategy of this name gives these pages; they sum to the bandwidth if that is feasible.

    `alpha` matters to `thesis` alone. Refuses arguments that make no sense with a ValueError of one line.
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

    # Pins come off the top, and nobody gets more than there is.
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
        asked = float(pinned.sum())
        if asked > bandwidth * (1.0 + _ROUNDING):
            pinned = pinned * (bandwidth / asked)
            why.append(f"pins take {asked:.6g} a day of a bandwidth of {bandwidth:.6g}: they are scaled down alike")
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
            why.append(f"hosts whose longest intervals need more than their caps: {over.sum()}; those are stretched")

    # One multiplier for all that are not cut off.
    scratch = _Scratch(*(np.zeros(len(caps)) for _ in range(3)))
    needed = float(least.sum())
    low = high = blend = 0.0
    if needed > rest * (1.0 + _ROUNDING):
        least *= rest / needed
        np.copyto(most, least)
        why.append(f"the longest intervals need {needed:.6g} a day of {rest:.6g}: all are stretched alike")
    elif needed < rest * (1.0 - _ROUNDING):
        reach = _totals(code, np.inf, columns, 0, number, 1, scratch)[0]
        if reach < rest * (1.0 - _ROUNDING):
            low, high, blend = np.inf, np.inf, 0.0
            why.append(f"bandwidth left over: {rest - reach:.6g} a day, as no page may have more")
        else:
            low, high, blend = _search(code, columns, rest, needed, scratch)
    lows, highs, blends = (np.full(max(1, len(caps)), value) for value in (low, high, blend))
    if capped:
        _search_hosts(code, columns, scratch, lows, highs, blends)
    frequencies = np.empty(number)
    _fill(code, columns, pinned, lows, highs, blends, frequencies)
    return Allocation(frequencies, high, not why, "; ".join(why), highs if capped else None)


def costs(pages: Demand, frequencies: Floats, alpha: float = 0.95) -> Costs:
    """What it costs to fetch these pages so often, by every measure."""
    _check_alpha(alpha)
    _check(pages)
    _check_column("frequencies", frequencies, len(pages.weights), 0.0, np.inf)
    staleness_cost = np.empty(len(frequencies))
    total, fresh, weight, harmonic, never = _measure(
        pages.weights, pages.changes_per_day, frequencies, alpha, staleness_cost
    )
    return Costs(staleness_cost, total, fresh / weight if weight > 0.0 else 0.0, harmonic, never)


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
    """The multiplier at which all pages get the rest: of a sample of the pages first, which brings it close."""
    number = len(columns.sizes)
    start, stride = 1.0, 1 + number // _SAMPLE
    if stride > 1:
        sample = columns._replace(room=columns.room / stride)
        low, high, _ = _root(code, sample, 0, number, stride, rest / stride, 0.0, start, scratch)
        if 0.0 < low <= high < np.inf:
            if low < high:  # neighbours: for all pages it may be the same two
                at_low = _totals(code, low, columns, 0, number, 1, scratch)[0]
                at_high = _totals(code, high, columns, 0, number, 1, scratch)[0]
                if at_low <= rest < at_high:
                    return low, high, (rest - at_low) / (at_high - at_low)
            start = high
    found: tuple[float, float, float] = _root(code, columns, 0, number, 1, rest, needed, start, scratch)
    return found


def _search_hosts(code: int, columns: _Columns, scratch: _Scratch, lows: Floats, highs: Floats, blends: Floats) -> None:
    """Give each host that would get more than it may a multiplier of its own."""
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
def _prepare(strategy: Int, alpha: Float, weights: Floats, pinned: Floats, columns: _Columns) -> None:
    """Fill in the sizes, and fix what no multiplier moves: pinned pages at 0, as they get theirs, weight 0 at least."""
    for i in range(weights.shape[0]):
        size = _size(strategy, weights[i], columns.rates[i], alpha)
        columns.sizes[i] = size
        if pinned[i] > 0.0:
            columns.least[i] = 0.0
            columns.most[i] = 0.0
        elif size == 0.0:
            columns.most[i] = columns.least[i]


@inlined_kernel
def _cut_off(columns: _Columns, row: Int, frequency: Float) -> Float:
    return min(max(frequency, columns.least[row]), columns.most[row])


@lean_kernel
def _totals(
    strategy: Int, multiplier: Float, columns: _Columns, first: Int, last: Int, stride: Int, scratch: _Scratch
) -> tuple[Float, Float, Float]:
    """What these pages get at a multiplier; the part that moves with it, and that part times its elasticity."""
    total, free, slope = 0.0, 0.0, 0.0
    by_host = columns.host.shape[0] > 0
    if by_host:
        scratch.sums[:] = 0.0
        scratch.free[:] = 0.0
        scratch.slopes[:] = 0.0
    for begin in range(first, last, stride * _BLOCK):  # sums of sums, so that rounding does not add up
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
    rest: Float,
    needed: Float,
    start: Float,
    scratch: _Scratch,
) -> tuple[Float, Float, Float]:
    """The multiplier at which these pages get the rest, between two that are next to one another, and how far between.

    Newton's method for the logarithms: exact at once where frequencies are proportional to sizes. What it proposes
    outside the bracket is replaced by the middle, and so is every fourth step, as it may creep.
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
    start: Float,
    scratch: _Scratch,
    lows: Floats,
    highs: Floats,
    blends: Floats,
) -> None:
    """For each of these hosts, whose pages lie together, the multiplier at which it gets what it gets."""
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
        frequency = _cut_off(columns, i, frequency)
        if blends[group] > 0.0:
            upper, _ = _response(strategy, highs[group], size, rate)
            frequency += blends[group] * (_cut_off(columns, i, upper) - frequency)
        frequencies[i] = frequency


@lean_kernel
def _measure(
    weights: Floats, rates: Floats, frequencies: Floats, alpha: Float, staleness_cost: Floats
) -> tuple[Float, Float, Float, Float, Int]:
    """Fill in the cost of each page; the sums of costs, fresh weight, weight and harmonic staleness; how many never."""
    total, fresh, weight, harmonic, never = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(weights.shape[0]):
        staleness_cost[i] = 0.0
        weight += weights[i]
        if frequencies[i] == 0.0:
            never += 1
        if weights[i] == 0.0:
            continue
        changes = rates[i] / frequencies[i]  # from one fetch to the next
        staleness_cost[i] = weights[i] * changes**alpha / (alpha + 1.0)
        total += staleness_cost[i]
        harmonic += weights[i] * np.log1p(changes)
        if changes < np.inf:
            fresh += weights[i] * (-np.expm1(-changes) / changes if changes > 0.0 else 1.0)
    return total, fresh, weight, harmonic, never
