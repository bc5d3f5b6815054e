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

from opicflow.schemas.errors import UserError

FILE_NAME = "opicflow.toml"

_SECRET = re.compile(r"passw|secret|token|jaas|credential|api.?key|user.?info", re.IGNORECASE)
_USER_IN_URL = re.compile(r"^[^/]*//[^/]*@|^[^/@]+:[^/@]*@")


class ConfigurationRefused(UserError, ValueError):
    """The configuration file or a variable cannot be used. One line: what, where, and what to do."""


@dataclass(frozen=True)
class Setting:
    """A setting: its meaning, its default, and whether it is a path, which is relative to the folder of the file."""

    help: str
    default: str | None = None
    is_path: bool = False


SETTINGS: dict[str, Setting] = {
    "brokers": Setting("HOST:PORT of the Kafka cluster; several with commas between"),
    "registry": Setting("the URL of a schema registry"),
    "properties": Setting("the file of Kafka's settings, which also holds all secrets", is_path=True),
    "prefix": Setting("text that the names of all topics begin with", default=""),
    "state": Setting("the folder of a replay's state", is_path=True),
    "flink-master": Setting("HOST:PORT of Flink's REST interface", default="localhost:8081"),
    "job-server": Setting("HOST:PORT of Beam's job server"),
    "checkpoints": Setting("the URL of a folder that all TaskManagers can access"),
    "worker-command": Setting("opicflow-worker, as it is installed on the TaskManagers"),
}


@dataclass(frozen=True)
class Value:
    """The value of a setting, and its source; None = not set."""

    value: str | None
    source: str


@dataclass(frozen=True)
class Configuration:
    """The values of all settings, without those of the command line."""

    values: dict[str, Value]
    file: Path | None = None

    @classmethod
    def read(cls, file: Path | None = None, variables: Mapping[str, str] = os.environ) -> Configuration:
        """Read a file, or `opicflow.toml` in the working folder if there is one, and the variables."""
        path = file if file is not None else Path(FILE_NAME)
        in_file = _values_of(path) if file is not None or path.is_file() else None
        values = {}
        for name, setting in SETTINGS.items():
            variable = variable_of(name)
            if variable in variables:  # an empty one switches off what the file sets
                value = Value(variables[variable] or setting.default, f"variable {variable}")
                _check_value(variable, variables[variable])
            elif in_file is not None and name in in_file:
                text = in_file[name]
                value = Value(str(path.parent / text) if setting.is_path else text, f"file {path}")
            else:
                value = Value(setting.default, "default" if setting.default else "not set")
            values[name] = value
        return cls(values, path if in_file is not None else None)

    def complete(self, options: argparse.Namespace) -> None:
        """Set every option that has a setting and was not given.

        `options.configured` becomes their names, `options.defaulted` the names of the options that keep their default.
        """
        options.configured, options.defaulted = set(), set()
        for name, value in self.values.items():
            dest = name.replace("-", "_")
            if dest in vars(options) and getattr(options, dest) is None and value.value is not None:
                setattr(options, dest, Path(value.value) if name == "state" else value.value)
                options.configured.add(dest)
                if value.source == "default":
                    options.defaulted.add(dest)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable_of("flink-master")
    'OPICFLOW_FLINK_MASTER'
    """
    return f"OPICFLOW_{name.upper().replace('-', '_')}"


def _values_of(path: Path) -> dict[str, str]:
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
            advice = f"do you mean {near[0]}?" if near else f"the settings are {', '.join(SETTINGS)}"
            raise ConfigurationRefused(f"{path}: unknown setting {name[:60]}: {advice}")
        if not isinstance(value, str):
            raise ConfigurationRefused(f'{path}: {name} must be text: write {name} = "…"')
        _check_value(f"{path}: {name}", value)
        values[name] = value
    return values


def _check_value(where: str, value: str) -> None:
    if "\0" in value:
        raise ConfigurationRefused(f"{where}: contains a NUL character: correct it")
    if _USER_IN_URL.search(value):
        raise ConfigurationRefused(
            f"{where}: holds a user name and perhaps a password: put them into the file that `properties` names"
        )
