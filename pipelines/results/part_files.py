"""The parts of results that a replay keeps in its work folder until they are written: their names, and the files.

No other module makes or reads these names. The names of a kind sort in the order of the log. Old state folders have
them too, so they never change.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Condition
from typing import Any

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.connectors.runs import closing_run, find_kept, kept
from opicflow.pipelines.stages.parts import EMPTY_FILES, FINAL, Part, PartKind

_COMPRESSED = b"x\x01"


def part_name(kind: PartKind, position: tuple[int, ...]) -> str:
    """Return the file name of a part."""
    words = [f"{number:06}" for number in position]
    if kind is PartKind.TOMBSTONES:
        words[-1] = "abc"[position[-1]]
    elif kind is PartKind.PUBLICATIONS:
        words[-1] = str(position[-1])
    elif kind is PartKind.REJECTS and position[-1] == EMPTY_FILES:
        words[-1] = "empty"
    return "-".join((kind.value, *words)) + (".json" if kind is PartKind.REPORT else "")


def segment_of(name: str) -> int | None:
    """Return the segment of a part by its file name; None for final parts and other files."""
    kind, _, position = name.partition("-")
    if kind not in list(PartKind) or kind in FINAL:
        return None
    segment = position.partition("-")[0].removesuffix(".json")
    return int(segment) if segment.isdigit() else None


def write_part(work: Path, part: Part, compressed: bool = False) -> None:
    """Write a part, whole or not at all. A part that is written again has the same bytes.

    `compressed`: the parts that are made at the end of the input take less room.
    """
    data = zlib.compress(part.data, 1) if compressed and part.kind in FINAL else part.data
    write_atomically(work / part_name(part.kind, part.position), data)
    arriving = find_kept(str(work), ArrivingParts)
    if arriving is not None:
        arriving.add(part.kind)


def read_part(path: Path) -> bytes:
    """Return a part, compressed or not: neither columns nor JSON begin like compressed data."""
    data = path.read_bytes()
    return zlib.decompress(data) if data.startswith(_COMPRESSED) else data


def read_report(work: Path, segment: int) -> dict[str, Any]:
    """Return the report of a segment."""
    report: dict[str, Any] = json.loads((work / part_name(PartKind.REPORT, (segment,))).read_bytes())
    return report


class Parts(Sequence[bytes]):
    """The parts of a kind in the order of the log, read on access."""

    def __init__(self, work: Path, kind: PartKind) -> None:
        """List the parts that exist now."""
        self._paths = sorted(work.glob(f"{kind.value}-*"))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        """Return one part, or a list for a slice."""
        found = self._paths[number]
        return [read_part(path) for path in found] if isinstance(found, list) else read_part(found)


class Stopped(Exception):
    """Raised in a waiting reader when its parts are no longer needed."""


class ArrivingParts:
    """Parts that are read while this process makes those behind them: a reader waits for the next one."""

    def __init__(self, work: Path) -> None:
        """The parts in this folder, none of which has arrived."""
        self._work = work
        self._arrived: Counter[PartKind] = Counter()
        self._latest: PartKind | None = None
        self._is_complete = self._is_stopped = False
        self._changed = Condition()

    def add(self, kind: PartKind) -> None:
        """Wake readers: the next part of a kind is there. Final kinds come last, and one after the other."""
        with self._changed:
            self._arrived[kind] += 1
            self._latest = kind
            self._changed.notify_all()

    def complete(self) -> None:
        """Wake readers: all parts are there."""
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def close(self) -> None:
        """End all readers with `Stopped`."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def has(self, kind: PartKind, number: int = 0) -> bool:
        """Return whether this part of a kind is there, or it is known that there are fewer."""
        if self._is_complete:
            return True
        if kind not in FINAL:
            return any(self._arrived[final] for final in FINAL)
        is_over = self._arrived[kind] > 0 and self._latest != kind
        return is_over or self._arrived[kind] > number

    def read(self, *kinds: PartKind) -> Iterator[bytes]:
        """Yield the parts of the given kinds, one kind after the other. Waits for each part and each kind's end."""
        for kind in kinds:
            if kind in FINAL:
                yield from self._read_final(kind)
            else:
                self._wait(kind)
                for part in Parts(self._work, kind):
                    self._wait(kind)
                    yield part

    def _read_final(self, kind: PartKind) -> Iterator[bytes]:
        for number in count():
            self._wait(kind, number)
            path = self._work / part_name(kind, (number,))
            if not path.exists():
                return
            yield read_part(path)

    def _wait(self, kind: PartKind, number: int = 0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self.has(kind, number))
            if self._is_stopped:
                raise Stopped


@contextmanager
def arriving_parts(work: Path) -> Iterator[ArrivingParts]:
    """Parts to read while this process saves them. Their readers are stopped at the end."""
    with closing_run(str(work)):
        yield kept(str(work), ArrivingParts, work)


def remove_parts(work: Path, from_segment: int = 0) -> None:
    """Remove final parts, and all parts of the segments from this one on: they will be made again."""
    remove_final_parts(work)
    for path in work.glob("*-*"):
        segment = segment_of(path.name)
        if segment is not None and segment >= from_segment:
            with suppress(FileNotFoundError):
                path.unlink()


def remove_final_parts(work: Path) -> None:
    """Remove the parts that were made at the end of the input."""
    for kind in FINAL:
        for path in work.glob(f"{kind.value}-*"):
            with suppress(FileNotFoundError):
                path.unlink()
