"""Events that are ahead of the clock are rejected, and read again when the clock has come there: each one once."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from opicflow.connectors.files import log_reader
from opicflow.pipelines.replay.inputs import AllRejected
from opicflow.pipelines.replay.runner import ReplayResult
from opicflow.pipelines.replay.state import StateFolder
from opicflow.schemas.crawl_events import CrawlEvent, Link
from support.commands import command, finished
from support.logs import FIRST_MS, adds_up, avro, json_line, jsonl, records_of, run, state_files, url
from support.same_bytes import Killed, killed_at

DAY_MS = 86_400_000
YEAR_2099 = "2099-01-01T00:00:00Z"
YEAR_2099_MS = 4_070_908_800_000


def event(number: int, time_ms: int) -> CrawlEvent:
    return CrawlEvent(url(number % 40), fetched_at_ms=time_ms, status=200, links=(Link(url(number + 1)),))


def crawl(days: int, first_ms: int = FIRST_MS, of_a_day: int = 60) -> list[CrawlEvent]:
    """Visits of some days, one after the other."""
    return [event(number, first_ms + number * DAY_MS // of_a_day) for number in range(days * of_a_day)]


def visits_of(out: Path) -> dict[str, int]:
    return {one["url"]: one["visits"] for one in records_of(out / "importance.jsonl") if one["visits"]}


def visits_in(events: Sequence[CrawlEvent]) -> dict[str, int]:
    return dict(Counter(one.url for one in events))


def write(path: Path, events: Sequence[CrawlEvent]) -> Path:
    path.write_bytes(jsonl(events))
    return path


def test_a_log_that_is_all_ahead_is_read_when_the_clock_has_come_there(tmp_path: Path) -> None:
    log, state = write(tmp_path / "log.jsonl", crawl(3)), tmp_path / "state"
    for _ in range(2):
        with pytest.raises(AllRejected, match=r"every record was rejected \(bad-time 180\): .*; 180 events are ahead"):
            run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS - 1)
    later = run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS + 3 * DAY_MS)
    assert (later.summary["visits"], later.summary["events_read"], later.summary["events_ahead"]) == (180, 180, 0)
    assert not [note for note in later.notes if "ahead" in note or "nothing new" in note]
    run([log], tmp_path / "once")
    for result in ("importance.jsonl", "refresh-schedule.jsonl", "crawl-orders.jsonl"):
        assert (tmp_path / "out" / result).read_bytes() == (tmp_path / "once" / result).read_bytes()
    before = state_files(state)
    again = run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS + 9 * DAY_MS)
    assert again.notes[0].startswith("Nothing new since these logs were replayed")
    assert again.summary["visits"] == 180 and state_files(state) == before


FORMATS: dict[str, Callable[[Sequence[CrawlEvent]], bytes]] = {
    "jsonl": jsonl,
    "jsonl.gz": lambda events: b"".join(gzip.compress(jsonl(events[at : at + 70])) for at in range(0, len(events), 70)),
    "jsonl.zst": lambda events: zstandard.compress(jsonl(events)),
    "avro": lambda events: avro(events, "null"),
    "json": lambda events: b"[" + b",".join(json_line(one) for one in events) + b"]",
    "csv": lambda events: b"url,fetched_at,status\n" + b"".join(csv_row(one) for one in events),
}


def csv_row(one: CrawlEvent) -> bytes:
    return f"{one.url},{one.fetched_at_ms},200\n".encode()


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_of_a_mixed_log_is_lost_and_nothing_counts_twice(
    kind: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some crawlers have clocks that are days ahead; segments are short; a replay is killed now and then."""
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 3_000)
    monkeypatch.setattr(log_reader, "_BATCH_ITEMS", 20)
    chance = random.Random(seed)
    of_a_block = [0, 0, *(chance.choice((0, 0, 1, 2, 5)) for _ in range(22))]
    days = [chance.choice((0, 0, of_a_block[number // 25])) for number in range(600)]
    events = [event(number, FIRST_MS + number * 1000 + day * DAY_MS) for number, day in enumerate(days)]
    log, state = tmp_path / f"log.{kind}", tmp_path / "state"
    log.write_bytes(FORMATS[kind](events))
    latest, seen, number = FIRST_MS, list[dict[str, Any]](), 0
    while latest < FIRST_MS + 6 * DAY_MS:
        number += 1
        latest += chance.choice((0, DAY_MS // 2, DAY_MS, 2 * DAY_MS)) + chance.randrange(600_000)
        if chance.random() < 0.4:
            killed_after(chance.randrange(3), [log], state, latest)
        result = run([log], tmp_path / "out", state=state, latest_ms=latest, segment_bytes=9_000)
        assert adds_up(result.summary), result.summary
        assert len(records_of(tmp_path / "out/rejects.jsonl")) == result.summary["rejects"]
        accepted = [one for one in events if (one.fetched_at_ms or 0) <= latest]
        assert visits_of(tmp_path / "out") == visits_in(accepted), f"replay {number}"
        seen.append(result.summary)
    assert sum(one["duplicates"] for one in seen) == 0
    assert visits_of(tmp_path / "out") == visits_in(events)


def killed_after(checkpoints: int, logs: Sequence[Path], state: Path, latest_ms: int) -> None:
    """Replay until so many checkpoints are written, or to the end."""
    with killed_at(StateFolder, "write", checkpoints + 1), suppress(Killed):
        run(logs, None, state=state, latest_ms=latest_ms, segment_bytes=9_000)


def test_a_log_that_grows_and_is_renamed_is_read_on_and_again(tmp_path: Path) -> None:
    events = crawl(4)
    ahead = [event(7, FIRST_MS + 3 * DAY_MS + number) for number in range(5)]
    log, state = write(tmp_path / "log.jsonl", [*events[:60], *ahead]), tmp_path / "state"
    run([log], None, state=state, latest_ms=FIRST_MS + DAY_MS)
    log = log.rename(tmp_path / "log.1")
    log.write_bytes(log.read_bytes() + jsonl(events[60:]))
    last = run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS + 5 * DAY_MS)
    assert last.summary["events_read"] == 185 and last.summary["files"] == 1
    assert visits_of(tmp_path / "out") == visits_in([*events, *ahead])


@pytest.mark.parametrize("days", [(2, 9), (9, 2)])
def test_the_earliest_event_decides_when_a_log_is_read_again(
    days: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 1_000)
    first, last = (event(number, FIRST_MS + day * DAY_MS) for number, day in enumerate(days))
    log, state = write(tmp_path / "log.jsonl", [first, *crawl(1), last]), tmp_path / "state"
    read = [run([log], None, state=state, latest_ms=FIRST_MS + day * DAY_MS).summary for day in (1, 3, 10)]
    assert [(one["visits"], one["events_ahead"]) for one in read] == [(60, 2), (1, 1), (1, 0)]


def test_an_event_of_the_far_future_is_not_read_every_day(tmp_path: Path) -> None:
    log, state = write(tmp_path / "log.jsonl", [event(0, YEAR_2099_MS), *crawl(2)]), tmp_path / "state"
    for day in range(3):
        result = run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS + (2 + day) * DAY_MS)
        assert result.summary["events_read"] == 121, "the results of the run that has read it"
    log.write_bytes(log.read_bytes() + jsonl(crawl(1, FIRST_MS + 2 * DAY_MS)))
    result = run([log], tmp_path / "out", state=state, latest_ms=FIRST_MS + 9 * DAY_MS)
    assert (result.summary["events_read"], result.summary["rejects"], result.notes) == (60, 0, result.notes)
    assert not [note for note in result.notes if "ahead" in note]


def test_notes_say_when_to_read_a_log_again(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{name}.jsonl", crawl(2, FIRST_MS + name * DAY_MS)) for name in (0, 7))
    state, limit = tmp_path / "state", FIRST_MS + DAY_MS
    notes = run([first], None, state=state, latest_ms=limit).notes
    assert (
        f"{first}: events from 2023-11-15T22:37:20Z on are ahead of the clock and do not count as read: replay it into "
        "this state from 2023-11-14T22:37:20Z on, or with --latest."
    ) in notes
    assert not [note for note in run([second], None, state=state, latest_ms=limit).notes if str(first) in note]
    notes = run([second], None, state=state, latest_ms=FIRST_MS + 20 * DAY_MS).notes
    assert f"{first}: events that were ahead of the clock can be read now: replay it into this state." in notes
    without = run([first], None, latest_ms=limit).notes
    advice = "correct the clock that dates them, read them again later, or give --latest."
    assert f"59 events are ahead of the clock: {advice}" in without


def test_standard_input_cannot_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(latest_ms: int) -> ReplayResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(jsonl(crawl(2)))))
        return run([Path("-")], None, state=tmp_path / "state", latest_ms=latest_ms)

    assert [note for note in given(FIRST_MS + DAY_MS).notes if note.startswith("59 events are ahead of the clock: ")]


# -- the command


def test_a_replay_of_nothing_but_rejects_ends_with_1_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, ahead = tmp_path / "good.jsonl", tmp_path / "ahead.jsonl"
    good.write_bytes(jsonl(crawl(1)))
    ahead.write_text("".join(json.dumps({"url": url(n), "fetched_at": YEAR_2099}) + "\n" for n in range(9)))
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"url": 3}\n' * 4)
    state, out = ("--state", tmp_path / "state"), ("--out", tmp_path / "out")
    why = "every record was rejected (bad-time 9): opicflow validate shows them; 9 events are ahead of the clock: "
    for given in ((), state):
        done = command("replay", ahead, "--quiet", *given)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert done.err.startswith(f"opicflow: nothing could be read: {why}correct the clock that dates them, ")
    assert command("replay", good, "--quiet", *state, *out).code == 0
    done = command("replay", ahead, bad, "--quiet", *state, *out)  # the events ahead do not wait for the first time
    assert done.code == 1 and done.err == (
        "opicflow: every record was rejected (bad-field 4): opicflow validate shows them\n"
    )
    assert len(records_of(tmp_path / "out/rejects.jsonl")) == 4 and "written: " in done.out
    done = finished("replay", ahead, "--quiet", "--json", *state, "--latest", "2099-06-01")
    assert json.loads(done.out)["visits"] == 9
    assert command("replay", ahead, "--quiet", *state).code == 0, "nothing new is no failure"
    assert command("replay", bad, "--quiet", "--json", *state).code == 0, "nothing new is no failure"
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert command("replay", empty, "--quiet", *state).code == 0, "a day without fetches is no failure"
    found = command("validate", ahead)
    assert found.code == 1 and "is too far ahead: the limit is a day after the clock, or --latest" in found.out
