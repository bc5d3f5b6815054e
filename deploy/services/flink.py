"""A Flink session cluster of two TaskManagers, and Beam's job server, which submits jobs to it."""

from __future__ import annotations

from pathlib import Path

from deploy.services.instance import HOST, Instance, connect, get_json

TASK_MANAGERS = ("flink-tasks-1", "flink-tasks-2")
SLOTS_EACH = 2
SLOTS = SLOTS_EACH * len(TASK_MANAGERS)

# Flink's scripts derive the memory sizes from one number. Here its classes are started directly, so all are given.
# Failures are detected fast and restarts are unlimited: tests kill processes, which then come back.
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
metrics.reporter.prometheus.factory.class: org.apache.flink.metrics.prometheus.PrometheusReporterFactory
metrics.reporter.prometheus.port: "{metrics}"
metrics.reporter.prometheus.filterLabelValueCharacters: "false"
io.tmp.dirs: {folder}
web.tmpdir: {folder}
web.refresh-interval: 1000
web.submit.enable: false
"""

# The packages that Flink accesses by reflection, on Java 17 and later.
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
        "metrics",
        *(f"{name}-{kind}" for name in TASK_MANAGERS for kind in ("rpc", "data", "metrics")),
    )
    usual_ports = (
        ("rest", 8081),
        ("jobs", 8099),
        ("metrics", 9249),
        *((f"{name}-metrics", 9250 + number) for number, name in enumerate(TASK_MANAGERS)),
    )

    def prepare(self, instance: Instance) -> None:
        """Write the settings of the cluster."""
        for folder in ("conf", "checkpoints", "savepoints", *TASK_MANAGERS):
            (instance.folder / folder).mkdir()
        ports = {name: instance.ports[name] for name in ("rest", "rpc", "blob", "metrics")}
        config = CONFIG.format(host=HOST, slots=SLOTS_EACH, all_slots=SLOTS, folder=instance.folder, **ports)
        (instance.folder / "conf" / "config.yaml").write_text(config, encoding="utf-8")

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return four commands: JobManager, two TaskManagers, job server."""
        conf = ["--configDir", str(instance.folder / "conf")]
        server = [
            job_server_class(instance),
            f"--job-host={HOST}",
            f"--job-port={instance.ports['jobs']}",
            f"--artifact-port={instance.ports['artifacts']}",
            f"--expansion-port={instance.ports['expansion']}",
            f"--artifacts-dir={instance.folder / 'artifacts'}",
            f"--flink-master={self.rest(instance)}",
            f"--flink-conf-dir={instance.folder / 'conf'}",
        ]
        jvm = ["-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true", *OPENS, "-cp", f"{instance.jars}/*"]
        cluster = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        tasks = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
        direct = "-XX:MaxDirectMemorySize=288m"
        # Java passes on small messages, and Python does the work: the second compiler costs more than it gains.
        first_compiler = "-XX:TieredStopAtLevel=1"
        return {
            "flink-jobs": instance.jvm([cluster, *conf], "-Xmx512m", first_compiler, *jvm),
            **{
                name: instance.jvm([tasks, *conf, *_its_own(name, instance)], "-Xmx640m", direct, first_compiler, *jvm)
                for name in TASK_MANAGERS
            },
            "flink-beam": instance.jvm(server, "-Xmx384m", first_compiler, *jvm),
        }

    def check(self, instance: Instance) -> None:
        """Check that all slots are registered, and that the TaskManagers and the job server listen."""
        if get_json(f"http://{self.rest(instance)}/overview")["slots-total"] != SLOTS:
            raise ConnectionError("not all TaskManagers have registered yet")
        for port in ("jobs", *(f"{name}-{kind}" for name in TASK_MANAGERS for kind in ("rpc", "data"))):
            connect(instance.ports[port]).close()

    def usage(self, instance: Instance) -> list[str]:
        """Return the options of a stream, and the address of Flink's web page."""
        stream = f"--flink-master {self.rest(instance)} --job-server {self.jobs(instance)}"
        return [f"--runner FlinkRunner {stream}", f"http://{self.rest(instance)}   (Flink's web page)"]

    def rest(self, instance: Instance) -> str:
        """Return host and port of Flink's REST interface and web page."""
        return instance.address("rest")

    def jobs(self, instance: Instance) -> str:
        """Return host and port of Beam's job server."""
        return instance.address("jobs")

    def metrics(self, instance: Instance) -> list[str]:
        """Return host and port of the metrics of each process, for Prometheus."""
        return [instance.address(name) for name in ("metrics", *(f"{name}-metrics" for name in TASK_MANAGERS))]

    def checkpoints(self, instance: Instance) -> Path:
        """Return the folder of the checkpoints, which has a folder for each job."""
        return instance.folder / "checkpoints"

    def savepoints(self, instance: Instance) -> Path:
        """Return the folder of the savepoints."""
        return instance.folder / "savepoints"


def job_server_class(instance: Instance) -> str:
    """Return the main class of the job server: `JobServer.java` if Java can compile it, Beam's own class otherwise.

    Beam's own class sends 190 MB of jars with each job, which takes half a minute. The cluster has these jars already.
    """
    compiler = Path(instance.java).resolve().with_name("javac")
    return str(JOB_SERVER) if compiler.exists() else "org.apache.beam.runners.flink.FlinkJobServerDriver"


def _its_own(name: str, instance: Instance) -> list[str]:
    """Return the settings of one TaskManager. With its own id the cluster recognises it after a restart."""
    own = {
        "taskmanager.resource-id": name,
        "taskmanager.rpc.port": instance.ports[f"{name}-rpc"],
        "taskmanager.data.port": instance.ports[f"{name}-data"],
        "metrics.reporter.prometheus.port": instance.ports[f"{name}-metrics"],
        "io.tmp.dirs": instance.folder / name,
    }
    return [part for key, value in own.items() for part in ("-D", f"{key}={value}")]
