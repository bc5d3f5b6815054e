"""A state keeps the ledger after kills and from day to day, for one replay at a time, and is always complete."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import apache_beam as beam
import pytest
import zstandard
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from deploy.services.processes import wait_until
from opicflow.connectors.files import log_reader
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.runs import close_run
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import Ledger, LedgerConfig, Variable
from opicflow.pipelines.replay import state as state_module
from opicflow.pipelines.replay.inputs import NothingRead
from opicflow.pipelines.replay.pipeline import Decode, Replay, Route, SaveOutputs, key_by_page
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLogFactory
from opicflow.pipelines.replay.segment_steps import ReplaySettings
from opicflow.pipelines.replay.segments import LOCAL, SegmentRunner
from opicflow.pipelines.replay.state import StateFolder, StateRefused, read_ledger
from opicflow.pipelines.results.part_files import Parts
from opicflow.pipelines.results.record_columns import pages_of
from opicflow.pipelines.stages import keep_ledger
from opicflow.pipelines.stages.decode import Segment
from opicflow.pipelines.stages.keep_ledger import KeepLedger
from opicflow.pipelines.stages.keepers import Keeper, LostLedger
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.outputs import FINAL, FINAL_IMPORTANCE, FINAL_ORDERS
from opicflow.pipelines.stages.rules import LinkWeights, Rules
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.urls import UrlRules
from support.logs import FIRST_MS, WebLog, avro, json_line, jsonl, records_of, run, state_files, url, without_times
from support.same_bytes import Killed, bytes_of, kill_process, killed_at
from support.thorough import crossed

COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]
RESULTS = (
    "importance.jsonl",
    "refresh-schedule.jsonl",
    "crawl-orders.jsonl",
    "rejects.jsonl",
    "publications.jsonl",
    "refresh-publications.jsonl",
)


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """Lines of a crawl, some of which are not events."""
    log = WebLog(power_law_web(500, 3, dangling=0.1), announced=False, seconds_between=97.0).crawl("random", 3000)
    found = jsonl(log.events).splitlines(keepends=True)
    for row in range(50, len(found), 300):
        found.insert(row, b"nonsense\n")
    return found


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def replay(logs: Sequence[Path], state: Path, out: Path | None = None, **options: Any) -> dict[str, Any]:
    return run(logs, out, state=state, **options).summary


def notes(logs: Sequence[Path], state: Path, out: Path | None = None, **options: Any) -> list[str]:
    return run(logs, out, state=state, **options).notes


# -- several days


def test_two_days_give_the_same_bytes_as_one_run_over_both(lines: list[bytes], tmp_path: Path) -> None:
    first = write(tmp_path / "monday.jsonl", b"".join(lines[:1700]))
    second = write(tmp_path / "tuesday.jsonl", b"".join(lines[1700:]))
    replay([first, second], tmp_path / "a", tmp_path / "once", publications=True)
    replay([first], tmp_path / "b", tmp_path / "monday", publications=True)
    replay([second], tmp_path / "b", tmp_path / "tuesday", publications=True)
    assert state_files(tmp_path / "a") == state_files(tmp_path / "b")
    importance = "importance.jsonl"
    assert (tmp_path / "once" / importance).read_bytes() == (tmp_path / "tuesday" / importance).read_bytes()
    for name in ("publications.jsonl", "rejects.jsonl"):
        days = b"".join((tmp_path / day / name).read_bytes() for day in ("monday", "tuesday"))
        assert (tmp_path / "once" / name).read_bytes() == days


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_that_grew_and_was_renamed_is_continued(compress: Any, lines: list[bytes], tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", b"".join(lines))
    replay([whole], tmp_path / "a", tmp_path / "once")
    growing = write(tmp_path / "crawl.log", compress(b"".join(lines[:1100])))
    first = replay([growing], tmp_path / "b")
    growing.write_bytes(growing.read_bytes() + compress(b"".join(lines[1100:])))
    second = replay([growing.rename(tmp_path / "crawl.log.1")], tmp_path / "b", tmp_path / "grown")
    assert (first["events_read"], second["events_read"]) == (1100, len(lines) - 1100)
    assert state_files(tmp_path / "a") == state_files(tmp_path / "b")
    assert (tmp_path / "once/importance.jsonl").read_bytes() == (tmp_path / "grown/importance.jsonl").read_bytes()


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "avro", "avro.gz"])
def test_a_log_that_is_being_written_loses_nothing_where_it_is_cut(kind: str, tmp_path: Path) -> None:
    events = WebLog(power_law_web(50, 3), announced=False).crawl("random", 300).events
    data = avro(events, "null") if kind.startswith("avro") else jsonl(events)
    pack: Any = {"gz": gzip.compress, "zst": zstd_frames}.get(kind.rpartition(".")[2], bytes)
    whole = pack(data)
    replay([write(tmp_path / "whole", whole)], tmp_path / "a", tmp_path / "once")
    log = write(tmp_path / "log", whole[: len(whole) // 2])
    first = run([log], None, state=tmp_path / "b")
    last = "block" if kind.startswith("avro") else "line"
    assert f"{log}: its last {last} is not finished: it waits for the next replay into this state." in first.notes
    log.write_bytes(whole[: len(whole) // 2 + 7])
    second = run([log], None, state=tmp_path / "b")
    log.write_bytes(whole)
    third = run([log], tmp_path / "grown", state=tmp_path / "b")
    assert not [note for note in third.notes if "not finished" in note]
    found = [one.summary for one in (first, second, third)]
    assert [one["rejects"] for one in found] == [0, 0, 0]
    assert 0 < found[0]["visits"] < sum(one["visits"] for one in found) == len(events)
    assert (tmp_path / "once/importance.jsonl").read_bytes() == (tmp_path / "grown/importance.jsonl").read_bytes()


def zstd_frames(data: bytes) -> bytes:
    """Compress as a writer that ends a frame after every 5,000 bytes: a block is read when it is whole."""
    pieces = (data[first : first + 5000] for first in range(0, len(data), 5000))
    return b"".join(map(zstandard.ZstdCompressor().compress, pieces))


def test_a_log_that_was_replayed_before_has_nothing_new(lines: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines))
    replay([path], tmp_path / "state", tmp_path / "a", publications=True)
    before = state_files(tmp_path / "state")
    again = run([path], tmp_path / "b", state=tmp_path / "state", publications=True)
    assert again.notes[0].startswith("Nothing new since these logs were replayed")
    assert_same_results(tmp_path / "a", tmp_path / "b")
    compressed = write(tmp_path / "rotated.gz", gzip.compress(path.read_bytes()))
    renamed = run([compressed], tmp_path / "c", state=tmp_path / "state")
    assert renamed.summary["events_read"] == 0
    assert renamed.notes[0] == f"{compressed}: nothing new since it was replayed into this state."
    assert (tmp_path / "a/importance.jsonl").read_bytes() == (tmp_path / "c/importance.jsonl").read_bytes()
    assert state_files(tmp_path / "state") == before


@pytest.mark.parametrize("first", [False, True])
def test_a_run_without_publications_is_not_continued_by_one_with_them(
    first: bool, lines: list[bytes], tmp_path: Path
) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines))
    replay([path], tmp_path / "state", tmp_path / "a", publications=first)
    again = run([path], tmp_path / "b", state=tmp_path / "state", publications=not first)
    assert again.summary["events_read"] == 0 and not [note for note in again.notes if "the same as then" in note]
    orders = records_of(tmp_path / "b/crawl-orders.jsonl")
    assert {order["url"] for order in orders} and len({order["ordered_at"] for order in orders}) == 1, "the next cycle"
    assert not list((tmp_path / "state/work").glob("importance-*")), "published by the run before"


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_logs_that_begin_with_the_same_seeds_are_different_logs(compress: Any, tmp_path: Path) -> None:
    seeds = b"".join(json_line(CrawlEvent(url(n), announce=True)) for n in range(2000))
    assert len(seeds) > 1 << 16
    days = [
        write(
            tmp_path / f"{day}.jsonl", compress(seeds + json_line(CrawlEvent(url(day), fetched_at_ms=FIRST_MS + day)))
        )
        for day in (1, 2)
    ]
    assert replay([days[0]], tmp_path / "state")["events_read"] == 2001
    second = run([days[1]], state=tmp_path / "state")
    assert (second.summary["events_read"], second.summary["visits"]) == (2001, 1)
    assert f"begins like {days[0]}" in second.notes[0]


def test_the_same_file_twice_in_one_run_is_two_logs(lines: list[bytes], tmp_path: Path) -> None:
    paths = [write(tmp_path / name, b"".join(lines[:200])) for name in ("a.jsonl", "b.jsonl")]
    assert replay(paths, tmp_path / "state")["events_read"] == 400
    assert replay(paths[::-1], tmp_path / "state")["events_read"] == 0


def test_new_rules_apply_from_the_next_event_on(tmp_path: Path) -> None:
    def day(number: int, target: str) -> Path:
        event = CrawlEvent(url(number), links=(Link(target), Link(url(9), rel="nofollow")))
        return write(tmp_path / f"{number}.jsonl", json_line(event))

    www = "https://www.site.example/"
    state = tmp_path / "state"
    rules = Rules(UrlRules(fold_www=True, drop_parameters=("sid",)), LinkWeights(nofollow=1.0))
    replay([day(1, www)], state)
    before = replay([day(2, www)], state)["transfers"]
    assert "other rules" in notes([day(3, www)], state, rules=rules)[0]
    for given in (None, rules):  # None keeps the rules of the state
        assert not any("other rules" in note for note in notes([day(4, www)], state, tmp_path / "out", rules=given))
    stored = json.loads((state / "state.json").read_bytes())["state"]
    assert [r["urls"]["fold_www"] for r in stored["rules"]] == [False, True]
    urls = {record["url"] for record in records_of(tmp_path / "out/importance.jsonl")}
    assert {www, "https://site.example/"} <= urls
    after = json.loads((tmp_path / "out/summary.json").read_bytes())["transfers"]
    assert (before, after) == (2, 6)  # from the third day on both links pay, the nofollow link too


# -- refusals


def refused(logs: Sequence[Path], state: Path, **options: Any) -> str:
    with pytest.raises((StateRefused, ValueError)) as refusal:
        replay(logs, state, **options)
    message = str(refusal.value)
    assert "\n" not in message and len(message) < 500, message
    return message


def test_options_that_contradict_the_state_are_refused(lines: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines[:100]))
    state = tmp_path / "state"
    replay([path], state, counting=LedgerOptions(history="variable", damping=0.8, remember_links=True))
    for counting in (
        LedgerOptions(damping=0.85),
        LedgerOptions(history="interpolation"),
        LedgerOptions(remember_links=False),
        LedgerOptions(damping=0.8, history="all"),
    ):
        assert "counts with other options" in refused([path], state, counting=counting)
    assert "no window" in refused([path], state, counting=LedgerOptions(window_turns=3))
    for counting in (
        LedgerOptions(),
        LedgerOptions(damping=0.8),
        LedgerOptions(history="variable"),
        LedgerOptions(remember_links=True),
    ):
        replay([path], state, counting=counting)
    replay([path], state, settle=True)
    other = tmp_path / "other"
    replay([path], other)
    assert "--remember-links" in refused([path], other, settle=True)


def test_a_state_that_is_in_use_is_refused(lines: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines[:100]))
    with StateFolder.locked(tmp_path / "state", create=True):
        assert "in use by another replay" in refused([path], tmp_path / "state")
    replay([path], tmp_path / "state")


def test_a_state_of_another_version_is_refused(lines: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines[:100]))
    replay([path], tmp_path / "state")
    file = tmp_path / "state/state.json"
    file.write_bytes(file.read_bytes().replace(b'"version":1', b'"version":7'))
    assert "version '7', this code reads version 1" in refused([path], tmp_path / "state")


def test_a_damaged_state_is_refused(lines: list[bytes], tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines[:300]))
    replay([path], tmp_path / "sound")
    files = [file.relative_to(tmp_path / "sound") for file in (tmp_path / "sound").rglob("*") if file.is_file()]
    files = [file for file in files if file.name != "lock" and not str(file).startswith(("work", "answers"))]
    assert len(files) > 3
    chance = random.Random(seed)
    for number in range(60):
        state = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "sound", state)
        file = state / chance.choice(files)
        data = bytearray(file.read_bytes())
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = chance.randbytes(1 + chance.randrange(40))
        file.write_bytes(data)
        if kind == 3:
            file.unlink()
        message = refused([path], state)
        assert str(state) in message and ("start again" in message or "version" in message), message


@pytest.mark.parametrize("left", ["snapshot-000001", "answers-000001", "moments"])
def test_a_folder_that_lost_its_state_is_refused_and_not_taken_for_a_new_one(
    left: str, lines: list[bytes], tmp_path: Path
) -> None:
    path, state = write(tmp_path / "log.jsonl", b"".join(lines[:500])), tmp_path / "state"
    replay([path], state, samples=True)
    for lost in state.iterdir():
        if lost.name not in (left, "lock"):
            shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    before = {file: file.read_bytes() for file in state.rglob("*") if file.is_file()}
    words = f"{state}: state.json is missing beside {left}: restore the folder, or start again in another one"
    assert refused([path], state) == words
    with pytest.raises(StateRefused, match=r"state\.json is missing beside"):
        read_ledger(state)
    assert {file: file.read_bytes() for file in state.rglob("*") if file.is_file()} == before != {}


def test_a_replay_that_was_killed_within_its_first_checkpoint_begins_again(lines: list[bytes], tmp_path: Path) -> None:
    path, state = write(tmp_path / "log.jsonl", b"".join(lines[:500])), tmp_path / "state"
    replay([path], tmp_path / "alone", tmp_path / "expected")
    behind_the_chunks: Callable[..., bool] = lambda call, folder: any(folder.glob("*-*"))  # noqa: E731
    with pytest.raises(Killed), killed_at(state_module, "sync_folder", behind_the_chunks):
        replay([path], state)
    assert any((state / "snapshot-000001").iterdir())
    with pytest.raises(StateRefused, match="no ledger yet"):
        read_ledger(state)
    replay([path], state, tmp_path / "out", counting=LedgerOptions(history="variable"))
    assert Ledger.restore(state_files(state).values()).config.history == Variable()


def test_the_rejects_of_a_replay_whose_parts_are_lost_are_not_half_of_its_results(
    lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = write(tmp_path / "log.jsonl", b"".join(lines)), tmp_path / "state"
    with monkeypatch.context() as patched, pytest.raises(Killed), killed_at(StateFolder, "write", 3):
        patched.setattr(log_reader, "BATCH_BYTES", 30_000)
        replay([path], state, segment_bytes=200_000)
    shutil.rmtree(state / "work")
    result = run([path], tmp_path / "out", state=state)
    assert result.notes[0].startswith("The replay before was interrupted, and its parts in work are lost: the ")
    assert len(records_of(tmp_path / "out/rejects.jsonl")) == result.summary["rejects"]
    assert 0 < result.summary["events_read"] < len(lines)


def test_a_state_needs_the_runner_of_this_process(lines: list[bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"".join(lines[:10]))
    assert "--state needs --runner" in refused([path], tmp_path / "s", runner="BundleBasedDirectRunner")


def test_a_failed_replay_does_not_change_the_state(lines: list[bytes], tmp_path: Path) -> None:
    first = write(tmp_path / "1.jsonl", b"".join(lines[:500]))
    second = write(tmp_path / "2.jsonl", b"".join(lines[500:]))
    state = tmp_path / "state"
    replay([first], state)
    before = state_files(state)
    with pytest.raises(InputRefused):
        replay([second, tmp_path / "none.jsonl"], state)
    with pytest.raises(NothingRead):
        replay([write(tmp_path / "empty.jsonl", b"")], tmp_path / "new")
    with pytest.raises(OSError, match=r"dir|exists|empty"):  # a folder where a result should go
        (tmp_path / "out/importance.jsonl").mkdir(parents=True)
        replay([second], state, tmp_path / "out")
    replay([second], state, tmp_path / "good")
    replay([first, second], tmp_path / "once", tmp_path / "expected")
    assert state_files(state) == state_files(tmp_path / "once") != before
    assert (tmp_path / "good/importance.jsonl").read_bytes() == (tmp_path / "expected/importance.jsonl").read_bytes()


# -- kills


def finish(arguments: list[str]) -> None:
    """Run a command to its end."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def is_killed(arguments: list[str], state: Path, checkpoints: int, seconds: float) -> bool:
    """Kill a command so many seconds after so many more steps of its state. Returns False if it ended before."""
    enough, there = steps(state) + checkpoints, list[float]()

    def is_time(process: subprocess.Popen[str]) -> bool:
        if not there and steps(state) >= enough:
            there.append(monotonic())
        return bool(there) and monotonic() - there[0] >= seconds

    return kill_process([*COMMAND, *arguments], is_time)


def steps(state: Path) -> int:
    """Return the number of checkpoints of a state, 0 before the first one; -1 before a replay uses the folder."""
    try:
        return int(json.loads((state / "state.json").read_bytes())["state"]["checkpoints"])
    except FileNotFoundError:
        return 0 if (state / "lock").exists() else -1


@pytest.mark.slow
def test_a_replay_that_is_killed_ends_with_the_same_bytes(tmp_path: Path, seed: int) -> None:
    kill_and_compare(tmp_path, seed, visits=8_000, kills=2)


@pytest.mark.soak
def test_a_replay_that_is_killed_often_ends_with_the_same_bytes(tmp_path: Path, seed: int) -> None:
    kill_and_compare(tmp_path, seed, visits=80_000, kills=150)


def kill_and_compare(tmp_path: Path, seed: int, visits: int, kills: int) -> None:
    """Compare a replay with others that were killed, `kills` times together."""
    chance = random.Random(seed)
    events = []
    for number in range(visits):
        links = tuple(Link(url(chance.randrange(4000))) for _ in range(12))
        events.append(CrawlEvent(url(chance.randrange(3000)), fetched_at_ms=FIRST_MS + number * 15_000, links=links))
    found = jsonl(events).splitlines(keepends=True)
    found[700::2000] = [b"nonsense\n"] * len(found[700::2000])
    whole = b"".join(found)
    half = whole.index(b"\n", len(whole) // 2) + 1
    logs = [write(tmp_path / "1.jsonl", whole[:half]), write(tmp_path / "2.jsonl.gz", gzip.compress(whole[half:], 1))]

    def arguments(name: str) -> list[str]:
        folders = ["--state", str(tmp_path / name), "--out", str(tmp_path / f"{name}.out")]
        urls = ["--set", "urls-on-disk=true"] if name.startswith("on-disk") else []
        return ["replay", *map(str, logs), *folders, *urls, "--publications", "--set", "segment-mb=1", "--quiet"]

    finish(arguments("alone"))
    assert len(bytes_of(tmp_path / "alone" / "moments")) > 3
    met = number = 0
    while met < kills or number < 2:
        name = f"{('on-disk', 'in-memory')[number % 2]}-{number}"
        number += 1
        while is_killed(arguments(name), tmp_path / name, chance.randint(1, 2), chance.uniform(0, 0.4)):
            met += 1
        assert_alike(tmp_path, "alone", name)
        for folder in (name, f"{name}.out"):
            shutil.rmtree(tmp_path / folder)


def assert_same_results(first: Path, second: Path) -> None:
    for result in RESULTS:
        one, other = (out / result for out in (first, second))
        assert one.read_bytes() == other.read_bytes() and one.read_bytes(), result
    summaries = [json.loads((out / "summary.json").read_bytes()) for out in (first, second)]
    assert without_times(summaries[0]) == without_times(summaries[1])


def assert_alike(tmp_path: Path, alone: str, killed: str) -> None:
    assert_same_results(tmp_path / f"{alone}.out", tmp_path / f"{killed}.out")
    assert state_files(tmp_path / alone) == state_files(tmp_path / killed)
    assert bytes_of(tmp_path / alone / "moments") == bytes_of(tmp_path / killed / "moments")
    left = {path.name for path in (tmp_path / killed).iterdir()} - {"moments"}
    assert len(left) == 4 and left > {"lock", "state.json", "work"}


@pytest.fixture(scope="module", params=["log.jsonl", "-"])
def go(
    request: pytest.FixtureRequest, lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that replays one log, from a file or a pipe, into folders of a name; one replay was "alone"."""
    folder = tmp_path_factory.mktemp("checkpoints")
    log = write(folder / "log.jsonl", b"".join(lines))
    named = Path("-") if request.param == "-" else log

    def go(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log_reader, "BATCH_BYTES", 30_000)
            feed(log, patched)
            replay([named], folder / name, folder / f"{name}.out", segment_bytes=200_000, publications=True)
        return folder

    go("alone")
    return go


@pytest.mark.parametrize("checkpoints", [pytest.param(0, marks=pytest.mark.soak), 5])
def test_a_replay_that_stopped_after_any_checkpoint_continues(checkpoints: int, go: Callable[[str], Path]) -> None:
    name = f"stopped after {checkpoints}"
    with pytest.raises(Killed), killed_at(StateFolder, "write", checkpoints + 1):
        go(name)
    assert_alike(go(name), "alone", name)


def feed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Unseekable(log.read_bytes())))


class Unseekable(io.BytesIO):
    """A pipe."""

    def seekable(self) -> bool:
        return False


def test_another_log_after_a_stopped_replay_is_counted_alone(lines: list[bytes], tmp_path: Path) -> None:
    first = write(tmp_path / "1.jsonl", b"".join(lines[:1500]))
    second = write(tmp_path / "2.jsonl", b"".join(lines[1500:]))
    at_its_end: Callable[..., bool] = lambda call, folder, state: bool(state.run.finished)  # noqa: E731
    with pytest.raises(Killed), killed_at(StateFolder, "write_state", at_its_end):
        replay([first], tmp_path / "state", segment_bytes=200_000)
    result = run([second], tmp_path / "out", state=tmp_path / "state")
    assert result.notes[0] == (
        "The replay before was interrupted, and this is another command: the 1,500 events that it had read count in "
        "the ledger, not in this summary, and its rejects are not listed."
    )
    summary = result.summary
    assert summary["events_read"] == len(lines) - 1500
    assert len(records_of(tmp_path / "out/rejects.jsonl")) == summary["rejects"]


# -- the ledger in Beam's state


class Shuffle(beam.DoFn):
    """Yields the batches of a key one after the other, in another order."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[int, bytes]]:
        key, batches = element
        shuffled = sorted(batches)
        random.Random(self._seed).shuffle(shuffled)
        for batch in shuffled:
            yield key, batch


class ForgetfulKeepLedger(KeepLedger):
    """Has a new worker for every element."""

    def keep(self, *given: Any) -> Generator[Any, None, Keeper]:
        close_run(self._run)
        return (yield from super().keep(*given))


class ReplayForgetfully(beam.PTransform):
    """`Replay` without rejects, on workers that lose their ledgers, with the batches in another order."""

    def __init__(self, config: ReplayConfig, durable: bool, shuffle: int | None) -> None:
        super().__init__()
        self._config, self._durable, self._shuffle = config, durable, shuffle

    def expand(self, segments: Any) -> Any:
        settings, keyed = ReplaySettings(self._config, Rules(), {}, "a run"), tuple[int, bytes]
        entries = segments | beam.ParDo(Decode(settings)) | beam.ParDo(Route(settings))
        routed = entries | beam.Map(key_by_page).with_output_types(keyed)
        if self._shuffle is not None:
            routed = routed | beam.GroupByKey() | beam.ParDo(Shuffle(self._shuffle)).with_output_types(keyed)
        keep = ForgetfulKeepLedger(ReplayedLogFactory(self._config), "a run", None if self._durable else LogHead())
        return {"kept": routed | "KeepLedger" >> beam.ParDo(keep)}


def kept(work: Path, segments: list[Segment], transform: beam.PTransform) -> bytes:
    work.mkdir()
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        outputs = pipeline | beam.Create(segments, reshuffle=False) | transform
        _ = next(reversed(outputs.values())) | beam.ParDo(SaveOutputs(str(work)))
    return b"".join(Parts(work, FINAL_IMPORTANCE))


@pytest.fixture
def segments(lines: list[bytes], tmp_path: Path) -> list[Segment]:
    good = [line for line in lines if line != b"nonsense\n"]
    files = [write(tmp_path / f"{n}.jsonl", b"".join(good[n * 500 : (n + 1) * 500])) for n in range(6)]
    input_ranges = [FileRange(f"log/{n}", str(file), Format.JSONL) for n, file in enumerate(files)]
    return [Segment(n, (input_range,), 1 << 40, ends_input=n == 5) for n, input_range in enumerate(input_ranges)]


@pytest.mark.parametrize(("shuffle", "journal_bytes"), crossed([None, 1, 2], [1 << 10, 4 << 20]))
def test_a_durable_ledger_survives_workers_that_lose_it(
    shuffle: int | None, journal_bytes: int, segments: list[Segment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_ledger, "_LEAST_JOURNAL_BYTES", journal_bytes)
    config = ReplayConfig(publications=True)
    files = {p.input_ranges[0].source: p.input_ranges[0].file for p in segments}
    settings = ReplaySettings(config, Rules(), files, "other run")
    expected = kept(tmp_path / "a", segments, Replay(settings, LogHead()))
    found = kept(tmp_path / "b", segments, ReplayForgetfully(config, True, shuffle))
    assert found == expected
    assert len(pages_of(found).urls) == 500
    published = [path.name for path in sorted((tmp_path / "a").glob("importance-*"))]
    assert published == [path.name for path in sorted((tmp_path / "b").glob("importance-*"))]


def test_threads_give_what_stages_of_beam_give(segments: list[Segment], tmp_path: Path) -> None:
    config = ReplayConfig(publications=True, sites="domain")
    ranges = [input_range for segment in segments for input_range in segment.input_ranges]
    files = {input_range.source: input_range.file for input_range in ranges}
    settings = ReplaySettings(config, Rules(), files, "run")
    expected = kept(tmp_path / "staged", segments, Replay(settings, LogHead()))
    here = tmp_path / "here"
    here.mkdir()
    done = list(SegmentRunner(ranges, config, Rules(), here, runner=LOCAL, segment_bytes=60_000).run(None))
    assert len(done) > 5 and b"".join(Parts(here, FINAL_IMPORTANCE)) == expected
    for kind in FINAL:
        assert list(Parts(here, kind)) == list(Parts(tmp_path / "staged", kind)), kind
        assert len(Parts(here, kind)) == (kind != FINAL_ORDERS), "publications have those of each cycle"


def test_a_ledger_that_is_no_longer_in_memory_ends_the_replay(segments: list[Segment], tmp_path: Path) -> None:
    settings = ReplaySettings(ReplayConfig(), Rules(), {}, "a run that was")
    transform = Replay(settings, LogHead(chain="of another process"))
    with pytest.raises(Exception, match=r"was kept in memory only and is lost .*: run again"):
        kept(tmp_path / "a", segments[:1], transform)


def test_a_runner_that_loses_a_batch_ends_the_replay_in_one_line(
    segments: list[Segment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SegmentRunner, "_run_pipeline", lambda *_: None)
    ranges = [input_range for segment in segments for input_range in segment.input_ranges]
    runner = SegmentRunner(ranges, ReplayConfig(), Rules(), tmp_path, runner="OtherRunner")
    with pytest.raises(LostLedger, match=r"OtherRunner ended without the whole input .*: run again"):
        list(runner.run(None))


@pytest.mark.parametrize("forgotten", ["add", "clear"])
def test_an_incomplete_journal_is_noticed(
    forgotten: str, segments: list[Segment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_ledger, "_LEAST_JOURNAL_BYTES", 1 << 10)

    def count_only(journal: Any, keeper: Any, batch: bytes = b"") -> None:
        keeper.sizes.journal_bytes = keeper.sizes.journal_bytes + len(batch) if batch else 0

    monkeypatch.setattr(keep_ledger.JournalInState, forgotten, count_only)
    with pytest.raises(Exception, match="do not lead to the head"):
        kept(tmp_path / "a", segments, ReplayForgetfully(ReplayConfig(), True, None))


def test_a_lost_ledger_that_was_only_in_memory_is_an_error_with_advice(segments: list[Segment], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="run again"):
        kept(tmp_path / "a", segments, ReplayForgetfully(ReplayConfig(), False, None))


def test_a_snapshot_contains_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", json_line(CrawlEvent(url(1))))
    replay([path], tmp_path / "state", counting=LedgerOptions(history="variable"))
    ledger = Ledger.restore(state_files(tmp_path / "state").values())
    assert ledger.config == LedgerConfig(history=Variable())


def test_an_interrupted_replay_releases_the_state(lines: list[bytes], tmp_path: Path) -> None:
    path, state = write(tmp_path / "log.jsonl", b"".join(lines * 20)), tmp_path / "state"
    arguments = [*COMMAND, "replay", str(path), "--state", str(state), "--set", "segment-mb=1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert wait_until(lambda: steps(state) > 0, 60)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert replay([path], state)["events_read"] == len(lines) * 20
