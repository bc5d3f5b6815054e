"""The work of `opicflow replay`: from the names of logs to files of results, checkpoints on the way.

Everything that decides about results is in the pipeline; here is what surrounds it: which files, from where on, what
was counted, what is written, and when a checkpoint is worth its time.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from apache_beam.runners.runner import create_runner

from opicflow.connectors.files.log_reader import FileRange
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.whole_file import whole_file
from opicflow.connectors.kafka.topic_log import TopicRange
from opicflow.pipelines.ledger import ConfigRefused, LedgerConfig, RemovalReason
from opicflow.pipelines.replay.inputs import Input, LogFiles, NothingRead, Topic
from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayKeeper, policies_chain, policy_time_ms
from opicflow.pipelines.replay.pipeline import IN_PROCESS, SEGMENT_BYTES, Plan, read_tos, remove_parts, run
from opicflow.pipelines.replay.state import State, StateFolder, StateRefused
from opicflow.pipelines.results.files import (
    write_importance,
    write_orders,
    write_rejects,
    write_schedules,
    write_tombstones,
)
from opicflow.pipelines.results.parts import Parts
from opicflow.pipelines.results.schedules import plan_notes
from opicflow.pipelines.results.topic_writer import Destination, Sent, send_results
from opicflow.pipelines.transforms.decode import InputRange, name_of, reject_line
from opicflow.pipelines.transforms.route import COUNTS, Rules
from opicflow.pipelines.transforms.settings import CashFocus, LedgerOptions
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.records import Policy

_LEAST_CHECKPOINT_BYTES = 64 << 20
_REFUSED_SHOWN = 5
_EMPTY_PART = "rejects-000000-empty"


@dataclass(frozen=True)
class Request:
    """What somebody wants replayed. `rules` and `focus` None = as the state has them, or the defaults."""

    logs: tuple[str, ...] = ()
    out: Path | None = None
    format: str = "jsonl"
    counting: LedgerOptions = field(default_factory=LedgerOptions)
    focus: CashFocus | None = None
    policies: tuple[Policy, ...] = ()
    rules: Rules | None = None
    settle_rounds: int = 0
    state: Path | None = None
    samples: bool = False
    publications: bool = False
    runner: str = IN_PROCESS
    beam_options: tuple[str, ...] = ()
    segment_bytes: int = SEGMENT_BYTES
    topic: Topic | None = None
    """Events from Kafka, instead of logs."""
    to: Destination | None = None
    """Results to Kafka."""


@dataclass
class Progress:
    """How far a replay is. `done` and `total` are in `unit`; None = not known."""

    events: int
    pages: int | None
    done: int
    total: int | None
    unit: str
    seconds: float


@dataclass
class Result:
    """What a replay has to tell."""

    summary: dict[str, Any]
    importance: Sequence[bytes]
    samples: list[dict[str, Any]]
    idle: dict[str, float]
    reject_lines: list[bytes]
    notes: list[str]
    written: list[Path] = field(default_factory=list)
    published: list[Sent] = field(default_factory=list)


_KEPT = ("tally", "rejects", "samples", "refused_policies")
_COUNTED = COUNTS[2:]  # all but visits and announcements, which are told for themselves


@contextmanager
def replayed(request: Request, progress: Callable[[Progress], None]) -> Iterator[Result]:
    """Replay, write what was asked for, and give the result. A state is done with this run once the caller is."""
    begun = time.perf_counter()
    _check_runner(request)
    log: Input = request.topic or LogFiles(request.logs)
    if request.to is not None:
        request.to.check()  # rather than after the work
    if request.out is not None:
        _make_folder(request.out)
    with ExitStack() as stack:
        folder = None
        state: State | None = None
        if request.state is not None:
            folder = stack.enter_context(StateFolder.locked(request.state, create=True))
            state = folder.read()
        config, rules = _settings(request, state)
        notes: list[str] = []
        if state is None:
            state = State(config.to_json(), [rules.to_json()])
        elif Rules.from_json(state.rules[-1]) != rules:
            state.rules.append(rules.to_json())
            notes.append("From here on other rules hold for addresses and links than before.")
        keeper = folder.keeper(state, config) if folder and state.snapshot else None
        _check_policies(request, config, keeper)
        work = stack.enter_context(_work_folder(folder, request.out))
        resumed = bool(state.run) and state.run["logs"] == list(log.names)
        if resumed and state.run["finished"]:
            # It may have been killed right at its end: who runs it again gets the same results, unless there is more.
            resumed = log.is_read(state)
            if resumed:
                notes.append("Nothing new since these logs were replayed: the results are the same as then.")
        if not resumed:
            state.run = {"logs": list(log.names), "reports": [], "starts": {}, "finished": False}
        remove_parts(work, keeper.head.segment if keeper and resumed else 0)
        input_ranges, empty = log.find(state, notes, may_grow=folder is not None)
        (work / _EMPTY_PART).write_bytes(b"".join(reject_line(_of_empty(file), file) for file in empty))
        total = log.total(input_ranges)
        least_bytes = min(_LEAST_CHECKPOINT_BYTES, request.segment_bytes)
        saved_at, snapshot_bytes = _tallied(state)["bytes_read"], 0

        def after(report: dict[str, Any], keeper: ReplayKeeper | None) -> None:
            nonlocal saved_at, snapshot_bytes
            assert state is not None
            if report["tally"] or not state.run["reports"]:
                state.run["reports"].append({key: report[key] for key in _KEPT})
            state.run["last"] = {key: value for key, value in report.items() if key not in _KEPT}
            read = {one.source: one for one in read_tos(report)}
            for source in state.sources:
                if source.name in read:
                    source.at = read[source.name].at
                    if folder:
                        log.remember(source, read[source.name])
            tally = _tallied(state)
            is_worth_it = tally["bytes_read"] - saved_at >= max(snapshot_bytes, least_bytes) // 2
            if folder and keeper and (is_worth_it or report["ended"]):
                saved_at = tally["bytes_read"]
                with _named(folder.path):
                    snapshot_bytes = folder.write(state, keeper)
            seconds = time.perf_counter() - begun
            done = log.done(input_ranges, state)
            progress(Progress(tally["events_read"], report["pages"], done, total, log.unit, seconds))

        plan = Plan(
            input_ranges,
            config,
            rules,
            work,
            runner=request.runner,
            beam_options=request.beam_options,
            segment_bytes=request.segment_bytes,
        )
        run(plan, keeper, after)
        notes += log.notes_at_end(input_ranges, state)
        result = _result(state, work, empty, input_ranges, notes)
        result.summary["seconds"] = round(time.perf_counter() - begun, 3)
        if request.out is not None:
            _write(request, result, work)
        if request.to is not None:
            result.published += send_results(request.to, work, state.run["last"]["audit"])
        result.summary["seconds"] = round(time.perf_counter() - begun, 3)
        result.summary["events_per_second"] = round(result.summary["events_read"] / result.summary["seconds"])
        if request.out is not None:
            _write_summary(request.out, result)
        yield result
        if folder:
            state.run["finished"] = True
            folder.write_state(state)
            for kind in ("importance", "schedule", "orders"):
                for path in work.glob(f"{kind}-*"):
                    path.unlink()


def _check_policies(request: Request, config: KeeperConfig, keeper: ReplayKeeper | None) -> None:
    """Refuse policies that are not those a state has had, and more."""
    had = keeper.policies_had if keeper else 0
    if keeper and config.policies and policies_chain(config.policies[:had]) != keeper.head.policies_chain:
        raise StateRefused(
            f"{request.state}: the {had} policies it has had are not the first of these: give all of them again, "
            "and put new ones after them, with later times"
        )


def _check_runner(request: Request) -> None:
    if request.runner == IN_PROCESS:
        return
    if request.state is not None:
        raise StateRefused(f"--state needs --runner {IN_PROCESS}: the ledger is kept by this process")
    try:
        create_runner(request.runner)
    except (ValueError, ImportError, AttributeError):
        raise ConfigRefused(f"--runner {request.runner}: Beam knows no such runner here: check its name") from None


def _settings(request: Request, state: State | None) -> tuple[KeeperConfig, Rules]:
    """How to count, by what was asked for and what the state says; refused where they contradict each other."""
    rules = request.rules or (Rules.from_json(state.rules[-1]) if state else Rules())
    if state is None:
        counting = request.counting
        if request.settle_rounds and counting.remember_links is None:
            counting = replace(counting, remember_links=True)
        config = (request.focus or CashFocus()).over(counting.over(LedgerConfig()), rules.categories)
    else:
        kept = LedgerConfig.from_json(state.config["ledger"])
        config = request.counting.over(kept)
        if rules.categories.count != kept.categories:
            raise StateRefused(
                f"{request.state}: its ledger has {kept.categories} categories of pages, and these rules have "
                f"{rules.categories.count}: leave --by-media and --category away, or name another folder"
            )
        if request.focus is not None:
            config = request.focus.over(config, rules.categories)
        if config != kept:
            raise StateRefused(
                f"{request.state}: its ledger counts with other options ({_difference(config, kept)}): leave the "
                "options away, or name another folder"
            )
    if request.settle_rounds and not config.remember_links:
        raise ConfigRefused("--settle needs remembered links: replay from the start with --remember-links")
    keeper_config = KeeperConfig(
        ledger=config,
        settle_rounds=request.settle_rounds,
        samples=request.samples,
        publications=request.publications,
        policies=tuple(sorted(request.policies, key=policy_time_ms)),
    )
    return keeper_config, rules


def _difference(asked: LedgerConfig, kept: LedgerConfig) -> str:
    ours, theirs = asked.to_json(), kept.to_json()
    return ", ".join(f"{name}: {theirs[name]}" for name in ours if ours[name] != theirs[name])


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        raise InputRefused(
            f"{path}: cannot be written to ({problem.strerror}): name another folder with --out"
        ) from None


@contextmanager
def _work_folder(folder: StateFolder | None, out: Path | None) -> Iterator[Path]:
    if folder:
        folder.work.mkdir(exist_ok=True)
        yield folder.work
        return
    work = Path(tempfile.mkdtemp(prefix=".opicflow-", dir=out))
    try:
        yield work
    finally:
        # An interrupted segment may still write on another thread: it no longer finds the folder.
        gone = work.with_name(f"{work.name}-gone")
        with suppress(OSError):
            os.rename(work, gone)
        shutil.rmtree(gone, ignore_errors=True)


def _of_empty(file: str) -> Reject:
    return Reject(Reason.EMPTY_FILE, "the file is empty", file, 0, b"")


def _tallied(state: State) -> dict[str, int]:
    """What was counted in this run."""
    total: dict[str, int] = {"events_read": 0, "bytes_read": 0}
    for report in state.run["reports"]:
        for name, count in report["tally"].items():
            total[name] = total.get(name, 0) + count
    return total


def _result(state: State, work: Path, empty: list[str], input_ranges: Sequence[InputRange], notes: list[str]) -> Result:
    tally, last = _tallied(state), state.run["last"]
    reasons: dict[str, int] = {}
    for report in state.run["reports"]:
        for reason, count in report["rejects"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    if empty:
        reasons[Reason.EMPTY_FILE.value] = len(empty)
    duplicates, forgotten = tally.get("duplicates", 0), tally.get("forgotten", 0)
    if forgotten:
        reasons["forgotten"] = forgotten
    summary: dict[str, Any] = {
        "events_read": tally["events_read"] + len(empty),
        "visits": tally.get("visits", 0) - duplicates - forgotten,
        "announcements": tally.get("announcements", 0),
        "rejects": sum(reasons.values()),
        "duplicates": duplicates,
        "late": tally.get("late", 0),
        "pages": last["pages"],
        "pages_read": last["pages_read"],
        **{name: tally.get(name, 0) for name in _COUNTED},
        "transfers": last["transfers"],
        "turns": round(last["turns"], 3),
        "drift": last["drift"],
        "rejects_by_reason": most_first(reasons),
        "files": len(empty) + sum(isinstance(input_range, FileRange) for input_range in input_ranges),
        "partitions": sum(
            len(input_range.partitions) for input_range in input_ranges if isinstance(input_range, TopicRange)
        ),
        "policies": tally.get("policies", 0),
        "policies_refused": sum(len(report["refused_policies"]) for report in state.run["reports"]),
        "pages_let_go": {
            why.name.lower(): tally[f"pages_{why.name.lower()}"]
            for why in RemovalReason
            if f"pages_{why.name.lower()}" in tally
        },
        "plan": last["plan"],
    }
    total = sum(summary[name] for name in ("visits", "announcements", "rejects", "duplicates"))
    assert total == summary["events_read"], f"{total} events accounted for, {summary['events_read']} read"
    importance = Parts(work, "importance")
    if summary["pages"] == 0:
        reasons_named = ", ".join(f"{reason} {count:,}" for reason, count in summary["rejects_by_reason"].items())
        raise NothingRead(
            f"nothing could be read: all {summary['rejects']:,} records were rejected ({reasons_named}): opicflow "
            "validate shows them"
            if reasons_named
            else f"{', '.join([*empty, *map(name_of, input_ranges)])[:200]}: empty: there is nothing to replay"
        )
    return Result(
        summary=summary,
        importance=importance,
        samples=[sample for report in state.run["reports"] for sample in report["samples"]],
        idle=last["idle"],
        reject_lines=[line for part in Parts(work, "rejects") for line in part.splitlines()[:5]][:20],
        notes=notes
        + _policy_notes(state)
        + plan_notes(last["plan"])
        + notes_for(summary, last["idle"], state.config["ledger"]["remember_links"]),
    )


def _policy_notes(state: State) -> list[str]:
    refused = [one for report in state.run["reports"] for one in report["refused_policies"]]
    notes = [f"refused: {json.dumps(policy)[:200]}: {why}" for policy, why in refused[:_REFUSED_SHOWN]]
    return notes + ([f"{len(refused) - _REFUSED_SHOWN} more were refused."] if len(refused) > _REFUSED_SHOWN else [])


def most_first(counts: dict[str, int]) -> dict[str, int]:
    """The counts, the highest first; equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def notes_for(summary: dict[str, Any], idle: dict[str, float], remembers: bool = False) -> list[str]:
    """What would make the results better, in sentences."""
    notes = []
    visits = max(summary["visits"], 1)
    if summary["visits_links_unknown"] > 0.05 * visits:
        notes.append(
            f"Links are not known for {summary['visits_links_unknown'] / visits:.0%} of the visits: such pages pass "
            "nothing on. Send links, [] where a page has none."
        )
    if summary["visits_without_time"] > 0.05 * visits:
        notes.append(
            f"{summary['visits_without_time'] / visits:.0%} of the visits have no fetched_at: duplicates cannot be "
            "told, and there are no trends."
        )
    if idle.get("UNCHANGED", 0) > 0.05 and not remembers:
        notes.append(
            f"{idle['UNCHANGED']:.0%} of the cash sits on pages that answered 'not modified': --remember-links lets "
            "them pay along the links they had."
        )
    return notes


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What the system refuses while a file is written says which one: an error for lack of space does not by itself."""
    try:
        yield
    except OSError as problem:
        problem.filename = str(path)
        raise


def _write(request: Request, result: Result, work: Path) -> None:
    assert request.out is not None
    importance = request.out / f"importance.{request.format}"
    with _named(importance):
        write_importance(importance, request.format, result.importance)
    rejects = request.out / f"rejects.{request.format}"
    with _named(rejects):
        write_rejects(rejects, request.format, Parts(work, "rejects"))
    schedule = request.out / f"refresh-schedule.{request.format}"
    with _named(schedule):
        write_schedules(schedule, request.format, Parts(work, "schedule"))
    orders = request.out / f"crawl-orders.{request.format}"
    with _named(orders):
        write_orders(orders, request.format, chain(Parts(work, "ordered"), Parts(work, "orders")))
    result.written += [importance, schedule, orders, rejects]
    if request.publications:
        publications = request.out / f"publications.{request.format}"
        with _named(publications):
            write_importance(publications, request.format, Parts(work, "publications"))
        replanned = request.out / f"refresh-publications.{request.format}"
        with _named(replanned):
            write_schedules(replanned, request.format, Parts(work, "replanned"))
        tombstones = request.out / "tombstones.jsonl"
        with _named(tombstones):
            write_tombstones(tombstones, Parts(work, "tombstones"))
        result.written += [publications, replanned, tombstones]


def _write_summary(out: Path, result: Result) -> None:
    path = out / "summary.json"
    with _named(path), whole_file(path) as file:
        file.write(json.dumps(result.summary, indent=2).encode() + b"\n")
    result.written.append(path)
