"""The stages of the stream. Flink finds the state of a running job by their labels."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.source import NO_END, WatchedTopic
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig

STATES = {
    "Stream/RouteEvents": {"source"},
    "Stream/RoutePolicies": {"source"},
    "Stream/WriteTicks": {"at"},
    "Stream/KeepLedger": {"head", "snapshot"},
}
"""The stages with state, and the names of their states. A change loses the state of every running job."""

STAGES = [
    "Stream/StartPolls",
    "Stream/PollEvents",
    "Stream/RouteEvents",
    "Stream/SendEntries",
    "Stream/LimitPolicyPolls",
    "Stream/PollPolicies",
    "Stream/RoutePolicies",
    "Stream/SendPolicies",
    "Stream/LimitClockPolls",
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


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    connection = Connection("nowhere:9092")

    def watched(connection: Connection, topic: str, **options: Any) -> WatchedTopic:
        return WatchedTopic((PartitionRange("kafka/id/0", connection, topic, "id", 0, 0, NO_END),), **options)

    monkeypatch.setattr(WatchedTopic, "of", watched)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    _ = pipeline | "Stream" >> Stream(StreamConfig(connection, 4))
    found = Stages()
    pipeline.visit(found)
    return found


def test_the_labels_of_the_stages_do_not_change(stages: Stages) -> None:
    assert [label for label in stages.labels if label.count("/") == 1] == STAGES


def test_the_stages_with_state_and_the_names_of_their_states_do_not_change(stages: Stages) -> None:
    assert stages.states == STATES
