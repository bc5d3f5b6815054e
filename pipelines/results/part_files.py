"""The parts of results that a replay keeps in its work folder until they are written: their names, and the files.

No other module makes or reads these names. The names of a kind sort in the order of the log. Old state folders have
them too, so they never change.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.pipelines.transforms.parts import EMPTY_FILES, FINAL, Part, PartKind

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
