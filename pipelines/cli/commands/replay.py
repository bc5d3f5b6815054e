"""What the commands of `opicflow` do, and how they say it."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import errno
import json
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

logging.getLogger().setLevel(logging.ERROR)  # before Beam is imported, which warns of clouds that are not used here
for _name in ("common", "direct.executor"):  # what they log comes as an exception too
    logging.getLogger(f"apache_beam.runners.{_name}").setLevel(logging.CRITICAL)

import numpy as np  # noqa: E402
from tqdm import tqdm  # noqa: E402

from opicflow.connectors.files.log_reader import FileRange  # noqa: E402
from opicflow.connectors.files.opening import InputRefused, expand  # noqa: E402
from opicflow.connectors.files.whole_file import whole_file  # noqa: E402
from opicflow.connectors.kafka.connection import Connection, KafkaRefused, parse_address  # noqa: E402
from opicflow.connectors.kafka.records import POLICIES, records  # noqa: E402
from opicflow.connectors.kafka.topics import names  # noqa: E402
from opicflow.pipelines.ledger import ConfigRefused, Ledger, LedgerConfig, Outcome  # noqa: E402
from opicflow.pipelines.ledger.estimates import richest  # noqa: E402
from opicflow.pipelines.refresh.policies import check  # noqa: E402
from opicflow.pipelines.replay.inputs import Topic, known_format  # noqa: E402
from opicflow.pipelines.replay.report import Host, Report, Sample, TopPage, render  # noqa: E402
from opicflow.pipelines.replay.runner import (  # noqa: E402
    Progress,
    Request,
    Result,
    most_first,
    notes_for,
    plan_notes,
    replayed,
)
from opicflow.pipelines.replay.state import StateFolder, StateRefused  # noqa: E402
from opicflow.pipelines.results.files import (  # noqa: E402
    Pages,
    importance_lines,
    order_columns,
    pages_of,
    schedule_columns,
)
from opicflow.pipelines.results.schedules import Compared, compared, export, planned  # noqa: E402
from opicflow.pipelines.results.topics import Destination  # noqa: E402
from opicflow.pipelines.transforms.decode import Portion, parts_of, route_part  # noqa: E402
from opicflow.pipelines.transforms.publish import (  # noqa: E402
    ROWS_PER_PART,
    pack_estimates,
    pack_orders,
    pack_schedules,
    rows_of,
)
from opicflow.pipelines.transforms.replay_keeper import FLOWING, KeeperConfig, plan_in_words  # noqa: E402
from opicflow.pipelines.transforms.route import Categories, LinkWeights, Rules, Seen  # noqa: E402
from opicflow.pipelines.transforms.settings import CashFocus, LedgerOptions, category_number  # noqa: E402
from opicflow.schemas.crawl_events import Reason  # noqa: E402
from opicflow.schemas.dates import iso_time  # noqa: E402
from opicflow.schemas.errors import UserError  # noqa: E402
from opicflow.schemas.json_events import time_ms_of  # noqa: E402
from opicflow.schemas.kernel import is_compiled  # noqa: E402
from opicflow.schemas.pages import page_id  # noqa: E402
from opicflow.schemas.policy_json import policies_of  # noqa: E402
from opicflow.schemas.records import Policy  # noqa: E402
from opicflow.schemas.urls import (  # noqa: E402
    SESSION_PARAMETERS,
    TRACKING_PARAMETERS,
    NotAPage,
    UrlRules,
    canonical,
)

_SECONDS_BETWEEN_LINES = 5.0
_BARS = 40
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOP_HOSTS = 20


def one_line(problem: BaseException) -> str:
    """The message of an error, without what Beam adds to it."""
    text = " ".join(str(problem).split())
    return re.sub(r" \[while running '[^']*'(?: with name '[^']*')?\]", "", text)


def os_problem(problem: OSError, options: argparse.Namespace) -> str:
    """What the system would not do, where, and what to do."""
    where = problem.filename
    if where is None and problem.errno in _NO_SPACE:  # which then does not say where: in the work folder
        where = getattr(options, "state", None) or getattr(options, "out", None) or tempfile.gettempdir()
    return (
        f"{f'{where}: ' if where else ''}{' '.join(str(problem.strerror or problem).split())}: see to it, and run again"
    )


def user_problem(problem: BaseException, options: argparse.Namespace) -> str:
    """The message of an error that the user can mend and that Beam has wrapped up; empty for a bug."""
    chain: BaseException | None = problem
    while chain is not None:
        if isinstance(chain, UserError):
            return one_line(chain)
        if isinstance(chain, OSError) and chain.strerror:
            return os_problem(chain, options)
        chain = chain.__cause__ or chain.__context__
    return ""


# -- replay ------------------------------------------------------------------------------------------------------------


def replay(options: argparse.Namespace) -> int:
    """Compute the importance of all pages of a crawl log."""
    rules = rules_of_options(options)
    request = Request(
        logs=tuple(options.logs),
        topic=_topic(options),
        out=options.out,
        to=_destination(options),
        format=options.format,
        counting=counting_of(options),
        focus=focus_of(options),
        policies=_policies(options, rules),
        rules=rules,
        settle_rounds=options.settle,
        state=options.state,
        samples=options.report is not None,
        publications=options.publications,
        runner=options.runner,
        beam_options=tuple(options.beam_option),
        segment_bytes=options.segment_mb << 20,
    )
    if options.publications and options.out is None and options.to is None:
        raise InputRefused("--publications: nowhere to write them: name a folder with --out, or a cluster with --to")
    if options.report is not None:
        check_output(options.report, "report.html")
    say_compiling(options.quiet)
    shower = Shower(quiet=options.quiet)
    try:
        with replayed(request, shower.show) as result:
            shower.close()
            best = result.importance[: -(-options.top // ROWS_PER_PART)]  # read while its parts are there
            if options.report is not None:
                with whole_file(options.report) as file:
                    file.write(
                        render(_report(result, [request.topic.topic] if request.topic else options.logs)).encode(
                            "utf-8"
                        )
                    )
                result.written.append(options.report)
    finally:
        shower.close()
    if options.json:
        print(json.dumps(result.summary, indent=2))
    else:
        _print_result(result, best, options.top)
    return 0


def _topic(options: argparse.Namespace) -> Topic | None:
    """The topic that a replay reads instead of logs."""
    if options.from_ is None:
        if not options.logs:
            raise InputRefused("nothing to replay: name logs, or a topic with --from kafka://HOST:PORT")
        for name in ("since", "until"):
            if getattr(options, name) is not None:
                raise InputRefused(f"--{name}: files are read whole: leave it away, or read a topic with --from")
        return None
    if options.logs:
        raise InputRefused(f"{options.logs[0]}: a replay reads logs or a topic: leave one of them away")
    address = parse_address(options.from_)
    return Topic(
        Connection(address.brokers, options.properties, options.registry),
        options.prefix + (address.topic or names().crawl_events),
        since_ms=moment("--since", options.since),
        until_ms=moment("--until", options.until),
    )


def _destination(options: argparse.Namespace) -> Destination | None:
    """Where a replay sends its results."""
    if options.to is None:
        return None
    address = parse_address(options.to)
    if address.topic:
        raise KafkaRefused(f"{options.to}: results go to several topics: leave {address.topic} away, or use --prefix")
    return Destination(Connection(address.brokers, options.properties, options.registry), options.prefix)


def moment(option: str, text: str | None) -> int | None:
    """A time that was given, in milliseconds."""
    if text is None:
        return None
    time_ms = time_ms_of(text)
    if time_ms is None:
        raise InputRefused(f"{option} {text[:40]}: no time: write it like 2026-05-01 or 2026-05-01T12:00:00Z")
    return time_ms


def check_output(path: Path, example: str) -> None:
    """Say before the work what would come out after it. `example` is what such a file may be called."""
    if not path.parent.is_dir():
        raise InputRefused(f"{path}: its folder is not there: make it, or name another file")
    if path.is_dir():
        raise InputRefused(f"{path}: a folder: name a file in it, such as {path / example}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as problem:
        raise InputRefused(f"{path}: cannot be written ({problem.strerror}): name another file") from None


def say_compiling(quiet: bool) -> None:
    """Say why nothing is to be seen at first, where kernels were not compiled before."""
    if not (quiet or is_compiled()):
        print("compiling, once for this version: about half a minute", file=sys.stderr, flush=True)


class Shower:
    """Progress: a bar on a terminal, a line now and then otherwise, both on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._shown_at = 0.0

    def show(self, progress: Progress) -> None:
        """Show it, if it is time."""
        if self._quiet:
            return
        rate = progress.events / max(progress.seconds, 1e-9)
        words = f"{progress.events:,} events, {rate:,.0f}/s"
        words += "" if progress.pages is None else f", {progress.pages:,} pages"
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(
                    total=progress.total, unit=progress.unit, unit_scale=True, file=sys.stderr, leave=False
                )
            self._bar.set_postfix_str(words, refresh=False)
            self._bar.update(progress.done - self._bar.n)
        elif progress.seconds - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = progress.seconds
            if progress.total and progress.done:
                left = progress.seconds * (progress.total / progress.done - 1)
                words += f", {progress.done / progress.total:.0%}, {left:.0f} s left"
            print(words, file=sys.stderr, flush=True)

    def show_words(self, words: str, done: int, total: int, seconds: float) -> None:
        """Show what is not counted in events."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            if self._bar is None:
                shape = "{percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]"
                self._bar = tqdm(total=total, bar_format=shape, file=sys.stderr, leave=False)
            self._bar.set_postfix_str(words, refresh=False)
            self._bar.update(done - self._bar.n)
        elif seconds - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = seconds
            left = f", {done / total:.0%}, {seconds * (total / done - 1):.0f} s left" if done else ""
            print(words + left, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave no bar behind."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def counting_of(options: argparse.Namespace) -> LedgerOptions:
    """How the ledger is to count, as far as the options say so."""
    return LedgerOptions(
        options.history,
        options.window_turns,
        options.window_days,
        options.damping,
        options.remember_links,
        _refresh_fields(options),
        options.max_pages,
        options.max_unread_per_host,
    )


def rules_of_options(options: argparse.Namespace) -> Rules | None:
    """The rules that are asked for; None if nothing is said of them."""
    names: list[str] = []
    for name in (options.drop_parameters or "").split(","):
        named = {"tracking": TRACKING_PARAMETERS, "session": SESSION_PARAMETERS}.get(name.strip().lower())
        names += named or ([name.strip().lower()] if name.strip() else [])
    weights = {
        name: getattr(options, f"{name}_weight")
        for name in ("internal", "external", "nofollow")
        if getattr(options, f"{name}_weight") is not None
    }
    if options.same_site is not None:
        weights["same_site"] = options.same_site
    patterns = getattr(options, "category", [])
    by_media = bool(getattr(options, "by_media", False))
    if not (names or weights or options.fold_www or options.fold_https or patterns or by_media):
        return None
    try:
        links, categories = LinkWeights(**weights), Categories(by_media, tuple(patterns))
    except ValueError as problem:
        raise ConfigRefused(str(problem)) from None
    urls = UrlRules(tuple(dict.fromkeys(names)), bool(options.fold_www), bool(options.fold_https))
    return Rules(urls, links, categories)


def _refresh_fields(options: argparse.Namespace) -> dict[str, Any]:
    """What was said of the bandwidth and its limits, by the fields of `RefreshConfig`."""
    said = {
        "strategy": options.refresh_policy,
        "bandwidth_per_day": options.bandwidth,
        "cycle_hours": options.cycle,
        "discovery_share": options.discovery_share,
        "discover_by": options.discover_by,
        "host_fetches_per_day": options.host_fetches,
        "shortest_interval_seconds": options.shortest_interval,
        "longest_interval_days": options.longest_interval,
    }
    return {name: value for name, value in said.items() if value is not None}


def focus_of(options: argparse.Namespace) -> CashFocus | None:
    """What the cash is drawn to, as the options say; None if they say nothing."""
    bonus = dict(_named_numbers("--bonus", options.bonus))
    return CashFocus(bonus, options.unread_weight) if bonus or options.unread_weight is not None else None


def _policies(options: argparse.Namespace, rules: Rules | None) -> tuple[Policy, ...]:
    """The policies of a file, and the importance factors of categories as policies before them."""
    categories = (rules or Rules()).categories
    factors = [
        Policy(category=category_number(categories, "--factor", name), importance_factor=factor)
        for name, factor in _named_numbers("--factor", options.factor)
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
    """The policies of a topic. One that cannot be read is told, and passed over: nobody can take it back."""
    address = parse_address(options.policies)
    if address.topic not in (None, options.prefix + POLICIES):
        raise KafkaRefused(f"{options.policies}: policies are in {options.prefix}{POLICIES}: see --prefix")
    connection = Connection(address.brokers, options.properties, options.registry)
    for one in records(connection, POLICIES, prefix=options.prefix):
        if one.record is None:
            where = f"{options.prefix}{POLICIES}, offset {one.offset}"
            print(f"{where}: passed over: {one.broken or 'it is empty'}", file=sys.stderr)
        else:
            yield one.record


def _named_numbers(option: str, given: Sequence[str]) -> Iterator[tuple[str, float]]:
    """NAME=NUMBER, as options have it."""
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            yield name, float(number)
        except ValueError:
            raise ConfigRefused(f"{option} {text[:80]}: give NAME=NUMBER, such as {option} pdf=0.5") from None


def _print_result(result: Result, best: Sequence[bytes], most: int) -> None:
    summary = result.summary
    print(
        f"{summary['events_read']:,} events read = {summary['visits']:,} visits + {summary['announcements']:,} "
        f"announcements + {summary['rejects']:,} rejects + {summary['duplicates']:,} duplicates"
    )
    print(
        f"{summary['pages']:,} pages, {summary['pages_read']:,} read; {summary['links']:,} links; "
        f"{summary['late']:,} visits came late"
    )
    for reason, count in summary["rejects_by_reason"].items():
        print(f"  {count:10,}  {reason}")
    for note in result.notes:
        print(f"note: {note}")
    print()
    _print_pages(best, most)
    print()
    _print_plan(summary["plan"])
    print(f"\n{summary['seconds']:.1f} s, {summary['events_per_second']:,} events/s")
    for path in result.written:
        print(f"written: {path}")
    for sent in result.published:
        print(
            f"sent: {sent.records:,} to {sent.topic}" + (f" and {sent.tombstones:,} tombstones" * bool(sent.tombstones))
        )


def _print_plan(plan: dict[str, Any]) -> None:
    print(
        f"refresh: {plan['policy']}, {plan['bandwidth_per_day']:,.0f} fetches a day: {plan['refresh_per_day']:,.0f} "
        f"for {plan['pages_refreshed']:,} pages known, {plan['discovery_per_day']:,.0f} for unread ones; "
        f"{plan['freshness']:.0%} fresh, by importance"
    )
    print(
        f"orders:  {plan['orders']:,} for the next {plan['cycle_hours']:g} hours ({plan['orders_refresh']:,} refresh, "
        f"{plan['orders_discovery']:,} discovery)"
    )


def _print_pages(parts: Sequence[bytes], most: int) -> None:
    print("  importance      score  visits  page")
    for part in parts:
        pages = pages_of(part)
        c = pages.columns
        for row, url in enumerate(pages.urls[:most]):
            mark = "" if c["measured"][row] else "  (its history is the default one so far)"
            print(f"  {c['importance'][row]:10.6f} {c['score'][row]:10.2f} {c['visits'][row]:7}  {url}{mark}")
        most -= len(pages.urls)
        if most <= 0:
            return


def _report(result: Result, logs: list[str]) -> Report:
    pages = [pages_of(part) for part in result.importance]
    first = pages[0]
    c = first.columns
    top = tuple(
        TopPage(
            page=int(c["pages"][row]),
            url=url,
            importance=float(c["importance"][row]),
            score=float(c["score"][row]),
            trend_per_day=float(c["trend_per_day"][row]),
            visits=int(c["visits"][row]),
            last_outcome=Outcome(int(c["last_outcome"][row])).name,
            measured=bool(c["measured"][row]),
        )
        for row, url in enumerate(first.urls[:50])
    )
    summary = {name: value for name, value in result.summary.items() if isinstance(value, (int, float, str))}
    examples = []
    for line in result.reject_lines:
        record = json.loads(line)
        excerpt = record.get("bytes")
        if excerpt is None:
            excerpt = base64.b64decode(record["bytes_base64"]).decode("utf-8", "backslashreplace")
        excerpt = excerpt[:200]
        examples.append((record["reason"], f"{record['source']}, byte {record['offset']}", excerpt))
    return Report(
        title=", ".join(logs) if len(logs) < 4 else f"{logs[0]} and {len(logs) - 1} more",
        summary=summary,
        samples=tuple(
            Sample(
                events=sample["visits"],
                time_ms=sample["time_ms"],
                visits=sample["visits"],
                pages=sample["pages"],
                pages_read=sample["pages_read"],
                idle_share=sample["idle_share"],
                top=tuple((page, importance) for page, importance in sample["top"]),
            )
            for sample in result.samples
        ),
        top=top,
        hosts=tuple(_hosts(pages)[:_TOP_HOSTS]),
        score_counts=_histogram(np.concatenate([p.columns["score"] for p in pages])),
        idle={outcome: share for outcome, share in result.idle.items() if Outcome[outcome] not in FLOWING},
        rejects=result.summary["rejects_by_reason"],
        reject_examples=tuple(examples),
        notes=tuple(result.notes),
    )


def _hosts(pages: list[Pages]) -> list[Host]:
    """All hosts, the most important first."""
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    read: Counter[str] = Counter()
    for part in pages:
        names = [url.split("/", 3)[2] for url in part.urls]
        count.update(names)
        for name, importance, visits in zip(
            names, part.columns["importance"].tolist(), part.columns["visits"].tolist(), strict=True
        ):
            total[name] += importance
            read[name] += visits > 0
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [Host(name, count[name], read[name], importance) for name, importance in ranked]


def _histogram(scores: Any) -> tuple[tuple[float, float, int], ...]:
    positive = scores[scores > 0]
    if len(positive) == 0:
        return ()
    low, high = np.log10(positive.min()), np.log10(positive.max())
    edges = 10 ** np.linspace(low - 1e-9, max(high, low + 0.1) + 1e-9, _BARS + 1)
    counts, _ = np.histogram(positive, edges)
    return tuple(
        (float(begin), float(end), int(number))
        for begin, end, number in zip(edges[:-1], edges[1:], counts, strict=True)
    )


# -- validate ----------------------------------------------------------------------------------------------------------


def validate(options: argparse.Namespace) -> int:
    """Say what of a log would be rejected and why, and what is missing for better results."""
    rules = rules_of_options(options) or Rules()
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
        portion = Portion(0, (FileRange("log", file, format_),), 1 << 62, closes=True)
        for part in parts_of(portion, rules):
            events = part.decoded.events
            visits = events.announce == 0
            counts["visits_without_digest"] += int(((events.digest == 0) & visits).sum())
            _, rejects, routed = route_part(part, rules, seen)
            counts.update(routed)
            for reject in rejects:
                reasons[reject.reason.value] += 1
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
    del counts["bytes_read"]
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
            "change rates rest on 'not modified' and dates of change alone."
        )
    if options.json:
        print(json.dumps({"summary": summary, "rejects": shown, "notes": notes}, indent=2))
        return 0
    print(
        f"{summary['events_read']:,} events read = {summary['visits']:,} visits + {summary['announcements']:,} "
        f"announcements + {rejected:,} rejects (duplicates are only known to a replay)"
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
        print("nothing to complain about")
    return 0


def printable(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


# -- show and top ------------------------------------------------------------------------------------------------------


def show(options: argparse.Namespace) -> int:
    """Show what the ledger of a state knows of one page."""
    with ledger_of(options.state) as (ledger, rules):
        url = url_of(options.url, rules.urls).encode()
        page = page_id(url)
        estimates = ledger.estimate([page])
        if not estimates.known[0]:
            raise InputRefused(f"{url.decode()}: not in the ledger: nobody has fetched, linked or announced it")
        e = {field.name: getattr(estimates, field.name)[0].item() for field in dataclasses.fields(estimates)}
        plan = ledger.preview()
        row = np.flatnonzero(plan.survey.pages == np.uint64(page))
        refresh = schedule_columns(pages_of(pack_schedules(ledger, plan, row)))
        again = {name: values[0] for name, values in refresh.items()}
        higher = int((ledger.estimate_all().importance > e["importance"]).sum())
        if options.json:
            record = json.loads(importance_lines(pages_of(pack_estimates(ledger, estimates))))
            names = ("due", "interval_seconds", "decided_by", "changes_per_day", "changes_known_from", "changes_error")
            print(json.dumps({**record, "rank": higher + 1, **{name: again[name] for name in names}}, indent=2))
            return 0
        print(f"{url.decode()}\n")
        rows = [
            ("importance", f"{e['importance']:.9f}  (rank {higher + 1:,} of {ledger.pages:,} pages)"),
            ("score", f"{e['score']:.3f}  (1 = an average page)"),
            ("trend", f"{e['trend_per_day']:+.3g} a day"),
            ("history", f"{e['rate']:.6g}  ({'measured' if e['measured'] else 'the default one: it never spent'})"),
            ("cash", f"{e['cash']:,} units"),
            ("waiting cash", f"{e['waiting']:,} units since its last visit"),
            ("visits", f"{e['visits']:,}"),
            ("last visit", _time(e["last_visit_ms"])),
            ("last outcome", Outcome(e["last_outcome"]).name),
            ("changes", f"{again['changes_per_day']:.3g} a day  (known from {again['changes_known_from']})"),
            ("refresh", f"{_interval(again['interval_seconds'])}  (decided by {again['decided_by']})"),
            ("due", _time(again["due"]) if again["due"] else "not told"),
            ("error factor", f"{e['error_factor']:.3g}"),
            ("page id", f"{page:016x}"),
        ]
        for name, value in rows:
            print(f"  {name:14} {value}")
    return 0


def url_of(text: str, rules: UrlRules | None = None) -> str:
    """The canonical URL of a page that somebody named."""
    try:
        return canonical(text, None, rules or UrlRules()).decode()
    except NotAPage as problem:
        advice = "give the URL of a page" if "://" in text else f"do you mean https://{text[:200]} ?"
        raise InputRefused(f"{text[:200]}: {problem}: {advice}") from None


def top(options: argparse.Namespace) -> int:
    """Show the most important pages, or hosts, of a state."""
    with ledger_of(options.state) as (ledger, _):
        everything = ledger.estimate_all()
        if options.unread:
            everything = rows_of(everything, np.flatnonzero(everything.visits == 0))
        if options.host:
            hosts = _hosts([pages_of(pack_estimates(ledger, everything))])[: options.top]
            if options.json:
                print(json.dumps([dataclasses.asdict(named) for named in hosts], indent=2))
                return 0
            print("  importance    pages     read  host")
            for named in hosts:
                print(f"  {named.importance:10.6f} {named.pages:8,} {named.read:8,}  {named.host}")
            return 0
        best = richest(everything.pages, everything.importance, options.top)
        part = pack_estimates(ledger, rows_of(everything, best))
        if options.json:
            print(json.dumps([json.loads(line) for line in importance_lines(pages_of(part)).splitlines()], indent=2))
        else:
            _print_pages([part], options.top)
    return 0


# -- schedule ----------------------------------------------------------------------------------------------------------


def schedule(options: argparse.Namespace) -> int:
    """Plan when the pages of a state are fetched again, under these options."""
    if options.export is not None:
        check_output(options.export, "frontier.csv")
    with ledger_of(options.state) as (ledger, _):
        budget = ledger.budget()
        published = {"strategy": budget.strategy, "discovery_share": budget.discovery_share}
        refresh = dataclasses.replace(ledger.config.refresh, **{**published, **_refresh_fields(options)})
        plan = planned(ledger, refresh, options.bandwidth)
        words = plan_in_words(ledger, plan, refresh)
        rows = list(compared(ledger, refresh, options.bandwidth)) if options.compare else []
        columns = order_columns(pages_of(pack_orders(ledger, plan)))
        best = islice(zip(*columns.values(), strict=True), options.top)
        orders = [dict(zip(columns, values, strict=True)) for values in best]
        if options.export is not None:
            export(options.export, ledger, plan)
    if options.json:
        policies = [row.to_json() for row in rows]
        print(json.dumps({"plan": words, "orders": orders, **({"policies": policies} if rows else {})}, indent=2))
        return 0
    _print_plan(words)
    for note in plan_notes(words):
        print(f"note: {note}")
    if rows:
        _print_compared(rows)
    if orders:
        print("\n  why        not before            last visit            page")
    for order in orders:
        print(f"  {order['why']:9}  {_date(order['not_before']):20}  {_date(order['last_visit']):20}  {order['url']}")
    if options.export is not None:
        print(f"written: {options.export}")
    return 0


def _print_compared(rows: Sequence[Compared]) -> None:
    print("\n  strategy    freshness  obsolescence  harmonic  never   shortest     median    longest")
    for row in rows:
        obsolescence, harmonic = (
            "unbounded" if cost is None else f"{cost:.4g}" for cost in (row.obsolescence, row.harmonic_staleness)
        )
        spans = [
            _span(seconds)
            for seconds in (
                row.shortest_interval_seconds,
                row.median_interval_seconds,
                row.longest_interval_seconds,
            )
        ]
        print(
            f"  {row.strategy:10} {row.freshness:10.2%} {obsolescence:>13} {harmonic:>9} {row.never_refreshed:6,} "
            + " ".join(f"{span:>10}" for span in spans)
        )


def _span(seconds: float) -> str:
    """A time in the unit that people would use."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _interval(seconds: float | None) -> str:
    return "not again" if seconds is None else f"every {_span(seconds)}"


def _date(time_ms: int | None) -> str:
    return "never" if time_ms is None else iso_time(time_ms)


@contextmanager
def ledger_of(path: Path) -> Iterator[tuple[Ledger, Rules]]:
    """The ledger and the rules of a state folder, while nobody else uses it."""
    with StateFolder.locked(path, create=False) as folder:
        state = folder.read()
        if state is None or not state.snapshot:
            raise StateRefused(f"{path}: no ledger yet: the first replay into it has not come to a checkpoint")
        keeper = folder.keeper(state, KeeperConfig(LedgerConfig.from_json(state.config["ledger"])))
        yield keeper.ledger, Rules.from_json(state.rules[-1])


def _time(time_ms: int) -> str:
    if time_ms == 0:
        return "never, or at a time that nobody told"
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


__all__ = ["one_line", "os_problem", "replay", "schedule", "show", "top", "user_problem", "validate"]
