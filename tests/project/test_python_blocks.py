"""The Python blocks of the documents: tests run all of them, and their types are right."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.guides import DOCUMENTS, TOP, python_blocks

CODE = {name: blocks for one in DOCUMENTS if (blocks := python_blocks(name := str(one.relative_to(TOP))))}


def test_every_document_with_python_is_run_by_a_test() -> None:
    """Whoever runs blocks unpacks all of a document, so a new block of one that is named here makes its test fail."""
    text = "".join(file.read_text(encoding="utf-8") for file in (TOP / "tests").rglob("test_*.py"))
    assert set(re.findall(r'python_blocks\("(.*?)"\)', text)) == set(CODE)


class _ShowTypes(ast.NodeTransformer):
    """Makes mypy report the type of everything that is printed: it accepts a method there."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "print":
            node.args = list(map(_shown, node.args))
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        node.value = _shown(node.value)
        return node


def _shown(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("reveal_type"), [value], [])


def problems_of(blocks: dict[str, str], folder: Path) -> list[str]:
    """Return what mypy finds in the code of these names, and what prints a function instead of its result."""
    for name, code in blocks.items():
        shown = ast.fix_missing_locations(_ShowTypes().visit(ast.parse(code)))
        (folder / f"{name}.py").write_text(ast.unparse(shown))
    words = ["--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--check-untyped-defs"]
    command = [sys.executable, "-m", "mypy", *words, "--follow-imports=silent", "--no-error-summary", folder]
    lines = subprocess.run(command, cwd=TOP, capture_output=True, text=True).stdout.splitlines()
    assert any("Revealed type is" in line for line in lines), lines
    return [line for line in lines if "Revealed type" not in line or re.search(r'is "(def|Overload\(def)', line)]


@pytest.mark.slow
def test_the_types_of_all_blocks_are_right_and_nothing_prints_a_method(tmp_path: Path) -> None:
    blocks = {f"{Path(name).stem}_{at}": code for name, blocks in CODE.items() for at, code in enumerate(blocks)}
    wrong = {"wrong_method": "print(1, 'a'.upper)", "wrong_text": "x = 1\nprint(f'{x.bit_length}')", "wrong": "1 + 'a'"}
    found = problems_of({**blocks, **wrong}, tmp_path)
    assert {Path(line.partition(":")[0]).stem for line in found} == set(wrong), found
