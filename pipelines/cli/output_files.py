"""Output files of commands."""

from __future__ import annotations

import tempfile
from pathlib import Path

from opicflow.connectors.files.opening import InputRefused

STDOUT = "-"


def file_or_stdout(text: str) -> Path | None:
    """Return the path of a file; None for `-`, where standard output is what an omitted option means."""
    return None if text == STDOUT else Path(text)


def check_output(path: Path, example: str) -> None:
    """Raise `InputRefused` before the work if its result could not be written. `example` is a name to suggest."""
    if str(path) == STDOUT:
        raise InputRefused(f"{path}: here it does not mean standard output: name a file")
    if not path.parent.is_dir():
        raise InputRefused(f"{path}: its folder is not there: make it, or name another file")
    if path.is_dir():
        raise InputRefused(f"{path}: a folder: name a file in it, such as {path / example}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as problem:
        raise InputRefused(f"{path}: cannot be written ({problem.strerror}): name another file") from None
