"""The work of `opicflow replay`: from the names of logs to files and topics of results, with checkpoints on the way.

The pipeline decides about results. This module does the rest: which inputs and where to continue, the state folder,
checkpoints, the summary, and the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.ledger import ConfigRefused, Ledger, LedgerConfig
from opicflow.pipelines.ledger.pages.space import Space
from opicflow.pipelines.replay.answers import MOST_PAGES, policies_in_force, write_answers
from opicflow.pipelines.replay.event_clock import policies_chain, policy_time_ms
from opicflow.pipelines.replay.final_plan import plan_notes
from opicflow.pipelines.replay.first_compile import compiled_beside
from opicflow.pipelines.replay.inputs import AllRejected, FoundInput, Input, LogFiles, NothingRead
from opicflow.pipelines.replay.moments import keep_moments
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.replay.reports import Counts, Report, Sample
from opicflow.pipelines.replay.result_files import (
    FileKinds,
    ResultFiles,
    keep_key,
    kept_page_ids,
    path_in_errors,
    result_files,
    results_folder,
    work_folder,
)
from opicflow.pipelines.replay.segments import (
    DIRECT_RUNNER,
    IN_PROCESS,
    LOCAL,
    SEGMENT_BYTES,
    SegmentDone,
    SegmentRunner,
    readable,
)
from opicflow.pipelines.replay.state import Run, State, StateFolder, StateRefused, fewer
from opicflow.pipelines.replay.summary import (
    ahead_note,
    notes_for,
    policy_notes,
    summary_of,
    why_all_rejected,
)
from opicflow.pipelines.replay.times_ahead import ahead_notes, keep_ahead
from opicflow.pipelines.results.part_files import Parts, part_paths, remove_final_parts, remove_parts, write_part
from opicflow.pipelines.stages.decoded_batch import segment_at
from opicflow.pipelines.stages.freed_memory import return_freed_memory
from opicflow.pipelines.stages.outputs import (
    EMPTY_FILES,
    FINAL_IMPORTANCE,
    FINAL_ORDERS,
    FINAL_SCHEDULE,
    MOMENTS,
    REJECTS,
    Output,
)
from opicflow.pipelines.stages.rejects import reject_line
from opicflow.pipelines.stages.route import ANY_TIME
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import CashFocus, LedgerOptions, default_ledger, new_page_ids
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.dates import iso_time
from opicflow.schemas.errors import interrupted_after
from opicflow.schemas.pages import PUBLIC, PageIds
from opicflow.schemas.records import Policy
from opicflow.schemas.sites import SiteKind

if TYPE_CHECKING:
    from opicflow.pipelines.replay.topic_input import Topic
    from opicflow.pipelines.results.topic_writer import Destination, Sent

_LEAST_CHECKPOINT_BYTES = 64 << 20
_MANY_ROWS_BYTES = 64 << 20
"""The results of longer logs have so many rows that they are written by several threads."""
_MOST_EARLIER_SAMPLES = 100


@dataclass(frozen=True)
class ReplayRequest:
    """The input of a replay, and its options. `rules` and `focus` None: those of the state, or the defaults."""

    logs: tuple[str, ...] = ()
    out: Path | None = None
    format: str = "jsonl"
    parts: int = 1
    """The number of files that each result is divided into, in its order."""
    counting: LedgerOptions = field(default_factory=LedgerOptions)
    focus: CashFocus | None = None
    policies: tuple[Policy, ...] = ()
    rules: Rules | None = None
    page_ids: PageIds | None = None
    """Rules that give pages their ids. None: those of the state or of the folder `out`, or with a new key."""
    now_second: int | None = None
    """The time at the end of the input. None: that of the latest visit."""
    latest_ms: int = ANY_TIME
    """Later events are rejected."""
    settle: bool = False
    state: Path | None = None
    samples: bool = False
    publications: bool = False
    sites: SiteKind | None = "domain"
    """The kind of sites whose importance is written. None: no sites."""
    runner: str = DIRECT_RUNNER
    beam_options: tuple[str, ...] = ()
    segment_bytes: int = SEGMENT_BYTES
    urls_on_disk: bool = False
    """URLs and remembered links are in files that are mapped, below the state or the folder of results."""
    most_in_memory: int | None = None
    """A ledger of more bytes has them there, too. None: never by itself."""
    topic: Topic | None = None
    """Events from Kafka, instead of logs."""
    to: Destination | None = None
    """Results to Kafka."""
    reading: Reading = ANY
    """The options of users about the records of logs."""


@dataclass
class ReplayResult:
    """The results of a replay."""

    summary: dict[str, Any]
    importance: Sequence[bytes]
    samples: list[Sample]
    idle: dict[str, float]
    rejects: Sequence[bytes]
    """Lines of JSON, some in each part."""
    notes: list[str]
    schedules: Sequence[bytes] = ()
    orders: Sequence[bytes] = ()
    """Those of the next cycle; none where those of all cycles were published."""
    options: dict[str, Any] = field(default_factory=dict)
    """Those of the ledger, under the names that stored states have."""
    written: list[Path] = field(default_factory=list)
    published: list[Sent] = field(default_factory=list)


@contextmanager
def replayed(request: ReplayRequest, progress: Callable[[Progress], None]) -> Iterator[ReplayResult]:
    """Replay, write the requested results, and yield them. The files get their names after that, all or none."""
    begun = time.perf_counter()
    _check_runner(request)
    source: Input = request.topic or LogFiles(
        request.logs, may_be_empty=request.state is not None, reading=request.reading
    )
    if request.to is not None:
        request.to.check()  # rather than after the work
    with ExitStack() as stack:
        if request.out is not None:
            stack.enter_context(results_folder(request.out))
        folder = None
        if request.state is not None:
            folder = stack.enter_context(StateFolder.locked(request.state, create=True))
        stored = folder.read() if folder else None
        has_parts = folder is None or folder.work.exists()
        config, rules = _settings(request, stored)
        state = stored or State(config.ledger.to_json(), [rules.to_json()], page_ids=rules.page_ids.to_json())
        work = stack.enter_context(_work_folder(folder, request.out))
        if request.urls_on_disk or (folder is not None and _is_large(request, folder.snapshot_bytes(state))):
            config = replace(config, space=_mapped(work))
        log = folder.log(state, config) if folder and state.snapshot else None
        if log is not None:
            log.ledger.change_refreshing(config.ledger.refresh)
            _check_strategy(request, log)
        _check_policies(request, config, log)
        _check_now(request, log)
        replay = _Replay(request, source, config, rules, folder, state, work, progress, begun)
        replay.use_rules()
        found = replay.find_input(log, has_parts)
        if log is None and not found.input_ranges:
            raise _without_a_log(request, found)
        stack.enter_context(compiled_beside(config))
        if request.out is not None:
            sizes = [input_range.stored_bytes for input_range in found.input_ranges]
            is_large = None in sizes or sum(size or 0 for size in sizes) > _MANY_ROWS_BYTES
            kinds = FileKinds(request.format, request.parts, request.sites is not None, request.publications, is_large)
            replay.files = stack.enter_context(result_files(request.out, work, kinds))
        if request.page_ids is None and request.runner not in IN_PROCESS:
            replay.notes.append(
                "Page ids are made with the public key: of another runner the key would be a part of its job "
                "(docs/decisions/page-ids.md)."
            )
        replay.run(found, log)
        del log  # its ledger takes more memory than anything else
        return_freed_memory()
        yield replay.write_results(found)
        replay.finish()


@dataclass
class _Replay:
    """One replay: its steps, in their order, and where it is."""

    request: ReplayRequest
    source: Input
    config: ReplayConfig
    rules: Rules
    folder: StateFolder | None
    state: State
    work: Path
    progress: Callable[[Progress], None]
    begun: float
    files: ResultFiles | None = None
    """None: no files are requested."""
    notes: list[str] = field(default_factory=list)
    checkpoint_at_bytes: int = 0
    snapshot_bytes: int = 0
    ahead_before: frozenset[str] = frozenset()
    """The ranges with events ahead of the clock that the state had before."""
    policies: list[dict[str, object]] | None = None
    """The policies in force at the end; None: the final parts are not the answers of the ledger."""

    @property
    def run_state(self) -> Run:
        """The run that the state keeps, once the input is found."""
        assert self.state.run is not None
        return self.state.run

    def use_rules(self) -> None:
        """Note a change of the rules in the state."""
        if self.state.last_rules != self.rules:
            self.state.rules.append(self.rules.to_json())
            self.notes.append("From here on other rules hold for addresses and links than before.")

    def find_input(self, log: ReplayedLog | None, has_parts: bool) -> FoundInput:
        """Find the input from where the state ends: a run that was interrupted continues, others begin.

        `has_parts`: the work folder is the one in which the run before has written.
        """
        state, names = self.state, list(self.source.names)
        before, run = state.run, Run(names, self.request.now_second, self.request.publications)
        is_resumed = (
            before is not None
            and has_parts
            and (before.logs, before.now_second, before.publications) == (run.logs, run.now_second, run.publications)
            and LedgerConfig.from_json(state.ledger) == self.config.ledger
        )
        if LedgerConfig.from_json(state.ledger) != self.config.ledger:
            state.ledger = self.config.ledger.to_json()
            self.notes.append("From here on pages are fetched again by other options than before.")
        if is_resumed and before is not None and before.finished:
            # It may have been killed right at its end: the same command gives the same results, unless there is more.
            is_resumed = self.source.is_read(state, self.request.latest_ms)
            if is_resumed:
                self.notes.append("Nothing new since these logs were replayed: the results are the same as then.")
        if not is_resumed:
            if before is not None and not before.finished:
                why = "this is another command" if has_parts else "its parts in work are lost"
                self.notes.append(
                    f"The replay before was interrupted, and {why}: the "
                    f"{before.total['events_read']:,} events that it had read count in the ledger, not in this "
                    "summary, and its rejects are not listed."
                )
            run.earlier = fewer(before.samples, _MOST_EARLIER_SAMPLES) if before is not None else []
            if log is not None:
                log.begin_run()
            state.run = run
        remove_parts(self.work, segment_at(log.head.next) if log and is_resumed else 0)
        self.ahead_before = frozenset(one.name for one in state.ahead)
        found = self.source.find(state, self.notes, self.folder is not None, self.request.latest_ms)
        rejects = b"".join(reject_line(_reject_of_empty(file), file) for file in map(readable, found.empty_files))
        write_part(self.work, Output(REJECTS, rejects, number=EMPTY_FILES))
        self.checkpoint_at_bytes = self.run_state.total["bytes_read"]
        return found

    def run(self, found: FoundInput, log: ReplayedLog | None) -> None:
        """Run all segments, with a checkpoint where it is worth its time."""
        runner = SegmentRunner(
            found.input_ranges,
            self.config,
            self.rules,
            self.work,
            runner=self.request.runner,
            beam_options=self.request.beam_options,
            segment_bytes=self.request.segment_bytes,
            latest_ms=self.request.latest_ms,
        )
        total = self.source.total(found.input_ranges)
        with closing(runner.run(log)) as segments:
            for segment in segments:
                self._record(segment.report)
                self._write_checkpoint(segment)
                if segment.log is not None and not segment.report.ended:
                    self._make_small(runner, segment.log.ledger)
                self.policies = None
                if segment.log is not None and self._are_answers(segment.log):
                    self.policies = policies_in_force(segment.log.ledger)
                events, done = self.run_state.total["events_read"], self.source.done(found.input_ranges, self.state)
                seconds, pages = time.perf_counter() - self.begun, segment.report.pages
                self.progress(Progress(events, pages, done, total, self.source.unit, seconds))

    def _make_small(self, runner: SegmentRunner, ledger: Ledger) -> None:
        """Put URLs and remembered links on disk if the ledger has become too large for memory."""
        if ledger.is_in_memory and _is_large(self.request, ledger.all_bytes()):
            files = _mapped(self.work)
            ledger.move_urls(files)
            runner.config = replace(runner.config, space=files)
            self.notes.append(
                "The ledger has become so large that URLs and links are on disk, as with urls-on-disk=true."
            )

    def _record(self, report: Report) -> None:
        """Record the report of a segment, and how far each source was read, in the state."""
        run = self.run_state
        run.counts.append(report.counts)
        run.last = replace(report, counts=Counts())
        read = {one.source: one for one in report.files}
        for source in self.state.sources:
            if one := read.get(source.name):
                keep_ahead(self.state, one, source, self.request.latest_ms)
                source.at = one.at
                if self.folder:
                    self.source.remember(source, one)
        for ahead in list(self.state.ahead):
            if one := read.get(ahead.name):
                keep_ahead(self.state, one, ahead, self.request.latest_ms)
                ahead.at, ahead.partitions = one.at, list(one.partitions)
                if one.is_done:
                    self.state.ahead.remove(ahead)

    def _are_answers(self, log: ReplayedLog) -> bool:
        """Return whether the final parts are those of the ledger as it is: not settled, no policies still to come."""
        config = self.config
        is_as_kept = (log.ledger.is_certified or not config.settle) and not config.publications
        return is_as_kept and log.policies_had == len(config.policies) and log.ledger.pages <= MOST_PAGES

    def _write_checkpoint(self, segment: SegmentDone) -> None:
        """Write a checkpoint at the end, and where the input since the last one is half as large as the snapshot."""
        if self.folder is None or segment.log is None:
            return
        bytes_read = self.run_state.total["bytes_read"]
        least_bytes = min(_LEAST_CHECKPOINT_BYTES, self.request.segment_bytes)
        is_due = bytes_read - self.checkpoint_at_bytes >= max(self.snapshot_bytes, least_bytes) // 2
        if is_due or segment.report.ended:
            self.checkpoint_at_bytes = bytes_read
            with path_in_errors(self.folder.path):
                self.snapshot_bytes = self.folder.write(self.state, segment.log)
                keep_moments(self.folder.path, part_paths(self.work, MOMENTS))

    def write_results(self, found: FoundInput) -> ReplayResult:
        """Write files and topics, with the summary last. The files have no names yet."""
        request, last = self.request, self.run_state.result
        self.notes += self.source.notes_at_end(found.input_ranges, self.state)
        if request.now_second is not None and last.audit["second"] > request.now_second:
            self.notes.append("The logs end later than --now, which changes nothing.")
        result = self._result(found)
        summary = result.summary
        summary["seconds"] = round(time.perf_counter() - self.begun, 3)
        if self.files is not None:
            result.written += self.files.write()
        if request.to is not None:
            from opicflow.pipelines.results.topic_writer import send_results

            with interrupted_after(lambda: "a part of the results may have been sent: run the same command again"):
                result.published += send_results(request.to, self.work, last.audit)
        summary["seconds"] = round(time.perf_counter() - self.begun, 3)
        summary["events_per_second"] = round(summary["events_read"] / summary["seconds"])
        if self.files is not None:
            result.written.append(self.files.write_summary(summary))
        return result

    def _result(self, found: FoundInput) -> ReplayResult:
        state, run, last = self.state, self.run_state, self.run_state.result
        summary = summary_of(state, run, found.empty_files, found.input_ranges)
        if summary["pages"] == 0:
            if self.folder:
                run.finished = True
                self.folder.write_state(state)
            raise _nothing_read(summary, found)
        return ReplayResult(
            summary=summary,
            importance=self._parts(FINAL_IMPORTANCE),
            samples=[sample for counts in run.counts for sample in counts.samples],
            idle=last.idle,
            rejects=self._parts(REJECTS),
            notes=self.notes
            + self._ahead_notes(summary)
            + policy_notes(run)
            + plan_notes(last.plan)
            + notes_for(summary, last.idle, state.ledger["remember_links"]),
            schedules=self._parts(FINAL_SCHEDULE),
            orders=self._parts(FINAL_ORDERS),
            options=state.ledger,
        )

    def _ahead_notes(self, summary: dict[str, Any]) -> list[str]:
        notes = ahead_notes(self.state, self.ahead_before, self.request.latest_ms) if self.folder else []
        is_kept = self.folder and any(one.name not in self.ahead_before for one in self.state.ahead)
        return notes if is_kept else [*ahead_note(summary), *notes]

    def _parts(self, kind: str) -> Parts:
        return Parts(self.work, kind)

    def finish(self) -> None:
        """Give the files their names, and mark the run as finished.

        Final parts have been written elsewhere: they become answers, or are removed.
        """
        if self.request.out is not None and self.folder is None:
            keep_key(self.request.out, self.config.page_ids)
        if self.files is not None:
            self.files.finish()
        if self.folder:
            self.run_state.finished = True
            self.folder.write_state(self.state)
            if self.policies is not None:
                with path_in_errors(self.folder.path):
                    plan = self.run_state.result.plan
                    write_answers(self.folder.path, self.state.snapshot, self.work, plan, self.policies)
            remove_final_parts(self.work)


def _is_large(request: ReplayRequest, size: int) -> bool:
    return request.runner in IN_PROCESS and request.most_in_memory is not None and size > request.most_in_memory


def _mapped(work: Path) -> Space:
    """Return the space for the URLs and links of large ledgers, which is loaded for them alone."""
    from opicflow.pipelines.replay.mapped_files import MappedFiles

    return MappedFiles(work)


def _nothing_read(summary: dict[str, Any], found: FoundInput) -> NothingRead:
    if why := why_all_rejected(summary):
        return AllRejected(f"nothing could be read: {why}")
    return _all_empty(found)


def _without_a_log(request: ReplayRequest, found: FoundInput) -> NothingRead:
    if found.empty_files:
        return _all_empty(found)
    return NothingRead(f"{request.state}: no ledger yet: name a log to begin with")


def _all_empty(found: FoundInput) -> NothingRead:
    names = ", ".join([*found.empty_files, *(input_range.name for input_range in found.input_ranges)])[:200]
    return NothingRead(f"{names}: empty: there is nothing to replay")


def _check_policies(request: ReplayRequest, config: ReplayConfig, log: ReplayedLog | None) -> None:
    """Refuse policies that do not begin with those that the state has applied."""
    had = log.policies_had if log else 0
    if log and config.policies and policies_chain(config.policies[:had]) != log.policies_chain:
        raise StateRefused(
            f"{request.state}: the {had} policies it has applied are not the first ones here: give all policies again, "
            "and put new ones after them, with later times"
        )


def _check_now(request: ReplayRequest, log: ReplayedLog | None) -> None:
    now = request.now_second
    if now is not None and log is not None and now < log.ledger.tick_second:
        at = iso_time(1000 * log.ledger.tick_second)
        raise StateRefused(f"--now: {request.state} is at {at}: give a later time")


def _check_strategy(request: ReplayRequest, log: ReplayedLog) -> None:
    given, holds = request.counting.refresh.get("strategy"), log.ledger.budget().strategy
    if given not in (None, holds):
        raise StateRefused(
            f"--refresh-strategy {given}: a policy of this crawl sets {holds}: omit the option, or state another policy"
        )


def _check_runner(request: ReplayRequest) -> None:
    if request.runner == LOCAL and request.beam_options:
        raise ConfigRefused(f"beam-option: --runner {LOCAL} uses no Beam: omit it, or give another runner")
    if request.runner in IN_PROCESS:
        return
    here = " or ".join(IN_PROCESS)
    if request.page_ids is not None and not request.page_ids.is_public:
        raise StateRefused(
            f"id-key needs --runner {here}: with others the key would be part of a job; or give --set id-key={PUBLIC}"
        )
    if request.urls_on_disk:
        raise ConfigRefused(f"urls-on-disk needs --runner {here}: the ledger is kept by this process")
    if request.state is not None:
        raise StateRefused(f"--state needs --runner {here}: the ledger is kept by this process")
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(request.runner)
    except (ValueError, ImportError, AttributeError):
        raise ConfigRefused(f"--runner {request.runner}: Beam has no such runner here: check its name") from None


def _settings(request: ReplayRequest, state: State | None) -> tuple[ReplayConfig, Rules]:
    """Return the settings of the request and the state; refused where they contradict each other."""
    rules = request.rules or (state.last_rules if state else Rules())
    page_ids = state.rules_of_page_ids if state else _new_page_ids(request)
    if request.page_ids not in (None, page_ids):
        raise StateRefused(f"{request.state}: its pages have ids by another key: omit id-key, or name another folder")
    rules = replace(rules, page_ids=page_ids)
    if state is None:
        config = _new_ledger(request, rules)
    else:
        kept = LedgerConfig.from_json(state.ledger)
        config = request.counting.over(kept)
        if rules.categories.count != kept.categories:
            raise StateRefused(
                f"{request.state}: its ledger has other categories of pages: give --by-media and --category as in its "
                "first replay, or name another folder"
            )
        if request.focus is not None:
            config = request.focus.over(config, rules.categories)
        if not kept.counts_alike(config):
            raise StateRefused(
                f"{request.state}: its ledger counts with other options ({_difference(config, kept)}): omit the "
                "options, or name another folder"
            )
    if request.settle and not config.remember_links:
        raise ConfigRefused("--settle needs remembered links: replay from the start with --remember-links")
    if request.settle and round(config.damping * (1 << 20)) == 1 << 20:
        raise ConfigRefused("--settle needs a damping below 1: without the small edge ranks have no certificate")
    replay_config = ReplayConfig(
        multiplier=int.from_bytes(os.urandom(8), "little"),
        ledger=config,
        settle=request.settle,
        samples=request.samples,
        moments=request.samples and request.state is not None,
        publications=request.publications,
        sites=request.sites if request.out is not None or request.to is not None else None,
        policies=tuple(sorted(request.policies, key=policy_time_ms)),
        page_ids=page_ids,
        now_second=request.now_second,
    )
    return replay_config, rules


def _new_page_ids(request: ReplayRequest) -> PageIds:
    """Return the rules of page ids of a ledger that begins now.

    Without a request they have the key of the folder of results, or a new one. Other runners get no secret.
    """
    if request.page_ids is not None:
        return request.page_ids
    if request.runner not in IN_PROCESS:
        return PageIds()
    kept = kept_page_ids(request.out) if request.out is not None and request.state is None else None
    return kept or new_page_ids()


def _new_ledger(request: ReplayRequest, rules: Rules) -> LedgerConfig:
    """Return the settings of a ledger that begins now."""
    counting = request.counting
    if request.settle and counting.remember_links is None:
        counting = replace(counting, remember_links=True)
    return default_ledger(counting, request.focus, rules.categories)


def _difference(requested: LedgerConfig, kept: LedgerConfig) -> str:
    ours, theirs = requested.to_json(), kept.to_json()
    if ours["history"]["policy"] != theirs["history"]["policy"]:
        theirs["history"] = theirs["history"]["policy"]
    return ", ".join(f"{name}: {theirs[name]}" for name in ours if ours[name] != theirs[name])


@contextmanager
def _work_folder(folder: StateFolder | None, out: Path | None) -> Iterator[Path]:
    if folder:
        folder.work.mkdir(exist_ok=True)
        yield folder.work
        return
    with work_folder(out) as work:
        yield work


def _reject_of_empty(file: str) -> Reject:
    return Reject(Reason.EMPTY_FILE, "the file is empty", file, 0, b"")
