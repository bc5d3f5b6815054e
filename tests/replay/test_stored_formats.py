"""What a replay stores of its log keeps its bytes."""

from __future__ import annotations

from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog

STORED = (
    b'[[{"next":0,"chain":"","last_offset":-1,"last_digest":""},{"origin":null,"visits_at_plan":0,"audit_s'
    b'econd":-1,"sent_to":[],"received_from":[],"removed_from_sites":[],"visits_at_sites":0,"sites_second"'
    b':-1,"sites":0,"clocks_differ":false,"refused":{},"output_ms":0,"movers":{"tick_second":-1,"visits":0'
    b',"ticks_without_visits":0,"elapsed":1,"allowance":0.0,"compared_second":-1,"is_going_on":false,"off"'
    b':0},"unpublished":[],"changes":{"last":{}}}],{"tally":{},"rejects":{},"samples":[],"refused_policies":[]},{"next_sample_vi'
    b'sits":1,"next_moment_visits":0,"policies_chain":"","has_ordered":false},[]]'
)


def test_the_notes_of_a_log_keep_their_bytes() -> None:
    log = ReplayedLog(ReplayConfig(), Ledger(LedgerConfig()))
    assert log.notes() == STORED
    again = ReplayedLog.from_notes(ReplayConfig(), Ledger(LedgerConfig()), STORED)
    assert again.head == log.head and again.notes() == STORED
