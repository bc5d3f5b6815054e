"""Change rates of pages, estimated with a prior that is learnt from all pages of the crawl.

A page that changed at each of its visits may change twice as often as it is visited, or a thousand times; a page with
one interval may do nearly anything. What decides then is how often pages like it change. So every page gets a
*posterior*: 32 classes of rates, from once in 20 years to once a minute, each weighted by how many pages have such a
rate (the prior) and by how well it explains the observations of the page (the likelihood). The rate is the mean of the
posterior on a logarithmic scale, and the error its standard deviation there.

**The prior** of a crawl begins as a log-normal distribution, centred at the default rate, with two thirds of all pages
between once a day and once in half a year. It is then replaced by the mean of the posteriors of pages with intervals, a
few times over (the EM algorithm for empirical Bayes), in which the first one counts as `_FIRST_WEIGHT` pages. For this,
dates count only where they are needed and confirmed: where every interval had a change. A server may give all pages one
old date. The prior of a category begins as that of the crawl, and the prior of a site as that of its category, in the
same way. So a site of which little was seen has the prior of its category, and a page of which little was seen that of
its site.

**The observations of a page**, apart from its dates (rates.py): for each of the last eight intervals whether it
changed; how many intervals before these had a change each, without a break (the *run*), and their mean length; and how
many of its changes brought back one of the contents before (*returns*). If contents return, an unchanged content may
hide changes. Let s be the share of changes that are returns (of the page; of the crawl for pages with few changes), and
m the number of known contents besides the present one. A second change brings the first back with probability s / m.
That content stays known after one more change with probability t = 1 - (1 - s) / m, because each new content displaces
one of m. So after k >= 2 changes the content is the same with probability s / m t^(k - 2), and after x changes in the
mean with probability exp(-x) + s / (m t^2) (exp(-x (1 - t)) - exp(-x) (1 + t x)). Without returns that is exp(-x).

docs/results/change-rates.md has the measurements.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from opicflow.pipelines.refresh.rates import (
    CONTENTS_KEPT,
    DEFAULT,
    DEFAULT_CHANGES_PER_DAY,
    ESTIMATORS,
    EXISTENCE,
    INTERVALS,
    LAST_MODIFIED,
    LEAST_RATE,
    LEAST_SECONDS,
    MOST_CODE,
    MOST_ERROR,
    MOST_SECONDS,
    THESIS,
    ChangeRates,
    contents_of,
    keeps_any,
)
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Int, Ints, Word
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

PRIORS: Final = ("learnt", "fixed")
"""The source of the rates of pages with little data: the crawl, or a smoothing that is the same for all pages."""

CLASSES = 32
_CODE_STEP = math.log(MOST_SECONDS / LEAST_SECONDS) / (MOST_CODE - 1)
_CLASS_SHIFT = 2
_CODES_A_CLASS = 1 << _CLASS_SHIFT
CLASS_STEP = _CODES_A_CLASS * _CODE_STEP
"""The logarithm of the ratio of two neighbouring rates."""
RATES: Floats = LEAST_RATE * np.exp(CLASS_STEP * np.arange(CLASSES))
"""The rates of the classes."""
SPREAD = math.log(182.5) / 2
"""The standard deviation of the logarithm of rates in the first prior: from once a day to once in half a year."""

_FIRST_WEIGHT, _GROUP_WEIGHT = 16.0, 16.0  # pages as which the prior counts that a group's begins with
_RETURN_WEIGHT = 4.0  # changes as which the crawl's share of returns counts in that of a page
_PASSES, _GROUP_PASSES = 16, 1
_MOST_PAGES = 1 << 14  # from which the prior of a crawl or category is learnt
_MOST_PAGES_OF_SITE = 32

# How many changes an interval of code c has in the mean at the rate of class k depends on c - 1 + 4 k alone. Tables of
# its functions have four rows, by the rest of c - 1, so that the values for all classes are adjacent.
_SHARES = 8
"""Steps of the share of changes that are returns."""
_CHANGES: Floats = np.exp(
    _CODE_STEP
    * (
        _CODES_A_CLASS * np.arange(CLASSES + MOST_CODE // _CODES_A_CLASS)[None, :]
        + np.arange(_CODES_A_CLASS)[:, None]
        - (MOST_CODE - 1)
    )
)


def _unchanged() -> Floats:
    """Return how probable an interval without a change is: without returns, then by `return_level`."""
    x, none = _CHANGES, np.exp(-_CHANGES)
    tables = [none]
    for share in np.arange(1, _SHARES + 1) / _SHARES:
        for others in range(1, CONTENTS_KEPT):
            stays = 1 - (1 - share) / others
            back = np.exp(-x * (1 - stays)) - none * (1 + stays * x)
            tables.append(none + share / others / stays**2 * np.maximum(back, 0.0))
    return np.array(tables)


_UNCHANGED: Floats = _unchanged()
_CHANGED: Floats = -np.expm1(-_CHANGES)[None]
_DATED: Floats = (_CHANGES * np.exp(-_CHANGES))[None]
_QUIET: Floats = np.exp(-_CHANGES)[None]

_NOTHING = np.uint64(0)
_BYTE = np.uint64(8)
_LENGTH = np.uint64(0x7F)
_LENGTHS = np.uint64(0x7F7F7F7F7F7F7F7F)
_CHANGES_SEEN = np.uint64(0x8080808080808080)
_CHANGED_BIT = np.uint64(0x80)


SEEN = np.dtype(
    [
        ("intervals", np.uint64),
        ("dated", np.uint64),
        ("earlier", np.uint32),
        ("run_length", np.uint16),
        ("run", np.uint8),
        ("returned", np.uint8),
    ]
)
"""The observations of a page, as fields of the ledger's rows (rates.py): a row may have other fields as well."""


def first_prior(rate: float = DEFAULT_CHANGES_PER_DAY) -> Floats:
    """Return the prior of a crawl of which nothing was seen: how probable each class is."""
    low, high = math.log(RATES[0]), math.log(RATES[-1])
    logs = np.log(RATES)
    for _ in range(60):  # the middle at which the mean is right, although the classes end
        middle = (low + high) / 2
        prior = np.exp(-0.5 * np.square((logs - middle) / SPREAD))
        prior /= prior.sum()
        low, high = (middle, high) if float(prior @ logs) < math.log(rate) else (low, middle)
    return prior


def learnt_rates(
    seen: Array,
    use_dates: Bools,
    estimator: str = "likelihood",
    categories: Bytes | None = None,
    sites: Array | None = None,
    row_of: Array | None = None,
) -> ChangeRates:
    """Return the change rates of pages, with priors learnt from all pages, by category and site where they are given.

    `seen` are rows with the fields of `SEEN`, `row_of` which of them each page has (None: every row is that of one
    page), and `use_dates` is true for pages whose dates are used. Estimators:
    `"likelihood"` uses dates, `"existence"` none. Pages without data get the mean of their prior, its spread as the
    error, and the source DEFAULT. As long as a page has only a date, and no interval between visits, a lower rate than
    that is not used.

    Raises ValueError, with a message of one line, for other estimators.
    """
    if estimator not in ESTIMATORS or ESTIMATORS[estimator] == THESIS:
        raise ValueError(f"the estimator {estimator!r} uses no prior: choose likelihood or existence")
    seen = np.ascontiguousarray(seen)
    row_of = np.arange(len(seen), dtype=np.int32) if row_of is None else np.ascontiguousarray(row_of, np.int32)
    pages = len(row_of)
    use_dates = np.zeros(pages, np.bool_) if ESTIMATORS[estimator] == EXISTENCE else np.ascontiguousarray(use_dates)
    intervals = seen["intervals"]
    is_there = (intervals & _LENGTHS) != 0
    without_change = ((intervals & _LENGTHS) + _LENGTHS) & _CHANGES_SEEN & ~intervals
    has_intervals = is_there[row_of]  # there may be far more pages than rows
    confirmed = (is_there & (without_change == 0))[row_of] & use_dates
    del intervals, without_change
    share = float(share_of_returns(seen, row_of))
    of_crawl = learnt_prior(
        seen, row_of, confirmed, np.flatnonzero(has_intervals), first_prior(), _FIRST_WEIGHT, _PASSES, share
    )
    found = ChangeRates(np.empty(pages), np.empty(pages), np.empty(pages, np.uint8))
    keys = [~has_intervals, *(groups for groups in (sites, categories) if groups is not None)]
    rows = np.lexsort(keys)
    site = np.zeros(0, np.int32) if sites is None else sites.astype(np.int32)
    for of_group in [rows] if categories is None else _split(rows, categories):
        prior = of_crawl
        if len(of_group) < pages:
            learn_from = of_group[has_intervals[of_group]]
            prior = learnt_prior(seen, row_of, confirmed, learn_from, of_crawl, _GROUP_WEIGHT, _GROUP_PASSES, share)
        of_pages = (seen, row_of, use_dates, confirmed, of_group, site)
        _estimate(*of_pages, share, prior, np.empty(CLASSES), *_rooms(), *found)
    return found


def learnt_prior(
    seen: Array,
    row_of: Ints,
    use_dates: Bools,
    rows: Ints,
    first: Floats,
    weight: float,
    passes: int,
    share: float = 0.0,
) -> Floats:
    """Return the prior learnt from these rows: after each pass the mean of the first and of all their posteriors.

    The first prior counts as `weight` pages; `share` is the share of returns in the crawl. Of many pages, some that are
    evenly spaced are used.
    """
    prior = first.copy()
    _learn(seen, row_of, use_dates, rows, 0, len(rows), _MOST_PAGES, share, weight, passes, *_rooms(), prior)
    return prior


def _split(rows: Ints, groups: Array) -> list[Ints]:
    """Return the rows of each group, of rows that are sorted by group."""
    return np.split(rows, np.flatnonzero(np.diff(groups[rows])) + 1) if len(rows) else []


def _rooms() -> tuple[Floats, Floats, Floats]:
    """Return room for a posterior, a sum of posteriors, and a first prior."""
    return np.empty(CLASSES), np.empty(CLASSES), np.empty(CLASSES)


@lean_kernel
def _learn(
    seen: Array,
    row_of: Array,
    use_dates: Array,
    rows: Array,
    begin: Int,
    end: Int,
    most: Int,
    share: float,
    weight: float,
    passes: Int,
    posterior: Array,
    total: Array,
    first: Array,
    prior: Array,
) -> None:
    """Replace a prior by the one learnt from these rows, or from `most` rows that are evenly spaced."""
    stride = max((end - begin + most - 1) // most, 1)
    _copy(prior, first)
    for _ in range(passes):
        for k in range(CLASSES):
            total[k] = weight * first[k]
        pages = weight
        for place in range(begin, end, stride):
            if _weigh(seen[row_of[rows[place]]], use_dates[rows[place]], share, prior, posterior) != DEFAULT:
                pages += 1.0
                whole = 0.0
                for k in range(CLASSES):
                    whole += posterior[k]
                part = 1.0 / whole
                for k in range(CLASSES):
                    total[k] += part * posterior[k]
        for k in range(CLASSES):
            prior[k] = total[k] / pages


@lean_kernel
def _estimate(
    seen: Array,
    row_of: Array,
    use_dates: Array,
    confirmed: Array,
    rows: Array,
    site: Array,
    share: float,
    of_category: Array,
    prior: Array,
    posterior: Array,
    total: Array,
    first: Array,
    rates: Array,
    errors: Array,
    known_from: Array,
) -> None:
    """Learn the prior of each site, and fill the columns of `ChangeRates` for these rows of one category.

    The rows of a site are adjacent, those with intervals first. Without sites, the prior is that of the category.
    """
    by_site, begin = site.shape[0] > 0, 0
    while begin < rows.shape[0]:
        end, known = begin, begin
        while end < rows.shape[0] and (not by_site or site[rows[end]] == site[rows[begin]]):
            if by_site and keeps_any(seen[row_of[rows[end]]].intervals):
                known = end + 1
            end += 1
        _copy(of_category, prior)
        if known > begin:
            _learn(
                seen,
                row_of,
                confirmed,
                rows,
                begin,
                known,
                _MOST_PAGES_OF_SITE,
                share,
                _GROUP_WEIGHT,
                _GROUP_PASSES,
                posterior,
                total,
                first,
                prior,
            )
        unseen_rate, unseen_error = _mean_of(prior)
        for place in range(begin, end):
            i = rows[place]
            rate, error = unseen_rate, unseen_error
            source = _weigh(seen[row_of[i]], use_dates[i], share, prior, posterior)
            if source != DEFAULT:
                rate, error = _mean_of(posterior)
                if rate < unseen_rate and not keeps_any(seen[row_of[i]].intervals):
                    rate, error, source = unseen_rate, unseen_error, DEFAULT  # one old date proves no low rate
            rates[i], errors[i], known_from[i] = rate, error, source
        begin = end


@inlined_kernel
def _copy(weights: Array, to: Array) -> None:
    for k in range(CLASSES):
        to[k] = weights[k]


@inlined_kernel
def _mean_of(weights: Array) -> tuple[float, float]:
    """Return the mean rate of weighted classes, on the logarithmic scale, and the standard deviation there."""
    whole, mean, square = 0.0, 0.0, 0.0
    for k in range(CLASSES):
        whole += weights[k]
        mean += weights[k] * k
        square += weights[k] * (k * k)
    mean /= whole
    spread = math.sqrt(max(square / whole - mean * mean, 0.0))
    return LEAST_RATE * math.exp(CLASS_STEP * mean), min(CLASS_STEP * spread, MOST_ERROR)


@inlined_kernel
def _source_of(row: Any, uses_dates: bool) -> Int:
    """Return the source of a page's rate; DEFAULT: it has no observations."""
    if uses_dates and keeps_any(row.dated):
        return LAST_MODIFIED
    return INTERVALS if keeps_any(row.intervals) else DEFAULT


@inlined_kernel
def _weigh(row: Any, uses_dates: bool, share: float, prior: Array, posterior: Array) -> Int:
    """Fill in the posterior of a page of which anything was seen, in any unit, and return the source of its rate."""
    source = _source_of(row, uses_dates)
    if source == DEFAULT:
        return source
    _copy(prior, posterior)
    if source == LAST_MODIFIED:
        _explain(row.dated, _QUIET, _DATED, 0, posterior)
    else:
        level = return_level(row.intervals, row.returned, row.earlier, share)
        _explain(row.intervals, _UNCHANGED, _CHANGED, level, posterior)
        if row.run > 0:
            _explain_run(row.run, row.run_length, posterior)
    return source


@inlined_kernel
def _changes_of(word: Word, returned: Int) -> tuple[Int, Int, Int]:
    """Return the numbers of intervals of a word, of intervals with a change, and of changes that are returns."""
    intervals, changes, returns = np.int64(0), np.int64(0), np.int64(0)
    rest, bits = np.uint64(word), np.int64(returned)
    while rest != _NOTHING:
        if (rest & _LENGTH) != _NOTHING:
            intervals += np.int64(1)
        if (rest & _CHANGED_BIT) != _NOTHING:
            changes += np.int64(1)
            returns += bits & np.int64(1)
        rest >>= _BYTE
        bits >>= np.int64(1)
    return intervals, changes, returns


@lean_kernel
def share_of_returns(seen: Array, row_of: Array) -> float:
    """Return the share of changes of pages that bring an earlier content back; `row_of` is the row of each page.

    Counted for pages that changed in half of their intervals at most, whose changes are seen one by one, and of which
    more than two contents are known.
    """
    changes: Int = 0
    returns: Int = 0
    for i in range(row_of.shape[0]):
        row = seen[row_of[i]]
        if contents_of(row.earlier) > 2:
            intervals, changes_here, returns_here = _changes_of(row.intervals, row.returned)
            if 2 * changes_here <= intervals:
                changes += changes_here
                returns += returns_here
    return returns / changes if changes > 0 else 0.0


@inlined_kernel
def return_level(word: Word, returned: Int, earlier: Int, share: float) -> Int:
    """Return the row of `_UNCHANGED` for a page, given the share of returns in the crawl."""
    others = contents_of(earlier) - 1
    if others == 0 or (returned == 0 and share == 0.0):
        return 0
    _, changes, returns = _changes_of(word, returned)
    of_page = (returns + _RETURN_WEIGHT * share) / (changes + _RETURN_WEIGHT)
    eighths = np.int64(_SHARES * of_page + 0.5)
    return (eighths - 1) * (CONTENTS_KEPT - 1) + others if eighths > 0 else 0


@inlined_kernel
def _explain(word: Word, unchanged: Array, changed: Array, level: Int, posterior: Array) -> None:
    """Multiply a posterior by the probability of the intervals of a word in each class, at a level of returns."""
    rest = np.uint64(word)
    while rest != _NOTHING:
        code = np.int64(rest & _LENGTH)
        if code > 0:
            part, begin = (code - 1) & (_CODES_A_CLASS - 1), (code - 1) >> _CLASS_SHIFT
            if (rest & _CHANGED_BIT) != _NOTHING:
                for k in range(CLASSES):
                    posterior[k] *= changed[0, part, begin + k]
            else:
                for k in range(CLASSES):
                    posterior[k] *= unchanged[level, part, begin + k]
        rest >>= _BYTE


@inlined_kernel
def _explain_run(run: Int, run_length: Int, posterior: Array) -> None:
    """Multiply a posterior by the probability of a run of intervals with a change."""
    code = min(max((np.int64(run_length) + np.int64(128)) >> np.int64(8), np.int64(1)), np.int64(MOST_CODE))
    part, begin = (code - 1) & (_CODES_A_CLASS - 1), (code - 1) >> _CLASS_SHIFT
    for k in range(CLASSES):
        factor, power, left = 1.0, _CHANGED[0, part, begin + k], np.int64(run)
        while left > 0:
            if left & 1:
                factor *= power
            power *= power
            left >>= 1
        posterior[k] *= factor
