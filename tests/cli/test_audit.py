"""`opicflow audit`: what it says of the books that lie in the topic, its exit codes, and what is refused."""

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

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import Arrived
from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.records import Audit, PairTotal, to_avro
from support.commands import CommandResult, command, create_topics, output_of
from support.services import LocalKafka

BROKERS = ("--brokers", "127.0.0.1:1")
NOON = 1_777_636_800  # 2026-05-01T12:00:00Z
COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli.main"]


def books(shard: int, shards: int = 2, second: int = NOON, cut: int = 3, **changed: Any) -> Audit:
    """A record of a shard that sent each other one ten units a cut, and received as much from each."""
    amount = 10 * (cut + 1)
    others = [other for other in range(shards) if other != shard]
    pairs = tuple(PairTotal(other, cut, amount, 9) for other in others)
    total = amount * len(others)
    held = (2 * UNITS_PER_PAGE, 2 * UNITS_PER_PAGE - 7, 4, 2, 1, total, total)
    return replace(Audit(shard, shards, second, 2.5, 2, 617, *held, pairs, pairs), **changed)


BOOKS = [books(0), books(1)]
BALANCED = "balanced at 2026-05-01T12:00:00Z: 2 shards, 4 pages, 1,234 visits, 67,108,864 units minted, 0 in transit\n"


def lost(units: int = 1, cut: int = 3, second: int = NOON) -> Audit:
    """Shard 1 received less of shard 0 than that one sent it."""
    right = books(1, second=second, cut=cut)
    (pair,) = right.received_from
    received = right.received - units
    told = (pair._replace(total=pair.total - units),)
    return replace(right, received_from=told, received=received, cash=right.cash - units)


def arrived(record: Any, offset: int = 0) -> Arrived:
    return Arrived(b"0", b"value", record, 0, offset)


BROKEN = Arrived(b"0", b"x", None, 2, 17, "a Audit breaks off\x1b[2J")


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]]) -> list[list[Arrived]]:
    """A topic that is not there, with the batches that are put in here; `asked` says how it was read."""
    found: list[list[Arrived]] = []

    def batches(connection: Connection, stream: str, **how: Any) -> Iterator[list[Arrived]]:
        assert stream == "audit"
        asked.append(how)
        yield from found

    monkeypatch.setattr(import_module("opicflow.connectors.kafka.record_reader"), "batches", batches)
    return found


def put(topic: list[list[Arrived]], *records: Any) -> None:
    topic.append([one if isinstance(one, Arrived) else arrived(one) for one in records])


def said(*arguments: object) -> CommandResult:
    return command("audit", *arguments, *BROKERS)


# -- what it says


def test_books_in_order_are_balanced(topic: list[list[Arrived]]) -> None:
    put(topic, *BOOKS)
    assert said() == CommandResult(0, BALANCED, "")


def test_where_it_begins_is_asked_of_the_topic(topic: list[list[Arrived]], asked: list[dict[str, Any]]) -> None:
    put(topic, *BOOKS)
    said("--since", "2026-05-01T12:00:00Z", "--prefix", "p-")
    said("--follow")
    assert asked == [
        {"prefix": "p-", "follow": False, "since_ms": 1000 * NOON},
        {"prefix": "", "follow": True, "since_ms": None},
    ]


def test_what_is_under_way_behind_ahead_and_left_out_is_told(topic: list[list[Arrived]]) -> None:
    later = books(0, second=NOON + 60, sent=47, cash=2 * UNITS_PER_PAGE - 14, received_from=())
    sealed = (PairTotal(1, 4, 45, 8), PairTotal(1, 5, 46, 7))
    put(topic, *BOOKS, replace(later, sent_to=sealed), books(0, 1, NOON - 60))
    assert said().out == (
        BALANCED.replace(", 0 in transit", ", 7 in transit").rstrip()
        + "; 2 cuts at most not compared yet (0 -> 1); ticks 60 s apart\n"
        "note: there are records of 1 shard too, up to 2026-05-01T11:59:00Z: left out\n"
    )
    told = json.loads(said("--json").out)
    assert (told["verdict"], told["under_way"], told["in_outboxes"], told["lag_cuts"]) == ("balanced", 7, 1, 2)
    topic[0][2:] = [arrived(books(1, second=NOON, cut=4))]
    assert "; 1 pair received more than the sender has reported yet" in said().out


def test_a_shard_without_ticks_has_no_time(topic: list[list[Arrived]]) -> None:
    put(topic, books(0, 1, 0, sent=0, received=0, sent_to=(), received_from=()))
    assert said().out.startswith("balanced at no time: 1 shard, 2 pages, 617 visits, ")


@pytest.mark.parametrize(
    ("records", "line"),
    [
        (
            [books(1, cash=0)],
            "shard 1: 33,554,425 units more were minted than are held, sent and not received (tick "
            "2026-05-01T12:00:00Z): stop the stream, and rebuild the ledgers from the crawl events (opicflow rebuild)",
        ),
        ([BOOKS[0], lost()], "shard 0 -> shard 1, cut 3: 1 unit less were received than were sent"),
        ([BOOKS[0], lost(-2)], "shard 0 -> shard 1, cut 3: 2 units more were received than were sent"),
        (
            [BOOKS[0], books(1, received_from=(PairTotal(0, 3, 40, 1),))],
            "shard 0 -> shard 1, cut 3: other transfers of the same sum came",
        ),
        (
            [*BOOKS, books(0, sent_to=(PairTotal(1, 3, 40, 1),))],
            "shard 0 -> shard 1, cut 3: shard 0 contradicts itself, another digest than it reported before (tick "
            "2026-05-01T12:00:00Z): make sure that only one stream writes here",
        ),
        ([books(1, minted=2 * UNITS_PER_PAGE + 1)], "shard 1: the minted cash is no whole number of pages, by 1 unit "),
        ([books(1, sent=39)], "shard 1: its pairs sealed 1 unit more than it has sent"),
        ([books(1, received=39)], "shard 1: its pairs counted 1 unit more than it has received"),
        (
            [BOOKS[1], books(1, sent_to=(PairTotal(0, 4, 39, 9),))],
            "shard 1 -> shard 0, cut 4: the counts of shard 1 fell by 1 unit ",
        ),
        (
            [
                BOOKS[0],
                books(0, second=NOON + 1, cut=4),
                books(1, received=53, cash=2 * UNITS_PER_PAGE + 6),
            ],
            "shard 1: 3 units more were received than were sent",
        ),
    ],
)
def test_every_fault_names_where_it_is_and_what_to_do(
    topic: list[list[Arrived]], records: list[Audit], line: str
) -> None:
    put(topic, *records)
    told = said()
    assert told.code == 2
    assert [one for one in told.out.splitlines() if one.startswith(line)], told.out
    count = told.out.count("\n")
    assert told.err == (
        f"opicflow: audit: {count} fault{'s' * (count > 1)}: do not trust importance until this is repaired\n"
    )
    found = json.loads(said("--json").out)
    assert found["verdict"] == "faults"
    assert [one["says"] for one in found["faults"]] == told.out.splitlines()


def test_what_cannot_be_judged_yet_is_named_with_another_exit_code(topic: list[list[Arrived]]) -> None:
    put(topic, books(0, 3, received_from=()), books(1, 3, received_from=()))
    told = said()
    assert (told.code, told.err) == (3, "")
    assert told.out == (
        "cannot be judged yet: 1 of 3 shards have not reported (2): wait for a tick, or check with opicflow "
        "stream status whether the stream runs; with --since give an earlier time; 2 pairs without a common cut "
        "(0 -> 1, 1 -> 0): "
        "wait until the receivers have read what was sent\n"
    )
    found = json.loads(said("--json").out)
    assert (found["verdict"], found["shards_spoken"], len(found["not_yet"])) == ("not yet", 2, 2)
    put(topic, *BOOKS, books(1, cut=4), books(0, second=NOON + 1))
    topic.pop(0)
    told = said()
    assert told.code == 3
    assert told.out == (
        "cannot be judged yet: shard 1 received cut 4 of shard 0, which that shard has not reported: "
        "wait for its next tick\n"
    )


def test_many_shards_that_are_silent_are_not_all_named(topic: list[list[Arrived]]) -> None:
    put(topic, books(9, 1000, sent_to=(), received_from=()))
    assert "999 of 1,000 shards have not reported (0, 1, 2, 3, 4, 5, 6, 7, …)" in said().out


def test_what_cannot_be_read_is_told_with_its_place_and_the_rest_is_judged(topic: list[list[Arrived]]) -> None:
    put(topic, BROKEN, BOOKS[0], Arrived(b"0", None, None, 0, 5), arrived(books(7), 6), BOOKS[1])
    told = said()
    assert (told.code, told.out) == (0, BALANCED)
    assert told.err == (
        "opicflow: partition 2, offset 17: a Audit breaks off\\x1b[2J: left out\n"
        "opicflow: partition 0, offset 5: it has no value: audit records are never withdrawn: left out\n"
        "opicflow: partition 0, offset 6: it is of shard 7, and there are 2: left out\n"
    )
    assert json.loads(said("--json").out)["records_left_out"] == 3


# -- as it comes


def test_who_follows_is_told_once_what_changes_and_of_faults_at_once(topic: list[list[Arrived]]) -> None:
    put(topic)
    put(topic, BOOKS[0])
    put(topic)
    put(topic)
    put(topic, BOOKS[1])
    put(topic, *(books(shard, second=NOON + 1, cut=4) for shard in (0, 1)))
    put(topic)
    put(topic, books(0, second=NOON + 2, cut=5), lost(3, 5, NOON + 2))
    put(topic, books(0, second=NOON + 3, cut=6), lost(3, 6, NOON + 3))
    put(topic, books(0, second=NOON + 3, cut=6, virtual=3))
    begin = ["cannot be judged yet: no shard", "cannot be judged yet: 1 of 2 shards have not reported (1)"]
    lines = said("--follow").out.splitlines()
    starts = [*begin, BALANCED[:20], "shard 0 -> shard 1, cut 5: 3 units less", "shard 0: 1 unit less were minted"]
    assert len(lines) >= len(starts)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=False)] == starts
    told = [json.loads(line) for line in said("--follow", "--json").out.splitlines()[:5]]
    assert [one["verdict"] for one in told] == ["not yet", "not yet", "balanced", "faults", "faults"]


# -- what is refused


@pytest.mark.parametrize(
    ("records", "arguments", "says"),
    [
        ([], [], "audit is empty: start a stream and wait for a tick, or send a replay's results with --to"),
        ([], ["--prefix", "p-"], "p-audit is empty"),
        ([], ["--since", "2026-05-01"], "audit holds no record from 2026-05-01 on: give an earlier --since, or none"),
        ([], ["--since", "yesterday"], "--since yesterday: no time"),
        ([BROKEN], [], "audit: none of its records can be read: check which other program writes to this topic"),
    ],
)
def test_where_there_is_nothing_to_judge_it_says_what_to_do(
    topic: list[list[Arrived]], records: list[Any], arguments: list[str], says: str
) -> None:
    put(topic, *records)
    told = said(*arguments)
    assert (told.code, told.out) == (2, "")
    assert says in told.err.splitlines()[-1]
    assert told.err.count("\n") == 1 + len(records)


def test_without_brokers_and_without_any_that_answers_it_says_so() -> None:
    assert "no brokers: name them with --brokers HOST:PORT" in command("audit").err
    told = said()
    assert (told.code, told.out) == (2, "")
    assert "127.0.0.1:1: connecting: no broker answers" in told.err


def test_help_shows_examples_and_the_exit_codes() -> None:
    told = command("audit", "--help")
    assert told.code == 0
    assert "  opicflow audit --brokers" in told.out.partition("examples:")[2]
    assert "exit codes: 0 balanced, 2 something is wrong, 3 it cannot be judged yet" in told.out


# -- on a broker


def sent(kafka: LocalKafka, prefix: str, *values: Audit | bytes) -> tuple[str, ...]:
    """Records in their topic. Returns how to reach it."""
    with Publisher(create_topics(kafka.brokers, prefix)) as publisher:
        for value in values:
            framed = value if isinstance(value, bytes) else encode_single_object("Audit", to_avro(value))
            publisher.send(f"{prefix}audit", b"0", framed, 0)
    return ("--brokers", kafka.brokers, "--prefix", prefix)


def test_a_topic_of_a_broker_is_judged(kafka: LocalKafka, topic_prefix: str) -> None:
    where = sent(kafka, topic_prefix, *BOOKS, books(0, second=NOON + 1, cut=4), books(1, second=NOON + 1, cut=4))
    assert output_of("audit", *where) == BALANCED.replace("12:00:00", "12:00:01")
    assert json.loads(output_of("audit", "--json", "--since", "2020-01-01", *where))["verdict"] == "balanced"
    sent(kafka, topic_prefix, books(0, second=NOON + 2, cut=5), lost(1, 5, NOON + 2))
    told = command("audit", *where)
    assert told.code == 2
    assert told.out.startswith("shard 0 -> shard 1, cut 5: 1 unit less were received than were sent (tick ")
    assert told.out.count("\n") == told.err.count("\n") == 1


def test_broken_records_on_a_broker_are_told_and_the_rest_is_judged(kafka: LocalKafka, topic_prefix: str) -> None:
    whole = encode_single_object("Audit", to_avro(BOOKS[0]))
    told = command("audit", *sent(kafka, topic_prefix, *BOOKS, b"junk", whole[:-9], b"", whole[:2] + b"\xff" * 40))
    assert (told.code, told.out) == (0, BALANCED)
    assert [line[: line.index(":", 12)] for line in told.err.splitlines()] == [
        f"opicflow: partition 0, offset {offset}" for offset in (2, 3, 4, 5)
    ]


def test_a_topic_that_is_empty_or_not_there_is_refused(kafka: LocalKafka, topic_prefix: str) -> None:
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
    told = command("audit", *where)
    assert (told.code, told.out) == (2, "")
    assert f"there is no topic {topic_prefix}audit" in told.err
    assert command("audit", *sent(kafka, topic_prefix)) == CommandResult(
        2,
        "",
        f"opicflow: {topic_prefix}audit is empty: start a stream and wait for a tick, or send a replay's results with "
        "--to\n",
    )


def test_the_books_of_a_replay_are_balanced(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
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
    told = output_of("audit", *where)
    assert told.startswith("balanced at 2026-05-01T0")
    assert told.endswith("Z: 1 shard, 3 pages, 3 visits, 50,331,648 units minted, 0 in transit\n")


def test_who_follows_a_broker_sees_a_fault_when_it_comes_and_no_traceback(kafka: LocalKafka, topic_prefix: str) -> None:
    where = sent(kafka, topic_prefix, *BOOKS)
    process = subprocess.Popen(
        [*COMMAND, "audit", "--follow", *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stderr
    with process:
        first = process.stdout.readline()
        sent(kafka, topic_prefix, books(0, cut=4, second=NOON + 1), lost(1, 4, NOON + 1))
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert first == BALANCED, told
    assert second.startswith("shard 0 -> shard 1, cut 4: 1 unit less")
    assert process.returncode == 130
    assert told.startswith("opicflow: interrupted") and told.count("\n") == 1
