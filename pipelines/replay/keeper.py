"""The ledger of a replay: batches of a log in, in any order; parts of results out. No Beam in here.

A batch is an encoded crawl entry with a note: the segment of the input, the number of the batch in it, whether it is
the last one, and the counts of the router. A `ReplayKeeper` applies batches in the order of (segment, batch), and holds
those that come early. It divides a batch where an hour of event time ends (a tick) and where a sample is due. So its
state after a batch does not depend on how the input was divided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from opicflow.pipelines.ledger import (
    Applied,
    Balance,
    CrawlEntry,
    CrawlItems,
    Fate,
    Kind,
    Ledger,
    LedgerConfig,
    LogPosition,
    Planned,
    PolicyEntry,
    Settled,
    TickEntry,
)
from opicflow.pipelines.ledger.encoding import FRAME_BYTES, DecodedEntry, decode_entry
from opicflow.pipelines.ledger.kernels.entry_rows import find_hours
from opicflow.pipelines.ledger.space import Space, in_memory
from opicflow.pipelines.refresh.policies import check
from opicflow.pipelines.replay.early_batches import EarlyBatches
from opicflow.pipelines.replay.final_plan import (
    final_ranks,
    importance_for_plans,
    order_parts,
    plan_in_words,
    schedule_parts,
)
from opicflow.pipelines.replay.moments import MOST_PAGES, moments_apart, pack_moment
from opicflow.pipelines.stages.freed_memory import return_freed_memory
from opicflow.pipelines.stages.parts import AT_POLICIES, AT_ROWS, AT_TICK, MOVED, VISITED, Part, PartKind
from opicflow.pipelines.stages.publish import (
    audit_values,
    everything,
    idle_cash,
    pack_tombstones,
    publish_movers,
    publish_plan,
    publish_visited,
)
from opicflow.pipelines.stages.publish_sites import pack_sites
from opicflow.pipelines.stages.rejects import collisions, reject_line
from opicflow.schemas.arrays import Ints, for_kernel
from opicflow.schemas.crawl_events import Reason
from opicflow.schemas.pages import PageIds
from opicflow.schemas.policy_json import PolicyRefused, policy_to_json
from opicflow.schemas.records import Policy
from opicflow.schemas.sites import SiteKind

_SECONDS_PER_HOUR = 3600
_FEWEST_BETWEEN_SAMPLES = 200
_SAMPLED_PAGES = 50
_VISITS_PER_PUBLICATION = 500
_MANY = 1 << 62
_POLICIES = "policies"


Position = tuple[int, ...]


@dataclass(frozen=True)
class KeeperConfig:
    """The settings of a replay's ledger, and of its publications.

    `settle`: the final importance is that of the remembered graph, settled. `samples`: report how the crawl went;
    `moments`: at some of the samples, yield the importance of all pages.
    `publications`: publish during the crawl, at most `records_per_visit` in sweeps, of pages whose score moved by more
    than `least_move` of itself; and plan every cycle. `sites`: the importance of hosts or domains at the end.
    `policies` are in the order of their times (`policy_time_ms`):
    each is applied when the crawl reaches its time. The plan at the end includes those that are still to come.
    """

    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    settle: bool = False
    samples: bool = False
    moments: bool = False
    publications: bool = False
    sites: SiteKind | None = None
    records_per_visit: float = 2.0
    least_move: float = 0.1
    policies: tuple[Policy, ...] = ()
    page_ids: PageIds = field(default_factory=PageIds)
    now_second: int | None = None
    """Time passes up to this second when all input is read, with visits or without."""
    multiplier: int | None = field(default=None, compare=False, repr=False)
    """Of the hash tables of the ledger: no result depends on it, and it must not be guessed (ledger.Ledger)."""
    space: Space = field(default=in_memory, compare=False, repr=False)
    """Where the ledger has its URLs and remembered links: no result depends on it."""

    def new_ledger(self) -> Ledger:
        """Return a ledger that has applied nothing."""
        return Ledger(self.ledger, page_ids=self.page_ids, multiplier=self.multiplier, space=self.space)

    def restored_ledger(self, chunks: Iterable[bytes]) -> Ledger:
        """Return the ledger of a snapshot."""
        return Ledger.restore(chunks, self.page_ids, self.multiplier, self.space)

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain values, without policies: they are part of the log, as events are."""
        return {
            "ledger": self.ledger.to_json(),
            "settle_rounds": int(self.settle),
            "samples": self.samples,
            "publications": self.publications,
            "records_per_visit": self.records_per_visit,
            "least_move": self.least_move,
        }


@dataclass(frozen=True)
class ReplayHead:
    """How far a log was applied: the next batch, and a hash of the chain of all batches so far.

    Two keepers of one configuration with the same chain hash are equal. `unpublished`: visited pages that wait to be
    published, some hundreds at once. `policies_chain`: a hash of the chain of all policies applied.
    """

    segment: int = 0
    batch: int = 0
    chain: str = ""
    events: int = 0
    next_sample_visits: int = 1
    visits_at_sweep: int = 0
    visits_at_plan: int = 0
    policies_chain: str = ""
    unpublished: tuple[int, ...] = ()
    next_moment_visits: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the head as plain values, under the names that stored states have."""
        return {
            "portion": self.segment,
            "part": self.batch,
            "chain": self.chain,
            "events": self.events,
            "next_sample_visits": self.next_sample_visits,
            "visits_at_sweep": self.visits_at_sweep,
            "visits_at_plan": self.visits_at_plan,
            "policies_chain": self.policies_chain,
            "unpublished": self.unpublished,
            **({"next_moment_visits": self.next_moment_visits} if self.next_moment_visits else {}),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ReplayHead:
        """Return the head that `to_json` wrote. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
        counts = [value for name, value in values.items() if name not in ("chain", "policies_chain", "unpublished")]
        unpublished = values["unpublished"]
        if (
            not all(type(count) is int and count >= 0 for count in [*counts, *unpublished])
            or any(type(values[name]) is not str for name in ("chain", "policies_chain"))
            or any(page >= 1 << 64 for page in unpublished)
        ):
            raise ValueError("a part of the head is of another kind")
        return cls(
            segment=values["portion"],
            batch=values["part"],
            chain=values["chain"],
            events=values["events"],
            next_sample_visits=values["next_sample_visits"],
            visits_at_sweep=values["visits_at_sweep"],
            visits_at_plan=values["visits_at_plan"],
            policies_chain=values["policies_chain"],
            unpublished=tuple(values["unpublished"]),
            next_moment_visits=values.get("next_moment_visits", 0),
        )

    def to_bytes(self) -> bytes:
        """Return the head as JSON."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> ReplayHead:
        """Return the head that `to_bytes` wrote."""
        return cls.from_json(json.loads(data))


class Slice(NamedTuple):
    """Rows [first, last) of a batch, after a tick unless its second is None."""

    tick_second: int | None
    first: int
    last: int


class ReplayKeeper:
    """A ledger, its head, and the counts since the last report."""

    def __init__(self, config: KeeperConfig, ledger: Ledger, head: ReplayHead) -> None:
        """Continue a ledger that has this head."""
        self.config = config
        self.ledger = ledger
        self.head = head
        self.early = EarlyBatches()
        self._tally: dict[str, int] = {}
        self._rejects: dict[str, int] = {}
        self._samples: list[dict[str, Any]] = []
        self._refused: list[list[Any]] = []
        self._certificate: float | None = None
        self.snapshot_bytes = 0
        self.journal_bytes = 0

    @property
    def policies_had(self) -> int:
        """The number of policies applied so far."""
        return self.ledger.mark(_POLICIES).offset

    def notes(self) -> bytes:
        """Return everything but the ledger and early batches, of which these are the turns, as JSON."""
        notes = [self.head.to_json(), self._tally, self._rejects, self._samples, self._refused, list(self.early)]
        return json.dumps(notes, separators=(",", ":")).encode()

    def chunks(self) -> Iterator[bytes]:
        """Yield everything in chunks: the notes, the early batches, the snapshot of the ledger."""
        yield self.notes()
        yield from self.early.values()
        yield from (chunk.data for chunk in self.ledger.snapshot())

    @classmethod
    def from_chunks(cls, config: KeeperConfig, chunks: Iterable[bytes]) -> ReplayKeeper:
        """Return the keeper that yielded these chunks."""
        remaining = iter(chunks)
        notes, early = next(remaining), EarlyBatches()
        for segment, batch in json.loads(notes)[-1]:
            early[segment, batch] = next(remaining)
        return cls.from_notes(config, config.restored_ledger(remaining), notes, early)

    @classmethod
    def from_notes(
        cls, config: KeeperConfig, ledger: Ledger, notes: bytes, early: EarlyBatches | None = None
    ) -> ReplayKeeper:
        """Return the keeper that wrote these notes, with its restored ledger and early batches.

        Raises `ValueError`, `LookupError` or `TypeError` for anything else.
        """
        head, tally, rejects, samples, refused, turns = json.loads(notes)
        if [type(part) for part in (tally, rejects, samples, refused)] != [dict, dict, list, list]:
            raise ValueError("a part of the notes is of another kind")
        if sorted(turns) != sorted(map(list, early or ())):
            raise ValueError("batches that wait for their turn are missing")
        if any(type(count) is not int for counts in (tally, rejects) for count in counts.values()):
            raise ValueError("a count of the notes is none")
        keeper = cls(config, ledger, ReplayHead.from_json(head))
        keeper._tally, keeper._rejects, keeper._samples, keeper._refused = tally, rejects, samples, refused
        if early is not None:
            keeper.early = early
        return keeper

    def take(self, data: bytes, decoded: DecodedEntry | None = None) -> Iterator[Part]:
        """Apply a batch, and those that waited for it. Holds a batch that is early, drops one that was applied.

        `decoded`: what is in `data`, where the caller has read it.
        """
        link = self.head.chain.encode() + data[:FRAME_BYTES]  # it holds the checksum of the batch
        self.head = replace(self.head, chain=hashlib.blake2b(link, digest_size=16).hexdigest())
        decoded = decoded or decode_entry(data)
        turn = (decoded.note["portion"], decoded.note["part"])
        if turn > self._turn:
            self.early[turn] = data
        elif turn == self._turn:
            yield from self._apply(decoded)
            while (waiting := self.early.pop(self._turn, None)) is not None:
                yield from self._apply(decode_entry(waiting))

    @property
    def _turn(self) -> tuple[int, int]:
        return self.head.segment, self.head.batch

    def _apply(self, decoded: DecodedEntry) -> Iterator[Part]:
        entry, note = decoded
        assert isinstance(entry, CrawlEntry)
        segment, batch = note["portion"], note["part"]
        if self.ledger.tick_second < 0:
            yield from self._apply_policies(0, (segment, batch, 0, AT_TICK))
        for number, (tick_second, rows) in enumerate(self._pieces(entry)):
            piece = (segment, batch, number)
            if tick_second is not None:
                yield from self._pass_time(tick_second, piece)
            applied = self.ledger.apply(rows)
            yield from self._publish_removed(applied, (*piece, AT_ROWS))
            self._count(rows.items, applied.fates)
            yield from self._reject_collisions(note.get("name", entry.source), rows.items, applied.fates, piece)
            if self.config.publications:
                yield from self._publish_visited(rows.items, (*piece, VISITED))
            if self.config.samples and self.ledger.visits >= self.head.next_sample_visits:
                self._sample()
                if self.ledger.visits >= self.head.next_moment_visits:
                    yield from self._publish_moment(piece)
        now = self.config.now_second
        if note["ended"] and now is not None and now > self.ledger.tick_second:
            yield from self._pass_time(now, (segment, batch, number + 1))
        for name, count in note["counts"].items():
            self._tally[name] = self._tally.get(name, 0) + count
        for reason, count in note["rejects"].items():
            self._rejects[reason] = self._rejects.get(reason, 0) + count
        events = note["counts"].get("events_read", 0)
        self.head = replace(
            self.head,
            segment=note["portion"] + note["last"],
            batch=0 if note["last"] else note["part"] + 1,
            events=self.head.events + events,
        )
        planned = audit = None
        refused_to_come: list[list[Any]] = []
        if note["ended"]:  # one after the other: each takes memory of its own
            self.ledger.put_aside()
            return_freed_memory()
            settled = final_ranks(self.ledger, self.config.settle)
            yield from self._publish_importance(settled)
            audit = self.ledger.audit()
            importance = importance_for_plans(self.ledger, settled)
            del settled
            return_freed_memory()
            coming = self.config.policies[self.policies_had :]
            refused_to_come = _refused_among(coming, self.ledger.config.categories)
            planned = self.ledger.preview(coming=coming, importance=importance)
        if note["last"]:
            if note["ended"] and self.config.samples:
                self._sample()
                yield from self._publish_moment((segment, batch, number + 1))
            yield Part(PartKind.REPORT, (segment,), self._report(note, planned, audit, refused_to_come))
        if planned is not None:
            yield from self._publish_preview(planned)
            del planned, importance
            self.ledger.take_up()

    def _pass_time(self, second: int, piece: Position) -> Iterator[Part]:
        """Apply a tick, and the policies that hold from then on."""
        swept = self.ledger.sweep_second
        is_reviewed = self.ledger.is_review_due(second)
        if is_reviewed:
            return_freed_memory()
        applied = self.ledger.apply(TickEntry(second))
        if is_reviewed:
            return_freed_memory()
        yield from self._publish_removed(applied, (*piece, AT_TICK))
        yield from self._apply_policies(1000 * second, (*piece, AT_POLICIES))
        if self.config.publications and self.ledger.is_plan_due(second):
            yield from self._publish_plan(piece)
        if self.config.publications and self.ledger.sweep_second != swept:
            yield from self._publish_movers((*piece, MOVED))

    def _pieces(self, entry: CrawlEntry) -> Iterator[tuple[int | None, CrawlEntry]]:
        """Yield the entry in pieces: a tick before each new hour of event time, an end where a sample is due."""
        start = entry.start
        for tick_second, first, last in hours(entry.items, self.ledger.tick_second):
            at = first
            while True:
                until = _row_after_visits(entry.items, at, last, self._visits_to_go())
                end = entry.end if until == len(entry.items) else _position_of(entry.items, until)
                yield tick_second, replace(entry, start=start, end=end, items=entry.items.rows(at, until))
                start, at, tick_second = end, until, None
                if at >= last:
                    break

    def _visits_to_go(self) -> int:
        """Return how many visits may be applied before a sample or a publication is due."""
        visits = self.ledger.visits
        to_sample = self.head.next_sample_visits - visits if self.config.samples else _MANY
        to_publish = _VISITS_PER_PUBLICATION - len(self.head.unpublished) if self.config.publications else _MANY
        return max(1, min(to_sample, to_publish))

    def _count(self, items: CrawlItems, fates: Any) -> None:
        """Count duplicates and late visits of the pages that answered, not of the redirects before them."""
        if not fates.any():
            return
        answered = answers(items)[-len(fates) :]
        for name, fate in (("duplicates", Fate.DUPLICATE), ("late", Fate.LATE), ("forgotten", Fate.REFUSED)):
            self._tally[name] = self._tally.get(name, 0) + int((answered & (fates == fate)).sum())

    def _reject_collisions(self, name: str, items: CrawlItems, fates: Any, piece: Position) -> Iterator[Part]:
        """Reject visits and announcements whose page id is that of another URL. `name` is that of their source."""
        if not (fates == Fate.COLLIDED).any():
            return
        collided = np.zeros(len(items), bool)
        collided[len(items) - len(fates) :] = fates == Fate.COLLIDED
        visits, announced = collided & answers(items), collided & (items.kind == Kind.ANNOUNCEMENT)
        counts = {"visits": int(visits.sum()), "announcements": int(announced.sum())}  # the router has counted them
        for kind, count in counts.items():
            self._tally[kind] = self._tally.get(kind, 0) - count
        reason = Reason.COLLISION.value
        self._rejects[reason] = self._rejects.get(reason, 0) + sum(counts.values())
        yield Part(
            PartKind.REJECTS, piece, b"".join(reject_line(reject, name) for reject in collisions(items, fates, name))
        )

    def _sample(self) -> None:
        ledger = self.ledger
        idle, minted = ledger.idle_cash(), max(ledger.minted, 1)
        top = ledger.top(_SAMPLED_PAGES)
        self._samples.append(
            {
                "time_ms": max(ledger.tick_second, 0) * 1000,
                "visits": ledger.visits,
                "pages": ledger.pages,
                "pages_read": ledger.pages_read,
                "idle_share": idle_cash(idle) / minted,
                "top": [[page, float(f"{i:.6g}")] for page, i in zip(top.pages.tolist(), top.importance, strict=True)],
            }
        )
        step = max(_FEWEST_BETWEEN_SAMPLES, ledger.pages // 4, ledger.visits // 100)
        self.head = replace(self.head, next_sample_visits=ledger.visits + step)

    def _publish_moment(self, piece: Position) -> Iterator[Part]:
        """Publish the importance of all pages, as a state keeps it."""
        ledger = self.ledger
        if not self.config.moments or not 0 < ledger.pages <= MOST_PAGES:
            return
        following = ledger.visits + moments_apart(ledger.pages, ledger.visits)
        self.head = replace(self.head, next_moment_visits=following)
        time_ms = max(ledger.tick_second, 0) * 1000
        yield Part(PartKind.MOMENTS, piece, pack_moment(*ledger.importance(), time_ms, ledger.visits))

    def _publish_movers(self, position: Position) -> Iterator[Part]:
        visits = self.ledger.visits - self.head.visits_at_sweep
        self.head = replace(self.head, visits_at_sweep=self.ledger.visits)
        movers = publish_movers(self.ledger, int(self.config.records_per_visit * visits), self.config.least_move)
        if movers is not None:
            yield Part(PartKind.PUBLICATIONS, position, movers)

    def _publish_visited(self, items: CrawlItems, position: Position) -> Iterator[Part]:
        """Publish visited pages, so many visits at a time, whatever the batches of the log are."""
        waiting = (*self.head.unpublished, *items.page[items.kind == Kind.VISIT].tolist())
        if len(waiting) < _VISITS_PER_PUBLICATION:
            self.head = replace(self.head, unpublished=waiting)
            return
        self.head = replace(self.head, unpublished=())
        published = publish_visited(self.ledger, np.array(waiting, np.uint64))
        if published is not None:
            yield Part(PartKind.PUBLICATIONS, position, published)

    def _publish_plan(self, position: Position) -> Iterator[Part]:
        """Plan the cycle that begins: orders, and the schedules that moved."""
        visits = self.ledger.visits - self.head.visits_at_plan
        self.head = replace(self.head, visits_at_plan=self.ledger.visits)
        planned = publish_plan(self.ledger, int(self.config.records_per_visit * visits), self.config.least_move)
        if planned.schedules is not None:
            yield Part(PartKind.REPLANNED, position, planned.schedules)
        if planned.orders is not None:
            yield Part(PartKind.ORDERED, position, planned.orders)

    def _apply_policies(self, until_ms: int, position: Position) -> Iterator[Part]:
        """Apply the policies up to a time of the crawl that were not applied before."""
        policies = self.config.policies
        first = last = self.policies_had
        while last < len(policies) and policy_time_ms(policies[last]) <= until_ms:
            last += 1
        if last == first:
            return
        entry = PolicyEntry(_POLICIES, LogPosition(first, 0), LogPosition(last, 0), policies=policies[first:last])
        self.head = replace(self.head, policies_chain=policies_chain(policies[first:last], self.head.policies_chain))
        applied = self.ledger.apply(entry)
        self._refused += [[policy_to_json(policy), why] for policy, why in applied.refused]
        self._tally["policies"] = self._tally.get("policies", 0) + last - first - len(applied.refused)
        yield from self._publish_removed(applied, position)

    def _publish_removed(self, applied: Applied, position: Position) -> Iterator[Part]:
        """Publish tombstones of removed pages: earlier publications about them no longer hold."""
        if not applied.removed:
            return
        for why, pages in applied.removed:
            name = f"pages_{why.name.lower()}"
            self._tally[name] = self._tally.get(name, 0) + len(pages)
        yield Part(PartKind.TOMBSTONES, position, pack_tombstones(self.ledger, applied))

    def _publish_importance(self, settled: Settled | None) -> Iterator[Part]:
        """Publish all pages, the most important first; with the settled ranks if there are any."""
        self._certificate = settled.certificate if settled else None
        for number, part in enumerate(everything(self.ledger, settled)):
            yield Part(PartKind.IMPORTANCE, (number,), part)

    def _publish_preview(self, planned: Planned) -> Iterator[Part]:
        """Publish when each page is due, and the orders of the next cycle."""
        for number, part in enumerate(schedule_parts(self.ledger, planned)):
            yield Part(PartKind.SCHEDULE, (number,), part)
        if not self.config.publications:  # which have the orders of each cycle
            for number, part in enumerate(order_parts(self.ledger, planned)):
                yield Part(PartKind.ORDERS, (number,), part)
        if self.config.sites is not None:
            yield Part(
                PartKind.SITES, (0,), pack_sites(self.ledger, planned, self.config.sites, certificate=self._certificate)
            )

    def _report(
        self, note: dict[str, Any], planned: Planned | None, audit: Balance | None, refused_to_come: list[list[Any]]
    ) -> bytes:
        """Return a report of what happened since the last one."""
        ledger = self.ledger
        minted = max(ledger.minted, 1)
        report = {
            "ended": note["ended"],
            "files": note["files"],
            "tally": self._tally,
            "rejects": self._rejects,
            "samples": self._samples,
            "pages": ledger.pages,
            "pages_read": ledger.pages_read,
            "transfers": ledger.transfers,
            "turns": ledger.turns,
            "drift": audit.drift if audit else 0,
            "audit": audit and audit_values(ledger, audit),
            "refused_policies": self._refused,
            "refused_to_come": refused_to_come,
            "plan": planned and plan_in_words(self.ledger, planned),
            "idle": {outcome.name: cash / minted for outcome, cash in ledger.idle_cash().items()},
        }
        if ledger.config.domains.limit_anything:
            report["not_learnt"] = ledger.not_learnt
        if self._certificate is not None:
            report["certificate"] = self._certificate
            if audit:
                report["audit"]["certificate"] = self._certificate
        self._tally, self._rejects, self._samples, self._refused = {}, {}, [], []
        return json.dumps(report, separators=(",", ":")).encode()


def _refused_among(policies: Iterable[Policy], categories: int) -> list[list[Any]]:
    """Return the policies that will be refused when their time comes, and why."""
    refused = []
    for policy in policies:
        try:
            check(policy, categories)
        except PolicyRefused as problem:
            refused.append([policy_to_json(policy), str(problem)])
    return refused


def policies_chain(policies: Iterable[Policy], chain: str = "") -> str:
    """Return the hash of a chain of policies. `chain` is the hash of the policies before."""
    for policy in policies:
        link = chain + json.dumps(policy_to_json(policy), sort_keys=True)
        chain = hashlib.blake2b(link.encode(), digest_size=16).hexdigest()
    return chain


def policy_time_ms(policy: Policy) -> int:
    """Return the time of the crawl from which a policy holds."""
    if policy.published_at_ms is not None:
        return policy.published_at_ms
    return _MANY if policy.fetch_now else 0


def hours(items: CrawlItems, tick_second: int) -> Iterator[Slice]:
    """Yield the rows of each hour of event time, after the tick at its beginning. Time never goes back."""
    rows, hour = np.empty((2, len(items)), np.int64)
    before = max(tick_second // _SECONDS_PER_HOUR, 0)
    found = int(find_hours(for_kernel(items.kind), for_kernel(items.time_ms), before, rows, hour))
    begins = rows[:found].tolist()
    if not begins or begins[0] > 0:
        yield Slice(None, 0, begins[0] if begins else len(items))
    for number, (first, last) in enumerate(zip(begins, [*begins, len(items)][1:], strict=True)):
        yield Slice(int(hour[number]) * _SECONDS_PER_HOUR, first, last)


def answers(items: CrawlItems) -> Any:
    """Return which rows are the visit of the page that answered: the last visit of its event."""
    visits = items.kind == Kind.VISIT
    goes_on = np.zeros(len(items), bool)
    goes_on[:-1] = visits[1:] & (items.offset[1:] == items.offset[:-1])
    return visits & ~goes_on


def _row_after_visits(items: CrawlItems, first: int, last: int, visits: int) -> int:
    """Return the row at which an event begins, after at least so many visits; `last` if there are fewer."""
    if visits > last - first:
        return last
    made: Ints = np.cumsum(items.kind[first:last] == Kind.VISIT)
    if len(made) == 0 or made[-1] < visits:
        return last
    row = first + int(np.searchsorted(made, visits)) + 1
    while row < last and items.offset[row] == items.offset[row - 1]:
        row += 1
    return row


def _position_of(items: CrawlItems, row: int) -> LogPosition:
    return LogPosition(int(items.offset[row]), int(items.within[row]))


@dataclass(frozen=True)
class ReplayKeeperFactory:
    """Makes the keeper of a replay."""

    config: KeeperConfig

    def new(self, shard: int) -> ReplayKeeper:
        """Return a keeper before its first batch."""
        return ReplayKeeper(self.config, self.config.new_ledger(), ReplayHead())

    def restore(self, shard: int, chunks: Iterable[bytes]) -> ReplayKeeper:
        """Return the keeper that wrote these chunks."""
        return ReplayKeeper.from_chunks(self.config, chunks)

    def decode_head(self, stored: bytes | None) -> ReplayHead:
        """Return the stored head, or the first one for None."""
        return ReplayHead.from_bytes(stored) if stored else ReplayHead()
