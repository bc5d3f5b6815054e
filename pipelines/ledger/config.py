"""The configuration of a ledger: history policy, damping, classes, clocks and refreshing.

The same log under another configuration gives another ledger. So a ledger gets its configuration when it is made, every
snapshot holds it, and afterwards only a `PolicyEntry` of the log changes its rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from opicflow.pipelines.ledger.errors import ConfigRefused
from opicflow.pipelines.refresh.orders import DELAY_BOUNDS, PER_HOUR_BOUNDS
from opicflow.pipelines.refresh.rate_prior import PRIORS
from opicflow.pipelines.refresh.rates import ESTIMATORS
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.schemas.shards import MOST_SHARDS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNITS_PER_PAGE = 1 << 24
"""Cash minted with every page. Integer cash makes conservation exact (docs/decisions/cash.md)."""

MOST_CASH = 1 << 62
"""The limit of every amount and every total of a shard: sums of two fit into 64 bits."""

ORDINARY_LINK_WEIGHT = 1024
ORDINARY_CLASS_WEIGHT = 16
SECONDS_PER_DAY = 86400
MOST_MEASURES = 16
"""Measures a page keeps at most under the history policies with a window."""
MOST_CATEGORIES = 127
MOST_CLASS_WEIGHT = 1 << 16
MOST_DAYS = 36525


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
    """A rate and the span it was measured over, never less than `min_gaps` gaps between visits.

    The default of `LedgerConfig`; replays and streams have `Certified`.
    """

    window_turns: float = 8.0
    window_days: float | None = None
    min_gaps: float = 2.0


@dataclass(frozen=True)
class Absorbing:
    """The small edge is absorbed instead of paid back. The most exact for a bounded replay; never adapts."""


@dataclass(frozen=True)
class Certified:
    """Exact ranks of the graph seen, with a bound of their error. Remembers all links.

    Residual cash is pushed on until the certificate is below `tolerance`: with one shard at cuts and ticks, at most
    `pushes_per_visit` times a visit; with several at ticks, at most as often as there are pages. Nothing is forgotten;
    the mean of a page's importance over the last `window_days` is kept, too.
    """

    tolerance: float = 1e-4
    pushes_per_visit: int = 4
    window_days: float = 7.0


History = All | Fixed | ImprovedFixed | Variable | PaperInterpolation | Interpolation | Absorbing | Certified

HISTORIES: dict[str, type] = {
    "all": All,
    "fixed": Fixed,
    "improved-fixed": ImprovedFixed,
    "variable": Variable,
    "paper-interpolation": PaperInterpolation,
    "interpolation": Interpolation,
    "absorbing": Absorbing,
    "certified": Certified,
}
"""The history policies by the names that users write."""


@dataclass(frozen=True)
class RefreshConfig:
    """How pages share the fetches of a day.

    `strategy`, `estimator` and `rate_prior` are names of `refresh.strategies.STRATEGIES`, `refresh.rates.ESTIMATORS`
    and `refresh.rate_prior.PRIORS`.
    `bandwidth_per_day` is all fetches, discovery included; None = as many as the crawl makes. Discovery gets the share
    `discovery_share` while there are enough unread pages; with `AUTO` `LEAST_DISCOVERY`, and more while that is worth
    more than refreshing. `discovery_by` is the order in which it takes them: by worth,
    as learnt from pages that were read; by importance; by waiting cash; or as they were found. Orders are given every
    `cycle_hours`, a page once. With `first_cycle_minutes` a new crawl gets them sooner: its first cycle is so long, and
    each later one as long as the crawl has lasted, until that is `cycle_hours`. No page is refreshed more often than
    every `cycle_hours` or every `shortest_interval_seconds`, nor (bandwidth permitting) more rarely than every
    `longest_interval_days`.
    `host_fetches_per_day` and `host_fetches_per_hour` bound what one host gets; two of its fetches are
    `crawl_delay_seconds` apart. `domain_fetches_per_day` bounds what all hosts of a registrable domain get together,
    and `domain_discovery_share` the part of the orders of discovery that one domain gets. `domain_refreshing` bounds
    what a domain gets of the bandwidth for refreshing because its pages change: so many times its share of importance.
    `traps`: whether pages that bring only more of themselves, or what others have, are limited or treated as others.
    An order that was not answered after `order_timeout_hours` is given again. A page that fails is tried again after
    `retry_hours`, then twice that, and so on up to `longest_retry_days`; one that is gone after `gone_days`, then twice
    that, and so on up to `longest_gone_days`, and is dropped when it was found gone `gone_visits` times in a row over
    at least the time that takes.
    """

    strategy: str = "harmonic"
    estimator: str = "likelihood"
    alpha: float = 0.95
    bandwidth_per_day: float | None = None
    discovery_share: float | str = 0.25
    discovery_by: str = "learnt"
    cycle_hours: float = 24.0
    shortest_interval_seconds: float = 3600.0
    longest_interval_days: float = 365.0
    host_fetches_per_day: float | None = None
    order_timeout_hours: float = 48.0
    retry_hours: float = 6.0
    longest_retry_days: float = 30.0
    gone_days: float = 15.0
    gone_visits: int = 4
    rate_prior: str = "learnt"
    host_fetches_per_hour: float | None = None
    crawl_delay_seconds: float | None = None
    domain_fetches_per_day: float | None = None
    domain_discovery_share: float | None = None
    domain_refreshing: float = 2.0
    first_cycle_minutes: float | None = None
    traps: str = "limited"

    def __post_init__(self) -> None:
        """Refuse values that make no sense, in one line each."""
        for name, choices in (
            ("strategy", STRATEGIES),
            ("estimator", ESTIMATORS),
            ("discovery_by", DISCOVERIES),
            ("rate_prior", PRIORS),
            ("traps", TRAPS),
        ):
            chosen = getattr(self, name)
            _check(isinstance(chosen, str) and chosen in choices, name, chosen, f"one of {', '.join(choices)}")
        share = self.discovery_share
        _check(share == AUTO or _is_number(share, 0, 1), "discovery_share", share, f"a number from 0 to 1, or {AUTO}")
        for name, least, most, may_be_none in _REFRESH_BOUNDS:
            value = getattr(self, name)
            sensible = (may_be_none and value is None) or _is_number(value, least, most)
            _check(sensible, name, value, f"a number from {least:g} to {most:g}")
        _check(is_whole(self.gone_visits, 1, 255), "gone_visits", self.gone_visits, "a whole number from 1 to 255")
        longest = self.longest_interval_days * SECONDS_PER_DAY
        _check(
            self.shortest_interval_seconds <= longest,
            "shortest_interval_seconds",
            self.shortest_interval_seconds,
            f"at most the longest interval, {longest:g} seconds",
        )

    @property
    def longest_gone_days(self) -> float:
        """The longest interval between checks of a gone page: that before the check after which it is dropped."""
        return self.gone_days * 2.0 ** max(self.gone_visits - 2, 0)

    @property
    def seconds_to_be_gone(self) -> float:
        """The shortest time from the visit that found a page gone to its removal: re-checks take so long."""
        return SECONDS_PER_DAY * self.gone_days * float(2 ** (min(self.gone_visits, 64) - 1) - 1)


@dataclass(frozen=True)
class DomainLimits:
    """Limits of the unread pages of one registrable domain, in number and cash; None = no limit.

    No more than `most_unread` are known, and no more than `most_announced` are learnt a day from announcements. Under
    `certified` all these pages together have at most `most_share` of the units that pages are given for being known: of
    the teleport, in the terms of PageRank.
    """

    most_unread: int | None = None
    most_announced: int | None = None
    most_share: float | None = None

    def __post_init__(self) -> None:
        """Refuse values that make no sense, in one line each."""
        for name in ("most_unread", "most_announced"):
            value = getattr(self, name)
            sensible = value is None or is_whole(value, 1, 1 << 40)
            _check(sensible, f"{name} of a domain", value, "a positive whole number")
        share = self.most_share
        _check(share is None or _is_number(share, 1e-6, 0.99), "most_share of a domain", share, "a share below 0.99")

    @property
    def limit_anything(self) -> bool:
        """Whether there is a limit."""
        return self != DomainLimits()


AUTO, LEAST_DISCOVERY = "auto", 0.25
"""A value of the share of discovery, and the least share that discovery then has."""
TRAPS = ("limited", "ignored")
"""The ways to treat traps and twins: few orders, or as many as for other pages."""
DISCOVERIES = ("learnt", "importance", "cash", "found")
"""The values by which discovery may order unread pages: the first found comes first, or the highest value."""

_LASTING = ("estimator", "alpha", "gone_days", "gone_visits")
"""The fields of `RefreshConfig` that observations and removals rest on: they hold for as long as a ledger does."""

_REFRESH_BOUNDS = (
    ("alpha", 0.01, 10, False),
    ("bandwidth_per_day", 1e-3, 1e12, True),
    ("cycle_hours", 1 / 60, 24 * 365, False),
    ("first_cycle_minutes", 1, 60, True),
    ("shortest_interval_seconds", 1, SECONDS_PER_DAY * MOST_DAYS, False),
    ("longest_interval_days", 1 / 24, MOST_DAYS, False),
    ("host_fetches_per_day", 1e-3, 1e12, True),
    ("host_fetches_per_hour", *PER_HOUR_BOUNDS, True),
    ("crawl_delay_seconds", *DELAY_BOUNDS, True),
    ("domain_fetches_per_day", 1e-3, 1e12, True),
    ("domain_discovery_share", 1e-6, 1, True),
    ("domain_refreshing", 1, 1e12, False),
    ("order_timeout_hours", 1, 24 * MOST_DAYS, False),
    ("retry_hours", 1 / 60, 24 * MOST_DAYS, False),
    ("longest_retry_days", 1 / 24, MOST_DAYS, False),
    ("gone_days", 1 / 24, MOST_DAYS, False),
)


@dataclass(frozen=True)
class LedgerConfig:
    """Everything beside the log that a ledger depends on.

    Classes: a page belongs to a category (0 … categories-1) and is unread or read. `class_weights` holds
    two integers a category, unread then read, 16 = ordinary: how much of a dividend a page of that class draws.
    `link_bonus_per_1024` holds one integer a category: what a link to a page of that category carries on top of
    its share, taken from the virtual account while it lasts. The ledger recognises duplicates of at least the last
    `remembered_visits` visits (8 to 32 bytes each), and of the latest visit of every page. If there are more than
    `max_pages`, or a host has more than `max_unread_per_host` pages that were never read, the next tick removes the
    unread pages with the least waiting cash. `domains` limits unread pages by registrable domain. Between ticks so far
    apart, few amounts wait before they are sent to another shard; with `cut_seconds` 0 every tick sends a message to
    every shard.
    """

    history: History = field(default_factory=Interpolation)
    damping: float = 0.85
    class_weights: tuple[int, ...] = (ORDINARY_CLASS_WEIGHT, ORDINARY_CLASS_WEIGHT)
    link_bonus_per_1024: tuple[int, ...] = (0,)
    remember_links: bool = False
    newcomer_history: bool = True
    cut_visits_per_1000_pages: int = 10
    remembered_visits: int = 1 << 20
    refresh: RefreshConfig = field(default_factory=RefreshConfig)
    max_pages: int | None = None
    max_unread_per_host: int | None = None
    domains: DomainLimits = field(default_factory=DomainLimits)
    cut_seconds: int = 0

    def __post_init__(self) -> None:
        """Refuse values that make no sense, in one line each."""
        _check_history(self.history)
        check_damping(self.damping)
        check_link_bonus(self.link_bonus_per_1024)
        check_class_weights(self.class_weights, self.categories)
        for option in ("remember_links", "newcomer_history"):
            _check(type(getattr(self, option)) is bool, option, getattr(self, option), "True or False")
        _check(
            is_whole(self.cut_visits_per_1000_pages, 1, 1000),
            "cut_visits_per_1000_pages",
            self.cut_visits_per_1000_pages,
            "a whole number from 1 to 1000",
        )
        _check(
            is_whole(self.remembered_visits, 0, 1 << 30),
            "remembered_visits",
            self.remembered_visits,
            "a whole number from 0 to 2^30",
        )
        _check(is_whole(self.cut_seconds, 0, 3600), "cut_seconds", self.cut_seconds, "whole seconds from 0 to 3600")
        if isinstance(self.history, Certified):
            check_certified_rules(self.damping, self.link_bonus_per_1024)
            object.__setattr__(self, "remember_links", True)
        _check(type(self.refresh) is RefreshConfig, "refresh", self.refresh, "a RefreshConfig")
        for name in ("max_pages", "max_unread_per_host"):
            value = getattr(self, name)
            _check(value is None or is_whole(value, 1, 1 << 40), name, value, "a positive whole number, or None")
        _check(type(self.domains) is DomainLimits, "domains", self.domains, "a DomainLimits")
        if self.domains.most_share is not None and not isinstance(self.history, Certified):
            raise ConfigRefused(
                f"the history {history_name(self.history)} cannot limit the share of a domain: take certified"
            )

    def counts_alike(self, other: LedgerConfig) -> bool:
        """Whether a ledger could go on with another configuration: they differ in how fetches are planned alone."""
        ours, theirs = self.refresh, other.refresh
        lasting = all(getattr(ours, name) == getattr(theirs, name) for name in _LASTING)
        return lasting and self == replace(other, refresh=ours)

    @property
    def learns_discovery(self) -> bool:
        """Whether the ledger keeps what the discovery `learnt` needs."""
        return self.refresh.discovery_by == "learnt"

    @property
    def categories(self) -> int:
        """The number of categories of pages."""
        return len(self.link_bonus_per_1024)

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain values, for a snapshot's manifest."""
        return {
            **plain(self),
            "history": {"policy": history_name(self.history), **plain(self.history)},
            "refresh": _plain_refresh(self.refresh),
            "domains": plain(self.domains),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LedgerConfig:
        """The configuration that `to_json` wrote; `ConfigRefused` for anything else."""
        try:
            given, history = dict(values), dict(values["history"])
            given["history"] = HISTORIES[history.pop("policy")](**history)
            given["refresh"] = RefreshConfig(**given["refresh"])
            given["domains"] = DomainLimits(**given["domains"])
            for name in ("class_weights", "link_bonus_per_1024"):
                given[name] = tuple(given[name])
            return cls(**given)
        except ConfigRefused:
            raise
        except (KeyError, TypeError, ValueError) as problem:
            raise ConfigRefused(f"not a ledger configuration: {shown(problem)}") from None


def _plain_refresh(refresh: RefreshConfig) -> dict[str, Any]:
    """Return plain values. A setting that was added later is left out where it has its default: so the bytes stay."""
    values = plain(refresh)
    if refresh.traps == RefreshConfig.traps:
        del values["traps"]
    return values


def plain(values: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass by their names, in their order: so they are stored."""
    return {one.name: getattr(values, one.name) for one in fields(values)}


def history_name(history: History) -> str:
    """The name that users write for a history policy."""
    return next(name for name, policy in HISTORIES.items() if type(history) is policy)


def check_damping(damping: float) -> None:
    """Refuse a damping that is no share."""
    _check(_is_number(damping, 0, 1), "damping", damping, "a share between 0 and 1, usually 0.85")


_NO_BONUS = "none with the history policy certified: links pay what they carry, or choose another --history"


def check_certified_rules(damping: float | None, link_bonus: tuple[int, ...] | None) -> None:
    """Refuse rules that the history policy certified cannot follow; None is a rule that does not change."""
    give = "a share from 0.01 to 0.999 with the history policy certified, usually 0.85"
    _check(damping is None or _is_number(damping, 0.01, 0.999), "damping", damping, give)
    _check(not any(link_bonus or ()), "link_bonus_per_1024", link_bonus, _NO_BONUS)


def check_class_weights(weights: tuple[int, ...], categories: int) -> None:
    """Refuse class weights that are not two small whole numbers a category."""
    _check(
        isinstance(weights, tuple)
        and len(weights) == 2 * categories
        and all(is_whole(weight, 0, MOST_CLASS_WEIGHT) for weight in weights)
        and any(weights),
        "class_weights",
        weights,
        f"{2 * categories} whole numbers from 0 to {MOST_CLASS_WEIGHT}, not all 0 "
        "(unread, then read, of each category; 16 = ordinary)",
    )


def check_link_bonus(bonus: tuple[int, ...], categories: int | None = None) -> None:
    """Refuse link bonuses that are not one number from 0 to 1024 a category."""
    _check(
        isinstance(bonus, tuple)
        and 1 <= len(bonus) <= MOST_CATEGORIES
        and categories in (None, len(bonus))
        and all(is_whole(share, 0, 1024) for share in bonus),
        "link_bonus_per_1024",
        bonus,
        f"one whole number from 0 to 1024 for each of 1 to {MOST_CATEGORIES} categories",
    )


def shown(value: object) -> str:
    """A value in an error message: on one line, and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def check_shard(shard: int, shards: int) -> None:
    """Refuse a shard that does not exist."""
    if not (is_whole(shards, 1, MOST_SHARDS) and is_whole(shard, 0, shards - 1)):
        raise ConfigRefused(f"there is no shard {shown(shard)} of {shown(shards)}: shards count from 0")


def check_theta(theta_start: int) -> None:
    """Refuse a reading that a clock of 64 bits cannot have."""
    _check(is_whole(theta_start, 0, (1 << 64) - 1), "theta_start", theta_start, "a whole number of 64 bits")


def _check_history(history: History) -> None:
    _check(type(history) in HISTORIES.values(), "history", history, f"one of {', '.join(HISTORIES)}")
    whole = f"a whole number from 1 to {MOST_MEASURES}"
    bounds: dict[str, tuple[Callable[[object, float, float], bool], float, float, str]] = {
        "window_turns": (_is_number, 2.0**-20, 1 << 20, "a positive number of turns, usually 4 to 16"),
        "window_days": (_is_number, 0.01, MOST_DAYS, "a positive number of days, usually 30 to 180"),
        "measures": (is_whole, 1, MOST_MEASURES, whole),
        "min_measures": (is_whole, 1, MOST_MEASURES, whole),
        "min_gaps": (_is_number, 1, 1024, "a number from 1 to 1024, usually 2"),
        "tolerance": (_is_number, 1e-9, 1, "a share from 1e-9 to 1, usually 1e-4"),
        "pushes_per_visit": (is_whole, 0, 1024, "a whole number from 0 to 1024, usually 4"),
    }
    for name, value in vars(history).items():
        is_kind, least, most, give = bounds[name]
        may_be_none = name == "window_days" and not isinstance(history, Certified)
        sensible = is_kind(value, least, most) or (may_be_none and value is None)
        _check(sensible, name, value, give)


def _check(sensible: bool, name: str, value: object, give: str) -> None:
    if not sensible:
        raise ConfigRefused(f"{name} is {shown(value)}: give {give}")


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def is_whole(value: object, least: float, most: float) -> TypeGuard[int]:
    """Whether a value is a whole number within bounds, of Python's own type: no truth value, no numpy scalar."""
    return type(value) is int and least <= value <= most
