"""Page ids of a replay: their key, which is random, the folder that keeps it, and URLs that collide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from opicflow.connectors.files import log_reader
from opicflow.pipelines.cli.settings_table import SETTINGS
from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.replay.segments import LOCAL
from opicflow.pipelines.replay.state import StateFolder, StateRefused
from opicflow.pipelines.serve.results_source import ResultsSource
from opicflow.schemas.pages import PUBLIC, PageIds
from support.commands import command, finished, output_of, refusal
from support.guides import LOG
from support.logs import WebLog, jsonl, records_of, run, state_files
from support.same_bytes import Kill, Killed
from support.views import served

FIRST, SECOND = "http://collide.com/33114542", "http://collide.com/04146534"
"""Two URLs with one page id by the public key."""


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def visit(url: str, *links: str, second: int = 1000) -> dict[str, Any]:
    return {"url": url, "status": 200, "fetched_at": second, "links": list(links)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    events = [
        visit(FIRST, "http://a.com/", second=1_700_000_000),
        visit(SECOND, "http://b.com/", second=1_700_000_100),
        {"url": SECOND, "announce": True},
        visit("http://a.com/", FIRST, SECOND, second=1_700_000_200),
    ]
    return write(tmp_path / "crawl.jsonl", events)


def test_a_url_that_collides_is_rejected_with_its_reason_and_counted(log: Path, tmp_path: Path) -> None:
    result = run([log], tmp_path / "out")
    rejects = records_of(tmp_path / "out" / "rejects.jsonl")
    assert [(one["reason"], one["bytes"], one["source"]) for one in rejects] == [
        ("collision", SECOND, str(log)),
        ("collision", SECOND, str(log)),
    ]
    assert "another URL has the page id of this one, 46e50c3e48609126: it was known first" in rejects[0]["detail"]
    assert result.summary["rejects_by_reason"] == {"collision": 2}
    assert (result.summary["events_read"], result.summary["visits"], result.summary["announcements"]) == (4, 2, 0)
    ranks = {one["url"]: one for one in records_of(tmp_path / "out" / "importance.jsonl")}
    assert set(ranks) == {FIRST, "http://a.com/", "http://b.com/"}
    assert ranks[FIRST]["visits"] == 1
    assert ranks[FIRST]["importance"] > ranks["http://b.com/"]["importance"]


def test_with_another_key_nothing_collides(log: Path, tmp_path: Path) -> None:
    """So collisions cannot be made without the key."""
    result = run([log], tmp_path / "out", page_ids=PageIds.with_secret(b"sixteen bytes or more"))
    assert result.summary["rejects_by_reason"] == {}
    assert len(records_of(tmp_path / "out" / "importance.jsonl")) == 4


def test_a_collision_gives_the_same_results_in_any_segments(log: Path, tmp_path: Path) -> None:
    run([log], tmp_path / "whole")
    run([log], tmp_path / "cut", segment_bytes=1)
    for name in ("importance.jsonl", "rejects.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


# -- random keys -------------------------------------------------------------------------------------------------------

RESULTS = ("importance.jsonl", "refresh-schedule.jsonl", "crawl-orders.jsonl", "site-importance.jsonl")
_KEY = ".page-id-key"


@pytest.fixture
def as_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the tests names a key."""
    monkeypatch.delenv("OPICFLOW_ID_KEY")


def keys_in(folder: Path) -> list[bytes]:
    """Return the key that a folder keeps, if it keeps one."""
    if (folder / "state.json").exists():
        return [bytes.fromhex(json.loads((folder / "state.json").read_bytes())["state"]["page_ids"]["key"])]
    return [bytes.fromhex((folder / _KEY).read_text())] if (folder / _KEY).exists() else []


def key_of(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_bytes())["page_id_key"])


def exported(results: Path, target: str) -> bytes:
    file = results.with_suffix(f".{target}")
    output_of("export", "importance", results, "--as", target, "--out", file)
    return file.read_bytes()


def by_url(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a result in their order, without what a key decides.

    That is the id, and the jitter of retries, which leaves more or less of the bandwidth to other pages.
    """
    of_key = {"page", "due", "interval_seconds", "staleness_cost"}
    return {one["url"]: {name: value for name, value in one.items() if name not in of_key} for one in records_of(path)}


def test_two_folders_have_other_ids_and_the_same_results_by_url(as_users: None, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("a", "b", "with state")]
    for out in outs:
        state = ["--state", tmp_path / "state"] if out == outs[2] else []
        assert command("replay", LOG, "--out", out, "--quiet", *state).code == 0
    rows = [records_of(out / "importance.jsonl") for out in outs]
    assert all(len({one["page"] for one in found}) == len(found) > 1_000 for found in rows)
    assert not {one["page"] for one in rows[0]} & {one["page"] for one in rows[1]}
    keys = [*keys_in(outs[0]), *keys_in(outs[1]), *keys_in(tmp_path / "state")]
    assert len({len(key) for key in keys}) == 1 and len(set(keys)) == 3 and keys_in(outs[2]) == []
    for out in outs[1:]:
        for name in RESULTS[:2]:
            assert list(by_url(out / name).items()) == list(by_url(outs[0] / name).items()), name


def test_what_is_printed_does_not_depend_on_the_key(as_users: None, tmp_path: Path) -> None:
    def printed() -> str:
        text = output_of("replay", LOG, "--quiet", "--top", 500)
        return "\n".join(line for line in text.splitlines() if not line.endswith("events/s"))

    assert printed() == printed()


def test_a_folder_keeps_its_key_for_its_owner_and_another_replay_into_it_gives_the_same_bytes(
    as_users: None, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def replay() -> dict[str, bytes]:
        done = command("replay", log, "--out", out, "--json")
        (key,) = keys_in(out)
        found = {name: (out / name).read_bytes() for name in (*RESULTS, "rejects.jsonl", "summary.json")}
        for text in (done.out.encode(), done.err.encode(), *found.values()):
            assert key.hex().encode() not in text and key not in text
        assert json.loads(done.out)["page_id_key"] == PageIds(key=key).fingerprint == key_of(out)
        del found["summary.json"]
        return found

    first = replay()
    assert (out / _KEY).stat().st_mode & 0o777 == 0o600
    (out / "importance.jsonl").unlink()
    assert replay() == first and {path.name for path in out.iterdir()} == {*first, "summary.json", _KEY}


@pytest.mark.parametrize("content", ["", "not a key", "00" * 15, "é" * 16])
def test_a_key_that_was_damaged_is_refused_in_one_line(as_users: None, log: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / _KEY).write_text(content)
    error = refusal("replay", log, "--out", tmp_path)
    assert f"{tmp_path / _KEY}: it is no key of page ids: restore it, or remove it" in error


def test_a_state_is_for_its_owner_and_results_name_its_key(as_users: None, log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    for out in (tmp_path / "a", tmp_path / "b"):
        assert command("replay", log, "--state", state, "--out", out, "--quiet").code == 0
        assert key_of(out) == PageIds(key=keys_in(state)[0]).fingerprint and keys_in(out) == []
    assert (state / "state.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a/importance.jsonl").read_bytes() == (tmp_path / "b/importance.jsonl").read_bytes()


def test_another_user_reads_whose_the_state_is(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run([log], state=tmp_path / "state", page_ids=None)
    whole = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "state.json":
            raise PermissionError(13, "Permission denied")  # which root would not see
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    error = refusal("top", "--state", tmp_path / "state")
    assert "only the owner of its state.json can read it, as it holds the key of page ids" in error


def test_a_replay_that_was_killed_goes_on_with_its_key_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 20_000)
    log, state = tmp_path / "log.jsonl", tmp_path / "state"
    log.write_bytes(jsonl(WebLog(power_law_web(200, 1)).crawl("random", 2_000).events))
    request = ReplayRequest((str(log),), tmp_path / "out", state=state, segment_bytes=20_000, runner=LOCAL)
    with pytest.raises(Killed), replayed(request, Kill(2)):
        pass
    with StateFolder.locked(state, create=False) as folder:
        before = folder.read_existing()
    with replayed(request, lambda _: None) as result:
        assert result.summary["page_id_key"] == before.rules_of_page_ids.fingerprint != PUBLIC
    options = {"page_ids": before.rules_of_page_ids, "prefers_certified": True, "segment_bytes": 20_000}
    run([log], tmp_path / "whole", state=tmp_path / "other", **options)
    assert state_files(state) == state_files(tmp_path / "other")
    for name in RESULTS:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("how", ["option", "variable", "file"])
@pytest.mark.parametrize("folder", ["--out", "--state"])
def test_the_public_key_is_there_on_request_only(
    how: str, folder: str, as_users: None, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SETTINGS["id-key"].words == (PUBLIC,)
    words: list[object] = ["--set", f"id-key={PUBLIC}"] if how == "option" else []
    if how == "variable":
        monkeypatch.setenv("OPICFLOW_ID_KEY", PUBLIC)
    if how == "file":
        (tmp_path / "opicflow.toml").write_text(f'id-key = "{PUBLIC}"\n')
        words = ["--config", tmp_path / "opicflow.toml"]
    done = command("replay", log, folder, tmp_path / "public", "--json", *words)
    assert json.loads(done.out)["page_id_key"] == PUBLIC and json.loads(done.out)["rejects_by_reason"]
    assert keys_in(tmp_path / "public") in ([], [PageIds().key])


def test_a_page_cannot_be_stolen_by_default(as_users: None, log: Path, tmp_path: Path) -> None:
    """The URLs of this log have one id by the public key: one would be taken for the other."""
    assert PageIds().of(FIRST) == PageIds().of(SECOND)
    for folder in (["--out", tmp_path / "out"], ["--state", tmp_path / "state"], []):
        assert json.loads(output_of("replay", log, *folder, "--quiet", "--json"))["rejects_by_reason"] == {}
    pages = [FIRST, SECOND, "http://a.com/"]
    with Frontier.open(tmp_path / "frontier", lambda: 1_700_000_000.0, delay_seconds=0) as frontier:
        frontier.announce(pages)
        for _ in range(2):  # of a host one at a time
            for url in frontier.next(10):
                pages.remove(url)
                frontier.visited({"url": url, "status": 200, "links": []})
    assert pages == []
    assert (tmp_path / "frontier" / "state.json").stat().st_mode & 0o777 == 0o600
    assert keys_in(tmp_path / "frontier") != [PageIds().key]


def test_another_runner_gets_no_key_and_one_line_says_so(as_users: None, log: Path, tmp_path: Path) -> None:
    def note(*words: object) -> list[str]:
        done = finished("replay", log, "--out", tmp_path / "out", "--runner", "BundleBasedDirectRunner", *words)
        assert key_of(tmp_path / "out") == PUBLIC and keys_in(tmp_path / "out") == []
        return [line for line in done.out.splitlines() if "public key" in line]

    (line,) = note()
    assert line.startswith("note: Page ids are made with the public key: of another runner the key would be a part")
    assert note("--set", f"id-key={PUBLIC}") == []


def test_what_compares_ranks_or_exports_folders_of_two_keys_goes_by_url(as_users: None, tmp_path: Path) -> None:
    for name in ("a", "b"):
        words = ["--out", tmp_path / name, "--state", tmp_path / f"{name}.state", "--quiet"]
        assert command("replay", LOG, *words).code == 0
    compared = json.loads(output_of("compare", tmp_path / "a", tmp_path / "b", "--json"))
    assert compared["pages_in_both"] > 1_000 and compared["a"]["pages"] == compared["b"]["pages"]
    assert compared["l1"] == 0.0
    ranks = []
    for source in (["--state", tmp_path / "a.state"], ["--state", tmp_path / "b.state"]):
        graph = tmp_path / f"{len(ranks)}.graph"
        output_of("graph", "build", *source, "--out", graph, "--quiet")
        output_of("rank", graph, "--out", tmp_path / "ranks.csv", "--quiet")
        ranks.append((tmp_path / "ranks.csv").read_bytes())
    assert ranks[0] == ranks[1]
    for target in ("opensearch", "redis"):
        assert exported(tmp_path / "a", target) == exported(tmp_path / "b", target)


def test_the_key_of_results_is_neither_served_nor_exported(as_users: None, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("replay", log, "--out", out, "--quiet").code == 0
    (key,) = keys_in(out)
    with served(ResultsSource(out)) as address:
        for path in (f"/{_KEY}", f"/static/../{_KEY}", f"/api/{_KEY}", "/", "/api/summary"):
            answer = requests.get(address + path, timeout=10)
            assert key.hex() not in answer.text and (path in ("/", "/api/summary") or answer.status_code == 404)
    for form in ("csv", "jsonl", "postgres"):
        assert key.hex().encode() not in exported(out, form)


def test_the_same_log_and_key_give_the_same_bytes(log: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"0123456789abcdef\n")
    names = ["one", "two", "public"]
    for name in names:
        key = ["--set", f"id-key={tmp_path / 'key'}"] if name != "public" else []
        assert command("replay", log, "--out", tmp_path / name, "--quiet", *key).code == 0
    files = [(tmp_path / name / "importance.jsonl").read_bytes() for name in names]
    assert files[0] == files[1] != files[2]
    assert key_of(tmp_path / "one") == key_of(tmp_path / "two") != key_of(tmp_path / "public") == PUBLIC


def test_a_state_keeps_its_key(as_users: None, log: Path, tmp_path: Path) -> None:
    key, state = tmp_path / "key", tmp_path / "state"
    key.write_text("0123456789abcdef")
    assert command("replay", log, "--state", state, "--set", f"id-key={key}", "--quiet").code == 0
    assert (state / "state.json").stat().st_mode & 0o077 == 0, "it holds the key"
    later = write(tmp_path / "later.jsonl", [visit("http://c.com/", SECOND, second=1_700_000_300)])
    result = finished("replay", later, "--state", state, "--quiet", "--out", tmp_path / "out")
    assert "0123456789abcdef" not in result.out + result.err
    assert len(records_of(tmp_path / "out" / "importance.jsonl")) == 5
    assert command("show", SECOND, "--state", state).code == 0
    other = tmp_path / "other"
    other.write_text("another key of sixteen")
    error = refusal("replay", later, "--state", state, "--set", f"id-key={other}")
    assert "its pages have ids by another key: omit id-key, or name another folder" in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "it has 0 bytes, and a key needs 16"),
        (b"short\n", "it has 5 bytes, and a key needs 16: make one with openssl rand -hex 16"),
    ],
)
def test_a_key_that_is_none_is_refused_in_one_line(
    log: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    assert message in refusal("replay", log, "--set", f"id-key={tmp_path / 'key'}")


def test_a_secret_key_stays_in_this_process(log: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef")
    error = refusal("replay", log, "--set", f"id-key={tmp_path / 'key'}", "--runner", "BundleBasedDirectRunner")
    assert "id-key needs --runner DirectRunner or local" in error


def test_a_state_with_rules_of_a_later_version_is_refused_in_one_line(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([log], state=state)
    from opicflow.pipelines.replay import state as states

    stored = json.loads((state / "state.json").read_bytes())
    stored["state"]["page_ids"]["version"] = 3
    stored["digest"] = states._digest_of(stored["state"])
    (state / "state.json").write_text(json.dumps(stored))
    with pytest.raises(StateRefused, match=r"page ids have version 3, this opicflow supports 1: update"):
        run([log], state=state)
