"""Group `stream_shards`: the stream of group `stream` with pages spread over shards in other ways, on a local cluster.

Few shards and many; pages of a site together, or anywhere, so that most of what a page pays goes to other shards; and
the obvious stream, in which every page is a key of Beam.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from benchmarks.harness import Figure, Scale, say, versus, with_services
from benchmarks.placement import PlacedPages, WebOfSites
from benchmarks.replay import write_log
from benchmarks.stream import SHARDS, TINY, USUAL, Cluster, Sizes, publish, rate_of, stream_of
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import TopicEnds
from opicflow.connectors.kafka.polls import FindEnds, Poll, PollPartitions, PollTimer, WatchedTopic
from opicflow.connectors.kafka.source import PartitionReader
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeperFactory
from opicflow.pipelines.stages.metrics import count

MANY_SHARDS = 16


def measure(scale: Scale) -> Iterator[Figure]:
    """Compare the ways. A first job compiles the kernels; few shards run before the others and after them."""
    sizes = scale.pick(TINY, USUAL, Sizes())
    yield from with_services("stream_shards", ["kafka", "flink"], lambda *at: _measured(Cluster.of(*at), sizes))


def _measured(cluster: Cluster, sizes: Sizes) -> Iterator[Figure]:
    web = WebOfSites.made_up(sizes.pages, sizes.links, sizes.hosts)
    log, warm, scattered, few = (cluster.work / f"{name}.jsonl" for name in ("log", "warm", "scattered", "few"))
    web.write_log(log, sizes.events)
    web.write_log(warm, sizes.warm_events)
    web.write_log(few, sizes.keyed_events)
    write_log(scattered, sizes.events, sizes.pages, sizes.links)
    few_shards, many_shards = PlacedPages.by_site(web, SHARDS), PlacedPages.by_site(web, MANY_SHARDS)
    _run(cluster, "warm", warm, sizes.warm_events, few_shards)
    first = _run(cluster, "first", log, sizes.events, few_shards)
    many = _run(cluster, "many", log, sizes.events, many_shards)
    anywhere = _run(cluster, "scattered", scattered, sizes.events, None)
    second = _run(cluster, "second", log, sizes.events, few_shards)
    ours = 2 / (1 / first + 1 / second)
    how = f"{SHARDS} shards: {first:,.0f} and {second:,.0f}; {MANY_SHARDS} shards"
    yield versus("stream_shards.few_vs_many", ours, "events/s", many, how)
    how = "links that lead anywhere, ids by URL; 8 of 10 links within their site, ids by site"
    yield versus("stream_shards.scattered", anywhere, "events/s", ours, how)
    say("stream_shards: a Beam key for every page")

    def per_page(slots: int) -> KeyPerPage:
        return KeyPerPage(cluster.connection, slots)

    _publish(cluster, "keyed", few, SHARDS)
    bundles = ("--max_bundle_size=1000", "--max_bundle_time_mills=250")  # a message of a link is no bundle by itself
    keyed = rate_of(cluster, "keyed", per_page, sizes.keyed_events, read="visits", options=bundles).per_second
    how = "cash as state of a key for every page, no cuts"
    yield versus("stream_shards.vs_key_per_page", ours, "events/s", keyed, how)


def _run(cluster: Cluster, name: str, log: Path, events: int, placed: PlacedPages | None) -> float:
    """Return the events per second of a stream of its own."""
    say(f"stream_shards: {name}")
    _publish(cluster, name, log, placed.ranges.count if placed is not None else SHARDS)
    stream = stream_of(cluster, f"{name}-", LedgerKeeperFactory(), placed)
    return rate_of(cluster, name, stream, events).per_second


def _publish(cluster: Cluster, name: str, log: Path, shards: int) -> None:
    make(cluster.connection, specs(f"{name}-", shards))
    publish(cluster.connection, f"{name}-", log)


class KeyPerPage(beam.PTransform[Any, Any]):
    """The obvious stream: every page is a key, its cash is state, every link a message. It has no virtual page."""

    def __init__(self, connection: Connection, slots: int) -> None:
        super().__init__()
        self._connection = connection
        self._slots = slots

    def expand(self, pbegin: Any) -> Any:
        """Make transfers of events, and add them up per page."""
        topic = WatchedTopic.of(self._connection, "keyed-crawl-events")
        ends = pbegin | PollTimer(self._slots) | beam.ParDo(FindEnds(TopicEnds(self._connection, [topic.name])))
        transfers = (
            ends | PollPartitions(topic) | beam.ParDo(ToTransfers(topic)).with_output_types(typehints.KV[bytes, float])
        )
        return transfers | beam.ParDo(Page())


class ToTransfers(beam.DoFn):
    """Sends a message to the page of each visit, and one to every page that it links to."""

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())

    def __init__(self, topic: WatchedTopic) -> None:
        self._reader = PartitionReader(topic)

    def process(
        self,
        element: Poll,
        stored: Any = beam.DoFn.StateParam(NEXT),  # noqa: B008  (Beam's way to declare state)
    ) -> Iterator[tuple[bytes, float]]:
        """Yield the messages of the next visits."""
        from opicflow.connectors.kafka.messages import decode_messages
        from opicflow.schemas.framing import published_writer

        for batch in self._reader.read(element, lambda: stored.read() or 0):
            events = decode_messages(batch, "bench", published_writer).events
            for row in range(len(events)):
                first, last = int(events.url_starts[row]), int(events.url_starts[row + 1])
                yield events.text[int(events.begins[first]) : int(events.ends[first])].tobytes(), -1.0
                for url in range(first + 2, last):
                    if events.begins[url] >= 0:
                        text = events.text[int(events.begins[url]) : int(events.ends[url])].tobytes()
                        yield text, 1.0 / (last - first)
            stored.write(batch.end)


class Page(beam.DoFn):
    """The cash of a page."""

    CASH = ReadModifyWriteStateSpec("cash", BytesCoder())

    def process(
        self,
        element: tuple[bytes, float],
        cash: Any = beam.DoFn.StateParam(CASH),  # noqa: B008  (Beam's way to declare state)
    ) -> None:
        """Add a transfer, or spend the cash at a visit."""
        held = float(cash.read() or b"0")
        cash.write(str(0.0 if element[1] < 0 else held + element[1]).encode())
        count("visits", int(element[1] < 0))
