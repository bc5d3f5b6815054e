"""A job on Flink is polled: its state, its events a second, and the message when Flink does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from opicflow.connectors.flink.rest import FlinkRefused, JobDetails
from opicflow.pipelines.serve import stream_source
from opicflow.pipelines.serve.stream_source import FlinkWatch
from support.stream_job import details, no_checkpoints


class Answers:
    """A cluster with one job, whose metrics a test sets; None: it does not answer."""

    def __init__(self) -> None:
        self.events: int | None = 0

    def find(self, name: str) -> Any:
        if self.events is None:
            raise FlinkRefused("Flink at f:1: it cannot be reached: check that its JobManager runs")
        return details().job

    def details(self, job_id: str) -> JobDetails:
        return details()

    def checkpoints(self, job_id: str) -> Any:
        return no_checkpoints()

    def beam_metrics(self, job_id: str) -> dict[str, float]:
        assert self.events is not None
        return {"events_read": float(self.events), "lag_crawl-events_0": 7.0}


def test_the_rate_is_that_of_ten_seconds_or_more_and_begins_again_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cluster = [100.0], Answers()
    monkeypatch.setattr(stream_source.time, "monotonic", lambda: now[0])
    watch = FlinkWatch(cluster, "opicflow")  # type: ignore[arg-type]

    def after(seconds: float, events: int | None) -> float | None:
        now[0] += seconds
        cluster.events = events
        watch.ask()
        return watch.job.events_per_second

    assert after(0, 1_000) is None
    assert after(5, 2_000) is None, "the time is too short for a rate"
    assert after(5, 3_000) == 200
    assert after(5, 3_500) == 200
    assert after(5, 4_000) == 100
    assert after(10, 50) is None, "the job has started again, and counts from 0"
    assert after(10, 1_050) == 100
    assert watch.job.status is not None and watch.job.status.lags() == {"crawl-events": 7}
    assert after(5, None) is None
    assert watch.job.status is None and "cannot be reached" in watch.job.problem
    assert after(5, 2_550) == 150, "over the time that it did not answer"
