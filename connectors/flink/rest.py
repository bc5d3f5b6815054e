"""A client of Flink's REST interface: jobs, their checkpoints, savepoints and metrics."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any, NamedTuple, TypeVar
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


class FlinkRefused(UserError):
    """A Flink cluster refused a request. The message has the reason and what to do, in one line."""


@dataclass(frozen=True)
class Overview:
    """The size of a cluster."""

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
        """Whether it has ended for good."""
        return self.state in _ENDED


@dataclass(frozen=True)
class Vertex:
    """A stage of a job. `subtasks` has the number of subtasks in each state."""

    id: str
    name: str
    parallelism: int
    state: str
    subtasks: Mapping[str, int]


class Trouble(NamedTuple):
    """A failure of a job: when it was, 0 = not known, and its cause in one line."""

    at_ms: int
    cause: str


@dataclass(frozen=True)
class JobDetails:
    """The details of a job. `trouble` has each recent failure, the latest first.

    `restarts` is a metric of Flink, which may be late, or missing (0) after a TaskManager was lost. `running_since_ms`
    is reliable: it changes with every restart, and is 0 before the first start. `now_ms` is the clock of the cluster.
    """

    job: Job
    vertices: tuple[Vertex, ...]
    restarts: int
    running_since_ms: int
    trouble: tuple[Trouble, ...]
    now_ms: int = 0

    @property
    def runs(self) -> bool:
        """Whether the job and all its subtasks run."""
        every = all(vertex.subtasks.get("RUNNING", 0) == vertex.parallelism for vertex in self.vertices)
        return self.job.state == "RUNNING" and bool(self.vertices) and every

    @property
    def slots_needed(self) -> int:
        """The slots that the job waits for: 0 if all its subtasks have one. A slot takes a subtask of each stage."""
        waits = any(vertex.subtasks.get("SCHEDULED", 0) for vertex in self.vertices)
        return max(vertex.parallelism for vertex in self.vertices) if waits else 0

    @property
    def lasting_trouble(self) -> tuple[Trouble, ...]:
        """The failures after which not all of the job came to run again."""
        return tuple(one for one in self.trouble if not self.runs or one.at_ms >= self.running_since_ms)


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint or savepoint. `written_bytes` is the size of its new files."""

    id: int
    path: str
    written_bytes: int
    seconds: float


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job since it was submitted. `retained` are those not yet deleted, the latest first.

    Checkpoints fail while the tasks of a job start. `failed_since_last` counts those that failed after the last
    complete one, as far back as Flink remembers.
    """

    completed: int
    failed: int
    failed_since_last: int
    running: int
    restored: int
    last: Checkpoint | None
    retained: tuple[Checkpoint, ...]
    restored_path: str = ""
    """The checkpoint or savepoint that the job continued from last; empty = none."""
    waiting_since_ms: int = 0
    """When the oldest one was begun that is neither complete nor failed; 0 = there is none."""


class FlinkCluster:
    """A cluster, by the address of its REST interface. Requests use no proxy, and connections are closed."""

    def __init__(self, master: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        """`master` is HOST:PORT, or a URL."""
        self._url = address(master)
        self._shown = self._url
        self._timeout_seconds = timeout_seconds

    def overview(self) -> Overview:
        """Return the size of the cluster."""
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
        """Return the jobs of the cluster, including those that have ended, or those with a name; the latest first."""
        found = self._get("/jobs/overview")
        with self._reading():
            jobs = [_job(one) for one in found["jobs"]]
        return sorted((job for job in jobs if name in (None, job.name)), key=lambda job: (-job.started_ms, job.id))

    def find(self, name: str) -> Job:
        """Return the job with this name that has not ended; raises `FlinkRefused` unless there is exactly one."""
        found = [job for job in self.jobs(name) if not job.ended]
        if not found:
            others = ", ".join(sorted({job.name for job in self.jobs() if not job.ended})) or "none"
            raise self._refused(f"no job {name!r} runs there: see which do ({others}), or give another --name")
        if len(found) > 1:
            ids = ", ".join(job.id for job in found)
            raise self._refused(f"{len(found)} jobs {name!r} run there ({ids}): cancel all but one on its page")
        return found[0]

    def details(self, job_id: str) -> JobDetails:
        """Return the details of a job."""
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
                now_ms=int(found["now"]),
            )

    def beam_options(self, job_id: str) -> dict[str, str]:
        """Return the options that a Beam job was submitted with, as Flink shows them."""
        shown = _of(self._of_job(job_id, "/config"), "execution-config", "user-config")
        return {str(name): str(value) for name, value in (shown or {}).items()}

    def cancel(self, job_id: str) -> Job:
        """End a job without a savepoint, and wait for the end. Its retained checkpoints stay."""
        if self._state(job_id).ended:
            return self._state(job_id)
        self._of_job(job_id, "?mode=cancel", "PATCH")
        return self._ended(job_id)

    # -- checkpoints and savepoints

    def checkpoints(self, job_id: str) -> Checkpoints:
        """Return the checkpoints of a job."""
        found = self._of_job(job_id, "/checkpoints")
        with self._reading():
            counts, last = found["counts"], found["latest"]["completed"]
            newest = int(last["id"]) if last else 0
            failed = [one for one in found["history"] if one["status"] == "FAILED" and int(one["id"]) > newest]
            begun = [int(one["trigger_timestamp"]) for one in found["history"] if one["status"] == "IN_PROGRESS"]
            kept = [one for one in found["history"] if one["status"] == "COMPLETED" and not one.get("discarded")]
            return Checkpoints(
                completed=int(counts["completed"]),
                failed=int(counts["failed"]),
                failed_since_last=len(failed),
                running=int(counts["in_progress"]),
                restored=int(counts["restored"]),
                last=_checkpoint(last) if last else None,
                restored_path=str((found["latest"].get("restored") or {}).get("external_path") or ""),
                retained=tuple(_checkpoint(one) for one in sorted(kept, key=lambda one: -int(one["id"]))),
                waiting_since_ms=min(begun, default=0),
            )

    def stop(self, job_id: str, folder: str | None = None) -> str:
        """End a job with a savepoint and return its path. The job emits nothing after the savepoint.

        `folder` is a URL for Flink, `file:///...` or that of a supported store; None = the default of the cluster. All
        sources of the job must support stopping; Beam's `FlinkStreamingImpulseSource` does.
        """
        body = {"drain": False, **({"targetDirectory": folder} if folder else {})}
        accepted = self._of_job(job_id, "/stop", "POST", body)
        with self._reading():
            request = str(accepted["request-id"])
        answer = _until(
            lambda: self._of_job(job_id, f"/savepoints/{request}"),
            lambda one: _of(one, "status", "id") == "COMPLETED",
            _SAVEPOINT_SECONDS,
        )
        if answer is None:
            raise self._refused(
                f"the savepoint of job {job_id} is not complete after {_SAVEPOINT_SECONDS:g} s: "
                "check that its checkpoints complete, and try again"
            )
        path = _of(answer, "operation", "location")
        if not path:
            cause = _first_cause(_of(answer, "operation", "failure-cause"))
            raise self._refused(
                f"no savepoint of job {job_id}: {cause}: check the folder, and that all of the job runs, or cancel "
                "it on this page"
            )
        self._ended(job_id)
        return str(path)

    # -- metrics

    def job_metrics(self, job_id: str, names: Iterable[str]) -> dict[str, float]:
        """Return metrics of a job as a whole, such as `numRestarts`, if they exist and are numbers."""
        found = self._of_job(job_id, f"/metrics?get={_listed(names)}")
        with self._reading():
            return dict(_numbers((one["id"], one.get("value")) for one in found))

    def metrics(self, job_id: str, vertex_id: str, pattern: str) -> dict[str, float]:
        """Return the metrics of a vertex whose full names match a pattern, as sums over its subtasks."""
        path = f"/vertices/{vertex_id}/subtasks/metrics"
        offered = self._of_job(job_id, path)
        with self._reading():
            names = [name for one in offered if re.fullmatch(pattern, name := str(one["id"]))]
        values: dict[str, float] = {}
        for some in _in_parts(names):
            found = self._of_job(job_id, f"{path}?get={_listed(some)}&agg=sum")
            with self._reading():
                values.update(_numbers((one["id"], one.get("sum")) for one in found))
        return values

    def beam_metrics(self, job_id: str) -> dict[str, float]:
        """Return the counters and gauges of a pipeline of opicflow by name, as sums over steps and subtasks.

        Each step counts from its last start. For a gauge, each subtask has the value that it set last. Flink does not
        report distributions as numbers.
        """
        found = self._of_job(job_id, "")
        with self._reading():
            vertices = [str(one["id"]) for one in found["vertices"]]
        values: dict[str, list[float]] = {}
        for vertex in vertices:
            for name, value in self.metrics(job_id, vertex, r"(?:.*\.)?opicflow_[^.]+").items():
                values.setdefault(name.rpartition(".")[2].removeprefix("opicflow_"), []).append(value)
        return {name: math.fsum(some) for name, some in sorted(values.items())}

    # -- one request

    def _state(self, job_id: str) -> Job:
        found = self._of_job(job_id, "")
        with self._reading():
            return Job(found["jid"], found["name"], found["state"], int(found["start-time"]))

    def _ended(self, job_id: str) -> Job:
        job = _until(lambda: self._state(job_id), lambda one: one.ended, _STOP_SECONDS)
        if job is None:
            raise self._refused(
                f"job {job_id} has not ended {_STOP_SECONDS:g} s after the request: cancel it on its page"
            )
        return job

    def _of_job(self, job_id: str, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        if not re.fullmatch("[0-9a-f]{32}", job_id):
            raise self._refused(f"{job_id[:100]!r} is not the id of a job, 32 digits 0-9a-f: see the list of jobs")
        return self._get(f"/jobs/{job_id}{path}", method, body)

    def _get(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """Return the content of a response."""
        try:
            with requests.Session() as session:
                session.trust_env = False  # no proxies, no .netrc
                answer = session.request(
                    method, self._url + path, json=body, timeout=self._timeout_seconds, allow_redirects=False
                )
        except requests.Timeout:
            raise self._refused(f"no answer in {self._timeout_seconds:g} s: check that its JobManager runs") from None
        except requests.ConnectionError:
            raise self._refused("it cannot be reached: check that its JobManager runs, and --flink-master") from None
        except (requests.RequestException, OSError, ValueError) as problem:
            raise self._refused(f"the request failed ({type(problem).__name__}): check --flink-master") from None
        try:
            content = answer.json()
        except ValueError:
            raise self._refused(
                f"not Flink's REST interface, it returns {answer.status_code} without JSON: check --flink-master"
            ) from None
        if answer.ok and answer.status_code < 300:
            return content
        errors = content.get("errors") if isinstance(content, dict) else None
        reason = _first_cause("\n".join(map(str, errors))) if isinstance(errors, list) else "it gives no reason"
        raise self._refused(f"it returns {answer.status_code} ({reason}): check what runs there")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Refuse a response whose structure is not that of Flink."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            raise self._refused(
                f"its response is not that of Flink 1.19 ({type(problem).__name__} {problem}): check --flink-master"
            ) from None

    def _refused(self, reason: str) -> FlinkRefused:
        return FlinkRefused(f"Flink at {self._shown}: {reason}")


def address(master: str) -> str:
    """Return the URL of a REST interface for HOST:PORT or a URL."""
    url = (master if "://" in master else f"http://{master}").rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
        has_user = "@" in parts.netloc
    except ValueError:
        good = has_user = False
    if has_user:
        shown = parts.netloc.rpartition("@")[2][:200]
        raise FlinkRefused(
            f"Flink at {shown!r}: its address holds a user name and perhaps a password, which would be visible to "
            "everybody on the machine: omit them, and protect the interface by its network"
        )
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
        seconds=int(found["end_to_end_duration"]) / 1000,
    )


def _troubles(found: Mapping[str, Any]) -> Iterator[Trouble]:
    """Yield each failure once: first the one that ended the job, then those that restarted it."""
    entries = (found.get("exceptionHistory") or {}).get("entries") or []
    failures = [(found.get("timestamp"), found.get("root-exception"))]
    failures += [(entry.get("timestamp"), entry.get("stacktrace")) for entry in entries]
    seen = set[str]()
    for at_ms, trace in failures:
        cause = _first_cause(trace) if trace else ""
        if cause and cause not in seen:
            seen.add(cause)
            yield Trouble(int(at_ms or 0), cause)


def _python_cause(text: str) -> str | None:
    """Return the error that ended a Python worker's traceback within a Java stack trace, None if there is none."""
    _, mark, traceback = text.rpartition("Traceback (most recent call last):")
    lines = re.split(r"\n\s*at ", traceback)[0].splitlines() if mark else []
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(: |$)", line)]
    return re.sub(r"^(?:\w+\.)+(?=\w+(?:: |$))| \[while running .*", "", errors[-1]) if errors else None


def _first_cause(trace: Any) -> str:
    """Return the innermost cause of a Java stack trace, as one line without control characters."""
    text = (
        trace if isinstance(trace, str) else str(_of(trace, "stack-trace") or _of(trace, "class") or "no reason given")
    )
    line = _python_cause(text) or _java_cause(text)
    return "".join(c if c.isprintable() else " " for c in line)[:_MOST_WORDS]


def _java_cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    named = [one for one in causes if "IOException: error=" not in one]  # Java's cause before it names the program
    line = (named or causes or lines or ["no reason given"])[-1 if causes else 0]
    return re.sub(r"^(?:[\w$]+\.)+(?=[\w$]+(?:Exception|Error)\b)", "", line)


def _of(found: Any, *names: str) -> Any:
    """Return the value under nested names; None if there is none."""
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
    """Yield lists of names that fit into a URL. Names contain no comma: Flink replaces it."""
    part: list[str] = []
    for name in names:
        if part and sum(map(len, part)) + len(name) > _MOST_NAMES:
            yield part
            part = []
        part.append(name)
    if part:
        yield part


def _until(request: Callable[[], _Answer], done: Callable[[_Answer], bool], limit_seconds: float) -> _Answer | None:
    """Repeat a request until its response is `done`; returns None after the time limit."""
    deadline = time.monotonic() + limit_seconds
    pause = Event()
    while True:
        answer = request()
        if done(answer):
            return answer
        if time.monotonic() >= deadline:
            return None
        pause.wait(_PAUSE_SECONDS)
