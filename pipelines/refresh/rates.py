"""Change rates of pages (thesis, chapter 4), estimated from their last eight intervals.

An *interval* is the time between two successive successful visits of a page. A *word* holds eight intervals, a byte
each, the latest in the lowest byte: bit 7 is set if the page changed in the interval; bits 0-6 are the code of its
length, 1 to 127 on a logarithmic scale. Code 0 is no interval. A page has two words:

- `intervals`, for whether it changed (the thesis' existence of change): the whole length of every interval;
- `dated`, for when it last changed (the thesis' last date of change): for an interval with a change the time from the
  change to the later visit, for one without a change the whole length. A first visit whose answer has a date counts as
  an interval with a change, as in the thesis: from that date to the visit.

Besides, a page has its *run*: how many intervals before the eight had a change each, without a break, and the mean of
their codes; a bit for each of the eight, set if it *returned* to an earlier content; and short digests of the *earlier*
contents by which that is seen. These are for a prior that is learnt (rate_prior.py); estimates without one do not use
them.

A page changes as a Poisson process; its rate is in changes per day. Every estimate but the thesis' own adds to the kept
intervals half an interval with a change and half one without, both of mean length. So pages that always or never
changed have a rate too. With intervals of equal length the rate is log((n + 1) / (n - C + 1/2)) per length, close to
the estimator of Cho and Garcia-Molina, log((n + 1/2) / (n - C + 1/2)), which is 0 for a page that never changed.
docs/results/change-rates.md has the measurements, also of the alternatives.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Int, Word, Words
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

# Words and numbers in kernels, for which Python has no types.

LEAST_SECONDS = 60.0
MOST_SECONDS = 20 * 365.25 * 86_400.0
MOST_CODE = 127
LEAST_RATE = 86_400.0 / MOST_SECONDS
MOST_RATE = 1_440.0
MOST_ERROR = 9.99
DEFAULT_CHANGES_PER_DAY = 1 / 14
"""The rate of a page without intervals: the geometric mean of once a day and once in half a year."""

# The source of a rate.
DEFAULT = 1
INTERVALS = 2
LAST_MODIFIED = 3

# Estimators.
LIKELIHOOD = 0
EXISTENCE = 1
THESIS = 2
ESTIMATORS: Final = {"likelihood": LIKELIHOOD, "existence": EXISTENCE, "thesis": THESIS}

_STEP = math.log(MOST_SECONDS / LEAST_SECONDS) / (MOST_CODE - 1)
_DAYS = LEAST_SECONDS / 86_400.0 * np.exp(_STEP * (np.arange(256) % 128 - 1))
_DAYS[[0, 128]] = 0.0

MOST_RUN = 255
CONTENTS_KEPT = 4
"""Contents of a page that are known at most, the present one included."""
SHORT_BITS = 10
_SHORT = (1 << SHORT_BITS) - 1
MOST_EARLIER = (1 << SHORT_BITS * (CONTENTS_KEPT - 1)) - 1

_BYTE = np.uint64(8)
_LOWEST = np.uint64(0xFF)
_CHANGED = np.uint64(0x80)
_CODES = np.uint64(0x7F7F7F7F7F7F7F7F)
ALL_CHANGED = np.uint64(0x8080808080808080)
_OLDEST = np.uint64(56)
_NOTHING = np.uint64(0)

_HALF = 0.5
_EXACT_ENOUGH = 1e-4
_MOST_STEPS = 16


class ChangeRates(NamedTuple):
    """The change rate of every page, its relative standard error, and its source."""

    rates: Floats
    errors: Floats
    known_from: Bytes


def change_rates(
    intervals: Words,
    dated: Words,
    use_dates: Bools,
    estimator: str = "likelihood",
    default_rate: float = DEFAULT_CHANGES_PER_DAY,
) -> ChangeRates:
    """Return the change rates of pages, given their words and whether the dates of each page are used.

    Estimators: `"likelihood"` is the maximum of the likelihood, from dates where they are used, and from the lengths of
    intervals elsewhere; `"existence"` uses no dates; `"thesis"` is the thesis' formula where dates are used. Pages
    without intervals get `default_rate`, and the source DEFAULT; others INTERVALS or LAST_MODIFIED. Errors are
    relative, at most 9.99: with 0.5, half the rate and one and a half times the rate are both plausible.

    Raises ValueError, with a message of one line, for arguments out of range.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"there is no estimator {estimator!r}: choose {', '.join(ESTIMATORS)}")
    if not LEAST_RATE <= default_rate <= MOST_RATE:
        raise ValueError(
            f"the default rate is {default_rate} changes per day: give a number from {LEAST_RATE:.6f} to {MOST_RATE:g}"
        )
    if not intervals.shape == dated.shape == use_dates.shape == (intervals.size,):
        raise ValueError("intervals, dated and use_dates must be columns of one length")
    pages = intervals.size
    result = ChangeRates(np.empty(pages), np.empty(pages), np.empty(pages, np.uint8))
    read_rates(
        np.ascontiguousarray(intervals, np.uint64),
        np.ascontiguousarray(dated, np.uint64),
        np.ascontiguousarray(use_dates, np.bool_),
        ESTIMATORS[estimator],
        float(default_rate),
        result.rates,
        result.errors,
        result.known_from,
    )
    return result


class Kept(NamedTuple):
    """The intervals of words: a row for each word, with a column for each of the eight intervals, the latest first."""

    is_interval: Bools
    is_change: Bools


def kept_intervals(words: Words) -> Kept:
    """Return which intervals each word has, and in which intervals the page changed."""
    codes = words.astype("<u8", copy=False).reshape(-1, 1).view(np.uint8)
    return Kept(codes != 0, codes >= int(_CHANGED))


def latest_intervals(words: Words) -> tuple[Bools, Bools]:
    """Return whether each word has a latest interval, and whether the page changed in it."""
    codes = words & _LOWEST
    return codes != 0, codes >= _CHANGED


@inlined_kernel
def code_of(seconds: float) -> Word:
    """Return the code of the length on the scale that is nearest, by ratio."""
    if not seconds > LEAST_SECONDS:
        return np.uint64(1)
    steps = math.log(min(seconds, MOST_SECONDS) / LEAST_SECONDS) / _STEP
    return np.uint64(np.int64(steps + 1.5))


@inlined_kernel
def pushed(word: Word, seconds: float, changed: bool) -> Word:
    """Return a word with one more interval, without the oldest of eight."""
    return (np.uint64(word) << _BYTE) | code_of(seconds) | (_CHANGED if changed else _NOTHING)


@inlined_kernel
def pushed_run(run: Int, mean_code: Int, word: Word, changed: bool) -> tuple[Int, Int]:
    """Return the run of changes before the kept intervals, and the mean of their codes in 1/256, after one more.

    `word` holds the intervals before it. Only while each interval has a change, the oldest joins the run; an interval
    without a change ends it.
    """
    if not changed:
        return 0, 0
    if (np.uint64(word) & ALL_CHANGED) != ALL_CHANGED:
        return run, mean_code
    code = np.int64((np.uint64(word) >> _OLDEST) & np.uint64(0x7F)) << 8
    if run == 0:
        return 1, code
    longer, mean = min(np.int64(run) + 1, np.int64(MOST_RUN)), np.int64(mean_code)
    return longer, mean + (code - mean) // longer


@inlined_kernel
def pushed_content(earlier: Int, before: Int, digest: Int) -> tuple[Int, bool]:
    """Return the short digests of earlier contents, the latest lowest, after a change; and whether it was a return.

    `before` and `digest` are the digests of the content before the change and after it, of 32 bits.
    """
    first, second = earlier & _SHORT, (earlier >> SHORT_BITS) & _SHORT
    short, new = 1 + before % _SHORT, 1 + digest % _SHORT
    if new == first:
        return (earlier & ~_SHORT) | short, True
    if new == second:
        return (earlier >> 2 * SHORT_BITS << 2 * SHORT_BITS) | first << SHORT_BITS | short, True
    return (earlier << SHORT_BITS & MOST_EARLIER) | short, new == earlier >> 2 * SHORT_BITS


@inlined_kernel
def contents_of(earlier: Int) -> Int:
    """Return how many contents of a page are known, the present one included."""
    contents = 1
    while earlier > 0:
        contents += 1
        earlier >>= SHORT_BITS
    return contents


@inlined_kernel
def keeps_any(word: Word) -> bool:
    """Whether a word holds an interval."""
    return (np.uint64(word) & _CODES) != _NOTHING


@inlined_kernel
def sums(word: Word) -> tuple[float, float, float, float]:
    """Return the number of intervals and their total length in days; then both for intervals with a change."""
    rest = np.uint64(word)
    count, total, changed_count, changed_total = 0.0, 0.0, 0.0, 0.0
    while rest != _NOTHING:
        days = _DAYS[rest & _LOWEST]
        if days > 0.0:
            count += 1.0
            total += days
            if (rest & _CHANGED) != _NOTHING:
                changed_count += 1.0
                changed_total += days
        rest >>= _BYTE
    return count, total, changed_count, changed_total


@inlined_kernel
def pull(word: Word, mean: float, rate: float) -> tuple[float, float]:
    """Return the slope of the log likelihood of intervals with a change, including half a one of mean length.

    The second value is the information at this rate: how fast the slope falls with the rate.
    """
    rest = np.uint64(word)
    upwards = mean / (math.exp(mean * rate) - 1.0)
    information = _HALF * upwards * (upwards + mean)
    upwards *= _HALF
    while rest != _NOTHING:
        days = _DAYS[rest & _LOWEST]
        if (rest & _CHANGED) != _NOTHING and days > 0.0:
            one = days / (math.exp(days * rate) - 1.0)
            upwards += one
            information += one * (one + days)
        rest >>= _BYTE
    return upwards, information


@inlined_kernel
def bounded(rate: float) -> float:
    """Return a rate within the bounds of rates."""
    return min(max(rate, LEAST_RATE), MOST_RATE)


@lean_kernel
def existence_rate(word: Word) -> tuple[float, float]:
    """Return the likeliest rate given which intervals had a change (thesis, 4.1), smoothed, and its Fisher information.

    Both are 0 for a word without intervals.

    The slope of the log likelihood is 0 where the pull of intervals with a change equals the length of the others. The
    logarithm of the pull is convex and decreasing, and the first guess is never too high, because c / (exp(c x) - 1) is
    convex in c. So Newton's method approaches the rate from below.
    """
    count, total, changed_count, changed_total = sums(word)
    if count == 0.0:
        return 0.0, 0.0
    mean = total / count
    unchanged_total = total - changed_total + _HALF * mean
    changed_count += _HALF
    changed_mean = (changed_total + _HALF * mean) / changed_count
    rate = math.log1p(changed_count * changed_mean / unchanged_total) / changed_mean
    information = 0.0
    for _ in range(_MOST_STEPS):
        upwards, information = pull(word, mean, rate)
        step = upwards * math.log(upwards / unchanged_total) / information
        rate += step
        if step <= _EXACT_ENOUGH * rate:  # the remaining error is about its square
            break
    if rate != bounded(rate):
        rate = bounded(rate)
        _, information = pull(word, mean, rate)
    return rate, information


@inlined_kernel
def dated_rate(word: Word) -> tuple[float, float]:
    """Return the likeliest rate given the last changes, C / (Σl + Σv), smoothed, and its Fisher information.

    Both are 0 for a word without intervals. Backwards from each visit, the time to the last change, or the whole
    interval if there was none, was observed: C changes in the sum of all such times.
    """
    count, total, changed_count, _ = sums(word)
    if count == 0.0:
        return 0.0, 0.0
    rate = bounded((changed_count + _HALF) / (total + total / count))
    return rate, (changed_count + _HALF) / (rate * rate)


@inlined_kernel
def thesis_dated_rate(word: Word) -> tuple[float, float]:
    """Return the rate of the thesis' formula C / Σl (4.2), and its Fisher information; 0 for a word without changes.

    It ignores the time in which the page did not change. For a page that changes far more rarely than it is visited, l
    is half an interval in the mean, independent of its rate: the formula gives two changes an interval, too many by a
    factor of 2 / (rate * length). It is right only for pages that change in nearly every interval.
    """
    _, _, changed_count, changed_total = sums(word)
    if changed_count == 0.0:
        return 0.0, 0.0
    rate = bounded(changed_count / changed_total)
    return rate, changed_count / (rate * rate)


@inlined_kernel
def relative_error(rate: float, information: float) -> float:
    """Return the standard error of a rate over the rate, at most 9.99."""
    sharpness = rate * math.sqrt(information)
    return min(1.0 / sharpness, MOST_ERROR) if sharpness > 0.0 else MOST_ERROR


@inlined_kernel
def rate_of(
    intervals: Word, dated: Word, use_dates: bool | np.bool_, estimator: Int, default_rate: float
) -> tuple[float, float, Int]:
    """Return the change rate of a page, its relative error, and its source.

    As long as a page has only a date, and no interval between visits, a rate below the default is not used: the page
    gets the default. With the thesis' estimator a page without a change in its dated intervals gets the likeliest rate,
    because the formula is undefined.
    """
    if estimator != EXISTENCE and use_dates and keeps_any(dated):
        rate, information = thesis_dated_rate(dated) if estimator == THESIS else dated_rate(dated)
        if rate == 0.0:
            rate, information = dated_rate(dated)
        if rate < default_rate and not keeps_any(intervals):
            return default_rate, MOST_ERROR, DEFAULT  # one old date alone does not prove a low rate
        return rate, relative_error(rate, information), LAST_MODIFIED
    if keeps_any(intervals):
        rate, information = existence_rate(intervals)
        return rate, relative_error(rate, information), INTERVALS
    return default_rate, MOST_ERROR, DEFAULT


@lean_kernel
def read_rates(
    intervals: Array,
    dated: Array,
    use_dates: Array,
    estimator: Int,
    default_rate: float,
    rates_out: Array,
    errors_out: Array,
    known_out: Array,
) -> None:
    """Fill the columns of `ChangeRates`."""
    for i in range(intervals.shape[0]):
        rates_out[i], errors_out[i], known_out[i] = rate_of(
            intervals[i], dated[i], use_dates[i], estimator, default_rate
        )
