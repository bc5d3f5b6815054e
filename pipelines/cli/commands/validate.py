"""`opicflow validate`: the events of a log that would be rejected, and what would improve the results."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opicflow.pipelines.cli.options import (
    add_json,
    add_latest,
    add_logs,
    add_rule_options,
    latest_ms_of,
    reading_of,
    rules_of,
)
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural

if TYPE_CHECKING:
    from opicflow.connectors.files.log_reader import FileRange
    from opicflow.connectors.files.log_sample import LogSample
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.stages.decoded_batch import DecodedBatch
    from opicflow.pipelines.stages.rules import Rules

_MOST_NAMES = 20
_MOST_JUDGED = 100_000
"""Traps and twins are looked for in so many visits, the first ones: more of a larger log would take too long."""
_MOST_TRAPS, _LEAST_OF_TRAP = 3, 0.01
"""Notes name so many traps, and none of a smaller share of the visits."""
_LONGEST_NAME = 80
EXAMPLES = """examples:
  opicflow validate crawl.jsonl
  opicflow validate 'logs/*.avro' --json
  opicflow validate items.csv --field url=page_url      names of another crawler
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_logs(parser)
    add_rule_options(parser)
    add_json(parser, "print the findings as JSON")
    add_latest(parser)
    parser.add_argument("--most", type=natural, default=10, metavar="N", help="show so many rejects (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the events of a log that would be rejected, with reasons, and what would improve the results.

    The exit code is 1 if nothing but rejects was read.
    """
    from opicflow.connectors.files.decoded import most_first
    from opicflow.connectors.files.log_reader import FileRange, known_format
    from opicflow.connectors.files.log_sample import LogSample, sample_log
    from opicflow.connectors.files.opening import STDIN, expand
    from opicflow.pipelines.ledger import Ledger
    from opicflow.pipelines.replay.summary import notes_for
    from opicflow.pipelines.stages.decoded_batch import RoutedBatch, route_rows
    from opicflow.pipelines.stages.route import Seen, accepted
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stages.settings import LedgerOptions, default_ledger
    from opicflow.schemas.crawl_events import Reason
    from opicflow.schemas.event_columns import urls_with

    latest_ms = latest_ms_of(options.latest, None)
    rules, reading = rules_of(options) or Rules(), reading_of(options)
    sample = LogSample()
    begun = time.perf_counter()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    oddities: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    seen, batches = Seen(), 0
    ledger = Ledger(default_ledger(LedgerOptions(), None, rules.categories))
    unfinished: list[str] = []
    files = list(dict.fromkeys(expand(options.logs)))
    for file in files:
        format_ = known_format(file, reading)
        if format_ is None:
            reasons[Reason.EMPTY_FILE.value] += 1
            counts["events_read"] += 1
            shown.append({"reason": Reason.EMPTY_FILE.value, "where": file, "detail": "the file is empty", "bytes": ""})
            continue
        sample_log(file, format_, reading, sample)
        log = FileRange("log", file, format_, may_grow=file != STDIN, reading=reading)
        for batch in _batches(log, rules, unfinished):
            events = batch.decoded.events
            oddities["escaped"] += urls_with(events, b"&amp;")
            oddities["broken"] += events.broken_links
            visits = (events.announce == 0) & accepted(events, batch.urls, latest_ms)
            counts["visits_without_digest"] += int(((events.digest == 0) & visits).sum())
            routed = route_rows(batch.decoded, batch.urls, batch.source, rules, seen, latest_ms)
            counts.update(routed.counts)
            reasons.update(routed.reasons)
            if ledger.visits < _MOST_JUDGED:
                ledger.apply(RoutedBatch.of(batch, routed).at_offset(batches).entry)
                batches += 1
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
    notes = [*unfinished, *notes_for(summary, {})]
    if summary.get("visits_without_digest", 0) > 0.05 * max(summary["visits"], 1):
        notes.append(
            f"{summary['visits_without_digest'] / max(summary['visits'], 1):.0%} of the visits have no digest: "
            "change rates come from 'not modified' and dates of change alone."
        )
    notes += [*_notes_of_urls(oddities), *_notes_of_traps(ledger), *_notes_of_sample(sample)]
    code = 1 if rejected and rejected == summary["events_read"] else 0
    if options.json:
        found = {"crawlers": dict(sample.crawlers), "unread_names": dict(sample.unread)}
        print(json.dumps({"summary": summary, "rejects": shown, "notes": notes, **found}, indent=2))
        return code
    print_lines(
        f"{counted(summary['events_read'], 'event')} read = {counted(summary['visits'], 'visit')} + "
        f"{counted(summary['announcements'], 'announcement')} + {counted(rejected, 'reject')} "
        "(only a replay finds duplicates)"
    )
    for reason, count in most_first(reasons).items():
        print_lines(f"  {count:10,}  {reason}")
    for row in shown:
        print_lines(f"{row['where']}: {row['reason']}: {row['detail']}")
        if row["bytes"]:
            print_lines(f"    {row['bytes']}")
    for note in notes:
        print_lines(f"note: {note}")
    if sample.unread:
        names = ", ".join(name[:_LONGEST_NAME] for name, _ in sample.unread.most_common(_MOST_NAMES))
        more = f" and {len(sample.unread) - _MOST_NAMES} more" if len(sample.unread) > _MOST_NAMES else ""
        print_lines(f"fields that are not read: {names}{more}")
    if not notes and not rejected:
        print("no problems found")
    return code


def _batches(log: FileRange, rules: Rules, notes: list[str]) -> Iterator[DecodedBatch]:
    """Yield the batches of a log. If its end is incomplete it is a reject, and a note says what becomes of it."""
    from opicflow.pipelines.replay.inputs import last_part
    from opicflow.pipelines.stages.decode import decode_range

    for batch in decode_range(log, rules):
        yield batch
    if any(one.waits for one in batch.progress):
        is_complete = True
        for last in decode_range(replace(log, start=batch.end, may_grow=False), rules):
            yield last
            is_complete &= not last.decoded.rejects
        if not is_complete:
            notes.append(
                f"{log.file}: its last {last_part(log.format)} is not finished. If a crawler is still writing it, "
                "replay with --state: it is read when it is complete."
            )


def _notes_of_urls(oddities: Counter[str]) -> list[str]:
    """Return notes about URLs that a crawler has not read well."""
    notes = []
    if oddities["escaped"]:
        notes.append(
            f"with &amp;: {counted(oddities['escaped'], 'URL')}. The crawler has to turn it into & when it reads HTML, "
            "or these are other pages."
        )
    if oddities["broken"]:
        notes.append(f"without a URL: {counted(oddities['broken'], 'link')}. The other links of these pages count.")
    return notes


def _notes_of_traps(ledger: Ledger) -> list[str]:
    """Return notes about the traps and twins of the log, and what to write to confirm them."""
    from opicflow.pipelines.cli.commands.traps import rows_of

    rows = [row for row in rows_of(ledger) if row["share_of_fetches"] >= _LEAST_OF_TRAP]
    notes = [
        f"{row['what']}: {row['share_of_fetches']:.0%} of the visits, and {row['why']}. Plans limit such pages; "
        f"to confirm it: {row['confirm']}."
        for row in rows[:_MOST_TRAPS]
    ]
    if len(rows) > _MOST_TRAPS:
        notes.append(f"{len(rows) - _MOST_TRAPS:,} more traps and twins: opicflow traps lists them after a replay.")
    return notes


def _notes_of_sample(sample: LogSample) -> list[str]:
    """Return what formats of other crawlers lack, and what names may mean."""
    from opicflow.connectors.files.crawlers.dispatch import FORMATS

    notes = [
        f"{FORMATS[name].title} ({count:,} of the first {counted(sample.records, 'record')}): {FORMATS[name].lacks}."
        for name, count in sample.crawlers.most_common()
        if count
    ]
    return notes + [
        f"{name[:_LONGEST_NAME]} is not read: if it is the {meaning}, give --field {meaning}={name[:_LONGEST_NAME]}."
        for name, meaning in list(sample.meanings.items())[:_MOST_NAMES]
    ]
