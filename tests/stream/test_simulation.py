"""Under any fault, the ledgers of a stream follow from their logs and count everything once: see simulation.py.

Each mutation below puts a bug into a line of the stream, and the simulation must find it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from opicflow.connectors.kafka import sink
from opicflow.connectors.kafka.sink import SendingDoFn
from opicflow.pipelines.ledger import LedgerBroken, ledger
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.plan.removal import Removal
from opicflow.pipelines.ledger.shards.cuts import Cuts
from opicflow.pipelines.results.topic_writer import SendOutputs
from opicflow.pipelines.stages import ledger_keeper
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.outputs import CHANGES
from opicflow.pipelines.stages.publication_pace import MoverPace
from opicflow.pipelines.stages.shard import Sharder
from opicflow.pipelines.stream import ledgers, trim
from opicflow.pipelines.stream.ledgers import JournalInLog, KeepLogLedger
from opicflow.pipelines.stream.routers import RouteEvents, RoutePolicies
from opicflow.schemas import sites
from opicflow.schemas.errors import UserError
from support.simulation import NO_FAULTS, SUFFIXES, Faults, Process, Simulation

SCHEDULES = 24
ENOUGH = 120
"""The number of schedules within which any mutation must be found."""


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of a few events has snapshots and split cuts, audits report every cut, and few sites are known."""
    monkeypatch.setattr(ledger_keeper, "_NEWEST_CUTS", 1 << 30)
    monkeypatch.setattr(ledgers, "OLDEST_SNAPSHOT_MS", 3_600_000)
    monkeypatch.setattr(ledger_keeper, "MOST_TRANSFERS", 3)
    monkeypatch.setattr(sites, "installed_suffixes", lambda: SUFFIXES)


def run_schedules(first: int, count: int, faults: Faults | None = None) -> Counter[str]:
    """Play schedules. A failure prints its seed."""
    happened: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            happened += Simulation(seed, faults).play().happened
        except Exception as problem:
            problem.add_note(f"schedule {seed}") if hasattr(problem, "add_note") else print(f"schedule {seed}")
            raise
    return happened


@pytest.mark.slow
def test_ledgers_follow_from_their_logs_under_any_fault(seed: int) -> None:
    happened = run_schedules(1_000_000 * seed, SCHEDULES)
    missing = {name for name, often in vars(Faults()).items() if often} | {"older", "stale", "hangs"}
    missing |= {CHANGES, "began later", "snapshot", "damaged", "trimmed", "ledgers_recovered", "snapshots_damaged"}
    assert missing - set(happened) == set(), "every kind of fault happened"


def test_ledgers_follow_from_their_logs_without_faults(seed: int) -> None:
    run_schedules(1_000_000 * seed, 5, NO_FAULTS)


@pytest.mark.slow
def test_a_hole_in_a_log_is_refused_and_heals(seed: int) -> None:
    """A bundle fails when one of its records has arrived and an earlier one has not."""
    run_schedules(1_000_000 * seed, 6, Faults(hole=60))


@pytest.mark.soak
def test_simulation_of_a_thousand_schedules(seed: int) -> None:
    run_schedules(1_000_000 * seed + SCHEDULES, 1000)
    run_schedules(1_000_000 * seed + SCHEDULES, 100, Faults(hole=60))


# -- mutations -----------------------------------------------------------------------------------------------------

FINDS = (AssertionError, UserError, LedgerBroken, OverflowError)
"""The last one: an entry that ends before it begins is not written."""
Mutation = Callable[[pytest.MonkeyPatch], Callable[[int], Simulation]]


def rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> type[Simulation]:
    """Replace a piece of a method's source. It must be there, once."""
    function = owner.__dict__[name]
    plain = inspect.unwrap(function.__func__ if isinstance(function, classmethod) else function)
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(old) == 1, f"{name} has changed: change the mutation so that it breaks the same law"
    space: dict[str, Any] = dict(vars(owner))  # defaults of parameters are resolved here
    code = compile("from __future__ import annotations\n" + source.replace(old, new), f"<mutated {name}>", "exec")
    exec(code, plain.__globals__, space)
    patch.setattr(owner, name, space[name])
    return Simulation


def often(simulation: type[Simulation], **faults: int) -> Callable[[int], Simulation]:
    """Return a simulation in which these faults happen more often."""
    return lambda seed: simulation(seed, Faults(**faults))


class CommitsBeforeItSends(Simulation):
    """The state of a router advances at once; its records arrive with the next bundle, or are lost with the process."""

    def _can_work(self, process: Process) -> list[tuple[str, int]]:
        if not super()._can_work(process):
            process.connection.arrive()
        return super()._can_work(process)


def commit_before_sending(patch: pytest.MonkeyPatch) -> type[Simulation]:
    def start_bundle(self: sink._Publish) -> None:
        SendingDoFn.start_bundle(self)
        assert self._publisher is not None
        self._publisher.flush()

    patch.setattr(sink._Publish, "start_bundle", start_bundle)
    patch.setattr(sink._Publish, "finish_bundle", lambda self: None)
    return CommitsBeforeItSends


class FinishesTooEarly(Simulation):
    """A snapshot is finished before the outputs of its ledger have arrived."""

    def are_sent(self, run: str, shard: int, next_offset: int) -> bool:
        return True


MUTATIONS: dict[str, Mutation] = {
    "a ledger ahead of its state goes on though its outputs were lost": lambda patch: rewrite(
        patch, ledgers, "may_go_on", " and kept(run, SentHeads).cover(shard, here.next)", ""
    ),
    "a snapshot is finished before the outputs of its ledger have arrived": lambda patch: often(
        FinishesTooEarly, half=250, crash=20
    ),
    "a keeper applies records before its head": lambda patch: rewrite(
        patch, LedgerKeeper, "take", " or batch.end <= self.head.next", ""
    ),
    "a keeper applies a whole batch after half of it was applied": lambda patch: rewrite(
        patch, LedgerKeeper, "take", "int(np.searchsorted(batch.offsets, self.head.next))", "0"
    ),
    "a keeper applies a batch that comes too early": lambda patch: rewrite(
        patch, LedgerKeeper, "take", "batch.start > self.head.next or ", ""
    ),
    "a ledger ignores the mark of a source": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "mark = self._marks.get(entry.source, Mark())", "mark = Mark()"
    ),
    "a ledger does not keep the mark of a shard": lambda patch: rewrite(
        patch, Ledger, "_apply_transfers", "self._marks[source] = Mark(entry.end, total, digest)", "pass"
    ),
    "a ledger applies rows a second time": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "_rows_below(mark.position, checked.items)", "0"
    ),
    "visits are counted before an entry is trimmed": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "nonzero(items.kind == _VISIT)", "nonzero(entry.items.kind == _VISIT)"
    ),
    "the end of a batch seals a cut": lambda patch: rewrite(
        patch,
        LedgerKeeper,
        "take",
        "    self.head = replace(self.head, next=batch.end)",
        "    self.head = replace(self.head, next=batch.end)\n"
        "    if self.ledger is not None:\n"
        "        yield from self._send(Applied(sealed=tuple(self.ledger._seal_cut())))",
    ),
    "cuts are numbered from zero after a restart": lambda patch: rewrite(
        patch, ledger, "decode_state", '*(messages or [values["cut"]])', "*[0, *messages[1:]]"
    ),
    "messages are numbered by the shard, not by the pair": lambda patch: rewrite(
        patch, Cuts, "_message", "peer.cut, peer.cut + 1", "self.number, self.number + 1"
    ),
    "amounts are sent and wait on": lambda patch: rewrite(patch, Cuts, "_seal", "is_left[here] = False", "pass"),
    "a restored ledger forgets when it last sent messages": lambda patch: rewrite(
        patch, ledger, "decode_state", '*(messages or [values["cut"]])', '*(messages[:1] or [values["cut"]])'
    ),
    "a restored ledger forgets its last whole cut": lambda patch: rewrite(
        patch, ledger, "decode_state", '_decode_whole_cut(*values["whole_cut"]) if', "WholeCut() if"
    ),
    "a shard answers messages without cash": lambda patch: rewrite(
        patch, Ledger, "_apply_transfers", "and (len(pages) or entry.virtual)", ""
    ),
    "gossip that did not change is sent again": lambda patch: rewrite(
        patch, Cuts, "_is_whole_due", "replace(self._gossip(), second=last.gossip.second)", "self._gossip()"
    ),
    "a virtual account below a unit a page is shared": lambda patch: rewrite(
        patch, Cuts, "_is_whole_due", "everywhere > 0 and int(counts.virtual) >= everywhere", "True"
    ),
    "a tick has the time of its sender": lambda patch: rewrite(
        patch,
        LedgerKeeper,
        "_apply",
        "entry = replace(entry, second=time_ms // 1000)",
        "entry = replace(entry, second=id(value) % (1 << 40))",
    ),
    "the clock of a broker counts whatever it says": lambda patch: rewrite(
        patch, LedgerKeeper, "_apply", "> _MOST_CLOCK_DIFFERENCE_SECONDS", "< 0"
    ),
    "the state of a router advances before its records arrive": commit_before_sending,
    "another count of a source is compared with the old one": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "entry.counted_from != mark.counted_from and ", "False and "
    ),
    "the visits before another count are forgotten": lambda patch: rewrite(
        patch, Ledger, "_apply_crawl", "uncounted = total - entry.visits_total", "uncounted = 0"
    ),
    "an entry to one shard counts as sent to all": lambda patch: rewrite(
        patch, Sharder, "_entries", "self._sent_to[shard] = end", "self._sent_to[:] = end"
    ),
    "a router forgets the visits of the previous piece": lambda patch: rewrite(
        patch, Sharder, "_entries", "self._visits[shard] += int", "self._visits[shard] = int"
    ),
    "the URLs of a failed bundle count as sent": lambda patch: rewrite(
        patch,
        RouteEvents,
        "setup",
        "self._seen: dict[str, Seen] = {}",
        'self._seen = vars(self._config).setdefault("seen", {})',
    ),
    "a partition that was added later begins with the first rules": lambda patch: rewrite(
        patch, RouteEvents, "_first_rules", "if rules == begun else", "if True else"
    ),
    "changed rules are ignored": lambda patch: rewrite(
        patch, RouteEvents, "_route", "rules=json.dumps(rules.to_json())", "rules=sharder.state.rules"
    ),
    "an event is judged by the clock of the worker that routes it": lambda patch: rewrite(
        patch, RouteEvents, "_route_events", "ANY_TIME)", "int(1000 * time.time()) + 86_400_000)"
    ),
    "times of the far future are believed": lambda patch: rewrite(
        patch, LedgerKeeper, "_latest_ms", "is None", "is not None"
    ),
    "a note of rules is taken for a policy": lambda patch: rewrite(
        patch, RoutePolicies, "_route", "if value is not None and value.startswith(CONTROL):", "if False:"
    ),
    "a ledger counts its outputs as arrived when they are sent": lambda patch: rewrite(
        patch, SendOutputs, "process", "self._applied[element.to_shard] = element.data", "self._on_sent(element.data)"
    ),
    "trimming deletes what the oldest snapshot lacks": lambda patch: rewrite(
        patch, trim, "find_trims", "max(head.last_offset, 0)", "log.end"
    ),
    "a forgotten page may be learnt again": lambda patch: rewrite(
        patch, Removal, "forget", "self._bar(pages, np.full(len(pages), max(until, 0), np.int64))", "pass"
    ),
    "a ledger is rebuilt from its snapshot alone": lambda patch: rewrite(
        patch, JournalInLog, "since", "self._read(keeper.head.next, head.next)", "()"
    ),
    "a ledger is rebuilt short of its head": lambda patch: rewrite(
        patch,
        JournalInLog,
        "since",
        "self._read(keeper.head.next, head.next)",
        "self._read(keeper.head.next, head.next - 1)",
    ),
    "the cache ignores the head": lambda patch: rewrite(
        patch, KeepLogLedger, "is_usable", "keeper.head == head", "True"
    ),
    "a keeper forgets the cuts that it must report": lambda patch: rewrite(
        patch, LedgerKeeper, "restore_notes", "read_plain(_Notes, notes)", "_Notes(notes['origin'])"
    ),
    "a repeated cut is noted again": lambda patch: rewrite(
        patch, LedgerKeeper, "_apply", "if entry.last and self.ledger.mark(_source_of(entry)) > mark:", "if entry.last:"
    ),
    "movers are limited at rest, too": lambda patch: rewrite(
        patch,
        MoverPace,
        "most",
        "at_once if self.is_at_rest else min(at_once, int(self.allowance))",
        "int(self.allowance)",
    ),
    "the newest record of a page may be off by more than it says at rest": lambda patch: rewrite(
        patch, LedgerKeeper, "_publish_movers", "if not pace.is_at_rest:", "if True:"
    ),
    "records stay as they were before importance had settled": lambda patch: rewrite(
        patch, Ledger, "publish_movers", "self.is_settled", "False"
    ),
    "a quiet ledger publishes": lambda patch: rewrite(
        patch, LedgerKeeper, "_publish_visited", "if self.is_quiet:", "if False:"
    ),
}


FOUND_BY = {
    "a snapshot is finished before the outputs of its ledger have arrived": 19,
    "the cache ignores the head": 24,
    "another count of a source is compared with the old one": 33,
    "the visits before another count are forgotten": 33,
    "a ledger ahead of its state goes on though its outputs were lost": 20,
    "a keeper applies a whole batch after half of it was applied": 6,
    "amounts are sent and wait on": 5,
    "a partition that was added later begins with the first rules": 24,
    "a ledger counts its outputs as arrived when they are sent": 20,
    "a quiet ledger publishes": 9,
    "the URLs of a failed bundle count as sent": 133,
}
"""Schedules that are played first, where others than the first one find a mutation, or sooner."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds_a_mutation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = MUTATIONS[name](monkeypatch)
    for seed in (FOUND_BY.get(name, 0), *range(ENOUGH)):
        try:
            simulation(seed).play()
        except FINDS as problem:
            print(f"found by schedule {seed}: {type(problem).__name__}")
            return
    pytest.fail(f"{ENOUGH} schedules did not find it")
