"""Whatever happens to a stream, its ledgers are what its logs say, and count everything once: see simulation.py.

And the simulation finds what it is there to find: each mutation below is a bug in some line of the stream, and a
mutation that survives is a test that fails.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from opicflow.pipelines.ledger import LedgerBroken
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.stream import keeper as stream_keeper
from opicflow.pipelines.stream import ledgers
from opicflow.pipelines.stream.keeper import LogKeeper
from opicflow.pipelines.stream.ledgers import JournalInLog
from opicflow.pipelines.transforms.keep_ledger import KeeperCache, LostLedger
from opicflow.pipelines.transforms.shard import Sharder
from support.simulation import NO_FAULTS, Faults, Router, Send, Simulation, Stage

SCHEDULES = 60
ENOUGH = 120
"""So many schedules must find any mutation."""


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots and split cuts in a stream of a few events, and audits that tell every cut."""
    monkeypatch.setattr(stream_keeper, "_CUTS_TOLD", 1 << 30)
    monkeypatch.setattr(ledgers, "OLDEST_SNAPSHOT_MS", 3_600_000)
    monkeypatch.setattr(stream_keeper, "MOST_TRANSFERS", 3)


def run_schedules(first: int, count: int, faults: Faults | None = None) -> Counter[str]:
    """Play schedules; a failure tells its seed."""
    happened: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            happened += Simulation(seed, faults).play().happened
        except Exception as problem:
            problem.add_note(f"schedule {seed}") if hasattr(problem, "add_note") else print(f"schedule {seed}")
            raise
    return happened


@pytest.mark.slow
def test_ledgers_are_what_their_logs_say_whatever_happens(seed: int) -> None:
    happened = run_schedules(1_000_000 * seed, SCHEDULES)
    missing = {name for name, often in vars(Faults()).items() if often} | {"older", "stale"}
    assert not missing - set(happened), "everything happened"


def test_they_are_when_nothing_happens(seed: int) -> None:
    run_schedules(1_000_000 * seed, 10, NO_FAULTS)


def test_a_hole_in_a_log_is_refused_and_heals(seed: int) -> None:
    """A bundle fails, and a later send of it has arrived without an earlier one."""
    run_schedules(1_000_000 * seed, 20, Faults(hole=60))


@pytest.mark.soak
def test_simulation_of_thousands_of_schedules(seed: int) -> None:
    run_schedules(1_000_000 * seed + SCHEDULES, 3000)
    run_schedules(1_000_000 * seed + SCHEDULES, 300, Faults(hole=60))


# -- mutations -----------------------------------------------------------------------------------------------------

FINDS = (AssertionError, LostLedger, LedgerBroken)
Mutation = Callable[[pytest.MonkeyPatch], type[Simulation]]


def rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> type[Simulation]:
    """Replace a piece of a method's source. It must be there, once."""
    function = owner.__dict__[name]
    plain = inspect.unwrap(function.__func__ if isinstance(function, classmethod) else function)
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(old) == 1, f"{name} was rewritten: see what the mutation is meant to break, and mend it"
    space: dict[str, Any] = dict(vars(owner))  # where defaults of parameters are looked up
    code = compile("from __future__ import annotations\n" + source.replace(old, new), f"<mutated {name}>", "exec")
    exec(code, plain.__globals__, space)
    patch.setattr(owner, name, space[name])
    return Simulation


class CommitsBeforeItSends(Simulation):
    """A stage's state moves on at once, and what it sent arrives with the next bundle, if nothing fails before."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._unsent: list[Send] = []
        super().__init__(*args, **options)

    def _taken(self, stage: Stage, half: bool = False) -> list[Send]:
        sends = super()._taken(stage, half)
        if not isinstance(stage, Router):
            return sends
        waited, self._unsent = self._unsent, sends
        return waited

    def _restore(self) -> None:
        super()._restore()
        self._unsent = []

    def _can_work(self) -> list[Stage]:
        stages = super()._can_work()
        if not stages and self._unsent:
            self._arrive(self._unsent)
            self._unsent = []
            return super()._can_work()
        return stages


class SeenOutlivesItsBundle(Simulation):
    """What was seen in a bundle that failed is taken as sent."""

    def _forget_seen(self) -> None:
        pass


MUTATIONS: dict[str, Mutation] = {
    "a keeper applies what lies below its head": lambda patch: rewrite(
        patch, LogKeeper, "take", " or batch.end <= self.head.next", ""
    ),
    "a keeper applies a whole batch of which it has half": lambda patch: rewrite(
        patch, LogKeeper, "take", "int(np.searchsorted(batch.offsets, self.head.next))", "0"
    ),
    "a keeper applies what comes too early": lambda patch: rewrite(
        patch, LogKeeper, "take", "batch.start > self.head.next or ", ""
    ),
    "a ledger ignores how far a source is": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "mark = self._marks.get(entry.source, Mark())", "mark = Mark()"
    ),
    "a ledger does not keep the mark of a shard": lambda patch: rewrite(
        patch, Ledger, "_apply_transfers", "self._marks[source] = Mark(entry.end, total, digest)", "pass"
    ),
    "a ledger applies the rows that it has": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "if known.any():", "if False:"
    ),
    "visits are counted before an entry is trimmed": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "int((items.kind == Kind.VISIT)", "int((entry.items.kind == Kind.VISIT)"
    ),
    "a batch's end seals a cut": lambda patch: rewrite(
        patch,
        LogKeeper,
        "take",
        "    self.head = replace(self.head, next=batch.end)",
        "    self.head = replace(self.head, next=batch.end)\n"
        "    if self.ledger is not None:\n"
        "        yield from self._send(Applied(sealed=tuple(self.ledger._seal_cut())))",
    ),
    "cuts are counted anew after a restart": lambda patch: rewrite(
        patch, Ledger, "_adopt", "self._cut = state.cut", "self._cut = 0"
    ),
    "a tick has the time of whoever sent it": lambda patch: rewrite(
        patch,
        LogKeeper,
        "_apply",
        "entry = replace(entry, second=time_ms // 1000)",
        "entry = replace(entry, second=id(value) % (1 << 40))",
    ),
    "a router's state moves before its sends arrive": lambda patch: CommitsBeforeItSends,
    "all shards count as sent to": lambda patch: rewrite(
        patch, Sharder, "_entries", "self._sent_to[shard] = end", "self._sent_to[:] = end"
    ),
    "a router counts no visits of the piece before": lambda patch: rewrite(
        patch, Sharder, "_entries", "self._visits[shard] += int", "self._visits[shard] = int"
    ),
    "what was seen outlives a bundle that failed": lambda patch: SeenOutlivesItsBundle,
    "a ledger is made anew from its snapshot alone": lambda patch: rewrite(
        patch, JournalInLog, "since", "self._read(keeper.head.next, head.next)", "()"
    ),
    "a ledger is made anew beyond its head": lambda patch: rewrite(
        patch,
        JournalInLog,
        "since",
        "self._read(keeper.head.next, head.next)",
        "self._read(keeper.head.next, head.next + 5)",
    ),
    "the cache is not held against the head": lambda patch: rewrite(
        patch, KeeperCache, "take", "keeper.head == head", "True"
    ),
    "a keeper forgets what it has to tell of pairs": lambda patch: rewrite(
        patch, LogKeeper, "from_chunks", "_Notes(**notes)", "_Notes(notes['origin'])"
    ),
    "a cut that comes again is noted again": lambda patch: rewrite(
        patch, LogKeeper, "_apply", "if entry.last and self.ledger.mark(_source_of(entry)) > mark:", "if entry.last:"
    ),
    "quiet is not kept": lambda patch: rewrite(
        patch, LogKeeper, "_publish_visited", "if len(visited) == 0 or self.is_quiet:", "if len(visited) == 0:"
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = MUTATIONS[name](monkeypatch)
    for seed in range(ENOUGH):
        try:
            simulation(seed).play()
        except FINDS as problem:
            print(f"found by schedule {seed}: {type(problem).__name__}")
            return
    pytest.fail(f"{ENOUGH} schedules did not find it")
