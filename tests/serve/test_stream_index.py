"""The view of a stream's topics: the first pages, their plans, orders, sites, books and rejects, and no others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.pipelines.serve.page_table import Filter
from opicflow.pipelines.serve.stream_checks import JobState, checks_of
from opicflow.pipelines.serve.stream_index import StreamIndex
from opicflow.pipelines.serve.view import Live, View
from opicflow.pipelines.stream.audit import Verdict
from opicflow.pipelines.stream.status import StreamStatus
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.message_columns import ResultMessage
from opicflow.schemas.pages import PageIds, page_id
from opicflow.schemas.records import Audit, CrawlOrder, Importance, Policy, RefreshSchedule, SiteImportance, to_avro
from support.stream_job import details, no_checkpoints

NOON = 1_777_636_800
NOON_MS = 1000 * NOON
DAY_MS = 86_400_000


def url(number: int) -> str:
    return f"https://h{number % 5}.example/{number}"


def page(number: int, importance: float, visits: int = 3, last_visit_ms: int = NOON_MS - DAY_MS) -> Importance:
    of = ("FETCHED", True, 1_000, 2.5, NOON_MS, 0, 0)
    first = (url(number), page_id(url(number)), importance, 1_000 * importance, 0.1 * importance)
    return Importance(*first, 1, 1, 0.5, 0.25, visits, last_visit_ms, *of)


def due(number: int, due_ms: int | None, importance: float = 0.1) -> RefreshSchedule:
    how = ("BUDGET", 0.5, "DEFAULT", importance, 2, None, NOON_MS, 0)
    return RefreshSchedule(url(number), page_id(url(number)), due_ms, None if due_ms is None else 7200.0, *how)


def order(number: int, at_ms: int, expires_ms: int | None = None, why: Any = "REFRESH") -> CrawlOrder:
    return CrawlOrder(url(number), page_id(url(number)), at_ms, why, 1.0, None, expires_ms, 0.1, 5, None, None, 0)


def books(shard: int = 0, shards: int = 1, drift: int = 0, certificate: float | None = 0.01) -> Audit:
    minted = 1_000 * UNITS_PER_PAGE
    of = (NOON, 2.5, 1_000, 3_000, minted, minted - drift, 0, 0, 0, 0, 0)
    return Audit(shard, shards, *of, certificate=certificate, settled=True)


def take(index: StreamIndex, stream: str, *records: Any, start: int = 0, partition: int = 0) -> None:
    index.take(
        stream,
        [
            ResultMessage(
                (
                    one
                    if isinstance(one, bytes)
                    else (getattr(one, "url", None) or getattr(one, "site", None) or "key").encode()
                ),
                None if isinstance(one, bytes) else to_avro(one),
                partition,
                start + offset,
            )
            for offset, one in enumerate(records)
        ],
    )


def view_of(index: StreamIndex, at_ms: int = NOON_MS) -> View:
    checks = tuple(checks_of(index.verdict, index.refused_entries, None, at_ms))
    return index.view(Live(at_ms, kept=index.kept()), checks, "a stream", "topics")


def test_books_that_are_not_read_yet_are_not_missed() -> None:
    clock = {one.name: one.is_right for one in checks_of(Verdict(), 0, None, NOON_MS, is_reading=True)}["Clock"]
    assert clock is None


def test_the_first_pages_are_shown_with_plan_and_order_whatever_topic_comes_first() -> None:
    index = StreamIndex(10)
    take(index, "crawl-orders", order(2, NOON_MS), order(99, NOON_MS, why="DISCOVERY"))
    take(index, "refresh-schedule", due(2, NOON_MS - 60_000), due(1, NOON_MS + DAY_MS), due(98, None))
    take(index, "importance", page(1, 0.2), page(2, 0.1), page(1, 0.3), page(3, 0.25), url(3).encode())
    view = view_of(index)
    records = [view.table.record(row) for row in range(len(view.table))]
    assert [(one["url"], one["importance"], one["rank"]) for one in records] == [(url(1), 0.3, 1), (url(2), 0.1, 2)]
    assert records[1]["due"] == NOON_MS - 60_000 and records[1]["overdue"] and not records[0]["overdue"]
    assert view.overdue == 1 and records[1]["category"] == 2
    shown = [view.table.order(place) for place in range(len(view.table.order_rows))]
    assert [(one["url"], one["why"]) for one in shown] == [(url(2), "REFRESH"), (url(99), "DISCOVERY")]
    assert shown[1]["page"] == f"{page_id(url(99)):016x}"
    assert view.table.order_of(1) == shown[0] and view.table.order_of(0) is None
    assert {one.name: one.orders for one in view.orders_by_reason} == {"read again": 1, "never read": 1}
    assert view.pages == 1_000


def test_records_of_two_replays_with_two_keys_belong_together_by_url() -> None:
    """The second replay has other page ids; what it did not send again is of the first one."""
    index, other = StreamIndex(10), PageIds.with_secret(b"of the second replay")
    take(index, "importance", page(1, 0.2), page(2, 0.1, last_visit_ms=NOON_MS), page(3, 0.3))
    take(index, "refresh-schedule", due(1, NOON_MS - 60_000), due(3, NOON_MS - 60_000))
    take(index, "crawl-orders", order(1, NOON_MS - 1), order(2, NOON_MS - 1))
    again = [replace(page(number, 0.2, last_visit_ms=NOON_MS), page=other.of(url(number))) for number in (1, 2)]
    take(index, "importance", *again, start=3)
    table = view_of(index).table
    records = {one["url"]: one for one in map(table.record, range(len(table)))}
    ids = (other.of(url(1)), other.of(url(2)), page_id(url(3)))
    assert [records[url(number)]["page"] for number in (1, 2, 3)] == [f"{page:016x}" for page in ids]
    assert [records[url(number)].get("due") for number in (1, 2, 3)] == [NOON_MS - 60_000, None, NOON_MS - 60_000]
    assert len(table.order_rows) == 0, "both pages were visited since"


def test_orders_that_are_done_or_expired_do_not_wait() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2, last_visit_ms=NOON_MS - 5_000), page(2, 0.1, last_visit_ms=NOON_MS - 50_000))
    take(index, "crawl-orders", order(1, NOON_MS - 10_000), order(2, NOON_MS - 10_000), order(7, NOON_MS, NOON_MS + 10))
    assert [one["url"] for one in orders(view_of(index))] == [url(2), url(7)]
    assert [one["url"] for one in orders(view_of(index, NOON_MS + 11))] == [url(2)]


def test_pages_that_are_all_kept_say_how_many_were_read_since_the_last_plan() -> None:
    index = StreamIndex(1_000)
    read = [replace(page(n, 0.5 / (1 + n)), pages=10) for n in range(10)]
    take(index, "importance", *(replace(one, visits=0) for one in read))
    take(index, "site-importance", SiteImportance("h.example", "HOST", 1.0, 1.0, 10, 0, 0.0, 0.0, NOON_MS, 0, 1))
    assert (view_of(index).pages_read, view_of(index).waiting) == (0, 10)
    take(index, "importance", *read[:7], start=10)
    assert (view_of(index).pages_read, view_of(index).waiting) == (7, 3)


def test_policies_are_those_in_force_and_one_that_is_wrong_changes_nothing() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2), page(2, 0.1))
    given = [
        Policy(url=url(1), refresh_interval_seconds=3600.0),
        Policy(url=url(2), refresh_interval_seconds=-1.0),
        Policy(host="h1.example", refresh_forbidden=True, expires_at_ms=NOON_MS + 1),
        Policy(url=url(2), importance_factor=2.0),
        Policy(url=url(2)),
    ]
    take(index, "policies", *given)

    def sentences(at_ms: int) -> list[list[tuple[str, bool]]]:
        view = view_of(index, at_ms)
        return [[(one["sentence"], one["holds"]) for one in view.policies_of(row) or ()] for row in range(2)]

    before = "pages of h1.example are not fetched again until 2026-05-01T12:00:00Z"
    pinned = f"{url(1)} is fetched every hour"
    assert sentences(NOON_MS) == [[(before, True), (pinned, False)], []]
    assert sentences(NOON_MS + 1) == [[(pinned, True)], []]
    assert index.unreadable["policies"] == 1 and "1 messages could not be read" in index.kept()


def orders(view: View) -> list[dict[str, Any]]:
    return [view.table.order(place) for place in range(len(view.table.order_rows))]


@pytest.mark.parametrize("seed", range(2))
def test_of_many_pages_the_first_are_kept_as_if_all_were_and_it_says_how_many(seed: int) -> None:
    chance = np.random.default_rng(seed)
    whole, bounded = StreamIndex(100_000), StreamIndex(200)
    for batch in range(40):
        numbers, values = chance.integers(0, 2_000, 100).tolist(), (chance.pareto(1, 100) / 1e3).tolist()
        records = [page(number, value) for number, value in zip(numbers, values, strict=True)]
        for index in (whole, bounded):
            take(index, "importance", *records, start=100 * batch)
    all_, kept = view_of(whole).table, view_of(bounded).table
    complete = bounded.pages.rows.complete
    assert len(kept) <= 250 < len(all_) and complete >= 100
    assert [kept.record(row) for row in range(complete)] == [all_.record(row) for row in range(complete)]
    kept = view_of(bounded).live.kept  # type: ignore[union-attr]
    assert f"the first {complete}." in kept and "--keep 200" in kept
    assert kept.startswith(f"Of {len(all_):,}") is False and kept.startswith("Of 1,000 pages")  # the crawl's own count
    assert view_of(whole).live.kept.startswith(f"All {len(all_):,} pages")  # type: ignore[union-attr]


def test_a_page_that_somebody_looks_for_is_kept_from_its_next_record_on() -> None:
    index = StreamIndex(50)
    take(index, "importance", *(page(n, 1.0 + n) for n in range(1, 400)))
    assert view_of(index).table.row_of_url(url(0)) is None
    index.look_for(url(0))
    take(index, "importance", page(0, 1e-9), start=1_000)
    take(index, "importance", *(page(n, 2.0 + n) for n in range(1, 400)), start=2_000)
    row = view_of(index).table.row_of_url(url(0))
    assert row is not None and view_of(index).table.record(row)["importance"] == 1e-9


def test_sites_are_the_sums_that_shards_publish() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2), page(2, 0.1))
    half = SiteImportance("big.example", "DOMAIN", 0.2, 1.0, 400, 100, 0.0, 0.0, NOON_MS, 0, 2)
    take(index, "site-importance", half, replace(half, site="small.example", importance=0.1, shards=1))
    index.take("site-importance", [ResultMessage(b"big.example#1", to_avro(replace(half, shard=1)), 0, 9)])
    view = view_of(index)
    domains = {one.name: (one.rank, one.importance, one.pages, one.read) for one in view.table.domains}
    assert domains["big.example"] == (1, 0.4, 800, 200) and domains["small.example"] == (4, 0.1, 400, 100)
    assert domains["h1.example"] == (2, 0.2, 1, 1), "a kept page's domain that has not been published yet"
    assert view.pages_read == 300 and view.waiting == 700
    take(index, "site-importance", b"small.example", start=20)
    assert "small.example" not in {one.name for one in view_of(index).table.domains}


def test_values_that_cannot_be_are_counted_and_take_nothing_with_them() -> None:
    index = StreamIndex(10)
    good, bad, worse = page(1, 0.2), to_avro(page(2, 0.1)), to_avro(page(3, float("nan")))
    bad["page"] = "f" * 40
    rows = [to_avro(good), bad, worse, {**to_avro(page(4, 0.1)), "url": "https://a.example/\nb\u202e"}]
    index.take("importance", [ResultMessage(b"%d" % n, row, 0, n) for n, row in enumerate(rows)])
    view = view_of(index)
    assert len(view.table) == 2 and "2 messages could not be read" in index.kept()
    assert view.table.url(1) == "https://a.example/\\nb\\u202e"


def test_rejects_are_counted_with_few_examples_and_refused_entries_apart() -> None:
    index = StreamIndex(10, "my-")
    for number in range(300):
        take(index, "rejects", Reject(Reason.NOT_JSON, "no", "my-crawl-events/1", number, b"x" * 5_000))
    take(index, "rejects", Reject(Reason.COLLISION, "no", "my-page-ledger/1", 7, b"\xff"))
    view = view_of(index)
    assert view.rejects == {"not-json": 300, "collision": 1} and view.counts["rejects"] == 301
    assert len(view.examples) == 6 and max(len(one.excerpt) for one in view.examples) <= 400
    assert index.refused_entries == 1
    assert {one.name: one.is_right for one in view.light.checks}["Refused entries"] is False


@pytest.mark.parametrize(
    ("records", "right"),
    [
        ((books(),), True),
        ((books(drift=1),), False),
        ((books(shards=2),), None),
        ((), None),
    ],
    ids=["balanced", "a unit is missing", "a shard is silent", "no books"],
)
def test_the_light_follows_the_books(records: tuple[Audit, ...], right: bool | None) -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2))
    take(index, "audit", *records)
    light = view_of(index).light
    assert {one.name: one.is_right for one in light.checks}["Cash"] is right
    assert light.state == ({True: "right", False: "wrong", None: "right"}[right] if records else "wrong"), light


def test_old_ticks_unproven_ranks_and_unsettled_shards_are_worth_a_look() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2))
    take(index, "audit", books())
    assert view_of(index, NOON_MS + 60_000).light.state == "right"
    late = view_of(index, NOON_MS + 600_000).light
    assert (late.state, late.checks[0].name) == ("wrong", "Clock") and "10 min ago" in late.checks[0].sentence
    assert late.headline == "The stream does not go on: clock"
    take(index, "audit", replace(books(), certificate=2.0, second=NOON + 1))
    assert "nothing is proven" in str(view_of(index).light.checks)
    take(index, "audit", replace(books(), settled=False, second=NOON + 2))
    assert "not settled yet in 1 of 1 shards" in str(view_of(index).light.checks)
    assert view_of(index).light.state == "right", "a young crawl has no fault"


def test_the_job_is_judged_by_what_status_says() -> None:
    def found(job: JobState) -> dict[str, bool | None]:
        return {one.name: one.is_right for one in checks_of(Verdict(), 0, job, NOON_MS)}

    def status(runs: bool = True, failed: int = 0, **metrics: float) -> JobState:
        return JobState(StreamStatus(details(runs), no_checkpoints(failed), metrics, ""), "", 100.0)

    healthy = found(status(events_read=1_000, lag_crawl_events_0=50))
    assert healthy | {"Cash": None, "Ranks": None, "Clock": False} == healthy
    assert (healthy["Job"], healthy["Lag"], healthy["Refused entries"]) == (True, True, True)
    assert "Rejects" not in healthy and "Checkpoints" not in healthy
    assert found(JobState(problem="Flink at x: it cannot be reached"))["Job"] is False
    assert found(JobState())["Job"] is None
    assert found(status(runs=False))["Job"] is False
    assert found(status(lag_crawl_events_0=7_000))["Lag"] is False
    assert found(status(rejected=1))["Refused entries"] is False
    assert found(status(audit_drift_shard_0=1))["Cash"] is False
    assert found(status(events_read=100, rejected_events=6))["Rejects"] is False
    assert found(status(failed=2))["Checkpoints"] is False


@pytest.mark.parametrize(("seconds", "is_known"), [(60, True), (61, False)])
def test_values_of_a_worker_before_it_hung_are_not_shown_as_present(seconds: int, is_known: bool) -> None:
    waits = no_checkpoints(waiting_since_ms=NOON_MS)
    job = JobState(StreamStatus(details(now_ms=NOON_MS + 1000 * seconds), waits, {"lag_x_0": 3}, ""), "", 100.0)
    checks = {one.name: one for one in checks_of(Verdict(), 0, job, NOON_MS)}
    assert (checks["Lag"].is_right, "Workers" in checks) == ((True, False) if is_known else (None, True))
    if not is_known:
        assert checks["Workers"].is_right is False and "2026-05-01 12:00 UTC" in checks["Workers"].sentence
        assert checks["Lag"].sentence == "not known; 3 records waited at 2026-05-01 12:00 UTC"


def test_a_page_that_is_looked_at_has_a_history_from_then_on() -> None:
    index = StreamIndex(1_000)
    take(index, "importance", *(page(number, 1.0 / (1 + number)) for number in range(200)))
    view_of(index)
    looked_at, other = page_id(url(150)), page_id(url(151))
    index.look_at(looked_at)
    index.look_at(page_id("https://nobody.example/"))
    for step in range(1, 4):
        view = view_of(index, NOON_MS + 20_000 * step)
    assert [value for _, value in view.history_of(looked_at)] == [pytest.approx(1 / 151)] * 3
    assert view.history_of(other) == [] and len(view.history_of(page_id(url(0)))) == 4


def test_orders_wait_as_long_as_the_clock_says() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2))
    take(
        index, "crawl-orders", order(9, NOON_MS - 30 * 3_600_000), order(7, NOON_MS - 2 * 3_600_000), order(8, NOON_MS)
    )
    ages = view_of(index, NOON_MS + 1_000).order_ages
    assert (ages.total, ages.since_ms, ages.seconds) == (3, NOON_MS - 30 * 3_600_000, 30 * 3_600 + 1)
    assert dict(ages.longer) == {"an hour": 2, "a day": 1, "a week": 0}


def test_a_history_is_bounded_and_reaches_from_the_first_look_to_now() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2), page(2, 0.1))
    for number in range(600):
        view = view_of(index, NOON_MS + 10_000 * number)
    assert 100 <= len(view.history) <= 240
    assert view.history[0].time_ms == NOON_MS and view.history[-1].time_ms >= NOON_MS + 5_900_000
    assert len(view.top_series) == 2 and [one.name for one in view.discovery_series] == ["known"]


def test_lists_say_what_is_kept_only() -> None:
    index = StreamIndex(50)
    take(index, "importance", *(page(n, 1.0 + n) for n in range(1, 400)))
    view = view_of(index)
    assert view.table.listed(Filter(host="h1.example"), 0, 5).total < 40
    assert "Of others nothing is known here" in index.kept()


def test_the_freshness_that_schedules_promise_is_the_mean_of_a_page_between_two_fetches() -> None:
    index = StreamIndex(10)
    take(index, "importance", page(1, 0.2), page(2, 0.1))
    assert view_of(index).fresh_by_schedules is None
    take(index, "refresh-schedule", due(1, NOON_MS), due(2, NOON_MS))
    view = view_of(index)
    record = view.table.record(0)
    changes = record["changes_per_day"] * record["interval_seconds"] / 86_400
    assert view.fresh_by_schedules == pytest.approx((1 - math.exp(-changes)) / changes)
