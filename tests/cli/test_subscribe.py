"""`opicflow subscribe`: selection, lines and tables, live tables, and refusals."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from opicflow.connectors.kafka import connection, partitions
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.record_reader import Arrived
from opicflow.pipelines.cli import live_table
from opicflow.pipelines.cli.commands import subscribe
from opicflow.pipelines.cli.main import parse
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.framing import confluent_prefix, encode_behind, encode_single_object
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import Audit, CrawlOrder, Importance, PageChange, RefreshSchedule, to_avro
from support.commands import CommandResult, command, create_topics, finished, output_of
from support.services import LocalKafka

BROKERS = ("--brokers", "127.0.0.1:1")
NOON_MS = 1_777_636_800_000  # 2026-05-01T12:00:00Z
COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]


def page(url: str, score: float, visits: int = 3, measured: bool = True) -> Importance:
    of = ("FETCHED", measured, 4, 2.5, NOON_MS, 0, 0)
    return Importance(url, page_id(url), score / 4, score, -0.002, 1, 1, 0.5, 0.25, visits, NOON_MS, *of)


def due(url: str, due_ms: int | None, interval_seconds: float | None = 7200.0) -> RefreshSchedule:
    how = ("BUDGET", 0.5, "DEFAULT", 0.25, None, NOON_MS, NOON_MS, 0)
    return RefreshSchedule(url, page_id(url), due_ms, interval_seconds, *how)


def arrived(record: Any, offset: int = 0) -> Arrived:
    return Arrived(getattr(record, "url", "key").encode(), b"value", record, 0, offset)


def gone(url: str) -> Arrived:
    return Arrived(url.encode(), None, None, 0, 9)


BROKEN = Arrived(b"key", b"x", None, 2, 17, "this Importance breaks off\x1b[2J")


class Cluster(NamedTuple):
    """The batches that a subscription receives, and the arguments of each read."""

    batches: list[Any]
    reads: list[dict[str, Any]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A fake cluster: `batches` holds its records, or functions that return them."""
    found = Cluster([], [])

    def batches(connection: Connection, stream: str, **how: Any) -> Iterator[list[Arrived]]:
        found.reads.append({"stream": stream, **how})
        for batch in found.batches:
            yield batch() if callable(batch) else batch

    monkeypatch.setattr(import_module("opicflow.connectors.kafka.record_reader"), "batches", batches)
    monkeypatch.setattr(partitions, "partitions_of_topic", lambda connection, topic: ("an id", 8))
    return found


def shown(*arguments: object) -> str:
    return output_of("subscribe", *arguments, *BROKERS)


class Terminal(io.StringIO):
    """Standard output that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str, columns: int = 80, lines: int = 24) -> str:
    """Return the output on a terminal of this size."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    options = cli_options("subscribe", *arguments, *BROKERS)
    assert subscribe.run(options) == 0
    return terminal.getvalue()


def cli_options(*arguments: str) -> Any:
    return parse(arguments)


# -- lines and tables


def test_records_are_the_json_lines_of_a_replay_and_tombstones_name_the_page(cluster: Cluster) -> None:
    cluster.batches.append([arrived(page("https://a.example/", 2.0)), gone("https://b.example/")])
    first, second = map(json.loads, shown("importance").splitlines())
    assert first == to_avro(page("https://a.example/", 2.0))
    assert second == {"url": "https://b.example/", "gone": True}


def test_rejects_are_json_lines_with_their_bytes_as_text_or_base64(cluster: Cluster) -> None:
    for value in (b"caf\xe9", b'"quoted"'):
        cluster.batches.append([arrived(Reject(Reason.NOT_JSON, "no", "crawl-events/1", 5, value))])
    first, second = map(json.loads, shown("rejects").splitlines())
    assert first["bytes_base64"] == "Y2Fm6Q=="
    assert second == {
        "reason": "not-json",
        "detail": "no",
        "source": "crawl-events/1",
        "offset": 5,
        "bytes": '"quoted"',
    }


@pytest.mark.parametrize(
    ("stream", "record", "table"),
    [
        (
            "importance",
            page("https://a.example/", 2.0),
            "  importance      score     a day  visits  page\n"
            "    0.500000       2.00  -2.0e-03       3  https://a.example/\n",
        ),
        (
            "importance",
            page("https://a.example/", 2.0, 0, measured=False),
            "  importance      score     a day  visits  page\n"
            "    0.500000       2.00  -2.0e-03       0  https://a.example/  (history not measured yet)\n",
        ),
        (
            "refresh-schedule",
            due("https://a.example/", NOON_MS),
            "  due                    interval  decided by  page\n"
            "  2026-05-01T12:00:00Z      2.0 h  BUDGET      https://a.example/\n",
        ),
        (
            "refresh-schedule",
            due("https://a.example/", None, None),
            "  due                    interval  decided by  page\n"
            "  never                     never  BUDGET      https://a.example/\n",
        ),
        (
            "crawl-orders",
            CrawlOrder("https://a.example/", 1, NOON_MS, "REFRESH", 0.5, None, None, 0.5, 1, None, None, 0, NOON_MS),
            "  why        not before            priority  page\n"
            "  REFRESH    2026-05-01T12:00:00Z       0.5  https://a.example/\n",
        ),
        (
            "changes",
            PageChange("https://a.example/", 1, NOON_MS, "", "0000002a", 2, 0.125, 2.5, "al\x1b", 0, "a.example"),
            "  time                 changes      score  subscribers       page\n"
            "  2026-05-01T12:00:00Z       2       2.50  al\\x1b            https://a.example/\n",
        ),
        (
            "rejects",
            Reject(Reason.NOT_JSON, "unexpected end", "crawl-events/1", 5, b"\x1b[2Jcaf\xe9"),
            "  reason          where\n  not-json        crawl-events/1, 5: unexpected end\n      \\x1b[2Jcaf\\xe9\n",
        ),
        (
            "audit",
            Audit(0, 1, NOON_MS // 1000, 2.5, 1234, 5678, 100, 60, 10, 20, 0, 0, 0),
            "  time                  shard          pages      visits    clock   drift\n"
            "  2026-05-01T12:00:00Z     0/1         1,234       5,678     2.50      10\n",
        ),
    ],
)
def test_a_table_has_a_line_for_each_record(cluster: Cluster, stream: str, record: Any, table: str) -> None:
    cluster.batches.append([arrived(record)])
    assert shown(stream, "--format", "table") == table


def test_control_characters_are_escaped(cluster: Cluster) -> None:
    cluster.batches.append([arrived(page("https://a.example/\x1b]0;gone\x07", 2.0))])
    assert "https://a.example/\\x1b]0;gone\\x07" in shown("importance", "--format", "table")
    cluster.batches[:] = [[gone("https://a.example/\x9b2J")]]
    assert "(no longer known) https://a.example/\\x9b2J" in shown("crawl-orders", "--format", "table")


@pytest.mark.parametrize("how", [[], ["--top", "5"], ["--format", "table"]])
def test_an_unreadable_record_is_reported_with_its_offset_and_the_rest_is_shown(
    cluster: Cluster, how: list[str]
) -> None:
    cluster.batches.append([BROKEN, arrived(page("https://a.example/", 2.0))])
    result = finished("subscribe", "importance", *how, *BROKERS)
    assert result.err == "opicflow: partition 2, offset 17: this Importance breaks off\\x1b[2J\n"
    assert "https://a.example/" in result.out


def test_an_empty_stream_prints_nothing_and_is_not_an_error(cluster: Cluster) -> None:
    cluster.batches.append([])
    assert shown("importance") == ""
    assert shown("rejects", "--format", "table") == ""


# -- selection


def test_the_top_pages_are_those_of_the_newest_records(cluster: Cluster) -> None:
    urls = [f"https://{name}.example/" for name in "abcd"]
    cluster.batches.append([arrived(page(url, score)) for url, score in zip(urls, (9.0, 8.0, 3.0, 2.0), strict=True)])
    cluster.batches.append([arrived(page(urls[0], 1.0)), gone(urls[1])])
    lines = [json.loads(line) for line in shown("importance", "--top", "2").splitlines()]
    assert [(line["url"], line["score"]) for line in lines] == [(urls[2], 3.0), (urls[3], 2.0)]
    table = shown("importance", "--top", "3", "--format", "table").splitlines()
    assert [line.split()[-1] for line in table[1:]] == [urls[2], urls[3], urls[0]]


def test_a_page_that_fell_below_the_least_score_is_not_in_the_top(cluster: Cluster) -> None:
    cluster.batches.append([arrived(page("https://a.example/", 9.0)), arrived(page("https://b.example/", 2.0))])
    cluster.batches.append([arrived(page("https://a.example/", 1.0))])
    (line,) = shown("importance", "--top", "5", "--min-score", "1.5").splitlines()
    assert json.loads(line)["url"] == "https://b.example/"


def test_a_schedule_shows_the_pages_due_first_and_pages_never_due_last(cluster: Cluster) -> None:
    times = {"a": NOON_MS + 5, "b": None, "c": NOON_MS}
    cluster.batches.append([arrived(due(f"https://{name}.example/", time)) for name, time in times.items()])
    lines = [json.loads(line) for line in shown("refresh-schedule", "--top", "3").splitlines()]
    assert [line["url"][8] for line in lines] == ["c", "a", "b"]


def test_a_least_score_omits_lower_pages_and_keeps_tombstones(cluster: Cluster) -> None:
    pages = [arrived(page(f"https://{score}.example/", score)) for score in (1.0, 1.5, 2.0)]
    cluster.batches.append([*pages, gone("https://a.example/")])
    lines = [json.loads(line) for line in shown("importance", "--min-score", "1.5").splitlines()]
    assert [line.get("score", "gone") for line in lines] == [1.5, 2.0, "gone"]


def test_one_page_is_read_from_its_partition_only(cluster: Cluster) -> None:
    cluster.batches.append([arrived(page("https://a.example/", 2.0)), arrived(page("https://b.example/", 9.0))])
    (line,) = shown("importance", "--url", "https://A.example", "--prefix", "p-").splitlines()
    assert json.loads(line)["url"] == "https://a.example/"
    (reads,) = cluster.reads
    assert reads["partition"] == partition_of("https://a.example/", 8)
    assert reads["prefix"] == "p-"


def test_options_set_where_the_stream_is_read_from(cluster: Cluster) -> None:
    shown("audit", "--since", "2026-05-01T12:00:00Z")
    shown("audit", "--new", "--follow")
    assert [(one["since_ms"], one["only_new"], one["follow"]) for one in cluster.reads] == [
        (NOON_MS, False, False),
        (None, True, True),
    ]


# -- --follow


def test_follow_prints_records_on_arrival(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    seen: list[int] = []

    def next_one() -> list[Arrived]:
        seen.append(out.getvalue().count("\n"))
        return [arrived(page(f"https://{len(seen)}.example/", 2.0))]

    cluster.batches.extend([next_one, next_one, [], next_one])
    subscribe.run(cli_options("subscribe", "importance", "--follow", *BROKERS))
    assert seen == [0, 1, 2]


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(subscribe.time, "monotonic", lambda: now[0])
    return now


def test_a_live_table_is_drawn_at_most_once_a_second_and_only_after_a_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = ticking(monkeypatch)

    def after(seconds: float, *records: Arrived) -> Any:
        def come() -> list[Arrived]:
            now[0] += seconds
            return list(records)

        return come

    frames: list[str] = []
    monkeypatch.setattr(live_table.LiveTable, "show", lambda table, rows: frames.append(str(rows)))
    pages = [arrived(page(f"https://{number}.example/", number)) for number in range(1, 5)]
    cluster.batches.extend([after(0, pages[0]), after(0.5, pages[1]), after(0.4, pages[2]), after(0.2), after(5)])
    assert on_terminal(monkeypatch, "importance", "--follow") == ""
    first, second = frames
    assert [page in first for page in ("https://1.", "https://2.", "https://3.")] == [True, False, False]
    assert [page in second for page in ("https://1.", "https://2.", "https://3.")] == [True, True, True]


def test_a_live_table_fits_the_terminal_and_executes_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    urls = [f"https://{n}.example/\x1b]0;gone\x07[red]{'long' * 40}" for n in range(1, 100)]
    cluster.batches.append([arrived(page(url, n)) for n, url in enumerate(urls)])
    text = on_terminal(monkeypatch, "importance", "--follow", columns=100, lines=10)
    assert "\x1b]" not in text and "\x07" not in text and "[red]" in text
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.partition("\r")[0]).splitlines()
    assert "score" in lines[1] and "https://99.example/\\x1b]0" in lines[3]
    assert len(lines) <= 10 and max(map(len, lines)) <= 100
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is there again"


def test_a_followed_table_in_a_pipe_has_plain_lines(cluster: Cluster) -> None:
    cluster.batches.append([arrived(page("https://a.example/", 2.0))])
    assert shown("importance", "--follow", "--format", "table", "--top", "5").splitlines() == [
        "  importance      score     a day  visits  page",
        "    0.500000       2.00  -2.0e-03       3  https://a.example/",
    ]


def test_on_a_terminal_the_first_twenty_pages_are_shown(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.batches.append([arrived(page(f"https://{n}.example/", n)) for n in range(1, 100)])
    text = on_terminal(monkeypatch, "importance")
    assert "\x1b" not in text
    lines = text.splitlines()
    assert len(lines) == 21
    assert lines[1].endswith("https://99.example/")


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["visits"], "unknown value 'visits'"),
        (["rejects", "--top", "3"], "--top goes with importance and site-importance and refresh-schedule"),
        (["audit", "--url", "https://a.example/"], "--url goes with importance and refresh-schedule"),
        (["importance", "--url", "mailto:a"], "mailto:a"),
        (["crawl-orders", "--min-score", "2"], "--min-score goes with importance: crawl-orders has no scores"),
        (["importance", "--min-score", "nan"], "--min-score nan: give a number"),
        (["importance", "--top", "0"], "'0' is not a positive whole number"),
        (["importance", "--top", "3", "--follow", "--format", "jsonl"], "give --format table, or omit one"),
        (["importance", "--since", "yesterday"], "--since yesterday: not a time"),
        (["importance", "--new"], "--new shows records published from now on: give --follow too"),
        (
            ["importance", "--new", "--follow", "--since", "2026-05-01"],
            "--new and --since both set the start: omit one",
        ),
    ],
)
def test_wrong_options_give_one_line_of_error(cluster: Cluster, arguments: list[str], message: str) -> None:
    result = command("subscribe", *arguments, *BROKERS)
    assert_refused(result, message)
    assert not cluster.reads


def assert_refused(result: CommandResult, message: str) -> None:
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_missing_and_unreachable_brokers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BOOTSTRAP_TIMEOUT_SECONDS", 0.5)
    assert_refused(command("subscribe", "importance"), "no brokers: name them with --brokers HOST:PORT")
    assert_refused(command("subscribe", "importance", *BROKERS), "127.0.0.1:1: connecting: no broker answers")


def test_an_error_while_reading_gives_one_line(cluster: Cluster) -> None:
    def fail() -> list[Arrived]:
        raise KafkaRefused("127.0.0.1:1: no answer for 120 s while reading importance: see whether the brokers run")

    cluster.batches.extend([[arrived(page("https://a.example/", 2.0))], fail])
    result = command("subscribe", "importance", *BROKERS)
    assert result.code == 2
    assert result.out.count("\n") == result.err.count("\n") == 1


# -- on a broker


@pytest.fixture(scope="module")
def filled(kafka: LocalKafka) -> tuple[str, ...]:
    """Topics with more records than a pipe holds. Returns the options that name them."""
    connection = create_topics(kafka.brokers, "sub-", result_partitions=3)
    with Publisher(connection) as publisher:
        for number in range(3000):
            url = f"https://a.example/{number}"
            value = encode_single_object("Importance", to_avro(page(url, float(number))))
            publisher.send("sub-importance", url.encode(), value, partition_of(url, 3))
    return ("--brokers", kafka.brokers, "--prefix", "sub-")


def test_a_missing_topic_is_refused(kafka: LocalKafka, topic_prefix: str) -> None:
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
    assert_refused(command("subscribe", "importance", *where), f"there is no topic {topic_prefix}importance")
    assert_refused(
        command("subscribe", "importance", "--url", "https://a.example/", *where), f"{topic_prefix}importance"
    )


def test_a_page_is_read_from_its_partition_on_a_broker(filled: tuple[str, ...]) -> None:
    for number in range(5):
        out = output_of("subscribe", "importance", "--url", f"https://a.example/{number}", *filled)
        assert json.loads(out)["score"] == number


def test_a_closed_pipe_is_not_an_error(filled: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "subscribe", "importance", *filled], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    with process:
        assert process.stdout.readline().startswith(b'{"url":')
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_behind_standard_output_is_one_line(filled: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        words = [*COMMAND, "subscribe", "importance", *filled]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    message = "opicflow: standard output: No space left on device: correct this, and run the command again\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_an_interrupt_of_follow_prints_no_traceback(filled: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "subscribe", "importance", "--follow", *filled], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    with process:
        lines = [process.stdout.readline() for _ in range(3000)]
        process.send_signal(signal.SIGINT)
        err = process.stderr.read().decode()
    assert len(set(lines)) == 3000
    assert process.returncode == 130
    assert err.startswith("opicflow: interrupted") and err.count("\n") == 1


def test_a_forgotten_registry_is_one_line_however_many_records_name_its_schemas(
    kafka: LocalKafka, topic_prefix: str
) -> None:
    connection = create_topics(kafka.brokers, topic_prefix, result_partitions=1)
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
    values = to_avro(page("https://a.example/", 2.0))

    def send(*values: bytes) -> None:
        with Publisher(connection) as publisher:
            for topic in ("importance", "audit"):
                for value in values:
                    publisher.send(f"{topic_prefix}{topic}", b"key", value, 0)

    send(*[encode_behind(confluent_prefix(7), "Importance", values)] * 500)
    named = "its records name schemas of a schema registry, and none is given: name it with --registry URL"
    for words in (("subscribe", "importance"), ("subscribe", "importance", "--top", "3"), ("audit",)):
        topic = words[1] if words[0] == "subscribe" else "audit"
        assert command(*words, *where) == CommandResult(2, "", f"opicflow: {topic_prefix}{topic}: {named}\n")
    send(encode_single_object("Importance", values))
    result = command("subscribe", "importance", "--since", "2100-01-01", *where)
    assert result == CommandResult(0, "", ""), "no record that is left needs it"
    first = "partition 0, offset 0: this Importance was written with schema id 7, which is not known here"
    result = finished("subscribe", "importance", *where)
    assert result.out.count("\n") == 1, "the stream had no registry for a while"
    assert result.err == f"opicflow: {first}: name its schema registry with --registry\n"
