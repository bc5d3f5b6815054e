"""Publications of a ledger as packed columns: estimates, schedules, orders and tombstones, with URLs and times."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np

from opicflow.pipelines.ledger import Applied, Balance, Estimates, Ledger, Outcome, Plan, Settled
from opicflow.pipelines.ledger.plan.survey import DISCOVERY
from opicflow.pipelines.stages.outputs import CHANGES
from opicflow.pipelines.stages.publication_pace import DueChange
from opicflow.pipelines.stages.route import copy_urls
from opicflow.schemas.arrays import Array, Bytes, Ids, Ints
from opicflow.schemas.columns import pack, unpack

KIND = "importance"
ROWS_PER_PART = 1 << 13
_DAY = 86400.0
MOST_PAYERS = 5
"""The number of payers of a page that are named, those that pay most."""
_MOST_PAGES_WITH_PAYERS = 1_000_000
_SHARE_AT_ONCE, _PAGES_AT_ONCE = 16, 1 << 22
"""One in so many pages is read from files at once, and no more than so many."""
_LEFT_OUT = ("known",)
FLOWING = (Outcome.FETCHED, Outcome.REDIRECTED, Outcome.ALIASED)
"""Last outcomes of pages that pass on their cash at their next visit."""


class DiscoveryFigures(TypedDict):
    """What discovery has learnt, and how many of its orders explore."""

    orders_exploring: int
    exploring_share: float
    siblings_weight: float
    exploring_bonus: float
    credit_explored: float | None
    credit_others: float | None


class PlanFigures(TypedDict, total=False):
    """A plan in numbers, as summaries have it. Without a plan there are none; `discovery` is that of learnt ones.

    `traps` are shapes, and `twins` parameters, whose pages get few orders; only where there are some.
    """

    policy: str
    bandwidth_per_day: float
    cycle_hours: float
    refresh_per_day: float
    discovery_per_day: float
    feasible: bool
    why: str
    pages_refreshed: int
    freshness: float
    freshness_low: float
    freshness_high: float
    freshness_observed: float | None
    obsolescence: float | None
    orders: int
    orders_refresh: int
    orders_discovery: int
    discovery: DiscoveryFigures
    traps: int
    twins: int
    pages_limited: int


def pack_estimates(
    ledger: Ledger, estimates: Estimates, certificate: float | None = None, more: Mapping[str, Array] | None = None
) -> bytes:
    """Pack estimates with the URLs of their pages, and with more columns.

    `certificate` is the bound of their error, if it is not the ledger's.
    """
    return _pack_estimates(ledger, estimates, ledger.urls(estimates.pages), certificate, more)


def _pack_estimates(
    ledger: Ledger,
    estimates: Estimates,
    urls: tuple[Ints, Bytes],
    certificate: float | None,
    more: Mapping[str, Array] | None,
) -> bytes:
    starts, text = urls
    columns: dict[str, Array] = {
        f.name: getattr(estimates, f.name) for f in dataclasses.fields(estimates) if f.name not in _LEFT_OUT
    }
    columns["measured"] = estimates.measured.view(np.uint8)
    columns["url_lengths"] = np.diff(starts)
    columns["url_bytes"] = text
    return pack(KIND, moment(ledger, certificate), {**columns, **(more or {})})


def pack_schedules(ledger: Ledger, planned: Plan, rows: Ints) -> bytes:
    """Pack the schedules of the given rows of a plan with the URLs of their pages."""
    survey, schedule, alpha = planned.survey, planned.schedule, ledger.config.refresh.alpha
    weights, changes, fetched = survey.weights(rows), survey.changes_per_day[rows], survey.fetched[rows]
    # The mean cost until the next fetch; the present cost where no fetch follows.
    with np.errstate(invalid="ignore"):
        mean = weights * (changes * schedule.intervals[rows] / _DAY) ** alpha / (alpha + 1)
    now = weights * (changes * np.maximum(survey.second - fetched, 0) / _DAY) ** alpha
    columns: dict[str, Array] = {
        "pages": survey.pages[rows],
        "due_second": schedule.due[rows],
        "interval_seconds": schedule.intervals[rows],
        "decided_by": schedule.reasons[rows],
        "changes_per_day": changes,
        "changes_error": survey.changes_error[rows],
        "known_from": survey.known_from[rows],
        "importance": survey.importance[rows],
        "staleness_cost": np.where(np.isfinite(mean), mean, now),
        "category": survey.category[rows],
        "last_visit_second": fetched,
    }
    if survey.quality is not None:
        columns["quality"] = survey.quality[rows]
    if survey.worth is not None:
        columns |= {
            "siblings": survey.worth.siblings[rows],
            "host_unread": survey.worth.unread[rows],
            "may_explore": (survey.worth.marked[rows] & (survey.decided_by[rows] == DISCOVERY)).view(np.uint8),
        }
    return _pack_rows(ledger, "refresh-schedule", columns, survey.second)


def pack_orders(ledger: Ledger, planned: Plan, some: slice = slice(None)) -> bytes:
    """Pack the orders of a plan, or some, with the URLs of their pages."""
    survey, orders = planned.survey, planned.orders
    rows = orders.rows[some]
    columns: dict[str, Array] = {
        "pages": survey.pages[rows],
        "why": orders.why[some],
        "by": orders.by[some],
        "priority": orders.priority[some],
        "due_second": planned.schedule.due[rows],
        "not_before_second": orders.not_before[some],
        "importance": survey.importance[rows],
        "waiting": ledger.waiting_cash(survey.pages[rows]),
        "category": survey.category[rows],
        "last_visit_second": survey.fetched[rows],
    }
    return _pack_rows(ledger, "crawl-orders", columns, survey.second)


def pack_tombstones(ledger: Ledger, applied: Applied) -> bytes:
    """Pack the pages that an entry removed, with reasons and URLs."""
    columns: dict[str, Array] = {
        "pages": np.concatenate([pages for _, pages in applied.removed]),
        "why": np.repeat([int(why) for why, _ in applied.removed], [len(pages) for _, pages in applied.removed]),
        "url_lengths": np.concatenate([np.diff(starts) for starts, _ in applied.removed_urls]),
        "url_bytes": np.concatenate([urls for _, urls in applied.removed_urls]),
    }
    return pack("tombstones", {"second": max(ledger.tick_second, 0)}, columns)


def pack_changes(ledger: Ledger, due: Sequence[DueChange]) -> bytes | None:
    """Pack those of the changes whose pages have subscriptions, with URLs, importance and who subscribed.

    None if no page has: a page that was removed has none.
    """
    pages = np.array([change.page for change in due], np.uint64)
    subscribers = ledger.subscribers(pages)
    rows = np.flatnonzero((subscribers.rows > 0) & ledger.has_url(pages))
    if not len(rows):
        return None
    estimates = ledger.swept_estimates(pages[rows])
    used, of_row = np.unique(subscribers.rows[rows], return_inverse=True)
    names = [subscribers.names[row].encode() for row in used.tolist()]
    columns: dict[str, Array] = {
        "pages": pages[rows],
        **{
            name: np.array([getattr(due[row], name) for row in rows.tolist()], np.int64)
            for name in ("time_ms", "digest_before", "digest", "changes")
        },
        "importance": estimates.importance,
        "score": estimates.score,
        "subscribers": of_row.reshape(-1),
        "name_lengths": np.array(list(map(len, names)), np.int64),
        "name_bytes": np.frombuffer(b"".join(names), np.uint8),
    }
    return _pack_rows(ledger, CHANGES, columns, max(ledger.tick_second, 0))


def publish_visited(ledger: Ledger, visited: Ids) -> bytes | None:
    """Return the publications of visited pages, in the order of their last visits; None if there are none."""
    latest = len(visited) - 1 - np.unique(visited[::-1], return_index=True)[1]
    published = ledger.publish(visited[np.sort(latest)])
    return pack_estimates(ledger, published) if len(published.pages) else None


def rows_in(packed: bytes) -> int:
    """Return the number of pages in packed estimates."""
    return len(unpack(packed).columns["pages"])


class PackedPlan(NamedTuple):
    """A plan, and its publications; None = there are none."""

    planned: Plan
    schedules: bytes | None
    orders: bytes | None


def publish_plan(ledger: Ledger, most: int, least_move: float) -> PackedPlan:
    """Plan the next cycle. Returns its orders, and the schedules that changed."""
    planned = ledger.plan(most, least_move)
    return PackedPlan(
        planned,
        pack_schedules(ledger, planned, planned.publish) if len(planned.publish) else None,
        pack_orders(ledger, planned) if len(planned.orders.rows) else None,
    )


def audit_values(ledger: Ledger, balance: Balance) -> dict[str, Any]:
    """Return the accounts of a ledger as the values of an `Audit` record."""
    return {
        "shard": ledger.shard,
        "shards": ledger.shards,
        "second": max(ledger.tick_second, 0),
        "clock": ledger.turns,
        "pages": ledger.pages,
        "visits": ledger.visits,
        **asdict(balance),
        "bytes": ledger.content_bytes(),
        "certificate": ledger.certificate(),
        "settled": ledger.is_settled,
    }


def idle_cash(cash_by_outcome: Mapping[Outcome, int]) -> int:
    """Return the cash of pages that do not pass it on at their next visit."""
    return sum(cash for outcome, cash in cash_by_outcome.items() if outcome not in FLOWING)


def _pack_rows(ledger: Ledger, kind: str, columns: dict[str, Array], second: int) -> bytes:
    starts, urls = _urls_of(ledger, columns["pages"])
    columns["url_lengths"] = np.diff(starts)
    columns["url_bytes"] = urls
    expires = second + int(ledger.config.refresh.order_timeout_hours * 3600)
    return pack(kind, {"second": second, "expires_second": expires, "shard": ledger.shard}, columns)


def moment(ledger: Ledger, certificate: float | None = None) -> dict[str, Any]:
    """Return the values that all records of one time share. `certificate` is that of settled ranks, if they count."""
    own, is_settled = ledger.certainty() if certificate is None else (certificate, True)
    return {
        "pages": ledger.pages_everywhere,
        "clock": ledger.turns,
        "event_time_ms": max(ledger.tick_second, 0) * 1000,
        "shard": ledger.shard,
        "cut": ledger.cut,
        "certificate": own,
        "settled": is_settled,
    }


def everything(ledger: Ledger, settled: Settled | None, rows_per_part: int = ROWS_PER_PART) -> Iterator[bytes]:
    """Yield all pages as packed estimates, the most important first; with the settled ranks if given.

    Of ledgers that remember links, also the pages that pay each page most, unless there are too many pages.
    """
    rate_sum, certificate, ranks, payers = ledger.rate_sum(), None, None, None
    if ledger.config.remember_links and ledger.pages <= _MOST_PAGES_WITH_PAYERS:
        all_pages = ledger.importance() if settled is None else (settled.pages, settled.importance)
        payers = ledger.payers(*all_pages, MOST_PAYERS)
        del all_pages
    if settled is None:
        order = ledger.ranked()
    else:
        certificate = settled.certificate
        rows = np.argsort(-settled.importance, kind="stable")  # equal ones in slot order, as those of `ranked`
        order, ranks = settled.pages[rows], settled.importance[rows]
        del rows
    known = ledger.has_url(order)  # pages without a URL are published when it is known
    if not known.all():
        order, ranks = order[known], None if ranks is None else ranks[known]
    del known
    first = 0
    for estimates, urls in _in_parts(ledger, order, rate_sum, rows_per_part):
        part = slice(first, first + rows_per_part)
        if ranks is not None:
            mean = estimates.window_importance
            if ledger.is_certified:  # pages without a window have their importance as its mean
                mean = np.where(mean == estimates.importance, ranks[part], mean)
            score = ranks[part] * ledger.pages
            estimates = replace(estimates, importance=ranks[part], score=score, window_importance=mean)
        more = {} if payers is None else _payer_columns(*payers.of(order[part]))
        yield _pack_estimates(ledger, estimates, urls, certificate, more)
        first += rows_per_part


def _in_parts(ledger: Ledger, pages: Ids, rate_sum: float, rows: int) -> Iterator[tuple[Estimates, tuple[Ints, Bytes]]]:
    """Yield the estimates and the URLs of pages, so many rows at a time; one part without rows if there are none.

    From files those of many pages are read at once, in the order of the files: pages in the order of their importance
    are all over them.
    """
    at_once = rows
    if not ledger.is_in_memory:
        at_once = max(min(len(pages) // _SHARE_AT_ONCE, _PAGES_AT_ONCE) // rows, 1) * rows
    for first in range(0, max(len(pages), 1), at_once):
        some = pages[first : first + at_once]
        if ledger.is_in_memory:
            yield ledger.estimate(some, rate_sum), ledger.urls(some)
            continue
        order, positions = _by_birth(ledger, some)
        estimates, (starts, text) = ledger.estimate(some[order], rate_sum), ledger.urls(some[order])
        for begin in range(0, max(len(some), 1), rows):
            own = positions[begin : begin + rows]
            yield rows_of(estimates, own), texts_at(starts, text, own)


def _urls_of(ledger: Ledger, pages: Ids) -> tuple[Ints, Bytes]:
    """Return the URLs of pages. From files they are read in the order of the files."""
    if ledger.is_in_memory:
        return ledger.urls(pages)
    order, positions = _by_birth(ledger, pages)
    return texts_at(*ledger.urls(pages[order]), positions)


def _by_birth(ledger: Ledger, pages: Ids) -> tuple[Ints, Ints]:
    """Return the rows of pages in the order of their births, and the position of each row there."""
    order = ledger.order_of_births(pages)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return order, positions


def texts_at(starts: Ints, text: Bytes, rows: Ints) -> tuple[Ints, Bytes]:
    """Return the texts at these rows, one after the other: where each starts, and all bytes."""
    own_starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(starts[rows + 1] - starts[rows], out=own_starts[1:])
    own_text = np.empty(int(own_starts[-1]), np.uint8)
    copy_urls(text, starts[rows], own_starts, len(rows), own_text)
    return own_starts, own_text


def _payer_columns(payers: Array, parts: Array) -> dict[str, Array]:
    """Return the pages that pay each page most, and the part of its importance from each, as columns."""
    columns: dict[str, Array] = {}
    for i in range(MOST_PAYERS):
        columns |= {f"payer_{i}": payers[:, i], f"payer_part_{i}": parts[:, i]}
    return columns


def rows_of(estimates: Estimates, rows: Ints) -> Estimates:
    """Return these rows of the estimates."""
    return Estimates(**{f.name: getattr(estimates, f.name)[rows] for f in dataclasses.fields(estimates)})
