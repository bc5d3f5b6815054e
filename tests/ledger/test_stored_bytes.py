"""Snapshots and encoded entries keep their bytes, whatever fields are called in the code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest

from ledger.test_snapshot import CONFIGS, crawl, kept, page_of, transfers
from opicflow.pipelines.ledger import (
    ControlEntry,
    EndEntry,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    OpenEntry,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.schemas.records import Policy

SNAPSHOTS = {
    "all-1-links": "d915a3e8d00763316232cad9fb3675d1",
    "fixed-1-links": "a689ad9f71f83f67f896cd5f36a596aa",
    "improved-fixed-1-links": "be6c317a60c6b035cc211b9dc2382d37",
    "variable-1-links": "a032ecf21da966f588e312c8c72f7c06",
    "paper-interpolation-1-links": "0168d0e2f208bc1887cf319a6c80a44b",
    "interpolation-1-links": "f1a2bb7867d62c61092e0892ecc77e12",
    "absorbing-1-links": "c196038083583fdc2385b3ddb5749526",
    "all-4-plain": "c2026e45937c96250ee035dda89f1079",
    "fixed-4-plain": "b63d2a71e34f14444ebe81743bd29ac1",
    "improved-fixed-4-plain": "46f251977aa86574d379893efe31ba40",
    "variable-4-plain": "1e5e663da457c71d519fc5bd259c3480",
    "paper-interpolation-4-plain": "e51cd3fcbc4781a954a06597f0325ec0",
    "interpolation-4-plain": "4604c6654fcc8a2a74739b18c08b2c98",
    "absorbing-4-plain": "29a9b77c435aa3a5c6dbbf5d6bea9696",
    "interpolation-3-links": "5831850761c6429c84e589a7a1f11445",
    "interpolation-1-plain": "cc477148f3d5866c8a172de72362e056",
}
ENTRIES = {
    "crawl": "145188e885d07d0f95a4526ba9010653",
    "transfers": "2985647b47e1f98b536737f559e46fbb",
    "policy": "12d50f8a8847d4c938654f74f669e22f",
    "policy of nothing": "9fd92aa976856e48d5ddec4e39e97d4d",
    "tick": "3b7247c4665a6327b5171007e59f88ec",
    "control": "2e65f61cf263c63681c3603410b90e19",
    "end": "4ea207ca53dafde5642be7bfc6ad711f",
    "open": "49e3d5640a1acfd79702a95d9274a498",
}
PLANNED = "6fc65bd296d75abc7846ccaa0f09c359"


def digest_of(chunks: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(chunks)).hexdigest()[:32]


def entries() -> dict[str, LogEntry]:
    """An entry of every kind, with a value in every field."""
    start, end = LogPosition(3, 1), LogPosition(5, 0)
    policies = (
        Policy(host="example.org", host_fetches_per_day=9.5),
        Policy(url="https://example.org/a", refresh_interval_seconds=3600.0, expires_at_ms=10**12),
        Policy(fetches_per_second=0.5, discovery_share=0.3, refresh_policy="greedy"),
    )
    return {
        "crawl": crawl(1, 3, 40, 60),
        "transfers": transfers(0, 2, [page_of(1, 3, 4), page_of(1, 3, 9)], [5 << 20, 7], 3 << 24, (11, 12)),
        "policy": PolicyEntry("rules", start, end, 0.8, (16, 8, 4, 2), (256, 0), (1, 2), (3,), policies),
        "policy of nothing": PolicyEntry("rules", start, end),
        "tick": TickEntry(86_400),
        "control": ControlEntry("crawl", {"ledger": LedgerConfig().to_json()}),
        "end": EndEntry("crawl", start, end, 4),
        "open": OpenEntry(1, 0, True, np.arange(100, dtype=np.uint8)),
    }


def planned() -> Ledger:
    """A ledger that has published, planned, evicted and taken policies up."""
    refresh = RefreshConfig(bandwidth_per_day=40.0, host_fetches_per_day=20.0)
    two = {"class_weights": (16, 16, 32, 8), "link_bonus_per_1024": (0, 128)}
    ledger = Ledger(LedgerConfig(refresh=refresh, max_pages=60, trend_days=3.0, **two))
    ledger.apply(TickEntry(86_400))
    entry = crawl(0, 1, 0, 250)
    ledger.apply(entry)
    policies = (
        Policy(host="example.org", host_fetches_per_day=9.5),
        Policy(url="https://example.org/1", refresh_interval_seconds=36_000.0),
        Policy(url="https://example.org/2", forget=True),
        Policy(fetches_per_second=0.001, discovery_share=0.3, refresh_policy="freshness"),
    )
    ledger.apply(PolicyEntry("rules", LogPosition(0, 0), LogPosition(1, 0), policies=policies))
    ledger.apply(TickEntry(2 * 86_400))
    ledger.publish(entry.items.page[:40])
    ledger.plan(10, 0.1)
    return ledger


@pytest.mark.parametrize("config_name", CONFIGS)
def test_snapshots_have_the_bytes_that_they_always_had(config_name: str) -> None:
    assert digest_of(chunk.data for chunk in kept(config_name)) == SNAPSHOTS[config_name]


def test_the_snapshot_of_a_planned_ledger_has_the_bytes_that_it_always_had() -> None:
    ledger = planned()
    assert ledger.evicted > 0
    assert len(list(ledger.policies)) == 2
    assert digest_of(chunk.data for chunk in ledger.snapshot()) == PLANNED


@pytest.mark.parametrize("name", entries())
def test_encoded_entries_have_the_bytes_that_they_always_had(name: str) -> None:
    note = {"at": 7}
    data = encode_entry(entries()[name], note)
    assert digest_of([data]) == ENTRIES[name]
    assert encode_entry(*decode_entry(data)) == data
