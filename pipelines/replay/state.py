"""The folder that keeps a replay's ledger from one day to the next, and through a kill -9.

    lock               held by the replay that is using the folder
    state.json         everything but the ledger, and the name of its snapshot; renamed when both are on disk; there
                       before the first snapshot, so that a folder which lost it is not taken for a new one
    snapshot-000012/   the chunks of the ledger
    answers-000012/    a copy of the final results of that snapshot, if the run has finished (answers.py)
    moments/           the importance of all pages while the crawl ran (moments.py)
    work/              parts of the current run; rejects and publications of the last one

The crawl log is the journal: events after the last checkpoint are read from it again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import xxhash

from opicflow.connectors.files.locked_folder import locked_folder
from opicflow.connectors.files.opening import STDIN, Block, FileHead, decompressed, is_compressed, open_bytes
from opicflow.connectors.files.whole_file import remove_leftovers, sync_folder, whole_file
from opicflow.pipelines.ledger import Ledger, LedgerConfig, LedgerError
from opicflow.pipelines.ledger.shards.snapshot import HEAD_BYTES
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.replay.reports import Counts, RefusedPolicy, Report, Sample
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.errors import UserError
from opicflow.schemas.pages import PageIds, PageIdsJson, PageIdsRefused
from opicflow.schemas.plain_values import Natural, read_plain

STATE_VERSION = 1
FRONTIER_LOG_NAME = "visits.jsonl"
"""In the folder of a frontier: the log whose ledger the state is."""
_BESIDE = ("snapshot-*", "answers-*", "moments")
"""A folder has these only if `state.json` was there before."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TAIL_BYTES = 1 << 12


class StateRefused(UserError, ValueError):
    """A state folder cannot be used. One line: what, where, and what to do."""


class FolderInUse(StateRefused):
    """Another process uses the state folder."""


Reached = tuple[Natural, Natural, str]
"""A partition of a topic, the offset where reading ended, and a digest of the record before it."""


@dataclass
class Source:
    """A file that the ledger has read: recognised by its first bytes and those before `at`, where reading ended.

    Its name may change. `tail_end` and `tail_digest` are of the file's bytes on disk, taken when everything was
    read; compressed files are then known again without decompressing them.
    """

    name: str
    file: str
    head_bytes: Natural
    head_digest: str
    at: Natural = 0
    is_compressed: bool = False
    tail_end: Natural = 0
    tail_digest: str = ""
    partitions: list[Reached] = field(default_factory=list)
    """For a topic: how far each partition was read."""


@dataclass
class RangeAhead:
    """A range of a source, [at, end), with events that were ahead of the clock: later than `after_ms`.

    `earliest_ms` is the earliest time of one. `name`: of the range, under which the ledger keeps its mark. It moves on
    like a source while it is read again.
    """

    name: str
    source: str
    at: Natural
    end: Natural
    after_ms: Natural
    earliest_ms: Natural
    partitions: list[Reached] = field(default_factory=list)
    """For a topic: the beginning of each partition, as in a source."""
    end_partitions: list[Reached] = field(default_factory=list)


@dataclass
class Run:
    """A replay: the options that it can be continued with, and what it has done so far."""

    logs: list[str] = field(default_factory=list)
    now_second: int | None = None
    publications: bool = False
    starts: dict[str, Natural] = field(default_factory=dict)
    """For each source, where it began to read."""
    counts: list[Counts] = field(default_factory=list)
    """Those of each segment."""
    last: Report | None = None
    """The report of the last segment, without its counts."""
    finished: bool = False
    earlier: list[Sample] = field(default_factory=list)
    """How the crawl went before this run."""

    @property
    def result(self) -> Report:
        """The last report of a run, which has one."""
        assert self.last is not None
        return self.last

    @property
    def total(self) -> Counter[str]:
        """The tallies of all segments."""
        return _summed(one.tally for one in self.counts)

    @property
    def rejects(self) -> Counter[str]:
        """The number of rejects for each reason."""
        return _summed(one.rejects for one in self.counts)

    @property
    def samples(self) -> list[Sample]:
        """How the crawl went, up to the end of the run."""
        return [*self.earlier, *(sample for one in self.counts for sample in one.samples)]

    @property
    def refused_policies(self) -> list[RefusedPolicy]:
        """The policies that the run refused, and those that it will refuse when their time comes; and why."""
        refused = [policy for one in self.counts for policy in one.refused_policies]
        return [*refused, *(self.last.refused_to_come if self.last else ())]


@dataclass
class State:
    """Everything that a folder keeps beside the ledger. `run` is the current replay, or the last one."""

    ledger: dict[str, Any]
    """The settings of the ledger, as JSON values."""
    rules: list[dict[str, object]]
    """The rules of all replays, the last ones last."""
    sources: list[Source] = field(default_factory=list)
    run: Run | None = None
    snapshot: str = ""
    notes: str = ""
    checkpoints: Natural = 0
    ahead: list[RangeAhead] = field(default_factory=list)
    """The ranges of logs that do not count as read yet (times_ahead.py)."""
    page_ids: PageIdsJson = field(kw_only=True)
    """The rules of page ids, with their key."""

    @cached_property
    def rules_of_page_ids(self) -> PageIds:
        """The rules that gave the pages of the ledger their ids."""
        return PageIds.from_json(self.page_ids)

    @property
    def last_rules(self) -> Rules:
        """The rules of the last replay."""
        return Rules.from_json(self.rules[-1], self.rules_of_page_ids)


class StateFolder:
    """A state folder, in use by this process alone."""

    def __init__(self, path: Path) -> None:
        """Use `locked` instead."""
        self.path = path
        self.work = path / "work"

    @classmethod
    @contextmanager
    def locked(cls, path: Path, create: bool) -> Iterator[StateFolder]:
        """Use a folder, and keep others out."""
        if create:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise StateRefused(f"{path}: cannot be made ({problem.strerror}): name another folder") from None
        elif not (path / "state.json").exists():
            raise StateRefused(f"{path}: no state of a replay: make one with opicflow replay LOG --state DIR")
        with locked_folder(path, "another replay or frontier: wait for it", StateRefused, FolderInUse):
            remove_leftovers(path, r"state\.json")
            remove_leftovers(path / "work", ".*")
            yield cls(path)

    def read(self) -> State | None:
        """The state; None before the first checkpoint."""
        try:
            stored = json.loads((self.path / "state.json").read_bytes())
            version, digest, values = stored["version"], stored.get("digest"), stored.get("state")
        except FileNotFoundError:
            if left := next((name for kind in _BESIDE for name in sorted(self.path.glob(kind))), None):
                raise StateRefused(
                    f"{self.path}: state.json is missing beside {left.name}: restore the folder, or start again in "
                    "another one"
                ) from None
            return None
        except PermissionError:
            raise StateRefused(
                f"{self.path}: only the owner of its state.json can read it, as it holds the key of page ids: run this "
                "as that user"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise self._unreadable() from None
        if version != STATE_VERSION:
            raise StateRefused(
                f"{self.path}: its state has version {str(version)[:20]!r}, this code reads version {STATE_VERSION}: "
                "use the opicflow that wrote it"
            )
        if digest != _digest_of(values):
            raise self._unreadable()
        try:
            state = _decode_state(values)
        except PageIdsRefused as problem:
            raise StateRefused(f"{self.path}: {problem}") from None
        except _WRONG_VALUES:
            raise self._unreadable() from None
        return state if state.snapshot else None

    def read_existing(self) -> State:
        """The state, of which there must be one with a ledger."""
        state = self.read()
        if state is not None:
            return state
        log = self.path / FRONTIER_LOG_NAME
        if log.exists():
            advice = f"wait a minute, or use opicflow replay with its {log.name}"
            raise StateRefused(f"{self.path}: its crawl has not saved a ledger yet: {advice}")
        if (self.path / "state.json").exists():
            raise StateRefused(f"{self.path}: no ledger yet: the first replay into it did not reach a checkpoint")
        advice = "make one with opicflow replay LOG --state DIR"
        if (self.path / "summary.json").exists():
            advice = "it has results: name the folder that replay --state wrote"
        raise StateRefused(f"{self.path}: no state of a replay: {advice}")

    def _unreadable(self) -> StateRefused:
        return StateRefused(
            f"{self.path}: its state.json was damaged: restore the folder, or start again in another one"
        )

    def log(self, state: State, config: ReplayConfig) -> ReplayedLog:
        """The log of the last checkpoint, with its ledger."""
        folder = self.path / state.snapshot
        try:
            names = sorted(folder.iterdir(), key=lambda chunk: chunk.name)
            ledger = config.restored_ledger(chunk.read_bytes() for chunk in names)
        except (OSError, LedgerError) as problem:
            if isinstance(problem, OSError) and problem.errno in _NO_SPACE:
                raise  # no room for files that are mapped: the state is as it was
            reason = " ".join(str(problem).split())
            raise StateRefused(
                f"{folder}: the ledger cannot be restored ({reason}): restore the folder, or start again in another one"
            ) from None
        try:
            return ReplayedLog.from_notes(config, ledger, state.notes.encode())
        except _WRONG_VALUES:
            raise self._unreadable() from None

    def snapshot_bytes(self, state: State) -> int:
        """The bytes of the last checkpoint's snapshot; 0 if there is none."""
        folder = self.path / state.snapshot
        return sum(chunk.stat().st_size for chunk in folder.glob("*-*")) if state.snapshot else 0

    def write(self, state: State, log: ReplayedLog) -> int:
        """Write a checkpoint. Returns the bytes of the snapshot. Until it is whole, the one before counts."""
        if not (self.path / "state.json").exists():  # so a folder with a snapshot and without it has lost it
            self.write_state(replace(state, snapshot="", checkpoints=0))
        state.checkpoints += 1
        state.snapshot = f"snapshot-{state.checkpoints:06}"
        state.notes = log.notes().decode()
        folder = self.path / state.snapshot
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        size = 0
        before = {path.name.partition("-")[2]: path for path in self.path.glob("snapshot-*/*-urls-*")}
        for number, chunk in enumerate(log.ledger.snapshot_chunks()):
            path = folder / f"{number:06}-{chunk.name}"
            if not _link(before.get(chunk.name), path, chunk.data):
                with open(path, "wb") as file:
                    file.write(chunk.data)
                    file.flush()
                    os.fsync(file.fileno())
            size += len(chunk.data)
        sync_folder(folder)
        if self.work.exists():
            sync_folder(self.work)
        self.write_state(state)
        current = f"{state.checkpoints:06}"
        for old in (*self.path.glob("snapshot-*"), *self.path.glob("answers-*")):
            if old.name.partition("-")[2] != current:
                shutil.rmtree(old, ignore_errors=True)
        return size

    def write_state(self, state: State) -> None:
        """Write everything but the ledger."""
        values = asdict(state)
        stored = {"version": STATE_VERSION, "digest": _digest_of(values), "state": values}
        has_key = not state.rules_of_page_ids.is_public
        with whole_file(self.path / "state.json", is_secret=has_key) as file:
            file.write(json.dumps(stored, separators=(",", ":")).encode())
        sync_folder(self.path)


def read_ledger(path: Path) -> tuple[Ledger, Rules]:
    """Read the ledger and the rules of the last checkpoint of a state folder.

    Nothing is written or locked: the folder may be read-only, and a replay may be running in it.
    """
    folder = StateFolder(path)
    while True:
        state = folder.read_existing()
        try:
            config = ReplayConfig(
                LedgerConfig.from_json(state.ledger),
                page_ids=state.rules_of_page_ids,
                multiplier=int.from_bytes(os.urandom(8), "little"),
            )
            ledger = folder.log(state, config).ledger
        except StateRefused:
            if folder.read_existing().snapshot == state.snapshot:
                raise
            continue  # a replay removed this checkpoint after it had written the next one
        return ledger, state.last_rules


def _link(before: Path | None, path: Path, data: bytes) -> bool:
    """Link to a file of the snapshot before, if its head shows that it has the same bytes."""
    if before is None:
        return False
    try:
        with open(before, "rb") as file:
            is_same = file.read(HEAD_BYTES) == data[:HEAD_BYTES] and os.fstat(file.fileno()).st_size == len(data)
        if is_same:
            os.link(before, path)
    except OSError:  # such as on a disk without links
        return False
    return is_same


_WRONG_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of values of a wrong type or size when they are decoded. A digest does not prevent such values."""
_SNAPSHOT = re.compile(r"(snapshot-[0-9]{6,12})?")


def _decode_state(values: object) -> State:
    """The state in values; one of `_WRONG_VALUES` for anything else. All values that are used are checked."""
    state = read_plain(State, values)
    LedgerConfig.from_json(state.ledger)
    names = {source.name for source in state.sources}
    if not state.rules or _SNAPSHOT.fullmatch(state.snapshot) is None:
        raise ValueError("there are no rules, or the snapshot has another name")
    if not all(one.source in names and one.at <= one.end for one in state.ahead):
        raise ValueError("a range to read again is of no source")
    for rules in state.rules:
        Rules.from_json(rules, state.rules_of_page_ids)
    return state


def _summed(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)  # unlike a sum of counters, with the counts that are not above 0
    return total


def fewer(samples: list[Sample], most: int) -> list[Sample]:
    """Leave out every second sample until there are no more than so many. The last one stays."""
    while len(samples) > most:
        samples = samples[-1::-2][::-1]
    return samples


def _digest_of(values: object) -> str:
    return _digest(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


class Identified(NamedTuple):
    """The source that a file is, and another one that it was nearly taken for."""

    source: Source
    begins_like: Source | None = None


def identify(file: str, head: FileHead, known: list[Source], used: set[str]) -> Identified:
    """The source that a file is, which begins with `head`: one that is known, or a new one.

    A file that grew, was renamed or compressed is the same: it begins as it did, and has the same bytes before the
    position that was reached. Logs of two days often begin with the same seeds, so the first bytes alone prove little.
    """
    first = b"" if head.begins_damaged else head.data
    other = None
    for source in known:
        if source.name in used or not 0 < source.head_bytes <= len(first):
            continue
        if _digest(first[: source.head_bytes]) == source.head_digest:
            if _goes_on_alike(file, source):
                source.file = file
                return Identified(source)
            other = source
    digest = _digest(first)
    name = "stdin" if file == STDIN else f"log/{digest}"
    taken = used | {source.name for source in known}
    copies = 1
    while f"{name}-{copies}" in taken:
        copies += 1
    source = Source(f"{name}-{copies}", file, len(first), digest)
    known.append(source)
    return Identified(source, other)


def remember_end(source: Source) -> None:
    """Remember how a file ends of which all was read."""
    if source.file == STDIN:
        return
    with open_bytes(source.file) as file:
        source.is_compressed = is_compressed(file.read(4))
        source.tail_end = file.seek(0, os.SEEK_END) if source.is_compressed else source.at
        source.tail_digest = _tail(file, source.tail_end)


def is_read(source: Source) -> bool:
    """Return whether its file ends where it ended when it was read."""
    if not source.tail_digest:
        return False
    with open_bytes(source.file) as file:
        packed = is_compressed(file.read(4))
        return packed == source.is_compressed and file.seek(0, os.SEEK_END) == source.tail_end


def _goes_on_alike(file: str, source: Source) -> bool:
    """Whether the file has the bytes that the source had where it ended, so far as that is known."""
    if not source.tail_digest:
        return True
    with open_bytes(file) as opened:
        packed = is_compressed(opened.read(4))
        if packed == source.is_compressed:
            return _tail(opened, source.tail_end) == source.tail_digest
    if not packed:  # it no longer is: it is unknown which bytes the tail covers
        return True
    start = max(source.at - _TAIL_BYTES, 0)
    found = b""
    for block in decompressed(file, start=start, block_bytes=_TAIL_BYTES):
        found = block.data if isinstance(block, Block) else b""
        break
    return _digest(found[: source.at - start]) == source.tail_digest


def _tail(file: BinaryIO, end: int) -> str:
    start = max(end - _TAIL_BYTES, 0)
    file.seek(start)
    return _digest(file.read(end - start))


def _digest(data: bytes) -> str:
    return str(xxhash.xxh64_hexdigest(data))
