"""Snapshots and encoded entries keep their bytes, whatever fields are called in the code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from ledger.test_snapshot import CONFIGS, crawl, kept, page_of, transfers
from opicflow.pipelines.ledger import (
    START,
    Certified,
    ControlEntry,
    CrawlEntry,
    DomainLimits,
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
    "all-1-links": "54fb66ac616314f07990fbeb515e2a86",
    "fixed-1-links": "bd436aae126dd96063889f722f763a7b",
    "improved-fixed-1-links": "8a5f0dce991e26b6b32597b5d2e79a87",
    "variable-1-links": "d1feee47628c926c5d95fd3022adb2d7",
    "paper-interpolation-1-links": "de33dd297e355e97f1f07ca73f35723f",
    "interpolation-1-links": "a89132a6d750127277e7c0c75da653fe",
    "absorbing-1-links": "ee2cc85a9d3f69c2f373dfbeb25c6fc8",
    "all-4-plain": "de67aebc1c3d38e06b45b74b9c70fd2c",
    "fixed-4-plain": "8f62db54bb06f9f0e278cb21a5464b72",
    "improved-fixed-4-plain": "e6190c30a95e58072fdf7e832b58d32e",
    "variable-4-plain": "35ce1bab49887713d99ac7bea1f0cdc3",
    "paper-interpolation-4-plain": "19296c773c28648dfb2840997bb5a456",
    "interpolation-4-plain": "48f97d802c983ca3633195a030eae0e9",
    "absorbing-4-plain": "a6b0df33234cc9723e1df23af4d91b29",
    "interpolation-3-links": "844964ddbfdb00cd4e8135bf2287dc66",
    "interpolation-1-plain": "7a16bf2a556d6dd1f112517f83ce168a",
}
ENTRIES = {
    "crawl": "a1e3cb0b74aaf71f4983aded3c9525e7",
    "transfers": "d155587d05006fb9e1d65078b624c4b9",
    "certified": "0a2e2779d7051448f00ff25225488f55",
    "policy": "3bf779317f252b24d1c0d835a9b1fdb6",
    "policy of nothing": "a9ae9d5f71e8698e45bc4f834913fa1a",
    "tick": "b147d741ae5888ec93ce3476e4a49366",
    "control": "82e67509f1e1107348f4158da7ca0281",
}
CERTIFIED = {1: "80e973e6ec0beb3ecf9039ef870820f9", 3: "8fd192525c7195faf74e57b73fea6c77"}
PLANNED = "061477aad221ce13ef92ffce3ded73e4"


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
    ledger = Ledger(LedgerConfig(refresh=refresh, max_pages=60, **two))
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


@pytest.mark.parametrize("shards", CERTIFIED)
def test_snapshots_of_certified_have_the_bytes_that_they_always_had(shards: int) -> None:
    shard = shards // 2
    config = LedgerConfig(history=Certified(), class_weights=(32, 16), domains=DomainLimits(60, None, 0.2))
    ledger = Ledger(replace(config, refresh=OLD_DEFAULTS), shard, shards)
    for day in range(5):
        ledger.apply(TickEntry(day * 86_400 + day))
        items = crawl(shard, shards, 60 * day, 60).items
        plain = replace(items, category=np.zeros_like(items.category), link_categories=items.link_categories | 255)
        start = LogPosition(60 * day, 0)
        ledger.apply(CrawlEntry("crawl", start, LogPosition(60 * day + 60, 0), plain))
    drop = tuple(page_of(shard, shards, number) for number in range(10, 16))
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), 0.8, (16, 8), None, drop, drop[:2]))
    ledger.apply(TickEntry(5 * 86_400))
    ledger.publish(ledger.importance()[0])
    ledger.audit()
    assert digest_of(chunk.data for chunk in ledger.snapshot()) == CERTIFIED[shards]


@pytest.mark.parametrize("name", entries())
def test_encoded_entries_have_the_bytes_that_they_always_had(name: str) -> None:
    data = encode_entry(entries()[name])
    assert digest_of([data]) == ENTRIES[name]
    assert encode_entry(decode_entry(data)) == data
