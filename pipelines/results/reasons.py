"""Why a page is where it is: who pays it, how it was found, what its change rate rests on, why it is ordered or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from opicflow.pipelines.ledger import Ledger, Plan
from opicflow.pipelines.ledger.cash.reader import SeenChanges
from opicflow.pipelines.ledger.plan.crawl_orders import BY, WHY
from opicflow.pipelines.ledger.plan.survey import BACK_OFF, DISCOVERY, FORBIDDEN, GONE, KNOWN_FROM
from opicflow.pipelines.results.record_columns import site_of_host
from opicflow.schemas.arrays import Floats
from opicflow.schemas.dates import iso_time

MOST_STEPS = 20
"""The number of pages that are followed back to where a page was found first."""
_REASONS = {
    FORBIDDEN: "a policy forbids it, or gives it no importance",
    BACK_OFF: "it did not answer, and waits for its next try",
    GONE: "it is gone, and looked at rarely",
}


@dataclass(frozen=True)
class Payer:
    """A page, or a site, that pays a page, and the part of its importance that comes from there."""

    name: str
    part: float
    pages: int = 1


@dataclass(frozen=True)
class Reasons:
    """Everything that is known of why a page is where it is."""

    payers: list[Payer]
    """The page that pays most first; empty where links are not remembered."""
    sites: list[Payer]
    alike: float | None
    """The part of its importance that all pages receive alike; None where that is not known, or not known apart."""
    unnamed: float | None
    """The part from pages of other shards that are not among the payers: transfers do not name who pays.

    If all shards were read, it is the sum that is under way between them. None where it cannot be distinguished from
    the part that all pages receive alike.
    """
    path: list[str]
    """How it was found: each page was found first in the one before; the last one is the page itself."""
    is_path_whole: bool
    """False: it is not known how the first page of the path was found."""
    changes: SeenChanges
    rate_from: str
    rate_error: float
    order: str

    def to_json(self) -> dict[str, object]:
        """Return everything as plain values, with their names."""
        return {**asdict(self), "changes": self.changes._asdict()}


def reasons_of(
    ledger: Ledger,
    page: int,
    planned: Plan,
    importance: Floats | None,
    elsewhere: Sequence[Payer] | None = None,
) -> Reasons:
    """Return why a page of a ledger is where it is, by a plan, and by the importance of all pages in slot order.

    `importance` None: that of the ledger. `elsewhere` are the pages of all other shards that pay it
    (`payers_elsewhere`); None if these were not read.
    """
    survey = planned.survey
    (row,) = np.flatnonzero(survey.pages == np.uint64(page)).tolist()
    payers = _payers(ledger, page, survey.importance if importance is None else importance)
    if elsewhere:
        payers = sorted((*payers, *elsewhere), key=lambda payer: (-payer.part, payer.name))
    alike, unnamed = _rest(ledger, page, payers, ledger.shards == 1 or elsewhere is not None)
    finders = ledger.finders(page, MOST_STEPS)
    return Reasons(
        payers=payers,
        sites=_sites(payers),
        alike=alike,
        unnamed=unnamed,
        path=_names(ledger, [*reversed(finders), page]),
        is_path_whole=len(finders) < MOST_STEPS,
        changes=ledger.seen_changes(page),
        rate_from=KNOWN_FROM[survey.known_from[row]],
        rate_error=float(survey.changes_error[row]),
        order=_order(planned, row, ledger.config.refresh.cycle_hours) + _by_quality(planned, row),
    )


def payers_elsewhere(ledger: Ledger, page: int, importance: float) -> list[Payer]:
    """Return the pages of a ledger that pay a page of another shard, which has this importance there."""
    return _named(ledger, ledger.payers_elsewhere(page, importance))


def _rest(ledger: Ledger, page: int, payers: Sequence[Payer], are_all_named: bool) -> tuple[float | None, float | None]:
    """Return the parts of a page's importance that no payer explains: see `Reasons.alike` and `Reasons.unnamed`."""
    if not ledger.config.remember_links:
        return None, None
    rest = max(1.0 - sum(payer.part for payer in payers), 0.0)
    alike = None if ledger.shards == 1 else ledger.alike_part(page)
    if alike is not None:
        return alike, max(rest - alike, 0.0)
    return (rest, 0.0) if are_all_named else (None, None)


def _payers(ledger: Ledger, page: int, importance: Floats) -> list[Payer]:
    return _named(ledger, ledger.payers_of(page, importance))


def _named(ledger: Ledger, payers: Sequence[tuple[int, float]]) -> list[Payer]:
    names = _names(ledger, [payer for payer, _ in payers])
    return [Payer(name, part) for name, (_, part) in zip(names, payers, strict=True)]


def _sites(payers: list[Payer]) -> list[Payer]:
    """Return the sites of payers, the one that pays most first."""
    parts_of_hosts: dict[str, list[float]] = {}
    for payer in payers:
        host = payer.name.split("/", 3)[2] if "://" in payer.name else payer.name
        parts_of_hosts.setdefault(host, []).append(payer.part)
    parts: dict[str, list[float]] = {}
    for host, paid in parts_of_hosts.items():
        parts.setdefault(site_of_host(host), []).extend(paid)
    sites = [Payer(site, sum(paid), len(paid)) for site, paid in parts.items()]
    return sorted(sites, key=lambda site: (-site.part, site.name))


def _order(planned: Plan, row: int, cycle_hours: float) -> str:
    """Return why a page is ordered, or is not, in a sentence."""
    survey, orders = planned.survey, planned.orders
    positions = np.flatnonzero(orders.rows == row)
    if len(positions):
        position = int(positions[0])
        alike = np.flatnonzero(orders.why == orders.why[position])
        by = f" by {BY[orders.by[position]]}" if orders.by[position] else ""
        number = 1 + int(np.searchsorted(alike, position))
        not_before = iso_time(1000 * int(orders.not_before[position]))
        return f"it is ordered: {WHY[orders.why[position]]}{by}, {number:,} of {len(alike):,}, not before {not_before}"
    due, until = int(planned.schedule.due[row]), survey.second + int(cycle_hours * 3600)
    when = f": next {iso_time(1000 * due)}" if due >= 0 else ""
    decided_by = int(survey.decided_by[row])
    if decided_by in _REASONS:
        return f"it is not ordered: {_REASONS[decided_by]}{when}"
    if not survey.has_url[row]:
        return "it is not ordered: its URL is not known, only its page id"
    if survey.ordered[row] > 0:
        return f"it was ordered at {iso_time(1000 * int(survey.ordered[row]))}, and was not visited since"
    if survey.waits_until is not None and survey.waits_until[row] > survey.second:
        return f"it is not ordered: its host wants no request before {iso_time(1000 * int(survey.waits_until[row]))}"
    if decided_by == DISCOVERY:
        ordered = int(((survey.decided_by == DISCOVERY) & survey.has_url).sum())
        return f"it is not ordered: of {ordered:,} unread pages {orders.discovered:,} are, and those come first"
    if due < 0:
        return "it is not ordered: its importance is too low for another fetch, by the refresh strategy"
    if due > until:
        return f"it is not ordered: it is due at {iso_time(1000 * due)}, and the cycle ends at {iso_time(1000 * until)}"
    return f"it is not ordered: it is due at {iso_time(1000 * due)}, but others come first, or its host has no more"


def _by_quality(planned: Plan, row: int) -> str:
    """Return how the quality of a page changes its position, if it is below 1."""
    quality = planned.survey.quality
    if quality is None or quality[row] >= 1.0 or planned.survey.decided_by[row] in _REASONS:
        return ""
    return f"; its importance counts {quality[row]:.3g} times, by its quality"


def _names(ledger: Ledger, pages: Sequence[int]) -> list[str]:
    """Return the URLs of pages; of a page whose URL is not known, its page id."""
    starts, text = ledger.urls(np.array(pages, np.uint64))
    urls = text.tobytes()
    return [
        urls[begin:end].decode("ascii", "backslashreplace") or f"page {page:016x}"
        for page, (begin, end) in zip(pages, pairwise(starts.tolist()), strict=True)
    ]
