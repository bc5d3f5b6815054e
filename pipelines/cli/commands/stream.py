"""`opicflow stream`: start, watch, stop and upgrade the stream on a Flink cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import connection_of, whole
from opicflow.pipelines.cli.stream_options import (
    add_stream_options,
    check_runner,
    default_origin,
    flink_job_of,
    ledger_topic_of,
    print_json,
    requested_origin,
    shards_of,
    submit_stream,
)
from opicflow.pipelines.stream.loads import Load, advice, spread_in_words, table

if TYPE_CHECKING:
    from opicflow.connectors.flink.rest import Checkpoint, Job
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.pipelines.stream.keeper import Origin
    from opicflow.pipelines.stream.submit import FlinkJob

EXAMPLES = """examples:
  opicflow stream --brokers localhost:9092 --flink-master localhost:8081 --job-server localhost:8099 \\
      --checkpoints file:///var/lib/opicflow                            from topics to topics, for months
  opicflow stream status --flink-master localhost:8081
  opicflow stream stop --flink-master localhost:8081                    with a savepoint
  opicflow stream upgrade --brokers … --flink-master … --checkpoints …  the same with this version of opicflow
"""
PRINTS_AS_IT_GOES = True


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "action",
        nargs="?",
        default="start",
        choices=["start", "status", "stop", "upgrade"],
        help="%(default)s; status = its state; stop = with a savepoint; upgrade = stop, and continue with this version",
    )
    parser.add_argument(
        "--from-savepoint", metavar="PATH", help="continue from a savepoint or checkpoint; 'latest' = newest"
    )
    parser.add_argument("--shards", type=whole, metavar="N", help="how many ledgers: the partitions of their topic")
    parser.add_argument("--shard-table", action="store_true", help="status: also show what each shard has")
    add_stream_options(parser)


def run(options: argparse.Namespace) -> int:
    """Start the stream, or show its state, stop it, upgrade it."""
    return {"start": _start, "status": _status, "stop": _stop, "upgrade": _upgrade}[options.action](options)


def _start(options: argparse.Namespace) -> int:
    from opicflow.pipelines.stream.submit import check_free, savepoint_path

    job = flink_job_of(options)
    check_runner(options, job)
    connection = connection_of(options)
    check_free(job)
    running = _submit(options, job, connection, savepoint_path(job, options.from_savepoint))
    if not options.json:
        print(f"the stream runs: job {running.name!r} ({running.id})")
        print(f"see: opicflow stream status --flink-master {job.flink_master}, or http://{job.flink_master}")
    return 0


def _upgrade(options: argparse.Namespace) -> int:
    """Stop with a savepoint, and continue from it with this version and these options."""
    from opicflow.pipelines.stream.submit import savepoint_folder

    job = flink_job_of(options)
    check_runner(options, job)
    connection = connection_of(options)
    old = job.cluster.find(job.name)
    shards_of(options, connection)  # refuses before anything is stopped
    path = job.cluster.stop(old.id, savepoint_folder(job))
    print(f"stopped, with a savepoint: {path}", file=sys.stderr, flush=True)
    try:
        running = _submit(options, job, connection, path)
    except BaseException:
        print(f"opicflow: the stream is stopped; continue with --from-savepoint {path}", file=sys.stderr)
        raise
    if not options.json:
        print(f"the stream continues: job {running.name!r} ({running.id}), from {path}")
    return 0


def _stop(options: argparse.Namespace) -> int:
    from opicflow.pipelines.stream.submit import savepoint_folder

    job = flink_job_of(options)
    running = job.cluster.find(job.name)
    path = job.cluster.stop(running.id, savepoint_folder(job))
    print_json(options, {"job": running.id, "name": running.name, "savepoint": path})
    if not options.json:
        print(f"stopped, with a savepoint: {path}")
        print(f"continue with: opicflow stream … --from-savepoint {path}")
    return 0


def _submit(options: argparse.Namespace, job: FlinkJob, connection: Connection, savepoint: str | None) -> Job:
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.pipelines.stream.origin import origin_of

    topic, shards = ledger_topic_of(options), shards_of(options, connection)
    kept = origin_of(connection, topic)
    requested = requested_origin(options, kept, shards)
    if kept is not None and requested is not None and _difference(requested, kept):
        raise KafkaRefused(
            f"{topic}: its ledgers count with other options ({_difference(requested, kept)}): omit the options, or "
            "rebuild with them"
        )
    running = submit_stream(options, job, topic, kept or requested or default_origin(shards), savepoint)
    print_json(
        options,
        {"job": running.id, "name": running.name, "ledger": topic, "shards": shards, "savepoint": savepoint},
    )
    return running


def _difference(requested: Origin, kept: Origin) -> str:
    ours, theirs = requested.ledger.to_json(), kept.ledger.to_json()
    names_ = [f"{name}: {theirs[name]}" for name in ours if ours[name] != theirs.get(name)]
    if requested.rules != kept.rules:
        names_.append("other rules of URLs, links or categories")
    if requested.shards != kept.shards:
        names_.append(f"{kept.shards} shards")
    return ", ".join(names_)[:300]


def _status(options: argparse.Namespace) -> int:
    from opicflow.connectors.flink.rest import FlinkRefused

    flink_job = flink_job_of(options)
    flink = flink_job.cluster
    job = flink.find(flink_job.name)
    details, checkpoints = flink.details(job.id), flink.checkpoints(job.id)
    metrics = flink.beam_metrics(job.id)
    last = checkpoints.last
    lags = _lags(metrics)
    status = {
        "job": job.id,
        "name": job.name,
        "state": details.job.state,
        "runs": details.runs,
        "restarts": details.restarts,
        "trouble": list(details.trouble),
        "checkpoints": {
            "completed": checkpoints.completed,
            "failed": checkpoints.failed,
            "last": last and {"id": last.id, "path": last.path, "bytes": last.written_bytes, "seconds": last.seconds},
        },
        "lag": lags,
        "loads": [load._asdict() for load in _loads(metrics)],
        "metrics": metrics,
    }
    if options.json:
        print(json.dumps(status, indent=2))
        return 0 if details.runs else 2
    print(f"job          {job.name!r} ({job.id}): {details.job.state}, {details.restarts} restarts")
    print(f"checkpoints  {checkpoints.completed:,} complete, {checkpoints.failed:,} failed{_of_last(last)}")
    for topic, lag in sorted(lags.items()):
        print(f"lag          {topic}: {lag:,} records")
    for title, counted in _METRICS.items():
        print(f"{title:12} {counted(metrics)}")
    if loads := _loads(metrics):
        print(f"load         {spread_in_words(loads)}")
        if options.shard_table:
            print(*table(loads), sep="\n")
        if advised := advice(loads):
            print(f"note         {advised}")
    for line in details.trouble[:3]:
        print(f"trouble      {line}")
    if not details.runs:
        raise FlinkRefused("some tasks do not run: see the trouble above, and the cluster's page")
    return 0


def _number(name: str) -> Callable[[dict[str, float]], str]:
    return lambda metrics: f"{int(metrics.get(name, 0)):,}"


def _sum_of(prefix: str) -> Callable[[dict[str, float]], str]:
    return lambda metrics: f"{int(sum(value for name, value in metrics.items() if name.startswith(prefix))):,}"


def _certificate(metrics: dict[str, float]) -> str:
    bounds = [value for name, value in metrics.items() if name.startswith("certificate_per_million_shard_")]
    return f"all errors of importance together are at most {max(bounds) / 1e6:.2g}" if bounds else "none"


def _settled(metrics: dict[str, float]) -> str:
    shards = [value for name, value in metrics.items() if name.startswith("unsettled_shard_")]
    if not shards:
        return "not known"
    unsettled = f"no, in {int(sum(shards))} of {len(shards)} shards: while pages are visited again, its errors fall"
    return unsettled if any(shards) else "yes"


_METRICS: dict[str, Callable[[dict[str, float]], str]] = {
    "events": _number("events_read"),
    "visits": _number("visits"),
    "transfers": _number("transfers"),
    "late": _number("late"),
    "duplicates": _number("duplicates"),
    "rejected": lambda metrics: f"{int(metrics.get('rejected_events', 0) + metrics.get('rejected', 0)):,}",
    "pages": _sum_of("pages_shard_"),
    "audit drift": _sum_of("audit_drift_shard_"),
    "certificate": _certificate,
    "settled": _settled,
}


def _loads(metrics: dict[str, float]) -> list[Load]:
    """Return what each shard has; nothing with one shard, or before the first audit."""
    shards = sorted(int(name.removeprefix("pages_shard_")) for name in metrics if name.startswith("pages_shard_"))
    if len(shards) < 2:
        return []

    def of(name: str, shard: int) -> int:
        return int(metrics.get(f"{name}_shard_{shard}", 0))

    return [Load(shard, *(of(name, shard) for name in ("pages", "visits", "bytes"))) for shard in shards]


def _lags(metrics: dict[str, float]) -> dict[str, int]:
    lags: dict[str, int] = {}
    for name, value in metrics.items():
        if name.startswith("lag_"):
            topic = name.removeprefix("lag_").rpartition("_")[0]
            lags[topic] = lags.get(topic, 0) + int(value)
    return lags


def _of_last(last: Checkpoint | None) -> str:
    if last is None:
        return ""
    return f"; the last wrote {last.written_bytes / 1e6:,.1f} MB in {last.seconds:.1f} s"
