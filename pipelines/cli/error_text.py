"""Messages for errors: one line with the cause, the file or option, and the remedy."""

from __future__ import annotations

import argparse
import errno
import re
from collections.abc import Mapping

from opicflow.pipelines.cli.settings_table import Setting, dest_of, shown_name
from opicflow.schemas.errors import UserError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_COMMANDS = ("damping", "tolerance", "memory")
"""Options that are no settings, whose values errors name."""
_WHOLE = re.compile(r"(?<=\d)\.0(?=: )")
"""What Python appends to a whole number that it reads as a fraction: whoever has written -5 finds no -5.0."""
_ADDED_BY_BEAM = re.compile(r" \[while running '[^']*'(?: with name '[^']*')?\]")


def one_line(problem: BaseException) -> str:
    """Return the message of an error on one line, without what Beam appends to it."""
    return _ADDED_BY_BEAM.sub("", " ".join(str(problem).split()))


def by_option(message: str, options: argparse.Namespace) -> str:
    """Return the message of a value that is not possible with the name that the user has given it, if it was given.

    >>> by_option("tolerance is 2.0: give a number to 1", argparse.Namespace(tolerance=2.0, configured={}))
    '--tolerance 2: give a number to 1'
    """
    field, is_value, rest = message.partition(" is ")
    field = field.split(" ")[0]
    settings: Mapping[str, Setting] = getattr(options, "settings", {})
    own = [field] if field in _OF_COMMANDS else []
    names = [name for name, one in settings.items() if one.field.partition(".")[2] == field]
    (name, *_) = [*names, *own, ""]
    if not is_value or getattr(options, dest_of(name), None) is None:
        return message
    rest = _WHOLE.sub("", rest, count=1)
    if dest_of(name) in options.configured:
        return f"{options.configured[dest_of(name)].where} = {rest}"
    shown = shown_name(name, settings)
    return f"{shown}{'=' if shown.startswith('--set') else ' '}{rest}"


def os_problem(problem: OSError, options: argparse.Namespace) -> str:
    """Return the message of an error of the operating system, with the path that it concerns."""
    where = problem.filename
    if where is None and problem.errno in _NO_SPACE:  # such an error names no file: it is in the work folder
        import tempfile  # with chance and compression

        where = getattr(options, "state", None) or getattr(options, "out", None) or tempfile.gettempdir()
    reason = " ".join(str(problem.strerror or problem).split())
    return f"{f'{where}: ' if where else ''}{reason}: correct this, and run the command again"


def user_problem(problem: BaseException, options: argparse.Namespace) -> str:
    """Return the message of a user's error that has the form of another exception; empty for a bug."""
    chain: BaseException | None = problem
    while chain is not None:
        if isinstance(chain, UserError):
            return one_line(chain)
        if isinstance(chain, OSError) and chain.strerror:
            return os_problem(chain, options)
        if isinstance(chain, ValueError) and str(chain).startswith("embedded null "):
            return "a path in a file that was read contains a NUL character: correct it, and run again"
        chain = chain.__cause__ or chain.__context__
    return ""
