"""The alerts and the dashboard of deploy/monitoring: each alert fires for the fault it names, and has a runbook."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.services import processes
from support.paths import TOP
from support.prometheus import (
    MONITORING,
    AlertCase,
    check_rules,
    promtool,
    require_prometheus,
    running_prometheus,
    serving,
)

ALERTS = MONITORING / "alerts.yml"
GUIDE = "docs/guides/operations.md"
NAMES = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
AT = "90m"
"""When alerts are looked at: after 360 samples."""
OVER = "95m30s"
"""When an alert has ended whose cause was over `AT`: five minutes later, and two samples."""
Series = dict[str, str]


def of(name: str, values: str, **labels: object) -> Series:
    every = ",".join(f'{key}="{value}"' for key, value in {"job_name": "crawl", **labels}.items())
    return {f"{name}{{{every}}}": values}


def counted(name: str, values: str) -> Series:
    return of(f"opicflow_{name}", values)


FIRES: list[tuple[str, Series]] = [
    (
        "OpicflowDrift",
        of("opicflow_shard_audit_drift", "0x350 -7x20", shard=1) | of("opicflow_shard_audit_drift", "0x420", shard=2),
    ),
    ("OpicflowRefusedEntries", counted("rejected", "2x345 3x55")),
    ("OpicflowRefusedEntries", counted("rejected", "_x345 1x55")),
    ("OpicflowRejectedEvents", counted("rejected_events", "0+10x420") | counted("events_read", "0+100x420")),
    ("OpicflowClockWrong", counted("refused_ticks", "5x345 6x55")),
    ("OpicflowClockWrong", counted("refused_ticks", "_x345 1x55")),
    (
        "OpicflowTickOld",
        of("opicflow_shard_tick_second", "0+15x420", shard=0)
        | of("opicflow_shard_tick_second", "0+15x300 4500x99", shard=1),
    ),
    (
        "OpicflowLagGrows",
        of("opicflow_lag", "0+10x420", topic="page_ledger", partition=0)
        | of("opicflow_lag", "9000+20x420", topic="page_ledger", partition=1),
    ),
    (
        "OpicflowCheckpointOld",  # the storage is full: the job goes on
        of("flink_jobmanager_job_numberOfCompletedCheckpoints", "0+1x300 300x99")
        | of("flink_jobmanager_job_numberOfFailedCheckpoints", "0x300 0+1x99")
        | of("flink_jobmanager_job_numRestarts", "0x400"),
    ),
    ("OpicflowSnapshotOld", of("opicflow_shard_snapshot_age_seconds", "0+100x420", shard=3)),
    ("OpicflowSnapshotDamaged", counted("snapshots_damaged", "2x345 3x55")),
    ("OpicflowSnapshotDamaged", counted("snapshots_damaged", "_x345 1x55")),
    ("OpicflowRestarts", of("flink_jobmanager_job_numRestarts", "0x330 1+1x60")),
    ("OpicflowCertificateHigh", of("opicflow_shard_certificate_per_million", "100x50 2000000x350", shard=0)),
    (
        "OpicflowPagesOff",
        of("opicflow_shard_pages_off", "0x300 7x120", shard=1) | counted("visits", "0+9x250 2250x170"),
    ),
    (
        "OpicflowNotSeen",
        of("opicflow_shard_tick_second", "0+15x420", shard=0) | {'up{job="opicflow",instance="a"}': "1x340 0x60"},
    ),
    (
        "OpicflowNotSeen",
        of("opicflow_shard_tick_second", "0+15x300", shard=0) | {'up{job="opicflow",instance="a"}': "1x420"},
    ),
]
"""Alerts, and series of a stream that is broken in the way that they name."""

ENDS: list[tuple[str, Series]] = [
    ("OpicflowDrift", of("opicflow_shard_audit_drift", "0x299 -7x60 0x60", shard=1)),
    ("OpicflowRefusedEntries", counted("rejected", "2x299 3+1x60 63x60")),
    ("OpicflowRefusedEntries", counted("rejected", "_x358 1x60")),
    ("OpicflowRejectedEvents", counted("rejected_events", "0+10x360 3600x60") | counted("events_read", "0+100x420")),
    ("OpicflowClockWrong", counted("refused_ticks", "5x299 6+1x60 66x60")),
    ("OpicflowClockWrong", counted("refused_ticks", "_x358 1x60")),
    (
        "OpicflowTickOld",
        of("opicflow_shard_tick_second", "0+15x420", shard=0)
        | of("opicflow_shard_tick_second", "0+15x300 4500x59 5415+15x60", shard=1),
    ),
    ("OpicflowLagGrows", of("opicflow_lag", "0+100x360 36000x60", topic="page_ledger", partition=0)),
    ("OpicflowLagGrows", of("opicflow_lag", "0+100x360 36000-10x60", topic="page_ledger", partition=0)),
    ("OpicflowCheckpointOld", of("flink_jobmanager_job_numberOfCompletedCheckpoints", "0+1x300 300x59 301+1x60")),
    ("OpicflowSnapshotOld", of("opicflow_shard_snapshot_age_seconds", "0+200x360 0+15x60", shard=3)),
    ("OpicflowSnapshotDamaged", counted("snapshots_damaged", "2x299 3+1x60 63x60")),
    ("OpicflowSnapshotDamaged", counted("snapshots_damaged", "_x358 1x60")),
    ("OpicflowRestarts", of("flink_jobmanager_job_numRestarts", "0x299 1+1x60 61x60", job_id="a")),
    (
        "OpicflowRestarts",  # it was canceled, and started again
        of("flink_jobmanager_job_numRestarts", "0x299 1+1x60 stale", job_id="a")
        | of("flink_jobmanager_job_numRestarts", "_x361 0x60", job_id="b"),
    ),
    ("OpicflowCertificateHigh", of("opicflow_shard_certificate_per_million", "2000000x360 50x60", shard=0)),
    ("OpicflowPagesOff", of("opicflow_shard_pages_off", "7x360 0x60", shard=1) | counted("visits", "2250x420")),
    (
        "OpicflowNotSeen",
        of("opicflow_shard_tick_second", "0+15x420", shard=0) | {'up{job="opicflow",instance="a"}': "1x340 0x19 1x60"},
    ),
    (
        "OpicflowNotSeen",
        of("opicflow_shard_tick_second", "0+15x300 _x60 5415+15x60", shard=0)
        | {'up{job="opicflow",instance="a"}': "1x420"},
    ),
]
"""Alerts, and series of a stream that is broken in the way that they name, and sound again from `AT` on."""

HEALTHY: list[Series] = [
    {},
    counted("rejected", "3x420") | counted("refused_ticks", "1x420"),  # a long time ago
    of("opicflow_shard_snapshot_age_seconds", "0+15x420", shard=3) | counted("snapshots_damaged", "1x420"),
    counted("rejected_events", "0+1x420") | counted("events_read", "0+100x420"),
    of("opicflow_lag", "90000-200x420", topic="page_ledger", partition=0)
    | of("opicflow_lag", "3000+1x420", topic="policies", partition=0),
    of("flink_jobmanager_job_numRestarts", "0x200 1x200"),
    of("flink_jobmanager_job_numberOfFailedCheckpoints", "0x200 0+1x10 10x190")  # fewer than four minutes
    | of("flink_jobmanager_job_numberOfCompletedCheckpoints", "0+1x200 200x14 200+1x185"),
    of("opicflow_shard_certificate_per_million", "2000000x200 80000x200", shard=0),
    of("opicflow_shard_pages_off", "700x400", shard=1) | counted("visits", "0+9x400"),  # a crawl that never rests
    of("opicflow_shard_pages_off", "700x365 0x35", shard=1) | counted("visits", "0+9x360 3240x40"),
]
"""Series added to those of a healthy stream, for which no alert fires."""

RUNS: Series = (
    of("opicflow_shard_tick_second", "0+15x420", shard=0)
    | of("opicflow_shard_tick_second", "0+15x420", shard=1)
    | of("opicflow_shard_audit_drift", "0x420", shard=0)
    | of("flink_jobmanager_job_numberOfCompletedCheckpoints", "0+1x420")
    | {'up{job="opicflow",instance="a"}': "1x420"}
)


def beside_what_runs(series: Series) -> Series:
    """Return these series and those of a healthy stream, except the ticks if these have some."""
    has_ticks = "tick_second" in str(series)
    return {**{name: values for name, values in RUNS.items() if not has_ticks or "tick_second" not in name}, **series}


NONE = dict.fromkeys(NAMES, 0)


def only(alert: str) -> dict[str, int]:
    """Return how many alerts of each name fire when this one does, once, and no other."""
    return {**NONE, alert: 1}


def test_an_alert_fires_for_a_stream_that_is_broken_in_its_way_and_no_other_does(tmp_path: Path) -> None:
    require_prometheus()
    cases = (
        AlertCase(f"{alert} {number}", beside_what_runs(series), {AT: only(alert)})
        for number, (alert, series) in enumerate(FIRES)
    )
    check_rules(ALERTS, cases, tmp_path)


def test_an_alert_ends_within_five_minutes_after_what_it_describes_is_over(tmp_path: Path) -> None:
    require_prometheus()
    cases = (
        AlertCase(f"{alert} {number}", beside_what_runs(series), {AT: only(alert), OVER: NONE})
        for number, (alert, series) in enumerate(ENDS)
    )
    check_rules(ALERTS, cases, tmp_path)


def test_no_alert_fires_for_a_healthy_stream(tmp_path: Path) -> None:
    require_prometheus()
    cases = (AlertCase(f"healthy {number}", {**RUNS, **more}, {AT: NONE}) for number, more in enumerate(HEALTHY))
    check_rules(ALERTS, cases, tmp_path)


def test_every_alert_is_tried() -> None:
    assert len(NAMES) == len(set(NAMES)) > 5
    assert {name for name, _ in FIRES} == {name for name, _ in ENDS} == set(NAMES)


def test_promtool_accepts_the_rules_and_the_settings() -> None:
    require_prometheus()
    promtool("check", "rules", ALERTS)
    promtool("check", "config", MONITORING / "prometheus.yml")


def anchors(page: str) -> set[str]:
    """Return what links to the headings of a page end with."""
    text = (TOP / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_alert_names_a_runbook_of_its_own() -> None:
    blocks = ALERTS.read_text(encoding="utf-8").split("- alert: ")[1:]
    runbooks = [re.findall(r"runbook: (\S+)", block) for block in blocks]
    assert all(len(found) == 1 for found in runbooks) and len({found[0] for found in runbooks}) == len(blocks)
    for name, ((page, _, anchor),) in zip(
        NAMES, ([one.partition("#") for one in found] for found in runbooks), strict=True
    ):
        assert page == GUIDE and anchor in anchors(GUIDE), name
        assert anchor.startswith("alert-")


def metrics_of_flink() -> str:
    """Return the metrics of a stream of four shards as Flink 1.19 reported them; those of the job are made up."""
    reported = (TOP / "tests" / "golden" / "flink-reporter.txt").read_text(encoding="utf-8")
    shards = [f"flink_taskmanager_job_task_operator_opicflow_tick_second_shard_{shard}" for shard in range(4)]
    checkpoints = ("numberOfCompletedCheckpoints", "numberOfFailedCheckpoints", "lastCheckpointDuration")
    job = [f"flink_jobmanager_job_{name}" for name in ("numRestarts", "lastCheckpointSize", *checkpoints)]
    return reported + "".join(f'{name}{{job_name="four-stream"}} 7\n' for name in [*shards, *job])


def test_names_of_flink_become_labels_and_every_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    require_prometheus()
    faster = {"scrape_interval: 15s": "scrape_interval: 1s"}
    with (
        serving(metrics_of_flink) as target,
        running_prometheus(tmp_path / "prometheus", [target], faster) as prometheus,
    ):
        assert processes.wait_until(lambda: prometheus.unanswered() == [], 60), prometheus.unanswered()
        lags = {(one["metric"]["topic"], one["metric"]["partition"]) for one in prometheus.query("opicflow_lag")}
        expected = {"crawl_events": 3, "policies": 1, "page_ledger": 4}
        assert lags == {(f"four_{topic}", str(number)) for topic, count in expected.items() for number in range(count)}
        shards = {one["metric"]["shard"] for one in prometheus.query("opicflow_shard_pages")}
        assert shards == {"0", "1", "2", "3"}
        assert prometheus.query("opicflow_visits") == [], "those of the shards have another name"
        assert prometheus.query('{__name__=~"flink_.*opicflow.*"}') == []
