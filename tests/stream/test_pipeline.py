"""The stages of the stream. Flink finds the state of a running job by their labels."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner

from opicflow.connectors.flink.rest import FlinkRefused
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.polls import NO_END, WatchedTopic
from opicflow.pipelines.stream import submit as submit_module
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig
from opicflow.pipelines.stream.submit import (
    MOST_SLOTS,
    FlinkJob,
    _beam_options,
    submit,
)
from opicflow.schemas.errors import Interrupted
from support.fake_flink import fake_flink
from support.fake_job_server import fake_job_server
from support.operator_ids import ENVIRONMENTS, operator_id

STATES = {
    "Stream/RouteEvents": {"source"},
    "Stream/RoutePolicies": {"source"},
    "Stream/WriteTicks": {"at"},
    "Stream/KeepLedger": {"head", "snapshot"},
}
"""The stages with state, and the names of their states. A change loses the state of every running job."""

WITHOUT_CONTENT = {"Stream/FindEnds": {"unused"}}
"""Stages whose state is empty: they have one so that a single slot gets all elements."""

STAGES = [
    "Stream/StartPolls",
    "Stream/FindEnds",
    "Stream/PollEvents",
    "Stream/RouteEvents",
    "Stream/SendEntries",
    "Stream/PollPolicies",
    "Stream/RoutePolicies",
    "Stream/SendPolicies",
    "Stream/PollClock",
    "Stream/WriteTicks",
    "Stream/SendTicks",
    "Stream/PollLogs",
    "Stream/KeepLedger",
    "Stream/SendOutputs",
]


class Stages(PipelineVisitor):
    """The labels of all transforms, in the order in which they were applied, and the states of their functions."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.states: dict[str, set[str]] = {}

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        self.visit_transform(transform_node)

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        self.labels.append(transform_node.full_label)
        transform: Any = transform_node.transform
        if isinstance(transform, beam.ParDo):
            specs, _ = beam.transforms.userstate.get_dofn_specs(transform.fn)
            if specs:
                self.states[transform_node.full_label] = {spec.name for spec in specs}


OPERATORS = {
    "PROCESS": {
        "Stream/RouteEvents": "67b708777ac2af4d50eb00ceebc1b115",
        "Stream/RoutePolicies": "401df0aa99d83a0e20fd21479dd9d7e5",
        "Stream/WriteTicks": "4d926acaccc402689368df520104c544",
        "Stream/KeepLedger": "7e28bb46ef1bd007a7d464d2f34e1dff",
    },
    "DOCKER": {
        "Stream/RouteEvents": "5450c55a38a97019432e6072c26a624c",
        "Stream/RoutePolicies": "7a1a8701b6af8b9a4b363a88eeb47478",
        "Stream/WriteTicks": "4d5273e9d2bd975ba25d6b9dcac81953",
        "Stream/KeepLedger": "944d3d20fd0bbbf1c8dd797082d4a312",
    },
    "EXTERNAL": {
        "Stream/RouteEvents": "498ba346f3b45f31ef271512e518a838",
        "Stream/RoutePolicies": "ca72afd41362671b6f00ded9dd8d49df",
        "Stream/WriteTicks": "967f7c453c6d1f6bba8df8d74deed640",
        "Stream/KeepLedger": "0368f19a23c13311771d74b5ed01f40d",
    },
}
"""Flink's ids of the stages with state, for each kind of workers. Those of PROCESS are as Flink 1.19 showed them."""


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> beam.Pipeline:
    connection = Connection("nowhere:9092")

    def watched(connection: Connection, topic: str, **options: Any) -> WatchedTopic:
        return WatchedTopic((PartitionRange("kafka/id/0", connection, topic, "id", 0, 0, NO_END),), **options)

    monkeypatch.setattr(WatchedTopic, "of", watched)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    _ = pipeline | "Stream" >> Stream(StreamConfig(connection, 4))
    return pipeline


@pytest.fixture
def stages(pipeline: beam.Pipeline) -> Stages:
    found = Stages()
    pipeline.visit(found)
    return found


def test_the_labels_of_the_stages_do_not_change(stages: Stages) -> None:
    assert [label for label in stages.labels if label.count("/") == 1] == STAGES


def test_the_stages_with_state_and_the_names_of_their_states_do_not_change(stages: Stages) -> None:
    assert stages.states == STATES | WITHOUT_CONTENT


def test_flink_finds_the_state_of_every_stage_by_ids_that_do_not_change(pipeline: beam.Pipeline) -> None:
    components = pipeline.to_runner_api().components
    read = {}
    for transform in components.transforms.values():
        if transform.unique_name in STATES:
            (collection,) = transform.inputs.values()
            read[transform.unique_name] = components.pcollections[collection].unique_name
    for kind, expected in OPERATORS.items():
        found = {label: operator_id(f"{name}/{ENVIRONMENTS[kind]}:0").hex() for label, name in read.items()}
        assert found == expected, kind


def test_beam_starts_a_job_server_for_the_flink_that_runs_and_all_jobs_have_as_many_groups_of_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = PipelineOptions(_beam_options(FlinkJob(checkpoints="/checkpoints"), 2, None))
    assert options.view_as(FlinkRunnerOptions).max_parallelism == MOST_SLOTS == 128
    monkeypatch.setattr(FlinkJarJobServer, "path_to_beam_jar", lambda _, target: target)
    assert FlinkJarJobServer(options).path_to_jar() == ":runners:flink:1.19:job-server:shadowJar"


def test_a_job_stages_no_file() -> None:
    """Workers get staged files from a TaskManager, which finds them only if it is on the job server's machine."""
    pool = ("--environment_type=EXTERNAL", "--environment_config=localhost:50000")
    job = FlinkJob(job_server="jobs:8099", checkpoints="/checkpoints")
    for one in (job, replace(job, worker_image="image"), replace(job, beam_options=pool)):
        options = PipelineOptions(_beam_options(one, 1, None)).view_as(PortableOptions)
        environment: Any = PortableRunner._create_environment(options)
        assert environment.artifacts() == [], options.environment_type


@pytest.mark.parametrize(
    ("task_managers", "what_to_do"),
    [
        (1, "start TaskManagers, stop other jobs, or give a smaller --parallelism"),
        (0, "use 'mode: standalone' in the FlinkDeployment, or the setting slotmanager.number-of-slots.min"),
    ],
)
def test_a_cluster_without_free_slots_is_refused_with_what_to_do(task_managers: int, what_to_do: str) -> None:
    """A cluster of Flink's native mode has no TaskManager while it has no job, one of the standalone mode has all."""
    with fake_flink() as fake:
        size = {"taskmanagers": task_managers, "slots-total": 2 * task_managers, "slots-available": 0}
        fake.answers |= {"GET /jobs/overview": {"jobs": []}, "GET /overview": {"flink-version": "1.19.0", **size}}
        with pytest.raises(FlinkRefused) as refused:
            submit(FlinkJob(fake.master, checkpoints="/c"), lambda slots: beam.Create([slots]))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{fake.master}: 0 slots are free and 1 are needed: ") and line.endswith(what_to_do)


def submit_among(jobs: list[dict[str, Any]], answers: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    """Submit a job to a cluster that has these jobs then."""
    size = {"flink-version": "1.19.0", "taskmanagers": 1, "slots-total": 2, "slots-available": 2}
    with fake_flink() as fake, fake_job_server() as at:
        fake.answers |= {"GET /jobs/overview": {"jobs": []}, "GET /overview": size, **answers}

        def run(pipeline: beam.Pipeline) -> Any:
            fake.answers["GET /jobs/overview"] = {"jobs": jobs}
            return SimpleNamespace(state="RUNNING")

        patch.setattr(beam.Pipeline, "run", run)
        submit(FlinkJob(fake.master, job_server=at, checkpoints="/c"), lambda slots: beam.Create([slots]))


def job_of(digit: str, state: str = "RUNNING") -> dict[str, Any]:
    return {"jid": digit * 32, "name": "opicflow", "state": state, "start-time": 5}


def test_a_start_beside_another_one_of_the_same_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FlinkRefused, match=r"2 jobs 'opicflow' run there .*: cancel all but one on its page"):
        submit_among([job_of("1"), job_of("2")], {}, monkeypatch)


def test_a_server_of_grpc_that_is_no_job_server_is_reported() -> None:
    size = {"flink-version": "1.19.0", "taskmanagers": 1, "slots-total": 2, "slots-available": 2}
    with fake_flink() as fake, fake_job_server() as at:
        fake.answers |= {"GET /jobs/overview": {"jobs": []}, "GET /overview": size}
        with pytest.raises(
            FlinkRefused, match=rf"^{at}: it did not take the job \(Method not found!\): check --job-server"
        ):
            submit(FlinkJob(fake.master, job_server=at, checkpoints="/c"), lambda slots: beam.Create([slots]))


def test_a_job_that_does_not_come_to_run_is_reported_with_its_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = f"GET /jobs/{'1' * 32}"
    answers = {
        job: {**job_of("1", "RESTARTING"), "vertices": [], "timestamps": {"RUNNING": 0}, "now": 7},
        f"{job}/exceptions": {"root-exception": 'IOException: Cannot run program "/nope"', "timestamp": 6},
        f"{job}/metrics?get=numRestarts": [],
    }
    monkeypatch.setattr(submit_module, "_SUBMIT_SECONDS", 0.2)
    with pytest.raises(FlinkRefused, match=r"and goes on trying: IOException: Cannot run program \"/nope\"$"):
        submit_among([job_of("1", "RESTARTING")], answers, monkeypatch)

    class Interrupting:
        def wait(self, seconds: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(submit_module, "Event", Interrupting)
    with pytest.raises(Interrupted, match=r"^the job was submitted, and goes on: \S+ shows it$"):
        submit_among([job_of("1", "RESTARTING")], answers, monkeypatch)


def test_more_slots_than_groups_of_keys_are_refused() -> None:
    with fake_flink() as fake:
        fake.answers["GET /jobs/overview"] = {"jobs": []}
        size = {"flink-version": "1.19.0", "taskmanagers": 70, "slots-total": 140, "slots-available": 140}
        fake.answers["GET /overview"] = size
        with pytest.raises(FlinkRefused, match=r"^--parallelism 129: a stream uses at most 128 slots: "):
            submit(FlinkJob(fake.master, parallelism=129), Stream)
