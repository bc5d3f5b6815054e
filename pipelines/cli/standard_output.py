"""Standard output whose errors name it: those of the system name no file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

NAME = "standard output"


class _Descriptor(io.FileIO):
    def write(self, data: Any) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as problem:
            problem.filename = NAME
            raise


@contextmanager
def named_output() -> Iterator[None]:
    """Print to standard output, with errors that name it. What is printed to a closed one is lost, as by `print`."""
    out = sys.stdout
    if out is None:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            yield
        return
    if not isinstance(out, io.TextIOWrapper) or out is not sys.__stdout__:  # redirected within this process
        yield
        return
    out.flush()
    named = io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(out.fileno(), "w", closefd=False)),
        encoding=out.encoding,
        errors=out.errors,
        line_buffering=out.line_buffering or out.write_through,
    )
    try:
        with redirect_stdout(named):
            yield
        named.flush()
    finally:
        with suppress(OSError):  # what could not be written is lost
            named.close()
