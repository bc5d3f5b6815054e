"""`opicflow topics`: make the topics, and say what of those that are there would lose data."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from opicflow.connectors.kafka.topics import Cluster, Finding, TopicSpec, findings, make, read_cluster, specs
from opicflow.pipelines.cli.cluster import connection_of

_ALL_WELL, _FOUND = 0, 2


def topics(options: argparse.Namespace) -> int:
    """Make the topics that are missing, if asked to, and check them all."""
    connection = connection_of(options)
    wanted = specs(options.prefix, options.shards, options.result_partitions, options.event_partitions)
    new: frozenset[str] = frozenset()
    if options.action == "create":
        new, cluster = make(connection, wanted, options.replication)
    else:
        cluster = read_cluster(connection, [spec.name for spec in wanted])
    found = [finding for spec in wanted for finding in findings(cluster.topics.get(spec.name), spec, cluster.brokers)]
    if options.json:
        _print_json(wanted, cluster, new, found)
    else:
        if options.action == "create":
            _print_table(wanted, cluster, new)
        for finding in found:
            print(finding)
    if found:
        sys.stdout.flush()
        count = f"{len(found)} findings" if len(found) > 1 else "1 finding"
        print(f"opicflow: {connection.brokers}: {count}: correct what is said, and check again", file=sys.stderr)
        return _FOUND
    if options.action == "check" and not options.json:
        print(f"all {len(wanted)} topics are as they should be")
    return _ALL_WELL


def _print_table(wanted: Sequence[TopicSpec], cluster: Cluster, new: frozenset[str]) -> None:
    width = max(len(spec.name) for spec in wanted)
    print(f"{'topic':{width}}  partitions  replicas")
    for spec in wanted:
        topic = cluster.topics[spec.name]
        what = "created" if spec.name in new else "was there"
        print(f"{spec.name:{width}}  {topic.partitions:10}  {topic.replication:8}  {what}")


def _print_json(wanted: Sequence[TopicSpec], cluster: Cluster, new: frozenset[str], found: Sequence[Finding]) -> None:
    described = [
        {"topic": spec.name, **dataclasses.asdict(cluster.topics[spec.name]), "created": spec.name in new}
        for spec in wanted
        if spec.name in cluster.topics
    ]
    print(json.dumps({"topics": described, "findings": [dataclasses.asdict(finding) for finding in found]}, indent=2))
