"""Experiments: their measures, continued runs, and the same figures for the same seed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from opicflow.pipelines.lab.commands import experiment as experiment_command
from opicflow.pipelines.lab.experiments import task_runner
from opicflow.pipelines.lab.experiments.catalogue import EXPERIMENTS
from opicflow.pipelines.lab.experiments.discovery import crawls, discovery_experiment
from opicflow.pipelines.lab.experiments.discovery.discovery_experiment import SHOWN
from opicflow.pipelines.lab.experiments.importance.convergence import off_line
from opicflow.pipelines.lab.experiments.importance.extensions import growing
from opicflow.pipelines.lab.experiments.importance.windows import by_importance, changed
from opicflow.pipelines.lab.experiments.measures import correlation, errors, exact_importance, imbalance
from opicflow.pipelines.lab.experiments.plots import Curve, Plot
from opicflow.pipelines.lab.experiments.tables import Row, distinct, markdown, mean, short, spread, to_csv
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid, run
from opicflow.pipelines.lab.web.webs import power_law_web
from support.commands import CommandResult, command, refusal
from support.paths import TOP

GOLDEN = TOP / "tests" / "golden" / "experiments.json"
PAGES = 500
SMALL: dict[str, dict[str, Any]] = {
    "convergence": {"web": "power-law", "order": "greedy"},
    "convergence_printed": {"web": "power-law", "order": "greedy"},
    "convergence_certified": {"web": "power-law", "order": "cycle", "pages": 200},
    "off_line": {"web": "poisson"},
    "windows": {"order": "cycle", "rate": 10.0, "pages": 60},
    "windows_printed": {"order": "greedy", "rate": 10.0, "pages": 200},
    "windows_certified": {"order": "greedy", "rate": 10.0, "pages": 200},
    "growing": {"history": "certified", "newcomers": False, "pages": 200},
    "moved": {"order": "cycle", "history": "certified"},
    "trouble": {
        "order": "greedy",
        "unreadable": 0.6,
        "unchanged": 0.8,
        "history": "certified",
        "remember": True,
        "pages": 200,
    },
    "discovery": {"web": "archive with traps", "order": "learnt at first"},
    "discovery_by_ledger": {"web": "hosted", "order": "learnt"},
    "discovery_by_command": {"web": "hosted"},
    "manipulation_gains": {"scheme": "trap", "size": 50, "pages": 200},
    "manipulation_attacks": {
        "size": 50,
        "attack": "farm on one domain",
        "setting": "good start",
        "strategy": "harmonic",
    },
    "manipulation_orders": {"scheme": "trap", "size": 50, "setting": "learnt (the default)", "moment": "late"},
    "stated": {"order": "greedy", "history": "default"},
    "trends": {"web": "growing", "order": "random", "pages": 60},
    "updated": {"share": 0.01, "pages": 300},
    "loop_refresh": {"scheduler": "oracle", "percent": 5.0, "days": 60},
    "site_growth": {"web": "archive", "times": 10},
    "site_ledger": {"web": "archive", "history": "certified"},
    "site_ranks": {"web": "hosted"},
    "communities": {"domain": "topic"},
    "influences": {"domain": "subtopic 1", "moment": "half way"},
}
PINNED = 10
"""About how many rows of a measure are pinned."""
MEASURES = {task.measure.__name__: task.measure for one in EXPERIMENTS.values() for task in one.tasks(1000, [1])}


# Measures


def test_errors_follow_their_definitions() -> None:
    exact = np.array([0.5, 0.3, 0.1, 0.1])
    found = errors(np.array([0.5, 0.3, 0.15, 0.05]), exact)
    assert (found.everywhere, found.top, found.weighted) == pytest.approx((25.0, 0.0, 10.0))
    assert found.spread == pytest.approx(25.0)
    assert found.disorder == 0.0  # the two pages that it orders have equal true ranks
    assert errors(exact[::-1] * 7, exact).disorder == pytest.approx(100.0)
    assert errors(np.array([1.0, 1.0, 1.0, 1.0, 6.0]), np.ones(5)).over_twice == 20.0
    assert errors(exact * 3, exact).everywhere == pytest.approx(0.0)


def test_imbalance_is_the_change_of_one_step_of_pagerank() -> None:
    web = power_law_web(200, 1)
    exact = exact_importance(web)
    assert imbalance(web, exact) < 1e-9
    assert imbalance(web, np.full(200, 1 / 200)) > 0.1


def test_correlation_is_that_of_spearman() -> None:
    random = np.random.default_rng(1)
    one, other = random.integers(0, 20, (2, 300)).astype(float)
    other += one
    assert correlation(one, other) == pytest.approx(scipy.stats.spearmanr(one, other).statistic)
    assert correlation(one, np.zeros(300)) == 0.0


def test_two_pages_are_halved_for_one_that_is_doubled() -> None:
    web = power_law_web(20_000, 1)
    after = changed(web, 0.1, np.random.default_rng(1))
    moved = after.in_degrees / np.maximum(web.in_degrees, 1)
    large = web.in_degrees >= 10
    assert (moved[large] < 0.6).mean() == pytest.approx(0.1 * 2 / 3, abs=0.01)
    assert (moved[large] > 1.7).mean() == pytest.approx(0.1 / 3, abs=0.01)


def test_by_importance_uses_another_policy_for_the_important_tenth() -> None:
    important, others = np.arange(20.0), np.full(20, 0.5)
    assert by_importance(important, others).tolist() == [0.5] * 18 + [18.0, 19.0]


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_has_its_pinned_figures(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of small webs, pinned. Renew them on purpose only: OPICFLOW_RENEW_GOLDEN=1."""
    if measure.startswith("discovery_by"):
        monkeypatch.setattr(crawls, "ROUNDS", 20)  # a day is a cycle of a ledger, or a replay
    rows = MeasureTask.of(MEASURES[measure], seed=1, **{"pages": PAGES, **SMALL[measure]}).run()
    rows = rows[:: len(rows) // PINNED | 1]  # an odd step meets all members of groups of eight
    pinned: dict[str, list[Row]] = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("OPICFLOW_RENEW_GOLDEN"):
        pinned[measure] = [
            {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows
        ]
        GOLDEN.write_text(json.dumps(dict(sorted(pinned.items())), indent=0) + "\n", encoding="utf-8")
    assert len(rows) == len(pinned[measure])
    for row, before in zip(rows, pinned[measure], strict=True):
        assert list(row) == list(before)
        for name, value in row.items():
            expected = before[name]
            if isinstance(expected, float):
                expected = pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True)
            assert value == expected, name


def test_another_seed_gives_other_figures() -> None:
    one, other = (MeasureTask.of(off_line, pages=PAGES, seed=seed, web="poisson").run() for seed in (1, 2))
    assert one[0]["everywhere"] != other[0]["everywhere"]


# Tables


def test_tables_group_average_and_print() -> None:
    rows: list[Row] = [{"a": "x", "n": 1, "v": 1.0}, {"a": "x", "n": 2, "v": 3.0}, {"a": "y", "n": 1, "v": 1 / 3}]
    assert (mean(rows, "v", a="x"), spread(rows, "v", a="x")) == (2.0, 1.0)
    assert np.isnan(mean(rows, "v", a="z"))
    assert distinct(rows, "a") == ["x", "y"]
    assert to_csv(rows) == "a,n,v\nx,1,1\nx,2,3\ny,1,0.3333333\n"
    assert markdown(("p", "q"), [(1, "|x|")]) == ["| p | q |", "|---|---|", r"| 1 | \|x\| |"]
    assert [short(value) for value in (0.0123456, 0.5, 12.345, 1234.5, float("nan"))] == [
        "0.012", "0.50", "12.3", "1.23e+03", "-",
    ]  # fmt: skip


def test_plots_are_the_same_bytes_for_the_same_figures(tmp_path: Path) -> None:
    plot = Plot("p", "title", "x", "y", [Curve("a <b>", [0, 1, 10], [1, 2, 300], [0, 1, 2])], "xy", (0, 1, 10))
    for folder in ("one", "other"):
        plot.write(tmp_path / folder)
    for name in ("p.png", "p.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert b"a &lt;b&gt;" in (tmp_path / "one" / "p.svg").read_bytes()


# Runs


def tasks(count: int) -> list[MeasureTask]:
    return [MeasureTask.of(off_line, pages=50, seed=seed, web="poisson") for seed in range(1, count + 1)]


def test_stored_measures_are_not_repeated(tmp_path: Path) -> None:
    measured: list[int] = []

    def count(pages: int, seed: int) -> list[Row]:
        measured.append(seed)
        return [{"seed": seed}]

    four = grid(count, pages=50, seed=(1, 2, 3, 4))
    found = run(four[:3], tmp_path, 1, lambda task: None)
    done: list[MeasureTask] = []
    (tmp_path / four[1].file_name).write_bytes(b"half a pa")  # truncated, as on a full disk
    again = run(four, tmp_path, 1, done.append)
    assert measured == [1, 2, 3, 2, 4] and len(done) == 4
    assert again[four[0]] == found[four[0]]


def test_a_grid_has_every_combination_and_the_first_name_changes_slowest() -> None:
    found = [dict(task.arguments) for task in grid(off_line, pages=50, seed=range(2), web=("a", "b"))]
    assert found == [{"pages": 50, "seed": seed, "web": web} for seed in (0, 1) for web in ("a", "b")]


def test_a_measure_that_changed_is_measured_again_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tasks(1)[0], MeasureTask.of(growing, pages=50, seed=1, history="all", newcomers=False)
    before = one.file_name, other.file_name
    monkeypatch.setitem(task_runner.EDITIONS, "growing", 4)
    assert one.file_name == before[0] and other.file_name != before[1]


def test_a_stopped_run_keeps_its_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(task: MeasureTask) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tasks(3), tmp_path, 1, stop)
    assert [path.name for path in tmp_path.iterdir()] == [tasks(1)[0].file_name]


@pytest.mark.parametrize(
    "measure",
    [
        "convergence_certified",
        "windows_certified",
        "moved",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("growing", "trends")),
    ],
)
def test_no_certificate_is_below_the_true_distance(measure: str) -> None:
    rows = MeasureTask.of(MEASURES[measure], seed=2, **{**SMALL[measure], "pages": 200}).run()
    assert all(0 <= float(row["distance"]) <= float(row["certificate"]) <= 200 for row in rows)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(tmp_path: Path) -> None:
    one = run(tasks(4), tmp_path / "one", 1, lambda task: None)
    two = run(tasks(4), tmp_path / "two", 2, lambda task: None)
    assert one == two and list(one) == list(two)


def test_every_measure_is_pinned_and_every_task_has_a_seed() -> None:
    assert sorted(MEASURES) == sorted(SMALL)
    for one in EXPERIMENTS.values():
        assert {dict(task.arguments)["seed"] for task in one.tasks(1000, [1, 2])} == {1, 2}


# The command


def test_the_command_names_every_experiment() -> None:
    assert "{" + ",".join(["all", *EXPERIMENTS]) + "}" in "".join(command("experiment", "--help").out.split())


SMALL_RUN = ("--pages", 200, "--runs", 1)


@contextmanager
def small_webs() -> Iterator[None]:
    """Webs of 200 pages, of which a quarter is read a round, measured at six moments: 6 rounds instead of 60."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_command, "LEAST_PAGES", 200)
        patch.setattr(crawls, "ROUNDS", 4)
        patch.setattr(crawls, "MARKS", SHOWN)
        patch.setattr(discovery_experiment, "_MARKS", [mark for mark in SHOWN if mark >= 10])
        yield


@pytest.fixture(scope="module")
def discovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:
    """Every task of an experiment, on small webs."""
    out = tmp_path_factory.mktemp("experiment")
    with small_webs():
        return command("experiment", "discovery", "--out", out, *SMALL_RUN, "--processes", 1), out


@pytest.mark.slow
def test_the_command_writes_report_plots_and_data(discovered: tuple[CommandResult, Path]) -> None:
    done, out = discovered
    assert done.code == 0, done
    assert "94 of 94 tasks" in done.err and "learnt reads at least 2 points more" in done.out
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "Webs of 200 pages; seed 1." in report and "](plots/discovery-hosted.svg)" in report
    for name in ("discovery-hosted.png", "discovery-hosted.svg", "discovery-portal-with-traps.png"):
        assert (out / "plots" / name).stat().st_size > 5_000
    lines = (out / "data" / "discovery.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("seed,web,order,mark,read,best,top")
    assert len(lines) == 1 + (7 * 13 + 3) * len(SHOWN)


@pytest.mark.slow
def test_a_repeated_command_writes_the_same_bytes_without_measuring(discovered: tuple[CommandResult, Path]) -> None:
    done, out = discovered
    names = ("report.md", "data/discovery.csv", "plots/discovery-hosted.png", "plots/discovery-hosted.svg")
    before = [(out / name).read_bytes() for name in names]
    with small_webs():
        again = command("experiment", "discovery", "--out", out, *SMALL_RUN, "--quiet")
    assert again.out == done.out and not again.err
    assert [(out / name).read_bytes() for name in names] == before


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("fig2", "--pages", "10"), "--pages 10: too few pages for a meaningful error: give 1000 or more"),
        (("fig7",), "unknown value 'fig7': do you mean fig6?"),
        (("fig2", "--runs", "0"), "is not a positive whole number"),
    ],
)
def test_wrong_options_give_one_line_of_error(more: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert why in refusal("experiment", *more, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    assert str(tmp_path / "out") in refusal("experiment", "fig2", "--out", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"
