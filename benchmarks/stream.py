"""The stream on the local cluster, compared with a bare consumer and producer, and with a stream without ledgers.

The crawl is that of a made-up web in which 8 of 10 links stay on their host, and page ids keep sites together.

The stream has two shards for each of two cores, as docs/guides/operations.md advises. Group `stream_shards` compares
these with sixteen, and with other ways to spread pages; group `shard` measures one alone. Each job reads a published
backlog, and its metrics are read every half second. The start is not measured, nor is the first quarter of the events,
in which workers load their kernels: that takes them ten seconds, so a backlog is half a million events or more. Routers
run ahead of ledgers, so the measured time is from the end of that quarter until all events are counted. A first job
warms broker and Flink. Times are wall times: all processes share the cores with the broker and with Flink. Without Java
or Maven nothing is measured, and a message is printed.
`stream.cpu_vs_replay` counts the processor time of the whole machine: nothing else may run beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np

from benchmarks.harness import Figure, Scale, check, machine_seconds, say, versus, with_services
from benchmarks.placement import PlacedPages, WebOfSites
from benchmarks.replay import child
from opicflow.connectors.flink.rest import FlinkCluster, Job
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.topics import TopicSpec, make, specs
from opicflow.pipelines.cli.stream_options import default_origin
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.stages.keepers import KeeperFactory
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, LedgerKeeperFactory
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.outputs import Output
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stream.origin import begin_logs
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig
from opicflow.schemas.message_columns import MessageBatch

SHARDS = 4
_WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements."""

    events: int = 1_000_000
    warm_events: int = 300_000
    links: int = 30
    pages: int = 100_000
    hosts: int = 500
    keyed_events: int = 4_000
    """Those of the stream with a key for every page."""
    paced_events: int = 30_000
    paced_per_second: int = 1_000
    paced_hosts: int = 500
    quiet_seconds: float = 75.0
    """Until what waits has been sent, and logs get few ticks."""
    idle_seconds: float = 30.0


TINY = Sizes(20_000, 5_000, 30, 2_000, 50, 200, 500, 100, 50, 1.0, 1.0)
USUAL = Sizes(events=500_000, warm_events=150_000, keyed_events=1_000, paced_events=15_000, idle_seconds=15.0)


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield all figures of the group."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    yield from with_services("stream", ["kafka", "flink"], lambda *at: _measured(Cluster.of(*at), sizes))


# -- the cluster -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """The local services."""

    connection: Connection
    master: str
    job_server: str
    work: Path

    @classmethod
    def of(cls, services: Any, work: Path) -> Cluster:
        """Use these services. Their workers import this package too."""
        flink = services.instance("flink")
        command = work / "worker"
        boot = Path(sys.executable).with_name("opicflow-worker")
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{Path.cwd()}" exec "{boot}" "$@"\n')
        command.chmod(0o700)
        return cls(
            Connection(services.instance("kafka").address("plain")), flink.address("rest"), flink.address("jobs"), work
        )

    def start(self, name: str, transform: Callable[[int], Any], options: tuple[str, ...] = ()) -> Job:
        """Start a job; `options` are Beam's."""
        from opicflow.pipelines.stream.submit import FlinkJob, submit

        job = FlinkJob(
            flink_master=self.master,
            name=name,
            job_server=self.job_server,
            checkpoints=str(self.work / "checkpoints"),
            worker_command=str(self.work / "worker"),
            worker_logs=str(self.work / "logs"),
            beam_options=options,
            quiet=True,
        )
        return submit(job, transform)

    @property
    def flink(self) -> FlinkCluster:
        """Flink's REST interface."""
        return FlinkCluster(self.master)


def _measured(cluster: Cluster, sizes: Sizes) -> Iterator[Figure]:
    say("stream: broker and Flink without a job")
    without_job = _idle_cores(sizes.idle_seconds, sizes.idle_seconds)
    web = WebOfSites.made_up(sizes.pages, sizes.links, sizes.hosts)
    placed = PlacedPages.by_site(web, SHARDS)
    log, warm = (cluster.work / f"{name}.jsonl" for name in ("log", "warm"))
    web.write_log(log, sizes.events)
    web.write_log(warm, sizes.warm_events)
    for name, file in {"warm": warm, "empty": log, "ours": log}.items():
        say(f"stream: publishing to {name}-crawl-events")
        make(cluster.connection, specs(f"{name}-", SHARDS))
        publish(cluster.connection, f"{name}-", file)
    make(cluster.connection, [TopicSpec("copies", 3, "delete", "CreateTime")])
    bare = _bare(cluster.connection, "warm-")
    by_replay = child("replay", log, cluster.work)["cpu_seconds"]
    say("stream: without ledgers")
    rate_of(cluster, "warm", stream_of(cluster, "warm-", LedgerKeeperFactory(), placed), sizes.warm_events)
    empty = rate_of(cluster, "empty", stream_of(cluster, "empty-", CountingKeeperFactory(), placed), sizes.events)
    say("stream: the stream")
    ours = rate_of(cluster, "ours", stream_of(cluster, "ours-", LedgerKeeperFactory(), placed), sizes.events, keep=True)
    how = "catching up; one process that consumes and produces"
    yield versus("stream.events_vs_bare", ours.per_second, "events/s", bare, how)
    how = "the same job, entries decoded and dropped"
    yield versus("stream.events_vs_empty_ledger", ours.per_second, "events/s", empty.per_second, how)
    by_event = by_replay / sizes.events
    how = "CPU of the whole machine for an event; a replay of the same log, all outputs"
    yield Figure(
        "stream.cpu_vs_replay", 1e6 * ours.cpu_seconds, "µs/event", how, 1e6 * by_event, ours.cpu_seconds / by_event
    )
    yield from _latency(cluster, sizes)
    yield _idle(without_job, sizes)


def publish(connection: Connection, prefix: str, log: Path) -> None:
    """Publish a log to crawl-events."""
    from opicflow.pipelines.cli.main import main

    brokers = connection.brokers
    check(main(["publish", "events", str(log), "--brokers", brokers, "--prefix", prefix, "--quiet", "--json"]) == 0, "")


def stream_of(
    cluster: Cluster, prefix: str, factory: KeeperFactory, placed: PlacedPages | None = None
) -> Callable[[int], Stream]:
    """Return the stream of a number of slots, with logs of its own; `placed` are the pages of its shards."""
    topic = f"{prefix}page-ledger"
    origin = replace(default_origin(SHARDS), rules=Rules(), sites=None)
    if placed is not None:
        origin = replace(origin, ranges=placed.ranges, rules=Rules(page_ids=placed.page_ids))
    origin = begin_logs(cluster.connection, topic, origin)

    def stream(slots: int) -> Stream:
        return Stream(
            StreamConfig(cluster.connection, origin.shards, prefix, topic, run=prefix, slots=slots, factory=factory)
        )

    return stream


class Rate(NamedTuple):
    """How fast a job has counted its events."""

    per_second: float
    """From the time when a quarter was read until all were counted."""
    cpu_seconds: float
    """The processor time of the machine for an event, from the time when a quarter was counted."""


def rate_of(
    cluster: Cluster,
    name: str,
    transform: Callable[[int], Any],
    events: int,
    keep: bool = False,
    read: str = "events_read",
    options: tuple[str, ...] = (),
) -> Rate:
    """Measure a job that reads so many events."""
    job = cluster.start(name, transform, options)
    give_up_at, begun, used = time.monotonic() + _WAIT_SECONDS, (0.0, 0.0), (0.0, 0.0)
    while True:
        check(time.monotonic() < give_up_at, f"{name}: {events} events are counted in {_WAIT_SECONDS:.0f} s")
        metrics = cluster.flink.beam_metrics(job.id)
        now, read_events = time.monotonic(), metrics.get(read, 0.0)
        if read_events >= events / 4 and not begun[0]:
            begun = now, read_events
        visits = metrics.get("visits", 0.0)
        if visits >= events / 4 and not used[0]:
            used = machine_seconds(), visits
        if visits >= events:
            break
        Event().wait(0.5)
    cpu_seconds = (machine_seconds() - used[0]) / max(events - used[1], 1.0)
    if not keep:
        cluster.flink.cancel(job.id)
    return Rate((events - begun[1]) / max(now - begun[0], 0.5), cpu_seconds)


def _bare(connection: Connection, prefix: str) -> float:
    """Return events per second of a process that only consumes and produces them."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stream", connection.brokers, prefix], capture_output=True, text=True
    )
    check(done.returncode == 0, f"consuming and producing: {done.stderr[-300:]}")
    return float(json.loads(done.stdout)["rate"])


def consume_and_produce(brokers: str, prefix: str) -> float:
    """Return records per second."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = f"{prefix}crawl-events"
    settings = {"compression_type": "lz4", "batch_size": 256 << 10, "linger_ms": 25, "acks": "all"}
    with (
        closing(KafkaConsumer(bootstrap_servers=brokers, max_poll_records=4000)) as consumer,
        closing(KafkaProducer(bootstrap_servers=brokers, **settings)) as producer,
    ):
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        wanted = sum(consumer.end_offsets(partitions).values())
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        begun, seen = time.perf_counter(), 0
        while seen < wanted:
            for rows in consumer.poll(timeout_ms=1000).values():
                seen += len(rows)
                for row in rows:
                    producer.send("copies", row.value, row.value[:40])
        producer.flush()
        return seen / (time.perf_counter() - begun)


# -- latency -----------------------------------------------------------------------------------------------------------


def _latency(cluster: Cluster, sizes: Sizes) -> Iterator[Figure]:
    """Measure the time from the sending of a page's event to the arrival of its record of importance."""
    from kafka import KafkaConsumer, TopicPartition

    say("stream: latency")
    _settled(cluster)
    prefix, per_second = "ours-", sizes.paced_per_second
    topic = f"{prefix}importance"
    now_ms = int(beam.utils.timestamp.Timestamp.now().micros // 1000)
    paced = cluster.work / "paced.jsonl"
    with paced.open("w") as file:
        for number in range(sizes.paced_events):
            links = [f"https://site{(number * 7 + k) % 997}.example/p{k}" for k in range(sizes.links)]
            url = f"https://paced{number % sizes.paced_hosts}.example/{number}"
            event = {"url": url, "status": 200, "links": links}
            file.write(json.dumps({**event, "fetched_at": now_ms + number}) + "\n")
    arrived: dict[bytes, int] = {}
    with closing(KafkaConsumer(bootstrap_servers=cluster.connection.brokers)) as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_end()
        for partition in partitions:
            consumer.position(partition)
        command = [sys.executable, "-m", "benchmarks.stream", "pace", cluster.connection.brokers, prefix, str(paced)]
        sent = subprocess.Popen([*command, str(per_second)], stdout=subprocess.PIPE, text=True)
        give_up_at = time.monotonic() + sizes.paced_events / per_second + 60
        while len(arrived) < sizes.paced_events and time.monotonic() < give_up_at:
            polled = consumer.poll(timeout_ms=200)
            read_ms = int(beam.utils.timestamp.Timestamp.now().micros // 1000)
            for rows in polled.values():
                for row in rows:
                    if row.key.startswith(b"https://paced"):
                        arrived.setdefault(row.key, read_ms)
        times = {url.encode(): at for url, at in json.loads(sent.communicate(timeout=60)[0]).items()}
    check(
        len(arrived) > 0.9 * sizes.paced_events, f"importance of {len(arrived)} of {sizes.paced_events} pages arrived"
    )
    seconds = np.array([(at - times[url]) / 1000 for url, at in arrived.items()])
    how = f"{per_second} events/s, from sending an event to reading its importance"
    yield Figure("stream.latency_median", float(np.median(seconds)), "s", how)
    yield Figure("stream.latency_99th", float(np.percentile(seconds, 99)), "s", how)


def _idle(without_job: float, sizes: Sizes) -> Figure:
    """Measure the cores that the machine uses while the stream has nothing to do."""
    say("stream: nothing happens")
    cores = _idle_cores(sizes.quiet_seconds, sizes.idle_seconds)
    how = f"{SHARDS} shards, broker, Flink and all else on this machine; the same without a job"
    return Figure("stream.idle", cores, "cores", how, without_job, cores / without_job)


def _idle_cores(wait_seconds: float, seconds: float) -> float:
    """Return the cores that the machine uses after a wait."""
    Event().wait(wait_seconds)
    before = machine_seconds()
    Event().wait(seconds)
    return (machine_seconds() - before) / seconds


def _settled(cluster: Cluster) -> None:
    """Wait until the sweeps have published the backlog: there is none at the pace of a crawler."""
    job, before, give_up_at = cluster.flink.find("ours").id, -1.0, time.monotonic() + _WAIT_SECONDS
    while (sent := cluster.flink.beam_metrics(job).get("sent_importance", 0.0)) > before:
        check(time.monotonic() < give_up_at, f"the sweeps end in {_WAIT_SECONDS:.0f} s")
        before = sent
        Event().wait(10.0)


def pace(brokers: str, prefix: str, log: str, per_second: str) -> dict[str, int]:
    """Send events at a constant rate. Returns the time of each in milliseconds."""
    from kafka import KafkaProducer

    times = {}
    begun = time.perf_counter()
    with (
        closing(KafkaProducer(bootstrap_servers=brokers, linger_ms=0, acks="all")) as producer,
        open(log, "rb") as file,
    ):
        for number, line in enumerate(file):
            ahead = number / float(per_second) - (time.perf_counter() - begun)
            if ahead > 0:
                Event().wait(ahead)
            times[json.loads(line)["url"]] = int(beam.utils.timestamp.Timestamp.now().micros // 1000)
            producer.send(f"{prefix}crawl-events", line.rstrip())
        producer.flush()
    return times


# -- baselines ---------------------------------------------------------------------------------------------------------


class CountingKeeper(LedgerKeeper):
    """Decodes the entries of a log, counts their visits, and drops them."""

    def take(self, batch: MessageBatch) -> Iterator[Output]:
        for begin, end in zip(batch.begins.tolist(), batch.ends.tolist(), strict=True):
            entry: Any = decode_entry(batch.text[begin:end])
            if hasattr(entry, "items"):
                self.counts["visits"] += int((entry.items.kind == 0).sum())
        self.head = LogHead(next=batch.end, chain="none")
        return iter(())

    def chunks(self) -> list[bytes]:
        return [b"{}"]


class CountingKeeperFactory:
    """Makes keepers without ledgers."""

    def new(self, shard: int) -> Any:
        return CountingKeeper(shard)

    def restore(self, shard: int, chunks: Iterable[bytes]) -> Any:
        return CountingKeeper(shard)


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    print(json.dumps(pace(*rest) if first == "pace" else {"rate": consume_and_produce(first, *rest)}))
