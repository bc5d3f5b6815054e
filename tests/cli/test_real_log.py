"""A log as crawlers really write it, through every command: as an independent program counts it and ranks its pages.

`make soak` does the same at 200,000 pages and sixty days, with another web each time.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ada_url
import numpy as np
import numpy.typing as npt
import pytest
import requests

from opicflow.pipelines.results.exports.targets import TARGETS
from opicflow.pipelines.serve.sources import StateSource
from opicflow.schemas.urls import SESSION_PARAMETERS, TRACKING_PARAMETERS, UrlRules, canonical
from support.commands import command, finished, output_of
from support.exports import named, pages_in
from support.independent_count import IndependentCount, unpacked
from support.logs import records_of, state_files
from support.real_log import DAY_MS, FIRST_MS, LogFile, RealLog
from support.real_web import FOLDED_BY, GONE, RealWeb
from support.views import served

SEED = int(os.environ.get("OPICFLOW_SEED", "0"))
SMALL = RealLog(RealWeb(900, 40, 12.0, SEED), 2_000, 10)
LARGE = RealLog(RealWeb(200_000, 3_000, 12.0, SEED), 450_000, 60)
RESULTS = ("importance", "refresh-schedule", "crawl-orders", "site-importance")
PAIRS = [(target, kind) for target, one in TARGETS.items() for kind in one.writers]
FILES = {"importance": "importance", "schedule": "refresh-schedule", "orders": "crawl-orders"}
MOST_ROUNDING = 1e-6
"""Of all scores together, in a format that cuts their digits."""


@dataclass(frozen=True)
class Crawl:
    """A log in a folder, the findings of an independent program, and a replay of it into a state."""

    log: RealLog
    files: list[LogFile]
    folder: Path

    @property
    def paths(self) -> list[Path]:
        return [self.folder / file.name for file in self.files]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @cached_property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.out / "summary.json").read_bytes())

    @cached_property
    def count(self) -> IndependentCount:
        """What a replay with a state must find."""
        return self.counted(may_grow=True)

    @cached_property
    def ranks(self) -> npt.NDArray[np.float64]:
        return self.count.ranks()

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each page, by its canonical URL."""
        return {url: number for number, url in enumerate(self.log.web.urls)}

    @cached_property
    def importance(self) -> list[dict[str, Any]]:
        return records_of(self.out / "importance.jsonl")

    @cached_property
    def known_urls(self) -> set[str]:
        return {self.log.web.urls[page] for page in self.count.known}

    def counted(self, same_page: npt.NDArray[np.int64] | None = None, may_grow: bool = False) -> IndependentCount:
        pages = np.arange(self.log.web.pages) if same_page is None else same_page
        count = IndependentCount(pages, FIRST_MS + self.log.days * DAY_MS, may_grow)
        for file in self.files:
            count.add(file.data, file.lines)
        return count

    def distance(self, importance: dict[str, float], ranks: npt.NDArray[np.float64]) -> float:
        """Return the L1 distance of importance from ranks."""
        found = np.zeros(len(ranks))
        found[[self.number_of[url] for url in importance]] = list(importance.values())
        return float(np.abs(found - ranks).sum())


@pytest.fixture(scope="module", params=[SMALL, pytest.param(LARGE, marks=pytest.mark.soak)], ids=["small", "large"])
def crawl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    print(f"seed {SEED}: run it again with OPICFLOW_SEED={SEED}, or make soak SEED={SEED}")
    crawl = Crawl(request.param, list(request.param.files()), tmp_path_factory.mktemp("crawl"))
    for file, path in zip(crawl.files, crawl.paths, strict=True):
        path.write_bytes(file.data)
    command("replay", *crawl.paths, "--state", crawl.state, "--out", crawl.out, "--quiet")
    return crawl


def texts(log: RealLog) -> Iterator[tuple[LogFile, list[dict[str, Any] | None]]]:
    """Yield each file of a log, and its lines: None for lines that are no objects."""
    for file in log.files():
        found = []
        for line in unpacked(file.data)[0].removeprefix(b"\xef\xbb\xbf").split(b"\n")[: len(file.lines.pages)]:
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            found.append(value if isinstance(value, dict) else None)
        yield file, found


# -- the log -----------------------------------------------------------------------------------------------------------


def meaning(url: str | None, base: str | None = None) -> str | None:
    """Return the page of a URL by the library of the WHATWG's standard; None if it is none."""
    if url is None or len(url.partition("#")[0]) > 8192:
        return None
    try:
        parts = ada_url.URL(url, base)
    except ValueError:
        return None
    if parts.protocol not in ("http:", "https:"):
        return None
    parts.username = parts.password = parts.hash = ""
    return str(parts.href)


@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_every_url_of_the_log_is_the_page_that_the_log_names(seed: int) -> None:
    log = replace(SMALL, web=replace(SMALL.web, seed=seed))
    urls = log.web.urls
    assert len(set(urls)) == log.web.pages
    for file, lines in texts(log):
        starts = file.lines.starts.tolist()
        for row, (page, line) in enumerate(zip(file.lines.pages.tolist(), lines, strict=True)):
            if page < 0 or line is None:
                continue
            assert meaning(line["url"]) == urls[page]
            hops = [urls[hop] for hop in file.lines.hops[row]]
            assert [meaning(hop, urls[page]) for hop in line.get("redirects", [])] == hops
            given = meaning(line["canonical"], urls[page]) if "canonical" in line else None
            assert given == (urls[to] if (to := file.lines.canonicals[row]) >= 0 else None)
            links = [link.get("url") if isinstance(link, dict) else link for link in line.get("links") or ()]
            targets = file.lines.targets[starts[row] : starts[row + 1]].tolist()
            if targets or line.get("status") in (200, 301):
                found = [meaning(link, urls[page]) for link in links]
                assert found == [urls[to] if to >= 0 else None for to in targets]


def test_twins_are_one_page_without_their_sessions_and_campaigns() -> None:
    web, rules = SMALL.web, UrlRules((*SESSION_PARAMETERS, *TRACKING_PARAMETERS))
    assert (web.folded != np.arange(web.pages)).sum() > 10
    for page, to in enumerate(web.folded.tolist()):
        assert canonical(web.urls[page], None, rules).decode() == web.urls[to]


def test_a_seed_gives_the_same_log_and_another_seed_a_web_of_another_shape() -> None:
    assert [file.data for file in SMALL.files()] == [file.data for file in replace(SMALL).files()]
    webs = [replace(SMALL.web, seed=seed) for seed in range(8)]
    assert len({int(np.diff(web.first).max()) for web in webs}) > 4
    lengths = [float(np.mean([len(url) for url in web.urls])) for web in webs]
    assert max(lengths) > 1.2 * min(lengths)


def test_the_log_has_everything_that_real_logs_have() -> None:
    files = list(texts(replace(SMALL, web=replace(SMALL.web, seed=0))))  # other small ones may lack the rarest forms
    lines = [line for _, found in files for line in found if line is not None and "url" in line]
    links = [link.get("url") if isinstance(link, dict) else link for line in lines for link in as_list(line, "links")]
    urls = [line["url"] for line in lines] + [link for link in links if link is not None]
    statuses = Counter(line.get("status") for line in lines)
    assert {200, 301, 304, 403, 404, 410, 429, 500, 503} <= set(statuses)
    assert {"robots", "timeout"} <= {line.get("failure") for line in lines}
    for what, pattern in {
        "a fragment": r"#.",
        "a scheme in capital letters": r"HTTPS?://",
        "a host with other letters": r"https?://[^/]*[^\x00-\x7f]",
        "Punycode": r"//([a-z]+\.)?xn--",
        "an address of IPv4": r"//198\.18\.",
        "an address of IPv6": r"//\[2001:",
        "a default port": r"https:.*:443/|http:.*:80/",
        "another port": r":0?8443/",
        "a user name": r"//kim@",
        "a password": r"//kim:s%40cret@",
        "a path that is not ASCII": r"/[^?]*[^\x00-\x7f]",
        "a query that is not ASCII": r"\?q=[^\x00-\x7f]",
        "a session": r"[?&]sid=|;jsessionid=",
        "a campaign": r"utm_source=",
        "blanks": r"^ \n|\t $",
        "a tab within": r"\S\t\S",
        "backslashes": r"\\",
        "no scheme": r"^//",
        "from the root": r"^/[^/]",
        "from the folder": r"^[a-z0-9]+-\d",
        "up": r"^\.\./",
        "here": r"^\./",
        "a detour": r"%2E%2e/\.\.",
        "a query alone": r"^\?",
        "a fragment alone": r"^#",
        "a scheme without a host": r"^https?:/[^/]",
        "mailto": r"^mailto:",
    }.items():
        assert any(re.search(pattern, url) for url in urls), what
    assert "" in urls and None in links and max(map(len, urls)) > 8192
    times = [line["fetched_at"] for line in lines if "fetched_at" in line]
    assert {type(time) for time in times} == {int, str}
    assert any(str(time).endswith("GMT") for time in times) and any(str(time).endswith("+02:00") for time in times)
    data = [file.data for file, _ in files]
    assert any(one.count(b"\x1f\x8b\x08") > 2 for one in data) and any(one.endswith(bytes(512)) for one in data)
    assert any(b"rotated" in one for one in data) and [unpacked(one)[2] for one in data].count(True) == 1
    assert files[-1][0].rest and not unpacked(data[-1])[0].endswith(b"\n")
    raw = b"".join(unpacked(one)[0] for one in data)
    assert b"\r\n" in raw and b"\xef\xbb\xbf" in raw and b"\\/" in raw and b"\\u00" in raw and "ü".encode() in raw


def as_list(line: dict[str, Any], name: str) -> list[Any]:
    value = line.get(name)
    return value if isinstance(value, list) else []


def test_gone_pages_are_visited_every_day() -> None:
    gone: Counter[int] = Counter()
    for file, lines in texts(SMALL):
        found = {page for page, line in zip(file.lines.pages.tolist(), lines, strict=True) if line and page >= 0}
        gone.update(page for page in found if SMALL.web.fates[page] == GONE)
    assert gone.most_common(1)[0][1] >= SMALL.days - 3


# -- counts and ranks --------------------------------------------------------------------------------------------------


def test_every_event_is_in_the_count_that_an_independent_program_has_it_in(crawl: Crawl) -> None:
    expected = crawl.count.summary()
    assert {name: crawl.summary[name] for name in expected} == expected
    assert crawl.summary["rejects_by_reason"] == dict(+crawl.count.rejects)
    assert crawl.summary["visits"] >= crawl.log.events and expected["rejects"] < 0.1 * expected["events_read"]
    assert crawl.summary["drift"] == 0


def test_importance_is_the_page_rank_of_an_independent_program_within_the_certificate(crawl: Crawl) -> None:
    importance = {row["url"]: row["importance"] for row in crawl.importance}
    assert set(importance) == crawl.known_urls
    assert 0 < crawl.summary["certificate"] <= 1e-4
    assert crawl.distance(importance, crawl.ranks) <= crawl.summary["certificate"]


def test_every_page_has_its_visits_and_its_last_outcome(crawl: Crawl) -> None:
    for row in crawl.importance:
        page, count = crawl.number_of[row["url"]], crawl.count
        expected = (count.visits[page], count.outcomes.get(page, "NONE"), count.last_ms.get(page) or None)
        assert (row["visits"], row["last_outcome"], row["last_visit"]) == expected, row["url"]


def test_sites_have_the_sums_of_their_pages(crawl: Crawl) -> None:
    sums: dict[str, list[float]] = {}
    for page in crawl.count.known:
        one = sums.setdefault(domain_of(crawl.log.web.urls[page]), [0, 0, 0.0])
        one[0] += 1
        one[1] += page in crawl.count.visits
        one[2] += float(crawl.ranks[page])
    rows = {row["site"]: row for row in records_of(crawl.out / "site-importance.jsonl")}
    assert {site: [row["pages"], row["read"]] for site, row in rows.items()} == {
        site: one[:2] for site, one in sums.items()
    }
    assert sum(abs(sums[site][2] - row["importance"]) for site, row in rows.items()) <= crawl.summary["certificate"]


def domain_of(url: str) -> str:
    """Return the registrable domain, of a top-level domain that no list has; the address of a host without a name."""
    host = re.sub(r":\d+$", "", url.split("/")[2])
    return host if re.fullmatch(r"\[.*\]|[\d.]+", host) else ".".join(host.split(".")[-2:])


def test_without_a_state_unfinished_ends_are_rejects(crawl: Crawl, tmp_path: Path) -> None:
    summary = json.loads(output_of("replay", *crawl.paths, "--out", tmp_path / "out", "--json", "--quiet"))
    count = crawl.counted()
    expected = count.summary()
    assert {name: summary[name] for name in expected} == expected
    assert summary["rejects_by_reason"] == dict(+count.rejects)
    assert summary["events_read"] == crawl.summary["events_read"] + 3  # two lines and a member
    assert (tmp_path / "out/importance.jsonl").read_bytes() == (crawl.out / "importance.jsonl").read_bytes()


def test_without_sessions_and_campaigns_twins_are_one_page(crawl: Crawl, tmp_path: Path) -> None:
    words = ("--drop-parameters", FOLDED_BY, "--out", tmp_path / "out", "--json", "--quiet")
    summary = json.loads(output_of("replay", *crawl.paths, *words))
    count = crawl.counted(same_page=crawl.log.web.folded)
    expected = count.summary()
    assert {name: summary[name] for name in expected} == expected and summary["pages"] < crawl.summary["pages"]
    importance = {row["url"]: row["importance"] for row in records_of(tmp_path / "out/importance.jsonl")}
    assert crawl.distance(importance, count.ranks()) <= summary["certificate"]


# -- day by day --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replay_each_day_ends_with_the_bytes_of_one_replay(crawl: Crawl, tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for path in crawl.paths:
        out = ("--out", tmp_path / "out") if path == crawl.paths[-1] else ()
        summary = json.loads(output_of("replay", path, "--state", tmp_path / "state", *out, "--json", "--quiet"))
        total.update({name: summary[name] for name in ("events_read", "visits", "announcements", "rejects", "late")})
        total["duplicates"] += summary["duplicates"]
    assert dict(total) == {name: crawl.summary[name] for name in total}
    assert state_files(tmp_path / "state") == state_files(crawl.state)
    for name in RESULTS:
        assert (tmp_path / f"out/{name}.jsonl").read_bytes() == (crawl.out / f"{name}.jsonl").read_bytes(), name
    last = tmp_path / crawl.files[-1].name
    last.write_bytes(crawl.files[-1].data + crawl.files[-1].rest)
    finished = json.loads(output_of("replay", last, "--state", tmp_path / "state", "--json", "--quiet"))
    assert (finished["events_read"], finished["announcements"]) == (1, 1)


# -- exports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "kind"), PAIRS)
def test_an_export_has_every_page_once(target: str, kind: str, crawl: Crawl, tmp_path: Path) -> None:
    name = ("--name", "a:b") if target == "scrapy-redis" else ()
    result = finished("export", kind, "--state", crawl.state, "--as", target, "--out", tmp_path / "export", *name)
    rows = records_of(crawl.out / f"{FILES[kind]}.jsonl")
    if kind == "schedule" and target in ("nutch", "redis"):
        never = sum(row["due"] is None for row in rows)
        assert (f"left out: {never:,} " in result.err) == (never > 0)
        rows = [row for row in rows if row["due"] is not None]
    assert rows and {row["url"] for row in rows} <= crawl.known_urls
    if kind == "importance":
        assert len(rows) == len(crawl.known_urls)
    data = (tmp_path / "export").read_bytes()
    assert sorted(pages_in(target, data)) == sorted(named(target, row["url"]) for row in rows)


def test_exported_importance_is_the_page_rank_of_an_independent_program(crawl: Crawl, tmp_path: Path) -> None:
    def exported(target: str) -> str:
        output_of("export", "importance", crawl.out, "--as", target, "--out", tmp_path / target)
        return (tmp_path / target).read_text(encoding="utf-8")

    pages, most = len(crawl.known_urls), crawl.summary["certificate"]
    table = {row["url"]: row for row in csv.DictReader(io.StringIO(exported("csv"), newline=""))}
    assert crawl.distance({url: float(row["importance"]) for url, row in table.items()}, crawl.ranks) <= most
    seeds = dict(re.findall(r"^(\S+)\tnutch\.score=(\S+)$", exported("nutch"), re.MULTILINE))
    scores = {url: float(score) / pages for url, score in seeds.items()}
    assert crawl.distance(scores, crawl.ranks) <= most + MOST_ROUNDING
    actions, documents = (map(json.loads, exported("opensearch").splitlines()[first::2]) for first in (0, 1))
    by_id = {one["update"]["_id"]: other["doc"]["score"] for one, other in zip(actions, documents, strict=True)}
    scores = {url: by_id[named("opensearch", url)] / pages for url in table}
    assert crawl.distance(scores, crawl.ranks) <= most + MOST_ROUNDING


# -- top, show, schedule, serve ----------------------------------------------------------------------------------------


def pages_to_show(crawl: Crawl) -> list[int]:
    """Return a page of each outcome, and one that was never read."""
    by_outcome = {outcome: page for page, outcome in crawl.count.outcomes.items()}
    assert len(by_outcome) == 8
    return [*by_outcome.values(), next(page for page in crawl.count.known if page not in crawl.count.visits)]


def test_top_has_the_pages_and_the_hosts_of_highest_rank(crawl: Crawl) -> None:
    most, urls = crawl.summary["certificate"], crawl.log.web.urls
    best = np.sort(crawl.ranks)[::-1]
    rows = json.loads(output_of("top", "--state", crawl.state, "-n", "50", "--json"))
    assert all(abs(row["importance"] - best[at]) <= most for at, row in enumerate(rows)) and len(rows) == 50
    assert all(abs(row["importance"] - crawl.ranks[crawl.number_of[row["url"]]]) <= most for row in rows)
    unread = json.loads(output_of("top", "--state", crawl.state, "-n", "20", "--unread", "--json"))
    highest = max(float(crawl.ranks[page]) for page in crawl.count.known if page not in crawl.count.visits)
    assert abs(unread[0]["importance"] - highest) <= most and {row["visits"] for row in unread} == {0}
    hosts: Counter[str] = Counter()
    for page in crawl.count.known:
        hosts[urls[page].split("/")[2]] += float(crawl.ranks[page])
    for row in json.loads(output_of("top", "--state", crawl.state, "-n", "20", "--by", "host", "--json")):
        assert abs(row["importance"] - hosts[row["host"]]) <= most


def test_show_finds_a_page_of_each_outcome_however_its_url_is_written(crawl: Crawl) -> None:
    web = crawl.log.web
    for number, page in enumerate(pages_to_show(crawl)):
        given = web.write_url(page, number / 30)
        found = json.loads(output_of("show", given, "--state", crawl.state, "--json"))
        assert found["url"] == web.urls[page]
        assert abs(found["importance"] - crawl.ranks[page]) <= crawl.summary["certificate"]
        assert found["visits"] == crawl.count.visits[page]
        assert found["last_outcome"] == crawl.count.outcomes.get(page, "NONE")
        words = output_of("show", given, "--state", crawl.state, "--why")
        assert words.startswith(f"{web.urls[page]}\n")


def test_schedule_plans_the_pages_of_the_log(crawl: Crawl, tmp_path: Path) -> None:
    count = crawl.count
    found = json.loads(output_of("schedule", "--state", crawl.state, "-n", "100000", "--json"))
    orders = [crawl.number_of[order["url"]] for order in found["orders"]]
    assert len(orders) == found["plan"]["orders"] > 0 and len(set(orders)) == len(orders) and count.known >= {*orders}
    for page, order in zip(orders, found["orders"], strict=True):
        assert (order["why"] == "DISCOVERY") <= (page not in count.answered)
        assert not (order["why"] == "REFRESH" and page not in count.visits)
    for row in records_of(
        crawl.out / "refresh-schedule.jsonl"
    ):  # those of gone pages, too, however often they are read
        assert row["due"] is None or row["due"] <= FIRST_MS + (crawl.log.days + 366) * DAY_MS, row["url"]
    output_of("schedule", "--state", crawl.state, "--export", tmp_path / "plan.csv")
    with open(tmp_path / "plan.csv", newline="", encoding="utf-8") as file:
        assert {row["url"] for row in csv.DictReader(file)} <= crawl.known_urls
    assert "harmonic" in output_of("schedule", "--state", crawl.state, "--compare")


def test_every_page_of_the_dashboard_answers_with_the_same_counts(crawl: Crawl) -> None:
    urls, shown = crawl.log.web.urls, pages_to_show(crawl)
    ids = {row["url"]: row["page"] for row in crawl.importance}
    host = quote(urls[shown[0]].split("/")[2], "")
    paths = ["/", "/pages", "/pages?unread=1", "/sites", "/sites?by=domain", "/plan", "/rejects", "/api", "/metrics"]
    paths += [f"/host/{host}", f"/domain/{domain_of(urls[shown[0]])}", "/search?q=2025", "/words"]
    paths += [f"/page/{ids[urls[page]]}" for page in shown]
    paths += ["/api/hosts", "/api/domains", "/api/orders", "/api/rejects", "/api/history", "/api/find?q=a"]
    paths += [f"/api/why?url={quote(urls[page], '')}" for page in shown]
    with served(StateSource(crawl.state)) as address, requests.Session() as session:

        def get(path: str) -> requests.Response:
            answer = session.get(address + path, timeout=120)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:200])
            return answer

        for path in paths:
            assert get(path).text
        summary = get("/api/summary").json()
        names = ("events_read", "visits", "announcements", "rejects", "duplicates", "late", "links")
        assert {name: summary["counts"][name] for name in names} == {name: crawl.summary[name] for name in names}
        assert (summary["pages"], summary["drift"]) == (len(crawl.count.known), 0)
        outcomes = Counter(crawl.count.outcomes.values())
        assert {name: count for name, count in summary["outcomes"].items() if name != "NONE"} == outcomes
        assert {one["name"] for one in get("/api/health").json()["checks"] if one["is_right"] is False} <= {"Rejects"}
        for page in shown:
            row = get(f"/api/page?url={quote(urls[page], '')}").json()
            assert row["url"] == urls[page] and row["visits"] == crawl.count.visits[page]
            assert abs(row["importance"] - crawl.ranks[page]) <= crawl.summary["certificate"]
