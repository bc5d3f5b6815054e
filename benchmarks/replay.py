"""The replay, whole: from a log on disk to results on disk, beside fastavro that only decodes the same events.

Every replay runs in a process of its own, after one that is not counted has loaded the kernels, and is timed by the
wall: it uses the cores there are. Beam is loaded by then: the handful of events before goes through it as well, though
so small a log needs no Beam. Memory is the peak of that process over one that has replayed that handful alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Scale, check, say, versus

SEED = 1
INTERPOLATION = "interpolation"
_START_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    events: int = 200_000
    links: int = 30
    pages: int = 100_000
    wide_pages: int = 1_000_000
    wide_events: int = 300_000
    long_events: int = 10_000_000
    short_events: int = 1_000_000
    long_pages: int = 200_000
    long_links: int = 4
    keyed_events: int = 3_000
    rounds: int = 3


TINY = Sizes(400, 30, 200, 2_000, 500, 2_000, 1_000, 200, 4, 100, 1)
USUAL = Sizes(long_events=3_000_000, short_events=300_000, rounds=2)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
        work = Path(folder)
        say("replay: making the log")
        log = work / "log.jsonl"
        write_log(log, sizes.events, sizes.pages, sizes.links)
        yield from against_fastavro(log, work, sizes)
        yield from against_interpolation(log, work, sizes)
        yield from memory(work, sizes)
        yield from growth(work, sizes)
        yield from against_key_per_page(log, work, sizes)


def write_log(path: Path, events: int, pages: int, links: int, bad_every: int = 0, first: int = 0) -> None:
    """A log of visits, some pages far more popular than others. After every `bad_every`-th line comes a broken one."""
    random = np.random.default_rng([SEED, first])
    hosts = max(1, pages // 50)
    urls = [f"https://www.host{p % hosts}.example/section{p % 7}/page-{p}.html" for p in range(pages)]
    quoted = [f'"{url}"' for url in urls]
    with open(path, "w", encoding="ascii") as file:
        for begin in range(0, events, 10_000):
            rows = min(10_000, events - begin)
            visited = (pages * random.random(rows) ** 2).astype(np.int64).tolist()
            linked = (pages * random.random((rows, links)) ** 3).astype(np.int64).tolist()
            for row, (page, targets) in enumerate(zip(visited, linked, strict=True)):
                number = first + begin + row
                file.write(
                    f'{{"url":{quoted[page]},"fetched_at":{_START_MS + 997 * number},"status":200,'
                    f'"content_type":"text/html","digest":"{number * 2654435761 % 2**32:08x}",'
                    f'"links":[{",".join([quoted[target] for target in targets])}]}}\n'
                )
                if bad_every and number % bad_every == 0:
                    file.write('{"url": "https://www.host1.example/", "links": [oops\n')


def against_fastavro(log: Path, work: Path, sizes: Sizes) -> Iterator[Figure]:
    """The replay of JSON lines and of Avro beside fastavro's plain reader, in turns."""
    import fastavro

    from opicflow.schemas.published_schemas import schema

    published, strings = work / "log.avro", work / "strings.avro"
    rows = [json.loads(line) for line in log.read_bytes().splitlines()]
    write_strings(strings, rows)
    with open(published, "wb") as file:
        fastavro.writer(
            file,
            schema("CrawlEvent"),
            ({**row, "links": [{"url": url} for url in row["links"]]} for row in rows),
            sync_interval=1 << 18,
        )
    del rows
    bad = work / "bad.jsonl"
    write_log(bad, sizes.events, sizes.pages, sizes.links, bad_every=100)
    best: dict[str, float] = {}

    def keep(name: str, rate: float) -> None:
        best[name] = max(best.get(name, 0.0), rate)

    for number in range(sizes.rounds + 1):
        say(f"replay: beside fastavro, round {number}")
        rates = {
            "jsonl": replay_rate(log, work, sizes.events),
            "bad": replay_rate(bad, work, sizes.events),
            "avro": replay_rate(published, work, sizes.events),
            "fastavro_published": read_rate(published),
            "fastavro_strings": read_rate(strings),
        }
        for name, rate in rates.items() if number else ():
            keep(name, rate)
    yield versus(
        "replay.jsonl_vs_fastavro_decode",
        best["jsonl"],
        "events/s",
        best["fastavro_strings"],
        f"whole replay of {sizes.links}-link events; fastavro decoding them with links as plain strings",
    )
    yield versus(
        "replay.jsonl_vs_fastavro_decode_published",
        best["jsonl"],
        "events/s",
        best["fastavro_published"],
        "the same; fastavro decoding them as CrawlEvent records",
    )
    yield versus(
        "replay.avro_vs_fastavro_decode",
        best["avro"],
        "events/s",
        best["fastavro_strings"],
        "whole replay of the CrawlEvent records; fastavro with links as plain strings",
    )
    yield versus(
        "replay.bad_lines", best["bad"], "events/s", best["jsonl"], "good events/s with 1 broken line in 100; without"
    )


def write_strings(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the events of a log with their links as plain strings: what fastavro decodes fastest."""
    import fastavro

    as_strings = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "url", "type": "string"},
            {"name": "fetched_at", "type": "long"},
            {"name": "status", "type": "int"},
            {"name": "content_type", "type": "string"},
            {"name": "digest", "type": "string"},
            {"name": "links", "type": {"type": "array", "items": "string"}},
        ],
    }
    with open(path, "wb") as file:
        fastavro.writer(file, as_strings, rows, sync_interval=1 << 18)


def against_interpolation(log: Path, work: Path, sizes: Sizes) -> Iterator[Figure]:
    """The replay as it is by default, with remembered links, beside that of the paper's history policy."""
    best = {"replay": 0.0, INTERPOLATION: 0.0}
    for number in range(sizes.rounds + 1):
        say(f"replay: beside interpolation, round {number}")
        for what in best:
            rate = replay_rate(log, work, sizes.events, what)
            best[what] = max(best[what], rate if number else 0.0)
    yield versus(
        "replay.default_vs_interpolation",
        best["replay"],
        "events/s",
        best[INTERPOLATION],
        "whole replay by default, with remembered links and certified importance; with --history interpolation",
    )


def memory(work: Path, sizes: Sizes) -> Iterator[Figure]:
    """Memory of a replay that meets a million pages."""
    say(f"replay: memory at {sizes.wide_pages:,} pages")
    log, few = work / "wide.jsonl", work / "few.jsonl"
    write_wide_log(log, sizes.wide_events, sizes.wide_pages)
    write_log(few, 10, 10, 5)
    bare = child("replay", few, work)["peak_mb"]
    wide = child("replay", log, work)
    check(wide["pages"] == sizes.wide_pages, f"the wide log has {sizes.wide_pages} pages, not {wide['pages']}")
    log.unlink()
    yield Figure(
        "replay.memory_mb_per_million_pages",
        (wide["peak_mb"] - bare) * 1e6 / sizes.wide_pages,
        "MB",
        f"peak over a replay of 10 events ({bare:.0f} MB); bound 450",
    )


def write_wide_log(path: Path, events: int, pages: int) -> None:
    """A log in which every page is linked: event i links to the next pages that no event had, and to popular ones."""
    fresh = -(-pages // events)
    random = np.random.default_rng(SEED)
    with open(path, "w", encoding="ascii") as file:
        for number in range(events):
            page = int(random.integers(0, max(1, number * fresh % pages)))
            targets = [(number * fresh + step) % pages for step in range(fresh)]
            targets += (pages * random.random(4) ** 3).astype(np.int64).tolist()
            urls = ",".join(f'"https://www.host{t % 997}.example/section{t % 7}/page-{t}.html"' for t in targets)
            file.write(
                f'{{"url":"https://www.host{page % 997}.example/section{page % 7}/page-{page}.html",'
                f'"fetched_at":{_START_MS + 997 * number},"status":200,"links":[{urls}]}}\n'
            )


def growth(work: Path, sizes: Sizes) -> Iterator[Figure]:
    """Time an event and memory, when the log is ten times as long."""
    logs = []
    rows = {}
    for name, events in (("short", sizes.short_events), ("long", sizes.long_events)):
        say(f"replay: {events:,} events")
        log = work / f"{name}.jsonl"
        write_log(log, events, sizes.long_pages, sizes.long_links)
        logs.append(log)
        rows[name] = child("replay", log, work)
        check(rows[name]["events"] == events, f"{events} events were read, not {rows[name]['events']}")
        log.unlink()
    ratio = sizes.long_events / sizes.short_events
    costs = {name: row["seconds"] / row["events"] for name, row in rows.items()}
    yield Figure(
        "replay.cost_growth",
        costs["long"] / costs["short"],
        "x",
        f"time an event at {ratio:g} times the events ({rows['long']['events'] / rows['long']['seconds']:,.0f}/s); "
        "bound 1.3",
    )
    yield Figure(
        "replay.memory_growth",
        rows["long"]["peak_mb"] / rows["short"]["peak_mb"],
        "x",
        f"peak memory at {ratio:g} times the events, the same pages ({rows['long']['peak_mb']:.0f} MB); bound 1.2",
    )


def against_key_per_page(log: Path, work: Path, sizes: Sizes) -> Iterator[Figure]:
    """Transfers beside the obvious Beam pipeline, in which every page is a key with cash and history in its state."""
    say("replay: beside one key a page")
    small = work / "small.jsonl"
    with open(log, "rb") as whole:
        small.write_bytes(b"".join(line for _, line in zip(range(sizes.keyed_events), whole, strict=False)))
    keyed = child("keyed", small, work)
    ours = child("replay", log, work)
    yield versus(
        "replay.vs_key_per_page",
        ours["events"] * sizes.links / ours["seconds"],
        "transfers/s",
        keyed["events"] * sizes.links / keyed["seconds"],
        "whole replay; a Beam pipeline with one key a page that adds cash up in state",
    )


def replay_rate(log: Path, work: Path, events: int, what: str = "replay") -> float:
    """Good events a second of a replay in a process of its own, from the first byte read to the last one written."""
    done = child(what, log, work)
    check(done["visits"] == events, f"{events} visits were made, not {done['visits']}")
    return events / float(done["seconds"])


def read_rate(path: Path) -> float:
    """Events a second of fastavro's plain reader, which drops them."""
    import fastavro

    begun = time.perf_counter()
    with open(path, "rb") as file:
        events = sum(1 for _ in fastavro.reader(file))
    return events / (time.perf_counter() - begun)


def child(what: str, log: Path, work: Path) -> dict[str, Any]:
    """Run one of the functions below in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.replay", what, str(log), str(work / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{what} {log.name} succeeds: {done.stderr[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def replay_once(log: str, out: str, history: str | None) -> dict[str, Any]:
    """Run `opicflow replay LOG --out OUT`, timed without the start of Python and the loading of kernels."""
    from opicflow.pipelines.replay.runner import ReplayRequest, replayed
    from opicflow.pipelines.stages.settings import LedgerOptions

    counting = LedgerOptions(history=history)

    few = [Path(out).with_name(f"warm-{number}.jsonl") for number in range(3)]
    for number, path in enumerate(few):
        if not path.exists():
            write_log(path, 10, 10, 5, first=100_000 * number)  # a day later, so that reviews are loaded, too
    for files, folder in ((tuple(map(str, few)), None), ((log,), Path(out))):
        begun, used = time.perf_counter(), used_seconds()
        request = ReplayRequest(logs=files, out=folder, counting=counting)
        with replayed(request, lambda progress: None) as result:
            summary = result.summary
        seconds, cpu_seconds = time.perf_counter() - begun, used_seconds() - used
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "events": summary["events_read"],
        "visits": summary["visits"],
        "pages": summary["pages"],
        "peak_mb": peak_mb(),
    }


def used_seconds() -> float:
    """Return the processor time of this process and of its ended child processes."""
    return sum(os.times()[:4])


def peak_mb() -> float:
    """The most memory this process ever had. The figure of getrusage begins with that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Run one replay for the parent process."""
    what, log, out = sys.argv[1:]
    if what == "keyed":
        from benchmarks.keyed import keyed_once

        print(json.dumps(keyed_once(log)))
    else:
        print(json.dumps(replay_once(log, out, INTERPOLATION if what == INTERPOLATION else None)))


if __name__ == "__main__":
    main()
