"""The parts of results: outputs that a replay keeps in its work folder until results are written from them.

The names of a kind sort in the order of the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Any

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.connectors.runs import closing_run, find_kept, kept
from opicflow.pipelines.stages.decoded_batch import first_offset, segment_at
from opicflow.pipelines.stages.outputs import FINAL, Output

_COMPRESSED = b"x\x01"


def _name_of(output: Output) -> str:
    """Return the file name of an output: its kind, its segment, its batch there, and its number in that."""
    segment = segment_at(output.offset)
    return f"{output.kind}-{segment:06}-{output.offset - first_offset(segment):06}-{output.number:06}"


def part_paths(work: Path, kind: str, segment: int | None = None) -> list[Path]:
    """Return the parts of a kind that exist, in the order of the log; or those of one segment."""
    return sorted(work.glob(f"{kind}-*" if segment is None else f"{kind}-{segment:06}-*"))


def _segment_of(name: str) -> int | None:
    """Return the segment of an output by its file name; None for other files."""
    _, *place = name.rsplit("-", 3)
    return int(place[0]) if len(place) == 3 and all(word.isdigit() for word in place) else None


def write_part(work: Path, output: Output, compressed: bool = False) -> None:
    """Write an output, whole or not at all. One that is written again has the same bytes.

    `compressed`: those that are made at the end of the input take less room.
    """
    data = zlib.compress(output.data, 1) if compressed and output.kind in FINAL else output.data
    path = work / _name_of(output)
    write_atomically(path, data)
    arriving = find_kept(str(work), ArrivingParts)
    if arriving is not None:
        arriving.add(output.kind, path)


def read_part(path: Path) -> bytes:
    """Return a part, compressed or not: neither columns nor JSON begin like compressed data."""
    data = path.read_bytes()
    return zlib.decompress(data) if data.startswith(_COMPRESSED) else data


class Parts(Sequence[bytes]):
    """The parts of a kind in the order of the log, read on access."""

    def __init__(self, work: Path, kind: str) -> None:
        """List the parts that exist now."""
        self._paths = part_paths(work, kind)

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
        self._arrived: dict[str, dict[Path, None]] = {}
        """The final parts so far, in the order in which they came."""
        self._latest = ""
        self._is_complete = self._is_stopped = False
        self._changed = Condition()

    def add(self, kind: str, path: Path) -> None:
        """Wake readers if the next part of a final kind is there. Final kinds come last, one after the other."""
        if kind not in FINAL:
            return
        with self._changed:
            paths = self._arrived.setdefault(kind, {})
            if path not in paths:  # a repeated bundle saves it again
                paths[path] = None
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

    def has(self, kind: str, number: int = 0) -> bool:
        """Return whether this part of a kind is there, or it is known that there are fewer."""
        if self._is_complete:
            return True
        if kind not in FINAL:
            return any(final in self._arrived for final in FINAL)
        is_over = kind in self._arrived and self._latest != kind
        return is_over or len(self._arrived.get(kind, ())) > number

    def read(self, *kinds: str) -> Iterator[bytes]:
        """Yield the parts of the given kinds, one kind after the other. Waits for each part and each kind's end."""
        for kind in kinds:
            if kind in FINAL:
                yield from self._read_final(kind)
            else:
                self._wait(kind)
                for part in Parts(self._work, kind):
                    self._wait(kind)
                    yield part

    def _read_final(self, kind: str) -> Iterator[bytes]:
        number = 0
        self._wait(kind)
        while number < len(paths := list(self._arrived.get(kind, ()))):
            yield read_part(paths[number])
            number += 1
            self._wait(kind, number)
        if number == 0:  # workers elsewhere have saved them
            yield from Parts(self._work, kind)

    def _wait(self, kind: str, number: int = 0) -> None:
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
        segment = _segment_of(path.name)
        if segment is not None and segment >= from_segment:
            with suppress(FileNotFoundError):
                path.unlink()


def remove_final_parts(work: Path) -> None:
    """Remove the parts that were made at the end of the input."""
    for kind in FINAL:
        for path in part_paths(work, kind):
            with suppress(FileNotFoundError):
                path.unlink()
