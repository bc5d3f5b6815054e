"""A cluster with ZooKeeper and two JobManagers: jobs outlive the crash of the one that leads, and of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from deploy.services import supervisor
from deploy.services.flink import Flink
from deploy.services.instance import HOST, Instance
from opicflow.connectors.flink.rest import FlinkCluster
from opicflow.pipelines.lab.web.webs import power_law_web
from support.local_stream import LocalStream
from support.logs import WebLog
from support.services import LocalCluster, running_cluster

ZOOKEEPER = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain"
"""The server that is among Flink's own jars."""
SETTINGS = """\
high-availability.type: zookeeper
high-availability.zookeeper.quorum: {quorum}
high-availability.zookeeper.client.session-timeout: 10000
high-availability.cluster-id: /opicflow
high-availability.storageDir: file://{folder}/jobs
high-availability.jobmanager.port: "{rpc}"
zookeeper.sasl.disable: true
"""
SETTINGS_OF_ZOOKEEPER = """\
clientPort={port}
clientPortAddress={host}
dataDir={folder}/zookeeper
tickTime=1000
admin.enableServer=false
"""
JOB_MANAGERS = {"flink-jobs": "rest", "flink-standby": "standby-rest"}
"""Each with the name of the port of its REST interface."""
STANDBY_PORTS = {
    "rest.port": "standby-rest",
    "high-availability.jobmanager.port": "standby-rpc",
    "blob.server.port": "standby-blob",
    "metrics.reporter.prometheus.port": "standby-metrics",
}


class FlinkWithStandby(Flink):
    """Flink's processes, a second JobManager, and a ZooKeeper."""

    ports = (*Flink.ports, "zookeeper", *STANDBY_PORTS.values())

    def prepare(self, instance: Instance) -> None:
        """Write the settings of the cluster and of ZooKeeper."""
        super().prepare(instance)
        folder = instance.folder
        more = SETTINGS.format(quorum=instance.address("zookeeper"), folder=folder, rpc=instance.ports["rpc"])
        with (folder / "conf" / "config.yaml").open("a", encoding="utf-8") as config:
            config.write(more)
        own = SETTINGS_OF_ZOOKEEPER.format(port=instance.ports["zookeeper"], host=HOST, folder=folder)
        (folder / "zookeeper.properties").write_text(own, encoding="utf-8")

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return six commands: ZooKeeper comes first."""
        commands = super().commands(instance)
        main = [ZOOKEEPER, str(instance.folder / "zookeeper.properties")]
        own = [part for key, port in STANDBY_PORTS.items() for part in ("-D", f"{key}={instance.ports[port]}")]
        return {
            "zookeeper": instance.jvm(main, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{instance.jars}/*"),
            **commands,
            "flink-standby": [*commands["flink-jobs"], *own],
        }


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setitem(supervisor.SERVICES, "flink", FlinkWithStandby())
    with running_cluster(tmp_path / "services") as started:
        yield started


@pytest.mark.cluster
@pytest.mark.slow
def test_a_stream_outlives_its_job_managers(cluster: LocalCluster, tmp_path: Path) -> None:
    """The one that leads is killed, and the other one takes over; then both have ended, and are started again."""
    stream = LocalStream(cluster, tmp_path, "standby-", 2)
    crawl = WebLog(power_law_web(100, 7)).crawl("random", 600)
    services, instance = cluster.services, cluster.services.instance("flink")
    stream.start()
    stream.publish(crawl.events[:200])
    leads = leader(stream)
    (waits,) = JOB_MANAGERS.keys() - {leads}

    services.kill("flink", leads)
    begun = monotonic()
    stream.flink = FlinkCluster(instance.address(JOB_MANAGERS[waits]))
    stream.publish(crawl.events[200:400])
    wait_until_it_goes_on(stream, begun)
    assert leader(stream) == waits

    services.kill("flink", waits)
    begun = monotonic()
    stream.publish(crawl.events[400:])
    services.revive("flink")
    wait_until_it_goes_on(stream, begun)
    stream.check()
    stream.cancel()


def leader(stream: LocalStream) -> str:
    """Return the name of the JobManager that takes the checkpoints."""
    line = f"Completed checkpoint {stream.wait_for_checkpoint().id} for job"
    logs = {name: (stream.cluster.services.logs / f"{name}.log").read_text(encoding="utf-8") for name in JOB_MANAGERS}
    (found,) = [name for name, log in logs.items() if line in log]
    return found


def wait_until_it_goes_on(stream: LocalStream, begun: float) -> None:
    """Wait until the job runs again from a checkpoint, and has written another one."""

    def runs() -> bool:
        job = stream.job.id
        return stream.flink.details(job).runs and bool(stream.flink.checkpoints(job).restored_path)

    stream.wait_for("the job runs again", runs)
    print(f"the job ran again {monotonic() - begun:.1f} s after the crash")
    stream.wait_for_checkpoint()
    print(f"and had a new checkpoint after {monotonic() - begun:.1f} s")
