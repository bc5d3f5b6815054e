"""A Flink session cluster of one TaskManager, and Beam's job server, which takes jobs to it."""

from __future__ import annotations

from deploy.services.places import HOST, Place, connect, get_json

SLOTS = 2

# Flink's own scripts work the sizes out of one number. Its classes are started directly here, so all are said.
CONFIG = """\
jobmanager.rpc.address: {host}
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: {host}
rest.address: {host}
rest.bind-address: {host}
rest.port: {rest}
blob.server.port: "{blob}"
taskmanager.host: {host}
taskmanager.bind-host: {host}
taskmanager.rpc.port: "{tasks}"
taskmanager.data.port: {data}
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}.0
taskmanager.memory.task.heap.size: 384m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.managed.size: 192m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.resource-id: opicflow-local
parallelism.default: {slots}
state.backend.incremental: true
execution.checkpointing.dir: file://{folder}/checkpoints
io.tmp.dirs: {folder}
web.tmpdir: {folder}
web.submit.enable: false
"""

# What Flink reaches into, on Java 17 and later.
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util")
] + [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch")
]
RUNTIME = "org.apache.flink.runtime"


class Flink:
    """JobManager, TaskManager and job server."""

    name = "flink"
    title = "Flink 1.19 with Beam's job server"
    ports = ("rest", "rpc", "blob", "tasks", "data", "jobs", "artifacts", "expansion")

    def prepare(self, place: Place) -> None:
        """Write the settings of the cluster."""
        (place.folder / "conf").mkdir()
        config = CONFIG.format(host=HOST, slots=SLOTS, folder=place.folder, **place.ports)
        (place.folder / "conf" / "config.yaml").write_text(config, encoding="utf-8")

    def commands(self, place: Place) -> dict[str, list[str]]:
        """Three processes."""
        conf = ["--configDir", str(place.folder / "conf")]
        server = [
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            f"--job-host={HOST}",
            f"--job-port={place.ports['jobs']}",
            f"--artifact-port={place.ports['artifacts']}",
            f"--expansion-port={place.ports['expansion']}",
            f"--artifacts-dir={place.folder / 'artifacts'}",
            f"--flink-master={place.address('rest')}",
            f"--flink-conf-dir={place.folder / 'conf'}",
        ]
        jvm = ["-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true", *OPENS, "-cp", f"{place.jars}/*"]
        cluster = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        tasks = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
        direct = "-XX:MaxDirectMemorySize=256m"
        # The others only manage: quick to start matters more than quick to run.
        start_quickly = "-XX:TieredStopAtLevel=1"
        return {
            "flink-jobs": place.jvm([cluster, *conf], "-Xmx384m", start_quickly, *jvm),
            "flink-tasks": place.jvm([tasks, *conf], "-Xmx512m", direct, *jvm),
            "flink-beam": place.jvm(server, "-Xmx256m", start_quickly, *jvm),
        }

    def check(self, place: Place) -> None:
        """Ask the cluster for its slots, and whether the job server listens."""
        if get_json(f"http://{place.address('rest')}/overview")["slots-total"] != SLOTS:
            raise ConnectionError("the TaskManager has not registered yet")
        connect(place.ports["jobs"]).close()

    def usage(self, place: Place) -> list[str]:
        """The job server, and the page that shows what runs."""
        server = f"--runner PortableRunner --job_endpoint {place.address('jobs')} --environment_type LOOPBACK"
        return [server, f"http://{place.address('rest')}   (what runs on Flink)"]
