"""Progress: lines on a pipe, and the estimate of the time left."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from opicflow.pipelines.cli.progress import Convergence, ProgressDisplay, announce_compilation, explained_wait
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.schemas import kernel
from support.waiting import wait_for


@pytest.mark.parametrize("factor", [0.5, 0.85, 0.99])
def test_the_time_left_assumes_that_the_residual_falls_by_a_factor(factor: float) -> None:
    estimate = Convergence(1e-9)
    residuals = [0.7 * factor**scan for scan in range(4000)]
    end = next(scan for scan, residual in enumerate(residuals) if residual <= 1e-9)
    for scan, residual in enumerate(residuals[:end]):
        left = estimate.left_seconds(residual, 60.0 + 0.25 * scan)  # a minute of compiling before the first scan
        if residual < 0.07 and scan > 1:
            assert left == pytest.approx(0.25 * (end - scan), abs=0.3)
        elif residual > 0.07:
            assert left is None


def test_there_is_no_estimate_for_a_residual_that_does_not_fall() -> None:
    estimate = Convergence(1e-9)
    assert [estimate.left_seconds(0.5, second) for second in (1.0, 2.0, 90.0)] == [None, None, None]


def test_lines_are_seconds_apart_and_omit_an_unknown_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    display = ProgressDisplay(quiet=False)
    display.show_words("sorting", 6.0)
    display.show_words("sorting more", 7.0)
    display.show_words("ranks", 12.0, 0.5, 3.0)
    display.close()
    assert capsys.readouterr().err == "sorting\nranks, 50%, 3 s left\n"


def test_a_quiet_display_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressDisplay(quiet=True).show_words("ranks", 60.0, 0.5)
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_with_words_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    display = ProgressDisplay(quiet=False)
    display.show_words("ranks of [red]\x1b]0;title\x07", 6.0, 0.5, 3.0)
    display.close()
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "ranks of [red]\\x1b]0;title\\x07, 3 s left" in text and "50%" in text
    assert "\x1b]" not in text and "\x07" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is there again"
    assert text.rstrip("\r\n").endswith("\x1b[2K"), "the bar is gone"


def test_a_bar_shows_no_share_of_an_unknown_total_and_the_time_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    display = ProgressDisplay(quiet=False)
    display.show(Progress(1000, None, 400, None, "B", 61.0))
    display.close()
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "1,000 events" in text and "%" not in text and "0:01:01" in text
    display = ProgressDisplay(quiet=False)
    display.show(Progress(1000, None, 400, 800, "B", 61.0))
    display.show_words("sorting", 62.0)
    display.close()
    text = sys.stderr.getvalue().partition("50%")[2]  # type: ignore[attr-defined]
    assert "%" not in text.partition("sorting")[2]


def test_a_long_wait_is_explained_and_a_short_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with explained_wait("reading", 60):
        pass
    assert capsys.readouterr().err == ""
    said: list[str] = []

    def is_said() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said) == "reading\n"

    with explained_wait("reading", 0):
        wait_for("the words are printed", is_said, 10)


def test_a_compilation_is_announced_until_kernels_of_these_modules_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "_cache_folder", lambda root: tmp_path if root == "pipelines" else None)
    announce_compilation(False, "pipelines.ranks.graph.scans")
    assert capsys.readouterr().err == "compiling, once for this version: about fifteen seconds\n"
    (tmp_path / "opicflow.pipelines.ranks.graph.scans.begin-0f.kernel").touch()
    announce_compilation(False, "pipelines.ranks.graph.scans")  # though no kernel of connectors was ever needed
    announce_compilation(False, "pipelines.ranks.graph")
    assert capsys.readouterr().err == ""
    announce_compilation(True, "pipelines.ledger")
    assert capsys.readouterr().err == ""
    for other in ("pipelines.ledger", "pipelines.ranks.graph.scan", "schemas"):
        announce_compilation(False, other)
        assert "compiling" in capsys.readouterr().err
