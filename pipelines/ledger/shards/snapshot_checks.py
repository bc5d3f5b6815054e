"""Checks of the content of a snapshot: whether a ledger of its configuration can be in this state.

Checksums prove that chunks are as they were written. Kernels check no bounds, so every number is checked here before
they run. Each function returns the first problem in a few words, or nothing; the caller refuses the snapshot. Whether
the books balance is checked by `balance.audit`.
"""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from opicflow.pipelines.discovery import DiscoveryRule
from opicflow.pipelines.ledger.config import (
    MOST_CASH,
    UNITS_PER_PAGE,
    Certified,
    LedgerConfig,
    check_class_weights,
    check_link_bonus,
    is_whole,
)
from opicflow.pipelines.ledger.entry_checks import MOST_LINKS, is_gossip
from opicflow.pipelines.ledger.ledger_state import Reviews, Times, decode_gossip
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.announcements import IN_USE, MOST_COUNTED
from opicflow.pipelines.ledger.pages.column_kinds import fixed_rows, measures_kept
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.room import new_book
from opicflow.pipelines.ledger.pages.url_order import is_url_order
from opicflow.pipelines.ledger.plan.policies_in_force import BUDGET_FIELDS
from opicflow.pipelines.ledger.shards.page_checks import PAGE_PROBLEMS, find_page_problem
from opicflow.pipelines.refresh.policies import Policies, check
from opicflow.schemas.arrays import Array
from opicflow.schemas.event_columns import BEST_QUALITY
from opicflow.schemas.pages import PageIds
from opicflow.schemas.policy_json import policy_from_json

_MOST = (1 << 63) - 1
_MOST_WORTH = 2000.0  # more than any logarithm of importance, and than the difference of two
_MOST_LEARNT = 1e30
_WRAP = 1 << 64
_NEGATIVE_COUNTS = ("virtual", "virtual_income", "first_reads")
_TALLIES = (
    "visits_since_cut",
    "visits",
    "duplicates",
    "late",
    "refused_visits",
    "births",
    "dropped",
    "transfers",
    "visits_since_sweep",
    "announcements",
    "sightings",
    "recent",
    "recent_side",
    "shares",
    "evicted",
    "long_gone",
    "url_stale",
)
_CHANGING_MODES = ("damping_q20", "longest", "bonus", "like_us")
_CHANGING_RULES = ("damping", "window")
_STATE = {
    "config",
    "shard",
    "shards",
    "cut",
    "marks",
    "peers",
    "times",
    "credits",
    "publications",
    "published_budget",
    "url_generation",
    "busy_hosts",
}
_TIMES = {one.name for one in fields(Times)}
_REVIEWS = {"second", "read", "share", "seen", "followed", "credits", "waiting"}


def state_problem(state: dict[str, object], config: LedgerConfig, shard: int, shards: int) -> str:
    """The first problem of the state that is not columns; empty if there is none."""
    has = {"reviews": config.learns_discovery, "whole_cut": config.cut_seconds > 0}
    if set(state) - {"first_ids", *has} != _STATE or any((one in state) != has[one] for one in has):
        return "its state has other parts"
    if not (is_whole(state["cut"], 0, _MOST) and is_whole(state["url_generation"], 0, _MOST)):
        return "its cut or generation is no number"
    if not (isinstance(state["marks"], list) and all(_is_mark(mark) for mark in state["marks"])):
        return "a mark is none"
    names = [mark[0] for mark in state["marks"]]
    if names != sorted(set(names)):
        return "its marks are out of order"
    is_certified = isinstance(config.history, Certified)
    width = 7 if config.cut_seconds else 4
    if not (_are_lists(state["peers"], width) and all(_is_peer(peer, shards, is_certified) for peer in state["peers"])):
        return "a peer is none"
    if config.cut_seconds and not _is_whole_cut(state["whole_cut"], shards, is_certified):
        return "its last whole cut is none"
    if [peer[0] for peer in state["peers"]] != [other for other in range(shards) if other != shard]:
        return "its peers are not the other shards"
    credits = state["credits"]
    if type(credits) is not dict or set(credits) != {"refresh", "discovery"}:
        return "its credits have other parts"
    refresh, discovery = credits["refresh"], credits["discovery"]
    if not all(isinstance(credit, float) for credit in (refresh, discovery)):
        return "a credit is no number"
    if not (-_MOST <= refresh < 1.0 and 0.0 <= discovery < 1.0):
        return "a credit is out of bounds"
    return (
        _times_problem(state["times"])
        or _policies_problem(state["publications"], config.categories)
        or _budget_problem(state["published_budget"], config.categories)
        or _busy_problem(state["busy_hosts"])
        or _reviews_problem(state.get("reviews"))
    )


def column_problem(
    config: LedgerConfig, table: Table, book: Book, links: Array, ids: tuple[int, int], unheard: int
) -> str:
    """The first problem of the columns, whose types and shapes are right; empty if there is none.

    `links` are the stored ones: the book does not have them yet.
    """
    return (
        _length_problem(config, table, book, links, ids)
        or _domains_problem(book)
        or _book_problem(config, book, ids, unheard)
        or _page_problem(config, table, book)
        or _arena_problem(config, table, book, links)
    )


def recent_problem(config: LedgerConfig, book: Book, latest: Array, before: Array) -> str:
    """The first problem of the recent visits; empty if there is none."""
    most = config.remembered_visits
    for keys in (latest, before):
        if (keys == 0).any() or (keys[1:] <= keys[:-1]).any():
            return "its recent visits are out of order"
    if len(book.counts) != 1 or book.counts[0].recent_side != 0:
        return "its accounts are not those of this version"
    if book.counts[0].recent != len(latest) or len(latest) >= max(most, 1):
        return "its recent visits are not as many as their count"
    return "" if len(before) == 0 or len(before) >= most else "its visits before the latest are too few"


def announced_problem(book: Book, sites: Array, counts: Array) -> str:
    """Return the first fault of the stored worth of announcements; empty if there is none."""
    if len(sites) != len(counts) or (len(sites) and not 0 <= int(sites[0]) <= int(sites[-1]) < len(book.announced)):
        return "sites of announcements are not those of the shard"
    if (np.diff(sites) <= 0).any() or (counts[:, IN_USE] != 1).any():
        return "sites of announcements are out of order, or not in use"
    if not ((counts >= 0) & (counts <= MOST_COUNTED)).all():  # false for NaN
        return "what announcements are worth is counted wrong"
    return ""


def _domains_problem(book: Book) -> str:
    least, most = np.array([0, 0, 0, -at.UNLIMITED, 0]), np.array([book.counts[0].pages, *[at.UNLIMITED] * 4])
    if ((book.domains < least) | (book.domains > most)).any():
        return "a limit of a domain is out of bounds"
    return ""


def lost_problem(book: Book, ids: Array, amounts: Array) -> str:
    """The first problem of what links carry to absent pages under `certified`; empty if there is none."""
    if len(ids) != len(amounts) or len(book.sums) != 1 or book.sums[0].lost_rows != len(ids):
        return "its absent pages are not as many as their count"
    if (ids == 0).any() or (ids[1:] <= ids[:-1]).any() or (amounts == 0).any():
        return "its absent pages are out of order"
    return ""


def _is_mark(mark: object) -> bool:
    return (
        type(mark) is list
        and len(mark) == 8
        and type(mark[0]) is str
        and mark[0].isprintable()
        and all(is_whole(value, 0, _MOST) for value in mark[1:4])
        and is_whole(mark[4], 0, _WRAP - 1)
        and is_whole(mark[5], 0, _MOST)
        and is_whole(mark[6], -_MOST, _MOST)
        and _are_lists(mark[7], 4)
        and all(map(_is_ahead, mark[7]))
    )


def _is_ahead(values: list[object]) -> bool:
    first_id, last_id, *position = values
    return (
        is_whole(first_id, 0, _WRAP - 1)
        and is_whole(last_id, first_id, _WRAP - 1)
        and all(is_whole(value, 0, _MOST) for value in position)
    )


def _is_peer(peer: list[object], shards: int, is_certified: bool) -> bool:
    gossip = peer[3]
    return (
        is_whole(peer[0], 0, _MOST)
        and is_whole(peer[1], 0, _MOST)
        and is_whole(peer[2], 0, _WRAP - 1)
        and _is_stored_gossip(gossip, shards, is_certified)
        and (len(peer) == 4 or (is_whole(peer[4], 0, _MOST) and is_whole(peer[5], -1, _MOST) and type(peer[6]) is bool))
    )


def _is_whole_cut(values: object, shards: int, is_certified: bool) -> bool:
    return (
        type(values) is list
        and len(values) == 2
        and is_whole(values[0], -1, _MOST)
        and _is_stored_gossip(values[1], shards, is_certified)
    )


def _is_stored_gossip(gossip: object, shards: int, is_certified: bool) -> bool:
    return gossip is None or (type(gossip) is list and is_gossip(decode_gossip(gossip), shards, is_certified))


def _times_problem(times: object) -> str:
    if type(times) is not dict or set(times) != _TIMES:
        return "its times have other parts"
    if type(times["policies_changed"]) is not bool:
        return "it is not known whether policies changed"
    if not is_whole(times["sweep_received"], 0, MOST_CASH):
        return "the cash received is out of bounds"
    readings, ahead = times["visits_by"], times["ahead_theta"]
    if not (_are_lists(readings, 2) and all(is_whole(one, 0, _MOST) for row in readings for one in row)):
        return "its visits by second are out of bounds"
    if ahead is not None and not is_whole(ahead, 0, _WRAP - 1):
        return "its clock of visits ahead is out of bounds"
    seconds = (times[name] for name in times if name.endswith("_second"))
    if not all(is_whole(second, -1, _MOST) for second in seconds):
        return "a time is no second"
    rate_sum, days = times["sweep_rate_sum"], times["days"]
    if not (isinstance(rate_sum, float) and 0.0 <= rate_sum < math.inf):
        return "its sum of rates is none"
    if not (_are_lists(days, 2) and all(is_whole(s, 0, _MOST) and is_whole(t, 0, _WRAP - 1) for s, t in days)):
        return "a day is none"
    return "its days are out of order" if any(a[0] >= b[0] for a, b in pairwise(days)) else ""


def _policies_problem(values: object, categories: int) -> str:
    if type(values) is not dict or not is_whole(values.get("count"), 0, _MOST):
        return "its policies are none"
    listed: object = values.get("publications")
    if not _are_lists(listed, 3) or not all(
        is_whole(number, 1, values["count"]) and is_whole(second, 0, _MOST) for number, second, _ in listed
    ):
        return "a policy has no number or time"
    found = Policies.from_json(values, PageIds())  # whatever their rules: only the stored values are checked
    if found.to_json() != values:
        return "its policies are out of order"
    for one in found:
        check(one.policy, categories)
    return ""


def _budget_problem(values: object, categories: int) -> str:
    if type(values) is not dict or not set(values) <= set(BUDGET_FIELDS):
        return "its budget has other parts"
    if values:
        check(policy_from_json(values), categories)
    return ""


def _busy_problem(values: object) -> str:
    if not _are_lists(values, 4) or not all(
        is_whole(host, 1, _WRAP - 1)
        and is_whole(since, 0, _MOST)
        and is_whole(until, since + 1, _MOST)
        and is_whole(answers, 1, 255)
        for host, since, until, answers in values
    ):
        return "a host that waits is none"
    hosts = [row[0] for row in values]
    return "" if hosts == sorted(set(hosts)) else "its hosts that wait are out of order"


def _reviews_problem(reviews: object) -> str:
    """The first problem of what discovery has learnt; None is that of a ledger that does not learn it."""
    if reviews is None:
        return ""
    if type(reviews) is not dict or set(reviews) != _REVIEWS:
        return "its reviews have other parts"
    if not (is_whole(reviews["second"], -1, _MOST) and is_whole(reviews["read"], 0, _MOST)):
        return "its last review is none"
    seen, followed, credits, sizes = (reviews[name] for name in ("seen", "followed", "credits", "waiting"))
    if any(type(part) is not list for part in (seen, followed, credits, sizes)):
        return "its reviews have other parts"
    known_credits = [credit for credit in credits if credit is not None]
    numbers = [reviews["share"], *seen, *followed, *known_credits]
    if (len(seen), len(followed), len(credits)) != (9, 3, 2) or not all(
        isinstance(number, float) and abs(number) <= _MOST_LEARNT for number in numbers
    ):
        return "what its reviews have learnt is no number"
    evidence = np.array(seen).reshape(3, 3)
    if (evidence != evidence.T).any() or (evidence.diagonal() < 0.0).any():
        return "what its reviews have seen is no evidence"
    rule = DiscoveryRule()
    if not rule.least_share <= reviews["share"] <= rule.most_share or any(credit < 0.0 for credit in known_credits):
        return "its reviews explore too much, or too little"
    if len(sizes) > rule.wait_reviews or not all(is_whole(size, 0, _MOST) for size in sizes):
        return "its reviews are too many, or have no sizes"
    return "" if reviews["second"] >= 0 or not (sizes or reviews["read"]) else "its reviews have no time"


def judged_problem(columns: dict[str, Array], sizes: list[int]) -> str:
    """The first problem of the pages that discovery will learn from; empty if there is none."""
    if any(len(column) != sum(sizes) for column in columns.values()):
        return "the pages read in its reviews are not as many as its state has"
    if (columns["judged_explored"] > 1).any():
        return "a page read in its reviews was neither explored nor not"
    worth = [np.abs(columns[name]) for name in ("judged_own", "judged_siblings")]
    are_numbers = all((column <= _MOST_WORTH).all() for column in worth)  # false for NaN
    return "" if are_numbers else "what pages read in its reviews were worth is no number"


def quality_problem(table: Table, book: Book, quality: Array) -> str:
    """The first problem of the qualities of pages; empty if there is none."""
    if len(quality) == 0:
        return ""
    slots = int(book.counts[0].slots)
    if len(quality) != slots or not quality.any() or quality.max() >= BEST_QUALITY:
        return "its qualities are none"
    return "a free slot has a quality" if quality[table.pages["flags"][:slots] == 0].any() else ""


def window_problem(table: Table, tick_second: int) -> str:
    """Return the first fault of the windows of the history policy `certified`; empty if there is none."""
    means, seconds = table.window[:, 0], table.window[:, 1]
    if not ((means >= 0.0) & (means < math.inf)).all():  # false for NaN
        return "a mean importance is none"
    are_whole = (seconds == np.floor(seconds)) & (seconds >= 0.0) & (seconds <= max(tick_second, 0))
    return "" if are_whole.all() else "a window was updated at no second"


def discovery_problem(table: Table, book: Book, reviews: Reviews, tick_second: int) -> str:
    """Return the first fault of the pages of discovery, after `column_problem`; empty if there is none."""
    flags = table.pages["flags"]
    if reviews.second > tick_second or reviews.read != int(((flags & at.READ_BEFORE) != 0).sum()):
        return "its last review is none"
    if ((flags & at.READ_BEFORE) != 0)[(table.pages["class_"] & 1) == 0].any():
        return "an unread page was read before its last review"
    found_by = table.found_by
    if len(found_by) and not 0 <= int(found_by.min()) <= int(found_by.max()) <= len(found_by):
        return "a page was found by none"
    if not flags[found_by[(found_by != 0) & (flags[: len(found_by)] != 0)] - 1].all():
        return "a page was found by none"
    stored = book.url_order
    slots = np.where(stored >= 0, stored, ~stored)
    if len(stored) and int(slots.max()) >= len(table.pages):
        return "its order of URLs has other pages"
    in_order = np.flatnonzero(table.pages["flags"] & at.IN_URL_ORDER)
    if not np.array_equal(np.sort(slots), in_order) or not table.url_start[in_order].all():
        return "its order of URLs does not have each page once"
    return "" if is_url_order(table, book, stored) else "its order of URLs is another one"


def _are_lists(value: object, length: int) -> TypeGuard[list[list[Any]]]:
    return type(value) is list and all(type(inner) is list and len(inner) == length for inner in value)


def _book_problem(config: LedgerConfig, book: Book, ids: tuple[int, int], unheard: int) -> str:
    counts, modes, rules = book.counts[0], book.modes[0], book.rules[0]
    fresh = new_book(config, ids)
    limit = int(counts.minted) + int(counts.received)
    if any(counts[name] < 0 for name in at.COUNTS.names or () if name not in _NEGATIVE_COUNTS) or (
        abs(int(counts.virtual)) > limit
    ):
        return "a count is out of bounds"
    if _differ(modes, fresh.modes[0], _CHANGING_MODES) or modes.like_us != unheard:
        return "its modes are not those of its configuration"
    if any(counts[name] > MOST_CASH for name in _TALLIES) or abs(int(counts.first_reads)) > MOST_CASH >> 8:
        return "a tally is about to run over"
    if not 0 <= modes.longest <= (MOST_LINKS if config.remember_links else 0):
        return "a page has more links than any"
    damping_q20 = int(modes.damping_q20)
    if not 0 <= damping_q20 <= 1 << 20 or rules.damping != damping_q20 / (1 << 20):
        return "its damping is no share"
    check_class_weights(tuple(book.class_weights.tolist()), config.categories)
    check_link_bonus(tuple(book.link_bonus.tolist()), config.categories)
    is_certified = isinstance(config.history, Certified)
    window_in_days = not is_certified and getattr(config.history, "window_days", None) is not None
    if not 0.0 < rules.window < math.inf or not (window_in_days or rules.window == fresh.rules[0].window):
        return "its window is none"
    if _differ(rules, fresh.rules[0], _CHANGING_RULES) or modes.bonus != (book.link_bonus != 0).any():
        return "its rules are not those of its configuration"
    if (book.class_pages < 0).any() or (book.class_pages > counts.pages).any():
        return "a class is out of bounds"
    if counts.weighted_pages != int(book.class_weights @ book.class_pages):
        return "its weighted pages are not those of its classes"
    everywhere = int(counts.minted_everywhere)
    if not int(counts.minted) <= everywhere or counts.theta_carry > MOST_CASH or counts.minted > MOST_CASH:
        return "its minted cash is out of bounds"
    if int(counts.births) * UNITS_PER_PAGE != counts.minted or counts.broken:
        return "its births or state are impossible"
    if len(book.forgotten_until) != len(book.forgotten) or (book.forgotten_until < 0).any():
        return "its forgotten pages have no times"
    if (book.forgotten[1:] <= book.forgotten[:-1]).any():
        return "its forgotten pages are out of order"
    return ""


def _differ(accounts: Array, others: Array, but: tuple[str, ...]) -> bool:
    """Return whether accounts differ, but for some."""
    return any(accounts[name] != others[name] for name in accounts.dtype.names or () if name not in but)


def _length_problem(config: LedgerConfig, table: Table, book: Book, links: Array, ids: tuple[int, int]) -> str:
    counts, columns = book.counts[0], {**table._asdict(), **book._asdict(), "links": links}
    fixed = fixed_rows(config, ids)
    if any(len(columns[name]) != fixed.get(column.rows, len(columns[name])) for name, column in at.COLUMNS.items()):
        return "its accounts are not those of its configuration"
    needed = {name: column.rows for name, column in at.COUNTED.items() if column.is_needed(config)}
    if any(len(columns[name]) != counts[rows] for name, rows in needed.items()) or counts.link_stale:
        return "a column is not as long as its count"
    if counts.pages != counts.slots - counts.free or counts.cursor > counts.slots:
        return "its counts of slots do not fit"
    return ""


def _page_problem(config: LedgerConfig, table: Table, book: Book) -> str:
    free = table.free
    if len(free) and (free.min() < 0 or free.max() >= len(table.pages) or table.pages["flags"][free].any()):
        return "a free slot is none"
    if len(np.unique(free)) != len(free):
        return "a slot is free twice"
    problem = find_page_problem(table, book, measures_kept(config)[0])
    if problem >= 0:
        return PAGE_PROBLEMS[problem]
    if any(not np.isfinite(column).all() or (column < 0).any() for column in (table.spans, table.held)):
        return "a rate is no number"
    return "" if np.isfinite(table.measure_cash).all() else "a measure is no number"


def _arena_problem(config: LedgerConfig, table: Table, book: Book, links: Array) -> str:
    url_start = table.url_start[table.url_start != 0]
    if len(url_start) and (url_start.min() < 1 or url_start.max() > len(book.urls) - 1):
        return "a URL starts outside of the arena"
    lengths = book.urls[url_start - 1].astype(np.int64) + (book.urls[url_start].astype(np.int64) << 8)
    if (url_start + 1 + lengths > len(book.urls)).any():
        return "a URL ends outside of the arena"
    order = np.argsort(url_start, kind="stable")  # fast where they are in order, as they are after compaction
    begins, ends = url_start[order] - 1, url_start[order] + 1 + lengths[order]
    if (begins[1:] < ends[:-1]).any():  # compaction would write more than there was
        return "two pages share a part of the arena of URLs"
    if int((2 + lengths).sum()) + int(book.counts[0].url_stale) != len(book.urls):
        return "its URLs and those of removed pages are not the arena"
    if book.modes[0].policy == at.P_CERTIFIED:
        ids, sizes = book.outbox_pages.view(np.uint64), np.abs(book.outbox_amounts.astype(float))
        if (sizes == 0).any() or sizes.sum() > MOST_CASH or (ids[1:] <= ids[:-1]).any():
            return "its outbox is out of order, or out of bounds"
    else:
        limit = float(book.counts[0].minted) + float(book.counts[0].received)
        if (book.outbox_amounts <= 0).any() or book.outbox_amounts.astype(float).sum() > 1.000001 * limit:
            return "an amount in the outbox is out of bounds"
    if not config.remember_links:
        return "" if len(links) == 0 else "it remembers links"
    stored = table.link_count.astype(np.int64)
    counts, words = at.link_numbers(stored), at.link_words(stored)
    starts = table.link_start
    if (counts > book.modes[0].longest).any():
        return "a page has more links than any"
    if not np.array_equal(starts, np.where(words > 0, _sums_before(words), 0)) or words.sum() != len(links):
        return "remembered links are out of order"
    return ""


def _sums_before(words: Array) -> Array:
    sums = np.zeros(len(words), np.int64)
    np.cumsum(words[:-1], out=sums[1:])
    return sums
