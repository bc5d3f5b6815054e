"""A stream on a real cluster, shown live by the command, which logs in at the brokers and finds the job on Flink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from opicflow.pipelines.lab.web.webs import power_law_web
from support.browser import browser, require_browser
from support.commands import command
from support.local_stream import LocalStream
from support.logs import WebLog
from support.services import LocalCluster
from support.serving import serving
from support.waiting import wait_for


class Shown(NamedTuple):
    stream: LocalStream
    address: str

    def get(self, path: str) -> Any:
        return requests.get(self.address + path, timeout=60).json()

    def checks(self) -> dict[str, bool | None]:
        return {one["name"]: one["is_right"] for one in self.get("/api/health")["checks"]}

    def publish(self, pages: int, seed: int) -> None:
        self.stream.publish(WebLog(power_law_web(pages, seed)).crawl("cycle", 3 * pages).events)


@pytest.fixture(scope="module")
def shown(flink_kafka: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("stream")
    stream = LocalStream(flink_kafka, folder, "looked-at-", 2)
    stream.start()
    where = ("--brokers", flink_kafka.secured.brokers, "--properties", flink_kafka.secured.properties)
    job = ("--flink-master", flink_kafka.flink_rest, "--name", stream.name)
    try:
        with serving(*where, "--prefix", stream.prefix, *job) as server:
            yield Shown(stream, server.address)
    finally:
        stream.cancel()


@pytest.mark.slow
def test_the_lag_and_the_job_are_shown(shown: Shown) -> None:
    shown.publish(60, 1)
    wait_for("pages are shown", lambda: shown.get("/api/top")["total"] > 20, 120)
    wait_for("the job is shown", lambda: shown.checks().get("Job"), 120)
    wait_for("events a second are known", lambda: shown.checks()["Lag"], 120)
    wait_for("all is read", lambda: shown.get("/api/summary")["live"]["unread"] == 0, 120)
    wait_for("all is right", lambda: shown.checks()["Cash"] and shown.checks()["Clock"], 120)
    assert all(shown.checks()[name] for name in ("Brokers", "Job", "Lag", "Refused entries"))


def test_a_browser_sees_events_as_they_are_published_and_a_job_that_ends(shown: Shown) -> None:
    require_browser()
    known = "return Number(document.querySelector('.tiles data').value)"
    with browser() as window:
        window.open(shown.address)
        before = window.run(known)
        shown.publish(200, 2)
        wait_for("more pages are seen, and the page was not loaded again", lambda: window.run(known) > before, 120)
        books = "return document.querySelector('#books').innerText"
        wait_for("the speed is shown", lambda: "events a second" in window.run(books), 120)
        shown.stream.cancel()
        seen = "return document.querySelector('#books').innerText"
        wait_for("the job is missed", lambda: "Job ✕" in window.run(seen), 120)
        assert window.run("return document.querySelector('#books').classList.contains('look')")


def test_a_wrong_password_ends_with_a_line(flink_kafka: LocalCluster, tmp_path: Path) -> None:
    secured = flink_kafka.secured
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(secured.properties.read_text(encoding="utf-8").replace(secured.password, "not-it"))
    result = command("serve", "--brokers", secured.brokers, "--properties", wrong, "--port", "0")
    assert result.code == 2 and result.err.count("\n") == 1 and "not-it" not in result.err
