"""`opicflow-worker`: starts one of Beam's Python workers, for runners with environment type PROCESS.

It replaces the boot program of Beam's containers and uses the installed packages: it downloads and installs nothing, so
a pipeline sends no main session and no packages. The worker ends with the process that started it.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take seconds
    from opicflow.schemas.interrupts import end_in_one_line

    end_in_one_line("opicflow-worker")

import argparse
import faulthandler
import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # copies of the process, which write snapshots, use no gRPC
import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from google.protobuf import json_format, text_format

from opicflow.pipelines.stages.bundle_ends import bundles_end_sooner
from opicflow.schemas.errors import UserError, printable
from opicflow.schemas.libraries import LibraryRefused, parts_of

LOGS = "OPICFLOW_WORKER_LOGS"
"""The environment variable that names the folder of the logs."""

_RESPONSE_SECONDS = 60.0
_CHECK_SECONDS = 0.5
_MOST_BYTES = 4 << 20  # of a log file; the file before it is kept too
_MOST_LOGS = 32
_PLAIN = frozenset((bytes, str, int, float, bool))


class LogsRefused(UserError):
    """The folder of the logs is not safe. One line: which folder, and why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it ends."""
    chosen = _parser().parse_args(arguments)
    parent = os.getppid()
    named = chosen.logs or os.environ.get(LOGS)
    try:
        log = WorkerLog(Path(named) if named else None)
    except (OSError, LogsRefused) as problem:
        reason = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
        print(printable(f"{reason}: name a folder for the workers' logs in {LOGS}"), file=sys.stderr)
        return 2
    log.take_over()
    Thread(target=_watch_parent, args=(parent, log), name="watch-parent", daemon=True).start()
    print(printable(f"opicflow-worker {chosen.id}, of process {parent}"), flush=True)
    try:
        os.environ.update(environment_of(chosen))
    except grpc.RpcError as problem:
        code = problem.code().name if isinstance(problem, grpc.Call) else type(problem).__name__
        words = f"{chosen.provision_endpoint}: the runner does not return the settings of the job: {code}"
        print(printable(words), file=sys.stderr)
        return 2
    try:
        with parts_of("apache-beam", "apache_beam"):
            from apache_beam.runners.worker import sdk_worker_main  # slow: after the arguments were checked

            measure_plain_state()
        with bundles_end_sooner():
            sdk_worker_main.main(sys.argv)  # type: ignore[no-untyped-call]
    except LibraryRefused as problem:
        print(printable(str(problem)), file=sys.stderr)
        return 2
    return 0


def environment_of(chosen: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables of the worker: the settings of the job, and the addresses of the runner."""
    with grpc.insecure_channel(chosen.provision_endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)  # type: ignore[no-untyped-call]
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        known_as = [("worker_id", chosen.id)]
        info = service.GetProvisionInfo(request, metadata=known_as, timeout=_RESPONSE_SECONDS, wait_for_ready=True).info
    found = {
        "WORKER_ID": chosen.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options, indent=None),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if chosen.semi_persist_dir:  # Beam runs programs that it finds there: never the temporary folder
        found["SEMI_PERSISTENT_DIRECTORY"] = chosen.semi_persist_dir
    endpoints = {
        "LOGGING": info.logging_endpoint.url or chosen.logging_endpoint,
        "CONTROL": info.control_endpoint.url or chosen.control_endpoint,
        "STATUS": info.status_endpoint.url,
    }
    for name, url in endpoints.items():
        if url:
            descriptor = endpoints_pb2.ApiServiceDescriptor(url=url)
            found[f"{name}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(descriptor, as_one_line=True)
    return found


def measure_plain_state() -> None:
    """Make Beam measure the state of our stages, which is bytes and numbers, by their sizes.

    Beam measures each value of state that it keeps in memory, twice for each bundle. It looks through the globals of
    all modules to do so, which took 7 % of a worker's time.
    """
    from apache_beam.runners.worker import statecache

    measure_any = statecache.get_deep_size

    def measure(*values: Any) -> int:
        if all(type(value) is list and all(type(one) in _PLAIN for one in value) for value in values):
            return sum(sys.getsizeof(value) + sum(map(sys.getsizeof, value)) for value in values)
        return measure_any(*values)

    statecache.get_deep_size = measure


class WorkerLog:
    """The output of a worker, with crashes, in a file named after its process. Log records go to the runner."""

    def __init__(self, named: Path | None = None, most_bytes: int = _MOST_BYTES, most_logs: int = _MOST_LOGS) -> None:
        """Create the file, and remove the oldest files of workers that have ended.

        Without a named folder it is one of the user's own in the temporary folder.
        """
        folder = _checked_folder(named)
        self.path = folder / f"opicflow-worker-{os.getpid()}.log"
        self._most_bytes = most_bytes
        self._open().close()
        for old in _ended(folder, most_logs):
            with suppress(FileNotFoundError):
                old.unlink()

    def take_over(self) -> None:
        """Redirect all output of this process, including native code, into the file."""
        with self._open() as file:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        faulthandler.enable(2)

    def bound(self) -> None:
        """Begin a new file if this one is too large. The old file is kept beside it."""
        if os.fstat(1).st_size > self._most_bytes:
            self.path.replace(self.path.with_suffix(".log.1"))
            self.take_over()

    def _open(self) -> IO[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self.path, flags, 0o600), "ab", buffering=0)


def _checked_folder(named: Path | None) -> Path:
    """Make the folder of the logs if it is missing. Refuse one in which another user could put files or links."""
    folder = named or Path(tempfile.gettempdir()) / f"opicflow-workers-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat() if named else folder.lstat()  # where a named folder is, is the user's own choice
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        raise LogsRefused(f"{folder}: it is a link")
    if found.st_uid != os.getuid():
        raise LogsRefused(f"{folder}: it belongs to another user")
    if named is None and mode & 0o077:
        raise LogsRefused(f"{folder}: others have access to it (mode {mode:o})")
    if mode & 0o022:
        raise LogsRefused(f"{folder}: others may write to it (mode {mode:o})")
    return folder


def _ended(folder: Path, most: int) -> list[Path]:
    """Return the logs of processes that have ended, without the `most` latest logs."""
    logs = []
    for path in folder.glob("opicflow-worker-*.log*"):
        with suppress(FileNotFoundError):
            logs.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(logs)[:-most] if not _is_alive(path)]


def _is_alive(log: Path) -> bool:
    number = re.search(r"-(\d+)\.log", log.name)
    if number is None:
        return True
    try:
        os.kill(int(number[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _watch_parent(parent: int, log: WorkerLog) -> None:
    """End this process when its parent has ended, and limit the size of its log.

    The system's parent-death signal does not work here: it is sent when the thread that started this process ends, and
    the threads of a TaskManager end with their tasks while other tasks still use the worker.
    """
    pause = Event()
    while os.getppid() == parent:
        with suppress(OSError):  # a full disk must not end the work
            log.bound()
        pause.wait(_CHECK_SECONDS)
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="opicflow-worker", description=__doc__, allow_abbrev=False)
    parser.add_argument("--id", required=True, help="the id that the runner gave this worker")
    parser.add_argument("--provision_endpoint", required=True, help="address of the settings of the job")
    parser.add_argument("--logging_endpoint", default="", help="address for log records")
    parser.add_argument("--control_endpoint", default="", help="address for requests to the worker")
    parser.add_argument("--artifact_endpoint", default="", help="not used: all packages are installed")
    parser.add_argument("--semi_persist_dir", default="", help="folder for files of the worker (none)")
    parser.add_argument("--logs", metavar="FOLDER", help=f"folder for its output (${LOGS}, or your own temporary one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
