"""Faults that happen to a stream while events flow."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle, takewhile
from pathlib import Path
from time import monotonic
from typing import Any

from kafka import TopicPartition

from deploy.services.flink import TASK_MANAGERS
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.source import read_range
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.crawl_events import CrawlEvent
from support.local_stream import PATIENCE_SECONDS, Ledgers, LocalStream, Pending, wait_for
from support.logs import WebLog, url

_PAUSE_SECONDS = 60.0


def _folders(top: Path) -> Iterator[list[str]]:
    """Yield the names of the files in each folder; old snapshots may be removed meanwhile."""
    return (names for _, _, names in os.walk(top))


class Chaos:
    """Causes faults. Each kind is a method, which also checks that the fault had its effect."""

    def __init__(self, stream: LocalStream, seed: int) -> None:
        self.stream, self.services = stream, stream.cluster.services
        self._random = random.Random(seed)
        self.recoveries: list[tuple[str, float]] = []
        """The kind of each fault, and the seconds until importance of new visits was published again."""

    def wait_for_results(self, after: str = "the start") -> None:
        """Wait until importance of new visits is published."""
        before = self._published()
        self.stream.wait_for(
            f"importance after {after}", lambda: self._published() > before or Pending(f"still {before:,} records")
        )

    def cause(self, kind: str) -> None:
        """Cause a fault, and wait until events are counted again."""
        begun = monotonic()
        getattr(self, f"_{kind}")()
        self.wait_for_results(kind)
        self.recoveries.append((kind, monotonic() - begun))

    def _worker(self) -> None:
        """Kill a Python worker. The job restarts from its last checkpoint."""
        with self._job_restarts():
            os.kill(self._random.choice(self.stream.workers())[0], signal.SIGKILL)

    def _tasks(self) -> None:
        """Kill a TaskManager. Its workers end with it, and the job continues when there are slots again."""
        with self._job_restarts():
            name = self._random.choice(self._task_managers())
            self.services.kill("flink", name)
            self.services.revive("flink", name)

    def _broker(self) -> None:
        """Kill a broker and start it again. The job may restart or not. With other brokers it goes on without it."""
        brokers = self._brokers()
        name = self._random.choice(brokers)
        self.services.kill("kafka", name)
        if len(brokers) > 1:
            self.wait_for_results(f"{name} is gone")
        self.services.revive("kafka", name)

    def _paused_broker(self) -> None:
        """Pause a broker for a minute or more: it keeps its connections and answers nothing. The others go on."""
        name = self._random.choice(self._brokers())
        until = monotonic() + _PAUSE_SECONDS
        self.services.pause("kafka", name)
        try:
            self.wait_for_results(f"{name} is paused")
            threading.Event().wait(max(until - monotonic(), 0.0))
        finally:
            self.services.resume("kafka", name)

    def _slow_broker(self) -> None:
        """Let a broker run for a tenth of the time, for a minute: too often to be taken for dead."""
        name, until = self._random.choice(self._brokers()), monotonic() + _PAUSE_SECONDS
        while monotonic() < until:
            self.services.pause("kafka", name)
            threading.Event().wait(0.9)
            self.services.resume("kafka", name)
            threading.Event().wait(0.1)

    def _leaders(self) -> None:
        """Move the leadership of all partitions to other brokers, twice."""
        for _ in range(2):
            with self.stream.connection.admin() as admin:
                names = [name for name in admin.list_topics() if name.startswith(self.stream.prefix)]
                found = admin.describe_topics(names)
                replicas = {
                    TopicPartition(topic["name"], one["partition_index"]): one["replica_nodes"]
                    for topic in found
                    for one in topic["partitions"]
                }
                admin.alter_partition_reassignments({one: [*of[1:], of[0]] for one, of in replicas.items()})
                admin.elect_leaders(0, names, raise_errors=False)
            self.wait_for_results("other brokers lead")

    def _zombie(self) -> None:
        """Stop a TaskManager and its worker until the cluster has replaced them, then resume both.

        The worker resumes first: it sends its pending records while another worker does the same work again.
        """
        pid, name = self._random.choice(self.stream.workers())
        with self._job_restarts():
            self.services.pause("flink", name)
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        threading.Event().wait(1.0)
        self.services.resume("flink", name)

    def _cluster(self) -> None:
        """Kill all of Flink but the job server: the job is lost, and submitted again from the last checkpoint."""
        for name in ("flink-jobs", *TASK_MANAGERS):
            self.services.kill("flink", name)
        self.services.revive("flink")
        self.stream.start("--from-savepoint", "latest")

    def _old_checkpoint(self) -> None:
        """Continue from a checkpoint that is older than the last transfers."""
        stream = self.stream
        old = stream.wait_for_checkpoint()
        newer = stream.wait_for_checkpoint(after=old.id)
        job = stream.job
        stream.cancel()
        kept = stream.flink.checkpoints(job.id).retained
        oldest = kept[-1]
        assert oldest.id < kept[0].id and newer.id <= kept[0].id
        stream.start("--from-savepoint", oldest.path)

    def _delivered_twice(self) -> None:
        """Append copies of up to 200 old entries to each log, in their order."""
        stream, copies = self.stream, 0
        with Publisher(stream.connection) as publisher:
            for log in resolve(stream.connection, stream.ledger_topic):
                first = self._random.randrange(log.start, max(log.end - 200, log.start + 1))
                old = replace(log, start=first, end=min(first + 200, log.end))
                for messages in read_range(old):
                    for row in range(len(messages)):
                        publisher.send(stream.ledger_topic, None, messages.value(row), log.partition)
                    copies += len(messages)
        assert copies > 10 * stream.shards

    def _storage(self) -> None:
        """Take the storage of snapshots away until one cannot be written; bring it back while a worker is lost."""
        stream, folder = self.stream, self.stream.snapshots
        assert folder is not None
        away = folder.with_name("away")
        wait_for(
            "a snapshot in storage",
            lambda: any("manifest.json" in names for names in _folders(folder)) or Pending("none yet"),
        )
        stream.wait_for("an audit of each ledger: those of new shards begin with a snapshot", self._are_audited)
        folder.rename(away)
        folder.write_text("the storage is away")
        running_since_ms = stream.flink.details(stream.job.id).running_since_ms
        stream.wait_for("a snapshot that cannot be written", lambda: self._has_noticed(running_since_ms))
        with self._job_restarts():
            with suppress(AssertionError, ProcessLookupError):  # the job restarts already, and no worker may run
                os.kill(self._random.choice(stream.workers())[0], signal.SIGKILL)
            folder.unlink()
            away.rename(folder)

    def _has_noticed(self, running_since_ms: int) -> Any:
        """Whether a snapshot failed. A job that restarts for another reason waits for the storage of its ledgers."""
        found = self.stream.flink.details(self.stream.job.id)
        failed = self.stream.flink.beam_metrics(found.job.id).get("snapshot_failures", 0) > 0
        return failed or not found.runs or found.running_since_ms > running_since_ms or Pending("none failed")

    def _are_audited(self) -> Any:
        metrics = self.stream.flink.beam_metrics(self.stream.job.id)
        found = sum(name.startswith("audit_drift_shard_") for name in metrics)
        return found == self.stream.shards or Pending(f"audits of {found} ledgers")

    def _cut_short(self) -> None:
        """Kill a worker while a snapshot is being written, three times: it has no manifest, so it is not finished."""
        stream, folder = self.stream, self.stream.snapshots
        assert folder is not None
        for _ in range(3):
            with self._job_restarts():
                give_up_at = monotonic() + PATIENCE_SECONDS
                while not any("part-00000" in names and "manifest.json" not in names for names in _folders(folder)):
                    assert monotonic() < give_up_at, f"no snapshot was being written\n{stream.diagnostics()}"
                    threading.Event().wait(0.001)
                for pid, _name in stream.workers():
                    os.kill(pid, signal.SIGKILL)

    def _trim(self) -> None:
        """Delete what the logs hold before the oldest snapshots, while the stream runs.

        After a change of shards the logs begin with a snapshot: there is nothing to delete until newer ones replace it.
        """
        stream, folder = self.stream, self.stream.snapshots
        assert folder is not None

        def of_each_shard() -> Any:
            shards = [one for one in (folder / stream.ledger_topic).glob("*") if one.is_dir()]
            found = sum(any("manifest.json" in names for names in _folders(one)) for one in shards)
            return found == stream.shards or Pending(f"snapshots of {found} shards")

        def records_are_gone() -> Any:
            found = stream.submit("stream", "trim", *stream.where, *stream.log, "--snapshots", folder.as_uri())
            assert found.code == 0, f"{found}\n{stream.diagnostics()}"
            starts = [log.start for log in resolve(stream.connection, stream.ledger_topic)]
            return sum(starts) > 0 or Pending(f"the logs begin at {starts}")

        stream.wait_for("a snapshot of each shard", of_each_shard)
        stream.wait_for("deleted records", records_are_gone)

    def _reshard(self) -> None:
        """Go on with one more shard while events flow. The command is killed twice, at any moment, and given again."""
        stream = self.stream
        words = ("stream", "reshard", "--shards", stream.shards + 1, *stream.options)
        for seconds in (self._random.uniform(2.0, 10.0), self._random.uniform(5.0, 25.0)):
            with suppress(subprocess.TimeoutExpired):  # the command has been killed
                if stream.submit(*words, limit_seconds=seconds).code == 0:
                    break
        else:
            found = stream.submit(*words)
            assert found.code == 0, f"{found}\n{stream.diagnostics()}"
        stream.shards, stream.ledger_topic = stream.shards + 1, f"{stream.prefix}page-ledger-{stream.shards + 1}"
        stream.wait_for_checkpoint()

    # -- inside

    def _published(self) -> int:
        """Return the number of published records of importance."""
        return sum(one.end for one in resolve(self.stream.connection, f"{self.stream.prefix}importance"))

    def _brokers(self) -> list[str]:
        """Return the names of the brokers' processes."""
        return [one.name for one in self.services.status()["kafka"].processes]

    def _task_managers(self) -> list[str]:
        """Return the TaskManagers that have workers of the stream."""
        return sorted({name for _, name in self.stream.workers()})

    @contextmanager
    def _job_restarts(self) -> Iterator[None]:
        """Run the body, and wait until Flink has restarted the job from a checkpoint."""
        stream, job = self.stream, self.stream.job
        before = stream.flink.details(job.id).running_since_ms
        yield

        def restarted() -> Any:
            found = stream.flink.details(job.id)
            return (found.runs and found.running_since_ms > before) or Pending(found.job.state)

        stream.wait_for("a restart of the job", restarted)


def crawled_web(pages: int, seed: int) -> Graph:
    """Return the web whose visits a run with faults publishes."""
    return power_law_web(pages, 3 + seed % 1000, dangling=0.1)


def run_with_faults(
    stream: LocalStream, faults: Iterable[str], seed: int, pages: int = 500, per_second: float = 60.0
) -> Ledgers:
    """Cause all these faults while events flow, and check that nothing is lost or counted twice."""
    web = crawled_web(pages, seed)
    log = WebLog(web, seconds_between=None).crawl("random", 20 * pages, seed)  # without times no event is late
    stream.start()
    events_with_faults(stream, cycle(log.events), faults, seed, per_second)
    ledgers = stream.check()
    stream.wait_for_truth(ledgers, [url(number) for number in range(pages)])
    stream.cancel()
    return ledgers


def events_with_faults(
    stream: LocalStream, events: Iterator[CrawlEvent], faults: Iterable[str], seed: int, per_second: float
) -> None:
    """Publish events, without end, until all these faults have happened."""
    over = threading.Event()
    chaos = Chaos(stream, seed)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(stream.publish, takewhile(lambda _: not over.is_set(), events), per_second)
        try:
            chaos.wait_for_results()
            for fault in faults:
                chaos.cause(fault)
        finally:
            for fault, seconds in chaos.recoveries:
                print(f"{fault}: events counted again after {seconds:.1f} s")
            over.set()
    publishing.result()
