"""A report about a crawl: `render` makes one HTML page of figures, for people. Pure: same report, same page.

The page stands alone: no script, nothing is loaded, and its content security policy forbids both. Text from pages
and logs is hostile until `_text` or an attribute of `_element` has escaped it: only these make `Html` of strings,
and the type checker refuses a plain string where Html belongs. All that is given is shown: some hundreds of samples and
rows make a page that reads well. A number that is not known (not finite) is a dash, and a gap in a line.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import NewType

from opicflow.pipelines.results.record_columns import SiteTotals

Html = NewType("Html", str)


@dataclass(frozen=True)
class Sample:
    """Where the crawl stood after `events` events, at `time_ms` (0 = not known). `top` is (page id, importance)."""

    events: int
    time_ms: int
    visits: int
    pages: int
    pages_read: int
    idle_share: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class TopPage:
    """One of the most important pages. `trend_per_day` is the change of importance a day.

    `measured` is False while the importance still rests on the default history of a new page.
    """

    page: int
    url: str
    importance: float
    score: float
    trend_per_day: float
    visits: int
    last_outcome: str
    measured: bool


@dataclass(frozen=True)
class Report:
    """The content of a report; `samples` in the order of the crawl, `top` and `hosts` the most important first.

    `summary` is shown key by key, known or not. `score_counts` are bins (from score, to score, pages), best of equal
    width on a log scale. `idle` has for each last outcome the share of all cash that waits on such pages. `rejects`
    counts by reason; `reject_examples` are (reason, where, excerpt). `notes` are sentences for the user.
    """

    title: str
    summary: dict[str, int | float | str]
    samples: tuple[Sample, ...]
    top: tuple[TopPage, ...]
    hosts: tuple[SiteTotals, ...]
    score_counts: tuple[tuple[float, float, int], ...]
    idle: dict[str, float]
    rejects: dict[str, int]
    reject_examples: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def render(report: Report) -> str:
    """The report as one HTML page that needs nothing else, and can always be encoded as UTF-8."""
    title = report.title if report.title.strip() else "Crawl report"
    parts = (_header(report, title), _distribution(report), _discovery(report), _movement(report), _idle(report))
    main = _element("main", *parts, _top_pages(report), _hosts(report), _rejects(report))
    return f"{_HEAD}{_element('title', _text(title))}<style>{_STYLE}</style></head>\n<body>{main}</body></html>\n"


# Html


def _text(text: str) -> Html:
    r"""Text, escaped; control, format (bidi overrides, zero width) and unassigned characters and lone surrogates show.

    >>> _text("<a>\t\u202e\ud800")
    '&lt;a&gt;\\t\\u202e\\ud800'
    """
    return Html(html.escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in text)))


def _element(name: str, *content: Html, **attributes: str) -> Html:
    """An element. Attributes are escaped; `class_` names class, `aria_label` aria-label."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{written}>{''.join(content)}</{name}>")


def _long(text: str, most: int) -> Html:
    """Text of any length and direction: the middle of a long one is left out, and shown by its tooltip."""
    if len(text) <= most:
        return _element("bdi", _text(text))
    head = most * 2 // 3
    return _element("bdi", _text(f"{text[:head]}…{text[head + 1 - most :]}"), title=text)


def _link(url: str, most: int) -> Html:
    """A URL as text; also a link to that URL if its scheme is http or https."""
    shown = _long(url, most)
    if not (url.startswith(("http://", "https://")) and url.isprintable()):
        return shown
    return _element("a", shown, href=url, rel="noopener noreferrer nofollow")


def _section(heading: str, *content: Html, class_: str = "wide") -> Html:
    lead = _element("p", _text(_LEADS[heading]))
    return _element("section", _element("h2", _text(heading)), lead, *content, class_=class_)


def _nothing(sentence: str) -> Html:
    return _element("p", _text(sentence), class_="nothing")


def _table(label: str, columns: Sequence[str], rows: Iterable[Sequence[Html]], nothing: str) -> Html:
    """A table that scrolls by itself where it is too wide. A column whose name begins with # holds numbers."""
    body = [_element("tr", *row) for row in rows]
    if not body:
        return _nothing(nothing)
    kinds = [(name.lstrip("#"), "number" if name.startswith("#") else "words") for name in columns]
    heads = [_element("th", _text(name), scope="col", class_=kind) for name, kind in kinds]
    table = _element("table", _element("thead", _element("tr", *heads)), _element("tbody", *body))
    return _element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _name(content: Html) -> Html:
    return _element("th", content, scope="row", class_="words")


def _figure(shown: str) -> Html:
    return _element("td", _text(shown), class_="number")


def _bar(shown: str, value: float, most: float) -> Html:
    """A number on a bar that fills the cell when the value is the most."""
    width = min(value / most, 1.0) if value and _is_drawable(value) else 0.0
    return _element("td", _text(shown), class_="number bar", style=f"--share:{100 * width:.1f}%")


# Numbers


def _is_drawable(value: float) -> bool:
    """Can it be placed on an axis? False for NaN, and far from where products overflow or vanish."""
    return value == 0 or 1e-100 <= value < 1e100


def _most(values: Iterable[float]) -> float:
    """The greatest value, for a scale from 0: 1 where there is none above 0."""
    return float(max(filter(_is_drawable, values), default=0)) or 1.0


def _number(value: float) -> str:
    """A number to read: all digits of an int, three or more of a float.

    >>> [_number(value) for value in (1234567, 1234.5, 0.012345, 2e-7, float("nan"))]
    ['1,234,567', '1,234', '0.0123', '2·10⁻⁷', '—']
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "—"
    if value and not 1e-4 <= abs(value) < 1e15:
        mantissa, exponent = f"{value:.2e}".split("e")
        power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{float(mantissa):g}·10{power}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{_number(100.0 * share)} %" if math.isfinite(100.0 * share) else "—"


def _short(value: float) -> str:
    """A tick of an axis, in few characters.

    >>> [_short(value) for value in (0.0, 0.05, 500.0, 20_000.0, 5e6, 2e-7)]
    ['0', '0.05', '500', '20 k', '5 M', '2·10⁻⁷']
    """
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= value < 1e15:
            return f"{value / unit:.3g} {letter}"
    return _number(value)


# Plots

_WIDTH, _HEIGHT = 480.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 452.0, 26.0, 238.0
_LABEL = 14.0
_LINES = 10


@dataclass(frozen=True)
class _Axis:
    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False
    shown: Callable[[float], str] = _short

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1; NaN where it cannot be drawn."""
        if not _is_drawable(value) or (self.is_log and value == 0):
            return math.nan
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _steps(low: float, high: float) -> list[float]:
    """1, 2, 5 and their multiples by powers of ten, from one at or below `low` to one above `high`."""
    decades = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    return [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]


def _linear(
    title: str, values: Iterable[float], least_step: float = 1.0, shown: Callable[[float], str] = _short
) -> _Axis:
    """An axis from 0 to the greatest value, with at most six ticks."""
    high = _most(values)
    step = max(least_step, min(step for step in _steps(high / 5, high / 5) if step >= high / 5))
    return _Axis(title, 0.0, high, tuple(step * i for i in range(int(high / step + 1e-9) + 1)), shown=shown)


def _log(title: str, values: Iterable[float]) -> _Axis:
    """An axis around all values above 0, with at most seven ticks."""
    known = [float(value) for value in values if _is_drawable(value) and value > 0] or [1.0]
    steps = _steps(min(known), max(known))
    low = max(step for step in steps if step <= min(known))
    high = min(step for step in steps if step >= max(known) and step > low)
    ticks = [step for step in steps if low <= step <= high]
    if len(ticks) > 6:
        decades = [step for step in steps[::3] if low <= step <= high]
        ticks = decades[:: -(-len(decades) // 7)]
    return _Axis(title, low, high, tuple(ticks), is_log=True)


@dataclass(frozen=True)
class _Plot:
    x: _Axis
    y: _Axis

    def point(self, x: float, y: float) -> tuple[float, float]:
        return _LEFT + (_RIGHT - _LEFT) * self.x.share(x), _BOTTOM - (_BOTTOM - _TOP) * self.y.share(y)

    def line(self, points: Iterable[tuple[float, float]], class_: str, title: str) -> Html:
        """A line through the points, with a gap where one cannot be drawn; a point between gaps is a dash."""
        runs: list[list[str]] = [[]]
        for x, y in (self.point(*one) for one in points):
            if not math.isnan(x + y):
                runs[-1].append(f"{x:.1f},{y:.1f}")
            elif runs[-1]:
                runs.append([])
        path = "".join(f"M{'L'.join(run)}" if len(run) > 1 else f"M{run[0]}m-4,0h8" for run in runs if run)
        return _element("g", _element("title", _text(title)), _element("path", d=path), class_=f"line {class_}")

    def figure(self, label: str, *marks: Html, legend: Sequence[tuple[str, str]] = ()) -> Html:
        """The marks on their axes. `label` describes them to people who cannot see; `legend` is (class, name)."""
        grid = [_text_at(0.0, 12.0, self.y.title, "start"), _text_at(_RIGHT, _HEIGHT - 5.0, self.x.title, "end")]
        for tick in filter(_is_drawable, self.y.ticks):
            y = _BOTTOM - (_BOTTOM - _TOP) * self.y.share(tick)
            grid.append(_element("path", d=f"M{_LEFT:.1f},{y:.1f}H{_RIGHT:.1f}", class_="grid"))
            grid.append(_text_at(_LEFT - 7.0, y + 4.0, self.y.shown(tick), "end"))
        for tick in filter(_is_drawable, self.x.ticks):
            x = _LEFT + (_RIGHT - _LEFT) * self.x.share(tick)
            grid.append(_element("path", d=f"M{x:.1f},{_BOTTOM:.1f}v5", class_="grid"))
            grid.append(_text_at(x, _BOTTOM + 19.0, self.x.shown(tick), "middle"))
        box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
        plot = _element("svg", *grid, *marks, viewBox=box, class_="plot", role="img", aria_label=label)
        names = [_element("span", _swatch(class_), _text(name)) for class_, name in legend]
        return _element("figure", plot, *([_element("figcaption", *names)] if names else []))


def _text_at(x: float, y: float, text: str, anchor: str, class_: str = "axis") -> Html:
    return _element("text", _text(text), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def _swatch(class_: str) -> Html:
    line = _element("g", _element("path", d="M0,5H24"), class_=f"line {class_}")
    return _element("svg", line, viewBox="0 0 24 10", class_="swatch", aria_hidden="true")


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights for labels near those given, none nearer to another than a label is high, all inside the plot."""
    placed = list(heights)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    for above, below in pairwise(order):
        placed[below] = max(placed[below], placed[above] + _LABEL)
    lowest = _BOTTOM
    for label in reversed(order):
        placed[label] = min(placed[label], lowest)
        lowest = placed[label] - _LABEL
    return placed


# Sections

_LEADS = {
    "Importance": "How many pages have which score: an even fall to the right is what a web looks like, a narrow hump "
    "means that pages do not differ yet, and single bars far to the right may be link farms.",
    "Discovery": "Pages known and pages read: where known pages flatten, most of what can be reached has been seen; "
    "where read pages flatten early, visits go to the same pages again.",
    "Movement": "Importance of the final top pages while the crawl ran: flat lines have settled, crossing ones still "
    "change ranks, and a line has a gap where its page was not among the top.",
    "Idle cash": "Cash that waits on pages which cannot pass it on, over the crawl and now by last outcome: the less "
    "the better, since importance is measured by the cash that moves.",
    "Top pages": "Importance sums to 1 over all pages, and a score of 1 is an average page: trust many visits and a "
    "small trend, and wait where the table shows “default history”: such a page is not measured yet.",
    "Top hosts": "Hosts by the importance of their pages: much on few pages is a good find, little on very many may be "
    "a trap, and a host of which few pages were read is not known well.",
    "Rejects": "What could not be used, by reason, with examples of the original bytes: none is best, and many of one "
    "kind mean that the crawl log has records that opicflow does not understand.",
}


def _header(report: Report, title: str) -> Html:
    figures = [
        (key, _long(value, 60) if isinstance(value, str) else _text(_number(value)))
        for key, value in report.summary.items()
    ]
    tiles = [
        _element("div", _element("dt", _text(key.replace("_", " "))), _element("dd", shown)) for key, shown in figures
    ]
    notes = [_element("li", _long(note, 2_000)) for note in report.notes]
    sentences = (_period(report.samples), _account(report.summary), _accuracy(report.summary))
    return _element(
        "header",
        _element("h1", _long(title, 200)),
        _element("p", _text(" ".join(filter(None, sentences)))),
        _element("dl", *tiles) if tiles else _nothing("There are no figures."),
        _element("ul", *notes, class_="notes") if notes else Html(""),
        class_="wide",
    )


def _period(samples: Sequence[Sample]) -> str:
    times = [sample.time_ms for sample in samples if 0 < sample.time_ms < 253_402_300_800_000]  # before the year 10000
    if not times:
        return "When the crawl ran is not known."
    ends = (datetime.fromtimestamp(time_ms // 1000, timezone.utc) for time_ms in (min(times), max(times)))
    return "Crawled from {:%Y-%m-%d} to {:%Y-%m-%d} (UTC).".format(*ends)


def _account(summary: dict[str, int | float | str]) -> str:
    """A sentence on whether the counts add up, if they are there."""
    read = summary.get("events_read")
    parts = [summary.get(key) for key in ("visits", "announcements", "rejects", "duplicates")]
    counts = [part for part in parts if isinstance(part, int)]
    if not isinstance(read, int) or len(counts) < len(parts):
        return ""
    lost = read - sum(counts)
    verdict = f"not so, {_number(lost)} are missing: please report this" if lost else "all are accounted for"
    return f"Events read = visits + announcements + rejects + duplicates: {verdict}."


def _accuracy(summary: dict[str, int | float | str]) -> str:
    """A sentence on how near importance is to the exact ranks, if that is known."""
    certificate = summary.get("certificate")
    if not isinstance(certificate, float) or not math.isfinite(certificate):
        return ""
    return f"Importance is {certified_in_words(certificate)}."


def certified_in_words(certificate: float) -> str:
    """How near importance is to the exact ranks, in words; rounded up, because it is a bound."""
    if certificate >= 2:  # the largest distance that there can be
        return "not proven to be near the exact ranks yet (certified)"
    return f"within {math.ceil(certificate * 1e6) / 1e4:g} % of the exact ranks of the graph seen (certified)"


def _distribution(report: Report) -> Html:
    bins = [
        (low if _is_drawable(low) and low > 0 else high / 2, high, pages)
        for low, high, pages in report.score_counts
        if low < high and pages > 0 and high > 0 and all(map(_is_drawable, (high / 2, high, pages)))
    ]
    if not bins:
        return _section("Importance", _nothing("No page has a score above 0."), class_="half")
    most = _log("pages", [1, *(pages for _, _, pages in bins)])
    counts = _Axis("pages", 0.5, most.high, most.ticks, is_log=True)  # from a half, so that a bar of one page is seen
    plot = _Plot(
        _log("score (1 = an average page)", [1.0, *(edge for low, high, _ in bins for edge in (low, high))]), counts
    )
    average = plot.line([(1.0, 0.5), (1.0, most.high)], "colour1 dashed", "an average page")
    marks = [*(_histogram_bar(plot, *one) for one in bins), average]
    label = "Histogram: number of pages by score, both on log scales."
    drawn = plot.figure(label, *marks, legend=[("colour1 dashed", "an average page")])
    return _section("Importance", drawn, class_="half")


def _histogram_bar(plot: _Plot, low: float, high: float, pages: int) -> Html:
    (left, top), (right, _) = plot.point(low, pages), plot.point(high, pages)
    title = _element("title", _text(f"score {_number(low)} to {_number(high)}: {_number(pages)} pages"))
    size = {"width": f"{max(right - left - 1.0, 0.5):.1f}", "height": f"{_BOTTOM - top:.1f}"}
    return _element("rect", title, x=f"{left:.1f}", y=f"{top:.1f}", class_="colour0", **size)


def _discovery(report: Report) -> Html:
    if not report.samples:
        return _section("Discovery", _nothing("No samples were taken."), class_="half")
    known = [(sample.visits, sample.pages) for sample in report.samples]
    read = [(sample.visits, sample.pages_read) for sample in report.samples]
    plot = _Plot(_linear("visits", (x for x, _ in known)), _linear("pages", (y for _, y in [*known, *read])))
    legend = [("colour0", "pages known"), ("colour1 dashed", "pages read")]
    lines = [plot.line(points, *one) for points, one in zip((known, read), legend, strict=True)]
    drawn = plot.figure("Line plot: pages known and pages read against visits.", *lines, legend=legend)
    return _section("Discovery", drawn, class_="half")


def _movement(report: Report) -> Html:
    top = report.top[:_LINES]
    if not (top and report.samples):
        return _section("Movement", _nothing("There are no samples or no top pages."))
    then = [(sample.events, dict(sample.top)) for sample in report.samples]
    lines = [[(events, rates.get(one.page, math.nan)) for events, rates in then] for one in top]
    plot = _Plot(_linear("visits", (x for x, _ in then)), _log("importance", (y for line in lines for _, y in line)))
    # Ten lines differ by five colours, two kinds of line, and their ranks at the end.
    classes = [f"colour{i % 5}{' dashed' * (i >= 5)}" for i in range(len(top))]
    names = [f"{rank}: {one.url}" for rank, one in enumerate(top, 1)]
    marks = [plot.line(*one) for one in zip(lines, classes, names, strict=True)]
    ends = {i: height for i, line in enumerate(lines) if not math.isnan(height := plot.point(*line[-1])[1])}
    for i, height in zip(ends, _apart(list(ends.values())), strict=True):
        marks.append(_text_at(_RIGHT + 8.0, height + 4.0, str(i + 1), "start", f"rank {classes[i]}"))
    drawn = plot.figure("Line plot: importance of the final top pages, listed beside it, against visits.", *marks)
    pages = [_element("li", _swatch(class_), _link(one.url, 90)) for class_, one in zip(classes, top, strict=True)]
    return _section("Movement", _element("div", drawn, _element("ol", *pages), class_="beside"))


def _idle(report: Report) -> Html:
    most = _most(report.idle.values())
    outcomes = sorted(report.idle.items(), key=lambda item: (-item[1] if _is_drawable(item[1]) else 0.0, item[0]))
    rows = [[_name(_long(outcome, 60)), _bar(_percent(share), share, most)] for outcome, share in outcomes]
    now = _table("Idle cash by last outcome", ["last outcome", "#share of all cash"], rows, "No cash is idle.")
    over = _nothing("No samples were taken.")
    if report.samples:
        points = [(sample.events, sample.idle_share) for sample in report.samples]
        shares = _linear("idle cash", (y for _, y in points), least_step=0.0, shown=_percent)
        plot = _Plot(_linear("visits", (x for x, _ in points)), shares)
        line = plot.line(points, "colour0", "share of all cash that is idle")
        over = plot.figure("Line plot: share of all cash that is idle, against visits.", line)
    return _section("Idle cash", _element("div", over, now, class_="beside"))


def _top_pages(report: Report) -> Html:
    most = _most(one.importance for one in report.top)
    rows = [
        [
            _figure(str(rank)),
            _name(Html(_link(one.url, 160) + ("" if one.measured else _element("small", _text("default history"))))),
            _bar(_number(one.importance), one.importance, most),
            _figure(_number(one.score)),
            _figure(_trend(one)),
            _figure(_number(one.visits)),
            _element("td", _long(one.last_outcome, 40), class_="words"),
        ]
        for rank, one in enumerate(report.top, 1)
    ]
    columns = ["#rank", "page", "#importance", "#score", "#trend a day", "#visits", "last outcome"]
    return _section("Top pages", _table("Top pages", columns, rows, "There are no pages."))


def _trend(one: TopPage) -> str:
    """The change a day as a share of the importance itself."""
    relative = one.trend_per_day / one.importance if one.importance > 0 else math.nan
    if not abs(relative) < 1:  # it came in with the first pages, or is about to vanish: that is no trend yet
        return "—"
    return "→ steady" if abs(relative) < 0.0005 else f"{'↑' if relative > 0 else '↓'} {_percent(abs(relative))}"


def _hosts(report: Report) -> Html:
    most = _most(one.importance for one in report.hosts)
    rows = [
        [
            _name(_long(one.site, 80)),
            _bar(_number(one.importance), one.importance, most),
            _figure(_number(one.pages or 0)),
            _bar(_number(one.read or 0), one.read or 0, max(one.pages or 0, 1)),
        ]
        for one in report.hosts
    ]
    columns = ["host", "#importance", "#pages", "#read"]
    return _section("Top hosts", _table("Top hosts", columns, rows, "There are no hosts."))


def _rejects(report: Report) -> Html:
    most = _most(report.rejects.values())
    reasons = sorted(report.rejects.items(), key=lambda item: (-item[1], item[0]))
    rows = [[_name(_long(reason, 60)), _bar(_number(count), count, most)] for reason, count in reasons]
    counts = _table("Rejects by reason", ["reason", "#rejects"], rows, "Nothing was rejected.")
    rows = [
        [_name(_long(reason, 60)), _name(_long(where, 80)), _element("td", _element("code", _long(excerpt, 400)))]
        for reason, where, excerpt in report.reject_examples
    ]
    examples = _table("Examples of rejects", ["reason", "where", "excerpt"], rows, "There are no examples.")
    return _section("Rejects", counts, examples)


_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
"""

# The colours are Okabe and Ito's, darkened or lightened until they have a contrast of 3 (text: 4.5) on their ground.
_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1b1e21;--soft:#596067;--rule:#dcdfe2;--tint:#d3e6f4;--link:#0b588c;
--mark:#fbf1dc;--colour0:#0072b2;--colour1:#c24e00;--colour2:#00795a;--colour3:#a8478a;--colour4:#646b73}
@media screen and (prefers-color-scheme:dark){:root{--ground:#15181b;--ink:#e4e6e8;--soft:#a2a9b0;--rule:#353b41;
--tint:#1e405a;--link:#8cc6f2;--mark:#35290f;--colour0:#56b4e9;--colour1:#f0913c;--colour2:#3ecba0;--colour3:#e493c6;
--colour4:#b4bac1}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1160px;margin:0 auto;padding:24px 16px 48px;display:grid;grid-template-columns:1fr 1fr;gap:32px 40px}
main>*,.beside>*{min-width:0}.wide{grid-column:1/-1}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;overflow-wrap:anywhere}h2{font-size:18px;margin:0 0 4px}
p{margin:0 0 12px}
section{border-top:1px solid var(--rule);padding-top:14px}section p,figcaption,dt,small{color:var(--soft)}
section>p{max-width:90ch}.nothing{font-style:italic}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(148px,1fr));gap:10px 16px;margin:0 0 16px}
dl>div{border-left:3px solid var(--tint);padding-left:9px;overflow-wrap:anywhere}dt{font-size:13px}
dd{margin:0;font-size:19px;font-variant-numeric:tabular-nums}
.notes{margin:0;padding:10px 12px 10px 30px;background:var(--mark);overflow-wrap:anywhere}
figure{margin:0;min-width:0}.plot{display:block;width:100%;height:auto}figcaption span{margin-right:18px}
.swatch{width:24px;height:10px;margin-right:6px}.beside{display:grid;grid-template-columns:1fr 1fr;gap:16px 40px}
ol{margin:0;padding-left:26px;font-size:14px}li{margin-bottom:5px}
.axis{font-size:12px;fill:var(--soft)}.grid{stroke:var(--rule)}.rank{font-size:12px;font-weight:600;fill:currentColor}
.line path{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.line:hover path{stroke-width:4}
rect{fill:currentColor}.dashed path{stroke-dasharray:5 3}
.colour0{color:var(--colour0)}.colour1{color:var(--colour1)}.colour2{color:var(--colour2)}.colour3{color:var(--colour3)}
.colour4{color:var(--colour4)}
.scroll{overflow-x:auto;margin-bottom:16px}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:5px 10px;text-align:left;vertical-align:top;font-weight:400;border-bottom:1px solid var(--rule)}
thead th{color:var(--soft);font-size:13px;white-space:nowrap}.number{text-align:right;white-space:nowrap}
td.number{font-variant-numeric:tabular-nums}tbody .words{min-width:110px;overflow-wrap:anywhere}
.bar{background:linear-gradient(to right,var(--tint) var(--share),transparent 0);min-width:110px;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
a{color:var(--link);text-decoration:none}a:hover,a:focus{text-decoration:underline}
small{font-size:12px;margin-left:8px;padding:0 5px;border:1px solid var(--rule);border-radius:3px;white-space:nowrap}
code{font-size:13px;overflow-wrap:anywhere}a,ol{word-break:break-all}
@media screen and (max-width:760px){main,.beside{grid-template-columns:minmax(0,1fr)}main{gap:24px}
.axis,.rank{font-size:14px}
tbody th.words{min-width:190px}}
@media print{section,tr,figure{break-inside:avoid}.scroll{overflow:visible}main{padding:0;max-width:none}}
"""
