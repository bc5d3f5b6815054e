"""The parser: help in groups and in colour, suggestions, old names, completion, and imports."""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opicflow.pipelines.cli.commands import GROUPS
from opicflow.pipelines.cli.parser import build_parser, command_module
from support.commands import command, output_of, refusal
from support.paths import TOP

COMMANDS = [name for group in GROUPS for name in group.commands]
PROGRAM = [sys.executable, "-m", "opicflow.pipelines.cli"]


# -- help


def test_every_module_of_commands_is_a_command_of_one_group() -> None:
    for group in GROUPS:
        folder = TOP / group.package.removeprefix("opicflow.").replace(".", "/")
        assert sorted(file.stem for file in folder.glob("*.py")) == sorted(["__init__", *group.commands])


def test_help_shows_the_groups_with_an_example_and_every_command_once() -> None:
    text = output_of("--help")
    assert output_of() == text
    for group in GROUPS:
        after = text.partition(f"\n{group.title}:\n")[2]
        assert group.example in after.partition("\n\n")[0]
    first_words = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    assert [word for word in first_words if word in COMMANDS] == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    text = output_of(name, "--help")
    module = command_module(name)
    assert f"usage: opicflow {name}" in text and module.EXAMPLES in text
    assert f"  opicflow {name}" in module.EXAMPLES or f"opicflow --config staging.toml {name}" in module.EXAMPLES


def test_the_version_is_that_of_the_distribution() -> None:
    assert output_of("--version").startswith("opicflow 0.")


def test_help_is_in_colour_on_a_terminal_and_plain_in_a_pipe() -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    shown = {}
    for colour in (True, False):
        outer, inner = pty.openpty()
        variables = environment if colour else {**environment, "NO_COLOR": "1"}
        subprocess.run([*PROGRAM, "top", "--help"], stdout=inner, env=variables, check=True, timeout=60)
        os.close(inner)
        text = b""
        try:
            while block := os.read(outer, 1 << 16):
                text += block
        except OSError:  # the end of a terminal
            pass
        os.close(outer)
        shown[colour] = text
    assert b"\x1b[" in shown[True] and b"--unread" in shown[True]
    assert b"\x1b[" not in shown[False]
    assert "\x1b[" not in output_of("top", "--help")


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tpo"], "opicflow: unknown command 'tpo': do you mean top? (see opicflow --help)"),
        (["top", "--unraed"], "opicflow top: unknown option --unraed: do you mean --unread? (see opicflow top --help)"),
        (["top", "--zzz"], "opicflow top: unknown option --zzz (see opicflow top --help)"),
        (
            ["replay", "log", "--cycle", "3"],
            "opicflow replay: unknown option --cycle: it is given by --set cycle=VALUE (see opicflow replay --help)",
        ),
        (["schedule", "extra"], "opicflow schedule: unexpected argument 'extra' (see opicflow schedule --help)"),
        (
            ["graph", "bild"],
            "opicflow graph: unknown command 'bild': do you mean build? (see opicflow graph --help)",
        ),
        (
            ["publish", "policy", "--evry=6h"],
            "opicflow publish policy: unknown option --evry: do you mean --every? (see opicflow publish policy --help)",
        ),
        (
            ["subscribe", "importanc"],
            "opicflow subscribe: argument TOPIC: unknown value 'importanc': do you mean importance? "
            "(see opicflow subscribe --help)",
        ),
        (
            ["serve"],
            "opicflow: serve: nothing to show: name a state with --state DIR, results with --results DIR, or a stream "
            "with --brokers HOST:PORT",
        ),
        (["top"], "opicflow: top: no state: name its folder with --state DIR, or as `state` in opicflow.toml"),
    ],
)
def test_a_wrong_word_gives_one_line_with_a_suggestion(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == (2, "", f"{message}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_nul_character_in_an_argument_gives_one_line(name: str) -> None:
    for arguments in ([name, "a\0b"], [name, "--state", "a\0b"], ["--config", "a\0b", name]):
        assert refusal(*arguments) == "opicflow: argument 'a\\x00b': it contains a NUL character: correct it\n"


def options_of(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (the words of a command, an option of it that takes one value), also of its actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command_ in action.choices.items():
                yield from options_of(command_, (*words, word))
        elif words and action.option_strings and action.nargs is None:
            yield words, action.option_strings[-1]


SWITCHED_OFF = {"--registry", "--prefix", "--properties", "--brokers", "--flink-master", "--job-server"}
SWITCHED_OFF |= {"--checkpoints", "--worker-command"}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_value_is_refused_unless_it_switches_off_a_setting(name: str) -> None:
    """A variable of a script that is not set would otherwise be a value, such as this folder."""
    for words, option in options_of(build_parser([name]), ()):
        if words[0] == name and option not in SWITCHED_OFF:
            assert "it is empty: give a value, or omit the option" in refusal(*words, option, "")


# -- completion


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("opicflow sc", {"schedule"}),
        ("opicflow top --un", {"--unread"}),
        ("opicflow graph b", {"build"}),
        ("opicflow replay --set window-t", {"window-turns="}),
        ("opicflow subscribe refresh", {"refresh-schedule"}),
    ],
)
def test_the_shell_completes_commands_options_and_values(line: str, words: set[str], tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "completions"),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run(PROGRAM, env=variables, check=False, capture_output=True, timeout=60)
    assert {word.strip() for word in (tmp_path / "completions").read_text().split("\n")} == words


# -- imports


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the state, the results and the graph of a small log."""
    folder = tmp_path_factory.mktemp("crawled")
    (folder / "log.jsonl").write_text('{"url": "https://a.example/", "status": 200, "links": ["https://b.example/"]}\n')
    assert command("replay", folder / "log.jsonl", "--quiet", "--state", folder / "state", "--out", folder).code == 0
    assert command("graph", "build", folder / "log.jsonl", "--quiet", "--out", folder / "graph").code == 0
    return folder


READ_ONLY = {
    "--help": 0,
    "--version": 0,
    "replay --help": 0,
    "config": 0,
    "top --state state": 0,
    "show https://a.example/ --state state": 0,
    "schedule --state state": 0,
    "graph info graph": 0,
    "compare importance.jsonl importance.jsonl": 0,
    "topics check --brokers localhost:1": 2,
}
"""Commands and their exit codes."""


@pytest.mark.slow
def test_a_read_only_command_does_not_import_beam(crawled: Path) -> None:
    code = f"""
import json, sys
from opicflow.connectors.kafka import connection
from opicflow.pipelines.cli.main import main
connection.BOOTSTRAP_TIMEOUT_SECONDS = 0.5
found = dict()
for line in {list(READ_ONLY)!r}:
    try:
        code = main(line.split())
    except SystemExit as stopped:
        code = stopped.code
    found[line] = [code, [name for name in ("apache_beam", "grpc") if name in sys.modules]]
print(json.dumps(found), file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=crawled, capture_output=True, text=True, timeout=60)
    assert json.loads(ended.stderr.splitlines()[-1]) == {line: [exits, []] for line, exits in READ_ONLY.items()}


@pytest.mark.parametrize(("line", "most"), [("--help", 30), ("replay --help", 60)])
def test_help_imports_little(line: str, most: int) -> None:
    """Beside what Python imports to find the project; and nothing that takes long."""
    code = f"""
import json, sys
import argparse, dataclasses, difflib, pathlib, re, typing
before = set(sys.modules)
from opicflow.pipelines.cli.main import main
try:
    main({line.split()!r})
except SystemExit:
    pass
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = json.loads(ended.stderr)
    assert not {"numpy", "numba", "apache_beam", "kafka", "pyarrow", "importlib.metadata"} & set(imported)
    assert len(imported) <= most, imported


@pytest.mark.parametrize("line", ["top --top 0", "top --by host -n 0", "schedule --top 0"])
def test_zero_items_may_be_shown(line: str, crawled: Path) -> None:
    assert "https://" not in output_of(*line.split(), "--state", crawled / "state")


@pytest.mark.parametrize("words", [["top"], ["show", "https://a.example/"], ["schedule"]])
def test_a_locked_or_read_only_state_can_be_read(words: list[str], crawled: Path) -> None:
    import fcntl

    state = crawled / "state"
    before = {file: file.stat().st_mtime_ns for file in state.rglob("*")}
    with open(state / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output_of(*words, "--state", state)
    assert {file: file.stat().st_mtime_ns for file in state.rglob("*")} == before
