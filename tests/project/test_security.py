"""The limits that SECURITY.md states are those of the code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from support.paths import TOP

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<most>[^|]+) \| [^|]+ \| \[(?P<name>\w+)\]\((?P<file>\S+)\.py\) \|$", re.MULTILINE
)
LIMITS = [found.groupdict() for found in ROW.finditer((TOP / "SECURITY.md").read_text("utf-8"))]
HOUR_MS, DAY_SECONDS = 3_600_000, 86_400


@pytest.mark.parametrize("limit", LIMITS, ids=[f"{limit['file']}-{limit['name']}" for limit in LIMITS])
def test_a_limit_is_that_of_the_code(limit: dict[str, str]) -> None:
    value = getattr(import_module(f"opicflow.{limit['file'].replace('/', '.')}"), limit["name"])
    unit = {"hours": HOUR_MS, "days": DAY_SECONDS}.get(limit["what"].split()[0], 1)
    stated = re.match(r"[0-9,]+", limit["most"])
    assert stated is not None and int(stated[0].replace(",", "")) * unit == value


def test_the_limits_are_found() -> None:
    assert {"MOST_EVENT_BYTES", "MOST_LINKS", "LONGEST_URL", "MOST_AHEAD_MS"} <= {limit["name"] for limit in LIMITS}
