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
    *(f"pipelines/{name}" for name in ("ledger", "refresh", "graph", "web")),
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


@pytest.mark.parametrize("folder", sorted({file.parent for file in SOURCES}), ids=name_of)
def test_every_package_has_a_docstring(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_examples_in_docstrings_are_true(file: Path) -> None:
    module = "opicflow." + name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert doctest.testmod(importlib.import_module(module)).failed == 0


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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_the_documents_are_make_targets(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"(?:^\s*(?:\$ )?|`)make ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.M))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_in_the_documents_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
