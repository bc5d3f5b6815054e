"""`opicflow stream`: start, watch, stop, cancel, upgrade and reshard the stream on a Flink cluster."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from opicflow.pipelines.cli.options import connection_of
from opicflow.pipelines.cli.settings_table import dest_of, shown_name, words_of
from opicflow.pipelines.cli.stream_options import (
    DIRECT_RUNNER,
    add_stream_options,
    check_action,
    check_runner,
    default_origin,
    flink_job_of,
    ledger_topic_of,
    new_ledger_topic_of,
    print_answer,
    requested_origin,
    shards_of,
    snapshots_of,
    started_with,
    stream_config,
    submit_stream,
)
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import whole
from opicflow.pipelines.stream.status import StreamStatus

if TYPE_CHECKING:
    from opicflow.connectors.flink.rest import Job
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.connectors.kafka.partitions import PartitionRange
    from opicflow.pipelines.stages.log_settings import Origin
    from opicflow.pipelines.stream.snapshot_store import Snapshots
    from opicflow.pipelines.stream.submit import FlinkJob

EXAMPLES = """examples:
  opicflow stream --runner DirectRunner --brokers localhost:9092 --state state    the whole stream in this process
  opicflow stream --brokers localhost:9092 --flink-master localhost:8081 --job-server localhost:8099 \\
      --checkpoints file:///var/lib/opicflow                            from topics to topics, for months
  opicflow stream status --brokers localhost:9092 --flink-master localhost:8081
  opicflow stream stop --brokers localhost:9092 --flink-master localhost:8081         with a savepoint
  opicflow stream cancel --brokers localhost:9092 --flink-master localhost:8081       where no savepoint can be written
  opicflow stream upgrade --brokers … --flink-master … --checkpoints …  the same with this version of opicflow
  opicflow stream republish --brokers localhost:9092        publish the importance of all pages again
  opicflow stream trim --brokers localhost:9092 --snapshots file:///var/lib/snapshots       delete old log
  opicflow stream reshard --shards 6 --brokers … --flink-master … --checkpoints … --snapshots …
"""
PRINTS_AS_IT_GOES = True


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "action",
        nargs="?",
        default="start",
        choices=list(_ACTIONS),
        help="%(default)s; status = its state; stop = with a savepoint; cancel = end a job that fails again and again, "
        "without a savepoint; upgrade = stop, and continue with this version; republish = publish the importance of "
        "all pages again; trim = delete what the logs hold before the oldest snapshots; reshard = stop, and continue "
        "with another number of shards",
    )
    parser.add_argument(
        "--from-savepoint", metavar="PATH", help="continue from a savepoint or checkpoint; 'latest' = newest"
    )
    parser.add_argument("--shards", type=whole, metavar="N", help="how many ledgers: the partitions of their topic")
    parser.add_argument("--to-ledger", metavar="TOPIC", help="reshard: the new topic of the logs (page-ledger-N)")
    parser.add_argument("--replication", type=whole, metavar="N", help="reshard: replicas of the new topic (3)")
    parser.add_argument("--shard-table", action="store_true", help="status: also show what each shard has")
    add_stream_options(parser)


def run(options: argparse.Namespace) -> int:
    """Start the stream, or show its state, stop it, upgrade it."""
    if options.action not in ("start", "republish", "trim"):
        check_action(options)
    return _ACTIONS[options.action](options)


def _start(options: argparse.Namespace) -> int:
    if options.runner == DIRECT_RUNNER:
        return _run_here(options)
    from opicflow.pipelines.stream.submit import check_free, savepoint_path

    job = flink_job_of(options)
    check_runner(options, job)
    connection = connection_of(options)
    check_free(job)
    ready = _prepare(options, connection)
    where = {"brokers": options.brokers, "properties": options.properties, "flink-master": job.flink_master}
    see = _command("status", {**where, "name": options.name})
    _submit(
        options,
        job,
        ready,
        savepoint_path(job, options.from_savepoint),
        lambda running: (f"the stream runs: job {running}", f"see: {see}, or http://{job.flink_master}"),
    )
    return 0


def _run_here(options: argparse.Namespace) -> int:
    """Run the stream in this process, until it is interrupted."""
    from opicflow.connectors.flink.rest import FlinkRefused
    from opicflow.pipelines.stream.one_process import run_stream, snapshots_in, stream_folder
    from opicflow.pipelines.stream.origin import begin_logs

    if options.stream_state is None:
        raise FlinkRefused(f"--runner {DIRECT_RUNNER}: name the folder of the stream's state with --state")
    for name in ("flink-master", "job-server", "job-server-jar", "checkpoints", "from-savepoint", "parallelism"):
        if getattr(options, dest_of(name)) is not None and dest_of(name) not in options.configured:
            raise FlinkRefused(f"{shown_name(name)}: it is for Flink: omit it, or omit --runner {DIRECT_RUNNER}")
    with stream_folder(Path(options.stream_state)) as state:
        ready = _prepare(options, connection_of(options))
        snapshots = ready.snapshots or snapshots_in(state)
        origin = begin_logs(connection_of(options), ready.topic, ready.origin, snapshots)
        config = replace(stream_config(options, "here", ready.topic, origin), snapshots=snapshots)
        print_answer(
            options,
            {"ledger": ready.topic, "shards": origin.shards, "state": str(state)},
            f"the stream runs in this process, with {counted(origin.shards, 'shard')}; Ctrl-C ends it",
        )
        sys.stdout.flush()
        stop = _stop_on_signals()
        run_stream(config, state, lambda line: print_lines(f"opicflow: {line}", file=sys.stderr), stop)
        print_lines(f"opicflow: stopped: the same command continues from {state}", file=sys.stderr)
    return 0


def _stop_on_signals() -> Event:
    """Return an event that the first Ctrl-C sets, when the round under way ends; the second one interrupts it."""
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        interrupt = signal.getsignal(number)
        if not callable(interrupt):
            continue

        def end(number: int, frame: FrameType | None, interrupt: Callable[..., object] = interrupt) -> None:
            if stop.is_set():
                interrupt(number, frame)
            stop.set()

        signal.signal(number, end)
    return stop


def _upgrade(options: argparse.Namespace) -> int:
    """Stop with a savepoint, and continue from it with this version and these options.

    What a start would refuse is refused before anything is stopped.
    """
    from opicflow.connectors.flink.rest import FlinkRefused
    from opicflow.pipelines.stream.submit import check_place, savepoint_folder

    if options.from_savepoint:
        raise FlinkRefused("upgrade continues from a savepoint of its own: omit --from-savepoint, or stop and start")
    job = flink_job_of(options)
    check_runner(options, job)
    connection = connection_of(options)
    old = job.cluster.find(job.name)
    _check_ledger(options, job, old)
    ready = _prepare(options, connection)
    check_place(job, max(vertex.parallelism for vertex in job.cluster.details(old.id).vertices))
    path = job.cluster.stop(old.id, savepoint_folder(job))
    print_lines(f"stopped, with a savepoint: {path}", file=sys.stderr, flush=True)
    try:
        _submit(options, job, ready, path, lambda running: (f"the stream continues: job {running}, from {path}",))
    except BaseException:
        again = _command("", {**started_with(options), "from-savepoint": path})
        print_lines(f"opicflow: the stream is stopped; continue with: {again}", file=sys.stderr)
        raise
    return 0


def _stop(options: argparse.Namespace) -> int:
    from opicflow.pipelines.stream.submit import savepoint_folder

    job = flink_job_of(options)
    running = job.cluster.find(job.name)
    given, place = _start_again(options, job, running)
    path = job.cluster.stop(running.id, savepoint_folder(replace(job, checkpoints=place)) if place else None)
    again = _command("", {**given, "from-savepoint": path})
    values = {"job": running.id, "name": running.name, "savepoint": path, "continue": again}
    print_answer(options, values, f"stopped, with a savepoint: {path}", f"continue with: {again}")
    return 0


def _cancel(options: argparse.Namespace) -> int:
    """End the job without a savepoint: it may be one that fails again and again, and can write none."""
    job = flink_job_of(options)
    running = job.cluster.find(job.name)
    given, _ = _start_again(options, job, running)
    checkpoints = job.cluster.checkpoints(running.id)
    newest = checkpoints.retained[0].path if checkpoints.retained else checkpoints.restored_path
    job.cluster.cancel(running.id)
    again = _command("", {**given, "from-savepoint": newest})
    lines = [
        f"canceled, without a savepoint: job {running.name!r} ({running.id}); no event is lost",
        "remove the cause first (opicflow stream status has shown it)",
    ]
    if newest:
        lines.append("if its state is the cause, omit --from-savepoint: the logs are read again, which takes longer")
    values = {"job": running.id, "name": running.name, "checkpoint": newest or None, "continue": again}
    print_answer(options, values, *lines, f"continue with: {again}")
    return 0


def _start_again(options: argparse.Namespace, job: FlinkJob, running: Job) -> tuple[dict[str, object], str]:
    """Return the options of a command that starts the job again, and the folder of its checkpoints; empty: unknown."""
    from opicflow.pipelines.stream.submit import started_job

    started = started_job(job, running.id)
    given = {**started.options, **started_with(options)}
    if not given.keys() & {"brokers", "properties"}:
        given["brokers"] = "HOST:PORT"
    given.setdefault("checkpoints", started.checkpoints or "URL")
    return given, options.checkpoints or started.checkpoints


def _command(action: str, options: Mapping[str, object]) -> str:
    """Return a command of the stream for a shell. Options without a value are omitted."""
    words = ["opicflow", "stream", *([action] if action else [])]
    for name, value in options.items():
        words += words_of(name, value if isinstance(value, list) else [] if value in (None, "") else [value])
    return shlex.join(words)


def _check_ledger(options: argparse.Namespace, job: FlinkJob, running: Job) -> Mapping[str, object]:
    """Refuse to stop a stream in favour of logs that are not its own, such as those from before a reshard.

    Returns the options that the stream was started with.
    """
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.pipelines.stream.submit import started_job

    topic, started = ledger_topic_of(options), started_job(job, running.id).options
    kept = started.get("ledger")
    if kept is not None and kept != topic:
        raise KafkaRefused(f"job {running.name!r} runs on the logs in {kept}, not {topic}: give --ledger {kept}")
    return started


class _Ready(NamedTuple):
    """The checked options that a stream starts with."""

    topic: str
    origin: Origin
    snapshots: Snapshots | None


def _prepare(options: argparse.Namespace, connection: Connection) -> _Ready:
    """Check the topics, the storage of snapshots, and that the options are those of the logs; register the schemas."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.pipelines.results.topic_writer import Destination
    from opicflow.pipelines.stream.origin import origin_of

    topic, shards = ledger_topic_of(options), shards_of(options, connection)
    snapshots = snapshots_of(options)
    kept = origin_of(connection, topic, snapshots)
    if kept is not None:
        _warn_of_left_logs(options, connection, topic)
    if kept is not None and kept.continues is not None and snapshots is None:
        raise KafkaRefused(
            f"{topic}: its logs continue those of {kept.continues.topic}, and begin with snapshots: name the folder of "
            "these with --snapshots"
        )
    requested = requested_origin(options, kept, shards)
    if kept is not None and requested is not None and _difference(requested, kept):
        raise KafkaRefused(
            f"{topic}: its ledgers count with other options ({_difference(requested, kept)}): omit the options, or "
            "rebuild with them"
        )
    Destination(connection, options.prefix).register_schemas()
    return _Ready(topic, kept or requested or default_origin(shards), snapshots)


def _warn_of_left_logs(options: argparse.Namespace, connection: Connection, topic: str) -> None:
    """Print a warning if a stream has left these logs behind, as after a reshard."""
    from opicflow.pipelines.stream.resharding import ran_since

    if others := ran_since(connection, options.prefix, topic):
        print_lines(
            f"opicflow: a stream of {counted(others, 'shard')} has run since the logs in {topic} ended: if you mean "
            "its logs, name them with --ledger",
            file=sys.stderr,
        )


def _submit(
    options: argparse.Namespace,
    job: FlinkJob,
    ready: _Ready,
    savepoint: str | None,
    lines_about: Callable[[str], Sequence[str]],
) -> None:
    """Submit the stream, and print the job. `lines_about` gets its name and its id in words."""
    running = submit_stream(options, job, ready.topic, ready.origin, ready.snapshots, savepoint)
    shards = ready.origin.shards
    values = {"job": running.id, "name": running.name, "ledger": ready.topic, "shards": shards, "savepoint": savepoint}
    print_answer(options, values, *lines_about(f"{running.name!r} ({running.id})"))


def _difference(requested: Origin, kept: Origin) -> str:
    ours, theirs = requested.ledger.to_json(), kept.ledger.to_json()
    names_ = [f"{name}: {theirs[name]}" for name in ours if ours[name] != theirs.get(name)]
    if requested.rules != kept.rules:
        names_.append("other rules of URLs, links or categories")
    if requested.shards != kept.shards:
        names_.append(counted(kept.shards, "shard"))
    return ", ".join(names_)[:300]


def _republish(options: argparse.Namespace) -> int:
    """Request that every ledger publishes the importance of all its pages again."""
    from opicflow.pipelines.stream.requests import republish

    connection, topic = connection_of(options), ledger_topic_of(options)
    _warn_of_left_logs(options, connection, topic)
    shards = republish(connection, topic, snapshots_of(options))
    print_answer(
        options,
        {"ledger": topic, "shards": shards},
        f"{topic}: {counted(shards, 'shard')} will publish the importance of all pages again, within a minute: "
        "pages off of opicflow stream status falls to 0",
    )
    return 0


def _trim(options: argparse.Namespace) -> int:
    """Delete what the logs hold before the oldest snapshots."""
    from opicflow.pipelines.stream.snapshot_store import NoSnapshots
    from opicflow.pipelines.stream.trim import find_trims, trim

    snapshots = snapshots_of(options)
    if snapshots is None:
        raise NoSnapshots("trim: name the folder of the stream's snapshots with --snapshots")
    connection, topic = connection_of(options), ledger_topic_of(options)
    trims = find_trims(connection, topic, snapshots)
    trim(connection, topic, trims)
    print_answer(
        options,
        {"ledger": topic, "shards": [{**one._asdict(), "deleted": one.deleted} for one in trims]},
        *(f"{topic}, partition {one.shard}: begins at offset {one.keep_from:,} of {one.end:,}" for one in trims),
        f"deleted {sum(one.deleted for one in trims):,} entries that are older than the oldest snapshots",
    )
    return 0


def _reshard(options: argparse.Namespace) -> int:
    """Stop with a savepoint, divide the ledgers among other shards, and continue with these."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.pipelines.stream.resharding import Resharding, ReshardProgress
    from opicflow.pipelines.stream.snapshot_store import NoSnapshots
    from opicflow.pipelines.stream.submit import check_place, savepoint_folder

    job = flink_job_of(options)
    check_runner(options, job)
    connection, topic, snapshots = connection_of(options), ledger_topic_of(options), snapshots_of(options)
    if snapshots is None:
        raise NoSnapshots("reshard: name the folder of the stream's snapshots with --snapshots")
    if options.shards is None:
        raise KafkaRefused("reshard: give the new number of shards with --shards")
    to_topic = new_ledger_topic_of(options)
    resharding = Resharding(
        connection, options.prefix, topic, to_topic, options.shards, snapshots, options.replication, options.hosted
    )
    again = shlex.join(["opicflow", *sys.argv[1:]])
    running = [one for one in job.cluster.jobs(job.name) if not one.ended]
    has_begun = resharding.has_begun()
    kept: Mapping[str, object] = {}
    if not has_begun:
        if running:
            kept = _check_ledger(options, job, running[0])
        resharding.check(bool(running))
    elif running:
        values = {"job": running[0].id, "name": running[0].name, "ledger": to_topic}
        print_answer(options, values, f"the stream runs on the new logs already: from now on give --ledger {to_topic}")
        return 0
    if running:
        check_place(job, max(vertex.parallelism for vertex in job.cluster.details(running[0].id).vertices))
        path = job.cluster.stop(running[0].id, savepoint_folder(job))
        print_lines(f"stopped, with a savepoint: {path}", file=sys.stderr, flush=True)
        again = _command("", {**kept, **started_with(options), "from-savepoint": path})

    def show(progress: ReshardProgress) -> None:
        print_lines(f"{progress.step}: {progress.shard} of {progress.shards}", file=sys.stderr, flush=True)

    pages: Sequence[int] = ()
    if not resharding.has_begun():  # until it was stopped: a job may have been starting
        try:
            pages = resharding.run(show).pages
        except BaseException:
            print_lines(f"opicflow: the old logs are as they were; continue with: {again}", file=sys.stderr)
            raise
    options.ledger = to_topic
    print_lines(f"the new logs are complete: from now on give --ledger {to_topic}", file=sys.stderr, flush=True)
    among = [f"{counted(sum(pages), 'page')}: {', '.join(f'{one:,}' for one in pages)}"] if pages else []
    new = f"with {counted(options.shards, 'shard')} in {to_topic}"
    ready = _prepare(options, connection)
    _submit(options, job, ready, None, lambda running: (f"the stream continues: job {running}, {new}", *among))
    return 0


def _status(options: argparse.Namespace) -> int:
    from opicflow.connectors.flink.rest import FlinkRefused
    from opicflow.pipelines.stream.submit import started_job

    job = flink_job_of(options)
    found = job.cluster.find(job.name)
    started = started_job(job, found.id).options
    metrics = job.cluster.beam_metrics(found.id)  # before the ends of the topics: lags are not negative
    problem, logs = _logs_on_brokers(options, started)
    details, checkpoints = job.cluster.details(found.id), job.cluster.checkpoints(found.id)
    status = StreamStatus(details, checkpoints, metrics, problem, logs)
    print_answer(options, status.values(), *status.lines(with_table=options.shard_table))
    if needed := details.slots_needed:
        has = job.cluster.overview()
        raise FlinkRefused(
            f"tasks wait for slots: the job needs {needed}, the cluster has {has.slots}, {has.slots_free} free: "
            "start another TaskManager"
        )
    if not details.runs:
        raise FlinkRefused("some tasks do not run: see the trouble above, and the cluster's page")
    if status.broker_problem:
        raise FlinkRefused("the job runs, but its brokers do not answer: start them, and it goes on by itself")
    if status.silent_since_ms:
        raise FlinkRefused("the job runs, but a worker does not answer: see its log; Flink replaces one that is killed")
    return 0


def _logs_on_brokers(
    options: argparse.Namespace, started: Mapping[str, object]
) -> tuple[str | None, list[PartitionRange] | None]:
    """Return why the brokers cannot be read from, empty if they can, and the partitions of the topics that a job reads.

    None if the command does not know the brokers. `started` are the options that the job was started with.
    """
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.partitions import resolve
    from opicflow.connectors.kafka.topics import names

    if not (options.brokers or options.properties):
        return None, None
    given = argparse.Namespace(
        prefix=options.prefix or started.get("prefix"), ledger=options.ledger or started.get("ledger")
    )
    topics = names(given.prefix or "")
    try:
        read = (topics.crawl_events, topics.policies, ledger_topic_of(given))
        return "", [one for topic in read for one in resolve(connection_of(options), topic)]
    except KafkaRefused as problem:
        return str(problem), None


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "start": _start,
    "status": _status,
    "stop": _stop,
    "cancel": _cancel,
    "upgrade": _upgrade,
    "republish": _republish,
    "trim": _trim,
    "reshard": _reshard,
}
