"""Results to topics: of a replay the same records as in files, of a stream the outputs of its ledgers.

Importance and schedules are keyed by URL and lie in the partition of their key: of one page the newest record is found
by reading one partition. Orders of one host lie in one partition, so that one consumer sees all of a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from opicflow.connectors.files.avro_rows import encode_rows
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Framer, register_schemas
from opicflow.connectors.kafka.publisher import Publisher, partitions_of
from opicflow.connectors.kafka.record_reader import STREAMS
from opicflow.connectors.kafka.sink import SendingDoFn
from opicflow.pipelines.results.part_files import Parts
from opicflow.pipelines.results.record_columns import RESULTS, hosts_of, pages_of, reject_columns, site_columns
from opicflow.pipelines.stages.metrics import count
from opicflow.pipelines.stages.outputs import (
    APPLIED,
    AUDIT,
    CHANGES,
    FINAL_IMPORTANCE,
    FINAL_ORDERS,
    FINAL_SCHEDULE,
    FINAL_SITES,
    IMPORTANCE,
    ORDERS,
    REJECTS,
    SCHEDULE,
    SITES,
    TOMBSTONES,
    TRANSFERS,
    Output,
)
from opicflow.schemas.columns import Columns
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.sites import site_names

_PATIENCE_SECONDS = 120.0
"""So long a cluster that was there when the work began may be away when it is done."""


class Sent(NamedTuple):
    """The records and tombstones that a topic was sent, counted."""

    topic: str
    records: int
    tombstones: int = 0


@dataclass(frozen=True)
class Destination:
    """The topics that results go to."""

    connection: Connection
    prefix: str = ""

    def check(self) -> None:
        """Refuse topics that are not there, and a registry that refuses the schemas of their records."""
        with Publisher(self.connection) as publisher:
            for topic in STREAMS:
                publisher.partitions(self.prefix + topic)
        self.register_schemas()

    def register_schemas(self) -> None:
        """Register the schemas of the records, if there is a registry."""
        register_schemas(self.connection, {self.prefix + topic: name for topic, name in STREAMS.items()})


def send_results(to: Destination, work: Path, audit: dict[str, object]) -> list[Sent]:
    """Send the parts that a replay made, as messages. When this returns, all have arrived.

    Publications during the crawl go first, then removed pages, then the final results: the newest
    record of a page is last.
    """
    with Publisher(to.connection, connect_seconds=_PATIENCE_SECONDS) as publisher:
        sender = _Sender(to, publisher)
        for topic, at_the_end in ((IMPORTANCE, FINAL_IMPORTANCE), (SCHEDULE, FINAL_SCHEDULE)):
            sender.send_pages(topic, Parts(work, topic))
            sender.bury(topic, Parts(work, TOMBSTONES))
            sender.send_pages(topic, Parts(work, at_the_end))
        sender.send_sites(Parts(work, FINAL_SITES), Parts(work, TOMBSTONES))
        for kind in (ORDERS, FINAL_ORDERS):
            sender.send_pages(ORDERS, Parts(work, kind))
        sender.send_pages(CHANGES, Parts(work, CHANGES))
        for lines in Parts(work, REJECTS):
            sender.send_rejects(lines)
        key = f"{audit['shard']}".encode()
        sender.send_values(AUDIT, [key], [key], [sender.framer(AUDIT).encode({**audit, **_NO_PAIRS})])
        publisher.flush()
    return sender.sent()


def send_importance(to: Destination, parts: Iterable[bytes]) -> int:
    """Send parts of importance alone. Returns how many records."""
    with Publisher(to.connection) as publisher:
        sender = _Sender(to, publisher)
        sender.send_pages(IMPORTANCE, parts)
        publisher.flush()
    return sum(sent.records for sent in sender.sent())


class SendOutputs(SendingDoFn):
    """Sends the outputs of a stream's ledgers to topics, in their order: transfers to the logs of other shards."""

    def __init__(
        self, to: Destination, ledger_topic: str, on_sent: Callable[[bytes], None] = lambda _: None, run: str = ""
    ) -> None:
        """The logs are the partitions of `ledger_topic`. `on_sent` is called with what the ledgers have applied."""
        super().__init__(to.connection, run=run)
        self._on_sent = on_sent
        self._to = to
        self._ledger_topic = ledger_topic
        self._framers: dict[str, Framer] = {}
        self._applied: dict[int, bytes] = {}

    def process(self, element: Output) -> None:
        """Send one output."""
        if element.kind == APPLIED:
            self._applied[element.to_shard] = element.data
            return
        with self.sending() as publisher:
            self._send(_Sender(self._to, publisher, self._framers, element.time_ms), publisher, element)

    def finish_bundle(self) -> None:
        """Wait until all records are acknowledged, and say so to the ledgers of this process."""
        super().finish_bundle()
        for applied in self._applied.values():
            self._on_sent(applied)
        self._applied.clear()

    def _send(self, sender: _Sender, publisher: Publisher, output: Output) -> None:
        kind, data = output.kind, output.data
        if kind == TRANSFERS:
            if not publisher.send(self._ledger_topic, None, data, output.to_shard):
                raise KafkaRefused(f"{self._ledger_topic}: takes no {len(data)} bytes: raise its max.message.bytes")
        elif kind == SITES:
            sender.send_sites([data])
        elif kind in RESULTS:
            sender.send_pages(kind, [data])
        elif kind == TOMBSTONES:
            sender.bury(IMPORTANCE, [data])
            sender.bury(SCHEDULE, [data])
        elif kind == AUDIT:
            values = orjson.loads(data)
            key = f"{values['shard']}".encode()
            sender.send_values(AUDIT, [key], [key], [sender.framer(AUDIT).encode(values)])
        elif kind == REJECTS:
            sender.send_rejects(data, f"{self._ledger_topic}/")
        count(f"sent_{kind.replace('-', '_')}", sender.sent_now())


_NO_PAIRS: dict[str, object] = {"sent_to": [], "received_from": []}
"""A replay has one shard."""


class _Sender:
    """Sends rows of columns, and counts them."""

    def __init__(
        self,
        to: Destination,
        publisher: Publisher,
        framers: dict[str, Framer] | None = None,
        time_ms: int | None = None,
    ) -> None:
        """`time_ms` is the time of the records; None: when they are sent."""
        self._to = to
        self._publisher = publisher
        self._framers = {} if framers is None else framers
        self._time_ms = time_ms
        self._records = dict.fromkeys(STREAMS, 0)
        self._tombstones = dict.fromkeys(STREAMS, 0)

    def framer(self, topic: str) -> Framer:
        if topic not in self._framers:
            self._framers[topic] = Framer(self._to.connection, self._to.prefix + topic, STREAMS[topic])
        return self._framers[topic]

    def send_pages(self, topic: str, parts: Iterable[bytes]) -> None:
        for part in parts:
            pages = pages_of(part)
            columns = RESULTS[topic].columns_of_pages(pages)
            self.send(topic, hosts_of(pages.texts) if topic == ORDERS else pages.texts, pages.texts, columns)

    def send_sites(self, parts: Iterable[bytes], removed_pages: Iterable[bytes] = ()) -> None:
        """Send sites, and tombstones of sites without pages. A site that is in several shards has a key in each."""
        for part in map(pages_of, parts):
            names = [name.decode("utf-8") for name in part.texts]
            shard, by = part.moment["shard"], part.moment["by"]
            left = part.columns["pages"] > 0
            is_divided = part.columns["shards"] > 1
            keys = [f"{name}#{shard}" if divided else name for name, divided in zip(names, is_divided, strict=True)]
            some = np.flatnonzero(left).tolist()
            self.send(SITES, [names[row] for row in some], [keys[row].encode() for row in some], site_columns(part))
            lost = {name for pages in map(pages_of, removed_pages) for name in site_names(pages.urls, by)}
            gone = [*(names[row] for row in np.flatnonzero(~left).tolist()), *sorted(lost.difference(names))]
            for keys in (gone, [f"{name}#{shard}" for name in gone]):
                self._bury(SITES, gone, [key.encode() for key in keys])

    def send_rejects(self, lines: bytes, topic: str = "") -> None:
        """Send rejects. Of the log of a shard, `topic` and a slash come before its number."""
        columns = reject_columns(lines)
        sources = [f"{topic}{source}" for source in columns["source"]]
        keys = [f"{source}:{at}".encode() for source, at in zip(sources, columns["offset"], strict=True)]
        self.send(REJECTS, keys, keys, {**columns, "source": sources})

    def send(self, topic: str, by: Sequence[bytes | str], keys: Sequence[bytes], columns: Columns) -> None:
        """Send rows; `by` are the texts that give them their partitions."""
        framer = self.framer(topic)
        self.send_values(topic, by, keys, encode_rows(schema(STREAMS[topic]), columns, framer.prefix))

    def send_values(
        self, topic: str, by: Sequence[bytes | str], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        self._send(topic, by, keys, values)
        self._records[topic] += len(keys)

    def bury(self, topic: str, parts: Iterable[bytes]) -> None:
        """Send tombstones of removed pages. A page whose URL was never known was never published either."""
        for pages in map(pages_of, parts):
            keys = [url.encode() for url in pages.urls if url]
            self._bury(topic, keys, keys)

    def _bury(self, topic: str, by: Sequence[bytes | str], keys: Sequence[bytes]) -> None:
        self._send(topic, by, keys, [None] * len(keys))
        self._tombstones[topic] += len(keys)

    def sent(self) -> list[Sent]:
        return [Sent(self._to.prefix + t, self._records[t], self._tombstones[t]) for t in STREAMS]

    def sent_now(self) -> int:
        """The number of records so far, tombstones included; a transfer is not counted."""
        return sum(self._records.values()) + sum(self._tombstones.values())

    def _send(
        self, topic: str, by: Sequence[bytes | str], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        if not keys:
            return
        name = self._to.prefix + topic
        partitions = partitions_of(by, self._publisher.partitions(name)).tolist()
        if large := self._publisher.send_many(name, partitions, keys, values, self._time_ms):
            raise KafkaRefused(
                f"{name}: takes no record of {len(values[large[0]] or b'')} bytes: raise its max.message.bytes"
            )
