"""The boot command of Beam's workers: its settings from the runner, its logs, and its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from google.protobuf import json_format, struct_pb2, text_format

from deploy.services.processes import birth, wait_until
from opicflow.pipelines.stream import worker
from opicflow.pipelines.stream.worker import LogsRefused, WorkerLog

WORKER = [sys.executable, "-m", "opicflow.pipelines.stream.worker"]


class Runner(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """Provides the settings of a job, and keeps the ids of the workers that request them."""

    def __init__(self, **info: Any) -> None:
        self.info = beam_provision_api_pb2.ProvisionInfo(**info)
        self.worker_ids: list[Any] = []

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        self.worker_ids.append(dict(context.invocation_metadata())["worker_id"])
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)


@contextmanager
def listening(runner: Runner) -> Iterator[str]:
    """Run the runner at a free port."""
    server = grpc.server(ThreadPoolExecutor(2))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(runner, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def endpoint(url: str) -> Any:
    return endpoints_pb2.ApiServiceDescriptor(url=url)


def environment_for(*arguments: str) -> dict[str, str]:
    """Return the environment of a worker with these arguments."""
    return worker.environment_of(worker._parser().parse_args(arguments))


def test_a_worker_gets_the_same_settings_as_from_the_boot_program_of_beam(tmp_path: Path) -> None:
    options = json_format.ParseDict({"beam:option:job_name:v1": "ünï", "x": [1, None]}, struct_pb2.Struct())
    runner = Runner(
        pipeline_options=options,
        logging_endpoint=endpoint("logs:1"),
        control_endpoint=endpoint("control:2"),
        status_endpoint=endpoint("status:3"),
        runner_capabilities=["beam:a:v1", "beam:b:v1"],
    )
    with listening(runner) as provision:
        found = environment_for("--id=1-2", f"--provision_endpoint={provision}", f"--semi_persist_dir={tmp_path}")
    assert runner.worker_ids == ["1-2"]
    services = {name: found.pop(f"{name}_API_SERVICE_DESCRIPTOR") for name in ("LOGGING", "CONTROL", "STATUS")}
    urls = {name: text_format.Parse(text, endpoint("")).url for name, text in services.items()}
    assert urls == {"LOGGING": "logs:1", "CONTROL": "control:2", "STATUS": "status:3"}
    assert json.loads(found.pop("PIPELINE_OPTIONS")) == {"beam:option:job_name:v1": "ünï", "x": [1, None]}
    assert found == {
        "WORKER_ID": "1-2",
        "SEMI_PERSISTENT_DIRECTORY": str(tmp_path),
        "RUNNER_CAPABILITIES": "beam:a:v1 beam:b:v1",
    }


def test_addresses_that_the_runner_does_not_provide_come_from_the_arguments() -> None:
    with listening(Runner()) as provision:
        given = [f"--provision_endpoint={provision}", "--logging_endpoint=logs:4", "--control_endpoint=control:5"]
        found = environment_for("--id=1-1", *given, "--artifact_endpoint=artifacts:6")
    assert found["LOGGING_API_SERVICE_DESCRIPTOR"] == 'url: "logs:4"'
    assert found["CONTROL_API_SERVICE_DESCRIPTOR"] == 'url: "control:5"'
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in found


def test_a_worker_loads_no_program_from_the_temporary_folder() -> None:
    # Beam would unpickle staged/pickled_main_session below it, and import the modules in staged.
    with listening(Runner()) as provision:
        found = environment_for("--id=1-1", f"--provision_endpoint={provision}")
    assert "SEMI_PERSISTENT_DIRECTORY" not in found


def started(folder: Path | None, provision: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, worker.LOGS: str(folder or ""), **variables}
    command = [*WORKER, "--id=1-1", f"--provision_endpoint={provision}"]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120)


def test_all_that_a_worker_prints_goes_into_its_log_and_nowhere_else(tmp_path: Path) -> None:
    # The runner provides no address of the control service: the worker fails after it has the settings.
    with listening(Runner()) as provision:
        done = started(tmp_path / "logs", provision)
    assert done.returncode != 0
    assert (done.stdout, [line for line in done.stderr.splitlines() if "apitools" not in line]) == ("", [])
    (log,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"opicflow-worker-\d+\.log", log.name)
    assert log.read_text().startswith(f"opicflow-worker 1-1, of process {os.getpid()}\n")
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_an_impossible_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = started(tmp_path / "file" / "logs", "127.0.0.1:1")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "apitools" not in line]
    assert line.endswith(f"name a folder for the workers' logs in {worker.LOGS}")


def refused(folder: Path | None, **variables: str) -> str:
    done = started(folder, "127.0.0.1:1", **variables)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if "apitools" not in line]
    return line


def test_without_a_name_logs_are_in_a_folder_of_the_user_alone(tmp_path: Path) -> None:
    with listening(Runner()) as provision:
        started(None, provision, TMPDIR=str(tmp_path))
    (folder,) = tmp_path.iterdir()
    assert (folder.name, folder.stat().st_mode & 0o777) == (f"opicflow-workers-{os.getuid()}", 0o700)
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


@pytest.mark.slow
def test_a_folder_that_somebody_else_prepared_is_refused_in_one_line(tmp_path: Path) -> None:
    elsewhere, mine = tmp_path / "elsewhere", tmp_path / f"opicflow-workers-{os.getuid()}"
    elsewhere.mkdir(0o700)
    mine.symlink_to(elsewhere)
    advice = f"name a folder for the workers' logs in {worker.LOGS}"
    assert refused(None, TMPDIR=str(tmp_path)) == f"{mine}: it is a link: {advice}"
    mine.unlink()
    mine.symlink_to(tmp_path / "nowhere")
    assert refused(None, TMPDIR=str(tmp_path)).endswith(f"File exists: {advice}")
    mine.unlink()
    mine.mkdir()
    mine.chmod(0o750)
    assert refused(None, TMPDIR=str(tmp_path)) == f"{mine}: others have access to it (mode 750): {advice}"
    assert list(elsewhere.iterdir()) == list(mine.iterdir()) == []


def test_a_named_folder_may_be_read_by_others_but_not_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    WorkerLog(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(LogsRefused, match=r"others may write to it \(mode 777\)"):
        WorkerLog(tmp_path)
    tmp_path.chmod(0o700)


def test_the_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1 + tmp_path.stat().st_uid)
    with pytest.raises(LogsRefused, match="it belongs to another user"):
        WorkerLog(tmp_path)


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(0o700)
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "logs" / f"opicflow-worker-{os.getpid()}.log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        WorkerLog(tmp_path / "logs").take_over()
    assert target.read_bytes() == b""


def test_a_worker_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, threading\n"
        # A thread starts the worker and ends: that must not end the worker.
        "def start():\n    print(subprocess.Popen(sys.argv[1:]).pid, flush=True)\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join(); threading.Event().wait()"
    )
    command = [sys.executable, "-c", code, *WORKER, "--id=1-1", "--provision_endpoint=127.0.0.1:1"]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, worker.LOGS: str(tmp_path)}
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        log = tmp_path / f"opicflow-worker-{pid}.log"
        assert wait_until(lambda: log.exists() and log.stat().st_size > 0, 60)
        assert birth(pid) is not None
        parent.kill()
    assert wait_until(lambda: birth(pid) is None, 30)


# -- logs


@pytest.fixture
def outputs() -> Iterator[None]:
    """Restore the outputs of this process after the test."""
    kept = os.dup(1), os.dup(2)
    yield
    for number, copy in enumerate(kept, 1):
        os.dup2(copy, number)
        os.close(copy)


@pytest.mark.usefixtures("outputs")
def test_a_full_log_is_rotated_and_the_previous_one_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        log = WorkerLog(tmp_path, most_bytes=100)
        log.take_over()
        for number in range(10):
            os.write(1 + number % 2, b"%d" % number * 60)
            log.bound()
    assert sorted(path.name for path in tmp_path.iterdir()) == [log.path.name, f"{log.path.name}.1"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 160
    assert (log.path.with_suffix(".log.1").read_text() + log.path.read_text()).endswith("8" * 60 + "9" * 60)


def test_only_logs_of_ended_workers_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    others = [tmp_path / "else.log", tmp_path / f"opicflow-worker-{os.getppid()}.log"]
    logs = [tmp_path / f"opicflow-worker-{ended.pid}.log", tmp_path / f"opicflow-worker-{ended.pid}.log.1"]
    for age, path in enumerate([*others, *logs]):
        path.touch()
        os.utime(path, (age, age))
    mine = WorkerLog(tmp_path, most_logs=2).path
    assert set(tmp_path.iterdir()) == {*others, logs[1], mine}


def test_state_is_as_large_as_beam_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from apache_beam.runners.worker import statecache

    by_beam = statecache.get_deep_size
    monkeypatch.setattr(statecache, "get_deep_size", by_beam)  # is put back
    worker.measure_plain_state()
    values: list[Any] = [[], [b"a head"], [b"x" * 1000, 7, 1.5, "text"], [[1], {"deep": [b"y" * 100]}], {"a": b"bytes"}]
    assert [statecache.get_deep_size(value) for value in values] == [by_beam(value) for value in values]
    cache = statecache.StateCache(1000)
    cache.put("small", [b"x"])
    cache.put("large", [b"x" * 2000])
    assert cache.peek("large") is None, "the limit of the cache holds"
