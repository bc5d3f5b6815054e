"""`opicflow rebuild`: ledgers from crawl-events, in any number of shards, in a topic of their own."""

from __future__ import annotations

import argparse
from dataclasses import replace

from opicflow.pipelines.cli.boundaries import add_boundary_options, chosen_ranges
from opicflow.pipelines.cli.options import connection_of
from opicflow.pipelines.cli.stream_options import (
    add_stream_options,
    check_runner,
    flink_job_of,
    for_new_logs,
    ledger_topic_of,
    new_ledger_topic_of,
    print_answer,
    requested_origin,
    snapshots_of,
    submit_stream,
)
from opicflow.pipelines.cli.text import counted
from opicflow.pipelines.cli.values import whole

EXAMPLES = """examples:
  opicflow rebuild --shards 32 --brokers localhost:9092 --flink-master localhost:8081 --job-server localhost:8099 \\
      --checkpoints file:///var/lib/opicflow
"""
PRINTS_AS_IT_GOES = True


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--to-ledger", metavar="TOPIC", help="the new topic of their logs (page-ledger-N)")
    parser.add_argument(
        "--replication", type=whole, metavar="N", help="replicas of the new topics (3, or as many as brokers)"
    )
    parser.add_argument(
        "--shards", type=whole, required=True, metavar="N", help="how many ledgers: the partitions of their topic"
    )
    add_boundary_options(parser)
    add_stream_options(parser)


def run(options: argparse.Namespace) -> int:
    """Rebuild the ledgers from crawl-events, as far back as these are kept."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.partitions import resolve
    from opicflow.connectors.kafka.topics import make, names
    from opicflow.pipelines.results.topic_writer import Destination
    from opicflow.pipelines.stream.origin import ledger_spec, origin_of
    from opicflow.pipelines.stream.submit import JOB_NAME

    job = flink_job_of(options)
    check_runner(options, job)
    connection = connection_of(options)
    old_topic = ledger_topic_of(options)
    snapshots = snapshots_of(options)
    kept = origin_of(connection, old_topic, snapshots)
    if kept is None:
        raise KafkaRefused(f"{old_topic}: there is no ledger to rebuild: start one with opicflow stream")
    topic = new_ledger_topic_of(options)
    requested = requested_origin(options, kept, kept.shards) or kept
    ends = {one.source: one.end for one in resolve(connection, names(options.prefix).crawl_events)}
    rules = replace(requested.rules, page_ids=kept.rules.page_ids)
    ranges, chosen = chosen_ranges(options, options.shards, rules)
    origin = replace(
        requested.for_new_logs(),
        ledger=for_new_logs(requested.ledger),
        ranges=ranges,
        rules=rules,
        quiet_until={source: end for source, end in ends.items() if end},
        continues=None,
    )
    Destination(connection, options.prefix).register_schemas()
    made = make(connection, [ledger_spec(options.prefix, topic, options.shards, options.hosted)], options.replication)
    if topic not in made.new:
        raise KafkaRefused(f"{topic}: this topic exists: name a new one with --to-ledger")
    job = replace(job, name=options.name or f"{JOB_NAME}-{topic}")
    running = submit_stream(options, job, topic, origin, snapshots)
    later = f"opicflow stream … --ledger {topic} --name {job.name}"
    print_answer(
        options,
        {"job": running.id, "name": running.name, "ledger": topic, "shards": options.shards},
        f"rebuilding: job {running.name!r} ({running.id}) builds {counted(options.shards, 'ledger')} in {topic}",
        *([f"boundaries: {chosen}"] if chosen else []),
        "it publishes nothing until it reaches the present end of crawl-events: "
        f"{counted(sum(ends.values()), 'event')}",
        f"then: opicflow stream stop (the old one); later: {later}",
    )
    return 0
