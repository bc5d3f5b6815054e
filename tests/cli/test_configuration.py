"""opicflow.toml and environment variables: precedence, the source of each value, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from opicflow.pipelines.cli.configuration import Configuration, ConfigurationRefused
from opicflow.pipelines.cli.main import parse
from opicflow.pipelines.cli.settings_table import OPTIONS, SETTINGS, dest_of
from opicflow.pipelines.cli.values import flag, named_number, not_negative, number, positive, whole
from support.commands import CommandResult, command, output_of, refusal


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
    assert {name for name, value in configuration.values.items() if str(value)} == {"flink-master"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('broker = "a:1"', "opicflow.toml: unknown setting broker: do you mean brokers?"),
        ('flink_master = "a:1"', "unknown setting flink_master: do you mean flink-master?"),
        ('colour = "red"', "unknown setting colour: opicflow config lists the settings"),
        ('sasl_password = "hush"', "sasl_password: no secrets in this file"),
        ('registry = "https://me:hush@registry"', "registry: holds a user name and perhaps a password"),
        ('state = "a\\u0000b"', "state: contains a NUL character: correct it"),
        ("brokers = 9092", 'brokers must be text: write brokers = "…"'),
        ("[kafka]\nbrokers = 1", "unknown setting kafka"),
        ('cycle = "1"', "cycle must be a number: write cycle = …"),
        ("fold-www = 1", "fold-www must be true or false"),
        ("max-pages = 0", "max-pages: '0' is not a positive whole number"),
        ("max-pages = true", "max-pages must be a number"),
        ("category = [1]", "category must be text"),
        ("damping = [0.5]", "damping must be a number"),
        ('sites = "country"', "sites: unknown value 'country': give one of domain, host, none"),
        ("brokers", "not TOML"),
    ],
)
def test_an_unusable_file_gives_one_line_of_error(folder: Path, text: str, message: str) -> None:
    write(folder / "opicflow.toml", text)
    error = refusal("config")
    assert error.startswith("opicflow: opicflow.toml") and message in error
    assert "hush" not in error


def test_a_named_file_must_exist() -> None:
    error = refusal("--config", "missing.toml", "config")
    assert error == "opicflow: missing.toml: cannot be read (No such file or directory): name another file\n"


def test_a_secret_in_a_variable_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationRefused, match="OPICFLOW_REGISTRY: holds a user name") as refused:
        Configuration.read(variables={"OPICFLOW_REGISTRY": "http://me:hush@registry"})
    assert "hush" not in str(refused.value)


def test_help_and_version_work_with_an_unusable_file(folder: Path) -> None:
    write(folder / "opicflow.toml", "brokers")
    assert "opicflow" in output_of("--version")
    assert "--brokers" in output_of("topics", "check", "--help")


@pytest.mark.parametrize("given, shown", [("0.5", "0.5"), ("1", "1"), ('"auto"', "auto")])
def test_a_setting_of_a_number_or_a_word_takes_both(folder: Path, given: str, shown: str) -> None:
    write(folder / "opicflow.toml", f"discovery-share = {given}")
    assert f"      = {shown}  (file opicflow.toml)\n" in output_of("config")


def test_config_shows_each_setting_with_its_value_and_its_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "opicflow.toml", 'brokers = "kafka:9092"\nprefix = "a-"\ncategory = ["*.pdf", "*.doc"]\ncycle = 2')
    monkeypatch.setenv("OPICFLOW_PREFIX", "b-")
    shown = output_of("config")
    for lines in (
        "  --brokers HOST:PORT                 of the cluster; several with commas between\n"
        "      = kafka:9092  (file opicflow.toml)\n",
        "      = b-  (variable OPICFLOW_PREFIX)\n",
        "      = *.pdf, *.doc  (file opicflow.toml)\n",
        "      = 2  (file opicflow.toml)\n",
    ):
        assert lines in shown
    as_json = json.loads(output_of("config", "--json"))
    assert as_json["file"] == "opicflow.toml"
    assert as_json["settings"]["brokers"]["value"] == "kafka:9092"
    assert as_json["settings"]["registry"]["value"] is None
    assert as_json["settings"]["flink-master"]["source"] == "default"
    assert list(as_json["settings"]) == list(SETTINGS)
    of_topics = json.loads(output_of("config", "topics", "--json"))["settings"]
    assert list(of_topics) == ["brokers", "properties", "registry", "prefix"]


# -- --set


@pytest.mark.slow
def test_a_setting_of_the_file_is_the_same_as_an_option_or_set(folder: Path) -> None:
    """Every setting of a replay and of a stream, in the file and on the command line."""
    values = {whole: "7", number: "0.5", positive: "2.5", not_negative: "0", flag: "true", named_number: "pdf=0.5"}
    choices = {"same-site": "domain", "sites": "host", "state-backend": "heap", "traps": "ignored"}
    choices["discovery-share"] = "auto"
    for words in (["replay", "log"], ["stream"], ["schedule"], ["publish", "rules"]):
        settings = parse(words).settings
        assert len(settings) > 3
        for name, setting in settings.items():
            text = choices.get(name) or values.get(setting.read, "/x")
            form = text if setting.read in (whole, number, positive, not_negative, flag) else json.dumps(text)
            write(folder / "opicflow.toml", f"{name} = {form}")
            from_file = vars(parse(words))[dest_of(name)]
            (folder / "opicflow.toml").unlink()
            given = [f"--{name}", *([text] if setting.read is not flag else [])] if name in OPTIONS else []
            from_line = vars(parse([*words, *(given or ["--set", f"{name}={text}"])]))[dest_of(name)]
            assert from_line == from_file is not None, name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cylce=1", "unknown setting 'cylce': do you mean cycle?"),
        ("colour=1", "unknown setting 'colour': opicflow config replay lists them"),
        ("tick-seconds=1", "unknown setting 'tick-seconds': opicflow config replay lists them"),
        ("bandwidth=1", "bandwidth is an option of its own: give --bandwidth"),
        ("cycle", "cycle has no value: give cycle=HOURS"),
        ("cycle=", "cycle has no value: give cycle=HOURS"),
        ("cycle=soon", "cycle: 'soon' is not a number"),
        ("bonus=pdf", "bonus: 'pdf' is not NAME=NUMBER, such as pdf=0.5"),
        ("fold-https=yes", "fold-https: 'yes' is not true or false"),
        ("sites=country", "sites: unknown value 'country': give one of domain, host, none"),
    ],
)
def test_a_wrong_setting_gives_one_line_of_error(given: str, message: str) -> None:
    expected = f"opicflow replay: argument --set: {message} (see opicflow replay --help)\n"
    assert command("replay", "log", "--set", given) == (2, "", expected)


def test_the_setting_of_another_command_is_refused_by_an_action() -> None:
    refused = command("publish", "rules", "--set", "damping=1").err
    assert "unknown setting 'damping': opicflow config publish lists them" in refused


def test_an_impossible_value_is_named_as_it_was_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "log.jsonl", '{"url": "https://a.example/", "status": 200}')

    def replay(*given: str) -> CommandResult:
        return command("replay", "log.jsonl", "--quiet", *given)

    assert replay("--set", "cycle=0").err.startswith("opicflow: --set cycle=0: give")
    assert replay("--bandwidth", "-5").err.startswith("opicflow: --bandwidth -5: give")
    write(folder / "opicflow.toml", "cycle = 0")
    assert replay().err.startswith("opicflow: opicflow.toml: cycle = 0: give")
    monkeypatch.setenv("OPICFLOW_CYCLE", "-1")
    assert replay().err.startswith("opicflow: OPICFLOW_CYCLE = -1: give")


@pytest.mark.parametrize("name", ["replay", "stream"])
def test_help_fits_on_two_screens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    help_ = output_of(name, "--help")
    assert len(help_.splitlines()) <= 96
    assert len(re.findall(r"^  (?:-\w, )?--[a-z]", help_, re.MULTILINE)) <= 40
