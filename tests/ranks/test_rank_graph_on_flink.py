"""Ranks as batch jobs on a real Flink cluster: those of one process, to the last byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from opicflow.connectors.flink.worker_environment import worker_command
from opicflow.pipelines.ranks.graph.solver import RankRequest, Settings
from opicflow.pipelines.ranks.rank_graph import rank_with_beam
from support.services import LocalCluster
from support.stored_graphs import random_web, stored


@pytest.mark.slow
def test_flink_gives_the_same_bytes_as_this_process(flink_kafka: LocalCluster, tmp_path: Path) -> None:
    graph = stored(tmp_path / "graph", random_web(), slice_pages=300)
    command = {"command": worker_command(), "env": {"OPICFLOW_WORKER_LOGS": str(tmp_path / "logs")}}
    flink = [
        "--runner=PortableRunner",
        f"--job_endpoint={flink_kafka.job_server}",
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps(command)}",
        "--job_name=ranks",
        "--parallelism=2",
        "--sdk_worker_parallelism=1",
    ]
    settings, wanted = Settings(max_iterations=3, tolerance=1e-15), RankRequest("importance", "importance")
    found = [
        rank_with_beam(graph.path, wanted, settings, tmp_path / name, PipelineOptions(options), 3)
        for name, options in (("flink", flink), ("here", []))
    ]
    assert [job.state for job in flink_kafka.flink.jobs("ranks")] == ["FINISHED"]
    assert found[0].values.tobytes() == found[1].values.tobytes()
    assert found[0].residual == found[1].residual
