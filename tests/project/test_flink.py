"""Flink as the services start it: a stream outlives the crash of a TaskManager, and continues from a savepoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.services import processes
from deploy.services.flink import Flink
from deploy.services.processes import Process
from deploy.services.supervisor import Services
from opicflow.connectors.flink.rest import FlinkCluster, Job
from support.paths import TOP
from support.services import LocalCluster

PATIENCE = 240.0  # seconds: other programs use the machine too


class CountedStream:
    """The stream of counting_stream.py on a cluster."""

    def __init__(self, folder: Path, services: Services) -> None:
        self.flink, self.instance = Flink(), services.instance("flink")
        self.cluster = FlinkCluster(self.flink.rest(self.instance))
        self.numbers, self.logs = folder / "numbers", folder / "workers"
        self.numbers.mkdir()

    def submit(self, *more: str) -> Job:
        """Submit the stream, in a process that ends before this returns."""
        worker = {
            "command": str(Path(sys.executable).with_name("opicflow-worker")),
            "env": {"PYTHONPATH": str(TOP / "tests"), "OPICFLOW_WORKER_LOGS": str(self.logs)},
        }
        options = [
            "--runner=PortableRunner",
            f"--job_endpoint={self.flink.jobs(self.instance)}",
            "--streaming",
            "--job_name=counting",
            "--environment_type=PROCESS",
            f"--environment_config={json.dumps(worker)}",
            "--parallelism=2",
            "--sdk_worker_parallelism=1",
            "--checkpointing_interval=1000",
            "--max_bundle_time_mills=100",
            "--state_backend=rocksdb",
            f"--state_backend_storage_path={self.flink.checkpoints(self.instance).as_uri()}",
            "--externalized_checkpoints_enabled",
            "--retain_externalized_checkpoints_on_cancellation",
        ]
        script = [
            sys.executable,
            str(TOP / "tests" / "support" / "counting_stream.py"),
            str(self.numbers),
            *options,
            *more,
        ]
        done = subprocess.run(script, cwd=TOP, text=True, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert processes.wait_until(lambda: any(not job.ended for job in self.cluster.jobs("counting")), PATIENCE)
        return self.cluster.find("counting")

    def written(self) -> dict[str, list[tuple[int, int]]]:
        """Return the numbers and sums of each key, in the order they were written."""
        lines = {file.name: file.read_text().splitlines() for file in self.numbers.iterdir()}
        return {key: [(int(n), int(total)) for n, total in map(str.split, found)] for key, found in lines.items()}

    def is_continuing(self) -> bool:
        """Wait until every key has a new number."""
        before = {key: max(found)[0] for key, found in self.written().items()}
        return processes.wait_until(
            lambda: all(max(found)[0] > before.get(key, 0) for key, found in self.written().items()), PATIENCE
        )

    def workers_of(self, process: Process) -> list[int]:
        """Return the process ids of the workers of a TaskManager."""
        first_lines = {file: file.read_text().splitlines()[0] for file in self.logs.iterdir()}
        return [
            int(file.stem.rpartition("-")[2]) for file, line in first_lines.items() if line.endswith(f" {process.pid}")
        ]


@pytest.fixture
def counted(flink_kafka: LocalCluster, tmp_path: Path) -> Iterator[CountedStream]:
    """The counting stream, which does not run yet. Afterwards none of its jobs runs."""
    stream = CountedStream(tmp_path, flink_kafka.services)
    yield stream
    for job in stream.cluster.jobs("counting"):
        if not job.ended:
            stream.cluster.cancel(job.id)


@pytest.mark.slow
def test_a_stream_continues_after_a_crash_and_from_its_savepoint(
    counted: CountedStream, flink_kafka: LocalCluster
) -> None:
    stream, services, cluster = counted, flink_kafka.services, counted.cluster
    assert (cluster.overview().task_managers, cluster.overview().slots) == (2, 4)
    job = stream.submit()
    assert cluster.wait(job.id, lambda one: one.runs, PATIENCE) is not None
    assert processes.wait_until(lambda: cluster.checkpoints(job.id).completed > 0, PATIENCE)
    assert stream.is_continuing()
    assert processes.wait_until(lambda: cluster.beam_metrics(job.id).get("events", 0) > 0, PATIENCE)

    # One of the two TaskManagers crashes: its workers end with it, and the stream continues from a checkpoint.
    first = next(one for one in services.status()["flink"].processes if one.name == "flink-tasks-1")
    workers = stream.workers_of(first)
    assert len(workers) == 1
    before = cluster.details(job.id).running_since_ms
    services.kill("flink", "flink-tasks-1")
    assert processes.wait_until(lambda: not any(processes.birth(worker) for worker in workers), 30)
    assert services.revive("flink") == ["flink-tasks-1"]
    again = cluster.wait(job.id, lambda one: one.runs and one.running_since_ms > before, PATIENCE)
    assert again is not None and again.trouble
    assert cluster.checkpoints(job.id).restored > 0
    assert stream.is_continuing()

    # Stopped with a savepoint and submitted again, the stream continues: no number is repeated.
    savepoint = cluster.stop(job.id)
    assert Path(savepoint.removeprefix("file:")).parent == stream.flink.savepoints(stream.instance)
    at_the_stop = stream.written()
    job = stream.submit(f"--savepoint_path={savepoint}")
    assert stream.is_continuing()
    assert cluster.cancel(job.id).state == "CANCELED"
    for key, found in stream.written().items():
        assert [n for n, _ in found[len(at_the_stop[key]) :]][:1] == [max(at_the_stop[key])[0] + 1]
        assert sorted({n for n, _ in found}) == list(range(1, max(found)[0] + 1))
        assert all(total == n * (n + 1) // 2 for n, total in found)
