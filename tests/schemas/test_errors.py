"""Errors that a user can cause have one base class, and the command line catches no others by name."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import opicflow.connectors
import opicflow.pipelines
import opicflow.schemas
from opicflow.pipelines import cli
from opicflow.schemas.errors import UserError, in_one_line

INTERNAL = {
    "UnpacksTooLarge": "becomes a reject where the batch is read",
    "LedgerError": "a base class",
    "EntryRefused": "the ledger counts the entry as a reject",
    "SnapshotRefused": "its readers raise StateRefused or read an older snapshot",
    "LedgerBroken": "a bug or a damaged ledger: the traceback is wanted",
    "EntryUnknown": "an entry of a newer version: the keeper raises LogRefused",
    "ReshardRefused": "opicflow stream reshard raises LogRefused",
    "TokenRefused": "a failed login for kafka-python: a connection raises KafkaRefused with its words",
    "TokenUnavailable": "a failed connection for kafka-python: a connection raises KafkaRefused with its words",
    "Interrupted": "a KeyboardInterrupt: the command line prints its words, with exit code 130",
    "Stopped": "the thread that writes files ends with it, when they are no longer wanted",
}
"""Public exceptions that no user can correct, and why."""


def exceptions() -> Iterator[type[BaseException]]:
    """Every public exception that the project defines."""
    for package in (opicflow.schemas, opicflow.connectors, opicflow.pipelines):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == found.name:
                    yield value


def test_every_error_that_a_user_can_cause_is_a_user_error() -> None:
    found = {each.__name__: each for each in exceptions() if not each.__name__.startswith("_")}
    assert len(found) > 20
    assert {name for name, each in found.items() if not issubclass(each, UserError)} == set(INTERNAL)


def test_a_private_error_never_leaves_its_module() -> None:
    private = [each for each in exceptions() if each.__name__.startswith("_")]
    assert private
    for each in private:
        tree = ast.parse(inspect.getsource(sys.modules[each.__module__]))
        handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
        caught = {ast.unparse(handler.type) for handler in handlers if handler.type}
        assert caught & {base.__name__ for base in each.__mro__ if base not in (Exception, BaseException)}, each


def test_user_errors_have_names_of_their_own() -> None:
    names = [each.__name__ for each in exceptions() if issubclass(each, UserError)]
    assert len(names) == len(set(names))


def test_the_command_line_catches_user_errors_and_python_errors_only() -> None:
    allowed = {each.__name__ for each in exceptions() if issubclass(each, UserError)}
    allowed |= {name for name, value in vars(builtins).items() if isinstance(value, type)}
    allowed |= {"argparse.ArgumentTypeError"}
    caught = set()
    for path in Path(next(iter(cli.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                caught |= {ast.unparse(kind) for kind in kinds}
    assert "UserError" in caught
    assert caught <= allowed


def test_the_message_of_a_library_becomes_one_printable_line() -> None:
    assert in_one_line(ValueError("no\ttype: \x0f\r\nin \x1b[2J it")) == "no type: in [2J it"
    assert in_one_line(ValueError("\x00")) == "ValueError" and len(in_one_line(ValueError("a" * 999))) == 200
