"""Reads a ledger's pages: estimates, rankings, URLs, remembered links. Nothing here changes the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.cash import reads
from opicflow.pipelines.ledger.cash.certified.payment_laws import bases_of
from opicflow.pipelines.ledger.cash.certified.residuals import residual_sums
from opicflow.pipelines.ledger.cash.payers import find_payers, find_payers_of
from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.cash.windows.dividends import all_dividends_due
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entries import Outcome
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.pages import domain_counts, index, links, url_arena
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.observations import BELIEVED
from opicflow.pipelines.ledger.pages.refresh_rows import rows_of
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.refresh.rates import kept_intervals
from opicflow.schemas.arrays import Array, Bools, Bytes, Floats, Ids, Ints, highest
from opicflow.schemas.pages import HostMemo

_PAGES_AT_ONCE = 1 << 16


class SeenChanges(NamedTuple):
    """The observations of visits to a page, and its changes."""

    intervals: int
    """Intervals between visits: the last eight, and earlier ones if all eight had a change."""
    changed: int
    """The number of intervals in which the page has changed."""
    returned: int
    """The number of the last eight in which an earlier content came back."""
    dated: int
    """The number of changes for which the server gave a time."""
    are_dates_believed: bool
    failures: int
    """Visits in a row, the last one among them, that did not answer."""
    answered_ms: int
    """The last visit that answered, or found it gone first; 0 = none."""
    modified_ms: int
    """The time of the latest change that the server gave; 0 = none."""
    ordered_ms: int
    """An order that no visit has answered; 0 = none."""


class Payers(NamedTuple):
    """The pages that pay each page most, by slot: slots of pages, and the part of its importance from each."""

    reader: Reader
    slots: Array
    parts: npt.NDArray[np.float32]

    def of(self, pages: Ids) -> tuple[Ids, npt.NDArray[np.float32]]:
        """The pages that pay each of these pages most, and the parts; the page that pays most first, a part of 0: none.

        The ledger must be as it was.
        """
        at_slots = self.reader.slots_of(pages)
        return self.reader.ids_at(self.slots[at_slots]), self.parts[at_slots]


class Reader:
    """Reads the columns of a ledger, and the gossip of other shards where importance needs their sums."""

    def __init__(self, room: Room, peers: Peers, window_days: float) -> None:
        """`window_days` are those of the history policy `certified`."""
        self._room = room
        self._peers = peers
        self._window_days = window_days

    # -- rows ------------------------------------------------------------------------------------------------------

    def slots_of(self, pages: Ids) -> Ints:
        """The slot of each page; below 0 where a page is not known."""
        slots = np.zeros(len(pages), np.int64)
        index.find_all(self._room.table, np.ascontiguousarray(pages, np.uint64).view(np.int64), slots)
        return slots

    def host_hashes(self, slots: Array) -> Ids:
        """A hash of the host of the page at each slot; 0 where its URL is not known."""
        room, hashes, slots = self._room, np.zeros(len(slots), np.uint64), slots.astype(np.int64, copy=False)
        url_arena.hash_hosts(room.table, room.book, slots, self._peers.shard.page_ids.rules.key, hashes)
        return hashes

    def domain_hashes(self, slots: Array) -> Ids:
        """A hash of the registrable domain of the page at each slot; 0 where its URL is not known."""
        room, hashes, slots = self._room, np.zeros(len(slots), np.uint64), slots.astype(np.int64, copy=False)
        rules = self._peers.shard.page_ids.rules
        domain_counts.hash_domains(room.table, room.book, slots, rules, HostMemo.empty(), hashes)
        return hashes

    def ids_at(self, slots: Array) -> Ids:
        """The ids of the pages at these slots."""
        return self._room.table.hot[slots, 0].view(np.uint64)

    def live(self) -> tuple[Ids, Ints]:
        """Ids and slots of all pages, in slot order."""
        table = self._room.table
        slots = np.flatnonzero(table.pages["flags"][: int(self._room.book.counts[0].slots)])
        return table.hot[slots, 0].view(np.uint64), slots

    def rates(self) -> tuple[Floats, float]:
        """The rate of every slot, 0 for free ones, and their sum."""
        room = self._room
        rates = np.zeros(int(room.book.counts[0].slots), np.float64)
        return rates, float(reads.read_all_rates(room.table, room.book, self._scale(), rates))

    def waiting(self, slots: Ints) -> Ints:
        """The waiting cash at these slots, -1 at free ones."""
        waiting = np.empty(len(slots), np.int64)
        reads.read_waiting(self._room.table, self._room.book, slots, waiting)
        return waiting

    # -- importance ------------------------------------------------------------------------------------------------

    def rate_sum(self) -> float:
        """The sum of the rates of all pages of this shard, now. O(1) but for history windows."""
        book = self._room.book
        counts = book.counts[0]
        if book.modes[0].policy == at.P_CERTIFIED:
            return residual_sums(book).rate_sum(self._scale())
        if book.modes[0].policy in (at.P_ALL, at.P_ABSORBING):
            idle = int(counts.minted - counts.virtual - counts.absorbed) - int(counts.sent) + int(counts.received)
            if book.modes[0].policy == at.P_ALL:
                idle -= int(counts.openings)
            return (int(counts.earned) + idle) / UNITS_PER_PAGE
        return self.rates()[1]

    def rate_sum_everywhere(self, own: float) -> float:
        """The sum of the rates of all pages of all shards; `own` is this one's."""
        book = self._room.book
        if book.modes[0].policy == at.P_CERTIFIED and self._peers.by_shard:
            return self._peers.certified_rate_sum(residual_sums(book))
        return self._peers.rate_sum(own)

    def _scale(self) -> float:
        book = self._room.book
        if book.modes[0].policy != at.P_CERTIFIED:
            return 1.0
        return self._peers.residual_sums(residual_sums(book)).scale

    def estimate(self, pages: Ids | Iterable[int], rate_sum: float | None = None) -> Estimates:
        """Return the estimates of pages. `rate_sum` is that of this shard; None = summed from the columns."""
        ids = np.asarray(pages if isinstance(pages, np.ndarray) else list(pages), np.uint64)
        slots = self.slots_of(ids)
        own = self.rate_sum() if rate_sum is None else rate_sum
        return self.estimate_slots(ids, slots, self.rate_sum_everywhere(own))

    def estimate_all(self) -> Estimates:
        """Estimates of all pages, in slot order."""
        ids, slots = self.live()
        return self.estimate_slots(ids, slots, self.rate_sum_everywhere(self.rate_sum()))

    def importance(self) -> tuple[Ids, Floats]:
        """All pages and their importance, in slot order."""
        rates, own = self.rates()
        ids, slots = self.live()
        rate_sum = self.rate_sum_everywhere(own)
        return ids, rates[slots] * (1.0 / rate_sum if rate_sum > 0 else 0.0)

    def top(self, k: int) -> Estimates:
        """Estimates of the `k` most important pages, most important first; equal ones in slot order."""
        rates, own = self.rates()
        ids, slots = self.live()
        rows = highest(rates[slots], slots.view(np.uint64), k)
        return self.estimate_slots(ids[rows], slots[rows], self.rate_sum_everywhere(own))

    def ranked(self) -> Ids:
        """All pages, the most important first; equal ones in slot order, which no key of page ids decides."""
        rates = self.rates()[0]
        ids, slots = self.live()
        return ids[np.argsort(-rates[slots], kind="stable")]

    def estimate_slots(self, pages: Ids, slots: Ints, rate_sum: float) -> Estimates:
        """Estimates of pages at these slots. `rate_sum` is the sum of the rates of all shards."""
        room = self._room
        estimates = Estimates.zeros(pages, slots >= 0)
        reads.read_estimates(
            room.table,
            room.book,
            slots,
            self._scale(),
            1.0 / rate_sum if rate_sum > 0 else 0.0,
            self.pages_everywhere(),
            self._window_days,
            estimates.kernel_columns(),
        )
        return estimates

    def pages_everywhere(self) -> int:
        """Pages of all shards."""
        return self._peers.pages(int(self._room.book.counts[0].pages))

    def payers(self, pages: Ids, importance: Floats, most: int) -> Payers:
        """For each page, the pages that pay it most along remembered links. `pages` are all, with their importance."""
        room, slots = self._room, int(self._room.book.counts[0].slots)
        by_slot = np.zeros(slots, np.float64)
        by_slot[self.slots_of(pages)] = importance
        payers, parts = np.zeros((slots, most), np.int32), np.zeros((slots, most), np.float32)
        if room.book.modes[0].remember:
            find_payers(room.table, room.book, by_slot, payers, parts)
        return Payers(self, payers, parts)

    def payers_of(self, page: int, importance: Floats) -> list[tuple[int, float]]:
        """All pages that pay a page along remembered links, and the part of its importance from each, most first.

        `importance` is that of all pages in slot order.
        """
        room, (slot,) = self._room, self.slots_of(np.array([page], np.uint64)).tolist()
        _, slots = self.live()
        by_slot = np.zeros(int(room.book.counts[0].slots), np.float64)
        by_slot[slots] = importance
        if not room.book.modes[0].remember or slot < 0 or by_slot[slot] <= 0.0:
            return []
        payers, parts = np.zeros(len(by_slot), np.int64), np.zeros(len(by_slot), np.float64)
        count = int(find_payers_of(room.table, room.book, by_slot, slot, payers, parts))
        ids = room.table.hot[payers[:count], 0].view(np.uint64)
        order = np.lexsort((ids, -parts[:count]))
        return list(zip(ids[order].tolist(), parts[order].tolist(), strict=True))

    def payers_elsewhere(self, page: int, importance: float) -> list[tuple[int, float]]:
        """All pages of this shard that pay a page of another one along remembered links, in slot order.

        With each comes the part of the page's importance, which is given, that it pays by the estimates of this shard.
        """
        room, (ids, slots) = self._room, self.live()
        if not room.book.modes[0].remember or importance <= 0.0:
            return []
        knows_links = (room.table.pages["flags"][slots] & at.LINKS_KNOWN) != 0
        ids, slots = ids[knows_links], slots[knows_links]
        rate_sum, damping = self.rate_sum_everywhere(self.rate_sum()), float(room.book.rules[0].damping)
        found = list[tuple[int, float]]()
        for first in range(0, len(ids), _PAGES_AT_ONCE):
            payers = ids[first : first + _PAGES_AT_ONCE]
            starts, targets, weights = self.remembered(payers)
            links = np.flatnonzero(targets == np.uint64(page))
            rows = np.searchsorted(starts, links, side="right") - 1
            theirs = self.estimate_slots(payers[rows], slots[first + rows], rate_sum).importance
            for link, row, own in zip(links.tolist(), rows.tolist(), theirs.tolist(), strict=True):
                weight = int(weights[link]) / int(weights[starts[row] : starts[row + 1]].sum(dtype=np.int64))
                found.append((int(payers[row]), damping * own * weight / importance))
        return found

    def alike_part(self, page: int) -> float | None:
        """The part of a page's importance that all pages of its class receive alike; None if it is not kept apart.

        Only `certified` keeps it apart: it is the part that no link carries.
        """
        room = self._room
        (slot,) = self.slots_of(np.array([page], np.uint64)).tolist()
        if room.book.modes[0].policy != at.P_CERTIFIED or slot < 0:
            return None
        base = float(bases_of(room.table, room.book)[slot]) / UNITS_PER_PAGE
        rate = float(self.estimate_slots(np.array([page], np.uint64), np.array([slot]), 1.0).rate[0])
        return min(base / rate, 1.0) if rate > 0.0 else None

    def finders(self, page: int, most: int) -> list[int]:
        """The page in which a page was found first, the one in which that was found, and so on, at most so many."""
        table, found = self._room.table, list[int]()
        slot = int(self.slots_of(np.array([page], np.uint64))[0])
        while slot >= 0 and len(table.found_by) and len(found) < most:
            slot = int(table.found_by[slot]) - 1
            if slot >= 0:
                found.append(int(table.hot[slot, 0].view(np.uint64)))
        return found

    def seen_changes(self, page: int) -> SeenChanges:
        """The observations of visits to a page, and its changes."""
        row = rows_of(self._room.table, self.slots_of(np.array([page], np.uint64)))[0]
        intervals, dated = (kept_intervals(np.array([row[name]], np.uint64)) for name in ("intervals", "dated"))
        return SeenChanges(
            intervals=int(intervals.is_interval.sum()) + int(row["run"]),
            changed=int(intervals.is_change.sum()) + int(row["run"]),
            returned=int(row["returned"]).bit_count(),
            dated=int(dated.is_interval.sum()),
            are_dates_believed=bool((row["notes"] & at.MISTRUST) <= BELIEVED),
            failures=int(row["failures"]),
            answered_ms=1000 * int(row["checked"]),
            modified_ms=1000 * int(row["modified"]),
            ordered_ms=1000 * int(row["ordered"]),
        )

    # -- single columns --------------------------------------------------------------------------------------------

    def waiting_cash(self, pages: Ids | None) -> Ints:
        """Return the waiting cash of pages, -1 for unknown ones; without `pages` that of all, in the order of slots."""
        if pages is None:
            return self.waiting(self.live()[1])
        slots = self.slots_of(pages)
        waiting = np.full(len(pages), -1, np.int64)
        waiting[slots >= 0] = self.waiting(slots[slots >= 0])
        return waiting

    def idle_cash(self) -> dict[Outcome, int]:
        """Cash that waits on pages, by their last outcome."""
        room = self._room
        slots, is_certified = int(room.book.counts[0].slots), room.book.modes[0].policy == at.P_CERTIFIED
        sums = dict.fromkeys(Outcome, 0)
        for first in range(0, slots, _PAGES_AT_ONCE):
            some = slice(first, min(first + _PAGES_AT_ONCE, slots))
            rows, raw = room.table.pages[some], room.table.hot[some, 1]
            plain = np.where(raw >= 0, raw, ~raw)
            cash = np.abs(raw) if is_certified else plain + all_dividends_due(rows, room.book)
            live = rows["flags"] != 0
            for outcome in Outcome:
                sums[outcome] += int(cash[live & (rows["outcome"] == outcome)].sum())
        return sums

    def url(self, page: int) -> bytes | None:
        """The URL of a page; None where it is not known."""
        slot = int(self.slots_of(np.array([page], np.uint64))[0])
        start = int(self._room.table.url_start[slot]) if slot >= 0 else 0
        return url_arena.url_at(self._room.book, start) if start else None

    def urls(self, pages: Ids) -> tuple[Ints, Bytes]:
        """The starts of the URLs of pages, and the URLs, one after the other; empty where one is not known."""
        room, slots = self._room, self.slots_of(pages)
        starts = np.zeros(len(pages) + 1, np.int64)
        url_arena.measure_urls(room.table, room.book, slots, starts)
        out = np.empty(int(starts[-1]), np.uint8)
        url_arena.gather_urls(room.table, room.book, slots, starts, out)
        return starts, out

    def has_url(self, pages: Ids) -> Bools:
        """Whether the URL of each page is known."""
        has_url = np.zeros(len(pages), np.bool_)
        for first in range(0, len(pages), _PAGES_AT_ONCE):
            slots = self.slots_of(pages[first : first + _PAGES_AT_ONCE])
            has_url[first : first + len(slots)] = (slots >= 0) & (self._room.table.url_start[slots] != 0)
        return has_url

    def order_of_births(self, pages: Ids) -> Ints:
        """Return the rows of pages in the order in which they were added, which is that of columns and URLs."""
        order: Ints = np.argsort(self.slots_of(pages), kind="stable")
        return order

    def categories(self, pages: Ids) -> Bytes:
        """The category of each page; 0 where there is one category only, or the page is not known."""
        slots = self.slots_of(pages)
        classes: Bytes = self._room.table.pages["class_"][np.maximum(slots, 0)]
        return np.where(slots >= 0, classes >> 1, 0).astype(np.uint8)

    def hops(self, pages: Ids) -> Bools:
        """Whether each page is a hop; one that is not known is none."""
        slots = self.slots_of(pages)
        found: Bools = (slots >= 0) & (self._room.table.pages["seen"][np.maximum(slots, 0)] == at.HOP)
        return found

    def remembered(self, pages: Ids) -> tuple[Ints, Ids, npt.NDArray[np.uint16]]:
        """The starts of the remembered links of pages, and their targets and weights."""
        room, slots = self._room, self.slots_of(pages)
        starts = np.zeros(len(pages) + 1, np.int64)
        if not room.book.modes[0].remember:
            return starts, np.empty(0, np.uint64), np.empty(0, np.uint16)
        links.measure_links(room.table, slots, starts)
        targets, weights = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.uint16)
        links.copy_links(room.table, room.book, slots, starts, targets, weights)
        return starts, targets.view(np.uint64), weights

    def measures_per_page(self) -> float:
        """The mean number of measures that the history keeps of a page; 1 where it keeps sums or rates."""
        _, slots = self.live()
        measures = self._room.table.pages["measures"][slots]
        return float(measures.mean()) if len(slots) and self._room.book.modes[0].measures > 0 else 1.0
