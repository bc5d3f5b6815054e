"""The client of Flink's REST interface, with good and odd answers. The real one: stream/test_cluster.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter

from opicflow.connectors.flink import rest
from opicflow.connectors.flink.rest import FlinkCluster, FlinkRefused, Job, Trouble
from support.fake_flink import FakeFlink, Responses, fake_flink

ID, OTHER, VERTEX = "1" * 32, "2" * 32, "3" * 32
STACK = (
    "java.util.concurrent.CompletionException: java.io.IOException: no\n\tat a.B.c(B.java:1)\n"
    "Caused by: java.io.IOException: Failed to create savepoint directory at file:/nowhere\n\tat a.B.d(B.java:2)\n"
)


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with fake_flink() as fake:
        yield fake


@pytest.fixture
def cluster(flink: FakeFlink) -> FlinkCluster:
    return FlinkCluster(flink.master, timeout_seconds=5)


def listed(*jobs: tuple[str, str, str, int]) -> dict[str, Any]:
    return {"jobs": [dict(zip(("jid", "name", "state", "start-time"), job, strict=True)) for job in jobs]}


def details(state: str = "RUNNING", **tasks: int) -> dict[str, Any]:
    vertex = {"id": VERTEX, "name": "[1]KeepLedger", "parallelism": 4, "status": "RUNNING", "tasks": tasks}
    return {
        "jid": ID,
        "name": "opicflow",
        "state": state,
        "start-time": 7,
        "timestamps": {"RUNNING": 8},
        "now": 9,
        "vertices": [vertex],
    }


def checkpoint(number: int, **changes: Any) -> dict[str, Any]:
    values = {"id": number, "status": "COMPLETED", "is_savepoint": False, "checkpointed_size": 10, "state_size": 30}
    times = {"end_to_end_duration": 1500, "latest_ack_timestamp": 99, "external_path": f"file:/chk-{number}"}
    return {**values, **times, "discarded": False, **changes}


# -- where it is


@pytest.mark.parametrize("master", ["", "flink", "flink:x", "ftp://flink:1", "http://:8081", "http://flink", "a:99999"])
def test_an_invalid_address_is_refused_in_one_line(master: str) -> None:
    with pytest.raises(FlinkRefused, match=r"not an address: give HOST:PORT") as refused:
        FlinkCluster(master)
    assert "\n" not in str(refused.value)


def test_a_cluster_that_is_not_there_is_refused_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(
            FlinkRefused, match=r"^Flink at http://127.0.0.1:\d+: it cannot be reached: .*--flink-master$"
        ):
            FlinkCluster(f"127.0.0.1:{taken.getsockname()[1]}").overview()


def test_a_cluster_that_does_not_answer_is_left_after_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        cluster = FlinkCluster(f"127.0.0.1:{deaf.getsockname()[1]}", timeout_seconds=0.1)
        with pytest.raises(FlinkRefused, match=r"no answer in 0\.1 s: check that its JobManager runs"):
            cluster.overview()


def test_no_proxy_is_used(flink: FakeFlink, cluster: FlinkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    flink.answers["GET /jobs/overview"] = listed()
    assert cluster.jobs() == []


def test_the_environment_does_not_add_an_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []

    def send(adapter: HTTPAdapter, request: object, **settings: object) -> object:
        used.append(settings["verify"])
        raise requests.ConnectionError

    monkeypatch.setattr(HTTPAdapter, "send", send)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/a/bundle.pem")
    with pytest.raises(FlinkRefused):
        FlinkCluster("https://flink.example:8081").jobs()
    assert used == [True]


@pytest.mark.parametrize("user", ["somebody:secret", "secret", ":secret"])
def test_a_user_in_the_address_is_refused_and_not_shown(user: str, flink: FakeFlink) -> None:
    for master in (f"http://{user}@{flink.master}", f"{user}@{flink.master}"):
        with pytest.raises(FlinkRefused, match=r"its address holds a user name") as refused:
            FlinkCluster(master)
        assert "secret" not in str(refused.value) and flink.master in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>hello</html>", "returns 200 without JSON"),
        ((503, {"errors": ["Service temporarily unavailable due to an ongoing leader election."]}), "returns 503"),
        ((500, {"errors": [STACK]}), "IOException: Failed to create savepoint directory"),
        ((500, {"errors": "odd"}), "gives no reason"),
        ((302, {}), "returns 302"),
        ({}, "not that of Flink 1.19"),
        ([1], "not that of Flink 1.19"),
        ({"flink-version": "1.19", "taskmanagers": "many"}, "not that of Flink 1.19"),
    ],
)
def test_an_answer_that_is_not_from_flink_is_refused_in_one_line(
    answer: Any, words: str, flink: FakeFlink, cluster: FlinkCluster
) -> None:
    flink.answers["GET /overview"] = answer
    with pytest.raises(FlinkRefused, match=words) as refused:
        cluster.overview()
    assert "\n" not in str(refused.value) and "\tat" not in str(refused.value)


# -- jobs


def test_the_one_job_of_a_name_that_has_not_ended_is_found(flink: FakeFlink, cluster: FlinkCluster) -> None:
    flink.answers["GET /jobs/overview"] = listed(
        (ID, "opicflow", "RESTARTING", 5), (OTHER, "opicflow", "CANCELED", 9), ("4" * 32, "else", "RUNNING", 1)
    )
    assert cluster.find("opicflow") == Job(ID, "opicflow", "RESTARTING", 5)
    assert [job.id for job in cluster.jobs("opicflow")] == [OTHER, ID]
    with pytest.raises(FlinkRefused, match=r"no job 'third' runs there: see which do \(else, opicflow\)"):
        cluster.find("third")
    flink.answers["GET /jobs/overview"] = listed((ID, "opicflow", "RUNNING", 5), (OTHER, "opicflow", "CREATED", 9))
    with pytest.raises(FlinkRefused, match=f"2 jobs 'opicflow' run there \\({OTHER}, {ID}\\): cancel all but one"):
        cluster.find("opicflow")


@pytest.mark.parametrize("job_id", ["", "opicflow", "../config", "A" * 32, "1" * 33])
def test_an_invalid_id_is_not_put_into_a_url(job_id: str, flink: FakeFlink, cluster: FlinkCluster) -> None:
    with pytest.raises(FlinkRefused, match="is not the id of a job"):
        cluster.details(job_id)
    assert flink.requests == []


def test_a_job_runs_when_all_its_subtasks_do(flink: FakeFlink, cluster: FlinkCluster) -> None:
    history = {
        "entries": [
            {"stacktrace": STACK, "timestamp": 9},
            {"stacktrace": STACK, "timestamp": 6},
            {"stacktrace": "a.b.Refused: why\x1b[2J\n", "timestamp": 5},
        ]
    }
    flink.answers[f"GET /jobs/{ID}/exceptions"] = {"root-exception": None, "exceptionHistory": history}
    flink.answers[f"GET /jobs/{ID}/metrics?get=numRestarts"] = [{"id": "numRestarts", "value": "3"}]
    for tasks, runs in (({"RUNNING": 4}, True), ({"RUNNING": 3, "INITIALIZING": 1}, False), ({}, False)):
        flink.answers[f"GET /jobs/{ID}"] = details(**tasks)
        assert cluster.details(ID).runs == runs
    for tasks, needed in (({"RUNNING": 4}, 0), ({"SCHEDULED": 4}, 4), ({"RUNNING": 1, "SCHEDULED": 3}, 4)):
        flink.answers[f"GET /jobs/{ID}"] = details(**tasks)
        assert cluster.details(ID).slots_needed == needed
    flink.answers[f"GET /jobs/{ID}"] = details()
    found = cluster.details(ID)
    assert (found.restarts, found.running_since_ms) == (3, 8)
    assert found.trouble == (
        Trouble(9, "IOException: Failed to create savepoint directory at file:/nowhere"),
        Trouble(5, "a.b.Refused: why [2J"),
    )
    assert found.lasting_trouble == found.trouble, "some tasks do not run"
    assert not found.job.ended


def test_trouble_before_all_of_the_job_ran_again_has_healed(flink: FakeFlink, cluster: FlinkCluster) -> None:
    history = {"entries": [{"stacktrace": "a.After: x", "timestamp": 9}, {"stacktrace": "a.Before: x", "timestamp": 7}]}
    flink.answers[f"GET /jobs/{ID}/exceptions"] = {"exceptionHistory": history}
    flink.answers[f"GET /jobs/{ID}/metrics?get=numRestarts"] = []
    flink.answers[f"GET /jobs/{ID}"] = details(RUNNING=4)  # since 8
    assert [one.cause for one in cluster.details(ID).lasting_trouble] == ["a.After: x"]


PYTHON_STACK = """java.util.concurrent.ExecutionException: java.lang.RuntimeException: Error received from SDK harness
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: java.lang.RuntimeException: Error received from SDK harness: Traceback (most recent call last):
  File "/a/opicflow/connectors/kafka/source.py", line 247, in read
    raise no_answer(input_range, 120)
opicflow.connectors.kafka.properties.KafkaRefused: no answer from b:9092 for 120 s while reading crawl-events

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/apache_beam/runners/worker/sdk_worker.py", line 312, in _execute
    response = task()
opicflow.connectors.kafka.properties.KafkaRefused: no answer from b:9092 for 120 s [while running '[8]: Read']

\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.onNext(FnApiControlClient.java:180)
"""


NO_PROGRAM = """java.lang.RuntimeException: failed
\tat a.B.c(B.java:1)
Caused by: java.io.IOException: Cannot run program "/nope": error=2, No such file or directory
\t... 17 more
Caused by: java.io.IOException: error=2, No such file or directory
\t... 31 more
"""


def test_the_cause_in_a_python_worker_is_its_error_and_not_its_traceback(
    flink: FakeFlink, cluster: FlinkCluster
) -> None:
    flink.answers[f"GET /jobs/{ID}/exceptions"] = {"root-exception": PYTHON_STACK, "timestamp": 70}
    flink.answers[f"GET /jobs/{ID}/metrics?get=numRestarts"] = []
    flink.answers[f"GET /jobs/{ID}"] = details("RESTARTING")
    assert cluster.details(ID).trouble == (Trouble(70, "KafkaRefused: no answer from b:9092 for 120 s"),)


def test_a_job_is_cancelled_once_and_waited_for(flink: FakeFlink, cluster: FlinkCluster) -> None:
    flink.answers[f"GET /jobs/{ID}"] = Responses(details(), details("CANCELLING"), details("CANCELED"))
    flink.answers[f"PATCH /jobs/{ID}?mode=cancel"] = (202, {})
    assert cluster.cancel(ID).state == "CANCELED"
    assert cluster.cancel(ID).state == "CANCELED"
    assert [request for request, _ in flink.requests].count(f"PATCH /jobs/{ID}?mode=cancel") == 1


# -- checkpoints


def test_the_checkpoints_that_still_exist_are_returned(flink: FakeFlink, cluster: FlinkCluster) -> None:
    counts = {"restored": 1, "total": 5, "in_progress": 1, "completed": 3, "failed": 1}
    running = {"id": 5, "status": "IN_PROGRESS", "is_savepoint": False, "trigger_timestamp": 1_700_000_000_000}
    failed = [{"id": number, "status": "FAILED", "is_savepoint": False} for number in (7, 6, 1)]
    history = [*failed[:2], running, checkpoint(4), checkpoint(3, is_savepoint=True), checkpoint(2, discarded=True)]
    history.append(failed[2])
    latest = {"completed": checkpoint(4), "savepoint": None, "failed": None, "restored": None}
    flink.answers[f"GET /jobs/{ID}/checkpoints"] = {"counts": counts, "latest": latest, "history": history}
    found = cluster.checkpoints(ID)
    assert (found.completed, found.failed, found.running, found.restored) == (3, 1, 1, 1)
    assert (found.failed_since_last, found.waiting_since_ms) == (2, 1_700_000_000_000)
    assert found.last is not None and found.last.path == "file:/chk-4"
    assert (found.last.written_bytes, found.last.seconds) == (10, 1.5)
    assert [one.id for one in found.retained] == [4, 3]


def test_a_job_without_a_checkpoint_has_none(flink: FakeFlink, cluster: FlinkCluster) -> None:
    counts = dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), 0)
    latest = {"completed": None}
    flink.answers[f"GET /jobs/{ID}/checkpoints"] = {"counts": counts, "latest": latest, "history": []}
    found = cluster.checkpoints(ID)
    assert (found.last, found.waiting_since_ms) == (None, 0)


RUNS, DONE = {"status": {"id": "IN_PROGRESS"}, "operation": None}, {"status": {"id": "COMPLETED"}}


def test_a_job_that_stops_has_a_savepoint_and_has_ended(flink: FakeFlink, cluster: FlinkCluster) -> None:
    flink.answers[f"POST /jobs/{ID}/stop"] = (202, {"request-id": "r"})
    flink.answers[f"GET /jobs/{ID}/savepoints/r"] = Responses(
        RUNS, RUNS, {**DONE, "operation": {"location": "file:/sp"}}
    )
    flink.answers[f"GET /jobs/{ID}"] = Responses(details(), details("FINISHED"))
    assert cluster.stop(ID, "file:///to") == "file:/sp"
    assert flink.requests[0][1] == {"drain": False, "targetDirectory": "file:///to"}
    assert flink.requests[-1][0] == f"GET /jobs/{ID}"


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (
            {"failure-cause": {"class": "x.E", "stack-trace": STACK}},
            "IOException: Failed to create savepoint directory",
        ),
        ({"failure-cause": {"class": "x.E"}}, "x.E"),
        (
            {"failure-cause": {"class": "x.E", "stack-trace": NO_PROGRAM}},
            'IOException: Cannot run program "/nope": error=2, No such file or directory: check the folder',
        ),
        ({}, "no reason given"),
        (None, "no reason given"),
    ],
)
def test_a_savepoint_that_fails_says_why(operation: Any, words: str, flink: FakeFlink, cluster: FlinkCluster) -> None:
    flink.answers[f"POST /jobs/{ID}/stop"] = {"request-id": "r"}
    flink.answers[f"GET /jobs/{ID}/savepoints/r"] = {**DONE, "operation": operation}
    with pytest.raises(FlinkRefused, match=f"no savepoint of job {ID}: .*{words}"):
        cluster.stop(ID)


def test_a_savepoint_that_never_completes_is_left_after_the_limit(
    flink: FakeFlink, cluster: FlinkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "_SAVEPOINT_SECONDS", 0.1)
    flink.answers[f"POST /jobs/{ID}/stop"] = {"request-id": "r"}
    flink.answers[f"GET /jobs/{ID}/savepoints/r"] = RUNS
    with pytest.raises(FlinkRefused, match=r"not complete after 0\.1 s"):
        cluster.stop(ID)


# -- metrics


def test_beam_metrics_have_short_names_and_are_taken_together(flink: FakeFlink, cluster: FlinkCluster) -> None:
    both = details(RUNNING=4)
    both["vertices"].append({**both["vertices"][0], "id": OTHER})
    flink.answers[f"GET /jobs/{ID}"] = both
    for vertex in (VERTEX, OTHER):
        path = f"GET /jobs/{ID}/vertices/{vertex}/subtasks/metrics"
        names = ["[2]{A__B}.opicflow_events", "[2]{A__B}.opicflow_sizes", "[2]{A__B}.other_events", "numRecordsIn"]
        flink.answers[path] = [{"id": name} for name in names]
        get = "%5B2%5D%7BA__B%7D.opicflow_events,%5B2%5D%7BA__B%7D.opicflow_sizes"
        events = {"id": names[0], "sum": 3.0}
        flink.answers[f"{path}?get={get}&agg=sum"] = [events, {"id": names[1], "value": "Result{sum=1}"}]
    assert cluster.beam_metrics(ID) == {"events": 6.0}


def test_many_metrics_are_fetched_in_several_requests(flink: FakeFlink, cluster: FlinkCluster) -> None:
    path, names = f"GET /jobs/{ID}/vertices/{VERTEX}/subtasks/metrics", [f"{n:04}{'x' * 96}" for n in range(100)]
    flink.answers[path] = [{"id": name} for name in names]
    for first in range(0, 100, 30):
        some = names[first : first + 30]
        flink.answers[f"{path}?get={','.join(some)}&agg=sum"] = [{"id": name, "sum": 1.0} for name in some]
    assert cluster.metrics(ID, VERTEX, ".*") == dict.fromkeys(names, 1.0)


def test_invalid_numbers_are_left_out(flink: FakeFlink, cluster: FlinkCluster) -> None:
    values = [{"id": "a", "value": "n/a"}, {"id": "b", "value": "NaN"}, {"id": "c"}, {"id": "d", "value": "-1"}]
    flink.answers[f"GET /jobs/{ID}/metrics?get=a,b,c,d"] = values
    assert cluster.job_metrics(ID, ["a", "b", "c", "d"]) == {"d": -1.0}
