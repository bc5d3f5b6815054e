"""`opicflow replay`: the importance of all pages of a crawl log."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.divided_files import MOST_PARTS
from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.memory_limit import MemoryLimit, default_limit, size_in_bytes
from opicflow.pipelines.cli.options import (
    add_kafka_options,
    add_latest,
    add_logs,
    add_quiet,
    add_rule_options,
    focus_of,
    latest_ms_of,
    ledger_options_of,
    moment,
    now_second_of,
    reading_of,
    rules_of,
    sites_of,
)
from opicflow.pipelines.cli.output_files import STDOUT, check_output
from opicflow.pipelines.cli.progress import ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.settings_table import (
    BEAM,
    FACTOR,
    FOCUS,
    LEDGER,
    REFRESH,
    REPLAY,
    SITES,
    STATE,
    add_settings,
    fields_of,
)
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.text_tables import first_rows, print_pages, print_plan
from opicflow.pipelines.cli.values import natural, whole
from opicflow.schemas.errors import interrupted_after

if TYPE_CHECKING:
    from opicflow.pipelines.cli.thread_times import ThreadTimes
    from opicflow.pipelines.replay.runner import ReplayRequest, ReplayResult
    from opicflow.pipelines.replay.topic_input import Topic
    from opicflow.pipelines.results.topic_writer import Destination
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.schemas.pages import PageIds
    from opicflow.schemas.records import Policy

EXAMPLES = """examples:
  opicflow replay crawl.jsonl                          the top pages of a crawl
  opicflow replay 'logs/*.jsonl.gz' --out results --report report.html
  zcat crawl.gz | opicflow replay -                    from another program (JSON lines)
  opicflow replay crawl.jsonl --out - | head -n 3      to another program
  opicflow replay today.jsonl --state state            continues yesterday's ledger, or a replay that was killed
  opicflow replay CC-*.warc.wat.gz --settle            every page visited once: the exact ranks of the graph seen
  opicflow replay --from kafka://localhost:9092 --to kafka://localhost:9092    from topics to topics
"""


_PARTS = {
    "read": "read and decompress",
    "decode": "decode, with the canonical forms of URLs",
    "ahead": "route",
    "write": "write results",
    "MainThread": "ledger, start, plans, and Beam's worker",
}
"""The parts of a replay, by the names of their threads. Beam's worker routes."""
_MOST_KEY_BYTES = 1 << 16
_MOST_IN_MEMORY = 0.45
"""A ledger that takes this part of the memory has its URLs on disk: results take nearly as much again."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_logs(parser, "*")
    topics = parser.add_argument_group("Kafka instead of files (docs/guides/kafka.md)")
    topics.add_argument(
        "--from", dest="from_", metavar="ADDRESS", help="read kafka://HOST:PORT/crawl-events, up to now"
    )
    topics.add_argument("--since", metavar="TIME", help="omit older events, such as 2026-05-01 or …T12:00:00Z")
    topics.add_argument("--until", metavar="TIME", help="omit events from this time on")
    add_latest(parser)
    topics.add_argument("--to", metavar="ADDRESS", help="send the results to the topics of kafka://HOST:PORT")
    add_kafka_options(parser, brokers=False)
    out = parser.add_argument_group("results")
    out.add_argument(
        "--out",
        type=_folder_or_stdout,
        metavar="DIR",
        help="write importance, rejects and summary.json there; -: importance alone, to standard output",
    )
    out.add_argument(
        "--format", choices=["jsonl", "avro", "parquet"], default="jsonl", help="of the results (%(default)s)"
    )
    out.add_argument(
        "--parts",
        type=whole,
        default=1,
        metavar="N",
        help="divide each result into N files, in its order (%(default)s)",
    )
    out.add_argument("--top", type=natural, default=10, metavar="N", help="show so many pages (%(default)s)")
    out.add_argument("--report", type=Path, metavar="FILE", help="write a report as one HTML page")
    out.add_argument("--publications", action="store_true", help="also write what would be published during the crawl")
    out.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_quiet(out)
    ledger = add_settings(parser, LEDGER, "how importance is computed")
    ledger.add_argument(
        "--settle", action="store_true", help="push cash on without visits, until the ranks of the graph seen are exact"
    )
    add_rule_options(parser)
    add_settings(parser, REFRESH, "when pages are fetched again (docs/guides/refresh.md)")
    focus = add_settings(parser, {**FOCUS, **FACTOR, **SITES}, "what to focus on (docs/guides/refresh.md)")
    focus.add_argument("--policies", metavar="FILE", help="policies: JSON lines, or the topic of kafka://HOST:PORT")
    how = add_settings(
        parser, {**STATE, **REPLAY, **BEAM}, "how to run", state="keep the ledger there, and continue from it"
    )
    how.add_argument(
        "--now",
        metavar="TIME",
        help="time passes up to this one, or 'now', though the logs end earlier",
    )
    how.add_argument("--profile", action="store_true", help="print the processor time of each part")
    how.add_argument(
        "--memory", metavar="SIZE", help="end with one line before it takes more, such as 4GiB (3/4 of the machine's)"
    )
    how.add_argument(
        "--runner",
        default="DirectRunner",
        metavar="NAME",
        help="a Beam runner; %(default)s = Beam in this process; local = threads of this process, without Beam",
    )


def _folder_or_stdout(text: str) -> Path | str:
    return STDOUT if text == STDOUT else Path(text)


_MEMORY_REMEDY = (
    "give more with --memory, keep URLs in files with --set urls-on-disk=true, or limit the pages with --max-pages or "
    "--max-unread-per-domain; with --state the same command continues where it was"
)


def run(options: argparse.Namespace) -> int:
    """Replay the log, and print the top pages. The exit code is 1 if nothing but rejects was read."""
    from opicflow.connectors.files.whole_file import whole_file
    from opicflow.pipelines.replay import runner
    from opicflow.pipelines.replay.read_progress import Progress
    from opicflow.pipelines.replay.result_files import path_in_errors
    from opicflow.pipelines.replay.summary import why_all_rejected
    from opicflow.pipelines.stages.publish import ROWS_PER_PART

    _check_outputs(options)
    is_stream = options.out == STDOUT
    if is_stream:
        options.out = None
    most_bytes = default_limit() if options.memory is None else size_in_bytes(options.memory)
    request = replace(_request(options), most_in_memory=int(_MOST_IN_MEMORY * most_bytes))
    if options.report is not None:
        check_output(options.report, "report.html")
    announce_compilation(options.quiet, "pipelines.ledger")
    display = ProgressDisplay(options.quiet)
    latest: list[Progress] = []

    def show(progress: Progress) -> None:
        latest[:] = [progress]
        display.show(progress)

    def words() -> str:
        if not latest:
            return "within the first segment"
        pages = f" of {counted(latest[0].pages, 'page')}" if latest[0].pages else ""
        return f"after {counted(latest[0].events, 'event')}{pages}"

    profile = _profile() if options.profile else None
    with (
        closing(display),
        profile or nullcontext(),
        MemoryLimit(most_bytes, words, _MEMORY_REMEDY),
        runner.replayed(request, show) as result,
    ):
        display.close()
        if is_stream:
            _stream_importance(result.importance, options.format)
        best = result.importance[: -(-options.top // ROWS_PER_PART)]  # its files are removed at the end
        if options.report is not None:
            from opicflow.pipelines.serve.renderer import render_report
            from opicflow.pipelines.serve.replay_view import view_of_replay

            with path_in_errors(options.report), whole_file(options.report) as file:
                inputs = [request.topic.topic] if request.topic else options.logs
                file.write(render_report(view_of_replay(result, inputs)).encode("utf-8"))
            result.written.append(options.report)
    if options.json:
        print(json.dumps(result.summary, indent=2))
    elif is_stream:
        if not options.quiet:
            with redirect_stdout(sys.stderr):
                _print_result(result, best, options.top)
    else:
        _print_result(result, best, options.top)
    if profile is not None:
        print_lines(*profile.lines(), file=sys.stderr)
    if why := why_all_rejected(result.summary):
        print_lines(f"opicflow: {why}", file=sys.stderr)
        return 1
    return 0


def _profile() -> ThreadTimes:
    from opicflow.pipelines.cli.thread_times import ThreadTimes

    return ThreadTimes(_PARTS)


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse options of results that contradict each other."""
    if options.publications and not isinstance(options.out, Path) and options.to is None:
        raise InputRefused("--publications: nowhere to write them: name a folder with --out, or a cluster with --to")
    if options.parts > MOST_PARTS:
        raise InputRefused(f"--parts {options.parts}: at most {MOST_PARTS:,} files")
    if options.parts > 1 and not isinstance(options.out, Path):
        raise InputRefused(f"--parts {options.parts}: only files have parts: name a folder with --out")
    if options.out != STDOUT:
        return
    if options.json:
        raise InputRefused("--out -, --json: both write to standard output: omit one")
    if sys.__stdout__ is None:
        raise InputRefused("--out -: standard output is closed: send it to a program or a file")
    if options.format != "jsonl" and sys.__stdout__.isatty():
        raise InputRefused(f"--out -, --format {options.format}: no terminal shows it: send it to a program or a file")


def _stream_importance(parts: Sequence[bytes], format_: str) -> None:
    """Write importance to standard output. A reader that ends early, such as head, is no error."""
    from opicflow.pipelines.results.files import stream_result
    from opicflow.pipelines.results.record_columns import RESULTS
    from opicflow.pipelines.stages.outputs import IMPORTANCE

    assert sys.__stdout__ is not None
    try:
        with open(os.dup(sys.__stdout__.fileno()), "wb") as file, interrupted_after(lambda: "a part was printed"):
            stream_result(file, format_, RESULTS[IMPORTANCE], parts)
    except BrokenPipeError:
        pass
    except OSError as problem:
        raise InputRefused(f"standard output: {problem.strerror}: correct this, and run the command again") from None


def _request(options: argparse.Namespace) -> ReplayRequest:
    from opicflow.pipelines.replay.runner import ReplayRequest
    from opicflow.pipelines.replay.segments import SEGMENT_BYTES

    rules = rules_of(options)
    return ReplayRequest(
        logs=tuple(options.logs),
        topic=_topic(options),
        out=options.out,
        to=_destination(options),
        format=options.format,
        parts=options.parts,
        counting=ledger_options_of(options),
        focus=focus_of(options),
        policies=_policies(options, rules),
        rules=rules,
        page_ids=_page_ids(options.id_key),
        now_second=now_second_of(options.now),
        latest_ms=latest_ms_of(options.latest, options.now),
        settle=options.settle,
        state=options.state,
        samples=options.report is not None or options.state is not None,
        publications=options.publications,
        sites=sites_of(options),
        runner=options.runner,
        segment_bytes=options.segment_mb << 20 if options.segment_mb else SEGMENT_BYTES,
        urls_on_disk=bool(options.urls_on_disk),
        reading=reading_of(options),
        **fields_of(options, "job"),
    )


def _page_ids(path: Path | None) -> PageIds | None:
    """Return the rules of page ids with the key that a file holds, or with the public one."""
    from opicflow.schemas.pages import FEWEST_SECRET_BYTES, PUBLIC, PageIds

    if path is None:
        return None
    if str(path) == PUBLIC:
        return PageIds()
    try:
        secret = path.read_bytes()[:_MOST_KEY_BYTES].strip()
    except OSError as problem:
        raise InputRefused(f"id-key {path}: cannot be read ({problem.strerror}): name another file") from None
    if len(secret) < FEWEST_SECRET_BYTES:
        raise InputRefused(
            f"id-key {path}: it has {len(secret)} bytes, and a key needs {FEWEST_SECRET_BYTES}: make one with "
            "openssl rand -hex 16"
        )
    return PageIds.with_secret(secret)


def _topic(options: argparse.Namespace) -> Topic | None:
    """Return the topic that the replay reads; None for logs."""
    if options.from_ is None:
        if not options.logs and not options.state:
            raise InputRefused("nothing to replay: name logs, or a topic with --from kafka://HOST:PORT")
        for name in ("since", "until"):
            if getattr(options, name) is not None:
                raise InputRefused(f"--{name}: files are read whole: omit it, or read a topic with --from")
        return None
    if options.logs:
        raise InputRefused(f"{options.logs[0]}: a replay reads logs or a topic: omit one")
    from opicflow.connectors.kafka.connection import Connection, parse_address
    from opicflow.connectors.kafka.topics import names
    from opicflow.pipelines.replay.topic_input import Topic

    address = parse_address(options.from_)
    return Topic(
        Connection(address.brokers, options.properties, options.registry),
        options.prefix + (address.topic or names().crawl_events),
        since_ms=moment("--since", options.since),
        until_ms=moment("--until", options.until),
    )


def _destination(options: argparse.Namespace) -> Destination | None:
    """Return the topics that receive the results."""
    if options.to is None:
        return None
    from opicflow.connectors.kafka.connection import Connection, KafkaRefused, parse_address
    from opicflow.pipelines.results.topic_writer import Destination

    address = parse_address(options.to)
    if address.topic:
        raise KafkaRefused(f"{options.to}: results go to several topics: omit {address.topic}, or use --prefix")
    return Destination(Connection(address.brokers, options.properties, options.registry), options.prefix)


def _policies(options: argparse.Namespace, rules: Rules | None) -> tuple[Policy, ...]:
    """Return the importance factors of categories as policies, then the policies of a file or a topic."""
    from opicflow.pipelines.refresh.policies import check
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.pipelines.stages.settings import category_number
    from opicflow.schemas.policy_json import policies_of
    from opicflow.schemas.records import Policy

    categories = (rules or Rules()).categories
    factors = [
        Policy(category=category_number(categories, "factor", name), importance_factor=factor)
        for name, factor in options.factor or ()
    ]
    for policy in factors:
        check(policy, categories.count)
    if options.policies is None:
        return tuple(factors)
    if options.policies.startswith("kafka:"):
        return (*factors, *_policies_of_topic(options))
    with open(options.policies, "rb") as file:
        return (*factors, *policies_of(file, options.policies))


def _policies_of_topic(options: argparse.Namespace) -> Iterator[Policy]:
    """Yield the policies of a topic. One that cannot be read is skipped with a warning: it cannot be withdrawn."""
    from opicflow.connectors.kafka.connection import Connection, KafkaRefused, parse_address
    from opicflow.connectors.kafka.record_reader import POLICIES, records
    from opicflow.pipelines.stream.published_rules import CONTROL

    address = parse_address(options.policies)
    if address.topic not in (None, options.prefix + POLICIES):
        raise KafkaRefused(f"{options.policies}: policies are in {options.prefix}{POLICIES}: see --prefix")
    connection = Connection(address.brokers, options.properties, options.registry)
    for one in records(connection, POLICIES, prefix=options.prefix):
        if (one.value or b"").startswith(CONTROL):
            continue  # rules that were published to a stream: a replay has those of its options
        if one.record is None:
            where = f"{options.prefix}{POLICIES}, offset {one.offset}"
            print_lines(f"{where}: skipped: {one.broken or 'it is empty'}", file=sys.stderr)
        else:
            yield one.record


def _print_result(result: ReplayResult, best: Sequence[bytes], most: int) -> None:
    from opicflow.pipelines.cli.text import certified_in_words
    from opicflow.pipelines.results.record_columns import pages_of

    summary = result.summary
    print_lines(
        f"{counted(summary['events_read'], 'event')} read = {counted(summary['visits'], 'visit')} + "
        f"{counted(summary['announcements'], 'announcement')} + {counted(summary['rejects'], 'reject')} + "
        f"{counted(summary['duplicates'], 'duplicate')}"
    )
    print_lines(
        f"{counted(summary['pages'], 'page')}, {summary['pages_read']:,} read; {counted(summary['links'], 'link')}; "
        f"{counted(summary['late'], 'visit')} came late"
    )
    if "certificate" in summary:
        print_lines(f"importance is {certified_in_words(summary['certificate'])}")
    else:
        print_lines(
            f"importance is an estimate (history policy {summary['history']}): --history certified bounds its error"
        )
    for reason, count in summary["rejects_by_reason"].items():
        print_lines(f"  {count:10,}  {reason}")
    for note in result.notes:
        print_lines(f"note: {note}")
    if most:
        print()
        print_pages(first_rows(map(pages_of, best), most))
    print()
    print_plan(summary["plan"])
    print_lines("", f"{summary['seconds']:.1f} s, {summary['events_per_second']:,} events/s")
    for path in result.written:
        print_lines(f"written: {path}")
    for sent in result.published:
        tombstones = f" and {counted(sent.tombstones, 'tombstone')}" if sent.tombstones else ""
        print_lines(f"sent: {sent.records:,} to {sent.topic}{tombstones}")
