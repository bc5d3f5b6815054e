"""`opicflow simulate`: a replay of its log equals a ledger with the same visits; the options set its shares."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.pipelines.lab.experiments import simulated_log
from opicflow.pipelines.lab.experiments.simulated_log import Scenario, SimulatedCrawl, Site, site_named
from opicflow.pipelines.ledger import ItemWriter, Ledger, LogPosition, Outcome, TickEntry
from opicflow.schemas.crawl_events import CrawlEvent
from opicflow.schemas.pages import page_id
from support.commands import command, finished, output_of, refusal
from support.crawls import exact_ranks
from support.logs import records_of, run
from support.paths import TOP

GUIDE = (TOP / "docs" / "guides" / "simulate.md").read_text(encoding="utf-8")
PAGES, VISITS = 150, 300
SMALL = ("--pages", str(PAGES), "--visits", str(VISITS), "--quiet")


def events_of(path: Path, format_: Format = Format.JSONL) -> list[CrawlEvent]:
    """Return the events of a log, as a replay reads them."""
    items = [item for batch in read(FileRange("log", str(path), format_)) for _, item in batch.items()]
    assert all(isinstance(item, CrawlEvent) for item in items)
    return [item for item in items if isinstance(item, CrawlEvent)]


def visits_of(events: Sequence[CrawlEvent]) -> list[CrawlEvent]:
    return [event for event in events if not event.announce]


def outcome(event: CrawlEvent) -> Outcome:
    """Return the outcome of a visit, by docs/reference/formats.md."""
    if event.failure == "robots":
        return Outcome.BLOCKED
    return {200: Outcome.FETCHED, 304: Outcome.UNCHANGED}.get(event.status or 0, Outcome.FAILED)


def ledger_of(events: Sequence[CrawlEvent]) -> Ledger:
    """Return a ledger that applied these events one by one."""
    ledger, position = Ledger(), LogPosition(0, 0)
    for event in events:
        writer = ItemWriter(position)
        page = page_id(event.url)
        if event.announce:
            writer.announcement(page)
        else:
            links = None if event.links is None else [page_id(link.url) for link in event.links]
            assert event.fetched_at_ms is not None
            ledger.apply(TickEntry(event.fetched_at_ms // 3_600_000 * 3600))
            writer.visit(page, links, outcome(event), event.fetched_at_ms)
        ledger.apply(writer.entry(start=position))
        position = writer.next_position
    return ledger


def crawled(site: Site, **how: Any) -> tuple[SimulatedCrawl, list[CrawlEvent]]:
    crawl = SimulatedCrawl(site, Scenario(**{"visits": 3000, **how}))
    return crawl, list(crawl.events())


@pytest.fixture(scope="module")
def site() -> Site:
    return site_named("hosts", 600, seed=3, links=8, dangling=0.1)


# -- compared with a ledger --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--strategy", "random", "--not-modified", "0.5"],
        pytest.param(["--strategy", "cycle", "--web", "poisson"], marks=pytest.mark.soak),
        ["--strategy", "greedy", "--web", "hosts", "--announce", "5", "--never-read", "0.2", "--not-modified", "1"],
        ["--strategy", "xyleme", "--announce", "3"],
        ["--strategy", "greedy", "--history", "certified"],
        ["--strategy", "breadth-first", "--web", "hosts"],
    ],
    ids=lambda options: options[1],
)
def test_a_replay_equals_a_ledger_with_the_same_visits(options: list[str], tmp_path: Path) -> None:
    output_of("simulate", "--out", tmp_path / "log.jsonl", *SMALL, *options)
    ledger = ledger_of(events_of(tmp_path / "log.jsonl"))
    result = run([tmp_path / "log.jsonl"], tmp_path / "out")
    assert (result.summary["visits"], result.summary["rejects"], result.summary["duplicates"]) == (VISITS, 0, 0)
    records = records_of(tmp_path / "out/importance.jsonl")
    expected = ledger.estimate(np.array([int(record["page"], 16) for record in records], np.uint64))
    assert len(records) == ledger.pages
    np.testing.assert_allclose([r["importance"] for r in records], expected.importance, rtol=1e-12, atol=0)
    assert [r["waiting_cash"] for r in records] == expected.waiting.tolist()
    assert [r["visits"] for r in records] == expected.visits.tolist()


def test_a_greedy_crawl_reads_the_page_with_the_most_waiting_cash(site: Site) -> None:
    """With batches of one page, before each visit: by a ledger that applied the log so far."""
    web = site_named("power-law", 200, seed=3, links=5, dangling=0.1)
    _, simulated = crawled(web, strategy="greedy", visits=300, blocked=0.1, failing=0.1)
    announced = [event for event in simulated if event.announce]
    ids = np.array([page_id(url) for url in web.urls], np.uint64)
    ledger = ledger_of(announced)
    position = LogPosition(len(announced), 0)
    for event in simulated[len(announced) :]:
        assert web.urls[int(np.argmax(ledger.waiting_cash(ids)))] == event.url
        writer = ItemWriter(position)
        targets = None if event.links is None else [page_id(link.url) for link in event.links]
        writer.visit(page_id(event.url), targets, outcome(event), event.fetched_at_ms or 0)
        ledger.apply(writer.entry(start=position))
        position = writer.next_position


def test_a_long_crawl_converges_to_its_exact_ranks(tmp_path: Path) -> None:
    log, ranks = tmp_path / "log.avro", tmp_path / "ranks.csv"
    options = ("--never-read", "0.2", "--blocked", "0.1", "--visits", "3000", "--pages", "300", "--seed", "5")
    assert command("simulate", "--out", log, "--ranks", ranks, "--strategy", "cycle", "--quiet", *options)[0] == 0
    rows = list(csv.DictReader(ranks.read_text().splitlines()))
    exact = {row["url"]: float(row["importance"]) for row in rows}
    assert len(exact) == 300 and sum(exact.values()) == pytest.approx(1)
    assert list(exact.values()) == sorted(exact.values(), reverse=True)
    run([log], tmp_path / "out", settle=True)
    settled = {record["url"]: record["importance"] for record in records_of(tmp_path / "out/importance.jsonl")}
    assert set(settled) == set(exact)
    assert sum(abs(settled[url] - exact[url]) for url in exact) < 1e-3


def test_a_crawl_of_all_pages_has_the_ranks_of_the_whole_web(tmp_path: Path) -> None:
    options = ("--web", "poisson", "--blocked", "0", "--seed", "4", "--links", "6", *SMALL)
    command("simulate", "--out", tmp_path / "log.jsonl", "--ranks", tmp_path / "r.csv", *options)
    web = site_named("poisson", PAGES, seed=4, links=6, dangling=0.1)
    exact = dict(zip(web.urls, exact_ranks(web.graph).tolist(), strict=True))
    rows = csv.DictReader((tmp_path / "r.csv").read_text().splitlines())
    assert {row["url"]: float(row["importance"]) for row in rows} == exact


# -- formats -----------------------------------------------------------------------------------------------------------


def test_every_format_has_the_same_events_and_the_same_options_give_the_same_bytes(tmp_path: Path) -> None:
    found = {}
    for name, format_ in {"a.jsonl": Format.JSONL, "a.jsonl.gz": Format.JSONL, "a.avro": Format.AVRO}.items():
        written = []
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            assert command("simulate", "--out", tmp_path / folder / name, "--not-modified", "0.5", *SMALL)[0] == 0
            written.append((tmp_path / folder / name).read_bytes())
        assert written[0] == written[1]
        found[name] = events_of(tmp_path / "one" / name, format_)
    assert found["a.jsonl"] == found["a.jsonl.gz"] == found["a.avro"]
    assert len(found["a.avro"]) == PAGES + VISITS
    assert gzip.decompress((tmp_path / "one/a.jsonl.gz").read_bytes()) == (tmp_path / "one/a.jsonl").read_bytes()
    with open(tmp_path / "one/a.avro", "rb") as file:
        assert sum(1 for _ in fastavro.reader(file)) == PAGES + VISITS
    command("simulate", "--out", tmp_path / "other.jsonl", "--not-modified", "0.5", *SMALL, "--seed", "1")
    assert (tmp_path / "other.jsonl").read_bytes() != (tmp_path / "one/a.jsonl").read_bytes()


def test_visits_are_evenly_spaced_from_the_start(tmp_path: Path) -> None:
    options = ("--start", "2026-03-01T12:00:00Z", "--per-day", "7200", *SMALL)
    command("simulate", "--out", tmp_path / "log.jsonl", *options)
    times = [event.fetched_at_ms for event in visits_of(events_of(tmp_path / "log.jsonl"))]
    assert times == [1_772_366_400_000 + 12_000 * number for number in range(VISITS)]


# -- failures and changes ----------------------------------------------------------------------------------------------


def test_shares_of_failures_follow_the_options(site: Site) -> None:
    crawl, simulated = crawled(site, visits=20_000, blocked=0.2, failing=0.1, never_read=0.25)
    visits = visits_of(simulated)
    ended = Counter(map(outcome, visits))
    assert ended == crawl.outcomes and sum(ended.values()) == 20_000
    blocked = {event.url for event in visits if outcome(event) == Outcome.BLOCKED}
    assert not blocked & {event.url for event in visits if outcome(event) != Outcome.BLOCKED}
    assert len({event.url for event in visits}) == 450
    assert len(blocked) == pytest.approx(0.2 * 450, abs=25)
    assert ended[Outcome.FAILED] / (20_000 - ended[Outcome.BLOCKED]) == pytest.approx(0.1, abs=0.01)
    assert {event.failure or event.status for event in visits} == {200, 500, 503, "robots", "timeout"}
    for event in simulated:
        read = outcome(event) == Outcome.FETCHED and not event.announce
        assert (event.links is not None) == (event.digest is not None) == read


def test_a_server_answers_not_modified_for_an_unchanged_page(site: Site) -> None:
    def hosts(events: list[CrawlEvent], end: Outcome) -> set[str]:
        return {event.url.split("/")[2] for event in events if outcome(event) == end}

    options = {"visits": 12_000, "failing": 0.1, "visits_per_day": 600.0}
    always = visits_of(crawled(site, **options, not_modified=1.0)[1])
    never = visits_of(crawled(site, **options)[1])
    half = visits_of(crawled(site, **options, not_modified=0.5)[1])
    digests: dict[str, str | None] = {}
    for event, plain in zip(always, never, strict=True):
        assert (event.url, event.fetched_at_ms) == (plain.url, plain.fetched_at_ms)
        if plain.digest is not None:
            same = digests.get(plain.url) == plain.digest
            assert outcome(event) == (Outcome.UNCHANGED if same else Outcome.FETCHED)
            assert (event.links, event.digest) == ((None, None) if same else (plain.links, plain.digest))
            digests[plain.url] = plain.digest
    assert hosts(never, Outcome.UNCHANGED) == set()
    assert len(hosts(half, Outcome.UNCHANGED)) == 6  # of 12 hosts
    assert len(hosts(always, Outcome.UNCHANGED)) == 12


def test_a_date_of_change_is_between_the_visits_around_it(site: Site) -> None:
    last: dict[str, tuple[int, str | None]] = {}
    for event in crawled(site, visits=10_000, visits_per_day=600.0)[1]:
        if event.digest is None or event.fetched_at_ms is None or event.last_modified_ms is None:
            continue
        assert event.last_modified_ms <= event.fetched_at_ms
        if event.url in last and last[event.url][1] != event.digest:
            assert event.last_modified_ms > last[event.url][0]
        last[event.url] = (event.fetched_at_ms, event.digest)
    assert len(last) > 400


# -- discovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["random", "greedy", "xyleme", "breadth-first"])
def test_a_crawl_from_seeds_visits_only_what_was_announced_or_linked(strategy: str, site: Site) -> None:
    crawl, simulated = crawled(
        site, strategy=strategy, seeds=3, blocked=0.1, failing=0.1, not_modified=0.3, never_read=0.2
    )
    known = set[str]()
    for event in simulated:
        if event.announce:
            known.add(event.url)
            assert re.fullmatch(r"https://host-\d+\.example/", event.url)  # a front page
            continue
        assert event.url in known
        known.update(link.url for link in event.links or ())
    assert sum(event.announce for event in simulated) == 3
    assert {site.urls[page] for page in crawl.found.tolist()} == known
    assert 500 < len(crawl.found) <= 600
    visited = {event.url for event in simulated if not event.announce}
    assert len(visited) == pytest.approx(0.8 * len(crawl.found), rel=0.1)


def test_a_breadth_first_crawl_visits_pages_in_the_order_in_which_they_were_found(site: Site) -> None:
    _, simulated = crawled(site, strategy="breadth-first", seeds=2, failing=0.1, visits=1500)
    known = list(dict.fromkeys(url for event in simulated if event.announce for url in [event.url]))
    at = 0
    for event in simulated[2:]:
        at = at if at < len(known) else 0
        assert event.url == known[at]
        known = list(dict.fromkeys(known + [link.url for link in event.links or ()]))
        at += 1
    assert at < 1490  # it started again from the first page


# -- edge lists --------------------------------------------------------------------------------------------------------


def test_the_web_of_an_edge_list_is_crawled(tmp_path: Path) -> None:
    edges = tmp_path / "edges.tsv.gz"
    edges.write_bytes(gzip.compress(b"# names and URLs\nhttps://a.example\tb c\nb c\tHTTPS://a.example/x 2\nd\tb c\n"))
    out = finished("simulate", "--edges", edges, "--out", tmp_path / "log.jsonl", "--visits", "60", "--quiet").out
    assert "4 pages, 3 links" in out
    events = events_of(tmp_path / "log.jsonl")
    links = {event.url: [link.url for link in event.links] for event in events if event.links is not None}
    assert links == {
        "https://a.example/": ["https://edges.example/b%20c"],
        "https://edges.example/b%20c": ["https://a.example/x%202"],
        "https://a.example/x%202": [],
        "https://edges.example/d": ["https://edges.example/b%20c"],
    }


# -- refusals and help -------------------------------------------------------------------------------------------------


def refusals(tmp_path: Path) -> dict[str, tuple[list[object], str]]:
    def edges(name: str, data: bytes) -> list[object]:
        (tmp_path / name).write_bytes(data)
        return ["--edges", tmp_path / name]

    return {
        "nowhere": (["--out", tmp_path / "none/log.avro"], "its folder is not there"),
        "ending": (["--out", tmp_path / "log.parquet"], "a log ends in .jsonl, .jsonl.gz, .avro: name it so"),
        "folder": (["--out", tmp_path / "folder.avro"], "a folder: name a file in it"),
        "ranks nowhere": (["--ranks", tmp_path / "none/r.csv"], "its folder is not there"),
        "one file": (["--ranks", tmp_path / "log.avro"], "both --out and --ranks"),
        "one page": (["--pages", "1"], "a web needs from 2 to 2147483647 pages, not 1"),
        "few links": (["--links", "0.5"], "--links must be from 0.9 to 8999 where 9000 of 10000 pages link, not 0.5"),
        "no links": (
            ["--pages", "9"],
            "--links must be from 0.888889 to 7 where 8 of 9 pages link, not 10.0 (the default)",
        ),
        "share": (["--blocked", "2"], "'2' is not a share from 0 to 1"),
        "share nan": (["--failing", "nan"], "'nan' is not a share from 0 to 1"),
        "share word": (["--not-modified", "some"], "'some' is not a share from 0 to 1"),
        "never read": (["--never-read", "1"], "--never-read 1 leaves no page to visit"),
        "too many visits": (["--visits", "1" + "0" * 14], "100000000000000 is too large: give 1099511627775 at most"),
        "no visits": (["--visits", "0"], "'0' is not a positive whole number"),
        "too fast": (["--per-day", "1e9"], "--per-day must be above 0 and at most 86400000"),
        "not at all": (["--per-day", "0"], "--per-day must be above 0"),
        "too slow": (["--per-day", "0.01"], "the crawl must lie in the years 1990 to 2099"),
        "too early": (["--start", "1980-01-01"], "the crawl must lie in the years 1990 to 2099"),
        "no time": (["--start", "soon"], "--start soon: not a time"),
        "seeds": (["--announce", "10001"], "--announce must be from 1 to 10000, the number of pages, not 10001"),
        "all seeds": (["--announce", "10000"], "the pages that a crawl of this web can begin at"),
        "cycle of seeds": (["--strategy", "cycle", "--announce", "5"], "--strategy cycle goes round pages that are"),
        "strategy": (["--strategy", "lazy"], "--strategy: unknown value 'lazy': give one of random, cycle, greedy"),
        "no edges": (["--edges", tmp_path / "none"], "no such file"),
        "edges and pages": (
            ["--edges", tmp_path / "e", "--pages", "5"],
            "--pages: an edge list defines that: omit this or --edges",
        ),
        "garbage": (
            edges("garbage", bytes(range(256)) * 50),
            "/garbage, line 1: the row has a NUL character: write it again: no edge list",
        ),
        "prose": (edges("prose", b"Once upon a time\n"), "/prose, line 1: the line has 4 columns"),
        "nothing": (edges("empty", b""), "there is no page in it"),
        "broken": (edges("broken.gz", gzip.compress(b"a b\n" * 5000)[:-20]), "is damaged at byte 41"),
        "one page twice": (edges("twice", b"https://a.example https://a.example/\n"), "are one page"),
        "no seeds": ([*edges("loop", b"a a\n"), "--announce", "1"], "--announce must be at most 0"),
    }


def test_an_error_of_the_user_gives_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.avro").mkdir()
    cases = refusals(tmp_path)
    before = sorted(tmp_path.iterdir())
    for arguments, message in cases.values():
        error = refusal("simulate", "--out", tmp_path / "log.avro", "--quiet", *arguments)
        assert message in error and error.count(str(tmp_path)) <= 2 and len(error) < 400
    assert sorted(tmp_path.iterdir()) == before


def test_a_log_is_written_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    for name in ("log.jsonl", "log.jsonl.gz", "log.avro"):
        (tmp_path / name).write_bytes(b"an older one")
    monkeypatch.setattr(simulated_log, "_line", broken)
    monkeypatch.setattr(simulated_log, "encode_event", broken)
    for name in ("log.jsonl", "log.jsonl.gz", "log.avro"):
        assert "No space left" in refusal("simulate", "--out", tmp_path / name, *SMALL)
        assert (tmp_path / name).read_bytes() == b"an older one"
    assert len(list(tmp_path.iterdir())) == 3


def test_lines_of_a_log_are_those_in_the_guide(tmp_path: Path) -> None:
    command("simulate", "--out", tmp_path / "log.jsonl", "--pages", "300", "--visits", "600", "--quiet")
    shown = re.findall(r"^\{.*\}$", GUIDE, re.MULTILINE)
    assert len(shown) == 3
    assert set(shown) <= set((tmp_path / "log.jsonl").read_text().splitlines())
