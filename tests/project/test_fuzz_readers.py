"""Every reader, and decode, route and ledger, with inputs made from a seed, in processes that may crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fuzz.readers import READERS
from support.fuzz.runner import ReaderReport, fuzz, table, works_of
from support.fuzz.worker import Limits, Work
from support.paths import TOP

SOME_INPUTS = 3_000


def failures(reports: list[ReaderReport]) -> list[str]:
    return [failure for report in reports for failure in report.failures]


@pytest.mark.slow
def test_fuzz_some_inputs_of_every_reader(tmp_path: Path) -> None:
    """With the kernels of all tests; those with checks of bounds, which compile for minutes, are for `make soak`."""
    reports = fuzz(7, works_of(SOME_INPUTS), tmp_path)
    assert not failures(reports)
    assert {report.reader for report in reports if report.accepted + report.rejected > 0} == {*READERS}
    assert sum(report.inputs for report in reports) > 0.95 * SOME_INPUTS


@pytest.mark.soak
def test_fuzz_many_inputs_of_every_reader(seed: int, record_property: Callable[[str, object], None]) -> None:
    works = works_of(int(os.environ.get("FUZZ_INPUTS", 0)))
    reports = fuzz(seed, works, TOP / "build" / "fuzz" / str(seed), bounds=True)
    record_property("table", f"fuzzing with seed {seed}\n{table(reports)}")
    found = "\n".join(failures(reports)[:30])
    assert not found, (
        f"{found}\nread one again: PYTHONPATH=tests .venv/bin/python -m support.fuzz --seed {seed} --bounds "
        "--only READER --first NUMBER --inputs 1"
    )


def test_the_largest_readers_get_200_000_inputs() -> None:
    largest = {"avro", "ledger", "entries", "snapshots", "vertices", "zip-members", "results", "policies-over-time"}
    assert {work.reader for work in works_of() if work.end - work.first >= 200_000} == largest


def broken_run(folder: Path, *names: str, first: int = 0, inputs: int = 12) -> dict[str, ReaderReport]:
    works = [Work(name, first, first + inputs) for name in names]
    return {report.reader: report for report in fuzz(3, works, folder, kind="broken", limits=Limits(0.2, 0.5))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("crash", "exit code -11"),
        ("abort", "exit code -6"),
        ("hang", "it hangs"),
        ("slow", "it took longer than 0.2 s"),
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
    again = broken_run(tmp_path / "one", "raise", first=number, inputs=1)["raise"]
    assert (again.inputs, len(again.failures)) == (1, 1)
    name = f"raise-{number}.input"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_the_table_has_a_line_for_each_reader_and_the_sum(tmp_path: Path) -> None:
    lines = table([*broken_run(tmp_path, "sound", "raise").values()]).splitlines()
    assert [line.split()[0] for line in lines] == ["reader", "sound", "raise", "all"]
    assert lines[-1].split()[1] == "24"
