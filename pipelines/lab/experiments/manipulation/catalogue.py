"""The experiment on manipulation: its tasks and tables."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.experiment import Experiment, ResultTable, no_plots
from opicflow.pipelines.lab.experiments.manipulation import claims
from opicflow.pipelines.lab.experiments.manipulation.gains import (
    CERTIFIED,
    EXACT,
    LIMITED_ANNOUNCED,
    LIMITED_SHARE,
    LIMITED_UNREAD,
    MARKS,
    NO_INTERNAL,
    NO_UNREAD,
)
from opicflow.pipelines.lab.experiments.manipulation.ordered_pages import DEFAULT, MOMENTS, SETTINGS
from opicflow.pipelines.lab.experiments.manipulation.schemes import CYCLE, FARM, SCHEMES, SUBDOMAINS
from opicflow.pipelines.lab.experiments.tables import Rows, markdown, mean, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask

PAGES, RUNS = 10_000, 3
SIZES, LIMITED = (10, 100, 1_000, 5_000), 1_000
"""The pages that a manipulator makes; and those with which the limits of orders are compared."""
_HISTORIES = (EXACT, CERTIFIED, "interpolation", "variable", "all")
_SHOWN = [scheme for scheme in SCHEMES if scheme != SUBDOMAINS]
"""Subdomains gain the importance that a farm does."""
_LAST = max(MARKS)


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    gains = [
        MeasureTask.of("manipulation_gains", pages=pages, seed=seed, scheme=scheme, size=size)
        for seed in seeds
        for scheme in SCHEMES
        for size in SIZES
    ]
    return gains + [
        MeasureTask.of(
            "manipulation_orders", pages=pages, seed=seed, scheme=scheme, size=size, setting=setting, moment=moment
        )
        for seed in seeds
        for moment in MOMENTS
        for scheme in SCHEMES
        for setting in SETTINGS
        for size in (SIZES if setting == DEFAULT else (LIMITED,))
    ]


def _tables(rows: Rows) -> list[ResultTable]:
    return [
        _of_target(rows),
        _of_all(rows),
        _of_speed(rows),
        _of_options(rows),
        _of_trust(rows),
        _of_orders_by_size(rows),
        *(_of_orders(rows, moment) for moment in MOMENTS),
    ]


def _percent(value: float) -> str:
    return f"{value:.2g}" if value < 9.95 else f"{value:.1f}"


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 9.95 else f"{factor:,.0f}"


def _range(rows: Rows, name: str) -> str:
    values = [float(row[name]) for row in rows]
    return f"{min(values):.2f} to {max(values):.2f}"


def _of_target(rows: Rows) -> ResultTable:
    lines = [
        (scheme, f"{size:,}", *(_share_and_factor(rows, scheme, size, how, _LAST) for how in _HISTORIES))
        for scheme in _SHOWN
        for size in SIZES
    ]
    title = f"The target after {_LAST} rounds: its share of all importance in per cent (times the share before)"
    return ResultTable(title, markdown(("scheme", "k", *_HISTORIES), lines))


def _share_and_factor(rows: Rows, scheme: str, size: int, how: str, number: int) -> str:
    chosen = where(rows, scheme=scheme, size=size, how=how, round=number)
    share, before = mean(chosen, "target"), mean(chosen, "target_before")
    return f"{_percent(share)} ({_times(share / before)})"


def _of_all(rows: Rows) -> ResultTable:
    lines = [
        (scheme, f"{size:,}", *(_percent(_own(rows, scheme, size, how, _LAST)) for how in _HISTORIES))
        for scheme in _SHOWN
        for size in SIZES
    ]
    title = f"All pages of the manipulator after {_LAST} rounds: their share of all importance in per cent"
    return ResultTable(title, markdown(("scheme", "k", *_HISTORIES), lines))


def _own(rows: Rows, scheme: str, size: int, how: str, number: int) -> float:
    return mean(rows, "own", scheme=scheme, size=size, how=how, round=number)


def _of_speed(rows: Rows) -> ResultTable:
    lines = [
        (scheme, number, *(_target_and_all(rows, scheme, how, number) for how in _HISTORIES[1:]))
        for scheme in (FARM, CYCLE)
        for number in MARKS
    ]
    title = f"How soon, with {LIMITED:,} pages that are read: the target / all pages of the manipulator, per cent"
    return ResultTable(title, markdown(("scheme", "rounds", *_HISTORIES[1:]), lines))


def _target_and_all(rows: Rows, scheme: str, how: str, number: int) -> str:
    target = mean(rows, "target", scheme=scheme, size=LIMITED, how=how, round=number)
    return f"{_percent(target)} / {_percent(_own(rows, scheme, LIMITED, how, number))}"


def _of_options(rows: Rows) -> ResultTable:
    how = (CERTIFIED, NO_UNREAD, NO_INTERNAL, LIMITED_SHARE, LIMITED_UNREAD, LIMITED_ANNOUNCED)
    lines = [(scheme, *(_target_and_all(rows, scheme, one, _LAST) for one in how)) for scheme in SCHEMES]
    title = (
        f"Options that change importance, {LIMITED:,} pages, certified: the target / all pages of the manipulator, "
        "per cent"
    )
    heads = ("scheme", "none", NO_UNREAD, f"{NO_INTERNAL} --same-site domain", *how[3:])
    return ResultTable(title, markdown(heads, lines))


def _of_trust(rows: Rows) -> ResultTable:
    lines = []
    for scheme in _SHOWN:
        for size in SIZES:
            chosen = where(rows, scheme=scheme, size=size, how=EXACT)
            trust = mean(chosen, "trust") / mean(chosen, "trust_before")
            importance = mean(chosen, "target") / mean(chosen, "target_before")
            masses = [_range(chosen, name) for name in ("mass_before", "mass")]
            totals = [_percent(mean(chosen, name)) for name in ("own", "trust_own")]
            lines.append((scheme, f"{size:,}", _times(importance), _times(trust), *masses, *totals))
    heads = (
        "scheme",
        "k",
        "importance, times",
        "trust, times",
        "mass before",
        "mass",
        "importance of all, %",
        "trust of all, %",
    )
    return ResultTable("Trust of the target, and of all pages of the manipulator", markdown(heads, lines))


def _of_orders_by_size(rows: Rows) -> ResultTable:
    lines = [
        (scheme, moment, *(_ordered(rows, scheme, size, DEFAULT, moment) for size in SIZES))
        for scheme in SCHEMES
        for moment in MOMENTS
    ]
    heads = ("scheme", "begins", *(f"k = {size:,}" for size in SIZES))
    title = "Orders of the manipulator's pages in twenty days, in per cent of all orders, by default"
    return ResultTable(title, markdown(heads, lines))


def _ordered(rows: Rows, scheme: str, size: int, setting: str, moment: str) -> str:
    return _percent(mean(rows, "own", scheme=scheme, size=size, setting=setting, moment=moment))


def _of_orders(rows: Rows, moment: str) -> ResultTable:
    lines = []
    for setting in SETTINGS:
        shares = [_ordered(rows, scheme, LIMITED, setting, moment) for scheme in SCHEMES]
        honest = mean(rows, "honest", size=LIMITED, setting=setting, moment=moment)
        lines.append((setting, *shares, f"{honest:,.0f}"))
    title = (
        f"The same with {LIMITED:,} pages, where {MOMENTS[moment]:.0%} of the honest pages were read before; and "
        "the honest pages ordered"
    )
    return ResultTable(title, markdown(("setting", *SCHEMES, "honest orders"), lines))


MANIPULATION = Experiment(
    "manipulation",
    "Manipulation",
    "A target is linked by one honest page of median importance, and links back. Then its owner makes k pages. "
    "*Off line* are the exact ranks of the graph seen.",
    "manipulation",
    _tasks,
    no_plots,
    _tables,
    claims.of_manipulation,
    PAGES,
    RUNS,
)
