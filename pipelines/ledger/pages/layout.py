"""The memory layout of a ledger: the columns of its pages and the accounts of the shard, as kernels use them.

A transfer touches only `hot` (page id and cash, 16 bytes that never straddle a cache line) and the id index; a visit
touches in addition one row of `pages`, one of its history policy, and one of `refresh`, which only pages have that were
visited or ordered (docs/decisions/memory.md).

Each column is declared once, in the annotation of its field (column_kinds.py).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np

from opicflow.pipelines.ledger.pages.column_kinds import ColumnKind, measure_width, under
from opicflow.schemas.arrays import Array, ColumnTuple, Ints

PAGE_ROW = np.dtype(
    [
        ("seen", np.int64),  # the dividend account of its class when it last collected; HOP if it is a hop
        ("opening", np.int64),  # opening balance, unused once the page has spent; its base (certified)
        ("aside", np.int64),  # the cash that the round took since the last visit; waiting cash is cash + aside
        ("last_visit_ms", np.int64),
        ("theta", np.uint64),  # the turn clock when it last spent, or at its birth
        ("published_importance", np.float32),  # of its newest record; 0 = it has none
        ("published_score", np.float32),
        ("visits", np.uint32),
        ("class_", np.uint8),  # 2 * category + (1 if read)
        ("flags", np.uint8),
        ("outcome", np.uint8),  # of the last visit
        ("measures", np.uint8),  # how many measures a history policy with a window keeps
    ],
    align=True,
)

REFRESH_ROW = np.dtype(
    [
        ("intervals", np.uint64),  # the last eight intervals between visits, changed or not (refresh/rates.py)
        ("dated", np.uint64),  # the same from its server's dates of change
        ("digest", np.uint32),  # of the content of `content_ms`; 0 = not known
        ("checked", np.uint32),  # the second of the last visit that answered, or first found it gone; 0 = none
        ("modified", np.uint32),  # the latest date of change, in seconds; 0 = none
        ("share", np.float32),  # its part of the sum by which bandwidth is shared
        ("ordered", np.uint32),  # the second of an order that no visit has answered; 0 = none
        ("interval", np.uint16),  # in snapshots; in memory it is a column of its own
        ("failures", np.uint8),  # visits in a row that did not answer
        ("notes", np.uint8),  # mistrust and flags
        ("earlier", np.uint32),  # short digests of the contents before, the latest lowest
        ("run_length", np.uint16),  # the mean code of the intervals of the run, in 1/256
        ("run", np.uint8),  # how many intervals before the eight had a change each, without a break
        ("returned", np.uint8),  # a bit for each of the eight, the latest lowest: an earlier content came back
        ("links_ms", np.int64),  # of the latest visit that brought links, or found the page gone; 0 = none with a time
        ("content_ms", np.int64),  # of the latest visit that brought content, redirected, or found it gone; 0 = none
    ]
)

# Notes of a page that concern its refreshing.
MISTRUST = np.uint8(15)  # how much its dates of change are mistrusted
RATE_SET = np.uint8(64)  # a policy sets its change rate
CHANGE_ANNOUNCED = np.uint8(128)  # a change since its fetch was announced, whether its site is believed or not

# Flags of a page. FREE is no flag at all, so that a slot full of zeros is free.
LIVE = np.uint8(1)
SPENT = np.uint8(2)  # it has spent at least once: its opening balance is settled
CIRCULATED = np.uint8(4)  # it has spent, or was born, since the round passed it last
LINKS_KNOWN = np.uint8(8)  # it was read, and its links are known: the round does not take its cash
EXPLORED = np.uint8(16)  # it was read to explore, or may be (discovery.py)
IN_URL_ORDER = np.uint8(32)
READ_BEFORE = np.uint8(64)  # it was read before the last review of discovery
UNSETTLED_RECORD = np.uint8(128)  # importance had not settled when its newest record was made
OF_THE_LEDGER = np.uint8(15 | 128)  # the flags that do not belong to discovery


def _accounts(kind: type, *names: str) -> np.dtype[Any]:
    """Return the type of one row of accounts, which kernels and Python read as attributes.

    A `np.record` has attributes too, but finds them by Python code that takes microseconds: entries of transfers are
    small and many, and each reads some dozens.
    """
    attributes = {name: property(itemgetter(name), _setter(name)) for name in names}
    row = type("Accounts", (np.void,), {"__slots__": (), **attributes})
    return np.dtype((row, [(name, kind) for name in names]))


def _setter(name: str) -> Callable[[Any, Any], None]:
    def set_field(row: Any, value: Any) -> None:
        row[name] = value

    return set_field


COUNTS = _accounts(
    np.int64,
    "pages",  # live pages
    "slots",  # slots used so far, free ones included
    "free",  # free slots below SLOTS
    "minted",
    "virtual",
    "uncollected",
    "absorbed",
    "sent",
    "received",
    "clock",  # G
    "theta_carry",
    "minted_everywhere",
    "virtual_income",  # cash that spending has ever paid to the virtual account
    "openings",  # opening balances of live pages that never spent
    "earned",  # history of live pages under the history policies that keep a total
    "weighted_pages",
    "cursor",
    "visits_since_cut",
    "visits",
    "duplicates",
    "late",
    "refused_visits",  # visits of forgotten pages
    "births",
    "dropped",
    "outbox",
    "url_end",
    "link_end",
    "link_stale",
    "broken",  # 1: a kernel met an overflow; 2: an entry was interrupted
    "generation",  # of the scratch table
    "transfers",  # transfers of links, wherever they went
    "visits_since_sweep",
    "first_reads",  # recently, less births, in 1 / ONE_READ: where first reads fade (spending.py); 0 (certified)
    "announcements",
    "sightings",
    "recent",  # visits on the side of `recent` that takes new ones
    "recent_side",  # which one that is
    "shares",  # the sum that bandwidth is shared by, in units of 1 / SHARE_UNITS
    "evicted",  # pages removed because there were too many
    "long_gone",  # visits since the last tick that found a page gone often enough to remove it
    "url_stale",  # bytes of URLs of removed pages
)
"""The cash and the counts of a shard."""

TRANSIENT_COUNTS = ("generation", "sightings", "recent_side")
"""Counts that are no part of the ledger's state: a sighting that is sent again changes nothing else."""

CLOCKS = _accounts(
    np.uint64,
    "theta",
    "theta_start",
    "own_advance",
)
"""In 2^-40 turn; differences are taken modulo 2^64."""

RULES = _accounts(
    np.float64,
    "damping",
    "window",  # turns
    "min_gaps",
    "newcomers",  # 1: newcomers get a default history
    "default_rate",  # changes a day of a page without observations
    "share_power",  # how a share follows a change rate
)
"""Numbers that a policy may change."""

MODES = _accounts(
    np.int64,
    "policy",
    "measures",  # measures kept at most (variable: exactly), 0 for policies without measures
    "fewest",  # measures the window never goes below
    "damping_q20",
    "remember",
    "alone",  # 1: one shard; cuts need no messages
    "cut_per_1000",
    "first_id",  # this shard's page ids, as bits
    "last_id",
    "longest",  # the most links a page ever had remembered
    "bonus",  # 1: some links carry a bonus
    "like_us",  # this shard and those that have sent no gossip: they count as if they minted as much
    "most_recent",  # visits that a side of `recent` takes
    "estimator",  # of change rates
    "gone_visits",  # in a row, after which a page is removed
)
"""Numbers that the configuration sets."""

SUMS = _accounts(
    np.int64,
    "bases",  # C: the bases of all pages
    "paid",  # what all pages have paid
    "residual",  # the residuals of all pages
    "residual_size",  # their absolute values
    "lost",  # what links carry to pages that are not in the ledger
    "lost_to_zero",  # in snapshots: the part for the page id 0
    "lost_rows",  # in snapshots: how many other pages have a part
    "links",  # remembered links
    "sent",  # what links carry to pages of other shards
    "received",  # what links of other shards carry to pages of this one, as far as it has arrived
)
"""The sums of the history policy `certified`."""

STORE = _accounts(
    np.int64,
    "numbers",  # page numbers given (numbers.py)
    "absent",  # rows of absent pages
    "slide_from",  # where blocks of links are being moved from, and to (links.py)
    "slide_to",
    "multiplier",  # of the hash tables by page id (index.py), as bits
    "latest_ms",  # no visit can have been later: a week after the last tick; 0 before the first one
    "refresh_rows",  # rows of `refresh` that pages have
)
"""How links are stored, and pages found, and what follows from times: no part of the ledger's state."""

NOW = _accounts(
    np.float64,
    "second",  # of the last tick; 0 before the first
    "window_seconds",
    "bases_elsewhere",  # by the newest sums of other shards
    "residual_elsewhere",
    "carried_elsewhere",  # what their links carry: paid + residual - bases
)
"""What the window of the history policy `certified` needs beside its sums: it follows from the log, and is no state."""


def link_numbers(stored: Array) -> Array:
    """The number of remembered links, from values of `link_count`, which are negative where links have weights."""
    return np.where(stored >= 0, stored, -1 - stored)


def link_words(stored: Array) -> Array:
    """The number of words that the links of pages take in a snapshot, from values of the column `link_count`."""
    counts = link_numbers(stored.astype(np.int64))
    return np.where(stored >= 0, counts, counts + (counts + 3) // 4)


def flat(accounts: Any) -> Array:
    """Return a view of accounts as a plain array, in the order of their names: snapshots store them so."""
    values: Array = accounts.view(accounts.dtype[0])
    return values


def taken_of(slots: Ints) -> Ints | slice:
    """Return what takes the rows of these slots, which rise, from a column: a slice, without copies, if all are there.

    The rows of a column in memory may be a view: it must not be kept while the ledger changes.
    """
    return slice(len(slots)) if len(slots) and slots[-1] == len(slots) - 1 else slots


HOP = np.int64(-1)
"""`seen` of a page whose links are those of a redirect: it has no dividends and no base (docs/decisions/events.md)."""


# Columns of `Book.domains`.
UNREAD = 0  # unread pages
UNREAD_MOST = 1  # with so many, none is born
ANNOUNCED_LEFT = 2  # pages that may yet be born today because they are announced
BASES_LEFT = 3  # the rest of the bases that unread pages may have together (certified)
NOT_LEARNT = 4  # how often a page was not added because of the limits
DOMAIN_COLUMNS = 5
UNLIMITED = 1 << 60

# Outcomes of visits, as rows hold them: the numbers of `Outcome` (entries.py).
FETCHED, REDIRECTED, ALIASED, GONE, UNCHANGED, FAILED, BLOCKED, BUSY = range(1, 9)

NOWHERE = -1
ELSEWHERE = -2
"""Slots of links whose page is not in this ledger: not known here (or barred), in another shard."""

# Numbers of the history policies.
P_ALL = 0
P_FIXED = 1
P_VARIABLE = 2
P_PAPER = 3
P_INTERPOLATION = 4
P_ABSORBING = 5
P_CERTIFIED = 6


_has_measures = under("fixed", "improved-fixed", "variable")
_has_links = attrgetter("remember_links")
_learns = attrgetter("learns_discovery")
_has_limits = attrgetter("domains.limit_anything")


@ColumnTuple.register
class Table(NamedTuple):
    """The columns, indexed by slot. Columns that a policy or option does not need have no rows."""

    free: Annotated[Array, ColumnKind(np.int64, "free")]  # a stack of free slots
    # page id as bits; cash, or ~cash until the page has had its first transfer
    hot: Annotated[Array, ColumnKind(np.int64, "slots", 2)]
    pages: Annotated[Any, ColumnKind(PAGE_ROW, "slots")]  # kernels read the fields of a row as attributes
    # which row of `refresh` the page has; 0 = none yet
    refresh_row: Annotated[Array, ColumnKind(np.int32, "slots", is_stored=False)]
    # between two fetches, as last published, packed (refresh/orders.py); 0 = never
    interval: Annotated[Array, ColumnKind(np.uint16, "slots", is_stored=False)]
    # the rows of pages; row 0 is all zero, as for pages without a row of their own; a snapshot has one for every slot
    refresh: Annotated[Any, ColumnKind(REFRESH_ROW)]
    spans: Annotated[Array, ColumnKind(np.float32, "slots", 2, under("interpolation"))]  # rate and span
    # earned units (all), amounts (absorbing), units paid (certified)
    totals: Annotated[Array, ColumnKind(np.int64, "slots", is_needed=under("all", "absorbing", "certified"))]
    # the mean of its importance, and the second of its last update
    window: Annotated[Array, ColumnKind(np.float64, "slots", 2, under("certified"))]
    held: Annotated[Array, ColumnKind(np.float64, "slots", is_needed=under("paper-interpolation"))]
    measure_cash: Annotated[Array, ColumnKind(np.float32, "slots", measure_width, _has_measures)]  # oldest first
    measure_theta: Annotated[Array, ColumnKind(np.uint64, "slots", measure_width, _has_measures)]
    # the turn clock of the spending before the oldest measure kept
    before_theta: Annotated[Array, ColumnKind(np.uint64, "slots", is_needed=_has_measures)]
    url_start: Annotated[Array, ColumnKind(np.int64, "slots")]  # 1 + position in the URL arena, 0 = URL not known
    # where the links of its block begin (links.py)
    link_start: Annotated[Array, ColumnKind(np.int64, "slots", is_needed=_has_links)]
    # links remembered; -1-count where weights follow them
    link_count: Annotated[Array, ColumnKind(np.int32, "slots", is_needed=_has_links)]
    # 1 + slot of the page whose link led to it first; 0 = none that is known
    found_by: Annotated[Array, ColumnKind(np.int32, "slots", is_needed=_learns)]
    # the number of the page (numbers.py); no rows while numbers are slots
    numbers: Annotated[Array, ColumnKind(np.int32, is_stored=False)]
    # tag and slot + 1, open addressing; the last row is the multiplier of its hash
    id_index: Annotated[Array, ColumnKind(np.uint64, is_stored=False)]
    # the index before it grew, while entries still move over
    id_index_old: Annotated[Array, ColumnKind(np.uint64, is_stored=False)]


@ColumnTuple.register
class Book(NamedTuple):
    """The accounts of the shard."""

    counts: Annotated[Any, ColumnKind(COUNTS, "one")]
    clocks: Annotated[Any, ColumnKind(CLOCKS, "one")]
    rules: Annotated[Any, ColumnKind(RULES, "one")]
    modes: Annotated[Any, ColumnKind(MODES, "one")]
    dividends: Annotated[Array, ColumnKind(np.int64, "classes")]  # D
    class_pages: Annotated[Array, ColumnKind(np.int64, "classes")]  # the pages of each class that are no hops
    class_weights: Annotated[Array, ColumnKind(np.int64, "classes")]
    link_bonus: Annotated[Array, ColumnKind(np.int64, "categories")]  # per 1024
    forgotten: Annotated[Array, ColumnKind(np.int64)]  # sorted: ids that must not be learnt again
    forgotten_until: Annotated[Array, ColumnKind(np.int64)]  # the second from which each may
    sums: Annotated[Any, ColumnKind(SUMS, "one", is_needed=under("certified"))]
    outbox_pages: Annotated[Array, ColumnKind(np.int64, "outbox")]
    outbox_amounts: Annotated[Array, ColumnKind(np.int64, "outbox")]
    links: Annotated[Array, ColumnKind(np.int32, "link_end")]  # remembered links, a block for each page (links.py)
    recent: Annotated[Array, ColumnKind(np.int64)]  # [2, n]: hashes of recent visits, open addressing, two sides
    # the URL arena: length (2 bytes, little endian) and bytes of each
    urls: Annotated[Array, ColumnKind(np.uint8, "url_end", is_stored=False)]
    # the slot of each page number, or ~row of an absent page; no rows while numbers are slots
    named: Annotated[Array, ColumnKind(np.int32, is_stored=False)]
    # pages of this shard that links lead to, or have led to, and that are not in the ledger
    absent_ids: Annotated[Array, ColumnKind(np.int64, is_stored=False)]
    absent_amounts: Annotated[Array, ColumnKind(np.int64, is_stored=False)]  # what links carry to each (certified)
    absent_numbers: Annotated[Array, ColumnKind(np.int32, is_stored=False)]  # the number of each; -1 = none
    # row + 1, open addressing by page id
    absent_index: Annotated[Array, ColumnKind(np.int32, is_stored=False)]
    store: Annotated[Any, ColumnKind(STORE, "one", is_stored=False)]
    now: Annotated[Any, ColumnKind(NOW, "one", is_stored=False)]  # (certified)
    # the slots of pages in the order of their URLs (url_order.py)
    url_order: Annotated[Array, ColumnKind(np.int32, is_needed=_learns)]
    # what announcements of changes were worth (announcements.py)
    announced: Annotated[Array, ColumnKind(np.float32, "sites", 5)]
    # what unread pages of a domain may be and hold (domain_counts.py)
    domains: Annotated[Array, ColumnKind(np.int64, "limited sites", DOMAIN_COLUMNS, _has_limits)]


def _declared(columns: type[Table | Book]) -> dict[str, ColumnKind]:
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(columns, include_extras=True).items()}


OF_BOOK, OF_TABLE = _declared(Book), _declared(Table)
_ORDER = list(OF_BOOK)
_ORDER[Book._fields.index("url_order") : Book._fields.index("url_order")] = OF_TABLE
COLUMNS = {name: {**OF_BOOK, **OF_TABLE}[name] for name in _ORDER}
"""All columns, in the order in which a snapshot stores them: those of pages come before the order of URLs."""
COUNTED = {name: column for name, column in COLUMNS.items() if column.rows in (COUNTS.names or ())}
"""The columns whose rows in use are one of the counts."""
ACCOUNTS = {name: column.kind for name, column in OF_BOOK.items() if column.rows == "one" and column.is_stored}
"""The columns that are one row of accounts, each with the type of its row."""


@ColumnTuple.register
class Scratch(NamedTuple):
    """Room for the links of one visit. Its content is not kept after the visit."""

    pages: Array  # int64
    weights: Array  # int64
    categories: Array  # uint8
    slots: Array  # int64
    keys: Array  # int64: a small hash table that finds duplicate links
    marks: Array  # int64: the generation in which a key was written
    where: Array  # int64
    guesses: Array  # int64: the slots that the links of this row and of the next one probably have
