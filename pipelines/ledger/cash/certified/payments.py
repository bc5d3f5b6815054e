"""Payments under the history policy `certified` (docs/decisions/certified.md): signed cash that keeps every page's law.

A page has paid `p` in all (`totals`), and holds the residual `r`, which it has not paid on yet (`hot`; it may be
negative). With c, its base, and s(p), what a link carries of all that its page has paid:

    p + r == c + the sum of s(p_i) over the links to the page

A page that pays no other page has no residual: each amount that it receives counts at once as paid. Amounts for pages
of this shard that are not in the ledger are kept with the numbers of the pages, until they are learnt again. Amounts
for pages of other shards wait in the outbox for the next cut.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.amounts import damped, put_in_outbox, split, split_evenly
from opicflow.pipelines.ledger.pages.domain_counts import give_base_back, has_limits, take_base
from opicflow.pipelines.ledger.pages.layout import HOP, P_CERTIFIED, Book, Scratch, Table
from opicflow.pipelines.ledger.pages.links import id_elsewhere, links_of, stored_weight, total_weight
from opicflow.pipelines.ledger.pages.numbers import add_absent, follow
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch

_AHEAD = 32
"""So many pushes, and so many links of each, are requested together. Scratch always has room for as many."""


@inlined_kernel
def base_of(book: Book, class_: Int) -> Int:
    """The base of a class, c: the cash that the small edge gives a page, (1 - damping) * units * weight / 16."""
    return (np.int64(1 << 20) - book.modes[0].damping_q20) * book.class_weights[class_]


@inlined_kernel
def page_base(table: Table, slot: Int) -> Int:
    """The base of a page: that of its class, or less where its domain is limited; a hop has none."""
    return table.pages[slot].opening


# -- absent pages ------------------------------------------------------------------------------------------------------


@inlined_kernel
def lose(book: Book, row: Int, amount: Int) -> None:
    """Keep what links carry to a page that is not in the ledger."""
    book.absent_amounts[row] += amount
    book.sums[0].lost += amount


@inlined_kernel
def regain(book: Book, row: Int) -> Int:
    """Take what links carry to a page that is learnt (again), of which `row` is -1 if nothing was kept."""
    if row < 0:
        return np.int64(0)
    amount = book.absent_amounts[row]
    lose(book, row, -amount)
    return amount


@inlined_kernel
def has_room_to_pay(book: Book, links: Int) -> bool:
    """Whether payments along so many links fit in the outbox; other policies check that themselves."""
    if book.modes[0].policy != P_CERTIFIED or book.modes[0].alone != 0:
        return True
    return book.counts[0].outbox + links <= book.outbox_pages.shape[0]


# -- payments ----------------------------------------------------------------------------------------------------------


@inlined_kernel
def pays(table: Table, slot: Int) -> bool:
    """Whether a page has links to pay along."""
    return table.link_count[slot] != 0


@inlined_kernel
def receive(table: Table, book: Book, slot: Int, amount: Int) -> None:
    """Add an amount to a page, or take it back: paid at once where the page has no links."""
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
    """Add the residual of a page to its total of payments; the caller pays it on."""
    sums = book.sums[0]
    residual = table.hot[slot, 1]
    table.hot[slot, 1] = 0
    table.totals[slot] += residual
    sums.residual -= residual
    sums.residual_size -= abs(residual)
    sums.paid += residual


@lean_kernel
def pay_remembered(table: Table, book: Book, slot: Int, before: Int, after: Int) -> None:
    """Change the amounts on a page's remembered links: those for a total payment `after` instead of `before`."""
    if before == after:
        return
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    start = table.link_start[slot]
    book.counts[0].transfers += count
    total = total_weight(book, start, count, weighted)
    change = split_evenly(after, count) - split_evenly(before, count)
    residual, residual_size, paid = np.int64(0), np.int64(0), np.int64(0)
    for i in range(count):
        if weighted:
            weight = stored_weight(book, start, count, weighted, i)
            change = split(after, weight, total) - split(before, weight, total)
        link = book.links[start + i]
        if link < 0:
            if change != 0:
                put_in_outbox(book, id_elsewhere(book, start, count, weighted, link), change)
                book.sums[0].sent += change
            continue
        to = follow(book, link)
        if to < 0:
            lose(book, ~to, change)
        elif pays(table, to):
            had = table.hot[to, 1]
            table.hot[to, 1] = had + change
            residual += change
            residual_size += abs(had + change) - abs(had)
        else:
            table.totals[to] += change
            paid += change
    sums = book.sums[0]
    sums.residual += residual
    sums.residual_size += residual_size
    sums.paid += paid


@inlined_kernel
def damped_total(table: Table, book: Book, slot: Int) -> Int:
    """Return the sum that the links of a page carry, for the amount it has paid."""
    return damped(table.totals[slot], book.modes[0].damping_q20)


@lean_kernel
def push(table: Table, book: Book, slot: Int) -> None:
    """A page pays its residual on."""
    before = damped_total(table, book, slot)
    take_residual(table, book, slot)
    pay_remembered(table, book, slot, before, damped_total(table, book, slot))


@lean_kernel
def take_back(table: Table, book: Book, slot: Int) -> None:
    """A page that pays along its links takes all payments back, before its links change. Its residual is part of p."""
    before = damped_total(table, book, slot)
    take_residual(table, book, slot)
    pay_remembered(table, book, slot, before, 0)


@lean_kernel
def pay_all(table: Table, book: Book, slot: Int) -> None:
    """A page whose links have just changed pays all that it has paid in total along them."""
    pay_remembered(table, book, slot, 0, damped_total(table, book, slot))


@lean_kernel
def find_residual(hot: Array, first: Int, end: Int, least: Int) -> Int:
    """Return the first slot with a residual of `least` or more, by its size; `end` if there is none.

    Nearly all are smaller, so four are compared at once, without branches.
    """
    slot, last, one, four = np.uint64(first), np.uint64(end), np.uint64(1), np.uint64(4)  # faster than signed rows
    while slot + four <= last:
        below = np.int64(-1)  # it stays negative if all four are smaller
        for i in range(4):
            residual = hot[slot + np.uint64(i), 1]
            below &= (residual - least) & (-residual - least)
        if below >= 0:
            break
        slot += four
    while slot < last and abs(hot[slot, 1]) < least:
        slot += one
    return np.int64(slot)


@lean_kernel
def request_pushes(table: Table, book: Book, scratch: Scratch, first: Int, end: Int, least: Int) -> Int:
    """Have what the next pushes need fetched from memory. Returns the slot after them, or `end` if there are no more.

    A push waits for the links of its page, then for the pages that they lead to. Those of several come together.
    """
    slot, count = first, np.int64(0)
    while count < _AHEAD:
        slot = find_residual(table.hot, slot, end, least)
        if slot == end:
            break
        prefetch(table.totals, slot)
        prefetch(table.link_count, slot)
        prefetch(book.links, np.int64(table.link_start[slot]))
        scratch.guesses[count] = slot
        slot, count = slot + 1, count + 1
    for i in range(count):
        start = table.link_start[scratch.guesses[i]]
        for j in range(min(links_of(table, scratch.guesses[i]), _AHEAD)):
            link = book.links[start + j]
            to = follow(book, link) if link >= 0 else link
            if to >= 0:
                prefetch(table.hot, to)
                prefetch(table.link_count, to)
    return slot


@lean_kernel
def push_pages(table: Table, book: Book, scratch: Scratch, least: Int, most: Int, slots_left: Int) -> tuple[Int, Int]:
    """Push at most `most` pages with a residual of `least` or more, among so many slots from the cursor on.

    Returns how many, and the slots that it has no room for. (Room depends on how tables have grown, and must decide
    nothing: the caller makes room, and goes on with the same `least`.)
    """
    counts = book.counts[0]
    slots = counts.slots
    slot = counts.cursor if counts.cursor < slots else np.int64(0)
    pushed, seen = np.int64(0), slot
    while slots_left > 0 and pushed < most and has_room_to_pay(book, book.modes[0].longest):
        if slot == seen:
            seen = request_pushes(table, book, scratch, slot, min(slot + slots_left, slots), least)
        found = find_residual(table.hot, slot, seen, least)
        slots_left -= found - slot
        slot = found
        if slot < seen:
            push(table, book, slot)
            pushed += 1
            slots_left -= 1
            slot += 1
        if slot == slots:
            slot = seen = np.int64(0)
    counts.cursor = slot
    return pushed, slots_left if pushed < most else np.int64(0)


# -- pages that come, change and go ------------------------------------------------------------------------------------


@inlined_kernel
def begin_payments(table: Table, book: Book, slot: Int, absent: Int) -> None:
    """A page is born: it has paid its base, and what links carry to it, which `absent` has if it was kept."""
    sums, row = book.sums[0], table.pages[slot]
    base = base_of(book, row.class_)
    if has_limits(book):
        base = take_base(book, table.hot[slot, 0], base)
    row.seen = 0
    row.opening = base
    table.hot[slot, 1] = 0
    table.window[slot, 0] = table.window[slot, 1] = 0.0
    table.totals[slot] = base + regain(book, absent)
    sums.bases += base
    sums.paid += table.totals[slot]


@inlined_kernel
def renew_base(table: Table, book: Book, slot: Int, was_unread: bool) -> None:
    """A page has another class, begins or ends to be a hop, or the rules have changed: its base follows.

    An unread page has at most what its domain has left.
    """
    row = table.pages[slot]
    base = np.int64(0) if row.seen == HOP else base_of(book, row.class_)
    if has_limits(book):
        if was_unread:
            give_base_back(book, table.hot[slot, 0], row.opening)
        if (row.class_ & 1) == 0:
            base = take_base(book, table.hot[slot, 0], base)
    set_base(table, book, slot, base)


@lean_kernel
def end_payments(table: Table, book: Book, slot: Int) -> None:
    """A page takes back its payments and its base. What links carry to it is kept for when it is learnt again."""
    sums = book.sums[0]
    if pays(table, slot):
        take_back(table, book, slot)
        sums.links -= links_of(table, slot)
    base = page_base(table, slot)
    if has_limits(book) and (table.pages[slot].class_ & 1) == 0:
        give_base_back(book, table.hot[slot, 0], base)
    paid = table.totals[slot]
    lose(book, add_absent(book, table.hot[slot, 0]), paid - base)
    sums.bases -= base
    sums.paid -= paid
    table.totals[slot] = 0


@inlined_kernel
def waiting_payment(table: Table, slot: Int) -> Int:
    """The cash that a visit would bring into circulation: all that an unread page has, the residual of another."""
    residual = table.hot[slot, 1]
    return residual + table.totals[slot] if table.pages[slot].visits == 0 else max(residual, 0)


# -- rules that change -------------------------------------------------------------------------------------------------


@lean_kernel
def set_base(table: Table, book: Book, slot: Int, base: Int) -> None:
    """A page has this base from now on."""
    change = base - table.pages[slot].opening
    table.pages[slot].opening = base
    book.sums[0].bases += change
    receive(table, book, slot, change)


@lean_kernel
def apply_rules(table: Table, book: Book, old_damping_q20: Int, first: Int) -> Int:
    """Change bases and payments of pages, from a slot on, to the damping and class weights that hold now.

    Returns the slot that it has no room for.
    """
    for slot in range(first, book.counts[0].slots):
        if not has_room_to_pay(book, book.modes[0].longest):
            return slot
        row = table.pages[slot]
        if row.flags != 0:
            renew_base(table, book, slot, (row.class_ & 1) == 0)
            if pays(table, slot):
                before = damped(table.totals[slot], old_damping_q20)
                pay_remembered(table, book, slot, before, damped_total(table, book, slot))
    return book.counts[0].slots


@lean_kernel
def set_bases(table: Table, book: Book, slots: Array, bases: Array) -> None:
    """Unread pages of limited domains have other bases. The caller sets the rest."""
    for i in range(slots.shape[0]):
        set_base(table, book, slots[i], bases[i])


# -- the certificate ---------------------------------------------------------------------------------------------------


@lean_kernel
def carry_residuals(table: Table, book: Book, scale: float, carried: Array) -> None:
    """Carry `(1 - scale) * base + scale * residual` of all pages along their links, damped: a sum for every slot."""
    damping = book.rules[0].damping
    for slot in range(book.counts[0].slots):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        if count == 0 or table.pages[slot].flags == 0:
            continue
        start = table.link_start[slot]
        base = np.float64(page_base(table, slot))
        off = damping * ((1.0 - scale) * base + scale * np.float64(table.hot[slot, 1]))
        off /= np.float64(total_weight(book, start, count, weighted))
        for i in range(count):
            to = follow(book, book.links[start + i])
            if to >= 0:
                carried[to] += off * np.float64(stored_weight(book, start, count, weighted, i))


# -- the audit ---------------------------------------------------------------------------------------------------------


@lean_kernel
def recount(table: Table, book: Book, carried: Array, lost: Array) -> Int:
    """Sum the amounts that links carry to every slot and absent page. Returns the sum for other shards."""
    sent = np.int64(0)
    for slot in range(book.counts[0].slots):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        if count == 0 or table.pages[slot].flags == 0:
            continue
        start = table.link_start[slot]
        total, amount = total_weight(book, start, count, weighted), damped_total(table, book, slot)
        for i in range(count):
            part = split(amount, stored_weight(book, start, count, weighted, i), total)
            link = book.links[start + i]
            if link < 0:
                sent += part
                continue
            to = follow(book, link)
            if to >= 0:
                carried[to] += part
            else:
                lost[~to] += part
    return sent
