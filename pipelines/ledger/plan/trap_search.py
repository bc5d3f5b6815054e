"""Finds the traps and twins among a ledger's pages, by the rule of `pipelines.discovery.trap_rule`.

Nothing is kept: a plan finds them again, from URLs, links, contents and importance as the ledger has them. So it
takes no time between plans, a restored ledger finds the same ones, and a wrong judgement is forgotten with its reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.discovery.trap_rule import (
    MORE,
    TWIN,
    WHY,
    Judged,
    LimitedPages,
    ParameterPages,
    ShapePages,
    TrapRule,
    Traps,
    judge_parameters,
    judge_shapes,
    share_orders,
    twins_of,
)
from opicflow.pipelines.ledger.pages.layout import ALIASED, LINKS_KNOWN, Book, Table, taken_of
from opicflow.pipelines.ledger.pages.links import links_of
from opicflow.pipelines.ledger.pages.numbers import follow
from opicflow.pipelines.ledger.pages.refresh_rows import field_of
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.pages.url_arena import url_at
from opicflow.schemas.arrays import Array, Bools, Floats, Hashes, Ints, Words
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.url_shapes import (
    MOST_SHAPE_BYTES,
    count_parameters,
    hash_parameters,
    hash_shapes,
    hash_without,
    name_parameters,
    number_hashes,
)

_LONGEST = (1 << 16) + 2  # bytes of a URL in the arena, and a little
_LITTLE = 1e-300


@dataclass(frozen=True)
class FoundTraps:
    """The traps and twins of a ledger."""

    limited: LimitedPages
    """A row for each page, in slot order. The groups are those of `trap_shapes`, then of `parameters`."""
    shape: Array
    """The number of the shape of each page; 0 = nothing of its URL may be any."""
    traps: Traps
    """The figures of all shapes, by their numbers."""
    trap_shapes: Ints
    """The shapes that are traps."""
    parameters: Judged
    """The parameters that mean nothing."""
    of_parameter: Array
    """1 + the row in `parameters` of the first one that each page has; 0 = it has none."""


@dataclass(frozen=True)
class TrapFigures:
    """A trap, or the twins of a parameter, as people see it."""

    why: str
    """One of `WHY`."""
    example: str
    """The URL of one of its pages."""
    parameter: str
    """The name of the parameter; empty for a trap."""
    known: int
    read: int
    limited: int
    """Its pages that have a limit."""
    visits: int
    importance: float
    """Of all its pages together."""


class _Pages(NamedTuple):
    """Columns of all pages, in slot order."""

    slots: Ints
    url_start: Ints
    importance: Floats
    is_read: Bools
    is_alias: Bools
    digest: Array


def find_traps(
    room: Room, key: Words, slots: Ints, importance: Floats, discovery: float, rule: TrapRule | None = None
) -> FoundTraps:
    """Find the traps and twins among all pages, whose slots and importance these are.

    `discovery` is the share of the bandwidth that unread pages get.
    """
    rule, table, book = rule or TrapRule(), room.table, room.book
    taken = taken_of(slots)
    is_read = (table.pages["class_"][taken] & 1) == 1
    is_alias = is_read & (table.pages["outcome"][taken] == ALIASED)
    digest = field_of(table, "digest", taken)
    digest[is_alias] = 0
    pages = _Pages(slots, table.url_start[taken], importance, is_read, is_alias, digest)
    parameters, is_twin, of_parameter = _find_twins(table, book, key, pages, rule)
    shape, shape_names = _number_shapes(book, key, pages.url_start)
    figures, by_others = _judge_shapes(table, book, pages, is_twin, shape, len(shape_names), rule)
    trap_shapes = np.flatnonzero(figures.why)
    group = np.zeros(len(shape_names) + 1, np.int32)
    group[trap_shapes] = 1 + np.arange(len(trap_shapes))
    of = group[shape]
    of[by_others] = 0
    of[is_twin] = len(trap_shapes) + of_parameter[is_twin]
    why = np.concatenate((figures.why[trap_shapes], np.full(len(parameters.name), TWIN, np.uint8)))
    worth = np.concatenate((figures.importance[trap_shapes], np.zeros(len(parameters.name))))
    share = share_orders(worth / max(float(importance[is_read].sum()), _LITTLE), why, discovery, rule)
    names = np.concatenate((shape_names[trap_shapes - 1], parameters.name))
    phase = (names >> np.uint64(11)).astype(np.float64) / (1 << 53)
    limited = LimitedPages(of, np.append(np.uint8(0), why), np.append(0.0, share), np.append(0.0, phase))
    return FoundTraps(limited, shape, figures, trap_shapes, parameters, of_parameter)


def figures_of(found: FoundTraps, room: Room, key: Words, slots: Ints, importance: Floats) -> list[TrapFigures]:
    """Return the traps and twins that have limited pages as people see them, those that were fetched most first."""
    table, book = room.table, room.book
    traps, parameters = len(found.trap_shapes), len(found.parameters.name)
    group = np.zeros(len(found.traps.why), np.int64)
    group[found.trap_shapes] = 1 + np.arange(traps)
    is_read, visits = (table.pages["class_"][slots] & 1) == 1, table.pages["visits"][slots]
    limited = np.bincount(found.limited.of, minlength=1 + traps + parameters)
    rows = list[TrapFigures]()
    for first, of, groups in ((1, group[found.shape], traps), (1 + traps, found.of_parameter, parameters)):
        known, read, visited, worth = (
            np.bincount(of, column, 1 + groups) for column in (None, is_read, visits, importance)
        )
        examples = np.zeros(1 + groups, np.int64)
        examples[of[::-1]] = np.arange(len(of))[::-1]
        for number in range(1, 1 + groups):
            url_start = table.url_start[slots[examples[number] : examples[number] + 1]]
            rows.append(
                TrapFigures(
                    why=WHY[found.limited.why[first + number - 1]],
                    example=_text_at(book, int(url_start[0])),
                    parameter=_name_of(book, key, url_start, int(found.parameters.name[number - 1]))
                    if first > traps
                    else "",
                    known=int(known[number]),
                    read=int(read[number]),
                    limited=int(limited[first + number - 1]),
                    visits=int(visited[number]),
                    importance=float(worth[number]),
                )
            )
    return sorted((row for row in rows if row.limited), key=lambda row: (-row.visits, row.example))


def _text_at(book: Book, start: int) -> str:
    return url_at(book, start).decode("utf-8", "replace")


def _name_of(book: Book, key: Words, url_start: Ints, wanted: int) -> str:
    """Return the name of the parameter of a URL that has this hash."""
    counts = np.zeros(1, np.int64)
    count_parameters(book.urls, url_start, counts)
    number = int(counts[0])
    names, bare, kept = np.zeros(number, np.uint64), np.zeros(number, np.uint64), np.zeros(number, np.int8)
    hash_parameters(book.urls, url_start, 0 * url_start, key, np.zeros(_LONGEST, np.uint8), names, bare, kept)
    begins, ends = np.zeros(number, np.int64), np.zeros(number, np.int64)
    name_parameters(book.urls, int(url_start[0]), begins, ends)
    row = names.tolist().index(wanted)
    return book.urls[begins[row] : ends[row]].tobytes().decode("utf-8", "replace")


def _number_shapes(book: Book, key: Words, url_start: Ints) -> tuple[Array, Hashes]:
    """Return the number of the shape of each URL, from 1 on, or 0; and the hashes of the shapes by their numbers."""
    rows = len(url_start)
    hashes, shape, firsts = np.zeros(rows, np.uint64), np.zeros(rows, np.int32), np.zeros(rows + 1, np.int32)
    hash_shapes(book.urls, url_start, key, np.zeros(MOST_SHAPE_BYTES, np.uint8), hashes)
    table_rows = np.zeros(1 << (2 * rows + 1).bit_length(), np.int32)  # there may be very many pages
    shapes = int(number_hashes(hashes, table_rows, shape, firsts))
    return shape, hashes[firsts[1 : shapes + 1]]


def _judge_shapes(
    table: Table, book: Book, pages: _Pages, is_twin: Bools, shape: Array, shapes: int, rule: TrapRule
) -> tuple[Traps, Bools]:
    """Judge all shapes; also return which pages are known by others. Links are read only if a shape may be a trap."""
    end, taken = int(book.counts[0].slots), taken_of(pages.slots)
    by_slot, twin_at = shape, is_twin
    if len(shape) < end:
        by_slot, twin_at = np.zeros(end, np.int32), np.zeros(end, np.bool_)
        by_slot[taken], twin_at[taken] = shape, is_twin
    by_others, leads = np.zeros(end, np.bool_), np.zeros(end, np.int32)
    read = np.bincount(shape[pages.is_read], minlength=shapes + 1)
    if (read[1:] >= rule.least_read).any():
        if len(table.link_count):
            read_links(table, book, by_slot, twin_at, by_others)
        if len(table.found_by):
            count_leads(table, by_slot, twin_at, leads)
    of_page = by_others[taken]
    columns = ShapePages(shape, pages.importance, pages.is_read, of_page, pages.is_alias, pages.digest, leads[taken])
    mean = float(pages.importance[pages.is_read].sum()) / max(int(pages.is_read.sum()), 1)
    judged = judge_shapes(columns, shapes, mean, rule)
    if not len(table.link_count):  # which pages are known by others is not remembered
        judged.why[:] = 0
    elif not len(table.found_by):  # where pages have led is not known
        judged.why[judged.why == MORE] = 0
    return judged, of_page


@lean_kernel
def read_links(table: Table, book: Book, shape: Array, is_twin: Bools, by_others: Bools) -> None:
    """Mark the slots of pages to which a page of another shape links. Twins and canonical URLs say nothing."""
    for slot in range(shape.shape[0]):
        count = links_of(table, slot)
        if count == 0 or is_twin[slot] or (table.pages[slot].flags & LINKS_KNOWN) == 0:
            continue
        if table.pages[slot].outcome == ALIASED:
            continue
        start, own = table.link_start[slot], shape[slot]
        for i in range(count):
            link = book.links[start + i]
            if link >= 0:
                to = follow(book, link)
                if to >= 0 and shape[to] != 0 and shape[to] != own:
                    by_others[to] = True


@lean_kernel
def count_leads(table: Table, shape: Array, is_twin: Bools, leads: Array) -> None:
    """Count for each slot how many pages of other shapes, no twins, were found by its page first."""
    for slot in range(shape.shape[0]):
        finder = table.found_by[slot] - 1
        if finder >= 0 and table.pages[slot].flags != 0 and not is_twin[slot] and shape[finder] != shape[slot]:
            leads[finder] += 1


@lean_kernel
def find_canonical(table: Table, book: Book, slots: Ints, url_start: Ints) -> None:
    """Fill in where the URLs of the pages begin that the pages at these slots, which are aliases, name."""
    for i in range(slots.shape[0]):
        url_start[i] = 0
        if slots[i] >= 0 and links_of(table, slots[i]) == 1:
            link = book.links[table.link_start[slots[i]]]
            to = follow(book, link) if link >= 0 else np.int64(-1)
            if to >= 0:
                url_start[i] = table.url_start[to]


def _find_twins(table: Table, book: Book, key: Words, pages: _Pages, rule: TrapRule) -> tuple[Judged, Bools, Array]:
    """Find the parameters that mean nothing, the pages that are twins, and 1 + the parameter of each."""
    of, no_twins = np.zeros(len(pages.slots), np.int32), np.zeros(len(pages.slots), np.bool_)
    read = np.flatnonzero(pages.is_read)
    counts = np.zeros(len(read), np.int64)
    count_parameters(book.urls, pages.url_start[read], counts)
    rows, counts = read[counts > 0], counts[counts > 0]
    if len(rows) < rule.least_read:
        return Judged(np.zeros(0, np.uint64), np.zeros(0, np.int64)), no_twins, of
    total, room = int(counts.sum()), np.zeros(_LONGEST, np.uint8)
    names, bare, kept = np.zeros(total, np.uint64), np.zeros(total, np.uint64), np.zeros(total, np.int8)
    canonical = np.zeros(len(rows), np.int64)
    if len(table.link_count):
        find_canonical(table, book, np.where(pages.is_alias[rows], pages.slots[rows], -1), canonical)
    hash_parameters(book.urls, pages.url_start[rows], canonical, key, room, names, bare, kept)
    columns = ParameterPages(names, bare, kept, np.repeat(pages.digest[rows], counts))
    compared = read[pages.digest[read] != 0] if columns.digest.any() else read[:0]
    whole, number = np.zeros(len(compared), np.uint64), np.zeros(len(compared), np.int32)
    hash_without(book.urls, pages.url_start[compared], key, names[:0], room, whole, number)
    judged = judge_parameters(columns, whole, pages.digest[compared], rule)
    if not len(judged.name):
        return judged, no_twins, of
    whole = np.zeros(len(pages.slots), np.uint64)
    hash_without(book.urls, pages.url_start, key, judged.name, room, whole, of)
    return judged, twins_of(whole, of, pages.is_read), of
