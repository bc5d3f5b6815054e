"""The local services stop the processes that they started, and no others. Most tests use a service in Python."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from platform import machine

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from deploy.services import artifacts, processes, supervisor
from deploy.services.artifacts import ServicesMissing, ServicesRefused
from deploy.services.instance import HOST, PORTS, Instance, connect, free_ports, get_json
from deploy.services.kafka import Kafka
from deploy.services.processes import Process
from deploy.services.supervisor import Services
from support.paths import TOP
from support.services import OUTSIDE, LocalKafka

Launch = Callable[..., Process]

# Runs the code in its second argument, then listens at the port in its first.
LISTENER = """
import os, socket, sys
port, before = int(sys.argv[1]), sys.argv[2]
exec(before)
with socket.create_server(("127.0.0.1", port)) as listening:
    while True:
        listening.accept()[0].close()
"""


class Listener:
    """A service of one process that listens at a port. The process first runs the Python code `before`."""

    name = "listener"
    title = "Listener 1.0"
    ports = ("tcp",)
    usual_ports: tuple[tuple[str, int], ...] = ()

    def __init__(self, before: str = "") -> None:
        self.before = before

    def prepare(self, instance: Instance) -> None:
        (instance.folder / "data").write_text("made once")

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        return {"listener": [sys.executable, "-u", "-c", LISTENER, str(instance.ports["tcp"]), self.before]}

    def check(self, instance: Instance) -> None:
        connect(instance.ports["tcp"]).close()

    def usage(self, instance: Instance) -> list[str]:
        return [f"--listener {instance.address('tcp')}"]


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Listener:
    """Replace all services by one that needs neither Java nor jars."""
    service = Listener()
    monkeypatch.setattr(supervisor, "SERVICES", {"listener": service})
    monkeypatch.setattr(supervisor, "java", lambda: "/nowhere/java")
    monkeypatch.setattr(supervisor, "artifact", lambda name, title, report: tmp_path)
    return service


@pytest.fixture
def services(listener: Listener, tmp_path: Path) -> Iterator[Services]:
    found = Services(tmp_path / "run", attached=True)
    yield found
    found.stop(["listener"])


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Return a function that starts a process with Python code; the process ends with the test."""
    launched: list[Process] = []

    def launch(code: str) -> Process:
        """Start a process, and wait until it has printed something."""
        launched.append(processes.launch("python", [sys.executable, "-uc", code], tmp_path / "log", True))
        assert processes.wait_until(lambda: (tmp_path / "log").stat().st_size > 0, 30)
        return launched[-1]

    yield launch
    processes.kill(launched)


# -- processes

WAITS = "import signal; print('waits'); signal.pause()"


def test_a_process_with_the_pid_of_an_earlier_one_is_left_alone(launch: Launch) -> None:
    here = launch(WAITS)
    earlier = Process("earlier", here.pid, "boot 1", here.log)
    assert not earlier.lives
    processes.end([earlier], 0.0)
    processes.kill([earlier])
    assert here.lives
    processes.end([here], 30.0)
    assert not here.lives


def test_a_process_that_does_not_listen_is_ended_after_the_limit(launch: Launch) -> None:
    deaf = launch("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); signal.pause()")
    processes.end([deaf], 0.1)
    assert not deaf.lives


def test_a_paused_process_can_still_end_by_others(launch: Launch) -> None:
    paused = launch(WAITS)
    paused.send(signal.SIGSTOP)
    processes.end([paused], 30.0)
    assert not paused.lives


def test_an_ended_child_is_not_alive(launch: Launch) -> None:
    ended = launch("print('ends')")
    assert processes.wait_until(lambda: not ended.lives, 30)


@pytest.mark.skipif(sys.platform != "linux" or machine() not in ("x86_64", "aarch64"), reason="numbers of system calls")
def test_a_process_is_alive_until_its_last_thread_has_ended(launch: Launch) -> None:
    end_this_thread = {"x86_64": 60, "aarch64": 93}.get(machine())
    process = launch(
        "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); print('two threads')\n"
        f"ctypes.CDLL(None).syscall({end_this_thread}, 0)"
    )
    state = Path(f"/proc/{process.pid}/stat")
    assert processes.wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 30)
    assert process.lives
    processes.kill([process])
    assert not process.lives


def test_the_start_time_of_a_process_is_found_without_proc(launch: Launch) -> None:
    here = launch(WAITS)
    if shutil.which("ps") is None:
        pytest.skip("no ps")
    assert processes._birth_by_ps(here.pid) == processes._birth_by_ps(here.pid) is not None
    processes.kill([here])
    assert processes._birth_by_ps(here.pid) is None


def test_free_ports_are_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    assert all(port in PORTS for port in ports)
    first, _last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert max(PORTS) < first


def test_three_brokers_have_ports_and_processes_of_their_own(tmp_path: Path) -> None:
    ports = Kafka(brokers=3).ports
    instance = Instance(tmp_path, dict(zip(ports, range(20_000, 20_009), strict=True)), tmp_path, "java")
    kafka = Kafka()  # as another process has it, which reads of the others in the state file
    assert list(kafka.commands(instance)) == ["kafka", "kafka-2", "kafka-3"]
    assert kafka.brokers(instance) == f"{HOST}:20000,{HOST}:20003,{HOST}:20006"
    assert kafka.brokers(instance, "secured") == f"{HOST}:20001,{HOST}:20004,{HOST}:20007"


# -- the services of a folder


def test_a_running_service_is_not_started_again(services: Services) -> None:
    assert services.start(["listener"]) == ["listener"]
    (first,) = services.status()["listener"].processes
    assert services.start(["listener"]) == []
    assert services.status()["listener"].processes == [first]


def test_usual_ports_are_used_if_they_are_free(listener: Listener, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listener.usual_ports = (("tcp", port),)
    said: dict[str, list[str]] = {name: [] for name in "abc"}
    first, second, third = (
        Services(tmp_path / name, said[name].append, usual_ports=name != "c", attached=True) for name in "abc"
    )
    try:
        for services in (first, second, third):
            services.start(["listener"])
        assert first.instance("listener").ports == {"tcp": port}
        assert len({services.instance("listener").ports["tcp"] for services in (first, second, third)}) == 3
        taken = f"port {port} is taken by another program, so {second.instance('listener').ports['tcp']} is used"
        assert [name for name, lines in said.items() if any(taken in line for line in lines)] == ["b"]
    finally:
        for services in (first, second, third):
            services.stop(["listener"])


def test_another_process_finds_and_stops_the_services(services: Services) -> None:
    services.start(["listener"])
    other = Services(services.folder)
    (process,) = other.status()["listener"].processes
    assert process.lives
    assert other.stop(["listener"]) == ["listener"]
    assert not process.lives
    assert services.status() == {}


def test_stop_removes_everything_but_the_logs(services: Services) -> None:
    services.start(["listener"])
    services.stop(["listener"])
    assert [path.name for path in services.folder.iterdir()] == ["logs"]
    assert services.stop(["listener"]) == []


def test_a_killed_service_is_restarted_with_its_ports_and_data(services: Services) -> None:
    services.start(["listener"])
    before = services.instance("listener")
    (before.folder / "data").write_text("changed since")
    services.kill("listener")
    assert not services.status()["listener"].runs
    services.restart("listener")
    assert services.status()["listener"].runs
    assert services.instance("listener") == before
    assert (before.folder / "data").read_text() == "changed since"
    services.kill("listener")
    assert services.start(["listener"]) == ["listener"]
    assert (before.folder / "data").read_text() == "changed since"


def test_a_service_whose_port_was_taken_keeps_its_data(services: Services, listener: Listener) -> None:
    services.start(["listener"])
    instance = services.instance("listener")
    (instance.folder / "data").write_text("changed since")
    services.kill("listener")
    listener.before = "sys.exit('Address already in use')"
    with pytest.raises(ServicesRefused, match="Address already in use"):
        services.restart("listener")
    with pytest.raises(ServicesRefused, match="Address already in use"):
        services.start(["listener"])
    listener.before = ""
    assert (instance.folder / "data").read_text() == "changed since"
    assert services.start(["listener"]) == ["listener"]
    assert services.instance("listener") == instance


def test_a_paused_service_continues_when_it_is_resumed(services: Services) -> None:
    services.start(["listener"])
    (process,) = services.status()["listener"].processes
    services.pause("listener")
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    services.resume("listener")
    assert os.WIFCONTINUED(os.waitpid(process.pid, os.WCONTINUED)[1])


def test_a_start_retries_with_another_port_if_its_port_was_taken_meanwhile(
    services: Services, listener: Listener
) -> None:
    # The message of Java. The second attempt finds another port.
    listener.before = (
        "tried = __import__('pathlib').Path(sys.path[0] or '.', os.environ['TRIED'])\n"
        "if not tried.exists(): tried.touch(); sys.exit('java.net.BindException: Address already in use')"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRIED", str(services.folder.parent / "tried"))
        services.start(["listener"])
    assert services.status()["listener"].runs


def test_a_service_that_ends_at_the_start_shows_the_end_of_its_log(services: Services, listener: Listener) -> None:
    listener.before = "print(*range(100), sep='\\n'); sys.exit('the disk is made of cheese')"
    with pytest.raises(ServicesRefused) as refused:
        services.start(["listener"])
    first, *tail = str(refused.value).splitlines()
    assert first == f"Listener 1.0 does not start: listener ended. The end of {services.logs}/listener.log:"
    assert tail[-1] == "the disk is made of cheese"
    assert len(tail) < 10
    assert services.status() == {}


def test_a_service_that_is_never_ready_is_stopped(
    services: Services, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "READY_SECONDS", 0.5)
    listener.before = f"print(os.getpid()); {WAITS}"
    with pytest.raises(ServicesRefused, match="not ready within"):
        services.start(["listener"])
    pid = int((services.logs / "listener.log").read_text().split()[0])
    assert processes.birth(pid) is None
    assert services.status() == {}


class Pair(Listener):
    """A service of two processes."""

    ports = ("tcp", "second")

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        command = [sys.executable, "-u", "-c", LISTENER]
        return {
            name: [*command, str(instance.ports[port]), ""]
            for name, port in zip(("one", "two"), self.ports, strict=True)
        }

    def check(self, instance: Instance) -> None:
        for port in self.ports:
            connect(instance.ports[port]).close()


def test_one_process_of_a_service_can_be_killed_and_restarted_alone(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SERVICES", {"listener": Pair()})
    services.start(["listener"])
    before, instance = services.status()["listener"].processes, services.instance("listener")
    services.kill("listener", "two")
    assert [one.lives for one in before] == [True, False]
    assert services.revive("listener", "one") == []
    assert services.revive("listener", "two") == ["two"]
    one, two = services.status()["listener"].processes
    assert (one, services.instance("listener")) == (before[0], instance)
    assert one.lives and two.lives and two.name == "two"
    services.kill("listener", "two")
    assert services.start(["listener"]) == ["listener"]
    assert services.status()["listener"].processes[0] == before[0] and services.status()["listener"].runs
    services.kill("listener")
    assert services.revive("listener") == ["one", "two"]
    assert services.revive("listener") == []
    assert services.status()["listener"].runs


def test_a_process_that_a_service_does_not_have_is_refused(services: Services) -> None:
    services.start(["listener"])
    with pytest.raises(ServicesRefused, match=r"listener has no process 'three' in .*: it has listener"):
        services.kill("listener", "three")


# -- requirements


@pytest.fixture
def poms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with one pom.xml, an empty cache, and a Maven that copies the pom instead of jars."""
    for folder in ("poms", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "poms" / "thing.pom.xml").write_text("thing 1")
    script = '#!/bin/sh\n[ "$7" = --strict-checksums ] || exit 1\necho called >> "$CALLS"\n'
    script += 'mkdir "${6#-Ddestination=}"\ncp "$4" "${6#-Ddestination=}/jar"\n'
    (tmp_path / "bin" / "mvn").write_text(script)
    (tmp_path / "bin" / "mvn").chmod(0o755)
    monkeypatch.setattr(artifacts, "POMS", tmp_path / "poms")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "poms"


def test_jars_are_downloaded_once_per_content_of_the_pom(poms: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    first = artifacts.artifact("thing", "Thing 1", messages.append)
    assert artifacts.artifact("thing", "Thing 1", messages.append) == first
    assert (first / "jar").read_text() == "thing 1"
    assert messages == ["fetching Thing 1: the first time takes a minute"]
    (poms / "thing.pom.xml").write_text("thing 2")
    second = artifacts.artifact("thing", "Thing 2", messages.append)
    assert (second / "jar").read_text() == "thing 2"
    assert sorted((tmp_path / "cache" / "opicflow" / "services").iterdir()) == sorted([first, second])


def test_two_simultaneous_downloads_are_one(poms: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: artifacts.artifact("thing", "Thing 1", lambda line: None), range(4)))
    assert len(set(found)) == 1
    assert (tmp_path / "calls").read_text() == "called\n"


@pytest.mark.parametrize("exit_code", [1, 0])  # Maven may be content with having done nothing
def test_a_failed_download_leaves_no_files(exit_code: int, poms: Path, tmp_path: Path) -> None:
    script = f'#!/bin/sh\nmkdir "${{6#-Ddestination=}}"\necho no network; exit {exit_code}\n'
    (tmp_path / "bin" / "mvn").write_text(script)
    with pytest.raises(ServicesMissing, match=r"cannot fetch Thing 1.*\nno network"):
        artifacts.artifact("thing", "Thing 1", lambda line: None)
    assert list((tmp_path / "cache" / "opicflow" / "services").iterdir()) == []


def services_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.services", *arguments]
    return subprocess.run(command, cwd=TOP, text=True, capture_output=True, env={**os.environ, **environment})


@pytest.mark.parametrize("java", [None, "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"])
def test_a_missing_or_old_java_is_refused_with_the_package_to_install(java: str | None, tmp_path: Path) -> None:
    if java:
        (tmp_path / "java").write_text(java)
        (tmp_path / "java").chmod(0o755)
    done = services_command("start", "--folder", str(tmp_path / "run"), PATH=f"{tmp_path}:/bin/none", JAVA_HOME="")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "apt install openjdk-17-jdk-headless maven" in line


def test_a_missing_maven_is_refused_with_the_package_to_install(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    (tmp_path / "java").chmod(0o755)
    folder = str(tmp_path / "run")
    done = services_command("start", "--folder", folder, PATH=str(tmp_path), JAVA_HOME="", XDG_CACHE_HOME=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("services: no Maven") and "apt install" in line


def test_nothing_running_and_unknown_names_have_their_exit_codes(tmp_path: Path) -> None:
    nothing = services_command("status", "--folder", str(tmp_path / "run"))
    assert nothing.returncode == 1 and nothing.stdout.startswith("nothing runs in ")
    unknown = services_command("start", "--only", "kafka,zookeeper")
    assert unknown.returncode == 2 and "'zookeeper'" in unknown.stderr
    assert not (tmp_path / "run").exists()


# -- the real ones


def records(kafka: LocalKafka, topic: str, **settings: object) -> list[bytes]:
    """Everything in partition 0 of a topic."""
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(**{**OUTSIDE, "bootstrap_servers": kafka.brokers, "group_id": None, **settings})
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        (end,) = consumer.end_offsets([partition]).values()
        found: list[bytes] = []
        while len(found) < end:
            found += [record.value for record in consumer.poll(1000).get(partition, [])]
        return found
    finally:
        consumer.close()


def topic_with(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    admin = KafkaAdminClient(**OUTSIDE, bootstrap_servers=kafka.brokers)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    producer = KafkaProducer(**OUTSIDE, bootstrap_servers=kafka.brokers, acks="all")
    for value in values:
        producer.send(topic, value, partition=0).get(30)
    producer.close()


def test_both_listeners_show_the_same_records_and_the_registry_answers(kafka: LocalKafka, topic_prefix: str) -> None:
    topic_with(kafka, f"{topic_prefix}records", [b"one", b"two"])
    assert records(kafka, f"{topic_prefix}records") == [b"one", b"two"]
    secured = kafka.secured
    login = {
        "bootstrap_servers": secured.brokers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": secured.user,
        "sasl_plain_password": secured.password,
        "ssl_cafile": str(secured.ca),
    }
    assert records(kafka, f"{topic_prefix}records", **login) == [b"one", b"two"]
    assert isinstance(get_json(f"{kafka.registry}/subjects"), list)


def is_a_hole(file: Path) -> bool:
    """Whether a file takes no blocks of the disk, as the broker's empty indexes of 10 MB: it has no content."""
    found = file.stat()
    return found.st_size > 1 << 20 and found.st_blocks == 0


def test_only_the_owner_can_read_the_password(kafka: LocalKafka) -> None:
    services, password = kafka.services, kafka.secured.password.encode()
    holders = []
    for folder, _, files in os.walk(services.folder):  # not rglob: the broker deletes folders of topics meanwhile
        for path in (Path(folder, name) for name in files):
            with suppress(FileNotFoundError):
                if path.is_file() and not is_a_hole(path) and password in path.read_bytes():
                    holders.append(path)
    assert kafka.secured.properties in holders
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}
    (broker,) = services.status()["kafka"].processes
    assert password not in Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    assert kafka.secured.password not in repr(kafka.secured)


@pytest.mark.slow
def test_a_killed_broker_keeps_its_records(mortal_kafka: LocalKafka) -> None:
    before = mortal_kafka.brokers
    topic_with(mortal_kafka, "records", [b"kept"])
    mortal_kafka.kill()
    with pytest.raises(OSError), socket.create_connection((HOST, int(before.partition(":")[2]))):
        pass
    mortal_kafka.restart()
    assert mortal_kafka.brokers == before
    assert records(mortal_kafka, "records") == [b"kept"]
