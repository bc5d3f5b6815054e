"""Payments under the policy `certified` (docs/decisions/certified.md): signed cash that keeps every page's law.

A page has paid `p` in all (`totals`), and holds the residual `r`, which it has not paid on yet (`hot`; it may be
negative). With c, the base of its class, and s(p), what a link carries of all that its page has paid:

    p + r == c + the sum of s(p_i) over the links to the page

A page that pays nobody has no residual: what it receives is paid at once. What links carry to pages of this shard that
are not in the ledger is kept in a side table, until such a page is learnt again. What they carry to pages of other
shards waits in the outbox for the next cut.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.kernels.index import find, guess
from opicflow.pipelines.ledger.kernels.links import links_of, stored_weight
from opicflow.pipelines.ledger.layout import P_CERTIFIED, Book, Bool, Int, Scratch, Table
from opicflow.schemas.arrays import Array
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch

_LOW_Q20 = (1 << 20) - 1
_EMPTY = np.int64(0)


@inlined_kernel
def damped(amount: Int, share_q20: Int) -> Int:
    """`amount * share / 2^20`, rounded down, for any amount without overflow."""
    return (amount >> 20) * share_q20 + (((amount & _LOW_Q20) * share_q20) >> 20)


@inlined_kernel
def split(amount: Int, weight: Int, total: Int) -> Int:
    """`amount * weight / total`, rounded down, for any amount without overflow."""
    return amount // total * weight + amount % total * weight // total


@inlined_kernel
def base_of(book: Book, class_: Int) -> Int:
    """The base of a class, c: the cash that the small edge gives a page, (1 - damping) * units * weight / 16."""
    return (np.int64(1 << 20) - book.modes[0].damping_q20) * book.class_weights[class_]


# -- the side table ----------------------------------------------------------------------------------------------------


@inlined_kernel
def lost_row(ids: Array, page: Int) -> Int:
    """The row of a page in the side table, or the empty row where it would be."""
    mask = np.int64(ids.shape[0] - 1)
    row = np.int64((np.uint64(page) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while ids[row] != _EMPTY and ids[row] != page:
        row = (row + 1) & mask
    return row


@lean_kernel
def lose(book: Book, page: Int, amount: Int) -> None:
    """Keep what a link carries to a page that is not in the ledger. The caller has seen to room."""
    sums = book.sums[0]
    sums.lost += amount
    if page == _EMPTY:
        sums.lost_to_zero += amount
        return
    row = lost_row(book.lost_ids, page)
    if book.lost_ids[row] == _EMPTY:
        book.lost_ids[row] = page
        sums.lost_rows += 1
    book.lost_amounts[row] += amount


@lean_kernel
def regain(book: Book, page: Int) -> Int:
    """Take what links carry to a page that is learnt (again) out of the side table."""
    sums = book.sums[0]
    if page == _EMPTY:
        amount = sums.lost_to_zero
        sums.lost_to_zero = 0
    else:
        row = lost_row(book.lost_ids, page)
        amount = book.lost_amounts[row]
        book.lost_amounts[row] = 0
    sums.lost -= amount
    return amount


@lean_kernel
def fill_lost(ids: Array, amounts: Array, from_ids: Array, from_amounts: Array) -> Int:
    """Fill an empty side table with the rows of another that are not 0. Returns how many there are."""
    rows = np.int64(0)
    for i in range(from_ids.shape[0]):
        if from_ids[i] != _EMPTY and from_amounts[i] != 0:
            row = lost_row(ids, from_ids[i])
            ids[row] = from_ids[i]
            amounts[row] = from_amounts[i]
            rows += 1
    return rows


@inlined_kernel
def kept_amount(book: Book, page: Int) -> Int:
    """What the side table keeps for a page."""
    if page == _EMPTY:
        return book.sums[0].lost_to_zero
    return book.lost_amounts[lost_row(book.lost_ids, page)]


@inlined_kernel
def has_room_to_pay(book: Book, rows: Int) -> Bool:
    """Whether payments along so many links fit in the side table and in the outbox; other policies need no room."""
    if book.modes[0].policy != P_CERTIFIED:
        return True
    if not has_room_for_lost(book, rows):
        return False
    return book.modes[0].alone != 0 or book.counts[0].outbox + rows <= book.outbox_pages.shape[0]


@inlined_kernel
def has_room_for_lost(book: Book, rows: Int) -> Bool:
    """Whether the side table has room for so many more rows; other policies have none."""
    return book.modes[0].policy != P_CERTIFIED or 2 * (book.sums[0].lost_rows + rows) <= book.lost_ids.shape[0]


# -- payments ----------------------------------------------------------------------------------------------------------


@inlined_kernel
def pays(table: Table, slot: Int) -> Bool:
    """Whether a page has links to pay along."""
    return table.link_count[slot] != 0


@inlined_kernel
def receive(table: Table, book: Book, slot: Int, amount: Int) -> None:
    """A page receives, or gives back: paid at once where it pays nobody."""
    sums = book.sums[0]
    if pays(table, slot):
        before = table.hot[slot, 1]
        after = before + amount
        table.hot[slot, 1] = after
        sums.residual += amount
        sums.residual_size += abs(after) - abs(before)
    else:
        table.totals[slot] += amount
        sums.paid += amount


@inlined_kernel
def take_residual(table: Table, book: Book, slot: Int) -> None:
    """The residual of a page becomes part of what it has paid; the caller pays it on."""
    sums = book.sums[0]
    residual = table.hot[slot, 1]
    table.hot[slot, 1] = 0
    table.totals[slot] += residual
    sums.residual -= residual
    sums.residual_size -= abs(residual)
    sums.paid += residual


@inlined_kernel
def is_local(book: Book, page: Int) -> Bool:
    """Whether a page id falls in this shard's range."""
    if book.modes[0].alone != 0:
        return True
    return np.uint64(book.modes[0].first_id) <= np.uint64(page) <= np.uint64(book.modes[0].last_id)


@inlined_kernel
def put_in_outbox(book: Book, page: Int, amount: Int) -> None:
    """An amount for a page of another shard waits for the next cut. The caller has seen to room."""
    at = book.counts[0].outbox
    book.outbox_pages[at] = page
    book.outbox_amounts[at] = amount
    book.counts[0].outbox = at + 1


@inlined_kernel
def deliver(table: Table, book: Book, page: Int, amount: Int, slot: Int) -> None:
    """Bring an amount to a page, at `slot` if that is its slot. The caller has seen to room."""
    if not is_local(book, page):
        if amount != 0:
            put_in_outbox(book, page, amount)
            book.sums[0].sent += amount
        return
    if slot < 0 or table.hot[slot, 0] != page:
        slot = find(table.id_index, table.id_index_old, table.hot, page)
    if slot >= 0:
        receive(table, book, slot, amount)
    else:
        lose(book, page, amount)


@lean_kernel
def pay_remembered(table: Table, book: Book, scratch: Scratch, slot: Int, before: Int, after: Int) -> None:
    """A page's remembered links carry what they do for `after` paid, damped, instead of for `before`."""
    if before == after:
        return
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    start = table.link_start[slot]
    book.counts[0].transfers += count
    total = np.int64(0)
    for i in range(count):
        page = book.links[start + i]
        to = guess(table.id_index, table.hot, page)
        scratch.slots[i] = to
        if to >= 0:
            prefetch(table.hot, to)
        total += stored_weight(book, start, count, weighted, i)
    weight, change = np.int64(-1), np.int64(0)
    for i in range(count):
        of_link = stored_weight(book, start, count, weighted, i)
        if of_link != weight:
            weight = of_link
            change = split(after, weight, total) - split(before, weight, total)
        deliver(table, book, book.links[start + i], change, scratch.slots[i])


@inlined_kernel
def damped_total(table: Table, book: Book, slot: Int) -> Int:
    """What the links of a page carry in all, for what it has paid."""
    return damped(table.totals[slot], book.modes[0].damping_q20)


@lean_kernel
def push(table: Table, book: Book, scratch: Scratch, slot: Int) -> None:
    """A page pays its residual on."""
    before = damped_total(table, book, slot)
    take_residual(table, book, slot)
    pay_remembered(table, book, scratch, slot, before, damped_total(table, book, slot))


@lean_kernel
def take_back(table: Table, book: Book, scratch: Scratch, slot: Int) -> None:
    """A page that pays along its links takes all payments back, before its links change. Its residual is part of p."""
    before = damped_total(table, book, slot)
    take_residual(table, book, slot)
    pay_remembered(table, book, scratch, slot, before, 0)


@lean_kernel
def pay_all(table: Table, book: Book, scratch: Scratch, slot: Int) -> None:
    """A page whose links have just changed pays all that it has paid in total along them."""
    pay_remembered(table, book, scratch, slot, 0, damped_total(table, book, slot))


@lean_kernel
def push_pages(table: Table, book: Book, scratch: Scratch, least: Int, most: Int, slots_left: Int) -> tuple[Int, Int]:
    """Push at most `most` pages with a residual of `least` or more, among so many slots from the cursor on.

    Returns how many, and the slots that it has no room for. (Room depends on how tables have grown, and must decide
    nothing: the caller makes room, and goes on with the same `least`.)
    """
    counts = book.counts[0]
    slots = counts.slots
    slot = counts.cursor if counts.cursor < slots else np.int64(0)
    pushed = np.int64(0)
    while slots_left > 0 and pushed < most and has_room_to_pay(book, book.modes[0].longest):
        slots_left -= 1
        if abs(table.hot[slot, 1]) >= least:
            push(table, book, scratch, slot)
            pushed += 1
        slot += 1
        if slot == slots:
            slot = np.int64(0)
    counts.cursor = slot
    counts.round_spends += pushed
    return pushed, slots_left if pushed < most else np.int64(0)


# -- rules that change -------------------------------------------------------------------------------------------------


@lean_kernel
def change_base(table: Table, book: Book, slot: Int, before: Int, after: Int) -> None:
    """A page has another base: its class or the rules have changed."""
    book.sums[0].bases += after - before
    receive(table, book, slot, after - before)


@lean_kernel
def apply_rules(
    table: Table, book: Book, scratch: Scratch, old_damping_q20: Int, old_class_weights: Array, first: Int
) -> Int:
    """Change bases and payments of pages, from a slot on, to the damping and class weights that hold now.

    Returns the slot that it has no room for.
    """
    old_base = np.int64(1 << 20) - old_damping_q20
    for slot in range(first, book.counts[0].slots):
        if not has_room_to_pay(book, book.modes[0].longest):
            return slot
        row = table.pages[slot]
        if row.flags != 0:
            change_base(table, book, slot, old_base * old_class_weights[row.class_], base_of(book, row.class_))
            if pays(table, slot):
                before = damped(table.totals[slot], old_damping_q20)
                pay_remembered(table, book, scratch, slot, before, damped_total(table, book, slot))
    return book.counts[0].slots


# -- the audit ---------------------------------------------------------------------------------------------------------


@lean_kernel
def recount(table: Table, book: Book, carried: Array, lost_ids: Array, lost_amounts: Array) -> tuple[Int, Int]:
    """Count what links carry to every slot, and to pages of this shard that are not in the ledger.

    Returns how many of the latter, and what links carry to pages of other shards.
    """
    lost, sent = np.int64(0), np.int64(0)
    for slot in range(book.counts[0].slots):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        if count == 0 or table.pages[slot].flags == 0:
            continue
        start = table.link_start[slot]
        total = np.int64(0)
        for i in range(count):
            total += stored_weight(book, start, count, weighted, i)
        amount = damped_total(table, book, slot)
        for i in range(count):
            part = split(amount, stored_weight(book, start, count, weighted, i), total)
            if not is_local(book, book.links[start + i]):
                sent += part
                continue
            to = find(table.id_index, table.id_index_old, table.hot, book.links[start + i])
            if to >= 0:
                carried[to] += part
            else:
                if lost < lost_ids.shape[0]:
                    lost_ids[lost] = book.links[start + i]
                    lost_amounts[lost] = part
                lost += 1
    return lost, sent
