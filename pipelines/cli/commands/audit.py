"""`opicflow audit`: whether the accounts of all shards balance, by their records in the topic audit."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import add_json, add_kafka_options, connection_of, moment
from opicflow.pipelines.cli.stream_options import add_ledger, add_snapshots, ledger_topic_of, snapshots_of
from opicflow.pipelines.cli.text import certified_in_words, counted, print_lines, span
from opicflow.pipelines.cli.values import span_seconds
from opicflow.pipelines.stream.audit import Auditor, AuditRefused, AuditState, Fault, Law, Verdict
from opicflow.pipelines.stream.loads import advice, spread_in_words, table
from opicflow.schemas.dates import iso_time

if TYPE_CHECKING:
    from opicflow.connectors.kafka.connection import Connection
    from opicflow.connectors.kafka.record_reader import Arrived
    from opicflow.pipelines.stream.prove import Proof

EXAMPLES = """examples:
  opicflow audit --brokers localhost:9092                                  do the accounts of all shards balance?
  opicflow audit --brokers localhost:9092 --since 2026-05-01T12:00:00Z     by the records from this time on
  opicflow audit --brokers localhost:9092 --follow                         print a line when the answer changes
  opicflow audit --brokers localhost:9092 --max-age any                    of a stream that was stopped, or of a replay

exit codes: 0 balanced, 2 something is wrong or the reports are old, 3 it cannot be judged yet
"""
PRINTS_AS_IT_GOES = True

_STREAM = "audit"
_OLD = "old"
"""The verdict, in JSON, on reports without a fault that are older than `--max-age`."""
_MAX_AGE = "5min"
_EXIT = {AuditState.BALANCED: 0, AuditState.FAULTS: 2, AuditState.NOT_YET: 3}

_STOP = "stop the stream, and rebuild the ledgers from the crawl events (opicflow rebuild)"
_TO_DO = {
    Law.BALANCE: _STOP,
    Law.MINTED: _STOP,
    Law.SENT: _STOP,
    Law.RECEIVED: _STOP,
    Law.UNSENT: _STOP,
    Law.PAIR: _STOP,
    Law.TWICE: "make sure that only one stream writes here; after a rebuild, or where another stream was before, give "
    "--since with the time at which this stream began",
    Law.FALLS: _STOP,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--since", metavar="TIME", help="by records from this time on; one hour is enough")
    parser.add_argument(
        "--max-age",
        type=_max_age,
        default=_MAX_AGE,
        metavar="SPAN",
        help="older reports are an error: the stream does not run (%(default)s); 'any': they are not",
    )
    parser.add_argument("--follow", action="store_true", help="continue, and print a line when the answer changes")
    parser.add_argument(
        "--prove", action="store_true", help="read all logs again, and compare the result with the ledgers"
    )
    parser.add_argument("--shard-table", action="store_true", help="also show what each shard has")
    add_ledger(parser)
    add_snapshots(parser, "the logs are whole")
    add_json(parser, "print JSON; with --follow a line each")
    add_kafka_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print whether all minted cash is accounted for, each fault, or why there is no verdict yet."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.record_reader import batches

    connection = connection_of(options)
    if options.prove:
        return _prove(options, connection)
    topic = options.prefix + _STREAM
    since_ms = moment("--since", options.since)
    auditor = Auditor()
    watch = _Watch(topic, options.json, options.max_age)
    for batch in batches(connection, _STREAM, prefix=options.prefix, follow=options.follow, since_ms=since_ms):
        watch.left_out += _take(auditor, batch)
        if options.follow:
            watch.update(auditor.verdict(), is_quiet=not batch)
    verdict = auditor.verdict()
    if not verdict.shards:
        if watch.left_out:
            raise KafkaRefused(
                f"{topic}: none of its records can be read: check which other program writes to this topic"
            )
        if options.since:
            raise KafkaRefused(f"{topic} holds no record from {options.since} on: give an earlier --since, or none")
        raise KafkaRefused(
            f"{topic} is empty: start a stream and wait for a tick, or send a replay's results with --to"
        )
    is_old = watch.show(verdict)
    if options.shard_table and not options.json:
        print_lines(*table(verdict.loads), spread_in_words(verdict.loads))
    if verdict.faults and not options.json:
        count = counted(len(verdict.faults), "fault")
        sys.stdout.flush()
        print_lines(f"opicflow: {topic}: {count}: do not trust importance until this is repaired", file=sys.stderr)
    return _EXIT[AuditState.FAULTS if is_old else verdict.state]


def _max_age(text: str) -> float:
    """Return the age in seconds from which reports are old; `any`: they never are."""
    return math.inf if text == "any" else span_seconds(text)


def _prove(options: argparse.Namespace, connection: Connection) -> int:
    """Compare every ledger with the ledger that its log yields, read from its start."""
    from opicflow.pipelines.stream.prove import prove

    def show(proof: Proof) -> None:
        if not options.json:
            same = "equals its log" if proof.is_same else "DIFFERS from its log"
            print_lines(f"shard {proof.shard}: {counted(proof.pages, 'page')}, {proof.fingerprint}: {same}", flush=True)

    proofs = prove(connection, options.prefix, ledger_topic_of(options), on_proof=show, snapshots=snapshots_of(options))
    other = [proof.shard for proof in proofs if not proof.is_same]
    if options.json:
        shown = [{"shard": p.shard, "pages": p.pages, "fingerprint": p.fingerprint, "same": p.is_same} for p in proofs]
        print(json.dumps({"proven": not other, "shards": shown}, indent=2))
    elif not other:
        print_lines(f"proven: all {len(proofs)} ledgers equal their logs, byte for byte")
    if other and not options.json:
        named = ", ".join(map(str, other[:10]))
        print_lines(f"opicflow: shards {named} differ from their logs: {_STOP}", file=sys.stderr)
    return _EXIT[AuditState.FAULTS] if other else 0


def _take(auditor: Auditor, batch: Iterable[Arrived]) -> int:
    """Give the records to the auditor. Returns how many it refused; each refusal is printed."""
    left_out = 0
    for one in batch:
        problem = one.broken
        if not problem and one.record is None:
            problem = "it has no value: audit records are never withdrawn"
        if not problem:
            try:
                auditor.take(one.record)
            except AuditRefused as refused:
                problem = str(refused)
        if problem:
            left_out += 1
            print_lines(
                f"opicflow: partition {one.partition}, offset {one.offset}: {problem}: left out",
                file=sys.stderr,
            )
    return left_out


class _Watch:
    """Prints verdicts: one, or each that differs from the one before. Reports are old after so many seconds."""

    def __init__(self, topic: str, as_json: bool, max_age: float) -> None:
        self.left_out = 0
        self._topic = topic
        self._as_json = as_json
        self._max_age = max_age
        self._shown: Verdict | None = None
        self._is_old = False

    def update(self, verdict: Verdict, is_quiet: bool) -> None:
        """Show the verdict if it changed; an open verdict, and that it is old, only when no more records arrive."""
        before, age = self._shown, _age(verdict)
        is_old = age > self._max_age and (is_quiet or self._is_old)
        is_same = before is not None and _content(before) == _content(verdict)
        if (is_same and is_old == self._is_old) or (verdict.state is AuditState.NOT_YET and not is_quiet):
            return
        seen = before.faults if before is not None and before.shards == verdict.shards else ()
        self._shown, self._is_old = verdict, is_old
        self._print(verdict, [fault for fault in verdict.faults if fault not in seen], age, None)

    def show(self, verdict: Verdict) -> bool:
        """Show the verdict on all records. Returns whether its reports are old."""
        age = _age(verdict)
        self._is_old = age > self._max_age
        self._print(verdict, verdict.faults, age, 2)
        return self._is_old

    def _print(self, verdict: Verdict, faults: Iterable[Fault], age: float, indent: int | None) -> None:
        if self._as_json:
            values = _as_json(verdict, self.left_out)
            shown = _OLD if self._is_old and not verdict.faults else values["verdict"]
            print(json.dumps({**values, "verdict": shown, "age_seconds": round(age)}, indent=indent))
        else:
            _print_lines(verdict, faults)
        sys.stdout.flush()
        if self._is_old and not self._as_json:
            print_lines(
                f"opicflow: {self._topic}: a shard has reported nothing for {span(age)}, since {_at(verdict.second)}: "
                "find out with opicflow stream status why; of a stream that was stopped, or of a replay, give "
                "--max-age any",
                file=sys.stderr,
            )


def _age(verdict: Verdict) -> float:
    """Return the seconds since the oldest of the newest ticks of all shards; 0 if there was none."""
    return _now_second() - verdict.second if verdict.second else 0.0


def _now_second() -> float:
    return datetime.now(timezone.utc).timestamp()  # noqa: TID251 - how old a report is depends on the time


def _print_lines(verdict: Verdict, faults: Iterable[Fault]) -> None:
    for fault in faults:
        print_lines(_line(fault))
    if verdict.state is AuditState.NOT_YET:
        print_lines(f"cannot be judged yet: {'; '.join(_reasons(verdict)) or 'no shard has reported'}")
    elif verdict.state is AuditState.BALANCED:
        print_lines(_balanced(verdict))
    if verdict.reported == verdict.shards and (advised := advice(verdict.loads)):
        print_lines(f"note: {advised}")
    for other in verdict.others:
        print_lines(
            f"note: there are records of {counted(other.shards, 'shard')} too, up to {_at(other.second)}: left out"
        )


def _balanced(verdict: Verdict) -> str:
    line = (
        f"balanced at {_at(verdict.second)}: {counted(verdict.shards, 'shard')}, {counted(verdict.pages, 'page')}, "
        f"{counted(verdict.visits, 'visit')}, {counted(verdict.minted, 'unit')} minted, "
        f"{verdict.in_transit:,} in transit"
    )
    if verdict.lag:
        pair = f"{verdict.lag.shard} -> {verdict.lag.other}"
        line += f"; {counted(verdict.lag.cuts, 'cut')} at most not compared yet ({pair})"
    if verdict.ahead:
        line += f"; {counted(verdict.ahead, 'pair')} received more than the sender has reported yet"
    if verdict.certificate is not None:
        line += f"; importance is {certified_in_words(verdict.certificate)}"
    elif verdict.unsettled:
        line += f"; importance is not settled yet in {counted(verdict.unsettled, 'shard')}"
    behind = verdict.newest_second - verdict.second
    return f"{line}; ticks {behind:,} s apart" if behind else line


def _reasons(verdict: Verdict) -> list[str]:
    """Return the reasons why there is no verdict yet."""
    if verdict.state is not AuditState.NOT_YET or not verdict.shards:
        return []
    reasons = []
    missing = verdict.shards - verdict.reported
    if missing:
        named = _named([str(shard) for shard in verdict.silent], missing)
        reasons.append(
            f"{missing} of {counted(verdict.shards, 'shard')} have not reported ({named}): wait for a tick, or "
            "check with opicflow stream status whether the stream runs; with --since give an earlier time"
        )
    if verdict.uncompared_count:
        named = _named([f"{a} -> {b}" for a, b in verdict.uncompared], verdict.uncompared_count)
        reasons.append(
            f"{counted(verdict.uncompared_count, 'pair')} without a common cut ({named}): wait until the "
            "receivers have read all transfers"
        )
    for one in verdict.unreported:
        reasons.append(
            f"shard {one.other} received cut {one.cut} of shard {one.shard}, which that shard has not reported: "
            "wait for its next tick"
        )
    return reasons


def _line(fault: Fault) -> str:
    return f"{_who(fault)}: {_what(fault)} (tick {_at(fault.second)}): {_TO_DO[fault.law]}"


def _who(fault: Fault) -> str:
    if fault.other is None:
        return f"shard {fault.shard}"
    return f"shard {fault.shard} -> shard {fault.other}, cut {fault.cut}"


_FAULTS = {
    Law.BALANCE: "{units} {more} were minted than are held, sent and not received",
    Law.MINTED: "the minted cash is not a whole number of pages, by {units}",
    Law.SENT: "its pairs sealed {units} more than it has sent",
    Law.RECEIVED: "its pairs counted {units} more than it has received",
    Law.UNSENT: "{units} more were received than were sent",
    Law.PAIR: "{units} {more} were received than were sent",
    Law.TWICE: "shard {by} contradicts itself, {units} {more} than it reported before",
    Law.FALLS: "the counts of shard {by} fell by {units}",
}
_FAULTS_OF_DIGESTS = {
    Law.PAIR: "other transfers of the same sum came",
    Law.TWICE: "shard {by} contradicts itself, another digest than it reported before",
}
"""The words where no cash is missing."""


def _what(fault: Fault) -> str:
    words = _FAULTS[fault.law] if fault.units else _FAULTS_OF_DIGESTS.get(fault.law, _FAULTS[fault.law])
    more = "more" if fault.units > 0 else "less"
    return words.format(units=counted(abs(fault.units), "unit"), more=more, by=fault.by)


def _named(names: list[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")


def _at(second: int) -> str:
    """A tick; 0 is the tick of ledgers that never had one."""
    return iso_time(1000 * second) if second else "no time"


def _content(verdict: Verdict) -> tuple[object, ...]:
    return verdict.state, verdict.shards, verdict.faults, *_reasons(verdict)


def _as_json(verdict: Verdict, left_out: int) -> dict[str, object]:
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
        "certificate": verdict.certificate,
        "unsettled_shards": verdict.unsettled,
        "loads": [load._asdict() for load in verdict.loads],
        "advice": advice(verdict.loads),
    }


def _fields(fault: Fault) -> dict[str, object]:
    return {
        "law": fault.law.value,
        "shard": fault.shard,
        "other": fault.other,
        "cut": fault.cut,
        "units": fault.units,
        "by": fault.by,
        "second": fault.second,
    }
