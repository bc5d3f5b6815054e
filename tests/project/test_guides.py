"""The example log and the guides: tables match the code, snippets run, outputs are real.

PYTHONPATH=tests .venv/bin/python tests/project/test_guides.py replay     writes the outputs in that guide again
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest
from scrapy.http import HtmlResponse, Request
from scrapy.linkextractors import LinkExtractor

from opicflow.connectors.files.crawlers.dispatch import FORMATS as CRAWLERS
from opicflow.connectors.files.formats import INPUT_FORMATS
from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.pipelines.cli.commands.replay import _request
from opicflow.pipelines.cli.main import parse
from opicflow.pipelines.ledger import HISTORIES, Outcome
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.pipelines.replay.segments import SEGMENT_BYTES
from opicflow.pipelines.stages.route import Seen, route
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.json_events import FIELD_NAMES, LINK_FIELD_NAMES, event_of
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.urls import (
    NO_RULES,
    SESSION_PARAMETERS,
    TRACKING_PARAMETERS,
    Canonicaliser,
    UrlRules,
    canonical,
)
from support.commands import output_of
from support.frontier_service import FrontierService, served
from support.guides import LOG, TOP, Guide, code, opicflow, python_blocks
from support.http_server import HttpAnswer, HttpRequest, answering

FORMATS = (TOP / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
GUIDE = Guide("replay").text


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose head begins with this cell."""
    after = text[text.index(f"\n| {first} |") + 1 :].split("\n\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in after.splitlines()[2:]]


# -- the example log ---------------------------------------------------------------------------------------------------


def test_the_script_makes_the_log_that_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, TOP / "examples" / "make_log.py", tmp_path / "log"], check=True)
    assert gzip.decompress((tmp_path / "log").read_bytes()) == gzip.decompress(LOG.read_bytes())


def test_the_log_is_small_and_has_no_time_in_its_head() -> None:
    head = LOG.read_bytes()[:10]
    assert LOG.stat().st_size < 600_000
    assert head[4:8] == bytes(4)


def test_the_log_replayed_has_the_documentation_on_top(tmp_path: Path) -> None:
    command = ["replay", str(LOG), "--settle", "--out", "out", "--quiet"]
    ((code, _, errors),) = opicflow(tmp_path, command)
    assert (code, errors) == (0, "")
    first = json.loads((tmp_path / "out" / "importance.jsonl").read_text().splitlines()[0])
    assert first["url"] == "https://docs.tern.example/"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    accounted = sum(summary[name] for name in ("visits", "announcements", "rejects", "duplicates"))
    assert summary["events_read"] == accounted == len(gzip.decompress(LOG.read_bytes()).splitlines())
    assert min(summary[name] for name in ("rejects", "duplicates", "late", "redirects", "aliases")) > 0
    assert min(summary[name] for name in ("visits_unchanged", "visits_failed", "links_nofollow")) > 0


# -- docs/guides/replay.md


@pytest.mark.parametrize("name", ["replay", "simulate", "ranks", "compare"])
def test_the_outputs_in_a_guide_are_real(name: str, tmp_path: Path) -> None:
    Guide(name).check(tmp_path)


def test_the_outputs_in_the_guide_for_a_url_frontier_are_real(tmp_path: Path) -> None:
    assert opicflow(tmp_path, ["replay", str(LOG), "--out", "results", "--quiet"])[0].code == 0
    with served(FrontierService(1_800_000_000)) as address:
        Guide("url-frontier").check(tmp_path, instead={"localhost:7071": address})


USUAL = {"--help", "--config", "--set", "--out", "--top", "--json", "--quiet"}
"""Options that mean the same everywhere."""


@pytest.mark.parametrize(
    ("command", "guides"),
    [
        ("simulate", ["simulate"]),
        ("rank", ["ranks"]),
        ("graph build", ["ranks"]),
        ("compare", ["compare"]),
        ("export", ["export"]),
        ("push", ["url-frontier"]),
        ("subscribe", ["kafka", "replay"]),
        ("publish events", ["kafka", "replay"]),
        ("topics create", ["kafka", "replay", "operations"]),
    ],
)
def test_a_guide_names_every_option(command: str, guides: list[str]) -> None:
    options = output_of(*command.split(), "--help").partition("examples:")[0]
    text = "".join(Guide(name).text for name in guides)
    named = set(re.findall(r"--[a-z-]+", text))
    assert set(re.findall(r"--[a-z-]+", options)) - USUAL - named == set()


@pytest.mark.slow
def test_the_queries_in_the_guide_are_answered_by_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = GUIDE[GUIDE.index("### Results in DuckDB") :].split("\n## ")[0]
    queries = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    assert len(queries) == 6
    (tmp_path / LOG.name).write_bytes(LOG.read_bytes())
    words = next(line.split()[1:] for line in section.splitlines() if line.startswith("    opicflow replay"))
    monkeypatch.chdir(tmp_path)  # the queries name results/
    answers = []
    for parts in ([], ["--parts", "3"]):
        ((code, _, _),) = opicflow(tmp_path, [*words, *parts, "--quiet"])
        assert code == 0
        answers.append([rows_of(query) for query in queries])
    assert answers[0] == answers[1]
    of_a_domain, due, by_domain, by_host, late, rising = answers[0]
    assert min(map(len, answers[0])) >= 5
    assert {urlsplit(row["url"]).hostname.rpartition("tern.example")[1:] for row in of_a_domain} == {
        ("tern.example", "")
    }
    ((_, out, _),) = opicflow(tmp_path, ["replay", LOG.name, "--state", "state", "--top", "0", "--quiet"])
    ((_, out, _),) = opicflow(tmp_path, ["top", "--state", "state", "--by", "host", "-n", "10", "--json"])
    hosts = json.loads(out)
    ((_, out, _),) = opicflow(tmp_path, ["top", "--state", "state", "--by", "domain", "-n", "10", "--json"])
    assert [(row["site"], row["pages"], row["read"]) for row in by_domain] == [
        (row["domain"], row["pages"], row["read"]) for row in json.loads(out)
    ]
    assert [(row["host"], row["pages"], row["read"]) for row in by_host] == [
        (row["host"], row["pages"], row["read"]) for row in hosts
    ]
    assert [row["importance"] for row in by_host] == pytest.approx([row["importance"] for row in hosts])
    ends = rows_of("SELECT max(event_time) AS at FROM 'results/refresh-schedule*.parquet'")[0]["at"]
    assert all((row["due"] - ends).total_seconds() < 86_400 for row in due)
    assert all(row["hours_late"] > 0 for row in late)
    assert [row["growth_per_day"] for row in rising] == sorted([row["growth_per_day"] for row in rising], reverse=True)


def rows_of(query: str) -> list[dict[str, Any]]:
    """The answer of DuckDB, on one thread: with more, the last digit of a sum depends on which ends first."""
    with duckdb.connect(config={"threads": 1}) as connection:
        rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


def test_the_guide_explains_every_field_of_the_summary(tmp_path: Path) -> None:
    ((_, out, _),) = opicflow(tmp_path, ["replay", str(LOG), "--json", "--quiet"])
    explained = [name for row in table(GUIDE[GUIDE.index("## The summary") :], "field") for name in code(row[0])]
    assert sorted(set(json.loads(out)) ^ set(explained)) == []


def test_the_guide_names_every_option_and_history() -> None:
    help_ = output_of("replay", "--help")
    assert [option for option in set(re.findall(r"--[a-z-]+", help_)) - {"--help"} if f"`{option}" not in GUIDE] == []
    assert [name for name in HISTORIES if f"`{name}`" not in GUIDE] == []


def test_help_and_guides_name_every_strategy_and_every_format_of_a_log() -> None:
    help_, strategies = output_of("replay", "--help"), Guide("refresh").text
    assert [name for name in STRATEGIES if name not in help_ or f"`{name}`" not in strategies] == []
    formats = Guide("other-crawlers").text
    assert [name for name in INPUT_FORMATS if name not in help_] == []
    assert [name for name in CRAWLERS if name not in formats] == []


# -- docs/reference/formats.md


@pytest.mark.parametrize("head, names", [("field", FIELD_NAMES), ("field of a link", LINK_FIELD_NAMES)])
def test_field_names_are_those_of_the_code(head: str, names: dict[str, tuple[str, ...]]) -> None:
    assert {field: tuple(code(listed)) for field, listed in table(FORMATS, head)} == names


def test_the_json_example_is_two_events() -> None:
    example = re.search(r"```json\n(.*?)```", FORMATS, re.DOTALL)
    assert example
    visit, announcement = (event_of(json.loads(text)) for text in example[1].replace("\n ", " ").splitlines())
    assert visit.links == (Link("https://example.org/"), Link("/c", 2, "nofollow"))
    assert None not in (visit.fetched_at_ms, visit.canonical, visit.digest, visit.last_modified_ms, visit.content_type)
    assert announcement.announce and announcement.last_modified_ms


def outcome_of(event: CrawlEvent) -> str:
    writer = EventWriter()
    writer.add(0, event)
    events = writer.events()
    urls = Canonicaliser().canonicalise(events.text, events.begins, events.ends, events.begins * 0)
    return Outcome(int(route(events, urls, Rules(), Seen()).items.outcome[0])).name


def test_outcomes_are_those_of_the_code() -> None:
    by_status: dict[int, str] = {}
    words = set()
    for cell, outcome, _ in table(FORMATS, "status or failure"):
        for word in code(cell):
            words.add(word)
            if word != "canonical":
                assert outcome_of(CrawlEvent("https://example.org/", failure=word.upper().replace("-", "_"))) == outcome
        if outcome != "ALIASED":
            for first, _, last in re.findall(r"\b(\d{3})(-(\d{3}))?", cell):
                by_status |= dict.fromkeys(range(int(first), int(last or first) + 1), outcome)
    for status in range(100, 600):
        event = CrawlEvent("https://example.org/", status=status)
        assert outcome_of(event) == by_status.get(status, "FAILED"), status
    assert outcome_of(CrawlEvent("https://example.org/")) == "FETCHED"
    assert outcome_of(CrawlEvent("https://example.org/", canonical="https://example.org/a")) == "ALIASED"
    assert outcome_of(CrawlEvent("https://example.org/", failure="timeout")) == "FAILED"
    from opicflow.schemas import event_columns

    words_of_code = (event_columns._BLOCKED_WORDS, event_columns._GONE_WORDS, event_columns._BUSY_WORDS)
    assert words == {"canonical", *(word for of_outcome in words_of_code for word in of_outcome)}
    assert outcome_of(CrawlEvent("https://example.org/", status=503, retry_after=1)) == "BUSY"


def test_segments_of_the_command_are_as_long_as_the_documents_say() -> None:
    assert _request(parse(["replay", "crawl.jsonl"])).segment_bytes == SEGMENT_BYTES
    assert _request(parse(["replay", "crawl.jsonl", "--set", "segment-mb=3"])).segment_bytes == 3 << 20
    for text in (GUIDE, (TOP / "docs" / "decisions" / "segments.md").read_text(encoding="utf-8")):
        assert f" {SEGMENT_BYTES >> 20} MB of input" in " ".join(text.split())


def test_canonical_urls_are_those_of_the_code() -> None:
    rows = [code(row[0]) + code(row[1]) for row in table(FORMATS, "given")]
    assert len(rows) > 5
    assert [(given, canonical(given).decode()) for given, _ in rows] == [(given, form) for given, form in rows]


def test_url_rules_do_what_the_guide_promises() -> None:
    rows = [[code(cell)[0] for cell in row] for row in table(FORMATS[FORMATS.index("## URLs") :], "option")]
    assert len(rows) == 5
    for option, given, becomes in rows:
        name, _, value = option.partition(" ")
        sets = {"tracking": TRACKING_PARAMETERS, "session": SESSION_PARAMETERS}
        rules = {
            "--drop-parameters": UrlRules(drop_parameters=sets.get(value, tuple(value.split(",")))),
            "--fold-www": UrlRules(fold_www=True),
            "--set": UrlRules(fold_https=True),
        }[name]
        assert canonical(given, None, rules).decode() == becomes
        assert canonical(given, None, NO_RULES).decode() == given
    for word in (*TRACKING_PARAMETERS, *SESSION_PARAMETERS):
        assert f"`{word}`" in FORMATS


def test_every_reason_is_explained_and_its_example_has_it() -> None:
    rows = table(FORMATS, "reason")
    assert [code(reason)[0] for reason, _, _ in rows] == [reason.value for reason in Reason]
    for reason, _, example in rows:
        for line in code(example):
            decoded = decode_jsonl(ast.literal_eval(f"b'{line}'"), "log", 0)
            if decoded.rejects:
                found = decoded.rejects[0].reason
            else:
                events = decoded.events
                urls = Canonicaliser().canonicalise(events.text, events.begins, events.ends, events.begins * 0)
                ((_, found, _),) = route(events, urls, Rules(), Seen()).rejected
            assert found.value == code(reason)[0], line


def type_in_words(avro_type: Any) -> str:
    if isinstance(avro_type, list):
        return f"{type_in_words(avro_type[1])} or null"
    if isinstance(avro_type, dict):
        return {"enum": "word", "long": "time"}[avro_type["type"]]
    return {
        "string": "text",
        "double": "number",
        "long": "whole number",
        "int": "whole number",
        "boolean": "true or false",
        "bytes": "bytes",
    }[avro_type]


def test_columns_of_results_and_their_types_are_those_of_the_schemas() -> None:
    outputs = FORMATS[FORMATS.index("## Outputs") :]
    results = [row[0] for row in table(outputs, "result")]
    listed: dict[str, list[tuple[str, str]]] = {result: [] for result in results}
    for result, column, type_, _ in table(outputs, "result | column"):
        listed[result].append((code(column)[0], type_))
    tombstones = ["text", "word", "time or null"]
    assert listed.pop("tombstones") == list(zip(["page", "why", "event_time"], tombstones, strict=True))
    names = ("Importance", "RefreshSchedule", "CrawlOrder", "SiteImportance", "Reject", "PageChange")
    for (_, columns), name in zip(listed.items(), names, strict=True):
        assert columns == [(field["name"], type_in_words(field["type"])) for field in schema(name)["fields"]]
    types = {row[0] for row in table(outputs, "type")}
    assert types == {type_.removesuffix(" or null") for columns in listed.values() for _, type_ in columns}


# -- docs/guides/crawlers.md


def names_of(code: str, document: str) -> dict[str, Any]:
    """Return what a block defines."""
    names: dict[str, Any] = {}
    exec(compile(code, document, "exec"), names)
    return names


PLAIN, _, CALLBACK, _ = python_blocks("docs/guides/crawlers.md")  # tests/crawl/scrapy runs the second one
CRAWLER = SimpleNamespace(**names_of(PLAIN, "docs/guides/crawlers.md"))


SITE = {
    "/": '<base href="/sub/"><a href="http://[">no</a> <a href="a#top">a</a> <a href="/b" rel="nofollow">b</a>'
    ' <a href="mailto:k@x.org">k</a>',
    "/sub/a": '<link rel="canonical" href="/"><a href="/old">o</a> <a href="/nowhere">n</a>',
    "/b": "no links",
}


def page_of_site(request: HttpRequest) -> HttpAnswer:
    if request.path == "/old":
        return HttpAnswer(301, b"", "text/html", (("Location", "/b"),))
    body = SITE.get(request.path, "").encode()
    return HttpAnswer(200 if body else 404, body, "text/html")


@pytest.fixture
def site() -> Iterator[str]:
    with answering(page_of_site) as address:
        yield address


def test_the_plain_crawler_writes_a_log_with_all_fields(site: str, tmp_path: Path) -> None:
    path = tmp_path / "crawl.jsonl"
    with open(path, "w") as log:
        CRAWLER.crawl([f"{site}/", "http://127.0.0.1:1/"], log, 10)
    *announced, first, refused, aliased, plain, redirected, gone = [
        event_of(json.loads(line)) for line in path.read_text().splitlines()
    ]
    assert [event.announce for event in announced] == [True, True]
    assert first.links and [(link.url, link.rel) for link in first.links] == [
        (f"{site}/sub/a#top", None),
        (f"{site}/b", "nofollow"),
        ("mailto:k@x.org", None),
    ]
    assert refused.failure and refused.status is None and refused.links is None
    assert (aliased.canonical, plain.links) == (f"{site}/", ())
    assert (redirected.url, redirected.redirects) == (f"{site}/b", (f"{site}/old",))
    assert (gone.url, gone.status) == (f"{site}/nowhere", 404)
    ((code, out, _),) = opicflow(tmp_path, ["replay", "crawl.jsonl", "--json", "--quiet"])
    summary = json.loads(out)
    assert code == 0
    visits = summary["visits"] + summary["duplicates"]  # /b may be fetched twice in one millisecond
    assert (summary["rejects"], visits, summary["redirects"], summary["aliases"]) == (0, 6, 1, 1)


@pytest.mark.parametrize("url", ["http://a b.example/", "http://a.example/\x1b[2J", "http://[::1", "mailto:a@b.test"])
def test_the_plain_crawler_reports_a_page_that_cannot_be_fetched(url: str) -> None:
    event = CRAWLER.visit(url)
    assert event["url"] == url and event["failure"] in ("InvalidURL", "ValueError", "URLError")


def test_the_callback_of_the_guide_writes_its_judgement_into_the_meta_of_requests() -> None:
    links = '<a href="/a">a</a> <a href="/b">print it</a>'
    answer = HtmlResponse("http://a.example/", body=links.encode(), request=Request("http://a.example/"))
    judge = SimpleNamespace(quality=len)
    spider = SimpleNamespace(classifier=judge, links=LinkExtractor(), parse=lambda response: None)
    requests = list(names_of(CALLBACK, "docs/guides/crawlers.md")["parse"](spider, answer))
    assert answer.meta["opicflow_quality"] == len(links)
    assert [(one.url, one.meta["opicflow_quality"]) for one in requests] == [
        ("http://a.example/a", 1),
        ("http://a.example/b", 0.3),
    ]


def crawl_of_the_frontier_guide() -> dict[str, Any]:
    (code,) = python_blocks("docs/guides/frontier.md")
    return names_of(code.replace("delay_seconds=1.0", "delay_seconds=0.0"), "docs/guides/frontier.md")


def test_the_frontier_of_the_guide_goes_on_after_a_redirect_to_what_is_no_page(tmp_path: Path) -> None:
    def visit(url: str) -> dict[str, Any]:
        return {"url": url + "y" * 9000, "redirects": [url], "status": 200}

    crawl_of_the_frontier_guide()["crawl"](["http://a.example/"], tmp_path, visit, most=1)
    *_, event = map(json.loads, (tmp_path / "visits.jsonl").read_bytes().splitlines())
    assert event["url"] == "http://a.example/" and event["failure"] == "it is longer than 8192 bytes"


def test_the_frontier_of_the_guide_crawls_a_site(tmp_path: Path, site: str) -> None:
    names = crawl_of_the_frontier_guide()

    class EverythingRead(Exception):
        """No page is due before long."""

    class ShortWaits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None and timeout > 60:
                raise EverythingRead
            return super().wait(timeout)

    names["threading"] = SimpleNamespace(Event=ShortWaits)
    with pytest.raises(EverythingRead):
        names["crawl"]([f"{site}/"], tmp_path / "frontier", CRAWLER.visit, most=100)
    events = [json.loads(line) for line in (tmp_path / "frontier" / "visits.jsonl").read_bytes().splitlines()]
    assert {event["url"].removeprefix(site) for event in events} == {"/", "/sub/a", "/b", "/nowhere"}


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            Guide(name).write(Path(folder))
