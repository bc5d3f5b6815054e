"""What a declaration allows is read back; anything else is refused."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

import pytest

from opicflow.schemas.plain_values import Natural, read_plain
from support.hostile_values import altered


class Place(NamedTuple):
    partition: int
    digest: str


class Named(TypedDict):
    name: str


@dataclass
class Part:
    at: Natural
    share: float = 0.0
    kind: Literal["a", "b"] = "a"


@dataclass
class Whole:
    parts: list[Part]
    places: tuple[Place, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    named: Named | None = None
    pair: tuple[int, str] = (0, "")


WHOLE = Whole([Part(5, 0.5, "b"), Part(0)], (Place(1, "x"),), {"a": -3}, {"name": "n"}, (7, "seven"))


def stored(whole: Whole) -> Any:
    return json.loads(json.dumps(asdict(whole)))


def test_a_dataclass_is_read_back_from_json() -> None:
    assert read_plain(Whole, stored(WHOLE)) == WHOLE
    assert read_plain(Whole, {"parts": []}) == Whole([])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("parts", None),
        ("parts", [{"at": -1}]),
        ("parts", [{"at": 1 << 63}]),
        ("parts", [{"at": True}]),
        ("parts", [{}]),
        ("parts", [{"at": 1, "kind": "c"}]),
        ("places", [[1]]),
        ("counts", {"a": "1"}),
        ("counts", []),
        ("named", {"name": "n", "more": 1}),
        ("pair", [1, 2]),
        ("unknown", 1),
    ],
)
def test_other_values_are_refused(where: str, value: object) -> None:
    with pytest.raises(ValueError):
        read_plain(Whole, {**stored(WHOLE), where: value})


def test_altered_values_are_read_or_refused() -> None:
    draw = random.Random(7)
    for _ in range(500):
        values = altered(stored(WHOLE), draw)
        with suppress(ValueError):
            assert stored(read_plain(Whole, values)).keys() == stored(WHOLE).keys()
