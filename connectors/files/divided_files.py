"""A file of results that may be divided into parts: `importance.parquet`, or `importance-00001-of-00004.parquet`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.whole_file import partial_path

MOST_PARTS = 99_999


def paths_of(folder: Path, name: str, ending: str, parts: int) -> list[Path]:
    """Return the paths of a file in so many parts; one part is the file itself."""
    if parts == 1:
        return [folder / f"{name}.{ending}"]
    return [folder / f"{name}-{number:05}-of-{parts:05}.{ending}" for number in range(1, parts + 1)]


def found_paths(folder: Path, name: str, ending: str) -> list[Path]:
    """Return the paths of a file that is there, whole or in all its parts; none if it is not there.

    Some parts without the others are an `InputRefused`, and so are the parts of several divisions.
    """
    there = existing_paths(folder, name, ending)
    if not there:
        return []
    divisions = {_parts_in(path.name) for path in there}
    if len(divisions) > 1:
        raise InputRefused(
            f"{folder}: {there[0].name} and {there[-1].name} are of different divisions: name one "
            "file, or write them again"
        )
    expected = paths_of(folder, name, ending, divisions.pop())
    missing = [path.name for path in expected if path not in there]
    if missing:
        raise InputRefused(f"{folder}: {missing[0]} is missing, one of {len(expected)} parts: write them again")
    return expected


def files_of_result(folder: Path, name: str) -> list[str]:
    """Return the file of a result that is in a folder, or all its parts, in the one format that is there."""
    found = [paths for ending in ("jsonl", "avro", "parquet") if (paths := found_paths(folder, name, ending))]
    if not found:
        raise InputRefused(f"{folder}: no file {name} in this folder: name one that replay --out wrote, or a file")
    if len(found) > 1:
        raise InputRefused(f"{folder}: {' and '.join(paths[0].name for paths in found)} are in it: name one file")
    return [str(path) for path in found[0]]


@contextmanager
def divided_file(folder: Path, name: str, ending: str, parts: int) -> Iterator[Sequence[Path]]:
    """Paths to write the parts to. When all is written they get their names, and no other division of the file is left.

    Readers never take parts of two runs for one file. A process that is killed leaves the earlier file, the new one, or
    files that readers refuse: both files, or some parts without the others.
    """
    paths = paths_of(folder, name, ending, parts)
    partial = [partial_path(path) for path in paths]
    try:
        yield partial
        if parts == 1:
            os.replace(partial[0], paths[0])
        for path in existing_paths(folder, name, ending):
            if parts > 1 or path not in paths:
                path.unlink()
        if parts > 1:
            for written, path in zip(partial, paths, strict=True):
                os.replace(written, path)
    except BaseException:
        for path in partial:
            with suppress(FileNotFoundError):
                path.unlink()
        raise


def existing_paths(folder: Path, name: str, ending: str) -> list[Path]:
    """Return the paths of a file that are there, of whatever divisions."""
    pattern = re.compile(rf"{re.escape(name)}(-\d{{5}}-of-\d{{5}})?\.{re.escape(ending)}")
    return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name) and path.is_file())


def _parts_in(name: str) -> int:
    words = re.search(r"-of-(\d{5})\.", name)
    return int(words[1]) if words else 1
