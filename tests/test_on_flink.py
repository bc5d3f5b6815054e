"""The card on a real Flink cluster: a replay, and AdaptiveOpic, give what they give in this process."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from opicflow.connectors.flink.worker_environment import worker_command
from opicflow.pipelines.adaptive_opic import AdaptiveOpic
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.segments import LOCAL
from support.logs import WebLog, jsonl, records_of, run
from support.services import LocalCluster

NAMES = ("importance.jsonl", "refresh-schedule.jsonl", "crawl-orders.jsonl", "site-importance.jsonl", "rejects.jsonl")


@pytest.mark.slow
def test_flink_replays_a_log_to_the_bytes_of_this_process(flink_kafka: LocalCluster, tmp_path: Path) -> None:
    log = written_log(tmp_path)
    job = ("--job_name=replay", "--parallelism=1", f"--job_endpoint={flink_kafka.job_server}")
    for runner, options in ((LOCAL, ()), ("FlinkRunner", job)):
        run([log], tmp_path / runner, runner=runner, beam_options=options)
    for name in NAMES:
        assert (tmp_path / LOCAL / name).read_bytes() == (tmp_path / "FlinkRunner" / name).read_bytes()
    assert [job.state for job in flink_kafka.flink.jobs("replay")] == ["FINISHED"]


@pytest.mark.slow
def test_flink_ranks_the_events_of_a_pipeline_as_a_replay_does(flink_kafka: LocalCluster, tmp_path: Path) -> None:
    log = written_log(tmp_path)
    options = PipelineOptions(["--runner=PortableRunner", *options_of(flink_kafka, tmp_path, "events")])
    with beam.Pipeline(options=options) as pipeline:
        lines = pipeline | beam.io.ReadFromText(str(log), coder=beam.coders.BytesCoder())
        rows = (lines | AdaptiveOpic()).importance | beam.Map(json.dumps)
        _ = rows | beam.io.WriteToText(str(tmp_path / "ranks"), shard_name_template="")
    run([log], tmp_path / LOCAL, runner=LOCAL, prefers_certified=True)
    found = {one["page"]: one["importance"] for one in records_of(tmp_path / "ranks")}
    expected = {one["page"]: one["importance"] for one in records_of(tmp_path / LOCAL / "importance.jsonl")}
    assert found.keys() == expected.keys()
    assert sum(abs(found[page] - expected[page]) for page in found) < 1e-4


def written_log(folder: Path) -> Path:
    web = WebLog(power_law_web(200, 3, dangling=0.1), announced=True, seconds_between=977.0)
    path = folder / "log.jsonl"
    path.write_bytes(jsonl(web.crawl("random", 900).events) + b"nonsense\n")
    return path


def options_of(cluster: LocalCluster, folder: Path, name: str) -> list[str]:
    command = {"command": worker_command(), "env": {"OPICFLOW_WORKER_LOGS": str(folder / "logs")}}
    return [
        f"--job_endpoint={cluster.job_server}",
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps(command)}",
        f"--job_name={name}",
        "--parallelism=1",
        "--sdk_worker_parallelism=1",
    ]
