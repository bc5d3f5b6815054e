"""Settings of a ledger that a user may give: options of the command line, shared by the replay and the stream."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from opicflow.pipelines.ledger import HISTORIES, ORDINARY_CLASS_WEIGHT, ConfigRefused, LedgerConfig, history_name
from opicflow.pipelines.stages.rules import Categories
from opicflow.schemas.pages import KEY_BYTES, PageIds


@dataclass(frozen=True)
class LedgerOptions:
    """Settings of a ledger that a user gave. None keeps the setting of the state, or the default."""

    history: str | None = None
    window_turns: float | None = None
    window_days: float | None = None
    measures: int | None = None
    min_measures: int | None = None
    damping: float | None = None
    remember_links: bool | None = None
    refresh: dict[str, Any] = field(default_factory=dict)
    """Fields of `RefreshConfig`."""
    max_pages: int | None = None
    max_unread_per_host: int | None = None
    domains: dict[str, Any] = field(default_factory=dict)
    """Fields of `DomainLimits`."""

    def over(self, config: LedgerConfig) -> LedgerConfig:
        """Return `config` with these settings. Raises `ConfigRefused` for a setting that is not possible."""
        history = config.history
        if self.history is not None:
            if self.history not in HISTORIES:
                raise ConfigRefused(f"--history {self.history}: give one of {', '.join(HISTORIES)}")
            if not isinstance(history, HISTORIES[self.history]):
                history = HISTORIES[self.history]()
        if None not in (self.window_turns, self.window_days):
            raise ConfigRefused("window-turns, window-days: a history has one window: omit one")
        for name in ("window_turns", "window_days", "measures", "min_measures"):
            value = getattr(self, name)
            if value is not None:
                if name not in {field.name for field in fields(history)}:
                    others = (other for other, kind in HISTORIES.items() if name in {one.name for one in fields(kind)})
                    raise ConfigRefused(
                        f"{name.replace('_', '-')}: the history {history_name(history)} has no window of that kind: "
                        f"omit it, or give --history {', '.join(others)}"
                    )
                history = replace(history, **{name: value})
        names = ("damping", "remember_links", "max_pages", "max_unread_per_host")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(
            config,
            history=history,
            refresh=replace(config.refresh, **self.refresh),
            domains=replace(config.domains, **self.domains),
            **given,
        )


@dataclass(frozen=True)
class CashFocus:
    """Which pages receive more cash: categories, by name, and unread pages."""

    bonus: dict[str, float] = field(default_factory=dict)
    """For each category: the extra cash of a link to one of its pages, as a share of the cash of the link."""
    unread_weight: float | None = None
    """The weight of an unread page in dividends; any other page has the weight 1."""

    def over(self, config: LedgerConfig, categories: Categories) -> LedgerConfig:
        """Return `config` with this focus on these categories. Raises `ConfigRefused` for a value out of range."""
        bonus = [0] * categories.count
        for name, share in self.bonus.items():
            if not 0 <= share <= 1:
                raise ConfigRefused(f"bonus {name}={share:g}: give a share from 0 to 1")
            bonus[category_number(categories, "bonus", name)] = round(1024 * share)
        weight = 1.0 if self.unread_weight is None else self.unread_weight
        if not 0 <= weight <= 1000:
            raise ConfigRefused(f"unread-weight {weight:g}: give a number from 0 to 1000")
        weights = (round(ORDINARY_CLASS_WEIGHT * weight), ORDINARY_CLASS_WEIGHT) * categories.count
        return replace(config, link_bonus_per_1024=tuple(bonus), class_weights=weights)


def default_ledger(
    given: LedgerOptions, focus: CashFocus | None, categories: Categories, config: LedgerConfig | None = None
) -> LedgerConfig:
    """Return `config` with these settings, and the default history, `certified`, if none is given.

    Where an option is not possible with it, such as a window in turns, the history is `interpolation`. Raises
    `ConfigRefused` for settings that are not possible with that either.
    """
    config = config or LedgerConfig()
    if given.history is None:
        with suppress(ConfigRefused):
            return (focus or CashFocus()).over(replace(given, history="certified").over(config), categories)
    return (focus or CashFocus()).over(given.over(config), categories)


def new_page_ids() -> PageIds:
    """Return rules of page ids with a new secret key: of a new stream, a new state, or a new folder of results."""
    return PageIds(key=os.urandom(KEY_BYTES))


def category_number(categories: Categories, option: str, name: str) -> int:
    """Return the number of a category. Raises `ConfigRefused`, which names the option, for an unknown category."""
    try:
        return categories.number(name)
    except ValueError as problem:
        raise ConfigRefused(f"{option}: {problem}") from None
