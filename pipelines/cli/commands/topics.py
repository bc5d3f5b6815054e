"""`opicflow topics`: create the topics, and check them for settings that would lose data."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.boundaries import add_boundary_options, chosen_ranges
from opicflow.pipelines.cli.options import add_json, add_kafka_options, connection_of
from opicflow.pipelines.cli.parser import add_command
from opicflow.pipelines.cli.stream_options import add_hosted, add_ledger, add_snapshots, ledger_topic_of, snapshots_of
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import whole

if TYPE_CHECKING:
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.connectors.kafka.topics import Cluster, Finding, TopicSpec
    from opicflow.pipelines.stages.log_settings import Placement

EXAMPLES = """examples:
  opicflow topics create --brokers localhost:9092
  opicflow topics create --brokers localhost:9092 --shards 16 --like crawl.jsonl.gz    shards with as many pages each
  opicflow topics check --brokers kafka.example.org:9093 --properties client.properties
"""
PRINTS_AS_IT_GOES = True

_SOUND, _FOUND = 0, 2
_RESULT_PARTITIONS, _EVENT_PARTITIONS = 8, 6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the command, and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = add_command(actions, "create", "create missing topics, register their schemas, and check all topics")
    check = add_command(actions, "check", "check all topics; exit code 2 if one would lose data")
    for action in (create, check):
        action.add_argument("--shards", type=whole, metavar="N", help="partitions of page-ledger (8)")
        add_ledger(action)
        add_json(action)
        add_kafka_options(action)
        add_hosted(action)
    add_boundary_options(create)
    create.add_argument("--replication", type=whole, metavar="N", help="copies of each (3, or as many as brokers)")
    create.add_argument(
        "--result-partitions",
        type=whole,
        default=_RESULT_PARTITIONS,
        metavar="N",
        help="partitions of results (%(default)s)",
    )
    create.add_argument(
        "--event-partitions",
        type=whole,
        default=_EVENT_PARTITIONS,
        metavar="N",
        help="partitions of crawl-events (%(default)s)",
    )
    add_snapshots(check, "page-ledger is whole")
    create.set_defaults(snapshots=None)
    check.set_defaults(result_partitions=_RESULT_PARTITIONS, event_partitions=_EVENT_PARTITIONS)


def run(options: argparse.Namespace) -> int:
    """Check all topics; with `create`, create the missing ones first."""
    from opicflow.connectors.kafka.messages import register_schemas
    from opicflow.connectors.kafka.topics import findings, make, read_cluster, specs

    connection = connection_of(options)
    wanted = specs(
        options.prefix,
        options.shards,
        options.result_partitions,
        options.event_partitions,
        options.snapshots is not None,
        options.hosted,
        ledger_topic_of(options),
    )
    new: frozenset[str] = frozenset()
    chosen = ""
    if options.action == "create":
        placement, chosen = _placement(options)
        new, cluster = make(connection, wanted, options.replication)
        register_schemas(connection, _schemas(options.prefix))
        if placement is not None:
            from opicflow.pipelines.stream.origin import reserve_logs

            reserve_logs(connection, ledger_topic_of(options), placement)
    else:
        cluster = read_cluster(connection, [spec.name for spec in wanted])
    found = [finding for spec in wanted for finding in findings(cluster.topics.get(spec.name), spec, cluster.brokers)]
    if options.json:
        _print_json(wanted, cluster, new, found)
    else:
        if options.action == "create":
            _print_table(wanted, cluster, new)
            if chosen:
                print_lines(f"boundaries: {chosen}")
            if connection.registry_access() is not None:
                print_lines(f"the schemas of {len(_schemas(options.prefix))} topics are in the registry")
        for finding in found:
            print_lines(finding)
    if found:
        sys.stdout.flush()
        count = counted(len(found), "finding")
        print_lines(f"opicflow: {connection.brokers}: {count}: correct them, and check again", file=sys.stderr)
        return _FOUND
    if options.action == "check" and not options.json:
        print_lines(f"all {len(wanted)} topics are as they should be")
        _print_first_offsets(options, connection)
    return _SOUND


def _print_first_offsets(options: argparse.Namespace, connection: Connection) -> None:
    """Print from which offset on each log must stay, if it may end."""
    snapshots = snapshots_of(options)
    if snapshots is None:
        return
    from opicflow.pipelines.stream.trim import find_trims

    topic = ledger_topic_of(options)
    for one in find_trims(connection, topic, snapshots, reads=False):
        print_lines(f"{topic}, partition {one.shard}: offset {one.keep_from:,} and what follows must stay")


def _placement(options: argparse.Namespace) -> tuple[Placement | None, str]:
    """Return the placement of pages that --like chooses, with a new key of page ids, and a sentence about it."""
    from opicflow.connectors.kafka.topics import SHARDS
    from opicflow.pipelines.stages.log_settings import Placement
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stages.settings import new_page_ids

    if options.like is None:
        return None, ""
    rules = Rules(page_ids=new_page_ids())
    ranges, chosen = chosen_ranges(options, options.shards or SHARDS, rules)
    return Placement(rules.page_ids, ranges), chosen


def _schemas(prefix: str) -> dict[str, str]:
    """Return the schema of the records of each topic; page-ledger has entries of its own form."""
    from opicflow.connectors.kafka.record_reader import SCHEMAS

    return {prefix + topic: name for topic, name in {**SCHEMAS, "crawl-events": "CrawlEvent"}.items()}


def _print_table(wanted: Sequence[TopicSpec], cluster: Cluster, new: frozenset[str]) -> None:
    width = max(len(spec.name) for spec in wanted)
    print_lines(f"{'topic':{width}}  partitions  replicas")
    for spec in wanted:
        topic = cluster.topics[spec.name]
        what = "created" if spec.name in new else "existed"
        print_lines(f"{spec.name:{width}}  {topic.partitions:10}  {topic.replication:8}  {what}")


def _print_json(wanted: Sequence[TopicSpec], cluster: Cluster, new: frozenset[str], found: Sequence[Finding]) -> None:
    described = [
        {"topic": spec.name, **dataclasses.asdict(cluster.topics[spec.name]), "created": spec.name in new}
        for spec in wanted
        if spec.name in cluster.topics
    ]
    print(json.dumps({"topics": described, "findings": [dataclasses.asdict(finding) for finding in found]}, indent=2))
