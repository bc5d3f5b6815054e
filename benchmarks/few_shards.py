"""Group `few_shards`: the stream of group `stream` with few shards and with many, in turns, on a local cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Figure, Scale, say, versus, with_services
from benchmarks.placement import PlacedPages, WebOfSites
from benchmarks.stream import SHARDS, TINY, USUAL, Cluster, Sizes, publish, rate_of, stream_of
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeperFactory

MANY_SHARDS = 16
_TURNS = 2


def measure(scale: Scale) -> Iterator[Figure]:
    """Compare few shards with many. All read the same log of the same web; a first job compiles the kernels."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    yield from with_services("few_shards", ["kafka", "flink"], lambda *at: _measured(Cluster.of(*at), sizes))


def _measured(cluster: Cluster, sizes: Sizes) -> Iterator[Figure]:
    web = WebOfSites.made_up(sizes.pages, sizes.links, sizes.hosts)
    log, warm = (cluster.work / f"{name}.jsonl" for name in ("log", "warm"))
    web.write_log(log, sizes.events)
    web.write_log(warm, sizes.warm_events)
    placed = {"few": PlacedPages.by_site(web, SHARDS), "many": PlacedPages.by_site(web, MANY_SHARDS)}
    _run(cluster, "warm", placed["few"], warm, sizes.warm_events)
    rates: dict[str, list[float]] = {name: [] for name in placed}
    for number in range(_TURNS):
        for name, pages in placed.items():
            say(f"few_shards: {name} shards, turn {number + 1}")
            rates[name].append(_run(cluster, f"{name}{number}", pages, log, sizes.events))
    means = {name: len(each) / sum(1 / rate for rate in each) for name, each in rates.items()}
    turns = "; ".join(f"{name} " + ", ".join(f"{rate:,.0f}" for rate in each) for name, each in rates.items())
    how = f"{web.links_within:.0%} of the links within the host; {SHARDS} shards; {MANY_SHARDS} shards; {turns}"
    yield versus("few_shards.events", means["few"], "events/s", means["many"], how)


def _run(cluster: Cluster, name: str, pages: PlacedPages, log: Path, events: int) -> float:
    """Return the events per second of a stream of its own."""
    make(cluster.connection, specs(f"{name}-", pages.ranges.count))
    publish(cluster.connection, f"{name}-", log)
    return rate_of(cluster, name, stream_of(cluster, f"{name}-", LedgerKeeperFactory(), pages), events).per_second
