"""`opicflow show --brokers`: a page of a stream, by the log of its shard; and why it is where it is.

PYTHONPATH=tests:. .venv/bin/python tests/stream/test_rebuilt.py     writes docs/guides/operations.md again
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from opicflow.connectors.kafka import connection
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.ledger import Certified, Interpolation, ItemWriter, LedgerConfig, RefreshConfig
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.replay.state import StateFolder
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stream.rebuilt import Logs, RebuildProgress
from opicflow.pipelines.stream.snapshot_store import Snapshots, pack_chunks
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges
from support.commands import CommandResult, command, output_of
from support.guides import LOG
from support.memory_kafka import Partition
from support.paths import TOP
from support.services import LocalKafka
from support.stream_logs import LogCluster, StreamLogs, delete_until, example_logs

URL = "https://docs.tern.example/"
GUIDE = (TOP / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
NOWHERE = ("--brokers", "nowhere:9092")
CERTIFIED = LedgerConfig(history=Certified(), refresh=RefreshConfig(bandwidth_per_day=200.0))


@pytest.fixture(scope="module")
def divided() -> StreamLogs:
    """The example crawl in a stream of four shards at rest."""
    return example_logs(CERTIFIED, 4).rest(40)


def shard_of(logs: StreamLogs, url: str) -> int:
    return int(logs.origin.ranges.of(PageIds().of_all([url]))[0])


def show(cluster: LogCluster, *words: object) -> CommandResult:
    with cluster.connected():
        return command("show", *words, *NOWHERE)


OF_THE_WINDOW = ("trend_per_day", "window_importance")
"""A stream updates windows at its publications, too, which a replay without an output for them does not make."""


def without_trend(shown: str) -> str:
    """Return what `show` writes without its line on the window."""
    return re.sub(r"(?m)^  trend  .*\n", "", shown)


def answer(cluster: LogCluster, *words: object) -> dict[str, Any]:
    result = show(cluster, *words, "--why", "--json", "--quiet")
    assert (result.code, result.err) == (0, ""), result
    return dict(json.loads(result.out))


def refusal(result: CommandResult) -> str:
    assert (result.code, result.out) == (2, "") and result.err.count("\n") == 1, result
    return result.err


def parts_of(why: dict[str, Any]) -> dict[str, float]:
    return {payer["name"]: payer["part"] for payer in why["payers"]}


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stream_of_one_shard_answers_as_the_state_of_a_replay_does_to_the_byte(tmp_path: Path) -> None:
    state = tmp_path / "state"
    output_of("replay", LOG, "--state", state, "--quiet", "--bandwidth", 200, "--set", "cycle=8760")
    stored = StateFolder(state).read()
    assert stored is not None
    config = LedgerConfig.from_json(stored.ledger)
    assert stored.last_rules == Rules()
    cluster = example_logs(config, 1).cluster()
    for url in (URL, "http://old-stork.example/debugging-loggers", "https://tern.example/"):
        expected = output_of("show", url, "--state", state, "--why")
        result = show(cluster, url, "--why", "--quiet")
        answered, _, log = result.out.removesuffix("\n").rpartition("\n\n  by the log of ")
        assert (result.code, result.err, without_trend(answered + "\n")) == (0, "", without_trend(expected))
        assert log.startswith("shard 0 of 1 shard (page-ledger, partition 0), up to offset ")
        found = answer(cluster, url)
        assert found.pop("log")["shards"] == 1
        same = json.loads(output_of("show", url, "--state", state, "--why", "--json"))
        for name in OF_THE_WINDOW:
            assert found.pop(name) == pytest.approx(same.pop(name), rel=0.05, abs=1e-6), name
        assert found == same


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """The reasons of one shard that has all pages."""
    return dict(answer(example_logs(CERTIFIED, 1).rest(40).cluster(), URL)["why"])


@pytest.mark.parametrize("shards", [4, *(pytest.param(shards, marks=pytest.mark.soak) for shards in (2, 7))])
def test_all_shards_together_name_the_payers_that_one_shard_names(
    alone: dict[str, Any], divided: StreamLogs, shards: int
) -> None:
    cluster = (divided if shards == 4 else example_logs(CERTIFIED, shards).rest(40)).cluster()
    every, own = (answer(cluster, URL, *more)["why"] for more in (["--all-shards"], []))
    assert parts_of(every) == pytest.approx(parts_of(alone), abs=1e-3)
    assert every["alike"] == pytest.approx(alone["alike"], abs=1e-3)
    assert every["unnamed"] == pytest.approx(0, abs=1e-3) and alone["unnamed"] == 0
    named = parts_of(own)
    assert named and set(named) < set(parts_of(every)), "some payers are in other shards"
    missing = sum(part for name, part in parts_of(every).items() if name not in named)
    assert missing > 0.01 and own["unnamed"] == pytest.approx(missing, abs=1e-3)
    assert sum(named.values()) + own["alike"] + own["unnamed"] == pytest.approx(1)


@pytest.mark.slow
def test_a_rebuilt_ledger_is_that_of_the_stream(divided: StreamLogs) -> None:
    logs = Logs.of(divided.cluster(), "page-ledger")  # type: ignore[arg-type]
    for shard, keeper in enumerate(divided.keepers):
        seen: list[RebuildProgress] = []
        rebuilt = logs.rebuild(shard, seen.append)
        assert rebuilt.fingerprint() == keeper.fingerprint()
        assert keeper.ledger is not None
        assert seen[-1] == RebuildProgress(shard, divided.logs[shard].end, divided.logs[shard].end, keeper.ledger.pages)


def test_records_written_behind_the_end_are_not_read(divided: StreamLogs) -> None:
    cluster = divided.cluster()
    logs = Logs.of(cluster, "page-ledger")  # type: ignore[arg-type]
    before = logs.rebuild(0).fingerprint()
    for partition in cluster.partitions.values():
        partition.records.append(partition.records[-1]._replace(offset=partition.end))
        partition.end += 1
    rebuilt = logs.rebuild(0)
    assert (rebuilt.head.next, rebuilt.fingerprint()) == (logs.by_shard[0].end, before)


# -- unknown sums are not counted as something else --------------------------------------------------------------------


@pytest.mark.slow
def test_other_shards_and_what_all_receive_are_lines_of_their_own(divided: StreamLogs) -> None:
    text = show(divided.cluster(), URL, "--why", "--quiet").out
    assert "%  pages of other shards, which transfers do not name (--all-shards finds them)\n" in text
    assert "%  what all pages receive alike\n" in text
    assert (
        " pages of its shard, 1,904 in all shards; certified: " in text
        and "of 4 shards (page-ledger, partition " in text
    )
    text = show(divided.cluster(), URL, "--why", "--quiet", "--all-shards").out
    assert "transfers do not name" not in text and text.endswith("; payers by the logs of all shards\n")
    found = answer(divided.cluster(), URL)
    assert "rank" not in found and found["rank_in_shard"] >= 1 and found["log"]["shards"] == 4


@pytest.mark.slow
def test_histories_that_do_not_keep_both_apart_have_one_line_for_them() -> None:
    config = LedgerConfig(history=Interpolation(), remember_links=True)
    cluster = example_logs(config, 4).cluster()
    text = show(cluster, URL, "--why", "--quiet").out
    assert "transfers do not name (--all-shards finds them), and what all pages receive alike\n" in text
    why = answer(cluster, URL)["why"]
    assert why["payers"] and (why["alike"], why["unnamed"]) == (None, None)
    assert answer(cluster, URL, "--all-shards")["why"]["alike"] is not None


@pytest.mark.slow
def test_a_stream_without_remembered_links_names_no_payers() -> None:
    cluster = example_logs(LedgerConfig(), 2).cluster()
    result = show(cluster, URL, "--why", "--quiet")
    assert "not known: the stream does not remember links" in result.out and "alike" not in result.out
    assert "do not remember links: omit it" in refusal(show(cluster, URL, "--why", "--all-shards", "--quiet"))


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_an_unknown_page_is_refused_with_the_log_that_was_read(divided: StreamLogs) -> None:
    unknown = "https://nobody.example/"
    shard = shard_of(divided, unknown)
    error = refusal(show(divided.cluster(), unknown, "--why", "--quiet"))
    assert (
        f"shard {shard} of 4 shards (page-ledger, partition {shard}, up to offset {divided.logs[shard].end})" in error
    )
    assert "never fetched, linked or announced" in error


def written(*entries: ItemWriter) -> LogCluster:
    """The log of one shard with entries that are written by hand."""
    logs = StreamLogs(CERTIFIED, ShardRanges())
    for entry in entries:
        logs.logs[0].append(1000, encode_entry(entry.entry()))
    return logs.cluster()


def test_a_page_whose_url_has_not_arrived_is_not_an_unknown_one() -> None:
    urls = [b"https://a.example/", b"https://b.example/"]
    a, b = PageIds().of_all(urls).tolist()
    cluster = written(ItemWriter().visit(a, [b], time_ms=1000, url=urls[0]))
    assert "the ledger has its page id only" in refusal(show(cluster, "https://b.example/", "--quiet"))


def test_the_url_of_a_page_does_not_control_the_terminal() -> None:
    urls = [b"https://a.example/\x1b[31m\xff", b"https://b.example/"]
    a, b = PageIds().of_all(urls).tolist()
    cluster = written(ItemWriter().visit(a, [b], time_ms=1000, url=urls[0]).visit(b, [], time_ms=2000, url=urls[1]))
    result = show(cluster, "https://b.example/", "--why", "--quiet")
    assert result.code == 0 and "https://a.example/\\x1b[31m\\xff" in result.out and "\x1b" not in result.out


@pytest.mark.parametrize("is_every_log", [True, False])
def test_a_log_without_its_beginning_is_refused(divided: StreamLogs, is_every_log: bool) -> None:
    cluster, shard = divided.cluster(), shard_of(divided, URL)
    for partition in range(4) if is_every_log else [shard]:
        delete_until(cluster, 5, partition)
    error = refusal(show(cluster, URL, "--why", "--quiet"))
    assert f"partition {0 if is_every_log else shard}: offsets 0 to 4 were deleted" in error
    assert "replay crawl-events (opicflow replay --from) instead" in error


@pytest.mark.slow
def test_a_log_without_its_beginning_is_applied_from_its_oldest_snapshot(divided: StreamLogs, tmp_path: Path) -> None:
    cluster = divided.cluster()
    expected = show(cluster, URL, "--why", "--all-shards", "--quiet")
    where = ("--snapshots", tmp_path)
    first, *_ = resolve(cluster, "page-ledger")
    for shard, log in enumerate(divided.logs):
        store = Snapshots(StorageFolder.of(str(tmp_path))).of_logs(first.topic, first.topic_id)
        for records in (7, 15):
            keeper, file = LedgerKeeper(shard), BytesIO()
            offset = log.records[records][0]
            for _ in keeper.take(log.batch(0, offset)):
                pass
            packed = pack_chunks(keeper.chunks(), file)
            store.write(shard, keeper.head, 0, packed, file, "1.0")
        delete_until(cluster, log.records[6][0], shard)
    assert show(cluster, URL, "--why", "--all-shards", "--quiet", *where) == expected
    assert "name the folder of its snapshots with --snapshots" in refusal(show(cluster, URL, "--quiet"))
    for shard, log in enumerate(divided.logs):
        delete_until(cluster, log.records[16][0], shard)
    assert "has no snapshot of its ledger behind them" in refusal(show(cluster, URL, "--quiet", *where))


def test_a_log_that_lost_its_beginning_is_no_matter_to_other_shards(divided: StreamLogs) -> None:
    cluster, shard = divided.cluster(), shard_of(divided, URL)
    delete_until(cluster, 5, (shard + 1) % 4)
    assert show(cluster, URL, "--why", "--quiet").code == 0
    assert "offsets 0 to 4 were deleted" in refusal(show(cluster, URL, "--why", "--all-shards", "--quiet"))


def test_topics_that_are_no_logs_are_refused(divided: StreamLogs) -> None:
    missing, empty, other, grown = (divided.cluster() for _ in range(4))
    missing.topic_id = None
    assert "there is no topic page-ledger" in refusal(show(missing, URL, "--why"))
    for partition in empty.partitions.values():
        partition.records, partition.end = [], 0
    assert "page-ledger: its logs have no settings: start the stream" in refusal(show(empty, URL))
    for partition in other.partitions.values():
        partition.records[0] = partition.records[0]._replace(value=b'{"url": "https://a.example/"}')
    assert "its first record is not a log entry" in refusal(show(other, URL))
    grown.partitions[4] = Partition([])
    assert "it has 5 partitions, its ledgers 4 shards" in refusal(show(grown, URL))


def test_wrong_words_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    for words, wanted in (
        (["no url", *NOWHERE], "no url: "),
        (["mailto:x", *NOWHERE], "mailto:x: "),
        ([URL, "--state", tmp_path, *NOWHERE], "the page is read from a state or from a stream: name one"),
        ([URL, "--state", tmp_path, "--ledger", "x"], "--state, --ledger: "),
        ([URL, "--all-shards", *NOWHERE], "--all-shards: "),
        ([URL, "--why"], "no state and no stream"),
        ([URL, "--why", "--ledger", "x"], "no brokers"),
        ([URL, "--why", "--brokers", "a:b:c"], "give HOST:PORT"),
    ):
        assert wanted in refusal(command("show", *words))


@pytest.mark.slow
def test_a_configured_state_gives_way_to_brokers_that_are_named(
    divided: StreamLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPICFLOW_STATE", str(tmp_path / "none"))
    assert show(divided.cluster(), URL, "--quiet").code == 0
    monkeypatch.setenv("OPICFLOW_BROKERS", "nowhere:9092")
    with divided.cluster().connected():
        assert "no state of a replay" in refusal(command("show", URL))
        monkeypatch.delenv("OPICFLOW_STATE")
        assert command("show", URL, "--quiet").code == 0


def test_progress_goes_to_standard_error(divided: StreamLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.pipelines.cli.progress._SECONDS_BETWEEN_LINES", 0.0)
    result = show(divided.cluster(), URL)
    assert " entries of its log, " in result.err and ", 100%" in result.err and "entries of its" not in result.out


# -- the guide ---------------------------------------------------------------------------------------------------------


def outputs(divided: StreamLogs) -> tuple[str, str]:
    """The first console block of the guide that shows a page, as it is and as the command prints it."""
    start = GUIDE.index("$ opicflow show ")
    shown = GUIDE[start : GUIDE.index("```", start)]
    line = shown.partition("\n")[0]
    url, *where_and_more = line.split()[3:]
    assert where_and_more[:2] == ["--brokers", "localhost:9092"]
    result = show(divided.cluster(), url, *where_and_more[2:], "--quiet")
    assert (result.code, result.err) == (0, "")
    return shown, f"{line}\n{result.out}"


def test_the_output_in_the_guide_is_real(divided: StreamLogs) -> None:
    shown, made = outputs(divided)
    assert shown == made


def test_the_guide_names_every_option_of_a_stream() -> None:
    section = GUIDE[GUIDE.index("## Why is a page where it is") :].split("\n## ")[0]
    options = ("--brokers", "--why", "--ledger", "--all-shards", "--json", "--quiet")
    assert [option for option in options if option not in section] == []


# -- a real broker -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_reads_a_real_topic(
    divided: StreamLogs, kafka: LocalKafka, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided.send(kafka.brokers, topic_prefix)
    where = ("--brokers", kafka.brokers, "--prefix", topic_prefix, "--why", "--json", "--quiet")
    own, every = (json.loads(output_of("show", URL, *where, *more))["why"] for more in ([], ["--all-shards"]))
    expected = answer(divided.cluster(), URL)["why"]
    assert own["path"] == expected["path"]
    assert parts_of(own) == pytest.approx(parts_of(expected), abs=1e-3), "the broker gives ticks another time"
    assert set(parts_of(own)) < set(parts_of(every))
    assert "not in the ledger of shard " in refusal(command("show", "https://nobody.example/", *where))
    error = refusal(command("show", URL, *where[:2], "--prefix", f"{topic_prefix}none-"))
    assert f"there is no topic {topic_prefix}none-page-ledger" in error
    monkeypatch.setattr(connection, "BOOTSTRAP_TIMEOUT_SECONDS", 0.5)
    error = refusal(command("show", URL, "--brokers", "127.0.0.1:1"))
    assert "127.0.0.1:1" in error


def main() -> None:
    shown, made = outputs(example_logs(CERTIFIED, 4).rest(40))
    (TOP / "docs" / "guides" / "operations.md").write_text(GUIDE.replace(shown, made), encoding="utf-8")


if __name__ == "__main__":
    main()
