"""Shared by all tests: hypothesis profiles, the seed of simulations, services, markers, and workers."""

from __future__ import annotations

import gc
import os
import re
import secrets
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from support.browser import NO_BROWSER
from support.real_data import NO_DATA
from support.services import MISSING, LocalCluster, LocalKafka, background, joined, running, running_cluster
from support.thorough import PROFILE

# Services of tests live for minutes: without the second compiler of Java they start in two thirds of the time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# The workers share the cores. Threads of linear algebra in each would wait for each other in loops: ten times the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Folders of results and states are compared byte by byte. Tests of the random keys that users get delete this variable.
os.environ["OPICFLOW_ID_KEY"] = "public"

# The same examples in every run, so that a failure is never a matter of luck; `make soak` looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("soak", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(PROFILE)

# A script that runs in the background ignores interrupts, and so do its children, which some tests interrupt.
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
    """A broker and a registry that all tests share. Use `topic_prefix`, and do not stop the broker."""
    if (folder := os.environ.get(SHARED_SERVICES)) is not None:
        yield joined(Path(folder), *SHARED)
        return
    with running(tmp_path_factory.mktemp("services"), *SHARED) as started:
        yield started


@pytest.fixture(scope="session")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that tests may kill, restart or pause. Each leaves it running. There is no registry."""
    with running(tmp_path_factory.mktemp("services"), "kafka") as started:
        yield started


@pytest.fixture(scope="session")
def flink_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker and a Flink cluster that tests share. They may kill any process, and leave all running, without jobs."""
    with running_cluster(tmp_path_factory.mktemp("services")) as started:
        yield started


@pytest.fixture
def topic_prefix() -> str:
    """The prefix of the topics of one test, so that no two tests share a topic."""
    return f"t{secrets.token_hex(3)}-"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores for all tests, as those with services often wait; none for chosen files."""
    cores = os.cpu_count() or 1
    return min(cores + 1, MOST_WORKERS) if _is_everything(config) and cores > 1 else 0


def _is_everything(config: pytest.Config) -> bool:
    return config.args == config.getini("testpaths")


def _leaves_slow_out(config: pytest.Config) -> bool:
    return _is_everything(config) and not os.environ.get("OPICFLOW_ALL_TESTS") and PROFILE != "soak"


LONGEST = [
    "cluster",
    "mortal broker",
    "tests/ledger/test_limit.py",
    "tests/ledger/test_laws.py",
    "tests/schemas/test_kernel.py",
    "tests/crawl/scrapy/test_recorder_process.py",
    "tests/stream/test_resharding.py",
    "tests/replay/test_state.py",
    "tests/cli/test_audit.py",
    "tests/stream/test_rebuilt.py",
    "tests/crawl/scrapy/test_addon.py",
    "tests/ledger/test_certified.py",
    "tests/ledger/test_refresh.py",
    "tests/replay/test_replay.py",
    "tests/project/test_guides.py",
    "tests/connectors/files/test_warc.py",
    "tests/lab/experiments/test_community.py",
    "tests/lab/experiments/test_experiments.py",
    "tests/crawl/frontier/test_frontier.py",
    "tests/cli/test_main.py",
    "tests/ledger/test_domain_limits.py",
    "tests/cli/test_real_log.py",
    "tests/replay/test_times_ahead.py",
    "tests/refresh/test_simulated_year.py",
    "tests/ranks/graph/test_harmonic.py",
    "tests/connectors/files/test_hostile_avro.py",
    "tests/connectors/files/test_hostile_archives.py",
    "tests/ranks/graph/test_solver.py",
    "tests/replay/test_replayed_log.py",
    "tests/ranks/graph/test_store.py",
    "tests/ledger/test_cuts.py",
    "tests/cli/test_start.py",
    "tests/lab/test_simulate.py",
    "tests/ledger/test_estimates.py",
    "tests/ranks/test_compare.py",
    "tests/ranks/test_rank.py",
    "tests/replay/test_local_runner.py",
    "tests/project/test_packaging.py",
    "tests/project/test_export_guide.py",
]
"""The tests that begin first, the longest first: a worker that begins it at the end keeps the others waiting."""

OWN_SERVICES = {
    "cluster": re.compile(r"\bflink_kafka: |mark\.cluster\b"),
    "mortal broker": re.compile(r"\bmortal_kafka: "),
}
"""The fixtures of services that tests may kill, by which these tests are found."""
SHARED = ("kafka", "registry")
SHARED_SERVICES = "OPICFLOW_SHARED_SERVICES"
"""The folder of the broker that all workers share, in the environment of the workers."""
MOST_WORKERS = 12


class ByFile(LoadFileScheduling):
    """Gives whole files to the workers: all with a Flink cluster to one, and all that may kill a broker to one.

    So there is one of each: a start takes long, and two clusters are too much. All workers share another broker.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return service_of(self.config.rootpath / file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the longest that is left. xdist would give the one with the most tests, which are short."""
        self.workqueue.move_to_end(min(self.workqueue, key=place_of), last=False)
        super()._assign_work_unit(node)


def place_of(scope: str) -> int:
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


@cache
def service_of(file: Path) -> str | None:
    """The service of their own that tests of a file use."""
    text = file.read_text(encoding="utf-8")
    return next((name for name, fixtures in OWN_SERVICES.items() if fixtures.search(text)), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of a Flink cluster. Leave slow ones out of a run of all files, but for `make test ALL=1`."""
    functions: set[str] = set()
    for item in items:
        if "flink_kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("slow_but_first"):
            function = item.nodeid.partition("[")[0]
            if function in functions:
                item.add_marker(pytest.mark.slow)
            functions.add(function)
    if _leaves_slow_out(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_collection() -> None:
    """Keep Python from looking for garbage among thousands of tests, here while they are found: there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests out of what Python searches for garbage all the time: it takes a tenth of the run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Iterator[None]:
    """Start the broker that workers share while they start and find their tests, and keep it until they have ended."""
    options = session.config.option
    if getattr(options, "numprocesses", None) and _is_everything(session.config) and not options.keyword:
        folder = Path(tempfile.mkdtemp(prefix="opicflow-services-"))
        os.environ[SHARED_SERVICES] = str(folder)
        session.config.add_cleanup(background(folder, *SHARED))
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the tables of tests, which tests were left out or skipped because something is missing, and what to do."""
    if _leaves_slow_out(config):
        terminalreporter.write_line("Tests that are marked slow were left out: make test ALL=1 runs them")
    for report in [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]:
        for name, value in report.user_properties:
            if name == "table":
                terminalreporter.write_line(value)
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    for words, what in ((MISSING, "services"), (NO_DATA, "real data"), (NO_BROWSER, "a browser")):
        missed = [reason.partition(words)[2] for reason in reasons if words in reason]
        if missed:
            tests = "1 test was" if len(missed) == 1 else f"{len(missed)} tests were"
            terminalreporter.write_line(f"{tests} SKIPPED without {what}: {missed[0]}", red=True, bold=True)
