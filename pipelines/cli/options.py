"""Groups of options that several commands share.

`add_…_options` adds a group to a parser; `…_of` returns its values as one frozen dataclass, which travels whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.settings_table import KAFKA, RULES, STATE, OptionGroup, add_settings, fields_of

if TYPE_CHECKING:
    from opicflow.connectors.files.reading import Reading
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.pipelines.results.exports.result_rows import Rows
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stages.settings import CashFocus, LedgerOptions
    from opicflow.schemas.sites import SiteKind

_LOG_HELP = (
    "JSON lines, JSON, CSV, Avro, WARC, WAT, an edge list, or the log of a crawler that is known; plain, gzip or zstd; "
    "a path, a glob, - for standard input, or a URL that Beam's file systems open"
)


def moment(option: str, text: str | None) -> int | None:
    """Return the time of an option in milliseconds."""
    from opicflow.schemas.json_events import time_ms_of

    if text is None:
        return None
    time_ms = time_ms_of(text)
    if time_ms is None:
        raise InputRefused(f"{option} {text[:40]}: not a time: write it like 2026-05-01 or 2026-05-01T12:00:00Z")
    return time_ms


def now_second_of(text: str | None, option: str = "--now") -> int | None:
    """Return the second of an option: a time, or `now` for that of this machine's clock."""
    if text == "now":
        return int(datetime.now(timezone.utc).timestamp())  # noqa: TID251 - the user requests this clock
    time_ms = moment(option, text)
    return None if time_ms is None else time_ms // 1000


def add_latest(parser: argparse.ArgumentParser) -> None:
    """Add the time after which events are rejected."""
    parser.add_argument(
        "--latest", metavar="TIME", help="reject later events (by default those more than a day ahead of the clock)"
    )


def latest_ms_of(text: str | None, now: str | None) -> int:
    """Return the time of --latest in milliseconds: by default a day after this machine's clock, or after --now."""
    from opicflow.pipelines.stages.route import MOST_AHEAD_MS

    time_ms = moment("--latest", text)
    if time_ms is not None:
        return time_ms
    clock = datetime.now(timezone.utc).timestamp()  # noqa: TID251 - a visit is not ahead of the clock
    return 1000 * max(int(clock), now_second_of(now) or 0) + MOST_AHEAD_MS


# -- input and output --------------------------------------------------------------------------------------------------


def add_logs(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """Add the logs to read, and how they are read."""
    parser.add_argument("logs", nargs=nargs, metavar="LOG", help=_LOG_HELP)
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add how logs are read."""
    group = parser.add_argument_group("how logs are read (docs/guides/other-crawlers.md)")
    group.add_argument(
        "--input-format",
        default="",
        metavar="NAME",
        help="do not detect the format: jsonl, json, csv, avro, arc, warc, wat, edges; heritrix, stormcrawler, nutch, "
        "browsertrix, crawlee, apify, katana, hakrawler, screaming-frog, gospider, common-crawl, scrapy; "
        "hakrawler-links, heritrix-links, katana-links, screaming-frog-links, nutch-links, nutch-segment",
    )
    group.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="FIELD=NAME",
        help="the name that a field has in JSON or CSV, such as url=page_url; repeatable",
    )


def reading_of(options: argparse.Namespace) -> Reading:
    """Return what users say about the records of logs."""
    from opicflow.connectors.files.formats import check_name
    from opicflow.connectors.files.reading import Reading, parse_fields

    return Reading(check_name(options.input_format), parse_fields(options.field))


def add_state_options(parser: argparse.ArgumentParser) -> None:
    """Add the state folder that a command reads."""
    add_settings(parser, STATE)


def state_of(options: argparse.Namespace) -> Path:
    """Return the state folder, which has to be named by the option or by the configuration."""
    if options.state is None:
        raise InputRefused(
            f"{options.command}: no state: name its folder with --state DIR, or as `state` in opicflow.toml"
        )
    return Path(options.state)


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the results that a command reads instead of a state."""
    parser.add_argument(
        "results", nargs="*", metavar="RESULT", help="the folder of a replay's results, or result files; not a state"
    )


def results_of(options: argparse.Namespace, kind: str, now_ms: int | None, columns: tuple[str, ...] = ()) -> Rows:
    """Return the rows of a result, from files or from a state. Orders that have expired at `now_ms` are left out.

    Without `columns` they have those that other systems take.
    """
    from opicflow.pipelines.replay.answers import read_answers
    from opicflow.pipelines.results.exports.result_rows import rows_of_files, rows_of_parts

    if options.results:
        if options.state is not None and "state" not in options.configured:
            raise InputRefused(f"{options.results[0]}, --state: both have results: name one")
        return rows_of_files(kind, options.results, now_ms, columns)
    if options.state is None:
        raise InputRefused(f"{options.command}: no results: name their folder or files, or a state with --state DIR")
    answers, _ = read_answers(options.state)
    parts = {"importance": answers.importance, "schedule": answers.schedules, "orders": [answers.orders]}
    return rows_of_parts(kind, parts[kind], now_ms, columns)


def add_json(parser: OptionGroup, help_: str = "print JSON") -> None:
    """Add the option for machine-readable output."""
    parser.add_argument("--json", action="store_true", help=help_)


def add_quiet(parser: OptionGroup) -> None:
    """Add the option that switches progress off."""
    parser.add_argument("--quiet", action="store_true", help="no progress")


def add_site_kind(parser: OptionGroup, help_: str, kinds: Sequence[str] = ("host", "domain")) -> None:
    """Add the option for sites instead of pages."""
    parser.add_argument("--by", choices=kinds, default="page" if "page" in kinds else None, help=help_)


def sites_of(options: argparse.Namespace) -> SiteKind | None:
    """Return what sites are; None for no sites."""
    return None if options.sites == "none" else options.sites or "domain"


def add_list_form(parser: OptionGroup) -> None:
    """Add the form of a list of sites."""
    parser.add_argument(
        "--as",
        dest="form",
        choices=["commoncrawl", "tranco"],
        help="write a list of sites, to --out or to standard output: as Common Crawl's ranks, or as Tranco's list",
    )


# -- Kafka -------------------------------------------------------------------------------------------------------------


def add_kafka_options(parser: argparse.ArgumentParser, brokers: bool = True) -> None:
    """Add how to reach Kafka; without `--brokers` for commands that name a cluster by its address."""
    settings = KAFKA if brokers else {name: one for name, one in KAFKA.items() if name != "brokers"}
    add_settings(parser, settings, "how to reach Kafka (docs/guides/kafka.md)")


def connection_of(options: argparse.Namespace) -> Connection:
    """Return the connection to Kafka. The properties file may name the brokers."""
    from opicflow.connectors.kafka.connection import Connection, KafkaRefused, parse_address
    from opicflow.connectors.kafka.properties import Properties

    brokers = options.brokers
    if brokers and brokers.startswith("kafka:"):
        address = parse_address(brokers)
        if address.topic is not None:
            raise KafkaRefused(f"--brokers names the topic {address.topic}: give kafka://HOST:PORT alone")
        brokers = address.brokers
    if not brokers and options.properties:
        brokers = Properties.read(options.properties).get("bootstrap.servers")
    if not brokers:
        raise KafkaRefused(
            "no brokers: name them with --brokers HOST:PORT, as `brokers` in opicflow.toml, or as bootstrap.servers in "
            "the file of --properties"
        )
    return Connection(brokers, options.properties, options.registry)


# -- what the ledger computes ------------------------------------------------------------------------------------------


def add_rule_options(parser: argparse.ArgumentParser) -> None:
    """Add the rules of URLs and links."""
    add_settings(parser, RULES, "which URLs are one page, and the weights of links")


def rules_of(options: argparse.Namespace) -> Rules | None:
    """Return the rules of URLs, links and categories; None if no setting has one."""
    from opicflow.pipelines.ledger import ConfigRefused
    from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
    from opicflow.schemas.urls import UrlRules

    urls, weights, categories = (fields_of(options, group) for group in ("urls", "weights", "categories"))
    if not (urls or weights or categories):
        return None
    try:
        return Rules(UrlRules(**urls), LinkWeights(**weights), Categories(**categories))
    except ValueError as problem:
        raise ConfigRefused(str(problem)) from None


def ledger_options_of(options: argparse.Namespace) -> LedgerOptions:
    """Return the settings of the ledger, its refresh schedule included."""
    from opicflow.pipelines.stages.settings import LedgerOptions

    refresh, domains = fields_of(options, "refresh"), fields_of(options, "domains")
    return LedgerOptions(**fields_of(options, "ledger"), refresh=refresh, domains=domains)


def focus_of(options: argparse.Namespace) -> CashFocus | None:
    """Return which pages receive more cash; None if no setting names any."""
    from opicflow.pipelines.stages.settings import CashFocus

    given = fields_of(options, "focus")
    return CashFocus(dict(given.get("bonus", ())), given.get("unread_weight")) if given else None
