"""The command line: output, errors of one line, interrupts, and damaged logs."""

from __future__ import annotations

import bz2
import gc
import gzip
import html
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
import zstandard

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.log_reader import FileRange, known_format
from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay import runner as replay_runner
from opicflow.pipelines.replay.inputs import NothingRead
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.replay.state import StateFolder
from opicflow.pipelines.replay.summary import notes_for
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import RoutedBatch, route_rows
from opicflow.pipelines.stages.outputs import REPORT
from opicflow.pipelines.stages.rejects import reject_line
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.errors import UserError
from support.commands import command, finished, output_of, refusal
from support.logs import WebLog, adds_up, avro, json_line, jsonl, records_of, url, warc
from support.paths import TOP

COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of a small crawl."""
    crawl = WebLog(power_law_web(120, 3, mean_links=4), announced=False).crawl("random", 300)
    return write(tmp_path / "log.jsonl", jsonl(crawl.events))


# -- output


def test_a_replay_prints_counts_that_add_up_and_the_top_pages(log: Path, tmp_path: Path) -> None:
    _, out, err = finished("replay", log, "--out", tmp_path / "out", "--top", "3", "--report", tmp_path / "r.html")
    assert "Traceback" not in err
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", out.splitlines()[0])]
    assert numbers[0] == sum(numbers[1:]) == 300
    ranked = [record["url"] for record in records_of(tmp_path / "out/importance.jsonl")]
    assert [line.split()[3] for line in out.splitlines() if "https://" in line] == ranked[:3]
    for name in ("out/importance.jsonl", "out/rejects.jsonl", "out/summary.json", "r.html"):
        assert f"written: {tmp_path / name}" in out


def test_json_is_the_summary_and_nothing_else(log: Path, tmp_path: Path) -> None:
    out = output_of("replay", log, "--json", "--quiet", "--out", tmp_path / "out")
    assert json.loads(out) == json.loads((tmp_path / "out/summary.json").read_bytes())


def test_all_runners_of_this_process_give_the_same_bytes(log: Path, tmp_path: Path) -> None:
    runners = ("DirectRunner", "local", "BundleBasedDirectRunner")
    for runner in runners:
        assert command("replay", log, log, "--quiet", "--runner", runner, "--out", tmp_path / runner)[0] == 0
    for name in ("importance.jsonl", "refresh-schedule.jsonl", "crawl-orders.jsonl", "site-importance.jsonl"):
        assert len({(tmp_path / runner / name).read_bytes() for runner in runners}) == 1


def test_show_and_top_print_the_values_of_the_results(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert command("replay", log, "--quiet", "--state", state, "--out", tmp_path)[0] == 0
    records = records_of(tmp_path / "importance.jsonl")
    first = records[0]
    code, out, _ = command("top", "--state", state, "-n", "5", "--json")
    assert code == 0 and json.loads(out) == records[:5]
    code, out, _ = command("show", first["url"].upper().replace("/PAGE", "/page"), "--state", state, "--json")
    (again,) = (record for record in records_of(tmp_path / "refresh-schedule.jsonl") if record["url"] == first["url"])
    names = ("due", "interval_seconds", "decided_by", "changes_per_day", "changes_known_from", "changes_error")
    shown = json.loads(out)
    payers = shown.pop("payers")
    assert code == 0 and shown == {**first, "rank": 1, **{name: again[name] for name in names}}
    assert len(payers) == 5 and [payer["part"] for payer in payers] == sorted((p["part"] for p in payers), reverse=True)
    out = command("show", first["url"], "--state", state)[1]
    for text in (first["url"], f"{first['importance']:.9f}", "rank 1 of", first["page"], f"{first['cash']:,} units"):
        assert text in out
    out = command("top", "--state", state, "--unread", "--json")[1]
    assert json.loads(out) == [record for record in records if record["visits"] == 0][:10]
    hosts: Counter[str] = Counter()
    for record in records:
        hosts[record["url"].split("/")[2]] += record["importance"]
    found = json.loads(command("top", "--state", state, "--by", "host", "--json", "-n", "50")[1])
    assert {host["host"]: pytest.approx(host["importance"]) for host in found} == hosts
    assert command("top", "--state", state, "--by", "host")[1].splitlines()[1].split()[-1] == found[0]["host"]


def test_show_notes_that_an_unread_page_has_the_default_history(log: Path, tmp_path: Path) -> None:
    command(
        "replay",
        write(tmp_path / "a.jsonl", json_line(CrawlEvent(url(1), links=(Link(url(2)),)))),
        "--state",
        tmp_path / "s",
        "--history",
        "interpolation",
    )
    assert "(the default: it was not visited twice)" in command("show", url(2), "--state", tmp_path / "s")[1]
    assert "(measured)" in command("show", url(1), "--state", tmp_path / "s")[1]


def test_validate_reports_the_rejects_of_a_replay(tmp_path: Path) -> None:
    good = json_line(CrawlEvent(url(1), status=200))
    bad = [b"nonsense\n", b'{"url": "mailto:\\u001b[31m"}\n', b'{"url": 3}\n', b"\x1b[31m{\n"]
    path = write(tmp_path / "log.jsonl", b"".join([*[good] * 5, *bad]))
    empty = write(tmp_path / "empty.jsonl", b"")
    code, out, _ = command("validate", path, empty, "--json")
    found = json.loads(out)
    command("replay", path, empty, "--quiet", "--out", tmp_path / "out")
    summary = json.loads((tmp_path / "out/summary.json").read_bytes())
    assert code == 0
    assert found["summary"]["rejects_by_reason"] == summary["rejects_by_reason"]
    assert found["summary"]["events_read"] == summary["events_read"] == 10
    assert len(found["rejects"]) == 5
    out = finished("validate", path, empty).out
    assert "\x1b" not in out
    for text in ("not-json", "not-a-page", "bad-field", "empty-file", "Links are not known for 100%", "no digest"):
        assert text in out
    fine = write(tmp_path / "fine.jsonl", json_line(CrawlEvent(url(1), fetched_at_ms=10**12, digest="x", links=())))
    assert "no problems found" in command("validate", fine)[1]


@pytest.mark.parametrize(
    ("name", "whole", "part"),
    [
        ("log.jsonl", b'{"url":"https://a.example/"}\n{"url":"https://a.example/1"}', "line"),
        ("log.json", b'[{"url":"https://a.example/"},{"url":"https://a.example/1"}', "line"),
        ("log.csv", b"url,status\nhttps://a.example/,200\nhttps://a.example/1,200", "line"),
        ("log.jsonl.gz", gzip.compress(b'{"url":"https://a.example/"}\n' * 2000, mtime=0), "line"),
        ("log.avro", avro([CrawlEvent(url(1)), CrawlEvent(url(2))]), "block"),
    ],
)
def test_validate_says_that_the_end_of_a_log_may_still_be_written(
    name: str, whole: bytes, part: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, whole[:-7])
    _, out, _ = command("validate", path)
    words = f"note: {path}: its last {part} is not finished. If a crawler is still writing it, replay with --state"
    assert re.search(r"[1-9] rejects? ", out) and out.count(words) == 1
    path.write_bytes(whole)
    _, out, _ = command("validate", path)
    assert " 0 rejects" in out and "not finished" not in out


def test_validate_says_so_once_of_a_compressed_log_that_ends_within_a_line(tmp_path: Path) -> None:
    lines = b"".join(b'{"url":"https://a.example/%d"}\n' % (number * 2654435761 % 2**32) for number in range(3000))
    whole = gzip.compress(lines, mtime=0)
    path = write(tmp_path / "log.jsonl.gz", whole[: len(whole) // 2])
    _, out, _ = command("validate", path)
    assert re.search(r"[2-9] rejects ", out) and out.count("is not finished") == 1


def test_validate_counts_shares_of_the_visits_that_are_accepted(tmp_path: Path) -> None:
    good = json_line(CrawlEvent(url(1), fetched_at_ms=10**12, links=()))
    far = json_line(CrawlEvent(url(2), fetched_at_ms=4 * 10**12, links=()))
    log = write(tmp_path / "log.jsonl", b"".join([good, *[b'{"url": "mailto:x"}\n'] * 3, far]))
    _, out, _ = command("validate", log, "--json")
    found = json.loads(out)
    assert found["summary"]["visits"] == found["summary"]["visits_without_digest"] == 1
    assert found["notes"] == [
        "100% of the visits have no digest: change rates come from 'not modified' and dates of change alone."
    ]
    marked = json_line(CrawlEvent(url(1), fetched_at_ms=10**12, digest="x", links=()))
    log = write(tmp_path / "marked.jsonl", marked + b'{"url": "mailto:x"}\n' * 3)
    assert json.loads(command("validate", log, "--json")[1])["notes"] == []


def test_notes_of_a_replay_count_shares_of_the_visits_with_duplicates(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", json_line(CrawlEvent(url(1), fetched_at_ms=10**12, status=200)) * 4)
    _, out, _ = command("replay", log, "--quiet", "--json")
    summary: dict[str, Any] = json.loads(out)
    assert (summary["visits"], summary["duplicates"], summary["visits_links_unknown"]) == (1, 3, 4)
    assert [note for note in notes_for(summary, {}) if note.startswith("Links are not known for 100% of")]


def test_a_reject_says_that_its_bytes_are_cut_off(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", b'{"url": "mailto:x", "text": "%s"}\n' % (b"x" * 70_000))
    (reject,) = json.loads(command("validate", log, "--json")[1])["rejects"]
    assert reject["detail"] == ("url: mailto: is neither http nor https (the first 65536 of 70031 bytes are kept)")


def test_validate_ends_with_1_if_all_was_rejected(tmp_path: Path) -> None:
    bad, good = b'{"url": "mailto:x"}\n', b'{"url": "https://a/"}\n'
    for number, (data, code) in enumerate([(bad * 3, 1), (bad * 3 + good, 0), (good, 0), (b"", 1)]):
        log = write(tmp_path / f"{number}.jsonl", data)
        assert command("validate", log)[0] == command("validate", log, "--json")[0] == code, data


def test_validate_lists_names_that_are_not_read_with_their_likely_meaning(tmp_path: Path) -> None:
    record = {"page_url": "https://a/", "code": 200, "outgoing": ["https://b/?x=1&amp;y", None], "title": "\x1b[31m"}
    log = write(tmp_path / "log.jsonl", json.dumps(record).encode() + b"\n")
    code, out, _ = command("validate", log)
    assert code == 1 and "fields that are not read: page_url, code, outgoing, title" in out
    for field, name in {"url": "page_url", "status": "code", "links": "outgoing"}.items():
        assert f"note: {name} is not read: if it is the {field}, give --field {field}={name}." in out
    named = ("--field", "url=page_url", "--field", "status=code", "--field", "links=outgoing")
    out = finished("validate", log, *named).out
    assert "fields that are not read: title\n" in out
    assert "with &amp;: 1 URL." in out and "without a URL: 1 link." in out
    found = json.loads(command("validate", log, *named, "--json")[1])
    assert found["unread_names"] == {"title": 1} and found["summary"]["links_not_pages"] == 1


def test_validate_says_what_the_log_of_a_crawler_lacks() -> None:
    log = TOP / "examples" / "crawlers" / "browsertrix-pages.jsonl"
    code, out, _ = command("validate", log)
    assert (
        code == 0 and "note: Browsertrix's pages.jsonl (9 of the first 9 records): lists of pages have no links" in out
    )
    assert json.loads(command("validate", log, "--json")[1])["crawlers"] == {"browsertrix": 9}
    code, out, _ = command("validate", log, "--input-format", "nutch")
    assert code == 1 and "it is no record of Nutch's crawldb (nutch)" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input-format", "heritrx", "x"], "did you mean heritrix"),
        (["--field", "address=x", "x"], "give FIELD=NAME, such as url=page_url"),
        (["https://example.org/log.jsonl"], "files of web servers are not read: download it first"),
        (["foo://bucket/log.jsonl"], "not an address of files: give a path, s3://, gs:// or hdfs://"),
    ],
)
def test_validate_refuses_in_one_line(arguments: list[str], words: str) -> None:
    assert words in refusal("validate", *arguments)


def test_a_replay_of_a_crawlers_log_gives_the_same_bytes_however_it_is_divided(tmp_path: Path) -> None:
    """The log grows between the replays: in the middle of a line, too."""
    log = (TOP / "examples" / "crawlers" / "nutch-crawldb.csv").read_bytes()
    path = write(tmp_path / "whole.csv", log)
    command("replay", path, "--quiet", "--state", tmp_path / "whole", "--out", tmp_path / "whole-out")
    growing = tmp_path / "growing.csv"
    for cut in (600, 1300, len(log)):
        write(growing, log[:cut])
        command("replay", growing, "--quiet", "--state", tmp_path / "parts", "--out", tmp_path / "parts-out")
    whole, parts = ((tmp_path / f"{name}-out" / "importance.jsonl").read_bytes() for name in ("whole", "parts"))
    assert whole == parts and whole.count(b"\n") > 8


def test_a_graph_has_the_links_from_pages_that_urls_were_found_on(tmp_path: Path) -> None:
    """Links anywhere in the log are read, though lines of one page do not follow one another."""
    logs = {"heritrix-links": "heritrix-crawl.log", "katana-links": "katana.jsonl"}
    for name, log in logs.items():
        path = TOP / "examples" / "crawlers" / log
        code, out, _ = command("graph", "build", path, "--input-format", name, "--out", tmp_path / name, "--json")
        facts = json.loads(out)
        waiting = 1 if name == "katana-links" else 0
        assert (code, facts["rejects"], facts["links"], facts["pages"]) == (0, 0, 8 + waiting, 9 + waiting), facts


@pytest.mark.slow
def test_validate_reads_standard_input(log: Path) -> None:
    with open(log, "rb") as feed:
        done = subprocess.run([*COMMAND, "validate", "-"], stdin=feed, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("300 events read = 300 visits")


HOSTILE = [
    "https://a.example/</script><script>alert(1)</script>",
    'https://a.example/"onload="x',
    "https://a.example/?<!--",
]


def test_urls_cannot_inject_html_or_control_characters(tmp_path: Path) -> None:
    lines = [json_line(CrawlEvent(name, links=tuple(map(Link, HOSTILE)))) for name in HOSTILE]
    lines += [b'{"url": "mailto:<script>alert(2)</script>\\u001b[31m"}\n', b"<script>alert(3)</script>\x1b[31m\n"]
    path = write(tmp_path / "<script>alert(4)<&.jsonl", b"".join(lines))
    out = finished("replay", path, "--report", tmp_path / "r.html", "--out", tmp_path / "out").out
    assert "\x1b" not in out
    page = (tmp_path / "r.html").read_text()
    assert "<script>alert" not in page and '"onload=' not in page and "\x1b" not in page
    assert html.escape("<script>alert(3)</script>") in page
    assert len(records_of(tmp_path / "out/rejects.jsonl")) == 2
    for line in command("validate", path)[1].splitlines():
        assert "\x1b" not in line
    for refused in (tmp_path / "none\x1b[2J.jsonl", write(tmp_path / "c.csv", b"u\x1b[2J,code\nhttps://a/,200\n")):
        error = refusal("validate", refused)
        assert error[:-1].isprintable() and r"\x1b[2J" in error


def test_commands_that_work_on_files_open_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise AssertionError("a port is opened")

    monkeypatch.setattr(socket.socket, "listen", refuse)
    monkeypatch.setattr(grpc, "server", refuse)
    log = write(tmp_path / "log.jsonl", jsonl([CrawlEvent("http://a.example/", links=(Link("http://b.example/"),))]))
    state, graph = tmp_path / "state", tmp_path / "graph"
    for words in (
        ("replay", log, "--state", state, "--out", tmp_path / "out", "--report", tmp_path / "report.html"),
        ("replay", log, "--runner", "BundleBasedDirectRunner"),
        ("validate", log),
        ("top", "--state", state),
        ("show", "http://a.example/", "--state", state),
        ("schedule", "--state", state, "--export", tmp_path / "plan.csv"),
        ("export", "importance", tmp_path / "out", "--as", "csv", "--out", tmp_path / "table.csv"),
        ("graph", "build", log, "--out", graph),
        ("rank", graph, "--out", tmp_path / "ranks.csv"),
        ("compare", tmp_path / "out", tmp_path / "ranks.csv"),
    ):
        done = command(*words)
        assert done.code == 0, done.err


# -- rules


def cash_of_pages(tmp_path: Path, events: list[CrawlEvent], *options: str) -> dict[str, float]:
    path = write(tmp_path / "rules.jsonl", jsonl(events))
    finished("replay", path, "--quiet", "--history", "interpolation", "--out", tmp_path / "rules", *options)
    return {record["url"]: record["cash"] for record in records_of(tmp_path / "rules/importance.jsonl")}


@pytest.mark.parametrize(
    ("options", "urls"),
    [
        ([], {"http://www.a.example/?utm_source=x&id=1&sid=2", "https://a.example/?id=1", "http://a.example/?id=1"}),
        (
            ["--fold-www"],
            {"http://a.example/?utm_source=x&id=1&sid=2", "https://a.example/?id=1", "http://a.example/?id=1"},
        ),
        (["--set", "fold-https=true"], {"https://www.a.example/?utm_source=x&id=1&sid=2", "https://a.example/?id=1"}),
        (
            ["--drop-parameters", "tracking"],
            {"http://www.a.example/?id=1&sid=2", "https://a.example/?id=1", "http://a.example/?id=1"},
        ),
        (
            ["--drop-parameters", "UTM_*, session", "--fold-www", "--set", "fold-https=true"],
            {"https://a.example/?id=1"},
        ),
    ],
)
def test_rules_decide_which_urls_are_one_page(options: list[str], urls: set[str], tmp_path: Path) -> None:
    named = ["http://www.a.example/?utm_source=x&id=1&sid=2", "https://a.example/?id=1", "http://a.example/?id=1"]
    assert set(cash_of_pages(tmp_path, [CrawlEvent(name) for name in named], *options)) == urls


PAGES = {
    "own": "https://a.site.example/own",
    "sibling": "https://b.site.example/",
    "other": "https://elsewhere.example/",
    "nofollow": "https://a.site.example/nofollow",
}
LINKS = tuple(Link(name, rel="ugc" if key == "nofollow" else None) for key, name in PAGES.items())


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ([], {"own": 1, "sibling": 1, "other": 1, "nofollow": 0}),
        (["--set", "nofollow-weight=0.5"], {"own": 1, "sibling": 1, "other": 1, "nofollow": 0.5}),
        (["--set", "internal-weight=0.25"], {"own": 0.25, "sibling": 1, "other": 1, "nofollow": 0}),
        (
            ["--set", "internal-weight=0.25", "--set", "same-site=domain"],
            {"own": 0.25, "sibling": 0.25, "other": 1, "nofollow": 0},
        ),
        (["--set", "external-weight=4"], {"own": 1, "sibling": 4, "other": 4, "nofollow": 0}),
    ],
)
def test_a_link_has_the_weight_of_its_kind(options: list[str], weights: dict[str, float], tmp_path: Path) -> None:
    seeds = [CrawlEvent(name, announce=True) for name in PAGES.values()]
    cash = cash_of_pages(tmp_path, [*seeds, CrawlEvent("https://a.site.example/", links=LINKS)], *options)
    minted = cash[PAGES["nofollow"]] if not weights["nofollow"] else 0
    received = {key: cash[name] - minted for key, name in PAGES.items()}
    if minted:
        total = sum(received.values())
        expected = sum(weights.values())
        for key, weight in weights.items():
            assert received[key] / total == pytest.approx(weight / expected, abs=1e-6), key
    else:
        assert received["nofollow"] < received["own"] == received["other"]


# -- errors: one line, exit code 2


def refusals(tmp_path: Path) -> dict[str, tuple[list[object], str]]:
    log = write(tmp_path / "good.jsonl", json_line(CrawlEvent(url(1))))
    file = write(tmp_path / "file", b"x")
    empty = write(tmp_path / "empty.jsonl", b"")
    rejects = write(tmp_path / "rejects.jsonl", b'{"url": 3}\n')
    prose = write(tmp_path / "prose.txt", b"Once upon a time\nthere was a crawl.\n")
    packed = write(tmp_path / "log.jsonl.bz2", bz2.compress(b'{"url": "https://a.example/"}\n'))
    cut = write(tmp_path / "log.gz", gzip.compress(b'{"url": "https://a.example/"}\n')[:12])
    os.mkfifo(tmp_path / "pipe")
    return {
        "no such file": ([tmp_path / "none"], "no such file"),
        "no match": ([f"{tmp_path}/none*.gz"], "matches no file"),
        "folder": ([tmp_path], "a folder"),
        "one of two": ([log, tmp_path / "none"], "no such file"),
        "empty": ([empty], "empty"),
        "all rejected": ([rejects], "every record was rejected (bad-field 1)"),
        "no log": ([prose], "not a crawl log"),
        "bzip2": ([packed], "log.jsonl.bz2: packed with bzip2, which is not read: unpack it, such as with bzcat"),
        "nothing can be unpacked": ([cut], "nothing could be read: every record was rejected (corrupt 1)"),
        "a pipe": ([tmp_path / "pipe"], "pipe: a pipe, which cannot be read twice: name - instead"),
        "a pipe of a pattern": ([f"{tmp_path}/p?pe"], "pipe: a pipe, which cannot be read twice: name - instead"),
        "out is empty": ([log, "--out", ""], "argument --out: it is empty: give a value, or omit the option"),
        "state is empty": ([log, "--state", ""], "argument --state: it is empty"),
        "nothing to drop": ([log, "--drop-parameters", ""], "argument --drop-parameters: it is empty"),
        "nothing between commas": (
            [log, "--drop-parameters", " , "],
            "--drop-parameters: ' , ' names none: give names with commas",
        ),
        "out is a file": ([log, "--out", file], "cannot be written to"),
        "out is read-only": ([log, "--out", "/proc/opicflow"], "cannot be written to"),
        "state is a file": ([log, "--state", file], "cannot be made"),
        "report nowhere": ([log, "--report", tmp_path / "no/r.html"], "its folder is not there"),
        "report a folder": ([log, "--report", tmp_path], "a folder"),
        "report read-only": ([log, "--report", "/proc/r.html"], "cannot be written"),
        "publications nowhere": ([log, "--publications"], "--out"),
        "history": ([log, "--history", "prose"], "--history prose: give one of all, fixed"),
        "window": ([log, "--history", "all", "--set", "window-turns=3"], "has no window of that kind"),
        "measures": (
            [log, "--set", "measures=3"],
            "measures: the history interpolation has no window of that kind: omit it, or give --history variable",
        ),
        "too many measures": ([log, "--history", "variable", "--set", "measures=17"], "17"),
        "fewest measures": ([log, "--history", "fixed", "--set", "min-measures=3"], "give --history improved-fixed"),
        "alpha": ([log, "--set", "alpha=0"], "--set alpha=0: give"),
        "estimator": ([log, "--set", "rates=best"], "--set rates='best': give one of likelihood, existence, thesis"),
        "two windows": ([log, "--set", "window-turns=3", "--set", "window-days=4"], "a history has one window"),
        "window not positive": ([log, "--set", "window-turns=-3"], "--set window-turns=-3: give"),
        "damping": ([log, "--set", "damping=nan"], "damping"),
        "damping word": ([log, "--set", "damping=much"], "'much' is not a number"),
        "settle without a small edge": ([log, "--settle", "--set", "damping=1"], "--settle needs a damping below 1"),
        "weight": ([log, "--set", "nofollow-weight=-1"], "nofollow"),
        "weight inf": ([log, "--set", "external-weight=inf"], "external"),
        "format": ([log, "--format", "xml"], "--format: unknown value 'xml': give one of jsonl, avro, parquet"),
        "top": ([log, "--top", "ten"], "--top: 'ten' is not a whole number from 0"),
        "runner": ([log, "--runner", "NoRunner"], "Beam has no such runner here"),
        "threads and Beam": ([log, "--runner", "local", "--set", "beam-option=--x"], "beam-option: --runner local"),
        "state and runner": ([log, "--state", tmp_path / "s", "--runner", "BundleBasedDirectRunner"], "--state needs"),
        "unknown option": ([log, "--nonsense"], "unknown option --nonsense"),
        "no log named": ([], "nothing to replay"),
        "no such file system": (["nowhere://x/y"], "nowhere"),
    }


def test_an_error_of_the_user_gives_one_line(tmp_path: Path) -> None:
    for name, (arguments, message) in refusals(tmp_path).items():
        code, out, err = command("replay", *arguments, "--quiet")
        assert (code, out) == (1 if "every record was rejected" in message else 2, ""), (name, err)
        assert err.count("\n") == 1 and err.endswith("\n") and message in err, (name, err)
        assert len(err) < 400 and ("opicflow: " in err or "opicflow replay: " in err), (name, err)
    assert not list(tmp_path.glob(".opicflow-*"))


def test_show_top_and_validate_give_one_line_of_error(log: Path, tmp_path: Path) -> None:
    command("replay", log, "--quiet", "--state", tmp_path / "state")
    for arguments in (
        ["show", "https://x.example/", "--state", tmp_path / "state"],
        ["show", "mailto:x", "--state", tmp_path / "state"],
        ["show", "no url", "--state", tmp_path / "state"],
        ["show", url(1), "--state", tmp_path],
        ["top", "--state", log],
        ["top", "--state", tmp_path / "none"],
        ["top"],
        ["show", url(1)],
        ["validate", tmp_path / "none"],
        ["validate", log, "--set", "nofollow-weight=100"],
        ["nonsense"],
    ):
        refusal(*arguments)


def test_settling_says_its_certificate(log: Path) -> None:
    out = command("replay", "--history", "interpolation", "--quiet", "--settle", log)[1]
    assert "of the exact ranks of the graph seen (certified)" in out


def test_a_bug_gives_a_traceback_and_exit_code_1(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(replay_runner, "replayed", broken)
    code, _, err = command("replay", log)
    assert code == 1 and "Traceback" in err and "this is a bug" in err


def test_a_nul_character_in_a_stored_path_gives_one_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_runner, "replayed", lambda *_, **__: Path("a\0b").read_bytes())
    error = refusal("replay", log)
    assert error == "opicflow: a path in a file that was read contains a NUL character: correct it, and run again\n"


@pytest.mark.parametrize(
    ("limit_bytes", "options"),
    [(2000, ["--out"]), (2000, []), (2000, ["--state"]), (30_000, ["--out"]), (30_000, ["--report"])],
)
def test_a_full_disk_gives_one_line_of_error_and_no_partial_file(
    limit_bytes: int, options: list[str], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert command("replay", log, "--quiet")[0] == 0  # kernels that are compiled now are written without a limit
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        code, _, err = command("replay", log, "--quiet", *(part for o in options for part in (o, tmp_path / "out")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2, err
    assert err.count("\n") == 1 and "File too large: correct this" in err
    assert str(tmp_path / "out" if options else tmp_path) in err
    assert list(tmp_path.glob("*opicflow-*")) == []
    assert not any(path.name.startswith("importance.") for path in tmp_path.rglob("*") if "work" not in path.parts)


# -- interrupts


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose replay takes some seconds."""
    chance = random.Random(1)
    line = [
        json_line(CrawlEvent(url(n), links=tuple(Link(url(chance.randrange(9000))) for _ in range(20))))
        for n in range(9000)
    ]
    return write(tmp_path_factory.mktemp("long") / "log.jsonl", b"".join(line * 40))


@pytest.mark.parametrize(
    ("signal_", "after_seconds"),
    [
        (signal.SIGINT, 1.0),
        *(pytest.param(*others, marks=pytest.mark.slow) for others in [(signal.SIGTERM, 2.0), (signal.SIGHUP, 1.0)]),
    ],
)
def test_an_interrupted_replay_leaves_no_partial_file(
    signal_: signal.Signals, after_seconds: float, long_log: Path, tmp_path: Path
) -> None:
    arguments = [
        "replay",
        str(long_log),
        "--out",
        str(tmp_path),
        "--report",
        str(tmp_path / "r.html"),
        "--set",
        "segment-mb=4",
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal_, signal.SIG_DFL),  # these tests may run under nohup
    )
    try:
        process.communicate(timeout=after_seconds)
        pytest.fail("the replay ended before it was interrupted")
    except subprocess.TimeoutExpired:
        process.send_signal(signal_)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "opicflow: interrupted; nothing was left half-written\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "inside", "said"),
    [
        (["validate", "log"], "signal.pause()", "; nothing was left half-written"),
        (["export", "orders", "x", "--as", "csv"], "signal.pause()", ""),
        (
            ["replay", "log"],
            "\n    with interrupted_after(lambda: 'half of it'):\n        signal.pause()",
            "; half of it",
        ),
    ],
    ids=["a file", "standard output", "half of it"],
)
def test_an_interrupt_says_in_one_line_what_is_true_of_the_command(words: list[str], inside: str, said: str) -> None:
    code = f"""
import os, signal, sys, threading
from opicflow.pipelines.cli import main
from opicflow.pipelines.cli.commands import {words[0]} as commands
from opicflow.schemas.errors import interrupted_after

def run(options):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    {inside}

signal.signal(signal.SIGINT, signal.default_int_handler)
commands.run = run
sys.exit(main.main({words!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, f"opicflow: interrupted{said}\n")


def test_an_interrupt_that_python_ignores_is_repeated() -> None:
    code = """
import os, signal, sys
from opicflow.pipelines.cli import main
from opicflow.pipelines.cli.commands import replay as commands

class IgnoresExceptions:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)  # Python ignores an exception that is raised here

def run(options):
    del objects[0]
    signal.pause()
    return 0

objects = [IgnoresExceptions()]
signal.signal(signal.SIGINT, signal.default_int_handler)
commands.run = run
sys.exit(main.main(["replay", "log"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "opicflow: interrupted; nothing was left half-written\n")


@pytest.mark.slow
def test_closed_standard_output_is_not_an_error(log: Path, tmp_path: Path) -> None:
    read, write_ = os.pipe()
    os.close(read)
    arguments = [*COMMAND, "replay", str(log), "--quiet", "--state", str(tmp_path / "state")]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(arguments, stdout=write_, stderr=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "state/state.json").read_bytes())["state"]["run"]["finished"]
    arguments = [*COMMAND, "top", "--state", str(tmp_path / "state")]  # it starts faster
    with open("/dev/full", "wb") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": ""}
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, env=environment)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"standard output" in done.stderr
    os.close(write_)
    closed = subprocess.run(["sh", "-c", f"exec {' '.join(arguments)} >&-"], stderr=subprocess.PIPE)
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_two_processes_cannot_use_one_state(log: Path, tmp_path: Path) -> None:
    with StateFolder.locked(tmp_path / "state", create=True):
        arguments = [*COMMAND, "replay", str(log), "--quiet", "--state", str(tmp_path / "state")]
        second = subprocess.run(arguments, capture_output=True, text=True)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.count("\n") == 1 and "in use by another replay" in second.stderr


# -- damaged logs


def valid_logs() -> list[tuple[str, bytes]]:
    web = WebLog(power_law_web(30, 3, mean_links=4), announced=False).crawl("random", 40)
    extra = CrawlEvent(
        url(3), fetched_at_ms=10**12, redirects=(url(4), url(5)), canonical=url(6), links=(Link("/x", 2.0, "ugc"),)
    )
    events = [*web.events, CrawlEvent(url(99), announce=True), extra]
    plain = jsonl(events)
    return [
        ("log.jsonl", plain),
        ("log.jsonl.gz", gzip.compress(plain[:2000], mtime=0) + gzip.compress(plain[2000:], mtime=0)),
        ("log.jsonl.zst", zstandard.ZstdCompressor(write_checksum=True).compress(plain)),
        ("log.avro", avro(events)),
        ("raw.avro", avro(events, "null")),
        ("log.warc", warc(web.events)),
        ("log.warc.gz", b"".join(gzip.compress(warc([event]), mtime=0) for event in web.events)),
        ("log.tsv", "".join(f"{e.url}\t{link.url}\n" for e in web.events for link in e.links or ()).encode()),
    ]


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        at = chance.randrange(len(out)) if out else 0
        size = chance.choice([1, 1, 4, 50, 500])
        match chance.randrange(7):
            case 0:
                out[at : at + 1] = bytes([(out[at] if out else 0) ^ 1 << chance.randrange(8)])
            case 1:
                out[at : at + size] = chance.randbytes(size)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = chance.randbytes(size)
            case 4:
                out[at:at] = out[at : at + size]
            case 5:
                del out[at:]
            case 6:
                words = [
                    b"\n",
                    b'"',
                    b"\\",
                    b"{",
                    b"[",
                    b"]}",
                    b"null",
                    b"1e999",
                    b"-1",
                    b"\xff",
                    b"\0",
                    b"https://",
                    b"NaN",
                ]
                out[at : at + chance.randrange(3)] = chance.choice(words)
    return bytes(out)


def read_through(path: Path) -> None:
    """Read a file as a replay does, without Beam and without results. Counts must add up."""
    try:
        format_ = known_format(str(path))
        if format_ is None:
            return
        input_range = FileRange("log", str(path), format_)
        log = ReplayedLog(ReplayConfig(), ReplayConfig().new_ledger())
        seen, counts, rejects = Seen(), Counter[str](), 0
        outputs = []
        for batch in decode_range(input_range, Rules()):
            routed = route_rows(batch.decoded, batch.urls, batch.source, Rules(), seen)
            counts.update(routed.counts)
            rejects += len(routed.rejects)
            for reject in routed.rejects:
                json.loads(reject_line(reject, str(path)))
                assert "\n" not in reject.detail, reject
            outputs += log.take(RoutedBatch.of(batch, routed))
    except InputRefused as refusal:
        assert "\n" not in str(refusal)
        return
    assert counts["events_read"] == counts["visits"] + counts["announcements"] + rejects
    report = next(json.loads(output.data) for output in outputs if output.kind == REPORT)
    assert report["ended"] and report["drift"] == 0
    assert sum(report["counts"]["rejects"].values()) == rejects
    assert report["counts"]["tally"].get("events_read", 0) == counts["events_read"]


def fuzz(tmp_path: Path, seed: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 1500)
    chance = random.Random(seed)
    for number in range(rounds):
        for name, data in valid_logs():
            path = write(tmp_path / name, damaged(data, chance))
            try:
                read_through(path)
            except BaseException:
                kept = path.rename(tmp_path / f"failed-{number}-{name}")
                print(f"round {number}, {name}: the damaged log is {kept}")
                raise


@pytest.mark.slow
def test_a_damaged_log_is_read_as_far_as_possible(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz(tmp_path, seed, 25, monkeypatch)


@pytest.mark.soak
def test_many_damaged_logs_are_read_as_far_as_possible(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuzz(tmp_path, seed, 10_000, monkeypatch)


@pytest.mark.slow
def test_damaged_logs_give_results_or_one_line_of_error(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed + 1)
    for number in range(3):
        for name, data in valid_logs():
            path = write(tmp_path / name, damaged(data, chance))
            out = tmp_path / f"{number}-{name}"
            code, printed, err = command(
                "replay", path, "--quiet", "--json", "--out", out, "--report", tmp_path / "r.html"
            )
            if code == 0:
                summary: dict[str, Any] = json.loads(printed)
                assert adds_up(summary)
                assert len(records_of(out / "rejects.jsonl")) == summary["rejects"]
                assert len(records_of(out / "importance.jsonl")) == summary["pages"]
            else:
                expected = 1 if "every record was rejected" in err else 2
                assert (code, printed, err.count("\n")) == (expected, "", 1), err


def test_only_a_process_that_ends_with_its_command_is_searched_less_for_garbage() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(777)
    try:
        command("replay", "--help")
        assert gc.get_threshold()[0] == 777 and gc.get_freeze_count() <= frozen
    finally:
        gc.set_threshold(*before)
    code = "import atexit, gc, sys\natexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 0))\n"
    code += "from opicflow.pipelines.cli.main import main\nsys.argv[1:] = ['replay', '--help']\nsys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "20000 True"


def test_refusals_are_user_errors() -> None:
    assert issubclass(InputRefused, UserError) and issubclass(NothingRead, UserError)
