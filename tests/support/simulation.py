"""The whole stream in one process, without Flink and Kafka: a seeded simulation.

`Sharder` routes partitions of crawl events and policies into the logs of some shards. The ledgers of the shards
(`KeepLedger` with its state and its cache) exchange transfers through the same logs. A schedule causes the events in
the life of a stream: batches of any size arrive in any order; stages lag; the stream restarts from one of the last
checkpoints, while the records sent since then stay in the logs; bundles end half-way; an old copy of a stage works
beside the new one, and its records arrive late; caches are lost or outdated. At the end all input is processed, and
`check` asserts the laws. Snapshots are in the state of the stages, or in a storage that loses and damages some.

The records that a bundle sends are in the logs before anything else happens, as in the real stages.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from itertools import count
from typing import Any

import numpy as np

from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.ledger import (
    Certified,
    CrawlItems,
    History,
    Interpolation,
    ItemWriter,
    Kind,
    LedgerConfig,
    LogPosition,
    Outcome,
    RefreshConfig,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.stream import sent
from opicflow.pipelines.stream.keeper import LogBatch, LogHead, LogKeeper, LogKeeperFactory, Origin, request_fingerprint
from opicflow.pipelines.stream.ledgers import JournalInLog
from opicflow.pipelines.stream.snapshot_reader import restore_newest
from opicflow.pipelines.stream.snapshot_store import Snapshots, SnapshotStore, pack_chunks
from opicflow.pipelines.transforms.keep_ledger import Journal, KeepLedger
from opicflow.pipelines.transforms.keepers import KEEPERS, Head, Keeper
from opicflow.pipelines.transforms.outputs import AUDIT, IMPORTANCE, ORDERS, REJECTS, SCHEDULE, SITES, TRANSFERS, Output
from opicflow.pipelines.transforms.rules import Rules
from opicflow.pipelines.transforms.shard import Sharder, SourceState, ToShard
from opicflow.schemas.columns import unpack
from opicflow.schemas.pages import PageIds
from opicflow.schemas.public_suffixes import PublicSuffixes
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.ranges import any_ranges

SUFFIXES = PublicSuffixes("of these tests", b"com\norg")
"""The whole list is read again whenever a ledger starts: that took most of the time of a schedule."""

FIRST_MS = 1_700_000_000_000
POISON = b"not an entry of a log"
POLICIES = "policies"
_KEPT_CHECKPOINTS = 3
_MOST_BATCHES = 8
_LEAST_LOG_MB = 0.003
_MOST_WORK = 2000
_runs = count()


# -- the crawl ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The events of a source at offsets 0 to `end`, as rows."""

    items: CrawlItems
    end: int

    def between(self, start: int, end: int, seen: set[int] | None = None) -> CrawlItems:
        """Return the rows of these events, without sightings of pages in `seen`."""
        first, last = np.searchsorted(self.items.offset, [start, end]).tolist()
        items = self.items.rows(first, last)
        if seen is None:
            return items
        kept = []
        for row, (kind, page) in enumerate(zip(items.kind.tolist(), items.page.tolist(), strict=True)):
            if kind != Kind.SIGHTING or page not in seen:
                kept.append(row)
            if kind == Kind.SIGHTING:
                seen.add(page)
        return items.take(np.array(kept, np.int64))


@dataclass(frozen=True)
class World:
    """A crawl of a small web, in partitions, with policies."""

    config: LedgerConfig
    partitions: dict[str, Rows]
    policies: tuple[Policy, ...]

    @classmethod
    def of(cls, chance: random.Random, partitions: int, events: int, pages: int, history: History) -> World:
        """Make repeated visits of pages, with redirects, late visits and duplicates."""
        web = [chance.getrandbits(64) for _ in range(pages)]
        links = {page: chance.sample(web, chance.randint(0, min(4, pages))) for page in web}
        for page in web:  # a page that is never visited and has no other link to it
            links[page] += [chance.getrandbits(64)] * (chance.random() < 0.5)
        config = LedgerConfig(
            history=history,
            remember_links=chance.random() < 0.5,
            remembered_visits=1 << 12,
            cut_visits_per_1000_pages=chance.choice([10, 200, 1000]),
            cut_seconds=chance.choice([0, 5, 20]),
            refresh=RefreshConfig(cycle_hours=1.0),
        )
        writers = [ItemWriter() for _ in range(partitions)]
        visited: list[tuple[int, int]] = []
        for number in range(events):
            writer = chance.choice(writers)
            _write_event(writer, chance, web, links, visited, FIRST_MS + 1000 * number)
            writer.next_position = LogPosition(writer.next_position.offset + 1 + (chance.random() < 0.1), 0)
        rows = {f"kafka/topic/{p}": Rows(w.items(), w.next_position.offset) for p, w in enumerate(writers)}
        return cls(config, rows, tuple(_policy(chance, web) for _ in range(chance.randint(0, 5))))

    @cached_property
    def visits(self) -> Counter[int]:
        """The number of visits of each page, in all partitions."""
        return Counter(page for rows in self.partitions.values() for page in _visits(rows.items)[0])

    @cached_property
    def distinct(self) -> int:
        """The number of visits without duplicates."""
        return len({pair for rows in self.partitions.values() for pair in zip(*_visits(rows.items), strict=True)})

    @cached_property
    def pages(self) -> set[int]:
        """All pages in the partitions."""
        return {page for rows in self.partitions.values() for page in rows.items.page.tolist()}

    def of_shard(self, pages: Iterable[int], shard: int, ranges: ShardRanges) -> list[int]:
        """Return the pages that belong to a shard."""
        ids = np.array(list(pages), np.uint64)
        return ids[ranges.of(ids) == shard].tolist()


def _visits(items: CrawlItems) -> tuple[list[int], list[int]]:
    rows = items.kind == Kind.VISIT
    return items.page[rows].tolist(), items.time_ms[rows].tolist()


def _write_event(
    writer: ItemWriter,
    chance: random.Random,
    web: list[int],
    links: dict[int, list[int]],
    visited: list[tuple[int, int]],
    time_ms: int,
) -> None:
    offset, fate = writer.next_position.offset, chance.random()
    quality = offset % 256 if offset % 3 == 0 else 0
    if fate < 0.1:
        page = chance.choice(web)
        writer.announcement(page, url=_url(page), quality=quality)
        return
    page = chance.choice(web)
    if fate < 0.2 and visited:
        page, time_ms = chance.choice(visited)  # a duplicate, perhaps in another partition
    elif fate < 0.3:
        time_ms -= chance.randint(1, 100) * 1000  # late
    visited.append((page, time_ms))
    outcome, found = Outcome.FETCHED, links[page]
    if fate > 0.95:
        outcome, known = chance.choice([Outcome.FAILED, Outcome.GONE, Outcome.UNCHANGED]), None
    else:
        known = found if fate > 0.4 else None
    if 0.5 < fate < 0.6 and found:  # a redirect, most often to another shard
        target = found[0]
        writer.visit(page, [target], Outcome.REDIRECTED, time_ms, url=_url(page))
        writer.next_position = LogPosition(offset, 2)
        page, known = target, links.get(target)
    writer.visit(page, known, outcome, time_ms, url=_url(page), digest=chance.randint(0, 3), quality=quality)
    for within, target in enumerate(known or (), 4):
        writer.next_position = LogPosition(offset, within)
        writer.sighting(target, url=_url(target))
    writer.next_position = LogPosition(offset, 0)
    if chance.random() < 0.1:
        links[page] = chance.sample(web, min(2, len(web)))


def _policy(chance: random.Random, web: list[int]) -> Policy:
    """Return a policy that changes cash or schedules and removes no page: so no count depends on the order."""
    url = _url(chance.choice(web)).decode()
    return chance.choice(
        [
            Policy(damping=chance.choice([0.5, 0.8])),
            Policy(url=url, refresh_interval_seconds=7200.0),
            Policy(url=url, fetch_now=True),
            Policy(url=url, importance_factor=2.0),
        ]
    )


def _url(page: int) -> bytes:
    return b"https://example.org/%016x" % page


# -- state, logs and stages --------------------------------------------------------------------------------------------


class Value:
    """A value in keyed state."""

    def __init__(self, value: bytes | None = None) -> None:
        self.value = value

    def read(self) -> bytes | None:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class MemoryFolder(StorageFolder):
    """A folder in storage, in memory."""

    def __init__(self) -> None:
        object.__setattr__(self, "url", "memory:/")
        object.__setattr__(self, "files", {})

    files: dict[str, bytes]

    def names(self, below: str = "") -> list[str]:
        start = f"{below}/" if below else ""
        return sorted({name[len(start) :].partition("/")[0] for name in self.files if name.startswith(start)})

    def read(self, name: str, most_bytes: int) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def remove(self, name: str) -> None:
        for file in [file for file in self.files if file.startswith(f"{name}/")]:
            del self.files[file]


class Bag:
    """A bag in keyed state."""

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self.values = list(values)

    def read(self) -> list[bytes]:
        return self.values

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []


@dataclass
class Log:
    """The log of a shard: its records keep their offsets, and times never decrease."""

    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0

    def append(self, time_ms: int, value: bytes, gap: int = 0) -> None:
        """Append a record behind `gap` offsets without one. Times may go back, as those of Kafka do."""
        self.records.append((self.end + gap, time_ms, value))
        self.end += gap + 1

    def batch(self, start: int, end: int) -> LogBatch:
        """Return the records between two offsets."""
        return LogBatch.of(start, [one for one in self.records if start <= one[0] < end], end)

    def read(self, start: int, end: int) -> Iterator[LogBatch]:
        """Return the records between two offsets, in batches of seven offsets."""
        return (self.batch(at, min(at + 7, end)) for at in range(start, end, 7))


@dataclass
class Router:
    """The stage that routes a source, and its state."""

    source: str
    state: bytes
    everywhere_at: int = -1

    @property
    def next_offset(self) -> int:
        """The offset to read next."""
        return SourceState.from_bytes(self.state).next

    def copy(self) -> Router:
        """Return a copy for a checkpoint."""
        return replace(self)


@dataclass
class Shard:
    """The stage that keeps the ledger of a log, and its state."""

    number: int
    run: str
    head: Value = field(default_factory=Value)
    snapshot: Bag = field(default_factory=Bag)
    outputs: list[Output] = field(default_factory=list)
    """Its outputs up to its state: a restart removes later ones."""
    storage: Storage | None = None
    """Where its snapshots are; None = in its state."""

    @property
    def next_offset(self) -> int:
        """The offset to read next."""
        return LogKeeperFactory().decode_head(self.head.value).next

    def copy(self, run: str | None = None) -> Shard:
        """Return a copy for a checkpoint."""
        return Shard(
            self.number,
            run or self.run,
            Value(self.head.value),
            Bag(self.snapshot.values),
            list(self.outputs),
            self.storage,
        )

    def apply(self, batches: Iterable[LogBatch], log: Log) -> Iterator[Output]:
        """Apply batches like the real stage."""
        stage = LedgerStage(self, log)
        for batch in batches:
            yield from stage.keep(self.number, batch, self.head, self.snapshot, JournalInLog(log.read, _LEAST_LOG_MB))


@dataclass
class Storage:
    """The snapshots of all shards, and those that wait until the outputs of their ledgers have arrived."""

    store: SnapshotStore
    begun: list[tuple[str, int, LogHead, list[bytes]]] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    def finish(self, chance: random.Random, is_sent: Callable[[str, int, int], bool]) -> None:
        """Finish the snapshots whose outputs have arrived; some writers end half-way, and some parts are damaged."""
        waiting, self.begun = self.begun, []
        for one in waiting:
            run, shard, head, chunks = one
            if not is_sent(run, shard, head.next):
                self.begun.append(one)
                continue
            file, files = BytesIO(), self.store.where.folder.files  # type: ignore[attr-defined]
            before = set(files)
            self.store.write(shard, head, 0, pack_chunks(chunks, file), file, "simulated")
            self.happened["snapshot"] += 1
            fate, new = chance.random(), sorted(set(files) - before)
            if fate < 0.3 and new:
                name = chance.choice(new)
                if fate < 0.15:
                    del files[name]
                else:
                    files[name] = files[name][:-1]
            self.store.remove_old(shard)


class LedgerStage(KeepLedger):
    """`KeepLedger` with what the stage of the ledgers adds to it: snapshots in storage, and ledgers that are ahead."""

    def __init__(self, shard: Shard, log: Log) -> None:
        super().__init__(LogKeeperFactory(), shard.run)
        self._shard = shard
        self._log = log

    def is_usable(self, keeper: Keeper, head: Head) -> bool:
        assert isinstance(keeper, LogKeeper) and isinstance(head, LogHead)
        if super().is_usable(keeper, head):
            return True
        is_ahead = sent.may_go_on(self._run, keeper.shard, keeper.head, head)
        if is_ahead and self._shard.storage is not None:
            self._shard.storage.happened["ahead"] += 1
            self._take_outputs(keeper.head)
        return is_ahead

    def write_snapshot(self, keeper: Keeper, snapshot: Any, journal: Journal) -> None:
        if self._shard.storage is None:
            super().write_snapshot(keeper, snapshot, journal)
            return
        assert isinstance(keeper, LogKeeper)
        self._shard.storage.begun.append((self._run, keeper.shard, keeper.head, list(keeper.chunks())))
        journal.clear(keeper)

    def recover(self, shard: int, head: Any, snapshot: Any, journal: Journal | None) -> Keeper:
        storage = self._shard.storage
        if storage is not None and journal is not None:
            keeper = restore_newest(storage.store, self._factory, shard, head, lambda *at: None, journal.since)
            if keeper is not None:
                storage.happened["restored"] += 1
                if keeper.head.next > head.next:
                    storage.happened["snapshot ahead"] += 1
                    self._take_outputs(keeper.head)
                return keeper
        return super().recover(shard, head, snapshot, journal)

    def _take_outputs(self, head: LogHead) -> None:
        """A ledger goes on ahead of its state: its outputs up to there, which follow from the log, have arrived."""
        keeper = LogKeeper(self._shard.number)
        self._shard.outputs = [one for batch in self._log.read(0, head.next) for one in keeper.take(batch)]


Stage = Router | Shard
Send = tuple[int, bytes]
"""An entry, and the shard whose log receives it."""


@dataclass
class Zombie:
    """An old copy of a stage that still works after it was replaced, and its records that have not arrived yet."""

    stage: Stage
    late: list[Send] = field(default_factory=list)


@dataclass
class Checkpoint:
    """The states of all stages at one time."""

    routers: dict[str, Router]
    shards: list[Shard]


@dataclass(frozen=True)
class Faults:
    """How many steps of a thousand are something else than routing, applying and ticks."""

    checkpoint: int = 120
    crash: int = 50
    half: int = 60
    zombie: int = 80
    cache: int = 40
    new_partition: int = 15
    upgrade: int = 15
    poison: int = 10
    fingerprint: int = 10
    clock: int = 10
    """The clock of a broker leaps ahead or back, or is right again."""
    lost: int = 15
    """A router has lost its state, and the oldest events were deleted."""
    hole: int = 0
    """A bundle fails after a record of it has arrived and an earlier one has not."""


_CLOCK_ERRORS_MS = [sign * days * 86_400_000 for days in (1, 400) for sign in (1, -1)]
NO_FAULTS = Faults(*(0,) * 12)


class Simulation:
    """A stream of some shards that reads a world."""

    def __init__(self, seed: int, faults: Faults | None = None, steps: int = 60) -> None:
        """Derive everything from the seed."""
        self.chance = random.Random(seed)
        chance = self.chance
        self.faults = faults or Faults()
        self.steps = steps
        self.shards = chance.choice([1, 2, 3, 4])
        history = Certified() if seed % 3 == 0 else Interpolation()
        self.world = World.of(chance, chance.randint(1, 3), chance.randint(10, 50), chance.randint(1, 16), history)
        self.now_ms = FIRST_MS
        self.most_entry_bytes = 4 << 20
        self.happened: Counter[str] = Counter()
        self.run = f"simulation-{seed}-{next(_runs)}"
        self._runs = [self.run]
        self._old_chunks: dict[int, list[bytes]] = {}
        self._seen: set[int] = set()
        self.zombies: list[Zombie] = []

        sources = [POLICIES, *self.world.partitions]
        late = sources[2:] if self.faults.new_partition else []
        self._unknown = [source for source in late if chance.random() < 0.5]
        quiet = chance.random() < 0.3
        until = {s: self._end_of(s) // 2 for s in sources if s not in self._unknown and self._end_of(s) > 1}
        ranges = any_ranges(self.shards, chance.randrange(1 << 30))
        self.origin = Origin(
            self.world.config,
            ranges,
            Rules(page_ids=PageIds(suffixes=SUFFIXES)),
            audit_seconds=5,
            quiet_until=until if quiet else {},
            sites="domain",
        )
        self.logs = [Log() for _ in range(self.shards)]
        self.clock_errors_ms = [0] * self.shards
        for log in self.logs:
            log.append(self.now_ms, self.origin.entry())
        self.routers: dict[str, Router] = {}
        self.storage: Storage | None = None
        if seed % 2:
            snapshots = Snapshots(MemoryFolder(), chance.choice([1, 2]), keep_hours=-1.0)
            self.storage = Storage(snapshots.of_logs("page-ledger", "id"))
        self.keepers = [Shard(number, self.run, storage=self.storage) for number in range(self.shards)]
        for source in sources:
            if source not in self._unknown:
                self._begin(source)
        self.checkpoints = [self._checkpoint()]

    # -- the schedule ----------------------------------------------------------------------------------------------

    def play(self) -> Simulation:
        """Run the schedule, process all input, and check the laws."""
        try:
            for _ in range(self.steps):
                self.step()
            self.drain()
            self.check()
            if self.storage is not None:
                self.happened += self.storage.happened
        finally:
            for run in self._runs:
                KEEPERS.remove_run(run)
        return self

    def step(self) -> None:
        """Cause one event."""
        faults, chance = self.faults, self.chance
        self.now_ms += chance.choice([0, 1, 50, 1000, 4000, 4000, 20_000])
        if chance.random() < 0.02:
            self.now_ms += 3_700_000
        rest = 1000 - sum(vars(faults).values())
        names = [*vars(faults), "route", "apply", "tick"]
        weights = [*vars(faults).values(), rest * 4 // 10, rest * 5 // 10, rest // 10]
        self._do(chance.choices(names, weights)[0])

    def _do(self, what: str) -> None:
        chance = self.chance
        self.happened[what] += 1
        if what in ("route", "apply"):
            self._work()
        elif what == "tick":
            self._tick()
        elif what == "checkpoint":
            self.checkpoints = [*self.checkpoints, self._checkpoint()][-_KEPT_CHECKPOINTS:]
        elif what == "crash":
            self._crash()
        elif what in ("half", "hole"):
            self._work(fails=what)
        elif what == "zombie":
            self._run_zombie()
        elif what == "cache":
            self._disturb_cache()
        elif what == "new_partition":
            if self._unknown:
                self._begin(self._unknown.pop())
        elif what == "upgrade":
            self._upgrade()
        elif what == "poison":
            chance.choice(self.logs).append(self.now_ms, chance.choice([POISON, b"", POISON * 20]))
        elif what == "clock":
            self.clock_errors_ms[chance.randrange(self.shards)] = chance.choice([0, *_CLOCK_ERRORS_MS])
        elif what == "lost":
            self._lose_router()
        elif what == "fingerprint":
            chance.choice(self.logs).append(self.now_ms, request_fingerprint())

    def drain(self) -> None:
        """Process all input and all transfers, and request the fingerprints of all ledgers."""
        while self._unknown:
            self._begin(self._unknown.pop())
        for zombie in self.zombies:
            self._arrive(zombie.late[: self.chance.randint(0, len(zombie.late))])
        self.zombies = []
        self._work_until_done()
        self.clock_errors_ms = [0] * self.shards
        self._pass_a_minute()
        self._check_quiet()
        for log in self.logs:
            log.append(self.now_ms, request_fingerprint())
        self._work_until_done()

    def _pass_a_minute(self) -> int:
        """Let a minute pass, in which all that waits is sent. Returns how many records the ledgers have sent."""
        self.now_ms += 60_000
        self._tick()
        before = sum(len(log.records) for log in self.logs)
        self._work_until_done()
        return sum(len(log.records) for log in self.logs) - before

    def _check_quiet(self) -> None:
        """Shards to which nothing happens send nothing. Residuals are pushed on for longer."""
        config = self.world.config
        if config.cut_seconds and not isinstance(config.history, Certified):
            for _ in range(4):
                self._pass_a_minute()
            assert self._pass_a_minute() == 0, "nothing is sent where nothing happens"

    def _work_until_done(self) -> None:
        """Work until no input is left. It ends because a transfer never causes a transfer."""
        for _ in range(_MOST_WORK):
            if not self._can_work():
                return
            self._work()
        raise AssertionError(f"there is still input after {_MOST_WORK} steps of work")

    # -- stages ----------------------------------------------------------------------------------------------------

    def _end_of(self, source: str) -> int:
        return len(self.world.policies) if source == POLICIES else self.world.partitions[source].end

    def _begin(self, source: str) -> None:
        state = SourceState.at(0, self.shards).to_bytes()
        self.routers[source] = Router(source, state, self.origin.quiet_until.get(source, -1))

    def _stages(self) -> list[Stage]:
        return [*self.routers.values(), *self.keepers]

    def _left(self, stage: Stage) -> int:
        """Return the number of offsets that are not read yet."""
        end = self._end_of(stage.source) if isinstance(stage, Router) else self.logs[stage.number].end
        return end - stage.next_offset

    def _can_work(self) -> list[Stage]:
        return [stage for stage in self._stages() if self._left(stage)]

    def _work(self, fails: str = "") -> None:
        """Run a bundle of one stage. With `fails` it ends half-way, and all stages restart."""
        stages = self._can_work()
        if not stages:
            return
        stage = self.chance.choice(stages)
        sends = self._run_bundle(stage, half=bool(fails))
        if not fails:
            self._arrive(sends)
            return
        if fails == "hole" and len(sends) > 1:
            del sends[self.chance.randrange(len(sends) - 1)]
            self._arrive(sends)
        else:
            self._arrive(sends[: self.chance.randint(0, len(sends))])
        self._crash(failed=stage)

    def _read(self, shard: Shard) -> list[LogBatch]:
        """Return the next batches of the log; some overlap, are repeated or are in another order."""
        chance, log, batches, at = self.chance, self.logs[shard.number], [], shard.next_offset
        while at < log.end and len(batches) < _MOST_BATCHES:
            start = at
            if start and chance.random() < 0.1:  # an overlap
                start -= chance.randint(1, min(start, 5))
            at += self._size(log.end - at)
            batches.append(log.batch(start, at))
            if chance.random() < 0.7:
                break
        if chance.random() < 0.3:
            chance.shuffle(batches)
        if batches and chance.random() < 0.05:
            batches.append(chance.choice(batches))
        return batches

    def _size(self, left: int) -> int:
        return min(left, self.chance.choice([1, 2, 3, 5, 10, 50]))

    def _run_bundle(self, stage: Stage, half: bool = False) -> list[Send]:
        """Let a stage read a bundle, or half of it. Returns the records that it sends."""
        chance = self.chance
        if isinstance(stage, Router):
            left = self._left(stage)
            return (
                [(one.shard, one.entry) for one in self._route(stage, stage.next_offset + self._size(left))]
                if left
                else []
            )
        sends: list[Send] = []
        outputs = stage.apply(self._read(stage), self.logs[stage.number])
        most = chance.randint(0, 10) if half else 1 << 30
        for output in outputs:
            stage.outputs.append(output)
            if output.kind == TRANSFERS:
                sends.append((output.to_shard, output.data))
            if len(sends) >= most:
                break
        outputs.close()  # type: ignore[attr-defined]
        if not half and self.storage is not None and stage in self.keepers:
            sent.SENT.note(stage.run, stage.number, stage.next_offset)
        if self.storage is not None:
            self.storage.finish(chance, self._has_arrived)
        if not half and chance.random() < 0.1:
            keeper = KEEPERS.peek(stage.run, stage.number)
            if isinstance(keeper, LogKeeper):
                self._old_chunks[stage.number] = list(keeper.chunks())
        return sends

    def _has_arrived(self, run: str, shard: int, next_offset: int) -> bool:
        """Whether all that a ledger had sent before it applied this record has arrived."""
        return sent.SENT.cover(run, shard, next_offset)

    def _route(self, router: Router, end: int) -> Iterator[ToShard]:
        """Route up to the offset `end`. The state advances when all entries are sent."""
        state = SourceState.from_bytes(router.state)
        sharder = Sharder(router.source, state, self.origin.ranges, router.everywhere_at, self.most_entry_bytes)
        if router.source == POLICIES:
            yield from sharder.policies(list(enumerate(self.world.policies))[state.next : end], end)
        else:
            items = self.world.partitions[router.source].between(state.next, end, self._seen)
            yield from sharder.crawl(items, end)
        router.state = sharder.state.to_bytes()

    def _arrive(self, sends: list[Send]) -> None:
        for shard, entry in sends:
            gap = int(self.chance.random() < 0.05)
            self.logs[shard].append(self.now_ms + self.clock_errors_ms[shard], entry, gap)

    def _tick(self) -> None:
        sent = self.now_ms // 1000 - self.chance.randint(0, 120)
        for log, error_ms in zip(self.logs, self.clock_errors_ms, strict=True):
            log.append(self.now_ms + error_ms, encode_entry(TickEntry(sent)))

    # -- faults ----------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint({s: r.copy() for s, r in self.routers.items()}, [one.copy() for one in self.keepers])

    def _crash(self, failed: Stage | None = None) -> None:
        """Restart all stages from the last checkpoint or an earlier one. Old copies of some stages continue."""
        chance = self.chance
        for stage in self._stages():
            if stage is not failed and chance.random() < 0.15:
                self._runs.append(f"{self.run}/{len(self._runs)}")
                self.zombies.append(Zombie(stage.copy(self._runs[-1]) if isinstance(stage, Shard) else stage.copy()))
        while len(self.checkpoints) > 1 and chance.random() < 0.3:
            self.checkpoints.pop()
            self.happened["older"] += 1
        self._restore()
        if chance.random() < 0.5:  # otherwise the processes survive with their caches
            KEEPERS.remove_run(self.run)

    def _restore(self) -> None:
        checkpoint = self.checkpoints[-1]
        self._unknown += [source for source in self.routers if source not in checkpoint.routers]
        self.routers = {s: r.copy() for s, r in checkpoint.routers.items()}
        self.keepers = [one.copy() for one in checkpoint.shards]
        self._forget_seen()

    def _forget_seen(self) -> None:
        """Forget the URLs that a failed bundle has sent."""
        self._seen = set()

    def _upgrade(self) -> None:
        """Stop with a checkpoint, and continue from it in new processes with other sizes of entries."""
        self.checkpoints.append(self._checkpoint())
        self._restore()
        KEEPERS.remove_run(self.run)
        self.most_entry_bytes = self.chance.choice([1, 200, 1000, 4 << 20])

    def _lose_router(self) -> None:
        """Begin to route a source anew, where its events begin now: no later than the ledgers have it."""
        source = self.chance.choice(list(self.routers))
        first = min(self._mark_of(shard, source) for shard in self.keepers)
        if source != POLICIES and first:
            state = SourceState.at(self.chance.randint(1, first), self.shards, source)
            self.routers[source] = Router(source, state.to_bytes(), self.routers[source].everywhere_at)
            self.happened["began again"] += 1

    def _mark_of(self, shard: Shard, source: str) -> int:
        """Return how far the ledger of a shard has a source."""
        keeper = KEEPERS.peek(shard.run, shard.number)
        if not isinstance(keeper, LogKeeper) or keeper.ledger is None:
            return 0
        return keeper.ledger.mark(source).offset

    def _run_zombie(self) -> None:
        if not self.zombies:
            return
        zombie = self.chance.choice(self.zombies)
        fate = self.chance.random()
        if fate < 0.4:
            count = self.chance.randint(0, len(zombie.late))
            self._arrive(zombie.late[:count])
            del zombie.late[:count]
        elif fate < 0.9:
            seen, self._seen = self._seen, set()
            zombie.late += self._run_bundle(zombie.stage)
            self._seen = seen
        else:
            self.zombies.remove(zombie)

    def _disturb_cache(self) -> None:
        """Empty the cache, or put an outdated ledger into it."""
        chance = self.chance
        if chance.random() < 0.3 or not self._old_chunks:
            KEEPERS.remove_run(self.run)
            return
        shard = chance.choice(list(self._old_chunks))
        KEEPERS.put(self.run, shard, LogKeeper.from_chunks(shard, self._old_chunks[shard]))
        self.happened["stale"] += 1

    # -- the laws --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the laws that hold under any schedule."""
        survivors = [self._survivor(shard) for shard in self.keepers]
        readers = [self._rebuild(number) for number in range(self.shards)]
        for shard, survivor, (reader, outputs) in zip(self.keepers, survivors, readers, strict=True):
            assert_equal(reader, survivor)
            self._check_rejects(shard)
            assert reader.ledger is not None and reader.ledger.tick_second == self.now_ms // 1000, "clocks were right"
            assert outputs == shard.outputs, "the outputs follow from the log"
        self._check_counts([reader for reader, _ in readers])
        self._check_pairs()
        self._check_transfers()

    def _survivor(self, shard: Shard) -> LogKeeper:
        """Return the ledger that the state leads to; a cached one with the same head equals it."""
        log, head = self.logs[shard.number], LogKeeperFactory().decode_head(shard.head.value)
        keeper = LedgerStage(shard, log).recover(
            shard.number, head, shard.snapshot, JournalInLog(log.read, _LEAST_LOG_MB)
        )
        assert isinstance(keeper, LogKeeper)
        assert keeper.head.next == log.end, "the log was read to its end"
        assert keeper.head == head, "state leads to the head"
        cached = KEEPERS.peek(shard.run, shard.number)
        if isinstance(cached, LogKeeper) and cached.head == keeper.head:
            assert_equal(cached, keeper)
        return keeper

    def _rebuild(self, number: int) -> tuple[LogKeeper, list[Output]]:
        """Rebuild a ledger from the start of its log, record by record. It publishes nothing while it is quiet."""
        keeper, outputs = LogKeeper(number), []
        log, start = self.logs[number], 0
        for record in log.records:
            before = len(outputs)
            outputs += keeper.take(LogBatch.of(start, [record]))
            start = record[0] + 1
            if any(one.kind in (IMPORTANCE, SCHEDULE, SITES, ORDERS) for one in outputs[before:]):
                assert keeper.ledger is not None
                until = self.origin.quiet_until.items()
                assert all(keeper.ledger.mark(source).offset >= offset for source, offset in until), (
                    "it published too early"
                )
        return keeper, outputs

    def _check_rejects(self, shard: Shard) -> None:
        for output in shard.outputs:
            if output.kind == REJECTS:
                packed = unpack(output.data)
                reason, detail = packed.values["reason"], packed.values["detail"]
                may_be_refused = self.faults.hole and "send the entries between them first" in detail
                may_be_refused = may_be_refused or (self.faults.clock and "no time passes in this shard" in detail)
                assert reason == "corrupt" or may_be_refused, f"{reason}: {detail}"

    def _check_counts(self, keepers: list[LogKeeper]) -> None:
        """Every visit in the partitions was counted once, and every page born once."""
        world, ranges = self.world, self.origin.ranges
        duplicates = 0
        for number, keeper in enumerate(keepers):
            ledger = keeper.ledger
            assert ledger is not None
            pages = world.of_shard(world.pages, number, ranges)
            assert sorted(ledger.ranked().tolist()) == sorted(pages), "every page was born"
            assert all(ledger.url(page) == _url(page) for page in pages), "every URL arrived"
            assert ledger.audit().drift == 0
            assert ledger.minted == UNITS_PER_PAGE * len(pages), "every page was born once"
            made = sum(world.visits[page] for page in world.of_shard(world.visits, number, ranges))
            duplicates += keeper.counts["duplicates"]
            assert ledger.visits + keeper.counts["duplicates"] == made, "every visit was counted once"
            for source, rows in world.partitions.items():
                own = ranges.of(rows.items.page) == number
                mine = rows.items.take(np.flatnonzero(own & (rows.items.kind != Kind.SIGHTING)))
                if len(mine):
                    assert ledger.mark(source) > LogPosition(int(mine.offset[-1]), int(mine.within[-1])), (
                        "every source was applied to its end"
                    )
        assert duplicates == world.visits.total() - world.distinct

    def _check_pairs(self) -> None:
        """The totals that one shard sent up to a cut are those that the other received; each cut is reported once."""
        sent: dict[tuple[int, int, int], tuple[int, str]] = {}
        received: dict[tuple[int, int, int], tuple[int, str]] = {}
        balances = []
        for shard in self.keepers:
            audits = [json.loads(output.data) for output in shard.outputs if output.kind == AUDIT]
            balances.append(audits[-1])
            assert audits[-1]["fingerprint"], "it was requested last"
            for audit in audits:
                for one in audit["sent_to"]:
                    key = shard.number, one["shard"], one["cut"]
                    assert key not in sent, "reported once"
                    sent[key] = one["total"], one["digest"]
                for one in audit["received_from"]:
                    key = one["shard"], shard.number, one["cut"]
                    assert key not in received, "reported once"
                    received[key] = one["total"], one["digest"]
        assert sent == received
        assert sum(one["sent"] for one in balances) == sum(one["received"] for one in balances)

    def _check_transfers(self) -> None:
        """The transfers in the logs follow from the logs of their senders, byte for byte and in order."""
        for sender in self.keepers:
            for number, log in enumerate(self.logs):
                expected = [one.data for one in sender.outputs if one[::2] == (TRANSFERS, number)]
                found = [value for _, _, value in log.records if _sender(value) == sender.number]
                assert list(dict.fromkeys(found)) == expected or self.faults.hole


def _sender(value: bytes) -> int:
    if value in (b"", POISON, POISON * 20):
        return -1
    entry = decode_entry(value).entry
    return entry.source_shard if isinstance(entry, TransfersEntry) else -1


def assert_equal(one: LogKeeper, other: LogKeeper) -> None:
    """Assert that two keepers are equal to the byte."""
    assert one.head == other.head
    assert one.fingerprint() == other.fingerprint(), "ledgers of the same log are equal"
    assert list(one.chunks()) == list(other.chunks())
