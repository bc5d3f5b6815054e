"""Settling: the round alone, over and over, along remembered links, until ranks stand still.

A log that visited every page once tells the graph but leaves the ranks half-way: early pages paid before they had
earned. Here every page spends once a round, in the order in which pages came in, on copies of the columns that
spending changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entries import Ids, Ints
from opicflow.pipelines.ledger.estimates import Floats
from opicflow.pipelines.ledger.kernels.index import find
from opicflow.pipelines.ledger.kernels.links import recall_links
from opicflow.pipelines.ledger.kernels.spending import damped
from opicflow.pipelines.ledger.layout import (
    CUT_PER_1000,
    DAMPING_Q20,
    LINKS_KNOWN,
    LONGEST,
    P_ABSORBING,
    POLICY,
    VIRTUAL,
    Array,
    Book,
    Int,
    Scratch,
    Table,
)
from opicflow.pipelines.ledger.room import new_scratch
from opicflow.schemas.kernel import kernel, lean_kernel


@dataclass(frozen=True)
class Settled:
    """The importance of every page, in the order in which pages came in.

    `residual` is the L1 distance between what pages earned and what that would earn them in one more step, as a share
    of all: the importance returned is that further step.
    """

    pages: Ids
    importance: Floats
    residual: float


def settle_links(table: Table, book: Book, pages: Ids, slots: Ints, rounds: int) -> Settled:
    """Run `rounds` rounds over the pages at `slots` on a copy; report what was received in the later half."""
    row_of = np.full(len(table.pages), -1, np.int64)
    row_of[slots] = np.arange(len(slots))
    counts = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(_link_counts(table, slots), out=counts[1:])
    targets = np.zeros(counts[-1], np.int64)
    weights = np.zeros(counts[-1], np.int64)
    _resolve(table, book, new_scratch(int(book.modes[LONGEST])), slots, row_of, counts, targets, weights)

    rows = table.pages[slots]
    classes = rows["class_"].astype(np.int64)
    raw = table.hot[slots, 1]
    cash = np.where(raw >= 0, raw, ~raw) + book.dividends[classes] - rows["seen"]
    virtual = int(book.counts[VIRTUAL])
    if book.modes[POLICY] == P_ABSORBING:  # little may be left to settle with: begin anew
        cash, virtual = np.full(len(slots), UNITS_PER_PAGE, np.int64), 0
    earned = np.zeros(len(slots), np.int64)
    received = _run(
        counts,
        targets,
        weights,
        cash,
        classes,
        book.class_weights,
        earned,
        virtual,
        rounds,
        int(book.modes[DAMPING_Q20]),
        max(1, len(slots) * int(book.modes[CUT_PER_1000]) // 1000),
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


@lean_kernel
def _resolve(
    table: Table,
    book: Book,
    scratch: Scratch,
    slots: Array,
    row_of: Array,
    starts: Array,
    targets: Array,
    weights: Array,
) -> None:
    """Remembered links as rows of the pages they lead to, -1 where a page was dropped."""
    for row in range(slots.shape[0]):
        if starts[row + 1] > starts[row]:
            count = recall_links(table, book, scratch, slots[row])
            for i in range(count):
                slot = find(table.id_index, table.id_index_old, table.hot, scratch.pages[i])
                targets[starts[row] + i] = row_of[slot] if slot >= 0 else -1
                weights[starts[row] + i] = scratch.weights[i]


@kernel
def _run(
    starts: Array,
    targets: Array,
    weights: Array,
    cash: Array,
    classes: Array,
    class_weights: Array,
    earned: Array,
    virtual: Int,
    rounds: Int,
    damping_q20: Int,
    spends_per_cut: Int,
) -> Array:
    """The rounds. `earned` gets what pages spent in the later half; returns what they received in it."""
    rows = cash.shape[0]
    dividends = np.zeros(class_weights.shape[0], np.int64)
    seen = np.zeros(rows, np.int64)
    weighted = np.int64(0)
    for row in range(rows):
        weighted += class_weights[classes[row]]
    begun = np.zeros(rows, np.int64)
    spends = 0
    for turn in range(rounds):
        if turn == rounds // 2:
            for row in range(rows):
                begun[row] = cash[row] + dividends[classes[row]] - seen[row]
                earned[row] = 0
        for row in range(rows):
            class_ = classes[row]
            amount = cash[row] + dividends[class_] - seen[row]
            seen[row] = dividends[class_]
            cash[row] = 0
            earned[row] += amount
            total = np.int64(0)
            for i in range(starts[row], starts[row + 1]):
                total += weights[i]
            paid = np.int64(0)
            if total > 0:
                out = damped(amount, damping_q20)
                per_weight, rest = out // total, out % total
                for i in range(starts[row], starts[row + 1]):
                    if targets[i] >= 0:
                        share = per_weight * weights[i] + rest * weights[i] // total
                        cash[targets[i]] += share
                        paid += share
            virtual += amount - paid
            spends += 1
            if spends == spends_per_cut and weighted > 0:
                spends = 0
                each = virtual // weighted
                virtual -= each * weighted
                for c in range(dividends.shape[0]):
                    dividends[c] += each * class_weights[c]
    received = np.zeros(rows, np.int64)
    for row in range(rows):
        received[row] = earned[row] + cash[row] + dividends[classes[row]] - seen[row] - begun[row]
    return received
