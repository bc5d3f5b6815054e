"""`opicflow config`: all settings, or those of a command: what they mean, their values, and where each comes from."""

from __future__ import annotations

import argparse
import json
import textwrap

from opicflow.pipelines.cli.commands import GROUPS
from opicflow.pipelines.cli.configuration import FILE_NAME, Configuration, read_value, variable_of
from opicflow.pipelines.cli.options import add_json
from opicflow.pipelines.cli.parser import build_parser
from opicflow.pipelines.cli.settings_table import GROUPS as GROUPS_OF_SETTINGS
from opicflow.pipelines.cli.settings_table import OPTIONS, SETTINGS, names_of, shown_name
from opicflow.pipelines.cli.text import print_lines
from opicflow.schemas.errors import printable

EXAMPLES = """examples:
  opicflow config                                      all settings
  opicflow config replay                               those of a command
  OPICFLOW_BROKERS=localhost:9092 opicflow config --json
  opicflow --config staging.toml config
"""
_INDENT = 38
_WIDTH = 120


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    commands = [name for group in GROUPS for name in group.commands]
    parser.add_argument("of", nargs="?", choices=commands, metavar="COMMAND", help="only the settings of this command")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print every setting with its meaning, its value and its source."""
    configuration = Configuration.read(options.config)
    names = names_of(build_parser([options.of]), [options.of]) if options.of else set(SETTINGS)
    for name in names:
        value = configuration.values[name]
        for text in value.texts:
            read_value(SETTINGS[name], value.where, text)
    if options.json:
        file = str(configuration.file) if configuration.file else None
        settings = {
            name: {
                "value": str(configuration.values[name]) or None,
                "source": configuration.values[name].source,
                "variable": variable_of(name),
                "help": setting.help,
            }
            for name, setting in SETTINGS.items()
            if name in names
        }
        print(json.dumps({"file": file, "settings": settings}, indent=2))
        return 0
    print_lines(f"file: {configuration.file or f'none ({FILE_NAME} in this folder, or --config FILE)'}")
    for title, group in GROUPS_OF_SETTINGS.items():
        if names & group.keys():
            print_lines("", f"{title}:")
        for name, setting in group.items():
            if name in names:
                value = configuration.values[name]
                given = f"{shown_name(name)}{' ' if name in OPTIONS else '='}{setting.metavar}".strip()
                words = f"{given:{_INDENT - 4}}  {setting.help}"
                lines = textwrap.wrap(words, _WIDTH - 2, subsequent_indent=" " * (_INDENT - 2))
                print_lines(*(f"  {line}" for line in lines))
                if value.texts and value.source != "default":
                    print_lines(f"      = {printable(str(value))}  ({value.source})")
    return 0
