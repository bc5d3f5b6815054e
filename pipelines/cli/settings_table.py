"""All settings: what a user may write into `opicflow.toml` or a variable, or give to a command.

Each is declared once, here. What many users need is an option of its own (`--bandwidth 1000`); the others are given by
`--set NAME=VALUE`. A command has the groups of settings that it adds with `add_settings`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opicflow.pipelines.cli.values import (
    flag,
    named_number,
    not_negative,
    number,
    number_or_auto,
    one_of,
    parameters,
    positive,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OptionGroup = argparse._ActionsContainer
"""A parser, or a group of its options."""
TITLE = "settings (docs/guides/configuration.md)"


@dataclass(frozen=True)
class Setting:
    """A setting: its meaning, how its text is read, and the field that it sets."""

    metavar: str
    help: str
    read: Callable[[str], object] = str
    field: str = ""
    """The group and the name of the field that it sets, such as `refresh.cycle_hours`: see `fields_of`."""
    default: str | None = None
    is_many: bool = False
    """It may be given several times; in the file it is a list."""
    is_path: bool = False
    """In the file it is relative to the folder of the file."""
    words: tuple[str, ...] = ()
    """Values that are no path."""


KAFKA = {
    "brokers": Setting("HOST:PORT", "of the cluster; several with commas between"),
    "properties": Setting("FILE", "settings such as security.protocol, and all secrets", is_path=True),
    "registry": Setting("URL", "a schema registry; without it, values have their own header"),
    "prefix": Setting("TEXT", "what the names of all topics begin with", default=""),
}
STATE = {
    "state": Setting("DIR", "the folder of a replay's state", Path, is_path=True),
}
LEDGER = {
    "history": Setting(
        "NAME",
        "certified (the default), interpolation, all, fixed, improved-fixed, variable, …; windows by --set measures=K, "
        "window-turns=T and others",
        field="ledger.history",
    ),
    "remember-links": Setting("", "keep the links of pages, at 5 bytes a link", flag, "ledger.remember_links"),
    "max-pages": Setting("N", "remove the poorest unread pages beyond so many", whole, "ledger.max_pages"),
    "max-unread-per-domain": Setting(
        "N", "learn no more unread pages of a registrable domain", whole, "domains.most_unread"
    ),
    "window-turns": Setting("T", "of the histories with a window (8)", number, "ledger.window_turns"),
    "window-days": Setting("DAYS", "the window in days of event time", number, "ledger.window_days"),
    "measures": Setting("K", "of the history variable: the last K measures of a page (8)", whole, "ledger.measures"),
    "min-measures": Setting(
        "N", "of the history improved-fixed: at least N measures of a page (3)", whole, "ledger.min_measures"
    ),
    "damping": Setting("D", "the share of cash that follows links (0.85)", number, "ledger.damping"),
    "max-unread-per-host": Setting(
        "N", "remove the poorest unread pages of a host beyond so many", whole, "ledger.max_unread_per_host"
    ),
    "max-announced-per-domain": Setting(
        "N", "learn no more pages of a domain a day by announcements", whole, "domains.most_announced"
    ),
    "max-share-per-domain": Setting(
        "S",
        "what unread pages of a domain have of the importance that pages have by being known (certified)",
        number,
        "domains.most_share",
    ),
}
RULES = {
    "drop-parameters": Setting(
        "NAMES",
        "query parameters that do not make another page: names with commas, * at the end for any; 'tracking' and "
        "'session' stand for the usual ones",
        parameters,
        "urls.drop_parameters",
    ),
    "fold-www": Setting("", "www.example.org is example.org", flag, "urls.fold_www"),
    "fold-https": Setting("true", "http pages are the https ones", flag, "urls.fold_https"),
    "internal-weight": Setting("W", "of links within a site (1)", number, "weights.internal"),
    "external-weight": Setting("W", "of links to other sites (1)", number, "weights.external"),
    "nofollow-weight": Setting("W", "of nofollow, ugc and sponsored links (0)", number, "weights.nofollow"),
    "same-site": Setting(
        "KIND",
        "whose links are within a site: those of a host (the default), or of a registrable domain",
        one_of("host", "domain"),
        "weights.same_site",
    ),
}
REFRESH = {
    "bandwidth": Setting("N", "fetches a day (as many as the crawl made)", number, "refresh.bandwidth_per_day"),
    "refresh-strategy": Setting(
        "NAME",
        "thesis (its cost by --set alpha=A), freshness, harmonic, importance, greedy or uniform",
        field="refresh.strategy",
    ),
    "alpha": Setting(
        "A",
        "of the thesis' cost of an old copy: its importance, times (change rate times age) to the power A (0.95)",
        number,
        "refresh.alpha",
    ),
    "rates": Setting(
        "NAME",
        "how change rates are estimated: likelihood (the default), existence (without dates), thesis (by its formulas)",
        field="refresh.estimator",
    ),
    "cycle": Setting("HOURS", "the time between two sets of orders (24; a stream: 1)", number, "refresh.cycle_hours"),
    "discovery-share": Setting(
        "S",
        "of the bandwidth, for unread pages (0.25); auto: at least a quarter, more while that is worth more than "
        "refreshing",
        number_or_auto,
        "refresh.discovery_share",
    ),
    "discovery-by": Setting(
        "NAME",
        "which unread pages first: learnt (the default: by importance, siblings, and what exploring has brought), "
        "importance, cash, found (the first found first)",
        field="refresh.discovery_by",
    ),
    "rate-prior": Setting(
        "NAME", "of change rates: learnt from the crawl (the default), or fixed", field="refresh.rate_prior"
    ),
    "domain-fetches": Setting("N", "of a registrable domain a day at most", number, "refresh.domain_fetches_per_day"),
    "domain-discovery": Setting("S", "of discovery, for one domain at most", number, "refresh.domain_discovery_share"),
    "domain-refreshing": Setting(
        "N", "of refreshing, for one domain: times its importance at most (2)", number, "refresh.domain_refreshing"
    ),
    "traps": Setting(
        "KIND",
        "pages that bring only more of themselves, or what others have: limited (the default), or ignored: they are "
        "fetched as others",
        one_of("limited", "ignored"),
        "refresh.traps",
    ),
    "host-fetches": Setting("N", "of a host a day at most", number, "refresh.host_fetches_per_day"),
    "host-fetches-per-hour": Setting("N", "of a host an hour at most", number, "refresh.host_fetches_per_hour"),
    "crawl-delay": Setting("SECONDS", "between two fetches of a host", number, "refresh.crawl_delay_seconds"),
    "shortest-interval": Setting(
        "SECONDS", "between two fetches of a page (3600)", number, "refresh.shortest_interval_seconds"
    ),
    "longest-interval": Setting("DAYS", "between two fetches of a page (365)", number, "refresh.longest_interval_days"),
}
CATEGORY = {
    "category": Setting("PATTERN", "one of URLs such as *.pdf; repeatable", field="categories.patterns", is_many=True),
}
FOCUS = {
    "by-media": Setting("", "categories html, xml, feed, pdf, other", flag, "categories.by_media"),
    **CATEGORY,
    "bonus": Setting("NAME=S", "of links to a category's pages; repeatable", named_number, "focus.bonus", is_many=True),
    "unread-weight": Setting("W", "of unread pages in dividends (1)", number, "focus.unread_weight"),
}
FACTOR = {
    "factor": Setting("NAME=F", "of a category's importance; repeatable", named_number, is_many=True),
}
SITES = {
    "sites": Setting(
        "KIND",
        "what a site is, in site-importance: domain (a registrable domain, the default), host; none: no sites",
        one_of("domain", "host", "none"),
    ),
}
REPLAY = {
    "id-key": Setting(
        "FILE",
        "make page ids with the key in this file, 16 bytes or more, instead of a random one; public: with the "
        "public key",
        Path,
        is_path=True,
        words=("public",),
    ),
    "urls-on-disk": Setting(
        "true",
        "keep URLs and remembered links in files, and all pages while results are made: for very many pages; done by "
        "itself where the ledger takes nearly half of --memory",
        flag,
    ),
    "segment-mb": Setting("N", "of input between two points from which a killed replay continues (512)", whole),
}
BEAM = {
    "beam-option": Setting("OPTION", "for Beam's runner; repeatable", field="job.beam_options", is_many=True),
}
FLINK_MASTER = {
    "flink-master": Setting(
        "HOST:PORT", "Flink's REST interface (localhost:8081)", field="job.flink_master", default="localhost:8081"
    ),
}
DEPLOYMENT = {
    **FLINK_MASTER,
    "job-server": Setting(
        "HOST:PORT", "Beam's job server; without it, Beam starts one of its own", field="job.job_server"
    ),
    "worker-command": Setting("FILE", "opicflow-worker, as it is on the TaskManagers", field="job.worker_command"),
    **BEAM,
    "checkpoints": Setting(
        "URL", "a folder that all TaskManagers can access: file:///… or s3://…", field="job.checkpoints"
    ),
    "parallelism": Setting("N", "slots to use (all that are free)", whole, "job.parallelism"),
    "workers": Setting("N", "Python workers a TaskManager (2)", whole, "job.workers"),
    "job-server-jar": Setting(
        "FILE", "the jar of the job server that Beam starts; without it, Beam fetches it", field="job.job_server_jar"
    ),
    "checkpoint-seconds": Setting("S", "between checkpoints (10)", positive, "job.checkpoint_seconds"),
    "state-backend": Setting(
        "rocksdb|heap", "heap for small ledgers (rocksdb)", one_of("rocksdb", "heap"), "job.state_backend"
    ),
    "worker-logs": Setting("DIR", "the folder of the workers' logs", field="job.worker_logs"),
    "worker-image": Setting("IMAGE", "a container image instead of the worker command", field="job.worker_image"),
    "tick-seconds": Setting("S", "between cuts (1)", positive, "stream.tick_seconds"),
    "snapshot-mb": Setting(
        "N", "of a log between two snapshots of its ledger, at least (16)", positive, "stream.least_log_mb"
    ),
    "keep-snapshots": Setting("N", "snapshots of a shard stay, at least (3)", whole, "snapshots.keep"),
    "keep-snapshot-hours": Setting(
        "H", "of a log: its snapshots stay at least so long (24)", not_negative, "snapshots.keep_hours"
    ),
}
GROUPS = {
    "how to reach Kafka (docs/guides/kafka.md)": KAFKA,
    "how to run a replay": {**STATE, **REPLAY},
    "how to run a stream (docs/guides/operations.md)": DEPLOYMENT,
    "how importance is computed": LEDGER,
    "which URLs are one page, and the weights of links": RULES,
    "when pages are fetched again (docs/guides/refresh.md)": REFRESH,
    "what to focus on (docs/guides/refresh.md)": {**FOCUS, **FACTOR, **SITES},
}
MAY_BE_EMPTY = {*KAFKA, *FLINK_MASTER, "job-server", "worker-command", "checkpoints"}
"""Options whose empty value switches off what the file sets."""
OPTIONS = {*MAY_BE_EMPTY, *STATE, *CATEGORY, "history", "remember-links", "max-pages", "max-unread-per-domain"}
OPTIONS |= {"drop-parameters", "fold-www", "by-media", "bandwidth", "refresh-strategy", "parallelism", "workers"}
"""The settings that are options of their own; the others are given by `--set`."""
CRAWL = {**LEDGER, **RULES, **REFRESH, **FOCUS}
"""The settings of a frontier inside a crawler."""
SETTINGS = {name: setting for settings in GROUPS.values() for name, setting in settings.items()}


def dest_of(name: str) -> str:
    """Return the attribute of `options` that holds a setting."""
    return name.replace("-", "_")


def add_settings(
    parser: argparse.ArgumentParser, settings: Mapping[str, Setting], title: str = "", **help_: str
) -> OptionGroup:
    """Add settings to a command: some as options in a group with this title, the others by `--set`.

    `help_` has other words for some of them. Returns the group.
    """
    group = _group(parser, title) if title else parser
    for name, setting in settings.items():
        parser.set_defaults(**{dest_of(name): None})
        if name in OPTIONS:
            _add_option(group, name, setting, help_.get(dest_of(name), setting.help))
    known: dict[str, Setting] = parser.get_default("settings") or {}
    if settings.keys() - OPTIONS and not known.keys() - OPTIONS:
        command = parser.prog.split()[1]
        _group(parser, TITLE).add_argument(
            "--set",
            action=_Set,
            metavar="NAME=VALUE",
            help=f"one of many other settings, such as {_example(settings)}; repeatable; opicflow config {command} "
            "lists them",
        )
    parser.set_defaults(settings={**known, **settings})
    return group


def _group(parser: argparse.ArgumentParser, title: str) -> OptionGroup:
    found = (group for group in parser._action_groups if group.title == title)
    return next(found, None) or parser.add_argument_group(title)


def _add_option(group: OptionGroup, name: str, setting: Setting, help_: str) -> None:
    if setting.read is flag:
        group.add_argument(f"--{name}", action="store_const", const=True, help=help_)
    else:
        action = "append" if setting.is_many else "store"
        group.add_argument(f"--{name}", action=action, type=setting.read, metavar=setting.metavar, help=help_)


def _example(settings: Mapping[str, Setting]) -> str:
    name, setting = next((name, one) for name, one in settings.items() if name not in OPTIONS)
    return f"{name}={setting.metavar}"


class _Set(argparse.Action):
    """The option `--set NAME=VALUE`."""

    def __init__(self, option_strings: list[str], dest: str, metavar: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, metavar=metavar, help=help)

    def completer(self, parser: argparse.ArgumentParser, **_: object) -> list[str]:
        """Return the names of settings, for the shell."""
        return [f"{name}=" for name in parser.get_default("settings").keys() - OPTIONS]

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: object = None
    ) -> None:
        """Read the value, and set it."""
        name, is_given, text = str(values).partition("=")
        settings: dict[str, Setting] = namespace.settings
        if name not in settings:
            near = get_close_matches(name.lower().replace("_", "-"), settings.keys() - OPTIONS, 1)
            advice = f"do you mean {near[0]}?" if near else f"opicflow config {parser.prog.split()[1]} lists them"
            raise argparse.ArgumentError(self, f"unknown setting {name[:40]!r}: {advice}")
        setting = settings[name]
        if name in OPTIONS:
            raise argparse.ArgumentError(self, f"{name} is an option of its own: give --{name}")
        if not is_given or not text:
            raise argparse.ArgumentError(self, f"{name} has no value: give {name}={setting.metavar}")
        try:
            value = setting.read(text)
        except argparse.ArgumentTypeError as problem:
            raise argparse.ArgumentError(self, f"{name}: {problem}") from None
        _give(namespace, name, value)


def options_of(settings: Mapping[str, Setting], values: Iterable[tuple[str, str]]) -> argparse.Namespace:
    """Return the options of a command with these settings, of which some have values, as texts."""
    options = argparse.Namespace(settings=settings, **{dest_of(name): None for name in settings})
    for name, text in values:
        _give(options, name, settings[name].read(text))
    return options


def _give(options: argparse.Namespace, name: str, value: object) -> None:
    dest, is_many = dest_of(name), options.settings[name].is_many
    setattr(options, dest, [*(getattr(options, dest) or ()), value] if is_many else value)


def fields_of(options: argparse.Namespace, group: str) -> dict[str, Any]:
    """Return the fields that the settings of a command set, of a group such as `refresh`: those that are given."""
    given = {}
    for name, setting in options.settings.items():
        owner, _, field = setting.field.partition(".")
        value = getattr(options, dest_of(name))
        if owner == group and value is not None:
            given[field] = tuple(value) if setting.is_many else value
    return given


def names_of(parser: argparse.ArgumentParser, words: Iterable[str]) -> set[str]:
    """Return the names of the settings of a command that these words name, and of all its actions."""
    names = set(parser.get_default("settings") or ())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in words or action.choices:
                names |= names_of(action.choices[word], ())
    return names


def words_of(name: str, values: Iterable[object]) -> list[str]:
    """Return the words of a command line that give an option or a setting these values."""
    words: list[str] = []
    for value in values:
        if name in SETTINGS.keys() - OPTIONS:
            words += ["--set", f"{name}={'true' if value is True else value}"]
        elif value is True:
            words += [f"--{name}"]
        else:
            words += [f"--{name}={value}"] if str(value).startswith("-") else [f"--{name}", str(value)]
    return words


def shown_name(name: str, settings: Mapping[str, Setting] = SETTINGS) -> str:
    """Return how a user writes the name of an option, or of one of these settings.

    >>> shown_name("bandwidth"), shown_name("cycle")
    ('--bandwidth', '--set cycle')
    """
    name = name.replace("_", "-")
    return f"--set {name}" if name in settings.keys() - OPTIONS else f"--{name}"
