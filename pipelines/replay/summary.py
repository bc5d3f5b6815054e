"""The summary of a replay: counts of all its segments, and notes on how to improve the results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from opicflow.connectors.files.decoded import most_first
from opicflow.connectors.files.log_reader import FileRange
from opicflow.pipelines.ledger import RemovalReason
from opicflow.pipelines.replay.inputs import first_read
from opicflow.pipelines.replay.state import Run, State
from opicflow.pipelines.stages.decode import InputRange
from opicflow.pipelines.stages.route import COUNTS
from opicflow.schemas.crawl_events import Reason

_MOST_REFUSED_SHOWN = 5
_ROUTER_COUNTS = COUNTS[2:]  # all but visits and announcements, which have their own lines


def summary_of(
    state: State, run: Run, empty_files: Sequence[str], input_ranges: Sequence[InputRange]
) -> dict[str, Any]:
    """Return the summary of a run. Every event that was read is accounted for."""
    counts, last, duplicates = run.total, run.result, run.total["duplicates"]
    reasons = _rejects_by_reason(run, len(empty_files))
    removed = {
        why.name.lower(): counts[f"pages_{why.name.lower()}"]
        for why in RemovalReason
        if f"pages_{why.name.lower()}" in counts
    }
    summary: dict[str, Any] = {
        "events_read": counts["events_read"] + len(empty_files),
        "visits": counts["visits"] - duplicates - counts["forgotten"],
        "announcements": counts["announcements"],
        "rejects": sum(reasons.values()),
        "duplicates": duplicates,
        "late": counts["late"],
        "pages": last.pages,
        "pages_read": last.pages_read,
        **{name: counts[name] for name in _ROUTER_COUNTS},
        "transfers": last.transfers,
        "turns": round(last.turns, 3),
        "drift": last.drift,
        "events_ahead": counts["events_ahead"],
        "rejects_by_reason": most_first(reasons),
        "files": len(empty_files) + sum(isinstance(one, FileRange) for one in first_read(input_ranges)),
        "partitions": sum(len(one.partitions) for one in first_read(input_ranges)),
        "policies": counts["policies"],
        "policies_refused": len(run.refused_policies),
        "pages_removed": removed,
        "plan": last.plan,
        "history": state.ledger["history"]["policy"],
        "page_id_key": state.rules_of_page_ids.fingerprint,
        **({} if last.certificate is None else {"certificate": last.certificate}),
        **({} if last.not_learnt is None else {"not_learnt": last.not_learnt}),
    }
    total = sum(summary[name] for name in ("visits", "announcements", "rejects", "duplicates"))
    assert total == summary["events_read"], f"{total} events accounted for, {summary['events_read']} read"
    return summary


def why_all_rejected(summary: dict[str, Any]) -> str | None:
    """Return a sentence if nothing but rejects was read; None otherwise. Files that are empty do not count."""
    reasons = dict(summary["rejects_by_reason"])
    empty = reasons.pop(Reason.EMPTY_FILE.value, 0)
    if not summary["rejects"] - empty == summary["events_read"] - empty > 0:
        return None
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    found = f"every record was rejected ({counts}): opicflow validate shows them"
    return "; ".join([found, *ahead_note(summary)]).rstrip(".")


def ahead_note(summary: dict[str, Any]) -> list[str]:
    """Return a note about events that are ahead of the clock, if there are some."""
    if not (events := summary.get("events_ahead", 0)):
        return []
    are = "event is" if events == 1 else "events are"
    advice = "correct the clock that dates them, read them again later, or give --latest"
    return [f"{events:,} {are} ahead of the clock: {advice}."]


def _rejects_by_reason(run: Run, empty_files: int) -> Counter[str]:
    reasons = run.rejects
    if empty_files:
        reasons[Reason.EMPTY_FILE.value] = empty_files
    if forgotten := run.total["forgotten"]:
        reasons["forgotten"] = forgotten
    return reasons


def policy_notes(run: Run) -> list[str]:
    """Return a note for each of the first refused policies."""
    refused = run.refused_policies
    notes = [f"refused: {json.dumps(policy)[:200]}: {why}" for policy, why in refused[:_MOST_REFUSED_SHOWN]]
    more = len(refused) - _MOST_REFUSED_SHOWN
    return [*notes, f"{more} more were refused."] if more > 0 else notes


def notes_for(summary: dict[str, Any], idle: dict[str, float], remembers: bool = False) -> list[str]:
    """Return what would improve the results, in sentences."""
    notes = []
    # Those that a ledger finds and does not count are in the counts below.
    forgotten = summary["rejects_by_reason"].get("forgotten", 0)
    visits = max(summary["visits"] + summary.get("duplicates", 0) + forgotten, 1)
    if summary["visits_links_unknown"] > 0.05 * visits:
        notes.append(
            f"Links are not known for {summary['visits_links_unknown'] / visits:.0%} of the visits: such pages pass "
            "nothing on. Send links, [] where a page has none."
        )
    if summary["visits_without_time"] > 0.05 * visits:
        notes.append(
            f"{summary['visits_without_time'] / visits:.0%} of the visits have no fetched_at: duplicates are not "
            "recognised, and there are no trends."
        )
    if summary.get("not_learnt", 0):
        notes.append(
            f"{summary['not_learnt']:,} links, sightings and announcements named pages that were not learnt: their "
            "domains have as many as max-unread-per-domain or max-announced-per-domain allow."
        )
    plan = summary.get("plan") or {}
    if plan.get("traps", 0) or plan.get("twins", 0):
        notes.append(
            f"{plan['pages_limited']:,} pages get few orders, as they bring only more of themselves, or what others "
            "have: opicflow traps lists them, and what to write to confirm or refuse it."
        )
    if idle.get("UNCHANGED", 0) > 0.05 and not remembers:
        notes.append(
            f"{idle['UNCHANGED']:.0%} of the cash sits on pages that answered 'not modified': --remember-links lets "
            "them pay along the links they had."
        )
    return notes
