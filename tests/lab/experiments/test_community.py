"""Experiments of paper 004: their measures, on synthetic webs and on edge lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.catalogue import EXPERIMENTS
from opicflow.pipelines.lab.experiments.communities.accuracy import (
    AT_FIRST,
    HALF_WAY,
    IMPORTANCE,
    OUTLINKS,
    RANDOM,
    SC,
    STRATEGIES,
    communities,
    impact,
    influences,
    measured,
    pace,
    selection_named,
)
from opicflow.pipelines.lab.experiments.communities.community_experiments import correlations, of_seeds, share_of_gain
from opicflow.pipelines.lab.experiments.communities.domains import (
    FEWEST_PAGES,
    LARGEST_SHARE,
    SITES,
    TOPICS,
    WEBS,
    SurveyedWeb,
    around,
    generate_web,
    survey_edge_list,
    survey_web,
)
from opicflow.pipelines.lab.experiments.measures import exact_importance, linear_correlation
from opicflow.pipelines.lab.experiments.tables import Row, where
from opicflow.pipelines.ranks.graph.community import RecordedWeb
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from support.commands import CommandResult, command, output_of, refusal

PAGES = 3_000
NAMES = ("table1", "table2", "influence", "community")


def pagerank_of_domain(graph: Graph, pages: np.ndarray, local: np.ndarray) -> np.ndarray:
    """Return the ranks of a domain in the subgraph of some pages, without an `Expansion`."""
    number = np.full(graph.pages, -1)
    number[pages] = np.arange(len(pages))
    sources = np.repeat(np.arange(graph.pages), graph.out_degrees)
    inside = (number[sources] >= 0) & (number[graph.targets] >= 0)
    part = Graph.from_links(len(pages), number[sources[inside]], number[graph.targets[inside]], graph.weights[inside])
    ranks = pagerank(part, tolerance=1e-13).values[number[local]]
    return ranks / ranks.sum()


# Domains


@pytest.mark.parametrize("web", WEBS)
def test_domains_are_much_smaller_than_their_web(web: str) -> None:
    for name in (*SITES, *TOPICS):
        known = survey_web(name, PAGES, 1, web)
        pages = known.domains[name].pages
        assert 2 <= len(pages) <= known.graph.pages // LARGEST_SHARE
        assert (np.diff(pages) > 0).all()


def test_sites_are_hosts_of_the_papers_shares_of_the_web() -> None:
    web, known = generate_web(30_000, 2), survey_web("site 1", 30_000, 2)
    sizes = [len(known.domains[name].pages) for name in SITES]
    for name in SITES:
        (host,) = np.unique(web.host[known.domains[name].pages])
        assert len(known.domains[name].pages) == (web.host == host).sum()
    assert sizes == sorted(sizes, reverse=True)
    assert np.array(sizes) / 30_000 == pytest.approx(np.geomspace(59_895 / 4.7e6, 10_626 / 4.7e6, 5), rel=0.1)


def test_the_web_around_a_topic_is_a_crawl_with_unread_last_pages() -> None:
    web, known = generate_web(30_000, 2), survey_web("topic", 30_000, 2)
    assert known.graph.pages < web.graph.pages
    dangling = (known.graph.out_degrees == 0).mean()
    assert dangling > (web.graph.out_degrees == 0).mean() + 0.1
    assert set(TOPICS) == set(known.domains)


def test_the_surroundings_of_pages_are_found_link_by_link_up_to_a_limit() -> None:
    chain = Graph.from_links(6, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5])
    assert around(chain, np.array([1]), 2, 6).tolist() == [1, 2, 3]
    assert around(chain, np.array([1]), 9, 4).tolist() == [1, 2, 3, 4]
    assert around(chain, np.array([5, 0]), 1, 6).tolist() == [0, 1, 5]


# Rounds


@pytest.fixture(scope="module")
def rounds() -> list[Row]:
    return communities(PAGES, 1, "site 1")


def test_round_0_is_the_domain_alone(rounds: list[Row]) -> None:
    known = survey_web("site 1", PAGES, 1)
    local = known.domains["site 1"].pages
    alone = pagerank_of_domain(known.graph, local, local)
    true = known.exact[local] / known.exact[local].sum()
    for row in where(rounds, round=0):
        assert row["l1"] == pytest.approx(np.abs(alone - true).sum(), abs=1e-5)
        assert row["linf"] == pytest.approx(np.abs(alone - true).max(), abs=1e-5)
        assert row["l2"] == pytest.approx(np.sqrt(((alone - true) ** 2).sum()), abs=1e-5)
        assert (row["read"], row["covered"]) == (0, 0.0)


def test_every_strategy_has_a_row_a_round_and_reads_about_twice_the_domain(rounds: list[Row]) -> None:
    size, most = int(rounds[0]["n"]), pace(survey_web("site 1", PAGES, 1).domains["site 1"])[0]
    assert size >= FEWEST_PAGES
    for strategy in STRATEGIES:
        chosen = where(rounds, strategy=strategy)
        assert [row["round"] for row in chosen] == list(range(most + 1))
        assert int(chosen[-1]["read"]) == pytest.approx(2 * size, rel=0.3)
        assert float(chosen[-1]["l1"]) < float(chosen[0]["l1"])


@pytest.mark.parametrize("strategy", [SC, OUTLINKS, RANDOM, IMPORTANCE])
def test_reading_the_whole_web_gives_the_true_ranks(strategy: str) -> None:
    random = np.random.default_rng(1)
    pages, more = np.arange(400), random.integers(0, 400, (2, 1500))
    # A ring: every page can be reached.
    graph = Graph.from_links(400, [*pages, *more[0]], [*np.roll(pages, 1), *more[1]])
    known = SurveyedWeb(graph, exact_importance(graph), RecordedWeb.of_graph(graph), {})
    rows = measured(known, pages[:30], selection_named(strategy, known, 1), 40, 20)
    assert rows[-1]["l1"] == pytest.approx(0.0, abs=1e-4)
    assert rows[-1]["kendall"] == pytest.approx(1.0, abs=0.01)
    assert rows[-1]["covered"] == pytest.approx(1.0) and rows[-1]["frontier"] == 0
    assert [row["round"] for row in rows] == list(range(41))  # after the end, the last row is repeated


def test_impact_is_the_rank_that_links_carry_into_the_domain() -> None:
    known = survey_web("site 1", PAGES, 1)
    local, graph = known.domains["site 1"].pages, known.graph
    found = impact(known, local)
    for page in (int(np.argmax(found)), int(np.argmin(found)), int(local[0])):
        links = graph.targets[graph.starts[page] : graph.starts[page + 1]]
        share = np.isin(links, local).mean() if len(links) else 0.0
        assert found[page] == pytest.approx(known.exact[page] * share)


# Figure 1


@pytest.mark.parametrize("moment", [AT_FIRST, HALF_WAY])
def test_the_gain_of_a_page_equals_that_of_the_ranks_with_it(moment: str) -> None:
    rows = influences(PAGES, 1, "subtopic 1", moment)
    known = survey_web("subtopic 1", PAGES, 1)
    local = known.domains["subtopic 1"].pages
    true = known.exact[local] / known.exact[local].sum()
    before = pagerank_of_domain(known.graph, local, local)
    sources = np.repeat(np.arange(known.graph.pages), known.graph.out_degrees)
    for row in (rows[0], rows[-1]):
        assert row["linkers"] >= 1.0 and row["influence"] > 0.0
        assert row["gain"] == pytest.approx(rows[0]["diff"] + rows[0]["gain"] - row["diff"])
        if moment == AT_FIRST:
            page = int(row["page"])
            after = pagerank_of_domain(known.graph, np.append(local, page), local)
            assert row["diff"] == pytest.approx(np.abs(after - true).sum(), abs=1e-9)
            assert row["moved"] == pytest.approx(np.abs(after - before).sum(), abs=1e-9)
            assert row["linkers"] == np.isin(sources[known.graph.targets == page], local).sum()


def test_correlations_and_shares_are_computed_for_each_seed() -> None:
    rows: list[Row] = [
        {"seed": seed, "gain": float(gain), "score": float(gain if seed == 1 else -gain)}
        for seed in (1, 2)
        for gain in range(1, 21)
    ]
    for found in correlations(rows, "score", "gain"):
        assert found == pytest.approx((0.0, 1.0))
    assert share_of_gain(rows, "score") == pytest.approx((50 * (1 + 3 / 39), 50 * (1 - 3 / 39)))
    assert of_seeds(rows, "score") == (0.0, 10.5)
    one, other = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 1.0])
    assert linear_correlation(one, other) == pytest.approx(np.corrcoef(one, other)[0, 1])
    assert linear_correlation(one, np.ones(3)) == 0.0


# The command


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:
    out = tmp_path_factory.mktemp("communities")
    return command("experiment", *NAMES, "--out", out, "--pages", 1000, "--runs", 1, "--processes", 1, "--quiet"), out


def test_the_command_reports_tables_curves_and_results(reported: tuple[CommandResult, Path]) -> None:
    done, out = reported
    assert (done.code, done.err) == (0, ""), done
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "Webs of 1,000 pages; seed 1. Errors" in report
    for name in NAMES:
        assert f"## {EXPERIMENTS[name].title}" in report
    assert "0.0384" in report and "| Kendall's tau |" in report  # beside the paper's
    for name in ("largest-site", "sites", "topic", "subtopics"):
        assert (out / "plots" / f"community-{name}.svg").stat().st_size > 5_000
    assert "nan" not in report and "| - |" not in report
    for name in ("influence", "linkers"):
        assert (out / "plots" / f"influence-{name}.png").stat().st_size > 5_000
    lines = (out / "data" / "community.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("seed,web,domain,kind,n,strategy,round,read,frontier,l1,linf,l2,kendall")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(
    reported: tuple[CommandResult, Path], tmp_path: Path
) -> None:
    for seed, alike in ((1, True), (2, False)):
        command(
            *("experiment", "table1", "--out", tmp_path, "--pages", 1000, "--runs", 1),
            *("--seed", seed, "--processes", 1, "--quiet"),
        )
        csv = (tmp_path / "data" / "community-sites.csv").read_bytes()
        assert (csv == (reported[1] / "data" / "community-sites.csv").read_bytes()) is alike


def test_experiments_define_their_own_size() -> None:
    assert {EXPERIMENTS[name].pages for name in NAMES} == {300_000}
    others = {name: one.pages for name, one in EXPERIMENTS.items() if name not in NAMES}
    assert (others.pop("loop-refresh"), others.pop("loop")) == (1_000, 20_000)
    assert {others.pop(name) for name in ("discovery", "manipulation", "sites", "updates")} == {10_000}
    assert set(others.values()) == {100_000}


# Edge lists


def edges_of(pages: int, hosts: int) -> Iterator[str]:
    """Yield the lines of an edge list: hosts of equal size, with half of their links internal."""
    random = np.random.default_rng(7)
    names = [f"https://host-{page % hosts}.example/{page}" for page in range(pages)]
    for page in range(pages):
        for _ in range(4):
            other = int(random.integers(pages))
            yield f"{names[page]}\t{names[other if random.random() < 0.5 else other - other % hosts + page % hosts]}\n"


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.tsv"
    path.write_text("".join(edges_of(600, 15)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_an_edge_list_has_its_largest_hosts_and_the_surroundings_of_its_hubs(edges: Path, tmp_path: Path) -> None:
    found = survey_edge_list(str(edges))
    assert (found.pages, set(found.domains)) == (600, {*SITES, *TOPICS})
    output_of(
        "experiment", *NAMES, "--edges", edges, "--out", tmp_path / "out", "--processes", 1, "--quiet", "--runs", 1
    )
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "The web of edges.tsv, 600 pages; seed 1." in report and str(tmp_path) not in report
    assert "| site 5 | 40 |" in report and "Webs that are otherwise" not in report


def test_an_edge_list_that_was_changed_is_measured_again(edges: Path) -> None:
    before = survey_edge_list(str(edges))
    other = edges.with_name("other.tsv")
    other.write_text(edges.read_text(encoding="utf-8").replace("host-1.", "host-2.", 1), encoding="utf-8")
    assert survey_edge_list(str(other)).digest != before.digest


def test_an_edge_list_without_hosts_has_topics_only(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("".join(edges_of(400, 8)).replace("https://host-", "page-"), encoding="utf-8")
    assert set(survey_edge_list(str(path)).domains) <= set(TOPICS)
    error = refusal("experiment", "table1", "--edges", path, "--out", tmp_path / "out")
    assert "words.tsv: nothing in it for table1: no host (names are to be URLs)" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("fig2",), "--edges: fig2 makes webs of its own; an edge list is for table1, table2, influence, community"),
        (("all",), "--edges: fig2 makes webs of its own"),
        (("table2", "--pages", "5000"), "--pages: an edge list has a number of pages: omit this or --edges"),
    ],
)
def test_an_edge_list_is_refused_for_other_experiments(
    more: tuple[str, ...], why: str, edges: Path, tmp_path: Path
) -> None:
    assert why in refusal("experiment", *more, "--edges", edges, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b"a b\nb c\n",
            "3 pages are too few: a domain has 20 or more, and is a tenth of its web at most: give 200 or more",
        ),
        (b"a b c d\n", "line 1: the line has 4 columns, not a page, a target and a weight: no edge list"),
        (b"# a\n\na b\na \xff\n", "line 4: the row is not UTF-8: no edge list"),
        (b"a" * (1 << 20) + b"b", "line 1 has a name of more than 8192 characters"),
        (b"\x1f\x8b\x08\x00garbage", "line 1: the gzip member at byte 0 is damaged at byte"),
        (None, "no such file: check the name"),
    ],
)
def test_an_invalid_edge_list_gives_one_line_of_error(content: bytes | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.tsv"
    if content is not None:
        path.write_bytes(content)
    error = refusal("experiment", "table2", "--edges", path, "--out", tmp_path / "out")
    assert str(path) in error and why in error
