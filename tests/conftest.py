"""What every test shares: hypothesis profiles, the seed of simulations, Kafka, and two workers."""

from __future__ import annotations

import os
import re
import secrets
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from support.services import MISSING, LocalCluster, LocalKafka, running, running_cluster

# The same examples in every run, so that a failure is never a matter of luck; `make soak` looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("OPICFLOW_HYPOTHESIS", "ci"))

# In the background of a script interrupts are ignored, by what is started there too, which tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def seed() -> int:
    """The seed of a simulation: OPICFLOW_SEED, or 0. Printed, so that a failure shows it."""
    chosen = int(os.environ.get("OPICFLOW_SEED", "0"))
    print(f"seed {chosen}: run it again with OPICFLOW_SEED={chosen}, or make soak SEED={chosen}")
    return chosen


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker and one registry for the whole run. Use topics with `topic_prefix`, and leave the broker alive."""
    with running(tmp_path_factory.mktemp("services"), "kafka", "registry") as started:
        yield started


@pytest.fixture
def lone_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker for one test, which may kill, restart or pause it. There is no registry."""
    with running(tmp_path_factory.mktemp("services"), "kafka") as started:
        yield started


@pytest.fixture(scope="module")
def flink_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker and a Flink cluster for the tests of a file, which may kill any of it. There is no registry."""
    with running_cluster(tmp_path_factory.mktemp("services")) as started:
        yield started


@pytest.fixture
def topic_prefix() -> str:
    """What the names of a test's topics begin with, so that no two tests share a topic."""
    return f"t{secrets.token_hex(3)}-"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for all tests; none for chosen files, which are done before two have started."""
    everything = config.args == config.getini("testpaths")
    return 2 if everything and (os.cpu_count() or 1) > 1 else 0


class ByFile(LoadFileScheduling):
    """Gives whole files to the workers, and all that ask for the broker to one: a run has one broker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "broker" if asks_for_the_broker(self.config.rootpath / file) else file


@cache
def asks_for_the_broker(file: Path) -> bool:
    return re.search(r"\b(lone_|flink_)?kafka: ", file.read_text(encoding="utf-8")) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly how much was not tested, and what to install."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    missed = [reason.partition(MISSING)[2] for reason in reasons if MISSING in reason]
    if missed:
        tests = "1 test was" if len(missed) == 1 else f"{len(missed)} tests were"
        terminalreporter.write_line(f"{tests} SKIPPED without services: {missed[0]}", red=True, bold=True)
