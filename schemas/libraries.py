"""Parts of libraries that their next version may lack: they are private, or subclassed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opicflow.schemas.errors import UserError, in_one_line


class LibraryRefused(UserError):
    """An installed library lacks a part that is used here, or is not installed. One line: which, and a version."""


@contextmanager
def parts_of(library: str, package: str) -> Iterator[None]:
    """Raise `LibraryRefused` where a part of a library is missing that is imported, or used, in the context.

    `package` is the name by which the library is imported.
    """
    try:
        yield
    except (ImportError, AttributeError) as problem:
        if not any(one.partition(".")[0] == package for one in _sources_of(problem)):
            raise
        from importlib.metadata import requires, version

        wanted = next((one for one in requires("opicflow") or () if re.match(rf"{library}(?![\w-])", one)), library)
        raise LibraryRefused(
            f"{library} {version(library)} lacks a part that opicflow uses ({in_one_line(problem)}): "
            f"pip install '{wanted}'"
        ) from problem


def _sources_of(problem: ImportError | AttributeError) -> Iterator[str]:
    """Yield the names of the modules that lack something, or whose objects or classes do."""
    if isinstance(problem, ImportError):
        yield problem.name or ""
        return
    owner = problem.obj
    yield getattr(owner, "__name__", "")
    yield from (one.__module__ for one in (owner if isinstance(owner, type) else type(owner)).__mro__)
