"""The soak of a large replay: a log of many pages is made, replayed with URLs on disk, and killed in the middle.

    python -m benchmarks.large_replay --work DIR [--pages 100000000]

It has one and a half events for each page, with four links. A second run ends what the first has begun.
It prints a table: time, the most memory that the processes ever had, with and without mapped files, and the most disk.
For a hundred million pages it needs about 65 GB of disk, and 20 GiB of free memory.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO

import numpy as np

from benchmarks.harness import check, say

LINKS = 4
_FILES = 10
_ROWS_AT_ONCE = 50_000
_SPAN_MS = 30 * 24 * 3600 * 1000
_START_MS = 1_767_225_600_000
_PAGES_PER_SITE = 100
_URL = b'"https://www.host0000000.example/page-000000000.html"'
_LINE = (
    b'{"url":'
    + _URL
    + b',"fetched_at":0000000000000,"status":200,"digest":"00000000","links":['
    + b",".join([_URL] * LINKS)
    + b"]}\n"
)


@dataclass
class Peaks:
    """The most that was in use at one time."""

    own: int = 0
    """Memory of the process, without mapped files: what `--memory` limits."""
    resident: int = 0
    """With the parts of mapped files that the system keeps in memory while it is free."""
    disk: int = 0
    """State, results, and the files without names."""
    seconds: float = 0.0


def main() -> None:
    """Make the log, replay it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=100_000_000)
    parser.add_argument("--memory", default="20GiB")
    parser.add_argument("--in-memory", action="store_true", help="without --set urls-on-disk=true")
    parser.add_argument("--no-kill", action="store_true")
    options = parser.parse_args()
    pages, events = options.pages, options.pages * 3 // 2
    options.work.mkdir(parents=True, exist_ok=True)
    logs, log_bytes = write_logs(options.work, pages, events)
    state, out = options.work / "state", options.work / "out"
    command = [sys.executable, "-m", "opicflow.pipelines.cli", "replay", *map(str, logs)]
    command += ["--state", str(state), "--out", str(out), "--format", "parquet", "--memory", options.memory]
    command += ["--set", "discovery-by=importance", "--top", "0"]
    command += [] if options.in_memory else ["--set", "urls-on-disk=true"]
    runs = []
    if not options.no_kill:
        say("replay, killed when a checkpoint has half of the log")
        runs.append(run(command, options.work, kill_at=lambda: bytes_read(state) >= log_bytes // 2))
    say("replay to the end")
    runs.append(run(command, options.work))
    summary = json.loads((out / "summary.json").read_text())
    for name, expected in (("pages", pages), ("events_read", events), ("rejects", 0), ("drift", 0)):
        check(summary[name] == expected, f"{name} is {expected}: {summary[name]}")
    sizes = {"log": sum(log.stat().st_size for log in logs), "state": size_of(state), "results": size_of(out)}
    print(f"{pages:,} pages, {events:,} events of {LINKS} links; certificate {summary['certificate']:.2g}")
    for number, peaks in enumerate(runs, 1):
        print(
            f"run {number}: {peaks.seconds:,.0f} s; own memory {peaks.own / 2**30:.2f} GiB "
            f"({peaks.own / pages:.0f} bytes a page), with mapped files {peaks.resident / 2**30:.2f} GiB; "
            f"disk {peaks.disk / 1e9:.1f} GB at most"
        )
    print(", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items()))


def write_logs(work: Path, pages: int, events: int) -> tuple[list[Path], int]:
    """Write the log in compressed files, unless they are there. Returns their paths, and the bytes of the log."""
    logs = []
    for number in range(_FILES):
        path = work / f"log-{number:02}.jsonl.gz"
        logs.append(path)
        if path.exists():
            continue
        say(f"making {path.name}")
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            compress(file, lines(pages, events, events * number // _FILES, events * (number + 1) // _FILES))
        partial.rename(path)
    return logs, events * len(_LINE)


def compress(file: BinaryIO, blocks: Iterator[bytes]) -> None:
    """Write blocks as gzip, as fast as it goes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for block in blocks:
        file.write(packer.compress(block))
    file.write(packer.flush())


def lines(pages: int, events: int, first: int, last: int) -> Iterator[bytes]:
    """The events from `first` to `last`: each links to a page that none had linked to, and to popular ones."""
    urls = [_LINE.index(_URL)]
    while len(urls) < 1 + LINKS:
        urls.append(_LINE.index(_URL, urls[-1] + len(_URL)))
    time_at, digest_at = _LINE.index(b":0000000000000,") + 1, _LINE.index(b'"00000000"') + 1
    for begin in range(first, last, _ROWS_AT_ONCE):
        numbers = np.arange(begin, min(begin + _ROWS_AT_ONCE, last), dtype=np.int64)
        random = np.random.default_rng([1, begin])
        block = np.tile(np.frombuffer(_LINE, np.uint8), (len(numbers), 1))
        known = np.minimum(numbers + 1, pages)
        columns = [(known * random.random(len(numbers))).astype(np.int64), numbers % pages]
        columns += [(known * random.random(len(numbers)) ** 3).astype(np.int64) for _ in range(LINKS - 1)]
        sites = max(pages // _PAGES_PER_SITE, 1)
        for at, page in zip(urls, columns, strict=True):
            write_digits(block, at + _URL.index(b"0000000."), 7, page % sites)
            write_digits(block, at + _URL.index(b"000000000."), 9, page)
        write_digits(block, time_at, 13, _START_MS + numbers * _SPAN_MS // events)
        write_digits(block, digest_at, 8, numbers * 2654435761 % 10**8)
        yield block.tobytes()


def write_digits(block: np.ndarray[Any, Any], at: int, digits: int, values: np.ndarray[Any, Any]) -> None:
    """Write numbers into the columns of a block from `at` on."""
    for column in range(at + digits - 1, at - 1, -1):
        values, digit = np.divmod(values, 10)
        block[:, column] = digit + 48


def bytes_read(state: Path) -> int:
    """The bytes of the log that the last checkpoint has."""
    try:
        sources = json.loads((state / "state.json").read_bytes())["state"]["sources"]
    except (OSError, ValueError):
        return 0
    return sum(int(source["at"]) for source in sources)


def run(command: list[str], work: Path, kill_at: Any = None) -> Peaks:
    """Run a command and note its time and memory; kill it as soon as `kill_at` is true."""
    peaks, ended, begun = Peaks(), Event(), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        watcher = Thread(target=watch, args=(process.pid, work, peaks, ended, kill_at))
        watcher.start()
        code = process.wait()
        ended.set()
        watcher.join()
    peaks.seconds = time.monotonic() - begun
    check(code == (0 if kill_at is None else -9), f"the replay ended with {code}")
    return peaks


def watch(pid: int, work: Path, peaks: Peaks, ended: Event, kill_at: Any) -> None:
    """Note the peaks of a process, many times a second, and those of the disk every second."""
    rounds, page = 0, os.sysconf("SC_PAGE_SIZE")
    while not ended.wait(0.05):
        with suppress(OSError, ValueError):  # it has ended
            _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
            peaks.own, peaks.resident = max(peaks.own, (resident - shared) * page), max(peaks.resident, resident * page)
        rounds += 1
        if rounds % 20 == 0:
            peaks.disk = max(peaks.disk, disk_used([work / "state", work / "out"], pid))
            if kill_at is not None and kill_at():
                os.kill(pid, 9)


def disk_used(folders: list[Path], pid: int) -> int:
    """The bytes of all files in these folders, and of the files without names that a process has open."""
    files = {}
    for path in (*(path for folder in folders for path in folder.rglob("*")), *Path(f"/proc/{pid}/fd").glob("*")):
        with suppress(OSError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and (status.st_nlink == 0 or not path.is_relative_to("/proc")):
                files[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(files.values())


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
