"""`opicflow publish`: crawl events from files, policies and rules, to topics."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import (
    add_json,
    add_kafka_options,
    add_logs,
    add_quiet,
    add_rule_options,
    connection_of,
    moment,
    reading_of,
    rules_of,
)
from opicflow.pipelines.cli.parser import add_command
from opicflow.pipelines.cli.progress import ProgressDisplay
from opicflow.pipelines.cli.stream_options import add_ledger, add_snapshots, ledger_topic_of, snapshots_of
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural, positive, span_seconds
from opicflow.pipelines.refresh.policies import check, most_categories
from opicflow.pipelines.results.policy_words import in_words
from opicflow.schemas.errors import interrupted_after
from opicflow.schemas.policy_json import PolicyRefused, policies_of, policy_from_json
from opicflow.schemas.records import Policy
from opicflow.schemas.urls import named_page

if TYPE_CHECKING:
    from opicflow.pipelines.replay.log_publisher import Tally

_POLICIES_SENT = "policies may have been sent: opicflow subscribe policies shows which"
_RULES_SENT = "the rules may apply to a part of the events from now on: publish them again"
EXAMPLES = """examples:
  opicflow publish events crawl.jsonl --brokers localhost:9092
  opicflow publish policy --brokers localhost:9092 --url https://example.org/ --every 6h
  opicflow publish policy --brokers localhost:9092 --host example.org --never --expires 2026-12-31T00:00:00Z
  opicflow publish policy policies.jsonl --brokers localhost:9092
  opicflow publish rules --drop-parameters tracking --fold-www --brokers localhost:9092
"""

_MOST_SHOWN = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be published, and the options."""
    whats = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    events = add_command(whats, "events", "send the events of crawl logs to crawl-events, all else to rejects")
    add_logs(events)
    events.add_argument("--rate", type=positive, metavar="N", help="events a second at most")
    events.add_argument("--partition", type=natural, metavar="P", help="all to this one, in the order of the logs")
    add_quiet(events)
    policy = add_command(whats, "policy", "set when pages are fetched, and more (docs/guides/refresh.md)")
    policy.add_argument("file", nargs="?", type=Path, metavar="FILE", help="Policy records as JSON lines")
    pages = policy.add_argument_group("which pages").add_mutually_exclusive_group()
    pages.add_argument("--url", metavar="URL", help="a page; it need not be canonical")
    pages.add_argument("--host", metavar="HOST", help="the pages of a host")
    pages.add_argument("--url-prefix", metavar="URL", help="pages whose URLs begin so: at least a whole host and a /")
    pages.add_argument("--category", type=natural, metavar="N", help="the pages of a category")
    pages.add_argument("--all", action="store_true", help="the whole crawl")
    statement = policy.add_argument_group("the policy")
    statement.add_argument("--crawl-now", action="store_true", help="fetch them now, once")
    statement.add_argument("--never", action="store_true", help="do not fetch them again")
    statement.add_argument("--every", type=span_seconds, metavar="SPAN", help="fetch them so often: 30min, 6h, 2d, 1w")
    statement.add_argument("--notify", action="store_true", help="publish when they have changed (page-changes)")
    statement.add_argument("--drop", action="store_true", help="remove them, once; links may add them again")
    statement.add_argument("--forget", action="store_true", help="remove them, and do not add them again")
    statement.add_argument(
        "--set",
        action="append",
        type=_field,
        metavar="FIELD=VALUE",
        help="another field of a policy, such as importance_factor=4 (docs/guides/refresh.md); repeatable",
    )
    statement.add_argument("--default", action="store_true", help="withdraw the policy of the named pages")
    note = policy.add_argument_group("when, and by whom")
    note.add_argument("--expires", metavar="TIME", help="the end of the policy, such as 2026-12-31T00:00:00Z")
    note.add_argument("--at", metavar="TIME", help="the start of the policy (now)")
    note.add_argument("--publisher", metavar="NAME", help="who publishes it: for people")
    rules = add_command(whats, "rules", "change the rules of URLs and links of a running stream, from now on")
    add_rule_options(rules)
    add_ledger(rules)
    add_snapshots(rules, "the logs are whole")
    for what in (events, policy, rules):
        add_json(what)
        add_kafka_options(what)


def run(options: argparse.Namespace) -> int:
    """Publish crawl events, policies, or rules."""
    return {"events": _publish_events, "policy": _publish_policies, "rules": _publish_rules}[options.what](options)


# -- events ------------------------------------------------------------------------------------------------------------


def _publish_events(options: argparse.Namespace) -> int:
    """Send the events of logs. The exit code is 1 if nothing but rejects was read."""
    from opicflow.connectors.kafka.topics import names
    from opicflow.pipelines.replay.log_publisher import publish_logs

    connection = connection_of(options)
    with closing(ProgressDisplay(options.quiet)) as display:
        tally = publish_logs(
            connection,
            options.prefix,
            options.logs,
            _now_ms(),
            options.rate,
            options.partition,
            display.show,
            reading_of(options),
        )
    _print_tally(tally, names(options.prefix).crawl_events, options.json)
    return 1 if 0 < tally.read == tally.rejected.total() else 0


def _print_tally(tally: Tally, topic: str, as_json: bool) -> None:
    from opicflow.connectors.files.decoded import most_first

    per_second = round(tally.read / max(tally.seconds, 1e-9))
    if as_json:
        summary = {
            "topic": topic,
            "events_read": tally.read,
            "published": tally.published,
            "rejects": tally.rejected.total(),
            "rejects_by_reason": most_first(tally.rejected),
            "seconds": round(tally.seconds, 3),
            "events_per_second": per_second,
        }
        print(json.dumps({"summary": summary}, indent=2))
        return
    print_lines(
        f"{counted(tally.read, 'event')} read = {tally.published:,} published to {topic} + "
        f"{tally.rejected.total():,} rejected"
    )
    for reason, count in most_first(tally.rejected).items():
        print_lines(f"  {count:10,}  {reason}")
    print_lines(f"{tally.seconds:.1f} s, {per_second:,} events/s")


# -- policies ----------------------------------------------------------------------------------------------------------


def _publish_policies(options: argparse.Namespace) -> int:
    """Send policies to their topic."""
    from opicflow.connectors.kafka.messages import Framer
    from opicflow.connectors.kafka.publisher import Publisher
    from opicflow.connectors.kafka.topics import names
    from opicflow.schemas.records import to_avro

    published_at_ms = moment("--at", options.at) or _now_ms()
    if options.file is None:
        policies = [_policy_of(options, published_at_ms)]
    else:
        policies = _policies_of_file(options, published_at_ms)
    connection = connection_of(options)
    topic = names(options.prefix).policies
    framer = Framer(connection, topic, "Policy")
    with Publisher(connection) as publisher, interrupted_after(lambda: _POLICIES_SENT):
        positions = publisher.deliver(topic, [framer.encode(to_avro(policy)) for policy in policies])
    if options.json:
        rows = [
            {"said": in_words(policy), "topic": topic, "partition": position.partition, "offset": position.offset}
            for policy, position in zip(policies, positions, strict=True)
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for policy, position in list(zip(policies, positions, strict=True))[:_MOST_SHOWN]:
        print_lines(f"{in_words(policy)}  ({topic}, partition {position.partition}, offset {position.offset})")
    if len(policies) > _MOST_SHOWN:
        print_lines(f"… and {len(policies) - _MOST_SHOWN:,} more, up to offset {positions[-1].offset}")
    return 0


# -- rules -------------------------------------------------------------------------------------------------------------


def _publish_rules(options: argparse.Namespace) -> int:
    """Send rules to every partition of crawl-events: they apply to the events after them."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.topics import names
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stream.origin import origin_of
    from opicflow.pipelines.stream.published_rules import publish_rules

    connection, topics = connection_of(options), names(options.prefix)
    logs = ledger_topic_of(options)
    origin = origin_of(connection, logs, snapshots_of(options))
    if origin is None:
        raise KafkaRefused(f"{logs}: no stream was started there: give the rules to opicflow stream")
    # Categories are part of the ledgers' counts and cannot change: a stream would stop at other ones.
    rules = replace(rules_of(options) or Rules(), categories=origin.rules.categories, page_ids=origin.rules.page_ids)
    with interrupted_after(lambda: _RULES_SENT):
        partitions = len(publish_rules(connection, topics.crawl_events, topics.policies, rules))
    summary = {"topic": topics.crawl_events, "partitions": partitions, "rules": rules.to_json()}
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print_lines(f"{topics.crawl_events}, {partitions} partitions: from now on {json.dumps(rules.to_json())}")
    return 0


def _now_ms() -> int:
    now = datetime.now(timezone.utc)  # noqa: TID251 - a policy given now applies from now on
    return int(now.timestamp() * 1000)


def _policies_of_file(options: argparse.Namespace, published_at_ms: int) -> list[Policy]:
    """Return the policies of a file, checked. Those without a time have the time of publishing."""
    given = _given(options, (*_TARGETS, *_STATEMENTS, "set", "default", "expires"))
    if given:
        raise PolicyRefused(f"{given[0]}: a file has its own policies: omit one")
    with open(options.file, "rb") as file:
        policies = policies_of(file, str(options.file))
    if not policies:
        raise PolicyRefused(f"{options.file}: it holds no policies: write one JSON object a line")
    found = []
    for number, policy in enumerate(policies, 1):
        policy = replace(
            policy,
            published_at_ms=policy.published_at_ms if policy.published_at_ms is not None else published_at_ms,
            publisher=policy.publisher if policy.publisher is not None else options.publisher,
        )
        try:
            check(policy, most_categories(policy))
        except PolicyRefused as problem:
            raise PolicyRefused(f"{options.file}, policy {number}: {problem}") from None
        found.append(policy)
    return found


def _given(options: argparse.Namespace, of: Iterable[str]) -> list[str]:
    """Return those of some options that were given; a 0 counts."""
    values = ((name, getattr(options, name)) for name in of)
    return [f"--{name.replace('_', '-')}" for name, value in values if value is not None and value is not False]


_TARGETS = ("url", "host", "url_prefix", "category", "all")
_STATEMENTS = {
    "crawl_now": "fetch_now",
    "never": "refresh_forbidden",
    "every": "refresh_interval_seconds",
    "notify": "notify",
    "drop": "drop",
    "forget": "forget",
}
"""Options, and the fields of a policy that they set. The others are given by `--set`."""


def _field(text: str) -> tuple[str, object]:
    """Return the name and the value of FIELD=VALUE. A value is JSON, or a text."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _policy_of(options: argparse.Namespace, published_at_ms: int) -> Policy:
    """Return the policy of the options, checked."""
    if not _given(options, _TARGETS):
        raise PolicyRefused(
            "nothing to publish: name its pages with --url, --host, --url-prefix, --category or --all, or name a file"
        )
    given = _given(options, (*_STATEMENTS, "set"))
    if options.default and given:
        raise PolicyRefused(f"--default withdraws the policy: omit {given[0]}")
    if not options.default and not given:
        raise PolicyRefused("no statement: give one, such as --every 6h; --default withdraws the policy")
    values = {
        "published_at": published_at_ms,
        "publisher": options.publisher,
        "url": None if options.url is None else named_page(options.url, option="--url "),
        "host": options.host,
        "url_prefix": options.url_prefix,
        "category": options.category,
        "expires_at": moment("--expires", options.expires),
        **{field: getattr(options, name) for name, field in _STATEMENTS.items()},
        **dict(options.set or ()),
    }
    policy = policy_from_json({name: value for name, value in values.items() if value is not None})
    check(policy, most_categories(policy))
    return policy
