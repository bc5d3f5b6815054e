"""`opicflow stream` and `opicflow rebuild`: start, watch, stop and renew the stream on a Flink cluster."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from opicflow.connectors.flink.rest import Checkpoint, FlinkCluster, FlinkRefused, Job, JobDetails
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.topics import make, names
from opicflow.pipelines.cli.cluster import connection_of, worker_command
from opicflow.pipelines.cli.commands.replay import counting_of, focus_of, rules_of_options
from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.stream.origin import begin_logs, check_topics, ledger_spec, origin_of
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig
from opicflow.pipelines.transforms.route import Rules
from opicflow.pipelines.transforms.settings import CashFocus, LedgerOptions
from opicflow.pipelines.transforms.stream_keeper import Origin

NAME = "opicflow"
_RUNNER = "FlinkRunner"
_STREAM_CYCLE_HOURS = 1.0
_SUBMIT_SECONDS = 300.0
_LATEST = "latest"
_METADATA = "_metadata"
"""The file that Flink writes last into the folder of a checkpoint or savepoint."""
_STATE_CACHE_MB = 64
"""Of a worker: without it every look at a partition asks Flink for the offset."""


def stream(options: argparse.Namespace) -> int:
    """Start the stream; or say how it goes, stop it, renew it."""
    return {"start": _start, "status": _status, "stop": _stop, "upgrade": _upgrade}[options.action](options)


def rebuild(options: argparse.Namespace) -> int:
    """Make a set of ledgers anew, of any number, from crawl-events as far back as they are kept."""
    _check_runner(options)
    connection, flink = connection_of(options), FlinkCluster(options.flink_master)
    old_topic = _ledger_topic(options)
    there = origin_of(connection, old_topic)
    if there is None:
        raise KafkaRefused(f"{old_topic}: there is no ledger to be made anew: start one with opicflow stream")
    topic = options.to_ledger or f"{names(options.prefix).page_ledger}-{options.shards}"
    if topic == old_topic:
        raise KafkaRefused(f"{topic}: these are the ledgers that are there: name another topic with --to-ledger")
    asked = _asked_for(options, there.rules)
    ends = {one.source: one.end for one in resolve(connection, names(options.prefix).crawl_events)}
    origin = replace(
        there if asked is None else asked, shards=options.shards, quiet_until={s: end for s, end in ends.items() if end}
    )
    made = make(connection, [ledger_spec(options.prefix, topic, options.shards)], options.replication)
    if topic not in made.new:
        raise KafkaRefused(f"{topic}: this topic is there already: name a new one with --to-ledger")
    name = options.name = options.name or f"{NAME}-{topic}"
    job = _submit(options, flink, connection, topic, begin_logs(connection, topic, origin), name, None)
    _say(options, {"job": job.id, "name": job.name, "ledger": topic, "shards": options.shards})
    if not options.json:
        print(f"rebuilding: job {job.name!r} ({job.id}) makes {options.shards} ledgers in {topic} from crawl-events")
        print(f"it publishes nothing before it has come to where crawl-events end now: {sum(ends.values()):,} events")
        print("then: opicflow stream stop (the old one); later: opicflow stream … --ledger", topic, "--name", name)
    return 0


# -- start, stop, renew ------------------------------------------------------------------------------------------------


def _start(options: argparse.Namespace) -> int:
    _check_runner(options)
    connection, flink = connection_of(options), FlinkCluster(options.flink_master)
    name = options.name or NAME
    _check_free(flink, name)
    job = _started(options, flink, connection, name, _savepoint(options))
    if not options.json:
        print(f"the stream runs: job {job.name!r} ({job.id})")
        print(f"see: opicflow stream status --flink-master {options.flink_master}, or http://{options.flink_master}")
    return 0


def _upgrade(options: argparse.Namespace) -> int:
    """Stop with a savepoint, and go on from it with this version and these options."""
    _check_runner(options)
    connection, flink = connection_of(options), FlinkCluster(options.flink_master)
    name = options.name or NAME
    running = flink.find(name)
    _shards_of(options, connection)  # refused before anything is stopped
    path = flink.stop(running.id, _savepoints(options))
    print(f"stopped, with a savepoint: {path}", file=sys.stderr, flush=True)
    try:
        job = _started(options, flink, connection, name, path)
    except BaseException:
        print(f"opicflow: the stream is stopped; go on with --from-savepoint {path}", file=sys.stderr)
        raise
    if not options.json:
        print(f"the stream goes on: job {job.name!r} ({job.id}), from {path}")
    return 0


def _stop(options: argparse.Namespace) -> int:
    flink = FlinkCluster(options.flink_master)
    job = flink.find(options.name or NAME)
    path = flink.stop(job.id, _savepoints(options))
    _say(options, {"job": job.id, "name": job.name, "savepoint": path})
    if not options.json:
        print(f"stopped, with a savepoint: {path}")
        print(f"go on with: opicflow stream … --from-savepoint {path}")
    return 0


def _started(
    options: argparse.Namespace, flink: FlinkCluster, connection: Connection, name: str, savepoint: str | None
) -> Job:
    topic, shards = _ledger_topic(options), _shards_of(options, connection)
    there = origin_of(connection, topic)
    asked = _asked_for(options, there.rules if there else Rules())
    if asked is not None:
        asked = replace(asked, shards=shards)
    if there is not None and asked is not None and _difference(asked, there):
        raise KafkaRefused(
            f"{topic}: its ledgers count with other options ({_difference(asked, there)}): leave the options away, or "
            "rebuild with them"
        )
    origin = there or asked or _default_origin(shards)
    job = _submit(options, flink, connection, topic, begin_logs(connection, topic, origin), name, savepoint)
    _say(options, {"job": job.id, "name": job.name, "ledger": topic, "shards": shards, "savepoint": savepoint})
    return job


def _submit(
    options: argparse.Namespace,
    flink: FlinkCluster,
    connection: Connection,
    topic: str,
    origin: Origin,
    name: str,
    savepoint: str | None,
) -> Job:
    """Give the stream to the cluster, and wait until it runs."""

    def pipeline(parallelism: int) -> Stream:
        run, poll_ms = f"{name} {topic}", options.pulse_ms * parallelism
        mb = options.snapshot_mb
        return Stream(StreamConfig(connection, origin, options.prefix, topic, options.tick_seconds, run, poll_ms, mb))

    return submitted(options, flink, name, pipeline, savepoint)


def submitted(
    options: argparse.Namespace,
    flink: FlinkCluster,
    name: str,
    transform: Callable[[int], beam.PTransform[Any, Any]],
    savepoint: str | None = None,
) -> Job:
    """Give a pipeline to the cluster, and wait until it runs. `transform` is told how many slots it may use."""
    _check_free(flink, name)
    slots = flink.overview().slots_free
    parallelism = options.parallelism or slots
    if not 0 < parallelism <= slots:
        raise FlinkRefused(
            f"{options.flink_master}: {slots} slots are free and {max(parallelism, 1)} are needed: start TaskManagers, "
            "stop other jobs, or give a smaller --parallelism"
        )
    pipeline = beam.Pipeline(options=PipelineOptions(_beam_options(options, name, parallelism, savepoint)))
    _ = pipeline | "Stream" >> transform(parallelism)
    if not options.json:
        print("submitting: this takes a while", file=sys.stderr, flush=True)
    submitted_ms = max([job.started_ms for job in flink.jobs()], default=0)
    result = pipeline.run()
    give_up_at = monotonic() + _SUBMIT_SECONDS
    while monotonic() < give_up_at:
        mine = [job for job in flink.jobs(name) if job.started_ms > submitted_ms]
        if mine and mine[0].ended:
            raise FlinkRefused(f"the job ended at once ({mine[0].state}): {_trouble(flink.details(mine[0].id))}")
        if mine and flink.details(mine[0].id).runs:
            return mine[0]
        if str(result.state) in ("FAILED", "CANCELLED"):
            raise FlinkRefused(f"{options.job_server or options.flink_master}: the job was not taken: see its log")
        Event().wait(0.5)
    raise FlinkRefused(
        f"{options.flink_master}: job {name!r} does not run after {_SUBMIT_SECONDS:.0f} s: see the cluster's page"
    )


def _beam_options(options: argparse.Namespace, name: str, parallelism: int, savepoint: str | None) -> list[str]:
    """What Beam is told. There is no secret in it: passwords are in the file of --properties, where workers run."""
    if options.job_server:
        runner = ["--runner=PortableRunner", f"--job_endpoint={options.job_server}"]
    else:
        runner = [f"--runner={_RUNNER}", f"--flink_master={options.flink_master}"]
        runner += [f"--flink_job_server_jar={options.job_server_jar}"] if options.job_server_jar else []
    if options.worker_image:
        workers = ["--environment_type=DOCKER", f"--environment_config={options.worker_image}"]
    else:
        variables = {"OPICFLOW_WORKER_LOGS": options.worker_logs} if options.worker_logs else {}
        command = {"command": options.worker_command or worker_command(), "env": variables}
        workers = ["--environment_type=PROCESS", f"--environment_config={json.dumps(command)}"]
    return [
        *runner,
        *workers,
        "--streaming",
        f"--job_name={name}",
        f"--parallelism={parallelism}",
        f"--sdk_worker_parallelism={options.workers}",
        f"--checkpointing_interval={int(options.checkpoint_seconds * 1000)}",
        "--externalized_checkpoints_enabled",
        "--retain_externalized_checkpoints_on_cancellation",
        f"--state_backend={'rocksdb' if options.state_backend == 'rocksdb' else 'filesystem'}",
        f"--state_backend_storage_path={_checkpoints(options)}",
        f"--max_bundle_time_mills={options.bundle_ms}",
        f"--max_cache_memory_usage_mb={_STATE_CACHE_MB}",
        *([f"--savepoint_path={savepoint}"] if savepoint else []),
        *options.beam_option,
    ]


def _check_runner(options: argparse.Namespace) -> None:
    if options.runner != _RUNNER:
        raise FlinkRefused(
            f"--runner {options.runner}: a stream needs {_RUNNER}; for a log that ends, opicflow replay runs anywhere"
        )
    _checkpoints(options)


def _check_free(flink: FlinkCluster, name: str) -> None:
    if any(not job.ended for job in flink.jobs(name)):
        raise FlinkRefused(f"a job {name!r} runs there already: see opicflow stream status, or give another --name")


def _ledger_topic(options: argparse.Namespace) -> str:
    return str(options.ledger or names(options.prefix).page_ledger)


def _shards_of(options: argparse.Namespace, connection: Connection) -> int:
    """How many shards there are, once the topics are as they should be."""
    topic = _ledger_topic(options)
    found = check_topics(connection, options.prefix, topic, options.shards)
    if found:
        for finding in found:
            print(finding)
        sys.stdout.flush()
        raise KafkaRefused(f"{connection.brokers}: {len(found)} findings: correct what is said, and start again")
    return len(resolve(connection, topic))


def _default_origin(shards: int) -> Origin:
    ledger = LedgerConfig()
    return Origin(replace(ledger, refresh=replace(ledger.refresh, cycle_hours=_STREAM_CYCLE_HOURS)), shards)


def _asked_for(options: argparse.Namespace, kept: Rules) -> Origin | None:
    """How ledgers should count as the options say; None if these say nothing."""
    rules, counting, focus = rules_of_options(options), counting_of(options), focus_of(options)
    if rules is None and counting == LedgerOptions() and focus is None:
        return None
    rules = rules or kept
    ledger = counting.over(_default_origin(1).ledger)
    if focus is not None or rules.categories.count > 1:
        ledger = (focus or CashFocus()).over(ledger, rules.categories)
    return Origin(ledger, options.shards or 0, rules)


def _savepoint(options: argparse.Namespace) -> str | None:
    given: str | None = options.from_savepoint
    if given != _LATEST:
        return given
    folder = _local(_checkpoints(options))
    if folder is None:
        raise FlinkRefused(f"--from-savepoint {_LATEST}: only for checkpoints in a folder of this machine: give a path")
    newest = newest_checkpoint(folder)
    if newest is None:
        raise FlinkRefused(f"{folder}: there is no checkpoint and no savepoint: leave --from-savepoint away")
    return newest.as_uri()


def newest_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint or savepoint that is whole, below a folder in which a job may be deleting old ones."""
    found = []
    for inside, _, files in os.walk(folder):  # a glob would stop at a folder that is gone when it is looked into
        path = Path(inside)
        if _METADATA in files and path.name.startswith(("chk-", "savepoint-")):
            with suppress(FileNotFoundError):
                found.append(((path / _METADATA).stat().st_mtime_ns, path))
    return max(found)[1] if found else None


def _checkpoints(options: argparse.Namespace) -> str:
    given = options.checkpoints
    if not given:
        raise FlinkRefused(
            "no place for checkpoints: name a folder that all TaskManagers see with --checkpoints, such as "
            "file:///var/lib/opicflow or s3://bucket/opicflow"
        )
    uri = str(given) if "://" in given else Path(given).absolute().as_uri()
    return f"{uri.rstrip('/')}/{quote(options.name or NAME)}"  # of this stream alone: `latest` must not find another's


def _savepoints(options: argparse.Namespace) -> str | None:
    return f"{_checkpoints(options)}/savepoints" if options.checkpoints else None


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _difference(asked: Origin, there: Origin) -> str:
    ours, theirs = asked.ledger.to_json(), there.ledger.to_json()
    names_ = [f"{name}: {theirs[name]}" for name in ours if ours[name] != theirs.get(name)]
    if asked.rules != there.rules:
        names_.append("other rules of URLs, links or categories")
    if asked.shards != there.shards:
        names_.append(f"{there.shards} shards")
    return ", ".join(names_)[:300]


# -- how it goes -------------------------------------------------------------------------------------------------------


def _status(options: argparse.Namespace) -> int:
    flink = FlinkCluster(options.flink_master)
    job = flink.find(options.name or NAME)
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
        "metrics": metrics,
    }
    if options.json:
        print(json.dumps(status, indent=2))
        return 0 if details.runs else 2
    print(f"job          {job.name!r} ({job.id}): {details.job.state}, {details.restarts} restarts")
    print(f"checkpoints  {checkpoints.completed:,} complete, {checkpoints.failed:,} failed{_of_last(last)}")
    for topic, lag in sorted(lags.items()):
        print(f"lag          {topic}: {lag:,} records")
    for title, counted in _SHOWN.items():
        print(f"{title:12} {counted(metrics)}")
    for line in details.trouble[:3]:
        print(f"trouble      {line}")
    if not details.runs:
        raise FlinkRefused("not all of it runs: see the trouble above, and the cluster's page")
    return 0


def _number(name: str) -> Callable[[dict[str, float]], str]:
    return lambda metrics: f"{int(metrics.get(name, 0)):,}"


def _sum_of(prefix: str) -> Callable[[dict[str, float]], str]:
    return lambda metrics: f"{int(sum(value for name, value in metrics.items() if name.startswith(prefix))):,}"


_SHOWN: dict[str, Callable[[dict[str, float]], str]] = {
    "events": _number("events_read"),
    "visits": _number("visits"),
    "transfers": _number("transfers"),
    "late": _number("late"),
    "duplicates": _number("duplicates"),
    "rejected": lambda metrics: f"{int(metrics.get('rejected_events', 0) + metrics.get('rejected', 0)):,}",
    "pages": _sum_of("pages_shard_"),
    "audit drift": _sum_of("audit_drift_shard_"),
}


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


def _trouble(details: JobDetails) -> str:
    return "; ".join(details.trouble[:1]) or "see the cluster's page"


def _say(options: argparse.Namespace, values: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps(values, indent=2))
