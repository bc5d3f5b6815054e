"""Groups of options that several commands share.

`add_…_options` adds a group to a parser; `…_of` returns its values as one frozen dataclass, which travels whole.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opicflow.connectors.files.opening import InputRefused

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


class OptionGroup(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> Any:
        """Add an option."""


# -- types of values ---------------------------------------------------------------------------------------------------


def whole(text: str) -> int:
    """Return a positive whole number."""
    return _whole_number(text, 1, (1 << 40) - 1, "a positive whole number")


def natural(text: str) -> int:
    """Return a whole number from 0."""
    return _whole_number(text, 0, (1 << 31) - 1, "a whole number from 0")


def _whole_number(text: str, least: int, most: int, called: str) -> int:
    if not text.isdecimal() or (len(text) < 20 and int(text) < least):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not {called}")
    if len(text) >= 20 or int(text) > most:
        raise argparse.ArgumentTypeError(f"{text[:20]} is too large: give {most} at most")
    return int(text)


def positive(text: str) -> float:
    """Return a number from 0.001."""
    return _number(text, 1e-3, 1e9, "a number from 0.001")


def not_negative(text: str) -> float:
    """Return a number from 0."""
    return _number(text, 0.0, 1e9, "a number from 0")


def share(text: str) -> float:
    """Return a share from 0 to 1."""
    return _number(text, 0.0, 1.0, "a share from 0 to 1")


def _number(text: str, least: float, most: float, called: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not {called}")
    return number


def internal_weight(text: str) -> float:
    """Return the weight of links within a site: `keep` is 1, `drop` is 0."""
    try:
        number = {"keep": 1.0, "drop": 0.0}.get(text) if text in ("keep", "drop") else float(text)
    except ValueError:
        number = None
    if number is None or not 0.0 <= number <= 1e6:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not keep, drop or a number from 0")
    return number


def moment(option: str, text: str | None) -> int | None:
    """Return the time of an option in milliseconds."""
    from opicflow.schemas.json_events import time_ms_of

    if text is None:
        return None
    time_ms = time_ms_of(text)
    if time_ms is None:
        raise InputRefused(f"{option} {text[:40]}: not a time: write it like 2026-05-01 or 2026-05-01T12:00:00Z")
    return time_ms


def now_second_of(text: str | None) -> int | None:
    """Return the second of --now: a time, or `now` for that of this machine's clock."""
    if text == "now":
        return int(datetime.now(timezone.utc).timestamp())  # noqa: TID251 - the user requests this clock
    time_ms = moment("--now", text)
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
        help="do not detect the format: jsonl, json, csv, avro, warc, wat, edges; heritrix, stormcrawler, nutch, "
        "browsertrix, crawlee, katana, common-crawl, scrapy; nutch-segment, heritrix-links, katana-links",
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
    parser.add_argument("--state", type=Path, metavar="DIR", help="the folder of a replay's state")


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
    from opicflow.pipelines.replay.state_reader import read_answers
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


def add_sites(parser: OptionGroup) -> None:
    """Add what sites are, whose importance is published."""
    parser.add_argument(
        "--sites",
        choices=["domain", "host", "none"],
        help="what a site is, in site-importance: a registrable domain (the default), a host; none: write no sites",
    )


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
    group = parser.add_argument_group("how to reach Kafka (docs/guides/kafka.md)")
    if brokers:
        group.add_argument("--brokers", metavar="HOST:PORT", help="of the cluster; several with commas between")
    group.add_argument("--properties", metavar="FILE", help="settings such as security.protocol, and all secrets")
    group.add_argument("--registry", metavar="URL", help="a schema registry; without it, values have their own header")
    group.add_argument("--prefix", metavar="TEXT", help="what the names of all topics begin with")


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
    group = parser.add_argument_group("which URLs are one page, and the weights of links")
    group.add_argument(
        "--drop-parameters",
        metavar="NAMES",
        help="query parameters that do not make another page: names with commas, * at the end for any; 'tracking' and "
        "'session' stand for the usual ones",
    )
    group.add_argument("--fold-www", action="store_true", default=None, help="www.example.org is example.org")
    group.add_argument("--fold-https", action="store_true", default=None, help="http pages are the https ones")
    group.add_argument("--internal-weight", type=float, metavar="W", help="of links within a site (1)")
    group.add_argument("--external-weight", type=float, metavar="W", help="of links to other sites (1)")
    group.add_argument("--nofollow-weight", type=float, metavar="W", help="of nofollow, ugc and sponsored links (0)")
    group.add_argument("--same-site", choices=["host", "domain"], help="a site is a host, or a registrable domain")


def rules_of(options: argparse.Namespace) -> Rules | None:
    """Return the rules of URLs, links and categories; None if no option sets one."""
    from opicflow.pipelines.ledger import ConfigRefused
    from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
    from opicflow.schemas.urls import SESSION_PARAMETERS, TRACKING_PARAMETERS, UrlRules

    names: list[str] = []
    for name in (options.drop_parameters or "").split(","):
        named = {"tracking": TRACKING_PARAMETERS, "session": SESSION_PARAMETERS}.get(name.strip().lower())
        names += named or ([name.strip().lower()] if name.strip() else [])
    if options.drop_parameters is not None and not names:
        raise ConfigRefused(
            f"--drop-parameters {options.drop_parameters!r}: give names with commas between, or omit it"
        )
    weights = {
        name: getattr(options, f"{name}_weight")
        for name in ("internal", "external", "nofollow")
        if getattr(options, f"{name}_weight") is not None
    }
    if options.same_site is not None:
        weights["same_site"] = options.same_site
    patterns = getattr(options, "category", [])
    by_media = bool(getattr(options, "by_media", False))
    if not (names or weights or options.fold_www or options.fold_https or patterns or by_media):
        return None
    try:
        links, categories = LinkWeights(**weights), Categories(by_media, tuple(patterns))
    except ValueError as problem:
        raise ConfigRefused(str(problem)) from None
    urls = UrlRules(tuple(dict.fromkeys(names)), bool(options.fold_www), bool(options.fold_https))
    return Rules(urls, links, categories)


def add_ledger_options(parser: argparse.ArgumentParser, histories: str) -> Any:
    """Add how the ledger computes importance, with these history policies named first. Returns the group."""
    group = parser.add_argument_group("how importance is computed")
    group.add_argument("--history", metavar="NAME", help=f"{histories}, all, …")
    window = group.add_mutually_exclusive_group()
    window.add_argument("--window-turns", type=float, metavar="T", help="of the histories with a window (8)")
    window.add_argument("--window-days", type=float, metavar="DAYS", help="the window in days of event time")
    group.add_argument("--damping", type=float, metavar="D", help="the share of cash that follows links (0.85)")
    group.add_argument(
        "--remember-links", action="store_true", default=None, help="keep the links of pages, at 5 bytes a link"
    )
    group.add_argument("--max-pages", type=whole, metavar="N", help="remove the poorest unread pages beyond so many")
    group.add_argument("--max-unread-per-host", type=whole, metavar="N", help="the same for the unread of one host")
    group.add_argument(
        "--max-unread-per-domain", type=whole, metavar="N", help="learn no more unread pages of a registrable domain"
    )
    group.add_argument(
        "--max-announced-per-domain",
        type=whole,
        metavar="N",
        help="learn no more pages of a domain a day by announcements",
    )
    group.add_argument(
        "--max-share-per-domain",
        type=float,
        metavar="S",
        help="what unread pages of a domain have of the importance that pages have by being known (certified)",
    )
    return group


def ledger_options_of(options: argparse.Namespace) -> LedgerOptions:
    """Return the settings of the ledger, its refresh schedule included."""
    from opicflow.pipelines.stages.settings import LedgerOptions

    return LedgerOptions(
        history=options.history,
        window_turns=options.window_turns,
        window_days=options.window_days,
        damping=options.damping,
        remember_links=options.remember_links,
        refresh=refresh_fields_of(options),
        max_pages=options.max_pages,
        max_unread_per_host=options.max_unread_per_host,
        domains=domain_limits_of(options),
    )


def domain_limits_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the limits of domains that were given, by the fields of `DomainLimits`."""
    given = {
        "most_unread": options.max_unread_per_domain,
        "most_announced": options.max_announced_per_domain,
        "most_share": options.max_share_per_domain,
    }
    return {name: value for name, value in given.items() if value is not None}


def add_refresh_options(parser: argparse.ArgumentParser, strategy: str) -> None:
    """Add the refresh strategy, under this name, and its limits."""
    group = parser.add_argument_group("when pages are fetched again (docs/guides/refresh.md)")
    group.add_argument("--bandwidth", type=float, metavar="N", help="fetches a day (as many as the crawl made)")
    group.add_argument(
        strategy,
        dest="refresh_strategy",
        metavar="NAME",
        help="thesis, freshness, harmonic, importance, greedy or uniform",
    )
    group.add_argument("--cycle", type=float, metavar="HOURS", help="the time between two sets of orders (24)")
    group.add_argument("--discovery-share", type=float, metavar="S", help="of the bandwidth, for unread pages (0.25)")
    group.add_argument(
        "--discovery-by",
        metavar="NAME",
        help="which unread pages first: learnt (the default: by importance, siblings, and what exploring has brought), "
        "importance, cash, found (the first found first)",
    )
    group.add_argument("--rate-prior", metavar="NAME", help="of change rates: learnt (from the crawl) or fixed")
    group.add_argument("--domain-fetches", type=float, metavar="N", help="of a registrable domain a day at most")
    group.add_argument("--domain-discovery", type=float, metavar="S", help="of discovery, for one domain at most")
    group.add_argument("--host-fetches", type=float, metavar="N", help="of a host a day at most")
    group.add_argument("--host-fetches-per-hour", type=float, metavar="N", help="of a host an hour at most")
    group.add_argument("--crawl-delay", type=float, metavar="SECONDS", help="between two fetches of a host")
    group.add_argument("--shortest-interval", type=float, metavar="SECONDS", help="between two fetches (3600)")
    group.add_argument("--longest-interval", type=float, metavar="DAYS", help="between two fetches (365)")


def refresh_fields_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the refresh options that were given, by the fields of `RefreshConfig`."""
    given = {
        "strategy": options.refresh_strategy,
        "bandwidth_per_day": options.bandwidth,
        "cycle_hours": options.cycle,
        "discovery_share": options.discovery_share,
        "discovery_by": options.discovery_by,
        "rate_prior": options.rate_prior,
        "domain_fetches_per_day": options.domain_fetches,
        "domain_discovery_share": options.domain_discovery,
        "host_fetches_per_day": options.host_fetches,
        "host_fetches_per_hour": options.host_fetches_per_hour,
        "crawl_delay_seconds": options.crawl_delay,
        "shortest_interval_seconds": options.shortest_interval,
        "longest_interval_days": options.longest_interval,
    }
    return {name: value for name, value in given.items() if value is not None}


def add_focus_options(parser: argparse.ArgumentParser) -> Any:
    """Add the categories of pages, and which pages receive more cash. Returns the group."""
    group = parser.add_argument_group("what to focus on (docs/guides/refresh.md)")
    group.add_argument("--by-media", action="store_true", default=None, help="categories html, xml, feed, pdf, other")
    group.add_argument("--category", action="append", default=[], metavar="PATTERN", help="one of URLs such as *.pdf")
    group.add_argument("--bonus", action="append", default=[], metavar="NAME=S", help="of links to a category's pages")
    group.add_argument("--unread-weight", type=float, metavar="W", help="of unread pages in dividends (1)")
    return group


def focus_of(options: argparse.Namespace) -> CashFocus | None:
    """Return which pages receive more cash; None if no option names any."""
    from opicflow.pipelines.stages.settings import CashFocus

    bonus = dict(named_numbers("--bonus", options.bonus))
    return CashFocus(bonus, options.unread_weight) if bonus or options.unread_weight is not None else None


def named_numbers(option: str, given: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the name and the number of each NAME=NUMBER."""
    from opicflow.pipelines.ledger import ConfigRefused

    for text in given:
        name, _, number = text.rpartition("=")
        try:
            yield name, float(number)
        except ValueError:
            raise ConfigRefused(f"{option} {text[:80]}: give NAME=NUMBER, such as {option} pdf=0.5") from None
