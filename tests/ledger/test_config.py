"""A configuration that makes no sense is refused in one line; one that does survives the way through a snapshot."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    HISTORIES,
    Absorbing,
    All,
    Certified,
    ConfigRefused,
    DomainLimits,
    Fixed,
    ImprovedFixed,
    Interpolation,
    Ledger,
    LedgerConfig,
    PaperInterpolation,
    Variable,
)

NO_NUMBERS = [math.nan, math.inf, -math.inf, -1, "8", None, True, [1], 10**400, np.zeros((3, 3)), object()]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, 0, 0.5, 1.0, np.int64(3)]


def refused(field: str, **values: Any) -> None:
    with pytest.raises(ConfigRefused) as caught:
        LedgerConfig(**values)
    message = str(caught.value)
    assert message.startswith(f"{field} is "), message
    assert ": give " in message
    assert "\n" not in message
    assert len(message) < 300


def named(values: list[Any]) -> list[Any]:
    return [pytest.param(value, id=f"{type(value).__name__}-{i}") for i, value in enumerate(values)]


@pytest.mark.parametrize("damping", named([*NO_NUMBERS, 1.0001, 2, -1e-9, "0.85", (0.85,)]))
def test_a_damping_that_is_no_share_is_refused(damping: Any) -> None:
    refused("damping", damping=damping)


@pytest.mark.parametrize("damping", [0, 0.0, 0.5, 1, 1.0])
def test_any_share_may_be_the_damping(damping: float) -> None:
    ledger = Ledger(LedgerConfig(damping=damping))
    assert ledger.config.damping == damping


@pytest.mark.parametrize("history", named([None, "interpolation", Interpolation, {}, 8, object(), np.zeros((9, 9))]))
def test_a_history_that_is_none_of_the_policies_is_refused(history: Any) -> None:
    refused("history", history=history)


def test_a_policy_that_only_looks_like_one_is_refused() -> None:
    class Mine(Interpolation):
        pass

    refused("history", history=Mine())


@pytest.mark.parametrize("window", named([*NO_NUMBERS, 0, 0.0, 5e-324, 1 << 21]))
def test_a_window_in_turns_must_be_a_positive_number(window: Any) -> None:
    for policy in (Fixed, ImprovedFixed, PaperInterpolation, Interpolation):
        refused("window_turns", history=policy(window_turns=window))


@pytest.mark.parametrize("days", named([*(n for n in NO_NUMBERS if n is not None), 0, 5e-324, 40_000]))
def test_a_window_in_days_must_be_a_positive_number(days: Any) -> None:
    for policy in (Fixed, ImprovedFixed, PaperInterpolation, Interpolation):
        refused("window_days", history=policy(window_days=days))


@pytest.mark.parametrize("measures", named([*NO_WHOLE_NUMBERS, 17]))
def test_a_variable_window_keeps_from_1_to_16_measures(measures: Any) -> None:
    refused("measures", history=Variable(measures))


@pytest.mark.parametrize("fewest", named([*NO_WHOLE_NUMBERS, 17]))
def test_an_improved_window_keeps_at_least_1_to_16_measures(fewest: Any) -> None:
    refused("min_measures", history=ImprovedFixed(min_measures=fewest))


@pytest.mark.parametrize("gaps", named([*NO_NUMBERS, 0, 0.99, 1025]))
def test_the_least_span_is_from_1_to_1024_gaps(gaps: Any) -> None:
    refused("min_gaps", history=Interpolation(min_gaps=gaps))


@pytest.mark.parametrize(
    "weights",
    named(
        [
            *((), (16,), (16, 16, 16), (0, 0), (16, -1), (16, 65_537), (16, 1.0), (16, True), (16, "16"), (16, None)),
            *([16, 16], None, 16, "ab", np.array([16, 16]), {16, 17}, (16,) * 100_000, (np.int64(16), 16)),
        ]
    ),
)
def test_class_weights_are_two_small_whole_numbers_a_category(weights: Any) -> None:
    refused("class_weights", class_weights=weights)


@pytest.mark.parametrize(
    "bonus",
    named(
        [
            *((), (0,) * 128, (-1,), (1025,), (0.5,), (True,), (None,), ("1",), [0], None, 0, "a", {0: 0}),
            *(np.array([0]), (0,) * 100_000, (np.int64(0),)),
        ]
    ),
)
def test_link_bonuses_are_one_number_from_0_to_1024_a_category(bonus: Any) -> None:
    weights = (16,) * (2 * len(bonus)) if isinstance(bonus, tuple) and bonus else (16, 16)
    refused("link_bonus_per_1024", link_bonus_per_1024=bonus, class_weights=weights)


def test_there_are_up_to_127_categories() -> None:
    config = LedgerConfig(class_weights=(16, 65_536) * 127, link_bonus_per_1024=(1024,) * 127)
    assert config.categories == 127


@pytest.mark.parametrize("visits", named([*NO_WHOLE_NUMBERS, 1001]))
def test_a_cut_comes_after_1_to_1000_visits_per_1000_pages(visits: Any) -> None:
    refused("cut_visits_per_1000_pages", cut_visits_per_1000_pages=visits)


@pytest.mark.parametrize("seconds", named([*NO_NUMBERS, 0.5, 1.0, np.int64(3), -1, 3601]))
def test_amounts_wait_for_up_to_an_hour(seconds: Any) -> None:
    refused("cut_seconds", cut_seconds=seconds)


@pytest.mark.parametrize("days", named([*NO_NUMBERS, 0, 5e-324, 40_000]))
def test_the_window_of_certified_is_a_positive_number_of_days(days: Any) -> None:
    refused("window_days", history=Certified(window_days=days))


@pytest.mark.parametrize("option", ["remember_links", "newcomer_history"])
@pytest.mark.parametrize("value", named([None, 0, 1, "no", "yes", np.bool_(True), [True]]))
def test_an_option_is_on_or_off(option: str, value: Any) -> None:
    refused(option, **{option: value})


@pytest.mark.parametrize(
    ("shard", "shards"),
    [(0, 0), (1, 1), (-1, 2), (2, 2), (0, 1 << 31), (0, -1), (0.0, 1), (0, 1.0), ("0", "1"), (None, 1), (False, True)],
)
def test_there_is_no_such_shard(shard: Any, shards: Any) -> None:
    with pytest.raises(ConfigRefused, match="there is no shard") as caught:
        Ledger(shard=shard, shards=shards)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("theta", named([-1, 1 << 64, 0.5, None, "0", math.nan]))
def test_the_turn_clock_begins_at_a_reading_it_can_have(theta: Any) -> None:
    with pytest.raises(ConfigRefused, match=r"theta_start is .*: give"):
        Ledger(theta_start=theta)


# Right values


def test_the_defaults_are_those_of_the_design() -> None:
    config = LedgerConfig()
    assert config.history == Interpolation(window_turns=8.0, window_days=None, min_gaps=2.0)
    assert config.damping == 0.85
    assert config.class_weights == (16, 16)
    assert config.link_bonus_per_1024 == (0,)
    assert config.categories == 1
    assert config.remember_links is False
    assert config.newcomer_history is True
    assert config.cut_visits_per_1000_pages == 10  # 0.01 visits per page


def test_the_policies_have_the_names_that_users_write() -> None:
    names = {
        "all": All,
        "fixed": Fixed,
        "improved-fixed": ImprovedFixed,
        "variable": Variable,
        "paper-interpolation": PaperInterpolation,
        "interpolation": Interpolation,
        "absorbing": Absorbing,
        "certified": Certified,
    }
    assert list(HISTORIES.items()) == list(names.items())


@pytest.mark.parametrize("name", HISTORIES)
def test_every_policy_has_defaults_that_work(name: str) -> None:
    assert LedgerConfig(history=HISTORIES[name]()).history == HISTORIES[name]()


def test_a_configuration_does_not_change() -> None:
    config = LedgerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.damping = 0.5  # type: ignore[misc]
    for name in HISTORIES:
        assert HISTORIES[name].__dataclass_params__.frozen
    assert hash(config) == hash(LedgerConfig())


UNUSUAL = [
    *(LedgerConfig(history=policy()) for policy in HISTORIES.values()),
    LedgerConfig(history=Fixed(0.25, window_days=30)),
    LedgerConfig(history=ImprovedFixed(16, 90.5, 16)),
    LedgerConfig(history=Variable(1)),
    LedgerConfig(history=PaperInterpolation(1 << 20)),
    LedgerConfig(history=Interpolation(3, 36525, 1024)),
    LedgerConfig(
        history=All(),
        damping=1,
        class_weights=(0, 1, 2, 65_536),
        link_bonus_per_1024=(0, 1024),
        remember_links=True,
        newcomer_history=False,
        cut_visits_per_1000_pages=1000,
    ),
    LedgerConfig(history=Certified(window_days=0.5), domains=DomainLimits(5, 6, 0.25), cut_seconds=3600),
]


@pytest.mark.parametrize("config", UNUSUAL, ids=range(len(UNUSUAL)))
def test_a_configuration_survives_the_way_through_json(config: LedgerConfig) -> None:
    assert LedgerConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_plain_values_of_a_configuration_say_everything() -> None:
    names = {field.name for field in dataclasses.fields(LedgerConfig)}
    assert LedgerConfig(domains=DomainLimits(most_unread=1), cut_seconds=5).to_json().keys() == names
    assert LedgerConfig().to_json().keys() == names
    history = LedgerConfig(history=ImprovedFixed()).to_json()["history"]
    assert history == {"policy": "improved-fixed", "window_turns": 8.0, "window_days": None, "min_measures": 3}


def with_changes(**changes: Any) -> dict[str, Any]:
    values = LedgerConfig().to_json() | changes
    return {name: value for name, value in values.items() if value is not ...}


@pytest.mark.parametrize(
    "nonsense",
    named(
        [
            *(None, 5, "ab", "", [], [1, 2], ["ab"], {}, {"history": None}, {"history": "all"}),
            *(with_changes(history=value) for value in (..., None, [], "all", {}, {"policy": "lru"}, {"policy": []})),
            with_changes(history={"policy": "all", "window_turns": 8}),
            with_changes(history={"policy": "fixed", "window_turns": -8}),
            with_changes(history={"policy": "fixed", "two\nlines": 1}),
            with_changes(damping="0.85"),
            with_changes(class_weights=None),
            with_changes(class_weights=...),
            with_changes(class_weights=7),
            with_changes(class_weights=[16, 16, 16]),
            with_changes(link_bonus_per_1024="a"),
            with_changes(link_bonus_per_1024=...),
            with_changes(something_new=1),
            {**with_changes(), 5: 5},
        ]
    ),
)
def test_what_to_json_did_not_write_is_refused(nonsense: Any) -> None:
    with pytest.raises(ConfigRefused) as caught:
        LedgerConfig.from_json(nonsense)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_refused_configuration_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="damping"):
        LedgerConfig(damping=2)
