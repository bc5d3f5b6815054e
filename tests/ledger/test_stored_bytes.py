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

SNAPSHOTS = {
    "all-1-links": "f7652269681bb7e7daa3617653435f8c",
    "fixed-1-links": "30787d9746322099b37e7ef7a885d0e6",
    "improved-fixed-1-links": "3acf69ef596bed838262e73db98b79f3",
    "variable-1-links": "d7e2fe68ecbfd201344c2b9143d0ce22",
    "paper-interpolation-1-links": "fb93e8a8b9c332eb083a3e5a6b810c84",
    "interpolation-1-links": "de1e645260e4cac341441460885d735a",
    "absorbing-1-links": "5f545cc2b653c88eb4f76641ca1592fc",
    "all-4-plain": "17602f0437ac88bf3dfccdb25e6bd991",
    "fixed-4-plain": "8a75cb8557c0bb93afb66d4be4862467",
    "improved-fixed-4-plain": "658a6a40922e7cb18ccf68a2de75ae41",
    "variable-4-plain": "39603d7c4ece1102d9d0342a77738d81",
    "paper-interpolation-4-plain": "33e33ec48755534b08325689517a833c",
    "interpolation-4-plain": "dca59f67e0378e61016d98cf9f495701",
    "absorbing-4-plain": "3d5356d539ebad396c4af2864a3f90e5",
    "interpolation-3-links": "ba988e456cc5f04a0e3210484915085c",
    "interpolation-1-plain": "391e402d62218c35fd2648fe3e017b41",
}
ENTRIES = {
    "crawl": "c939e6abb3250b7986b56b8b59719e71",
    "transfers": "201510855c446ed1f76488493c6bf5f5",
    "certified": "85447563da18f5dbd425e85c00279a84",
    "policy": "12d50f8a8847d4c938654f74f669e22f",
    "policy of nothing": "9fd92aa976856e48d5ddec4e39e97d4d",
    "tick": "c2890e1f0fd8d70f8b0548bab4c26c41",
    "control": "5151283711caa1399babbe10e9ece163",
}
PLANNED = "ab103fdc5bf0424a834ae4d829f239ce"


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
    ledger = Ledger(LedgerConfig(refresh=refresh, max_pages=60, trend_days=3.0, **two), page_ids=PageIds.unkeyed())
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
