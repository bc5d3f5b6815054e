"""opicflow.toml and environment variables: precedence, the source of each value, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opicflow.pipelines.cli.configuration import SETTINGS, Configuration, ConfigurationRefused
from opicflow.pipelines.cli.main import parse
from support.commands import command, output_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no variables."""
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:
        monkeypatch.delenv(f"OPICFLOW_{name.upper().replace('-', '_')}", raising=False)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_an_option_precedes_the_variable_the_file_and_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def master(*arguments: str) -> str:
        return str(parse(["stream", "status", *arguments]).flink_master)

    assert master() == "localhost:8081"
    write(folder / "opicflow.toml", 'flink-master = "file:1"')
    assert master() == "file:1"
    monkeypatch.setenv("OPICFLOW_FLINK_MASTER", "variable:1")
    assert master() == "variable:1"
    assert master("--flink-master", "option:1") == "option:1"


@pytest.mark.parametrize("arguments", [["--config", "team.toml", "topics", "check"], ["topics", "check"]])
def test_config_is_accepted_before_and_after_the_command(folder: Path, arguments: list[str]) -> None:
    write(folder / "team.toml", 'brokers = "kafka:9092"\nprefix = "team-"')
    if "--config" not in arguments:
        arguments = ["topics", "check", "--config=team.toml"]
    options = parse(arguments)
    assert (options.brokers, options.prefix) == ("kafka:9092", "team-")


def test_paths_are_relative_to_the_folder_of_the_file(folder: Path) -> None:
    (folder / "conf").mkdir()
    write(folder / "conf" / "a.toml", 'state = "state"\nproperties = "/etc/client.properties"')
    options = parse(["--config", "conf/a.toml", "replay", "log"])
    assert (options.state, options.properties) == (Path("conf/state"), "/etc/client.properties")


def test_an_empty_variable_removes_the_value_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "opicflow.toml", 'state = "state"')
    monkeypatch.setenv("OPICFLOW_STATE", "")
    assert parse(["replay", "log"]).state is None


def test_without_a_file_and_variables_the_defaults_apply() -> None:
    configuration = Configuration.read(variables={})
    assert configuration.file is None
    assert {name for name, value in configuration.values.items() if value.value} == {"flink-master"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('broker = "a:1"', "opicflow.toml: unknown setting broker: do you mean brokers?"),
        ('flink_master = "a:1"', "unknown setting flink_master: do you mean flink-master?"),
        ('colour = "red"', "unknown setting colour: the settings are brokers, registry,"),
        ('sasl_password = "hush"', "sasl_password: no secrets in this file"),
        ('registry = "https://me:hush@registry"', "registry: holds a user name and perhaps a password"),
        ('state = "a\\u0000b"', "state: contains a NUL character: correct it"),
        ("brokers = 9092", 'brokers must be text: write brokers = "…"'),
        ("[kafka]\nbrokers = 1", "unknown setting kafka"),
        ("brokers", "not TOML"),
    ],
)
def test_an_unusable_file_gives_one_line_of_error(folder: Path, text: str, message: str) -> None:
    write(folder / "opicflow.toml", text)
    result = command("config")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1 and result.err.startswith("opicflow: opicflow.toml") and message in result.err
    assert "hush" not in result.err


def test_a_named_file_must_exist() -> None:
    result = command("--config", "missing.toml", "config")
    assert result.code == 2 and result.err == (
        "opicflow: missing.toml: cannot be read (No such file or directory): name another file\n"
    )


def test_a_secret_in_a_variable_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationRefused, match="OPICFLOW_REGISTRY: holds a user name") as refused:
        Configuration.read(variables={"OPICFLOW_REGISTRY": "http://me:hush@registry"})
    assert "hush" not in str(refused.value)


def test_help_and_version_work_with_an_unusable_file(folder: Path) -> None:
    write(folder / "opicflow.toml", "brokers")
    assert "opicflow" in output_of("--version")
    assert "--brokers" in output_of("topics", "check", "--help")


def test_config_shows_each_value_and_its_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "opicflow.toml", 'brokers = "kafka:9092"\nprefix = "a-"')
    monkeypatch.setenv("OPICFLOW_PREFIX", "b-")
    shown = {line.split()[0]: line.split(None, 2)[1:] for line in output_of("config").splitlines()[2:]}
    assert shown["brokers"] == ["kafka:9092", "file opicflow.toml"]
    assert shown["prefix"] == ["b-", "variable OPICFLOW_PREFIX"]
    assert shown["flink-master"] == ["localhost:8081", "default"]
    assert shown["registry"] == ["-", "not set"]
    as_json = json.loads(output_of("config", "--json"))
    assert as_json["file"] == "opicflow.toml"
    assert as_json["settings"]["brokers"]["value"] == "kafka:9092"
    assert list(as_json["settings"]) == list(shown) == list(SETTINGS)
