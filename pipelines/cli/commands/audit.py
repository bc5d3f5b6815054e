"""`opicflow audit`: whether the books of all shards balance, by what they tell in the topic audit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.records import Arrived, batches
from opicflow.pipelines.cli.cluster import connection_of
from opicflow.pipelines.cli.commands.replay import moment, printable
from opicflow.pipelines.stream.audit import Auditor, AuditRefused, Fault, Law, State, Verdict
from opicflow.pipelines.stream.prove import Proof, prove
from opicflow.schemas.dates import iso_time

_STREAM = "audit"
_EXIT = {State.BALANCED: 0, State.FAULTS: 2, State.NOT_YET: 3}

_STOP = "stop the stream, and make the ledgers again from the crawl events (opicflow rebuild)"
_TO_DO = {
    Law.BALANCE: _STOP,
    Law.MINTED: _STOP,
    Law.SENT: _STOP,
    Law.RECEIVED: _STOP,
    Law.UNSENT: _STOP,
    Law.PAIR: _STOP,
    Law.TWICE: "see that one stream alone writes here; after a rebuild, or where another stream was before, give "
    "--since with the time at which this stream began",
    Law.FALLS: _STOP,
}


def audit(options: argparse.Namespace) -> int:
    """Say whether all that was minted is there, or what is wrong, or what cannot be judged yet."""
    connection = connection_of(options)
    if options.prove:
        return _prove(options, connection)
    topic = options.prefix + _STREAM
    since_ms = moment("--since", options.since)
    auditor = Auditor()
    watch = _Watch(options.json)
    left_out = 0
    for batch in batches(connection, _STREAM, prefix=options.prefix, follow=options.follow, since_ms=since_ms):
        left_out += _take(auditor, batch)
        if options.follow:
            watch.look(auditor.verdict(), left_out, is_quiet=not batch)
    verdict = auditor.verdict()
    if not verdict.shards:
        if left_out:
            raise KafkaRefused(f"{topic}: none of its records can be read: see what else writes to this topic")
        if options.since:
            raise KafkaRefused(f"{topic} holds no record from {options.since} on: give an earlier --since, or none")
        raise KafkaRefused(
            f"{topic} is empty: start a stream and wait for a tick, or send a replay's results with --to"
        )
    watch.show(verdict, left_out)
    if verdict.faults and not options.json:
        count = f"{len(verdict.faults)} faults" if len(verdict.faults) > 1 else "1 fault"
        sys.stdout.flush()
        print(f"opicflow: {topic}: {count}: importance is not to be trusted until it is mended", file=sys.stderr)
    return _EXIT[verdict.state]


def _prove(options: argparse.Namespace, connection: Connection) -> int:
    """Compare every ledger with what its log gives, read from its start."""

    def tell(proof: Proof) -> None:
        if not options.json:
            same = "is what its log says" if proof.is_same else "IS NOT what its log says"
            print(f"shard {proof.shard}: {proof.pages:,} pages, {proof.fingerprint}: {same}", flush=True)

    proofs = prove(connection, options.prefix, options.ledger, on_proof=tell)
    other = [proof.shard for proof in proofs if not proof.is_same]
    if options.json:
        shown = [{"shard": p.shard, "pages": p.pages, "fingerprint": p.fingerprint, "same": p.is_same} for p in proofs]
        print(json.dumps({"proven": not other, "shards": shown}, indent=2))
    elif not other:
        print(f"proven: all {len(proofs)} ledgers are, byte for byte, what their logs say")
    if other and not options.json:
        named = ", ".join(map(str, other[:10]))
        print(f"opicflow: shards {named} differ from their logs: {_STOP}", file=sys.stderr)
    return _EXIT[State.FAULTS] if other else 0


def _take(auditor: Auditor, batch: Iterable[Arrived]) -> int:
    """Take the records. Returns how many could not be taken; each is told."""
    left_out = 0
    for one in batch:
        problem = one.broken
        if not problem and one.record is None:
            problem = "it has no value: audit records are never taken back"
        if not problem:
            try:
                auditor.take(one.record)
            except AuditRefused as refused:
                problem = str(refused)
        if problem:
            left_out += 1
            print(
                f"opicflow: partition {one.partition}, offset {one.offset}: {printable(problem)}: left out",
                file=sys.stderr,
            )
    return left_out


class _Watch:
    """Prints verdicts: one, or each that differs from the one before."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._shown: tuple[Any, ...] = ()

    def look(self, verdict: Verdict, left_out: int, is_quiet: bool) -> None:
        """Show the verdict if it changed; what is not known yet only when nothing comes that could tell."""
        what = (verdict.state, verdict.shards, verdict.faults, *_reasons(verdict))
        if what == self._shown or (verdict.state is State.NOT_YET and not is_quiet):
            return
        seen = self._shown[2] if self._shown and self._shown[1] == verdict.shards else ()
        self._shown = what
        if self._as_json:
            print(json.dumps(_as_json(verdict, left_out)))
        else:
            _print_lines(verdict, [fault for fault in verdict.faults if fault not in seen])
        sys.stdout.flush()

    def show(self, verdict: Verdict, left_out: int) -> None:
        """Show the verdict of all that was there."""
        if self._as_json:
            print(json.dumps(_as_json(verdict, left_out), indent=2))
        else:
            _print_lines(verdict, verdict.faults)


def _print_lines(verdict: Verdict, faults: Iterable[Fault]) -> None:
    for fault in faults:
        print(_line(fault))
    if verdict.state is State.NOT_YET:
        print(f"cannot be judged yet: {'; '.join(_reasons(verdict)) or 'no shard has spoken'}")
    elif verdict.state is State.BALANCED:
        print(_balanced(verdict))
    for other in verdict.others:
        print(f"note: there are records of {_count(other.shards, 'shard')} too, up to {_at(other.second)}: left out")


def _balanced(verdict: Verdict) -> str:
    line = (
        f"balanced at {_at(verdict.second)}: {_count(verdict.shards, 'shard')}, {_count(verdict.pages, 'page')}, "
        f"{_count(verdict.visits, 'visit')}, {_count(verdict.minted, 'unit')} minted, {verdict.in_transit:,} under way"
    )
    if verdict.lag:
        line += (
            f"; {_count(verdict.lag.cuts, 'cut')} at most not compared yet ({verdict.lag.shard} -> {verdict.lag.other})"
        )
    if verdict.ahead:
        line += f"; {_count(verdict.ahead, 'pair')} received more than the sender has told yet"
    behind = verdict.newest_second - verdict.second
    return f"{line}; ticks {behind:,} s apart" if behind else line


def _reasons(verdict: Verdict) -> list[str]:
    """Why there is no verdict yet."""
    if verdict.state is not State.NOT_YET or not verdict.shards:
        return []
    reasons = []
    missing = verdict.shards - verdict.reported
    if missing:
        named = _named([str(shard) for shard in verdict.silent], missing)
        reasons.append(
            f"{missing} of {_count(verdict.shards, 'shard')} have not spoken ({named}): wait for a tick, or "
            "see with opicflow stream status whether the stream runs; with --since give an earlier time"
        )
    if verdict.uncompared_count:
        named = _named([f"{a} -> {b}" for a, b in verdict.uncompared], verdict.uncompared_count)
        reasons.append(
            f"{_count(verdict.uncompared_count, 'pair')} without a common cut ({named}): wait until the "
            "receivers have read what was sent"
        )
    for one in verdict.unreported:
        reasons.append(
            f"shard {one.other} received cut {one.cut} of shard {one.shard}, which that one has not told: "
            "wait for its next tick"
        )
    return reasons


def _line(fault: Fault) -> str:
    return f"{_who(fault)}: {_what(fault)} (tick {_at(fault.second)}): {_TO_DO[fault.law]}"


def _who(fault: Fault) -> str:
    if fault.other is None:
        return f"shard {fault.shard}"
    return f"shard {fault.shard} -> shard {fault.other}, cut {fault.cut}"


def _what(fault: Fault) -> str:
    units = _count(abs(fault.units), "unit")
    more = "more" if fault.units > 0 else "less"
    if fault.law is Law.BALANCE:
        return f"{units} {more} were minted than are held, sent and not received"
    if fault.law is Law.MINTED:
        return f"what was minted is no whole number of pages, by {units}"
    if fault.law is Law.SENT:
        return f"its pairs sealed {units} more than it has sent"
    if fault.law is Law.RECEIVED:
        return f"its pairs counted {units} more than it has received"
    if fault.law is Law.UNSENT:
        return f"{units} more were received than were sent"
    if fault.law is Law.PAIR:
        return f"{units} {more} were received than were sent" if fault.units else "other transfers of the same sum came"
    if fault.law is Law.TWICE:
        said = f"{units} {more} than it said before" if fault.units else "another digest than it said before"
        return f"shard {fault.by} contradicts itself, {said}"
    assert fault.law is Law.FALLS
    return f"what shard {fault.by} counts fell by {units}"


def _named(names: list[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _at(second: int) -> str:
    """A tick; 0 is the tick of ledgers that never had one."""
    return f"{iso_time(1000 * second)[:-1].replace('T', ' ')} UTC" if second else "no time"


def _as_json(verdict: Verdict, left_out: int) -> dict[str, Any]:
    return {
        "verdict": verdict.state.value,
        "shards": verdict.shards,
        "shards_spoken": verdict.reported,
        "second": verdict.second,
        "newest_second": verdict.newest_second,
        "pages": verdict.pages,
        "visits": verdict.visits,
        "minted": verdict.minted,
        "held": verdict.held,
        "under_way": verdict.in_transit,
        "in_outboxes": verdict.in_outboxes,
        "in_part": verdict.in_part,
        "faults": [{**_fields(fault), "says": _line(fault)} for fault in verdict.faults],
        "not_yet": _reasons(verdict),
        "lag_cuts": verdict.lag.cuts if verdict.lag else 0,
        "lag_pair": [verdict.lag.shard, verdict.lag.other] if verdict.lag else None,
        "pairs_ahead": verdict.ahead,
        "other_sets": [other._asdict() for other in verdict.others],
        "records_left_out": left_out,
    }


def _fields(fault: Fault) -> dict[str, Any]:
    return {
        "law": fault.law.value,
        "shard": fault.shard,
        "other": fault.other,
        "cut": fault.cut,
        "units": fault.units,
        "by": fault.by,
        "second": fault.second,
    }
