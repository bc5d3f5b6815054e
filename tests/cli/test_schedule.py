"""Refresh schedules and crawl orders of a replay, policies for it, and `opicflow schedule`."""

from __future__ import annotations

import csv
import errno
import json
import random
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow.parquet as pq
import pytest

from opicflow.pipelines.ledger import ConfigRefused, ImprovedFixed, Variable
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.pipelines.replay.state import StateRefused, read_ledger
from opicflow.pipelines.stages.rules import Categories, Rules
from opicflow.pipelines.stages.settings import CashFocus, LedgerOptions
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.policy_json import policies_of, policy_to_json
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import CrawlOrder, Policy, RefreshSchedule, from_avro
from support.commands import CommandResult, command, output_of, refusal
from support.logs import FIRST_MS, adds_up, json_line, records_of, run, state_files, url

DAY_MS = 86_400_000
PAGES, READ, DAYS = 60, 50, 30
STREAMS = ("refresh-schedule", "crawl-orders")


def crawl(days: int = DAYS) -> bytes:
    """Return a log of daily visits to all pages but ten, a seventh in the first days only.

    Page n changes every n // 5 + 1 days.
    """
    chance = random.Random(7)
    targets = [[chance.randrange(PAGES) for _ in range(5)] for _ in range(READ)]
    lines = []
    for day in range(days):
        for number in range(READ):
            if number % 7 == 3 and day > DAYS // 3:  # not read from then on
                continue
            event = CrawlEvent(
                url(number),
                fetched_at_ms=FIRST_MS + day * DAY_MS + number * 60_000,
                status=200,
                digest=f"{number} {day // (number // 5 + 1)}",
                links=tuple(Link(url(target)) for target in targets[number]),
            )
            lines.append(json_line(event, content_type="application/pdf" if number % 10 == 9 else "text/html"))
    return b"".join(lines)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crawl") / "log.jsonl"
    path.write_bytes(crawl())
    return path


@pytest.fixture(scope="module")
def state(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a replay of the log with a bandwidth of 20 fetches a day."""
    path = tmp_path_factory.mktemp("state")
    run([log], state=path, counting=LedgerOptions(refresh={"bandwidth_per_day": 20.0}))
    return path


def counted(**refresh: Any) -> LedgerOptions:
    return LedgerOptions(refresh=refresh)


def schedule_of(out: Path) -> dict[str, dict[str, Any]]:
    return {record["url"]: record for record in records_of(out / "refresh-schedule.jsonl")}


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_replay_writes_both_streams_in_every_format(log: Path, tmp_path: Path) -> None:
    plain: dict[str, list[dict[str, Any]]] = {}
    for format_ in ("jsonl", "avro", "parquet"):
        result = run([log], tmp_path / format_, format=format_, counting=counted(bandwidth_per_day=20.0))
        assert adds_up(result.summary)
        for stream, record in zip(STREAMS, (RefreshSchedule, CrawlOrder), strict=True):
            path = tmp_path / format_ / f"{stream}.{format_}"
            assert path in result.written
            if format_ == "jsonl":
                plain[stream] = records_of(path)
                for values in plain[stream]:
                    fastavro.validate(values, schema(record.__name__), strict=True)
                    from_avro(record, values)
            elif format_ == "avro":
                with path.open("rb") as file:
                    written: Any = [from_avro(record, values) for values in fastavro.reader(file)]
                assert written == [from_avro(record, values) for values in plain[stream]]
            else:
                assert pq.read_table(path).column("url").to_pylist() == [values["url"] for values in plain[stream]]


def test_the_parameters_of_the_papers_are_given_on_the_command_line(log: Path, tmp_path: Path) -> None:
    state, words = tmp_path / "state", ["--bandwidth", "8", "--refresh-strategy", "thesis"]
    for name in ("alpha=2", "rates=existence", "domain-refreshing=1e12", "measures=5"):
        words += ["--set", name]
    output_of("replay", log, "--out", tmp_path / "out", "--state", state, "--history", "variable", *words, "--quiet")
    config = read_ledger(state)[0].config
    assert (config.history, config.refresh.estimator, config.refresh.alpha) == (Variable(5), "existence", 2)
    read = [one for one in schedule_of(tmp_path / "out").values() if one["decided_by"] == "BUDGET"]
    inside = [one for one in read if 86_401 < one["interval_seconds"] < 365 * 86_400 - 1]  # the bounds of intervals
    shares = np.array([(one["importance"] * one["changes_per_day"] ** 2) ** (1 / 3) for one in inside])
    each_day = np.array([86_400 / one["interval_seconds"] for one in inside])
    assert len(read) == READ and len(inside) > READ - 5
    assert each_day / each_day.sum() == pytest.approx(shares / shares.sum(), rel=1e-6)
    output_of("replay", log, "--state", tmp_path / "b", "--history", "improved-fixed", "--quiet")
    assert read_ledger(tmp_path / "b")[0].config.history == ImprovedFixed()
    words = ["--history", "improved-fixed", "--set", "window-turns=4", "--set", "min-measures=2"]
    output_of("replay", log, "--state", tmp_path / "c", *words, "--quiet")
    assert read_ledger(tmp_path / "c")[0].config.history == ImprovedFixed(4.0, min_measures=2)


def test_change_rates_are_those_of_the_thesis_on_request(tmp_path: Path) -> None:
    """Formula 4.2, with the date of the first visit: C / Σl, by its text; a length is kept to 1.7 %."""
    day, begin = 86_400, 1_780_272_000
    seen, changed = (
        [begin + 3 * day * visit for visit in range(8)],
        [-20_000, *(5_000 * visit for visit in range(1, 8))],
    )
    dates = [begin + changed[0], *(at - ago for at, ago in zip(seen[1:], changed[1:], strict=True))]
    dates[3] = dates[2]  # no change in this interval
    events = [
        {"url": url(0), "status": 200, "fetched_at": 1000 * at, "digest": f"{date:x}", "last_modified": 1000 * date}
        for at, date in zip(seen, dates, strict=True)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    rates = {}
    for name in ("thesis", "likelihood"):
        output_of("replay", tmp_path / "log.jsonl", "--out", tmp_path / name, "--set", f"rates={name}", "--quiet")
        rates[name] = schedule_of(tmp_path / name)[url(0)]
    lengths = [at - date for number, (at, date) in enumerate(zip(seen, dates, strict=True)) if number != 3]
    assert rates["thesis"]["changes_known_from"] == "LAST_MODIFIED"
    assert rates["thesis"]["changes_per_day"] == pytest.approx(len(lengths) / (sum(lengths) / day), rel=0.02)
    assert rates["likelihood"]["changes_per_day"] < rates["thesis"]["changes_per_day"] / 2


def test_the_plan_keeps_the_bandwidth_and_follows_change_and_importance(log: Path, tmp_path: Path) -> None:
    no_bound = 1e12  # here most domains have a page or two
    counting = counted(bandwidth_per_day=8.0, discovery_share=0.25, strategy="thesis", domain_refreshing=no_bound)
    result = run([log], tmp_path, counting=counting)
    schedule = schedule_of(tmp_path)
    assert len(schedule) == PAGES
    read = [schedule[url(number)] for number in range(READ)]
    frequencies = [86400 / record["interval_seconds"] for record in read]
    assert sum(frequencies) == pytest.approx(6, rel=1e-6)
    assert {record["decided_by"] for record in read} == {"BUDGET"}
    assert {schedule[url(number)]["decided_by"] for number in range(READ, PAGES)} == {"DISCOVERY"}
    for record in read:
        assert record["due"] == pytest.approx(record["last_visit"] + 1000 * record["interval_seconds"], abs=1001)
        assert record["changes_known_from"] == "INTERVALS" and 0 < record["changes_error"] < 9
    for number in (12, 27, 47):  # changes every third, sixth, tenth day
        assert 0.3 < read[number]["changes_per_day"] * (number // 5 + 1) < 2.5
    share = [(r["importance"] * r["changes_per_day"] ** 0.95) ** (1 / 1.95) for r in read]
    assert [f / sum(frequencies) for f in frequencies] == pytest.approx([s / sum(share) for s in share], rel=1e-6)
    plan = result.summary["plan"]
    assert (plan["policy"], plan["bandwidth_per_day"], plan["feasible"]) == ("thesis", 8.0, True)

    orders = records_of(tmp_path / "crawl-orders.jsonl")
    assert len(orders) <= 8 and {order["why"] for order in orders} == {"REFRESH", "DISCOVERY"}
    assert sum(order["why"] == "DISCOVERY" for order in orders) == 2
    now = schedule[url(0)]["event_time"]
    for order in orders:
        assert order["ordered_at"] == now <= order["not_before"] <= now + DAY_MS < order["expires_at"]
        if order["why"] == "REFRESH":
            assert order["due"] <= now + DAY_MS and order["due"] == schedule[order["url"]]["due"]
        else:
            assert order["last_visit"] is None


def test_a_crawl_that_continues_gets_each_order_once(log: Path, tmp_path: Path) -> None:
    run([log], tmp_path, publications=True, counting=counted(bandwidth_per_day=20.0))
    orders = records_of(tmp_path / "crawl-orders.jsonl")
    begin = min(order["ordered_at"] for order in orders)
    assert 9 * DAYS <= len(orders) <= 20 * DAYS
    by_cycle: dict[int, list[str]] = {}
    unread: dict[int, set[str]] = {}
    for order in orders:
        cycle = (order["ordered_at"] - begin) // DAY_MS
        by_cycle.setdefault(cycle, []).append(order["url"])
        if order["why"] == "DISCOVERY":
            unread.setdefault(cycle, set()).add(order["url"])
    assert all(len(urls) == len(set(urls)) and len(urls) <= 21 for urls in by_cycle.values())
    assert len(unread) >= DAYS // 2, "or the next line could not fail"
    for cycle in range(max(by_cycle)):  # an order without an answer expires after two days
        assert not unread.get(cycle, set()) & unread.get(cycle + 1, set())
    moved = records_of(tmp_path / "refresh-publications.jsonl")
    assert len(moved) <= READ * DAYS + 2 * READ * DAYS
    latest = {record["url"]: record for record in moved}
    assert set(latest) <= {url(number) for number in range(PAGES)}


def test_without_times_there_is_a_plan_without_dates(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(json_line(CrawlEvent(url(n), status=200, links=(Link(url(n + 1)),))) for n in range(20)))
    run([log], tmp_path / "out", counting=counted(bandwidth_per_day=10.0))
    for record in records_of(tmp_path / "out/refresh-schedule.jsonl"):
        fastavro.validate(record, schema("RefreshSchedule"), strict=True)
        assert record["due"] is None and record["event_time"] is None and record["last_visit"] is None
    assert len(records_of(tmp_path / "out/crawl-orders.jsonl")) <= 10


# -- policies ----------------------------------------------------------------------------------------------------------


def published(*policies: Policy) -> tuple[Policy, ...]:
    return policies


def test_policies_change_the_plan(log: Path, tmp_path: Path) -> None:
    result = run(
        [log],
        tmp_path,
        counting=counted(bandwidth_per_day=8.0),
        policies=published(
            Policy(url=url(1), refresh_interval_seconds=86400.0),
            Policy(url=url(2), refresh_forbidden=True),
            Policy(url=url(3), changes_per_day=5.0),
            Policy(url=url(4), fetch_now=True),
            Policy(url=url(5), importance_factor=1000.0),
            Policy(url=url(6), refresh_interval_seconds=10.0),  # 8640 a day: above the bandwidth
        ),
    )
    schedule = schedule_of(tmp_path)
    assert (schedule[url(1)]["decided_by"], schedule[url(1)]["interval_seconds"]) == ("PINNED", 86400.0)
    assert (schedule[url(2)]["decided_by"], schedule[url(2)]["interval_seconds"]) == ("FORBIDDEN", None)
    assert (schedule[url(3)]["changes_known_from"], schedule[url(3)]["changes_per_day"]) == ("POLICY", 5.0)
    assert schedule[url(4)]["decided_by"] == "REQUESTED"
    assert records_of(tmp_path / "crawl-orders.jsonl")[0]["url"] == url(4)
    others = [schedule[url(number)] for number in range(4, READ)]
    assert min(others, key=lambda record: record["interval_seconds"])["url"] == url(5)
    assert schedule[url(6)]["decided_by"] == "BUDGET" and not result.summary["plan"]["feasible"]
    assert any("pins beyond" in note for note in result.notes)
    assert result.summary["policies"] == 5  # a policy without a time applies at the end


def test_a_request_that_is_refused_is_reported(log: Path, tmp_path: Path) -> None:
    """It has no time, so it applies to the plan at the end only."""
    policies = (Policy(url=url(4), host="site-4.example", fetch_now=True), Policy(url=url(5), fetch_now=True))
    for _ in range(2):  # each replay into the state reports it
        result = run([log], tmp_path / "out", state=tmp_path / "state", policies=policies)
        (note,) = [note for note in result.notes if note.startswith("refused: ")]
        assert note.endswith("url and host are given: write one policy for each")
        assert result.summary["policies_refused"] == 1
    schedule = schedule_of(tmp_path / "out")
    assert [schedule[url(number)]["decided_by"] == "REQUESTED" for number in (4, 5)] == [False, True]


def test_a_forgotten_page_is_in_no_result(log: Path, tmp_path: Path) -> None:
    policies = (
        Policy(url=url(7), forget=True, published_at_ms=FIRST_MS + 5 * DAY_MS),
        Policy(host="site-3.example", forget=True, published_at_ms=FIRST_MS + 9 * DAY_MS),
        Policy(url_prefix="https://site-4.example/page/2", forget=True),
    )
    result = run([log], tmp_path / "out", state=tmp_path / "state", publications=True, policies=policies)
    gone = [url(7).encode(), b"//site-3.example/", b"https://site-4.example/page/27"]
    assert any(b"https://site-4.example/page/4" in data for data in state_files(tmp_path / "state").values())
    for name, data in state_files(tmp_path / "state").items():
        assert not any(one in data for one in gone), name
    for stream in ("importance", "refresh-schedule"):
        assert not any(one in (tmp_path / f"out/{stream}.jsonl").read_bytes() for one in gone)
    orders = records_of(tmp_path / "out/crawl-orders.jsonl")
    after = [order["url"] for order in orders if order["ordered_at"] >= FIRST_MS + 9 * DAY_MS]
    assert len(after) > 50 and not any(one in url_.encode() for one in gone for url_ in after)
    tombstones = records_of(tmp_path / "out/tombstones.jsonl")
    assert {line["why"] for line in tombstones} == {"FORGOTTEN"}
    assert result.summary["pages_removed"]["forgotten"] == len(tombstones) >= 3
    assert adds_up(result.summary)


@pytest.mark.slow
def test_policies_give_the_same_bytes_after_restarts_and_replays(log: Path, tmp_path: Path) -> None:
    policies = tuple(
        Policy(
            url=url(number),
            refresh_interval_seconds=86400.0 * (number + 1),
            published_at_ms=FIRST_MS + 3 * number * DAY_MS,
            expires_at_ms=FIRST_MS + (3 * number + 12) * DAY_MS if number % 2 else None,
        )
        for number in range(8)
    )
    options: dict[str, Any] = {"policies": policies, "counting": counted(bandwidth_per_day=20.0), "publications": True}
    lines = log.read_bytes().splitlines(keepends=True)
    halves = [tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"]
    for half, part in zip(halves, (lines[:600], lines[600:]), strict=True):
        half.write_bytes(b"".join(part))
    run(halves, tmp_path / "once", state=tmp_path / "a", segment_bytes=1 << 30, **options)
    run(halves, tmp_path / "cut", state=tmp_path / "c", segment_bytes=20_000, **options)
    for number, half in enumerate(halves):
        run([half], tmp_path / f"half-{number}", state=tmp_path / "b", **options)
    assert state_files(tmp_path / "a") == state_files(tmp_path / "b") == state_files(tmp_path / "c")
    for name in ("refresh-schedule", "importance"):
        expected = (tmp_path / f"once/{name}.jsonl").read_bytes()
        assert expected == (tmp_path / f"half-1/{name}.jsonl").read_bytes()
        assert expected == (tmp_path / f"cut/{name}.jsonl").read_bytes()
    for name in ("crawl-orders", "refresh-publications"):
        expected = (tmp_path / f"once/{name}.jsonl").read_bytes()
        assert expected == (tmp_path / f"cut/{name}.jsonl").read_bytes()
        assert expected == b"".join((tmp_path / f"half-{half}/{name}.jsonl").read_bytes() for half in (0, 1))
    changed = (policies[0], Policy(url=url(30), refresh_forbidden=True, published_at_ms=FIRST_MS), *policies[1:])
    with pytest.raises(StateRefused, match="8 policies it has applied are not the first"):
        run([log], state=tmp_path / "a", policies=changed)


def test_a_refused_policy_is_reported_with_its_reason(log: Path, tmp_path: Path) -> None:
    late = FIRST_MS + 20 * DAY_MS
    policies = (
        Policy(url=url(1), refresh_interval_seconds=60.0, published_at_ms=late),
        Policy(url="ftp://no.example/", refresh_forbidden=True, published_at_ms=late),
        Policy(url=url(2), refresh_forbidden=True, published_at_ms=late),
    )
    result = run([log], tmp_path, policies=policies, counting=counted(bandwidth_per_day=20.0))
    assert (result.summary["policies"], result.summary["policies_refused"]) == (1, 2)
    assert any("pins would take 1440" in note for note in result.notes)
    assert any("ftp://no.example/" in note and "begin it with http" in note for note in result.notes)
    assert schedule_of(tmp_path)[url(2)]["decided_by"] == "FORBIDDEN"


# -- categories, limits ------------------------------------------------------------------------------------------------


def test_categories_have_factors_and_links_to_them_a_bonus(log: Path, tmp_path: Path) -> None:
    rules = Rules(categories=Categories(by_media=True, patterns=("https://site-1.example/*",)))
    plain = run([log], tmp_path / "plain", rules=rules, counting=counted(bandwidth_per_day=20.0))
    focused = run(
        [log],
        tmp_path / "focused",
        rules=rules,
        counting=counted(bandwidth_per_day=20.0),
        focus=CashFocus(bonus={"https://site-1.example/*": 0.5}),
        policies=(Policy(category=rules.categories.number("pdf"), importance_factor=0.0),),
    )
    before, after = schedule_of(tmp_path / "plain"), schedule_of(tmp_path / "focused")
    pdf, news = url(9), url(24)
    assert before[pdf]["category"] == 4 and before[news]["category"] == 6 and before[url(0)]["category"] == 1
    assert before[pdf]["interval_seconds"] is not None and after[pdf]["interval_seconds"] is None
    assert after[news]["importance"] > before[news]["importance"]
    assert (plain.summary["drift"], focused.summary["drift"]) == (0, 0)


@pytest.mark.slow
def test_a_trap_does_not_fill_the_ledger(tmp_path: Path) -> None:
    log = tmp_path / "trap.jsonl"
    with log.open("wb") as file:
        for number in range(400):
            links = tuple(Link(f"https://trap.example/{number}/{i}") for i in range(20))
            home = (Link("https://good.example/"), Link(f"https://good.example/{number % 7}"))
            file.write(
                json_line(
                    CrawlEvent(
                        f"https://trap.example/{number}",
                        fetched_at_ms=FIRST_MS + number * 3_600_000,
                        status=200,
                        links=(*links, *home),
                    )
                )
            )
    counting = LedgerOptions(max_pages=1000, max_unread_per_host=300)
    result = run([log], tmp_path / "out", counting=counting, publications=True)
    assert result.summary["pages"] <= 400 + 300 + 8 + 22 and result.summary["drift"] == 0
    removed = result.summary["pages_removed"]["limit"]
    assert removed > 7000 and len(records_of(tmp_path / "out/tombstones.jsonl")) == removed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counting": counted(strategy="best")}, "strategy is 'best': give one of thesis"),
        ({"counting": counted(bandwidth_per_day=-1.0)}, "bandwidth_per_day is -1.0"),
        ({"counting": LedgerOptions(max_pages=0)}, "max_pages is 0"),
        ({"focus": CashFocus(bonus={"pdf": 0.5})}, "bonus: there is no category 'pdf'"),
        ({"focus": CashFocus(unread_weight=-1.0)}, "unread-weight -1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str, log: Path) -> None:
    with pytest.raises(ConfigRefused, match=message):
        run([log], **options)


def test_a_state_keeps_its_categories(log: Path, state: Path) -> None:
    with pytest.raises(StateRefused, match="other categories of pages: give --by-media and --category as in its first"):
        run([log], state=state, rules=Rules(categories=Categories(by_media=True)))


# -- opicflow schedule -------------------------------------------------------------------------------------------------


def schedule(state: Path, *options: str) -> CommandResult:
    return command("schedule", "--state", state, *options)


@pytest.mark.slow
def test_schedule_compares_strategies_and_changes_nothing(state: Path) -> None:
    before = state_files(state)
    done = schedule(state, "--bandwidth", "40", "--compare", "--json")
    assert (done.code, done.err) == (0, "")
    printed = json.loads(done.out)
    rows = {row["policy"]: row for row in printed["policies"]}
    assert list(rows) == list(STRATEGIES)
    assert printed["plan"]["bandwidth_per_day"] == 40.0 and len(printed["orders"]) == 10
    assert min(rows, key=lambda name: rows[name]["obsolescence"]) == "thesis"
    assert max(rows, key=lambda name: rows[name]["freshness"]) == "freshness"
    for row in (*rows.values(), printed["plan"]):
        assert 0 < row["freshness_low"] < row["freshness"] < row["freshness_high"] < 1
    assert min(rows, key=lambda name: rows[name]["harmonic_staleness"]) == "harmonic"
    assert rows["uniform"]["shortest_interval_seconds"] == pytest.approx(rows["uniform"]["longest_interval_seconds"])
    words = schedule(state, "--bandwidth", "40", "--compare").out
    assert all(f"\n  {name} " in words for name in STRATEGIES) and "REFRESH" in words
    assert re.search(r"fresh, by importance \(\d+% to \d+%\)", words)
    fixed = json.loads(schedule(state, "--bandwidth", "40", "--set", "rate-prior=fixed", "--json").out)["plan"]
    assert fixed["freshness"] != printed["plan"]["freshness"]
    assert state_files(state) == before


@pytest.mark.slow
def test_schedule_says_where_discovery_has_learnt_nothing(log: Path, state: Path, tmp_path: Path) -> None:
    refresh = {"bandwidth_per_day": 20.0, "discovery_by": "importance"}
    run([log], state=tmp_path / "state", counting=LedgerOptions(refresh=refresh))
    note = "note: the state has not learnt which unread pages come first"
    assert note in schedule(tmp_path / "state", "--set", "discovery-by=learnt").out
    assert note not in schedule(tmp_path / "state", "--bandwidth", "30").out
    assert note not in schedule(state, "--set", "discovery-by=learnt").out
    assert note not in schedule(state, "--set", "discovery-by=importance").out


def test_schedule_exports_for_a_frontier(state: Path, tmp_path: Path) -> None:
    for name in ("plan.csv", "plan.jsonl"):
        assert schedule(state, "--refresh-strategy", "harmonic", "--export", str(tmp_path / name)).code == 0
    with (tmp_path / "plan.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = records_of(tmp_path / "plan.jsonl")
    assert len(rows) == len(lines) == PAGES
    assert [row["url"] for row in rows] == [line["url"] for line in lines]
    times = [row["refetchable_from"] for row in rows]
    assert times == sorted(times) and all(time.endswith("Z") for time in times)
    assert [float(row["priority"]) for row in rows] == [line["priority"] for line in lines]
    assert {row["decided_by"] for row in rows} == {"BUDGET", "DISCOVERY"}


@pytest.mark.slow
def test_wrong_options_of_schedule_give_one_line_of_error(state: Path, tmp_path: Path) -> None:
    for options, message in (
        (["--refresh-strategy", "best"], "--refresh-strategy 'best': give one of thesis"),
        (["--bandwidth", "0"], "--bandwidth 0: give a number"),
        (["--set", "rate-prior=best"], "--set rate-prior='best': give one of learnt, fixed"),
        (["--set", "discovery-by=best"], "--set discovery-by='best': give one of learnt, importance, cash, found"),
        (["--export", str(tmp_path / "no/where.csv")], "its folder is not there"),
        (["--export", "plan.txt"], "plan.txt: a plan ends in .csv or .jsonl: name it so"),
    ):
        done = schedule(state, *options)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert message in done.err
    done = schedule(tmp_path / "none")
    assert done.code == 2 and done.err.count("\n") == 1


def test_a_full_disk_is_that_of_the_exported_file(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(import_module("opicflow.pipelines.results.schedules"), "export", fill)
    done = schedule(state, "--export", str(tmp_path / "frontier.csv"))
    assert done.code == 2 and done.err.startswith(f"opicflow: {tmp_path}/frontier.csv: No space left on device: ")


@pytest.mark.slow
def test_an_error_in_a_policy_file_names_its_line(log: Path, tmp_path: Path) -> None:
    for text, message in (
        ('{"url":1}', "line 1: url is 1"),
        ('\n{"host":"a.example","refresh":true}', "line 2"),
        ("nonsense", "line 1"),
    ):
        path = tmp_path / "policies.jsonl"
        path.write_text(text)
        error = refusal("replay", log, "--policies", path)
        assert str(path) in error and message in error


def test_policies_read_from_lines_equal_those_written() -> None:
    policy = Policy(2, host="a.example", importance_factor=2.5, expires_at_ms=5)
    assert policies_of([json.dumps(policy_to_json(policy)).encode()], "x") == [policy]
