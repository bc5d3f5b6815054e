"""Laws of refreshing: observations, plans, orders, published schedules and removed pages."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    START,
    Applied,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    Outcome,
    PolicyEntry,
    RemovalReason,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.plan import planner
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY, KNOWN_FROM
from opicflow.pipelines.refresh.rates import change_rates
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.schemas.hashing import hash_texts
from opicflow.schemas.pages import page_id, page_ids
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.same_bytes import assert_same_bytes
from support.thorough import crossed, examples, thorough
from support.written_crawls import DAY, T0, Crawl, of_page, ordered, site_of_its_own, url_of, with_refresh

ANSWERS = (Outcome.FETCHED, Outcome.ALIASED, Outcome.UNCHANGED)


def digest_of(ledger: Ledger) -> str:
    return hashlib.sha256(b"".join(chunk.name.encode() + chunk.data for chunk in ledger.snapshot())).hexdigest()


# -- 1. observing ------------------------------------------------------------------------------------------------------


STEP = math.log(20 * 365.25 * DAY / 60) / 126


def code_of(seconds: int) -> int:
    return 1 if seconds <= 60 else int(math.log(min(seconds, 20 * 365.25 * DAY) / 60) / STEP + 1.5)


def word_of(intervals: list[tuple[int, bool]]) -> int:
    word = 0
    for seconds, changed in intervals[-8:]:
        word = word << 8 | code_of(seconds) | changed << 7
    return word


def folded(digest: int) -> int:
    return (digest ^ digest >> 32) & 0xFFFFFFFF


@dataclass
class Watched:
    """A page as docs/results/change-rates.md and observing.py say that it is watched, in plain Python."""

    intervals: list[tuple[int, bool]] = field(default_factory=list)
    dates: list[tuple[int, bool]] = field(default_factory=list)
    digest: int = 0
    content_ms: int = 0
    checked: int = 0
    modified: int = 0
    failures: int = 0
    is_gone: bool = False
    mistrust: int = 0
    is_announced: bool = False
    times: set[int] = field(default_factory=set)
    contents: list[int] = field(default_factory=list)
    returned: list[bool] = field(default_factory=list)
    run: int = 0

    def announce(self, modified_ms: int) -> None:
        if self.checked and modified_ms // 1000 > self.checked:
            self.is_announced = True

    def visit(self, outcome: Outcome, time_ms: int, digest: int, modified_ms: int) -> None:
        if time_ms and time_ms in self.times:
            return
        is_late = 0 < time_ms < max(self.times, default=0)
        self.times.add(time_ms)
        second = time_ms // 1000
        is_newer = self.content_ms < time_ms < 1000 << 32
        is_later = is_newer and self.checked < second
        if outcome == Outcome.BUSY:
            return
        if is_newer and outcome in (Outcome.GONE, Outcome.REDIRECTED):
            self.content_ms, self.digest, self.modified, self.contents = time_ms, 0, 0, []
        if outcome in (Outcome.FAILED, Outcome.BLOCKED, Outcome.GONE):
            if outcome == Outcome.GONE and is_later and (not self.is_gone or not self.checked):
                self.checked = second
            if not is_late:
                self._fail(outcome == Outcome.GONE)
            return
        if not is_late:
            self.failures, self.is_gone = 0, False
        self.is_announced &= is_late and not is_later
        if not is_later:
            if is_newer and outcome in (Outcome.FETCHED, Outcome.ALIASED):
                self.content_ms, self.digest = time_ms, folded(digest)
                self.modified = min(modified_ms // 1000, 0xFFFFFFFF)
            return
        last, self.checked = self.checked, second
        if outcome == Outcome.REDIRECTED:
            return
        if outcome == Outcome.UNCHANGED:
            if last:
                self._observe(second - last, False)
                if self.dates:
                    self.dates.append((second - last, False))
        else:
            self.content_ms = time_ms
            self._fetched(second, last, folded(digest), min(modified_ms // 1000, 0xFFFFFFFF))

    def _fail(self, is_gone: bool) -> None:
        goes_on = is_gone == self.is_gone
        self.failures = min(self.failures + 1, 255) if goes_on else 1
        self.is_announced &= not is_gone
        self.is_gone = is_gone

    def _observe(self, length: int, changed: bool, returned: bool = False) -> None:
        before = self.intervals[-8:]
        self.run = self.run + (len(before) == 8 and all(was for _, was in before)) if changed else 0
        self.intervals.append((length, changed))
        self.returned.append(returned)

    def _change(self, digest: int) -> bool:
        """The content changes; return whether to one of the three before."""
        short, before = 1 + digest % 1023, 1 + self.digest % 1023
        returned = short in self.contents
        self.contents = [before, *(one for one in self.contents if one != short)][:3]
        return returned

    def _lie(self) -> None:
        self.mistrust = min(self.mistrust + 2, 8)

    def _fetched(self, second: int, last: int, digest: int, date: int) -> None:
        by_digest = None if not (last and digest and self.digest) else digest != self.digest
        is_lie = date != 0 and (date > second + 300 or abs(date - second) <= 2)
        if date and not is_lie and self.modified and by_digest is not None:
            moved = date != self.modified
            is_lie = moved != by_digest or (by_digest and date <= last)
            if not is_lie and self.mistrust:
                self.mistrust -= 1
        if is_lie:
            self._lie()
        is_believed = bool(date) and not is_lie and self.mistrust <= 1
        changed, returned = by_digest, bool(by_digest) and self._change(digest)
        if changed is None and last and is_believed and self.modified:
            changed = date != self.modified
        if changed is not None:
            self._observe(second - last, changed, returned)
        if is_believed:
            if changed is None:
                changed = not self.dates or date > last
            is_new = changed or not self.dates
            self.dates.append((max(second - date, 0), True) if is_new else (second - last, False))
        elif changed is False and self.dates:
            self.dates.append((second - last, False))
        else:
            self.dates = []
        self.digest, self.modified = digest, date

    def row(self) -> tuple[int, ...]:
        notes = self.mistrust | 32 * self.is_gone | 128 * self.is_announced
        words = word_of(self.intervals), word_of(self.dates)
        returned = sum(was << age for age, was in enumerate(self.returned[:-9:-1]))
        earlier = sum(short << 10 * age for age, short in enumerate(self.contents))
        row = (*words, self.digest, self.checked, self.modified, self.failures, notes)
        return (*row, earlier, returned, min(self.run, 255))


def row_of(row: Any) -> tuple[int, ...]:
    names = ("intervals", "dated", "digest", "checked", "modified", "failures", "notes", "earlier", "returned", "run")
    return tuple(int(row[name]) for name in names)


digests = st.sampled_from([0, 1, 2, 3, 1 << 40, (1 << 64) - 1, 0x1_0000_0001])
gaps = st.sampled_from([1, 2, 30, 61, 3600, DAY, DAY, 7 * DAY, 400 * DAY, 30 * 365 * DAY])
dates = st.sampled_from(
    ["none", "none", "true", "true", "true", "now", "future", "stuck", "moves", "long ago", "beyond"]
)
outcomes = st.sampled_from([*[Outcome.FETCHED] * 8, *list(Outcome)[1:], Outcome.UNCHANGED])


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Random events of a page: rows of announcements (None, …) and visits."""
    second, changed, content = T0, T0 - 3 * DAY, 1
    rows: list[tuple[Any, ...]] = []
    usual = draw(dates)
    for _ in range(draw(st.integers(1, 25))):
        second += draw(gaps)
        if draw(st.integers(0, 2)) == 0:
            content, changed = content % 5 + 1, second - draw(st.sampled_from([10, 600, 1800]))
        announced = {
            "none": 0,
            "true": changed,
            "now": second - 1,
            "future": second + 10 * DAY,
            "stuck": T0 - DAY,
            "moves": second - 50,
            "long ago": 7,
            "beyond": 1 << 34,
        }[draw(st.just(usual) | st.just(usual) | dates)]
        kind = draw(st.sampled_from(["visit"] * 8 + ["announce", "late", "again", "no time"]))
        if kind == "announce":
            rows.append((None, 1000 * draw(st.sampled_from([changed, second, second + DAY, T0 - DAY, 1 << 34]))))
            continue
        time_ms = 1000 * second + draw(st.sampled_from([0, 0, 1, 999]))
        if kind == "late":
            time_ms -= 1000 * draw(st.sampled_from([100, DAY, 8 * DAY]))
        elif kind == "again" and rows and rows[-1][0] is not None:
            time_ms = rows[-1][1]
        elif kind == "no time":
            time_ms = 0
        elif draw(st.integers(0, 30)) == 0:
            time_ms = draw(st.sampled_from([1, 999, 1000, 1000 << 32, 1 << 62]))
        digest = draw(st.just(content) | st.just(content) | st.just(content) | digests)
        rows.append((draw(outcomes), time_ms, digest, 1000 * announced))
    return rows


@pytest.mark.slow
@examples(80, 250)
@given(lives(), st.sampled_from(["likelihood", "existence", "thesis"]))
def test_a_page_is_watched_as_plain_python_does(life: list[tuple[Any, ...]], estimator: str) -> None:
    crawl, watched = Crawl(with_refresh(estimator=estimator)), Watched()
    page = crawl.id(1)
    for row in life:
        log = crawl.writer()
        if row[0] is None:
            log.announcement(page, modified_ms=row[1])
            watched.announce(row[1])
        else:
            outcome, time_ms, digest, modified_ms = row
            log.visit(page, [], outcome, time_ms, digest=digest, modified_ms=modified_ms)
            watched.visit(*row)
        crawl.apply(log)
        assert row_of(crawl.row(1)) == watched.row()


def watched_daily(*visits: tuple[int, int], announced: Callable[[int], int] = lambda day: 0) -> Crawl:
    """A page visited on days with a digest; its server sends a date in days, or none (0)."""
    crawl = Crawl()
    for day, digest in visits:
        modified = round(1000 * (T0 + DAY * announced(day))) if announced(day) else 0
        crawl.visit(1, T0 + DAY * day, digest=digest, modified_ms=modified)
    return crawl


def test_not_modified_is_unchanged() -> None:
    crawl = Crawl().visit(1, T0, digest=5).visit(1, T0 + DAY, Outcome.UNCHANGED).visit(1, T0 + 3 * DAY, digest=5)
    assert row_of(crawl.row(1))[0] == word_of([(DAY, False), (2 * DAY, False)])


def test_only_eight_intervals_are_remembered() -> None:
    crawl = watched_daily(*((day, day % 3) if day % 3 else (day, 9) for day in range(1, 30)))
    assert row_of(crawl.row(1))[0] == word_of([(DAY, True)] * 8)


@pytest.mark.parametrize("announced", [lambda day: day + 5, lambda day: day, lambda day: 0.25, lambda day: day - 0.5])
def test_a_server_with_false_dates_is_not_believed_for_long(announced: Callable[[int], Any]) -> None:
    moving = announced(3) == 2.5
    crawl = watched_daily(*((day, 7 if moving else day) for day in range(1, 12)), announced=announced)
    row = crawl.row(1)
    assert row["notes"] & at.MISTRUST >= 6
    crawl.tick(T0 + 12 * DAY)
    planned = crawl.plan()
    assert KNOWN_FROM[of_page(crawl, planned, 1, "known_from")] == "INTERVALS"


def test_a_server_that_lied_is_believed_again_when_it_was_right_long_enough() -> None:
    lied = 4

    def announced(day: int) -> float:
        return day + 5 if day <= lied else day - 0.5

    known = []
    for last in range(6, 20):
        crawl = watched_daily(*((day, day) for day in range(1, last)), announced=announced)  # type: ignore[arg-type]
        crawl.tick(T0 + 30 * DAY)
        known.append(KNOWN_FROM[of_page(crawl, crawl.plan(), 1, "known_from")])
    assert known[0] == "INTERVALS"
    assert known[-1] == "LAST_MODIFIED"
    assert known == sorted(known)


def test_failures_stop_counting_at_255() -> None:
    crawl = Crawl()
    for visit in range(300):
        crawl.visit(1, T0 + visit, Outcome.FAILED)
    assert crawl.row(1)["failures"] == 255
    crawl.tick(T0 + 400)
    planned = crawl.plan()
    assert of_page(crawl, planned, 1, "retry_seconds") <= 1.25 * 30 * DAY
    crawl.visit(1, T0 + 500)
    assert crawl.row(1)["failures"] == 0


def test_a_late_visit_answers_no_order_and_ends_no_row_of_failures() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=10.0)).see([1])
    crawl.tick(T0)
    assert ordered(crawl.plan()) == {crawl.id(1): "DISCOVERY"}
    crawl.visit(1, T0 + 100, Outcome.FAILED)
    crawl.tick(T0 + DAY)
    assert ordered(crawl.plan()) == {crawl.id(1): "REFRESH"}
    crawl.visit(1, T0 + 50)
    assert crawl.row(1)["failures"] == 1
    assert crawl.row(1)["ordered"] == T0 + DAY


# -- 2. shares ---------------------------------------------------------------------------------------------------------


def rates_now(ledger: Ledger, estimator: str) -> dict[int, float]:
    ids, slots = ledger._reader.live()
    rows = ledger.parts().table.refresh[ledger.parts().table.refresh_row[slots]]
    rates = change_rates(rows["intervals"], rows["dated"], (rows["notes"] & at.MISTRUST) <= 1, estimator).rates
    return dict(zip(ids.tolist(), rates.tolist(), strict=True))


class Shares:
    """Every page's share by the formula: its weight at the last plan, its change rate now.

    With a learnt prior the rate is that of the last plan times what visits since then have made of the fixed estimate.
    """

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl
        self.weights: dict[int, float] = {}
        self.set_rates: dict[int, float] = {}
        self.learnt: dict[int, float] = {}

    def removed(self, applied: Applied) -> None:
        for page in (page for _, pages in applied.removed for page in pages.tolist()):
            self.weights.pop(page, None)

    def planned(self, planned: Plan) -> None:
        survey = planned.survey
        pinned = survey.wanted.pinned if survey.wanted.pinned is not None else np.zeros(len(survey.sharing))
        pages = survey.pages[survey.sharing].tolist()
        self.weights = {p: w for p, w, pin in zip(pages, survey.wanted.weights, pinned, strict=True) if pin == 0}
        by_policy = survey.known_from == KNOWN_FROM.index("POLICY")
        self.set_rates = dict(
            zip(survey.pages[by_policy].tolist(), survey.changes_per_day[by_policy].tolist(), strict=True)
        )
        refresh = self.crawl.config.refresh
        fixed = rates_now(self.crawl.ledger, refresh.estimator)
        rates = zip(survey.pages.tolist(), survey.changes_per_day.tolist(), strict=True)
        self.learnt = {page: rate / fixed[page] for page, rate in rates if page not in self.set_rates}
        if refresh.rate_prior == "fixed" or refresh.estimator == "thesis":
            assert set(self.learnt.values()) <= {1.0}

    def check(self) -> None:
        ledger, config = self.crawl.ledger, self.crawl.config.refresh
        ledger.audit()
        now = rates_now(ledger, config.estimator)
        rates = {page: rate * self.learnt.get(page, 1.0) for page, rate in now.items()}
        rates.update((page, rate) for page, rate in self.set_rates.items() if page in rates)
        alpha = config.alpha
        wanted = math.fsum(
            min((weight * rates[page] ** alpha) ** (1 / (alpha + 1)), 65536.0)
            for page, weight in self.weights.items()
            if page in rates
        )
        assert ledger.shares == pytest.approx(wanted, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "alpha", "rate_prior"),
    crossed(["likelihood", "existence", "thesis"], [0.95, 0.3, 3.0], ["learnt", "fixed"]),
)
def test_shares_follow_every_visit_as_the_formula_says(estimator: str, alpha: float, rate_prior: str) -> None:
    random = np.random.default_rng([len(estimator), int(alpha * 100)])
    options = {"estimator": estimator, "rate_prior": rate_prior, "alpha": alpha}
    crawl = Crawl(with_refresh(**options, max_pages=120, bandwidth_per_day=50.0))
    shares = Shares(crawl)
    crawl.see(range(60))
    crawl.publish(Policy(url=url_of(3), changes_per_day=2.0), Policy(host="host1.example", importance_factor=30.0))
    second = T0
    for cycle in range(12):
        for _ in range(40):
            second += int(random.integers(1, 9000))
            page = int(random.integers(0, 80))
            outcome = Outcome(int(random.choice([1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6, 7])))
            digest = int(random.integers(1, 3))
            modified = int(random.choice([0, second - 3000, second - 3000, second, T0]))
            late = DAY if random.random() < 0.1 else 0
            links = [int(random.integers(0, 100))] if outcome in (1, 3) else []
            crawl.visit(page, second - late, outcome, digest, modified_ms=1000 * modified, links=links)
        shares.check()
        shares.removed(crawl.tick(second))
        shares.check()
        shares.planned(crawl.plan())
        shares.check()
        if cycle == 5:
            shares.removed(crawl.publish(Policy(url=url_of(4), changes_per_day=9.0), Policy(url=url_of(5), drop=True)))
            pin = Policy(url=url_of(6), refresh_interval_seconds=20.0 * DAY)
            shares.removed(crawl.publish(pin, Policy(url=url_of(7), forget=True)))
            shares.check()
        if cycle == 8:
            crawl.ledger = Ledger.restore(crawl.bytes())
            shares.check()
    assert crawl.ledger.shares > 1


def test_a_share_follows_when_dates_lose_or_win_back_belief() -> None:
    """The rate before such a visit follows from dates, not from intervals."""
    crawl = Crawl(with_refresh(bandwidth_per_day=5.0)).see(range(3))
    for day in range(1, 6):
        crawl.visit(1, T0 + DAY * day, digest=day, modified_ms=1000 * (T0 + DAY * day - 600))
    crawl.tick(T0 + 6 * DAY)
    shares = Shares(crawl)
    shares.planned(crawl.plan())
    shares.check()
    for day in range(6, 20):
        is_false = day % 7 < 2
        second = T0 + DAY * day
        crawl.visit(1, second, digest=day, modified_ms=1000 * (second + DAY if is_false else second - 600))
        shares.check()


def test_a_published_rate_keeps_the_share_whatever_is_observed() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=5.0)).read(range(5), T0)
    crawl.publish(Policy(url=url_of(1), changes_per_day=3.0))
    crawl.tick(T0 + DAY)
    crawl.plan()
    before = float(crawl.row(1)["share"])
    for day in range(2, 9):
        crawl.visit(1, T0 + DAY * day, digest=day)
    assert float(crawl.row(1)["share"]) == before > 0


def test_no_share_is_too_large_to_be_summed_up() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=5.0, alpha=0.01)).read(range(5), T0)
    crawl.publish(Policy(host="host1.example", importance_factor=1e6, changes_per_day=86400.0))
    crawl.tick(T0 + DAY)
    crawl.plan()
    assert float(crawl.row(1)["share"]) == 65536.0
    crawl.publish(Policy(host="host1.example", importance_factor=1e6))
    crawl.plan()
    for day in range(2, 9):
        crawl.visit(1, T0 + DAY * day, digest=day)
    crawl.ledger.audit()
    assert crawl.ledger.shares < 5 * 65536.5


# -- 3. conservation ---------------------------------------------------------------------------------------------------


def grown(config: LedgerConfig | None = None, pages: int = 50) -> Crawl:
    """A crawl of pages of four hosts, read over ten days, with failures, gone pages and unread ones."""
    crawl = Crawl(config or with_refresh(bandwidth_per_day=20.0))
    crawl.see(range(pages))
    crawl.tick(T0)
    for day in range(1, 10):
        for page in range(day % 3, 4 * pages // 5, 3):
            outcome = {7: Outcome.FAILED, 8: Outcome.GONE}.get(page % 10, Outcome.FETCHED)
            links = ((page * 7 + day) % pages, (page * 3 + 1) % pages) if outcome == Outcome.FETCHED else ()
            crawl.visit(page, T0 + DAY * day + page, outcome, digest=1 + day * page % 4, links=links)
    crawl.tick(T0 + 10 * DAY)
    return crawl


def test_planning_previewing_and_publishing_move_no_cash_and_no_importance() -> None:
    crawl = grown()
    ledger = crawl.ledger

    def books() -> list[Any]:
        estimates = ledger.estimate_all()
        columns = [getattr(estimates, name).tolist() for name in ("pages", "importance", "cash", "waiting", "visits")]
        return [ledger.audit(), ledger.clock, ledger.turns, ledger.visits, columns]

    before = books()
    crawl.plan()
    assert books() == before
    crawl.publish(
        Policy(host="host1.example", importance_factor=100.0),
        Policy(url=url_of(2), refresh_interval_seconds=10.0 * DAY),
        Policy(url_prefix="https://host3.example/page/", refresh_forbidden=True),
        Policy(category=0, changes_per_day=1.0),
        Policy(url=url_of(4), fetch_now=True),
        Policy(fetches_per_second=0.001, discovery_share=0.5, refresh_policy="uniform", host_fetches_per_day=3.0),
    )
    assert books() == before
    ledger.preview()
    crawl.plan()
    assert books() == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_preview_changes_nothing_and_is_the_same_again(strategy: str) -> None:
    crawl = grown()
    crawl.publish(Policy(url=url_of(2), fetch_now=True), Policy(host="host0.example", host_fetches_per_day=2.0))
    crawl.plan()
    crawl.tick(T0 + 11 * DAY)
    before = digest_of(crawl.ledger)
    other = replace(crawl.config.refresh, strategy=strategy, alpha=2.0, estimator="existence")
    one, two = (crawl.ledger.preview(other, replace(crawl.ledger.budget(), strategy=strategy)) for _ in range(2))
    assert digest_of(crawl.ledger) == before
    assert one.orders.rows.tolist() == two.orders.rows.tolist()
    assert one.schedule.due.tolist() == two.schedule.due.tolist()


# -- 4. snapshots ------------------------------------------------------------------------------------------------------


def everything(crawl: Crawl) -> Crawl:
    """Policies in force, some with an end, credits, orders on their way, dropped and forgotten pages."""
    crawl.publish(
        Policy(url=url_of(3), refresh_interval_seconds=14 * DAY, expires_at_ms=1000 * (T0 + 15 * DAY)),
        Policy(url=url_of(4), fetch_now=True),
        Policy(host="host2.example", host_fetches_per_day=1.5),
        Policy(url_prefix="https://host1.example/page/1", forget=True, expires_at_ms=1000 * (T0 + 13 * DAY) + 500),
        Policy(url=url_of(6), forget=True),
        Policy(host="nowhere.example", forget=True),
        Policy(url=url_of(12), drop=True),
        Policy(fetches_per_second=7.3 / DAY, discovery_share=0.3, refresh_policy="harmonic", damping=0.8),
    )
    crawl.plan()
    return crawl


def goes_on(crawl: Crawl) -> list[Any]:
    """The outputs of a crawl as it continues."""
    outputs: list[Any] = []
    for day in range(11, 18):
        applied = crawl.tick(T0 + DAY * day)
        outputs.append([(why, pages.tolist()) for why, pages in applied.removed])
        planned = crawl.plan()
        columns = [planned.orders.rows, planned.orders.priority, planned.orders.not_before, planned.schedule.intervals]
        outputs.append([column.tolist() for column in (*columns, planned.publish, planned.survey.decided_by)])
        for page in sorted(ordered(planned))[::2]:
            log = crawl.writer().visit(page, [crawl.id(day)], time_ms=1000 * (T0 + DAY * day + 500), digest=day)
            crawl.apply(log)
        crawl.see(range(day, day + 30, 5))
        outputs.append(digest_of(crawl.ledger))
    return outputs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restored_ledger_goes_on_planning_as_the_first(strategy: str) -> None:
    config = with_refresh(strategy=strategy, bandwidth_per_day=9.3, max_pages=60, max_unread_per_host=7)
    first = everything(grown(config, pages=70))
    assert first.ledger.evicted > 0
    assert first.ledger._credits.refresh != 0.0
    second = first.restored()
    assert second.bytes() == first.bytes()
    assert goes_on(second) == goes_on(first)
    assert second.ledger.audit().drift == 0


HEADER = struct.Struct("<4sHHII")


def seal(kind: int, number: int, payload: bytes) -> bytes:
    header = HEADER.pack(b"OPLS", 1, kind, number, len(payload))
    return header + struct.pack("<Q", xxhash.xxh64_intdigest(header + payload)) + payload


def with_state(chunks: list[bytes], alter: Callable[[Any], None]) -> list[bytes]:
    """A snapshot whose manifest was altered and sealed again."""
    text = chunks[0][HEADER.size + 8 :]
    assert text.endswith(b"\n")
    manifest = json.loads(text[:-17])
    alter(manifest["state"])
    again = json.dumps(manifest, separators=(",", ":")).encode()
    return [seal(0, 0, again + xxhash.xxh64_hexdigest(again).encode() + b"\n"), *chunks[1:]]


def paths_in(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths_in(one, *path, key)


WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    1 << 70,
    math.nan,
    math.inf,
    -1e300,
    "x",
    "",
    [],
    {},
    [[]],
    [1, 2, 3],
    {"a": 1},
]


@pytest.mark.slow
def test_a_damaged_state_is_refused_or_a_ledger_that_goes_on() -> None:
    chunks = everything(grown()).bytes()
    manifest = json.loads(chunks[0][HEADER.size + 8 :][:-17])
    parts = ("credits", "publications", "published_budget", "url_generation")
    positions = [path for part in parts for path in paths_in(manifest["state"][part], part)]
    assert len(positions) > 50
    refused = accepted = 0
    for path in positions:
        for value in [*WRONG, ...]:

            def alter(state: Any, path: tuple[Any, ...] = path, value: Any = value) -> None:
                for key in path[:-1]:
                    state = state[key]
                if value is ...:
                    del state[path[-1]]
                else:
                    state[path[-1]] = value

            try:
                ledger = Ledger.restore(with_state(chunks, alter))
            except SnapshotRefused as problem:
                assert "\n" not in str(problem)
                refused += 1
            else:
                accepted += 1
                if accepted % 10 == 0:  # accepted states make sense
                    ledger.apply(TickEntry(T0 + 20 * DAY))
                    ledger.plan(100, 0.1)
                    again = Ledger.restore(chunk.data for chunk in ledger.snapshot())
                    assert digest_of(again) == digest_of(ledger)
    assert refused > 10 * accepted


# -- 5. orders ---------------------------------------------------------------------------------------------------------


@dataclass
class Crawler:
    """Somebody who follows orders, in part, and holds them against the law."""

    crawl: Crawl
    random: np.random.Generator
    answers: float = 0.8
    fails: float = 0.1
    outstanding: dict[int, int] = field(default_factory=dict)
    orders: list[tuple[int, int, str]] = field(default_factory=list)
    """Cycle, page id and why."""
    names: dict[int, int] = field(default_factory=dict)

    def cycle(self, number: int, hours: float = 24.0) -> Plan:
        """Plan, check that nothing is ordered twice, and answer until the next cycle."""
        crawl = self.crawl
        now = T0 + int(number * hours * 3600)
        crawl.tick(now)
        planned = crawl.plan()
        timeout = crawl.config.refresh.order_timeout_hours * 3600
        rows = planned.orders.rows
        cycle_seconds = crawl.config.refresh.cycle_hours * 3600
        assert (planned.orders.not_before >= now).all()
        assert (planned.orders.not_before <= now + cycle_seconds).all()
        times = dict(zip(planned.survey.pages[rows].tolist(), planned.orders.not_before.tolist(), strict=True))
        log, ids = crawl.writer(), self.ids
        for page, why in ordered(planned).items():
            assert now - self.outstanding.get(page, -(1 << 40)) >= timeout, "ordered twice"
            assert planned.survey.has_url[planned.survey.pages == np.uint64(page)].all()
            self.outstanding[page] = now
            self.orders.append((number, page, why))
            if self.random.random() < self.answers:
                second = min(times[page] + int(self.random.integers(1, 60)), now + int(hours * 3600) - 1)
                outcome = Outcome.FAILED if self.random.random() < self.fails else Outcome.FETCHED
                url = crawl.ledger.url(page) or b""
                links = [] if outcome == Outcome.FAILED else [int(p) for p in self.random.choice(ids, 2)]
                digest = int(self.random.integers(1, 3))
                log.visit(page, links, outcome, 1000 * second, url=url, digest=digest)
                del self.outstanding[page]
        crawl.apply(log)
        return planned

    @property
    def ids(self) -> np.ndarray:
        return self.crawl.ledger._reader.live()[0]


def ids_of(crawl: Crawl, pages: Iterable[int]) -> set[int]:
    return {crawl.id(page) for page in pages}


@pytest.mark.parametrize(("strategy", "per_day"), crossed(list(STRATEGIES), [7.7, 40.0, 0.3]))
def test_orders_keep_the_bandwidth_and_use_it(strategy: str, per_day: float) -> None:
    config = with_refresh(strategy=strategy, bandwidth_per_day=per_day, longest_interval_days=5.0)
    crawl = Crawl(config).see(range(150)).read(range(100), T0 - 900 * DAY)
    crawler = Crawler(crawl, np.random.default_rng(3), answers=1.0, fails=0.0)
    cycles = 40
    for number in range(cycles):
        crawler.cycle(number)
        given_so_far = len(crawler.orders)
        assert given_so_far <= per_day * (number + 1) + 2  # a part of one of each kind
    full = min(cycles, int(90 / (0.75 * per_day)))  # so long pages are overdue
    if strategy != "freshness":  # which gives some up
        assert sum(number < full for number, _, _ in crawler.orders) >= per_day * full - 3
    if per_day > 1:
        assert Counter(why for _, _, why in crawler.orders)["DISCOVERY"] > 0


@pytest.mark.parametrize(("strategy", "timeout"), crossed(["thesis", "greedy", "uniform"], [20.0, 48.0, 100.0]))
def test_no_page_is_ordered_twice_before_its_answer_or_the_time_out(strategy: str, timeout: float) -> None:
    config = with_refresh(strategy=strategy, bandwidth_per_day=30.0, order_timeout_hours=timeout)
    crawl = Crawl(config).see(range(60)).read(range(40), T0 - DAY)
    crawl.publish(Policy(url=url_of(2), refresh_interval_seconds=DAY / 2), Policy(url=url_of(5), fetch_now=True))
    crawler = Crawler(crawl, np.random.default_rng(4), answers=0.4, fails=0.3)
    for number in range(25):
        crawler.cycle(number)
    assert len(crawler.orders) > 200


def test_bandwidth_for_cycles_of_any_length_adds_up() -> None:
    crawl = (
        Crawl(with_refresh(bandwidth_per_day=10.0, strategy="uniform")).see(range(100)).read(range(90), T0 - 900 * DAY)
    )
    crawler = Crawler(crawl, np.random.default_rng(5), answers=1.0, fails=0.0)
    for number in range(24 * 6):
        crawler.cycle(number, hours=1.0)
    assert 10 * 6 - 2 <= len(crawler.orders) <= 10 * 7 + 2


def host_of(crawl: Crawl, page: int) -> str:
    return (crawl.ledger.url(page) or b"").decode().split("/")[2]


@pytest.mark.parametrize(("shards", "hours"), crossed([1, 2, 3, 7], [24.0, 5.0]))
def test_host_caps_are_kept_and_divided_exactly_among_shards(shards: int, hours: float) -> None:
    config = with_refresh(bandwidth_per_day=100.0 * shards, strategy="uniform", host_fetches_per_day=4.5)
    crawls = []
    for shard in range(shards):
        crawl = Crawl(config, shard, shards)
        mine = [page for page in range(600) if ShardRanges.equal(shards).of(page_ids([url_of(page)]))[0] == shard]
        log = crawl.writer()
        for page in mine:
            log.sighting(crawl.id(page), url=url_of(page).encode())
        for page in mine[::2]:
            log.visit(crawl.id(page), [], time_ms=1000 * (T0 - 900 * DAY), digest=1)
        crawl.apply(log)
        crawl.publish(Policy(host="host2.example", host_fetches_per_day=0.7))
        crawls.append(crawl)
    days = 8
    caps = {f"host{i}.example": 4.5 for i in range(4)} | {"host2.example": 0.7}
    got: Counter[str] = Counter()
    plans = int(days * 24 / hours)
    for number in range(1, plans + 1):
        for crawl in crawls:
            crawl.tick(T0 + int(number * hours * 3600))
            planned = crawl.plan()
            got.update(host_of(crawl, page) for page in ordered(planned))
        span = (number - 1) * hours / 24 + 1.0  # the first plan is for a whole cycle
        for host, cap in caps.items():
            assert got[host] <= cap * span + 1
    for host, cap in caps.items():
        assert abs(got[host] - cap * ((plans - 1) * hours / 24 + 1)) <= 1


def test_orders_of_every_host_are_spread_over_the_cycle() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=100.0, discovery_share=1.0)).see(range(80))
    crawl.publish(Policy(host="host1.example", host_fetches_per_day=6.0))
    crawl.tick(T0)
    planned = crawl.plan()
    times = defaultdict(list)
    for row, second in zip(planned.orders.rows, planned.orders.not_before.tolist(), strict=True):
        times[host_of(crawl, int(planned.survey.pages[row]))].append(second - T0)
    assert sorted(map(len, times.values())) == [6, 20, 20, 20]
    for of_host in times.values():
        assert sorted(of_host) == [DAY * i // len(of_host) for i in range(len(of_host))]


@pytest.mark.parametrize("strategy", ["thesis", "greedy"])
def test_back_off_doubles_and_is_kept_whatever_else_is_due(strategy: str) -> None:
    crawl = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=1000.0)).read(range(3), T0)
    waits = []
    for failure in range(1, 8):
        last = T0 + failure * 100 * DAY
        crawl.visit(1, last, Outcome.FAILED)
        crawl.apply(crawl.writer().announcement(crawl.id(1), modified_ms=1000 * (last - 5)))
        crawl.tick(last + 1)
        planned = crawl.plan()
        assert of_page(crawl, planned, 1, "decided_by") == "BACK_OFF"
        due = int(of_page(crawl, planned, 1, "due"))
        waits.append(due - last)
        is_ordered = crawl.id(1) in ordered(planned)
        assert is_ordered == (due <= last + 1 + DAY)
        if is_ordered:
            position = planned.survey.pages[planned.orders.rows].tolist().index(crawl.id(1))
            assert planned.orders.not_before[position] == max(due, last + 1)
    for failure, wait in enumerate(waits):
        assert 0.75 <= wait / (6 * 3600 * 2**failure) <= 1.2501


def test_a_gone_page_is_checked_rarely_and_goes_in_the_end() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).read(range(3), T0)
    crawl.visit(1, T0 + DAY)
    visits, removed = [], None
    for day in range(2, 400):
        applied = crawl.tick(T0 + DAY * day)
        if applied.removed:
            removed = day, applied.removed
            break
        planned = crawl.plan()
        pages = planned.survey.pages[planned.orders.rows].tolist()
        if not visits or crawl.id(1) in pages:
            visits.append(day)
            earliest = int(planned.orders.not_before[pages.index(crawl.id(1))]) if len(visits) > 1 else 0
            crawl.visit(1, max(T0 + DAY * day + 1, earliest), Outcome.GONE)
    assert removed is not None
    assert [(why, pages.tolist()) for why, pages in removed[1]] == [(RemovalReason.GONE, [crawl.id(1)])]
    assert 4 <= len(visits) <= 6
    assert removed[0] >= 2 + 105
    assert not crawl.is_known(1)
    crawl.ledger.audit()


def gone_pages_due(crawl: Crawl, page: int) -> tuple[int, float]:
    """When a gone page is due, and its interval."""
    planned = crawl.preview()
    assert of_page(crawl, planned, page, "decided_by") == "GONE"
    return int(of_page(crawl, planned, page, "due")), float(of_page(crawl, planned, page, "intervals"))


@pytest.mark.thorough
@given(st.integers(1, 40), st.lists(st.integers(1, 40 * DAY), min_size=1, max_size=12))
@settings(max_examples=thorough(30, 1000))
def test_a_visit_before_a_gone_page_is_due_does_not_lengthen_its_interval(page: int, steps: list[int]) -> None:
    crawl = Crawl().read([0, page], T0)
    second = T0 + DAY
    crawl.visit(page, second, Outcome.GONE).tick_at(second)
    due, interval = gone_pages_due(crawl, page)
    assert 0.75 * 15 * DAY <= due - second == round(interval) <= 1.25 * 15 * DAY
    for step in steps:
        second += step
        crawl.visit(page, second, Outcome.GONE)
        if crawl.tick(second).removed:
            return
        was_due, before = due, interval
        due, interval = gone_pages_due(crawl, page)
        if second < was_due:
            assert (due, interval) == (was_due, before)
        else:
            assert second < due <= second + interval + 1
            assert before <= interval <= 1.25 * 60 * DAY


def test_a_gone_page_that_is_visited_every_day_is_due_within_two_months_and_goes_after_105_days() -> None:
    crawl = Crawl().read(range(3), T0)
    for day in range(1, 106):
        crawl.visit(1, T0 + DAY * day, Outcome.GONE)
        assert not crawl.tick(T0 + DAY * day + 60).removed
        due, interval = gone_pages_due(crawl, 1)
        assert T0 + DAY * day < due <= T0 + DAY * day + 1.25 * 60 * DAY
        assert interval <= 1.25 * (15 if day <= 0.75 * 15 else 30 if day <= 0.75 * 45 else 60) * DAY
    crawl.visit(1, T0 + DAY * 106, Outcome.GONE)
    assert crawl.tick(T0 + DAY * 106 + 60).removed


def test_the_longest_interval_of_gone_pages_is_the_last_one_before_they_are_dropped() -> None:
    for visits, most_days in ((1, 15), (2, 15), (3, 30), (5, 120)):
        crawl = Crawl(with_refresh(gone_visits=visits)).read(range(3), T0)
        for year in range(1, 4):
            crawl.visit(1, T0 + 365 * year * DAY, Outcome.GONE)
        _, interval = gone_pages_due(crawl, 1)
        assert 0.75 * most_days * DAY <= interval <= 1.25 * most_days * DAY


def test_a_page_that_fails_every_hour_does_not_wait_much_longer_than_it_has_failed() -> None:
    crawl = Crawl().read(range(3), T0)
    for hour in range(1, 40):
        crawl.visit(1, T0 + 3600 * hour, Outcome.FAILED)
        wait = of_page(crawl, crawl.preview(), 1, "retry_seconds")
        assert wait <= 1.25 * max(6, 3 * hour) * 3600


def test_a_page_that_was_not_seen_for_long_does_not_go_at_once() -> None:
    crawl = Crawl().read(range(3), T0)
    for hour in range(8):
        crawl.visit(1, T0 + 400 * DAY + 3600 * hour, Outcome.GONE)
    assert not crawl.tick(T0 + 401 * DAY).removed
    crawl.visit(1, T0 + 506 * DAY, Outcome.GONE)
    assert crawl.tick(T0 + 507 * DAY).removed


def test_a_tick_reads_no_pages_but_those_that_were_found_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are known: gone ones are visited daily for months before they are dropped."""
    crawl = Crawl().read(range(30), T0)
    crawl.tick(T0 + 60)
    removal = crawl.ledger._removal
    dropped: list[list[int]] = []
    monkeypatch.setattr(removal._reader, "live", None)
    monkeypatch.setattr(removal, "drop", lambda pages, reason: dropped.append(pages.tolist()))
    for day in range(1, 107):
        crawl.visit(1, T0 + DAY * day, Outcome.GONE)
        removal.drop_gone()
    assert dropped[-1] == [crawl.id(1)] and not any(dropped[:-1])


@pytest.mark.parametrize("since_the_tick", [0, 1, 2])
def test_a_restored_ledger_drops_the_gone_pages_that_the_first_one_does(since_the_tick: int) -> None:
    crawl = Crawl().read(range(30), T0)
    for day in (1, 100, 200, 300):
        crawl.tick(T0 + DAY * day - 60)
        other = crawl.restored() if since_the_tick == 0 else crawl
        for number, page in enumerate((7, 3, 5), 1):
            for one in {id(crawl): crawl, id(other): other}.values():
                one.visit(page, T0 + DAY * day + number, Outcome.GONE)
            if since_the_tick == number:
                other = crawl.restored()
        removed = [one.tick(T0 + DAY * day + 60).removed for one in (crawl, other)]
        assert [len(pages) for _, pages in removed[0]] == [len(pages) for _, pages in removed[1]]
        assert other.bytes() == crawl.bytes()
    assert removed[0]


def test_a_page_that_came_back_is_not_removed() -> None:
    crawl = Crawl().read(range(3), T0)
    for day in (1, 100, 200):
        crawl.visit(1, T0 + DAY * day, Outcome.GONE)
    crawl.visit(1, T0 + 250 * DAY)
    crawl.visit(1, T0 + 300 * DAY, Outcome.GONE)
    assert not crawl.tick(T0 + 301 * DAY).removed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_requested_pages_come_first_once_and_again_after_a_time_out_only(strategy: str) -> None:
    crawl = grown(with_refresh(strategy=strategy, bandwidth_per_day=1e-3))
    requested = [0, 1, 7, 8, 49]
    crawl.publish(*(Policy(url=url_of(page), fetch_now=True) for page in requested))
    crawl.publish(Policy(url=url_of(49), refresh_forbidden=True))
    days = defaultdict(list)
    for day in range(10, 18):
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        for page, why in ordered(planned).items():
            assert why == "REQUESTED"
            days[page].append(day)
            if page == crawl.id(0):
                crawl.visit(0, T0 + DAY * day + 50)
    assert days.keys() == ids_of(crawl, [0, 1, 7, 8])
    assert days.pop(crawl.id(0)) == [10]
    assert all(of_one == [10, 12, 14, 16] for of_one in days.values())


def test_requested_pages_count_against_later_plans() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=4.0, strategy="uniform")).read(range(50), T0 - 900 * DAY)
    crawl.tick(T0)
    crawl.publish(Policy(host="host1.example", fetch_now=True))
    crawler = Crawler(crawl, np.random.default_rng(6), answers=1.0, fails=0.0)
    counts = [len(crawler.cycle(number).orders.rows) for number in range(1, 31)]
    assert counts[0] >= 12
    assert counts[1:3] == [0, 0]
    assert abs(sum(counts) - 4 * 30) <= 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_forbidden_pages_are_never_ordered(strategy: str) -> None:
    crawl = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=500.0, shortest_interval_seconds=1.0))
    crawl.see(range(60)).read(range(40), T0 - 30 * DAY)
    crawl.apply(crawl.writer().sighting(99))  # no URL
    crawl.publish(
        Policy(host="host1.example", refresh_forbidden=True),
        Policy(url_prefix="https://host2.example/page/1", importance_factor=0.0),
        Policy(url=url_of(3), refresh_forbidden=True, importance_factor=5.0),
    )
    crawler = Crawler(crawl, np.random.default_rng(7), fails=0.2)
    for number in range(10):
        planned = crawler.cycle(number)
        assert of_page(crawl, planned, 1, "decided_by") == "FORBIDDEN"
        assert of_page(crawl, planned, 1, "due") == -1
    never = ids_of(crawl, [p for p in range(60) if p % 4 == 1 or p == 3 or (p % 4 == 2 and str(p).startswith("1"))])
    requested = {page for _, page, _ in crawler.orders}
    assert not requested & (never | {99})
    assert len(requested) > 30


def test_announced_pages_are_due_sooner() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=20.0)).read(range(30), T0)
    crawl.apply(crawl.writer().announcement(crawl.id(5), modified_ms=1000 * (T0 + 100)))
    crawl.tick(T0 + 3600)
    planned = crawl.plan()
    assert of_page(crawl, planned, 5, "due") < min(of_page(crawl, planned, page, "due") for page in (4, 6, 7))
    assert crawl.id(5) in ordered(planned)


def test_an_announcement_of_a_page_that_redirects_is_answered_once() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1.0)).read(range(30), T0)
    crawl.apply(crawl.writer().announcement(crawl.id(5), modified_ms=1000 * (T0 + 100)))
    crawl.visit(5, T0 + 200, Outcome.REDIRECTED, links=(6,))
    crawl.tick(T0 + 3600)
    assert of_page(crawl, crawl.plan(), 5, "announced") == 0


@pytest.mark.parametrize("by", ["cash", "importance"])
def test_discovery_goes_by_cash_or_importance(by: str) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=8.0, discovery_share=1.0, discovery_by=by)).see(range(200))
    for second in range(20):
        crawl.visit(second, T0 + second, links=tuple(range(100, 110 + second)))
    crawl.tick(T0 + DAY)
    planned = crawl.plan()
    survey = planned.survey
    waiting = crawl.ledger.waiting_cash(survey.pages)
    worth = waiting if by == "cash" else survey.importance
    unread = np.flatnonzero(survey.decided_by == DECIDED_BY.index("DISCOVERY"))
    best = sorted(unread.tolist(), key=lambda row: (-worth[row], int(survey.pages[row])))[:8]
    assert planned.orders.rows.tolist() == sorted(best, key=lambda row: (-worth[row], row))
    assert set(ordered(planned).values()) == {"DISCOVERY"}
    assert (survey.importance[unread] * 1e9).round().tolist() != (waiting[unread]).tolist()


def test_spare_bandwidth_of_discovery_goes_to_refreshing() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=20.0, discovery_share=0.9, strategy="uniform"))
    crawl.see(range(50, 53)).read(range(50), T0 - 10 * DAY)
    log = crawl.writer()
    for page in range(1000, 1100):
        log.sighting(page)  # without a URL
    crawl.apply(log)
    crawl.publish(Policy(url=url_of(51), refresh_forbidden=True))
    crawl.tick(T0)
    planned = crawl.plan()
    assert planned.schedule.discovery_per_day == 2.0
    assert Counter(ordered(planned).values()) == {"DISCOVERY": 2, "REFRESH": 18}
    crawl.tick(T0 + DAY)
    assert crawl.plan().schedule.discovery_per_day == 0.0  # both are on their way


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pins_are_honoured_exactly(strategy: str) -> None:
    """Fetched at their time, a pinned page is fetched every so many seconds, however much else is overdue."""
    config = with_refresh(strategy=strategy, bandwidth_per_day=12.0, discovery_share=0.0, longest_interval_days=30.0)
    crawl = Crawl(config).read(range(300), T0 - 60 * DAY).visit(1, T0).visit(2, T0 + 7)
    every = {1: 3 * DAY + 1234, 2: 9 * DAY - 77}
    crawl.publish(*(Policy(url=url_of(page), refresh_interval_seconds=float(pin)) for page, pin in every.items()))
    fetched = {1: [T0], 2: [T0 + 7]}
    pages = {crawl.id(page): page for page in range(300)}
    for day in range(1, 60):
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        times, log = planned.orders.not_before.tolist(), crawl.writer()
        for position, page in enumerate(planned.survey.pages[planned.orders.rows].tolist()):
            crawl.add_visit(log, pages[page], times[position])
            if pages[page] in fetched:
                fetched[pages[page]].append(times[position])
        crawl.apply(log)
        assert of_page(crawl, planned, 1, "intervals") == pytest.approx(every[1])
    for page, pin in every.items():
        assert set(np.diff(fetched[page]).tolist()) == {pin}
        assert len(fetched[page]) >= 6


def test_greedy_keeps_the_shortest_interval() -> None:
    config = with_refresh(
        strategy="greedy", bandwidth_per_day=50.0, cycle_hours=6.0, shortest_interval_seconds=6 * 3600.0
    )
    crawl = Crawl(config)
    crawl.read(range(10), T0)
    crawl.publish(Policy(url=url_of(3), shortest_interval_seconds=10.0 * DAY))
    crawl.tick(T0 + 60)
    planned = crawl.plan()
    assert ordered(planned).keys() == ids_of(crawl, [page for page in range(10) if page != 3])
    times = planned.orders.not_before.tolist()
    assert min(times) == T0 + 6 * 3600 and max(times) < T0 + 6 * 3600 + 60, "in the last minute of the cycle"


def test_pages_read_at_an_unknown_time_take_turns() -> None:
    crawl = Crawl(with_refresh(strategy="uniform", bandwidth_per_day=10.0, discovery_share=0.0))
    log = crawl.writer()
    urls = list(map(url_of, range(100)))
    for page, url in zip(hash_texts(urls).tolist(), urls, strict=True):
        log.visit(page, [], url=url.encode())
    crawl.apply(log)
    counts: Counter[int] = Counter()
    for day in range(40):
        crawl.tick(T0 + DAY * day)
        log = crawl.writer()
        for page in ordered(crawl.plan()):
            counts[page] += 1
            log.visit(page, [])
        crawl.apply(log)
    assert 250 <= sum(counts.values()) <= 401
    assert len(counts) >= 95
    assert max(counts.values()) <= 5


# -- 6. limits ---------------------------------------------------------------------------------------------------------


def waiting_of(crawl: Crawl) -> dict[int, int]:
    estimates = crawl.ledger.estimate_all()
    return dict(zip(estimates.pages.tolist(), estimates.waiting.tolist(), strict=True))


def unread_of(crawl: Crawl) -> set[int]:
    ids, slots = crawl.ledger._reader.live()
    return set(ids[(crawl.ledger._room.table.pages["class_"][slots] & 1) == 0].tolist())


@pytest.mark.parametrize(("most", "per_host"), [(100, None), (None, 9), (100, 9), (64, 20), (1, None)])
def test_the_poorest_unread_pages_go_at_a_tick(most: int | None, per_host: int | None) -> None:
    crawl = Crawl(with_refresh(max_pages=most, max_unread_per_host=per_host)).see(range(200))
    for page in range(30):
        crawl.visit(page, T0 + page, links=tuple(range(30 + page, 90)))
    log = crawl.writer()
    for page in range(5000, 5020):
        log.sighting(page)  # of a host that is not known
    crawl.apply(log)
    before, unread, cash = waiting_of(crawl), unread_of(crawl), crawl.ledger.balance()
    applied = crawl.tick(T0 + DAY)
    after = crawl.ledger.audit()
    assert after.minted == cash.minted
    gone = {page for why, pages in applied.removed for page in pages.tolist() if why == RemovalReason.LIMIT}
    left = unread_of(crawl)
    assert gone == unread - left
    assert len(gone) == crawl.ledger.evicted > 0
    if most is not None:
        assert crawl.ledger.pages <= max(most, 30)
        assert crawl.ledger.pages >= min(most, 30) - most // 64 or per_host is not None
    hosts = Counter(host_of(crawl, page) for page in left if crawl.ledger.url(page))
    assert per_host is None or max(hosts.values(), default=0) <= per_host
    if per_host is None:
        assert max((before[page], -page) for page in gone) <= min(((before[p], -p) for p in left), default=(1 << 62, 0))
    elif most is None:
        names = {crawl.id(page): url_of(page).split("/")[2] for page in range(200)}
        for host in hosts:
            lost = [(before[page], -page) for page in gone if names[page] == host]
            kept = [(before[page], -page) for page in left if names.get(page) == host]
            assert max(lost) < min(kept)
            assert len(kept) == per_host
        assert set(range(5000, 5020)) <= left


def test_a_link_farm_does_not_grow_the_table_nor_the_urls_for_ever() -> None:
    crawl = Crawl(with_refresh(max_pages=300, max_unread_per_host=50), name=lambda page: url_of(page, hosts=1))
    crawl.read(range(20), T0)
    sizes, ends = [], []
    for day in range(40):
        crawl.see(range(1000 + 200 * day, 1200 + 200 * day))
        crawl.tick(T0 + DAY * (day + 1))
        book = crawl.ledger._room.book
        sizes.append(crawl.ledger.pages)
        ends.append(int(book.counts[0].url_end))
        assert len(book.urls) <= 40_000
    assert max(sizes) <= 100
    assert max(ends) <= 15_000
    assert crawl.ledger._room.table.hot.shape[0] < 1000
    assert crawl.ledger.evicted > 7000
    crawl.ledger.audit()
    live = crawl.ledger._reader.live()[0]
    starts, text = crawl.ledger.urls(live)
    for page, begin, end in zip(live.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        assert begin == end or page_id(text[begin:end].tobytes()) == page


def test_an_evicted_page_may_be_learnt_again() -> None:
    crawl = Crawl(with_refresh(max_pages=1)).see(range(10))
    crawl.tick(T0)
    assert crawl.ledger.pages <= 1
    crawl.visit(5, T0 + 5)
    assert crawl.is_known(5)
    crawl.tick(T0 + DAY)
    assert crawl.is_known(5)


# -- 7. policies ---------------------------------------------------------------------------------------------------


def test_the_last_word_wins_and_expires_at_a_tick() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=50.0)).read(range(8), T0)
    crawl.tick(T0 + DAY)
    crawl.publish(
        Policy(url=url_of(1), changes_per_day=1.0),
        Policy(host="host1.example", changes_per_day=2.0, expires_at_ms=1000 * (T0 + 3 * DAY)),
    )
    assert of_page(crawl, crawl.plan(), 1, "changes_per_day") == 2.0
    crawl.tick(T0 + 3 * DAY - 1)
    assert of_page(crawl, crawl.plan(), 1, "changes_per_day") == 2.0
    crawl.tick(T0 + 3 * DAY)
    assert of_page(crawl, crawl.plan(), 1, "changes_per_day") == 1.0
    crawl.publish(Policy(url=url_of(1)))
    assert of_page(crawl, crawl.plan(), 1, "changes_per_day") != 1.0


BAD = [
    Policy(url=url_of(2), refresh_interval_seconds=0.5),
    Policy(url="ftp://nowhere/", fetch_now=True),
    Policy(url=url_of(2), changes_per_day=math.nan),
    Policy(url=url_of(2), refresh_interval_seconds=600.0),  # more than there is
    Policy(url=url_of(6), fetch_now=True),  # was forgotten
    Policy(url="https://host1.example/page/1x", changes_per_day=1.0),  # under a forgotten prefix
    Policy(category=7, changes_per_day=1.0),
    Policy(class_weights=(1,)),
    Policy(),
    Policy(rules_version=99, url=url_of(2), drop=True),
    Policy(url=5, fetch_now=True),  # type: ignore[arg-type]
    Policy(url=url_of(2), changes_per_day="often"),  # type: ignore[arg-type]
]


def test_what_cannot_be_is_refused_with_a_reason_and_the_mark_moves_on() -> None:
    crawl = everything(grown())
    before = [chunk for chunk in crawl.ledger.snapshot() if not chunk.name.startswith("manifest")]
    in_force = crawl.ledger.policies.to_json()
    for bad in BAD:
        mark = crawl.ledger.mark("policies")
        applied = crawl.publish(bad, bad)
        assert [policy is bad for policy, _ in applied.refused] == [True, True]
        assert all(reason and "\n" not in reason for _, reason in applied.refused)
        assert crawl.ledger.mark("policies").offset == mark.offset + 1
    assert [chunk for chunk in crawl.ledger.snapshot() if not chunk.name.startswith("manifest")] == before
    assert crawl.ledger.policies.to_json() == in_force


def test_a_good_word_among_bad_ones_is_taken() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=10.0)).read(range(8), T0)
    applied = crawl.publish(BAD[0], Policy(url=url_of(1), changes_per_day=5.0), BAD[1])
    assert len(applied.refused) == 2
    crawl.tick(T0 + DAY)
    assert of_page(crawl, crawl.plan(), 1, "changes_per_day") == 5.0


def test_the_whole_crawl_is_steered_while_it_runs() -> None:
    crawl = grown(with_refresh(bandwidth_per_day=20.0))
    crawl.publish(Policy(fetches_per_second=2.0 / DAY, refresh_policy="uniform"), Policy(discovery_share=0.5))
    crawl.publish(Policy(host_fetches_per_day=1.0), Policy(damping=0.5), Policy(class_weights=(64, 1)))
    budget = crawl.ledger.budget()
    assert (budget.strategy, budget.discovery_share, budget.host_most) == ("uniform", 0.5, 1.0)
    assert budget.per_day == pytest.approx(2.0)
    book = crawl.ledger._room.book
    assert book.rules[0].damping == 0.5
    assert book.class_weights.tolist() == [64, 1]
    planned = crawl.plan()
    assert len(planned.orders.rows) <= 4
    crawl.visit(1, T0 + 11 * DAY, links=(2, 3))
    crawl.ledger.audit()
    assert crawl.restored().ledger.budget() == budget


def test_a_policy_entry_that_comes_again_changes_nothing() -> None:
    crawl = everything(grown())
    entry = PolicyEntry(
        "policies", LogPosition(1, 0), LogPosition(2, 0), policies=(Policy(host="host3.example", forget=True),)
    )
    crawl.ledger.apply(entry)
    before = digest_of(crawl.ledger)
    for _ in range(2):
        assert crawl.ledger.apply(entry).removed == ()
    assert digest_of(crawl.ledger) == before


FORGETS = {
    "page": Policy(url=url_of(5), forget=True),
    "host": Policy(host="host1.example", forget=True),
    "prefix": Policy(url_prefix="https://host1.example/page/5", forget=True),
}


def tries_to_learn(crawl: Crawl, page: int, second: int) -> None:
    """By every way that there is."""
    name, own = crawl.name(page).encode(), crawl.id(page)
    log = crawl.writer().sighting(own, url=name).announcement(own, url=name).visit(own, [], url=name, time_ms=1)
    log.visit(crawl.id(2), [own, crawl.id(3)], url=crawl.name(2).encode(), time_ms=1000 * second)
    crawl.apply(log)


@pytest.mark.parametrize("kind", FORGETS)
def test_of_what_was_forgotten_nothing_is_left_and_nothing_comes_back(kind: str) -> None:
    crawl = grown(pages=80)
    crawl.publish(
        Policy(url=url_of(5), changes_per_day=3.0), Policy(url=url_of(53), refresh_interval_seconds=9.0 * DAY)
    )
    crawl.plan()
    applied = crawl.publish(FORGETS[kind])
    forgotten = {"page": [5], "host": [1, 5, 9, 53, 57], "prefix": [5, 53, 57]}[kind]
    removed = {page for why, pages in applied.removed for page in pages.tolist() if why == RemovalReason.FORGOTTEN}
    assert ids_of(crawl, forgotten) <= removed
    new = {"page": 5, "host": 10_001, "prefix": 5_333}[kind]
    for day in (11, 12, 13):
        for page in (*forgotten, new):
            assert not crawl.is_known(page)
            tries_to_learn(crawl, page, T0 + day * DAY + page)
            assert not crawl.is_known(page)
        everything_kept = b"".join(crawl.bytes()).replace(b'"url_prefix":"https://host1.example/page/5"', b"")
        for page in (*forgotten, new):
            name = url_of(page).encode()
            assert bytes([len(name), 0]) + name not in everything_kept
            assert name + b'"' not in everything_kept
        crawl.tick(T0 + DAY * day)
        assert not set(ordered(crawl.plan())) & ids_of(crawl, [*forgotten, new])
        crawl = crawl.restored()
    assert crawl.is_known(2)


def test_forgetting_ends_when_it_expires() -> None:
    ends = 1000 * (T0 + 12 * DAY) + 1
    for kind, policy in FORGETS.items():
        crawl = grown(pages=80)
        crawl.publish(replace(policy, expires_at_ms=ends))
        for second in (T0 + 11 * DAY, T0 + 12 * DAY):
            crawl.tick(second)
            tries_to_learn(crawl, 5, second + 1)
            assert not crawl.is_known(5), (kind, second)
        crawl.tick(T0 + 12 * DAY + 1)
        tries_to_learn(crawl, 5, T0 + 13 * DAY)
        assert crawl.is_known(5), kind
        assert crawl.ledger.url(crawl.id(5)) == url_of(5).encode()
        assert len(crawl.ledger._room.book.forgotten) == 0


def test_a_page_known_by_links_alone_goes_when_its_url_turns_out_to_be_forgotten() -> None:
    crawl = Crawl().read(range(4), T0)
    crawl.publish(Policy(host="host1.example", forget=True))
    crawl.visit(2, T0 + 10, links=(101, 102))
    assert crawl.is_known(101)
    minted = crawl.ledger.minted
    applied = crawl.apply(crawl.writer().sighting(crawl.id(101), url=url_of(101).encode()))
    assert [(why, pages.tolist()) for why, pages in applied.removed] == [(RemovalReason.FORGOTTEN, [crawl.id(101)])]
    assert not crawl.is_known(101)
    assert crawl.ledger.audit().minted == minted


def test_such_a_page_goes_at_the_same_row_however_the_log_is_cut() -> None:
    crawl, name = Crawl(), url_of(101).encode()
    forget = (Policy(host="host1.example", forget=True),)
    log = crawl.writer().visit(crawl.id(2), [crawl.id(101), crawl.id(102)], time_ms=1000)
    log.sighting(crawl.id(101), url=name).visit(crawl.id(101), [crawl.id(3)], url=name, time_ms=2000)
    ledger = assert_same_bytes(
        Ledger, [PolicyEntry("policies", START, LogPosition(1, 0), policies=forget), log.entry()]
    )
    assert (ledger.minted, ledger.pages) == (3 << 24, 2)


def test_forgetting_by_page_id_leaves_no_policy_with_the_url() -> None:
    crawl = Crawl().read(range(8), T0)
    crawl.publish(Policy(url=url_of(5), changes_per_day=3.0), Policy(url=url_of(6), changes_per_day=3.0))
    position = crawl.ledger.mark("policies")
    crawl.ledger.apply(PolicyEntry("policies", position, LogPosition(position.offset + 1, 0), forget=(crawl.id(5),)))
    everything_kept = b"".join(crawl.bytes())
    assert url_of(5).encode() not in everything_kept
    assert everything_kept.count(url_of(6).encode()) == 2


# -- 8. split independence ---------------------------------------------------------------------------------------------


def rows_of(random: np.random.Generator, rows: int, first: LogPosition) -> ItemWriter:
    """Rows in which URLs of pages become known before and after their links are seen."""
    log = ItemWriter(first)
    for row in range(rows):
        page, second = int(random.integers(0, 90)), T0 + 600 * (first.offset + row)
        url = url_of(page).encode() if random.random() < 0.4 else b""
        kind = random.random()
        if kind < 0.2:
            log.sighting(page_id(url_of(page)), url=url)
        elif kind < 0.3:
            log.announcement(page_id(url_of(page)), url=url, modified_ms=1000 * (second - 50))
        else:
            links = [page_id(url_of(int(other))) for other in random.integers(0, 90, 3)]
            outcome = Outcome(int(random.choice([1, 1, 1, 1, 2, 4, 5, 6])))
            time_ms = 1000 * int(second - random.choice([0, 0, 0, 5000]))
            digest, modified_ms = int(random.integers(0, 3)), 1000 * int(random.choice([0, second - 99]))
            known = links if outcome in (Outcome.FETCHED, Outcome.REDIRECTED) else []
            log.visit(page_id(url_of(page)), known, outcome, time_ms, url=url, digest=digest, modified_ms=modified_ms)
    return log


@pytest.mark.slow_but_first
@pytest.mark.parametrize("seed", range(6))
def test_a_log_cut_into_entries_anywhere_gives_the_same_bytes(seed: int) -> None:
    entries: list[LogEntry] = []
    for number in range(5):
        start = LogPosition(60 * number, 0)
        entries.append(rows_of(np.random.default_rng([seed, number]), 60, start).entry("crawl", start))
        entries.append(TickEntry(T0 + 36_000 * (number + 1)))
        policies = (
            FORGETS["host"] if number == 1 else Policy(url_prefix="https://host2.example/page/3", forget=True),
            Policy(url=url_of(4 * number), fetch_now=True),
            Policy(url=url_of(4 * number + 3), forget=True),
        )
        entries.append(PolicyEntry("policies", LogPosition(number, 0), LogPosition(number + 1, 0), policies=policies))

    def plan(ledger: Ledger, entry: LogEntry) -> object:
        return ordered(ledger.plan(20, 0.1)) if isinstance(entry, TickEntry) else None

    config = with_refresh(bandwidth_per_day=30.0, max_pages=85, max_unread_per_host=20)
    assert_same_bytes(lambda: Ledger(config), entries, plan, seed).audit()


# -- 9. shards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_shards_divide_the_bandwidth_as_their_shares_are(shards: int) -> None:
    config = with_refresh(bandwidth_per_day=100.0)
    crawls = [Crawl(config, shard, shards, site_of_its_own) for shard in range(shards)]

    def tick(second: int) -> None:
        for crawl in crawls:
            crawl.tick(second)
        for crawl in crawls:
            for to, message in (sealed for applied in crawl.applied for sealed in applied.sealed):
                crawls[to].ledger.apply(message)
            crawl.applied.clear()

    for crawl in crawls:
        log = crawl.writer()
        for page in range(400):
            own = crawl.id(page)
            if ShardRanges.equal(shards).of(np.array([own], np.uint64))[0] == crawl.shard:
                links = [crawl.id(other) for other in (page * 7 % 400, page * 3 % 400)]
                url = site_of_its_own(page).encode()
                log.visit(own, links, time_ms=1000 * (T0 + page), url=url, digest=1)
        crawl.apply(log)
    assert sum(crawl.ledger.budget().per_day for crawl in crawls) == pytest.approx(100.0, rel=0.3)
    for day in range(1, 5):
        tick(T0 + DAY * day)
        for crawl in crawls:
            crawl.plan()
        assert sum(crawl.ledger.budget().per_day for crawl in crawls) == pytest.approx(100.0, rel=0.1)
    tick(T0 + DAY * 5)  # all gossip has arrived
    shares = np.array([crawl.ledger.shares for crawl in crawls])
    budgets = np.array([crawl.ledger.budget().per_day for crawl in crawls])
    assert budgets.sum() == pytest.approx(100.0, rel=1e-12)
    assert budgets == pytest.approx(100.0 * shares / shares.sum(), rel=1e-12)
    got = [sum(crawl.plan().schedule.allocation.frequencies) for crawl in crawls]
    assert sum(got) <= 100.0 * (1 + 1e-9)
    for crawl in crawls:
        assert crawl.restored().ledger.budget() == crawl.ledger.budget()


# -- adversaries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "per_day"), crossed(list(STRATEGIES), [None, 1e-3, 1e12]))
def test_crawls_of_no_page_and_of_one_are_planned(strategy: str, per_day: float | None) -> None:
    crawl = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=per_day, host_fetches_per_day=1e12))
    for second in (None, 0, 1, T0, (1 << 40) - 1):
        if second is not None:
            crawl.tick(second)
        assert len(crawl.ledger.preview().survey) == len(crawl.plan().orders.rows) == 0
    crawl.publish(Policy(host="host1.example", refresh_forbidden=True))
    one = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=per_day)).visit(1, T0)
    for second in (None, T0, T0 + DAY, 1 << 32, (1 << 40) - 1):
        if second is not None:
            one.tick(second)
        one.plan()
        assert len(one.ledger.preview().survey) == 1
        one = one.restored()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_pages_may_be_forbidden(strategy: str) -> None:
    crawl = grown(with_refresh(strategy=strategy, bandwidth_per_day=10.0))
    crawl.publish(Policy(category=0, refresh_forbidden=True))
    planned = crawl.plan()
    assert len(planned.orders.rows) == 0
    assert crawl.ledger.shares == 0.0
    assert (planned.schedule.due == -1).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_due_times_are_never_beyond_64_bits(strategy: str) -> None:
    crawl = grown(
        with_refresh(strategy=strategy, bandwidth_per_day=1e-3, discovery_share=1.0, longest_interval_days=36525.0)
    )
    with np.errstate(all="raise", under="ignore", divide="ignore"):
        planned = crawl.plan()
    assert ((planned.schedule.due == -1) | (planned.schedule.due >= 0)).all()


def test_a_visit_of_another_century_does_not_move_the_clock() -> None:
    crawl = grown()
    crawl.visit(1, 1 << 40)
    crawl.tick(T0 + 11 * DAY)
    planned = crawl.plan()
    assert planned.survey.second <= T0 + 12 * DAY
    assert crawl.ledger.planned_second <= T0 + 12 * DAY


def test_a_schedule_too_long_to_be_stored_is_published_once() -> None:
    config = with_refresh(
        bandwidth_per_day=1e-3, discovery_share=0.0, strategy="uniform", longest_interval_days=36525.0
    )
    crawl = Crawl(config).read(range(200), T0)
    crawl.tick(T0 + 10 * DAY)
    assert crawl.plan().schedule.intervals.max() > 1e10
    crawl.tick(T0 + 11 * DAY)
    assert len(crawl.plan().publish) == 0


@pytest.mark.parametrize(("least", "budget"), [(5, 0), (0, 5), (0, 0)])  # or a tenth of the pages: 5
def test_only_schedules_that_moved_are_published_the_most_moved_first(
    least: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "_LEAST_BY_POLICY", least)
    crawl = Crawl(with_refresh(bandwidth_per_day=20.0, discovery_share=0.0)).read(range(50), T0)
    crawl.tick(T0 + DAY)
    first = crawl.plan()
    assert len(first.publish) == len(first.survey)
    crawl.tick(T0 + DAY + 60)
    assert len(crawl.plan().publish) == 0
    crawl.publish(Policy(host="host1.example", importance_factor=50.0), Policy(url=url_of(2), importance_factor=1e5))
    before = dict(zip(first.survey.pages.tolist(), first.schedule.intervals.tolist(), strict=True))
    few = crawl.ledger.plan(budget, 0.1)
    pages = few.survey.pages[few.publish].tolist()
    assert len(pages) == 5
    moves = {
        page: abs(math.log(now / before[page]))
        for page, now in zip(few.survey.pages.tolist(), few.schedule.intervals.tolist(), strict=True)
    }
    assert min(moves[page] for page in pages) >= sorted(moves.values())[-6] - 1e-3
    crawl.visit(7, T0 + 2 * DAY)
    crawl.tick(T0 + 2 * DAY)
    last = crawl.ledger.plan(0, 0.1)
    assert last.survey.pages[last.publish].tolist() == [crawl.id(7)]


# -- times that are not yet --------------------------------------------------------------------------------------------

IN_2099 = 4_070_908_800


def test_a_page_with_a_time_of_2099_is_fetched_again_and_heals_with_its_next_visit() -> None:
    """Logs that were written before such events were rejected have them."""
    config = with_refresh(bandwidth_per_day=20.0, discovery_share=0.0)
    crawl, honest = (Crawl(config).read(range(10), T0).tick_at(T0 + 60) for _ in range(2))
    crawl.visit(3, IN_2099)
    for day in range(1, 6):
        crawl.tick(T0 + day * DAY)
        planned = crawl.plan()
        row = planned.survey.pages.tolist().index(crawl.id(3))
        assert planned.schedule.due[row] < T0 + 400 * DAY
    second = T0 + 6 * DAY
    for one in (crawl, honest):
        applied = one.visit(3, second, digest=5).visit(3, second + DAY, digest=6).tick_at(second + DAY).applied
        assert [entry.late for entry in applied[-3:]] == [0, 0, 0]
    assert crawl.ledger._room.table.pages["last_visit_ms"].max() == 1000 * (second + DAY)
    assert int(crawl.row(3)["checked"]) == second + DAY
    assert crawl.restored().bytes() == crawl.bytes()


def test_before_the_first_tick_no_time_is_too_late() -> None:
    crawl = Crawl().visit(1, T0 + 900 * DAY).visit(1, T0)
    assert crawl.applied[-1].late == 1
