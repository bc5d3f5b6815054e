"""A stream with topics of its own on a real cluster, operated by commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from deploy.services.processes import birth
from opicflow.connectors.flink.rest import Checkpoint, FlinkRefused, Job
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.record_reader import records
from opicflow.connectors.kafka.topics import make, specs
from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.replay.topic_input import Topic
from opicflow.pipelines.stages.ledger_keeper import request_fingerprint
from opicflow.pipelines.stages.log_settings import Placement
from opicflow.pipelines.stages.settings import LedgerOptions, new_page_ids
from opicflow.pipelines.stream.origin import reserve_logs
from opicflow.pipelines.stream.prove import Proof, prove
from opicflow.pipelines.stream.snapshot_store import Snapshots
from opicflow.schemas.crawl_events import CrawlEvent, Reject
from support.commands import CommandResult, command
from support.logs import json_line
from support.paths import TOP
from support.ranges import any_ranges
from support.services import LocalCluster
from support.waiting import PATIENCE_SECONDS, Pending, wait_for

NEARLY_EXACT = 2e-4
"""The certificate at which a stream is at rest: each shard stops pushing when its own part is below 1e-4."""
_COMMAND_SECONDS = 300.0
EVENT_PARTITIONS = 3
Floats = np.ndarray[Any, np.dtype[np.float64]]


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(kib) >> 10


@dataclass(frozen=True)
class Sums:
    """The counts of all shards, added."""

    pages: int
    visits: int
    announcements: int
    duplicates: int
    minted: int
    drift: int


class Ledgers:
    """The ledgers of a stream, rebuilt from their logs in this process and proven equal to the running ones."""

    def __init__(self, proofs: Sequence[Proof]) -> None:
        self._keepers = [proof.keeper for proof in proofs]

    def sums(self) -> Sums:
        """Add the counts of all shards, after an audit of each."""
        ledgers = [keeper.ledger for keeper in self._keepers if keeper.ledger is not None]
        balances = [ledger.audit() for ledger in ledgers]
        return Sums(
            pages=sum(ledger.pages for ledger in ledgers),
            visits=sum(ledger.visits for ledger in ledgers),
            announcements=sum(keeper.counts["announcements"] for keeper in self._keepers),
            duplicates=sum(keeper.counts["duplicates"] for keeper in self._keepers),
            minted=sum(balance.minted for balance in balances),
            drift=sum(abs(balance.drift) for balance in balances),
        )

    def settled(self) -> list[bool]:
        """Return for each shard whether its importance has settled."""
        return [keeper.ledger.is_settled for keeper in self._keepers if keeper.ledger is not None]

    def importance(self, urls: Sequence[str]) -> Floats:
        """Return the share of the page with each URL in the rates of all shards."""
        origin = self._keepers[0].origin
        assert origin is not None
        pages = origin.rules.page_ids.of_all(urls)
        rates = np.zeros(len(pages))
        owners, total = origin.ranges.of(pages), 0.0
        for shard, keeper in enumerate(self._keepers):
            if keeper.ledger is not None:
                rates[owners == shard] = keeper.ledger.estimate(pages[owners == shard]).rate
                total += keeper.ledger.rate_sum()
        return rates / total


class LocalStream:
    """A stream with topics of its own on a cluster, operated by commands."""

    def __init__(
        self,
        cluster: LocalCluster,
        folder: Path,
        prefix: str,
        shards: int,
        state_backend: str = "rocksdb",
        snapshot_mb: float = 16.0,
        history: str = "certified",
        snapshots: Path | None = None,
    ) -> None:
        """Create the topics. `history` is the history policy; `snapshots` their folder."""
        self.snapshots = snapshots
        self.state_backend, self.snapshot_mb, self.history = state_backend, snapshot_mb, history
        self.cluster, self.flink = cluster, cluster.flink
        self.prefix, self.shards, self.name = prefix, shards, f"{prefix}stream"
        self.ledger_topic = f"{prefix}page-ledger"
        self.connection = Connection(cluster.brokers)
        self.checkpoints, self.worker_logs = folder / "checkpoints", folder / "workers"
        made = make(self.connection, specs(prefix, shards, 2, EVENT_PARTITIONS))
        if self.ledger_topic in made.new:  # shards of different widths, and page ids with a key
            placement = Placement(new_page_ids(), any_ranges(shards, seed=len(prefix) * 3 + 1))
            reserve_logs(self.connection, self.ledger_topic, placement)

    # -- commands --------------------------------------------------------------------------------------------------

    @property
    def where(self) -> list[str]:
        """The options with which every command finds the topics."""
        return ["--brokers", self.cluster.brokers, "--prefix", self.prefix]

    @property
    def log(self) -> list[str]:
        """The option that names the topic of the ledgers' logs, if it is not the usual one."""
        return [] if self.ledger_topic == f"{self.prefix}page-ledger" else ["--ledger", self.ledger_topic]

    @property
    def options(self) -> list[str]:
        """The options that start the stream."""
        return [
            *self.where,
            *self.log,
            *("--flink-master", self.cluster.flink_rest),
            *("--job-server", self.cluster.job_server),
            *("--name", self.name),
            *("--checkpoints", self.checkpoints.as_uri()),
            *("--set", f"worker-logs={self.worker_logs}"),
            *("--set", "checkpoint-seconds=2"),
            *("--set", f"state-backend={self.state_backend}"),
            *("--set", f"snapshot-mb={self.snapshot_mb}"),
            *("--parallelism", "2"),
            *("--workers", "1"),
            *(("--snapshots", self.snapshots.as_uri(), "--set", "keep-snapshot-hours=0.01") if self.snapshots else ()),
            *(("--history", self.history) if self.history != "certified" else ()),
        ]

    def submit(self, *arguments: object, limit_seconds: float = _COMMAND_SECONDS) -> CommandResult:
        """Run a command that submits a job: in a process of its own, and wait until it ends. Kills it at the limit."""
        words = [sys.executable, "-m", "opicflow.pipelines.cli", *map(str, arguments)]
        done = subprocess.run(words, cwd=TOP, text=True, capture_output=True, timeout=limit_seconds)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def start(self, *more: object) -> CommandResult:
        """Start the stream, and wait for its first checkpoint."""
        result = self.submit("stream", *self.options, *more)
        assert result.code == 0, f"{result}\n{self.diagnostics()}"
        self.wait_for_checkpoint()
        return result

    @property
    def job(self) -> Job:
        return self.flink.find(self.name)

    def wait_for_checkpoint(self, after: int = 0) -> Checkpoint:
        """Wait for a checkpoint with a higher number than this, and return it."""

        def last() -> Any:
            found = self.flink.checkpoints(self.job.id).last
            return found if found and found.id > after else Pending(f"checkpoint {found and found.id}")

        return self.wait_for(f"a checkpoint after {after}", last)

    def workers(self) -> list[tuple[int, str]]:
        """Return the process ids of the running workers, each with the name of its TaskManager."""
        managers = {one.pid: one.name for one in self.cluster.services.status()["flink"].processes}
        found = []
        for log in sorted(self.worker_logs.glob("*.log")):
            pid = int(log.stem.rpartition("-")[2])
            parent = log.read_text(encoding="utf-8", errors="replace").partition("\n")[0].rpartition(" ")[2]
            if parent.isdigit() and int(parent) in managers and birth(pid) is not None:
                found.append((pid, managers[int(parent)]))
        assert found, "no worker runs"
        return found

    def cancel(self) -> None:
        """End the job without a savepoint. Its checkpoints stay."""
        for job in self.flink.jobs(self.name):
            self.flink.cancel(job.id)

    # -- events ----------------------------------------------------------------------------------------------------

    def publish(self, events: Iterable[CrawlEvent], per_second: float | None = None) -> None:
        """Send events, those of a page in their order; `per_second` limits the rate."""
        begun = monotonic()
        with Publisher(self.connection) as publisher:
            for number, event in enumerate(events):
                if per_second is not None and number % 10 == 0:
                    threading.Event().wait(max(begun + number / per_second - monotonic(), 0.0))
                partition = partition_of(event.url, EVENT_PARTITIONS)
                publisher.send(f"{self.prefix}crawl-events", None, json_line(event), partition)

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Send these values unchanged."""
        with Publisher(self.connection) as publisher:
            for value in values:
                publisher.send(self.prefix + topic, b"key" if value is None else None, value, partition)

    @property
    def published(self) -> int:
        """The number of records in crawl-events. After a crash of the broker some may be duplicates."""
        return sum(one.end for one in resolve(self.connection, f"{self.prefix}crawl-events"))

    def rejects(self) -> list[Reject]:
        """Return the rejects, each once: a repeated one has the same key."""
        return list({one.key: one.record for one in records(self.connection, "rejects", prefix=self.prefix)}.values())

    def rejected_events(self) -> list[Reject]:
        """Return the rejects of crawl-events."""
        return [one for one in self.rejects() if one.source.startswith(f"{self.prefix}crawl-events/")]

    def drain(self, limit_seconds: float = PATIENCE_SECONDS, most_under_way: int = UNITS_PER_PAGE) -> dict[str, Any]:
        """Wait until all events are counted and less cash than that of one page is in transit, twice in a row.

        The remainders of dividends circulate without end, at every tick. Certified importance must be nearly exact.
        Returns the summary of a replay of the same events, which has the number of events.
        """
        expected = self.replay()
        before: list[Any] = []

        def at_rest() -> Any:
            self.request_audits()
            found = self.audit()
            state = [found.get(name) for name in ("verdict", "visits", "pages", "minted")]
            seen, before[:] = list(before), state
            if state == seen and state[0] == "balanced" and state[1] >= expected["visits"]:
                if self.history == "certified" and found["certificate"] > NEARLY_EXACT:
                    return Pending(f"certificate {found['certificate']}")
                return found["under_way"] < most_under_way or Pending(f"{found['under_way']:,} units in transit")
            return Pending(f"{state}, before it {seen}, of {expected['visits']:,} visits")

        self.wait_for("all events are counted and all cash has arrived", at_rest, limit_seconds)
        return expected

    def audit(self) -> dict[str, Any]:
        """Return the output of `opicflow audit`, which never finds a fault."""
        result = command("audit", *self.where, "--json", "--max-age", "any")
        assert result.code in (0, 3) or not result.out, f"{result}\n{self.diagnostics()}"
        found = json.loads(result.out) if result.out else {"verdict": result.err}
        assert not found.get("faults"), found
        return dict(found)

    def request_audits(self) -> None:
        """Request an audit record from every ledger, at once."""
        with Publisher(self.connection) as publisher:
            for shard in range(self.shards):
                publisher.send(self.ledger_topic, None, request_fingerprint(), shard)

    def prove(self) -> Ledgers:
        """Rebuild all ledgers from the start of their logs: the running ones equal them, byte for byte."""
        snapshots = Snapshots(StorageFolder.of(str(self.snapshots))) if self.snapshots else None
        proofs = prove(
            self.connection, self.prefix, self.ledger_topic, limit_seconds=PATIENCE_SECONDS, snapshots=snapshots
        )
        wrong = [proof.shard for proof in proofs if not proof.is_same]
        assert len(proofs) == self.shards and not wrong, (
            f"ledgers that differ from their logs: {wrong}\n{self.diagnostics()}"
        )
        return Ledgers(proofs)

    def check(self) -> Ledgers:
        """Drain: then nothing is lost, nothing is counted twice, and the ledgers equal their logs."""
        expected = self.drain()
        ledgers = self.prove()
        sums, rejects = ledgers.sums(), self.rejected_events()
        counted = {"visits": sums.visits, "rejects": len(rejects)}
        if self.snapshots is None:  # else the logs may begin later, with a snapshot
            counted |= {"announcements": sums.announcements, "duplicates": sums.duplicates}
        assert counted == {name: expected[name] for name in counted}, expected
        assert sum(expected[name] for name in ("visits", "announcements", "duplicates", "rejects")) == self.published
        assert (sums.pages, sums.minted) == (expected["pages"], expected["pages"] * UNITS_PER_PAGE)
        assert sums.drift == 0
        return ledgers

    def published_importance(self, urls: Sequence[str]) -> Floats:
        """Return the importance in the newest record of the page with each URL, by key; NaN without a record."""
        newest = {one.key: one.record for one in records(self.connection, "importance", prefix=self.prefix)}
        found = (newest.get(one.encode()) for one in urls)
        return np.array([np.nan if record is None else record.importance for record in found])

    def wait_for_truth(self, ledgers: Ledgers, urls: Sequence[str]) -> None:
        """Wait until the newest record of every page is within a hundredth of the ledgers.

        That takes a minute at rest; the stream may have to catch up with its ticks before.
        """
        importance = ledgers.importance(urls)

        def is_true() -> Any:
            published = self.published_importance(urls)
            is_off = (importance > 0) & ~(np.abs(published - importance) <= 0.0102 * published)
            some = ", ".join(f"{urls[row]}: {published[row]:.4g}" for row in np.flatnonzero(is_off)[:3])
            return Pending(f"{is_off.sum()} of {len(urls)} records are off: {some}") if is_off.any() else True

        self.wait_for("every newest record is true", is_true)

    def replay(self, out: Path | None = None) -> dict[str, Any]:
        """Replay the same events into one ledger, in this process; return the summary."""
        with replayed(
            ReplayRequest(
                topic=Topic(self.connection, f"{self.prefix}crawl-events"),
                out=out,
                counting=LedgerOptions(history=self.history),
            ),
            _ignore,
        ) as result:
            return dict(result.summary)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_for(self, what: str, done: Callable[[], Any], limit_seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait as `wait_for` does; the broker and the cluster may be down for a while."""

        def attempt() -> Any:
            try:
                return done()
            except (KafkaRefused, FlinkRefused) as problem:
                return Pending(str(problem))

        try:
            return wait_for(what, attempt, limit_seconds)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.diagnostics()}") from None

    def diagnostics(self, lines: int = 25) -> str:
        """Return the problems that Flink reports and the ends of the workers' logs."""
        found = []
        try:
            jobs = [self.flink.details(job.id) for job in self.flink.jobs(self.name)]
            found = [f"job {job.job.id} {job.job.state}: {one.cause}" for job in jobs for one in job.trouble]
        except FlinkRefused as problem:
            found = [str(problem)]
        logs = sorted(self.worker_logs.glob("*.log"), key=lambda one: one.stat().st_mtime_ns)[-4:]
        for log in logs:
            text = log.read_text(encoding="utf-8", errors="replace").splitlines()
            end = [line for line in text if not line.startswith("INFO:")][-lines:]
            found += [f"-- the end of {log.name}", *(line[:300] for line in end)]
        return "\n".join(found)


def _ignore(progress: Any) -> None:
    pass
