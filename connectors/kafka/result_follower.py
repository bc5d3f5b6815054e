"""Follows the topics of results and of policies with one consumer: the records from a time on, and new records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from kafka import OffsetAndMetadata, TopicPartition

from opicflow.connectors.kafka.client import Record
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.late_records import LateRecords
from opicflow.connectors.kafka.messages import writer_of
from opicflow.connectors.kafka.partitions import described, resolve
from opicflow.connectors.kafka.record_reader import BY_KEY, POLICIES, SCHEMAS, record_of
from opicflow.schemas.framing import Decoder, FramingRefused, frame_kind
from opicflow.schemas.message_columns import ResultMessage
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Policy, to_avro

_POLL_RECORDS = 2_000
_PROBE_MS = 3_000


class ResultFollower:
    """Reads topics from a time on and then what arrives. A broker that was away is read on from where it was."""

    def __init__(
        self, connection: Connection, since_ms: Mapping[str, int | None], prefix: str = "", group: str | None = None
    ) -> None:
        """`since_ms` has the streams, and the time from which each is read; None: from the beginning.

        `group` is a name under which the brokers keep how far was read (`commit`): it goes on from there.
        Raises `KafkaRefused` if no broker answers. Streams without a topic are `absent`.
        """
        self._connection, self._prefix = connection, prefix
        with connection.doing("reading topics"), closing(connection.admin()) as admin:
            there = {stream: described(admin, prefix + stream) for stream in since_ms}
        self.absent = [stream for stream, found in there.items() if found is None]
        self._ids = {stream: found[0] for stream, found in there.items() if found is not None}
        self._decoders = {stream: Decoder(SCHEMAS[stream], writer_of(connection)) for stream in self._ids}
        self._streams: dict[TopicPartition, str] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._goals: dict[TopicPartition, int] = {}
        for stream in self._ids:
            for found in resolve(connection, prefix + stream, since_ms=since_ms[stream]):
                one = TopicPartition(prefix + stream, found.partition)
                self._streams[one], self._starts[one], self._goals[one] = stream, found.start, found.end
        settings = {
            "isolation_level": "read_committed",
            "max_poll_records": _POLL_RECORDS,
            "auto_offset_reset": "earliest",  # records may be deleted meanwhile: continue with the first that remains
        }
        with connection.doing("reading results"):
            self._consumer = connection.consumer(**settings, group_id=group)
            self._consumer.assign(list(self._starts))
            for one in self._starts if group else ():
                self._starts[one] = max(self._consumer.committed(one) or 0, self._starts[one])
            for one, start in self._starts.items():
                self._consumer.seek(one, start)
        self._places = dict(self._starts)
        self._late = LateRecords()

    def poll(self, timeout_ms: int) -> Iterator[tuple[str, Sequence[ResultMessage]]]:
        """Yield messages that have arrived, those of a partition in their order, with their stream.

        A record that came behind a newer one of its key is left out.
        """
        with self._connection.doing("reading results"):
            polled = self._consumer.poll(timeout_ms)
        for one, parts in polled.items():
            stream, records = self._streams[one], [record for part in parts for record in part.records()]
            if stream in BY_KEY:
                records = [one for one in records if not self._late.is_late(stream, one.key, one.timestamp)]
            yield stream, [_message(record, self._decoders[stream], stream == POLICIES) for record in records]

    def behind(self) -> int:
        """Return how many messages are not read yet.

        Raises `KafkaRefused` if no broker answers, `TopicReplaced` if a topic ends before the position read.
        """
        with self._connection.doing("reading results"):
            ends = self._consumer.end_offsets(list(self._starts), timeout_ms=_PROBE_MS)
            for one in self._starts:
                self._places[one] = self._consumer.position(one, timeout_ms=_PROBE_MS) or self._places[one]
        for one, end in ends.items():
            if end < self._places[one]:
                raise TopicReplaced(f"{one.topic} was deleted, or is another one now: everything is read again")
        return sum(max(end - self._places[one], 0) for one, end in ends.items())

    def commit(self) -> None:
        """Let the brokers keep the position: a reader with this name gets no earlier message again."""
        with self._connection.doing("keeping the position in the results"):
            positions = {one: self._consumer.position(one, timeout_ms=_PROBE_MS) for one in self._starts}
            read = {
                one: position
                for one, position in positions.items()
                if position is not None and position > self._starts[one]
            }
            if read:
                self._consumer.commit({one: OffsetAndMetadata(position, "", -1) for one, position in read.items()})

    @property
    def read_part(self) -> float:
        """The share read of the records that existed at the start, or when reading began again."""
        there = sum(goal - self._starts[one] for one, goal in self._goals.items())
        read = sum(min(self._places[one], goal) - self._starts[one] for one, goal in self._goals.items())
        return read / there if there > 0 else 1.0

    def read_again(self, *streams: str) -> None:
        """Read some streams from their first record that is left."""
        chosen = [one for one, stream in self._streams.items() if stream in streams]
        self._late = LateRecords()
        with self._connection.doing("reading results"):
            firsts = self._consumer.beginning_offsets(chosen, timeout_ms=_PROBE_MS)
            for one, end in self._consumer.end_offsets(chosen, timeout_ms=_PROBE_MS).items():
                self._consumer.seek(one, firsts[one])
                self._starts[one] = self._places[one] = firsts[one]
                self._goals[one] = end

    def is_same(self) -> bool:
        """Whether all topics are those that were there at the start."""
        with self._connection.doing("reading topics"), closing(self._connection.admin()) as admin:
            found = {stream: described(admin, self._prefix + stream) for stream in (*self._ids, *self.absent)}
        return {stream: one[0] for stream, one in found.items() if one is not None} == self._ids

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._consumer.close()


class TopicReplaced(KafkaRefused):
    """A topic is not the one that was read before."""


def _message(record: Record, decoder: Decoder, is_policy: bool) -> ResultMessage:
    key = record.key or b""
    try:
        if record.serialized_value_size < -1:
            return ResultMessage(key, None, record.partition, record.offset, is_readable=False)
        values: Mapping[str, object] | None = None
        if is_policy and record.value is not None and frame_kind(record.value) is None:  # people write them as JSON
            values = to_avro(record_of(record.value, decoder, Policy))
        elif record.value is not None:
            values = decoder.decode(record.value)
    except (FramingRefused, PolicyRefused):
        return ResultMessage(key, None, record.partition, record.offset, is_readable=False)
    return ResultMessage(key, values, record.partition, record.offset)
