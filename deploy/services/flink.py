"""A Flink session cluster of two TaskManagers, and Beam's job server, which takes jobs to it."""

from __future__ import annotations

from pathlib import Path

from deploy.services.places import HOST, Place, connect, get_json

TASK_MANAGERS = ("flink-tasks-1", "flink-tasks-2")
SLOTS_EACH = 2
SLOTS = SLOTS_EACH * len(TASK_MANAGERS)

# Flink's own scripts work the sizes out of one number. Its classes are started directly here, so all are said.
# It notices and restarts quickly, and for ever: what is killed here is killed by a test, and comes back.
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
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}.0
taskmanager.memory.task.heap.size: 512m
taskmanager.memory.task.off-heap.size: 128m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.network.min: 96m
taskmanager.memory.network.max: 96m
taskmanager.memory.managed.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
taskmanager.memory.jvm-metaspace.size: 256m
parallelism.default: {all_slots}
cluster.evenly-spread-out-slots: true
classloader.resolve-order: parent-first
heartbeat.interval: 2000
heartbeat.timeout: 10000
restart-strategy.type: exponential-delay
restart-strategy.exponential-delay.initial-backoff: 1 s
restart-strategy.exponential-delay.max-backoff: 10 s
restart-strategy.exponential-delay.backoff-multiplier: 2.0
restart-strategy.exponential-delay.reset-backoff-threshold: 1 min
restart-strategy.exponential-delay.jitter-factor: 0.1
execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
state.backend.incremental: true
state.checkpoints.dir: file://{folder}/checkpoints
state.savepoints.dir: file://{folder}/savepoints
state.checkpoints.num-retained: 2
metrics.fetcher.update-interval: 1000
io.tmp.dirs: {folder}
web.tmpdir: {folder}
web.refresh-interval: 1000
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
JOB_SERVER = Path(__file__).with_name("JobServer.java")
RUNTIME = "org.apache.flink.runtime"


class Flink:
    """JobManager, two TaskManagers and job server."""

    name = "flink"
    title = "Flink 1.19 with Beam's job server"
    ports = (
        "rest",
        "rpc",
        "blob",
        "jobs",
        "artifacts",
        "expansion",
        *(f"{name}-{kind}" for name in TASK_MANAGERS for kind in ("rpc", "data")),
    )
    usual_ports = (("rest", 8081), ("jobs", 8099))

    def prepare(self, place: Place) -> None:
        """Write the settings of the cluster."""
        for folder in ("conf", "checkpoints", "savepoints", *TASK_MANAGERS):
            (place.folder / folder).mkdir()
        ports = {name: place.ports[name] for name in ("rest", "rpc", "blob")}
        config = CONFIG.format(host=HOST, slots=SLOTS_EACH, all_slots=SLOTS, folder=place.folder, **ports)
        (place.folder / "conf" / "config.yaml").write_text(config, encoding="utf-8")

    def commands(self, place: Place) -> dict[str, list[str]]:
        """Four processes."""
        conf = ["--configDir", str(place.folder / "conf")]
        server = [
            job_server_class(place),
            f"--job-host={HOST}",
            f"--job-port={place.ports['jobs']}",
            f"--artifact-port={place.ports['artifacts']}",
            f"--expansion-port={place.ports['expansion']}",
            f"--artifacts-dir={place.folder / 'artifacts'}",
            f"--flink-master={self.rest(place)}",
            f"--flink-conf-dir={place.folder / 'conf'}",
        ]
        jvm = ["-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true", *OPENS, "-cp", f"{place.jars}/*"]
        cluster = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        tasks = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
        direct = "-XX:MaxDirectMemorySize=288m"
        # The others only manage: quick to start matters more than quick to run.
        start_quickly = "-XX:TieredStopAtLevel=1"
        return {
            "flink-jobs": place.jvm([cluster, *conf], "-Xmx512m", start_quickly, *jvm),
            **{
                name: place.jvm([tasks, *conf, *_its_own(name, place)], "-Xmx640m", direct, *jvm)
                for name in TASK_MANAGERS
            },
            "flink-beam": place.jvm(server, "-Xmx384m", start_quickly, *jvm),
        }

    def check(self, place: Place) -> None:
        """Ask the cluster for its slots, and whether the TaskManagers and the job server listen."""
        if get_json(f"http://{self.rest(place)}/overview")["slots-total"] != SLOTS:
            raise ConnectionError("not all TaskManagers have registered yet")
        for port in ("jobs", *(f"{name}-{kind}" for name in TASK_MANAGERS for kind in ("rpc", "data"))):
            connect(place.ports[port]).close()

    def usage(self, place: Place) -> list[str]:
        """What a stream needs, and the page that shows what runs."""
        stream = f"--flink-master {self.rest(place)} --job-server {self.jobs(place)}"
        return [f"--runner FlinkRunner {stream}", f"http://{self.rest(place)}   (what runs on Flink)"]

    def rest(self, place: Place) -> str:
        """Where Flink's REST interface is, and its web page: host and port."""
        return place.address("rest")

    def jobs(self, place: Place) -> str:
        """Where Beam's job server takes jobs: host and port."""
        return place.address("jobs")

    def checkpoints(self, place: Place) -> Path:
        """The folder of the checkpoints, one folder below it for each job."""
        return place.folder / "checkpoints"

    def savepoints(self, place: Place) -> Path:
        """The folder of the savepoints."""
        return place.folder / "savepoints"


def job_server_class(place: Place) -> str:
    """What Java runs as the job server: the small program beside this file, where Java can compile it.

    Beam's own sends 190 MB of jars to the cluster with each job, which takes half a minute and which the cluster has.
    """
    compiler = Path(place.java).resolve().with_name("javac")
    return str(JOB_SERVER) if compiler.exists() else "org.apache.beam.runners.flink.FlinkJobServerDriver"


def _its_own(name: str, place: Place) -> list[str]:
    """What one TaskManager has for itself: the cluster knows it by its name when it comes back."""
    own = {
        "taskmanager.resource-id": name,
        "taskmanager.rpc.port": place.ports[f"{name}-rpc"],
        "taskmanager.data.port": place.ports[f"{name}-data"],
        "io.tmp.dirs": place.folder / name,
    }
    return [part for key, value in own.items() for part in ("-D", f"{key}={value}")]
