"""A new shard (reshard.py): what it takes over from the old shards, and the ledger that is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opicflow.pipelines.discovery import Discovery, PagesRead
from opicflow.pipelines.ledger.cash.balance import rows_of_domains
from opicflow.pipelines.ledger.cash.certified.payment_laws import bases_of, recount
from opicflow.pipelines.ledger.cash.windows.dividends import all_dividends_due
from opicflow.pipelines.ledger.config import MOST_CASH, UNITS_PER_PAGE
from opicflow.pipelines.ledger.entries import Gossip, ResidualSums
from opicflow.pipelines.ledger.entry_checks import SHARD_SOURCE, exact_sum
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.ledger_state import (
    Ahead,
    Credits,
    HostWait,
    LedgerState,
    Mark,
    Peer,
    Reviews,
    Times,
    encode_state,
    judged_columns,
)
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.announcements import IN_USE, MOST_COUNTED
from opicflow.pipelines.ledger.pages.layout import Book
from opicflow.pipelines.ledger.pages.links import copy_spans
from opicflow.pipelines.ledger.pages.refresh_rows import field_of, rows_of
from opicflow.pipelines.ledger.pages.room import new_book, new_table, recent_visits, set_rules
from opicflow.pipelines.ledger.pages.space import in_memory
from opicflow.pipelines.ledger.shards.snapshot import (
    NO_QUALITIES,
    SnapshotContent,
    columns_of,
    links_of,
    stored_columns,
)
from opicflow.pipelines.ledger.shards.whole_web import WholeWeb
from opicflow.pipelines.refresh.strategies import SHARE_UNITS
from opicflow.schemas.arrays import Array, Bools, Ints
from opicflow.schemas.pages import SITE_BITS

_LENGTH_BYTES = 2
"""Before a URL in the arena."""


class NewShard:
    """A new shard, from the pages of all old ones that are in its range.

    `births`, `virtual`, `sent_to` and `received_from` depend on all new shards: they are set before `gossip` and
    `ledger` are called.
    """

    def __init__(self, whole: WholeWeb, number: int) -> None:
        self.number = number
        self.births = self.virtual = 0
        self.sent_to: dict[int, int] = {}
        self.received_from: dict[int, int] = {}
        self._whole = whole
        self._old = [one for one in whole.old if one.common[number]]
        self._ids = whole.ranges.bounds(number)
        self._divided = {name: parts[number] for name, parts in whole.divided.items()}
        self._rate_sum = float(sum(one.rate_sums[number] for one in self._old))
        like = whole.latest.book
        rows = self._gather("pages")
        cash = self._cash()
        self.pages = len(rows)
        self._class_pages = np.bincount(rows["class_"][rows["seen"] != at.HOP], minlength=len(like.class_pages))
        self._weighted = int(like.class_weights @ self._class_pages)
        self._read_before = int(((rows["flags"] & at.READ_BEFORE) != 0).sum())
        fields = [field_of(one.table, "share", one.slots(number)) for one in self._old]
        shares = np.concatenate(fields).astype(np.float64)
        self._shares = int((shares * SHARE_UNITS + 0.5).astype(np.int64).sum())
        self.held = self._divided["absorbed"]
        self._openings, self._residuals = 0, ResidualSums(0, 0, 0, 0, 0)
        if whole.is_certified:
            bases = sum(exact_sum(bases_of(one.table, one.book)[one.slots(number)]) for one in self._old)
            links = int(at.link_numbers(self._gather("link_count").astype(np.int64)).sum())
            paid = exact_sum(self._gather("totals"))
            none = (0,) * whole.ranges.count
            self._residuals = ResidualSums(bases, paid, exact_sum(cash), exact_sum(np.abs(cash)), links, none, none)
        else:
            self.held += exact_sum(np.where(cash >= 0, cash, ~cash))
            self._openings = exact_sum(rows["opening"][(rows["flags"] & at.SPENT) == 0])

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _gather(self, name: str) -> Any:
        """Return a column of its pages, as a snapshot stores it."""
        if name == "refresh":
            return np.concatenate([rows_of(one.table, one.slots(self.number)) for one in self._old])
        return np.concatenate([getattr(one.table, name)[one.slots(self.number)] for one in self._old])

    def _cash(self) -> Ints:
        """Return the cash of its pages as they hold it, with uncollected dividends."""
        found = []
        for one in self._old:
            slots = one.slots(self.number)
            rows, cash = one.table.pages[slots], one.table.hot[slots, 1]
            due = all_dividends_due(rows, one.book)
            found.append(np.where(cash >= 0, cash + due, cash - due) if due.any() else cash)
        return np.concatenate(found)

    def _page_columns(self) -> dict[str, Array]:
        columns = {name: self._gather(name) for name in stored_columns(self._whole.config)}
        columns["hot"][:, 1] = self._cash()
        seen = columns["pages"]["seen"]
        seen[seen != at.HOP] = 0
        columns["pages"]["flags"] &= ~at.IN_URL_ORDER  # the order of URLs is made again
        if "found_by" in columns:
            columns["found_by"] = self._found_by()
        return columns

    def _found_by(self) -> Array:
        """Return where the pages are now in which others were found; a finder in another shard is not known."""
        found, first = [], 1
        for one in self._old:
            slots = one.slots(self.number)
            now = np.zeros(len(one.table.pages) + 1, np.int32)
            now[1 + slots] = np.arange(first, first + len(slots))
            found.append(now[one.table.found_by[slots]])
            first += len(slots)
        return np.concatenate(found)

    def _quality(self) -> Array:
        """Return the column of qualities, which is empty if all are 1."""
        of_old = [(one, one.slots(self.number)) for one in self._old]
        steps = [one.quality[slots] if len(one.quality) else np.zeros(len(slots), np.uint8) for one, slots in of_old]
        column = np.concatenate(steps)
        return column if column.any() else NO_QUALITIES

    def _urls(self) -> tuple[Array, Any, int]:
        """Return the starts of URLs, their arena, and its length."""
        spans = []
        for one in self._old:
            starts = one.table.url_start[one.slots(self.number)]
            known = starts[starts != 0]
            urls = one.book.urls
            lengths = urls[known - 1].astype(np.int64) + (urls[known].astype(np.int64) << 8)
            sizes = np.zeros(len(starts), np.int64)
            sizes[starts != 0] = _LENGTH_BYTES + lengths
            spans.append((one, np.maximum(starts - 1, 0), sizes))
        every = np.concatenate([sizes for _, _, sizes in spans])
        ends = np.cumsum(every)
        column = in_memory(np.zeros(0, np.uint8))
        arena = column.resized(int(ends[-1]) if len(ends) else 0)
        done = 0
        for one, begins, sizes in spans:
            copy_spans(one.book.urls, begins, sizes, arena, done)
            done += int(sizes.sum())
        return np.where(every > 0, ends - every + 1, 0), column, done

    def _links(self) -> tuple[Array, Array]:
        """Return the starts of remembered links, and all links."""
        starts, stored, before = [], [], 0
        for one in self._old:
            its_starts, its_links = links_of(one.table, one.book, one.slots(self.number))
            has_links = one.table.link_count[one.slots(self.number)] != 0
            starts.append(np.where(has_links, its_starts + before, 0))
            stored.append(its_links)
            before += len(its_links)
        return np.concatenate(starts), np.concatenate(stored)

    def _is_own(self, pages: Ints) -> Bools:
        """Return which page ids, as bits, are of this shard."""
        ids = pages.view(np.uint64)
        return (ids >= np.uint64(self._ids[0])) & (ids <= np.uint64(self._ids[1]))

    # -- the ledger ----------------------------------------------------------------------------------------------------

    @property
    def _minted(self) -> int:
        return UNITS_PER_PAGE * self.births

    def gossip(self) -> Gossip:
        """Return the amounts that are pending for the others."""
        return Gossip(
            advance=0,
            minted=self._minted,
            pages=self.pages,
            weighted_pages=self._weighted,
            rate_sum=self._rate_sum,
            shares=self._shares,
            residuals=self._residuals if self._whole.is_certified else None,
            second=self._whole.latest.state.times.tick_second,
        )

    def ledger(self, gossips: Sequence[Gossip]) -> Ledger:
        """Make its ledger; `gossips` are those of all new shards."""
        whole = self._whole
        state = self._state(gossips)
        columns = self._page_columns()
        columns["url_start"], urls, url_bytes = self._urls()
        links = np.zeros(0, np.int64)
        if whole.config.remember_links:
            columns["link_start"], links = self._links()
        book = self._book(url_bytes, len(links))
        if len(book.domains):
            book.domains[:] = self._domains(book, columns)
        judged, none = judged_columns(state.reviews), new_table(whole.config)
        others = columns_of(whole.config, none, book, judged, self._quality())
        stored = {
            **{name: column.copy() for name, column in others.items()},  # views cannot grow
            **columns,
            "links": links,
        }
        content = SnapshotContent(
            json.loads(json.dumps(encode_state(state, whole.config, self.number, whole.ranges))),  # as it is stored
            whole.config,
            stored,
            urls,
            url_bytes,
        )
        return Ledger.of_content(content, whole.page_ids, finish=_take_sent)

    def _book(self, url_bytes: int, link_words: int) -> Book:
        whole, like = self._whole, self._whole.latest.book
        book = new_book(whole.config, self._ids, int(like.clocks[0].theta_start))
        set_rules(book, None, tuple(like.class_weights.tolist()), tuple(like.link_bonus.tolist()))
        book.rules[0].damping, book.rules[0].window = like.rules[0].damping, like.rules[0].window
        modes, counts = book.modes[0], book.counts[0]
        modes.damping_q20, modes.like_us = like.modes[0].damping_q20, 1
        modes.longest = max(int(one.book.modes[0].longest) for one in self._old)
        book.clocks[0].theta = like.clocks[0].theta
        for name, value in self._divided.items():
            counts[name] = value
        counts.pages = counts.slots = self.pages
        counts.births, counts.minted = self.births, self._minted
        counts.minted_everywhere = min(whole.minted, MOST_CASH)
        counts.virtual = self.virtual
        counts.sent, counts.received = sum(self.sent_to.values()), sum(self.received_from.values())
        counts.openings = self._openings
        if modes.policy in (at.P_ALL, at.P_ABSORBING):
            counts.earned = exact_sum(self._gather("totals"))
        recent = self._recent()
        counts.weighted_pages, counts.shares, counts.recent = self._weighted, self._shares, np.count_nonzero(recent[0])
        counts.url_end, counts.link_end = url_bytes, link_words
        book.class_pages[:] = self._class_pages
        self._fill_announced(book.announced)
        forgotten, until = self._forgotten()
        book = book._replace(forgotten=forgotten, forgotten_until=until, recent=recent)
        return self._with_sums(book) if whole.is_certified else book

    def _forgotten(self) -> tuple[Ints, Ints]:
        """Return its forgotten pages, and the second from which each may be learnt again: every shard keeps all."""
        ids = np.concatenate([one.book.forgotten for one in self._old])
        until = np.concatenate([one.book.forgotten_until for one in self._old])
        latest_first = np.lexsort((-until, ids))
        ids, until = ids[latest_first], until[latest_first]
        here = self._is_own(ids) & np.append(True, ids[1:] != ids[:-1])[: len(ids)]
        return ids[here], until[here]

    def _with_sums(self, book: Book) -> Book:
        """Return a book with the sums and the amounts of links to absent pages. Those to others are counted later."""
        ids, amounts = (
            np.concatenate([getattr(one.book, name)[: int(one.book.store[0].absent)] for one in self._old])
            for name in ("absent_ids", "absent_amounts")
        )
        here = self._is_own(ids)
        sums, residuals = book.sums[0], self._residuals
        sums.bases, sums.paid, sums.links = residuals.bases, residuals.paid, residuals.links
        sums.residual, sums.residual_size = residuals.residual, residuals.residual_size
        sums.lost = exact_sum(amounts[here])
        book.store[0].absent = here.sum()
        return book._replace(absent_ids=ids[here], absent_amounts=amounts[here])

    def _recent(self) -> Array:
        """Return the hashes of recent visits, by side: those of all old shards that it has pages of."""
        keys = np.unique(np.concatenate([side for one in self._old for side in recent_visits(one.book)]))
        sides = np.zeros((2, len(keys)), np.int64)
        sides[int(len(keys) >= self._whole.config.remembered_visits)] = keys
        return sides

    def _fill_announced(self, counts: Array) -> None:
        """Fill in what announcements were worth, by site; that of a divided site goes to each part."""
        for one in self._old:
            to, of = _common_sites(self._ids, (one.first_id, one.last_id))
            counts[to] += one.book.announced[of]
        counted = counts[:, :IN_USE].sum(axis=1)
        too_many = counted > MOST_COUNTED
        counts[too_many, :IN_USE] *= (MOST_COUNTED / counted[too_many])[:, None].astype(np.float32)
        counts[:, IN_USE] = np.minimum(counts[:, IN_USE], 1)

    def _domains(self, book: Book, columns: dict[str, Array]) -> Ints:
        """Return what unread pages of domains may be and hold: a divided domain shares it by page ids."""
        domains = np.zeros(book.domains.shape, np.int64)
        for one in self._old:
            to, of = _common_sites(self._ids, (one.first_id, one.last_id))
            values = one.book.domains[of].copy()
            for row in {0, len(values) - 1}:
                site = (max(self._ids[0], one.first_id) >> (64 - SITE_BITS)) + row
                part = _part_of_site(site, one.first_id, one.last_id, *self._ids)
                limited = values[row] < at.UNLIMITED
                values[row, limited] = (values[row, limited] * part).astype(np.int64)
            domains[to] = np.minimum(domains[to] + values, at.UNLIMITED)
        unread = columns["hot"][:, 0][(columns["pages"]["class_"] & 1) == 0].view(np.uint64)
        domains[:, at.UNREAD] = np.bincount(rows_of_domains(unread, book), minlength=len(domains))
        return domains

    # -- state ---------------------------------------------------------------------------------------------------------

    def _state(self, gossips: Sequence[Gossip]) -> LedgerState:
        whole, latest = self._whole, self._whole.latest.state
        credits = [(one.state.credits, one.part(self.number)) for one in self._old]
        refresh = sum(credit.refresh * part for credit, part in credits)
        discovery = sum(credit.discovery * part for credit, part in credits)
        below_one = float(np.nextafter(1.0, 0.0))
        return LedgerState(
            marks={
                **{
                    source: replace(mark, ahead=tuple(one for one in mark.ahead if self._meets(one)))
                    for source, mark in whole.marks.items()
                },
                **{f"{SHARD_SOURCE}{giver}": Mark(total=amount) for giver, amount in self.received_from.items()},
            },
            peers={
                other: Peer(self.sent_to.get(other, 0), gossip=gossip)
                for other, gossip in enumerate(gossips)
                if other != self.number
            },
            times=self._times(),
            credits=Credits(min(refresh, below_one), min(discovery, below_one)),
            policies=latest.policies,
            budget=dict(latest.budget),
            url_generation=1 + max(one.state.url_generation for one in self._old),
            busy_hosts=_longest_waits(one.state.busy_hosts for one in self._old),
            reviews=self._reviews(),
        )

    def _meets(self, ahead: Ahead) -> bool:
        return ahead.first_id <= self._ids[1] and ahead.last_id >= self._ids[0]

    def _times(self) -> Times:
        times = [one.state.times for one in self._old]
        latest = self._whole.latest
        second, clock = latest.state.times.tick_second, latest.book.clocks[0]
        start = int(clock.theta_start)
        ahead = [one.ahead_theta for one in times if one.ahead_theta is not None]
        has_swept = all(one.sweep_second >= 0 for one in times)
        return Times(
            tick_second=second,
            sweep_second=min(one.sweep_second for one in times) if has_swept else -1,
            sweep_rate_sum=self._rate_sum if has_swept else 0.0,
            days=list(latest.state.times.days),
            first_tick_second=_earliest(one.first_tick_second for one in times),
            planned_second=min(one.planned_second for one in times),
            first_planned_second=_earliest(one.first_planned_second for one in times),
            policies_changed=any(one.policies_changed for one in times),
            visits_by=[(second, self._divided["visits"])] if second >= 0 else [],
            ahead_theta=max(ahead, key=lambda theta: (theta - start) % (1 << 64), default=None),
        )

    def _reviews(self) -> Reviews:
        """Return what discovery has learnt: means over the old shards, by their parts; pages to be judged by id."""
        if not self._whole.config.learns_discovery:
            return Reviews()
        learnt = [(one.state.reviews.discovery, one.part(self.number)) for one in self._old]
        weights = np.array([part for _, part in learnt])
        weights = weights / weights.sum() if weights.any() else np.full(len(learnt), 1 / len(learnt))
        discovery = Discovery()
        discovery.share = float(weights @ [one.share for one, _ in learnt])
        discovery.seen = np.sum([one.seen * part for one, part in learnt], axis=0)
        discovery.followed = np.sum([one.followed * part for one, part in learnt], axis=0)
        discovery.credit_explored, discovery.credit_others = (
            _known_mean(weights, [getattr(one, name) for one, _ in learnt])
            for name in ("credit_explored", "credit_others")
        )
        longest = max(len(one.waiting) for one, _ in learnt)
        waiting = [[*[None] * (longest - len(one.waiting)), *one.waiting] for one, _ in learnt]
        discovery.waiting = [self._judged([one for one in reviewed if one]) for reviewed in zip(*waiting, strict=True)]
        second = max(one.state.reviews.second for one in self._old)
        return Reviews(second, self._read_before, discovery)

    def _judged(self, waiting: Iterable[PagesRead]) -> PagesRead:
        rows = [(one, self._is_own(one.page.view(np.int64))) for one in waiting]
        return PagesRead(
            *(
                np.concatenate([getattr(one, name)[here] for one, here in rows])
                for name in ("page", "explored", "own", "siblings")
            )
        )


def _take_sent(ledger: Ledger) -> None:
    """Count what remembered links carry to other shards, and what those of others must carry to this one."""
    _, table, book, _ = ledger.parts()
    if book.modes[0].policy != at.P_CERTIFIED:
        return
    carried, sums = recount(table, book), book.sums[0]
    sums.sent = carried.sent
    here = exact_sum(carried.to_slots) + exact_sum(carried.to_absent)
    sums.received = int(sums.paid) + int(sums.residual) - int(sums.bases) - here + int(sums.lost)


def _common_sites(ids: tuple[int, int], others: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows of the sites that two shards have in common, for each shard."""
    shift = 64 - SITE_BITS
    first, last = max(ids[0], others[0]) >> shift, min(ids[1], others[1]) >> shift
    here, there = ids[0] >> shift, others[0] >> shift
    return slice(first - here, last - here + 1), slice(first - there, last - there + 1)


def _part_of_site(site: int, first_id: int, last_id: int, first: int, last: int) -> float:
    """Return which part of the page ids of a site in one range is also in another one."""
    begin, end = site << (64 - SITE_BITS), (site + 1) << (64 - SITE_BITS)
    begin, end = max(begin, first_id), min(end, last_id + 1)
    return (min(end, last + 1) - max(begin, first)) / (end - begin)


def _earliest(seconds: Iterable[int]) -> int:
    """Return the first of the seconds that have come; -1 if none has."""
    return min((second for second in seconds if second >= 0), default=-1)


def _longest_waits(waits: Iterable[dict[int, HostWait]]) -> dict[int, HostWait]:
    longest: dict[int, HostWait] = {}
    for of_shard in waits:
        for host, wait in of_shard.items():
            if host not in longest or wait.until > longest[host].until:
                longest[host] = wait
    return longest


def _known_mean(weights: Array, values: Sequence[float]) -> float:
    """Return the weighted mean of the values that are known; NaN if none is."""
    known = [(weight, value) for weight, value in zip(weights, values, strict=True) if not np.isnan(value)]
    total = sum(weight for weight, _ in known)
    return float(sum(weight * value for weight, value in known) / total) if total > 0 else float("nan")
