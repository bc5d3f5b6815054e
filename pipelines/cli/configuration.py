"""Settings that a team does not type every day: from `opicflow.toml` and from `OPICFLOW_…` variables.

An option on the command line counts first, then the variable, then the file, then the default. Secrets are refused:
they belong in the properties file of Kafka.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opicflow.pipelines.cli.settings_table import SETTINGS, Setting, dest_of
from opicflow.pipelines.cli.values import flag, not_negative, number, number_or_auto, positive, whole
from opicflow.schemas.errors import UserError

FILE_NAME = "opicflow.toml"
_NUMBERS = (whole, number, positive, not_negative)

_SECRET = re.compile(r"passw|secret|token|jaas|credential|api.?key|user.?info", re.IGNORECASE)
_USER_IN_URL = re.compile(r"^[^/]*//[^/]*@|^[^/@]+:[^/@]*@")


class ConfigurationRefused(UserError, ValueError):
    """The configuration file or a variable cannot be used. One line: what, where, and what to do."""


@dataclass(frozen=True)
class Value:
    """The texts of a setting, one for each time that it is given, and their source; none = not set."""

    texts: tuple[str, ...]
    source: str
    where: str = ""
    """How the user has written its name."""

    def __str__(self) -> str:
        return ", ".join(self.texts)


NOT_SET = Value((), "not set")


@dataclass(frozen=True)
class Configuration:
    """The values of all settings, without those of the command line."""

    values: dict[str, Value]
    file: Path | None = None

    @classmethod
    def read(cls, file: Path | None = None, variables: Mapping[str, str] = os.environ) -> Configuration:
        """Read a file, or `opicflow.toml` in the working folder if there is one, and the variables."""
        path = file if file is not None else Path(FILE_NAME)
        in_file = _values_of(path) if file is not None or path.is_file() else {}
        values = {}
        for name, setting in SETTINGS.items():
            variable = variable_of(name)
            text = variables.get(variable)
            _check_text(variable, text or "")
            if text:
                values[name] = Value((text,), f"variable {variable}", variable)
            elif text is None and name in in_file:  # an empty variable switches off what the file sets
                values[name] = in_file[name]
            else:
                values[name] = NOT_SET if setting.default is None else Value((setting.default,), "default", name)
        return cls(values, path if in_file or path.is_file() else None)

    def complete(self, options: argparse.Namespace) -> None:
        """Set every setting of the command that was not given.

        `options.configured` becomes their values. Raises `ConfigurationRefused`.
        """
        options.configured = {}
        for name, setting in getattr(options, "settings", {}).items():
            value, dest = self.values[name], dest_of(name)
            if value.texts and getattr(options, dest) is None:
                read = [read_value(setting, value.where, text) for text in value.texts]
                setattr(options, dest, read if setting.is_many else read[0])
                options.configured[dest] = value


def is_default(options: argparse.Namespace, dest: str) -> bool:
    """Return whether a setting of a command was given nowhere, and has its default."""
    return dest in options.configured and options.configured[dest].source == "default"


def read_value(setting: Setting, where: str, text: str) -> object:
    """Return the value of a setting. Raises `ConfigurationRefused`."""
    try:
        return setting.read(text)
    except argparse.ArgumentTypeError as problem:
        raise ConfigurationRefused(f"{where}: {problem}") from None


def variable_of(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable_of("flink-master")
    'OPICFLOW_FLINK_MASTER'
    """
    return f"OPICFLOW_{name.upper().replace('-', '_')}"


def _values_of(path: Path) -> dict[str, Value]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationRefused(f"{path}: cannot be read ({problem.strerror}): name another file") from None
    except ValueError as problem:
        reason = "it is not UTF-8" if isinstance(problem, UnicodeDecodeError) else " ".join(str(problem).split())
        raise ConfigurationRefused(f'{path}: not TOML ({reason}): write lines such as brokers = "host:9092"') from None
    values = {}
    for name, value in table.items():
        if _SECRET.search(name):
            raise ConfigurationRefused(
                f"{path}: {name[:60]}: no secrets in this file: put it into the file that `properties` names"
            )
        if name not in SETTINGS:
            from difflib import get_close_matches

            near = get_close_matches(name.lower().replace("_", "-"), SETTINGS, 1)
            advice = f"do you mean {near[0]}?" if near else "opicflow config lists the settings"
            raise ConfigurationRefused(f"{path}: unknown setting {name[:60]}: {advice}")
        texts = texts_of(SETTINGS[name], f"{path}: {name}", value)
        if SETTINGS[name].is_path:
            texts = [text if text in SETTINGS[name].words else str(path.parent / text) for text in texts]
        values[name] = Value(tuple(texts), f"file {path}", f"{path}: {name}")
    return values


def texts_of(setting: Setting, where: str, value: object) -> list[str]:
    """Return a value of TOML as it would be written on a command line."""
    texts = []
    for one in value if isinstance(value, list) and setting.is_many else [value]:
        is_number = isinstance(one, int | float) and not isinstance(one, bool)
        if setting.read in (*_NUMBERS, number_or_auto) and is_number:
            text = f"{one:.17g}" if isinstance(one, float) else str(one)
        elif setting.read is flag and isinstance(one, bool):
            text = "true" if one else "false"
        elif setting.read not in (*_NUMBERS, flag) and isinstance(one, str):
            text = one
        else:
            kind = "a number" if setting.read in _NUMBERS else "true or false" if setting.read is flag else "text"
            form = "…" if setting.read in (*_NUMBERS, flag) else '"…"'
            raise ConfigurationRefused(f"{where} must be {kind}: write {where.rpartition(' ')[2]} = {form}")
        _check_text(where, text)
        texts.append(text)
    return texts


def _check_text(where: str, value: str) -> None:
    if "\0" in value:
        raise ConfigurationRefused(f"{where}: contains a NUL character: correct it")
    if _USER_IN_URL.search(value):
        raise ConfigurationRefused(
            f"{where}: holds a user name and perhaps a password: put them into the file that `properties` names"
        )
