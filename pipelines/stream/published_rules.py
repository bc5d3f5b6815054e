"""Rules of URLs and links that are published while a stream runs: a record in every partition of crawl-events.

Each is also noted in policies, which are kept: a partition that was added later, or whose oldest events were deleted,
has no record of rules that apply in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import partitions_of_topic, resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.source import read_range
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.errors import UserError

CONTROL = b'{"opicflow-control":'
"""The first bytes of a control record: a record of crawl-events that holds rules for the events after it."""

_VERSION = 1


class ControlUnknown(UserError):
    """A control record has a version or content that this code does not support."""


def control_record(rules: Rules) -> bytes:
    """Return the record that, sent to every partition of crawl-events, applies these rules to the events after it."""
    return CONTROL + orjson.dumps({"version": _VERSION, "rules": rules.to_json()}) + b"}"


def rules_of(control: bytes, before: Rules, where: str) -> Rules:
    """Return the rules of a control record; raises `ControlUnknown` for content that this code does not support."""
    content = _content_of(control, where, ["rules", "version"])
    return _checked(content["rules"], before, where)


@dataclass(frozen=True)
class RulesNote:
    """Rules, and where their records are in crawl-events: the offset in each partition that it had then."""

    rules: object
    """As JSON values."""
    topic_id: str
    offsets: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Return the record for policies."""
        values = {"version": _VERSION, "rules": self.rules, "topic": self.topic_id, "offsets": self.offsets}
        return CONTROL + orjson.dumps(values) + b"}"

    @classmethod
    def of(cls, record: bytes, where: str) -> RulesNote:
        """Read what `to_bytes` returned; raises `ControlUnknown`."""
        content = _content_of(record, where, ["offsets", "rules", "topic", "version"])
        return cls(content["rules"], content["topic"], tuple(content["offsets"]))

    def applies_at(self, topic_id: str, partition: int, start: int) -> bool:
        """Whether the rules came before the events from offset `start` on, which do not have their record."""
        was_added_later = partition >= len(self.offsets)
        return topic_id == self.topic_id and (was_added_later or self.offsets[partition] < start)


def first_rules(notes: Iterable[RulesNote], topic_id: str, partition: int, start: int, before: Rules) -> Rules:
    """Return the rules that a partition begins with at an offset; `before` if none were published before it."""
    found = None
    for note in notes:
        if note.applies_at(topic_id, partition, start):
            found = note
    return before if found is None else _checked(found.rules, before, "policies")


def publish_rules(connection: Connection, events: str, policies: str, rules: Rules) -> tuple[int, ...]:
    """Send rules to every partition of crawl-events, and a note to policies. Return their offsets."""
    topic_id, partitions = partitions_of_topic(connection, events)
    with Publisher(connection) as publisher:
        sent = [publisher.deliver(events, [control_record(rules)], partition) for partition in range(partitions)]
        offsets = tuple(position.offset for positions in sent for position in positions)
        publisher.deliver(policies, [RulesNote(rules.to_json(), topic_id, offsets).to_bytes()])
    if partitions_of_topic(connection, events)[1] != partitions:
        raise KafkaRefused(f"{events}: partitions were added while the rules were published: publish them again")
    return offsets


@dataclass(frozen=True)
class StoredNotes:
    """Reads the notes of published rules from policies where it is called."""

    connection: Connection
    policies: str

    def __call__(self) -> list[RulesNote]:
        """Return all notes, in their order."""
        found = []
        for one in resolve(self.connection, self.policies):
            for batch in read_range(one):
                for row, offset in enumerate(batch.offsets.tolist()):
                    value = batch.value(row) or b""
                    if value.startswith(CONTROL):
                        found.append(RulesNote.of(value, f"{self.policies}, offset {offset}"))
        return found


def _content_of(control: bytes, where: str, names: list[str]) -> Any:
    try:
        content = orjson.loads(control)["opicflow-control"]
        if sorted(content) != names or content["version"] != _VERSION:
            raise ControlUnknown(f"{_unknown(where)} ({', '.join(sorted(content))[:100]}): update opicflow")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as problem:
        raise _damaged(where, problem) from None
    return content


def _checked(values: object, before: Rules, where: str) -> Rules:
    try:
        rules = Rules.from_json(values, before.page_ids)
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged(where, problem) from None
    if rules.categories != before.categories:
        raise ControlUnknown(f"{_unknown(where)}: it has other categories, which cannot change in a log: rebuild")
    return rules


def _unknown(where: str) -> str:
    return f"{where}: a control record that this opicflow does not support"


def _damaged(where: str, problem: Exception) -> ControlUnknown:
    return ControlUnknown(f"{_unknown(where)} ({type(problem).__name__}: {str(problem)[:100]}): update opicflow")
