"""Charts as SVG that needs no script: lines over the crawl, a histogram, bars and small lines in tables.

Lines differ by colour and by dashes, and every chart has its table. A value that is not known is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.view import Bin, Series

_WIDTH, _HEIGHT = 400.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 380.0, 12.0, 172.0
_LABEL = 12.0
_HALF_LETTER = 3.2
_MOST_TICKS = 5
_DAY_MS = 86_400_000


class _Axis(NamedTuple):
    """The values from `low` to `high`, with ticks."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        if self.is_log:
            if not value > 0:
                return math.nan
            low = math.log(self.low)  # a quotient of the smallest and the largest numbers is no number
            return (math.log(value) - low) / (math.log(self.high) - low)
        return (value - self.low) / (self.high - self.low)


def line_chart(
    label: str,
    series: Sequence[Series],
    is_time: bool,
    shown: Callable[[float], str] = wording.short,
    is_log: bool = False,
    x_title: str = "visits",
    are_numbered: bool = False,
) -> Markup:
    """Lines against time, or against visits. `are_numbered`: each line has its number at its end."""
    xs = [x for one in series for x, _ in one.points if _is_drawable(x)]
    ys = [y for one in series for _, y in one.points if _is_drawable(y)]
    if not xs or not ys:
        return Markup("")
    x = _time_axis(min(xs), max(xs)) if is_time else _linear_axis(0.0, max(xs), wording.short)
    y = (
        _log_axis(min((one for one in ys if one > 0), default=1.0), max(ys))
        if is_log
        else _linear_axis(0.0, max(ys), shown)
    )
    marks, ends = [], {}
    for number, one in enumerate(series):
        path, end = _path(one.points, x, y)
        if path:
            marks.append(
                Markup('<g class="line s{}"><title>{}</title><path d="{}"/></g>').format(
                    number % 10, wording.safe(one.name), path
                )
            )
            ends[number] = end
    if are_numbered:
        for number, height in zip(ends, _apart(list(ends.values())), strict=True):
            marks.append(_text(_RIGHT + 5, height + 4, str(number + 1), "start", f"end s{number % 10}"))
    return _figure(label, x, y, marks, "" if is_time else x_title)


def histogram(label: str, bins: Sequence[Bin]) -> Markup:
    """The number of pages in each bin; both axes are logarithmic, and the average page has a line."""
    full = [one for one in bins if one.pages]
    if not full:
        return Markup("")
    x = _log_axis(min(1.0, full[0].low), max(1.0, full[-1].high))
    y = _log_axis(0.5, float(max([2, *(one.pages for one in full)])))
    marks = []
    for one in full:
        left, right, top = _x(x, one.low), _x(x, one.high), _y(y, one.pages)
        name = f"score {wording.number(one.low)} to {wording.number(one.high)}: {wording.number(one.pages)} pages"
        marks.append(
            Markup(
                '<rect class="fill" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
            ).format(left + 0.5, top, max(right - left - 1, 0.5), _BOTTOM - top, name)
        )
    at = _x(x, 1.0)
    marks.append(Markup('<path class="average" d="M{:.1f},{:.1f}V{:.1f}"/>').format(at, _TOP, _BOTTOM))
    marks.append(_text(at + 4, _TOP + 9, "average page", "start"))
    return _figure(label, x, y, marks, "score")


def bar(part: float | None) -> Markup:
    """A bar for a cell of a table: the part of its width that is filled."""
    width = 0.0 if part is None or not math.isfinite(part) else min(max(part, 0.0), 1.0)
    return Markup('<svg class="bar" aria-hidden="true"><rect width="{:.1f}%" height="100%"/></svg>').format(100 * width)


def stack(parts: Sequence[tuple[str, float]]) -> Markup:
    """Parts of a whole side by side, with their names as tooltips; the table beside it has the numbers."""
    rects, at = [], 0.0
    for number, (name, part) in enumerate(parts):
        form = '<rect class="f{}" x="{:.2f}%" width="{:.2f}%" height="100%"><title>{}</title></rect>'
        rects.append(Markup(form).format(number % 5, 100 * at, max(100 * part - 0.4, 0.2), name))
        at += part
    label = ", ".join(f"{name} {wording.percent(part)}" for name, part in parts)
    return Markup('<svg class="stack" role="img" aria-label="{}">{}</svg>').format(label, Markup("").join(rects))


def small_line(points: Sequence[tuple[float, float]]) -> Markup:
    """The history of a number in a cell, from 0 to its greatest value."""
    known = [(x, y) for x, y in points if _is_drawable(x) and _is_drawable(y)]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return Markup("")
    first, last, most = known[0][0], known[-1][0], max(y for _, y in known) or 1.0
    path = "L".join(f"{1 + 78 * (x - first) / (last - first):.1f},{21 - 19 * y / most:.1f}" for x, y in known)
    scale = f"from {min(y for _, y in known):.3g} to {most:.3g}, drawn from 0"
    form = '<svg class="spark" viewBox="0 0 80 22" role="img" aria-label="{}"><title>{}</title><path d="M{}"/></svg>'
    return Markup(form).format(scale, scale, path)


def swatch(number: int) -> Markup:
    """A piece of the line of this number, for a legend."""
    form = '<svg class="swatch" viewBox="0 0 24 8" aria-hidden="true"><g class="line s{}"><path d="M0,4H24"/></g></svg>'
    return Markup(form).format(number % 10)


def box(number: int) -> Markup:
    """A square in the colour of this part, for a legend."""
    form = '<svg class="box" viewBox="0 0 10 10" aria-hidden="true"><rect class="f{}" width="10" height="10"/></svg>'
    return Markup(form).format(number % 5)


def _figure(label: str, x: _Axis, y: _Axis, marks: Sequence[Markup], x_title: str) -> Markup:
    parts = []
    for value, name in y.ticks:
        at = _y(y, value)
        parts.append(Markup('<path class="grid" d="M{:.1f},{:.1f}H{:.1f}"/>').format(_LEFT, at, _RIGHT))
        parts.append(_text(_LEFT - 6, at + 4, name, "end"))
    for value, name in x.ticks:
        at = _x(x, value)
        parts.append(Markup('<path class="grid" d="M{:.1f},{:.1f}v4"/>').format(at, _BOTTOM))
        parts.append(_text(min(at, _RIGHT - 2, _WIDTH - len(name) * _HALF_LETTER), _BOTTOM + 16, name, "middle"))
    if x_title:
        parts.append(_text(_WIDTH - 2, _HEIGHT - 1, x_title, "end"))
    form = '<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}{}</svg>'
    return Markup(form).format(_WIDTH, _HEIGHT, label, Markup("").join(parts), Markup("").join(marks))


def _text(x: float, y: float, text: str, anchor: str, class_: str = "tick") -> Markup:
    form = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>'
    return Markup(form).format(x, y, anchor, class_, escape(text))


def _x(axis: _Axis, value: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * axis.share(value)


def _y(axis: _Axis, value: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * axis.share(value)


def _path(points: Sequence[tuple[float, float]], x: _Axis, y: _Axis) -> tuple[str, float]:
    """The path of a line with gaps, and the height of its end."""
    runs: list[list[str]] = [[]]
    end = math.nan
    for at, value in points:
        if _is_drawable(at) and _is_drawable(value) and not math.isnan(y.share(value)):
            end = _y(y, value)
            runs[-1].append(f"{_x(x, at):.1f},{end:.1f}")
        elif runs[-1]:
            runs.append([])
    path = "".join(f"M{'L'.join(run)}" if len(run) > 1 else f"M{run[0]}m-2,0h4" for run in runs if run)
    return path, end


def _is_drawable(value: float) -> bool:
    return value == 0 or (math.isfinite(value) and 1e-100 < abs(value) < 1e100)


def _steps(high: float) -> list[float]:
    exponent = math.floor(math.log10(high))
    return [digit * 10.0**power for power in range(exponent - 2, exponent + 2) for digit in (1, 2, 5)]


def _linear_axis(low: float, high: float, shown: Callable[[float], str]) -> _Axis:
    high = high if high > low else low + 1
    step = min(one for one in _steps(high - low) if (high - low) / one <= _MOST_TICKS)
    ticks = [low + step * i for i in range(int((high - low) / step + 1e-9) + 1)]
    return _Axis(low, high, [(tick, shown(tick)) for tick in ticks])


def _log_axis(low: float, high: float) -> _Axis:
    high = high if high > low else 10 * low
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9) + 1)
    digits = (1.0, 2.0, 5.0) if len(powers) < 3 else (1.0,)
    steps = [digit * 10.0**power for power in powers for digit in digits]
    ticks = [step for step in steps if low * (1 - 1e-9) <= step <= high * (1 + 1e-9)]
    ticks = ticks[:: -(-len(ticks) // _MOST_TICKS)] if ticks else [low, high]
    return _Axis(low, high, [(tick, wording.short(tick)) for tick in ticks], is_log=True)


def _time_axis(low: float, high: float) -> _Axis:
    """An axis of time; its ticks are dates, with the hour where there are less than two days, or hours of one day."""
    high = high if high > low else low + 1
    is_long = high - low > 2 * _DAY_MS
    month, day, hour = slice(0, 7), slice(5, 10), slice(11, 16)  # of an ISO time
    form = [day] if is_long else [hour] if low // _DAY_MS == high // _DAY_MS else [day, hour]
    if high - low > 400 * _DAY_MS:
        form = [month]
    unit = _DAY_MS if is_long else 3_600_000
    step = unit * max(1, math.ceil((high - low) / unit / (_MOST_TICKS - 1)))
    first = math.ceil(low / unit) * unit
    times: list[float] = [first + i * step for i in range(int((high - first) // step) + 1)] or [low]
    labels = ((at, " ".join(wording.iso(at)[part] for part in form)) for at in times)
    return _Axis(low, high, [(at, label) for at, label in labels if label.strip()])


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights near those given, none nearer to another than a label is high, all inside the chart."""
    placed = list(heights)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    for above, below in pairwise(order):
        placed[below] = max(placed[below], placed[above] + _LABEL)
    lowest = _BOTTOM
    for label in reversed(order):
        placed[label] = min(placed[label], lowest)
        lowest = placed[label] - _LABEL
    return placed
