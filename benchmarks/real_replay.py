"""Group `real_replay`: the whole replay of a log as crawlers write it, beside fastavro that only decodes its events.

The log is that of tests/support/real_log.py: a gzip file a day, of a web with relative links, fragments, upper case,
user names, default ports, letters that are not ASCII, redirects, "not modified", pages that are gone, and clocks that
are wrong. A replay has the options of the command, and its time includes everything: no process has read the log or a
page before.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Scale, check, say, versus
from benchmarks.replay import peak_mb, read_rate, used_seconds

SEED = 1
_TESTS = Path(__file__).parent.parent / "tests"


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 200_000
    hosts: int = 3_000
    events: int = 446_000
    days: int = 60
    links: float = 8.0
    rounds: int = 2


TINY = Sizes(600, 40, 900, 6, rounds=1)
USUAL = Sizes(50_000, 1_000, 110_000, 15)


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield all figures of the group."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    webs = {
        "": sizes,
        "_few_hosts": replace(sizes, hosts=sizes.hosts // 3),
        "_many_hosts": replace(sizes, pages=sizes.pages * 11 // 2, hosts=sizes.pages * 5),
    }
    for name, web in webs.items():
        with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
            work = Path(folder)
            say(f"real_replay: making the log of {web.hosts:,} hosts")
            logs = write_logs(work / "logs", web)
            events = write_events(work / "events.avro", logs)
            yield from beside_fastavro(name, web, logs, work, events)
            if not name:
                yield daily_runs(logs, work, events)


def beside_fastavro(name: str, sizes: Sizes, logs: list[Path], work: Path, events: int) -> Iterator[Figure]:
    """Replay logs and read their events with fastavro, in turns."""
    rates = {"replay": 0.0, "cpu": 0.0, "fastavro": 0.0}
    for number in range(sizes.rounds + 1):
        say(f"real_replay: beside fastavro, round {number}")
        done = replay(logs, work)
        check(0.9 * events < done["visits"] <= events, f"{done['visits']} visits of {events} events were made")
        found = {
            "replay": events / done["seconds"],
            "cpu": events / done["cpu_seconds"],
            "fastavro": read_rate(work / "events.avro"),
        }
        rates = {what: max(rate, rates[what]) if number else 0.0 for what, rate in found.items()}
    log = f"{sizes.events:,} events of {sizes.links:g} links, {sizes.hosts:,} hosts, {sizes.days} files"
    yield versus(
        f"real.jsonl_vs_fastavro_decode{name}",
        rates["replay"],
        "events/s",
        rates["fastavro"],
        f"whole replay of {log}; fastavro decoding them",
    )
    yield versus(
        f"real.jsonl_vs_fastavro_decode_cpu{name}",
        rates["cpu"],
        "events/CPU s",
        rates["fastavro"],
        "the same by CPU seconds of all threads: other jobs on the machine matter less",
    )


def write_logs(folder: Path, sizes: Sizes, seed: int = SEED) -> list[Path]:
    """Write the log, a file a day; return the files."""
    sys.path.append(str(_TESTS))  # it is made for the tests, too
    web = import_module("support.real_web").RealWeb(sizes.pages, sizes.hosts, sizes.links, seed)
    folder.mkdir()
    paths = []
    for file in import_module("support.real_log").RealLog(web, sizes.events, sizes.days).files():
        paths.append(folder / file.name)
        paths[-1].write_bytes(file.data)
    return paths


def write_events(path: Path, logs: list[Path]) -> int:
    """Write the events of logs as Avro with the texts that they have; return their number."""
    import fastavro

    texts = ("fetched_at", "content_type", "digest", "title", "text", "canonical", "failure", "kind")
    nullable = [{"name": name, "type": ["null", "string"]} for name in texts]
    links = {"type": "array", "items": "string"}
    fields: list[Any] = [{"name": "url", "type": "string"}, *nullable, {"name": "status", "type": ["null", "int"]}]
    schema = {"type": "record", "name": "Event", "fields": [*fields, {"name": "links", "type": links}]}
    with open(path, "wb") as file:
        writer = fastavro.write.Writer(file, schema, sync_interval=1 << 18)
        events = 0
        for log in logs:
            for line in _lines(log):
                row = _event(line)
                if row is not None:
                    given = {name: None if row.get(name) is None else str(row[name]) for name in texts}
                    targets = [one.get("url") if isinstance(one, dict) else one for one in row.get("links") or ()]
                    writer.write(
                        {
                            "url": row["url"],
                            **given,
                            "status": row.get("status"),
                            "links": [target for target in targets if target is not None],
                        }
                    )
                    events += 1
        writer.flush()
    return events


def _lines(log: Path) -> Iterator[bytes]:
    """Yield the lines of a file, up to where it is broken."""
    try:
        with gzip.open(log) as file:
            yield from file
    except (EOFError, OSError, zlib.error):
        return


def _event(line: bytes) -> dict[str, Any] | None:
    """Return a line that is a visit; None for others."""
    try:
        row = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("url"), str):
        return None
    return row if isinstance(row.get("status"), int) or isinstance(row.get("failure"), str) else None


def replay(logs: list[Path], work: Path) -> dict[str, Any]:
    """Replay logs in a process of its own, which has loaded the kernels before."""
    command = [sys.executable, "-m", "benchmarks.real_replay", str(work), *map(str, logs)]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"the replay succeeds: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def daily_runs(logs: list[Path], work: Path, events: int) -> Figure:
    """Replay each file by a command of its own into one state, beside one command for all."""
    say(f"real_replay: {len(logs)} daily runs")
    daily = sum(command_seconds(work / "daily", [log]) for log in logs)
    return versus(
        "real.daily_vs_one_run",
        events / daily,
        "events/CPU s",
        events / command_seconds(work / "once", logs),
        f"{len(logs)} runs of `opicflow replay FILE --state DIR`, start of Python and all; one run of all files",
    )


def command_seconds(state: Path, logs: list[Path]) -> float:
    """Return the processor time of a command that replays logs into a state."""
    command = [sys.executable, "-m", "opicflow.pipelines.cli", "replay", *map(str, logs), "--state", str(state)]
    before = os.times()
    done = subprocess.run([*command, "--quiet", "--top", "0"], capture_output=True, text=True)
    check(done.returncode == 0, f"the replay succeeds: {done.stderr[-500:]}")
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def main() -> None:
    """Run one replay for the parent process."""
    from opicflow.pipelines.cli.options import latest_ms_of
    from opicflow.pipelines.replay.runner import ReplayRequest, replayed

    latest_ms = latest_ms_of(None, None)  # the log has times far ahead, after which no hour would begin
    work, *logs = sys.argv[1:]
    few = Path(work) / "few.jsonl"
    few.write_bytes(b"".join(line for log in logs for line in islice(_lines(Path(log)), 20)))  # of all days
    for given, folder in (((str(few),), None), (tuple(logs), Path(work) / "out")):
        begun, used = time.perf_counter(), used_seconds()
        with replayed(ReplayRequest(logs=given, out=folder, latest_ms=latest_ms), lambda progress: None) as result:
            summary = result.summary
        times = {"seconds": time.perf_counter() - begun, "cpu_seconds": used_seconds() - used}
    print(json.dumps({**times, "visits": summary["visits"], "pages": summary["pages"], "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
