"""`opicflow validate`: the events of a log that would be rejected, and what would improve the results."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

from opicflow.pipelines.cli.options import (
    add_json,
    add_latest,
    add_logs,
    add_rule_options,
    latest_ms_of,
    natural,
    rules_of,
)
from opicflow.pipelines.cli.text import printable

EXAMPLES = """examples:
  opicflow validate crawl.jsonl
  opicflow validate 'logs/*.avro' --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_logs(parser)
    add_rule_options(parser)
    add_json(parser, "print the findings as JSON")
    add_latest(parser)
    parser.add_argument("--most", type=natural, default=10, metavar="N", help="show so many rejects (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the events of a log that would be rejected, with reasons, and what would improve the results."""
    from opicflow.connectors.files.decoded import most_first
    from opicflow.connectors.files.log_reader import FileRange, known_format
    from opicflow.connectors.files.opening import expand
    from opicflow.pipelines.replay.summary import notes_for
    from opicflow.pipelines.transforms.decode import decode_range, route_rows
    from opicflow.pipelines.transforms.route import Seen, accepted
    from opicflow.pipelines.transforms.rules import Rules
    from opicflow.schemas.crawl_events import Reason

    latest_ms = latest_ms_of(options.latest, None)
    rules = rules_of(options) or Rules()
    begun = time.perf_counter()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    seen = Seen()
    files = list(dict.fromkeys(expand(options.logs)))
    for file in files:
        format_ = known_format(file)
        if format_ is None:
            reasons[Reason.EMPTY_FILE.value] += 1
            counts["events_read"] += 1
            shown.append({"reason": Reason.EMPTY_FILE.value, "where": file, "detail": "the file is empty", "bytes": ""})
            continue
        for batch in decode_range(FileRange("log", file, format_), rules):
            events = batch.decoded.events
            visits = (events.announce == 0) & accepted(events, batch.urls, latest_ms)
            counts["visits_without_digest"] += int(((events.digest == 0) & visits).sum())
            routed = route_rows(batch.decoded, batch.urls, batch.source, rules, seen, latest_ms)
            counts.update(routed.counts)
            reasons.update(routed.reasons)
            for reject in routed.rejects:
                if len(shown) < options.most:
                    shown.append(
                        {
                            "reason": reject.reason.value,
                            "where": f"{file}, byte {reject.offset}",
                            "detail": reject.detail,
                            "bytes": reject.bytes[:120].decode("utf-8", "backslashreplace"),
                        }
                    )
    rejected = sum(reasons.values())
    summary: dict[str, Any] = {
        "events_read": counts.pop("events_read", 0),
        "visits": counts.pop("visits", 0),
        "announcements": counts.pop("announcements", 0),
        "rejects": rejected,
        **{name: count for name, count in counts.items() if count},
        "rejects_by_reason": most_first(reasons),
        "seconds": round(time.perf_counter() - begun, 3),
    }
    summary.setdefault("visits_links_unknown", 0)
    summary.setdefault("visits_without_time", 0)
    notes = notes_for(summary, {})
    if summary.get("visits_without_digest", 0) > 0.05 * max(summary["visits"], 1):
        notes.append(
            f"{summary['visits_without_digest'] / max(summary['visits'], 1):.0%} of the visits have no digest: "
            "change rates come from 'not modified' and dates of change alone."
        )
    if options.json:
        print(json.dumps({"summary": summary, "rejects": shown, "notes": notes}, indent=2))
        return 0
    print(
        f"{summary['events_read']:,} events read = {summary['visits']:,} visits + {summary['announcements']:,} "
        f"announcements + {rejected:,} rejects (only a replay finds duplicates)"
    )
    for reason, count in most_first(reasons).items():
        print(f"  {count:10,}  {reason}")
    for row in shown:
        print(f"{row['where']}: {row['reason']}: {printable(row['detail'])}")
        if row["bytes"]:
            print(f"    {printable(row['bytes'])}")
    for note in notes:
        print(f"note: {note}")
    if not notes and not rejected:
        print("no problems found")
    return 0
