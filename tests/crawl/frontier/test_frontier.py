"""A frontier keeps all reports, orders pages as crawl orders do, and is polite to hosts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.trap_crawls import FRONTIER, living_crawl
from opicflow.pipelines.crawl.frontier import Frontier, GrowingPages
from opicflow.pipelines.crawl.frontier.event_log import EventLog
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, RefreshConfig
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.replay.replayed_log import ReplayConfig
from opicflow.pipelines.replay.state import StateFolder, StateRefused, read_ledger
from opicflow.schemas.crawl_events import MOST_LINKS, EventRefused
from opicflow.schemas.pages import PageIds
from opicflow.schemas.urls import NotAPage, host
from support.commands import output_of
from support.frontier_crawl import PAGES, StandInClock, crawl, number_of, visit_of
from support.logs import run, url
from support.paths import TOP


@pytest.fixture(scope="module")
def web() -> Graph:
    return power_law_web(PAGES, 1)


@pytest.fixture
def clock() -> StandInClock:
    return StandInClock()


@pytest.fixture
def frontier(tmp_path: Path, clock: StandInClock) -> Iterator[Frontier]:
    with Frontier.open(tmp_path / "frontier", clock) as frontier:
        yield frontier


def ledger_of(folder: Path) -> Ledger:
    """Return the ledger of a state folder."""
    stored = StateFolder(folder)
    state = stored.read()
    assert state is not None
    config = ReplayConfig(LedgerConfig.from_json(state.ledger), page_ids=state.rules_of_page_ids)
    return stored.log(state, config).ledger


def importance(folder: Path) -> dict[bytes | None, float]:
    ledger = ledger_of(folder)
    ledger.audit()
    estimates = ledger.estimate_all()
    return {ledger.url(page): value for page, value in zip(estimates.pages.tolist(), estimates.importance, strict=True)}


# -- the ledger and the log


def test_the_ledger_of_a_frontier_is_that_of_a_replay_of_its_log(
    tmp_path: Path, clock: StandInClock, web: Graph
) -> None:
    with Frontier.open(tmp_path / "frontier", clock, delay_seconds=0) as frontier:
        frontier.announce([url(0), url(1)])
        crawl(frontier, clock, web, 130)
        frontier.save()
        crawl(frontier, clock, web, 170)
    replayed = run([tmp_path / "frontier" / "visits.jsonl"], None, state=tmp_path / "state", prefers_certified=True)
    assert replayed.summary["visits"] == 300
    assert importance(tmp_path / "frontier") == importance(tmp_path / "state")


def test_a_frontier_that_was_opened_again_goes_on_as_if_it_had_not_been_closed(
    tmp_path: Path, clock: StandInClock, web: Graph
) -> None:
    other = StandInClock()
    with Frontier.open(tmp_path / "once", clock, delay_seconds=0) as frontier:
        frontier.announce([url(0)])
        crawl(frontier, clock, web, 200)
    for part in range(4):
        with Frontier.open(tmp_path / "parts", other, delay_seconds=0) as frontier:
            if part == 0:
                frontier.announce([url(0)])
            crawl(frontier, other, web, 50)
    logs = [(tmp_path / name / "visits.jsonl").read_bytes().splitlines() for name in ("once", "parts")]
    assert len(logs[0]) == len(logs[1]) == 201


def test_the_commands_that_read_a_state_read_a_frontier(tmp_path: Path, clock: StandInClock, web: Graph) -> None:
    with Frontier.open(tmp_path, clock, delay_seconds=0) as frontier:
        frontier.announce([url(0)])
        fetched = crawl(frontier, clock, web, 30)
    assert fetched[5] in output_of("show", fetched[5], "--state", tmp_path)


def test_a_replay_continues_from_a_frontier_and_a_frontier_from_a_replay(
    tmp_path: Path, clock: StandInClock, web: Graph
) -> None:
    with Frontier.open(tmp_path / "f", clock, delay_seconds=0) as frontier:
        frontier.announce([url(0)])
        crawl(frontier, clock, web, 30)
    with open(tmp_path / "f" / "visits.jsonl", "a") as log:
        log.write(json.dumps(visit_of(web, url(300)) | {"fetched_at": int(clock.second * 1000)}) + "\n")
    result = run([tmp_path / "f" / "visits.jsonl"], None, state=tmp_path / "f", prefers_certified=True)
    assert result.summary["visits"] == 1
    with Frontier.open(tmp_path / "f", clock, delay_seconds=0) as frontier:
        crawl(frontier, clock, web, 30)
    assert ledger_of(tmp_path / "f").visits == 61


@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10)),
    ],
)
def test_reports_before_a_kill_are_there_after_it(tmp_path: Path, seed: int) -> None:
    rng, reported, save_every = random.Random(seed), set[str](), (7, 1000)[seed % 2]
    command = [sys.executable, "-m", "support.frontier_crawl", str(tmp_path / "f"), str(save_every)]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TOP / "tests") as process:
            assert process.stdout is not None
            lines = iter(process.stdout)
            assert next(lines) == "ready\n"
            for _ in range(rng.randrange(1, 150)):
                reported.add(next(lines).strip())
            process.kill()
            reported.update(line.strip() for line in lines if line.endswith("\n"))
    clock = StandInClock()
    with Frontier.open(tmp_path / "f", clock):
        pass
    logged = {json.loads(line)["url"] for line in (tmp_path / "f" / "visits.jsonl").read_bytes().splitlines()}
    assert reported <= logged
    ledger = ledger_of(tmp_path / "f")
    ledger.audit()
    pages = ledger.page_ids.of_all(sorted(reported))
    assert (ledger.estimate(pages).visits > 0).all()
    run([tmp_path / "f" / "visits.jsonl"], None, state=tmp_path / "state", prefers_certified=True)
    assert importance(tmp_path / "f") == importance(tmp_path / "state")


def test_a_line_that_is_not_whole_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a":1}\n{"b":')
    log = EventLog(path)
    assert list(log.blocks(0)) == [b'{"a":1}\n']
    log.append(b'{"c":2}')
    log.close()
    assert path.read_bytes() == b'{"a":1}\n{"c":2}\n'


def test_a_log_is_read_in_blocks_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.pipelines.crawl.frontier.event_log._BLOCK_BYTES", 4)
    log = EventLog(tmp_path / "log")
    for line in (b"1", b"2", b"a long line", b"3"):
        log.append(line)
    blocks = list(log.blocks(2))
    log.close()
    assert blocks == [b"2\na long line\n", b"3\n"]
    assert EventLog(tmp_path / "log").end == 18


def test_a_folder_that_is_in_use_damaged_or_counts_in_another_way_is_refused(
    tmp_path: Path, clock: StandInClock, web: Graph
) -> None:
    with Frontier.open(tmp_path / "f", clock) as frontier:
        frontier.announce([url(0)])
        frontier.visited(visit_of(web, url(0)))
        with pytest.raises(StateRefused, match="in use"):
            Frontier.open(tmp_path / "f", clock)
    log = tmp_path / "f" / "visits.jsonl"
    with pytest.raises(StateRefused, match="another way"):
        Frontier.open(tmp_path / "f", clock, ledger=LedgerConfig())
    with open(log, "ab") as file:
        file.write(b"nonsense\n")
    with pytest.raises(StateRefused, match="damaged at byte"):
        Frontier.open(tmp_path / "f", clock)
    log.write_bytes(b"")
    with pytest.raises(StateRefused, match="shorter"):
        Frontier.open(tmp_path / "f", clock)


# -- refused events


def test_an_invalid_event_is_refused_and_changes_nothing(frontier: Frontier, tmp_path: Path) -> None:
    log = tmp_path / "frontier" / "visits.jsonl"
    frontier.announce([url(0)])
    before = log.read_bytes()
    bad_links: list[object] = ["no", [url(2)] * (MOST_LINKS + 1), [url(2), {"url": url(3), "weight": -1}], ["\ud800"]]
    for event in (
        {},
        {"url": 3},
        {"url": url(1), "status": {1}},
        *({"url": url(1), "links": bad} for bad in bad_links),
    ):
        with pytest.raises(EventRefused):
            frontier.visited(event)
    for event in ({"url": "mailto:a@b.example"}, {"url": url(1), "redirects": ["nonsense"]}):
        with pytest.raises(NotAPage):
            frontier.visited(event)
    with pytest.raises(NotAPage):
        frontier.announce(["javascript:alert(1)"])
    assert log.read_bytes() == before
    assert frontier.next(9) == [url(0)]


# -- order and politeness


def test_no_host_has_two_pages_in_flight_and_its_fetches_are_a_delay_apart(
    frontier: Frontier, clock: StandInClock, web: Graph
) -> None:
    rng = random.Random(2)
    frontier.announce([url(number) for number in range(60)])
    flying: list[str] = []
    ended: dict[bytes, float] = {}
    given: set[str] = set()
    for _ in range(600):
        for page in frontier.next(rng.randrange(4)):
            of_host = host(page.encode())
            assert of_host not in {host(other.encode()) for other in flying}
            assert clock.second >= ended.get(of_host, 0.0) + 1.0
            assert page not in given  # none is due again within minutes
            flying.append(page)
            given.add(page)
        clock.second += rng.random() / 3
        if flying and rng.random() < 0.6:
            page = flying.pop(rng.randrange(len(flying)))
            ended[host(page.encode())] = clock.second
            frontier.visited(visit_of(web, page))
    assert len(given) > 100


def test_a_page_is_not_given_out_twice_while_it_is_in_flight(frontier: Frontier, clock: StandInClock) -> None:
    frontier.announce([url(0)])
    assert frontier.next(5) == [url(0)]
    due = frontier.due()
    assert due == clock.second + 600
    clock.second += 599
    assert frontier.next(5) == []
    clock.second += 1
    assert frontier.next(5) == [url(0)]


def test_a_page_that_answered_under_another_url_is_no_longer_in_flight(frontier: Frontier, clock: StandInClock) -> None:
    frontier.announce([url(0), url(23)])  # of one host
    [first] = frontier.next(5)
    frontier.visited({"url": "https://elsewhere.example/", "redirects": [first], "status": 200, "links": []})
    assert frontier.next(5) == []
    clock.second += 1
    assert frontier.next(5) == [url(23 - number_of(first))]


def test_a_page_that_fails_comes_back_as_orders_say(frontier: Frontier, clock: StandInClock) -> None:
    frontier.announce([url(0)])
    [page] = frontier.next(1)
    frontier.visited({"url": page, "failure": "timeout"})
    retry = RefreshConfig().retry_hours * 3600
    begun = clock.second
    found: list[str] = []
    while not found:
        clock.second += 600
        assert clock.second < begun + 2 * 86400
        found = frontier.next(1)
    assert found == [url(0)] and clock.second >= begun + 0.75 * retry


def test_a_host_that_asks_to_wait_is_left_alone(frontier: Frontier, clock: StandInClock) -> None:
    frontier.announce([url(0), url(23), url(1), url(24)])
    first = frontier.next(2)
    busy, other = host(first[0].encode()), host(first[1].encode())
    frontier.visited({"url": first[0], "status": 429, "retry_after": 100})
    frontier.visited({"url": first[1], "status": 200, "links": []})
    clock.second += 99
    assert [host(page.encode()) for page in frontier.next(5)] == [other]
    clock.second += 2
    assert [host(page.encode()) for page in frontier.next(5)] == [busy]


def test_a_clock_that_is_put_back_keeps_no_host_and_no_page_waiting(frontier: Frontier, clock: StandInClock) -> None:
    frontier.announce([url(0)])
    assert frontier.next(1) == [url(0)]
    frontier.visited({"url": url(0), "status": 200, "links": [url(0) + "/a", url(0) + "/b"]})
    clock.second -= 3600
    assert frontier.next(1) == [] and frontier.due() == clock.second + 1
    clock.second += 1
    assert len(frontier.next(1)) == 1
    clock.second -= 3600
    assert frontier.next(1) == [] and frontier.due() == clock.second + 600
    clock.second += 600
    assert len(frontier.next(1)) == 1


@pytest.mark.parametrize("hours", [1, 5, 30, 24 * 400])
def test_a_clock_that_is_put_back_does_not_delay_a_page_that_is_due_later(
    frontier: Frontier, clock: StandInClock, hours: int
) -> None:
    frontier.announce([url(0)])
    frontier.visited({"url": url(0), "failure": "timeout"})
    assert frontier.next(1) == []
    due = frontier.due()
    assert due is not None and due > clock.second + 3600  # in the queue until then
    wait = due - clock.second
    clock.second -= 3600 * hours
    before = clock.second
    while not (found := frontier.next(1)):
        assert frontier.due() == pytest.approx(before + wait, abs=2)
        clock.second += 600
    assert found == [url(0)] and before + wait <= clock.second < before + wait + 602


@pytest.mark.parametrize("hours", [1, 5, 30, 24 * 400])
def test_a_clock_that_is_put_back_does_not_delay_a_busy_host(
    frontier: Frontier, clock: StandInClock, hours: int
) -> None:
    frontier.announce([url(0), url(23)])  # of one host
    [page] = frontier.next(5)
    frontier.visited({"url": page, "status": 429, "retry_after": 100})
    assert frontier.next(5) == []  # after a plan
    clock.second -= 3600 * hours
    assert frontier.next(5) == []
    frontier.announce([url(23 * number) for number in range(2, 100)])  # a plan follows
    clock.second += 99
    assert frontier.next(5) == []
    clock.second += 2
    assert len(frontier.next(5)) == 1


@pytest.mark.parametrize("hours", [1, 30])
def test_a_host_that_is_busy_again_after_the_clock_was_put_back_waits_as_long_as_it_wants(
    frontier: Frontier, clock: StandInClock, hours: int
) -> None:
    pages = [url(23 * number) for number in range(6)]  # of one host
    frontier.announce(pages)
    for wait in (100, 250):
        [page] = frontier.next(5)
        frontier.visited({"url": page, "status": 429, "retry_after": wait})
        clock.second -= 3600 * hours
        for announced in range(100):  # plans follow
            frontier.announce([url(23 * (1000 * wait + announced))])
        assert frontier.next(5) == []
        clock.second += wait - 1
        assert frontier.next(5) == []
        clock.second += 2
    assert len(frontier.next(5)) == 1


def test_a_wait_that_was_over_does_not_begin_again_when_the_clock_is_put_back(
    frontier: Frontier, clock: StandInClock
) -> None:
    frontier.announce([url(0), url(23)])  # of one host
    [page] = frontier.next(5)
    frontier.visited({"url": page, "status": 429, "retry_after": 100})
    clock.second += 200
    [page] = frontier.next(5)
    frontier.visited({"url": page, "status": 503, "failure": "server"})
    clock.second -= 150
    frontier.announce([url(23 * number) for number in range(2, 100)])  # a plan follows
    assert frontier.next(5) == []
    clock.second += 1
    assert len(frontier.next(5)) == 1


def test_a_page_that_fails_after_the_clock_was_put_back_waits_no_longer_than_others(
    frontier: Frontier, clock: StandInClock
) -> None:
    frontier.announce([url(0)])
    frontier.visited({"url": url(1), "status": 200, "links": []})
    assert frontier.next(5) == [url(0)]
    clock.second -= 20 * 3600
    frontier.visited({"url": url(0), "failure": "timeout"})
    begun = clock.second
    while not frontier.next(1):
        clock.second += 600
    assert 0.75 * 6 * 3600 <= clock.second - begun <= 1.25 * 6 * 3600 + 600


def test_a_frontier_that_cannot_be_saved_says_so_and_is_saved_when_there_is_room(
    tmp_path: Path, clock: StandInClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    frontier = Frontier.open(tmp_path, clock)
    frontier.announce([url(0)])
    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "write", write)
        for save in (frontier.save, frontier.close):
            with pytest.raises(StateRefused, match=r"cannot be saved \(No space left on device\).*make room"):
                save()
    with Frontier.open(tmp_path, clock) as frontier:  # it was closed nevertheless
        assert frontier.next(1) == [url(0)]
        frontier.announce([url(1)])
        with monkeypatch.context() as patch:
            patch.setattr(StateFolder, "write", write)
            with pytest.raises(StateRefused):
                frontier.save()
    assert importance(tmp_path).keys() == {url(0).encode(), url(1).encode()}


def test_pages_are_read_in_the_order_of_importance(tmp_path: Path, clock: StandInClock) -> None:
    web = power_law_web(3000, 4)
    ranks = pagerank(web).values
    with Frontier.open(tmp_path, clock, delay_seconds=0) as frontier:
        frontier.announce([url(number) for number in range(0, 3000, 100)])
        ours = [number_of(page) for page in crawl(frontier, clock, web, 600)]
    queue, seen = list(range(0, 3000, 100)), set(range(0, 3000, 100))
    for number in queue[:]:
        seen.add(number)
    first: list[int] = []
    while queue and len(first) < 600:
        number = queue.pop(0)
        first.append(number)
        for link in web.targets[web.starts[number] : web.starts[number + 1]].tolist():
            if link not in seen:
                seen.add(link)
                queue.append(link)
    assert len(set(ours)) == 600
    assert ranks[ours].sum() > 1.05 * ranks[first].sum()


def test_pages_that_are_due_are_read_again_beside_unread_ones(tmp_path: Path, clock: StandInClock, web: Graph) -> None:
    config = LedgerConfig(history=Certified(), refresh=RefreshConfig(bandwidth_per_day=200.0))
    with Frontier.open(tmp_path, clock, delay_seconds=0, ledger=config) as frontier:
        frontier.announce([url(0)])
        first = set(crawl(frontier, clock, web, 100))
        clock.second += 3 * 86400
        again = crawl(frontier, clock, web, 100)
    assert 10 < len(first & set(again)) < 90


@pytest.mark.parametrize(
    ("bandwidth", "days", "least"), [(200.0, 1, 40), (200.0, 9, 250), (None, 1, 250), (None, 9, 290)]
)
def test_a_crawler_that_was_away_gets_all_that_became_due_at_once_and_then_nothing(
    tmp_path: Path, clock: StandInClock, web: Graph, bandwidth: float | None, days: int, least: int
) -> None:
    config = LedgerConfig(history=Certified(), refresh=RefreshConfig(bandwidth_per_day=bandwidth))
    with Frontier.open(tmp_path, clock, delay_seconds=None, ledger=config) as frontier:
        frontier.announce([url(0)])
        known = set(crawl(frontier, clock, web, 300))
    clock.second += days * 86400
    with Frontier.open(tmp_path, clock, delay_seconds=None, ledger=config) as frontier:
        given = frontier.next(1000, among=known)
        assert len(set(given)) == len(given) > least
        read: set[str] = set()
        while given:  # what they bring may make a few others due
            assert read.isdisjoint(given)
            read.update(given)
            for page in given:
                frontier.visited(visit_of(web, page))
            given = frontier.next(1000, among=known)
        assert (due := frontier.due()) is not None and due > clock.second


def test_an_idle_frontier_makes_no_plan_again_and_reports_when_it_has_something(
    frontier: Frontier, clock: StandInClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier.announce([url(0)])
    [page] = frontier.next(1)
    frontier.visited({"url": page, "status": 200, "links": []})
    assert frontier.next(1) == []
    plans: list[object] = []
    monkeypatch.setattr(Ledger, "preview", lambda *_, **options: plans.append(options))
    for _ in range(50):
        clock.second += 1
        assert frontier.next(1) == []
    assert plans == []
    due = frontier.due()
    assert due is not None and due > clock.second


def test_a_frontier_needs_no_beam() -> None:
    code = "import sys, opicflow.pipelines.crawl.frontier as _; print({'apache_beam', 'scrapy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_crawler_that_is_polite_by_others_gets_several_pages_of_a_host(tmp_path: Path, clock: StandInClock) -> None:
    with Frontier.open(tmp_path, clock, delay_seconds=None) as frontier:
        frontier.announce([url(0), url(23), url(46)])
        assert sorted(frontier.next(2, {url(0), url(46)})) == [url(0), url(46)]
        frontier.visited({"url": url(0), "status": 200, "links": [url(69)]})
        assert sorted(frontier.next(5)) == [url(23), url(69)]


def test_a_crawler_that_is_polite_by_others_gets_all_pages_however_many_a_plan_has(
    tmp_path: Path, clock: StandInClock
) -> None:
    with Frontier.open(tmp_path, clock, delay_seconds=None) as frontier:
        frontier.announce(url(number) for number in range(3000))
        given = [page for n in (1, 16, 700, 1500, 100) for page in frontier.next(n)]
        given += [page for _ in range(80) for page in frontier.next(10)]
    assert sorted(given, key=number_of) == [url(number) for number in range(3000)]


@pytest.mark.parametrize("kind", [set, GrowingPages])
def test_pages_that_a_crawler_chooses_among_come_in_their_order_however_many_others_there_are(
    tmp_path: Path, clock: StandInClock, kind: type[set[str]] | type[GrowingPages]
) -> None:
    others = [f"https://others.example/{number}" for number in range(12_000)]  # more than a plan has orders for
    rare, better, best = wanted = [f"https://wanted.example/{name}" for name in ("rare", "better", "best")]
    hubs = [
        (url(0), [*others[:6000], *wanted]),
        (url(1), [*others[6000:], better, best]),
        (url(2), [*others[:50], best]),
    ]
    with Frontier.open(tmp_path, clock, delay_seconds=None) as frontier:
        for hub, links in hubs:
            frontier.visited({"url": hub, "status": 200, "links": links})
        among = kind()
        among.add(best)
        among.add(rare)
        assert frontier.next(2, among) == [best, rare]
        among.add(better)
        frontier.visited({"url": best, "status": 200, "links": [hub for hub, _ in hubs]})
        assert frontier.due() == clock() and frontier.next(5, among) == [better]
        assert len(frontier.next(5)) == 5


def test_pages_of_a_trap_come_after_others_and_are_named_once(tmp_path: Path, clock: StandInClock) -> None:
    """A calendar without an end, of a site whose other pages wait too."""
    home = "https://a.example/"
    months = [f"{home}calendar/{2000 + step // 12}/{1 + step % 12:02}" for step in range(120)]
    pages = [f"{home}about/{name * length}" for name in "abcdefgh" for length in range(1, 11)]
    with Frontier.open(tmp_path / "crawl", clock, delay_seconds=None) as frontier:
        frontier.visited({"url": home, "status": 200, "links": [*pages, months[40]]})
        for number, page in enumerate(pages[:40]):
            links = [home, *(pages[(number + far) % 40] for far in (1, 7, 11))]
            frontier.visited({"url": page, "status": 200, "digest": page, "links": links})
        for step in range(40, 60):
            near = [home, *(months[step + far] for far in (-30, -14, -7, -1, 1, 7, 14, 30))]
            frontier.visited({"url": months[step], "status": 200, "digest": months[step], "links": near})
        assert frontier.limited() == []
        given = set(frontier.next(40))
        limited = set(frontier.limited())
        assert limited == {*months[10:40], *months[60:90]}
        assert frontier.limited() == []
        assert len(given & limited) <= 3 and len(given & set(pages)) >= 37


@pytest.mark.parametrize("delay", [None, 1.0])
def test_no_trap_is_fetched_while_pages_wait_until_their_hosts_have_room(
    tmp_path: Path, clock: StandInClock, delay: float | None
) -> None:
    """A site of which only a calendar is left, and one with pages of which some are being fetched."""
    home, other = "https://a.example/", "https://b.example/"
    months = [f"{home}calendar/{2000 + step // 12}/{1 + step % 12:02}" for step in range(120)]
    pages = [f"{other}about/{name * length}" for name in "abcdefgh" for length in range(1, 11)]
    with Frontier.open(tmp_path / "crawl", clock, delay_seconds=delay) as frontier:
        frontier.visited({"url": other, "status": 200, "links": pages})
        for number, page in enumerate(pages[:40]):
            links = [other, *(pages[(number + far) % 40] for far in (1, 7, 11))]
            frontier.visited({"url": page, "status": 200, "digest": page, "links": links})
        frontier.visited({"url": home, "status": 200, "links": [months[40], other]})
        for step in range(40, 60):
            near = [home, *(months[step + far] for far in (-30, -14, -7, -1, 1, 7, 14, 30))]
            frontier.visited({"url": months[step], "status": 200, "digest": months[step], "links": near})
        clock.second += 2
        given = frontier.next(8, most_each=2)
        assert set(given) & set(pages)
        of_trap = []
        for _ in range(6):
            for url in set(given) & set(months):
                frontier.visited({"url": url, "status": 200, "digest": url, "links": []})
            clock.second += 2
            given = frontier.next(8, most_each=2, rooms={"b.example": 0})
            of_trap += given
        assert len(of_trap) <= 1  # its share; without the wait one each time
        for url in pages:
            frontier.visited({"url": url, "status": 200, "digest": url, "links": []})
        clock.second += 2
        assert set(frontier.next(8, most_each=8)) & set(months)  # nothing else is left


def test_traps_and_twins_take_few_fetches_however_many_plans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small web, of which ten pages of each trap and a hundred twins must be read before they are known as such."""
    monkeypatch.setattr("opicflow.pipelines.crawl.frontier.frontier.new_page_ids", PageIds)  # else by chance
    row = living_crawl(1, FRONTIER, pages=1000, per_day=400, days=4)
    assert row["calendars"] < 8 and row["twins"] < 6 and row["read"] > 95, row


def test_growing_pages_have_the_ids_of_all_that_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.pipelines.crawl.frontier.growing_pages._URLS_AT_ONCE", 700)
    pages, added = GrowingPages(), 0
    for number in (0, 1, 5, 2000, 0, 1500, 1):
        for each in range(added, added + number):
            pages.add(url(each))
        added += number
        assert pages.ids(PageIds().of_all).tolist() == PageIds().of_all([url(each) for each in range(added)]).tolist()


def test_an_empty_frontier_has_nothing(frontier: Frontier) -> None:
    assert frontier.next(3) == [] and frontier.next(0) == [] and frontier.due() is None


def test_a_crawl_that_has_saved_nothing_yet_is_distinguished_from_another_folder(
    tmp_path: Path, clock: StandInClock
) -> None:
    with Frontier.open(tmp_path, clock) as frontier:
        frontier.announce(["http://a.example/"])
        with pytest.raises(StateRefused, match=r"its crawl has not saved a ledger yet: .* opicflow replay .*visits"):
            read_ledger(tmp_path)
        frontier.save()
        assert read_ledger(tmp_path)[0].pages == 1
    with pytest.raises(StateRefused, match="no state of a replay"):
        read_ledger(tmp_path / "other")
