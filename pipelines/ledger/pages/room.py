"""The columns of a ledger in memory: which a configuration needs, and how they grow.

Columns grow by a thirty-second at a time with realloc, which on Linux moves page tables and copies nothing: no pause,
and never twice the memory. The index grows by a quarter and moves over bit by bit (see `index`).
"""

from __future__ import annotations

from copy import copy as copy_of_object

import numpy as np

from opicflow.pipelines.ledger.config import (
    SECONDS_PER_DAY,
    Absorbing,
    All,
    Certified,
    Fixed,
    ImprovedFixed,
    Interpolation,
    LedgerConfig,
    PaperInterpolation,
    Variable,
)
from opicflow.pipelines.ledger.pages import index, links, numbers, observations, recent, url_arena
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.column_kinds import fixed_rows, measures_kept
from opicflow.pipelines.ledger.pages.layout import Book, Scratch, Table, link_numbers
from opicflow.pipelines.ledger.pages.refresh_rows import take_stored
from opicflow.pipelines.ledger.pages.space import LongColumn, Space, copy_rows, in_memory, moved
from opicflow.pipelines.refresh.rates import DEFAULT_CHANGES_PER_DAY, ESTIMATORS
from opicflow.schemas.arrays import Array, Ints

_FEWEST_ROWS = 256
_FEWEST_BYTES = 1 << 16
"""By which URLs grow at least: a log of many hours meets a few pages in each."""
_MOST_VISITS_AHEAD = 1 << 12
_FEWEST_OUTGOING = 1 << 14
_FEWEST_STALE = 1 << 12
_BYTES_OF_A_LINK = 4
_EVERY_ID = (0, (1 << 64) - 1)
_OF_OPTIONS = ("refresh_row", "interval", "url_start", "link_start", "link_count", "found_by")


def policy_code(config: LedgerConfig) -> int:
    """The number of the history policy in kernels."""
    codes: dict[type, int] = {
        All: at.P_ALL,
        Fixed: at.P_FIXED,
        ImprovedFixed: at.P_FIXED,
        Variable: at.P_VARIABLE,
        PaperInterpolation: at.P_PAPER,
        Interpolation: at.P_INTERPOLATION,
        Absorbing: at.P_ABSORBING,
        Certified: at.P_CERTIFIED,
    }
    return codes[type(config.history)]


def columns_used(config: LedgerConfig) -> tuple[str, ...]:
    """The columns with a row for each page that a configuration needs; the others stay without rows."""
    return tuple(name for name, column in at.OF_TABLE.items() if column.rows == "slots" and column.is_needed(config))


def new_table(config: LedgerConfig, multiplier: int = 1) -> Table:
    """An empty table. `multiplier` is that of the index."""
    columns = {name: column.empty(config, {}) for name, column in at.OF_TABLE.items()}
    return Table(**columns)._replace(
        refresh=np.zeros(1, at.REFRESH_ROW), id_index=index.empty(_FEWEST_ROWS, multiplier)
    )


def new_book(
    config: LedgerConfig,
    ids: tuple[int, int] = _EVERY_ID,
    theta_start: int = 0,
    multiplier: int = 1,
) -> Book:
    """The accounts of a shard that holds the page ids from the first of `ids` to the last.

    `multiplier` is that of hash tables.
    """
    history = config.history
    rows = fixed_rows(config, ids)
    book = Book(**{name: column.empty(config, rows) for name, column in at.OF_BOOK.items()})
    book = book._replace(recent=np.zeros((2, _FEWEST_ROWS), np.int64), absent_index=np.zeros(1, np.int32))
    rules, modes = book.rules[0], book.modes[0]
    rules.window = getattr(history, "window_turns", 1.0)
    rules.min_gaps = getattr(history, "min_gaps", 1.0)
    rules.newcomers = config.newcomer_history and not isinstance(history, (All, Absorbing))
    rules.default_rate = DEFAULT_CHANGES_PER_DAY
    rules.share_power = config.refresh.alpha / (config.refresh.alpha + 1)
    modes.gone_visits = config.refresh.gone_visits
    modes.estimator = ESTIMATORS[config.refresh.estimator]
    modes.policy = policy_code(config)
    modes.measures, modes.fewest = measures_kept(config)
    modes.remember = config.remember_links
    modes.alone = ids == _EVERY_ID
    modes.most_recent = config.remembered_visits
    modes.cut_per_1000 = config.cut_visits_per_1000_pages
    bounds = np.array(ids, np.uint64).view(np.int64)
    modes.first_id, modes.last_id = bounds[0], bounds[1]
    book.clocks[0].theta = book.clocks[0].theta_start = theta_start
    if isinstance(history, Certified):
        book.now[0].window_seconds = history.window_days * SECONDS_PER_DAY
    book.store["multiplier"] = np.array([multiplier], np.uint64).view(np.int64)
    set_rules(book, config.damping, config.class_weights, config.link_bonus_per_1024)
    return book


def set_rules(
    book: Book,
    damping: float | None,
    class_weights: tuple[int, ...] | None,
    link_bonus_per_1024: tuple[int, ...] | None,
) -> None:
    """Set rules; None leaves a rule unchanged."""
    if damping is not None:
        q20 = round(damping * (1 << 20))
        book.modes[0].damping_q20 = q20
        book.rules[0].damping = q20 / (1 << 20)
    if class_weights is not None:
        book.class_weights[:] = class_weights
        book.counts[0].weighted_pages = int(book.class_weights @ book.class_pages)
    if link_bonus_per_1024 is not None:
        book.link_bonus[:] = link_bonus_per_1024
        book.modes[0].bonus = any(link_bonus_per_1024)


def recent_visits(book: Book) -> tuple[Array, Array]:
    """The hashes of recent visits, sorted: those on the side that takes new ones, and those before."""
    side = int(book.counts[0].recent_side)
    latest, before = book.recent[side], book.recent[1 - side]
    return np.sort(latest[latest != 0]), np.sort(before[before != 0])


def new_scratch(links: int) -> Scratch:
    """Room for a visit of so many links."""
    size = 1 << max(6, (2 * links).bit_length())
    return Scratch(
        pages=np.zeros(size // 2, np.int64),
        weights=np.zeros(size // 2, np.int64),
        categories=np.zeros(size // 2, np.uint8),
        slots=np.zeros(size // 2, np.int64),
        keys=np.zeros(size, np.int64),
        marks=np.zeros(size, np.int64),
        where=np.zeros(size, np.int64),
        guesses=np.zeros(size, np.int64),
    )


def grow(array: Array, rows: int, share: int) -> None:
    """Make room for `rows` rows, at least one in `share` more than before; new rows are zero."""
    if rows > array.shape[0]:
        array.resize((_longer(array.shape[0], rows, share), *array.shape[1:]), refcheck=False)


def _longer(had: int, rows: int, share: int) -> int:
    """The rows that a column with too few gets: `rows`, and at least one in `share` more than before."""
    return max(rows, had + had // share + _FEWEST_ROWS)


class Room:
    """A table and its book, which are replaced when they grow: read them again after every call that may add rows."""

    def __init__(self, config: LedgerConfig, table: Table, book: Book, space: Space = in_memory) -> None:
        """`space` is for URLs and remembered links, and for all columns while they are aside."""
        self.table = table
        self.book = book
        self.scratch = new_scratch(0)
        self._space = space
        self._urls, self._links = space(book.urls), space(book.links)
        self._is_aside = False
        self._used = columns_used(config)
        self._moved = 0

    @property
    def _multiplier(self) -> int:
        """The multiplier of hash tables by page id."""
        return int(self.table.id_index[-1])

    def change_columns(self, config: LedgerConfig) -> None:
        """Use the columns that another configuration needs, which may learn discovery where this one does not."""
        self._used = columns_used(config)
        rows = len(self.table.hot) if config.learns_discovery else 0
        if rows != len(self.table.found_by):
            self.table = self.table._replace(found_by=np.zeros(rows, np.int32))
            self.table.pages["flags"] &= at.OF_THE_LEDGER
            self.book = self.book._replace(url_order=np.zeros(0, np.int32))

    def make(self, births: int = 0, outgoing: int = 0, words: int = 0, url_bytes: int = 0, visits: int = 0) -> None:
        """Room for so many births, transfers to other shards, words of links and bytes of URLs, and for a visit.

        So many `visits` follow: the pages of some of them get refresh rows.
        """
        self.take_up()
        counts, table, book = self.book.counts[0], self.table, self.book
        rows = int(counts.slots - counts.free) + births
        if rows > table.hot.shape[0]:
            for name in self._used:
                grow(getattr(table, name), rows, 32)
        if visits and not observations.has_room_for_refreshing(table, book):
            self._make_refresh_rows(min(visits, _MOST_VISITS_AHEAD))
        pages = int(counts.pages) + births
        capacity = table.id_index.shape[0] - 1
        if pages > index.FULLEST * capacity:
            self.finish_moving()
            rows = max(int(pages / index.FULLEST) + 2, capacity + capacity // 4 + _FEWEST_ROWS)
            bigger = index.empty(rows, self._multiplier)
            table = self.table
            self.table = table._replace(id_index=bigger, id_index_old=table.id_index)
            self._moved = 0
        grow(book.outbox_pages, int(counts.outbox) + outgoing, 8)
        grow(book.outbox_amounts, int(counts.outbox) + outgoing, 8)
        self._make_words(int(counts.link_end) + words)
        self._make_url_bytes(int(counts.url_end) + url_bytes + 2)
        if book.modes[0].remember:
            self.make_numbers(births, births)
        if not recent.has_room_for_a_visit(book):
            self.set_recent(*recent_visits(book), 2 * book.recent.shape[1])

    def _make_refresh_rows(self, more: int) -> None:
        """Room for so many more refresh rows."""
        grow(self.table.refresh, 1 + int(self.book.store[0].refresh_rows) + more, 32)

    def give_refresh_rows(self, slots: Ints) -> Ints:
        """Give a refresh row to pages at some slots that have none, in the order of slots. Returns the rows of all."""
        self.take_up()
        without = np.unique(slots[self.table.refresh_row[slots] == 0])
        self._make_refresh_rows(len(without))
        first = 1 + int(self.book.store[0].refresh_rows)
        self.table.refresh_row[without] = np.arange(first, first + len(without))
        self.book.store[0].refresh_rows += len(without)
        rows: Ints = self.table.refresh_row[slots]
        return rows

    def _make_words(self, rows: int) -> None:
        """Room for so many words of remembered links."""
        had = len(self.book.links)
        if rows > had:
            self.book = self.book._replace(links=self._links.resized(_longer(had, rows, 64)))

    def _make_url_bytes(self, rows: int) -> None:
        """Room for so many bytes of URLs."""
        had = len(self.book.urls)
        if rows > had:
            rows = max(rows, had + _FEWEST_BYTES)
            self.book = self.book._replace(urls=self._urls.resized(_longer(had, rows, 64)))

    # -- where columns are -----------------------------------------------------------------------------------------

    @property
    def is_in_memory(self) -> bool:
        """Whether all columns are in memory, always."""
        return self._space is in_memory

    def move_urls(self, space: Space) -> None:
        """Keep URLs and remembered links in another space from here on."""
        self.take_up()
        book, self._space = self.book, space
        self._urls, self._links = space(book.urls), space(book.links)
        urls, links = self._urls.resized(len(book.urls)), self._links.resized(len(book.links))
        copy_rows(book.urls, urls)
        copy_rows(book.links, links)
        self.book = book._replace(urls=urls, links=links)

    def put_aside(self) -> None:
        """Move the columns of pages to the space of URLs, so that there is memory for results. They are used as before.

        They come back before any column grows.
        """
        if self.is_in_memory or self._is_aside:
            return
        self.finish_moving()
        self._move_columns(self._space)
        self._is_aside = True

    def take_up(self) -> None:
        """Move columns that are aside back to memory."""
        if not self._is_aside:
            return
        self._move_columns(in_memory)
        self._is_aside = False

    def _move_columns(self, to: Space) -> None:
        """Move the columns of pages, one after the other."""
        for name in (*self._used, "refresh", "id_index"):
            self.table = self.table._replace(**{name: moved(getattr(self.table, name), to)})

    def adopt_columns(self, columns: dict[str, Array], urls: LongColumn) -> None:
        """Take over the columns of a snapshot, which are aside, and its URLs.

        Its refresh rows are those of all slots, as a snapshot stores them.
        """
        space = in_memory if self.is_in_memory else self._space
        columns = {**columns, **take_stored(columns["refresh"], space)}
        self.book.store[0].refresh_rows = len(columns["refresh"]) - 1
        self.book = self.book._replace(**{name: column for name, column in columns.items() if name in Book._fields})
        self.table = self.table._replace(**{name: column for name, column in columns.items() if name in Table._fields})
        self._urls = urls
        self._is_aside = not self.is_in_memory

    def make_to_pay(self, links: int) -> None:
        """Room in the outbox for payments along so many links under `certified`."""
        book = self.book
        if book.modes[0].alone == 0:
            rows = len(book.outbox_pages)
            if int(book.counts[0].outbox) + links <= rows:
                return
            self.sum_outbox()
            needed = int(book.counts[0].outbox) + links
            if 2 * needed > rows:
                needed += max(rows, _FEWEST_OUTGOING)
                grow(book.outbox_pages, needed, 8)
                grow(book.outbox_amounts, needed, 8)

    def sum_outbox(self) -> None:
        """Sort the outbox by page, with one row for each: the sum of its amounts, if that is not 0."""
        book = self.book
        size = int(book.counts[0].outbox)
        if size == 0:
            return
        pages = book.outbox_pages[:size].view(np.uint64)
        order = np.argsort(pages)  # amounts of one page in any order: sums of whole numbers are exact
        pages = pages[order]
        firsts = np.flatnonzero(np.concatenate((np.ones(1, bool), pages[1:] != pages[:-1])))
        sums = np.add.reduceat(book.outbox_amounts[:size][order], firsts)
        pages, sums = pages[firsts][sums != 0], sums[sums != 0]
        book.outbox_pages[: len(pages)] = pages.view(np.int64)
        book.outbox_amounts[: len(pages)] = sums
        book.counts[0].outbox = len(pages)

    def make_numbers(self, births: int, absent: int, begin: bool = False) -> None:
        """Room for the page numbers of so many births, and for so many more absent pages.

        `begin`: the table of numbers has begun afterwards. (`renumber` ends it where no link leads to an absent page.)
        """
        self._make_absent(absent)
        more = births + absent
        if int(self.book.store[0].numbers) + more > max(len(self.book.named), 2 * len(self.table.hot)):
            self.renumber()
        if begin or len(self.book.forgotten) or len(self.book.domains):
            self.begin_numbers()
        if len(self.book.named):
            grow(self.book.named, int(self.book.store[0].numbers) + more, 32)
            grow(self.table.numbers, len(self.table.hot), 32)

    def _make_absent(self, more: int) -> None:
        """Room for so many more absent pages."""
        store, pages = self.book.store[0], int(self.book.counts[0].pages)
        if int(store.absent) + more > len(self.book.absent_ids):
            if store.absent:
                self.renumber()
            rows = max(_FEWEST_ROWS, 2 * (int(self.book.store[0].absent) + more), pages // 8)
            self._set_absent(np.arange(int(self.book.store[0].absent)), rows)

    def begin_numbers(self) -> None:
        """Begin the table of page numbers: every page keeps its slot as its number from now on."""
        if len(self.book.named) == 0:
            numbers = np.arange(len(self.table.hot), dtype=np.int32)
            self.table = self.table._replace(numbers=numbers)
            self.book = self.book._replace(named=numbers.copy())
            self.book.store[0].numbers = len(numbers)

    def renumber(self) -> None:
        """Make every page's slot its number again; remove absent pages that nothing leads or is carried to."""
        book, absent = self.book, int(self.book.store[0].absent)
        rows, slots = np.zeros(absent, np.int32), int(book.counts[0].slots)
        linked = int(links.renumber_links(self.table, book, rows))
        order = np.argsort(np.where(rows >= 0, rows, absent), kind="stable")
        is_kept = (rows >= 0) | (book.absent_amounts[:absent] != 0)
        self._set_absent(order[is_kept[order]], len(book.absent_ids))
        no_rows = np.zeros(0, np.int32)
        self.table, self.book = self.table._replace(numbers=no_rows), self.book._replace(named=no_rows)
        self.book.store[0].numbers = 0
        self.book.absent_numbers[:] = -1
        if linked:
            self.begin_numbers()
            self.book = self.book._replace(named=np.append(self.book.named[:slots], ~np.arange(linked, dtype=np.int32)))
            self.book.absent_numbers[:linked] = slots + np.arange(linked)
            self.book.store[0].numbers = slots + linked

    def _set_absent(self, kept: Ints, rows: int) -> None:
        """Keep these rows of the absent pages, in this order, in a table of so many."""
        book = self.book
        columns = {name: getattr(book, name) for name in ("absent_ids", "absent_amounts", "absent_numbers")}
        fresh = {name: np.zeros(rows, column.dtype) for name, column in columns.items()}
        for name, column in columns.items():
            fresh[name][: len(kept)] = column[kept]
        index = np.zeros(1 << (2 * rows - 1).bit_length(), np.int32)
        numbers.fill_absent_index(index, fresh["absent_ids"], len(kept), book.store[0].multiplier)
        self.book = book._replace(**fresh, absent_index=index)
        self.book.store[0].absent = len(kept)

    def copy_for_pushing(self) -> Room:
        """Return a room with copies of what pushing residuals changes; it shares everything else with this one."""
        table, book = self.table, self.book
        copy = copy_of_object(self)
        copy.table = table._replace(hot=table.hot.copy(), totals=table.totals.copy())
        copy.book = book._replace(
            counts=book.counts.copy(),
            sums=book.sums.copy(),
            absent_amounts=book.absent_amounts.copy(),
        )
        return copy

    def turn_recent(self) -> None:
        """Move the latest visits to the first side."""
        if self.book.counts[0].recent_side:
            self.set_recent(*recent_visits(self.book), self.book.recent.shape[1])

    def set_recent(self, latest: Array, before: Array, rows: int = 0) -> None:
        """Replace the recent visits, with at least so many rows a side."""
        needed = max(rows, _FEWEST_ROWS, 2 * (max(len(latest), len(before)) + 1))
        sides = np.zeros((2, 1 << (needed - 1).bit_length()), np.int64)
        recent.fill_side(sides[0], latest, self.book.store[0].multiplier)
        recent.fill_side(sides[1], before, self.book.store[0].multiplier)
        self.book = self.book._replace(recent=sides)
        self.book.counts[0].recent_side = 0

    def make_scratch(self, links: int) -> None:
        """Scratch room for a visit of so many links."""
        if links > len(self.scratch.pages):
            self.scratch = new_scratch(links)
            self.book.counts[0].generation = 0

    def move_index(self, entries: int) -> None:
        """Move at least so many entries of a growing index to the new one."""
        table = self.table
        capacity = table.id_index_old.shape[0] - 1
        if capacity < 0:
            return
        last = min(capacity, self._moved + entries)
        index.move(table.id_index, table.id_index_old, table.hot, self._moved, last)
        self._moved = last
        if last == capacity:
            self.table = table._replace(id_index_old=np.zeros(0, np.uint64))

    def finish_moving(self) -> None:
        """Move all that is left of a growing index."""
        self.move_index(self.table.id_index_old.shape[0])

    def rebuild_index(self) -> int:
        """Rebuild the index from the rows. Returns how many pages have two rows."""
        counts = self.book.counts[0]
        fresh = index.empty(int(counts.pages / index.FULLEST * 1.125) + _FEWEST_ROWS, self._multiplier)
        twice = index.fill(fresh, self.table.hot, self.table.pages, int(counts.slots))
        self.table = self.table._replace(id_index=fresh, id_index_old=np.zeros(0, np.uint64))
        self._moved = 0
        return int(twice)

    def make_free(self, pages: int) -> None:
        """Room for so many more free slots."""
        grow(self.table.free, int(self.book.counts[0].free) + pages, 8)

    def slide_links(self, words: int) -> None:
        """Close gaps between remembered links, among so many words, if a twentieth of all words is without use."""
        counts = self.book.counts[0]
        if self.book.store[0].slide_from or int(counts.link_stale) > max(int(counts.link_end) // 20, _FEWEST_STALE):
            links.slide_links(self.table, self.book, words)

    def take_lost(self, ids: Array, amounts: Array) -> None:
        """Take over what links carry to absent pages, of a snapshot's columns; that to the page id 0 is in the sums."""
        sums = self.book.sums[0]
        if sums.lost_to_zero:
            ids, amounts = np.append(ids, 0), np.append(amounts, sums.lost_to_zero)
        self._make_absent(len(ids))  # no numbers: links, which are not there yet, would be renumbered
        numbers.add_all_absent(self.book, ids, amounts)
        sums.lost_to_zero = sums.lost_rows = 0

    def take_links(self, stored: Array) -> None:
        """Take over the remembered links of a snapshot, after its other columns and the index of pages."""
        table, book = self.table, self.book
        starts, stored_counts = table.link_start.copy(), table.link_count.copy()
        table.link_start[:] = table.link_count[:] = 0
        counts = link_numbers(stored_counts)
        weights = np.where(stored_counts < 0, (counts + 1) // 2, 0)
        ids = 0 if book.modes[0].alone else 2 * counts
        words = int(((counts > 0) + counts + weights + ids).sum())
        self._links = self._space(book.links[:0])
        self.book = book._replace(links=self._links.resized(words))
        book.counts[0].link_end = 0
        longest, slot = int(book.modes[0].longest), 0
        self.make_scratch(longest)
        self.make_numbers(0, longest)
        while True:
            slot = int(links.take_links(self.table, self.book, self.scratch, stored_counts, starts, stored, slot))
            if slot == int(book.counts[0].slots):
                break
            self.make_numbers(0, longest, begin=True)
        self.book = self.book._replace(links=self._links.resized(int(book.counts[0].link_end)))

    def compact_urls(self) -> None:
        """Rewrite the arena of URLs in the order of the slots, without those of removed pages."""
        fresh = self._space(self.book.urls)
        end = int(url_arena.compact_urls(self.table, self.book, fresh.resized(int(self.book.counts[0].url_end))))
        self._urls, self.book = fresh, self.book._replace(urls=fresh.resized(end))
        self.book.counts[0].url_end = end
        self.book.counts[0].url_stale = 0

    def bytes_in_use(self) -> int:
        """The memory of the columns and the index: without refreshing, URLs, remembered links and discovery."""
        table = self.table
        names = [name for name in self._used if name not in _OF_OPTIONS]
        return sum(getattr(table, name).nbytes for name in (*names, "id_index", "id_index_old"))

    @property
    def pages_read(self) -> int:
        """Pages that were visited and answered. Hops are in no class, and all read."""
        return int(self.book.counts[0].pages - self.book.class_pages[::2].sum())

    def all_bytes(self) -> int:
        """The bytes of all columns in memory and in files, with their room to grow."""
        return sum(column.nbytes for column in (*self.table, *self.book))

    def content_bytes(self) -> int:
        """The bytes of pages, URLs and remembered links, without room to grow and without the index."""
        counts, table = self.book.counts[0], self.table
        of_a_page = sum(int(getattr(table, name)[:1].nbytes) for name in self._used)
        links = int(link_numbers(table.link_count[: int(counts.slots)]).sum(dtype=np.int64))
        urls = int(counts.url_end) - int(counts.url_stale)
        of_read: int = table.refresh.dtype.itemsize * self.pages_read
        return of_a_page * int(counts.pages) + of_read + urls + _BYTES_OF_A_LINK * links

    def link_bytes(self) -> float:
        """The memory that a remembered link takes, room to grow and page numbers included."""
        table, book = self.table, self.book
        number = int(link_numbers(table.link_count[: int(book.counts[0].slots)]).sum(dtype=np.int64))
        used = (book.links, book.named, book.absent_ids, book.absent_amounts, book.absent_numbers, book.absent_index)
        return (sum(column.nbytes for column in used) + table.numbers.nbytes) / max(number, 1)
