"""Rounds of spending along remembered links, without visits, until ranks no longer change.

A log with one visit to every page holds the graph, but its ranks are half-way: early pages paid before they had
earned. Here every page spends once a round, in slot order, on copies of the columns that spending changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.kernels.rounds import resolve_links, run_rounds
from opicflow.pipelines.ledger.layout import (
    LINKS_KNOWN,
    P_ABSORBING,
    Book,
    Table,
)
from opicflow.pipelines.ledger.room import new_scratch
from opicflow.schemas.arrays import Floats, Ids, Ints


@dataclass(frozen=True)
class Settled:
    """The importance of every page, in slot order.

    `residual` is the L1 distance between the earnings of the later rounds and those of one more step, as a share of
    all. `importance` is that further step.
    """

    pages: Ids
    importance: Floats
    residual: float


def settle_links(table: Table, book: Book, pages: Ids, slots: Ints, rounds: int) -> Settled:
    """Run `rounds` rounds over the pages at `slots` on a copy; report what pages received in the later half."""
    row_of = np.full(len(table.pages), -1, np.int64)
    row_of[slots] = np.arange(len(slots))
    counts = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(_link_counts(table, slots), out=counts[1:])
    targets = np.zeros(counts[-1], np.int64)
    weights = np.zeros(counts[-1], np.int64)
    resolve_links(table, book, new_scratch(int(book.modes[0].longest)), slots, row_of, counts, targets, weights)

    rows = table.pages[slots]
    classes = rows["class_"].astype(np.int64)
    raw = table.hot[slots, 1]
    cash = np.where(raw >= 0, raw, ~raw) + book.dividends[classes] - rows["seen"]
    virtual = int(book.counts[0].virtual)
    if book.modes[0].policy == P_ABSORBING:  # little cash may be left: start again from a page's cash each
        cash, virtual = np.full(len(slots), UNITS_PER_PAGE, np.int64), 0
    earned = np.zeros(len(slots), np.int64)
    received = run_rounds(
        counts,
        targets,
        weights,
        cash,
        classes,
        book.class_weights,
        earned,
        virtual,
        rounds,
        int(book.modes[0].damping_q20),
        max(1, len(slots) * int(book.modes[0].cut_per_1000) // 1000),
    )
    total = float(received.sum())
    return Settled(
        pages=pages,
        importance=received / total if total > 0 else np.zeros(len(slots)),
        residual=float(np.abs(received - earned).sum()) / max(float(earned.sum()), 1.0),
    )


def _link_counts(table: Table, slots: Ints) -> Ints:
    stored = table.link_count[slots].astype(np.int64)
    known = (table.pages[slots]["flags"] & LINKS_KNOWN) != 0
    return np.where(known, np.where(stored >= 0, stored, -1 - stored), 0)
