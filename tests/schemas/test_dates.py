"""One function makes texts of times: it takes any number, and no other module has one of its own."""

from __future__ import annotations

import ast
import re
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.dates import FIRST_SECOND, LAST_SECOND, iso_time, time_ms
from support.paths import TOP

whole = st.integers(-(2**63), 2**63 - 1)
FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MAKE_TEXTS = {"strftime", "isoformat", "ctime", "asctime", "gmtime", "fromtimestamp", "utcfromtimestamp", "datetime64"}
FOLDERS = ("pipelines", "connectors", "schemas", "deploy")


@given(whole | st.floats())
def test_any_number_has_the_form_of_a_time_and_milliseconds_within_the_years(number: float) -> None:
    assert FORM.fullmatch(iso_time(number))
    assert 1000 * FIRST_SECOND <= time_ms(number) <= 1000 * LAST_SECOND


@given(whole, whole)
def test_a_later_time_has_no_earlier_text(one: int, other: int) -> None:
    earlier, later = sorted((one, other))
    assert iso_time(earlier) <= iso_time(later)
    assert time_ms(earlier) <= time_ms(later)


@given(st.integers(1000 * FIRST_SECOND, 1000 * LAST_SECOND + 999))
def test_a_time_within_the_years_is_read_back_to_the_second(number: int) -> None:
    read = datetime.strptime(iso_time(number), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    assert (read - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() == number // 1000
    assert time_ms(number // 1000) == number // 1000 * 1000


def texts_of_times(source: str) -> list[int]:
    """The lines of a module that make a text of a time, or a date of a number, by themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = {getattr(node, "attr", None), getattr(node, "id", None)}
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if names & MAKE_TEXTS or re.search(r"(^|:)%[YmdHMS]", text):
            found.append(node.lineno)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    "source",
    ["x.strftime('%Y')", "datetime.fromtimestamp(5)", "f'{at:%Y-%m}'", "'{:%H:%M}'.format(at)", "str(at.isoformat())"],
)
def test_a_module_that_makes_texts_of_times_is_found(source: str) -> None:
    assert set(texts_of_times(source)) == {1}


@pytest.mark.slow
def test_no_other_module_makes_texts_of_times() -> None:
    found = {
        f"{path.relative_to(TOP)}:{line}"
        for folder in FOLDERS
        for path in (TOP / folder).rglob("*.py")
        if path != TOP / "schemas" / "dates.py"
        for line in texts_of_times(path.read_text(encoding="utf-8"))
    }
    assert not found
