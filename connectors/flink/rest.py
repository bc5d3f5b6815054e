"""A client of Flink's REST interface: jobs, their checkpoints, savepoints and metrics."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from threading import Event
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import requests

from opicflow.schemas.errors import UserError

_TIMEOUT_SECONDS = 10.0
_SAVEPOINT_SECONDS = 300.0
_STOP_SECONDS = 60.0
_PAUSE_SECONDS = 0.25
_MOST_WORDS = 300
_MOST_NAMES = 3_000  # characters of metric names in one URL
_Answer = TypeVar("_Answer")
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED"})

How = Literal["sum", "max", "min", "avg"]
"""How the values of the subtasks become one."""


class FlinkRefused(UserError):
    """A Flink cluster does not do what was asked. What, where, and what to do, in one line."""


@dataclass(frozen=True)
class Overview:
    """What a cluster has."""

    version: str
    task_managers: int
    slots: int
    slots_free: int


@dataclass(frozen=True)
class Job:
    """A job in the list of a cluster. `state` is Flink's word: RUNNING, RESTARTING, CANCELED, FAILED, ..."""

    id: str
    name: str
    state: str
    started_ms: int

    @property
    def ended(self) -> bool:
        """It will not run again."""
        return self.state in _ENDED


@dataclass(frozen=True)
class Vertex:
    """A stage of a job. `subtasks` says how many of them are in which state."""

    id: str
    name: str
    parallelism: int
    state: str
    subtasks: Mapping[str, int]


@dataclass(frozen=True)
class JobDetails:
    """All of a job. `trouble` has the first lines of what went wrong lately, the latest first.

    `restarts` is a metric of Flink's, which may come late or not at all once a TaskManager was lost, and is 0 then;
    `running_since_ms` is sure: it moves whenever the job is started again, and is 0 before it first runs.
    """

    job: Job
    vertices: tuple[Vertex, ...]
    restarts: int
    running_since_ms: int
    trouble: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """The job and all its subtasks run."""
        every = all(vertex.subtasks.get("RUNNING", 0) == vertex.parallelism for vertex in self.vertices)
        return self.job.state == "RUNNING" and bool(self.vertices) and every


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint. `written_bytes` is what it wrote anew, `full_bytes` all it consists of."""

    id: int
    path: str
    written_bytes: int
    full_bytes: int
    seconds: float
    completed_ms: int
    is_savepoint: bool


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job, since it was submitted. `retained` are those that still lie there, latest first."""

    completed: int
    failed: int
    running: int
    restored: int
    last: Checkpoint | None
    retained: tuple[Checkpoint, ...]


class FlinkCluster:
    """A cluster, by the address of its REST interface. Nothing goes through a proxy, and no connection stays open."""

    def __init__(self, master: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        """`master` is HOST:PORT, or a URL. Nothing is asked yet."""
        self._url = address(master)
        self._shown = urlsplit(self._url)._replace(netloc=urlsplit(self._url).netloc.rpartition("@")[2]).geturl()
        self._timeout_seconds = timeout_seconds

    def overview(self) -> Overview:
        """What the cluster has."""
        found = self._get("/overview")
        with self._reading():
            return Overview(
                version=str(found["flink-version"]),
                task_managers=int(found["taskmanagers"]),
                slots=int(found["slots-total"]),
                slots_free=int(found["slots-available"]),
            )

    # -- jobs

    def jobs(self, name: str | None = None) -> list[Job]:
        """All jobs that the cluster knows, those of the past too; or those of a name. The latest first."""
        found = self._get("/jobs/overview")
        with self._reading():
            jobs = [_job(one) for one in found["jobs"]]
        return sorted((job for job in jobs if name in (None, job.name)), key=lambda job: (-job.started_ms, job.id))

    def find(self, name: str) -> Job:
        """The job of that name that has not ended; refused if there is none, or more than one."""
        found = [job for job in self.jobs(name) if not job.ended]
        if not found:
            others = ", ".join(sorted({job.name for job in self.jobs() if not job.ended})) or "none"
            raise self._refused(f"no job {name!r} runs there: see which do ({others}), or give another --name")
        if len(found) > 1:
            ids = ", ".join(job.id for job in found)
            raise self._refused(f"{len(found)} jobs {name!r} run there ({ids}): cancel all but one")
        return found[0]

    def details(self, job_id: str) -> JobDetails:
        """All of a job."""
        found = self._of_job(job_id, "")
        trouble = self._of_job(job_id, "/exceptions")
        restarts = self.job_metrics(job_id, ["numRestarts"])
        with self._reading():
            return JobDetails(
                job=Job(found["jid"], found["name"], found["state"], int(found["start-time"])),
                vertices=tuple(_vertex(one) for one in found["vertices"]),
                restarts=int(restarts.get("numRestarts", 0)),
                running_since_ms=int(found["timestamps"]["RUNNING"]),
                trouble=tuple(_troubles(trouble)),
            )

    def wait(self, job_id: str, done: Callable[[JobDetails], bool], limit_seconds: float) -> JobDetails | None:
        """Ask for a job until `done` says so; None if it does not within the limit."""
        return _until(lambda: self.details(job_id), done, limit_seconds)

    def cancel(self, job_id: str, limit_seconds: float = _STOP_SECONDS) -> Job:
        """End a job, without a savepoint, and wait until it has ended. Its retained checkpoints stay."""
        if self._state(job_id).ended:
            return self._state(job_id)
        self._of_job(job_id, "?mode=cancel", "PATCH")
        return self._ended(job_id, limit_seconds)

    # -- checkpoints and savepoints

    def checkpoints(self, job_id: str) -> Checkpoints:
        """How the checkpoints of a job go."""
        found = self._of_job(job_id, "/checkpoints")
        with self._reading():
            counts, last = found["counts"], found["latest"]["completed"]
            kept = [one for one in found["history"] if one["status"] == "COMPLETED" and not one.get("discarded")]
            return Checkpoints(
                completed=int(counts["completed"]),
                failed=int(counts["failed"]),
                running=int(counts["in_progress"]),
                restored=int(counts["restored"]),
                last=_checkpoint(last) if last else None,
                retained=tuple(_checkpoint(one) for one in sorted(kept, key=lambda one: -int(one["id"]))),
            )

    def savepoint(
        self,
        job_id: str,
        folder: str | None = None,
        cancel: bool = False,
        limit_seconds: float = _SAVEPOINT_SECONDS,
    ) -> str:
        """Write a savepoint, and with `cancel` end the job with it: its path, once it is complete.

        `folder` is a URL for Flink, `file:///...` or one of a store that the cluster knows; None: the cluster's own.
        """
        body = {"cancel-job": cancel, **({"target-directory": folder} if folder else {})}
        path = self._written(job_id, self._of_job(job_id, "/savepoints", "POST", body), limit_seconds)
        if cancel:
            self._ended(job_id, _STOP_SECONDS)
        return path

    def stop(self, job_id: str, folder: str | None = None, limit_seconds: float = _SAVEPOINT_SECONDS) -> str:
        """End a job with a savepoint that has all it did: its path. Nothing comes out of the job after it.

        All sources of the job must be able to stop: Beam's `FlinkStreamingImpulseSource` can. `savepoint` with `cancel`
        ends every job, but what it does between the two is done again by the one that goes on from there.
        """
        body = {"drain": False, **({"targetDirectory": folder} if folder else {})}
        path = self._written(job_id, self._of_job(job_id, "/stop", "POST", body), limit_seconds)
        self._ended(job_id, _STOP_SECONDS)
        return path

    def _written(self, job_id: str, asked: Any, limit_seconds: float) -> str:
        """The path of a savepoint that was asked for, once it is complete."""
        with self._reading():
            request = str(asked["request-id"])
        answer = _until(
            lambda: self._of_job(job_id, f"/savepoints/{request}"),
            lambda one: _of(one, "status", "id") == "COMPLETED",
            limit_seconds,
        )
        if answer is None:
            raise self._refused(
                f"the savepoint of job {job_id} is not complete after {limit_seconds:g} s: "
                "see whether its checkpoints complete, and try again"
            )
        path = _of(answer, "operation", "location")
        if not path:
            cause = _first_cause(_of(answer, "operation", "failure-cause"))
            raise self._refused(f"no savepoint of job {job_id}: {cause}: see the folder, and that all of the job runs")
        return str(path)

    # -- metrics

    def job_metrics(self, job_id: str, names: Iterable[str]) -> dict[str, float]:
        """Metrics of a job as a whole, as `numRestarts`; those that it has, and that are numbers."""
        found = self._of_job(job_id, f"/metrics?get={_listed(names)}")
        with self._reading():
            return dict(_numbers((one["id"], one.get("value")) for one in found))

    def metrics(self, job_id: str, vertex_id: str, patterns: Iterable[str], how: How = "sum") -> dict[str, float]:
        """Metrics of a vertex, all subtasks together, whose whole names one of the patterns matches."""
        path = f"/vertices/{vertex_id}/subtasks/metrics"
        wanted = [re.compile(pattern) for pattern in patterns]
        offered = self._of_job(job_id, path)
        with self._reading():
            names = [str(one["id"]) for one in offered]
        names = [name for name in names if any(pattern.fullmatch(name) for pattern in wanted)]
        values: dict[str, float] = {}
        for some in _in_parts(names):
            found = self._of_job(job_id, f"{path}?get={_listed(some)}&agg={how}")
            with self._reading():
                values.update(_numbers((one["id"], one.get(how)) for one in found))
        return values

    def beam_metrics(self, job_id: str, namespace: str = "opicflow", how: How = "sum") -> dict[str, float]:
        """Counters and gauges that the steps of a pipeline keep in a namespace, by their names.

        Each step counts for itself, since it was started the last time; steps and subtasks are taken together. Of a
        gauge each subtask has the value that was set last. Distributions are not told by Flink as numbers.
        """
        found = self._of_job(job_id, "")
        with self._reading():
            vertices = [str(one["id"]) for one in found["vertices"]]
        pattern = rf"(?:.*\.)?{re.escape(namespace)}_[^.]+"
        values: dict[str, list[float]] = {}
        for vertex in vertices:
            for name, value in self.metrics(job_id, vertex, [pattern], how).items():
                short = name.rpartition(".")[2].removeprefix(f"{namespace}_")
                values.setdefault(short, []).append(value)
        return {name: _TOGETHER[how](some) for name, some in sorted(values.items())}

    # -- one request

    def _state(self, job_id: str) -> Job:
        found = self._of_job(job_id, "")
        with self._reading():
            return Job(found["jid"], found["name"], found["state"], int(found["start-time"]))

    def _ended(self, job_id: str, limit_seconds: float) -> Job:
        job = _until(lambda: self._state(job_id), lambda one: one.ended, limit_seconds)
        if job is None:
            raise self._refused(
                f"job {job_id} was told to end and has not after {limit_seconds:g} s: see its page, and cancel it there"
            )
        return job

    def _of_job(self, job_id: str, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        if not re.fullmatch("[0-9a-f]{32}", job_id):
            raise self._refused(f"{job_id[:100]!r} is not the id of a job, 32 digits 0-9a-f: see the list of jobs")
        return self._get(f"/jobs/{job_id}{path}", method, body)

    def _get(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """What the cluster answers."""
        try:
            with requests.Session() as session:
                session.trust_env = False  # neither proxies nor somebody's .netrc
                answer = session.request(
                    method, self._url + path, json=body, timeout=self._timeout_seconds, allow_redirects=False
                )
        except requests.Timeout:
            raise self._refused(f"no answer in {self._timeout_seconds:g} s: see whether its JobManager runs") from None
        except requests.ConnectionError:
            raise self._refused(
                "it cannot be reached: see whether its JobManager runs, and check --flink-master"
            ) from None
        except (requests.RequestException, OSError, ValueError) as problem:
            raise self._refused(f"it cannot be asked ({type(problem).__name__}): check --flink-master") from None
        try:
            content = answer.json()
        except ValueError:
            raise self._refused(
                f"not Flink's REST interface, it answers {answer.status_code} without JSON: check --flink-master"
            ) from None
        if answer.ok and answer.status_code < 300:
            return content
        said = content.get("errors") if isinstance(content, dict) else None
        words = _first_cause("\n".join(map(str, said))) if isinstance(said, list) else "it gives no reason"
        raise self._refused(f"it answers {answer.status_code} ({words}): see what runs there")

    def _reading(self) -> _Reading:
        return _Reading(self)

    def _refused(self, what: str) -> FlinkRefused:
        return FlinkRefused(f"Flink at {self._shown}: {what}")


class _Reading:
    """Around what takes an answer apart: one that is not as Flink's is refused."""

    def __init__(self, cluster: FlinkCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if isinstance(problem, (LookupError, TypeError, ValueError, AttributeError)):
            raise self._cluster._refused(
                f"its answer is not one of Flink 1.19 ({type(problem).__name__} {problem}): check --flink-master"
            ) from None


def address(master: str) -> str:
    """The URL of a REST interface, of HOST:PORT or a URL."""
    url = (master if "://" in master else f"http://{master}").rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        good = False
    if not good:
        raise FlinkRefused(f"Flink at {master[:200]!r}: not an address: give HOST:PORT of its REST interface")
    return url


def _job(found: Mapping[str, Any]) -> Job:
    return Job(str(found["jid"]), str(found["name"]), str(found["state"]), int(found["start-time"]))


def _vertex(found: Mapping[str, Any]) -> Vertex:
    tasks = {str(state): int(number) for state, number in found["tasks"].items() if number}
    return Vertex(str(found["id"]), str(found["name"]), int(found["parallelism"]), str(found["status"]), tasks)


def _checkpoint(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        id=int(found["id"]),
        path=str(found.get("external_path") or ""),
        written_bytes=int(found.get("checkpointed_size", found["state_size"])),
        full_bytes=int(found["state_size"]),
        seconds=int(found["end_to_end_duration"]) / 1000,
        completed_ms=int(found["latest_ack_timestamp"]),
        is_savepoint=bool(found["is_savepoint"]),
    )


def _troubles(found: Mapping[str, Any]) -> Iterator[str]:
    """What went wrong, each in one line: first why the job failed, then what it was restarted for."""
    entries = (found.get("exceptionHistory") or {}).get("entries") or []
    said = [found.get("root-exception"), *(entry.get("stacktrace") for entry in entries)]
    yield from dict.fromkeys(_first_cause(one) for one in said if one)


def _first_cause(said: Any) -> str:
    """What a Java stack trace comes down to: its innermost cause, in one line without a terminal's control codes."""
    text = said if isinstance(said, str) else str(_of(said, "stack-trace") or _of(said, "class") or "no reason given")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = (causes or lines or ["no reason given"])[-1 if causes else 0]
    line = re.sub(r"^(?:[\w$]+\.)+(?=[\w$]+(?:Exception|Error)\b)", "", line)
    return "".join(c if c.isprintable() else " " for c in line)[:_MOST_WORDS]


def _of(found: Any, *names: str) -> Any:
    """What lies in an answer under some names; None if it is made differently."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _numbers(found: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, float]]:
    for name, value in found:
        with suppress(TypeError, ValueError):
            number = float(value)
            if math.isfinite(number):
                yield str(name), number


def _listed(names: Iterable[str]) -> str:
    return ",".join(quote(name, safe="") for name in names)


def _in_parts(names: list[str]) -> Iterator[list[str]]:
    """The names in lists that fit into a URL. A comma would end a name: Flink writes it as something else."""
    part: list[str] = []
    for name in names:
        if part and sum(map(len, part)) + len(name) > _MOST_NAMES:
            yield part
            part = []
        part.append(name)
    if part:
        yield part


_TOGETHER: dict[How, Callable[[list[float]], float]] = {"sum": math.fsum, "max": max, "min": min, "avg": fmean}


def _until(ask: Callable[[], _Answer], done: Callable[[_Answer], bool], limit_seconds: float) -> _Answer | None:
    """What is answered when it is done; None if it is not within the limit."""
    deadline = time.monotonic() + limit_seconds
    pause = Event()
    while True:
        answer = ask()
        if done(answer):
            return answer
        if time.monotonic() >= deadline:
            return None
        pause.wait(_PAUSE_SECONDS)
