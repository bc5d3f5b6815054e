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
from opicflow.pipelines.replay.state import State
from opicflow.pipelines.stages.decode import InputRange
from opicflow.pipelines.stages.route import COUNTS
from opicflow.schemas.crawl_events import Reason

_MOST_REFUSED_SHOWN = 5
_ROUTER_COUNTS = COUNTS[2:]  # all but visits and announcements, which have their own lines


def counts_of(state: State) -> dict[str, int]:
    """Return the counts of all segments of this run."""
    total: dict[str, int] = {"events_read": 0, "bytes_read": 0}
    for report in state.run["reports"]:
        for name, count in report["tally"].items():
            total[name] = total.get(name, 0) + count
    return total


def summary_of(state: State, empty_files: Sequence[str], input_ranges: Sequence[InputRange]) -> dict[str, Any]:
    """Return the summary of a run. Every event that was read is accounted for."""
    counts, last = counts_of(state), state.run["last"]
    duplicates, forgotten = counts.get("duplicates", 0), counts.get("forgotten", 0)
    reasons = _rejects_by_reason(state, len(empty_files), forgotten)
    removed = {
        why.name.lower(): counts[f"pages_{why.name.lower()}"]
        for why in RemovalReason
        if f"pages_{why.name.lower()}" in counts
    }
    summary: dict[str, Any] = {
        "events_read": counts["events_read"] + len(empty_files),
        "visits": counts.get("visits", 0) - duplicates - forgotten,
        "announcements": counts.get("announcements", 0),
        "rejects": sum(reasons.values()),
        "duplicates": duplicates,
        "late": counts.get("late", 0),
        "pages": last["pages"],
        "pages_read": last["pages_read"],
        **{name: counts.get(name, 0) for name in _ROUTER_COUNTS},
        "transfers": last["transfers"],
        "turns": round(last["turns"], 3),
        "drift": last["drift"],
        "events_ahead": counts.get("events_ahead", 0),
        "rejects_by_reason": most_first(reasons),
        "files": len(empty_files) + sum(isinstance(one, FileRange) for one in first_read(input_ranges)),
        "partitions": sum(len(one.partitions) for one in first_read(input_ranges)),
        "policies": counts.get("policies", 0),
        "policies_refused": len(refused_policies(state.run)),
        "pages_removed": removed,
        "plan": last["plan"],
        "history": state.config["ledger"]["history"]["policy"],
        **{name: last[name] for name in ("certificate", "not_learnt") if name in last},
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


def _rejects_by_reason(state: State, empty_files: int, forgotten: int) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for report in state.run["reports"]:
        reasons.update(report["rejects"])
    if empty_files:
        reasons[Reason.EMPTY_FILE.value] = empty_files
    if forgotten:
        reasons["forgotten"] = forgotten
    return reasons


def refused_policies(run: dict[str, Any]) -> list[list[Any]]:
    """Return the policies that a run refused, and those that it will refuse when their time comes; and why."""
    refused = [one for report in run["reports"] for one in report["refused_policies"]]
    return [*refused, *run.get("last", {}).get("refused_to_come", ())]


def policy_notes(state: State) -> list[str]:
    """Return a note for each of the first refused policies."""
    refused = refused_policies(state.run)
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
    if idle.get("UNCHANGED", 0) > 0.05 and not remembers:
        notes.append(
            f"{idle['UNCHANGED']:.0%} of the cash sits on pages that answered 'not modified': --remember-links lets "
            "them pay along the links they had."
        )
    return notes
