"""The tests that are left out by default are run by `make soak`."""

from __future__ import annotations

import ast
from itertools import product

from support.paths import TOP
from support.thorough import crossed


def test_every_test_that_does_more_with_make_soak_is_marked_for_it() -> None:
    """And no other one."""
    wrong = []
    for file in sorted((TOP / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "thorough" not in text:
            continue
        for test in ast.parse(text).body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                calls = any(isinstance(one, ast.Name) and one.id == "thorough" for one in ast.walk(test))
                if calls != ("pytest.mark.thorough" in map(ast.unparse, test.decorator_list)):
                    wrong.append(f"{file.relative_to(TOP)}::{test.name}")
    assert wrong == []


def test_of_crossed_values_each_is_tried_by_default_and_all_combinations_are_there() -> None:
    for values in ([range(3)], [range(6), range(3)], [range(2)] * 3, [range(2), range(23), range(2)]):
        found = crossed(*map(list, values))
        assert [one.values for one in found] == list(product(*values))
        by_default = [one.values for one in found if not one.marks]
        for place, of in enumerate(values):
            assert {chosen[place] for chosen in by_default} == set(of)
        assert len(by_default) <= max(map(len, values))


def test_lists_of_two_values_do_not_always_go_together() -> None:
    by_default = [one.values for one in crossed(list(range(23)), [False, True], [False, True]) if not one.marks]
    assert {chosen[1:] for chosen in by_default} == set(product([False, True], repeat=2))
