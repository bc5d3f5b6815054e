"""Plots of tables, as PNG and SVG. The same table gives the same bytes with the same version of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from opicflow.pipelines.lab.experiments.tables import Rows, distinct, mean, spread

mpl.use("Agg")
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

_INK, _FAINT, _GRID = "#24292f", "#57606a", "#d8dee4"
_COLOURS = (
    "#0b5cad",
    "#b35900",
    "#1a7f37",
    "#8250df",
    "#cf222e",
    "#6e7781",
    "#0f7b86",
    "#9a6700",
    "#bf3989",
    "#24292f",
)
_MARKERS = "osD^vPXh*d"
_MARKED = 12
"""About the number of points that are marked on a line of many."""


@dataclass(frozen=True)
class Curve:
    """A line of a plot: its name, its points, and how far runs lie from each. Points that are `loose` have no line."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    spreads: Sequence[float] = ()
    loose: bool = False


def curve_of(rows: Rows, name: str, x: str, y: str) -> Curve:
    """Return a line through the means of a column, for each value of another one."""
    xs = [float(value) for value in distinct(rows, x)]
    ys = [mean(rows, y, **{x: value}) for value in distinct(rows, x)]
    return Curve(name, xs, ys, [spread(rows, y, **{x: value}) for value in distinct(rows, x)])


@dataclass(frozen=True)
class Plot:
    """A plot: its texts and its lines. `log` names the logarithmic axes: "x", "y" or "xy"."""

    name: str
    title: str
    x: str
    y: str
    lines: Sequence[Curve]
    log: str = ""
    ticks: Sequence[float] = ()

    def write(self, folder: Path) -> None:
        """Write it as NAME.png and NAME.svg."""
        settings = mpl.rc_context(
            {
                "svg.hashsalt": self.name,
                "svg.fonttype": "none",
                "font.family": "sans-serif",
                "font.sans-serif": ["DejaVu Sans"],
                "font.size": 10.0,
            }
        )
        with settings:
            figure = Figure(figsize=(8.0, 4.8), dpi=120, layout="constrained")
            axes = figure.add_subplot()
            for number, line in enumerate(self.lines):
                colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
                if line.loose:
                    axes.scatter(
                        line.xs,
                        line.ys,
                        label=line.name,
                        s=14,
                        alpha=0.5,
                        linewidths=0,
                        zorder=3,
                        c=colour,
                        marker=marker,
                    )
                    continue
                every = max(1, len(line.xs) // _MARKED)
                axes.plot(
                    line.xs, line.ys, label=line.name, color=colour, marker=marker, lw=1.8, ms=4.5, markevery=every
                )
                if any(line.spreads):
                    low = [y - half for y, half in zip(line.ys, line.spreads, strict=True)]
                    high = [y + half for y, half in zip(line.ys, line.spreads, strict=True)]
                    axes.fill_between(line.xs, low, high, color=colour, alpha=0.12, linewidth=0)
            if "x" in self.log:
                axes.set_xscale(
                    "symlog", linthresh=min((x for line in self.lines for x in line.xs if x > 0), default=1)
                )
            if "y" in self.log:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.yaxis.set_minor_formatter(NullFormatter())
            if self.ticks:
                axes.set_xticks(self.ticks, [f"{tick:g}" for tick in self.ticks])
                axes.minorticks_off() if "x" in self.log else None
            axes.set_title(self.title, loc="left", color=_INK, fontsize=12, fontweight="semibold")
            axes.set_xlabel(self.x, color=_FAINT)
            axes.set_ylabel(self.y, color=_FAINT)
            axes.grid(color=_GRID, linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors=_FAINT)
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{self.name}.png", metadata={"Software": None})
            figure.savefig(folder / f"{self.name}.svg", metadata={"Date": None, "Creator": None})
