"""The benchmarks and the accuracy table run, at tiny sizes, and write the promised files. Nothing is timed here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import groups_of_benchmarks
from benchmarks.machines import PAGE_BYTES, READ_SHARE
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.ledger.config import HISTORIES
from support.paths import TOP

WITHOUT_SERVICES = [
    "certified",
    "community",
    "frontier",
    "graph",
    "log_bytes",
    "long_replay",
    "refresh",
    "real_replay",
    "replay",
    "polite",
    "scrapy",
    "serve",
    "shard",
    "urls",
    "web",
]
TESTED_ALONE = ["ledger", "placement"]
WITH_SERVICES = ["kafka", "stream", "stream_shards"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=TOP, text=True, capture_output=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, object]]]:
    """Return the output of the group `ledger`, and the figures in its file."""
    out = tmp_path_factory.mktemp("bench") / "build" / "bench.json"
    done = run("-m", "benchmarks", "ledger", "--scale", "tiny", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_bench_json_is_a_list_of_figures(bench: tuple[str, list[dict[str, object]]]) -> None:
    _, figures = bench
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "baseline", "ratio"]
        assert str(figure["name"]).startswith("ledger.")
        assert isinstance(figure["unit"], str)
        assert isinstance(figure["value"], float)
        assert figure["value"] > 0
        assert (figure["baseline"] is None) == (figure["ratio"] is None)
        if isinstance(figure["baseline"], float):
            assert figure["ratio"] == pytest.approx(figure["value"] / figure["baseline"], rel=1e-4)
    names = [figure["name"] for figure in figures]
    assert len(set(names)) == len(names)
    assert {
        "ledger.transfers_vs_random_adds",
        "ledger.transfers_vs_python_dicts",
        "ledger.transfers_per_second",
        "ledger.visits_per_second",
        "ledger.bytes_per_page",
        "ledger.growth_pause",
    } <= set(names)


def test_the_bench_table_has_a_line_for_every_figure(bench: tuple[str, list[dict[str, object]]]) -> None:
    printed, figures = bench
    machine, how, empty, head, *lines = printed.splitlines()
    assert "cores" in machine and "numpy" in machine and "numba" in machine
    assert "ratio" in how
    assert empty == ""
    assert head.split() == ["figure", "value", "unit", "baseline", "ratio", "how"]
    assert [line.split()[0] for line in lines] == [figure["name"] for figure in figures]
    assert {line[: head.index("unit")].count("  ") > 0 for line in lines} == {True}


@pytest.mark.slow
def test_the_group_placement_compares_ids_by_url_with_ids_by_site(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = run("-m", "benchmarks", "placement", "--scale", "tiny", "--out", str(out))
    assert done.returncode == 0, done.stderr
    figures = {figure["name"].removeprefix("placement."): figure for figure in json.loads(out.read_text())}
    assert list(figures) == [
        "items_a_visit_url_over_site",
        "link_bytes_url_over_site",
        "error_after_backlog_url_over_site",
        "busiest_over_mean",
        "busiest_over_mean_equal",
        "find_shard",
    ]
    for name in ("items_a_visit_url_over_site", "link_bytes_url_over_site", "error_after_backlog_url_over_site"):
        assert figures[name]["ratio"] > 1, "all three are smaller by site"
    assert 1 <= figures["busiest_over_mean"]["value"] <= 1.1 < figures["busiest_over_mean_equal"]["value"]


def test_every_group_is_one_that_is_tested_or_needs_services() -> None:
    assert groups_of_benchmarks() == sorted([*WITHOUT_SERVICES, *TESTED_ALONE, *WITH_SERVICES])


def test_an_unknown_group_is_one_line_and_exit_code_2() -> None:
    done = run("-m", "benchmarks", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "'nothing'" in done.stderr and "ledger" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("group", WITHOUT_SERVICES)
def test_every_group_without_services_runs(group: str, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = run("-m", "benchmarks", group, "--scale", "tiny", "--out", str(out))
    assert done.returncode == 0, done.stderr
    name = group.removeprefix("long_").removesuffix("_replay")
    assert all(figure["name"].startswith(f"{name}.") for figure in json.loads(out.read_text()))


@pytest.mark.slow
def test_the_accuracy_page_has_every_table_filled(tmp_path: Path) -> None:
    out = tmp_path / "docs" / "results" / "accuracy.md"
    done = run("benchmarks/accuracy.py", "--pages", "100", "--out", str(out))
    assert done.returncode == 0, done.stderr
    page = out.read_text(encoding="utf-8")
    assert "a made-up web of 100 pages" in page and "--pages 100" in page
    policies, *tables = re.findall(r"(?:^\|.*\n)+", page, flags=re.M)
    assert len(policies.splitlines()) == 2 + 8
    assert len(tables) == page.count("\n## ")
    figure = re.compile(r"(0\.\d\d|[1-9]\.\d|\d\d+) / (0\.\d\d|[1-9]\.\d|\d\d+)|[\d.e-]+ ≤ [\d.e+-]+")
    for table in tables:
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        assert {len(row) for row in rows} == {len(rows[0])}
        measured = [
            i
            for i, name in enumerate(rows[0])
            if re.match(r"after|at once|as it is|to a tolerance|of |\dN|proof", name)
        ]
        assert measured
        assert [row for row in rows[2:] if not all(figure.fullmatch(row[i]) for i in measured)] == []
    assert len(tables[1].splitlines()) == 2 + 8 * 4


def test_a_web_too_small_for_the_accuracy_page_is_one_line_and_exit_code_2() -> None:
    done = run("benchmarks/accuracy.py", "--pages", "5")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_the_guide_has_the_table_of_several_machines() -> None:
    done = run("-m", "benchmarks.machines")
    assert done.returncode == 0, done.stderr
    assert done.stdout in (TOP / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")


def test_the_guide_has_the_table_of_the_web_of_the_paper() -> None:
    done = run("-m", "benchmarks.machines", "--web", "2000000000")
    assert done.returncode == 0, done.stderr
    assert done.stdout in (TOP / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGE_BYTES)
def test_a_page_takes_the_memory_that_the_table_says(name: str) -> None:
    """Columns of 40,000 pages, of which 40 % were read. A smaller web has more room to grow, and fewer links each."""
    pages, of_urls = 40_000, {"urls", "url_end", "recent", "links", "announced"}
    web, ids = power_law_web(pages, 1), page_ids(pages, 1)
    ledger = Ledger(LedgerConfig(history=HISTORIES[name](), remembered_visits=1 << 10))
    ledger.apply(announcements(ids))
    ledger.apply(visits(web, ids, np.arange(int(READ_SHARE * pages)), pages))
    room = ledger._room
    columns = {**room.table._asdict(), **room.book._asdict()}
    taken = sum(column.nbytes for name, column in columns.items() if name not in of_urls) / pages
    assert taken == pytest.approx(PAGE_BYTES[name].columns, rel=0.12)


def test_more_machines_hold_more_until_the_slots_of_a_job_are_used_up(tmp_path: Path) -> None:
    slow = tmp_path / "bench.json"
    slow.write_text(json.dumps([{"name": "stream.cpu_vs_replay", "value": 180.0}]))

    def row(name: str, *arguments: str) -> list[int]:
        done = run("-m", "benchmarks.machines", "--machines", "1", "4", "16", "64", *arguments)
        (found,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", done.stdout, re.MULTILINE)
        return [int(re.sub(r"\D", "", cell)) for cell in found.split("|")]

    pages = row("pages that the memory holds")
    assert pages == sorted(set(pages))
    assert row("pages that the memory holds", "--memory-gb", "128") > pages
    first, second, *rest = row("most events/s, as in a rebuild", "--figures", str(slow))
    assert second == pytest.approx(4 * first, rel=0.1)
    assert rest == [pytest.approx(rest[0], rel=0.1)] * 2, "128 slots are those of eight machines"
