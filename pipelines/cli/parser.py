"""The parser of the command line: help in groups, suggestions.

The module of a command is imported only if its name is on the command line: help, completion and mistakes take no time.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from opicflow.pipelines.cli.commands import GROUPS
from opicflow.pipelines.cli.settings_table import MAY_BE_EMPTY, TITLE
from opicflow.pipelines.cli.text import print_lines
from opicflow.schemas.errors import printable

EXIT_USER = 2
_Parser = TypeVar("_Parser", bound=argparse.ArgumentParser)
_DESCRIPTION = "Which pages of a crawl matter, computed while the crawl runs."
_USAGE = "opicflow [--version] [--config FILE] COMMAND …"
_EPILOG = """opicflow COMMAND --help shows the options of a command, with examples.
Settings of a team: opicflow config, and docs/guides/configuration.md.
"""
_UNRECOGNIZED = re.compile(r"^unrecognized arguments: (.*)$", re.DOTALL)
_NO_NUMBER = re.compile(r"^(argument \S+: )invalid float value: (.*)$")


class _ShowVersion(argparse.Action):
    """Print the version. What finds it takes longer to import than all of the help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> None:
        """Print it, and exit."""
        from importlib.metadata import version

        print_lines(f"opicflow {version('opicflow')}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that refuses in one line, with the nearest right word and the command whose help explains it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_formatter(), **settings)

    def error(self, message: str) -> NoReturn:
        """Exit with one line."""
        unknown = _UNRECOGNIZED.match(message)
        if unknown:
            message = self._unknown(unknown[1].split()[0])
        message = _NO_NUMBER.sub(r"\1\2 is not a number", message)
        self.exit(EXIT_USER, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse unknown arguments here, so that the message names the help of this command."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty value, such as of a variable of a script that is not set. One switches off a setting."""
        if action.option_strings and "" in arg_strings and action.dest.replace("_", "-") not in MAY_BE_EMPTY:
            raise argparse.ArgumentError(action, "it is empty: give a value, or omit the option")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        from difflib import get_close_matches

        near = get_close_matches(str(value), choices, 1)
        advice = f"do you mean {near[0]}?" if near else f"give one of {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"unknown command {str(value)[:40]!r}: {advice}")
        raise argparse.ArgumentError(action, f"unknown value {str(value)[:40]!r}: {advice}")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-") or word == "-":
            return f"unexpected argument {word[:80]!r}"
        word = word.partition("=")[0][:80]
        if word.removeprefix("--") in (self.get_default("settings") or {}):
            return f"unknown option {word}: it is given by --set {word.removeprefix('--')}=VALUE"
        known = [
            option for action in self._actions if action.help != argparse.SUPPRESS for option in action.option_strings
        ]
        from difflib import get_close_matches

        near = get_close_matches(word, known, 1)
        return f"unknown option {word}" + (f": do you mean {near[0]}?" if near else "")


def build_parser(arguments: Sequence[str]) -> Parser:
    """Return the parser of `opicflow`, with the options of every command that these arguments name."""
    parser = Parser(prog="opicflow", description=_DESCRIPTION, epilog=_EPILOG, usage=_USAGE)
    parser.add_argument("--version", action=_ShowVersion, help="show program's version number and exit")
    add_config(parser)
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND", help=argparse.SUPPRESS, prog="opicflow")
    for group in GROUPS:
        shown = parser.add_argument_group(group.title, f"such as {group.example}")
        for name, summary in group.commands.items():
            command = add_command(commands, name, summary)
            shown._group_actions.append(commands._choices_actions[-1])  # shown in its group, parsed as one list
            if name in arguments:
                module = command_module(name)
                command.epilog = module.EXAMPLES
                command.set_defaults(command=name)
                module.add_options(command)
    return parser


def add_command(commands: argparse._SubParsersAction[_Parser], name: str, summary: str) -> _Parser:
    """Add the parser of a command, or of an action of one."""
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    add_config(parser, argparse.SUPPRESS)
    return parser


def command_module(name: str) -> ModuleType:
    """Return the module of a command."""
    (package,) = (group.package for group in GROUPS if name in group.commands)
    return import_module(f"{package}.{name}")


def add_config(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add the option that names the configuration file."""
    group = parser.add_argument_group(TITLE)
    group.add_argument(
        "--config", type=Path, default=default, metavar="FILE", help="the file of settings (opicflow.toml)"
    )


def complete_words() -> None:
    """Print completions and exit if the shell requests them; otherwise return at once."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build_parser(os.environ.get("COMP_LINE", "").split()))


def _formatter() -> type[argparse.HelpFormatter]:
    """Return how help is formatted: in colour on a terminal, plain elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return argparse.RawDescriptionHelpFormatter
    from rich_argparse import RawDescriptionRichHelpFormatter

    class Formatter(RawDescriptionRichHelpFormatter):
        text_markup = False
        help_markup = False

    return Formatter
