"""The pages that pay a page most, for all pages in one pass over the remembered links."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.layout import LINKS_KNOWN, NOWHERE, Book, Table
from opicflow.pipelines.ledger.pages.links import links_of, stored_weight, total_weight
from opicflow.pipelines.ledger.pages.numbers import follow
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def find_payers_of(table: Table, book: Book, importance: Array, page: Int, payers: Array, parts: Array) -> Int:
    """Fill in the slots of all pages that pay the page at one slot, and the part of its importance from each.

    Returns how many there are. `payers` and `parts` have room for as many as there are pages.
    """
    found, damping = np.int64(0), book.rules[0].damping
    for slot in range(book.counts[0].slots):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        if count == 0 or (table.pages[slot].flags & LINKS_KNOWN) == 0:
            continue
        start = table.link_start[slot]
        for i in range(count):
            link = book.links[start + i]
            if link >= 0 and follow(book, link) == page:
                paid = damping * importance[slot] * np.float64(stored_weight(book, start, count, weighted, i))
                part = paid / np.float64(total_weight(book, start, count, weighted)) / importance[page]
                if found > 0 and payers[found - 1] == slot:  # a link that is there twice
                    parts[found - 1] += part
                else:
                    payers[found] = slot
                    parts[found] = part
                    found += 1
    return found


@lean_kernel
def find_payers(table: Table, book: Book, importance: Array, payers: Array, parts: Array) -> None:
    """Fill in, for each slot, the slots of the pages that pay it most, and the part of its importance from each.

    `payers` and `parts` are [slots, most]; the page that pays most comes first, and of equal ones the one born first.
    """
    most = parts.shape[1]
    damping = book.rules[0].damping
    for slot in range(book.counts[0].slots):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        if count == 0 or (table.pages[slot].flags & LINKS_KNOWN) == 0:
            continue
        start = table.link_start[slot]
        total = total_weight(book, start, count, weighted)
        for i in range(count):
            link = book.links[start + i]
            to = follow(book, link) if link >= 0 else np.int64(NOWHERE)
            if to < 0 or importance[to] <= 0.0:
                continue
            paid = damping * importance[slot] * np.float64(stored_weight(book, start, count, weighted, i))
            part = np.float32(paid / np.float64(total) / importance[to])
            rank = most
            while rank > 0 and part > parts[to, rank - 1]:
                rank -= 1
            if rank < most:
                for lower in range(most - 1, rank, -1):
                    parts[to, lower] = parts[to, lower - 1]
                    payers[to, lower] = payers[to, lower - 1]
                parts[to, rank] = part
                payers[to, rank] = slot
