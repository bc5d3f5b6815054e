"""Proves that the ledgers of a stream follow from their logs: reads each log from its start, and compares.

An entry in its log requests the fingerprint of each ledger, which the ledger publishes for exactly that offset, in the
topic audit. The stream continues meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.record_reader import batches
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, request_fingerprint
from opicflow.pipelines.stages.outputs import FINGERPRINT, Output
from opicflow.pipelines.stream.rebuilt import rebuild
from opicflow.pipelines.stream.requests import send_to_all
from opicflow.pipelines.stream.snapshot_store import Snapshots
from opicflow.schemas.records import Audit

_AUDIT = "audit"


@dataclass(frozen=True)
class Proof:
    """The keeper of a shard as its log makes it, and whether the running ledger has the same fingerprint."""

    shard: int
    fingerprint: str
    is_same: bool
    pages: int
    keeper: LedgerKeeper


def prove(
    connection: Connection,
    prefix: str = "",
    ledger_topic: str | None = None,
    limit_seconds: float = 120.0,
    on_proof: Callable[[Proof], None] = lambda proof: None,
    snapshots: Snapshots | None = None,
) -> list[Proof]:
    """Request all fingerprints, apply all logs up to the requests, and compare.

    A log whose beginning was deleted is applied from its oldest snapshot on.

    `on_proof` is called after each shard. All ledgers are rebuilt in this process, one after the other. Raises
    `KafkaRefused` if a ledger does not answer.
    """
    topic = ledger_topic or names(prefix).page_ledger
    answers = _Answers(connection, prefix)
    send_to_all(connection, topic, request_fingerprint())
    proofs = []
    for log in resolve(connection, topic):
        keeper, fingerprint = _rebuilt_with_fingerprint(log, snapshots)
        if not fingerprint:
            raise KafkaRefused(
                f"{topic}, partition {log.partition}: it is not the log of a ledger: "
                "name the topic of the logs with --ledger"
            )
        proof = Proof(
            log.partition,
            fingerprint,
            answers.wait_for(log.partition, fingerprint, limit_seconds),
            keeper.ledger.pages if keeper.ledger else 0,
            keeper,
        )
        on_proof(proof)
        proofs.append(proof)
    return proofs


def _rebuilt_with_fingerprint(log: PartitionRange, snapshots: Snapshots | None) -> tuple[LedgerKeeper, str]:
    """Return the keeper of a log and the last fingerprint that its entries request; empty if none does."""
    found = [""]

    def note(output: Output) -> None:
        if output.kind == FINGERPRINT:
            found.append(output.data.decode())

    keeper = rebuild(log, on_output=note, snapshots=snapshots)
    return keeper, found[-1]


class _Answers:
    """The fingerprints that ledgers publish from now on."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._received: dict[int, list[str]] = {}
        self._topic = prefix + _AUDIT
        self._batches: Iterator[list[Audit]] = (
            [one.record for one in batch if isinstance(one.record, Audit) and one.record.fingerprint]
            for batch in batches(connection, _AUDIT, prefix=prefix, follow=True, only_new=True)
        )
        next(self._batches)  # the first, empty batch fixes the offsets that count as now

    def wait_for(self, shard: int, fingerprint: str, limit_seconds: float) -> bool:
        """Wait for this fingerprint of a shard; returns False if only others arrive in time."""
        give_up_at = time.monotonic() + limit_seconds
        while fingerprint not in self._received.get(shard, ()):
            if time.monotonic() > give_up_at:
                if self._received.get(shard):
                    return False
                raise KafkaRefused(
                    f"{self._topic}: the ledger of shard {shard} did not answer in {limit_seconds:.0f} s: check with "
                    "opicflow stream status whether it runs"
                )
            for record in next(self._batches):
                self._received.setdefault(record.shard, []).append(record.fingerprint)
        return True
