"""The whole stream in one process: a seeded simulation of the shipped stages, without Flink and Kafka.

Routers, clock, ledgers and those that send, their readers and publishers, snapshots in storage and the tools of the
operator are those of the stream. Simulated are the cluster (`MemoryCluster`), the runner (bundles, state, checkpoints,
restarts) and the passing of time. `SnapshotsInTurn` writes snapshots without a copy of the process.

A schedule causes the events in the life of a stream: topics are read in batches of any size; stages lag; the job
restarts from one of the last checkpoints, while the records sent since then stay in the logs; bundles end half-way; an
old process works beside the new one, and its records arrive late; caches are lost or outdated; logs are trimmed; clocks
jump; storage is away, loses files and damages them. At the end all input is processed, and `check` asserts the laws.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any

import numpy as np
import pytest
from kafka import TopicPartition

from opicflow.connectors.flink.key_groups import SpreadKeys
from opicflow.connectors.kafka import sink, source
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.partitions import TopicEnds, resolve
from opicflow.connectors.kafka.polls import NO_END, UNKNOWN_END, Poll, WatchedTopic
from opicflow.connectors.kafka.record_reader import BY_KEY, STREAMS, records
from opicflow.connectors.kafka.sink import SendingDoFn
from opicflow.connectors.kafka.source import read_range
from opicflow.connectors.runs import close_run, kept
from opicflow.connectors.storage.folder import StorageRefused
from opicflow.pipelines.ledger import Certified, Interpolation, LedgerConfig, RefreshConfig, TransfersEntry
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.results.record_columns import reject_columns
from opicflow.pipelines.results.topic_writer import Destination, SendOutputs
from opicflow.pipelines.stages import publication_pace
from opicflow.pipelines.stages import shard as sharding
from opicflow.pipelines.stages.keepers import Keepers
from opicflow.pipelines.stages.ledger_keeper import (
    LedgerKeeper,
    LedgerKeeperFactory,
    request_fingerprint,
    request_republication,
)
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.log_settings import MOST_AHEAD_HOURS, Origin
from opicflow.pipelines.stages.outputs import (
    AUDIT,
    CHANGES,
    IMPORTANCE,
    ORDERS,
    REJECTS,
    SCHEDULE,
    SITES,
    TRANSFERS,
    Output,
)
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import Sharder, SourceState
from opicflow.pipelines.stream import ledgers, routers, snapshot_reader, trim
from opicflow.pipelines.stream.clock import WriteTicks
from opicflow.pipelines.stream.ledgers import JournalInLog, KeepLogLedger
from opicflow.pipelines.stream.origin import StoredOrigin
from opicflow.pipelines.stream.published_rules import StoredNotes
from opicflow.pipelines.stream.routers import RouteEvents, RoutePolicies, RouterConfig
from opicflow.pipelines.stream.sent import SentHeads, note_sent
from opicflow.pipelines.stream.snapshot_reader import LogCheck
from opicflow.pipelines.stream.snapshot_store import Snapshots, SnapshotStore, pack_chunks
from opicflow.pipelines.stream.snapshot_writer import Written
from opicflow.schemas.errors import UserError
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds
from opicflow.schemas.public_suffixes import PublicSuffixes
from support.logs import FIRST_MS
from support.memory_folder import MemoryFolder
from support.memory_kafka import Hangs, MemoryCluster, MemoryConnection, MemoryTopic
from support.ranges import any_ranges
from support.same_bytes import Killed
from support.simulated_crawl import EVENTS, POLICIES, SimulatedCrawl
from support.stream_state import POISON, Bag, Value

SUFFIXES = PublicSuffixes("of these tests", b"com\norg")
"""The whole list is read again whenever a ledger starts: that took most of the time of a schedule."""

LOG, CLOCK = "page-ledger", "clock"
_KEPT_CHECKPOINTS = 3
_LEAST_LOG_MB = 0.003
_MOST_WORK = 2000
_MOST_MINUTES = 15
"""In which the virtual accounts of shards have passed on all that is worth a message."""
_TRUE_WITHIN = 0.0102
"""How far a record may be from the ledger at rest: a hundredth of what was published."""
_STEP_SECONDS = 3.0
"""Between two reads of a partition: the readers' own pauses are over then."""
_runs = count()

States = dict[tuple[str, int], tuple[bytes | None, tuple[bytes, ...]]]
"""The keyed state: of a topic and partition, a value and a bag."""


# -- a process ---------------------------------------------------------------------------------------------------------


@dataclass
class SnapshotsInTurn:
    """Stands for `SnapshotWriter`: when the simulation wants it, a snapshot is written, and perhaps damaged."""

    store: SnapshotStore
    files: dict[str, bytes]
    run: str
    damaged: set[str]
    happened: Counter[str]
    waiting: list[tuple[LedgerKeeper, list[bytes], LogHead, int, int]] = field(default_factory=list)
    written: dict[int, Written] = field(default_factory=dict)

    def begin(self, keeper: LedgerKeeper) -> bool:
        if keeper.shard in self.written or self.waiting:
            return False
        self.waiting = [(keeper, list(keeper.chunks()), keeper.head, keeper.journal_to_ms, keeper.sizes.journal_bytes)]
        return True

    def take_written(self, shard: int) -> Written | None:
        return self.written.pop(shard, None)

    def finish(self, chance: random.Random, are_sent: Callable[[str, int, int], bool]) -> None:
        """Write what waits, if the outputs of the ledger have arrived."""
        for keeper, chunks, head, log_ms, journal_bytes in self.waiting:
            shard = keeper.shard
            if not are_sent(self.run, shard, head.next):
                return
            before, file = set(self.files), BytesIO()
            packed = pack_chunks(chunks, file)
            try:
                self.store.write(shard, head, log_ms, packed, file, "simulated")
                self.written[shard] = Written(log_ms, packed.chunk_bytes, journal_bytes)
                self.happened["snapshot"] += 1
                self._damage(chance, shard, sorted(set(self.files) - before))
                self.store.remove_old(shard)
            except StorageRefused as problem:
                self.written[shard] = Written(log_ms, 0, problem=str(problem))
        self.waiting = []

    def _damage(self, chance: random.Random, shard: int, new: list[str]) -> None:
        """Damage some snapshots; of those that stay, one is whole."""
        kept = [one.name for one in self.store.newest_first(shard)[: self.store.where.keep]]
        if not new or chance.random() > 0.4 or not set(kept) - self.damaged - {new[0].split("/")[2]}:
            return
        name = chance.choice(new)
        self.damaged.add(name.split("/")[2])
        self.happened["damaged"] += 1
        if chance.random() < 0.5:
            del self.files[name]
        else:
            self.files[name] = self.files[name][:-1]


class Process:
    """A worker: its connection, its caches by the name of its run, and the stages of the job."""

    def __init__(self, simulation: Simulation, states: States) -> None:
        self.simulation = simulation
        self.run = f"simulation-{next(_runs)}"
        self.connection = MemoryConnection(cluster=simulation.cluster)
        self.states = states
        self.store = None if simulation.snapshots is None else simulation.snapshots.of_logs(LOG, f"id-{LOG}")
        self.writer: SnapshotsInTurn | None = None
        if self.store is not None:
            files, shared = simulation.folder.files, (simulation.damaged, simulation.happened)
            self.writer = SnapshotsInTurn(self.store, files, self.run, *shared)
        stored = StoredOrigin(self.connection, LOG, simulation.snapshots)
        notes = StoredNotes(self.connection, POLICIES)
        self.routing = RouterConfig(self.connection, LOG, REJECTS, stored, notes, self.run)
        self.start_stages()

    def start_stages(self) -> None:
        """Make the stages, which Beam discards with a bundle that failed."""
        simulation, connection = self.simulation, self.connection
        topics = {name: self._watched(name) for name in (EVENTS, POLICIES, LOG)}
        events, policies = RouteEvents(self.routing, topics[EVENTS]), RoutePolicies(self.routing, topics[POLICIES])
        events.setup()
        policies.setup()
        check = LogCheck(connection, LOG)
        self.keep = KeepLogLedger(topics[LOG], LedgerKeeperFactory(), self.run, _LEAST_LOG_MB, check, self.store)
        self.keep._reader = UnsteadyReader(self.keep._reader, topics[LOG], simulation.chance)  # type: ignore[assignment]
        clock = WriteTicks(LOG, simulation.shards)
        self.log_ends = TopicEnds(connection, [LOG])
        self.stages: dict[str, Any] = {EVENTS: events, POLICIES: policies, LOG: self.keep, CLOCK: clock}
        self.send = sink._Publish(connection, all_or_none=True, run=self.run, on_noted=None)
        self.send_outputs = SendOutputs(Destination(connection), LOG, note_sent, self.run)

    def _watched(self, topic: str) -> WatchedTopic:
        """Return a topic as it was when the job started: with the partitions that are known."""
        simulation = self.simulation
        known = [number for name, number in simulation.known if name == topic]
        begins = simulation.submitted[topic]
        found = (one for one in resolve(self.connection, topic) if one.partition in known)
        ranges = [replace(one, start=begins[one.partition], end=NO_END) for one in found]
        return WatchedTopic(tuple(ranges), most_records=simulation.chance.choice([1, 3, 10]))

    def bundle(self, stage: str, numbers: Iterable[int], most: int = 1 << 30) -> None:
        """Run a bundle of a stage. It ends half-way after `most` elements. Its state advances when it has ended."""
        simulation, cells = self.simulation, dict[tuple[str, int], tuple[Value, Bag]]()
        simulation.seconds += _STEP_SECONDS
        sender: SendingDoFn = self.send_outputs if stage == LOG else self.send
        now = simulation.cluster.now_ms / 1000 + (simulation.sender_error_ms / 1000 if stage == CLOCK else 0)
        sender.start_bundle()
        try:
            for number in numbers:
                value, bag = self.states.get((stage, number), (None, ()))
                cells[stage, number] = cell = Value(value), Bag(bag)
                wanted = (self.log_ends() or {}).get(LOG) if stage == CLOCK else self._wanted_end(stage, number)
                poll = SpreadKeys()(number), (now, wanted)
                for element in self.stages[stage].process(poll, *(cell if stage == LOG else cell[:1])):
                    for _ in sender.process(element) or ():  # type: ignore[func-returns-value]
                        raise AssertionError("nothing is too large")
                    most -= 1
                    if most <= 0:
                        raise Killed
            sender.finish_bundle()
        finally:
            if self.writer is not None:
                self.writer.finish(simulation.chance, simulation.are_sent)
        self.states |= {key: (cell[0].value, tuple(cell[1].values)) for key, cell in cells.items()}

    def _wanted_end(self, topic: str, partition: int) -> int:
        """Return the end up to which a poll requests a partition: its present end, or at times all of it."""
        wanted = TopicPartition(topic, partition)
        is_for_all = self.simulation.cluster.now_ms % 4 == 0
        return UNKNOWN_END if is_for_all else self.connection.consumer().end_offsets([wanted])[wanted]

    def end(self) -> None:
        """End the process, which loses all that it has kept."""
        self.connection.waiting.clear()
        close_run(self.run)

    def forget_publishers(self) -> None:
        """Let later bundles send with publishers of their own."""
        kept(self.run, sink.Publishers).close()

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset that a stage reads next."""
        stored = self.states.get((topic, partition), (None, ()))[0]
        if topic == LOG:
            keeper = None if stored else kept(self.run, Keepers).peek(partition)
            is_ahead = keeper is not None and self.keep.is_usable(keeper, LogHead())
            return keeper.head.next if keeper and is_ahead else LogHead.from_bytes(stored).next
        return SourceState.from_bytes(stored).next if stored else self.simulation.submitted[topic][partition]

    def read_log(self, shard: int, start: int, end: int) -> Iterator[MessageBatch]:
        """Read a log as the stage does."""
        log = self.keep._topic.partition(shard)
        return read_range(replace(log, start=start, end=end))


class UnsteadyReader:
    """Reads what a `PartitionReader` reads, some of it twice, too early or too late: a ledger must not mind."""

    def __init__(self, reader: Any, topic: WatchedTopic, chance: random.Random) -> None:
        self._reader = reader
        self._topic = topic
        self._chance = chance

    def read(self, poll: Poll, start: Callable[[], int]) -> Iterator[MessageBatch]:
        chance, found = self._chance, list(self._reader.read(poll, start))
        log = self._topic.partition(poll[0] & 0xFFFFF)
        if found and chance.random() < 0.15:
            chance.shuffle(found)
        for one in found:
            yield one
            if chance.random() < 0.05:
                first = max(one.start - chance.randint(0, 5), resolve(log.connection, log.topic)[log.partition].start)
                yield from read_range(replace(log, start=min(first, one.end), end=one.end))

    def close(self) -> None:
        self._reader.close()


# -- the schedule ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Faults:
    """How many steps of a thousand are something else than work and ticks."""

    checkpoint: int = 120
    crash: int = 40
    half: int = 40
    """A process ends in a bundle."""
    fails: int = 20
    """A bundle fails because its records do not arrive."""
    zombie: int = 80
    cache: int = 40
    new_partition: int = 15
    upgrade: int = 15
    poison: int = 10
    fingerprint: int = 10
    clock: int = 15
    """A clock leaps ahead or back, of a broker or of the worker that writes ticks, or is right again."""
    lost: int = 15
    """The job starts without a savepoint, and the oldest events were deleted."""
    storage: int = 10
    """The storage of snapshots is away for a while."""
    trim: int = 20
    hole: int = 0
    """A bundle fails after a record of it has arrived and an earlier one of the same log has not."""


_CLOCK_ERRORS_MS = [sign * days * 86_400_000 for days in (1, 400) for sign in (1, -1)]
_SENDER_ERRORS_MS = [2 * error for error in _CLOCK_ERRORS_MS]
"""Others: nothing can know that two clocks are wrong if they agree."""
NO_FAULTS = Faults(*(0,) * 15)


class Simulation:
    """A stream of some shards that reads a crawl."""

    def __init__(self, seed: int, faults: Faults | None = None, steps: int = 60) -> None:
        """Derive everything from the seed."""
        self.chance = chance = random.Random(seed)
        self.faults = faults or Faults()
        self.steps = steps
        self.seconds = 0.0
        self.happened: Counter[str] = Counter()
        self.shards = chance.choice([1, 2, 3, 4, 6, 9])
        self.cluster = MemoryCluster(seed, FIRST_MS)
        self.cluster.gaps = 0.05
        self.rules = Rules(page_ids=PageIds(suffixes=SUFFIXES))
        crawl = SimulatedCrawl(chance, self.cluster, self.rules, chance.randint(1, 16), removes=chance.random() < 0.4)
        self.crawl = crawl.fill(chance.randint(1, 3), chance.randint(10, 60))
        self.folder = MemoryFolder()
        self.snapshots = Snapshots(self.folder, chance.choice([2, 3]), keep_hours=-1.0) if seed % 2 else None
        self.damaged: set[str] = set()
        self.sender_error_ms = 0
        self.most_entry_bytes = 4 << 20
        self.zombies: list[Process] = []
        self.log = self._begin_logs(seed)
        late = (EVENTS, len(self.crawl.partitions) - 1)
        sources = [(EVENTS, number) for number in range(len(self.crawl.partitions))]
        self.unknown = [late] if self.faults.new_partition and late[1] and chance.random() < 0.5 else []
        self.known = [(LOG, shard) for shard in range(self.shards)] + [(POLICIES, 0)]
        self.known += [one for one in sources if one not in self.unknown]
        self._old_chunks: dict[int, list[bytes]] = {}

    def _begin_logs(self, seed: int) -> MemoryTopic:
        chance = self.chance
        quiet = [(POLICIES, 0), *((EVENTS, number) for number in range(max(len(self.crawl.partitions) - 1, 1)))]
        until = {f"kafka/id-{topic}/{number}": self._end(topic, number) // 2 for topic, number in quiet}
        config = LedgerConfig(
            history=Certified() if seed % 3 == 0 else Interpolation(),
            remember_links=chance.random() < 0.5,
            remembered_visits=1 << 12,
            cut_visits_per_1000_pages=chance.choice([10, 200, 1000]),
            cut_seconds=chance.choice([0, 5, 20]),
            refresh=RefreshConfig(cycle_hours=1.0),
        )
        self.origin = Origin(
            config,
            any_ranges(self.shards, chance.randrange(1 << 30)),
            self.rules,
            audit_seconds=5,
            quiet_until={one: end for one, end in until.items() if end} if chance.random() < 0.3 else {},
            sites="domain",
            most_ahead_hours=MOST_AHEAD_HOURS,
        )
        for name in STREAMS:
            self.cluster.make(name, 2, has_broker_times=name in (ORDERS, CHANGES, REJECTS, AUDIT))
        log = self.cluster.make(LOG, self.shards, has_broker_times=True)
        for shard in range(self.shards):
            log.append(shard, self.cluster.now_ms, self.origin.entry())
        return log

    def play(self) -> Simulation:
        """Run the schedule, process all input, and check the laws."""
        self.processes: list[Process] = []
        with self._in_place():
            try:
                self._submit({})
                for _ in range(self.steps):
                    self.step()
                self.drain()
                self.check()
            finally:
                for process in self.processes:
                    process.end()
        return self

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Put simulated time, and caches and limits of this simulation, in the place of those of the process."""
        clock = type("Clock", (), {"monotonic": lambda: self.seconds, "time": lambda: self.cluster.now_ms / 1000})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "time", clock)
            patch.setattr(routers, "time", clock, raising=False)  # a router has none, but for a mutation
            patch.setattr(source, "wall_seconds", lambda: self.cluster.now_ms / 1000)
            patch.setattr(source, "_MOST_RECORDS", 15)
            patch.setattr(sharding, "MOST_OFFSETS_BEHIND", 5)
            patch.setattr(routers, "_SEEN_FOR_EVENTS", 25)
            patch.setattr(publication_pace, "MOVERS_A_SECOND", 2)
            patch.setattr(routers, "Seen", lambda: Seen(bits=6))
            patch.setattr(routers, "Sharder", lambda *given: Sharder(*given, self.most_entry_bytes))
            patch.setattr(ledgers, "writer_of", lambda store, run: self._writers()[run])
            for module in (ledgers, snapshot_reader):
                patch.setattr(module, "count", lambda name, number=1: self.happened.update({name: number}))
            yield

    def _writers(self) -> dict[str, Any]:
        return {one.run: one.writer for one in self.processes}

    def step(self) -> None:
        """Cause one event."""
        faults, chance = self.faults, self.chance
        self.cluster.now_ms += chance.choice([0, 1, 50, 1000, 4000, 4000, 20_000])
        if chance.random() < 0.02:
            self.cluster.now_ms += 3_700_000
        rest = 1000 - sum(vars(faults).values())
        names = [*vars(faults), "work", "tick"]
        weights = [*vars(faults).values(), rest * 9 // 10, rest // 10]
        self._do(chance.choices(names, weights)[0])

    def _do(self, what: str) -> None:
        chance = self.chance
        self.happened[what] += 1
        if what == "work":
            self._work()
        elif what == "tick":
            self._tick()
        elif what == "checkpoint":
            self.checkpoints = [*self.checkpoints, dict(self.process.states)][-_KEPT_CHECKPOINTS:]
        elif what == "crash":
            self._crash()
        elif what in ("half", "fails", "hole"):
            self._fail(what)
        elif what == "zombie":
            self._run_zombie()
        elif what == "cache":
            self._disturb_cache()
        elif what == "new_partition":
            self.known += self.unknown
            self.unknown = []
        elif what == "upgrade":
            self._upgrade()
        elif what == "poison":
            self._append(chance.randrange(self.shards), chance.choice([POISON, b"", POISON * 20]))
        elif what == "clock":
            self._change_clock()
        elif what == "lost":
            self._start_without_savepoint()
        elif what == "storage":
            self.folder.faults["away"] = not self.folder.faults["away"]
        elif what == "trim":
            self._trim()
        elif what == "fingerprint":
            is_republication = self.cluster.now_ms % 3 == 0
            request = request_republication() if is_republication else request_fingerprint()
            self._append(chance.randrange(self.shards), request)
            self.happened["republish"] += is_republication

    def drain(self) -> None:
        """Process all input and all transfers, and request the fingerprints of all ledgers."""
        self.known += self.unknown
        self.folder.faults["away"] = False
        self._work_until_done()
        for zombie in self.zombies:
            zombie.connection.arrive(self.chance.random())
            zombie.end()
        self.zombies = []
        self._work_until_done()
        self.log.clock_errors_ms = [0] * self.shards
        self.sender_error_ms = 0
        self._pass_a_minute()
        self._check_quiet()
        self._rest()
        for shard in range(self.shards):
            self._append(shard, request_fingerprint())
        self._work_until_done()

    def _pass_a_minute(self) -> int:
        """Let a minute pass, in which all that waits is sent. Returns how many records the ledgers have sent."""
        self.cluster.now_ms += 60_000
        self._tick()
        before = self._log_records()
        self._work_until_done()
        return self._log_records() - before

    def _rest(self) -> None:
        """Let a minute pass at rest, second by second."""
        for _ in range(60):
            self.cluster.now_ms += 1000
            self._tick()
            self._work_until_done()
        self._pass_a_minute()

    def _log_records(self) -> int:
        return sum(len(one.records) for one in self.log.partitions)

    def _check_quiet(self) -> None:
        """Shards to which nothing happens send nothing. Residuals are pushed on for longer."""
        config = self.origin.ledger
        if config.cut_seconds and not isinstance(config.history, Certified):
            assert any(self._pass_a_minute() == 0 for _ in range(_MOST_MINUTES)), "units are passed on without end"
            assert self._pass_a_minute() == 0, "nothing is sent where nothing happens"

    def _append(self, shard: int, value: bytes) -> None:
        self.log.append(shard, self.cluster.now_ms + self.log.clock_errors_ms[shard], value)

    # -- work ------------------------------------------------------------------------------------------------------

    def _end(self, topic: str, partition: int) -> int:
        return self.cluster.topics[topic].partitions[partition].end

    def _can_work(self, process: Process) -> list[tuple[str, int]]:
        return [
            one
            for one in self.known
            if process.next_offset(*one) < self._end(*one) and not self._is_ahead_of_state(process, *one)
        ]

    def _is_ahead_of_state(self, process: Process, stage: str, number: int) -> bool:
        """Whether the process has a ledger with all of its log, and the log after its old state was deleted.

        The ledger goes on, and its state with the next record: until then a bundle has nothing to do.
        """
        keeper = kept(process.run, Keepers).peek(number) if stage == LOG else None
        if (
            not isinstance(keeper, LedgerKeeper)
            or process.next_offset(stage, number) >= self.log.partitions[number].first
        ):
            return False
        return keeper.head.next == self._end(stage, number) and self.are_sent(process.run, number, keeper.head.next)

    def _bundle(self, process: Process, most: int = 1 << 30) -> None:
        """Run a bundle of some stage that has input, for some of its partitions."""
        places = self._can_work(process)
        if not places:
            return
        stage, number = self.chance.choice(places)
        others = [n for name, n in places if name == stage and n != number and self.chance.random() < 0.3]
        process.bundle(stage, [number, *others], most)
        if stage == LOG and self.chance.random() < 0.1:
            keeper = kept(process.run, Keepers).peek(number)
            if isinstance(keeper, LedgerKeeper):
                self._old_chunks[number] = list(keeper.chunks())

    def _work(self) -> None:
        try:
            self._bundle(self.process)
        except StorageRefused:
            self._crash(failed=True)

    def _work_until_done(self) -> None:
        """Work until no input is left. It ends because a transfer never causes a transfer."""
        for _ in range(_MOST_WORK):
            if not self._can_work(self.process):
                return
            self._work()
        raise AssertionError(f"there is still input after {_MOST_WORK} steps of work")

    def _tick(self) -> None:
        self.process.bundle(CLOCK, [0])

    def are_sent(self, run: str, shard: int, next_offset: int) -> bool:
        """Whether all that a ledger had sent before it applied this record has arrived."""
        return kept(run, SentHeads).cover(shard, next_offset)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _fail(self, how: str) -> None:
        """Run a bundle that does not end, and restart the job."""
        self.process.connection.faults["fails"] = how == "fails"
        with suppress(Killed, KafkaRefused, StorageRefused):
            self._bundle(self.process, self.chance.randint(1, 10) if how != "fails" else 1 << 30)
        self.process.connection.faults["fails"] = False
        self._crash(failed=True, at_random=how == "hole")

    def _crash(self, failed: bool = False, at_random: bool = False) -> None:
        """Restart the job from the last checkpoint or an earlier one. The old process ends, stays, or works on."""
        chance, old = self.chance, self.process
        while len(self.checkpoints) > 1 and chance.random() < 0.3:
            self.checkpoints.pop()
            self.happened["older"] += 1
        fate = chance.random()
        if fate < 0.5 and not at_random:
            old.connection.arrive()
            old.forget_publishers()
            old.states = dict(self.checkpoints[-1])
            old.start_stages()
            return
        if fate < 0.75 and not failed:
            self.zombies.append(old)
        else:
            old.connection.arrive(chance.random(), at_random)
            old.end()
        self._start()

    def _submit(self, *checkpoints: States) -> None:
        """Submit the job, which knows where topics begin now, and start it from the last of these checkpoints."""
        self.checkpoints = list(checkpoints)
        topics = self.cluster.topics
        self.submitted = {name: [one.first for one in topics[name].partitions] for name in (EVENTS, POLICIES, LOG)}
        self._start()

    def _start(self) -> None:
        self.process = Process(self, dict(self.checkpoints[-1]))
        self.processes.append(self.process)

    def _upgrade(self) -> None:
        """Stop with a savepoint, and continue from it in new processes with other sizes of entries."""
        self.process.end()
        self.most_entry_bytes = self.chance.choice([1, 200, 1000, 4 << 20])
        self._submit(*self.checkpoints, dict(self.process.states))

    def _start_without_savepoint(self) -> None:
        """Start again where crawl-events begin now: no later than the ledgers have them."""
        for number, one in enumerate(self.cluster.topics[EVENTS].partitions):
            first = min(self._mark_of(shard, f"kafka/id-{EVENTS}/{number}") for shard in range(self.shards))
            if first > one.first:
                one.first = self.chance.randint(one.first + 1, first)
                self.happened["began later"] += 1
        self.process.end()
        self._submit({})

    def _mark_of(self, shard: int, name: str) -> int:
        """Return how far the ledger of a shard has a source."""
        keeper = kept(self.process.run, Keepers).peek(shard)
        if not isinstance(keeper, LedgerKeeper) or keeper.ledger is None:
            return 0
        return keeper.ledger.mark(name).offset

    def _run_zombie(self) -> None:
        if not self.zombies:
            return
        zombie, fate = self.chance.choice(self.zombies), self.chance.random()
        try:
            if zombie.connection.waiting and fate < 0.8:
                zombie.connection.arrive(self.chance.random())
            elif zombie.connection.waiting or fate < 0.1:
                raise Killed
            else:
                zombie.connection.faults["hangs"] = fate < 0.5
                self._bundle(zombie)
        except Hangs:
            self.happened["hangs"] += 1
        except (Killed, UserError):
            self.zombies.remove(zombie)
            zombie.end()
        zombie.connection.faults["hangs"] = False

    def _disturb_cache(self) -> None:
        """Lose the ledgers of the process, or put an outdated one among them."""
        keepers = kept(self.process.run, Keepers)
        if self.chance.random() < 0.3 or not self._old_chunks:
            keepers.close()
            return
        shard = self.chance.choice(list(self._old_chunks))
        keepers.put(shard, LedgerKeeper.from_chunks(shard, self._old_chunks[shard]))
        self.happened["stale"] += 1

    def _change_clock(self) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            self.sender_error_ms = chance.choice([0, *_SENDER_ERRORS_MS])
        else:
            self.log.clock_errors_ms[chance.randrange(self.shards)] = chance.choice([0, *_CLOCK_ERRORS_MS])

    def _trim(self) -> None:
        """Delete old records of the logs, if there are snapshots."""
        if self.snapshots is not None:
            connection = MemoryConnection(cluster=self.cluster)
            try:
                trims = trim.find_trims(connection, LOG, self.snapshots)
            except UserError:
                return
            trim.trim(connection, LOG, trims)
            self.happened["trimmed"] += any(one.deleted for one in trims)

    # -- the laws --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the laws that hold under any schedule."""
        found = [self._rebuild(shard) for shard in range(self.shards)]
        keepers, outputs = [keeper for keeper, _ in found], [outputs for _, outputs in found]
        for keeper in keepers:
            self._check_survivor(keeper)
            assert keeper.ledger is not None
            assert keeper.ledger.tick_second == self.cluster.now_ms // 1000, "clocks were right"
        for of_shard in outputs:
            self._check_rejects(of_shard)
        self._check_counts(keepers)
        self._check_pairs(outputs)
        self._check_transfers(outputs)
        self._check_results(outputs)
        self._check_truth(keepers)

    def _rebuild(self, shard: int) -> tuple[LedgerKeeper, list[Output]]:
        """Rebuild a ledger from the start of its log, record by record. It publishes nothing while it is quiet."""
        keeper, outputs, start = LedgerKeeper(shard), list[Output](), 0
        for one in self.log.partitions[shard].records:
            before = len(outputs)
            outputs += keeper.take(MessageBatch.of(start, [(one.offset, one.timestamp, one.value or b"")]))
            start = one.offset + 1
            if any(output.kind in (IMPORTANCE, SCHEDULE, SITES, ORDERS) for output in outputs[before:]):
                assert keeper.ledger is not None
                until = self.origin.quiet_until.items()
                assert all(keeper.ledger.mark(name).offset >= end for name, end in until), "it published too early"
        return keeper, outputs

    def _check_survivor(self, expected: LedgerKeeper) -> None:
        """The ledger of the process, and the one that the state leads to, are the one that the log leads to."""
        process, shard = self.process, expected.shard
        stored, bag = process.states[LOG, shard]
        head = LogHead.from_bytes(stored)
        assert head.next == self._end(LOG, shard), "the log was read to its end"
        cached = kept(process.run, Keepers).peek(shard)
        if isinstance(cached, LedgerKeeper) and cached.head == head:
            assert_equal(cached, expected)
        journal = JournalInLog(partial(process.read_log, shard), _LEAST_LOG_MB)
        assert_equal(process.keep.recover(shard, head, Bag(bag), journal), expected)

    def _check_rejects(self, outputs: list[Output]) -> None:
        allowed = ["url is a page that was forgotten", "is within what was forgotten"] * self.crawl.removes
        allowed += ["send the entries between them first"] * bool(self.faults.hole)
        allowed += ["no time passes in this shard"] * bool(self.faults.clock)
        allowed += ["hours ahead of the log"]
        for output in outputs:
            if output.kind == REJECTS:
                (reason,), (detail,) = (reject_columns(output.data)[name] for name in ("reason", "detail"))
                assert reason == "corrupt" or any(words in detail for words in allowed), f"{reason}: {detail}"

    def _check_counts(self, keepers: list[LedgerKeeper]) -> None:
        """Every visit in the partitions was counted once, and every page born once, but for pages that were removed."""
        crawl, ranges = self.crawl, self.origin.ranges
        owners = dict(zip(crawl.urls, ranges.of(np.array(list(crawl.urls), np.uint64)).tolist(), strict=True))
        duplicates = 0
        for shard, keeper in enumerate(keepers):
            ledger = keeper.ledger
            assert ledger is not None
            pages = {page for page, owner in owners.items() if owner == shard}
            lasting = {page for page in pages if not crawl.is_touched(page)}
            known = set(ledger.ranked().tolist())
            assert lasting <= known <= pages, "every page was born"
            assert all(ledger.url(page) == crawl.urls[page] for page in lasting), "every URL arrived"
            assert not crawl.forgotten & {crawl.urls[page] for page in known}, "forgotten pages do not come back"
            assert ledger.audit().drift == 0
            if not self.happened["clock"]:
                latest_ms = int(ledger._room.table.pages["last_visit_ms"].max(initial=0))
                assert latest_ms <= self.cluster.now_ms + 3_600_000 * MOST_AHEAD_HOURS, "no visit is of the far future"
            made = Counter({visit: often for visit, often in crawl.visits.items() if visit[0] in pages})
            counted = ledger.visits + keeper.counts["duplicates"]
            duplicates += keeper.counts["duplicates"]
            if lasting == pages:
                assert ledger.minted == UNITS_PER_PAGE * len(pages), "every page was born once"
                assert counted == made.total(), "every visit was counted once"
            of_lasting = sum(often for (page, _), often in made.items() if page in lasting)
            assert of_lasting <= counted <= made.total(), "every visit was counted once"
            for number, one in enumerate(crawl.partitions):
                total = sum(owners[page] == shard for page, _ in one.visits)
                mark = ledger.parts().state.marks.get(f"kafka/id-{EVENTS}/{number}")
                assert (mark.total if mark else 0) == total, "every source was applied to its end"
        expected = crawl.visits.total() - len(crawl.visits)
        if not crawl.removes:  # where a clock was wrong, times far ahead may count until the next visit of the page
            assert duplicates == expected or (self.happened["clock"] and duplicates < expected)

    def _check_pairs(self, outputs: list[list[Output]]) -> None:
        """The totals that one shard sent up to a cut are those that the other received; each cut is reported once."""
        totals: dict[str, dict[tuple[int, int, int], tuple[int, str]]] = {"sent_to": {}, "received_from": {}}
        balances = []
        for shard, of_shard in enumerate(outputs):
            audits = [json.loads(output.data) for output in of_shard if output.kind == AUDIT]
            balances.append(audits[-1])
            assert audits[-1]["fingerprint"], "it was requested last"
            for audit in audits:
                for way, found in totals.items():
                    for one in audit[way]:
                        pair = (shard, one["shard"]) if way == "sent_to" else (one["shard"], shard)
                        assert (*pair, one["cut"]) not in found, "reported once"
                        found[(*pair, one["cut"])] = one["total"], one["digest"]
        assert totals["sent_to"] == totals["received_from"]
        assert sum(one["sent"] for one in balances) == sum(one["received"] for one in balances)

    def _check_transfers(self, outputs: list[list[Output]]) -> None:
        """The transfers in the logs follow from the logs of their senders, byte for byte and in order."""
        for shard, log in enumerate(self.log.partitions):
            found: list[list[bytes]] = [[] for _ in outputs]
            for one in log.records:
                if one.value not in (b"", POISON, POISON * 20):
                    entry = decode_entry(one.value or b"")
                    if isinstance(entry, TransfersEntry):
                        found[entry.source_shard].append(one.value or b"")
            for sender, of_sender in enumerate(outputs):
                expected = [output.data for output in of_sender if (output.kind, output.to_shard) == (TRANSFERS, shard)]
                assert list(dict.fromkeys(found[sender])) == expected or self.faults.hole

    def _check_results(self, outputs: list[list[Output]]) -> None:
        """The topics of results have what follows from the logs, and readers see the newest of it."""
        expected = MemoryConnection(cluster=MemoryCluster(0, self.cluster.now_ms))
        for name in STREAMS:
            topic = self.cluster.topics[name]
            expected.cluster.make(name, len(topic.partitions), topic.has_broker_times)
        expected.cluster.make(LOG, self.shards)
        send = SendOutputs(Destination(expected), LOG)
        send.start_bundle()
        for output in (output for of_shard in outputs for output in of_shard):
            send.process(output)
        send.finish_bundle()
        for name in STREAMS:
            there = self._content(self.cluster, name)
            if name == REJECTS:
                of_ledgers = {one for one in there if (one[0] or b"").startswith(LOG.encode())}
                assert {one[0] for one in there - of_ledgers} == self._rejected(), "what cannot be read is rejected"
                there = of_ledgers
            assert there == self._content(expected.cluster, name), f"{name} follows from the logs"
            self.happened[name] += bool(there)
            if name in BY_KEY:
                seen = [{one.key: one.value for one in records(at, name)} for at in (self.process.connection, expected)]
                assert seen[0] == seen[1], f"readers of {name} see the newest records"

    def _check_truth(self, keepers: list[LedgerKeeper]) -> None:
        """At rest the newest record of every page that has importance is true."""
        newest = {one.key: one.record for one in records(self.process.connection, IMPORTANCE)}
        for keeper in keepers:
            assert keeper.ledger is not None
            now = keeper.ledger.estimate_all()
            known = keeper.ledger.has_url(now.pages)
            columns = (now.pages[known], now.importance[known], now.score[known])
            for page, importance, score in zip(*(column.tolist() for column in columns), strict=True):
                url = keeper.ledger.url(page)
                assert url is not None
                record = newest.get(url)
                if importance == 0.0 and record is None:  # a hop to which nothing leads
                    continue
                assert record is not None, f"shard {keeper.shard}: {url!r} was never published"
                assert record.importance == pytest.approx(importance, rel=_TRUE_WITHIN), url
                assert record.score == pytest.approx(score, rel=_TRUE_WITHIN), url
                assert record.settled or not keeper.ledger.is_settled, f"{url!r} was published before all settled"
            assert keeper.gauges()["pages_off"] == 0

    def _rejected(self) -> set[bytes]:
        """Return the keys of the rejects of events and policies."""
        found = {f"{POLICIES}/0:{offset}" for offset in self.crawl.no_policies}
        for number, one in enumerate(self.crawl.partitions):
            found |= {f"{EVENTS}/{number}:{offset}" for offset in one.rejects}
        return {one.encode() for one in found}

    def _content(self, cluster: MemoryCluster, name: str) -> set[tuple[bytes | None, bytes | None, int]]:
        topic = cluster.topics[name]
        return {
            (one.key, one.value, 0 if topic.has_broker_times else one.timestamp)
            for partition in topic.partitions
            for one in partition.records
        }


def assert_equal(one: LedgerKeeper, other: LedgerKeeper) -> None:
    """Assert that two keepers are equal to the byte."""
    assert one.head == other.head
    assert one.fingerprint() == other.fingerprint(), "ledgers of the same log are equal"
    assert list(one.chunks()) == list(other.chunks())
