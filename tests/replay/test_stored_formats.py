"""What a replay stores of its log keeps its bytes."""

from __future__ import annotations

from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog

STORED = (
    b'[[{"next":0,"chain":"","last_offset":-1,"last_digest":""},{"origin":null,"movers":0,"visits_at_plan"'
    b':0,"audit_second":-1,"sent_to":[],"received_from":[],"removed_from_sites":[],"visits_at_sites":0,"si'
    b'tes_second":-1,"sites":0,"clocks_differ":false,"refused":{},"output_ms":0,"are_movers_due":false,"mo'
    b'vers_second":-1,"has_more_movers":false,"unpublished":[]}],{"tally":{},"rejects":{},"samples":[],"re'
    b'fused_policies":[]},{"next_sample_visits":1,"next_moment_visits":0,"policies_chain":"","has_ordered"'
    b":false},[]]"
)


def test_the_notes_of_a_log_keep_their_bytes() -> None:
    log = ReplayedLog(ReplayConfig(), Ledger(LedgerConfig()))
    assert log.notes() == STORED
    again = ReplayedLog.from_notes(ReplayConfig(), Ledger(LedgerConfig()), STORED)
    assert again.head == log.head and again.notes() == STORED
