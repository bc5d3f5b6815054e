"""A stream on a real cluster, as somebody runs it by its commands, and what can happen to it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from deploy.services.flink import TASK_MANAGERS
from deploy.services.processes import birth
from opicflow.connectors.flink.rest import Checkpoint, FlinkRefused, Job
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.record_reader import records
from opicflow.connectors.kafka.source import read_range
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.pipelines.replay.inputs import Topic
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.stream.keeper import ask_fingerprint
from opicflow.pipelines.stream.prove import Proof, prove
from opicflow.schemas.arrays import Ids
from opicflow.schemas.crawl_events import CrawlEvent, Reject
from opicflow.schemas.pages import page_id, shard_of
from support.commands import CommandResult, command
from support.logs import json_line
from support.paths import TOP
from support.services import LocalCluster

PATIENCE_SECONDS = 420.0
"""The cluster shares the machine with whatever else runs. And where a worker is killed before it has its data channel,
Beam waits three minutes for it before Flink starts the job again."""
_COMMAND_SECONDS = 300.0
_PARTITIONS = 3
Floats = np.ndarray[Any, np.dtype[np.float64]]


def wait_for(what: str, done: Callable[[], Any], limit_seconds: float = PATIENCE_SECONDS) -> Any:
    """What `done` gives once it is true. `AssertionError` says what was waited for, and how that stood at last."""
    give_up_at = monotonic() + limit_seconds
    while True:
        last = done()
        if last and not isinstance(last, Not):
            return last
        if monotonic() > give_up_at:
            raise AssertionError(f"{what}: not in {limit_seconds:.0f} s; at last: {last}")
        threading.Event().wait(0.1)


def resident_mib(pid: int) -> int:
    """The memory that a process has now."""
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(kib) >> 10


@dataclass(frozen=True)
class Not:
    """Why something is not so yet."""

    why: str


@dataclass(frozen=True)
class Sums:
    """What ledgers count, all shards together."""

    pages: int
    visits: int
    announcements: int
    duplicates: int
    minted: int
    drift: int


class Ledgers:
    """The ledgers of a stream as one process made them of their logs, which the running ones have proven to be."""

    def __init__(self, proofs: Sequence[Proof]) -> None:
        self._keepers = [proof.keeper for proof in proofs]

    def sums(self) -> Sums:
        """All shards together; each is audited."""
        ledgers = [keeper.ledger for keeper in self._keepers if keeper.ledger is not None]
        books = [ledger.audit() for ledger in ledgers]
        return Sums(
            pages=sum(ledger.pages for ledger in ledgers),
            visits=sum(ledger.visits for ledger in ledgers),
            announcements=sum(keeper.counts["announcements"] for keeper in self._keepers),
            duplicates=sum(keeper.counts["duplicates"] for keeper in self._keepers),
            minted=sum(book.minted for book in books),
            drift=sum(abs(book.drift) for book in books),
        )

    def importance(self, pages: Ids) -> Floats:
        """Importance straight from the rates of all shards at this moment."""
        rates = np.zeros(len(pages))
        owners, total = shard_of(pages, len(self._keepers)), 0.0
        for shard, keeper in enumerate(self._keepers):
            if keeper.ledger is not None:
                rates[owners == shard] = keeper.ledger.estimate(pages[owners == shard]).rate
                total += keeper.ledger.rate_sum()
        return rates / total


class LocalStream:
    """A stream with topics of its own on a cluster, run by its commands."""

    def __init__(
        self,
        cluster: LocalCluster,
        folder: Path,
        prefix: str,
        shards: int,
        state_backend: str = "rocksdb",
        snapshot_mb: float = 16.0,
    ) -> None:
        """Make the topics."""
        self.state_backend, self.snapshot_mb = state_backend, snapshot_mb
        self.cluster, self.flink = cluster, cluster.flink
        self.prefix, self.shards, self.name = prefix, shards, f"{prefix}stream"
        self.ledger_topic = f"{prefix}page-ledger"
        self.connection = Connection(cluster.brokers)
        self.checkpoints, self.worker_logs = folder / "checkpoints", folder / "workers"
        make(self.connection, specs(prefix, shards, 2, _PARTITIONS))

    # -- commands --------------------------------------------------------------------------------------------------

    @property
    def where(self) -> list[str]:
        """What every command needs to find Kafka."""
        return ["--brokers", self.cluster.brokers, "--prefix", self.prefix]

    @property
    def options(self) -> list[str]:
        """What a stream is started with."""
        return [
            *self.where,
            *("--flink-master", self.cluster.flink_rest),
            *("--job-server", self.cluster.job_server),
            *("--name", self.name),
            *("--checkpoints", self.checkpoints.as_uri()),
            *("--worker-logs", str(self.worker_logs)),
            *("--checkpoint-seconds", "2"),
            *("--state-backend", self.state_backend),
            *("--snapshot-mb", str(self.snapshot_mb)),
            *("--parallelism", "2"),
            *("--workers", "1"),
        ]

    def said(self, *arguments: object) -> CommandResult:
        """Run a command as somebody does, and wait until it ends."""
        command = [sys.executable, "-m", "opicflow.pipelines.cli.main", *map(str, arguments)]
        done = subprocess.run(command, cwd=TOP, text=True, capture_output=True, timeout=_COMMAND_SECONDS)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def start(self, *more: object) -> CommandResult:
        """Start the stream. When this returns it runs, and has completed a checkpoint."""
        said = self.said("stream", *self.options, *more)
        assert said.code == 0, f"{said}\n{self.tails()}"
        self.has_checkpoint()
        return said

    @property
    def job(self) -> Job:
        return self.flink.find(self.name)

    def has_checkpoint(self, after: int = 0) -> Checkpoint:
        """The last checkpoint, once there is one with a higher number than this."""

        def last() -> Any:
            found = self.flink.checkpoints(self.job.id).last
            return found if found and found.id > after else Not(f"checkpoint {found and found.id}")

        return self._asked(f"a checkpoint after {after}", last)

    def workers(self) -> list[tuple[int, str]]:
        """The pids of living workers, and which TaskManager each works for."""
        managers = {one.pid: one.name for one in self.cluster.services.status()["flink"].processes}
        found = []
        for log in sorted(self.worker_logs.glob("*.log")):
            pid = int(log.stem.rpartition("-")[2])
            parent = log.read_text(encoding="utf-8", errors="replace").partition("\n")[0].rpartition(" ")[2]
            if parent.isdigit() and int(parent) in managers and birth(pid) is not None:
                found.append((pid, managers[int(parent)]))
        assert found, "no worker lives"
        return found

    def cancel(self) -> None:
        """End the job as if it had never been told to: no savepoint. Its checkpoints stay."""
        for job in self.flink.jobs(self.name):
            self.flink.cancel(job.id)

    # -- events ----------------------------------------------------------------------------------------------------

    def publish(self, events: Iterable[CrawlEvent], per_second: float | None = None) -> None:
        """Send events, those of a page in their order, at this pace."""
        begun = monotonic()
        with Publisher(self.connection) as publisher:
            for number, event in enumerate(events):
                if per_second is not None and number % 10 == 0:
                    threading.Event().wait(max(begun + number / per_second - monotonic(), 0.0))
                partition = partition_of(page_id(event.url.encode()), _PARTITIONS)
                publisher.send(f"{self.prefix}crawl-events", None, json_line(event), partition)

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Send values as they are."""
        with Publisher(self.connection) as publisher:
            for value in values:
                publisher.send(self.prefix + topic, b"key" if value is None else None, value, partition)

    @property
    def published(self) -> int:
        """How many records crawl-events hold: a broker's crash may have made some of them twice."""
        return sum(one.end for one in resolve(self.connection, f"{self.prefix}crawl-events"))

    def rejects(self) -> list[Reject]:
        """What was rejected, each once: one that came twice is the same record under the same key."""
        return list({one.key: one.record for one in records(self.connection, "rejects", prefix=self.prefix)}.values())

    def rejected_events(self) -> list[Reject]:
        """Of these the ones of crawl-events."""
        return [one for one in self.rejects() if one.source.startswith(f"{self.prefix}crawl-events/")]

    def drain(self, limit_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until all events are counted, and all cash but the cents has arrived, twice in a row.

        What dividends leave over goes round for ever, at every tick: less than the cash of one page. How many events
        there are is counted by one ledger in this process, without a cluster: what is returned.
        """
        expected = self.undisturbed()
        before: list[Any] = []

        def at_rest() -> Any:
            self.ask()
            books = self.books()
            state = [books.get(name) for name in ("verdict", "visits", "pages", "minted")]
            seen, before[:] = list(before), state
            if state == seen and state[0] == "balanced" and state[1] >= expected["visits"]:
                return books["under_way"] < UNITS_PER_PAGE or Not(f"{books['under_way']:,} units under way")
            return Not(f"{state}, before that {seen}, of {expected['visits']:,} visits")

        self._asked("all is counted and at rest", at_rest, limit_seconds)
        return expected

    def books(self) -> dict[str, Any]:
        """What `opicflow audit` says. It never finds anything wrong."""
        said = command("audit", *self.where, "--json")
        assert said.code in (0, 3) or not said.out, f"{said}\n{self.tails()}"
        found = json.loads(said.out) if said.out else {"verdict": said.err}
        assert not found.get("faults"), found
        return dict(found)

    def ask(self) -> None:
        """Ask all ledgers to tell their books now."""
        with Publisher(self.connection) as publisher:
            for shard in range(self.shards):
                publisher.send(self.ledger_topic, None, ask_fingerprint(), shard)

    def prove(self) -> Ledgers:
        """The running ledgers are, byte for byte, what one process makes of their logs from the start: those."""
        proofs = prove(self.connection, self.prefix, self.ledger_topic, limit_seconds=PATIENCE_SECONDS)
        wrong = [proof.shard for proof in proofs if not proof.is_same]
        assert len(proofs) == self.shards and not wrong, f"other ledgers than their logs say: {wrong}\n{self.tails()}"
        return Ledgers(proofs)

    def check(self) -> Ledgers:
        """Drained, nothing is lost, nothing counted twice, and the ledgers are what their logs say."""
        expected = self.drain()
        ledgers = self.prove()
        sums, rejects = ledgers.sums(), self.rejected_events()
        counted = (sums.visits, sums.announcements, sums.duplicates, len(rejects))
        assert counted == tuple(expected[name] for name in ("visits", "announcements", "duplicates", "rejects"))
        assert sum(counted) == self.published
        assert (sums.pages, sums.minted) == (expected["pages"], expected["pages"] * UNITS_PER_PAGE)
        assert sums.drift == 0
        return ledgers

    def undisturbed(self, out: Path | None = None) -> dict[str, Any]:
        """What one ledger, in this process and without a cluster, counts of the same events: a replay's summary."""
        with replayed(
            ReplayRequest(topic=Topic(self.connection, f"{self.prefix}crawl-events"), out=out), _ignore
        ) as result:
            return dict(result.summary)

    # -- when something is wrong -----------------------------------------------------------------------------------

    def _asked(self, what: str, done: Callable[[], Any], limit_seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait, while brokers and the cluster may be away for a while."""

        def asked() -> Any:
            try:
                return done()
            except (KafkaRefused, FlinkRefused) as problem:
                return Not(str(problem))

        try:
            return wait_for(what, asked, limit_seconds)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.tails()}") from None

    def tails(self, lines: int = 25) -> str:
        """The end of the workers' logs, and what Flink has to say."""
        told = []
        try:
            jobs = [self.flink.details(job.id) for job in self.flink.jobs(self.name)]
            told = [f"job {job.job.id} {job.job.state}: {line}" for job in jobs for line in job.trouble]
        except FlinkRefused as problem:
            told = [str(problem)]
        logs = sorted(self.worker_logs.glob("*.log"), key=lambda one: one.stat().st_mtime_ns)[-4:]
        for log in logs:
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()
            end = [line for line in said if not line.startswith("INFO:")][-lines:]
            told += [f"-- the end of {log.name}", *(line[:300] for line in end)]
        return "\n".join(told)


def _ignore(progress: Any) -> None:
    pass


# -- what can happen ---------------------------------------------------------------------------------------------------


class Chaos:
    """What happens to a stream while events flow. Each kind says what it does and what it makes sure of."""

    def __init__(self, stream: LocalStream, seed: int) -> None:
        self.stream, self.services = stream, stream.cluster.services
        self._random = random.Random(seed)
        self.recoveries: list[tuple[str, float]] = []
        """What happened, and how many seconds it took until importance of new visits came again."""

    def events_flow(self, after: str = "the start") -> None:
        """Wait until importance of new visits comes."""
        before = self._published()
        self.stream._asked(
            f"importance after {after}", lambda: self._published() > before or Not(f"still {before:,} records")
        )

    def happens(self, kind: str) -> None:
        """Let it happen, and wait until events are counted again."""
        begun = monotonic()
        getattr(self, f"_{kind}")()
        self.events_flow(kind)
        self.recoveries.append((kind, monotonic() - begun))

    def _worker(self) -> None:
        """A Python worker is killed. The job is started again from its last checkpoint."""
        with self._restarts():
            os.kill(self._random.choice(self.stream.workers())[0], signal.SIGKILL)

    def _tasks(self) -> None:
        """A TaskManager is killed, and its workers end with it. The job goes on once there are slots."""
        with self._restarts():
            name = self._random.choice(self._task_managers())
            self.services.kill("flink", name)
            self.services.revive("flink", name)

    def _broker(self) -> None:
        """The broker is killed and comes back. Whether the job is started again for it is all the same."""
        self.services.kill("kafka")
        self.services.restart("kafka")

    def _zombie(self) -> None:
        """A TaskManager and its worker stand still until the cluster has given them up, then go on as if nothing was.

        The worker goes on first: it sends what it had in hand, while another does the same work again.
        """
        pid, name = self._random.choice(self.stream.workers())
        with self._restarts():
            self.services.pause("flink", name)
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        threading.Event().wait(1.0)
        self.services.resume("flink", name)

    def _cluster(self) -> None:
        """All of Flink but the job server is killed: the job is gone, and submitted again from the last checkpoint."""
        for name in ("flink-jobs", *TASK_MANAGERS):
            self.services.kill("flink", name)
        self.services.revive("flink")
        self.stream.start("--from-savepoint", "latest")

    def _old_checkpoint(self) -> None:
        """The stream goes on from a checkpoint that is older than transfers which it has sent since."""
        stream = self.stream
        old = stream.has_checkpoint()
        newer = stream.has_checkpoint(after=old.id)
        job = stream.job
        stream.cancel()
        kept = stream.flink.checkpoints(job.id).retained
        oldest = kept[-1]
        assert oldest.id < kept[0].id and newer.id <= kept[0].id
        stream.start("--from-savepoint", oldest.path)

    def _delivered_twice(self) -> None:
        """Old entries of all logs come once more: copies, in their order, of a stretch of each."""
        stream, copies = self.stream, 0
        with Publisher(stream.connection) as publisher:
            for log in resolve(stream.connection, stream.ledger_topic):
                first = self._random.randrange(max(log.end - 200, 1))
                old = replace(log, start=first, end=min(first + 200, log.end))
                for batch in read_range(old):
                    messages = batch.messages
                    for row in range(len(messages)):
                        publisher.send(stream.ledger_topic, None, messages.value(row), log.partition)
                    copies += len(messages)
        assert copies > 10 * stream.shards

    # -- inside

    def _published(self) -> int:
        """How many records of importance there are."""
        return sum(one.end for one in resolve(self.stream.connection, f"{self.stream.prefix}importance"))

    def _task_managers(self) -> list[str]:
        """Those that have workers of the stream."""
        return sorted({name for _, name in self.stream.workers()})

    @contextmanager
    def _restarts(self) -> Iterator[None]:
        """What happens within makes Flink start the job again from a checkpoint."""
        stream, job = self.stream, self.stream.job
        before = stream.flink.details(job.id).running_since_ms
        yield

        def again() -> Any:
            found = stream.flink.details(job.id)
            return (found.runs and found.running_since_ms > before) or Not(found.job.state)

        stream._asked("the job was started again", again)
