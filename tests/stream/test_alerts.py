"""The alerts and the dashboard on a real Prometheus: a stream on a cluster is broken, and each reports the fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.services.flink import Flink
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from support.local_stream import LocalStream, Pending
from support.logs import WebLog
from support.prometheus import require_prometheus, running_prometheus
from support.services import LocalCluster

FASTER = {
    "scrape_interval: 15s": "scrape_interval: 5s",
    "evaluation_interval: 15s": "evaluation_interval: 1s",
    "[15m]": "[1m]",
    "[5m]": "[1m]",
    "offset 5m": "offset 1m",
    "for: 1h": "for: 6s",
    "for: 15m": "for: 6s",
    "for: 5m": "for: 6s",
    "for: 2m": "for: 6s",
    "tick_second)) > 120": "tick_second)) > 30",
    ") > 2": ") > 0",
}
"""Seconds instead of minutes, and one restart instead of three."""


@pytest.fixture
def stream(flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str) -> Iterator[LocalStream]:
    require_prometheus()
    started = LocalStream(flink_kafka, tmp_path, topic_prefix, 4, history="certified")
    started.start()
    yield started
    started.cancel()


@pytest.mark.soak
def test_alerts_fire_when_the_stream_is_broken_and_end_when_it_heals(
    stream: LocalStream, flink_kafka: LocalCluster, tmp_path: Path
) -> None:
    targets = Flink().metrics(flink_kafka.services.instance("flink"))
    with running_prometheus(tmp_path / "prometheus", targets, FASTER) as prometheus:

        def wait_until_fires(*alerts: str) -> None:
            stream.wait_for(
                f"{alerts} fire", lambda: set(alerts) <= prometheus.firing() or Pending(str(prometheus.firing()))
            )

        def wait_until_quiet() -> None:
            stream.wait_for("no alert fires", lambda: prometheus.firing() == set() or Pending(str(prometheus.firing())))

        stream.publish(WebLog(power_law_web(100, 1)).crawl("cycle", 300).events)
        stream.drain()
        wait_until_quiet()
        (pages,) = prometheus.query("sum(opicflow_shard_pages)")
        assert int(pages["value"][1]) == stream.audit()["pages"]
        series = prometheus.query("opicflow_lag")
        lags = {(one["metric"]["topic"], one["metric"]["partition"], one["metric"]["job_name"]) for one in series}
        topic = re.sub(r"\W", "_", stream.ledger_topic)
        assert {(topic, str(shard), stream.name) for shard in range(4)} <= lags

        stream.send("page-ledger", [b"garbage"] * 3, 2)
        stream.send("page-ledger", [encode_entry(TickEntry(1_000_000))], 1)
        stream.send("crawl-events", [b"garbage"], 1)
        stream.wait_for("a rejected event is counted", lambda: prometheus.query("opicflow_rejected_events") != [])
        stream.send("crawl-events", [b"garbage"] * 40, 1)
        wait_until_fires("OpicflowRefusedEntries", "OpicflowClockWrong", "OpicflowRejectedEvents")
        assert prometheus.unanswered() == []
        wait_until_quiet()

        flink_kafka.pause()
        wait_until_fires("OpicflowTickOld", "OpicflowCheckpointOld")
        flink_kafka.resume()
        wait_until_quiet()

        flink_kafka.services.kill("flink", "flink-tasks-1")
        wait_until_fires("OpicflowNotSeen")
        wait_until_fires("OpicflowRestarts")
        flink_kafka.services.revive("flink")
        wait_until_quiet()
