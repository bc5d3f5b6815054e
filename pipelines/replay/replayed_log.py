"""The log of a replay: batches of events in, in any order; outputs out. No Beam in here.

A `ReplayedLog` brings batches into their order, and holds those that come early. It makes the entries of the log from
them, with those of its clock (event_clock.py), and gives each to the keeper of the ledger, the one that streams have,
too (stages/ledger_keeper.py). A report ends each segment. So the ledger and its outputs do not depend on how the input
was divided.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace

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
    LogEntry,
    LogPosition,
    Plan,
    PolicyEntry,
    TickEntry,
)
from opicflow.pipelines.ledger.entries import CheckedEntry
from opicflow.pipelines.ledger.pages.space import Space, in_memory
from opicflow.pipelines.refresh.policies import check
from opicflow.pipelines.replay.early_batches import EarlyBatches
from opicflow.pipelines.replay.event_clock import (
    Slice,
    answering,
    hours,
    policies_chain,
    policy_time_ms,
    row_after_visits,
    rows_of,
    ticks_in,
)
from opicflow.pipelines.replay.final_plan import (
    final_ranks,
    importance_for_plans,
    order_parts,
    plan_in_words,
    schedule_parts,
)
from opicflow.pipelines.replay.moments import MOST_PAGES, moments_apart, pack_moment
from opicflow.pipelines.replay.reports import Counts, RefusedPolicy, Report, Sample
from opicflow.pipelines.stages.decoded_batch import RoutedBatch
from opicflow.pipelines.stages.freed_memory import return_freed_memory
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_head import LogHead, StoredSizes
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.outputs import (
    FINAL_IMPORTANCE,
    FINAL_ORDERS,
    FINAL_SCHEDULE,
    FINAL_SITES,
    KEPT,
    MOMENTS,
    ORDERS,
    REJECTS,
    Output,
)
from opicflow.pipelines.stages.publish import audit_values, everything, idle_cash
from opicflow.pipelines.stages.publish_sites import pack_sites
from opicflow.pipelines.stages.rejects import collisions, reject_line
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.arrays import Bytes
from opicflow.schemas.crawl_events import Reason
from opicflow.schemas.pages import PageIds
from opicflow.schemas.plain_values import read_plain
from opicflow.schemas.policy_json import PolicyRefused, policy_to_json
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.sites import SiteKind

SHARD = 0
"""A replay has one ledger."""
_FEWEST_BETWEEN_SAMPLES = 200
_SAMPLED_PAGES = 50
_VISITS_PER_PUBLICATION = 500
_NEVER = 1 << 62
_POLICIES = "policies"
_GROWN = 1.5
"""A ledger of so many times the pages returns freed memory: each time the system clears it again when it is used."""


@dataclass(frozen=True)
class ReplayConfig:
    """The settings of a replay's ledger, and of its publications.

    `settle`: the final importance is that of the remembered graph, settled. `samples`: report how the crawl went;
    `moments`: at some of the samples, yield the importance of all pages.
    `publications`: publish during the crawl, as a stream does: pages whose score moved by more than `least_move` of
    itself, at most `records_per_visit`, and the plan of every cycle. `sites`: the importance of hosts or domains at the
    end. `policies` are in the order of their times (`policy_time_ms`): each is applied when the crawl reaches its time.
    The plan at the end includes those that are still to come.
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
    has_offsets: bool = True
    """Whether batches have their offsets in the log. Otherwise they get them as they arrive."""
    multiplier: int | None = field(default=None, compare=False, repr=False)
    """The multiplier of hash tables: no result depends on it, and it must not be guessed (ledger.Ledger)."""
    space: Space = field(default=in_memory, compare=False, repr=False)
    """The space for the ledger's URLs and remembered links: no result depends on it."""

    def new_ledger(self) -> Ledger:
        """Return a ledger that has applied nothing."""
        return Ledger(self.ledger, page_ids=self.page_ids, multiplier=self.multiplier, space=self.space)

    def restored_ledger(self, chunks: Iterable[bytes]) -> Ledger:
        """Return the ledger of a snapshot."""
        return Ledger.restore(chunks, self.page_ids, self.multiplier, self.space)

    def origin(self) -> Origin:
        """Return the settings with which the log begins."""
        return Origin(
            self.ledger,
            ShardRanges(),
            Rules(page_ids=self.page_ids),
            self.records_per_visit,
            self.least_move,
            audit_seconds=_NEVER,  # the report at the end has one
        )


@dataclass
class _Due:
    """When samples are due, a hash of the chain of all policies applied, and what the end depends on."""

    next_sample_visits: int = 1
    next_moment_visits: int = 0
    policies_chain: str = ""
    has_ordered: bool = False
    """Whether orders were published in this run."""


class ReplayedLog:
    """The log of one ledger: the keeper that applies it, batches that came early, and counts since the last report."""

    def __init__(self, config: ReplayConfig, ledger: Ledger) -> None:
        """Begin the log of a ledger that has applied nothing."""
        self.config = config
        self.ledger = ledger
        self.keeper = LedgerKeeper(SHARD, publishes=config.publications, visits_per_publication=_VISITS_PER_PUBLICATION)
        self.keeper.begin(config.origin(), ledger)
        self.early = EarlyBatches()
        self._counted = Counts()
        self._due = _Due()
        self._certificate: float | None = None
        self._pages_at_return = 0
        """The pages when freed memory was returned last."""

    @property
    def head(self) -> LogHead:
        """How far the log was applied, and a hash of all batches so far, early ones included."""
        return self.keeper.head

    @property
    def sizes(self) -> StoredSizes:
        """The sizes of its snapshot and journal in state."""
        return self.keeper.sizes

    @property
    def policies_had(self) -> int:
        """The number of policies applied so far."""
        return self.ledger.mark(_POLICIES).offset

    @property
    def policies_chain(self) -> str:
        """A hash of the chain of all policies applied."""
        return self._due.policies_chain

    def begin_run(self) -> None:
        """Begin another run, whose outputs are its own."""
        self._due.has_ordered = False

    # -- state -----------------------------------------------------------------------------------------------------

    def notes(self) -> bytes:
        """Return everything but the ledger and early batches, of which these are the offsets, as JSON."""
        notes = [self.keeper.notes(), asdict(self._counted), asdict(self._due), list(self.early)]
        return json.dumps(notes, separators=(",", ":")).encode()

    def chunks(self) -> Iterator[bytes]:
        """Yield everything in chunks: the notes, the early batches, the snapshot of the ledger."""
        yield self.notes()
        yield from self.early.values()
        yield from (chunk.data for chunk in self.ledger.snapshot())

    @classmethod
    def from_chunks(cls, config: ReplayConfig, chunks: Iterable[bytes]) -> ReplayedLog:
        """Return the log that yielded these chunks."""
        remaining = iter(chunks)
        notes, early = next(remaining), EarlyBatches()
        for offset in json.loads(notes)[-1]:
            early[offset] = next(remaining)
        return cls.from_notes(config, config.restored_ledger(remaining), notes, early)

    @classmethod
    def from_notes(
        cls, config: ReplayConfig, ledger: Ledger, notes: bytes, early: EarlyBatches | None = None
    ) -> ReplayedLog:
        """Return the log that wrote these notes, with its restored ledger and early batches.

        Raises `ValueError`, `LookupError` or `TypeError` for anything else.
        """
        kept, counted, due, offsets = json.loads(notes)
        if sorted(offsets) != sorted(early or ()):
            raise ValueError("batches that wait for their turn are missing")
        log = cls(config, ledger)
        log.keeper.restore_notes(kept)
        log._counted, log._due = read_plain(Counts, counted), read_plain(_Due, due)
        if early is not None:
            log.early = early
        return log

    # -- batches ---------------------------------------------------------------------------------------------------

    def take(self, batch: RoutedBatch | bytes) -> Iterator[Output]:
        """Apply a batch, and those that waited for it. Holds a batch that is early, drops one that was applied."""
        if isinstance(batch, bytes):
            batch = RoutedBatch.from_bytes(batch)
        head = self.head
        if not self.config.has_offsets:
            batch = batch.at_offset(head.next)
        self.keeper.head = replace(head.behind(batch.offset, 0, batch.digest()), next=head.next)
        if batch.offset > head.next:
            self.early[batch.offset] = batch.to_bytes()
        elif batch.offset == head.next:
            yield from self._apply(batch)
            while (waiting := self.early.pop(self.head.next, None)) is not None:
                yield from self._apply(RoutedBatch.from_bytes(waiting))

    def _apply(self, batch: RoutedBatch) -> Iterator[Output]:
        """Apply a batch. Its outputs get their numbers."""
        for number, output in enumerate(self._outputs(batch), KEPT):
            yield output._replace(offset=batch.offset, number=number)

    def _outputs(self, batch: RoutedBatch) -> Iterator[Output]:
        if self.ledger.tick_second < 0:
            yield from self._apply_policies(0)
        has_grown = self.ledger.pages >= _GROWN * self._pages_at_return
        if has_grown:
            self._pages_at_return = self.ledger.pages
            return_freed_memory()
        yield from self._apply_checked(self.ledger.checked(batch.entry), batch.name)
        if has_grown:
            return_freed_memory()
        now = self.config.now_second
        if batch.ends_input and now is not None and now > self.ledger.tick_second:
            yield from self._tick(now)
        for name, count in batch.counts.items():
            self._counted.add(name, count)
        for reason, count in batch.reasons.items():
            self._counted.add_reject(reason, count)
        self.keeper.head = replace(self.head, next=batch.end)
        if batch.ends_input:
            yield from self._end(batch)
        elif batch.ends_segment:
            yield self._report(batch)

    def _ticks_are_quiet(self) -> bool:
        """Whether nothing happens at ticks but what the ledger does: then it applies a batch with its ticks at once."""
        return not (self.config.policies or len(self.ledger.policies) or self.config.publications)

    def _apply_checked(self, entry: CheckedEntry, name: str) -> Iterator[Output]:
        """Apply rows, up to each sample and publication that is due; hour by hour if ticks are not quiet."""
        before, is_quiet = self.ledger.tick_second, self._ticks_are_quiet()
        within = ticks_in(entry.items, before) if is_quiet else ()
        for tick_second, first, last in [Slice(None, 0, len(entry.items))] if is_quiet else hours(entry.items, before):
            if tick_second is not None:
                yield from self._tick(tick_second)
            while first <= last:
                until = row_after_visits(entry.items, first, last, self._visits_to_go())
                ticks = tuple((row - first, second) for row, second in within if first <= row < until)
                yield from self._apply_rows(replace(rows_of(entry, first, until), ticks=ticks), name)
                if until == last:
                    break
                first = until

    def _visits_to_go(self) -> int | None:
        """Return how many visits may be applied before a sample or a publication is due; None: any number."""
        to_sample = self._due.next_sample_visits - self.ledger.visits if self.config.samples else None
        known = [visits for visits in (to_sample, self.keeper.visits_to_publication) if visits is not None]
        return max(1, min(known)) if known else None

    def _apply_entry(self, entry: LogEntry) -> Generator[Output, None, Applied]:
        applied = yield from self.keeper.apply(entry)
        for why, pages in applied.removed:
            self._counted.add(f"pages_{why.name.lower()}", len(pages))
        return applied

    def _apply_rows(self, rows: CrawlEntry, name: str) -> Iterator[Output]:
        """Apply rows of events; `name` is that of their source."""
        applied = yield from self._apply_entry(rows)
        self._count(rows.items, applied.fates)
        yield from self._reject_collisions(name, rows.items, applied.fates)
        if self.config.samples and self.ledger.visits >= self._due.next_sample_visits:
            self._sample()
            if self.ledger.visits >= self._due.next_moment_visits:
                yield from self._publish_moment()

    def _tick(self, second: int) -> Iterator[Output]:
        """Apply a tick, and the policies that hold from then on; then publish what is due."""
        yield from self._apply_entry(TickEntry(second))
        yield from self._apply_policies(1000 * second)
        for output in self.keeper.publish_due():
            self._due.has_ordered = self._due.has_ordered or output.kind == ORDERS
            yield output

    def _apply_policies(self, until_ms: int) -> Iterator[Output]:
        """Apply the policies up to a time of the crawl that were not applied before."""
        policies = self.config.policies
        first = last = self.policies_had
        while last < len(policies) and policy_time_ms(policies[last]) <= until_ms:
            last += 1
        if last == first:
            return
        entry = PolicyEntry(_POLICIES, LogPosition(first, 0), LogPosition(last, 0), policies=policies[first:last])
        self._due.policies_chain = policies_chain(policies[first:last], self._due.policies_chain)
        applied = yield from self._apply_entry(entry)
        self._counted.refused_policies += [(policy_to_json(policy), why) for policy, why in applied.refused]
        self._counted.add("policies", last - first - len(applied.refused))

    # -- counts and samples ----------------------------------------------------------------------------------------

    def _count(self, items: CrawlItems, fates: Bytes) -> None:
        """Count duplicates and late visits of the pages that answered, not of the redirects before them."""
        if not fates.any():
            return
        found = np.bincount(fates[answering(items)[-len(fates) :]], minlength=len(Fate))
        for name, fate in (("duplicates", Fate.DUPLICATE), ("late", Fate.LATE), ("forgotten", Fate.REFUSED)):
            self._counted.add(name, int(found[fate]))

    def _reject_collisions(self, name: str, items: CrawlItems, fates: Bytes) -> Iterator[Output]:
        """Reject visits and announcements whose page id is that of another URL. `name` is that of their source."""
        if not (fates == Fate.COLLIDED).any():
            return
        collided = np.zeros(len(items), bool)
        collided[len(items) - len(fates) :] = fates == Fate.COLLIDED
        visits, announced = collided & answering(items), collided & (items.kind == Kind.ANNOUNCEMENT)
        counts = {"visits": int(visits.sum()), "announcements": int(announced.sum())}  # the router has counted them
        for kind, count in counts.items():
            self._counted.add(kind, -count)
        self._counted.add_reject(Reason.COLLISION.value, sum(counts.values()))
        yield Output(REJECTS, b"".join(reject_line(reject, name) for reject in collisions(items, fates, name)))

    def _sample(self) -> None:
        ledger = self.ledger
        idle, minted = ledger.idle_cash(), max(ledger.minted, 1)
        top = ledger.top(_SAMPLED_PAGES)
        self._counted.samples.append(
            Sample(
                max(ledger.tick_second, 0) * 1000,
                ledger.visits,
                ledger.pages,
                ledger.pages_read,
                idle_cash(idle) / minted,
                [(page, float(f"{i:.6g}")) for page, i in zip(top.pages.tolist(), top.importance, strict=True)],
            )
        )
        step = max(_FEWEST_BETWEEN_SAMPLES, ledger.pages // 4, ledger.visits // 100)
        self._due.next_sample_visits = ledger.visits + step

    def _publish_moment(self) -> Iterator[Output]:
        """Publish the importance of all pages, as a state keeps it."""
        ledger = self.ledger
        if not self.config.moments or not 0 < ledger.pages <= MOST_PAGES:
            return
        self._due.next_moment_visits = ledger.visits + moments_apart(ledger.pages, ledger.visits)
        time_ms = max(ledger.tick_second, 0) * 1000
        yield Output(MOMENTS, pack_moment(*ledger.importance(), time_ms, ledger.visits))

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, batch: RoutedBatch) -> Iterator[Output]:
        """Yield the results, with the report before the plan: each step takes memory of its own."""
        ledger, config = self.ledger, self.config
        ledger.put_aside()
        return_freed_memory()
        settled = final_ranks(ledger, config.settle)
        self._certificate = settled.certificate if settled else None
        for part in everything(ledger, settled):
            yield Output(FINAL_IMPORTANCE, part)
        audit = ledger.audit()
        importance = importance_for_plans(ledger, settled)
        del settled
        return_freed_memory()
        coming = config.policies[self.policies_had :]
        refused_to_come = _refused_among(coming, ledger.config.categories)
        planned = ledger.preview(coming=coming, importance=importance)
        if config.samples:
            self._sample()
            yield from self._publish_moment()
        yield self._report(batch, planned, audit, refused_to_come)
        for part in schedule_parts(ledger, planned):
            yield Output(FINAL_SCHEDULE, part)
        if not self._due.has_ordered:  # the orders of the present cycle were published otherwise
            for part in order_parts(ledger, planned):
                yield Output(FINAL_ORDERS, part)
        if config.sites is not None:
            yield Output(FINAL_SITES, pack_sites(ledger, planned, config.sites, certificate=self._certificate))
        del planned, importance
        ledger.take_up()

    def _report(
        self,
        batch: RoutedBatch,
        planned: Plan | None = None,
        audit: Balance | None = None,
        refused_to_come: Iterable[RefusedPolicy] = (),
    ) -> Output:
        """Return a report of what happened since the last one."""
        ledger = self.ledger
        minted = max(ledger.minted, 1)
        values = {} if audit is None else audit_values(ledger, audit)
        if values and self._certificate is not None:
            values["certificate"] = self._certificate
        report = Report(
            self._counted,
            batch.ends_input,
            list(batch.progress),
            ledger.pages,
            ledger.pages_read,
            ledger.transfers,
            ledger.turns,
            audit.drift if audit else 0,
            {outcome.name: cash / minted for outcome, cash in ledger.idle_cash().items()},
            values,
            {} if planned is None else plan_in_words(ledger, planned),
            list(refused_to_come),
            self._certificate,
            ledger.not_learnt if ledger.config.domains.limit_anything else None,
        )
        self._counted = Counts()
        return report.output()


def _refused_among(policies: Iterable[Policy], categories: int) -> list[RefusedPolicy]:
    """Return the policies that will be refused when their time comes, and why."""
    refused = []
    for policy in policies:
        try:
            check(policy, categories)
        except PolicyRefused as problem:
            refused.append((policy_to_json(policy), str(problem)))
    return refused


@dataclass(frozen=True)
class ReplayedLogFactory:
    """Makes the log of a replay."""

    config: ReplayConfig

    def new(self, shard: int) -> ReplayedLog:
        """Return a log before its first batch."""
        return ReplayedLog(self.config, self.config.new_ledger())

    def restore(self, shard: int, chunks: Iterable[bytes]) -> ReplayedLog:
        """Return the log that wrote these chunks."""
        return ReplayedLog.from_chunks(self.config, chunks)
