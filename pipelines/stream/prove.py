"""Proof that the ledgers of a stream are what their logs say: each log is read again from its start, and compared.

Every ledger is asked for its fingerprint by an entry of its own log, so it answers for just that place, while the
stream goes on. The answer comes in the topic audit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.records import batches
from opicflow.connectors.kafka.source import read_stretch
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.stream.routers import batch_of
from opicflow.pipelines.transforms.stream_keeper import FINGERPRINT, LogKeeper, ask_fingerprint
from opicflow.schemas.records import Audit

_AUDIT = "audit"


@dataclass(frozen=True)
class Proof:
    """A shard: what its log gives, and whether the running ledger gave the same fingerprint."""

    shard: int
    fingerprint: str
    is_same: bool
    pages: int
    keeper: LogKeeper


def prove(
    connection: Connection,
    prefix: str = "",
    ledger_topic: str | None = None,
    limit_seconds: float = 120.0,
    tell: Callable[[Proof], None] = lambda proof: None,
) -> list[Proof]:
    """Ask all ledgers, read all their logs up to the question, and compare. `KafkaRefused` if one does not answer.

    `tell` hears of each shard as soon as it is known. All ledgers are made anew in this process, one after the other.
    """
    topic = ledger_topic or names(prefix).page_ledger
    answers = _Answers(connection, prefix)
    with Publisher(connection) as publisher:
        for log in resolve(connection, topic):
            publisher.send(topic, None, ask_fingerprint(), log.partition)
        publisher.flush()
    proofs = []
    for log in resolve(connection, topic):
        keeper, asked = LogKeeper(log.partition, log.start), ""
        for batch in read_stretch(log):
            for output in keeper.take(batch_of(batch)):
                if output.name == FINGERPRINT:
                    asked = output.data.decode()
        if not asked:
            raise KafkaRefused(
                f"{topic}, partition {log.partition}: no ledger begins in it: name the topic of the logs with --ledger"
            )
        proof = Proof(
            log.partition,
            asked,
            answers.wait_for(log.partition, asked, limit_seconds),
            keeper.ledger.pages if keeper.ledger else 0,
            keeper,
        )
        tell(proof)
        proofs.append(proof)
    return proofs


class _Answers:
    """What ledgers answered since this was made."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._given: dict[int, list[str]] = {}
        self._topic = prefix + _AUDIT
        self._coming: Iterator[list[Audit]] = (
            [one.record for one in batch if isinstance(one.record, Audit) and one.record.fingerprint]
            for batch in batches(connection, _AUDIT, prefix=prefix, follow=True, only_new=True)
        )
        next(self._coming)  # from here on; the first look finds out where that is

    def wait_for(self, shard: int, fingerprint: str, limit_seconds: float) -> bool:
        """Whether the ledger of a shard gave this fingerprint; False if it gave others and not this."""
        give_up_at = time.monotonic() + limit_seconds
        while fingerprint not in self._given.get(shard, ()):
            if time.monotonic() > give_up_at:
                if self._given.get(shard):
                    return False
                raise KafkaRefused(
                    f"{self._topic}: the ledger of shard {shard} did not answer in {limit_seconds:.0f} s: see with "
                    "opicflow stream status whether it runs"
                )
            for record in next(self._coming):
                self._given.setdefault(record.shard, []).append(record.fingerprint)
        return True
