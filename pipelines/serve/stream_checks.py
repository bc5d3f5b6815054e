"""Whether the figures of a stream can be trusted, from its audits and the state of its job: the checks of the light."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.books import MOST_REJECTED, Check, proven_ranks
from opicflow.pipelines.stream.audit import AuditState, Verdict
from opicflow.pipelines.stream.status import StreamStatus

OLD_TICK_SECONDS = 120.0
"""Shards publish an audit every ten seconds: if the last one is older, the stream has stopped."""
LONG_LAG_SECONDS = 60.0


class JobState(NamedTuple):
    """The job on Flink: its status, or why there is none; and how many events it reads a second, if known."""

    status: StreamStatus | None = None
    problem: str = ""
    events_per_second: float | None = None


def checks_of(
    verdict: Verdict,
    refused_entries: int,
    job: JobState | None,
    now_ms: int,
    is_reading: bool = False,
    rejects: int = 0,
) -> Iterator[Check]:
    """Yield the checks. `job` is None where no cluster is named; `is_reading`: some audits may not be read yet."""
    yield _cash(verdict, job)
    yield _ranks(verdict)
    if verdict.shards or is_reading:
        yield _tick(verdict, now_ms, bool(job and job.status and job.status.silent_since_ms))
    else:
        detail = "no shard has published an audit in the last hour: the stream has stopped, or was not started"
        yield Check("Clock", False, detail)
    refused = refused_entries if job is None or job.status is None else job.status.count("rejected")
    detail = "none" if not refused else f"{refused:,} entries, policies or URLs were refused: see Rejects"
    yield Check("Refused entries", refused == 0, detail)
    if job is not None:
        yield from _job(job)
    elif rejects:
        detail = f"{rejects:,} events could not be used in the last day; with --flink-master it is known of how many"
        yield Check("Rejects", None, detail)


def _cash(verdict: Verdict, job: JobState | None) -> Check:
    drift = job.status.in_all_shards("audit_drift") if job is not None and job.status is not None else 0
    if verdict.faults or drift:
        which = ", ".join(sorted({f"{one.law.value} of shard {one.shard}" for one in verdict.faults})[:3])
        detail = f"wrong are: {which}" if which else f"{drift:,} units are missing"
        return Check("Cash", False, f"{detail}. Do not trust importance: run opicflow audit, and do as it advises")
    if not verdict.shards:
        return Check("Cash", None, "no shard has published an audit in the last hour")
    if verdict.state is AuditState.BALANCED:
        return Check("Cash", True, f"the balances of all {verdict.shards} shards agree: not one unit is missing")
    missing = verdict.shards - verdict.reported
    why = f"{missing} of {verdict.shards} shards have not reported" if missing else "some shards have no cut in common"
    return Check("Cash", None, f"{why} yet")


def _ranks(verdict: Verdict) -> Check:
    if verdict.unsettled:
        shards = f"{verdict.unsettled} of {verdict.shards} shards"
        return Check("Ranks", None, f"not settled yet in {shards}: errors fall with every visit, nothing is to be done")
    if verdict.certificate is None:
        return Check(
            "Ranks", None, "estimated, without a proof" if verdict.shards else "no shard has published an audit"
        )
    return proven_ranks(verdict.certificate)


def _tick(verdict: Verdict, now_ms: int, is_silent: bool) -> Check:
    if not verdict.shards:
        return Check("Clock", None, "no tick is known")
    age = now_ms / 1000 - verdict.second
    if age > OLD_TICK_SECONDS:
        at = wording.minute(1000 * verdict.second)
        since = f"the last tick of the slowest shard was {wording.span(age)} ago ({at})"
        advice = "opicflow stream status, and the workers' logs, say why"
        return Check("Clock", False, f"{since}: since then nothing is counted or ordered; {advice}")
    is_right = None if is_silent else True
    return Check("Clock", is_right, f"the last tick of the slowest shard was {wording.span(max(age, 0.0))} ago")


def _job(job: JobState) -> Iterator[Check]:
    status = job.status
    if status is None:
        yield Check("Job", False if job.problem else None, job.problem or "Flink has not answered yet")
        return
    if status.details.runs:
        yield Check("Job", True, f"Flink reports that all its tasks run, after {status.details.restarts} restarts")
    else:
        cause = next((one.cause for one in status.details.lasting_trouble), "no reason is known")
        yield Check("Job", False, f"{status.details.job.state}, not all its tasks run: {cause}")
    lag, rate = sum(status.lags().values()), job.events_per_second
    if since := status.silent_since_ms:
        at = wording.minute(since)
        what = f"since {at} one or more do not answer: events wait, and are not lost"
        advice = "find it by the workers' logs, and kill it: Flink starts another, which goes on where it was"
        yield Check("Workers", False, f"{what}. To do: {advice}")
        yield Check("Lag", None, f"not known; {lag:,} records waited at {at}")
    elif unknown := status.lags_unknown():
        yield Check("Lag", None, unknown)
    elif rate is None:
        yield Check("Lag", None, f"{lag:,} records wait to be read")
    else:
        is_short = lag <= LONG_LAG_SECONDS * max(rate, 1.0)
        yield Check("Lag", is_short, f"{lag:,} records wait to be read, at {wording.number(rate)} events a second")
    events, rejected = status.count("events_read"), status.count("rejected_events")
    if events and rejected > MOST_REJECTED * events:
        part = f"{wording.percent(rejected / events)} of the events since the job started"
        yield Check("Rejects", False, f"{part} ({rejected:,} of {events:,}) could not be used: examples show why")
    if failed := status.checkpoints.failed_since_last:
        yield Check("Checkpoints", False, f"{failed:,} failed after the last complete one")
