"""How much tests do by default, and how much when `make soak` runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
PROFILE = os.environ.get("OPICFLOW_HYPOTHESIS", "ci")
"""The profile of hypothesis: "ci" or "soak"."""


def thorough(few: int, many: int) -> int:
    """`few` of something by default, `many` with `make soak`, which runs tests that are marked `thorough`."""
    return many if PROFILE == "soak" else few


def examples(few: int, many: int, **options: Any) -> Callable[[T], T]:
    """Try a law of hypothesis with `few` examples by default, `many` with `make soak`. `options` are its settings."""

    def limited(law: T) -> T:
        return pytest.mark.thorough(settings(max_examples=thorough(few, many), **options)(law))

    return limited


def crossed(*values: Sequence[Any]) -> list[Any]:
    """All combinations of values, as parameters. By default every value is in one or more; `make soak` runs the rest.

    A tuple is values of several parameters.
    """
    by_default = {  # of lists of equal length, each has another rhythm
        tuple((number + list_ * (number // len(of))) % len(of) for list_, of in enumerate(values))
        for number in range(max(map(len, values)))
    }
    found = []
    for choices in product(*(range(len(of)) for of in values)):
        chosen = [of[choice] for of, choice in zip(values, choices, strict=True)]
        parts = [part for one in chosen for part in (one if isinstance(one, tuple) else (one,))]
        found.append(pytest.param(*parts, marks=[] if choices in by_default else [pytest.mark.soak]))
    return found
