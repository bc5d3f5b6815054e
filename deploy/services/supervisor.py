"""Starts and stops the services of a folder, and finds them again from another process."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.services import processes
from deploy.services.artifacts import ServicesRefused, artifact, exclusive, java
from deploy.services.flink import Flink
from deploy.services.instance import Instance, Service, free_ports, is_free
from deploy.services.kafka import Kafka
from deploy.services.processes import Process
from deploy.services.registry import Registry

SERVICES: dict[str, Service] = {service.name: service for service in (Kafka(), Registry(), Flink())}
READY_SECONDS = 120.0
STOP_SECONDS = 20.0
ATTEMPTS = 3
PORT_TAKEN = re.compile(r"address already in use|BindException|port .* (in use|not available)", re.IGNORECASE)


@dataclass(frozen=True)
class Started:
    """A service that was started and not stopped since, as in the state file."""

    ports: dict[str, int]
    jars: str
    java: str
    processes: list[Process]

    @property
    def runs(self) -> bool:
        """Whether all its processes run."""
        return all(process.lives for process in self.processes)


class Services:
    """The services of one folder. Its `state.json` lists what runs, so another process can manage them.

    `attached` services end with this process, for any reason; the others run until they are stopped. `report` is called
    with lines about slow steps. `usual_ports`: use the ports that users expect if they are free.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[str], None] = lambda line: None,
        attached: bool = False,
        usual_ports: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.report = report
        self.attached = attached
        self.usual_ports = usual_ports

    def start(self, names: Iterable[str] = tuple(SERVICES)) -> list[str]:
        """Start the services that do not run, wait until they are ready, and return their names.

        A service that ended without being stopped keeps its ports and its data; those of its processes that run are
        left alone. After a failure, everything that was started here is stopped again, and older data stays.
        """
        with self._locked():
            before = self._started()
            missing = [name for name in names if name not in before or not before[name].runs]
            left_alone = [one for service in before.values() for one in service.processes if one.lives]
            try:
                for name in missing:
                    ended = [one.name for one in before[name].processes if not one.lives] if name in before else []
                    if ended and len(ended) < len(before[name].processes):
                        self._launch_again(name, ended)
                    else:
                        self._launch(name, before.get(name))
                for name in missing:
                    self._wait(name, 1 if name in before else ATTEMPTS)
            except BaseException:
                self._end(name for name in missing if name not in before)
                again = [one for name, one in self._started().items() if name in missing]
                ours = [process for one in again for process in one.processes if process not in left_alone]
                processes.end(ours, STOP_SECONDS)
                raise
            return missing

    def stop(self, names: Iterable[str] = tuple(SERVICES)) -> list[str]:
        """Stop services, remove their data and return their names. The logs stay."""
        if not self.folder.exists():
            return []
        with self._locked():
            return self._end(names)

    def status(self) -> dict[str, Started]:
        """Return the services that were started and not stopped since, by name; each may have ended."""
        return self._started()

    def kill(self, name: str, process: str | None = None) -> None:
        """Kill a service, or one of its processes. Ports and data stay, for `restart` and `revive`."""
        processes.kill(self._some(name, process))

    def revive(self, name: str, process: str | None = None) -> list[str]:
        """Start the ended processes of a service, or one process, with the same ports and data.

        Returns their names when the service is ready. Processes that run are left alone.
        """
        with self._locked():
            ended = [one.name for one in self._some(name, process) if not one.lives]
            if ended:
                self._launch_again(name, ended)
                self._wait(name, 1)
            return ended

    def restart(self, name: str) -> None:
        """Stop and start a service, with the same ports and data, and return when it is ready."""
        with self._locked():
            before = self._one(name)
            processes.end(before.processes, STOP_SECONDS)
            self._launch(name, before)
            self._wait(name, 1)

    def pause(self, name: str, process: str | None = None) -> None:
        """Pause a service, or one process: it keeps its connections and does not respond."""
        for one in self._some(name, process):
            one.send(signal.SIGSTOP)

    def resume(self, name: str, process: str | None = None) -> None:
        """Resume a paused service."""
        for one in self._some(name, process):
            one.send(signal.SIGCONT)

    def instance(self, name: str) -> Instance:
        """Return folder and ports of a service that was started."""
        started = self._one(name)
        return Instance(self.folder / name, started.ports, Path(started.jars), started.java)

    @property
    def logs(self) -> Path:
        """The folder of the logs, with a file for each process."""
        return self.folder / "logs"

    # -- one service

    def _launch(self, name: str, before: Started | None) -> None:
        """Start the processes of a service, with the ports and data it had `before`, if any."""
        service = SERVICES[name]
        program, jars = java(), artifact(name, service.title, self.report)
        ports = before.ports if before else self._ports(service)
        instance = Instance(self.folder / name, ports, jars, program)
        self.logs.mkdir(parents=True, exist_ok=True)
        if before:
            processes.end(before.processes, STOP_SECONDS)
        else:
            shutil.rmtree(instance.folder, ignore_errors=True)
            instance.folder.mkdir(mode=0o700)
            service.prepare(instance)
        running: list[Process] = []
        for process, command in service.commands(instance).items():
            log = self.logs / f"{process}.log"
            if not before:
                log.unlink(missing_ok=True)
            running.append(processes.launch(process, command, log, self.attached))
            # Written after each start, so that another process can stop them if this one is interrupted.
            self._write({**self._started(), name: Started(ports, str(jars), program, list(running))})

    def _ports(self, service: Service) -> dict[str, int]:
        ports = dict(zip(service.ports, free_ports(len(service.ports)), strict=True))
        for name, port in service.usual_ports if self.usual_ports else ():
            if is_free(port):
                ports[name] = port
            else:
                self.report(f"{service.title}: port {port} is taken by another program, so {ports[name]} is used")
        return ports

    def _launch_again(self, name: str, ended: list[str]) -> None:
        """Start some processes of a service again, and keep the order of all."""
        commands, instance = SERVICES[name].commands(self.instance(name)), self.instance(name)
        for process in ended:
            launched = processes.launch(process, commands[process], self.logs / f"{process}.log", self.attached)
            now = [launched if one.name == process else one for one in self._one(name).processes]
            self._write({**self._started(), name: Started(instance.ports, str(instance.jars), instance.java, now)})

    def _wait(self, name: str, attempts: int) -> None:
        """Wait until a service is ready. If a port was in use, start it with other ports, up to `attempts` times."""
        service, started = SERVICES[name], self._one(name)
        last: list[BaseException] = []

        def settled() -> bool:
            try:
                service.check(self.instance(name))
            except Exception as problem:
                last[:] = [problem]
                return not started.runs
            last.clear()
            return True

        ready = processes.wait_until(settled, READY_SECONDS) and not last
        if ready and started.runs:
            return
        ended = [process for process in started.processes if not process.lives]
        process = ended[0] if ended else started.processes[-1]
        output = Path(process.log).read_text(encoding="utf-8", errors="replace").splitlines()
        if ended and attempts > 1 and any(PORT_TAKEN.search(line) for line in output):
            self._end([name])
            self._launch(name, None)
            return self._wait(name, attempts - 1)
        what = f"{process.name} ended" if ended else f"it was not ready within {READY_SECONDS:.0f} s ({last[0]})"
        tail = [line[:300] for line in output[-8:]]
        raise ServicesRefused("\n".join([f"{service.title} does not start: {what}. The end of {process.log}:", *tail]))

    def _end(self, names: Iterable[str]) -> list[str]:
        """Stop services and remove their data."""
        started = self._started()
        ending = {name: started.pop(name) for name in names if name in started}
        processes.end([process for one in ending.values() for process in one.processes], STOP_SECONDS)
        for name in ending:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._write(started)
        return list(ending)

    # -- the state file

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    def _locked(self) -> AbstractContextManager[None]:
        return exclusive(self.folder)

    def _one(self, name: str) -> Started:
        try:
            return self._started()[name]
        except KeyError:
            raise ServicesRefused(f"{name} was not started in {self.folder}") from None

    def _some(self, name: str, process: str | None) -> list[Process]:
        """Return the processes of a service, or the one with this name."""
        every = self._one(name).processes
        found = [one for one in every if process in (None, one.name)]
        if not found:
            known = ", ".join(one.name for one in every)
            raise ServicesRefused(f"{name} has no process {process!r} in {self.folder}: it has {known}")
        return found

    def _started(self) -> dict[str, Started]:
        try:
            kept = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {
            name: Started(**{**values, "processes": [Process(**process) for process in values["processes"]]})
            for name, values in kept.items()
        }

    def _write(self, started: dict[str, Started]) -> None:
        """Replace the state file atomically; remove it if there are no services."""
        if not started:
            self._state.unlink(missing_ok=True)
            return
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps({name: asdict(one) for name, one in started.items()}, indent=2), encoding="utf-8")
        new.replace(self._state)
