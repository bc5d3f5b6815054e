"""The settings of the add-on in a project, checked: a mistake is reported before the crawl begins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from scrapy.settings import BaseSettings

from opicflow.pipelines.cli.configuration import read_value, texts_of, variable_of
from opicflow.pipelines.cli.settings_table import CRAWL, fields_of, options_of
from opicflow.pipelines.crawl.recorder.protocol import RecorderConfig
from opicflow.schemas.errors import UserError
from opicflow.schemas.urls import UrlRules

FOLDER, BROKERS, PROPERTIES, PREFIX = "OPICFLOW_FOLDER", "OPICFLOW_BROKERS", "OPICFLOW_PROPERTIES", "OPICFLOW_PREFIX"
_NAMES = (FOLDER, BROKERS, PROPERTIES, PREFIX)
_OF_THE_LEDGER = {variable_of(name): name for name in CRAWL}
"""The names of settings that the command line has, too."""
_TOPIC_LETTERS = re.compile(r"[A-Za-z0-9._-]*")


class SettingRefused(UserError):
    """A setting of the add-on has a wrong name or value."""


def recorder_config(settings: BaseSettings, spider_name: str) -> RecorderConfig:
    """Return what the recorder of a spider needs to know. Raises `SettingRefused`.

    An address of a broker and the file of properties are checked by the recorder, which has the client of Kafka.
    """
    known = {_last_word(one): one for one in (*_NAMES, *_OF_THE_LEDGER)}
    for name in settings:
        if str(name).startswith("OPICFLOW_") and name not in known.values():
            near = get_close_matches(_last_word(str(name)), known, 1)
            advice = f"did you mean {known[near[0]]}?" if near else "opicflow config lists the settings"
            raise SettingRefused(f"{name}: no setting of opicflow: {advice}")
    folder = _text(settings, FOLDER)
    if not folder:
        raise SettingRefused(f"{FOLDER} is empty: name the folder of the frontiers")
    prefix, properties = _text(settings, PREFIX), _text(settings, PROPERTIES)
    if not _TOPIC_LETTERS.fullmatch(prefix):
        raise SettingRefused(f"{PREFIX}: {prefix[:80]!r} cannot begin the name of a topic: use letters, digits, '._-'")
    return RecorderConfig(
        str(Path(folder).resolve() / spider_name),
        _brokers(settings) or None,
        str(Path(properties).resolve()) if properties else None,
        prefix,
        tuple(_values_of_the_ledger(settings)),
    )


def url_rules(values: Iterable[tuple[str, str]]) -> UrlRules:
    """Return the rules of URLs among these settings."""
    return UrlRules(**fields_of(options_of(CRAWL, values), "urls"))


def _values_of_the_ledger(settings: BaseSettings) -> Iterator[tuple[str, str]]:
    """Yield the settings of importance, URLs, refreshing and focus, as on the command line. Raises `UserError`."""
    for variable, name in _OF_THE_LEDGER.items():
        value: object = settings.get(variable)
        if value is not None and value != "":
            for text in [value] if isinstance(value, str) else texts_of(CRAWL[name], variable, value):
                read_value(CRAWL[name], variable, text)
                yield name, text


def _last_word(name: str) -> str:
    return name.removeprefix("OPICFLOW_")


def _text(settings: BaseSettings, name: str) -> str:
    value: object = settings.get(name)
    if value is None or isinstance(value, str | Path):
        return "" if value is None else str(value)
    raise SettingRefused(f"{name} is {str(value)[:80]!r}, of type {type(value).__name__}: give a text")


def _brokers(settings: BaseSettings) -> str:
    """Return the brokers, which may also be a list, as other settings of Scrapy."""
    value: object = settings.get(BROKERS)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return _text(settings, BROKERS)
