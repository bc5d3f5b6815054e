"""Options of commands that start a stream, and the settings of its ledgers."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import (
    add_json,
    add_kafka_options,
    add_rule_options,
    connection_of,
    focus_of,
    ledger_options_of,
    rules_of,
    sites_of,
)
from opicflow.pipelines.cli.settings_table import (
    DEPLOYMENT,
    FOCUS,
    KAFKA,
    LEDGER,
    REFRESH,
    SITES,
    OptionGroup,
    add_settings,
    dest_of,
    fields_of,
)
from opicflow.pipelines.cli.text import counted, print_lines

if TYPE_CHECKING:
    from opicflow.connectors.flink.rest import Job
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.pipelines.ledger import LedgerConfig
    from opicflow.pipelines.stages.log_settings import Origin
    from opicflow.pipelines.stream.pipeline import StreamConfig
    from opicflow.pipelines.stream.snapshot_store import Snapshots
    from opicflow.pipelines.stream.submit import FlinkJob

DIRECT_RUNNER = "DirectRunner"
_CUT_SECONDS = 5
"""How long few amounts wait for a message."""
_FIRST_CYCLE_MINUTES = 1.0
"""How long a new crawl waits for its second orders."""
_CYCLE_HOURS = 1.0
_LEAST_CERTIFIED_MOVE = 0.01
"""Exact importance is published again after smaller moves than an estimate."""


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """Add all that the start of a stream and a rebuild have in common."""
    add_json(parser)
    add_ledger(parser)
    add_kafka_options(parser)
    add_hosted(parser)
    _add_flink_options(parser)
    add_settings(parser, LEDGER, "how importance is computed")
    add_rule_options(parser)
    add_settings(parser, REFRESH, "when pages are fetched again (docs/guides/refresh.md)")
    add_settings(parser, {**FOCUS, **SITES}, "what to focus on (docs/guides/refresh.md)")


_OF_START = ("ledger", *KAFKA, "hosted", "name", "snapshots", *DEPLOYMENT)
"""The options of a start that the command which continues the stream needs again."""
_PATHS = {"properties", "checkpoints", "snapshots", "worker-logs", "job-server-jar"}
"""Those that may be relative to the folder of the command."""


def started_with(options: argparse.Namespace) -> dict[str, object]:
    """Return the options of deployment that are given, by name, with absolute paths."""
    found = {}
    for name in _OF_START:
        value = getattr(options, dest_of(name))
        if value not in (None, False, ""):
            is_relative = name in _PATHS and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value)
            found[name] = os.path.abspath(value) if is_relative else value
    return found


def _add_flink_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("deployment (docs/guides/operations.md)")
    group.add_argument(
        "--runner",
        default="FlinkRunner",
        metavar="NAME",
        help="%(default)s, or DirectRunner: the whole stream in this process, with --state",
    )
    group.add_argument(
        "--state",
        dest="stream_state",
        metavar="DIR",
        help="DirectRunner: the folder from which the same command continues",
    )
    group.add_argument("--name", metavar="NAME", help="of the job (opicflow)")
    add_snapshots(group)
    add_settings(parser, DEPLOYMENT, "deployment (docs/guides/operations.md)")


def add_ledger(to: OptionGroup) -> None:
    """Add the option that names the logs."""
    to.add_argument(
        "--ledger", metavar="TOPIC", help="the topic of the ledgers' logs, with or without the prefix (page-ledger)"
    )


def add_hosted(to: OptionGroup) -> None:
    """Add the option for clusters whose operator chooses most settings of topics."""
    to.add_argument(
        "--hosted", action="store_true", help="a hosted cluster: its operator chooses most settings of topics"
    )


def add_snapshots(to: OptionGroup, otherwise: str = "Flink's state") -> None:
    """Add the option that names the folder of snapshots."""
    to.add_argument(
        "--snapshots",
        metavar="URL",
        help=f"a folder of snapshots that all workers can access: file:///…, s3://…, gs://… ({otherwise})",
    )


def flink_job_of(options: argparse.Namespace) -> FlinkJob:
    """Return the job on Flink."""
    from opicflow.pipelines.stream.submit import JOB_NAME, FlinkJob

    return FlinkJob(name=options.name or JOB_NAME, quiet=options.json, **fields_of(options, "job"))


def check_action(options: argparse.Namespace) -> None:
    """Refuse for a stream in one process what is for a job on Flink."""
    from opicflow.connectors.flink.rest import FlinkRefused

    if options.runner == DIRECT_RUNNER:
        raise FlinkRefused(
            f"--runner {DIRECT_RUNNER}: such a stream runs until Ctrl-C, and opicflow audit and serve show it: "
            f"{options.action} is for a job on Flink: omit --runner"
        )


def check_runner(options: argparse.Namespace, job: FlinkJob) -> None:
    """Refuse other runners than Flink, and a job without a folder for checkpoints."""
    from opicflow.connectors.flink.rest import FlinkRefused
    from opicflow.pipelines.stream.submit import FLINK_RUNNER, checkpoint_folder

    if options.runner != FLINK_RUNNER:
        raise FlinkRefused(
            f"--runner {options.runner}: a stream needs {FLINK_RUNNER} or {DIRECT_RUNNER}; for a log that ends, "
            "opicflow replay runs anywhere"
        )
    if options.stream_state is not None:
        raise FlinkRefused(f"--state: it is for --runner {DIRECT_RUNNER}: for Flink name a folder with --checkpoints")
    checkpoint_folder(job)


def snapshots_of(options: argparse.Namespace) -> Snapshots | None:
    """Return where snapshots are; None for Flink's state. Storage that cannot be read is refused before any start."""
    if options.snapshots is None:
        return None
    from opicflow.connectors.storage.folder import StorageFolder
    from opicflow.pipelines.stream.snapshot_store import Snapshots

    folder = StorageFolder.of(options.snapshots)
    folder.names()
    return Snapshots(folder, **fields_of(options, "snapshots"))


def ledger_topic_of(options: argparse.Namespace) -> str:
    """Return the topic of the ledgers' logs. Raises `KafkaRefused` for a topic of something else."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.topics import names, with_prefix

    prefix = options.prefix or ""
    known = names(prefix)
    topic = with_prefix(prefix, options.ledger) if options.ledger else known.page_ledger
    if topic != known.page_ledger and topic in known:
        raise KafkaRefused(f"--ledger {topic}: this topic holds something else: name the topic of the ledgers' logs")
    return topic


def new_ledger_topic_of(options: argparse.Namespace) -> str:
    """Return the topic of the logs that a reshard or a rebuild makes. Raises `KafkaRefused` for the present one."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.topics import names, with_prefix

    topic = with_prefix(options.prefix, options.to_ledger or f"{names().page_ledger}-{options.shards}")
    if topic == ledger_topic_of(options):
        raise KafkaRefused(f"{topic}: this topic holds the present ledgers: name another topic with --to-ledger")
    return topic


def shards_of(options: argparse.Namespace, connection: Connection) -> int:
    """Check the topics, print the findings, and return the number of shards."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.partitions import resolve
    from opicflow.pipelines.stream.origin import check_topics

    topic = ledger_topic_of(options)
    has_snapshots = options.snapshots is not None
    found = check_topics(connection, options.prefix, topic, options.shards, has_snapshots, options.hosted)
    if found:
        for finding in found:
            print_lines(finding)
        sys.stdout.flush()
        raise KafkaRefused(
            f"{connection.brokers}: {counted(len(found), 'finding')}: correct the settings above, and start again"
        )
    return len(resolve(connection, topic))


def default_origin(shards: int) -> Origin:
    """Return the settings of ledgers without any option. Their page ids have a new key."""
    from opicflow.pipelines.ledger import Certified, LedgerConfig
    from opicflow.pipelines.stages.log_settings import Origin
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stages.settings import new_page_ids
    from opicflow.schemas.shards import ShardRanges

    ledger = for_new_logs(LedgerConfig(history=Certified()))
    hourly = replace(ledger, refresh=replace(ledger.refresh, cycle_hours=_CYCLE_HOURS))
    return Origin(
        hourly,
        ShardRanges.equal(shards),
        Rules(page_ids=new_page_ids()),
        least_move=_LEAST_CERTIFIED_MOVE,
        sites="domain",
    ).for_new_logs()


def for_new_logs(ledger: LedgerConfig, kept: LedgerConfig | None = None) -> LedgerConfig:
    """Return the settings with those that are no options: of new logs, or as the kept ones have them."""
    cut_seconds = kept.cut_seconds if kept else _CUT_SECONDS
    first_cycle = kept.refresh.first_cycle_minutes if kept else _FIRST_CYCLE_MINUTES
    return replace(ledger, cut_seconds=cut_seconds, refresh=replace(ledger.refresh, first_cycle_minutes=first_cycle))


def requested_origin(options: argparse.Namespace, kept: Origin | None, shards: int) -> Origin | None:
    """Return the settings of ledgers in the options; None if there are none. Pages keep their ids and shards."""
    from opicflow.pipelines.ledger import Certified, LedgerConfig
    from opicflow.pipelines.stages.log_settings import Origin
    from opicflow.pipelines.stages.settings import LedgerOptions, default_ledger

    rules, given, focus = rules_of(options), ledger_options_of(options), focus_of(options)
    if rules is None and given == LedgerOptions() and focus is None and options.sites is None:
        return None
    base = default_origin(shards)
    placed = kept or base
    rules = replace(rules or placed.rules, page_ids=placed.rules.page_ids)
    hourly = replace(base.ledger, history=LedgerConfig().history)
    ledger = for_new_logs(default_ledger(given, focus, rules.categories, hourly), placed.ledger)
    origin = Origin(
        ledger,
        placed.ranges,
        rules,
        sites=sites_of(options),
        most_ahead_hours=placed.most_ahead_hours,
    )
    return replace(origin, least_move=_LEAST_CERTIFIED_MOVE) if isinstance(ledger.history, Certified) else origin


def stream_config(options: argparse.Namespace, name: str, topic: str, origin: Origin) -> StreamConfig:
    """Return the settings of a stream whose logs have begun."""
    from opicflow.pipelines.stream.pipeline import StreamConfig

    return StreamConfig(
        connection_of(options),
        origin.shards,
        options.prefix,
        topic,
        run=f"{name} {topic}",
        **fields_of(options, "stream"),
    )


def submit_stream(
    options: argparse.Namespace,
    job: FlinkJob,
    topic: str,
    origin: Origin,
    snapshots: Snapshots | None,
    savepoint: str | None = None,
) -> Job:
    """Submit the stream, with the ledgers of a topic."""
    from opicflow.pipelines.stream.origin import begin_logs
    from opicflow.pipelines.stream.pipeline import Stream
    from opicflow.pipelines.stream.submit import submit

    config = stream_config(options, job.name, topic, begin_logs(connection_of(options), topic, origin, snapshots))

    def stream(slots: int) -> Stream:
        return Stream(replace(config, slots=slots, snapshots=snapshots))

    shown = {**started_with(options), "ledger": topic}
    return submit(replace(job, started_with=shown), stream, savepoint)


def print_answer(options: argparse.Namespace, values: Mapping[str, object], *lines: str) -> None:
    """Print these values as JSON if --json is given, and these lines otherwise."""
    if options.json:
        print(json.dumps(values, indent=2))
    else:
        print_lines(*lines)
