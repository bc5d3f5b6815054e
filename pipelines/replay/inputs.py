"""The inputs of a replay: log files here, a topic in topic_input.py; where each source begins; notes about them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, known_format
from opicflow.connectors.files.opening import STDIN, FileHead, expand, head_of, is_compressed
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.replay.state import Source, State, identify, is_read, remember_end
from opicflow.pipelines.replay.times_ahead import due
from opicflow.pipelines.stages.decode import InputRange
from opicflow.pipelines.stages.decoded_batch import SourceProgress
from opicflow.pipelines.stages.route import ANY_TIME
from opicflow.schemas.errors import UserError


class NothingRead(UserError, ValueError):
    """The input held nothing that could be used. One line."""


class AllRejected(NothingRead):
    """The input held nothing but rejects. One line."""

    exit_code = 1


class FoundInput(NamedTuple):
    """The ranges to read, and the files that are empty."""

    input_ranges: list[InputRange]
    empty_files: list[str]


class Input(ABC):
    """Sources of events. Their marks are in the state, by the names that `find` gives them."""

    unit = ""
    """The unit of progress."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The identity of a run: a replay with the same names continues where the last one was killed."""

    @abstractmethod
    def find(self, state: State, notes: list[str], may_grow: bool, latest_ms: int = ANY_TIME) -> FoundInput:
        """Find the ranges to read: from where the state ends, then those with events that are no longer ahead.

        New sources are added to the state.
        """

    @abstractmethod
    def is_read(self, state: State, latest_ms: int = ANY_TIME) -> bool:
        """Whether there is nothing that the state has not had, and that is not later than this."""

    @abstractmethod
    def total(self, input_ranges: Sequence[InputRange]) -> int | None:
        """How much there is to read, in units; None where that is not known."""

    @abstractmethod
    def done(self, input_ranges: Sequence[InputRange], state: State) -> int:
        """Return how much was read."""

    @abstractmethod
    def remember(self, source: Source, read: SourceProgress) -> None:
        """Take down how a source that was read so far can be known again."""

    @abstractmethod
    def notes_at_end(self, input_ranges: Sequence[InputRange], state: State) -> list[str]:
        """Return notes for the user, when everything was read."""


class LogFiles(Input):
    """Files, one after the other."""

    unit = "B"

    def __init__(self, logs: Sequence[str], may_be_empty: bool = False, reading: Reading = ANY) -> None:
        """Paths, globs, URLs, or - for standard input; refused where there is nothing, unless it `may_be_empty`."""
        self._logs = tuple(logs)
        self._reading = reading
        self._may_be_empty = may_be_empty
        self.files = list(dict.fromkeys(expand(logs))) if logs or not may_be_empty else []
        self._sizes: dict[str, int | None] = {}
        self._waiting: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The names as the user gave them, and how the logs are read, if not by themselves."""
        fields = (f"{field}={name}" for field, name in self._reading.fields)
        return (*self._logs, *filter(None, (self._reading.format, *fields)))

    def find(self, state: State, notes: list[str], may_grow: bool, latest_ms: int = ANY_TIME) -> FoundInput:
        """Find the files to read, from where the state ends. A file is recognised by its first and last bytes."""
        starts = starts_of(state)
        input_ranges: list[InputRange] = []
        again: list[InputRange] = []
        empty, used = [], set[str]()
        for file in self.files:
            head = FileHead() if file == STDIN else head_of(file)
            format_ = known_format(file, self._reading, head)
            if format_ is None:
                empty.append(file)
                continue
            source = _stdin_of(state) if file == STDIN else None
            if source is None:
                source, other = identify(file, head, state.sources, used)
                if other:
                    notes.append(f"{file} begins like {other.file}, but goes on differently: taken for another log.")
            used.add(source.name)
            starts.setdefault(source.name, source.at)
            self._sizes[source.name] = _size(file)
            grows = may_grow and file != STDIN
            input_ranges.append(FileRange(source.name, file, format_, source.at, may_grow=grows, reading=self._reading))
            again += [
                FileRange(one.name, file, format_, one.at, one.end, reading=self._reading, after_ms=one.after_ms)
                for one in due(state, source.name, latest_ms)
            ]
        if not input_ranges and not self._may_be_empty:
            raise NothingRead(f"{', '.join(self.files)[:200]}: empty: there is nothing to replay")
        return FoundInput([*input_ranges, *again], empty)

    def is_read(self, state: State, latest_ms: int = ANY_TIME) -> bool:
        """Return whether all files end where they ended when they were read."""
        return all(file != STDIN and self._is_read(file, state, latest_ms) for file in self.files)

    def _is_read(self, file: str, state: State, latest_ms: int) -> bool:
        head = head_of(file)
        if known_format(file, self._reading, head) is None:
            return True
        source = identify(file, head, list(state.sources), set()).source
        return is_read(source) and not due(state, source.name, latest_ms)

    def total(self, input_ranges: Sequence[InputRange]) -> int | None:
        """The bytes of files that are not compressed."""
        sizes = [self._sizes[input_range.source] for input_range in first_read(input_ranges)]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def done(self, input_ranges: Sequence[InputRange], state: State) -> int:
        """The bytes that were read, now and before."""
        at = {source.name: source.at for source in state.sources}
        return sum(at[input_range.source] for input_range in first_read(input_ranges))

    def remember(self, source: Source, read: SourceProgress) -> None:
        """A file that was read to its end is known again by its last bytes."""
        if read.is_done:
            remember_end(source)
        if read.waits:
            self._waiting.add(source.name)

    def notes_at_end(self, input_ranges: Sequence[InputRange], state: State) -> list[str]:
        """Files with nothing new, and last lines and blocks that somebody may still be writing."""
        at = {source.name: source.at for source in state.sources}
        starts = starts_of(state)
        files = [input_range for input_range in first_read(input_ranges) if isinstance(input_range, FileRange)]
        again = {input_range.name for input_range in input_ranges if input_range.after_ms is not None}
        return [
            f"{input_range.file}: nothing new since it was replayed into this state."
            for input_range in files
            if at[input_range.source] == starts[input_range.source] > 0 and input_range.name not in again
        ] + [
            f"{input_range.file}: its last {last_part(input_range.format)} is not finished: it waits for the next "
            "replay into this state."
            for input_range in files
            if input_range.source in self._waiting
        ]


def first_read(input_ranges: Sequence[InputRange]) -> list[InputRange]:
    """Return the ranges without those that are read again."""
    return [input_range for input_range in input_ranges if input_range.after_ms is None]


def starts_of(state: State) -> dict[str, int]:
    """Return where the run of a state began to read each source."""
    assert state.run is not None
    return state.run.starts


def last_part(format_: Format) -> str:
    """Return the name of that which is written last, and may be incomplete."""
    return "block" if format_ is Format.AVRO else "line"


def _stdin_of(state: State) -> Source | None:
    """Standard input as the run that goes on had it: the same bytes are expected to come again."""
    return next((s for s in state.sources if s.file == STDIN and s.name in starts_of(state)), None)


def _size(file: str) -> int | None:
    """The size of a local file that is not compressed."""
    try:
        with open(file, "rb") as opened:
            if is_compressed(opened.read(4)):
                return None
        return os.path.getsize(file)
    except OSError:
        return None
