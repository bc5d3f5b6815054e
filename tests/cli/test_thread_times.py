"""The processor time of a replay is divided among its parts, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from opicflow.pipelines.cli.thread_times import REST, ThreadTimes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a clock for each thread")


def work(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass


def test_each_part_has_the_time_of_its_threads() -> None:
    threads = [threading.Thread(target=work, args=(0.4,), name=name) for name in ("one-1", "one-2", "other")]
    with ThreadTimes({"one": "first", "other": "second"}) as times:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = times.seconds()
    assert 0.7 <= found["first"] < 1.5 and 0.3 <= found["second"] < 0.7 and found[REST] > 0
    assert times.lines()[-1].endswith(f"s in {times.wall_seconds:.2f} s")


@pytest.mark.parametrize("runner", ["local", "DirectRunner"])
def test_a_replay_prints_its_parts(runner: str) -> None:
    words = ["replay", "examples/crawl.jsonl.gz", "--runner", runner, "--profile", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "opicflow.pipelines.cli", *words], capture_output=True, text=True)
    assert done.returncode == 0 and "processor time:" in done.stderr and "processor time" not in done.stdout
    assert {"ledger", "decode"} <= {line.split("%  ")[-1].split(",")[0] for line in done.stderr.splitlines()}
