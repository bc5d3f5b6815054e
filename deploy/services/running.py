"""The services of a folder: started, asked whether they are ready, stopped, and found again by another process."""

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
from deploy.services.kafka import Kafka
from deploy.services.places import Place, Service, free_ports, is_free
from deploy.services.processes import Process
from deploy.services.registry import Registry

SERVICES: dict[str, Service] = {service.name: service for service in (Kafka(), Registry(), Flink())}
READY_SECONDS = 120.0
STOP_SECONDS = 20.0
ATTEMPTS = 3
PORT_TAKEN = re.compile(r"address already in use|BindException|port .* (in use|not available)", re.IGNORECASE)


@dataclass(frozen=True)
class Started:
    """A service that was started and not stopped since, as the state file keeps it."""

    ports: dict[str, int]
    jars: str
    java: str
    processes: list[Process]

    @property
    def runs(self) -> bool:
        """All its processes live."""
        return all(process.lives for process in self.processes)


class Services:
    """The services of one folder. What runs is written in its `state.json`, so any process may go on from there.

    `attached` services end with this process, however it ends; the others go on until they are stopped. `tell` hears
    what takes time, in lines. `usual_ports`: those that everybody expects are taken if they are free.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[str], None] = lambda line: None,
        attached: bool = False,
        usual_ports: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.tell = tell
        self.attached = attached
        self.usual_ports = usual_ports

    def start(self, names: Iterable[str] = tuple(SERVICES)) -> list[str]:
        """Start what does not run yet, and return when it is ready to use: the names of what was started.

        A service that ended without being stopped goes on with its ports and its data. What was started here is stopped
        again when something fails, and data that was there before stays.
        """
        with self._alone():
            before = self._started()
            missing = [name for name in names if name not in before or not before[name].runs]
            try:
                for name in missing:
                    self._launch(name, before.get(name))
                for name in missing:
                    self._wait(name, 1 if name in before else ATTEMPTS)
            except BaseException:
                self._end(name for name in missing if name not in before)
                again = [one for name, one in self._started().items() if name in missing]
                processes.end([process for one in again for process in one.processes], STOP_SECONDS)
                raise
            return missing

    def stop(self, names: Iterable[str] = tuple(SERVICES)) -> list[str]:
        """Stop what runs and remove its data: the names of what was stopped. The logs stay."""
        if not self.folder.exists():
            return []
        with self._alone():
            return self._end(names)

    def status(self) -> dict[str, Started]:
        """What was started and not stopped since, by name. Whether it runs still, ask each."""
        return self._started()

    def kill(self, name: str, process: str | None = None) -> None:
        """End a service, or one process of it, as a crash does. Ports and data stay, for `restart` and `revive`."""
        processes.kill(self._some(name, process))

    def revive(self, name: str, process: str | None = None) -> list[str]:
        """Start the processes of a service that have ended, or one of these, and return when the service is ready.

        They have the same ports and data; what runs is left alone. The names of what was started.
        """
        with self._alone():
            asked = [one.name for one in self._some(name, process) if not one.lives]
            if asked:
                self._launch_again(name, asked)
                self._wait(name, 1)
            return asked

    def restart(self, name: str) -> None:
        """Start a service again, with the same ports and data, and return when it is ready. It may run still."""
        with self._alone():
            before = self._one(name)
            processes.end(before.processes, STOP_SECONDS)
            self._launch(name, before)
            self._wait(name, 1)

    def pause(self, name: str, process: str | None = None) -> None:
        """Stop the clock of a service, or of one process: it keeps its connections and answers nothing."""
        for one in self._some(name, process):
            one.send(signal.SIGSTOP)

    def resume(self, name: str, process: str | None = None) -> None:
        """Let a paused service go on."""
        for one in self._some(name, process):
            one.send(signal.SIGCONT)

    def place(self, name: str) -> Place:
        """The folder and ports of a service that was started."""
        started = self._one(name)
        return Place(self.folder / name, started.ports, Path(started.jars), started.java)

    @property
    def logs(self) -> Path:
        """The folder of the logs, one file for each process."""
        return self.folder / "logs"

    # -- one service

    def _launch(self, name: str, before: Started | None) -> None:
        """Start the processes of a service: anew, or where it was `before`."""
        service = SERVICES[name]
        program, jars = java(), artifact(name, service.title, self.tell)
        ports = before.ports if before else self._ports(service)
        place = Place(self.folder / name, ports, jars, program)
        self.logs.mkdir(parents=True, exist_ok=True)
        if before:
            processes.end(before.processes, STOP_SECONDS)
        else:
            shutil.rmtree(place.folder, ignore_errors=True)
            place.folder.mkdir(mode=0o700)
            service.prepare(place)
        running: list[Process] = []
        for process, command in service.commands(place).items():
            log = self.logs / f"{process}.log"
            if not before:
                log.unlink(missing_ok=True)
            running.append(processes.launch(process, command, log, self.attached))
            # Written at once: what is interrupted here can still be found and stopped.
            self._write({**self._started(), name: Started(ports, str(jars), program, list(running))})

    def _ports(self, service: Service) -> dict[str, int]:
        ports = dict(zip(service.ports, free_ports(len(service.ports)), strict=True))
        usual = service.usual_ports if self.usual_ports else ()
        return {**ports, **{name: port for name, port in usual if is_free(port)}}

    def _launch_again(self, name: str, ended: list[str]) -> None:
        """Start some processes of a service, each in its place among the others."""
        commands, place = SERVICES[name].commands(self.place(name)), self.place(name)
        for process in ended:
            launched = processes.launch(process, commands[process], self.logs / f"{process}.log", self.attached)
            now = [launched if one.name == process else one for one in self._one(name).processes]
            self._write({**self._started(), name: Started(place.ports, str(place.jars), place.java, now)})

    def _wait(self, name: str, attempts: int) -> None:
        """Wait until a service is ready. With attempts left, one that found a port taken is made anew with others."""
        service, started = SERVICES[name], self._one(name)
        last: list[BaseException] = []

        def settled() -> bool:
            try:
                service.check(self.place(name))
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
        said = Path(process.log).read_text(encoding="utf-8", errors="replace").splitlines()
        if ended and attempts > 1 and any(PORT_TAKEN.search(line) for line in said):
            self._end([name])
            self._launch(name, None)
            return self._wait(name, attempts - 1)
        what = f"{process.name} ended" if ended else f"it was not ready within {READY_SECONDS:.0f} s ({last[0]})"
        tail = [line[:300] for line in said[-8:]]
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

    def _alone(self) -> AbstractContextManager[None]:
        return exclusive(self.folder)

    def _one(self, name: str) -> Started:
        try:
            return self._started()[name]
        except KeyError:
            raise ServicesRefused(f"{name} was not started in {self.folder}") from None

    def _some(self, name: str, process: str | None) -> list[Process]:
        """The processes of a service, or the one of that name."""
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
        """The whole file or the one before, whatever happens. Without services there is none."""
        if not started:
            self._state.unlink(missing_ok=True)
            return
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps({name: asdict(one) for name, one in started.items()}, indent=2), encoding="utf-8")
        new.replace(self._state)
