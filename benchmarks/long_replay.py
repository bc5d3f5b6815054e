"""The replay of a long log of long pages, whole, beside fastavro that only decodes events like these."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import fastavro

from benchmarks.harness import Figure, Scale, check, say, versus
from benchmarks.replay import child, read_rate, write_log, write_strings

_SYNC = bytes(range(16))
_EVENTS_A_BLOCK = 1000


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    events: int = 5_000_000
    links: int = 30
    pages: int = 1_000_000
    decoded: int = 200_000
    rounds: int = 3


TINY = Sizes(1_000, 30, 500, 200, 1)
USUAL = Sizes(events=2_000_000)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
        work = Path(folder)
        say(f"long replay: making {sizes.events:,} events")
        log, avro, strings = work / "long.jsonl", work / "long.avro", work / "strings.avro"
        write_log(log, sizes.events, sizes.pages, sizes.links)
        with open(log, "rb") as lines:
            write_strings(strings, [json.loads(line) for line in islice(lines, sizes.decoded)])
        baseline = max(read_rate(strings) for _ in range(sizes.rounds))
        for name, path, events in (("jsonl", log, sizes.events), ("avro", avro, sizes.events // 4)):
            if path is avro:
                write_events(log, events, avro)
                log.unlink()
            say(f"long replay: {name}")
            done = child("replay", path, work)
            check(done["visits"] == events, f"{events} visits were made, not {done['visits']}")
            yield versus(
                f"replay.long_{name}_vs_fastavro_decode",
                events / done["seconds"],
                "events/s",
                baseline,
                f"{events:,} events of {sizes.links} links over {sizes.pages:,} pages, one run, peak "
                f"{done['peak_mb']:.0f} MB; fastavro decoding the first ones with links as plain strings, the best run",
            )


def write_events(log: Path, events: int, path: Path) -> None:
    """Write the first events of a log as CrawlEvent records."""
    from opicflow.connectors.files.event_messages import encode_items
    from opicflow.connectors.files.jsonl import items_of_lines
    from opicflow.schemas.published_schemas import schema
    from opicflow.schemas.varint import encode_signed

    with open(path, "wb") as file, open(log, "rb") as lines:
        fastavro.writer(file, schema("CrawlEvent"), [], sync_marker=_SYNC)
        for first in range(0, events, _EVENTS_A_BLOCK):
            block = b"".join(islice(lines, min(_EVENTS_A_BLOCK, events - first)))
            records = encode_items(items_of_lines(block, "log", 0), b"").values
            body = b"".join(records)
            file.write(encode_signed(len(records)) + encode_signed(len(body)) + body + _SYNC)
