"""Snapshots and encoded entries keep their bytes, whatever fields are called in the code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ledger.test_snapshot import CONFIGS, crawl, kept, page_of, transfers
from opicflow.pipelines.ledger import (
    ControlEntry,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import ResidualSums
from opicflow.schemas.pages import PageIds
from opicflow.schemas.records import Policy
from support.old_entries import encode_old_entry

SNAPSHOTS = {
    "all-1-links": "5332195d555a04fc2162d860e1846c71",
    "fixed-1-links": "5c7172df1fcade2961214c72b021da44",
    "improved-fixed-1-links": "c98ca1fcf65fc5f6c0f45943cd431256",
    "variable-1-links": "f581752d13a742873ab7b2e88f4798fc",
    "paper-interpolation-1-links": "39d5067c5038e40945426072fc35e41f",
    "interpolation-1-links": "cee606776507ecc8cd16e04bcdf28867",
    "absorbing-1-links": "0a7174924c4b57017ccedf311b7c2513",
    "all-4-plain": "abf3c9a86e9adbf65ebdc25e17e556fc",
    "fixed-4-plain": "58cdbe296058c6f39d5a6e053cbb5f41",
    "improved-fixed-4-plain": "1604f18acc1ee585bb5bb7a6e87ada37",
    "variable-4-plain": "67b19f8189b56a2248ea6dc7ac6caedc",
    "paper-interpolation-4-plain": "7d7d773588490e7dfac2b7bddf83b147",
    "interpolation-4-plain": "fa1a94d8414c4bf37ba53ac2ecf84244",
    "absorbing-4-plain": "063a23905485e0d70c8793742cddee8b",
    "interpolation-3-links": "67338d7c9292b506a3f6a4488bb5b1da",
    "interpolation-1-plain": "7fb64c3950336b45db6298b876b05b2b",
}
OLD_ENTRIES = {
    "crawl": "145188e885d07d0f95a4526ba9010653",
    "transfers": "2985647b47e1f98b536737f559e46fbb",
    "policy": "12d50f8a8847d4c938654f74f669e22f",
    "policy of nothing": "9fd92aa976856e48d5ddec4e39e97d4d",
    "tick": "3b7247c4665a6327b5171007e59f88ec",
    "control": "d490d78efc724d11305f6cf559922200",
}
"""Of entries in older logs."""
ENTRIES = {
    "crawl": "3e0bb5f1498a59c93e29fbe84d7d37f1",
    "transfers": "f8b2547e1eb24c6a07136404358d157e",
    "certified": "952e921cc520c2aaf218efb34ed78a6b",
    "policy": OLD_ENTRIES["policy"],
    "policy of nothing": OLD_ENTRIES["policy of nothing"],
    "tick": "905e67797b6c89286f8b0b82d8d538b7",
    "control": OLD_ENTRIES["control"],
}
PLANNED = "fc19e7edfc14ff4807ac9d8019d86391"


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
    message = transfers(0, 2, [page_of(1, 3, 4), page_of(1, 3, 9)], [5 << 20, 7], 3 << 24, (11, 12))
    assert message.gossip is not None
    sums = ResidualSums(9 << 24, 7 << 24, -5, 11, 3, (1, 0, 2 << 40), (0, 5, 6))
    certified = replace(message, virtual=0, gossip=replace(message.gossip, residuals=sums, second=86_400, shares=9))
    return {
        "crawl": crawl(1, 3, 40, 60),
        "transfers": message,
        "certified": certified,
        "policy": PolicyEntry("rules", start, end, 0.8, (16, 8, 4, 2), (256, 0), (1, 2), (3,), policies),
        "policy of nothing": PolicyEntry("rules", start, end),
        "tick": TickEntry(86_400),
        "control": ControlEntry("crawl", {"ledger": LedgerConfig(refresh=OLD_DEFAULTS).to_json()}),
    }


OLD_DEFAULTS = RefreshConfig(strategy="thesis", discovery_by="cash")
"""The defaults when these bytes were pinned."""


def planned() -> Ledger:
    """A ledger that has published, planned, evicted and taken policies up."""
    refresh = replace(OLD_DEFAULTS, bandwidth_per_day=40.0, host_fetches_per_day=20.0)
    two = {"class_weights": (16, 16, 32, 8), "link_bonus_per_1024": (0, 128)}
    ledger = Ledger(LedgerConfig(refresh=refresh, max_pages=60, **two), page_ids=PageIds.unkeyed())
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


@pytest.mark.parametrize("name", OLD_ENTRIES)
def test_entries_of_older_logs_are_read(name: str) -> None:
    note = {"at": 7}
    old = encode_old_entry(entries()[name], note)
    assert digest_of([old]) == OLD_ENTRIES[name]
    assert encode_entry(*decode_entry(old)) == encode_entry(entries()[name], note)
