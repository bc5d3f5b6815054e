"""Compute what a cluster of several machines holds, and what limits it, from the figures of the other groups.

`python -m benchmarks.machines` prints the first table of docs/guides/operations.md, with `--web 2000000000` the second
one: what a web of so many pages takes, beside the claim of paper 002. It measures nothing: each figure is
that of a group of benchmarks, from `--figures` (build/bench.json) if it is there, or else the one below, which the
document named beside it has. No cluster of so many machines was run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from opicflow.connectors.flink.key_groups import KEY_GROUPS

MACHINES = (4, 16, 64)
REPLICAS = 3
SHARDS_PER_SLOT = 2
MOST_PAGES_PER_SHARD = 10_000_000
TICK_SECONDS = (1, 2, 5, 10, 30, 60)
"""`--set tick-seconds`: the first at which the fixed part of messages between shards writes less than the visits do, if
each page is visited once in `VISIT_DAYS`."""
VISIT_DAYS = 7
LEDGERS_SHARE = 0.5
"""The part of the memory that ledgers may fill. A snapshot may take up to the same again while it is written."""


@dataclass(frozen=True)
class Machine:
    """One of several equal machines. Each has a broker, a TaskManager and its workers."""

    cores: int = 16
    memory_gb: float = 64.0
    network_mb_per_second: float = 1_250.0
    disk_mb_per_second: float = 500.0


@dataclass(frozen=True)
class Figures:
    """Measured figures, of events with 30 links, 8 of 10 within their site, under `certified`."""

    cpu_us: float = 43.0
    """An event, on the whole machine: `stream.cpu_vs_replay` (docs/guides/operations.md, "How fast it is")."""
    events_of_small_shard: float = 460_000.0
    """A second, of a core that keeps a shard of 100,000 pages, under `interpolation`: the same section."""
    events_of_large_shard: float = 209_000.0
    """The same with `MOST_PAGES_PER_SHARD` pages. `--figures` takes both from the group `shard`, under `certified`."""
    crawl_bytes: float = 180.0
    """Of page-ledger an event, without messages: `log_bytes` with one shard (docs/decisions/log-entries.md)."""
    message_bytes: float = 192.0
    """Of page-ledger an event, for messages between 16 shards: `log_bytes` with 16 (the same page)."""
    message_us: float = 46.0
    """To encode, decode and apply a short entry (the same page)."""
    least_message_bytes: float = 291.0
    """A short entry (the same page)."""
    event_bytes: float = 356.0
    """Of crawl-events: a line of the log of group `log_bytes`, in a batch compressed with LZ4."""
    result_bytes: float = 108.0
    """Of the topics of results an event, with URLs of 31 bytes: counted after a run of tests/stream/test_brokers.py."""
    page_bytes: float = 121.0 + 55.0
    """Of memory, with a URL of 53 bytes: `ledger.bytes_per_page` (docs/decisions/memory.md)."""
    link_bytes: float = 8.0
    """The most of memory a remembered link: `placement.link_bytes_url_over_site` (the same page)."""
    links: float = 30.0

    @classmethod
    def of(cls, found: Mapping[str, float]) -> Figures:
        """Return the figures, those of a run of the benchmarks where it has them."""
        names = {
            "cpu_us": "stream.cpu_vs_replay",
            "events_of_small_shard": "shard.events_of_100000",
            "events_of_large_shard": "shard.events_of_10000000",
        }
        return replace(cls(), **{name: found[figure] for name, figure in names.items() if figure in found})


@dataclass(frozen=True)
class PageBytes:
    """The bytes of memory that a page takes in a ledger, in the mean, room to grow included.

    Measured with a million pages of which 40 % were read, as in the crawl of paper 002, with ten links each:
    tests/project/test_benchmarks.py counts them again.
    """

    columns: float
    """Columns and index, without the recent visits by which duplicates are known: 17 MB a shard."""
    links: float
    url: float = 55.0
    """A URL of 53 bytes."""

    @property
    def total(self) -> float:
        return self.columns + self.links + self.url


PAGE_BYTES = {"interpolation": PageBytes(140.4, 0.0), "certified": PageBytes(168.9, 17.8)}
PAPER_BYTES, PAPER_MACHINES = 8.0, 4
"""Paper 002, 4.3: two thousand million pages on four machines with 4 GB each."""
READ_SHARE = 0.4


@dataclass(frozen=True)
class Capacity:
    """The capacity of so many machines. Rates are events a second."""

    machines: int
    cores: int
    slots: int
    shards: int
    tick_seconds: int
    pages: float
    usual_events: float
    """With one visit of each page in `VISIT_DAYS`."""
    log_bytes: float
    """Of page-ledger a second at that rate, in one replica."""
    by_processors: float
    by_slots: float
    by_network: float
    by_disks: float

    @property
    def limits(self) -> dict[str, float]:
        """The events a second that each part allows, by its name."""
        return {
            "processors": self.by_processors,
            f"the {KEY_GROUPS} slots of a job": self.by_slots,
            "network": self.by_network,
            "disks": self.by_disks,
        }

    @property
    def bottleneck(self) -> str:
        """The part that allows the fewest events a second; the slots only where there are fewer than cores."""
        return min(self.limits, key=lambda name: self.limits[name])

    @property
    def events(self) -> float:
        """The events a second that the bottleneck allows."""
        return self.limits[self.bottleneck]


def capacity(machines: int, machine: Machine, figures: Figures) -> Capacity:
    """Compute what so many equal machines hold."""
    cores = machines * machine.cores
    slots = min(cores, KEY_GROUPS)
    memory = machines * machine.memory_gb * 1e9 * LEDGERS_SHARE
    pages = memory / (figures.page_bytes + figures.links * figures.link_bytes)
    shards = max(SHARDS_PER_SLOT * slots, -(-int(pages) // MOST_PAGES_PER_SHARD))

    # The more pages a shard has, the more an event costs.
    large = 1e6 / figures.events_of_large_shard - 1e6 / figures.events_of_small_shard
    cpu_us = figures.cpu_us + large * pages / shards / MOST_PAGES_PER_SHARD

    # Of the links to other sites, (shards - 1) / shards lead to another shard. 16 shards were measured.
    event_log_bytes = figures.crawl_bytes + figures.message_bytes * (1 - 1 / shards) / (1 - 1 / 16)
    usual_events = pages / VISIT_DAYS / 86_400
    pairs = shards * (shards - 1)
    fixed_bytes = {tick: pairs / tick * figures.least_message_bytes for tick in TICK_SECONDS}
    quiet = [tick for tick, size in fixed_bytes.items() if size <= usual_events * event_log_bytes]
    tick_seconds = quiet[0] if quiet else TICK_SECONDS[-1]
    fixed = fixed_bytes[tick_seconds]
    left = 1.0 - pairs / tick_seconds * figures.message_us / 1e6 / slots

    event_bytes = figures.event_bytes + event_log_bytes + figures.result_bytes
    sent = 1 + REPLICAS  # by who produces, to each other replica, and to who reads
    return Capacity(
        machines,
        cores,
        slots,
        shards,
        tick_seconds,
        pages,
        usual_events,
        usual_events * event_log_bytes + fixed,
        by_processors=cores * left * 1e6 / cpu_us,
        by_slots=slots * left * 1e6 / cpu_us if slots < cores else float("inf"),
        by_network=(machines * machine.network_mb_per_second * 1e6 - sent * fixed) / (sent * event_bytes),
        by_disks=(machines * machine.disk_mb_per_second * 1e6 - REPLICAS * fixed) / (REPLICAS * event_bytes),
    )


def table(capacities: Sequence[Capacity]) -> list[str]:
    """Return the table in Markdown."""
    rows = {
        "cores": [f"{one.cores:,}" for one in capacities],
        "slots": [f"{one.slots:,}" for one in capacities],
        "shards": [f"{one.shards:,}" for one in capacities],
        "`tick-seconds`": [f"{one.tick_seconds}" for one in capacities],
        "pages that the memory holds": [f"{_rounded(one.pages / 1e6)} million" for one in capacities],
        f"events/s, each page visited once in {VISIT_DAYS} days": [_rounded(one.usual_events) for one in capacities],
        "page-ledger a day at that rate, one replica": [
            f"{_rounded(one.log_bytes * 86_400 / 1e9)} GB" for one in capacities
        ],
        "events/s that processors allow": [_rounded(one.by_processors) for one in capacities],
        "events/s that slots allow": [_rounded(one.by_slots) for one in capacities],
        "events/s that the network allows": [_rounded(one.by_network) for one in capacities],
        "events/s that disks allow": [_rounded(one.by_disks) for one in capacities],
        "most events/s, as in a rebuild": [_rounded(one.events) for one in capacities],
        "what limits these": [one.bottleneck for one in capacities],
        "what limits the crawl": ["memory" if one.usual_events < one.events else one.bottleneck for one in capacities],
    }
    head = "| | " + " | ".join(f"{one.machines} machines" for one in capacities) + " |"
    rule = "|---" * (len(capacities) + 1) + "|"
    return [head, rule, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())]


def web_table(pages: int, machine: Machine, figures: Figures) -> list[str]:
    """Return in Markdown what a web of so many pages takes."""
    sizes = PAGE_BYTES.values()
    visits = READ_SHARE * pages / VISIT_DAYS

    def gigabytes(count: float) -> str:
        return f"{_rounded(count / 1e9)} GB"

    of_ledgers = machine.memory_gb * 1e9 * LEDGERS_SHARE
    log_bytes = visits * (figures.crawl_bytes + figures.message_bytes)
    rows: dict[str, list[str]] = {
        "memory a page: columns and index": [
            f"{PAPER_BYTES:g} bytes",
            *(f"{one.columns:.0f} bytes" for one in sizes),
        ],
        "… remembered links": ["not kept", *(f"{one.links:.0f} bytes" if one.links else "not kept" for one in sizes)],
        "… URL": ["on disk", *(f"{one.url:.0f} bytes" for one in sizes)],
        "memory in all": [gigabytes(pages * PAPER_BYTES), *(gigabytes(pages * one.total) for one in sizes)],
        "… URLs and links alone": ["-", *(gigabytes(pages * (one.url + one.links)) for one in sizes)],
        f"machines of {machine.memory_gb:g} GB, of which ledgers fill half": [
            f"{PAPER_MACHINES} of 4 GB",
            *(f"{math.ceil(pages * one.total / of_ledgers)}" for one in sizes),
        ],
        f"shards of {MOST_PAGES_PER_SHARD / 1e6:g} million pages": [
            "-",
            *([f"{math.ceil(pages / MOST_PAGES_PER_SHARD)}"] * len(sizes)),
        ],
        f"visits a second, each page that is read once in {VISIT_DAYS} days": [
            "-",
            *([_rounded(visits / 86_400)] * len(sizes)),
        ],
        "disk: crawl-events a day": ["-", *([gigabytes(visits * figures.event_bytes)] * len(sizes))],
        "disk: page-ledger a day": ["-", *([gigabytes(log_bytes)] * len(sizes))],
    }
    head = f"| | paper 002 | {' | '.join(f'`{name}`' for name in PAGE_BYTES)} |"
    return [head, "|---" * 4 + "|", *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())]


def _rounded(value: float) -> str:
    """Return a number with two digits that count: the figures are not better than that."""
    return "-" if value == float("inf") else f"{float(f'{value:.2g}'):,.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines", description="what several machines hold")
    parser.add_argument("--machines", type=int, nargs="+", default=list(MACHINES), metavar="N", help="%(default)s")
    parser.add_argument("--web", type=int, metavar="PAGES", help="what a web of so many pages takes instead")
    parser.add_argument("--figures", type=Path, help="figures of `make bench`, instead of the documented ones")
    for field in fields(Machine):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    chosen = parser.parse_args()
    found = json.loads(chosen.figures.read_text(encoding="utf-8")) if chosen.figures else []
    figures = Figures.of({one["name"]: one["value"] for one in found})
    machine = Machine(**{field.name: getattr(chosen, field.name) for field in fields(Machine)})
    if chosen.web:
        print("\n".join(web_table(chosen.web, machine, figures)))
        return
    print("\n".join(table([capacity(number, machine, figures) for number in chosen.machines])))


if __name__ == "__main__":
    main()
