"""The layout of the code: where modules are, and that a name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from support.paths import TOP

ROOTS = ["pipelines", "connectors", "schemas"]
MODULES = sorted(file for root in ROOTS for file in (TOP / root).rglob("*.py") if file.name != "__init__.py")


def owner(file: Path) -> str:
    return file.parent.relative_to(TOP).as_posix()


TWINS = {
    "errors": {"pipelines/ledger", "schemas"},
    "pipeline": {"pipelines/replay", "pipelines/stream"},
}
"""Modules with one name in several folders, which make the difference plain."""


def test_nothing_lies_loose_in_pipelines() -> None:
    """But for the public transform, which a reader looks for first."""
    assert sorted(file.name for file in (TOP / "pipelines").glob("*.py")) == ["__init__.py", "adaptive_opic.py"]


def test_a_module_name_occurs_once_or_its_folder_makes_the_difference_plain() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for file in MODULES:
        if not owner(file).endswith("/commands"):  # a command is named as people type it
            found[file.stem].add(owner(file))
    twins = {name: folders for name, folders in found.items() if len(folders) > 1}
    assert {name: folders for name, folders in twins.items() if folders != TWINS.get(name)} == {}


def test_a_class_name_occurs_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in MODULES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(owner(file) + "/" + file.name)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_folders_of_tests_mirror_the_code() -> None:
    folders = {file.parent.relative_to(TOP / "tests") for file in (TOP / "tests").rglob("*.py")} - {Path()}
    mirrors = {folder for folder in folders if folder.parts[0] not in ("support", "project")}
    there = {folder for folder in mirrors if (TOP / folder).is_dir() or (TOP / "pipelines" / folder).is_dir()}
    assert mirrors == there and len(mirrors) > 10
