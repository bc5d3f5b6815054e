"""How a ledger counts: its history policy, damping, classes and clocks. Frozen, with units in the names.

A configuration is part of what a log means, so it enters a ledger at its birth, travels in every snapshot, and
changes afterwards only through a `PolicyEntry` of the log.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from opicflow.pipelines.ledger.errors import ConfigRefused

UNITS_PER_PAGE = 1 << 24
"""Cash minted with every page. Integer cash makes conservation exact (docs/decisions/integer-cash.md)."""

ORDINARY_LINK_WEIGHT = 1024
ORDINARY_CLASS_WEIGHT = 16
MOST_MEASURES = 16
"""Measures a page keeps at most under the window policies."""
MOST_CATEGORIES = 127


@dataclass(frozen=True)
class All:
    """OPIC for a web that does not change: the sum of everything a page ever earned."""


@dataclass(frozen=True)
class Fixed:
    """The paper's fixed window: the measures of the last `window_turns`, sixteen a page at most."""

    window_turns: float = 8.0
    window_days: float | None = None


@dataclass(frozen=True)
class ImprovedFixed:
    """The paper's improved fixed window: as `Fixed`, but never fewer than `min_measures` measures."""

    window_turns: float = 8.0
    window_days: float | None = None
    min_measures: int = 3


@dataclass(frozen=True)
class Variable:
    """The paper's variable window: the last `measures` measures, however old."""

    measures: int = 8


@dataclass(frozen=True)
class PaperInterpolation:
    """The paper's interpolation: one number that estimates what the page earned in the last window."""

    window_turns: float = 8.0
    window_days: float | None = None


@dataclass(frozen=True)
class Interpolation:
    """The default: a rate and the span it was measured over, never less than `min_gaps` gaps between visits."""

    window_turns: float = 8.0
    window_days: float | None = None
    min_gaps: float = 2.0


@dataclass(frozen=True)
class Absorbing:
    """The small edge is absorbed instead of paid back. The most exact for a bounded replay; never adapts."""


History = All | Fixed | ImprovedFixed | Variable | PaperInterpolation | Interpolation | Absorbing

HISTORIES: dict[str, type] = {
    "all": All,
    "fixed": Fixed,
    "improved-fixed": ImprovedFixed,
    "variable": Variable,
    "paper-interpolation": PaperInterpolation,
    "interpolation": Interpolation,
    "absorbing": Absorbing,
}
"""The policies by the names that users write."""


@dataclass(frozen=True)
class LedgerConfig:
    """Everything that decides what a ledger makes of its log.

    Classes: a page belongs to a category (0 … categories-1) and is unread or read. `class_weights` holds
    two integers a category, unread then read, 16 = ordinary: how much of a dividend a page of that class draws.
    `link_bonus_per_1024` holds one integer a category: what a link to a page of that category carries on top of
    its share, taken from the virtual account while it lasts.
    """

    history: History = field(default_factory=Interpolation)
    damping: float = 0.85
    class_weights: tuple[int, ...] = (ORDINARY_CLASS_WEIGHT, ORDINARY_CLASS_WEIGHT)
    link_bonus_per_1024: tuple[int, ...] = (0,)
    remember_links: bool = False
    newcomer_history: bool = True
    cut_visits_per_1000_pages: int = 10
    trend_days: float = 7.0

    def __post_init__(self) -> None:
        """Refuse values that make no sense, in one line each."""
        _check_history(self.history)
        _check(
            _is_number(self.damping) and 0 <= self.damping <= 1,
            f"damping is {self.damping!r}: give a share between 0 and 1, usually 0.85",
        )
        categories = len(self.link_bonus_per_1024)
        _check(
            1 <= categories <= MOST_CATEGORIES,
            f"link_bonus_per_1024 has {categories} values: give one a category, 1 to {MOST_CATEGORIES}",
        )
        check_class_weights(self.class_weights, categories)
        check_link_bonus(self.link_bonus_per_1024, categories)
        _check(
            isinstance(self.cut_visits_per_1000_pages, int) and 1 <= self.cut_visits_per_1000_pages <= 1000,
            f"cut_visits_per_1000_pages is {self.cut_visits_per_1000_pages!r}: give a whole number from 1 to 1000",
        )
        _check(
            _is_number(self.trend_days) and 0 < self.trend_days < math.inf,
            f"trend_days is {self.trend_days!r}: give a positive number of days",
        )

    @property
    def categories(self) -> int:
        """How many categories of pages there are."""
        return len(self.link_bonus_per_1024)

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain values, for a snapshot's manifest."""
        values = dataclasses.asdict(self)
        values["history"] = {"policy": history_name(self.history), **dataclasses.asdict(self.history)}
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LedgerConfig:
        """The configuration that `to_json` wrote; `ConfigRefused` for anything else."""
        try:
            fields = dict(values)
            history = dict(fields.pop("history"))
            fields["history"] = HISTORIES[history.pop("policy")](**history)
            for name in ("class_weights", "link_bonus_per_1024"):
                fields[name] = tuple(fields[name])
            return cls(**fields)
        except (KeyError, TypeError) as problem:
            raise ConfigRefused(f"not a ledger configuration: {problem!r}") from None


def history_name(history: History) -> str:
    """The name users write for a policy."""
    return next(name for name, policy in HISTORIES.items() if type(history) is policy)


def check_class_weights(weights: tuple[int, ...], categories: int) -> None:
    """Refuse class weights that are not two small whole numbers a category."""
    _check(
        len(weights) == 2 * categories and all(_is_whole(w, 1 << 16) for w in weights) and any(weights),
        f"class_weights is {weights!r}: give {2 * categories} whole numbers from 0 to 65536, not all 0 "
        "(unread, read for each category; 16 = ordinary)",
    )


def check_link_bonus(bonus: tuple[int, ...], categories: int) -> None:
    """Refuse link bonuses that are not one number from 0 to 1024 a category."""
    _check(
        len(bonus) == categories and all(_is_whole(b, 1024) for b in bonus),
        f"link_bonus_per_1024 is {bonus!r}: give {categories} whole numbers from 0 to 1024, one a category",
    )


def _check_history(history: History) -> None:
    _check(
        type(history) in HISTORIES.values(),
        f"history is {history!r}: give one of {', '.join(HISTORIES)}",
    )
    window = getattr(history, "window_turns", 1.0)
    _check(
        _is_number(window) and 0 < window <= 1 << 20,
        f"window_turns is {window!r}: give a positive number of turns, usually 4 to 16",
    )
    days = getattr(history, "window_days", None)
    _check(
        days is None or (_is_number(days) and 0 < days <= 36525),
        f"window_days is {days!r}: give a positive number of days, usually 30 to 180",
    )
    measures = getattr(history, "measures", 1)
    _check(
        _is_whole(measures, MOST_MEASURES) and measures >= 1,
        f"measures is {measures!r}: give a whole number from 1 to {MOST_MEASURES}",
    )
    fewest = getattr(history, "min_measures", 1)
    _check(
        _is_whole(fewest, MOST_MEASURES) and fewest >= 1,
        f"min_measures is {fewest!r}: give a whole number from 1 to {MOST_MEASURES}",
    )
    gaps = getattr(history, "min_gaps", 1.0)
    _check(
        _is_number(gaps) and 1 <= gaps <= 1024,
        f"min_gaps is {gaps!r}: give a number from 1 to 1024, usually 2",
    )


def _check(sensible: bool, message: str) -> None:
    if not sensible:
        raise ConfigRefused(message)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
