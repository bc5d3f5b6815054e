"""The laws of the house that no tool checks by itself."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import TOP

ROOTS = ["pipelines", "schemas", "connectors"]
PURE = [
    "schemas/kernel.py",
    "schemas/pages.py",
    *(f"pipelines/{name}" for name in ("ledger", "refresh", "ranks/graph", "lab/web")),
]

SOURCES = sorted(file for root in ROOTS for file in (TOP / root).rglob("*.py"))
PAGES = sorted(
    [
        *TOP.glob("*.md"),
        *(page for folder in ["docs", "deploy", "examples", "benchmarks"] for page in (TOP / folder).rglob("*.md")),
    ]
)


def name_of(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def test_every_package_has_a_docstring() -> None:
    for folder in {file.parent for file in SOURCES}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))), name_of(folder)


@pytest.mark.slow
def test_examples_in_docstrings_are_true() -> None:
    tried = 0
    for file in SOURCES:
        module = "opicflow." + name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found = doctest.testmod(importlib.import_module(module))
        assert found.failed == 0, module
        tried += found.attempted
    assert tried > 0


@pytest.mark.parametrize("path", PURE)
def test_a_pure_package_draws_no_random_numbers_without_a_seed(path: str) -> None:
    for file in [TOP / path] if path.endswith(".py") else (TOP / path).rglob("*.py"):
        unseeded = re.search(r"\b(np|numpy)\.random\.\w+\(\s*(None\s*)?\)", file.read_text(encoding="utf-8"))
        assert not unseeded, name_of(file)


@pytest.mark.parametrize(
    "line",
    [
        "import pipelines",
        "from schemas.pages import page_id",
        "import connectors.files",
        "import datetime; datetime.datetime.now()",
        "from time import time",
    ],
)
def test_ruff_refuses(line: str) -> None:
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "TID251",
        "--stdin-filename",
        "pipelines/planted.py",
        "-",
    ]
    done = subprocess.run(ruff, input=line, cwd=TOP, text=True, capture_output=True)
    assert done.returncode == 1 and "TID251" in done.stdout, done


def test_commands_in_the_documents_are_make_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), flags=re.M))
    for page in PAGES:
        named = set(re.findall(r"(?:^\s*(?:\$ )?|`)make ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.M))
        assert named <= targets, name_of(page)


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], name_of(page)


def is_in_a_library(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top != "opicflow" and top not in sys.stdlib_module_names


def private_parts(tree: ast.Module, ours: set[str]) -> set[str]:
    """Return the names of private parts that a module uses of libraries, and of parts that it replaces in them."""
    found, imported = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_in_a_library(node.module):
            imported.update(one.asname or one.name for one in node.names)
        elif isinstance(node, ast.Import):
            imported.update(
                (one.asname or one.name).partition(".")[0] for one in node.names if is_in_a_library(one.name)
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_private = node.attr.startswith("_") and not node.attr.endswith("__") and node.attr not in ours
            is_replaced = isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
            if is_private or node.attr == "__defaults__" or (is_replaced and node.value.id in imported):
                found.add(node.attr)
    return found


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def test_private_parts_of_libraries_are_used_where_the_table_says() -> None:
    """They may change with any version. A part that is replaced in a library is replaced for the whole process."""
    table = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("where private parts are used")[2]
    rows = [line.split(" | ")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    listed = {path for row in rows for path in re.findall(r"\]\(([^)]+)\)", row)}
    trees = {name_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in SOURCES}
    ours = {"_replace", "_asdict", "_fields", "_make", "_exit"}.union(*map(own_names, trees.values()))
    used = {name for name, tree in trees.items() if private_parts(tree, ours)}
    found = {path for path in listed for name in used if name == path or name.startswith(f"{path}/")}
    assert found == listed, "the table has modules that use none"
    assert {name for name in used if not name.startswith(tuple(listed))} == set()
