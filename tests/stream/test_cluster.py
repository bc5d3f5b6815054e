"""The stream on a real Flink cluster and a real broker: exact whatever is killed, and as good as a ledger alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from deploy.services.flink import TASK_MANAGERS
from opicflow.pipelines.web.webs import power_law_web
from opicflow.schemas.crawl_events import CrawlEvent, Link
from support.commands import command
from support.crawls import Errors, exact_ranks
from support.logs import WebLog, id_of, importance_of
from support.services import LocalCluster
from support.stream_chaos import PATIENCE_SECONDS, TOP, Chaos, LocalStream, resident_mib

GUIDE = TOP / "docs" / "guides" / "operations.md"
KINDS = ["worker", "tasks", "broker", "old_checkpoint", "delivered_twice"]
SLOW_KINDS = ["zombie", "cluster"]
"""Those that wait for time limits of the cluster, or for all of it to start."""


@pytest.fixture(scope="module")
def stream(flink_kafka: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStream]:
    """A stream of four shards that runs. Tests give it events of their own, and leave it running."""
    started = LocalStream(flink_kafka, tmp_path_factory.mktemp("stream"), "four-", 4, snapshot_mb=0.05)
    said = started.start()
    assert said.out.startswith(f"the stream runs: job '{started.name}' (") and "Traceback" not in said.err
    yield started
    started.cancel()


# -- what comes in


def test_a_poison_batch_becomes_rejects_and_does_not_stop_the_stream(stream: LocalStream) -> None:
    jobs = [job.id for job in stream.flink.jobs(stream.name)]
    poison = [b"garbage \xff", None, b"{", b'{"url": 3}', b"\xc3\x01 no such schema", b"\x00\x00\x00\x00\x07x", b""]
    stream.send("crawl-events", poison, 1)
    stream.send("policies", [b"garbage", None, b'{"url": "https://a.example/", "rate": "soon"}'])
    entries = [b"garbage", b"", None, b"\x00" * 100]
    stream.send("page-ledger", entries, 2)
    stream.publish(WebLog(power_law_web(100, 1)).crawl("cycle", 200).events)
    stream.check()
    rejects = stream.rejects()
    sources = [one.source.removeprefix(stream.prefix) for one in rejects]
    assert sources.count("crawl-events/1") == len(poison)
    assert sources.count("policies/0") == 3
    assert sources.count("page-ledger/2") == len(entries)
    assert all(one.detail for one in rejects)
    assert b"garbage \xff" in [one.bytes for one in rejects]
    assert [job.id for job in stream.flink.jobs(stream.name)] == jobs
    assert stream.flink.details(jobs[0]).restarts == 0


def burst(page: str, others: Iterable[str]) -> Iterator[CrawlEvent]:
    """Visits of many pages that link to one, and visits of that one between them."""
    for number, other in enumerate(others):
        yield CrawlEvent(other, status=200, links=(Link(page), Link(f"{page}{number % 7}")))
        if number % 3 == 0:
            yield CrawlEvent(page, status=200, links=(Link(other),))


def test_a_burst_to_one_page_and_one_host_is_counted_like_any_other(stream: LocalStream) -> None:
    stream.publish(burst("https://hot.example/page", (f"https://a{number}.example/" for number in range(1500))))
    stream.publish(burst("https://cold.example/", (f"https://hot.example/{number}" for number in range(1500))))
    ledgers = stream.check()
    assert ledgers.sums().visits >= 2 * 2000
    assert stream.flink.beam_metrics(stream.job.id).get("snapshots", 0) > 0, "those who go on with it begin with one"


# -- how it is run


def test_a_wrong_start_is_refused_by_name(stream: LocalStream, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        """What is said on standard error: one line, exit code 2."""
        said = command(*arguments)
        assert said.code == 2 and len(said.err.splitlines()) == 1, said
        return said.err

    start = ("stream", *stream.options)
    other = (*start, "--name", "other")
    assert f"a job '{stream.name}' runs there already" in refused(*start)
    assert "its ledgers count with other options (damping: 0.85)" in refused(*other, "--damping", "0.7")
    assert "12 partitions" not in refused(*other, "--prefix", "nobody-")
    assert f"{stream.ledger_topic}" in command(*other, "--shards", "12").out
    assert refused(*other, "--shards", "12")
    assert "a stream needs FlinkRunner" in refused(*other, "--runner", "DirectRunner")
    assert "slots are free" in refused(*other, "--parallelism", "99")
    no_folder = [part for part in other if "checkpoints" not in str(part)]
    assert "--checkpoints" in refused(*no_folder)
    empty = (*other, "--checkpoints", str(tmp_path), "--from-savepoint", "latest")
    assert "there is no checkpoint and no savepoint" in refused(*empty)
    assert "no job 'nobody' runs there" in refused(
        "stream", "status", "--flink-master", stream.cluster.flink_rest, "--name", "nobody"
    )
    unknown = command("stream", "restart")
    assert unknown.code == 2 and "choose from" in unknown.err
    assert stream.job.state == "RUNNING"


def test_an_upgrade_goes_on_where_the_stream_stopped(stream: LocalStream) -> None:
    crawl = WebLog(power_law_web(150, 2)).crawl("random", 600)
    stream.publish(crawl.events[:300])
    before = stream.job
    said = stream.said("stream", "upgrade", *stream.options)
    assert said.code == 0, f"{said}\n{stream.tails()}"
    assert f"the stream goes on: job '{stream.name}'" in said.out and "stopped, with a savepoint: " in said.err
    assert stream.job.id != before.id
    stream.publish(crawl.events[300:])
    stream.check()
    status = stream.said("stream", "status", "--flink-master", stream.cluster.flink_rest, "--name", stream.name)
    assert status.code == 0 and "RUNNING, 0 restarts" in status.out, status


def test_the_commands_in_the_guide_run_as_written(flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str) -> None:
    """With topics of their own, and the addresses of this cluster."""
    (block,) = re.findall(
        r"```sh\n(opicflow stream .*?)```",
        (TOP / "docs" / "guides" / "operations.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    stream = LocalStream(flink_kafka, tmp_path, topic_prefix, 8)
    log = TOP / "examples" / "crawl.jsonl.gz"
    assert stream.said("publish", "events", log, *stream.where, "--quiet").code == 0
    here = {
        "localhost:9092": flink_kafka.brokers,
        "localhost:8081": flink_kafka.flink_rest,
        "localhost:8099": flink_kafka.job_server,
        "build/stream": str(tmp_path / "checkpoints"),
    }
    said: list[str] = []
    for line in block.replace("\\\n", "").splitlines():
        _, *words = [here.get(word, word) for word in line.split()]
        own = ["--prefix", topic_prefix] if "--brokers" in words else []
        done = stream.said(*words, *own, *(["--name", stream.name] if words[0] == "stream" else []))
        assert done.code == 0, f"{line}: {done}\n{stream.tails()}"
        said.append(done.out)
        if words[0] == "stream" and "--checkpoints" in words:
            stream.drain()
    started, status, audited, proven, best, stopped = said
    assert "the stream runs" in started and "RUNNING, 0 restarts" in status
    assert audited.startswith("balanced at ") and "8 shards" in audited
    assert proven.count("is what its log says") == 8
    assert "https://docs.tern.example/" in best
    assert "savepoint" in stopped


@pytest.mark.soak
def test_ledgers_made_anew_in_another_number_count_the_same(stream: LocalStream, tmp_path: Path) -> None:
    web = power_law_web(200, 5)
    stream.publish(WebLog(web).crawl("cycle", 1000).events)
    before = stream.check()
    anew = LocalStream.__new__(LocalStream)
    anew.__dict__ |= {**stream.__dict__, "shards": 8, "name": f"{stream.prefix}anew", "ledger_topic": "four-eight"}
    # Nothing is published before the new ledgers have come to where the old ones are, and the books of both are told
    # in one topic: they are told apart by the number of shards.
    said = stream.said("rebuild", "--shards", 8, "--to-ledger", "four-eight", *anew.options)
    assert said.code == 0, f"{said}\n{anew.tails()}"
    assert "rebuilding: job 'four-anew'" in said.out
    try:
        stream.cancel()  # its books would be told between those of the new ones
        after = anew.check()
    finally:
        anew.cancel()
        stream.start("--from-savepoint", "latest")
    assert after.sums() == before.sums()
    ids = np.array([id_of(number) for number in range(web.pages)], np.uint64)
    one, other = before.importance(ids), after.importance(ids)
    assert float(np.abs(one - other).sum() / one.sum()) < 0.25


@pytest.mark.soak
def test_ten_minutes_of_backlog_drain_in_bounded_memory(
    flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str
) -> None:
    stream = LocalStream(flink_kafka, tmp_path, topic_prefix, 4)
    visits, rounds = 20_000, 30  # so many are what a crawler of a thousand pages a second sends in ten minutes
    log = WebLog(power_law_web(2000, 6), seconds_between=None).crawl("random", visits)
    stream.start()
    stream.publish(log.events)  # all pages are known, all code is loaded
    stream.drain()
    stream.cancel()
    stream.publish(event for _ in range(rounds) for event in log.events)
    stream.start("--from-savepoint", "latest")
    job, resident = stream.job, []
    while stream.flink.beam_metrics(job.id).get("visits", 0) < rounds * visits:
        tasks = [one.pid for one in flink_kafka.services.status()["flink"].processes if one.name in TASK_MANAGERS]
        workers = [pid for pid, _ in stream.workers()]
        resident.append((sum(map(resident_mib, workers)), sum(map(resident_mib, tasks))))
        threading.Event().wait(0.5)
    print(f"MiB of workers, and of TaskManagers: {resident[:: len(resident) // 10 + 1]}")
    first, second = resident[: len(resident) // 2], resident[len(resident) // 2 :]
    assert (np.max(second, axis=0) <= 1.1 * np.max(first, axis=0)).all()
    assert stream.flink.details(job.id).restarts == 0
    stream.check()
    stream.cancel()


# -- as good as one ledger


@pytest.mark.soak
def test_importance_is_as_good_as_that_of_one_ledger(
    flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str
) -> None:
    stream = LocalStream(flink_kafka, tmp_path, topic_prefix, 16)
    stream.start()
    # What others send must arrive long before the crawler comes round: in 100 s here, in weeks of a real crawl. At 200
    # a second it comes round in 20 s, and errors are three times as large (docs/guides/operations.md).
    crawl = WebLog(power_law_web(4000, 3, dangling=0.1)).crawl("cycle", 24_000)
    stream.publish(crawl.events, per_second=40)
    ledgers = stream.check()
    stream.cancel()
    stream.undisturbed(tmp_path / "out")
    exact = exact_ranks(crawl.graph)
    ids = np.array([id_of(number) for number in range(crawl.graph.pages)], np.uint64)
    alone = Errors.of(importance_of(tmp_path / "out" / "importance.jsonl", crawl.graph.pages), exact)
    shared = Errors.of(ledgers.importance(ids), exact)
    print(f"errors in per cent: 16 shards {shared}, one ledger {alone}")
    assert shared.everywhere <= 1.2 * alone.everywhere
    assert shared.top <= 1.2 * alone.top


# -- whatever is killed


def chaos(stream: LocalStream, kinds: list[str], seed: int, pages: int = 500, per_second: float = 60.0) -> None:
    """All of these happen while events flow; then nothing is lost, and nothing counted twice."""
    enough = threading.Event()
    web = power_law_web(pages, 3 + seed % 1000, dangling=0.1)
    log = WebLog(web, seconds_between=None).crawl("random", 20 * pages, seed)  # without times nothing comes late

    def flow() -> Iterator[CrawlEvent]:
        """Events until enough has happened."""
        while not enough.is_set():
            for event in log.events:
                if enough.is_set():
                    return
                yield event

    stream.start()
    publisher = threading.Thread(target=stream.publish, args=(flow(), per_second), daemon=True)
    publisher.start()
    happenings = Chaos(stream, seed)
    try:
        happenings.events_flow()
        for kind in kinds:
            happenings.happens(kind)
    finally:
        for kind, seconds in happenings.recoveries:
            print(f"{kind}: events counted again after {seconds:.1f} s")
        enough.set()
        publisher.join(PATIENCE_SECONDS)
    stream.check()
    stream.cancel()


@pytest.mark.soak
def test_every_event_is_counted_once_whatever_is_killed(
    flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str, seed: int
) -> None:
    kinds = list(KINDS)
    Random(seed).shuffle(kinds)
    backend, snapshot_mb = "heap" if seed % 2 else "rocksdb", 16.0 if seed % 3 else 0.05
    chaos(LocalStream(flink_kafka, tmp_path, topic_prefix, 4, backend, snapshot_mb), kinds, seed)


@pytest.mark.soak
def test_every_event_is_counted_once_in_long_chaos(
    flink_kafka: LocalCluster, tmp_path: Path, topic_prefix: str, seed: int
) -> None:
    kinds = 2 * [*KINDS, *SLOW_KINDS]
    Random(seed).shuffle(kinds)
    chaos(LocalStream(flink_kafka, tmp_path, topic_prefix, 8), kinds, seed)
