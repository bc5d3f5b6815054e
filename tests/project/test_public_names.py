"""The public names of the guide for Python are there, documented and typed."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import pytest

from support.paths import TOP

ROWS = re.findall(
    r"^\| `(opicflow\.[a-z_.]+)` \| (`.*) \|$",
    (TOP / "docs/guides/python.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
NAMES = [(module, name) for module, names in ROWS for name in re.findall(r"`(\w+)`", names)]


def methods_of(kind: type) -> list[Any]:
    """Return the public methods that a class itself has."""
    methods = [getattr(one, "__func__", one) for name, one in vars(kind).items() if not name.startswith("_")]
    return [one for one in methods if inspect.isfunction(one) and one.__module__.startswith("opicflow.")]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_is_documented_and_typed(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    assert inspect.getdoc(value)
    for one in methods_of(value) if inspect.isclass(value) else [value]:
        signature = inspect.signature(one)
        assert one.__doc__, one
        assert signature.return_annotation is not inspect.Signature.empty, one
        given = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        assert all(each.annotation is not inspect.Parameter.empty for each in given), one


def test_there_are_public_names() -> None:
    assert len(NAMES) > 25
