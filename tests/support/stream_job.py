"""A job on Flink as its REST interface describes it, without a cluster."""

from __future__ import annotations

from opicflow.connectors.flink.rest import Checkpoints, Job, JobDetails, Trouble, Vertex


def details(runs: bool = True, now_ms: int = 0) -> JobDetails:
    """A job that runs, or one that has failed a moment ago."""
    state, tasks = ("RUNNING", {"RUNNING": 2}) if runs else ("RESTARTING", {"CREATED": 2})
    trouble = () if runs else (Trouble(1_777_636_800_000, "a worker was killed"),)
    job = Job("0" * 32, "opicflow", state, 1)
    return JobDetails(job, (Vertex("v", "stage", 2, state, tasks),), 3, 1_777_636_000_000, trouble, now_ms)


def no_checkpoints(failed: int = 0, waiting_since_ms: int = 0) -> Checkpoints:
    """A job without a complete checkpoint."""
    return Checkpoints(0, failed, failed, 0, 0, None, (), waiting_since_ms=waiting_since_ms)
