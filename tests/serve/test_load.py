"""Fifty browsers at once show a state while a replay writes the next one, and a stream while events arrive.

`make soak ONLY=fifty_viewers` measures it, and prints a line for the guide.
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.topics import make, specs
from support.commands import output_of
from support.services import LocalKafka
from support.serving import Serving, serving
from support.thorough import thorough
from support.waiting import wait_for

VIEWERS = 50
VISITS = thorough(1_000, 100_000)
LINKS = 4
DAY_MS, FIRST_MS = 86_400_000, 1_777_636_800_000
PATHS = ["/", "/", "/", "/pages?first=1000", "/sites", "/plan", "/rejects", "/pages?rising=1", "/pages?pattern=p1"]


def write_log(path: Path, seed: int) -> Path:
    """Write visits of pages with links to pages that were mostly not seen before."""
    chance = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(VISITS):
            links = [
                f"https://h{(page := int(VISITS * 5 * chance.random())) // 10}.example/p{page}" for _ in range(LINKS)
            ]
            page, at = f"https://h{number // 10}.example/p{number}", FIRST_MS + (seed - 1) * DAY_MS + 1_000 * number
            file.write(json.dumps({"url": page, "fetched_at": at, "status": 200, "links": links}) + "\n")
    return path


class Viewers:
    """Browsers that load a page as often as something new is shown, or one after the other."""

    def __init__(self, server: Serving) -> None:
        self.server, self.seconds, self.news, self.problems = server, list[float](), [0] * VIEWERS, list[str]()
        self._host = server.address.removeprefix("http://")
        self._ended = threading.Event()

    def look(self, follow: bool, work: Callable[[], object]) -> str:
        """Let all browsers load pages until the work is done and each has loaded one; returns a line of figures."""
        before, begun = self.server.mib(), monotonic()
        threads = [threading.Thread(target=self._look, args=(number, follow)) for number in range(VIEWERS)]
        for thread in threads:
            thread.start()
        try:
            work()
            wait_for("all have seen something", lambda: self.problems or min(self.news) >= 3, 120)
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(60)
        assert self.problems == []
        took = [1000 * one for one in sorted(self.seconds)]
        half, most_of_them = took[len(took) // 2], took[len(took) * 19 // 20]
        return (
            f"{VIEWERS} viewers: {len(took):,} pages in {monotonic() - begun:.0f} s: {half:.0f} ms in the median, "
            f"{most_of_them:.0f} ms at the 95th percentile, {took[-1]:.0f} ms at most; "
            f"memory {before} MiB before, {self.server.mib('VmHWM')} MiB at most"
        )

    def _look(self, number: int, follow: bool) -> None:
        chance = random.Random(number)
        news = http.client.HTTPConnection(self._host, timeout=120)
        try:
            if follow:
                news.request("GET", "/live")
                lines = news.getresponse()
            while not self._ended.is_set():
                if follow and not lines.readline().startswith(b"data"):
                    continue
                self.news[number] += 1
                self._load(chance.choice(PATHS))
                self._ended.wait(0 if follow else 2 * chance.random())
        except (OSError, http.client.HTTPException) as problem:
            self.problems.append(repr(problem))
        finally:
            news.close()

    def _load(self, path: str) -> None:
        begun, connection = monotonic(), http.client.HTTPConnection(self._host, timeout=120)
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        self.seconds.append(monotonic() - begun)
        if answer.status != 200 or b"</html>" not in text:
            self.problems.append(f"{path}: {answer.status}")


def replay(*words: object) -> None:
    """Replay in a process of its own."""
    command = [sys.executable, "-m", "opicflow.pipelines.cli", "replay", *map(str, words), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1_200)


def pages_known(server: Serving) -> int:
    """How many pages are known, by the API."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=120)
    connection.request("GET", "/api/summary")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return int(found["pages"])


@pytest.mark.thorough
def test_fifty_viewers_look_at_a_state_while_a_replay_writes_the_next_one(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    state = tmp_path / "state"
    output_of("replay", write_log(tmp_path / "first.jsonl", 1), "--state", state, "--top", "0", "--quiet")
    next_log = write_log(tmp_path / "next.jsonl", 2)
    with serving("--state", state) as server:
        before = pages_known(server)
        line = Viewers(server).look(False, lambda: replay(next_log, "--state", state, "--top", "0"))
        wait_for("the next state is shown", lambda: pages_known(server) > before, 60)
        assert server.mib("VmHWM") < 150 + thorough(150, 450)
        record_property("table", f"a state of {pages_known(server):,} pages, while a replay runs; {line}")


@pytest.mark.thorough
def test_fifty_viewers_follow_a_stream_while_events_arrive(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    make(Connection(kafka.brokers), specs(topic_prefix, 1, 4, 4))
    log, keep = write_log(tmp_path / "log.jsonl", 1), VISITS
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
    with serving(*where, "--keep", keep) as server:
        line = Viewers(server).look(
            True, lambda: replay(log, "--to", f"kafka://{kafka.brokers}", "--prefix", topic_prefix)
        )
        wait_for("all pages are known", lambda: pages_known(server) > 2 * keep, 60)
        assert server.mib("VmHWM") < 200 + thorough(150, 300)  # 267 to 315 in ten runs
        record_property("table", f"a stream of {pages_known(server):,} pages, {keep:,} kept; {line}")
