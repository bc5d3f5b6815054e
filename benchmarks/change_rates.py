"""How well change rates are estimated, on pages whose rate is known: writes docs/results/change-rates.md.

Run it with `python benchmarks/change_rates.py`. Everything has a seed: the same command writes the same bytes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opicflow.pipelines.refresh.rate_prior import SEEN, learnt_rates
from opicflow.pipelines.refresh.rates import (
    CONTENTS_KEPT,
    DEFAULT_CHANGES_PER_DAY,
    LEAST_RATE,
    LEAST_SECONDS,
    MOST_CODE,
    MOST_RATE,
    MOST_SECONDS,
    ChangeRates,
    change_rates,
    pushed,
    pushed_content,
    pushed_run,
)
from opicflow.schemas.arrays import Array, Bools, Floats, Ints, Words

Schedule = Callable[[np.random.Generator, int, int], Floats]

SEED = 1
PAGES = 20_000
RATES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
USUAL_RATES = RATES[1:5]
COUNTS = (1, 2, 4, 8)
DAY = 86_400.0
STEP = math.log(MOST_SECONDS / LEAST_SECONDS) / (MOST_CODE - 1)

INTRODUCTION = """\
A page's change rate is the number of its changes per day. opicflow estimates it from the page's last eight intervals
between successful visits. For every line of the tables below,
`{command}` makes up {pages:,} pages and measures how far the estimates are from the rate
that they were made with (seed {seed}). The pages change as Poisson processes and are visited at irregular times, once a
day in the mean: a rate of 0.3 means 0.3 changes per mean interval.

## The estimators

With C the number of intervals with a change, c their lengths, v the lengths of the intervals without a change, and l
the time from the last change in an interval to the visit at its end:

- **existence** uses only whether the page changed in each interval. The rate x maximises `exp(-x Σv) Π(1 - exp(-c x))`
  (the thesis' formula 4.1). It needs no data from the server.
- **dates** uses the time of the last change, which the server sends (`Last-Modified`). The likeliest rate is
  `C / (Σl + Σv)`: changes over observed time.
- **thesis** is the thesis' formula for the same data, `C / Σl` (4.2). It ignores the time without changes.
- **naive** is `C / (Σc + Σv)`, intervals with a change over time. It counts an interval with ten changes as one change.

*Raw* is the bare formula, within the bounds of a rate (once in 20 years to once a minute). A page that never changed
then has the lowest possible rate, and with existence a page that always changed has the highest. So opicflow's
*existence* and *dates* add half an interval with a change and half one without, both of the mean length of the kept
intervals. For dates the rate is then `(C + 1/2) / (Σl + Σv + their mean)`. For existence with intervals of equal length
it is `log((n + 1) / (n - C + 1/2))` per length.

An estimator is chosen by name: `likelihood` (the default) uses dates if the dates of a page are trusted, and existence
otherwise; `existence` uses no dates; `thesis` uses `C / Σl` if dates are trusted, and dates if no kept interval has a
change, where the formula is undefined. A page without intervals gets the default
rate, once in {default:.0f} days: the geometric mean of once a day and once in half a year. As long as it has only a
date, and no interval between visits, a lower rate than the default is not used: one old date alone would give it a low
rate for months.
"""

LEARNT = """\
`rate-prior=learnt` (the default) weighs the visits of a page by how often pages of this crawl, its category and its
site change ([rate_prior.py](../../pipelines/refresh/rate_prior.py)). `rate-prior=fixed` is the smoothing above, the
same for all pages.

Here, rates are from once an hour to once in five years, all orders of magnitude alike. The mean interval of a page is
from 1 to 30 days, half of the pages have exponential intervals, half log-normal ones, and a page has 1, 2, 4, 8, 16 or
64 intervals. With returns, 40 % of all changes bring one of the last three contents back. Every cell is *median of
estimate over rate / median factor between the two / how often the stated error holds* (68 % for a normal distribution).
What counts as a change seen is a content that differs from the one before.
"""

HOW_TO_READ = """\
Every cell is *mean / median / spread*. Mean and median are of estimate over rate: 1.0 is right, 2.0 is twice too high.
The spread is the standard deviation of the logarithm of the estimate: 0.7 is a factor of 2. If the estimate can take
only few values (1 interval, few changes), the median jumps, and the mean is more useful.
"""

# Text about the figures at PAGES pages: check it whenever the figures change.
DISCUSSION = """\
- **The default is `likelihood`:** the smoothed likeliest rate, from dates where they are trusted. With eight intervals
  its error is a factor of 1.85 (rates 0.1 to 3), the thesis' formula by 5.4, any raw formula by 14 or more. The thesis'
  formula is at its best with the date of the first visit and four intervals: 3.0, where the likeliest rate has 1.9.
- **Dates help if pages change more often than they are visited.** With eight intervals and at a rate of 1 or less dates
  and existence are equally good. At 3 existence is a quarter too low, and at 10 it estimates a third of the rate: if a
  page always changed, existence cannot show how often. Dates are right there, within 1 % in the median.
- **The thesis' formula is too high if intervals without a change are common:** 5 times in the median at a rate of 0.3,
  where l is about half an interval, independent of the rate. At a rate of 10 it is 10 % too high. It ignores the time
  without changes, so it is only available by name.
- **Smoothing decides for pages with little data.** With raw formulas all pages without a change fall to once in 20
  years; with existence all pages that always changed rise to once a minute. The price: pages that change far more
  rarely than in eight intervals get too high a rate, about half a change in all that time: twice too high at 0.03. Such
  pages are read too often, and one more interval without a change lowers the rate.
- **Other smoothings** are not better in all cases. Less than a half with a change is worse at usual rates, more is
  worse
  for pages that change rarely. The geometric and harmonic means are worse if lengths of intervals differ much.
- **The date of the first visit is worth an interval.** With one interval besides, it takes the estimate at a rate of
  0.03 from 10 times too high in the median to 1.4 times, and the spread at a rate of 3 from 1.35 to 0.82. Without it,
  one or two dated intervals say less than existence does: a change that happened to be just before the visit looks
  like a page that changes all the time. It is kept as an interval with a change, until eight others came after it.
- **One long interval before short ones** is hard on existence: the half interval without a change that smooths it is
  long then, and rates of 1 and more come out too low by half in the median. Dates are right within 15 % at 3, and 2 %
  at 10.
- **The byte costs next to nothing:** 1.7 % of an estimate, where chance alone makes a quarter or more.
- **The stated error holds** for 66 to 79 % of pages. One case is different: a page that changed in every interval may
  change far more often than existence can see (2 % at a rate of 10).
- **A learnt prior lets such pages go.** Of pages with rates from once an hour to once in five years that were seen to
  change four times or more, without dates, the estimate is 0.97 of the rate in the median, and 0.75 with returns; with
  the fixed prior it is 0.40 and 0.34. Pages that change 6 to 24 times a day are half of their rate, where they were a
  seventeenth, and the stated error holds for 81 %, where it did for 1 %. With dates nothing much changes.
- **No estimator can do this page by page:** a page that changed at each of eight visits, without dates, is known to a
  factor of 2.2, one that did not change once to a factor of 3.2. The stated error is that large: 1.0 to 1.2 of the
  logarithm, a factor of 3. Eight intervals with mixed outcomes know a rate to a factor of 1.7.
- **Runs and returns are worth little, but cost little.** With runs, the estimate for a page that always changed goes
  from 1.06 to 1.21 of its rate if no content returns, and from 0.71 to 0.83 if contents return. With returns, pages
  that did not always change go from 0.66 to 0.73.
- **The prior of a site helps pages with few visits:** with one interval and sites that differ, the median factor is
  2.5, 2.7 without sites, and 3.4 with the fixed prior.
- **Dates that lie can do any harm.** A server that gives the moment of its answer makes a page change once a minute;
  one that never moves its dates makes it change never. A clock that is wrong by an hour does little to pages that
  change once a day or less. So dates must count only while those of a page agree with what its visits saw; existence
  does not ask the server.
"""


@dataclass(frozen=True)
class Seen:
    """The results of visits, a row for each page: lengths in days, changes, and the age of the last change."""

    lengths: Floats
    changed: Bools
    ago: Floats

    @property
    def dated(self) -> Floats:
        """From the last change, or the visit before, to the visit."""
        return np.where(self.changed, self.ago, self.lengths)

    def words(self) -> tuple[Words, Words]:
        """The columns that rates are read from."""
        return words_of(self.lengths, self.changed), words_of(self.dated, self.changed)


def words_of(lengths: Floats, changed: Bools) -> Words:
    """A word for every row."""
    codes = np.clip(1 + np.rint(np.log(np.maximum(lengths * DAY, 1e-9) / LEAST_SECONDS) / STEP), 1, MOST_CODE)
    all_bytes = codes.astype(np.uint64) | np.where(changed, np.uint64(0x80), np.uint64(0))
    words = np.zeros(len(lengths), np.uint64)
    for column in all_bytes.T:
        words = words << np.uint64(8) | column
    return words


# When pages are visited. The mean length is a day.


def irregular(generator: np.random.Generator, pages: int, count: int) -> Floats:
    """Return lengths of a gamma distribution: half of all lengths are between 0.5 and 1.3."""
    return generator.gamma(2.0, 0.5, (pages, count))


def ever_more_often(generator: np.random.Generator, pages: int, count: int) -> Floats:
    """Every interval half as long as the one before."""
    lengths = 0.5 ** np.arange(count)
    return np.tile(lengths / lengths.mean(), (pages, 1))


def long_quiet_then_often(generator: np.random.Generator, pages: int, count: int) -> Floats:
    """The first interval a hundred times as long as the others."""
    lengths = np.where(np.arange(count) == 0, 100.0, 1.0)
    return np.tile(lengths / lengths.mean(), (pages, 1))


def visited(schedule: Schedule, rate: float, count: int, pages: int, first: bool = False) -> Seen:
    """Pages that change `rate` times a day. With `first`, the date of the first visit's answer counts too."""
    generator = np.random.default_rng((SEED, count, round(1000 * rate)))
    lengths = schedule(generator, pages, count)
    ago = generator.exponential(1.0 / rate, (pages, count))
    changed = ago < lengths
    if first:
        before = generator.exponential(1.0 / rate, (pages, 1))
        lengths, ago = np.hstack([before, lengths])[:, -8:], np.hstack([before, ago])[:, -8:]
        changed = np.hstack([np.ones((pages, 1), np.bool_), changed])[:, -8:]
    return Seen(lengths, changed, ago)


# The estimators.


def existence(seen: Seen) -> Floats:
    """By existence of change, as opicflow has it."""
    intervals, dated = seen.words()
    return change_rates(intervals, dated, np.zeros(len(dated), np.bool_)).rates


def dates(seen: Seen) -> Floats:
    """By last date of change, as opicflow has it."""
    intervals, dated = seen.words()
    return change_rates(intervals, dated, np.ones(len(dated), np.bool_)).rates


def thesis(seen: Seen) -> Floats:
    """By the thesis' formula."""
    intervals, dated = seen.words()
    return change_rates(intervals, dated, np.ones(len(dated), np.bool_), "thesis").rates


def existence_raw(seen: Seen) -> Floats:
    """Return the rate of the thesis' formula 4.1."""
    return likeliest(seen, 0.0, 0.0)


def dates_raw(seen: Seen) -> Floats:
    """Return the likeliest rate given the last dates of change."""
    return bounded(seen.changed.sum(1) / seen.dated.sum(1))


def naive(seen: Seen) -> Floats:
    """Changes seen over time."""
    return bounded(seen.changed.sum(1) / seen.lengths.sum(1))


def bounded(rates: Floats) -> Floats:
    """Rates, within the bounds of rates."""
    return np.clip(rates, LEAST_RATE, MOST_RATE)


def likeliest(seen: Seen, with_change: float, without: float, mean: Floats | None = None) -> Floats:
    """The likeliest rates by existence of change, from lengths that were not coded, by bisection.

    Besides its own, a page has parts of an interval with a change and of one without, of the arithmetic mean length
    or another one.
    """
    mean = seen.lengths.mean(1) if mean is None else mean
    lengths = np.hstack([seen.lengths, mean[:, None]])
    weights = np.hstack([seen.changed, np.full((len(mean), 1), with_change)])
    unchanged = np.where(seen.changed, 0.0, seen.lengths).sum(1) + without * mean
    low = np.full(len(mean), math.log(LEAST_RATE))
    high = np.full(len(mean), math.log(MOST_RATE))
    for _ in range(40):
        middle = (low + high) / 2
        pull = (weights * lengths / np.expm1(np.minimum(lengths * np.exp(middle)[:, None], 700.0))).sum(1)
        low, high = np.where(pull > unchanged, middle, low), np.where(pull > unchanged, high, middle)
    return np.exp((low + high) / 2)


ESTIMATORS: dict[str, Callable[[Seen], Floats]] = {
    "existence": existence,
    "existence, raw": existence_raw,
    "dates": dates,
    "dates, raw": dates_raw,
    "thesis": thesis,
    "naive": naive,
}


# Figures and tables.


def figure(value: float) -> str:
    """Three digits of a factor, two after the point at most."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def cell(rates: Floats, rate: float) -> str:
    """Mean, median and spread of estimates."""
    off = rates / rate
    return " / ".join(map(figure, (float(off.mean()), float(np.median(off)), float(np.log(off).std()))))


def factor(rates: Sequence[Floats], true: Sequence[float]) -> str:
    """The typical factor between estimates and rates: of the root mean square of its logarithm."""
    squares = [np.square(np.log(found / rate)).mean() for found, rate in zip(rates, true, strict=True)]
    return figure(math.exp(math.sqrt(float(np.mean(squares)))))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def every_estimator(schedule: Schedule, count: int, pages: int) -> Iterator[str]:
    """A table of all estimators by rate."""
    rows = []
    for rate in RATES:
        seen = visited(schedule, rate, count, pages)
        rows.append([f"{rate:g}", *(cell(estimator(seen), rate) for estimator in ESTIMATORS.values())])
    yield from table(["rate", *ESTIMATORS], rows)


def typical_factors(pages: int) -> Iterator[str]:
    """A table of the typical factors by number of intervals."""
    measured = [(name, estimator, False) for name, estimator in ESTIMATORS.items()]
    measured += [(f"{name}, and the first visit's", ESTIMATORS[name], True) for name in ("dates", "thesis")]
    rows = []
    for name, estimator, first in measured:
        cells = []
        for rates in (USUAL_RATES, RATES):
            for count in COUNTS:
                found = [estimator(visited(irregular, rate, count, pages, first)) for rate in rates]
                cells.append(factor(found, rates))
        rows.append([name, *cells])
    columns = [f"{count}" if count > 1 else "1 interval" for count in COUNTS]
    yield from table(["", *columns, *(f"{column}, all rates" for column in columns)], rows)


def smoothings(pages: int) -> Iterator[str]:
    """A table of what other smoothings would do."""
    means = {
        "arithmetic": lambda lengths: lengths.mean(1),
        "geometric": lambda lengths: np.exp(np.log(lengths).mean(1)),
        "harmonic": lambda lengths: 1.0 / (1.0 / lengths).mean(1),
    }
    choices = [(0.3, 0.3), (0.5, 0.3), (0.5, 0.5), (0.5, 0.7), (0.7, 0.5), (0.7, 0.7)]
    rows = []
    for with_change, without, mean in [
        *((*choice, "arithmetic") for choice in choices),
        (0.5, 0.5, "geometric"),
        (0.5, 0.5, "harmonic"),
    ]:
        cells = []
        for schedule in (irregular, ever_more_often, long_quiet_then_often):
            found = []
            for rate in RATES:
                seen = visited(schedule, rate, 8, pages)
                found.append(likeliest(seen, with_change, without, means[mean](seen.lengths)))
            cells += [factor(found[1:5], USUAL_RATES), factor(found, RATES)]
        rows.append([f"{with_change:g}", f"{without:g}", mean, *cells])
    head = ["with a change", "without", "mean", "irregular", "all rates"]
    head += ["ever more often", "all rates", "one long, then often", "all rates"]
    yield from table(head, rows)


def first_visits(pages: int) -> Iterator[str]:
    """Return a table of the effect of the first visit's date."""
    rows = []
    for count in COUNTS[:-1]:
        for rate in RATES:
            without, with_ = (visited(irregular, rate, count, pages, first) for first in (False, True))
            cells = [cell(estimator(seen), rate) for estimator in (dates, thesis) for seen in (without, with_)]
            rows.append([f"{count}", f"{rate:g}", *cells])
    head = ["intervals", "rate", "dates", "dates, and the first", "thesis", "thesis, and the first"]
    yield from table(head, rows)


def coding(pages: int) -> Iterator[str]:
    """Return a table of the effect of coded lengths."""
    rows = []
    for rate in RATES:
        seen = visited(irregular, rate, 8, pages)
        by_existence = np.log(existence(seen) / likeliest(seen, 0.5, 0.5))
        time = seen.dated.sum(1) * 9 / 8
        by_dates = np.log(dates(seen) / bounded((seen.changed.sum(1) + 0.5) / time))
        cells = [f"{100 * part.std():.1f} %" for part in (by_existence, by_dates)]
        cells += [f"{100 * np.abs(part).max():.1f} %" for part in (by_existence, by_dates)]
        rows.append([f"{rate:g}", *cells])
    yield from table(["rate", "existence", "dates", "existence, most", "dates, most"], rows)


def stated_errors(pages: int) -> Iterator[str]:
    """Return a table of how often the stated errors hold."""
    rows = []
    for rate in RATES:
        intervals, dated = visited(irregular, rate, 8, pages).words()
        cells = []
        for believed in (False, True):
            found = change_rates(intervals, dated, np.full(pages, believed))
            inside = np.abs(np.log(found.rates / rate)) < found.errors
            cells += [figure(float(np.median(found.errors))), f"{100 * inside.mean():.0f} %"]
        rows.append([f"{rate:g}", *cells])
    yield from table(["rate", "existence: stated error", "holds for", "dates: stated error", "holds for"], rows)


def false_dates(pages: int) -> Iterator[str]:
    """Return a table of the effect of false dates."""
    hour = 1.0 / 24.0
    rows = []
    for name, lie in {
        "true": lambda seen, chance: seen,
        "always the time of the answer": lambda seen, chance: Seen(
            seen.lengths, np.ones_like(seen.changed), np.zeros_like(seen.ago)
        ),
        "a date that never changes": lambda seen, chance: Seen(seen.lengths, np.zeros_like(seen.changed), seen.ago),
        "the time of the answer, every fourth time": lambda seen, chance: Seen(
            seen.lengths, seen.changed | (chance < 0.25), np.where(chance < 0.25, 0.0, seen.ago)
        ),
        "an hour too late": lambda seen, chance: Seen(seen.lengths, seen.changed, np.maximum(seen.ago - hour, 0.0)),
        "an hour too early": lambda seen, chance: Seen(seen.lengths, seen.ago + hour < seen.lengths, seen.ago + hour),
    }.items():
        cells = []
        for rate in RATES:
            seen = visited(irregular, rate, 8, pages)
            chance = np.random.default_rng((SEED, round(1000 * rate))).random(seen.lengths.shape)
            cells.append(figure(float(np.median(dates(lie(seen, chance)) / rate))))
        rows.append([name, *cells])
    by_existence = [existence(visited(irregular, rate, 8, pages)) / rate for rate in RATES]
    rows.append(["not used: existence", *(figure(float(np.median(off))) for off in by_existence)])
    yield from table(["the dates are", *(f"rate {rate:g}" for rate in RATES)], rows)


# With a prior that is learnt.

LEAST_OF_WORLD, MOST_OF_WORLD = 1 / (5 * 365.25), 24.0
VISITS = (1, 2, 4, 8, 16, 64)
RETURNING = 0.4
MOST_STEPS = 24
"""Changes between two visits that are played; after so many the content is hardly ever the one before."""
RATE_BUCKETS = ((0, 1 / 365), (1 / 365, 1 / 60), (1 / 60, 0.1), (0.1, 0.5), (0.5, 2), (2, 6), (6, 25))


@dataclass(frozen=True)
class World:
    """Pages whose rate is known, as a ledger would have seen them."""

    rates: Floats
    seen: Array
    changes: Ints
    """How many visits of each page saw a change."""
    sites: Ints

    def estimates(self, use_dates: bool, prior: str, sites: bool = False) -> ChangeRates:
        """Return rates by dates or without, with a fixed or a learnt prior."""
        dates = np.full(len(self.rates), use_dates)
        if prior == "fixed":
            return change_rates(self.seen["intervals"], self.seen["dated"], dates)
        return learnt_rates(self.seen, dates, sites=self.sites if sites else None)

    def without(self, field: str) -> World:
        """Return the same pages without one field of their visits."""
        seen = self.seen.copy()
        seen[field] = 0
        return World(self.rates, seen, self.changes, self.sites)


def world(pages: int, returning: float, visits: Sequence[int] = VISITS, rates: Floats | None = None) -> World:
    """Pages that change from once an hour to once in five years, visited at irregular times.

    The mean interval of a page is from 1 to 30 days; half of the pages have exponential intervals, half log-normal
    ones. A page has as many intervals as one of `visits`. This share of changes brings one of the last contents back.
    """
    generator = np.random.default_rng((SEED, 7, round(100 * returning)))
    if rates is None:
        rates = np.exp(generator.uniform(math.log(LEAST_OF_WORLD), math.log(MOST_OF_WORLD), pages))
    means = np.exp(generator.uniform(0, math.log(30), pages))
    is_exponential = generator.random(pages) < 0.5
    counts = generator.choice(np.array(visits), pages)
    contents = np.zeros((pages, CONTENTS_KEPT), np.int64)  # the present one first; 0 = none
    contents[:, 0] = 1
    seen, changes, last = np.zeros(pages, SEEN), np.zeros(pages, np.int64), contents[:, 0].copy()
    made = np.ones(pages, np.int64)
    for visit in range(max(visits)):
        shapes = np.where(is_exponential, generator.exponential(1, pages), generator.lognormal(-0.5, 1, pages))
        lengths = np.maximum(means * shapes, LEAST_SECONDS / DAY)
        happened = generator.poisson(rates * lengths)
        for step in range(min(int(happened.max()), MOST_STEPS)):
            others = (contents > 0).sum(1) - 1
            comes_back = (generator.random(pages) < returning) & (others > 0)
            place = np.where(comes_back, 1 + (generator.random(pages) * others).astype(np.int64), CONTENTS_KEPT - 1)
            made += 1
            next_one = np.where(comes_back, contents[np.arange(pages), place], made)
            moved = contents.copy()
            moved[:, 1:] = np.where(np.arange(1, CONTENTS_KEPT) <= place[:, None], contents[:, :-1], contents[:, 1:])
            moved[:, 0] = next_one
            contents = np.where((step < happened)[:, None], moved, contents)
        ago = lengths * (1 - generator.random(pages) ** (1 / np.maximum(happened, 1)))
        for i in np.flatnonzero(visit < counts).tolist():
            observe(seen[i : i + 1], float(lengths[i]), int(last[i]), int(contents[i, 0]), bool(happened[i]), ago[i])
        changes += (visit < counts) & (contents[:, 0] != last)
        last = np.where(visit < counts, contents[:, 0], last)
    return World(rates, seen, changes, np.zeros(pages, np.int64))


def observe(row: Array, length: float, before: int, now: int, is_dated: bool, ago: float) -> None:
    """Update the row of a page for a visit, as the ledger does."""
    changed, returned = before != now, False
    words, old, new = row[0], *(0x9E3779B1 * content & 0xFFFFFFFF for content in (before, now))
    if changed:
        words["earlier"], returned = pushed_content(int(words["earlier"]), old, new)
    words["run"], words["run_length"] = pushed_run(words["run"], words["run_length"], words["intervals"], changed)
    words["returned"] = (int(words["returned"]) << 1 & 255) | returned
    words["intervals"] = pushed(words["intervals"], length * DAY, changed)
    words["dated"] = pushed(words["dated"], (ago if is_dated else length) * DAY, is_dated)


def accuracy(found: ChangeRates, rates: Floats, rows: Bools) -> str:
    """Return the median of estimate over rate, the median factor between the two, and where the error holds."""
    if not rows.any():
        return "-"
    off = np.log(found.rates[rows] / rates[rows])
    typical, holds = math.exp(float(np.median(np.abs(off)))), float((np.abs(off) < found.errors[rows]).mean())
    return f"{figure(math.exp(float(np.median(off))))} / {figure(typical)} / {100 * holds:.0f} %"


def by_changes(worlds: dict[float, World]) -> Iterator[str]:
    """Return a table of fixed and learnt priors, by the number of changes seen."""
    rows = []
    for use_dates in (False, True):
        for returning, made in worlds.items():
            for prior in ("fixed", "learnt"):
                found = made.estimates(use_dates, prior)
                groups = (made.changes == 0, (made.changes > 0) & (made.changes < 4), made.changes >= 4)
                cells = [accuracy(found, made.rates, group) for group in groups]
                rows.append(["yes" if use_dates else "no", f"{100 * returning:.0f} %", prior, *cells])
    yield from table(["dates", "returns", "prior", "no change seen", "1 to 3", "4 and more"], rows)


def by_rate(worlds: dict[float, World]) -> Iterator[str]:
    """Return a table of pages that were seen to change four times or more, by their rate."""
    made = worlds[0.0]
    rows = []
    for low, high in RATE_BUCKETS:
        group = (made.changes >= 4) & (made.rates >= low) & (made.rates < high)
        name = f"{low:.2g} to {high:.2g}" if low else f"below {high:.2g}"
        cells = [
            accuracy(made.estimates(use_dates, prior), made.rates, group)
            for use_dates in (False, True)
            for prior in ("fixed", "learnt")
        ]
        errors = made.estimates(False, "learnt").errors[group]
        rows.append([name, f"{group.sum():,}", *cells, figure(float(np.median(errors))) if len(errors) else "-"])
    head = ["changes a day", "pages", "no dates, fixed", "no dates, learnt", "dates, fixed", "dates, learnt"]
    yield from table([*head, "stated error, no dates, learnt"], rows)


def by_part(worlds: dict[float, World]) -> Iterator[str]:
    """Return a table of what runs and returns are worth, and of what eight intervals cannot show."""
    rows = []
    for returning, made in worlds.items():
        is_full = made.seen["intervals"] >> np.uint64(56) != 0
        each = np.uint64(0x8080808080808080)
        always = is_full & ((made.seen["intervals"] & each) == each)
        groups = {
            "changed at each of 8 visits": always,
            "4 changes and more, not always": ~always & (made.changes >= 4),
        }
        for name, group in groups.items():
            cells = [
                accuracy(one.estimates(False, "learnt"), made.rates, group)
                for one in (made, made.without("run"), made.without("returned"))
            ]
            rows.append([f"{100 * returning:.0f} %", name, f"{group.sum():,}", *cells])
    yield from table(["returns", "pages", "number", "learnt", "without runs", "without returns"], rows)


def by_site(pages: int) -> Iterator[str]:
    """Return a table of sites that differ: pages of one to eight visits, 50 a site."""
    generator = np.random.default_rng((SEED, 8))
    sites = np.arange(pages) // 50
    logs = 1.5 * generator.standard_normal(pages // 50 + 1)[sites] + generator.standard_normal(pages) - math.log(14)
    rows = []
    for count in (1, 2, 4, 8):
        made = world(pages, 0.0, (count,), np.clip(np.exp(logs), LEAST_OF_WORLD, MOST_OF_WORLD))
        made = World(made.rates, made.seen, made.changes, sites)
        found = [made.estimates(False, *how) for how in (("fixed",), ("learnt",), ("learnt", True))]
        everyone = np.ones(pages, np.bool_)
        rows.append([f"{count}", *(accuracy(one, made.rates, everyone) for one in found)])
    yield from table(["intervals", "fixed", "learnt from the crawl", "and from the site"], rows)


def page(pages: int, command: str) -> Iterator[str]:
    """The lines of docs/results/change-rates.md."""
    yield "# Change rates\n"
    yield INTRODUCTION.format(command=command, pages=pages, seed=SEED, default=1 / DEFAULT_CHANGES_PER_DAY)
    if pages == PAGES:
        yield f"## Results\n\n{DISCUSSION}"
    yield "## Typical factors\n"
    yield (
        "The typical factor between estimate and rate: that of the root mean square of its logarithm, over the rates\n"
        "0.1, 0.3, 1 and 3, then over all six. Less is better, 1 is right.\n"
    )
    yield from typical_factors(pages)
    yield f"## By rate and number of intervals\n\n{HOW_TO_READ}"
    for count in COUNTS:
        yield f"### {count} interval{'s' * (count > 1)}\n"
        yield from every_estimator(irregular, count, pages)
    yield "## Intervals of very different lengths\n"
    yield "Eight intervals, each half as long as the one before:\n"
    yield from every_estimator(ever_more_often, 8, pages)
    yield "Eight intervals, the first a hundred times as long as each of the others:\n"
    yield from every_estimator(long_quiet_then_often, 8, pages)
    yield "## Other smoothings\n"
    yield (
        "Typical factors by existence with eight intervals, if parts of an interval with a change and of one without,\n"
        "of some mean length, are added to the kept ones. opicflow adds 0.5 and 0.5, arithmetic.\n"
    )
    yield from smoothings(pages)
    yield "## The date of the first visit\n"
    yield (
        "A first visit has a date too. The thesis counts it as an interval with a change, from that date to the\n"
        "visit, however old the date is. Without it, and with it:\n"
    )
    yield from first_visits(pages)
    yield "## A byte an interval\n"
    yield (
        "Lengths are stored to the nearest of 127 steps of 13.7 %. The resulting changes of estimates from eight\n"
        "intervals: their standard deviation, and the largest for any page.\n"
    )
    yield from coding(pages)
    yield "## Stated errors\n"
    yield (
        "The relative error that is stated with a rate, in the median, and the share of pages for which the\n"
        "logarithms of estimate and rate are closer than that (68 % for a normal distribution). Eight intervals.\n"
    )
    yield from stated_errors(pages)
    worlds = {returning: world(pages, returning) for returning in (0.0, RETURNING)}
    yield f"## With a learnt prior\n\n{LEARNT}"
    yield from by_changes(worlds)
    yield "Pages that were seen to change four times or more, without returns, by their true rate:\n"
    yield from by_rate(worlds)
    yield "What runs and returns are worth, without dates:\n"
    yield from by_part(worlds)
    yield (
        "Sites that differ: two thirds of all sites have a typical rate within a factor of 4.5 of the usual one,\n"
        "and two thirds of the pages of a site are within 2.7 of that. 50 pages a site, without dates:\n"
    )
    yield from by_site(pages)
    yield "## False dates\n"
    yield ("The median of estimate over rate with dates that are false. Eight intervals, a day in the mean.\n")
    yield from false_dates(pages)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description="measure the error of change rates on made-up pages")
    parser.add_argument("--pages", type=int, default=PAGES, help="pages for every line (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/results/change-rates.md"), help="the page to write (%(default)s)"
    )
    chosen = parser.parse_args()
    if chosen.pages < 10:
        parser.exit(2, f"change_rates: {chosen.pages} pages are too few: give 10 or more\n")
    command = "python benchmarks/change_rates.py"
    if chosen.pages != PAGES:
        command += f" --pages {chosen.pages}"
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text("\n".join(page(chosen.pages, command)), encoding="utf-8")


if __name__ == "__main__":
    main()
