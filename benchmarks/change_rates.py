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

from opicflow.pipelines.refresh.rates import (
    DEFAULT_CHANGES_PER_DAY,
    LEAST_RATE,
    LEAST_SECONDS,
    MOST_CODE,
    MOST_RATE,
    MOST_SECONDS,
    change_rates,
)
from opicflow.schemas.arrays import Bools, Floats, Words

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

With C the number of intervals with a change, c their lengths, v the lengths of those without, and l the time from the
last change in an interval to the visit at its end:

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
