"""A replay gives the results of a ledger, for every format and division of the log, and the same bytes every time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from opicflow.connectors.files import log_reader
from opicflow.connectors.kafka.connection import Connection
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import Absorbing, All, LedgerConfig
from opicflow.pipelines.results import topic_writer
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.errors import Interrupted
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.urls import UrlRules, canonical
from support.crawls import Errors, assert_within, exact_ranks
from support.logs import (
    FIRST_MS,
    WebLog,
    adds_up,
    avro,
    edges,
    id_of,
    importance_of,
    json_line,
    jsonl,
    records_of,
    run,
    url,
    warc,
    without_times,
)
from support.thorough import examples

_VISITS_PER_SWEEP_RECORD = 2


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# -- the same as a ledger, and as PageRank


@pytest.mark.parametrize(
    ("order", "config", "announced"),
    [
        ("cycle", LedgerConfig(), True),
        ("cycle", LedgerConfig(), False),
        ("greedy", LedgerConfig(), True),
        ("greedy", LedgerConfig(history=Absorbing()), True),
        ("random", LedgerConfig(history=All(), damping=0.7, remember_links=True), False),
    ],
    ids=lambda value: type(value.history).__name__ if isinstance(value, LedgerConfig) else str(value),
)
def test_a_replay_gives_the_results_of_a_ledger_that_is_used_directly(
    order: str, config: LedgerConfig, announced: bool, tmp_path: Path
) -> None:
    log = WebLog(power_law_web(300, 3, dangling=0.1), config, announced).crawl(order, 4 * 300, seed=4)
    history = {"Absorbing": "absorbing", "All": "all"}.get(type(config.history).__name__)
    counting = LedgerOptions(history=history, damping=config.damping, remember_links=config.remember_links)
    result = run([write(tmp_path / "log.jsonl", jsonl(log.events))], tmp_path / "out", counting=counting)
    records = records_of(tmp_path / "out/importance.jsonl")
    ledger = log.ledger
    ids = np.array([int(record["page"], 16) for record in records], np.uint64)
    expected = ledger.estimate(ids)
    assert len(records) == ledger.pages == result.summary["pages"]
    assert {record["url"] for record in records} >= {url(number) for number in log.visited}
    np.testing.assert_allclose([r["importance"] for r in records], expected.importance, rtol=1e-12, atol=0)
    np.testing.assert_allclose([r["history"] for r in records], expected.rate, rtol=1e-12, atol=0)
    np.testing.assert_allclose(
        [r["window_importance"] for r in records], expected.window_importance, rtol=1e-12, atol=0
    )
    np.testing.assert_allclose([r["trend_per_day"] for r in records], expected.trend_per_day, rtol=1e-9, atol=1e-18)
    assert [r["cash"] for r in records] == expected.cash.tolist()
    assert [r["waiting_cash"] for r in records] == expected.waiting.tolist()
    assert [r["visits"] for r in records] == expected.visits.tolist()
    assert [r["last_visit"] or 0 for r in records] == expected.last_visit_ms.tolist()
    assert (result.summary["visits"], result.summary["transfers"]) == (len(log.visited), ledger.transfers)
    assert result.summary["drift"] == 0 and adds_up(result.summary)


@pytest.mark.parametrize(
    ("order", "history", "bounds"),
    [("cycle", "interpolation", (2.5, 4.0)), pytest.param("greedy", "absorbing", (1.5, 0.5), marks=pytest.mark.soak)],
)
def test_importance_is_as_near_to_pagerank_as_documented(
    order: str, history: str, bounds: tuple[float, float], tmp_path: Path
) -> None:
    web = power_law_web(800, 5)
    log = WebLog(web, LedgerConfig(history=Absorbing() if history == "absorbing" else LedgerConfig().history))
    log.crawl(order, 10 * 800, seed=1)
    path = write(tmp_path / "log.jsonl", jsonl(log.events))
    run([path], tmp_path / "out", counting=LedgerOptions(history=history))
    errors = Errors.of(importance_of(tmp_path / "out/importance.jsonl", 800), exact_ranks(web))
    assert_within(errors, *bounds)


def one_visit_a_page(tmp_path: Path, seconds_between: float | None = 20.0, dangling: float = 0.0) -> WebLog:
    web = power_law_web(1000, 8, dangling=dangling)
    log = WebLog(web, announced=False, seconds_between=seconds_between)
    return log.visit(np.random.default_rng(2).permutation(1000).tolist())


def test_a_log_of_one_visit_a_page_settles_to_pagerank_in_every_format(tmp_path: Path) -> None:
    log = one_visit_a_page(tmp_path)
    plain = jsonl(log.events)
    files = {
        "log.jsonl": plain,
        "log.jsonl.gz": gzip.compress(plain),
        "log.jsonl.zst": zstandard.ZstdCompressor().compress(plain),
        "log.avro": avro(log.events),
        "raw.avro": avro(log.events, "null"),
        "log.warc.gz": gzip.compress(warc(log.events)),
        "log.tsv": edges(log.events),
    }
    exact = exact_ranks(log.graph)
    found = {}
    for name, data in files.items():
        result = run([write(tmp_path / name, data)], tmp_path / f"{name}.out", settle=True)
        assert (result.summary["visits"], result.summary["rejects"]) == (1000, 0), name
        found[name] = (tmp_path / f"{name}.out/importance.jsonl").read_bytes()
        ranks = importance_of(tmp_path / f"{name}.out/importance.jsonl", 1000)
        assert np.abs(ranks - exact).sum() < 1e-3, name
    del found["log.tsv"]  # has no times, so no ticks
    assert len(set(found.values())) == 1


def test_an_edge_list_counts_as_visits_without_times(tmp_path: Path) -> None:
    log = one_visit_a_page(tmp_path, seconds_between=None)
    for name, data in {"a.jsonl": jsonl(log.events), "b.tsv": edges(log.events)}.items():
        run([write(tmp_path / name, data)], tmp_path / name[0])
    assert (tmp_path / "a/importance.jsonl").read_bytes() == (tmp_path / "b/importance.jsonl").read_bytes()


# -- the same bytes


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of more than two megabytes, with rejects."""
    log = WebLog(power_law_web(700, 3, dangling=0.1), seconds_between=97.0).crawl("random", 5000)
    lines = jsonl(log.events).splitlines(keepends=True)
    for row in range(100, len(lines), 400):
        lines.insert(row, b'{"url": 3}\n' if row % 800 else b"nonsense\n")
    assert sum(map(len, lines)) > 2 << 20
    return write(tmp_path_factory.mktemp("crawl") / "log.jsonl", b"".join(lines))


RESULTS = {
    "importance": "Importance",
    "refresh-schedule": "RefreshSchedule",
    "crawl-orders": "CrawlOrder",
    "site-importance": "SiteImportance",
    "rejects": "Reject",
    "publications": "Importance",
    "refresh-publications": "RefreshSchedule",
}


def test_two_runs_write_the_same_bytes_and_all_formats_give_the_same_results(crawl: Path, tmp_path: Path) -> None:
    for format_ in ("jsonl", "avro", "parquet"):
        for out in (tmp_path / format_, tmp_path / "again"):
            run([crawl], out, format=format_, publications=True)
        for name in RESULTS:
            first, second = ((tmp_path / out / f"{name}.{format_}").read_bytes() for out in (format_, "again"))
            assert first == second and first
    for name, of_schema in RESULTS.items():
        lines, in_avro, in_parquet = (
            read_result(tmp_path / format_ / f"{name}.{format_}") for format_ in ("jsonl", "avro", "parquet")
        )
        assert lines == in_avro == in_parquet and lines
        fields = [field["name"] for field in schema(of_schema)["fields"]]
        assert {tuple(record) for records in (lines, in_avro, in_parquet) for record in records} == {tuple(fields)}


def test_urls_with_quotes_and_other_letters_are_the_same_in_all_formats(tmp_path: Path) -> None:
    urls = [
        'https://a.example/"q"?a="b"\\c',
        "https://b\u00fccher.example/stra\u00dfe?q=\u00e4",
        "https://a.example/it's",
    ]
    log = write(
        tmp_path / "log.jsonl",
        b"".join(json_line(CrawlEvent(url, fetched_at_ms=FIRST_MS, links=(Link(urls[0]),))) for url in urls)
        + 'no "JSON", \u00e4\\\n'.encode(),
    )
    found = []
    for format_ in ("jsonl", "avro", "parquet"):
        run([log], tmp_path / "out", format=format_)
        found.append([read_result(tmp_path / "out" / f"{name}.{format_}") for name in ("importance", "rejects")])
    assert found[0] == found[1] == found[2]
    importance, rejects = found[0]
    assert {record["url"] for record in importance} == {canonical(url).decode() for url in urls}
    assert [record["bytes"] for record in rejects] == ['no "JSON", \u00e4\\']


def read_result(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return records_of(path)
    if path.suffix == ".parquet":
        return [plain(record) for record in pq.read_table(path).to_pylist()]
    with open(path, "rb") as file:
        return [plain(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


def plain(record: Any) -> dict[str, Any]:
    times = {name: int(value.timestamp() * 1000) for name, value in record.items() if hasattr(value, "timestamp")}
    texts = {name: value.decode() for name, value in record.items() if isinstance(value, bytes)}
    return {**record, **times, **texts}


@pytest.mark.slow
def test_segments_of_any_size_and_any_number_of_files_give_the_same_bytes(
    crawl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run([crawl], tmp_path / "whole", publications=True)
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 40_000)
    parts = run([crawl], tmp_path / "parts", publications=True, segment_bytes=300_000)
    lines = crawl.read_bytes().splitlines(keepends=True)
    files = [
        write(tmp_path / f"{n}.jsonl", b"".join(lines[at : at + 1500]))
        for n, at in enumerate(range(0, len(lines), 1500))
    ]
    several = run(files, tmp_path / "several", publications=True)
    for name in ("importance", "publications"):
        expected = (tmp_path / f"whole/{name}.jsonl").read_bytes()
        assert (tmp_path / f"parts/{name}.jsonl").read_bytes() == expected
        assert (tmp_path / f"several/{name}.jsonl").read_bytes() == expected
    assert without_times(whole.summary) == without_times(parts.summary)
    assert without_times(several.summary) == {**without_times(whole.summary), "files": len(files)}
    assert (tmp_path / "whole/rejects.jsonl").read_bytes() == (tmp_path / "parts/rejects.jsonl").read_bytes()


def test_segments_of_compressed_files_continue_where_the_previous_one_stopped(
    crawl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 40_000)
    data = crawl.read_bytes()
    half = data.index(b"\n", len(data) // 2) + 1
    pieces = gzip.compress(data[:half]) + gzip.compress(data[half:])
    run([crawl], tmp_path / "a")
    run([write(tmp_path / "log.gz", pieces)], tmp_path / "b", segment_bytes=300_000)
    assert (tmp_path / "a/importance.jsonl").read_bytes() == (tmp_path / "b/importance.jsonl").read_bytes()


# -- counts

NUMBERS = st.integers(0, 12)
TIMES = st.none() | st.integers(0, 6).map(lambda hour: FIRST_MS + hour * 1_800_000)
GOOD = st.builds(
    CrawlEvent,
    url=NUMBERS.map(url),
    announce=st.booleans(),
    fetched_at_ms=TIMES,
    status=st.sampled_from([None, 200, 200, 200, 301, 304, 404, 410, 403, 500, 999]),
    failure=st.sampled_from([None, None, None, "timeout", "robots"]),
    redirects=st.lists(NUMBERS.map(url) | st.just("mailto:a@b.c"), max_size=3).map(tuple),
    canonical=st.none() | NUMBERS.map(url) | st.just("javascript:x"),
    links=st.none()
    | st.lists(
        st.builds(
            Link,
            url=NUMBERS.map(url) | st.sampled_from(["/a", "mailto:x", "", "#a", "https://www.site-1.example/page/1"]),
            weight=st.sampled_from([None, 0, 0.5, 100]),
            rel=st.sampled_from([None, "nofollow"]),
        ),
        max_size=5,
    ).map(tuple),
)
BAD = st.sampled_from(
    [
        b"{\n",
        b"[]\n",
        b'{"url": "mailto:x"}\n',
        b'{"url": "ftp://a.b/"}\n',
        b'{"url": "https://a.example/", "fetched_at": "yesterday"}\n',
        b'{"url": "https://a.example/", "fetched_at": 1}\n',
        b'{"url": "https://a.example/", "links": [{"url": "x", "weight": -1}]}\n',
        b'{"url": "https://a.example/", "links": 3}\n',
        b'{"url": "\xff"}\n',
        b'{"kind": "what", "url": "https://a.example/"}\n',
        b'{"nothing": 1}\n',
    ]
)


@examples(8, 100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(GOOD.map(json_line) | BAD, min_size=1, max_size=40), fold=st.booleans())
def test_every_event_is_a_visit_an_announcement_a_reject_or_a_duplicate(
    lines: list[bytes], fold: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("log")
    path = write(tmp_path / "log.jsonl", json_line(CrawlEvent("https://first.example/", True)) + b"".join(lines))
    result = run([path], tmp_path / "out", rules=Rules(UrlRules(fold_www=fold)))
    assert adds_up(result.summary)
    assert result.summary["events_read"] == 1 + len(lines)
    assert len(records_of(tmp_path / "out/rejects.jsonl")) == result.summary["rejects"]
    ranks = [record["importance"] for record in records_of(tmp_path / "out/importance.jsonl")]
    assert sum(ranks) == pytest.approx(1) and min(ranks) >= 0
    assert len(ranks) == result.summary["pages"]


def test_a_repeated_visit_is_a_duplicate_and_an_earlier_one_is_late(tmp_path: Path) -> None:
    def event(number: int, hour: int, *links: int) -> bytes:
        time_ms = FIRST_MS + hour * 3_600_000
        return json_line(CrawlEvent(url(number), fetched_at_ms=time_ms, links=tuple(Link(url(n)) for n in links)))

    once = [event(1, 0, 2, 3), event(2, 5, 1), event(1, 9, 2), event(1, 4, 3)]
    twice = [once[0], once[0], once[1], once[2], once[2], once[3]]
    expected = run([write(tmp_path / "a.jsonl", b"".join(once))], tmp_path / "a").summary
    summary = run([write(tmp_path / "b.jsonl", b"".join(twice))], tmp_path / "b").summary
    assert (summary["visits"], summary["duplicates"], summary["late"]) == (4, 2, 1)
    assert (expected["visits"], expected["duplicates"], expected["late"]) == (4, 0, 1)
    assert (tmp_path / "a/importance.jsonl").read_bytes() == (tmp_path / "b/importance.jsonl").read_bytes()


def test_a_repeated_redirect_chain_is_one_duplicate(tmp_path: Path) -> None:
    line = json_line(CrawlEvent(url(3), fetched_at_ms=FIRST_MS, redirects=(url(1), url(2)), links=()))
    summary = run([write(tmp_path / "a.jsonl", 2 * line)]).summary
    assert (summary["events_read"], summary["visits"], summary["duplicates"]) == (2, 1, 1)
    assert summary["redirects"] == 4 and summary["pages_read"] == 3


def test_rejects_have_their_bytes_reason_and_offset(tmp_path: Path) -> None:
    lines = [b'{"url": "https://a.example/"}\n', b"\xff\xfe{\n", b'{"url": "mailto:<script>"}\n']
    path = write(tmp_path / "log.jsonl", b"".join(lines))
    run([path], tmp_path / "out")
    first, second = records_of(tmp_path / "out/rejects.jsonl")
    assert (first["reason"], first["source"], first["offset"]) == ("not-utf8", str(path), len(lines[0]))
    assert first["bytes_base64"] == "//57"
    assert (second["reason"], second["offset"], second["bytes"]) == (
        "not-a-page",
        len(b"".join(lines[:2])),
        '{"url": "mailto:<script>"}',
    )


def test_an_empty_file_among_others_is_one_reject(tmp_path: Path) -> None:
    good = write(tmp_path / "a.jsonl", json_line(CrawlEvent(url(1))))
    empty = write(tmp_path / "b.jsonl", b"")
    result = run([good, empty], tmp_path / "out")
    assert result.summary["rejects_by_reason"] == {"empty-file": 1}
    assert adds_up(result.summary)
    (reject,) = records_of(tmp_path / "out/rejects.jsonl")
    assert reject["source"] == str(empty)


def test_the_summary_on_disk_is_the_returned_one(tmp_path: Path) -> None:
    result = run([write(tmp_path / "a.jsonl", json_line(CrawlEvent(url(1))))], tmp_path / "out")
    assert json.loads((tmp_path / "out/summary.json").read_bytes()) == result.summary
    named = "events_read visits announcements rejects duplicates late pages links seconds"
    assert set(named.split()) <= set(result.summary)
    assert result.summary["pages_removed"] == {}


# -- publications


@pytest.mark.parametrize("segment_bytes", [256 << 20, 250_000])
def test_visited_pages_and_movers_are_published(
    segment_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", min(2 << 20, segment_bytes // 3))
    log = WebLog(power_law_web(600, 3, dangling=0.1), announced=False, seconds_between=60.0).crawl("random", 5000)
    path = write(tmp_path / "log.jsonl", jsonl(log.events))
    run([path], tmp_path, publications=True, segment_bytes=segment_bytes)
    published = records_of(tmp_path / "publications.jsonl")
    assert all(record["url"] for record in published)
    moments: dict[float, list[dict[str, Any]]] = {}
    for record in published:
        moments.setdefault(record["clock"], []).append(record)
    assert len(moments) > 20
    latest: dict[str, float] = {}
    sweeps = 0
    for clock in sorted(moments):
        records = moments[clock]
        assert len({(r["event_time"], r["pages"]) for r in records}) == 1
        assert sum(record["importance"] for record in records) <= 1 + 1e-9 or len(records) > 600
        sweeps += len(records) > 0
        for record in records:
            latest[record["page"]] = record["score"]
    visited = {f"{id_of(number):016x}" for number in log.visited[200:-600]}
    assert visited <= set(latest)
    assert len(published) <= (1 + _VISITS_PER_SWEEP_RECORD) * len(log.visited)
    # The publications are almost the final scores: little has changed since the last sweep.
    final = {record["page"]: record["score"] for record in records_of(tmp_path / "importance.jsonl")}
    off = [abs(latest[page] - score) / score for page, score in final.items() if page in latest]
    assert np.median(off) < 0.1


def test_publications_do_not_change_importance(crawl: Path, tmp_path: Path) -> None:
    run([crawl], tmp_path / "a", publications=True, samples=True)
    run([crawl], tmp_path / "b")
    first, second = (records_of(tmp_path / out / "importance.jsonl") for out in "ab")
    assert first == second


def test_samples_describe_the_crawl(crawl: Path) -> None:
    samples = run([crawl], samples=True).samples
    assert len(samples) > 5
    assert [s.visits for s in samples] == sorted(s.visits for s in samples)


def test_samples_do_not_depend_on_the_division_of_the_log(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = run([crawl], samples=True).samples
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 40_000)
    assert run([crawl], samples=True, segment_bytes=300_000).samples == samples


def test_observed_freshness_is_the_importance_of_pages_whose_last_visit_found_nothing_new(tmp_path: Path) -> None:
    events: list[CrawlEvent] = []
    digests: dict[str, list[str]] = {}
    chance = np.random.default_rng(3)
    for hour in range(400):
        page = f"https://site.example/{chance.integers(60)}"
        digests.setdefault(page, []).append(f"{page} {chance.integers(2)}")
        links = tuple(Link(f"https://site.example/{one}") for one in chance.integers(0, 60, 5))
        when = FIRST_MS + 3_600_000 * hour
        events.append(CrawlEvent(page, fetched_at_ms=when, status=200, digest=digests[page][-1], links=links))
    log = write(tmp_path / "log.jsonl", b"\n".join(json_line(event) for event in events))
    result = run([log], tmp_path / "out")
    importance = {one["url"]: one["importance"] for one in records_of(tmp_path / "out" / "importance.jsonl")}
    twice = {page: seen[-2:] for page, seen in digests.items() if len(seen) > 1}
    same = sum(importance[page] for page, (one, other) in twice.items() if one == other)
    observed = same / sum(importance[page] for page in twice)
    assert 0.2 < observed < 0.8
    assert result.summary["plan"]["freshness_observed"] == pytest.approx(observed, abs=1e-4)


def test_an_interrupt_while_results_are_sent_says_that_a_part_may_have_been_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(topic_writer.Destination, "check", lambda self: None)
    monkeypatch.setattr(topic_writer, "send_results", interrupt)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"url": "https://a.example/"}\n')
    to = topic_writer.Destination(Connection("127.0.0.1:1"), "")
    with pytest.raises(Interrupted, match="a part of the results may have been sent: run the same command again"):
        run([log], tmp_path / "out", to=to)
