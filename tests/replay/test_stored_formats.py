"""What a replay stores of its keeper keeps its bytes."""

from __future__ import annotations

from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeper

HEAD = ReplayHead(3, 7, "c", 9, 201, 28, 5, "p", (1, 2))
STORED_HEAD = (
    b'{"portion":3,"part":7,"chain":"c","events":9,"next_sample_visits":201,"visits_at_sweep":28,"visits_at_plan":5,'
    b'"policies_chain":"p","unpublished":[1,2]}'
)


def test_a_head_keeps_its_bytes() -> None:
    assert HEAD.to_bytes() == STORED_HEAD
    assert ReplayHead.from_bytes(STORED_HEAD) == HEAD


def test_the_notes_of_a_keeper_keep_their_bytes() -> None:
    keeper = ReplayKeeper(KeeperConfig(), Ledger(LedgerConfig()), HEAD)
    stored = b"[" + STORED_HEAD + b",{},{},[],[],[]]"
    assert keeper.notes() == stored
    assert ReplayKeeper.from_notes(KeeperConfig(), Ledger(LedgerConfig()), stored).head == HEAD
