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
from opicflow.schemas.records import Policy

SNAPSHOTS = {
    "all-1-links": "7edc835dc976707f0f4003e4b5c04671",
    "fixed-1-links": "5b8c0320f84e83386629e46d44ff03fd",
    "improved-fixed-1-links": "5124ebee8ca537d22710a3c6c278bc26",
    "variable-1-links": "3a2a2f878b70d5b15f5d68f7d5c3a29a",
    "paper-interpolation-1-links": "4c063c05970ef2d0a5e1849165d7f63f",
    "interpolation-1-links": "c00abfb3a0148e2d091fcf3e1453149a",
    "absorbing-1-links": "c6b7a282333a5b2d3350ddba5eca7656",
    "all-4-plain": "1e70b367fab1a1ed9609b67a2c0fe571",
    "fixed-4-plain": "8e357a4f5b21eda72a1f196fddb86a80",
    "improved-fixed-4-plain": "75411530830849262c758ea02315f3e3",
    "variable-4-plain": "e3c672907e81becfc35bf8e441009ede",
    "paper-interpolation-4-plain": "72aa80a5a7b7690d1b1368041339f623",
    "interpolation-4-plain": "a1e10c09ebab2ef61a27cdd81a8cdf75",
    "absorbing-4-plain": "942bec4d332efe9f93d5089e28a2d69b",
    "interpolation-3-links": "fe1bbfc7e44491c7d8588dbc1a1f3745",
    "interpolation-1-plain": "42fd1efccfe3eb2f303fa19dedcb9694",
}
ENTRIES = {
    "crawl": "c939e6abb3250b7986b56b8b59719e71",
    "transfers": "201510855c446ed1f76488493c6bf5f5",
    "certified": "85447563da18f5dbd425e85c00279a84",
    "policy": "12d50f8a8847d4c938654f74f669e22f",
    "policy of nothing": "9fd92aa976856e48d5ddec4e39e97d4d",
    "tick": "c2890e1f0fd8d70f8b0548bab4c26c41",
    "control": "45d9d19de551922236e6256abbfd109c",
}
PLANNED = "666eb87865f73ce56411275bd234c239"


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
