"""The importance of every page over the crawl: kept beside a state, bounded, and right after kills and damage."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay import moments
from opicflow.pipelines.replay.moments import Moments, PageMoment, keep_moments, pack_moment
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.replay.state import read_ledger
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.pages import PageIds
from support.hostile_values import altered
from support.logs import WebLog, json_line, run
from support.same_bytes import Kill, Killed, bytes_of
from support.thorough import thorough

URL_BITS = (1 << 48) - 1


def files(state: Path) -> dict[str, bytes]:
    return bytes_of(state / "moments")


def put(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def write_log(path: Path, visits: int, order: str = "random") -> Path:
    path.write_bytes(b"".join(map(json_line, WebLog(power_law_web(60, 3)).crawl(order, visits).events)))
    return path


@pytest.mark.parametrize("pages", [0, 1, 510, 511, 512, 5_000])
def test_a_moment_has_the_importance_of_each_page_and_of_no_other(tmp_path: Path, pages: int) -> None:
    chance = np.random.default_rng(pages)
    ids = chance.integers(0, 1 << 64, pages, np.uint64)
    importance = chance.pareto(1.0, pages) * 1e-9
    importance[::7] = 0.0
    put(tmp_path / "moments", "1-1", pack_moment(ids, importance, 5, 9))
    found = Moments(tmp_path)
    for page, value in zip(ids.tolist(), importance.tolist(), strict=True):
        (moment,) = found.of_page(page)
        assert moment[:2] == (5, 9) and moment.importance == pytest.approx(value, rel=4e-4)
    known = set((ids & np.uint64(URL_BITS)).tolist())
    others = [0, (1 << 64) - 1, *chance.integers(0, 1 << 64, 500, np.uint64).tolist()]
    assert all(found.of_page(page) == [] for page in others if page & URL_BITS not in known or pages == 0)


def test_a_moment_does_not_depend_on_the_order_of_pages() -> None:
    chance = np.random.default_rng(1)
    ids, importance = chance.integers(0, 1 << 64, 2_000, np.uint64), chance.random(2_000)
    order = chance.permutation(2_000)
    assert pack_moment(ids, importance, 5, 9) == pack_moment(ids[order], importance[order], 5, 9)


def test_every_page_of_a_state_has_its_importance_at_the_end_of_each_replay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for number, visits in enumerate((300, 500)):
        run([write_log(tmp_path / f"{number}.jsonl", visits)], state=state, samples=True)
        found, ledger = Moments(state), read_ledger(state)[0]
        pages = ledger.estimate_all()
        assert len(found) > 2 * number + 1
        for page, importance in zip(pages.pages.tolist(), pages.importance.tolist(), strict=True):
            last = found.of_page(page)[-1]
            assert last.visits == ledger.visits and last.time_ms == 1000 * ledger.tick_second
            assert last.importance == pytest.approx(importance, rel=4e-4)


def test_moments_do_not_depend_on_segments_and_the_same_command_changes_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", 2_000)
    run([log], state=tmp_path / "whole", samples=True)
    run([log], state=tmp_path / "segments", samples=True, segment_bytes=20_000)
    whole = files(tmp_path / "whole")
    assert len(whole) > 3 and files(tmp_path / "segments") == whole
    run([log], state=tmp_path / "whole", samples=True)
    assert files(tmp_path / "whole") == whole


def test_a_replay_that_was_stopped_and_goes_on_has_the_same_moments(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", 6_000)
    run([log], state=tmp_path / "whole", samples=True)
    request = ReplayRequest(
        (str(log),),
        state=tmp_path / "stopped",
        samples=True,
        segment_bytes=100_000,
        counting=LedgerOptions(history="interpolation"),
        page_ids=PageIds(),
    )

    with pytest.raises(Killed), replayed(request, Kill(lambda *_: len(files(tmp_path / "stopped")) > 2)):
        pass
    whole, before = files(tmp_path / "whole"), files(tmp_path / "stopped")
    assert 0 < len(before) < len(whole)
    with replayed(request, lambda _: None):
        pass
    assert files(tmp_path / "stopped") == whole


def test_there_are_no_moments_without_a_state_or_samples(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", 300)
    run([log], tmp_path / "out", samples=True)
    run([log], state=tmp_path / "state")
    assert list(tmp_path.rglob("moments*")) == []


def test_older_moments_get_sparse_and_the_last_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "MOST_MOMENTS", 4)
    work, pages = tmp_path / "work", np.arange(1, 4, dtype=np.uint64)
    for visits in range(1, 20):
        put(work, "moments-000000-000000-000000", pack_moment(pages, np.full(3, 0.5), 0, visits))
        keep_moments(tmp_path, sorted(work.glob("*")))
        found = Moments(tmp_path).of_page(2)
        assert len(found) <= 4 and found[-1] == PageMoment(0, visits, 0.5) and list(work.iterdir()) == []
        assert [one.visits for one in found] == sorted({one.visits for one in found})


def test_all_moments_together_have_a_bound_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, pages = tmp_path / "work", np.arange(1, 4, dtype=np.uint64)
    data = pack_moment(pages, np.full(3, 0.5), 0, 1)
    monkeypatch.setattr(moments, "MOST_BYTES", 3 * len(data))
    for visits in range(1, 9):
        put(work, "moments-000000-000000-000000", pack_moment(pages, np.full(3, 0.5), 0, visits))
        keep_moments(tmp_path, sorted(work.glob("*")))
        assert sum(map(len, files(tmp_path).values())) <= 3 * len(data)
    monkeypatch.setattr(moments, "MOST_BYTES", 1)
    put(work, "moments-000000-000000-000000", pack_moment(pages, np.full(3, 0.5), 0, 9))
    keep_moments(tmp_path, sorted(work.glob("*")))
    assert [one.visits for one in Moments(tmp_path).of_page(1)] == [9]


@pytest.mark.thorough
def test_a_moment_with_other_values_and_a_right_checksum_is_left_out_or_read(tmp_path: Path) -> None:
    data, draw = pack_moment(np.arange(1, 1_001, dtype=np.uint64), np.full(1_000, 0.5), 5, 9), random.Random(1)
    line, _, rest = data.partition(b"\n")
    sound = json.loads(line)
    del sound["checksum"]
    firsts, left_out = rest[: 8 * sound["blocks"]], 0
    for _ in range(thorough(300, 10_000)):
        values = altered(sound, draw)
        if isinstance(values, dict):
            values.pop("checksum", None)
            try:
                values["checksum"] = moments._checksum_of(values, firsts)
            except (TypeError, ValueError):  # no JSON
                values["checksum"] = 0
        put(tmp_path / "moments", "1-1", json.dumps(values).encode() + b"\n" + rest)
        found = Moments(tmp_path)
        left_out += not len(found)
        for time_ms, visits, importance in found.of_page(7):
            assert type(time_ms) is type(visits) is int and min(time_ms, visits) >= 0 and importance == 0.5
    assert left_out > 50


def test_damaged_moments_are_left_out(tmp_path: Path) -> None:
    pages = np.arange(1, 1_001, dtype=np.uint64)
    data = pack_moment(pages, np.linspace(0.1, 0.9, 1_000), 5, 9)
    folder = tmp_path / "moments"
    for at in [*range(0, len(data), 97), len(data) - 1]:
        put(folder, "1-1", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        for page in (1, 400, 600, 1_000):
            for moment in Moments(tmp_path).of_page(page):
                assert moment[:2] == (5, 9)
                assert moment.importance == pytest.approx(0.1 + 0.8 * (page - 1) / 999, rel=1e-3), (at, page)
        put(folder, "1-1", data[:at])
        assert len(Moments(tmp_path)) == 0
    put(folder, "1-1", data)
    found = Moments(tmp_path)
    (folder / "1-1").unlink()
    assert found.of_page(1) == []
    put(tmp_path / "work", "moments-000000-000000-000000", data[:500])
    keep_moments(tmp_path, sorted((tmp_path / "work").glob("*")))
    assert list(folder.iterdir()) == []
