"""`opicflow config`: the settings that hold, and where each comes from."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from opicflow.pipelines.cli.configuration import FILE_NAME, SETTINGS, Configuration, variable_of
from opicflow.pipelines.cli.options import add_json
from opicflow.pipelines.cli.text import print_lines
from opicflow.schemas.errors import printable

EXAMPLES = """examples:
  opicflow config
  OPICFLOW_BROKERS=localhost:9092 opicflow config --json
  opicflow --config staging.toml config
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print every setting with its value and its source."""
    configuration = Configuration.read(options.config)
    values = configuration.values
    if options.json:
        file = str(configuration.file) if configuration.file else None
        settings = {
            name: {**asdict(value), "variable": variable_of(name), "help": SETTINGS[name].help}
            for name, value in values.items()
        }
        print(json.dumps({"file": file, "settings": settings}, indent=2))
        return 0
    print_lines(f"file: {configuration.file or f'none ({FILE_NAME} in this folder, or --config FILE)'}", "")
    width = max(len(printable(value.value or "-")) for value in values.values())
    for name, value in values.items():
        print_lines(f"{name:15} {printable(value.value or '-'):{width}}  {value.source}")
    return 0
