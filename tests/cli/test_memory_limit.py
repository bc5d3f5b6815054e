"""`replay --memory`: whatever its input is, a replay stays below the memory that it may take, or ends with one line."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.cli.memory_limit import LEAST_BYTES, MemoryLimit, default_limit, memory_in_use, size_in_bytes
from opicflow.schemas.errors import UserError
from support.logs import FIRST_MS

MEASURE = """
import os, re, sys
from opicflow.pipelines.cli.main import main
exit_ = os._exit
def measured(code):  # getrusage begins with the memory of the parent
    sizes = dict(re.findall(r"(VmHWM|RssFile):\\s+([0-9]+) kB", open("/proc/self/status").read()))
    print("PEAK", int(sizes["VmHWM"]) - int(sizes["RssFile"]) << 10, file=sys.stderr, flush=True)
    exit_(code)
os._exit = measured
measured(main(sys.argv[1:]))
"""
PAGES_A_LINE, LINES = 30_000, 60


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 1.8 million pages in a few megabytes: visits with links to pages that do not exist."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for line in range(LINES):
            links = ",".join(f'"http://a.com/{line}/{number}"' for number in range(PAGES_A_LINE))
            event = f'"url":"http://a.com/{line}","fetched_at":{FIRST_MS // 1000 + line},"status":200,"links":[{links}]'
            file.write(f"{{{event}}}\n".encode())
    return path


def replay(*options: str) -> tuple[int, list[str], int]:
    """Replay in a process of its own. Returns its exit code, the lines that it wrote, and its most own memory."""
    command = [sys.executable, "-c", MEASURE, "replay", *options, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stderr.splitlines()
    peaks = [int(line.split()[1]) for line in lines if line.startswith("PEAK")]
    return done.returncode, [line for line in lines if not line.startswith("PEAK")], max(peaks, default=0)


@pytest.mark.slow
def test_a_log_that_would_take_too_much_ends_with_one_line_and_can_go_on(bomb: Path, tmp_path: Path) -> None:
    log, state = str(bomb), str(tmp_path / "state")
    most = 450 << 20
    code, lines, peak = replay(log, "--state", state, "--memory", str(most), "--set", "segment-mb=1")
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith("opicflow: the limit of 450 MiB of memory is reached, ")
    assert "give more with --memory" in lines[0]
    assert peak < 1.3 * most, "without mapped files, which URLs are in where it goes far enough"
    code, lines, peak = replay(log, "--state", state, "--memory", "8GiB", "--set", "segment-mb=1")
    assert code == 0, lines
    assert peak > most, "the log takes more than the limit"


@pytest.mark.slow
def test_a_limit_on_pages_keeps_the_same_log_within_it(bomb: Path) -> None:
    code, lines, _ = replay(str(bomb), "--memory", "1GiB", "--max-unread-per-domain", "1000")
    assert code == 0, lines


def test_memory_that_the_system_refuses_is_one_line() -> None:
    refused = pytest.raises(UserError, match=r"the system gave no more memory, at the beginning: take less")
    with refused, MemoryLimit(1 << 50, lambda: "at the beginning", "take less"):
        np.empty(1 << 60, np.uint8)


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MiB", 1 << 28), ("1.5 GiB", 3 << 29), ("2g", 1 << 31), ("300000000", 300_000_000), ("1TB", 1 << 40)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "4 apples", "-1GiB", "255MiB", "1e9", "4GiBGiB", "9" * 400])
def test_an_invalid_size_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match=r"^--memory .*: give 256MiB or more, such as 4GiB$"):
        size_in_bytes(text)


def test_the_default_is_a_part_of_what_the_machine_has() -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert LEAST_BYTES <= default_limit() <= 0.75 * machine
    before = memory_in_use()
    taken = np.ones(8 << 20)
    assert 0 <= memory_in_use() - before - taken.nbytes < 8 << 20
