"""The bytes in logs and in Flink's state do not change: running jobs and old logs must stay readable.

Most formats are JSON with the names of fields, so a renamed field changes the bytes.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import xxhash

from opicflow.pipelines.ledger import LedgerConfig, RefreshConfig
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, request_fingerprint
from opicflow.pipelines.stages.log_head import LogHead, digest_of_value
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.shard import SourceState
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds
from opicflow.schemas.public_suffixes import PublicSuffixes
from opicflow.schemas.shards import ShardRanges

ORIGIN = Origin(
    LedgerConfig(refresh=RefreshConfig(strategy="thesis", discovery_by="cash")),
    ShardRanges.equal(4),
    Rules(page_ids=PageIds(suffixes=PublicSuffixes("none", b"com"))),
    quiet_until={"kafka/id/0": 7},
)


def digest(data: bytes) -> str:
    return xxhash.xxh64_hexdigest(data)


def test_an_origin_keeps_its_entry() -> None:
    entry = ORIGIN.entry()
    values = json.loads(entry[18:])["values"]["values"]["origin"]
    names = ["ledger", "shards", "rules", "records_per_visit", "least_move", "audit_seconds", "quiet_until"]
    assert list(values) == [*names, "page_ids", "canonical"]
    assert digest(entry) == "b61bca579b25087a", "a new setting of ledgers may change it; a renamed one must not"
    assert Origin.of(decode_entry(entry)) == ORIGIN


def test_an_origin_with_a_key_and_boundaries_is_read_back() -> None:
    placed = replace(ORIGIN, ranges=ShardRanges((0, 5, 7, 9)), rules=Rules(page_ids=PageIds(key=bytes(range(16)))))
    entry = placed.entry()
    values = json.loads(entry[18:])["values"]["values"]["origin"]
    assert list(values)[-3:] == ["page_ids", "first_ids", "canonical"]
    assert Origin.of(decode_entry(entry)) == placed


def test_a_head_keeps_its_bytes() -> None:
    stored = b'{"next":6,"chain":"76024859ff05ae7c55bc9d889481e8ce","last_offset":5,"last_digest":"107876e4e94ea9c1"}'
    head = LogHead().behind(5, 1000, digest_of_value(b"value"))
    assert head.to_bytes() == stored and LogHead.from_bytes(stored) == head


def test_a_snapshot_keeps_the_names_and_the_order_of_its_notes() -> None:
    keeper = LedgerKeeper(1)
    for offset, value in enumerate((ORIGIN.entry(), request_fingerprint())):
        list(keeper.take(MessageBatch.of(offset, [(offset, 1000 * offset, value)])))
    chunks = list(keeper.chunks())
    head, notes = json.loads(chunks[0])
    assert list(head) == ["next", "chain", "last_offset", "last_digest"]
    names = ["origin", "visits_at_plan", "audit_second", "sent_to", "received_from"]
    assert list(notes) == [
        *names,
        "removed_from_sites",
        "visits_at_sites",
        "sites_second",
        "sites",
        "clocks_differ",
        "refused",
        "output_ms",
        "movers",
        "unpublished",
        "changes",
    ]
    assert digest(chunks[0]) == "f805a93028695536", "a new setting of ledgers may change it; a renamed one must not"
    again = LedgerKeeper.from_chunks(1, chunks)
    assert list(again.chunks()) == chunks and again.origin == ORIGIN


def test_the_state_of_a_router_keeps_its_bytes() -> None:
    state = SourceState(9, np.array([1, 2]), np.array([3, 4]), "{}")
    stored = bytes.fromhex(
        "4f50464301008ad164250e74eaff9e0000007b226b696e64223a22736f75726365222c2276616c756573223a7b226e657874223a392c2272"
        "756c6573223a227b7d222c22736f75726365223a22222c22636f756e7465645f66726f6d223a307d2c22636f6c756d6e73223a5b5b227365"
        "6e745f746f222c223c6938222c227c6931222c322c66616c73655d2c5b22766973697473222c223c6938222c227c6931222c322c66616c73"
        "655d5d7d2020202001020000000000000304000000000000"
    )
    assert state.to_bytes() == stored and SourceState.from_bytes(stored).to_bytes() == stored
    named = SourceState.from_bytes(stored).of("kafka/id/0", 0)
    assert SourceState.from_bytes(named.to_bytes()).source == "kafka/id/0" and named.next == 9
