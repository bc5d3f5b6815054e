"""Only `connectors/kafka/client` depends on private parts of kafka-python."""

from __future__ import annotations

import ast
from pathlib import Path

from opicflow.connectors.kafka import client

CLIENT = Path(client.__file__).parent
PUBLIC = {"kafka", "kafka.admin", "kafka.errors", "kafka.net.sasl.oauth"}
"""The modules of kafka-python that its documentation describes."""
TOP = CLIENT.parent.parent.parent
MODULES = [
    path
    for folder in ("connectors", "pipelines")
    for path in (TOP / folder).rglob("*.py")
    if CLIENT not in path.parents
]


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.partition(".")[0] == "kafka"}


def private_attributes(tree: ast.AST) -> list[str]:
    """Private attributes of anything but `self` and `cls`; those of a NamedTuple are public in spite of their names."""
    public = {"_replace", "_asdict", "_fields", "_make"}
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in public
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_no_other_module_imports_private_modules_of_kafka_python() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {path for path, tree in trees.items() if not imported(tree) <= PUBLIC} == set()
    assert any(map(imported, trees.values()))


def test_no_other_module_of_the_connector_uses_private_attributes_of_others() -> None:
    for path in CLIENT.parent.glob("*.py"):
        assert private_attributes(ast.parse(path.read_text(encoding="utf-8"))) == [], path
