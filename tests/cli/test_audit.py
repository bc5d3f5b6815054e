"""`opicflow audit`: verdicts on the records of a topic, exit codes and refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from opicflow.connectors.kafka import connection
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import Arrived
from opicflow.pipelines.cli.commands import audit as cli_audit
from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.records import Audit, PairTotal, to_avro
from support.commands import CommandResult, command, create_topics, finished, output_of, refusal
from support.services import LocalKafka

BROKERS = ("--brokers", "127.0.0.1:1")
NOON = 1_777_636_800  # 2026-05-01T12:00:00Z
COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]


def report(shard: int, shards: int = 2, second: int = NOON, cut: int = 3, **changed: Any) -> Audit:
    """The report of a shard that sent ten units a cut to every other shard, and received as much from each."""
    amount = 10 * (cut + 1)
    others = [other for other in range(shards) if other != shard]
    pairs = tuple(PairTotal(other, cut, amount, 9) for other in others)
    total = amount * len(others)
    held = (2 * UNITS_PER_PAGE, 2 * UNITS_PER_PAGE - 7, 4, 2, 1, total, total)
    return replace(Audit(shard, shards, second, 2.5, 2, 617, *held, pairs, pairs), **changed)


REPORTS = [report(0), report(1)]
BALANCED = "balanced at 2026-05-01T12:00:00Z: 2 shards, 4 pages, 1,234 visits, 67,108,864 units minted, 0 in transit\n"


def lost(units: int = 1, cut: int = 3, second: int = NOON) -> Audit:
    """The report of shard 1 that received fewer units than shard 0 sent."""
    right = report(1, second=second, cut=cut)
    (pair,) = right.received_from
    received = right.received - units
    counted = (pair._replace(total=pair.total - units),)
    return replace(right, received_from=counted, received=received, cash=right.cash - units)


def arrived(record: Any, offset: int = 0) -> Arrived:
    return Arrived(b"0", b"value", record, 0, offset)


BROKEN = Arrived(b"0", b"x", None, 2, 17, "this Audit breaks off\x1b[2J")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A fake clock, in seconds: the reports of this module are four minutes old."""
    now = [NOON + 240.0]
    monkeypatch.setattr(cli_audit, "_now_second", lambda: now[0])
    return now


@pytest.fixture
def reads() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, reads: list[dict[str, Any]]) -> list[list[Arrived]]:
    """A fake topic: the list holds its batches, and `reads` records the arguments of each read."""
    found: list[list[Arrived]] = []

    def batches(connection: Connection, stream: str, **how: Any) -> Iterator[list[Arrived]]:
        assert stream == "audit"
        reads.append(how)
        yield from found

    monkeypatch.setattr(import_module("opicflow.connectors.kafka.record_reader"), "batches", batches)
    return found


class Later(list[Arrived]):
    """An empty batch; when it is read, the clock is set."""

    def __init__(self, clock: list[float], second: float) -> None:
        super().__init__()
        self._set = lambda: clock.__setitem__(0, second)

    def __iter__(self) -> Iterator[Arrived]:
        self._set()
        return super().__iter__()


def put(topic: list[list[Arrived]], *records: Any) -> None:
    topic.append([one if isinstance(one, Arrived) else arrived(one) for one in records])


def audit(*arguments: object) -> CommandResult:
    return command("audit", *arguments, *BROKERS)


# -- verdicts


def test_consistent_reports_are_balanced(topic: list[list[Arrived]]) -> None:
    put(topic, *REPORTS)
    assert audit() == CommandResult(0, BALANCED, "")


def test_options_set_where_the_topic_is_read_from(topic: list[list[Arrived]], reads: list[dict[str, Any]]) -> None:
    put(topic, *REPORTS)
    audit("--since", "2026-05-01T12:00:00Z", "--prefix", "p-")
    audit("--follow")
    assert reads == [
        {"prefix": "p-", "follow": False, "since_ms": 1000 * NOON},
        {"prefix": "", "follow": True, "since_ms": None},
    ]


def test_the_verdict_counts_transit_lag_and_records_left_out(topic: list[list[Arrived]]) -> None:
    later = report(0, second=NOON + 60, sent=47, cash=2 * UNITS_PER_PAGE - 14, received_from=())
    sealed = (PairTotal(1, 4, 45, 8), PairTotal(1, 5, 46, 7))
    put(topic, *REPORTS, replace(later, sent_to=sealed), report(0, 1, NOON - 60))
    assert audit().out == (
        BALANCED.replace(", 0 in transit", ", 7 in transit").rstrip()
        + "; 2 cuts at most not compared yet (0 -> 1); ticks 60 s apart\n"
        "note: there are records of 1 shard too, up to 2026-05-01T11:59:00Z: left out\n"
    )
    result = json.loads(audit("--json").out)
    assert (result["verdict"], result["under_way"], result["in_outboxes"], result["lag_cuts"]) == ("balanced", 7, 1, 2)
    topic[0][2:] = [arrived(report(1, second=NOON, cut=4))]
    assert "; 1 pair received more than the sender has reported yet" in audit().out


def test_a_shard_without_ticks_has_no_time(topic: list[list[Arrived]]) -> None:
    put(topic, report(0, 1, 0, sent=0, received=0, sent_to=(), received_from=()))
    assert audit().out.startswith("balanced at no time: 1 shard, 2 pages, 617 visits, ")


@pytest.mark.parametrize(
    ("records", "line"),
    [
        (
            [report(1, cash=0)],
            "shard 1: 33,554,425 units more were minted than are held, sent and not received (tick "
            "2026-05-01T12:00:00Z): stop the stream, and rebuild the ledgers from the crawl events (opicflow rebuild)",
        ),
        ([REPORTS[0], lost()], "shard 0 -> shard 1, cut 3: 1 unit less were received than were sent"),
        ([REPORTS[0], lost(-2)], "shard 0 -> shard 1, cut 3: 2 units more were received than were sent"),
        (
            [REPORTS[0], report(1, received_from=(PairTotal(0, 3, 40, 1),))],
            "shard 0 -> shard 1, cut 3: other transfers of the same sum came",
        ),
        (
            [*REPORTS, report(0, sent_to=(PairTotal(1, 3, 40, 1),))],
            "shard 0 -> shard 1, cut 3: shard 0 contradicts itself, another digest than it reported before (tick "
            "2026-05-01T12:00:00Z): make sure that only one stream writes here",
        ),
        (
            [report(1, minted=2 * UNITS_PER_PAGE + 1)],
            "shard 1: the minted cash is not a whole number of pages, by 1 unit ",
        ),
        ([report(1, sent=39)], "shard 1: its pairs sealed 1 unit more than it has sent"),
        ([report(1, received=39)], "shard 1: its pairs counted 1 unit more than it has received"),
        (
            [REPORTS[1], report(1, sent_to=(PairTotal(0, 4, 39, 9),))],
            "shard 1 -> shard 0, cut 4: the counts of shard 1 fell by 1 unit ",
        ),
        (
            [
                REPORTS[0],
                report(0, second=NOON + 1, cut=4),
                report(1, received=53, cash=2 * UNITS_PER_PAGE + 6),
            ],
            "shard 1: 3 units more were received than were sent",
        ),
    ],
)
def test_a_fault_names_its_shards_and_the_action(topic: list[list[Arrived]], records: list[Audit], line: str) -> None:
    put(topic, *records)
    result = audit()
    assert result.code == 2
    assert [one for one in result.out.splitlines() if one.startswith(line)], result.out
    count = result.out.count("\n")
    assert result.err == (
        f"opicflow: audit: {count} fault{'s' * (count > 1)}: do not trust importance until this is repaired\n"
    )
    found = json.loads(audit("--json").out)
    assert found["verdict"] == "faults"
    assert [one["says"] for one in found["faults"]] == result.out.splitlines()


def test_what_each_shard_has_is_shown_on_request_and_judged(topic: list[list[Arrived]]) -> None:
    large = replace(report(0), pages=2, bytes=9_000_000)
    topic.append([arrived(large), arrived(report(1), 1)])
    assert audit().out == BALANCED
    assert audit("--shard-table").out == BALANCED + (
        "  shard        pages       visits       MB\n"
        "      0            2          617      9.0\n"
        "      1            2          617      0.0\n"
        "shard 0 has the most pages, 1.00 times the mean; shard 0 the most visits, 1.00 times\n"
    )
    assert json.loads(audit("--json").out)["loads"][0] == {"shard": 0, "pages": 2, "visits": 617, "bytes": 9_000_000}


def test_an_audit_advises_other_boundaries(topic: list[list[Arrived]]) -> None:
    pages = (190_000, 10_000)
    reports = [
        replace(one, pages=number, minted=number * UNITS_PER_PAGE, cash=number * UNITS_PER_PAGE - 7)
        for one, number in zip(REPORTS, pages, strict=True)
    ]
    topic.append([arrived(one, at) for at, one in enumerate(reports)])
    assert "note: dividing is worth it: shard 0 has 1.9 times the mean of pages" in audit().out


def test_a_missing_report_delays_the_verdict_with_its_own_exit_code(topic: list[list[Arrived]]) -> None:
    put(topic, report(0, 3, received_from=()), report(1, 3, received_from=()))
    result = audit()
    assert (result.code, result.err) == (3, "")
    assert result.out == (
        "cannot be judged yet: 1 of 3 shards have not reported (2): wait for a tick, or check with opicflow "
        "stream status whether the stream runs; with --since give an earlier time; 2 pairs without a common cut "
        "(0 -> 1, 1 -> 0): "
        "wait until the receivers have read all transfers\n"
    )
    found = json.loads(audit("--json").out)
    assert (found["verdict"], found["shards_spoken"], len(found["not_yet"])) == ("not yet", 2, 2)
    put(topic, *REPORTS, report(1, cut=4), report(0, second=NOON + 1))
    topic.pop(0)
    result = audit()
    assert result.code == 3
    assert result.out == (
        "cannot be judged yet: shard 1 received cut 4 of shard 0, which that shard has not reported: "
        "wait for its next tick\n"
    )


def test_of_many_missing_shards_only_some_are_listed(topic: list[list[Arrived]]) -> None:
    put(topic, report(9, 1000, sent_to=(), received_from=()))
    assert "999 of 1,000 shards have not reported (0, 1, 2, 3, 4, 5, 6, 7, …)" in audit().out


def test_an_unreadable_record_is_reported_with_its_offset_and_the_rest_is_audited(topic: list[list[Arrived]]) -> None:
    put(topic, BROKEN, REPORTS[0], Arrived(b"0", None, None, 0, 5), arrived(report(7), 6), REPORTS[1])
    result = audit()
    assert (result.code, result.out) == (0, BALANCED)
    assert result.err == (
        "opicflow: partition 2, offset 17: this Audit breaks off\\x1b[2J: left out\n"
        "opicflow: partition 0, offset 5: it has no value: audit records are never withdrawn: left out\n"
        "opicflow: partition 0, offset 6: it is of shard 7, and there are 2: left out\n"
    )
    assert json.loads(audit("--json").out)["records_left_out"] == 3


# -- age


STOPPED = "since 2026-05-01T12:00:00Z: find out with opicflow stream status why; of a stream that was stopped, or of a"


def test_old_reports_are_an_error_whatever_they_contain(topic: list[list[Arrived]], clock: list[float]) -> None:
    put(topic, *REPORTS)
    clock[0] = NOON + 300.0
    assert audit() == CommandResult(0, BALANCED, "")
    clock[0] = NOON + 540.0
    result = audit()
    assert (result.code, result.out) == (2, BALANCED), "it was balanced then"
    assert result.err == (
        f"opicflow: audit: a shard has reported nothing for 9.0 min, {STOPPED} replay, give --max-age any\n"
    )
    found = audit("--json")
    values = json.loads(found.out)
    assert (found.code, found.err, values["verdict"], values["age_seconds"]) == (2, "", "old", 540)
    put(topic, report(0, second=NOON + 535, cut=4))
    assert audit().code == 2, "one of two shards has stopped"
    put(topic, lost())
    assert (audit().code, json.loads(audit("--json").out)["verdict"]) == (2, "faults")
    topic[:] = []
    put(topic, REPORTS[0])
    result = audit()
    assert result.code == 2 and result.out.startswith("cannot be judged yet") and "9.0 min" in result.err


def test_the_age_that_is_allowed_is_an_option(topic: list[list[Arrived]]) -> None:
    put(topic, *REPORTS)
    assert audit("--max-age", "3min").code == 2
    for allowed in ("5min", "1h", "any"):
        assert audit("--max-age", allowed) == CommandResult(0, BALANCED, "")
    refused = audit("--max-age", "old")
    assert refused.code == 2 and "--max-age: 'old' is not a duration: write it like 30min, 6h" in refused.err


# -- --follow


def test_follow_reports_once_that_no_more_arrives_and_only_behind_the_last_record(
    topic: list[list[Arrived]], clock: list[float]
) -> None:
    clock[0] = NOON + 400.0
    put(topic, *REPORTS)  # they are old when they are read, and newer ones follow
    put(topic, *(report(shard, second=NOON + 300, cut=4) for shard in (0, 1)))
    put(topic)
    topic.append(Later(clock, NOON + 700.0))
    put(topic, report(0, second=NOON + 690, cut=5))
    put(topic)
    put(topic, report(1, second=NOON + 690, cut=5))
    put(topic)
    result = audit("--follow", "--max-age", "5min")
    assert result.err == (
        "opicflow: audit: a shard has reported nothing for 6.7 min, since 2026-05-01T12:05:00Z: find out with opicflow "
        "stream status why; of a stream that was stopped, or of a replay, give --max-age any\n"
    )
    assert [line[:32] for line in result.out.splitlines()[:3]] == [
        "balanced at 2026-05-01T12:00:00Z",
        "balanced at 2026-05-01T12:05:00Z",
        "balanced at 2026-05-01T12:11:30Z",
    ]


def test_follow_prints_each_change_once_and_faults_at_once(topic: list[list[Arrived]]) -> None:
    put(topic)
    put(topic, REPORTS[0])
    put(topic)
    put(topic)
    put(topic, REPORTS[1])
    put(topic, *(report(shard, second=NOON + 1, cut=4) for shard in (0, 1)))
    put(topic)
    put(topic, report(0, second=NOON + 2, cut=5), lost(3, 5, NOON + 2))
    put(topic, report(0, second=NOON + 3, cut=6), lost(3, 6, NOON + 3))
    put(topic, report(0, second=NOON + 3, cut=6, virtual=3))
    begin = ["cannot be judged yet: no shard", "cannot be judged yet: 1 of 2 shards have not reported (1)"]
    lines = audit("--follow").out.splitlines()
    starts = [*begin, BALANCED[:20], "shard 0 -> shard 1, cut 5: 3 units less", "shard 0: 1 unit less were minted"]
    assert len(lines) >= len(starts)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=False)] == starts
    result = [json.loads(line) for line in audit("--follow", "--json").out.splitlines()[:5]]
    assert [one["verdict"] for one in result] == ["not yet", "not yet", "balanced", "faults", "faults"]


# -- refusals


@pytest.mark.parametrize(
    ("records", "arguments", "message"),
    [
        ([], [], "audit is empty: start a stream and wait for a tick, or send a replay's results with --to"),
        ([], ["--prefix", "p-"], "p-audit is empty"),
        ([], ["--since", "2026-05-01"], "audit holds no record from 2026-05-01 on: give an earlier --since, or none"),
        ([], ["--since", "yesterday"], "--since yesterday: not a time"),
        ([BROKEN], [], "audit: none of its records can be read: check which other program writes to this topic"),
    ],
)
def test_without_records_the_error_names_the_action(
    topic: list[list[Arrived]], records: list[Any], arguments: list[str], message: str
) -> None:
    put(topic, *records)
    result = audit(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err.splitlines()[-1]
    assert result.err.count("\n") == 1 + len(records)


def test_missing_and_unreachable_brokers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BOOTSTRAP_TIMEOUT_SECONDS", 0.5)
    assert "no brokers: name them with --brokers HOST:PORT" in command("audit").err
    result = audit()
    assert (result.code, result.out) == (2, "")
    assert "127.0.0.1:1: connecting: no broker answers" in result.err


def test_help_shows_examples_and_the_exit_codes() -> None:
    result = finished("audit", "--help")
    assert "  opicflow audit --brokers" in result.out.partition("examples:")[2]
    assert (
        "exit codes: 0 balanced, 2 something is wrong or the reports are old, 3 it cannot be judged yet" in result.out
    )


# -- on a broker


def sent(kafka: LocalKafka, prefix: str, *values: Audit | bytes) -> tuple[str, ...]:
    """Write records to the topic. Returns the options that name it."""
    with Publisher(create_topics(kafka.brokers, prefix)) as publisher:
        for value in values:
            framed = value if isinstance(value, bytes) else encode_single_object("Audit", to_avro(value))
            publisher.send(f"{prefix}audit", b"0", framed, 0)
    return ("--brokers", kafka.brokers, "--prefix", prefix)


def test_a_topic_of_a_broker_is_audited(kafka: LocalKafka, topic_prefix: str) -> None:
    where = sent(kafka, topic_prefix, *REPORTS, report(0, second=NOON + 1, cut=4), report(1, second=NOON + 1, cut=4))
    assert output_of("audit", *where) == BALANCED.replace("12:00:00", "12:00:01")
    assert json.loads(output_of("audit", "--json", "--since", "2020-01-01", *where))["verdict"] == "balanced"
    sent(kafka, topic_prefix, report(0, second=NOON + 2, cut=5), lost(1, 5, NOON + 2))
    result = command("audit", *where)
    assert result.code == 2
    assert result.out.startswith("shard 0 -> shard 1, cut 5: 1 unit less were received than were sent (tick ")
    assert result.out.count("\n") == result.err.count("\n") == 1


def test_broken_records_on_a_broker_are_reported_and_the_rest_is_audited(kafka: LocalKafka, topic_prefix: str) -> None:
    whole = encode_single_object("Audit", to_avro(REPORTS[0]))
    result = command("audit", *sent(kafka, topic_prefix, *REPORTS, b"junk", whole[:-9], b"", whole[:2] + b"\xff" * 40))
    assert (result.code, result.out) == (0, BALANCED)
    assert [line[: line.index(":", 12)] for line in result.err.splitlines()] == [
        f"opicflow: partition 0, offset {offset}" for offset in (2, 3, 4, 5)
    ]


def test_an_empty_or_missing_topic_is_refused(kafka: LocalKafka, topic_prefix: str) -> None:
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
    assert f"there is no topic {topic_prefix}audit" in refusal("audit", *where)
    assert command("audit", *sent(kafka, topic_prefix)) == CommandResult(
        2,
        "",
        f"opicflow: {topic_prefix}audit is empty: start a stream and wait for a tick, or send a replay's results with "
        "--to\n",
    )


def test_the_reports_of_a_replay_are_balanced(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    urls = [f"https://{name}.example/" for name in "abc"]
    log.write_text(
        "".join(
            json.dumps({"url": url, "fetched_at": f"2026-05-01T0{hour}:30:00Z", "status": 200, "links": urls}) + "\n"
            for hour, url in enumerate(urls)
        )
    )
    where = sent(kafka, topic_prefix)
    to = f"kafka://{kafka.brokers}"
    assert command("replay", log, "--quiet", "--to", to, "--prefix", topic_prefix).code == 0
    assert command("audit", *where).code == 2, "a replay does not go on"
    result = output_of("audit", "--max-age", "any", *where)
    assert result.startswith("balanced at 2026-05-01T0")
    assert result.endswith(
        "Z: 1 shard, 3 pages, 3 visits, 50,331,648 units minted, 0 in transit; "
        "importance is within 0.0018 % of the exact ranks of the graph seen (certified)\n"
    )


def test_follow_prints_a_fault_on_arrival_and_stops_without_a_traceback(kafka: LocalKafka, topic_prefix: str) -> None:
    where = sent(kafka, topic_prefix, *REPORTS)
    process = subprocess.Popen(
        [*COMMAND, "audit", "--follow", "--max-age", "any", *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stderr
    with process:
        first = process.stdout.readline()
        sent(kafka, topic_prefix, report(0, cut=4, second=NOON + 1), lost(1, 4, NOON + 1))
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        result = process.stderr.read()
    assert first == BALANCED, result
    assert second.startswith("shard 0 -> shard 1, cut 4: 1 unit less")
    assert process.returncode == 130
    assert result.startswith("opicflow: interrupted") and result.count("\n") == 1
