"""Kafka: a replay from a topic beside its two legs, and results to a topic beside a bare producer of the same bytes.

Everything runs in a process of its own and is timed by the wall, as waiting for the broker counts, which shares the
cores. Without Java or Maven there is nothing to measure, and the group prints a note.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Scale, check, machine_seconds, say, versus, with_services
from benchmarks.replay import child, peak_mb, write_log


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    events: int = 200_000
    links: int = 30
    pages: int = 100_000
    backlog: int = 1_000_000
    backlog_pages: int = 100_000
    rounds: int = 3


TINY = Sizes(400, 30, 200, 1_000, 200, 1)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, Sizes())
    yield from with_services(
        "kafka", ["kafka"], lambda services, work: _measured(services.instance("kafka").address("plain"), work, sizes)
    )


def _measured(brokers: str, work: Path, sizes: Sizes) -> Iterator[Figure]:
    log, few = work / "log.jsonl", work / "few.jsonl"
    write_log(log, sizes.events, sizes.pages, sizes.links)
    write_log(few, 10, 10, 5)
    run("publish", brokers, "few-", str(few), "1")
    many = {name: f"{name}-" for name in ("one", "six")}
    for name, partitions in (("one", 1), ("six", 6)):
        say(f"kafka: publishing the log to {partitions} partitions")
        published = run("publish", brokers, many[name], str(log), str(partitions))
        check(published["events"] == sizes.events, f"{sizes.events} events are published, not {published['events']}")
    yield Figure("kafka.publish_events", sizes.events / published["seconds"], "events/s", "a JSON log as CrawlEvents")
    best: dict[str, float] = {}
    used: dict[str, float] = {}
    for number in range(sizes.rounds + 1):
        say(f"kafka: replays, round {number}")
        rows = {"file": child("replay", log, work)}
        for name, prefix in many.items():
            rows[f"consume {name}"] = run("consume", brokers, prefix)
            rows[f"replay {name}"] = run("replay", brokers, prefix, str(work / "out"))
        for name, row in rows.items():
            check(row["events"] == sizes.events, f"{name}: {sizes.events} events are read, not {row['events']}")
            best[name] = max(best.get(name, 0.0), row["events"] / row["seconds"] if number else 0.0)
            if "cpu_seconds" in row:
                used[name] = min(used.get(name, math.inf), row["cpu_seconds"] / row["events"])
    for name, suffix in (("one", "_one_partition"), ("six", "")):
        slower = min(best["file"], best[f"consume {name}"])
        legs = f"consume only {best[f'consume {name}']:,.0f}/s, file replay {best['file']:,.0f}/s"
        yield versus(
            f"kafka.replay_vs_slower_leg{suffix}",
            best[f"replay {name}"],
            "events/s",
            slower,
            f"bounded replay of {sizes.links}-link events; {legs}",
        )
        cores = os.cpu_count() or 1
        yield Figure(
            f"kafka.cores_allow_vs_slower_leg{suffix}",
            cores / used[f"replay {name}"] / slower,
            "x",
            f"the most, if {cores} cores always worked: an event takes {1e6 * used[f'replay {name}']:.1f} us of them, "
            f"the broker's share included, and {1e6 * used['file']:.1f} us in the file replay",
        )
    yield from _importance(brokers, work, sizes)
    yield from _backlog(brokers, work, sizes)


def _importance(brokers: str, work: Path, sizes: Sizes) -> Iterator[Figure]:
    """Results as a replay sends them, and the same messages by a bare producer."""
    best = {"ours": 0.0, "bare": 0.0}
    for number in range(sizes.rounds + 1):
        say(f"kafka: importance, round {number}")
        row = run("importance", brokers, "six-", str(work / "log.jsonl"), str(work / "out"))
        for name in best if number else ():
            best[name] = max(best[name], row["records"] / row[name])
    yield versus(
        "kafka.publish_importance_vs_bare_producer",
        best["ours"],
        "records/s",
        best["bare"],
        "columns to acknowledged Avro records; kafka-python sending the same bytes, with the same settings",
    )


def _backlog(brokers: str, work: Path, sizes: Sizes) -> Iterator[Figure]:
    """Memory, when there is five times as much to read."""
    say(f"kafka: a backlog of {sizes.backlog:,} events")
    log = work / "backlog.jsonl"
    write_log(log, sizes.backlog, sizes.backlog_pages, 4)
    run("publish", brokers, "backlog-", str(log), "6")
    log.unlink()
    write_log(log, sizes.backlog // 5, sizes.backlog_pages, 4)
    run("publish", brokers, "fifth-", str(log), "6")
    rows = {name: run("replay", brokers, f"{name}-", str(work / "out")) for name in ("fifth", "backlog")}
    check(rows["backlog"]["events"] == sizes.backlog, f"{sizes.backlog} events are read")
    yield Figure(
        "kafka.memory_growth",
        rows["backlog"]["peak_mb"] / rows["fifth"]["peak_mb"],
        "x",
        f"peak memory of a replay at 5 times the backlog, the same pages ({rows['backlog']['peak_mb']:.0f} MB, "
        f"{rows['backlog']['events'] / rows['backlog']['seconds']:,.0f} events/s); bound 1.2",
    )


def run(*arguments: str) -> dict[str, Any]:
    """Run one of the things below in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.kafka", *arguments], capture_output=True, text=True)
    check(done.returncode == 0, f"{arguments[0]} succeeds: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def publish(brokers: str, prefix: str, log: str, partitions: str) -> dict[str, Any]:
    """Make topics, and publish a log to them."""
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.connectors.kafka.topics import make, specs
    from opicflow.pipelines.cli.main import main

    make(Connection(brokers), specs(prefix, event_partitions=int(partitions)))
    begun = time.perf_counter()
    check(main(["publish", "events", log, "--brokers", brokers, "--prefix", prefix, "--quiet", "--json"]) == 0, "sent")
    with open(log, "rb") as file:
        return {"events": sum(1 for _ in file), "seconds": time.perf_counter() - begun}


def consume(brokers: str, prefix: str) -> dict[str, Any]:
    """Measure kafka-python alone, which hands over the messages of a topic."""
    from kafka import KafkaConsumer, TopicPartition

    with closing(KafkaConsumer(bootstrap_servers=brokers, max_poll_records=4000)) as consumer:
        topic = f"{prefix}crawl-events"
        assigned = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(assigned)
        consumer.assign(assigned)
        consumer.seek_to_beginning()
        begun = time.perf_counter()
        messages, size_bytes, wanted = 0, 0, sum(ends.values())
        while messages < wanted:
            for rows in consumer.poll(timeout_ms=1000).values():
                messages += len(rows)
                size_bytes += sum(len(row.value) for row in rows)
        return {"events": messages, "bytes": size_bytes, "seconds": time.perf_counter() - begun}


def replay(brokers: str, prefix: str, out: str) -> dict[str, Any]:
    """Run `opicflow replay --from … --out OUT`, timed as replays of files are: after one of ten events."""
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.pipelines.replay.runner import ReplayRequest, replayed
    from opicflow.pipelines.replay.topic_input import Topic

    topics = [Topic(Connection(brokers), f"{name}crawl-events") for name in ("few-", prefix)]
    for request in (ReplayRequest(topic=topics[0]), ReplayRequest(topic=topics[1], out=Path(out))):
        begun, used = time.perf_counter(), machine_seconds()
        with replayed(request, lambda progress: None) as result:
            summary = result.summary
        seconds, cpu_seconds = time.perf_counter() - begun, machine_seconds() - used
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "events": summary["events_read"], "peak_mb": peak_mb()}


def importance(brokers: str, prefix: str, log: str, out: str) -> dict[str, Any]:
    """Send the importance of a replay as it does, and then the very same messages by a bare producer."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    from opicflow.connectors.kafka.connection import Connection
    from opicflow.pipelines.replay.runner import ReplayRequest, replayed
    from opicflow.pipelines.results.part_files import Parts
    from opicflow.pipelines.results.topic_writer import Destination, send_importance

    topic, connection = f"{prefix}importance", Connection(brokers)
    with closing(KafkaConsumer(bootstrap_servers=brokers, max_poll_records=4000)) as consumer:
        assigned = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for_topic(topic))]
        starts = consumer.end_offsets(assigned)
        with replayed(ReplayRequest(logs=(log,)), lambda progress: None) as result:
            parts = result.importance
            assert isinstance(parts, Parts)
            begun = time.perf_counter()
            records = send_importance(Destination(connection, prefix), parts)
            ours = time.perf_counter() - begun
        consumer.assign(assigned)
        for partition, start in starts.items():
            consumer.seek(partition, start)
        messages = []
        while len(messages) < records:
            for rows in consumer.poll(timeout_ms=1000).values():
                messages += [(row.key, row.value, row.partition) for row in rows]
    settings = {"compression_type": "lz4", "batch_size": 256 << 10, "linger_ms": 25, "acks": "all"}
    begun = time.perf_counter()
    with closing(KafkaProducer(bootstrap_servers=brokers, **settings)) as producer:
        for key, value, partition in messages:
            producer.send(topic, value, key, partition=partition)
        producer.flush()
    return {"records": records, "ours": ours, "bare": time.perf_counter() - begun}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps({"publish": publish, "consume": consume, "replay": replay, "importance": importance}[what](*rest)))
