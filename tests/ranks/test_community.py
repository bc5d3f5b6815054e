"""`opicflow community`: plan, rank, impact and try, alone and in a loop with a crawler."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import HostedWeb, hosted_web
from opicflow.pipelines.ranks.crawled_web import Urls, crawled_in_logs
from opicflow.pipelines.ranks.graph.community import Expansion, RecordedWeb, find_global_ranks, influence
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.pages import page_id, page_ids
from support.commands import command, finished, output_of, refusal
from support.paths import TOP

GUIDE = (TOP / "docs" / "guides" / "communities.md").read_text(encoding="utf-8")

Event = dict[str, Any]


def event(url: str, links: Iterable[str] | None = (), status: int = 200, **more: Any) -> Event:
    return {"url": url, "status": status, **({} if links is None else {"links": list(links)}), **more}


def write(path: Path, events: Iterable[Event]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


def read(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"
SMALL = [
    event(A, [A + "1", B, C]),
    event(A + "1", [A, B]),
    event(B, [A, C + "unread"]),
]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.txt"
    path.write_text("# the domain\na.example  # ours\n\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log.jsonl", SMALL)


# -- plan


def test_a_plan_orders_the_frontier_by_influence(log: Path, hosts: Path, tmp_path: Path) -> None:
    out = tmp_path / "orders.jsonl"
    printed = output_of("community", "plan", "--local", hosts, "--from", log, "--pages", 9, "--out", out, "--quiet")
    assert "read: 2 pages of the local domain, 1 others; 0 failed; frontier: 2 pages" in printed
    assert "these orders are the whole frontier" in printed
    orders = read(out)
    assert {order["url"] for order in orders} == {C, C + "unread"}
    assert [order["priority"] for order in orders] == sorted((order["priority"] for order in orders), reverse=True)
    assert all(order["page"] == f"{page_id(order['url']):016x}" for order in orders)
    assert {order["why"] for order in orders} == {"DISCOVERY"} and {order["host"] for order in orders} == {"c.example"}
    found = json.loads(
        output_of("community", "plan", "--local", hosts, "--from", log, "--pages", 1, "--out", out, "--json", "--quiet")
    )
    assert found["ordered"] == 1 and found["frontier"] == 2
    assert read(out) == orders[:1]
    assert found["orders"][0]["influence"] == orders[0]["priority"]
    assert found["orders"][0]["expected_rank"] == orders[0]["importance"]


def test_a_log_with_other_names_of_fields_has_the_same_plan(log: Path, hosts: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "x", ({"page_url": one["url"], "found": one["links"]} for one in SMALL))
    reading = ("--field", "url=page_url", "--field", "links=found")
    plan = ("community", "plan", "--local", hosts, "--pages", 9, "--quiet", "--out")
    output_of(*plan, tmp_path / "a.jsonl", "--from", log)
    output_of(*plan, tmp_path / "b.jsonl", "--from", other, *reading)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_orders_are_records_of_the_published_schema(log: Path, hosts: Path, tmp_path: Path) -> None:
    for name in ("orders.jsonl", "orders.avro"):
        output_of(
            "community", "plan", "--local", hosts, "--from", log, "--pages", 9, "--out", tmp_path / name, "--quiet"
        )
    with (tmp_path / "orders.avro").open("rb") as file:
        reader = fastavro.reader(file)
        records = list(reader)
        assert reader.writer_schema["name"] == "opicflow.CrawlOrder"
    lines = read(tmp_path / "orders.jsonl")
    assert [(one["url"], one["priority"]) for one in records] == [(one["url"], one["priority"]) for one in lines]
    assert [set(one) for one in records] == [set(one) for one in lines]


@pytest.mark.parametrize("select", ["flow", "linkers", "random", "importance"])
def test_other_selections_order_the_same_frontier(select: str, log: Path, hosts: Path, tmp_path: Path) -> None:
    output_of("replay", log, "--state", tmp_path / "state", "--out", tmp_path / "out", "--remember-links", "--quiet")
    out = tmp_path / "orders.jsonl"
    source = ["--state", tmp_path / "state"] if select == "importance" else ["--from", log]
    output_of("community", "plan", "--local", hosts, *source, "--pages", 9, "--select", select, "--out", out, "--quiet")
    orders = {order["url"]: order["priority"] for order in read(out)}
    assert set(orders) == {C, C + "unread"}
    if select == "linkers":
        assert set(orders.values()) == {1.0}
    if select == "importance":
        importance = {row["url"]: row["importance"] for row in read(tmp_path / "out" / "importance.jsonl")}
        assert orders == {url: pytest.approx(importance[url]) for url in orders}


# -- the loop


def url_of(web: HostedWeb, page: int) -> str:
    return f"https://host{web.host[page]}.example/{web.number[page]}"


def events_of(web: HostedWeb, pages: Iterable[int]) -> list[Event]:
    graph = web.graph
    return [
        event(
            url_of(web, page),
            (url_of(web, target) for target in graph.targets[graph.starts[page] : graph.starts[page + 1]]),
        )
        for page in pages
    ]


def test_the_loop_fetches_the_same_pages_as_the_library_and_gets_its_ranks(tmp_path: Path) -> None:
    web = hosted_web(1500, 3, hosts=12, mean_links=5)
    urls = [url_of(web, page) for page in range(1500)]
    number = {url: page for page, url in enumerate(urls)}
    home = int(np.argsort(np.bincount(web.host))[6])
    own = np.flatnonzero(web.host == home).tolist()
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"host{home}.example\n")
    logs, read_so_far, dead = [write(tmp_path / "0.jsonl", events_of(web, own))], set(own), set(range(0, 1500, 9))
    for round_ in range(1, 4):
        out = tmp_path / "orders.jsonl"
        output_of("community", "plan", "--local", hosts, "--from", *logs, "--pages", 40, "--out", out, "--quiet")
        ordered = [number[order["url"]] for order in read(out)]
        assert len(ordered) == 40 and not read_so_far & set(ordered)
        read_so_far |= set(ordered)
        answers = [event(urls[page], None, 404) for page in ordered if page in dead]
        answers += events_of(web, [page for page in ordered if page not in dead])
        logs.append(write(tmp_path / f"{round_}.jsonl", answers))
    output_of("community", "rank", "--local", hosts, "--from", *logs[::-1], "--out", tmp_path / "r.csv", "--quiet")
    with (tmp_path / "r.csv").open() as file:
        found = {int(row["page"], 16): float(row["importance"]) for row in csv.DictReader(file)}

    ids = page_ids(urls)
    sources = np.repeat(np.arange(1500), web.graph.out_degrees)
    order = np.argsort(ids)
    index = np.argsort(order)
    by_id = Graph.from_links(1500, index[sources], index[web.graph.targets])
    whole = RecordedWeb.of_graph(by_id).fetch(np.arange(1500, dtype=np.uint64))
    named = whole._replace(pages=ids[order], link_pages=ids[order][whole.link_pages.astype(np.int64)])
    alive = RecordedWeb(
        RecordedWeb(named).fetch(ids[[page for page in range(1500) if page not in dead or page in set(own)]])
    )
    expansion = Expansion()
    expansion.add(alive.fetch(np.sort(ids[own])), np.ones(len(own), np.bool_))
    select = lambda frontier, ranks, round_: influence(frontier, ranks)  # noqa: E731
    steps = list(find_global_ranks(expansion, alive, select, 3, 40, tolerance=1e-9))
    assert sum(step.fetched + step.failed for step in steps) == 120 and sum(step.failed for step in steps) > 0
    estimate = steps[-1].estimate
    assert sorted(found) == estimate.pages.tolist()
    assert [found[page] for page in estimate.pages.tolist()] == pytest.approx(estimate.values, abs=1e-8)


def test_a_plan_does_not_depend_on_the_order_and_number_of_logs(log: Path, hosts: Path, tmp_path: Path) -> None:
    outs = []
    cuts = [[log], [write(tmp_path / f"{at}.jsonl", [one]) for at, one in enumerate(SMALL)]]
    for logs in (*cuts, cuts[1][::-1], cuts[0]):
        out = tmp_path / "orders.jsonl"
        output_of("community", "plan", "--local", hosts, "--from", *logs, "--pages", 5, "--out", out, "--quiet")
        outs.append(out.read_bytes())
    assert len(set(outs)) == 1


def test_a_crawler_killed_within_a_line_loses_only_that_page(log: Path, hosts: Path, tmp_path: Path) -> None:
    whole = json.dumps(event(C, [A])) + "\n"
    fetched = tmp_path / "fetched.jsonl"
    fetched.write_text(whole + json.dumps(event(C + "unread", [B]))[:20])
    out = tmp_path / "orders.jsonl"
    arguments = ("community", "plan", "--local", hosts, "--from", log, fetched, "--pages", 5, "--out", out, "--quiet")
    assert command(*arguments).code == 0
    assert [order["url"] for order in read(out)] == [C + "unread"]


def test_a_killed_plan_leaves_the_earlier_orders_and_repeats_to_the_same_bytes(
    log: Path, hosts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "orders.jsonl"
    output_of("community", "plan", "--local", hosts, "--from", log, "--pages", 5, "--out", out, "--quiet")
    before = out.read_bytes()
    opicflow = Path(sys.executable).with_name("opicflow")
    arguments = ["community", "plan", "--local", hosts, "--from", log, "--pages", "5", "--out", out, "--quiet"]
    for seconds in (0.2, 0.7, 1.2):
        plan = subprocess.Popen([opicflow, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)  # noqa: TID251
        os.kill(plan.pid, signal.SIGKILL)
        plan.wait()
        assert out.read_bytes() == before
    output_of(*arguments)
    assert out.read_bytes() == before


# -- visits that count


def crawled(path: Path) -> tuple[dict[str, dict[int, int]], set[int], Urls]:
    """Return the links of fetched pages by URL, the pages that failed, and all URLs."""
    known = crawled_in_logs([str(path)], Rules(), lambda events, seconds: None)
    fetched = known.fetched
    links = [
        dict(zip(fetched.link_pages[begin:end].tolist(), fetched.link_weights[begin:end].tolist(), strict=True))
        for begin, end in zip(fetched.link_starts[:-1], fetched.link_starts[1:], strict=True)
    ]
    assert (np.diff(fetched.pages.astype(object)) > 0).all()
    return dict(zip(known.urls.texts(fetched.pages), links, strict=True)), set(fetched.failed.tolist()), known.urls


def test_the_last_visit_with_links_counts(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log.jsonl",
        [
            event(A, [B]),
            event(B, [A]),
            event(A, [C], redirects=[C + "moved"]),
            event(A, None, 304),
            event(B, None, 503),
            event(C, None, 503),
            event(C + "gone", [A]),
            event(C + "gone", None, 410),
            event(C + "late", None, 404),
            event(C + "late", [A]),
        ],
    )
    links, failed, urls = crawled(log)
    assert {url: set(targets) for url, targets in links.items()} == {
        A: {page_id(C)},
        B: {page_id(A)},
        C + "moved": {page_id(A)},
        C + "late": {page_id(A)},
    }
    assert failed == {page_id(C), page_id(C + "gone")}
    unknown = np.array([page_id("https://unknown.example/"), 0, 2**64 - 1], np.uint64)
    assert urls.texts(unknown) == ["", "", ""]
    assert urls.texts(page_ids([C, A, C])) == [C, A, C]


def test_lines_of_an_edge_list_are_one_visit(tmp_path: Path) -> None:
    log = tmp_path / "links.tsv"
    log.write_text(f"{A}\t{B}\n{B}\t{A}\n{A}\t{C}\n")
    links, failed, _ = crawled(log)
    assert {url: set(targets) for url, targets in links.items()} == {A: {page_id(B), page_id(C)}, B: {page_id(A)}}
    assert not failed


def test_a_state_gives_the_same_results_as_its_log(log: Path, hosts: Path, tmp_path: Path) -> None:
    output_of("replay", log, "--state", tmp_path / "state", "--out", tmp_path / "out", "--remember-links", "--quiet")
    for what in (["plan", "--pages", 5], ["rank"], ["impact"]):
        both = [
            json.loads(output_of("community", what[0], "--local", hosts, *source, *what[1:], "--json", "--quiet"))
            for source in (["--from", log], ["--state", tmp_path / "state"])
        ]
        for one in both:
            del one["seconds"]
        assert both[0] == both[1]


# -- rank, impact, try


def test_ranks_are_those_of_the_pages_read(log: Path, hosts: Path, tmp_path: Path) -> None:
    found = json.loads(output_of("community", "rank", "--local", hosts, "--from", log, "--json", "--quiet"))
    f = pagerank(Graph.from_links(3, [0, 0, 1, 1, 2], [1, 2, 0, 2, 0]), tolerance=1e-12).values
    expected = {A: f[0] / (f[0] + f[1]), A + "1": f[1] / (f[0] + f[1])}
    assert {row["url"]: row["rank"] for row in found["top"]} == {
        u: pytest.approx(r, abs=1e-8) for u, r in expected.items()
    }
    for name in ("r.csv", "r.jsonl.gz", "r.parquet"):
        out = tmp_path / name
        assert f"written: {out}, 2 pages" in output_of(
            "community", "rank", "--local", hosts, "--from", log, "--out", out, "--quiet"
        )
        assert re.search(r"^  L1 +0$", output_of("compare", tmp_path / "r.csv", out, "--worst", 0), re.MULTILINE)


def test_the_domain_may_be_named_by_pages(log: Path, tmp_path: Path) -> None:
    local = tmp_path / "pages.txt"
    local.write_text(f"{A}1\nHTTPS://B.example\n")
    found = json.loads(output_of("community", "rank", "--local", local, "--from", log, "--json", "--quiet"))
    assert {row["url"] for row in found["top"]} == {A + "1", B}


def test_impact_lists_the_other_pages_that_give_most(log: Path, hosts: Path, tmp_path: Path) -> None:
    found = json.loads(output_of("community", "impact", "--local", hosts, "--from", log, "--json", "--quiet"))
    (page,) = found["pages"]
    assert page["url"] == B and page["impact"] == pytest.approx(page["rank"] / 2)  # one of its two links
    assert "50%  https://b.example/" in output_of("community", "impact", "--local", hosts, "--from", log, "--quiet")
    alone = write(tmp_path / "alone.jsonl", SMALL[:2])
    printed = output_of("community", "impact", "--local", hosts, "--from", alone, "--quiet")
    assert "no other page that was read links to the local domain" in printed


def test_try_measures_on_a_complete_crawl_how_many_pages_are_enough(tmp_path: Path) -> None:
    web = hosted_web(600, 3, hosts=6, mean_links=5)
    log, hosts = write(tmp_path / "log.jsonl", events_of(web, range(600))), tmp_path / "hosts.txt"
    hosts.write_text("host2.example\n")
    tried = ("community", "try", "--local", hosts, "--from", log, "--pages", 50, "--rounds", 30, "--quiet")
    found = json.loads(output_of(*tried, "--json"))
    for select in ("influence", "flow", "linkers", "random"):
        rows = [row for row in found["rounds"] if row["select"] == select]
        assert rows[0]["read"] == 0 and rows[0]["l1"] > 0.01
        assert rows[-1]["l1"] < 0.02 * rows[0]["l1"]  # every reachable page was read
    assert re.search(r"^influence +0 +0 +0\.\d+", output_of(*tried), re.MULTILINE)


def test_a_domain_that_is_the_whole_web_has_an_empty_frontier(tmp_path: Path) -> None:
    log, hosts = write(tmp_path / "log.jsonl", [event(A, [A + "1"]), event(A + "1", [A])]), tmp_path / "hosts.txt"
    hosts.write_text("a.example\n")
    out = tmp_path / "orders.jsonl"
    printed = output_of("community", "plan", "--local", hosts, "--from", log, "--pages", 5, "--out", out, "--quiet")
    assert "0 pages ordered" in printed and read(out) == []
    assert "0.5000000" in output_of("community", "rank", "--local", hosts, "--from", log, "--quiet")
    tried = output_of("community", "try", "--local", hosts, "--from", log, "--pages", 5, "--quiet")
    assert "\ninfluence " in tried and "L1 is the sum of all differences, worst that of one page\n" in tried


# -- refusals


def refused(*arguments: object) -> str:
    return refusal("community", *arguments, "--quiet")


def test_wrong_options_give_one_line_of_error(log: Path, hosts: Path, tmp_path: Path) -> None:
    plan = ("plan", "--local", hosts, "--pages", 5)
    assert "name logs with --from, or a replay's state" in refused(*plan)
    assert "name logs with --from, or a replay's state" in refused(*plan, "--from", log, "--state", tmp_path)
    assert "no such file" in refused(*plan, "--from", tmp_path / "nothing.jsonl")
    assert "damping 1.0: must be above 0 and below 1" in refused(*plan, "--from", log, "--damping", 1)
    assert "give the state of a replay" in refused(*plan, "--from", log, "--select", "importance")
    assert "orders end in .jsonl or .avro" in refused(*plan, "--from", log, "--out", tmp_path / "orders.csv")
    assert "ranks end in .csv" in refused("rank", "--local", hosts, "--from", log, "--out", tmp_path / "ranks.txt")
    output_of("replay", log, "--state", tmp_path / "state", "--history", "interpolation", "--quiet")
    assert "remembers no links" in refused(*plan, "--state", tmp_path / "state")
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty" in refused(*plan, "--from", tmp_path / "empty.jsonl")
    for text, problem in (
        ("", "no host in it"),
        ("a b\n", "line 1: neither a host nor a URL"),
        ("ok.example\nhttp://\n", "line 2: neither a host nor a URL"),
        ("a.example/path\n", "line 1: neither a host nor a URL"),
        ("d.example\n", "none of its pages is in"),
    ):
        other = tmp_path / "other.txt"
        other.write_text(text)
        assert problem in refused("rank", "--local", other, "--from", log)
    assert "cannot be read" in refused("rank", "--local", tmp_path / "none.txt", "--from", log)


@pytest.mark.slow
def test_the_loop_of_the_guide_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TOP / "examples", tmp_path / "examples")
    (block,) = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
    steps = re.findall(r"^\$ (.*(?:\n    .*)*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert len(steps) >= 6
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> str:
        """Run a line of the shell; a loop line by line, and a plain command in this process, which starts at once."""
        if line.startswith("for "):
            times, body = re.fullmatch(r"for \w+ in ([^;]+); do\n(.*)\n +done", line, re.DOTALL).groups()  # type: ignore[union-attr]
            return "".join(run(one.strip()) for _ in times.split() for one in body.splitlines())
        _, *words = line.removesuffix(" > /dev/null").split()
        if line.startswith("opicflow ") and not set(words) & set("|>"):
            result = finished(*words, "--quiet")
            assert re.fullmatch(r"(\d+ events? rejected: opicflow validate shows them\n)?", result.err), result
            return "" if line.endswith(" > /dev/null") else result.out
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=tools, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    for line, printed in steps:
        assert run(line) == printed, line
