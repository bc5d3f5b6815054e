"""Streams as an earlier version left them, in an archive of tests/golden: savepoints, snapshots and the broker's data.

The topics are in the archive as the broker stored them, because states name the ids of topics, which cannot be chosen.
Two streams stopped with a savepoint, when some events were counted and before others were published: one with
snapshots of its ledgers in Flink's state, one with snapshots in storage, before which its logs were deleted.

PYTHONPATH=tests:. .venv/bin/python -m support.stored_stream    makes the archive of the version that runs
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from deploy.services import processes
from opicflow.connectors.flink.worker_environment import worker_command
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.polls import wall_seconds
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.stream.log_settings import Placement
from opicflow.pipelines.stream.origin import reserve_logs
from opicflow.pipelines.web.webs import power_law_web
from opicflow.schemas.crawl_events import CrawlEvent
from opicflow.schemas.pages import PageIds
from opicflow.schemas.public_suffixes import PublicSuffixes
from opicflow.schemas.shards import ShardRanges
from support.commands import command, output_of
from support.local_stream import EVENT_PARTITIONS, LocalStream
from support.logs import WebLog, url
from support.paths import TOP
from support.services import LocalCluster, LocalKafka, running, running_cluster
from support.waiting import Pending

GOLDEN = TOP / "tests" / "golden"
ARCHIVES = sorted(GOLDEN.glob("stream-*.tar.xz"))
"""One for each version that was released since streams can be upgraded."""

HISTORIES = {"state": "interpolation", "storage": "certified"}
"""The streams, by where the snapshots of their ledgers are, and their history policies."""
_SHARDS = 2
_PAGE_IDS = PageIds(key=bytes(range(16)), suffixes=PublicSuffixes("none", b"com\nexample\nnet\norg"))
"""The real list of suffixes would be most of the archive."""
_SNAPSHOT_MB = 0.004
_PAGES, _COUNTED, _WAITING, _NEW = 60, 300, 60, 60
_NOT_STORED = (".index", ".timeindex", ".txnindex", ".snapshot", ".lock", ".kafka_cleanshutdown")
"""Ends of names of files that a broker makes again from its logs; some are large and empty."""
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class ArchivedEvents:
    """Events that the earlier version counted, those that waited when it stopped, and new ones."""

    counted: list[CrawlEvent]
    waiting: list[CrawlEvent]
    new: list[CrawlEvent]

    @classmethod
    def of_crawl(cls) -> ArchivedEvents:
        """Return the events of a small crawl, without times: none comes too late."""
        web = power_law_web(_PAGES, 4)
        events = WebLog(web, seconds_between=None).crawl("random", _COUNTED + _WAITING + _NEW - _PAGES).events
        until = _COUNTED + _WAITING
        return cls(events[:_COUNTED], events[_COUNTED:until], events[until:])


def stream_of(cluster: LocalCluster, folder: Path, name: str) -> LocalStream:
    """Return the stream of this name, in a folder in which its snapshots are or will be."""
    return LocalStream(
        cluster,
        folder / name,
        f"{name}-",
        _SHARDS,
        snapshot_mb=_SNAPSHOT_MB,
        history=HISTORIES[name],
        snapshots=folder / "snapshots" if name == "storage" else None,
    )


# -- an archive is read


@dataclass(frozen=True)
class ClusterWithBroker(LocalCluster):
    """A Flink cluster with a broker that is not its own."""

    broker: LocalKafka

    @property
    def brokers(self) -> str:
        """The address of the other broker."""
        return self.broker.brokers


@contextmanager
def unpacked(archive: Path, folder: Path, flink: LocalCluster) -> Iterator[LocalCluster]:
    """Unpack an archive, and run a broker with its data, beside a Flink cluster."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    assert wall_seconds() > about["made_at"], "the clock of this machine is before the time of the archive: set it"
    with running(folder / "services", "kafka") as broker:
        broker.kill()
        data = broker.services.instance("kafka").folder / "data"
        shutil.rmtree(data)
        (folder / "broker").rename(data)
        broker.restart()
        yield ClusterWithBroker(flink.services, broker)


def contents(archive: Path, folder: str) -> dict[str, bytes]:
    """Return the files in a folder of an archive, by their names there; a folder ends with `/`."""
    with tarfile.open(archive) as packed:
        files = [file for file in packed if file.isfile() and file.name.startswith(folder)]
        return {file.name.removeprefix(folder): packed.extractfile(file).read() for file in files}  # type: ignore[union-attr]


# -- an archive is made


def main() -> None:
    """Run both streams, stop them, and write the archive of this version."""
    archive = GOLDEN / f"stream-{'.'.join(version('opicflow').split('.')[:2])}.tar.xz"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "opicflow-worker").symlink_to(worker_command())
        with running_cluster(folder / "services") as cluster:
            for name in HISTORIES:
                _run(cluster, folder, name)
            broker = cluster.services.status()["kafka"].processes
            processes.end(broker, _STOP_SECONDS)
            (folder / "about.json").write_text(json.dumps(_about_this()) + "\n", encoding="utf-8")
            with tarfile.open(archive, "w:xz") as packed:
                packed.add(cluster.services.instance("kafka").folder / "data", "broker", filter=_stored)
                for name in ("savepoints", "snapshots", "about.json"):
                    packed.add(folder / name, name, filter=_stored)
    print(f"{archive.relative_to(TOP)}: {archive.stat().st_size:,} bytes")


def _run(cluster: LocalCluster, folder: Path, name: str) -> None:
    """Run a stream until it is stopped, with events that are not read yet."""
    events = ArchivedEvents.of_crawl()
    connection = Connection(cluster.brokers)
    make(connection, specs(f"{name}-", _SHARDS, 2, EVENT_PARTITIONS))
    reserve_logs(connection, f"{name}-page-ledger", Placement(_PAGE_IDS, ShardRanges.equal(_SHARDS)))
    stream = stream_of(cluster, folder, name)
    stream.start("--worker-command", folder / "opicflow-worker")  # a savepoint has the options of its job
    output_of("publish", "policy", *stream.where, "--url", url(1), "--every", "6h")
    stream.publish(events.counted)
    stream.check()
    stream.wait_for("a snapshot", lambda: stream.flink.beam_metrics(stream.job.id).get("snapshots", 0) >= _SHARDS)
    if stream.snapshots:
        stream.wait_for("the logs are trimmed", lambda: _trimmed(stream))
    savepoint = Path(stream.flink.stop(stream.job.id, (folder / "stopped").as_uri()).removeprefix("file:"))
    (folder / "savepoints").mkdir(exist_ok=True)
    savepoint.rename(folder / "savepoints" / name)
    output_of("publish", "policy", *stream.where, "--url", url(2), "--every", "12h")
    stream.publish(events.waiting)


def _trimmed(stream: LocalStream) -> bool | Pending:
    """Delete what the logs hold before the oldest snapshots; whether that was something, in each log."""
    result = command(
        "stream", "trim", "--brokers", stream.cluster.brokers, *stream.where[2:], "--snapshots", str(stream.snapshots)
    )
    starts = [log.start for log in resolve(stream.connection, stream.ledger_topic)]
    return all(starts) or Pending(f"{starts}: {result}")


def _stored(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what a broker makes again, and what names the user."""
    if file.name.endswith(_NOT_STORED):
        return None
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file


def _about_this() -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=TOP, text=True, capture_output=True, check=True).stdout
    return {"version": version("opicflow"), "commit": commit.strip(), "made_at": wall_seconds()}


if __name__ == "__main__":
    main()
