"""Every reader, and decode, route and ledger, with inputs made from a seed, in processes that may crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fuzz.broken_readers import BROKEN
from support.fuzz.runner import FuzzRun, ReaderReport, table, works_of
from support.fuzz.worker import Work
from support.paths import TOP

SOME_INPUTS = 3_000


def failures(reports: list[ReaderReport]) -> list[str]:
    return [failure for report in reports for failure in report.failures]


@pytest.mark.slow
def test_fuzz_some_inputs_of_every_reader(tmp_path: Path) -> None:
    """With the kernels of all tests; those with checks of bounds, which compile for minutes, are for `make soak`."""
    reports = FuzzRun(7, works_of(SOME_INPUTS), tmp_path).run()
    assert not failures(reports)
    assert all(report.inputs > 0 and report.accepted + report.rejected > 0 for report in reports)
    assert sum(report.inputs for report in reports) > 0.95 * SOME_INPUTS


@pytest.mark.soak
def test_fuzz_many_inputs_of_every_reader(seed: int, record_property: Callable[[str, object], None]) -> None:
    works = works_of(int(os.environ.get("FUZZ_INPUTS", 0)))
    reports = FuzzRun(seed, works, TOP / "build" / "fuzz" / str(seed), bounds=True).run()
    record_property("table", f"fuzzing with seed {seed}\n{table(reports)}")
    found = "\n".join(failures(reports)[:30])
    assert not found, (
        f"{found}\nread one again: PYTHONPATH=tests .venv/bin/python -m support.fuzz --seed {seed} --bounds "
        "--only READER --first NUMBER --inputs 1"
    )


def test_the_largest_readers_get_200_000_inputs() -> None:
    largest = {"avro", "ledger", "entries", "snapshots", "vertices", "zip-members", "results", "policies-over-time"}
    assert {work.reader for work in works_of() if work.end - work.first >= 200_000} == largest


def broken_run(folder: Path, *names: str, inputs: int = 12) -> dict[str, ReaderReport]:
    works = [Work(name, 0, inputs) for name in names]
    reports = FuzzRun(3, works, folder, budget_seconds=0.5, compile_seconds=0.5, kind="broken").run()
    return {report.reader: report for report in reports if report.reader in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("crash", "exit code -11"),
        ("abort", "exit code -6"),
        ("hang", "slow"),
        ("memory", "MemoryError"),
        ("raise", "KeyError: 'of the reader'"),
        ("two-lines", "AssertionError"),
    ],
)
def test_an_input_that_stops_or_fails_is_written_down_and_the_others_are_read(
    name: str, why: str, tmp_path: Path
) -> None:
    reports = broken_run(tmp_path, name, "sound")
    failed = reports[name].failures
    assert 0 < len(failed) < 12 and all(why in line for line in failed)
    assert reports[name].inputs == reports["sound"].inputs == reports["sound"].accepted == 12
    assert not reports["sound"].failures
    inputs = sorted(tmp_path.glob("*.input"))
    assert len(inputs) == len(failed) and all(path.read_bytes()[0] < 0x40 for path in inputs)


def test_an_input_depends_on_the_seed_and_its_number_alone(tmp_path: Path) -> None:
    """So an input that failed can be read again by itself."""
    (found, *_) = broken_run(tmp_path / "all", "raise")["raise"].failures
    number = int(Path(found.partition(":")[0]).stem.rpartition("-")[2])
    run = FuzzRun(3, [Work("raise", number, number + 1)], tmp_path / "one", kind="broken")
    (again,) = [report for report in run.run() if report.reader == "raise"]
    assert (again.inputs, len(again.failures)) == (1, 1)
    name = f"raise-{number}.input"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_the_table_has_a_line_for_each_reader_and_the_sum(tmp_path: Path) -> None:
    reports = list(broken_run(tmp_path, "sound", "raise").values())
    lines = table(reports).splitlines()
    assert [line.split()[0] for line in lines] == ["reader", "sound", "raise", "all"]
    assert lines[-1].split()[1] == "24"
    assert set(BROKEN) >= {"sound", "raise"}
