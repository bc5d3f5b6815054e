"""The page about the papers: every module, name, command, option and value that it gives exists."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib.util import find_spec

import pytest

from opicflow.pipelines.cli.parser import build_parser
from opicflow.pipelines.ledger.config import HISTORIES
from opicflow.pipelines.ranks.graph_ranks import parse_ranks
from opicflow.pipelines.refresh.strategies import STRATEGIES
from support.paths import TOP

PAGE = TOP / "docs" / "reference" / "papers.md"
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in PAGE.read_text("utf-8").splitlines()
    if re.match(r"\| [1-9]\d* \|", line)
]
DONE = [row for row in ROWS if len(row) >= 4]
COMMANDS = sorted({command for row in DONE for command in re.findall(r"`((?:opicflow|python -m) [^`]*)`", row[3])})


def test_the_items_are_numbered_and_most_are_done() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)]
    assert len(DONE) > 80 and len(ROWS) - len(DONE) < 5


@pytest.mark.parametrize("row", DONE, ids=lambda row: row[0])
def test_every_item_is_somewhere_and_can_be_run(row: list[str]) -> None:
    links = re.findall(r"\[[^]]*\]\(([^)#]+)(?:#[^)]*)?\)(?: \(([^)]*)\))?", row[2])
    assert links or row[2] == "the same"
    for path, names in links:
        text = (PAGE.parent / path).read_text("utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^ *(def|class) {name}\b|^{name}( =|:|,)", text, re.MULTILINE), name
    assert row[3] == "no command" or re.fullmatch(r"`[^`]*`(; `[^`]*`)*", row[3])


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command, or of its action, that words begin with, and the words behind it."""
    parser: argparse.ArgumentParser = build_parser(words)
    while True:
        actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not actions or not words or words[0].startswith("-"):
            return parser, words
        parser, words = actions[0].choices[words[0]], words[1:]


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("opicflow")])
def test_every_command_has_the_options_and_takes_the_values(command: str) -> None:
    parser, words = parser_of(shlex.split(command)[1:])
    positional = next((one for one in parser._actions if not one.option_strings and one.choices), None)
    while words:
        name = words.pop(0)
        if not name.startswith("-"):
            read = positional.type if positional is not None and positional.type is not None else str
            assert positional is None or read(name) in positional.choices, name  # type: ignore[operator]
            continue
        action = parser._option_string_actions[name]
        if action.nargs == 0 or not words:
            continue
        value = words.pop(0)
        assert not action.choices or value in action.choices, value
        if name == "--set":
            setting, _, given = value.partition("=")
            parser.get_default("settings")[setting].read(given)
        elif name == "--ranks":
            assert parse_ranks(value)
        elif name == "--history":
            assert value in HISTORIES
        elif name == "--refresh-strategy":
            assert value in STRATEGIES
        elif action.type is not None:
            action.type(value)  # type: ignore[operator]


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("python")])
def test_every_benchmark_exists(command: str) -> None:
    module, *words = command.split()[2:]
    assert find_spec(module) is not None
    assert not words or words[0].startswith("-") or find_spec(f"{module}.{words[0]}") is not None
